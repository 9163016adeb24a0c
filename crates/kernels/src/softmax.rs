//! Softmax, its logarithm, cross-entropy, and their gradients along one axis of `[outer, c, inner]`.
//!
//! Every function works on tiles of at most `TILE` neighbouring columns of one `outer` slice, or on a row when
//! `inner = 1`; a column's sums run over `c` in order (rows in fixed lanes), so bits do not depend on threads.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use crate::float::{Disjoint, FloatElement, Real, ask_ahead, largest, sum_into, sum2, widest};
use crate::pool::Pool;
use remat_types::Element;

/// Columns that are walked side by side: four vectors of f32 that stay in registers or the first cache.
const TILE: usize = 32;

/// Elements that are worth a part of a pool run; an exponential each.
const GRAIN_ELEMS: usize = 2048;

/// Sizes of a tensor `[outer, c, inner]` that is normalised along `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisDims {
    /// Product of the extents before the axis.
    pub outer: usize,
    /// Extent of the axis.
    pub c: usize,
    /// Product of the extents after it.
    pub inner: usize,
}

impl AxisDims {
    /// The dims of axis `axis` of `shape`.
    pub fn of(shape: &[usize], axis: usize) -> Self {
        let product = |d: &[usize]| d.iter().product();
        AxisDims { outer: product(&shape[..axis]), c: shape[axis], inner: product(&shape[axis + 1..]) }
    }

    fn elems(&self) -> usize {
        self.outer * self.c * self.inner
    }
}

/// A tile: element `(class, column)` is at `start + class * step + column`, for `width` columns.
#[derive(Clone, Copy)]
struct Tile {
    /// First position among the `outer * inner` columns.
    column: usize,
    start: usize,
    step: usize,
    width: usize,
}

/// Calls `f` with tiles that cover all columns, in parallel.
fn tiles(pool: &Pool, d: AxisDims, f: impl Fn(Tile) + Sync) {
    if d.elems() == 0 {
        return;
    }
    let per_outer = d.inner.div_ceil(TILE);
    let count = d.outer * per_outer;
    let per_part = (GRAIN_ELEMS / (d.c * d.inner.min(TILE))).max(1);
    pool.run(count.div_ceil(per_part), &|part| {
        for t in part * per_part..((part + 1) * per_part).min(count) {
            let (o, first) = (t / per_outer, t % per_outer * TILE);
            let width = TILE.min(d.inner - first);
            let start = o * d.c * d.inner + first;
            let tile = Tile { column: o * d.inner + first, start, step: d.inner, width };
            widest(
                #[inline(always)]
                || f(tile),
            );
        }
    });
}

/// Calls `f(i, row[i])`; a whole tile takes a loop of fixed length, which compiles to vector code.
#[inline(always)]
fn each_column<T: FloatElement>(row: &[T], mut f: impl FnMut(usize, T)) {
    match <&[T; TILE]>::try_from(row) {
        Ok(row) => (0..TILE).for_each(|i| f(i, row[i])),
        Err(_) => row.iter().enumerate().for_each(|(i, v)| f(i, *v)),
    }
}

/// Maximum and sum of `exp(x - maximum)` of every column of a tile.
#[inline(always)]
fn max_and_sum<T: FloatElement>(x: &[T], c: usize, t: Tile) -> ([T::Real; TILE], [T::Real; TILE]) {
    let (mut max, mut sum) = ([T::Real::NEG_INFINITY; TILE], [T::Real::ZERO; TILE]);
    if t.step == 1 {
        let row = &x[t.start..t.start + c];
        let m = largest(row);
        max[0] = m;
        sum[0] = T::Real::from_f64(sum2(row, row, |x, _| ask_ahead(x), |v, _| (v.up() - m).exp_below()));
        return (max, sum);
    }
    for k in 0..c {
        let row = &x[t.start + k * t.step..][..t.width];
        each_column(row, |i, v| max[i] = if v.up() > max[i] { v.up() } else { max[i] });
    }
    for k in 0..c {
        let row = &x[t.start + k * t.step..][..t.width];
        each_column(row, |i, v| sum[i] += (v.up() - max[i]).exp_below());
    }
    (max, sum)
}

/// `y = exp(x - maximum)` of a row, rounded to its type; the maximum and the sum of what was not rounded.
#[inline(always)]
fn exponentials<T: FloatElement>(x: &[T], y: &mut [T]) -> (T::Real, T::Real) {
    let max = largest(x);
    (max, T::Real::from_f64(sum_into(x, y, |v| (v.up() - max).exp_below())))
}

/// `exp(x - max)`, of which `kept` is what [`exponentials`] wrote: computed again only if that was rounded.
#[inline(always)]
fn exponential<T: FloatElement>(x: T, max: T::Real, kept: T) -> T::Real {
    let is_exact = const { size_of::<T>() == size_of::<T::Real>() };
    if is_exact { kept.up() } else { (x.up() - max).exp_below() }
}

/// `y = exp(x) / sum exp(x)`, or its logarithm, along `c`.
///
/// # Panics
/// If `x` and `y` have not the size of `d`.
pub fn softmax<T: FloatElement>(pool: &Pool, d: AxisDims, log: bool, x: &[T], y: &mut [T]) {
    assert!(x.len() == d.elems() && y.len() == d.elems());
    let y = Disjoint::new(y);
    tiles(
        pool,
        d,
        #[inline(always)]
        |t| {
            if t.step == 1 && !log {
                let row = &x[t.start..t.start + d.c];
                // SAFETY: tiles do not overlap; this row is the tile.
                let y = unsafe { y.part(t.start, d.c) };
                let (max, sum) = exponentials(row, y);
                let inverse = T::Real::ONE / sum;
                y.iter_mut().zip(row).for_each(|(y, x)| *y = T::down(exponential(*x, max, *y) * inverse));
                return;
            }
            let (max, sum) = max_and_sum(x, d.c, t);
            let mut last = [T::Real::ZERO; TILE];
            for (l, s) in last.iter_mut().zip(&sum).take(t.width) {
                *l = if log { s.ln() } else { T::Real::ONE / *s };
            }
            if t.step == 1 {
                let (m, l) = (max[0], last[0]);
                // SAFETY: tiles do not overlap; this row is the tile.
                let y = unsafe { y.part(t.start, d.c) };
                y.iter_mut().zip(&x[t.start..t.start + d.c]).for_each(|(y, x)| *y = T::down(x.up() - m - l));
                return;
            }
            for k in 0..d.c {
                let at = t.start + k * t.step;
                // SAFETY: tiles do not overlap, and these are the tile's columns in row `k`.
                let y = unsafe { y.part(at, t.width) };
                each_column(&x[at..at + t.width], |i, x| {
                    let v = x.up() - max[i];
                    y[i] = T::down(if log { v - last[i] } else { v.exp_below() * last[i] });
                });
            }
        },
    );
}

/// The gradient of [`softmax`] from its output: `dx = y (dy - sum dy y)`, or of the logarithm
/// `dx = dy - exp(y) sum dy`.
///
/// # Panics
/// If a slice has not the size of `d`.
pub fn softmax_grad<T: FloatElement>(pool: &Pool, d: AxisDims, log: bool, y: &[T], dy: &[T], dx: &mut [T]) {
    assert!(y.len() == d.elems() && dy.len() == d.elems() && dx.len() == d.elems());
    match log {
        true => softmax_grad_of::<T, true>(pool, d, y, dy, dx),
        false => softmax_grad_of::<T, false>(pool, d, y, dy, dx),
    }
}

/// [`softmax_grad`] for one of the two: a loop with the choice inside computes the exponential either way.
fn softmax_grad_of<T: FloatElement, const LOG: bool>(pool: &Pool, d: AxisDims, y: &[T], dy: &[T], dx: &mut [T]) {
    let dx = Disjoint::new(dx);
    let term = |y: T, dy: T, sum: T::Real| match LOG {
        true => T::down(dy.up() - y.up().exp() * sum),
        false => T::down(y.up() * (dy.up() - sum)),
    };
    tiles(
        pool,
        d,
        #[inline(always)]
        |t| {
            if t.step == 1 {
                let row = t.start..t.start + d.c;
                let (y, dy) = (&y[row.clone()], &dy[row]);
                let ask = |y, dy| [y, dy].into_iter().for_each(ask_ahead);
                let sum = sum2(y, dy, ask, |y, dy| if LOG { dy.up() } else { dy.up() * y.up() });
                let sum = T::Real::from_f64(sum);
                // SAFETY: tiles do not overlap; this row is the tile.
                let dx = unsafe { dx.part(t.start, d.c) };
                for k in 0..d.c {
                    dx[k] = term(y[k], dy[k], sum);
                }
                return;
            }
            let mut sum = [T::Real::ZERO; TILE];
            for k in 0..d.c {
                let at = t.start + k * t.step;
                for ((s, y), dy) in sum.iter_mut().zip(&y[at..at + t.width]).zip(&dy[at..at + t.width]) {
                    *s += if LOG { dy.up() } else { dy.up() * y.up() };
                }
            }
            for k in 0..d.c {
                let at = t.start + k * t.step;
                // SAFETY: tiles do not overlap, and these are the tile's columns in row `k`.
                let dx = unsafe { dx.part(at, t.width) };
                for i in 0..t.width {
                    dx[i] = term(y[at + i], dy[at + i], sum[i]);
                }
            }
        },
    );
}

/// Cross-entropy of each column of `logits: [outer, c, inner]` with a class and label smoothing `e`:
/// `loss = (1 - e) (lse - x[label]) + e (lse - mean x)` with `lse = ln sum exp x`; 0 where `label(column)` is `None`.
///
/// # Panics
/// If a slice has not the size of `d` (`loss: [outer * inner]`), or a label is not below `c`.
pub fn cross_entropy<T: FloatElement>(
    pool: &Pool,
    d: AxisDims,
    smoothing: f64,
    logits: &[T],
    label: impl Fn(usize) -> Option<usize> + Sync,
    loss: &mut [T::Real],
) {
    assert!(logits.len() == d.elems() && loss.len() == d.outer * d.inner);
    let loss = Disjoint::new(loss);
    tiles(
        pool,
        d,
        #[inline(always)]
        |t| {
            let (max, sum) = max_and_sum(logits, d.c, t);
            // SAFETY: tiles do not overlap.
            let loss = unsafe { loss.part(t.column, t.width) };
            for i in 0..t.width {
                let Some(l) = label(t.column + i) else {
                    loss[i] = T::Real::ZERO;
                    continue;
                };
                assert!(l < d.c, "label {l} of {} classes", d.c);
                let at = |k: usize| logits[t.start + k * t.step + i].up() - max[i];
                let lse = sum[i].ln();
                let mut v = lse - at(l);
                if smoothing > 0.0 {
                    let mean = (0..d.c).map(|k| at(k).to_f64()).sum::<f64>() / d.c as f64;
                    v = T::Real::from_f64((1.0 - smoothing) * v.to_f64() + smoothing * (lse.to_f64() - mean));
                }
                loss[i] = v;
            }
        },
    );
}

/// The gradient of [`cross_entropy`] times `weight(column)`: `dx = w (softmax x - (1 - e) [k = label] - e / c)`, zero in
/// columns without a label.
///
/// # Panics
/// If a slice has not the size of `d`, or a label is not below `c`.
pub fn cross_entropy_grad<T: FloatElement>(
    pool: &Pool,
    d: AxisDims,
    smoothing: f64,
    logits: &[T],
    label: impl Fn(usize) -> Option<usize> + Sync,
    weight: impl Fn(usize) -> T::Real + Sync,
    dx: &mut [T],
) {
    assert!(logits.len() == d.elems() && dx.len() == d.elems());
    let dx = Disjoint::new(dx);
    let (hit, miss) = (T::Real::from_f64(1.0 - smoothing), T::Real::from_f64(smoothing / d.c.max(1) as f64));
    tiles(
        pool,
        d,
        #[inline(always)]
        |t| {
            if t.step == 1 {
                let x = &logits[t.start..t.start + d.c];
                // SAFETY: tiles do not overlap; this row is the tile.
                let dx = unsafe { dx.part(t.start, d.c) };
                let Some(label) = label(t.column) else {
                    dx.fill(T::default());
                    return;
                };
                let (max, sum) = exponentials(x, dx);
                let (inverse, w) = (T::Real::ONE / sum, weight(t.column));
                let term = |e: T::Real, target: T::Real| T::down(w * (e * inverse - target));
                let of_label = term(exponential(x[label], max, dx[label]), hit + miss);
                dx.iter_mut().zip(x).for_each(|(dx, x)| *dx = term(exponential(*x, max, *dx), miss));
                dx[label] = of_label;
                return;
            }
            let (max, sum) = max_and_sum(logits, d.c, t);
            let [mut inverse, mut w] = [[T::Real::ZERO; TILE]; 2];
            let mut labels = [None; TILE];
            for i in 0..t.width {
                labels[i] = label(t.column + i);
                w[i] = if labels[i].is_some() { weight(t.column + i) } else { T::Real::ZERO };
                inverse[i] = T::Real::ONE / sum[i];
            }
            let term = |x: T, max: T::Real, inverse: T::Real, w: T::Real, target: T::Real| {
                T::down(w * ((x.up() - max).exp_below() * inverse - target))
            };
            for k in 0..d.c {
                let at = t.start + k * t.step;
                // SAFETY: tiles do not overlap, and these are the tile's columns in row `k`.
                let dx = unsafe { dx.part(at, t.width) };
                each_column(&logits[at..at + t.width], |i, x| dx[i] = term(x, max[i], inverse[i], w[i], miss));
            }
            for (i, label) in labels.iter().enumerate().take(t.width) {
                let column = label.map_or(0..d.c, |label| label..label + 1);
                for k in column {
                    let at = t.start + k * t.step + i;
                    // SAFETY: tiles do not overlap, and this element is of the tile.
                    let dx = unsafe { dx.part(at, 1) };
                    dx[0] = if label.is_some() {
                        term(logits[at], max[i], inverse[i], w[i], hit + miss)
                    } else {
                        T::default()
                    };
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_of_cross_entropy_follows_its_formula() {
        let pool = Pool::new(2);
        let rows = [[3, 1, 1], [5, 17, 1], [2, 768, 1]];
        let columns = [[1, 3, 2], [2, 10, 31], [1, 7, 32], [3, 5, 77]];
        for [outer, c, inner] in rows.into_iter().chain(columns) {
            let d = AxisDims { outer, c, inner };
            let x: Vec<f32> = (0..d.elems()).map(|i| (i * 7919 % 1009) as f32 / 100.0 - 5.0).collect();
            for smoothing in [0.0, 0.1] {
                // some columns have no label, and an infinite weight there must not count
                let label = |i: usize| if i % 4 == 1 { None } else { Some(i * 5 % c) };
                let weight = |i: usize| if i % 4 == 1 { f32::INFINITY } else { i as f32 * 0.25 + 0.5 };
                let mut dx = vec![9.0f32; d.elems()];
                cross_entropy_grad(&pool, d, smoothing, &x, label, weight, &mut dx);
                for (at, dx) in dx.iter().enumerate() {
                    let (o, k, i) = (at / (c * inner), at / inner % c, at % inner);
                    let exp = |k: usize| f64::from(x[(o * c + k) * inner + i]).exp();
                    let p = exp(k) / (0..c).map(exp).sum::<f64>();
                    let column = o * inner + i;
                    let hit = if label(column) == Some(k) { 1.0 - smoothing } else { 0.0 };
                    let w = f64::from(weight(column));
                    let want = if label(column).is_none() { 0.0 } else { w * (p - hit - smoothing / c as f64) };
                    let bound = 1e-5 * w.min(1e3);
                    assert!((f64::from(*dx) - want).abs() <= bound, "{dx} for {want} at {at} of {d:?}, {smoothing}");
                }
            }
        }
    }
}
