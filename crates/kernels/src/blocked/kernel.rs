//! Micro-kernels on packed weights, and the tables that name them per instruction set.
#![allow(clippy::needless_range_loop, reason = "iterator closures do not inherit target features")]

use crate::prefetch::{PrefetchLines, prefetch, prefetch_l2};
use crate::simd::{Isa, Simd, Wide};

/// Columns of the tallest tile of any table.
pub(super) const MAX_COLUMNS: usize = 12;

/// A tile of outputs: some columns (places of an image, rows of a matrix) by some vectors of output channels.
///
/// `y[y_at[i] + j * y_vector ..] = sum over runs r and steps q of x[x_at[i] + run_at[r] + q] * w[..]`, where `w` has a row of
/// vectors for each step, in order. The sum begins with bias and what is to be added, or goes on from what `y` holds.
pub(super) struct Tile {
    pub x: *const f32,
    pub x_at: *const u32,
    /// Where the runs begin, and behind them what is read next.
    pub run_at: *const u32,
    pub runs: usize,
    /// Steps of a run, which lie side by side in `x`.
    pub run: usize,
    pub w: *const f32,
    pub y: *mut f32,
    pub y_at: *const u32,
    pub y_vector: usize,
    /// A row of vectors; null to go on from `y`.
    pub bias: *const f32,
    /// The summand, in the layout of `y`; null for none. May be `y`.
    pub add: *const f32,
    /// The range to which finished sums are moved.
    pub clamp: Option<[f32; 2]>,
    /// Weights that are needed next.
    pub ahead: PrefetchLines<f32>,
    /// Elements from a place to the one that is prefetched when it is read; 0 where they are in the second cache anyway.
    pub x_ahead: usize,
}

/// # Safety
/// The processor has the table's instruction set. Readable: an offset for each column at `x_at` and `y_at`, one more than
/// there are runs at `run_at`, the named places of `x`, the steps' rows of `w`, a row at `bias`, vectors at the places of `y`
/// in `add`; `y` is writable at its places, and readable without a bias.
pub(super) type TileFn = unsafe fn(&Tile);

/// Columns of a depthwise convolution that are computed at a time.
pub(super) const WIDE_COLUMNS: usize = 6;

/// A row of a depthwise convolution: `y[o] = clamp(bias + add[o] + sum over r < rows, t < taps of x[r row_step + (o stride + t
/// dilation - pad) lanes ..] w[r, t])`, a vector each, for `o < columns`; taps beside the row of `width` places are left out.
pub(super) struct DepthRow {
    /// Place 0 of the first row that a tap reads.
    pub x: *const f32,
    pub rows: usize,
    pub row_step: usize,
    pub width: usize,
    /// The taps of that first row.
    pub w: *const f32,
    pub taps: usize,
    pub stride: usize,
    pub dilation: usize,
    pub pad: usize,
    pub columns: usize,
    /// Columns whose taps all lie within the row.
    pub inner: [usize; 2],
    pub bias: *const f32,
    /// Null for nothing; may be `y`.
    pub add: *const f32,
    pub y: *mut f32,
    pub clamp: Option<[f32; 2]>,
    /// The lines that later rows read. A few columns prefetch some of them.
    pub ahead: PrefetchLines<f32>,
}

/// # Safety
/// The processor has the table's instruction set; `inner` is what its name says. Readable: `rows` rows of `width` vectors at
/// `x`, their taps at `w`, a vector at `bias`, `columns` vectors at `add`. Writable: `columns` vectors at `y`.
pub(super) type DepthFn = unsafe fn(&DepthRow);

/// A table: the module, the vector type, and the tallest tiles. Of 16 registers, sums take 8 of one vector, enough to hide the
/// latency, 12 of two and 9 of three, a row of weights up to 3, and the broadcast element one: with 12 of three the compiler
/// kept one in memory. Of 32, twice as many sums fit.
macro_rules! table {
    ($module:ident, $vector:ty, NARROW) => {
        table!($module, $vector, [1 2 3 4 5 6 7 8], [1 2 3 4 5 6], [1 2 3])
    };
    ($module:ident, $vector:ty, WIDE) => {
        table!($module, $vector, [1 2 3 4 5 6 7 8], [1 2 3 4 5 6 7 8 9 10 11 12], [1 2 3 4 5 6 7 8])
    };
    ($module:ident, $vector:ty, [$($one:literal)*], [$($two:literal)*], [$($three:literal)*]) => {
        &Kernels {
            tiles: [
                &[$($module::tile::<$vector, $one, 1>),*],
                &[$($module::tile::<$vector, $two, 2>),*],
                &[$($module::tile::<$vector, $three, 3>),*],
            ],
            depth: [
                $module::depth::<$vector, 0, 1>,
                $module::depth::<$vector, 3, 1>,
                $module::depth::<$vector, 3, 2>,
                $module::depth::<$vector, 5, 1>,
                $module::depth::<$vector, 5, 2>,
            ],
        }
    };
}

/// The kernels for one width of blocks.
pub(super) struct Kernels {
    /// `tiles[vectors - 1][columns - 1]`.
    pub tiles: [&'static [TileFn]; 3],
    /// Any kernel, then those of 3 and 5 taps in a row without dilation, each for strides 1 and 2.
    depth: [DepthFn; 5],
}

impl Kernels {
    /// The kernels for blocks of `lanes` channels, if there are any: each machine has all.
    pub(super) fn of(lanes: usize) -> Option<&'static Kernels> {
        match (lanes, Isa::best()) {
            #[cfg(target_arch = "x86_64")]
            (8, Isa::Avx2 | Isa::Avx512) => Some(table!(avx2, std::arch::x86_64::__m256, NARROW)),
            #[cfg(target_arch = "x86_64")]
            (16, Isa::Avx512) => Some(table!(avx512, std::arch::x86_64::__m512, WIDE)),
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            (8, Isa::Neon) => Some(table!(portable, crate::simd::neon::F32, NARROW)),
            (8, _) => Some(table!(portable, Wide<f32, 8>, NARROW)),
            (16, _) => Some(table!(portable, Wide<f32, 16>, WIDE)),
            _ => None,
        }
    }

    pub(super) fn depth(&self, taps: usize, stride: usize, dilation: usize) -> DepthFn {
        self.depth[match (taps, stride, dilation) {
            (3, 1, 1) => 1,
            (3, 2, 1) => 2,
            (5, 1, 1) => 3,
            (5, 2, 1) => 4,
            _ => 0,
        }]
    }
}

/// `acc[i][j] += x[i][q] * w[j]`, in vectors of `w`.
///
/// # Safety
/// The processor has the instruction set of `V`; element `q` of each `x` and `NV` vectors at `w` are readable.
#[inline(always)]
unsafe fn step<V: Simd<Elem = f32>, const MR: usize, const NV: usize>(
    x: &[*const f32; MR],
    q: usize,
    w: *const f32,
    acc: &mut [[V; NV]; MR],
) {
    // SAFETY: as the caller says.
    unsafe {
        let mut row = [V::splat(0.0); NV];
        for j in 0..NV {
            row[j] = V::load(w.add(j * V::LANES));
        }
        for i in 0..MR {
            let v = V::splat(*x[i].add(q));
            for j in 0..NV {
                acc[i][j] = v.mul_add(row[j], acc[i][j]);
            }
        }
    }
}

#[inline(always)]
unsafe fn tile<V: Simd<Elem = f32>, const MR: usize, const NV: usize>(t: &Tile) {
    // SAFETY: the caller keeps the contract of `TileFn`.
    unsafe {
        let mut acc = [[V::splat(0.0); NV]; MR];
        let mut x = [t.x; MR];
        for i in 0..MR {
            x[i] = t.x.add(*t.x_at.add(i) as usize);
            for j in 0..NV {
                let at = *t.y_at.add(i) as usize + j * t.y_vector;
                acc[i][j] = if t.bias.is_null() {
                    V::load(t.y.add(at))
                } else if t.add.is_null() {
                    V::load(t.bias.add(j * V::LANES))
                } else {
                    V::load(t.bias.add(j * V::LANES)).add(V::load(t.add.add(at)))
                };
            }
        }
        let (mut w, mut ahead) = (t.w, t.ahead);
        for r in 0..t.runs {
            let (from, next) = (*t.run_at.add(r) as usize, *t.run_at.add(r + 1) as usize);
            // all columns come to new cache lines at once, and each where no processor looks ahead
            for x in &x {
                prefetch(x.wrapping_add(next));
            }
            if t.x_ahead > 0 {
                for x in &x {
                    prefetch_l2(x.wrapping_add(from + t.x_ahead));
                }
            }
            let (mut q, end) = (from, from + t.run);
            while q + V::UNROLLED <= end {
                ahead.prefetch();
                for u in 0..V::UNROLLED {
                    step(&x, q + u, w.add(u * NV * V::LANES), &mut acc);
                }
                w = w.add(V::UNROLLED * NV * V::LANES);
                q += V::UNROLLED;
            }
            while q < end {
                step(&x, q, w, &mut acc);
                w = w.add(NV * V::LANES);
                q += 1;
            }
        }
        for i in 0..MR {
            for j in 0..NV {
                let y = t.y.add(*t.y_at.add(i) as usize + j * t.y_vector);
                clamped(acc[i][j], t.clamp).store(y);
            }
        }
    }
}

#[inline(always)]
unsafe fn clamped<V: Simd<Elem = f32>>(v: V, clamp: Option<[f32; 2]>) -> V {
    match clamp {
        // SAFETY: the caller says that the processor has the instruction set.
        Some([low, high]) => unsafe { v.clamp(V::splat(low), V::splat(high)) },
        None => v,
    }
}

/// Bias and what is added for column `o`.
#[inline(always)]
unsafe fn begin<V: Simd<Elem = f32>>(d: &DepthRow, o: usize) -> V {
    // SAFETY: the caller keeps the contract of `DepthFn`, and `o < columns`.
    unsafe {
        let bias = V::load(d.bias);
        if d.add.is_null() { bias } else { bias.add(V::load(d.add.add(o * V::LANES))) }
    }
}

/// Taps, stride and dilation of a row: constants of a kernel for `S` taps without dilation, so that its loops have fixed
/// lengths and its sums stay in registers; else those of `d`.
#[inline(always)]
fn shape<const S: usize, const STRIDE: usize>(d: &DepthRow) -> [usize; 3] {
    if S > 0 { [S, STRIDE, 1] } else { [d.taps, d.stride, d.dilation] }
}

/// `T` columns from `o` on. Their taps from `first` to before `end` lie within the row.
#[inline(always)]
unsafe fn columns<V: Simd<Elem = f32>, const T: usize>(
    d: &DepthRow,
    o: usize,
    [first, end]: [usize; 2],
    [taps, stride, dilation]: [usize; 3],
) {
    // SAFETY: the caller keeps the contract of `DepthFn`, and says that these taps lie within the row.
    unsafe {
        let mut acc = [V::splat(0.0); T];
        for j in 0..T {
            acc[j] = begin(d, o + j);
        }
        for r in 0..d.rows {
            for t in first..end {
                let w = V::load(d.w.add((r * taps + t) * V::LANES));
                let x = d.x.add(r * d.row_step + (o * stride + t * dilation - d.pad) * V::LANES);
                for j in 0..T {
                    acc[j] = V::load(x.add(j * stride * V::LANES)).mul_add(w, acc[j]);
                }
            }
        }
        for j in 0..T {
            clamped(acc[j], d.clamp).store(d.y.add((o + j) * V::LANES));
        }
    }
}

/// A column at the edge: taps beside the row are left out.
#[inline(always)]
unsafe fn edge<V: Simd<Elem = f32>>(d: &DepthRow, o: usize, [taps, stride, dilation]: [usize; 3]) {
    let place = o * stride;
    let first = d.pad.saturating_sub(place).div_ceil(dilation).min(taps);
    let end = (d.width + d.pad).saturating_sub(place).div_ceil(dilation).clamp(first, taps);
    // SAFETY: taps from `first` to before `end` lie at 0 .. width by the two lines above.
    unsafe { columns::<V, 1>(d, o, [first, end], [taps, stride, dilation]) }
}

#[inline(always)]
unsafe fn depth<V: Simd<Elem = f32>, const S: usize, const STRIDE: usize>(d: &DepthRow) {
    let ([low, high], shape) = (d.inner, shape::<S, STRIDE>(d));
    let all = [0, shape[0]];
    // SAFETY: the caller keeps the contract of `DepthFn`; inner columns have all taps within the row.
    unsafe {
        for o in 0..low {
            edge::<V>(d, o, shape);
        }
        let (mut o, mut ahead) = (low, d.ahead);
        while o + WIDE_COLUMNS <= high {
            ahead.prefetch();
            columns::<V, WIDE_COLUMNS>(d, o, all, shape);
            o += WIDE_COLUMNS;
        }
        match high - o {
            5 => columns::<V, 5>(d, o, all, shape),
            4 => columns::<V, 4>(d, o, all, shape),
            3 => columns::<V, 3>(d, o, all, shape),
            2 => columns::<V, 2>(d, o, all, shape),
            1 => columns::<V, 1>(d, o, all, shape),
            _ => {}
        }
        for o in high..d.columns {
            edge::<V>(d, o, shape);
        }
    }
}

/// Wraps the kernels in functions compiled for an instruction set.
macro_rules! compiled_for {
    ($module:ident $(, $features:literal)?) => {
        mod $module {
            use super::{DepthRow, Simd, Tile};
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn tile<V: Simd<Elem = f32>, const MR: usize, const NV: usize>(t: &Tile) {
                // SAFETY: same contract.
                unsafe { super::tile::<V, MR, NV>(t) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn depth<V: Simd<Elem = f32>, const S: usize, const STRIDE: usize>(d: &DepthRow) {
                // SAFETY: same contract.
                unsafe { super::depth::<V, S, STRIDE>(d) }
            }
        }
    };
}

compiled_for!(portable);
#[cfg(target_arch = "x86_64")]
compiled_for!(avx2, "avx2,fma");
#[cfg(target_arch = "x86_64")]
compiled_for!(avx512, "avx512f");
