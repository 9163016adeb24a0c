//! Convolutions whose windows are not plain: deformed, or with kernels of their own at each place.

use remat_tensor::{PadMode, Patches, Tensor};
use remat_types::{Error, ErrorKind, Result, Shape};

use super::Extents;
use super::conv::biased;
use super::linear::bias_init;
use crate::{Conv2dOptions, InitCx, Label, Layer, Module, Parameter};

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
        let (weight, bias, patches) = windows(cx, [inputs, outputs], kernel.into(), options, LABEL)?;
        Ok(DeformConv2d { label: Label::new(LABEL), weight, bias, patches })
    }

    /// The output for `x`, with each tap moved by `offset` and weighted by `mask`, if there is one. Errors: Axis, Shape, DType.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, offset: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let _scope = self.label.enter();
        biased(x.deform_conv2d(offset, &self.weight.get()?, mask, self.patches)?, self.bias.as_ref())
    }
}

/// A convolution with a kernel of its own at each place, [`Tensor::local_conv2d`], without a bias: `x: [n, in, h, w]` to
/// `[n, out, oh, ow]` for images of one size.
///
/// Errors: Axis; Shape for images of another size or other channels.
#[derive(Module)]
#[module(crate = crate)]
pub struct LocalConv2d {
    #[module(flatten)]
    label: Label,
    /// `[groups, oh, ow, in / groups, r, s, out / groups]`.
    pub weight: Parameter,
    #[module(skip)]
    patches: Patches,
}

impl LocalConv2d {
    /// From `inputs` to `outputs` channels of images of `size`, height and width. Errors: Budget if it does not fit; Value if
    /// `groups` does not divide both numbers of channels, or for other padding than zeros; Shape if the kernel does not fit
    /// the images.
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        size: impl Into<Extents<2>>,
        kernel: impl Into<Extents<2>>,
        options: Conv2dOptions,
    ) -> Result<Self> {
        const LABEL: &str = "local_conv2d";
        zeros_only(options, LABEL)?;
        options.check_groups(inputs, outputs, LABEL)?;
        let (Extents(size), Extents(kernel), groups) = (size.into(), kernel.into(), options.groups);
        let (Extents(stride), Extents(dilation)) = (options.stride, options.dilation);
        let patches = Patches { kernel, stride, padding: options.padding, dilation };
        let [oh, ow] = patches.out(size).map_err(|e| e.with_op(LABEL))?;
        let shape: Shape = [groups, oh, ow, inputs / groups, kernel[0], kernel[1], outputs / groups].into();
        shape.checked_elems()?;
        // each output is a sum over the channels and taps of one window
        let fan_in = inputs / groups * kernel[0] * kernel[1];
        let weight = cx.parameter(shape, bias_init(fan_in))?;
        Ok(LocalConv2d { label: Label::new(LABEL), weight, patches })
    }
}

impl Layer for LocalConv2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        x.local_conv2d(&self.weight.get()?, self.patches)
    }
}

/// A convolution that sees only pixels of each place's own region, [`Tensor::region_restricted_conv`], plus a bias of each channel:
/// `x: [n, in, h, w]`, `rin: [n, 1, h, w]`, `rout: [n, 1, oh, ow]`, to `[n, out, oh, ow]`.
#[derive(Module)]
#[module(crate = crate)]
pub struct RegionRestrictedConv2d {
    #[module(flatten)]
    label: Label,
    /// `[out, in / groups, r, s]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    patches: Patches,
}

impl RegionRestrictedConv2d {
    /// From `inputs` to `outputs` channels. Errors: as [`DeformConv2d::with`].
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        kernel: impl Into<Extents<2>>,
        options: Conv2dOptions,
    ) -> Result<Self> {
        const LABEL: &str = "region_restricted_conv2d";
        let (weight, bias, patches) = windows(cx, [inputs, outputs], kernel.into(), options, LABEL)?;
        Ok(RegionRestrictedConv2d { label: Label::new(LABEL), weight, bias, patches })
    }

    /// The output for `x` whose pixels are of the regions `rin`, at places of the regions `rout`. Errors: Axis, Shape, DType.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, rin: &Tensor, rout: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        biased(x.region_restricted_conv(&self.weight.get()?, rin, rout, self.patches)?, self.bias.as_ref())
    }
}

/// The parameters of a convolution of single windows, and where they lie. Errors: Budget; Value for groups that do not divide both
/// numbers of channels, and for other padding than zeros.
fn windows(
    cx: &mut InitCx,
    [inputs, outputs]: [usize; 2],
    kernel: Extents<2>,
    options: Conv2dOptions,
    label: &'static str,
) -> Result<(Parameter, Option<Parameter>, Patches)> {
    zeros_only(options, label)?;
    options.check_groups(inputs, outputs, label)?;
    let (weight, bias) = options.parameters(cx, [outputs, inputs], outputs, kernel)?;
    let (Extents(stride), Extents(dilation)) = (options.stride, options.dilation);
    Ok((weight, bias, Patches { kernel: kernel.0, stride, padding: options.padding, dilation }))
}

/// Errors (Value) for other padding than zeros.
fn zeros_only(options: Conv2dOptions, label: &'static str) -> Result<()> {
    if options.padding_mode == PadMode::Zeros {
        return Ok(());
    }
    let text = format!("the padding mode {:?}: beyond the image are zeros", options.padding_mode);
    Err(Error::new(ErrorKind::Value, text).with_op(label))
}
