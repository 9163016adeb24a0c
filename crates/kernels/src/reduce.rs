//! Reductions of a contiguous tensor over any set of axes.
//!
//! Neighbouring axes of the same kind (kept or reduced) are merged, which leaves two shapes of work:
//!
//! * *runs*: the innermost group is reduced. An output is a fold over contiguous runs, one per index of the outer
//!   reduced groups. A run is folded in blocks of [`BLOCK`] elements, in [`LANES`] independent lanes that the compiler
//!   turns into vectors; lanes are joined as a tree.
//! * *columns*: the innermost group is kept. Up to [`COLUMNS`] neighbouring outputs are folded at once, row by row, in
//!   blocks of [`ROWS`] rows.
//!
//! Blocks are added up in a wider type (f64 for f32), so the error does not grow with the number of elements. A large
//! fold is cut into at most [`MAX_PARTS`] parts, whose totals are merged in order. All cuts depend on sizes only, so the
//! bits of the result do not depend on the threads. Partial totals live on the stack.

use std::ops::Range;

use bytemuck::Pod;
use remat_types::SmallVec;

use crate::copy::{PARALLEL_MIN_ELEMS, chunks};
use crate::pool::Pool;
use crate::prefetch::{AHEAD_BYTES, prefetch_beyond, prefetch_run};
use crate::simd::{wide, widest};

/// Elements of one block of a run.
pub const BLOCK: usize = 256;
/// Independent accumulators within a block: four SSE or two AVX vectors of f32, enough to hide an add's latency.
pub const LANES: usize = 16;
/// Outputs folded at once in columns: 2 KiB of f32 from each row.
pub const COLUMNS: usize = 512;
/// Rows of one block of columns.
pub const ROWS: usize = 32;
/// Most parts of one fold.
pub const MAX_PARTS: usize = 64;
/// Totals that column parts hold on the stack: 8 parts of full width.
const PART_TOTALS: usize = 8 * COLUMNS;
/// Elements of a part, unless [`MAX_PARTS`] makes it larger.
const PART_ELEMS: usize = 64 * 1024;
/// Outputs of runs that one task of the pool computes at least, in elements.
const TASK_ELEMS: usize = 16 * 1024;

/// A function that folds elements. `T` is the input's element, `U` the output's.
///
/// A second pass may need what a first one left in the output (a maximum, a mean): that is the parameter.
pub trait Reducer<T, U>: Copy + Sync {
    /// The accumulator within a block.
    type Lane: Copy + Send;
    /// The accumulator across blocks.
    type Total: Copy + Send;
    /// A value per output.
    type Param: Copy + Send + Sync;
    /// True if neighbours may be joined in any groups, in order, without another bit in the result: as of maxima, and not
    /// of rounded sums. Neither `step` with any parameter nor `join` differs from it.
    const ASSOCIATIVE: bool = false;

    /// The parameter of the output that holds `y` before the pass.
    fn param(&self, y: U) -> Self::Param;
    /// The accumulator of no element.
    fn lane(&self) -> Self::Lane;
    /// One element more.
    fn step(&self, lane: Self::Lane, x: T, p: Self::Param) -> Self::Lane;
    /// Two accumulators as one.
    fn join(&self, a: Self::Lane, b: Self::Lane) -> Self::Lane;
    /// The total of no block.
    fn total(&self) -> Self::Total;
    /// One block more.
    fn add(&self, total: Self::Total, lane: Self::Lane) -> Self::Total;
    /// Two totals as one.
    fn merge(&self, a: Self::Total, b: Self::Total) -> Self::Total;
    /// The output.
    fn finish(&self, total: Self::Total, p: Self::Param) -> U;
}

/// The merged axes of a reduction of a contiguous tensor.
#[derive(Clone, Debug)]
pub struct Plan {
    /// (extent, stride) of the kept groups, outermost first.
    kept: SmallVec<[(usize, usize); 4]>,
    /// (extent, stride) of the reduced groups.
    reduced: SmallVec<[(usize, usize); 4]>,
    /// Elements of the innermost group, and whether it is reduced.
    inner: (usize, bool),
}

impl Plan {
    /// The plan of reducing `axes` (any order, each below the rank) of a contiguous tensor of `shape`.
    pub fn new(shape: &[usize], axes: &[usize]) -> Plan {
        let mut groups: SmallVec<[(usize, bool); 8]> = SmallVec::new();
        for (i, &d) in shape.iter().enumerate() {
            let reduced = axes.contains(&i);
            match groups.last_mut() {
                _ if d == 1 => {}
                Some((extent, kind)) if *kind == reduced => *extent *= d,
                _ => groups.push((d, reduced)),
            }
        }
        let inner = groups.pop().unwrap_or((1, true));
        let mut plan = Plan { kept: SmallVec::new(), reduced: SmallVec::new(), inner };
        let mut stride = inner.0;
        for &(d, reduced) in groups.iter().rev() {
            if reduced { &mut plan.reduced } else { &mut plan.kept }.insert(0, (d, stride));
            stride *= d;
        }
        plan
    }
}

/// The element offset of the `i`-th index over `groups`.
fn offset(groups: &[(usize, usize)], mut i: usize) -> usize {
    if let [(_, stride)] = groups {
        return i * stride;
    }
    let mut at = 0;
    for &(d, stride) in groups.iter().rev() {
        at += i % d * stride;
        i /= d;
    }
    at
}

fn count(groups: &[(usize, usize)]) -> usize {
    groups.iter().map(|g| g.0).product()
}

/// Rows or elements per part of a fold of `n` that takes `width` elements each.
fn part_len(n: usize, width: usize, max_parts: usize) -> usize {
    (PART_ELEMS / width.max(1)).max(n.div_ceil(max_parts)).max(1)
}

/// Reduces `x` by `r` into `y`, which has one element per index over the kept axes.
///
/// # Panics
/// If `x` or `y` is shorter than the plan says.
pub fn reduce<T, U, R>(pool: &Pool, r: R, x: &[T], plan: &Plan, y: &mut [U])
where
    T: Pod + Send + Sync,
    U: Pod + Send + Sync,
    R: Reducer<T, U>,
{
    if y.is_empty() {
        return;
    }
    if x.is_empty() {
        y.iter_mut().for_each(|y| *y = r.finish(r.total(), r.param(*y)));
        return;
    }
    let parallel = x.len() >= PARALLEL_MIN_ELEMS;
    if plan.inner.1 {
        runs(pool, parallel, r, x, plan, y);
    } else {
        columns(pool, parallel, r, x, plan, y);
    }
}

fn runs<T: Pod + Send + Sync, U: Pod + Send + Sync, R: Reducer<T, U>>(
    pool: &Pool,
    parallel: bool,
    r: R,
    x: &[T],
    plan: &Plan,
    y: &mut [U],
) {
    let (run, outer) = (plan.inner.0, count(&plan.reduced));
    // with an outer reduced group a part is a number of whole runs, else a piece of the one run
    let (pieces, width) = if outer == 1 { (run, 1) } else { (outer, run) };
    let len = part_len(pieces, width, MAX_PARTS);
    let parts = pieces.div_ceil(len);
    let per_output = run * outer;
    let fold = |at: usize, part: usize, p: R::Param| {
        let (from, to) = (part * len, ((part + 1) * len).min(pieces));
        let mut total = r.total();
        if outer == 1 {
            fold_vectors::<T, U, R>(
                #[inline(always)]
                || fold_run(r, &x[at + from..at + to], p, &mut total),
            );
        } else {
            fold_vectors::<T, U, R>(
                #[inline(always)]
                || {
                    for i in from..to {
                        let at = at + offset(&plan.reduced, i);
                        fold_run(r, &x[at..at + run], p, &mut total);
                    }
                },
            );
        }
        total
    };
    let task = (TASK_ELEMS / per_output).max(1);
    let by_output = y.len() >= 2 * task.max(4);
    chunks(pool, parallel && by_output, y, task, |i, y| {
        for (k, y) in y.iter_mut().enumerate() {
            let at = offset(&plan.kept, i * task + k);
            let p = r.param(*y);
            let total = if parts == 1 {
                fold(at, 0, p)
            } else {
                let mut totals = [r.total(); MAX_PARTS];
                chunks(pool, parallel, &mut totals[..parts], 1, |part, t| t[0] = fold(at, part, p));
                totals[1..parts].iter().fold(totals[0], |a, &b| r.merge(a, b))
            };
            *y = r.finish(total, p);
        }
    });
}

/// Calls `f`, which folds runs, compiled for the vectors that suit the chains of the reducer.
#[inline(always)]
fn fold_vectors<T, U, R: Reducer<T, U>>(f: impl FnOnce()) {
    if R::ASSOCIATIVE { widest(f) } else { wide(f) }
}

/// Parts of a block that are folded side by side where that changes nothing: a step that takes two instructions then does
/// not wait for the one before.
const CHAINS: usize = 4;

/// The lanes of a whole block of an associative reducer, part by part.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]
fn fold_chains<T: Copy, U, R: Reducer<T, U>>(r: R, block: &[T; BLOCK], p: R::Param) -> [R::Lane; LANES] {
    const ROWS: usize = BLOCK / LANES / CHAINS;
    let (rows, _) = block.as_chunks::<LANES>();
    let [mut a, mut b, mut c, mut d] = [[r.lane(); LANES]; CHAINS];
    for i in 0..ROWS {
        for lane in 0..LANES {
            a[lane] = r.step(a[lane], rows[i][lane], p);
        }
        for lane in 0..LANES {
            b[lane] = r.step(b[lane], rows[ROWS + i][lane], p);
        }
        for lane in 0..LANES {
            c[lane] = r.step(c[lane], rows[2 * ROWS + i][lane], p);
        }
        for lane in 0..LANES {
            d[lane] = r.step(d[lane], rows[3 * ROWS + i][lane], p);
        }
    }
    for lane in 0..LANES {
        a[lane] = r.join(r.join(a[lane], b[lane]), r.join(c[lane], d[lane]));
    }
    a
}

/// Adds a contiguous run to `total`, block by block.
#[inline(always)]
fn fold_run<T: Copy, U, R: Reducer<T, U>>(r: R, x: &[T], p: R::Param, total: &mut R::Total) {
    for block in x.chunks(BLOCK) {
        if block.len() < LANES {
            *total = r.add(*total, block.iter().fold(r.lane(), |lane, &x| r.step(lane, x, p)));
            continue;
        }
        let mut lanes = [r.lane(); LANES];
        if let (true, Ok(block)) = (R::ASSOCIATIVE, block.try_into()) {
            lanes = fold_chains(r, block, p);
        } else {
            let rows = block.chunks_exact(LANES);
            let rest = rows.remainder();
            for row in rows {
                prefetch_beyond::<AHEAD_BYTES, T>(row.as_ptr());
                for (lane, &x) in lanes.iter_mut().zip(row) {
                    *lane = r.step(*lane, x, p);
                }
            }
            for (lane, &x) in lanes.iter_mut().zip(rest) {
                *lane = r.step(*lane, x, p);
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = r.join(lanes[i], lanes[i + half]);
            }
            half /= 2;
        }
        *total = r.add(*total, lanes[0]);
    }
}

/// The parameters of the outputs `y`, so many times one after the other; at most [`COLUMNS`] in all.
fn params<T, U: Copy, R: Reducer<T, U>>(r: R, y: &[U], together: usize) -> [R::Param; COLUMNS] {
    let mut all = [r.param(y[0]); COLUMNS];
    for p in all.chunks_exact_mut(y.len()).take(together) {
        p.iter_mut().zip(y).for_each(|(p, y)| *p = r.param(*y));
    }
    all
}

fn columns<T: Pod + Send + Sync, U: Pod + Send + Sync, R: Reducer<T, U>>(
    pool: &Pool,
    parallel: bool,
    r: R,
    x: &[T],
    plan: &Plan,
    y: &mut [U],
) {
    let (width, rows) = (plan.inner.0, count(&plan.reduced));
    let many = y.len() / width >= 4;
    chunks(pool, parallel && many, y, width, |i, y| {
        let base = offset(&plan.kept, i);
        let is_wide = width >= 4 * COLUMNS;
        chunks(pool, parallel && is_wide, y, COLUMNS, |j, y| {
            let (at, w) = (base + j * COLUMNS, y.len());
            // rows without gaps are folded several at a time where they are short, as one long row
            let adjacent = matches!(plan.reduced[..], [(_, stride)] if stride == w);
            let together = if adjacent { (COLUMNS / w).min(rows) } else { 1 };
            let p = params(r, y, together);
            let p = &p[..together * w];
            let len = part_len(rows, w, (PART_TOTALS / w).min(MAX_PARTS));
            let parts = rows.div_ceil(len);
            let fold = |part: usize, totals: &mut [R::Total]| {
                let to = ((part + 1) * len).min(rows);
                wide(|| fold_rows(r, x, |row| at + offset(&plan.reduced, row), part * len..to, p, totals));
            };
            if parts == 1 {
                let mut totals = [r.total(); COLUMNS];
                fold(0, &mut totals[..w]);
                finish(r, y, &totals, p);
                return;
            }
            let mut totals = [r.total(); PART_TOTALS];
            let totals = &mut totals[..parts * w];
            chunks(pool, parallel, totals, w, fold);
            let (first, rest) = totals.split_at_mut(w);
            for part in rest.chunks(w) {
                first.iter_mut().zip(part).for_each(|(a, b)| *a = r.merge(*a, *b));
            }
            finish(r, y, first, p);
        });
    });
}

fn finish<T, U: Copy, R: Reducer<T, U>>(r: R, y: &mut [U], totals: &[R::Total], p: &[R::Param]) {
    for ((y, t), p) in y.iter_mut().zip(totals).zip(p) {
        *y = r.finish(*t, *p);
    }
}

/// Rows from the one that is folded to the one that is prefetched.
const ROWS_AHEAD: usize = 8;

/// Adds `rows` of as many columns as `totals` has to it, block by block; `at(row)` is where a row starts. As many rows as
/// `p` has parameters for are folded together; they lie one after the other.
#[inline(always)]
fn fold_rows<T: Copy, U, R: Reducer<T, U>>(
    r: R,
    x: &[T],
    at: impl Fn(usize) -> usize,
    rows: Range<usize>,
    p: &[R::Param],
    totals: &mut [R::Total],
) {
    let (width, together) = (totals.len(), p.len() / totals.len());
    let mut lanes = [r.lane(); COLUMNS];
    let mut row = rows.start;
    while row < rows.end {
        let whole = ((rows.end - row) / together).min(ROWS);
        // rows that do not fill a long one are folded by themselves
        let (count, step) = if whole == 0 { (rows.end - row, 1) } else { (whole, together) };
        let lanes = &mut lanes[..step * width];
        lanes.fill(r.lane());
        for i in 0..count {
            // A row of a few columns may lie in a page of its own, where no processor looks ahead.
            let next = at(row + (i + ROWS_AHEAD) * step);
            prefetch_run(x.as_ptr().wrapping_add(next), step * width);
            let at = at(row + i * step);
            for ((lane, &x), &p) in lanes.iter_mut().zip(&x[at..at + step * width]).zip(p) {
                *lane = r.step(*lane, x, p);
            }
        }
        for lanes in lanes.chunks_exact(width) {
            totals.iter_mut().zip(lanes).for_each(|(t, &lane)| *t = r.add(*t, lane));
        }
        row += count * step;
    }
}

mod arg;
mod reducers;
mod roots;
mod tiled;
pub use arg::{Extreme, arg_extreme};
pub use reducers::{
    All, Any, Arith, Count, Deviation, Max, Mean, Min, Num, Prod, ProdWide, ShiftedExp, Sum, SumSqr, SumWide,
};
pub use roots::{Norm, RootDeviation, Rooted, WideMean};
pub use tiled::{TILE, Tiles, reduce_tiles};

#[cfg(test)]
mod tests;
