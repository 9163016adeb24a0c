//! Activations that are a few ops.

use remat_types::{Error, ErrorKind, Result, Scalar};

use super::Arith;
use crate::Apply;
use crate::pointwise::{BinaryFn, Clamp, Compare, CompareFn, UnaryFn, Where};

/// `alpha` and the factor of SELU (Klambauer et al., NeurIPS 2017, equation 14).
const SELU: [f64; 2] = [1.673_263_242_354_377_2, 1.050_700_987_355_480_5];
/// Minus the limit of SELU.
pub(crate) const SELU_LIMIT: f64 = SELU[0] * SELU[1];

/// Errors (Value) unless `ok`.
pub(crate) fn demand(ok: bool, what: &str, v: f64, must: &str) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::new(ErrorKind::Value, format!("{what} is {v}, must be {must}"))) }
}

#[track_caller]
fn clamped<A: Apply>(cx: &A, x: A::Value, lo: f64, hi: f64) -> Result<A::Value> {
    cx.apply1(Clamp { lo: lo.into(), hi: hi.into() }, [x])
}

/// `x f v`.
#[track_caller]
fn is<A: Apply>(cx: &A, x: A::Value, f: CompareFn, v: f64) -> Result<A::Value> {
    let v = Arith(cx).number(v, &x)?;
    cx.apply1(Compare { f }, [x, v])
}

/// `x` where it is above 0, else `alpha (e^x - 1)`. Errors: DType.
#[track_caller]
pub fn elu<A: Apply>(cx: &A, x: A::Value, alpha: f64) -> Result<A::Value> {
    let alpha = Arith(cx).number(alpha, &x)?;
    Arith(cx).bin(BinaryFn::Elu, x, alpha)
}

/// `x` where it is above 0, else `alpha (e^(x / alpha) - 1)` (Barron, 2017, arXiv:1704.07483). Errors: DType; Value for an
/// `alpha` that is not above 0.
#[track_caller]
pub fn celu<A: Apply>(cx: &A, x: A::Value, alpha: f64) -> Result<A::Value> {
    demand(alpha > 0.0 && alpha.is_finite(), "alpha", alpha, "finite and above 0")?;
    if alpha == 1.0 {
        return elu(cx, x, 1.0);
    }
    let y = elu(cx, Arith(cx).scale(x, 1.0 / alpha)?, 1.0)?;
    Arith(cx).scale(y, alpha)
}

/// [`elu`] with a factor, both such that means of 0 and variances of 1 stay. Errors: DType.
#[track_caller]
pub fn selu<A: Apply>(cx: &A, x: A::Value) -> Result<A::Value> {
    let y = elu(cx, x, SELU[0])?;
    Arith(cx).scale(y, SELU[1])
}

/// `ln(1 + e^(beta x)) / beta`, and `x` where `beta x` is above the threshold. Errors: DType; Value for a `beta` that is not
/// above 0.
#[track_caller]
pub fn softplus<A: Apply>(cx: &A, x: A::Value, beta: f64, threshold: f64) -> Result<A::Value> {
    demand(beta > 0.0 && beta.is_finite(), "beta", beta, "finite and above 0")?;
    let a = Arith(cx);
    let scaled = if beta == 1.0 { x.clone() } else { a.scale(x.clone(), beta)? };
    let far = is(cx, scaled.clone(), CompareFn::Gt, threshold)?;
    let soft = a.un(UnaryFn::Softplus, scaled)?;
    let soft = if beta == 1.0 { soft } else { a.scale(soft, 1.0 / beta)? };
    cx.apply1(Where, [far, x, soft])
}

/// 0 within `-lambda ..= lambda`, else `x`. Errors: DType; Value for a negative `lambda`.
#[track_caller]
pub fn hardshrink<A: Apply>(cx: &A, x: A::Value, lambda: f64) -> Result<A::Value> {
    demand(lambda >= 0.0, "lambda", lambda, "not negative")?;
    let small = is(cx, Arith(cx).un(UnaryFn::Abs, x.clone())?, CompareFn::Le, lambda)?;
    Arith(cx).drop_where(small, x)
}

/// 0 within `-lambda ..= lambda`, else `x` nearer to 0 by `lambda`. Errors: DType; Value for a negative `lambda`.
#[track_caller]
pub fn softshrink<A: Apply>(cx: &A, x: A::Value, lambda: f64) -> Result<A::Value> {
    demand(lambda >= 0.0 && lambda.is_finite(), "lambda", lambda, "finite and not negative")?;
    Arith(cx).sub(x.clone(), clamped(cx, x, -lambda, lambda)?)
}

/// `x - tanh x`. Errors: DType.
#[track_caller]
pub fn tanhshrink<A: Apply>(cx: &A, x: A::Value) -> Result<A::Value> {
    Arith(cx).sub(x.clone(), Arith(cx).un(UnaryFn::Tanh, x)?)
}

/// `x` where it is above the threshold, else `value`; NaN stays. Errors: DType.
#[track_caller]
pub fn threshold<A: Apply>(cx: &A, x: A::Value, threshold: f64, value: f64) -> Result<A::Value> {
    let low = is(cx, x.clone(), CompareFn::Le, threshold)?;
    let value = cx.scalar(cx.fact(&x).dtype, Scalar::Float(value))?;
    cx.apply1(Where, [low, value, x])
}
