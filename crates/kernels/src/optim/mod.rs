//! Optimiser updates, fused and in place: one pass over the parameter and its state.

mod adafactor;
mod elementwise;
mod lamb;
mod rows;

pub use adafactor::{Adafactor, Matrices, adafactor, adafactor_vector, adafactor_workspace_items};
pub use elementwise::{ElementStates, each_element};
pub use lamb::{Lamb, lamb, lamb_workspace_items};
pub use rows::{RowTerms, SparseAdam, rows_workspace_items, sgd_rows, sparse_adam};

use crate::float::{FloatElement, Real};
use crate::pool::Pool;
use crate::simd::widest;
use remat_types::Element;

/// Elements of a part of a pool run: big enough to be worth a thread, small enough to even out.
const CHUNK: usize = 16 * 1024;

/// Hyperparameters of [`sgd`]; see there.
#[derive(Clone, Copy, Debug)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the buffer.
    pub momentum: f64,
    /// The share by which the gradient is reduced as it enters the buffer.
    pub dampening: f64,
    /// Looks one step ahead.
    pub nesterov: bool,
    /// L2 penalty.
    pub weight_decay: f64,
    /// Goes up the gradient: `-g` stands for `g`.
    pub maximize: bool,
}

/// `g += weight_decay p; b = momentum b + (1 - dampening) g; p -= lr (nesterov ? g + momentum b : b)`.
///
/// # Panics
/// If the slices differ in length.
pub fn sgd<T: FloatElement>(pool: &Pool, s: Sgd, param: &mut [T], buffer: &mut [T], grad: &[T]) {
    assert!(param.len() == grad.len() && buffer.len() == grad.len());
    let real = T::Real::from_f64;
    let (lr, momentum, keep, decay) = (real(s.lr), real(s.momentum), real(1.0 - s.dampening), real(s.weight_decay));
    let sign = real(if s.maximize { -1.0 } else { 1.0 });
    pool.chunks2_mut(param, CHUNK, buffer, CHUNK, |chunk, param, buffer| {
        let grad = &grad[chunk * CHUNK..][..param.len()];
        widest(
            #[inline(always)]
            || {
                for ((p, b), g) in param.iter_mut().zip(buffer.iter_mut()).zip(grad) {
                    let g = sign * g.up() + decay * p.up();
                    let v = momentum * b.up() + keep * g;
                    *b = T::down(v);
                    let step = if s.nesterov { g + momentum * v } else { v };
                    *p = T::down(p.up() - lr * step);
                }
            },
        );
    });
}

/// `p -= lr (g + weight_decay p)`: [`sgd`] without momentum, hence without a buffer.
///
/// # Panics
/// If the slices differ in length.
pub fn sgd_plain<T: FloatElement>(pool: &Pool, s: Sgd, param: &mut [T], grad: &[T]) {
    assert!(param.len() == grad.len());
    let (lr, decay) = (T::Real::from_f64(s.lr), T::Real::from_f64(s.weight_decay));
    let sign = T::Real::from_f64(if s.maximize { -1.0 } else { 1.0 });
    pool.chunks_mut(param, CHUNK, |chunk, param| {
        let grad = &grad[chunk * CHUNK..][..param.len()];
        widest(
            #[inline(always)]
            || {
                for (p, g) in param.iter_mut().zip(grad) {
                    *p = T::down(p.up() - lr * (sign * g.up() + decay * p.up()));
                }
            },
        );
    });
}

/// Hyperparameters of [`adam`]; see there.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Decay acts on the parameter (AdamW) instead of the gradient (Adam).
    pub decoupled: bool,
    /// Number of this step, from 1.
    pub step: f64,
}

/// AdamW (Loshchilov and Hutter, ICLR 2019), as PyTorch computes it: `p *= 1 - lr weight_decay`;
/// `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`;
/// `p -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps)`.
///
/// # Panics
/// If the slices differ in length.
pub fn adam<T: FloatElement>(pool: &Pool, a: Adam, param: &mut [T], m: &mut [T], v: &mut [T], grad: &[T]) {
    assert!(param.len() == grad.len() && m.len() == grad.len() && v.len() == grad.len());
    let real = T::Real::from_f64;
    let (b1, c1, b2, c2) = (real(a.beta1), real(1.0 - a.beta1), real(a.beta2), real(1.0 - a.beta2));
    let rate = real(a.lr / (1.0 - a.beta1.powf(a.step)));
    let root = real(1.0 / (1.0 - a.beta2.powf(a.step)).sqrt());
    let (eps, shrink) = (real(a.eps), real(if a.decoupled { 1.0 - a.lr * a.weight_decay } else { 1.0 }));
    let decay = real(if a.decoupled { 0.0 } else { a.weight_decay });
    let v = crate::float::Disjoint::new(v);
    pool.chunks2_mut(param, CHUNK, m, CHUNK, |chunk, param, m| {
        let grad = &grad[chunk * CHUNK..][..param.len()];
        // SAFETY: chunks of different number do not overlap.
        let v = unsafe { v.part(chunk * CHUNK, param.len()) };
        widest(
            #[inline(always)]
            || {
                for (((p, m), v), g) in param.iter_mut().zip(m.iter_mut()).zip(v.iter_mut()).zip(grad) {
                    let g = g.up() + decay * p.up();
                    let (first, second) = (b1 * m.up() + c1 * g, b2 * v.up() + c2 * (g * g));
                    *m = T::down(first);
                    *v = T::down(second);
                    *p = T::down(p.up() * shrink - rate * first / (second.sqrt() * root + eps));
                }
            },
        );
    });
}

/// [`adam`] with the largest second moment so far in the place of the second moment, where that divides (Reddi et al., ICLR
/// 2018): `most = max(most, v)`. The state is the first moment, the second, and the largest.
///
/// # Panics
/// If the slices differ in length.
pub fn amsgrad<T: FloatElement>(pool: &Pool, a: Adam, param: &mut [T], state: [&mut [T]; 3], grad: &[T]) {
    let real = T::Real::from_f64;
    let (b1, c1, b2, c2) = (real(a.beta1), real(1.0 - a.beta1), real(a.beta2), real(1.0 - a.beta2));
    let rate = real(a.lr / (1.0 - a.beta1.powf(a.step)));
    let root = real(1.0 / (1.0 - a.beta2.powf(a.step)).sqrt());
    let (eps, shrink) = (real(a.eps), real(if a.decoupled { 1.0 - a.lr * a.weight_decay } else { 1.0 }));
    let decay = real(if a.decoupled { 0.0 } else { a.weight_decay });
    each_element(
        pool,
        param,
        grad,
        state,
        #[inline(always)]
        |p, g, [m, v, most]| {
            let g = g + decay * p;
            let (m, v) = (b1 * m + c1 * g, b2 * v + c2 * (g * g));
            let most = if v > most { v } else { most };
            (p * shrink - rate * m / (most.sqrt() * root + eps), [m, v, most])
        },
    );
}

/// The sums of squares of both numbers that `f` makes of three, in eight lanes of f64 each; the slices are of one length.
#[inline(always)]
fn sums_of_squares<T: FloatElement>(x: [&[T]; 3], f: impl Fn([T::Real; 3]) -> [T::Real; 2]) -> [f64; 2] {
    const LANES: usize = 8;
    let mut sums = [[0.0f64; LANES]; 2];
    let [a, b, c] = x.map(|x| x.chunks_exact(LANES));
    let rest = [a.remainder(), b.remainder(), c.remainder()];
    for ((a, b), c) in a.zip(b).zip(c) {
        for l in 0..LANES {
            let [s, t] = f([a[l].up(), b[l].up(), c[l].up()]);
            sums[0][l] += s.to_f64() * s.to_f64();
            sums[1][l] += t.to_f64() * t.to_f64();
        }
    }
    for (l, ((a, b), c)) in rest[0].iter().zip(rest[1]).zip(rest[2]).enumerate() {
        let [s, t] = f([a.up(), b.up(), c.up()]);
        sums[0][l] += s.to_f64() * s.to_f64();
        sums[1][l] += t.to_f64() * t.to_f64();
    }
    sums.map(|s| s.iter().sum())
}
