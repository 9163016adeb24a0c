//! Scalar functions that std lacks, for f32 and f64.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

use remat_kernels::maths;

/// A float that pointwise functions compute in.
pub(crate) trait Real: Copy {
    /// `v` as a number of this type.
    fn like(self, v: f64) -> Self;
    /// A function of f64, rounded.
    fn by(self, f: fn(f64) -> f64) -> Self;
    /// A function of two of f64, rounded.
    fn with(self, b: Self, f: fn(f64, f64) -> f64) -> Self;
    /// `2/sqrt(pi) * integral of exp(-t^2) from 0 to x`.
    fn erf(self) -> Self;
    /// `1 - erf(x)` without cancellation.
    fn erfc(self) -> Self;
    /// The `x` with `erf(x) = self`; NaN outside -1 ..= 1.
    fn erfinv(self) -> Self;
    /// The `x` with `erfc(x) = self`; NaN outside 0 ..= 2.
    fn erfcinv(self) -> Self;
    /// `e^x`; in f32 the vectorised form of `kernels::float`, within 2 ulp.
    fn fast_exp(self) -> Self;
    /// `ln x`; in f32, as the next six, the vectorised form of `kernels::maths`, within 2 ulp.
    fn fast_ln(self) -> Self;
    /// `tanh x`.
    fn fast_tanh(self) -> Self;
    /// `e^x - 1`; in f32, as all up to `fast_atan2`, the vectorised form.
    fn fast_exp_m1(self) -> Self;
    /// `ln(1 + x)`.
    fn fast_ln_1p(self) -> Self;
    /// `log_2 x`.
    fn fast_log2(self) -> Self;
    /// `log_10 x`.
    fn fast_log10(self) -> Self;
    /// `2^x`.
    fn fast_exp2(self) -> Self;
    /// `sinh x`.
    fn fast_sinh(self) -> Self;
    /// `cosh x`.
    fn fast_cosh(self) -> Self;
    /// `arsinh x`.
    fn fast_asinh(self) -> Self;
    /// `arcosh x`.
    fn fast_acosh(self) -> Self;
    /// `artanh x`.
    fn fast_atanh(self) -> Self;
    /// `arcsin x`.
    fn fast_asin(self) -> Self;
    /// `arccos x`.
    fn fast_acos(self) -> Self;
    /// `arctan x`.
    fn fast_atan(self) -> Self;
    /// The angle of the point (b, self).
    fn fast_atan2(self, b: Self) -> Self;
    /// `self^b`.
    fn fast_pow(self, b: Self) -> Self;
    /// `sqrt(self^2 + b^2)` without overflow.
    fn fast_hypot(self, b: Self) -> Self;
    /// `1 / (1 + exp(-x))`.
    fn sigmoid(self) -> Self;
    /// `x sigmoid(x)`.
    fn silu(self) -> Self;
    /// `x` times the normal distribution function of `x`.
    fn gelu(self) -> Self;
    /// The tanh form of it.
    fn gelu_tanh(self) -> Self;
    /// `ln(1 + exp(x))` without overflow.
    fn softplus(self) -> Self;
    /// The derivative of it: the normal distribution function and `x` times the normal density.
    fn gelu_slope(self) -> Self;
    /// The argument of `tanh` in the tanh form of GELU: `sqrt(2/pi) (x + 0.044715 x^3)`.
    fn gelu_inner(self) -> Self;
    /// -1, 0 or 1; NaN stays. Zero keeps its sign.
    fn sign(self) -> Self;
    /// The floor of the exact `a / b`, which fits [`Real::floor_rem`]; `a / b` for `b = 0`, NaN for an infinite `a`.
    fn floor_div(self, b: Self) -> Self;
    /// The binary cross-entropy of the logit `self` with the target `y`, without cancellation.
    fn bce_with_logits(self, y: Self) -> Self;
    /// The binary cross-entropy of the probability `self` with the target `y`, of logarithms that are at least -100.
    fn bce(self, y: Self) -> Self;
    /// The derivative of that of a logit: `sigmoid(self) - y`.
    fn bce_slope(self, y: Self) -> Self;
    /// `a - b * floor(a / b)`, exactly: the remainder with the sign of `b`, which 0 has too; NaN for `b = 0`.
    fn floor_rem(self, b: Self) -> Self;
    /// `ln(exp(a) + exp(b))` without overflow; equal infinities give that infinity.
    fn log_add_exp(self, b: Self) -> Self;
}

macro_rules! real {
    ($($t:ident, $from:ident;)*) => { $(
        impl Real for $t {
            #[inline(always)]
            fn like(self, v: f64) -> Self { v as $t }
            #[inline(always)]
            fn by(self, f: fn(f64) -> f64) -> Self { f(f64::from(self)) as $t }
            #[inline(always)]
            fn with(self, b: Self, f: fn(f64, f64) -> f64) -> Self { f(f64::from(self), f64::from(b)) as $t }
            #[inline(always)]
            fn erf(self) -> Self { $from::erf(self) }
            #[inline(always)]
            fn erfc(self) -> Self { $from::erfc(self) }
            #[inline(always)]
            fn erfinv(self) -> Self { $from::erfinv(self) }
            #[inline]
            fn erfcinv(self) -> Self { erfcinv(f64::from(self)) as $t }
            #[inline(always)]
            fn fast_exp(self) -> Self { remat_kernels::float::Real::exp(self) }
            #[inline(always)]
            fn fast_ln(self) -> Self { $from::ln(self) }
            #[inline(always)]
            fn fast_tanh(self) -> Self { $from::tanh(self) }
            #[inline(always)]
            fn fast_exp_m1(self) -> Self { $from::exp_m1(self) }
            #[inline(always)]
            fn fast_ln_1p(self) -> Self { $from::ln_1p(self) }
            #[inline(always)]
            fn fast_log2(self) -> Self { $from::log2(self) }
            #[inline(always)]
            fn fast_log10(self) -> Self { $from::log10(self) }
            #[inline(always)]
            fn fast_exp2(self) -> Self { $from::exp2(self) }
            #[inline(always)]
            fn fast_sinh(self) -> Self { $from::sinh(self) }
            #[inline(always)]
            fn fast_cosh(self) -> Self { $from::cosh(self) }
            #[inline(always)]
            fn fast_asinh(self) -> Self { $from::asinh(self) }
            #[inline(always)]
            fn fast_acosh(self) -> Self { $from::acosh(self) }
            #[inline(always)]
            fn fast_atanh(self) -> Self { $from::atanh(self) }
            #[inline(always)]
            fn fast_asin(self) -> Self { $from::asin(self) }
            #[inline(always)]
            fn fast_acos(self) -> Self { $from::acos(self) }
            #[inline(always)]
            fn fast_atan(self) -> Self { $from::atan(self) }
            #[inline(always)]
            fn fast_atan2(self, b: Self) -> Self { $from::atan2(self, b) }
            #[inline(always)]
            fn fast_pow(self, b: Self) -> Self { $from::pow(self, b) }
            #[inline(always)]
            fn fast_hypot(self, b: Self) -> Self { $from::hypot(self, b) }
            #[inline(always)]
            fn sigmoid(self) -> Self { $from::sigmoid(self) }
            #[inline(always)]
            fn silu(self) -> Self { $from::silu(self) }
            #[inline(always)]
            fn gelu(self) -> Self { $from::gelu(self) }
            #[inline(always)]
            fn gelu_tanh(self) -> Self { $from::gelu_tanh(self) }
            #[inline(always)]
            fn softplus(self) -> Self { $from::softplus(self) }
            #[inline(always)]
            fn gelu_slope(self) -> Self { $from::gelu_slope(self) }
            #[inline(always)]
            fn gelu_inner(self) -> Self {
                std::$t::consts::FRAC_2_SQRT_PI * std::$t::consts::FRAC_1_SQRT_2 * (self + 0.044715 * self * self * self)
            }
            #[inline]
            fn sign(self) -> Self { if self > 0.0 { 1.0 } else if self < 0.0 { -1.0 } else { self } }
            #[inline]
            fn floor_rem(self, b: Self) -> Self {
                let r = self % b;
                if r == 0.0 { return (0.0 as $t).copysign(b); }
                if (r < 0.0) != (b < 0.0) { r + b } else { r }
            }
            #[inline]
            fn floor_div(self, b: Self) -> Self {
                if b == 0.0 { return self / b; }
                // as CPython's float_divmod: what is left is a multiple of b but for rounding
                let r = self % b;
                let q = (self - r) / b - if r != 0.0 && (r < 0.0) != (b < 0.0) { 1.0 } else { 0.0 };
                if q == 0.0 { return q.copysign(self / b); }
                let floor = q.floor();
                if q - floor > 0.5 { floor + 1.0 } else { floor }
            }
            #[inline(always)]
            fn bce_with_logits(self, y: Self) -> Self {
                let off = if self > 0.0 { 1.0 - y } else { y };
                let far = if off == 0.0 { 0.0 } else { self.abs() * off };
                far + $from::softplus_below(self)
            }
            #[inline]
            fn bce(self, y: Self) -> Self {
                let least = |log: $t| if log < -100.0 { -100.0 } else { log };
                0.0 - ((1.0 - y) * least((-self).ln_1p()) + y * least(self.ln()))
            }
            #[inline(always)]
            fn bce_slope(self, y: Self) -> Self {
                let tail = $from::sigmoid(-self.abs());
                if self > 0.0 { (1.0 - y) - tail } else { tail - y }
            }
            #[inline(always)]
            fn log_add_exp(self, b: Self) -> Self { $from::log_add_exp(self, b) }
        }
    )* };
}
real! {
    f32, maths;
    f64, exact;
}

/// In f64 as they are written, on the standard library's and libm's functions.
mod exact {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2};

    use super::Real;

    pub(super) use super::erfinv;
    pub(super) use libm::{erf, erfc};

    macro_rules! std_functions {
        ($($name:ident: $f:ident)*) => { $( pub(super) fn $name(x: f64) -> f64 { x.$f() } )* };
    }
    std_functions! {
        exp_m1: exp_m1 ln_1p: ln_1p log2: log2 log10: log10 exp2: exp2 sinh: sinh cosh: cosh asinh: asinh acosh: acosh
        atanh: atanh asin: asin acos: acos atan: atan
    }

    pub(super) fn atan2(a: f64, b: f64) -> f64 {
        a.atan2(b)
    }

    pub(super) fn pow(a: f64, b: f64) -> f64 {
        a.powf(b)
    }

    pub(super) fn hypot(a: f64, b: f64) -> f64 {
        a.hypot(b)
    }

    pub(super) fn softplus_below(x: f64) -> f64 {
        (-x.abs()).exp().ln_1p()
    }

    pub(super) fn softplus(x: f64) -> f64 {
        x.max(0.0) + softplus_below(x)
    }

    pub(super) fn log_add_exp(a: f64, b: f64) -> f64 {
        if a == b {
            return a + LN_2;
        }
        if a.is_nan() || b.is_nan() {
            return a + b;
        }
        a.max(b) + softplus_below(a - b)
    }

    pub(super) fn ln(x: f64) -> f64 {
        x.ln()
    }

    pub(super) fn tanh(x: f64) -> f64 {
        x.tanh()
    }

    pub(super) fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    pub(super) fn silu(x: f64) -> f64 {
        x * sigmoid(x)
    }

    fn normal_cdf(x: f64) -> f64 {
        0.5 * erfc(-x * FRAC_1_SQRT_2)
    }

    pub(super) fn gelu(x: f64) -> f64 {
        x * normal_cdf(x)
    }

    pub(super) fn gelu_slope(x: f64) -> f64 {
        const HEIGHT: f64 = 0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
        normal_cdf(x) + x * (HEIGHT * (-0.5 * x * x).exp())
    }

    pub(super) fn gelu_tanh(x: f64) -> f64 {
        0.5 * x * (1.0 + tanh(x.gelu_inner()))
    }
}

/// Integer functions; the divisor is not 0 and the exponent not negative, which the op has checked.
pub(crate) trait Int: Copy {
    /// `floor(a / b)`, wrapping.
    fn int_floor_div(self, b: Self) -> Self;
    /// `a - b floor(a / b)`, wrapping.
    fn int_floor_rem(self, b: Self) -> Self;
    /// `a^b`, wrapping.
    fn int_pow(self, b: Self) -> Self;
    /// `a` shifted left; 0 where `b`, which is not negative, is the width or more.
    fn int_shl(self, b: Self) -> Self;
    /// `a` shifted right, filled with the sign; where `b`, which is not negative, is the width or more, the filling.
    fn int_shr(self, b: Self) -> Self;
}

macro_rules! int {
    ($($t:ident)*) => { $(
        impl Int for $t {
            #[inline]
            fn int_floor_div(self, b: Self) -> Self {
                let (q, r) = (self.wrapping_div(b), self.wrapping_rem(b));
                if r != 0 && (r ^ b) >> (<$t>::BITS - 1) != 0 && <$t>::MIN != 0 { q.wrapping_sub(1) } else { q }
            }
            #[inline]
            fn int_floor_rem(self, b: Self) -> Self {
                let r = self.wrapping_rem(b);
                if r != 0 && (r ^ b) >> (<$t>::BITS - 1) != 0 && <$t>::MIN != 0 { r.wrapping_add(b) } else { r }
            }
            #[inline]
            fn int_pow(self, b: Self) -> Self {
                let (mut base, mut left, mut y) = (self, b, 1);
                while left > 0 {
                    if left & 1 == 1 { y = <$t>::wrapping_mul(y, base); }
                    base = base.wrapping_mul(base);
                    left >>= 1;
                }
                y
            }
            #[inline]
            fn int_shl(self, b: Self) -> Self {
                if b >= <$t>::BITS as $t { 0 } else { self << b }
            }
            #[inline]
            fn int_shr(self, b: Self) -> Self {
                let last = <$t>::BITS as $t - 1;
                // in two shifts, neither of which is as wide as the type
                if b > last { (self >> last) >> 1 } else { self >> b }
            }
        }
    )* };
}
int! { i8 i16 i32 i64 u8 u16 u32 u64 }

/// Steps of Halley's iteration from a start that is good to about six digits; each triples the digits.
const HALLEY_STEPS: usize = 2;

/// Inverse of erf. Start: M. Giles, "Approximating the erfinv function", GPU Computing Gems 2 (2010), single precision
/// form; then Halley's iteration on libm's erf, and on erfc towards the ends, where 1 - |p| is exact.
fn erfinv(p: f64) -> f64 {
    if p.abs() > 0.5 {
        return erfcinv_upper(1.0 - p.abs()).copysign(p);
    }
    let mut x = giles_start(p, -((1.0 - p) * (1.0 + p)).ln());
    for _ in 0..HALLEY_STEPS {
        let err = libm::erf(x) - p;
        x -= err / (FRAC_2_SQRT_PI * (-x * x).exp() + x * err);
    }
    x
}

/// Inverse of erfc; see [`erfinv`].
fn erfcinv(q: f64) -> f64 {
    match q {
        _ if q < 0.5 => erfcinv_upper(q),
        _ if q > 1.5 => -erfcinv_upper(2.0 - q),
        _ => erfinv(1.0 - q),
    }
}

/// The `x > 0` with `erfc(x) = q`, for `0 <= q < 0.5`.
fn erfcinv_upper(q: f64) -> f64 {
    if q <= 0.0 || q.is_nan() {
        return if q == 0.0 { f64::INFINITY } else { f64::NAN };
    }
    let w = -(q * (2.0 - q)).ln();
    // beyond Giles's range: erfc(x) ~ exp(-x^2) / (x sqrt pi), solved for x with x^2 ~ -ln q inside the logarithm
    let asymptotic = || (-q.ln() - 0.5 * (-PI * q.ln()).ln()).sqrt();
    let mut x = if w < 16.0 { giles_start(1.0, w) } else { asymptotic() };
    for _ in 0..HALLEY_STEPS + 2 {
        let err = libm::erfc(x) - q;
        x += err / (FRAC_2_SQRT_PI * (-x * x).exp() - x * err);
    }
    x
}

/// Giles's approximation of `erfinv(p)`, with `w = -ln(1 - p^2)`.
fn giles_start(p: f64, w: f64) -> f64 {
    const CENTRE: [f64; 9] = [
        2.810_226_36e-08,
        3.432_739_39e-07,
        -3.523_387_7e-06,
        -4.391_506_54e-06,
        0.000_218_580_87,
        -0.001_253_725_03,
        -0.004_177_681_64,
        0.246_640_727,
        1.501_409_41,
    ];
    const TAIL: [f64; 9] = [
        -0.000_200_214_257,
        0.000_100_950_558,
        0.001_349_343_22,
        -0.003_673_428_44,
        0.005_739_507_73,
        -0.007_622_461_3,
        0.009_438_870_47,
        1.001_674_06,
        2.832_976_82,
    ];
    let (w, c) = if w < 5.0 { (w - 2.5, CENTRE) } else { (w.sqrt() - 3.0, TAIL) };
    p * c.iter().fold(0.0, |sum, c| sum * w + c)
}

/// Special functions of Cephes (Moshier), with the limits that it leaves out.
pub(super) mod special {
    use spec_math::cephes64 as c;

    /// `ln |gamma(x)|`.
    pub(crate) fn lgamma(x: f64) -> f64 {
        libm::lgamma(x)
    }

    /// The logarithmic derivative of gamma.
    pub(crate) fn digamma(x: f64) -> f64 {
        if x == 0.0 {
            return f64::INFINITY.copysign(-x);
        }
        if x < 0.0 && x == x.floor() || x == f64::NEG_INFINITY {
            return f64::NAN;
        }
        if x.is_finite() { c::psi(x) } else { x }
    }

    pub(crate) fn i0(x: f64) -> f64 {
        if x.is_infinite() { f64::INFINITY } else { c::i0(x) }
    }

    pub(crate) fn i0e(x: f64) -> f64 {
        if x.is_infinite() { 0.0 } else { c::i0e(x) }
    }

    pub(crate) fn i1(x: f64) -> f64 {
        if x.is_infinite() { x } else { c::i1(x) }
    }

    pub(crate) fn i1e(x: f64) -> f64 {
        if x.is_infinite() { 0.0f64.copysign(x) } else { c::i1e(x) }
    }

    /// Hurwitz' zeta function.
    pub(crate) fn zeta(x: f64, q: f64) -> f64 {
        if x.is_nan() || q.is_nan() || x < 1.0 {
            return f64::NAN;
        }
        if x == 1.0 || q <= 0.0 && q == q.floor() {
            return f64::INFINITY;
        }
        if q < 0.0 && x != x.floor() {
            return f64::NAN;
        }
        if q == f64::INFINITY || x == f64::INFINITY {
            return if q < 1.0 { f64::INFINITY } else { f64::from(u8::from(q == 1.0)) };
        }
        c::zeta(x, q)
    }

    /// Where `P` and `Q` have a value that needs no series: the value of `P`.
    fn edge(a: f64, x: f64) -> Option<f64> {
        if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 || a.is_infinite() && x.is_infinite() {
            return Some(f64::NAN);
        }
        match () {
            () if a == 0.0 => Some(if x == 0.0 { f64::NAN } else { 1.0 }),
            () if x == 0.0 || a.is_infinite() => Some(0.0),
            () if x.is_infinite() => Some(1.0),
            () => None,
        }
    }

    pub(crate) fn gammainc(a: f64, x: f64) -> f64 {
        edge(a, x).unwrap_or_else(|| c::igam(a, x))
    }

    pub(crate) fn gammaincc(a: f64, x: f64) -> f64 {
        edge(a, x).map_or_else(|| c::igamc(a, x), |p| 1.0 - p)
    }

    /// `-(dP/da) / (dP/dx)` at `P(a, x)`. The numerator by a difference of the tail that is smaller, which keeps its digits.
    pub(crate) fn gamma_slope(a: f64, x: f64) -> f64 {
        if !(a > 0.0 && a.is_finite() && x > 0.0 && x.is_finite()) {
            return if x == 0.0 && a > 0.0 { 0.0 } else { f64::NAN };
        }
        // by four points: truncation is of the order of h^4, rounding of 1e-16 / h
        let h = 5e-4 * a;
        let (tail, sign): (fn(f64, f64) -> f64, f64) = if x < a { (gammainc, -1.0) } else { (gammaincc, 1.0) };
        let across = |by: f64| tail(a + by, x) - tail(a - by, x);
        let change = sign * (8.0 * across(h) - across(2.0 * h)) / (12.0 * h);
        change / ((a - 1.0) * x.ln() - x - lgamma(a)).exp()
    }

    /// [`gamma_slope`] for `ln x`.
    pub(crate) fn gamma_log_slope(a: f64, ln_x: f64) -> f64 {
        /// Below it `P(a, x)` is `x^a / gamma(a + 1)` to all digits.
        const SMALL: f64 = -40.0;
        if ln_x < SMALL && a > 0.0 && a.is_finite() {
            return (digamma(a + 1.0) - ln_x) / a;
        }
        let x = ln_x.exp();
        gamma_slope(a, x) / x
    }
}
