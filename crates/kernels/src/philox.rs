//! Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, SC 2011).
//!
//! Block `b` of stream `(key, stream)` is a pure function of those three numbers. So element `i` of a random tensor
//! depends on nothing but key and position: recomputation and any number of threads give the same bits, and no
//! generator has a state.
//!
//! Blocks are computed sixteen at a time, a lane for each, and their words turned into elements in loops over all of
//! them: both compile to vector code, and the width of vectors changes no bit. Normal numbers of f64 alone take functions
//! of the standard library.
#![allow(clippy::needless_range_loop, reason = "one index into several arrays, which the compiler unrolls")]

use crate::float::{FloatElement, Real};
use crate::maths::{ln64, sin_cos_turns};
use crate::pool::Pool;
use crate::simd::widest;
use remat_types::Element;

mod shaped;

pub use shaped::{gamma, poisson};

const ROUNDS: usize = 10;
/// Multipliers and Weyl increments of the paper, section 4.
const M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words from a 128-bit counter and a 64-bit key; ten rounds.
#[inline]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..ROUNDS {
        let p0 = u64::from(M[0]) * u64::from(c[0]);
        let p1 = u64::from(M[1]) * u64::from(c[2]);
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        k = [k[0].wrapping_add(W[0]), k[1].wrapping_add(W[1])];
    }
    c
}

/// Blocks that are computed together: two vectors of eight, so that one's products hide the other's latency.
const GROUP: usize = 16;
/// Words of a group.
const WORDS: usize = 4 * GROUP;
/// Elements of a group whose elements take two words.
const PAIRS: usize = WORDS / 2;

/// A word is the lower half of its number: a product takes no more of it, and what is above is left as it is.
const WORD: u64 = u32::MAX as u64;

/// A key for each round; see [`Stream::keys`].
type Keys = [[u64; 2]; ROUNDS];

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

    /// The keys of all rounds.
    #[inline(always)]
    fn keys(self) -> Keys {
        let mut k = [self.key as u32, (self.key >> 32) as u32];
        let mut keys = [[0; 2]; ROUNDS];
        for key in &mut keys {
            *key = k.map(u64::from);
            k = [k[0].wrapping_add(W[0]), k[1].wrapping_add(W[1])];
        }
        keys
    }

    /// The words of blocks `b .. b + GROUP`, in order.
    #[inline(always)]
    fn group(self, keys: &Keys, b: u64) -> [u32; WORDS] {
        let mut pairs = [0u64; PAIRS];
        self.blocks(
            keys,
            b,
            #[inline(always)]
            |lane, c| {
                // two words in one go, so that vectors are put in order by halves of the moves
                for i in 0..2 {
                    pairs[2 * lane + i] = ((c[2 * i] & WORD) | c[2 * i + 1] << 32).to_le();
                }
            },
        );
        let words: [u32; WORDS] = bytemuck::cast(pairs);
        words.map(u32::from_le)
    }

    /// Calls `put(lane, words)` for the blocks from `b` on; a word is the lower half of its number.
    #[inline(always)]
    fn blocks(self, keys: &Keys, b: u64, mut put: impl FnMut(usize, [u64; 4])) {
        // all rounds of a lane in one go: between loops over lanes the counters would go through memory
        for lane in 0..GROUP {
            let first = b.wrapping_add(lane as u64);
            let mut c = [first, first >> 32, self.stream, self.stream >> 32];
            for k in keys {
                let p0 = u64::from(M[0]) * (c[0] & WORD);
                let p1 = u64::from(M[1]) * (c[2] & WORD);
                c = [p1 >> 32 ^ c[1] ^ k[0], p1, p0 >> 32 ^ c[3] ^ k[1], p0];
            }
            put(lane, c);
        }
    }

    /// The words of blocks `b .. b + 16`, in order.
    pub(crate) fn words(self, b: u64) -> [u32; WORDS] {
        let mut out = [0; WORDS];
        widest(
            #[inline(always)]
            || out = self.group(&self.keys(), b),
        );
        out
    }

    /// Word `i` of the stream.
    #[inline]
    pub fn word(self, i: u64) -> u32 {
        self.block(i / 4)[(i % 4) as usize]
    }
}

/// Elements of a part of a pool run; a multiple of the elements of any group.
const CHUNK: usize = 4096;

/// Calls `f(words, ys)` for each group: `N` elements of `y`, in parallel.
fn groups<T: Copy + Default + Send, const N: usize>(
    pool: &Pool,
    s: Stream,
    y: &mut [T],
    f: impl Fn(&[u32; WORDS], &mut [T; N]) + Sync,
) {
    let keys = s.keys();
    each_group(
        pool,
        y,
        #[inline(always)]
        |b, y| f(&s.group(&keys, b), y),
    );
}

/// Calls `f(first block, ys)` for each group: `N` elements of `y`, in parallel.
#[inline(always)]
fn each_group<T: Copy + Default + Send, const N: usize>(pool: &Pool, y: &mut [T], f: impl Fn(u64, &mut [T; N]) + Sync) {
    pool.chunks_mut(y, CHUNK, |chunk, y| {
        widest(
            #[inline(always)]
            || {
                let first = (chunk * (CHUNK / N * GROUP)) as u64;
                let (whole, rest) = y.as_chunks_mut::<N>();
                let after = first + (whole.len() * GROUP) as u64;
                for (i, y) in whole.iter_mut().enumerate() {
                    f(first + (i * GROUP) as u64, y);
                }
                if !rest.is_empty() {
                    let mut all = [T::default(); N];
                    all[..rest.len()].copy_from_slice(rest);
                    f(after, &mut all);
                    rest.copy_from_slice(&all[..rest.len()]);
                }
            },
        );
    });
}

/// 24 bits of a word, in `[0, 1)`.
#[inline(always)]
fn unit_f32(word: u32) -> f64 {
    // a signed number, which more vectors convert
    f64::from((word >> 8) as i32) * (1.0 / f64::from(1u32 << 24))
}

/// 53 bits of two words, in `[0, 1)`.
#[inline(always)]
fn unit_f64(high: u32, low: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// True where the compute type of `T` is f64: two words make an element.
fn is_wide<T: FloatElement>() -> bool {
    T::REAL == remat_types::DType::F64
}

/// The largest number of `T` below `hi`; `lo` if that is below it.
fn last_below<T: FloatElement>(lo: f64, hi: f64) -> f64 {
    // far below half the distance of any two numbers at `hi`, and doubled until it is not
    let mut step = (hi.abs() * 2f64.powi(-60)).max(f64::MIN_POSITIVE);
    while step.is_finite() {
        let v = T::from_f64(hi - step).to_f64();
        if v < hi {
            return v.max(lo);
        }
        step *= 2.0;
    }
    lo
}

/// Uniform numbers in `[lo, hi)`: what would be rounded to `hi` is the number of `T` before it. Rounded to `T` otherwise.
pub fn uniform<T: FloatElement>(pool: &Pool, s: Stream, lo: f64, hi: f64, y: &mut [T]) {
    let last = last_below::<T>(lo, hi);
    let at = |u: f64| T::from_f64((lo + u * (hi - lo)).min(last));
    if is_wide::<T>() {
        groups::<T, PAIRS>(
            pool,
            s,
            y,
            #[inline(always)]
            |w, y| {
                for i in 0..PAIRS {
                    y[i] = at(unit_f64(w[2 * i], w[2 * i + 1]));
                }
            },
        );
    } else if lo == 0.0 && hi == 1.0 {
        // 24 bits are exact in the compute type, and so are they where nothing is added to them
        let unit = T::Real::from_f64(1.0 / f64::from(1u32 << 24));
        let last = T::Real::from_f64(last);
        groups::<T, WORDS>(
            pool,
            s,
            y,
            #[inline(always)]
            |w, y| {
                for i in 0..WORDS {
                    let v = T::Real::from_f64(f64::from((w[i] >> 8) as i32)) * unit;
                    // only 16 bits round to 1
                    y[i] = T::down(if size_of::<T>() == 2 && v > last { last } else { v });
                }
            },
        );
    } else {
        groups::<T, WORDS>(
            pool,
            s,
            y,
            #[inline(always)]
            |w, y| {
                for i in 0..WORDS {
                    y[i] = at(unit_f32(w[i]));
                }
            },
        );
    }
}

/// Normal numbers by Box and Muller (1958): `sqrt(-2 ln u) (cos, sin)(2 pi v)`.
///
/// `u` and `v` have 53 bits for f64, and 32 for the others, whose functions are those of [`crate::maths`], within 2^-30.
pub fn normal<T: FloatElement>(pool: &Pool, s: Stream, mean: f64, std: f64, y: &mut [T]) {
    let at = |r: f64, part: f64| T::from_f64(mean + std * r * part);
    if is_wide::<T>() {
        groups::<T, PAIRS>(pool, s, y, |w, y| {
            for (w, y) in w.as_chunks::<4>().0.iter().zip(y.as_chunks_mut::<2>().0) {
                // 1 - u lies in (0, 1], so its logarithm is finite
                let r = (-2.0 * (1.0 - unit_f64(w[0], w[1])).ln()).sqrt();
                let (sin, cos) = (std::f64::consts::TAU * unit_f64(w[2], w[3])).sin_cos();
                *y = [at(r, cos), at(r, sin)];
            }
        });
    } else {
        let keys = s.keys();
        each_group::<T, WORDS>(
            pool,
            y,
            #[inline(always)]
            |first, y| {
                let [mut u, mut v] = [[0; PAIRS]; 2];
                s.blocks(
                    &keys,
                    first,
                    #[inline(always)]
                    |lane, c| {
                        for i in 0..2 {
                            (u[2 * lane + i], v[2 * lane + i]) = (c[2 * i] as u32, c[2 * i + 1] as u32);
                        }
                    },
                );
                let [mut a, mut b] = [[T::default(); PAIRS]; 2];
                for i in 0..PAIRS {
                    let r = (-2.0 * ln64((f64::from(u[i]) + 1.0) / 4_294_967_296.0)).sqrt();
                    let (sin, cos) = sin_cos_turns(v[i].wrapping_add(1));
                    (a[i], b[i]) = (at(r, cos), at(r, sin));
                }
                for i in 0..PAIRS {
                    (y[2 * i], y[2 * i + 1]) = (a[i], b[i]);
                }
            },
        );
    }
}

/// `floor(p 2^32)`: a word below it is an event of probability `p`, to within 2^-32.
fn threshold(p: f64) -> u64 {
    (p * 4_294_967_296.0) as u64
}

/// One with probability `p`, else zero.
pub fn bernoulli<T: Element>(pool: &Pool, s: Stream, p: f64, y: &mut [T]) {
    let below = threshold(p);
    groups::<T, WORDS>(
        pool,
        s,
        y,
        #[inline(always)]
        |w, y| {
            for i in 0..WORDS {
                y[i] = T::from_i64(i64::from(u64::from(w[i]) < below));
            }
        },
    );
}

/// `y[i] = 0` with probability `p`, else `y[i] / (1 - p)`, in place.
pub fn dropout<T: FloatElement>(pool: &Pool, s: Stream, p: f64, y: &mut [T]) {
    let below = threshold(p);
    let factor = if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 };
    let factor = T::Real::from_f64(factor);
    groups::<T, WORDS>(
        pool,
        s,
        y,
        #[inline(always)]
        |w, y| {
            for i in 0..WORDS {
                let kept = T::down(y[i].up() * factor);
                y[i] = if u64::from(w[i]) < below { T::down(T::Real::ZERO) } else { kept };
            }
        },
    );
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
mod tests;
