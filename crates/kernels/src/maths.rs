//! Functions of f32 within 2 units in the last place of all arguments that were tried, in a form that compiles to vector code.
//!
//! Each is computed in f64 and rounded once, without a branch and without a table: polynomials and one division at most.
//! Multiply-adds are fused, as written, on every machine.
//! Their relative error before rounding is below 2^-30, so results differ from the correctly rounded ones only next to
//! ties. Coefficients are minimax fits by Remez's exchange, made for these intervals. `exp`, of which softmax has one per
//! element, [`tanh`], and [`gelu`] with its slope stay in f32, which has twice the lanes.
//!
//! What was measured, and of how many arguments, is in the book's page on numerics, made by the example `ulps`.
#![allow(clippy::excessive_precision, reason = "coefficients as they were fitted")]

use std::f64::consts::{FRAC_2_PI, FRAC_2_SQRT_PI, LN_2, LOG2_E, SQRT_2};

use crate::simd::widest;

mod arcs;
mod logs;
mod real;
mod remainder;

pub use arcs::{acos, asin, atan, atan2, erfinv, tan};
pub use logs::{
    acosh, asinh, atanh, cosh, exp_m1, exp2, ln_1p, log_add_exp, log2, log10, pow, sinh, softplus, softplus_below,
};
pub use real::Real;
pub use remainder::{floor_rem, fmod, hypot};

/// Adding it rounds to an integer, which the low bits then hold: 1.5 * 2^52.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// Twice what `e^-x` needs to vanish in f32.
const GONE: f64 = 210.0;

/// `c[0] + c[1] x + c[2] x^2 + ...`.
#[inline(always)]
fn polynomial<R: Real, const N: usize>(x: R, c: [R; N]) -> R {
    let mut y = c[N - 1];
    for i in (0..N - 1).rev() {
        y = y.mul_add(x, c[i]);
    }
    y
}

/// The smaller one; NaN in `x` stays.
#[inline(always)]
fn at_most(x: f64, bound: f64) -> f64 {
    if x > bound { bound } else { x }
}

/// The high and the low part of `ln 2` in f32.
const LN_2_PARTS: [f32; 2] = [std::f32::consts::LN_2, (LN_2 - std::f32::consts::LN_2 as f64) as f32];

/// As [`ROUND`], in f32: 1.5 * 2^23.
const ROUND_F32: f32 = 12_582_912.0;

/// `e^r - 1` for `|r| <= ln 2 / 2`.
#[inline(always)]
fn exp_m1_near(r: f32) -> f32 {
    let p = polynomial(r, [0.499_999_940_4, 0.166_665_196_4, 0.041_668_262_33, 0.008_368_857_205, 0.001_382_144_634]);
    (r * r).mul_add(p, r)
}

/// Below it an exponential is nearer to 0 than to the smallest number. Such are 0 by their last factor, as what is hidden
/// from a softmax: a product that ends below the smallest number takes a processor some 150 cycles.
const VANISHED: f32 = -104.0;

/// `e^x = 2^n e^r`: 0 below the smallest number, infinity above the largest.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// The low bits of what is added to it are two biases of exponents more.
    const BIASED: f32 = ROUND_F32 + 254.0;
    let last = if x < VANISHED { 0 } else { u32::MAX };
    // NaN passes
    let x = if x < VANISHED { VANISHED } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, BIASED);
    let n = shifted - BIASED;
    let r = n.mul_add(-LN_2_PARTS[1], n.mul_add(-LN_2_PARTS[0], x));
    // 2^n in two factors, since n may leave the exponents of normal numbers
    let (n, half) = (shifted.to_bits(), shifted.to_bits() >> 1);
    (exp_m1_near(r) + 1.0) * f32::from_bits(half << 23) * f32::from_bits(((n - half) << 23) & last)
}

/// [`exp`] of a number that is not above 0, or NaN, with the same bits: its powers of two are normal numbers when lifted.
#[inline(always)]
pub(crate) fn exp_below(x: f32) -> f32 {
    const LIFT: u32 = 65;
    const BIAS: u32 = 127;
    const BIASED: f32 = ROUND_F32 + (BIAS + LIFT) as f32;
    let last = if x < VANISHED { 0 } else { u32::MAX };
    // NaN passes
    let x = if x < VANISHED { VANISHED } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, BIASED);
    let n = shifted - BIASED;
    let r = n.mul_add(-LN_2_PARTS[1], (-LN_2_PARTS[0]).mul_add(n, x));
    (exp_m1_near(r) + 1.0) * f32::from_bits(shifted.to_bits() << 23) * f32::from_bits((BIAS - LIFT) << 23 & last)
}

/// `e^x = 2^n e^r` for `|x| < 700`, within 2^-34.
#[inline(always)]
fn exp64(x: f64) -> f64 {
    let shifted = x.mul_add(LOG2_E, ROUND);
    let n = shifted - ROUND;
    let p = polynomial(
        n.mul_add(-LN_2, x),
        [
            0.999_999_999_961_649,
            1.000_000_000_243_278_3,
            0.500_000_010_460_041_5,
            0.166_666_651_252_415_23,
            0.041_666_225_245_886,
            0.008_333_561_175_831_606,
            0.001_394_819_537_253_79,
            0.000_197_751_618_254_716,
        ],
    );
    p * f64::from_bits((shifted.to_bits() << 52).wrapping_add(1023 << 52))
}

/// Natural logarithm of a positive normal number, within 2^-30 of it.
#[inline(always)]
pub(crate) fn ln64(x: f64) -> f64 {
    /// The upper bits of `sqrt(1/2)`: mantissas are taken from there to its double.
    const LEAST: u64 = 0x3fe6_a09e_0000_0000;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    /// 2^52, whose low bits are an integer.
    const INTEGER: f64 = 4_503_599_627_370_496.0;
    let bits = x.to_bits().wrapping_add(ONE - LEAST);
    let m = f64::from_bits((bits & ((1 << 52) - 1)) + LEAST);
    let e = f64::from_bits(INTEGER.to_bits() | bits >> 52) - (INTEGER + 1023.0);
    let s = (m - 1.0) / (m + 1.0);
    let p = polynomial(
        s * s,
        [
            1.999_999_999_999_946,
            0.666_666_666_797_84,
            0.399_999_948_302_028_3,
            0.285_721_725_752_647_87,
            0.221_739_783_408_149_1,
            0.196_120_833_359_677_57,
        ],
    );
    e.mul_add(LN_2, s * p)
}

/// Natural logarithm: -inf at 0, NaN below.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // subnormal numbers are normal in f64
    let y = ln64(f64::from(x)) as f32;
    let y = if x > 0.0 { y } else { f32::NAN };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x == f32::INFINITY { x } else { y }
}

/// Hyperbolic tangent: `x + x^3 p(x^2)` near zero, `1 - 2 / (e^2x + 1)` elsewhere.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    const NEAR: f32 = 0.625;
    /// From here on less than half an ulp is left to 1.
    const FLAT: f32 = 10.0;
    let z = x * x;
    let p = polynomial(
        z,
        [
            -0.333_333_331_588_916_26,
            0.133_333_238_742_285_23,
            -0.053_966_289_365_586_95,
            0.021_849_291_315_537_867,
            -0.008_748_969_494_258_475,
            0.003_224_565_822_864_093_3,
            -0.000_800_366_679_059_371_7,
        ],
    );
    // of -0 the sum of a zero of either sign is 0
    let near = (x * z).mul_add(p, x).copysign(x);
    let a = x.abs();
    let a = if a > FLAT { FLAT } else { a };
    let far = (1.0 - 2.0 / (exp(2.0 * a) + 1.0)).copysign(x);
    if x.abs() < NEAR { near } else { far }
}

/// [`tanh`] within 3 units in the last place, in half as many operations: `-m / (m + 2)` with `m = e^(-2|x|) - 1`, and the sign.
#[inline(always)]
pub(crate) fn tanh_by_exp_m1(x: f32) -> f32 {
    /// From here on 1 is left.
    const FLAT: f32 = -20.0;
    const BIASED: f32 = ROUND_F32 + 127.0;
    let a = -2.0 * x.abs();
    // NaN passes
    let a = if a < FLAT { FLAT } else { a };
    let shifted = a.mul_add(std::f32::consts::LOG2_E, BIASED);
    let n = shifted - BIASED;
    let r = n.mul_add(-LN_2_PARTS[1], (-LN_2_PARTS[0]).mul_add(n, a));
    let power = f32::from_bits(shifted.to_bits() << 23);
    let m = power.mul_add(exp_m1_near(r), power - 1.0);
    (-m / (m + 2.0)).copysign(x)
}

/// [`sigmoid`] within 3 units in the last place, without a number of f64.
#[inline(always)]
pub(crate) fn sigmoid_f32(x: f32) -> f32 {
    let e = exp_below(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// `1 / (1 + e^-x)` in f64, 0 where f32 has nothing that small.
#[inline(always)]
fn sigmoid64(x: f64) -> f64 {
    let a = x.abs();
    let e = exp64(-at_most(a, GONE));
    let e = if a >= GONE { 0.0 } else { e };
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    sigmoid64(f64::from(x)) as f32
}

/// `x / (1 + e^-x)`; NaN at -inf.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    let x = f64::from(x);
    (x * sigmoid64(x)) as f32
}

/// `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, which is `x sigmoid` of twice that argument; NaN at -inf.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    let x = f64::from(x);
    x_sigmoid_of_cube(x) as f32
}

#[inline(always)]
fn x_sigmoid_of_cube(x: f64) -> f64 {
    x * sigmoid64(FRAC_2_SQRT_PI * SQRT_2 * (0.044715 * x * x).mul_add(x, x))
}

/// Up to here the tails of the normal distribution are numbers of f32.
const TAIL: f64 = 15.0;

/// `(1 - erf(t / sqrt 2)) / 2`, the normal distribution's part beyond `t`, for `t >= 0`; 0 from [`TAIL`] on.
#[inline(always)]
fn beyond(t: f64) -> f64 {
    let u = at_most(t, TAIL);
    let p = polynomial(
        1.0 / u.mul_add(0.25, 1.0),
        [
            2.540_320_689_785_82e-6,
            0.099_664_301_350_406_35,
            0.100_627_178_390_823_88,
            0.086_932_052_750_408_51,
            0.112_743_704_182_767_47,
            -0.041_808_784_490_859_13,
            0.288_864_579_635_461_47,
            -0.378_133_104_483_366_44,
            0.454_935_373_861_402_37,
            -0.320_307_583_823_443_7,
            0.112_124_200_278_324_83,
            -0.015_644_457_813_873_247,
        ],
    );
    let y = p * exp64(-0.5 * u * u);
    if t >= TAIL { 0.0 } else { y }
}

#[inline(always)]
fn normal64(x: f64) -> f64 {
    let q = beyond(x.abs());
    if x > 0.0 { 1.0 - q } else { q }
}

/// The normal distribution's part beyond `t` over `w e^(-t^2/2)`, with `w = 1 / (1 + SLOPE t)`, and what its rounding lost.
#[inline(always)]
fn beyond_factor(w: f32) -> [f32; 2] {
    const LAST: f32 = 0.183_982_461_7;
    let v = w - 0.375;
    let rest = polynomial(
        v,
        [
            0.251_021_474_6,
            0.267_659_217_1,
            0.201_957_941_1,
            0.074_537_299_57,
            -0.035_808_406_77,
            -0.056_807_320_56,
            -0.002_667_039_167,
            0.047_397_390_01,
            -0.021_176_217_12,
        ],
    );
    let s = rest.mul_add(v, LAST);
    [s, rest.mul_add(v, LAST - s)]
}

/// See [`beyond_factor`].
const SLOPE: f32 = 19.0 / 64.0;

/// `e^(-t^2/2) = (1 + e + e_lo) 2^n` for `0 <= t <= TAIL`: `e`, `e_lo` and 2^n times [`LIFT`].
#[inline(always)]
fn bell(t: f32) -> [f32; 3] {
    let square = t * t;
    let square_lo = t.mul_add(t, -square);
    let shifted = square.mul_add(-0.5 * std::f32::consts::LOG2_E, ROUND_F32);
    let n = shifted - ROUND_F32;
    let r = n.mul_add(-LN_2_PARTS[0], -0.5 * square);
    let r_lo = n.mul_add(-LN_2_PARTS[1], -0.5 * square_lo);
    let e = exp_m1_near(r);
    let power = (shifted.to_bits() << 23).wrapping_add(LIFT.to_bits());
    [e, r_lo.mul_add(e, r_lo), f32::from_bits(power)]
}

/// Keeps numbers whose powers of two leave the normal ones within these until the last product: 2^64.
const LIFT: f32 = (1u128 << 64) as f32;

/// `t` times the normal distribution's part beyond `t`, for `0 <= t <= TAIL`, within 1.7 units in the last place.
///
/// What a rounding loses of `w`, of `t^2` and of the larger sums and products is kept beside them (`_lo`; T. J. Dekker,
/// Numerische Mathematik 18, 1971) and added at the end.
#[inline(always)]
fn times_beyond(t: f32) -> f32 {
    let d = t.mul_add(SLOPE, 1.0);
    let d_lo = t.mul_add(SLOPE, 1.0 - d);
    let w = 1.0 / d;
    // what is to be added to w, as a part of it
    let w_lo = w.mul_add(-d_lo, (-w).mul_add(d, 1.0));
    let ([s, s_lo], [e, e_lo, power]) = (beyond_factor(w), bell(t));
    let rest = s.mul_add(e, s.mul_add(e_lo, s_lo));
    let m = s + rest;
    let m_lo = rest - (m - s);
    let a = t * w;
    // w s(w) changes by 0.78 + 1.8 w times what w does, nearly
    let a_lo = (a * w.mul_add(1.8, 0.78)).mul_add(w_lo, t.mul_add(w, -a));
    a.mul_add(m, m.mul_add(a_lo, a * m_lo)) * power * (1.0 / LIFT)
}

/// The smaller one of `|x|` and [`TAIL`]; NaN stays.
#[inline(always)]
fn up_to_tail(x: f32) -> f32 {
    let t = x.abs();
    if t > TAIL as f32 { TAIL as f32 } else { t }
}

/// `x (1 + erf(x / sqrt 2)) / 2`; NaN at -inf.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let beyond = times_beyond(up_to_tail(x));
    // NaN at NaN and -inf
    (if x > 0.0 { x } else { 0.0 * x }) - beyond
}

/// The derivative of [`gelu`], `(1 + erf(x / sqrt 2)) / 2 + x e^(-x^2/2) / sqrt(2 pi)`, with an error below 1.8e-7.
#[inline(always)]
pub fn gelu_slope(x: f32) -> f32 {
    const HEIGHT: f32 = (0.25 * FRAC_2_SQRT_PI * SQRT_2) as f32;
    let t = up_to_tail(x);
    let w = 1.0 / t.mul_add(SLOPE, 1.0);
    let ([s, _], [e, e_lo, power]) = (beyond_factor(w), bell(t));
    let h = w.mul_add(s, -HEIGHT * t);
    let beyond = h.mul_add(e + e_lo, h) * power * (1.0 / LIFT);
    if x > 0.0 { 1.0 - beyond } else { beyond }
}

/// `2/sqrt(pi) * integral of exp(-t^2) from 0 to x`.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    const NEAR: f64 = 0.5;
    let x = f64::from(x);
    let near = x * polynomial(
        x * x,
        [
            1.128_379_167_095_408_6,
            -0.376_126_388_991_356_53,
            0.112_837_914_129_760_82,
            -0.026_866_108_830_057_3,
            0.005_223_270_161_897_038,
            -0.000_850_656_597_239_348_2,
            0.000_108_200_910_214_027_71,
        ],
    );
    let far = (1.0 - 2.0 * beyond(x.abs() * SQRT_2)).copysign(x);
    (if x.abs() < NEAR { near } else { far }) as f32
}

/// `1 - erf(x)` without cancellation.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    (2.0 * normal64(-f64::from(x) * SQRT_2)) as f32
}

/// Beyond it the nearest multiple of `pi/2` needs more digits than the three parts of it have.
const TURNS: f32 = 1.0e6;

/// `(sin r, cos r)` for `|r| <= pi/4`.
#[inline(always)]
fn sin_cos_near(r: f64) -> (f64, f64) {
    let z = r * r;
    let sin = r * polynomial(
        z,
        [
            0.999_999_999_999_995_4,
            -0.166_666_666_666_148_57,
            0.008_333_333_323_640_378,
            -0.000_198_412_631_901_366_33,
            2.755_525_177_003_760_7e-6,
            -2.475_524_924_241_350_3e-8,
        ],
    );
    let cos = polynomial(
        z,
        [
            0.999_999_999_999_934_3,
            -0.499_999_999_992_705_1,
            0.041_666_666_533_581_635,
            -0.001_388_887_992_872_829_3,
            2.479_884_309_922_53e-5,
            -2.716_789_932_098_653e-7,
        ],
    );
    (sin, cos)
}

/// `sin(r + q pi/2)` from `(sin r, cos r)`.
#[inline(always)]
fn quarter_turned((sin, cos): (f64, f64), q: u64) -> f64 {
    let y = if q & 1 == 0 { sin } else { cos };
    f64::from_bits(y.to_bits() ^ (q & 2) << 62)
}

/// `(sin, cos)` of `turns / 2^32` turns: the nearest quarter is found exactly, in integers.
#[inline(always)]
pub(crate) fn sin_cos_turns(turns: u32) -> (f64, f64) {
    /// `pi/2` over the units of a quarter turn.
    const UNIT: f64 = std::f64::consts::FRAC_PI_2 / (1u32 << 30) as f64;
    let q = turns.wrapping_add(1 << 29) >> 30;
    let near = sin_cos_near(f64::from(turns.wrapping_sub(q << 30) as i32) * UNIT);
    (quarter_turned(near, q.into()), quarter_turned(near, u64::from(q) + 1))
}

/// What is left of `x`, for `|x| < TURNS`, when the nearest multiple of `pi/2` is taken off, and that multiple in the low bits.
#[inline(always)]
fn quarter_of(x: f32) -> (f64, u64) {
    /// `pi/2` in parts of 30 bits and what is left, so that their multiples are exact.
    const PARTS: [f64; 3] = [1.570_796_325_802_803, 9.920_935_791_635_221e-10, 5.170_182_981_794_105e-19];
    let x = f64::from(x);
    let shifted = x * FRAC_2_PI + ROUND;
    let n = shifted - ROUND;
    (((x - n * PARTS[0]) - n * PARTS[1]) - n * PARTS[2], shifted.to_bits())
}

/// `sin(x + quarter pi/2)` for `|x| < TURNS`.
#[inline(always)]
fn sine(x: f32, quarter: u64) -> f32 {
    let (r, q) = quarter_of(x);
    quarter_turned(sin_cos_near(r), q.wrapping_add(quarter)) as f32
}

/// NaN and infinities are far too.
#[inline(always)]
fn is_far(x: f32) -> bool {
    x.is_nan() || x.abs() >= TURNS
}

/// `y[i]` = `near(x[i])`, or `other(x[i])` for far arguments.
#[inline(always)]
fn by_turns(x: &[f32], y: &mut [f32], near: impl Fn(f32) -> f32, other: fn(f32) -> f32) {
    widest(
        #[inline(always)]
        || {
            let mut far = false;
            for (y, &x) in y.iter_mut().zip(x) {
                *y = near(x);
                far |= is_far(x);
            }
            if far {
                y.iter_mut().zip(x).filter(|(_, x)| is_far(**x)).for_each(|(y, x)| *y = other(*x));
            }
        },
    );
}

/// `y[i] = sin(x[i])`, in radians; NaN at infinities. Far arguments are the standard library's.
pub fn sin(x: &[f32], y: &mut [f32]) {
    by_turns(
        x,
        y,
        #[inline(always)]
        |x| sine(x, 0),
        f32::sin,
    );
}

/// `y[i] = cos(x[i])`; see [`sin`].
pub fn cos(x: &[f32], y: &mut [f32]) {
    by_turns(
        x,
        y,
        #[inline(always)]
        |x| sine(x, 1),
        f32::cos,
    );
}
