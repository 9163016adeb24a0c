//! Waits beside a host language. They end early when its user presses Ctrl-C, and release its lock.
//!
//! An interrupted wait leaves nothing half done: the worker runs on, its answer is dropped, and device and tensors are
//! as if the wait had not begun. So only waits for answers end early. A wait for room in the queue does not, since its
//! command may be the second half of something. It takes as long as an operation. The check is a function pointer,
//! since a thread keeps it beyond any borrow.

use std::cell::Cell;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use remat_types::{Error, Result};

/// Asks whether waits of this thread must end. Gives the error with which they end.
pub type Check = fn() -> Option<Error>;

/// The period at which a wait asks. A person does not notice it.
const EVERY: Duration = Duration::from_millis(50);

/// Calls a function once, while the host language's lock is released.
pub type Aside = fn(&mut (dyn FnMut() + Send));

/// A wait that is postponed.
type Wait = Box<dyn FnOnce() + Send>;

thread_local! {
    static CHECK: Cell<Option<Check>> = const { Cell::new(None) };
    static LOCK: Cell<Lock> = const { Cell::new(Lock::Unknown) };
    static LATER: Cell<Option<Wait>> = const { Cell::new(None) };
}

/// A thread's state with respect to the host language's lock.
#[derive(Clone, Copy)]
enum Lock {
    /// The thread never met the host, or the process has no host.
    Unknown,
    Held(Aside),
    Free,
}

/// Restores the former check, also when the function panics.
struct Restore(Option<Check>);

impl Drop for Restore {
    fn drop(&mut self) {
        CHECK.set(self.0);
    }
}

/// Calls `f`. Waits of this thread within it call `check` every 50 ms, and end with the error that it gives, if any.
/// `check` is called without a lock of the library.
pub fn watched<T>(check: Check, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(CHECK.replace(Some(check)));
    f()
}

/// Says that this thread holds the host language's lock whenever it enters the library, except within [`without_lock`].
/// `aside` releases the lock for a wait. A call that only queues work keeps the lock, which is cheaper, and calls
/// [`settle`] afterwards. The same holds when the host's collector drops a handle: the last owner of a device waits for
/// its work.
pub fn holds_lock(aside: Aside) {
    if matches!(LOCK.get(), Lock::Unknown) {
        LOCK.set(Lock::Held(aside));
    }
}

/// Calls `f`. The caller has released the host's lock.
pub fn without_lock<T>(f: impl FnOnce() -> T) -> T {
    let _restore = RestoreLock(LOCK.replace(Lock::Free));
    f()
}

/// Calls `f`. The caller has taken the host's lock again.
pub fn with_lock<T>(aside: Aside, f: impl FnOnce() -> T) -> T {
    let _restore = RestoreLock(LOCK.replace(Lock::Held(aside)));
    f()
}

/// Restores the former state of the lock.
struct RestoreLock(Lock);

impl Drop for RestoreLock {
    fn drop(&mut self) {
        LOCK.set(self.0);
    }
}

/// Calls `f`, which waits, without the host language's lock. The caller must hold no lock of the library, and `f` must
/// return without one. Otherwise the thread would take the host's lock while another thread, which has that lock, waits
/// for the library's.
pub fn aside<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    let Lock::Held(aside) = LOCK.get() else { return f() };
    let _restore = RestoreLock(LOCK.replace(Lock::Free));
    let (mut f, mut y) = (Some(f), None);
    aside(&mut || y = f.take().map(|f| f()));
    let Some(y) = y else { unreachable!("an `Aside` calls the function") };
    y
}

/// Keeps a wait for [`settle`] and gives true, if this thread holds the host language's lock. Such a thread may also
/// hold a lock of the library when it asks for room in the queue, and a thread that releases the host's lock must hold
/// none. So it waits after the call, not within it. A new wait replaces a kept one: all waits of a call for one device
/// are for the same room.
pub fn put_off(wait: impl FnOnce() + Send + 'static) -> bool {
    let holds = matches!(LOCK.get(), Lock::Held(_));
    if holds {
        LATER.set(Some(Box::new(wait)));
    }
    holds
}

/// Performs the postponed wait, aside. The caller must hold no lock of the library.
pub fn settle() {
    if let Some(wait) = LATER.take() {
        aside(wait);
    }
}

/// Waits on `changed`: for one period if the thread is watched, and otherwise without end. True if it is time to ask.
pub fn wait<'m, T>(changed: &Condvar, guard: MutexGuard<'m, T>) -> (MutexGuard<'m, T>, bool) {
    if CHECK.get().is_none() {
        return (changed.wait(guard).unwrap_or_else(PoisonError::into_inner), false);
    }
    let (guard, over) = changed.wait_timeout(guard, EVERY).unwrap_or_else(PoisonError::into_inner);
    (guard, over.timed_out())
}

/// Errors: the error with which this thread's waits must end. The caller must hold no lock.
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
