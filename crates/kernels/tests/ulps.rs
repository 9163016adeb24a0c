//! The quick form of the example `ulps`: a sample of all f32, and the places where forms change.

#[path = "../examples/ulps/measure.rs"]
mod measure;

use measure::{ALL, worst};

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
    let near = [0.0f32, f32::MIN_POSITIVE, 0.5, 0.625, 0.707_106_77, 1.0, 1.414_213_5, 9.2, 10.054, 10.606_602, 14.2];
    let far = [15.0, 17.33, 87.33, 88.722_84, 103.97, 104.0, 210.0, 1.570_796_4, 3.141_592_7, 355.0, 1.0e6, f32::MAX];
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
