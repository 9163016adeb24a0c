//! Integers that stand for numbers: `x = scale (q - zero)`.

use remat_import::{Cx, Value, one, shape_error, size};
use remat_tensor::Tensor;
use remat_types::{DType, Result, axis_of};

use super::conv::{conv_of_integers, spatial};
use super::{Row, of, row};
use crate::tensor::{dtype_of, narrow_of};

pub(super) const ROWS: &[Row] = &[
    row("ConvInteger", 10, |c| one(conv_of_integers(c, (c.x(0)?, c.opt(2)?), (c.x(1)?, c.opt(3)?))?.cast(DType::I32)?)),
    row("DequantizeLinear", 10, dequantize),
    row("DynamicQuantizeLinear", 11, |c| {
        let (q, scale, zero) = dynamic(c.x(0)?)?;
        Ok(vec![q.into(), scale.into(), zero.into()])
    }),
    row("MatMulInteger", 10, |c| one(matmul(c.x(0)?, c.opt(2)?, c.x(1)?, c.opt(3)?)?)),
    row("QLinearConv", 10, qlinear_conv),
    row("QLinearMatMul", 10, qlinear_matmul),
    row("QuantizeLinear", 10, quantize),
    of("com.microsoft", "DequantizeLinear", 1, dequantize),
    of("com.microsoft", "DynamicQuantizeMatMul", 1, dynamic_matmul),
    of("com.microsoft", "MatMulIntegerToFloat", 1, |c| {
        let y = matmul(c.x(0)?, c.opt(4)?, c.x(1)?, c.opt(5)?)?.cast(DType::F32)?;
        let y = y.mul(&c.x(2)?.mul(c.x(3)?)?)?;
        one(c.opt(6)?.map_or(Ok(y.clone()), |b| y.add(b))?)
    }),
    of("com.microsoft", "QLinearAdd", 1, |c| qlinear_binary(c, Tensor::add)),
    of("com.microsoft", "QLinearMul", 1, |c| qlinear_binary(c, Tensor::mul)),
    of("com.microsoft", "QuantizeLinear", 1, quantize),
];

/// Scales or zero points beside `x`: one for all, one for each place of an axis, or one for each block along it.
fn beside(c: &Cx<'_>, t: &Tensor, x: &Tensor) -> Result<Tensor> {
    let (axis, block) = (c.axis("axis", 1)?, size(c.int("block_size", 0)?)?);
    if t.elems() == 1 && block == 0 {
        return t.reshape(&[]);
    }
    let axis = axis_of(axis, x.rank())?;
    if block == 0 {
        let mut shape = vec![1isize; x.rank()];
        shape[axis] = -1;
        return t.reshape(&shape);
    }
    if t.rank() != x.rank() {
        return Err(shape_error(format!("scales of shape {} for blocks of {}", t.shape(), x.shape())));
    }
    t.repeat_interleave(block, axis as isize)?.narrow(axis as isize, 0, x.dims()[axis])
}

/// `y` rounded to even, moved by a zero point and saturated.
fn rounded(y: &Tensor, zero: Option<&Tensor>, to: DType) -> Result<Tensor> {
    let y = y.round()?;
    match zero {
        Some(z) => y.add(&z.cast(y.dtype())?)?.cast(to),
        None => y.cast(to),
    }
}

/// Half precision is widened: quotients there are too coarse for the integers.
fn wide(t: &Tensor) -> Result<Tensor> {
    if t.dtype() == DType::F64 { Ok(t.clone()) } else { t.cast(DType::F32) }
}

fn quantize(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, scale) = (c.x(0)?, c.x(1)?);
    let narrow = c.narrow(2).or(c.opt_int("output_dtype")?.and_then(narrow_of));
    let to = match (c.opt(2)?, c.int("output_dtype", 0)?) {
        _ if narrow.is_some() => DType::I32,
        (Some(z), _) => z.dtype(),
        (None, 0) => DType::U8,
        (None, dtype) => dtype_of(i32::try_from(dtype).unwrap_or(-1))?,
    };
    let zero = c.opt(2)?.map(|z| beside(c, z, x)).transpose()?;
    let y = wide(x)?.div(&wide(&beside(c, scale, x)?)?)?;
    let y = rounded(&y, zero.as_ref(), to)?;
    one(match narrow {
        Some(n) => y.clamp(n.least(), n.least() + n.count() - 1)?.cast(n.dtype())?,
        None => y,
    })
}

fn dequantize(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, scale) = (c.x(0)?, c.x(1)?);
    let dtype = match c.int("output_dtype", 0)? {
        0 => scale.dtype(),
        dtype => dtype_of(i32::try_from(dtype).unwrap_or(-1))?,
    };
    let whole = match c.opt(2)? {
        Some(z) => x.cast(DType::I32)?.sub(&beside(c, z, x)?.cast(DType::I32)?)?,
        None => x.clone(),
    };
    one(whole.cast(DType::F32)?.mul(&beside(c, scale, x)?.cast(DType::F32)?)?.cast(dtype)?)
}

/// `x` as u8, its scale and its zero point, from its least and largest element and 0.
fn dynamic(x: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (low, high) = (x.min()?.minimum(0.0)?, x.max()?.maximum(0.0)?);
    let scale = high.sub(&low)?.div(255.0)?;
    // of zeros alone any scale is right but 0, by which what dequantises divides; ONNX Runtime has 1
    let scale = scale.eq(0.0)?.where_cond(&scale.ones_like()?, &scale)?;
    let zero = low.neg()?.div(&scale)?.round()?.clamp(0.0, 255.0)?.cast(DType::U8)?;
    Ok((rounded(&x.div(&scale)?, Some(&zero), DType::U8)?, scale, zero))
}

/// The product of integers, each less its zero point: one for all, for each row of `a`, or for each column of `b`.
fn matmul(a: &Tensor, a_zero: Option<&Tensor>, b: &Tensor, b_zero: Option<&Tensor>) -> Result<Tensor> {
    let less = |t: &Tensor, zero: Option<&Tensor>, rows: bool| -> Result<Tensor> {
        let wide = t.cast(DType::I16)?;
        let Some(z) = zero else { return Ok(wide) };
        let z = z.cast(DType::I16)?;
        let z = match (z.elems(), rows && z.rank() == 1) {
            (1, _) => z.reshape(&[])?,
            (_, true) => z.unsqueeze(1)?,
            _ => z,
        };
        wide.sub(&z)
    };
    if a_zero.is_none() && b_zero.is_none() && a.dtype() == b.dtype() {
        return a.matmul_wide(b);
    }
    less(a, a_zero, true)?.matmul_wide(&less(b, b_zero, false)?)
}

fn qlinear_matmul(c: &Cx<'_>) -> Result<Vec<Value>> {
    let product = matmul(c.x(0)?, c.opt(2)?, c.x(3)?, c.opt(5)?)?;
    let (a, b, y) = (wide(c.x(1)?)?, wide(c.x(4)?)?, wide(c.x(6)?)?);
    let a = if a.rank() == 1 && a.elems() > 1 { a.unsqueeze(1)? } else { a };
    let scale = a.mul(&b)?.div(&y)?;
    let scale = if scale.elems() == 1 { scale.reshape(&[])? } else { scale };
    let zero = c.x(7)?;
    one(rounded(&product.cast(DType::F32)?.mul(&scale)?, Some(&single(zero)?), zero.dtype())?)
}

/// A vector of one as a number.
fn single(t: &Tensor) -> Result<Tensor> {
    if t.elems() == 1 { t.reshape(&[]) } else { Ok(t.clone()) }
}

fn qlinear_conv(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, w) = (c.x(0)?, c.x(3)?);
    let d = spatial(x)?.len();
    let per_channel = |t: &Tensor| -> Result<Tensor> {
        if t.elems() == 1 {
            return t.reshape(&[]);
        }
        let shape: Vec<isize> = std::iter::once(-1).chain((0..d).map(|_| 1)).collect();
        t.reshape(&shape)
    };
    let mut y = conv_of_integers(c, (x, c.opt(2)?), (w, c.opt(5)?))?;
    if let Some(bias) = c.opt(8)? {
        y = y.add(&per_channel(bias)?.cast(y.dtype())?)?;
    }
    let scale = single(c.x(1)?)?.mul(&per_channel(c.x(4)?)?)?.div(&single(c.x(6)?)?)?;
    let zero = c.x(7)?;
    one(rounded(&y.mul(&scale.cast(y.dtype())?)?, Some(&single(zero)?), zero.dtype())?)
}

fn dynamic_matmul(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (q, scale, zero) = dynamic(c.x(0)?)?;
    let y = matmul(&q, Some(&zero), c.x(1)?, c.opt(3)?)?.cast(DType::F32)?;
    let y = y.mul(&scale.mul(c.x(2)?)?)?;
    one(c.opt(4)?.map_or(Ok(y.clone()), |b| y.add(b))?)
}

fn qlinear_binary(c: &Cx<'_>, f: fn(&Tensor, Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
    let real = |q: usize| -> Result<Tensor> {
        let whole = c.x(q)?.cast(DType::F32)?;
        let whole = match c.opt(q + 2)? {
            Some(z) => whole.sub(&single(z)?.cast(DType::F32)?)?,
            None => whole,
        };
        whole.mul(&single(c.x(q + 1)?)?)
    };
    let y = f(&real(0)?, real(3)?)?.div(&single(c.x(6)?)?)?;
    let zero = c.opt(7)?.map(single).transpose()?;
    one(rounded(&y, zero.as_ref(), c.x(0)?.dtype())?)
}
