//! Losses with a margin.

use remat_ops::compose;
use remat_tensor::{Reduction, Tensor};
use remat_types::Result;

use super::called;

/// `x` where the target is 1, and `max(0, margin - x)` where it is -1: of distances. PyTorch's margin is 1 by default.
/// Errors: Shape, DType if `y` is not like `x`.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[0.25f32, 0.25], [2])?;
/// let y = Tensor::new(&device, &[1.0f32, -1.0], [2])?;
/// assert_eq!(loss::hinge_embedding(&x, &y, 1.0, Reduction::None)?.to_vec::<f32>()?, [0.25, 0.75]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn hinge_embedding(x: &Tensor, y: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
    called("hinge_embedding", x, |cx| compose::hinge_embedding(cx, x.clone(), y.clone(), margin, reduction))
}

/// `ln(1 + e^(-y x))`, with targets 1 and -1. Errors: Shape, DType if `y` is not like `x`.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[0.0f32, 1000.0], [2])?;
/// let y = Tensor::new(&device, &[1.0f32, -1.0], [2])?;
/// assert_eq!(loss::soft_margin(&x, &y, Reduction::None)?.to_vec::<f32>()?, [2f32.ln(), 1000.0]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn soft_margin(x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
    called("soft_margin", x, |cx| compose::soft_margin(cx, x.clone(), y.clone(), reduction))
}

/// `max(0, margin - y (x1 - x2))`: `x1` is to be larger where `y` is 1, smaller where it is -1. PyTorch's margin is 0 by
/// default. Errors: Shape, DType unless all are alike.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let (a, b) = (Tensor::new(&device, &[1.0f32, 1.0], [2])?, Tensor::new(&device, &[3.0f32, 3.0], [2])?);
/// let y = Tensor::new(&device, &[1.0f32, -1.0], [2])?;
/// assert_eq!(loss::margin_ranking(&a, &b, &y, 0.5, Reduction::None)?.to_vec::<f32>()?, [2.5, 0.0]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn margin_ranking(x1: &Tensor, x2: &Tensor, y: &Tensor, margin: f64, reduction: Reduction) -> Result<Tensor> {
    let both = [x1.clone(), x2.clone()];
    called("margin_ranking", x1, |cx| compose::margin_ranking(cx, both, y.clone(), margin, reduction))
}

/// Options of [`triplet_margin`]. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripletOptions {
    /// By how much the negative is to be farther. Default: 1.
    pub margin: f64,
    /// The norm: any number above 0, and infinity. Default: 2.
    pub p: f64,
    /// Added to each difference. Default: 1e-6.
    pub eps: f64,
    /// The negative counts from the nearer of anchor and positive (Balntas et al., BMVC 2016). Default: false.
    pub swap: bool,
}

impl Default for TripletOptions {
    fn default() -> Self {
        TripletOptions { margin: 1.0, p: 2.0, eps: 1e-6, swap: false }
    }
}

/// `max(0, d(anchor, positive) - d(anchor, negative) + margin)`, where `d` is the `p`-norm of the difference plus `eps` over
/// the last axis. Errors: Axis, Shape, DType unless all are alike; Value for a `p` that is not above 0.
///
/// ```
/// # use remat_nn::{Reduction, loss::{self, TripletOptions}};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let of = |v: f32| Tensor::new(&device, &[v], [1, 1]);
/// let options = TripletOptions { eps: 0.0, ..TripletOptions::default() };
/// let y = loss::triplet_margin(&of(0.0)?, &of(2.0)?, &of(-2.5)?, options, Reduction::Mean)?;
/// assert_eq!(y.item::<f32>()?, 0.5);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn triplet_margin(
    anchor: &Tensor,
    positive: &Tensor,
    negative: &Tensor,
    options: TripletOptions,
    reduction: Reduction,
) -> Result<Tensor> {
    let TripletOptions { margin, p, eps, swap } = options;
    let all = [anchor, positive, negative].map(Tensor::clone);
    called("triplet_margin", anchor, |cx| compose::triplet_margin(cx, all, margin, p, eps, swap, reduction))
}

/// `1 - cos(x1, x2)` where the label is 1, and `max(0, cos(x1, x2) - margin)` where it is -1; `x1, x2: [n, d]` and labels
/// `[n]` of any signed dtype, or `[d]` and rank 0. PyTorch's margin is 0 by default. Errors: Axis, Shape, DType.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let (a, b) = (Tensor::new(&device, &[1.0f32, 0.0], [1, 2])?, Tensor::new(&device, &[0.0f32, 2.0], [1, 2])?);
/// let label = Tensor::new(&device, &[1], [1])?;
/// assert_eq!(loss::cosine_embedding(&a, &b, &label, 0.0, Reduction::Mean)?.item::<f32>()?, 1.0);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn cosine_embedding(
    x1: &Tensor,
    x2: &Tensor,
    labels: &Tensor,
    margin: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let both = [x1.clone(), x2.clone()];
    called("cosine_embedding", x1, |cx| compose::cosine_embedding(cx, both, labels.clone(), margin, reduction))
}

/// `sum_(k != label) w[label] max(0, margin - x[label] + x[k])^p / c` of `x: [n, c]`, labels `[n]` and weights `[c]`, with a
/// `p` of 1 or 2. PyTorch's margin is 1 by default, as its `p`.
///
/// Errors: Axis, Shape, DType for inputs that do not fit; Value for another `p`; at run time, Index for a label that is no
/// class.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[1.0f32, 0.5], [1, 2])?;
/// let label = Tensor::new(&device, &[0], [1])?;
/// assert_eq!(loss::multi_margin(&x, &label, 1, 1.0, None, Reduction::Mean)?.item::<f32>()?, 0.25);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn multi_margin(
    x: &Tensor,
    labels: &Tensor,
    p: u32,
    margin: f64,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Result<Tensor> {
    called("multi_margin", x, |cx| {
        compose::multi_margin(cx, x.clone(), labels.clone(), p, margin, weight.cloned(), reduction)
    })
}

/// `sum_(j, k) max(0, 1 - x[j] + x[k]) / c` over the labels `j` of an example and the classes `k` that are none of them: of
/// `x: [n, c]` and labels `[n, c]`, which end with the first that is negative. Takes memory for `n c^2` numbers.
///
/// Errors: Axis, Shape, DType for inputs that do not fit; at run time, Index for a label that is no class.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[1.0f32, 0.5, 0.0, 2.0], [1, 4])?;
/// let labels = Tensor::new(&device, &[0, 3, -1, 1], [1, 4])?;
/// assert_eq!(loss::multilabel_margin(&x, &labels, Reduction::Mean)?.item::<f32>()?, 0.125);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn multilabel_margin(x: &Tensor, labels: &Tensor, reduction: Reduction) -> Result<Tensor> {
    called("multilabel_margin", x, |cx| compose::multilabel_margin(cx, x.clone(), labels.clone(), reduction))
}

/// The mean over the classes, the last axis, of [`super::bce_with_logits`], times the weights of the classes. Errors: Axis,
/// Shape, DType for inputs that do not fit.
///
/// ```
/// # use remat_nn::{Reduction, loss};
/// # use remat_tensor::Tensor;
/// # let device = remat_runtime::Device::cpu(Default::default())?;
/// let x = Tensor::new(&device, &[0.0f32, 1000.0], [1, 2])?;
/// let y = Tensor::new(&device, &[1.0f32, 1.0], [1, 2])?;
/// assert_eq!(loss::multilabel_soft_margin(&x, &y, None, Reduction::Mean)?.item::<f32>()?, 0.5 * 2f32.ln());
/// # Ok::<(), remat_types::Error>(())
/// ```
#[track_caller]
pub fn multilabel_soft_margin(x: &Tensor, y: &Tensor, weight: Option<&Tensor>, reduction: Reduction) -> Result<Tensor> {
    called("multilabel_soft_margin", x, |cx| {
        compose::multilabel_soft_margin(cx, x.clone(), y.clone(), weight.cloned(), reduction)
    })
}
