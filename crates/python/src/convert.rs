//! Values of the host between Python and the library.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};
use remat::types::{Scalar, for_dtype};
use remat::{DType, Error, ErrorKind, HostTensor, Shape};

use crate::error;

/// A number of Python or NumPy; `None` for anything else.
pub(crate) fn scalar(x: &Bound<'_, PyAny>) -> PyResult<Option<Scalar>> {
    if let Ok(b) = x.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(b.is_true())));
    }
    if x.is_instance_of::<PyFloat>() {
        return Ok(Some(Scalar::Float(x.extract()?)));
    }
    if x.is_instance_of::<PyInt>() {
        return match x.extract::<i64>() {
            Ok(v) => Ok(Some(Scalar::Int(v))),
            Err(_) => Ok(Some(Scalar::Uint(x.extract()?))),
        };
    }
    // a NumPy scalar has `item` and, unlike an array, cannot be changed
    if x.hasattr("dtype")? && x.getattr("__setitem__").is_err() && x.hasattr("item")? && !x.hasattr("is_leaf")? {
        return scalar(&x.call_method0("item")?);
    }
    Ok(None)
}

/// Lists are read this deep: each level takes a frame of the stack, and a list that holds itself has no end.
const MOST_NESTED: usize = 1000;

/// Elements of nested lists, gathered.
struct Nested {
    shape: Vec<usize>,
    data: Vec<Scalar>,
}

impl Nested {
    fn gather(&mut self, x: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if let Some(v) = scalar(x)? {
            if depth != self.shape.len() {
                return Err(ragged(depth));
            }
            self.data.push(v);
            return Ok(());
        }
        let is_list = x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>();
        if !is_list {
            let text = format!("expected numbers, or lists or tuples of them, got {}", x.get_type().name()?);
            return Err(PyTypeError::new_err(text));
        }
        if depth == MOST_NESTED {
            let text = format!("the lists are nested more than {MOST_NESTED} deep, or one of them holds itself");
            return Err(PyValueError::new_err(text));
        }
        let len = x.len()?;
        if depth == self.shape.len() {
            if !self.data.is_empty() {
                return Err(ragged(depth));
            }
            self.shape.push(len);
        } else if self.shape[depth] != len {
            return Err(ragged(depth));
        }
        x.try_iter()?.try_for_each(|part| self.gather(&part?, depth + 1))
    }
}

fn ragged(depth: usize) -> PyErr {
    PyValueError::new_err(format!("the nested lists are of unequal length or depth at depth {depth}"))
}

/// A host tensor of nested lists of numbers. Without a dtype floats are float32, integers int64 and truth values bool.
pub(crate) fn from_nested(x: &Bound<'_, PyAny>, dtype: Option<DType>) -> PyResult<HostTensor> {
    let mut n = Nested { shape: Vec::new(), data: Vec::new() };
    // the way down to the first element finds the depth
    n.gather(x, 0)?;
    let is = |f: fn(&Scalar) -> bool| !n.data.is_empty() && n.data.iter().all(f);
    let found = match () {
        () if is(|v| matches!(v, Scalar::Bool(_))) => DType::Bool,
        () if is(|v| matches!(v, Scalar::Uint(_))) => DType::U64,
        () if is(|v| !matches!(v, Scalar::Float(_))) => DType::I64,
        () => DType::F32,
    };
    let dtype = dtype.unwrap_or(found);
    if let Some(v) = n.data.iter().find(|v| !v.fits(dtype)) {
        let e = Error::new(ErrorKind::Value, format!("{} does not fit {dtype}", v.to_f64())).with_op("tensor");
        return Err(error::exception(x.py(), &e));
    }
    let made = for_dtype!(dtype, T => {
        let all: Vec<T> = n.data.iter().map(|v| v.cast::<T>()).collect();
        HostTensor::from_slice(&all, Shape::from(n.shape.as_slice()))
    });
    made.map_err(|e| error::exception(x.py(), &e))
}

/// The elements as Python's numbers, in row-major order.
fn numbers(py: Python<'_>, h: &HostTensor) -> PyResult<Vec<Py<PyAny>>> {
    fn all<'py, T: IntoPyObjectExt<'py>>(py: Python<'py>, v: Vec<T>) -> PyResult<Vec<Py<PyAny>>> {
        v.into_iter().map(|v| v.into_py_any(py)).collect()
    }
    match h.dtype() {
        d if d.is_float() => all(py, h.to_f64_vec()),
        DType::Bool => all(py, h.to_i64_vec().into_iter().map(|v| v != 0).collect::<Vec<bool>>()),
        DType::U64 => all(py, h.to_vec::<u64>().map_err(|e| error::exception(py, &e))?),
        _ => all(py, h.to_i64_vec()),
    }
}

/// The only element. Errors (ValueError) if there is not exactly one.
pub(crate) fn item(py: Python<'_>, h: &HostTensor) -> PyResult<Py<PyAny>> {
    match numbers(py, h)?.pop() {
        Some(v) if h.elems() == 1 => Ok(v),
        _ => Err(PyValueError::new_err(format!("shape {} holds not one element", h.shape()))),
    }
}

/// Nested lists; a number for rank 0.
pub(crate) fn nested(py: Python<'_>, h: &HostTensor) -> PyResult<Py<PyAny>> {
    let mut level = numbers(py, h)?;
    for (axis, &extent) in h.shape().iter().enumerate().rev() {
        let outer: usize = h.shape()[..axis].iter().product();
        let mut from = level.into_iter();
        let lists =
            (0..outer).map(|_| PyList::new(py, from.by_ref().take(extent).collect::<Vec<_>>())?.into_py_any(py));
        level = lists.collect::<PyResult<_>>()?;
    }
    level.pop().ok_or_else(|| PyValueError::new_err("the tensor holds no element"))
}
