//! Scalar functions, each written once for the loops of the CPU and for code generators.
//!
//! A scalar function is generic over the traits here: [`Float`] with [`Single`] (f32) and [`Double`] (f64), [`Int`] and
//! [`Flag`]. On the plain Rust types every method is an instruction and a [`Mask`] is a bool, so a loop over the function is
//! vectorised as any other; on [`Expr`] the same function writes itself down as an [`Expression`], a list of typed nodes
//! that a generator for another device prints. [`Expression::eval`] interprets it, and is what generated code is held to.
//!
//! Invariants. Every operation rounds once, as IEEE 754 has it, and only [`Float::mul_add`] is fused; so an expression has
//! the bits of the loop, but for the payload and the sign of a NaN, which IEEE leaves open. What no transcription exists of
//! is a function of a library, [`Fn32`] or [`Fn64`], a node of its own.
//!
//! There is no branch: [`Mask::select`] takes both values, and a row that must not compute one of them says
//! [`Mask::pick`]. Building and interpreting expressions takes memory from the heap, which kernels never do: neither is
//! part of a step.
//!
//! Rejected: a tree written beside the Rust function (two definitions, which part), and expressions without a type
//! parameter (constants had no type to be rounded to).

mod eval;
mod expr;
mod library;
mod plain;

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Sub};

pub use eval::{Expression, Node, Op};
pub use expr::{AnyExpr, Builder, Expr};
pub use library::{Fn32, Fn64, Fn64x2};
pub use plain::{Plain, convert};

/// A truth value, as a bool is stored: `bool`, a `u8` that is 0 or 1, or an expression of one.
pub trait Flag: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> {
    /// True where `self` is not.
    fn negated(self) -> Self;
}

/// The result of comparisons.
pub trait Mask: Flag {
    /// `a` where it holds, else `b`; both are computed.
    #[inline(always)]
    fn select<T: Ordered<Mask = Self>>(self, a: T, b: T) -> T {
        T::chosen(self, a, b)
    }
    /// As [`Mask::select`], but the CPU computes only the branch that is taken: for calls, which have no vector form.
    fn pick<T: Ordered<Mask = Self>>(self, a: impl FnOnce() -> T, b: impl FnOnce() -> T) -> T;
}

/// Numbers that can be compared and selected. A NaN is unequal to everything, and neither less nor greater.
pub trait Ordered: Copy {
    /// The result of a comparison.
    type Mask: Mask;
    /// `self == b`.
    fn eq(self, b: Self) -> Self::Mask;
    /// `self != b`.
    fn ne(self, b: Self) -> Self::Mask;
    /// `self < b`.
    fn lt(self, b: Self) -> Self::Mask;
    /// `self <= b`.
    fn le(self, b: Self) -> Self::Mask;
    /// `self > b`.
    #[inline(always)]
    fn gt(self, b: Self) -> Self::Mask {
        b.lt(self)
    }
    /// `self >= b`.
    #[inline(always)]
    fn ge(self, b: Self) -> Self::Mask {
        b.le(self)
    }
    /// `a` where `mask` holds, else `b`.
    fn chosen(mask: Self::Mask, a: Self, b: Self) -> Self;
    /// `lo` below it, `hi` above it, else `self`; NaN stays.
    #[inline(always)]
    fn clamped(self, lo: Self, hi: Self) -> Self {
        self.lt(lo).select(lo, self.gt(hi).select(hi, self))
    }
    /// The larger one; `b` where they do not compare.
    #[inline(always)]
    fn larger(self, b: Self) -> Self {
        self.gt(b).select(self, b)
    }
    /// The smaller one; `b` where they do not compare.
    #[inline(always)]
    fn smaller(self, b: Self) -> Self {
        self.lt(b).select(self, b)
    }
}

/// A binary float. `%` is C's `fmod`, which is exact.
pub trait Float:
    Ordered
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Rem<Output = Self>
    + Neg<Output = Self>
{
    /// The unsigned integer of as many bits.
    type Bits: Int<Mask = Self::Mask>;
    /// `v`, rounded.
    fn lit(v: f64) -> Self;
    /// `self * a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// `self` without its sign.
    fn abs(self) -> Self;
    /// `|self|` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// The largest integer not above `self`.
    fn floor(self) -> Self;
    /// The smallest integer not below `self`.
    fn ceil(self) -> Self;
    /// The integer part.
    fn trunc(self) -> Self;
    /// The nearest integer; halves go away from zero.
    fn round(self) -> Self;
    /// The nearest integer; halves go to the even one.
    fn round_ties_even(self) -> Self;
    /// The bits.
    fn to_bits(self) -> Self::Bits;
    /// The number of these bits.
    fn from_bits(bits: Self::Bits) -> Self;
    /// True for NaN.
    #[inline(always)]
    fn is_nan(self) -> Self::Mask {
        self.ne(self)
    }
    /// True for either infinity.
    #[inline(always)]
    fn is_infinite(self) -> Self::Mask {
        self.abs().eq(lit(f64::INFINITY))
    }
    /// True for neither NaN nor an infinity.
    #[inline(always)]
    fn is_finite(self) -> Self::Mask {
        self.abs().lt(lit(f64::INFINITY))
    }
    /// True if the bit of the sign is set.
    #[inline(always)]
    fn is_sign_negative(self) -> Self::Mask {
        self.to_bits().shr(int(i64::from(Self::Bits::BITS) - 1)).ne(int(0))
    }
}

/// `v` as a number of the type that is wanted.
#[inline(always)]
pub fn lit<F: Float>(v: f64) -> F {
    F::lit(v)
}

/// `v` as an integer of the type that is wanted.
#[inline(always)]
pub fn int<I: Int>(v: i64) -> I {
    I::lit(v)
}

/// f32, or an expression of it.
pub trait Single: Float {
    /// f64, or an expression of it.
    type Wide: Double<Mask = Self::Mask>;
    /// The same number in f64.
    fn wide(self) -> Self::Wide;
    /// The number of f32 that is nearest to `v`.
    fn nearest(v: Self::Wide) -> Self;
    /// A function of f32 of a library.
    fn call(self, f: Fn32) -> Self;
}

/// f64, or an expression of it.
pub trait Double: Float {
    /// A function of a library.
    fn call(self, f: Fn64) -> Self;
    /// A function of two numbers of a library.
    fn call2(self, b: Self, f: Fn64x2) -> Self;
}

/// An integer. Arithmetic wraps.
pub trait Int:
    Ordered + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// Bits of the type.
    const BITS: u32;
    /// `v`, wrapped.
    fn lit(v: i64) -> Self;
    /// `self + b`.
    fn wrapping_add(self, b: Self) -> Self;
    /// `self - b`.
    fn wrapping_sub(self, b: Self) -> Self;
    /// `self * b`.
    fn wrapping_mul(self, b: Self) -> Self;
    /// `-self`.
    #[inline(always)]
    fn wrapping_neg(self) -> Self {
        Self::lit(0).wrapping_sub(self)
    }
    /// `self / b` towards zero, for a `b` that is not 0; the least number over -1 is itself.
    fn wrapping_div(self, b: Self) -> Self;
    /// The remainder of that division, with the sign of `self`.
    fn wrapping_rem(self, b: Self) -> Self;
    /// `self` shifted left by `b` bits, fewer than `BITS`.
    fn shl(self, b: Self) -> Self;
    /// `self` shifted right, filled with the sign.
    fn shr(self, b: Self) -> Self;
    /// `self^b` by squaring, for a `b` not below 0: a node of its own, since the steps depend on `b`.
    fn wrapping_pow(self, b: Self) -> Self;
}
