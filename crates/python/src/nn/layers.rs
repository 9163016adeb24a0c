//! Compiled layers by kind.

use std::collections::BTreeMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use remat::nn::{
    AdaptiveAvgPool2d, BatchNorm, BatchNormOptions, Conv, ConvNorm, ConvOptions, ConvTranspose, Dropout, Embedding,
    EmbeddingOptions, Extents, GroupNorm, InitCx, InstanceNorm, Layer, LayerNorm, Linear, LinearOptions, RmsNorm,
};
use remat::{DType, Device, Padding, Result, Shape};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Generator, json, no_such};
use crate::device::PyDevice;
use crate::tensor::parameter::PyParameter;
use crate::tensor::{Output, extract_tensor};
use crate::{call, dtype};

/// A layer of the library; Python's classes hold one each.
#[pyclass(name = "_NativeLayer", module = "remat._remat", frozen)]
pub(crate) struct NativeLayer(Box<dyn Layer>);

impl NativeLayer {
    pub(crate) fn module(&self) -> &dyn Layer {
        &*self.0
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
struct ConvArgs {
    inputs: usize,
    outputs: usize,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<[usize; 2]>,
    dilation: Vec<usize>,
    groups: usize,
    bias: bool,
    #[serde(default)]
    output_padding: Vec<usize>,
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

#[derive(Deserialize)]
struct SizeArgs {
    size: [usize; 2],
}

fn array<T: Copy, const D: usize>(all: &[T]) -> PyResult<[T; D]> {
    all.try_into().map_err(|_| PyTypeError::new_err(format!("{} numbers for {D} axes", all.len())))
}

fn conv_options<const D: usize>(o: &ConvArgs) -> PyResult<ConvOptions<D>> {
    Ok(ConvOptions {
        stride: Extents(array(&o.stride)?),
        padding: Padding::from(array::<[usize; 2], D>(&o.padding)?),
        dilation: Extents(array(&o.dilation)?),
        groups: o.groups,
        bias: o.bias,
        ..ConvOptions::default()
    })
}

/// What makes a layer, once its options are read.
type Make = Box<dyn FnOnce(&mut InitCx) -> Result<Box<dyn Layer>> + Send>;

fn read<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(json)
}

fn conv<const D: usize>(text: &str) -> PyResult<Make>
where
    Conv<D>: Layer + 'static,
{
    let o: ConvArgs = read(text)?;
    let (options, kernel) = (conv_options::<D>(&o)?, array::<usize, D>(&o.kernel)?);
    Ok(Box::new(move |cx| Ok(Box::new(Conv::<D>::with(cx, o.inputs, o.outputs, kernel, options)?))))
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
        Ok(Box::new(layer.with_output_padding(more)))
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
    Ok(Box::new(move |cx| Ok(Box::new(BatchNorm::<D>::with(cx, o.channels, options)?))))
}

fn linear(text: &str) -> PyResult<Make> {
    let o: LinearArgs = read(text)?;
    let options = LinearOptions { bias: o.bias, ..LinearOptions::default() };
    Ok(Box::new(move |cx| Ok(Box::new(Linear::with(cx, o.inputs, o.outputs, options)?))))
}

/// What makes a layer of this kind. Errors: TypeError for a kind that there is not, ValueError for options that do not fit.
fn make(kind: &str, text: &str) -> PyResult<Make> {
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
            Box::new(move |cx| Ok(Box::new(ConvNorm::new(cx, o.inputs, o.outputs, o.kernel, o.stride)?)))
        }
        "batch_norm1d" => batch_norm::<1>(text)?,
        "batch_norm2d" => batch_norm::<2>(text)?,
        "batch_norm3d" => batch_norm::<3>(text)?,
        "layer_norm" => {
            let o: ShapeNormArgs = read(text)?;
            Box::new(move |cx| Ok(Box::new(LayerNorm::with(cx, Shape::from(o.shape.as_slice()), o.eps)?)))
        }
        "rms_norm" => {
            let o: ShapeNormArgs = read(text)?;
            Box::new(move |cx| Ok(Box::new(RmsNorm::with(cx, Shape::from(o.shape.as_slice()), o.eps)?)))
        }
        "group_norm" => {
            let o: GroupNormArgs = read(text)?;
            Box::new(move |cx| Ok(Box::new(GroupNorm::with(cx, o.groups, o.channels, o.eps, o.affine)?)))
        }
        "instance_norm" => {
            let o: GroupNormArgs = read(text)?;
            Box::new(move |cx| Ok(Box::new(InstanceNorm::with(cx, o.channels, o.eps, o.affine)?)))
        }
        "embedding" => {
            let o: EmbeddingArgs = read(text)?;
            let options = EmbeddingOptions { padding_idx: o.padding_idx, ..EmbeddingOptions::default() };
            Box::new(move |cx| Ok(Box::new(Embedding::with_options(cx, o.count, o.size, options)?)))
        }
        "dropout" => {
            let o: DropoutArgs = read(text)?;
            Box::new(move |cx| Ok(Box::new(Dropout::new(o.p, &mut cx.rng)?)))
        }
        "adaptive_avg_pool2d" => {
            let o: SizeArgs = read(text)?;
            Box::new(move |_| Ok(Box::new(AdaptiveAvgPool2d::new(o.size))))
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
            let mut rng = generator.lock();
            let mut cx = InitCx { device, dtype, rng: rng.clone() };
            let layer = make(&mut cx);
            *rng = cx.rng;
            layer
        })
        .map(NativeLayer)
    }

    fn forward(&self, x: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = x.py();
        let x = extract_tensor(x)?.ok_or_else(|| PyTypeError::new_err("a layer takes a tensor"))?;
        call::run(py, || self.0.forward(&x))?.object(py)
    }

    /// Parameters and buffers with their names.
    fn state(&self, py: Python<'_>) -> PyResult<Vec<(String, Py<PyParameter>)>> {
        self.0.named_state().into_iter().map(|(name, p)| Ok((name, PyParameter::of(py, p)?))).collect()
    }

    fn set_training(&self, on: bool) {
        self.0.set_training(on);
    }

    /// Names the scopes of its parts, for errors and reports.
    fn name_scopes(&self, root: &str) {
        self.0.name_scopes(root);
    }

    /// Its sources of random keys, as JSON by name.
    fn rng_states(&self) -> PyResult<String> {
        serde_json::to_string(&self.0.rng_states()).map_err(json)
    }

    fn load_rng_states(&self, states: &str) -> PyResult<()> {
        let states: BTreeMap<String, remat::nn::Rng> = serde_json::from_str(states).map_err(json)?;
        self.0.load_rng_states(&states);
        Ok(())
    }
}
