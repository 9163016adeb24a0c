//! Bytes for people.

use remat::types::ByteSize;

/// [`ByteSize`] as text.
pub(crate) fn show(bytes: usize) -> String {
    ByteSize(bytes).to_string()
}
