//! Updates by a gradient that names the rows it has, and leaves the other rows of the table alone.

use std::ops::Range;

use super::Sgd;
use crate::float::{Disjoint, FloatElement, Real};
use crate::index::{BadIndex, Indices};
use crate::pool::{Pool, part_range};
use crate::simd::widest;
use remat_types::Element;

/// A part of the gradient of a table: rows, and which rows of the table they belong to. Rows of the same one add up.
#[derive(Clone, Copy)]
pub struct RowTerms<'a, T> {
    /// Rows of the table.
    pub index: Indices<'a>,
    /// A row for each index.
    pub rows: &'a [T],
}

/// Elements of a row that are added up at once, on the stack.
const BLOCK: usize = 256;

/// Elements of rows from which an update is cut among threads.
const PARALLEL_MIN_ELEMS: usize = 32 * 1024;

/// Items of the workspace of an update with so many indices in all.
pub fn rows_workspace_items(indices: usize) -> usize {
    indices.saturating_mul(2)
}

/// `p -= lr (g + weight_decay p)` of the rows that have a term, as [`super::sgd_plain`] does with all rows of the sum, whose bits these
/// are. Errors: the first bad index, with its position among those of all terms; nothing has changed then.
///
/// # Panics
/// If slices do not fit: `param` has `count` rows, each term a row for each index, the workspace [`rows_workspace_items`].
pub fn sgd_rows<T: FloatElement>(
    pool: &Pool,
    s: Sgd,
    param: &mut [T],
    count: usize,
    terms: &[RowTerms<'_, T>],
    workspace: &mut [u64],
) -> Result<(), BadIndex> {
    let (lr, decay) = (T::Real::from_f64(s.lr), T::Real::from_f64(s.weight_decay));
    let sign = T::Real::from_f64(if s.maximize { -1.0 } else { 1.0 });
    let table = Table { elems: param.len(), count };
    let param = Disjoint::new(param);
    table.each_row(pool, terms, workspace, |at, grad| {
        // SAFETY: no other call has elements of this range.
        let param = unsafe { param.part(at.start, at.len()) };
        for (p, g) in param.iter_mut().zip(grad) {
            *p = T::down(p.up() - lr * (sign * g.up() + decay * p.up()));
        }
    })
}

/// Hyperparameters of [`sparse_adam`]; see there.
#[derive(Clone, Copy, Debug)]
pub struct SparseAdam {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Goes up the gradient: `-g` stands for `g`.
    pub maximize: bool,
    /// Number of this step, from 1.
    pub step: f64,
}

/// Adam of the rows that have a term, as `torch.optim.SparseAdam`: `m += (1 - beta1) (g - m)`; `v += (1 - beta2) (g^2 - v)`;
/// `p -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)`. Rows without a term, and their moments, stay.
///
/// Errors and panics: as [`sgd_rows`].
pub fn sparse_adam<T: FloatElement>(
    pool: &Pool,
    a: SparseAdam,
    [param, m, v]: [&mut [T]; 3],
    count: usize,
    terms: &[RowTerms<'_, T>],
    workspace: &mut [u64],
) -> Result<(), BadIndex> {
    assert!(param.len() == m.len() && param.len() == v.len());
    let real = T::Real::from_f64;
    let (c1, c2, eps) = (real(1.0 - a.beta1), real(1.0 - a.beta2), real(a.eps));
    let rate = real(a.lr * (1.0 - a.beta2.powf(a.step)).sqrt() / (1.0 - a.beta1.powf(a.step)));
    let sign = real(if a.maximize { -1.0 } else { 1.0 });
    let table = Table { elems: param.len(), count };
    let [param, m, v] = [param, m, v].map(Disjoint::new);
    table.each_row(pool, terms, workspace, |at, grad| {
        // SAFETY: no other call has elements of this range.
        let [param, m, v] = [&param, &m, &v].map(|s| unsafe { s.part(at.start, at.len()) });
        for (((p, m), v), g) in param.iter_mut().zip(m.iter_mut()).zip(v.iter_mut()).zip(grad) {
            let g = sign * g.up();
            let first = m.up() + c1 * (g - m.up());
            let second = v.up() + c2 * (g * g - v.up());
            *m = T::down(first);
            *v = T::down(second);
            *p = T::down(p.up() - rate * first / (second.sqrt() + eps));
        }
    })
}

/// A table of `count` rows.
struct Table {
    elems: usize,
    count: usize,
}

impl Table {
    /// Calls `update` with each range of elements of the table that has terms, once, and their sum: in the order of the indices within a
    /// part, then of the parts, whatever the threads.
    fn each_row<T: FloatElement>(
        &self,
        pool: &Pool,
        terms: &[RowTerms<'_, T>],
        workspace: &mut [u64],
        update: impl Fn(Range<usize>, &[T]) + Sync,
    ) -> Result<(), BadIndex> {
        let mut before = 0;
        for t in terms {
            t.index.check(self.count).map_err(|e| BadIndex { position: before + e.position, ..e })?;
            before += t.index.len();
        }
        if self.elems == 0 || before == 0 {
            return Ok(());
        }
        let inner = self.elems / self.count;
        assert!(inner * self.count == self.elems && terms.iter().all(|t| t.rows.len() == t.index.len() * inner));
        let (order, _) = workspace[..rows_workspace_items(before)].as_chunks_mut::<2>();
        let mut at = 0;
        for t in terms {
            for m in 0..t.index.len() {
                order[at] = [t.index.at(m) as u64, at as u64];
                at += 1;
            }
        }
        order.sort_unstable();
        let order = &*order;
        let parts = if before * inner < PARALLEL_MIN_ELEMS { 1 } else { pool.threads() };
        pool.run(parts, &|part| {
            let range = part_range(order.len(), parts, part);
            let own = next_row(order, range.start)..next_row(order, range.end);
            widest(
                #[inline(always)]
                || {
                    for named in order[own].chunk_by(|a, b| a[0] == b[0]) {
                        let start = named[0][0] as usize * inner;
                        for from in (0..inner).step_by(BLOCK) {
                            let n = BLOCK.min(inner - from);
                            let mut total = [T::default(); BLOCK];
                            sum(terms, named, inner, from, &mut total[..n]);
                            update(start + from..start + from + n, &total[..n]);
                        }
                    }
                },
            );
        });
        Ok(())
    }
}

/// The first place from `at` on where a row of the table begins in `order`.
fn next_row(order: &[[u64; 2]], at: usize) -> usize {
    if at == 0 {
        return 0;
    }
    let same = order[at..].iter().take_while(|o| o[0] == order[at - 1][0]).count();
    at + same
}

/// Adds up elements from `from` on of the rows that `named` says, as one part after the other was added up by itself.
#[inline(always)]
fn sum<T: FloatElement>(terms: &[RowTerms<'_, T>], named: &[[u64; 2]], inner: usize, from: usize, total: &mut [T]) {
    let (mut named, mut before) = (named.iter().map(|n| n[1] as usize).peekable(), 0);
    for (k, t) in terms.iter().enumerate() {
        let mut part = [T::Real::ZERO; BLOCK];
        let part = &mut part[..total.len()];
        let end = before + t.index.len();
        while let Some(at) = named.next_if(|at| *at < end) {
            let row = &t.rows[(at - before) * inner + from..][..part.len()];
            part.iter_mut().zip(row).for_each(|(p, r)| *p += r.up());
        }
        match k {
            0 => total.iter_mut().zip(part).for_each(|(t, p)| *t = T::down(*p)),
            _ => total.iter_mut().zip(part).for_each(|(t, p)| *t = T::down(t.up() + T::down(*p).up())),
        }
        before = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::take_grad;
    use crate::optim::sgd_plain;

    /// Indices that repeat, and rows of theirs.
    fn terms(n: usize, inner: usize, count: usize, seed: usize) -> (Vec<i64>, Vec<f32>) {
        let index = (0..n).map(|i| ((i * i * 7 + seed * 13 + i) % count) as i64).collect();
        (index, (0..n * inner).map(|i| ((i + seed) as f32 * 0.37).sin()).collect())
    }

    #[test]
    fn rows_move_as_those_of_the_whole_gradient_do_bit_for_bit() {
        for (n, inner, count, threads) in
            [(5, 3, 4, 1), (900, 300, 500, 2), (700, 64, 40, 3), (4, 1, 9, 2), (0, 2, 3, 1)]
        {
            let pool = Pool::new(threads);
            let [a, b] = [terms(n, inner, count, 1), terms(n / 2, inner, count, 2)];
            let dense = |(index, rows): &(Vec<i64>, Vec<f32>)| {
                let mut y = vec![0f32; count * inner];
                take_grad(&pool, rows, count, inner, Indices::I64(index), &mut y).expect("in range");
                y
            };
            let grad: Vec<f32> = dense(&a).iter().zip(dense(&b)).map(|(a, b)| a + b).collect();
            let s = Sgd { lr: 0.3, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0, maximize: false };
            let param: Vec<f32> = (0..count * inner).map(|i| (i as f32 * 0.11).cos()).collect();
            let (mut want, mut got) = (param.clone(), param);
            sgd_plain(&pool, s, &mut want, &grad);
            let terms = [&a, &b].map(|(i, rows)| RowTerms { index: Indices::I64(i), rows });
            let mut workspace = vec![0; rows_workspace_items(n + n / 2)];
            sgd_rows(&pool, s, &mut got, count, &terms, &mut workspace).expect("in range");
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(bits(&got) == bits(&want), "{n} rows of {inner}, {threads} threads");
        }
    }

    #[test]
    fn only_rows_with_terms_move_and_a_bad_index_moves_none() {
        let pool = Pool::new(1);
        let a = SparseAdam { lr: 0.5, beta1: 0.5, beta2: 0.75, eps: 0.0, maximize: false, step: 1.0 };
        let (mut p, mut m, mut v) = ([1f32, 2.0, 3.0], [4f32, 0.0, 4.0], [9f32, 0.0, 9.0]);
        let terms = [RowTerms { index: Indices::U8(&[1, 1]), rows: &[1.0, 3.0] }];
        let mut workspace = [0; 4];
        sparse_adam(&pool, a, [&mut p, &mut m, &mut v], 3, &terms, &mut workspace).expect("in range");
        // m = 0.5 * 4, v = 0.25 * 16; 0.5 * sqrt(0.25) / 0.5 * 2 / 2
        assert_eq!((p, m, v), ([1.0, 1.5, 3.0], [4.0, 2.0, 4.0], [9.0, 4.0, 9.0]));
        let bad = [terms[0], RowTerms { index: Indices::I64(&[0, 3]), rows: &[1.0, 3.0] }];
        let e = sparse_adam(&pool, a, [&mut p, &mut m, &mut v], 3, &bad, &mut [0; 8]).expect_err("3 of 3");
        assert_eq!((e.position, e.value, p), (3, 3, [1.0, 1.5, 3.0]));
    }
}
