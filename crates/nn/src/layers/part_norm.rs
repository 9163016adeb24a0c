//! Normalisation over parts of an image: groups of channels, single ones, neighbours, any axes.

use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope, Shape};

use crate::{Init, InitCx, Label, Layer, Module, Parameter};

/// A weight that begins as ones and a bias that begins as zeros, if they are wanted.
fn affine(cx: &mut InitCx, shape: impl Into<Shape>, wanted: bool) -> Result<(Option<Parameter>, Option<Parameter>)> {
    if !wanted {
        return Ok((None, None));
    }
    let shape = shape.into();
    Ok((Some(cx.parameter(&shape, Init::Ones)?), Some(cx.parameter(&shape, Init::Zeros)?)))
}

fn value(p: &Option<Parameter>) -> Result<Option<Tensor>> {
    p.as_ref().map(Parameter::get).transpose()
}

/// Normalisation of each group of channels of each image, [`Tensor::group_norm`], with a weight and a bias of each channel:
/// `x: [n, c, ..]`, `weight, bias: [c]`.
///
/// Errors: Axis below rank 2, Shape for another number of channels.
#[derive(Module)]
#[module(crate = crate)]
pub struct GroupNorm {
    #[module(flatten)]
    label: Label,
    /// `[c]`, begins as ones.
    pub weight: Option<Parameter>,
    /// `[c]`, begins as zeros.
    pub bias: Option<Parameter>,
    groups: usize,
    channels: usize,
    eps: f64,
}

impl GroupNorm {
    /// Of `channels` channels in `groups` groups, with weight and bias and an eps of 1e-5. Errors: Budget if it does not fit;
    /// Value unless `groups` divides the channels.
    pub fn new(cx: &mut InitCx, groups: usize, channels: usize) -> Result<Self> {
        GroupNorm::with(cx, groups, channels, 1e-5, true)
    }

    /// As [`GroupNorm::new`] with another `eps`, and without weight and bias unless `has_affine`.
    pub fn with(cx: &mut InitCx, groups: usize, channels: usize, eps: f64, has_affine: bool) -> Result<Self> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            let text = format!("{groups} groups do not divide {channels} channels");
            return Err(Error::new(ErrorKind::Value, text).with_op("group_norm"));
        }
        let (weight, bias) = affine(cx, [channels], has_affine)?;
        Ok(GroupNorm { label: Label::of_layer("group_norm"), weight, bias, groups, channels, eps })
    }
}

impl Layer for GroupNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| {
            if x.rank() >= 2 && x.dims()[1] != self.channels {
                let text = format!("x has shape {}: axis 1 must be of extent {}", x.shape(), self.channels);
                return Err(Error::new(ErrorKind::Shape, text).with_op("group_norm"));
            }
            x.group_norm(self.groups, value(&self.weight)?.as_ref(), value(&self.bias)?.as_ref(), self.eps)
        })
    }
}

/// Normalisation of each channel of each image, [`Tensor::instance_norm`]: `x: [n, c, ..]`, `weight, bias: [c]` if there are any.
///
/// Errors: Axis below rank 2, Shape for another number of channels.
#[derive(Module)]
#[module(crate = crate)]
pub struct InstanceNorm {
    #[module(flatten)]
    label: Label,
    /// `[c]`, begins as ones.
    pub weight: Option<Parameter>,
    /// `[c]`, begins as zeros.
    pub bias: Option<Parameter>,
    channels: usize,
    eps: f64,
}

impl InstanceNorm {
    /// Of `channels` channels, with an eps of 1e-5, without weight and bias, as PyTorch's.
    pub fn new(cx: &mut InitCx, channels: usize) -> Result<Self> {
        InstanceNorm::with(cx, channels, 1e-5, false)
    }

    /// As [`InstanceNorm::new`] with another `eps`, and with weight and bias if `has_affine`. Errors: Budget if it does not fit.
    pub fn with(cx: &mut InitCx, channels: usize, eps: f64, has_affine: bool) -> Result<Self> {
        let (weight, bias) = affine(cx, [channels], has_affine)?;
        Ok(InstanceNorm { label: Label::of_layer("instance_norm"), weight, bias, channels, eps })
    }
}

impl Layer for InstanceNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| {
            if x.rank() >= 2 && x.dims()[1] != self.channels {
                let text = format!("x has shape {}: axis 1 must be of extent {}", x.shape(), self.channels);
                return Err(Error::new(ErrorKind::Shape, text).with_op("instance_norm"));
            }
            x.instance_norm(value(&self.weight)?.as_ref(), value(&self.bias)?.as_ref(), self.eps)
        })
    }
}

/// Normalisation over any axes, [`Tensor::general_norm`], whose extents are given (MegEngine's `GeneralNorm`).
///
/// Errors: Axis; Shape for other extents of those axes.
#[derive(Module)]
#[module(crate = crate)]
pub struct GeneralNorm {
    #[module(flatten)]
    label: Label,
    /// The extents of the axes, begins as ones.
    pub weight: Option<Parameter>,
    /// The extents of the axes, begins as zeros.
    pub bias: Option<Parameter>,
    axes: Vec<isize>,
    eps: f64,
}

impl GeneralNorm {
    /// Over `axes` with these extents, in ascending order; an eps of 1e-5. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, axes: &[isize], extents: impl Into<Shape>) -> Result<Self> {
        GeneralNorm::with(cx, axes, extents, 1e-5, true)
    }

    /// As [`GeneralNorm::new`] with another `eps`, and without weight and bias unless `has_affine`.
    pub fn with(
        cx: &mut InitCx,
        axes: &[isize],
        extents: impl Into<Shape>,
        eps: f64,
        has_affine: bool,
    ) -> Result<Self> {
        let (weight, bias) = affine(cx, extents, has_affine)?;
        Ok(GeneralNorm { label: Label::of_layer("general_norm"), weight, bias, axes: axes.to_vec(), eps })
    }
}

impl Layer for GeneralNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = self.label.enter();
        self.label.around(x, |x| {
            x.general_norm(&self.axes, value(&self.weight)?.as_ref(), value(&self.bias)?.as_ref(), self.eps)
        })
    }
}

/// Division by the squares of neighbouring channels: [`Tensor::local_response_norm`].
#[derive(Clone, Copy, Debug, PartialEq, Module)]
#[module(crate = crate)]
pub struct LocalResponseNorm {
    /// Channels that count.
    pub size: usize,
    /// The weight of their mean square. Default: 1e-4.
    pub alpha: f64,
    /// The exponent. Default: 0.75.
    pub beta: f64,
    /// Added to the mean. Default: 1.
    pub k: f64,
}

impl LocalResponseNorm {
    /// With PyTorch's numbers.
    pub fn new(size: usize) -> Self {
        LocalResponseNorm { size, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }
}

impl Layer for LocalResponseNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _scope = Scope::called("local_response_norm", CallSite::here());
        x.local_response_norm(self.size, self.alpha, self.beta, self.k)
    }
}
