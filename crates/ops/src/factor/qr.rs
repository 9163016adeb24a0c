use remat_linalg::Factor;
use remat_types::{Fact, Facts, Result, Shape, smallvec};

use super::SolveTriangular;
use super::build::{Matrices, for_factor, matrices, of_batch};
use crate::args::{not_differentiable, outputs};
use crate::host::arity;
use crate::schema::Params;
use crate::shape::{Concat, Slice};
use crate::{Cost, EvalCx, GradCx, Grads, Op, Var};

/// Orthonormal columns and an upper triangle, `a = q r`: `a -> (q, r)`, `a: [.., m, n]`, `q: [.., m, k]`, `r: [.., k, n]` with
/// `k = min(m, n)`, or `m` if `complete`. By Householder's reflections; the signs of the diagonal of `r` are not normalised.
///
/// The gradient is that of Walter and Lehmann (2010) and, for more columns than rows, of Roberts and Roberts (2020,
/// arXiv:2009.10071); a complete factorisation of more rows than columns has none. Errors: DType for other than f32 and f64;
/// Axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(a: float), gradient(a))]
pub struct Qr {
    /// All of `q`, not only the columns that `a` needs.
    #[param(default = false)]
    pub complete: bool,
}

impl Qr {
    /// Batch, `m`, `n`, `k`.
    fn sizes(&self, x: &Fact) -> Result<(Shape, [usize; 3])> {
        let (batch, m, n) = matrices(x, "a")?;
        Ok((batch, [m, n, if self.complete { m } else { m.min(n) }]))
    }

    /// `da` of at least as many rows as columns: with `w = r dr^T - dq^T q`, `(dq + q copied(w)) r^-T`, where the lower triangle of
    /// `w` is copied to the upper one.
    fn tall(m: Matrices<'_, '_>, [q, r, dq, dr]: [Var; 4]) -> Result<Var> {
        let c = m.arith();
        let w = c.sub(m.product_t(r, m.triu(dr, 0)?)?, m.t_product(dq, q)?)?;
        let below = m.tril(w, -1)?;
        let copied = c.add(m.tril(w, 0)?, m.transpose(below)?)?;
        let inner = c.add(dq, m.product(q, copied)?)?;
        let op = SolveTriangular { upper: true, unit: false, transpose: false };
        m.transpose(m.0.apply(op, &[r, m.transpose(inner)?])?)
    }
}

impl Op for Qr {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let (batch, [m, n, k]) = self.sizes(x[0])?;
        let of = |m, n| crate::args::checked_fact(x[0].dtype, of_batch(&batch, m, n));
        Ok(smallvec![of(m, k)?, of(k, n)?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        let (batch, [m, n, k]) = self.sizes(&Fact::new(dtype, cx.x[0].shape().clone()))?;
        for_factor!(dtype, T => {
            let a = cx.x[0].slice::<T>()?;
            let [q, r] = outputs(cx.y)?;
            let (q, r) = (q.slice_mut::<T>()?, r.slice_mut::<T>()?);
            for at in 0..batch.elems() {
                let (q, r) = (&mut q[at * m * k..][..m * k], &mut r[at * k * n..][..k * n]);
                if n == 0 {
                    // nothing to reflect: the columns are those of the identity
                    q.iter_mut().enumerate().for_each(|(i, q)| *q = T::from(u8::from(i / k.max(1) == i % k.max(1))));
                } else if m > 0 {
                    T::qr([m, n, k], &a[at * m * n..][..m * n], q, r, cx.workspace);
                }
            }
            Ok(())
        })
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        if cx.dy(0).is_none() && cx.dy(1).is_none() {
            return Ok(smallvec![None]);
        }
        let (mats, q, r) = (Matrices(cx), cx.y(0), cx.y(1));
        let [m, n] = mats.extents(cx.x(0));
        if self.complete && m > n {
            return Err(not_differentiable("a complete qr of more rows than columns"));
        }
        let zero = |like: Var| mats.arith().constant(0.0, &like);
        let like = |d: Option<Var>, y: Var| d.map_or_else(|| full(cx, zero(y)?, y), Ok);
        let (dq, dr) = (like(cx.dy(0), q)?, like(cx.dy(1), r)?);
        if m >= n {
            return Ok(smallvec![Some(Qr::tall(mats, [q, r, dq, dr])?)]);
        }
        // a = [x y], r = [u v] with a square x = q u, and y = q v
        let axis = cx.fact(r).rank() - 1;
        let part = |of: Var, start: usize, len: usize| cx.apply(Slice { axis, start, len, step: 1 }, &[of]);
        let (u, du, dv) = (part(r, 0, m)?, part(dr, 0, m)?, part(dr, m, n - m)?);
        let dq = mats.arith().add(dq, mats.product_t(part(cx.x(0), m, n - m)?, dv)?)?;
        let dx = Qr::tall(mats, [q, u, dq, du])?;
        Ok(smallvec![Some(cx.apply(Concat { axis }, &[dx, mats.product(q, dv)?])?)])
    }

    fn workspace(&self, x: &[&Fact], _threads: usize) -> usize {
        let Ok((_, [m, n, k])) = self.sizes(x[0]) else { return 0 };
        for_factor!(x[0].dtype, T => Ok(T::qr_bytes(m, n, k))).unwrap_or(0)
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = self.sizes(x[0]).map_or(0, |(batch, [m, n, k])| batch.elems() * 4 * m * n * k);
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}

/// A number in the shape of `like`.
pub(super) fn full(cx: &GradCx<'_>, number: Var, like: Var) -> Result<Var> {
    cx.apply(crate::shape::BroadcastTo { shape: cx.fact(like).shape }, &[number])
}
