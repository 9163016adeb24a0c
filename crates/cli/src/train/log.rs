//! The JSON of a run, written as it goes: a line for each step and each epoch, and the results as the last line.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use remat::types::{Error, Result};
use serde_json::Value;

use crate::output;

enum To {
    Nobody,
    Standard,
    File(File, PathBuf),
}

/// Where the lines go. A file that fails is an error at the end, not in the middle of the work.
pub(super) struct Log {
    to: To,
    failure: Option<Error>,
}

impl Log {
    /// Makes the file, or takes standard output for `-`. Errors: Io.
    pub(super) fn new(path: Option<&Path>) -> Result<Log> {
        let to = match path {
            None => To::Nobody,
            Some(p) if output::is_standard(p) => To::Standard,
            Some(p) => To::File(File::create(p).map_err(|e| Error::from(e).context(p.display()))?, p.to_owned()),
        };
        Ok(Log { to, failure: None })
    }

    /// Writes a line. It is in the file when this returns.
    pub(super) fn line(&mut self, value: impl FnOnce() -> Value) {
        match &mut self.to {
            To::Nobody => {}
            To::Standard => output::print(&format!("{}\n", value())),
            To::File(file, path) if self.failure.is_none() => {
                let written = file.write_all(format!("{}\n", value()).as_bytes());
                self.failure = written.err().map(|e| Error::from(e).context(path.display()));
            }
            To::File(..) => {}
        }
    }

    /// Errors: Io if a line could not be written.
    pub(super) fn finish(self) -> Result<()> {
        self.failure.map_or(Ok(()), Err)
    }
}
