//! Arguments of the operators in the table: positions are those of the Rust method.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use remat::types::Scalar;
use remat::{DType, Device, Result, Shape, Tensor};

use super::choices::{self, Choice};
use crate::device::PyDevice;
use crate::tensor::{Operand, Output, extract_tensor, operand};
use crate::{call, convert, dtype};

/// The arguments of a call.
pub(crate) struct Args<'a, 'py>(pub(crate) &'a Bound<'py, PyTuple>);

impl<'py> Args<'_, 'py> {
    pub(crate) fn any(&self, i: usize) -> PyResult<Bound<'py, PyAny>> {
        self.0.get_item(i)
    }

    pub(crate) fn get<T>(&self, i: usize) -> PyResult<T>
    where
        T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
    {
        let x = self.any(i)?;
        x.extract().map_err(|e| self.in_range(e, i, &x))
    }

    /// Names the value and the place of an argument that is no number of the method's kind, such as a negative count.
    fn in_range(&self, e: PyErr, i: usize, x: &Bound<'py, PyAny>) -> PyErr {
        let py = self.0.py();
        if !e.is_instance_of::<PyOverflowError>(py) {
            return e;
        }
        let shown = x.repr().map_or_else(|_| "the value".to_owned(), |r| r.to_string());
        PyValueError::new_err(format!("argument {i} is out of range: {shown} ({})", e.value(py)))
    }

    pub(crate) fn tensor(&self, i: usize) -> PyResult<Tensor> {
        let x = self.any(i)?;
        extract_tensor(&x)?.ok_or_else(|| not_a("a tensor", &x))
    }

    pub(crate) fn opt_tensor(&self, i: usize) -> PyResult<Option<Tensor>> {
        if self.any(i)?.is_none() { Ok(None) } else { self.tensor(i).map(Some) }
    }

    pub(crate) fn tensors(&self, i: usize) -> PyResult<Vec<Tensor>> {
        let all = self.any(i)?.try_iter()?;
        all.map(|x| {
            let x = x?;
            extract_tensor(&x)?.ok_or_else(|| not_a("a tensor", &x))
        })
        .collect()
    }

    /// One axis, or several.
    pub(crate) fn axes(&self, i: usize) -> PyResult<Vec<isize>> {
        let x = self.any(i)?;
        x.extract::<isize>().map(|a| vec![a]).or_else(|_| x.extract()).map_err(|e| self.in_range(e, i, &x))
    }

    /// One extent, or several.
    pub(crate) fn sizes(&self, i: usize) -> PyResult<Vec<usize>> {
        let x = self.any(i)?;
        x.extract::<usize>().map(|a| vec![a]).or_else(|_| x.extract()).map_err(|e| self.in_range(e, i, &x))
    }

    pub(crate) fn shape(&self, i: usize) -> PyResult<Shape> {
        Ok(Shape::from(self.sizes(i)?.as_slice()))
    }

    pub(crate) fn dtype(&self, i: usize) -> PyResult<DType> {
        dtype::extract(&self.any(i)?)
    }

    pub(crate) fn device(&self, i: usize) -> PyResult<Device> {
        Ok(self.any(i)?.cast_into::<PyDevice>()?.get().0.clone())
    }

    pub(crate) fn scalar(&self, i: usize) -> PyResult<Scalar> {
        let x = self.any(i)?;
        convert::scalar(&x)?.ok_or_else(|| not_a("a number", &x))
    }

    /// The right operand of a binary method. The left one is the argument `like`.
    pub(crate) fn operand(&self, i: usize, like: usize) -> PyResult<Operand> {
        let x = self.any(i)?;
        operand(&x, Some(&self.tensor(like)?))?.ok_or_else(|| not_a("a tensor or a number", &x))
    }

    /// A choice among several things, by name.
    pub(crate) fn choice<T: Choice>(&self, i: usize) -> PyResult<T> {
        choices::of_name(&self.get::<String>(i)?)
    }

    /// Runs the method; returns its result as a Python object.
    pub(crate) fn run<T: Output + Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> PyResult<Py<PyAny>> {
        let py = self.0.py();
        call::queue(py, f)?.object(py)
    }
}

fn not_a(what: &str, x: &Bound<'_, PyAny>) -> PyErr {
    let class = x.get_type().name().map_or_else(|_| "something else".to_owned(), |n| n.to_string());
    PyTypeError::new_err(format!("expected {what}, got {class}"))
}
