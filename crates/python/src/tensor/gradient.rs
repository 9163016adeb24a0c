//! Tensors as parts of a graph: leaves, gradients, hooks.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use remat::nn::Role;
use remat::{Error, ErrorKind, GradHook, Tensor};

use super::parameter::Value;
use super::{Output, PyTensor, extract_tensor};
use crate::call;
use crate::error::{self, or_raise};

#[pymethods]
impl PyTensor {
    /// True if gradients flow to or through this tensor. Setting it makes the tensor a leaf, or takes it out of the graph.
    #[getter]
    fn get_requires_grad(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.tensor(py)?.is_tracked())
    }

    #[setter]
    fn set_requires_grad(&self, py: Python<'_>, on: bool) -> PyResult<()> {
        match &self.value {
            Value::Plain(_) => {
                let t = self.tensor(py)?;
                if on == t.is_leaf() {
                    return Ok(());
                }
                if t.is_tracked() && !t.is_leaf() {
                    let text = "only a leaf's `requires_grad` can be set; use `detach()` for a result";
                    return Err(PyValueError::new_err(text));
                }
                self.replace(if on { call::run(py, move || t.requires_grad())? } else { t.detach() })
            }
            Value::State(p) if p.role() == Role::Trained => {
                p.set_frozen(!on);
                Ok(())
            }
            Value::State(_) if !on => Ok(()),
            Value::State(_) => Err(PyValueError::new_err("a buffer is not trained")),
        }
    }

    /// True if `backward` accumulates a gradient here.
    #[getter]
    fn is_leaf(&self, py: Python<'_>) -> PyResult<bool> {
        let t = self.tensor(py)?;
        Ok(t.is_leaf() || !t.is_tracked())
    }

    /// The gradient accumulated so far, or None.
    #[getter]
    fn get_grad(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let g = match &self.value {
            Value::Plain(_) => self.tensor(py)?.grad(),
            Value::State(p) => py.detach(|| p.grad()),
        };
        g.map(|g| g.object(py)).transpose()
    }

    #[setter]
    fn set_grad(&self, py: Python<'_>, grad: &Bound<'_, PyAny>) -> PyResult<()> {
        let g = if grad.is_none() { None } else { extract_tensor(grad)? };
        if g.is_none() && !grad.is_none() {
            return Err(PyTypeError::new_err("a gradient is a tensor or None"));
        }
        match &self.value {
            Value::Plain(_) => {
                let t = self.tensor(py)?;
                if g.is_none() && !t.is_leaf() {
                    return Ok(());
                }
                call::run(py, move || t.set_grad(g))
            }
            Value::State(p) => {
                let p = p.clone();
                call::run(py, move || p.set_grad(g))
            }
        }
    }

    /// The same data without history.
    fn detach(&self, py: Python<'_>) -> PyResult<PyTensor> {
        Ok(PyTensor::plain(self.tensor(py)?.detach()))
    }

    /// Accumulates the gradient of this tensor into every leaf that it depends on: the gradient of its only element, or
    /// of the sum of its elements times those of `gradient`.
    ///
    /// Errors: NotDifferentiableError if nothing requires a gradient; ShapeError for several elements without `gradient`; those of the
    /// operators, with the line that called them.
    #[pyo3(signature = (gradient = None, retain_graph = false))]
    fn backward(&self, py: Python<'_>, gradient: Option<&Bound<'_, PyAny>>, retain_graph: bool) -> PyResult<()> {
        let t = self.tensor(py)?;
        let dy = match gradient {
            None => None,
            Some(g) if g.is_none() => None,
            Some(g) => match extract_tensor(g)? {
                Some(dy) => Some(dy),
                None => return Err(PyTypeError::new_err("a gradient is a tensor or None")),
            },
        };
        if dy.is_none() && t.elems() != 1 {
            let text = format!(
                "the tensor has shape {}, and one element has a gradient by itself: reduce it by `sum()` or `mean()`, or give a \
                 gradient of its shape",
                t.shape()
            );
            let e = Error::new(ErrorKind::Shape, text).with_op("backward");
            return Err(error::exception(py, &e));
        }
        call::run(py, move || t.backward_with(dy.as_ref(), retain_graph))
    }

    /// Calls `hook` with this leaf's gradient as soon as a backward pass has completed it, before it is accumulated or
    /// `remat.grad` returns it. If the hook returns a tensor of the gradient's dtype and shape, that tensor replaces
    /// the gradient, also for later hooks; None leaves it as it is. An exception of the hook ends the pass. `remove()`
    /// of the returned handle takes the hook out.
    ///
    /// >>> import remat
    /// >>> x = remat.tensor([1.0], requires_grad=True)
    /// >>> handle = x.register_hook(lambda g: print(g.tolist()))
    /// >>> (x * 3).sum().backward()
    /// [3.0]
    /// >>> handle.remove()
    /// >>> _ = x.register_hook(lambda g: 0.5 * g)
    /// >>> x.grad = None
    /// >>> (x * 3).sum().backward()
    /// >>> x.grad.tolist()
    /// [1.5]
    fn register_hook(&self, py: Python<'_>, hook: Py<PyAny>) -> PyResult<PyGradHook> {
        let call = move |g: &Tensor| {
            let g = g.clone();
            call::back(|py| {
                let given = hook.bind(py).call1((g.object(py)?,))?;
                let other = if given.is_none() { None } else { extract_tensor(&given)? };
                if other.is_none() && !given.is_none() {
                    return Err(PyTypeError::new_err("a hook gives a tensor or None"));
                }
                Ok(other)
            })
        };
        let given = match &self.value {
            Value::Plain(_) => {
                let t = self.tensor(py)?;
                call::run(py, move || t.map_grad(call))
            }
            Value::State(p) => or_raise(py, py.detach(|| p.map_grad(call))),
        };
        given.map(PyGradHook)
    }
}

/// A hook of a tensor, which `remove()` takes out.
#[pyclass(name = "_GradHook", module = "remat._remat", frozen)]
pub(crate) struct PyGradHook(GradHook);

#[pymethods]
impl PyGradHook {
    /// Takes the hook out; a second time does nothing.
    fn remove(&self) {
        self.0.remove();
    }
}
