//! The checksum of a file: CRC-32 over all of its text but itself, and over name, dtype, shape and elements of each tensor.
//!
//! A disk or a download that changes a byte would change a weight, and nothing else of the file would say so. Any change of up to four
//! bytes in a row is found for certain. Encrypted files have none: their cipher authenticates the same.

use std::collections::BTreeMap;

use remat_types::{HostTensor, Result};

use super::bad;

/// The key of the metadata that has it.
pub(super) const KEY: &str = "remat.checksum";

/// The checksum as the metadata has it: that of all text under other keys, and of the tensors.
pub(super) fn of(text: &BTreeMap<String, String>, tensors: &BTreeMap<String, HostTensor>) -> String {
    let mut crc = crc32fast::Hasher::new();
    // with its length in front of each part there is one way to read the whole
    let mut part = |bytes: &[u8]| {
        crc.update(&(bytes.len() as u64).to_le_bytes());
        crc.update(bytes);
    };
    for (key, value) in text.iter().filter(|(key, _)| *key != KEY) {
        part(key.as_bytes());
        part(value.as_bytes());
    }
    for (name, t) in tensors {
        part(name.as_bytes());
        part(t.dtype().to_string().as_bytes());
        t.shape().dims().iter().for_each(|n| part(&(*n as u64).to_le_bytes()));
        part(t.bytes());
    }
    format!("crc32:{:08x}", crc.finalize())
}

/// Errors (Format): a file of another checksum than it was written with, or without one where it is `needed`.
pub(super) fn check(
    text: &BTreeMap<String, String>,
    tensors: &BTreeMap<String, HostTensor>,
    needed: bool,
) -> Result<()> {
    let again = "; copy it again from where it was made";
    match text.get(KEY) {
        None if needed => Err(bad(format!("the file is damaged: it has lost its `{KEY}`{again}"))),
        None => Ok(()),
        Some(written) => {
            let found = of(text, tensors);
            let is_same = *written == found;
            let damaged = || bad(format!("the file is damaged: it was written with {written}, and has {found}{again}"));
            is_same.then_some(()).ok_or_else(damaged)
        }
    }
}
