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

/// `y[i * y_row + j] = sum over p < taps of w[p] * x[i * x_row + offsets[p] + j]` for `j < width`, in the order of `p`, for
/// the rows `i` of the tile.
///
/// # Safety
/// The processor has the table's instruction set and `width >= lanes`. Readable: `taps` elements at `w` and offsets, and
/// `width` elements at each named row of `x`. Writable: `width` elements at each row of `y`.
pub(super) type DepthRows<T> = unsafe fn(
    taps: usize,
    w: *const T,
    x: *const T,
    offsets: *const usize,
    x_row: usize,
    y: *mut T,
    y_row: usize,
    width: usize,
);

/// `sums[p * lanes + j % lanes] += x[i * x_row + offsets[p] + j] * d[i * width + j]` over `[i, j] < size`, row by row, for
/// the taps `p` of the kernel.
///
/// # Safety
/// The processor has the table's instruction set. Readable: the taps' offsets, `width` elements at each named row of `x`
/// and of `d`. Readable and writable: a vector for each tap at `sums`.
pub(super) type DepthTaps<T> =
    unsafe fn(size: [usize; 2], x: *const T, offsets: *const usize, x_row: usize, d: *const T, sums: *mut T);

/// Rows of the largest depthwise tile.
pub(super) const ROWS: usize = 4;

/// The convolution kernels of one element type for one instruction set.
pub struct ConvKernels<T: 'static> {
    pub(super) lanes: usize,
    /// `shift[mr - 1]` is a tile of `mr` rows and `.0 * lanes` columns.
    pub(super) shift: &'static [(usize, ShiftTile<T>)],
    /// `outer[mr - 1][nv - 1]` is a tile of `mr` rows and `nv * lanes` columns.
    pub(super) outer: &'static [[OuterTile<T>; 2]],
    /// `depth[rows - 1]` is a tile of `rows` rows.
    pub(super) depth: [DepthRows<T>; ROWS],
    /// `taps[n - 1]` holds the sums of `n` taps.
    pub(super) taps: &'static [DepthTaps<T>],
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

#[inline(always)]
unsafe fn depth_rows<V: Simd, const R: usize>(
    taps: usize,
    w: *const V::Elem,
    x: *const V::Elem,
    offsets: *const usize,
    x_row: usize,
    y: *mut V::Elem,
    y_row: usize,
    width: usize,
) {
    // SAFETY: the caller keeps the contract of `DepthRows`; `j + LANES <= width` at each step.
    unsafe {
        let mut j = 0;
        while j < width {
            // The last vector overlaps the one before it and computes the same again.
            j = j.min(width - V::LANES);
            let mut acc = [V::splat(V::Elem::default()); R];
            for p in 0..taps {
                let (w, x) = (V::splat(*w.add(p)), x.add(*offsets.add(p) + j));
                for i in 0..R {
                    acc[i] = w.mul_add(V::load(x.add(i * x_row)), acc[i]);
                }
            }
            for i in 0..R {
                acc[i].store(y.add(i * y_row + j));
            }
            j += V::LANES;
        }
    }
}

#[inline(always)]
unsafe fn depth_taps<V: Simd, const P: usize>(
    size: [usize; 2],
    x: *const V::Elem,
    offsets: *const usize,
    x_row: usize,
    d: *const V::Elem,
    sums: *mut V::Elem,
) {
    let [height, width] = size;
    // SAFETY: the caller keeps the contract of `DepthTaps`; the last, shorter vector of a row is loaded by its mask.
    unsafe {
        let mut acc = [V::splat(V::Elem::default()); P];
        let mut taps = [x; P];
        for p in 0..P {
            acc[p] = V::load(sums.add(p * V::LANES));
            taps[p] = x.add(*offsets.add(p));
        }
        let whole = width / V::LANES * V::LANES;
        for i in 0..height {
            let d = d.add(i * width);
            let mut j = 0;
            while j < whole {
                let dy = V::load(d.add(j));
                for p in 0..P {
                    acc[p] = dy.mul_add(V::load(taps[p].add(i * x_row + j)), acc[p]);
                }
                j += V::LANES;
            }
            if j < width {
                let dy = V::load_first(d.add(j), width - j);
                for p in 0..P {
                    acc[p] = dy.mul_add(V::load_first(taps[p].add(i * x_row + j), width - j), acc[p]);
                }
            }
        }
        for p in 0..P {
            acc[p].store(sums.add(p * V::LANES));
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
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn depth_rows<V: Simd, const R: usize>(
                taps: usize,
                w: *const V::Elem,
                x: *const V::Elem,
                offsets: *const usize,
                x_row: usize,
                y: *mut V::Elem,
                y_row: usize,
                width: usize,
            ) {
                // SAFETY: same contract.
                unsafe { super::depth_rows::<V, R>(taps, w, x, offsets, x_row, y, y_row, width) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn depth_taps<V: Simd, const P: usize>(
                size: [usize; 2],
                x: *const V::Elem,
                offsets: *const usize,
                x_row: usize,
                d: *const V::Elem,
                sums: *mut V::Elem,
            ) {
                // SAFETY: same contract.
                unsafe { super::depth_taps::<V, P>(size, x, offsets, x_row, d, sums) }
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
            depth: [
                $module::depth_rows::<$vector, 1>,
                $module::depth_rows::<$vector, 2>,
                $module::depth_rows::<$vector, 3>,
                $module::depth_rows::<$vector, 4>,
            ],
            // a kernel of 3 x 3 at once: 9 sums and 9 addresses, of which the compiler keeps most in registers
            taps: table!(taps, $module, $vector, [1 2 3 4 5 6 7 8 9]),
        }
    };
    (taps, $module:ident, $vector:ty, [$($taps:literal)*]) => { &[$($module::depth_taps::<$vector, $taps>),*] };
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
