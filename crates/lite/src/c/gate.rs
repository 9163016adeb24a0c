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
    /// The thread that is in the call, or runs; `None` for a run that has not begun yet.
    thread: Option<ThreadId>,
    /// The thread that is in a callback.
    telling: Option<ThreadId>,
    /// How the last run in the background ended, until it is asked for.
    ended: Done,
    /// Freed: nothing begins any more.
    is_closed: bool,
    /// Freed by a callback of the run, or by one that had begun the next run: nobody is told any more, and no run begins.
    is_dropped: bool,
}

#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Default for Gate {
    fn default() -> Gate {
        let state =
            State { by: Use::Nobody, thread: None, telling: None, ended: Ok(()), is_closed: false, is_dropped: false };
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

    /// Begins a call, which ends when the result is dropped. Errors: Busy.
    pub(super) fn enter(&self) -> Done<Entered<'_>> {
        let mut state = self.lock();
        match state.by {
            _ if state.is_closed => Err(Failed::busy("the session is being freed")),
            Use::Call | Use::Run if state.thread == here() => {
                Err(Failed::busy("the session is in the call that this function was called in"))
            }
            Use::Call => Err(Failed::busy("the session is in a call of another thread, and takes one at a time")),
            Use::Run => Err(Failed::busy("the session runs in the background: remat_session_wait waits for it")),
            Use::Nobody => {
                (state.by, state.thread) = (Use::Call, here());
                Ok(Entered { gate: self, next: Use::Nobody })
            }
        }
    }

    /// A run in the background did not begin after all.
    pub(super) fn cancel(&self) {
        self.lock().by = Use::Nobody;
        self.changed.notify_all();
    }

    /// A run in the background begins on this thread. False if nobody wants it any more.
    pub(super) fn run_begins(&self) -> bool {
        let mut state = self.lock();
        state.thread = here();
        !state.is_dropped
    }

    /// It is over. True if its callback is to be called, which [`Gate::told`] ends.
    pub(super) fn run_ended(&self, ended: Done) -> bool {
        let mut state = self.lock();
        (state.by, state.thread, state.ended, state.telling) = (Use::Nobody, None, ended, here());
        self.changed.notify_all();
        !state.is_dropped
    }

    /// Its callback has returned.
    pub(super) fn told(&self) {
        self.lock().telling = None;
        self.changed.notify_all();
    }

    /// Waits until no run and no callback is under way, and gives the error of the last run, once. Within the callback: does not
    /// wait for that. Errors: also Busy in a callback that has begun another run.
    pub(super) fn wait(&self) -> Done {
        let here = here();
        let mut state = self.lock();
        loop {
            match (state.by, state.telling) {
                (Use::Run, by) if by == here || state.thread == here => {
                    return Err(Failed::busy(
                        "a callback cannot wait for its own run, or for one that begins after it",
                    ));
                }
                (Use::Run, _) => {}
                (_, by) if by.is_none() || by == here => return std::mem::replace(&mut state.ended, Ok(())),
                _ => {}
            }
            state = self.pause(state);
        }
    }

    /// Lets nothing begin, and waits until nothing is under way but what this is called in: a callback of a run, an allocator.
    pub(super) fn close(&self) {
        let here = here();
        let mut state = self.lock();
        state.is_closed = true;
        // a run that this callback has begun comes after it, so waiting for it would never end
        let is_within = |s: &State| s.thread == here || s.by == Use::Run && s.telling == here;
        let is_over = |s: &State| s.by == Use::Nobody || is_within(s);
        while !(is_over(&state) && (state.telling.is_none() || state.telling == here)) {
            state = self.pause(state);
        }
        state.is_dropped = state.by == Use::Run;
    }
}

fn here() -> Option<ThreadId> {
    Some(thread::current().id())
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
        let mut state = self.gate.lock();
        (state.by, state.thread) = (self.next, None);
        drop(state);
        self.gate.changed.notify_all();
    }
}
