//! Tensors of a file: checked against their bytes before anything is allocated.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use prost::Message;
use remat_import::{Held, Literal, Narrow, Place, Text, open_external};
use remat_types::{DType, Error, ErrorKind, HostTensor, Result, Shape, bf16, f16};

use crate::proto::tensor_proto::{DataLocation, DataType};
use crate::proto::{SparseTensorProto, TensorProto};

/// The most bytes that a sparse tensor takes once it is dense, for each byte of its values and their places, and in any case: its file
/// says a shape, and little more.
const DENSE: (usize, usize) = (1024, 4096);

/// The most bytes of one external tensor, protobuf's own limit of a tensor inside a file.
const MOST_EXTERNAL_BYTES: u64 = 64 << 30;

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Format, text)
}

/// The dtype of an element type of the standard. Errors: DType for those that Remat has not, Format for none at all.
pub(crate) fn dtype_of(data_type: i32) -> Result<DType> {
    let known = DataType::try_from(data_type).map_err(|_| wrong(format!("{data_type} is no element type")))?;
    Ok(match known {
        DataType::Float => DType::F32,
        DataType::Uint8 => DType::U8,
        DataType::Int8 => DType::I8,
        DataType::Uint16 => DType::U16,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Bool => DType::Bool,
        DataType::Float16 => DType::F16,
        DataType::Double => DType::F64,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Bfloat16 => DType::BF16,
        DataType::Undefined => return Err(wrong("a tensor without an element type".into())),
        other => {
            let text = format!("elements of type {} are not supported", other.as_str_name());
            return Err(Error::new(ErrorKind::DType, text));
        }
    })
}

/// The narrow integer of this element type, if it is one.
pub(crate) fn narrow_of(data_type: i64) -> Option<Narrow> {
    let known = i32::try_from(data_type).ok().and_then(|d| DataType::try_from(d).ok())?;
    match known {
        DataType::Uint4 => Some(Narrow::U4),
        DataType::Int4 => Some(Narrow::I4),
        DataType::Uint2 => Some(Narrow::U2),
        DataType::Int2 => Some(Narrow::I2),
        _ => None,
    }
}

/// The dtype in which elements of a type are held. Errors: as [`dtype_of`].
pub(crate) fn held_dtype(data_type: i32) -> Result<DType> {
    narrow_of(i64::from(data_type)).map_or_else(|| dtype_of(data_type), |n| Ok(n.dtype()))
}

/// The shape that `dims` say. Errors: Format for negative extents; Shape too large to address.
fn shape_of(dims: &[i64]) -> Result<Shape> {
    if dims.len() > 64 {
        return Err(wrong(format!("a tensor of {} axes", dims.len())));
    }
    let extent = |d: &i64| usize::try_from(*d).map_err(|_| wrong(format!("an extent of {d}")));
    let shape: Shape = dims.iter().map(extent).collect::<Result<Vec<usize>>>()?.into();
    shape.checked_elems()?;
    Ok(shape)
}

/// A tensor of the standard's `TensorProto` in protobuf's encoding, as the files `input_0.pb` of its test data are. `None` for one
/// of strings. Errors: Format, DType, Shape.
pub fn read_tensor(bytes: Vec<u8>) -> Result<HostTensor> {
    let proto = TensorProto::decode(bytes::Bytes::from(bytes)).map_err(|e| wrong(e.to_string()))?;
    match literal(&proto, None)? {
        Literal::Tensor(t) => Ok(t),
        Literal::Text(_) => Err(Error::new(ErrorKind::DType, "a tensor of strings")),
    }
}

/// The constant that `t` says; `folder` is where its external data may lie. Errors: Format, DType, Shape, Io.
pub(crate) fn literal(t: &TensorProto, folder: Option<&Path>) -> Result<Literal> {
    literal_of(t, folder, None)
}

/// [`literal`], of a tensor whose bytes `held` has if it is given.
pub(crate) fn literal_of(t: &TensorProto, folder: Option<&Path>, held: Option<Held<'_>>) -> Result<Literal> {
    let named = |e: Error| e.context(format!("tensor `{}`", t.name()));
    if t.data_type == Some(DataType::String as i32) {
        return text(t).map(Literal::Text).map_err(named);
    }
    numbers(t, folder, held).map(Literal::Tensor).map_err(named)
}

fn text(t: &TensorProto) -> Result<Text> {
    let shape = shape_of(&t.dims)?;
    if t.string_data.len() != shape.elems() {
        return Err(wrong(format!("{} strings for shape {shape}", t.string_data.len())));
    }
    let utf8 = |s: &bytes::Bytes| {
        std::str::from_utf8(s).map(str::to_owned).map_err(|_| wrong("a string that is not UTF-8".into()))
    };
    Ok(Text { shape, data: Arc::new(t.string_data.iter().map(utf8).collect::<Result<_>>()?) })
}

fn numbers(t: &TensorProto, folder: Option<&Path>, held: Option<Held<'_>>) -> Result<HostTensor> {
    let (dtype, shape) = (held_dtype(t.data_type())?, shape_of(&t.dims)?);
    let narrow = narrow_of(i64::from(t.data_type()));
    if t.segment.is_some() {
        return Err(wrong("a tensor in segments, which no exporter writes".into()));
    }
    if t.data_location == Some(DataLocation::External as i32) {
        let size = shape.checked_elems()?.checked_mul(dtype.size_bytes());
        let (file, place) = external(t, narrow.map_or(size, |n| Some(n.packed_bytes(shape.elems()))), folder)?;
        return Held { file: &file, place }.tensor(dtype, shape, narrow);
    }
    if let Some(held) = held {
        return held.tensor(dtype, shape, narrow);
    }
    if let Some(n) = narrow {
        return match &t.raw_data {
            Some(raw) => n.unpack(raw, shape),
            None => n.unpack(&t.int32_data.iter().map(|v| *v as u8).collect::<Vec<_>>(), shape),
        };
    }
    if let Some(raw) = &t.raw_data {
        return HostTensor::from_bytes(dtype, shape, raw);
    }
    let elems = shape.elems();
    let count = |n: usize| {
        if n == elems { Ok(()) } else { Err(wrong(format!("{n} elements for shape {shape} of {elems}"))) }
    };
    let of_i32 = |x: &[i32]| -> Result<HostTensor> {
        count(x.len())?;
        macro_rules! cast {
            ($t:ty) => {
                HostTensor::from_slice(&x.iter().map(|v| *v as $t).collect::<Vec<_>>(), shape.clone())
            };
        }
        match dtype {
            DType::U8 => cast!(u8),
            DType::I8 => cast!(i8),
            DType::U16 => cast!(u16),
            DType::I16 => cast!(i16),
            DType::Bool => HostTensor::from_slice(&x.iter().map(|v| *v != 0).collect::<Vec<_>>(), shape.clone()),
            DType::F16 => {
                HostTensor::from_slice(&x.iter().map(|v| f16::from_bits(*v as u16)).collect::<Vec<_>>(), shape.clone())
            }
            DType::BF16 => {
                HostTensor::from_slice(&x.iter().map(|v| bf16::from_bits(*v as u16)).collect::<Vec<_>>(), shape.clone())
            }
            _ => HostTensor::from_slice(x, shape.clone()),
        }
    };
    match dtype {
        DType::F32 => count(t.float_data.len()).and_then(|()| HostTensor::from_slice(&t.float_data, shape.clone())),
        DType::F64 => count(t.double_data.len()).and_then(|()| HostTensor::from_slice(&t.double_data, shape.clone())),
        DType::I64 => count(t.int64_data.len()).and_then(|()| HostTensor::from_slice(&t.int64_data, shape.clone())),
        DType::U64 => count(t.uint64_data.len()).and_then(|()| HostTensor::from_slice(&t.uint64_data, shape.clone())),
        DType::U32 => {
            count(t.uint64_data.len())?;
            HostTensor::from_slice(&t.uint64_data.iter().map(|v| *v as u32).collect::<Vec<_>>(), shape.clone())
        }
        _ => of_i32(&t.int32_data),
    }
}

/// The file of external data and where it is in there, which are to be as many bytes as `size`.
fn external(t: &TensorProto, size: Option<usize>, folder: Option<&Path>) -> Result<(File, Place)> {
    let entry = |key: &str| t.external_data.iter().find(|e| e.key() == key).map(|e| e.value());
    let number = |key: &str| -> Result<Option<u64>> {
        entry(key).map(|v| v.parse().map_err(|_| wrong(format!("external {key} is `{v}`")))).transpose()
    };
    let location = entry("location").ok_or_else(|| wrong("external data without a location".into()))?;
    let bytes = size.map_or(u64::MAX, |b| b as u64);
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?.unwrap_or(bytes));
    if length != bytes || bytes > MOST_EXTERNAL_BYTES {
        return Err(wrong(format!("{length} external bytes for a tensor that takes {bytes}")));
    }
    let place = Place { at: offset, bytes: length };
    Ok((open_external(location, folder, place)?, place))
}

/// A sparse tensor as a dense one. Errors: Format; those of its parts.
pub(crate) fn dense(t: &SparseTensorProto, folder: Option<&Path>) -> Result<HostTensor> {
    let (Some(values), Some(indices)) = (&t.values, &t.indices) else {
        return Err(wrong("a sparse tensor without values or indices".into()));
    };
    let (values, indices) = (numbers(values, folder, None)?, numbers(indices, folder, None)?);
    let shape = shape_of(&t.dims)?;
    let size = values.dtype().size_bytes();
    let given = values.bytes().len() + indices.bytes().len();
    let most = given.saturating_mul(DENSE.0).saturating_add(DENSE.1);
    if shape.elems().saturating_mul(size) > most {
        let text = format!(
            "a sparse tensor of shape {shape}: more than the {most} bytes that {given} of values and places may become"
        );
        return Err(wrong(text));
    }
    let (places, n) = (indices.to_vec::<i64>()?, values.elems());
    let flat = match indices.shape().dims() {
        [k] if *k == n => places,
        [k, rank] if *k == n && *rank == shape.rank() => {
            let at = |row: &[i64]| {
                row.iter().zip(shape.dims()).try_fold(0i64, |sum, (i, d)| {
                    let within = usize::try_from(*i).is_ok_and(|i| i < *d);
                    if within { Ok(sum * *d as i64 + i) } else { Err(wrong(format!("place {i} in an axis of {d}"))) }
                })
            };
            if shape.rank() == 0 { vec![0; n] } else { places.chunks(shape.rank()).map(at).collect::<Result<_>>()? }
        }
        _ => return Err(wrong(format!("indices of shape {} for {n} values", indices.shape()))),
    };
    let mut y = HostTensor::zeros(values.dtype(), shape)?;
    let elems = y.elems();
    let to = y.try_bytes_mut()?;
    for (at, from) in flat.iter().zip(values.bytes().chunks(size)) {
        let at = usize::try_from(*at).ok().filter(|at| *at < elems);
        let at = at.ok_or_else(|| wrong("a place outside the sparse tensor".into()))? * size;
        to[at..at + size].copy_from_slice(from);
    }
    Ok(y)
}
