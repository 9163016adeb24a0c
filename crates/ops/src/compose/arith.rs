//! Ops under short names, for compositions and gradient rules.

use remat_types::{Result, Scalar, Shape, SmallVec};

use crate::Apply;
use crate::args::real_dtype;
use crate::pointwise::{Binary, BinaryFn, Unary, UnaryFn, Where};
use crate::reduce::{Reduce, ReduceFn};
use crate::shape::Reshape;

/// A seam with arithmetic on its values.
pub struct Arith<'a, A>(pub &'a A);

impl<A> Clone for Arith<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<A> Copy for Arith<'_, A> {}

impl<A: Apply> Arith<'_, A> {
    /// `f(x)`.
    #[track_caller]
    pub fn un(self, f: UnaryFn, x: A::Value) -> Result<A::Value> {
        self.0.apply1(Unary { f }, [x])
    }

    /// `f(a, b)`.
    #[track_caller]
    pub fn bin(self, f: BinaryFn, a: A::Value, b: A::Value) -> Result<A::Value> {
        self.0.apply1(Binary { f }, [a, b])
    }

    /// `a + b`.
    #[track_caller]
    pub fn add(self, a: A::Value, b: A::Value) -> Result<A::Value> {
        self.bin(BinaryFn::Add, a, b)
    }

    /// `a - b`.
    #[track_caller]
    pub fn sub(self, a: A::Value, b: A::Value) -> Result<A::Value> {
        self.bin(BinaryFn::Sub, a, b)
    }

    /// `a b`.
    #[track_caller]
    pub fn mul(self, a: A::Value, b: A::Value) -> Result<A::Value> {
        self.bin(BinaryFn::Mul, a, b)
    }

    /// `a / b`.
    #[track_caller]
    pub fn div(self, a: A::Value, b: A::Value) -> Result<A::Value> {
        self.bin(BinaryFn::Div, a, b)
    }

    /// `-a`.
    #[track_caller]
    pub fn neg(self, a: A::Value) -> Result<A::Value> {
        self.un(UnaryFn::Neg, a)
    }

    /// `a^2`.
    #[track_caller]
    pub fn square(self, a: A::Value) -> Result<A::Value> {
        self.un(UnaryFn::Square, a)
    }

    /// The rank-0 constant `v` of `like`'s dtype.
    #[track_caller]
    pub fn constant(self, v: f64, like: &A::Value) -> Result<A::Value> {
        self.0.scalar(self.0.fact(like).dtype, Scalar::Float(v))
    }

    /// The number `v` for a binary function or a comparison beside `like`, which it enters unrounded: a rank-0 constant of
    /// f32 where `like` is of 16-bit floats.
    #[track_caller]
    pub fn number(self, v: f64, like: &A::Value) -> Result<A::Value> {
        self.0.scalar(real_dtype(self.0.fact(like).dtype), Scalar::Float(v))
    }

    /// `a + v`.
    #[track_caller]
    pub fn offset(self, a: A::Value, v: f64) -> Result<A::Value> {
        let v = self.number(v, &a)?;
        self.add(a, v)
    }

    /// `a v`.
    #[track_caller]
    pub fn scale(self, a: A::Value, v: f64) -> Result<A::Value> {
        let v = self.number(v, &a)?;
        self.mul(a, v)
    }

    /// `v` where `cond`, else 0.
    #[track_caller]
    pub fn keep_where(self, cond: A::Value, v: A::Value) -> Result<A::Value> {
        let zero = self.constant(0.0, &v)?;
        self.0.apply1(Where, [cond, v, zero])
    }

    /// `0` where `cond`, else `v`.
    #[track_caller]
    pub fn drop_where(self, cond: A::Value, v: A::Value) -> Result<A::Value> {
        let zero = self.constant(0.0, &v)?;
        self.0.apply1(Where, [cond, zero, v])
    }

    /// `v` under another shape of as many elements.
    #[track_caller]
    pub fn reshape(self, v: A::Value, shape: &Shape) -> Result<A::Value> {
        if self.0.fact(&v).shape == *shape {
            return Ok(v);
        }
        self.0.apply1(Reshape { shape: shape.clone() }, [v])
    }

    /// The sum over `axes`, which stay with extent 1.
    #[track_caller]
    pub fn sum_over(self, v: A::Value, axes: &[usize]) -> Result<A::Value> {
        self.0.apply1(Reduce { f: ReduceFn::Sum, axes: axes.iter().copied().collect(), keepdims: true }, [v])
    }

    /// The sum of `v` over the axes along which `shape` was broadcast to `v`'s shape: the gradient of broadcasting.
    #[track_caller]
    pub fn sum_to(self, v: A::Value, shape: &Shape) -> Result<A::Value> {
        let have = self.0.fact(&v).shape;
        if have == *shape {
            return Ok(v);
        }
        let lead = have.rank() - shape.rank();
        let axes: SmallVec<[usize; 4]> =
            (0..have.rank()).filter(|&i| i < lead || (shape[i - lead] == 1 && have[i] != 1)).collect();
        let sum = self.sum_over(v, &axes)?;
        self.reshape(sum, shape)
    }
}
