//! Calls into the library: which line of the user's asked, and without the interpreter's lock.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use remat::runtime::interrupt;
use remat::types::Callback;
use remat::{CallSite, Result, Scope};

use crate::error;

/// Frames of files below this folder are the library's own, and are passed over.
static LIBRARY: Mutex<Option<String>> = Mutex::new(None);

/// Says where the package lies: an error names the line of the first frame outside of it.
#[pyfunction]
pub(crate) fn set_library_folder(folder: String) {
    *LIBRARY.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
}

/// A source file: its text object, which is kept so that its address stays its own, and whether it is the library's.
type Files = HashMap<usize, (Py<PyString>, bool)>;

/// The line of Python that is running: the innermost that is not the library's.
fn site(py: Python<'_>) -> Option<CallSite> {
    static GET_FRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let get = GET_FRAME.get_or_try_init(py, || Ok::<_, PyErr>(py.import("sys")?.getattr("_getframe")?.unbind()));
    let mut frame = get.ok()?.bind(py).call0().ok()?;
    loop {
        let file = frame.getattr(pyo3::intern!(py, "f_code")).ok()?.getattr(pyo3::intern!(py, "co_filename")).ok()?;
        let file = file.cast_into::<PyString>().ok()?;
        if !is_library(&file) {
            let line: u32 = frame.getattr(pyo3::intern!(py, "f_lineno")).ok()?.extract().ok()?;
            return Some(CallSite::of_host(file.to_str().ok()?, line));
        }
        frame = frame.getattr(pyo3::intern!(py, "f_back")).ok()?;
        if frame.is_none() {
            return None;
        }
    }
}

fn is_library(file: &Bound<'_, PyString>) -> bool {
    static FILES: Mutex<Option<Files>> = Mutex::new(None);
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = files.get_or_insert_default().entry(file.as_ptr() as usize).or_insert_with(|| {
        let folder = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_own = folder.is_some_and(|f| file.to_str().is_ok_and(|file| file.starts_with(&f)));
        (file.clone().unbind(), is_own)
    });
    found.1
}

/// Runs `f` without the interpreter's lock, as asked for by the line of Python that is running. A wait within it ends when a
/// signal's handler raises, as Ctrl-C's does.
pub(crate) fn run<T: Send>(py: Python<'_>, f: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    error::begin();
    let site = site(py);
    let done = py.detach(|| {
        let _asked = site.map(Scope::at);
        interrupt::watched(signalled, f)
    });
    done.map_err(|e| error::exception(py, &e))
}

/// Why a wait of this thread is to end: what a signal's handler raised.
fn signalled() -> Option<remat::Error> {
    Python::attach(|py| py.check_signals().err().map(|e| error::raised(py, e)))
}

/// Runs Python code that the library calls; its lines are its own.
pub(crate) fn back<T>(f: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    let _callback = Callback::enter();
    Python::attach(|py| f(py).map_err(|e| error::raised(py, e)))
}
