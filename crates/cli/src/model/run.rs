//! `remat run`: runs a model on given inputs, and shows its outputs.

use std::path::{Path, PathBuf};

use clap::Args;
use remat::runtime::{Device, DeviceOptions};
use remat::types::{Error, ErrorKind, HostTensor, Result, read_file};
use remat_lite::Port;
use remat_onnx::{Value, read_value};
use serde_json::{Value as Json, json};

use super::difference::{Difference, Tolerance};
use super::inputs::{InputOptions, made_up};
use super::result::{Given, parts, results, write};
use super::{RunOptions, load, open, refuse_unsupported};
use crate::output::{note, say};
use crate::sizes::show;
use crate::{input, output};

const EXAMPLES: &str = "\
Examples:
  remat run resnet18.onnx --input photo.jpg --preprocess imagenet --top 5 --labels classes.txt
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
    /// Write the results as JSON; `-` is standard output, which then has nothing else
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
    let files = o.check.as_deref().map(Recorded::of).transpose()?;
    let values = files.as_ref().map(|files| files.all(&ports, "input")).transpose()?;
    let inputs = match &values {
        None => o.given.tensors(&network)?,
        Some(all) => all.iter().map(|v| tensor_of(v).transpose()).collect::<Result<_>>()?,
    };
    let mut loaded = load(&o.model, network, &o.run, &o.given.shapes_for(&ports, &inputs)?)?;
    let session = &mut loaded.session;
    match values {
        None => {
            for (port, x) in ports.iter().zip(made_up(session, inputs)?) {
                session.set_input(&port.name, &x)?;
            }
        }
        Some(all) => {
            for ((port, x), v) in ports.iter().zip(&inputs).zip(all) {
                match x {
                    Some(x) => session.set_input(&port.name, x)?,
                    None => session.set_value(&port.name, v)?,
                }
            }
        }
    }
    session.run()?;
    let results = results(session, &outputs)?;
    if let Some(dir) = &o.output {
        write(dir, &results)?;
    }
    let wanted = files.map(|files| files.all(&outputs, "output")).transpose()?;
    let differences = wanted.map(|wanted| compare(o, &results, wanted, &outputs)).transpose()?;
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

/// The files of the standard's test data: `input_0.pb` and on, `output_0.pb` and on.
struct Recorded<'d> {
    dir: &'d Path,
    /// The device on which sequences of tensors are read.
    device: Device,
}

impl Recorded<'_> {
    fn of(dir: &Path) -> Result<Recorded<'_>> {
        Ok(Recorded { dir, device: Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() })? })
    }

    /// A value for each of these ports: a tensor, a sequence, an optional value, as the model declares. Errors, which name the
    /// file: Io; Format, DType, Shape for a file that holds no such value.
    fn all(&self, ports: &[Port], what: &str) -> Result<Vec<Value>> {
        let read = |(i, port): (usize, &Port)| {
            let path = self.dir.join(format!("{what}_{i}.pb"));
            let value = read_file(&path, 1 << 31).and_then(|bytes| read_value(port, &self.device, bytes));
            value.map_err(|e| {
                let named = e.to_string().contains(&path.display().to_string());
                if named { e } else { e.context(path.display()) }
            })
        };
        ports.iter().enumerate().map(read).collect()
    }
}

/// The tensor that a value is, on the host; `None` for strings, sequences and absent values.
fn tensor_of(v: &Value) -> Option<Result<HostTensor>> {
    match v {
        Value::Tensor(t) | Value::Constant(t, _) => Some(t.to_host()),
        _ => None,
    }
}

/// How the outputs differ from the recorded ones: part by part, where one is a sequence.
fn compare(o: &Options, results: &[(Given, String)], wanted: Vec<Value>, outputs: &[Port]) -> Result<Vec<Difference>> {
    let mut all = Vec::new();
    for (value, port) in wanted.into_iter().zip(outputs) {
        let got: Vec<&(Given, String)> = results.iter().filter(|(_, name)| is_part(name, &port.name)).collect();
        let parts = parts(value, &port.name)?;
        // under a plan a sequence of maps is a tensor with a row for each
        if let [(Given::Tensor(t), name)] = got[..]
            && parts.first().is_some_and(|(_, first)| first != name)
        {
            all.push(match laid_out(&parts, t)? {
                Some(want) => o.tolerance.compare(name, t, &want, true),
                None => {
                    let text = format!("{}{}, not a sequence of {} parts", t.dtype(), t.shape(), parts.len());
                    Difference::whole(name, "sequence", Some(text))
                }
            });
            continue;
        }
        if got.len() != parts.len() {
            let text = format!("a sequence of {}, not {}", got.len(), parts.len());
            all.push(Difference::whole(&port.name, "sequence", Some(text)));
        }
        all.extend(got.iter().zip(&parts).map(|((got, name), (want, _))| difference(o, name, got, want)));
        if got.is_empty() && parts.is_empty() {
            all.push(Difference::whole(&port.name, "sequence", None));
        }
    }
    Ok(all)
}

/// Whether a result is an output, or a part of one that is a sequence.
fn is_part(name: &str, output: &str) -> bool {
    name.strip_prefix(output).is_some_and(|rest| rest.is_empty() || rest.starts_with('[') && rest.ends_with(']'))
}

/// The elements of all parts in order, in the shape of `like`; `None` if they are not as many of its type. Errors: Format.
fn laid_out(parts: &[(Given, String)], like: &HostTensor) -> Result<Option<HostTensor>> {
    let mut bytes = Vec::new();
    for (part, _) in parts {
        match part {
            Given::Tensor(t) if t.dtype() == like.dtype() => bytes.extend_from_slice(t.bytes()),
            _ => return Ok(None),
        }
    }
    if bytes.len() != like.bytes().len() {
        return Ok(None);
    }
    HostTensor::from_bytes(like.dtype(), like.shape().clone(), &bytes).map(Some)
}

fn difference(o: &Options, name: &str, got: &Given, want: &Given) -> Difference {
    match (got, want) {
        (Given::Tensor(got), Given::Tensor(want)) => o.tolerance.compare(name, got, want, true),
        (Given::Strings(shape, got), Given::Strings(want_shape, want)) => {
            let at = got.iter().zip(want).position(|(a, b)| a != b);
            let text = match at {
                _ if shape != want_shape => Some(format!("string{shape}, not string{want_shape}")),
                Some(i) => Some(format!("{:?} at {i}, expected {:?}", got[i], want[i])),
                None => None,
            };
            Difference::whole(name, &format!("string{want_shape}"), text)
        }
        (Given::Nothing, Given::Nothing) => Difference::whole(name, "none", None),
        _ => Difference::whole(name, want.kind(), Some(format!("{}, not {}", got.kind(), want.kind()))),
    }
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
