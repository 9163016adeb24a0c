//! Compositions that draw by a key. They are here and not among the others, which random ops use.

use remat_types::{DType, Result, Scalar, Shape};

use super::{Bernoulli, Dropout, Uniform};
use crate::Apply;
use crate::args::real_dtype;
use crate::compose::{Arith, SELU_LIMIT, cast, demand};
use crate::pointwise::{BinaryFn, Clamp, Fill, UnaryFn, Where};

/// The lower bound of a random number before its logarithm is taken: half of the distance between two numbers of 24 bits.
const LEAST_DRAWN: f64 = 1.0 / (1u64 << 25) as f64;

/// `x` where it is above 0, else `x` times a number drawn from `lower .. upper` (Xu et al., 2015, arXiv:1505.00853). Errors:
/// DType, Shape for a wrong key; Value for bounds that are not finite or descend.
#[track_caller]
pub fn rrelu<A: Apply>(cx: &A, x: A::Value, key: A::Value, lower: f64, upper: f64) -> Result<A::Value> {
    let f = cx.fact(&x);
    let slopes = Uniform { dtype: f.dtype, shape: f.shape, lo: lower.into(), hi: upper.into() };
    let slopes = cx.apply1(slopes, [key])?;
    Arith(cx).bin(BinaryFn::Prelu, x, slopes)
}

/// `x` plus independent numbers of Gumbel's distribution, over `tau` (Jang et al., ICLR 2017, equation 2): its softmax is a
/// sample. Errors: DType, Shape for a wrong key; Value for a `tau` that is not above 0.
#[track_caller]
pub fn gumbel<A: Apply>(cx: &A, x: A::Value, key: A::Value, tau: f64) -> Result<A::Value> {
    demand(tau > 0.0 && tau.is_finite(), "tau", tau, "finite and above 0")?;
    let (a, f) = (Arith(cx), cx.fact(&x));
    let drawn = Uniform { dtype: real_dtype(f.dtype), shape: f.shape, lo: LEAST_DRAWN.into(), hi: 1.0.into() };
    let exponential = a.neg(a.un(UnaryFn::Log, cx.apply1(drawn, [key])?)?)?;
    // a draw that rounds to 1 has no logarithm that tells it from 1
    let exponential = cx.apply1(Clamp { lo: LEAST_DRAWN.into(), hi: f64::INFINITY.into() }, [exponential])?;
    let noise = a.neg(a.un(UnaryFn::Log, exponential)?)?;
    a.scale(a.add(x, cast(cx, noise, f.dtype)?)?, 1.0 / tau)
}

/// `x` with whole parts set to 0 with probability `p`, and others divided by `1 - p`. A part is the range of one
/// element of `mask`, which broadcasts to the shape of `x`. Errors: DType, Shape, Value.
#[track_caller]
pub fn dropout_parts<A: Apply>(cx: &A, x: A::Value, key: A::Value, p: f64, mask: Shape) -> Result<A::Value> {
    let f = cx.fact(&x);
    let ones = Fill { dtype: f.dtype, shape: mask, value: Scalar::Float(1.0) };
    let mask = cx.apply1(Dropout { p: p.into() }, [cx.apply1(ones, [])?, key])?;
    Arith(cx).mul(x, mask)
}

/// Each element at the limit of SELU with probability `p`, then scaled and moved so that means of 0 and variances of 1 stay
/// (Klambauer et al., NeurIPS 2017). All are 0 for a `p` of 1. Errors: DType, Shape for a wrong key; Value for a `p`
/// outside 0 ..= 1.
#[track_caller]
pub fn alpha_dropout<A: Apply>(cx: &A, x: A::Value, key: A::Value, p: f64) -> Result<A::Value> {
    demand((0.0..=1.0).contains(&p), "p", p, "0 to 1")?;
    let (a, f) = (Arith(cx), cx.fact(&x));
    let kept = Bernoulli { dtype: DType::Bool, shape: f.shape, p: (1.0 - p).into() };
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
