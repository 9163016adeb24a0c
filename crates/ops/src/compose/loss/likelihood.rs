//! Likelihoods of distributions, and divergences.

use std::f64::consts::TAU;

use remat_types::{Error, ErrorKind, Result};

use super::{at_least, at_least_number, compared, demand, has_dtype_of, reduced, same};
use crate::Apply;
use crate::compose::Arith;
use crate::loss::Reduction;
use crate::pointwise::{Compare, CompareFn, UnaryFn, Where};

/// `t ln t - t x` of logarithms of probabilities `x` and probabilities `t`, where 0 ln 0 = 0; or `e^t (t - x)` of their
/// logarithms `t` if `log_target`: the terms of the divergence of Kullback and Leibler. Errors: Shape, DType.
#[track_caller]
pub fn kl_div<A: Apply>(
    cx: &A,
    x: A::Value,
    target: A::Value,
    log_target: bool,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x, &target)?;
    let a = Arith(cx);
    let each = if log_target {
        a.mul(a.un(UnaryFn::Exp, target.clone())?, a.sub(target, x)?)?
    } else {
        let zero = a.constant(0.0, &target)?;
        let none = cx.apply1(Compare { f: CompareFn::Eq }, [target.clone(), zero])?;
        let one = a.constant(1.0, &target)?;
        let log = a.un(UnaryFn::Log, cx.apply1(Where, [none, one, target.clone()])?)?;
        // in two terms, so that an impossible class beside an infinite x is as in PyTorch
        a.sub(a.mul(target.clone(), log)?, a.mul(target, x)?)?
    };
    reduced(cx, each, reduction)
}

/// The sum of [`kl_div`] over the extent of axis 0: the divergence, as a mean over the examples. Errors: as there; Axis.
#[track_caller]
pub fn kl_div_batch_mean<A: Apply>(cx: &A, x: A::Value, target: A::Value, log_target: bool) -> Result<A::Value> {
    at_least(cx, &x, 1, "examples")?;
    let n = cx.fact(&x).shape[0];
    let sum = kl_div(cx, x, target, log_target, Reduction::Sum)?;
    Arith(cx).scale(sum, 1.0 / n as f64)
}

/// `(ln v + (x - y)^2 / v) / 2` with `v = max(var, eps)`, and `ln(2 pi) / 2` more if `full`: minus the logarithm of the
/// density of a normal distribution. `var` broadcasts to the shape of `x`, or lacks its last axis. Errors: Shape, DType;
/// Value for an `eps` that is not above 0.
#[track_caller]
pub fn gaussian_nll<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    var: A::Value,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x, &y)?;
    has_dtype_of(cx, &var, &x, "variance")?;
    demand(eps > 0.0 && eps.is_finite(), "eps", eps, "finite and above 0")?;
    let a = Arith(cx);
    let (shape, mut own) = (cx.fact(&x).shape, cx.fact(&var).shape);
    if own.rank() + 1 == shape.rank() && own.dims() == &shape[..own.rank()] {
        own.push(1);
    }
    if own.broadcast(&shape).ok().as_ref() != Some(&shape) {
        let text = format!("the variance has shape {own}, which does not fit {shape}");
        return Err(Error::new(ErrorKind::Shape, text));
    }
    let var = at_least_number(cx, a.reshape(var, &own)?, eps)?;
    let error = a.div(a.square(a.sub(x, y)?)?, var.clone())?;
    let mut each = a.scale(a.add(a.un(UnaryFn::Log, var)?, error)?, 0.5)?;
    if full {
        each = a.offset(each, 0.5 * TAU.ln())?;
    }
    reduced(cx, each, reduction)
}

/// `e^x - y x` if `log_input`, else `x - y ln(x + eps)`: minus the logarithm of the probability of a count `y`, without the
/// term `ln y!`. With `full` the loss adds Stirling's approximation of this term, `y ln y - y + ln(2 pi y) / 2`, where
/// `y > 1`. Errors: Shape, DType.
#[track_caller]
pub fn poisson_nll<A: Apply>(
    cx: &A,
    x: A::Value,
    y: A::Value,
    log_input: bool,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Result<A::Value> {
    same(cx, &x, &y)?;
    let a = Arith(cx);
    let mut each = if log_input {
        a.sub(a.un(UnaryFn::Exp, x.clone())?, a.mul(y.clone(), x)?)?
    } else {
        let log = a.un(UnaryFn::Log, a.offset(x.clone(), eps)?)?;
        a.sub(x, a.mul(y.clone(), log)?)?
    };
    if full {
        let few = compared(cx, y.clone(), CompareFn::Le, 1)?;
        let one = a.constant(1.0, &y)?;
        let y = cx.apply1(Where, [few.clone(), one, y])?;
        let log = a.un(UnaryFn::Log, y.clone())?;
        let stirling = a.sub(a.mul(y.clone(), log)?, y.clone())?;
        let more = a.scale(a.un(UnaryFn::Log, a.scale(y, TAU)?)?, 0.5)?;
        each = a.add(each, a.drop_where(few, a.add(stirling, more)?)?)?;
    }
    reduced(cx, each, reduction)
}
