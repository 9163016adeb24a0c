//! Compiled layers by kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use remat::nn::{
    BatchNorm, BatchNormOptions, Conv, ConvNorm, ConvOptions, ConvTranspose, Dropout, Embedding, EmbeddingOptions,
    Extents, GroupNorm, InitCx, InstanceNorm, Label, Layer, LayerNorm, Linear, LinearOptions, Mode, Module, Momentum,
    PadMode, RmsNorm, Rng, SpectralNorm, Tap, Tapped, Visit, Visitor, Walk, WeightNorm, adopting,
};
use remat::runtime::tracing;
use remat::{DType, Device, Error, ErrorKind, Padding, Result, Shape, Tensor};
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
#[pyclass(name = "_NativeLayer", module = "remat._remat", frozen, weakref)]
pub(crate) struct NativeLayer {
    held: Held,
    /// Parts, by name, for which modules of Python's compute.
    replaced: Mutex<Vec<String>>,
    /// Another layer was made in its place, since an option changed.
    is_retired: Arc<AtomicBool>,
}

impl Visit for NativeLayer {
    /// Without the parts that are Python's.
    fn visit(&self, at: &mut Walk<'_>) {
        at.visit_without(self.module(), &self.replaced());
    }
}
impl Module for NativeLayer {}

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
    fn of(held: Held) -> NativeLayer {
        NativeLayer { held, replaced: Mutex::default(), is_retired: Arc::default() }
    }

    fn replaced(&self) -> Vec<String> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets a compiled function see that an option of the layer changed.
    fn used(&self) {
        if tracing::is_tracing() {
            let is_retired = self.is_retired.clone();
            tracing::guard(move || !is_retired.load(Ordering::Relaxed));
        }
    }

    fn module(&self) -> &dyn Module {
        match &self.held {
            Held::One(layer) => layer,
            Held::Several(layer) => &**layer,
        }
    }

    /// Errors: TypeError for a layer of several tensors.
    fn one(&self) -> PyResult<&Shared> {
        match &self.held {
            Held::One(layer) => Ok(layer),
            Held::Several(_) => Err(PyTypeError::new_err("a layer of several tensors, where one of one is needed")),
        }
    }

    /// Errors: TypeError for a layer of one tensor.
    fn several(&self) -> PyResult<&dyn Several> {
        match &self.held {
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
    /// None for the mean over all batches.
    momentum: Option<f64>,
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
    #[serde(default)]
    sparse: bool,
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

/// Options of a layer or an optimiser. Errors: TypeError naming the option that is of another type.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|e| super::wrong_option(text, &e))
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
        momentum: o.momentum.unwrap_or(BatchNormOptions::default().momentum),
        cumulative: o.momentum.is_none(),
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
            let options =
                EmbeddingOptions { padding_idx: o.padding_idx, sparse: o.sparse, ..EmbeddingOptions::default() };
            Box::new(move |cx| Ok(Held::one(Embedding::with_options(cx, o.count, o.size, options)?)))
        }
        "dropout" => {
            let o: DropoutArgs = read(text)?;
            Box::new(move |cx| Ok(Held::one(Dropout::new(o.p, &mut cx.rng)?)))
        }
        _ => return Err(no_such("layer", kind)),
    })
}

fn lies_in(name: &str, part: &str) -> bool {
    name.strip_prefix(part).is_some_and(|rest| part.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

fn each(layer: &NativeLayer, visitor: &mut dyn Visitor) {
    layer.module().visit(&mut Walk::new(visitor, ""));
}

/// The mode that a name is to have, if it is to change.
type NewMode<'f> = &'f dyn Fn(&str) -> Option<bool>;

/// Sets and reads modes by name, of those that lie somewhere.
struct Modes<'f> {
    lies: &'f dyn Fn(&str) -> bool,
    set: Option<NewMode<'f>>,
    found: BTreeMap<String, bool>,
}

impl Visitor for Modes<'_> {
    fn mode(&mut self, name: &str, m: &Mode) {
        if !(self.lies)(name) {
            return;
        }
        if let Some(on) = self.set.and_then(|set| set(name)) {
            m.set_training(on);
        }
        self.found.insert(name.to_owned(), m.is_training());
    }
}

/// Sets all momenta.
struct Momenta(f64);

impl Visitor for Momenta {
    fn momentum(&mut self, _: &str, m: &Momentum) {
        m.set(self.0);
    }
}

/// Finds whether a part takes a tap.
struct Takers<'p> {
    part: &'p str,
    found: bool,
}

impl Visitor for Takers<'_> {
    fn label(&mut self, name: &str, l: &Label) {
        self.found |= name == self.part && l.takes_tap();
    }
}

/// Sets the tap of a part.
struct Taps<'p> {
    part: &'p str,
    tap: Option<Arc<dyn Tap>>,
    done: Option<Result<()>>,
}

impl Visitor for Taps<'_> {
    fn label(&mut self, name: &str, l: &Label) {
        if name == self.part && l.takes_tap() {
            self.done = Some(l.set_tap(self.tap.clone()));
        }
    }
}

/// Functions of Python's around a layer.
struct PyTap {
    before: Py<PyAny>,
    after: Py<PyAny>,
}

fn tensor_of(x: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let not = || PyTypeError::new_err(format!("a hook or a part gives one tensor, not {}", x.get_type()));
    extract_tensor(x)?.ok_or_else(not)
}

impl Tap for PyTap {
    fn before(&self, x: &Tensor) -> Result<Tapped> {
        call::back(|py| {
            let given = self.before.bind(py).call1((x.clone().object(py)?,))?;
            let (is_done, made): (bool, Bound<'_, PyAny>) = given.extract()?;
            let made = tensor_of(&made)?;
            Ok(if is_done { Tapped::Output(made) } else { Tapped::Input(made) })
        })
    }

    fn after(&self, x: &Tensor, y: Tensor) -> Result<Tensor> {
        call::back(|py| tensor_of(&self.after.bind(py).call1((x.clone().object(py)?, y.object(py)?))?))
    }
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
            generator.0.making(|rng| {
                let mut cx = InitCx { device, dtype, rng: rng.clone() };
                let layer = make(&mut cx);
                *rng = cx.rng;
                layer
            })
        })
        .map(NativeLayer::of)
    }

    /// A layer of a kind with these parameters, which it takes in its order. Errors: ValueError where they do not fit.
    #[staticmethod]
    fn with_parameters(
        py: Python<'_>,
        kind: &str,
        options: &str,
        device: &Bound<'_, PyDevice>,
        of: &Bound<'_, PyAny>,
        parameters: Vec<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<Self> {
        let make = make(kind, options)?;
        let (device, dtype): (Device, DType) = (device.get().0.clone(), dtype::extract(of)?);
        let parameters = super::named(parameters)?.into_iter().map(|(_, p)| p).collect();
        call::run(py, move || {
            let mut cx = InitCx { device, dtype, rng: Rng::new(0) };
            adopting(parameters, || make(&mut cx))
        })
        .map(NativeLayer::of)
    }

    /// A layer whose weight is a length times a direction, in the place of one with a weight.
    #[staticmethod]
    fn weight_norm(py: Python<'_>, of: &Bound<'_, NativeLayer>, name: &str) -> PyResult<Self> {
        let inner = of.get().one()?.clone();
        call::run(py, || WeightNorm::new(inner, name)).map(|l| NativeLayer::of(Held::one(l)))
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
        let made = || generator.0.making(|rng| SpectralNorm::with(inner, name, iterations, eps, rng));
        call::run(py, made).map(|l| NativeLayer::of(Held::one(l)))
    }

    fn forward(&self, x: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = x.py();
        self.used();
        let layer = self.one()?;
        let x = extract_tensor(x)?.ok_or_else(|| PyTypeError::new_err("a layer takes a tensor"))?;
        call::run(py, || layer.forward(&x))?.object(py)
    }

    /// The outputs for several tensors, of which some may be None; `how` is JSON.
    fn call(&self, py: Python<'_>, x: Vec<Option<Bound<'_, PyAny>>>, how: &str) -> PyResult<Vec<Py<PyAny>>> {
        self.used();
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

    /// Lets a part, and what is within it, train or evaluate.
    fn set_training_of(&self, part: &str, on: bool) {
        each(self, &mut Modes { lies: &|name| lies_in(name, part), set: Some(&|_| Some(on)), found: BTreeMap::new() });
    }

    /// Which parts train, as JSON by name.
    fn modes(&self) -> PyResult<String> {
        let mut all = Modes { lies: &|_| true, set: None, found: BTreeMap::new() };
        each(self, &mut all);
        serde_json::to_string(&all.found).map_err(json)
    }

    fn load_modes(&self, modes: &str) -> PyResult<()> {
        let modes: BTreeMap<String, bool> = serde_json::from_str(modes).map_err(json)?;
        each(self, &mut Modes { lies: &|_| true, set: Some(&|name| modes.get(name).copied()), found: BTreeMap::new() });
        Ok(())
    }

    /// Replaces the weight of a batch in running statistics. Errors: ValueError outside 0 ..= 1.
    fn set_momentum(&self, momentum: f64) -> PyResult<()> {
        if !(0.0..=1.0).contains(&momentum) {
            return Err(PyValueError::new_err(format!("the momentum is {momentum}, must be 0 to 1")));
        }
        each(self, &mut Momenta(momentum));
        Ok(())
    }

    /// Says that another layer was made in its place: compiled functions that called it trace anew.
    fn retire(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || {
            tracing::refuse("changing an option of a layer");
            self.is_retired.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Puts functions around a part that is a layer of one tensor, or takes them away: `before(x)` gives False and what the part is to
    /// read, or True and the result; `after(x, y)` the result. If the part is replaced, its own state is none of the layer's. Errors:
    /// TypeError for a part that takes none.
    #[pyo3(signature = (part, around, is_replaced))]
    fn tap(
        &self,
        py: Python<'_>,
        part: &str,
        around: Option<(Py<PyAny>, Py<PyAny>)>,
        is_replaced: bool,
    ) -> PyResult<()> {
        let tap = around.map(|(before, after)| Arc::new(PyTap { before, after }) as Arc<dyn Tap>);
        let mut labels = Taps { part, tap, done: None };
        call::run(py, || {
            self.module().visit(&mut Walk::new(&mut labels, ""));
            labels.done.take().unwrap_or_else(|| Err(Error::new(ErrorKind::DType, "no layer of one tensor")))
        })?;
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        replaced.retain(|name| name != part);
        replaced.extend(is_replaced.then(|| part.to_owned()));
        Ok(())
    }

    /// True if a part is a layer of one tensor, around which functions may be put.
    fn takes_tap(&self, part: &str) -> bool {
        let mut all = Takers { part, found: false };
        self.module().visit(&mut Walk::new(&mut all, ""));
        all.found
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
