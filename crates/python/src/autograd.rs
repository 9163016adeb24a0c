//! Gradients of functions, functions with a gradient that the caller writes, and blocks of a program that record
//! nothing.

use std::any::Any;
use std::sync::Mutex;

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use remat::runtime::tracing;
use remat::tensor::Kept;
use remat::types::intern;
use remat::{Tensor, tensor};

use crate::call;
use crate::tensor::{Output, PyTensor, extract_tensor};

/// A block of a thread's program that records for gradients, or records nothing.
#[pyclass(name = "_GradMode", module = "remat._remat", unsendable)]
pub(crate) struct GradMode {
    records: bool,
    /// The guards of blocks that have begun. A block ends when its guard is dropped.
    begun: Vec<Box<dyn Any>>,
}

#[pymethods]
impl GradMode {
    #[new]
    fn new(records: bool) -> Self {
        GradMode { records, begun: Vec::new() }
    }

    fn begin(&mut self) {
        self.begun.push(if self.records { Box::new(tensor::recording()) } else { Box::new(remat::no_grad()) });
    }

    fn end(&mut self) -> PyResult<()> {
        self.begun.pop().map(drop).ok_or_else(|| PyRuntimeError::new_err("this block has not begun"))
    }
}

/// False within `remat.no_grad()`.
///
/// >>> import remat
/// >>> with remat.no_grad():
/// ...     remat.is_grad_enabled()
/// False
#[pyfunction]
pub(crate) fn is_grad_enabled() -> bool {
    tensor::is_recording()
}

fn tensors(x: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    let each = |t: PyResult<Bound<'_, PyAny>>| {
        let t = t?;
        extract_tensor(&t)?.ok_or_else(|| PyTypeError::new_err("expected tensors"))
    };
    x.try_iter()?.map(each).collect()
}

/// Gradients of the sum of `y` (times `dy`) with respect to the tensors `x`; None where `y` does not depend on one.
#[pyfunction]
pub(crate) fn grad(
    y: &Bound<'_, PyTensor>,
    x: &Bound<'_, PyAny>,
    dy: &Bound<'_, PyAny>,
    create_graph: bool,
) -> PyResult<Vec<Option<Py<PyAny>>>> {
    let py = y.py();
    let (y, x) = (y.get().tensor(py)?, tensors(x)?);
    let dy = if dy.is_none() { None } else { extract_tensor(dy)? };
    let found = call::run(py, move || {
        let x: Vec<&Tensor> = x.iter().collect();
        tensor::grad_with(&y, dy.as_ref(), &x, create_graph)
    })?;
    found.into_iter().map(|g| g.map(|g| g.object(py)).transpose()).collect()
}

/// The age that the next tensor on the device of the first of `x` will have; 0 without a tensor.
#[pyfunction]
pub(crate) fn custom_begins(x: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(tensors(x)?.first().map_or(0, |t| t.device().channel().next_order()))
}

/// How `backward` finds a saved value again: as the number of a result, or as a tensor. An untracked tensor that was
/// made at or after `begun` is one that the function itself made.
fn kept(saved: &Bound<'_, PyAny>, begun: u64) -> PyResult<Kept> {
    // a tensor is tried first: one that holds a single integer would pass for a number
    let Some(t) = extract_tensor(saved)? else { return saved.extract().map(Kept::Output) };
    let made_within = !t.is_tracked() && t.handle().id().order() >= begun;
    Ok(if made_within { Kept::Intermediate(t) } else { Kept::Value(t) })
}

/// Tensors `y` with the gradient that the Python function `backward` computes. It takes the list of the gradients of
/// `y` (None where there is none) and the list of `saved` values. It returns a gradient or None for each of `x`.
#[pyfunction]
pub(crate) fn custom(
    name: &str,
    x: &Bound<'_, PyAny>,
    y: &Bound<'_, PyAny>,
    saved: &Bound<'_, PyAny>,
    begun: u64,
    backward: Py<PyAny>,
) -> PyResult<Vec<Py<PyAny>>> {
    let py = x.py();
    let (x, y) = (tensors(x)?, tensors(y)?);
    let kept = saved.try_iter()?.map(|s| kept(&s?, begun)).collect::<PyResult<Vec<Kept>>>()?;
    let backward = Mutex::new(backward);
    let rule = move |dy: &[Option<Tensor>], kept: &[Tensor]| {
        let (dy, kept) = (dy.to_vec(), kept.to_vec());
        call::back(|py| {
            let f = backward.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone_ref(py);
            let dy = dy.into_iter().map(|g| g.map(|g| g.object(py)).transpose()).collect::<PyResult<Vec<_>>>()?;
            let kept = kept.into_iter().map(|t| t.object(py)).collect::<PyResult<Vec<_>>>()?;
            let given = f.bind(py).call1((PyList::new(py, dy)?, PyList::new(py, kept)?))?;
            let given = match given.cast::<PyTuple>() {
                Ok(all) => all.clone(),
                Err(_) => PyTuple::new(py, [given])?,
            };
            given.iter().map(|g| if g.is_none() { Ok(None) } else { one(&g).map(Some) }).collect::<PyResult<Vec<_>>>()
        })
    };
    let name = intern(name);
    let made = call::run(py, move || {
        tracing::refuse("a function with a gradient in Python");
        let x: Vec<&Tensor> = x.iter().collect();
        tensor::custom_with_kept(name, &x, y, &kept, rule)
    })?;
    made.into_iter().map(|t| t.object(py)).collect()
}

fn one(g: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    extract_tensor(g)?.ok_or_else(|| PyTypeError::new_err("`backward` gives tensors or None"))
}
