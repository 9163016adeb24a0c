//! Reading, of files that may be anything.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use remat_types::{Result, TensorsReader};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::format::{KEY, MODEL, OPTIMIZER, UNSEALED_VERSION, VERSION, bad};
use super::seal::Seal;
use super::{Checkpoint, OptimizerState, TrainState};

pub(super) fn read(path: &Path) -> Result<Checkpoint> {
    // names the path itself
    let file = TensorsReader::open(path)?;
    parse(file).map_err(|e| e.context(path.display()))
}

/// Errors: Format, naming the tensor or the field.
fn parse(mut file: TensorsReader<impl Read>) -> Result<Checkpoint> {
    let meta =
        file.text().get(KEY).ok_or_else(|| bad(format!("`__metadata__` has no `{KEY}`: not a checkpoint of Remat")))?;
    let meta: Map<String, Value> = serde_json::from_str(meta).map_err(|e| bad(format!("`{KEY}`: {e}")))?;
    let seal = seal(&meta)?;
    if let Some(s) = &seal {
        s.check_header(file.header())?;
    }
    let (mut model, mut state) = (BTreeMap::new(), BTreeMap::new());
    while let Some((name, value)) = file.next_tensor()? {
        if let Some(s) = &seal {
            s.check_tensor(&name, &value)?;
        }
        if let Some(name) = name.strip_prefix(MODEL) {
            model.insert(name.to_owned(), value);
        } else if let Some(name) = name.strip_prefix(OPTIMIZER) {
            state.insert(name.to_owned(), value);
        } else {
            return Err(bad(format!("tensor `{name}` is neither of the model nor of the optimiser")));
        }
    }
    let optimizer = match meta.get("optimizer") {
        Some(options) => Some(OptimizerState { options: options.clone(), state }),
        None if state.is_empty() => None,
        None => return Err(bad("state of an optimiser without the field `optimizer`")),
    };
    Ok(Checkpoint { train: train(&field(&meta, "", "train")?)?, model, rngs: field(&meta, "", "rngs")?, optimizer })
}

/// The checksums; `None` in files from before there were any. Errors: Format for a version that this program does not know.
fn seal(meta: &Map<String, Value>) -> Result<Option<Seal>> {
    let version: u64 = field(meta, "", "version")?;
    if !(UNSEALED_VERSION..=VERSION).contains(&version) {
        return Err(bad(format!("`version` is {version}, this program reads {UNSEALED_VERSION} to {VERSION}")));
    }
    if version == UNSEALED_VERSION && !meta.contains_key("sha256") {
        return Ok(None);
    }
    field(meta, "", "sha256").map(Some)
}

fn train(m: &Map<String, Value>) -> Result<TrainState> {
    Ok(TrainState {
        step: field(m, "train.", "step")?,
        epoch: field(m, "train.", "epoch")?,
        schedule: field(m, "train.", "schedule")?,
        rng: field(m, "train.", "rng")?,
        loader: field(m, "train.", "loader")?,
        user: field(m, "train.", "user")?,
    })
}

/// Errors: Format, naming the field, if it is missing or of another type.
fn field<T: DeserializeOwned>(m: &Map<String, Value>, path: &str, name: &str) -> Result<T> {
    let value = m.get(name).ok_or_else(|| bad(format!("field `{path}{name}` is missing")))?;
    serde_json::from_value(value.clone()).map_err(|e| bad(format!("field `{path}{name}`: {e}")))
}
