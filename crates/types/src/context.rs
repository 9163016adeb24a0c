//! The context of a thread: all that decides what a call means beside its arguments.
//!
//! A thread traces a function or runs it, records gradients or not, collects the updates of a step, and is in a named scope.
//! Each crate declares its [`Part`] of the context, and all parts are one value. So a caller can step out of all of it at once
//! ([`outside`]), and a new policy (a precision, for one) needs no thread-local variable of its own.
//!
//! A part that every call asks for has a [`Mode`] too, which is a plain number and costs one load.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

mod scope;

pub use scope::{CallSite, Callback, Scope, intern};

thread_local! {
    static MODES: [Cell<u32>; Mode::COUNT] = const { [const { Cell::new(0) }; Mode::COUNT] };
    /// Where the outermost call into a library was made.
    static SITE: Cell<Option<CallSite>> = const { Cell::new(None) };
    /// Names of the scopes that this thread is in, each with its parents: `block1.conv`.
    static SCOPES: RefCell<Vec<Arc<str>>> = const { RefCell::new(Vec::new()) };
    static PARTS: RefCell<Vec<Option<Rc<dyn Any>>>> = const { RefCell::new(Vec::new()) };
}

/// A mode of the thread, as deep as it was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Calls go into a graph instead of to a device.
    Tracing,
    /// Updates are collected, to be made as a whole.
    Collecting,
    /// Gradients are not recorded.
    Unrecorded,
}

impl Mode {
    const COUNT: usize = 3;

    /// How often this thread has entered the mode and not left it.
    #[inline]
    pub fn depth(self) -> u32 {
        MODES.with(|m| m[self as usize].get())
    }

    /// True if this thread is in the mode.
    #[inline]
    pub fn is_on(self) -> bool {
        self.depth() > 0
    }

    /// Sets the depth and returns the one before.
    pub fn replace(self, depth: u32) -> u32 {
        MODES.with(|m| m[self as usize].replace(depth))
    }
}

/// A part of the context: one value for each thread, which begins as the default. It is declared as a static.
pub struct Part<T> {
    index: OnceLock<usize>,
    value: PhantomData<fn() -> T>,
}

impl<T: Default + 'static> Part<T> {
    /// A part, for a static.
    #[allow(clippy::new_without_default, reason = "two parts of one type are different parts")]
    pub const fn new() -> Self {
        Part { index: OnceLock::new(), value: PhantomData }
    }

    /// `None` while the thread ends.
    fn cell(&self) -> Option<Rc<RefCell<T>>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let index = *self.index.get_or_init(|| NEXT.fetch_add(1, Ordering::Relaxed));
        let cell = PARTS.try_with(|parts| {
            let mut parts = parts.borrow_mut();
            if parts.len() <= index {
                parts.resize(index + 1, None);
            }
            parts[index].get_or_insert_with(|| Rc::new(RefCell::new(T::default()))).clone()
        });
        cell.ok()?.downcast().ok()
    }

    /// Calls `f` with this thread's value. While the thread ends, values dropped by then come here with the default. Panics if `f`
    /// comes back to the same part.
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.cell() {
            Some(cell) => f(&mut cell.borrow_mut()),
            None => f(&mut T::default()),
        }
    }

    /// Puts a value in the place of this thread's, which it returns.
    pub fn replace(&self, value: T) -> T {
        self.with(|now| std::mem::replace(now, value))
    }

    /// This thread's value; the default takes its place.
    pub fn take(&self) -> T {
        self.replace(T::default())
    }
}

/// Calls `f` outside of the thread's context: nothing is traced, collected or left unrecorded, and every part has its default. The
/// context is back afterwards, also if `f` panics. The scope and the call site stay: errors of `f` name them.
pub fn outside<R>(f: impl FnOnce() -> R) -> R {
    struct Back {
        modes: [u32; Mode::COUNT],
        parts: Vec<Option<Rc<dyn Any>>>,
    }
    impl Back {
        fn swap(&mut self) {
            MODES.with(|now| now.iter().zip(&mut self.modes).for_each(|(now, kept)| *kept = now.replace(*kept)));
            PARTS.with(|now| std::mem::swap(&mut *now.borrow_mut(), &mut self.parts));
        }
    }
    impl Drop for Back {
        fn drop(&mut self) {
            self.swap();
        }
    }
    let mut back = Back { modes: [0; Mode::COUNT], parts: Vec::new() };
    back.swap();
    let result = f();
    drop(back);
    result
}

/// The call site of the context.
pub(crate) fn site() -> Option<CallSite> {
    SITE.get()
}

/// Sets the call site and returns the one before.
pub(crate) fn replace_site(site: Option<CallSite>) -> Option<CallSite> {
    SITE.replace(site)
}

/// Calls `f` with the names of the scopes, the innermost last.
pub(crate) fn with_scopes<R>(f: impl FnOnce(&mut Vec<Arc<str>>) -> R) -> R {
    SCOPES.with_borrow_mut(f)
}

#[cfg(test)]
mod tests {
    use super::*;

    static NAMES: Part<Vec<&'static str>> = Part::new();
    static NUMBERS: Part<Vec<u8>> = Part::new();

    #[test]
    fn a_part_belongs_to_its_thread() {
        NAMES.with(|n| n.push("here"));
        NUMBERS.with(|n| n.push(7));
        let there = std::thread::spawn(|| NAMES.take()).join().expect("no panic");
        assert_eq!((there, NAMES.take(), NUMBERS.take()), (Vec::new(), vec!["here"], vec![7]));
        assert_eq!(NAMES.take(), Vec::<&str>::new(), "it was taken");
    }

    #[test]
    fn outside_of_a_context_there_is_none_and_afterwards_it_is_back() {
        let _scope = Scope::enter("block");
        NAMES.with(|n| n.push("kept"));
        assert_eq!(Mode::Tracing.replace(2), 0);
        let name = outside(|| {
            assert!(!Mode::Tracing.is_on());
            assert_eq!(NAMES.replace(vec!["lost"]), Vec::<&str>::new());
            Mode::Unrecorded.replace(1);
            outside(|| assert!(NAMES.take().is_empty()));
            assert_eq!(NAMES.with(|n| n.clone()), ["lost"]);
            Scope::current()
        });
        assert_eq!(name.as_deref(), Some("block"), "errors still name the scope");
        assert_eq!((Mode::Tracing.depth(), Mode::Unrecorded.depth()), (2, 0));
        assert_eq!(NAMES.with(|n| n.clone()), ["kept"]);
        let panicked = std::panic::catch_unwind(|| outside(|| panic!("as asked")));
        assert!(panicked.is_err());
        assert_eq!((Mode::Tracing.replace(0), NAMES.take()), (2, vec!["kept"]));
    }

    #[test]
    fn a_thread_that_ends_finds_the_default() {
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                NUMBERS.with(|n| assert!(n.is_empty()));
            }
        }
        thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        let ends = std::thread::spawn(|| {
            LAST.set(Some(Last));
            NUMBERS.with(|n| n.push(1));
            drop(NUMBERS.take());
        });
        ends.join().expect("no panic");
    }
}
