//! Elements as integers in the same order.

use remat_types::{Storage, bf16, f16};

/// An element with a key.
pub trait Key: Storage {
    /// Bits of the key.
    const BITS: u32;
    /// Smaller for a smaller element, equal for equal ones; the largest for NaN.
    fn key(self) -> u64;
}

macro_rules! unsigned {
    ($($t:ident)*) => { $(
        impl Key for $t {
            const BITS: u32 = $t::BITS;
            #[inline(always)]
            fn key(self) -> u64 { self as u64 }
        }
    )* };
}
unsigned! { u8 u16 u32 u64 }

macro_rules! signed {
    ($($t:ident $u:ident),*) => { $(
        impl Key for $t {
            const BITS: u32 = $t::BITS;
            #[inline(always)]
            fn key(self) -> u64 { (self as $u ^ (1 << ($t::BITS - 1))) as u64 }
        }
    )* };
}
signed! { i8 u8, i16 u16, i32 u32, i64 u64 }

macro_rules! float {
    ($($t:ident $u:ident $zero:expr, $bits:expr);*) => { $(
        impl Key for $t {
            const BITS: u32 = $bits;
            #[inline(always)]
            #[allow(clippy::eq_op, reason = "the test for NaN")]
            fn key(self) -> u64 {
                const SIGN: $u = 1 << ($bits - 1);
                let bits: $u = if self == $zero { 0 } else { self.to_bits() };
                // all bits of a negative number are turned, so that a larger magnitude is smaller
                let key = if bits & SIGN == 0 { bits | SIGN } else { !bits };
                (if self != self { $u::MAX } else { key }) as u64
            }
        }
    )* };
}
float! { f16 u16 f16::ZERO, 16; bf16 u16 bf16::ZERO, 16; f32 u32 0.0, 32; f64 u64 0.0, 64 }

/// A key above a place.
pub(super) trait Word: Copy + Ord + Default + Send + bytemuck::Pod {
    /// Above all words.
    const MAX: Self;
    fn of(key: u64, place: usize) -> Self;
    fn key(self) -> u64;
    fn place(self) -> usize;
}

impl Word for u64 {
    const MAX: u64 = u64::MAX;
    #[inline(always)]
    fn of(key: u64, place: usize) -> u64 {
        key << 32 | place as u64
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self >> 32
    }
    #[inline(always)]
    fn place(self) -> usize {
        (self & 0xffff_ffff) as usize
    }
}

impl Word for u128 {
    const MAX: u128 = u128::MAX;
    #[inline(always)]
    fn of(key: u64, place: usize) -> u128 {
        u128::from(key) << 64 | place as u128
    }
    #[inline(always)]
    fn key(self) -> u64 {
        (self >> 64) as u64
    }
    #[inline(always)]
    fn place(self) -> usize {
        self as u64 as usize
    }
}

/// True if keys of `T` and places below `n` fit into 64 bits.
pub(super) fn is_narrow<T: Key>(n: usize) -> bool {
    T::BITS <= 32 && n as u64 <= 1 << 32
}

/// The word of an element: in descending order if `turned`.
#[inline(always)]
pub(super) fn word<T: Key, W: Word>(v: T, place: usize, turned: bool) -> W {
    let all = u64::MAX >> (64 - T::BITS);
    W::of(v.key() ^ if turned { all } else { 0 }, place)
}
