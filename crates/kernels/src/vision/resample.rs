//! A sparse matrix along an axis: each place of the output is a sum of a run of places of the input.
//!
//! The runs and their weights are worked out once, in f64, into a table in the workspace ([`Table::build`]); rows of the tensor
//! share it. Runs begin and end in ascending order, so the outputs that read an input are a run, too: the transpose is a sum of
//! a run as well, in a fixed order, and no two threads add to one place.

use remat_types::Element;

use crate::float::FloatElement;
use crate::maths::Real;
use crate::pool::Pool;
use crate::simd::widest;

/// How places of the output lie on those of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Between the two neighbours of `c = o scale + shift`, which is not below 0.
    Linear {
        /// Input places from one output to the next.
        scale: f64,
        /// Where the first output lies.
        shift: f64,
    },
    /// By the four neighbours of `o scale + shift` and Keys' kernel with a = -0.75 (IEEE Trans. ASSP 29, 1981); the last place
    /// stands for those beyond it.
    Cubic {
        /// Input places from one output to the next.
        scale: f64,
        /// Where the first output lies.
        shift: f64,
    },
    /// A triangle around `(o + 1/2) scale`, at least as wide as an output, so that none of the input is left out.
    SmoothLinear {
        /// Input places from one output to the next.
        scale: f64,
    },
    /// As `SmoothLinear` with Keys' kernel, a = -0.5.
    SmoothCubic {
        /// Input places from one output to the next.
        scale: f64,
    },
    /// The mean of `floor(o size / out) .. ceil((o + 1) size / out)`.
    Mean,
    /// The sum of `kernel` places `dilation` apart from `o stride - before` on, zeros beyond the ends.
    Sum {
        /// Places that are added up.
        kernel: usize,
        /// Places from one output to the next.
        stride: usize,
        /// Places from one to the next.
        dilation: usize,
        /// Zeros before the first place.
        before: usize,
    },
}

/// A rule for an axis of `size` places that becomes one of `out`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resampling {
    /// Places of the input, at least 1 if there are outputs.
    pub size: usize,
    /// Places of the output.
    pub out: usize,
    /// How they lie.
    pub rule: Rule,
}

/// Keys' kernel.
fn keys(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

impl Resampling {
    /// The most places that an output is a sum of.
    pub fn most(&self) -> usize {
        let wide = |half: f64, scale: f64| (half * scale.max(1.0)).ceil().min(self.size as f64) as usize * 2 + 1;
        let most = match self.rule {
            Rule::Linear { .. } => 2,
            Rule::Cubic { .. } => 4,
            Rule::SmoothLinear { scale } => wide(1.0, scale),
            Rule::SmoothCubic { scale } => wide(2.0, scale),
            Rule::Mean => self.size / self.out.max(1) + 2,
            Rule::Sum { kernel, dilation, .. } => kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1),
        };
        most.min(self.size)
    }

    /// The first place that output `o` reads; the weights of it and of those behind it are put into `weights`, whose first so
    /// many count.
    fn taps(&self, o: usize, weights: &mut [f64]) -> (usize, usize) {
        let last = self.size - 1;
        let neighbours = |weights: &mut [f64], first: f64, w: &[f64]| {
            // places beyond an end are its last one
            let at = |k: usize| (first + k as f64).clamp(0.0, last as f64) as usize;
            let (start, end) = (at(0), at(w.len() - 1));
            weights[..=end - start].fill(0.0);
            for (k, w) in w.iter().enumerate() {
                weights[at(k) - start] += w;
            }
            (start, end - start + 1)
        };
        match self.rule {
            Rule::Linear { scale, shift } => {
                let c = (o as f64 * scale + shift).max(0.0);
                let part = c - c.floor();
                neighbours(weights, c.floor(), &[1.0 - part, part])
            }
            Rule::Cubic { scale, shift } => {
                let c = o as f64 * scale + shift;
                let part = c - c.floor();
                let w: [f64; 4] = std::array::from_fn(|k| keys(part + 1.0 - k as f64, -0.75));
                neighbours(weights, c.floor() - 1.0, &w)
            }
            Rule::SmoothLinear { scale } => self.smooth(o, scale, 1.0, weights, |x| (1.0 - x.abs()).max(0.0)),
            Rule::SmoothCubic { scale } => self.smooth(o, scale, 2.0, weights, |x| keys(x, -0.5)),
            Rule::Mean => {
                let (start, end) = (o * self.size / self.out, ((o + 1) * self.size).div_ceil(self.out));
                weights[..end - start].fill(1.0 / (end - start) as f64);
                (start, end - start)
            }
            Rule::Sum { kernel, stride, dilation, before } => {
                let from = o * stride;
                let start = from.saturating_sub(before).min(self.size);
                let end = (from + (kernel - 1) * dilation + 1).saturating_sub(before).clamp(start, self.size);
                for (k, w) in weights[..end - start].iter_mut().enumerate() {
                    *w = if (start + k + before - from).is_multiple_of(dilation) { 1.0 } else { 0.0 };
                }
                (start, end - start)
            }
        }
    }

    /// A filter of half width `half` around the middle of output `o`; its weights add up to 1.
    fn smooth(&self, o: usize, scale: f64, half: f64, weights: &mut [f64], f: impl Fn(f64) -> f64) -> (usize, usize) {
        let stretch = scale.max(1.0);
        let (centre, reach) = ((o as f64 + 0.5) * scale, half * stretch);
        let size = self.size as f64;
        let start = (centre - reach + 0.5).max(0.0).min(size - 1.0) as usize;
        let end =
            ((centre + reach + 0.5).min(size) as usize).clamp(start + 1, start + weights.len().min(self.size - start));
        let mut total = 0.0;
        for (k, w) in weights[..end - start].iter_mut().enumerate() {
            *w = f(((start + k) as f64 - centre + 0.5) / stretch);
            total += *w;
        }
        if total != 0.0 {
            weights[..end - start].iter_mut().for_each(|w| *w /= total);
        }
        (start, end - start)
    }
}

/// The runs and weights of a [`Resampling`].
#[derive(Clone, Copy, Debug)]
pub struct Table<'a, R> {
    most: usize,
    /// Where the run of each output begins, and how long it is.
    runs: &'a [[usize; 2]],
    /// `most` weights for each output.
    weights: &'a [R],
    /// The first output that reads each input, and the first behind it that does not.
    readers: &'a [[usize; 2]],
}

impl<'a, R: Real> Table<'a, R> {
    /// Works them out. `runs: [out]`, `weights: [out * most]`, `readers: [size]`, `scratch: [most]`.
    ///
    /// # Panics
    /// If a slice is shorter.
    pub fn build(
        plan: &Resampling,
        runs: &'a mut [[usize; 2]],
        weights: &'a mut [R],
        readers: &'a mut [[usize; 2]],
        scratch: &mut [f64],
    ) -> Table<'a, R> {
        let most = plan.most();
        for (o, run) in runs[..plan.out].iter_mut().enumerate() {
            let (start, len) = plan.taps(o, scratch);
            *run = [start, len];
            for (to, from) in weights[o * most..][..len].iter_mut().zip(&scratch[..len]) {
                *to = <R as Element>::from_f64(*from);
            }
        }
        let (mut low, mut high) = (0, 0);
        for (i, reader) in readers[..plan.size].iter_mut().enumerate() {
            while low < plan.out && runs[low][0] + runs[low][1] <= i {
                low += 1;
            }
            while high < plan.out && runs[high][0] <= i {
                high += 1;
            }
            *reader = [low, high.max(low)];
        }
        Table { most, runs, weights, readers }
    }
}

/// Elements of a row that are summed at a time.
const BLOCK: usize = 64;

/// Products that are worth a part of a pool run.
const GRAIN: usize = 16384;

/// `y[a, o, b] = sum of weights of o times x[a, i, b]`; `x: [a, size, inner]`, `y: [a, out, inner]`.
///
/// # Panics
/// If a slice has another length than these say.
pub fn resample<T: FloatElement>(pool: &Pool, table: &Table<'_, T::Real>, inner: usize, x: &[T], y: &mut [T]) {
    sums(pool, [table.readers.len(), table.runs.len()], inner, table.most, x, y, &Forward(table));
}

/// The transpose: `y[a, i, b] = sum of weights of i in o times x[a, o, b]`; `x: [a, out, inner]`, `y: [a, size, inner]`.
///
/// # Panics
/// If a slice has another length than these say.
pub fn resample_transposed<T: FloatElement>(
    pool: &Pool,
    table: &Table<'_, T::Real>,
    inner: usize,
    x: &[T],
    y: &mut [T],
) {
    sums(pool, [table.runs.len(), table.readers.len()], inner, table.most, x, y, &Back(table));
}

/// Which places each place of a result is a sum of.
trait Taps<R>: Sync {
    /// Calls `add` with the places and weights of `to`.
    fn each(&self, to: usize, add: impl FnMut(usize, R));
}

/// The taps of outputs.
struct Forward<'a, R>(&'a Table<'a, R>);

impl<R: Real> Taps<R> for Forward<'_, R> {
    #[inline(always)]
    fn each(&self, to: usize, mut add: impl FnMut(usize, R)) {
        let [start, len] = self.0.runs[to];
        for (k, w) in self.0.weights[to * self.0.most..][..len].iter().enumerate() {
            // between the places of a window whose taps lie apart is what does not count, infinite or not
            if *w != R::ZERO {
                add(start + k, *w);
            }
        }
    }
}

/// The taps of inputs.
struct Back<'a, R>(&'a Table<'a, R>);

impl<R: Real> Taps<R> for Back<'_, R> {
    #[inline(always)]
    fn each(&self, to: usize, mut add: impl FnMut(usize, R)) {
        let [low, high] = self.0.readers[to];
        for o in low..high {
            let [start, len] = self.0.runs[o];
            if to >= start + len {
                continue;
            }
            let w = self.0.weights[o * self.0.most + (to - start)];
            if w != R::ZERO {
                add(o, w);
            }
        }
    }
}

/// `y[a, to, b] = sum of w x[a, from, b]` over the pairs `(from, w)` of `to`.
fn sums<T: FloatElement>(
    pool: &Pool,
    [from, to]: [usize; 2],
    inner: usize,
    most: usize,
    x: &[T],
    y: &mut [T],
    taps: &impl Taps<T::Real>,
) {
    if y.is_empty() {
        return;
    }
    assert_eq!(x.len() / from.max(1), y.len() / to, "as many rows");
    let rows = (GRAIN / (inner * most.max(1)).max(1)).max(1);
    pool.chunks_mut(y, rows * inner, |part, y| {
        widest(
            #[inline(always)]
            || {
                for (r, y) in y.chunks_exact_mut(inner).enumerate() {
                    let row = part * rows + r;
                    let (a, to) = (row / to, row % to);
                    let x = &x[a * from * inner..][..from * inner];
                    if inner == 1 {
                        let mut sum = T::Real::ZERO;
                        taps.each(to, |i, w| sum += w * x[i].up());
                        y[0] = T::down(sum);
                        continue;
                    }
                    for (b, y) in y.chunks_mut(BLOCK).enumerate() {
                        let mut sum = [T::Real::ZERO; BLOCK];
                        taps.each(to, |i, w| {
                            let x = &x[i * inner + b * BLOCK..][..y.len()];
                            for (sum, x) in sum.iter_mut().zip(x) {
                                *sum += w * x.up();
                            }
                        });
                        for (y, sum) in y.iter_mut().zip(&sum) {
                            *y = T::down(*sum);
                        }
                    }
                }
            },
        );
    });
}
