//! The backward pass: a task owns a head, and goes through its tiles in order.

use super::forward::SUM_KEYS;
use super::tile::{Cut, Panels, Row, RowsMut, Stack, hide, line, padded, rows_of, wide_len};
use super::{Attention, Gradients, HALF, Inputs, PREFETCH_BYTES, QUERIES, Strided, cut as pieces};
use crate::float::{Disjoint, FloatElement, Real};
use crate::gemm::GemmElement;
use crate::pool::Pool;
use crate::prefetch::PrefetchRows;
use crate::simd::widest;
use remat_types::Element;

/// Items of compute type of a slot: `k`, `v` and some rows widened; packed `k`, `q` and `dy` (both with queries across and
/// down), a tile's part of `dq`; the tiles of `p` and `ds`; the sums of `dk` and `dv`.
pub(super) fn lens<T: FloatElement<Real: GemmElement>>(a: &Attention) -> [usize; 13] {
    let (keys, d, dv) = (a.seen(), padded::<T::Real>(a.d), padded::<T::Real>(a.dv));
    let [k_wide, v_wide, wide] = [keys * a.d, keys * a.dv, QUERIES * a.d.max(a.dv)].map(wide_len::<T>);
    let [k, q_across, dy_across] = [keys * d, QUERIES * a.d, QUERIES * a.dv].map(line::<T::Real>);
    let [q, dy, tile] = [QUERIES * d, QUERIES * dv, QUERIES * keys].map(line::<T::Real>);
    let [dk_sums, dv_sums] = [keys * d, keys * dv].map(line::<T::Real>);
    [k_wide, v_wide, wide, k, q_across, dy_across, q, dy, q, tile, tile, dk_sums, dv_sums]
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
            assert!(a.tq == a.tk && a.d == a.dv && all.len() == 3 * a.n * a.tq * a.heads * a.d);
            whole = Disjoint::new(all);
            let strides = row(3 * a.heads, a.tq, a.d);
            [0, 1, 2].map(|i| RowsMut { data: &whole, offset: i * a.heads * a.d, strides })
        }
        Gradients::Apart(all) => {
            let sizes = [(a.tq, a.d), (a.tk, a.d), (a.tk, a.dv)];
            assert!(all.iter().zip(sizes).all(|(g, (t, d))| g.len() == a.n * t * a.heads * d));
            parts = all.map(Disjoint::new);
            [0, 1, 2].map(|i| RowsMut { data: &parts[i], offset: 0, strides: row(a.heads, sizes[i].0, sizes[i].1) })
        }
    };
    pool.with_slots(a.n * a.heads, workspace, lens.iter().sum(), |pair, slot| {
        let (at, lse) = (a.pair(pair), &lse[pair * a.tq..][..a.tq]);
        let head = Head { a, x, lse, dy, at, dq: &dq, dk: &dk, dv: &dv };
        let mut ahead = PrefetchRows::within(PREFETCH_BYTES);
        if pair + 1 < a.n * a.heads {
            let at = a.pair(pair + 1);
            x.k.prefetch(&mut ahead, at, a.seen(), a.d);
            x.q.prefetch(&mut ahead, at, a.tq, a.d);
            dy.prefetch(&mut ahead, at, a.tq, a.dv);
            x.v.prefetch(&mut ahead, at, a.seen(), a.dv);
            dq.prefetch(&mut ahead, at, a.tq, a.d);
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
    /// Image and head.
    at: [usize; 2],
    dq: &'a RowsMut<'a, T>,
    dk: &'a RowsMut<'a, T>,
    dv: &'a RowsMut<'a, T>,
}

impl<T: FloatElement<Real: GemmElement>> Head<'_, T> {
    fn run(&self, slot: [&mut [T::Real]; 13], ahead: &mut PrefetchRows) {
        let (a, x, keys) = (self.a, self.x, self.a.seen());
        let (scale, [d, dv]) = (T::Real::from_f64(a.scale), [a.d, a.dv].map(padded::<T::Real>));
        let [k_wide, v_wide, wide, k_packed, q_across, dy_across, q_down, dy_down, part, p, ds, dk_sums, dv_sums] =
            slot;
        let (dk_sums, dv_sums) = (&mut dk_sums[..keys * d], &mut dv_sums[..keys * dv]);
        dk_sums.fill(T::Real::ZERO);
        dv_sums.fill(T::Real::ZERO);
        // SAFETY: rows of this head, which were checked; as all below.
        let (k, v, k_down) = unsafe {
            let k = rows_of(&x.k, self.at, 0..keys, a.d, k_wide);
            let v = rows_of(&x.v, self.at, 0..keys, a.dv, v_wide);
            (k, v, Stack::pack(keys, a.d, |block| k.shifted(block.start, 0), k_packed))
        };
        for first in (0..a.tq).step_by(QUERIES) {
            let queries = first..(first + QUERIES).min(a.tq);
            let (cut, m) = (Cut::of(a, &queries), queries.len());
            let (p, _) = p[..cut.keys * QUERIES].as_chunks_mut::<QUERIES>();
            let (ds, _) = ds[..cut.keys * QUERIES].as_chunks_mut::<QUERIES>();
            // SAFETY: as above; tiles have a row for each key and a column for each query, and sums a row for each key.
            unsafe {
                let q = rows_of(&x.q, self.at, queries.clone(), a.d, wide);
                let q_across = Panels::scaled(q.t(), a.d, m, scale, q_across);
                let q_down = Panels::scaled(q, m, a.d, scale, q_down);
                let dy = rows_of(self.dy, self.at, queries.clone(), a.dv, wide);
                let dy_across = Panels::pack(dy.t(), a.dv, m, dy_across);
                let dy_down = Panels::pack(dy, m, a.dv, dy_down);
                cut.scores(a.d, k, q_across, p, ahead);
                hide(a, x.mask.as_ref(), self.at, queries.clone(), p, T::Real::NEG_INFINITY);
                probabilities(p, &self.lse[queries.clone()], ahead);
                cut.add_up(p, m, dy_down, dv_sums, ahead);
                cut.scores(a.dv, v, dy_across, ds, ahead);
                ds[cut.before..].iter_mut().for_each(|row| row[..HALF].fill(T::Real::ZERO));
                score_gradients(p, ds);
                // also where `dp` is not finite, and no probability of 0 makes it 0
                hide(a, x.mask.as_ref(), self.at, queries.clone(), ds, T::Real::ZERO);
                cut.add_up(ds, m, q_down, dk_sums, ahead);
            }
            for (range, keys) in cut.queries(m) {
                k_down.sum(&ds[..keys], range, part, ahead);
            }
            // SAFETY: the head is this task's.
            unsafe { self.dq.write(self.at, first, &part[..m * d], d, a.d, |_| scale) };
        }
        // SAFETY: as above.
        unsafe {
            self.dk.write(self.at, 0, dk_sums, d, a.d, |_| T::Real::ONE);
            self.dv.write(self.at, 0, dv_sums, dv, a.dv, |_| T::Real::ONE);
            self.dk.clear(self.at, keys..a.tk, a.d);
            self.dv.clear(self.at, keys..a.tk, a.dv);
        }
    }
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
