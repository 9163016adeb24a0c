//! The line of Python that is running.
//!
//! Every operator asks for it, so that its error can name the line. The line of a place in a code object is cached,
//! since the interpreter finds a line by walking through all lines before it.

use std::cell::RefCell;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use remat::CallSite;

/// Frames of files below this folder are the library's own, and are passed over.
static LIBRARY: Mutex<Option<String>> = Mutex::new(None);

/// Sets the folder of the package. An error names the line of the first frame outside of it.
#[pyfunction]
pub(crate) fn set_library_folder(folder: String) {
    *LIBRARY.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder);
}

/// The owner of a line.
#[derive(Clone, Copy)]
enum Line {
    Library,
    User(CallSite),
}

/// A place in a code object. Holding the code object keeps its address from being used again.
struct Known {
    code: Py<PyAny>,
    instruction: c_int,
    line: Line,
}

const KNOWN: usize = 256;

thread_local! {
    /// The last places that were asked for, each at the index that `place` computes.
    static PLACES: RefCell<Vec<Option<Known>>> = const { RefCell::new(Vec::new()) };
}

/// The line of Python that is running: the innermost one outside the library.
pub(crate) fn site(py: Python<'_>) -> Option<CallSite> {
    let mut frame = current(py)?;
    loop {
        if let Line::User(site) = line(&frame)? {
            return Some(site);
        }
        let back = frame.getattr(pyo3::intern!(py, "f_back")).ok()?;
        if back.is_none() {
            return None;
        }
        frame = back;
    }
}

fn line(frame: &Bound<'_, PyAny>) -> Option<Line> {
    let py = frame.py();
    let code = code(frame)?;
    let instruction: c_int = frame.getattr(pyo3::intern!(py, "f_lasti")).ok()?.extract().ok()?;
    let slot = place(code.as_ptr() as usize, instruction);
    let found = PLACES.with_borrow(|places| {
        let known = places.get(slot)?.as_ref().filter(|k| k.code.is(&code) && k.instruction == instruction)?;
        Some(known.line)
    });
    if found.is_some() {
        return found;
    }
    let line = looked_up(frame, &code)?;
    let known = Known { code: code.unbind(), instruction, line };
    let replaced = PLACES.with_borrow_mut(|places| {
        places.resize_with(KNOWN, || None);
        places[slot].replace(known)
    });
    // dropping a code object may run Python code, so it happens when the places are not borrowed
    drop(replaced);
    Some(line)
}

/// The index at which a place is cached. Instructions take at least two bytes and code objects at least 16, so low bits
/// say nothing.
fn place(code: usize, instruction: c_int) -> usize {
    ((code >> 4) ^ (code >> 12) ^ (instruction as usize >> 1)) % KNOWN
}

fn looked_up(frame: &Bound<'_, PyAny>, code: &Bound<'_, PyAny>) -> Option<Line> {
    let py = frame.py();
    let file = code.getattr(pyo3::intern!(py, "co_filename")).ok()?.cast_into::<PyString>().ok()?;
    let file = file.to_str().ok()?;
    let folder = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if folder.is_some_and(|f| file.starts_with(&f)) {
        return Some(Line::Library);
    }
    let line: u32 = frame.getattr(pyo3::intern!(py, "f_lineno")).ok()?.extract().ok()?;
    Some(Line::User(CallSite::of_host(file, line)))
}

/// The frame of the innermost Python function, if there is one.
#[allow(unsafe_code, reason = "the interpreter's own function; a call of `sys._getframe` takes five times as long")]
fn current(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: the interpreter's lock is held, as `py` shows. The result is a borrowed reference, or null.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) }
}

/// The code object of a frame.
#[allow(unsafe_code, reason = "the interpreter's own function; an attribute takes three times as long")]
fn code<'py>(frame: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the callers pass only frames: the result of `current`, and its `f_back`. The call returns a new
    // reference.
    unsafe { Bound::from_owned_ptr_or_opt(frame.py(), ffi::PyFrame_GetCode(frame.as_ptr().cast()).cast()) }
}
