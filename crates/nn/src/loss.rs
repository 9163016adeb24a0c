//! Losses. Labels are integers; other targets have the prediction's dtype and shape.

use remat_ops::compose;
use remat_tensor::{Reduction, TapeCx, Tensor};
use remat_types::{CallSite, Result, Scope};

/// The mean over the batch of `-ln softmax(logits)[label]`; `logits: [n, c, ..]`, `labels: [n, ..]`, rank 0 out.
///
/// Errors: DType, Axis and Shape for inputs that do not fit; at run time, Index for a label that is no class.
#[track_caller]
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    cross_entropy_with(logits, labels, Reduction::Mean, 0.0, None)
}

/// As [`cross_entropy`], with label smoothing `e` (`-(1 - e) ln p[label] - e / c sum_k ln p[k]`) and a label that does
/// not count. Errors: also Value for a smoothing outside 0 ..= 1.
#[track_caller]
pub fn cross_entropy_with(
    logits: &Tensor,
    labels: &Tensor,
    reduction: Reduction,
    smoothing: f64,
    ignore_index: Option<i64>,
) -> Result<Tensor> {
    let _scope = Scope::called("cross_entropy", CallSite::here());
    logits.cross_entropy_with(labels, reduction, smoothing, ignore_index)
}

/// `(x - y)^2`. Errors: Shape, DType if `y` is not like `x`.
#[track_caller]
pub fn mse(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _scope = Scope::called("mse", CallSite::here());
    compose::mse(&TapeCx::of(x), x.clone(), y.clone(), reduction)
}

/// `|x - y|`; its derivative at 0 is 0. Errors: Shape, DType if `y` is not like `x`.
#[track_caller]
pub fn l1(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _scope = Scope::called("l1", CallSite::here());
    compose::l1(&TapeCx::of(x), x.clone(), y.clone(), reduction)
}

/// Binary cross-entropy of `p = sigmoid(x)` with targets in 0 ..= 1: `-y ln p - (1 - y) ln(1 - p)`, without overflow, and
/// without cancellation where a logit is certain and right. Errors: Shape, DType if `y` is not like `x`.
#[track_caller]
pub fn bce_with_logits(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _scope = Scope::called("bce_with_logits", CallSite::here());
    compose::bce_with_logits(&TapeCx::of(x), x.clone(), y.clone(), reduction)
}

/// `-x[label]`, the negative log-likelihood of labels, of logarithms of probabilities `x: [n, c, ..]`; `labels: [n, ..]`.
///
/// Errors: Axis for an `x` without axis 1, Shape for labels that do not fit, DType for labels that are no integers; at run
/// time, Index for a label that is no class.
#[track_caller]
pub fn nll(x: &Tensor, labels: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let _scope = Scope::called("nll", CallSite::here());
    compose::nll(&TapeCx::of(x), x.clone(), labels.clone(), reduction)
}
