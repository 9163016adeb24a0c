//! A model as its file has it: by names, with nothing resolved or checked. A reader of a format makes it, and knows no more than the
//! format; the rest is the same for all.

use std::collections::HashMap;

use remat_types::{Error, Result};

use crate::graph::{Attribute, ValueType};
use crate::literal::{Literal, Narrow};

/// Versions of operators by domain.
pub(crate) type Versions = HashMap<String, i64>;

/// A model.
#[derive(Debug, Default)]
pub(crate) struct ForeignModel {
    /// The main graph.
    pub(crate) graph: ForeignGraph,
    /// Functions of the model, which nodes may call. One that could not be read is an error of the nodes that call it.
    pub(crate) functions: HashMap<FunctionName, Result<ForeignFunction>>,
    /// The versions that the main graph imports. `None` in a format whose operators have no versions: then the newest rules hold.
    pub(crate) versions: Option<Versions>,
    /// The size of the file. Functions may take a multiple of it once their calls are written out.
    pub(crate) file_bytes: usize,
}

/// A name of a function: the operator that calls it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FunctionName {
    /// The domain of its operator.
    pub(crate) domain: String,
    /// The operator.
    pub(crate) op: String,
    /// One among several functions of one name, or nothing.
    pub(crate) overload: String,
}

/// A function of a model.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignFunction {
    /// The body. Its inputs are those of the node that calls it; it sees no other values.
    pub(crate) body: ForeignGraph,
    /// Attributes that a call need not give.
    pub(crate) defaults: Vec<(String, ForeignAttribute)>,
    /// The versions that it imports.
    pub(crate) versions: Option<Versions>,
    /// Bytes of the defaults in the file.
    pub(crate) default_bytes: usize,
}

/// A graph. Its nodes may read the values of the graphs around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignGraph {
    /// Its name.
    pub(crate) name: String,
    /// Values that come from outside.
    pub(crate) inputs: Vec<ForeignPort>,
    /// Values that the file has: weights, and defaults of inputs of their names.
    pub(crate) constants: Vec<ForeignConstant>,
    /// Nodes in an order in which they can run.
    pub(crate) nodes: Vec<ForeignNode>,
    /// Values that it gives.
    pub(crate) outputs: Vec<ForeignPort>,
}

/// An input or an output of a graph.
#[derive(Clone, Debug)]
pub(crate) struct ForeignPort {
    /// The value's name.
    pub(crate) name: String,
    /// Its declaration.
    pub(crate) ty: ValueType,
    /// The integer of less than a byte that the file declares, where `ty` has the dtype that holds it.
    pub(crate) narrow: Option<Narrow>,
}

/// A constant of a graph.
#[derive(Clone, Debug)]
pub(crate) struct ForeignConstant {
    /// The value's name.
    pub(crate) name: String,
    /// Its data.
    pub(crate) value: Literal,
    /// The integer of less than a byte that it is in the file.
    pub(crate) narrow: Option<Narrow>,
}

/// A node: an operator or a call of a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForeignNode {
    /// Its name, or nothing: then messages name its first output.
    pub(crate) name: String,
    /// The domain of its operator, or nothing.
    pub(crate) domain: String,
    /// The operator.
    pub(crate) op: String,
    /// One among several functions of one name, or nothing.
    pub(crate) overload: String,
    /// The values that it reads; no name for one that is absent.
    pub(crate) inputs: Vec<String>,
    /// Names of its values; none for one that nothing reads.
    pub(crate) outputs: Vec<String>,
    /// Attributes. Of several of one name the last holds.
    pub(crate) attributes: Vec<(String, ForeignAttribute)>,
    /// Its bytes in the file.
    pub(crate) file_bytes: usize,
}

/// An attribute of a node, or its place in a function.
#[derive(Clone, Debug)]
pub(crate) enum ForeignAttribute {
    /// A value.
    Value(Attribute<ForeignGraph>),
    /// The attribute of this name of the node that calls the function; absent if the call has none.
    Caller(String),
}

impl ForeignNode {
    /// Its name, or that of its first output.
    pub(crate) fn label(&self) -> &str {
        if self.name.is_empty() { self.outputs.first().map_or("", |o| o) } else { &self.name }
    }

    /// An error with the node in front of the message.
    pub(crate) fn context(&self, e: Error) -> Error {
        e.context(format!("node `{}` ({})", self.label(), self.op))
    }
}
