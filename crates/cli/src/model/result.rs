//! The results of a model: tensors, strings, and sequences of either.

use std::path::Path;

use remat::types::{Error, ErrorKind, HostTensor, Result, Shape, write_npy};
use remat_lite::{Port, Session, ValueType};
use remat_onnx::Value;
use serde_json::{Value as Json, json};

use crate::output;

/// Elements that a summary shows.
const SHOWN: usize = 6;

/// A part of an output: sequences are told by element.
pub(super) enum Given {
    Tensor(HostTensor),
    Strings(Shape, Vec<String>),
    /// An optional value that is none.
    Nothing,
}

/// The results of the last run, by name; the elements of a sequence are `NAME[0]` and on. Errors: those of [`Session::output`].
pub(super) fn results(session: &mut Session, outputs: &[Port]) -> Result<Vec<(Given, String)>> {
    let mut all = Vec::new();
    for Port { name, ty, .. } in outputs {
        match ty {
            ValueType::Tensor(..) | ValueType::Unknown => {
                all.push((Given::Tensor(session.output(name)?.to_host()?), name.clone()));
            }
            // under a plan a sequence of maps is a tensor with a row a map
            ValueType::Text | ValueType::Sequence(_) | ValueType::Optional(_) => match session.output(name) {
                Ok(tensor) => all.push((Given::Tensor(tensor.to_host()?), name.clone())),
                Err(e) if e.kind() == ErrorKind::Value => add(session.output_value(name)?, name, &mut all)?,
                Err(e) => return Err(e),
            },
        }
    }
    Ok(all)
}

/// The parts of a value, as [`results`] tells them. Errors: those of the device that has it.
pub(super) fn parts(value: Value, name: &str) -> Result<Vec<(Given, String)>> {
    let mut all = Vec::new();
    add(value, name, &mut all)?;
    Ok(all)
}

fn add(value: Value, name: &str, to: &mut Vec<(Given, String)>) -> Result<()> {
    let given = match value {
        Value::Sequence(all) => {
            return all.into_iter().enumerate().try_for_each(|(i, v)| add(v, &format!("{name}[{i}]"), to));
        }
        Value::Optional(Some(v)) => return add(*v, name, to),
        Value::Optional(None) => Given::Nothing,
        Value::Text(t) => Given::Strings(t.shape, t.data.to_vec()),
        tensor => Given::Tensor(tensor.tensor()?.to_host()?),
    };
    to.push((given, name.to_owned()));
    Ok(())
}

impl Given {
    /// The kind of this value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Given::Tensor(_) => "a tensor",
            Given::Strings(..) => "strings",
            Given::Nothing => "nothing",
        }
    }

    pub(super) fn tensor(&self) -> Option<&HostTensor> {
        match self {
            Given::Tensor(t) => Some(t),
            Given::Strings(..) | Given::Nothing => None,
        }
    }

    /// One line.
    pub(super) fn summary(&self, name: &str) -> String {
        let list =
            |first: Vec<String>, of: usize| format!("[{}{}]", first.join(", "), if of > SHOWN { ", .." } else { "" });
        match self {
            Given::Tensor(t) => {
                let v = t.to_f64_vec();
                let [least, mean, most] = statistics(&v);
                let short = |v: &f64| format!("{v:.6}").trim_end_matches('0').trim_end_matches('.').to_owned();
                let first = list(v.iter().take(SHOWN).map(short).collect(), v.len());
                format!("{name}: {}{}  min {least:.6} mean {mean:.6} max {most:.6}  {first}", t.dtype(), t.shape())
            }
            Given::Strings(shape, v) => {
                format!(
                    "{name}: string{shape}  {}",
                    list(v.iter().take(SHOWN).map(|s| format!("{s:?}")).collect(), v.len())
                )
            }
            Given::Nothing => format!("{name}: none"),
        }
    }

    pub(super) fn json(&self, name: &str) -> Json {
        match self {
            Given::Tensor(t) => {
                let v = t.to_f64_vec();
                let [least, mean, most] = statistics(&v);
                let first: Vec<&f64> = v.iter().take(SHOWN).collect();
                json!({
                    "name": name, "dtype": t.dtype().to_string(), "shape": t.shape().dims(),
                    "min": least, "mean": mean, "max": most, "first": first,
                })
            }
            Given::Strings(shape, v) => {
                let first: Vec<&String> = v.iter().take(SHOWN).collect();
                json!({ "name": name, "dtype": "string", "shape": shape.dims(), "first": first })
            }
            Given::Nothing => json!({ "name": name, "dtype": null }),
        }
    }

    /// Writes DIR/NAME.npy, or strings as DIR/NAME.json. Errors: Io, with the path.
    pub(super) fn write(&self, dir: &Path, name: &str) -> Result<()> {
        // a name may hold anything; a file's may not lead out of the folder
        let file: String =
            name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
        let path = |extension: &str| dir.join(format!("{}.{extension}", file.trim_start_matches('.')));
        match self {
            Given::Tensor(t) => {
                let mut bytes = Vec::new();
                write_npy(t, &mut bytes)?;
                output::write(&path("npy"), bytes)
            }
            Given::Strings(shape, v) => {
                output::write(&path("json"), format!("{}\n", json!({ "shape": shape.dims(), "data": v })))
            }
            Given::Nothing => Ok(()),
        }
    }
}

/// Makes the folder and writes all. Errors: Io, with the path.
pub(super) fn write(dir: &Path, results: &[(Given, String)]) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| Error::from(e).context(dir.display()))?;
    results.iter().try_for_each(|(given, name)| given.write(dir, name))
}

fn statistics(v: &[f64]) -> [f64; 3] {
    let least = v.iter().copied().fold(f64::INFINITY, f64::min);
    let most = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    [least, v.iter().sum::<f64>() / v.len() as f64, most]
}
