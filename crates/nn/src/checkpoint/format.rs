//! What writer and reader agree on.

use remat_types::{Error, ErrorKind};

/// The version of the metadata.
pub(super) const VERSION: u64 = 1;
/// The key of our metadata within the file's.
pub(super) const KEY: &str = "remat";
/// What precedes names of parameters and buffers.
pub(super) const MODEL: &str = "model.";
/// What precedes names of an optimiser's state.
pub(super) const OPTIMIZER: &str = "optimizer.";

pub(super) fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}
