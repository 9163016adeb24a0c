//! Element types.

use std::ffi::{CStr, c_char};

use remat_types::DType;

use super::status::{Done, Failed, remat_status};

/// The type of a tensor's elements.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum remat_dtype {
    /// None: no tensor, or a type that Remat does not have.
    REMAT_DTYPE_NONE = 0,
    /// IEEE 754 binary16.
    REMAT_F16 = 1,
    /// The upper half of an IEEE 754 binary32.
    REMAT_BF16 = 2,
    /// float.
    REMAT_F32 = 3,
    /// double.
    REMAT_F64 = 4,
    /// int8_t.
    REMAT_I8 = 5,
    /// int16_t.
    REMAT_I16 = 6,
    /// int32_t.
    REMAT_I32 = 7,
    /// int64_t.
    REMAT_I64 = 8,
    /// uint8_t.
    REMAT_U8 = 9,
    /// uint16_t.
    REMAT_U16 = 10,
    /// uint32_t.
    REMAT_U32 = 11,
    /// uint64_t.
    REMAT_U64 = 12,
    /// A byte that is 0 or 1.
    REMAT_BOOL = 13,
}

use remat_dtype::*;

const PAIRS: [(remat_dtype, DType, &CStr); 13] = [
    (REMAT_F16, DType::F16, c"f16"),
    (REMAT_BF16, DType::BF16, c"bf16"),
    (REMAT_F32, DType::F32, c"f32"),
    (REMAT_F64, DType::F64, c"f64"),
    (REMAT_I8, DType::I8, c"i8"),
    (REMAT_I16, DType::I16, c"i16"),
    (REMAT_I32, DType::I32, c"i32"),
    (REMAT_I64, DType::I64, c"i64"),
    (REMAT_U8, DType::U8, c"u8"),
    (REMAT_U16, DType::U16, c"u16"),
    (REMAT_U32, DType::U32, c"u32"),
    (REMAT_U64, DType::U64, c"u64"),
    (REMAT_BOOL, DType::Bool, c"bool"),
];

impl From<Option<DType>> for remat_dtype {
    fn from(dtype: Option<DType>) -> remat_dtype {
        PAIRS.iter().find(|p| Some(p.1) == dtype).map_or(REMAT_DTYPE_NONE, |p| p.0)
    }
}

/// The dtype of a number of the caller's, `None` for `REMAT_DTYPE_NONE`. Errors (DType): none of that number.
pub(super) fn dtype_of(number: i32) -> Done<Option<DType>> {
    if number == REMAT_DTYPE_NONE as i32 {
        return Ok(None);
    }
    let found = PAIRS.iter().find(|p| p.0 as i32 == number);
    let wrong = || Failed::new(remat_status::REMAT_DTYPE, format!("{number} is no remat_dtype"));
    found.map(|p| Some(p.1)).ok_or_else(wrong)
}

/// Bytes of an element; 0 for a number that is no dtype.
#[unsafe(no_mangle)]
pub extern "C" fn remat_dtype_size(dtype: i32) -> usize {
    dtype_of(dtype).ok().flatten().map_or(0, DType::size_bytes)
}

/// The name of a dtype, as "f32"; "none" for a number that is no dtype. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn remat_dtype_name(dtype: i32) -> *const c_char {
    PAIRS.iter().find(|p| p.0 as i32 == dtype).map_or(c"none", |p| p.2).as_ptr()
}
