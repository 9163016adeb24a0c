use remat_tensor::{Tensor, is_recording, no_grad};
use remat_types::{DType, Error, ErrorKind, Result, Shape};

use super::sync_norm::Normalised;
use crate::{Init, InitCx, Label, Layer, Mode, Module, Momentum, Parameter, StatisticsGroup, Visit, Walk, statistics};

/// How a [`BatchNorm`] is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNormOptions {
    /// Added to the variance. Default: 1e-5.
    pub eps: f64,
    /// Weight of a batch in the running statistics. Default: 0.1.
    pub momentum: f64,
    /// All batches have the same weight in the running statistics, whatever the momentum: PyTorch's `momentum=None`.
    /// Default: false.
    pub cumulative: bool,
    /// Weight and bias are trained; else they stay ones and zeros, and are no part of the module's state. Default: true.
    pub affine: bool,
    /// There are running statistics; else the batch's own normalise it in evaluation, too. Default: true.
    pub track_running_stats: bool,
    /// The running statistics normalise in training, too, and stay as they are; weight and bias get gradients unless
    /// [`Parameter::set_frozen`] says otherwise. Default: false.
    pub frozen: bool,
}

impl Default for BatchNormOptions {
    fn default() -> Self {
        BatchNormOptions {
            eps: 1e-5,
            momentum: 0.1,
            cumulative: false,
            affine: true,
            track_running_stats: true,
            frozen: false,
        }
    }
}

/// `y = (x - mean) / sqrt(var + eps) weight + bias`, per channel (axis 1), over the batch and `D` axes of space.
///
/// `x: [n, c, ..]` of rank `2 + D` (for `D = 1` also `[n, c]`); `weight, bias, running_mean, running_var: [c]`, the
/// latter two in f32 (f64 for f64). While training, `mean` and `var` (biased) are the batch's, and
/// `running = (1 - momentum) running + momentum batch`, with the unbiased variance; else they are the running ones. A
/// batch of one element a channel leaves the running variance as it is. A step that fails
/// moves no running statistics: repeated, it gives the same ones. [`BatchNormOptions`] has other ways;
/// [`SyncBatchNorm`](crate::distributed::SyncBatchNorm) takes the batches of several ranks as one.
///
/// Errors: Axis for another rank, Shape for another number of channels, or an empty batch while training.
pub struct BatchNorm<const D: usize> {
    label: Label,
    /// `[c]`, begins as ones.
    pub weight: Parameter,
    /// `[c]`, begins as zeros.
    pub bias: Parameter,
    /// `[c]`, begins as zeros.
    pub running_mean: Parameter,
    /// `[c]`, begins as ones.
    pub running_var: Parameter,
    /// Batches so far, an i64 of rank 0, where all of them have the same weight.
    pub num_batches_tracked: Option<Parameter>,
    mode: Mode,
    momentum: Momentum,
    /// The ranks whose batches are one for the statistics; begins as this one alone.
    pub statistics_group: StatisticsGroup,
    options: BatchNormOptions,
}

impl<const D: usize> Visit for BatchNorm<D> {
    fn visit(&self, at: &mut Walk<'_>) {
        self.label.visit(at);
        if self.options.affine {
            at.field("weight", &self.weight);
            at.field("bias", &self.bias);
        }
        if self.options.track_running_stats {
            at.field("running_mean", &self.running_mean);
            at.field("running_var", &self.running_var);
        }
        at.field("num_batches_tracked", &self.num_batches_tracked);
        at.field("mode", &self.mode);
        at.field("momentum", &self.momentum);
        at.field("statistics_group", &self.statistics_group);
    }
}
impl<const D: usize> Module for BatchNorm<D> {}

/// [`BatchNorm`] of `[n, c]` and `[n, c, l]`.
pub type BatchNorm1d = BatchNorm<1>;
/// [`BatchNorm`] of `[n, c, h, w]`.
pub type BatchNorm2d = BatchNorm<2>;
/// [`BatchNorm`] of `[n, c, d, h, w]`.
pub type BatchNorm3d = BatchNorm<3>;

impl<const D: usize> BatchNorm<D> {
    /// For `channels` channels. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, channels: usize) -> Result<Self> {
        BatchNorm::with(cx, channels, BatchNormOptions::default())
    }

    /// As [`BatchNorm::new`] with options. Errors: also Value for a momentum outside 0 ..= 1.
    pub fn with(cx: &mut InitCx, channels: usize, options: BatchNormOptions) -> Result<Self> {
        if !(0.0..=1.0).contains(&options.momentum) {
            let text = format!("the momentum is {}, must be 0 to 1", options.momentum);
            return Err(Error::new(ErrorKind::Value, text).with_op("batch_norm"));
        }
        if options.frozen && !options.track_running_stats {
            let text = "frozen without running statistics, which it would normalise by";
            return Err(Error::new(ErrorKind::Value, text).with_op("batch_norm"));
        }
        let real = if cx.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let (weight, bias) = (cx.parameter([channels], Init::Ones)?, cx.parameter([channels], Init::Zeros)?);
        if !options.affine {
            weight.set_frozen(true);
            bias.set_frozen(true);
        }
        let counts = options.cumulative && options.track_running_stats;
        Ok(BatchNorm {
            label: Label::of_layer("batch_norm"),
            weight,
            bias,
            running_mean: cx.buffer([channels], real, Init::Zeros)?,
            running_var: cx.buffer([channels], real, Init::Ones)?,
            num_batches_tracked: if counts { Some(cx.buffer([], DType::I64, Init::Zeros)?) } else { None },
            mode: Mode::default(),
            momentum: Momentum::new(options.momentum),
            statistics_group: StatisticsGroup::default(),
            options,
        })
    }

    /// The weight of this batch, in `dtype`: of a cumulative average, one by the number of batches, which this one is one of.
    fn share(&self, dtype: DType, is_of_step: bool) -> Result<Option<Tensor>> {
        let Some(seen) = &self.num_batches_tracked else { return Ok(None) };
        let one = Tensor::ones(seen.device(), [], DType::I64)?;
        statistics::add(seen, one, is_of_step)?;
        Ok(Some(seen.get()?.cast(dtype)?.recip()?))
    }

    /// `running += share (batch - running)`: one op, so that a failure cannot leave it half done.
    fn track(&self, running: &Parameter, batch: Tensor, share: Option<&Tensor>, is_of_step: bool) -> Result<()> {
        let change = batch.sub(running.get()?)?;
        let change = match share {
            Some(share) => change.mul(share)?,
            None => change.mul(self.momentum.get())?,
        };
        statistics::add(running, change, is_of_step)
    }
}

impl<const D: usize> Layer for BatchNorm<D> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| {
            if x.rank() != 2 + D && !(D == 1 && x.rank() == 2) {
                let text = format!("x has shape {}: its rank must be {}", x.shape(), 2 + D);
                return Err(Error::new(ErrorKind::Axis, text).with_op("batch_norm"));
            }
            let BatchNormOptions { eps, frozen, track_running_stats, .. } = self.options;
            let (weight, bias) = (self.weight.get()?, self.bias.get()?);
            if frozen || (track_running_stats && !self.mode.is_training()) {
                return x.batch_norm_with(&weight, &bias, &self.running_mean.get()?, &self.running_var.get()?, eps);
            }
            let batch = match self.statistics_group.get() {
                Some(group) => Normalised::together(x, &weight, &bias, eps, &group)?,
                None => Normalised::alone(x, &weight, &bias, eps)?,
            };
            if !track_running_stats {
                return Ok(batch.y);
            }
            // a pass without gradients leads to no step that could fail
            let is_of_step = is_recording();
            let _quiet = no_grad();
            let share = self.share(batch.mean.dtype(), is_of_step)?;
            self.track(&self.running_mean, batch.mean.detach(), share.as_ref(), is_of_step)?;
            if let Some(var) = batch.unbiased()? {
                self.track(&self.running_var, var, share.as_ref(), is_of_step)?;
            }
            Ok(batch.y)
        })
    }
}

/// `y = (x - mean) / sqrt(var + eps) weight + bias` over the last axes of `x`, whose extents are given.
///
/// `x, y: [.., s..]`, `weight, bias: [s..]`; biased variance. Errors: Axis if `x` has fewer axes, Shape for other extents.
#[derive(Module)]
#[module(crate = crate)]
pub struct LayerNorm {
    #[module(flatten)]
    label: Label,
    /// `[s..]`, begins as ones.
    pub weight: Parameter,
    /// `[s..]`, begins as zeros.
    pub bias: Parameter,
    eps: f64,
}

impl LayerNorm {
    /// Over the last axes, of extents `shape`, with an eps of 1e-5. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, shape: impl Into<Shape>) -> Result<Self> {
        LayerNorm::with(cx, shape, 1e-5)
    }

    /// As [`LayerNorm::new`] with another `eps`.
    pub fn with(cx: &mut InitCx, shape: impl Into<Shape>, eps: f64) -> Result<Self> {
        let shape = shape.into();
        let (weight, bias) = (cx.parameter(&shape, Init::Ones)?, cx.parameter(&shape, Init::Zeros)?);
        Ok(LayerNorm { label: Label::of_layer("layer_norm"), weight, bias, eps })
    }
}

impl Layer for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label
            .around(x, |x| x.layer_norm(&self.weight.get()?, &self.bias.get()?, self.weight.shape().rank(), self.eps))
    }
}

/// `y = x / sqrt(mean x^2 + eps) weight` over the last axes of `x`, whose extents are given (Zhang and Sennrich, 2019).
///
/// `x, y: [.., s..]`, `weight: [s..]`. Errors: Axis if `x` has fewer axes, Shape for other extents.
#[derive(Module)]
#[module(crate = crate)]
pub struct RmsNorm {
    #[module(flatten)]
    label: Label,
    /// `[s..]`, begins as ones.
    pub weight: Parameter,
    eps: f64,
}

impl RmsNorm {
    /// Over the last axes, of extents `shape`, with an eps of 1e-6. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, shape: impl Into<Shape>) -> Result<Self> {
        RmsNorm::with(cx, shape, 1e-6)
    }

    /// As [`RmsNorm::new`] with another `eps`.
    pub fn with(cx: &mut InitCx, shape: impl Into<Shape>, eps: f64) -> Result<Self> {
        Ok(RmsNorm { label: Label::of_layer("rms_norm"), weight: cx.parameter(shape.into(), Init::Ones)?, eps })
    }
}

impl Layer for RmsNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| x.rms_norm(&self.weight.get()?, self.weight.shape().rank(), self.eps))
    }
}
