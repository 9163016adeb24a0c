//! Who uses a session: one call at a time, or the run in the background.
//!
//! A second call does not wait, it is told `REMAT_BUSY`: two threads in one session are a mistake of the program, which waiting
//! would hide. Only `wait` and `close` wait.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use super::status::{Done, Failed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Nobody,
    Call,
    Run,
}

#[derive(Debug)]
struct State {
    by: Use,
    /// The thread that is in a callback.
    telling: Option<ThreadId>,
    /// How the last run in the background ended, until it is asked for.
    ended: Done,
    /// Freed: nothing begins any more.
    is_closed: bool,
    /// Freed by a callback that had begun a run before, which is not done any more.
    is_dropped: bool,
}

#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Default for Gate {
    fn default() -> Gate {
        let state = State { by: Use::Nobody, telling: None, ended: Ok(()), is_closed: false, is_dropped: false };
        Gate { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a call, which ends with what is given. Errors: Busy.
    pub(super) fn enter(&self) -> Done<Entered<'_>> {
        let mut state = self.lock();
        match state.by {
            _ if state.is_closed => Err(Failed::busy("the session is being freed")),
            Use::Call => Err(Failed::busy("the session is in a call of another thread, and takes one at a time")),
            Use::Run => Err(Failed::busy("the session runs in the background: remat_session_wait waits for it")),
            Use::Nobody => {
                state.by = Use::Call;
                Ok(Entered { gate: self, next: Use::Nobody })
            }
        }
    }

    /// A run in the background did not begin after all.
    pub(super) fn cancel(&self) {
        self.lock().by = Use::Nobody;
        self.changed.notify_all();
    }

    /// True if a run that was begun is not wanted any more.
    pub(super) fn is_dropped(&self) -> bool {
        self.lock().is_dropped
    }

    /// A run in the background is over.
    pub(super) fn run_ended(&self, ended: Done) {
        let mut state = self.lock();
        (state.by, state.ended, state.telling) = (Use::Nobody, ended, Some(thread::current().id()));
        self.changed.notify_all();
    }

    /// Its callback has returned.
    pub(super) fn told(&self) {
        self.lock().telling = None;
        self.changed.notify_all();
    }

    /// Waits until no run and no callback is under way, and gives the error of the last run, once. Within the callback: does not
    /// wait for that. Errors: also Busy in a callback that has begun another run.
    pub(super) fn wait(&self) -> Done {
        let here = Some(thread::current().id());
        let mut state = self.lock();
        loop {
            match (state.by, state.telling) {
                (Use::Run, by) if by == here => {
                    return Err(Failed::busy("a callback cannot wait for the run that it began: that begins after it"));
                }
                (Use::Run, _) => {}
                (_, by) if by.is_none() || by == here => return std::mem::replace(&mut state.ended, Ok(())),
                _ => {}
            }
            state = self.pause(state);
        }
    }

    /// Waits until nothing is under way but the callback that this is called in, and lets nothing begin.
    pub(super) fn close(&self) {
        let here = Some(thread::current().id());
        let mut state = self.lock();
        state.is_closed = true;
        let is_mine = |by: Option<ThreadId>| by.is_none() || by == here;
        // a run that this callback has begun would come after it, so waiting for it would never end
        let is_own = |s: &State| s.by == Use::Run && s.telling == here;
        while !(is_mine(state.telling) && (state.by == Use::Nobody || is_own(&state))) {
            state = self.pause(state);
        }
        state.is_dropped = is_own(&state);
    }
}

/// A call under way.
pub(super) struct Entered<'g> {
    gate: &'g Gate,
    next: Use,
}

impl Entered<'_> {
    /// The call ends and a run has the session.
    pub(super) fn into_run(mut self) {
        self.next = Use::Run;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.gate.lock().by = self.next;
        self.gate.changed.notify_all();
    }
}
