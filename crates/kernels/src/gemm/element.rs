//! Which element types can be multiplied, in what arithmetic, and what their products can be written as.

use std::num::Wrapping;

use super::kernel::{self, Kernels};
use super::narrow::{self, NarrowKernels};
use crate::simd::Isa;
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// An element type of the matrix product. Sealed: f32, f64, f16, bf16, i8 to i64, u8 to u64.
///
/// Floats of 16 bits accumulate in f32 and round once at the end; integers wrap around, those of 8 and 16 bits in 32.
pub trait GemmElement: GemmOutput<Self> + Default + sealed::Sealed {
    /// Type of the running sum.
    #[doc(hidden)]
    type Sum: bytemuck::Pod + Default + Send + Sync;
    /// True for floats that are computed in f32.
    #[doc(hidden)]
    const IS_HALF: bool = false;
    #[doc(hidden)]
    fn widen(self) -> Self::Sum;
    /// `a * b + sum`
    #[doc(hidden)]
    fn mul_add(a: Self::Sum, b: Self::Sum, sum: Self::Sum) -> Self::Sum;
    #[doc(hidden)]
    fn add(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// The vector kernels for this type, where it has any.
    #[doc(hidden)]
    fn engine() -> Engine<Self> {
        Engine::Plain
    }
}

/// A type in which a product of `T` can be written: `T`, or the type of its sums. Sealed: f32 of f16 and bf16, i32 of
/// i8, u8 and i16, and every type of itself.
pub trait GemmOutput<T>: bytemuck::Pod + Send + Sync {
    /// The sum, rounded or cut off.
    #[doc(hidden)]
    fn from_sum(sum: T::Sum) -> Self
    where
        T: GemmElement;
    #[doc(hidden)]
    fn up(self) -> T::Sum
    where
        T: GemmElement;
    /// `y[j] = (accumulate ? y[j] : 0) + sums[j]` in the type of the sum.
    #[doc(hidden)]
    #[inline(always)]
    fn store(sums: &[T::Sum], y: &mut [Self], accumulate: bool)
    where
        T: GemmElement,
    {
        if accumulate {
            y.iter_mut().zip(sums).for_each(|(y, &sum)| *y = Self::from_sum(T::add(y.up(), sum)));
        } else {
            y.iter_mut().zip(sums).for_each(|(y, &sum)| *y = Self::from_sum(sum));
        }
    }
    /// `y` itself, if this is `T`.
    #[doc(hidden)]
    fn same(y: *mut Self) -> Option<*mut T> {
        let _ = y;
        None
    }
}

/// How products of a type are computed.
pub enum Engine<T: GemmElement> {
    /// By plain loops.
    Plain,
    /// In vectors of the type itself.
    Same(&'static Kernels<T>),
    /// In vectors of a wider type, which packing converts to.
    Narrow(NarrowKernels<T>),
}

/// Implements [`GemmOutput`] for a type of its own products.
macro_rules! output_of_itself {
    ($t:ty, |$sum:ident| $of:expr, |$y:ident| $up:expr) => {
        impl GemmOutput<$t> for $t {
            #[inline(always)]
            fn from_sum($sum: <$t as GemmElement>::Sum) -> $t {
                $of
            }
            #[inline(always)]
            fn up(self) -> <$t as GemmElement>::Sum {
                let $y = self;
                $up
            }
            fn same(y: *mut $t) -> Option<*mut $t> {
                Some(y)
            }
        }
    };
}

macro_rules! float {
    ($($t:ident $kernels:ident),*) => {$(
        impl sealed::Sealed for $t {}
        output_of_itself!($t, |sum| sum, |y| y);
        impl GemmElement for $t {
            type Sum = $t;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn mul_add(a: $t, b: $t, sum: $t) -> $t { a * b + sum }
            #[inline(always)]
            fn add(a: $t, b: $t) -> $t { a + b }
            fn engine() -> Engine<$t> { Engine::Same(kernel::$kernels(Isa::best())) }
        }
    )*};
}

macro_rules! half_float {
    ($($t:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl GemmOutput<$t> for f32 {
            #[inline(always)]
            fn from_sum(sum: f32) -> f32 { sum }
            #[inline(always)]
            fn up(self) -> f32 { self }
        }
        impl GemmElement for $t {
            type Sum = f32;
            const IS_HALF: bool = true;
            #[inline(always)]
            fn widen(self) -> f32 { self.to_f32() }
            #[inline(always)]
            fn mul_add(a: f32, b: f32, sum: f32) -> f32 { a * b + sum }
            #[inline(always)]
            fn add(a: f32, b: f32) -> f32 { a + b }
            fn engine() -> Engine<$t> { Engine::Narrow(narrow::half_kernels(Isa::best())) }
        }
    )*};
}

/// Integers that are summed in 32 bits.
macro_rules! small_integer {
    ($($t:ident)*) => {$(
        impl sealed::Sealed for $t {}
        output_of_itself!($t, |sum| sum.0 as $t, |y| GemmElement::widen(y));
        impl GemmElement for $t {
            type Sum = Wrapping<i32>;
            #[inline(always)]
            fn widen(self) -> Wrapping<i32> { Wrapping(i32::from(self)) }
            #[inline(always)]
            fn mul_add(a: Wrapping<i32>, b: Wrapping<i32>, sum: Wrapping<i32>) -> Wrapping<i32> { a * b + sum }
            #[inline(always)]
            fn add(a: Wrapping<i32>, b: Wrapping<i32>) -> Wrapping<i32> { a + b }
            fn engine() -> Engine<$t> { Engine::Narrow(narrow::integer_kernels(Isa::best())) }
        }
    )*};
}

/// Those whose sums can be had whole; of u16 even one product does not fit.
macro_rules! output_as_i32 {
    ($($t:ident)*) => {$(
        impl GemmOutput<$t> for i32 {
            #[inline(always)]
            fn from_sum(sum: Wrapping<i32>) -> i32 { sum.0 }
            #[inline(always)]
            fn up(self) -> Wrapping<i32> { Wrapping(self) }
        }
    )*};
}

macro_rules! integer {
    ($($t:ident)*) => {$(
        impl sealed::Sealed for $t {}
        output_of_itself!($t, |sum| sum, |y| y);
        impl GemmElement for $t {
            type Sum = $t;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn mul_add(a: $t, b: $t, sum: $t) -> $t { a.wrapping_mul(b).wrapping_add(sum) }
            #[inline(always)]
            fn add(a: $t, b: $t) -> $t { a.wrapping_add(b) }
        }
    )*};
}

float!(f32 f32_kernels, f64 f64_kernels);
half_float!(f16, bf16);
small_integer!(i8 i16 u8 u16);
output_as_i32!(i8 i16 u8);
integer!(i32 i64 u32 u64);

impl GemmOutput<f16> for f16 {
    #[inline(always)]
    fn from_sum(sum: f32) -> f16 {
        f16::from_f32(sum)
    }
    #[inline(always)]
    fn up(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn store(sums: &[f32], y: &mut [f16], accumulate: bool) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c") {
            // SAFETY: the features were detected just above.
            return unsafe { narrow::store_f16(sums, y, accumulate) };
        }
        for (y, &sum) in y.iter_mut().zip(sums) {
            *y = f16::from_f32(if accumulate { y.to_f32() + sum } else { sum });
        }
    }
    fn same(y: *mut f16) -> Option<*mut f16> {
        Some(y)
    }
}

output_of_itself!(bf16, |sum| round_to_bf16(sum), |y| y.to_f32());

/// The nearest bf16, ties to even: as `bf16::from_f32`, without branches, so that loops over it become vector code.
#[inline(always)]
fn round_to_bf16(x: f32) -> bf16 {
    /// Makes any NaN a quiet one.
    const QUIET: u32 = 0x0040;
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + even) >> 16;
    bf16::from_bits(if x.is_nan() { (bits >> 16) | QUIET } else { rounded } as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_rounded_as_the_crate_rounds_it() {
        let edges =
            [0u32, 1, 0x7f7f_7fff, 0x7f7f_8000, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fc0_0000, 0x7fff_ffff];
        let all = (0..u32::MAX).step_by(9973).chain(edges.into_iter().flat_map(|b| [b, b | 1 << 31]));
        for x in all.map(f32::from_bits) {
            assert_eq!(round_to_bf16(x).to_bits(), bf16::from_f32(x).to_bits(), "{:#x}", x.to_bits());
        }
    }

    #[test]
    fn rows_of_f16_are_stored_as_the_crate_rounds_them() {
        let sums: Vec<f32> = (0..u32::MAX).step_by(65_521).map(f32::from_bits).filter(|x| !x.is_nan()).collect();
        let old: Vec<f16> = (0..sums.len()).map(|i| f16::from_f32(i as f32 / 7.0 - 900.0)).collect();
        for len in [0, 1, 7, 8, 9, 31, sums.len()] {
            for accumulate in [false, true] {
                let (mut y, sums) = (old.clone(), &sums[sums.len() - len..]);
                <f16 as GemmOutput<f16>>::store(sums, &mut y[..len], accumulate);
                for (i, &sum) in sums.iter().enumerate() {
                    let want = f16::from_f32(if accumulate { old[i].to_f32() + sum } else { sum });
                    assert_eq!(y[i].to_bits(), want.to_bits(), "{sum} at {i} of {len}");
                }
                assert_eq!(y[len..], old[len..]);
            }
        }
    }
}
