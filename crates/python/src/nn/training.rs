//! Tools around a training step: averages of weights, line searches, groups of parameters by name, accumulated batches.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use remat::nn::{self, Accumulate, Average, AverageOptions, Lbfgs, LbfgsOptions, Plateau, PlateauOptions};
use remat::{Error, ErrorKind, HostTensor, Result, Tensor};

use super::{State, named};
use crate::device::PyDevice;
use crate::tensor::parameter::PyParameter;
use crate::tensor::{Output, extract_tensor, host_of, parameter};
use crate::{call, value};

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// L-BFGS; see the Python class.
#[pyclass(name = "_Lbfgs", module = "remat._remat", frozen)]
pub(crate) struct NativeLbfgs(Mutex<Option<Lbfgs>>);

#[pymethods]
impl NativeLbfgs {
    /// Options are a dictionary with all of them.
    #[new]
    fn new(py: Python<'_>, of: Vec<Bound<'_, PyAny>>, options: &Bound<'_, PyAny>) -> PyResult<Self> {
        let of = of.iter().map(parameter::extract).collect::<PyResult<Vec<_>>>()?;
        let options: LbfgsOptions = value::extract(options)?;
        call::run(py, || Lbfgs::new(of, options)).map(|l| NativeLbfgs(Mutex::new(Some(l))))
    }

    /// Moves the parameters. Returns the loss before the step. It calls `loss` as often as the line search needs.
    fn step(&self, py: Python<'_>, loss: Py<PyAny>) -> PyResult<f64> {
        // taken out, so that no lock is held while Python runs, and a step within a step is noticed
        let running = || Error::new(ErrorKind::Value, "the optimiser is in the middle of a step").with_op("lbfgs");
        call::run(py, || {
            let mut lbfgs = lock(&self.0).take().ok_or_else(running)?;
            let not = || PyTypeError::new_err("the loss is a tensor");
            let one = || call::back(|py| extract_tensor(&loss.bind(py).call0()?)?.ok_or_else(not));
            let done = lbfgs.step(one);
            *lock(&self.0) = Some(lbfgs);
            done
        })
    }

    fn set_lr(&self, py: Python<'_>, lr: f64) -> PyResult<()> {
        self.with(py, |l| l.set_lr(lr))
    }

    #[getter]
    fn lr(&self, py: Python<'_>) -> PyResult<f64> {
        self.with(py, |l| Ok(l.options().lr))
    }

    /// The history that the optimiser keeps, on a device.
    fn state(&self, py: Python<'_>, device: &Bound<'_, PyDevice>) -> PyResult<Vec<(String, Py<PyAny>)>> {
        let device = device.get().0.clone();
        let put = |(name, t): (String, HostTensor)| Ok((name, Tensor::from_host(&device, &t)?));
        let all = self.with(py, |l| l.state_dict()?.into_iter().map(put).collect::<Result<Vec<_>>>())?;
        all.into_iter().map(|(name, t)| Ok((name, t.object(py)?))).collect()
    }

    /// Goes on from a state that `state` returned. Errors, after which nothing has changed: ValueError; BudgetError.
    fn load(&self, py: Python<'_>, values: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<()> {
        let all = values.into_iter().map(|(name, v)| Ok((name, host_of(&v)?)));
        let all: BTreeMap<String, HostTensor> = all.collect::<PyResult<_>>()?;
        self.with(py, |l| l.load_state_dict(&all))
    }

    /// The number of times that the loss was computed.
    #[getter]
    fn evaluations(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |l| Ok(l.evaluations()))
    }
}

impl NativeLbfgs {
    fn with<T: Send>(&self, py: Python<'_>, f: impl FnOnce(&mut Lbfgs) -> Result<T> + Send) -> PyResult<T> {
        let running = || Error::new(ErrorKind::Value, "the optimiser is in the middle of a step").with_op("lbfgs");
        call::run(py, || f(lock(&self.0).as_mut().ok_or_else(running)?))
    }
}

/// A copy of a module's state that follows it; see the Python class.
#[pyclass(name = "_Average", module = "remat._remat", frozen)]
pub(crate) struct NativeAverage(Mutex<Average>);

#[pymethods]
impl NativeAverage {
    #[new]
    fn new(py: Python<'_>, of: &Bound<'_, State>, decay: Option<f64>, buffers: bool) -> PyResult<Self> {
        let of = of.get();
        call::run(py, || Average::new(of, AverageOptions { decay, buffers })).map(|a| NativeAverage(Mutex::new(a)))
    }

    fn update(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || lock(&self.0).update())
    }

    fn swap(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || lock(&self.0).swap())
    }

    fn copy_to_module(&self, py: Python<'_>) -> PyResult<()> {
        call::run(py, || lock(&self.0).copy_to_module())
    }

    /// The averages by name, and the count of updates.
    fn state(&self, py: Python<'_>) -> PyResult<Vec<(String, Py<PyParameter>)>> {
        let all = py.detach(|| lock(&self.0).named_state());
        all.into_iter().map(|(name, p)| Ok((name, PyParameter::of(py, p)?))).collect()
    }
}

/// Accumulates gradients of several batches for one step.
#[pyclass(name = "_Accumulate", module = "remat._remat", frozen)]
pub(crate) struct NativeAccumulate(Mutex<Accumulate>);

#[pymethods]
impl NativeAccumulate {
    #[new]
    fn new(py: Python<'_>, batches: u64) -> PyResult<Self> {
        call::run(py, || Accumulate::new(batches)).map(|a| NativeAccumulate(Mutex::new(a)))
    }

    /// True if the step is due.
    fn backward(&self, loss: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = loss.py();
        let loss = extract_tensor(loss)?.ok_or_else(|| PyTypeError::new_err("the loss is a tensor"))?;
        // works on a copy, so that no lock is held while Python hooks run
        let mut now = py.detach(|| lock(&self.0).clone());
        let due = call::run(py, || now.backward(&loss))?;
        py.detach(|| *lock(&self.0) = now);
        Ok(due)
    }

    fn restart(&self, py: Python<'_>) {
        py.detach(|| lock(&self.0).restart());
    }
}

/// A learning rate that follows a measurement.
#[pyclass(name = "_Plateau", module = "remat._remat", frozen)]
pub(crate) struct NativePlateau(Mutex<Plateau>);

#[pymethods]
impl NativePlateau {
    /// Options are a dictionary with all of them.
    #[new]
    fn new(py: Python<'_>, lr: f64, options: &Bound<'_, PyAny>) -> PyResult<Self> {
        let options: PlateauOptions = value::extract(options)?;
        call::run(py, || Plateau::new(lr, options)).map(|p| NativePlateau(Mutex::new(p)))
    }

    fn observe(&self, measured: f64) -> f64 {
        lock(&self.0).observe(measured)
    }

    #[getter]
    fn lr(&self) -> f64 {
        lock(&self.0).lr()
    }

    #[getter]
    fn best(&self) -> Option<f64> {
        lock(&self.0).best()
    }

    fn get_state(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        value::object(py, &*lock(&self.0))
    }

    fn set_state(&self, state: &Bound<'_, PyAny>) -> PyResult<()> {
        *lock(&self.0) = value::extract(state)?;
        Ok(())
    }
}

/// Computes the running statistics of a module anew, as means over all batches. Returns the number of batches.
#[pyfunction]
pub(crate) fn update_batch_norm(
    py: Python<'_>,
    module: &Bound<'_, State>,
    batches: Py<PyIterator>,
    forward: Py<PyAny>,
) -> PyResult<usize> {
    let module = module.get();
    call::run(py, || {
        let next = || call::back(|py| batches.bind(py).clone().next().transpose().map(|b| b.map(Bound::unbind)));
        let all = std::iter::from_fn(|| next().transpose());
        nn::update_batch_norm(module, all, |batch: Py<PyAny>| {
            call::back(|py| forward.bind(py).call1((batch,)).map(drop))
        })
    })
}

type Names = Vec<Vec<String>>;

fn names(groups: impl IntoIterator<Item = Vec<(String, nn::Parameter)>>) -> Names {
    groups.into_iter().map(|g| g.into_iter().map(|(name, _)| name).collect()).collect()
}

/// The names that match each pattern, and those that match none.
#[pyfunction]
pub(crate) fn group_by_name(of: Vec<(String, Bound<'_, PyAny>)>, patterns: Vec<String>) -> PyResult<Names> {
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    Ok(names(nn::group_by_name(named(of)?, &patterns)))
}

/// The names of parameters on which weight decay should act, and of those on which it should not.
#[pyfunction]
pub(crate) fn split_decay(of: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Names> {
    let (with, without) = nn::split_decay(named(of)?);
    Ok(names([with, without]))
}
