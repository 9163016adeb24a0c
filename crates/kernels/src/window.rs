//! Pooling of planes `[h, w]`: maxima and averages over windows, and their gradients.
//!
//! Planes are independent and are what threads share out. Windows along an axis are told by a function
//! `o -> start..end` clipped to the plane ([`Axis`]), so that sliding and adaptive pooling are one kernel.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use std::ops::Range;

use remat_types::Storage;

use crate::float::{FloatElement, LANES};
use crate::pool::Pool;
use crate::simd::widest;

/// The windows along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Extent of the input.
    pub size: usize,
    /// Number of windows.
    pub out: usize,
    /// How they lie.
    pub kind: AxisKind,
}

/// How windows lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisKind {
    /// Window `o` is `o stride - before .. + kernel`; `after` elements of padding follow the input.
    Sliding {
        /// Elements of a window.
        kernel: usize,
        /// Elements from one window to the next.
        stride: usize,
        /// Padding before the input.
        before: usize,
        /// Padding after the input.
        after: usize,
    },
    /// Window `o` is `floor(o size / out) .. ceil((o + 1) size / out)`, PyTorch's adaptive pooling.
    Adaptive,
}

impl Axis {
    /// Window `o`, cut to the input.
    #[inline(always)]
    pub fn window(&self, o: usize) -> (usize, usize) {
        match self.kind {
            AxisKind::Sliding { kernel, stride, before, .. } => {
                let start = o * stride;
                (start.saturating_sub(before).min(self.size), (start + kernel).saturating_sub(before).min(self.size))
            }
            AxisKind::Adaptive => (o * self.size / self.out, ((o + 1) * self.size).div_ceil(self.out)),
        }
    }

    /// Sliding windows whose element `tap` lies in the input: from the first to before the last.
    fn windows_of(&self, tap: usize) -> (usize, usize) {
        match self.kind {
            AxisKind::Sliding { stride, before, .. } => {
                let low = before.saturating_sub(tap).div_ceil(stride);
                (low, (self.size + before).saturating_sub(tap).div_ceil(stride).min(self.out))
            }
            AxisKind::Adaptive => (0, 0),
        }
    }

    /// Elements of window `o` within input and padding: what an average that counts padding divides by.
    #[inline(always)]
    fn padded_len(&self, o: usize) -> usize {
        match self.kind {
            AxisKind::Sliding { kernel, stride, before, after } => {
                (o * stride + kernel).min(self.size + before + after) - o * stride
            }
            AxisKind::Adaptive => {
                let (start, end) = self.window(o);
                end - start
            }
        }
    }
}

/// Window elements that are worth a part of a pool run.
const GRAIN_ELEMS: usize = 8192;

/// Planes that one part takes; by sizes only.
fn planes_per_part(h: Axis, w: Axis) -> usize {
    (GRAIN_ELEMS / (h.size * w.size).max(h.out * w.out).max(1)).max(1)
}

/// Calls `f(plane, y_plane)` for every plane of `y`, in parallel.
fn planes<T: Send>(pool: &Pool, y: &mut [T], plane_elems: usize, per_part: usize, f: impl Fn(usize, &mut [T]) + Sync) {
    if plane_elems == 0 {
        return;
    }
    pool.chunks_mut(y, plane_elems * per_part, |part, y| {
        for (i, y) in y.chunks_exact_mut(plane_elems).enumerate() {
            widest(
                #[inline(always)]
                || f(part * per_part + i, y),
            );
        }
    });
}

/// Fills `y` in pieces of `L` elements: the piece from `at` on is `f(at)`. The last piece may overlap the one before.
/// `y` has `L` elements or more, or none.
#[inline(always)]
fn pieces<const L: usize, V: Copy>(y: &mut [V], f: impl Fn(usize) -> [V; L]) {
    for from in (0..y.len()).step_by(L) {
        let at = from.min(y.len() - L);
        *y[at..].first_chunk_mut().expect("L elements from the last place on") = f(at);
    }
}

/// A type whose maxima are taken: NaN wins over everything, and of equal elements the first.
pub trait Maximum: Storage {
    /// The least element, and what an empty window gives.
    const LOWEST: Self;
    /// True if `self` takes the place of the maximum so far.
    fn beats(self, other: Self) -> bool;
}
macro_rules! maximum {
    ($($t:ty: $lowest:expr, |$a:ident, $b:ident| $beats:expr;)*) => { $(
        impl Maximum for $t {
            const LOWEST: Self = $lowest;
            #[inline(always)]
            fn beats(self, other: Self) -> bool { let ($a, $b) = (self, other); $beats }
        }
    )* };
}
maximum! {
    f32: f32::NEG_INFINITY, |a, b| (a > b) | (a.is_nan() & !b.is_nan());
    f64: f64::NEG_INFINITY, |a, b| (a > b) | (a.is_nan() & !b.is_nan());
    remat_types::f16: remat_types::f16::NEG_INFINITY, |a, b| (a > b) | (a.is_nan() & !b.is_nan());
    remat_types::bf16: remat_types::bf16::NEG_INFINITY, |a, b| (a > b) | (a.is_nan() & !b.is_nan());
    i8: i8::MIN, |a, b| a > b; i16: i16::MIN, |a, b| a > b; i32: i32::MIN, |a, b| a > b; i64: i64::MIN, |a, b| a > b;
    u8: 0, |a, b| a > b; u16: 0, |a, b| a > b; u32: 0, |a, b| a > b; u64: 0, |a, b| a > b;
}

/// Value and position of the maximum of a window that is not empty.
#[inline(always)]
fn max_of<T: Maximum>(x: &[T], w: usize, (top, bottom): (usize, usize), (left, right): (usize, usize)) -> (T, usize) {
    let mut best = (T::LOWEST, top * w + left);
    let mut first = true;
    for i in top..bottom {
        for (j, &v) in x[i * w + left..i * w + right].iter().enumerate() {
            if first || v.beats(best.0) {
                best = (v, i * w + left + j);
                first = false;
            }
        }
    }
    best
}

/// Windows of a row whose maxima are found at a time.
const COLUMNS: usize = 64;

/// Values and positions of the maxima of some windows of a row; [`NONE`] for an empty window.
struct Maxima<T> {
    values: [T; COLUMNS],
    places: [usize; COLUMNS],
    /// Windows whose first elements lie in the row.
    taps: [(usize, usize); TAPS],
}

/// Elements of a window for which it is worked out once in which windows they lie in the row.
const TAPS: usize = 8;

/// No position.
const NONE: usize = usize::MAX;

impl<T: Maximum> Maxima<T> {
    fn new(w: Axis) -> Self {
        let taps = std::array::from_fn(|tap| w.windows_of(tap));
        Maxima { values: [T::LOWEST; COLUMNS], places: [NONE; COLUMNS], taps }
    }

    /// Finds the maxima of all windows of a plane, some at a time; `f` is told which windows these are.
    #[inline(always)]
    fn each<const PLACES: bool>(x: &[T], [h, w]: [Axis; 2], mut f: impl FnMut(&Self, Range<usize>)) {
        let mut maxima = Maxima::new(w);
        for i in 0..h.out {
            for from in (0..w.out).step_by(COLUMNS) {
                let n = COLUMNS.min(w.out - from);
                maxima.find::<PLACES>(x, [h, w], i, from, n);
                f(&maxima, i * w.out + from..i * w.out + from + n);
            }
        }
    }

    /// Finds those of windows `from .. from + n` of row `i`; positions only if asked for. Windows that slide see their
    /// elements in order, but one of each window at a time: no branch follows the data.
    #[inline(always)]
    fn find<const PLACES: bool>(&mut self, x: &[T], [h, w]: [Axis; 2], i: usize, from: usize, n: usize) {
        let (values, places) = (&mut self.values[..n], &mut self.places[..n]);
        values.fill(T::LOWEST);
        places.fill(NONE);
        let rows = h.window(i);
        let AxisKind::Sliding { kernel, stride, before, .. } = w.kind else {
            for (j, (value, place)) in values.iter_mut().zip(places).enumerate() {
                let columns = w.window(from + j);
                if rows.0 < rows.1 && columns.0 < columns.1 {
                    let (v, at) = max_of(x, w.size, rows, columns);
                    (*value, *place) = (v, at);
                }
            }
            return;
        };
        for row in rows.0..rows.1 {
            for tap in 0..kernel {
                let (low, high) = if tap < TAPS { self.taps[tap] } else { w.windows_of(tap) };
                let (low, high) = (low.max(from), high.min(from + n));
                if low >= high {
                    continue;
                }
                let first = row * w.size + low * stride + tap - before;
                let x = &x[first..=first + (high - low - 1) * stride];
                let (values, places) = (&mut values[low - from..high - from], &mut places[low - from..high - from]);
                match stride {
                    1 => take::<T, 1, PLACES>(x, first, values, places),
                    2 => take::<T, 2, PLACES>(x, first, values, places),
                    3 => take::<T, 3, PLACES>(x, first, values, places),
                    _ => {
                        for (j, v) in x.iter().step_by(stride).enumerate() {
                            better::<T, PLACES>(*v, first + j * stride, &mut values[j], &mut places[j]);
                        }
                    }
                }
            }
        }
    }
}

/// Compares every `STRIDE`-th element of `x`, from place `first` on, with the extreme of its window.
#[inline(always)]
fn take<T: Maximum, const STRIDE: usize, const PLACES: bool>(
    x: &[T],
    first: usize,
    values: &mut [T],
    places: &mut [usize],
) {
    let (x, last) = x.as_chunks::<STRIDE>();
    let rest = last.first().into_iter();
    for (j, ((v, value), place)) in x.iter().map(|x| &x[0]).zip(values.iter_mut()).zip(places.iter_mut()).enumerate() {
        better::<T, PLACES>(*v, first + j * STRIDE, value, place);
    }
    for ((v, value), place) in rest.zip(&mut values[x.len()..]).zip(&mut places[x.len()..]) {
        better::<T, PLACES>(*v, first + x.len() * STRIDE, value, place);
    }
}

/// `v` at `at` in place of the maximum so far, where it is larger or the first.
#[inline(always)]
fn better<T: Maximum, const PLACES: bool>(v: T, at: usize, value: &mut T, place: &mut usize) {
    let takes = v.beats(*value) | (PLACES && *place == NONE);
    *value = if takes { v } else { *value };
    if PLACES {
        *place = if takes { at } else { *place };
    }
}

/// The maximum of every window of every plane; the lowest value for an empty window.
///
/// # Panics
/// If `x` and `y` are not whole planes of equal number.
pub fn max_pool<T: Maximum>(pool: &Pool, h: Axis, w: Axis, x: &[T], y: &mut [T]) {
    let size = h.size * w.size;
    planes(
        pool,
        y,
        h.out * w.out,
        planes_per_part(h, w),
        #[inline(always)]
        |p, y| {
            let x = &x[p * size..(p + 1) * size];
            if is_halving(h) && is_halving(w) {
                // the usual window, without a loop inside
                return halves::<T, Largest>(w, x, y);
            }
            Maxima::each::<false>(x, [h, w], |maxima, windows| {
                y[windows.clone()].copy_from_slice(&maxima.values[..windows.len()]);
            });
        },
    );
}

/// Windows of two without overlap or padding, all of them whole.
fn is_halving(a: Axis) -> bool {
    a.kind == AxisKind::Sliding { kernel: 2, stride: 2, before: 0, after: 0 } && 2 * a.out <= a.size
}

/// The result of windows of two by two.
trait TwoByTwo<T> {
    /// Of the first `L` windows of two rows.
    fn of<const L: usize>(a: &[T], b: &[T]) -> [T; L];
}

/// Cuts each two rows of `x`, as far as windows of two by two go, for a row of `y`.
#[inline(always)]
fn halves<T: Copy, W: TwoByTwo<T>>(w: Axis, x: &[T], y: &mut [T]) {
    for (i, y) in y.chunks_exact_mut(w.out).enumerate() {
        let (a, b) = (&x[2 * i * w.size..][..2 * w.out], &x[(2 * i + 1) * w.size..][..2 * w.out]);
        match w.out {
            0..8 => halve::<T, W, 1>(a, b, y),
            8..LANES => halve::<T, W, 8>(a, b, y),
            _ => halve::<T, W, LANES>(a, b, y),
        }
    }
}

#[inline(always)]
fn halve<T: Copy, W: TwoByTwo<T>, const L: usize>(a: &[T], b: &[T], y: &mut [T]) {
    pieces::<L, T>(
        y,
        #[inline(always)]
        |at| W::of(&a[2 * at..], &b[2 * at..]),
    );
}

/// The maxima of the first `L` pairs of elements.
#[inline(always)]
fn pair_maxima<T: Maximum, const L: usize>(x: &[T]) -> [T; L] {
    let (x, mut y) = (&x[..2 * L], [T::LOWEST; L]);
    for l in 0..L {
        y[l] = if x[2 * l + 1].beats(x[2 * l]) { x[2 * l + 1] } else { x[2 * l] };
    }
    y
}

struct Largest;

impl<T: Maximum> TwoByTwo<T> for Largest {
    #[inline(always)]
    fn of<const L: usize>(a: &[T], b: &[T]) -> [T; L] {
        let (mut top, bottom) = (pair_maxima::<T, L>(a), pair_maxima::<T, L>(b));
        for l in 0..L {
            top[l] = if bottom[l].beats(top[l]) { bottom[l] } else { top[l] };
        }
        top
    }
}

/// The elements of even places, and those of odd ones, of `y.len()` pairs.
#[inline(always)]
fn split_pairs<T: Copy + Default>(x: &[T], even: &mut [T], odd: &mut [T]) {
    #[inline(always)]
    fn every_second<T: Copy + Default, const L: usize>(x: &[T], y: &mut [T]) {
        pieces::<L, T>(
            y,
            #[inline(always)]
            |at| {
                let (x, mut y) = (&x[2 * at..][..2 * L - 1], [T::default(); L]);
                for l in 0..L {
                    y[l] = x[2 * l];
                }
                y
            },
        );
    }
    match even.len() {
        0..8 => {
            every_second::<T, 1>(x, even);
            every_second::<T, 1>(&x[1..], odd);
        }
        8..LANES => {
            every_second::<T, 8>(x, even);
            every_second::<T, 8>(&x[1..], odd);
        }
        _ => {
            every_second::<T, LANES>(x, even);
            every_second::<T, LANES>(&x[1..], odd);
        }
    }
}

/// The reverse of [`split_pairs`].
#[inline(always)]
fn join_pairs<T: Copy>(even: &[T], odd: &[T], y: &mut [T]) {
    #[inline(always)]
    fn join<T: Copy, const L: usize>(even: &[T], odd: &[T], y: &mut [T]) {
        for from in (0..even.len()).step_by(L) {
            let at = from.min(even.len() - L);
            let (even, odd, y) = (&even[at..][..L], &odd[at..][..L], &mut y[2 * at..][..2 * L]);
            for l in 0..L {
                (y[2 * l], y[2 * l + 1]) = (even[l], odd[l]);
            }
        }
    }
    match even.len() {
        0..8 => join::<T, 1>(even, odd, y),
        8..LANES => join::<T, 8>(even, odd, y),
        _ => join::<T, LANES>(even, odd, y),
    }
}

/// [`max_pool_grad`] of a plane cut into windows of two by two.
///
/// Comparisons are in a loop of their own over elements in a row, of a number that the compiler does not know: there it
/// makes vectors of their outcomes, in an unrolled loop a bit at a time. Several rows go together, since vectors that were
/// just stored in pieces have to be waited for.
#[inline(always)]
fn halving_grad<T: Maximum>(w: Axis, x: &[T], dx: &mut [T], dy: &[T]) {
    let zero = T::default();
    let ([mut a0, mut a1, mut b0, mut b1], mut dys) = ([[zero; COLUMNS]; 4], [zero; COLUMNS]);
    let [mut da0, mut da1, mut db0, mut db1] = [[zero; COLUMNS]; 4];
    let (size, out) = (w.size, w.out);
    // whole vectors of a row; nobody reads what becomes of the elements beyond it
    let step = out.next_multiple_of(LANES).min(COLUMNS);
    let together = COLUMNS / step;
    for ((x, dx), dy) in
        x.chunks(2 * together * size).zip(dx.chunks_mut(2 * together * size)).zip(dy.chunks(together * out))
    {
        let rows = dy.len() / out;
        for from in (0..out).step_by(COLUMNS) {
            let n = COLUMNS.min(out - from);
            for r in 0..rows {
                let (x, to) = (&x[2 * r * size..][..2 * size], r * step..r * step + n);
                split_pairs(&x[2 * from..], &mut a0[to.clone()], &mut a1[to.clone()]);
                split_pairs(&x[size + 2 * from..], &mut b0[to.clone()], &mut b1[to.clone()]);
                dys[to].copy_from_slice(&dy[r * out + from..][..n]);
            }
            let whole = (rows * step).min(COLUMNS);
            {
                let (a0, a1, b0, b1, dys) = (&a0[..whole], &a1[..whole], &b0[..whole], &b1[..whole], &dys[..whole]);
                let (da0, da1) = (&mut da0[..whole], &mut da1[..whole]);
                let (db0, db1) = (&mut db0[..whole], &mut db1[..whole]);
                for l in 0..whole {
                    let (right_a, right_b) = (a1[l].beats(a0[l]), b1[l].beats(b0[l]));
                    let top = if right_a { a1[l] } else { a0[l] };
                    let bottom = if right_b { b1[l] } else { b0[l] };
                    let is_below = bottom.beats(top);
                    let (above, below) = if is_below { (zero, dys[l]) } else { (dys[l], zero) };
                    da0[l] = if right_a { zero } else { above };
                    da1[l] = if right_a { above } else { zero };
                    db0[l] = if right_b { zero } else { below };
                    db1[l] = if right_b { below } else { zero };
                }
            }
            for r in 0..rows {
                let (dx, at) = (&mut dx[2 * r * size..][..2 * size], r * step..r * step + n);
                join_pairs(&da0[at.clone()], &da1[at.clone()], &mut dx[2 * from..size]);
                join_pairs(&db0[at.clone()], &db1[at], &mut dx[size + 2 * from..]);
            }
        }
        dx.chunks_exact_mut(size).take(2 * rows).for_each(|dx| dx[2 * out..].fill(zero));
    }
    dx[2 * (dy.len() / out) * size..].fill(zero);
}

/// `dx = sum over windows whose first maximum is here of dy`.
///
/// # Panics
/// If slices are not whole planes of equal number.
pub fn max_pool_grad<T: Maximum + FloatElement>(pool: &Pool, h: Axis, w: Axis, x: &[T], dy: &[T], dx: &mut [T]) {
    let (size, out) = (h.size * w.size, h.out * w.out);
    planes(
        pool,
        dx,
        size,
        planes_per_part(h, w),
        #[inline(always)]
        |p, dx| {
            let (x, dy) = (&x[p * size..(p + 1) * size], &dy[p * out..(p + 1) * out]);
            if is_halving(h) && is_halving(w) && w.out > 0 {
                halving_grad(w, x, dx, dy);
                return;
            }
            dx.fill(T::default());
            Maxima::each::<true>(x, [h, w], |maxima, windows| {
                for (&at, dy) in maxima.places.iter().zip(&dy[windows]).filter(|(at, _)| **at != NONE) {
                    dx[at] = T::down(dx[at].up() + dy.up());
                }
            });
        },
    );
}

/// `y = u` at the first maximum of each window of `x`; 0 for an empty window. The derivative of [`max_pool`] along `u`.
///
/// # Panics
/// If slices are not whole planes of equal number.
pub fn max_pool_pick<T: Maximum + FloatElement>(pool: &Pool, h: Axis, w: Axis, x: &[T], u: &[T], y: &mut [T]) {
    let size = h.size * w.size;
    planes(
        pool,
        y,
        h.out * w.out,
        planes_per_part(h, w),
        #[inline(always)]
        |p, y| {
            let (x, u) = (&x[p * size..(p + 1) * size], &u[p * size..(p + 1) * size]);
            Maxima::each::<true>(x, [h, w], |maxima, windows| {
                for (y, &at) in y[windows].iter_mut().zip(&maxima.places) {
                    *y = if at == NONE { T::default() } else { u[at] };
                }
            });
        },
    );
}

mod average;
pub use average::{avg_pool, avg_pool_grad};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maxima_are_the_first_of_each_window() {
        let pool = Pool::new(2);
        let sliding = |size: usize, kernel: usize, stride: usize, pad: usize| {
            let out = (size + 2 * pad - kernel) / stride + 1;
            Axis { size, out, kind: AxisKind::Sliding { kernel, stride, before: pad, after: pad } }
        };
        // more padding than a window has elements: some windows are empty
        let beyond = Axis { size: 3, out: 9, kind: AxisKind::Sliding { kernel: 2, stride: 1, before: 4, after: 3 } };
        let cases = [
            [sliding(9, 3, 2, 1), sliding(150, 3, 2, 1)],
            [sliding(7, 2, 1, 0), sliding(65, 3, 1, 1)],
            [sliding(11, 4, 3, 2), sliding(10, 5, 4, 0)],
            [sliding(8, 2, 2, 0), sliding(6, 2, 2, 0)],
            [sliding(5, 2, 2, 0), sliding(15, 2, 2, 0)],
            [sliding(4, 2, 2, 0), sliding(16, 2, 2, 0)],
            [sliding(4, 2, 2, 0), sliding(28, 2, 2, 0)],
            [sliding(4, 2, 2, 0), sliding(33, 2, 2, 0)],
            [sliding(3, 2, 2, 0), sliding(74, 2, 2, 0)],
            [sliding(21, 2, 2, 0), sliding(12, 2, 2, 0)],
            [sliding(14, 2, 2, 0), sliding(36, 2, 2, 0)],
            [sliding(7, 2, 2, 0), sliding(275, 2, 2, 0)],
            [beyond, beyond],
            [Axis { size: 7, out: 3, kind: AxisKind::Adaptive }, sliding(9, 1, 1, 0)],
        ];
        for [h, w] in cases {
            let (size, out) = (h.size * w.size, h.out * w.out);
            // few values, so that windows have equal ones; zeros of both signs, infinities and NaN among them
            let some = [0.0, -0.0, 1.5, 1.5, -2.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN];
            let seeds = (0..2 * size as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 13);
            let x: Vec<f32> = seeds.map(|i| some[if i % 97 == 0 { 7 } else { i as usize % 7 }]).collect();
            let [u, dy] = [2 * size, 2 * out].map(|n| (0..n).map(|i| (i % 13) as f32 + 1.0).collect::<Vec<_>>());
            let [mut y, mut picked] = [vec![9.0f32; 2 * out], vec![9.0f32; 2 * out]];
            let mut dx = vec![9.0f32; 2 * size];
            max_pool(&pool, h, w, &x, &mut y);
            max_pool_pick(&pool, h, w, &x, &u, &mut picked);
            max_pool_grad(&pool, h, w, &x, &dy, &mut dx);
            let mut want = vec![0.0f32; 2 * size];
            for (at, y) in y.iter().enumerate() {
                let (plane, i, j) = (at / out, at / w.out % h.out, at % w.out);
                let ((top, bottom), (left, right)) = (h.window(i), w.window(j));
                let x = &x[plane * size..][..size];
                let mut best = None;
                for at in (top..bottom).flat_map(|r| (left..right).map(move |c| r * w.size + c)) {
                    if best.is_none_or(|best: usize| x[at] > x[best] || x[at].is_nan() && !x[best].is_nan()) {
                        best = Some(at);
                    }
                }
                let value = best.map_or(f32::NEG_INFINITY, |at| x[at]);
                assert_eq!(y.to_bits(), value.to_bits(), "window {i}, {j} of {h:?}, {w:?}");
                assert_eq!(picked[at], best.map_or(0.0, |at| u[plane * size + at]), "window {i}, {j} of {h:?}, {w:?}");
                if let Some(best) = best {
                    want[plane * size + best] += dy[at];
                }
            }
            assert_eq!(dx, want, "{h:?}, {w:?}");
        }
    }
}
