//! Sorting, selection and search along an axis.
//!
//! An element becomes a *key*, an unsigned integer in the same order, in which NaN is the largest and -0 equals 0. Key and place
//! in one word, the place below, are all different: any way of sorting them gives the one stable order.

mod key;
mod search;
mod select;
mod sort;

pub use key::Key;
pub use search::search_sorted;
pub use select::{Statistic, order_statistic, statistic_workspace, top_k, top_k_workspace};
pub use sort::{sort, sort_workspace};

use crate::pool::Pool;

/// Elements of one task, of several lanes where those are short.
const TASK_ELEMS: usize = 16 * 1024;

/// The lanes of `x: [outer, n, inner]` along the axis of extent `n`.
#[derive(Clone, Copy, Debug)]
pub struct Lanes {
    /// The extent of the axis.
    pub n: usize,
    /// Elements from one to the next.
    pub inner: usize,
}

/// Calls `f(lane, y, step of y, at, slot)` for all lanes of `x`: a lane of `x`, which begins at its first element, and its `m`
/// elements of the two outputs likewise. `f` gets `slot_len` items of `workspace` for itself.
fn each_lane<T: Sync, U: Send, W: Send>(
    pool: &Pool,
    lanes: Lanes,
    x: &[T],
    m: usize,
    (y, at): (&mut [U], &mut [i64]),
    (workspace, slot_len): (&mut [W], usize),
    f: impl Fn(&[T], &mut [U], &mut [i64], &mut [W]) + Sync,
) {
    let Lanes { n, inner } = lanes;
    if y.is_empty() || n == 0 {
        return;
    }
    let blocks = if inner == 1 { (TASK_ELEMS / n).max(1) } else { 1 };
    let len = blocks * m * inner;
    pool.chunks2_with_slots((y, len), (at, len), (workspace, slot_len), |i, y, at, slot| {
        let x = &x[i * blocks * n * inner..];
        for lane in 0..y.len() / m {
            let (block, column) = (lane / inner, lane % inner);
            let to = block * m * inner + column;
            f(&x[block * n * inner + column..], &mut y[to..], &mut at[to..], slot);
        }
    });
}

#[cfg(test)]
mod tests;
