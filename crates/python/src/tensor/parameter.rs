//! A module's state as Python sees it: a tensor whose value is updated in place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use remat::Tensor;
use remat::nn::{Parameter, Role};
use remat::runtime::tracing;

use super::{PyTensor, extract_tensor};
use crate::call;

/// A value that assignment to a part replaces.
pub(crate) struct Plain {
    now: Mutex<Tensor>,
    /// The number of times that it was replaced since a compiled function first read it.
    version: OnceLock<Arc<AtomicU64>>,
}

impl Plain {
    pub(super) fn new(t: Tensor) -> Plain {
        Plain { now: Mutex::new(t), version: OnceLock::new() }
    }

    /// The value, without noting the read in a trace.
    pub(crate) fn peek(&self) -> Tensor {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The value. If a compiled function reads it from outside, the function is compiled anew once the value has been
    /// replaced.
    fn get(&self) -> Tensor {
        let now = self.peek();
        if tracing::is_tracing() && !now.handle().is_traced() {
            let version = self.version.get_or_init(Arc::default).clone();
            let seen = version.load(Ordering::Acquire);
            tracing::guard(move || version.load(Ordering::Acquire) == seen);
        }
        now
    }

    /// Replaces the value. Errors (ValueError): a compiled function replaces the value of a tensor that it neither made
    /// nor got as an argument.
    pub(super) fn replace(&self, new: Tensor) -> PyResult<()> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if tracing::is_tracing() && !now.handle().is_traced() {
            return Err(PyValueError::new_err(
                "a compiled function assigns to a tensor from outside, which would happen only while it is compiled; give the \
                 tensor as an argument, or keep it in a `Parameter`, which every run updates",
            ));
        }
        let old = std::mem::replace(&mut *now, new);
        drop(now);
        if let Some(version) = self.version.get() {
            version.fetch_add(1, Ordering::Release);
        }
        drop(old);
        Ok(())
    }
}

/// The value behind a Python tensor.
pub(crate) enum Value {
    /// A value of its own.
    Plain(Plain),
    /// The present version of a parameter.
    State(Parameter),
}

/// State of a module: a tensor that optimisers and `load_state_dict` update in place. `Parameter(data)` is trained;
/// `Parameter(data, requires_grad=False)` is a buffer.
///
/// >>> import remat
/// >>> p = remat.nn.Parameter(remat.ones(2))
/// >>> (p * 2).sum().backward()
/// >>> p.grad.tolist()
/// [2.0, 2.0]
#[pyclass(name = "Parameter", module = "remat.nn", extends = PyTensor, frozen, subclass)]
pub(crate) struct PyParameter;

impl PyParameter {
    pub(crate) fn of(py: Python<'_>, p: Parameter) -> PyResult<Py<PyParameter>> {
        Py::new(py, PyClassInitializer::from(PyTensor::state(p)).add_subclass(PyParameter))
    }
}

/// The parameter behind a Python tensor. Errors (TypeError) if it is none.
pub(crate) fn extract(x: &Bound<'_, PyAny>) -> PyResult<Parameter> {
    let none = || {
        let name = x.get_type().name().map_or_else(|_| "object".to_owned(), |n| n.to_string());
        PyTypeError::new_err(format!("expected a remat.nn.Parameter, not a {name}; `nn.Parameter(tensor)` makes one"))
    };
    match &x.cast::<PyTensor>().map_err(|_| none())?.get().value {
        Value::State(p) => Ok(p.clone()),
        Value::Plain(_) => Err(none()),
    }
}

impl Value {
    /// The present tensor. Errors (Closed) if the device was closed in the middle of an update.
    pub(crate) fn get(&self) -> remat::Result<Tensor> {
        match self {
            Value::Plain(t) => Ok(t.get()),
            Value::State(p) => p.get(),
        }
    }
}

#[pymethods]
impl PyParameter {
    #[new]
    #[pyo3(signature = (data, requires_grad = true))]
    fn new(py: Python<'_>, data: &Bound<'_, PyAny>, requires_grad: bool) -> PyResult<PyClassInitializer<PyParameter>> {
        let t = extract_tensor(data)?.ok_or_else(|| PyTypeError::new_err("a parameter begins as a tensor"))?;
        let role = if requires_grad { Role::Trained } else { Role::Buffer };
        let p = call::run(py, || Parameter::with_role(t, role))?;
        Ok(PyClassInitializer::from(PyTensor::state(p)).add_subclass(PyParameter))
    }

    /// Replaces the value; gradient and hooks stay. Errors: ShapeError for another dtype or shape.
    fn set_(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let t = extract_tensor(value)?.ok_or_else(|| PyTypeError::new_err("expected a tensor"))?;
        let p = extract(slf.as_any())?;
        call::run(slf.py(), || p.set(&t))
    }

    /// True if this is trained by gradients, false for a buffer.
    #[getter]
    fn is_trained(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(extract(slf.as_any())?.role() == Role::Trained)
    }

    /// A number that identifies a piece of state. All names of the state share it, and no other live state has it.
    #[getter]
    fn _address(slf: &Bound<'_, Self>) -> PyResult<usize> {
        Ok(extract(slf.as_any())?.address())
    }

    /// True for two names of one piece of state.
    fn is_same(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(extract(slf.as_any())?.is_same(&extract(other)?))
    }
}
