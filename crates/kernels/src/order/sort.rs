//! Stable sorting: by digits of the key where there are many elements, by comparison where there are few.

use super::key::{Key, Word, is_narrow, word};
use super::{Lanes, each_lane};
use crate::pool::Pool;

/// Bits of a digit: its counters take 8 KiB.
const DIGIT_BITS: u32 = 11;
const DIGIT: usize = 1 << DIGIT_BITS;

/// Elements from which digits are faster than comparisons.
const DIGITS_MIN_ELEMS: usize = 1024;

/// Bytes of workspace for [`sort`].
pub fn sort_workspace<T: Key>(n: usize, threads: usize) -> usize {
    let size = if is_narrow::<T>(n) { size_of::<u64>() } else { size_of::<u128>() };
    n.saturating_mul(2 * size).saturating_mul(threads)
}

/// The elements of each lane in order, and their places, equal ones in that of their places. NaN is the largest.
///
/// # Panics
/// If `y` or `at` is not of the length of `x`, or the workspace smaller than [`sort_workspace`] or not aligned to 16 bytes.
pub fn sort<T: Key>(
    pool: &Pool,
    lanes: Lanes,
    descending: bool,
    x: &[T],
    y: &mut [T],
    at: &mut [i64],
    workspace: &mut [u8],
) {
    if is_narrow::<T>(lanes.n) {
        sort_as::<T, u64>(pool, lanes, descending, x, y, at, workspace);
    } else {
        sort_as::<T, u128>(pool, lanes, descending, x, y, at, workspace);
    }
}

fn sort_as<T: Key, W: Word>(
    pool: &Pool,
    lanes: Lanes,
    descending: bool,
    x: &[T],
    y: &mut [T],
    at: &mut [i64],
    workspace: &mut [u8],
) {
    let Lanes { n, inner } = lanes;
    let words: &mut [W] = bytemuck::cast_slice_mut(workspace);
    each_lane(pool, lanes, x, n, (y, at), (words, 2 * n), |x, y, at, slot| {
        let (words, other) = slot.split_at_mut(n);
        for (i, w) in words.iter_mut().enumerate() {
            *w = word(x[i * inner], i, descending);
        }
        for (k, w) in sorted::<T, W>(words, other).iter().enumerate() {
            (y[k * inner], at[k * inner]) = (x[w.place() * inner], w.place() as i64);
        }
    });
}

/// Sorts `words`, whose places ascend; the result is in one of the two.
pub(super) fn sorted<'a, T: Key, W: Word>(words: &'a mut [W], other: &'a mut [W]) -> &'a [W] {
    if words.len() < DIGITS_MIN_ELEMS || u32::try_from(words.len()).is_err() {
        words.sort_unstable();
        return words;
    }
    let digits = T::BITS.div_ceil(DIGIT_BITS) as usize;
    let digit = |w: W, d: usize| (w.key() >> (d as u32 * DIGIT_BITS)) as usize % DIGIT;
    let mut counts = [[0u32; DIGIT]; u64::BITS.div_ceil(DIGIT_BITS) as usize];
    for w in words.iter() {
        for (d, counts) in counts[..digits].iter_mut().enumerate() {
            counts[digit(*w, d)] += 1;
        }
    }
    let (mut from, mut to) = (words, other);
    for (d, counts) in counts[..digits].iter_mut().enumerate() {
        if counts[digit(from[0], d)] as usize == from.len() {
            // all have this digit
            continue;
        }
        let mut sum = 0;
        for count in counts.iter_mut() {
            (*count, sum) = (sum, sum + *count);
        }
        for &w in from.iter() {
            let next = &mut counts[digit(w, d)];
            to[*next as usize] = w;
            *next += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
    from
}
