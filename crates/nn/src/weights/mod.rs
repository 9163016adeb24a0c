//! Weights of other frameworks' files, by name.
//!
//! What a name is called here is data, a [`NameMap`]; the values go through the one way by which state is replaced
//! (`crate::state`), so a loading takes all of a file or nothing.

mod layout;
mod names;
mod nearest;

use std::collections::BTreeMap;
use std::path::Path;

use remat_types::{Error, ErrorKind, HostTensor, Result, TensorsReader};

use crate::state::{self, LoadReport};
use crate::{Module, Parameter};

pub use names::NameMap;

use layout::{Piece, put_together};
use names::Found;

/// Replaces all parameters and buffers of `module` by those of a safetensors file whose names and layouts are another
/// framework's, as `names` says. Floats are cast to the parameters' dtypes. Gradients stay.
///
/// Errors, after which nothing has changed: those of reading a file; Value, one that lists every name of the file for which
/// `names` has no rule or the module no entry and every entry of the module that got no value, each with the nearest name of
/// the other side, and everything of another shape; Budget if old and new state do not fit together.
///
/// ```
/// use remat_nn::models::{ResNet, ResNetConfig};
/// use remat_nn::{InitCx, Layer, Linear, Module, NameMap, load_weights};
/// # use remat_runtime::{Device, DeviceOptions};
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// # let theirs = Linear::new(&mut InitCx::new(&device, 1), 2, 3)?.state_dict()?;
/// # let theirs = theirs.into_iter().map(|(n, t)| (format!("classifier.{n}"), t)).collect();
/// # let path = std::env::temp_dir().join(format!("remat-load-weights-{}.safetensors", std::process::id()));
/// # std::fs::write(&path, remat_types::write_safetensors(&theirs, &Default::default())?)?;
/// let head = Linear::new(&mut InitCx::new(&device, 2), 2, 3)?;
/// let report = load_weights(&head, &path, &NameMap::parse("classifier.{p} -> {p}")?)?;
/// assert_eq!(report.matched, ["bias", "weight"]);
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
pub fn load_weights<M: Module + ?Sized>(module: &M, path: impl AsRef<Path>, names: &NameMap) -> Result<LoadReport> {
    load_state(module, read(path.as_ref())?, names, true)
}

/// As [`load_weights`], but what the file does not have, such as a new head, stays as it is, and so does what only the file has;
/// the report names both. Errors: as there, except for those; Value if nothing at all matches.
pub fn load_weights_partly<M: Module + ?Sized>(
    module: &M,
    path: impl AsRef<Path>,
    names: &NameMap,
) -> Result<LoadReport> {
    load_state(module, read(path.as_ref())?, names, false)
}

/// As [`load_weights`] (`strict`) or [`load_weights_partly`], of tensors that were read already.
pub fn load_state<M: Module + ?Sized>(
    module: &M,
    state: BTreeMap<String, HostTensor>,
    names: &NameMap,
    strict: bool,
) -> Result<LoadReport> {
    let entries = module.named_state();
    let own: BTreeMap<&str, &Parameter> = entries.iter().map(|(n, p)| (n.as_str(), p)).collect();
    let found = names.find(state.keys())?;
    let mut pieces: BTreeMap<String, Vec<Piece>> = BTreeMap::new();
    let (mut unknown, mut wrong) = (Vec::new(), Vec::new());
    for ((theirs, value), found) in state.into_iter().zip(found) {
        match found {
            Found::Dropped => {}
            Found::Called(name, change) if own.contains_key(name.as_str()) => {
                pieces.entry(name).or_default().push(Piece { theirs, value, change });
            }
            Found::Called(name, _) => unknown.push((theirs, name)),
            Found::Nothing => unknown.push((theirs.clone(), theirs)),
        }
    }
    let mut ready = BTreeMap::new();
    for (name, parts) in pieces {
        match put_together(parts, own[name.as_str()]) {
            Ok(value) => drop(ready.insert(name, value)),
            Err(e) => wrong.push(format!("{name}: {}", e.message())),
        }
    }
    let missing: Vec<&str> = own.keys().copied().filter(|n| !ready.contains_key(*n)).collect();
    let faults = faults(&unknown, &missing, &own, wrong, strict);
    if !faults.is_empty() {
        return Err(Error::new(ErrorKind::Value, format!("the file does not fit the module; {}", faults.join("; "))));
    }
    if !strict {
        ready.extend(unknown.into_iter().map(|(theirs, _)| (theirs, HostTensor::scalar(0f32))));
    }
    state::stage(&entries, &ready, strict)?.apply()
}

fn read(path: &Path) -> Result<BTreeMap<String, HostTensor>> {
    Ok(TensorsReader::open(path)?.rest()?.0)
}

/// What keeps a file from being loaded.
fn faults(
    unknown: &[(String, String)],
    missing: &[&str],
    own: &BTreeMap<&str, &Parameter>,
    wrong: Vec<String>,
    strict: bool,
) -> Vec<String> {
    let mut faults = Vec::new();
    if strict && !missing.is_empty() {
        let given: Vec<&str> = unknown.iter().map(|(_, name)| name.as_str()).collect();
        let each = missing.iter().map(|name| nearest::told(name, &given));
        faults.push(format!("without a value: {}", each.collect::<Vec<_>>().join(", ")));
    }
    if strict && !unknown.is_empty() {
        let known: Vec<&str> = own.keys().copied().collect();
        let each = unknown.iter().map(|(theirs, name)| {
            let what = if theirs == name { theirs.clone() } else { format!("{theirs}, as {name}") };
            nearest::hinted(what, name, &known)
        });
        faults.push(format!("unknown here: {}", each.collect::<Vec<_>>().join(", ")));
    }
    if !wrong.is_empty() {
        faults.push(format!("of another shape: {}", wrong.join(", ")));
    }
    faults
}

#[cfg(test)]
mod tests;
