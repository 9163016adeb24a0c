//! Distances and angles of vectors.

use remat_types::Result;

use super::{at_least_number, demand, over};
use crate::Apply;
use crate::compose::{Arith, cast};
use crate::pointwise::{BinaryFn, UnaryFn};
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
        let size = a.un(UnaryFn::Abs, x)?;
        let power = a.number(p, &size)?;
        let sum = reduce(ReduceFn::Sum, a.bin(BinaryFn::Pow, size, power)?)?;
        let root = a.number(1.0 / p, &sum)?;
        a.bin(BinaryFn::Pow, sum, root)?
    };
    cast(cx, y, dtype)
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

/// `x y / (max(|x|, eps) max(|y|, eps))` over one axis, of shapes that broadcast. Errors: Shape, DType.
#[track_caller]
pub fn cosine_similarity<A: Apply>(cx: &A, x: A::Value, y: A::Value, axis: usize, eps: f64) -> Result<A::Value> {
    let a = Arith(cx);
    let (fx, fy) = (cx.fact(&x), cx.fact(&y));
    let shape = fx.shape.broadcast(&fy.shape)?;
    // a vector that broadcasts has the extent of the other
    let [x, y] = [(x, fx.shape), (y, fy.shape)].map(|(v, own)| match own == shape {
        true => Ok(v),
        false => cx.apply1(crate::shape::BroadcastTo { shape: shape.clone() }, [v]),
    });
    let (x, y) = (x?, y?);
    let lengths = [&x, &y].map(|v| at_least_number(cx, p_norm(cx, v.clone(), 2.0, axis, false)?, eps));
    let [of_x, of_y] = lengths;
    let dot = over(cx, ReduceFn::Sum, a.mul(x, y)?, axis)?;
    a.div(a.div(dot, of_x?)?, of_y?)
}
