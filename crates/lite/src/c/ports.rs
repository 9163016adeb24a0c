//! Inputs and outputs of a network, as C reads them.

use std::ffi::{CString, c_char};
use std::mem::offset_of;
use std::ptr;

use crate::{Extent, Port, ValueType};

use super::border::{Versioned, c_text};
use super::dtype::remat_dtype;

/// The kind of an input or output.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum remat_kind {
    /// Something else, or the model does not say.
    REMAT_KIND_UNKNOWN = 0,
    /// A tensor.
    REMAT_KIND_TENSOR = 1,
    /// Strings.
    REMAT_KIND_TEXT = 2,
    /// A sequence.
    REMAT_KIND_SEQUENCE = 3,
    /// A value, or none.
    REMAT_KIND_OPTIONAL = 4,
}

use remat_kind::*;

/// An input or an output of a network. What it points to belongs to the network, and stays until that is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct remat_port {
    /// sizeof(remat_port), set by the caller.
    pub struct_size: usize,
    /// Its name.
    pub name: *const c_char,
    /// Its type for people, as "f32[batch, 3, 224, 224]".
    pub text: *const c_char,
    /// Its extents: a number, or -1 where the model leaves one open. NULL if there are none.
    pub extents: *const i64,
    /// The names of its extents, as "batch"; NULL for one that is fixed or has no name.
    pub symbols: *const *const c_char,
    /// How many extents it has; -1 if the model does not say, or it is no tensor.
    pub rank: i64,
    /// Its kind.
    pub kind: remat_kind,
    /// The type of its elements; REMAT_DTYPE_NONE if it is no tensor, or of a type that Remat does not have.
    pub dtype: remat_dtype,
}

// SAFETY: numbers of 32 bits come in pairs, so there is no padding.
unsafe impl Versioned for remat_port {
    const NAME: &str = "remat_port";
    const FIRST_BYTES: usize = offset_of!(remat_port, dtype) + size_of::<remat_dtype>();
}

/// A port with its texts as C reads them.
#[derive(Debug)]
pub(super) struct CPort {
    pub(super) name: CString,
    text: CString,
    kind: remat_kind,
    dtype: remat_dtype,
    rank: i64,
    extents: Vec<i64>,
    /// Into `named`, which never changes.
    symbols: Vec<*const c_char>,
    named: Vec<CString>,
}

// SAFETY: the pointers are to text of the same value, which lies on the heap and is never written.
unsafe impl Send for CPort {}
// SAFETY: as for `Send`.
unsafe impl Sync for CPort {}

impl CPort {
    pub(super) fn new(port: &Port) -> CPort {
        let (kind, dtype, declared) = match &port.ty {
            ValueType::Tensor(dtype, extents) => (REMAT_KIND_TENSOR, *dtype, extents.as_deref()),
            ValueType::Text => (REMAT_KIND_TEXT, None, None),
            ValueType::Sequence(_) => (REMAT_KIND_SEQUENCE, None, None),
            ValueType::Optional(_) => (REMAT_KIND_OPTIONAL, None, None),
            ValueType::Unknown => (REMAT_KIND_UNKNOWN, None, None),
        };
        let mut made = CPort {
            name: c_text(&port.name),
            text: c_text(&port.ty.to_string()),
            kind,
            dtype: dtype.into(),
            rank: declared.map_or(-1, |d| as_i64(d.len())),
            extents: Vec::new(),
            symbols: Vec::new(),
            named: Vec::new(),
        };
        for e in declared.unwrap_or(&[]) {
            made.extents.push(e.fixed().map_or(-1, as_i64));
            made.symbols.push(match e {
                Extent::Named(name) => {
                    let name = c_text(name);
                    // text of a `CString` stays where it is when that moves
                    let at = name.as_ptr();
                    made.named.push(name);
                    at
                }
                _ => ptr::null(),
            });
        }
        made
    }

    pub(super) fn seen(&self) -> remat_port {
        let is_empty = self.extents.is_empty();
        remat_port {
            struct_size: 0,
            name: self.name.as_ptr(),
            text: self.text.as_ptr(),
            extents: if is_empty { ptr::null() } else { self.extents.as_ptr() },
            symbols: if is_empty { ptr::null() } else { self.symbols.as_ptr() },
            rank: self.rank,
            kind: self.kind,
            dtype: self.dtype,
        }
    }
}

/// A number of elements for C: more than an address space has is not to be had.
pub(super) fn as_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
