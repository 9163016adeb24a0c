//! Functions of f32 within 2 units in the last place of all arguments that were tried, in a form that compiles to vector code.
//!
//! Each is computed in f64 and rounded once, without a branch and without a table: polynomials and one division at most.
//! Multiply-adds are fused, as written, on every machine. All are generic over [`Single`], so that other devices have them
//! by their expressions, with the same bits. Their relative error before rounding is below 2^-30, so results differ from
//! the correctly rounded ones only next to ties. Coefficients are minimax fits by Remez's exchange, made for these
//! intervals. `exp`, which softmax calls once per element, [`tanh`], and [`gelu`] with its slope stay in f32, which has
//! twice the lanes.
//!
//! What was measured, and of how many arguments, is in the book's page on numerics, made by the example `ulps`.
#![allow(clippy::excessive_precision, reason = "coefficients as they were fitted")]

use std::f64::consts::{FRAC_2_PI, FRAC_2_SQRT_PI, LN_2, LOG2_E, SQRT_2};

use crate::scalar::{Double, Float, Fn32, Int, Mask as _, Ordered as _, Single, int, lit};
use crate::simd::widest;

mod arcs;
mod logs;
mod real;
mod remainder;

pub use arcs::{acos, asin, atan, atan2, erfinv, tan, tan_each};
pub use logs::{
    acosh, asinh, atanh, cosh, exp_m1, exp2, ln_1p, log_add_exp, log2, log10, pow, sinh, softplus, softplus_below,
};
pub use real::Real;
pub use remainder::{floor_rem, floor_rem_each, fmod_each, hypot};

/// Adding it rounds to an integer, which the low bits then hold: 1.5 * 2^52.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// Twice what `e^-x` needs to vanish in f32.
const GONE: f64 = 210.0;

/// `c[0] + c[1] x + c[2] x^2 + ...`.
#[inline(always)]
fn polynomial<F: Float, const N: usize>(x: F, c: [f64; N]) -> F {
    let mut y = F::lit(c[N - 1]);
    for i in (0..N - 1).rev() {
        y = y.mul_add(x, lit(c[i]));
    }
    y
}

/// The smaller one; NaN in `x` stays.
#[inline(always)]
fn at_most<F: Float>(x: F, bound: f64) -> F {
    x.gt(lit(bound)).select(lit(bound), x)
}

/// The larger one; NaN in `x` stays.
#[inline(always)]
fn at_least<F: Float>(x: F, bound: f64) -> F {
    x.lt(lit(bound)).select(lit(bound), x)
}

/// The high and the low part of `ln 2` in f32.
const LN_2_PARTS: [f64; 2] = [std::f32::consts::LN_2 as f64, (LN_2 - std::f32::consts::LN_2 as f64) as f32 as f64];

/// As [`ROUND`], in f32: 1.5 * 2^23.
const ROUND_F32: f64 = 12_582_912.0;

/// `e^r - 1` for `|r| <= ln 2 / 2`.
#[inline(always)]
fn exp_m1_near<F: Single>(r: F) -> F {
    let p = polynomial(r, [0.499_999_940_4, 0.166_665_196_4, 0.041_668_262_33, 0.008_368_857_205, 0.001_382_144_634]);
    (r * r).mul_add(p, r)
}

/// Below it an exponential is nearer to 0 than to the smallest number. Such are 0 by their last factor, as what is hidden
/// from a softmax: a product that ends below the smallest number takes a processor some 150 cycles.
const VANISHED: f64 = -104.0;

/// `e^x = 2^n e^r`: 0 below the smallest number, infinity above the largest.
#[inline(always)]
pub fn exp<F: Single>(x: F) -> F {
    /// The low bits of what is added to it are two biases of exponents more.
    const BIASED: f64 = ROUND_F32 + 254.0;
    let last = x.lt(lit(VANISHED)).select(F::Bits::lit(0), int(u32::MAX.into()));
    // NaN passes
    let x = at_most(at_least(x, VANISHED), 89.0);
    let (shifted, r) = by_powers(x, BIASED);
    // 2^n in two factors, since n may leave the exponents of normal numbers
    let n = shifted.to_bits();
    let half = n.shr(int(1));
    let power = F::from_bits(half.shl(int(23)));
    (exp_m1_near(r) + lit(1.0)) * power * F::from_bits(n.wrapping_sub(half).shl(int(23)) & last)
}

/// `x` in powers of two: their number, added to `round`, in the low bits, and what is left of `x`.
#[inline(always)]
fn by_powers<F: Single>(x: F, round: f64) -> (F, F) {
    let shifted = x.mul_add(lit(LOG2_E), lit(round));
    let n = shifted - lit(round);
    (shifted, n.mul_add(lit(-LN_2_PARTS[1]), n.mul_add(lit(-LN_2_PARTS[0]), x)))
}

/// [`exp`] of a number that is not above 0, or NaN, with the same bits: its powers of two are normal numbers when lifted.
#[inline(always)]
pub(crate) fn exp_below<F: Single>(x: F) -> F {
    const LIFT: i64 = 65;
    const BIAS: i64 = 127;
    const BIASED: f64 = ROUND_F32 + (BIAS + LIFT) as f64;
    let last = x.lt(lit(VANISHED)).select(F::Bits::lit(0), int(u32::MAX.into()));
    // NaN passes
    let (shifted, r) = by_powers(at_least(x, VANISHED), BIASED);
    let power = F::from_bits(shifted.to_bits().shl(int(23)));
    (exp_m1_near(r) + lit(1.0)) * power * F::from_bits(F::Bits::lit((BIAS - LIFT) << 23) & last)
}

/// 2^n of the integer `n` that rounding left in the low bits of a number of f64.
#[inline(always)]
fn power64<D: Double>(shifted: D) -> D {
    D::from_bits(shifted.to_bits().shl(int(52)).wrapping_add(int(1023 << 52)))
}

/// `e^x = 2^n e^r` for `|x| < 700`, within 2^-34.
#[inline(always)]
fn exp64<D: Double>(x: D) -> D {
    let shifted = x.mul_add(lit(LOG2_E), lit(ROUND));
    let n = shifted - lit(ROUND);
    let p = polynomial(
        n.mul_add(lit(-LN_2), x),
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
    p * power64(shifted)
}

/// The exponent of a positive normal number, and its mantissa, taken from `sqrt(1/2)` to its double.
#[inline(always)]
fn split<D: Double>(x: D) -> (D, D) {
    /// The upper bits of `sqrt(1/2)`.
    const LEAST: i64 = 0x3fe6_a09e_0000_0000;
    const ONE: i64 = 0x3ff0_0000_0000_0000;
    /// 2^52, whose low bits are an integer.
    const INTEGER: f64 = 4_503_599_627_370_496.0;
    let bits = x.to_bits().wrapping_add(int(ONE - LEAST));
    let m = D::from_bits((bits & int((1 << 52) - 1)).wrapping_add(int(LEAST)));
    let e = D::from_bits(bits.shr(int(52)) | int(INTEGER.to_bits() as i64)) - lit(INTEGER + 1023.0);
    (e, m)
}

/// Natural logarithm of a positive normal number, within 2^-30 of it.
#[inline(always)]
pub(crate) fn ln64<D: Double>(x: D) -> D {
    let (e, m) = split(x);
    let s = (m - lit(1.0)) / (m + lit(1.0));
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
    e.mul_add(lit(LN_2), s * p)
}

/// The logarithm `y` of `x` at its edges: -inf at 0, infinite at infinity, NaN below 0.
#[inline(always)]
fn log_edges<F: Single>(x: F, y: F) -> F {
    let y = x.gt(lit(0.0)).select(y, lit(f64::NAN));
    let y = x.eq(lit(0.0)).select(lit(f64::NEG_INFINITY), y);
    x.eq(lit(f64::INFINITY)).select(x, y)
}

/// Natural logarithm: -inf at 0, NaN below.
#[inline(always)]
pub fn ln<F: Single>(x: F) -> F {
    // subnormal numbers are normal in f64
    log_edges(x, F::nearest(ln64(x.wide())))
}

/// Hyperbolic tangent: `x + x^3 p(x^2)` near zero, `1 - 2 / (e^2x + 1)` elsewhere.
#[inline(always)]
pub fn tanh<F: Single>(x: F) -> F {
    const NEAR: f64 = 0.625;
    /// From here on less than half an ulp is left to 1.
    const FLAT: f64 = 10.0;
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
    let a = at_most(x.abs(), FLAT);
    let far = (F::lit(1.0) - F::lit(2.0) / (exp(F::lit(2.0) * a) + lit(1.0))).copysign(x);
    x.abs().lt(lit(NEAR)).select(near, far)
}

/// [`tanh`] within 3 units in the last place, in half as many operations: `-m / (m + 2)` with `m = e^(-2|x|) - 1`, and the sign.
#[inline(always)]
pub(crate) fn tanh_by_exp_m1<F: Single>(x: F) -> F {
    /// From here on 1 is left.
    const FLAT: f64 = -20.0;
    // NaN passes
    let a = at_least(F::lit(-2.0) * x.abs(), FLAT);
    let (shifted, r) = by_powers(a, ROUND_F32 + 127.0);
    let power = F::from_bits(shifted.to_bits().shl(int(23)));
    let m = power.mul_add(exp_m1_near(r), power - lit(1.0));
    (-m / (m + lit(2.0))).copysign(x)
}

/// [`sigmoid`] within 3 units in the last place, without a number of f64.
#[inline(always)]
pub(crate) fn sigmoid_f32<F: Single>(x: F) -> F {
    let e = exp_below(-x.abs());
    x.lt(lit(0.0)).select(e, lit(1.0)) / (F::lit(1.0) + e)
}

/// `1 / (1 + e^-x)` in f64, 0 where f32 has nothing that small.
#[inline(always)]
fn sigmoid64<D: Double>(x: D) -> D {
    let a = x.abs();
    let e = exp64(-at_most(a, GONE));
    let e = a.ge(lit(GONE)).select(lit(0.0), e);
    x.lt(lit(0.0)).select(e, lit(1.0)) / (D::lit(1.0) + e)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<F: Single>(x: F) -> F {
    F::nearest(sigmoid64(x.wide()))
}

/// `x / (1 + e^-x)`; NaN at -inf.
#[inline(always)]
pub fn silu<F: Single>(x: F) -> F {
    let x = x.wide();
    F::nearest(x * sigmoid64(x))
}

/// `x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, which is `x sigmoid` of twice that argument; NaN at -inf.
#[inline(always)]
pub fn gelu_tanh<F: Single>(x: F) -> F {
    let x = x.wide();
    let cube = (F::Wide::lit(0.044715) * x * x).mul_add(x, x);
    F::nearest(x * sigmoid64(F::Wide::lit(FRAC_2_SQRT_PI * SQRT_2) * cube))
}

/// Up to here the tails of the normal distribution are numbers of f32.
const TAIL: f64 = 15.0;

/// `(1 - erf(t / sqrt 2)) / 2`, the normal distribution's part beyond `t`, for `t >= 0`; 0 from [`TAIL`] on.
#[inline(always)]
fn beyond<D: Double>(t: D) -> D {
    let u = at_most(t, TAIL);
    let p = polynomial(
        D::lit(1.0) / u.mul_add(lit(0.25), lit(1.0)),
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
    let y = p * exp64(D::lit(-0.5) * u * u);
    t.ge(lit(TAIL)).select(lit(0.0), y)
}

#[inline(always)]
fn normal64<D: Double>(x: D) -> D {
    let q = beyond(x.abs());
    x.gt(lit(0.0)).select(D::lit(1.0) - q, q)
}

/// The normal distribution's part beyond `t` over `w e^(-t^2/2)`, with `w = 1 / (1 + SLOPE t)`, and what its rounding lost.
#[inline(always)]
fn beyond_factor<F: Single>(w: F) -> [F; 2] {
    const LAST: f64 = 0.183_982_461_7;
    let v = w - lit(0.375);
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
    let s = rest.mul_add(v, lit(LAST));
    [s, rest.mul_add(v, F::lit(LAST) - s)]
}

/// See [`beyond_factor`].
const SLOPE: f64 = 19.0 / 64.0;

/// `e^(-t^2/2) = (1 + e + e_lo) 2^n` for `0 <= t <= TAIL`: `e`, `e_lo` and 2^n times [`LIFT`].
#[inline(always)]
fn bell<F: Single>(t: F) -> [F; 3] {
    let square = t * t;
    let square_lo = t.mul_add(t, -square);
    let shifted = square.mul_add(lit(-0.5 * LOG2_E), lit(ROUND_F32));
    let n = shifted - lit(ROUND_F32);
    let r = n.mul_add(lit(-LN_2_PARTS[0]), F::lit(-0.5) * square);
    let r_lo = n.mul_add(lit(-LN_2_PARTS[1]), F::lit(-0.5) * square_lo);
    let e = exp_m1_near(r);
    let power = shifted.to_bits().shl(int(23)).wrapping_add(F::lit(LIFT).to_bits());
    [e, r_lo.mul_add(e, r_lo), F::from_bits(power)]
}

/// Keeps numbers whose powers of two leave the normal ones within these until the last product: 2^64.
const LIFT: f64 = (1u128 << 64) as f64;

/// `t` times the normal distribution's part beyond `t`, for `0 <= t <= TAIL`, within 1.7 units in the last place.
///
/// What a rounding loses of `w`, of `t^2` and of the larger sums and products is kept beside them (`_lo`; T. J. Dekker,
/// Numerische Mathematik 18, 1971) and added at the end.
#[inline(always)]
fn times_beyond<F: Single>(t: F) -> F {
    let d = t.mul_add(lit(SLOPE), lit(1.0));
    let d_lo = t.mul_add(lit(SLOPE), F::lit(1.0) - d);
    let w = F::lit(1.0) / d;
    // what is to be added to w, as a part of it
    let w_lo = w.mul_add(-d_lo, (-w).mul_add(d, lit(1.0)));
    let ([s, s_lo], [e, e_lo, power]) = (beyond_factor(w), bell(t));
    let rest = s.mul_add(e, s.mul_add(e_lo, s_lo));
    let m = s + rest;
    let m_lo = rest - (m - s);
    let a = t * w;
    // w s(w) changes by 0.78 + 1.8 w times what w does, nearly
    let a_lo = (a * w.mul_add(lit(1.8), lit(0.78))).mul_add(w_lo, t.mul_add(w, -a));
    a.mul_add(m, m.mul_add(a_lo, a * m_lo)) * power * lit(1.0 / LIFT)
}

/// `x (1 + erf(x / sqrt 2)) / 2`; NaN at -inf.
#[inline(always)]
pub fn gelu<F: Single>(x: F) -> F {
    let beyond = times_beyond(at_most(x.abs(), TAIL));
    // NaN at NaN and -inf
    x.gt(lit(0.0)).select(x, F::lit(0.0) * x) - beyond
}

/// The derivative of [`gelu`], `(1 + erf(x / sqrt 2)) / 2 + x e^(-x^2/2) / sqrt(2 pi)`, with an error below 1.8e-7.
#[inline(always)]
pub fn gelu_slope<F: Single>(x: F) -> F {
    const HEIGHT: f64 = 0.25 * FRAC_2_SQRT_PI * SQRT_2;
    let t = at_most(x.abs(), TAIL);
    let w = F::lit(1.0) / t.mul_add(lit(SLOPE), lit(1.0));
    let ([s, _], [e, e_lo, power]) = (beyond_factor(w), bell(t));
    let h = w.mul_add(s, F::lit(-HEIGHT) * t);
    let beyond = h.mul_add(e + e_lo, h) * power * lit(1.0 / LIFT);
    x.gt(lit(0.0)).select(F::lit(1.0) - beyond, beyond)
}

/// `2/sqrt(pi) * integral of exp(-t^2) from 0 to x`.
#[inline(always)]
pub fn erf<F: Single>(x: F) -> F {
    const NEAR: f64 = 0.5;
    let x = x.wide();
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
    let far = (F::Wide::lit(1.0) - F::Wide::lit(2.0) * beyond(x.abs() * lit(SQRT_2))).copysign(x);
    F::nearest(x.abs().lt(lit(NEAR)).select(near, far))
}

/// `1 - erf(x)` without cancellation.
#[inline(always)]
pub fn erfc<F: Single>(x: F) -> F {
    F::nearest(F::Wide::lit(2.0) * normal64(-x.wide() * lit(SQRT_2)))
}

/// Beyond it the nearest multiple of `pi/2` needs more digits than the three parts of it have.
const TURNS: f64 = 1.0e6;

/// `(sin r, cos r)` for `|r| <= pi/4`.
#[inline(always)]
fn sin_cos_near<D: Double>(r: D) -> (D, D) {
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

#[inline(always)]
fn is_even<I: Int>(q: I) -> I::Mask {
    (q & int(1)).eq(int(0))
}

/// `sin(r + q pi/2)` from `(sin r, cos r)`.
#[inline(always)]
fn quarter_turned<D: Double>((sin, cos): (D, D), q: D::Bits) -> D {
    let y = is_even(q).select(sin, cos);
    D::from_bits(y.to_bits() ^ (q & int(2)).shl(int(62)))
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

/// Bits of the double of an `F`.
type Bits64<F> = <<F as Single>::Wide as Float>::Bits;

/// The rest of `x`, for `|x| < TURNS`, after the nearest multiple of `pi/2` is subtracted, and that multiple in the low bits.
#[inline(always)]
fn quarter_of<F: Single>(x: F) -> (F::Wide, Bits64<F>) {
    /// `pi/2` in parts of 30 bits and what is left, so that their multiples are exact.
    const PARTS: [f64; 3] = [1.570_796_325_802_803, 9.920_935_791_635_221e-10, 5.170_182_981_794_105e-19];
    let x = x.wide();
    let shifted = x * lit(FRAC_2_PI) + lit(ROUND);
    let n = shifted - lit(ROUND);
    (((x - n * lit(PARTS[0])) - n * lit(PARTS[1])) - n * lit(PARTS[2]), shifted.to_bits())
}

/// `sin(x + quarter pi/2)` for `|x| < TURNS`.
#[inline(always)]
fn sine<F: Single>(x: F, quarter: i64) -> F {
    let (r, q) = quarter_of(x);
    F::nearest(quarter_turned(sin_cos_near(r), q.wrapping_add(int(quarter))))
}

/// NaN and infinities are far too.
#[inline(always)]
fn is_far<F: Single>(x: F) -> F::Mask {
    x.is_nan() | x.abs().ge(lit(TURNS))
}

/// `y[i]` = `near(x[i])`, or `other(x[i])` for far arguments: in vectors, then those few by themselves.
#[inline(always)]
fn by_turns(x: &[f32], y: &mut [f32], near: impl Fn(f32) -> f32, other: Fn32) {
    widest(
        #[inline(always)]
        || {
            let mut far = false;
            for (y, &x) in y.iter_mut().zip(x) {
                *y = near(x);
                far |= is_far(x);
            }
            if far {
                y.iter_mut().zip(x).filter(|(_, x)| is_far(**x)).for_each(|(y, x)| *y = other.call(*x));
            }
        },
    );
}

/// `sin x`, in radians; NaN at infinities. Far arguments are the standard library's.
#[inline(always)]
pub fn sin<F: Single>(x: F) -> F {
    is_far(x).select(x.call(Fn32::Sin), sine(x, 0))
}

/// `cos x`; see [`sin`].
#[inline(always)]
pub fn cos<F: Single>(x: F) -> F {
    is_far(x).select(x.call(Fn32::Cos), sine(x, 1))
}

/// `y[i] = sin(x[i])`; see [`sin`].
pub fn sin_each(x: &[f32], y: &mut [f32]) {
    by_turns(
        x,
        y,
        #[inline(always)]
        |x| sine(x, 0),
        Fn32::Sin,
    );
}

/// `y[i] = cos(x[i])`; see [`sin`].
pub fn cos_each(x: &[f32], y: &mut [f32]) {
    by_turns(
        x,
        y,
        #[inline(always)]
        |x| sine(x, 1),
        Fn32::Cos,
    );
}
