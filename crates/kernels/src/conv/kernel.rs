//! Micro-kernels of convolution, and the tables that name them per instruction set.
#![allow(clippy::needless_range_loop, reason = "iterator closures do not inherit target features")]

use crate::simd::{Isa, Simd, Wide};

/// `c[i * ldc + j] = sum over p < depth of a[p * mr + i] * x[offsets[p] + j]`, in the order of `p`, for a tile of `mr`
/// rows and `nv * lanes` columns.
///
/// # Safety
/// The processor has the table's instruction set. Readable: `depth * mr` elements at `a`, `depth` offsets, `nv * lanes`
/// elements at each `x + offsets[p]`. Writable: as many at each `c + i * ldc`.
pub(super) type ShiftTile<T> =
    unsafe fn(depth: usize, a: *const T, x: *const T, offsets: *const usize, c: *mut T, ldc: usize);

/// `c[i * ldc + j] += sum over (h, w) of x[offsets[i] + h * row + w * step] * d[(h * width + w) * nv * lanes + j]`, in
/// row-major order of `(h, w)`, for a tile of `mr` rows and `nv * lanes` columns.
///
/// # Safety
/// The processor has the table's instruction set. Readable: `mr` offsets, the named places of `x`,
/// `height * width * nv * lanes` elements at `d`. Readable and writable: `nv * lanes` elements at each `c + i * ldc`.
pub(super) type OuterTile<T> = unsafe fn(
    size: [usize; 2],
    x: *const T,
    offsets: *const usize,
    step: [usize; 2],
    d: *const T,
    c: *mut T,
    ldc: usize,
);

/// The convolution kernels of one element type for one instruction set.
pub struct ConvKernels<T: 'static> {
    pub(super) lanes: usize,
    /// `shift[mr - 1]` is a tile of `mr` rows and `.0 * lanes` columns.
    pub(super) shift: &'static [(usize, ShiftTile<T>)],
    /// `outer[mr - 1][nv - 1]` is a tile of `mr` rows and `nv * lanes` columns.
    pub(super) outer: &'static [[OuterTile<T>; 2]],
}

impl<T> ConvKernels<T> {
    /// Columns of the widest `shift` tile.
    pub(super) fn widest_shift(&self) -> usize {
        self.shift.iter().map(|tile| tile.0 * self.lanes).max().unwrap_or(0)
    }
}

#[inline(always)]
unsafe fn shift<V: Simd, const MR: usize, const NV: usize>(
    depth: usize,
    mut a: *const V::Elem,
    x: *const V::Elem,
    offsets: *const usize,
    c: *mut V::Elem,
    ldc: usize,
) {
    // SAFETY: the caller keeps the contract of `ShiftTile`.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let mut acc = [[zero; NV]; MR];
        for p in 0..depth {
            let x = x.add(*offsets.add(p));
            let mut row = [zero; NV];
            for j in 0..NV {
                row[j] = V::load(x.add(j * V::LANES));
            }
            for i in 0..MR {
                let w = V::splat(*a.add(i));
                for j in 0..NV {
                    acc[i][j] = w.mul_add(row[j], acc[i][j]);
                }
            }
            a = a.add(MR);
        }
        for i in 0..MR {
            for j in 0..NV {
                acc[i][j].store(c.add(i * ldc + j * V::LANES));
            }
        }
    }
}

#[inline(always)]
unsafe fn outer<V: Simd, const MR: usize, const NV: usize>(
    size: [usize; 2],
    x: *const V::Elem,
    offsets: *const usize,
    step: [usize; 2],
    mut d: *const V::Elem,
    c: *mut V::Elem,
    ldc: usize,
) {
    // SAFETY: the caller keeps the contract of `OuterTile`.
    unsafe {
        let zero = V::splat(V::Elem::default());
        let mut acc = [[zero; NV]; MR];
        let mut at = [0; MR];
        for i in 0..MR {
            at[i] = *offsets.add(i);
        }
        for h in 0..size[0] {
            let mut x = x.add(h * step[0]);
            for _ in 0..size[1] {
                let mut row = [zero; NV];
                for j in 0..NV {
                    row[j] = V::load(d.add(j * V::LANES));
                }
                for i in 0..MR {
                    let w = V::splat(*x.add(at[i]));
                    for j in 0..NV {
                        acc[i][j] = w.mul_add(row[j], acc[i][j]);
                    }
                }
                d = d.add(NV * V::LANES);
                // The last step may lead out of the copy; it is not read from there.
                x = x.wrapping_add(step[1]);
            }
        }
        for i in 0..MR {
            for j in 0..NV {
                let p = c.add(i * ldc + j * V::LANES);
                V::load(p).add(acc[i][j]).store(p);
            }
        }
    }
}

/// Wraps the kernels in functions compiled for an instruction set.
macro_rules! compiled_for {
    ($module:ident $(, $features:literal)?) => {
        mod $module {
            use super::Simd;
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn shift<V: Simd, const MR: usize, const NV: usize>(
                depth: usize,
                a: *const V::Elem,
                x: *const V::Elem,
                offsets: *const usize,
                c: *mut V::Elem,
                ldc: usize,
            ) {
                // SAFETY: same contract.
                unsafe { super::shift::<V, MR, NV>(depth, a, x, offsets, c, ldc) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn outer<V: Simd, const MR: usize, const NV: usize>(
                size: [usize; 2],
                x: *const V::Elem,
                offsets: *const usize,
                step: [usize; 2],
                d: *const V::Elem,
                c: *mut V::Elem,
                ldc: usize,
            ) {
                // SAFETY: same contract.
                unsafe { super::outer::<V, MR, NV>(size, x, offsets, step, d, c, ldc) }
            }
        }
    };
}

compiled_for!(portable);
#[cfg(target_arch = "x86_64")]
compiled_for!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled_for!(avx512, "avx512f");

/// A table: the module, the vector type, `(rows, vectors)` of each shift tile, rows of each outer tile.
macro_rules! table {
    ($module:ident, $vector:ty, [$($mr:literal x $nv:literal),*], [$($rows:literal)*]) => {
        &ConvKernels {
            lanes: <$vector as Simd>::LANES,
            shift: &[$(($nv, $module::shift::<$vector, $mr, $nv>)),*],
            outer: &[$([$module::outer::<$vector, $rows, 1>, $module::outer::<$vector, $rows, 2>]),*],
        }
    };
    // 16 registers: 6 x 2 sums, 2 loads, 2 broadcasts in flight. (4 x 3 needs 17: the compiler spills a sum in the inner
    // loop, which costs half the speed.) Few rows get more columns, to hide the latency.
    (16 registers, $module:ident, $vector:ty) => {
        table!($module, $vector, [1 x 8, 2 x 4, 3 x 3, 4 x 2, 5 x 2, 6 x 2], [1 2 3 4 5 6])
    };
    // 32 registers; no more than 8 rows, since `outer` holds an address for each.
    (32 registers, $module:ident, $vector:ty) => {
        table!(
            $module, $vector, [1 x 8, 2 x 8, 3 x 6, 4 x 6, 5 x 4, 6 x 4, 7 x 3, 8 x 3], [1 2 3 4 5 6 7 8]
        )
    };
}

/// The f32 kernels for `isa`.
pub(super) fn f32_kernels(isa: Isa) -> &'static ConvKernels<f32> {
    match isa {
        Isa::Portable => table!(16 registers, portable, Wide<f32, 4>),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => table!(16 registers, avx2, std::arch::x86_64::__m256),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => table!(32 registers, avx512, std::arch::x86_64::__m512),
    }
}

/// The f64 kernels for `isa`.
pub(super) fn f64_kernels(isa: Isa) -> &'static ConvKernels<f64> {
    match isa {
        Isa::Portable => table!(16 registers, portable, Wide<f64, 2>),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => table!(16 registers, avx2, std::arch::x86_64::__m256d),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => table!(32 registers, avx512, std::arch::x86_64::__m512d),
    }
}

/// The portable kernels with the tiles of AVX-512, so that their blocking is tested on processors without it.
#[cfg(test)]
pub(super) fn f32_kernels_as_wide_as_avx512() -> &'static ConvKernels<f32> {
    table!(32 registers, portable, Wide<f32, 16>)
}
