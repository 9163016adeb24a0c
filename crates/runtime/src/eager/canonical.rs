//! The way of evicting that depends on nothing but the commands.
//!
//! What a policy evicts follows measured times and how far the caller was ahead, so near the least budget a command may find
//! what it needs in one run and not in another. Before a command is refused, everything that can be made again goes, blocks
//! move together, and the command runs once more, making again what it needs deepest first and evicting what was used
//! longest ago. Whether that suffices is a property of the program and the budget.

use remat_types::Result;

use super::failure::Stop;
use super::table::StorageId;
use super::worker::Worker;
use crate::arena::Segment;

impl Worker {
    /// Runs a command, and where memory did not suffice, once more in the canonical way.
    pub(super) fn or_canonical<T>(
        &mut self,
        mut command: impl FnMut(&mut Worker) -> std::result::Result<T, Stop>,
    ) -> std::result::Result<T, Stop> {
        match command(self) {
            Err(stop) if stop.is_shortfall() && self.budget.is_some() && !self.is_canonical => {
                self.begin_canonical()?;
                let result = command(self);
                self.is_canonical = false;
                result
            }
            done => done,
        }
    }

    /// Lets everything go that can be made again, and begins to evict canonically.
    pub(super) fn begin_canonical(&mut self) -> Result<()> {
        self.abandon();
        while self.a_charge_gives_way(None) {}
        let segments: Vec<Segment> = self.arena.segments().collect();
        self.release_sources(&segments);
        self.drop_copies();
        self.evict_all();
        self.compact()?;
        self.stats.canonical_runs += 1;
        self.is_canonical = true;
        Ok(())
    }

    /// Frees a contiguous range of `need` bytes by evicting what was used longest ago. False if all of it would not do.
    pub(super) fn evict_oldest(&mut self, need: usize) -> Result<bool> {
        let free = |w: &Worker| w.arena.capacity() - w.arena.in_use();
        if free(self) < need {
            let evictable = self.table.storages.iter().filter(|(_, s)| s.is_evictable());
            let mut oldest: Vec<(bool, u64, StorageId)> =
                evictable.map(|(id, s)| (s.wanted > 0, s.last_use_ns, id)).collect();
            oldest.sort_by_key(|&(is_wanted, used, id)| (is_wanted, used, id.raw()));
            for (_, _, id) in oldest {
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
