//! Running sums, products and extremes along an axis, and linear recurrences.
//!
//! Every function is a fold whose state each element sees: one loop along rows where the axis is the last, else over up to
//! `COLUMNS` neighbouring columns at once, row by row. States of floats are f64, and rounded for each element. The order of the
//! fold is that of the axis, on any number of threads.

use remat_types::{Element, Storage};

use crate::copy::{PARALLEL_MIN_ELEMS, PART_ELEMS};
use crate::pool::Pool;
use crate::reduce::{Arith, Num};

/// Columns that are folded at once.
const COLUMNS: usize = 256;

/// Rows that are folded at once: their chains of additions do not wait for each other.
const ROWS: usize = 4;

/// How an axis of `x: [outer, n, inner]` is walked.
#[derive(Clone, Copy, Debug)]
pub struct Along {
    /// The extent of the axis.
    pub n: usize,
    /// Elements from one to the next.
    pub inner: usize,
    /// From the last element to the first.
    pub reverse: bool,
    /// Whether an element is left out of what it sees.
    pub exclusive: bool,
}

impl Along {
    /// The `k`-th element of the walk.
    #[inline(always)]
    fn at(self, k: usize) -> usize {
        if self.reverse { self.n - 1 - k } else { k }
    }
}

/// `y[k] = out(state after x[k])`, or before it if exclusive; `step(state, x)` is the next one, and the first is `start`.
fn fold<T: Copy + Sync, U: Copy + Send, A: Copy + Send + Sync>(
    pool: &Pool,
    along: Along,
    x: &[T],
    y: &mut [U],
    start: A,
    step: impl Fn(A, T) -> A + Copy + Sync,
    out: impl Fn(A) -> U + Copy + Sync,
) {
    let block = along.n * along.inner;
    if y.is_empty() || block == 0 {
        return;
    }
    let outer = (PART_ELEMS / block).max(1);
    let part = |i: usize, y: &mut [U]| {
        let x = &x[i * outer * block..][..y.len()];
        if along.inner == 1 {
            let whole = y.len() / (ROWS * block) * ROWS * block;
            let (x, y) = (x.split_at(whole), y.split_at_mut(whole));
            x.0.chunks_exact(ROWS * block).zip(y.0.chunks_exact_mut(ROWS * block)).for_each(|(x, y)| {
                fold_rows::<ROWS, T, U, A>(along, x, y, start, step, out);
            });
            x.1.chunks_exact(block).zip(y.1.chunks_exact_mut(block)).for_each(|(x, y)| {
                fold_rows::<1, T, U, A>(along, x, y, start, step, out);
            });
        } else {
            x.chunks_exact(block).zip(y.chunks_exact_mut(block)).for_each(|(x, y)| {
                fold_columns(along, x, y, start, step, out);
            });
        }
    };
    crate::copy::chunks(pool, y.len() >= PARALLEL_MIN_ELEMS, y, outer * block, part);
}

#[inline(always)]
fn fold_rows<const N: usize, T: Copy, U, A: Copy>(
    along: Along,
    x: &[T],
    y: &mut [U],
    start: A,
    step: impl Fn(A, T) -> A,
    out: impl Fn(A) -> U,
) {
    let mut states = [start; N];
    for k in 0..along.n {
        let at = along.at(k);
        for (r, state) in states.iter_mut().enumerate() {
            let at = r * along.n + at;
            let before = *state;
            *state = step(before, x[at]);
            y[at] = out(if along.exclusive { before } else { *state });
        }
    }
}

fn fold_columns<T: Copy, U, A: Copy>(
    along: Along,
    x: &[T],
    y: &mut [U],
    start: A,
    step: impl Fn(A, T) -> A,
    out: impl Fn(A) -> U,
) {
    for from in (0..along.inner).step_by(COLUMNS) {
        let width = COLUMNS.min(along.inner - from);
        let mut states = [start; COLUMNS];
        for k in 0..along.n {
            let at = along.at(k) * along.inner + from;
            let row = x[at..at + width].iter().zip(&mut y[at..at + width]).zip(&mut states);
            for ((x, y), state) in row {
                let before = *state;
                *state = step(before, *x);
                *y = out(if along.exclusive { before } else { *state });
            }
        }
    }
}

/// Running sums.
pub fn sum<T: Num>(pool: &Pool, along: Along, x: &[T], y: &mut [T]) {
    fold(pool, along, x, y, T::Wide::ZERO, |sum, x| sum.plus(T::widen(x.lane())), T::narrow);
}

/// Running counts of what is not 0.
pub fn count(pool: &Pool, along: Along, x: &[u8], y: &mut [i64]) {
    fold(pool, along, x, y, 0i64, |sum, x| sum + i64::from(x != 0), |sum| sum);
}

/// Running products.
pub fn product<T: Num>(pool: &Pool, along: Along, x: &[T], y: &mut [T]) {
    fold(pool, along, x, y, T::Wide::ONE, |product, x| product.times(T::widen(x.lane())), T::narrow);
}

/// Running `ln sum e^x`; the largest is taken out, so nothing overflows, and is 1 of the sum, without which it keeps the digits of
/// the others.
pub fn log_sum_exp<T: Element + Storage>(pool: &Pool, along: Along, x: &[T], y: &mut [T]) {
    let step = |(most, rest): (f64, f64), x: T| {
        let x = x.to_f64();
        match x {
            // the difference of two equal infinities is 0
            _ if x == most => (most, rest + 1.0),
            _ if x < most => (most, rest + (x - most).exp()),
            _ => (x, (rest + 1.0) * (most - x).exp()),
        }
    };
    // of nothing the sum is 0
    fold(pool, along, x, y, (f64::NEG_INFINITY, -1.0f64), step, |(most, rest)| T::from_f64(most + rest.ln_1p()));
}

/// Running largest (smallest, if not `largest`) elements, and where they are: the last of equal ones, or the last NaN, in the
/// order of the walk. Never exclusive.
///
/// # Panics
/// If `x`, `y` and `at` are not of one length, of a whole number of blocks.
pub fn extreme<T: Storage>(pool: &Pool, largest: bool, along: Along, x: &[T], y: &mut [T], at: &mut [i64]) {
    if largest {
        extreme_by(pool, along, x, y, at, |new, old| new >= old);
    } else {
        extreme_by(pool, along, x, y, at, |new, old| new <= old);
    }
}

fn extreme_by<T: Storage>(
    pool: &Pool,
    along: Along,
    x: &[T],
    y: &mut [T],
    at: &mut [i64],
    reaches: impl Fn(T, T) -> bool + Copy + Sync,
) {
    let block = along.n * along.inner;
    if y.is_empty() || block == 0 {
        return;
    }
    #[allow(clippy::eq_op, reason = "the test for NaN of any type")]
    let is_nan = |v: T| v != v;
    let outer = (PART_ELEMS / block).max(1);
    let part = |i: usize, y: &mut [T], at: &mut [i64]| {
        let x = &x[i * outer * block..][..y.len()];
        let blocks = x.chunks_exact(block).zip(y.chunks_exact_mut(block)).zip(at.chunks_exact_mut(block));
        for ((x, y), at) in blocks {
            if along.inner == 1 {
                // the same, with what is best so far in registers
                let (mut best, mut place) = (x[along.at(0)], along.at(0) as i64);
                for k in 0..along.n {
                    let i = along.at(k);
                    let new = x[i];
                    if is_nan(new) | (!is_nan(best) & reaches(new, best)) {
                        (best, place) = (new, i as i64);
                    }
                    (y[i], at[i]) = (best, place);
                }
                continue;
            }
            let first = along.at(0) * along.inner;
            y[first..first + along.inner].copy_from_slice(&x[first..first + along.inner]);
            at[first..first + along.inner].fill(along.at(0) as i64);
            for k in 1..along.n {
                let (now, before) = (along.at(k) * along.inner, along.at(k - 1) * along.inner);
                for c in 0..along.inner {
                    let (new, old) = (x[now + c], y[before + c]);
                    let wins = is_nan(new) | (!is_nan(old) & reaches(new, old));
                    (y[now + c], at[now + c]) = if wins { (new, along.at(k) as i64) } else { (old, at[before + c]) };
                }
            }
        }
    };
    if y.len() >= PARALLEL_MIN_ELEMS {
        pool.chunks2_mut(y, outer * block, at, outer * block, part);
    } else {
        part(0, y, at);
    }
}

/// `y[k] = a[k] y[k - 1] + b[k]` along the walk, of floats; the first element of `a` does not count.
///
/// # Panics
/// If `a` or `b` is shorter than `y`.
pub fn recurrence<T: Element + Storage>(pool: &Pool, along: Along, a: &[T], b: &[T], y: &mut [T]) {
    let block = along.n * along.inner;
    if y.is_empty() || block == 0 {
        return;
    }
    let outer = (PART_ELEMS / block).max(1);
    let part = |i: usize, y: &mut [T]| {
        let from = i * outer * block;
        let (a, b) = (&a[from..from + y.len()], &b[from..from + y.len()]);
        for ((a, b), y) in a.chunks_exact(block).zip(b.chunks_exact(block)).zip(y.chunks_exact_mut(block)) {
            for from in (0..along.inner).step_by(COLUMNS) {
                let width = COLUMNS.min(along.inner - from);
                let mut states = [0.0f64; COLUMNS];
                for k in 0..along.n {
                    let at = along.at(k) * along.inner + from;
                    let row = a[at..at + width].iter().zip(&b[at..at + width]).zip(&mut y[at..at + width]);
                    for (((a, b), y), state) in row.zip(&mut states) {
                        *state = if k == 0 { b.to_f64() } else { a.to_f64() * *state + b.to_f64() };
                        *y = T::from_f64(*state);
                    }
                }
            }
        }
    };
    crate::copy::chunks(pool, y.len() >= PARALLEL_MIN_ELEMS, y, outer * block, part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_are_folded_alike_in_both_directions() {
        let (outer, n, inner) = (7, 9, 300);
        let x: Vec<f32> = (0..outer * n * inner).map(|i| (i * 31 % 101) as f32 * 0.1 - 3.0).collect();
        for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
            let along = Along { n, inner, reverse, exclusive };
            let mut y = vec![f32::NAN; x.len()];
            sum(&Pool::new(2), along, &x, &mut y);
            // the same with the axis in the last place
            let turned: Vec<f32> =
                (0..x.len()).map(|i| x[i / (n * inner) * n * inner + i % n * inner + i / n % inner]).collect();
            let mut rows = vec![f32::NAN; x.len()];
            sum(&Pool::new(1), Along { inner: 1, ..along }, &turned, &mut rows);
            for (i, row) in rows.iter().enumerate() {
                assert_eq!(*row, y[i / (n * inner) * n * inner + i % n * inner + i / n % inner], "{i} {along:?}");
            }
        }
    }

    #[test]
    fn the_last_of_equal_extremes_counts_and_a_nan_stays() {
        let x = [1.0f32, 3.0, 3.0, f32::NAN, 5.0];
        let (mut y, mut at) = ([0.0; 5], [0; 5]);
        let along = Along { n: 5, inner: 1, reverse: false, exclusive: false };
        extreme(&Pool::new(1), true, along, &x, &mut y, &mut at);
        assert_eq!((&y[..3], &at), (&[1.0, 3.0, 3.0][..], &[0, 1, 2, 3, 3]));
        assert!(y[3].is_nan() && y[4].is_nan());
        let along = Along { n: 3, reverse: true, ..along };
        extreme(&Pool::new(1), false, along, &x[..3], &mut y[..3], &mut at[..3]);
        assert_eq!((&y[..3], &at[..3]), (&[1.0, 3.0, 3.0][..], &[0, 1, 2][..]));
    }
}
