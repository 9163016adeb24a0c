//! Canonical eviction, which depends on nothing but the commands.
//!
//! The canonical way evicts every storage that can be recomputed and compacts the arena. Then it runs commands,
//! recomputes their inputs and evicts the storages used longest ago. Whether it suffices is a property of the program
//! and the budget. It decides whether a group of updates runs that the schedule (`schedule/mod.rs`) cannot perform: the
//! worker rehearses the whole group before its first update (`group/rehearse.rs`). It also decides an update in place
//! that overwrites a leaf with readers (`update.rs`). The schedule decides every other command.
//!
//! Which storages can be recomputed must not depend on the measured times either. Where memory is short, the worker
//! drops a recipe for good only by rules that look at commands and sizes, and not at what is evicted: when leaves grow
//! (`feasibility`), when a leaf has smaller results, and when a leaf is updated in place (`update.rs`).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use remat_types::Result;

use crate::eager::failure::OpFailure;
use crate::eager::memory::table::{Storage, StorageId};
use crate::eager::worker::Worker;
use crate::slab::Key;

impl Worker {
    /// Errors: the reason why the canonical way would not suffice for a command.
    pub(in crate::eager) fn check_canonical<T>(
        &self,
        command: impl FnOnce(&mut Worker) -> std::result::Result<T, OpFailure>,
    ) -> std::result::Result<(), OpFailure> {
        match command(&mut self.copy_canonical(None, self.work_left())?) {
            Err(stop) if stop.is_shortfall() => Err(stop),
            // The command itself reports other failures.
            _ => Ok(()),
        }
    }

    /// Runs a function that surely fits in the canonical way: first under the policy, and in the canonical way if that
    /// fails.
    pub(in crate::eager) fn surely(
        &mut self,
        mut f: impl FnMut(&mut Worker) -> std::result::Result<(), OpFailure>,
    ) -> std::result::Result<(), OpFailure> {
        match f(self) {
            Err(stop) => self.again_canonically(stop, f),
            Ok(()) => Ok(()),
        }
    }

    /// A copy over a device that computes nothing. Everything that can be evicted is evicted in it.
    ///
    /// `budget` replaces the budget of this worker. The copy may recompute `work` operators.
    pub(in crate::eager) fn copy_canonical(&self, budget: Option<usize>, work: u64) -> Result<Worker> {
        let mut w = self.copy_without_data()?;
        if let Some(bytes) = budget {
            w.memory.extend_to(bytes);
            w.budget = Some(bytes);
        }
        for (id, _) in &self.eviction.giving_way {
            w.table[*id].pins = 0;
            w.unplace(*id);
        }
        w.begin_canonical()?;
        w.work.begin_rehearsed(work);
        Ok(w)
    }

    /// Runs the command in the canonical way if `stop` says that memory did not suffice.
    fn again_canonically<T>(
        &mut self,
        stop: OpFailure,
        command: impl FnMut(&mut Worker) -> std::result::Result<T, OpFailure>,
    ) -> std::result::Result<T, OpFailure> {
        match !stop.is_shortfall() || self.budget.is_none() || self.eviction.is_canonical() {
            true => Err(stop),
            false => self.run_canonically(command),
        }
    }

    /// Runs a command in the canonical way.
    pub(in crate::eager) fn run_canonically<T>(
        &mut self,
        mut command: impl FnMut(&mut Worker) -> std::result::Result<T, OpFailure>,
    ) -> std::result::Result<T, OpFailure> {
        let work = self.work_left();
        self.begin_canonical()?;
        self.work.begin_rehearsed(work);
        let result = command(self);
        self.work.end_rehearsed();
        self.eviction.end_canonical_rule();
        result
    }

    /// Evicts everything that can be recomputed, and begins to evict canonically.
    pub(in crate::eager) fn begin_canonical(&mut self) -> Result<()> {
        self.abandon_plan();
        while self.a_charge_gives_way(None) {}
        self.drop_copies();
        self.begin_short();
        self.evict_all();
        self.compact()?;
        self.figures.stats.canonical_runs += 1;
        self.eviction.begin_canonical_rule();
        Ok(())
    }

    /// Frees a contiguous range of `need` bytes by evicting the storages used longest ago. False if evicting all would
    /// not suffice.
    pub(in crate::eager) fn evict_oldest(&mut self, need: usize) -> Result<bool> {
        let free = |w: &Worker| w.memory.arena().capacity() - w.memory.arena().in_use();
        if free(self) < need {
            let evictable = self.table.storages().filter(|(_, s)| s.is_evictable());
            let order = |(id, s): (StorageId, &Storage)| (s.wanted > 0, s.last_use_ns, s.number, id.raw());
            // Only few of many storages are evicted, so a heap is cheaper than sorting.
            let mut oldest: BinaryHeap<_> = evictable.map(|s| Reverse(order(s))).collect();
            while free(self) < need
                && let Some(Reverse((.., id))) = oldest.pop()
            {
                self.evict(Key::from_raw(id));
            }
        }
        if free(self) < need {
            return Ok(false);
        }
        if self.memory.largest_free() < need {
            self.compact()?;
        }
        Ok(true)
    }
}
