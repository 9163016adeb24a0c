//! Selecting elements by an index tensor. Indices are of any integer dtype, not negative, below the extent; a bad one is
//! an error of kind Index that names its position and value.

mod nonzero;
mod one_hot;
mod take;
mod take_along;

pub use nonzero::NonZero;
pub use one_hot::OneHot;
pub use take::{Take, TakeGrad};
pub use take_along::{TakeAlong, TakeAlongGrad};

use remat_kernels::index::{BadIndex, Indices};
use remat_types::{DType, Error, ErrorKind, Fact, Result, Shape};

use crate::pointwise::Cast;
use crate::{GradCx, In, OpRef, Var};

/// Input `x` as indices. Errors: Internal for another dtype, which inference refuses.
fn indices<'a>(x: &In<'a>) -> Result<Indices<'a>> {
    Ok(match x.dtype() {
        DType::I8 => Indices::I8(x.slice()?),
        DType::I16 => Indices::I16(x.slice()?),
        DType::I32 => Indices::I32(x.slice()?),
        DType::I64 => Indices::I64(x.slice()?),
        DType::U8 => Indices::U8(x.slice()?),
        DType::U16 => Indices::U16(x.slice()?),
        DType::U32 => Indices::U32(x.slice()?),
        DType::U64 => Indices::U64(x.slice()?),
        other => return Err(Error::new(ErrorKind::Internal, format!("indices of {other}"))),
    })
}

/// Errors (DType) unless `index` is of an integer dtype.
fn is_index(index: &Fact) -> Result<()> {
    if !index.dtype.is_int() {
        return Err(Error::new(ErrorKind::DType, format!("indices are {}, not integers", index.dtype)));
    }
    Ok(())
}

/// Errors (Axis) unless `axis` is below the rank.
fn axis_in(axis: usize, shape: &Shape) -> Result<()> {
    if axis >= shape.rank() {
        return Err(Error::new(ErrorKind::Axis, format!("axis {axis} is out of range for rank {}", shape.rank())));
    }
    Ok(())
}

fn bad_index(bad: BadIndex, extent: usize) -> Error {
    let text = format!("index {} at position {} is not in 0..{extent}", bad.value, bad.position);
    Error::new(ErrorKind::Index, text)
}

/// Errors (DType) for bools, which do not add up.
fn addable(x: &Fact) -> Result<()> {
    if x.dtype == DType::Bool {
        return Err(Error::new(ErrorKind::DType, "bools do not add up"));
    }
    Ok(())
}

/// Applies a scatter-add to `dy`; a 16-bit float is added up in f32 and rounded once.
fn scatter_add(cx: &GradCx<'_>, op: impl Into<OpRef>, dy: Var, index: Var) -> Result<Var> {
    let dtype = cx.fact(dy).dtype;
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return cx.apply(op, &[dy, index]);
    }
    let wide = cx.apply(Cast { dtype: DType::F32 }, &[dy])?;
    let sum = cx.apply(op, &[wide, index])?;
    cx.apply(Cast { dtype }, &[sum])
}
