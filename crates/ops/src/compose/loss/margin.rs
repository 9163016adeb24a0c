//! Losses with a margin: nothing is lost where a prediction is right by more than that.

use remat_types::{DType, Error, ErrorKind, Result};

use super::{at_least, compared, demand, has_dtype_of, has_shape};
use super::{of_floats, one_minus, over, pairwise_distance, reduced, relu, same};
use crate::Apply;
use crate::compose::{Arith, cast, shaped, tril};
use crate::index::{OneHot, Take, TakeAlong};
use crate::linalg::MatMul;
use crate::loss::Reduction;
use crate::pointwise::{BinaryFn, CompareFn, UnaryFn, Where};
use crate::reduce::{Reduce, ReduceFn};

/// `x` where the target is 1, and `max(0, margin - x)` where it is -1. Errors: Shape, DType.
#[track_caller]
pub fn hinge_embedding<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    margin: f64,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x, &y)?;
    of_floats(cx, &x)?;
    let a = Arith(cx);
    let apart = relu(cx, a.offset(a.neg(x.clone())?, margin)?)?;
    let apart = a.drop_where(compared(cx, y.clone(), CompareFn::Eq, 1)?, apart)?;
    let near = a.drop_where(compared(cx, y, CompareFn::Eq, -1)?, x)?;
    reduced(cx, a.add(near, apart)?, reduction)
}

/// `ln(1 + e^(-y x))`, with targets 1 and -1. Errors: Shape, DType.
#[track_caller]
pub fn soft_margin<A: Apply>(cx: &A, x: A::Value, y: A::Value, reduction: Reduction) -> Result<A::Value> {
    same(cx, &x, &y)?;
    let d = Arith(cx).neg(Arith(cx).mul(x, y)?)?;
    reduced(cx, Arith(cx).un(UnaryFn::Softplus, d)?, reduction)
}

/// `max(0, margin - y (x1 - x2))`: `x1` is to be larger where `y` is 1, smaller where it is -1. Errors: Shape, DType.
#[track_caller]
pub fn margin_ranking<A: Apply>(
    cx: &A,
    [x1, x2]: [A::Value; 2],
    y: A::Value,
    margin: f64,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x1, &x2)?;
    same(cx, &x1, &y)?;
    let a = Arith(cx);
    let d = a.mul(a.neg(y)?, a.sub(x1, x2)?)?;
    reduced(cx, relu(cx, a.offset(d, margin)?)?, reduction)
}

/// `max(0, d(anchor, positive) - d(anchor, negative) + margin)` with [`pairwise_distance`] as `d`; with `swap`, the negative
/// counts from the nearer of anchor and positive (Balntas et al., BMVC 2016). Errors: Axis, Shape, DType, Value.
#[track_caller]
pub fn triplet_margin<A: Apply>(
    cx: &A,
    [anchor, positive, negative]: [A::Value; 3],
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &anchor, &positive)?;
    same(cx, &anchor, &negative)?;
    of_floats(cx, &anchor)?;
    let a = Arith(cx);
    let distance = |x: &A::Value, y: &A::Value| pairwise_distance(cx, x.clone(), y.clone(), p, eps, false);
    let near = distance(&anchor, &positive)?;
    let mut far = distance(&anchor, &negative)?;
    if swap {
        far = a.bin(BinaryFn::Min, far, distance(&positive, &negative)?)?;
    }
    reduced(cx, relu(cx, a.offset(a.sub(near, far)?, margin)?)?, reduction)
}

/// `1 - cos(x1, x2)` where the label is 1, and `max(0, cos(x1, x2) - margin)` where it is -1; `x1, x2: [n, d]` or `[d]`,
/// labels `[n]` or of rank 0. Errors: Axis, Shape, DType.
#[track_caller]
pub fn cosine_embedding<A: Apply>(
    cx: &A,
    [x1, x2]: [A::Value; 2],
    labels: A::Value,
    margin: f64,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x1, &x2)?;
    of_floats(cx, &x1)?;
    let shape = cx.fact(&x1).shape;
    if !(1..=2).contains(&shape.rank()) {
        return Err(Error::new(ErrorKind::Axis, format!("x has shape {shape}: its rank must be 1 or 2")));
    }
    let axis = shape.rank() - 1;
    has_shape(cx, &labels, &shape[..axis], "label")?;
    let a = Arith(cx);
    let square = |x: &A::Value| a.offset(over(cx, ReduceFn::SumSqr, x.clone(), axis)?, SQUARES_MORE);
    let lengths = a.un(UnaryFn::Sqrt, a.mul(square(&x1)?, square(&x2)?)?)?;
    let cos = a.div(over(cx, ReduceFn::Sum, a.mul(x1, x2)?, axis)?, lengths)?;
    let apart = one_minus(cx, cos.clone())?;
    let near = relu(cx, a.offset(cos, -margin)?)?;
    let apart = a.keep_where(compared(cx, labels.clone(), CompareFn::Eq, 1)?, apart)?;
    let near = a.keep_where(compared(cx, labels, CompareFn::Eq, -1)?, near)?;
    reduced(cx, a.add(apart, near)?, reduction)
}

/// The term added to each sum of squares in [`cosine_embedding`], as in PyTorch.
const SQUARES_MORE: f64 = 1e-12;

/// `sum_(k != label) w[label] max(0, margin - x[label] + x[k])^p / c` of `x: [n, c]`, labels `[n]`, weights `[c]`. Errors:
/// Axis, Shape, DType; Value for a `p` other than 1 and 2; at run time, Index.
#[track_caller]
pub fn multi_margin<A: Apply>(
    cx: &A,
    x: A::Value,
    labels: A::Value,
    p: u32,
    margin: f64,
    weight: Option<A::Value>,
    reduction: Reduction,
) -> Result<A::Value> {
    of_floats(cx, &x)?;
    demand(p == 1 || p == 2, "p", f64::from(p), "1 or 2")?;
    let [n, c] = super::super::extents(&cx.fact(&x), "x")?;
    has_shape(cx, &labels, &[n], "label")?;
    let a = Arith(cx);
    let picked = cx.apply1(TakeAlong { axis: 1 }, [x.clone(), shaped(cx, labels.clone(), [n, 1])?])?;
    let mut each = relu(cx, a.offset(a.sub(x.clone(), picked)?, margin)?)?;
    if p == 2 {
        each = a.square(each)?;
    }
    let own = cx.apply1(OneHot { depth: c, dtype: DType::Bool }, [labels.clone()])?;
    each = a.drop_where(own, each)?;
    if let Some(weight) = weight {
        has_dtype_of(cx, &weight, &x, "weight of the classes")?;
        has_shape(cx, &weight, &[c], "weight of the classes")?;
        let of = cx.apply1(Take { axis: 0 }, [weight, labels])?;
        each = a.mul(each, shaped(cx, of, [n, 1])?)?;
    }
    reduced(cx, over(cx, ReduceFn::Mean, each, 1)?, reduction)
}

/// The mean over the classes of [`super::bce_with_logits`], times the weights of the classes: of `x, y: [.., c]`. Errors:
/// Axis, Shape, DType.
#[track_caller]
pub fn multilabel_soft_margin<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    weight: Option<A::Value>,
    reduction: Reduction,
) -> Result<A::Value> {
    at_least(cx, &x, 1, "classes")?;
    let axis = cx.fact(&x).rank() - 1;
    let each = super::weighted_bce_with_logits(cx, x, y, weight, None, Reduction::None)?;
    reduced(cx, over(cx, ReduceFn::Mean, each, axis)?, reduction)
}

/// `sum_(j, k) max(0, 1 - x[j] + x[k]) / c` over the labels `j` of an example and the classes `k` that are none: of
/// `x: [n, c]` and labels `[n, c]`, which end with the first that is negative. Errors: Axis, Shape, DType; at run time, Index.
///
/// The terms are all there at once: `n c^2` of them.
#[track_caller]
pub fn multilabel_margin<A: Apply>(cx: &A, x: A::Value, labels: A::Value, reduction: Reduction) -> Result<A::Value> {
    of_floats(cx, &x)?;
    let [n, c] = super::super::extents(&cx.fact(&x), "x")?;
    has_shape(cx, &labels, &[n, c], "label")?;
    let (a, dtype) = (Arith(cx), cx.fact(&x).dtype);
    let labels = cast(cx, labels, DType::I64)?;
    let ended = ends_before(cx, compared(cx, labels.clone(), CompareFn::Lt, 0)?, c)?;
    let zero = cx.scalar(DType::I64, remat_types::Scalar::Int(0))?;
    let labels = cx.apply1(Where, [ended.clone(), zero, labels])?;
    // [n, labels, classes]: whether a label is there and which class it is
    let named = cx.apply1(OneHot { depth: c, dtype }, [labels.clone()])?;
    let named = a.drop_where(shaped(cx, ended.clone(), [n, c, 1])?, named)?;
    let is_label = over(cx, ReduceFn::Max, named, 1)?;
    let picked = cx.apply1(TakeAlong { axis: 1 }, [x.clone(), labels])?;
    let terms = a.sub(shaped(cx, x, [n, 1, c])?, shaped(cx, picked, [n, c, 1])?)?;
    let terms = relu(cx, a.offset(terms, 1.0)?)?;
    let terms = a.drop_where(shaped(cx, ended, [n, c, 1])?, terms)?;
    let is_label = compared(cx, is_label, CompareFn::Gt, 0)?;
    let terms = a.drop_where(shaped(cx, is_label, [n, 1, c])?, terms)?;
    let sum = cx.apply1(Reduce { f: ReduceFn::Sum, axes: [1, 2].into_iter().collect(), keepdims: false }, [terms])?;
    reduced(cx, a.scale(sum, 1.0 / c as f64)?, reduction)
}

/// Whether `end: [n, c]` is true at a place or at one before it.
#[track_caller]
fn ends_before<A: Apply>(cx: &A, end: A::Value, c: usize) -> Result<A::Value> {
    // a product with a triangle of ones counts what came before
    let one = cx.apply1(crate::pointwise::Fill { dtype: DType::F32, shape: [c, c].into(), value: 1.0.into() }, [])?;
    let before = crate::compose::permuted(cx, tril(cx, one, 0)?, &[1, 0])?;
    let count = cx.apply1(MatMul {}, [cast(cx, end, DType::F32)?, before])?;
    compared(cx, count, CompareFn::Gt, 0)
}
