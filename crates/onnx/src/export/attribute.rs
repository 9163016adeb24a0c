//! Attributes of nodes.

use bytes::Bytes;

use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, GraphProto};

fn of(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.to_owned()), r#type: Some(kind as i32), ..Default::default() }
}

pub(super) fn int(name: &str, v: i64) -> AttributeProto {
    AttributeProto { i: Some(v), ..of(name, AttributeType::Int) }
}

/// A number that counts or is an axis.
pub(super) fn size(name: &str, v: usize) -> AttributeProto {
    int(name, v as i64)
}

pub(super) fn flag(name: &str, v: bool) -> AttributeProto {
    int(name, i64::from(v))
}

/// The standard has floats in f32 only.
pub(super) fn float(name: &str, v: f64) -> AttributeProto {
    AttributeProto { f: Some(v as f32), ..of(name, AttributeType::Float) }
}

pub(super) fn text(name: &str, v: &str) -> AttributeProto {
    AttributeProto { s: Some(Bytes::copy_from_slice(v.as_bytes())), ..of(name, AttributeType::String) }
}

pub(super) fn ints(name: &str, v: &[usize]) -> AttributeProto {
    AttributeProto { ints: v.iter().map(|v| *v as i64).collect(), ..of(name, AttributeType::Ints) }
}

pub(super) fn texts(name: &str, v: &[&str]) -> AttributeProto {
    let strings = v.iter().map(|v| Bytes::copy_from_slice(v.as_bytes())).collect();
    AttributeProto { strings, ..of(name, AttributeType::Strings) }
}

pub(super) fn tensor(name: &str, v: crate::proto::TensorProto) -> AttributeProto {
    AttributeProto { t: Some(Box::new(v)), ..of(name, AttributeType::Tensor) }
}

pub(super) fn graph(name: &str, v: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(Box::new(v)), ..of(name, AttributeType::Graph) }
}
