//! A graph whose names are resolved, and how it runs.
//!
//! Every value of a graph has a slot; a value of a graph around it is named by how many graphs out it lies. A call of a function of
//! the model is a graph of its own, made from the function's body and the attributes of the call.

mod attribute;
mod node;
mod rule;
mod run;

use remat_types::{DType, Error};

use crate::literal::{Literal, Narrow};
pub(crate) use attribute::Attributes;
pub use attribute::{Attribute, Parameter};
pub use node::{Cx, axes, one, scalar, shape_error, size, value_error};
pub use rule::{Row, Rule, Schema};
pub(crate) use run::Shared;

/// A value: how many graphs out, and its slot there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ref {
    pub(crate) out: usize,
    pub(crate) slot: usize,
}

/// An extent that a graph declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many.
    Fixed(usize),
    /// As many as every other extent of this name.
    Named(String),
    /// Nothing is said.
    Open,
}

impl Extent {
    /// The number, if it is fixed.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Extent::Fixed(n) => Some(*n),
            _ => None,
        }
    }
}

impl std::fmt::Display for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Extent::Fixed(n) => n.fmt(f),
            Extent::Named(name) => f.write_str(name),
            Extent::Open => f.write_str("?"),
        }
    }
}

impl std::fmt::Display for ValueType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ValueType::Tensor(dtype, extents) => {
                match dtype {
                    Some(d) => d.fmt(f)?,
                    None => f.write_str("of a type that Remat has not")?,
                }
                let Some(extents) = extents else { return f.write_str(" of any shape") };
                let extents: Vec<String> = extents.iter().map(Extent::to_string).collect();
                write!(f, "[{}]", extents.join(", "))
            }
            ValueType::Text => f.write_str("strings"),
            ValueType::Sequence(of) => write!(f, "a sequence of {of}"),
            ValueType::Optional(of) => write!(f, "{of} or nothing"),
            ValueType::Unknown => f.write_str("of any type"),
        }
    }
}

/// A graph's declaration of one of its inputs or outputs.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueType {
    /// A tensor: element type, if Remat has it, and extents, if the rank is known.
    Tensor(Option<DType>, Option<Vec<Extent>>),
    /// Strings.
    Text,
    /// A sequence.
    Sequence(Box<ValueType>),
    /// A value, or none.
    Optional(Box<ValueType>),
    /// Something else, or nothing is said.
    Unknown,
}

/// An input of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) slot: usize,
    pub(crate) ty: ValueType,
    /// The constant that it is unless it is given.
    pub(crate) default: Option<usize>,
}

/// A constant of a graph: a weight, mostly.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    pub(crate) name: String,
    pub(crate) slot: usize,
    pub(crate) value: Literal,
}

/// The action of a node.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Rule(&'static Row),
    Function(Box<Graph>),
    /// No rule, and the nearest names there are.
    Unknown(Option<&'static str>),
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) op: String,
    /// The version of the operator that the model imports; 0 of a call of a function. `None` if operators have no versions.
    pub(crate) version: Option<i64>,
    pub(crate) inputs: Vec<Option<Ref>>,
    /// Inputs that are integers of less than a byte in the file, which the dtype of the tensor does not say.
    pub(crate) narrow: Vec<(usize, Narrow)>,
    pub(crate) outputs: Vec<Option<usize>>,
    pub(crate) attributes: Attributes,
    pub(crate) kind: Kind,
    /// The schema of the operator, if it has a rule.
    pub(crate) schema: Option<&'static dyn Schema>,
    /// Slots of this graph that nothing reads after this node.
    pub(crate) frees: Vec<usize>,
}

/// A graph that can run: a rule gets those of its node's attributes, and runs them by [`Cx::run`].
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) name: String,
    pub(crate) inputs: Vec<Entry>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) outputs: Vec<(String, Ref, ValueType)>,
    pub(crate) slots: usize,
    /// Number of this graph among all of a model's, where its constants are found on a device.
    pub(crate) id: usize,
}

impl Node {
    /// An error with the node in front of the message.
    pub(crate) fn context(&self, e: Error) -> Error {
        let dot = if self.domain.is_empty() { "" } else { "." };
        let version = self.version.map_or_else(String::new, |v| format!(" of version {v}"));
        e.context(format!("node `{}` ({}{dot}{}{version})", self.name, self.domain, self.op))
    }

    /// The graphs of a node: those of its attributes, and the body of the function that it calls.
    pub(crate) fn graphs(&self) -> impl Iterator<Item = &Graph> {
        let called = match &self.kind {
            Kind::Function(g) => Some(&**g),
            _ => None,
        };
        let inner = self.attributes.values().filter_map(|a| match a {
            Attribute::Graph(g) => Some(&**g),
            _ => None,
        });
        called.into_iter().chain(inner)
    }
}

impl Graph {
    /// The number of its inputs.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// The number of its outputs.
    pub fn output_count(&self) -> usize {
        self.outputs.len()
    }

    /// The declaration of an output, if there is such an output.
    pub fn output_type(&self, i: usize) -> Option<&ValueType> {
        self.outputs.get(i).map(|o| &o.2)
    }

    /// This graph and all graphs within it.
    pub(crate) fn all(&self) -> Vec<&Graph> {
        let inner = self.nodes.iter().flat_map(Node::graphs).flat_map(Graph::all);
        std::iter::once(self).chain(inner).collect()
    }
}
