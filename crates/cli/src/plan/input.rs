//! Files in and out.

use std::io::Read;
use std::path::Path;

use remat::types::{Error, ErrorKind, Result, read_file};
use remat_graph::plan::generate::generate;
use remat_graph::plan::problem::Problem;

/// A larger text is no graph that could be planned; it is refused before it fills the memory.
pub(crate) const LARGEST_TEXT_BYTES: u64 = 1 << 30;

/// The text of a regular file, or of standard input for `-`.
pub(super) fn text(path: &Path) -> Result<String> {
    let bytes = if path == Path::new("-") { standard()? } else { read_file(path, LARGEST_TEXT_BYTES)? };
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

pub(super) fn problem(path: &Path) -> Result<Problem> {
    Problem::from_json(&text(path)?).map_err(|e| e.context(path.display()))
}

pub(super) fn generated(name: &str) -> Result<Problem> {
    Problem::new(generate(name)?)
}
