use remat_tensor::{PadMode, Patches, Tensor};
use remat_types::{Error, ErrorKind, Result};

use super::Extents;
use super::conv::biased;
use crate::{Conv2dOptions, InitCx, Label, Module, Parameter};

/// A convolution whose taps are moved, [`Tensor::deform_conv2d`], plus a bias of each channel: `x: [n, in, h, w]`,
/// `offset: [n, 2 g r s, oh, ow]`, `mask: [n, g r s, oh, ow]`, to `[n, out, oh, ow]`.
#[derive(Module)]
#[module(crate = crate)]
pub struct DeformConv2d {
    #[module(flatten)]
    label: Label,
    /// `[out, in / groups, r, s]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    patches: Patches,
}

impl DeformConv2d {
    /// From `inputs` to `outputs` channels. Errors: Budget if it does not fit; Value if `groups` does not divide both numbers of
    /// channels, or for other padding than zeros.
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        kernel: impl Into<Extents<2>>,
        options: Conv2dOptions,
    ) -> Result<Self> {
        const LABEL: &str = "deform_conv2d";
        if options.padding_mode != PadMode::Zeros {
            let text = format!("the padding mode {:?}: taps beyond the image are zeros", options.padding_mode);
            return Err(Error::new(ErrorKind::Value, text).with_op(LABEL));
        }
        options.check_groups(inputs, outputs, LABEL)?;
        let kernel = kernel.into();
        let (weight, bias) = options.parameters(cx, [outputs, inputs], outputs, kernel)?;
        let Extents(stride) = options.stride;
        let Extents(dilation) = options.dilation;
        let patches = Patches { kernel: kernel.0, stride, padding: options.padding, dilation };
        Ok(DeformConv2d { label: Label::new(LABEL), weight, bias, patches })
    }

    /// The output for `x`, with each tap moved by `offset` and weighted by `mask`, if there is one. Errors: Axis, Shape, DType.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, offset: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let _scope = self.label.enter();
        biased(x.deform_conv2d(offset, &self.weight.get()?, mask, self.patches)?, self.bias.as_ref())
    }
}
