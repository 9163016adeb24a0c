//! The last step of `x += y` and similar statements: the object takes the new value.
//!
//! Data never change under a tensor. The object has another value afterwards, as after an assignment to a part of it,
//! and results made from it before keep the old one. So the history of a result stays right without a check of
//! versions.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use remat::runtime::Kind;
use remat::{Tensor, tensor};

use super::parameter::Value;
use super::{PyTensor, extract_tensor};
use crate::call;

#[pymethods]
impl PyTensor {
    /// Takes the value of `new`. Errors: ValueError for another shape, and for a leaf or parameter while gradients are recorded;
    /// TypeError for another dtype.
    fn _become(&self, py: Python<'_>, new: &Bound<'_, PyAny>) -> PyResult<()> {
        let new = extract_tensor(new)?.ok_or_else(|| PyTypeError::new_err("expected a tensor"))?;
        let old = self.tensor(py)?;
        if new.shape() != old.shape() {
            let text =
                format!("the result has shape {}, and does not fit a tensor of shape {}", new.shape(), old.shape());
            return Err(PyValueError::new_err(text));
        }
        if new.dtype() != old.dtype() {
            let text = format!("the result is of {}, and does not fit a tensor of {}", new.dtype(), old.dtype());
            return Err(PyTypeError::new_err(text));
        }
        match &self.value {
            Value::Plain(_) if !old.is_leaf() => self.replace_in_place(py, new, old),
            _ if tensor::is_recording() => Err(PyValueError::new_err(
                "a leaf is not changed in place while gradients are recorded; do it within `remat.no_grad()`",
            )),
            Value::Plain(_) => {
                let leaf = call::run(py, move || {
                    let leaf = new.detach().requires_grad()?;
                    leaf.set_grad(old.grad())?;
                    // the leaf is a parameter in all but name: the device keeps its value, and does not recompute it
                    // from older versions
                    leaf.channel().commit_in_place_of(leaf.handle(), old.handle(), Kind::Parameter)?;
                    Ok::<Tensor, remat::Error>(leaf)
                })?;
                self.replace(leaf)
            }
            Value::State(p) => {
                let p = p.clone();
                call::run(py, move || p.set(&new))
            }
        }
    }
}
