//! What gradient rules are written with: ops under short names.

use remat_types::{Result, Scalar, Shape, SmallVec, smallvec};

use super::{Binary, BinaryFn, Fill, Unary, UnaryFn, Where};
use crate::args::real_dtype;
use crate::reduce::{Reduce, ReduceFn};
use crate::shape::Reshape;
use crate::{GradCx, Var};

/// A [`GradCx`] with arithmetic on [`Var`].
#[derive(Clone, Copy)]
pub(crate) struct Chain<'a, 'b>(pub(crate) &'a GradCx<'b>);

impl Chain<'_, '_> {
    pub(crate) fn un(self, f: UnaryFn, x: Var) -> Result<Var> {
        self.0.apply(Unary { f }, &[x])
    }

    pub(crate) fn bin(self, f: BinaryFn, a: Var, b: Var) -> Result<Var> {
        self.0.apply(Binary { f }, &[a, b])
    }

    pub(crate) fn add(self, a: Var, b: Var) -> Result<Var> {
        self.bin(BinaryFn::Add, a, b)
    }

    pub(crate) fn sub(self, a: Var, b: Var) -> Result<Var> {
        self.bin(BinaryFn::Sub, a, b)
    }

    pub(crate) fn mul(self, a: Var, b: Var) -> Result<Var> {
        self.bin(BinaryFn::Mul, a, b)
    }

    pub(crate) fn div(self, a: Var, b: Var) -> Result<Var> {
        self.bin(BinaryFn::Div, a, b)
    }

    pub(crate) fn neg(self, a: Var) -> Result<Var> {
        self.un(UnaryFn::Neg, a)
    }

    pub(crate) fn square(self, a: Var) -> Result<Var> {
        self.un(UnaryFn::Square, a)
    }

    /// The rank-0 constant `v` of `like`'s dtype.
    pub(crate) fn constant(self, v: f64, like: Var) -> Result<Var> {
        let dtype = self.0.fact(like).dtype;
        self.0.apply(Fill { dtype, shape: Shape::scalar(), value: Scalar::Float(v) }, &[])
    }

    /// The number `v` for a binary function or a comparison beside `like`, which it enters unrounded: a rank-0 constant of
    /// f32 where `like` is of 16-bit floats.
    pub(crate) fn number(self, v: f64, like: Var) -> Result<Var> {
        let dtype = real_dtype(self.0.fact(like).dtype);
        self.0.apply(Fill { dtype, shape: Shape::scalar(), value: Scalar::Float(v) }, &[])
    }

    /// `a + v`.
    pub(crate) fn offset(self, a: Var, v: f64) -> Result<Var> {
        self.add(a, self.number(v, a)?)
    }

    /// `a * v`.
    pub(crate) fn scale(self, a: Var, v: f64) -> Result<Var> {
        self.mul(a, self.number(v, a)?)
    }

    /// `v` where `cond`, else 0.
    pub(crate) fn keep_where(self, cond: Var, v: Var) -> Result<Var> {
        self.0.apply(Where, &[cond, v, self.constant(0.0, v)?])
    }

    /// `0` where `cond`, else `v`.
    pub(crate) fn drop_where(self, cond: Var, v: Var) -> Result<Var> {
        self.0.apply(Where, &[cond, self.constant(0.0, v)?, v])
    }

    /// `v` under another shape of as many elements.
    pub(crate) fn reshape(self, v: Var, shape: &Shape) -> Result<Var> {
        if self.0.fact(v).shape == *shape {
            return Ok(v);
        }
        self.0.apply(Reshape { shape: shape.clone() }, &[v])
    }

    /// The sum of `v` over the axes along which `shape` was broadcast to `v`'s shape: the gradient of broadcasting.
    pub(crate) fn sum_to(self, v: Var, shape: &Shape) -> Result<Var> {
        let have = self.0.fact(v).shape;
        if have == *shape {
            return Ok(v);
        }
        let lead = have.rank() - shape.rank();
        let axes: SmallVec<[usize; 4]> =
            (0..have.rank()).filter(|&i| i < lead || (shape[i - lead] == 1 && have[i] != 1)).collect();
        let sum = self.0.apply(Reduce { f: ReduceFn::Sum, axes, keepdims: true }, &[v])?;
        self.reshape(sum, shape)
    }
}

/// Wraps the value of a one-output composite for [`GradCx::through`].
pub(crate) fn only(v: Result<Var>) -> Result<SmallVec<[Var; 2]>> {
    Ok(smallvec![v?])
}
