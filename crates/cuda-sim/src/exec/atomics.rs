//! Atomics, and asynchronous copies to shared memory.

use super::access::{is_aligned, lanes, resolve};
use super::block::Block;
use super::cells::Use;
use super::fault::{FaultKind, Tried, Trouble};
use crate::code::{Atomic, CopyAsync};
use crate::lanes::LANES;
use crate::ptx::Space;

/// A copy that was issued and not waited for.
#[derive(Debug)]
pub(super) struct PendingCopy {
    thread: usize,
    /// The number of its group among those of the thread; `None` before the commit.
    group: Option<u32>,
    to: u64,
    bytes: u32,
    data: [u8; 16],
}

/// The copies of a block.
#[derive(Debug, Default)]
pub(super) struct Copies {
    pending: Vec<PendingCopy>,
    /// Groups that each thread committed.
    groups: Vec<u32>,
}

impl Copies {
    pub(super) fn begin(&mut self, threads: usize) {
        self.pending.clear();
        self.groups.clear();
        self.groups.resize(threads.next_multiple_of(LANES), 0);
    }
}

impl Block<'_> {
    pub(super) fn atomic(&mut self, a: &Atomic, mask: &[u32]) -> Tried<()> {
        for (warp, &mask) in mask.iter().enumerate() {
            for lane in lanes(mask) {
                let thread = warp * LANES + lane;
                let (space, at) = resolve(a.space, self.address(&a.address, warp, lane));
                let (b, c) = (self.register(a.class, a.b, warp, lane), self.register(a.class, a.c, warp, lane));
                let old = self.change(space, at, a, (b, c), thread).map_err(|t| t.by(thread))?;
                if let Some((class, slot)) = a.to {
                    self.set_register(class, slot, warp, lane, old);
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, space: Space, at: u64, a: &Atomic, (b, c): (u64, u64), thread: usize) -> Tried<u64> {
        is_aligned(at, u64::from(a.bytes))?;
        match space {
            Space::Global => self.global.change(at, a.bytes, |old| (a.apply)(old, b, c)),
            Space::Shared => {
                let old = self.shared.read(at, a.bytes, thread, Use::Atomic)?;
                self.shared.write(at, a.bytes, (a.apply)(old, b, c), thread, Use::Atomic)?;
                Ok(old)
            }
            _ => Err(Trouble::at(FaultKind::OutOfBounds, at, "an atomic on local memory")),
        }
    }

    /// Issues copies. The bytes are read now and arrive when the thread waits; until then reading them is a fault.
    pub(super) fn copy_async(&mut self, copy: &CopyAsync, mask: &[u32]) -> Tried<()> {
        for (warp, &mask) in mask.iter().enumerate() {
            for lane in lanes(mask) {
                let thread = warp * LANES + lane;
                let (to, from) = (self.address(&copy.to, warp, lane), self.address(&copy.from, warp, lane));
                let from_bytes = copy
                    .from_bytes
                    .map_or(copy.bytes, |slot| self.regs.words[self.regs.row(slot, warp)][lane].min(copy.bytes));
                self.issue(copy.bytes, to, from, from_bytes, thread).map_err(|t| t.by(thread))?;
            }
        }
        Ok(())
    }

    fn issue(&mut self, bytes: u32, to: u64, from: u64, from_bytes: u32, thread: usize) -> Tried<()> {
        is_aligned(to, u64::from(bytes))?;
        is_aligned(from, u64::from(bytes))?;
        let mut data = [0; 16];
        let mut at = 0;
        while at < from_bytes {
            let step = if from_bytes - at >= 4 { 4 } else { 1 };
            let value = self.global.read(from + u64::from(at), step, Use::Read)?;
            data[at as usize..(at + step) as usize].copy_from_slice(&value.to_le_bytes()[..step as usize]);
            at += step;
        }
        self.shared.set_pending(to, bytes, true)?;
        self.copies.pending.push(PendingCopy { thread, group: None, to, bytes, data });
        Ok(())
    }

    pub(super) fn commit_copies(&mut self, mask: &[u32]) {
        let is_active = |thread: usize| mask[thread / LANES] >> (thread % LANES) & 1 == 1;
        let Copies { pending, groups } = &mut self.copies;
        for copy in pending.iter_mut().filter(|c| c.group.is_none() && is_active(c.thread)) {
            copy.group = Some(groups[copy.thread]);
        }
        groups.iter_mut().enumerate().filter(|(thread, _)| is_active(*thread)).for_each(|(_, count)| *count += 1);
    }

    /// Finishes the copies of all but the last `groups` groups of each thread, or all copies.
    pub(super) fn wait_copies(&mut self, groups: Option<u32>, mask: &[u32]) -> Tried<()> {
        let mut kept = Vec::new();
        for copy in std::mem::take(&mut self.copies.pending) {
            let thread = copy.thread;
            let is_active = mask[thread / LANES] >> (thread % LANES) & 1 == 1;
            let is_due = match (groups, copy.group) {
                (None, _) => true,
                (Some(left), Some(group)) => group < self.copies.groups[thread].saturating_sub(left),
                (Some(_), None) => false,
            };
            if !is_active || !is_due {
                kept.push(copy);
                continue;
            }
            self.shared.set_pending(copy.to, copy.bytes, false)?;
            for at in (0..copy.bytes).step_by(4) {
                let first = at as usize;
                let word =
                    copy.data[first..first + 4].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
                let to = copy.to + u64::from(at);
                self.shared.write(to, 4, word, thread, Use::Write).map_err(|t| t.by(thread))?;
            }
        }
        self.copies.pending = kept;
        Ok(())
    }
}
