//! Functions that expressions call by name, for no transcription of them exists: those of the standard library (the
//! system's C library), of libm (musl's, in Rust) and of Cephes (spec_math), and what is made of these with branches.
//!
//! A generator brings its own, with the errors that these have; results have the CPU's bits as far as its functions do.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

macro_rules! library {
    ($(#[$doc:meta])* $name:ident $given:tt ($($x:ident: $t:ty),+) -> $y:ty: $($(#[$each:meta])* $f:ident => $value:expr;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[$each])* $f, )* }

        impl $name {
            /// The value that the CPU's loops have.
            #[inline(always)]
            pub fn call(self, $($x: $t),+) -> $y {
                match self { $( $name::$f => ($value)$given, )* }
            }
        }
    };
}

library! {
    /// A function of f32 of the standard library.
    Fn32 (x) (x: f32) -> f32:
    /// The sine of numbers from a million on, NaN at infinities.
    Sin => f32::sin;
    /// The cosine of such.
    Cos => f32::cos;
    /// The tangent of such.
    Tan => f32::tan;
    /// The natural logarithm.
    Ln => f32::ln;
    /// `ln(1 + x)`.
    Ln1p => f32::ln_1p;
}

library! {
    /// A function of f64. Of the standard library unless told.
    Fn64 (x) (x: f64) -> f64:
    /// `e^x`.
    Exp => f64::exp;
    /// `e^x - 1`.
    ExpM1 => f64::exp_m1;
    /// `2^x`.
    Exp2 => f64::exp2;
    /// The natural logarithm.
    Ln => f64::ln;
    /// `ln(1 + x)`.
    Ln1p => f64::ln_1p;
    /// The logarithm to base 2.
    Log2 => f64::log2;
    /// The logarithm to base 10.
    Log10 => f64::log10;
    /// The sine.
    Sin => f64::sin;
    /// The cosine.
    Cos => f64::cos;
    /// The tangent.
    Tan => f64::tan;
    /// The arc sine.
    Asin => f64::asin;
    /// The arc cosine.
    Acos => f64::acos;
    /// The arc tangent.
    Atan => f64::atan;
    /// The hyperbolic sine.
    Sinh => f64::sinh;
    /// The hyperbolic cosine.
    Cosh => f64::cosh;
    /// The hyperbolic tangent.
    Tanh => f64::tanh;
    /// The inverse hyperbolic sine, as the standard library makes it of logarithms.
    Asinh => f64::asinh;
    /// The inverse hyperbolic cosine, as the standard library makes it of logarithms.
    Acosh => f64::acosh;
    /// The inverse hyperbolic tangent, as the standard library makes it of logarithms.
    Atanh => f64::atanh;
    /// libm's error function.
    Erf => libm::erf;
    /// libm's `1 - erf(x)`.
    Erfc => libm::erfc;
    /// The inverse of the error function by Halley's iteration on libm's.
    Erfinv => erfinv;
    /// The inverse of `1 - erf(x)`.
    Erfcinv => erfcinv;
    /// libm's `ln |gamma(x)|`.
    Lgamma => libm::lgamma;
    /// The derivative of that: Cephes' `psi`, with limits.
    Digamma => special::digamma;
    /// Cephes' modified Bessel function of the first kind of order 0.
    I0 => special::i0;
    /// `e^-|x|` times that.
    I0e => special::i0e;
    /// Cephes' modified Bessel function of the first kind of order 1.
    I1 => special::i1;
    /// `e^-|x|` times that.
    I1e => special::i1e;
    /// libm's Bessel function of the first kind of order 0.
    J0 => libm::j0;
    /// libm's Bessel function of the first kind of order 1.
    J1 => libm::j1;
}

library! {
    /// A function of two numbers of f64. Of the standard library unless told.
    Fn64x2 (a, b) (a: f64, b: f64) -> f64:
    /// The angle of the point (b, a).
    Atan2 => f64::atan2;
    /// `a^b`.
    Pow => f64::powf;
    /// `sqrt(a^2 + b^2)` without overflow.
    Hypot => f64::hypot;
    /// Cephes' Hurwitz zeta function, with limits.
    Zeta => special::zeta;
    /// Cephes' regularised lower incomplete gamma function `P(a, b)`, with limits.
    GammaInc => special::gammainc;
    /// `1 - P(a, b)`.
    GammaIncc => special::gammaincc;
    /// `-(dP/da) / (dP/db)`, of differences of these.
    GammaSlope => special::gamma_slope;
    /// That of the number whose logarithm is `b`, divided by the number.
    GammaLogSlope => special::gamma_log_slope;
}

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
mod special {
    use spec_math::cephes64 as c;

    /// `ln |gamma(x)|`.
    pub(super) fn lgamma(x: f64) -> f64 {
        libm::lgamma(x)
    }

    /// The logarithmic derivative of gamma.
    pub(super) fn digamma(x: f64) -> f64 {
        if x == 0.0 {
            return f64::INFINITY.copysign(-x);
        }
        if x < 0.0 && x == x.floor() || x == f64::NEG_INFINITY {
            return f64::NAN;
        }
        if x.is_finite() { c::psi(x) } else { x }
    }

    pub(super) fn i0(x: f64) -> f64 {
        if x.is_infinite() { f64::INFINITY } else { c::i0(x) }
    }

    pub(super) fn i0e(x: f64) -> f64 {
        if x.is_infinite() { 0.0 } else { c::i0e(x) }
    }

    pub(super) fn i1(x: f64) -> f64 {
        if x.is_infinite() { x } else { c::i1(x) }
    }

    pub(super) fn i1e(x: f64) -> f64 {
        if x.is_infinite() { 0.0f64.copysign(x) } else { c::i1e(x) }
    }

    /// Hurwitz' zeta function.
    pub(super) fn zeta(x: f64, q: f64) -> f64 {
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

    pub(super) fn gammainc(a: f64, x: f64) -> f64 {
        edge(a, x).unwrap_or_else(|| c::igam(a, x))
    }

    pub(super) fn gammaincc(a: f64, x: f64) -> f64 {
        edge(a, x).map_or_else(|| c::igamc(a, x), |p| 1.0 - p)
    }

    /// `-(dP/da) / (dP/dx)` at `P(a, x)`. The numerator by a difference of the tail that is smaller, which keeps its digits.
    pub(super) fn gamma_slope(a: f64, x: f64) -> f64 {
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
    pub(super) fn gamma_log_slope(a: f64, ln_x: f64) -> f64 {
        /// Below it `P(a, x)` is `x^a / gamma(a + 1)` to all digits.
        const SMALL: f64 = -40.0;
        if ln_x < SMALL && a > 0.0 && a.is_finite() {
            return (digamma(a + 1.0) - ln_x) / a;
        }
        let x = ln_x.exp();
        gamma_slope(a, x) / x
    }
}
