//! Models from files, and functions written as model files: ONNX, and Remat's own format for deployment.

mod export;
mod lite;
mod onnx;

use pyo3::prelude::*;
use remat_onnx::{Extent, Port, ValueType};

pub(crate) use export::{export_graph_file, export_onnx};
pub(crate) use lite::{LiteNetwork, LiteSession};
pub(crate) use onnx::{OnnxModel, OnnxNetwork};

use crate::dtype::PyDType;

/// The description of an input or an output in a file: its name, its text, dtype and extents if it is a tensor of known
/// rank, and whether it has a default. An extent is a number, a name, or None.
type Described = (String, String, Option<PyDType>, Option<Vec<Py<PyAny>>>, bool);

fn described(py: Python<'_>, port: &Port) -> PyResult<Described> {
    use pyo3::IntoPyObjectExt;
    let extent = |e: &Extent| match e {
        Extent::Fixed(n) => n.into_py_any(py),
        Extent::Named(name) => name.into_py_any(py),
        Extent::Open => Ok(py.None()),
    };
    let (dtype, extents) = match &port.ty {
        ValueType::Tensor(dtype, extents) => (dtype.map(PyDType), extents.as_ref()),
        _ => (None, None),
    };
    let extents = extents.map(|all| all.iter().map(extent).collect::<PyResult<Vec<_>>>()).transpose()?;
    Ok((port.name.clone(), port.ty.to_string(), dtype, extents, port.has_default))
}
