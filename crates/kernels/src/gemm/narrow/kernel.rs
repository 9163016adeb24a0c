//! Kernels of narrow types: conversions while packing, and the tables.
//!
//! Floats of 16 bits are packed as f32. Integers of 8 and 16 bits are packed as *pairs*: two steps of `k`, as 16-bit
//! integers, in one element (`simd::narrow`). An unsigned 16-bit integer is taken for the signed one of the same bits:
//! modulo 2^16 their products are equal.

use std::num::Wrapping;

use super::super::kernel::{AddRows, Dot, Kernels, Tile, f32_kernels, portable, tiles};
#[cfg(target_arch = "x86_64")]
use super::super::kernel::{avx2, avx2_f16c, avx512, avx512_vnni};
use crate::gemm::GemmElement;
use crate::simd::{Isa, LoadAs, MulAdd, PairLanes, Wide};
use crate::transpose::move_short;

/// `n` elements of `x` along `k`, packed.
///
/// # Safety
/// The processor has the table's instruction set; `x` is readable for `n`, `out` writable for the packed ones.
pub(crate) type Along<T, S> = unsafe fn(n: usize, x: *const T, out: *mut S);

/// `n` elements of as many rows or columns, packed: of `steps` steps of `k`, `stride` apart, at most the table's depth.
///
/// # Safety
/// The processor has the table's instruction set. Each step of `x` is readable and `out` writable for `room >= n`
/// elements; of `out`, those from `n` on hold anything afterwards.
pub(crate) type Across<T, S> = unsafe fn(n: usize, x: *const T, stride: isize, steps: usize, room: usize, out: *mut S);

/// The kernels of a type whose products are summed in another.
pub struct NarrowKernels<T: GemmElement> {
    /// Elements in a vector of a tile.
    pub(super) lanes: usize,
    /// As those of [`super::super::kernel::Kernels`], of packed elements.
    pub(super) tiles: &'static [&'static [Tile<T::Sum>]],
    /// Steps of `k` in a packed element.
    pub(super) depth: usize,
    /// The kernels of the sums' own type, for operands that are widened and not packed; where those are not pairs.
    pub(in crate::gemm) in_place: Option<&'static Kernels<T::Sum>>,
    pub(in crate::gemm) along: Along<T, T::Sum>,
    pub(super) across: Across<T, T::Sum>,
    /// For products of one row or column; their `x` is converted, and not packed.
    pub(super) add_rows: AddRows<T::Sum, T>,
    pub(super) dot: Dot<T::Sum, T>,
}

impl<T: GemmElement> Clone for NarrowKernels<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: GemmElement> Copy for NarrowKernels<T> {}

impl<T: GemmElement> NarrowKernels<T> {
    /// Rows of the full tile.
    pub(super) fn mr(&self) -> usize {
        self.tiles.len()
    }
    /// Columns of the full tile.
    pub(super) fn nr(&self) -> usize {
        self.tiles[0].len() * self.lanes
    }
}

/// Lanes of the widest vector.
const MAX_LANES: usize = 16;

/// # Safety
/// As [`Across`], for one step.
#[inline(always)]
unsafe fn widen<V: LoadAs<T>, T: GemmElement<Sum = V::Elem>>(n: usize, x: *const T, room: usize, out: *mut T::Sum) {
    let mut i = 0;
    // SAFETY: whole vectors end within `room`; of the last one, if it does not, the elements below `n` are moved.
    unsafe {
        while i < n {
            if i + V::LANES <= room {
                V::load_as(x.add(i)).store(out.add(i));
            } else {
                let (mut from, mut to) = ([T::default(); MAX_LANES], [T::Sum::default(); MAX_LANES]);
                move_short(x.add(i), from.as_mut_ptr(), n - i);
                V::load_as(from.as_ptr()).store(to.as_mut_ptr());
                move_short(to.as_ptr(), out.add(i), n - i);
            }
            i += V::LANES;
        }
    }
}

/// An integer that a pair can hold.
pub(crate) trait PairElement: GemmElement<Sum = Wrapping<i32>> {
    fn half(self) -> i16;
}
macro_rules! pair_element {
    ($($t:ident)*) => {$(
        impl PairElement for $t {
            #[inline(always)]
            fn half(self) -> i16 { self as i16 }
        }
    )*};
}
pair_element!(i8 i16 u8 u16);

#[inline(always)]
fn pair<T: PairElement>(x: T, y: T) -> Wrapping<i32> {
    Wrapping(i32::from(x.half() as u16) | i32::from(y.half()) << 16)
}

/// Pairs that are made at a time, a length that the compiler turns into one or two vectors.
const BLOCK: usize = 16;

/// # Safety
/// As [`Along`].
#[inline(always)]
unsafe fn pairs_along<T: PairElement>(n: usize, x: *const T, out: *mut Wrapping<i32>) {
    let mut i = 0;
    // SAFETY: elements below `n`, and the pairs of them.
    unsafe {
        while i + 2 * BLOCK <= n {
            let x = x.add(i).cast::<[[T; 2]; BLOCK]>().read_unaligned();
            out.add(i / 2).cast::<[Wrapping<i32>; BLOCK]>().write_unaligned(x.map(|[x, y]| pair(x, y)));
            i += 2 * BLOCK;
        }
        while i < n {
            let last = if i + 1 < n { *x.add(i + 1) } else { T::default() };
            *out.add(i / 2) = pair(*x.add(i), last);
            i += 2;
        }
    }
}

/// # Safety
/// As [`Across`].
#[inline(always)]
unsafe fn pairs_across<T: PairElement>(
    n: usize,
    x: *const T,
    stride: isize,
    steps: usize,
    room: usize,
    out: *mut Wrapping<i32>,
) {
    const SHORT: usize = BLOCK / 2;
    let mut i = 0;
    // SAFETY: blocks end within `room`, single elements are below `n`; the second step is read only if there is one.
    unsafe {
        while i < n && i + SHORT <= room {
            let first = x.add(i).cast::<[T; SHORT]>();
            let second = if steps == 2 {
                first.byte_offset(stride * size_of::<T>() as isize).read_unaligned()
            } else {
                [T::default(); SHORT]
            };
            let (first, mut pairs) = (first.read_unaligned(), [Wrapping(0); SHORT]);
            for j in 0..SHORT {
                pairs[j] = pair(first[j], second[j]);
            }
            out.add(i).cast::<[Wrapping<i32>; SHORT]>().write_unaligned(pairs);
            i += SHORT;
        }
        while i < n {
            let second = if steps == 2 { *x.offset(stride + i as isize) } else { T::default() };
            *out.add(i) = pair(*x.add(i), second);
            i += 1;
        }
    }
}

/// Wraps the conversions in functions compiled for an instruction set.
macro_rules! conversions_for {
    ($module:ident $(, $features:literal)?) => {
        mod $module {
            use super::{GemmElement, LoadAs, PairElement, Wrapping};
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn along<V: LoadAs<T>, T: GemmElement<Sum = V::Elem>>(n: usize, x: *const T, out: *mut T::Sum) {
                // SAFETY: same contract.
                unsafe { super::widen::<V, T>(n, x, n, out) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn across<V: LoadAs<T>, T: GemmElement<Sum = V::Elem>>(
                n: usize,
                x: *const T,
                _stride: isize,
                _steps: usize,
                room: usize,
                out: *mut T::Sum,
            ) {
                // SAFETY: same contract; the depth is 1.
                unsafe { super::widen::<V, T>(n, x, room, out) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn pairs_along<T: PairElement>(n: usize, x: *const T, out: *mut Wrapping<i32>) {
                // SAFETY: same contract.
                unsafe { super::pairs_along(n, x, out) }
            }
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn pairs_across<T: PairElement>(
                n: usize,
                x: *const T,
                stride: isize,
                steps: usize,
                room: usize,
                out: *mut Wrapping<i32>,
            ) {
                // SAFETY: same contract.
                unsafe { super::pairs_across(n, x, stride, steps, room, out) }
            }
        }
    };
}

conversions_for!(convert);
#[cfg(target_arch = "x86_64")]
conversions_for!(convert_avx2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
conversions_for!(convert_avx512, "avx512f");

/// A table: the modules, the vector of the tiles and that of single rows.
macro_rules! floats {
    ($module:ident, $convert:ident, $vector:ty, $isa:expr) => {
        NarrowKernels {
            lanes: <$vector as MulAdd>::LANES,
            tiles: f32_kernels($isa).tiles,
            depth: 1,
            in_place: Some(f32_kernels($isa).tall()),
            along: $convert::along::<$vector, T>,
            across: $convert::across::<$vector, T>,
            add_rows: $module::add_rows::<$vector, T>,
            dot: $module::dot::<$vector, T>,
        }
    };
}

/// The kernels of f16 or bf16 for `isa`: those of f32, and conversions.
#[cfg(target_arch = "x86_64")]
pub(crate) fn half_kernels<T>(isa: Isa) -> NarrowKernels<T>
where
    T: GemmElement<Sum = f32>,
    std::arch::x86_64::__m256: LoadAs<T> + MulAdd<Elem = f32>,
    std::arch::x86_64::__m512: LoadAs<T> + MulAdd<Elem = f32>,
{
    match isa {
        Isa::Avx512 => floats!(avx512, convert_avx512, std::arch::x86_64::__m512, isa),
        // every processor with AVX2 is known to have F16C, but nothing says that it must
        Isa::Avx2 if is_x86_feature_detected!("f16c") => {
            floats!(avx2_f16c, convert_avx2, std::arch::x86_64::__m256, isa)
        }
        Isa::Avx2 | Isa::Portable => floats!(portable, convert, Wide<f32, 4>, Isa::Portable),
    }
}

/// The kernels of f16 or bf16: those of f32, and conversions.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn half_kernels<T: GemmElement<Sum = f32>>(isa: Isa) -> NarrowKernels<T> {
    match isa {
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon => floats!(portable, convert, crate::simd::neon::F32, isa),
        Isa::Portable => floats!(portable, convert, Wide<f32, 4>, isa),
    }
}

/// A table: the modules, the vector of pairs and the tiles of it, the vector of numbers.
macro_rules! integers {
    ($module:ident, $convert:ident, $pairs:ty, $tiles:expr, $ints:ty) => {
        NarrowKernels {
            lanes: <$pairs as MulAdd>::LANES,
            tiles: $tiles,
            depth: 2,
            in_place: None,
            along: $convert::pairs_along::<T>,
            across: $convert::pairs_across::<T>,
            add_rows: $module::add_rows::<$ints, T>,
            dot: $module::dot::<$ints, T>,
        }
    };
}

/// The kernels of an integer of 8 or 16 bits for `isa`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn integer_kernels<T: PairElement>(isa: Isa) -> NarrowKernels<T>
where
    crate::simd::Ints: LoadAs<T>,
{
    use crate::simd::{Ints, Pairs, Pairs512};
    match isa {
        // the conversions are compiled for F16C, too, and a processor with AVX-512 has that and AVX2
        Isa::Avx512 if is_x86_feature_detected!("avx512vnni") => {
            integers!(
                avx2,
                convert_avx512,
                Pairs512,
                tiles!(avx512_vnni::tile, Pairs512, [1 2 3 4 5 6 7 8 9 10 11 12 13 14], 2),
                Ints
            )
        }
        Isa::Avx2 | Isa::Avx512 if is_x86_feature_detected!("f16c") => {
            integers!(avx2, convert_avx2, Pairs, tiles!(avx2::tile, Pairs, [1 2 3 4 5 6], 2), Ints)
        }
        _ => integers!(
            portable,
            convert,
            PairLanes<4>,
            tiles!(portable::tile, PairLanes<4>, [1 2 3 4 5 6], 2),
            Wide<Wrapping<i32>, 4>
        ),
    }
}

/// The kernels of an integer of 8 or 16 bits.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn integer_kernels<T: PairElement>(isa: Isa) -> NarrowKernels<T> {
    match isa {
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        Isa::Neon => {
            use crate::simd::neon::Pairs;
            integers!(portable, convert, Pairs, tiles!(portable::tile, Pairs, [1 2 3 4 5 6], 2), Wide<Wrapping<i32>, 4>)
        }
        Isa::Portable => {
            integers!(
                portable,
                convert,
                PairLanes<4>,
                tiles!(portable::tile, PairLanes<4>, [1 2 3 4 5 6], 2),
                Wide<Wrapping<i32>, 4>
            )
        }
    }
}

/// The portable kernels with the tile of AVX-512, so that its blocking is tested on processors without it.
#[cfg(test)]
pub(super) fn integer_kernels_as_wide_as_avx512<T: PairElement>() -> NarrowKernels<T> {
    integers!(
        portable,
        convert,
        PairLanes<16>,
        tiles!(portable::tile, PairLanes<16>, [1 2 3 4 5 6 7 8 9 10 11 12 13 14], 2),
        Wide<Wrapping<i32>, 16>
    )
}

/// `y = (accumulate ? y : 0) + sums`, rounded to f16.
///
/// # Safety
/// The processor has AVX and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
pub(crate) unsafe fn store_f16(sums: &[f32], y: &mut [half::f16], accumulate: bool) {
    use std::arch::x86_64::*;
    #[target_feature(enable = "avx,f16c")]
    fn eight(sums: &[f32; 8], y: &mut [half::f16; 8], accumulate: bool) {
        // SAFETY: eight floats are readable, and eight half floats, 16 bytes, readable and writable.
        unsafe {
            let mut sum = _mm256_loadu_ps(sums.as_ptr());
            if accumulate {
                sum = _mm256_add_ps(_mm256_cvtph_ps(_mm_loadu_si128(y.as_ptr().cast())), sum);
            }
            _mm_storeu_si128(y.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(sum));
        }
    }
    let ((sums, sums_rest), (y, y_rest)) = (sums.as_chunks::<8>(), y.as_chunks_mut::<8>());
    for (sums, y) in sums.iter().zip(y) {
        eight(sums, y, accumulate);
    }
    let len = sums_rest.len().min(y_rest.len());
    if len > 0 {
        let (mut sums, mut last) = ([0.0; 8], [half::f16::ZERO; 8]);
        sums[..len].copy_from_slice(&sums_rest[..len]);
        last[..len].copy_from_slice(&y_rest[..len]);
        eight(&sums, &mut last, accumulate);
        y_rest[..len].copy_from_slice(&last[..len]);
    }
}
