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

/// A wait that is put off.
type Wait = Box<dyn FnOnce() + Send>;

thread_local! {
    static CHECK: Cell<Option<Check>> = const { Cell::new(None) };
    static LOCK: Cell<Lock> = const { Cell::new(Lock::Unknown) };
    static LATER: Cell<Option<Wait>> = const { Cell::new(None) };
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
/// wait. What only queues work keeps it, which is cheaper than to let go of it, and calls [`settle`] behind. That holds for what the
/// host's collector drops as well: the last owner of a device waits for its work.
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

/// Keeps a wait for [`settle`] if this thread holds the host language's lock: true. Such a thread may hold a lock of the library's as
/// well, where it asks for room in the queue, and who lets go of the host's lock must hold none. So it waits behind the call, not
/// within it. A wait that was kept before is replaced: of a call the last one counts, which for one device is for the same room.
pub fn put_off(wait: impl FnOnce() + Send + 'static) -> bool {
    let holds = matches!(LOCK.get(), Lock::Held(_));
    if holds {
        LATER.set(Some(Box::new(wait)));
    }
    holds
}

/// Waits for what was put off, aside. To be called without a lock of the library's.
pub fn settle() {
    if let Some(wait) = LATER.take() {
        aside(wait);
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    static LET_GO: AtomicUsize = AtomicUsize::new(0);

    fn let_go(f: &mut (dyn FnMut() + Send)) {
        LET_GO.fetch_add(1, Ordering::Relaxed);
        f();
    }

    #[test]
    fn who_holds_the_hosts_lock_waits_behind_the_call() {
        assert!(!put_off(|| panic!("there is no host")), "another thread waits where it is");
        let (to, waits) = channel();
        std::thread::spawn(move || {
            holds_lock(let_go);
            let (first, second) = (to.clone(), to.clone());
            assert!(put_off(move || first.send("first").expect("heard")));
            assert!(put_off(move || second.send("second").expect("heard")));
            to.send("put off").expect("heard");
            settle();
            settle();
            without_lock(|| assert!(!put_off(|| panic!("the lock is let go of"))));
        })
        .join()
        .expect("no panic");
        assert_eq!(waits.iter().collect::<Vec<_>>(), ["put off", "second"]);
        assert_eq!(LET_GO.load(Ordering::Relaxed), 1);
    }
}
