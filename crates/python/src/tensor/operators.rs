//! Arithmetic and comparisons of tensors as Python writes them.
//!
//! A number beside a tensor takes the tensor's dtype, and two tensors are converted to their common one, by the rules
//! of the book. Any other operand is left to its own class (`NotImplemented`).

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use remat::types::Scalar;
use remat::{DType, Result, Tensor};

use super::{Operand, Output, PyTensor, operand};
use crate::call;

type Object = PyResult<Py<PyAny>>;

impl PyTensor {
    /// `f(self, other)`, or `NotImplemented`.
    fn with(
        &self,
        other: &Bound<'_, PyAny>,
        f: impl FnOnce(&Tensor, Operand) -> Result<Tensor>,
    ) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let x = self.tensor(py)?;
        match operand(other, Some(&x))? {
            Some(b) => call::queue(py, move || f(&x, b))?.object(py),
            None => Ok(py.NotImplemented()),
        }
    }

    /// `f(other, self)`, or `NotImplemented`: the other operand becomes a tensor beside this one.
    fn swapped(
        &self,
        other: &Bound<'_, PyAny>,
        f: impl FnOnce(&Tensor, Operand) -> Result<Tensor>,
    ) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let x = self.tensor(py)?;
        match operand(other, Some(&x))? {
            Some(b) => call::queue(py, move || f(&left(b, &x)?, Operand::Tensor(x.clone())))?.object(py),
            None => Ok(py.NotImplemented()),
        }
    }

    fn unary(&self, py: Python<'_>, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> PyResult<Py<PyAny>> {
        let x = self.tensor(py)?;
        call::queue(py, move || f(&x))?.object(py)
    }
}

/// A left operand as a tensor beside `like`.
fn left(b: Operand, like: &Tensor) -> Result<Tensor> {
    remat::IntoOperand::operand(b, like)
}

/// Arithmetic with a number on the left of `-`, `/` or `%`. The number is not rounded first, not even beside 16-bit
/// floats, as in the library's own operators.
fn arithmetic(
    x: &Tensor,
    b: Operand,
    float: fn(f64, &Tensor) -> Result<Tensor>,
    int: fn(i64, &Tensor) -> Result<Tensor>,
    both: fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    match b {
        Operand::Number(Scalar::Float(v)) => float(v, x),
        Operand::Number(Scalar::Int(v)) => int(v, x),
        other => both(&left(other, x)?, x),
    }
}

/// The quotient of integers or truth values is a float: they are divided as float32, as the book says.
fn divided(x: &Tensor, b: Operand) -> Result<Tensor> {
    let is_exact = |d: DType| !d.is_float();
    match b {
        Operand::Tensor(b) if is_exact(x.dtype()) && is_exact(b.dtype()) => {
            x.cast(DType::F32)?.div(b.cast(DType::F32)?)
        }
        Operand::Number(_) if is_exact(x.dtype()) => x.cast(DType::F32)?.div(b),
        b => x.div(b),
    }
}

#[pymethods]
impl PyTensor {
    fn __add__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x.add(b))
    }
    fn __radd__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| arithmetic(x, b, |v, x| v + x, |v, x| v + x, |a, b| a.add(b)))
    }
    fn __sub__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x.sub(b))
    }
    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| arithmetic(x, b, |v, x| v - x, |v, x| v - x, |a, b| a.sub(b)))
    }
    fn __mul__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x.mul(b))
    }
    fn __rmul__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| arithmetic(x, b, |v, x| v * x, |v, x| v * x, |a, b| a.mul(b)))
    }
    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, divided)
    }
    fn __rtruediv__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| {
            let x = if x.dtype().is_float() { x.clone() } else { x.cast(DType::F32)? };
            arithmetic(&x, b, |v, x| v / x, |v, x| v / x, |a, b| divided(a, Operand::Tensor(b.clone())))
        })
    }
    fn __floordiv__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x.floor_div(b))
    }
    fn __rfloordiv__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.swapped(other, |a, b| a.floor_div(b))
    }
    fn __mod__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x.rem(b))
    }
    fn __rmod__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| arithmetic(x, b, |v, x| v % x, |v, x| v % x, |a, b| a.rem(b)))
    }
    fn __divmod__(&self, other: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        Ok((self.__floordiv__(other)?, self.__mod__(other)?))
    }
    fn __pow__(&self, other: &Bound<'_, PyAny>, modulus: Option<&Bound<'_, PyAny>>) -> Object {
        if modulus.is_some() {
            return Ok(other.py().NotImplemented());
        }
        self.with(other, |x, b| x.pow(b))
    }
    fn __rpow__(&self, other: &Bound<'_, PyAny>, modulus: Option<&Bound<'_, PyAny>>) -> Object {
        if modulus.is_some() {
            return Ok(other.py().NotImplemented());
        }
        self.swapped(other, |a, b| a.pow(b))
    }
    fn __matmul__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.product(other, false)
    }
    fn __rmatmul__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.product(other, true)
    }
    fn __and__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x & b)
    }
    fn __rand__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x & b)
    }
    fn __or__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x | b)
    }
    fn __ror__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x | b)
    }
    fn __xor__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x ^ b)
    }
    fn __rxor__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x ^ b)
    }
    fn __lshift__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x << b)
    }
    fn __rlshift__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.swapped(other, |a, b| a << b)
    }
    fn __rshift__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.with(other, |x, b| x >> b)
    }
    fn __rrshift__(&self, other: &Bound<'_, PyAny>) -> Object {
        self.swapped(other, |a, b| a >> b)
    }
    fn __neg__(&self, py: Python<'_>) -> Object {
        self.unary(py, Tensor::neg)
    }
    fn __pos__(&self, py: Python<'_>) -> Object {
        self.tensor(py)?.object(py)
    }
    fn __abs__(&self, py: Python<'_>) -> Object {
        self.unary(py, Tensor::abs)
    }
    fn __invert__(&self, py: Python<'_>) -> Object {
        self.unary(py, |x| !x)
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> Object {
        self.with(other, move |x, b| match op {
            CompareOp::Eq => x.eq(b),
            CompareOp::Ne => x.ne(b),
            CompareOp::Lt => x.lt(b),
            CompareOp::Le => x.le(b),
            CompareOp::Gt => x.gt(b),
            CompareOp::Ge => x.ge(b),
        })
    }

    /// The hash of the object. Comparison is element by element, so tensors are dictionary keys by identity.
    fn __hash__(slf: &Bound<'_, Self>) -> usize {
        slf.as_ptr() as usize >> 4
    }
}

impl PyTensor {
    fn product(&self, other: &Bound<'_, PyAny>, is_right: bool) -> Object {
        let py = other.py();
        let x = self.tensor(py)?;
        match operand(other, Some(&x))? {
            Some(Operand::Tensor(b)) => {
                let (a, b) = if is_right { (b, x) } else { (x, b) };
                call::queue(py, move || a.matmul(&b))?.object(py)
            }
            _ => Ok(py.NotImplemented()),
        }
    }
}
