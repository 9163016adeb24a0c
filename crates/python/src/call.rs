//! Calls into the library: which line of the user's asked, and without the interpreter's lock.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use remat::runtime::interrupt;
use remat::types::Callback;
use remat::{Result, Scope};

use crate::{error, frame};

/// Set when a wait was ended by a signal's handler: whoever asked for that waits for nothing that is queued.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// True once a signal's handler has ended a wait.
pub(crate) fn was_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Runs `f` without the interpreter's lock, as asked for by the line of Python that is running. A wait within it ends when a
/// signal's handler raises, as Ctrl-C's does.
pub(crate) fn run<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    error::begin();
    let site = frame::site(py);
    let done = py.detach(|| {
        let _asked = site.map(Scope::at);
        interrupt::without_lock(|| interrupt::watched(signalled, f))
    });
    done.map_err(|e| error::exception(py, &e))
}

/// As [`run`], for what queues work and returns: the interpreter's lock is let go of only where that waits, since to let go of it
/// and take it again costs as much as queueing. A queue that is full is waited for in the end, when no lock of the library's is held.
pub(crate) fn queue<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T>) -> PyResult<T> {
    error::begin();
    let _asked = frame::site(py).map(Scope::at);
    meets();
    let done = interrupt::watched(signalled, f);
    interrupt::settle();
    done.map_err(|e| error::exception(py, &e))
}

/// Lets waits of this thread let go of the interpreter's lock, those of the last owner of a device included.
pub(crate) fn meets() {
    interrupt::holds_lock(aside);
}

fn aside(f: &mut (dyn FnMut() + Send)) {
    Python::attach(|py| py.detach(f));
}

/// Takes the interpreter's lock for `f`, which may run Python code.
pub(crate) fn attached<T>(f: impl FnOnce(Python<'_>) -> T) -> T {
    Python::attach(|py| interrupt::with_lock(aside, || f(py)))
}

/// Why a wait of this thread is to end: what a signal's handler raised.
fn signalled() -> Option<remat::Error> {
    let raised = attached(|py| py.check_signals().err().map(|e| error::raised(py, e)));
    if raised.is_some() {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    raised
}

/// Runs Python code that the library calls; its lines are its own.
pub(crate) fn back<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let _callback = Callback::enter();
    attached(|py| f(py).map_err(|e| error::raised(py, e)))
}
