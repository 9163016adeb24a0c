//! Where the largest or smallest element along one axis is.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use bytemuck::Pod;

use super::COLUMNS;
use crate::copy::{PARALLEL_MIN_ELEMS, PART_ELEMS, chunks};
use crate::float::widest;
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
        Extreme::Max => arg_by(
            pool,
            x,
            n,
            inner,
            y,
            #[inline(always)]
            |a: T, b: T| a > b,
        ),
        Extreme::Min => arg_by(
            pool,
            x,
            n,
            inner,
            y,
            #[inline(always)]
            |a: T, b: T| a < b,
        ),
    }
}

fn arg_by<T: Pod + PartialOrd + Sync>(
    pool: &Pool,
    x: &[T],
    n: usize,
    inner: usize,
    y: &mut [i64],
    beats: impl Fn(T, T) -> bool + Copy + Sync,
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
                *y = widest(
                    #[inline(always)]
                    || first_extreme(x, beats),
                ) as i64;
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

/// Elements of a row of which the extreme is found before its place is looked for: few, since the search goes one by one.
const BLOCK: usize = 256;

/// Elements that are compared side by side: four vectors of f32, so that no comparison waits for the last one.
const LANES: usize = 64;

/// The first place of an element that no other beats, or of a NaN. Only the block of the extreme is searched.
#[inline(always)]
#[allow(clippy::eq_op, reason = "the test for NaN of any type")]
fn first_extreme<T: Copy + PartialEq>(x: &[T], beats: impl Fn(T, T) -> bool + Copy) -> usize {
    let (mut best, mut place) = (x[0], 0);
    for (i, block) in x.chunks(BLOCK).enumerate() {
        let (extreme, nan) = extreme_of(block, beats);
        if nan {
            return i * BLOCK + block.iter().position(|v| v != v).unwrap_or(0);
        }
        if beats(extreme, best) {
            (best, place) = (extreme, i * BLOCK);
        }
    }
    let block = &x[place..x.len().min(place + BLOCK)];
    place + block.iter().position(|v| *v == best).unwrap_or(0)
}

/// An element that no other beats, NaN apart, and whether there is a NaN.
#[inline(always)]
#[allow(clippy::eq_op, reason = "the test for NaN of any type")]
fn extreme_of<T: Copy + PartialEq>(x: &[T], beats: impl Fn(T, T) -> bool + Copy) -> (T, bool) {
    let mut lanes = [x[0]; LANES];
    let mut nans = [false; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        for i in 0..LANES {
            lanes[i] = if beats(x[i], lanes[i]) { x[i] } else { lanes[i] };
        }
        for i in 0..LANES {
            nans[i] |= x[i] != x[i];
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            let other = lanes[i + width];
            lanes[i] = if beats(other, lanes[i]) { other } else { lanes[i] };
        }
        width /= 2;
    }
    let nan = nans.iter().fold(false, |any, nan| any | nan) | rest.iter().fold(false, |any, v| any | (v != v));
    (rest.iter().fold(lanes[0], |a, &b| if beats(b, a) { b } else { a }), nan)
}
