//! The transforms of F(4x4, 3x3) on vectors of channels.
//!
//! The points are 0, ±[`A`], ±2 [`A`] and infinity (Lavin and Gray, 2016, have 0, ±1, ±2). These are exact in f32, as are
//! their powers that occur, and their magnitudes lie close together, so the transforms lose less (Barabasz et al., 2020,
//! on the choice of points): the error of a convolution is that of plain sums, or, of few
//! channels, up to half as much again (example `conv_error`).
//!
//! A kernel `g` of one dimension has, at a point `p`, the number `(g0 + p g1 + p² g2) / n`, where `n` is the product of the
//! distances from the other points. Taps are packed as `h = [g0, A g1, A² g2] / (4 A⁴)`, and `4 A⁴ / n` is left to the
//! outputs, where it costs nothing; so the numbers are sums of taps alone: `h0`, `(h0 + h2) ± h1`, `(h0 + 4 h2) ± 2 h1`, `h2`.
#![allow(clippy::needless_range_loop, reason = "iterator closures do not inherit target features")]

use crate::prefetch::prefetch;
use crate::simd::{Isa, Simd, Wide};

/// The points are 0, `A`, `-A`, `B`, `-B` and infinity.
const A: f32 = 0.75;
const B: f32 = 2.0 * A;
const A2: f32 = A * A;
const B2: f32 = B * B;

/// The factors that remain for the outputs at the points. The products of distances are `4 A⁴`, `-6 A⁴` and `24 A⁴`, and the
/// factor of infinity's tap is `A²`.
const FACTOR_A: f32 = -2.0 / 3.0;
const FACTOR_B: f32 = 1.0 / 6.0;
const FACTOR_INFINITY: f32 = 4.0 * A2;

/// The factor with which a tap of a row or column is packed.
pub(super) fn tap_factor(tap: usize) -> f64 {
    let a = f64::from(A);
    a.powi(tap as i32) / (4.0 * a.powi(4))
}

/// Places of a side of an input tile, and of an output tile.
pub(super) const IN: usize = 6;
pub(super) const OUT: usize = 4;

/// Kernels of 3x3 on their way to the products, at the six points of one row: `u[i plane ..]` takes number `i` of them, a
/// row of vectors each.
pub(super) struct Weights {
    /// The first channel's nine taps, a row of vectors each, all channels one after the other.
    pub w: *const f32,
    pub channels: usize,
    /// Vectors of a row.
    pub vectors: usize,
    /// Takes the channels one after the other.
    pub u: *mut f32,
    pub plane: usize,
}

/// # Safety
/// The processor has the table's instruction set; the taps are readable, `channels` rows are writable at each of the six
/// places of `u`.
pub(super) type WeightsFn = unsafe fn(&Weights);

/// A tile of the input on its way to the products: `v[i plane ..]` takes number `i` of the 36, a vector each.
pub(super) struct Scatter {
    /// The first of 6x6 places; places of a row lie side by side.
    pub x: *const f32,
    /// From a row to the next.
    pub row: usize,
    pub v: *mut f32,
    pub plane: usize,
}

/// # Safety
/// The processor has the table's instruction set; 6x6 vectors are readable at `x`, 36 are writable at `v`.
pub(super) type ScatterFn = unsafe fn(&Scatter);

/// A tile of the output on its way from the products: `y = clamp(bias + add + ..)`, a vector each.
pub(super) struct Gather {
    pub m: *const f32,
    pub plane: usize,
    pub bias: *const f32,
    /// In the places of `y`; null for nothing. May be `y`.
    pub add: *const f32,
    pub y: *mut f32,
    pub row: usize,
    /// The part of the tile that lies in the image.
    pub rows: usize,
    pub columns: usize,
    pub clamp: Option<[f32; 2]>,
}

/// # Safety
/// The processor has the table's instruction set; 36 vectors are readable at `m`, one at `bias`, and those of the part in the
/// image at `add`; that part of `y` is writable. `rows` and `columns` are at most 4.
pub(super) type GatherFn = unsafe fn(&Gather);

/// A side of an input tile at the points.
///
/// # Safety
/// The processor has the instruction set of `V`; so for all functions below.
#[inline(always)]
unsafe fn input<V: Simd<Elem = f32>>(d: [V; IN]) -> [V; IN] {
    // SAFETY: as the caller says.
    unsafe {
        let (sum, product) = (V::splat(-(A2 + B2)), V::splat(A2 * B2));
        let (a2, b2) = (V::splat(-A2), V::splat(-B2));
        let (even_a, odd_a) = (d[2].mul_add(b2, d[4]), d[1].mul_add(b2, d[3]));
        let (even_b, odd_b) = (d[2].mul_add(a2, d[4]), d[1].mul_add(a2, d[3]));
        [
            d[0].mul_add(product, d[2].mul_add(sum, d[4])),
            odd_a.mul_add(V::splat(A), even_a),
            odd_a.mul_add(V::splat(-A), even_a),
            odd_b.mul_add(V::splat(B), even_b),
            odd_b.mul_add(V::splat(-B), even_b),
            d[1].mul_add(product, d[3].mul_add(sum, d[5])),
        ]
    }
}

/// A side of an output tile from the products at the points.
#[inline(always)]
unsafe fn output<V: Simd<Elem = f32>>(m: [V; IN]) -> [V; OUT] {
    // SAFETY: as the caller says.
    unsafe {
        let minus = V::splat(-1.0);
        let (even_a, odd_a) = (m[1].add(m[2]), m[2].mul_add(minus, m[1]));
        let (even_b, odd_b) = (m[3].add(m[4]), m[4].mul_add(minus, m[3]));
        let at = |power: f32| (V::splat(FACTOR_A * power), V::splat(FACTOR_B * power));
        let (a, b) = ([1.0, A, A2, A2 * A].map(|p| at(p).0), [1.0, B, B2, B2 * B].map(|p| at(p).1));
        let zero = V::splat(0.0);
        [
            even_a.mul_add(a[0], even_b.mul_add(b[0], m[0])),
            odd_a.mul_add(a[1], odd_b.mul_add(b[1], zero)),
            even_a.mul_add(a[2], even_b.mul_add(b[2], zero)),
            odd_a.mul_add(a[3], odd_b.mul_add(b[3], m[5].mul_add(V::splat(FACTOR_INFINITY), zero))),
        ]
    }
}

/// A side of a kernel at point number `ROW`.
#[inline(always)]
unsafe fn at_point<V: Simd<Elem = f32>, const ROW: usize>(h: [V; 3]) -> V {
    // SAFETY: as the caller says.
    unsafe {
        match ROW {
            0 => h[0],
            1 => h[0].add(h[2]).add(h[1]),
            2 => h[1].mul_add(V::splat(-1.0), h[0].add(h[2])),
            3 => h[1].mul_add(V::splat(2.0), h[2].mul_add(V::splat(4.0), h[0])),
            4 => h[1].mul_add(V::splat(-2.0), h[2].mul_add(V::splat(4.0), h[0])),
            _ => h[2],
        }
    }
}

#[inline(always)]
unsafe fn weights<V: Simd<Elem = f32>, const ROW: usize>(t: &Weights) {
    // SAFETY: the caller keeps the contract of `WeightsFn`.
    unsafe {
        let row = t.vectors * V::LANES;
        for i in 0..t.channels {
            // what comes next is prefetched while there is something to compute: a tap or two a row of points
            for tap in (ROW..9).step_by(IN) {
                prefetch(t.w.wrapping_add((9 * (t.channels + i) + tap) * row));
            }
            for j in 0..t.vectors {
                let tap = |r: usize, c: usize| V::load(t.w.add((9 * i + 3 * r + c) * row + j * V::LANES));
                let mut h = [V::splat(0.0); 3];
                for c in 0..3 {
                    h[c] = at_point::<V, ROW>([tap(0, c), tap(1, c), tap(2, c)]);
                }
                let u = t.u.add(i * row + j * V::LANES);
                at_point::<V, 0>(h).store(u);
                at_point::<V, 1>(h).store(u.add(t.plane));
                at_point::<V, 2>(h).store(u.add(2 * t.plane));
                at_point::<V, 3>(h).store(u.add(3 * t.plane));
                at_point::<V, 4>(h).store(u.add(4 * t.plane));
                at_point::<V, 5>(h).store(u.add(5 * t.plane));
            }
        }
    }
}

#[inline(always)]
unsafe fn scatter<V: Simd<Elem = f32>>(s: &Scatter) {
    // SAFETY: the caller keeps the contract of `ScatterFn`.
    unsafe {
        let zero = V::splat(0.0);
        let mut rows = [[zero; IN]; IN];
        for r in 0..IN {
            let mut d = [zero; IN];
            for c in 0..IN {
                d[c] = V::load(s.x.add(r * s.row + c * V::LANES));
            }
            rows[r] = input(d);
        }
        for c in 0..IN {
            let v = input([rows[0][c], rows[1][c], rows[2][c], rows[3][c], rows[4][c], rows[5][c]]);
            for r in 0..IN {
                v[r].store(s.v.add((r * IN + c) * s.plane));
            }
        }
    }
}

#[inline(always)]
unsafe fn gather<V: Simd<Elem = f32>>(g: &Gather) {
    // SAFETY: the caller keeps the contract of `GatherFn`.
    unsafe {
        let mut columns = [[V::splat(0.0); OUT]; IN];
        for c in 0..IN {
            let mut m = [V::splat(0.0); IN];
            for r in 0..IN {
                m[r] = V::load(g.m.add((r * IN + c) * g.plane));
            }
            columns[c] = output(m);
        }
        let bias = V::load(g.bias);
        for r in 0..g.rows.min(OUT) {
            let y = output([columns[0][r], columns[1][r], columns[2][r], columns[3][r], columns[4][r], columns[5][r]]);
            for c in 0..g.columns.min(OUT) {
                let at = r * g.row + c * V::LANES;
                let mut v = y[c].add(bias);
                if !g.add.is_null() {
                    v = v.add(V::load(g.add.add(at)));
                }
                if let Some([low, high]) = g.clamp {
                    v = v.clamp(V::splat(low), V::splat(high));
                }
                v.store(g.y.add(at));
            }
        }
    }
}

/// The transforms for one width of blocks.
#[derive(Clone, Copy)]
pub(super) struct Transforms {
    /// For each row of points.
    pub weights: [WeightsFn; IN],
    pub scatter: ScatterFn,
    pub gather: GatherFn,
}

impl Transforms {
    /// The transforms for blocks of `lanes` channels, 8 or 16.
    pub(super) fn of(lanes: usize) -> Transforms {
        macro_rules! table {
            ($module:ident, $vector:ty) => {
                Transforms {
                    weights: [
                        $module::weights::<$vector, 0>,
                        $module::weights::<$vector, 1>,
                        $module::weights::<$vector, 2>,
                        $module::weights::<$vector, 3>,
                        $module::weights::<$vector, 4>,
                        $module::weights::<$vector, 5>,
                    ],
                    scatter: $module::scatter::<$vector>,
                    gather: $module::gather::<$vector>,
                }
            };
        }
        match (lanes, Isa::best()) {
            #[cfg(target_arch = "x86_64")]
            (8, Isa::Avx2 | Isa::Avx512) => table!(avx2, std::arch::x86_64::__m256),
            #[cfg(target_arch = "x86_64")]
            (16, Isa::Avx512) => table!(avx512, std::arch::x86_64::__m512),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            (8, Isa::Neon) => table!(portable, crate::simd::neon::F32),
            (8, _) => table!(portable, Wide<f32, 8>),
            _ => table!(portable, Wide<f32, 16>),
        }
    }
}

/// Wraps the transforms in functions compiled for an instruction set.
macro_rules! compiled_for {
    ($module:ident $(, $features:literal)?) => {
        mod $module {
            use super::{Gather, Scatter, Simd, Weights};
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn weights<V: Simd<Elem = f32>, const ROW: usize>(t: &Weights) {
                // SAFETY: same contract.
                unsafe { super::weights::<V, ROW>(t) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn scatter<V: Simd<Elem = f32>>(s: &Scatter) {
                // SAFETY: same contract.
                unsafe { super::scatter::<V>(s) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn gather<V: Simd<Elem = f32>>(g: &Gather) {
                // SAFETY: same contract.
                unsafe { super::gather::<V>(g) }
            }
        }
    };
}

compiled_for!(portable);
#[cfg(target_arch = "x86_64")]
compiled_for!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled_for!(avx512, "avx512f");
