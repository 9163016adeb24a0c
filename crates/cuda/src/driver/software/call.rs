//! The frame of every function of the table: it finds the driver, and makes a status of failures and panics.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_cuda_sim::{Event, Function, Graph, GraphExec, Module, PhysicalMemory, Stream};

use super::errors::{Failure, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, Outcome, UNKNOWN, keep};
use super::registry::{Kind, State, handle, parts, with};
use crate::driver::table::Raw;
use crate::driver::{SUCCESS, Status};

thread_local! {
    /// Driver and device of the thread's context.
    static CURRENT: Cell<Option<(u32, usize)>> = const { Cell::new(None) };
}

/// The driver of a call, whose current device is that of the thread.
pub(super) struct Here<'s> {
    pub(super) driver: u32,
    pub(super) state: &'s mut State,
}

/// Runs a call, and makes a status of what it gives. No panic leaves it.
pub(super) fn call(f: impl FnOnce() -> Outcome<()>) -> Status {
    // state that a panic left half done is behind a lock, which is poisoned then
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(failure)) => keep(failure),
        Err(panic) => keep(Failure::new(UNKNOWN, format!("the software device panicked: {}", said(&*panic)))),
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// A call on the thread's context.
pub(super) fn run(f: impl FnOnce(&mut Here<'_>) -> Outcome<()>) -> Status {
    call(|| here(f))
}

/// A call on the thread's context that gives a result.
///
/// # Safety
///
/// `to` is null, or a place for a result that nothing else uses.
pub(super) unsafe fn give<T>(to: *mut T, f: impl FnOnce(&mut Here<'_>) -> Outcome<T>) -> Status {
    // SAFETY: the caller's.
    call(|| unsafe { write(to, || here(f)) })
}

/// Writes a result. Errors: there is no place for it, and then nothing is done.
///
/// # Safety
///
/// As for [`give`].
pub(super) unsafe fn write<T>(to: *mut T, f: impl FnOnce() -> Outcome<T>) -> Outcome<()> {
    if to.is_null() {
        return Err(Failure::new(INVALID_VALUE, "there is no place for the result"));
    }
    let value = f()?;
    // SAFETY: it is not null, and so a place for a result.
    unsafe { to.write(value) };
    Ok(())
}

/// Works on the thread's context. Errors: it has none, or one that was released.
fn here<T>(f: impl FnOnce(&mut Here<'_>) -> Outcome<T>) -> Outcome<T> {
    let Some((driver, ordinal)) = CURRENT.get() else {
        return Err(Failure::new(INVALID_CONTEXT, "the thread has no context: set one first"));
    };
    with(driver, |state| {
        if state.contexts[ordinal] == 0 {
            return Err(Failure::new(INVALID_CONTEXT, "the thread's context was released"));
        }
        state.device.set_current(ordinal)?;
        f(&mut Here { driver, state })
    })
}

/// Makes a context that of the thread; null leaves the thread without one.
pub(super) fn set_current(context: Raw) -> Outcome<()> {
    if context.is_null() {
        CURRENT.set(None);
        return Ok(());
    }
    let (driver, number) = parts(Kind::Context, context.addr() as u64)?;
    let ordinal = number as usize;
    with(driver, |state| match state.contexts.get(ordinal) {
        Some(count) if *count > 0 => Ok(()),
        _ => Err(Failure::new(INVALID_CONTEXT, "the context was released")),
    })?;
    CURRENT.set(Some((driver, ordinal)));
    Ok(())
}

impl Here<'_> {
    /// The handle of a thing of this driver.
    pub(super) fn handle(&self, kind: Kind, number: u32) -> Raw {
        handle(kind, self.driver, number)
    }

    /// The number in a handle. Errors: it is not of this kind, or of another driver.
    pub(super) fn number(&self, kind: Kind, word: u64) -> Outcome<u32> {
        let (driver, number) = parts(kind, word)?;
        if driver != self.driver {
            let message = format!("{word:#x} is a {kind:?} of another driver than the thread's context");
            return Err(Failure::new(INVALID_HANDLE, message));
        }
        Ok(number)
    }

    fn raw(&self, kind: Kind, raw: Raw) -> Outcome<u32> {
        self.number(kind, raw.addr() as u64)
    }

    /// A stream; null is the default one.
    pub(super) fn stream(&self, raw: Raw) -> Outcome<Stream> {
        if raw.is_null() {
            return Ok(Stream::DEFAULT);
        }
        self.raw(Kind::Stream, raw).map(Stream)
    }

    pub(super) fn event(&self, raw: Raw) -> Outcome<Event> {
        self.raw(Kind::Event, raw).map(Event)
    }

    pub(super) fn module(&self, raw: Raw) -> Outcome<Module> {
        self.raw(Kind::Module, raw).map(Module)
    }

    pub(super) fn function(&self, raw: Raw) -> Outcome<Function> {
        self.raw(Kind::Function, raw).map(Function)
    }

    pub(super) fn graph(&self, raw: Raw) -> Outcome<Graph> {
        self.raw(Kind::Graph, raw).map(Graph)
    }

    pub(super) fn graph_exec(&self, raw: Raw) -> Outcome<GraphExec> {
        self.raw(Kind::Run, raw).map(GraphExec)
    }

    pub(super) fn memory(&self, word: u64) -> Outcome<PhysicalMemory> {
        self.number(Kind::Memory, word).map(PhysicalMemory)
    }

    /// The device of a context of this driver.
    pub(super) fn context(&self, raw: Raw) -> Outcome<usize> {
        self.raw(Kind::Context, raw).map(|number| number as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_says_it() {
        let status = call(|| panic!("at {}", 7));
        assert_eq!(status, UNKNOWN);
        let told = super::super::errors::text(UNKNOWN).expect("known");
        // SAFETY: the text ends with a zero, and no call has failed since.
        let told = unsafe { std::ffi::CStr::from_ptr(told) }.to_string_lossy();
        assert_eq!(told, "the software device panicked: at 7");
    }

    #[test]
    fn a_thread_without_a_context_and_a_missing_place_are_errors() {
        assert_eq!(run(|_| Ok(())), INVALID_CONTEXT);
        // SAFETY: null is allowed.
        let outcome = unsafe { write(std::ptr::null_mut::<u8>(), || panic!("not done")) };
        assert_eq!(outcome.expect_err("no place").status, INVALID_VALUE);
        assert_eq!(set_current(handle(Kind::Stream, 1, 0)).expect_err("no context").status, INVALID_HANDLE);
    }
}
