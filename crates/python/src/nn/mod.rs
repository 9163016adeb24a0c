//! Networks: layers and optimisers of `remat::nn` behind Python's classes, so that the same seed gives the same bits.
//!
//! A Python class of layers holds the compiled layer and registers its parameters under their names. Modules composed
//! of others are written in Python. Arguments of calls are typed. Options come as dictionaries, since they are read
//! only once, when an object is made.

mod checkpoint;
mod compiled;
mod layers;
mod losses;
mod multi_input;
mod networks;
mod optimizer;
mod state;
mod training;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use remat::nn::{self, Parameter, Rng, RngCell, Schedule};

use crate::device::PyDevice;
use crate::tensor::{Output, parameter};
use crate::{call, value};

pub(crate) use checkpoint::{NativeCheckpoint, checkpoint_is_in, prepare_checkpoint, save_checkpoint};
pub(crate) use compiled::NativeLayer;
pub(crate) use layers::layer_classes;
pub(crate) use losses::loss;
pub(crate) use multi_input::NativeCache;
pub(crate) use networks::network_configs;
pub(crate) use optimizer::NativeOptimizer;

pub(crate) use state::{State, module_tree, named_report};
pub(crate) use training::{
    NativeAccumulate, NativeAverage, NativeLbfgs, NativePlateau, group_by_name, split_decay, update_batch_norm,
};

/// A source of keys for random operators: `(seed, 0)`, `(seed, 1)`, and so on. The numbers that a key gives depend on
/// the key alone.
///
/// >>> import remat
/// >>> g = remat.Generator(7)
/// >>> g.key().tolist(), g.key().tolist()
/// ([7, 0], [7, 1])
#[pyclass(name = "Generator", module = "remat", frozen)]
pub(crate) struct Generator(pub(crate) RngCell);

impl Generator {
    /// Calls `f` with the generator. Whoever holds the generator's lock may wait for the interpreter's, so this
    /// releases the interpreter's before it takes the other.
    fn with<T: Send>(&self, py: Python<'_>, f: impl FnOnce(&mut Rng) -> T + Send) -> T {
        py.detach(|| self.0.with(f))
    }
}

#[pymethods]
impl Generator {
    #[new]
    fn new(seed: u64) -> Self {
        Generator(RngCell::new(Rng::new(seed)))
    }

    /// Begins anew with a seed.
    fn manual_seed(&self, py: Python<'_>, seed: u64) {
        self.with(py, |rng| *rng = Rng::new(seed));
    }

    /// The seed.
    #[getter]
    fn seed(&self, py: Python<'_>) -> u64 {
        self.with(py, |rng| rng.seed())
    }

    /// The number of keys drawn so far.
    #[getter]
    fn counter(&self, py: Python<'_>) -> u64 {
        self.with(py, |rng| rng.counter())
    }

    fn _key(&self, py: Python<'_>, device: &Bound<'_, PyDevice>) -> PyResult<Py<PyAny>> {
        let device = device.get().0.clone();
        call::run(py, move || self.0.next_key(&device))?.object(py)
    }

    /// An independent generator, whose seed is mixed from this one's state. This one moves on by one key.
    fn split(&self, py: Python<'_>) -> Generator {
        Generator(RngCell::new(self.with(py, Rng::split)))
    }

    /// Its present state, for `set_state`.
    fn get_state(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |rng| serde_json::to_string(rng)).map_err(value::wrong_form)
    }

    /// Goes on from a state that `get_state` returned. Errors: ValueError for a text that is no state.
    fn set_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let new: Rng = serde_json::from_str(state).map_err(value::wrong_form)?;
        self.with(py, |rng| *rng = new);
        Ok(())
    }
}

/// The TypeError or ValueError for a wrong option. It names the option if that is known, and avoids the words of Rust's
/// types.
pub(super) fn wrong_option(name: Option<&str>, said: &str) -> PyErr {
    let said = said.replace("expected usize", "expected a whole number of at least 0").replace("f64", "a number");
    let said = name.map_or_else(|| said.clone(), |name| format!("the option `{name}` is wrong: {said}"));
    if said.contains("invalid type") { PyTypeError::new_err(said) } else { PyValueError::new_err(said) }
}

/// Parameters with their names, as Python gives them.
pub(super) fn named(all: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Vec<(String, Parameter)>> {
    all.into_iter().map(|(name, p)| Ok((name, parameter::extract(&p)?))).collect()
}

/// A learning rate for each step; see the Python class.
#[pyclass(name = "_Schedule", module = "remat._remat", frozen)]
pub(crate) struct NativeSchedule(Schedule);

#[pymethods]
impl NativeSchedule {
    /// A schedule from its description as a dictionary. Errors: ValueError for an invalid one.
    #[new]
    fn new(form: &Bound<'_, PyAny>) -> PyResult<Self> {
        value::extract(form).map(NativeSchedule)
    }

    /// The learning rate of a step.
    fn at(&self, step: u64) -> f64 {
        self.0.at(step)
    }

    /// The momentum of a one-cycle schedule at a step: it runs against the learning rate. Errors: TypeError for another
    /// schedule.
    fn cycled_momentum(&self, step: u64, base: f64, max: f64) -> PyResult<f64> {
        match &self.0 {
            Schedule::OneCycle(cycle) => Ok(cycle.momentum_at(step, base, max)),
            _ => Err(PyTypeError::new_err("only a schedule of one cycle has a momentum")),
        }
    }
}

fn parameters(all: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Parameter>> {
    all.iter().map(parameter::extract).collect()
}

/// Scales the gradients so that their joint norm is at most `max_norm`. Returns the norm that they had.
#[pyfunction]
pub(crate) fn clip_grad_norm(py: Python<'_>, of: Vec<Bound<'_, PyAny>>, max_norm: f64, p: f64) -> PyResult<Py<PyAny>> {
    let all = parameters(of)?;
    call::run(py, move || nn::clip_grad_norm_with(&all, max_norm, p))?.object(py)
}

/// Limits every element of every gradient.
#[pyfunction]
pub(crate) fn clip_grad_value(py: Python<'_>, of: Vec<Bound<'_, PyAny>>, limit: f64) -> PyResult<()> {
    let all = parameters(of)?;
    call::run(py, move || nn::clip_grad_value(&all, limit))
}

/// A first value from an initialiser. Errors: ValueError for an unknown initialiser; those of the initialiser.
#[pyfunction]
pub(crate) fn initial(
    py: Python<'_>,
    init: &Bound<'_, PyAny>,
    shape: Vec<usize>,
    dtype: &Bound<'_, PyAny>,
    device: &Bound<'_, PyDevice>,
    generator: &Bound<'_, Generator>,
) -> PyResult<Py<PyAny>> {
    let init: nn::Init = value::extract(init)?;
    let (dtype, device) = (crate::dtype::extract(dtype)?, device.get().0.clone());
    let generator = generator.get();
    call::run(py, move || generator.0.with(|rng| init.tensor(&device, shape.as_slice(), dtype, rng)))?.object(py)
}

/// The error for an unknown name of a kind.
pub(super) fn no_such(what: &str, kind: &str) -> PyErr {
    PyTypeError::new_err(format!("there is no {what} `{kind}`"))
}
