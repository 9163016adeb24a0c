//! Element types, by NumPy's names.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyType};
use remat::DType;

/// The type of a tensor's elements: `remat.float32` and others. Two are equal if they have the same name. A NumPy name
/// or dtype is accepted wherever a dtype is.
///
/// >>> import remat
/// >>> remat.float32, remat.float32.itemsize
/// (remat.float32, 4)
/// >>> remat.zeros(2, dtype="int64").dtype == remat.int64
/// True
#[pyclass(name = "dtype", module = "remat", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDType(pub(crate) DType);

/// NumPy's name.
pub(crate) const fn name(d: DType) -> &'static str {
    match d {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
    }
}

/// The dtype of a name: NumPy's name, or the library's short one.
pub(crate) fn of_name(text: &str) -> PyResult<DType> {
    let found = DType::ALL.into_iter().find(|d| name(*d) == text || d.name() == text);
    found.ok_or_else(|| {
        let all: Vec<&str> = DType::ALL.into_iter().map(name).collect();
        PyValueError::new_err(format!("`{text}` is no dtype; there are {}", all.join(", ")))
    })
}

/// The dtype that an object stands for: a dtype, its name, a NumPy dtype, or Python's `bool`, `int` or `float`.
pub(crate) fn extract(x: &Bound<'_, PyAny>) -> PyResult<DType> {
    if let Ok(d) = x.cast::<PyDType>() {
        return Ok(d.get().0);
    }
    if let Ok(text) = x.cast::<PyString>() {
        return of_name(text.to_str()?);
    }
    let py = x.py();
    if let Ok(class) = x.cast::<PyType>() {
        if class.is(py.get_type::<PyBool>()) {
            return Ok(DType::Bool);
        }
        if class.is(py.get_type::<PyInt>()) {
            return Ok(DType::I64);
        }
        if class.is(py.get_type::<PyFloat>()) {
            return Ok(DType::F32);
        }
        // a scalar class of NumPy, such as `numpy.float32`
        return of_name(&class.name()?.to_string());
    }
    match x.getattr("name").and_then(|n| n.extract::<String>()) {
        Ok(text) => of_name(&text),
        Err(_) => Err(PyTypeError::new_err(format!("expected a dtype, got {}", x.get_type().name()?))),
    }
}

#[pymethods]
impl PyDType {
    #[new]
    fn new(of: &Bound<'_, PyAny>) -> PyResult<Self> {
        extract(of).map(PyDType)
    }

    /// NumPy's name.
    #[getter]
    fn name(&self) -> &'static str {
        name(self.0)
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size_bytes()
    }

    /// True for float16, bfloat16, float32 and float64.
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }

    fn __repr__(&self) -> String {
        format!("remat.{}", name(self.0))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<PyDType>(), (name(self.0),))
    }
}

/// Adds every dtype by its name.
pub(crate) fn add_to(m: &Bound<'_, PyModule>) -> PyResult<()> {
    DType::ALL.into_iter().try_for_each(|d| m.add(name(d), PyDType(d)))
}
