//! Pointwise ops: rows of one table per arity, and the few that take parameters.
//!
//! [`Unary`], [`Binary`] and [`Compare`] hold the name of a function; what the function is stands in one row of
//! `unary_table`, `binary_table` or `compare`. Both inputs of a binary op have one dtype; promotion is done above, by
//! [`Cast`]. The exception is an f32 beside a 16-bit float: all is computed in f32 there, so a number that the narrow dtype
//! cannot hold, such as a factor of 1e-8, enters as it is, and the result alone is rounded. All take any strides, broadcast
//! by strides alone, and work in place where shapes agree.

mod arange;
mod binary;
mod binary_table;
mod cast;
mod clamp;
mod compare;
mod expression;
mod fill;
mod fused;
mod fused_matmul;
mod fused_reduce;
mod loops;
mod math;
mod samples;
mod tile;
mod unary;
mod unary_table;
mod where_op;

pub use arange::Arange;
pub use binary::Binary;
pub use binary_table::BinaryFn;
pub use cast::Cast;
pub use clamp::Clamp;
pub use compare::{Compare, CompareFn};
pub use fill::Fill;
pub use fused::{Fused, FusedStep, Pointwise};
pub use fused_matmul::FusedMatMul;
pub use fused_reduce::FusedReduce;
pub use unary::Unary;
pub use unary_table::UnaryFn;
pub use where_op::Where;

use remat_kernels::pointwise::Operand;
use remat_types::{DType, Error, ErrorKind, Fact, Result, Shape, Storage};

use crate::In;
use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] =
    entries![Arange, Binary, Cast, Clamp, Compare, Fill, Fused, FusedMatMul, FusedReduce, Unary, Where];

/// Input `x` as an operand of an output of shape `y`.
pub(crate) fn operand<'a, T: Storage>(x: &In<'a>, y: &Shape) -> Result<Operand<'a, T>> {
    if x.is_donated() {
        return Ok(Operand::Held);
    }
    let data = x.storage::<T>()?;
    if x.shape() == y {
        return Ok(Operand::new(data, x.layout()));
    }
    Ok(Operand::new(data, &x.layout().broadcast_to(y)?))
}

/// The broadcast shape of all inputs, checked to be addressable.
fn broadcast(x: &[&Fact]) -> Result<Shape> {
    let Some((first, rest)) = x.split_first() else { return Ok(Shape::scalar()) };
    let mut shape = first.shape.clone();
    for x in rest {
        shape = shape.broadcast(&x.shape)?;
    }
    shape.checked_elems()?;
    Ok(shape)
}

/// The dtype that `a` and `b` are computed to: theirs, or that of a 16-bit float beside an f32, which enters unrounded.
/// Errors: DType for two others.
fn joint_dtype(a: &Fact, b: &Fact) -> Result<DType> {
    let is_half = |d| matches!(d, DType::F16 | DType::BF16);
    match (a.dtype, b.dtype) {
        (DType::F32, half) | (half, DType::F32) if is_half(half) => Ok(half),
        _ => same_dtype(a, b).map(|()| a.dtype),
    }
}

/// Errors (DType) unless `a` and `b` have one dtype.
fn same_dtype(a: &Fact, b: &Fact) -> Result<()> {
    if a.dtype != b.dtype {
        return Err(Error::new(ErrorKind::DType, format!("dtypes {} and {} differ", a.dtype, b.dtype)));
    }
    Ok(())
}

fn not_defined(dtype: DType) -> Error {
    Error::new(ErrorKind::DType, format!("is not defined for {dtype}"))
}
