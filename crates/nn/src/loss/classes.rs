//! Losses of classes.

use remat_ops::compose;
use remat_tensor::{Reduction, Tensor};
use remat_types::{CallSite, Result, Scope};

use super::called;

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

/// `-x[label]`, the negative log-likelihood of labels, of logarithms of probabilities `x: [n, c, ..]`; `labels: [n, ..]`.
///
/// Errors: Axis for an `x` without axis 1, Shape for labels that do not fit, DType for labels that are no integers; at run
/// time, Index for a label that is no class.
#[track_caller]
pub fn nll(x: &Tensor, labels: &Tensor, reduction: Reduction) -> Result<Tensor> {
    called("nll", x, |cx| compose::nll(cx, x.clone(), labels.clone(), reduction))
}

/// As [`cross_entropy_with`], with a weight for each class: `-(1 - e) w[label] ln p[label] - e / c sum_k w[k] ln p[k]`. The
/// mean is the sum over the sum of the labels' weights; `weight: [c]`.
///
/// Errors: as there; Shape, DType for a weight that does not fit.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let logits = Tensor::new(&device, &[0.0f32, 0.0, 0.0, 0.0], [2, 2])?;
/// let labels = Tensor::new(&device, &[0, 1], [2])?;
/// let weight = Tensor::new(&device, &[1.0f32, 3.0], [2])?;
/// let each = loss::cross_entropy_weighted(&logits, &labels, &weight, Reduction::None, 0.0, None)?;
/// assert_eq!(each.to_vec::<f32>()?, [2f32.ln(), 3.0 * 2f32.ln()]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn cross_entropy_weighted(
    logits: &Tensor,
    labels: &Tensor,
    weight: &Tensor,
    reduction: Reduction,
    smoothing: f64,
    ignore_index: Option<i64>,
) -> Result<Tensor> {
    let [x, y, w] = [logits, labels, weight].map(Tensor::clone);
    called("cross_entropy", logits, |cx| {
        compose::weighted_cross_entropy(cx, x, y, w, reduction, smoothing, ignore_index)
    })
}

/// Cross-entropy of softmax with the probabilities of all classes, `target` like `logits: [n, c, ..]`:
/// `-sum_k w[k] t[k] ln p[k]`, where label smoothing `e` makes `t = (1 - e) target + e / c`. The mean is over the examples,
/// whatever the weights; `weight: [c]`.
///
/// Errors: Axis, Shape, DType for inputs that do not fit; Value for a smoothing outside 0 ..= 1.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let logits = Tensor::new(&device, &[0.0f32, 0.0], [1, 2])?;
/// let target = Tensor::new(&device, &[0.25f32, 0.75], [1, 2])?;
/// let y = loss::cross_entropy_soft(&logits, &target, None, Reduction::Mean, 0.0)?;
/// assert_eq!(y.item::<f32>()?, 2f32.ln());
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn cross_entropy_soft(
    logits: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
    smoothing: f64,
) -> Result<Tensor> {
    called("cross_entropy", logits, |cx| {
        compose::soft_cross_entropy(cx, logits.clone(), target.clone(), weight.cloned(), reduction, smoothing)
    })
}

/// As [`nll`], with a weight for each class, `[c]`, and a label that does not count. The mean is the sum over the sum of the
/// labels' weights. Errors: as there; Shape, DType for a weight that does not fit.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let logs = Tensor::new(&device, &[-1.0f32, -2.0, -3.0, -4.0], [2, 2])?;
/// let labels = Tensor::new(&device, &[0, 1], [2])?;
/// let weight = Tensor::new(&device, &[1.0f32, 3.0], [2])?;
/// let y = loss::nll_weighted(&logs, &labels, Some(&weight), None, Reduction::Mean)?;
/// assert_eq!(y.item::<f32>()?, 13.0 / 4.0);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn nll_weighted(
    x: &Tensor,
    labels: &Tensor,
    weight: Option<&Tensor>,
    ignore_index: Option<i64>,
    reduction: Reduction,
) -> Result<Tensor> {
    called("nll", x, |cx| {
        compose::weighted_nll(cx, x.clone(), labels.clone(), weight.cloned(), ignore_index, reduction)
    })
}
