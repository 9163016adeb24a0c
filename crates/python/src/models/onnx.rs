//! ONNX models.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use remat::Shape;
use remat_onnx::{Model, Network, Text, Value};

use super::{Described, described};
use crate::call;
use crate::device::PyDevice;
use crate::tensor::{Output, extract_tensor};

/// A model that was read and checked.
#[pyclass(name = "_OnnxModel", module = "remat._remat", frozen)]
pub(crate) struct OnnxModel(Model);

#[pymethods]
impl OnnxModel {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        call::run(py, || Model::open(path)).map(OnnxModel)
    }

    #[staticmethod]
    fn from_bytes(bytes: &Bound<'_, PyBytes>) -> PyResult<Self> {
        let own = bytes.as_bytes().to_vec();
        call::run(bytes.py(), || Model::from_bytes(own)).map(OnnxModel)
    }

    /// Name, producer, versions of operators, and metadata.
    #[allow(clippy::type_complexity, reason = "a tuple for Python, taken apart there")]
    fn about(&self) -> (String, String, Vec<(String, i64)>, Vec<(String, String)>) {
        let m = &self.0;
        (m.name().to_owned(), m.producer().to_owned(), m.opsets().to_vec(), m.metadata().to_vec())
    }

    fn inputs(&self, py: Python<'_>) -> PyResult<Vec<Described>> {
        self.0.inputs().iter().map(|p| described(py, p)).collect()
    }

    fn outputs(&self, py: Python<'_>) -> PyResult<Vec<Described>> {
        self.0.outputs().iter().map(|p| described(py, p)).collect()
    }

    /// The number of nodes of each operator.
    fn operators(&self) -> Vec<(String, String, usize)> {
        self.0.operators()
    }

    /// A line for each node that has no rule.
    fn unsupported(&self) -> Vec<String> {
        self.0.unsupported().iter().map(ToString::to_string).collect()
    }

    /// The same model with only the named outputs.
    fn with_outputs(&self, py: Python<'_>, names: Vec<String>) -> PyResult<OnnxModel> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        call::run(py, || self.0.clone().with_outputs(&names)).map(OnnxModel)
    }

    /// The same model with an input fixed to this tensor.
    fn with_input(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<OnnxModel> {
        let value = extract_tensor(value)?.ok_or_else(|| PyTypeError::new_err("an input is fixed to a tensor"))?;
        call::run(py, || self.0.clone().with_input(name, &value.to_host()?)).map(OnnxModel)
    }

    /// The model with its constants on a device.
    fn on(&self, py: Python<'_>, device: &Bound<'_, PyDevice>) -> PyResult<OnnxNetwork> {
        let device = device.get().0.clone();
        call::run(py, || self.0.on(&device)).map(OnnxNetwork)
    }
}

/// A model with its constants on a device.
#[pyclass(name = "_OnnxNetwork", module = "remat._remat", frozen)]
pub(crate) struct OnnxNetwork(Network);

/// A value as Python gives it: a tensor, a pair of shape and strings, a list of values, or None.
pub(super) fn value(x: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Some(t) = extract_tensor(x)? {
        return Ok(Value::Tensor(t));
    }
    if x.is_none() {
        return Ok(Value::Optional(None));
    }
    if let Ok(list) = x.cast::<PyList>() {
        return list.iter().map(|v| value(&v)).collect::<PyResult<_>>().map(Value::Sequence);
    }
    let (shape, data): (Vec<usize>, Vec<String>) =
        x.extract().map_err(|_| PyTypeError::new_err("an input is a tensor, strings, a list of those, or None"))?;
    Ok(Value::Text(Text { shape: Shape::from(shape.as_slice()), data: Arc::new(data) }))
}

/// An output of a model, in the form that [`value`] accepts.
pub(super) fn object(py: Python<'_>, v: Value) -> PyResult<Py<PyAny>> {
    match v {
        Value::Tensor(t) | Value::Constant(t, _) => t.object(py),
        Value::Text(t) => (PyTuple::new(py, t.shape.iter())?, (*t.data).clone()).into_py_any(py),
        Value::Sequence(all) => {
            let all = all.into_iter().map(|v| object(py, v)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, all)?.into_py_any(py)
        }
        Value::Optional(None) => Ok(py.None()),
        Value::Optional(Some(v)) => object(py, *v),
        other => Err(PyTypeError::new_err(format!("an output is {}, which has no form in Python", other.kind()))),
    }
}

#[pymethods]
impl OnnxNetwork {
    /// The outputs, in order. `inputs` are all inputs, or all inputs without a default.
    fn run(&self, py: Python<'_>, inputs: Vec<Bound<'_, PyAny>>) -> PyResult<Vec<Py<PyAny>>> {
        let inputs = inputs.iter().map(value).collect::<PyResult<Vec<_>>>()?;
        let y = call::run(py, || self.0.run(&inputs))?;
        y.into_iter().map(|v| object(py, v)).collect()
    }
}
