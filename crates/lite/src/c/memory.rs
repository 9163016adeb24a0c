//! Where the memory of sessions comes from.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use remat_runtime::{Allocate, SessionMemory, Workspace};
use remat_types::{Error, ErrorKind};

use super::border::is_addressable;
use super::status::{Done, Failed, guard_or};

/// Gives memory of at least so many bytes, of any alignment, or NULL if there is none. It is called on whatever thread makes or runs a
/// session, and must return: no exception and no longjmp may leave it.
pub type remat_allocate = Option<unsafe extern "C" fn(user: *mut c_void, bytes: usize) -> *mut c_void>;

/// Takes memory back, with the bytes that it was asked for, on any thread.
pub type remat_deallocate = Option<unsafe extern "C" fn(user: *mut c_void, memory: *mut c_void, bytes: usize)>;

/// Workspace that sessions share, of one network or of several: they wait for each other, and take the bytes of the largest instead of
/// all.
pub struct remat_workspace(pub(super) Workspace);

/// A workspace for remat_options, to be freed with remat_workspace_free; networks and sessions keep it. NULL without memory.
#[unsafe(no_mangle)]
pub extern "C" fn remat_workspace_new() -> *mut remat_workspace {
    guard_or(std::ptr::null_mut(), || Ok(Box::into_raw(Box::new(remat_workspace(Workspace::new())))))
}

/// Frees the handle; the memory goes with the last session that has it. NULL is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_workspace_free(workspace: *mut remat_workspace) {
    if !workspace.is_null() {
        guard_or((), || {
            // SAFETY: of `remat_workspace_new`, and freed once, by the caller's promise.
            drop(unsafe { Box::from_raw(workspace) });
            Ok(())
        });
    }
}

/// The caller's two functions.
#[derive(Clone, Copy)]
struct Allocator {
    allocate: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    deallocate: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
    user: *mut c_void,
}

// SAFETY: `user` is only given back to the caller's functions, which the header says are called on any thread.
unsafe impl Send for Allocator {}
// SAFETY: as for `Send`.
unsafe impl Sync for Allocator {}

/// Memory of the caller's, which goes back when this goes.
struct Lent {
    at: NonNull<u8>,
    bytes: usize,
    from: Allocator,
}

// SAFETY: it owns its memory, and its allocator is `Send`.
unsafe impl Send for Lent {}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes, this value's alone, by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: so many bytes, this value's alone, by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.bytes) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: of the same allocator, with the same number of bytes.
        unsafe { (self.from.deallocate)(self.from.user, self.at.as_ptr().cast(), self.bytes) }
    }
}

/// The allocator of the caller's options, if it has one. Errors (Value): one of the two functions without the other.
///
/// # Safety
///
/// The functions are what the header says, and stay until the last network and session with them are freed.
pub(super) unsafe fn allocator(
    allocate: remat_allocate,
    deallocate: remat_deallocate,
    user: *mut c_void,
) -> Done<Option<Allocate>> {
    let from = match (allocate, deallocate) {
        (None, None) => return Ok(None),
        (Some(allocate), Some(deallocate)) => Allocator { allocate, deallocate, user },
        _ => return Err(Failed::value("options `allocate` and `deallocate` go together: one of them is NULL")),
    };
    Ok(Some(Arc::new(move |bytes| {
        let none = |text: String| Error::new(ErrorKind::Io, text);
        is_addressable::<u8>(bytes, "memory").map_err(|_| none(format!("{bytes} bytes of memory")))?;
        let from: Allocator = from;
        // SAFETY: a function of the caller's for its own `user`.
        let at = unsafe { (from.allocate)(from.user, bytes) }.cast::<u8>();
        let at = NonNull::new(at).ok_or_else(|| none(format!("the allocator has no {bytes} bytes")))?;
        // what is not written yet is read by nobody; a byte of it is still to have some value
        // SAFETY: so many bytes, by the caller's promise.
        unsafe { at.write_bytes(0, bytes) };
        Ok(Box::new(Lent { at, bytes, from }) as SessionMemory)
    })))
}
