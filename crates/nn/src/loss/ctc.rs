//! Connectionist temporal classification.

use remat_ops::compose;
use remat_ops::loss::CtcLoss;
use remat_tensor::{Reduction, Tensor};
use remat_types::Result;

use super::called;

/// Options of [`ctc`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CtcOptions {
    /// The class that stands for no label. Default: 0.
    pub blank: usize,
    /// Default: the mean, of losses over the lengths of their targets.
    pub reduction: Reduction,
    /// Losses that are infinite, of targets too long for their steps, count as 0, and so do their gradients. Default: false.
    pub zero_infinity: bool,
}

impl Default for CtcOptions {
    fn default() -> Self {
        CtcOptions { blank: 0, reduction: Reduction::Mean, zero_infinity: false }
    }
}

/// Connectionist temporal classification (Graves et al., ICML 2006): minus the logarithm of the probability that a sequence
/// says its target, over all ways to repeat labels and to put blanks between them.
///
/// `log_probs: [t, n, c]` are logarithms of probabilities (of a log-softmax); `targets` are labels, `[n, s]` with each target
/// in the first places of its row, or `[s]` with all behind each other; `steps: [n]` and `lengths: [n]` say how many steps and
/// labels count. Without a batch `[t, c]`, `[s]`, and both of rank 0. The mean divides each loss by the length of its
/// target, at least 1, first.
///
/// Errors: Axis, Shape, DType for inputs that do not fit; Value for a blank that is no class; at run time, Value for a
/// length beyond its extent, Index for a label that is no class. A second derivative is not defined.
///
/// ```
/// # use remat_nn::loss::{self, CtcOptions};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// // two steps in which a blank, class 0, and a label are equally likely: a label in either or both
/// let logs = Tensor::full(&device, [2, 1, 2], remat_types::DType::F32, 0.5f64.ln())?;
/// let target = Tensor::new(&device, &[1], [1, 1])?;
/// let (steps, lengths) = (Tensor::new(&device, &[2], [1])?, Tensor::new(&device, &[1], [1])?);
/// let y = loss::ctc(&logs, &target, &steps, &lengths, CtcOptions::default())?;
/// assert!((y.item::<f32>()? + 0.75f32.ln()).abs() < 1e-6);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[doc(alias = "ctc_loss")]
#[track_caller]
pub fn ctc(
    log_probs: &Tensor,
    targets: &Tensor,
    steps: &Tensor,
    lengths: &Tensor,
    options: CtcOptions,
) -> Result<Tensor> {
    let op = CtcLoss { blank: options.blank, zero_infinity: options.zero_infinity };
    let both = [steps.clone(), lengths.clone()];
    called("ctc_loss", log_probs, |cx| {
        compose::ctc_loss(cx, log_probs.clone(), targets.clone(), both, op, options.reduction)
    })
}
