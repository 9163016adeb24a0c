//! An allocator that counts, and ends the process where a reader takes more than the file pays for.
//!
//! `within` runs a reader under a limit. The one limit of the process is enough: a target reads one file at a time, and other
//! threads are idle then.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[global_allocator]
static HEAP: Heap = Heap;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The largest share of a limit that was taken, in thousandths.
static RECORD: AtomicUsize = AtomicUsize::new(100);

struct Heap;

fn took(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    MOST.fetch_max(live, Relaxed);
    LARGEST.fetch_max(bytes, Relaxed);
    let limit = LIMIT.load(Relaxed);
    if live > limit {
        // what tells of it allocates too
        LIMIT.store(usize::MAX, Relaxed);
        eprintln!("a request of {bytes} bytes makes {live}, of at most {limit}");
        std::process::abort();
    }
}

// SAFETY: all requests go to the system's allocator as they are.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // both may be there at once
        took(bytes);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Runs `f` and returns its result. The process ends if `f` holds more than `multiple` bytes for each byte of a file, plus
/// `constant` bytes. Each new record of the share that was taken goes to the standard error stream.
pub fn within<T>(what: &str, multiple: usize, constant: usize, file_bytes: usize, f: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Relaxed);
    let limit = file_bytes.saturating_mul(multiple).saturating_add(constant);
    MOST.store(before, Relaxed);
    LARGEST.store(0, Relaxed);
    LIMIT.store(before.saturating_add(limit), Relaxed);
    let y = f();
    LIMIT.store(usize::MAX, Relaxed);
    let most = MOST.load(Relaxed).saturating_sub(before);
    let share = most.saturating_mul(1000) / limit;
    if RECORD.fetch_max(share, Relaxed) < share {
        let largest = LARGEST.load(Relaxed);
        eprintln!("{what}: {most} bytes at once, {largest} in one request, for a file of {file_bytes}: {share}/1000");
    }
    y
}
