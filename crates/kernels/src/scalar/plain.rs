//! The traits on plain Rust types, and how their values are kept in words.

use remat_types::{DType, Element, bf16, f16};

use super::{Double, Flag, Float, Fn32, Fn64, Fn64x2, Int, Mask, Ordered, Single};

/// A Rust type whose values expressions have.
pub trait Plain: Element {
    /// The bits, in the low end of a word.
    fn to_word(self) -> u64;
    /// The value of these bits.
    fn of_word(word: u64) -> Self;
}

macro_rules! plain {
    ($($t:ty: |$x:ident| $to:expr, |$w:ident| $of:expr;)*) => { $(
        impl Plain for $t {
            #[inline(always)]
            fn to_word(self) -> u64 { let $x = self; $to }
            #[inline(always)]
            fn of_word($w: u64) -> Self { $of }
        }
    )* };
}
plain! {
    f16: |x| x.to_bits().into(), |w| f16::from_bits(w as u16);
    bf16: |x| x.to_bits().into(), |w| bf16::from_bits(w as u16);
    f32: |x| x.to_bits().into(), |w| f32::from_bits(w as u32);
    f64: |x| x.to_bits(), |w| f64::from_bits(w);
    bool: |x| x.into(), |w| w != 0;
    i8: |x| (x as u8).into(), |w| w as i8;
    i16: |x| (x as u16).into(), |w| w as i16;
    i32: |x| (x as u32).into(), |w| w as i32;
    i64: |x| x as u64, |w| w as i64;
    u8: |x| x.into(), |w| w as u8;
    u16: |x| x.into(), |w| w as u16;
    u32: |x| x.into(), |w| w as u32;
    u64: |x| x, |w| w;
}

/// `x` as a `U`. To a float: the nearest, ties to even, infinite on overflow. Float to integer: truncated towards zero,
/// saturated, NaN gives 0. Integer to integer: wraps. To bool: `x != 0`, so NaN gives true. From bool: 0 or 1.
#[inline(always)]
pub fn convert<T: Element, U: Element>(x: T) -> U {
    if T::DTYPE.is_float() {
        return U::from_f64(x.to_f64());
    }
    let wide = x.to_i64();
    if T::DTYPE != DType::U64 || !U::DTYPE.is_float() || wide >= 0 {
        return U::from_i64(wide);
    }
    // above `i64::MAX` the value is halved, keeping a sticky last bit so that it rounds once, and doubled
    let half = ((wide as u64) >> 1) | (wide as u64 & 1);
    U::from_f64(2.0 * U::from_i64(half as i64).to_f64())
}

impl Flag for bool {
    #[inline(always)]
    fn negated(self) -> bool {
        !self
    }
}

impl Flag for u8 {
    #[inline(always)]
    fn negated(self) -> u8 {
        u8::from(self == 0)
    }
}

impl Mask for bool {
    #[inline(always)]
    fn pick<T: Ordered<Mask = bool>>(self, a: impl FnOnce() -> T, b: impl FnOnce() -> T) -> T {
        if self { a() } else { b() }
    }
}

macro_rules! ordered {
    ($($t:ty)*) => { $(
        impl Ordered for $t {
            type Mask = bool;
            #[inline(always)]
            fn eq(self, b: Self) -> bool { self == b }
            #[inline(always)]
            fn ne(self, b: Self) -> bool { self != b }
            #[inline(always)]
            fn lt(self, b: Self) -> bool { self < b }
            #[inline(always)]
            fn le(self, b: Self) -> bool { self <= b }
            #[inline(always)]
            fn chosen(mask: bool, a: Self, b: Self) -> Self { if mask { a } else { b } }
        }
    )* };
}
ordered! { f16 bf16 f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 }

/// Methods that the type has by itself.
macro_rules! own {
    ($t:ident: $($f:ident($($b:ident),*))*) => { $(
        #[inline(always)]
        fn $f(self, $($b: Self),*) -> Self { <$t>::$f(self, $($b),*) }
    )* };
}

macro_rules! float {
    ($($t:ident, $bits:ident;)*) => { $(
        impl Float for $t {
            type Bits = $bits;
            #[inline(always)]
            fn lit(v: f64) -> Self { v as $t }
            own! { $t: mul_add(a, b) sqrt() abs() copysign(sign) floor() ceil() trunc() round() round_ties_even() }
            #[inline(always)]
            fn to_bits(self) -> $bits { <$t>::to_bits(self) }
            #[inline(always)]
            fn from_bits(bits: $bits) -> Self { <$t>::from_bits(bits) }
        }
    )* };
}
float! { f32, u32; f64, u64; }

impl Single for f32 {
    type Wide = f64;
    #[inline(always)]
    fn wide(self) -> f64 {
        self.into()
    }
    #[inline(always)]
    fn nearest(v: f64) -> f32 {
        v as f32
    }
    #[inline(always)]
    fn call(self, f: Fn32) -> f32 {
        f.call(self)
    }
}

impl Double for f64 {
    #[inline(always)]
    fn call(self, f: Fn64) -> f64 {
        f.call(self)
    }
    #[inline(always)]
    fn call2(self, b: f64, f: Fn64x2) -> f64 {
        f.call(self, b)
    }
}

macro_rules! int {
    ($($t:ident)*) => { $(
        impl Int for $t {
            const BITS: u32 = <$t>::BITS;
            #[inline(always)]
            fn lit(v: i64) -> Self { v as $t }
            own! { $t: wrapping_add(b) wrapping_sub(b) wrapping_mul(b) wrapping_div(b) wrapping_rem(b) }
            #[inline(always)]
            fn shl(self, b: Self) -> Self { self.wrapping_shl(b as u32) }
            #[inline(always)]
            fn shr(self, b: Self) -> Self { self.wrapping_shr(b as u32) }
            #[inline]
            fn wrapping_pow(self, b: Self) -> Self {
                let (mut base, mut left, mut y) = (self, b, 1);
                while left > 0 {
                    if left & 1 == 1 { y = <$t>::wrapping_mul(y, base); }
                    base = <$t>::wrapping_mul(base, base);
                    left >>= 1;
                }
                y
            }
        }
    )* };
}
int! { i8 i16 i32 i64 u8 u16 u32 u64 }
