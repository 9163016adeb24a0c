//! Checksums over every byte of a file, in its own header.
//!
//! The metadata's `sha256` holds one checksum for each tensor and one, `header`, of everything before the first tensor, in
//! which that checksum itself counts as zeros. Sizes never depend on checksums: a writer reserves the header, writes the
//! tensors, and then writes the header again.

use std::collections::BTreeMap;

use remat_types::{HostTensor, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::format::bad;

/// Hex digits of a checksum.
const DIGITS: usize = 64;

/// As it stands in the metadata.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seal {
    header: String,
    tensors: BTreeMap<String, String>,
}

impl Seal {
    /// Zeros for these tensors.
    pub(super) fn reserved<'a>(names: impl Iterator<Item = &'a String>) -> Seal {
        Seal { header: zeros(), tensors: names.map(|n| (n.clone(), zeros())).collect() }
    }

    /// Takes down a tensor's checksum.
    pub(super) fn note(&mut self, name: &str, bytes: &[u8]) {
        self.tensors.insert(name.to_owned(), checksum(bytes));
    }

    /// Errors, naming the tensor: Format if there is no checksum for it, or another.
    pub(super) fn check_tensor(&self, name: &str, t: &HostTensor) -> Result<()> {
        let saved = self.tensors.get(name);
        let saved = saved.ok_or_else(|| bad(format!("tensor `{name}` has no checksum: the file is damaged")))?;
        let found = checksum(t.bytes());
        if *saved == found {
            return Ok(());
        }
        Err(bad(format!("tensor `{name}` is damaged: its bytes have the checksum {found}, and {saved} was saved")))
    }

    /// Checks everything before the first tensor. Errors: Format.
    pub(super) fn check_header(&self, header: &[u8]) -> Result<()> {
        let place = place_of(header, &self.header);
        let place = place.ok_or_else(|| bad("the header is damaged: its checksum is not one"))?;
        let mut bare = header.to_vec();
        bare[place..place + DIGITS].fill(b'0');
        let found = checksum(&bare);
        if self.header == found {
            return Ok(());
        }
        let saved = &self.header;
        Err(bad(format!("the header is damaged: its bytes have the checksum {found}, and {saved} was saved")))
    }
}

/// Puts the checksum of a header into it, in the place that is reserved. Errors: Format if there is none.
pub(super) fn seal_header(header: &mut [u8]) -> Result<()> {
    // names of tensors may end in zeros, and tensors without bytes have checksums of their own
    let field = format!("\\\"header\\\":\\\"{}", zeros());
    let place = find(header, field.as_bytes()).map(|at| at + field.len() - DIGITS);
    let place = place.ok_or_else(|| bad("the header has no place for its checksum"))?;
    let sum = checksum(header);
    header[place..place + DIGITS].copy_from_slice(sum.as_bytes());
    Ok(())
}

fn zeros() -> String {
    "0".repeat(DIGITS)
}

fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Where a checksum stands in the header, if it is one and stands there once.
fn place_of(header: &[u8], sum: &str) -> Option<usize> {
    let is_checksum = sum.len() == DIGITS && sum.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let at = find(header, sum.as_bytes()).filter(|_| is_checksum)?;
    find(&header[at + 1..], sum.as_bytes()).is_none().then_some(at)
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|w| w == part)
}
