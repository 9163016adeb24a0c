//! Losses of yes or no.

use remat_ops::compose;
use remat_tensor::{Reduction, Tensor};
use remat_types::Result;

use super::called;

/// Binary cross-entropy of `p = sigmoid(x)` with targets in 0 ..= 1: `-y ln p - (1 - y) ln(1 - p)`, without overflow, and
/// without cancellation where a logit is certain and right. Errors: Shape, DType if `y` is not like `x`.
#[track_caller]
pub fn bce_with_logits(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    called("bce_with_logits", x, |cx| compose::bce_with_logits(cx, x.clone(), y.clone(), reduction))
}

/// As [`bce_with_logits`], times the weight of each element, and with `pos_weight` times the loss of true elements:
/// `-w (pos_weight y ln p + (1 - y) ln(1 - p))`. Both broadcast to the shape of `x`.
///
/// Errors: Shape, DType for inputs that do not fit.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[0.0f32, 0.0], [2])?;
/// let y = Tensor::new(&device, &[0.0f32, 1.0], [2])?;
/// let pos = Tensor::new(&device, &[3.0f32], [1])?;
/// let each = loss::bce_with_logits_weighted(&x, &y, None, Some(&pos), Reduction::None)?;
/// assert_eq!(each.to_vec::<f32>()?, [2f32.ln(), 3.0 * 2f32.ln()]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn bce_with_logits_weighted(
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    called("bce_with_logits", x, |cx| {
        let (weight, pos) = (weight.cloned(), pos_weight.cloned());
        compose::weighted_bce_with_logits(cx, x.clone(), y.clone(), weight, pos, reduction)
    })
}

/// Binary cross-entropy of probabilities with targets in 0 ..= 1: `-y ln x - (1 - y) ln(1 - x)`, times the weight of each
/// element, which broadcasts. A logarithm counts as at least -100, and the derivative divides by at least 1e-12, as in
/// PyTorch; a value outside of 0 ..= 1 gives NaN. [`bce_with_logits`] is more accurate.
///
/// Errors: Shape, DType for inputs that do not fit.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[0.0f32, 0.5, 0.0], [3])?;
/// let y = Tensor::new(&device, &[0.0f32, 1.0, 1.0], [3])?;
/// let each = loss::bce(&x, &y, None, Reduction::None)?;
/// assert_eq!(each.to_vec::<f32>()?, [0.0, 2f32.ln(), 100.0]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[doc(alias = "binary_cross_entropy")]
#[track_caller]
pub fn bce(x: &Tensor, y: &Tensor, weight: Option<&Tensor>, reduction: Reduction) -> Result<Tensor> {
    called("bce", x, |cx| compose::bce(cx, x.clone(), y.clone(), weight.cloned(), reduction))
}

/// The focal loss of logits: `-a (1 - q)^gamma ln q`, where `q` is the probability that `sigmoid(x)` gives to the target `y`,
/// and `a` is `alpha` for true elements and `1 - alpha` for others, or 1 without `alpha` (Lin et al., ICCV 2017, equation 5,
/// which has an `alpha` of 0.25 and a `gamma` of 2).
///
/// Errors: Shape, DType if `y` is not like `x`; Value for an `alpha` outside 0 ..= 1 or a negative `gamma`.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[0.0f32, 0.0], [2])?;
/// let y = Tensor::new(&device, &[0.0f32, 1.0], [2])?;
/// let each = loss::sigmoid_focal(&x, &y, Some(0.25), 2.0, Reduction::None)?;
/// assert_eq!(each.to_vec::<f32>()?, [0.1875 * 2f32.ln(), 0.0625 * 2f32.ln()]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn sigmoid_focal(x: &Tensor, y: &Tensor, alpha: Option<f64>, gamma: f64, reduction: Reduction) -> Result<Tensor> {
    called("sigmoid_focal", x, |cx| compose::sigmoid_focal(cx, x.clone(), y.clone(), alpha, gamma, reduction))
}

/// `1 - (2 sum x y + smooth) / (sum x + sum y + smooth)` of each example, over all axes but the first: of probabilities
/// (Milletari et al., 3DV 2016).
///
/// Errors: Shape, DType if `y` is not like `x`; Axis for a rank below 2.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[1.0f32, 1.0, 0.0, 1.0], [2, 2])?;
/// let y = Tensor::new(&device, &[1.0f32, 1.0, 1.0, 1.0], [2, 2])?;
/// assert_eq!(loss::dice(&x, &y, 1.0, Reduction::None)?.to_vec::<f32>()?, [0.0, 0.25]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn dice(x: &Tensor, y: &Tensor, smooth: f64, reduction: Reduction) -> Result<Tensor> {
    called("dice", x, |cx| compose::dice(cx, x.clone(), y.clone(), smooth, reduction))
}
