//! The passes over the gates of a row: what a cell computes of its sums, and the gradients of that.
//!
//! Each loop takes [`LANES`] elements through all its functions, so that everything between reading and writing stays in
//! registers.

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
        1.0 / (1.0 + maths::exp(-self))
    }
    #[inline(always)]
    fn hyperbolic_tangent(self) -> f32 {
        maths::tanh(self)
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

/// `N` slices of elements from `at` on, as arrays; defaults behind the end.
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
                let a = map2(load(gates, at), load(bias, at), |a, b| a + b);
                // a NaN stays
                let y = if is_tanh { map(a, R::hyperbolic_tangent) } else { map(a, |a| if a < R::ZERO { R::ZERO } else { a }) };
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
                let sum = |gate: &[R], k: usize| map2(load(gate, at), load(bias[k], at), |a, b| a + b);
                let [si, sf, so] = [sum(i, 0), sum(f, 1), sum(o, 3)].map(|a| map(a, R::logistic));
                let tg = map(sum(g, 2), R::hyperbolic_tangent);
                let kept = map2(sf, load(c, at), |f, c| f * c);
                let next = map3(si, tg, kept, |i, g, kept| i.mul_add(g, kept));
                let out = map2(so, map(next, R::hyperbolic_tangent), |o, t| o * t);
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
                let sum = |gate: &[R], k: usize| map2(load(gate, at), load(bias[k], at), |a, b| a + b);
                let [sr, sz] = [sum(r, 1), sum(z, 2)].map(|a| map(a, R::logistic));
                let ss = sum(s, 3);
                let tn = map(map3(sr, ss, sum(n, 0), |r, s, n| r.mul_add(s, n)), R::hyperbolic_tangent);
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

/// The gradients of the sums of an LSTM's gates from that of `m`, and from `dc` to that of the cell before.
pub(super) fn lstm_gradient<R: Unit>(
    gates: &[R],
    [before, c]: [&[R]; 2],
    dm: &[R],
    dc: &mut [R],
    dgates: &mut [R],
) {
    let size = dm.len();
    let ([i, f, g, o], [di, df, dg, d_o]) = (pieces::<4, R>(gates, size), pieces_mut::<4, R>(dgates, size));
    widest(
        #[inline(always)]
        || {
            for at in (0..size).step_by(LANES) {
                let [i, f, g, o] = [i, f, g, o].map(|gate| load(gate, at));
                let t = map(load(c, at), R::hyperbolic_tangent);
                let dm = load(dm, at);
                let through = map3(dm, o, t, |dm, o, t| dm * o * (R::ONE - t * t));
                let d = map2(load(dc, at), through, |dc, more| dc + more);
                let slope = |s: [R; LANES]| map(s, |s| s * (R::ONE - s));
                store(map3(dm, t, slope(o), |dm, t, s| dm * t * s), d_o, at);
                store(map3(d, g, slope(i), |d, g, s| d * g * s), di, at);
                store(map3(d, load(before, at), slope(f), |d, c, s| d * c * s), df, at);
                store(map3(d, i, g, |d, i, g| d * i * (R::ONE - g * g)), dg, at);
                store(map2(d, f, |d, f| d * f), dc, at);
            }
        },
    );
}

/// The gradients of the sums of a GRU's gates from `dh`, which becomes what of it passes by the gates: `z dh`.
pub(super) fn gru_gradient<R: Unit>(gates: &[R], before: &[R], dh: &mut [R], dgates: &mut [R]) {
    let size = dh.len();
    let ([n, r, z, s], [dn, dr, dz, ds]) = (pieces::<4, R>(gates, size), pieces_mut::<4, R>(dgates, size));
    widest(
        #[inline(always)]
        || {
            for at in (0..size).step_by(LANES) {
                let [n, r, z, s] = [n, r, z, s].map(|gate| load(gate, at));
                let d = load(dh, at);
                let slope = |s: [R; LANES]| map(s, |s| s * (R::ONE - s));
                let (of_n, of_z) = (
                    map3(d, z, n, |d, z, n| d * (R::ONE - z) * (R::ONE - n * n)),
                    map3(d, load(before, at), n, |d, h, n| d * (h - n)),
                );
                store(of_n, dn, at);
                store(map3(of_n, s, slope(r), |d, s, slope| d * s * slope), dr, at);
                store(map2(of_z, slope(z), |d, slope| d * slope), dz, at);
                store(map2(of_n, r, |d, r| d * r), ds, at);
                store(map2(d, z, |d, z| d * z), dh, at);
            }
        },
    );
}
