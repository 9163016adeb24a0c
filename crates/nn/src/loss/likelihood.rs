//! Likelihoods of distributions, and divergences.

use remat_ops::compose;
use remat_tensor::{Reduction, Tensor};
use remat_types::Result;

use super::called;

/// The terms of the divergence of Kullback and Leibler: `t ln t - t x` of logarithms of probabilities `x` and probabilities
/// `t`, where 0 ln 0 is 0; or `e^t (t - x)` of their logarithms `t` if `log_target`. The mean is over all elements:
/// [`kl_div_batch_mean`] is the divergence.
///
/// Errors: Shape, DType if the target is not like `x`.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[-1.0f32, -2.0], [2])?;
/// let target = Tensor::new(&device, &[0.0f32, 1.0], [2])?;
/// assert_eq!(loss::kl_div(&x, &target, false, Reduction::None)?.to_vec::<f32>()?, [0.0, 2.0]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn kl_div(x: &Tensor, target: &Tensor, log_target: bool, reduction: Reduction) -> Result<Tensor> {
    called("kl_div", x, |cx| compose::kl_div(cx, x.clone(), target.clone(), log_target, reduction))
}

/// The sum of [`kl_div`] over the extent of axis 0: PyTorch's `batchmean`. Errors: as there; Axis for rank 0.
///
/// ```
/// # use remat_nn::loss;
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[-1.0f32, -2.0], [2, 1])?;
/// let target = Tensor::new(&device, &[1.0f32, 1.0], [2, 1])?;
/// assert_eq!(loss::kl_div_batch_mean(&x, &target, false)?.item::<f32>()?, 1.5);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn kl_div_batch_mean(x: &Tensor, target: &Tensor, log_target: bool) -> Result<Tensor> {
    called("kl_div", x, |cx| compose::kl_div_batch_mean(cx, x.clone(), target.clone(), log_target))
}

/// `(ln v + (x - y)^2 / v) / 2` with `v = max(var, eps)`, and `ln(2 pi) / 2` more if `full`: minus the logarithm of the
/// density of a normal distribution with mean `x` (Nix and Weigend, ICNN 1994). `var` broadcasts to the shape of `x`, or
/// lacks its last axis. PyTorch's `eps` is 1e-6 by default.
///
/// Errors: Shape, DType for inputs that do not fit; Value for an `eps` that is not above 0.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[1.0f32, 3.0], [2])?;
/// let (y, var) = (Tensor::new(&device, &[0.0f32, 0.0], [2])?, Tensor::new(&device, &[1.0f32, 1.0], [2])?);
/// let each = loss::gaussian_nll(&x, &y, &var, false, 1e-6, Reduction::None)?;
/// assert_eq!(each.to_vec::<f32>()?, [0.5, 4.5]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn gaussian_nll(
    x: &Tensor,
    y: &Tensor,
    var: &Tensor,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    called("gaussian_nll", x, |cx| compose::gaussian_nll(cx, x.clone(), y.clone(), var.clone(), full, eps, reduction))
}

/// `e^x - y x` if `log_input`, else `x - y ln(x + eps)`: minus the logarithm of the probability of a count `y`, without
/// the term `ln y!`. With `full` the loss adds Stirling's approximation of this term, `y ln y - y + ln(2 pi y) / 2`,
/// where `y > 1`. PyTorch's `eps` is 1e-8 by default.
///
/// Errors: Shape, DType if `y` is not like `x`.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[0.0f32, 0.0], [2])?;
/// let y = Tensor::new(&device, &[0.0f32, 3.0], [2])?;
/// let each = loss::poisson_nll(&x, &y, true, false, 1e-8, Reduction::None)?;
/// assert_eq!(each.to_vec::<f32>()?, [1.0, 1.0]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn poisson_nll(
    x: &Tensor,
    y: &Tensor,
    log_input: bool,
    full: bool,
    eps: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    called("poisson_nll", x, |cx| compose::poisson_nll(cx, x.clone(), y.clone(), log_input, full, eps, reduction))
}
