//! Exponentials less one, logarithms of one more, and what is made of them: powers and hyperbolic functions.

use std::f64::consts::{LN_2, LOG2_E, LOG10_E};

use super::{ROUND, exp64, polynomial};

/// From here on an exponential is infinite in f32, and below its negative it is less than the smallest number.
const FAR: f64 = 200.0;

/// `x` where it is within `FAR` of 0, else the bound; NaN stays.
#[inline(always)]
fn near(x: f64) -> f64 {
    let x = if x > FAR { FAR } else { x };
    if x < -FAR { -FAR } else { x }
}

/// `e^x - 1` for `|x| <= FAR`, within 2^-42 of it, however small.
#[inline(always)]
fn exp_m1_64(x: f64) -> f64 {
    let shifted = x.mul_add(LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN_2, x);
    let p = r * polynomial(
        r,
        [
            1.0,
            0.499_999_999_997_979_344,
            0.166_666_666_666_483_029,
            0.041_666_666_890_956_999_2,
            0.008_333_333_353_717_156_97,
            0.001_388_882_167_763_036_31,
            0.000_198_412_087_569_923_21,
            0.000_024_876_164_022_625_968_3,
            2.762_510_200_538_810_69e-6,
        ],
    );
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52));
    power.mul_add(p, power - 1.0)
}

/// The exponent of a positive normal number, and what its mantissa, taken from `sqrt(1/2)` to its double, is above 1.
#[inline(always)]
fn split(x: f64) -> (f64, f64) {
    const LEAST: u64 = 0x3fe6_a09e_0000_0000;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    /// 2^52, whose low bits are an integer.
    const INTEGER: f64 = 4_503_599_627_370_496.0;
    let bits = x.to_bits().wrapping_add(ONE - LEAST);
    let m = f64::from_bits((bits & ((1 << 52) - 1)) + LEAST);
    (f64::from_bits(INTEGER.to_bits() | bits >> 52) - (INTEGER + 1023.0), m - 1.0)
}

/// `ln(1 + m)` for a mantissa `1 + m` of [`split`], within 2^-52 of it.
#[inline(always)]
fn ln_near(m: f64) -> f64 {
    let s = m / (m + 2.0);
    s * polynomial(
        s * s,
        [
            2.0,
            0.666_666_666_666_676_471,
            0.399_999_999_993_014_856,
            0.285_714_287_608_349_307,
            0.222_221_970_360_782_394,
            0.181_836_328_031_802_759,
            0.153_124_980_779_139_244,
            0.148_100_248_017_036_997,
        ],
    )
}

/// Natural logarithm of a positive normal number, within 2^-50 of it: the power of a sum must not feel it.
#[inline(always)]
fn ln_fine(x: f64) -> f64 {
    let (e, m) = split(x);
    e.mul_add(LN_2, ln_near(m))
}

/// `ln(1 + x)` for `x > -1` that is finite, within 2^-50 of it, however small.
#[inline(always)]
pub(super) fn ln_1p_64(x: f64) -> f64 {
    let (e, m) = split(1.0 + x);
    // without an exponent nothing of x was lost
    let m = if e == 0.0 { x } else { m };
    e.mul_add(LN_2, ln_near(m))
}

/// `e^x - 1`, accurate near 0.
#[inline(always)]
pub fn exp_m1(x: f32) -> f32 {
    let y = exp_m1_64(near(f64::from(x))) as f32;
    if x == 0.0 { x } else { y }
}

/// `ln(1 + x)`, accurate near 0: -inf at -1, NaN below.
#[inline(always)]
pub fn ln_1p(x: f32) -> f32 {
    let y = ln_1p_64(f64::from(x)) as f32;
    let y = if x > -1.0 { y } else { f32::NAN };
    let y = if x == -1.0 { f32::NEG_INFINITY } else { y };
    if x == 0.0 || x == f32::INFINITY { x } else { y }
}

/// A logarithm whose scale is that of 2, times `unit`.
#[inline(always)]
fn scaled_log(x: f32, unit: f64, near: f64) -> f32 {
    let (e, m) = split(f64::from(x));
    let y = e.mul_add(unit, ln_near(m) * near) as f32;
    let y = if x > 0.0 { y } else { f32::NAN };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x == f32::INFINITY { x } else { y }
}

/// `log_2 x`: -inf at 0, NaN below; exact for powers of two.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    scaled_log(x, 1.0, LOG2_E)
}

/// `log_10 x`: -inf at 0, NaN below.
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    scaled_log(x, std::f64::consts::LOG10_2, LOG10_E)
}

/// `2^x`; exact for integers.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    exp64(near(f64::from(x) * LN_2)) as f32
}

/// `ln(1 + e^-a)` for `a` that is not below 0, or NaN.
#[inline(always)]
fn ln_1p_exp_neg(a: f64) -> f64 {
    let e = exp64(if a > FAR { -FAR } else { -a });
    let y = ln_1p_64(e);
    if e.is_nan() { e } else { y }
}

/// `ln(1 + e^-|x|)`, without overflow.
#[inline(always)]
pub fn softplus_below(x: f32) -> f32 {
    ln_1p_exp_neg(f64::from(x.abs())) as f32
}

/// `ln(1 + e^x)`, without overflow.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let above = if x > 0.0 { f64::from(x) } else { 0.0 };
    (above + ln_1p_exp_neg(f64::from(x.abs()))) as f32
}

/// `ln(e^a + e^b)` without overflow; equal infinities give that infinity.
#[inline(always)]
pub fn log_add_exp(a: f32, b: f32) -> f32 {
    let (x, y) = (f64::from(a), f64::from(b));
    let most = if x > y { x } else { y };
    let apart = if a == b { 0.0 } else { (x - y).abs() };
    (most + ln_1p_exp_neg(apart)) as f32
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let e = exp_m1_64(near(f64::from(x.abs())));
    ((0.5 * (e + e / (e + 1.0))) as f32).copysign(x)
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let e = exp64(near(f64::from(x.abs())));
    (0.5 * (e + 1.0 / e)) as f32
}

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let y = ln_1p_64(a + a * a / (1.0 + a.mul_add(a, 1.0).sqrt())) as f32;
    let y = if a < f64::INFINITY { y } else { x.abs() };
    y.copysign(x)
}

/// Inverse hyperbolic cosine: NaN below 1.
#[inline(always)]
pub fn acosh(x: f32) -> f32 {
    let t = f64::from(x) - 1.0;
    let y = ln_1p_64(t + (t * (t + 2.0)).sqrt()) as f32;
    let y = if x >= 1.0 { y } else { f32::NAN };
    if x == f32::INFINITY { x } else { y }
}

/// Inverse hyperbolic tangent: infinite at -1 and 1, NaN outside.
#[inline(always)]
pub fn atanh(x: f32) -> f32 {
    let a = f64::from(x.abs());
    let y = (0.5 * ln_1p_64(2.0 * a / (1.0 - a))) as f32;
    let y = if a < 1.0 { y } else { f32::NAN };
    let y = if a == 1.0 { f32::INFINITY } else { y };
    y.copysign(x)
}

/// `x^y` as IEEE has it (754-2019, section 9.2.1): 1 for `y = 0` and for `x = 1`; NaN for `x` below 0 and a `y` that is no integer.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let (a, e) = (f64::from(x.abs()), f64::from(y));
    let log = ln_fine(a);
    let log = if a == 0.0 { f64::NEG_INFINITY } else { log };
    let log = if a == f64::INFINITY { a } else { log };
    let log = if a.is_nan() { a } else { log };
    let power = exp64(near(if a == 1.0 { 0.0 } else { e * log })) as f32;
    let (whole, half) = (y.trunc() == y, y * 0.5);
    // without a short circuit, which the compiler would make branches of
    let odd = whole & (half.trunc() != half);
    let below = x.is_sign_negative();
    let undefined = below & !whole & (x != 0.0) & (x != f32::NEG_INFINITY);
    let power = if below & odd { -power } else { power };
    let power = if undefined | y.is_nan() { f32::NAN } else { power };
    if (y == 0.0) | (x == 1.0) { 1.0 } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_powers_and_their_logarithms_are_exact() {
        for k in -126i32..=127 {
            let power = f32::from_bits(((k + 127) as u32) << 23);
            assert_eq!(exp2(k as f32), power, "2^{k}");
            assert_eq!(log2(power), k as f32, "log2 of 2^{k}");
            assert_eq!(pow(2.0, k as f32), power, "pow(2, {k})");
        }
        for k in 0..=10 {
            assert_eq!(log10(10f32.powi(k)), k as f32, "log10 of 10^{k}");
            assert_eq!(pow(3.0, k as f32), 3f32.powi(k), "pow(3, {k})");
        }
    }

    #[test]
    fn powers_of_zeros_ones_and_infinities_are_ieees() {
        let edges =
            [0.0f32, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        for x in edges {
            for y in edges {
                let (got, want) = (pow(x, y), x.powf(y));
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(same || (got - want).abs() <= f32::EPSILON * want.abs(), "pow({x}, {y}) is {got}, not {want}");
            }
        }
    }
}
