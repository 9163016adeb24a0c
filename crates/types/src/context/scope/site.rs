//! Where in the user's program something was asked for.
//!
//! A Rust caller's place is a static of the compiler. A host language gives file and line at run time: such a place is kept
//! once for the life of the process, since the source lines of a program are few. So a site of either kind is one word to
//! copy and compare.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use super::Scope;

/// Texts and places that were ever named at run time.
static NAMED: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
static PLACES: Mutex<Option<HashSet<&'static Place>>> = Mutex::new(None);

/// A text that lives as long as the process, made once for all equal ones: for names that a host language gives at run time
/// (labels of ops, files). Each different text costs memory until the process ends.
pub fn intern(text: &str) -> &'static str {
    let mut all = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    if let Some(known) = all.get(text) {
        return known;
    }
    let kept: &'static str = Box::leak(text.into());
    all.insert(kept);
    kept
}

/// A place that a host language named.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    file: &'static str,
    line: u32,
}

/// The caller's file and line.
#[derive(Clone, Copy)]
pub struct CallSite(Of);

#[derive(Clone, Copy)]
enum Of {
    Rust(&'static Location<'static>),
    Host(&'static Place),
}

impl CallSite {
    /// The place that called the `#[track_caller]` function this is called from; within a call into a library that says
    /// where it was made ([`Scope::called`]), that place.
    #[track_caller]
    pub fn here() -> Self {
        let caller = CallSite(Of::Rust(Location::caller()));
        Scope::site().unwrap_or(caller)
    }

    /// A line of a program in another language. Such a program says with [`Scope::at`] that what a thread does was asked for
    /// there.
    pub fn of_host(file: &str, line: u32) -> Self {
        let place = Place { file: intern(file), line };
        let mut all = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        if let Some(known) = all.get(&place) {
            return CallSite(Of::Host(known));
        }
        let kept: &'static Place = Box::leak(Box::new(place));
        all.insert(kept);
        CallSite(Of::Host(kept))
    }

    /// The source file.
    pub fn file(&self) -> &'static str {
        match self.0 {
            Of::Rust(l) => l.file(),
            Of::Host(p) => p.file,
        }
    }

    /// The line, from 1.
    pub fn line(&self) -> u32 {
        match self.0 {
            Of::Rust(l) => l.line(),
            Of::Host(p) => p.line,
        }
    }
}

impl PartialEq for CallSite {
    fn eq(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            // the compiler may have several statics of one place
            (Of::Rust(a), Of::Rust(b)) => a == b,
            (Of::Host(a), Of::Host(b)) => std::ptr::eq(a, b),
            _ => false,
        }
    }
}
impl Eq for CallSite {}
impl Hash for CallSite {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.file(), self.line()).hash(state);
    }
}
impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file(), self.line())
    }
}
impl fmt::Debug for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    #[test]
    fn a_line_of_a_host_language_is_kept_once_and_names_errors() {
        let site = CallSite::of_host(&String::from("model.py"), 12);
        let again = CallSite::of_host("model.py", 12);
        assert_eq!(site, again);
        assert!(std::ptr::eq(site.file(), again.file()), "one text");
        assert_ne!(site, CallSite::of_host("model.py", 13));
        assert_ne!(site, CallSite::here());
        let _in_python = Scope::at(site);
        assert_eq!(CallSite::here(), site);
        let e = Error::new(ErrorKind::Shape, "3 is not 4").with_op("matmul");
        assert!(e.to_string().ends_with("(at model.py:12)"), "{e}");
    }

    #[test]
    fn threads_that_intern_at_once_get_one_text() {
        let all: Vec<_> = (0..8).map(|_| std::thread::spawn(|| intern("my_op").as_ptr() as usize)).collect();
        let all: HashSet<usize> = all.into_iter().map(|t| t.join().expect("ends")).collect();
        assert_eq!(all.len(), 1);
    }
}
