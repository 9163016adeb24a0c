//! Functions of networks.

use remat_ops::activation::Softmax;
use remat_ops::loss::{CrossEntropy, Reduction};
use remat_ops::norm::{BatchNorm, BatchNormInfer, LayerNorm, RmsNorm};
use remat_ops::pooling::{AvgPool2d, MaxPool2d, Windows};
use remat_ops::random::Dropout;
use remat_types::{Error, ErrorKind, Result, axis_of};

use crate::Tensor;
use crate::site::InOp;

impl Tensor {
    /// The largest of each window of the last two axes. Errors: Axis unless rank 4, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Windows;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let windows = Windows::sliding([2, 1], [1, 1], [0, 0]);
    /// assert_eq!(x.max_pool2d(windows)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn max_pool2d(&self, windows: Windows) -> Result<Tensor> {
        Tensor::apply1(MaxPool2d { windows }, &[self])
    }

    /// The mean of each window of the last two axes. Errors: Axis unless rank 4, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Windows;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let whole = Windows::Adaptive { size: [1, 1] };
    /// assert_eq!(x.avg_pool2d(whole, true)?.to_vec::<f32>()?, [2.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn avg_pool2d(&self, windows: Windows, count_include_pad: bool) -> Result<Tensor> {
        Tensor::apply1(AvgPool2d { windows, count_include_pad }, &[self])
    }

    /// Normalised by the batch's own statistics, which come back too: `(y, mean, biased variance)`; `self: [n, c, ..]`,
    /// `scale, bias: [c]`. Errors: DType, Axis, Shape, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 3.0], [2, 1])?;
    /// let (scale, bias) = (Tensor::new(&device, &[2.0], [1])?, Tensor::new(&device, &[5.0], [1])?);
    /// let (y, mean, var) = x.batch_norm(&scale, &bias, 0.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0, 7.0]);
    /// assert_eq!((mean.item::<f32>()?, var.item::<f32>()?), (2.0, 1.0));
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn batch_norm(&self, scale: &Tensor, bias: &Tensor, eps: f64) -> Result<(Tensor, Tensor, Tensor)> {
        let y = Tensor::apply(BatchNorm { eps: eps.into() }, &[self, scale, bias])?;
        match <[Tensor; 3]>::try_from(y.into_vec()) {
            Ok([y, mean, var]) => Ok((y, mean, var)),
            Err(_) => Err(Error::new(ErrorKind::Internal, "batch norm has three outputs")),
        }
    }

    /// [`Tensor::batch_norm`] by given statistics: `(x - mean) / sqrt(var + eps) scale + bias`. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 3.0], [2, 1])?;
    /// let of = |v: f32| Tensor::new(&device, &[v], [1]);
    /// let y = x.batch_norm_with(&of(2.0)?, &of(5.0)?, &of(1.0)?, &of(4.0)?, 0.0)?;
    /// assert_eq!(y.to_vec::<f32>()?, [5.0, 7.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn batch_norm_with(
        &self,
        scale: &Tensor,
        bias: &Tensor,
        mean: &Tensor,
        var: &Tensor,
        eps: f64,
    ) -> Result<Tensor> {
        Tensor::apply1(BatchNormInfer { eps: eps.into() }, &[self, scale, bias, mean, var]).called("batch_norm_with")
    }

    /// Normalised over the last `axes` axes, whose extents `scale` and `bias` have. Errors: DType, Axis, Shape, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 3.0, 10.0, 30.0], [2, 2])?;
    /// let (scale, bias) = (Tensor::new(&device, &[1.0, 2.0], [2])?, Tensor::new(&device, &[0.0, 5.0], [2])?);
    /// assert_eq!(x.layer_norm(&scale, &bias, 1, 0.0)?.to_vec::<f32>()?, [-1.0, 7.0, -1.0, 7.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn layer_norm(&self, scale: &Tensor, bias: &Tensor, axes: usize, eps: f64) -> Result<Tensor> {
        Tensor::apply1(LayerNorm { axes, eps: eps.into() }, &[self, scale, bias])
    }

    /// Over the root of the mean square of the last `axes` axes, whose extents `scale` has (Zhang and Sennrich, 2019). Errors: DType,
    /// Axis, Shape, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let (x, scale) = (Tensor::new(&device, &[7.0, 1.0], [1, 2])?, Tensor::new(&device, &[1.0, 2.0], [2])?);
    /// assert_eq!(x.rms_norm(&scale, 1, 0.0)?.to_vec::<f32>()?, [1.4, 0.4]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn rms_norm(&self, scale: &Tensor, axes: usize, eps: f64) -> Result<Tensor> {
        Tensor::apply1(RmsNorm { axes, eps: eps.into() }, &[self, scale])
    }

    /// `e^x / sum e^x` along `axis`. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 1.0, 1000.0, f32::NEG_INFINITY], [2, 2])?;
    /// assert_eq!(x.softmax(-1)?.to_vec::<f32>()?, [0.5, 0.5, 1.0, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        Tensor::apply1(Softmax { axis: axis_of(axis, self.rank()).in_op("softmax")?, log: false }, &[self])
    }

    /// `ln softmax(x)` along `axis`. Errors: Axis.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1000.0, f32::NEG_INFINITY], [2])?;
    /// assert_eq!(x.log_softmax(0)?.to_vec::<f32>()?, [0.0, f32::NEG_INFINITY]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        Tensor::apply1(Softmax { axis: axis_of(axis, self.rank()).in_op("log_softmax")?, log: true }, &[self])
            .called("log_softmax")
    }

    /// The mean cross-entropy of `softmax` of these logits `[n, c, ..]` with class labels `[n, ..]`. A label that is
    /// no class is an error of kind Index at run time.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let logits = Tensor::new(&device, &[0.0, 0.0, 1000.0, 0.0], [2, 2])?;
    /// let labels = Tensor::new(&device, &[1, 0], [2])?;
    /// assert_eq!(logits.cross_entropy(&labels)?.item::<f32>()?, 2f32.ln() / 2.0);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        self.cross_entropy_with(labels, Reduction::Mean, 0.0, None)
    }

    /// As [`Tensor::cross_entropy`] with all options.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_tensor::Reduction;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let logits = Tensor::new(&device, &[0.0, 0.0, 1000.0, 0.0], [2, 2])?;
    /// let labels = Tensor::new(&device, &[1, -1], [2])?;
    /// let each = logits.cross_entropy_with(&labels, Reduction::None, 0.0, Some(-1))?;
    /// assert_eq!(each.to_vec::<f32>()?, [2f32.ln(), 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let key = Tensor::new(&device, &[7u64, 0], [2])?;
    /// let x = Tensor::new(&device, &[1.0; 100], [100])?;
    /// let y = x.dropout(0.5, &key)?.to_vec::<f32>()?;
    /// assert!(y.iter().all(|v| *v == 0.0 || *v == 2.0));
    /// assert_eq!(y, x.dropout(0.5, &key)?.to_vec::<f32>()?);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn dropout(&self, p: f64, key: &Tensor) -> Result<Tensor> {
        Tensor::apply1(Dropout { p: p.into() }, &[self, key])
    }
}
