//! Errors of the library as exceptions, and exceptions that pass through the library.
//!
//! The classes are written in Python (`remat._errors`), each derived from a built-in exception. An exception that a
//! Python function raises while the library calls it reaches the user unchanged: the thread keeps it until the call
//! that led to it ends.

use std::cell::RefCell;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use remat::types::BudgetShortfall;
use remat::{Error, ErrorKind};

thread_local! {
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Forgets an exception of an earlier call.
pub(crate) fn begin() {
    drop(RAISED.take());
}

/// An exception of Python code that the library called, as an error of the library.
pub(crate) fn raised(py: Python<'_>, e: PyErr) -> Error {
    let text = e.value(py).str().map_or_else(|_| e.to_string(), |s| s.to_string());
    RAISED.set(Some(e));
    Error::new(ErrorKind::Value, text)
}

/// As [`raised`], for code that a thread of the library calls: the error carries the exception to whoever gets it.
pub(crate) fn carried(py: Python<'_>, e: PyErr) -> Error {
    let text = e.value(py).str().map_or_else(|_| e.to_string(), |s| s.to_string());
    Error::new(ErrorKind::Value, text).with_source(e)
}

/// An error as an exception. If an exception of Python code that the library called ended this call, it is that one.
pub(crate) fn exception(py: Python<'_>, e: &Error) -> PyErr {
    if let Some(raised) = RAISED.take() {
        return raised;
    }
    if let Some(carried) = std::error::Error::source(e).and_then(|s| s.downcast_ref::<PyErr>()) {
        return carried.clone_ref(py);
    }
    made(py, e).unwrap_or_else(|_| PyRuntimeError::new_err(e.to_string()))
}

/// The value, or the error as an exception. For calls that do not need [`crate::call::run`].
pub(crate) fn or_raise<T>(py: Python<'_>, r: remat::Result<T>) -> PyResult<T> {
    r.map_err(|e| exception(py, &e))
}

fn made(py: Python<'_>, e: &Error) -> PyResult<PyErr> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("remat._errors")?.getattr("_make")?.unbind()))?;
    let facts = PyDict::new(py);
    facts.set_item("op", e.op())?;
    facts.set_item("message", e.message())?;
    facts.set_item("scope", e.scope())?;
    facts.set_item("file", e.call_site().map(|s| s.file()))?;
    facts.set_item("line", e.call_site().map(|s| s.line()))?;
    if let Some(s) = e.shortfall() {
        facts.set_item("shortfall", shortfall(py, s)?)?;
    }
    let value = make.bind(py).call1((e.kind().name(), e.to_string(), facts))?;
    Ok(PyErr::from_value(value))
}

fn shortfall<'py>(py: Python<'py>, s: &BudgetShortfall) -> PyResult<Bound<'py, PyDict>> {
    let d = PyDict::new(py);
    d.set_item("needed_bytes", s.needed_bytes)?;
    d.set_item("budget_bytes", s.budget_bytes)?;
    d.set_item("least_bytes", s.least_bytes)?;
    d.set_item("smallest_feasible_bytes", s.smallest_feasible_bytes)?;
    d.set_item("is_of_run", s.is_of_run)?;
    d.set_item("recompute_limit", s.recompute_limit)?;
    let pinned: Vec<(&str, usize)> = s.pinned.iter().map(|p| (p.by.as_str(), p.bytes)).collect();
    d.set_item("pinned", pinned)?;
    Ok(d)
}
