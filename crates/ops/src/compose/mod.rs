//! Functions made of several ops, each written once over [`Apply`].
//!
//! Tensor methods, gradient rules and builders of graphs call the same functions. A function applies its ops through the
//! `Apply` that it is given, so it runs eagerly, is recorded, or becomes nodes of a graph. Values are passed by value, so the
//! last handle on one is dropped at its last use, as with an op. Errors of arguments name the function, and errors of ops
//! name the op. Every function tracks its caller, for an `Apply` that reports the place of the call.

mod activation;
mod arith;
mod attention;
mod conv;
mod conv_transpose;
mod create;
mod index;
mod join;
mod loss;
mod norm;
mod order;
mod reduce;

pub(crate) use activation::{SELU_LIMIT, demand};
pub use activation::{celu, elu, hardshrink, selu, softplus, softshrink, tanhshrink, threshold};
pub use arith::Arith;
pub(crate) use attention::{attention, attention_bias_gradient, attention_gradients};
pub use conv::{conv1d, conv3d};
pub use conv_transpose::{conv_transpose1d, conv_transpose2d, conv_transpose3d};
pub use create::{eye, linspace, tril, triu};
pub use index::{
    ScatterReduce, flip, gather_nd, index, index_put, put_at, put_slices, scatter, scatter_nd, scatter_reduce, select,
    take_flat,
};
pub use join::{repeat, repeat_interleave, roll, split, stack};
pub use loss::{
    bce, bce_with_logits, cosine_embedding, cosine_similarity, ctc_loss, dice, gaussian_nll, hinge_embedding, huber,
    info_nce, kl_div, kl_div_batch_mean, l1, margin_ranking, mse, multi_margin, multilabel_margin,
    multilabel_soft_margin, nll, nt_xent, pairwise_distance, poisson_nll, reduced, sigmoid_focal, smooth_l1,
    soft_cross_entropy, soft_margin, triplet_margin, weighted_bce_with_logits, weighted_cross_entropy, weighted_nll,
};
pub(crate) use norm::{
    batch_norm, batch_norm_gradients, batch_norm_infer, layer_norm_gradients, rms_norm_gradients, softmax_gradient,
};
pub use order::{Interpolation, bin_edges, histogram, isin, multinomial, quantile, quantiles, shuffle};
pub use reduce::norm;

use remat_types::{DType, Error, ErrorKind, Fact, Result, Shape};

use crate::Apply;
use crate::args::real_dtype;
use crate::pointwise::Cast;
use crate::shape::{Permute, Reshape};

/// `v` in `dtype`.
#[track_caller]
pub fn cast<A: Apply>(cx: &A, v: A::Value, dtype: DType) -> Result<A::Value> {
    if cx.fact(&v).dtype == dtype { Ok(v) } else { cx.apply1(Cast { dtype }, [v]) }
}

/// `v` in the dtype in which kernels compute.
#[track_caller]
pub(crate) fn widened<A: Apply>(cx: &A, v: A::Value) -> Result<A::Value> {
    let dtype = real_dtype(cx.fact(&v).dtype);
    cast(cx, v, dtype)
}

/// `v` in the dtype of `like`.
#[track_caller]
pub(crate) fn narrowed<A: Apply>(cx: &A, v: A::Value, like: &A::Value) -> Result<A::Value> {
    let dtype = cx.fact(like).dtype;
    cast(cx, v, dtype)
}

#[track_caller]
pub(crate) fn shaped<A: Apply>(cx: &A, v: A::Value, shape: impl Into<Shape>) -> Result<A::Value> {
    cx.apply1(Reshape { shape: shape.into() }, [v])
}

#[track_caller]
pub(crate) fn permuted<A: Apply>(cx: &A, v: A::Value, order: &[usize]) -> Result<A::Value> {
    cx.apply1(Permute { order: order.iter().copied().collect() }, [v])
}

/// The extents of a value of rank `N`. Errors: Axis.
fn extents<const N: usize>(f: &Fact, name: &str) -> Result<[usize; N]> {
    f.shape
        .dims()
        .try_into()
        .map_err(|_| Error::new(ErrorKind::Axis, format!("{name} has shape {}: rank {}, not {N}", f.shape, f.rank())))
}
