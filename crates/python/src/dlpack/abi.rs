//! The structures of DLPack 1.0, as `dlpack.h` lays them out.

use std::ffi::{CStr, c_void};

use remat::DType;

/// The major version that this module knows. Another one may have other structures.
pub(super) const MAJOR: u32 = 1;
pub(super) const MINOR: u32 = 0;
/// `kDLCPU`.
pub(super) const CPU: i32 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`.
pub(super) const IS_COPIED: u64 = 1 << 1;

/// The names of a versioned capsule: before a consumer takes its content, and after.
pub(super) const VERSIONED: &CStr = c"dltensor_versioned";
pub(super) const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
/// The names of a capsule of the form before 1.0: before a consumer takes its content, and after.
pub(super) const PLAIN: &CStr = c"dltensor";
pub(super) const USED_PLAIN: &CStr = c"used_dltensor";

#[repr(C)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

#[repr(C)]
pub(super) struct DlDevice {
    pub(super) kind: i32,
    pub(super) id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DlType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

#[repr(C)]
pub(super) struct DlTensor {
    pub(super) data: *mut c_void,
    pub(super) device: DlDevice,
    pub(super) ndim: i32,
    pub(super) dtype: DlType,
    pub(super) shape: *mut i64,
    pub(super) strides: *mut i64,
    pub(super) byte_offset: u64,
}

/// The form before 1.0.
#[repr(C)]
pub(super) struct Managed {
    pub(super) tensor: DlTensor,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
pub(super) struct ManagedVersioned {
    pub(super) version: Version,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    pub(super) flags: u64,
    pub(super) tensor: DlTensor,
}

/// `kDLInt`, `kDLUInt`, `kDLFloat`, `kDLBfloat`, `kDLBool`.
pub(super) fn type_of(d: DType) -> DlType {
    let code = match d {
        DType::BF16 => 4,
        DType::Bool => 6,
        d if d.is_float() => 2,
        d if d.is_signed_int() => 0,
        _ => 1,
    };
    // no dtype is wider than 8 bytes
    DlType { code, bits: 8 * d.size_bytes() as u8, lanes: 1 }
}

/// The dtype of a type code; `None` if there is none.
pub(super) fn dtype_of(t: DlType) -> Option<DType> {
    DType::ALL.into_iter().find(|d| {
        let own = type_of(*d);
        (own.code, own.bits, own.lanes) == (t.code, t.bits, t.lanes)
    })
}
