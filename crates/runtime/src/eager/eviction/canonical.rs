//! The way of evicting that depends on nothing but the commands.
//!
//! What a policy evicts follows measured times and how far the caller was ahead, so near the least budget a command may find
//! what it needs in one run and not in another. The canonical way lets everything go that can be made again, moves blocks
//! together, and runs the command, making again what it needs deepest first and evicting what was used longest ago. Whether
//! that suffices is a property of the program and the budget, and it decides: a command runs where memory was never short, or
//! where the canonical way suffices. Then it runs as the policy has it, and in the canonical way where that fails. Where the
//! canonical way does not suffice the command is refused, though this time it might have been lucky.
//!
//! So what can be made of what must not depend on luck either. Where memory is short, a recipe is given up for good only by a
//! rule that looks at commands and sizes, and not at what is evicted: when leaves grow (`feasibility`), when a leaf has smaller
//! results, and when a leaf is updated in place (`update.rs`).

use remat_types::Result;

use crate::eager::failure::OpFailure;
use crate::eager::memory::table::{Storage, StorageId};
use crate::eager::worker::Worker;

impl Worker {
    /// Errors: why the canonical way would not suffice for a command. Before that leaves go whose results are smaller.
    /// `from_nothing` bytes beside leaves surely suffice.
    pub(in crate::eager) fn check_canonical<T>(
        &mut self,
        from_nothing: impl Fn(&Worker) -> usize,
        command: impl FnOnce(&mut Worker) -> std::result::Result<T, OpFailure>,
    ) -> std::result::Result<(), OpFailure> {
        let is_enough = |w: &Worker| {
            let bytes = w.table.fixed_bytes().saturating_add(from_nothing(w));
            bytes <= w.memory.arena().capacity() || bytes - w.staging_bytes() <= w.memory.arena().capacity()
        };
        if is_enough(self) {
            return Ok(());
        }
        self.surely(Worker::release_leaves)?;
        if is_enough(self) {
            return Ok(());
        }
        match command(&mut self.copy_canonical(None)?) {
            Err(stop) if stop.is_shortfall() => Err(stop),
            // Of other failures the command itself tells.
            _ => Ok(()),
        }
    }

    /// Runs what surely fits in the canonical way: in that way where the policy's does not suffice.
    pub(in crate::eager) fn surely(
        &mut self,
        mut f: impl FnMut(&mut Worker) -> std::result::Result<(), OpFailure>,
    ) -> std::result::Result<(), OpFailure> {
        match f(self) {
            Err(stop) => self.again_canonically(stop, f),
            Ok(()) => Ok(()),
        }
    }

    /// Runs a command if the canonical way would suffice for it, where that decides; in that way where the policy's does not
    /// suffice. `from_nothing` bytes beside leaves surely do, and `growth` bytes of them come with it.
    pub(in crate::eager) fn if_canonical<T>(
        &mut self,
        growth: impl Fn(&Worker) -> usize,
        from_nothing: impl Fn(&Worker) -> usize,
        mut command: impl FnMut(&mut Worker) -> std::result::Result<T, OpFailure>,
    ) -> std::result::Result<T, OpFailure> {
        self.before_growth(growth(self))?;
        if self.does_canonical_decide() {
            return self.run_checked(from_nothing, command);
        }
        match command(self) {
            // Memory is short for the first time, or a plan was given up.
            Err(stop) if stop.is_shortfall() && self.does_canonical_decide() => {
                self.before_growth(growth(self))?;
                self.run_checked(from_nothing, command)
            }
            Err(stop) => self.again_canonically(stop, command),
            done => done,
        }
    }

    fn run_checked<T>(
        &mut self,
        from_nothing: impl Fn(&Worker) -> usize,
        mut command: impl FnMut(&mut Worker) -> std::result::Result<T, OpFailure>,
    ) -> std::result::Result<T, OpFailure> {
        self.check_canonical(from_nothing, &mut command)?;
        match command(self) {
            Err(stop) => self.again_canonically(stop, command),
            done => done,
        }
    }

    /// True where a budget binds, and neither a plan nor a rehearsal of a whole group has settled what fits.
    pub(in crate::eager) fn does_canonical_decide(&self) -> bool {
        let is_settled = self.eviction.is_canonical() || self.is_in_group || self.step_planner.is_following();
        self.budget.is_some() && self.eviction.is_short() && !is_settled
    }

    /// A copy over a device that computes nothing, in which everything is gone that can go.
    ///
    /// With a budget, under that one.
    pub(in crate::eager) fn copy_canonical(&self, budget: Option<usize>) -> Result<Worker> {
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
        Ok(w)
    }

    /// After `stop`, in the canonical way if memory did not suffice.
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
        self.begin_canonical()?;
        let result = command(self);
        self.eviction.end_canonical_rule();
        result
    }

    /// Lets everything go that can be made again, and begins to evict canonically.
    pub(in crate::eager) fn begin_canonical(&mut self) -> Result<()> {
        self.abandon();
        while self.a_charge_gives_way(None) {}
        self.drop_copies();
        self.begin_short();
        self.evict_all();
        self.compact()?;
        self.stats.canonical_runs += 1;
        self.eviction.begin_canonical_rule();
        Ok(())
    }

    /// Frees a contiguous range of `need` bytes by evicting what was used longest ago. False if all of it would not do.
    pub(in crate::eager) fn evict_oldest(&mut self, need: usize) -> Result<bool> {
        let free = |w: &Worker| w.memory.arena().capacity() - w.memory.arena().in_use();
        if free(self) < need {
            let evictable = self.table.storages().filter(|(_, s)| s.is_evictable());
            let order = |(id, s): (StorageId, &Storage)| ((s.wanted > 0, s.last_use_ns, s.number), id);
            let mut oldest: Vec<_> = evictable.map(order).collect();
            oldest.sort_unstable_by_key(|o| o.0);
            for (_, id) in oldest {
                if free(self) >= need {
                    break;
                }
                self.evict(id);
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
