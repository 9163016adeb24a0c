//! The one error type of the workspace.
//!
//! `kind` is for programs, the message for people: `[softmax] axis 2 is out of range for rank 2`. The value is one
//! pointer wide, so a `Result` costs the fast path nothing.

use std::fmt;
use std::sync::Arc;

use crate::ByteSize;
use crate::context::{CallSite, Scope};

/// `std::result::Result` with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error, for programs to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes do not fit each other or the op.
    Shape,
    /// A dtype that the op does not take, or two that must agree and do not.
    DType,
    /// An axis or a rank out of range, or an axis named twice.
    Axis,
    /// An argument outside its domain: a negative stride, a probability of 2.
    Value,
    /// An index outside the tensor it indexes.
    Index,
    /// A wrong number of inputs or outputs.
    Arity,
    /// Tensors of different devices, or a device that cannot do the requested work.
    Device,
    /// The memory budget cannot be met; see [`Error::shortfall`].
    Budget,
    /// The tensor depends on an operation that failed.
    Poisoned,
    /// Another rank failed, does not come, or makes another call.
    Peer,
    /// The device or channel was closed, or the process has forked.
    Closed,
    /// The operating system refused a file or memory operation.
    Io,
    /// A file or text from outside is not what it claims to be.
    Format,
    /// No gradient is defined along this path.
    NotDifferentiable,
    /// A value that only exists at run time was asked for where none is known.
    NoValue,
    /// A bug in Remat: an invariant did not hold.
    Internal,
}

impl ErrorKind {
    /// A short lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            ErrorKind::Shape => "shape",
            ErrorKind::DType => "dtype",
            ErrorKind::Axis => "axis",
            ErrorKind::Value => "value",
            ErrorKind::Index => "index",
            ErrorKind::Arity => "arity",
            ErrorKind::Device => "device",
            ErrorKind::Budget => "budget",
            ErrorKind::Poisoned => "poisoned",
            ErrorKind::Peer => "peer",
            ErrorKind::Closed => "closed",
            ErrorKind::Io => "io",
            ErrorKind::Format => "format",
            ErrorKind::NotDifferentiable => "not differentiable",
            ErrorKind::NoValue => "no value",
            ErrorKind::Internal => "internal",
        }
    }
}

/// Bytes that cannot be evicted now, and who holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedBytes {
    /// Who pins: `parameters`, `inputs and outputs of conv2d`, `workspace`.
    pub by: String,
    /// How many bytes, padding included.
    pub bytes: usize,
}

/// Why a budget could not be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetShortfall {
    /// The operator that needed memory.
    pub op: String,
    /// Bytes it needed at once, workspace and padding included.
    pub needed_bytes: usize,
    /// The budget in force.
    pub budget_bytes: usize,
    /// Bytes that could not be evicted, by holder, largest first.
    pub pinned: Vec<PinnedBytes>,
    /// No smaller budget can run this operation in any way: the bytes that cannot be recomputed, and the bytes that it needs at
    /// once.
    pub least_bytes: usize,
    /// The smallest budget that is known to let this operation run, or the compiled run where `is_of_run`. Others of the program may
    /// need more.
    pub smallest_feasible_bytes: usize,
    /// The figures are those of a whole compiled run, not of one operation.
    pub is_of_run: bool,
    /// The bytes would do, but not within so many times the work of the step: the option of that name of the device.
    pub recompute_limit: Option<u32>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    op: Option<String>,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    call_site: Option<CallSite>,
    scope: Option<Arc<str>>,
    shortfall: Option<BudgetShortfall>,
}

/// The error of every fallible function of the workspace. Clones share one allocation.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

impl Error {
    /// An error of `kind` with a message for people. Within a call into a library it has the call's place and scope.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let call_site = Scope::site();
        Error(Arc::new(Inner {
            kind,
            op: None,
            message: message.into(),
            source: None,
            scope: call_site.and_then(|_| Scope::current()),
            call_site,
            shortfall: None,
        }))
    }

    /// The contract's error: `shortfall` has the needed bytes, the pinned bytes and a sufficient budget.
    pub fn budget(shortfall: BudgetShortfall) -> Self {
        let s = &shortfall;
        let (needed, budget, enough) =
            (ByteSize(s.needed_bytes), ByteSize(s.budget_bytes), ByteSize(s.smallest_feasible_bytes));
        // The exact number can be copied into a program: a rounded one would be refused.
        let enough = format!("{enough} ({} bytes)", s.smallest_feasible_bytes);
        let pinned: Vec<String> = s.pinned.iter().map(|p| format!("{} by {}", ByteSize(p.bytes), p.by)).collect();
        let pinned = match pinned.is_empty() {
            true => String::new(),
            false => format!(" beside what is pinned ({})", pinned.join(", ")),
        };
        let message = match (s.recompute_limit, s.is_of_run) {
            (None, false) => format!(
                "needs {needed} at once, which do not fit the budget of {budget}{pinned}; this operation fits from {enough} on, \
                 and smallest_budget (--find-budget of the command) finds what the whole program needs"
            ),
            (None, true) => format!(
                "no order of its calls fits the budget of {budget}{pinned}; the whole run fits from {enough} on"
            ),
            (Some(times), _) => format!(
                "cannot be met within {times} times the work of the step: in the budget of {budget} more would run again than \
                 that; nothing would in {enough}, smallest_budget (--find-budget of the command) finds what does, and the device's \
                 option recompute_limit allows more work"
            ),
        };
        let mut e = Error::new(ErrorKind::Budget, message).with_op(&shortfall.op);
        e.edit().shortfall = Some(shortfall);
        e
    }

    fn edit(&mut self) -> &mut Inner {
        if Arc::get_mut(&mut self.0).is_none() {
            let i = &self.0;
            let copy = Inner {
                kind: i.kind,
                op: i.op.clone(),
                message: i.message.clone(),
                source: i.source.as_ref().map(|s| s.to_string().into()),
                call_site: i.call_site,
                scope: i.scope.clone(),
                shortfall: i.shortfall.clone(),
            };
            self.0 = Arc::new(copy);
        }
        Arc::get_mut(&mut self.0).expect("just made unique")
    }

    /// Names the op, unless a deeper layer named one already.
    #[must_use]
    pub fn with_op(mut self, op: &str) -> Self {
        if self.0.op.is_none() {
            self.edit().op = Some(op.to_owned());
        }
        self
    }

    /// Names the method that the user called, in the place of the op that failed for it.
    #[must_use]
    pub fn called(mut self, method: &str) -> Self {
        if self.0.op.as_deref() != Some(method) {
            self.edit().op = Some(method.to_owned());
        }
        self
    }

    /// Names the place in the user's program, unless one is named already, and the scope that the thread is in.
    #[must_use]
    pub fn with_call_site(mut self, site: CallSite) -> Self {
        if self.0.call_site.is_some() {
            return self;
        }
        self.edit().call_site = Some(site);
        self.with_scope(Scope::current())
    }

    /// Names the part of the program, unless one is named already: `net.block1.conv`.
    #[must_use]
    pub fn with_scope(mut self, scope: Option<Arc<str>>) -> Self {
        if self.0.scope.is_none() && scope.is_some() {
            self.edit().scope = scope;
        }
        self
    }

    /// The place and the scope of another error, where this one has none.
    #[must_use]
    pub fn located_as(mut self, other: &Error) -> Self {
        if self.0.call_site.is_none() && other.0.call_site.is_some() {
            self.edit().call_site = other.0.call_site;
        }
        self.with_scope(other.0.scope.clone())
    }

    /// Attaches the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit().source = Some(Box::new(source));
        self
    }

    /// Puts `context: ` in front of the message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        let inner = self.edit();
        inner.message = format!("{context}: {}", inner.message);
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The op that failed, if one did.
    pub fn op(&self) -> Option<&str> {
        self.0.op.as_deref()
    }

    /// The message without the op and the call site.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Where in the user's program the failing operation was asked for.
    pub fn call_site(&self) -> Option<CallSite> {
        self.0.call_site
    }

    /// The full name of the [`Scope`] in which the failing operation was asked for: the path of a layer.
    pub fn scope(&self) -> Option<&str> {
        self.0.scope.as_deref()
    }

    /// The figures behind an error of kind [`ErrorKind::Budget`].
    pub fn shortfall(&self) -> Option<&BudgetShortfall> {
        self.0.shortfall.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(op) = &self.0.op {
            write!(f, "[{op}] ")?;
        }
        f.write_str(&self.0.message)?;
        match (&self.0.scope, self.0.call_site) {
            (Some(scope), Some(site)) => write!(f, " (in {scope}, at {site})"),
            (Some(scope), None) => write!(f, " (in {scope})"),
            (None, Some(site)) => write!(f, " (at {site})"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} error: {self}", self.0.kind.name())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|s| s as &(dyn std::error::Error + 'static))
    }
}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::new(ErrorKind::Io, e.to_string()).with_source(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_op_and_call_site() {
        let e = Error::new(ErrorKind::Axis, "axis 2 is out of range for rank 2").with_op("softmax");
        assert_eq!(e.to_string(), "[softmax] axis 2 is out of range for rank 2");
        let e = e.with_call_site(CallSite::here());
        assert!(e.to_string().contains("error.rs:"), "{e}");
        assert_eq!(e.clone().with_op("other").op(), Some("softmax"), "the deepest op stays");
    }

    #[test]
    fn a_budget_error_carries_its_figures() {
        let s = BudgetShortfall {
            op: "conv2d".into(),
            needed_bytes: 10,
            budget_bytes: 8,
            pinned: vec![PinnedBytes { by: "parameters".into(), bytes: 4 }],
            least_bytes: 12,
            smallest_feasible_bytes: 2014,
            is_of_run: false,
            recompute_limit: None,
        };
        let e = Error::budget(s.clone());
        assert_eq!(e.kind(), ErrorKind::Budget);
        assert_eq!(e.shortfall(), Some(&s));
        assert!(e.to_string().contains("4 B by parameters") && e.to_string().contains("2.0 KiB (2014 bytes)"), "{e}");
        assert!(e.to_string().contains("this operation") && e.to_string().contains("smallest_budget"), "{e}");
        let run = Error::budget(BudgetShortfall { is_of_run: true, ..s.clone() });
        assert!(run.to_string().contains("the whole run fits from 2.0 KiB"), "{run}");
        let e = Error::budget(BudgetShortfall { recompute_limit: Some(8), ..s });
        assert!(e.to_string().contains("within 8 times the work") && e.to_string().contains("2014 bytes"), "{e}");
    }
}
