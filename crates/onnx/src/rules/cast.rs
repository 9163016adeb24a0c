//! Element types.

use remat_import::{Cx, Narrow, Value, one};
use remat_tensor::Tensor;
use remat_types::{DType, Error, ErrorKind, HostTensor, Result};

use super::{Row, row};
use crate::tensor::{dtype_of, narrow_of};

pub(super) const ROWS: &[Row] = &[row("BitCast", 26, bit_cast), row("Cast", 1, cast), row("CastLike", 15, cast_like)];

/// Integers of less than a byte, in bytes: what is beyond them wraps.
fn narrowed(x: &Tensor, n: Narrow) -> Result<Tensor> {
    let whole = x.cast(DType::I64)?;
    whole.sub(n.least())?.rem(n.count())?.add(n.least())?.cast(n.dtype())
}

fn cast_like(c: &Cx<'_>) -> Result<Vec<Value>> {
    match c.narrow(1) {
        Some(n) => one(narrowed(c.x(0)?, n)?),
        None => one(c.x(0)?.cast(c.x(1)?.dtype())?),
    }
}

fn cast(c: &Cx<'_>) -> Result<Vec<Value>> {
    if let Ok(Some(n)) = c.opt_int("to").map(|to| to.and_then(narrow_of)) {
        return one(narrowed(c.x(0)?, n)?);
    }
    // before version 6 the type is a name
    let to = match c.version() < 6 && c.int("to", 0).is_err() {
        true => named(c.string("to", "")?).ok_or_else(|| c.missing("to"))?,
        false => dtype_of(i32::try_from(c.int_of("to")?).unwrap_or(-1)).map_err(|e| e.context("attribute `to`"))?,
    };
    if let Value::Text(t) = c.needed(0)? {
        let bad = |s: &String| Error::new(ErrorKind::Value, format!("`{s}` is no number"));
        let numbers = t.data.iter().map(|s| s.trim().parse::<f64>().map_err(|_| bad(s))).collect::<Result<Vec<_>>>()?;
        return Ok(vec![c.constant(&HostTensor::from_f64_slice(&numbers, to, t.shape.clone())?)?]);
    }
    let x = c.x(0)?;
    // what is beyond a small integer wraps, as integers do, rather than saturates
    let narrow = to.is_int() && to.size_bytes() < 4 && x.dtype().is_float();
    one(if narrow { x.cast(DType::I32)?.cast(to)? } else { x.cast(to)? })
}

fn named(name: &str) -> Option<DType> {
    Some(match name {
        "FLOAT" => DType::F32,
        "DOUBLE" => DType::F64,
        "FLOAT16" => DType::F16,
        "INT8" => DType::I8,
        "INT16" => DType::I16,
        "INT32" => DType::I32,
        "INT64" => DType::I64,
        "UINT8" => DType::U8,
        "UINT16" => DType::U16,
        "UINT32" => DType::U32,
        "UINT64" => DType::U64,
        "BOOL" => DType::Bool,
        _ => return None,
    })
}

/// The same bits as elements of another type of that size. There is no operator for it: the value goes by the host.
fn bit_cast(c: &Cx<'_>) -> Result<Vec<Value>> {
    let to = dtype_of(i32::try_from(c.int_of("to")?).unwrap_or(-1))?;
    let x = c.host(0)?;
    if to.size_bytes() != x.dtype().size_bytes() {
        let text = format!("elements of {} as {to}: their sizes differ", x.dtype());
        return Err(Error::new(ErrorKind::DType, text));
    }
    Ok(vec![c.constant(&HostTensor::from_bytes(to, x.shape().clone(), x.bytes())?)?])
}
