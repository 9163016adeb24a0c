//! Models for deployment, planned ahead for their shapes, in memory of their own.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use remat::{HostTensor, Result, Tensor};
use remat_lite::{Dim, Key, Network, Options, Port, Session, Shapes, ValueType};
use remat_onnx::Value;

use super::onnx::{object, value};
use super::{Described, described};
use crate::device::PyDevice;
use crate::tensor::extract_tensor;
use crate::{call, device, dtype, files};

/// A model that was read, with the options that its sessions have.
#[pyclass(name = "_LiteNetwork", module = "remat._remat", frozen)]
pub(crate) struct LiteNetwork(Network);

/// A network for one set of shapes.
#[pyclass(name = "_LiteSession", module = "remat._remat", frozen)]
pub(crate) struct LiteSession {
    of: Mutex<Session>,
    /// The outputs that are strings.
    texts: Vec<String>,
}

impl LiteSession {
    fn lock(&self) -> MutexGuard<'_, Session> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shapes of inputs, and extents, by their names.
type GivenShapes = (Vec<(String, Vec<usize>)>, Vec<(String, usize)>);

/// Dtype and shape.
type GivenFact = (dtype::PyDType, Vec<usize>);

/// The value of an input.
enum Given {
    Tensor(Tensor),
    Value(Value),
}

fn given(x: &Bound<'_, PyAny>) -> PyResult<Given> {
    Ok(match extract_tensor(x)? {
        Some(t) => Given::Tensor(t),
        None => Given::Value(value(x)?),
    })
}

/// Tensors with their names, on the host.
fn hosts(py: Python<'_>, all: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Vec<(String, HostTensor)>> {
    let not = |name: &str| PyTypeError::new_err(format!("input `{name}` is no tensor"));
    let of = |(name, x): (String, Bound<'_, PyAny>)| {
        let t = extract_tensor(&x)?.ok_or_else(|| not(&name))?;
        Ok((name, t))
    };
    let all: Vec<(String, Tensor)> = all.into_iter().map(of).collect::<PyResult<_>>()?;
    call::run(py, || all.into_iter().map(|(name, t)| Ok((name, t.to_host()?))).collect::<Result<_>>())
}

pub(super) fn key(bytes: Option<&Bound<'_, PyBytes>>, py: Python<'_>) -> PyResult<Option<Key>> {
    let own = bytes.map(|b| b.as_bytes().to_vec());
    own.map(|b| call::run(py, move || Key::from_file_bytes(&b))).transpose()
}

/// The option of this name, if it was given.
fn option<'py, T>(of: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    match of.get_item(name)? {
        Some(v) if !v.is_none() => v.extract().map(Some),
        _ => Ok(None),
    }
}

fn options(of: &Bound<'_, PyDict>) -> PyResult<Options> {
    let py = of.py();
    let mut o = Options::default();
    o.threads = option(of, "threads")?.unwrap_or(o.threads);
    o.affinity = option(of, "affinity")?;
    o.device = option(of, "device")?;
    o.memory_budget = device::budget(of.get_item("memory_budget")?.filter(|b| !b.is_none()).as_ref())?;
    o.level = option(of, "level")?.unwrap_or(o.level);
    o.outputs = option(of, "outputs")?;
    o.spill_to = option::<PathBuf>(of, "spill_to")?;
    o.half = of.get_item("half")?.filter(|h| !h.is_none()).map(|h| dtype::extract(&h)).transpose()?;
    let of_key = of.get_item("key")?.filter(|k| !k.is_none()).map(Bound::cast_into::<PyBytes>).transpose()?;
    o.key = key(of_key.as_ref(), py)?;
    if let Some(fixed) = of.get_item("fixed")? {
        o.fixed = hosts(py, fixed.extract()?)?;
    }
    Ok(o)
}

#[pymethods]
impl LiteNetwork {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, of: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options = options(of)?;
        call::run(py, || Network::open(path, options)).map(LiteNetwork)
    }

    #[staticmethod]
    fn from_bytes(bytes: &Bound<'_, PyBytes>, of: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (own, options) = (bytes.as_bytes().to_vec(), options(of)?);
        call::run(bytes.py(), || Network::from_bytes(own, options)).map(LiteNetwork)
    }

    fn inputs(&self, py: Python<'_>) -> PyResult<Vec<Described>> {
        self.0.inputs().iter().map(|p| described(py, p)).collect()
    }

    fn outputs(&self, py: Python<'_>) -> PyResult<Vec<Described>> {
        self.0.outputs().iter().map(|p| described(py, p)).collect()
    }

    /// Name, producer, versions of operators, and metadata.
    #[allow(clippy::type_complexity, reason = "a tuple for Python, taken apart there")]
    fn about(&self) -> (String, String, Vec<(String, i64)>, Vec<(String, String)>) {
        let a = self.0.about().clone();
        (a.name, a.producer, a.opsets, a.metadata)
    }

    fn operators(&self) -> Vec<(String, String, usize)> {
        self.0.operators().to_vec()
    }

    fn unsupported(&self) -> Vec<String> {
        self.0.unsupported().iter().map(ToString::to_string).collect()
    }

    /// A session for inputs of these shapes and named extents.
    fn session(
        &self,
        py: Python<'_>,
        inputs: Vec<(String, Vec<usize>)>,
        extents: Vec<(String, usize)>,
    ) -> PyResult<LiteSession> {
        let shapes = shapes(&inputs, &extents);
        let is_text = |p: &&Port| matches!(p.ty, ValueType::Text);
        let texts = self.0.outputs().iter().filter(is_text).map(|p| p.name.clone()).collect();
        call::run(py, || self.0.session(&shapes)).map(|s| LiteSession { of: Mutex::new(s), texts })
    }

    /// Writes the network as a `.remat` file, with open extents between bounds.
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        at: GivenShapes,
        sizes: Vec<(String, usize, usize)>,
        of_key: Option<&Bound<'_, PyBytes>>,
    ) -> PyResult<()> {
        let (shapes, key) = (shapes(&at.0, &at.1), key(of_key, py)?);
        let dims: Vec<Dim> = sizes.iter().map(|(name, least, most)| Dim::new(name, *least, *most)).collect();
        call::run(py, || {
            let bytes = self.0.graph_file(&shapes, &dims)?.to_bytes(key.as_ref())?;
            let told = |e: std::io::Error| remat::Error::from(e).context(format_args!("writing {}", path.display()));
            files::replace(&path, &bytes).map_err(told)
        })
    }
}

fn shapes(inputs: &[(String, Vec<usize>)], extents: &[(String, usize)]) -> Shapes {
    let all = inputs.iter().fold(Shapes::new(), |all, (name, shape)| all.input(name, shape.as_slice()));
    extents.iter().fold(all, |all, (name, n)| all.extent(name, *n))
}

#[pymethods]
impl LiteSession {
    /// Runs the network; outputs by name, on a device.
    fn run(
        &self,
        py: Python<'_>,
        inputs: Vec<(String, Bound<'_, PyAny>)>,
        device: &Bound<'_, PyDevice>,
    ) -> PyResult<Vec<(String, Py<PyAny>)>> {
        let inputs = inputs.iter().map(|(name, x)| Ok((name, given(x)?))).collect::<PyResult<Vec<_>>>()?;
        let device = device.get().0.clone();
        let outputs = call::run(py, || {
            let mut session = self.lock();
            for (name, x) in inputs {
                match x {
                    Given::Tensor(t) => session.set_input(name, &t.to_host()?)?,
                    Given::Value(v) => session.set_value(name, v)?,
                }
            }
            session.run()?;
            let names = session.outputs().to_vec();
            let read = |name: String| {
                if self.texts.contains(&name) {
                    let text = session.output_value(&name)?;
                    return Ok((name, text));
                }
                let y = session.output(&name)?;
                let host = HostTensor::from_bytes(y.dtype, y.shape.clone(), y.bytes)?;
                Ok((name, Value::Tensor(Tensor::from_host(&device, &host)?)))
            };
            names.into_iter().map(read).collect::<Result<Vec<_>>>()
        })?;
        outputs.into_iter().map(|(name, v)| Ok((name, object(py, v)?))).collect()
    }

    /// The inputs with dtype and shape.
    fn inputs(&self, py: Python<'_>) -> Vec<(String, Option<GivenFact>)> {
        py.detach(|| {
            let session = self.lock();
            let of = |i: usize| session.fact(i).map(|f| (dtype::PyDType(f.dtype), f.shape.to_vec()));
            session.inputs().iter().enumerate().map(|(i, p)| (p.name.clone(), of(i))).collect()
        })
    }

    /// Bytes of constants, of inputs and outputs, of the workspace, and of values stored in a file; and the number of
    /// recomputed calls.
    fn memory(&self, py: Python<'_>) -> PyResult<[usize; 5]> {
        let m = call::run(py, || self.lock().memory())?;
        Ok([m.constant_bytes, m.io_bytes, m.workspace_bytes, m.stored_bytes, m.recomputed_calls])
    }

    #[getter]
    fn is_planned(&self, py: Python<'_>) -> bool {
        py.detach(|| self.lock().is_planned())
    }
}
