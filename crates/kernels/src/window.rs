//! Pooling of planes `[h, w]`: maxima and averages over windows, and their gradients.
//!
//! Planes are independent and are what threads share out. Windows along an axis are told by a function
//! `o -> start..end` clipped to the plane ([`Axis`]), so that sliding and adaptive pooling are one kernel.

use remat_types::{Element, Storage};

use crate::float::{FloatElement, widest};
use crate::pool::Pool;

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
    f32: f32::NEG_INFINITY, |a, b| a > b || (a.is_nan() && !b.is_nan());
    f64: f64::NEG_INFINITY, |a, b| a > b || (a.is_nan() && !b.is_nan());
    remat_types::f16: remat_types::f16::NEG_INFINITY, |a, b| a > b || (a.is_nan() && !b.is_nan());
    remat_types::bf16: remat_types::bf16::NEG_INFINITY, |a, b| a > b || (a.is_nan() && !b.is_nan());
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
                for (i, y) in y.chunks_exact_mut(w.out).enumerate() {
                    let (a, b) = (&x[2 * i * w.size..][..2 * w.out], &x[(2 * i + 1) * w.size..][..2 * w.out]);
                    for ((y, a), b) in y.iter_mut().zip(a.chunks_exact(2)).zip(b.chunks_exact(2)) {
                        let top = if a[1].beats(a[0]) { a[1] } else { a[0] };
                        let bottom = if b[1].beats(b[0]) { b[1] } else { b[0] };
                        *y = if bottom.beats(top) { bottom } else { top };
                    }
                }
                return;
            }
            for i in 0..h.out {
                for j in 0..w.out {
                    y[i * w.out + j] = max_of(x, w.size, h.window(i), w.window(j)).0;
                }
            }
        },
    );
}

/// Windows of two without overlap or padding.
fn is_halving(a: Axis) -> bool {
    a.kind == AxisKind::Sliding { kernel: 2, stride: 2, before: 0, after: 0 }
}

/// [`max_pool_grad`] of two rows cut into windows of two by two.
#[inline(always)]
fn halving_grad<T: Maximum>(x: &[T], dx: &mut [T], dy: &[T]) {
    let zero = T::default();
    let (a, b) = x.split_at(x.len() / 2);
    let (da, db) = dx.split_at_mut(x.len() / 2);
    let ((a, _), (b, _)) = (a.as_chunks::<2>(), b.as_chunks::<2>());
    let ((da, _), (db, _)) = (da.as_chunks_mut::<2>(), db.as_chunks_mut::<2>());
    for ((((a, b), da), db), &dy) in a.iter().zip(b).zip(da).zip(db).zip(dy) {
        let (right_a, right_b) = (a[1].beats(a[0]), b[1].beats(b[0]));
        let top = if right_a { a[1] } else { a[0] };
        let bottom = if right_b { b[1] } else { b[0] };
        let (above, below) = if bottom.beats(top) { (zero, dy) } else { (dy, zero) };
        *da = if right_a { [zero, above] } else { [above, zero] };
        *db = if right_b { [zero, below] } else { [below, zero] };
    }
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
            dx.fill(T::default());
            if is_halving(h) && is_halving(w) {
                for (i, dy) in dy.chunks_exact(w.out).enumerate() {
                    halving_grad(&x[2 * i * w.size..][..2 * w.size], &mut dx[2 * i * w.size..][..2 * w.size], dy);
                }
                return;
            }
            for i in 0..h.out {
                let rows = h.window(i);
                for j in 0..w.out {
                    let columns = w.window(j);
                    if rows.0 < rows.1 && columns.0 < columns.1 {
                        let (_, at) = max_of(x, w.size, rows, columns);
                        dx[at] = T::down(dx[at].up() + dy[i * w.out + j].up());
                    }
                }
            }
        },
    );
}

/// `y = u` at the first maximum of each window of `x`; 0 for an empty window. The derivative of [`max_pool`] along `u`.
///
/// # Panics
/// If slices are not whole planes of equal number.
pub fn max_pool_pick<T: Maximum + FloatElement>(pool: &Pool, h: Axis, w: Axis, x: &[T], u: &[T], y: &mut [T]) {
    let size = h.size * w.size;
    planes(pool, y, h.out * w.out, planes_per_part(h, w), |p, y| {
        let (x, u) = (&x[p * size..(p + 1) * size], &u[p * size..(p + 1) * size]);
        for i in 0..h.out {
            let rows = h.window(i);
            for j in 0..w.out {
                let columns = w.window(j);
                let some = rows.0 < rows.1 && columns.0 < columns.1;
                y[i * w.out + j] = if some { u[max_of(x, w.size, rows, columns).1] } else { T::default() };
            }
        }
    });
}

/// What the average of window `(i, j)` divides by.
#[inline(always)]
fn divisor(h: Axis, w: Axis, i: usize, j: usize, count_pad: bool) -> usize {
    if count_pad {
        return h.padded_len(i) * w.padded_len(j);
    }
    let ((top, bottom), (left, right)) = (h.window(i), w.window(j));
    (bottom - top) * (right - left)
}

/// The sum of a row, or of a window as wide as the plane.
#[inline(always)]
fn row_sum<T: FloatElement>(row: &[T]) -> f64 {
    if row.len() < crate::float::LANES {
        return row.iter().map(|v| v.to_f64()).sum();
    }
    crate::float::sum(row, T::up)
}

/// The average of every window of every plane; 0 for a window that is all padding.
///
/// # Panics
/// If `x` and `y` are not whole planes of equal number.
pub fn avg_pool<T: FloatElement>(pool: &Pool, h: Axis, w: Axis, count_pad: bool, x: &[T], y: &mut [T]) {
    let size = h.size * w.size;
    planes(
        pool,
        y,
        h.out * w.out,
        planes_per_part(h, w),
        #[inline(always)]
        |p, y| {
            let x = &x[p * size..(p + 1) * size];
            for i in 0..h.out {
                let (top, bottom) = h.window(i);
                for j in 0..w.out {
                    let (left, right) = w.window(j);
                    let sum = if left == 0 && right == w.size {
                        row_sum(&x[top * w.size..bottom * w.size])
                    } else {
                        (top..bottom).map(|r| row_sum(&x[r * w.size + left..r * w.size + right])).sum()
                    };
                    let n = divisor(h, w, i, j, count_pad);
                    y[i * w.out + j] = T::from_f64(if n == 0 { 0.0 } else { sum / n as f64 });
                }
            }
        },
    );
}

/// `dx = sum over windows that hold this element of dy / divisor`.
///
/// # Panics
/// If `dy` and `dx` are not whole planes of equal number.
pub fn avg_pool_grad<T: FloatElement>(pool: &Pool, h: Axis, w: Axis, count_pad: bool, dy: &[T], dx: &mut [T]) {
    let out = h.out * w.out;
    planes(
        pool,
        dx,
        h.size * w.size,
        planes_per_part(h, w),
        #[inline(always)]
        |p, dx| {
            let dy = &dy[p * out..(p + 1) * out];
            dx.fill(T::default());
            for i in 0..h.out {
                let (top, bottom) = h.window(i);
                for j in 0..w.out {
                    let (left, right) = w.window(j);
                    let n = divisor(h, w, i, j, count_pad).max(1);
                    let share = dy[i * w.out + j].up() / T::Real::from_f64(n as f64);
                    for r in top..bottom {
                        for d in &mut dx[r * w.size + left..r * w.size + right] {
                            *d = T::down(d.up() + share);
                        }
                    }
                }
            }
        },
    );
}
