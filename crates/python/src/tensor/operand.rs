//! The right side of arithmetic: a tensor, a number, or an array of another library.

use pyo3::prelude::*;
use remat::types::Scalar;
use remat::{DType, IntoOperand, Result, Shape, Tensor};

use super::extract_tensor;
use crate::convert;
use crate::device::PyDevice;

/// The right side of a binary method.
pub(crate) enum Operand {
    Tensor(Tensor),
    Number(Scalar),
}

impl IntoOperand for Operand {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        match self {
            Operand::Tensor(t) => Ok(t),
            Operand::Number(Scalar::Float(v)) => v.operand(like),
            Operand::Number(Scalar::Int(v)) => v.operand(like),
            Operand::Number(Scalar::Bool(v)) => v.operand(like),
            // the library's numbers are signed: a number above their range becomes a tensor
            Operand::Number(Scalar::Uint(v)) => {
                Tensor::full(&like.device(), Shape::scalar(), DType::U64, Scalar::Uint(v))?.cast(like.dtype())
            }
        }
    }

    fn number(&self) -> Option<Scalar> {
        match self {
            Operand::Number(v) if !matches!(v, Scalar::Uint(_)) => Some(*v),
            _ => None,
        }
    }
}

/// A tensor, a number, or a NumPy array, which is copied to the device of `like`; `None` for anything else.
pub(crate) fn operand(x: &Bound<'_, PyAny>, like: Option<&Tensor>) -> PyResult<Option<Operand>> {
    if let Some(t) = extract_tensor(x)? {
        return Ok(Some(Operand::Tensor(t)));
    }
    if let Some(v) = convert::scalar(x)? {
        return Ok(Some(Operand::Number(v)));
    }
    let Some(like) = like.filter(|_| x.hasattr("__array_interface__").unwrap_or(false)) else { return Ok(None) };
    let made = x.py().import("remat")?.call_method1("_asarray", (x, PyDevice(like.device())))?;
    Ok(extract_tensor(&made)?.map(Operand::Tensor))
}
