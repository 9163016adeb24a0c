//! Vectors that are loaded from elements of a narrower type, and vectors of integers.
//!
//! The integer vectors have [`MulAdd`] alone. Two kinds share the element type `Wrapping<i32>`: [`Ints`], of numbers, and
//! *pairs*, whose factors are two 16-bit integers in one element and whose sums are numbers:
//! `mul_add(a, b, c) = c + a.0 b.0 + a.1 b.1`. Processors have an instruction for that, twice as wide as any other
//! product. Everything wraps around.

use std::num::Wrapping;

use super::MulAdd;

/// A vector that is loaded from elements of type `T`; for the elements of products see `gemm::widen`.
///
/// # Safety
/// As [`MulAdd`].
pub(crate) trait LoadAs<T>: MulAdd {
    unsafe fn load_as(p: *const T) -> Self;
}

/// The portable vector of pairs.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct PairLanes<const N: usize>([Wrapping<i32>; N]);

impl<const N: usize> MulAdd for PairLanes<N> {
    type Elem = Wrapping<i32>;
    const LANES: usize = N;
    #[inline(always)]
    unsafe fn splat(x: Wrapping<i32>) -> Self {
        PairLanes([x; N])
    }
    #[inline(always)]
    unsafe fn load(p: *const Wrapping<i32>) -> Self {
        // SAFETY: the caller says that `N` elements are readable at `p`; an array has its element's alignment.
        PairLanes(unsafe { p.cast::<[Wrapping<i32>; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut Wrapping<i32>) {
        // SAFETY: the caller says that `N` elements are writable at `p`.
        unsafe { p.cast::<[Wrapping<i32>; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        let low = |x: Wrapping<i32>| Wrapping(i32::from(x.0 as i16));
        let high = |x: Wrapping<i32>| Wrapping(x.0 >> 16);
        let mut out = c;
        for i in 0..N {
            out.0[i] += low(self.0[i]) * low(b.0[i]) + high(self.0[i]) * high(b.0[i]);
        }
        out
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        let mut out = self;
        for i in 0..N {
            out.0[i] += other.0[i];
        }
        out
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Ints, Pairs, Pairs512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LoadAs, MulAdd};
    use half::{bf16, f16};
    use std::arch::x86_64::*;
    use std::num::Wrapping;

    /// Implements [`LoadAs`] for a vector type by an expression of the address.
    macro_rules! loads {
        ($($vector:ty, $elem:ty, |$p:ident| $load:expr;)*) => { $(
            impl LoadAs<$elem> for $vector {
                #[inline(always)]
                unsafe fn load_as($p: *const $elem) -> Self {
                    // SAFETY: the caller says that `LANES` elements are readable, and that the instructions are there: of
                    // AVX-512F for the vectors of 512 bits, of AVX2 and, for f16, F16C for the others.
                    unsafe { $load }
                }
            }
        )* };
    }
    // A bf16 is the upper half of an f32.
    loads! {
        __m256, f16, |p| _mm256_cvtph_ps(_mm_loadu_si128(p.cast()));
        __m512, f16, |p| _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()));
        __m256, bf16, |p|
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()))));
        __m512, bf16, |p|
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))));
        Ints, i8, |p| Ints(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast())));
        Ints, u8, |p| Ints(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())));
        Ints, i16, |p| Ints(_mm256_cvtepi16_epi32(_mm_loadu_si128(p.cast())));
        Ints, u16, |p| Ints(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())));
    }

    /// Implements [`MulAdd`] for a wrapped register of integers.
    macro_rules! integers {
        ($(#[$doc:meta])* $name:ident($register:ty), $lanes:literal, $set:ident, $load:ident, $store:ident, $add:ident,
            |$a:ident, $b:ident, $c:ident| $mul_add:expr) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            #[repr(transparent)]
            pub(crate) struct $name($register);

            impl MulAdd for $name {
                type Elem = Wrapping<i32>;
                const LANES: usize = $lanes;
                // of several steps the compiler adds the products first, and runs out of registers
                const UNROLLED: usize = 1;
                #[inline(always)]
                unsafe fn splat(x: Wrapping<i32>) -> Self {
                    // SAFETY: the caller says that the processor has the instruction set.
                    unsafe { $name($set(x.0)) }
                }
                #[inline(always)]
                unsafe fn load(p: *const Wrapping<i32>) -> Self {
                    // SAFETY: as above, and `LANES` elements are readable at `p`.
                    unsafe { $name($load(p.cast())) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut Wrapping<i32>) {
                    // SAFETY: as above, and `LANES` elements are writable at `p`.
                    unsafe { $store(p.cast(), self.0) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                    let ($a, $b, $c) = (self.0, b.0, c.0);
                    // SAFETY: as for `splat`.
                    unsafe { $name($mul_add) }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: as for `splat`.
                    unsafe { $name($add(self.0, other.0)) }
                }
            }
        };
    }

    integers!(
        /// Eight numbers; needs AVX2.
        Ints(__m256i), 8, _mm256_set1_epi32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi32,
        |a, b, c| _mm256_add_epi32(_mm256_mullo_epi32(a, b), c)
    );
    integers!(
        /// Eight pairs; needs AVX2.
        Pairs(__m256i), 8, _mm256_set1_epi32, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_add_epi32,
        |a, b, c| _mm256_add_epi32(_mm256_madd_epi16(a, b), c)
    );
    integers!(
        /// Sixteen pairs; needs AVX-512F and AVX-512 VNNI.
        Pairs512(__m512i), 16, _mm512_set1_epi32, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_add_epi32,
        |a, b, c| _mm512_dpwssd_epi32(c, a, b)
    );
}
