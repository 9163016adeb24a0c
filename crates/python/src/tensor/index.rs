//! Python's indices: what stands between the brackets.

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyList, PySlice, PyTuple};
use remat::tensor::{IndexPart, Span};
use remat::{Device, Tensor};

use super::extract_tensor;
use crate::device::PyDevice;
use crate::{call, convert};

/// The parts of an index into a tensor of `device`. Errors: TypeError for what is no index.
pub(crate) fn parts(index: &Bound<'_, PyAny>, device: &Device) -> PyResult<Vec<IndexPart>> {
    match index.cast::<PyTuple>() {
        Ok(all) => all.iter().map(|p| part(&p, device)).collect(),
        Err(_) => Ok(vec![part(index, device)?]),
    }
}

fn part(p: &Bound<'_, PyAny>, device: &Device) -> PyResult<IndexPart> {
    if p.is_none() {
        return Ok(IndexPart::NewAxis);
    }
    if p.is_instance_of::<PyEllipsis>() {
        return Ok(IndexPart::Ellipsis);
    }
    if let Ok(s) = p.cast::<PySlice>() {
        let bound = |name: &str| -> PyResult<Option<isize>> {
            let v = s.getattr(name)?;
            if v.is_none() { Ok(None) } else { clipped(&v).map(Some) }
        };
        let (start, end, step) = (bound("start")?, bound("stop")?, bound("step")?.unwrap_or(1));
        return Ok(IndexPart::Range(Span { start, end }, step));
    }
    if p.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("a truth value is no index; index with an array of them"));
    }
    if let Some(t) = extract_tensor(p)? {
        return Ok(IndexPart::Tensor(t));
    }
    if p.is_instance_of::<PyList>() || p.hasattr("__array_interface__")? && p.hasattr("__setitem__")? {
        return array(p, device).map(IndexPart::Tensor);
    }
    match p.extract::<isize>() {
        Ok(at) => Ok(IndexPart::At(at)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "an index is a number, a slice, an ellipsis, None, or an array of integers or truth values, not {}",
            p.get_type().name()?
        ))),
    }
}

/// A bound of a slice: Python's may be beyond any address, and are cut.
fn clipped(v: &Bound<'_, PyAny>) -> PyResult<isize> {
    let at = v.call_method0("__index__").map_err(|_| PyTypeError::new_err("bounds of a slice are integers or None"))?;
    match at.extract::<isize>() {
        Ok(at) => Ok(at),
        Err(_) if at.lt(0)? => Ok(isize::MIN),
        Err(_) => Ok(isize::MAX),
    }
}

fn array(p: &Bound<'_, PyAny>, device: &Device) -> PyResult<Tensor> {
    if let Ok(list) = p.cast::<PyList>() {
        // an empty list names no places
        let dtype = list.is_empty().then_some(remat::DType::I64);
        let host = convert::from_nested(p, dtype)?;
        return call::run(p.py(), || Tensor::from_host(device, &host));
    }
    let made = p.py().import("remat")?.call_method1("_asarray", (p, PyDevice(device.clone())))?;
    extract_tensor(&made)?.ok_or_else(|| PyIndexError::new_err("the array is no index"))
}
