//! Weights of other frameworks' files, by name.
//!
//! A [`NameMap`] says as data what a name is called here; the values go through the one way by which state is replaced
//! ([`Module::load_state_dict`]), so a loading takes all of a file or nothing.

mod layout;
mod names;
mod nearest;
mod torch;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use remat_nn::{LoadReport, Module, Parameter};
use remat_types::{Error, ErrorKind, HostTensor, Result, TensorsReader, open_file};

pub use names::NameMap;
pub use torch::{TorchReader, TorchScalar, read_torch};

use layout::{Piece, put_together};
use names::Found;

/// Dots in what names of a part of a file begin with, if the part was perhaps meant.
const PART_MAX_DOTS: usize = 3;
/// Parts that are looked at, of each number of dots.
const PARTS_LOOKED_AT: usize = 100;

/// Replaces all parameters and buffers of `module` by those of a file whose names and layouts are another framework's, as
/// `names` says. Floats are cast to the parameters' dtypes. Gradients stay.
///
/// The file is of the safetensors format or one that PyTorch's `torch.save` wrote, which its first bytes tell; of the latter only
/// what `names` takes is read, by the names of [`TorchReader`], and nothing is run. [`NameMap::within`] takes the part
/// `state_dict.` of a checkpoint that holds an optimiser's state, too.
///
/// Errors, after which nothing has changed: those of reading a file; Value, one that lists every name of the file for which
/// `names` has no rule or the module no entry and every entry of the module that got no value, each with the nearest name of
/// the other side, and everything of another shape; Budget if old and new state do not fit together.
///
/// ```
/// use remat_zoo::models::{ResNet, ResNetConfig};
/// use remat_nn::{InitCx, Layer, Linear, Module};
/// use remat_zoo::{NameMap, load_weights};
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
    load_file(module, path.as_ref(), names, true)
}

/// As [`load_weights`], but what the file does not have, such as a new head, stays as it is, and so does what only the file has;
/// the report names both. Errors: as there, except for those; Value if nothing at all matches.
pub fn load_weights_partly<M: Module + ?Sized>(
    module: &M,
    path: impl AsRef<Path>,
    names: &NameMap,
) -> Result<LoadReport> {
    load_file(module, path.as_ref(), names, false)
}

/// As [`load_weights`] (`strict`) or [`load_weights_partly`], of tensors that were read already.
pub fn load_state<M: Module + ?Sized>(
    module: &M,
    state: BTreeMap<String, HostTensor>,
    names: &NameMap,
    strict: bool,
) -> Result<LoadReport> {
    let mut state = state;
    let theirs: Vec<String> = state.keys().cloned().collect();
    let value = |name: &str| state.remove(name).ok_or_else(|| Error::new(ErrorKind::Internal, "a tensor taken twice"));
    load_from(module, theirs, value, names, strict)
}

/// As [`load_state`], of tensors called `theirs` that `read` gives one at a time: those that `names` takes and the module has.
fn load_from<M: Module + ?Sized>(
    module: &M,
    theirs: Vec<String>,
    mut read: impl FnMut(&str) -> Result<HostTensor>,
    names: &NameMap,
    strict: bool,
) -> Result<LoadReport> {
    let entries = module.named_state();
    let own: BTreeMap<&str, &Parameter> = entries.iter().map(|(n, p)| (n.as_str(), p)).collect();
    let found = names.find(theirs.iter())?;
    let mut pieces: BTreeMap<String, Vec<Piece>> = BTreeMap::new();
    let (mut unknown, mut wrong) = (Vec::new(), Vec::new());
    for (theirs, found) in theirs.iter().zip(found) {
        match found {
            Found::Dropped => {}
            Found::Called(name, change) if own.contains_key(name.as_str()) => {
                let value = read(theirs)?;
                pieces.entry(name).or_default().push(Piece { theirs: theirs.clone(), value, change });
            }
            Found::Called(name, _) => unknown.push((theirs.clone(), name)),
            Found::Nothing => unknown.push((theirs.clone(), theirs.clone())),
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
    let mut faults = faults(&unknown, &missing, &own, wrong, strict);
    if !faults.is_empty() {
        let part = part_with_all(names, &theirs, &own);
        faults.extend(part.map(|p| format!("everything is there within `{p}`: `NameMap::within` takes that part")));
        return Err(Error::new(ErrorKind::Value, format!("the file does not fit the module; {}", faults.join("; "))));
    }
    if !strict {
        ready.extend(unknown.into_iter().map(|(theirs, _)| (theirs, HostTensor::scalar(0f32))));
    }
    module.load_state_dict(&ready, strict)
}

fn load_file<M: Module + ?Sized>(module: &M, path: &Path, names: &NameMap, strict: bool) -> Result<LoadReport> {
    if !is_torch_file(path)? {
        return load_state(module, TensorsReader::open(path)?.rest()?.0, names, strict);
    }
    let mut reader = TorchReader::open(path)?;
    let theirs = reader.names().map(str::to_owned).collect();
    let mut limit = reader.limit();
    let read = |name: &str| reader.tensor_within(name, &mut limit).map_err(|e| e.context(path.display()));
    load_from(module, theirs, read, names, strict)
}

/// True if PyTorch's `torch.save` wrote the file, of any version, which its first bytes tell: what [`read_torch`] reads or says how to
/// save anew. Errors: as [`open_file`]; Io.
pub fn is_torch_file(path: impl AsRef<Path>) -> Result<bool> {
    let path = path.as_ref();
    let (file, _) = open_file(path)?;
    let mut start = Vec::new();
    file.take(torch::MAGIC_BYTES).read_to_end(&mut start).map_err(|e| Error::from(e).context(path.display()))?;
    Ok(torch::TorchKind::of(&start).is_some())
}

/// The common prefix of a part of the file that has all entries of the module.
fn part_with_all(names: &NameMap, theirs: &[String], own: &BTreeMap<&str, &Parameter>) -> Option<String> {
    let beginning = |name: &String, dot: usize| name.match_indices('.').nth(dot).map(|(at, _)| name[..=at].to_owned());
    let parts = (0..PART_MAX_DOTS).flat_map(|dot| {
        let all: BTreeSet<String> = theirs.iter().filter_map(|name| beginning(name, dot)).collect();
        all.into_iter().take(PARTS_LOOKED_AT)
    });
    let mut parts = parts.filter(|part| {
        let found = names.clone().within(part).find(theirs.iter()).unwrap_or_default();
        let called =
            found.iter().filter_map(|f| if let Found::Called(name, _) = f { Some(name.as_str()) } else { None });
        let called: BTreeSet<&str> = called.filter(|name| own.contains_key(name)).collect();
        !own.is_empty() && called.len() == own.len()
    });
    parts.next()
}

/// The faults that keep a file from being loaded.
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
