//! Writing: one tensor at a time, then one rename.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use remat_tensor::comm::Call;
use remat_types::{Error, ErrorKind, HostTensor, Result, safetensors_dtype};
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::Value;
use tempfile::NamedTempFile;

use super::format::{KEY, MODEL, OPTIMIZER, VERSION, bad};
use super::seal::{self, Seal};
use super::{TrainState, publish};
use crate::division::Taker;
use crate::{Module, Optimizer, Parameter, state};

/// The header's length is a multiple of this, so that tensors are aligned for readers that map the file.
const HEADER_ALIGN: usize = 8;

/// Writes the state of a run. If ranks divide the state, all of them call this function, and the first writes.
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
    let told = |e: Error| e.context(format_args!("writing a checkpoint to {}", dir.display()));
    let group = state::group_of(tensors.values()).map_err(told)?;
    let is_writer = group.as_ref().is_none_or(|g| Taker::First.is_rank_of(g));
    let mut file = None;
    // A failure that no call has reported yet may belong to a step that this state lacks.
    let begun = state::sync(&model.named_state()).and_then(|()| {
        if is_writer {
            file = Some(Writing::begin(dir, &tensors, &mut meta).map_err(told)?);
        }
        Ok(())
    });
    let entries = tensors.iter().map(|(name, p)| (name.as_str(), p)).collect();
    state::each_whole(&entries, Taker::First, begun, |name, value| match &mut file {
        Some(file) => file.put(name, &value).map_err(told),
        None => Ok(()),
    })?;
    let written = file.map_or(Ok(()), |file| file.end(dir, &tensors, &mut meta).map_err(told));
    match group {
        Some(group) => group.agree(&Call::named("a checkpoint's end"), written),
        None => written,
    }
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
        let shape = p.whole_shape();
        let end = at + shape.elems() * p.dtype().size_bytes();
        list.push((name.clone(), TensorInfo { dtype, shape: shape.to_vec(), data_offsets: (at, end) }));
        at = end;
    }
    let meta = HashMap::from([(KEY.to_owned(), meta.to_string())]);
    let header = Metadata::new(Some(meta), list).map_err(|e| bad(e.to_string()))?;
    let mut text = serde_json::to_vec(&header).map_err(|e| bad(e.to_string()))?;
    text.resize(text.len().next_multiple_of(HEADER_ALIGN), b' ');
    Ok([&(text.len() as u64).to_le_bytes()[..], &text].concat())
}

/// A file that is being written: a place for its header, tensors, and then the header, which has the checksums of all.
struct Writing {
    file: BufWriter<NamedTempFile>,
    seal: Seal,
    reserved: usize,
}

impl Writing {
    fn begin(dir: &Path, tensors: &BTreeMap<String, Parameter>, meta: &mut Value) -> Result<Writing> {
        let seal = Seal::reserved(tensors.keys());
        let reserved = header(tensors, meta, &seal)?.len();
        let mut file = BufWriter::new(publish::begin(dir)?);
        file.write_all(&vec![0; reserved])?;
        Ok(Writing { file, seal, reserved })
    }

    /// The next tensor, in the order of names.
    fn put(&mut self, name: &str, value: &HostTensor) -> Result<()> {
        self.seal.note(name, value.bytes());
        Ok(self.file.write_all(value.bytes())?)
    }

    /// Makes the file the checkpoint of `dir`.
    fn end(mut self, dir: &Path, tensors: &BTreeMap<String, Parameter>, meta: &mut Value) -> Result<()> {
        let mut header = header(tensors, meta, &self.seal)?;
        seal::seal_header(&mut header)?;
        if header.len() != self.reserved {
            return Err(Error::new(ErrorKind::Internal, "checksums changed the length of a checkpoint's header"));
        }
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header)?;
        let file = self.file.into_inner().map_err(|e| Error::from(e.into_error()))?;
        Ok(publish::publish(file, dir)?)
    }
}
