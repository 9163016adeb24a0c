//! The tangent, inverses of the circle's functions, and that of the error function.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::{by_turns, is_even, is_far, ln64, polynomial, sin_cos_near};
use crate::scalar::{Double, Float, Fn32, Mask as _, Ordered as _, Single, lit};

/// `tan(pi/8)`.
const EIGHTH: f64 = 0.414_213_562_373_095_05;

/// The angle whose tangent is `y / x`, within 2^-40 of it. `y` and `x` are not below 0. The angle is `pi/4` at the origin and for
/// two infinities.
#[inline(always)]
fn angle<D: Double>(y: D, x: D) -> D {
    let alike = y.eq(x);
    let (y, x) = (alike.select(lit(1.0), y), alike.select(lit(1.0), x));
    // by the nearest of 0, pi/4 and pi/2, so that little is left
    let low = y.le(D::lit(EIGHTH) * x);
    let high = x.le(D::lit(EIGHTH) * y);
    let of = |low_is: D, high_is: D, between: D| high.select(high_is, low.select(low_is, between));
    let (n, d) = (of(y, -x, y - x), of(x, y, y + x));
    let base = of(lit(0.0), lit(FRAC_PI_2), lit(FRAC_PI_4));
    let t = n / d;
    let p = polynomial(
        t * t,
        [
            0.999_999_999_978_398_776,
            -0.333_333_320_976_093_859,
            0.199_998_838_565_513_028,
            -0.142_815_887_726_541_241,
            0.110_404_892_272_182_403,
            -0.084_561_928_869_404_960_2,
            0.047_073_481_419_680_201_7,
        ],
    );
    t.mul_add(p, base)
}

/// `arctan x`.
#[inline(always)]
pub fn atan<F: Single>(x: F) -> F {
    F::nearest(angle(x.abs().wide(), lit(1.0))).copysign(x)
}

/// `sqrt(1 - a^2)`.
#[inline(always)]
fn other_leg<D: Double>(a: D) -> D {
    ((D::lit(1.0) - a) * (D::lit(1.0) + a)).sqrt()
}

/// `arcsin x`: NaN outside -1 ..= 1.
#[inline(always)]
pub fn asin<F: Single>(x: F) -> F {
    let a = x.abs().wide();
    F::nearest(angle(a, other_leg(a))).copysign(x)
}

/// `arccos x`: NaN outside -1 ..= 1.
#[inline(always)]
pub fn acos<F: Single>(x: F) -> F {
    let a = x.abs().wide();
    let y = angle(other_leg(a), a);
    F::nearest(x.lt(lit(0.0)).select(F::Wide::lit(PI) - y, y))
}

/// The angle of the point (x, y), as IEEE has it for zeros and infinities (754-2019, section 9.2.1).
#[inline(always)]
pub fn atan2<F: Single>(y: F, x: F) -> F {
    let (high, wide) = (y.abs().wide(), x.abs().wide());
    let t = angle(high, wide);
    // at the origin the angle is that of the axis
    let t = high.eq(lit(0.0)).select(lit(0.0), t);
    let t = x.is_sign_negative().select(F::Wide::lit(PI) - t, t);
    let t = x.is_nan().select(lit(f64::NAN), t);
    F::nearest(t).copysign(y)
}

/// `tan x` for `|x| < TURNS`.
#[inline(always)]
fn tangent<F: Single>(x: F) -> F {
    let (r, q) = super::quarter_of(x);
    let (sin, cos) = sin_cos_near(r);
    let even = is_even(q);
    F::nearest(even.select(sin, -cos) / even.select(cos, sin))
}

/// `tan x`, in radians; NaN at infinities. Far arguments are the standard library's.
#[inline(always)]
pub fn tan<F: Single>(x: F) -> F {
    is_far(x).select(x.call(Fn32::Tan), tangent(x))
}

/// `y[i] = tan(x[i])`; see [`tan`].
#[allow(
    clippy::redundant_closure,
    reason = "a function itself may be called through a shim without the vector features"
)]
pub fn tan_each(x: &[f32], y: &mut [f32]) {
    by_turns(
        x,
        y,
        #[inline(always)]
        |x| tangent(x),
        Fn32::Tan,
    );
}

/// The inverse of the error function: infinite at -1 and 1, NaN outside. Polynomials in `w = -ln(1 - x^2)`, as M. Giles has it
/// ("Approximating the erfinv function", GPU Computing Gems 2, 2010), of more terms.
#[inline(always)]
pub fn erfinv<F: Single>(x: F) -> F {
    let v = x.wide();
    let rest = (F::Wide::lit(1.0) - v) * (F::Wide::lit(1.0) + v);
    let w = -ln64(rest);
    let middle = polynomial(
        w - lit(3.0),
        [
            1.623_542_006_537_975_8,
            0.241_630_404_143_047_338,
            -0.005_738_136_016_107_892_65,
            -0.000_836_181_524_974_670_466,
            0.000_195_062_725_336_327_168,
            -0.000_012_716_873_090_583_234_6,
            -1.748_918_780_962_748_43e-6,
            4.502_891_203_278_818_05e-7,
            -2.340_799_256_878_805_42e-8,
            -5.565_465_937_102_444_36e-9,
            1.068_402_538_766_702_49e-9,
            -1.486_661_805_786_820_17e-11,
            -1.456_326_963_077_378_59e-11,
            1.273_286_870_062_429_3e-12,
        ],
    );
    let ends = polynomial(
        w.sqrt() - lit(3.25),
        [
            3.083_885_610_308_384_88,
            1.005_258_976_662_775_26,
            0.005_370_937_249_086_038_13,
            -0.003_751_473_450_210_410_36,
            0.002_491_022_098_048_133_38,
            -0.001_686_009_343_986_965_38,
            0.000_956_001_281_203_324_28,
            -0.000_363_369_303_546_130_144,
            0.000_016_439_843_704_974_854_5,
            0.000_083_090_927_969_200_615_7,
            -0.000_038_190_302_652_624_326_3,
        ],
    );
    let y = F::nearest(v * w.lt(lit(6.0)).select(middle, ends));
    let y = rest.gt(lit(0.0)).select(y, lit(f64::NAN));
    x.abs().eq(lit(1.0)).select(F::lit(f64::INFINITY).copysign(x), y)
}
