//! Gamma and Poisson numbers: by rejection, so an element takes as many blocks as it needs, each from a range of its own.

use super::{Stream, unit_f64};
use crate::float::FloatElement;
use crate::pool::Pool;

/// Elements of a part of a pool run.
const CHUNK: usize = 256;

/// The random numbers of one element: blocks `i 2^32` and those after it.
struct Draws {
    stream: Stream,
    next: u64,
}

impl Draws {
    fn of(stream: Stream, i: usize) -> Self {
        Draws { stream, next: (i as u64) << 32 }
    }

    /// Two numbers in `(0, 1]`.
    fn pair(&mut self) -> [f64; 2] {
        let w = self.stream.block(self.next);
        self.next += 1;
        [1.0 - unit_f64(w[0], w[1]), 1.0 - unit_f64(w[2], w[3])]
    }
}

/// `f(draws, x)` for each element.
fn each<T: FloatElement>(pool: &Pool, s: Stream, x: &[T], y: &mut [T], f: impl Fn(&mut Draws, f64) -> f64 + Sync) {
    pool.chunks_mut(y, CHUNK, |chunk, y| {
        for (j, y) in y.iter_mut().enumerate() {
            let i = chunk * CHUNK + j;
            *y = T::from_f64(f(&mut Draws::of(s, i), x[i].to_f64()));
        }
    });
}

/// Gamma numbers of shapes `alpha` and scale 1 (Marsaglia and Tsang, 2000), or their logarithms, which have a number where they
/// themselves are too small for one: NaN for a shape that is not positive and finite.
pub fn gamma<T: FloatElement>(pool: &Pool, s: Stream, log: bool, alpha: &[T], y: &mut [T]) {
    each(pool, s, alpha, y, |draws, alpha| {
        if !(alpha > 0.0 && alpha.is_finite()) {
            return f64::NAN;
        }
        // below 1 a number of the next shape is scaled by u^(1 / alpha), section 6 there
        let own = alpha;
        let (alpha, share) = if alpha < 1.0 { (alpha + 1.0, draws.pair()[0]) } else { (alpha, 1.0) };
        let d = alpha - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let [u, v] = draws.pair();
            let x = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
            let v = (1.0 + c * x).powi(3);
            let [u, _] = draws.pair();
            if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return if log { share.ln() / own + (d * v).ln() } else { share.powf(1.0 / own) * d * v };
            }
        }
    });
}

/// Poisson numbers of means `rate`: by products of uniform numbers below 10 (Knuth), else by transformed rejection (Hörmann,
/// 1993, algorithm PTRS). NaN for a rate that is negative or not finite.
pub fn poisson<T: FloatElement>(pool: &Pool, s: Stream, rate: &[T], y: &mut [T]) {
    each(pool, s, rate, y, |draws, rate| {
        if !(rate >= 0.0 && rate.is_finite()) {
            return f64::NAN;
        }
        if rate < 10.0 {
            let least = (-rate).exp();
            let (mut product, mut count) = (1.0, 0.0);
            loop {
                for u in draws.pair() {
                    product *= u;
                    if product <= least {
                        return count;
                    }
                    count += 1.0;
                }
            }
        }
        let (ln, root) = (rate.ln(), rate.sqrt());
        let b = 0.931 + 2.53 * root;
        let a = -0.059 + 0.02483 * b;
        let inverse = 1.1239 + 1.1328 / (b - 3.4);
        let quick = 0.9277 - 3.6224 / (b - 2.0);
        loop {
            let [u, v] = draws.pair();
            let u = u - 0.5;
            let us = 0.5 - u.abs();
            let k = ((2.0 * a / us + b) * u + rate + 0.43).floor();
            if us >= 0.07 && v <= quick {
                return k;
            }
            if k < 0.0 || us < 0.013 && v > us {
                continue;
            }
            if v.ln() + inverse.ln() - (a / (us * us) + b).ln() <= k * ln - rate - libm::lgamma(k + 1.0) {
                return k;
            }
        }
    });
}
