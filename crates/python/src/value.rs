//! Options between Python and the library: dictionaries, lists, texts and numbers, as values that serde reads.
//!
//! Options of layers, optimisers, initialisers and schedules take this form, and so do their states. They are small,
//! and read once when an object is made. They are not written as text on the way.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The value of the Python object `x`. NumPy numbers and tensors of one element count as numbers. Errors: ValueError
/// for a number that is not finite, with the option's name, and for what holds itself; TypeError for an object that is no option.
pub(crate) fn of_python(x: &Bound<'_, PyAny>) -> PyResult<Value> {
    read(x, None, 0)
}

/// Options are read this deep: a list that holds itself has no end.
const MOST_NESTED: usize = 100;

fn read(x: &Bound<'_, PyAny>, name: Option<&str>, depth: usize) -> PyResult<Value> {
    if depth > MOST_NESTED {
        let text = format!("options are nested more than {MOST_NESTED} deep, or one of them holds itself");
        return Err(PyValueError::new_err(text));
    }
    if x.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(b) = x.cast::<PyBool>() {
        return Ok(Value::Bool(b.is_true()));
    }
    if x.is_instance_of::<PyInt>() {
        let whole = x.extract::<i64>().map(Value::from).or_else(|_| x.extract::<u64>().map(Value::from));
        // a number that fits no integer of the library goes on as a float: the reader of the option reports it by name
        return whole.or_else(|_| number(x.extract()?, name));
    }
    if x.is_instance_of::<PyFloat>() {
        return number(x.extract()?, name);
    }
    if let Ok(text) = x.cast::<PyString>() {
        return Ok(Value::String(text.extract()?));
    }
    if let Ok(all) = x.cast::<PyDict>() {
        let entry = |(key, v): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            let key: String = key.extract()?;
            let v = read(&v, Some(&key), depth + 1)?;
            Ok((key, v))
        };
        return Ok(Value::Object(all.iter().map(entry).collect::<PyResult<Map<_, _>>>()?));
    }
    // a NumPy number, or a tensor of one element
    let is_one = x.getattr("shape").is_ok_and(|s| s.cast::<PyTuple>().is_ok_and(|s| s.is_empty()));
    if is_one && x.hasattr("item")? {
        return read(&x.call_method0("item")?, name, depth + 1);
    }
    // a list, a tuple, a range, an array
    if x.hasattr("__len__")? && x.hasattr("__getitem__")? {
        return Ok(Value::Array(x.try_iter()?.map(|v| read(&v?, name, depth + 1)).collect::<PyResult<_>>()?));
    }
    if x.hasattr("__index__")? {
        return read(&x.call_method0("__index__")?, name, depth + 1);
    }
    let text = format!("{} is no option: options are numbers, texts, and lists of them", x.repr()?);
    Err(PyTypeError::new_err(text))
}

fn number(x: f64, name: Option<&str>) -> PyResult<Value> {
    let wrong = || match name {
        Some(name) => PyValueError::new_err(format!("`{name}` is {}, must be finite", shown(x))),
        None => PyValueError::new_err(format!("a number is {}, must be finite", shown(x))),
    };
    serde_json::Number::from_f64(x).map(Value::Number).ok_or_else(wrong)
}

/// A number that is not finite, as Python writes it.
fn shown(x: f64) -> &'static str {
    match x {
        x if x.is_nan() => "nan",
        x if x > 0.0 => "inf",
        _ => "-inf",
    }
}

/// The Python object for a value.
pub(crate) fn to_python(py: Python<'_>, v: &Value) -> PyResult<Py<PyAny>> {
    match v {
        Value::Null => Ok(py.None()),
        Value::Bool(b) => b.into_py_any(py),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(n), _) => n.into_py_any(py),
            (None, Some(n)) => n.into_py_any(py),
            (None, None) => n.as_f64().into_py_any(py),
        },
        Value::String(text) => text.into_py_any(py),
        Value::Array(all) => {
            let all: Vec<Py<PyAny>> = all.iter().map(|v| to_python(py, v)).collect::<PyResult<_>>()?;
            PyList::new(py, all)?.into_py_any(py)
        }
        Value::Object(all) => {
            let made = PyDict::new(py);
            all.iter().try_for_each(|(name, v)| made.set_item(name, to_python(py, v)?))?;
            made.into_py_any(py)
        }
    }
}

/// The library's value for `x`. Errors: those of [`of_python`], ValueError for another form.
pub(crate) fn extract<T: DeserializeOwned>(x: &Bound<'_, PyAny>) -> PyResult<T> {
    serde_json::from_value(of_python(x)?).map_err(wrong_form)
}

/// The library's `x` as a Python object.
pub(crate) fn object(py: Python<'_>, x: &impl Serialize) -> PyResult<Py<PyAny>> {
    to_python(py, &serde_json::to_value(x).map_err(wrong_form)?)
}

/// The error for a value of a wrong form.
pub(crate) fn wrong_form(e: serde_json::Error) -> PyErr {
    PyValueError::new_err(e.to_string())
}
