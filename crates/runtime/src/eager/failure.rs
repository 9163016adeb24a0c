//! Errors of commands that ran after their caller went on.

use std::cell::Cell;
use std::rc::Rc;

use remat_types::{Error, ErrorKind};

/// A failed command. Every tensor that depends on it shares this record; the error itself is reported once.
pub(crate) struct Failure {
    error: Error,
    reported: Cell<bool>,
}

impl Failure {
    pub(crate) fn new(error: Error) -> Rc<Self> {
        // A poisoned input's own error has been told already.
        let reported = Cell::new(error.kind() == ErrorKind::Poisoned);
        Rc::new(Failure { error, reported })
    }

    /// The error itself the first time, and after that one of kind Poisoned that names it.
    pub(crate) fn report(&self) -> Error {
        if !self.reported.replace(true) || self.error.kind() == ErrorKind::Poisoned {
            return self.error.clone();
        }
        let e = Error::new(ErrorKind::Poisoned, format!("depends on an operation that failed: {}", self.error));
        match self.error.call_site() {
            Some(site) => e.with_call_site(site),
            None => e,
        }
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.reported.get()
    }
}

/// Why a command did not run.
pub(super) enum Stop {
    /// It failed itself.
    Own(Error),
    /// It depends on a failure.
    Inherited(Rc<Failure>),
}

impl Stop {
    /// For who asked for the command's result.
    pub(super) fn report(self) -> Error {
        match self {
            Stop::Own(e) => e,
            Stop::Inherited(f) => f.report(),
        }
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Own(e)
    }
}
