use remat_linalg::{Factor, Triangle};
use remat_types::{Error, ErrorKind, Fact, Facts, Result, Shape, smallvec};

use super::build::{Matrices, failed, for_factor, square};
use crate::args::{outputs, want_dtype};
use crate::host::arity;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, Var};

/// `x` of `a x = b`: `(a, b) -> x`, `a: [.., n, n]`, `b, x: [.., n, k]` with one batch. By elimination with row exchanges.
///
/// Errors: DType for other than f32 and f64, or two dtypes; Axis; Shape; Value for a matrix that is singular.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float, b: float), gradient(a, b))]
pub struct Solve {
    /// `a^T x = b` is solved.
    #[param(default = false)]
    pub transpose: bool,
}

/// `x` of `a x = b` with a triangle `a`: `(a, b) -> x`, `a: [.., n, n]`, `b, x: [.., n, k]` with one batch.
///
/// What lies in the other triangle is not read. A 0 on the diagonal gives infinities. Errors: DType for other than f32 and
/// f64, or two dtypes; Axis; Shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float, b: float), gradient(a, b))]
pub struct SolveTriangular {
    /// The upper triangle, not the lower one.
    pub upper: bool,
    /// The diagonal counts as ones and is not read.
    #[param(default = false)]
    pub unit: bool,
    /// `a^T x = b` is solved.
    #[param(default = false)]
    pub transpose: bool,
}

/// Sign and logarithm of the absolute value of determinants: `a -> (sign, log)`, `a: [.., n, n]`, `sign, log: [..]`.
///
/// 0 and minus infinity for a singular matrix, whose gradient is an error of kind Value. Errors: DType, Axis, Shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float), gradient(a))]
pub struct SlogDet {}

/// Batch, `n` and `k`. Errors: as [`Solve`].
fn system(x: &[&Fact]) -> Result<(Shape, usize, usize)> {
    arity(x, 2)?;
    let (batch, n) = square(x[0], "a")?;
    want_dtype(x[1], x[0].dtype, "b")?;
    match x[1].shape.dims() {
        [rows @ .., m, k] if *rows == *batch.dims() && *m == n => Ok((batch, n, *k)),
        _ => {
            let text = format!("a has shape {}, b {}: b needs the batch and the rows of a", x[0].shape, x[1].shape);
            Err(Error::new(ErrorKind::Shape, text))
        }
    }
}

fn system_of(cx: &EvalCx<'_>) -> Result<(Shape, usize, usize)> {
    let of = |i: usize| Fact::new(cx.x[i].dtype(), cx.x[i].shape().clone());
    system(&[&of(0), &of(1)])
}

/// `da` and `db` of `a x = b` or `a^T x = b`: `db` by the transposed system, `da = -db x^T` or its transpose.
fn gradients(cx: &GradCx<'_>, transpose: bool, back: impl Into<crate::OpRef>, dx: Var) -> Result<(Var, Var)> {
    let m = Matrices(cx);
    let db = cx.apply(back, &[cx.x(0), dx])?;
    let da = if transpose { m.product_t(cx.y(0), db)? } else { m.product_t(db, cx.y(0))? };
    Ok((m.arith().neg(da)?, db))
}

impl Op for Solve {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        system(x)?;
        Ok(smallvec![x[1].clone()])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (batch, n, k) = system_of(cx)?;
        for_factor!(cx.x[0].dtype(), T => {
            let (a, b, x) = (cx.x[0].slice::<T>()?, cx.x[1].slice::<T>()?, cx.y[0].slice_mut::<T>()?);
            x.copy_from_slice(b);
            let (square, right) = ((n * n).max(1), (n * k).max(1));
            for (at, (a, x)) in a.chunks_exact(square).zip(x.chunks_exact_mut(right)).enumerate() {
                T::solve(n, k, a, x, self.transpose, cx.workspace).map_err(|e| failed(&batch, at, e))?;
            }
            Ok(())
        })
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dx) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let (da, db) = gradients(cx, self.transpose, Solve { transpose: !self.transpose }, dx)?;
        Ok(smallvec![Some(da), Some(db)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok((_, n, k)) = system(x) else { return 0 };
        for_factor!(x[0].dtype, T => Ok(T::solve_bytes(n, k))).unwrap_or(0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = system(x).map_or(0, |(batch, n, k)| batch.elems() * (2 * n * n * n / 3 + 2 * n * n * k));
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}

impl Op for SolveTriangular {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        system(x)?;
        Ok(smallvec![x[1].clone()])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (_, n, k) = system_of(cx)?;
        let how = Triangle { upper: self.upper, unit: self.unit, transpose: self.transpose };
        for_factor!(cx.x[0].dtype(), T => {
            let (a, b, x) = (cx.x[0].slice::<T>()?, cx.x[1].slice::<T>()?, cx.y[0].slice_mut::<T>()?);
            x.copy_from_slice(b);
            let (square, right) = ((n * n).max(1), (n * k).max(1));
            for (a, x) in a.chunks_exact(square).zip(x.chunks_exact_mut(right)) {
                T::triangular(n, k, a, x, how);
            }
            Ok(())
        })
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dx) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        let back = SolveTriangular { transpose: !self.transpose, ..self.clone() };
        let (da, db) = gradients(cx, self.transpose, back, dx)?;
        let (m, inner) = (Matrices(cx), i64::from(self.unit));
        let da = if self.upper { m.triu(da, inner)? } else { m.tril(da, -inner)? };
        Ok(smallvec![Some(da), Some(db)])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = system(x).map_or(0, |(batch, n, k)| batch.elems() * n * n * k);
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}

impl Op for SlogDet {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let (batch, _) = square(x[0], "a")?;
        let y = Fact::new(x[0].dtype, batch);
        Ok(smallvec![y.clone(), y])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        let (_, n) = square(&Fact::new(dtype, cx.x[0].shape().clone()), "a")?;
        for_factor!(dtype, T => {
            let a = cx.x[0].slice::<T>()?;
            let [sign, log] = outputs(cx.y)?;
            let (sign, log) = (sign.slice_mut::<T>()?, log.slice_mut::<T>()?);
            for (i, (sign, log)) in sign.iter_mut().zip(log).enumerate() {
                (*sign, *log) = T::slogdet(n, &a[i * n * n..][..n * n], cx.workspace);
            }
            Ok(())
        })
    }

    /// `dlog a^-T`; the sign is piecewise constant.
    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dlog) = cx.dy(1) else { return Ok(smallvec![None]) };
        let (m, a) = (Matrices(cx), cx.x(0));
        let n = m.extents(a)[1];
        let inverse = cx.apply(Solve { transpose: true }, &[a, m.identity(a, n)?])?;
        let dlog = m.with_axis(m.with_axis(dlog, false)?, false)?;
        Ok(smallvec![Some(m.arith().mul(inverse, dlog)?)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok((_, n)) = square(x[0], "a") else { return 0 };
        for_factor!(x[0].dtype, T => Ok(T::slogdet_bytes(n))).unwrap_or(0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = square(x[0], "a").map_or(0, |(batch, n)| batch.elems() * 2 * n * n * n / 3);
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
