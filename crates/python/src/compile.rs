//! Compiled functions of tensors.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use remat::graph::passes::PassOptions;
use remat::runtime::tracing;
use remat::types::context::Part;
use remat::{CompileOptions, DType, Tensor, compile_with, tensor};

use crate::device::PyDevice;
use crate::tensor::parameter::Value;
use crate::tensor::{Output, PyTensor, extract_tensor};
use crate::value;
use crate::{call, dtype};

pub(crate) type Function = fn(&[Tensor]) -> remat::Result<Vec<Tensor>>;

/// The Python functions whose compiled forms a thread calls, the innermost last.
static RUNNING: Part<Vec<Py<PyAny>>> = Part::new();

/// Traces the Python function that is being called. Compiled forms do not hold the function: the garbage collector
/// could not see it there, and a module that holds its own compiled step would never be freed.
pub(crate) fn traced(x: &[Tensor]) -> remat::Result<Vec<Tensor>> {
    let x = x.to_vec();
    call::back(|py| {
        let none = || PyRuntimeError::new_err("a compiled function is traced by its call only");
        let f = RUNNING.with(|all| all.last().map(|f| f.clone_ref(py))).ok_or_else(none)?;
        let x = x.into_iter().map(|t| t.object(py)).collect::<PyResult<Vec<_>>>()?;
        let y = match f.bind(py).call1(PyTuple::new(py, x)?) {
            // drop it at once: the exception holds the frames, and the frames hold the tensors of the trace
            Err(e) if tracing::has_ended() => {
                drop(e);
                return Ok(Vec::new());
            }
            y => y?,
        };
        let not = || PyTypeError::new_err("a compiled function returns tensors");
        y.try_iter()?.map(|t| extract_tensor(&t?)?.ok_or_else(not)).collect()
    })
}

/// Names the function that this thread traces, until it is dropped.
pub(crate) struct Running;

impl Running {
    pub(crate) fn begin(f: Py<PyAny>) -> Running {
        RUNNING.with(|all| all.push(f));
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(RUNNING.with(Vec::pop));
    }
}

/// True while this thread traces a function, or the body of a loop.
#[pyfunction]
pub(crate) fn is_tracing() -> bool {
    tracing::is_tracing()
}

/// The properties of each tensor on which a compiled function's form depends: dtype, shape and history. History is 0
/// for a tensor without one, 1 for a leaf, 2 for a leaf with a gradient, 3 for a result. The histories are also
/// returned as a list of their own.
#[pyfunction]
pub(crate) fn signatures<'py>(py: Python<'py>, x: Vec<Bound<'py, PyAny>>) -> PyResult<(Bound<'py, PyTuple>, Vec<u8>)> {
    let not = || PyTypeError::new_err("a compiled function takes tensors");
    let mut histories = Vec::with_capacity(x.len());
    let one = |t: &Bound<'py, PyAny>| -> PyResult<Bound<'py, PyTuple>> {
        let t = extract_tensor(t)?.ok_or_else(not)?;
        let history: u8 = match (t.is_tracked(), t.is_leaf()) {
            (false, _) => 0,
            (true, false) => 3,
            (true, true) => 1 + u8::from(t.grad().is_some()),
        };
        histories.push(history);
        (t.dtype().name(), PyTuple::new(py, t.dims())?, history).into_pyobject(py)
    };
    let all = PyTuple::new(py, x.iter().map(one).collect::<PyResult<Vec<_>>>()?)?;
    Ok((all, histories))
}

/// True if the function that this thread traces made the tensor.
#[pyfunction]
pub(crate) fn is_traced(x: &Bound<'_, PyTensor>) -> bool {
    matches!(&x.get().value, Value::Plain(t) if t.peek().handle().is_traced())
}

/// An argument of a traced function as a result of unknown history, and the leaf that gets the gradient that reaches
/// the argument.
#[pyfunction]
pub(crate) fn as_result(py: Python<'_>, x: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
    let x = extract_tensor(x)?.ok_or_else(|| PyTypeError::new_err("expected a tensor"))?;
    let (y, leaf) = call::run(py, move || {
        // the argument gets its history within `no_grad` too
        let _recording = tensor::recording();
        let leaf = x.requires_grad()?;
        let y = remat::custom("argument", &[&leaf], vec![x], |dy| Ok(dy.to_vec()))?;
        Ok((y, leaf))
    })?;
    let y = y.into_iter().next().ok_or_else(|| PyRuntimeError::new_err("no result"))?;
    Ok((y.object(py)?, leaf.object(py)?))
}

/// The compiled part of the object that `remat.compile` returns: a function from a flat list of tensors to another one.
#[pyclass(name = "_Compiled", module = "remat._remat", frozen)]
pub(crate) struct Compiled {
    f: Mutex<Option<Py<PyAny>>>,
    forms: Mutex<Option<tensor::Compiled<Function>>>,
}

#[pymethods]
impl Compiled {
    #[new]
    fn new(
        device: &Bound<'_, PyDevice>,
        f: Py<PyAny>,
        memory_budget: Option<&Bound<'_, PyAny>>,
        level: u8,
        freeze: bool,
        half: Option<&Bound<'_, PyAny>>,
        forms: usize,
    ) -> PyResult<Self> {
        const LEVELS: u8 = 3;
        if level > LEVELS {
            return Err(PyValueError::new_err(format!("level {level} is none of 0 to {LEVELS}")));
        }
        if forms == 0 {
            return Err(PyValueError::new_err("forms=0 keeps nothing that could be called; it is at least 1"));
        }
        let half = half.map(dtype::extract).transpose()?;
        if let Some(other) = half.filter(|h| !matches!(h, DType::F16 | DType::BF16)) {
            return Err(PyValueError::new_err(format!("half={other} is neither float16 nor bfloat16")));
        }
        let passes = PassOptions { level, half, ..PassOptions::default() };
        let memory_budget = crate::device::budget(memory_budget)?;
        let options =
            CompileOptions { passes, memory_budget, freeze, forms, check_trace: true, ..CompileOptions::default() };
        let forms = compile_with(&device.get().0, options, traced as Function);
        Ok(Compiled { f: Mutex::new(Some(f)), forms: Mutex::new(Some(forms)) })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.f.try_lock() {
            Ok(f) => f.as_ref().map_or(Ok(()), |f| visit.call(f)),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        drop(self.f.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Runs the function; the first call with tensors of some dtypes and shapes traces it. Returns its results, and the
    /// number of the Python call, counted from 1, that traced the form which ran.
    fn call(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<(Vec<Py<PyAny>>, usize)> {
        let not = || PyTypeError::new_err("a compiled function takes tensors");
        // without their history: the trace already says which results need a gradient
        let plain = |t: &Bound<'_, PyAny>| -> PyResult<Tensor> { Ok(extract_tensor(t)?.ok_or_else(not)?.detach()) };
        let x = x.iter().map(plain).collect::<PyResult<Vec<_>>>()?;
        let f = self.f.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|f| f.clone_ref(py));
        let f = f.ok_or_else(|| PyRuntimeError::new_err("the compiled function has been freed"))?;
        // taken out, so that no lock is held while Python runs, and a recursive call is noticed
        let taken = self.forms.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut forms = taken.ok_or_else(|| PyRuntimeError::new_err("the compiled function is running already"))?;
        let running = Running::begin(f);
        let done = call::run(py, || forms.call(&x.iter().collect::<Vec<_>>()));
        drop(running);
        let number = forms.last_trace();
        *self.forms.lock().unwrap_or_else(PoisonError::into_inner) = Some(forms);
        Ok((done?.into_iter().map(|t| t.object(py)).collect::<PyResult<_>>()?, number))
    }

    /// The numbers of the Python calls that traced the forms which are kept.
    fn kept(&self) -> Vec<usize> {
        self.forms
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map_or(Vec::new(), tensor::Compiled::kept_traces)
    }

    /// JSON: the memory that a run of each compiled form takes, and the planner's estimate of its time if a memory
    /// limit binds the form. Errors: RuntimeError while the function runs.
    fn plans(&self) -> PyResult<String> {
        let forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let forms = forms.as_ref().ok_or_else(|| PyRuntimeError::new_err("the compiled function is running"))?;
        let plans: Vec<_> = forms.figures().into_iter().zip(forms.all_plan_times()).collect();
        serde_json::to_string(&plans).map_err(value::wrong_form)
    }

    /// True once every compiled form has its last plan.
    #[getter]
    fn is_settled(&self) -> bool {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(tensor::Compiled::is_settled)
    }

    /// The number of times that the function was traced.
    #[getter]
    fn traces(&self) -> usize {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, tensor::Compiled::traces)
    }
}
