//! A model as its file has it: by names, with nothing resolved or checked. A reader of a format makes it, and knows no more than the
//! format; the rest is the same for all.

use std::collections::HashMap;

use remat_types::{Error, Result};

use crate::graph::{Attribute, ValueType};
use crate::literal::{Literal, Narrow};

/// Versions of operators by domain.
pub type Versions = HashMap<String, i64>;

/// A model.
#[derive(Debug, Default)]
pub struct ForeignModel {
    /// The main graph.
    pub graph: ForeignGraph,
    /// Functions of the model, which nodes may call. One that could not be read is an error of the nodes that call it.
    pub functions: HashMap<FunctionName, Result<ForeignFunction>>,
    /// The versions that the main graph imports. `None` in a format whose operators have no versions: then the newest rules hold.
    pub versions: Option<Versions>,
    /// The size of the file. Functions may take a multiple of it once their calls are written out.
    pub file_bytes: usize,
}

/// A name of a function: the operator that calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FunctionName {
    /// The domain of its operator.
    pub domain: String,
    /// The operator.
    pub op: String,
    /// One among several functions of one name, or nothing.
    pub overload: String,
}

/// A function of a model.
#[derive(Clone, Debug, Default)]
pub struct ForeignFunction {
    /// The body. Its inputs are those of the node that calls it; it sees no other values.
    pub body: ForeignGraph,
    /// Attributes that a call need not give.
    pub defaults: Vec<(String, ForeignAttribute)>,
    /// The versions that it imports.
    pub versions: Option<Versions>,
    /// Bytes of the defaults in the file.
    pub default_bytes: usize,
}

/// A graph. Its nodes may read the values of the graphs around it.
#[derive(Clone, Debug, Default)]
pub struct ForeignGraph {
    /// Its name.
    pub name: String,
    /// Values that come from outside.
    pub inputs: Vec<ForeignPort>,
    /// Values that the file has: weights, and defaults of inputs of their names.
    pub constants: Vec<ForeignConstant>,
    /// Nodes in an order in which they can run.
    pub nodes: Vec<ForeignNode>,
    /// Values that it gives.
    pub outputs: Vec<ForeignPort>,
}

/// An input or an output of a graph.
#[derive(Clone, Debug)]
pub struct ForeignPort {
    /// The value's name.
    pub name: String,
    /// Its declaration.
    pub ty: ValueType,
    /// The integer of less than a byte that the file declares, where `ty` has the dtype that holds it.
    pub narrow: Option<Narrow>,
}

/// A constant of a graph.
#[derive(Clone, Debug)]
pub struct ForeignConstant {
    /// The value's name.
    pub name: String,
    /// Its data.
    pub value: Literal,
    /// The integer of less than a byte that it is in the file.
    pub narrow: Option<Narrow>,
}

/// A node: an operator or a call of a function.
#[derive(Clone, Debug, Default)]
pub struct ForeignNode {
    /// Its name, or nothing: then messages name its first output.
    pub name: String,
    /// The domain of its operator, or nothing.
    pub domain: String,
    /// The operator.
    pub op: String,
    /// One among several functions of one name, or nothing.
    pub overload: String,
    /// The values that it reads; no name for one that is absent.
    pub inputs: Vec<String>,
    /// Names of its values; none for one that nothing reads.
    pub outputs: Vec<String>,
    /// Attributes. Of several of one name the last holds.
    pub attributes: Vec<(String, ForeignAttribute)>,
    /// Its bytes in the file.
    pub file_bytes: usize,
}

/// An attribute of a node, or its place in a function.
#[derive(Clone, Debug)]
pub enum ForeignAttribute {
    /// A value.
    Value(Attribute<ForeignGraph>),
    /// The attribute of this name of the node that calls the function; absent if the call has none.
    Caller(String),
}

impl ForeignNode {
    /// Its name, or that of its first output.
    pub fn label(&self) -> &str {
        if self.name.is_empty() { self.outputs.first().map_or("", |o| o) } else { &self.name }
    }

    /// An error with the node in front of the message.
    pub fn context(&self, e: Error) -> Error {
        e.context(format!("node `{}` ({})", self.label(), self.op))
    }
}
