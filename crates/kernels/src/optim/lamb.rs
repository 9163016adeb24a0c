//! LAMB (You et al., ICLR 2020): Adam's step, as long as a share of the parameter's norm.

use super::{CHUNK, each_element, sums_of_squares};
use crate::float::{FloatElement, Real};
use crate::pool::Pool;
use crate::simd::widest;
use remat_types::Element;

/// Hyperparameters of [`lamb`]; see there.
#[derive(Clone, Copy, Debug)]
pub struct Lamb {
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
    /// Number of this step, from 1.
    pub step: f64,
}

/// Items of workspace for a parameter of `n` elements: two sums for each part.
pub fn lamb_workspace_items(n: usize) -> usize {
    2 * n.div_ceil(CHUNK)
}

/// `m = beta1 m + (1 - beta1) g`; `v = beta2 v + (1 - beta2) g^2`;
/// `r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay p`; `p -= lr |p| / |r| r`, where a norm of 0
/// makes that share 1.
///
/// # Panics
/// If the slices differ in length, or `workspace` is too short.
pub fn lamb<T: FloatElement>(
    pool: &Pool,
    o: Lamb,
    param: &mut [T],
    m: &mut [T],
    v: &mut [T],
    grad: &[T],
    workspace: &mut [f64],
) {
    let real = T::Real::from_f64;
    let (b1, c1, b2, c2) = (real(o.beta1), real(1.0 - o.beta1), real(o.beta2), real(1.0 - o.beta2));
    let first = real(1.0 / (1.0 - o.beta1.powf(o.step)));
    let root = real(1.0 / (1.0 - o.beta2.powf(o.step)).sqrt());
    let (eps, decay) = (real(o.eps), real(o.weight_decay));
    each_element(
        pool,
        param,
        grad,
        [&mut *m, &mut *v],
        #[inline(always)]
        |p, g, [m, v]| (p, [b1 * m + c1 * g, b2 * v + c2 * (g * g)]),
    );
    let d = Direction { first, root, eps, decay };
    let sums = &mut workspace[..lamb_workspace_items(param.len())];
    let (whole, m, v) = (&*param, &*m, &*v);
    pool.chunks_mut(sums, 2, |chunk, sums| {
        let at = chunk * CHUNK;
        let n = CHUNK.min(whole.len() - at);
        let (p, m, v) = (&whole[at..][..n], &m[at..][..n], &v[at..][..n]);
        let [a, b] = widest(
            #[inline(always)]
            || {
                sums_of_squares(
                    [p, m, v],
                    #[inline(always)]
                    |[p, m, v]| [p, d.of(p, m, v)],
                )
            },
        );
        (sums[0], sums[1]) = (a, b);
    });
    let (of_p, of_r) = sums.chunks_exact(2).fold((0.0, 0.0), |(a, b), s| (a + s[0], b + s[1]));
    let share = if of_p > 0.0 && of_r > 0.0 { (of_p / of_r).sqrt() } else { 1.0 };
    let rate = real(o.lr * share);
    pool.chunks_mut(param, CHUNK, |chunk, param| {
        let at = chunk * CHUNK;
        let (m, v) = (&m[at..][..param.len()], &v[at..][..param.len()]);
        widest(
            #[inline(always)]
            || {
                for ((p, m), v) in param.iter_mut().zip(m).zip(v) {
                    *p = T::down(p.up() - rate * d.of(p.up(), m.up(), v.up()));
                }
            },
        );
    });
}

/// The parameters that turn the moments into a direction.
#[derive(Clone, Copy)]
struct Direction<R> {
    first: R,
    root: R,
    eps: R,
    decay: R,
}

impl<R: Real> Direction<R> {
    #[inline(always)]
    fn of(self, p: R, m: R, v: R) -> R {
        self.first * m / (v.sqrt() * self.root + self.eps) + self.decay * p
    }
}
