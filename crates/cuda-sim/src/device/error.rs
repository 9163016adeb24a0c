//! Errors with the codes of the driver.

use std::fmt;

use crate::exec::{Fault, FaultKind};

/// The codes of `CUresult` that the device returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum ErrorCode {
    InvalidValue = 1,
    OutOfMemory = 2,
    InvalidDevice = 101,
    InvalidPtx = 218,
    InvalidHandle = 400,
    NotFound = 500,
    NotReady = 600,
    IllegalAddress = 700,
    LaunchTimeout = 702,
    MisalignedAddress = 716,
    LaunchFailed = 719,
    CaptureUnsupported = 900,
    CaptureInvalidated = 901,
    CaptureUnmatched = 903,
    CaptureUnjoined = 904,
    CapturedEvent = 907,
}

/// An error of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// Its code.
    pub code: ErrorCode,
    /// The error in words.
    pub message: String,
    /// The fault of the kernel that caused it.
    pub fault: Option<Box<Fault>>,
}

/// The result of a call.
pub type Outcome<T> = Result<T, CudaError>;

impl CudaError {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        CudaError { code, message: message.into(), fault: None }
    }

    pub(super) fn from_fault(fault: Box<Fault>) -> Self {
        let code = match fault.kind {
            FaultKind::Launch => ErrorCode::InvalidValue,
            FaultKind::OutOfBounds | FaultKind::Unmapped => ErrorCode::IllegalAddress,
            FaultKind::Misaligned => ErrorCode::MisalignedAddress,
            FaultKind::Limit => ErrorCode::LaunchTimeout,
            _ => ErrorCode::LaunchFailed,
        };
        CudaError { code, message: fault.to_string(), fault: Some(fault) }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA error {} ({:?}): {}", self.code as i32, self.code, self.message)
    }
}

impl std::error::Error for CudaError {}
