//! Batch and layer normalisation: statistics, forward and fused backward passes.
//!
//! A batch-normalised tensor is `[n, c, s]` with `s` the product of the spatial extents. Channels are independent, so
//! they are what threads share out; a channel's statistics are summed image by image in order, along a run of rows (module
//! `runs`) in lanes of the compute type and across runs in f64, whatever the number of threads. A channel of usual size
//! stays in the L2 cache, so the second and third pass over it do not go to memory.
//!
//! Statistics take two passes (mean, then squared deviations, corrected by the sum of deviations), so an input of large
//! mean loses nothing.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use crate::cache::l2_bytes;
use crate::float::{Disjoint, FloatElement, Real, map2, moments3, moments4, sum};
use crate::pool::Pool;
use crate::prefetch::{prefetch_beyond, prefetch_l2_beyond, prefetch_row_beyond};
use crate::simd::wide;
use remat_types::Element;
pub use rms::{rms_norm, rms_norm_grad, rms_norm_grad_workspace_elems};
use runs::{Prefetch, Runs, buffer, moments_prefetching};

mod far;
mod rms;
mod runs;
#[cfg(test)]
mod tests;

/// Sizes of a batch-normalised tensor `[n, c, s]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchDims {
    /// Images.
    pub n: usize,
    /// Channels.
    pub c: usize,
    /// Elements of an image in one channel.
    pub s: usize,
}

impl BatchDims {
    /// Elements behind one channel's statistics.
    pub fn count(&self) -> usize {
        self.n * self.s
    }

    #[inline(always)]
    fn row(&self, image: usize, channel: usize) -> std::ops::Range<usize> {
        let start = (image * self.c + channel) * self.s;
        start..start + self.s
    }
}

/// Elements of the whole tensor that are worth a second thread.
const GRAIN_ELEMS: usize = 4096;

/// Channels that one part takes: as few as give each part enough to do. By sizes only.
fn channels_per_part(d: BatchDims) -> usize {
    let least = if d.s == 1 { COLUMNS } else { 1 };
    (GRAIN_ELEMS / d.count().max(1)).clamp(least, d.c.max(1).max(least))
}

/// Channels whose columns are walked side by side where a channel has one element per image.
const COLUMNS: usize = 16;

/// The prefetches of the passes over a channel. The last pass but one prefetches the lines that the last one writes, and the
/// last pass prefetches the next channel. So each pass goes through a cache while the memory brings in what the next one
/// needs. Gradients take two passes, the last two of these.
#[derive(Clone, Copy)]
struct PrefetchPasses {
    first: Prefetch,
    second: Prefetch,
    last: Prefetch,
}

impl PrefetchPasses {
    /// For passes that read `x`, write `y`, and have so many channels of arrays in the cache, the next ones counted. Of channels
    /// that are too large for that every pass prefetches its next row, and so of few streams of short rows, which a processor
    /// follows by itself from channel to channel.
    fn new<T>(d: BatchDims, channels: usize, x: &[T], y: &Disjoint<'_, T>) -> PrefetchPasses {
        /// Images whose rows a processor follows.
        const FOLLOWED: usize = 16;
        /// Bytes of a row that is short.
        const SHORT: usize = 384;
        let bytes = d.count().saturating_mul(channels * size_of::<T>());
        let is_followed = d.n <= FOLLOWED && d.s * size_of::<T>() < SHORT;
        if is_followed || bytes > l2_bytes() / 4 * 3 {
            return PrefetchPasses { first: Prefetch::Row, second: Prefetch::Row, last: Prefetch::Row };
        }
        let written = y.place(0).addr().wrapping_sub(x.as_ptr().addr()).cast_signed();
        let next = (d.s * size_of::<T>()).cast_signed();
        PrefetchPasses { first: Prefetch::Nothing, second: Prefetch::Beyond(written), last: Prefetch::Beyond(next) }
    }
}

/// Mean and biased variance of channel `channel`.
#[inline(always)]
fn channel_statistics<T: FloatElement>(x: &[T], d: BatchDims, channel: usize, prefetch: PrefetchPasses) -> (f64, f64) {
    let (count, runs) = (d.count() as f64, Runs::new(d, channel));
    let (mut total, mut room) = (0.0, buffer());
    for images in runs.images() {
        total += sum(runs.of(x, images, &mut room, prefetch.first), T::up);
    }
    let mean = total / count;
    let about = T::Real::from_f64(mean);
    let (mut first, mut second) = (0.0, 0.0);
    for images in runs.images() {
        let row = runs.of(x, images, &mut room, prefetch.second);
        let [a, b] = moments_prefetching(
            [row; 3],
            runs.beyond(prefetch.second),
            #[inline(always)]
            |v, _, _| v.up() - about,
            #[inline(always)]
            |v, _, _| v.up() - about,
        );
        first += a;
        second += b;
    }
    (mean, (second - first * first / count) / count)
}

/// As [`channel_statistics`] for the channels of a part of a `[n, c]` tensor, walked row by row.
#[inline(always)]
fn column_statistics<T: FloatElement>(x: &[T], d: BatchDims, first: usize, len: usize) -> [(f64, f64); COLUMNS] {
    let mut mean = [0.0f64; COLUMNS];
    for i in 0..d.n {
        let row = &x[i * d.c + first..][..len];
        for (m, v) in mean.iter_mut().zip(row) {
            *m += v.to_f64();
        }
    }
    mean.iter_mut().for_each(|m| *m /= d.n as f64);
    let mut second = [0.0f64; COLUMNS];
    for i in 0..d.n {
        let row = &x[i * d.c + first..][..len];
        for ((s, m), v) in second.iter_mut().zip(&mean).zip(row) {
            let v = v.to_f64() - m;
            *s += v * v;
        }
    }
    std::array::from_fn(|k| (mean[k], second[k] / d.n as f64))
}

/// Calls `f` with ranges of channels, in parallel; a range has at most [`COLUMNS`] channels where `s = 1`.
fn over_channels(pool: &Pool, d: BatchDims, f: impl Fn(std::ops::Range<usize>) + Sync) {
    let size = channels_per_part(d);
    pool.run(d.c.div_ceil(size), &|part| {
        let (mut start, end) = (part * size, ((part + 1) * size).min(d.c));
        while start < end {
            let stop = if d.s == 1 { (start + COLUMNS).min(end) } else { start + 1 };
            wide(
                #[inline(always)]
                || f(start..stop),
            );
            start = stop;
        }
    });
}

/// `y = (x - mean) / sqrt(var + eps) * scale + bias` per channel, with the batch's mean and biased variance.
///
/// `x, y: [n, c, s]`; `scale, bias, mean, var: [c]`. The batch has at least one element per channel.
///
/// # Panics
/// If a slice has not the size said.
pub fn batch_norm<T: FloatElement>(
    pool: &Pool,
    d: BatchDims,
    eps: f64,
    x: &[T],
    scale: &[T],
    bias: &[T],
    y: &mut [T],
    mean: &mut [T::Real],
    var: &mut [T::Real],
) {
    assert!(x.len() == d.n * d.c * d.s && y.len() == x.len() && mean.len() == d.c && var.len() == d.c);
    let (y, mean, var) = (Disjoint::new(y), Disjoint::new(mean), Disjoint::new(var));
    let prefetch = PrefetchPasses::new(d, 3, x, &y);
    over_channels(
        pool,
        d,
        #[inline(always)]
        |channels| {
            let (first, len) = (channels.start, channels.len());
            // SAFETY: ranges of channels do not overlap.
            let (mean, var) = unsafe { (mean.part(first, len), var.part(first, len)) };
            if d.s == 1 {
                let found = column_statistics(x, d, first, len);
                for k in 0..len {
                    (mean[k], var[k]) = (T::Real::from_f64(found[k].0), T::Real::from_f64(found[k].1));
                }
            } else {
                let found = channel_statistics(x, d, first, prefetch);
                (mean[0], var[0]) = (T::Real::from_f64(found.0), T::Real::from_f64(found.1));
            }
            // SAFETY: `affine` writes these channels only.
            unsafe { affine(d, eps, x, scale, bias, &y, mean, var, first, prefetch.last) };
            for k in 0..len {
                if far::is_far::<T>(var[k].to_f64(), eps) {
                    let of = [scale[first + k], bias[first + k]];
                    // SAFETY: as above.
                    if let Some(found) = unsafe { far::forward_channel(d, first + k, eps, x, of, &y) } {
                        [mean[k], var[k]] = found.map(T::Real::from_f64);
                    }
                }
            }
        },
    );
}

/// [`batch_norm`] with given mean and variance.
///
/// # Panics
/// If a slice has not the size said there.
pub fn batch_norm_infer<T: FloatElement>(
    pool: &Pool,
    d: BatchDims,
    eps: f64,
    x: &[T],
    scale: &[T],
    bias: &[T],
    mean: &[T::Real],
    var: &[T::Real],
    y: &mut [T],
) {
    assert!(x.len() == d.n * d.c * d.s && y.len() == x.len());
    if x.is_empty() {
        return;
    }
    let y = Disjoint::new(y);
    over_channels(
        pool,
        d,
        #[inline(always)]
        |channels| {
            // SAFETY: ranges of channels do not overlap, and `affine` writes these channels only.
            unsafe {
                let (mean, var) = (&mean[channels.clone()], &var[channels.clone()]);
                affine(d, eps, x, scale, bias, &y, mean, var, channels.start, Prefetch::Row)
            };
        },
    );
}

/// The affine map of the channels from `first`, as many as `mean` has.
///
/// # Safety
/// Nobody else touches those channels of `y` meanwhile.
#[inline(always)]
unsafe fn affine<T: FloatElement>(
    d: BatchDims,
    eps: f64,
    x: &[T],
    scale: &[T],
    bias: &[T],
    y: &Disjoint<'_, T>,
    mean: &[T::Real],
    var: &[T::Real],
    first: usize,
    ahead: Prefetch,
) {
    let len = mean.len();
    if d.s == 1 {
        let mut factor = [T::Real::ZERO; COLUMNS];
        for k in 0..len {
            factor[k] = slope::<T>(scale[first + k], var[k], eps);
        }
        for i in 0..d.n {
            let at = i * d.c + first;
            // SAFETY: these elements belong to the channels that the caller owns.
            let y = unsafe { y.part(at, len) };
            for k in 0..len {
                y[k] = T::down((x[at + k].up() - mean[k]) * factor[k] + bias[first + k].up());
            }
        }
        return;
    }
    for (k, &m) in mean.iter().enumerate() {
        let (factor, shift) = (slope::<T>(scale[first + k], var[k], eps), bias[first + k].up());
        let (runs, mut from, mut to) = (Runs::new(d, first + k), buffer(), buffer());
        for images in runs.images() {
            let x = runs.of(x, images.clone(), &mut from, ahead);
            let of = |x: T| T::down((x.up() - m) * factor + shift);
            // SAFETY: as above.
            unsafe {
                runs.write(
                    y,
                    images,
                    &mut to,
                    ahead,
                    #[inline(always)]
                    |y| match runs.beyond(ahead) {
                        Some(bytes) => map2(x, x, y, |x, _| prefetch_l2_beyond(x, bytes), |x, _| of(x)),
                        None => y.iter_mut().zip(x).for_each(|(y, x)| *y = of(*x)),
                    },
                );
            }
        }
    }
}

/// `scale / sqrt(var + eps)`.
#[inline(always)]
fn slope<T: FloatElement>(scale: T, var: T::Real, eps: f64) -> T::Real {
    T::Real::from_f64(scale.to_f64() / (var.to_f64() + eps).sqrt())
}

/// The gradients of [`batch_norm`], with `mean` and `var` as it gave them:
/// `dbias = sum dy`, `dscale = sum dy (x - mean) / sd`, and
/// `dx = scale / sd * (dy - dbias / count - (x - mean) / sd * dscale / count)` (Ioffe and Szegedy, ICML 2015).
///
/// # Panics
/// If a slice has not the size said there.
pub fn batch_norm_grad<T: FloatElement>(
    pool: &Pool,
    d: BatchDims,
    eps: f64,
    x: &[T],
    scale: &[T],
    mean: &[T::Real],
    var: &[T::Real],
    dy: &[T],
    dx: &mut [T],
    dscale: &mut [T],
    dbias: &mut [T],
) {
    assert!(x.len() == d.n * d.c * d.s && dy.len() == x.len() && dx.len() == x.len());
    let (dx, dscale, dbias) = (Disjoint::new(dx), Disjoint::new(dscale), Disjoint::new(dbias));
    let count = d.count() as f64;
    let prefetch = PrefetchPasses::new(d, 5, x, &dx);
    over_channels(
        pool,
        d,
        #[inline(always)]
        |channels| {
            let (first, len) = (channels.start, channels.len());
            // SAFETY: ranges of channels do not overlap.
            let (dscale, dbias) = unsafe { (dscale.part(first, len), dbias.part(first, len)) };
            // last, for what is written below of a channel whose variance says nothing
            let mend_far = |dscale: &mut [T], dbias: &mut [T]| {
                for k in 0..len {
                    let c = first + k;
                    if far::is_far::<T>(var[c].to_f64(), eps) {
                        // SAFETY: as above.
                        if let Some(found) = unsafe { far::backward_channel(d, c, eps, [x, dy], scale[c], &dx) } {
                            [dscale[k], dbias[k]] = found;
                        }
                    }
                }
            };
            if d.s == 1 {
                let mut total = [[0.0f64; 2]; COLUMNS];
                for i in 0..d.n {
                    for k in 0..len {
                        let at = i * d.c + first + k;
                        let g = dy[at].to_f64();
                        total[k][0] += g;
                        total[k][1] += g * (x[at].up() - mean[first + k]).to_f64();
                    }
                }
                let mut terms =
                    [Terms { about: T::Real::ZERO, a: T::Real::ZERO, b: T::Real::ZERO, c: T::Real::ZERO }; COLUMNS];
                for k in 0..len {
                    let c = first + k;
                    terms[k] = finish(total[k], scale[c], mean[c], var[c], eps, count, &mut dscale[k], &mut dbias[k]);
                }
                for i in 0..d.n {
                    let at = i * d.c + first;
                    // SAFETY: these elements belong to this range of channels.
                    let dx = unsafe { dx.part(at, len) };
                    for k in 0..len {
                        dx[k] = T::down(terms[k].dx(x[at + k].up(), dy[at + k].up()));
                    }
                }
                mend_far(dscale, dbias);
                return;
            }
            let about = mean[first];
            let (runs, mut total) = (Runs::new(d, first), [0.0f64; 2]);
            let (mut x_room, mut dy_room, mut dx_room) = (buffer(), buffer(), buffer());
            for images in runs.images() {
                let x = runs.of(x, images.clone(), &mut x_room, prefetch.second);
                let dy = runs.of(dy, images, &mut dy_room, prefetch.first);
                let [a, b] = moments_prefetching(
                    [x, dy, dy],
                    runs.beyond(prefetch.second),
                    #[inline(always)]
                    |_, g, _| g.up(),
                    #[inline(always)]
                    |x, _, _| x.up() - about,
                );
                total[0] += a;
                total[1] += b;
            }
            let t = finish(total, scale[first], about, var[first], eps, count, &mut dscale[0], &mut dbias[0]);
            for images in runs.images() {
                let x = runs.of(x, images.clone(), &mut x_room, prefetch.last);
                let dy = runs.of(dy, images.clone(), &mut dy_room, prefetch.last);
                let of = |x: T, dy: T| T::down(t.dx(x.up(), dy.up()));
                let prefetch_both = |x, dy, bytes| {
                    prefetch_l2_beyond(x, bytes);
                    prefetch_l2_beyond(dy, bytes);
                };
                // SAFETY: as above.
                unsafe {
                    runs.write(
                        &dx,
                        images,
                        &mut dx_room,
                        prefetch.last,
                        #[inline(always)]
                        |dx| match runs.beyond(prefetch.last) {
                            Some(bytes) => map2(x, dy, dx, |x, dy| prefetch_both(x, dy, bytes), of),
                            None => dx.iter_mut().zip(x).zip(dy).for_each(|((dx, x), dy)| *dx = of(*x, *dy)),
                        },
                    );
                }
            }
            mend_far(dscale, dbias);
        },
    );
}

/// `dx = a dy + b (x - about) + c`.
#[derive(Clone, Copy)]
struct Terms<R> {
    about: R,
    a: R,
    b: R,
    c: R,
}

impl<R: Real> Terms<R> {
    #[inline(always)]
    fn dx(&self, x: R, dy: R) -> R {
        self.a * dy + (self.b * (x - self.about) + self.c)
    }
}

/// The gradients of scale and bias from the sums of `dy` and `dy (x - mean)`, and the terms of `dx`.
#[inline(always)]
fn finish<T: FloatElement>(
    [sum, moment]: [f64; 2],
    scale: T,
    mean: T::Real,
    var: T::Real,
    eps: f64,
    count: f64,
    dscale: &mut T,
    dbias: &mut T,
) -> Terms<T::Real> {
    let inv_sd = 1.0 / (var.to_f64() + eps).sqrt();
    *dbias = T::from_f64(sum);
    *dscale = T::from_f64(moment * inv_sd);
    let a = scale.to_f64() * inv_sd;
    Terms {
        about: mean,
        a: T::Real::from_f64(a),
        b: T::Real::from_f64(-a * inv_sd * inv_sd * moment / count),
        c: T::Real::from_f64(-a * sum / count),
    }
}

/// Bytes from where a row's statistics are to what is prefetched of the row that is written after them.
const WRITTEN_AHEAD_BYTES: usize = 1 << 10;

/// Mean of a row, `1 / sqrt(variance + eps)`, and whether the row is for [`far`]. Prefetches rows ahead, and that of `y`, which is written next.
#[inline(always)]
fn row_statistics<T: FloatElement>(row: &[T], y: &[T], eps: f64) -> (T::Real, T::Real, bool) {
    let n = row.len() as f64;
    let mean = sum(row, T::up) / n;
    let about = T::Real::from_f64(mean);
    let prefetch_both = |x, y| {
        prefetch_row_beyond(x);
        prefetch_beyond::<WRITTEN_AHEAD_BYTES, T>(y);
    };
    let [first, second] = moments3(row, y, row, prefetch_both, |v, _, _| v.up() - about, |v, _, _| v.up() - about);
    let var = (second - first * first / n) / n;
    (about, T::Real::from_f64(1.0 / (var + eps).sqrt()), far::is_far::<T>(var, eps))
}

/// `y = (x - mean) / sqrt(var + eps) * scale + bias` along each row of `x: [rows, s]`; `scale, bias: [s]`.
///
/// # Panics
/// If a slice has not the size said.
pub fn layer_norm<T: FloatElement>(pool: &Pool, s: usize, eps: f64, x: &[T], scale: &[T], bias: &[T], y: &mut [T]) {
    assert!(x.len() == y.len() && scale.len() == s && bias.len() == s);
    let rows_per_chunk = (GRAIN_ELEMS / s.max(1)).max(1);
    pool.chunks_mut(y, (rows_per_chunk * s).max(1), |chunk, y| {
        let x = &x[chunk * rows_per_chunk * s..][..y.len()];
        wide(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(s).zip(y.chunks_exact_mut(s)) {
                    let (mean, inv_sd, is_far) = row_statistics(x, y, eps);
                    if is_far && far::forward(eps, x, scale, Some(bias), y) {
                        continue;
                    }
                    for (((y, x), scale), bias) in y.iter_mut().zip(x).zip(scale).zip(bias) {
                        *y = T::down((x.up() - mean) * inv_sd * scale.up() + bias.up());
                    }
                }
            },
        );
    });
}

/// Blocks of rows whose parts of `dscale` and `dbias` are summed apart: by sizes only, for the same bits on any pool.
fn grad_blocks(rows: usize) -> usize {
    /// Rows that are worth a block of their own.
    const ROWS_MIN: usize = 16;
    /// Bounds the workspace.
    const BLOCKS_MAX: usize = 16;
    (rows / ROWS_MIN).clamp(1, BLOCKS_MAX)
}

/// Items of compute type that [`layer_norm_grad`] needs.
pub fn layer_norm_grad_workspace_elems(rows: usize, s: usize) -> usize {
    grad_blocks(rows) * 2 * s
}

/// The gradients of [`layer_norm`]; statistics are computed again, since the row is read anyway.
///
/// # Panics
/// If a slice has not the size said there, or the workspace is too small.
pub fn layer_norm_grad<T: FloatElement>(
    pool: &Pool,
    s: usize,
    eps: f64,
    x: &[T],
    scale: &[T],
    dy: &[T],
    dx: &mut [T],
    dscale: &mut [T],
    dbias: &mut [T],
    workspace: &mut [T::Real],
) {
    assert!(x.len() == dy.len() && dx.len() == x.len() && scale.len() == s && dscale.len() == s && dbias.len() == s);
    if s == 0 {
        return;
    }
    let rows = x.len() / s;
    let blocks = grad_blocks(rows);
    let partial = &mut workspace[..blocks * 2 * s];
    let dx = Disjoint::new(dx);
    pool.chunks_mut(partial, 2 * s, |block, partial| {
        let range = crate::pool::part_range(rows, blocks, block);
        // SAFETY: blocks of rows do not overlap.
        let dx = unsafe { dx.part(range.start * s, range.len() * s) };
        let (x, dy) = (&x[range.start * s..range.end * s], &dy[range.start * s..range.end * s]);
        partial.fill(T::Real::ZERO);
        let (dscale, dbias) = partial.split_at_mut(s);
        wide(
            #[inline(always)]
            || {
                for ((x, dy), dx) in x.chunks_exact(s).zip(dy.chunks_exact(s)).zip(dx.chunks_exact_mut(s)) {
                    layer_norm_grad_row(eps, x, scale, dy, dx, dscale, dbias);
                }
            },
        );
    });
    for k in 0..s {
        let (mut a, mut b) = (0.0, 0.0);
        for block in 0..blocks {
            a += partial[block * 2 * s + k].to_f64();
            b += partial[block * 2 * s + s + k].to_f64();
        }
        dscale[k] = T::from_f64(a);
        dbias[k] = T::from_f64(b);
    }
}

#[inline(always)]
fn layer_norm_grad_row<T: FloatElement>(
    eps: f64,
    x: &[T],
    scale: &[T],
    dy: &[T],
    dx: &mut [T],
    dscale: &mut [T::Real],
    dbias: &mut [T::Real],
) {
    let s = x.len();
    let (scale, dy, dx) = (&scale[..s], &dy[..s], &mut dx[..s]);
    let (dscale, dbias) = (&mut dscale[..s], &mut dbias[..s]);
    let n = s as f64;
    let mean = T::Real::from_f64(sum(x, T::up) / n);
    let (start, to) = (x.as_ptr().addr(), dx.as_ptr());
    let prefetch_both = |x: *const T, dy| {
        prefetch_row_beyond(x);
        prefetch_row_beyond(dy);
        prefetch_beyond::<WRITTEN_AHEAD_BYTES, T>(to.wrapping_byte_add(x.addr() - start));
    };
    // statistics and both sums of the gradient in one walk
    let [first, second, sum, moment] = moments4(x, dy, scale, mean, prefetch_both);
    let var = (second - first * first / n) / n;
    if far::is_far::<T>(var, eps) && far::backward(eps, [x, scale, dy], dx, dscale, Some(&mut *dbias)) {
        return;
    }
    let inv_sd = 1.0 / (var + eps).sqrt();
    let (sum, moment) = (T::Real::from_f64(sum / n), T::Real::from_f64(moment * inv_sd / n));
    let inv_sd = T::Real::from_f64(inv_sd);
    for k in 0..s {
        let (g, hat) = (dy[k].up(), (x[k].up() - mean) * inv_sd);
        dscale[k] += g * hat;
        dbias[k] += g;
        dx[k] = T::down(inv_sd * (g * scale[k].up() - sum - hat * moment));
    }
}
