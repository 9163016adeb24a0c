//! `remat graph`: the operations and the memory of a graph, in figures and pictures.
//!
//! A graph comes from a file, is the forward pass of a network of `nn::models`, or is the training step of a task;
//! the latter two are traced on a device without memory. Figures for people go to standard output.

mod dot;
mod source;
mod summary;

use std::path::PathBuf;

use clap::Args;
use remat::types::Result;

use crate::budget::MemoryBudget;
use crate::lifetimes::{Lifetimes, timeline};
use crate::model::ShapeOptions;
use crate::output;
use crate::workload::Source;

/// How to use it, with examples that can be pasted.
const EXAMPLES: &str = "\
Examples:
  remat graph model:resnet50                              figures of a forward pass
  remat graph model:gpt --batch 8 --out gpt.safetensors   the graph as a file, which any reader of safetensors opens
  remat graph model:resnet50 --dot - | dot -Tsvg > resnet50.svg
  remat graph gpt.safetensors --text                      in words
  remat graph resnet18.onnx --extent batch=8 --memory-timeline lifetimes.svg
  remat graph train:digits --memory-timeline lifetimes.svg    what lives when in a training step, the largest by name
  remat graph train:chars --memory-budget 60% --memory-timeline lifetimes.svg

A graph is a file (as `--out` writes it, or as `--text` prints it), a model (ONNX or .remat), `model:NAME` with one of mlp, resnet18, resnet50,
mobilenetv2, gpt, bert, or `train:NAME` with one of digits, chars, mlp, resnet18, resnet50, gpt.";

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A file, `model:NAME` or `train:NAME`
    #[arg(value_name = "GRAPH")]
    source: Source,
    /// Examples of a batch [default: 1 for a model, the recipe's for training]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    batch: Option<u16>,
    #[command(flatten)]
    shapes: ShapeOptions,
    /// Most bytes of a run: what does not fit is computed again, and shows as such; of a percentage, 100 are what the run
    /// takes without a budget
    #[arg(long, default_value = "unlimited", value_name = "BUDGET", allow_hyphen_values = true)]
    memory_budget: MemoryBudget,
    /// Print the graph in words instead of its figures
    #[arg(long)]
    text: bool,
    /// Write the graph in the DOT language, layers as boxes and blocks as frames: `dot -Tsvg` draws it
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Draw the bytes that live at each call; a file that ends in `.json` has them as figures
    #[arg(long, value_name = "FILE")]
    memory_timeline: Option<PathBuf>,
    /// Write the figures as JSON; here and above `-` is standard output, which then has nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the graph as a file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(o: &Options) -> Result<()> {
    let traced = source::graph(&o.source, o.batch.map(usize::from), &o.shapes, o.memory_budget)?;
    let graph = traced.executable.graph();
    let lifetimes = Lifetimes::of(&traced.executable);
    if let Some(path) = &o.dot {
        output::write(path, dot::text(&o.source.to_string(), graph))?;
    }
    if let Some(path) = &o.memory_timeline {
        let is_json = path.extension().is_some_and(|e| e == "json");
        let text = match is_json {
            true => format!("{}\n", timeline::json(&o.source.to_string(), graph, &lifetimes)),
            false => timeline::svg(&o.source.to_string(), graph, &lifetimes),
        };
        output::write(path, text)?;
    }
    if let Some(path) = &o.out {
        output::write(path, graph.to_bytes()?)?;
    }
    if let Some(path) = &o.json {
        let json = summary::json(&o.source, &traced, &lifetimes);
        output::write(path, format!("{json}\n"))?;
    }
    if [&o.dot, &o.memory_timeline, &o.out, &o.json].into_iter().flatten().any(|path| output::is_standard(path)) {
        return Ok(());
    }
    let text = if o.text { graph.to_text()? } else { summary::text(&o.source, &traced, &lifetimes) };
    output::print(&text);
    Ok(())
}
