//! Images read at points between their pixels, and the gradients of that.
//!
//! A point has taps along each axis: places and weights. What lies beyond the image is settled there ([`Beyond`]), so that the
//! loops know products of weights and places alone. Taps of some points are worked out at a time and serve all channels. Parts
//! of a run write places of their own, and each place is added up in the order of the points, whatever the number of threads.

use crate::float::{Disjoint, FloatElement};
use crate::maths::Real;
use crate::pool::Pool;

/// The value between pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// The nearest pixel; of two the even one.
    Nearest,
    /// The neighbours along each axis, weighted by nearness.
    Linear,
    /// Four neighbours along each axis and Keys' kernel with a = -0.75 (IEEE Trans. ASSP 29, 1981).
    Cubic,
}

/// The value beyond the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// Zeros.
    Zeros,
    /// The last pixel.
    Edge,
    /// The image reflected at the middle of its last pixel.
    Reflect,
    /// The image reflected at the outer edge of its last pixel.
    ReflectEdge,
    /// The image again.
    Wrap,
}

/// The most axes of an image.
pub const MAX_AXES: usize = 3;

/// Taps of a point along an axis.
const AXIS_TAPS: usize = 4;

/// Taps of a point: four along each of two axes, or two along three.
const TAPS: usize = 16;

/// Points whose taps are worked out at a time.
const POINTS: usize = 32;

/// Channels that share the taps of the gradient of an image.
const CHANNELS: usize = 16;

/// A place that is none.
const NONE: usize = usize::MAX;

/// Sizes: images `[n, c, size..]`, points `[k, p, axes]`. The points of `k` read image `batch[k]`.
#[derive(Clone, Copy, Debug)]
pub struct Points<'a> {
    /// Channels.
    pub channels: usize,
    /// Extents of the spatial axes.
    pub size: &'a [usize],
    /// The image that each group of points reads.
    pub batch: &'a [i64],
    /// Points of a group.
    pub points: usize,
    /// The value between pixels.
    pub between: Between,
    /// The value beyond the image.
    pub beyond: Beyond,
    /// How often the value is differentiated along each axis.
    pub orders: [usize; MAX_AXES],
}

impl Points<'_> {
    fn plane(&self) -> usize {
        self.size.iter().product()
    }

    /// Taps along each axis.
    fn taps_of_axis(&self) -> usize {
        match self.between {
            Between::Nearest => 1,
            Between::Linear => 2,
            Between::Cubic => 4,
        }
    }
}

/// Taps along an axis: places, [`NONE`] for one that is zero, and weights or derivatives of them.
#[derive(Clone, Copy)]
struct AxisTaps {
    places: [usize; AXIS_TAPS],
    weights: [f64; AXIS_TAPS],
}

/// A coordinate moved into the image, and how fast it moves with the one that was given.
fn inside(c: f64, size: usize, beyond: Beyond) -> (f64, f64) {
    let last = (size - 1) as f64;
    match beyond {
        Beyond::Zeros => (c, 1.0),
        Beyond::Edge => clipped(c, 1.0, last),
        Beyond::Reflect => {
            let (c, slope) = reflected(c, 0.0, last);
            clipped(c, slope, last)
        }
        Beyond::ReflectEdge => {
            let (c, slope) = reflected(c, -0.5, size as f64);
            clipped(c, slope, last)
        }
        Beyond::Wrap => (c.rem_euclid(size as f64), 1.0),
    }
}

/// The slope is 0 from the ends on, as in PyTorch.
fn clipped(c: f64, slope: f64, last: f64) -> (f64, f64) {
    if c <= 0.0 {
        (0.0, 0.0)
    } else if c >= last {
        (last, 0.0)
    } else {
        (c, slope)
    }
}

/// `c` reflected at both ends of a span that begins at `low`.
fn reflected(c: f64, low: f64, span: f64) -> (f64, f64) {
    if span <= 0.0 {
        return (low.max(0.0), 0.0);
    }
    let (way, sign) = if c < low { (low - c, -1.0) } else { (c - low, 1.0) };
    let (flips, rest) = ((way / span).floor(), way % span);
    if flips % 2.0 == 0.0 { (rest + low, sign) } else { (span - rest + low, -sign) }
}

/// A whole coordinate as a place.
fn place(i: f64, size: usize, beyond: Beyond) -> usize {
    if i >= 0.0 && i < size as f64 {
        return i as usize;
    }
    match beyond {
        Beyond::Zeros => NONE,
        _ if i.is_nan() => NONE,
        beyond => (inside(i, size, beyond).0.round_ties_even() as usize).min(size - 1),
    }
}

/// The weights of four neighbours, differentiated `order` times. The second neighbour is `t` below the point.
fn cubic(t: f64, order: usize) -> [f64; 4] {
    const A: f64 = -0.75;
    let near = |x: f64| match order {
        0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        1 => (3.0 * (A + 2.0) * x - 2.0 * (A + 3.0)) * x,
        2 => 6.0 * (A + 2.0) * x - 2.0 * (A + 3.0),
        3 => 6.0 * (A + 2.0),
        _ => 0.0,
    };
    let far = |x: f64| match order {
        0 => ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A,
        1 => (3.0 * A * x - 10.0 * A) * x + 8.0 * A,
        2 => 6.0 * A * x - 10.0 * A,
        3 => 6.0 * A,
        _ => 0.0,
    };
    // the distance of those above falls as the point rises
    let sign = if order.is_multiple_of(2) { 1.0 } else { -1.0 };
    [far(t + 1.0), near(t), sign * near(1.0 - t), sign * far(2.0 - t)]
}

impl AxisTaps {
    fn at(c: f64, size: usize, between: Between, beyond: Beyond, order: usize) -> AxisTaps {
        let mut taps = AxisTaps { places: [NONE; 4], weights: [0.0; 4] };
        if !c.is_finite() {
            return taps;
        }
        match between {
            Between::Nearest => {
                let (c, _) = inside(c, size, beyond);
                taps.places[0] = place(c.round_ties_even(), size, beyond);
                taps.weights[0] = if order == 0 { 1.0 } else { 0.0 };
            }
            Between::Linear => {
                let (c, slope) = inside(c, size, beyond);
                let (low, part) = (c.floor(), c - c.floor());
                for k in 0..2 {
                    let i = low + k as f64;
                    // beside the last pixel lies what has no weight, but in an image that is repeated
                    taps.places[k] = place(i, size, if beyond == Beyond::Wrap { beyond } else { Beyond::Zeros });
                }
                (taps.weights[0], taps.weights[1]) = match order {
                    0 => (1.0 - part, part),
                    1 => (-slope, slope),
                    _ => (0.0, 0.0),
                };
            }
            Between::Cubic => {
                let low = c.floor();
                taps.weights = cubic(c - low, order);
                for k in 0..4 {
                    taps.places[k] = place(low - 1.0 + k as f64, size, beyond);
                }
            }
        }
        taps
    }
}

/// The taps of some points: a place in the plane and a weight each; with `SLOPES` the weight's slopes along the axes, too.
struct Block<R> {
    places: [[usize; TAPS]; POINTS],
    weights: [[R; TAPS]; POINTS],
    slopes: [[[R; TAPS]; MAX_AXES]; POINTS],
}

impl<R: Real> Block<R> {
    fn new() -> Self {
        Block {
            places: [[0; TAPS]; POINTS],
            weights: [[R::ZERO; TAPS]; POINTS],
            slopes: [[[R::ZERO; TAPS]; MAX_AXES]; POINTS],
        }
    }

    /// Works out those of `points: [m, axes]`, and how many taps each has. Taps of zeros have weight 0 at place 0.
    fn fill<const SLOPES: bool>(&mut self, of: &Points<'_>, points: &[R]) -> usize {
        let (axes, each) = (of.size.len(), of.taps_of_axis());
        let count = each.pow(axes as u32);
        for (j, point) in points.chunks_exact(axes).enumerate() {
            let mut along = [[AxisTaps { places: [NONE; 4], weights: [0.0; 4] }; 2]; MAX_AXES];
            for (a, c) in point.iter().enumerate() {
                let at = |order| AxisTaps::at(c.to_f64(), of.size[a], of.between, of.beyond, order);
                along[a][0] = at(of.orders[a]);
                if SLOPES {
                    along[a][1] = at(of.orders[a] + 1);
                }
            }
            for t in 0..count {
                // the last axis counts fastest
                let (mut rest, mut digits) = (t, [0usize; MAX_AXES]);
                for a in (0..axes).rev() {
                    digits[a] = rest % each;
                    rest /= each;
                }
                let (mut at, mut weight, mut is_pixel) = (0usize, 1.0, true);
                for a in 0..axes {
                    let place = along[a][0].places[digits[a]];
                    is_pixel &= place != NONE;
                    at = at * of.size[a] + if place == NONE { 0 } else { place };
                    weight *= along[a][0].weights[digits[a]];
                }
                self.places[j][t] = if is_pixel { at } else { NONE };
                self.weights[j][t] = R::from_f64(weight);
                if SLOPES {
                    for s in 0..axes {
                        let parts = (0..axes).map(|a| along[a][usize::from(a == s)].weights[digits[a]]);
                        self.slopes[j][s][t] = R::from_f64(parts.product());
                    }
                }
            }
        }
        count
    }
}

/// Work that is worth a part of a pool run, in taps.
const GRAIN: usize = 16384;

/// Blocks of points that one part takes, for so many channels; by sizes only.
fn blocks_per_part(of: &Points<'_>) -> usize {
    (GRAIN / (of.channels.max(1) * POINTS * 4)).max(1)
}

/// `y[k, c, p]` = image `batch[k]`, channel `c`, at point `[k, p]`.
///
/// # Panics
/// If a slice has another length than the sizes say, or `batch` names no image.
pub fn sample<T: FloatElement>(pool: &Pool, of: &Points<'_>, x: &[T], points: &[T::Real], y: &mut [T]) {
    let (axes, plane, p) = (of.size.len(), of.plane(), of.points);
    if y.is_empty() {
        return;
    }
    assert_eq!(points.len(), of.batch.len() * p * axes, "the points");
    assert_eq!(y.len(), of.batch.len() * of.channels * p, "the outputs");
    let (blocks, per_part) = (p.div_ceil(POINTS), blocks_per_part(of));
    let parts = blocks.div_ceil(per_part);
    let y = Disjoint::new(y);
    pool.run(of.batch.len() * parts, &|i| {
        let (k, part) = (i / parts, i % parts);
        let image = &x[of.batch[k] as usize * of.channels * plane..][..of.channels * plane];
        let mut block = Block::<T::Real>::new();
        for b in part * per_part..((part + 1) * per_part).min(blocks) {
            let (from, m) = (b * POINTS, POINTS.min(p - b * POINTS));
            let taps = block.fill::<false>(of, &points[(k * p + from) * axes..][..m * axes]);
            for c in 0..of.channels {
                let x = &image[c * plane..][..plane];
                // SAFETY: each block of points of each group is one part's alone.
                let y = unsafe { y.part((k * of.channels + c) * p + from, m) };
                for (j, y) in y.iter_mut().enumerate() {
                    let mut sum = T::Real::ZERO;
                    for (at, w) in block.places[j][..taps].iter().zip(&block.weights[j][..taps]) {
                        if *at != NONE {
                            sum += *w * x[*at].up();
                        }
                    }
                    *y = T::down(sum);
                }
            }
        }
    });
}

/// The gradient of [`sample`] with respect to the images: `dy[k, c, p]` is added where point `[k, p]` reads.
///
/// # Panics
/// If a slice has another length than the sizes say.
pub fn sample_gradient<T: FloatElement>(
    pool: &Pool,
    of: &Points<'_>,
    points: &[T::Real],
    dy: &[T],
    dx: &mut [T::Real],
) {
    let (axes, plane, p) = (of.size.len(), of.plane(), of.points);
    if dx.is_empty() {
        return;
    }
    assert_eq!(points.len(), of.batch.len() * p * axes, "the points");
    assert_eq!(dy.len(), of.batch.len() * of.channels * p, "the cotangent");
    let parts = of.channels.div_ceil(CHANNELS);
    let images = dx.len() / (of.channels * plane);
    let dx = Disjoint::new(dx);
    pool.run(images * parts, &|i| {
        let (n, part) = (i / parts, i % parts);
        let channels = part * CHANNELS..((part + 1) * CHANNELS).min(of.channels);
        let first = (n * of.channels + channels.start) * plane;
        // SAFETY: the channels of an image are one part's alone.
        let dx = unsafe { dx.part(first, channels.len() * plane) };
        dx.fill(T::Real::ZERO);
        let mut block = Block::<T::Real>::new();
        for k in (0..of.batch.len()).filter(|k| of.batch[*k] as usize == n) {
            for from in (0..p).step_by(POINTS) {
                let m = POINTS.min(p - from);
                let taps = block.fill::<false>(of, &points[(k * p + from) * axes..][..m * axes]);
                for (dx, c) in dx.chunks_exact_mut(plane).zip(channels.clone()) {
                    let dy = &dy[(k * of.channels + c) * p + from..][..m];
                    for (j, dy) in dy.iter().enumerate() {
                        for (at, w) in block.places[j][..taps].iter().zip(&block.weights[j][..taps]) {
                            if *at != NONE {
                                dx[*at] += *w * dy.up();
                            }
                        }
                    }
                }
            }
        }
    });
}

/// The gradient of [`sample`] with respect to the points: `d[k, p, axis]` = the sum over channels of `dy` times the image's slope
/// along the axis.
///
/// # Panics
/// If a slice has another length than the sizes say.
pub fn sample_slope<T: FloatElement>(
    pool: &Pool,
    of: &Points<'_>,
    x: &[T],
    points: &[T::Real],
    dy: &[T],
    d: &mut [T::Real],
) {
    let (axes, plane, p) = (of.size.len(), of.plane(), of.points);
    if d.is_empty() {
        return;
    }
    assert_eq!(points.len(), d.len(), "a slope for each coordinate");
    let (blocks, per_part) = (p.div_ceil(POINTS), blocks_per_part(of));
    let parts = blocks.div_ceil(per_part);
    let d = Disjoint::new(d);
    pool.run(of.batch.len() * parts, &|i| {
        let (k, part) = (i / parts, i % parts);
        let image = &x[of.batch[k] as usize * of.channels * plane..][..of.channels * plane];
        let mut block = Block::<T::Real>::new();
        for b in part * per_part..((part + 1) * per_part).min(blocks) {
            let (from, m) = (b * POINTS, POINTS.min(p - b * POINTS));
            let taps = block.fill::<true>(of, &points[(k * p + from) * axes..][..m * axes]);
            // SAFETY: each block of points of each group is one part's alone.
            let d = unsafe { d.part((k * p + from) * axes, m * axes) };
            d.fill(T::Real::ZERO);
            for c in 0..of.channels {
                let x = &image[c * plane..][..plane];
                let dy = &dy[(k * of.channels + c) * p + from..][..m];
                for (j, (d, dy)) in d.chunks_exact_mut(axes).zip(dy).enumerate() {
                    for (d, slopes) in d.iter_mut().zip(&block.slopes[j]) {
                        let mut sum = T::Real::ZERO;
                        for (at, w) in block.places[j][..taps].iter().zip(&slopes[..taps]) {
                            if *at != NONE {
                                sum += *w * x[*at].up();
                            }
                        }
                        *d += sum * dy.up();
                    }
                }
            }
        }
    });
}
