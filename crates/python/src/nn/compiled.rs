//! Compiled layers. Each Python module that is not composed of others holds one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use remat::nn::{
    InitCx, Label, Layer, Mode, Module, Momentum, Rng, SpectralNorm, Tap, Tapped, Visit, Visitor, Walk, WeightNorm,
    adopting,
};
use remat::runtime::tracing;
use remat::{DType, Device, Error, ErrorKind, Result, Tensor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::layers::{self, Make, no_such_layer};
use super::multi_input::{CallOptions, Inputs, MultiInput, NativeCache, cached};
use super::{Generator, networks};
use crate::device::PyDevice;
use crate::tensor::parameter::PyParameter;
use crate::tensor::{Output, extract_tensor};
use crate::{call, dtype, value};

/// A layer of the library; Python's classes hold one each.
#[pyclass(name = "_NativeLayer", module = "remat._remat", frozen, weakref)]
pub(crate) struct NativeLayer {
    built: Built,
    /// The class, and the options as they are now.
    recipe: Mutex<Recipe>,
    /// Names of parts that Python modules replace.
    replaced: Mutex<Vec<String>>,
    /// True once a changed option has put another layer in this one's place.
    is_retired: Arc<AtomicBool>,
}

impl Visit for NativeLayer {
    /// Leaves out the parts that Python modules replace.
    fn visit(&self, at: &mut Walk<'_>) {
        at.visit_without(self.module(), &self.replaced());
    }
}
impl Module for NativeLayer {}

/// A layer from one tensor to one tensor, or a layer with several tensors.
pub(crate) enum Built {
    OneInput(Shared),
    MultiInput(Box<dyn MultiInput>),
}

/// A layer that another layer may share.
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

impl Built {
    pub(super) fn one(layer: impl Layer + 'static) -> Built {
        Built::OneInput(Shared(Arc::new(layer)))
    }

    pub(super) fn multi_input(layer: impl MultiInput + 'static) -> Built {
        Built::MultiInput(Box::new(layer))
    }

    /// Errors (DType): a layer of several tensors.
    fn into_one(self) -> Result<Shared> {
        match self {
            Built::OneInput(layer) => Ok(layer),
            Built::MultiInput(_) => Err(Error::new(ErrorKind::DType, "no layer of one tensor")),
        }
    }
}

/// The class and the options of a layer: enough to make another one.
#[derive(Clone)]
struct Recipe {
    class: String,
    /// The options in the order in which they are shown.
    options: Vec<(String, Value)>,
    /// The layer that it wraps, if it wraps one.
    inner: Option<Box<Recipe>>,
}

/// The options of a layer whose weight is a length times a direction.
#[derive(Serialize, Deserialize)]
struct WeightNormOptions {
    name: String,
}

/// The options of a layer whose weight is divided by its largest singular value.
#[derive(Serialize, Deserialize)]
struct SpectralNormOptions {
    name: String,
    n_power_iterations: usize,
    eps: f64,
}

impl Recipe {
    /// The recipe of a layer that wraps another one.
    fn around(inner: &Recipe, class: &str, options: &[(&str, Value)]) -> Recipe {
        let options = options.iter().map(|(name, v)| ((*name).to_owned(), v.clone())).collect();
        Recipe { class: class.to_owned(), options, inner: Some(Box::new(inner.clone())) }
    }

    /// The recipe from a class and a dictionary of options, and the function that makes the layer. Errors: TypeError
    /// for an unknown class; TypeError, ValueError for options that do not fit.
    fn read(class: &str, given: Map<String, Value>) -> PyResult<(Recipe, Make)> {
        if let "WeightNorm" | "SpectralNorm" = class {
            return Recipe::read_around(class, given);
        }
        let made = match layers::make(class, &given)? {
            Some(made) => Some(made),
            None => networks::make(class, given)?,
        };
        let (options, make) = made.ok_or_else(|| no_such_layer(class))?;
        Ok((Recipe { class: class.to_owned(), options, inner: None }, make))
    }

    fn read_around(class: &str, mut given: Map<String, Value>) -> PyResult<(Recipe, Make)> {
        let inner = given.remove("layer").unwrap_or_default();
        let (inner, inner_options): (String, Map<String, Value>) =
            serde_json::from_value(inner).map_err(value::wrong_form)?;
        let (inner, make) = Recipe::read(&inner, inner_options)?;
        let in_order = ["name", "n_power_iterations", "eps"];
        let options: Vec<_> = in_order.iter().filter_map(|name| Some((*name, given.get(*name)?.clone()))).collect();
        let recipe = Recipe::around(&inner, class, &options);
        let given = Value::Object(given);
        let make: Make = if class == "WeightNorm" {
            let o: WeightNormOptions = serde_json::from_value(given).map_err(value::wrong_form)?;
            Box::new(move |cx| WeightNorm::new(make(cx)?.into_one()?, &o.name).map(Built::one))
        } else {
            let o: SpectralNormOptions = serde_json::from_value(given).map_err(value::wrong_form)?;
            Box::new(move |cx| {
                let inner = make(cx)?.into_one()?;
                SpectralNorm::with(inner, &o.name, o.n_power_iterations, o.eps, &mut cx.rng).map(Built::one)
            })
        };
        Ok((recipe, make))
    }

    /// The recipe from a class and options as Python gives them.
    fn of_python(class: &str, options: &Bound<'_, PyAny>) -> PyResult<(Recipe, Make)> {
        match value::of_python(options)? {
            Value::Object(options) => Recipe::read(class, options),
            // the class is checked first: an unknown one is an error whatever the options are
            _ => Recipe::read(class, Map::new()),
        }
    }

    /// The function that makes another layer of this recipe.
    fn make(&self) -> PyResult<Make> {
        Ok(Recipe::read(&self.class, self.given())?.1)
    }

    fn given(&self) -> Map<String, Value> {
        let inner = self.inner.as_ref().map(|inner| {
            let pair = Value::Array(vec![inner.class.clone().into(), Value::Object(inner.given())]);
            ("layer".to_owned(), pair)
        });
        inner.into_iter().chain(self.options.iter().cloned()).collect()
    }

    /// The options as a Python dictionary. `layer` has the class and the options of the wrapped layer.
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        if let Some(inner) = &self.inner {
            all.set_item("layer", (&inner.class, inner.options(py)?))?;
        }
        self.options.iter().try_for_each(|(name, v)| all.set_item(name, value::to_python(py, v)?))?;
        Ok(all)
    }
}

impl NativeLayer {
    fn new_of(built: Built, recipe: Recipe) -> NativeLayer {
        NativeLayer { built, recipe: Mutex::new(recipe), replaced: Mutex::default(), is_retired: Arc::default() }
    }

    fn recipe(&self) -> Recipe {
        self.recipe.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replaced(&self) -> Vec<String> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets a compiled function that uses the layer notice that one of its options changed.
    fn used(&self) {
        if tracing::is_tracing() {
            let is_retired = self.is_retired.clone();
            tracing::guard(move || !is_retired.load(Ordering::Relaxed));
        }
    }

    fn module(&self) -> &dyn Module {
        match &self.built {
            Built::OneInput(layer) => layer,
            Built::MultiInput(layer) => &**layer,
        }
    }

    /// Errors: TypeError for a layer of several tensors.
    fn one(&self) -> PyResult<&Shared> {
        match &self.built {
            Built::OneInput(layer) => Ok(layer),
            Built::MultiInput(_) => {
                Err(PyTypeError::new_err("a layer of several tensors stands where one of one tensor is needed"))
            }
        }
    }

    /// Errors: TypeError for a layer of one tensor.
    fn multi_input(&self) -> PyResult<&dyn MultiInput> {
        match &self.built {
            Built::OneInput(_) => {
                Err(PyTypeError::new_err("a layer of one tensor stands where one of several is needed"))
            }
            Built::MultiInput(layer) => Ok(&**layer),
        }
    }

    fn states(&self) -> States {
        let mut modes = Modes { lies: &|_| true, set: None, found: BTreeMap::new() };
        each(self, &mut modes);
        States { modes: modes.found, rng: self.module().rng_states() }
    }

    fn load(&self, states: &States) {
        let mode = |name: &str| states.modes.get(name).copied();
        each(self, &mut Modes { lies: &|_| true, set: Some(&mode), found: BTreeMap::new() });
        self.module().load_rng_states(&states.rng);
    }
}

/// The state of a layer beside its parameters, by name: the modes of its parts, and its sources of random keys.
#[derive(Serialize, Deserialize)]
struct States {
    modes: BTreeMap<String, bool>,
    rng: BTreeMap<String, Rng>,
}

fn lies_in(name: &str, part: &str) -> bool {
    name.strip_prefix(part).is_some_and(|rest| part.is_empty() || rest.is_empty() || rest.starts_with('.'))
}

fn each(layer: &NativeLayer, visitor: &mut dyn Visitor) {
    layer.module().visit(&mut Walk::new(visitor, ""));
}

/// The mode that a name is to have, if it is to change.
type NewMode<'f> = &'f dyn Fn(&str) -> Option<bool>;

/// Sets and reads modes by name, where `lies` holds for the name.
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

/// Python functions around a layer.
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
    /// A layer of a class with a dictionary of options. Keys of `generator` draw the first values of its parameters.
    #[new]
    fn new(
        py: Python<'_>,
        kind: &str,
        options: &Bound<'_, PyAny>,
        device: &Bound<'_, PyDevice>,
        of: &Bound<'_, PyAny>,
        generator: &Bound<'_, Generator>,
    ) -> PyResult<Self> {
        let (recipe, make) = Recipe::of_python(kind, options)?;
        let (device, dtype): (Device, DType) = (device.get().0.clone(), dtype::extract(of)?);
        let generator = generator.get();
        let built = call::run(py, move || {
            generator.0.making(|rng| {
                let mut cx = InitCx { device, dtype, rng: rng.clone() };
                let layer = make(&mut cx);
                *rng = cx.rng;
                layer
            })
        })?;
        Ok(NativeLayer::new_of(built, recipe))
    }

    /// A layer of a class with these parameters, in the order in which the layer makes its own. Errors: ValueError if
    /// they do not fit.
    #[staticmethod]
    fn with_parameters(
        py: Python<'_>,
        kind: &str,
        options: &Bound<'_, PyAny>,
        device: &Bound<'_, PyDevice>,
        of: &Bound<'_, PyAny>,
        parameters: Vec<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<Self> {
        let (recipe, make) = Recipe::of_python(kind, options)?;
        let (device, dtype): (Device, DType) = (device.get().0.clone(), dtype::extract(of)?);
        let parameters = super::named(parameters)?.into_iter().map(|(_, p)| p).collect();
        let built = call::run(py, move || {
            let mut cx = InitCx { device, dtype, rng: Rng::new(0) };
            adopting(parameters, || make(&mut cx))
        })?;
        Ok(NativeLayer::new_of(built, recipe))
    }

    /// The layer `of` with its weight as a length times a direction.
    #[staticmethod]
    fn weight_norm(py: Python<'_>, of: &Bound<'_, NativeLayer>, name: &str) -> PyResult<Self> {
        let inner = of.get();
        let recipe = Recipe::around(&inner.recipe(), "WeightNorm", &[("name", name.into())]);
        let inner = inner.one()?.clone();
        let built = call::run(py, || WeightNorm::new(inner, name).map(Built::one))?;
        Ok(NativeLayer::new_of(built, recipe))
    }

    /// The layer `of` with its weight divided by its largest singular value.
    #[staticmethod]
    fn spectral_norm(
        py: Python<'_>,
        of: &Bound<'_, NativeLayer>,
        name: &str,
        iterations: usize,
        eps: f64,
        generator: &Bound<'_, Generator>,
    ) -> PyResult<Self> {
        let options = [("name", name.into()), ("n_power_iterations", iterations.into()), ("eps", eps.into())];
        let recipe = Recipe::around(&of.get().recipe(), "SpectralNorm", &options);
        let (inner, generator) = (of.get().one()?.clone(), generator.get());
        let make = || generator.0.making(|rng| SpectralNorm::with(inner, name, iterations, eps, rng));
        let built = call::run(py, || make().map(Built::one))?;
        Ok(NativeLayer::new_of(built, recipe))
    }

    /// Another layer of the same options with parameters of its own. Modes and sources of random keys are the same.
    fn remade(&self, py: Python<'_>, device: &Bound<'_, PyDevice>, of: &Bound<'_, PyAny>) -> PyResult<Self> {
        let recipe = self.recipe();
        let make = recipe.make()?;
        let (device, dtype): (Device, DType) = (device.get().0.clone(), dtype::extract(of)?);
        let built = call::run(py, move || make(&mut InitCx { device, dtype, rng: Rng::new(0) }))?;
        let made = NativeLayer::new_of(built, recipe);
        py.detach(|| made.load(&self.states()));
        Ok(made)
    }

    /// The class of the layer.
    #[getter]
    fn kind(&self) -> String {
        self.recipe().class
    }

    /// The options of the layer, in order.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.recipe().options(py)
    }

    fn forward(&self, x: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = x.py();
        self.used();
        let layer = self.one()?;
        let x = extract_tensor(x)?.ok_or_else(|| PyTypeError::new_err("a layer takes a tensor"))?;
        call::run(py, || layer.forward(&x))?.object(py)
    }

    /// The outputs for several tensors, each of them or None. The options of attention are by name.
    #[pyo3(signature = (x, *, causal = false, scale = None, window = None, soft_cap = None, at_end = false))]
    #[allow(clippy::too_many_arguments)]
    fn call(
        &self,
        py: Python<'_>,
        x: Vec<Option<Bound<'_, PyAny>>>,
        causal: bool,
        scale: Option<f64>,
        window: Option<[usize; 2]>,
        soft_cap: Option<f64>,
        at_end: bool,
    ) -> PyResult<Vec<Py<PyAny>>> {
        self.used();
        let layer = self.multi_input()?;
        let not = || PyTypeError::new_err("a layer takes tensors");
        let one = |x: Option<Bound<'_, PyAny>>| x.map(|x| extract_tensor(&x)?.ok_or_else(not)).transpose();
        let x = Inputs(x.into_iter().map(one).collect::<PyResult<_>>()?);
        let options = CallOptions { causal, scale, window, soft_cap, at_end };
        call::run(py, || layer.call(&x, &options))?.into_iter().map(|y| y.object(py)).collect()
    }

    /// Room for keys and values.
    fn cache(&self, py: Python<'_>, n: usize, places: usize) -> PyResult<NativeCache> {
        let layer = self.multi_input()?;
        call::run(py, || cached(layer)?.caches(n, places)).map(NativeCache)
    }

    /// The output for the places that follow those of a cache. The call adds them to the cache.
    fn forward_cached(&self, x: &Bound<'_, PyAny>, cache: &Bound<'_, NativeCache>) -> PyResult<Py<PyAny>> {
        let (py, layer, cache) = (x.py(), self.multi_input()?, cache.get());
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

    /// Puts a part, and all layers within it, into training or evaluation mode.
    fn set_training_of(&self, part: &str, on: bool) {
        each(self, &mut Modes { lies: &|name| lies_in(name, part), set: Some(&|_| Some(on)), found: BTreeMap::new() });
    }

    /// Names of the parameters and buffers, without those of parts that Python modules replace.
    fn own_names(&self) -> Vec<String> {
        self.named_state().into_iter().map(|(name, _)| name).collect()
    }

    /// The modes of the parts, and the sources of random keys, by name.
    fn get_states(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        value::object(py, &py.detach(|| self.states()))
    }

    fn load_states(&self, py: Python<'_>, states: &Bound<'_, PyAny>) -> PyResult<()> {
        let states: States = value::extract(states)?;
        py.detach(|| self.load(&states));
        Ok(())
    }

    /// Sets the weight of a new batch in running statistics. Errors: ValueError outside 0 ..= 1.
    fn set_momentum(&self, momentum: f64) -> PyResult<()> {
        if !(0.0..=1.0).contains(&momentum) {
            return Err(PyValueError::new_err(format!("the momentum is {momentum}, must be 0 to 1")));
        }
        each(self, &mut Momenta(momentum));
        let mut recipe = self.recipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = recipe.options.iter_mut().find(|(name, _)| name == "momentum") {
            *kept = momentum.into();
        }
        Ok(())
    }

    /// Notes that another layer has taken this one's place. Compiled functions that called it trace anew.
    fn retire(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || {
            tracing::refuse("changing an option of a layer");
            self.is_retired.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Puts functions around a part that is a layer of one tensor, or takes them away. `before(x)` returns False and
    /// the part's input, or True and the result. `after(x, y)` returns the result. If the part is replaced, its state
    /// no longer belongs to the layer. Errors: TypeError for a part that takes no functions.
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
}
