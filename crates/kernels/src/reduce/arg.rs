//! Where the largest or smallest element along one axis is.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use bytemuck::Pod;

use super::COLUMNS;
use crate::cache::l2_bytes;
use crate::copy::{PARALLEL_MIN_ELEMS, PART_ELEMS, chunks};
use crate::pool::Pool;
use crate::prefetch::{AHEAD_BYTES, prefetch_run};
use crate::simd::widest;

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
        // what is in the cache already would be found 0.7 times as fast with questions
        return if size_of_val(x) > l2_bytes() {
            arg_rows(pool, parallel, x, n, y, beats, |x| prefetch_run(x.as_ptr().wrapping_byte_add(AHEAD_BYTES), LANES))
        } else {
            arg_rows(pool, parallel, x, n, y, beats, |_| {})
        };
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

/// [`arg_extreme`] along rows of `n`; `prefetch` is called with each [`LANES`] elements that are read, and may prefetch others.
fn arg_rows<T: Pod + PartialOrd + Sync>(
    pool: &Pool,
    parallel: bool,
    x: &[T],
    n: usize,
    y: &mut [i64],
    beats: impl Fn(T, T) -> bool + Copy + Sync,
    prefetch: impl Fn(&[T; LANES]) + Copy + Sync,
) {
    let rows = (PART_ELEMS / n).max(1);
    chunks(pool, parallel, y, rows, |part, y| {
        for (x, y) in x[part * rows * n..].chunks_exact(n).zip(y) {
            *y = widest(
                #[inline(always)]
                || first_extreme(x, beats, prefetch),
            ) as i64;
        }
    });
}

/// Elements of a block of a row. The kernel finds the extreme of a block before it looks for its place.
const BLOCK: usize = 1024;

/// Elements that are compared side by side: four vectors of f32, so that no comparison waits for the last one.
const LANES: usize = 64;

/// The first place of an element that no other beats, or of a NaN. Only the block of the extreme is searched.
#[inline(always)]
#[allow(clippy::eq_op, reason = "the test for NaN of any type")]
fn first_extreme<T: Copy + PartialEq>(
    x: &[T],
    beats: impl Fn(T, T) -> bool + Copy,
    prefetch: impl Fn(&[T; LANES]) + Copy,
) -> usize {
    let (mut best, mut place) = (x[0], 0);
    for (i, block) in x.chunks(BLOCK).enumerate() {
        let extreme = extreme_of(block, beats, prefetch);
        if extreme != extreme {
            return i * BLOCK + first_where(block, |v| v != v);
        }
        if beats(extreme, best) {
            (best, place) = (extreme, i * BLOCK);
        }
    }
    place + first_where(&x[place..x.len().min(place + BLOCK)], |v| v == best)
}

/// Elements of a vector of f32.
const VECTOR: usize = 16;

/// The first place at which `is` holds, which it does for some; without a branch for each element.
#[inline(always)]
fn first_where<T: Copy>(x: &[T], is: impl Fn(T) -> bool) -> usize {
    let (whole, rest) = x.as_chunks::<LANES>();
    for (i, x) in whole.iter().enumerate() {
        let mut found = [0u32; VECTOR];
        for x in x.as_chunks::<VECTOR>().0 {
            for lane in 0..VECTOR {
                found[lane] |= u32::from(is(x[lane]));
            }
        }
        if found.iter().fold(0, |any, found| any | found) != 0 {
            return i * LANES + x.iter().position(|v| is(*v)).unwrap_or(0);
        }
    }
    whole.len() * LANES + rest.iter().position(|v| is(*v)).unwrap_or(0)
}

/// `new`, where it beats `old` or is a NaN; nothing beats a NaN but another one. Two choices without a branch each.
#[inline(always)]
#[allow(clippy::eq_op, reason = "the test for NaN of any type")]
fn better<T: Copy + PartialEq>(new: T, old: T, beats: impl Fn(T, T) -> bool) -> T {
    let picked = if beats(new, old) { new } else { old };
    if new == new { picked } else { new }
}

/// An element that no other beats, or a NaN if there is one.
#[inline(always)]
fn extreme_of<T: Copy + PartialEq>(x: &[T], beats: impl Fn(T, T) -> bool + Copy, prefetch: impl Fn(&[T; LANES])) -> T {
    let [mut a, mut b, mut c, mut d] = [[x[0]; VECTOR]; LANES / VECTOR];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        prefetch(x);
        for i in 0..VECTOR {
            a[i] = better(x[i], a[i], beats);
        }
        for i in 0..VECTOR {
            b[i] = better(x[VECTOR + i], b[i], beats);
        }
        for i in 0..VECTOR {
            c[i] = better(x[2 * VECTOR + i], c[i], beats);
        }
        for i in 0..VECTOR {
            d[i] = better(x[3 * VECTOR + i], d[i], beats);
        }
    }
    for i in 0..VECTOR {
        a[i] = better(better(d[i], c[i], beats), better(b[i], a[i], beats), beats);
    }
    rest.iter().fold(extreme_of_lanes(&a, beats), |old, &new| better(new, old, beats))
}

/// [`extreme_of`] for few elements.
///
/// A call of its own: seen together with the loop over a row, the compiler keeps the lanes in memory.
#[inline(never)]
fn extreme_of_lanes<T: Copy + PartialEq>(x: &[T; VECTOR], beats: impl Fn(T, T) -> bool + Copy) -> T {
    let mut x = *x;
    let mut width = VECTOR / 2;
    while width > 0 {
        for i in 0..width {
            x[i] = better(x[i + width], x[i], beats);
        }
        width /= 2;
    }
    x[0]
}
