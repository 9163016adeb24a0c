//! Views of values in the memory of a run, for observers.

use remat_types::{DType, Error, ErrorKind, HostTensor, Result, Shape, Storage};

/// A value in the memory of a run: row-major elements.
#[derive(Clone, Copy, Debug)]
pub struct ValueView<'v> {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: &'v Shape,
    /// The elements' bytes.
    pub bytes: &'v [u8],
}

impl<'v> ValueView<'v> {
    /// The elements. Errors (Value): another type.
    pub fn as_slice<T: Storage>(&self) -> Result<&'v [T]> {
        if !T::stores(self.dtype) {
            return Err(Error::new(ErrorKind::Value, format!("a value of {} read as another type", self.dtype)));
        }
        Ok(bytemuck::cast_slice(self.bytes))
    }

    /// A copy. Errors: those of [`HostTensor::from_bytes`].
    pub fn to_host(&self) -> Result<HostTensor> {
        HostTensor::from_bytes(self.dtype, self.shape.clone(), self.bytes)
    }
}
