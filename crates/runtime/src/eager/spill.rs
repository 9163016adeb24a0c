//! Copies of storages in a file. A plan makes them where they cost less than recomputation.
//!
//! A storage may have a copy beside its bytes and its recipe. The copy leaves, lies in the file and arrives while
//! commands run. A command that reads an arriving storage, moves bytes or gives them away waits for the copy first
//! ([`Worker::wait_copies_of`]). A freed storage with a copy is read back when a command needs it, whether that was
//! planned or not.
//!
//! Only storages with recipes are copied. So a file that fails loses nothing: its contents are recomputed, and no more
//! copies are made.

use remat_graph::plan::problem::SpillRates;
use remat_types::{Error, ErrorKind, Result};

use super::failure::OpFailure;
use super::memory::table::StorageId;
use super::worker::Worker;
use crate::eager::step_planner::Local;
use crate::options::Foresight as Planning;
use crate::report::MemoryUse;
use remat_device::End;
use remat_device::FileCopy;
use remat_device::spill::BLOCK_BYTES;

/// The place of a storage's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    number: u32,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Leaving,
    There,
    Arriving,
}

/// A range of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    at: u64,
    bytes: u64,
    number: u32,
}

/// The bytes of a copy in the file.
fn file_bytes(bytes: usize) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES) as u64
}

/// Ranges of the file that hold copies, in order. There are few at any time.
#[derive(Debug, Default)]
struct Slots {
    taken: Vec<Taken>,
    vacant: Vec<u32>,
    next: u32,
}

impl Slots {
    /// The first range of whole blocks that is free, under a number of its own.
    fn take(&mut self, bytes: usize) -> Taken {
        let bytes = file_bytes(bytes);
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let mut end = 0;
        let gap = self.taken.iter().position(|t| {
            let has_room = t.at - end >= bytes;
            end = if has_room { end } else { t.at + t.bytes };
            has_room
        });
        let new = Taken { at: end, bytes, number };
        self.taken.insert(gap.unwrap_or(self.taken.len()), new);
        new
    }

    fn at(&self, number: u32) -> Option<u64> {
        self.taken.iter().find(|t| t.number == number).map(|t| t.at)
    }

    /// Ends a copy, and gives its bytes.
    fn give_back(&mut self, number: u32) -> u64 {
        let bytes = self.taken.iter().find(|t| t.number == number).map_or(0, |t| t.bytes);
        self.taken.retain(|t| t.number != number);
        self.vacant.push(number);
        bytes
    }
}

/// See the module's note.
#[derive(Default)]
pub(super) struct Spills {
    is_open: bool,
    used: MemoryUse,
    slots: Slots,
    /// Storages with a copy that was not waited for.
    in_flight: Vec<StorageId>,
    /// The reason that no more copies are made.
    failure: Option<Error>,
    /// The plans that make copies were dropped because of that.
    has_given_up: bool,
}

impl Spills {
    /// The use of the file, if there is one.
    pub(super) fn used(&self) -> Option<MemoryUse> {
        self.is_open.then_some(self.used)
    }

    /// The reason that no more copies are made.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }
}

impl Worker {
    /// Opens the file, if plans under a budget may use one. Errors (Io): it cannot be made.
    pub(super) fn open_spill(&mut self) -> Result<()> {
        if let Some(to) = &self.options.spill
            && self.step_planner.planning() != Planning::Off
            && !self.spills.is_open
        {
            self.spills.is_open = self.launcher.device().open_spill(to)?;
            self.spills.used.budget_bytes = Some(to.most_bytes()).filter(|most| *most < u64::MAX);
        }
        Ok(())
    }

    /// The rates that plans may assume: zero if there is no file, or if it has failed.
    pub(super) fn spill_rates(&self) -> SpillRates {
        let to = self.options.spill.as_ref().filter(|_| self.spills.is_open && self.spills.failure.is_none());
        let Some(to) = to else { return SpillRates::default() };
        // A plan that must not depend on the clock assumes the stated rates.
        let seen = self.launcher.spill_rates().filter(|_| self.step_planner.planning() != Planning::AtOnce);
        seen.unwrap_or_else(|| to.rates())
    }

    /// True once after the file has failed: plans that make copies are useless then.
    pub(super) fn gives_up_spilling(&mut self) -> bool {
        self.spills.failure.is_some() && !std::mem::replace(&mut self.spills.has_given_up, true)
    }

    pub(super) fn has_copy(&self, id: StorageId) -> bool {
        self.spills.failure.is_none() && self.table[id].copied.is_some()
    }

    /// Begins to copy a storage out, if it is resident and has a recipe.
    pub(super) fn spill(&mut self, chain: &[Local]) {
        let of = |l: &Local| self.step_planner.storage_of(*l);
        let Some(id) = chain.iter().filter_map(of).find(|id| self.table.is_resident(*id)) else { return };
        let s = &self.table[id];
        if s.recipe.is_none() || s.copied.is_some() || self.spills.failure.is_some() {
            return;
        }
        let (at, bytes) = (s.start(), s.bytes);
        if !self.spills.used.take(file_bytes(bytes)) {
            return;
        }
        let slot = self.spills.slots.take(bytes);
        let number = slot.number;
        self.table[id].copied = Some(Copied { number, way: Way::Leaving });
        self.spills.in_flight.push(id);
        match self.launcher.device().copy_out(FileCopy { number: number as usize, at, bytes, file_at: slot.at }) {
            Ok(()) => self.figures.stats.spilled_bytes += bytes as u64,
            Err(e) => {
                self.spills.failure.get_or_insert(e);
                self.drop_copy(id);
            }
        }
    }

    /// Begins to copy a storage back to the offset of the plan. If that is not possible, the storage is read when it is
    /// needed.
    pub(super) fn fetch_back(&mut self, chain: &[Local], at: usize) {
        let of = |l: &Local| self.step_planner.storage_of(*l);
        let Some(id) = chain.iter().filter_map(of).find(|id| self.has_copy(*id)) else { return };
        if self.table.is_resident(id) {
            return;
        }
        match self.memory.alloc_at(at, self.table[id].bytes, id) {
            Some(block) => {
                self.put_down(id, block);
                self.begin_arrival(id);
                self.table[id].pinned_by_plan = true;
            }
            None => self.figures.stats.misplaced += 1,
        }
    }

    /// Reads a freed storage back, and waits for it. False if it has no copy, or if the file fails.
    pub(super) fn restore(&mut self, id: StorageId) -> std::result::Result<bool, OpFailure> {
        if !self.has_copy(id) || self.table.is_resident(id) {
            return Ok(false);
        }
        self.place(id, End::High)?;
        self.begin_arrival(id);
        self.wait_copies_of(id);
        Ok(self.table.is_resident(id))
    }

    /// Begins the copy back to a storage that was placed just now.
    fn begin_arrival(&mut self, id: StorageId) {
        let s = &mut self.table[id];
        let Some(copied) = &mut s.copied else { return };
        copied.way = Way::Arriving;
        let (number, at, bytes) = (copied.number, s.start(), s.bytes);
        self.spills.in_flight.push(id);
        let begun = match self.spills.slots.at(number) {
            Some(file_at) => self.launcher.device().copy_in(FileCopy { number: number as usize, at, bytes, file_at }),
            None => Err(Error::new(ErrorKind::Internal, format!("copy {number} has no place in the file"))),
        };
        match begun {
            Ok(()) => self.figures.stats.fetched_bytes += bytes as u64,
            Err(e) => {
                self.spills.failure.get_or_insert(e);
                self.wait_copies_of(id);
            }
        }
    }

    /// Waits for a storage that is on its way back. A storage on its way out can be read.
    pub(super) fn wait_arrival(&mut self, id: StorageId) {
        if self.table[id].copied.is_some_and(|c| c.way == Way::Arriving) {
            self.wait_copies_of(id);
        }
    }

    /// Waits for the copy of a storage, if one is in flight. If the file fails, the storage loses its copy. A storage
    /// that was on its way back then has no bytes.
    pub(super) fn wait_copies_of(&mut self, id: StorageId) {
        let Some(copied) = &mut self.table[id].copied else { return };
        if copied.way == Way::There {
            return;
        }
        let Copied { number, way } = std::mem::replace(copied, Copied { way: Way::There, ..*copied });
        self.spills.in_flight.retain(|f| *f != id);
        let begin = std::time::Instant::now();
        let result = self.launcher.device().wait_copy(number as usize);
        self.figures.stats.spill_wait_ns += begin.elapsed().as_nanos() as u64;
        if let Err(e) = result {
            self.spills.failure.get_or_insert(e);
        }
        if self.spills.failure.is_some() {
            self.drop_copy(id);
            if way == Way::Arriving {
                self.unplace(id);
            }
        }
    }

    /// True if a copy was not waited for.
    pub(super) fn has_in_flight(&self) -> bool {
        !self.spills.in_flight.is_empty()
    }

    /// Waits for all copies, since any storage may move.
    pub(super) fn wait_copies(&mut self) {
        while let Some(&id) = self.spills.in_flight.last() {
            self.wait_copies_of(id);
        }
    }

    /// Gives the copy of a storage up, if it has one.
    pub(super) fn drop_copy(&mut self, id: StorageId) {
        self.wait_copies_of(id);
        if let Some(copied) = self.table[id].copied.take() {
            self.spills.used.give_back(self.spills.slots.give_back(copied.number));
        }
    }

    /// Gives all copies up.
    pub(super) fn drop_copies(&mut self) {
        let copied = self.table.storages().filter(|(_, s)| s.copied.is_some());
        let copied: Vec<StorageId> = copied.map(|(id, _)| id).collect();
        copied.into_iter().for_each(|id| self.drop_copy(id));
    }

    /// Errors: an invariant of copies that does not hold between commands.
    pub(super) fn verify_copies(&self) -> std::result::Result<(), String> {
        let mut count = 0;
        for (id, s) in self.table.storages() {
            let Some(copied) = s.copied else { continue };
            count += 1;
            let is_flying = self.spills.in_flight.contains(&id);
            if is_flying != (copied.way != Way::There) || (is_flying && !s.is_resident()) {
                return Err(format!("{id:?} ({}) has a copy that is {:?}", s.label.text, copied.way));
            }
            if self.spills.slots.at(copied.number).is_none() || (s.recipe.is_none() && !s.is_resident()) {
                return Err(format!("{id:?} ({}) has a copy that is no use", s.label.text));
            }
        }
        let (taken, in_flight) = (self.spills.slots.taken.len(), self.spills.in_flight.len());
        if taken != count || in_flight > count {
            return Err(format!("{count} storages have copies, {taken} ranges of the file, {in_flight} under way"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_the_file_lie_apart_and_are_used_again() {
        let mut s = Slots::default();
        let [a, b, c] = [2, 1, 2].map(|blocks| s.take(blocks * BLOCK_BYTES - 1));
        let blocks = |t: Taken| t.at as usize / BLOCK_BYTES;
        assert_eq!([a, b, c].map(blocks), [0, 2, 3]);
        s.give_back(b.number);
        let d = s.take(BLOCK_BYTES + 1);
        assert_eq!((blocks(d), d.number), (5, b.number), "too long for the gap");
        let e = s.take(1);
        assert_eq!(blocks(e), 2);
        s.give_back(a.number);
        s.give_back(e.number);
        assert_eq!(blocks(s.take(3 * BLOCK_BYTES)), 0, "neighbours that are free are one gap");
        assert!(s.taken.windows(2).all(|w| w[0].at + w[0].bytes <= w[1].at), "{:?}", s.taken);
        assert!(s.taken.iter().all(|t| t.at % BLOCK_BYTES as u64 == 0), "{:?}", s.taken);
    }
}
