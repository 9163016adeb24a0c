//! The block that MobileNetV3 and EfficientNet are made of.

use remat_nn::{
    BatchNormOptions, Conv2d, Conv2dOptions, ConvNorm, DropPath, Extents, Fan, Gain, Init, InitCx, Label, Layer, Module,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};

/// A function of a block's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockActivation {
    /// `max(x, 0)`.
    Relu,
    /// `x min(max(x + 3, 0), 6) / 6`.
    Hardswish,
    /// `x / (1 + e^-x)`.
    Silu,
}

impl BlockActivation {
    pub(super) fn of(self, x: Tensor) -> Result<Tensor> {
        match self {
            BlockActivation::Relu => x.relu(),
            BlockActivation::Hardswish => x.hswish(),
            BlockActivation::Silu => x.silu(),
        }
    }
}

/// Which [`MbConv`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MbConvOptions {
    /// Channels of the input.
    pub inputs: usize,
    /// Channels between the 1x1 convolutions; the first of them is left out if they are those of the input.
    pub wide: usize,
    /// Channels of the output.
    pub outputs: usize,
    /// Taps of the filter of each channel, down and across.
    pub kernel: usize,
    /// Of the filter.
    pub stride: usize,
    /// Channels within the gate of channels, if there is one.
    pub gate: Option<usize>,
    /// After the first two convolutions.
    pub activation: BlockActivation,
    /// The gate's factor is a hard sigmoid behind a relu (MobileNetV3), not a sigmoid behind a silu (EfficientNet).
    pub has_hard_gate: bool,
    /// Of the normalisations.
    pub norm: BatchNormOptions,
    /// Probability with which an image skips the block in training, if the block adds its input.
    pub drop_path: f64,
}

/// A factor for each channel, from the means of all channels over places (squeeze and excitation; Hu et al., CVPR 2018).
#[derive(Module)]
#[module(crate = remat_nn)]
struct Gate {
    #[module(flatten)]
    label: Label,
    reduce: Conv2d,
    expand: Conv2d,
    is_hard: bool,
}

impl Gate {
    fn new(cx: &mut InitCx, channels: usize, inner: usize, is_hard: bool) -> Result<Self> {
        let options =
            Conv2dOptions { weight_init: Init::KaimingNormal(Gain::Relu, Fan::Out), ..Conv2dOptions::default() };
        Ok(Gate {
            label: Label::of_layer("gate"),
            reduce: Conv2d::with(cx, channels, inner, 1, options)?,
            expand: Conv2d::with(cx, inner, channels, 1, options)?,
            is_hard,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.label.around(x, |x| {
            let y = self.reduce.forward(&x.mean_over(&[2, 3], true)?)?;
            let y = self.expand.forward(&if self.is_hard { y.relu()? } else { y.silu()? })?;
            x.mul(if self.is_hard { y.hsigmoid()? } else { y.sigmoid()? })
        })
    }
}

/// Widens by a 1x1 convolution, filters each channel by itself, weighs channels by a gate, and narrows by a 1x1 convolution,
/// each convolution with norm (Tan et al., CVPR 2019). Adds `x: [n, inputs, h, w]` where extents and channels stay.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct MbConv {
    #[module(flatten)]
    label: Label,
    widen: Option<ConvNorm>,
    filter: ConvNorm,
    gate: Option<Gate>,
    narrow: ConvNorm,
    drop_path: Option<DropPath>,
    adds: bool,
    #[module(skip)]
    activation: BlockActivation,
}

impl MbConv {
    /// A block. Errors: Value for a `drop_path` outside 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, o: MbConvOptions) -> Result<Self> {
        let mut conv = |inputs: usize, outputs: usize, kernel: usize, stride: usize, groups: usize| {
            let taps = Conv2dOptions { stride: Extents([stride; 2]), groups, ..ConvNorm::options(kernel) };
            ConvNorm::normed(cx, inputs, outputs, kernel, taps, o.norm)
        };
        let widen = if o.wide == o.inputs { None } else { Some(conv(o.inputs, o.wide, 1, 1, 1)?) };
        let filter = conv(o.wide, o.wide, o.kernel, o.stride, o.wide)?;
        let narrow = conv(o.wide, o.outputs, 1, 1, 1)?;
        let adds = o.stride == 1 && o.inputs == o.outputs;
        Ok(MbConv {
            label: Label::of_layer("block"),
            widen,
            filter,
            gate: o.gate.map(|inner| Gate::new(cx, o.wide, inner, o.has_hard_gate)).transpose()?,
            narrow,
            drop_path: if adds { drop_path(cx, o.drop_path)? } else { None },
            adds,
            activation: o.activation,
        })
    }
}

impl Layer for MbConv {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.label.around(x, |x| {
            let wide = match &self.widen {
                Some(widen) => self.activation.of(widen.forward(x)?)?,
                None => x.clone(),
            };
            let mut y = self.activation.of(self.filter.forward(&wide)?)?;
            if let Some(gate) = &self.gate {
                y = gate.forward(&y)?;
            }
            let y = self.narrow.forward(&y)?;
            if self.adds { skipped(y, self.drop_path.as_ref())? + x } else { Ok(y) }
        })
    }
}

/// A layer that leaves out examples, if it ever does.
pub(super) fn drop_path(cx: &mut InitCx, p: f64) -> Result<Option<DropPath>> {
    if p == 0.0 { Ok(None) } else { DropPath::new(p, &mut cx.rng).map(Some) }
}

/// The term that a block adds to its input.
pub(super) fn skipped(y: Tensor, drop_path: Option<&DropPath>) -> Result<Tensor> {
    drop_path.map_or_else(|| Ok(y.clone()), |d| d.forward(&y))
}

/// The multiple of 8 nearest to `channels`, and not below 0.9 of it: how MobileNets and EfficientNets round.
pub(super) fn rounded(channels: f64) -> usize {
    let near = (((channels + 4.0) / 8.0).floor() as usize * 8).max(8);
    if (near as f64) < 0.9 * channels { near + 8 } else { near }
}
