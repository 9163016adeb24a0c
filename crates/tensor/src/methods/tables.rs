//! Methods that are rows of a table, each with its example.

use remat_ops::pointwise::{BinaryFn, CompareFn, Unary, UnaryFn};
use remat_types::Result;

use super::IntoOperand;
use crate::Tensor;

/// Puts the common first and last lines around an example.
macro_rules! example {
    ($($line:expr),*) => {
        concat!(
            "```\n# use remat_tensor::Tensor;\n# let device = remat_runtime::Device::cpu(Default::default())?;\n",
            $($line,)*
            "\n# Ok::<(), remat_types::Error>(())\n```"
        )
    };
}

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $name:ident => $f:ident: [$($x:expr),*] => $t:ident [$($y:expr),*];)*) => {
        impl Tensor { $(
            $(#[$doc])*
            /// Errors: DType outside the function's domain.
            ///
            #[doc = example!(
                "let x = Tensor::new(&device, &[", stringify!($($x),*), "], [2])?;\n",
                "assert_eq!(x.", stringify!($name), "()?.to_vec::<", stringify!($t), ">()?, [", stringify!($($y),*), "]);"
            )]
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                Tensor::apply1(Unary { f: UnaryFn::$f }, &[self])
            }
        )* }
    };
}

unary_methods! {
    /// `max(x, 0)`; the derivative at 0 is 0.
    relu => Relu: [-1.0, 2.0] => f32 [0.0, 2.0];
    /// `min(max(x, 0), 6)`.
    relu6 => Relu6: [-1.0, 7.0] => f32 [0.0, 6.0];
    /// `|x|`.
    abs => Abs: [-1.5, 2.0] => f32 [1.5, 2.0];
    /// `-x`.
    neg => Neg: [-1.5, 2.0] => f32 [1.5, -2.0];
    /// `e^x`.
    exp => Exp: [0.0, f32::NEG_INFINITY] => f32 [1.0, 0.0];
    /// `e^x - 1`, accurate near 0.
    expm1 => Expm1: [0.0, 1e-20] => f32 [0.0, 1e-20];
    /// `ln x`.
    log => Log: [1.0, 0.0] => f32 [0.0, f32::NEG_INFINITY];
    /// `ln(1 + x)`, accurate near 0.
    log1p => Log1p: [0.0, 1e-20] => f32 [0.0, 1e-20];
    /// `sqrt x`.
    sqrt => Sqrt: [4.0, 2.25] => f32 [2.0, 1.5];
    /// `1 / sqrt x`.
    rsqrt => Rsqrt: [4.0, 0.25] => f32 [0.5, 2.0];
    /// `x^2`.
    square => Square: [-3.0, 0.5] => f32 [9.0, 0.25];
    /// `1 / x`.
    #[doc(alias = "reciprocal")]
    recip => Recip: [-4.0, 0.5] => f32 [-0.25, 2.0];
    /// `sin x`.
    sin => Sin: [0.0, std::f32::consts::FRAC_PI_2] => f32 [0.0, 1.0];
    /// `cos x`.
    cos => Cos: [0.0, std::f32::consts::PI] => f32 [1.0, -1.0];
    /// `tan x`.
    tan => Tan: [0.0, -0.0] => f32 [0.0, 0.0];
    /// `arcsin x`.
    asin => Asin: [0.0, 1.0] => f32 [0.0, std::f32::consts::FRAC_PI_2];
    /// `arccos x`.
    acos => Acos: [1.0, -1.0] => f32 [0.0, std::f32::consts::PI];
    /// `arctan x`.
    atan => Atan: [0.0, f32::INFINITY] => f32 [0.0, std::f32::consts::FRAC_PI_2];
    /// `sinh x`.
    sinh => Sinh: [0.0, f32::INFINITY] => f32 [0.0, f32::INFINITY];
    /// `cosh x`.
    cosh => Cosh: [0.0, f32::INFINITY] => f32 [1.0, f32::INFINITY];
    /// `tanh x`.
    tanh => Tanh: [0.0, 100.0] => f32 [0.0, 1.0];
    /// `arsinh x`.
    asinh => Asinh: [0.0, f32::INFINITY] => f32 [0.0, f32::INFINITY];
    /// `arcosh x`.
    acosh => Acosh: [1.0, f32::INFINITY] => f32 [0.0, f32::INFINITY];
    /// `artanh x`.
    atanh => Atanh: [0.0, 1.0] => f32 [0.0, f32::INFINITY];
    /// `1 / (1 + e^-x)`.
    sigmoid => Sigmoid: [0.0, 100.0] => f32 [0.5, 1.0];
    /// `ln sigmoid(x)`.
    logsigmoid => Logsigmoid: [-1000.0, 1000.0] => f32 [-1000.0, 0.0];
    /// `ln(1 + e^x)`.
    softplus => Softplus: [-1000.0, 1000.0] => f32 [0.0, 1000.0];
    /// `x sigmoid(x)`.
    silu => Silu: [0.0, 100.0] => f32 [0.0, 100.0];
    /// `x Phi(x)`, with the normal distribution function by erf.
    gelu => Gelu: [0.0, 100.0] => f32 [0.0, 100.0];
    /// The tanh approximation of GELU.
    gelu_tanh => GeluTanh: [0.0, 100.0] => f32 [0.0, 100.0];
    /// The error function.
    erf => Erf: [0.0, 10.0] => f32 [0.0, 1.0];
    /// `1 - erf x`.
    erfc => Erfc: [0.0, -10.0] => f32 [1.0, 2.0];
    /// The inverse of erf.
    erfinv => Erfinv: [0.0, 1.0] => f32 [0.0, f32::INFINITY];
    /// The inverse of erfc.
    erfcinv => Erfcinv: [1.0, 0.0] => f32 [0.0, f32::INFINITY];
    /// The largest whole number not above x.
    floor => Floor: [-1.5, 2.5] => f32 [-2.0, 2.0];
    /// The smallest whole number not below x.
    ceil => Ceil: [-1.5, 2.5] => f32 [-1.0, 3.0];
    /// The nearest whole number, halves to the even one, as in NumPy.
    round => RoundEven: [-1.5, 2.5] => f32 [-2.0, 2.0];
    /// The nearest whole number, halves away from zero.
    round_away => Round: [-1.5, 2.5] => f32 [-2.0, 3.0];
    /// x without its fraction.
    trunc => Trunc: [-1.5, 2.5] => f32 [-1.0, 2.0];
    /// -1, 0 or 1.
    sign => Sign: [-1.5, 0.0] => f32 [-1.0, 0.0];
    /// `min(max(x + 3, 0), 6) / 6`.
    #[doc(alias = "hardsigmoid")]
    hsigmoid => Hsigmoid: [0.0, 3.0] => f32 [0.5, 1.0];
    /// `x hsigmoid(x)`.
    #[doc(alias = "hardswish")]
    hswish => Hswish: [0.0, 3.0] => f32 [0.0, 3.0];
    /// `x tanh(ln(1 + e^x))`.
    mish => Mish: [0.0f32, 100.0] => f32 [0.0, 100.0];
    /// `x / (1 + |x|)`.
    softsign => Softsign: [-1.0f32, 3.0] => f32 [-0.5, 0.75];
    /// `log_2 x`: -inf at 0, NaN below.
    log2 => Log2: [8.0, 1.0] => f32 [3.0, 0.0];
    /// `log_10 x`: -inf at 0, NaN below.
    log10 => Log10: [1000.0, 1.0] => f32 [3.0, 0.0];
    /// `2^x`.
    exp2 => Exp2: [3.0, -1.0] => f32 [8.0, 0.5];
    /// `ln |gamma(x)|` of the gamma function.
    lgamma => Lgamma: [1.0, 3.0] => f32 [0.0, 2f32.ln()];
    /// The derivative of [`Tensor::lgamma`].
    digamma => Digamma: [1.0, 2.0] => f32 [-0.577_215_7, 0.422_784_33];
    /// The modified Bessel function of the first kind of order 0.
    i0 => I0: [0.0, 1.0] => f32 [1.0, 1.266_065_8];
    /// `e^-|x|` times [`Tensor::i0`].
    i0e => I0e: [0.0, f32::INFINITY] => f32 [1.0, 0.0];
    /// The modified Bessel function of the first kind of order 1.
    i1 => I1: [0.0, 1.0] => f32 [0.0, 0.565_159_1];
    /// `e^-|x|` times [`Tensor::i1`].
    i1e => I1e: [0.0, f32::INFINITY] => f32 [0.0, 0.0];
    /// The Bessel function of the first kind of order 0.
    bessel_j0 => J0: [0.0, 1.0] => f32 [1.0, 0.765_197_7];
    /// The Bessel function of the first kind of order 1.
    bessel_j1 => J1: [0.0, 1.0] => f32 [0.0, 0.440_050_57];
    /// Whether x is no number.
    is_nan => IsNan: [1.0, f32::NAN] => bool [false, true];
    /// Whether x is infinite.
    is_inf => IsInf: [1.0, f32::NEG_INFINITY] => bool [false, true];
    /// Whether x is neither.
    is_finite => IsFinite: [1.0, f32::NAN] => bool [true, false];
    /// `!x` of bools.
    logical_not => LogicalNot: [true, false] => bool [false, true];
    /// Every bit flipped.
    bit_not => BitNot: [0u8, 15] => u8 [255, 240];
}

macro_rules! binary_methods {
    ($($(#[$doc:meta])* $name:ident => $f:ident: [$($a:expr),*], [$($b:expr),*] => $t:ident [$($y:expr),*];)*) => {
        impl Tensor { $(
            $(#[$doc])*
            /// Shapes broadcast, dtypes are promoted. Errors: Shape, DType.
            ///
            #[doc = example!(
                "let a = Tensor::new(&device, &[", stringify!($($a),*), "], [2])?;\n",
                "let b = Tensor::new(&device, &[", stringify!($($b),*), "], [2])?;\n",
                "assert_eq!(a.", stringify!($name), "(&b)?.to_vec::<", stringify!($t), ">()?, [", stringify!($($y),*), "]);"
            )]
            #[track_caller]
            pub fn $name(&self, b: impl IntoOperand) -> Result<Tensor> {
                self.clone().binary(BinaryFn::$f, b)
            }
        )* }
    };
}

binary_methods! {
    /// `a + b`.
    add => Add: [1.0, 2.0], [10.0, 20.0] => f32 [11.0, 22.0];
    /// `a - b`.
    sub => Sub: [1.0, 2.0], [10.0, 20.0] => f32 [-9.0, -18.0];
    /// `a b`.
    mul => Mul: [1.0, 2.0], [10.0, 20.0] => f32 [10.0, 40.0];
    /// `a / b`; integers truncate, and division by zero is an error of kind Value at run time.
    div => Div: [1.0, 2.0], [4.0, 0.0] => f32 [0.25, f32::INFINITY];
    /// `floor(a / b)`, the whole number that [`Tensor::rem`] fits; -1 or 0 for an infinite `b`.
    floor_div => FloorDiv: [-7, 7], [2, 2] => i32 [-4, 3];
    /// `a - b floor(a / b)`: the sign of b.
    #[doc(alias = "remainder")]
    rem => Rem: [-7, 7], [3, -3] => i32 [2, -2];
    /// `a^b`.
    pow => Pow: [2.0, 9.0], [3.0, 0.5] => f32 [8.0, 3.0];
    /// The larger; NaN if either is. A tie shares the gradient.
    maximum => Max: [1.0, 5.0], [3.0, 2.0] => f32 [3.0, 5.0];
    /// The smaller; NaN if either is. A tie shares the gradient.
    minimum => Min: [1.0, 5.0], [3.0, 2.0] => f32 [1.0, 2.0];
    /// The angle of the point (b, a).
    atan2 => Atan2: [0.0, 1.0], [1.0, 0.0] => f32 [0.0, std::f32::consts::FRAC_PI_2];
    /// `ln(e^a + e^b)`.
    #[doc(alias = "logaddexp")]
    log_add_exp => LogAddExp: [-1000.0, 0.0], [-1000.0, f32::NEG_INFINITY] => f32 [-1000.0 + 2f32.ln(), 0.0];
    /// `-b ln p - (1 - b) ln(1 - p)` with `p = sigmoid(a)`: the binary cross-entropy of logits with targets within 0 ..= 1,
    /// without cancellation at either end.
    bce_with_logits => BceWithLogits: [0.0, 1000.0], [1.0, 0.0] => f32 [2f32.ln(), 1000.0];
    /// `sqrt(a^2 + b^2)` without overflow; the derivative at the origin is 0.
    hypot => Hypot: [3.0, 3e30], [4.0, 4e30] => f32 [5.0, 5e30];
    /// The remainder of the division towards zero, of the sign of `a`; [`Tensor::rem`] and `%` have the sign of `b`.
    fmod => Fmod: [-7.5, 7.5], [2.0, -2.0] => f32 [-1.5, 1.5];
    /// `|a|` with the sign of `b`. No gradient for `b`.
    copysign => Copysign: [1.0, -2.0], [-0.0, 1.0] => f32 [-1.0, 2.0];
    /// Hurwitz' zeta function `sum of 1 / (b + n)^a : n = 0, 1, ..`, for `a > 1`. No gradient for `a`.
    zeta => Zeta: [2.0, 1.0], [1.0, 1.0] => f32 [1.644_934_1, f32::INFINITY];
    /// The regularised lower incomplete gamma function `P(a, b)`. No gradient for `a`.
    gammainc => GammaInc: [1.0, 2.0], [2.0, 0.0] => f32 [0.864_664_73, 0.0];
    /// `1 - P(a, b)` without cancellation. No gradient for `a`.
    gammaincc => GammaIncc: [1.0, 2.0], [2.0, 0.0] => f32 [0.135_335_28, 1.0];
    /// `a & b`.
    bit_and => BitAnd: [12, 6], [10, 3] => i32 [8, 2];
    /// `a | b`.
    bit_or => BitOr: [12, 6], [10, 3] => i32 [14, 7];
    /// `a ^ b`.
    bit_xor => BitXor: [12, 6], [10, 3] => i32 [6, 5];
    /// `a << b`; 0 beyond the width.
    shl => Shl: [3, 1], [2, 32] => i32 [12, 0];
    /// `a >> b`; the sign's fill beyond the width.
    shr => Shr: [12, -1], [2, 32] => i32 [3, -1];
    /// Both, of bools.
    logical_and => LogicalAnd: [true, true], [true, false] => bool [true, false];
    /// Either, of bools.
    logical_or => LogicalOr: [true, false], [false, false] => bool [true, false];
    /// One of both, of bools.
    logical_xor => LogicalXor: [true, true], [true, false] => bool [false, true];
    /// `a > 0 ? a : a b`.
    prelu => Prelu: [-2.0, 3.0], [0.5, 0.5] => f32 [-1.0, 3.0];
}

macro_rules! compare_methods {
    ($($(#[$doc:meta])* $name:ident => $f:ident: [$($a:expr),*], [$($b:expr),*] => [$($y:expr),*];)*) => {
        impl Tensor { $(
            $(#[$doc])*
            /// As bools; shapes broadcast, dtypes are promoted. Errors: Shape.
            ///
            #[doc = example!(
                "let a = Tensor::new(&device, &[", stringify!($($a),*), "], [2])?;\n",
                "let b = Tensor::new(&device, &[", stringify!($($b),*), "], [2])?;\n",
                "assert_eq!(a.", stringify!($name), "(&b)?.to_vec::<bool>()?, [", stringify!($($y),*), "]);"
            )]
            #[track_caller]
            pub fn $name(&self, b: impl IntoOperand) -> Result<Tensor> {
                self.compare(CompareFn::$f, b)
            }
        )* }
    };
}

compare_methods! {
    /// `a == b`.
    eq => Eq: [1, 2], [1, 3] => [true, false];
    /// `a != b`.
    ne => Ne: [1, 2], [1, 3] => [false, true];
    /// `a < b`.
    lt => Lt: [1, 2], [1, 3] => [false, true];
    /// `a <= b`.
    le => Le: [1, 2], [1, 3] => [true, true];
    /// `a > b`.
    gt => Gt: [1, 2], [1, 3] => [false, false];
    /// `a >= b`.
    ge => Ge: [1, 2], [1, 3] => [true, false];
}
