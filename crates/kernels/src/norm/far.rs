//! Rows whose squares are beyond the numbers: too large for the compute type, or too small beside an `eps` that is as small.
//!
//! The passes of [`super`] add up squares in the compute type. Where that gives no number, which their sums tell at no cost, a row is
//! done again here: multiplied by a power of 2 that brings its largest element to 1, which rounds nothing, and in f64.

use crate::float::FloatElement;
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
    inverse: f64,
}

impl Row {
    /// None for a row that is 0 everywhere or holds NaN or an infinity, which has no scale.
    fn of<T: FloatElement>(x: &[T], eps: f64, centred: bool) -> Option<Row> {
        let mut most = 0.0f64;
        for v in x {
            let v = v.to_f64().abs();
            if !v.is_finite() {
                return None;
            }
            most = most.max(v);
        }
        if most == 0.0 {
            return None;
        }
        // so that neither the power nor its reciprocal is beyond f64
        let by = 2f64.powi(-(most.log2().floor() as i32).clamp(-1021, 1021));
        let (n, at) = (x.len() as f64, |v: &T| v.to_f64() * by);
        let mean = if centred { x.iter().map(at).sum::<f64>() / n } else { 0.0 };
        let square = x.iter().map(|v| (at(v) - mean).powi(2)).sum::<f64>() / n;
        Some(Row { by, mean, inverse: 1.0 / (square + eps * by * by).sqrt() })
    }

    fn hat<T: FloatElement>(&self, v: T) -> f64 {
        (v.to_f64() * self.by - self.mean) * self.inverse
    }
}

/// A row of [`super::layer_norm`], or of [`super::rms_norm`] without `bias`; false if it has no scale, and nothing is written.
#[cold]
#[inline(never)]
pub(super) fn forward<T: FloatElement>(eps: f64, x: &[T], scale: &[T], bias: Option<&[T]>, y: &mut [T]) -> bool {
    let Some(row) = Row::of(x, eps, bias.is_some()) else { return false };
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
    let Some(row) = Row::of(x, eps, dbias.is_some()) else { return false };
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
