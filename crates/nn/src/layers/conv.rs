use remat_ops::conv::Taps;
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, Result};

use super::Pair;
use super::linear::{bias_init, plus};
use crate::{Init, InitCx, Label, Layer, Module, Parameter};

/// How a [`Conv2d`] is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2dOptions {
    /// Input places from one output to the next: down, across. Default: 1.
    pub stride: Pair,
    /// Zeros on both sides: above and below, left and right. Default: 0.
    pub padding: Pair,
    /// Input places from one tap to the next: down, across. Default: 1.
    pub dilation: Pair,
    /// Groups of channels that do not see each other. Default: 1.
    pub groups: usize,
    /// Add a bias. Default: true.
    pub bias: bool,
    /// Default: [`Init::DEFAULT_WEIGHT`].
    pub weight_init: Init,
}

impl Default for Conv2dOptions {
    fn default() -> Self {
        Conv2dOptions {
            stride: Pair([1, 1]),
            padding: Pair([0, 0]),
            dilation: Pair([1, 1]),
            groups: 1,
            bias: true,
            weight_init: Init::DEFAULT_WEIGHT,
        }
    }
}

/// Cross-correlation in two dimensions plus a bias of each channel: `x: [n, in, h, w]` to `[n, out, oh, ow]`, see
/// [`remat_ops::conv::Conv2d`]. `weight: [out, in / groups, r, s]`, `bias: [out]`.
///
/// Errors: Axis for another rank, Shape for another number of channels or an input smaller than the kernel.
#[derive(Module)]
#[module(crate = crate)]
pub struct Conv2d {
    #[module(flatten)]
    label: Label,
    /// `[out, in / groups, r, s]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    taps: Taps,
}

impl Conv2d {
    /// From `inputs` to `outputs` channels, stride 1, no padding. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, kernel: impl Into<Pair>) -> Result<Self> {
        Conv2d::with(cx, inputs, outputs, kernel, Conv2dOptions::default())
    }

    /// As [`Conv2d::new`] with options. Errors: also Value if `groups` does not divide both numbers of channels.
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        kernel: impl Into<Pair>,
        options: Conv2dOptions,
    ) -> Result<Self> {
        let (Pair([r, s]), groups) = (kernel.into(), options.groups);
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            let text = format!("{groups} groups do not divide {inputs} input and {outputs} output channels");
            return Err(Error::new(ErrorKind::Value, text).with_op("conv2d"));
        }
        let weight = cx.parameter([outputs, inputs / groups, r, s], options.weight_init)?;
        let bias = match options.bias {
            true => Some(cx.parameter([outputs], bias_init(inputs / groups * r * s))?),
            false => None,
        };
        let taps = Taps { stride: options.stride.0, padding: options.padding.0, dilation: options.dilation.0, groups };
        Ok(Conv2d { label: Label::new("conv2d"), weight, bias, taps })
    }
}

impl Layer for Conv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        let y = x.conv2d(&self.weight.get()?, self.taps)?;
        match &self.bias {
            Some(bias) => plus(y, bias.get()?.reshape(&[-1, 1, 1])?),
            None => Ok(y),
        }
    }
}
