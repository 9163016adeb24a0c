//! Rows whose squares are beyond the numbers: too large for the compute type, or too small beside an `eps` that is as small.
//!
//! The passes of [`super`] add up squares in the compute type. Where that gives no number, which their sums tell at no cost, a row is
//! done again here: multiplied by a power of 2 that brings its largest element to 1, which rounds nothing, and in f64. The same of the
//! channels of a batch, whose variance is a result: what is normalised is right even where that is infinite or 0 as a number.

use super::BatchDims;
use crate::float::{Disjoint, FloatElement};
use remat_types::{DType, Element};

/// True if a mean square with `eps` says nothing about the row.
#[inline(always)]
pub(super) fn is_far<T: FloatElement>(mean_square: f64, eps: f64) -> bool {
    /// Far above the squares that are no normal numbers of f32, and of f64.
    const LEAST: [f64; 2] = [1e-30, 1e-290];
    let least = LEAST[usize::from(matches!(T::REAL, DType::F64))];
    // a NaN is far as well
    !(mean_square + eps > least && mean_square < f64::INFINITY)
}

/// A row that was scaled: `(x by - mean) inverse` is what is normalised.
struct Row {
    by: f64,
    mean: f64,
    /// The mean of the squares of what was scaled, about the mean.
    square: f64,
    inverse: f64,
}

impl Row {
    /// None for a row that is 0 everywhere or holds NaN or an infinity, which has no scale.
    fn of(x: impl Iterator<Item = f64> + Clone, eps: f64, centred: bool) -> Option<Row> {
        let (mut most, mut n) = (0.0f64, 0.0);
        for v in x.clone() {
            if !v.is_finite() {
                return None;
            }
            (most, n) = (most.max(v.abs()), n + 1.0);
        }
        if most == 0.0 {
            return None;
        }
        // so that neither the power nor its reciprocal is beyond f64
        let by = 2f64.powi(-(most.log2().floor() as i32).clamp(-1021, 1021));
        let mean = if centred { x.clone().map(|v| v * by).sum::<f64>() / n } else { 0.0 };
        let square = x.map(|v| (v * by - mean).powi(2)).sum::<f64>() / n;
        Some(Row { by, mean, square, inverse: 1.0 / (square + eps * by * by).sqrt() })
    }

    fn of_slice<T: FloatElement>(x: &[T], eps: f64, centred: bool) -> Option<Row> {
        Row::of(x.iter().map(|v| v.to_f64()), eps, centred)
    }

    fn hat<T: FloatElement>(&self, v: T) -> f64 {
        (v.to_f64() * self.by - self.mean) * self.inverse
    }
}

/// A row of [`super::layer_norm`], or of [`super::rms_norm`] without `bias`; false if it has no scale, and nothing is written.
#[cold]
#[inline(never)]
pub(super) fn forward<T: FloatElement>(eps: f64, x: &[T], scale: &[T], bias: Option<&[T]>, y: &mut [T]) -> bool {
    let Some(row) = Row::of_slice(x, eps, bias.is_some()) else { return false };
    for (k, y) in y.iter_mut().enumerate() {
        *y = T::from_f64(row.hat(x[k]) * scale[k].to_f64() + bias.map_or(0.0, |b| b[k].to_f64()));
    }
    true
}

/// A row of their gradients; `dbias` as `bias` there.
#[cold]
#[inline(never)]
pub(super) fn backward<T: FloatElement>(
    eps: f64,
    [x, scale, dy]: [&[T]; 3],
    dx: &mut [T],
    dscale: &mut [T::Real],
    dbias: Option<&mut [T::Real]>,
) -> bool {
    let Some(row) = Row::of_slice(x, eps, dbias.is_some()) else { return false };
    let n = x.len() as f64;
    let g = |k: usize| dy[k].to_f64() * scale[k].to_f64();
    let sum = if dbias.is_some() { (0..x.len()).map(g).sum::<f64>() / n } else { 0.0 };
    let moment = (0..x.len()).map(|k| g(k) * row.hat(x[k])).sum::<f64>() / n;
    let real = <T::Real as Element>::from_f64;
    for k in 0..x.len() {
        let hat = row.hat(x[k]);
        dscale[k] += real(dy[k].to_f64() * hat);
        dx[k] = T::from_f64((g(k) - sum - hat * moment) * row.inverse * row.by);
    }
    if let Some(dbias) = dbias {
        for (b, dy) in dbias.iter_mut().zip(dy) {
            *b += real(dy.to_f64());
        }
    }
    true
}

/// Where the elements of a channel are.
fn places(d: BatchDims, channel: usize) -> impl Iterator<Item = usize> + Clone {
    (0..d.n).flat_map(move |image| d.row(image, channel))
}

/// A channel of [`super::batch_norm`]: its mean and variance as they are, which may be beyond the numbers. None if it has no
/// scale, and nothing is written.
///
/// # Safety
/// Nobody else touches the channel of `y` meanwhile.
#[cold]
#[inline(never)]
pub(super) unsafe fn forward_channel<T: FloatElement>(
    d: BatchDims,
    channel: usize,
    eps: f64,
    x: &[T],
    [scale, bias]: [T; 2],
    y: &Disjoint<'_, T>,
) -> Option<[f64; 2]> {
    let row = Row::of(places(d, channel).map(|at| x[at].to_f64()), eps, true)?;
    for at in places(d, channel) {
        let value = T::from_f64(row.hat(x[at]) * scale.to_f64() + bias.to_f64());
        // SAFETY: the channel is the caller's.
        unsafe { y.part(at, 1)[0] = value };
    }
    Some([row.mean / row.by, row.square / row.by / row.by])
}

/// A channel of [`super::batch_norm_grad`]: the gradients of its scale and its bias. None if it has no scale, and nothing is
/// written.
///
/// # Safety
/// Nobody else touches the channel of `dx` meanwhile.
#[cold]
#[inline(never)]
pub(super) unsafe fn backward_channel<T: FloatElement>(
    d: BatchDims,
    channel: usize,
    eps: f64,
    [x, dy]: [&[T]; 2],
    scale: T,
    dx: &Disjoint<'_, T>,
) -> Option<[T; 2]> {
    let row = Row::of(places(d, channel).map(|at| x[at].to_f64()), eps, true)?;
    let (mut sum, mut moment) = (0.0, 0.0);
    for at in places(d, channel) {
        let g = dy[at].to_f64();
        (sum, moment) = (sum + g, moment + g * row.hat(x[at]));
    }
    let n = d.count() as f64;
    for at in places(d, channel) {
        let g = dy[at].to_f64() - sum / n - row.hat(x[at]) * moment / n;
        // SAFETY: the channel is the caller's.
        unsafe { dx.part(at, 1)[0] = T::from_f64(g * scale.to_f64() * row.inverse * row.by) };
    }
    Some([T::from_f64(moment), T::from_f64(sum)])
}
