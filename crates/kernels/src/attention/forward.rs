//! The forward pass: runs of tiles of one head.

use std::ops::Range;

use super::tile::{Cut, Panels, Row, RowsMut, Stack, adjust, dropped, hide, line, padded, rows_of, wide_len};
use super::{Attention, Inputs, KEYS, PREFETCH_BYTES, QUERIES, cut as pieces};
use crate::float::{Disjoint, FloatElement, Real};
use crate::gemm::GemmElement;
use crate::pool::{Pool, part_range};
use crate::prefetch::PrefetchRows;
use crate::simd::widest;
use remat_types::Element;

/// Tasks per thread where heads are few.
const TASKS_PER_THREAD: usize = 4;

/// Fewest tiles of a task. Each task packs `v` for itself.
const TASK_MIN_TILES: usize = 2;

/// Keys whose exponentials are added up before they join the sum: bounds the rounding error of long rows.
pub(super) const SUM_KEYS: usize = 64;

/// Items of compute type of a slot: `k` and some rows widened, packed `v` and `q`, the tile, its part of `y`.
pub(super) fn lens<T: FloatElement<Real: GemmElement>>(a: &Attention) -> [usize; 6] {
    let (keys, dv) = (a.seen(), padded::<T::Real>(a.dv));
    [
        wide_len::<T>(keys * a.d),
        wide_len::<T>((KEYS.min(keys) * a.dv).max(QUERIES * a.d)),
        line::<T::Real>(keys * dv),
        line::<T::Real>(QUERIES * a.d),
        line::<T::Real>(QUERIES * a.tile_keys()),
        line::<T::Real>(QUERIES * dv),
    ]
}

/// Runs of tiles that a head is cut into.
fn runs(a: &Attention, threads: usize) -> usize {
    let wanted = if threads <= 1 { 1 } else { (TASKS_PER_THREAD * threads).div_ceil((a.n * a.heads).max(1)) };
    wanted.min(a.tiles() / TASK_MIN_TILES).max(1)
}

pub(super) fn tasks(a: &Attention, threads: usize) -> usize {
    a.n * a.heads * runs(a, threads)
}

pub(super) fn run<T: FloatElement<Real: GemmElement>>(
    pool: &Pool,
    a: &Attention,
    x: &Inputs<'_, T>,
    y: &mut [T],
    lse: &mut [T::Real],
    workspace: &mut [T::Real],
) {
    let (lens, runs) = (lens::<T>(a), runs(a, pool.threads()));
    let (y, lse) = (Disjoint::new(y), Disjoint::new(lse));
    let y = RowsMut { data: &y, offset: 0, strides: [a.tq * a.heads * a.dv, a.heads * a.dv, a.dv] };
    let tasks = if a.tq == 0 { 0 } else { tasks(a, pool.threads()) };
    pool.with_slots(tasks, workspace, lens.iter().sum(), |task, slot| {
        let (pair, run) = (task / runs, task % runs);
        let head = Head { a, x, y: &y, lse: &lse, at: a.pair(pair) };
        let mut ahead = PrefetchRows::within(PREFETCH_BYTES);
        if runs == 1 && pair + 1 < a.n * a.heads {
            let at = a.pair(pair + 1);
            x.v.prefetch(&mut ahead, a.kv_of(at), a.seen(), a.dv);
            x.q.prefetch(&mut ahead, at, a.tq, a.d);
            x.k.prefetch(&mut ahead, a.kv_of(at), a.seen(), a.d);
            y.prefetch(&mut ahead, at, a.tq, a.dv);
        }
        head.run(part_range(a.tiles(), runs, run), pieces(slot, lens), &mut ahead);
    });
}

struct Head<'a, T: FloatElement> {
    a: &'a Attention,
    x: &'a Inputs<'a, T>,
    y: &'a RowsMut<'a, T>,
    lse: &'a Disjoint<'a, T::Real>,
    /// Image and head.
    at: [usize; 2],
}

impl<T: FloatElement<Real: GemmElement>> Head<'_, T> {
    fn run(
        &self,
        tiles: Range<usize>,
        [k_wide, wide, v_packed, q_packed, tile, part]: [&mut [T::Real]; 6],
        ahead: &mut PrefetchRows,
    ) {
        let (a, x) = (self.a, self.x);
        let keys = a.seen_below((tiles.end * QUERIES).min(a.tq));
        // SAFETY: keys of this head, which were checked; as all rows below.
        let (k, v) = unsafe {
            let at = a.kv_of(self.at);
            let k = rows_of(&x.k, at, 0..keys, a.d, k_wide);
            (k, Stack::pack(keys, a.dv, |block| rows_of(&x.v, at, block, a.dv, wide), v_packed))
        };
        for i in tiles {
            let queries = i * QUERIES..((i + 1) * QUERIES).min(a.tq);
            let cut = Cut::of(a, &queries);
            let (tile, _) = tile[..cut.rows * QUERIES].as_chunks_mut::<QUERIES>();
            // SAFETY: as above; a row of the tile is a key.
            unsafe {
                let q = rows_of(&x.q, self.at, queries.clone(), a.d, wide).t();
                let q = Panels::scaled(q, a.d, queries.len(), T::Real::from_f64(a.scale), q_packed);
                cut.scores(a.d, k, q, tile, ahead);
                adjust(a, x.bias.as_ref(), self.at, queries.clone(), cut.start, tile, None);
                hide(a, x.mask.as_ref(), self.at, queries.clone(), cut.start, tile, T::Real::NEG_INFINITY);
            }
            let (max, sum) = exponentials(tile, ahead);
            if let Some(drops) = &a.drops {
                let keep = |row: usize, factors: &Row<T::Real>| {
                    tile[row].iter_mut().zip(factors).for_each(|(p, f)| *p *= *f);
                };
                dropped(a, drops, self.at, i, cut.start, keep, cut.rows);
            }
            for (range, rows) in cut.queries(queries.len()) {
                v.sum(cut.start, &tile[..rows], range, part, ahead);
            }
            let width = padded::<T::Real>(a.dv);
            // SAFETY: these queries are this task's.
            unsafe {
                let rows = &part[..queries.len() * width];
                // a query that sees nothing has no weights, and takes nothing of the values
                let share = |i: usize| if sum[i] == T::Real::ZERO { sum[i] } else { T::Real::ONE / sum[i] };
                self.y.write(self.at, queries.start, rows, width, a.dv, share);
                let lse = self.lse.part((self.at[0] * a.heads + self.at[1]) * a.tq + queries.start, queries.len());
                lse.iter_mut().enumerate().for_each(|(i, l)| *l = max[i] + sum[i].ln());
            }
        }
    }
}

/// Queries whose maxima are taken together.
const LANES: usize = 32;

/// Scores become `exp(score - maximum)`; the maximum and the sum of each query. A NaN is passed over by the maximum and
/// met by the sum. Of a query that sees nothing the maximum counts as 0, so that its exponentials are 0, and not NaN.
fn exponentials<R: Real>(tile: &mut [Row<R>], ahead: &mut PrefetchRows) -> (Row<R>, Row<R>) {
    let (mut max, mut sum) = ([R::NEG_INFINITY; QUERIES], [R::ZERO; QUERIES]);
    widest(
        #[inline(always)]
        || {
            for (first, max) in (0..QUERIES).step_by(LANES).zip(max.chunks_exact_mut(LANES)) {
                // a copy of these lanes stays in registers
                let mut most = [R::NEG_INFINITY; LANES];
                for row in &*tile {
                    for i in 0..LANES {
                        most[i] = if row[first + i] > most[i] { row[first + i] } else { most[i] };
                    }
                }
                for i in 0..LANES {
                    max[i] = if most[i] == R::NEG_INFINITY { R::ZERO } else { most[i] };
                }
            }
            for block in tile.chunks_mut(SUM_KEYS) {
                let mut part = [R::ZERO; QUERIES];
                for row in block {
                    ahead.next_line();
                    for i in 0..QUERIES {
                        row[i] = (row[i] - max[i]).exp_below();
                        part[i] += row[i];
                    }
                }
                for i in 0..QUERIES {
                    sum[i] += part[i];
                }
            }
        },
    );
    (max, sum)
}
