//! Python functions as graphs in files.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use remat::graph::ir::symbolic::{Dim, Symbolic};
use remat::graph::ir::{Graph, GraphFile, GraphForm};
use remat::runtime::control_flow::registry;
use remat::{CompileOptions, DType, Device, Error, ErrorKind, HostTensor, Result, Tensor, compile_with};
use remat_onnx::export::{DataPlace, ExportOptions, export, export_symbolic};
use serde::Deserialize;

use crate::compile::{Function, Running, traced};
use crate::device::PyDevice;
use crate::tensor::extract_tensor;
use crate::value;
use crate::{call, dtype, files};

/// The inputs of a function that becomes a file: dtypes, and extents that are numbers or names of sizes.
struct Inputs {
    device: Device,
    all: Vec<(DType, Vec<Extent>)>,
    dims: Vec<Dim>,
}

#[derive(FromPyObject)]
pub(crate) enum Extent {
    Fixed(usize),
    Named(String),
}

/// Dtype and extents of an input, as Python gives them.
type Given<'py> = (Bound<'py, PyAny>, Vec<Extent>);

impl Inputs {
    fn new(device: &Bound<'_, PyDevice>, all: Vec<Given<'_>>, sizes: Vec<(String, usize, usize)>) -> PyResult<Inputs> {
        let all = all.into_iter().map(|(d, extents)| Ok((dtype::extract(&d)?, extents))).collect::<PyResult<_>>()?;
        let dims = sizes.iter().map(|(name, least, most)| Dim::new(name, *least, *most)).collect();
        Ok(Inputs { device: device.get().0.clone(), all, dims })
    }

    /// Zeros with these sizes for the names.
    fn at(&self, sizes: &[usize]) -> Result<Vec<Tensor>> {
        let size = |e: &Extent| match e {
            Extent::Fixed(n) => Ok(*n),
            Extent::Named(name) => {
                let at = self.dims.iter().position(|d| *d.name == **name);
                let none = || Error::new(ErrorKind::Value, format!("the size `{name}` has no bounds"));
                at.map(|i| sizes[i]).ok_or_else(none)
            }
        };
        let one = |(dtype, extents): &(DType, Vec<Extent>)| {
            let shape = extents.iter().map(size).collect::<Result<Vec<usize>>>()?;
            Tensor::zeros(&self.device, shape, *dtype)
        };
        self.all.iter().map(one).collect()
    }

    /// Traces `f` for each set of sizes that `made` asks for. Parameters become constants.
    fn trace<T: Send>(
        &self,
        py: Python<'_>,
        f: Py<PyAny>,
        made: impl FnOnce(&mut (dyn FnMut(&[usize]) -> Result<Graph> + Send)) -> Result<T> + Send,
    ) -> PyResult<T> {
        let options = CompileOptions { freeze: true, ..CompileOptions::default() };
        let mut forms = compile_with(&self.device, options, traced as Function);
        let running = Running::begin(f);
        let done = call::run(py, || {
            let mut graph = |sizes: &[usize]| {
                let x = self.at(sizes)?;
                Ok((*forms.graph(&x.iter().collect::<Vec<_>>())?).clone())
            };
            made(&mut graph)
        });
        drop(running);
        done
    }
}

/// How an ONNX file is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    opset: Option<i64>,
    name: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    metadata: Vec<(String, String)>,
    beside: bool,
}

/// Writes a function as an ONNX model. `f` takes and gives tensors in lists; `parameters` give constants their names.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "called by one function of the package, which has the options")]
pub(crate) fn export_onnx(
    py: Python<'_>,
    f: Py<PyAny>,
    device: &Bound<'_, PyDevice>,
    inputs: Vec<Given<'_>>,
    sizes: Vec<(String, usize, usize)>,
    parameters: Vec<(String, Bound<'_, PyAny>)>,
    options: &str,
    path: PathBuf,
) -> PyResult<()> {
    let o: Written = serde_json::from_str(options).map_err(value::wrong_form)?;
    let not = || PyTypeError::new_err("a parameter is a tensor");
    let named = parameters.iter().map(|(name, p)| Ok((name.clone(), extract_tensor(p)?.ok_or_else(not)?)));
    let named: Vec<(String, Tensor)> = named.collect::<PyResult<_>>()?;
    let read = |(name, t): &(String, Tensor)| Ok((name.clone(), t.to_host()?));
    let parameters = call::run(py, || named.iter().map(read).collect::<Result<Vec<(String, HostTensor)>>>())?;
    let mut options = ExportOptions {
        name: o.name,
        inputs: o.inputs,
        outputs: o.outputs,
        parameters,
        metadata: o.metadata,
        ..ExportOptions::default()
    };
    options.opset = o.opset.unwrap_or(options.opset);
    let place = if o.beside { DataPlace::Beside } else { DataPlace::Inside };
    let inputs = Inputs::new(device, inputs, sizes)?;
    inputs.trace(py, f, |graph| {
        let model = match inputs.dims.as_slice() {
            [] => export(&graph(&[])?, &options)?,
            dims => export_symbolic(dims, graph, &options)?,
        };
        model.save(&path, place)
    })
}

/// Writes a function as a `.remat` file.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "called by one function of the package, which has the options")]
pub(crate) fn export_graph_file(
    py: Python<'_>,
    f: Py<PyAny>,
    device: &Bound<'_, PyDevice>,
    inputs: Vec<Given<'_>>,
    sizes: Vec<(String, usize, usize)>,
    metadata: Vec<(String, String)>,
    key: Option<&Bound<'_, PyBytes>>,
    path: PathBuf,
) -> PyResult<()> {
    let key = super::lite::key(key, py)?;
    let inputs = Inputs::new(device, inputs, sizes)?;
    inputs.trace(py, f, |graph| {
        let form = match inputs.dims.as_slice() {
            [] => GraphForm::Fixed(graph(&[])?),
            dims => GraphForm::Symbolic(Symbolic::new(dims, &registry(), graph)?),
        };
        let bytes = GraphFile { form, metadata: metadata.into_iter().collect() }.to_bytes(key.as_ref())?;
        let told = |e: std::io::Error| Error::from(e).context(format_args!("writing {}", path.display()));
        files::replace(&path, &bytes).map_err(told)
    })
}
