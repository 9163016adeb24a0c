//! Files in and out.

use std::io::Read;
use std::path::Path;

use remat::types::{Error, ErrorKind, Result};
use remat_graph::plan::generate::generate;
use remat_graph::plan::problem::Problem;

/// A larger text is no graph that could be planned; it is refused before it fills the memory.
const LARGEST_TEXT_BYTES: u64 = 1 << 30;

/// The text of a file, or of standard input for `-`.
pub(super) fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let from: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(|e| Error::from(e).context(path.display()))?)
    };
    let read = from.take(LARGEST_TEXT_BYTES + 1).read_to_string(&mut text);
    read.map_err(|e| Error::from(e).context(path.display()))?;
    if text.len() as u64 > LARGEST_TEXT_BYTES {
        let message = format!("{}: more than {LARGEST_TEXT_BYTES} bytes", path.display());
        return Err(Error::new(ErrorKind::Format, message));
    }
    Ok(text)
}

pub(super) fn problem(path: &Path) -> Result<Problem> {
    Problem::from_json(&text(path)?).map_err(|e| e.context(path.display()))
}

pub(super) fn generated(name: &str) -> Result<Problem> {
    Problem::new(generate(name)?)
}
