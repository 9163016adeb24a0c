//! Where the largest or smallest element along one axis is.

use bytemuck::Pod;

use super::{COLUMNS, chunks};
use crate::copy::PARALLEL_MIN_ELEMS;
use crate::pool::Pool;

/// Which element is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// For `x: [outer, n, inner]`, contiguous, `y[o, i]` = the first index at which `x[o, _, i]` is extreme; the first NaN, if
/// there is one. `n` is at least 1.
///
/// # Panics
/// If `x` or `y` is too short, or `n` is 0.
pub fn arg_extreme<T: Pod + PartialOrd + Sync>(
    pool: &Pool,
    which: Extreme,
    x: &[T],
    n: usize,
    inner: usize,
    y: &mut [i64],
) {
    match which {
        Extreme::Max => arg_by(pool, x, n, inner, y, |a: T, b: T| a > b),
        Extreme::Min => arg_by(pool, x, n, inner, y, |a: T, b: T| a < b),
    }
}

fn arg_by<T: Pod + PartialOrd + Sync>(
    pool: &Pool,
    x: &[T],
    n: usize,
    inner: usize,
    y: &mut [i64],
    beats: impl Fn(T, T) -> bool + Sync,
) {
    if y.is_empty() {
        return;
    }
    // a NaN, and it alone, differs from itself; it beats all but another NaN
    let is_nan = |v: T| v.partial_cmp(&v).is_none();
    let better = |new: T, old: T| beats(new, old) || (is_nan(new) && !is_nan(old));
    let parallel = x.len() >= PARALLEL_MIN_ELEMS;
    chunks(pool, parallel, y, inner, |o, y| {
        let base = o * n * inner;
        for (j, y) in y.chunks_mut(COLUMNS).enumerate() {
            let at = base + j * COLUMNS;
            let width = y.len();
            let mut best = [T::zeroed(); COLUMNS];
            best[..width].copy_from_slice(&x[at..at + width]);
            y.fill(0);
            for k in 1..n {
                let row = &x[at + k * inner..at + k * inner + width];
                for ((best, y), &v) in best.iter_mut().zip(y.iter_mut()).zip(row) {
                    if better(v, *best) {
                        (*best, *y) = (v, k as i64);
                    }
                }
            }
        }
    });
}
