//! What writer and reader agree on.

use remat_types::{DType, Error, ErrorKind};
use safetensors::Dtype;

/// The version of the metadata.
pub(super) const VERSION: u64 = 1;
/// The key of our metadata within the file's.
pub(super) const KEY: &str = "remat";
/// What precedes names of parameters and buffers.
pub(super) const MODEL: &str = "model.";
/// What precedes names of an optimiser's state.
pub(super) const OPTIMIZER: &str = "optimizer.";

/// The file's names of dtypes.
const DTYPES: [(DType, Dtype); 13] = [
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::I8, Dtype::I8),
    (DType::I16, Dtype::I16),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U8, Dtype::U8),
    (DType::U16, Dtype::U16),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::Bool, Dtype::BOOL),
];

/// The file's name of a dtype.
pub(super) fn to_file(dtype: DType) -> Option<Dtype> {
    DTYPES.iter().find(|d| d.0 == dtype).map(|d| d.1)
}

/// The dtype of a file's name, if there is one here.
pub(super) fn from_file(dtype: Dtype) -> Option<DType> {
    DTYPES.iter().find(|d| d.1 == dtype).map(|d| d.0)
}

pub(super) fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}
