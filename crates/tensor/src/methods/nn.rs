//! What networks are made of.

use remat_ops::conv::{Conv2d, Taps};
use remat_ops::linalg::MatMul;
use remat_ops::loss::{CrossEntropy, Reduction, Softmax};
use remat_ops::norm::{BatchNorm, BatchNormInfer, LayerNorm};
use remat_ops::pooling::{AvgPool2d, MaxPool2d, Windows};
use remat_ops::random::Dropout;
use remat_types::{Error, ErrorKind, Result, axis_of};

use crate::Tensor;
use crate::site::At;

impl Tensor {
    /// The matrix product, batched over leading axes with broadcasting: `[.., m, k] x [.., k, n] -> [.., m, n]`.
    /// Transposed operands are not copied. Errors: Shape, DType.
    #[track_caller]
    pub fn matmul(&self, b: &Tensor) -> Result<Tensor> {
        Tensor::apply1(MatMul {}, &[self, b])
    }

    /// Cross-correlation: `x: [n, c, h, w]`, `weight: [k, c / groups, r, s]`. Errors: Shape, DType, Value.
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, taps: Taps) -> Result<Tensor> {
        Tensor::apply1(Conv2d { taps }, &[self, weight])
    }

    /// The largest of each window of the last two axes. Errors: Axis unless rank 4, Value.
    #[track_caller]
    pub fn max_pool2d(&self, windows: Windows) -> Result<Tensor> {
        Tensor::apply1(MaxPool2d { windows }, &[self])
    }

    /// The mean of each window of the last two axes. Errors: Axis unless rank 4, Value.
    #[track_caller]
    pub fn avg_pool2d(&self, windows: Windows, count_include_pad: bool) -> Result<Tensor> {
        Tensor::apply1(AvgPool2d { windows, count_include_pad }, &[self])
    }

    /// Normalised by the batch's own statistics, which come back too: `(y, mean, biased variance)`.
    #[track_caller]
    pub fn batch_norm(&self, scale: &Tensor, bias: &Tensor, eps: f64) -> Result<(Tensor, Tensor, Tensor)> {
        let y = Tensor::apply(BatchNorm { eps: eps.into() }, &[self, scale, bias])?;
        match <[Tensor; 3]>::try_from(y.into_vec()) {
            Ok([y, mean, var]) => Ok((y, mean, var)),
            Err(_) => Err(Error::new(ErrorKind::Internal, "batch norm has three outputs")),
        }
    }

    /// Normalised by given statistics.
    #[track_caller]
    pub fn batch_norm_with(
        &self,
        scale: &Tensor,
        bias: &Tensor,
        mean: &Tensor,
        var: &Tensor,
        eps: f64,
    ) -> Result<Tensor> {
        Tensor::apply1(BatchNormInfer { eps: eps.into() }, &[self, scale, bias, mean, var])
    }

    /// Normalised over the last `axes` axes.
    #[track_caller]
    pub fn layer_norm(&self, scale: &Tensor, bias: &Tensor, axes: usize, eps: f64) -> Result<Tensor> {
        Tensor::apply1(LayerNorm { axes, eps: eps.into() }, &[self, scale, bias])
    }

    /// `e^x / sum e^x` along `axis`. Errors: Axis.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        Tensor::apply1(Softmax { axis: axis_of(axis, self.rank()).at("softmax")?, log: false }, &[self])
    }

    /// `ln softmax(x)` along `axis`. Errors: Axis.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        Tensor::apply1(Softmax { axis: axis_of(axis, self.rank()).at("softmax")?, log: true }, &[self])
    }

    /// The mean cross-entropy of `softmax` of these logits `[n, c, ..]` with class labels `[n, ..]`. A label that is
    /// no class is an error of kind Index at run time.
    #[track_caller]
    pub fn cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        self.cross_entropy_with(labels, Reduction::Mean, 0.0, None)
    }

    /// As [`Tensor::cross_entropy`] with all options.
    #[track_caller]
    pub fn cross_entropy_with(
        &self,
        labels: &Tensor,
        reduction: Reduction,
        smoothing: f64,
        ignore_index: Option<i64>,
    ) -> Result<Tensor> {
        Tensor::apply1(CrossEntropy { reduction, smoothing: smoothing.into(), ignore_index }, &[self, labels])
    }

    /// Zero with probability `p`, else divided by `1 - p`; a pure function of `key: u64 [2]`. Errors: Value.
    #[track_caller]
    pub fn dropout(&self, p: f64, key: &Tensor) -> Result<Tensor> {
        Tensor::apply1(Dropout { p: p.into() }, &[self, key])
    }
}
