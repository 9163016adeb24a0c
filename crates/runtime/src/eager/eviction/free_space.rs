//! Making room: the input of a policy, its choice, and the error if nothing helps.

use remat_types::{BudgetShortfall, Error, PinnedBytes, Result};
use rustc_hash::FxHashMap;

use super::policy::{Choice, ScoredSegment, UnscannedBytes, choose};
use crate::eager::memory::table::{Storage, StorageId};
use crate::eager::worker::Worker;
use crate::report::Kind;
use crate::slab::Key;
use remat_device::Segment;

/// A decision looks at so many segments: its time must not grow with the number of storages. Some storages in a sample
/// of many cost next to nothing, so the sample suffices. With this many segments or fewer, a decision sees all of them.
const LOOKED_AT: usize = 1024;

/// If those do not suffice, the decision looks at so many times more.
const LOOKED_AT_MORE: usize = 8;

impl Worker {
    /// Makes a free range of `bytes`: grows the arena without a budget, evicts and compacts with one. Returns the
    /// offset that the policy chose, if it chose one.
    pub(in crate::eager) fn free_space(&mut self, bytes: usize, for_whom: StorageId) -> Result<Option<usize>> {
        let no_more = match self.budget {
            None => match self.grow(self.alignment().pad(bytes)) {
                Ok(()) => return Ok(None),
                Err(e) => Some(e),
            },
            Some(_) => None,
        };
        if self.eviction.is_canonical() {
            // The worker repeats a schedule or a rehearsal, which assumes every resident storage except staging
            // buffers. So staging buffers give way before the worker evicts, and the worker evicts nothing for a
            // staging buffer.
            let has_room =
                |w: &Worker| w.memory.arena().in_use() + w.alignment().pad(bytes) <= w.memory.arena().capacity();
            while !has_room(self) && self.a_charge_gives_way(Some(for_whom)) {}
            let may_evict = self.table[for_whom].kind != Kind::Staging;
            return match (may_evict || has_room(self)) && self.evict_oldest(self.alignment().pad(bytes))? {
                true => Ok(None),
                false => Err(self.shortfall(for_whom)),
            };
        }
        if !self.eviction.is_short() && self.budget.is_some() {
            return self.free_space_beside_all(self.alignment().pad(bytes), for_whom);
        }
        let started = std::time::Instant::now();
        self.look_ahead();
        let mut choice = self.decide(self.alignment().pad(bytes));
        while choice.is_none() && self.a_charge_gives_way(Some(for_whom)) {
            let is_enough = self.memory.largest_free() >= self.alignment().pad(bytes);
            choice = if is_enough { Some(Choice::default()) } else { self.decide(self.alignment().pad(bytes)) };
        }
        self.figures.stats.decisions += 1;
        self.figures.stats.policy_ns += started.elapsed().as_nanos() as u64;
        match choice {
            Some(choice) if choice.at.is_none() && self.memory.largest_free() < self.alignment().pad(bytes) => {
                self.compact()?;
                Ok(None)
            }
            Some(choice) => Ok(choice.at),
            None => Err(no_more.unwrap_or_else(|| self.shortfall(for_whom))),
        }
    }

    /// Makes a free range if no storage was ever evicted: charges give way, and the arena is compacted. Errors: Budget
    /// if that does not suffice. From then on memory is short.
    fn free_space_beside_all(&mut self, need: usize, for_whom: StorageId) -> Result<Option<usize>> {
        let does_fit = |w: &Worker| w.memory.arena().in_use() + need <= w.memory.arena().capacity();
        while !does_fit(self) && self.a_charge_gives_way(Some(for_whom)) {}
        if !does_fit(self) {
            if self.table[for_whom].kind != Kind::Staging {
                self.begin_short();
            }
            return Err(self.shortfall(for_whom));
        }
        if self.memory.largest_free() < need {
            self.compact()?;
        }
        Ok(None)
    }

    /// Ends the youngest charge that may end early. Another charge is no reason to end one. False if none ended.
    pub(in crate::eager) fn a_charge_gives_way(&mut self, for_whom: Option<StorageId>) -> bool {
        let is_staging = for_whom.is_some_and(|id| self.table[id].kind == Kind::Staging);
        if self.budget.is_none() || is_staging {
            return false;
        }
        let Some((id, give_way)) = self.eviction.giving_way.pop() else { return false };
        give_way();
        self.end_charge(id);
        true
    }

    /// Chooses the storages to evict for a free range of `need` bytes, and evicts them. `None` if evicting all would
    /// not suffice.
    fn decide(&mut self, need: usize) -> Option<Choice> {
        self.begin_decision();
        let mut most = LOOKED_AT;
        let choice = loop {
            let segments: Vec<Segment> = self.memory.look(most).collect();
            let ranges = self.ranges(&segments);
            let is_all = segments.len() == self.memory.segment_count();
            match choose(self.options.policy, &ranges, self.beyond(&segments), need) {
                Some(choice) => break choice,
                None if !is_all => most *= LOOKED_AT_MORE,
                None => return None,
            }
        };
        for owner in &choice.evict {
            self.evict(Key::from_raw(*owner));
        }
        Some(choice)
    }

    /// Bytes of the segments that the decision did not look at.
    fn beyond(&self, segments: &[Segment]) -> UnscannedBytes {
        let used: usize = segments.iter().filter(|s| s.owner.is_some()).map(|s| s.bytes).sum();
        let all: usize = segments.iter().map(|s| s.bytes).sum();
        let (capacity, in_use) = (self.memory.arena().capacity(), self.memory.arena().in_use());
        UnscannedBytes { free_bytes: capacity - in_use - (all - used), used_bytes: in_use - used }
    }

    /// Segments as a policy sees them.
    fn ranges(&mut self, segments: &[Segment]) -> Vec<ScoredSegment> {
        let now = self.launcher.now_ns();
        let mut candidate = |segment: &Segment| {
            let id: StorageId = Key::from_raw(segment.owner?);
            self.table[id].is_evictable().then(|| self.candidate(id, now)).flatten()
        };
        segments.iter().map(|s| ScoredSegment { segment: *s, candidate: candidate(s) }).collect()
    }

    /// The budget error of a storage: the bytes that it needs, and the holders of the rest.
    pub(in crate::eager) fn shortfall(&self, id: StorageId) -> Error {
        self.shortfall_of(self.alignment().pad(self.table[id].bytes))
    }

    /// As [`Worker::shortfall`], for so many bytes.
    pub(in crate::eager) fn shortfall_of(&self, bytes: usize) -> Error {
        let mut by: FxHashMap<String, usize> = FxHashMap::default();
        let (mut fixed, mut needed) = (0, bytes);
        for (_, s) in self.table.storages() {
            let Some(block) = &s.block else { continue };
            let is_output = s.recipe.is_none() && s.handles == 0 && s.readers.is_empty() && s.kind != Kind::Staging;
            if is_output || s.kind == Kind::Workspace {
                needed += block.bytes();
                continue;
            }
            let who = match (s.recipe.is_some(), s.pins > 0) {
                (false, _) => s.kind.name().to_owned(),
                (true, true) => format!("inputs and outputs of {}", self.running.label),
                (true, false) => continue,
            };
            fixed += block.bytes();
            *by.entry(who).or_default() += block.bytes();
        }
        needed += self.running.still_needed;
        let mut pinned: Vec<PinnedBytes> = by.into_iter().map(|(by, bytes)| PinnedBytes { by, bytes }).collect();
        pinned.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.by.cmp(&b.by)));
        Error::budget(BudgetShortfall {
            op: self.running.label.to_owned(),
            needed_bytes: needed,
            budget_bytes: self.budget.unwrap_or(usize::MAX),
            pinned,
            least_bytes: (fixed + needed).saturating_sub(self.staging_bytes()),
            smallest_feasible_bytes: fixed + needed,
            is_of_run: false,
            recompute_limit: None,
        })
    }

    /// Changes the budget. Errors, after which the old budget stays in force: Budget if the bytes that cannot be
    /// evicted exceed it; Io if a spill file was requested and cannot be made.
    pub(in crate::eager) fn set_budget(&mut self, budget: Option<usize>) -> Result<()> {
        crate::options::check_budget(budget)?;
        self.forget_plans();
        // The schedule and the counts of recomputation belong to the old budget.
        self.end_schedule();
        self.schedule.end_step();
        self.work.forget_replays();
        let Some(bytes) = budget else {
            self.budget = None;
            return Ok(());
        };
        self.end_comm_scratch();
        self.open_spill()?;
        if bytes >= self.memory.arena().capacity() {
            self.launcher.device().reserve(bytes)?;
            self.memory.extend_to(bytes);
            self.budget = Some(bytes);
            return Ok(());
        }
        let over = self.memory.arena().in_use().saturating_sub(self.alignment().cut(bytes));
        if over > 0 {
            let free: usize = self.memory.arena().capacity() - self.memory.arena().in_use();
            self.begin_decision();
            let segments: Vec<Segment> = self.memory.segments().collect();
            let ranges = self.ranges(&segments);
            let Some(choice) = choose(crate::PolicyKind::Dtr, &ranges, UnscannedBytes::default(), free + over) else {
                let id = {
                    let label = self.memory.label("set_budget");
                    self.table.add(Storage::new(0, Kind::Workspace, label))
                };
                let (old, running) =
                    (self.budget.replace(bytes), std::mem::replace(&mut self.running.label, "set_budget"));
                let e = self.shortfall(id);
                (self.budget, self.running.label) = (old, running);
                self.table.remove(id);
                return Err(e);
            };
            for owner in choice.evict {
                self.evict(Key::from_raw(owner));
            }
        }
        self.compact()?;
        let old = self.memory.arena().capacity();
        let capacity = self.memory.shrink_to(bytes);
        self.launcher.device().release(capacity, old);
        self.budget = Some(bytes);
        Ok(())
    }
}
