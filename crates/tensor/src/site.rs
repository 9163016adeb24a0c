//! Errors of calls that no op saw: they name the method and the caller's line, as inference's do.

use remat_types::{CallSite, Result};

/// Puts names on an error, where a deeper layer has put none.
pub(crate) trait InOp: Sized {
    /// Names `op` and the caller's line; of a `#[track_caller]` function, its caller's.
    #[track_caller]
    fn in_op(self, op: &str) -> Self {
        self.in_op_at(op, CallSite::here())
    }

    /// Names `op` and `site`.
    fn in_op_at(self, op: &str, site: CallSite) -> Self;

    /// Names the method that the user called, whatever op failed for it.
    fn called(self, method: &str) -> Self;
}

impl<T> InOp for Result<T> {
    fn in_op_at(self, op: &str, site: CallSite) -> Self {
        self.map_err(|e| e.with_op(op).with_call_site(site))
    }

    fn called(self, method: &str) -> Self {
        self.map_err(|e| e.called(method))
    }
}
