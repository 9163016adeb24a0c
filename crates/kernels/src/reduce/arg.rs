//! Where the largest or smallest element along one axis is.

use bytemuck::Pod;

use super::{COLUMNS, LANES};
use crate::copy::{PARALLEL_MIN_ELEMS, PART_ELEMS, chunks};
use crate::float::wide;
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
    #[allow(clippy::eq_op, reason = "the test for NaN of any type")]
    let is_nan = |v: T| v != v;
    let better = |new: T, old: T| beats(new, old) | (is_nan(new) & !is_nan(old));
    let parallel = x.len() >= PARALLEL_MIN_ELEMS;
    if inner == 1 {
        let rows = (PART_ELEMS / n).max(1);
        chunks(pool, parallel, y, rows, |part, y| {
            for (x, y) in x[part * rows * n..].chunks_exact(n).zip(y) {
                let best = wide(|| extreme_of(x, &beats));
                let is_best = |v: &T| *v == best || (is_nan(*v) && is_nan(best));
                *y = x.iter().position(is_best).unwrap_or(0) as i64;
            }
        });
        return;
    }
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

/// An element of a row that no other beats, in independent lanes; a NaN if there is one.
#[inline(always)]
#[allow(clippy::eq_op, reason = "the test for NaN of any type")]
fn extreme_of<T: Copy + PartialEq>(x: &[T], beats: impl Fn(T, T) -> bool) -> T {
    let pick = |a: T, b: T| {
        let picked = if beats(b, a) { b } else { a };
        if b == b { picked } else { b }
    };
    let rows = x.chunks_exact(LANES);
    let mut best = rows.remainder().iter().fold(x[0], |a, &b| pick(a, b));
    let mut lanes = [x[0]; LANES];
    for row in rows {
        for (lane, &v) in lanes.iter_mut().zip(row) {
            *lane = pick(*lane, v);
        }
    }
    for lane in lanes {
        best = pick(best, lane);
    }
    best
}
