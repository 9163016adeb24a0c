//! Kernels that are Python functions, for a device to use in place of its own.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyDict};
use remat::ops::{EvalCx, Op};
use remat::runtime::device::check_written_bools;
use remat::runtime::{HostKernel, KernelRegistry};
use remat::types::{Callback, Error, ErrorKind, Result};

use crate::{dtype, error};

/// A Python function that computes an operator. The device's worker calls it.
#[derive(Debug)]
struct PyKernel(Py<PyAny>);

impl HostKernel for PyKernel {
    fn run(&self, op: &dyn Op, cx: &mut EvalCx<'_>) -> Result<()> {
        let description = op.to_json()?.to_string();
        let _callback = Callback::enter();
        let ended = || Error::new(ErrorKind::Closed, "the interpreter that runs the kernel's function has ended");
        Python::try_attach(|py| self.call(py, &description, cx).map_err(|e| error::carried(py, e))).ok_or_else(ended)?
    }
}

impl PyKernel {
    /// Passes copies of the inputs, and copies back the outputs that the function wrote. So nothing can point into the
    /// device's memory after the call.
    fn call(&self, py: Python<'_>, op: &str, cx: &mut EvalCx<'_>) -> PyResult<()> {
        static RUN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let run =
            RUN.get_or_try_init(py, || Ok::<_, PyErr>(py.import("remat._kernels")?.getattr("run_kernel")?.unbind()))?;
        let mut x = Vec::with_capacity(cx.x.len());
        for input in cx.x {
            let bytes = input.element_bytes().map_err(|e| error::exception(py, &e))?;
            x.push((dtype::name(input.dtype()), input.shape().dims().to_vec(), PyBytes::new(py, bytes)));
        }
        let mut y = Vec::with_capacity(cx.y.len());
        for out in cx.y.iter_mut() {
            let bytes = PyByteArray::new(py, &vec![0; out.bytes_mut().len()]);
            y.push((dtype::name(out.dtype()), out.shape().dims().to_vec(), bytes));
        }
        let outputs: Vec<_> = y.iter().map(|(name, dims, bytes)| (*name, dims.clone(), bytes.clone())).collect();
        run.bind(py).call1((self.0.bind(py), op, x, outputs))?;
        for (j, (out, (.., bytes))) in cx.y.iter_mut().zip(&y).enumerate() {
            let written = bytes.to_vec();
            let to = out.bytes_mut();
            if written.len() != to.len() {
                return Err(PyValueError::new_err(format!("the kernel resized output {j}")));
            }
            to.copy_from_slice(&written);
        }
        check_written_bools(cx).map_err(|e| error::exception(py, &e))
    }
}

/// Kernels by the name of their operator. Errors: ValueError for a name that no operator has.
pub(crate) fn registry(kernels: Option<&Bound<'_, PyDict>>) -> PyResult<KernelRegistry> {
    let mut all = KernelRegistry::default();
    let Some(kernels) = kernels else { return Ok(all) };
    for (name, f) in kernels {
        let name: String = name.extract()?;
        if !f.is_callable() {
            return Err(PyValueError::new_err(format!("the kernel of `{name}` cannot be called")));
        }
        let kernel: Arc<dyn HostKernel> = Arc::new(PyKernel(f.unbind()));
        all = all.with_foreign(&name, kernel).map_err(|e| error::exception(kernels.py(), &e))?;
    }
    Ok(all)
}
