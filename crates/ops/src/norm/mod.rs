//! Normalisation over a batch or over the last axes.

mod batch_norm;
mod layer_norm;

pub use batch_norm::{BatchNorm, BatchNormGrad, BatchNormInfer};
pub use layer_norm::{LayerNorm, LayerNormGrad};

use remat_types::{Result, Shape, SmallVec};

use crate::args::real_dtype;
use crate::pointwise::{Cast, Chain, UnaryFn};
use crate::reduce::{Reduce, ReduceFn};
use crate::{GradCx, Var};

/// `v` in the dtype that kernels compute in.
pub(crate) fn widened(cx: &GradCx<'_>, v: Var) -> Result<Var> {
    let dtype = real_dtype(cx.fact(v).dtype);
    if dtype == cx.fact(v).dtype { Ok(v) } else { cx.apply(Cast { dtype }, &[v]) }
}

/// `v` in the dtype of `like`.
pub(crate) fn narrowed(cx: &GradCx<'_>, v: Var, like: Var) -> Result<Var> {
    let dtype = cx.fact(like).dtype;
    if dtype == cx.fact(v).dtype { Ok(v) } else { cx.apply(Cast { dtype }, &[v]) }
}

/// The sum over `axes`, which stay with extent 1.
pub(crate) fn sum_over(cx: &GradCx<'_>, v: Var, axes: &SmallVec<[usize; 4]>) -> Result<Var> {
    cx.apply(Reduce { f: ReduceFn::Sum, axes: axes.clone(), keepdims: true }, &[v])
}

/// A tensor normalised over some axes, written with ops.
struct Normal {
    /// Mean, biased variance and `1 / sqrt(variance + eps)`; the axes have extent 1.
    mean: Var,
    var: Var,
    inv_sd: Var,
    /// `(x - mean) inv_sd`.
    hat: Var,
}

impl Normal {
    fn of(cx: &GradCx<'_>, x: Var, axes: &SmallVec<[usize; 4]>, eps: f64) -> Result<Normal> {
        let c = Chain(cx);
        let per = 1.0 / count(&cx.fact(x).shape, axes) as f64;
        let mean = c.scale(sum_over(cx, x, axes)?, per)?;
        let d = c.sub(x, mean)?;
        let var = c.scale(sum_over(cx, c.square(d)?, axes)?, per)?;
        let inv_sd = c.un(UnaryFn::Rsqrt, c.offset(var, eps)?)?;
        Ok(Normal { mean, var, inv_sd, hat: c.mul(d, inv_sd)? })
    }
}

/// Elements that a mean over `axes` takes together.
fn count(shape: &Shape, axes: &[usize]) -> usize {
    axes.iter().map(|&a| shape[a]).product()
}
