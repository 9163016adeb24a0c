//! Checks of arguments that many ops make, with one wording.

use bytemuck::Pod;
use remat_types::{DType, Error, ErrorKind, Fact, Result, Scalar, Shape};

/// Errors (DType) unless `f` is a float.
pub(crate) fn want_float(f: &Fact, name: &str) -> Result<()> {
    if !f.dtype.is_float() {
        return Err(Error::new(ErrorKind::DType, format!("{name} is {}, not a float", f.dtype)));
    }
    Ok(())
}

/// Errors (DType) unless `f` is an integer.
pub(crate) fn want_int(f: &Fact, name: &str) -> Result<()> {
    if !f.dtype.is_int() {
        return Err(Error::new(ErrorKind::DType, format!("{name} is {}, not an integer", f.dtype)));
    }
    Ok(())
}

/// Errors (DType) unless `f` is of `dtype`.
pub(crate) fn want_dtype(f: &Fact, dtype: DType, name: &str) -> Result<()> {
    if f.dtype != dtype {
        return Err(Error::new(ErrorKind::DType, format!("{name} is {}, not {dtype}", f.dtype)));
    }
    Ok(())
}

/// Errors (Shape) unless `f` has exactly `shape`.
pub(crate) fn want_shape(f: &Fact, shape: &[usize], name: &str) -> Result<()> {
    if f.shape.dims() != shape {
        return Err(Error::new(ErrorKind::Shape, format!("{name} has shape {}, not {shape:?}", f.shape)));
    }
    Ok(())
}

/// Dtype and shape of `like`. Errors: DType, Shape.
pub(crate) fn want_like(f: &Fact, like: &Fact, name: &str) -> Result<()> {
    want_dtype(f, like.dtype, name)?;
    want_shape(f, &like.shape, name)
}

/// Errors (Axis) unless `f` has `rank` axes.
pub(crate) fn want_rank(f: &Fact, rank: usize, name: &str) -> Result<()> {
    if f.rank() != rank {
        return Err(Error::new(
            ErrorKind::Axis,
            format!("{name} has shape {}: rank {}, not {rank}", f.shape, f.rank()),
        ));
    }
    Ok(())
}

/// `v` as f64. Errors (Value) unless `ok` holds for it; a NaN must fail `ok`.
pub(crate) fn number(v: Scalar, name: &str, must: &str, ok: impl Fn(f64) -> bool) -> Result<f64> {
    let x = v.to_f64();
    if !ok(x) {
        return Err(Error::new(ErrorKind::Value, format!("{name} is {x}; it must be {must}")));
    }
    Ok(x)
}

/// An epsilon: finite and not negative. Errors: Value.
pub(crate) fn epsilon(v: Scalar) -> Result<f64> {
    number(v, "eps", "finite and not negative", |x| x >= 0.0 && x.is_finite())
}

/// A probability. Errors: Value.
pub(crate) fn probability(v: Scalar, name: &str) -> Result<f64> {
    number(v, name, "within 0 ..= 1", |x| (0.0..=1.0).contains(&x))
}

/// The dtype in which kernels compute on `dtype`: f64 for f64, else f32.
pub(crate) fn real_dtype(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// A fact whose shape is checked to be addressable. Errors: Shape.
pub(crate) fn checked_fact(dtype: DType, shape: impl Into<Shape>) -> Result<Fact> {
    let shape = shape.into();
    shape.checked_elems()?;
    Ok(Fact::new(dtype, shape))
}

/// An error of kind DType that names the dtype an op does not take.
pub(crate) fn not_taken(dtype: DType) -> Error {
    Error::new(ErrorKind::DType, format!("is not defined for {dtype}"))
}

/// The first `elems` items of a workspace. Errors (Internal) if it is too small, which only a wrong `workspace()` does.
pub(crate) fn items_of<T: Pod>(workspace: &mut [u8], elems: usize) -> Result<&mut [T]> {
    let bytes = elems * size_of::<T>();
    let have = workspace.len();
    workspace
        .get_mut(..bytes)
        .and_then(|w| bytemuck::try_cast_slice_mut(w).ok())
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("the workspace has {have} bytes, not {bytes}")))
}

/// The error of a gradient that no rule gives.
pub(crate) fn not_differentiable(what: &str) -> Error {
    Error::new(ErrorKind::NotDifferentiable, format!("{what} is not differentiable"))
}

/// The outputs as an array, so that several can be borrowed at once. Errors: Internal.
pub(crate) fn outputs<'a, 'b, const N: usize>(y: &'a mut [crate::Out<'b>]) -> Result<&'a mut [crate::Out<'b>; N]> {
    let have = y.len();
    y.try_into().map_err(|_| Error::new(ErrorKind::Internal, format!("{have} outputs, not {N}")))
}
