//! Losses that tell pairs from other pairs of a batch.

use remat_ops::compose;
use remat_tensor::{Reduction, Tensor};
use remat_types::Result;

use super::called;

/// InfoNCE (van den Oord et al., 2018, arXiv:1807.03748, equation 4) of queries `x` and keys `y: [n, d]`: cross-entropy of
/// the cosines of a query with all keys, over the temperature, where its own key is the one of its row. One loss a query.
///
/// Errors: Axis, Shape, DType for inputs that do not fit; Value for a temperature that is not above 0.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[3.0f32, 0.0, 0.0, 2.0], [2, 2])?;
/// let y = loss::info_nce(&x, &x, 0.01, Reduction::Mean)?;
/// assert!(y.item::<f32>()? < 1e-6);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[doc(alias = "contrastive")]
#[track_caller]
pub fn info_nce(x: &Tensor, y: &Tensor, temperature: f64, reduction: Reduction) -> Result<Tensor> {
    called("info_nce", x, |cx| compose::info_nce(cx, x.clone(), y.clone(), temperature, reduction))
}

/// NT-Xent (Chen et al., ICML 2020, equation 1) of two views `x` and `y: [n, d]` of the same examples: of all `2 n`, the
/// cross-entropy of its cosines with all others over the temperature, where the other view is the one. One loss a view.
///
/// Errors: Axis, Shape, DType for inputs that do not fit; Value for a temperature that is not above 0.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[3.0f32, 0.0], [1, 2])?;
/// // one example: there is nothing to be taken for it
/// let y = loss::nt_xent(&x, &x, 0.5, Reduction::Mean)?;
/// assert!(y.item::<f32>()? < 1e-6);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[doc(alias = "simclr")]
#[track_caller]
pub fn nt_xent(x: &Tensor, y: &Tensor, temperature: f64, reduction: Reduction) -> Result<Tensor> {
    called("nt_xent", x, |cx| compose::nt_xent(cx, x.clone(), y.clone(), temperature, reduction))
}
