//! Connectionist temporal classification (Graves et al., ICML 2006): sums over all alignments of a target with the steps of
//! a sequence, forwards and backwards, in logarithms.
//!
//! A target of `l` labels has `2 l + 1` states: the labels with blanks before, between and after them. From a step to the
//! next, an alignment stays, goes to the next state, or over a blank between two labels that differ.

use crate::float::{Disjoint, FloatElement, Real};
use crate::pool::Pool;
use crate::simd::widest;

/// One sequence of a batch: its target and how long it is.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Example {
    /// Where its labels begin among all.
    pub start: u64,
    /// The number of its labels.
    pub labels: u64,
    /// The number of its steps.
    pub steps: u64,
}

/// A batch of sequences.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a, T> {
    /// `[steps, n, classes]`: logarithms of probabilities.
    pub log_probs: &'a [T],
    /// The number of classes, above 0.
    pub classes: usize,
    /// The labels of all targets, each a class.
    pub labels: &'a [i64],
    /// The sequences; their targets do not overlap.
    pub examples: &'a [Example],
    /// The class that stands for no label.
    pub blank: usize,
    /// Losses that are infinite count as 0.
    pub zero_infinity: bool,
}

/// Rows of states that [`ctc`] needs of each sequence.
pub const FORWARD_ROWS: usize = 2;

/// Items of workspace for `rows` rows of the states of `n` sequences whose targets have `labels` labels together. Of more
/// than there are numbers for, the largest.
pub fn workspace_items(rows: usize, labels: usize, n: usize) -> usize {
    rows.saturating_mul(labels.saturating_mul(2).saturating_add(n))
}

/// Rows of states that [`ctc_grad`] needs of each sequence of `steps` steps.
pub fn backward_rows(steps: usize) -> usize {
    steps.saturating_add(2)
}

impl<'a, T: FloatElement> Batch<'a, T> {
    /// The logarithms of step `t` of sequence `i`.
    fn row(&self, t: usize, i: usize) -> &'a [T] {
        &self.log_probs[(t * self.examples.len() + i) * self.classes..][..self.classes]
    }

    fn target(&self, i: usize) -> &'a [i64] {
        let e = self.examples[i];
        &self.labels[e.start as usize..][..e.labels as usize]
    }

    /// Where the rows of sequence `i` lie among those of all, and how long each is.
    fn states(&self, i: usize, rows: usize) -> (usize, usize) {
        let e = self.examples[i];
        (rows * (2 * e.start as usize + i), 2 * e.labels as usize + 1)
    }
}

/// `ln(e^a + e^b + e^c)`; minus infinity if all are.
#[inline(always)]
fn log_sum<R: Real>(a: R, b: R, c: R) -> R {
    let m = if a > b { a } else { b };
    let m = if m > c { m } else { c };
    let m = if m == R::NEG_INFINITY { R::ZERO } else { m };
    m + ((a - m).exp() + (b - m).exp() + (c - m).exp()).ln()
}

/// The states of the first step.
fn begin<T: FloatElement>(states: &mut [T::Real], target: &[i64], row: &[T], blank: usize) {
    states.fill(T::Real::NEG_INFINITY);
    states[0] = row[blank].up();
    if let Some(first) = target.first() {
        states[1] = row[*first as usize].up();
    }
}

/// The states of the next step, whose logarithms are `row`.
fn advance<T: FloatElement>(last: &[T::Real], next: &mut [T::Real], target: &[i64], row: &[T], blank: usize) {
    let (none, empty) = (T::Real::NEG_INFINITY, row[blank].up());
    widest(
        #[inline(always)]
        || {
            next[0] = last[0] + empty;
            for (k, label) in target.iter().enumerate() {
                let over = if k > 0 && target[k - 1] != *label { last[2 * k - 1] } else { none };
                next[2 * k + 1] = log_sum(last[2 * k + 1], last[2 * k], over) + row[*label as usize].up();
                next[2 * k + 2] = log_sum(last[2 * k + 2], last[2 * k + 1], none) + empty;
            }
        },
    );
}

/// Minus the logarithm of the probability of the target, from the states of the last step.
fn total<R: Real>(states: &[R]) -> R {
    let n = states.len();
    let last_label = if n > 1 { states[n - 2] } else { R::NEG_INFINITY };
    -log_sum(states[n - 1], last_label, R::NEG_INFINITY)
}

/// The loss of a sequence without steps: nothing is certain, anything else impossible.
fn without_steps<R: Real>(labels: usize) -> R {
    if labels == 0 { R::ZERO } else { -R::NEG_INFINITY }
}

/// `loss[i] = -ln p(target | log_probs)` of each sequence. `workspace`: [`workspace_items`] of [`FORWARD_ROWS`].
///
/// # Panics
/// If a target, a label or a length leaves its slice, or `workspace` or `loss` is too short.
pub fn ctc<T: FloatElement>(pool: &Pool, b: Batch<'_, T>, workspace: &mut [T::Real], loss: &mut [T]) {
    let workspace = Disjoint::new(workspace);
    pool.chunks_mut(loss, 1, |i, loss| {
        let (at, n) = b.states(i, FORWARD_ROWS);
        // SAFETY: targets do not overlap, so neither do the rows of different sequences.
        let rows = unsafe { workspace.part(at, FORWARD_ROWS * n) };
        let (mut last, mut next) = rows.split_at_mut(n);
        let (target, steps) = (b.target(i), b.examples[i].steps as usize);
        let mut nll = without_steps::<T::Real>(target.len());
        if steps > 0 {
            begin(last, target, b.row(0, i), b.blank);
            for t in 1..steps {
                advance(last, next, target, b.row(t, i), b.blank);
                std::mem::swap(&mut last, &mut next);
            }
            nll = total(last);
        }
        loss[0] = T::down(if b.zero_infinity && nll == -T::Real::NEG_INFINITY { T::Real::ZERO } else { nll });
    });
}

/// The gradient of [`ctc`]: `dx[t, i, c] = -dy[i]` times the probability that an alignment of the target has class `c` at
/// step `t`; 0 beyond a sequence's steps. Of an infinite loss it is NaN, or 0 if that counts as 0.
///
/// `dx: [steps, n, classes]`, `workspace`: [`workspace_items`] of [`backward_rows`] of `steps`, the steps of `dx`.
///
/// # Panics
/// As [`ctc`].
pub fn ctc_grad<T: FloatElement>(
    pool: &Pool,
    b: Batch<'_, T>,
    steps: usize,
    dy: &[T],
    workspace: &mut [T::Real],
    dx: &mut [T],
) {
    let n = b.examples.len();
    assert!(dy.len() == n && dx.len() == steps * n * b.classes);
    let (workspace, dx) = (Disjoint::new(workspace), Disjoint::new(dx));
    pool.run(n, &|i| {
        let rows = backward_rows(steps);
        let (at, len) = b.states(i, rows);
        // SAFETY: targets do not overlap, so neither do the rows of different sequences.
        let (alpha, rest) = unsafe { workspace.part(at, rows * len) }.split_at_mut(steps * len);
        let (beta, ahead) = rest.split_at_mut(len);
        // SAFETY: rows of different sequences, or of different steps, do not overlap, and each is given back at once.
        let out = |t: usize| unsafe { dx.part((t * n + i) * b.classes, b.classes) };
        let (target, own) = (b.target(i), b.examples[i].steps as usize);
        (0..steps).for_each(|t| out(t).fill(T::down(T::Real::ZERO)));
        let mut nll = without_steps::<T::Real>(target.len());
        for t in 0..own {
            let (before, now) = alpha.split_at_mut(t * len);
            match t {
                0 => begin(&mut now[..len], target, b.row(0, i), b.blank),
                _ => advance(&before[(t - 1) * len..], &mut now[..len], target, b.row(t, i), b.blank),
            }
        }
        if own > 0 {
            nll = total(&alpha[(own - 1) * len..][..len]);
        }
        if b.zero_infinity && nll == -T::Real::NEG_INFINITY {
            return;
        }
        for t in (0..own).rev() {
            if t + 1 == own {
                finish(beta);
            } else {
                retreat(beta, ahead, target, b.row(t + 1, i), b.blank);
            }
            posterior(&alpha[t * len..][..len], beta, nll, dy[i].up(), target, b.blank, out(t));
        }
    });
}

/// Starts behind the last step: the logarithm of the remaining probability is 0 for the two states in which a sequence may end,
/// and -inf for others.
fn finish<R: Real>(beta: &mut [R]) {
    let n = beta.len();
    beta.fill(R::NEG_INFINITY);
    beta[n.saturating_sub(2)..].fill(R::ZERO);
}

/// `beta` of the step before the one whose logarithms are `row`; `ahead` is overwritten.
fn retreat<T: FloatElement>(beta: &mut [T::Real], ahead: &mut [T::Real], target: &[i64], row: &[T], blank: usize) {
    let (none, empty) = (T::Real::NEG_INFINITY, row[blank].up());
    widest(
        #[inline(always)]
        || {
            for (s, (a, b)) in ahead.iter_mut().zip(beta.iter()).enumerate() {
                *a = *b + if s % 2 == 0 { empty } else { row[target[s / 2] as usize].up() };
            }
            for (k, label) in target.iter().enumerate() {
                let over = if target.get(k + 1).is_some_and(|next| next != label) { ahead[2 * k + 3] } else { none };
                beta[2 * k] = log_sum(ahead[2 * k], ahead[2 * k + 1], none);
                beta[2 * k + 1] = log_sum(ahead[2 * k + 1], ahead[2 * k + 2], over);
            }
            beta[2 * target.len()] = ahead[2 * target.len()];
        },
    );
}

/// Takes `dy` times the probability of each state at a step from the gradient of the state's class.
fn posterior<T: FloatElement>(
    alpha: &[T::Real],
    beta: &[T::Real],
    nll: T::Real,
    dy: T::Real,
    target: &[i64],
    blank: usize,
    dx: &mut [T],
) {
    let p = |s: usize| (alpha[s] + beta[s] + nll).exp();
    let mut blanks = p(0);
    for (k, label) in target.iter().enumerate() {
        let d = &mut dx[*label as usize];
        *d = T::down(d.up() - dy * p(2 * k + 1));
        blanks += p(2 * k + 2);
    }
    dx[blank] = T::down(dx[blank].up() - dy * blanks);
}
