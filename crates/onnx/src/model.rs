//! A file that was read and checked.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use remat_import::{ForeignModel, Network, Place, Port, Trace, Unsupported, Versions};
use remat_runtime::Device;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, open_file, read_file};

use crate::proto::outline::Outline;
use crate::proto::{ModelProto, StringStringEntryProto};
use crate::read::{Reader, function_name, versions};
use crate::rules::RULES;

/// The largest file that is read: protobuf's lengths are of 32 bits, larger models have external data.
const MOST_FILE_BYTES: u64 = 1 << 31;

/// The newest version of the standard's operators that rules are written for.
pub const NEWEST_OPSET: i64 = 28;

/// The newest version of the file format.
pub(crate) const NEWEST_IR: i64 = 14;

/// An ONNX model: its graph with names resolved, rules found, constants checked.
#[derive(Clone, Debug)]
pub struct Model {
    model: remat_import::Model,
    producer: String,
    opsets: Vec<(String, i64)>,
    metadata: Vec<(String, String)>,
}

impl Model {
    /// Reads a model. External data may lie in the folder of the file and below. Weights are read into memory of their own, one after the
    /// other, and no copy of the file is held beside them. Of a file that is not built as exporters do, with weights elsewhere than in
    /// the graph's initialisers, the whole is in memory while it is read.
    ///
    /// Errors, naming the path: Io; Format for a file that is no model or contradicts itself, and for a node with an attribute,
    /// an input or an output that its operator lacks in the imported version; DType for constants of element types that Remat
    /// lacks; Value for versions newer than Remat knows.
    pub fn open(path: impl AsRef<Path>) -> Result<Model> {
        let path = path.as_ref();
        let folder = match path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        let (file, size) = open_file(path)?;
        let outline = if size <= MOST_FILE_BYTES { Outline::of(&file, size) } else { Ok(None) };
        let model = match outline.map_err(|e| Error::from(e).context(path.display()))? {
            Some(Outline { bytes, places }) => Model::parse(bytes.into(), Some(folder), Some((&file, places))),
            None => Model::parse(read_file(path, MOST_FILE_BYTES)?.into(), Some(folder), None),
        };
        model.map_err(|e| e.context(path.display()))
    }

    /// A model of the bytes of a file, which may be shared with others and are let go when this returns. Errors: as [`Model::open`], and
    /// Format for external data.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Model> {
        Model::parse(bytes.into(), None, None)
    }

    /// `held` has the file, and where in it the bytes of initialisers are that `bytes` leaves out.
    fn parse(bytes: Bytes, folder: Option<&Path>, held: Option<(&File, HashMap<usize, Place>)>) -> Result<Model> {
        let held_bytes: u64 = held.iter().flat_map(|(_, places)| places.values()).map(|p| p.bytes).sum();
        let file_bytes = bytes.len().saturating_add(usize::try_from(held_bytes).unwrap_or(usize::MAX));
        let proto = ModelProto::decode(bytes).map_err(|e| wrong(format!("no ONNX model: {e}")))?;
        let graph = proto.graph.as_ref().ok_or_else(|| wrong("no ONNX model: no graph".into()))?;
        let imported = imported(&proto)?;
        let reader = Reader { folder, held };
        let mut functions = HashMap::new();
        for f in &proto.functions {
            // whether one can be read is asked by those who call it
            if functions.insert(function_name(f), reader.function(f)).is_some() {
                return Err(wrong(format!("function `{}` is there twice", f.name())));
            }
        }
        let graph = reader.main(graph)?;
        let producer = format!("{} {}", proto.producer_name(), proto.producer_version()).trim().to_owned();
        let text = |p: &StringStringEntryProto| (p.key().to_owned(), p.value().to_owned());
        let metadata = proto.metadata_props.iter().map(text).collect();
        let mut opsets: Vec<_> = imported.iter().map(|(domain, version)| (domain.clone(), *version)).collect();
        opsets.sort();
        // the messages and the buffer that they share are let go before the graph is built
        drop(proto);
        let foreign = ForeignModel { graph, functions, versions: Some(imported), file_bytes };
        Ok(Model { model: remat_import::Model::new(foreign, &RULES)?, producer, opsets, metadata })
    }

    /// The name of the graph.
    pub fn name(&self) -> &str {
        self.model.name()
    }

    /// The program that wrote the file, and its version.
    pub fn producer(&self) -> &str {
        &self.producer
    }

    /// Domains and versions of the operators that the model imports; the standard's domain is empty.
    pub fn opsets(&self) -> &[(String, i64)] {
        &self.opsets
    }

    /// The metadata of the file.
    pub fn metadata(&self) -> &[(String, String)] {
        &self.metadata
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> Vec<Port> {
        self.model.inputs()
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> Vec<Port> {
        self.model.outputs()
    }

    /// Every node for which there is no rule, those of inner graphs and functions too.
    pub fn unsupported(&self) -> Vec<Unsupported> {
        self.model.unsupported()
    }

    /// Errors: Value if there are nodes without a rule, with the first of them.
    pub fn check_supported(&self) -> Result<()> {
        self.model.check_supported()
    }

    /// How often each operator is there, with its domain, those of inner graphs and functions too.
    pub fn operators(&self) -> Vec<(String, String, usize)> {
        self.model.operators()
    }

    /// See [`remat_import::Model::with_input`].
    pub fn with_input(self, name: &str, value: &HostTensor) -> Result<Model> {
        Ok(Model { model: self.model.with_input(name, value)?, ..self })
    }

    /// See [`remat_import::Model::with_outputs`].
    pub fn with_outputs(self, names: &[&str]) -> Result<Model> {
        Ok(Model { model: self.model.with_outputs(names)?, ..self })
    }

    /// See [`remat_import::Model::on`].
    pub fn on(&self, device: &Device) -> Result<Network> {
        self.model.on(device)
    }

    /// See [`remat_import::Model::trace`].
    pub fn trace(&self, inputs: &[Fact]) -> Result<Option<Trace>> {
        self.model.trace(inputs)
    }
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// The versions that a model imports. Errors: Format; Value for versions newer than Remat knows.
fn imported(proto: &ModelProto) -> Result<Versions> {
    match proto.ir_version {
        Some(v) if (1..=NEWEST_IR).contains(&v) => {}
        Some(v) if v > NEWEST_IR => {
            let text = format!("the file's IR version is {v}; the newest that is known here is {NEWEST_IR}");
            return Err(Error::new(ErrorKind::Value, text));
        }
        other => return Err(wrong(format!("no ONNX model: IR version {other:?}"))),
    }
    let mut imported = versions(&proto.opset_import)?;
    if let Some(v) = imported.get("").filter(|v| **v > NEWEST_OPSET) {
        let text = format!("the model needs operator set {v}; the newest that is known here is {NEWEST_OPSET}");
        return Err(Error::new(ErrorKind::Value, text));
    }
    // files of IR version 1 and 2 import nothing
    if imported.is_empty() {
        imported.insert(String::new(), 1);
    }
    // a file whose only domain is another one may still use the standard's operators in it
    imported.entry(String::new()).or_insert(NEWEST_OPSET);
    Ok(imported)
}
