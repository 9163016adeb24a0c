//! Losses: a function of each element or example, then its reduction.

use remat_types::{Error, ErrorKind, Result, Shape};

use super::{Arith, shaped};
use crate::Apply;
use crate::index::TakeAlong;
use crate::loss::Reduction;
use crate::pointwise::{BinaryFn, UnaryFn};
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

/// `-y ln p - (1 - y) ln(1 - p)` with `p = sigmoid(x)`. Errors: Shape, DType.
#[track_caller]
pub fn bce_with_logits<A: Apply>(cx: &A, x: A::Value, y: A::Value, reduction: Reduction) -> Result<A::Value> {
    same(cx, &x, &y)?;
    reduced(cx, Arith(cx).bin(BinaryFn::BceWithLogits, x, y)?, reduction)
}

/// Minus the element of `x: [n, c, ..]` that each label of `[n, ..]` names: of logarithms of probabilities. Errors: Axis
/// without an axis of classes; those of [`TakeAlong`].
#[track_caller]
pub fn nll<A: Apply>(cx: &A, x: A::Value, labels: A::Value, reduction: Reduction) -> Result<A::Value> {
    let (own, of) = (cx.fact(&x).shape, cx.fact(&labels).shape);
    if own.rank() < 2 {
        return Err(Error::new(ErrorKind::Axis, format!("x has shape {own}: no axis of classes")));
    }
    if of.rank() == 0 {
        return Err(Error::new(ErrorKind::Axis, "the labels have rank 0: no axis of examples"));
    }
    let mut column: Vec<usize> = of.to_vec();
    column.insert(1, 1);
    let labels = shaped(cx, labels, column)?;
    let picked = cx.apply1(TakeAlong { axis: 1 }, [x, labels])?;
    let each: Shape = cx.fact(&picked).shape.iter().enumerate().filter(|(a, _)| *a != 1).map(|(_, d)| *d).collect();
    let each = shaped(cx, picked, each)?;
    reduced(cx, Arith(cx).neg(each)?, reduction)
}
