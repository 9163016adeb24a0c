//! The map of the arena.

use std::collections::BTreeMap;

use remat_types::Result;

use crate::plan::json::format_error;

/// Occupied ranges by their offset; empty ranges are nowhere.
#[derive(Default)]
pub(super) struct Map {
    /// Offset to (end, who).
    blocks: BTreeMap<u64, (u64, String)>,
    pub(super) highest: u64,
}

impl Map {
    /// Occupies `bytes` from `offset`.
    pub(super) fn occupy(&mut self, who: &str, offset: u64, bytes: u64, align: u64) -> Result<()> {
        if !offset.is_multiple_of(align) {
            return Err(format_error(format!("offset {offset} of `{who}` is not a multiple of {align}")));
        }
        let end =
            offset.checked_add(bytes).ok_or_else(|| format_error(format!("`{who}` ends beyond all addresses")))?;
        if bytes == 0 {
            return Ok(());
        }
        let below = self.blocks.range(..end).next_back();
        if let Some((_, (other_end, other))) = below.filter(|(_, (other_end, _))| *other_end > offset) {
            return Err(format_error(format!(
                "`{who}` at {offset}..{end} overlaps `{other}`, which ends at {other_end}"
            )));
        }
        self.blocks.insert(offset, (end, who.to_owned()));
        self.highest = self.highest.max(end);
        Ok(())
    }

    /// Frees what `occupy` took.
    pub(super) fn release(&mut self, offset: u64, bytes: u64) {
        if bytes > 0 {
            self.blocks.remove(&offset);
        }
    }
}
