//! Failures of calls, and what the driver says about them.

use std::cell::RefCell;
use std::ffi::{CStr, CString};

use remat_cuda_sim::CudaError;

pub(super) use crate::driver::OUT_OF_MEMORY;
use crate::driver::{NOT_READY, SUCCESS, Status};

pub(super) const INVALID_VALUE: Status = 1;
pub(super) const INVALID_DEVICE: Status = 101;
pub(super) const INVALID_CONTEXT: Status = 201;
pub(super) const NO_BINARY: Status = 209;
pub(super) const PEER_ACCESS_UNSUPPORTED: Status = 217;
pub(super) const INVALID_PTX: Status = 218;
pub(super) const INVALID_HANDLE: Status = 400;
pub(super) const UNKNOWN: Status = 999;

/// Status, name and description (CUDA Driver API, `CUresult`).
const STATUSES: &[(Status, &CStr, &CStr)] = &[
    (SUCCESS, c"CUDA_SUCCESS", c"no error"),
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (OUT_OF_MEMORY, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (NO_BINARY, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device"),
    (
        PEER_ACCESS_UNSUPPORTED,
        c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        c"peer access is not supported between these devices",
    ),
    (INVALID_PTX, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (NOT_READY, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing"),
    (901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"operation failed due to a previous error during capture"),
    (903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"capture was not initiated in this stream"),
    (904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capture sequence contains a fork that was not joined"),
    (907, c"CUDA_ERROR_CAPTURED_EVENT", c"operation not permitted on an event last recorded in a capturing stream"),
    (UNKNOWN, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

/// The failure of a call.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: Status,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(status: Status, message: impl Into<String>) -> Self {
        Failure { status, message: message.into() }
    }
}

impl From<CudaError> for Failure {
    fn from(e: CudaError) -> Self {
        Failure::new(e.code as Status, e.message)
    }
}

/// The result of a call.
pub(super) type Outcome<T> = Result<T, Failure>;

thread_local! {
    /// The thread's last failure.
    static LAST: RefCell<(Status, CString)> = RefCell::default();
}

/// Keeps a failure for [`text`].
pub(super) fn keep(failure: Failure) -> Status {
    let text = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    // a thread that ends has no text any more
    let _ = LAST.try_with(|last| *last.borrow_mut() = (failure.status, text));
    failure.status
}

/// The name of a status.
pub(super) fn name(status: Status) -> Option<&'static CStr> {
    STATUSES.iter().find(|s| s.0 == status).map(|s| s.1)
}

/// The text of the thread's last failure if it has this status, else that of the status. The pointer is good until the thread's
/// next failure.
pub(super) fn text(status: Status) -> Option<*const std::ffi::c_char> {
    let last = LAST.try_with(|last| {
        let last = last.borrow();
        (last.0 == status && status != SUCCESS).then(|| last.1.as_ptr())
    });
    last.ok().flatten().or_else(|| STATUSES.iter().find(|s| s.0 == status).map(|s| s.2.as_ptr()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_failure_of_the_thread_is_told_in_its_own_words() {
        // SAFETY: the pointer is that of a text with a zero at its end, and no call has failed since.
        let told = |status| text(status).map(|p| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned());
        assert_eq!(told(INVALID_VALUE).as_deref(), Some("invalid argument"));
        assert_eq!(keep(Failure::new(INVALID_VALUE, "a\0b")), INVALID_VALUE);
        assert_eq!(told(INVALID_VALUE).as_deref(), Some("a b"));
        assert_eq!(told(INVALID_HANDLE).as_deref(), Some("invalid resource handle"));
        assert_eq!((told(7), name(7), name(SUCCESS)), (None, None, Some(c"CUDA_SUCCESS")));
        std::thread::scope(|s| {
            s.spawn(|| assert_eq!(told(INVALID_VALUE).as_deref(), Some("invalid argument")));
        });
    }
}
