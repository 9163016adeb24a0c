//! Softmax, its logarithm, cross-entropy, and their gradients along one axis of `[outer, c, inner]`.
//!
//! Every function works on tiles of at most `TILE` neighbouring columns of one `outer` slice, or on a row when
//! `inner = 1`; a column's sums run over `c` in order (rows in fixed lanes), so bits do not depend on threads.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use crate::float::{Disjoint, FloatElement, Real, largest, sum_into, sum2};
use crate::pool::Pool;
use crate::prefetch::prefetch_row_beyond;
use crate::simd::widest;
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
    pub fn new(shape: &[usize], axis: usize) -> Self {
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

/// Maximum of every column of a tile.
#[inline(always)]
fn maxima<T: FloatElement>(x: &[T], c: usize, t: Tile) -> [T::Real; TILE] {
    let mut max = [T::Real::NEG_INFINITY; TILE];
    if t.step == 1 {
        max[0] = largest(&x[t.start..t.start + c]);
        return max;
    }
    for k in 0..c {
        let row = &x[t.start + k * t.step..][..t.width];
        each_column(row, |i, v| max[i] = if v.up() > max[i] { v.up() } else { max[i] });
    }
    max
}

/// Sum of `exp(x - max)` of every column of a tile, but for the class `out(column of the tile)`.
#[inline(always)]
fn sums<T: FloatElement>(
    x: &[T],
    c: usize,
    t: Tile,
    max: &[T::Real; TILE],
    out: impl Fn(usize) -> Option<usize>,
) -> [T::Real; TILE] {
    let mut sum = [T::Real::ZERO; TILE];
    if t.step == 1 {
        let m = max[0];
        let of = |row: &[T]| sum2(row, row, |x, _| prefetch_row_beyond(x), |v, _| (v.up() - m).exp_below());
        let (before, behind) = around(&x[t.start..t.start + c], out(0));
        sum[0] = T::Real::from_f64(of(before) + of(behind));
        return sum;
    }
    // no class has this number
    let mut left = [u32::MAX; TILE];
    for (i, left) in left.iter_mut().enumerate().take(t.width) {
        *left = out(i).map_or(u32::MAX, |k| k as u32);
    }
    for k in 0..c {
        let (row, k) = (&x[t.start + k * t.step..][..t.width], k as u32);
        each_column(row, |i, v| {
            let e = (v.up() - max[i]).exp_below();
            sum[i] += if left[i] == k { T::Real::ZERO } else { e };
        });
    }
    sum
}

/// A row before and behind an element; all of it and nothing without one.
#[inline(always)]
fn around<T>(row: &[T], at: Option<usize>) -> (&[T], &[T]) {
    match at {
        Some(k) => (&row[..k], &row[k + 1..]),
        None => (row, &[]),
    }
}

/// The first class of every column that is the maximum; 0 where there is none, and NaN alone.
#[inline(always)]
fn first_at_max<T: FloatElement>(x: &[T], c: usize, t: Tile, max: &[T::Real; TILE]) -> [u32; TILE] {
    let mut at = [0; TILE];
    if t.step == 1 {
        let found = x[t.start..t.start + c].iter().position(|v| v.up() == max[0]);
        at[0] = found.unwrap_or(0) as u32;
        return at;
    }
    for k in (0..c).rev() {
        let row = &x[t.start + k * t.step..][..t.width];
        each_column(row, |i, v| at[i] = if v.up() == max[i] { k as u32 } else { at[i] });
    }
    at
}

/// `y = exp(x - maximum)` of a row, rounded to its type; the maximum and the sum of what was not rounded, but for the
/// element that is left out.
#[inline(always)]
fn exponentials<T: FloatElement>(x: &[T], y: &mut [T], out: Option<usize>) -> (T::Real, T::Real) {
    let max = largest(x);
    let of = |x: &[T], y: &mut [T]| sum_into(x, y, |v| (v.up() - max).exp_below());
    let Some(k) = out else { return (max, T::Real::from_f64(of(x, y))) };
    let (before, behind) = y.split_at_mut(k);
    behind[0] = T::down((x[k].up() - max).exp_below());
    (max, T::Real::from_f64(of(&x[..k], before) + of(&x[k + 1..], &mut behind[1..])))
}

/// `exp(x - max)`. `kept` is the value that [`exponentials`] wrote; the function computes the exponential again only if that
/// value was rounded.
#[inline(always)]
fn exponential<T: FloatElement>(x: T, max: T::Real, kept: T) -> T::Real {
    let is_exact = const { size_of::<T>() == size_of::<T::Real>() };
    if is_exact { kept.up() } else { (x.up() - max).exp_below() }
}

/// `y = exp(x) / sum exp(x)`, or its logarithm, along `c`. The logarithm of what is nearly 1 keeps its digits.
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
                let (max, sum) = exponentials(row, y, None);
                let inverse = T::Real::ONE / sum;
                y.iter_mut().zip(row).for_each(|(y, x)| *y = T::down(exponential(*x, max, *y) * inverse));
                return;
            }
            let max = maxima(x, d.c, t);
            let mut last = [T::Real::ZERO; TILE];
            if log {
                // without the maximum's own 1, beside which what is small would not be seen
                let at = first_at_max(x, d.c, t, &max);
                let rest = sums(x, d.c, t, &max, |i| Some(at[i] as usize));
                for i in 0..t.width {
                    // NaN for an infinite maximum, whose own exponential is one
                    let top = max[i];
                    last[i] = (rest[i] + (top - max[i])).ln_1p();
                }
            } else {
                let sum = sums(x, d.c, t, &max, |_| None);
                last.iter_mut().zip(&sum).take(t.width).for_each(|(l, s)| *l = T::Real::ONE / *s);
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
/// `dx = dy - exp(y) sum dy`, where `exp(y)` is above a half as `(dy - sum dy) - (exp(y) - 1) sum dy`: that does not cancel
/// for the class that is certain.
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
    // of a column at most one
    let half = T::Real::from_f64(-std::f64::consts::LN_2);
    let certain = |y: T, dy: T, sum: T::Real| T::down((dy.up() - sum) - y.up().exp_m1() * sum);
    tiles(
        pool,
        d,
        #[inline(always)]
        |t| {
            if t.step == 1 {
                let row = t.start..t.start + d.c;
                let (y, dy) = (&y[row.clone()], &dy[row]);
                let prefetch = |y, dy| [y, dy].into_iter().for_each(prefetch_row_beyond);
                let sum = sum2(y, dy, prefetch, |y, dy| if LOG { dy.up() } else { dy.up() * y.up() });
                let sum = T::Real::from_f64(sum);
                // SAFETY: tiles do not overlap; this row is the tile.
                let dx = unsafe { dx.part(t.start, d.c) };
                for k in 0..d.c {
                    dx[k] = term(y[k], dy[k], sum);
                }
                if let (true, Some(k)) = (LOG, y.iter().position(|y| y.up() > half)) {
                    dx[k] = certain(y[k], dy[k], sum);
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
                if LOG && y[at..at + t.width].iter().any(|y| y.up() > half) {
                    for i in (0..t.width).filter(|i| y[at + i].up() > half) {
                        dx[i] = certain(y[at + i], dy[at + i], sum[i]);
                    }
                }
            }
        },
    );
}

/// Cross-entropy of each column of `logits: [outer, c, inner]` with a class and label smoothing `e`:
/// `loss = (1 - e) (lse - x[label]) + e (lse - mean x)` with `lse = ln sum exp x`; 0 where `label(column)` is `None`.
///
/// The label's own exponential is kept out of the sum: where it is the largest, the loss is `ln(1 + sum of the others)`, and
/// keeps its digits however small that is.
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
            let max = maxima(logits, d.c, t);
            let rest = sums(logits, d.c, t, &max, |i| label(t.column + i));
            // SAFETY: tiles do not overlap.
            let loss = unsafe { loss.part(t.column, t.width) };
            for i in 0..t.width {
                let Some(l) = label(t.column + i) else {
                    loss[i] = T::Real::ZERO;
                    continue;
                };
                assert!(l < d.c, "label {l} of {} classes", d.c);
                let at = |k: usize| logits[t.start + k * t.step + i].up() - max[i];
                let own = at(l);
                let lse = if own == T::Real::ZERO { rest[i].ln_1p() } else { (rest[i] + own.exp_below()).ln() };
                let mut v = lse - own;
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
/// columns without a label. Of the label it is minus the share of the others, plus `e (1 - 1 / c)`: `softmax x - 1` would
/// cancel.
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
    let miss = T::Real::from_f64(smoothing / d.c.max(1) as f64);
    let spared = T::Real::from_f64(smoothing - smoothing / d.c.max(1) as f64);
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
                assert!(label < d.c, "label {label} of {} classes", d.c);
                let (max, rest) = exponentials(x, dx, Some(label));
                let sum = rest + exponential(x[label], max, dx[label]);
                let (inverse, w) = (T::Real::ONE / sum, weight(t.column));
                let term = |e: T::Real| T::down(w * (e * inverse - miss));
                dx.iter_mut().zip(x).for_each(|(dx, x)| *dx = term(exponential(*x, max, *dx)));
                dx[label] = T::down(w * (spared - rest * inverse));
                return;
            }
            let max = maxima(logits, d.c, t);
            let mut labels = [None; TILE];
            labels.iter_mut().enumerate().take(t.width).for_each(|(i, l)| *l = label(t.column + i));
            let rest = sums(logits, d.c, t, &max, |i| labels[i]);
            let [mut inverse, mut w] = [[T::Real::ZERO; TILE]; 2];
            for i in 0..t.width {
                let own = labels[i].map(|l| (logits[t.start + l * t.step + i].up() - max[i]).exp_below());
                w[i] = if labels[i].is_some() { weight(t.column + i) } else { T::Real::ZERO };
                inverse[i] = T::Real::ONE / (rest[i] + own.unwrap_or(T::Real::ZERO));
            }
            for k in 0..d.c {
                let at = t.start + k * t.step;
                // SAFETY: tiles do not overlap, and these are the tile's columns in row `k`.
                let dx = unsafe { dx.part(at, t.width) };
                each_column(&logits[at..at + t.width], |i, x| {
                    dx[i] = T::down(w[i] * ((x.up() - max[i]).exp_below() * inverse[i] - miss));
                });
            }
            for (i, label) in labels.iter().enumerate().take(t.width) {
                let column = label.map_or(0..d.c, |label| label..label + 1);
                for k in column {
                    let at = t.start + k * t.step + i;
                    // SAFETY: tiles do not overlap, and this element is of the tile.
                    let dx = unsafe { dx.part(at, 1) };
                    dx[0] =
                        if label.is_some() { T::down(w[i] * (spared - rest[i] * inverse[i])) } else { T::default() };
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat_types::{bf16, f16};

    /// Two classes `far` apart, in rows and in columns: the loss, its gradient, the logarithms and their gradient, each of
    /// the class that is certain and of the other one.
    fn ends<T: FloatElement>(inner: usize, far: f64, label: usize) -> [[f64; 2]; 4] {
        let (pool, d) = (Pool::new(1), AxisDims { outer: 1, c: 2, inner });
        let both = |a: f64, b: f64| [vec![T::from_f64(a); inner], vec![T::from_f64(b); inner]].concat();
        let x = both(0.0, -far);
        let first = |v: &[T]| [v[0].to_f64(), v[inner].to_f64()];
        let mut loss = vec![T::Real::ZERO; inner];
        cross_entropy(&pool, d, 0.0, &x, |_| Some(label), &mut loss);
        let mut dx = both(0.0, 0.0);
        cross_entropy_grad(&pool, d, 0.0, &x, |_| Some(label), |_| T::Real::ONE, &mut dx);
        let mut y = both(0.0, 0.0);
        softmax(&pool, d, true, &x, &mut y);
        let mut dy = both(0.0, 0.0);
        softmax_grad(&pool, d, true, &y, &both(f64::from(label as u8) - 1.0, -f64::from(label as u8)), &mut dy);
        [[T::down(loss[0]).to_f64(); 2], first(&dx), first(&y), first(&dy)]
    }

    #[test]
    fn losses_have_their_digits_at_both_ends() {
        fn check<T: FloatElement>(name: &str, distances: &[f64], bound: f64) {
            for (&far, inner, label) in
                distances.iter().flat_map(|f| [1, 3, TILE].map(|i| (f, i))).flat_map(|(f, i)| [(f, i, 0), (f, i, 1)])
            {
                let (small, other) = ((-far).exp().ln_1p(), -far - (-far).exp().ln_1p());
                let share = (-far).exp() / (1.0 + (-far).exp());
                let loss = if label == 0 { small } else { -other };
                let dx = if label == 0 { [-share, share] } else { [1.0 - share, share - 1.0] };
                let want = [[loss; 2], dx, [-small, other], dx];
                for (i, (got, want)) in ends::<T>(inner, far, label).iter().zip(want).enumerate() {
                    for (class, (got, want)) in got.iter().zip(want).enumerate() {
                        // the exponential of a rounded logarithm is off by as much as that was rounded
                        let rounded = if (i, label, class) == (3, 0, 1) { bound * far } else { 0.0 };
                        let near = (got - want).abs() <= (bound + rounded) * want.abs();
                        assert!(near, "{name}, {far} apart, label {label}, inner {inner}, value {i}: {got} for {want}");
                    }
                }
            }
        }
        check::<f64>("f64", &[0.0, 1.0, 17.0, 36.0, 40.0, 100.0, 700.0], 4e-15);
        check::<f32>("f32", &[0.0, 1.0, 9.0, 17.0, 30.0, 80.0], 1e-6);
        check::<f16>("f16", &[0.0, 1.0, 6.0, 9.0], 3e-3);
        check::<bf16>("bf16", &[0.0, 1.0, 6.0, 9.0, 17.0, 80.0], 1.6e-2);
    }

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
                let label = |i| if i % 4 == 1 { None } else { Some(i * 5 % c) };
                let weight = |i| if i % 4 == 1 { f32::INFINITY } else { i as f32 * 0.25 + 0.5 };
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
