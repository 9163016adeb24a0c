//! Rows over the root of their mean square (Zhang and Sennrich, 2019), and its gradients.

use super::{GRAIN_ELEMS, WRITTEN_AHEAD_BYTES, far, grad_blocks};
use crate::float::{Disjoint, FloatElement, Real, moments3, moments4};
use crate::pool::{Pool, part_range};
use crate::prefetch::{prefetch_beyond, prefetch_row_beyond};
use crate::simd::wide;
use remat_types::Element;

/// `y = x / sqrt(mean x^2 + eps) * scale` along each row of `x: [rows, s]`; `scale: [s]`.
///
/// # Panics
/// If a slice has not the size said.
pub fn rms_norm<T: FloatElement>(pool: &Pool, s: usize, eps: f64, x: &[T], scale: &[T], y: &mut [T]) {
    assert!(x.len() == y.len() && scale.len() == s);
    let rows_per_chunk = (GRAIN_ELEMS / s.max(1)).max(1);
    pool.chunks_mut(y, (rows_per_chunk * s).max(1), |chunk, y| {
        let x = &x[chunk * rows_per_chunk * s..][..y.len()];
        wide(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(s).zip(y.chunks_exact_mut(s)) {
                    let prefetch_both = |x, y| {
                        prefetch_row_beyond(x);
                        prefetch_beyond::<WRITTEN_AHEAD_BYTES, T>(y);
                    };
                    let [_, square] = moments3(x, y, x, prefetch_both, |v, _, _| v.up(), |v, _, _| v.up());
                    if far::is_far::<T>(square / s as f64, eps) && far::forward(eps, x, scale, None, y) {
                        continue;
                    }
                    let inverse = T::Real::from_f64(1.0 / (square / s as f64 + eps).sqrt());
                    for ((y, x), scale) in y.iter_mut().zip(x).zip(scale) {
                        *y = T::down(x.up() * inverse * scale.up());
                    }
                }
            },
        );
    });
}

/// Items of compute type that [`rms_norm_grad`] needs.
pub fn rms_norm_grad_workspace_elems(rows: usize, s: usize) -> usize {
    grad_blocks(rows) * s
}

/// The gradients of [`rms_norm`]: with `h = x / rms` and `g = dy scale`, `dx = (g - h mean(g h)) / rms` and `dscale = sum dy h`.
///
/// # Panics
/// If a slice has not the size said there, or the workspace is too small.
pub fn rms_norm_grad<T: FloatElement>(
    pool: &Pool,
    s: usize,
    eps: f64,
    x: &[T],
    scale: &[T],
    dy: &[T],
    dx: &mut [T],
    dscale: &mut [T],
    workspace: &mut [T::Real],
) {
    assert!(x.len() == dy.len() && dx.len() == x.len() && scale.len() == s && dscale.len() == s);
    if s == 0 {
        return;
    }
    let rows = x.len() / s;
    let blocks = grad_blocks(rows);
    let partial = &mut workspace[..blocks * s];
    let dx = Disjoint::new(dx);
    pool.chunks_mut(partial, s, |block, dscale| {
        let range = part_range(rows, blocks, block);
        // SAFETY: blocks of rows do not overlap.
        let dx = unsafe { dx.part(range.start * s, range.len() * s) };
        let (x, dy) = (&x[range.start * s..range.end * s], &dy[range.start * s..range.end * s]);
        dscale.fill(T::Real::ZERO);
        wide(
            #[inline(always)]
            || {
                for ((x, dy), dx) in x.chunks_exact(s).zip(dy.chunks_exact(s)).zip(dx.chunks_exact_mut(s)) {
                    grad_row(eps, x, scale, dy, dx, dscale);
                }
            },
        );
    });
    for (k, dscale) in dscale.iter_mut().enumerate() {
        let sum: f64 = (0..blocks).map(|block| partial[block * s + k].to_f64()).sum();
        *dscale = T::from_f64(sum);
    }
}

#[inline(always)]
fn grad_row<T: FloatElement>(eps: f64, x: &[T], scale: &[T], dy: &[T], dx: &mut [T], dscale: &mut [T::Real]) {
    let (s, n) = (x.len(), x.len() as f64);
    let (scale, dy, dx, dscale) = (&scale[..s], &dy[..s], &mut dx[..s], &mut dscale[..s]);
    let (start, to) = (x.as_ptr().addr(), dx.as_ptr());
    let prefetch_all = |x: *const T, dy| {
        prefetch_row_beyond(x);
        prefetch_row_beyond(dy);
        prefetch_beyond::<WRITTEN_AHEAD_BYTES, T>(to.wrapping_byte_add(x.addr() - start));
    };
    let [_, square, _, moment] = moments4(x, dy, scale, T::Real::ZERO, prefetch_all);
    if far::is_far::<T>(square / n, eps) && far::backward(eps, [x, scale, dy], dx, dscale, None) {
        return;
    }
    let inverse = 1.0 / (square / n + eps).sqrt();
    let moment = T::Real::from_f64(moment * inverse / n);
    let inverse = T::Real::from_f64(inverse);
    for k in 0..s {
        let (g, hat) = (dy[k].up(), x[k].up() * inverse);
        dscale[k] += g * hat;
        dx[k] = T::down(inverse * (g * scale[k].up() - hat * moment));
    }
}
