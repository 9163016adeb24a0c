//! What the interpreter drops, above all when it ends.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use crate::call;

/// Set when the interpreter ends.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Says that the interpreter ends: what is queued then is waited for no more.
#[pyfunction]
pub(crate) fn exiting() {
    EXITING.store(true, Ordering::Relaxed);
}

/// For what is about to be dropped by the interpreter: waits of its last owner let go of the interpreter's lock. If the interpreter
/// ends, a device, or what else ends with care, is kept for ever: its last owner would wait for work whose results nobody can read.
pub(crate) fn keep_at_exit<T>(what: impl FnOnce() -> T) {
    call::meets();
    if EXITING.load(Ordering::Relaxed) {
        std::mem::forget(what());
    }
}
