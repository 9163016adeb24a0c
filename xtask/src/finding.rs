//! The report of a check.

use std::fmt;
use std::path::{Path, PathBuf};

/// A problem in one place, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Relative to the repository root.
    pub(crate) path: PathBuf,
    /// Counted from 1; 0 stands for the whole file.
    pub(crate) line: usize,
    pub(crate) message: String,
    /// A warning is printed, and does not fail the check.
    pub(crate) is_warning: bool,
}

impl Finding {
    /// A finding that fails the check.
    pub(crate) fn error(path: &Path, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_path_buf(), line, message: message.into(), is_warning: false }
    }

    /// A finding that is only shown.
    pub(crate) fn warning(path: &Path, line: usize, message: impl Into<String>) -> Self {
        Self { is_warning: true, ..Self::error(path, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = if self.is_warning { "warning" } else { "error" };
        match self.line {
            0 => write!(f, "{level}: {}: {}", self.path.display(), self.message),
            line => write!(f, "{level}: {}:{line}: {}", self.path.display(), self.message),
        }
    }
}
