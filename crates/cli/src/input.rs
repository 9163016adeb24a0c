//! Texts that a user names.

use std::io::Read;
use std::path::Path;

use remat::types::{Error, ErrorKind, Result, read_file};

/// A larger text is none that a command could use; it is refused before it fills the memory.
const LARGEST_TEXT_BYTES: u64 = 1 << 30;

/// The text of a regular file. Errors: Io; Format where it is too large or not UTF-8.
pub(crate) fn file(path: &Path) -> Result<String> {
    utf8(path, read_file(path, LARGEST_TEXT_BYTES)?)
}

/// The text of a regular file, or of standard input for `-`. Errors as [`file`].
pub(crate) fn file_or_standard(path: &Path) -> Result<String> {
    if path == Path::new("-") { utf8(path, standard()?) } else { file(path) }
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| Error::new(ErrorKind::Format, format!("{}: {e}", path.display())))
}

fn standard() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(LARGEST_TEXT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| Error::from(e).context("standard input"))?;
    if bytes.len() as u64 > LARGEST_TEXT_BYTES {
        return Err(Error::new(ErrorKind::Format, format!("standard input: more than {LARGEST_TEXT_BYTES} bytes")));
    }
    Ok(bytes)
}
