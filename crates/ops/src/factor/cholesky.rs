use remat_linalg::Factor;
use remat_types::{Fact, Facts, Result, smallvec};

use super::SolveTriangular;
use super::build::{Matrices, failed, for_factor, square};
use crate::host::arity;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op};

/// The lower triangle `l` with `a = l l^T`: `a -> l`, both `[.., n, n]`, of symmetric positive definite matrices.
///
/// The lower triangle of `a` is read, and the gradient is that of its elements (Murray, 2016, arXiv:1602.07527). Errors: DType
/// for other than f32 and f64; Axis; Shape for other than square matrices; Value for a matrix that is not positive definite.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float), gradient(a))]
pub struct Cholesky {}

impl Op for Cholesky {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        square(x[0], "a")?;
        Ok(smallvec![x[0].clone()])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        let (batch, n) = square(&Fact::new(dtype, cx.x[0].shape().clone()), "a")?;
        for_factor!(dtype, T => {
            let (a, l) = (cx.x[0].slice::<T>()?, cx.y[0].slice_mut::<T>()?);
            let size = (n * n).max(1);
            for (at, (a, l)) in a.chunks_exact(size).zip(l.chunks_exact_mut(size)).enumerate() {
                T::cholesky(n, a, l, cx.workspace).map_err(|e| failed(&batch, at, e))?;
            }
            Ok(())
        })
    }

    /// With `p` the lower triangle of `l^T dl`, half its diagonal: `s = l^-T p l^-1`, folded to the triangle that is read.
    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dl) = cx.dy(0) else { return Ok(smallvec![None]) };
        let (m, l) = (Matrices(cx), cx.y(0));
        let p = m.half_lower(m.t_product(l, m.tril(dl, 0)?)?)?;
        let back = SolveTriangular { upper: false, unit: false, transpose: true };
        let left = cx.apply(back.clone(), &[l, p])?;
        let s = cx.apply(back, &[l, m.transpose(left)?])?;
        // of s and its transpose, which an element below the diagonal stands for, half each
        let folded = m.folded(s)?;
        Ok(smallvec![Some(folded)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok((_, n)) = square(x[0], "a") else { return 0 };
        for_factor!(x[0].dtype, T => Ok(T::cholesky_bytes(n))).unwrap_or(0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = square(x[0], "a").map_or(0, |(batch, n)| batch.elems() * n * n * n / 3);
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
