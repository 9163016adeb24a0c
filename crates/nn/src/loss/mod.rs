//! Losses. Labels are integers; other targets have the prediction's dtype and shape.
//!
//! Names, formulas and what a mean divides by are PyTorch's (`torch.nn.functional`); where two terms that are not negative
//! say the same as a difference, it is they that are added.

mod binary;
mod classes;
mod contrast;
mod ctc;
mod likelihood;
mod margin;

pub use binary::{bce, bce_with_logits, bce_with_logits_weighted, dice, sigmoid_focal};
pub use classes::{cross_entropy, cross_entropy_soft, cross_entropy_weighted, cross_entropy_with, nll, nll_weighted};
pub use contrast::{info_nce, nt_xent};
pub use ctc::{CtcOptions, ctc};
pub use likelihood::{gaussian_nll, kl_div, kl_div_batch_mean, poisson_nll};
pub use margin::{
    TripletOptions, cosine_embedding, hinge_embedding, margin_ranking, multi_margin, multilabel_margin,
    multilabel_soft_margin, soft_margin, triplet_margin,
};

use remat_ops::compose;
use remat_tensor::{Reduction, TapeCx, Tensor};
use remat_types::{CallSite, Result, Scope};

/// Calls `f` in a scope of this name, which errors without another name have.
#[track_caller]
fn called(name: &str, x: &Tensor, f: impl FnOnce(&TapeCx) -> Result<Tensor>) -> Result<Tensor> {
    let _scope = Scope::called(name, CallSite::here());
    f(&TapeCx::of(x)).map_err(|e| e.with_op(name))
}

/// `(x - y)^2`. Errors: Shape, DType if `y` is not like `x`.
#[doc(alias = "square")]
#[doc(alias = "square_loss")]
#[track_caller]
pub fn mse(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    called("mse", x, |cx| compose::mse(cx, x.clone(), y.clone(), reduction))
}

/// `|x - y|`; its derivative at 0 is 0. Errors: Shape, DType if `y` is not like `x`.
#[track_caller]
pub fn l1(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    called("l1", x, |cx| compose::l1(cx, x.clone(), y.clone(), reduction))
}

/// `d^2 / (2 beta)` where `|d| < beta`, else `|d| - beta / 2`, of `d = x - y` (Girshick, ICCV 2015); `|d|` for a `beta` of 0.
/// PyTorch's `beta` is 1 by default.
///
/// Errors: Shape, DType if `y` is not like `x`; Value for a `beta` that is negative or not finite.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[1.0f32, 5.0], [2])?;
/// let y = Tensor::new(&device, &[0.0f32, 0.0], [2])?;
/// assert_eq!(loss::smooth_l1(&x, &y, 2.0, Reduction::None)?.to_vec::<f32>()?, [0.25, 4.0]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn smooth_l1(x: &Tensor, y: &Tensor, beta: f64, reduction: Reduction) -> Result<Tensor> {
    called("smooth_l1", x, |cx| compose::smooth_l1(cx, x.clone(), y.clone(), beta, reduction))
}

/// `d^2 / 2` where `|d| <= delta`, else `delta (|d| - delta / 2)`, of `d = x - y` (Huber, 1964). PyTorch's `delta` is 1 by
/// default.
///
/// Errors: Shape, DType if `y` is not like `x`; Value for a `delta` that is not above 0 or not finite.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[1.0f32, 5.0], [2])?;
/// let y = Tensor::new(&device, &[0.0f32, 0.0], [2])?;
/// assert_eq!(loss::huber(&x, &y, 2.0, Reduction::None)?.to_vec::<f32>()?, [0.5, 8.0]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn huber(x: &Tensor, y: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
    called("huber", x, |cx| compose::huber(cx, x.clone(), y.clone(), delta, reduction))
}
