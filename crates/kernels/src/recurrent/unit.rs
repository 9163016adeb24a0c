//! The passes over the gates of a row: what a cell computes of its sums, and the gradients of that.
//!
//! Each loop takes [`LANES`] elements through all its functions, so that everything between reading and writing stays in
//! registers. All of it is inlined into the loop, or it would not be compiled for the loop's vectors.

use crate::float::{LANES, Real};
use crate::gemm::GemmElement;
use crate::maths;
use crate::simd::widest;

/// A type in which cells compute.
pub trait Unit: Real + GemmElement {
    /// `1 / (1 + e^-x)`.
    fn logistic(self) -> Self;
    /// Hyperbolic tangent.
    fn hyperbolic_tangent(self) -> Self;
}

impl Unit for f32 {
    #[inline(always)]
    fn logistic(self) -> f32 {
        maths::sigmoid_f32(self)
    }
    #[inline(always)]
    fn hyperbolic_tangent(self) -> f32 {
        maths::tanh_by_exp_m1(self)
    }
}

impl Unit for f64 {
    #[inline(always)]
    fn logistic(self) -> f64 {
        1.0 / (1.0 + (-self).exp())
    }
    #[inline(always)]
    fn hyperbolic_tangent(self) -> f64 {
        self.tanh()
    }
}

/// The elements from `at` on; zeros behind the end.
#[inline(always)]
fn load<R: Real>(x: &[R], at: usize) -> [R; LANES] {
    match x[at..].first_chunk::<LANES>() {
        Some(whole) => *whole,
        None => {
            let mut v = [R::ZERO; LANES];
            v[..x.len() - at].copy_from_slice(&x[at..]);
            v
        }
    }
}

#[inline(always)]
fn store<R: Real>(v: [R; LANES], y: &mut [R], at: usize) {
    match y[at..].first_chunk_mut::<LANES>() {
        Some(whole) => *whole = v,
        None => {
            let left = y.len() - at;
            y[at..].copy_from_slice(&v[..left]);
        }
    }
}

#[inline(always)]
fn map<R: Real>(x: [R; LANES], f: impl Fn(R) -> R) -> [R; LANES] {
    let mut y = x;
    for lane in 0..LANES {
        y[lane] = f(x[lane]);
    }
    y
}

#[inline(always)]
fn map2<R: Real>(a: [R; LANES], b: [R; LANES], f: impl Fn(R, R) -> R) -> [R; LANES] {
    let mut y = a;
    for lane in 0..LANES {
        y[lane] = f(a[lane], b[lane]);
    }
    y
}

#[inline(always)]
fn map3<R: Real>(a: [R; LANES], b: [R; LANES], c: [R; LANES], f: impl Fn(R, R, R) -> R) -> [R; LANES] {
    let mut y = a;
    for lane in 0..LANES {
        y[lane] = f(a[lane], b[lane], c[lane]);
    }
    y
}

/// The sums of a gate with their bias.
#[inline(always)]
fn sum<R: Real>(gate: &[R], bias: &[R], at: usize) -> [R; LANES] {
    map2(load(gate, at), load(bias, at), |a, b| a + b)
}

#[inline(always)]
fn sigmoid<R: Unit>(x: [R; LANES]) -> [R; LANES] {
    map(x, R::logistic)
}

#[inline(always)]
fn tanh<R: Unit>(x: [R; LANES]) -> [R; LANES] {
    map(x, R::hyperbolic_tangent)
}

/// `s (1 - s)`, the slope of the sigmoid where it is `s`.
#[inline(always)]
fn slope<R: Real>(s: [R; LANES]) -> [R; LANES] {
    map(s, |s| s * (R::ONE - s))
}

/// Pieces of `x` of `n` elements each.
#[inline(always)]
fn pieces<const N: usize, R>(x: &[R], n: usize) -> [&[R]; N] {
    std::array::from_fn(|i| &x[i * n..][..n])
}

/// As [`pieces`], to be written.
#[inline(always)]
fn pieces_mut<const N: usize, R>(mut x: &mut [R], n: usize) -> [&mut [R]; N] {
    std::array::from_fn(|_| {
        let (piece, rest) = std::mem::take(&mut x).split_at_mut(n);
        x = rest;
        piece
    })
}

/// `h = f(a + bias)`.
pub(super) fn plain<R: Unit>(is_tanh: bool, gates: &[R], bias: &[R], h: &mut [R]) {
    let n = h.len();
    widest(
        #[inline(always)]
        || {
            for at in (0..n).step_by(LANES) {
                let a = sum(gates, bias, at);
                // a NaN stays
                let y = if is_tanh { tanh(a) } else { map(a, |a| if a < R::ZERO { R::ZERO } else { a }) };
                store(y, h, at);
            }
        },
    );
}

/// From sums to gates, from `c` to the next, and what comes out of the cell: `m = o tanh(c)`.
pub(super) fn lstm<R: Unit>(gates: &mut [R], bias: &[R], c: &mut [R], m: &mut [R], keeps: bool) {
    let n = m.len();
    let ([i, f, g, o], bias) = (pieces_mut::<4, R>(gates, n), pieces::<4, R>(bias, n));
    widest(
        #[inline(always)]
        || {
            for at in (0..n).step_by(LANES) {
                let (si, sf) = (sigmoid(sum(i, bias[0], at)), sigmoid(sum(f, bias[1], at)));
                let (tg, so) = (tanh(sum(g, bias[2], at)), sigmoid(sum(o, bias[3], at)));
                let kept = map2(sf, load(c, at), |f, c| f * c);
                let next = map3(si, tg, kept, |i, g, kept| i.mul_add(g, kept));
                let out = map2(so, tanh(next), |o, t| o * t);
                if keeps {
                    store(si, i, at);
                    store(sf, f, at);
                    store(tg, g, at);
                    store(so, o, at);
                }
                store(next, c, at);
                store(out, m, at);
            }
        },
    );
}

/// From sums to gates, and from `h` to the next: `(1 - z) n + z h`.
pub(super) fn gru<R: Unit>(gates: &mut [R], bias: &[R], h: &mut [R], keeps: bool) {
    let size = h.len();
    let ([n, r, z, s], bias) = (pieces_mut::<4, R>(gates, size), pieces::<4, R>(bias, size));
    widest(
        #[inline(always)]
        || {
            for at in (0..size).step_by(LANES) {
                let (sr, sz) = (sigmoid(sum(r, bias[1], at)), sigmoid(sum(z, bias[2], at)));
                let ss = sum(s, bias[3], at);
                let tn = tanh(map3(sr, ss, sum(n, bias[0], at), |r, s, n| r.mul_add(s, n)));
                let next = map3(sz, tn, load(h, at), |z, n, h| z.mul_add(h - n, n));
                if keeps {
                    store(tn, n, at);
                    store(sr, r, at);
                    store(sz, z, at);
                    store(ss, s, at);
                }
                store(next, h, at);
            }
        },
    );
}

/// The gradient of the sum from that of `y = f(sum)`.
pub(super) fn plain_gradient<R: Unit>(is_tanh: bool, y: &[R], dy: &[R], da: &mut [R]) {
    widest(
        #[inline(always)]
        || {
            for at in (0..y.len()).step_by(LANES) {
                let (y, dy) = (load(y, at), load(dy, at));
                let d = if is_tanh {
                    map2(y, dy, |y, dy| dy * (R::ONE - y * y))
                } else {
                    map2(y, dy, |y, dy| if y > R::ZERO { dy } else { R::ZERO })
                };
                store(d, da, at);
            }
        },
    );
}

/// From an LSTM's gates to the gradients of their sums, given that of `m`, and from `dc` to that of the cell before.
pub(super) fn lstm_gradient<R: Unit>(gates: &mut [R], [before, c]: [&[R]; 2], dm: &[R], dc: &mut [R]) {
    let size = dm.len();
    let [i, f, g, o] = pieces_mut::<4, R>(gates, size);
    widest(
        #[inline(always)]
        || {
            for at in (0..size).step_by(LANES) {
                let (vi, vf, vg, vo) = (load(i, at), load(f, at), load(g, at), load(o, at));
                let t = tanh(load(c, at));
                let dm = load(dm, at);
                let through = map3(dm, vo, t, |dm, o, t| dm * o * (R::ONE - t * t));
                let d = map2(load(dc, at), through, |dc, more| dc + more);
                store(map3(dm, t, slope(vo), |dm, t, s| dm * t * s), o, at);
                store(map3(d, vg, slope(vi), |d, g, s| d * g * s), i, at);
                store(map3(d, load(before, at), slope(vf), |d, c, s| d * c * s), f, at);
                store(map3(d, vi, vg, |d, i, g| d * i * (R::ONE - g * g)), g, at);
                store(map2(d, vf, |d, f| d * f), dc, at);
            }
        },
    );
}

/// From a GRU's gates to the gradients of their sums, given `dh`, which becomes what of it passes by the gates: `z dh`.
pub(super) fn gru_gradient<R: Unit>(gates: &mut [R], before: &[R], dh: &mut [R]) {
    let size = dh.len();
    let [n, r, z, s] = pieces_mut::<4, R>(gates, size);
    widest(
        #[inline(always)]
        || {
            for at in (0..size).step_by(LANES) {
                let (vn, vr, vz, vs) = (load(n, at), load(r, at), load(z, at), load(s, at));
                let d = load(dh, at);
                let of_n = map3(d, vz, vn, |d, z, n| d * (R::ONE - z) * (R::ONE - n * n));
                let of_z = map3(d, load(before, at), vn, |d, h, n| d * (h - n));
                store(of_n, n, at);
                store(map3(of_n, vs, slope(vr), |d, s, slope| d * s * slope), r, at);
                store(map2(of_z, slope(vz), |d, slope| d * slope), z, at);
                store(map2(of_n, vr, |d, r| d * r), s, at);
                store(map2(d, vz, |d, z| d * z), dh, at);
            }
        },
    );
}
