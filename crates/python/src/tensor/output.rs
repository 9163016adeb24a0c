//! Results of the library as Python objects.

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use remat::Tensor;

use super::PyTensor;

/// A result of an operator.
pub(crate) trait Output {
    fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl Output for Tensor {
    fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, PyTensor::plain(self))?.into_any())
    }
}
impl Output for usize {
    fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.into_py_any(py)
    }
}
impl Output for Vec<Tensor> {
    fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let all = self.into_iter().map(|t| t.object(py)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, all)?.into_py_any(py)
    }
}
impl<const N: usize> Output for [Tensor; N] {
    fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let all = self.into_iter().map(|t| t.object(py)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, all)?.into_py_any(py)
    }
}

macro_rules! tuples {
    ($(($($t:ident),*))*) => { $(
        impl<$($t: Output),*> Output for ($($t,)*) {
            #[allow(non_snake_case, reason = "values named as their types")]
            fn object(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
                let ($($t,)*) = self;
                ($($t.object(py)?,)*).into_py_any(py)
            }
        }
    )* };
}
tuples! { (A, B) (A, B, C) (A, B, C, D) }
