//! Optimisers by kind.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat::nn::distributed::{Communicator, Sharded};
use remat::nn::{
    AdadeltaOptions, AdafactorOptions, AdagradOptions, AdamWOptions, AdamaxOptions, Grouped, LambOptions, LionOptions,
    NAdamOptions, Optimizer, Parameter, RAdamOptions, RmsPropOptions, Rule, SgdOptions, SparseAdamOptions,
};
use remat::{HostTensor, Result, Tensor};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{named, no_such};
use crate::communicator::PyCommunicator;
use crate::device::PyDevice;
use crate::tensor::Output;
use crate::tensor::parameter::PyParameter;
use crate::{call, value};

/// Operations on groups of parameters, for every rule.
trait Groups: Optimizer {
    fn add(&mut self, parameters: Vec<(String, Parameter)>, options: &Value) -> Result<()>;
    fn set(&mut self, group: usize, options: &Value) -> Result<()>;
    fn get(&self) -> Vec<Value>;
    fn as_optimizer(&mut self) -> &mut dyn Optimizer;
}

/// The options `of` with the given ones in their place. Errors: Value for an unknown option.
fn with<R: Serialize + DeserializeOwned>(of: &R, given: &Value) -> Result<R> {
    let mut all = serde_json::to_value(of).map_err(bad)?;
    if let (Some(all), Some(given)) = (all.as_object_mut(), given.as_object()) {
        for (name, v) in given {
            if !all.contains_key(name) {
                let names: Vec<&str> = all.keys().map(String::as_str).collect();
                let text = format!("there is no option `{name}`; there are {}", names.join(", "));
                return Err(remat::Error::new(remat::ErrorKind::Value, text));
            }
            all.insert(name.clone(), v.clone());
        }
    }
    serde_json::from_value(all).map_err(bad)
}

impl<R: Rule + Default + Serialize + DeserializeOwned + 'static> Groups for Grouped<R> {
    fn add(&mut self, parameters: Vec<(String, Parameter)>, options: &Value) -> Result<()> {
        self.add_group(parameters, with(&R::default(), options)?)
    }

    fn set(&mut self, group: usize, options: &Value) -> Result<()> {
        let all = self.group_options();
        let now = all.get(group).copied().unwrap_or_default();
        self.set_group_options(group, with(&now, options)?)
    }

    fn get(&self) -> Vec<Value> {
        self.group_options().iter().map(|o| serde_json::to_value(o).unwrap_or(Value::Object(Map::new()))).collect()
    }

    fn as_optimizer(&mut self) -> &mut dyn Optimizer {
        self
    }
}

/// One group, whose state is divided among ranks.
impl<R: Rule + Default + Serialize + DeserializeOwned + 'static> Groups for Sharded<R> {
    fn add(&mut self, _: Vec<(String, Parameter)>, _: &Value) -> Result<()> {
        let text = "an optimiser whose state is divided among ranks has one group";
        Err(remat::Error::new(remat::ErrorKind::Value, text))
    }

    fn set(&mut self, group: usize, options: &Value) -> Result<()> {
        let mut all = self.options()?;
        let now = all.get_mut("groups").and_then(|g| g.get_mut(group));
        let none = || remat::Error::new(remat::ErrorKind::Value, format!("group {group} of 1"));
        let now = now.ok_or_else(none)?;
        let own: R = serde_json::from_value(now.take()).map_err(bad)?;
        *now = serde_json::to_value(with(&own, options)?).map_err(bad)?;
        self.load_options(&all)
    }

    fn get(&self) -> Vec<Value> {
        let all = self.options().ok().and_then(|mut o| o.get_mut("groups").map(Value::take));
        all.and_then(|g| g.as_array().cloned()).unwrap_or_default()
    }

    fn as_optimizer(&mut self) -> &mut dyn Optimizer {
        self
    }
}

fn bad(e: serde_json::Error) -> remat::Error {
    remat::Error::new(remat::ErrorKind::Value, e.to_string())
}

fn begin<R: Rule + Default + Serialize + DeserializeOwned + 'static>(
    parameters: Vec<(String, Parameter)>,
    options: &Value,
    group: Option<&Communicator>,
) -> Result<Box<dyn Groups>> {
    let options = with(&R::default(), options)?;
    Ok(match group {
        None => Box::new(Grouped::new(parameters, options)?),
        Some(group) => Box::new(Sharded::new(parameters, group, options)?),
    })
}

/// Makes an optimiser of parameters, options and, if its state is divided among ranks, their group.
type Begin = fn(Vec<(String, Parameter)>, &Value, Option<&Communicator>) -> Result<Box<dyn Groups>>;

const KINDS: &[(&str, Begin)] = &[
    ("sgd", begin::<SgdOptions>),
    ("adamw", begin::<AdamWOptions>),
    ("adadelta", begin::<AdadeltaOptions>),
    ("adafactor", begin::<AdafactorOptions>),
    ("adagrad", begin::<AdagradOptions>),
    ("adamax", begin::<AdamaxOptions>),
    ("lamb", begin::<LambOptions>),
    ("lion", begin::<LionOptions>),
    ("nadam", begin::<NAdamOptions>),
    ("radam", begin::<RAdamOptions>),
    ("rmsprop", begin::<RmsPropOptions>),
    ("sparse_adam", begin::<SparseAdamOptions>),
];

/// An optimiser of the library; Python's classes hold one each.
#[pyclass(name = "_NativeOptimizer", module = "remat._remat", frozen)]
pub(crate) struct NativeOptimizer(Mutex<Box<dyn Groups>>);

impl NativeOptimizer {
    fn lock(&self) -> MutexGuard<'_, Box<dyn Groups>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `f` with the optimiser. Whoever holds the optimiser's lock may wait for the interpreter's, so the caller
    /// must not hold the interpreter's.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut dyn Optimizer) -> T) -> T {
        f(self.lock().as_optimizer())
    }
}

#[pymethods]
impl NativeOptimizer {
    #[new]
    #[pyo3(signature = (kind, of, given, group = None))]
    fn new(
        py: Python<'_>,
        kind: &str,
        of: Vec<(String, Bound<'_, PyAny>)>,
        given: &Bound<'_, PyAny>,
        group: Option<&Bound<'_, PyCommunicator>>,
    ) -> PyResult<Self> {
        let begin = KINDS.iter().find(|(name, _)| *name == kind).ok_or_else(|| no_such("optimiser", kind))?.1;
        let (of, given) = (named(of)?, value::of_python(given)?);
        let group = group.map(|g| g.get().0.clone());
        call::run(py, move || begin(of, &given, group.as_ref())).map(|o| NativeOptimizer(Mutex::new(o)))
    }

    fn add_group(&self, py: Python<'_>, of: Vec<(String, Bound<'_, PyAny>)>, given: &Bound<'_, PyAny>) -> PyResult<()> {
        let (of, given) = (named(of)?, value::of_python(given)?);
        call::run(py, || self.lock().add(of, &given))
    }

    fn set_group(&self, py: Python<'_>, group: usize, given: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = value::of_python(given)?;
        call::run(py, || self.lock().set(group, &given))
    }

    /// The options of each group.
    fn groups(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        py.detach(|| self.lock().get()).iter().map(|options| value::to_python(py, options)).collect()
    }

    fn step(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || self.lock().as_optimizer().step())
    }

    fn zero_grad(&self, py: Python<'_>) {
        py.detach(|| self.lock().as_optimizer().zero_grad());
    }

    fn skip_step(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || self.lock().as_optimizer().skip_step())
    }

    #[getter]
    fn get_lr(&self, py: Python<'_>) -> f64 {
        py.detach(|| self.lock().as_optimizer().lr())
    }

    #[setter]
    fn set_lr(&self, py: Python<'_>, lr: f64) -> PyResult<()> {
        if !lr.is_finite() || lr < 0.0 {
            return Err(PyValueError::new_err(format!("the learning rate is {lr}, must be a number of at least 0")));
        }
        call::run(py, || {
            self.lock().as_optimizer().learning_rate().set(lr);
            Ok(())
        })
    }

    /// The state on the device, by name.
    fn state(&self, py: Python<'_>) -> PyResult<Vec<(String, Py<PyParameter>)>> {
        let all = py.detach(|| self.lock().as_optimizer().named_state());
        all.into_iter().map(|(name, p)| Ok((name, PyParameter::of(py, p)?))).collect()
    }

    /// The whole state on a device. If it is divided among ranks, all of them call this.
    fn whole_state(&self, py: Python<'_>, device: &Bound<'_, PyDevice>) -> PyResult<Vec<(String, Py<PyAny>)>> {
        let device = device.get().0.clone();
        let put = |(name, t): (String, HostTensor)| Ok((name, Tensor::from_host(&device, &t)?));
        let all = call::run(py, || {
            let all = self.with(|o| o.state_dict())?;
            all.into_iter().map(put).collect::<Result<Vec<_>>>()
        })?;
        all.into_iter().map(|(name, t)| Ok((name, t.object(py)?))).collect()
    }

    /// The options of all groups, as JSON, for `load_options`.
    fn options(&self, py: Python<'_>) -> PyResult<String> {
        Ok(call::run(py, || self.lock().as_optimizer().options())?.to_string())
    }

    fn load_options(&self, py: Python<'_>, given: &str) -> PyResult<()> {
        let given: Value = serde_json::from_str(given).map_err(value::wrong_form)?;
        call::run(py, || self.lock().as_optimizer().load_options(&given))
    }
}
