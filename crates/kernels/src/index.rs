//! Gathering by index, and putting where indices say.
//!
//! Indices are read through [`Indices`], whatever their type, so that there is one loop per element type. Each is checked
//! before anything is written: a bad one is told by position and value.
//!
//! * Module `places` finds the elements that one or several index tensors name, and reads them.
//! * Module `put` writes there, in the order of the indices.
//! * Module `trees` follows indices from node to node of decision trees.
//! * The rest is for one vector of indices along one axis, whose rows are long.
//!
//! A scatter-add is cut by destination, never by source: each part walks all indices in order and adds what falls on its
//! rows. So every destination gets its terms in the order of the sources, on any number of threads. Rows that have no term
//! are set to zero last, and those that have one are written but once for it.

mod indices;
mod places;
mod put;
mod trees;

pub use indices::{BadIndex, Indices};
pub use places::{Named, Places, Row, gather};
pub use put::{Put, Source, put};
pub use trees::{BadTree, TreeNodes, tree_leaf, tree_sum};

use crate::copy::{PARALLEL_MIN_ELEMS, chunks};
use crate::pool::Pool;
use crate::prefetch::prefetch_run;
use crate::reduce::{Arith, Num};
use crate::simd::widest;

/// Rows of `inner` elements that one part of a parallel loop has.
fn rows_per_part(inner: usize) -> usize {
    (crate::copy::PART_ELEMS / inner).max(1)
}

/// `y[o, m, i] = x[o, index[m], i]` for `x: [outer, n, inner]`. Errors: the first bad index.
///
/// # Panics
/// If `x` or `y` is too short.
pub fn take<T: Copy + Send + Sync>(
    pool: &Pool,
    x: &[T],
    n: usize,
    inner: usize,
    index: Indices<'_>,
    y: &mut [T],
) -> Result<(), BadIndex> {
    index.check(n)?;
    if y.is_empty() {
        return Ok(());
    }
    let (rows, parallel) = (rows_per_part(inner), y.len() >= PARALLEL_MIN_ELEMS);
    chunks(pool, parallel, y, rows * inner, |part, y| {
        for (k, row) in y.chunks_mut(inner).enumerate() {
            let (o, m) = ((part * rows + k) / index.len(), (part * rows + k) % index.len());
            let from = (o * n + index.at(m)) * inner;
            if inner >= LONG_ROW {
                // the row of the copy that is next, which is not read
                prefetch_run(row.as_ptr().wrapping_add(inner), inner);
            }
            if inner >= LONG_ROW && m + ROWS_AHEAD < index.len() {
                let next = (o * n + index.at(m + ROWS_AHEAD)) * inner;
                prefetch_run(x.as_ptr().wrapping_add(next), inner);
            }
            if inner == 1 {
                row[0] = x[from];
            } else {
                row.copy_from_slice(&x[from..from + inner]);
            }
        }
    });
    Ok(())
}

/// `y[o, n, i] = sum of dy[o, m, i] over all m with index[m] = n`, added in the order of `m`. Errors: the first bad index.
///
/// # Panics
/// If `dy` is too short.
pub fn take_grad<T: Num>(
    pool: &Pool,
    dy: &[T],
    n: usize,
    inner: usize,
    index: Indices<'_>,
    y: &mut [T],
) -> Result<(), BadIndex> {
    index.check(n)?;
    if y.is_empty() || index.is_empty() {
        y.fill(T::default());
        return Ok(());
    }
    // each part reads all indices of its batch, and of `dy` what falls on it: one for a thread: what one of eight reads lies far apart
    let parallel = y.len() >= PARALLEL_MIN_ELEMS && pool.threads() > 1;
    let parts = if parallel { pool.threads() } else { 1 };
    let most = if inner < LONG_ROW { n } else { n.min(MARKED_ROWS) };
    let rows = n.div_ceil(parts).max(rows_per_part(inner)).min(most);
    for (o, y) in y.chunks_mut(n * inner).enumerate() {
        let dy = &dy[o * index.len() * inner..(o + 1) * index.len() * inner];
        chunks(pool, parallel, y, rows * inner, |part, y| {
            if inner < LONG_ROW {
                y.fill(T::default());
                add_short_rows(dy, inner, index, part * rows, y);
            } else {
                add_long_rows(dy, inner, index, part * rows, ROWS_AHEAD * parts, y);
            }
        });
    }
    Ok(())
}

/// Elements from which a row is worth prefetching, and marking.
const LONG_ROW: usize = 32;

/// Rows of a part of a scatter-add: their marks take 16 KiB of the stack.
const MARKED_ROWS: usize = 64 * MARK_WORDS;

/// Words of the marks of a part's rows.
const MARK_WORDS: usize = 2048;

/// Rows that are prefetched before they are copied or added to.
const ROWS_AHEAD: usize = 4;

/// Adds the rows of `dy` to those that `index` names of `y`, which holds rows from `first` on.
fn add_short_rows<T: Num>(dy: &[T], inner: usize, index: Indices<'_>, first: usize, y: &mut [T]) {
    for (m, dy) in dy.chunks_exact(inner).enumerate() {
        let Some(row) = index.at(m).checked_sub(first) else { continue };
        if let Some(y) = y.get_mut(row * inner..(row + 1) * inner) {
            y.iter_mut().zip(dy).for_each(|(y, d)| *y = plus(*y, *d));
        }
    }
}

/// As [`add_short_rows`] to zeros, for at most [`MARKED_ROWS`] rows of `y`, whatever it holds. The function marks the rows
/// that have a term, so that it does not add the first term of a row to zeros in memory. It prefetches rows `ahead` indices
/// before their turn, since no processor can predict their places.
fn add_long_rows<T: Num>(dy: &[T], inner: usize, index: Indices<'_>, first: usize, ahead: usize, y: &mut [T]) {
    let mut marks = [0u64; MARK_WORDS];
    widest(
        #[inline(always)]
        || {
            for (m, dy) in dy.chunks_exact(inner).enumerate() {
                if m + ahead < index.len()
                    && let Some(row) = index.at(m + ahead).checked_sub(first)
                    && let Some(y) = y.get(row * inner..(row + 1) * inner)
                {
                    prefetch_run(y.as_ptr(), y.len());
                }
                let Some(row) = index.at(m).checked_sub(first) else { continue };
                let Some(y) = y.get_mut(row * inner..(row + 1) * inner) else { continue };
                let (word, bit) = (&mut marks[row / 64], 1 << (row % 64));
                if *word & bit == 0 {
                    // 0 + -0 is 0
                    y.iter_mut().zip(dy).for_each(|(y, d)| *y = plus(T::default(), *d));
                    *word |= bit;
                } else {
                    y.iter_mut().zip(dy).for_each(|(y, d)| *y = plus(*y, *d));
                }
            }
        },
    );
    for (row, y) in y.chunks_exact_mut(inner).enumerate() {
        if marks[row / 64] >> (row % 64) & 1 == 0 {
            y.fill(T::default());
        }
    }
}

#[inline(always)]
fn plus<T: Num>(a: T, b: T) -> T {
    T::narrow(T::widen(a.lane().plus(b.lane())))
}

/// `y[m, k]` = `one` where `k = index[m]`, else the default; `y: [index.len(), depth]`. Errors: the first bad index.
pub fn one_hot<T: Copy + Default>(index: Indices<'_>, depth: usize, one: T, y: &mut [T]) -> Result<(), BadIndex> {
    index.check(depth)?;
    y.fill(T::default());
    for (m, row) in y.chunks_mut(depth.max(1)).enumerate() {
        row[index.at(m)] = one;
    }
    Ok(())
}

/// The indices of the elements of `x` that are not 0, in row-major order: `y: [size, rank]`. NaN is not 0, -0 is. Gives how
/// many there are; of more than `size` the first are written.
pub fn nonzero<T: Copy + Default + PartialEq>(x: &[T], shape: &[usize], size: usize, y: &mut [i64]) -> usize {
    let rank = shape.len();
    let zero = T::default();
    let mut found = 0;
    for (i, _) in x.iter().enumerate().filter(|(_, v)| **v != zero) {
        if found < size {
            let mut rest = i;
            for (at, n) in y[found * rank..(found + 1) * rank].iter_mut().zip(shape).rev() {
                *at = (rest % n) as i64;
                rest /= n;
            }
        }
        found += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_zero_is_found_in_order_and_counted_beyond_the_room() {
        let x = [0.0f32, 2.0, -0.0, f32::NAN, 0.0, -1.0];
        let mut y = [7i64; 6];
        assert_eq!(nonzero(&x, &[2, 3], 3, &mut y), 3);
        assert_eq!(y, [0, 1, 1, 0, 1, 2]);
        let mut y = [7i64; 4];
        assert_eq!(nonzero(&x, &[2, 3], 2, &mut y), 3);
        assert_eq!(y, [0, 1, 1, 0]);
        assert_eq!(nonzero(&[1u8], &[], 1, &mut []), 1);
    }

    #[test]
    fn a_scatter_add_has_the_same_bits_on_any_number_of_threads() {
        let (m, n, inner) = (5000, 700, 100);
        let index: Vec<u32> = (0..m).map(|i| i * i % 697).collect();
        let dy: Vec<f32> = (0..m as usize * inner).map(|i| 1.0 / (1 + i % 1013) as f32).collect();
        let run = |threads| {
            let mut y = vec![f32::NAN; n * inner];
            take_grad(&Pool::new(threads), &dy, n, inner, Indices::U32(&index), &mut y).expect("in range");
            y
        };
        let one = run(1);
        assert_eq!(one, run(3));
        let total: f64 = one.iter().map(|v| f64::from(*v)).sum();
        let want: f64 = dy.iter().map(|v| f64::from(*v)).sum();
        assert!((total - want).abs() < 1e-4 * want);
    }

    #[test]
    fn a_scatter_add_has_the_bits_of_a_plain_loop_in_the_order_of_the_indices() {
        for (outer, n, inner, m) in [(1, 40, 31, 90), (2, 40, 32, 90), (3, 5, 33, 1), (1, MARKED_ROWS + 70, 32, 400)] {
            let index: Vec<i64> = (0..m).map(|i| (i * i * 7919 % n) as i64).collect();
            let term = |i: usize| [-0.0, 1.0, -1.0 / 3.0, 1e-3][i % 4] * (1 + i % 97) as f32;
            let dy: Vec<f32> = (0..outer * m * inner).map(term).collect();
            let mut want = vec![0.0f32; outer * n * inner];
            for (r, dy) in dy.chunks(inner).enumerate() {
                let to = (r / m * n + index[r % m] as usize) * inner;
                want[to..to + inner].iter_mut().zip(dy).for_each(|(y, d)| *y += d);
            }
            for threads in [1, 2] {
                let mut y = vec![f32::NAN; want.len()];
                take_grad(&Pool::new(threads), &dy, n, inner, Indices::I64(&index), &mut y).expect("in range");
                let same = y.iter().zip(&want).all(|(y, want)| y.to_bits() == want.to_bits());
                assert!(same, "{outer} x {n} x {inner} of {m} on {threads} threads");
            }
        }
    }

    #[test]
    fn a_bad_index_is_told_by_position_and_value() {
        let mut y = [0.0f32; 2];
        let e = take(&Pool::new(1), &[1.0, 2.0], 2, 1, Indices::I32(&[1, -1]), &mut y);
        assert_eq!(e, Err(BadIndex { position: 1, value: -1 }));
        let e = take(&Pool::new(1), &[1.0, 2.0], 2, 1, Indices::U64(&[u64::MAX, 1]), &mut y);
        assert_eq!(e, Err(BadIndex { position: 0, value: u64::MAX.into() }));
    }
}
