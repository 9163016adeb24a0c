//! Shared parts of the operators: checks, the walk over the batch, and the vocabulary of their gradients.

use remat_linalg::Failure;
use remat_types::{DType, Error, ErrorKind, Fact, Result, Scalar, Shape};

use crate::args::not_taken;
use crate::compose::{self, Arith};
use crate::linalg::MatMul;
use crate::pointwise::{Binary, BinaryFn, Fill};
use crate::shape::{BroadcastTo, Permute, Reshape};
use crate::{GradCx, Var};

/// Runs `$body` with the float type of `$dtype`.
macro_rules! for_factor {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            remat_types::DType::F32 => {
                type $t = f32;
                $body
            }
            remat_types::DType::F64 => {
                type $t = f64;
                $body
            }
            other => Err(crate::args::not_taken(other)),
        }
    };
}
pub(super) use for_factor;

/// The batch and the extents of the matrices of `x`. Errors: DType for other than f32 and f64, Axis for a rank below 2.
pub(super) fn matrices(x: &Fact, name: &str) -> Result<(Shape, usize, usize)> {
    if !matches!(x.dtype, DType::F32 | DType::F64) {
        return Err(not_taken(x.dtype));
    }
    let [batch @ .., m, n] = x.shape.dims() else {
        let text = format!("{name} has shape {}: rank {}; it must be 2 or more", x.shape, x.rank());
        return Err(Error::new(ErrorKind::Axis, text));
    };
    Ok((batch.into(), *m, *n))
}

/// As [`matrices`] of as many rows as columns. Errors: also Shape.
pub(super) fn square(x: &Fact, name: &str) -> Result<(Shape, usize)> {
    let (batch, m, n) = matrices(x, name)?;
    if m != n {
        let text = format!("{name} has shape {}: its matrices are not square", x.shape);
        return Err(Error::new(ErrorKind::Shape, text));
    }
    Ok((batch, n))
}

/// Matrices `m x n` of a batch.
pub(super) fn of_batch(batch: &Shape, m: usize, n: usize) -> Shape {
    batch.dims().iter().copied().chain([m, n]).collect()
}

/// The error of matrix `at` of a batch.
pub(super) fn failed(batch: &Shape, at: usize, why: Failure) -> Error {
    let text = match batch.rank() {
        0 => format!("the matrix has no result: {why}"),
        _ => format!("matrix {at} of a batch of shape {batch} has no result: {why}"),
    };
    Error::new(ErrorKind::Value, text)
}

/// Products, transposes and masks of matrices.
#[derive(Clone, Copy)]
pub(super) struct Matrices<'a, 'b>(pub(super) &'a GradCx<'b>);

impl<'a, 'b> Matrices<'a, 'b> {
    pub(super) fn arith(self) -> Arith<'a, GradCx<'b>> {
        self.0.build()
    }

    /// The extents of the last two axes.
    pub(super) fn extents(self, x: Var) -> [usize; 2] {
        let shape = self.0.fact(x).shape;
        [shape[shape.rank() - 2], shape[shape.rank() - 1]]
    }

    pub(super) fn transpose(self, x: Var) -> Result<Var> {
        let rank = self.0.fact(x).rank();
        let order = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.0.apply(Permute { order }, &[x])
    }

    pub(super) fn product(self, a: Var, b: Var) -> Result<Var> {
        self.0.apply(MatMul {}, &[a, b])
    }

    /// `a b^T`.
    pub(super) fn product_t(self, a: Var, b: Var) -> Result<Var> {
        self.product(a, self.transpose(b)?)
    }

    /// `a^T b`.
    pub(super) fn t_product(self, a: Var, b: Var) -> Result<Var> {
        self.product(self.transpose(a)?, b)
    }

    pub(super) fn tril(self, x: Var, diagonal: i64) -> Result<Var> {
        compose::tril(self.0, x, diagonal)
    }

    pub(super) fn triu(self, x: Var, diagonal: i64) -> Result<Var> {
        compose::triu(self.0, x, diagonal)
    }

    /// The lower triangle with half of the diagonal.
    pub(super) fn half_lower(self, x: Var) -> Result<Var> {
        let c = self.arith();
        c.scale(c.add(self.tril(x, 0)?, self.tril(x, -1)?)?, 0.5)
    }

    /// The gradient of the lower triangle, from the gradient of all elements, if the upper triangle is a copy of the lower one.
    pub(super) fn folded(self, x: Var) -> Result<Var> {
        let c = self.arith();
        let below = self.tril(c.add(x, self.transpose(x)?)?, -1)?;
        c.add(below, self.tril(self.triu(x, 0)?, 0)?)
    }

    /// `x` with another last axis of extent 1, or with one before the last.
    pub(super) fn with_axis(self, x: Var, before_last: bool) -> Result<Var> {
        let mut shape: Vec<usize> = self.0.fact(x).shape.dims().to_vec();
        shape.insert(shape.len() - usize::from(before_last), 1);
        self.0.apply(Reshape { shape: shape.into() }, &[x])
    }

    /// Vectors in the last axis as diagonals of matrices that are 0 elsewhere.
    pub(super) fn diagonal(self, x: Var) -> Result<Var> {
        let dims = self.0.fact(x).shape;
        let n = dims[dims.rank() - 1];
        let wide = of_batch(&dims.dims()[..dims.rank() - 1].into(), n, n);
        let all = self.0.apply(BroadcastTo { shape: wide }, &[self.with_axis(x, true)?])?;
        self.tril(self.triu(all, 0)?, 0)
    }

    /// Identity matrices of the batch and dtype of `like`.
    pub(super) fn identity(self, like: Var, n: usize) -> Result<Var> {
        let fact = self.0.fact(like);
        let batch: Shape = fact.shape.dims()[..fact.rank() - 2].into();
        let ones = Fill { dtype: fact.dtype, shape: of_batch(&batch, n, n), value: Scalar::Float(1.0) };
        self.tril(self.triu(self.0.apply(ones, &[])?, 0)?, 0)
    }

    /// `1 / (v_j - v_i)` off the diagonal, 0 on it, of vectors in the last axis.
    pub(super) fn gaps(self, v: Var) -> Result<Var> {
        let c = self.arith();
        let difference = c.sub(self.with_axis(v, true)?, self.with_axis(v, false)?)?;
        let off = c.add(self.tril(difference, -1)?, self.triu(difference, 1)?)?;
        // equal values off the diagonal have no gradient: infinite, not 0
        let one = c.constant(1.0, &off)?;
        let n = self.extents(off)[1];
        let eye = self.identity(off, n)?;
        let inverse = self.0.apply(Binary { f: BinaryFn::Div }, &[one, c.add(off, eye)?])?;
        c.sub(inverse, eye)
    }
}
