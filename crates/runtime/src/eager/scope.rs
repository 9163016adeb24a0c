//! Named parts of a program.

use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// Names of the scopes this thread is in, each with its parents: `block1.conv`.
    static SCOPES: RefCell<Vec<Arc<str>>> = const { RefCell::new(Vec::new()) };
}

/// A named part of a program, for reports and traces; ends when dropped.
pub struct Scope(std::marker::PhantomData<*const ()>);

impl Scope {
    /// Enters a scope within the thread's current one.
    pub fn enter(name: &str) -> Scope {
        SCOPES.with_borrow_mut(|s| {
            let full = s.last().map_or_else(|| name.to_owned(), |p| format!("{p}.{name}"));
            s.push(full.into());
        });
        Scope(std::marker::PhantomData)
    }

    /// The full name of the thread's current scope.
    pub fn current() -> Option<Arc<str>> {
        SCOPES.with_borrow(|s| s.last().cloned())
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        SCOPES.with_borrow_mut(|s| s.pop());
    }
}
