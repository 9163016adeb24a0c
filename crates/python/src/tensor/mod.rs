//! `remat.Tensor`: its properties, and the reading of its value. Arithmetic is in `operators`, and all other methods
//! are in the table of operators.

mod gradient;
mod index;
mod inplace;
mod operand;
mod operators;
mod output;
pub(crate) mod parameter;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyTuple};
use remat::nn::Parameter;
use remat::types::promote;
use remat::{Error, ErrorKind, HostTensor, Shape, Tensor};

use crate::device::PyDevice;
use crate::dtype::PyDType;
use crate::error::or_raise;
use crate::exit::keep_at_exit;
use crate::{call, convert, dtype};
use parameter::{Plain, Value};

pub(crate) use gradient::PyGradHook;
pub(crate) use operand::{Operand, operand};
pub(crate) use output::Output;

/// An array on a device. Methods and operators return at once; reading a value waits for it.
///
/// `remat.tensor`, `remat.zeros` and other functions make one. Indices, operators and methods are NumPy's. PyTorch's
/// names are there too where they differ (`view`, `dim`). One rule differs from both: data never change under a tensor.
/// `x[0] = 1` gives the object `x` another value, and results made from `x` before keep the old one. A part of a tensor
/// is a value of its own.
///
/// >>> import remat
/// >>> x = remat.tensor([[1.0, 2.0], [3.0, 4.0]])
/// >>> (x @ x + 1).tolist()
/// [[8.0, 11.0], [16.0, 23.0]]
/// >>> x[:, -1] = 0
/// >>> x
/// tensor([[1.0, 0.0],
///         [3.0, 0.0]], shape=(2, 2), dtype=float32)
#[pyclass(name = "Tensor", module = "remat", frozen, subclass, weakref)]
pub(crate) struct PyTensor {
    pub(crate) value: Value,
}

impl Drop for PyTensor {
    fn drop(&mut self) {
        keep_at_exit(|| match &self.value {
            Value::Plain(t) => t.peek().device(),
            Value::State(p) => p.device().clone(),
        });
    }
}

impl PyTensor {
    pub(crate) fn plain(t: Tensor) -> Self {
        PyTensor { value: Value::Plain(Plain::new(t)) }
    }

    pub(crate) fn state(p: Parameter) -> Self {
        PyTensor { value: Value::State(p) }
    }

    pub(crate) fn tensor(&self, py: Python<'_>) -> PyResult<Tensor> {
        match &self.value {
            Value::Plain(_) => or_raise(py, self.value.get()),
            // a thread that updates a parameter holds its lock, and may wait for the interpreter's
            Value::State(p) => or_raise(py, py.detach(|| p.get())),
        }
    }

    fn host(&self, py: Python<'_>) -> PyResult<HostTensor> {
        let t = self.tensor(py)?;
        call::run(py, move || t.to_host())
    }

    /// Replaces the value. Errors: ValueError for a parameter; those of [`Plain::replace`].
    fn replace(&self, new: Tensor) -> PyResult<()> {
        match &self.value {
            Value::Plain(t) => t.replace(new),
            Value::State(_) => {
                Err(PyValueError::new_err("a parameter is updated by `set_`, an optimiser or `load_state_dict`"))
            }
        }
    }
}

impl PyTensor {
    /// As [`PyTensor::replace`], where the new value was made from the old one. If the new value fails on the device,
    /// the first read raises the error, and later reads give the old value. If either value has a history, the failure
    /// stays with the new value and with everything made from it.
    fn replace_in_place(&self, py: Python<'_>, new: Tensor, old: Tensor) -> PyResult<()> {
        if !old.is_tracked() && !new.is_tracked() {
            let (new, old) = (new.clone(), old);
            call::queue(py, move || new.channel().fall_back(new.handle(), old.handle()))?;
        }
        self.replace(new)
    }
}

/// The tensor behind a Python object, if it is one.
pub(crate) fn extract_tensor(x: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    match x.cast::<PyTensor>() {
        Ok(t) => t.get().tensor(x.py()).map(Some),
        Err(_) => Ok(None),
    }
}

/// A shape as `reshape` takes it.
fn extents(shape: &[usize]) -> Vec<isize> {
    shape.iter().map(|d| *d as isize).collect()
}

/// The value of a tensor, or of nested lists of numbers, on the host. For values that come from a state.
pub(crate) fn host_of(v: &Bound<'_, PyAny>) -> PyResult<HostTensor> {
    match extract_tensor(v)? {
        Some(t) => call::run(v.py(), move || t.to_host()),
        None => convert::from_nested(v, None),
    }
}

/// A tensor of the bytes of elements in row-major order.
#[pyfunction]
pub(crate) fn from_bytes(
    py: Python<'_>,
    bytes: &Bound<'_, PyBytes>,
    shape: Vec<usize>,
    of: &str,
    device: &Bound<'_, PyDevice>,
) -> PyResult<PyTensor> {
    let host =
        or_raise(py, HostTensor::from_bytes(dtype::of_name(of)?, Shape::from(shape.as_slice()), bytes.as_bytes()))?;
    let device = device.get().0.clone();
    call::run(py, move || Tensor::from_host(&device, &host)).map(PyTensor::plain)
}

/// A tensor of nested lists of numbers.
#[pyfunction]
pub(crate) fn from_nested(
    data: &Bound<'_, PyAny>,
    of: &Bound<'_, PyAny>,
    device: &Bound<'_, PyDevice>,
) -> PyResult<PyTensor> {
    let of = if of.is_none() { None } else { Some(dtype::extract(of)?) };
    let (host, device) = (convert::from_nested(data, of)?, device.get().0.clone());
    call::run(data.py(), move || Tensor::from_host(&device, &host)).map(PyTensor::plain)
}

/// The dtype of an expression over two dtypes, by the book's rules. Errors: ValueError or TypeError for an object that
/// is no dtype.
///
/// >>> import remat
/// >>> remat.promote_types("int8", "uint8"), remat.promote_types("float16", "bfloat16")
/// (remat.int16, remat.float32)
#[pyfunction]
pub(crate) fn promote_types(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> PyResult<PyDType> {
    Ok(PyDType(promote(dtype::extract(a)?, dtype::extract(b)?)))
}

#[pymethods]
impl PyTensor {
    /// Extents, a tuple. Never waits.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor(py)?.dims())
    }

    /// Number of axes. Never waits.
    #[getter]
    fn ndim(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.tensor(py)?.rank())
    }

    /// Element type. Never waits.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<PyDType> {
        Ok(PyDType(self.tensor(py)?.dtype()))
    }

    /// Bytes of an element.
    #[getter]
    fn itemsize(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.tensor(py)?.dtype().size_bytes())
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<usize> {
        let t = self.tensor(py)?;
        Ok(t.elems() * t.dtype().size_bytes())
    }

    /// Number of elements.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.tensor(py)?.elems())
    }

    /// Number of elements, as PyTorch names it.
    fn numel(&self, py: Python<'_>) -> PyResult<usize> {
        self.size(py)
    }

    fn _device(&self, py: Python<'_>) -> PyResult<PyDevice> {
        Ok(PyDevice(self.tensor(py)?.device()))
    }

    /// The tensor with its axes in reverse order.
    #[getter(T)]
    fn reversed(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let t = self.tensor(py)?;
        let order: Vec<isize> = (0..t.rank() as isize).rev().collect();
        call::run(py, move || t.permute(&order))?.object(py)
    }

    /// The tensor with its last two axes swapped. Errors: AxisError below two axes.
    #[getter(mT)]
    fn matrix_transposed(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let t = self.tensor(py)?;
        call::run(py, move || t.transpose(-2, -1))?.object(py)
    }

    /// The only element as a Python number. Waits. Errors: ValueError if there is not exactly one.
    fn item(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let t = self.tensor(py)?;
        if t.elems() != 1 {
            return Err(PyValueError::new_err(format!("shape {} holds not one element", t.shape())));
        }
        convert::item(py, &call::run(py, move || t.to_host())?)
    }

    /// Nested lists of Python numbers; a number for no axes. Waits.
    fn tolist(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        convert::nested(py, &self.host(py)?)
    }

    /// The elements in row-major order, as bytes that belong to the caller. Waits.
    fn _bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        Ok(PyByteArray::new(py, self.host(py)?.bytes()))
    }

    /// The value as the library shows it. On a dry device, the facts that are known without a value.
    fn _shown(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.host(py)?.to_string())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let t = self.tensor(py)?;
        t.dims().first().copied().ok_or_else(|| PyTypeError::new_err("a tensor without axes has no len()"))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        if self.size(py)? != 1 {
            return Err(PyValueError::new_err(
                "the truth value of several elements is ambiguous: use `any()` or `all()`",
            ));
        }
        self.item(py)?.bind(py).is_truthy()
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.item(py)?.bind(py).call_method0("__float__")?.extract()
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.item(py)?.bind(py).call_method0("__int__")?.unbind())
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if !self.tensor(py)?.dtype().is_int() {
            return Err(PyTypeError::new_err("only a tensor of one integer is an index"));
        }
        self.__int__(py)
    }

    fn __getitem__(&self, py: Python<'_>, at: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let (t, parts) = index::fitted(self.tensor(py)?, at)?;
        call::run(py, move || t.i(parts))?.object(py)
    }

    fn __setitem__(&self, py: Python<'_>, at: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let t = self.tensor(py)?;
        if t.is_leaf() {
            return Err(PyValueError::new_err(
                "a tensor that requires a gradient is not assigned to; assign to `x.detach()`, or to a copy",
            ));
        }
        let shape = t.shape().clone();
        let old = t.clone();
        let (t, parts) = index::fitted(t, at)?;
        let v = index::value(py, value, &t)?;
        let new = call::run(py, move || {
            let new = t.at(parts).set(v)?;
            if *new.shape() == shape { Ok(new) } else { new.reshape(&extents(&shape)) }
        })?;
        self.replace_in_place(py, new, old)
    }

    /// Frees the bytes now if they can be computed again. The tensor stays valid.
    fn drop_value(&self, py: Python<'_>) -> PyResult<()> {
        let t = self.tensor(py)?;
        call::run(py, move || t.drop_value())
    }

    /// Waits until the value is computed. Errors: the failure that prevented it.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let t = self.tensor(py)?;
        call::run(py, move || t.channel().wait(t.handle()))
    }

    /// A text that two live objects share exactly if they have the same value.
    fn _identity(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        format!("{:?}", self.tensor(py)?.handle().id()).into_py_any(py)
    }

    fn _copy_to(&self, py: Python<'_>, device: &Bound<'_, PyDevice>) -> PyResult<Py<PyAny>> {
        let (t, device) = (self.tensor(py)?, device.get().0.clone());
        call::run(py, move || {
            if t.device() == device {
                return Ok(t);
            }
            if t.device().is_dry() {
                return Err(Error::new(ErrorKind::NoValue, "a dry device has no values to copy"));
            }
            t.to_device(&device)
        })?
        .object(py)
    }
}
