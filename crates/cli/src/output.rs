//! Results to files and to standard output.

use std::io::Write;
use std::path::Path;

use remat::types::{Error, Result};

/// Whether a path stands for standard output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

/// Prints to standard output. Errors: Io.
pub(crate) fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes a file, or to standard output for `-`. Errors: Io.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    if is_standard(path) {
        return print_bytes(bytes.as_ref());
    }
    std::fs::write(path, bytes).map_err(|e| Error::from(e).context(path.display()))
}

fn print_bytes(bytes: &[u8]) -> Result<()> {
    match std::io::stdout().write_all(bytes) {
        // Who reads no further has what it wanted.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|e| Error::from(e).context("standard output")),
    }
}
