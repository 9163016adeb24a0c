//! The graph: values, the nodes that compute them, and the fact of every value.
//!
//! A [`Graph`] is immutable. It is made by a [`Builder`], read from text or a file, or made from another graph by a
//! [`Patch`]; each way ends in [`Graph::verify`], so a graph in hand is a valid one. Ids are indices into its arena and
//! mean nothing in another graph.
//!
//! Values have one definition each: an input, a state, a constant, or an output of a node. A state is a tensor that
//! outlives a run: the run reads its old version, and may define the next. Nodes stand in an order in which they can
//! run.

mod builder;
mod depends;
mod evaluate;
mod file;
mod gradient;
mod order;
mod parse;
mod patch;
mod prefix;
mod reachability;
pub mod symbolic;
mod text;
mod verify;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::OnceLock;

use remat_ops::OpRef;
use remat_types::{CallSite, Error, ErrorKind, Fact, HostTensor, Layout, Result, SmallVec};
use rustc_hash::FxHashMap;

pub use builder::Builder;
pub use depends::ShapeDepends;
pub use evaluate::Values;
pub use file::{GraphFile, GraphForm, Key};
pub use patch::{Patch, PatchNode, PatchValue};
pub use prefix::GraphPrefix;

pub use reachability::Reachability;

/// A value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

/// A node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl ValueId {
    /// The index into [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// The index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a value comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The caller of a run: the input with this index.
    Input(usize),
    /// The version of a state with which a run begins: the state with this index.
    State(usize),
    /// The graph itself.
    Constant(Arc<HostTensor>),
    /// Output `output` of `node`.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its outputs.
        output: usize,
    },
}

/// A value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Where it comes from.
    pub origin: Origin,
    /// Dtype, shape, and value where that is known.
    pub fact: Fact,
    /// Its name, which no other value has.
    pub name: Option<Arc<str>>,
}

/// An application of an op.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op to apply.
    pub op: OpRef,
    /// To what.
    pub x: SmallVec<[ValueId; 4]>,
    /// The outputs.
    pub y: SmallVec<[ValueId; 2]>,
    /// Nodes that must run before this one although it reads nothing of theirs.
    pub after: SmallVec<[NodeId; 1]>,
    /// The line of the program that applied it; not part of files.
    pub site: Option<CallSite>,
    /// The part of the program that it belongs to: `block1.conv`.
    pub scope: Option<Arc<str>>,
}

/// A tensor that outlives a run.
#[derive(Clone, Debug)]
pub struct State {
    /// The version that a run reads.
    pub value: ValueId,
    /// The version with which it ends; `None` if it stays as it was.
    pub next: Option<ValueId>,
}

/// An output of a run.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name, which no other output has.
    pub name: Arc<str>,
    /// The value.
    pub value: ValueId,
}

/// A computation over values, with the fact of each.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    values: Vec<Value>,
    nodes: Vec<Node>,
    inputs: Vec<ValueId>,
    states: Vec<State>,
    outputs: Vec<Output>,
    /// For each value the nodes that read it, in order, each once.
    readers: Vec<SmallVec<[NodeId; 2]>>,
    names: FxHashMap<Arc<str>, ValueId>,
    /// The number of each value in the text form: its place in that form's order.
    numbers: Vec<u32>,
    reachability: OnceLock<Reachability>,
}

impl Graph {
    /// Every value.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Every node, in an order in which they can run.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The values that the caller of a run gives, in order.
    pub fn inputs(&self) -> &[ValueId] {
        &self.inputs
    }

    /// The tensors that outlive a run, in order.
    pub fn states(&self) -> &[State] {
        &self.states
    }

    /// The outputs of a run, in order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Ids of all values, in order of definition.
    pub fn value_ids(&self) -> impl DoubleEndedIterator<Item = ValueId> + ExactSizeIterator + use<> {
        (0..self.values.len()).map(|i| ValueId(i as u32))
    }

    /// For each value, the one in whose storage it lies where all else is in row-major order: views share that of what they
    /// view.
    pub fn storages(&self) -> Vec<ValueId> {
        let mut whole: Vec<ValueId> = self.value_ids().collect();
        let mut layouts: Vec<Layout> = self.values.iter().map(|v| v.fact.layout()).collect();
        for n in &self.nodes {
            if let [x] = n.x[..]
                && let Some(view) = n.op.view(&layouts[x.index()])
            {
                whole[n.y[0].index()] = whole[x.index()];
                layouts[n.y[0].index()] = view;
            }
        }
        whole
    }

    /// Ids of all nodes, in order.
    pub fn node_ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len()).map(|i| NodeId(i as u32))
    }

    /// The value with this id.
    ///
    /// # Panics
    /// For an id of another graph that this one does not have.
    pub fn value(&self, v: ValueId) -> &Value {
        &self.values[v.index()]
    }

    /// The node with this id.
    ///
    /// # Panics
    /// For an id of another graph that this one does not have.
    pub fn node(&self, n: NodeId) -> &Node {
        &self.nodes[n.index()]
    }

    /// The fact of a value.
    pub fn fact(&self, v: ValueId) -> &Fact {
        &self.value(v).fact
    }

    /// The node that gives a value; `None` for inputs, states and constants.
    pub fn producer(&self, v: ValueId) -> Option<NodeId> {
        match self.value(v).origin {
            Origin::Node { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The nodes that read a value, in order.
    pub fn readers(&self, v: ValueId) -> &[NodeId] {
        &self.readers[v.index()]
    }

    /// The value of that name.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// How the text form calls a value: its name, or `%7`.
    pub fn label(&self, v: ValueId) -> String {
        match &self.value(v).name {
            Some(name) => name.to_string(),
            None => format!("%{}", self.numbers.get(v.index()).unwrap_or(&v.0)),
        }
    }

    /// True if a run gives the value back or keeps it as the next version of a state.
    pub fn is_result(&self, v: ValueId) -> bool {
        self.outputs.iter().any(|o| o.value == v) || self.states.iter().any(|s| s.next == Some(v))
    }

    /// The dependencies among nodes; made at the first use, in time and memory of nodes squared over 64.
    pub fn reachability(&self) -> &Reachability {
        self.reachability.get_or_init(|| Reachability::of(self))
    }

    /// Bytes of the states.
    pub fn state_bytes(&self) -> usize {
        self.states.iter().map(|s| self.fact(s.value).bytes()).sum()
    }

    /// Replaces each constant that has no other holder by the result of `f`: the same tensor in other memory. The old
    /// memory is freed before the next constant is moved. Errors: those of `f`; Internal for another type.
    pub fn move_constants(&mut self, mut f: impl FnMut(&mut HostTensor) -> Result<Option<HostTensor>>) -> Result<()> {
        for v in &mut self.values {
            if let Origin::Constant(data) = &mut v.origin
                && let Some(old) = Arc::get_mut(data)
                && let Some(new) = f(old)?
            {
                if (new.dtype(), new.shape()) != (old.dtype(), old.shape()) {
                    return Err(Error::new(ErrorKind::Internal, "a constant changed its type when it was moved"));
                }
                *old = new;
            }
        }
        Ok(())
    }

    /// Operations and bytes of one run, as the ops estimate them.
    pub fn cost(&self) -> remat_ops::Cost {
        let mut sum = remat_ops::Cost::default();
        for n in &self.nodes {
            let c = self.node_cost(n);
            sum.flops = sum.flops.saturating_add(c.flops);
            sum.bytes = sum.bytes.saturating_add(c.bytes);
        }
        sum
    }

    /// Operations and bytes of a node, as its op estimates them; nothing for a view of what lies in row-major order.
    pub fn node_cost(&self, n: &Node) -> remat_ops::Cost {
        if let [x] = n.x[..]
            && n.op.view(&self.fact(x).layout()).is_some()
        {
            return remat_ops::Cost::default();
        }
        let x: SmallVec<[&Fact; 4]> = n.x.iter().map(|v| self.fact(*v)).collect();
        let y: Vec<Fact> = n.y.iter().map(|v| self.fact(*v).clone()).collect();
        n.op.cost(&x, &y)
    }

    /// Puts the parts together and checks them.
    pub(crate) fn assemble(parts: Parts) -> Result<Graph> {
        let Parts { values, nodes, inputs, states, outputs } = parts;
        let mut g = Graph { values, nodes, inputs, states, outputs, ..Graph::default() };
        g.verify_structure()?;
        g.numbers = g.numbered();
        g.readers = vec![SmallVec::new(); g.values.len()];
        for (i, n) in g.nodes.iter().enumerate() {
            let id = NodeId(i as u32);
            for v in &n.x {
                let r = &mut g.readers[v.index()];
                if r.last() != Some(&id) {
                    r.push(id);
                }
            }
        }
        for v in g.value_ids() {
            if let Some(name) = &g.values[v.index()].name
                && g.names.insert(name.clone(), v).is_some()
            {
                return Err(bad(format!("two values are called `{name}`")));
            }
        }
        g.verify_facts()?;
        Ok(g)
    }

    /// Inputs, states, constants, then what nodes give.
    fn numbered(&self) -> Vec<u32> {
        let constants = self.value_ids().filter(|v| matches!(self.value(*v).origin, Origin::Constant(_)));
        let given = self.inputs.iter().copied().chain(self.states.iter().map(|s| s.value)).chain(constants);
        let order = given.chain(self.nodes.iter().flat_map(|n| n.y.iter().copied()));
        let mut numbers = vec![0; self.values.len()];
        order.enumerate().for_each(|(i, v)| numbers[v.index()] = i as u32);
        numbers
    }
}

/// A graph before it is checked.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) values: Vec<Value>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) states: Vec<State>,
    pub(crate) outputs: Vec<Output>,
}

pub(crate) fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, format!("graph: {}", text.into()))
}
