//! Waits beside a host language: they end early when its user presses Ctrl-C, and let go of its lock.
//!
//! A wait that was ended leaves nothing half done: the worker runs on, its answer finds nobody, and device and tensors are as
//! if the wait had not begun. So only waits for answers end early. A wait for room in the queue does not, which takes as long as
//! an operation: what it was to send may be the second half of something. The check is a function pointer since it is kept for a thread, beyond any borrow.

use std::cell::Cell;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use remat_types::{Error, Result};

/// Asks whether waits of this thread are to end: the error that they end with.
pub type Check = fn() -> Option<Error>;

/// A wait asks so often; a person takes no notice of it.
const EVERY: Duration = Duration::from_millis(50);

/// Calls a function once, with the host language's lock let go of meanwhile.
pub type Aside = fn(&mut (dyn FnMut() + Send));

thread_local! {
    static CHECK: Cell<Option<Check>> = const { Cell::new(None) };
    static ASIDE: Cell<Option<Aside>> = const { Cell::new(None) };
}

/// Puts back what was there before, also when the function panics.
struct Restore(Option<Check>);

impl Drop for Restore {
    fn drop(&mut self) {
        CHECK.set(self.0);
    }
}

/// Runs `f`, whose waits on this thread ask `check` every 50 ms, and end with its error if it gives one. It is called without
/// a lock of the library's.
pub fn watched<T>(check: Check, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(CHECK.replace(Some(check)));
    f()
}

/// As [`watched`], for a thread that holds the host language's lock: what only queues work keeps it, which is cheaper than to let
/// go of it, and `aside` lets go of it for each wait. Whoever may hold a lock of the library's must not wait for the host's.
pub fn watched_held<T>(check: Check, aside: Aside, f: impl FnOnce() -> T) -> T {
    let _held = Held(ASIDE.replace(Some(aside)));
    watched(check, f)
}

/// Puts back what was there before.
struct Held(Option<Aside>);

impl Drop for Held {
    fn drop(&mut self) {
        ASIDE.set(self.0);
    }
}

/// Runs what waits, without the host language's lock. To be called without a lock of the library's, and `f` returns without one:
/// who takes the host's lock with one in hand waits for a thread that waits for that one.
pub(crate) fn aside<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let Some(aside) = ASIDE.take() else { return f() };
    let _held = Held(Some(aside));
    let (mut f, mut y) = (Some(f), None);
    aside(&mut || y = f.take().map(|f| f()));
    let Some(y) = y else { unreachable!("an `Aside` calls the function") };
    y
}

/// Waits on `changed` for a while, or without end if nobody watches; true if it is time to ask.
pub fn wait<'m, T>(changed: &Condvar, guard: MutexGuard<'m, T>) -> (MutexGuard<'m, T>, bool) {
    if CHECK.get().is_none() {
        return (changed.wait(guard).unwrap_or_else(PoisonError::into_inner), false);
    }
    let (guard, over) = changed.wait_timeout(guard, EVERY).unwrap_or_else(PoisonError::into_inner);
    (guard, over.timed_out())
}

/// Errors: that with which this thread's waits are to end. To be called without a lock.
pub fn ask() -> Result<()> {
    CHECK.get().and_then(|check| check()).map_or(Ok(()), Err)
}
