//! Python's indices: the objects between the brackets.

use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PyList, PyRange, PySlice, PyTuple};
use remat::tensor::{IndexPart, Span};
use remat::types::Scalar;
use remat::{DType, Device, Result, Shape, Tensor};

use super::{Operand, extents, extract_tensor, operand};
use crate::device::PyDevice;
use crate::{call, convert};

/// The parts of an index into `t`, and the tensor they index. Errors: TypeError for an object that is no index.
///
/// The tensor is `t` unless there are truth values without axes. Each of these indexes a new axis of extent 1, and
/// takes all of it or nothing.
pub(crate) fn fitted(t: Tensor, index: &Bound<'_, PyAny>) -> PyResult<(Tensor, Vec<IndexPart>)> {
    let device = t.device();
    let parts: Vec<IndexPart> = match index.cast::<PyTuple>() {
        Ok(all) => all.iter().map(|p| part(&p, &device)).collect::<PyResult<_>>()?,
        Err(_) => vec![part(index, &device)?],
    };
    let is_truth = |p: &IndexPart| matches!(p, IndexPart::Tensor(m) if m.rank() == 0 && m.dtype() == DType::Bool);
    if parts.iter().any(is_truth) {
        return call::run(index.py(), move || with_truths(t, parts));
    }
    Ok((t, parts))
}

/// The axes of a tensor that a part takes.
fn taken(p: &IndexPart) -> usize {
    match p {
        IndexPart::Ellipsis | IndexPart::NewAxis => 0,
        IndexPart::Tensor(m) if m.dtype() == DType::Bool => m.rank(),
        _ => 1,
    }
}

fn with_truths(mut t: Tensor, mut parts: Vec<IndexPart>) -> Result<(Tensor, Vec<IndexPart>)> {
    let rest = t.rank().saturating_sub(parts.iter().map(taken).sum());
    let mut axis = 0;
    for p in &mut parts {
        match p {
            IndexPart::Tensor(m) if m.rank() == 0 && m.dtype() == DType::Bool => {
                t = t.unsqueeze(axis.min(t.rank()) as isize)?;
                *p = IndexPart::Tensor(m.reshape(&[1])?.nonzero()?.select(1, 0)?);
                axis += 1;
            }
            IndexPart::Ellipsis => axis += rest,
            other => axis += taken(other),
        }
    }
    Ok((t, parts))
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
    if let Some(t) = extract_tensor(p)? {
        return Ok(IndexPart::Tensor(t));
    }
    if p.is_instance_of::<PyInt>() && !p.is_instance_of::<PyBool>() {
        let at = p.extract::<isize>();
        return at.map(IndexPart::At).map_err(|_| PyIndexError::new_err(format!("index {p} is outside any axis")));
    }
    if is_sequence(p) || p.hasattr("__array_interface__")? && p.hasattr("__setitem__")? {
        return array(p, device).map(IndexPart::Tensor);
    }
    if let Some(Scalar::Bool(truth)) = convert::scalar(p)? {
        let full = || Tensor::full(device, Shape::scalar(), DType::Bool, truth);
        return call::run(p.py(), full).map(IndexPart::Tensor);
    }
    match p.extract::<isize>() {
        Ok(at) => Ok(IndexPart::At(at)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "an index is a number, a slice, an ellipsis, None, or an array of integers or truth values, not {}",
            p.get_type().name()?
        ))),
    }
}

fn is_sequence(p: &Bound<'_, PyAny>) -> bool {
    p.is_instance_of::<PyList>() || p.is_instance_of::<PyTuple>() || p.is_instance_of::<PyRange>()
}

/// A bound of a slice. Python's bounds may exceed every address, and are clipped.
fn clipped(v: &Bound<'_, PyAny>) -> PyResult<isize> {
    let at = v.call_method0("__index__").map_err(|_| PyTypeError::new_err("bounds of a slice are integers or None"))?;
    match at.extract::<isize>() {
        Ok(at) => Ok(at),
        Err(_) if at.lt(0)? => Ok(isize::MIN),
        Err(_) => Ok(isize::MAX),
    }
}

/// An array, or nested sequences of numbers, truth values and arrays.
fn array(p: &Bound<'_, PyAny>, device: &Device) -> PyResult<Tensor> {
    let py = p.py();
    if is_sequence(p) {
        let list = p.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        // elements that are no numbers may be arrays, which the package's function accepts
        if let Ok(host) = convert::from_nested(PyList::new(py, list)?.as_any(), None) {
            let t = call::run(py, || Tensor::from_host(device, &host))?;
            // an empty list has no dtype of its own: it becomes a list of no indices
            return if host.elems() == 0 { call::run(py, || t.cast(DType::I64)) } else { Ok(t) };
        }
    }
    let made = py.import("remat")?.call_method1("_asarray", (p, PyDevice(device.clone())))?;
    extract_tensor(&made)?.ok_or_else(|| PyIndexError::new_err("the array is no index"))
}

/// A value to assign to a part of `t`, in the dtype of `t`. Numbers are converted too, as NumPy does. Leading axes of
/// extent 1 are dropped: the value may have more of them than the part, as broadcasting allows. Errors: TypeError for a
/// value without numbers.
pub(crate) fn value(py: Python<'_>, given: &Bound<'_, PyAny>, t: &Tensor) -> PyResult<Operand> {
    let (device, dtype) = (t.device(), t.dtype());
    let v = match operand(given, Some(t))? {
        Some(Operand::Number(v)) => {
            let is_own = match v {
                Scalar::Float(_) => dtype.is_float(),
                Scalar::Bool(_) => true,
                _ => dtype != DType::Bool,
            };
            if is_own {
                return Ok(Operand::Number(v));
            }
            call::run(py, || Tensor::full(&device, Shape::scalar(), dtype, v))?
        }
        Some(Operand::Tensor(v)) => call::run(py, || v.cast(dtype))?,
        None => {
            let host = convert::from_nested(given, Some(dtype))?;
            call::run(py, || Tensor::from_host(&device, &host))?
        }
    };
    let ones = v.dims().iter().take_while(|d| **d == 1).count();
    if ones == 0 {
        return Ok(Operand::Tensor(v));
    }
    call::run(py, || v.reshape(&extents(&v.dims()[ones..]))).map(Operand::Tensor)
}
