//! Losses of classes: labels, or probabilities of all classes.

use remat_types::{DType, Error, ErrorKind, Result, Scalar};

use super::{at_least, beside_classes, demand, has_dtype_of, has_shape, over, reduced, same, without};
use crate::activation::Softmax;
use crate::compose::{Arith, cast, shaped};
use crate::index::{Take, TakeAlong};
use crate::loss::{CrossEntropy, Reduction};
use crate::pointwise::{Compare, CompareFn, Where};
use crate::reduce::{Reduce, ReduceFn};
use crate::{Apply, Op};

/// The element of `x: [n, c, ..]` that each label of `[n, ..]` names. Errors: Axis; those of [`TakeAlong`].
#[track_caller]
fn picked<A: Apply>(cx: &A, x: A::Value, labels: A::Value) -> Result<A::Value> {
    at_least(cx, &x, 2, "classes")?;
    let of = cx.fact(&labels).shape;
    if of.rank() == 0 {
        return Err(Error::new(ErrorKind::Axis, "the labels have rank 0: no axis of examples"));
    }
    let mut column: Vec<usize> = of.to_vec();
    column.insert(1, 1);
    let labels = shaped(cx, labels, column)?;
    let picked = cx.apply1(TakeAlong { axis: 1 }, [x, labels])?;
    let each = without(&cx.fact(&picked).shape, 1);
    shaped(cx, picked, each)
}

/// Minus the element of `x: [n, c, ..]` that each label of `[n, ..]` names: of logarithms of probabilities. Errors: Axis
/// without an axis of classes; those of [`TakeAlong`].
#[track_caller]
pub fn nll<A: Apply>(cx: &A, x: A::Value, labels: A::Value, reduction: Reduction) -> Result<A::Value> {
    let each = picked(cx, x, labels)?;
    reduced(cx, Arith(cx).neg(each)?, reduction)
}

/// Labels, some of them ignored.
struct Counted<V> {
    /// The labels, with class 0 in the place of ignored ones.
    labels: V,
    /// Where a label is ignored.
    ignored: Option<V>,
}

impl<V: Clone> Counted<V> {
    #[track_caller]
    fn of<A: Apply<Value = V>>(cx: &A, labels: V, ignore_index: Option<i64>) -> Result<Self> {
        let dtype = cx.fact(&labels).dtype;
        if !dtype.is_int() {
            return Err(Error::new(ErrorKind::DType, format!("labels is {dtype}, not an integer")));
        }
        let Some(ignore) = ignore_index else { return Ok(Counted { labels, ignored: None }) };
        // a label that the labels' dtype has not is compared as it is
        let labels = cast(cx, labels, DType::I64)?;
        let ignore = cx.scalar(DType::I64, Scalar::Int(ignore))?;
        let ignored = cx.apply1(Compare { f: CompareFn::Eq }, [labels.clone(), ignore])?;
        let zero = cx.scalar(DType::I64, Scalar::Int(0))?;
        let labels = cx.apply1(Where, [ignored.clone(), zero, labels])?;
        Ok(Counted { labels, ignored: Some(ignored) })
    }

    /// Sets the loss of ignored labels to 0.
    #[track_caller]
    fn keep<A: Apply<Value = V>>(&self, cx: &A, each: V) -> Result<V> {
        match &self.ignored {
            Some(ignored) => Arith(cx).drop_where(ignored.clone(), each),
            None => Ok(each),
        }
    }

    /// The weight of each example: that of its class, or 1; 0 where it is ignored.
    #[track_caller]
    fn weights<A: Apply<Value = V>>(&self, cx: &A, weight: Option<V>, like: &V) -> Result<V> {
        let own = match weight {
            Some(weight) => cx.apply1(Take { axis: 0 }, [weight, self.labels.clone()])?,
            None => {
                let shape = cx.fact(&self.labels).shape;
                let dtype = cx.fact(like).dtype;
                cx.apply1(crate::pointwise::Fill { dtype, shape, value: Scalar::Float(1.0) }, [])?
            }
        };
        self.keep(cx, own)
    }
}

/// Errors (Shape, DType) unless `weight` has a number for each class of `x: [n, c, ..]`.
fn one_a_class<A: Apply>(cx: &A, weight: Option<&A::Value>, x: &A::Value) -> Result<()> {
    let Some(weight) = weight else { return Ok(()) };
    has_dtype_of(cx, weight, x, "weight of the classes")?;
    has_shape(cx, weight, &cx.fact(x).shape[1..2], "weight of the classes")
}

/// The sum of `each`, or over the sum of `weights` for the mean.
#[track_caller]
fn over_weights<A: Apply>(cx: &A, each: A::Value, weights: A::Value, reduction: Reduction) -> Result<A::Value> {
    match reduction {
        Reduction::Mean => {
            let sum = reduced(cx, each, Reduction::Sum)?;
            Arith(cx).div(sum, reduced(cx, weights, Reduction::Sum)?)
        }
        other => reduced(cx, each, other),
    }
}

/// [`nll`] with a weight for each class, and a label that does not count. The mean is the sum over the sum of weights.
/// Errors: Axis, Shape, DType; at run time, Index.
#[track_caller]
pub fn weighted_nll<A: Apply>(
    cx: &A,
    x: A::Value,
    labels: A::Value,
    weight: Option<A::Value>,
    ignore_index: Option<i64>,
    reduction: Reduction,
) -> Result<A::Value> {
    at_least(cx, &x, 2, "classes")?;
    one_a_class(cx, weight.as_ref(), &x)?;
    let counted = Counted::of(cx, labels, ignore_index)?;
    let weights = counted.weights(cx, weight, &x)?;
    let of = picked(cx, x, counted.labels.clone())?;
    // what an ignored label names may be infinite
    let of = counted.keep(cx, Arith(cx).neg(of)?)?;
    over_weights(cx, Arith(cx).mul(of, weights.clone())?, weights, reduction)
}

/// Cross-entropy of softmax with labels, a weight for each class, label smoothing `e` and a label that does not count:
/// `-(1 - e) w[label] ln p[label] - e / c sum_k w[k] ln p[k]`. The mean is the sum over the sum of the labels' weights.
/// Errors: as [`CrossEntropy`]; Shape, DType for a weight that does not fit.
#[track_caller]
pub fn weighted_cross_entropy<A: Apply>(
    cx: &A,
    logits: A::Value,
    labels: A::Value,
    weight: A::Value,
    reduction: Reduction,
    smoothing: f64,
    ignore_index: Option<i64>,
) -> Result<A::Value> {
    CrossEntropy { reduction, smoothing: smoothing.into(), ignore_index }
        .infer(&[&cx.fact(&logits), &cx.fact(&labels)])?;
    one_a_class(cx, Some(&weight), &logits)?;
    let shape = cx.fact(&logits).shape;
    let a = Arith(cx);
    let counted = Counted::of(cx, labels, ignore_index)?;
    let logs = cx.apply1(Softmax { axis: 1, log: true }, [logits])?;
    let weights = counted.weights(cx, Some(weight.clone()), &logs)?;
    let of = counted.keep(cx, a.neg(picked(cx, logs.clone(), counted.labels.clone())?)?)?;
    let mut each = a.mul(of, weights.clone())?;
    if smoothing > 0.0 {
        let all = over(cx, ReduceFn::Sum, a.mul(logs, beside_classes(cx, weight, shape.rank())?)?, 1)?;
        let all = counted.keep(cx, a.scale(all, -smoothing / shape[1] as f64)?)?;
        each = a.add(a.scale(each, 1.0 - smoothing)?, all)?;
    }
    over_weights(cx, each, weights, reduction)
}

/// Cross-entropy of softmax with the probabilities `target` of all classes: `-sum_k w[k] t[k] ln p[k]`, where label
/// smoothing `e` makes `t = (1 - e) target + e / c`. The mean is over the examples. Errors: Axis, Shape, DType; Value for a
/// smoothing outside 0 ..= 1.
#[track_caller]
pub fn soft_cross_entropy<A: Apply>(
    cx: &A,
    logits: A::Value,
    target: A::Value,
    weight: Option<A::Value>,
    reduction: Reduction,
    smoothing: f64,
) -> Result<A::Value> {
    same(cx, &logits, &target)?;
    demand((0.0..=1.0).contains(&smoothing), "label smoothing", smoothing, "0 to 1")?;
    at_least(cx, &logits, 2, "classes")?;
    one_a_class(cx, weight.as_ref(), &logits)?;
    let shape = cx.fact(&logits).shape;
    let a = Arith(cx);
    let mut target = target;
    if smoothing > 0.0 {
        target = a.offset(a.scale(target, 1.0 - smoothing)?, smoothing / shape[1] as f64)?;
    }
    if let Some(weight) = weight {
        target = a.mul(target, beside_classes(cx, weight, shape.rank())?)?;
    }
    let logs = cx.apply1(Softmax { axis: 1, log: true }, [logits])?;
    let sum = Reduce { f: ReduceFn::Sum, axes: [1].into_iter().collect(), keepdims: false };
    let each = a.neg(cx.apply1(sum, [a.mul(target, logs)?])?)?;
    reduced(cx, each, reduction)
}
