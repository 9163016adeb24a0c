//! The quick form of the example `ulps`: a sample of all f32, and the places where forms change.

#[path = "../examples/ulps/measure.rs"]
mod measure;

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_PI_2, PI, SQRT_2};

use measure::{ALL, worst};
use remat_kernels::maths::gelu_slope;

/// A prime, so that mantissas of all kinds come up in every octave.
const STEP: u64 = 40_009;
/// The largest error that the module states.
const MOST_ULPS: f64 = 2.0;

#[test]
fn functions_are_within_two_ulp_on_a_sample() {
    for f in &ALL {
        let w = worst(f, 0, 1 << 32, STEP);
        assert!(w.tried == (1u64 << 32).div_ceil(STEP) && w.others * 20 < w.tried, "{}: {w:?}", f.name);
        assert!(w.ulps <= MOST_ULPS, "{}({:e}): {} ulp", f.name, w.x, w.ulps);
    }
}

#[test]
fn functions_are_within_two_ulp_where_forms_change_and_results_vanish() {
    const AROUND: u64 = 4000;
    let near = [0.0f32, f32::MIN_POSITIVE, 0.5, 0.625, FRAC_1_SQRT_2, 1.0, SQRT_2, 9.2, 10.054, 10.606_602, 14.2];
    let far = [15.0, 17.33, 87.33, 88.722_84, 103.97, 104.0, 210.0, FRAC_PI_2, PI, 355.0, 1.0e6, f32::MAX];
    for x in near.into_iter().chain(far) {
        for sign in [0u64, 1 << 31] {
            let at = u64::from(x.to_bits()) | sign;
            let (from, to) = (at.saturating_sub(AROUND).max(sign), at + AROUND);
            for f in &ALL {
                let w = worst(f, from, to.min(1 << 32), 1);
                assert!(w.ulps <= MOST_ULPS, "{}({:e}): {} ulp", f.name, w.x, w.ulps);
            }
        }
    }
}

/// As IEEE 754 has it: an odd function of -0 is -0.
#[test]
fn zeros_have_their_sign() {
    let x = [0.0f32, -0.0].repeat(33);
    let mut y = vec![f32::NAN; x.len()];
    for f in &ALL {
        (f.f)(&x, &mut y);
        for (x, y) in x.iter().zip(&y) {
            let want = (f.exact)(f64::from(*x)) as f32;
            assert!(want != 0.0 || y.to_bits() == want.to_bits(), "{}({x:?}) is {y:?}, not {want:?}", f.name);
        }
    }
}

#[test]
fn the_slope_of_gelu_is_within_its_stated_error() {
    let exact = |x: f64| {
        let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) + x * density
    };
    let far = (0..1u64 << 32).step_by(STEP as usize).map(|bits| f32::from_bits(bits as u32)).filter(|x| x.is_finite());
    let mut worst = (0.0, 0.0);
    for x in (-320_000..320_000).map(|i| i as f32 * 5.0e-5).chain(far) {
        let error = (f64::from(gelu_slope(x)) - exact(f64::from(x))).abs();
        if error > worst.0 || error.is_nan() {
            worst = (error, x);
        }
    }
    assert!(worst.0 < 1.8e-7, "{worst:?}");
    assert_eq!([f32::INFINITY, f32::NEG_INFINITY, 0.0].map(gelu_slope), [1.0, 0.0, 0.5]);
    assert!(gelu_slope(f32::NAN).is_nan());
}
