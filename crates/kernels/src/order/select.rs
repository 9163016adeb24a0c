//! The largest or smallest elements of a lane, and single ones by their rank.

use super::key::{Key, Word, is_narrow, word};
use super::{Lanes, each_lane};
use crate::pool::Pool;

/// Elements beyond `k` that are held before those that are too large are dropped.
const MORE: usize = 64;

fn word_bytes<T: Key>(n: usize) -> usize {
    if is_narrow::<T>(n) { size_of::<u64>() } else { size_of::<u128>() }
}

/// Words that [`top_k`] holds.
fn held(n: usize, k: usize) -> usize {
    k.saturating_add(k.max(MORE)).min(n.max(1))
}

/// Bytes of workspace for [`top_k`].
pub fn top_k_workspace<T: Key>(n: usize, k: usize, threads: usize) -> usize {
    held(n, k).saturating_mul(word_bytes::<T>(n)).saturating_mul(threads)
}

/// The `k` largest (smallest, if not) elements of each lane and their places: in order if `sorted`, the first of equal ones first;
/// else in the order of their places. NaN is the largest. `y, at: [outer, k, inner]`.
///
/// # Panics
/// If `k` is above `n`, an output too short, or the workspace smaller than [`top_k_workspace`] or not aligned to 16 bytes.
#[allow(clippy::too_many_arguments, reason = "what a kernel takes")]
pub fn top_k<T: Key>(
    pool: &Pool,
    lanes: Lanes,
    k: usize,
    (largest, sorted): (bool, bool),
    x: &[T],
    y: &mut [T],
    at: &mut [i64],
    workspace: &mut [u8],
) {
    if is_narrow::<T>(lanes.n) {
        top_k_as::<T, u64>(pool, lanes, k, (largest, sorted), x, y, at, workspace);
    } else {
        top_k_as::<T, u128>(pool, lanes, k, (largest, sorted), x, y, at, workspace);
    }
}

#[allow(clippy::too_many_arguments, reason = "as above")]
fn top_k_as<T: Key, W: Word>(
    pool: &Pool,
    lanes: Lanes,
    k: usize,
    (largest, sorted): (bool, bool),
    x: &[T],
    y: &mut [T],
    at: &mut [i64],
    workspace: &mut [u8],
) {
    if k == 0 {
        return;
    }
    let Lanes { n, inner } = lanes;
    let words: &mut [W] = bytemuck::cast_slice_mut(workspace);
    each_lane(pool, lanes, x, k, (y, at), (words, held(n, k)), |x, y, at, held| {
        let lane = x.iter().step_by(inner).take(n).enumerate().map(|(i, v)| word(*v, i, largest));
        let best = least(lane, k, held);
        if sorted {
            best.sort_unstable();
        } else {
            best.sort_unstable_by_key(|w| w.place());
        }
        for (j, w) in best.iter().enumerate() {
            (y[j * inner], at[j * inner]) = (x[w.place() * inner], w.place() as i64);
        }
    });
}

/// The `k` least of at least `k` words, in any order. Words above the `k`-th so far are skipped.
fn least<W: Word>(words: impl Iterator<Item = W>, k: usize, held: &mut [W]) -> &mut [W] {
    let (mut count, mut limit) = (0, W::MAX);
    for w in words {
        if w > limit {
            continue;
        }
        if count == held.len() {
            held.select_nth_unstable(k - 1);
            (count, limit) = (k, held[k - 1]);
            if w > limit {
                continue;
            }
        }
        held[count] = w;
        count += 1;
    }
    if count > k {
        held[..count].select_nth_unstable(k - 1);
    }
    &mut held[..k]
}

/// Which element of a lane is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The one above which so many are less, counted from 0.
    Kth(usize),
    /// The lower of those in the middle; the first NaN, if there is one.
    Median,
    /// The lower of those in the middle of what is not NaN; the first NaN, if there is nothing else.
    NanMedian,
    /// The one that is there most often, the smallest of several; its last place.
    Mode,
}

/// Bytes of workspace for [`order_statistic`].
pub fn statistic_workspace<T: Key>(n: usize, threads: usize) -> usize {
    n.saturating_mul(word_bytes::<T>(n)).saturating_mul(threads)
}

/// An element of each lane and its place: `y, at: [outer, inner]`. NaN is the largest, and equals NaN. `n` is at least 1.
///
/// # Panics
/// If a rank is not below `n`, an output too short, or the workspace smaller than [`statistic_workspace`] or not aligned to 16
/// bytes.
pub fn order_statistic<T: Key>(
    pool: &Pool,
    lanes: Lanes,
    f: Statistic,
    x: &[T],
    y: &mut [T],
    at: &mut [i64],
    workspace: &mut [u8],
) {
    if is_narrow::<T>(lanes.n) {
        statistic_as::<T, u64>(pool, lanes, f, x, y, at, workspace);
    } else {
        statistic_as::<T, u128>(pool, lanes, f, x, y, at, workspace);
    }
}

fn statistic_as<T: Key, W: Word>(
    pool: &Pool,
    lanes: Lanes,
    f: Statistic,
    x: &[T],
    y: &mut [T],
    at: &mut [i64],
    workspace: &mut [u8],
) {
    let Lanes { n, inner } = lanes;
    let words: &mut [W] = bytemuck::cast_slice_mut(workspace);
    #[allow(clippy::eq_op, reason = "the test for NaN of any type")]
    let is_nan = |v: &T| v != v;
    each_lane(pool, lanes, x, 1, (y, at), (words, n), |x, y, at, words| {
        for (i, w) in words.iter_mut().enumerate() {
            *w = word(x[i * inner], i, false);
        }
        let nans = || x.iter().step_by(inner).take(n).filter(|v| is_nan(v)).count();
        let found = match f {
            Statistic::Kth(k) => *words.select_nth_unstable(k).1,
            Statistic::Median => {
                let nans = nans();
                // what is NaN comes last, the first of it first
                let k = if nans > 0 { n - nans } else { (n - 1) / 2 };
                *words.select_nth_unstable(k).1
            }
            Statistic::NanMedian => {
                let k = (n - nans()).saturating_sub(1) / 2;
                *words.select_nth_unstable(k).1
            }
            Statistic::Mode => {
                words.sort_unstable();
                let runs = words.chunk_by(|a, b| a.key() == b.key());
                // the first of the longest
                runs.fold(&words[..0], |best, run| if run.len() > best.len() { run } else { best })[..]
                    .last()
                    .copied()
                    .unwrap_or_default()
            }
        };
        (y[0], at[0]) = (x[found.place() * inner], found.place() as i64);
    });
}
