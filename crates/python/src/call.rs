//! Calls into the library. A call notes the line of the user's program that made it, and runs without the interpreter's
//! lock.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use remat::runtime::interrupt;
use remat::types::Callback;
use remat::{Result, Scope};

use crate::{error, frame};

/// Set when a signal's handler ended a wait. The user then wants to end the program, so nothing waits for queued work
/// any more.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// True once a signal's handler has ended a wait.
pub(crate) fn was_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Runs `f` without the interpreter's lock. Errors name the line of Python that is running. A wait within `f` ends when
/// a signal's handler raises, as that of Ctrl-C does.
pub(crate) fn run<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    error::begin();
    let site = frame::site(py);
    let done = py.detach(|| {
        let _asked = site.map(Scope::at);
        interrupt::without_lock(|| interrupt::watched(signalled, f))
    });
    done.map_err(|e| error::exception(py, &e))
}

/// As [`run`], for calls that queue work and return. It releases the interpreter's lock only to wait, since releasing
/// and taking it again costs as much as queueing. If the queue is full, the call waits for it at its end, when it holds
/// no lock of the library.
pub(crate) fn queue<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T>) -> PyResult<T> {
    error::begin();
    let _asked = frame::site(py).map(Scope::at);
    meets();
    let done = interrupt::watched(signalled, f);
    interrupt::settle();
    done.map_err(|e| error::exception(py, &e))
}

/// Makes waits of this thread release the interpreter's lock. That includes the wait of a device's last owner.
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

/// The exception that a signal's handler raised, if one did: it ends a wait of this thread.
fn signalled() -> Option<remat::Error> {
    let raised = attached(|py| py.check_signals().err().map(|e| error::raised(py, e)));
    if raised.is_some() {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    raised
}

/// Runs Python code that the library calls. Calls that this code makes name lines of their own.
pub(crate) fn back<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let _callback = Callback::enter();
    attached(|py| f(py).map_err(|e| error::raised(py, e)))
}
