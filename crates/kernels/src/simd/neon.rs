//! Vectors of two NEON registers: as long as those of AVX2, so that the tiles, and blocks of 8 channels, are the same. Of 32
//! registers, a tile of 6 x 2 vectors holds 24 sums, 4 elements of B and the broadcast one.

use std::arch::aarch64::*;
use std::num::Wrapping;

use super::{MulAdd, Simd};

/// Implements [`Simd`] for two registers by naming the intrinsics of one.
macro_rules! floats {
    ($(#[$doc:meta])* $name:ident, $register:ty, $elem:ty, $lanes:literal, $set:ident, $load:ident, $store:ident, $fma:ident, $add:ident, $max:ident, $min:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name($register, $register);

        impl MulAdd for $name {
            type Elem = $elem;
            const LANES: usize = $lanes;
            const REGISTERS: usize = 32;
            #[inline(always)]
            unsafe fn splat(x: $elem) -> Self {
                // SAFETY: the module is compiled for processors with NEON only.
                unsafe { $name($set(x), $set(x)) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $elem) -> Self {
                // SAFETY: as above, and `LANES` elements are readable at `p`.
                unsafe { $name($load(p), $load(p.add($lanes / 2))) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $elem) {
                // SAFETY: as above, and `LANES` elements are writable at `p`.
                unsafe {
                    $store(p, self.0);
                    $store(p.add($lanes / 2), self.1);
                }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $name($fma(c.0, self.0, b.0), $fma(c.1, self.1, b.1)) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as for `splat`.
                unsafe { $name($add(self.0, other.0), $add(self.1, other.1)) }
            }
        }

        impl Simd for $name {
            #[inline(always)]
            unsafe fn clamp(self, low: Self, high: Self) -> Self {
                // SAFETY: as for `splat`. Of a pair with a NaN the instructions give NaN.
                unsafe { $name($min(high.0, $max(low.0, self.0)), $min(high.1, $max(low.1, self.1))) }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const $elem, n: usize) -> Self {
                let mut all = [0.0; $lanes];
                for (i, x) in all.iter_mut().enumerate().take(n) {
                    // SAFETY: the caller says that `n` elements are readable at `p`.
                    *x = unsafe { *p.add(i) };
                }
                // SAFETY: a vector of them.
                unsafe { Self::load(all.as_ptr()) }
            }
        }
    };
}

floats!(
    /// Eight f32.
    F32,
    float32x4_t,
    f32,
    8,
    vdupq_n_f32,
    vld1q_f32,
    vst1q_f32,
    vfmaq_f32,
    vaddq_f32,
    vmaxq_f32,
    vminq_f32
);
floats!(
    /// Four f64.
    F64,
    float64x2_t,
    f64,
    4,
    vdupq_n_f64,
    vld1q_f64,
    vst1q_f64,
    vfmaq_f64,
    vaddq_f64,
    vmaxq_f64,
    vminq_f64
);

/// Four pairs.
#[derive(Clone, Copy)]
pub(crate) struct Pairs(int32x4_t);

impl MulAdd for Pairs {
    type Elem = Wrapping<i32>;
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(x: Wrapping<i32>) -> Self {
        // SAFETY: the module is compiled for processors with NEON only.
        unsafe { Pairs(vdupq_n_s32(x.0)) }
    }
    #[inline(always)]
    unsafe fn load(p: *const Wrapping<i32>) -> Self {
        // SAFETY: as above, and `LANES` elements are readable at `p`.
        unsafe { Pairs(vld1q_s32(p.cast())) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut Wrapping<i32>) {
        // SAFETY: as above, and `LANES` elements are writable at `p`.
        unsafe { vst1q_s32(p.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        // SAFETY: as for `splat`.
        unsafe {
            let (a, b) = (vreinterpretq_s16_s32(self.0), vreinterpretq_s16_s32(b.0));
            let products = vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
            Pairs(vaddq_s32(c.0, products))
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: as for `splat`.
        unsafe { Pairs(vaddq_s32(self.0, other.0)) }
    }
}
