//! Rust's operators. They are fallible like the methods: `(&a + &b)? * 2.0`. A tensor that goes in by value may die in the
//! operation and give its storage to the result.
//!
//! On the left stand f64 and i64 alone, so that literals need no suffix: with a second float type `2.0 * &x` is ambiguous.

use std::ops::{Add, Div, Mul, Neg, Sub};

use remat_ops::pointwise::BinaryFn;
use remat_types::Result;

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
operators! { Add, add; Sub, sub; Mul, mul; Div, div; }

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
