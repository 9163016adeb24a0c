//! Distances and angles of vectors.

use remat_types::{Result, Shape};

use super::{at_least_number, demand, over};
use crate::Apply;
use crate::compose::{Arith, cast, widened};
use crate::pointwise::{BinaryFn, Compare, CompareFn, UnaryFn, Where};
use crate::reduce::{Reduce, ReduceFn};

/// The `p`-norm over one axis, in the dtype of `x`. Errors: Value for a `p` that is not above 0.
#[track_caller]
pub(crate) fn p_norm<A: Apply>(cx: &A, x: A::Value, p: f64, axis: usize, keepdims: bool) -> Result<A::Value> {
    demand(p > 0.0, "p", p, "above 0")?;
    let (a, dtype) = (Arith(cx), cx.fact(&x).dtype);
    let reduce = |f, v| cx.apply1(Reduce { f, axes: [axis].into_iter().collect(), keepdims }, [v]);
    let y = if p == 2.0 {
        reduce(ReduceFn::Norm, x)?
    } else if p == 1.0 {
        reduce(ReduceFn::Sum, a.un(UnaryFn::Abs, x)?)?
    } else if p == f64::INFINITY {
        reduce(ReduceFn::Max, a.un(UnaryFn::Abs, x)?)?
    } else {
        any_p_norm(cx, widened(cx, x)?, p, axis, keepdims)?
    };
    cast(cx, y, dtype)
}

/// The norm of any `p`, of sizes relative to the largest, so that no power overflows. Its derivative where all are 0 is 0.
#[track_caller]
fn any_p_norm<A: Apply>(cx: &A, x: A::Value, p: f64, axis: usize, keepdims: bool) -> Result<A::Value> {
    let a = Arith(cx);
    let keep = |f, v| cx.apply1(Reduce { f, axes: [axis].into_iter().collect(), keepdims: true }, [v]);
    let is = |f, v: &A::Value, number: f64| cx.apply1(Compare { f }, [v.clone(), a.number(number, v)?]);
    let one_where = |no: A::Value, v: A::Value| cx.apply1(Where, [no, a.constant(1.0, &v)?, v]);
    let power = |v: A::Value, p: f64| a.bin(BinaryFn::Pow, v.clone(), a.number(p, &v)?);
    let size = a.un(UnaryFn::Abs, x)?;
    let shape = cx.fact(&size).shape;
    let most = if shape[axis] == 0 { a.constant(1.0, &size)? } else { keep(ReduceFn::Max, size.clone())? };
    let most = one_where(is(CompareFn::Eq, &most, 0.0)?, most)?;
    let most = one_where(is(CompareFn::Eq, &most, f64::INFINITY)?, most)?;
    let share = a.div(size, most.clone())?;
    let zero = is(CompareFn::Eq, &share, 0.0)?;
    let powers = a.drop_where(zero.clone(), power(one_where(zero, share)?, p)?)?;
    let sum = keep(ReduceFn::Sum, powers)?;
    let none = is(CompareFn::Eq, &sum, 0.0)?;
    let root = a.drop_where(none.clone(), power(one_where(none, sum)?, 1.0 / p)?)?;
    let y = a.mul(root, most)?;
    if keepdims {
        return Ok(y);
    }
    let left: Shape = shape.iter().enumerate().filter(|(k, _)| *k != axis).map(|(_, d)| *d).collect();
    a.reshape(y, &left)
}

/// The `p`-norm of `x - y + eps` over the last axis, of shapes that broadcast. Errors: Axis, Shape, DType; Value for a `p`
/// that is not above 0.
#[track_caller]
pub fn pairwise_distance<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    p: f64,
    eps: f64,
    keepdims: bool,
) -> Result<A::Value> {
    let d = Arith(cx).offset(Arith(cx).sub(x, y)?, eps)?;
    let axis = remat_types::axis_of(-1, cx.fact(&d).rank())?;
    p_norm(cx, d, p, axis, keepdims)
}

/// `x y / (max(|x|, eps) max(|y|, eps))` over one axis, of shapes that broadcast. Vectors are divided by their lengths before they are
/// multiplied, and 16-bit floats in f32, so that nothing overflows where the result fits. Errors: Shape, DType.
#[track_caller]
pub fn cosine_similarity<A: Apply>(cx: &A, x: A::Value, y: A::Value, axis: usize, eps: f64) -> Result<A::Value> {
    let (a, dtype) = (Arith(cx), cx.fact(&x).dtype);
    let shape = cx.fact(&x).shape.broadcast(&cx.fact(&y).shape)?;
    let unit = |v: A::Value| {
        let mut v = widened(cx, v)?;
        let own = cx.fact(&v).shape;
        // a vector that broadcasts has the extent of the other
        let own_axis = (axis + own.rank()).checked_sub(shape.rank()).filter(|k| own[*k] == shape[axis]);
        let axis = match own_axis {
            Some(axis) => axis,
            None => {
                v = cx.apply1(crate::shape::BroadcastTo { shape: shape.clone() }, [v])?;
                axis
            }
        };
        let length = at_least_number(cx, p_norm(cx, v.clone(), 2.0, axis, true)?, eps)?;
        a.div(v, length)
    };
    let product = a.mul(unit(x)?, unit(y)?)?;
    cast(cx, over(cx, ReduceFn::Sum, product, axis)?, dtype)
}
