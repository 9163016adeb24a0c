//! Writing: one tensor at a time, then one rename.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use remat_types::{Error, ErrorKind, Result, safetensors_dtype};
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::Value;

use super::format::{KEY, MODEL, OPTIMIZER, VERSION, bad};
use super::seal::{self, Seal};
use super::{TrainState, publish};
use crate::{Module, Optimizer, Parameter};

/// The header's length is a multiple of this, so that tensors are aligned for readers that map the file.
const HEADER_ALIGN: usize = 8;

pub(super) fn write(
    dir: &Path,
    model: &dyn Module,
    optimizer: Option<&dyn Optimizer>,
    train: &TrainState,
) -> Result<()> {
    let mut meta = serde_json::json!({ "version": VERSION, "train": train, "rngs": model.rng_states() });
    let mut tensors = named(MODEL, model.named_state())?;
    if let Some(o) = optimizer {
        meta["optimizer"] = o.options()?;
        tensors.append(&mut named(OPTIMIZER, o.named_state())?);
    }
    let mut written = || {
        let mut file = publish::begin(dir)?;
        write_file(file.as_file_mut(), &tensors, &mut meta)?;
        Ok(publish::publish(file, dir)?)
    };
    written().map_err(|e: Error| e.context(format_args!("writing a checkpoint to {}", dir.display())))
}

/// Parameters by their names in the file. Errors: Value if two have one name.
fn named(prefix: &str, parameters: Vec<(String, Parameter)>) -> Result<BTreeMap<String, Parameter>> {
    let mut all = BTreeMap::new();
    for (name, p) in parameters {
        let name = format!("{prefix}{name}");
        if all.insert(name.clone(), p).is_some() {
            return Err(Error::new(ErrorKind::Value, format!("two parameters are called `{name}`")));
        }
    }
    Ok(all)
}

/// The file up to the first tensor, with the header's length.
fn header(tensors: &BTreeMap<String, Parameter>, meta: &mut Value, seal: &Seal) -> Result<Vec<u8>> {
    meta["sha256"] = serde_json::to_value(seal).map_err(|e| bad(e.to_string()))?;
    let mut at = 0;
    let mut list = Vec::new();
    for (name, p) in tensors {
        let dtype = safetensors_dtype(p.dtype())
            .ok_or_else(|| bad(format!("{name}: no name for {} in the file", p.dtype())))?;
        let end = at + p.elems() * p.dtype().size_bytes();
        list.push((name.clone(), TensorInfo { dtype, shape: p.shape().to_vec(), data_offsets: (at, end) }));
        at = end;
    }
    let meta = HashMap::from([(KEY.to_owned(), meta.to_string())]);
    let header = Metadata::new(Some(meta), list).map_err(|e| bad(e.to_string()))?;
    let mut text = serde_json::to_vec(&header).map_err(|e| bad(e.to_string()))?;
    text.resize(text.len().next_multiple_of(HEADER_ALIGN), b' ');
    Ok([&(text.len() as u64).to_le_bytes()[..], &text].concat())
}

/// Header, tensors, and the header again, which then has the checksums of all.
fn write_file(to: &mut File, tensors: &BTreeMap<String, Parameter>, meta: &mut Value) -> Result<()> {
    let mut seal = Seal::reserved(tensors.keys());
    let reserved = header(tensors, meta, &seal)?.len();
    let mut file = BufWriter::new(to);
    file.write_all(&vec![0; reserved])?;
    for (name, p) in tensors {
        let value = p.to_host().map_err(|e| e.context(name))?;
        seal.note(name, value.bytes());
        file.write_all(value.bytes())?;
    }
    let mut header = header(tensors, meta, &seal)?;
    seal::seal_header(&mut header)?;
    if header.len() != reserved {
        return Err(Error::new(ErrorKind::Internal, "checksums changed the length of a checkpoint's header"));
    }
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header)?;
    file.into_inner().map_err(|e| Error::from(e.into_error()))?;
    Ok(())
}
