//! Vectors that are loaded from the elements of a product, widened by the element's own rule.

use super::GemmElement;
use crate::simd::{LoadAs, MulAdd, Wide};

impl<T: GemmElement, const N: usize> LoadAs<T> for Wide<T::Sum, N>
where
    Wide<T::Sum, N>: MulAdd,
{
    #[inline(always)]
    unsafe fn load_as(p: *const T) -> Self {
        // SAFETY: the caller says that `N` elements are readable at `p`; an array has its element's alignment.
        Wide(unsafe { p.cast::<[T; N]>().read_unaligned() }.map(T::widen))
    }
}

/// The same for a vector of NEON.
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
macro_rules! neon_loads_as {
    ($name:ident, $elem:ty, $lanes:literal) => {
        impl<T: GemmElement<Sum = $elem>> LoadAs<T> for crate::simd::neon::$name {
            #[inline(always)]
            unsafe fn load_as(p: *const T) -> Self {
                // SAFETY: the caller says that `LANES` elements are readable at `p`; an array has its element's alignment.
                let all = unsafe { p.cast::<[T; $lanes]>().read_unaligned() }.map(T::widen);
                // SAFETY: a vector of them.
                unsafe { Self::load(all.as_ptr()) }
            }
        }
    };
}

#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
neon_loads_as!(F32, f32, 8);
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
neon_loads_as!(F64, f64, 4);
