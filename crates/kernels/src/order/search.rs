//! Where values belong in sorted lanes.

use remat_types::Storage;

use crate::copy::{PARALLEL_MIN_ELEMS, chunks};
use crate::pool::Pool;

/// Values of one part of a parallel search.
const PART_VALUES: usize = 4096;

/// `y[b, i]` = how many elements of the ascending `sorted[b, _]` are less than `values[b, i]`, or if `right` not above it. NaN
/// is the largest, and equals NaN.
///
/// `sorted: [b, n]`, or `[n]` for all values; `values, y: [b, m]`.
///
/// # Panics
/// If `values` is shorter than `y`, or `sorted` than so many lanes.
pub fn search_sorted<T: Storage>(
    pool: &Pool,
    right: bool,
    sorted: &[T],
    n: usize,
    values: &[T],
    m: usize,
    y: &mut [i64],
) {
    #[allow(clippy::eq_op, reason = "the test for NaN of any type")]
    let is_nan = |v: T| v != v;
    let less = |a: T, b: T| (a < b) | (is_nan(b) & !is_nan(a));
    if right {
        search_by(pool, sorted, n, values, m, y, |element, v| !less(v, element));
    } else {
        search_by(pool, sorted, n, values, m, y, less);
    }
}

fn search_by<T: Storage>(
    pool: &Pool,
    sorted: &[T],
    n: usize,
    values: &[T],
    m: usize,
    y: &mut [i64],
    is_before: impl Fn(T, T) -> bool + Copy + Sync,
) {
    let one_lane = sorted.len() == n;
    let parallel = y.len() >= PARALLEL_MIN_ELEMS / 8;
    chunks(pool, parallel, y, PART_VALUES, |part, y| {
        let first = part * PART_VALUES;
        for (i, (y, v)) in y.iter_mut().zip(&values[first..]).enumerate() {
            let lane = if one_lane { sorted } else { &sorted[(first + i) / m * n..][..n] };
            // halves without a branch, which no processor would foresee
            let (mut base, mut len) = (0, n);
            while len > 1 {
                let half = len / 2;
                base += half * usize::from(is_before(lane[base + half - 1], *v));
                len -= half;
            }
            *y = (base + usize::from(len == 1 && is_before(lane[base], *v))) as i64;
        }
    });
}
