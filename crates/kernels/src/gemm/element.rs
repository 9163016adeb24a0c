//! Which element types can be multiplied, and in what arithmetic.

use super::kernel::{self, Kernels};
use crate::simd::Isa;
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// An element type of the matrix product. Sealed: f32, f64, f16, bf16, i8 to i64, u8 to u64.
///
/// Floats of 16 bits accumulate in f32 and round once at the end; integers wrap around.
pub trait GemmElement: bytemuck::Pod + Default + Send + Sync + sealed::Sealed + 'static {
    /// Type of the running sum.
    #[doc(hidden)]
    type Sum: Copy + Default;
    #[doc(hidden)]
    fn widen(self) -> Self::Sum;
    #[doc(hidden)]
    fn narrow(sum: Self::Sum) -> Self;
    /// `a * b + sum`
    #[doc(hidden)]
    fn mul_add(a: Self::Sum, b: Self::Sum, sum: Self::Sum) -> Self::Sum;
    #[doc(hidden)]
    fn add(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// The vector kernels for this type, where it has any.
    #[doc(hidden)]
    fn kernels() -> Option<&'static Kernels<Self>> {
        None
    }
}

macro_rules! float {
    ($($t:ident $kernels:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl GemmElement for $t {
            type Sum = $t;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn narrow(sum: $t) -> $t { sum }
            #[inline(always)]
            fn mul_add(a: $t, b: $t, sum: $t) -> $t { a * b + sum }
            #[inline(always)]
            fn add(a: $t, b: $t) -> $t { a + b }
            fn kernels() -> Option<&'static Kernels<$t>> { Some(kernel::$kernels(Isa::best())) }
        }
    )*};
}

macro_rules! half_float {
    ($($t:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl GemmElement for $t {
            type Sum = f32;
            #[inline(always)]
            fn widen(self) -> f32 { self.to_f32() }
            #[inline(always)]
            fn narrow(sum: f32) -> $t { $t::from_f32(sum) }
            #[inline(always)]
            fn mul_add(a: f32, b: f32, sum: f32) -> f32 { a * b + sum }
            #[inline(always)]
            fn add(a: f32, b: f32) -> f32 { a + b }
        }
    )*};
}

macro_rules! integer {
    ($($t:ident)*) => {$(
        impl sealed::Sealed for $t {}
        impl GemmElement for $t {
            type Sum = $t;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn narrow(sum: $t) -> $t { sum }
            #[inline(always)]
            fn mul_add(a: $t, b: $t, sum: $t) -> $t { a.wrapping_mul(b).wrapping_add(sum) }
            #[inline(always)]
            fn add(a: $t, b: $t) -> $t { a.wrapping_add(b) }
        }
    )*};
}

float!(f32 f32_kernels, f64 f64_kernels);
half_float!(f16, bf16);
integer!(i8 i16 i32 i64 u8 u16 u32 u64);
