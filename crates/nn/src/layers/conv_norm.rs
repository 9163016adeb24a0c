use remat_tensor::Tensor;
use remat_types::{CallSite, Padding, Result, Scope};

use crate::{
    BatchNorm2d, BatchNormOptions, Conv2d, Conv2dOptions, Extents, Fan, Gain, Init, InitCx, Label, Layer, Module,
};

/// `norm(conv(x))`: a convolution without bias, and batch norm behind it; `x: [n, in, h, w]` to `[n, out, oh, ow]`.
///
/// Errors: those of [`Conv2d`] and [`BatchNorm2d`].
#[derive(Module)]
#[module(crate = crate)]
pub struct ConvNorm {
    #[module(flatten)]
    label: Label,
    /// The convolution.
    pub conv: Conv2d,
    /// Its normalisation.
    pub norm: BatchNorm2d,
}

impl ConvNorm {
    /// A square kernel whose padding keeps the extents at stride 1; weights begin as He et al. (2015) draw them, by
    /// `fan_out`. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, kernel: usize, stride: usize) -> Result<Self> {
        let options = Conv2dOptions { stride: Extents([stride; 2]), ..ConvNorm::options(kernel) };
        ConvNorm::with(cx, inputs, outputs, kernel, options)
    }

    /// The options that [`ConvNorm::new`] gives a convolution of stride 1.
    pub fn options(kernel: usize) -> Conv2dOptions {
        Conv2dOptions {
            padding: Padding::from(kernel / 2),
            weight_init: Init::KaimingNormal(Gain::Relu, Fan::Out),
            ..Conv2dOptions::default()
        }
    }

    /// Any convolution; its bias is left out, since the normalisation takes every constant away. Errors: as
    /// [`Conv2d::with`].
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        kernel: impl Into<Extents<2>>,
        options: Conv2dOptions,
    ) -> Result<Self> {
        ConvNorm::normed(cx, inputs, outputs, kernel, options, BatchNormOptions::default())
    }

    /// As [`ConvNorm::with`], with options for the normalisation too. Errors: also those of [`BatchNorm2d::with`](crate::BatchNorm::with).
    pub fn normed(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        kernel: impl Into<Extents<2>>,
        options: Conv2dOptions,
        norm: BatchNormOptions,
    ) -> Result<Self> {
        let conv = Conv2d::with(cx, inputs, outputs, kernel, Conv2dOptions { bias: false, ..options })?;
        Ok(ConvNorm { label: Label::of_layer("conv_norm"), conv, norm: BatchNorm2d::with(cx, outputs, norm)? })
    }
}

impl Layer for ConvNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.label.around(x, |x| self.norm.forward(&self.conv.forward(x)?))
    }
}
