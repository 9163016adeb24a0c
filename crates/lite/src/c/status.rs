//! The result of a call, and the text of the last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};

use remat_types::{BudgetShortfall, Error, ErrorKind};

use super::border::{Versioned, c_text, write};

/// The version of this interface. It grows when a function or a struct changes so that a program has to be compiled again; fields
/// added at the end of a struct, and new functions, do not change it.
pub const REMAT_ABI_VERSION: u32 = 1;

/// The result of a call. Text for people is in remat_last_error.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum remat_status {
    /// Done.
    REMAT_OK = 0,
    /// Shapes do not fit each other, or the model.
    REMAT_SHAPE = 1,
    /// An element type that is not the one that is there.
    REMAT_DTYPE = 2,
    /// An axis or a rank out of range.
    REMAT_AXIS = 3,
    /// An argument that nothing can have: NULL, an unknown name, text that is not UTF-8, a struct that is too small.
    REMAT_VALUE = 4,
    /// An index out of range.
    REMAT_INDEX = 5,
    /// A wrong number of inputs or outputs.
    REMAT_ARITY = 6,
    /// A device that cannot do the requested work.
    REMAT_DEVICE = 7,
    /// The memory budget cannot be met: remat_last_shortfall has the figures.
    REMAT_BUDGET = 8,
    /// A value depends on an operation that failed.
    REMAT_POISONED = 9,
    /// A device was closed, or the process has forked.
    REMAT_CLOSED = 10,
    /// The system refused a file, memory or a thread; a read callback failed.
    REMAT_IO = 11,
    /// A file is not what it claims to be.
    REMAT_FORMAT = 12,
    /// No gradient is defined.
    REMAT_NOT_DIFFERENTIABLE = 13,
    /// A value that is not there yet: an output before a run.
    REMAT_NO_VALUE = 14,
    /// A fault in Remat.
    REMAT_INTERNAL = 15,
    /// The session is in a call of another thread, or runs.
    REMAT_BUSY = 16,
}

use remat_status::*;

/// The failure of a call.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) status: remat_status,
    text: String,
    shortfall: Option<Box<BudgetShortfall>>,
}

/// The result of what a call does.
pub(super) type Done<T = ()> = Result<T, Failed>;

impl Failed {
    pub(super) fn new(status: remat_status, text: impl Into<String>) -> Failed {
        Failed { status, text: text.into(), shortfall: None }
    }

    /// A Value error, the commonest.
    pub(super) fn value(text: impl Into<String>) -> Failed {
        Failed::new(REMAT_VALUE, text)
    }

    pub(super) fn busy(text: impl Into<String>) -> Failed {
        Failed::new(REMAT_BUSY, text)
    }
}

impl From<Error> for Failed {
    fn from(e: Error) -> Failed {
        Failed { status: status_of(e.kind()), text: e.to_string(), shortfall: e.shortfall().cloned().map(Box::new) }
    }
}

fn status_of(kind: ErrorKind) -> remat_status {
    match kind {
        ErrorKind::Shape => REMAT_SHAPE,
        ErrorKind::DType => REMAT_DTYPE,
        ErrorKind::Axis => REMAT_AXIS,
        ErrorKind::Value => REMAT_VALUE,
        ErrorKind::Index => REMAT_INDEX,
        ErrorKind::Arity => REMAT_ARITY,
        ErrorKind::Device => REMAT_DEVICE,
        ErrorKind::Budget => REMAT_BUDGET,
        ErrorKind::Poisoned => REMAT_POISONED,
        ErrorKind::Closed => REMAT_CLOSED,
        ErrorKind::Io => REMAT_IO,
        ErrorKind::Format => REMAT_FORMAT,
        ErrorKind::NotDifferentiable => REMAT_NOT_DIFFERENTIABLE,
        ErrorKind::NoValue => REMAT_NO_VALUE,
        // the enum may grow before the header does
        _ => REMAT_INTERNAL,
    }
}

fn name_of(status: i32) -> &'static CStr {
    const NAMES: [&CStr; 17] = [
        c"ok",
        c"shape",
        c"dtype",
        c"axis",
        c"value",
        c"index",
        c"arity",
        c"device",
        c"budget",
        c"poisoned",
        c"closed",
        c"io",
        c"format",
        c"not differentiable",
        c"no value",
        c"internal",
        c"busy",
    ];
    usize::try_from(status).ok().and_then(|i| NAMES.get(i)).copied().unwrap_or(c"unknown")
}

#[derive(Default)]
struct Last {
    text: CString,
    shortfall: Option<Box<BudgetShortfall>>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Keeps what went wrong as this thread's last error.
pub(super) fn keep(failed: &Failed) {
    let last = Last { text: c_text(&failed.text), shortfall: failed.shortfall.clone() };
    // a thread that is ending has no place for it any more
    let _ = LAST.try_with(|l| l.replace(last));
}

/// The result of `f`; a panic counts as an internal error.
pub(super) fn caught<T>(f: impl FnOnce() -> Done<T>) -> Done<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        // it may panic when it is dropped
        std::mem::forget(payload);
        Err(Failed::new(
            REMAT_INTERNAL,
            "a panic, which is a fault in Remat; its text went to the standard error stream",
        ))
    })
}

/// The border of a function that gives a status.
pub(super) fn guard(f: impl FnOnce() -> Done) -> remat_status {
    match caught(f) {
        Ok(()) => REMAT_OK,
        Err(failed) => {
            keep(&failed);
            failed.status
        }
    }
}

/// The border of a function that gives something else, `otherwise` if it fails.
pub(super) fn guard_or<T>(otherwise: T, f: impl FnOnce() -> Done<T>) -> T {
    caught(f).unwrap_or_else(|failed| {
        keep(&failed);
        otherwise
    })
}

/// The version of the library, as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn remat_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The version of the interface that the library has. A program was compiled for it if it equals REMAT_ABI_VERSION.
#[unsafe(no_mangle)]
pub extern "C" fn remat_abi_version() -> u32 {
    REMAT_ABI_VERSION
}

/// A short name of a status, as "budget". Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn remat_status_name(status: i32) -> *const c_char {
    name_of(status).as_ptr()
}

/// The text of the last error of this thread, empty if there was none. Never NULL. It stays until the next call on this thread that
/// fails; calls that succeed leave it.
#[unsafe(no_mangle)]
pub extern "C" fn remat_last_error() -> *const c_char {
    LAST.try_with(|l| l.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Why a budget could not be met.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct remat_shortfall {
    /// sizeof(remat_shortfall).
    pub struct_size: usize,
    /// The bytes that an operator needed at once.
    pub needed_bytes: usize,
    /// The budget in force.
    pub budget_bytes: usize,
    /// No smaller budget can run that operator.
    pub least_bytes: usize,
    /// The smallest budget that is known to let it run.
    pub smallest_feasible_bytes: usize,
}

// SAFETY: of numbers alone.
unsafe impl Versioned for remat_shortfall {
    const NAME: &str = "remat_shortfall";
    const FIRST_BYTES: usize = offset_of!(remat_shortfall, smallest_feasible_bytes) + size_of::<usize>();
}

/// The figures of the last error of this thread, if its status was REMAT_BUDGET; REMAT_NO_VALUE otherwise, which leaves the last
/// error as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remat_last_shortfall(shortfall: *mut remat_shortfall) -> remat_status {
    let last = LAST.try_with(|l| l.borrow().shortfall.clone()).ok().flatten();
    let Some(s) = last else { return REMAT_NO_VALUE };
    guard(|| {
        let figures = remat_shortfall {
            struct_size: 0,
            needed_bytes: s.needed_bytes,
            budget_bytes: s.budget_bytes,
            least_bytes: s.least_bytes,
            smallest_feasible_bytes: s.smallest_feasible_bytes,
        };
        // SAFETY: the caller's pointer is NULL or to such a struct.
        unsafe { write(shortfall, figures) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_border() {
        assert_eq!(guard(|| panic!("planted")), REMAT_INTERNAL);
        LAST.with(|l| assert!(l.borrow().text.to_str().is_ok_and(|t| t.contains("a panic"))));
        assert_eq!(guard_or(7, || panic!("planted")), 7);
    }

    #[test]
    fn kinds_keep_their_numbers() {
        // programs have them compiled in
        let all = [
            (ErrorKind::Shape, 1),
            (ErrorKind::DType, 2),
            (ErrorKind::Axis, 3),
            (ErrorKind::Value, 4),
            (ErrorKind::Index, 5),
            (ErrorKind::Arity, 6),
            (ErrorKind::Device, 7),
            (ErrorKind::Budget, 8),
            (ErrorKind::Poisoned, 9),
            (ErrorKind::Closed, 10),
            (ErrorKind::Io, 11),
            (ErrorKind::Format, 12),
            (ErrorKind::NotDifferentiable, 13),
            (ErrorKind::NoValue, 14),
            (ErrorKind::Internal, 15),
        ];
        for (kind, number) in all {
            assert_eq!(status_of(kind) as i32, number, "{kind:?}");
            assert_eq!(name_of(number).to_str(), Ok(kind.name()));
        }
        assert_eq!((REMAT_OK as i32, REMAT_BUSY as i32), (0, 16));
    }
}
