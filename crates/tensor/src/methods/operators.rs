//! Rust's operators. They are fallible like the methods: `(&a + &b)? * 2.0`. A tensor that goes in by value may die in the
//! operation and give its storage to the result.
//!
//! `%` has the sign of the divisor, as [`Tensor::rem`]; `&`, `|`, `^` and `!` are logical of bools and bitwise of integers.
//! Comparisons give masks and are methods ([`Tensor::lt`]): Rust's operators for them give one bool.
//!
//! On the left stand f64 and i64 alone, so that literals need no suffix: with a second float type `2.0 * &x` is ambiguous.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

use remat_ops::pointwise::BinaryFn;
use remat_types::{DType, Result};

use super::IntoOperand;
use crate::Tensor;

macro_rules! operators {
    ($($op:ident, $method:ident;)*) => { $(
        impl<B: IntoOperand> $op<B> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, b: B) -> Result<Tensor> { self.clone().binary(BinaryFn::$op, b) }
        }
        impl<B: IntoOperand> $op<B> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, b: B) -> Result<Tensor> { self.binary(BinaryFn::$op, b) }
        }
        operators! { $op, $method: f64, i64 }
    )* };
    ($op:ident, $method:ident: $($number:ty),*) => { $(
        impl $op<&Tensor> for $number {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, b: &Tensor) -> Result<Tensor> {
                Tensor::number_and(self, BinaryFn::$op, b.clone())
            }
        }
        impl $op<Tensor> for $number {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, b: Tensor) -> Result<Tensor> {
                Tensor::number_and(self, BinaryFn::$op, b)
            }
        }
    )* };
}
operators! { Add, add; Sub, sub; Mul, mul; Div, div; Rem, rem; }

// of bools `&`, `|`, `^` and `!` are the logical functions
macro_rules! bit_operators {
    ($($op:ident, $method:ident, $of_bools:ident, $of_bits:ident;)*) => { $(
        impl<B: IntoOperand> $op<B> for &Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, b: B) -> Result<Tensor> { $op::$method(self.clone(), b) }
        }
        impl<B: IntoOperand> $op<B> for Tensor {
            type Output = Result<Tensor>;
            #[track_caller]
            fn $method(self, b: B) -> Result<Tensor> {
                let f = if self.dtype() == DType::Bool { BinaryFn::$of_bools } else { BinaryFn::$of_bits };
                self.binary(f, b)
            }
        }
    )* };
}
bit_operators! {
    BitAnd, bitand, LogicalAnd, BitAnd;
    BitOr, bitor, LogicalOr, BitOr;
    BitXor, bitxor, LogicalXor, BitXor;
    Shl, shl, Shl, Shl;
    Shr, shr, Shr, Shr;
}

impl Not for &Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn not(self) -> Result<Tensor> {
        if self.dtype() == DType::Bool { self.logical_not() } else { self.bit_not() }
    }
}
impl Not for Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn not(self) -> Result<Tensor> {
        !&self
    }
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}
impl Neg for Tensor {
    type Output = Result<Tensor>;
    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}

/// The result of a step of a formula: a tensor or a number, or the error of making it. For `calc!` of the crate `remat`.
pub trait Settle {
    /// The value.
    type Value;

    /// The value, or why there is none.
    fn settle(self) -> Result<Self::Value>;
}

impl<T> Settle for Result<T> {
    type Value = T;

    fn settle(self) -> Result<T> {
        self
    }
}

macro_rules! settled {
    ($($t:ty),*) => { $(
        impl Settle for $t {
            type Value = $t;

            fn settle(self) -> Result<$t> {
                Ok(self)
            }
        }
    )* };
}
settled!(Tensor, f32, f64, i32, i64, bool);
