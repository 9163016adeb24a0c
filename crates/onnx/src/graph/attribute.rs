//! Attributes of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use remat_types::{Error, ErrorKind, Result};

use super::Graph;
use crate::tensor::Literal;

/// The attributes of a node by name.
pub(crate) type Attributes = BTreeMap<String, Attribute>;

/// An attribute. Strings are bytes until they are read: some exporters write other things than UTF-8. Clones share what may be long,
/// since a call of a function gives its attributes to many nodes.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Float(f32),
    Int(i64),
    String(Arc<[u8]>),
    Tensor(Box<Literal>),
    Graph(Box<Graph>),
    Floats(Arc<[f32]>),
    Ints(Arc<[i64]>),
    Strings(Arc<[Vec<u8>]>),
    /// A type, which no rule reads.
    Type,
    /// An attribute that could not be read, and the reason. It is an error only for a rule that asks for it.
    Unreadable(Error),
}

impl Attribute {
    /// The name of its kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Attribute::Float(_) => "a float",
            Attribute::Int(_) => "an integer",
            Attribute::String(_) => "a string",
            Attribute::Tensor(_) => "a tensor",
            Attribute::Graph(_) => "a graph",
            Attribute::Floats(_) => "floats",
            Attribute::Ints(_) => "integers",
            Attribute::Strings(_) => "strings",
            Attribute::Type => "a type",
            Attribute::Unreadable(_) => "nothing that can be read",
        }
    }

    /// The error of asking for it as `wanted`.
    pub(crate) fn mismatch(&self, name: &str, wanted: &str) -> Error {
        match self {
            Attribute::Unreadable(e) => e.clone().context(format!("attribute `{name}`")),
            other => {
                let text = format!("attribute `{name}` is {}, must be {wanted}", other.kind());
                Error::new(ErrorKind::Format, text)
            }
        }
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $variant:ident => $t:ty, $wanted:literal, |$v:ident| $get:expr;)*) => { $(
        $(#[$doc])*
        pub(crate) fn $name<'a>(all: &'a Attributes, name: &str) -> Result<Option<$t>> {
            match all.get(name) {
                None => Ok(None),
                Some(Attribute::$variant($v)) => Ok(Some($get)),
                Some(other) => Err(other.mismatch(name, $wanted)),
            }
        }
    )* };
}

getters! {
    /// A float. Errors: Format if it is something else, as all of these.
    float: Float => &'a f32, "a float", |v| v;
    /// An integer.
    int: Int => &'a i64, "an integer", |v| v;
    /// A tensor.
    tensor: Tensor => &'a Literal, "a tensor", |v| v;
    /// A graph.
    graph: Graph => &'a Graph, "a graph", |v| v;
    /// Floats.
    floats: Floats => &'a [f32], "floats", |v| v;
    /// Integers.
    ints: Ints => &'a [i64], "integers", |v| v;
    /// Strings, as bytes.
    strings: Strings => &'a [Vec<u8>], "strings", |v| v;
    /// A string, as bytes.
    string: String => &'a [u8], "a string", |v| v;
}
