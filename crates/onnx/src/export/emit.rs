//! A model under construction: nodes, constants and names.
//!
//! Every name is there once in the whole model, those of inner graphs included, so that an inner graph may read the values around
//! it and no name is hidden. Nodes have names beside those of values, each once too: runtimes refuse a graph that has one twice.
//! Constants are initialisers of the main graph, small equal ones once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use remat_types::{DType, Fact, HostTensor, Result, Scalar, Shape, for_dtype};

use super::Unexported;
use super::attribute as attr;
use crate::proto::tensor_proto::DataType;
use crate::proto::tensor_shape_proto::{Dimension, dimension};
use crate::proto::{AttributeProto, GraphProto, NodeProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto};

/// The name of a value.
pub(super) type Name = Arc<str>;

/// Constants of at most so many elements are compared with those that are there.
const SHARED_MAX_ELEMS: usize = 64;

/// A graph that is being written: the main one or one within a node.
#[derive(Default)]
struct Block {
    nodes: Vec<NodeProto>,
    made: HashSet<Name>,
}

/// Names, each once.
#[derive(Default)]
struct Names {
    taken: HashSet<Name>,
    counts: HashMap<String, usize>,
}

impl Names {
    /// This name, or one with a number behind it.
    fn unique(&mut self, wished: &str) -> Name {
        let name: Name = wished.into();
        if !wished.is_empty() && self.taken.insert(name.clone()) {
            return name;
        }
        let count = self.counts.entry(wished.to_owned()).or_default();
        loop {
            *count += 1;
            let name: Name = format!("{wished}_{count}").into();
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// A model under construction.
pub(super) struct Emit {
    /// The version of the operator set.
    pub(super) opset: i64,
    /// The graph that is being written, and those around it.
    blocks: Vec<Block>,
    /// Constants in the order in which they were first read.
    pub(super) constants: Vec<(Name, Arc<HostTensor>)>,
    shared: HashMap<HostTensor, Name>,
    names: Names,
    /// Names of nodes, which are none of values. A value may be renamed, and its old name be that of another; the node keeps its own.
    node_names: Names,
    /// Other models will be compared with this one: constants are not shared, and follow from sizes in one way.
    pub(super) compared: bool,
    /// Where the nodes come from: `block1.conv`.
    pub(super) scope: Option<Arc<str>>,
    /// Names of constants that have these elements, the first one last.
    pub(super) parameters: HashMap<HostTensor, Vec<String>>,
    /// The ops that could not be written.
    pub(super) failures: Vec<Unexported>,
}

impl Emit {
    pub(super) fn new(opset: i64) -> Emit {
        Emit {
            opset,
            blocks: vec![Block::default()],
            constants: Vec::new(),
            shared: HashMap::new(),
            names: Names::default(),
            node_names: Names::default(),
            compared: false,
            scope: None,
            parameters: HashMap::new(),
            failures: Vec::new(),
        }
    }

    /// A name that no other value has: this one, or with a number behind it.
    pub(super) fn unique(&mut self, wished: &str) -> Name {
        self.names.unique(wished)
    }

    /// Takes the name of a node that was written elsewhere.
    pub(super) fn take_node_name(&mut self, name: &str) {
        self.node_names.unique(name);
    }

    /// True if the operator is in the standard's set of the version that is written.
    pub(super) fn has(&self, since: i64) -> bool {
        self.opset >= since
    }

    fn block(&mut self) -> &mut Block {
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        let last = self.blocks.len() - 1;
        &mut self.blocks[last]
    }

    /// A node with so many outputs; inputs may be absent.
    pub(super) fn nodes(
        &mut self,
        op: &str,
        x: &[Option<&Name>],
        attribute: Vec<AttributeProto>,
        outputs: usize,
    ) -> Vec<Name> {
        let base = match &self.scope {
            Some(scope) => format!("{scope}.{op}"),
            None => op.to_owned(),
        };
        let y: Vec<Name> = (0..outputs).map(|_| self.unique(&base)).collect();
        let node = NodeProto {
            name: Some(self.node_names.unique(&base).to_string()),
            op_type: Some(op.to_owned()),
            input: x.iter().map(|x| x.map(ToString::to_string).unwrap_or_default()).collect(),
            output: y.iter().map(ToString::to_string).collect(),
            attribute,
            ..Default::default()
        };
        let block = self.block();
        block.nodes.push(node);
        block.made.extend(y.iter().cloned());
        y
    }

    /// A node of one output, with attributes.
    pub(super) fn with(&mut self, op: &str, x: &[&Name], attribute: Vec<AttributeProto>) -> Name {
        let x: Vec<Option<&Name>> = x.iter().map(|x| Some(*x)).collect();
        let mut y = self.nodes(op, &x, attribute, 1);
        y.swap_remove(0)
    }

    /// A node of one output without attributes.
    pub(super) fn op(&mut self, op: &str, x: &[&Name]) -> Name {
        self.with(op, x, Vec::new())
    }

    /// A constant; small equal ones are one.
    pub(super) fn tensor(&mut self, data: HostTensor) -> Name {
        if self.compared || data.elems() > SHARED_MAX_ELEMS {
            return self.constant(&Arc::new(data), "constant");
        }
        if let Some(name) = self.shared.get(&data) {
            return name.clone();
        }
        let name = self.constant(&Arc::new(data.clone()), "constant");
        self.shared.insert(data, name.clone());
        name
    }

    /// [`Emit::tensor`] without a copy of a large one.
    pub(super) fn tensor_of(&mut self, data: &Arc<HostTensor>) -> Name {
        match self.compared || data.elems() > SHARED_MAX_ELEMS {
            true => self.constant(data, "constant"),
            false => self.tensor((**data).clone()),
        }
    }

    /// A constant of its own, with a name like this.
    pub(super) fn constant(&mut self, data: &Arc<HostTensor>, wished: &str) -> Name {
        let name = self.unique(wished);
        self.constants.push((name.clone(), data.clone()));
        name
    }

    /// A vector of integers: a shape, axes, places.
    pub(super) fn ints(&mut self, v: &[i64]) -> Result<Name> {
        Ok(self.tensor(HostTensor::from_slice(v, [v.len()])?))
    }

    /// A vector of sizes.
    pub(super) fn sizes(&mut self, v: &[usize]) -> Result<Name> {
        let v: Vec<i64> = v.iter().map(|v| *v as i64).collect();
        self.ints(&v)
    }

    /// An integer of rank 0.
    pub(super) fn int(&mut self, v: i64) -> Name {
        self.tensor(HostTensor::scalar(v))
    }

    /// A number of rank 0 in this dtype.
    pub(super) fn number(&mut self, dtype: DType, v: impl Into<Scalar>) -> Name {
        let v = v.into();
        let host = for_dtype!(dtype, T => HostTensor::scalar(v.cast::<T>()));
        self.tensor(host)
    }

    pub(super) fn cast(&mut self, x: &Name, to: DType) -> Name {
        self.with("Cast", &[x], vec![attr::int("to", i64::from(data_type(to)))])
    }

    /// A cast where the dtypes differ.
    pub(super) fn cast_from(&mut self, x: &Name, from: DType, to: DType) -> Name {
        if from == to { x.clone() } else { self.cast(x, to) }
    }

    pub(super) fn reshape(&mut self, x: &Name, shape: &[usize]) -> Result<Name> {
        let zeros = shape.contains(&0);
        let shape = self.sizes(shape)?;
        let attributes = if zeros { vec![attr::flag("allowzero", true)] } else { Vec::new() };
        Ok(self.with("Reshape", &[x, &shape], attributes))
    }

    pub(super) fn transpose(&mut self, x: &Name, order: &[usize]) -> Name {
        if order.iter().enumerate().all(|(i, a)| i == *a) {
            return x.clone();
        }
        self.with("Transpose", &[x], vec![attr::ints("perm", order)])
    }

    pub(super) fn expand(&mut self, x: &Name, shape: &[usize]) -> Result<Name> {
        let shape = self.sizes(shape)?;
        Ok(self.op("Expand", &[x, &shape]))
    }

    pub(super) fn unsqueeze(&mut self, x: &Name, axis: usize) -> Result<Name> {
        let axes = self.sizes(&[axis])?;
        Ok(self.op("Unsqueeze", &[x, &axes]))
    }

    pub(super) fn squeeze(&mut self, x: &Name, axis: usize) -> Result<Name> {
        let axes = self.sizes(&[axis])?;
        Ok(self.op("Squeeze", &[x, &axes]))
    }

    /// `len` elements along `axis` from `start` on.
    pub(super) fn slice(&mut self, x: &Name, axis: usize, start: usize, len: usize) -> Result<Name> {
        let (starts, ends, axes) = (self.sizes(&[start])?, self.sizes(&[start + len])?, self.sizes(&[axis])?);
        Ok(self.op("Slice", &[x, &starts, &ends, &axes]))
    }

    /// The axis backwards.
    pub(super) fn flip(&mut self, x: &Name, axis: usize) -> Result<Name> {
        let (starts, ends) = (self.ints(&[-1])?, self.ints(&[i64::MIN])?);
        let (axes, steps) = (self.sizes(&[axis])?, self.ints(&[-1])?);
        Ok(self.op("Slice", &[x, &starts, &ends, &axes, &steps]))
    }

    /// A reduction over these axes, at least one, which are an input of all reductions since version 18.
    pub(super) fn reduce(&mut self, op: &str, x: &Name, axes: &[usize], keepdims: bool) -> Result<Name> {
        let axes = self.sizes(axes)?;
        Ok(self.with(op, &[x, &axes], vec![attr::flag("keepdims", keepdims)]))
    }

    /// Number of nodes of the graph that is being written.
    pub(super) fn mark(&self) -> usize {
        self.blocks.last().map_or(0, |b| b.nodes.len())
    }

    /// Gives a value that a node from `mark` on makes another name, if that is free. The value's name.
    pub(super) fn rename(&mut self, mark: usize, from: &Name, wished: &str) -> Name {
        let block = self.block();
        let made = block.nodes[mark..].iter().any(|n| n.output.iter().any(|y| **y == **from));
        if !made || wished.is_empty() || self.names.taken.contains(wished) {
            return from.clone();
        }
        let to: Name = wished.into();
        let block = self.block();
        rename_in(&mut block.nodes[mark..], from, wished);
        block.made.remove(from);
        block.made.insert(to.clone());
        self.names.taken.remove(from);
        self.names.taken.insert(to.clone());
        to
    }

    /// Gives the value that was made last the name of a constant that it stands for.
    pub(super) fn alias(&mut self, from: &Name, to: &Name) {
        rename_in(&mut self.block().nodes, from, to);
    }

    /// Begins a graph within a node.
    pub(super) fn begin(&mut self) {
        self.blocks.push(Block::default());
    }

    /// A name that the graph being written makes itself: outputs of an inner graph must be.
    pub(super) fn own(&mut self, name: &Name) -> Name {
        if self.block().made.contains(name) { name.clone() } else { self.op("Identity", &[name]) }
    }

    /// Ends the graph within a node.
    pub(super) fn end(&mut self, name: &str, inputs: Vec<ValueInfoProto>, outputs: Vec<ValueInfoProto>) -> GraphProto {
        let block = self.blocks.pop().unwrap_or_default();
        GraphProto {
            name: Some(name.to_owned()),
            node: block.nodes,
            input: inputs,
            output: outputs,
            ..Default::default()
        }
    }
}

fn rename_in(nodes: &mut [NodeProto], from: &str, to: &str) {
    for n in nodes {
        for name in n.output.iter_mut().chain(&mut n.input).filter(|name| **name == *from) {
            *name = to.to_owned();
        }
        for g in n.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
            rename_in(&mut g.node, from, to);
        }
    }
}

/// The element type of a dtype.
pub(super) fn data_type(dtype: DType) -> i32 {
    let kind = match dtype {
        DType::F16 => DataType::Float16,
        DType::BF16 => DataType::Bfloat16,
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::Bool => DataType::Bool,
    };
    kind as i32
}

/// The declaration of a value; extents by number, or by name.
pub(super) fn declared(name: &str, dtype: DType, shape: &Shape, symbols: &[Option<String>]) -> ValueInfoProto {
    let dim = |(i, d): (usize, &usize)| {
        let value = match symbols.get(i).and_then(Option::as_ref) {
            Some(symbol) => dimension::Value::DimParam(symbol.clone()),
            None => dimension::Value::DimValue(*d as i64),
        };
        Dimension { denotation: None, value: Some(value) }
    };
    let shape = TensorShapeProto { dim: shape.dims().iter().enumerate().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(data_type(dtype)), shape: Some(shape) };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { denotation: None, value: Some(type_proto::Value::TensorType(tensor)) }),
        ..Default::default()
    }
}

/// [`declared`] of a fact.
pub(super) fn declared_fact(name: &str, f: &Fact) -> ValueInfoProto {
    declared(name, f.dtype, &f.shape, &[])
}
