//! The workspace as the library's stack.

use std::mem::MaybeUninit;

use faer::dyn_stack::{MemStack, StackReq};

/// Bytes that satisfy a request wherever they begin.
pub(crate) fn bytes(request: StackReq) -> usize {
    request.unaligned_bytes_required()
}

/// A stack over the bytes, whose content is of no use afterwards.
pub(crate) fn stack(bytes: &mut [u8]) -> &mut MemStack {
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`. Through the stack only numbers without padding are written (f32, f64
    // and usize), so that every byte stays initialised.
    let bytes = unsafe { &mut *(std::ptr::from_mut::<[u8]>(bytes) as *mut [MaybeUninit<u8>]) };
    MemStack::new(bytes)
}
