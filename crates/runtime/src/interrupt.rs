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
    static LOCK: Cell<Lock> = const { Cell::new(Lock::Unknown) };
}

/// Where a thread stands with the host language's lock.
#[derive(Clone, Copy)]
enum Lock {
    /// It never met the host, or this is no host's process.
    Unknown,
    Held(Aside),
    Free,
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

/// Says that this thread holds the host language's lock whenever it comes here, but within [`without_lock`]; `aside` lets go of it for a
/// wait. What only queues work keeps it, which is cheaper than to let go of it. That holds for what the host's collector drops as
/// well: the last owner of a device waits for its work.
pub fn holds_lock(aside: Aside) {
    if matches!(LOCK.get(), Lock::Unknown) {
        LOCK.set(Lock::Held(aside));
    }
}

/// Runs `f`, for which the caller has let go of the host's lock.
pub fn without_lock<T>(f: impl FnOnce() -> T) -> T {
    let _restore = RestoreLock(LOCK.replace(Lock::Free));
    f()
}

/// Runs `f`, for which the caller has taken the host's lock again.
pub fn with_lock<T>(aside: Aside, f: impl FnOnce() -> T) -> T {
    let _restore = RestoreLock(LOCK.replace(Lock::Held(aside)));
    f()
}

/// Puts back what was there before.
struct RestoreLock(Lock);

impl Drop for RestoreLock {
    fn drop(&mut self) {
        LOCK.set(self.0);
    }
}

/// Runs what waits, without the host language's lock. To be called without a lock of the library's, and `f` returns without one:
/// who takes the host's lock with one in hand waits for a thread that waits for that one.
pub fn aside<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let Lock::Held(aside) = LOCK.get() else { return f() };
    let _restore = RestoreLock(LOCK.replace(Lock::Free));
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
