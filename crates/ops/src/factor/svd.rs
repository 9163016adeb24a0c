use remat_linalg::Factor;
use remat_types::{Fact, Facts, Result, Shape, SmallVec, smallvec};

use super::build::{Matrices, failed, for_factor, matrices, of_batch};
use crate::args::checked_fact;
use crate::host::arity;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, Var};

/// Singular values and vectors, `a = u diag(s) vt`: `a -> (u, s, vt)` or, without vectors, `a -> s`; `a: [.., m, n]`,
/// `u: [.., m, k]`, `s: [.., k]` descending, `vt: [.., k, n]`, `k = min(m, n)`. The signs of the vectors are not normalised.
///
/// The gradient of the vectors is that of Townsend (2016), infinite where singular values are equal. Errors: DType for other
/// than f32 and f64; Axis; Value for a matrix that holds NaN or an infinity, or whose iteration does not converge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float), gradient(a))]
pub struct Svd {
    /// Whether the vectors are wanted.
    #[param(default = true)]
    pub vectors: bool,
}

impl Svd {
    /// `(dU / s) f s`-like part: `inner = f (u^T du - du^T u)`.
    fn rotation(m: Matrices<'_, '_>, f: Var, u: Var, du: Var) -> Result<Var> {
        let c = m.arith();
        let product = m.t_product(u, du)?;
        c.mul(f, c.sub(product, m.transpose(product)?)?)
    }

    /// `(1 - u u^T) du`: what leaves the space of the columns.
    fn outside(m: Matrices<'_, '_>, u: Var, du: Var) -> Result<Var> {
        m.arith().sub(du, m.product(u, m.t_product(u, du)?)?)
    }
}

impl Op for Svd {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let (batch, m, n) = matrices(x[0], "a")?;
        let (k, dtype) = (m.min(n), x[0].dtype);
        let values: Shape = batch.dims().iter().copied().chain([k]).collect();
        let s = Fact::new(dtype, values);
        if !self.vectors {
            return Ok(smallvec![s]);
        }
        Ok(smallvec![checked_fact(dtype, of_batch(&batch, m, k))?, s, checked_fact(dtype, of_batch(&batch, k, n))?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        let (batch, m, n) = matrices(&Fact::new(dtype, cx.x[0].shape().clone()), "a")?;
        let k = m.min(n);
        if k == 0 {
            return Ok(());
        }
        for_factor!(dtype, T => {
            let a = cx.x[0].slice::<T>()?.chunks_exact(m * n);
            if let [s] = cx.y {
                for (at, (a, s)) in a.zip(s.slice_mut::<T>()?.chunks_exact_mut(k)).enumerate() {
                    T::svd(m, n, a, s, None, cx.workspace).map_err(|e| failed(&batch, at, e))?;
                }
                return Ok(());
            }
            let [u, s, vt] = crate::args::outputs(cx.y)?;
            let (u, s, vt) = (u.slice_mut::<T>()?, s.slice_mut::<T>()?, vt.slice_mut::<T>()?);
            let vectors = u.chunks_exact_mut(m * k).zip(vt.chunks_exact_mut(k * n));
            for (at, ((a, s), (u, vt))) in a.zip(s.chunks_exact_mut(k)).zip(vectors).enumerate() {
                T::svd(m, n, a, s, Some([u, vt]), cx.workspace).map_err(|e| failed(&batch, at, e))?;
            }
            Ok(())
        })
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let mats = Matrices(cx);
        let c = mats.arith();
        if !self.vectors {
            let Some(ds) = cx.dy(0) else { return Ok(smallvec![None]) };
            let all = cx.apply_all(Svd { vectors: true }, &[cx.x(0)])?;
            let scaled = c.mul(all[0], mats.with_axis(ds, true)?)?;
            return Ok(smallvec![Some(mats.product(scaled, all[2])?)]);
        }
        let (u, s, vt) = (cx.y(0), cx.y(1), cx.y(2));
        let [m, n] = mats.extents(cx.x(0));
        let (row, column) = (mats.with_axis(s, true)?, mats.with_axis(s, false)?);
        let mut inner: SmallVec<[Var; 4]> = smallvec![];
        let mut outer: SmallVec<[Var; 4]> = smallvec![];
        if let Some(ds) = cx.dy(1) {
            inner.push(mats.diagonal(ds)?);
        }
        if cx.dy(0).is_some() || cx.dy(2).is_some() {
            let f = mats.gaps(c.square(s)?)?;
            if let Some(du) = cx.dy(0) {
                inner.push(c.mul(Svd::rotation(mats, f, u, du)?, row)?);
                if m > n {
                    outer.push(mats.product(c.div(Svd::outside(mats, u, du)?, row)?, vt)?);
                }
            }
            if let Some(dvt) = cx.dy(2) {
                let (v, dv) = (mats.transpose(vt)?, mats.transpose(dvt)?);
                inner.push(c.mul(Svd::rotation(mats, f, v, dv)?, column)?);
                if n > m {
                    let rest = mats.transpose(Svd::outside(mats, v, dv)?)?;
                    outer.push(mats.product(u, c.div(rest, column)?)?);
                }
            }
        }
        let Some(inner) = inner.into_iter().map(Ok).reduce(|a, b| c.add(a?, b?)) else { return Ok(smallvec![None]) };
        outer.push(mats.product(u, mats.product(inner?, vt)?)?);
        Ok(smallvec![outer.into_iter().map(Ok).reduce(|a, b| c.add(a?, b?)).transpose()?])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok((_, m, n)) = matrices(x[0], "a") else { return 0 };
        for_factor!(x[0].dtype, T => Ok(T::svd_bytes(m, n, self.vectors))).unwrap_or(0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let per = if self.vectors { 20 } else { 4 };
        let flops = matrices(x[0], "a").map_or(0, |(batch, m, n)| batch.elems() * per * m * n * m.min(n));
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
