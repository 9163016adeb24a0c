use remat_tensor::{ConvParams, PadMode, Tensor};
use remat_types::{Error, ErrorKind, Padding, Result, Shape};

use super::Extents;
use super::linear::{bias_init, plus};
use super::pad::padded;
use crate::{Init, InitCx, Label, Layer, Module, Parameter};

/// How a [`Conv`] or [`ConvTranspose`] is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvOptions<const D: usize> {
    /// Places from one tap's reach to the next, of the input (transposed: of the output). Default: 1.
    pub stride: Extents<D>,
    /// Zeros around the input (transposed: places cut off the sides of the output). Default: 0.
    pub padding: Padding<D>,
    /// The values of the padding. Default: zeros; a transposed convolution takes no other.
    pub padding_mode: PadMode,
    /// Places from one tap to the next. Default: 1.
    pub dilation: Extents<D>,
    /// Groups of channels that do not see each other. Default: 1.
    pub groups: usize,
    /// Add a bias. Default: true.
    pub bias: bool,
    /// Default: [`Init::DEFAULT_WEIGHT`].
    pub weight_init: Init,
}

/// [`ConvOptions`] of lines.
pub type Conv1dOptions = ConvOptions<1>;
/// [`ConvOptions`] of images: down, across.
pub type Conv2dOptions = ConvOptions<2>;
/// [`ConvOptions`] of volumes: depth, height, width.
pub type Conv3dOptions = ConvOptions<3>;

impl<const D: usize> Default for ConvOptions<D> {
    fn default() -> Self {
        ConvOptions {
            stride: Extents([1; D]),
            padding: Padding::NONE,
            padding_mode: PadMode::Zeros,
            dilation: Extents([1; D]),
            groups: 1,
            bias: true,
            weight_init: Init::DEFAULT_WEIGHT,
        }
    }
}

/// Cross-correlation over `D` axes plus a bias of each channel: `x: [n, in, ..]` to `[n, out, ..]`, see
/// [`remat_ops::conv::Conv2d`]. `weight: [out, in / groups, kernel..]`, `bias: [out]`.
///
/// Errors: Axis for another rank, Shape for another number of channels or an input smaller than the kernel.
#[derive(Module)]
#[module(crate = crate)]
pub struct Conv<const D: usize> {
    #[module(flatten)]
    label: Label,
    /// `[out, in / groups, kernel..]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    taps: ConvParams<D>,
    /// The padding around the input before the operator sees it, unless it is zeros.
    #[module(skip)]
    around: Option<(Padding<D>, PadMode)>,
}

/// [`Conv`] of `[n, in, l]`, by [`Tensor::conv1d`].
pub type Conv1d = Conv<1>;
/// [`Conv`] of `[n, in, h, w]`, by [`Tensor::conv2d`].
pub type Conv2d = Conv<2>;
/// [`Conv`] of `[n, in, d, h, w]`, by [`Tensor::conv3d`].
pub type Conv3d = Conv<3>;

impl<const D: usize> Conv<D> {
    /// From `inputs` to `outputs` channels, stride 1, no padding. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, kernel: impl Into<Extents<D>>) -> Result<Self> {
        Conv::with(cx, inputs, outputs, kernel, ConvOptions::default())
    }

    /// As [`Conv::new`] with options. Errors: also Value if `groups` does not divide both numbers of channels, or for a
    /// kernel without taps; Shape for a weight too large to address.
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        kernel: impl Into<Extents<D>>,
        options: ConvOptions<D>,
    ) -> Result<Self> {
        let label = format!("conv{D}d");
        options.check_groups(inputs, outputs, &label)?;
        let (weight, bias) = options.parameters(cx, [outputs, inputs], outputs, kernel.into())?;
        let (taps, mode) = (options.taps(), options.padding_mode);
        if mode == PadMode::Zeros || options.padding.is_none() {
            return Ok(Conv { label: Label::of_layer(&label), weight, bias, taps, around: None });
        }
        let (taps, around) = (ConvParams { padding: Padding::NONE, ..taps }, Some((options.padding, mode)));
        Ok(Conv { label: Label::of_layer(&label), weight, bias, taps, around })
    }

    /// The input with what lies around it.
    #[track_caller]
    fn within(&self, x: &Tensor) -> Result<Tensor> {
        match self.around {
            // a wrong rank is the operator's to tell
            Some((padding, mode)) if x.rank() == 2 + D => padded(x, padding, mode),
            _ => Ok(x.clone()),
        }
    }
}

impl Layer for Conv<1> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| biased(self.within(x)?.conv1d(&self.weight.get()?, self.taps)?, self.bias.as_ref()))
    }
}
impl Layer for Conv<2> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| biased(self.within(x)?.conv2d(&self.weight.get()?, self.taps)?, self.bias.as_ref()))
    }
}
impl Layer for Conv<3> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| biased(self.within(x)?.conv3d(&self.weight.get()?, self.taps)?, self.bias.as_ref()))
    }
}

/// Transposed convolution over `D` axes plus a bias of each channel: `x: [n, in, ..]` to `[n, out, ..]`, see
/// [`Tensor::conv_transpose2d`]. `weight: [in, out / groups, kernel..]`, `bias: [out]`; `fan_in` is, as in PyTorch, that of
/// the weight's second axis.
///
/// Errors: Axis for another rank, Shape for another number of channels, Value for an output padding not less than the
/// stride.
#[derive(Module)]
#[module(crate = crate)]
pub struct ConvTranspose<const D: usize> {
    #[module(flatten)]
    label: Label,
    /// `[in, out / groups, kernel..]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
    #[module(skip)]
    taps: ConvParams<D>,
    #[module(skip)]
    output_padding: [usize; D],
}

/// [`ConvTranspose`] of `[n, in, l]`, by [`Tensor::conv_transpose1d`].
pub type ConvTranspose1d = ConvTranspose<1>;
/// [`ConvTranspose`] of `[n, in, h, w]`, by [`Tensor::conv_transpose2d`].
pub type ConvTranspose2d = ConvTranspose<2>;
/// [`ConvTranspose`] of `[n, in, d, h, w]`, by [`Tensor::conv_transpose3d`].
pub type ConvTranspose3d = ConvTranspose<3>;

impl<const D: usize> ConvTranspose<D> {
    /// From `inputs` to `outputs` channels, stride 1, no padding. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, kernel: impl Into<Extents<D>>) -> Result<Self> {
        ConvTranspose::with(cx, inputs, outputs, kernel, ConvOptions::default())
    }

    /// As [`ConvTranspose::new`] with options. Errors: as [`Conv::with`].
    pub fn with(
        cx: &mut InitCx,
        inputs: usize,
        outputs: usize,
        kernel: impl Into<Extents<D>>,
        options: ConvOptions<D>,
    ) -> Result<Self> {
        let label = format!("conv_transpose{D}d");
        options.check_groups(inputs, outputs, &label)?;
        if options.padding_mode != PadMode::Zeros {
            let text =
                format!("the padding mode {:?}: a transposed convolution cuts, and pads nothing", options.padding_mode);
            return Err(Error::new(ErrorKind::Value, text).with_op(&label));
        }
        let (weight, bias) = options.parameters(cx, [inputs, outputs], outputs, kernel.into())?;
        Ok(ConvTranspose { label: Label::of_layer(&label), weight, bias, taps: options.taps(), output_padding: [0; D] })
    }

    /// The same with so many more places at the end of each axis of the output, less than the stride.
    #[must_use]
    pub fn with_output_padding(self, places: impl Into<Extents<D>>) -> Self {
        ConvTranspose { output_padding: places.into().0, ..self }
    }
}

impl Layer for ConvTranspose<1> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| {
            biased(x.conv_transpose1d(&self.weight.get()?, self.taps, self.output_padding)?, self.bias.as_ref())
        })
    }
}
impl Layer for ConvTranspose<2> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| {
            biased(x.conv_transpose2d(&self.weight.get()?, self.taps, self.output_padding)?, self.bias.as_ref())
        })
    }
}
impl Layer for ConvTranspose<3> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| {
            biased(x.conv_transpose3d(&self.weight.get()?, self.taps, self.output_padding)?, self.bias.as_ref())
        })
    }
}

impl<const D: usize> ConvOptions<D> {
    /// The same with as many outputs as inputs for a kernel of these extents, as PyTorch's `padding="same"`; see
    /// [`Padding::same`]. Errors: Value for a stride other than 1.
    pub fn with_same_padding(self, kernel: impl Into<Extents<D>>) -> Result<Self> {
        let ConvParams { padding, .. } = self.taps().with_same_padding(kernel.into().0)?;
        Ok(ConvOptions { padding, ..self })
    }

    pub(super) fn check_groups(&self, inputs: usize, outputs: usize, op: &str) -> Result<()> {
        let groups = self.groups;
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            let text = format!("{groups} groups do not divide {inputs} input and {outputs} output channels");
            return Err(Error::new(ErrorKind::Value, text).with_op(op));
        }
        Ok(())
    }

    /// A weight `[rows, columns / groups, kernel..]`, and a bias for `outputs` channels if there is one.
    pub(super) fn parameters(
        &self,
        cx: &mut InitCx,
        [rows, columns]: [usize; 2],
        outputs: usize,
        Extents(kernel): Extents<D>,
    ) -> Result<(Parameter, Option<Parameter>)> {
        if kernel.contains(&0) {
            let text = format!("a kernel of {kernel:?} has no taps: each extent must be 1 or more");
            return Err(Error::new(ErrorKind::Value, text).with_op(&format!("conv{D}d")));
        }
        let shape: Shape = [rows, columns / self.groups].into_iter().chain(kernel).collect();
        shape.checked_elems()?;
        let fan_in = shape[1..].iter().product();
        let weight = cx.parameter(shape, self.weight_init)?;
        let bias = if self.bias { Some(cx.parameter([outputs], bias_init(fan_in))?) } else { None };
        Ok((weight, bias))
    }

    fn taps(&self) -> ConvParams<D> {
        ConvParams { stride: self.stride.0, padding: self.padding, dilation: self.dilation.0, groups: self.groups }
    }
}

/// `y: [n, c, ..]` plus `bias: [c]`.
pub(super) fn biased(y: Tensor, bias: Option<&Parameter>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(y) };
    let mut wide = vec![1; y.rank() - 1];
    wide[0] = -1;
    plus(y, bias.get()?.reshape(&wide)?)
}
