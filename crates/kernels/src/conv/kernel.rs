//! Micro-kernels of convolution, and the tables that name them per instruction set.
#![allow(clippy::needless_range_loop, reason = "iterator closures do not inherit target features")]

use crate::gemm::kernel as gemm;
use crate::prefetch::prefetch;
use crate::simd::{Isa, MulAdd, Simd, Wide};
pub(super) use outer::OuterTile;

mod outer;

/// Columns of the widest panel: four vectors of sixteen.
pub(super) const MAX_COLUMNS: usize = 64;

/// Columns of a panel that lie side by side in the source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// First column in the panel, and columns.
    pub at: usize,
    pub len: usize,
    /// Place of the first one in the source while the panel is packed, then in the destination.
    pub from: usize,
    /// Row (or image) and place in it.
    pub row: usize,
    pub col: usize,
}

/// `out[p * width + run.at + j] = x[offsets[p] + run.from + j]` for `j < run.len`, for each step `p < depth` and run.
///
/// # Safety
/// The processor has the table's instruction set; runs are ordered by `at`. Readable: `depth` offsets, and `run.len` rounded
/// up to whole vectors at each named place of `x`. Writable: `depth * width` elements and one vector more at `out`.
pub(super) type Pack<T> = unsafe fn(
    depth: usize,
    x: *const T,
    offsets: *const usize,
    runs: *const Run,
    count: usize,
    out: *mut T,
    width: usize,
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

/// `y[j * y_step ..] = sum over p < taps of w[p * lanes ..] * x[j * x_step + offsets[p] ..]` for `j < count`, lane by lane, in
/// the order of `p`.
///
/// # Safety
/// The processor has the table's instruction set. Readable: `taps` vectors at `w`, offsets, and a vector at each named place
/// of `x`. Writable: a vector at each named place of `y`.
pub(super) type LaneRows<T> = unsafe fn(
    taps: usize,
    w: *const T,
    x: *const T,
    offsets: *const usize,
    x_step: usize,
    y: *mut T,
    y_step: usize,
    count: usize,
);

/// `sums[p * lanes ..] += x[i * step[0] + j * step[1] + offsets[p] ..] * d[(i * width + j) * lanes ..]` over
/// `[i, j] < size = [height, width]`, lane by lane, row by row, for the taps `p` of the kernel.
///
/// # Safety
/// As [`LaneRows`]: a vector is readable at each named place of `x`, for each `[i, j]` at `d`, and readable and writable for
/// each tap at `sums`.
pub(super) type LaneTaps<T> =
    unsafe fn(size: [usize; 2], x: *const T, offsets: *const usize, step: [usize; 2], d: *const T, sums: *mut T);

/// Rows of the largest depthwise tile.
pub(super) const ROWS: usize = 4;

/// The convolution kernels of one element type for one instruction set.
pub struct ConvKernels<T: 'static> {
    pub(super) lanes: usize,
    /// The product's kernels for the same instruction set.
    pub(super) gemm: &'static gemm::Kernels<T>,
    pub(super) pack: Pack<T>,
    /// `outer[nv - 1][mr - 1]` is a tile of `mr` rows and `nv * lanes` columns.
    pub(super) outer: &'static [&'static [OuterTile<T>]],
    /// `depth[rows - 1]` is a tile of `rows` rows.
    pub(super) depth: [DepthRows<T>; ROWS],
    /// `taps[n - 1]` holds the sums of `n` taps.
    pub(super) taps: &'static [DepthTaps<T>],
    pub(super) lane_rows: LaneRows<T>,
    /// `lane_taps[n - 1]` holds the sums of `n` taps.
    pub(super) lane_taps: &'static [LaneTaps<T>],
}

impl<T> ConvKernels<T> {
    /// These, with the product's wide tiles or its tall ones.
    pub(super) fn with_tiles(&self, wide: bool) -> ConvKernels<T> {
        ConvKernels { gemm: if wide { self.gemm } else { self.gemm.tall() }, ..*self }
    }
}

/// Steps from the one that is packed to the one that is prefetched.
const STEPS_AHEAD: usize = 8;

#[inline(always)]
unsafe fn pack<V: Simd>(
    depth: usize,
    x: *const V::Elem,
    offsets: *const usize,
    runs: *const Run,
    count: usize,
    out: *mut V::Elem,
    width: usize,
) {
    // SAFETY: the caller keeps the contract of `Pack`. What a vector writes past its run is overwritten by the next run, or
    // by the next step, or lies in the room after the panel.
    unsafe {
        if count == 1 {
            let x = x.add((*runs).from);
            match width / V::LANES {
                1 => return pack_whole::<V, 1>(depth, x, offsets, out),
                2 => return pack_whole::<V, 2>(depth, x, offsets, out),
                3 => return pack_whole::<V, 3>(depth, x, offsets, out),
                4 => return pack_whole::<V, 4>(depth, x, offsets, out),
                vectors => unreachable!("a panel of {vectors} vectors"),
            }
        }
        for p in 0..depth {
            let (x, out) = (x.add(*offsets.add(p)), out.add(p * width));
            for i in 0..count {
                let run = &*runs.add(i);
                let (x, out) = (x.add(run.from), out.add(run.at));
                V::load(x).store(out);
                for j in (V::LANES..run.len).step_by(V::LANES) {
                    V::load(x.add(j)).store(out.add(j));
                }
            }
        }
    }
}

/// `pack` of a single run that fills a panel of `NV` vectors.
///
/// # Safety
/// As [`Pack`], from the run's place on.
#[inline(always)]
unsafe fn pack_whole<V: Simd, const NV: usize>(
    depth: usize,
    x: *const V::Elem,
    offsets: *const usize,
    out: *mut V::Elem,
) {
    // SAFETY: same contract: `NV` vectors at each place, and as many in a step of the panel.
    unsafe {
        for p in 0..depth {
            // Where the source itself is read, each step lies in a page of its own, where no processor looks ahead.
            let ahead = x.wrapping_add(*offsets.add((p + STEPS_AHEAD).min(depth - 1)));
            let (x, out) = (x.add(*offsets.add(p)), out.add(p * NV * V::LANES));
            for j in 0..NV {
                prefetch(ahead.wrapping_add(j * V::LANES));
                V::load(x.add(j * V::LANES)).store(out.add(j * V::LANES));
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

/// Outputs that `lane_rows` holds at a time: enough chains to hide the latency of one.
const LANE_OUTPUTS: usize = 7;

#[inline(always)]
unsafe fn lane_outputs<V: Simd, const N: usize>(
    taps: usize,
    w: *const V::Elem,
    x: *const V::Elem,
    offsets: *const usize,
    x_step: usize,
    y: *mut V::Elem,
    y_step: usize,
) {
    // SAFETY: the caller keeps the contract of `LaneRows` for `N` outputs.
    unsafe {
        let mut acc = [V::splat(V::Elem::default()); N];
        for p in 0..taps {
            let (w, x) = (V::load(w.add(p * V::LANES)), x.add(*offsets.add(p)));
            for j in 0..N {
                acc[j] = w.mul_add(V::load(x.add(j * x_step)), acc[j]);
            }
        }
        for j in 0..N {
            acc[j].store(y.add(j * y_step));
        }
    }
}

#[inline(always)]
unsafe fn lane_rows<V: Simd>(
    taps: usize,
    w: *const V::Elem,
    mut x: *const V::Elem,
    offsets: *const usize,
    x_step: usize,
    mut y: *mut V::Elem,
    y_step: usize,
    mut count: usize,
) {
    // SAFETY: the caller keeps the contract of `LaneRows`; pointers may end a step past the last output, unread.
    unsafe {
        while count >= LANE_OUTPUTS {
            lane_outputs::<V, LANE_OUTPUTS>(taps, w, x, offsets, x_step, y, y_step);
            (x, y) = (x.wrapping_add(LANE_OUTPUTS * x_step), y.wrapping_add(LANE_OUTPUTS * y_step));
            count -= LANE_OUTPUTS;
        }
        if count >= 4 {
            lane_outputs::<V, 4>(taps, w, x, offsets, x_step, y, y_step);
            (x, y) = (x.wrapping_add(4 * x_step), y.wrapping_add(4 * y_step));
            count -= 4;
        }
        while count > 0 {
            lane_outputs::<V, 1>(taps, w, x, offsets, x_step, y, y_step);
            (x, y) = (x.wrapping_add(x_step), y.wrapping_add(y_step));
            count -= 1;
        }
    }
}

#[inline(always)]
unsafe fn lane_taps<V: Simd, const P: usize>(
    size: [usize; 2],
    x: *const V::Elem,
    offsets: *const usize,
    step: [usize; 2],
    mut d: *const V::Elem,
    sums: *mut V::Elem,
) {
    // SAFETY: the caller keeps the contract of `LaneTaps`; pointers may end a step past the last place, unread.
    unsafe {
        let mut acc = [V::splat(V::Elem::default()); P];
        let mut at = [0; P];
        for p in 0..P {
            acc[p] = V::load(sums.add(p * V::LANES));
            at[p] = *offsets.add(p);
        }
        for i in 0..size[0] {
            let mut x = x.add(i * step[0]);
            for _ in 0..size[1] {
                let dy = V::load(d);
                for p in 0..P {
                    acc[p] = dy.mul_add(V::load(x.add(at[p])), acc[p]);
                }
                d = d.add(V::LANES);
                x = x.wrapping_add(step[1]);
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
            use super::{Run, Simd};
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn pack<V: Simd>(
                depth: usize,
                x: *const V::Elem,
                offsets: *const usize,
                runs: *const Run,
                count: usize,
                out: *mut V::Elem,
                width: usize,
            ) {
                // SAFETY: same contract.
                unsafe { super::pack::<V>(depth, x, offsets, runs, count, out, width) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn outer<V: Simd, const MR: usize, const NV: usize>(
                size: [usize; 3],
                x: *const V::Elem,
                offsets: *const usize,
                step: [usize; 3],
                d: *const V::Elem,
                c: *mut V::Elem,
                ldc: usize,
                accumulate: bool,
                ahead: usize,
            ) {
                // SAFETY: same contract.
                unsafe { super::outer::outer::<V, MR, NV>(size, x, offsets, step, d, c, ldc, accumulate, ahead) }
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
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn lane_rows<V: Simd>(
                taps: usize,
                w: *const V::Elem,
                x: *const V::Elem,
                offsets: *const usize,
                x_step: usize,
                y: *mut V::Elem,
                y_step: usize,
                count: usize,
            ) {
                // SAFETY: same contract.
                unsafe { super::lane_rows::<V>(taps, w, x, offsets, x_step, y, y_step, count) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn lane_taps<V: Simd, const P: usize>(
                size: [usize; 2],
                x: *const V::Elem,
                offsets: *const usize,
                step: [usize; 2],
                d: *const V::Elem,
                sums: *mut V::Elem,
            ) {
                // SAFETY: same contract.
                unsafe { super::lane_taps::<V, P>(size, x, offsets, step, d, sums) }
            }
        }
    };
}

compiled_for!(portable);
#[cfg(target_arch = "x86_64")]
compiled_for!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled_for!(avx512, "avx512f");

/// A table: the module, the vector type, the product's kernels, the registers for vectors. These say how many vectors an outer
/// tile has and how many rows of them (no more than 8, since the kernel holds an address for each).
macro_rules! table {
    ($module:ident, $vector:ty, $gemm:expr, 16) => {
        table!($module, $vector, $gemm, [1 [1 2 3 4 5 6], 2 [1 2 3 4 5 6]])
    };
    ($module:ident, $vector:ty, $gemm:expr, 32) => {
        table!($module, $vector, $gemm, [
            1 [1 2 3 4 5 6 7 8],
            2 [1 2 3 4 5 6 7 8],
            3 [1 2 3 4 5 6 7 8],
            4 [1 2 3 4 5 6]
        ])
    };
    ($module:ident, $vector:ty, $gemm:expr, [$($vectors:literal $rows:tt),*]) => {
        ConvKernels {
            lanes: <$vector as MulAdd>::LANES,
            gemm: $gemm,
            pack: $module::pack::<$vector>,
            outer: &[$(table!(outer $module, $vector, $vectors, $rows)),*],
            depth: [
                $module::depth_rows::<$vector, 1>,
                $module::depth_rows::<$vector, 2>,
                $module::depth_rows::<$vector, 3>,
                $module::depth_rows::<$vector, 4>,
            ],
            // a kernel of 3 x 3 at once: 9 sums and 9 addresses; the compiler keeps most of them in registers
            taps: table!(taps depth_taps, $module, $vector, [1 2 3 4 5 6 7 8 9]),
            lane_rows: $module::lane_rows::<$vector>,
            lane_taps: table!(taps lane_taps, $module, $vector, [1 2 3 4 5 6 7 8 9]),
        }
    };
    (outer $module:ident, $vector:ty, $vectors:literal, [$($rows:literal)*]) => {
        &[$($module::outer::<$vector, $rows, $vectors>),*]
    };
    (taps $name:ident, $module:ident, $vector:ty, [$($taps:literal)*]) => { &[$($module::$name::<$vector, $taps>),*] };
}

/// The f32 kernels for `isa`.
pub(super) fn f32_kernels(isa: Isa) -> ConvKernels<f32> {
    let gemm = gemm::f32_kernels(isa);
    match isa {
        Isa::Portable => table!(portable, Wide<f32, 4>, gemm, 16),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => table!(avx2, std::arch::x86_64::__m256, gemm, 16),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => table!(avx512, std::arch::x86_64::__m512, gemm, 32),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon => table!(portable, crate::simd::neon::F32, gemm, 16),
    }
}

/// The f64 kernels for `isa`.
pub(super) fn f64_kernels(isa: Isa) -> ConvKernels<f64> {
    let gemm = gemm::f64_kernels(isa);
    match isa {
        Isa::Portable => table!(portable, Wide<f64, 2>, gemm, 16),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => table!(avx2, std::arch::x86_64::__m256d, gemm, 16),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => table!(avx512, std::arch::x86_64::__m512d, gemm, 32),
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon => table!(portable, crate::simd::neon::F64, gemm, 16),
    }
}

/// The portable kernels with the tiles of AVX-512, so that their blocking is tested on processors without it.
#[cfg(test)]
pub(super) fn f32_kernels_as_wide_as_avx512() -> ConvKernels<f32> {
    table!(portable, Wide<f32, 16>, gemm::f32_kernels_as_wide_as_avx512(), 32)
}
