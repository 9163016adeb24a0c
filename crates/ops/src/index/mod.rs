//! Selecting elements by index tensors, and putting elements where they say. Indices are of any integer dtype, below the
//! extent, and not negative unless an op has a parameter that lets them count from the end; a bad one is an error of kind Index
//! that names its position and value.

mod index_op;
mod index_put;
mod nonzero;
mod one_hot;
mod places;
mod put_fn;
mod scatter;
mod take;
mod take_along;

pub use index_op::Index;
pub use index_put::IndexPut;
pub use nonzero::NonZero;
pub use one_hot::OneHot;
pub use put_fn::PutFn;
pub(crate) use put_fn::added_to_zeros;
pub use scatter::Scatter;
pub use take::{Take, TakeGrad};
pub use take_along::TakeAlong;

use remat_kernels::index::{BadIndex, Indices};
use remat_types::{DType, Error, ErrorKind, Fact, Result, Shape};

use crate::op::{Entry, entries};
use crate::pointwise::Cast;
use crate::{GradCx, In, OpRef, Var};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![Index, IndexPut, NonZero, OneHot, Scatter, Take, TakeAlong, TakeGrad];

/// The elements of input `x` in row-major order, as indices. Errors: Internal for another dtype, which inference refuses.
pub(crate) fn indices<'a>(x: &In<'a>) -> Result<Indices<'a>> {
    let whole = indices_in(x)?;
    let (at, len) = (x.layout().offset(), x.layout().elems());
    if !x.layout().is_contiguous() {
        return Err(Error::new(ErrorKind::Internal, "strided indices read as a slice"));
    }
    Ok(whole.part(at..at + len))
}

/// The whole storage of input `x` as indices, to be read through its layout. Errors: as [`indices`].
fn indices_in<'a>(x: &In<'a>) -> Result<Indices<'a>> {
    Ok(match x.dtype() {
        DType::I8 => Indices::I8(x.storage()?),
        DType::I16 => Indices::I16(x.storage()?),
        DType::I32 => Indices::I32(x.storage()?),
        DType::I64 => Indices::I64(x.storage()?),
        DType::U8 => Indices::U8(x.storage()?),
        DType::U16 => Indices::U16(x.storage()?),
        DType::U32 => Indices::U32(x.storage()?),
        DType::U64 => Indices::U64(x.storage()?),
        other => return Err(Error::new(ErrorKind::Internal, format!("indices of {other}"))),
    })
}

/// Errors (DType) unless `index` is of an integer dtype.
pub(crate) fn is_index(index: &Fact) -> Result<()> {
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

pub(crate) fn bad_index(bad: BadIndex, extent: usize) -> Error {
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

/// Applies the gradient of [`Take`] to `dy`; a 16-bit float is added up in f32 and rounded once.
pub(crate) fn scatter_add(cx: &GradCx<'_>, op: impl Into<OpRef>, dy: Var, index: Var) -> Result<Var> {
    let dtype = cx.fact(dy).dtype;
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return cx.apply(op, &[dy, index]);
    }
    let wide = cx.apply(Cast { dtype: DType::F32 }, &[dy])?;
    let sum = cx.apply(op, &[wide, index])?;
    cx.apply(Cast { dtype }, &[sum])
}
