//! The backward pass: a task owns a head, and goes through its tiles in order.

use super::forward::SUM_KEYS;
use super::tile::{Cut, Panels, Row, RowsMut, Stack, adjust, dropped, hide, line, padded, rows_of, wide_len};
use super::{Attention, Gradients, HALF, Inputs, PREFETCH_BYTES, QUERIES, Strided, cut as pieces};
use crate::float::{Disjoint, FloatElement, Real};
use crate::gemm::{GemmElement, View};
use crate::pool::Pool;
use crate::prefetch::PrefetchRows;
use crate::simd::widest;
use remat_types::Element;

/// Items of compute type of a slot: `k`, `v` and some rows widened; packed `k`, `q` and `dy` (both with queries across and
/// down), a tile's part of `dq`; the tiles of `p` and `ds`, of slopes of caps and of what is left of `p`; the sums of `dk` and `dv`.
pub(super) fn lens<T: FloatElement<Real: GemmElement>>(a: &Attention) -> [usize; 15] {
    let (keys, d, dv) = (a.seen(), padded::<T::Real>(a.d), padded::<T::Real>(a.dv));
    let [k_wide, v_wide, wide] = [keys * a.d, keys * a.dv, QUERIES * a.d.max(a.dv)].map(wide_len::<T>);
    let [k, q_across, dy_across] = [keys * d, QUERIES * a.d, QUERIES * a.dv].map(line::<T::Real>);
    let [q, dy, tile] = [QUERIES * d, QUERIES * dv, QUERIES * a.tile_keys()].map(line::<T::Real>);
    let [dk_sums, dv_sums] = [keys * d, keys * dv].map(line::<T::Real>);
    let (slopes, kept) = (if a.cap == 0.0 { 0 } else { tile }, if a.drops.is_none() { 0 } else { tile });
    [k_wide, v_wide, wide, k, q_across, dy_across, q, dy, q, tile, tile, slopes, kept, dk_sums, dv_sums]
}

pub(super) fn run<T: FloatElement<Real: GemmElement>>(
    pool: &Pool,
    a: &Attention,
    x: &Inputs<'_, T>,
    lse: &[T::Real],
    dy: &Strided<'_, T>,
    gradients: Gradients<'_, T>,
    workspace: &mut [T::Real],
) {
    let lens = lens::<T>(a);
    let row = |h: usize, t: usize, d: usize| [t * h * d, h * d, d];
    let (whole, parts);
    let [dq, dk, dv] = match gradients {
        Gradients::Joined(all) => {
            assert!(
                a.tq == a.tk && a.d == a.dv && a.heads == a.heads_kv && all.len() == 3 * a.n * a.tq * a.heads * a.d
            );
            whole = Disjoint::new(all);
            let strides = row(3 * a.heads, a.tq, a.d);
            [0, 1, 2].map(|i| RowsMut { data: &whole, offset: i * a.heads * a.d, strides })
        }
        Gradients::Apart(all) => {
            let sizes = [(a.heads, a.tq, a.d), (a.heads_kv, a.tk, a.d), (a.heads_kv, a.tk, a.dv)];
            assert!(all.iter().zip(sizes).all(|(g, (h, t, d))| g.len() == a.n * t * h * d));
            parts = all.map(Disjoint::new);
            [0, 1, 2].map(|i| {
                let (h, t, d) = sizes[i];
                RowsMut { data: &parts[i], offset: 0, strides: row(h, t, d) }
            })
        }
    };
    pool.with_slots(a.n * a.heads_kv, workspace, lens.iter().sum(), |pair, slot| {
        let head = Head { a, x, lse, dy, at: a.pair_kv(pair), dq: &dq, dk: &dk, dv: &dv };
        let mut ahead = PrefetchRows::within(PREFETCH_BYTES);
        if pair + 1 < a.n * a.heads_kv {
            let at = a.pair_kv(pair + 1);
            let first = [at[0], at[1] * a.group()];
            x.k.prefetch(&mut ahead, at, a.seen(), a.d);
            x.q.prefetch(&mut ahead, first, a.tq, a.d);
            dy.prefetch(&mut ahead, first, a.tq, a.dv);
            x.v.prefetch(&mut ahead, at, a.seen(), a.dv);
            dq.prefetch(&mut ahead, first, a.tq, a.d);
            dk.prefetch(&mut ahead, at, a.tk, a.d);
            dv.prefetch(&mut ahead, at, a.tk, a.dv);
        }
        head.run(pieces(slot, lens), &mut ahead);
    });
}

struct Head<'a, T: FloatElement> {
    a: &'a Attention,
    x: &'a Inputs<'a, T>,
    lse: &'a [T::Real],
    dy: &'a Strided<'a, T>,
    /// Image and head of keys.
    at: [usize; 2],
    dq: &'a RowsMut<'a, T>,
    dk: &'a RowsMut<'a, T>,
    dv: &'a RowsMut<'a, T>,
}

impl<T: FloatElement<Real: GemmElement>> Head<'_, T> {
    fn run(&self, slot: [&mut [T::Real]; 15], ahead: &mut PrefetchRows) {
        let (a, x, keys) = (self.a, self.x, self.a.seen());
        let [d, dv] = [a.d, a.dv].map(padded::<T::Real>);
        let [
            k_wide,
            v_wide,
            wide,
            k_packed,
            q_across,
            dy_across,
            q_down,
            dy_down,
            part,
            p,
            ds,
            slopes,
            kept,
            dk,
            dv_sums,
        ] = slot;
        let mut sums = Sums { dk: &mut dk[..keys * d], dv: &mut dv_sums[..keys * dv] };
        sums.dk.fill(T::Real::ZERO);
        sums.dv.fill(T::Real::ZERO);
        // SAFETY: rows of this head, which were checked.
        let all = unsafe {
            let k = rows_of(&x.k, self.at, 0..keys, a.d, k_wide);
            let v = rows_of(&x.v, self.at, 0..keys, a.dv, v_wide);
            Keys { k, v, k_down: Stack::pack(keys, a.d, |block| k.shifted(block.start, 0), k_packed) }
        };
        let mut room = Room { wide, q_across, dy_across, q_down, dy_down, part, p, ds, slopes, kept };
        for of_group in 0..a.group() {
            let at = [self.at[0], self.at[1] * a.group() + of_group];
            for tile in 0..a.tiles() {
                self.tile(at, tile, &all, &mut room, &mut sums, ahead);
            }
        }
        // SAFETY: the head of keys is this task's.
        unsafe {
            self.dk.write(self.at, 0, sums.dk, d, a.d, |_| T::Real::ONE);
            self.dv.write(self.at, 0, sums.dv, dv, a.dv, |_| T::Real::ONE);
            self.dk.clear(self.at, keys..a.tk, a.d);
            self.dv.clear(self.at, keys..a.tk, a.dv);
        }
    }

    /// One tile of queries of one head, `at`.
    fn tile(
        &self,
        at: [usize; 2],
        tile: usize,
        all: &Keys<'_, T::Real>,
        room: &mut Room<'_, T::Real>,
        sums: &mut Sums<'_, T::Real>,
        ahead: &mut PrefetchRows,
    ) {
        let (a, x, scale) = (self.a, self.x, T::Real::from_f64(self.a.scale));
        let first = tile * QUERIES;
        let queries = first..(first + QUERIES).min(a.tq);
        let (cut, m) = (Cut::of(a, &queries), queries.len());
        let rows = |of: &mut [T::Real]| cut.rows.min(of.len() / QUERIES) * QUERIES;
        let (p, ds) = (&mut *room.p, &mut *room.ds);
        let (p, _) = p[..cut.rows * QUERIES].as_chunks_mut::<QUERIES>();
        let (ds, _) = ds[..cut.rows * QUERIES].as_chunks_mut::<QUERIES>();
        let (slope_rows, kept_rows) = (rows(room.slopes), rows(room.kept));
        let (slopes, _) = room.slopes[..slope_rows].as_chunks_mut::<QUERIES>();
        let (kept, _) = room.kept[..kept_rows].as_chunks_mut::<QUERIES>();
        let lse = &self.lse[(at[0] * a.heads + at[1]) * a.tq..][queries.clone()];
        // SAFETY: rows of heads of this task, which were checked; tiles have a row for each key and a column for each query, and
        // sums a row for each key.
        unsafe {
            let q = rows_of(&x.q, at, queries.clone(), a.d, room.wide);
            let q_across = Panels::scaled(q.t(), a.d, m, scale, room.q_across);
            let q_down = Panels::scaled(q, m, a.d, scale, room.q_down);
            let dy = rows_of(self.dy, at, queries.clone(), a.dv, room.wide);
            let dy_across = Panels::pack(dy.t(), a.dv, m, room.dy_across);
            let dy_down = Panels::pack(dy, m, a.dv, room.dy_down);
            cut.scores(a.d, all.k, q_across, p, ahead);
            let wanted = if a.cap == 0.0 { None } else { Some(&mut *slopes) };
            adjust(a, x.bias.as_ref(), at, queries.clone(), cut.start, p, wanted);
            hide(a, x.mask.as_ref(), at, queries.clone(), cut.start, p, T::Real::NEG_INFINITY);
            probabilities(p, lse, ahead);
            cut.scores(a.dv, all.v, dy_across, ds, ahead);
            ds[cut.before..].iter_mut().for_each(|row| row[..HALF].fill(T::Real::ZERO));
            if let Some(drops) = &a.drops {
                let keep = |row: usize, factors: &Row<T::Real>| {
                    for i in 0..QUERIES {
                        kept[row][i] = p[row][i] * factors[i];
                        ds[row][i] = if factors[i] == T::Real::ZERO { T::Real::ZERO } else { ds[row][i] * factors[i] };
                    }
                };
                dropped(a, drops, at, tile, cut.start, keep, cut.rows);
                cut.add_up(kept, m, dy_down, sums.dv, ahead);
            } else {
                cut.add_up(p, m, dy_down, sums.dv, ahead);
            }
            score_gradients(p, ds);
            for (ds, slopes) in ds.iter_mut().zip(&*slopes) {
                ds.iter_mut().zip(slopes).for_each(|(d, s)| *d *= *s);
            }
            // also where `dp` is not finite, and no probability of 0 makes it 0
            hide(a, x.mask.as_ref(), at, queries.clone(), cut.start, ds, T::Real::ZERO);
            cut.add_up(ds, m, q_down, sums.dk, ahead);
        }
        for (range, rows) in cut.queries(m) {
            all.k_down.sum(cut.start, &ds[..rows], range, room.part, ahead);
        }
        let d = padded::<T::Real>(a.d);
        // SAFETY: the heads of queries of a head of keys are its task's.
        unsafe { self.dq.write(at, first, &room.part[..m * d], d, a.d, |_| scale) };
    }
}

/// The data of one head of keys.
struct Keys<'a, R> {
    k: View<R>,
    v: View<R>,
    k_down: Stack<'a, R>,
}

/// The sums of `dk` and `dv`, a row a key.
struct Sums<'a, R> {
    dk: &'a mut [R],
    dv: &'a mut [R],
}

/// Room for one tile.
struct Room<'a, R> {
    wide: &'a mut [R],
    q_across: &'a mut [R],
    dy_across: &'a mut [R],
    q_down: &'a mut [R],
    dy_down: &'a mut [R],
    part: &'a mut [R],
    p: &'a mut [R],
    ds: &'a mut [R],
    slopes: &'a mut [R],
    kept: &'a mut [R],
}

/// Scores become `exp(score - lse)`, all 0 for a query that saw nothing; columns without a query hold anything.
fn probabilities<R: Real>(tile: &mut [Row<R>], lse: &[R], ahead: &mut PrefetchRows) {
    let mut all = [R::ZERO; QUERIES];
    for (to, lse) in all.iter_mut().zip(lse) {
        *to = if *lse == R::NEG_INFINITY { R::ZERO } else { *lse };
    }
    widest(
        #[inline(always)]
        || {
            for row in tile {
                ahead.next_line();
                for i in 0..QUERIES {
                    row[i] = (row[i] - all[i]).exp_below();
                }
            }
        },
    );
}

/// `dp` becomes `ds = p (dp - sum p dp)`.
fn score_gradients<R: Real>(p: &[Row<R>], dp: &mut [Row<R>]) {
    widest(
        #[inline(always)]
        || {
            let mut sum = [R::ZERO; QUERIES];
            for (p, dp) in p.chunks(SUM_KEYS).zip(dp.chunks(SUM_KEYS)) {
                let mut part = [R::ZERO; QUERIES];
                for (p, dp) in p.iter().zip(dp) {
                    for i in 0..QUERIES {
                        part[i] += p[i] * dp[i];
                    }
                }
                for i in 0..QUERIES {
                    sum[i] += part[i];
                }
            }
            for (p, dp) in p.iter().zip(dp) {
                for i in 0..QUERIES {
                    dp[i] = p[i] * (dp[i] - sum[i]);
                }
            }
        },
    );
}
