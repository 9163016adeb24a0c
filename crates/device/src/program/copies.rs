//! Copies between the workspace and a file, which go on beside the kernel calls of a run.

use remat_types::{Error, ErrorKind, Result};

use super::{Place, Step};
use crate::arena::Alignment;
use crate::spill::{BLOCK_BYTES, Slot};

/// An action on a slot of the file before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// Begins to copy the bytes of the workspace from this offset on to the slot.
    Out {
        /// Number of the slot.
        slot: usize,
        /// Offset in the workspace.
        at: usize,
    },
    /// Begins to copy the slot there.
    In {
        /// Number of the slot.
        slot: usize,
        /// Offset in the workspace.
        at: usize,
    },
    /// Waits for the slot's copies.
    Wait {
        /// Number of the slot.
        slot: usize,
    },
}

/// The copies of a plan that spills, in order.
#[derive(Debug, Default)]
pub struct Copies {
    /// Each with the number of the step that it comes before.
    pub list: Vec<(usize, CopyStep)>,
    /// Where each slot lies in the file.
    pub slots: Vec<Slot>,
    /// The workspace begins at a multiple of this.
    pub align: usize,
}

/// The bytes that a workspace needs beyond its size, so that it holds a multiple of `align` to begin at, wherever it
/// lies.
pub fn beyond(align: usize, device: Alignment) -> usize {
    if align > device.bytes() { align } else { 0 }
}

impl Copies {
    /// Adds a slot of `bytes` bytes; returns its number.
    pub fn slot(&mut self, bytes: usize) -> usize {
        let at = self.slots.last().map_or(0, |s| s.at + s.bytes.next_multiple_of(BLOCK_BYTES) as u64);
        self.slots.push(Slot { at, bytes });
        self.slots.len() - 1
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.slots.last().map_or(0, |s| s.at + s.bytes as u64)
    }

    fn bytes(&self, is_counted: impl Fn(&CopyStep) -> bool) -> usize {
        let of = |m: &CopyStep| match m {
            CopyStep::Out { slot, .. } | CopyStep::In { slot, .. } | CopyStep::Wait { slot } => self.slots[*slot].bytes,
        };
        self.list.iter().map(|(_, m)| m).filter(|m| is_counted(m)).map(of).sum()
    }

    /// Bytes that are copied to the file.
    pub fn out_bytes(&self) -> usize {
        self.bytes(|m| matches!(m, CopyStep::Out { .. }))
    }

    /// Bytes that are copied back.
    pub fn in_bytes(&self) -> usize {
        self.bytes(|m| matches!(m, CopyStep::In { .. }))
    }

    /// Errors (Internal) unless every copy stays within the workspace, no step writes bytes that are being copied out,
    /// and no step reads or writes bytes that are being copied in. Also, no step may write to one of `states` before
    /// the last wait. After that wait the disk cannot fail the run any more, so a run that fails has changed no state.
    pub fn check(&self, steps: &[Step], arena_bytes: usize, states: &[usize]) -> Result<()> {
        let mut check =
            Check { copies: self, arena_bytes, in_flight: Vec::new(), is_out: vec![false; self.slots.len()] };
        let mut next = 0;
        for (i, s) in steps.iter().enumerate() {
            while let Some((_, m)) = self.list.get(next).filter(|(before, _)| *before <= i) {
                check.begin(*m)?;
                next += 1;
            }
            check.step(s)?;
            let is_state = |p: Place| matches!(p, Place::Output(j) if states.contains(&j));
            if next < self.list.len() && s.y.iter().any(|t| is_state(t.place)) {
                return bad(format!("step {i} updates a state while copies are to come"));
            }
        }
        if next < self.list.len() { bad("a copy after the last step".into()) } else { Ok(()) }
    }
}

fn bad(what: String) -> Result<()> {
    Err(Error::new(ErrorKind::Internal, format!("spilled plan: {what}")))
}

struct Check<'m> {
    copies: &'m Copies,
    arena_bytes: usize,
    /// Copies under way: the slot, whether the copy is to the file, and the offset in the workspace.
    in_flight: Vec<(usize, bool, usize)>,
    is_out: Vec<bool>,
}

impl Check<'_> {
    fn begin(&mut self, m: CopyStep) -> Result<()> {
        let (slot, is_out, at) = match m {
            CopyStep::Wait { slot } => {
                self.in_flight.retain(|f| f.0 != slot);
                return Ok(());
            }
            CopyStep::Out { slot, at } => (slot, true, at),
            CopyStep::In { slot, at } => (slot, false, at),
        };
        let bytes = self.copies.slots[slot].bytes;
        if at.checked_add(bytes).is_none_or(|end| end > self.arena_bytes) {
            return bad(format!("slot {slot} leaves the workspace"));
        }
        if self.in_flight.iter().any(|f| f.0 == slot) || self.is_out[slot] == is_out {
            return bad(format!("slot {slot} is copied twice, or read before it was written"));
        }
        if self.in_flight.iter().any(|f| !(is_out && f.1) && self.overlaps(f, at, bytes)) {
            return bad(format!("slot {slot} overlaps another copy"));
        }
        self.is_out[slot] |= is_out;
        self.in_flight.push((slot, is_out, at));
        Ok(())
    }

    fn overlaps(&self, &(slot, _, from): &(usize, bool, usize), at: usize, bytes: usize) -> bool {
        at < from + self.copies.slots[slot].bytes && from < at + bytes
    }

    fn step(&self, s: &Step) -> Result<()> {
        let touches = |f: &(usize, bool, usize), place: Place, bytes: usize| matches!(place, Place::Arena(at) if bytes > 0 && self.overlaps(f, at, bytes));
        for f in &self.in_flight {
            let writes = s.y.iter().any(|t| touches(f, t.place, t.bytes))
                || touches(f, Place::Arena(s.workspace.0), s.workspace.1);
            let reads = s.x.iter().any(|x| touches(f, x.place, x.bytes));
            if writes || reads && !f.1 {
                return bad(format!("{} runs into the copy of slot {}", s.op.label(), f.0));
            }
        }
        Ok(())
    }
}
