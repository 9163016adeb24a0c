//! Element by element.

use std::sync::LazyLock;

use remat_ops::pointwise::{Binary, BinaryFn, Cast, Clamp, Compare, CompareFn};
use remat_ops::{OpDef, OpRef};
use remat_types::{CallSite, DType, Error, ErrorKind, HostTensor, Result, Scalar, Shape, SmallVec, for_dtype, promote};

use crate::site::InOp;
use crate::{Tensor, tape};

/// The right side of a binary method: a tensor, or a number, which takes the tensor's dtype.
///
/// Beside a tensor of f16 or bf16 a number goes into arithmetic and comparisons as an f32, unrounded: only their result is
/// of the narrow dtype, so `x * 1e-8` is not `x * 0`.
pub trait IntoOperand: Sized {
    /// A tensor for use beside `like`. Errors: Value for a number that `like`'s dtype cannot hold as what it is.
    fn operand(self, like: &Tensor) -> Result<Tensor>;

    /// The number, if it is one.
    fn number(&self) -> Option<Scalar> {
        None
    }
}

impl IntoOperand for &Tensor {
    fn operand(self, _like: &Tensor) -> Result<Tensor> {
        Ok(self.clone())
    }
}
impl IntoOperand for Tensor {
    fn operand(self, _like: &Tensor) -> Result<Tensor> {
        Ok(self)
    }
}
impl IntoOperand for f64 {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        if !like.dtype().is_float() {
            let text = format!("the number {self} beside a tensor of {}; cast the tensor first", like.dtype());
            return Err(Error::new(ErrorKind::DType, text));
        }
        constant(like, Scalar::Float(self))
    }

    fn number(&self) -> Option<Scalar> {
        Some(Scalar::Float(*self))
    }
}
impl IntoOperand for f32 {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        f64::from(self).operand(like)
    }

    fn number(&self) -> Option<Scalar> {
        Some(Scalar::Float(f64::from(*self)))
    }
}
impl IntoOperand for i64 {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        let exact = for_dtype!(like.dtype(), T => {
            let v: T = Scalar::Int(self).cast();
            like.dtype().is_float() || (remat_types::Element::to_i64(v) == self && (self >= 0 || !is_unsigned(like.dtype())))
        });
        if !exact {
            return Err(Error::new(ErrorKind::Value, format!("{self} does not fit {}", like.dtype())));
        }
        constant(like, Scalar::Int(self))
    }

    fn number(&self) -> Option<Scalar> {
        Some(Scalar::Int(*self))
    }
}
impl IntoOperand for i32 {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        i64::from(self).operand(like)
    }

    fn number(&self) -> Option<Scalar> {
        Some(Scalar::Int(i64::from(*self)))
    }
}
impl IntoOperand for bool {
    fn operand(self, like: &Tensor) -> Result<Tensor> {
        constant(like, Scalar::Bool(self))
    }

    fn number(&self) -> Option<Scalar> {
        Some(Scalar::Bool(*self))
    }
}

fn is_unsigned(d: DType) -> bool {
    d.is_int() && !d.is_signed_int()
}

fn constant(like: &Tensor, v: Scalar) -> Result<Tensor> {
    constant_of(like.dtype(), like, v)
}

fn constant_of(dtype: DType, like: &Tensor, v: Scalar) -> Result<Tensor> {
    let host = for_dtype!(dtype, T => HostTensor::from_slice(&[v.cast::<T>()], Shape::scalar()))?;
    Ok(Tensor::from_handle(like.channel().put(&host)?))
}

/// `b` for arithmetic or a comparison with `like`: a number beside 16-bit floats enters unrounded.
fn beside(like: &Tensor, b: impl IntoOperand) -> Result<Tensor> {
    match b.number() {
        Some(v) if is_half(like.dtype()) => constant_of(DType::F32, like, v),
        _ => b.operand(like),
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Both operands of arithmetic or a comparison, in their common dtype, except for a number beside 16-bit floats. `number`
/// is true in that case.
#[track_caller]
fn both(a: Tensor, b: Tensor, number: bool) -> Result<SmallVec<[Tensor; 4]>> {
    match number {
        true => Ok(SmallVec::from_iter([a, b])),
        false => promoted(a, b),
    }
}

/// The op of a binary function. One serves all calls: that saves each an allocation, which another thread would free.
fn shared(f: BinaryFn) -> OpRef {
    static OPS: LazyLock<Vec<OpRef>> = LazyLock::new(|| BinaryFn::ALL.iter().map(|&f| Binary { f }.into()).collect());
    OPS[f as usize].clone()
}

/// Both operands in their common dtype.
#[track_caller]
pub(super) fn promoted(a: Tensor, b: Tensor) -> Result<SmallVec<[Tensor; 4]>> {
    let dtype = promote(a.dtype(), b.dtype());
    let mut both = SmallVec::new();
    both.push(cast_owned(a, dtype)?);
    both.push(cast_owned(b, dtype)?);
    Ok(both)
}

#[track_caller]
pub(super) fn cast_owned(t: Tensor, dtype: DType) -> Result<Tensor> {
    if t.dtype() == dtype { Ok(t) } else { Tensor::apply_owned(Cast { dtype }, [t]) }
}

impl Tensor {
    /// `f` of both operands in their common dtype; takes `self`, which may die here.
    #[track_caller]
    pub(super) fn binary(self, f: BinaryFn, b: impl IntoOperand) -> Result<Tensor> {
        let (op, number) = (shared(f), b.number().is_some());
        let b = beside(&self, b).in_op(op.label())?;
        let mut y = tape::apply(op, both(self, b, number)?, CallSite::here())?;
        Ok(y.swap_remove(0))
    }

    /// `f` of a number and a tensor.
    #[track_caller]
    pub(super) fn number_and(a: impl IntoOperand, f: BinaryFn, b: Tensor) -> Result<Tensor> {
        let op = shared(f);
        let a = beside(&b, a).in_op(op.label())?;
        let mut y = tape::apply(op, both(a, b, true)?, CallSite::here())?;
        Ok(y.swap_remove(0))
    }

    /// As [`Tensor::binary`] for comparisons.
    #[track_caller]
    pub(super) fn compare(&self, f: CompareFn, b: impl IntoOperand) -> Result<Tensor> {
        let (op, number) = (Compare { f }, b.number().is_some());
        let b = beside(self, b).in_op(OpDef::label(&op))?;
        Tensor::apply_owned(op, both(self.clone(), b, number)?)
    }

    /// The elements converted to `dtype`: floats round to nearest even, integers truncate and saturate from floats
    /// and wrap from integers; to bool, every number except 0 is true.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # use remat_types::DType;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-1.5, 0.0, 300.0], [3])?;
    /// assert_eq!(x.cast(DType::I8)?.to_vec::<i8>()?, [-1, 0, 127]);
    /// assert_eq!(x.cast(DType::Bool)?.to_vec::<bool>()?, [true, false, true]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "to")]
    #[doc(alias = "astype")]
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        cast_owned(self.clone(), dtype)
    }

    /// `min(max(x, lo), hi)`. Errors: Value if `lo > hi`.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-3.0, 0.5, 9.0], [3])?;
    /// assert_eq!(x.clamp(-1.0, 2.0)?.to_vec::<f32>()?, [-1.0, 0.5, 2.0]);
    /// assert_eq!(x.clamp(0.0, f32::INFINITY)?.to_vec::<f32>()?, [0.0, 0.5, 9.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[doc(alias = "clip")]
    #[track_caller]
    pub fn clamp(&self, lo: impl Into<Scalar>, hi: impl Into<Scalar>) -> Result<Tensor> {
        Tensor::apply1(Clamp { lo: lo.into(), hi: hi.into() }, &[self])
    }

    /// `self + weight (end - self)`. Shapes broadcast. Errors: Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[0.0, 10.0], [2])?;
    /// let b = Tensor::new(&device, &[4.0, 20.0], [2])?;
    /// assert_eq!(a.lerp(&b, 0.25)?.to_vec::<f32>()?, [1.0, 12.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: impl IntoOperand) -> Result<Tensor> {
        self.add(end.sub(self)?.mul(weight)?)
    }

    /// `x` where it is positive, else `slope x`. Errors: DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[-2.0, 3.0], [2])?;
    /// assert_eq!(x.leaky_relu(0.5)?.to_vec::<f32>()?, [-1.0, 3.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        self.prelu(slope)
    }

    /// Whether `|a - b| <= atol + rtol |b|` everywhere, as NumPy's `allclose`: a NaN is close to nothing. Rank 0, of
    /// bools. Errors: Shape, DType for other than floats.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, f32::INFINITY], [2])?;
    /// assert!(x.allclose(&x.mul(1.0 + 1e-9)?, 1e-5, 1e-8)?.item::<bool>()?);
    /// assert!(!x.allclose(&x.add(0.1)?, 1e-5, 1e-8)?.item::<bool>()?);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn allclose(&self, b: &Tensor, rtol: f64, atol: f64) -> Result<Tensor> {
        self.isclose(b, rtol, atol, false)?.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shared_op_is_that_of_its_function() {
        for &f in BinaryFn::ALL {
            assert_eq!(shared(f).downcast::<Binary>(), Some(&Binary { f }));
        }
    }
}
