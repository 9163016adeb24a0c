//! Normalisation.

use remat_import::{Cx, Value, axes, one, shape_error, size};
use remat_tensor::Tensor;
use remat_types::{DType, Result, Shape, axis_of};

use super::{Row, of, row};

pub(super) const ROWS: &[Row] = &[
    row("BatchNormalization", 1, batch_norm),
    row("GroupNormalization", 18, group_norm),
    row("InstanceNormalization", 1, instance_norm),
    row("LRN", 1, lrn),
    row("LayerNormalization", 1, layer_norm),
    row("LpNormalization", 1, lp_norm),
    row("MeanVarianceNormalization", 9, mean_variance_norm),
    row("RMSNormalization", 23, rms_norm),
    of("com.microsoft", "SkipLayerNormalization", 1, skip_layer_norm),
    of("com.microsoft", "SkipSimplifiedLayerNormalization", 1, skip_rms_norm),
    // exporters of transformers write it into the standard's domain
    row("SimplifiedLayerNormalization", 1, rms_norm),
];

fn batch_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, scale, bias, mean, var) = (c.x(0)?, c.x(1)?, c.x(2)?, c.x(3)?, c.x(4)?);
    let eps = c.real("epsilon", 1e-5)?;
    // before version 9 statistics may be of each place instead of each channel
    if c.int("spatial", 1)? != 1 {
        return Err(c.unknown("spatial", c.int("spatial", 1)?));
    }
    let training = c.version() >= 14 && c.flag("training_mode", false)?;
    if !training {
        // the parameters may be of another float than the input
        let like = |t: &Tensor| t.cast(if x.dtype() == DType::F64 { DType::F64 } else { scale.dtype() });
        let y = x.batch_norm_with(&like(scale)?, &like(bias)?, &like(mean)?, &like(var)?, eps)?;
        return one(y.cast(x.dtype())?);
    }
    let momentum = c.real("momentum", 0.9)?;
    let over: Vec<isize> = (0..x.rank() as isize).filter(|a| *a != 1).collect();
    let wide = if x.dtype() == DType::F64 { x.clone() } else { x.cast(DType::F32)? };
    let (batch_mean, batch_var) = (wide.mean_over(&over, false)?, wide.var_over(&over, false, 0)?);
    let y = x.batch_norm_with(scale, bias, &batch_mean.cast(mean.dtype())?, &batch_var.cast(var.dtype())?, eps)?;
    let mix = |old: &Tensor, new: &Tensor| old.mul(momentum)?.add(&new.cast(old.dtype())?.mul(1.0 - momentum)?);
    Ok(vec![y.into(), mix(mean, &batch_mean)?.into(), mix(var, &batch_var)?.into()])
}

/// A vector with a number for each channel, beside `[n, c, ..]`.
fn channels(t: &Tensor, rank: usize) -> Result<Tensor> {
    let shape: Vec<isize> = std::iter::once(-1).chain((2..rank).map(|_| 1)).collect();
    t.reshape(&shape)
}

fn group_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, scale, bias) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let groups = size(c.int_of("num_groups")?)?;
    let eps = c.real("epsilon", 1e-5)?;
    if c.version() >= 21 {
        return one(x.group_norm(groups, Some(scale), Some(bias), eps)?);
    }
    // a scale for each group
    let y = x.group_norm(groups, None, None, eps)?;
    let per = x.dims().get(1).copied().unwrap_or(0).checked_div(groups).unwrap_or(0);
    let spread = |t: &Tensor| channels(&t.repeat_interleave(per, 0)?, x.rank());
    one(y.mul(&spread(scale)?)?.add(&spread(bias)?)?)
}

fn instance_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    one(c.x(0)?.instance_norm(Some(c.x(1)?), Some(c.x(2)?), c.real("epsilon", 1e-5)?)?)
}

fn lrn(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let n = size(c.int_of("size")?)?;
    let (alpha, beta, k) = (c.real("alpha", 1e-4)?, c.real("beta", 0.75)?, c.real("bias", 1.0)?);
    if n % 2 == 1 {
        return one(x.local_response_norm(n, alpha, beta, k)?);
    }
    // of an even number of channels the odd one comes behind
    one(x.flip(&[1])?.local_response_norm(n, alpha, beta, k)?.flip(&[1])?)
}

/// The number of axes from `axis` on, and the shape of statistics over them.
fn inner(x: &Tensor, axis: isize) -> Result<(usize, Vec<isize>)> {
    let at = axis_of(axis, x.rank())?;
    Ok((x.rank() - at, (at as isize..x.rank() as isize).collect()))
}

/// A scale with the extents of the normalised axes.
fn whole(t: &Tensor, x: &Tensor, axes: usize) -> Result<Tensor> {
    let shape = Shape::from(x.dims()[x.rank() - axes..].to_vec());
    if *t.shape() == shape { Ok(t.clone()) } else { t.broadcast_to(shape) }
}

fn layer_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, scale) = (c.x(0)?, c.x(1)?);
    let (n, over) = inner(x, c.axis("axis", -1)?)?;
    let eps = c.real("epsilon", 1e-5)?;
    let scale = whole(scale, x, n)?;
    let bias = match c.opt(2)? {
        Some(b) => whole(b, x, n)?,
        None => scale.zeros_like()?,
    };
    let mut y = vec![Value::Tensor(x.layer_norm(&scale, &bias, n, eps)?)];
    if c.wants(1) || c.wants(2) {
        // statistics are kept in f32
        let wide = if x.dtype() == DType::F64 { x.clone() } else { x.cast(DType::F32)? };
        y.push(wide.mean_over(&over, true)?.into());
        y.push(wide.var_over(&over, true, 0)?.add(eps)?.rsqrt()?.into());
    }
    Ok(y)
}

fn rms_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, scale) = (c.x(0)?, c.x(1)?);
    let (n, over) = inner(x, c.axis("axis", -1)?)?;
    let eps = c.real("epsilon", 1e-5)?;
    let mut y = vec![Value::Tensor(x.rms_norm(&whole(scale, x, n)?, n, eps)?)];
    if c.wants(1) {
        let wide = if x.dtype() == DType::F64 { x.clone() } else { x.cast(DType::F32)? };
        y.push(wide.square()?.mean_over(&over, true)?.add(eps)?.rsqrt()?.into());
    }
    Ok(y)
}

fn skip_layer_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let mut x = c.x(0)?.add(c.x(1)?)?;
    if let Some(b) = c.opt(4)? {
        x = x.add(b)?;
    }
    let gamma = c.x(2)?;
    let beta = match c.opt(3)? {
        Some(b) => b.clone(),
        None => gamma.zeros_like()?,
    };
    let y = x.layer_norm(gamma, &beta, 1, c.real("epsilon", 1e-12)?)?;
    with_sum(c, y, x, 3)
}

fn skip_rms_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let mut x = c.x(0)?.add(c.x(1)?)?;
    if let Some(b) = c.opt(3)? {
        x = x.add(b)?;
    }
    let y = x.rms_norm(c.x(2)?, 1, c.real("epsilon", 1e-5)?)?;
    with_sum(c, y, x, 3)
}

/// The result, and the normalised tensor as output `at`. No inference reads the statistics in between.
fn with_sum(c: &Cx<'_>, y: Tensor, sum: Tensor, at: usize) -> Result<Vec<Value>> {
    if (1..at).any(|i| c.wants(i)) {
        return Err(shape_error("the mean and the variance are not given"));
    }
    let mut all = vec![Value::Tensor(y)];
    all.resize(at, Value::Optional(None));
    all.push(sum.into());
    Ok(all)
}

fn lp_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, axis) = (c.x(0)?, c.axis("axis", -1)?);
    let norm = match c.int("p", 2)? {
        1 => x.abs()?.sum_over(&[axis], true)?,
        2 => x.norm_over(&[axis], true)?,
        p => return Err(c.unknown("p", p)),
    };
    // nothing over nothing is 0
    let one_where_zero = norm.eq(0.0)?.where_cond(&norm.ones_like()?, &norm)?;
    one(x.div(&one_where_zero)?)
}

fn mean_variance_norm(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let over = axes(c.ints("axes")?.unwrap_or(&[0, 2, 3]));
    let centred = x.sub(&x.mean_over(&over, true)?)?;
    let deviation = centred.square()?.mean_over(&over, true)?.sqrt()?;
    // the standard's own function has this number
    one(centred.div(&deviation.add(1e-9)?)?)
}
