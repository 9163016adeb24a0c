//! The numbers that a dtype holds.

use remat_types::{DType, Error, ErrorKind, Result, bf16, f16};

/// The largest finite number of a float. Errors: DType for other than floats.
pub(super) fn largest(dtype: DType) -> Result<f64> {
    match dtype {
        DType::F16 => Ok(f16::MAX.to_f64()),
        DType::BF16 => Ok(bf16::MAX.to_f64()),
        DType::F32 => Ok(f64::from(f32::MAX)),
        DType::F64 => Ok(f64::MAX),
        other => Err(Error::new(ErrorKind::DType, format!("{other} is no float"))),
    }
}
