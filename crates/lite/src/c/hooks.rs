//! Functions that are called around runs.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::session::{Inner, remat_session};
use super::status::{Done, caught, keep, remat_status};

/// Told that a run of this session starts, on the thread that runs, before inputs are read: it may write to the memory of inputs that it
/// has from remat_session_input_data. The session is in a call: its functions are REMAT_BUSY here, and remat_session_free frees it when
/// that call ends. It must return: no exception and no longjmp may leave it.
pub type remat_start = Option<unsafe extern "C" fn(user: *mut c_void, session: *const remat_session)>;

/// Told once for every run that started how it ended, on the thread that ran, when outputs are there and before the call that runs
/// returns or a remat_done is called; remat_last_error has the text of an error here. For the rest as remat_start.
pub type remat_finish =
    Option<unsafe extern "C" fn(user: *mut c_void, session: *const remat_session, status: remat_status)>;

/// The caller's functions for all sessions of a network.
#[derive(Clone, Copy)]
pub(super) struct Hooks {
    pub(super) start: remat_start,
    pub(super) finish: remat_finish,
    pub(super) user: *mut c_void,
}

impl Default for Hooks {
    fn default() -> Hooks {
        Hooks { start: None, finish: None, user: ptr::null_mut() }
    }
}

// SAFETY: `user` is only given back to the caller's functions, which the header says are called on the thread that runs.
unsafe impl Send for Hooks {}
// SAFETY: as for `Send`.
unsafe impl Sync for Hooks {}

/// A run of a session between its hooks, a panic of the run being its error.
pub(super) fn hooked(session: &Arc<remat_session>, inner: &mut Inner, run: impl FnOnce(&mut Inner) -> Done) -> Done {
    let Hooks { start, finish, user } = inner.hooks;
    let at = Arc::as_ptr(session);
    if let Some(start) = start {
        // SAFETY: the caller's function with its own `user`; the session outlives the call.
        unsafe { start(user, at) };
    }
    let ended = caught(|| run(inner));
    if let Some(finish) = finish {
        let status = match &ended {
            Ok(()) => remat_status::REMAT_OK,
            Err(failed) => {
                // for remat_last_error in the callback
                keep(failed);
                failed.status
            }
        };
        // SAFETY: as before.
        unsafe { finish(user, at, status) };
    }
    ended
}
