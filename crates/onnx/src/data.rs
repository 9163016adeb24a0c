//! Values in files of the standard: `input_0.pb` and `output_0.pb` of its test data.

use bytes::Bytes;
use prost::Message;
use remat_import::{Literal, Port, Value, ValueType};
use remat_runtime::Device;
use remat_types::{Error, ErrorKind, Result};

use crate::proto::{OptionalProto, SequenceProto, TensorProto};
use crate::tensor::literal;

/// Sequences in sequences.
const MOST_DEPTH: usize = 8;

fn wrong(e: impl ToString) -> Error {
    Error::new(ErrorKind::Format, e.to_string())
}

/// A value for this input, or of this output, in protobuf's encoding of the standard: a tensor, a sequence, an optional value, as
/// the model declares. Errors, which name the port: Format, DType, Shape.
pub fn read_value(port: &Port, device: &Device, bytes: Vec<u8>) -> Result<Value> {
    read(device, &port.ty, bytes.into()).map_err(|e| e.context(format!("`{}`", port.name)))
}

fn read(device: &Device, ty: &ValueType, bytes: Bytes) -> Result<Value> {
    match ty {
        ValueType::Sequence(_) => {
            sequence(device, &SequenceProto::decode(bytes).map_err(wrong)?, 0).map(Value::Sequence)
        }
        ValueType::Optional(of) => match OptionalProto::decode(bytes.clone()) {
            Ok(o) if o.elem_type.is_some() => optional(device, &o, 0),
            // some of the standard's files have the value itself
            _ => Ok(Value::Optional(Some(Box::new(read(device, of, bytes)?)))),
        },
        _ => tensor(device, &TensorProto::decode(bytes).map_err(wrong)?),
    }
}

fn tensor(device: &Device, t: &TensorProto) -> Result<Value> {
    match literal(t, None)? {
        Literal::Tensor(t) => remat_tensor::Tensor::from_host(device, &t).map(Value::Tensor),
        Literal::Text(t) => Ok(Value::Text(t)),
    }
}

fn deeper(depth: usize) -> Result<usize> {
    if depth < MOST_DEPTH { Ok(depth + 1) } else { Err(wrong("sequences nested too deep")) }
}

fn sequence(device: &Device, s: &SequenceProto, depth: usize) -> Result<Vec<Value>> {
    let depth = deeper(depth)?;
    let tensors = s.tensor_values.iter().map(|t| tensor(device, t));
    let sequences = s.sequence_values.iter().map(|s| sequence(device, s, depth).map(Value::Sequence));
    let optionals = s.optional_values.iter().map(|o| optional(device, o, depth));
    // a map is the row of its values, as `ZipMap` gives it
    let maps = s.map_values.iter().map(|m| match &m.values {
        Some(values) => Ok(Value::Sequence(sequence(device, values, depth)?)),
        None => Err(wrong("a map without values")),
    });
    if !s.sparse_tensor_values.is_empty() {
        return Err(wrong("a sequence of sparse tensors, which is not supported"));
    }
    tensors.chain(sequences).chain(optionals).chain(maps).collect()
}

fn optional(device: &Device, o: &OptionalProto, depth: usize) -> Result<Value> {
    let depth = deeper(depth)?;
    let held = match (&o.tensor_value, &o.sequence_value, &o.optional_value) {
        (Some(t), _, _) => Some(tensor(device, t)?),
        (None, Some(s), _) => Some(Value::Sequence(sequence(device, s, depth)?)),
        (None, None, Some(o)) => Some(optional(device, o, depth)?),
        _ => None,
    };
    Ok(Value::Optional(held.map(Box::new)))
}
