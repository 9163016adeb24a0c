//! The file form of graphs, `.remat`: a safetensors file with the constants as tensors and the text form in its metadata.
//!
//! So there is one grammar, and any safetensors reader shows what a file holds. The keys of the metadata:
//!
//! | key | what |
//! |---|---|
//! | `remat.version` | version of these keys: 2, or 1 without a checksum; files without it are of version 1 too |
//! | `remat.checksum` | CRC-32 of the rest, as `crc32:0123abcd`; encrypted files have none, and are of version 1 |
//! | `remat.graph` | the graph in the text form, `tensor NAME` for constants |
//! | `remat.symbols` | of a graph over symbols: `[{"name":"b","least":1,"most":64}]` |
//! | `remat.graph.1` .. | of a graph over symbols: its forms at the neighbouring sizes ([`Symbolic::corners`]) |
//! | `remat.cipher` | the cipher, if the tensors are encrypted ([`Key`]) |
//! | others | what the writer says about the graph: a name, a licence |

mod checksum;
mod cipher;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use remat_ops::Registry;
use remat_types::{
    Error, ErrorKind, Fact, HostTensor, Result, TensorsFile, TensorsReader, read_safetensors, write_safetensors,
};
use serde::{Deserialize, Serialize};

use super::symbolic::{Dim, Symbolic};
use super::text::{data_text, name_text};
use super::{Graph, Origin, ValueId, bad};
pub use cipher::Key;
use cipher::Sealed;

/// Keys of the metadata that this form keeps for itself begin so.
const RESERVED: &str = "remat.";
const GRAPH: &str = "remat.graph";
const SYMBOLS: &str = "remat.symbols";
const CIPHER: &str = "remat.cipher";
const VERSION: &str = "remat.version";
/// The version of files with a checksum. The version announces the checksum, since the checksum's own key may be damaged.
const CHECKED: &str = "2";
/// That of files without.
const UNCHECKED: &str = "1";

/// A graph as a file has it.
#[derive(Clone)]
pub enum GraphForm {
    /// With extents that are numbers.
    Fixed(Graph),
    /// Over symbols.
    Symbolic(Symbolic),
}

/// A graph, and the metadata of its file.
///
/// ```
/// use remat_graph::ir::{Builder, GraphFile, GraphForm};
/// use remat_types::{DType, Fact, HostTensor};
/// # fn main() -> remat_types::Result<()> {
/// let b = Builder::new();
/// let x = b.input(Fact::new(DType::F32, [2]), Some("x"));
/// b.constant(&HostTensor::from_slice(&[0.5f32, 1.5], [2])?);
/// b.output(x, "y");
/// let file = GraphFile { form: GraphForm::Fixed(b.finish()?), metadata: [("name".into(), "identity".into())].into() };
/// let bytes = file.to_bytes(None)?;
/// let again = GraphFile::from_bytes(&bytes, None, &remat_ops::Registry::builtin())?;
/// assert_eq!(again.metadata["name"], "identity");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct GraphFile {
    /// The graph.
    pub form: GraphForm,
    /// Text about it, by key; keys that begin with `remat.` are the form's own.
    pub metadata: BTreeMap<String, String>,
}

impl fmt::Debug for GraphFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbols = match &self.form {
            GraphForm::Fixed(_) => &[][..],
            GraphForm::Symbolic(s) => s.dims(),
        };
        let nodes = self.form.example().nodes().len();
        f.debug_struct("GraphFile").field("nodes", &nodes).field("symbols", &symbols).finish_non_exhaustive()
    }
}

/// A symbol in the metadata.
#[derive(Serialize, Deserialize)]
struct SymbolEntry {
    name: String,
    least: usize,
    most: usize,
}

impl GraphForm {
    /// The graph, whose extents are at the lowest sizes of comparison if it is over symbols.
    pub fn example(&self) -> &Graph {
        match self {
            GraphForm::Fixed(g) => g,
            GraphForm::Symbolic(s) => s.example(),
        }
    }
}

impl GraphFile {
    /// The bytes of a file, encrypted if there is a key.
    ///
    /// Errors (Format): ops whose parameters do not serialise, metadata under keys of the form's own.
    pub fn to_bytes(&self, key: Option<&Key>) -> Result<Vec<u8>> {
        if let Some(own) = self.metadata.keys().find(|k| k.starts_with(RESERVED)) {
            return Err(bad(format!("metadata under `{own}`: keys that begin with `{RESERVED}` are the form's own")));
        }
        let mut text = self.metadata.clone();
        text.insert(VERSION.into(), if key.is_some() { UNCHECKED } else { CHECKED }.into());
        let base = self.form.example();
        let names = tensor_names(base);
        text.insert(GRAPH.into(), base.print(&|v, _| tensor_text(&names[&v]))?);
        if let GraphForm::Symbolic(s) = &self.form {
            let entry = |d: &Dim| SymbolEntry { name: d.name.to_string(), least: d.least, most: d.most };
            let all: Vec<SymbolEntry> = s.dims().iter().map(entry).collect();
            text.insert(SYMBOLS.into(), serde_json::to_string(&all).map_err(|e| bad(e.to_string()))?);
            for (i, sizes) in Symbolic::corners(s.dims())?.iter().enumerate().skip(1) {
                let form = s.instantiate(sizes)?;
                let constant = |v: ValueId, data: &HostTensor| match &base.value(v).origin {
                    Origin::Constant(own) if **own == *data => tensor_text(&names[&v]),
                    // one that follows from the sizes
                    _ => data_text(data),
                };
                text.insert(format!("{GRAPH}.{i}"), form.print(&constant)?);
            }
        }
        let mut tensors = BTreeMap::new();
        for (v, name) in &names {
            if let Origin::Constant(data) = &base.value(*v).origin {
                tensors.insert(name.clone(), (**data).clone());
            }
        }
        match key {
            Some(key) => {
                text.insert(CIPHER.into(), cipher::NAME.into());
                tensors = cipher::seal(tensors, &text, key)?;
            }
            None => {
                text.insert(checksum::KEY.into(), checksum::of(&text, &tensors));
            }
        }
        write_safetensors(&tensors, &text)
    }

    /// Reads a file, with the ops of `registry`.
    ///
    /// Errors: Format for no such file, a damaged one, another version, and as [`Graph::parse`]; Value for encrypted tensors without their key.
    pub fn from_bytes(bytes: &[u8], key: Option<&Key>, registry: &Registry) -> Result<GraphFile> {
        GraphFile::from_tensors(read_safetensors(bytes)?, key, registry)
    }

    /// As [`GraphFile::from_bytes`], of a file. Errors: also Io; all name the path.
    pub fn open(path: impl AsRef<Path>, key: Option<&Key>, registry: &Registry) -> Result<GraphFile> {
        // names the path itself
        let file = TensorsReader::open(&path)?;
        let graph = file.rest().and_then(|file| GraphFile::from_tensors(file, key, registry));
        graph.map_err(|e| e.context(path.as_ref().display()))
    }

    fn from_tensors((tensors, text): TensorsFile, key: Option<&Key>, registry: &Registry) -> Result<GraphFile> {
        let graph =
            text.get(GRAPH).ok_or_else(|| bad(format!("`__metadata__` has no `{GRAPH}`: no graph of Remat")))?;
        let version = text.get(VERSION).map_or(UNCHECKED, String::as_str);
        if ![UNCHECKED, CHECKED].contains(&version) {
            let text =
                format!("a file of version `{version}`, and {UNCHECKED} and {CHECKED} are what this release reads");
            return Err(bad(text));
        }
        checksum::check(&text, &tensors, version == CHECKED)?;
        let sealed = match (text.get(CIPHER), key) {
            (None, _) => None,
            (Some(_), None) => {
                return Err(Error::new(ErrorKind::Value, "the tensors are encrypted: give the key of the file"));
            }
            (Some(name), Some(key)) => Some(Sealed::new(name, &text, key)?),
        };
        // one copy for the forms of all sizes
        let mut opened: BTreeMap<String, Arc<HostTensor>> = BTreeMap::new();
        let mut tensor = |name: &str, fact: &Fact| {
            if let Some(known) = opened.get(name) {
                return Ok(known.clone());
            }
            let stored = tensors.get(name).ok_or_else(|| bad(format!("the file has no tensor `{name}`")))?;
            let own = Arc::new(match &sealed {
                Some(sealed) => sealed.open(name, stored, fact)?,
                None => stored.clone(),
            });
            opened.insert(name.to_owned(), own.clone());
            Ok(own)
        };
        let mut parse = |text: &str| Graph::parse_with(text, registry, &mut tensor);
        let base = parse(graph)?;
        let form = match text.get(SYMBOLS) {
            None => GraphForm::Fixed(base),
            Some(symbols) => {
                let entries: Vec<SymbolEntry> =
                    serde_json::from_str(symbols).map_err(|e| bad(format!("`{SYMBOLS}`: {e}")))?;
                let dims: Vec<Dim> = entries.iter().map(|e| Dim::new(&e.name, e.least, e.most)).collect();
                let mut graphs = vec![base];
                for i in 1..Symbolic::corners(&dims)?.len() {
                    let key = format!("{GRAPH}.{i}");
                    let form = text.get(&key).ok_or_else(|| bad(format!("`__metadata__` has no `{key}`")))?;
                    graphs.push(parse(form).map_err(|e| e.context(&key))?);
                }
                GraphForm::Symbolic(Symbolic::of_corners(&dims, &graphs, registry)?)
            }
        };
        let metadata = text.into_iter().filter(|(k, _)| !k.starts_with(RESERVED)).collect();
        Ok(GraphFile { form, metadata })
    }
}

impl Graph {
    /// The bytes of a file with nothing but the graph. Errors: as [`GraphFile::to_bytes`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        GraphFile { form: GraphForm::Fixed(self.clone()), metadata: BTreeMap::new() }.to_bytes(None)
    }

    /// The graph of a file. Errors: as [`GraphFile::from_bytes`]; Value for one over symbols.
    pub fn from_bytes(bytes: &[u8], registry: &Registry) -> Result<Graph> {
        match GraphFile::from_bytes(bytes, None, registry)?.form {
            GraphForm::Fixed(g) => Ok(g),
            GraphForm::Symbolic(s) => {
                let names: Vec<&str> = s.dims().iter().map(|d| &*d.name).collect();
                Err(Error::new(ErrorKind::Value, format!("a graph over symbols: give sizes of {}", names.join(", "))))
            }
        }
    }
}

fn tensor_text(name: &str) -> String {
    format!("tensor {}", name_text(name))
}

/// The names of the constants' tensors in a file: the constants' own, and numbers for those without.
fn tensor_names(g: &Graph) -> BTreeMap<ValueId, String> {
    let constants: Vec<ValueId> = g.value_ids().filter(|v| matches!(g.value(*v).origin, Origin::Constant(_))).collect();
    // the format keeps its text under that name
    let own = |v: &ValueId| g.value(*v).name.as_deref().filter(|name| *name != "__metadata__");
    let taken: HashSet<&str> = constants.iter().filter_map(own).collect();
    let numbered = |v: &ValueId| {
        let mut name = format!("constant.{}", v.index());
        while taken.contains(&*name) {
            name.push('_');
        }
        name
    };
    constants.iter().map(|v| (*v, own(v).map_or_else(|| numbered(v), str::to_owned))).collect()
}

#[cfg(test)]
mod tests;
