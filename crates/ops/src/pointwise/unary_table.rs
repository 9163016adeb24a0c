//! The table of unary functions: one row each with name, scalar form per class of types, and gradient rule.
//!
//! A form is a generic function of [`remat_kernels::scalar`], and gives the CPU's loops and an expression alike. In f32 these
//! rows call functions of a library, others are arithmetic throughout: `sin`, `cos` and `tan` of arguments from a million on,
//! `lgamma`, `digamma`, `i0`, `i0e`, `i1`, `i1e`, `j0`, `j1`, `erfcinv`.

use std::f64::consts::{LN_2, LOG2_E, LOG10_E};

use remat_kernels::maths;
use remat_kernels::scalar::{Fn64, Mask as _, lit};
use remat_types::Result;
use serde::{Deserialize, Serialize};

use super::loops::{Loops1, Tests1, loops};
use super::math::sign;
use super::{BinaryFn, UnaryFn::*};
use crate::Var;
use crate::backward::GradBuilder;
use crate::schema::Choice;

/// How the gradient of a unary function is had. `dy` has the output's shape, which is the input's.
pub(crate) enum Grad1 {
    /// Piecewise constant: no gradient flows.
    None,
    /// `dx = f(dy, x)`.
    FromX(BinaryFn),
    /// `dx = f(dy, y)`: the input need not be kept.
    FromY(BinaryFn),
    /// `dx = rule(dy, x)` with several ops.
    ChainX(fn(GradBuilder<'_, '_>, Var, Var) -> Result<Var>),
    /// `dx = rule(dy, y)` with several ops.
    ChainY(fn(GradBuilder<'_, '_>, Var, Var) -> Result<Var>),
}

/// The scalar form per type.
pub(crate) enum Form1 {
    /// The output has the input's dtype.
    Same(Loops1),
    /// The output is Bool.
    Test(Tests1),
}

/// One function.
pub(crate) struct Row1 {
    pub(crate) name: &'static str,
    pub(crate) form: Form1,
    pub(crate) grad: Grad1,
}

macro_rules! rows {
    ($($(#[$doc:meta])* $f:ident = $name:literal, $form:expr, $grad:expr;)*) => {
        /// A unary function. Integers wrap; a dtype outside a function's domain is an error of kind DType.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
        pub enum UnaryFn { $( $(#[$doc])* #[serde(rename = $name)] $f, )* }

        impl UnaryFn {
            /// Every function, in the order of the table.
            pub const ALL: &'static [UnaryFn] = &[$($f),*];
        }

        static ROWS: &[Row1] = &[$( Row1 { name: $name, form: $form, grad: $grad } ),*];
    };
}
macro_rules! same {
    // the loop of f32 is a function on slices, with the same bits
    (float |$x:ident| $e:expr, f32 $f:path) => {
        Form1::Same(Loops1 { f32: Some($f), ..loops!(Loops1, each1; float |$x| $e) })
    };
    ($($t:tt)*) => { Form1::Same(loops!(Loops1, each1; $($t)*)) };
}
macro_rules! test { ($($t:tt)*) => { Form1::Test(loops!(Tests1, each1; $($t)*)) }; }

pub(crate) fn row(f: UnaryFn) -> &'static Row1 {
    &ROWS[f as usize]
}

/// `y / x` of a function `y` of the first order, whose limit at 0 is a half.
fn over_argument(c: GradBuilder<'_, '_>, y: Var, x: Var) -> Result<Var> {
    c.add(c.bin(BinaryFn::DivOrZero, y, x)?, c.scale(c.un(ZeroTest, x)?, 0.5)?)
}

rows! {
    /// `max(x, 0)`; NaN stays, -0 gives 0. The derivative at 0 is 0.
    Relu = "relu", same!(float |x| x.le(lit(0.0)).select(lit(0.0), x), signed |x| x.larger(I::lit(0)), unsigned |x| x),
        Grad1::FromY(BinaryFn::ReluGrad);
    /// `|x|`; the least integer of its type stays itself. The derivative at 0 is 0.
    Abs = "abs", same!(float |x| x.abs(), signed |x| x.lt(I::lit(0)).select(x.wrapping_neg(), x), unsigned |x| x),
        Grad1::FromX(BinaryFn::AbsGrad);
    /// `-x`; integers wrap.
    Neg = "neg", same!(float |x| -x, int |x| x.wrapping_neg()), Grad1::ChainX(|c, dy, _| c.neg(dy));
    /// `e^x`.
    Exp = "exp", same!(costly |x| x.exp()), Grad1::FromY(BinaryFn::Mul);
    /// `e^x - 1`, accurate near 0.
    Expm1 = "expm1", same!(costly |x| x.exp_m1()), Grad1::FromY(BinaryFn::Expm1Grad);
    /// `ln x`: -inf at 0, NaN below.
    Log = "log", same!(costly |x| x.ln()), Grad1::FromX(BinaryFn::Div);
    /// `ln(1 + x)`, accurate near 0.
    Log1p = "log1p", same!(costly |x| x.ln_1p()), Grad1::FromX(BinaryFn::Log1pGrad);
    /// `log_2 x`: -inf at 0, NaN below.
    Log2 = "log2", same!(costly |x| x.log2()), Grad1::ChainX(|c, dy, x| c.scale(c.div(dy, x)?, LOG2_E));
    /// `log_10 x`: -inf at 0, NaN below.
    Log10 = "log10", same!(costly |x| x.log10()), Grad1::ChainX(|c, dy, x| c.scale(c.div(dy, x)?, LOG10_E));
    /// `2^x`.
    Exp2 = "exp2", same!(costly |x| x.exp2()), Grad1::ChainY(|c, dy, y| c.scale(c.mul(dy, y)?, LN_2));
    /// `ln |gamma(x)|` with the gamma function: infinite at 0, -1, -2 and so on.
    Lgamma = "lgamma", same!(float |x| x.by(Fn64::Lgamma)), Grad1::ChainX(|c, dy, x| c.mul(dy, c.un(Digamma, x)?));
    /// The derivative of `lgamma`: NaN at -1, -2 and so on, of the sign of `-x` and infinite at 0.
    Digamma = "digamma", same!(float |x| x.by(Fn64::Digamma)),
        Grad1::ChainX(|c, dy, x| c.mul(dy, c.bin(BinaryFn::Zeta, c.constant(2.0, &x)?, x)?));
    /// The modified Bessel function of the first kind of order 0.
    I0 = "i0", same!(float |x| x.by(Fn64::I0)), Grad1::ChainX(|c, dy, x| c.mul(dy, c.un(I1, x)?));
    /// `e^-|x| i0(x)`.
    I0e = "i0e", same!(float |x| x.by(Fn64::I0e)),
        Grad1::ChainX(|c, dy, x| c.mul(dy, c.sub(c.un(I1e, x)?, c.mul(c.un(Sign, x)?, c.un(I0e, x)?)?)?));
    /// The modified Bessel function of the first kind of order 1.
    I1 = "i1", same!(float |x| x.by(Fn64::I1)),
        Grad1::ChainX(|c, dy, x| c.mul(dy, c.sub(c.un(I0, x)?, over_argument(c, c.un(I1, x)?, x)?)?));
    /// `e^-|x| i1(x)`.
    I1e = "i1e", same!(float |x| x.by(Fn64::I1e)),
        Grad1::ChainX(|c, dy, x| {
            let y = c.un(I1e, x)?;
            let slope = c.sub(c.un(I0e, x)?, c.mul(c.un(Sign, x)?, y)?)?;
            c.mul(dy, c.sub(slope, over_argument(c, y, x)?)?)
        });
    /// The Bessel function of the first kind of order 0.
    J0 = "j0", same!(float |x| x.by(Fn64::J0)), Grad1::ChainX(|c, dy, x| c.neg(c.mul(dy, c.un(J1, x)?)?));
    /// The Bessel function of the first kind of order 1.
    J1 = "j1", same!(float |x| x.by(Fn64::J1)),
        Grad1::ChainX(|c, dy, x| c.mul(dy, c.sub(c.un(J0, x)?, over_argument(c, c.un(J1, x)?, x)?)?));
    /// `sqrt x`: NaN below 0. The derivative at 0 is infinite.
    Sqrt = "sqrt", same!(float |x| x.sqrt()), Grad1::FromY(BinaryFn::SqrtGrad);
    /// `1 / sqrt x`.
    Rsqrt = "rsqrt", same!(float |x| F::lit(1.0) / x.sqrt()), Grad1::FromY(BinaryFn::RsqrtGrad);
    /// `x * x`.
    Square = "square", same!(float |x| x * x, int |x| x.wrapping_mul(x)), Grad1::FromX(BinaryFn::SquareGrad);
    /// `1 / x`.
    Recip = "recip", same!(float |x| F::lit(1.0) / x), Grad1::FromY(BinaryFn::RecipGrad);
    /// `sin x`, in radians.
    Sin = "sin", same!(float |x| x.sin(), f32 maths::sin_each), Grad1::ChainX(|c, dy, x| c.mul(dy, c.un(Cos, x)?));
    /// `cos x`.
    Cos = "cos", same!(float |x| x.cos(), f32 maths::cos_each), Grad1::ChainX(|c, dy, x| c.neg(c.mul(dy, c.un(Sin, x)?)?));
    /// `tan x`.
    Tan = "tan", same!(float |x| x.tan(), f32 maths::tan_each), Grad1::FromY(BinaryFn::TanGrad);
    /// `arcsin x`: NaN outside -1 ..= 1.
    Asin = "asin", same!(costly |x| x.asin()), Grad1::FromX(BinaryFn::AsinGrad);
    /// `arccos x`: NaN outside -1 ..= 1.
    Acos = "acos", same!(costly |x| x.acos()), Grad1::ChainX(|c, dy, x| c.neg(c.bin(BinaryFn::AsinGrad, dy, x)?));
    /// `arctan x`.
    Atan = "atan", same!(costly |x| x.atan()), Grad1::FromX(BinaryFn::AtanGrad);
    /// `sinh x`.
    Sinh = "sinh", same!(costly |x| x.sinh()), Grad1::ChainX(|c, dy, x| c.mul(dy, c.un(Cosh, x)?));
    /// `cosh x`.
    Cosh = "cosh", same!(costly |x| x.cosh()), Grad1::ChainX(|c, dy, x| c.mul(dy, c.un(Sinh, x)?));
    /// `tanh x`.
    Tanh = "tanh", same!(costly |x| x.tanh()), Grad1::FromY(BinaryFn::TanhGrad);
    /// `arsinh x`.
    Asinh = "asinh", same!(costly |x| x.asinh()), Grad1::FromX(BinaryFn::AsinhGrad);
    /// `arcosh x`: NaN below 1.
    Acosh = "acosh", same!(costly |x| x.acosh()), Grad1::FromX(BinaryFn::AcoshGrad);
    /// `artanh x`: infinite at -1 and 1, NaN outside.
    Atanh = "atanh", same!(costly |x| x.atanh()), Grad1::FromX(BinaryFn::AtanhGrad);
    /// `1 / (1 + e^-x)`.
    Sigmoid = "sigmoid", same!(costly |x| x.sigmoid()), Grad1::FromY(BinaryFn::SigmoidGrad);
    /// `ln sigmoid(x) = -ln(1 + e^-x)`, without overflow.
    Logsigmoid = "logsigmoid", same!(costly |x| -(-x).softplus()), Grad1::FromX(BinaryFn::LogsigmoidGrad);
    /// `ln(1 + e^x)`, without overflow.
    Softplus = "softplus", same!(costly |x| x.softplus()), Grad1::FromX(BinaryFn::SoftplusGrad);
    /// `x sigmoid(x)` (Elfwing et al., 2017, arXiv:1702.03118). NaN at -inf, the limit there being 0.
    Silu = "silu", same!(costly |x| x.silu()), Grad1::FromX(BinaryFn::SiluGrad);
    /// `x (1 + erf(x / sqrt 2)) / 2` (Hendrycks and Gimpel, 2016, arXiv:1606.08415).
    Gelu = "gelu", same!(costly |x| x.gelu()), Grad1::FromX(BinaryFn::GeluGrad);
    /// `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, the tanh form of GELU from the same paper.
    GeluTanh = "gelu_tanh", same!(costly |x| x.gelu_tanh()),
        Grad1::FromX(BinaryFn::GeluTanhGrad);
    /// The error function.
    Erf = "erf", same!(costly |x| x.erf()), Grad1::FromX(BinaryFn::ErfGrad);
    /// `1 - erf x`, accurate in the tail.
    Erfc = "erfc", same!(costly |x| x.erfc()), Grad1::ChainX(|c, dy, x| c.neg(c.bin(BinaryFn::ErfGrad, dy, x)?));
    /// The inverse of erf: infinite at -1 and 1, NaN outside.
    Erfinv = "erfinv", same!(costly |x| x.erfinv()), Grad1::FromY(BinaryFn::ErfinvGrad);
    /// The inverse of erfc: infinite at 0 and 2, NaN outside.
    Erfcinv = "erfcinv", same!(float |x| x.by(Fn64::Erfcinv)),
        Grad1::ChainY(|c, dy, y| c.neg(c.bin(BinaryFn::ErfinvGrad, dy, y)?));
    /// The largest integer not above `x`.
    Floor = "floor", same!(float |x| x.floor(), int |x| x), Grad1::None;
    /// The smallest integer not below `x`.
    Ceil = "ceil", same!(float |x| x.ceil(), int |x| x), Grad1::None;
    /// The nearest integer; halves go away from zero.
    Round = "round", same!(float |x| x.round(), int |x| x), Grad1::None;
    /// The nearest integer; halves go to the even one.
    RoundEven = "round_even", same!(float |x| x.round_ties_even(), int |x| x), Grad1::None;
    /// The integer part, towards zero.
    Trunc = "trunc", same!(float |x| x.trunc(), int |x| x), Grad1::None;
    /// -1, 0 or 1; NaN stays, a zero keeps its sign.
    Sign = "sign", same!(float |x| sign(x), signed |x| x.larger(I::lit(-1)).smaller(I::lit(1)),
        unsigned |x| x.smaller(I::lit(1))), Grad1::None;
    /// 1 where x is 0, else 0.
    ZeroTest = "zero_test", same!(float |x| x.eq(lit(0.0)).select(lit(1.0), lit(0.0))), Grad1::None;
    /// `min(max(x, 0), 6)`; NaN stays. The derivative at 0 and at 6 is 0.
    Relu6 = "relu6", same!(float |x| x.clamped(lit(0.0), lit(6.0))),
        Grad1::FromX(BinaryFn::Relu6Grad);
    /// `min(max(x + 3, 0), 6) / 6`; NaN stays. The derivative at -3 and at 3 is 0.
    Hsigmoid = "hsigmoid", same!(float |x| {
            x.le(lit(-3.0)).select(lit(0.0), x.ge(lit(3.0)).select(lit(1.0), (x + lit(3.0)) / lit(6.0)))
        }),
        Grad1::FromX(BinaryFn::HsigmoidGrad);
    /// `x hsigmoid(x)` (Howard et al., 2019, arXiv:1905.02244). The derivative at -3 is 0, at 3 it is 1.
    Hswish = "hswish", same!(float |x| {
            x.le(lit(-3.0)).select(lit(0.0), x.ge(lit(3.0)).select(x, x * (x + lit(3.0)) / lit(6.0)))
        }),
        Grad1::FromX(BinaryFn::HswishGrad);
    /// `x tanh(ln(1 + e^x))` (Misra, 2019, arXiv:1908.08681). NaN at -inf, the limit there being 0.
    Mish = "mish", same!(costly |x| {
            let e = x.exp();
            let n = e * (e + lit(2.0));
            x.gt(lit(20.0)).select(x, x * (n / (n + lit(2.0))))
        }), Grad1::FromX(BinaryFn::MishGrad);
    /// `x / (1 + |x|)`.
    Softsign = "softsign", same!(float |x| x / (F::lit(1.0) + x.abs())), Grad1::FromX(BinaryFn::SoftsignGrad);
    /// True for NaN.
    IsNan = "is_nan", test!(float |x| x.is_nan()), Grad1::None;
    /// True for either infinity.
    IsInf = "is_inf", test!(float |x| x.is_infinite()), Grad1::None;
    /// True for neither NaN nor an infinity.
    IsFinite = "is_finite", test!(float |x| x.is_finite()), Grad1::None;
    /// Not, of Bool.
    LogicalNot = "logical_not", same!(bool |x| x.negated()), Grad1::None;
    /// The complement of each bit.
    BitNot = "bit_not", same!(int |x| !x), Grad1::None;
}
