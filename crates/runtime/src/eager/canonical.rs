//! The way of evicting that depends on nothing but the commands.
//!
//! What a policy evicts follows measured times and how far the caller was ahead, so near the least budget a command may find
//! what it needs in one run and not in another. The canonical way lets everything go that can be made again, moves blocks
//! together, and runs the command, making again what it needs deepest first and evicting what was used longest ago. Whether
//! that suffices is a property of the program and the budget, and it decides: a command runs where memory was never short, or
//! where the canonical way suffices. Then it runs as the policy has it, and in the canonical way where that fails. Where the
//! canonical way does not suffice the command is refused, though this time it might have been lucky.

use remat_types::Result;

use super::failure::Stop;
use super::foresight::Mode;
use super::table::{Storage, StorageId};
use super::worker::Worker;
use crate::arena::Segment;

impl Worker {
    /// Errors: why the canonical way would not suffice for a command. `from_nothing` bytes beside sources surely do.
    pub(super) fn check_canonical<T>(
        &self,
        from_nothing: usize,
        command: impl FnOnce(&mut Worker) -> std::result::Result<T, Stop>,
    ) -> std::result::Result<(), Stop> {
        let (bytes, capacity) = (self.table.fixed_bytes + from_nothing, self.arena.capacity());
        if bytes <= capacity || bytes - self.staging_bytes() <= capacity {
            return Ok(());
        }
        match command(&mut self.copy_canonical(None)?) {
            Err(stop) if stop.is_shortfall() => Err(stop),
            // Of other failures the command itself tells.
            _ => Ok(()),
        }
    }

    /// True where a budget binds, and neither a plan nor a rehearsal of a whole group has settled what fits.
    pub(super) fn does_canonical_decide(&self) -> bool {
        let is_settled = self.is_canonical || self.is_in_group || matches!(self.foresight.mode, Mode::Following(_));
        self.budget.is_some() && self.is_short && !is_settled
    }

    /// A copy over a device that computes nothing, in which everything is gone that can go.
    ///
    /// With a budget, under that one.
    pub(super) fn copy_canonical(&self, budget: Option<usize>) -> Result<Worker> {
        let mut w = self.copy_without_data()?;
        if let Some(bytes) = budget {
            w.arena.grow(bytes);
            w.budget = Some(bytes);
        }
        for (id, _) in &self.giving_way {
            w.table.storages[*id].pins = 0;
            w.unplace(*id);
        }
        w.begin_canonical()?;
        Ok(w)
    }

    /// Runs something, and once more if until then nothing was ever evicted for it.
    pub(super) fn or_when_short<T>(
        &mut self,
        mut f: impl FnMut(&mut Worker) -> std::result::Result<T, Stop>,
    ) -> std::result::Result<T, Stop> {
        let was_short = self.is_short;
        match f(self) {
            Err(stop) if stop.is_shortfall() && self.is_short && !was_short => f(self),
            done => done,
        }
    }

    /// Runs a command, and where memory did not suffice, once more in the canonical way.
    pub(super) fn or_canonical<T>(
        &mut self,
        mut command: impl FnMut(&mut Worker) -> std::result::Result<T, Stop>,
    ) -> std::result::Result<T, Stop> {
        match self.or_when_short(&mut command) {
            Err(stop) => self.again_canonically(stop, command),
            done => done,
        }
    }

    /// After `stop`, in the canonical way if memory did not suffice.
    pub(super) fn again_canonically<T>(
        &mut self,
        stop: Stop,
        mut command: impl FnMut(&mut Worker) -> std::result::Result<T, Stop>,
    ) -> std::result::Result<T, Stop> {
        if !stop.is_shortfall() || self.budget.is_none() || self.is_canonical {
            return Err(stop);
        }
        self.begin_canonical()?;
        let result = command(self);
        self.is_canonical = false;
        result
    }

    /// Lets everything go that can be made again, and begins to evict canonically.
    pub(super) fn begin_canonical(&mut self) -> Result<()> {
        self.abandon();
        while self.a_charge_gives_way(None) {}
        let segments: Vec<Segment> = self.arena.segments().collect();
        self.release_sources(&segments);
        self.drop_copies();
        self.evict_what_can_come_back();
        self.compact()?;
        self.stats.canonical_runs += 1;
        (self.is_canonical, self.is_short) = (true, true);
        Ok(())
    }

    /// Evicts whatever can be made again beside sources. What cannot goes only where nothing else would do.
    fn evict_what_can_come_back(&mut self) {
        let room = self.room_in_doubt();
        let evictable = self.table.storages.iter().filter(|(_, s)| s.is_evictable());
        let mut all: Vec<StorageId> = evictable.map(|(id, _)| id).collect();
        all.retain(|id| room.is_none_or(|room| self.is_in_reach(*id, room)));
        all.into_iter().for_each(|id| self.evict(id));
    }

    /// Frees a contiguous range of `need` bytes by evicting what was used longest ago. False if all of it would not do.
    pub(super) fn evict_oldest(&mut self, need: usize) -> Result<bool> {
        let free = |w: &Worker| w.arena.capacity() - w.arena.in_use();
        if free(self) < need {
            let room = self.room_in_doubt();
            let evictable = self.table.storages.iter().filter(|(_, s)| s.is_evictable());
            let order = |(id, s): (StorageId, &Storage)| {
                let is_lost = room.is_some_and(|room| !self.is_in_reach(id, room));
                ((is_lost, s.wanted > 0, s.last_use_ns, s.number), id)
            };
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
        if self.arena.figures().largest_free < need {
            self.compact()?;
        }
        Ok(true)
    }
}
