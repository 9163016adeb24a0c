//! Pinned memory of the host.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// The alignment of pinned memory: a page.
const ALIGN_BYTES: usize = 4096;

/// Memory that work of the device may still hold when the user has freed it.
#[derive(Debug)]
pub(super) struct Block {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block is memory alone. Whoever reads and writes it keeps to the order that the driver's user owes.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// So many bytes, and at least one. `None` if the host has not as many.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN_BYTES).ok()?;
        // SAFETY: the layout is not of size 0.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block { pointer, layout })
    }

    pub(super) fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    pub(super) fn address(&self) -> u64 {
        self.pointer.addr().get() as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Copies from the bytes at `at`. Panics if they are not within.
    ///
    /// # Safety
    ///
    /// Nobody writes them at the same time.
    pub(super) unsafe fn read(&self, at: usize, out: &mut [u8]) {
        assert!(at <= self.bytes() && out.len() <= self.bytes() - at, "a read outside of pinned memory");
        // SAFETY: the range is within, as asserted, and was filled at the allocation; nobody writes it, as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(self.pointer().add(at), out.as_mut_ptr(), out.len()) };
    }

    /// Copies to the bytes at `at`. Panics if they are not within.
    ///
    /// # Safety
    ///
    /// Nobody uses them at the same time.
    pub(super) unsafe fn write(&self, at: usize, data: &[u8]) {
        assert!(at <= self.bytes() && data.len() <= self.bytes() - at, "a write outside of pinned memory");
        // SAFETY: the range is within, as asserted; nobody uses it, as the caller says.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.pointer().add(at), data.len()) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nothing else frees it.
        unsafe { dealloc(self.pointer(), self.layout) };
    }
}
