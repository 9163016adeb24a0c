//! Where the largest element of each window or region lies.

use std::ops::Range;

use crate::pool::Pool;
use crate::window::Maximum;

/// The windows along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowAxis {
    /// Extent of the input.
    pub size: usize,
    /// Number of windows.
    pub out: usize,
    /// Kernel, stride, dilation and places before the input; `None` for adaptive windows.
    pub sliding: Option<[usize; 4]>,
}

impl WindowAxis {
    /// The elements of window `o` within the input, and the step between them.
    fn window(&self, o: usize) -> (Range<usize>, usize) {
        match self.sliding {
            None => (o * self.size / self.out..((o + 1) * self.size).div_ceil(self.out), 1),
            Some([kernel, stride, dilation, before]) => {
                let from = o * stride;
                let skipped = before.saturating_sub(from).div_ceil(dilation);
                let start = from + skipped * dilation - before;
                let end = (from + (kernel - 1) * dilation + 1).saturating_sub(before).min(self.size);
                (start.min(end)..end, dilation)
            }
        }
    }
}

/// Three axes of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peaks(pub [WindowAxis; 3]);

/// Elements of windows that are worth a part of a pool run.
const GRAIN: usize = 8192;

/// `y[plane, o..]` = the place in its plane of the first largest element of the window; NaN is the largest. 0 for an empty
/// window. `x: [planes, size..]`, `y: [planes, out..]`.
///
/// # Panics
/// If a slice has another length than these say.
pub fn window_peaks<T: Maximum>(pool: &Pool, Peaks([d, h, w]): Peaks, x: &[T], y: &mut [i64]) {
    let (plane, out) = (d.size * h.size * w.size, d.out * h.out * w.out);
    if y.is_empty() {
        return;
    }
    let per_part = (GRAIN / plane.max(out)).max(1);
    pool.chunks_mut(y, out * per_part, |part, y| {
        for (i, y) in y.chunks_exact_mut(out).enumerate() {
            let x = &x[(part * per_part + i) * plane..][..plane];
            let mut y = y.iter_mut();
            for a in 0..d.out {
                let (depth, depth_step) = d.window(a);
                for b in 0..h.out {
                    let (rows, row_step) = h.window(b);
                    for (c, y) in (0..w.out).zip(y.by_ref()) {
                        let (columns, column_step) = w.window(c);
                        let mut best: Option<(T, usize)> = None;
                        for i in depth.clone().step_by(depth_step) {
                            for j in rows.clone().step_by(row_step) {
                                let row = (i * h.size + j) * w.size;
                                for k in columns.clone().step_by(column_step) {
                                    let v = x[row + k];
                                    if best.is_none_or(|(most, _)| v.beats(most)) {
                                        best = Some((v, row + k));
                                    }
                                }
                            }
                        }
                        *y = best.map_or(0, |(_, at)| at as i64);
                    }
                }
            }
        }
    });
}

/// As [`window_peaks`] for `out` parts of each of the regions `[image, left, top, right, bottom]`, whose corners are
/// multiplied by `scale` and rounded (Girshick, ICCV 2015): the place in `x`, or -1 for a part that is empty. `x: [n, c, h,
/// w]`, `y: [regions, c, out..]`. A region whose image is none has empty parts.
///
/// # Panics
/// If a slice has another length than these say.
pub fn region_peaks<T: Maximum>(
    pool: &Pool,
    x: &[T],
    [n, c, h, w]: [usize; 4],
    regions: &[f64],
    scale: f64,
    [oh, ow]: [usize; 2],
    y: &mut [i64],
) {
    if y.is_empty() {
        return;
    }
    pool.chunks_mut(y, c * oh * ow, |region, y| {
        let Some(&[image, left, top, right, bottom]) = regions[region * 5..].first_chunk() else { return };
        let round = |v: f64| (v * scale).round();
        let (top, left) = (round(top), round(left));
        // a region has at least one pixel
        let (height, width) = ((round(bottom) - top + 1.0).max(1.0), (round(right) - left + 1.0).max(1.0));
        let part = |o: usize, out: usize, from: f64, extent: f64, size: usize| {
            let each = extent / out as f64;
            let cut = |v: f64| (v + from).clamp(0.0, size as f64) as usize;
            cut((o as f64 * each).floor())..cut(((o + 1) as f64 * each).ceil())
        };
        let is_image = image >= 0.0 && image < n as f64;
        for (at, y) in y.iter_mut().enumerate() {
            let (channel, a, b) = (at / (oh * ow), at / ow % oh, at % ow);
            let plane = (image.max(0.0) as usize * c + channel) * h * w;
            let mut best: Option<(T, usize)> = None;
            if is_image {
                for i in part(a, oh, top, height, h) {
                    for j in part(b, ow, left, width, w) {
                        let place = plane + i * w + j;
                        if best.is_none_or(|(most, _)| x[place].beats(most)) {
                            best = Some((x[place], place));
                        }
                    }
                }
            }
            *y = best.map_or(-1, |(_, at)| at as i64);
        }
    });
}
