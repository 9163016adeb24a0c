//! Compiled layers by kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use remat::nn::{
    BatchNorm, BatchNormOptions, Conv, ConvNorm, ConvOptions, ConvTranspose, Dropout, Embedding, EmbeddingOptions,
    Extents, GroupNorm, InitCx, InstanceNorm, Layer, LayerNorm, Linear, LinearOptions, Module, PadMode, RmsNorm,
    SpectralNorm, Visit, Walk, WeightNorm,
};
use remat::{DType, Device, Padding, Result, Shape, Tensor};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::several::{How, Inputs, NativeCache, Several, cached};
use super::windows::pad_mode;
use super::{Generator, json, kinds, networks, no_such, windows};
use crate::device::PyDevice;
use crate::tensor::parameter::PyParameter;
use crate::tensor::{Output, extract_tensor};
use crate::{call, dtype};

/// A layer of the library; Python's classes hold one each.
#[pyclass(name = "_NativeLayer", module = "remat._remat", frozen)]
pub(crate) struct NativeLayer(Held);

/// A layer that makes one tensor of another, or one of several tensors.
pub(crate) enum Held {
    One(Shared),
    Several(Box<dyn Several>),
}

/// A layer that another one may hold, too.
#[derive(Clone)]
pub(crate) struct Shared(Arc<dyn Layer>);

impl Visit for Shared {
    fn visit(&self, at: &mut Walk<'_>) {
        self.0.visit(at);
    }
}
impl Module for Shared {}
impl Layer for Shared {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

impl Held {
    pub(super) fn one(layer: impl Layer + 'static) -> Held {
        Held::One(Shared(Arc::new(layer)))
    }

    pub(super) fn several(layer: impl Several + 'static) -> Held {
        Held::Several(Box::new(layer))
    }
}

impl NativeLayer {
    pub(crate) fn module(&self) -> &dyn Module {
        match &self.0 {
            Held::One(layer) => layer,
            Held::Several(layer) => &**layer,
        }
    }

    /// Errors: TypeError for a layer of several tensors.
    fn one(&self) -> PyResult<&Shared> {
        match &self.0 {
            Held::One(layer) => Ok(layer),
            Held::Several(_) => Err(PyTypeError::new_err("a layer of several tensors, where one of one is needed")),
        }
    }

    /// Errors: TypeError for a layer of one tensor.
    fn several(&self) -> PyResult<&dyn Several> {
        match &self.0 {
            Held::One(_) => Err(PyTypeError::new_err("a layer of one tensor, where one of several is needed")),
            Held::Several(layer) => Ok(&**layer),
        }
    }
}

/// Linear maps.
#[derive(Deserialize)]
struct LinearArgs {
    inputs: usize,
    outputs: usize,
    bias: bool,
}

/// Convolutions; a list has an entry for each axis.
#[derive(Deserialize)]
pub(super) struct ConvArgs {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<[usize; 2]>,
    dilation: Vec<usize>,
    groups: usize,
    bias: bool,
    #[serde(default)]
    output_padding: Vec<usize>,
    /// What the padding is; zeros if it is not said.
    padding_mode: Option<String>,
    /// As many outputs as inputs, whatever `padding` says.
    #[serde(default)]
    same: bool,
}

#[derive(Deserialize)]
struct ConvNormArgs {
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
}

#[derive(Deserialize)]
struct BatchNormArgs {
    channels: usize,
    eps: f64,
    momentum: f64,
    affine: bool,
    track_running_stats: bool,
}

#[derive(Deserialize)]
struct ShapeNormArgs {
    shape: Vec<usize>,
    eps: f64,
}

#[derive(Deserialize)]
struct GroupNormArgs {
    #[serde(default)]
    groups: usize,
    channels: usize,
    eps: f64,
    affine: bool,
}

#[derive(Deserialize)]
struct EmbeddingArgs {
    count: usize,
    size: usize,
    padding_idx: Option<isize>,
}

#[derive(Deserialize)]
struct DropoutArgs {
    p: f64,
}

pub(super) fn array<T: Copy, const D: usize>(all: &[T]) -> PyResult<[T; D]> {
    all.try_into().map_err(|_| PyTypeError::new_err(format!("{} numbers for {D} axes", all.len())))
}

pub(super) fn conv_options<const D: usize>(o: &ConvArgs) -> PyResult<ConvOptions<D>> {
    Ok(ConvOptions {
        stride: Extents(array(&o.stride)?),
        padding: Padding::from(array::<[usize; 2], D>(&o.padding)?),
        padding_mode: o.padding_mode.as_deref().map_or(Ok(PadMode::Zeros), |m| pad_mode(m, 0.0))?,
        dilation: Extents(array(&o.dilation)?),
        groups: o.groups,
        bias: o.bias,
        ..ConvOptions::default()
    })
}

/// What makes a layer, once its options are read.
pub(super) type Make = Box<dyn FnOnce(&mut InitCx) -> Result<Held> + Send>;

pub(super) fn read<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(json)
}

fn conv<const D: usize>(text: &str) -> PyResult<Make>
where
    Conv<D>: Layer + 'static,
{
    let o: ConvArgs = read(text)?;
    let (options, kernel) = (conv_options::<D>(&o)?, array::<usize, D>(&o.kernel)?);
    Ok(Box::new(move |cx| {
        let options = if o.same { options.with_same_padding(kernel)? } else { options };
        Ok(Held::one(Conv::<D>::with(cx, o.inputs, o.outputs, kernel, options)?))
    }))
}

fn conv_transpose<const D: usize>(text: &str) -> PyResult<Make>
where
    ConvTranspose<D>: Layer + 'static,
{
    let o: ConvArgs = read(text)?;
    let (options, kernel) = (conv_options::<D>(&o)?, array::<usize, D>(&o.kernel)?);
    let more = array::<usize, D>(&o.output_padding)?;
    Ok(Box::new(move |cx| {
        let layer = ConvTranspose::<D>::with(cx, o.inputs, o.outputs, kernel, options)?;
        Ok(Held::one(layer.with_output_padding(more)))
    }))
}

fn batch_norm<const D: usize>(text: &str) -> PyResult<Make>
where
    BatchNorm<D>: Layer + 'static,
{
    let o: BatchNormArgs = read(text)?;
    let options = BatchNormOptions {
        eps: o.eps,
        momentum: o.momentum,
        affine: o.affine,
        track_running_stats: o.track_running_stats,
        ..BatchNormOptions::default()
    };
    Ok(Box::new(move |cx| Ok(Held::one(BatchNorm::<D>::with(cx, o.channels, options)?))))
}

fn linear(text: &str) -> PyResult<Make> {
    let o: LinearArgs = read(text)?;
    let options = LinearOptions { bias: o.bias, ..LinearOptions::default() };
    Ok(Box::new(move |cx| Ok(Held::one(Linear::with(cx, o.inputs, o.outputs, options)?))))
}

/// What makes a layer of this kind. Errors: TypeError for a kind that there is not, ValueError for options that do not fit.
fn make(kind: &str, text: &str) -> PyResult<Make> {
    for of in [windows::make, kinds::make, networks::make] {
        if let Some(make) = of(kind, text)? {
            return Ok(make);
        }
    }
    Ok(match kind {
        "linear" => linear(text)?,
        "conv1d" => conv::<1>(text)?,
        "conv2d" => conv::<2>(text)?,
        "conv3d" => conv::<3>(text)?,
        "conv_transpose1d" => conv_transpose::<1>(text)?,
        "conv_transpose2d" => conv_transpose::<2>(text)?,
        "conv_transpose3d" => conv_transpose::<3>(text)?,
        "conv_norm" => {
            let o: ConvNormArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(ConvNorm::new(cx, o.inputs, o.outputs, o.kernel, o.stride)?)))
        }
        "batch_norm1d" => batch_norm::<1>(text)?,
        "batch_norm2d" => batch_norm::<2>(text)?,
        "batch_norm3d" => batch_norm::<3>(text)?,
        "layer_norm" => {
            let o: ShapeNormArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(LayerNorm::with(cx, Shape::from(o.shape.as_slice()), o.eps)?)))
        }
        "rms_norm" => {
            let o: ShapeNormArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(RmsNorm::with(cx, Shape::from(o.shape.as_slice()), o.eps)?)))
        }
        "group_norm" => {
            let o: GroupNormArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(GroupNorm::with(cx, o.groups, o.channels, o.eps, o.affine)?)))
        }
        "instance_norm" => {
            let o: GroupNormArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(InstanceNorm::with(cx, o.channels, o.eps, o.affine)?)))
        }
        "embedding" => {
            let o: EmbeddingArgs = read(text)?;
            let options = EmbeddingOptions { padding_idx: o.padding_idx, ..EmbeddingOptions::default() };
            Box::new(move |cx| Ok(Held::one(Embedding::with_options(cx, o.count, o.size, options)?)))
        }
        "dropout" => {
            let o: DropoutArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(Dropout::new(o.p, &mut cx.rng)?)))
        }
        _ => return Err(no_such("layer", kind)),
    })
}

#[pymethods]
impl NativeLayer {
    /// A layer of a kind with options as JSON, whose parameters begin from the keys of `generator`.
    #[new]
    fn new(
        py: Python<'_>,
        kind: &str,
        options: &str,
        device: &Bound<'_, PyDevice>,
        of: &Bound<'_, PyAny>,
        generator: &Bound<'_, Generator>,
    ) -> PyResult<Self> {
        let make = make(kind, options)?;
        let (device, dtype): (Device, DType) = (device.get().0.clone(), dtype::extract(of)?);
        let generator = generator.get();
        call::run(py, move || {
            generator.0.with(|rng| {
                let mut cx = InitCx { device, dtype, rng: rng.clone() };
                let layer = make(&mut cx);
                *rng = cx.rng;
                layer
            })
        })
        .map(NativeLayer)
    }

    /// A layer whose weight is a length times a direction, in the place of one with a weight.
    #[staticmethod]
    fn weight_norm(py: Python<'_>, of: &Bound<'_, NativeLayer>, name: &str) -> PyResult<Self> {
        let inner = of.get().one()?.clone();
        call::run(py, || WeightNorm::new(inner, name)).map(|l| NativeLayer(Held::one(l)))
    }

    /// A layer whose weight is divided by its largest singular value, in the place of one with a weight.
    #[staticmethod]
    fn spectral_norm(
        py: Python<'_>,
        of: &Bound<'_, NativeLayer>,
        name: &str,
        iterations: usize,
        eps: f64,
        generator: &Bound<'_, Generator>,
    ) -> PyResult<Self> {
        let (inner, generator) = (of.get().one()?.clone(), generator.get());
        let made = || generator.0.with(|rng| SpectralNorm::with(inner, name, iterations, eps, rng));
        call::run(py, made).map(|l| NativeLayer(Held::one(l)))
    }

    fn forward(&self, x: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = x.py();
        let layer = self.one()?;
        let x = extract_tensor(x)?.ok_or_else(|| PyTypeError::new_err("a layer takes a tensor"))?;
        call::run(py, || layer.forward(&x))?.object(py)
    }

    /// The outputs for several tensors, of which some may be None; `how` is JSON.
    fn call(&self, py: Python<'_>, x: Vec<Option<Bound<'_, PyAny>>>, how: &str) -> PyResult<Vec<Py<PyAny>>> {
        let layer = self.several()?;
        let not = || PyTypeError::new_err("a layer takes tensors");
        let one = |x: Option<Bound<'_, PyAny>>| x.map(|x| extract_tensor(&x)?.ok_or_else(not)).transpose();
        let x = Inputs(x.into_iter().map(one).collect::<PyResult<_>>()?);
        let how: How = serde_json::from_str(how).map_err(json)?;
        call::run(py, || layer.call(&x, &how))?.into_iter().map(|y| y.object(py)).collect()
    }

    /// Room for keys and values.
    fn cache(&self, py: Python<'_>, n: usize, places: usize) -> PyResult<NativeCache> {
        let layer = self.several()?;
        call::run(py, || cached(layer)?.caches(n, places)).map(NativeCache)
    }

    /// The output for places behind those of a cache, which are added to it.
    fn forward_cached(&self, x: &Bound<'_, PyAny>, cache: &Bound<'_, NativeCache>) -> PyResult<Py<PyAny>> {
        let (py, layer, cache) = (x.py(), self.several()?, cache.get());
        let x = extract_tensor(x)?.ok_or_else(|| PyTypeError::new_err("a layer takes a tensor"))?;
        call::run(py, || cached(layer)?.forward_cached(&x, &cache.0))?.object(py)
    }

    /// Parameters and buffers with their names.
    fn state(&self, py: Python<'_>) -> PyResult<Vec<(String, Py<PyParameter>)>> {
        self.module().named_state().into_iter().map(|(name, p)| Ok((name, PyParameter::of(py, p)?))).collect()
    }

    fn set_training(&self, on: bool) {
        self.module().set_training(on);
    }

    /// Names the scopes of its parts, for errors and reports.
    fn name_scopes(&self, root: &str) {
        self.module().name_scopes(root);
    }

    /// Its sources of random keys, as JSON by name.
    fn rng_states(&self) -> PyResult<String> {
        serde_json::to_string(&self.module().rng_states()).map_err(json)
    }

    fn load_rng_states(&self, states: &str) -> PyResult<()> {
        let states: BTreeMap<String, remat::nn::Rng> = serde_json::from_str(states).map_err(json)?;
        self.module().load_rng_states(&states);
        Ok(())
    }
}
