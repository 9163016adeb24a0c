//! A model by names from the messages of a file.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use prost::Message;
use remat_import::{
    Attribute, Extent, ForeignAttribute, ForeignConstant, ForeignFunction, ForeignGraph, ForeignNode, ForeignPort,
    FunctionName, Held, Literal, Place, ValueType, Versions,
};
use remat_types::{Error, ErrorKind, Result};

use crate::proto::attribute_proto::AttributeType;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto,
};
use crate::tensor;

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// Reads graphs of a model.
pub(crate) struct Reader<'a> {
    /// Where external data may lie.
    pub(crate) folder: Option<&'a Path>,
    /// Bytes of the main graph's initialisers that are in the file still, by number.
    pub(crate) held: Option<(&'a File, HashMap<usize, Place>)>,
}

impl Reader<'_> {
    /// The main graph. Errors: Format, and the errors of constants.
    pub(crate) fn main(&self, g: &GraphProto) -> Result<ForeignGraph> {
        self.graph(g, true)
    }

    fn graph(&self, g: &GraphProto, is_main: bool) -> Result<ForeignGraph> {
        let mut constants = Vec::new();
        for (i, t) in g.initializer.iter().enumerate() {
            let held = self.held.as_ref().filter(|_| is_main);
            let held = held.and_then(|(file, places)| Some(Held { file, place: *places.get(&i)? }));
            constants.push(ForeignConstant {
                name: t.name().to_owned(),
                value: tensor::literal_of(t, self.folder, held)?,
                narrow: tensor::narrow_of(i64::from(t.data_type())),
            });
        }
        for t in &g.sparse_initializer {
            let name = t.values.as_ref().map_or("", |v| v.name()).to_owned();
            let value = Literal::Tensor(tensor::dense(t, self.folder)?);
            constants.push(ForeignConstant { name, value, narrow: None });
        }
        Ok(ForeignGraph {
            name: g.name().to_owned(),
            inputs: g.input.iter().map(port).collect(),
            constants,
            nodes: self.nodes(&g.node)?,
            outputs: g.output.iter().map(port).collect(),
        })
    }

    fn nodes(&self, nodes: &[NodeProto]) -> Result<Vec<ForeignNode>> {
        nodes.iter().map(|n| self.node(n)).collect()
    }

    fn node(&self, n: &NodeProto) -> Result<ForeignNode> {
        let mut node = ForeignNode {
            name: n.name().to_owned(),
            domain: domain(n.domain()).to_owned(),
            op: n.op_type().to_owned(),
            overload: n.overload().to_owned(),
            inputs: n.input.clone(),
            outputs: n.output.clone(),
            attributes: Vec::new(),
            file_bytes: n.encoded_len(),
        };
        node.attributes = self.attributes(&n.attribute).map_err(|e| node.context(e))?;
        Ok(node)
    }

    /// A function, whose name is known. Errors: as [`Reader::main`].
    pub(crate) fn function(&self, f: &FunctionProto) -> Result<ForeignFunction> {
        let port = |name: &String| ForeignPort { name: name.clone(), ty: ValueType::Unknown, narrow: None };
        Ok(ForeignFunction {
            versions: Some(versions(&f.opset_import)?),
            defaults: self.attributes(&f.attribute_proto)?,
            default_bytes: f.attribute_proto.iter().map(Message::encoded_len).sum(),
            body: ForeignGraph {
                name: f.name().to_owned(),
                inputs: f.input.iter().map(port).collect(),
                constants: Vec::new(),
                nodes: self.nodes(&f.node)?,
                outputs: f.output.iter().map(port).collect(),
            },
        })
    }

    fn attributes(&self, all: &[AttributeProto]) -> Result<Vec<(String, ForeignAttribute)>> {
        all.iter().map(|a| Ok((a.name().to_owned(), self.attribute(a)?))).collect()
    }

    fn attribute(&self, a: &AttributeProto) -> Result<ForeignAttribute> {
        if !a.ref_attr_name().is_empty() {
            return Ok(ForeignAttribute::Caller(a.ref_attr_name().to_owned()));
        }
        let literal = |l: Result<Literal>| match l {
            Ok(l) => Attribute::Tensor(Box::new(l)),
            Err(e) => Attribute::Unreadable(e),
        };
        let missing = || wrong(format!("attribute `{}` without its value", a.name()));
        Ok(ForeignAttribute::Value(match kind_of(a) {
            AttributeType::Float => Attribute::Float(a.f()),
            AttributeType::Int => Attribute::Int(a.i()),
            AttributeType::String => Attribute::String(a.s().into()),
            AttributeType::Tensor => literal(tensor::literal(a.t.as_deref().ok_or_else(missing)?, self.folder)),
            AttributeType::SparseTensor => {
                let t = a.sparse_tensor.as_deref().ok_or_else(missing)?;
                literal(tensor::dense(t, self.folder).map(Literal::Tensor))
            }
            AttributeType::Graph => Attribute::Graph(Box::new(self.graph(a.g.as_deref().ok_or_else(missing)?, false)?)),
            AttributeType::Floats => Attribute::Floats(a.floats[..].into()),
            AttributeType::Ints => Attribute::Ints(a.ints[..].into()),
            AttributeType::Strings => Attribute::Strings(a.strings.iter().map(|s| s.to_vec()).collect()),
            AttributeType::TypeProto => Attribute::Type,
            other => Attribute::Unreadable(wrong(format!("an attribute of type {}", other.as_str_name()))),
        }))
    }
}

/// The name by which nodes call a function.
pub(crate) fn function_name(f: &FunctionProto) -> FunctionName {
    let (op, overload) = (f.name().to_owned(), f.overload().to_owned());
    FunctionName { domain: domain(f.domain()).to_owned(), op, overload }
}

/// The standard's own domain has two names.
fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

/// The type of an attribute; old files do not say it.
fn kind_of(a: &AttributeProto) -> AttributeType {
    match a.r#type() {
        AttributeType::Undefined if a.f.is_some() => AttributeType::Float,
        AttributeType::Undefined if a.i.is_some() => AttributeType::Int,
        AttributeType::Undefined if a.s.is_some() => AttributeType::String,
        AttributeType::Undefined if a.t.is_some() => AttributeType::Tensor,
        AttributeType::Undefined if a.g.is_some() => AttributeType::Graph,
        AttributeType::Undefined if !a.floats.is_empty() => AttributeType::Floats,
        AttributeType::Undefined if !a.ints.is_empty() => AttributeType::Ints,
        AttributeType::Undefined if !a.strings.is_empty() => AttributeType::Strings,
        kind => kind,
    }
}

/// The versions that are imported. Errors: Format for a domain that is imported twice.
pub(crate) fn versions(all: &[crate::proto::OperatorSetIdProto]) -> Result<Versions> {
    let mut versions = Versions::new();
    for o in all {
        let name = domain(o.domain());
        if versions.insert(name.to_owned(), o.version()).is_some_and(|old| old != o.version()) {
            return Err(wrong(format!("two versions of the domain `{name}` are imported")));
        }
    }
    Ok(versions)
}

fn port(p: &ValueInfoProto) -> ForeignPort {
    let narrow = match p.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(type_proto::Value::TensorType(t)) => tensor::narrow_of(i64::from(t.elem_type())),
        _ => None,
    };
    ForeignPort { name: p.name().to_owned(), ty: type_of(p.r#type.as_ref()), narrow }
}

/// The content of a type.
fn type_of(t: Option<&TypeProto>) -> ValueType {
    use type_proto::Value as V;
    let part = |t: Option<&TypeProto>| Box::new(type_of(t));
    match t.and_then(|t| t.value.as_ref()) {
        Some(V::TensorType(t)) if t.elem_type() == 8 => ValueType::Text,
        Some(V::TensorType(t)) => {
            let extent = |d: &tensor_shape_proto::Dimension| match &d.value {
                // some writers put -1 where an extent is open
                Some(tensor_shape_proto::dimension::Value::DimValue(n)) => {
                    usize::try_from(*n).map_or(Extent::Open, Extent::Fixed)
                }
                Some(tensor_shape_proto::dimension::Value::DimParam(name)) if !name.is_empty() => {
                    Extent::Named(name.clone())
                }
                _ => Extent::Open,
            };
            let extents = t.shape.as_ref().map(|s| s.dim.iter().map(extent).collect());
            ValueType::Tensor(tensor::held_dtype(t.elem_type()).ok(), extents)
        }
        Some(V::SequenceType(s)) => ValueType::Sequence(part(s.elem_type.as_deref())),
        Some(V::OptionalType(s)) => ValueType::Optional(part(s.elem_type.as_deref())),
        _ => ValueType::Unknown,
    }
}
