use remat_linalg::Factor;
use remat_types::{Fact, Facts, Result, Shape, smallvec};

use super::build::{Matrices, failed, for_factor, of_batch, square};
use crate::args::outputs;
use crate::host::arity;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op};

/// Eigenvalues and eigenvectors of symmetric matrices, `a = v diag(w) v^T`: `a -> (w, v)` or, without vectors, `a -> w`;
/// `a, v: [.., n, n]`, `w: [.., n]` ascending. The signs of the vectors are not normalised.
///
/// The lower triangle of `a` is read, and the gradient is that of its elements; that of the vectors is infinite where
/// eigenvalues are equal. Errors: DType for other than f32 and f64; Axis; Shape for other than square matrices; Value for a
/// matrix that holds NaN or an infinity, or whose iteration does not converge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float), gradient(a))]
pub struct Eigh {
    /// Whether the vectors are wanted.
    #[param(default = true)]
    pub vectors: bool,
}

impl Op for Eigh {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let (batch, n) = square(x[0], "a")?;
        let values: Shape = batch.dims().iter().copied().chain([n]).collect();
        let w = Fact::new(x[0].dtype, values);
        if !self.vectors {
            return Ok(smallvec![w]);
        }
        Ok(smallvec![w, Fact::new(x[0].dtype, of_batch(&batch, n, n))])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        let (batch, n) = square(&Fact::new(dtype, cx.x[0].shape().clone()), "a")?;
        if n == 0 {
            return Ok(());
        }
        for_factor!(dtype, T => {
            let a = cx.x[0].slice::<T>()?.chunks_exact(n * n);
            if let [w] = cx.y {
                for (at, (a, w)) in a.zip(w.slice_mut::<T>()?.chunks_exact_mut(n)).enumerate() {
                    T::eigh(n, a, w, None, cx.workspace).map_err(|e| failed(&batch, at, e))?;
                }
                return Ok(());
            }
            let [w, v] = outputs(cx.y)?;
            let out = w.slice_mut::<T>()?.chunks_exact_mut(n).zip(v.slice_mut::<T>()?.chunks_exact_mut(n * n));
            for (at, (a, (w, v))) in a.zip(out).enumerate() {
                T::eigh(n, a, w, Some(v), cx.workspace).map_err(|e| failed(&batch, at, e))?;
            }
            Ok(())
        })
    }

    /// `v (diag(dw) + f (v^T dv)) v^T` with `f = 1 / (w_j - w_i)`, folded to the triangle that is read.
    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let mats = Matrices(cx);
        let c = mats.arith();
        if !self.vectors {
            let Some(dw) = cx.dy(0) else { return Ok(smallvec![None]) };
            let all = cx.apply_all(Eigh { vectors: true }, &[cx.x(0)])?;
            let scaled = c.mul(all[1], mats.with_axis(dw, true)?)?;
            return Ok(smallvec![Some(mats.folded(mats.product_t(scaled, all[1])?)?)]);
        }
        let (w, v) = (cx.y(0), cx.y(1));
        let values = cx.dy(0).map(|dw| mats.diagonal(dw)).transpose()?;
        let rotation = match cx.dy(1) {
            Some(dv) => Some(c.mul(mats.gaps(w)?, mats.t_product(v, dv)?)?),
            None => None,
        };
        let inner = match (values, rotation) {
            (Some(a), Some(b)) => c.add(a, b)?,
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return Ok(smallvec![None]),
        };
        Ok(smallvec![Some(mats.folded(mats.product_t(mats.product(v, inner)?, v)?)?)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok((_, n)) = square(x[0], "a") else { return 0 };
        for_factor!(x[0].dtype, T => Ok(T::eigh_bytes(n, self.vectors))).unwrap_or(0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let per = if self.vectors { 9 } else { 2 };
        let flops = square(x[0], "a").map_or(0, |(batch, n)| batch.elems() * per * n * n * n);
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
