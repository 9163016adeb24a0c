//! Adafactor (Shazeer and Stern, ICML 2018): the second moment of a matrix as a product of one number a row and one a column.

use crate::float::{Disjoint, FloatElement};
use crate::pool::Pool;

/// Hyperparameters of [`adafactor`]; see there.
#[derive(Clone, Copy, Debug)]
pub struct Adafactor {
    /// Learning rate, the largest that a step has.
    pub lr: f64,
    /// Exponent of the step that gives what is new in the second moment; negative.
    pub beta2_decay: f64,
    /// The root of what a second moment is at least.
    pub eps1: f64,
    /// What the parameter's root mean square is at least.
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
    pool.chunks_mut(row, 1, |i, row| {
        let sum: f64 = sum_of(grad[i * columns..][..columns].iter().map(|g| g.to_f64()), |g| g * g);
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
        for r in 0..rows {
            let line = &grad[(matrix * rows + r) * columns + from..][..width];
            sums.iter_mut().zip(line).for_each(|(s, g)| *s += g.to_f64() * g.to_f64());
        }
        col.iter_mut().zip(sums).for_each(|(c, s)| *c = lerp(*c, s / rows as f64));
    });
    let (sums, means) = workspace.split_at_mut(2 * count * rows);
    for (matrix, mean) in means[..count].iter_mut().enumerate() {
        let own = &row[matrix * rows..][..rows];
        *mean = (own.iter().map(|r| r.to_f64()).sum::<f64>() / rows as f64).max(o.eps1);
    }
    let (row, col, means) = (&*row, &*col, &*means);
    let least = o.eps1 * o.eps1;
    let scale = |line: usize| row[line].to_f64() / means[line / rows];
    let step_of = |g: f64, scale: f64, c: T| g / (scale * c.to_f64()).max(least).sqrt();
    let line_of = |line: usize| (line * columns, &col[line / rows * columns..][..columns]);
    let before = &*param;
    pool.chunks_mut(sums, 2, |line, sums| {
        let ((at, col), scale) = (line_of(line), scale(line));
        let moves = grad[at..][..columns].iter().zip(col).map(|(g, c)| step_of(g.to_f64(), scale, *c));
        sums[0] = sum_of(moves, |u| u * u);
        sums[1] = sum_of(before[at..][..columns].iter().map(|p| p.to_f64()), |p| p * p);
    });
    let (of_u, of_p) = sums.chunks_exact(2).fold((0.0, 0.0), |(a, b), s| (a + s[0], b + s[1]));
    let rms = |sum: f64| (sum / n as f64).sqrt();
    let alpha = o.eps2.max(rms(of_p)) * o.lr.min(1.0 / o.step.sqrt());
    let rate = alpha / (rms(of_u) / o.d).max(1.0);
    let keep = 1.0 - o.lr * o.weight_decay;
    pool.chunks_mut(param, columns, |line, param| {
        let ((at, col), scale) = (line_of(line), scale(line));
        for ((p, g), c) in param.iter_mut().zip(&grad[at..][..columns]).zip(col) {
            *p = T::from_f64(p.to_f64() * keep - rate * step_of(g.to_f64(), scale, *c));
        }
    });
}

/// [`adafactor`] of a vector, whose second moment `v` is kept whole.
///
/// # Panics
/// If the slices differ in length.
pub fn adafactor_vector<T: FloatElement>(pool: &Pool, o: Adafactor, param: &mut [T], v: &mut [T], grad: &[T]) {
    let n = param.len();
    assert!(v.len() == n && grad.len() == n);
    let fresh = o.step.powf(o.beta2_decay);
    let least = o.eps1 * o.eps1;
    let mut squares = 0.0;
    for (v, g) in v.iter_mut().zip(grad) {
        let g = g.to_f64();
        *v = T::from_f64(v.to_f64() + fresh * (g * g - v.to_f64()));
        squares += g * g / v.to_f64().max(least);
    }
    let rms = |sum: f64| (sum / n.max(1) as f64).sqrt();
    let own = sum_of(param.iter().map(|p| p.to_f64()), |p| p * p);
    let alpha = o.eps2.max(rms(own)) * o.lr.min(1.0 / o.step.sqrt());
    let rate = alpha / (rms(squares) / o.d).max(1.0);
    let keep = 1.0 - o.lr * o.weight_decay;
    let v = &*v;
    pool.chunks_mut(param, super::CHUNK, |chunk, param| {
        let at = chunk * super::CHUNK;
        for ((p, v), g) in param.iter_mut().zip(&v[at..]).zip(&grad[at..]) {
            *p = T::from_f64(p.to_f64() * keep - rate * g.to_f64() / v.to_f64().max(least).sqrt());
        }
    });
}

/// The sum of `f(x)` in eight lanes.
#[inline(always)]
fn sum_of(x: impl Iterator<Item = f64>, f: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0f64; 8];
    x.enumerate().for_each(|(i, x)| sums[i % 8] += f(x));
    sums.iter().sum()
}
