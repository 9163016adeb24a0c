//! Named parts of a program, and where in it they were asked for.

use std::sync::Arc;

use crate::context;

mod site;

pub use site::{CallSite, intern};

/// A named part of a program, for errors, reports and traces; ends when dropped.
pub struct Scope {
    has_name: bool,
    has_site: bool,
    /// It belongs to its thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Scope {
    /// Enters a scope within the thread's current one.
    pub fn enter(name: &str) -> Scope {
        context::with_scopes(|s| {
            let full = s.last().map_or_else(|| name.to_owned(), |p| format!("{p}.{name}"));
            s.push(full.into());
        });
        Scope { has_name: true, has_site: false, _thread: std::marker::PhantomData }
    }

    /// Enters a scope by its full name, whatever the thread's current one is: for work that belongs to an earlier part, as
    /// the backward pass of a layer does.
    pub fn again(full: Arc<str>) -> Scope {
        context::with_scopes(|s| s.push(full));
        Scope { has_name: true, has_site: false, _thread: std::marker::PhantomData }
    }

    /// [`Scope::enter`] for a layer or function of a library that was called at `site`: until the scope ends, what this
    /// thread does was asked for there, unless an outer call says where already. So an error names a line of the user's.
    pub fn called(name: &str, site: CallSite) -> Scope {
        let mut scope = Scope::enter(name);
        scope.has_site = claim(site);
        scope
    }

    /// [`Scope::called`] without a name, for what only calls others.
    pub fn at(site: CallSite) -> Scope {
        Scope { has_name: false, has_site: claim(site), _thread: std::marker::PhantomData }
    }

    /// The full name of the thread's current scope.
    pub fn current() -> Option<Arc<str>> {
        context::with_scopes(|s| s.last().cloned())
    }

    /// Where the outermost library call was made that this thread is in.
    pub(crate) fn site() -> Option<CallSite> {
        context::site()
    }
}

/// Code of the user's that a library call runs, such as a function that is being traced: until this value is dropped, the calls
/// that it makes say themselves where they were made.
pub struct Callback {
    outer: Option<CallSite>,
    /// It belongs to its thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Callback {
    /// Begins such code.
    pub fn enter() -> Callback {
        Callback { outer: context::replace_site(None), _thread: std::marker::PhantomData }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        context::replace_site(self.outer);
    }
}

fn claim(site: CallSite) -> bool {
    let is_first = context::site().is_none();
    if is_first {
        context::replace_site(Some(site));
    }
    is_first
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.has_name {
            context::with_scopes(|s| s.pop());
        }
        if self.has_site {
            context::replace_site(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    #[test]
    fn the_outermost_call_says_where_and_the_innermost_scope_what() {
        let plain = CallSite::here();
        let (outer, inner) = (CallSite::here(), CallSite::here());
        let net = Scope::at(outer);
        {
            let _layer = Scope::called("conv", inner);
            let _part = Scope::enter("pack");
            assert_eq!((CallSite::here(), Scope::current().as_deref()), (outer, Some("conv.pack")));
            let of_earlier = Scope::again("norm".into());
            assert_eq!(Scope::current().as_deref(), Some("norm"));
            drop(of_earlier);
            let e = Error::new(ErrorKind::Shape, "3 is not 4").with_op("matmul").with_call_site(CallSite::here());
            assert_eq!((e.call_site(), e.scope()), (Some(outer), Some("conv.pack")));
            let line = outer.line();
            assert!(e.to_string().starts_with("[matmul] 3 is not 4 (in conv.pack, at "), "{e}");
            assert!(e.to_string().ends_with(&format!("scope.rs:{line})")), "{e}");
            let kept = e.clone().with_scope(Some("other".into())).context("layer 1");
            assert_eq!(kept.scope(), Some("conv.pack"), "the deepest scope stays");
        }
        assert_eq!((CallSite::here(), Scope::current()), (outer, None));
        {
            let _callback = Callback::enter();
            assert_eq!(CallSite::here().line(), line!());
            let _own = Scope::at(inner);
            assert_eq!(CallSite::here(), inner);
        }
        assert_eq!(CallSite::here(), outer, "the library's own part goes on");
        drop(net);
        assert_eq!(CallSite::here().line(), line!());
        assert_ne!(plain, outer);
    }
}
