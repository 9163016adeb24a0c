//! The results of a session: outputs and figures.

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::ptr;

use super::border::{Versioned, text, write};
use super::dtype::remat_dtype;
use super::ports::as_i64;
use super::session::{OutputState, entered, kept, remat_session};
use super::status::{Done, Failed, guard, remat_status};

/// A tensor to read, row-major. What it points to belongs to the session, and stays until its next run begins or it is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct remat_tensor {
    /// sizeof(remat_tensor), set by the caller.
    pub struct_size: usize,
    /// Its elements. NULL from remat_session_output_type.
    pub data: *const c_void,
    /// Bytes of all elements.
    pub bytes: usize,
    /// Its extents.
    pub dims: *const i64,
    /// How many extents it has.
    pub rank: usize,
    /// The type of its elements.
    pub dtype: remat_dtype,
    /// 0.
    pub reserved: i32,
}

// SAFETY: numbers of 32 bits come in pairs, so there is no padding.
unsafe impl Versioned for remat_tensor {
    const NAME: &str = "remat_tensor";
    const FIRST_BYTES: usize = offset_of!(remat_tensor, reserved) + size_of::<i32>();
}

/// Bytes of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct remat_memory {
    /// sizeof(remat_memory), set by the caller.
    pub struct_size: usize,
    /// Weights and other constants, which all sessions of the same shapes share.
    pub constant_bytes: usize,
    /// Inputs and outputs.
    pub io_bytes: usize,
    /// Bytes that live only within a run. For a model that is no single graph: the most bytes at once.
    pub workspace_bytes: usize,
    /// All of them: what the budget is compared with.
    pub total_bytes: usize,
    /// Calls that a run makes again to keep to the budget.
    pub recomputed_calls: usize,
    /// Weights that do not fit the budget and that runs read from a file when they need them; no part of total_bytes.
    pub stored_bytes: usize,
}

// SAFETY: of numbers alone.
unsafe impl Versioned for remat_memory {
    const NAME: &str = "remat_memory";
    const FIRST_BYTES: usize = offset_of!(remat_memory, recomputed_calls) + size_of::<usize>();
}

/// An output of the last run. The caller sets the tensor's struct_size before.
///
/// Errors: REMAT_VALUE for an unknown name, and an output that is no tensor; REMAT_NO_VALUE before a run, after one that failed, and if
/// the run wrote it to the caller's memory; REMAT_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_output(
    session: *mut remat_session,
    name: *const c_char,
    tensor: *mut remat_tensor,
) -> remat_status {
    // SAFETY: what the header asks for.
    guard(|| unsafe { output(session, name, tensor, true) })
}

/// Type and shape of an output, without its elements: known before a run, unless sizes follow from values
/// (remat_session_is_planned). The tensor's struct_size is set before.
///
/// Errors: as remat_session_output.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_output_type(
    session: *mut remat_session,
    name: *const c_char,
    tensor: *mut remat_tensor,
) -> remat_status {
    // SAFETY: what the header asks for.
    guard(|| unsafe { output(session, name, tensor, false) })
}

/// # Safety
///
/// `session` is NULL or alive, `name` NULL or text, `tensor` NULL or a struct of the size that it says.
unsafe fn output(session: *mut remat_session, name: *const c_char, tensor: *mut remat_tensor, with_data: bool) -> Done {
    // SAFETY: the caller's promise.
    let (session, name) = unsafe { (kept(session)?, text(name, "name")?) };
    let (_entered, mut inner) = entered(&session)?;
    let inner = &mut *inner;
    let j = inner.output(name)?;
    let none = |why: &str| Err(Failed::new(remat_status::REMAT_NO_VALUE, format!("output `{name}`: {why}")));
    match inner.values[j] {
        OutputState::Session => {}
        OutputState::None if with_data || !session.is_planned => {
            return none("there was no run yet, or the last one failed");
        }
        OutputState::Caller if with_data => return none("the last run wrote it to memory of the caller's"),
        _ => {}
    }
    let name = inner.session.outputs()[j].clone();
    let view = inner.session.output(&name)?;
    let dims = inner.dims[j].get_or_insert_with(|| view.shape.dims().iter().map(|n| as_i64(*n)).collect());
    let seen = remat_tensor {
        struct_size: 0,
        data: if with_data { view.bytes.as_ptr().cast() } else { ptr::null() },
        bytes: view.bytes.len(),
        dims: dims.as_ptr(),
        rank: dims.len(),
        dtype: Some(view.dtype).into(),
        reserved: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { write(tensor, seen) }
}

/// The memory of a session. The caller sets the struct's struct_size before. Errors: REMAT_BUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_session_memory(session: *mut remat_session, memory: *mut remat_memory) -> remat_status {
    guard(|| {
        // SAFETY: what the header asks for.
        let session = unsafe { kept(session) }?;
        let (_entered, mut inner) = entered(&session)?;
        let m = inner.session.memory()?;
        let seen = remat_memory {
            struct_size: 0,
            constant_bytes: m.constant_bytes,
            io_bytes: m.io_bytes,
            workspace_bytes: m.workspace_bytes,
            total_bytes: m.total_bytes(),
            recomputed_calls: m.recomputed_calls,
            stored_bytes: m.stored_bytes,
        };
        // SAFETY: what the header asks for.
        unsafe { write(memory, seen) }
    })
}
