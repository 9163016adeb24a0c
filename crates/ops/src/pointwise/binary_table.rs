//! The table of binary functions: one row each with name, scalar form per class of types, values that integers reject,
//! and gradient rule.
//!
//! A form is a generic function of [`remat_kernels::scalar`], and gives the CPU's loops and an expression alike. In f32 these
//! rows call functions of a library, others are arithmetic throughout: `zeta`, `gammainc`, `gammaincc`, `gamma_slope`,
//! `gamma_log_slope`, and `bce` for its logarithms.
//!
//! Rows named `*_grad` are derivatives of unary functions, `dy * h(v)` with `v` the function's input or output; fused,
//! because a training step runs each of them once per activation. They are differentiable like every other row.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use remat_kernels::maths;
use remat_kernels::scalar::{Fn64x2, Mask as _, lit};
use remat_types::Result;
use serde::{Deserialize, Serialize};

use super::loops::{Loops2, loops};
use super::math::{
    bce, bce_slope, bce_with_logits, floor_div, gelu_inner, int_floor_div, int_floor_rem, int_shl, int_shr,
};
use super::{BinaryFn::*, UnaryFn};
use crate::Var;
use crate::backward::GradBuilder;
use crate::schema::Choice;

/// How the gradients of a binary function are had. Broadcasting is undone by the op.
pub(crate) enum Grad2 {
    /// Piecewise constant in both.
    None,
    /// `(a, b, y, dy)` to the gradients.
    Chain { a: Rule, b: Rule },
    /// The row is `a h(b)`: `da = f(dy, b)` and `db = dy a h'(b)` with this `h'`, or nothing where `h' = 0`.
    Linear(Option<fn(GradBuilder<'_, '_>, Var) -> Result<Var>>),
    /// The same function written with others, whose rules give the gradient.
    Through(fn(GradBuilder<'_, '_>, Var, Var) -> Result<Var>),
}

/// A gradient rule on (a, b, y, dy).
pub(crate) type Rule = Option<fn(GradBuilder<'_, '_>, [Var; 4]) -> Result<Var>>;

/// Second operands for which an integer function has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reject {
    Nothing,
    Zero,
    Negative,
}

/// One function.
pub(crate) struct Row2 {
    pub(crate) name: &'static str,
    pub(crate) loops: Loops2,
    pub(crate) reject: Reject,
    pub(crate) grad: Grad2,
}

macro_rules! rows {
    ($($(#[$doc:meta])* $f:ident = $name:literal, ($($loops:tt)*), $reject:ident, $grad:expr;)*) => {
        /// A binary function. Integers wrap; a dtype outside a function's domain is an error of kind DType.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
        pub enum BinaryFn { $( $(#[$doc])* #[serde(rename = $name)] $f, )* }

        impl BinaryFn {
            /// Every function, in the order of the table.
            pub const ALL: &'static [BinaryFn] = &[$($f),*];
        }

        static ROWS: &[Row2] = &[
            $( Row2 { name: $name, loops: both!($($loops)*), reject: Reject::$reject, grad: $grad } ),*
        ];
    };
}
/// Loops; the loop of f32 may be a function on slices, with the same bits.
macro_rules! both {
    (f32 $f:path, $($t:tt)*) => { Loops2 { f32: Some($f), ..loops!(Loops2, each2; $($t)*) } };
    ($($t:tt)*) => { loops!(Loops2, each2; $($t)*) };
}

/// The first value where the mask holds, else the second. In f64 the CPU computes only the one that it needs.
macro_rules! pick {
    ($mask:expr; $a:expr; $b:expr) => {
        ($mask).pick(
            #[inline(always)]
            || $a,
            #[inline(always)]
            || $b,
        )
    };
}

pub(crate) fn row(f: BinaryFn) -> &'static Row2 {
    &ROWS[f as usize]
}

/// `sqrt(2/pi)`, of the tanh form of GELU.
const GELU_TANH_SCALE: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
/// The cubic coefficient of the tanh form of GELU.
const GELU_TANH_CUBE: f64 = 0.044715;
/// `1/sqrt(2 pi)`, the height of the normal density.
const INV_SQRT_TAU: f64 = 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// The least logarithm that [`BinaryFn::Bce`] counts, as in PyTorch.
const BCE_LEAST_LOG: f64 = -100.0;

/// `e^a` where `a <= 0`, else 0: what the slope of `elu` is above a constant.
fn exp_below_zero(c: GradBuilder<'_, '_>, a: Var) -> Result<Var> {
    let above = c.bin(PreluSlope, a, c.constant(0.0, &a)?)?;
    let e = c.un(UnaryFn::Exp, c.bin(Min, a, c.constant(0.0, &a)?)?)?;
    c.sub(e, c.mul(e, above)?)
}

/// The density at `b` of the gamma distribution of shape `a`: `exp((a - 1) ln b - b - ln gamma(a))`.
fn gamma_density(c: GradBuilder<'_, '_>, a: Var, b: Var) -> Result<Var> {
    let power = c.mul(c.offset(a, -1.0)?, c.un(UnaryFn::Log, b)?)?;
    c.un(UnaryFn::Exp, c.sub(c.sub(power, b)?, c.un(UnaryFn::Lgamma, a)?)?)
}

/// `h'` of a linear row whose `h` is piecewise constant.
const FLAT: Grad2 = Grad2::Linear(None);

rows! {
    /// `a + b`.
    Add = "add", (float |a, b| a + b, int |a, b| a.wrapping_add(b)), Nothing,
        Grad2::Chain { a: Some(|_, [.., dy]| Ok(dy)), b: Some(|_, [.., dy]| Ok(dy)) };
    /// `a - b`.
    Sub = "sub", (float |a, b| a - b, int |a, b| a.wrapping_sub(b)), Nothing,
        Grad2::Chain { a: Some(|_, [.., dy]| Ok(dy)), b: Some(|c, [.., dy]| c.neg(dy)) };
    /// `a * b`.
    Mul = "mul", (float |a, b| a * b, int |a, b| a.wrapping_mul(b)), Nothing,
        Grad2::Chain { a: Some(|c, [_, b, _, dy]| c.mul(dy, b)), b: Some(|c, [a, _, _, dy]| c.mul(dy, a)) };
    /// `a / b`. Integers truncate towards zero; a zero divisor is an error of kind Value that names the element of `b`,
    /// and the least integer over -1 wraps to itself.
    Div = "div", (float |a, b| a / b, int |a, b| a.wrapping_div(b)), Zero,
        Grad2::Chain {
            a: Some(|c, [_, b, _, dy]| c.div(dy, b)),
            b: Some(|c, [_, b, y, dy]| c.neg(c.div(c.mul(dy, y)?, b)?)),
        };
    /// `floor(a / b)` of the exact quotient, so that with `rem` it makes `a` again, an infinite `b` included (-1 for signs
    /// that differ, else 0); NaN for an infinite `a`, and a zero divisor as in `div`. No gradient.
    FloorDiv = "floor_div", (float |a, b| floor_div(a, b), int |a, b| int_floor_div(a, b)),
        Zero, Grad2::None;
    /// `a - b floor(a / b)`: the remainder with the sign of `b` (Python's `%`); a zero divisor as in `div`, NaN in
    /// floats.
    Rem = "rem", (f32 maths::floor_rem_each, float |a, b| maths::floor_rem(a, b), int |a, b| int_floor_rem(a, b)), Zero,
        Grad2::Chain {
            a: Some(|_, [.., dy]| Ok(dy)),
            b: Some(|c, [a, b, _, dy]| c.neg(c.mul(dy, c.bin(FloorDiv, a, b)?)?)),
        };
    /// `a^b`; IEEE's pow in floats, so `x^0 = 1`. Integers wrap, and a negative exponent is an error of kind Value that
    /// names the element of `b`. Gradients: `da = dy b a^(b-1)`, 0 where `b = 0`; `db = dy a^b ln a`, 0 where `a = 0`
    /// and `b >= 0`.
    Pow = "pow", (float |a, b| a.pow(b), int |a, b| a.wrapping_pow(b)), Negative,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(PowSlopeA, a, b)?)),
            b: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(PowSlopeB, a, b)?)),
        };
    /// The larger; NaN if either is. The larger gets the gradient; equal ones get half each.
    Max = "max", (float |a, b| (a.gt(b) | a.is_nan()).select(a, b), int |a, b| a.larger(b), bool |a, b| a | b), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(MaxShare, a, b)?)),
            b: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(MaxShare, b, a)?)),
        };
    /// The smaller; NaN if either is. The gradient as in `max`.
    Min = "min", (float |a, b| (a.lt(b) | a.is_nan()).select(a, b), int |a, b| a.smaller(b), bool |a, b| a & b), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(MinShare, a, b)?)),
            b: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(MinShare, b, a)?)),
        };
    /// The angle of the point (x = b, y = a), in radians.
    Atan2 = "atan2", (costly |a, b| a.atan2(b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.div(c.mul(dy, b)?, c.add(c.square(a)?, c.square(b)?)?)),
            b: Some(|c, [a, b, _, dy]| c.neg(c.div(c.mul(dy, a)?, c.add(c.square(a)?, c.square(b)?)?)?)),
        };
    /// `ln(e^a + e^b)` without overflow. `da = dy sigmoid(a - b)`, so NaN for equal infinities.
    LogAddExp = "log_add_exp", (costly |a, b| a.log_add_exp(b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.un(UnaryFn::Sigmoid, c.sub(a, b)?)?)),
            b: Some(|c, [a, b, _, dy]| c.mul(dy, c.un(UnaryFn::Sigmoid, c.sub(b, a)?)?)),
        };
    /// `sqrt(a^2 + b^2)` without overflow. The derivative at the origin is 0.
    Hypot = "hypot", (costly |a, b| a.hypot(b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, _, y, dy]| c.mul(dy, c.bin(DivOrZero, a, y)?)),
            b: Some(|c, [_, b, y, dy]| c.mul(dy, c.bin(DivOrZero, b, y)?)),
        };
    /// The remainder of the division towards zero: `a - b trunc(a / b)` with the sign of `a`, as C's `fmod`. A zero divisor is
    /// NaN for floats and an error for integers.
    Fmod = "fmod", (f32 maths::fmod_each, float |a, b| a % b, int |a, b| a.wrapping_rem(b)), Zero,
        Grad2::Chain {
            a: Some(|_, [.., dy]| Ok(dy)),
            b: Some(|c, [a, b, _, dy]| c.neg(c.mul(dy, c.un(UnaryFn::Trunc, c.div(a, b)?)?)?)),
        };
    /// `|a|` with the sign of `b`, of zeros too. No gradient for `b`.
    Copysign = "copysign", (float |a, b| a.copysign(b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.mul(c.un(UnaryFn::Sign, a)?, c.bin(Copysign, c.constant(1.0, &a)?, b)?)?)),
            b: None,
        };
    /// Hurwitz' zeta function `sum of 1 / (b + n)^a : n = 0, 1, ..`, for `a > 1`. No gradient for `a`.
    Zeta = "zeta", (float |a, b| a.with(b, Fn64x2::Zeta)), Nothing,
        Grad2::Chain { a: None, b: Some(|c, [a, b, _, dy]| {
            let slope = c.bin(Zeta, c.offset(a, 1.0)?, b)?;
            c.neg(c.mul(dy, c.mul(a, slope)?)?)
        }) };
    /// The regularised lower incomplete gamma function `P(a, b)`: the distribution function at `b` of the gamma distribution of
    /// shape `a`. No gradient for `a`.
    GammaInc = "gammainc", (float |a, b| a.with(b, Fn64x2::GammaInc)), Nothing,
        Grad2::Chain { a: None, b: Some(|c, [a, b, _, dy]| c.mul(dy, gamma_density(c, a, b)?)) };
    /// `1 - P(a, b)` without cancellation. No gradient for `a`.
    GammaIncc = "gammaincc", (float |a, b| a.with(b, Fn64x2::GammaIncc)), Nothing,
        Grad2::Chain { a: None, b: Some(|c, [a, b, _, dy]| c.neg(c.mul(dy, gamma_density(c, a, b)?)?)) };
    /// The derivative for `a` of a gamma number `b` of shape `a`, at an unchanged value of its distribution function. No gradient.
    GammaSlope = "gamma_slope", (float |a, b| a.with(b, Fn64x2::GammaSlope)), Nothing, Grad2::None;
    /// As `gamma_slope`, for the logarithm of the number; `b` is the logarithm of the number. No gradient.
    GammaLogSlope = "gamma_log_slope", (float |a, b| a.with(b, Fn64x2::GammaLogSlope)), Nothing, Grad2::None;
    /// `a / b`, 0 where `b` is 0: the derivative of a norm, say, which is `x / norm`.
    DivOrZero = "div_or_zero", (float |a, b| b.eq(lit(0.0)).select(lit(0.0), a / b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [_, b, _, dy]| c.bin(DivOrZero, dy, b)),
            b: Some(|c, [_, b, y, dy]| c.neg(c.bin(DivOrZero, c.mul(dy, y)?, b)?)),
        };
    /// `-b ln p - (1 - b) ln(1 - p)` with `p = sigmoid(a)`, the binary cross-entropy of a logit `a` with a target `b` within
    /// 0 ..= 1: `|a|` times the distance of the target from the predicted side, plus `ln(1 + e^-|a|)`. Neither term is
    /// negative, so nothing cancels. For a certain target the loss is 0 at the infinity of its side.
    BceWithLogits = "bce_with_logits", (costly |a, b| bce_with_logits(a, b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(BceSlope, a, b)?)),
            b: Some(|c, [a, _, _, dy]| c.neg(c.mul(dy, a)?)),
        };
    /// The derivative of `bce_with_logits` by `a`: `sigmoid(a) - b`, from the end that `a` is near to.
    BceSlope = "bce_slope", (costly |a, b| bce_slope(a, b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, _, _, dy]| c.bin(SigmoidGrad, dy, c.un(UnaryFn::Sigmoid, a)?)),
            b: Some(|c, [.., dy]| c.neg(dy)),
        };
    /// `-b ln a - (1 - b) ln(1 - a)`, the binary cross-entropy of a probability `a` with a target `b`, of logarithms that are
    /// at least -100. The derivative by `a` is `(a - b) / max(a (1 - a), 1e-12)`.
    Bce = "bce", (float |a, b| bce(a, b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(BceProbSlope, a, b)?)),
            b: Some(|c, [a, _, _, dy]| {
                let least = c.constant(BCE_LEAST_LOG, &a)?;
                let (wrong, right) = (c.un(UnaryFn::Log1p, c.neg(a)?)?, c.un(UnaryFn::Log, a)?);
                c.mul(dy, c.sub(c.bin(Max, wrong, least)?, c.bin(Max, right, least)?)?)
            }),
        };
    /// The derivative of `bce` by `a`.
    BceProbSlope = "bce_prob_slope", (float |a, b| (a - b) / (a * (F::lit(1.0) - a)).larger(lit(1e-12))), Nothing,
        Grad2::Through(|c, a, b| {
            let spread = c.mul(a, c.offset(c.neg(a)?, 1.0)?)?;
            c.div(c.sub(a, b)?, c.bin(Max, spread, c.constant(1e-12, &a)?)?)
        });
    /// `a^2 / 2` where `|a| <= b`, else `b (|a| - b / 2)` (Huber, 1964, Annals of Mathematical Statistics 35).
    Huber = "huber", (float |a, b| {
            let m = a.abs();
            m.le(b).select(F::lit(0.5) * a * a, b * (m - F::lit(0.5) * b))
        }), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(HuberSlope, a, b)?)),
            b: Some(|c, [a, b, _, dy]| {
                let beyond = c.sub(c.un(UnaryFn::Abs, a)?, b)?;
                c.mul(dy, c.un(UnaryFn::Relu, beyond)?)
            }),
        };
    /// The derivative of `huber` by `a`: `a` within `-b ..= b`.
    HuberSlope = "huber_slope", (float |a, b| a.clamped(-b, b)), Nothing,
        Grad2::Through(|c, a, b| c.bin(Min, c.bin(Max, a, c.neg(b)?)?, b));
    /// `a` where `a > 0`, else `b (e^a - 1)` (Clevert et al., ICLR 2016). The derivative at 0 is `b`.
    Elu = "elu", (float |a, b| pick!(a.gt(lit(0.0)); a; b * a.exp_m1())), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(EluSlope, a, b)?)),
            b: Some(|c, [a, _, _, dy]| c.mul(dy, c.un(UnaryFn::Expm1, c.bin(Min, a, c.constant(0.0, &a)?)?)?)),
        };
    /// The derivative of `elu` by `a`: 1 where `a > 0`, else `b e^a`.
    EluSlope = "elu_slope", (costly |a, b| pick!(a.gt(lit(0.0)); lit(1.0); b * a.exp())), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.mul(b, exp_below_zero(c, a)?)?)),
            b: Some(|c, [a, _, _, dy]| c.mul(dy, exp_below_zero(c, a)?)),
        };
    /// Bitwise and.
    BitAnd = "bit_and", (int |a, b| a & b), Nothing, Grad2::None;
    /// Bitwise or.
    BitOr = "bit_or", (int |a, b| a | b), Nothing, Grad2::None;
    /// Bitwise exclusive or.
    BitXor = "bit_xor", (int |a, b| a ^ b), Nothing, Grad2::None;
    /// `a` shifted left by `b` bits; 0 where `b` is the width or more. A negative shift is an error of kind Value.
    Shl = "shl", (int |a, b| int_shl(a, b)), Negative, Grad2::None;
    /// `a` shifted right by `b` bits, filled with the sign; where `b` is the width or more, only the filling is left. A
    /// negative shift is an error of kind Value.
    Shr = "shr", (int |a, b| int_shr(a, b)), Negative, Grad2::None;
    /// And, of Bool.
    LogicalAnd = "logical_and", (bool |a, b| a & b), Nothing, Grad2::None;
    /// Or, of Bool.
    LogicalOr = "logical_or", (bool |a, b| a | b), Nothing, Grad2::None;
    /// Exclusive or, of Bool.
    LogicalXor = "logical_xor", (bool |a, b| a ^ b), Nothing, Grad2::None;
    /// `a` where `a > 0`, else `a b` (He et al., 2015, arXiv:1502.01852); NaN stays. The derivative at 0 is `b`.
    Prelu = "prelu", (float |a, b| a.gt(lit(0.0)).select(a, a * b)), Nothing,
        Grad2::Chain {
            a: Some(|c, [a, b, _, dy]| c.mul(dy, c.bin(PreluSlope, a, b)?)),
            b: Some(|c, [a, _, _, dy]| c.mul(dy, c.bin(Min, a, c.constant(0.0, &a)?)?)),
        };
    /// The share of `a` in the gradient of `max(a, b)`: 1, 1/2 for equal ones, or 0. A lone NaN has all of it.
    MaxShare = "max_share", (float |a, b| {
            let of_unequal = (a.gt(b) | a.is_nan()).select(lit(1.0), lit(0.0));
            (a.eq(b) | (a.is_nan() & b.is_nan())).select(lit(0.5), of_unequal)
        }), Nothing, Grad2::None;
    /// The share of `a` in the gradient of `min(a, b)`.
    MinShare = "min_share", (float |a, b| {
            let of_unequal = (a.lt(b) | a.is_nan()).select(lit(1.0), lit(0.0));
            (a.eq(b) | (a.is_nan() & b.is_nan())).select(lit(0.5), of_unequal)
        }), Nothing, Grad2::None;
    /// The derivative of `a^b` by `a`: `b a^(b-1)`, 0 where `b = 0`.
    PowSlopeA = "pow_slope_a", (float |a, b| pick!(b.eq(lit(0.0)); lit(0.0); b * a.pow(b - lit(1.0)))), Nothing,
        Grad2::Through(|c, a, b| c.mul(b, c.bin(Pow, a, c.offset(b, -1.0)?)?));
    /// The derivative of `a^b` by `b`: `a^b ln a`, 0 where `a = 0` and `b >= 0`.
    PowSlopeB = "pow_slope_b", (float |a, b| {
            pick!(a.eq(lit(0.0)) & b.ge(lit(0.0)); lit(0.0); a.pow(b) * a.ln())
        }), Nothing,
        Grad2::Through(|c, a, b| c.mul(c.bin(Pow, a, b)?, c.un(UnaryFn::Log, a)?));
    /// The derivative of `prelu(a, b)` by `a`: 1 where `a > 0`, else `b`.
    PreluSlope = "prelu_slope", (float |a, b| a.gt(lit(0.0)).select(lit(1.0), b)), Nothing,
        Grad2::Chain {
            a: None,
            b: Some(|c, [a, b, _, dy]| {
                let one_above = c.bin(PreluSlope, a, c.constant(0.0, &b)?)?;
                c.sub(dy, c.mul(dy, one_above)?)
            }),
        };
    /// `dy` where `y > 0`, else 0.
    ReluGrad = "relu_grad", (float |dy, y| y.gt(lit(0.0)).select(dy, lit(0.0))), Nothing, FLAT;
    /// `dy sign(x)`, 0 where `x = 0`.
    AbsGrad = "abs_grad", (float |dy, x| {
            x.gt(lit(0.0)).select(dy, x.lt(lit(0.0)).select(-dy, x * lit(0.0)))
        }), Nothing, FLAT;
    /// `dy` where `0 < x < 6`, else 0.
    Relu6Grad = "relu6_grad", (float |dy, x| (x.gt(lit(0.0)) & x.lt(lit(6.0))).select(dy, lit(0.0))), Nothing, FLAT;
    /// `dy / 6` where `-3 < x < 3`, else 0.
    HsigmoidGrad = "hsigmoid_grad", (float |dy, x| {
            (x.gt(lit(-3.0)) & x.lt(lit(3.0))).select(dy / lit(6.0), lit(0.0))
        }), Nothing, FLAT;
    /// `dy (2x + 3) / 6` where `-3 < x < 3`, `dy` from 3 on, else 0.
    HswishGrad = "hswish_grad", (float |dy, x| {
            let within = dy * (F::lit(2.0) * x + lit(3.0)) / lit(6.0);
            x.le(lit(-3.0)).select(lit(0.0), x.ge(lit(3.0)).select(dy, within))
        }), Nothing,
        Grad2::Linear(Some(|c, x| c.bin(HsigmoidGrad, c.constant(2.0, &x)?, x)));
    /// `dy (y + 1)`.
    Expm1Grad = "expm1_grad", (float |dy, y| dy * (y + lit(1.0))), Nothing,
        Grad2::Linear(Some(|c, y| c.constant(1.0, &y)));
    /// `dy / (1 + x)`.
    Log1pGrad = "log1p_grad", (float |dy, x| dy / (F::lit(1.0) + x)), Nothing,
        Grad2::Linear(Some(|c, x| c.neg(c.square(c.un(UnaryFn::Recip, c.offset(x, 1.0)?)?)?)));
    /// `dy / (2y)`.
    SqrtGrad = "sqrt_grad", (float |dy, y| dy / (F::lit(2.0) * y)), Nothing,
        Grad2::Linear(Some(|c, y| c.scale(c.square(c.un(UnaryFn::Recip, y)?)?, -0.5)));
    /// `-dy y^3 / 2`.
    RsqrtGrad = "rsqrt_grad", (float |dy, y| F::lit(-0.5) * dy * (y * y * y)), Nothing,
        Grad2::Linear(Some(|c, y| c.scale(c.square(y)?, -1.5)));
    /// `2 dy x`.
    SquareGrad = "square_grad", (float |dy, x| F::lit(2.0) * dy * x), Nothing, Grad2::Linear(Some(|c, x| c.constant(2.0, &x)));
    /// `-dy y^2`.
    RecipGrad = "recip_grad", (float |dy, y| -dy * (y * y)), Nothing, Grad2::Linear(Some(|c, y| c.scale(y, -2.0)));
    /// `dy (1 + y^2)`.
    TanGrad = "tan_grad", (float |dy, y| dy * (F::lit(1.0) + y * y)), Nothing, Grad2::Linear(Some(|c, y| c.scale(y, 2.0)));
    /// `dy / sqrt(1 - x^2)`.
    AsinGrad = "asin_grad", (float |dy, x| dy / ((F::lit(1.0) - x) * (F::lit(1.0) + x)).sqrt()), Nothing,
        Grad2::Through(|c, dy, x| c.mul(dy, c.un(UnaryFn::Rsqrt, c.offset(c.neg(c.square(x)?)?, 1.0)?)?));
    /// `dy / (1 + x^2)`.
    AtanGrad = "atan_grad", (float |dy, x| dy / (F::lit(1.0) + x * x)), Nothing,
        Grad2::Through(|c, dy, x| c.div(dy, c.offset(c.square(x)?, 1.0)?));
    /// `dy (1 - y^2)`.
    TanhGrad = "tanh_grad", (float |dy, y| dy * (F::lit(1.0) - y * y)), Nothing, Grad2::Linear(Some(|c, y| c.scale(y, -2.0)));
    /// `dy / sqrt(x^2 + 1)`.
    AsinhGrad = "asinh_grad", (float |dy, x| dy / x.hypot(lit(1.0))), Nothing,
        Grad2::Through(|c, dy, x| c.mul(dy, c.un(UnaryFn::Rsqrt, c.offset(c.square(x)?, 1.0)?)?));
    /// `dy / sqrt(x^2 - 1)`.
    AcoshGrad = "acosh_grad", (float |dy, x| dy / ((x - lit(1.0)).sqrt() * (x + lit(1.0)).sqrt())), Nothing,
        Grad2::Through(|c, dy, x| c.mul(dy, c.un(UnaryFn::Rsqrt, c.offset(c.square(x)?, -1.0)?)?));
    /// `dy / (1 - x^2)`.
    AtanhGrad = "atanh_grad", (float |dy, x| dy / ((F::lit(1.0) - x) * (F::lit(1.0) + x))), Nothing,
        Grad2::Through(|c, dy, x| c.div(dy, c.offset(c.neg(c.square(x)?)?, 1.0)?));
    /// `dy y (1 - y)`.
    SigmoidGrad = "sigmoid_grad", (float |dy, y| dy * (y * (F::lit(1.0) - y))), Nothing,
        Grad2::Linear(Some(|c, y| c.offset(c.scale(y, -2.0)?, 1.0)));
    /// `dy sigmoid(-x)`.
    LogsigmoidGrad = "logsigmoid_grad", (float |dy, x| dy * (-x).sigmoid()), Nothing,
        Grad2::Through(|c, dy, x| c.mul(dy, c.un(UnaryFn::Sigmoid, c.neg(x)?)?));
    /// `dy sigmoid(x)`.
    SoftplusGrad = "softplus_grad", (float |dy, x| dy * x.sigmoid()), Nothing,
        Grad2::Through(|c, dy, x| c.mul(dy, c.un(UnaryFn::Sigmoid, x)?));
    /// `dy s (1 + x (1 - s))` with `s = sigmoid(x)`.
    SiluGrad = "silu_grad", (costly |dy, x| {
            let s = x.sigmoid();
            dy * (s * (F::lit(1.0) + x * (F::lit(1.0) - s)))
        }), Nothing,
        Grad2::Through(|c, dy, x| {
            let s = c.un(UnaryFn::Sigmoid, x)?;
            let inner = c.offset(c.sub(x, c.mul(x, s)?)?, 1.0)?;
            c.mul(dy, c.mul(s, inner)?)
        });
    /// `dy (t + x (1 - t^2) sigmoid(x))` with `t = tanh(ln(1 + e^x))`.
    MishGrad = "mish_grad", (costly |dy, x| {
            let e = x.exp();
            let d = e * (e + lit(2.0)) + lit(2.0);
            let bell = F::lit(4.0) * e * (e + lit(1.0)) / (d * d);
            x.gt(lit(20.0)).select(dy, dy * ((d - lit(2.0)) / d + x * bell))
        }), Nothing,
        Grad2::Through(|c, dy, x| {
            let t = c.un(UnaryFn::Tanh, c.un(UnaryFn::Softplus, x)?)?;
            let bell = c.mul(c.offset(c.neg(c.square(t)?)?, 1.0)?, c.un(UnaryFn::Sigmoid, x)?)?;
            c.mul(dy, c.add(t, c.mul(x, bell)?)?)
        });
    /// `dy / (1 + |x|)^2`.
    SoftsignGrad = "softsign_grad", (float |dy, x| {
            let r = F::lit(1.0) / (F::lit(1.0) + x.abs());
            dy * (r * r)
        }), Nothing,
        Grad2::Linear(Some(|c, x| {
            let r = c.un(UnaryFn::Recip, c.offset(c.un(UnaryFn::Abs, x)?, 1.0)?)?;
            c.scale(c.mul(c.un(UnaryFn::Sign, x)?, c.mul(c.square(r)?, r)?)?, -2.0)
        }));
    /// `dy (cdf(x) + x pdf(x))` with the normal distribution's functions.
    GeluGrad = "gelu_grad", (costly |dy, x| dy * x.gelu_slope()), Nothing,
        // h'(x) = pdf(x) (2 - x^2)
        Grad2::Linear(Some(|c, x| {
            let square = c.square(x)?;
            let pdf = c.scale(c.un(UnaryFn::Exp, c.scale(square, -0.5)?)?, INV_SQRT_TAU)?;
            c.mul(pdf, c.offset(c.neg(square)?, 2.0)?)
        }));
    /// `dy` times the derivative of the tanh form of GELU.
    GeluTanhGrad = "gelu_tanh_grad", (costly |dy, x| {
            let t = gelu_inner(x).tanh();
            let slope = F::lit(GELU_TANH_SCALE) * (F::lit(1.0) + F::lit(3.0) * F::lit(GELU_TANH_CUBE) * x * x);
            dy * (F::lit(0.5) * (F::lit(1.0) + t) + F::lit(0.5) * x * (F::lit(1.0) - t * t) * slope)
        }), Nothing,
        Grad2::Through(|c, dy, x| {
            let square = c.square(x)?;
            let u = c.mul(x, c.scale(c.offset(c.scale(square, GELU_TANH_CUBE)?, 1.0)?, GELU_TANH_SCALE)?)?;
            let slope = c.scale(c.offset(c.scale(square, 3.0 * GELU_TANH_CUBE)?, 1.0)?, GELU_TANH_SCALE)?;
            let t = c.un(UnaryFn::Tanh, u)?;
            let bell = c.mul(c.mul(x, slope)?, c.offset(c.neg(c.square(t)?)?, 1.0)?)?;
            c.mul(dy, c.scale(c.offset(c.add(t, bell)?, 1.0)?, 0.5)?)
        });
    /// `dy 2/sqrt(pi) e^(-x^2)`.
    ErfGrad = "erf_grad", (float |dy, x| dy * (F::lit(FRAC_2_SQRT_PI) * (-x * x).exp())), Nothing,
        Grad2::Linear(Some(|c, x| {
            let bell = c.un(UnaryFn::Exp, c.neg(c.square(x)?)?)?;
            c.scale(c.mul(x, bell)?, -2.0 * FRAC_2_SQRT_PI)
        }));
    /// `dy sqrt(pi)/2 e^(y^2)`.
    ErfinvGrad = "erfinv_grad", (float |dy, y| dy * ((y * y).exp() / F::lit(FRAC_2_SQRT_PI))), Nothing,
        Grad2::Linear(Some(|c, y| {
            let bell = c.un(UnaryFn::Exp, c.square(y)?)?;
            c.scale(c.mul(y, bell)?, 2.0 / FRAC_2_SQRT_PI)
        }));
}
