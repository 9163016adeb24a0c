//! `remat convert` and `remat optimize`: a model as a file of another format, or of the same after passes.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use remat::graph::ir::{Origin, ValueId};
use remat::types::{Error, ErrorKind, Result};
use remat_lite::{Dim, Extent, GraphFile, GraphForm, Network, Options, ValueType, optimize};
use remat_onnx::export::{self, DataPlace, ExportOptions};

use super::{KeyOption, PassOptions, ShapeOptions, open_with, read_key, refuse_unsupported};
use crate::output::{note, say};
use crate::sizes::show;

const CONVERT_EXAMPLES: &str = "\
Examples:
  remat convert resnet18.onnx resnet18.remat                     extents that the model names stay open
  remat convert bert.onnx bert.remat --symbol batch=1..64 --symbol tokens=1..512
  remat convert bert.onnx bert-1x128.remat --extent batch=1 --shape tokens=1x128
  remat convert resnet18.remat resnet18.onnx --opset 21          for another runtime
  remat convert model.onnx model.remat --only logits --encrypt model.key

A .remat file is a safetensors file: any reader of those shows its weights, by the names that the model gave them. The graph is in
its metadata. A key is 32 bytes: `head -c 32 /dev/urandom > model.key`.

Exit codes: 0 done, 1 an error, 3 nodes that cannot be read or written.";

const OPTIMIZE_EXAMPLES: &str = "\
Examples:
  remat optimize resnet18.onnx resnet18.remat                    constants folded, operators fused, batch norms in convolutions
  remat optimize bert.remat bert-bf16.remat --half bf16          half the bytes of weights
  remat optimize model.onnx small.onnx --level 2                 nothing that changes a bit, and back to ONNX

Sessions run these passes too: the file loads sooner, and other runtimes have them.";

/// Most of an open extent unless it is given: the largest of these halves at which the model is still one graph.
const MOST: usize = 4096;
/// The least that [`MOST`] is halved to.
const LEAST_MOST: usize = 8;

/// Options of `remat convert`.
#[derive(Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub(crate) struct Convert {
    #[command(flatten)]
    files: Files,
}

/// Options of `remat optimize`.
#[derive(Args)]
#[command(after_help = OPTIMIZE_EXAMPLES)]
pub(crate) struct Optimize {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    passes: PassOptions,
}

/// The files to read and to write.
#[derive(Args)]
struct Files {
    /// A model, ONNX or .remat
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The file to write, .onnx or .remat
    #[arg(value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    shapes: ShapeOptions,
    /// An extent that stays open between two sizes, such as `--symbol batch=1..64`; those that the model names do unless they are given
    #[arg(long, value_name = "NAME=A..B", value_parser = symbol)]
    symbol: Vec<Dim>,
    /// Keep these outputs only
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The version of ONNX's operators to write, from 18 to 28 [default: 21, which runtimes have known for long]
    #[arg(long, value_name = "N")]
    opset: Option<i64>,
    /// Put the weights of an ONNX model into a file beside it
    #[arg(long)]
    weights_beside: bool,
    #[command(flatten)]
    key: KeyOption,
    /// Encrypt the weights of a .remat file with the key in FILE
    #[arg(long, value_name = "FILE")]
    encrypt: Option<PathBuf>,
}

/// The format to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Onnx,
    Remat,
}

fn symbol(text: &str) -> std::result::Result<Dim, String> {
    let parsed = || {
        let (name, range) = text.rsplit_once('=')?;
        let (least, most) = range.split_once("..")?;
        Some(Dim::new(name, least.parse().ok()?, most.parse().ok()?))
    };
    parsed().ok_or_else(|| format!("`{text}` is no open extent; write its name and two sizes, as in batch=1..64"))
}

/// Runs `remat convert`; the exit code.
pub(crate) fn run(o: &Convert) -> Result<u8> {
    write(&o.files, None)
}

/// Runs `remat optimize`; the exit code.
pub(crate) fn run_optimize(o: &Optimize) -> Result<u8> {
    write(&o.files, Some(o.passes))
}

fn write(o: &Files, passes: Option<PassOptions>) -> Result<u8> {
    let format = match o.out.extension().and_then(|e| e.to_str()) {
        Some("onnx") => Format::Onnx,
        Some("remat") => Format::Remat,
        _ => {
            let text =
                format!("{}: the file to write ends with .onnx or .remat, which says its format", o.out.display());
            return Err(Error::new(ErrorKind::Value, text));
        }
    };
    if let (Ok(from), Ok(to)) = (o.model.canonicalize(), o.out.canonicalize())
        && from == to
    {
        let text = format!("{}: the file to write is the model itself; name another one", o.out.display());
        return Err(Error::new(ErrorKind::Value, text));
    }
    let outputs = (!o.only.is_empty()).then(|| o.only.clone());
    let options = Options { outputs, key: o.key.key()?, ..passes.map_or_else(Options::default, PassOptions::loader) };
    let encrypt = o.encrypt.as_deref().map(read_key).transpose()?;
    if format == Format::Onnx && encrypt.is_some() {
        return Err(Error::new(ErrorKind::Value, "ONNX has no encrypted weights; write a .remat file"));
    }
    let network = open_with(&o.model, options.clone(), &o.shapes)?;
    if let Some(code) = refuse_unsupported(&network) {
        return Ok(code);
    }
    let file = converted(o, &network)?;
    drop(network);
    let file = if passes.is_some() { optimize(&file, &options)? } else { file };
    match format {
        Format::Remat => save(&o.out, &file.to_bytes(encrypt.as_ref())?)?,
        Format::Onnx => export(o, &file)?.save(&o.out, place(o))?,
    }
    say!("{}: {}", o.out.display(), described(&file));
    Ok(0)
}

fn place(o: &Files) -> DataPlace {
    if o.weights_beside { DataPlace::Beside } else { DataPlace::Inside }
}

/// The model as a graph file. Named extents without a given size stay open, as far as possible.
fn converted(o: &Files, network: &Network) -> Result<GraphFile> {
    let shapes = o.shapes.given(network.inputs())?;
    let named = open_names(network, o);
    if named.is_empty() {
        return network.graph_file(&shapes, &o.symbol);
    }
    let mut most = MOST;
    loop {
        let symbols: Vec<Dim> = o.symbol.iter().cloned().chain(named.iter().map(|n| Dim::new(n, 1, most))).collect();
        match network.graph_file(&shapes, &symbols) {
            Ok(file) => {
                note!("{}: 1 to {most}; `--symbol` gives other bounds, `--extent` one size", named.join(", "));
                return Ok(file);
            }
            // a model that takes no more than so many, as one with a table of positions does
            Err(_) if most > LEAST_MOST => most /= 2,
            Err(e) => {
                let text = format!("{} cannot stay open; `--extent` and `--shape` give sizes", named.join(", "));
                return Err(e.context(text));
            }
        }
    }
}

/// Extents with a name for which nothing was given.
fn open_names(network: &Network, o: &Files) -> Vec<String> {
    let is_given = |name: &str| {
        o.shapes.extent.iter().any(|(given, _)| given == name) || o.symbol.iter().any(|d| *d.name == *name)
    };
    let mut names: Vec<String> = Vec::new();
    for port in network.inputs() {
        let whole = o.shapes.shape.iter().any(|(n, _)| n.as_deref().is_none_or(|n| n == port.name));
        let ValueType::Tensor(_, Some(extents)) = &port.ty else { continue };
        for e in extents {
            if let Extent::Named(name) = e
                && !whole
                && !is_given(name)
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
    }
    names
}

fn export(o: &Files, file: &GraphFile) -> Result<export::Exported> {
    let metadata = file.metadata.iter().filter(|(k, _)| !matches!(k.as_str(), "name" | "producer"));
    let mut options = ExportOptions {
        name: file.metadata.get("name").cloned().unwrap_or_else(|| "remat".to_owned()),
        metadata: metadata.map(|(k, v)| (k.clone(), v.clone())).collect(),
        ..ExportOptions::default()
    };
    options.opset = o.opset.unwrap_or(options.opset);
    match &file.form {
        GraphForm::Fixed(graph) => export::export(graph, &options),
        GraphForm::Symbolic(s) => export::export_symbolic(s.dims(), |sizes| s.instantiate(sizes), &options),
    }
}

/// Writes a file as a whole, or leaves the old one.
fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|e| Error::from(e).context(path.display()))
}

/// The contents of a file, in words.
fn described(file: &GraphFile) -> String {
    let g = file.form.example();
    let is_constant = |v: &ValueId| matches!(g.value(*v).origin, Origin::Constant(_));
    let weights: Vec<usize> = g.value_ids().filter(is_constant).map(|v| g.fact(v).bytes()).collect();
    let open = match &file.form {
        GraphForm::Fixed(_) => String::new(),
        GraphForm::Symbolic(s) => {
            let each: Vec<String> = s.dims().iter().map(|d| format!("{} {} to {}", d.name, d.least, d.most)).collect();
            format!(", {}", each.join(", "))
        }
    };
    let bytes: usize = weights.iter().sum();
    format!("{} operations, {} constants of {}{open}", g.nodes().len(), weights.len(), show(bytes))
}
