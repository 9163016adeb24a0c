//! Exponentials less one, logarithms of one more, and what is made of them: powers and hyperbolic functions.

use std::f64::consts::{LN_2, LOG2_E, LOG10_E};

use super::{ROUND, at_least, at_most, exp64, log_edges, polynomial, power64, split};
use crate::scalar::{Double, Flag as _, Float, Mask as _, Ordered as _, Single, lit};

/// From here on an exponential is infinite in f32, and below its negative it is less than the smallest number.
const FAR: f64 = 200.0;

/// `x` where it is within `FAR` of 0, else the bound; NaN stays.
#[inline(always)]
fn near<D: Double>(x: D) -> D {
    at_least(at_most(x, FAR), -FAR)
}

/// `e^x - 1` for `|x| <= FAR`, within 2^-42 of it, however small.
#[inline(always)]
fn exp_m1_64<D: Double>(x: D) -> D {
    let shifted = x.mul_add(lit(LOG2_E), lit(ROUND));
    let n = shifted - lit(ROUND);
    let r = n.mul_add(lit(-LN_2), x);
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
    let power = power64(shifted);
    power.mul_add(p, power - lit(1.0))
}

/// `ln(1 + m)` for a mantissa `1 + m` of [`split`], within 2^-52 of it.
#[inline(always)]
fn ln_near<D: Double>(m: D) -> D {
    let s = m / (m + lit(2.0));
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
fn ln_fine<D: Double>(x: D) -> D {
    let (e, m) = split(x);
    e.mul_add(lit(LN_2), ln_near(m - lit(1.0)))
}

/// `ln(1 + x)` for `x > -1` that is finite, within 2^-50 of it, however small.
#[inline(always)]
pub(super) fn ln_1p_64<D: Double>(x: D) -> D {
    let (e, m) = split(D::lit(1.0) + x);
    // without an exponent nothing of x was lost
    let m = e.eq(lit(0.0)).select(x, m - lit(1.0));
    e.mul_add(lit(LN_2), ln_near(m))
}

/// `e^x - 1`, accurate near 0.
#[inline(always)]
pub fn exp_m1<F: Single>(x: F) -> F {
    let y = F::nearest(exp_m1_64(near(x.wide())));
    x.eq(lit(0.0)).select(x, y)
}

/// `ln(1 + x)`, accurate near 0: -inf at -1, NaN below.
#[inline(always)]
pub fn ln_1p<F: Single>(x: F) -> F {
    let y = F::nearest(ln_1p_64(x.wide()));
    let y = x.gt(lit(-1.0)).select(y, lit(f64::NAN));
    let y = x.eq(lit(-1.0)).select(lit(f64::NEG_INFINITY), y);
    (x.eq(lit(0.0)) | x.eq(lit(f64::INFINITY))).select(x, y)
}

/// A logarithm whose scale is that of 2, times `unit`.
#[inline(always)]
fn scaled_log<F: Single>(x: F, unit: f64, near: f64) -> F {
    let (e, m) = split(x.wide());
    log_edges(x, F::nearest(e.mul_add(lit(unit), ln_near(m - lit(1.0)) * lit(near))))
}

/// `log_2 x`: -inf at 0, NaN below; exact for powers of two.
#[inline(always)]
pub fn log2<F: Single>(x: F) -> F {
    scaled_log(x, 1.0, LOG2_E)
}

/// `log_10 x`: -inf at 0, NaN below.
#[inline(always)]
pub fn log10<F: Single>(x: F) -> F {
    scaled_log(x, std::f64::consts::LOG10_2, LOG10_E)
}

/// `2^x`; exact for integers.
#[inline(always)]
pub fn exp2<F: Single>(x: F) -> F {
    F::nearest(exp64(near(x.wide() * lit(LN_2))))
}

/// `ln(1 + e^-a)` for `a` that is not below 0, or NaN.
#[inline(always)]
fn ln_1p_exp_neg<D: Double>(a: D) -> D {
    let e = exp64(a.gt(lit(FAR)).select(lit(-FAR), -a));
    let y = ln_1p_64(e);
    e.is_nan().select(e, y)
}

/// `ln(1 + e^-|x|)`, without overflow.
#[inline(always)]
pub fn softplus_below<F: Single>(x: F) -> F {
    F::nearest(ln_1p_exp_neg(x.abs().wide()))
}

/// `ln(1 + e^x)`, without overflow.
#[inline(always)]
pub fn softplus<F: Single>(x: F) -> F {
    let above = x.gt(lit(0.0)).select(x.wide(), lit(0.0));
    F::nearest(above + ln_1p_exp_neg(x.abs().wide()))
}

/// `ln(e^a + e^b)` without overflow; equal infinities give that infinity.
#[inline(always)]
pub fn log_add_exp<F: Single>(a: F, b: F) -> F {
    let (x, y) = (a.wide(), b.wide());
    let apart = a.eq(b).select(lit(0.0), (x - y).abs());
    F::nearest(x.larger(y) + ln_1p_exp_neg(apart))
}

/// Hyperbolic sine.
#[inline(always)]
pub fn sinh<F: Single>(x: F) -> F {
    let e = exp_m1_64(near(x.abs().wide()));
    F::nearest(F::Wide::lit(0.5) * (e + e / (e + lit(1.0)))).copysign(x)
}

/// Hyperbolic cosine.
#[inline(always)]
pub fn cosh<F: Single>(x: F) -> F {
    let e = exp64(near(x.abs().wide()));
    F::nearest(F::Wide::lit(0.5) * (e + F::Wide::lit(1.0) / e))
}

/// Inverse hyperbolic sine.
#[inline(always)]
pub fn asinh<F: Single>(x: F) -> F {
    let a = x.abs().wide();
    let root = a.mul_add(a, lit(1.0)).sqrt();
    let y = F::nearest(ln_1p_64(a + a * a / (F::Wide::lit(1.0) + root)));
    a.lt(lit(f64::INFINITY)).select(y, x.abs()).copysign(x)
}

/// Inverse hyperbolic cosine: NaN below 1.
#[inline(always)]
pub fn acosh<F: Single>(x: F) -> F {
    let t = x.wide() - lit(1.0);
    let y = F::nearest(ln_1p_64(t + (t * (t + lit(2.0))).sqrt()));
    let y = x.ge(lit(1.0)).select(y, lit(f64::NAN));
    x.eq(lit(f64::INFINITY)).select(x, y)
}

/// Inverse hyperbolic tangent: infinite at -1 and 1, NaN outside.
#[inline(always)]
pub fn atanh<F: Single>(x: F) -> F {
    let a = x.abs().wide();
    let y = F::nearest(F::Wide::lit(0.5) * ln_1p_64(F::Wide::lit(2.0) * a / (F::Wide::lit(1.0) - a)));
    let y = a.lt(lit(1.0)).select(y, lit(f64::NAN));
    a.eq(lit(1.0)).select(lit(f64::INFINITY), y).copysign(x)
}

/// `x^y` as IEEE has it (754-2019, section 9.2.1): 1 for `y = 0` and for `x = 1`; NaN for `x` below 0 and a `y` that is no integer.
#[inline(always)]
pub fn pow<F: Single>(x: F, y: F) -> F {
    let (a, e) = (x.abs().wide(), y.wide());
    let log = ln_fine(a);
    let log = a.eq(lit(0.0)).select(lit(f64::NEG_INFINITY), log);
    let log = (a.eq(lit(f64::INFINITY)) | a.is_nan()).select(a, log);
    let power = F::nearest(exp64(near(a.eq(lit(1.0)).select(lit(0.0), e * log))));
    let (whole, half) = (y.trunc().eq(y), y * lit(0.5));
    let odd = whole & half.trunc().ne(half);
    let below = x.is_sign_negative();
    let undefined = below & whole.negated() & x.ne(lit(0.0)) & x.ne(lit(f64::NEG_INFINITY));
    let power = (below & odd).select(-power, power);
    let power = (undefined | y.is_nan()).select(lit(f64::NAN), power);
    (y.eq(lit(0.0)) | x.eq(lit(1.0))).select(lit(1.0), power)
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
