//! `remat inspect`: what a model computes and holds, by layer.

mod figures;
mod page;
mod picture;

use std::path::PathBuf;

use clap::Args;
use remat::types::Result;

use super::{RunOptions, ShapeOptions, load, open, refuse_unsupported};
use crate::{lifetimes, output};
use figures::{Figures, Planned};

const EXAMPLES: &str = "\
Examples:
  remat inspect resnet50.onnx
  remat inspect bert.onnx --extent batch=8 --shape tokens=8x128 --rows 30
  remat inspect resnet50.onnx --html resnet50.html       one page: the graph, the memory over the run, the cost by operator
  remat inspect model.onnx --json - | jq .unsupported

Exit codes: 0, or 3 where nodes of the model cannot run: they are listed, with the nearest operator that can.";

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// An ONNX model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    shapes: ShapeOptions,
    #[command(flatten)]
    run: RunOptions,
    /// Layers and activations that are listed
    #[arg(long, value_name = "N", default_value = "12")]
    rows: u16,
    /// Draw the graph
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write one page with all of it, which needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write all figures as JSON; here and above `-` is standard output, which then has nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command; the exit code.
pub(crate) fn run(o: &Options) -> Result<u8> {
    let network = open(&o.model, &o.run, &o.shapes, None)?;
    let title = o.model.file_name().map_or_else(|| o.model.display().to_string(), |n| n.to_string_lossy().into_owned());
    let bytes = std::fs::metadata(&o.model).map_or(0, |m| m.len());
    if !network.unsupported().is_empty() {
        show(o, &Figures::unplanned(&title, bytes, &network), None)?;
        return Ok(refuse_unsupported(&network).unwrap_or(0));
    }
    let shapes = o.shapes.or_ones(network.inputs())?;
    let mut figures = Figures::unplanned(&title, bytes, &network);
    let written = network.graph(&shapes)?;
    let mut loaded = load(&o.model, network, &o.run, &shapes)?;
    let memory = loaded.session.memory()?;
    let (Some(written), Some(run)) = (written, loaded.session.runtime()) else {
        output::note!("sizes follow from values, so that there is no plan, and no figures by layer");
        return show(o, &figures, None).map(|()| 0);
    };
    let executable = run.executable()?.clone();
    figures.planned = Some(Planned::of(&written, executable.calls(), memory));
    let memory_svg = lifetimes::picture(&title, &executable);
    let graph_svg = picture::svg(&title, executable.graph());
    if let Some(path) = &o.svg {
        output::write(path, &graph_svg)?;
    }
    show(o, &figures, Some([&graph_svg, &memory_svg]))?;
    Ok(0)
}

/// In all forms that were asked for.
fn show(o: &Options, figures: &Figures, pictures: Option<[&str; 2]>) -> Result<()> {
    if let Some(path) = &o.html {
        output::write(path, page::html(figures, pictures))?;
    }
    if let Some(path) = &o.json {
        output::write(path, format!("{}\n", figures.json()))?;
    }
    if ![&o.svg, &o.html, &o.json].into_iter().flatten().any(|path| output::is_standard(path)) {
        output::print(&figures.text(o.rows.into()));
    }
    Ok(())
}
