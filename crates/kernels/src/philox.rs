//! Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011).
//!
//! Block `b` of stream `(key, stream)` is a pure function of those three numbers. So element `i` of a random tensor
//! depends on nothing but key and position: recomputation and any number of threads give the same bits, and no
//! generator has a state.

use crate::float::{FloatElement, Real};
use crate::pool::Pool;
use remat_types::Element;

/// Four random words from a 128-bit counter and a 64-bit key; ten rounds.
#[inline]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const ROUNDS: usize = 10;
    /// Multipliers and Weyl increments of the paper, section 4.
    const M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let (mut c, mut k) = (counter, key);
    for _ in 0..ROUNDS {
        let p0 = u64::from(M[0]) * u64::from(c[0]);
        let p1 = u64::from(M[1]) * u64::from(c[2]);
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        k = [k[0].wrapping_add(W[0]), k[1].wrapping_add(W[1])];
    }
    c
}

/// A stream of random blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The seed.
    pub key: u64,
    /// Which of the seed's streams.
    pub stream: u64,
}

impl Stream {
    /// Block `b`: four random words.
    #[inline]
    pub fn block(self, b: u64) -> [u32; 4] {
        let halves = |v: u64| [v as u32, (v >> 32) as u32];
        let ([b0, b1], [s0, s1]) = (halves(b), halves(self.stream));
        philox4x32([b0, b1, s0, s1], halves(self.key))
    }

    /// Word `i` of the stream.
    #[inline]
    pub fn word(self, i: u64) -> u32 {
        self.block(i / 4)[(i % 4) as usize]
    }
}

/// Elements of a part of a pool run; a multiple of the elements of any block.
const CHUNK: usize = 4096;

/// Calls `f(i, words, ys)` for each block: `per_block` elements of `y` from element `i` on, in parallel.
fn blocks<T: Send>(pool: &Pool, s: Stream, y: &mut [T], per_block: usize, f: impl Fn([u32; 4], &mut [T]) + Sync) {
    pool.chunks_mut(y, CHUNK, |chunk, y| {
        let first = (chunk * (CHUNK / per_block)) as u64;
        for (b, y) in y.chunks_mut(per_block).enumerate() {
            f(s.block(first + b as u64), y);
        }
    });
}

/// 24 bits of a word, in `[0, 1)`.
fn unit_f32(word: u32) -> f64 {
    f64::from(word >> 8) * (1.0 / f64::from(1u32 << 24))
}

/// 53 bits of two words, in `[0, 1)`.
fn unit_f64(high: u32, low: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// True where the compute type of `T` is f64: two words make an element.
fn is_wide<T: FloatElement>() -> bool {
    T::REAL == remat_types::DType::F64
}

/// Uniform numbers in `[lo, hi)`, up to rounding to `T`.
pub fn uniform<T: FloatElement>(pool: &Pool, s: Stream, lo: f64, hi: f64, y: &mut [T]) {
    let at = |u: f64| T::from_f64(lo + u * (hi - lo));
    if is_wide::<T>() {
        blocks(pool, s, y, 2, |w, y| {
            y.iter_mut().zip(w.chunks_exact(2)).for_each(|(y, w)| *y = at(unit_f64(w[0], w[1])));
        });
    } else {
        blocks(pool, s, y, 4, |w, y| y.iter_mut().zip(w).for_each(|(y, w)| *y = at(unit_f32(w))));
    }
}

/// Normal numbers by Box and Muller (1958): `sqrt(-2 ln u) (cos, sin)(2 pi v)`.
pub fn normal<T: FloatElement>(pool: &Pool, s: Stream, mean: f64, std: f64, y: &mut [T]) {
    let pair = |u: f64, v: f64| {
        let (r, (sin, cos)) = ((-2.0 * u.ln()).sqrt(), (std::f64::consts::TAU * v).sin_cos());
        [T::from_f64(mean + std * r * cos), T::from_f64(mean + std * r * sin)]
    };
    if is_wide::<T>() {
        blocks(pool, s, y, 2, |w, y| {
            // 1 - u lies in (0, 1], so its logarithm is finite
            let z = pair(1.0 - unit_f64(w[0], w[1]), unit_f64(w[2], w[3]));
            y.iter_mut().zip(z).for_each(|(y, z)| *y = z);
        });
    } else {
        blocks(pool, s, y, 4, |w, y| {
            let whole = |w: u32| (f64::from(w) + 1.0) / 4_294_967_296.0;
            let [a, b] = [pair(whole(w[0]), whole(w[1])), pair(whole(w[2]), whole(w[3]))];
            y.iter_mut().zip([a[0], a[1], b[0], b[1]]).for_each(|(y, z)| *y = z);
        });
    }
}

/// `floor(p 2^32)`: a word below it is an event of probability `p`, to within 2^-32.
fn threshold(p: f64) -> u64 {
    (p * 4_294_967_296.0) as u64
}

/// One with probability `p`, else zero.
pub fn bernoulli<T: Element>(pool: &Pool, s: Stream, p: f64, y: &mut [T]) {
    let below = threshold(p);
    blocks(pool, s, y, 4, |w, y| {
        y.iter_mut().zip(w).for_each(|(y, w)| *y = T::from_i64(i64::from(u64::from(w) < below)));
    });
}

/// `y[i] = 0` with probability `p`, else `y[i] / (1 - p)`, in place.
pub fn dropout<T: FloatElement>(pool: &Pool, s: Stream, p: f64, y: &mut [T]) {
    let below = threshold(p);
    let factor = if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 };
    let factor = T::Real::from_f64(factor);
    blocks(pool, s, y, 4, |w, y| {
        for (y, w) in y.iter_mut().zip(w) {
            *y = if u64::from(w) < below { T::down(T::Real::ZERO) } else { T::down(y.up() * factor) };
        }
    });
}

/// A random order of `0..y.len()`: Fisher and Yates' shuffle, its draws from the stream. On one thread.
pub fn permutation(s: Stream, y: &mut [i64]) {
    y.iter_mut().enumerate().for_each(|(i, y)| *y = i as i64);
    for i in (1..y.len()).rev() {
        let w = s.block(i as u64);
        let r = u64::from(w[0]) << 32 | u64::from(w[1]);
        // a multiple of 64 random bits: biased by less than 2^-64 times the length
        let j = ((u128::from(r) * (i as u128 + 1)) >> 64) as usize;
        y.swap(i, j);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123 (`kat_vectors`, philox4x32-10).
    #[test]
    fn known_answers_of_random123() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = u32::MAX;
        assert_eq!(philox4x32([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let pool = Pool::new(2);
        let s = Stream { key: 7, stream: 1 };
        let mut y = vec![0.0f32; 1 << 18];
        let moments = |y: &[f32]| {
            let n = y.len() as f64;
            let mean = y.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
            (mean, y.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n)
        };
        // five standard errors each
        normal(&pool, s, 1.0, 2.0, &mut y);
        let (m, v) = moments(&y);
        assert!((m - 1.0).abs() < 0.02 && (v - 4.0).abs() < 0.06, "{m} {v}");
        uniform(&pool, s, -1.0, 1.0, &mut y);
        let (m, v) = moments(&y);
        assert!(m.abs() < 0.006 && (v - 1.0 / 3.0).abs() < 0.003, "{m} {v}");
        y.fill(1.0);
        dropout(&pool, s, 0.25, &mut y);
        let zeros = y.iter().filter(|v| **v == 0.0).count() as f64 / y.len() as f64;
        assert!((zeros - 0.25).abs() < 0.005, "{zeros}");
    }

    #[test]
    fn an_element_depends_on_key_and_position_only() {
        let s = Stream { key: 3, stream: 9 };
        let (mut long, mut short) = (vec![0.0f64; 10_001], vec![0.0f64; 5003]);
        normal(&Pool::new(3), s, 0.0, 1.0, &mut long);
        normal(&Pool::new(1), s, 0.0, 1.0, &mut short);
        assert_eq!(long[..5003], short[..]);
        let mut order = vec![0i64; 100];
        permutation(s, &mut order);
        assert_ne!(order[..4], [0, 1, 2, 3]);
        order.sort_unstable();
        assert!(order.iter().enumerate().all(|(i, &v)| i as i64 == v));
    }
}
