//! Attributes of nodes.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use remat_types::{Error, ErrorKind, Result};

use super::Graph;
use crate::literal::Literal;

/// The attributes of a node by name.
pub(crate) type Attributes = BTreeMap<String, Attribute<Graph>>;

/// A type that a format may have for the parameters of its operators, such as the table of options of a convolution.
pub trait Parameter: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> Parameter for T {}

/// An attribute; `G` is a graph by names in a file, and a graph of slots in a model. Strings are bytes until they are read: some
/// exporters write other things than UTF-8. Clones share what may be long, since a call of a function gives its attributes to many
/// nodes.
#[derive(Clone, Debug)]
pub enum Attribute<G> {
    /// A float; f32 as most files have it.
    Float(f32),
    /// An integer.
    Int(i64),
    /// A string.
    String(Arc<[u8]>),
    /// A tensor.
    Tensor(Box<Literal>),
    /// A graph, which the rule runs.
    Graph(Box<G>),
    /// Floats.
    Floats(Arc<[f32]>),
    /// Integers.
    Ints(Arc<[i64]>),
    /// Strings.
    Strings(Arc<[Vec<u8>]>),
    /// A type, which no rule reads.
    Type,
    /// A parameter of a type of the format's own: [`Cx::parameter`](super::Cx::parameter).
    Own(Arc<dyn Parameter>),
    /// An attribute that could not be read, and the reason. It is an error only for a rule that asks for it.
    Unreadable(Error),
}

impl<G> Attribute<G> {
    /// A parameter of a type of the format's own.
    pub fn own(parameter: impl Parameter) -> Attribute<G> {
        Attribute::Own(Arc::new(parameter))
    }

    /// The same with another form of graph, which `f` makes. Errors: those of `f`.
    pub(crate) fn with_graph<H>(&self, f: impl FnOnce(&G) -> Result<H>) -> Result<Attribute<H>> {
        Ok(match self {
            Attribute::Float(v) => Attribute::Float(*v),
            Attribute::Int(v) => Attribute::Int(*v),
            Attribute::String(v) => Attribute::String(v.clone()),
            Attribute::Tensor(v) => Attribute::Tensor(v.clone()),
            Attribute::Graph(g) => Attribute::Graph(Box::new(f(g)?)),
            Attribute::Floats(v) => Attribute::Floats(v.clone()),
            Attribute::Ints(v) => Attribute::Ints(v.clone()),
            Attribute::Strings(v) => Attribute::Strings(v.clone()),
            Attribute::Type => Attribute::Type,
            Attribute::Own(p) => Attribute::Own(p.clone()),
            Attribute::Unreadable(e) => Attribute::Unreadable(e.clone()),
        })
    }

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
            Attribute::Own(_) => "a parameter",
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

/// A parameter of the format's own type `T`. Errors: Format if it is something else.
pub(crate) fn parameter<'a, T: Parameter>(all: &'a Attributes, name: &str) -> Result<Option<&'a T>> {
    match all.get(name) {
        None => Ok(None),
        Some(Attribute::Own(p)) => {
            let any: &dyn Any = &**p;
            let wrong = || Error::new(ErrorKind::Format, format!("attribute `{name}` is a parameter of another type"));
            any.downcast_ref().ok_or_else(wrong).map(Some)
        }
        Some(other) => Err(other.mismatch(name, "a parameter")),
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
