//! Writing: one tensor at a time, then one rename.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use remat_types::{Error, ErrorKind, Result, safetensors_dtype};
use safetensors::tensor::{Metadata, TensorInfo};

use super::format::{KEY, MODEL, OPTIMIZER, VERSION, bad};
use super::{FILE_NAME, TrainState};
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
    let header = header(&tensors, meta.to_string())?;
    fs::create_dir_all(dir).map_err(|e| Error::from(e).context(dir.display()))?;
    let temporary = dir.join(format!(".{FILE_NAME}.{}", std::process::id()));
    let written = write_file(&temporary, &header, &tensors)
        .and_then(|()| fs::rename(&temporary, dir.join(FILE_NAME)).map_err(Error::from))
        .and_then(|()| Ok(File::open(dir)?.sync_all()?));
    if let Err(e) = written {
        // the first error is the one to tell
        let _ = fs::remove_file(&temporary);
        return Err(e.context(format_args!("writing a checkpoint to {}", dir.display())));
    }
    Ok(())
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

fn header(tensors: &BTreeMap<String, Parameter>, meta: String) -> Result<Vec<u8>> {
    let mut at = 0;
    let mut list = Vec::new();
    for (name, p) in tensors {
        let dtype = safetensors_dtype(p.dtype())
            .ok_or_else(|| bad(format!("{name}: no name for {} in the file", p.dtype())))?;
        let end = at + p.elems() * p.dtype().size_bytes();
        list.push((name.clone(), TensorInfo { dtype, shape: p.shape().to_vec(), data_offsets: (at, end) }));
        at = end;
    }
    let meta = HashMap::from([(KEY.to_owned(), meta)]);
    let header = Metadata::new(Some(meta), list).map_err(|e| bad(e.to_string()))?;
    let mut text = serde_json::to_vec(&header).map_err(|e| bad(e.to_string()))?;
    text.resize(text.len().next_multiple_of(HEADER_ALIGN), b' ');
    Ok(text)
}

fn write_file(path: &Path, header: &[u8], tensors: &BTreeMap<String, Parameter>) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header)?;
    for (name, p) in tensors {
        file.write_all(p.to_host().map_err(|e| e.context(name))?.bytes())?;
    }
    let file = file.into_inner().map_err(|e| Error::from(e.into_error()))?;
    Ok(file.sync_all()?)
}
