//! Adafactor (Shazeer and Stern, ICML 2018): the second moment of a matrix as a product of one number a row and one a column.

use super::{CHUNK, sums_of_squares};
use crate::float::{Disjoint, FloatElement, Real};
use crate::pool::Pool;
use crate::simd::widest;
use remat_types::Element;

/// Hyperparameters of [`adafactor`]; see there.
#[derive(Clone, Copy, Debug)]
pub struct Adafactor {
    /// Learning rate, the largest that a step has.
    pub lr: f64,
    /// Exponent of the step that gives what is new in the second moment; negative.
    pub beta2_decay: f64,
    /// The root of what a second moment is at least.
    pub eps1: f64,
    /// The lower bound of the parameter's root mean square.
    pub eps2: f64,
    /// The largest root mean square of a step.
    pub d: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Number of this step, from 1.
    pub step: f64,
}

/// Extents of a parameter: so many matrices of so many rows and columns.
#[derive(Clone, Copy, Debug)]
pub struct Matrices {
    /// Matrices.
    pub count: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub columns: usize,
}

/// Columns whose sums are added up together.
const COLUMN_BLOCK: usize = 256;

/// Items of workspace: two sums for each row, and the mean of each matrix.
pub fn adafactor_workspace_items(x: Matrices) -> usize {
    x.count.saturating_mul(x.rows).saturating_mul(2).saturating_add(x.count)
}

/// As `torch.optim.Adafactor`, with `t` the step and `w = t^beta2_decay`: `row = (1 - w) row + w mean_column g^2`,
/// `col = (1 - w) col + w mean_row g^2`, `v = row col / max(mean row, eps1)`, `u = g / sqrt(max(v, eps1^2))`;
/// `p = p (1 - lr weight_decay) - u max(eps2, rms p) min(lr, 1 / sqrt t) / max(1, rms u / d)`.
///
/// `param, grad: [count, rows, columns]`, `row: [count, rows]`, `col: [count, columns]`. Sums are in f64, in order.
///
/// # Panics
/// If a slice has another length, or `workspace` is too short.
pub fn adafactor<T: FloatElement>(
    pool: &Pool,
    o: Adafactor,
    x: Matrices,
    param: &mut [T],
    row: &mut [T],
    col: &mut [T],
    grad: &[T],
    workspace: &mut [f64],
) {
    let Matrices { count, rows, columns } = x;
    let n = count * rows * columns;
    assert!(param.len() == n && grad.len() == n && row.len() == count * rows && col.len() == count * columns);
    if n == 0 {
        return;
    }
    let fresh = o.step.powf(o.beta2_decay);
    let lerp = |old: T, new: f64| T::from_f64(old.to_f64() + fresh * (new - old.to_f64()));
    pool.chunks_mut(row, 1, |line, row| {
        let g = &grad[line * columns..][..columns];
        let [sum, _] = widest(
            #[inline(always)]
            || {
                sums_of_squares(
                    [g, g, g],
                    #[inline(always)]
                    |[g, ..]| [g, T::Real::ZERO],
                )
            },
        );
        row[0] = lerp(row[0], sum / columns as f64);
    });
    let blocks = columns.div_ceil(COLUMN_BLOCK);
    let shared = Disjoint::new(col);
    pool.run(count * blocks, &|part| {
        let (matrix, from) = (part / blocks, part % blocks * COLUMN_BLOCK);
        let width = COLUMN_BLOCK.min(columns - from);
        // SAFETY: blocks of columns do not overlap.
        let col = unsafe { shared.part(matrix * columns + from, width) };
        let mut sums = [0.0f64; COLUMN_BLOCK];
        widest(
            #[inline(always)]
            || {
                for r in 0..rows {
                    let line = &grad[(matrix * rows + r) * columns + from..][..width];
                    sums.iter_mut().zip(line).for_each(|(s, g)| *s += g.to_f64() * g.to_f64());
                }
            },
        );
        col.iter_mut().zip(sums).for_each(|(c, s)| *c = lerp(*c, s / rows as f64));
    });
    let (sums, means) = workspace.split_at_mut(2 * count * rows);
    for (matrix, mean) in means[..count].iter_mut().enumerate() {
        let own = &row[matrix * rows..][..rows];
        *mean = (own.iter().map(|r| r.to_f64()).sum::<f64>() / rows as f64).max(o.eps1);
    }
    let (row, col, means) = (&*row, &*col, &*means);
    let real = T::Real::from_f64;
    let least = real(o.eps1 * o.eps1);
    let scale = |line: usize| real(row[line].to_f64() / means[line / rows]);
    let line_of = |line: usize| (line * columns, &col[line / rows * columns..][..columns]);
    let before = &*param;
    pool.chunks_mut(sums, 2, |line, sums| {
        let ((at, col), scale) = (line_of(line), scale(line));
        let (g, p) = (&grad[at..][..columns], &before[at..][..columns]);
        let [u, p] = widest(
            #[inline(always)]
            || {
                sums_of_squares(
                    [g, col, p],
                    #[inline(always)]
                    |[g, c, p]| [step_of(g, scale * c, least), p],
                )
            },
        );
        (sums[0], sums[1]) = (u, p);
    });
    let (of_u, of_p) = sums.chunks_exact(2).fold((0.0, 0.0), |(a, b), s| (a + s[0], b + s[1]));
    let (rate, keep) = o.rate_and_keep(of_u, of_p, n);
    let (rate, keep) = (real(rate), real(keep));
    pool.chunks_mut(param, columns, |line, param| {
        let ((at, col), scale) = (line_of(line), scale(line));
        let grad = &grad[at..][..param.len()];
        widest(
            #[inline(always)]
            || {
                for ((p, g), c) in param.iter_mut().zip(grad).zip(col) {
                    *p = T::down(p.up() * keep - rate * step_of(g.up(), scale * c.up(), least));
                }
            },
        );
    });
}

impl Adafactor {
    /// The factors of a step and of the parameter, from the sums of squares of `n` elements of both.
    fn rate_and_keep(&self, of_steps: f64, of_param: f64, n: usize) -> (f64, f64) {
        let rms = |sum: f64| (sum / n.max(1) as f64).sqrt();
        let alpha = self.eps2.max(rms(of_param)) * self.lr.min(1.0 / self.step.sqrt());
        (alpha / (rms(of_steps) / self.d).max(1.0), 1.0 - self.lr * self.weight_decay)
    }
}

/// A gradient over the root of its second moment.
#[inline(always)]
fn step_of<R: Real>(g: R, v: R, least: R) -> R {
    g / (if v > least { v } else { least }).sqrt()
}

/// [`adafactor`] of a vector, whose second moment `v` is kept whole.
///
/// # Panics
/// If the slices differ in length.
pub fn adafactor_vector<T: FloatElement>(pool: &Pool, o: Adafactor, param: &mut [T], v: &mut [T], grad: &[T]) {
    let n = param.len();
    assert!(v.len() == n && grad.len() == n);
    let real = T::Real::from_f64;
    let (fresh, least) = (o.step.powf(o.beta2_decay), real(o.eps1 * o.eps1));
    for (v, g) in v.iter_mut().zip(grad) {
        *v = T::from_f64(v.to_f64() + fresh * (g.to_f64() * g.to_f64() - v.to_f64()));
    }
    let (v, before) = (&*v, &*param);
    let [of_u, of_p] = sums_of_squares([grad, v, before], |[g, v, p]| [step_of(g, v, least), p]);
    let (rate, keep) = o.rate_and_keep(of_u, of_p, n);
    let (rate, keep) = (real(rate), real(keep));
    pool.chunks_mut(param, CHUNK, |chunk, param| {
        let at = chunk * CHUNK;
        for ((p, v), g) in param.iter_mut().zip(&v[at..]).zip(&grad[at..]) {
            *p = T::down(p.up() * keep - rate * step_of(g.up(), v.up(), least));
        }
    });
}
