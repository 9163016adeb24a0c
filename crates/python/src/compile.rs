//! Compiled functions of tensors.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use remat::graph::passes::PassOptions;
use remat::{CompileOptions, DType, Tensor, compile_with, tensor};

use crate::device::PyDevice;
use crate::nn::json;
use crate::tensor::{Output, extract_tensor};
use crate::{call, dtype};

pub(crate) type Function = fn(&[Tensor]) -> remat::Result<Vec<Tensor>>;

thread_local! {
    /// The Python functions whose compiled forms this thread calls, the innermost last.
    static RUNNING: RefCell<Vec<Py<PyAny>>> = const { RefCell::new(Vec::new()) };
}

/// Traces the Python function that is being called. Compiled forms do not hold it: the collector of cycles could not see it
/// there, and a module that has its own compiled step would never be freed.
pub(crate) fn traced(x: &[Tensor]) -> remat::Result<Vec<Tensor>> {
    let x = x.to_vec();
    call::back(|py| {
        let none = || PyRuntimeError::new_err("a compiled function is traced by its call only");
        let f = RUNNING.with_borrow(|all| all.last().map(|f| f.clone_ref(py))).ok_or_else(none)?;
        let x = x.into_iter().map(|t| t.object(py)).collect::<PyResult<Vec<_>>>()?;
        let y = f.bind(py).call1(PyTuple::new(py, x)?)?;
        let not = || PyTypeError::new_err("a compiled function returns tensors");
        y.try_iter()?.map(|t| extract_tensor(&t?)?.ok_or_else(not)).collect()
    })
}

/// Names the function that this thread traces, until it ends.
pub(crate) struct Running;

impl Running {
    pub(crate) fn begin(f: Py<PyAny>) -> Running {
        RUNNING.with_borrow_mut(|all| all.push(f));
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(RUNNING.with_borrow_mut(Vec::pop));
    }
}

/// The compiled part of what `remat.compile` gives: a function of a flat list of tensors that returns another.
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
        let options = CompileOptions { passes, memory_budget, freeze, forms, ..CompileOptions::default() };
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

    /// Runs the function; the first call with tensors of some dtypes and shapes traces it.
    fn call(&self, py: Python<'_>, x: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let not = || PyTypeError::new_err("a compiled function takes tensors");
        let x = x.iter().map(|t| extract_tensor(t)?.ok_or_else(not)).collect::<PyResult<Vec<_>>>()?;
        let f = self.f.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|f| f.clone_ref(py));
        let f = f.ok_or_else(|| PyRuntimeError::new_err("the compiled function has been freed"))?;
        // taken out, so that no lock is held while Python runs, and a call from within itself is told
        let taken = self.forms.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut forms = taken.ok_or_else(|| PyRuntimeError::new_err("the compiled function is running already"))?;
        let running = Running::begin(f);
        let done = call::run(py, || forms.call(&x.iter().collect::<Vec<_>>()));
        drop(running);
        *self.forms.lock().unwrap_or_else(PoisonError::into_inner) = Some(forms);
        done?.into_iter().map(|t| t.object(py)).collect()
    }

    /// JSON: what memory each compiled form takes in a run, with what the planner says of its time, if a limit binds it. Errors:
    /// RuntimeError while the function runs.
    fn plans(&self) -> PyResult<String> {
        let forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let forms = forms.as_ref().ok_or_else(|| PyRuntimeError::new_err("the compiled function is running"))?;
        let plans: Vec<_> = forms.figures().into_iter().zip(forms.all_plan_times()).collect();
        serde_json::to_string(&plans).map_err(json)
    }

    /// True once every compiled form has its last plan.
    #[getter]
    fn is_settled(&self) -> bool {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(tensor::Compiled::is_settled)
    }

    /// How often the function was traced.
    #[getter]
    fn traces(&self) -> usize {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, tensor::Compiled::traces)
    }
}
