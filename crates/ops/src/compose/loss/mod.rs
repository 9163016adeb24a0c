//! Losses: a function of each element or example, then its reduction.
//!
//! Where classes or elements have weights, the formulas and the divisor of a mean are PyTorch's.

mod binary;
mod classes;
mod contrast;
mod ctc;
mod distance;
mod likelihood;
mod margin;

pub use binary::{bce, bce_with_logits, dice, sigmoid_focal, weighted_bce_with_logits};
pub use classes::{nll, soft_cross_entropy, weighted_cross_entropy, weighted_nll};
pub use contrast::{info_nce, nt_xent};
pub use ctc::ctc_loss;
pub use distance::{cosine_similarity, pairwise_distance};
pub use likelihood::{gaussian_nll, kl_div, kl_div_batch_mean, poisson_nll};
pub use margin::{
    cosine_embedding, hinge_embedding, margin_ranking, multi_margin, multilabel_margin, multilabel_soft_margin,
    soft_margin, triplet_margin,
};

use remat_types::{DType, Error, ErrorKind, Result, Scalar, Shape};

use super::{Arith, shaped};
use crate::Apply;
use crate::loss::Reduction;
use crate::pointwise::{BinaryFn, Compare, CompareFn, UnaryFn};
use crate::reduce::{Reduce, ReduceFn};

/// All of `each`, or its sum or mean.
#[track_caller]
pub fn reduced<A: Apply>(cx: &A, each: A::Value, reduction: Reduction) -> Result<A::Value> {
    let f = match reduction {
        Reduction::None => return Ok(each),
        Reduction::Sum => ReduceFn::Sum,
        Reduction::Mean => ReduceFn::Mean,
    };
    let axes = (0..cx.fact(&each).rank()).collect();
    cx.apply1(Reduce { f, axes, keepdims: false }, [each])
}

/// As [`reduced`] of `each` times `factor`: the factor of a sum or mean is applied to that.
#[track_caller]
fn reduced_times<A: Apply>(cx: &A, each: A::Value, factor: f64, reduction: Reduction) -> Result<A::Value> {
    let y = reduced(cx, each, reduction)?;
    if factor == 1.0 { Ok(y) } else { Arith(cx).scale(y, factor) }
}

/// `f` over one axis, which goes.
#[track_caller]
fn over<A: Apply>(cx: &A, f: ReduceFn, x: A::Value, axis: usize) -> Result<A::Value> {
    cx.apply1(Reduce { f, axes: [axis].into_iter().collect(), keepdims: false }, [x])
}

/// Errors (Shape, DType) unless both are of one shape and dtype.
fn same<A: Apply>(cx: &A, x: &A::Value, y: &A::Value) -> Result<()> {
    let (x, y) = (cx.fact(x), cx.fact(y));
    if x.shape != y.shape {
        let text = format!("the prediction has shape {}, the target {}", x.shape, y.shape);
        return Err(Error::new(ErrorKind::Shape, text));
    }
    if x.dtype != y.dtype {
        let text = format!("the prediction is {}, the target {}; cast the target", x.dtype, y.dtype);
        return Err(Error::new(ErrorKind::DType, text));
    }
    Ok(())
}

/// Errors (Axis) unless `x` has at least `rank` axes; `what` it lacks else.
fn at_least<A: Apply>(cx: &A, x: &A::Value, rank: usize, what: &str) -> Result<()> {
    let shape = cx.fact(x).shape;
    if shape.rank() < rank {
        return Err(Error::new(ErrorKind::Axis, format!("x has shape {shape}: no axis of {what}")));
    }
    Ok(())
}

/// Errors (Shape) unless `v` has exactly `shape`.
fn has_shape<A: Apply>(cx: &A, v: &A::Value, shape: &[usize], what: &str) -> Result<()> {
    let own = cx.fact(v).shape;
    if own.dims() != shape {
        return Err(Error::new(ErrorKind::Shape, format!("the {what} has shape {own}, not {shape:?}")));
    }
    Ok(())
}

/// Errors (DType) unless `v` is of the dtype of `x`.
fn has_dtype_of<A: Apply>(cx: &A, v: &A::Value, x: &A::Value, what: &str) -> Result<()> {
    let (own, want) = (cx.fact(v).dtype, cx.fact(x).dtype);
    if own != want {
        return Err(Error::new(ErrorKind::DType, format!("the {what} is {own}, the prediction {want}; cast it")));
    }
    Ok(())
}

/// Errors (Value) unless `ok`.
fn demand(ok: bool, what: &str, v: f64, must: &str) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::new(ErrorKind::Value, format!("{what} is {v}, must be {must}"))) }
}

/// Errors (DType) unless `x` is of floats.
fn of_floats<A: Apply>(cx: &A, x: &A::Value) -> Result<()> {
    let dtype = cx.fact(x).dtype;
    if !dtype.is_float() {
        return Err(Error::new(ErrorKind::DType, format!("is not defined for {dtype}")));
    }
    Ok(())
}

/// `x f v`, of a whole number that the dtype of `x` has.
#[track_caller]
fn compared<A: Apply>(cx: &A, x: A::Value, f: CompareFn, v: i64) -> Result<A::Value> {
    let dtype = cx.fact(&x).dtype;
    let v = if dtype == DType::Bool { Scalar::Bool(v == 1) } else { Scalar::Int(v) };
    let v = cx.scalar(dtype, v)?;
    cx.apply1(Compare { f }, [x, v])
}

/// `max(x, 0)`.
#[track_caller]
fn relu<A: Apply>(cx: &A, x: A::Value) -> Result<A::Value> {
    Arith(cx).un(UnaryFn::Relu, x)
}

/// `max(x, v)`.
#[track_caller]
fn at_least_number<A: Apply>(cx: &A, x: A::Value, v: f64) -> Result<A::Value> {
    let v = Arith(cx).number(v, &x)?;
    Arith(cx).bin(BinaryFn::Max, x, v)
}

/// `1 - x`.
#[track_caller]
fn one_minus<A: Apply>(cx: &A, x: A::Value) -> Result<A::Value> {
    let one = Arith(cx).constant(1.0, &x)?;
    Arith(cx).sub(one, x)
}

/// The shape of `x` without an axis.
fn without(shape: &Shape, axis: usize) -> Shape {
    shape.iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, d)| *d).collect()
}

/// `[c]` as `[1, c, 1, ..]` beside an `x` of `rank` axes.
#[track_caller]
fn beside_classes<A: Apply>(cx: &A, weight: A::Value, rank: usize) -> Result<A::Value> {
    let mut shape = vec![1; rank];
    shape[1] = cx.fact(&weight).elems();
    shaped(cx, weight, shape)
}

/// `(x - y)^2`. Errors: Shape, DType.
#[track_caller]
pub fn mse<A: Apply>(cx: &A, x: A::Value, y: A::Value, reduction: Reduction) -> Result<A::Value> {
    same(cx, &x, &y)?;
    let d = Arith(cx).sub(x, y)?;
    reduced(cx, Arith(cx).square(d)?, reduction)
}

/// `|x - y|`. Errors: Shape, DType.
#[track_caller]
pub fn l1<A: Apply>(cx: &A, x: A::Value, y: A::Value, reduction: Reduction) -> Result<A::Value> {
    same(cx, &x, &y)?;
    let d = Arith(cx).sub(x, y)?;
    reduced(cx, Arith(cx).un(UnaryFn::Abs, d)?, reduction)
}

/// `d^2 / 2` where `|d| <= delta`, else `delta (|d| - delta / 2)`, of `d = x - y` (Huber, 1964). Errors: Shape, DType; Value
/// for a `delta` that is not above 0.
#[track_caller]
pub fn huber<A: Apply>(cx: &A, x: A::Value, y: A::Value, delta: f64, reduction: Reduction) -> Result<A::Value> {
    demand(delta > 0.0 && delta.is_finite(), "delta", delta, "finite and above 0")?;
    huber_times(cx, x, y, delta, 1.0, reduction)
}

/// `d^2 / (2 beta)` where `|d| < beta`, else `|d| - beta / 2`, of `d = x - y` (Girshick, ICCV 2015); `|d|` for a `beta` of 0.
/// Errors: Shape, DType; Value for a negative `beta`.
#[track_caller]
pub fn smooth_l1<A: Apply>(cx: &A, x: A::Value, y: A::Value, beta: f64, reduction: Reduction) -> Result<A::Value> {
    demand(beta >= 0.0 && beta.is_finite(), "beta", beta, "finite and not negative")?;
    if beta == 0.0 { l1(cx, x, y, reduction) } else { huber_times(cx, x, y, beta, 1.0 / beta, reduction) }
}

#[track_caller]
fn huber_times<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    delta: f64,
    factor: f64,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x, &y)?;
    let d = Arith(cx).sub(x, y)?;
    let delta = Arith(cx).number(delta, &d)?;
    reduced_times(cx, Arith(cx).bin(BinaryFn::Huber, d, delta)?, factor, reduction)
}
