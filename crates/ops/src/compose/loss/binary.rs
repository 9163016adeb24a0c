//! Losses of yes or no, element by element.

use remat_types::Result;

use super::{at_least, demand, has_dtype_of, of_floats, one_minus, reduced, same};
use crate::Apply;
use crate::compose::Arith;
use crate::loss::Reduction;
use crate::pointwise::{BinaryFn, UnaryFn};
use crate::reduce::{Reduce, ReduceFn};

/// `each` times a weight that broadcasts to it, if there is one. Errors: Shape, DType.
#[track_caller]
fn weighted<A: Apply>(cx: &A, each: A::Value, weight: Option<A::Value>) -> Result<A::Value> {
    let Some(weight) = weight else { return Ok(each) };
    fits(cx, &weight, &each, "weight")?;
    Arith(cx).mul(each, weight)
}

/// Errors (DType, Shape) unless `v` is of the dtype of `x` and broadcasts to its shape.
fn fits<A: Apply>(cx: &A, v: &A::Value, x: &A::Value, what: &str) -> Result<()> {
    has_dtype_of(cx, v, x, what)?;
    let (own, shape) = (cx.fact(v).shape, cx.fact(x).shape);
    if own.broadcast(&shape).ok().as_ref() == Some(&shape) {
        return Ok(());
    }
    let text = format!("the {what} has shape {own}, which does not broadcast to {shape}");
    Err(remat_types::Error::new(remat_types::ErrorKind::Shape, text))
}

/// `-y ln x - (1 - y) ln(1 - x)`, of logarithms that are at least -100, times the weight of each element. Errors: Shape,
/// DType.
#[track_caller]
pub fn bce<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    weight: Option<A::Value>,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x, &y)?;
    let each = Arith(cx).bin(BinaryFn::Bce, x, y)?;
    reduced(cx, weighted(cx, each, weight)?, reduction)
}

/// `-y ln p - (1 - y) ln(1 - p)` with `p = sigmoid(x)`. Errors: Shape, DType.
#[track_caller]
pub fn bce_with_logits<A: Apply>(cx: &A, x: A::Value, y: A::Value, reduction: Reduction) -> Result<A::Value> {
    same(cx, &x, &y)?;
    reduced(cx, Arith(cx).bin(BinaryFn::BceWithLogits, x, y)?, reduction)
}

/// [`bce_with_logits`] times the weight of each element, with `pos_weight` times the loss of true elements:
/// `-w (pos_weight y ln p + (1 - y) ln(1 - p))`. Both broadcast. Errors: Shape, DType.
#[track_caller]
pub fn weighted_bce_with_logits<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    weight: Option<A::Value>,
    pos_weight: Option<A::Value>,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x, &y)?;
    let each = match pos_weight {
        None => Arith(cx).bin(BinaryFn::BceWithLogits, x, y)?,
        Some(pos) => {
            fits(cx, &pos, &x, "weight of positives")?;
            // two terms that are not negative: nothing cancels
            let wrong = Arith(cx).un(UnaryFn::Softplus, x.clone())?;
            let right = Arith(cx).un(UnaryFn::Softplus, Arith(cx).neg(x)?)?;
            let no = Arith(cx).mul(one_minus(cx, y.clone())?, wrong)?;
            let yes = Arith(cx).mul(Arith(cx).mul(pos, y)?, right)?;
            Arith(cx).add(no, yes)?
        }
    };
    reduced(cx, weighted(cx, each, weight)?, reduction)
}

/// `-a (1 - q)^gamma ln q`, where `q` is the probability that `sigmoid(x)` gives to the target `y`, and `a` is `alpha` for
/// true elements and `1 - alpha` for others, or 1 without `alpha` (Lin et al., ICCV 2017, equation 5). Errors: Shape,
/// DType; Value for an `alpha` outside 0 ..= 1 or a negative `gamma`.
#[track_caller]
pub fn sigmoid_focal<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    alpha: Option<f64>,
    gamma: f64,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x, &y)?;
    demand(gamma >= 0.0 && gamma.is_finite(), "gamma", gamma, "finite and not negative")?;
    alpha.map_or(Ok(()), |a| demand((0.0..=1.0).contains(&a), "alpha", a, "0 to 1"))?;
    let a = Arith(cx);
    let (p, not_p) = (a.un(UnaryFn::Sigmoid, x.clone())?, a.un(UnaryFn::Sigmoid, a.neg(x.clone())?)?);
    // 1 - q without cancellation
    let missed = a.add(a.mul(p, one_minus(cx, y.clone())?)?, a.mul(not_p, y.clone())?)?;
    let gamma = a.number(gamma, &missed)?;
    let mut each = a.mul(a.bin(BinaryFn::BceWithLogits, x, y.clone())?, a.bin(BinaryFn::Pow, missed, gamma)?)?;
    if let Some(alpha) = alpha {
        let share = a.offset(a.scale(y, 2.0 * alpha - 1.0)?, 1.0 - alpha)?;
        each = a.mul(each, share)?;
    }
    reduced(cx, each, reduction)
}

/// `1 - (2 sum x y + smooth) / (sum x + sum y + smooth)` of each example: over all axes but the first. (Milletari et al.,
/// 3DV 2016.) Errors: Shape, DType, Axis without an axis beyond the first.
#[track_caller]
pub fn dice<A: Apply>(cx: &A, x: A::Value, y: A::Value, smooth: f64, reduction: Reduction) -> Result<A::Value> {
    same(cx, &x, &y)?;
    of_floats(cx, &x)?;
    at_least(cx, &x, 2, "elements")?;
    let a = Arith(cx);
    let rank = cx.fact(&x).rank();
    let sum = |v| cx.apply1(Reduce { f: ReduceFn::Sum, axes: (1..rank).collect(), keepdims: false }, [v]);
    let both = a.offset(a.scale(sum(a.mul(x.clone(), y.clone())?)?, 2.0)?, smooth)?;
    let all = a.offset(a.add(sum(x)?, sum(y)?)?, smooth)?;
    reduced(cx, one_minus(cx, a.div(both, all)?)?, reduction)
}
