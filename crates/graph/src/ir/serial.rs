//! The file form: a safetensors file with the constants as tensors and the text form in its metadata.
//!
//! So there is one grammar, and any safetensors reader shows what a file holds.

use std::collections::BTreeMap;
use std::path::Path;

use remat_ops::Registry;
use remat_types::{Result, TensorsFile, TensorsReader, read_safetensors, write_safetensors};

use super::{Graph, Origin, ValueId, bad};

/// The key of the text form in the file's metadata.
const KEY: &str = "remat.graph";

impl Graph {
    /// The bytes of the file form. Errors (Format) if an op's parameters do not serialise.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut tensors = BTreeMap::new();
        for v in self.value_ids() {
            if let Origin::Constant(data) = &self.value(v).origin {
                tensors.insert(tensor_name(self, v), (**data).clone());
            }
        }
        let text = self.print(&|v, _| format!("tensor {}", tensor_name(self, v)))?;
        write_safetensors(&tensors, &BTreeMap::from([(KEY.to_owned(), text)]))
    }

    /// Reads the file form, with the ops of `registry`. Errors (Format): no such file; as [`Graph::parse`].
    pub fn from_bytes(bytes: &[u8], registry: &Registry) -> Result<Graph> {
        Graph::from_tensors(read_safetensors(bytes)?, registry)
    }

    /// As [`Graph::from_bytes`], of a file. Errors: also Io; all name the path.
    pub fn load(path: impl AsRef<Path>, registry: &Registry) -> Result<Graph> {
        // names the path itself
        let file = TensorsReader::open(&path)?;
        let graph = file.rest().and_then(|file| Graph::from_tensors(file, registry));
        graph.map_err(|e| e.context(path.as_ref().display()))
    }

    fn from_tensors((tensors, text): TensorsFile, registry: &Registry) -> Result<Graph> {
        let text = text.get(KEY).ok_or_else(|| bad(format!("`__metadata__` has no `{KEY}`: no graph of Remat")))?;
        Graph::parse_with(text, registry, &|name| {
            tensors.get(name).cloned().ok_or_else(|| bad(format!("the file has no tensor `{name}`")))
        })
    }
}

/// The name of a constant's tensor in the file.
fn tensor_name(g: &Graph, v: ValueId) -> String {
    format!("constant.{}", g.label(v).trim_start_matches('%'))
}
