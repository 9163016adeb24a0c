//! Vectors of floats: one small trait, so that each micro-kernel is written once for all instruction sets.
//!
//! A kernel is an `#[inline(always)]` function generic over [`Simd`]; a wrapper with `#[target_feature]` makes it one
//! machine function per instruction set, and a table of function pointers, chosen at run time by [`Isa::best`], names
//! them. Closures do not inherit target features, so kernels use plain loops over const generics.
//!
//! [`Wide`] is the portable vector: an array that the compiler may vectorise. It multiplies and adds with two roundings,
//! the others fuse; so results are the same on every run of one machine, not across instruction sets.

/// The instruction sets that have kernels of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The widest instruction set that this processor has. A pure function of the machine.
    pub(crate) fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Isa::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Isa::Avx2;
            }
        }
        Isa::Portable
    }

    /// Every instruction set that this processor can run, for tests.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Isa> {
        match Isa::best() {
            Isa::Portable => vec![Isa::Portable],
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => vec![Isa::Portable, Isa::Avx2],
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => vec![Isa::Portable, Isa::Avx2, Isa::Avx512],
        }
    }
}

/// A vector of `LANES` floats.
///
/// # Safety
/// Every function requires a processor that has the instruction set of the type; `load` and `store` require `LANES`
/// elements to be readable or writable at `p`, at any alignment.
pub(crate) trait Simd: Copy {
    type Elem: Copy + Default + 'static;
    const LANES: usize;
    unsafe fn splat(x: Self::Elem) -> Self;
    unsafe fn load(p: *const Self::Elem) -> Self;
    unsafe fn store(self, p: *mut Self::Elem);
    /// `self * b + c`
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
}

/// The portable vector.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Wide<T, const N: usize>([T; N]);

impl<T, const N: usize> Simd for Wide<T, N>
where
    T: Copy + Default + std::ops::Add<Output = T> + std::ops::Mul<Output = T> + 'static,
{
    type Elem = T;
    const LANES: usize = N;
    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Wide([x; N])
    }
    #[inline(always)]
    unsafe fn load(p: *const T) -> Self {
        // SAFETY: the caller says that `N` elements are readable at `p`; an array has its element's alignment.
        Wide(unsafe { p.cast::<[T; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut T) {
        // SAFETY: the caller says that `N` elements are writable at `p`.
        unsafe { p.cast::<[T; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        let mut out = c;
        for i in 0..N {
            out.0[i] = self.0[i] * b.0[i] + c.0[i];
        }
        out
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        let mut out = self;
        for i in 0..N {
            out.0[i] = self.0[i] + other.0[i];
        }
        out
    }
}

/// Implements [`Simd`] for a vector register type by naming its intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    ($vector:ty, $elem:ty, $lanes:literal, $set:ident, $load:ident, $store:ident, $fma:ident, $add:ident) => {
        impl Simd for $vector {
            type Elem = $elem;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(x: $elem) -> Self {
                // SAFETY: the caller says that the processor has the instruction set.
                unsafe { std::arch::x86_64::$set(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $elem) -> Self {
                // SAFETY: as above, and `LANES` elements are readable at `p`.
                unsafe { std::arch::x86_64::$load(p) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $elem) {
                // SAFETY: as above, and `LANES` elements are writable at `p`.
                unsafe { std::arch::x86_64::$store(p, self) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { std::arch::x86_64::$fma(self, b, c) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { std::arch::x86_64::$add(self, other) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Simd;
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};
    vector!(__m256, f32, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps, _mm256_add_ps);
    vector!(__m256d, f64, 4, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_fmadd_pd, _mm256_add_pd);
    vector!(__m512, f32, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps, _mm512_add_ps);
    vector!(__m512d, f64, 8, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd, _mm512_add_pd);
}
