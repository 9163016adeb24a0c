//! Remainders of divisions of f32, and the hypotenuse.

use crate::scalar::{Float, Mask as _, Single, lit};
use crate::simd::widest;

/// A quotient below it is its own whole part but for the last unit.
const LARGEST: f64 = 4_503_599_627_370_496.0;

/// `a - b trunc(a / b)`, exactly, for a quotient below `LARGEST`, and whether it is: in f64 the whole part is right or one too
/// large, and what is left is a multiple of a unit of `b`, so that a fused step has it without rounding.
#[inline(always)]
fn near(a: f32, b: f32) -> (f32, bool) {
    let (x, d) = (f64::from(a), f64::from(b));
    let q = (x / d).trunc();
    let r = (-q).mul_add(d, x);
    let r = if r * x < 0.0 { r + d.abs().copysign(x) } else { r };
    ((r as f32).copysign(a), q.abs() < LARGEST && b.is_finite())
}

/// `r + b` where the remainder `r` of a division by `b` has the other sign; 0 with the sign of `b`.
#[inline(always)]
fn floored<F: Float>(r: F, b: F) -> F {
    let r = r.eq(lit(0.0)).select(F::lit(0.0).copysign(b), r);
    (r.ne(lit(0.0)) & (r.lt(lit(0.0)) ^ b.lt(lit(0.0)))).select(r + b, r)
}

/// `a - b floor(a / b)`, exactly: the remainder with the sign of `b`, which 0 has too; NaN for `b = 0`.
#[inline(always)]
pub fn floor_rem<F: Float>(a: F, b: F) -> F {
    floored(a % b, b)
}

#[inline(always)]
fn remainders(a: &[f32], b: &[f32], y: &mut [f32], end: impl Fn(f32, f32) -> f32) {
    widest(
        #[inline(always)]
        || {
            let mut all = true;
            for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
                let (r, is_near) = near(a, b);
                *y = end(r, b);
                all &= is_near;
            }
            if !all {
                for ((y, &a), &b) in y.iter_mut().zip(a).zip(b).filter(|((_, a), b)| !near(**a, **b).1) {
                    *y = end(a % b, b);
                }
            }
        },
    );
}

/// `y[i] = a[i] % b[i]`, by divisions in f64 where these suffice.
pub fn fmod_each(a: &[f32], b: &[f32], y: &mut [f32]) {
    remainders(
        a,
        b,
        y,
        #[inline(always)]
        |r, _| r,
    );
}

/// `y[i] = floor_rem(a[i], b[i])`, by the same divisions; see [`floor_rem`].
pub fn floor_rem_each(a: &[f32], b: &[f32], y: &mut [f32]) {
    remainders(a, b, y, floored);
}

/// `sqrt(a^2 + b^2)` without overflow; infinite if either is, whatever the other.
#[inline(always)]
pub fn hypot<F: Single>(a: F, b: F) -> F {
    let (x, y) = (a.wide(), b.wide());
    let h = F::nearest(x.mul_add(x, y * y).sqrt());
    (a.is_infinite() | b.is_infinite()).select(lit(f64::INFINITY), h)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_are_those_of_c() {
        let edges = [0.0f32, -0.0, 1.0, 3.0, 0.1, 1e-45, 1e-38, 2.5e-20, 16_777_217.0, 3.4e38, f32::INFINITY, f32::NAN];
        let mut state = 7u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(state)
        };
        let mut pairs: Vec<(f32, f32)> = edges.iter().flat_map(|a| edges.map(|b| (*a, b))).collect();
        pairs.extend(pairs.clone().iter().flat_map(|&(a, b)| [(-a, b), (a, -b)]));
        pairs.extend((0..200_000).map(|_| (random(), random())));
        // quotients that are whole, or nearly so
        pairs.extend((1..2000).map(|i| (i as f32 * 0.1, 0.1)));
        let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
        let (mut y, mut z) = (vec![0.0; a.len()], vec![0.0; a.len()]);
        fmod_each(&a, &b, &mut y);
        floor_rem_each(&a, &b, &mut z);
        for i in 0..a.len() {
            let want = a[i] % b[i];
            let same = |got: f32, want: f32| got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same(y[i], want), "{:e} % {:e} is {:e}, not {want:e}", a[i], b[i], y[i]);
            assert!(same(z[i], floored(want, b[i])), "{:e} mod {:e} is {:e}", a[i], b[i], z[i]);
            assert!(
                z[i].is_nan() || z[i].is_sign_negative() == b[i].is_sign_negative(),
                "{:e} mod {:e} is {:e}",
                a[i],
                b[i],
                z[i]
            );
        }
    }

    #[test]
    fn the_hypotenuse_is_rounded_once() {
        for (a, b) in [(3.0f32, 4.0f32), (1e38, 1e38), (1e-45, 0.0), (0.1, 0.7), (-5.0, 12.0)] {
            let want = f64::from(a).hypot(f64::from(b)) as f32;
            assert_eq!(hypot(a, b), want);
        }
        assert_eq!(hypot(f32::NEG_INFINITY, f32::NAN), f32::INFINITY);
        assert!(hypot(1.0, f32::NAN).is_nan());
    }
}
