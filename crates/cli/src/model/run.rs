//! `remat run`: a model on given inputs, and what it gives.

use std::path::{Path, PathBuf};

use clap::Args;
use remat::types::{Error, ErrorKind, HostTensor, Result, read_file};
use serde_json::{Value as Json, json};

use super::difference::{Difference, Tolerance};
use super::inputs::{InputOptions, made_up};
use super::result::{Given, results, write};
use super::{RunOptions, load, open, refuse_unsupported};
use crate::output::{note, say};
use crate::sizes::show;
use crate::{input, output};

const EXAMPLES: &str = "\
Examples:
  remat run resnet18.onnx --input image.png --top 5 --labels classes.txt
  remat run bert.onnx --input tokens='[101, 2054, 102]' --output results
  remat run model.onnx --shape 1x3x224x224 --memory-budget 60%     random numbers, within a budget
  remat run model.onnx --check test_data_set_0                     compare with outputs that another runtime wrote

Exit codes: 0 done, and equal within the tolerance where --check asks; 1 a difference, or an error; 2 the budget cannot be met;
3 nodes that cannot run, which are listed.";

/// Options of the command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// An ONNX model
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    #[command(flatten)]
    given: InputOptions,
    /// Compute these outputs only
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Write the outputs to DIR as NAME.npy, strings as NAME.json
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Take the inputs from input_N.pb in DIR, and compare the outputs with output_N.pb
    #[arg(long, value_name = "DIR", conflicts_with_all = ["input", "only"])]
    check: Option<PathBuf>,
    #[command(flatten)]
    tolerance: Tolerance,
    /// Show the K largest numbers of each row of the first output that has numbers
    #[arg(long, value_name = "K")]
    top: Option<u16>,
    /// Names of the classes for --top, one a line
    #[arg(long, value_name = "FILE", requires = "top")]
    labels: Option<PathBuf>,
    #[command(flatten)]
    run: RunOptions,
    /// Write what was given as JSON; `-` is standard output, which then has nothing else
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs the command; the exit code.
pub(crate) fn run(o: &Options) -> Result<u8> {
    let network = open(&o.model, &o.run, o.given.shapes(), (!o.only.is_empty()).then(|| o.only.clone()))?;
    if let Some(code) = refuse_unsupported(&network) {
        return Ok(code);
    }
    let ports = network.inputs().to_vec();
    let outputs = network.outputs().to_vec();
    let inputs = match &o.check {
        None => o.given.tensors(&ports)?,
        Some(dir) => (0..ports.len()).map(|i| recorded(dir, "input", i).map(Some)).collect::<Result<_>>()?,
    };
    let mut loaded = load(&o.model, network, &o.run, &o.given.shapes_for(&ports, &inputs)?)?;
    let session = &mut loaded.session;
    for (port, x) in ports.iter().zip(made_up(session, inputs)?) {
        session.set_input(&port.name, &x)?;
    }
    session.run()?;
    let results = results(session, &outputs)?;
    if let Some(dir) = &o.output {
        write(dir, &results)?;
    }
    let differences = o.check.as_deref().map(|dir| compare(o, dir, &results)).transpose()?;
    let memory = session.memory()?;
    let labels = o.labels.as_deref().map(labels).transpose()?.unwrap_or_default();
    let first = results.iter().find_map(|(given, _)| given.tensor());
    let top = o.top.map(|k| first.map_or(Ok(Vec::new()), |t| top(t, usize::from(k), &labels)));
    let top = top.transpose()?.unwrap_or_default();
    if let Some(path) = &o.json {
        let outputs: Vec<Json> = results.iter().map(|(given, name)| given.json(name)).collect();
        let report = json!({
            "model": o.model.display().to_string(),
            "outputs": outputs,
            "top": top.iter().map(|row| row.iter().map(|c| json!({ "class": c.class, "name": c.name, "value": c.value })).collect()).collect::<Vec<Json>>(),
            "differences": differences.as_ref().map(|all| all.iter().map(Difference::json).collect::<Vec<_>>()),
            "peak_bytes": memory.total_bytes(),
            "budget_bytes": loaded.budget_bytes,
            "recomputed_calls": memory.recomputed_calls,
            "stored_bytes": memory.stored_bytes,
        });
        output::write(path, format!("{report}\n"))?;
    }
    if !o.json.as_deref().is_some_and(output::is_standard) {
        results.iter().for_each(|(given, name)| say!("{}", given.summary(name)));
        print_top(&top);
        let of = loaded.budget_bytes.map_or_else(String::new, |b| format!(" of the budget's {}", show(b)));
        let again = if memory.recomputed_calls > 0 {
            format!(", {} calls run again", memory.recomputed_calls)
        } else {
            String::new()
        };
        let stored = if memory.stored_bytes > 0 {
            format!(", {} of weights read from a file", show(memory.stored_bytes))
        } else {
            String::new()
        };
        say!("memory {}{of}{again}{stored}", show(memory.total_bytes()));
    }
    let Some(differences) = differences else { return Ok(0) };
    for d in &differences {
        note!("output {}", d.text());
    }
    let different = differences.iter().filter(|d| !d.is_within).count();
    note!("{} of {} outputs are within the tolerance", differences.len() - different, differences.len());
    Ok(u8::from(different > 0))
}

/// A tensor of the standard's test data.
fn recorded(dir: &Path, what: &str, i: usize) -> Result<HostTensor> {
    let path = dir.join(format!("{what}_{i}.pb"));
    let read = read_file(&path, 1 << 31).and_then(remat_onnx::read_tensor);
    read.map_err(|e| if e.to_string().contains(&path.display().to_string()) { e } else { e.context(path.display()) })
}

/// How the outputs differ from the recorded ones.
fn compare(o: &Options, dir: &Path, results: &[(Given, String)]) -> Result<Vec<Difference>> {
    let of = |(i, (given, name)): (usize, &(Given, String))| {
        let no_tensor =
            || Error::new(ErrorKind::Value, format!("output `{name}` is no tensor, and --check compares those"));
        let got = given.tensor().ok_or_else(no_tensor)?;
        Ok(o.tolerance.compare(name, got, &recorded(dir, "output", i)?, true))
    };
    results.iter().enumerate().map(of).collect()
}

/// A number of a row, and the class that it is of.
struct Class {
    class: usize,
    name: Option<String>,
    value: f64,
}

fn labels(path: &Path) -> Result<Vec<String>> {
    Ok(input::file(path)?.lines().map(str::to_owned).collect())
}

/// The largest of each row, largest first. Errors (Value): labels of another number of classes.
fn top(t: &HostTensor, k: usize, labels: &[String]) -> Result<Vec<Vec<Class>>> {
    let classes = t.shape().dims().last().copied().unwrap_or(1);
    if !labels.is_empty() && labels.len() != classes {
        let text = format!("{} labels for the {classes} classes of {}", labels.len(), t.shape());
        return Err(Error::new(ErrorKind::Value, text));
    }
    let values = t.to_f64_vec();
    let row = |row: &[f64]| {
        let mut all: Vec<usize> = (0..row.len()).collect();
        all.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        let of = |class| Class { class, name: labels.get(class).cloned(), value: row[class] };
        all.into_iter().take(k).map(of).collect()
    };
    Ok(values.chunks(classes.max(1)).map(row).collect())
}

fn print_top(rows: &[Vec<Class>]) {
    for (i, row) in rows.iter().enumerate() {
        if rows.len() > 1 {
            say!("row {i}");
        }
        for c in row {
            say!(
                "  {:>10.6}  {}",
                c.value,
                c.name.as_ref().map_or_else(|| c.class.to_string(), |n| format!("{} {n}", c.class))
            );
        }
    }
}
