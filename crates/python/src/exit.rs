//! Drops of objects by the interpreter, above all when it ends.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use remat::Device;
use remat::runtime::{WeakDevice, dropped_with_failures};

use crate::call;

/// Set when the interpreter ends.
static EXITING: AtomicBool = AtomicBool::new(false);

/// Devices that Python opened, each with the number of the process that opened it: a fork has none of their threads.
static OPEN: Mutex<Vec<(u32, WeakDevice)>> = Mutex::new(Vec::new());

/// Notes a device that is closed when the interpreter ends.
pub(crate) fn opened(device: &Device) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, d)| d.upgrade().is_some());
    open.push((process::id(), device.downgrade()));
}

/// Closes the open devices, those of ranks only if `with_ranks`, and waits for their work. Returns texts about failures
/// that no call has reported. If a signal has ended a wait, here or before, the rest stay open.
#[pyfunction]
pub(crate) fn close_devices(py: Python<'_>, with_ranks: bool) -> Vec<String> {
    let open = std::mem::take(&mut *OPEN.lock().unwrap_or_else(PoisonError::into_inner));
    let mut failures = Vec::new();
    for (_, device) in open.into_iter().filter(|(of, _)| *of == process::id()) {
        let Some(device) = device.upgrade() else { continue };
        if call::was_interrupted() {
            break;
        }
        if device.options().ranks.is_some() && !with_ranks {
            continue;
        }
        let name = device.name().to_owned();
        if let Err(e) = call::run(py, || device.channel().close()) {
            if call::was_interrupted() {
                break;
            }
            failures.push(format!("remat: the process ended with a failure on device {name} that nobody read: {e}"));
        }
    }
    failures
}

/// The number of devices that were dropped before with failures that nobody read. Each of these failures was written to
/// stderr.
#[pyfunction]
pub(crate) fn failures_of_dropped() -> usize {
    dropped_with_failures()
}

/// Notes that the interpreter ends. From then on nothing waits for queued work.
#[pyfunction]
pub(crate) fn exiting() {
    EXITING.store(true, Ordering::Relaxed);
}

/// For objects that the interpreter is about to drop: a wait of the last owner releases the interpreter's lock. If the
/// interpreter ends, a device or another object whose drop waits is kept for ever. Its last owner would wait for work
/// whose results nobody can read.
pub(crate) fn keep_at_exit<T>(what: impl FnOnce() -> T) {
    call::meets();
    if EXITING.load(Ordering::Relaxed) {
        std::mem::forget(what());
    }
}
