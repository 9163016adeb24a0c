//! Graphs from the messages of a file: names resolved, rules found, functions written out.
//!
//! Nodes stand in an order in which they can run: the standard demands that, and a cycle is therefore a name that is not there.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use prost::Message;
use remat_types::{Error, ErrorKind, Result};

use crate::graph::{Attribute, Attributes, Constant, Entry, Extent, Graph, Kind, NARROW, Node, Ref, ValueType, domain};
use crate::proto::attribute_proto::AttributeType;
use crate::proto::outline::Place;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, tensor_shape_proto, type_proto};
use crate::rules;
use crate::schema;
use crate::tensor::{self, Held, Literal};

/// Graphs within graphs and functions within functions, as deep as any exporter goes and shallow enough for any stack.
const MOST_DEPTH: usize = 32;

/// Bytes of the messages of a model's nodes, those of its functions once a call: for each byte of the file, and in any case. A small
/// file could otherwise make any number of them.
const WRITTEN_OUT: (usize, usize) = (128, 4 << 20);

/// The bytes of a node beside the content of its message: the struct, and the parts of lists and maps that hold its names.
const NODE_BYTES: usize = 512;

/// Names of operators for which the nearest one that there is is looked for.
const MOST_NEAREST: usize = 1000;

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// Names of one graph, and the graph around it.
struct Names<'a> {
    slots: HashMap<String, usize>,
    /// Element types of inputs and constants that are integers of less than a byte.
    narrow: HashMap<String, i32>,
    outer: Option<&'a Names<'a>>,
}

impl Names<'_> {
    fn find(&self, name: &str) -> Option<Ref> {
        let (mut names, mut out) = (self, 0);
        loop {
            if let Some(slot) = names.slots.get(name) {
                return Some(Ref { out, slot: *slot });
            }
            (names, out) = (names.outer?, out + 1);
        }
    }

    fn note(&mut self, name: &str, data_type: i32) {
        if tensor::Narrow::of(i64::from(data_type)).is_some() {
            self.narrow.insert(name.to_owned(), data_type);
        }
    }

    /// The element type of an input or a constant that is narrow.
    fn narrow_type(&self, name: &str) -> Option<i32> {
        let own = self.narrow.get(name).copied();
        own.or_else(|| if self.slots.contains_key(name) { None } else { self.outer?.narrow_type(name) })
    }

    /// A new slot. Errors: Format if the name has one already.
    fn define(&mut self, name: &str) -> Result<usize> {
        let slot = self.slots.len();
        match self.slots.insert(name.to_owned(), slot) {
            None => Ok(slot),
            Some(_) => Err(wrong(format!("`{name}` is computed twice"))),
        }
    }
}

/// The operator sets that a model or a function imports.
pub(crate) type Opsets = HashMap<String, i64>;

/// Makes graphs of a model.
pub(crate) struct Builder<'a> {
    pub(crate) functions: HashMap<(String, String, String), &'a FunctionProto>,
    pub(crate) folder: Option<&'a Path>,
    /// Bytes of the main graph's initialisers that are in the file still, by number.
    held: Option<(&'a File, HashMap<usize, Place>)>,
    /// The bytes that messages of nodes may still take.
    left_bytes: usize,
    /// The names most like those of operators without a rule.
    nearest: HashMap<(String, String), Option<&'static str>>,
    pub(crate) graphs: usize,
}

/// The surroundings of a graph that is being made.
struct Around<'n> {
    names: Option<&'n Names<'n>>,
    opsets: &'n Opsets,
    /// The attributes of the call, within a function.
    call: Option<&'n Attributes>,
    depth: usize,
}

impl<'a> Builder<'a> {
    /// Of a model of so many bytes, beside those that `held` has.
    pub(crate) fn new(
        functions: HashMap<(String, String, String), &'a FunctionProto>,
        folder: Option<&'a Path>,
        held: Option<(&'a File, HashMap<usize, Place>)>,
        model_bytes: usize,
    ) -> Builder<'a> {
        let held_bytes: u64 = held.iter().flat_map(|(_, places)| places.values()).map(|p| p.bytes).sum();
        let file_bytes = model_bytes.saturating_add(usize::try_from(held_bytes).unwrap_or(usize::MAX));
        let left_bytes = file_bytes.saturating_mul(WRITTEN_OUT.0).saturating_add(WRITTEN_OUT.1);
        Builder { functions, folder, held, left_bytes, nearest: HashMap::new(), graphs: 0 }
    }
}

impl Builder<'_> {
    /// The main graph. Errors: Format, and the errors of constants and attributes.
    pub(crate) fn main(&mut self, g: &GraphProto, opsets: &Opsets) -> Result<Graph> {
        self.graph(g, &Around { names: None, opsets, call: None, depth: 0 })
    }

    fn deeper(depth: usize) -> Result<usize> {
        if depth < MOST_DEPTH { Ok(depth + 1) } else { Err(wrong(format!("graphs nested deeper than {MOST_DEPTH}"))) }
    }

    /// Takes a message into account. Errors: Format.
    fn write_out(&mut self, message: &impl Message) -> Result<()> {
        let left = self.left_bytes.checked_sub(message.encoded_len().saturating_add(NODE_BYTES));
        let (multiple, constant) = WRITTEN_OUT;
        let text =
            || format!("functions written out, nodes take more than {multiple} times the file and {constant} bytes");
        self.left_bytes = left.ok_or_else(|| wrong(text()))?;
        Ok(())
    }

    fn nearest(&mut self, domain: &str, op: &str) -> Option<&'static str> {
        let key = (domain.to_owned(), op.to_owned());
        match self.nearest.get(&key) {
            Some(known) => *known,
            None if self.nearest.len() == MOST_NEAREST => None,
            None => *self.nearest.entry(key).or_insert_with(|| rules::nearest(domain, op)),
        }
    }

    fn new_graph(&mut self, name: &str) -> Graph {
        self.graphs += 1;
        Graph { name: name.to_owned(), id: self.graphs - 1, ..Graph::default() }
    }

    fn graph(&mut self, g: &GraphProto, around: &Around<'_>) -> Result<Graph> {
        let mut graph = self.new_graph(g.name());
        let mut names = Names { slots: HashMap::new(), narrow: HashMap::new(), outer: around.names };
        for input in &g.input {
            let slot = names.define(input.name())?;
            if let Some(type_proto::Value::TensorType(t)) = input.r#type.as_ref().and_then(|t| t.value.as_ref()) {
                names.note(input.name(), t.elem_type());
            }
            graph.inputs.push(Entry {
                name: input.name().into(),
                slot,
                ty: type_of(input.r#type.as_ref()),
                default: None,
            });
        }
        let mut constants = Vec::new();
        for (i, t) in g.initializer.iter().enumerate() {
            names.note(t.name(), t.data_type());
            let held = self.held.as_ref().filter(|_| around.depth == 0);
            let held = held.and_then(|(file, places)| Some(Held { file, place: *places.get(&i)? }));
            constants.push((t.name(), tensor::literal_of(t, self.folder, held)?));
        }
        for t in &g.sparse_initializer {
            let name = t.values.as_ref().map_or("", |v| v.name());
            constants.push((name, Literal::Tensor(tensor::dense(t, self.folder)?)));
        }
        for (name, value) in constants {
            // inputs have the first slots, in order
            let input = names.slots.get(name).and_then(|slot| graph.inputs.get_mut(*slot));
            let slot = match input {
                Some(input) if input.default.is_some() => return Err(wrong(format!("`{name}` is initialised twice"))),
                Some(input) => {
                    input.default = Some(graph.constants.len());
                    input.slot
                }
                None => names.define(name)?,
            };
            graph.constants.push(Constant { name: name.to_owned(), slot, value });
        }
        self.nodes(&g.node, &mut graph, &mut names, around)?;
        for o in &g.output {
            let at = names.find(o.name()).ok_or_else(|| wrong(format!("output `{}` is not computed", o.name())))?;
            graph.outputs.push((o.name().into(), at, type_of(o.r#type.as_ref())));
        }
        graph.slots = names.slots.len();
        find_last_uses(&mut graph);
        Ok(graph)
    }

    fn nodes(
        &mut self,
        nodes: &[NodeProto],
        graph: &mut Graph,
        names: &mut Names<'_>,
        around: &Around<'_>,
    ) -> Result<()> {
        for n in nodes {
            let context = |e: Error| e.context(format!("node `{}` ({})", node_name(n), n.op_type()));
            let node = self.node(n, names, around).map_err(context)?;
            let mut node = node;
            for name in &n.output {
                let slot = if name.is_empty() { None } else { Some(names.define(name).map_err(context)?) };
                node.outputs.push(slot);
            }
            graph.nodes.push(node);
        }
        Ok(())
    }

    fn node(&mut self, n: &NodeProto, names: &Names<'_>, around: &Around<'_>) -> Result<Node> {
        self.write_out(n)?;
        let domain = domain(n.domain()).to_owned();
        let find = |name: &String| match name.as_str() {
            "" => Ok(None),
            name => names.find(name).map(Some).ok_or_else(|| wrong(format!("`{name}` is read before it is computed"))),
        };
        let inputs = n.input.iter().map(find).collect::<Result<Vec<_>>>()?;
        let mut attributes = Attributes::new();
        for a in &n.attribute {
            if let Some(value) = self.attribute(a, names, around)? {
                attributes.insert(a.name().to_owned(), value);
            }
        }
        // the types of these inputs say that of the result, and a tensor of bytes has forgotten how narrow it is
        let like = match n.op_type() {
            "CastLike" => n.input.get(1),
            "QuantizeLinear" => n.input.get(2),
            _ => None,
        };
        if let Some(data_type) = like.and_then(|name| names.narrow_type(name)) {
            attributes.insert(NARROW.to_owned(), Attribute::Int(i64::from(data_type)));
        }
        let key = (domain.clone(), n.op_type().to_owned(), n.overload().to_owned());
        let (kind, opset) = match self.functions.get(&key).copied() {
            Some(f) => (Kind::Function(Box::new(self.function(f, &attributes, around.depth)?)), 0),
            None => {
                let Some(opset) = around.opsets.get(&domain) else {
                    return Err(wrong(format!("the model imports no version of the domain `{domain}`")));
                };
                let row = rules::find(&domain, n.op_type(), *opset);
                let opset = *opset;
                (row.map_or_else(|| Kind::Unknown(self.nearest(&domain, n.op_type())), Kind::Rule), opset)
            }
        };
        let schema = match kind {
            Kind::Rule(_) => schema::find(&domain, n.op_type(), opset),
            _ => None,
        };
        if let Some(schema) = schema {
            let names: Vec<&str> = attributes.keys().map(String::as_str).filter(|name| *name != NARROW).collect();
            schema.check(opset, &names, &n.input, &n.output)?;
        }
        Ok(Node {
            name: node_name(n),
            domain,
            op: key.1,
            opset,
            inputs,
            outputs: Vec::new(),
            attributes,
            kind,
            schema,
            frees: Vec::new(),
        })
    }

    /// The body of a function, called with these attributes.
    fn function(&mut self, f: &FunctionProto, given: &Attributes, depth: usize) -> Result<Graph> {
        let depth = Self::deeper(depth)?;
        let opsets = opsets(&f.opset_import)?;
        let mut call = given.clone();
        for a in &f.attribute_proto {
            self.write_out(a)?;
            let around = Around { names: None, opsets: &opsets, call: None, depth };
            let empty = Names { slots: HashMap::new(), narrow: HashMap::new(), outer: None };
            if let (false, Some(v)) = (call.contains_key(a.name()), self.attribute(a, &empty, &around)?) {
                call.insert(a.name().to_owned(), v);
            }
        }
        let mut graph = self.new_graph(f.name());
        let mut names = Names { slots: HashMap::new(), narrow: HashMap::new(), outer: None };
        for name in &f.input {
            let slot = names.define(name)?;
            graph.inputs.push(Entry { name: name.clone(), slot, ty: ValueType::Unknown, default: None });
        }
        let around = Around { names: None, opsets: &opsets, call: Some(&call), depth };
        self.nodes(&f.node, &mut graph, &mut names, &around)?;
        for o in &f.output {
            let at = names.find(o).ok_or_else(|| wrong(format!("output `{o}` of a function is not computed")))?;
            graph.outputs.push((o.clone(), at, ValueType::Unknown));
        }
        graph.slots = names.slots.len();
        find_last_uses(&mut graph);
        Ok(graph)
    }

    /// The value of an attribute; `None` if it is that of a call which does not give it.
    fn attribute(&mut self, a: &AttributeProto, names: &Names<'_>, around: &Around<'_>) -> Result<Option<Attribute>> {
        if !a.ref_attr_name().is_empty() {
            let value = around.call.and_then(|call| call.get(a.ref_attr_name()));
            if matches!(value, Some(Attribute::Graph(_))) {
                // its names are those of the caller
                return Err(wrong(format!(
                    "attribute `{}` of a function is a graph, which is not supported",
                    a.name()
                )));
            }
            return Ok(value.cloned());
        }
        let literal = |l: Result<Literal>| match l {
            Ok(l) => Attribute::Tensor(Box::new(l)),
            Err(e) => Attribute::Unreadable(e),
        };
        let missing = || wrong(format!("attribute `{}` without its value", a.name()));
        Ok(Some(match kind_of(a) {
            AttributeType::Float => Attribute::Float(a.f()),
            AttributeType::Int => Attribute::Int(a.i()),
            AttributeType::String => Attribute::String(a.s().into()),
            AttributeType::Tensor => literal(tensor::literal(a.t.as_deref().ok_or_else(missing)?, self.folder)),
            AttributeType::SparseTensor => {
                let t = a.sparse_tensor.as_deref().ok_or_else(missing)?;
                literal(tensor::dense(t, self.folder).map(Literal::Tensor))
            }
            AttributeType::Graph => {
                let around = Around {
                    names: Some(names),
                    opsets: around.opsets,
                    call: around.call,
                    depth: Self::deeper(around.depth)?,
                };
                Attribute::Graph(Box::new(self.graph(a.g.as_deref().ok_or_else(missing)?, &around)?))
            }
            AttributeType::Floats => Attribute::Floats(a.floats[..].into()),
            AttributeType::Ints => Attribute::Ints(a.ints[..].into()),
            AttributeType::Strings => Attribute::Strings(a.strings.iter().map(|s| s.to_vec()).collect()),
            AttributeType::TypeProto => Attribute::Type,
            other => Attribute::Unreadable(wrong(format!("an attribute of type {}", other.as_str_name()))),
        }))
    }
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
pub(crate) fn opsets(all: &[crate::proto::OperatorSetIdProto]) -> Result<Opsets> {
    let mut opsets = Opsets::new();
    for o in all {
        let name = domain(o.domain());
        if opsets.insert(name.to_owned(), o.version()).is_some_and(|old| old != o.version()) {
            return Err(wrong(format!("two versions of the domain `{name}` are imported")));
        }
    }
    Ok(opsets)
}

/// The name of a node: its own, or else its first output's.
fn node_name(n: &NodeProto) -> String {
    if n.name().is_empty() { n.output.first().cloned().unwrap_or_default() } else { n.name().to_owned() }
}

/// The content of a type.
pub(crate) fn type_of(t: Option<&TypeProto>) -> ValueType {
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

/// Slots of the graph `out` graphs out that a node's graphs read.
pub(crate) fn reads(node: &Node, out: usize, found: &mut Vec<usize>) {
    found.extend(node.inputs.iter().flatten().filter(|r| r.out == out).map(|r| r.slot));
    for a in node.attributes.values() {
        if let Attribute::Graph(g) = a {
            g.nodes.iter().for_each(|n| reads(n, out + 1, found));
            found.extend(g.outputs.iter().filter(|o| o.1.out == out + 1).map(|o| o.1.slot));
        }
    }
}

/// Notes for every node the values that it is the last to read.
pub(crate) fn find_last_uses(graph: &mut Graph) {
    let mut seen = vec![false; graph.slots];
    let stays = |r: &Ref| r.out == 0;
    graph.outputs.iter().map(|o| o.1).filter(stays).for_each(|r| seen[r.slot] = true);
    for node in graph.nodes.iter_mut().rev() {
        node.frees.clear();
        let mut read = Vec::new();
        reads(node, 0, &mut read);
        for slot in read.into_iter().chain(node.outputs.iter().flatten().copied().collect::<Vec<_>>()) {
            if !std::mem::replace(&mut seen[slot], true) {
                node.frees.push(slot);
            }
        }
    }
}
