//! Averages over windows, and their gradient.
//!
//! Windows that slide are taken a row at a time, first along columns and then along the row: for the average, a
//! buffer holds sums of the plane's rows that a window spans, and windows then add neighbours in the buffer; for the
//! gradient, the shares of the windows above an element. Buffers have zeros for the padding, so that no window is
//! cut. Loops go by whole vectors; the last one of a row overlaps the one before, and both compute the same there.
//!
//! Other windows (adaptive ones, those with a side above [`MAX_SIDE`] elements, and a single one) are taken one by one,
//! and are summed in f64.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use remat_types::Element;

use super::{Axis, AxisKind, TwoByTwo, halves, is_halving, pieces, planes, planes_per_part};
use crate::float::{FloatElement, LANES, Real};
use crate::pool::Pool;

/// Longest side and stride of windows that are taken a row at a time: bounds the buffer, and the error of sums in f32.
const MAX_SIDE: usize = 64;

/// Elements of a buffer: 2 KiB of f32.
const SPAN: usize = 512;

/// Windows that slide along a row, with sides that a buffer has room for.
#[derive(Clone, Copy)]
struct Slide {
    kernel: usize,
    stride: usize,
    before: usize,
}

impl Slide {
    fn of(a: Axis) -> Option<Slide> {
        match a.kind {
            AxisKind::Sliding { kernel, stride, before, .. } if kernel.max(stride) <= MAX_SIDE => {
                Some(Slide { kernel, stride, before })
            }
            _ => None,
        }
    }
}

/// The divisor of the average of window `(i, j)`.
#[inline(always)]
fn divisor(h: Axis, w: Axis, i: usize, j: usize, count_pad: bool) -> usize {
    if count_pad {
        return h.padded_len(i) * w.padded_len(j);
    }
    let ((top, bottom), (left, right)) = (h.window(i), w.window(j));
    (bottom - top) * (right - left)
}

/// Windows of a row that lie in it whole, and divide by the same: from the first to before the last.
fn whole_windows(w: Axis, s: Slide) -> (usize, usize) {
    let (low, high) = (w.windows_of(0).0, w.windows_of(s.kernel - 1).1);
    (low.min(high), high)
}

/// `sums[j] = sum of x[r step + j] / n(r)` over the rows `r`, in order.
#[inline(always)]
fn column_sums<T: FloatElement>(
    x: &[T],
    step: usize,
    rows: (usize, usize),
    n: impl Fn(usize) -> Option<T::Real> + Copy,
    sums: &mut [T::Real],
) {
    match sums.len() {
        0..8 => column_sums_by::<T, 1>(x, step, rows, n, sums),
        8..LANES => column_sums_by::<T, 8>(x, step, rows, n, sums),
        _ => column_sums_by::<T, LANES>(x, step, rows, n, sums),
    }
}

#[inline(always)]
fn column_sums_by<T: FloatElement, const L: usize>(
    x: &[T],
    step: usize,
    rows: (usize, usize),
    n: impl Fn(usize) -> Option<T::Real> + Copy,
    sums: &mut [T::Real],
) {
    pieces::<L, T::Real>(
        sums,
        #[inline(always)]
        |at| {
            let mut sum = [T::Real::ZERO; L];
            for r in rows.0..rows.1 {
                let x = &x[r * step + at..][..L];
                match n(r) {
                    Some(n) => (0..L).for_each(|l| sum[l] += x[l].up() / n),
                    None => (0..L).for_each(|l| sum[l] += x[l].up()),
                }
            }
            sum
        },
    );
}

/// `y[j] = sum of sums[j S + t] / n` over the taps `t`.
#[inline(always)]
fn averages<T: FloatElement, const L: usize, const S: usize>(sums: &[T::Real], kernel: usize, n: T::Real, y: &mut [T]) {
    pieces::<L, T>(
        y,
        #[inline(always)]
        |at| {
            let mut sum = [T::Real::ZERO; L];
            for t in 0..kernel {
                let x = &sums[at * S + t..][..L * S];
                for l in 0..L {
                    sum[l] += x[l * S];
                }
            }
            let mut y = [T::default(); L];
            for l in 0..L {
                y[l] = T::down(sum[l] / n);
            }
            y
        },
    );
}

/// [`avg_pool`] of a plane, for windows of few rows and columns.
#[inline(always)]
fn slide<T: FloatElement>([h, w]: [Axis; 2], s: Slide, count_pad: bool, x: &[T], y: &mut [T]) {
    let mut sums = [T::Real::ZERO; SPAN];
    let at_a_time = (SPAN - 2 * MAX_SIDE) / s.stride + 1;
    let whole = whole_windows(w, s);
    for (i, y) in y.chunks_exact_mut(w.out).enumerate() {
        let rows = h.window(i);
        let row_len = if count_pad { h.padded_len(i) } else { rows.1 - rows.0 };
        let n = T::Real::from_f64((row_len * s.kernel).max(1) as f64);
        for (from, y) in (0..).step_by(at_a_time).zip(y.chunks_mut(at_a_time)) {
            // the buffer begins where the first window does
            let (origin, len) = (from * s.stride, (y.len() - 1) * s.stride + s.kernel);
            let low = s.before.saturating_sub(origin).min(len);
            let high = (w.size + s.before).saturating_sub(origin).clamp(low, len);
            sums[..low].fill(T::Real::ZERO);
            sums[high..len].fill(T::Real::ZERO);
            if low < high {
                let x = &x[origin + low - s.before..];
                column_sums(x, w.size, rows, |_| None, &mut sums[low..high]);
            }
            match (s.stride, y.len()) {
                (1, 8..LANES) => averages::<T, 8, 1>(&sums, s.kernel, n, y),
                (1, LANES..) => averages::<T, LANES, 1>(&sums, s.kernel, n, y),
                (2, 8..LANES) => averages::<T, 8, 2>(&sums, s.kernel, n, y),
                (2, LANES..) => averages::<T, LANES, 2>(&sums, s.kernel, n, y),
                _ => {
                    for (j, y) in y.iter_mut().enumerate() {
                        *y = T::down(sum_of(&sums[j * s.stride..][..s.kernel]) / n);
                    }
                }
            }
            let end = from + y.len();
            for j in (from..whole.0.min(end)).chain(whole.1.max(from)..end) {
                let n = T::Real::from_f64(divisor(h, w, i, j, count_pad).max(1) as f64);
                y[j - from] = T::down(sum_of(&sums[(j - from) * s.stride..][..s.kernel]) / n);
            }
        }
    }
}

struct Mean;

impl<T: FloatElement> TwoByTwo<T> for Mean {
    #[inline(always)]
    fn of<const L: usize>(a: &[T], b: &[T]) -> [T; L] {
        let quarter = T::Real::from_f64(0.25);
        let (a, b, mut y) = (&a[..2 * L], &b[..2 * L], [T::default(); L]);
        for l in 0..L {
            let (left, right) = (a[2 * l].up() + b[2 * l].up(), a[2 * l + 1].up() + b[2 * l + 1].up());
            y[l] = T::down((left + right) * quarter);
        }
        y
    }
}

/// The gradient of a row of windows of two by two, for each row of its elements.
#[inline(always)]
fn halving_grad<T: FloatElement, const L: usize>(dy: &[T], dx: &mut [T]) {
    let quarter = T::Real::from_f64(0.25);
    pieces::<L, [T; 2]>(
        dx.as_chunks_mut::<2>().0,
        #[inline(always)]
        |at| {
            let (dy, mut dx) = (&dy[at..][..L], [[T::default(); 2]; L]);
            for l in 0..L {
                dx[l] = [T::down(dy[l].up() * quarter); 2];
            }
            dx
        },
    );
}

#[inline(always)]
fn sum_of<R: Real>(x: &[R]) -> R {
    x.iter().fold(R::ZERO, |sum, v| sum + *v)
}

/// The sum of a row, or of a window as wide as the plane.
#[inline(always)]
fn row_sum<T: FloatElement>(row: &[T]) -> f64 {
    if row.len() < LANES {
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
    // rows are as few as columns; a single window has no neighbours
    let slides = Slide::of(h).and(Slide::of(w)).filter(|_| h.out * w.out > 1);
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
                return halves::<T, Mean>(w, x, y);
            }
            if let Some(s) = slides {
                slide([h, w], s, count_pad, x, y);
                return;
            }
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

/// `y[b S + q] = sum of shares[b + m - 1 - k]` over the `k < m` with `q + k S < kernel`, from the last to the first, where
/// `m` windows or fewer hold an element.
#[inline(always)]
fn spread<R: Real, const L: usize, const S: usize>(shares: &[R], kernel: usize, y: &mut [R]) {
    let m = kernel.div_ceil(S);
    pieces::<L, [R; S]>(
        y.as_chunks_mut::<S>().0,
        #[inline(always)]
        |at| {
            let mut sums = [[R::ZERO; L]; S];
            for k in (0..m).rev() {
                let shares = &shares[at + m - 1 - k..][..L];
                for sum in sums.iter_mut().take(kernel - k * S) {
                    for l in 0..L {
                        sum[l] += shares[l];
                    }
                }
            }
            let mut y = [[R::ZERO; S]; L];
            for l in 0..L {
                for q in 0..S {
                    y[l][q] = sums[q][l];
                }
            }
            y
        },
    );
}

/// As [`spread`], for any stride.
#[inline(always)]
fn spread_by<R: Real>(shares: &[R], kernel: usize, stride: usize, y: &mut [R]) {
    let m = kernel.div_ceil(stride);
    for (b, y) in y.chunks_exact_mut(stride).enumerate() {
        y.fill(R::ZERO);
        for k in (0..m).rev() {
            for y in y.iter_mut().take(kernel - k * stride) {
                *y += shares[b + m - 1 - k];
            }
        }
    }
}

/// [`avg_pool_grad`] of a plane, for windows of few rows and columns.
#[inline(always)]
fn slide_grad<T: FloatElement>([h, w]: [Axis; 2], [v, s]: [Slide; 2], count_pad: bool, dy: &[T], dx: &mut [T]) {
    let [mut shares, mut row] = [[T::Real::ZERO; SPAN]; 2];
    let (m, at_a_time) = (s.kernel.div_ceil(s.stride), (SPAN - 2 * MAX_SIDE) / s.stride);
    let whole = whole_windows(w, s);
    let mut last = None;
    for r in 0..h.size {
        let windows =
            ((r + v.before + 1).saturating_sub(v.kernel).div_ceil(v.stride), h.out.min((r + v.before) / v.stride + 1));
        let (done, dx) = dx.split_at_mut(r * w.size);
        if last.replace(windows) == Some(windows) {
            dx[..w.size].copy_from_slice(&done[(r - 1) * w.size..]);
            continue;
        }
        // element `c` is place `c + before` among windows and padding, and window `o` begins at place `o stride`
        let end = (w.size + s.before).div_ceil(s.stride);
        for from in (s.before / s.stride..end).step_by(at_a_time) {
            let count = at_a_time.min(end - from);
            // the buffer begins with window `from - (m - 1)`
            let low = (m - 1).saturating_sub(from);
            let first = from + low - (m - 1);
            let past = w.out.min(from + count).max(first);
            let high = low + past - first;
            shares[..low].fill(T::Real::ZERO);
            shares[high..count + m - 1].fill(T::Real::ZERO);
            if first < past {
                let n = |i| {
                    let (top, bottom) = h.window(i);
                    let len = if count_pad { h.padded_len(i) } else { bottom - top };
                    Some(T::Real::from_f64((len * s.kernel).max(1) as f64))
                };
                column_sums(&dy[first..], w.out, windows, n, &mut shares[low..high]);
            }
            for j in (first..whole.0.min(past)).chain(whole.1.max(first)..past) {
                shares[low + j - first] = (windows.0..windows.1).fold(T::Real::ZERO, |sum, i| {
                    let n = T::Real::from_f64(divisor(h, w, i, j, count_pad).max(1) as f64);
                    sum + dy[i * w.out + j].up() / n
                });
            }
            let row = &mut row[..count * s.stride];
            match (s.stride, count) {
                (1, 8..LANES) => spread::<T::Real, 8, 1>(&shares, s.kernel, row),
                (1, LANES..) => spread::<T::Real, LANES, 1>(&shares, s.kernel, row),
                (2, 8..LANES) => spread::<T::Real, 8, 2>(&shares, s.kernel, row),
                (2, LANES..) => spread::<T::Real, LANES, 2>(&shares, s.kernel, row),
                _ => spread_by(&shares, s.kernel, s.stride, row),
            }
            let place = from * s.stride;
            let skipped = s.before.saturating_sub(place);
            let dx = &mut dx[place + skipped - s.before..w.size];
            for (dx, v) in dx.iter_mut().zip(&row[skipped..]) {
                *dx = T::down(*v);
            }
        }
    }
}

/// `dx = sum over windows that hold this element of dy / divisor`.
///
/// # Panics
/// If `dy` and `dx` are not whole planes of equal number.
pub fn avg_pool_grad<T: FloatElement>(pool: &Pool, h: Axis, w: Axis, count_pad: bool, dy: &[T], dx: &mut [T]) {
    let out = h.out * w.out;
    let slides = Slide::of(h).zip(Slide::of(w));
    planes(
        pool,
        dx,
        h.size * w.size,
        planes_per_part(h, w),
        #[inline(always)]
        |p, dx| {
            let dy = &dy[p * out..(p + 1) * out];
            if is_halving(h) && is_halving(w) && h.size == 2 * h.out && w.size == 2 * w.out {
                for (dy, dx) in dy.chunks_exact(w.out).zip(dx.chunks_exact_mut(2 * w.size)) {
                    for dx in dx.chunks_exact_mut(w.size) {
                        match w.out {
                            0..8 => halving_grad::<T, 1>(dy, dx),
                            8..LANES => halving_grad::<T, 8>(dy, dx),
                            _ => halving_grad::<T, LANES>(dy, dx),
                        }
                    }
                }
                return;
            }
            if let Some((v, s)) = slides {
                slide_grad([h, w], [v, s], count_pad, dy, dx);
                return;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sliding(size: usize, kernel: usize, stride: usize, [before, after]: [usize; 2]) -> Axis {
        // a last window that begins within input and padding, as rounding up has it
        let padded = size + before + after;
        let out = (padded.saturating_sub(kernel).div_ceil(stride) + 1).min((padded - 1) / stride + 1);
        Axis { size, out, kind: AxisKind::Sliding { kernel, stride, before, after } }
    }

    /// The kernels against loops over windows in f64, on two planes.
    fn check(h: Axis, w: Axis, count_pad: bool) {
        let pool = Pool::new(2);
        let (size, out) = (h.size * w.size, h.out * w.out);
        let noise = |n: usize| (0..n).map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0).collect::<Vec<_>>();
        let (x, dy) = (noise(2 * size), noise(2 * out));
        let (mut y, mut dx) = (vec![9.0f32; 2 * out], vec![9.0f32; 2 * size]);
        avg_pool(&pool, h, w, count_pad, &x, &mut y);
        avg_pool_grad(&pool, h, w, count_pad, &dy, &mut dx);
        let (mut want, mut share) = (vec![0.0; 2 * out], vec![0.0; 2 * size]);
        for at in 0..2 * out {
            let (plane, i, j) = (at / out, at / w.out % h.out, at % w.out);
            let ((top, bottom), (left, right)) = (h.window(i), w.window(j));
            let n = divisor(h, w, i, j, count_pad) as f64;
            for at_x in (top..bottom).flat_map(|r| (left..right).map(move |c| plane * size + r * w.size + c)) {
                want[at] += f64::from(x[at_x]) / n;
                share[at_x] += f64::from(dy[at]) / n;
            }
        }
        let near = |a: &f32, b: &f64| (f64::from(*a) - b).abs() <= 1e-5;
        assert!(y.iter().zip(&want).all(|(a, b)| near(a, b)), "averages of {h:?}, {w:?}, {count_pad}");
        assert!(dx.iter().zip(&share).all(|(a, b)| near(a, b)), "gradient of {h:?}, {w:?}, {count_pad}");
    }

    #[test]
    fn averages_and_their_gradient_are_those_of_each_window() {
        for count_pad in [true, false] {
            for size in [1, 2, 7, 8, 9, 15, 16, 17, 28, 33, 64] {
                for (kernel, stride) in [(1, 1), (2, 2), (3, 1), (3, 2), (2, 3), (5, 4), (3, 3), (1, 2), (7, 1)] {
                    for pad in [[0, 0], [1, 1], [0, 2], [2, 1]] {
                        let w = sliding(size, kernel, stride, pad);
                        check(sliding(5, 3, 2, [1, 1]), w, count_pad);
                        check(w, sliding(9, 2, 1, [1, 0]), count_pad);
                    }
                }
            }
        }
    }

    #[test]
    fn windows_of_two_by_two_are_averaged_whether_rows_are_even_or_odd() {
        for [height, size] in [[4, 2], [5, 14], [6, 15], [4, 16], [2, 17], [7, 28], [4, 31], [3, 32], [4, 74], [6, 77]]
        {
            let halves = |size| Axis { out: size / 2, ..sliding(size, 2, 2, [0, 0]) };
            check(halves(height), halves(size), true);
        }
    }

    #[test]
    fn rows_longer_than_a_buffer_are_averaged_in_parts() {
        for (kernel, stride) in [(2, 2), (3, 1), (3, 2), (64, 1), (64, 64), (5, 64), (64, 3), (65, 2), (3, 65)] {
            for pad in [[0, 0], [1, 0], [2, 3]] {
                for size in [383, 384, 385, 449, 768, 1300] {
                    check(sliding(3, 2, 1, [1, 0]), sliding(size, kernel, stride, pad), size % 2 == 0);
                }
            }
        }
    }

    #[test]
    fn windows_in_the_padding_are_empty() {
        // more padding than a window has elements
        let beyond = |kernel, stride| {
            let out = (3 + 8 - kernel) / stride + 1;
            Axis { size: 3, out, kind: AxisKind::Sliding { kernel, stride, before: 4, after: 4 } }
        };
        let adaptive = |size, out| Axis { size, out, kind: AxisKind::Adaptive };
        for count_pad in [true, false] {
            for (kernel, stride) in [(1, 1), (2, 1), (2, 2), (3, 2), (2, 3)] {
                check(beyond(kernel, stride), beyond(kernel, stride), count_pad);
                check(beyond(kernel, stride), sliding(40, 3, 2, [1, 1]), count_pad);
            }
            check(adaptive(7, 3), adaptive(30, 17), count_pad);
            check(adaptive(7, 3), sliding(30, 3, 2, [1, 1]), count_pad);
        }
    }
}
