//! Reductions of values that are computed as they are folded: the whole is never in memory.
//!
//! The cuts are those of [`reduce`](super::reduce), part by part and block by block, so bits are the same.

use std::ops::Range;

use bytemuck::Pod;
use remat_types::SmallVec;

use super::{
    BLOCK, COLUMNS, MAX_PARTS, PART_TOTALS, Plan, ROWS, Reducer, count, finish, fold_rows, fold_run, fold_vectors,
};
use super::{offset, params, part_len};
use crate::pool::{Pool, part_range};
use crate::simd::wide;

/// Most elements that are prefetched at once.
pub const TILE: usize = ROWS * COLUMNS;
/// A piece of a run that is cut: whole blocks.
const PIECE: usize = TILE / BLOCK * BLOCK;

/// Computes elements of a tensor, a tile at a time.
pub trait Tiles<T> {
    /// The elements `at .. at + n`, or as many from each of `rows` of them, which begin at a distance of `stride`:
    /// [`TILE`] at most, one row after the other.
    fn tile(&mut self, at: usize, n: usize, rows: usize, stride: usize) -> &[T];
}

impl Plan {
    /// True if [`reduce_tiles`] can do it without loss: leading axes of rows of at least two elements, or runs of at least
    /// `least_run` elements with at least `least_outputs` outputs.
    pub fn is_tiled(&self, least_run: usize, least_outputs: usize) -> bool {
        match self.inner {
            (run, true) => run >= least_run && count(&self.kept) >= least_outputs,
            (_, false) => self.kept.is_empty() && self.reduced.len() == 1,
        }
    }
}

/// [`reduce`](super::reduce) of what `makers` compute, one for each share of the work. The plan is one of
/// [`Plan::is_tiled`], of a tensor that is not empty.
pub fn reduce_tiles<T, U, R, M>(pool: &Pool, r: R, plan: &Plan, makers: &mut [M], y: &mut [U])
where
    T: Pod + Send + Sync,
    U: Pod + Send + Sync,
    R: Reducer<T, U>,
    M: Tiles<T> + Send,
{
    let n = makers.len();
    if plan.inner.1 {
        let outputs = y.len();
        let ends = (0..n).map(|s| part_range(outputs, n, s).end);
        each(pool, makers, y, ends, |first, maker, y| runs(r, plan, maker, first, y));
        return;
    }
    let width = plan.inner.0;
    let chunks = width.div_ceil(COLUMNS);
    if chunks >= n {
        let ends = (0..n).map(|s| (part_range(chunks, n, s).end * COLUMNS).min(width));
        each(pool, makers, y, ends, |first, maker, y| {
            for (j, y) in y.chunks_mut(COLUMNS).enumerate() {
                columns(pool, r, plan, std::slice::from_mut(maker), first + j * COLUMNS, y);
            }
        });
        return;
    }
    for (j, y) in y.chunks_mut(COLUMNS).enumerate() {
        columns(pool, r, plan, makers, j * COLUMNS, y);
    }
}

/// Calls `f(first output, maker, outputs)` for the shares of `y` that end at `ends`, in parallel.
fn each<U: Send, M: Send>(
    pool: &Pool,
    makers: &mut [M],
    y: &mut [U],
    ends: impl Iterator<Item = usize>,
    f: impl Fn(usize, &mut M, &mut [U]) + Sync,
) {
    let (mut left, mut from) = (y, 0);
    let mut shares: SmallVec<[(usize, &mut M, &mut [U]); 8]> = SmallVec::new();
    for (maker, end) in makers.iter_mut().zip(ends) {
        let (own, rest) = std::mem::take(&mut left).split_at_mut(end - from);
        shares.push((from, maker, own));
        (left, from) = (rest, end);
    }
    pool.chunks_mut(&mut shares, 1, |_, s| s.iter_mut().for_each(|(from, maker, y)| f(*from, maker, y)));
}

/// Outputs from `first` on, each a fold over runs.
fn runs<T: Pod, U: Copy, R: Reducer<T, U>>(r: R, plan: &Plan, maker: &mut impl Tiles<T>, first: usize, y: &mut [U]) {
    let (run, outer) = (plan.inner.0, count(&plan.reduced));
    let (pieces, width) = if outer == 1 { (run, 1) } else { (outer, run) };
    let len = part_len(pieces, width, MAX_PARTS);
    for (k, y) in y.iter_mut().enumerate() {
        let at = offset(&plan.kept, first + k);
        let p = r.param(*y);
        let mut all: Option<R::Total> = None;
        for from in (0..pieces).step_by(len) {
            let to = (from + len).min(pieces);
            let mut total = r.total();
            let mut add = |from: usize, elems: usize| {
                for piece in (0..elems).step_by(PIECE) {
                    let data = maker.tile(from + piece, PIECE.min(elems - piece), 1, 0);
                    fold_vectors::<T, U, R>(
                        #[inline(always)]
                        || fold_run(r, data, p, &mut total),
                    );
                }
            };
            if outer == 1 {
                add(at + from, to - from);
            } else {
                (from..to).for_each(|i| add(at + offset(&plan.reduced, i), run));
            }
            all = Some(all.map_or(total, |a| r.merge(a, total)));
        }
        *y = r.finish(all.unwrap_or_else(|| r.total()), p);
    }
}

/// The outputs of the columns from `first` on, at most [`COLUMNS`] of them.
fn columns<T, U, R, M>(pool: &Pool, r: R, plan: &Plan, makers: &mut [M], first: usize, y: &mut [U])
where
    T: Pod + Send + Sync,
    U: Pod + Send + Sync,
    R: Reducer<T, U>,
    M: Tiles<T> + Send,
{
    let (width, rows, w) = (plan.inner.0, count(&plan.reduced), y.len());
    let together = if width == w { (COLUMNS / w).min(rows) } else { 1 };
    let p = params(r, y, together);
    let p = &p[..together * w];
    let len = part_len(rows, w, (PART_TOTALS / w).min(MAX_PARTS));
    let parts = rows.div_ceil(len);
    let fold = |maker: &mut M, of: Range<usize>, totals: &mut [R::Total]| {
        for from in of.clone().step_by(ROWS * together) {
            let to = (from + ROWS * together).min(of.end);
            let data = maker.tile(from * width + first, w, to - from, width);
            wide(|| fold_rows(r, data, |row| (row - from) * w, from..to, p, totals));
        }
    };
    let mut totals = [r.total(); PART_TOTALS];
    let totals = &mut totals[..parts * w];
    let n = makers.len();
    let ends = (0..n).map(|s| part_range(parts, n, s).end * w);
    each(pool, makers, totals, ends, |at, maker, totals| {
        for (i, totals) in totals.chunks_exact_mut(w).enumerate() {
            let part = at / w + i;
            fold(maker, part * len..((part + 1) * len).min(rows), totals);
        }
    });
    let (all, rest) = totals.split_at_mut(w);
    for part in rest.chunks(w) {
        all.iter_mut().zip(part).for_each(|(a, b)| *a = r.merge(*a, *b));
    }
    finish(r, y, all, p);
}
