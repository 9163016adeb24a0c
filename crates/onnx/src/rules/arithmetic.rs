//! Element by element: arithmetic, comparisons, logic.

use std::sync::Arc;

use remat_import::{Cx, Value, one, shape_error, value_error};
use remat_tensor::Tensor;
use remat_types::{DType, HostTensor, Result, Shape};

use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row("Abs", 1, |c| c.unary(Tensor::abs)),
    row("Acos", 1, |c| c.unary(Tensor::acos)),
    row("Acosh", 1, |c| c.unary(Tensor::acosh)),
    row("Add", 1, |c| binary(c, Tensor::add)),
    row("And", 1, |c| binary(c, Tensor::logical_and)),
    row("Asin", 1, |c| c.unary(Tensor::asin)),
    row("Asinh", 1, |c| c.unary(Tensor::asinh)),
    row("Atan", 1, |c| c.unary(Tensor::atan)),
    row("Atanh", 1, |c| c.unary(Tensor::atanh)),
    row("BitShift", 11, bit_shift),
    row("BitwiseAnd", 18, |c| binary(c, Tensor::bit_and)),
    row("BitwiseNot", 18, |c| c.unary(Tensor::bit_not)),
    row("BitwiseOr", 18, |c| binary(c, Tensor::bit_or)),
    row("BitwiseXor", 18, |c| binary(c, Tensor::bit_xor)),
    row("Ceil", 1, |c| c.unary(Tensor::ceil)),
    row("Clip", 1, clip),
    row("Cos", 1, |c| c.unary(Tensor::cos)),
    row("Cosh", 1, |c| c.unary(Tensor::cosh)),
    row("Div", 1, |c| binary(c, Tensor::div)),
    row("Equal", 1, equal),
    row("Erf", 9, |c| c.unary(Tensor::erf)),
    row("Exp", 1, |c| c.unary(Tensor::exp)),
    row("Floor", 1, |c| c.unary(Tensor::floor)),
    row("Greater", 1, |c| binary(c, Tensor::gt)),
    row("GreaterOrEqual", 12, |c| binary(c, Tensor::ge)),
    row("IsInf", 10, is_inf),
    row("IsNaN", 9, |c| c.unary(Tensor::is_nan)),
    row("Less", 1, |c| binary(c, Tensor::lt)),
    row("LessOrEqual", 12, |c| binary(c, Tensor::le)),
    row("Log", 1, |c| c.unary(Tensor::log)),
    row("Max", 1, |c| fold(c, Tensor::maximum)),
    row("Mean", 1, mean),
    row("Min", 1, |c| fold(c, Tensor::minimum)),
    row("Mod", 10, modulo),
    row("Mul", 1, |c| binary(c, Tensor::mul)),
    row("Neg", 1, |c| c.unary(Tensor::neg)),
    row("Not", 1, |c| c.unary(Tensor::logical_not)),
    row("Or", 1, |c| binary(c, Tensor::logical_or)),
    row("Pow", 1, pow),
    row("Reciprocal", 1, |c| c.unary(Tensor::recip)),
    row("Round", 11, |c| c.unary(Tensor::round)),
    row("Sign", 9, |c| c.unary(Tensor::sign)),
    row("Sin", 1, |c| c.unary(Tensor::sin)),
    row("Sinh", 1, |c| c.unary(Tensor::sinh)),
    row("Sqrt", 1, |c| c.unary(Tensor::sqrt)),
    row("Sub", 1, |c| binary(c, Tensor::sub)),
    row("Sum", 1, |c| fold(c, Tensor::add)),
    row("Tan", 1, |c| c.unary(Tensor::tan)),
    row("Tanh", 1, |c| c.unary(Tensor::tanh)),
    row("Where", 9, |c| one(c.x(0)?.where_cond(c.x(1)?, c.x(2)?)?)),
    row("Xor", 1, |c| binary(c, Tensor::logical_xor)),
];

type Binary = fn(&Tensor, Tensor) -> Result<Tensor>;

/// Both operands. Before version 7 the second one is laid along the first by attributes.
pub(super) fn operands<'c>(c: &'c Cx<'_>) -> Result<(&'c Tensor, Tensor)> {
    let (a, b) = (c.x(0)?, c.x(1)?);
    let axis = if c.version() < 7 && c.flag("broadcast", false)? { c.opt_int("axis")? } else { None };
    let Some(axis) = axis else { return Ok((a, b.clone())) };
    let first = if axis < 0 { axis + a.rank() as i64 } else { axis };
    let behind = a.rank() as i64 - first - b.rank() as i64;
    if first < 0 || behind < 0 {
        return Err(shape_error(format!("shape {} laid along {} from axis {axis} on", b.shape(), a.shape())));
    }
    let shape: Vec<isize> = b.dims().iter().map(|d| *d as isize).chain((0..behind).map(|_| 1)).collect();
    Ok((a, b.reshape(&shape)?))
}

fn binary(c: &Cx<'_>, f: Binary) -> Result<Vec<Value>> {
    let (a, b) = operands(c)?;
    one(f(a, b)?)
}

/// A function of all inputs, two by two.
fn fold(c: &Cx<'_>, f: Binary) -> Result<Vec<Value>> {
    let all = c.all()?;
    let (first, rest) = all.split_first().ok_or_else(|| value_error("no inputs"))?;
    one(rest.iter().try_fold((*first).clone(), |y, x| f(&y, (*x).clone()))?)
}

fn mean(c: &Cx<'_>) -> Result<Vec<Value>> {
    let sum = fold(c, Tensor::add)?;
    one(sum[0].tensor()?.div(c.input_count() as f64)?)
}

fn bit_shift(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, mut by) = operands(c)?;
    if matches!(by.dtype(), DType::I8 | DType::I16 | DType::I32 | DType::I64) {
        // an amount below 0 leaves what one as large as the width does
        let width = Tensor::full(c.device(), Shape::scalar(), by.dtype(), 8 * by.dtype().size_bytes() as i64)?;
        by = by.lt(0)?.where_cond(&width, &by)?;
    }
    match c.string("direction", "")? {
        "LEFT" => one(x.shl(by)?),
        "RIGHT" => one(x.shr(by)?),
        other => Err(c.unknown("direction", other)),
    }
}

fn clip(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    if c.version() < 11 {
        let (lo, hi) = (c.opt_real("min")?, c.opt_real("max")?);
        let y = lo.map_or(Ok(x.clone()), |lo| x.maximum(lo))?;
        return one(hi.map_or(Ok(y.clone()), |hi| y.minimum(hi))?);
    }
    let bound = |i: usize| -> Result<Option<f64>> {
        match c.value(i).and_then(Value::known) {
            Some(v) if v.elems() == 1 => Ok(Some(v.to_f64_vec()[0])),
            _ => Ok(None),
        }
    };
    // one pass where both are numbers
    if let (true, Some(lo), Some(hi)) = (x.dtype().is_float(), bound(1)?, bound(2)?)
        && lo <= hi
    {
        return one(x.clamp(lo, hi)?);
    }
    let y = c.opt(1)?.map_or(Ok(x.clone()), |lo| x.maximum(&lo.reshape(&[])?))?;
    one(c.opt(2)?.map_or(Ok(y.clone()), |hi| y.minimum(&hi.reshape(&[])?))?)
}

fn equal(c: &Cx<'_>) -> Result<Vec<Value>> {
    if let Value::Text(a) = c.needed(0)? {
        let b = c.text(1)?;
        let shape = a.shape.broadcast(&b.shape)?;
        let (a, b) = (spread(a, &shape)?, spread(b, &shape)?);
        let same: Vec<bool> = a.iter().zip(&b).map(|(a, b)| a == b).collect();
        return Ok(vec![c.constant(&HostTensor::from_slice(&same, shape)?)?]);
    }
    binary(c, |a, b| if a.dtype() == DType::Bool { a.cast(DType::U8)?.eq(&b.cast(DType::U8)?) } else { a.eq(b) })
}

/// Strings under the shape that they broadcast to.
pub(super) fn spread(t: &remat_import::Text, shape: &Shape) -> Result<Vec<String>> {
    let layout = remat_types::Layout::contiguous(t.shape.clone()).broadcast_to(shape)?;
    let data: &Arc<Vec<String>> = &t.data;
    Ok(layout.indices().map(|i| data[i].clone()).collect())
}

fn is_inf(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    one(match (c.flag("detect_negative", true)?, c.flag("detect_positive", true)?) {
        (true, true) => x.is_inf()?,
        (false, true) => x.eq(f64::INFINITY)?,
        (true, false) => x.eq(f64::NEG_INFINITY)?,
        (false, false) => Tensor::zeros(c.device(), x.shape(), DType::Bool)?,
    })
}

fn modulo(c: &Cx<'_>) -> Result<Vec<Value>> {
    if c.flag("fmod", false)? { binary(c, Tensor::fmod) } else { binary(c, Tensor::rem) }
}

fn pow(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (a, b) = operands(c)?;
    let dtype = a.dtype();
    if dtype.is_float() {
        // a number as exponent has faster forms, a square among them
        return one(match c.value(1).and_then(Value::known) {
            Some(v) if v.elems() == 1 && b.rank() <= a.rank() => match v.to_f64_vec()[0] {
                2.0 => a.square()?,
                0.5 => a.sqrt()?,
                1.0 => a.clone(),
                p => a.pow(p)?,
            },
            _ => a.pow(&b.cast(dtype)?)?,
        });
    }
    if b.dtype().is_float() {
        return one(a.cast(DType::F64)?.pow(&b.cast(DType::F64)?)?.cast(dtype)?);
    }
    one(a.pow(&b.cast(dtype)?)?)
}
