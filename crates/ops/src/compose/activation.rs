//! Activations that are a few ops, and noise that depends on a key.

use remat_types::{Error, ErrorKind, Result, Scalar, Shape};

use super::Arith;
use crate::Apply;
use crate::args::real_dtype;
use crate::pointwise::{BinaryFn, Clamp, Compare, CompareFn, UnaryFn, Where};
use crate::random::{Bernoulli, Dropout, Uniform};

/// `alpha` and the factor of SELU (Klambauer et al., NeurIPS 2017, equation 14).
const SELU: [f64; 2] = [1.673_263_242_354_377_2, 1.050_700_987_355_480_5];
/// `alpha` times the factor of [`SELU`]: minus the limit of the function.
const SELU_LIMIT: f64 = SELU[0] * SELU[1];
/// What a random number that goes into a logarithm is at least, and its logarithm: half of what tells 24 bits apart.
const LEAST_DRAWN: f64 = 1.0 / (1u64 << 25) as f64;

/// Errors (Value) unless `ok`.
fn demand(ok: bool, what: &str, v: f64, must: &str) -> Result<()> {
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

/// `x` where it is above 0, else `x` times a number drawn from `lower .. upper` (Xu et al., 2015, arXiv:1505.00853). Errors:
/// DType, Shape for a key that is none; Value for bounds that are not finite or descend.
#[track_caller]
pub fn rrelu<A: Apply>(cx: &A, x: A::Value, key: A::Value, lower: f64, upper: f64) -> Result<A::Value> {
    let f = cx.fact(&x);
    let slopes = Uniform { dtype: f.dtype, shape: f.shape, lo: lower.into(), hi: upper.into() };
    let slopes = cx.apply1(slopes, [key])?;
    Arith(cx).bin(BinaryFn::Prelu, x, slopes)
}

/// `x` plus independent numbers of Gumbel's distribution, over `tau` (Jang et al., ICLR 2017, equation 2): its softmax is a
/// sample. Errors: DType, Shape for a key that is none; Value for a `tau` that is not above 0.
#[track_caller]
pub fn gumbel<A: Apply>(cx: &A, x: A::Value, key: A::Value, tau: f64) -> Result<A::Value> {
    demand(tau > 0.0 && tau.is_finite(), "tau", tau, "finite and above 0")?;
    let (a, f) = (Arith(cx), cx.fact(&x));
    let drawn = Uniform { dtype: real_dtype(f.dtype), shape: f.shape, lo: LEAST_DRAWN.into(), hi: 1.0.into() };
    let exponential = a.neg(a.un(UnaryFn::Log, cx.apply1(drawn, [key])?)?)?;
    // a draw that rounds to 1 has no logarithm that tells it from 1
    let exponential = clamped(cx, exponential, LEAST_DRAWN, f64::INFINITY)?;
    let noise = a.neg(a.un(UnaryFn::Log, exponential)?)?;
    a.scale(a.add(x, super::cast(cx, noise, f.dtype)?)?, 1.0 / tau)
}

/// `x` with whole parts at 0 with probability `p`, else divided by `1 - p`: what is of one element in `mask`, which
/// broadcasts to the shape of `x`. Errors: DType, Shape, Value.
#[track_caller]
pub fn dropout_parts<A: Apply>(cx: &A, x: A::Value, key: A::Value, p: f64, mask: Shape) -> Result<A::Value> {
    let f = cx.fact(&x);
    let ones = crate::pointwise::Fill { dtype: f.dtype, shape: mask, value: Scalar::Float(1.0) };
    let mask = cx.apply1(Dropout { p: p.into() }, [cx.apply1(ones, [])?, key])?;
    Arith(cx).mul(x, mask)
}

/// Each element at the limit of SELU with probability `p`, then scaled and moved so that means of 0 and variances of 1 stay
/// (Klambauer et al., NeurIPS 2017). All are 0 for a `p` of 1. Errors: DType, Shape for a key that is none; Value for a `p`
/// outside 0 ..= 1.
#[track_caller]
pub fn alpha_dropout<A: Apply>(cx: &A, x: A::Value, key: A::Value, p: f64) -> Result<A::Value> {
    demand((0.0..=1.0).contains(&p), "p", p, "0 to 1")?;
    let (a, f) = (Arith(cx), cx.fact(&x));
    let kept = Bernoulli { dtype: remat_types::DType::Bool, shape: f.shape, p: (1.0 - p).into() };
    let kept = cx.apply1(kept, [key])?;
    if p == 1.0 {
        return a.keep_where(kept, x);
    }
    let scale = 1.0 / ((SELU_LIMIT * SELU_LIMIT * p + 1.0) * (1.0 - p)).sqrt();
    let moved = SELU_LIMIT * scale * p;
    let y = a.offset(a.scale(x, scale)?, moved)?;
    let dropped = cx.scalar(f.dtype, Scalar::Float(moved - SELU_LIMIT * scale))?;
    cx.apply1(Where, [kept, y, dropped])
}
