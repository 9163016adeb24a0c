use remat_linalg::Factor;
use remat_types::{Fact, Facts, Result, Scalar, smallvec};

use super::build::{Matrices, failed, for_factor, matrices, of_batch};
use crate::args::{checked_fact, number};
use crate::host::arity;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op};

/// The pseudoinverse of Moore and Penrose: `a -> p`, `a: [.., m, n]`, `p: [.., n, m]`. Singular values below `rcond` times the
/// largest count as 0.
///
/// The gradient is that of Golub and Pereyra (1973) for changes that keep the rank. Errors: DType for other than f32 and f64;
/// Axis; Value for an `rcond` outside 0 ..= 1, and for a matrix that holds NaN or an infinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float), gradient(a))]
pub struct Pinv {
    /// The least singular value that counts, of the largest.
    pub rcond: Scalar,
}

impl Pinv {
    fn rcond(&self) -> Result<f64> {
        number(self.rcond, "rcond", "within 0 ..= 1", |r| (0.0..=1.0).contains(&r))
    }
}

impl Op for Pinv {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        self.rcond()?;
        let (batch, m, n) = matrices(x[0], "a")?;
        Ok(smallvec![checked_fact(x[0].dtype, of_batch(&batch, n, m))?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (dtype, rcond) = (cx.x[0].dtype(), self.rcond()?);
        let (batch, m, n) = matrices(&Fact::new(dtype, cx.x[0].shape().clone()), "a")?;
        if m * n == 0 {
            return Ok(());
        }
        for_factor!(dtype, T => {
            let (a, p) = (cx.x[0].slice::<T>()?, cx.y[0].slice_mut::<T>()?);
            for (at, (a, p)) in a.chunks_exact(m * n).zip(p.chunks_exact_mut(m * n)).enumerate() {
                T::pinv(m, n, a, rcond, p, cx.workspace).map_err(|e| failed(&batch, at, e))?;
            }
            Ok(())
        })
    }

    /// `da = (1 - a p) dp^T p p^T + p^T p dp^T (1 - p a) - p^T dp p^T`.
    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dp) = cx.dy(0) else { return Ok(smallvec![None]) };
        let (mats, a, p) = (Matrices(cx), cx.x(0), cx.y(0));
        let c = mats.arith();
        let [m, n] = mats.extents(a);
        let pt = mats.transpose(p)?;
        let mut da = c.neg(mats.product(mats.product(pt, dp)?, pt)?)?;
        // of full rank, one of the two projections is 0; a matrix of lower rank has both
        let dpt = mats.transpose(dp)?;
        let left = mats.product(dpt, mats.product(p, pt)?)?;
        let left = c.sub(left, mats.product(a, mats.product(p, left)?)?)?;
        let right = mats.product(mats.product(pt, p)?, dpt)?;
        let right = c.sub(right, mats.product(mats.product(right, p)?, a)?)?;
        for part in [left, right] {
            debug_assert_eq!(mats.extents(part), [m, n]);
            da = c.add(da, part)?;
        }
        Ok(smallvec![Some(da)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok((_, m, n)) = matrices(x[0], "a") else { return 0 };
        for_factor!(x[0].dtype, T => Ok(T::pinv_bytes(m, n))).unwrap_or(0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = matrices(x[0], "a").map_or(0, |(batch, m, n)| batch.elems() * 22 * m * n * m.min(n));
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
