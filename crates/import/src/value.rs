//! A value on an edge of a graph.

use std::sync::Arc;

use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, HostTensor, Result, Shape};

/// Tensors of at most this many elements keep their value beside them: shapes, axes, scales, paddings.
pub const KNOWN_MAX_ELEMS: usize = 4096;

/// Strings under a shape, which stay on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Extents.
    pub shape: Shape,
    /// The elements in row-major order.
    pub data: Arc<Vec<String>>,
}

/// Strings of a list, by their places in it. Only a graph's outputs are such, so that a model whose last step names classes is one
/// graph: a node gets [`Text`].
#[derive(Clone, Debug)]
pub struct Labels {
    /// Integers.
    pub places: Tensor,
    /// The list.
    pub names: Arc<Vec<String>>,
}

impl Labels {
    /// The strings at these places; one that is not in the list is empty.
    pub fn at(names: &[String], places: &HostTensor) -> Text {
        let name = |i: &i64| usize::try_from(*i).ok().and_then(|i| names.get(i)).cloned().unwrap_or_default();
        Text { shape: places.shape().clone(), data: Arc::new(places.to_i64_vec().iter().map(name).collect()) }
    }
}

/// A value of a model: a tensor in nearly all of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// A tensor.
    Tensor(Tensor),
    /// A small tensor whose value is known on the host.
    Constant(Tensor, HostTensor),
    /// A tensor of strings.
    Text(Text),
    /// Strings of a list; [`Network::run`](crate::Network::run) gives [`Value::Text`] instead.
    Labels(Labels),
    /// Values of one type, in order.
    Sequence(Vec<Value>),
    /// A value, or none.
    Optional(Option<Box<Value>>),
}

impl From<Tensor> for Value {
    fn from(t: Tensor) -> Value {
        Value::Tensor(t)
    }
}

impl Value {
    /// A tensor on `device` of a host tensor; small ones stay known. Errors: Closed.
    pub fn from_host(device: &Device, host: &HostTensor) -> Result<Value> {
        let tensor = Tensor::from_host(device, host)?;
        Ok(if host.elems() <= KNOWN_MAX_ELEMS { Value::Constant(tensor, host.clone()) } else { Value::Tensor(tensor) })
    }

    /// The tensor. Errors: Value if it is none.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            Value::Tensor(t) | Value::Constant(t, _) => Ok(t),
            Value::Optional(Some(v)) => v.tensor(),
            other => Err(Error::new(ErrorKind::Value, format!("expected a tensor, got {}", other.kind()))),
        }
    }

    /// With strings instead of places in a list. Errors: NoValue in a trace; those of the device.
    pub(crate) fn named(self) -> Result<Value> {
        match self {
            Value::Labels(l) => Ok(Value::Text(Labels::at(&l.names, &l.places.to_host()?))),
            other => Ok(other),
        }
    }

    /// The kind of the value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Tensor(_) | Value::Constant(..) => "a tensor",
            Value::Text(_) | Value::Labels(_) => "a tensor of strings",
            Value::Sequence(_) => "a sequence",
            Value::Optional(Some(_)) => "an optional value",
            Value::Optional(None) => "an optional value that is absent",
        }
    }

    /// The value on the host, if it is known without waiting.
    pub fn known(&self) -> Option<HostTensor> {
        match self {
            Value::Constant(_, host) => Some(host.clone()),
            Value::Tensor(t) => t.handle().fact().value.as_deref().cloned(),
            _ => None,
        }
    }

    /// The strings. Errors: Value if it has none.
    pub fn text(&self) -> Result<&Text> {
        match self {
            Value::Text(t) => Ok(t),
            other => Err(Error::new(ErrorKind::Value, format!("expected strings, got {}", other.kind()))),
        }
    }

    /// The parts. Errors: Value if it is no sequence.
    pub fn sequence(&self) -> Result<&[Value]> {
        match self {
            Value::Sequence(v) => Ok(v),
            Value::Optional(Some(v)) => v.sequence(),
            other => Err(Error::new(ErrorKind::Value, format!("expected a sequence, got {}", other.kind()))),
        }
    }
}
