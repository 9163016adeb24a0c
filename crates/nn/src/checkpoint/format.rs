//! The format on which writer and reader agree.
//!
//! Versions; later programs read each of them:
//!
//! 1. No checksums. Read as it is.
//! 2. `sha256` in the metadata: a checksum of each tensor's bytes, and one of the header.

use remat_types::{Error, ErrorKind};

/// The version of the metadata that is written.
pub(super) const VERSION: u64 = 2;
/// The last version without checksums.
pub(super) const UNSEALED_VERSION: u64 = 1;
/// The key of our metadata within the file's.
pub(super) const KEY: &str = "remat";
/// The prefix of names of parameters and buffers.
pub(super) const MODEL: &str = "model.";
/// The prefix of names of an optimiser's state.
pub(super) const OPTIMIZER: &str = "optimizer.";

pub(super) fn bad(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Format, text)
}
