//! Vectors of floats: one small trait, so that each micro-kernel is written once for all instruction sets.
//!
//! A kernel is an `#[inline(always)]` function generic over [`Simd`]; a wrapper with `#[target_feature]` makes it one
//! machine function per instruction set, and a table of function pointers, chosen at run time by [`Isa::best`], names
//! them. Closures do not inherit target features, so kernels use plain loops over const generics.
//!
//! [`Wide`] is the portable vector: an array that the compiler may vectorise. It multiplies and adds with two roundings,
//! the others fuse; so results are the same on every run of one machine, not across instruction sets.

use std::sync::OnceLock;

mod dispatch;
mod narrow;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
pub(crate) mod neon;

pub(crate) use dispatch::{wide, widest};
#[cfg(target_arch = "x86_64")]
pub(crate) use narrow::{Ints, Pairs, Pairs512};
pub(crate) use narrow::{LoadAs, PairLanes};

/// The instruction sets that have kernels of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
    Neon,
}

/// The environment variable that names the widest instruction set that kernels may use.
const MAX_ISA: &str = "REMAT_MAX_ISA";

impl Isa {
    /// The widest instruction set that this processor has and `REMAT_MAX_ISA` allows. The same for a whole run.
    pub(crate) fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Isa::allowed().unwrap_or_else(|_| Isa::of_processor()))
    }

    /// The same. Errors: what the variable may say, if it says something else or names what this processor does not have.
    pub(crate) fn allowed() -> Result<Isa, String> {
        let best = Isa::of_processor();
        let Some(wanted) = std::env::var_os(MAX_ISA) else { return Ok(best) };
        let there = Isa::up_to(best);
        there.iter().copied().find(|isa| wanted == isa.name()).ok_or_else(|| {
            let names: Vec<&str> = there.iter().map(|isa| isa.name()).collect();
            format!("{MAX_ISA} is `{}`: this processor has {}", wanted.display(), names.join(", "))
        })
    }

    /// As in `REMAT_MAX_ISA`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Isa::Neon => "neon",
        }
    }

    fn of_processor() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Isa::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Isa::Avx2;
            }
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        if std::arch::is_aarch64_feature_detected!("neon") {
            return Isa::Neon;
        }
        Isa::Portable
    }

    /// Every instruction set that this processor can run, for tests.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Isa> {
        Isa::up_to(Isa::of_processor())
    }

    fn up_to(best: Isa) -> Vec<Isa> {
        match best {
            Isa::Portable => vec![Isa::Portable],
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => vec![Isa::Portable, Isa::Avx2],
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => vec![Isa::Portable, Isa::Avx2, Isa::Avx512],
            #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
            Isa::Neon => vec![Isa::Portable, Isa::Neon],
        }
    }
}

/// True on a processor that makes tiles of few rows of four vectors faster than tall ones of two. Both have as many sums, but a
/// tall one loads a number for each of its rows: 16 loads for 28 multiply-adds, a wide one 10 for 24. On Intel's Xeons with
/// AVX-512 that took 1.05 to 1.2 of the time; AMD's Zen 5 made 0.93 to 1.00 of its multiply-adds in tall tiles.
pub(crate) fn prefers_wide_tiles() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static INTEL: OnceLock<bool> = OnceLock::new();
        *INTEL.get_or_init(|| {
            // in the order of the registers (Intel SDM, volume 2A, CPUID)
            let c = std::arch::x86_64::__cpuid(0);
            [c.ebx, c.edx, c.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Steps of a round for floats.
pub(crate) const ROUND: usize = 4;

/// A vector of `LANES` elements that multiplies and adds: all that matrix products need.
///
/// # Safety
/// Every function requires a processor that has the instruction set of the type; `load` and `store` require `LANES`
/// elements to be readable or writable at `p`, at any alignment.
pub(crate) trait MulAdd: Copy {
    type Elem: Copy + Default + 'static;
    const LANES: usize;
    /// Steps of `k` in a round of the loop of a tile. Where a processor takes no more instructions than half of what it
    /// could, as one does whose other hardware thread is busy, it is the loop's own that keep multiply-adds waiting.
    const UNROLLED: usize = ROUND;
    /// Vectors that registers hold.
    const REGISTERS: usize = if size_of::<Self>() < 64 { 16 } else { 32 };
    unsafe fn splat(x: Self::Elem) -> Self;
    unsafe fn load(p: *const Self::Elem) -> Self;
    unsafe fn store(self, p: *mut Self::Elem);
    /// `self * b + c`
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
}

/// `x`, hidden from the compiler. If the compiler knows an index, it makes pointers from it.
#[inline(always)]
pub(crate) fn opaque(x: usize) -> usize {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    let x = {
        let mut x = x;
        // SAFETY: no instruction: the register is as it was.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) x, options(pure, nomem, nostack, preserves_flags)) };
        x
    };
    x
}

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// A vector of floats.
///
/// # Safety
/// As [`MulAdd`].
pub(crate) trait Simd: MulAdd {
    /// Each lane moved into `low ..= high`, where `low <= high`; NaN stays.
    unsafe fn clamp(self, low: Self, high: Self) -> Self;
    /// The first `n <= LANES` lanes from `p`, zeros in the others; only those `n` elements need to be readable.
    unsafe fn load_first(p: *const Self::Elem, n: usize) -> Self;
}

/// The portable vector.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Wide<T, const N: usize>(pub(crate) [T; N]);

impl<T, const N: usize> MulAdd for Wide<T, N>
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

impl<T, const N: usize> Simd for Wide<T, N>
where
    T: Copy + Default + PartialOrd + std::ops::Add<Output = T> + std::ops::Mul<Output = T> + 'static,
{
    #[inline(always)]
    unsafe fn clamp(self, low: Self, high: Self) -> Self {
        let mut out = self;
        for i in 0..N {
            out.0[i] = if out.0[i] < low.0[i] { low.0[i] } else { out.0[i] };
            out.0[i] = if out.0[i] > high.0[i] { high.0[i] } else { out.0[i] };
        }
        out
    }
    #[inline(always)]
    unsafe fn load_first(p: *const T, n: usize) -> Self {
        let mut out = [T::default(); N];
        for (i, x) in out.iter_mut().enumerate().take(n) {
            // SAFETY: the caller says that `n` elements are readable at `p`.
            *x = unsafe { *p.add(i) };
        }
        Wide(out)
    }
}

/// Implements [`Simd`] for a vector register type by naming its intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    ($vector:ty, $elem:ty, $lanes:literal, $set:ident, $load:ident, $store:ident, $fma:ident, $add:ident, $max:ident, $min:ident, $first:expr) => {
        impl MulAdd for $vector {
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
        impl Simd for $vector {
            #[inline(always)]
            unsafe fn clamp(self, low: Self, high: Self) -> Self {
                // SAFETY: as for `splat`. Of a pair with a NaN the instructions give the second operand.
                unsafe { std::arch::x86_64::$min(high, std::arch::x86_64::$max(low, self)) }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const $elem, n: usize) -> Self {
                // SAFETY: as for `splat`; a masked load touches no element beyond the first `n`.
                unsafe { $first(p, n) }
            }
        }
        impl LoadAs<$elem> for $vector {
            #[inline(always)]
            unsafe fn load_as(p: *const $elem) -> Self {
                // SAFETY: as for `load`.
                unsafe { Self::load(p) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LoadAs, MulAdd, Simd};
    use std::arch::x86_64::*;

    /// Ones, then zeros: eight lanes from place `8 - n` on are a mask of the first `n`.
    static FIRST: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
    static FIRST_WIDE: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

    #[inline(always)]
    unsafe fn first_ps(p: *const f32, n: usize) -> __m256 {
        debug_assert!(n <= 8);
        // SAFETY: `n <= 8`, so the mask lies in its table; the rest is the caller's contract.
        unsafe { _mm256_maskload_ps(p, _mm256_loadu_si256(FIRST.as_ptr().add(8 - n).cast())) }
    }
    #[inline(always)]
    unsafe fn first_pd(p: *const f64, n: usize) -> __m256d {
        debug_assert!(n <= 4);
        // SAFETY: `n <= 4`, so the mask lies in its table; the rest is the caller's contract.
        unsafe { _mm256_maskload_pd(p, _mm256_loadu_si256(FIRST_WIDE.as_ptr().add(4 - n).cast())) }
    }
    #[inline(always)]
    unsafe fn first_ps512(p: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller's contract; `n <= 16`.
        unsafe { _mm512_maskz_loadu_ps(((1u32 << n) - 1) as u16, p) }
    }
    #[inline(always)]
    unsafe fn first_pd512(p: *const f64, n: usize) -> __m512d {
        // SAFETY: the caller's contract; `n <= 8`.
        unsafe { _mm512_maskz_loadu_pd(((1u32 << n) - 1) as u8, p) }
    }

    vector!(
        __m256,
        f32,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_max_ps,
        _mm256_min_ps,
        first_ps
    );
    vector!(
        __m256d,
        f64,
        4,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_fmadd_pd,
        _mm256_add_pd,
        _mm256_max_pd,
        _mm256_min_pd,
        first_pd
    );
    vector!(
        __m512,
        f32,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_max_ps,
        _mm512_min_ps,
        first_ps512
    );
    vector!(
        __m512d,
        f64,
        8,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_fmadd_pd,
        _mm512_add_pd,
        _mm512_max_pd,
        _mm512_min_pd,
        first_pd512
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_lanes_are_loaded_and_the_rest_is_zero<V: Simd<Elem = f32>>() {
        for n in 0..=V::LANES {
            let from: Vec<f32> = (1..=n).map(|i| i as f32).collect();
            let mut out = vec![f32::NAN; V::LANES];
            // SAFETY: `n` elements are readable, `LANES` writable; the callers check the instruction set.
            unsafe { V::load_first(from.as_ptr(), n).store(out.as_mut_ptr()) };
            let want = (0..V::LANES).map(|i| if i < n { (i + 1) as f32 } else { 0.0 });
            assert!(out.iter().copied().eq(want), "{n}: {out:?}");
        }
    }

    fn lanes_are_moved_into_the_range<V: Simd<Elem = f32>>() {
        let mut x = [-7.0, 0.5, 9.0, f32::NAN].repeat(V::LANES / 4);
        // SAFETY: a vector is readable and writable; the callers check the instruction set.
        unsafe { V::load(x.as_ptr()).clamp(V::splat(0.0), V::splat(6.0)).store(x.as_mut_ptr()) };
        for x in x.chunks(4) {
            assert_eq!(x[..3], [0.0, 0.5, 6.0]);
            assert!(x[3].is_nan());
        }
    }

    #[test]
    fn clamps() {
        for isa in Isa::all() {
            match isa {
                Isa::Portable => lanes_are_moved_into_the_range::<Wide<f32, 8>>(),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => lanes_are_moved_into_the_range::<std::arch::x86_64::__m256>(),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => lanes_are_moved_into_the_range::<std::arch::x86_64::__m512>(),
                #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
                Isa::Neon => lanes_are_moved_into_the_range::<neon::F32>(),
            }
        }
    }

    #[test]
    fn masked_loads() {
        for isa in Isa::all() {
            match isa {
                Isa::Portable => first_lanes_are_loaded_and_the_rest_is_zero::<Wide<f32, 4>>(),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => first_lanes_are_loaded_and_the_rest_is_zero::<std::arch::x86_64::__m256>(),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => first_lanes_are_loaded_and_the_rest_is_zero::<std::arch::x86_64::__m512>(),
                #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
                Isa::Neon => first_lanes_are_loaded_and_the_rest_is_zero::<neon::F32>(),
            }
        }
    }
}
