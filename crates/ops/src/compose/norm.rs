//! Normalisation and softmax written with other ops: for gradients that are not worth a kernel.

use remat_types::{Result, Shape, SmallVec, smallvec};

use super::{Arith, narrowed, widened};
use crate::Apply;
use crate::pointwise::UnaryFn;

/// A tensor normalised over some axes.
struct Normal<V> {
    /// Mean, biased variance and `1 / sqrt(variance + eps)`; the axes have extent 1.
    mean: V,
    var: V,
    inv_sd: V,
    /// `(x - mean) inv_sd`.
    hat: V,
}

impl<V: Clone> Normal<V> {
    fn of<A: Apply<Value = V>>(cx: &A, x: V, axes: &[usize], eps: f64) -> Result<Normal<V>> {
        let c = Arith(cx);
        let per = 1.0 / count(&cx.fact(&x).shape, axes) as f64;
        let mean = c.scale(c.sum_over(x.clone(), axes)?, per)?;
        let d = c.sub(x, mean.clone())?;
        let var = c.scale(c.sum_over(c.square(d.clone())?, axes)?, per)?;
        let inv_sd = c.un(UnaryFn::Rsqrt, c.offset(var.clone(), eps)?)?;
        Ok(Normal { mean, var, inv_sd: inv_sd.clone(), hat: c.mul(d, inv_sd)? })
    }
}

/// Elements that a mean over `axes` takes together.
fn count(shape: &Shape, axes: &[usize]) -> usize {
    axes.iter().map(|&a| shape[a]).product()
}

/// All axes but the channels'.
fn batch_axes(rank: usize) -> SmallVec<[usize; 4]> {
    (0..rank).filter(|&a| a != 1).collect()
}

/// A tensor `[c]`, widened and shaped so that it broadcasts over `x`.
fn per_channel<A: Apply>(cx: &A, v: &A::Value, x: &A::Value) -> Result<A::Value> {
    let mut shape = Shape::from(vec![1; cx.fact(x).rank()]);
    shape.dims_mut()[1] = cx.fact(x).shape[1];
    Arith(cx).reshape(widened(cx, v.clone())?, &shape)
}

/// `(y, mean, var)` of `(x, scale, bias)`.
pub(crate) fn batch_norm<A: Apply>(cx: &A, x: &[A::Value], eps: f64) -> Result<SmallVec<[A::Value; 2]>> {
    let c = Arith(cx);
    let wide = widened(cx, x[0].clone())?;
    let n = Normal::of(cx, wide.clone(), &batch_axes(cx.fact(&wide).rank()), eps)?;
    let (scale, bias) = (per_channel(cx, &x[1], &wide)?, per_channel(cx, &x[2], &wide)?);
    let y = c.add(c.mul(n.hat, scale)?, bias)?;
    let channels = cx.fact(&x[1]).shape;
    Ok(smallvec![narrowed(cx, y, &x[0])?, c.reshape(n.mean, &channels)?, c.reshape(n.var, &channels)?])
}

/// `(dx, dscale, dbias)` of `(x, scale, mean, var, dy)`.
pub(crate) fn batch_norm_gradients<A: Apply>(cx: &A, x: &[A::Value], eps: f64) -> Result<SmallVec<[A::Value; 2]>> {
    let c = Arith(cx);
    let (wide, dy) = (widened(cx, x[0].clone())?, widened(cx, x[4].clone())?);
    let axes = batch_axes(cx.fact(&wide).rank());
    let n = Normal::of(cx, wide.clone(), &axes, eps)?;
    let per = 1.0 / count(&cx.fact(&wide).shape, &axes) as f64;
    let (dbias, dscale) = (c.sum_over(dy.clone(), &axes)?, c.sum_over(c.mul(dy.clone(), n.hat.clone())?, &axes)?);
    let centred = c.sub(c.sub(dy, c.scale(dbias.clone(), per)?)?, c.mul(n.hat, c.scale(dscale.clone(), per)?)?)?;
    let dx = c.mul(centred, c.mul(per_channel(cx, &x[1], &wide)?, n.inv_sd)?)?;
    let channels = cx.fact(&x[1]).shape;
    let flat = |v| narrowed(cx, c.reshape(v, &channels)?, &x[1]);
    Ok(smallvec![narrowed(cx, dx, &x[0])?, flat(dscale)?, flat(dbias)?])
}

/// `y` of `(x, scale, bias, mean, var)`.
pub(crate) fn batch_norm_infer<A: Apply>(cx: &A, x: &[A::Value], eps: f64) -> Result<SmallVec<[A::Value; 2]>> {
    let c = Arith(cx);
    let wide = widened(cx, x[0].clone())?;
    let at = |v| per_channel(cx, v, &wide);
    let inv_sd = c.un(UnaryFn::Rsqrt, c.offset(at(&x[4])?, eps)?)?;
    let hat = c.mul(c.sub(wide.clone(), at(&x[3])?)?, inv_sd)?;
    let y = c.add(c.mul(hat, at(&x[1])?)?, at(&x[2])?)?;
    Ok(smallvec![narrowed(cx, y, &x[0])?])
}

/// `(dx, dscale, dbias)` of `(x, scale, dy)`, normalised over the last `axes` axes.
pub(crate) fn layer_norm_gradients<A: Apply>(
    cx: &A,
    x: &[A::Value],
    axes: usize,
    eps: f64,
) -> Result<SmallVec<[A::Value; 2]>> {
    let c = Arith(cx);
    let (wide, scale, dy) = (widened(cx, x[0].clone())?, widened(cx, x[1].clone())?, widened(cx, x[2].clone())?);
    let (shape, rank) = (cx.fact(&wide).shape, cx.fact(&wide).rank());
    let axes: SmallVec<[usize; 4]> = (rank - axes..rank).collect();
    let n = Normal::of(cx, wide, &axes, eps)?;
    let mean = |v| c.scale(c.sum_over(v, &axes)?, 1.0 / count(&shape, &axes) as f64);
    let g = c.mul(dy.clone(), scale)?;
    let centred = c.sub(c.sub(g.clone(), mean(g.clone())?)?, c.mul(n.hat.clone(), mean(c.mul(g, n.hat.clone())?)?)?)?;
    let dx = c.mul(centred, n.inv_sd)?;
    let row = cx.fact(&x[1]).shape;
    let flat = |v| narrowed(cx, c.sum_to(v, &row)?, &x[1]);
    Ok(smallvec![narrowed(cx, dx, &x[0])?, flat(c.mul(dy.clone(), n.hat)?)?, flat(dy)?])
}

/// `(dx, dscale)` of `(x, scale, dy)`, over the root of the mean square of the last `axes` axes.
pub(crate) fn rms_norm_gradients<A: Apply>(
    cx: &A,
    x: &[A::Value],
    axes: usize,
    eps: f64,
) -> Result<SmallVec<[A::Value; 2]>> {
    let c = Arith(cx);
    let (wide, scale, dy) = (widened(cx, x[0].clone())?, widened(cx, x[1].clone())?, widened(cx, x[2].clone())?);
    let (shape, rank) = (cx.fact(&wide).shape, cx.fact(&wide).rank());
    let axes: SmallVec<[usize; 4]> = (rank - axes..rank).collect();
    let mean = |v| c.scale(c.sum_over(v, &axes)?, 1.0 / count(&shape, &axes) as f64);
    let inverse = c.un(UnaryFn::Rsqrt, c.offset(mean(c.square(wide.clone())?)?, eps)?)?;
    let hat = c.mul(wide, inverse.clone())?;
    let g = c.mul(dy.clone(), scale)?;
    let dx = c.mul(c.sub(g.clone(), c.mul(hat.clone(), mean(c.mul(g, hat.clone())?)?)?)?, inverse)?;
    let dscale = c.sum_to(c.mul(dy, hat)?, &cx.fact(&x[1]).shape)?;
    Ok(smallvec![narrowed(cx, dx, &x[0])?, narrowed(cx, dscale, &x[1])?])
}

/// The gradient of softmax along `axis`, or of its logarithm, from its result `y` and `dy`.
pub(crate) fn softmax_gradient<A: Apply>(
    cx: &A,
    y: &A::Value,
    dy: &A::Value,
    axis: usize,
    log: bool,
) -> Result<A::Value> {
    let (c, y, dy) = (Arith(cx), y.clone(), dy.clone());
    match log {
        true => c.sub(dy.clone(), c.mul(c.un(UnaryFn::Exp, y)?, c.sum_over(dy, &[axis])?)?),
        false => c.mul(y.clone(), c.sub(dy.clone(), c.sum_over(c.mul(dy, y)?, &[axis])?)?),
    }
}
