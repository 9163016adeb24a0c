//! Making room: what a policy is told, what it chose, and the error that says why nothing helps.

use remat_types::{BudgetShortfall, Error, PinnedBytes, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::table::{RecipeId, Storage, StorageId};
use super::worker::Worker;
use crate::arena::padded;
use crate::remat::{Candidate, Range, choose};
use crate::report::Kind;
use crate::slab::Key;

/// A neighbourhood is followed this far; what lies beyond hardly changes a ranking.
const NEIGHBOURHOOD_MAX: usize = 256;

/// Keeps a storage used this instant comparable.
const STALE_FLOOR_NS: f64 = 1e3;

/// What is evicted and still needed, as it was before the last decision; by place in the table.
#[derive(Default)]
pub(super) struct Survey {
    epoch: u64,
    /// The epoch in which a storage was last found evicted and needed.
    missed: Vec<u64>,
    /// And in which the recomputation in progress was going to read it.
    soon: Vec<u64>,
}

impl Survey {
    fn is_missed(&self, id: StorageId) -> bool {
        self.missed.get(id.raw() as usize) == Some(&self.epoch)
    }

    fn is_soon(&self, id: StorageId) -> bool {
        self.soon.get(id.raw() as usize) == Some(&self.epoch)
    }
}

impl Worker {
    /// Makes a free range of `bytes`: grows the arena where there is no budget, evicts and compacts where there is.
    /// Returns where it starts, if the policy chose a place.
    pub(super) fn make_room(&mut self, bytes: usize, for_whom: StorageId) -> Result<Option<usize>> {
        let no_more = match self.budget {
            None => match self.grow(padded(bytes)) {
                Ok(()) => return Ok(None),
                Err(e) => Some(e),
            },
            Some(_) => None,
        };
        self.look_ahead();
        let started = std::time::Instant::now();
        let need = padded(bytes);
        if self.release_sources() && self.arena.figures().largest_free >= need {
            return Ok(None);
        }
        let choice = choose(self.options.policy, &self.ranges(), need);
        self.stats.policy_ns += started.elapsed().as_nanos() as u64;
        let Some(choice) = choice else {
            return Err(no_more.unwrap_or_else(|| self.shortfall(for_whom)));
        };
        for owner in choice.evict {
            self.evict(Key::from_raw(owner));
        }
        if choice.at.is_none() {
            self.compact()?;
        }
        Ok(choice.at)
    }

    /// The address order as a policy sees it.
    fn ranges(&mut self) -> Vec<Range> {
        let now = self.backend.now_ns();
        self.survey();
        let segments: Vec<_> = self.arena.segments().collect();
        segments
            .into_iter()
            .map(|segment| {
                let candidate = segment.owner.and_then(|o| {
                    let id = Key::from_raw(o);
                    let s = &self.table.storages[id];
                    s.is_evictable().then(|| self.candidate(id, now)).flatten()
                });
                Range { segment, candidate }
            })
            .collect()
    }

    /// Lets go of data that nobody can name any more and that is kept only so that results can be made again, where
    /// keeping those results instead takes no more bytes: else every loss that a program keeps would keep its batch.
    fn release_sources(&mut self) -> bool {
        let unnamed: SmallVec<[StorageId; 8]> = (self.arena.segments())
            .filter_map(|s| Some(Key::from_raw(s.owner?)))
            .filter(|id| {
                let s = &self.table.storages[*id];
                s.recipe.is_none() && s.handles == 0 && s.pins == 0 && s.wanted == 0 && !s.readers.is_empty()
            })
            .collect();
        let mut released = false;
        for id in unnamed {
            if self.table.storages.get(id).is_none() {
                continue;
            }
            let bytes = self.table.storages[id].bytes;
            let Some(kept) = self.results_of(id, bytes) else { continue };
            released = true;
            for r in kept {
                if self.table.storages.get(r).is_some() {
                    self.forget(r);
                }
            }
        }
        released
    }

    /// The resident results that would have to be kept for a source to go, if they are no larger than it and nothing
    /// evicted depends on it.
    fn results_of(&self, source: StorageId, bytes: usize) -> Option<SmallVec<[StorageId; 8]>> {
        let mut seen: SmallVec<[StorageId; 16]> = SmallVec::new();
        let mut kept: SmallVec<[StorageId; 8]> = SmallVec::new();
        let mut kept_bytes = 0;
        seen.push(source);
        let mut at = 0;
        while let Some(&id) = seen.get(at) {
            at += 1;
            let readers = &self.table.storages[id].readers;
            for y in readers.iter().flat_map(|r| self.table.recipes[*r].y.iter().flatten().copied()) {
                if seen.contains(&y) || kept.contains(&y) {
                    continue;
                }
                let s = &self.table.storages[y];
                let needed = s.handles > 0 || s.pins > 0 || s.wanted > 0;
                match (s.is_resident(), needed) {
                    (true, _) => {
                        kept_bytes += padded(s.bytes);
                        kept.push(y);
                    }
                    (false, true) => return None,
                    (false, false) => seen.push(y),
                }
                if kept_bytes > padded(bytes) || seen.len() > NEIGHBOURHOOD_MAX {
                    return None;
                }
            }
        }
        Some(kept)
    }

    /// What losing a storage would cost, given what is evicted already.
    fn candidate(&mut self, id: StorageId, now: u64) -> Option<Candidate> {
        let s = &self.table.storages[id];
        let stale_ns = now.saturating_sub(s.last_use_ns) as f64;
        let next = s.tensors.iter().filter_map(|t| self.future.next_use(*t)).min();
        let until = next.map(|at| self.future.until_ns(at));
        // What a recomputation in progress wants, or will on its way, is used next of all.
        let until = if s.wanted > 0 || self.survey.is_soon(id) { Some(0.0) } else { until };
        let ahead_ns = until.unwrap_or_else(|| self.future.queued_ns() + stale_ns).min(self.future.horizon_ns());
        // Future and past together: among what is used far off alike, the past says what a deep recomputation has just
        // made. By the future alone, budgets near the least cost the simulated training steps ten times more.
        let idle_ns = (ahead_ns * stale_ns.max(STALE_FLOOR_NS)).sqrt();
        let own = s.recipe?.0;
        let own_ns = self.table.recipes[own].cost_ns;
        let ancestors_ns = self.ancestors(id, next) - own_ns;
        let descendants_ns = self.descendants(id);
        Some(Candidate { own_ns, ancestors_ns, descendants_ns, idle_ns })
    }

    /// Sum of the costs of a storage's recipe and of those of its ancestors that will be gone at its next use.
    ///
    /// What the queue ends before then is gone: the cotangent that the running command reads for the last time would
    /// look like a cheap way back to what was made of it.
    fn ancestors(&mut self, id: StorageId, next: Option<u64>) -> f64 {
        self.visit_epoch += 1;
        let (mut cost, mut seen) = (0.0, 0);
        let mut stack: SmallVec<[StorageId; 16]> = SmallVec::new();
        stack.push(id);
        while let Some(id) = stack.pop() {
            let Some((r, _)) = self.table.storages[id].recipe.filter(|r| seen < NEIGHBOURHOOD_MAX && self.visits(r.0))
            else {
                continue;
            };
            seen += 1;
            let recipe = &self.table.recipes[r];
            cost += recipe.cost_ns;
            stack.extend(recipe.x.iter().map(|x| x.storage).filter(|s| self.is_gone_by(*s, next)));
        }
        cost
    }

    /// True if a storage is evicted, or will be gone, unless something makes it again, when the command at a position
    /// runs.
    fn is_gone_by(&self, id: StorageId, at: Option<u64>) -> bool {
        let s = &self.table.storages[id];
        let ends = || s.tensors.iter().all(|t| self.future.ends_before(*t, at));
        !s.is_resident() || (s.recipe.is_some() && !s.kept && ends())
    }

    /// Marks what is evicted and will be made again, and what making it again will read.
    fn survey(&mut self) {
        let Survey { epoch, missed, soon } = &mut self.survey;
        let slots = self.table.storages.slots();
        *epoch += 1;
        missed.resize(slots.max(missed.len()), 0);
        soon.resize(slots.max(soon.len()), 0);
        let (mut now, mut later): (Vec<StorageId>, Vec<StorageId>) = (Vec::new(), Vec::new());
        for (id, s) in self.table.storages.iter().filter(|(_, s)| !s.is_resident() && s.recipe.is_some()) {
            match (s.wanted > 0 || s.pins > 0, s.handles > 0) {
                (true, _) => now.push(id),
                (false, true) => later.push(id),
                (false, false) => {}
            }
        }
        for (mut stack, is_now) in [(now, true), (later, false)] {
            while let Some(id) = stack.pop() {
                if std::mem::replace(&mut missed[id.raw() as usize], *epoch) == *epoch {
                    continue;
                }
                let x = self.table.storages[id].recipe.map(|r| &self.table.recipes[r.0].x);
                for x in x.into_iter().flatten() {
                    match self.table.is_resident(x.storage) {
                        false => stack.push(x.storage),
                        true if is_now => soon[x.storage.raw() as usize] = *epoch,
                        true => {}
                    }
                }
            }
        }
    }

    /// Sum of the costs of the recipes of evicted descendants that something still needs.
    fn descendants(&mut self, id: StorageId) -> f64 {
        self.visit_epoch += 1;
        let (mut cost, mut seen) = (0.0, 0);
        let mut stack: SmallVec<[StorageId; 16]> = SmallVec::new();
        stack.push(id);
        while let Some(id) = stack.pop() {
            for i in 0..self.table.storages[id].readers.len() {
                let r = self.table.storages[id].readers[i];
                let below = self.table.recipes[r].y.iter().flatten().copied();
                let below: SmallVec<[StorageId; 2]> = below.filter(|s| self.survey.is_missed(*s)).collect();
                if below.is_empty() || seen >= NEIGHBOURHOOD_MAX || !self.visits(r) {
                    continue;
                }
                seen += 1;
                cost += self.table.recipes[r].cost_ns;
                stack.extend(below);
            }
        }
        cost
    }

    /// True at the first visit of a recipe in this epoch.
    fn visits(&mut self, r: RecipeId) -> bool {
        let at = r.raw() as usize;
        if self.visited.len() <= at {
            self.visited.resize(at + 1, 0);
        }
        std::mem::replace(&mut self.visited[at], self.visit_epoch) != self.visit_epoch
    }

    /// The contract's error: what `id` needed, and who holds the rest.
    pub(super) fn shortfall(&self, id: StorageId) -> Error {
        let wanted = &self.table.storages[id];
        let mut by: FxHashMap<String, usize> = FxHashMap::default();
        let (mut fixed, mut needed) = (0, padded(wanted.bytes));
        for (_, s) in self.table.storages.iter() {
            let Some(block) = &s.block else { continue };
            let is_output = s.recipe.is_none() && s.handles == 0 && s.readers.is_empty() && s.kind != Kind::Staging;
            if is_output || s.kind == Kind::Workspace {
                needed += block.bytes();
                continue;
            }
            let who = match (s.recipe.is_some(), s.pins > 0) {
                (false, _) => s.kind.name().to_owned(),
                (true, true) => format!("inputs and outputs of {}", self.running),
                (true, false) => continue,
            };
            fixed += block.bytes();
            *by.entry(who).or_default() += block.bytes();
        }
        needed += self.still_needed;
        let mut pinned: Vec<PinnedBytes> = by.into_iter().map(|(by, bytes)| PinnedBytes { by, bytes }).collect();
        pinned.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.by.cmp(&b.by)));
        Error::budget(BudgetShortfall {
            op: self.running.to_owned(),
            needed_bytes: needed,
            budget_bytes: self.budget.unwrap_or(usize::MAX),
            pinned,
            smallest_feasible_bytes: fixed + needed,
        })
    }

    /// Changes the budget. Errors (Budget): what cannot be evicted exceeds it; the old budget stays in force.
    pub(super) fn set_budget(&mut self, budget: Option<usize>) -> Result<()> {
        self.forget_plans();
        let Some(bytes) = budget else {
            self.budget = None;
            return Ok(());
        };
        if bytes >= self.arena.capacity() {
            self.backend.reserve(bytes)?;
            self.arena.grow(bytes);
            self.budget = Some(bytes);
            return Ok(());
        }
        let over = self.arena.in_use().saturating_sub(bytes / crate::arena::ALIGN_BYTES * crate::arena::ALIGN_BYTES);
        if over > 0 {
            let free: usize = self.arena.capacity() - self.arena.in_use();
            let Some(choice) = choose(crate::PolicyKind::Dtr, &self.ranges(), free + over) else {
                let id = {
                    let label = self.ledger.label("set_budget");
                    self.table.storages.insert(Storage::new(0, Kind::Workspace, label))
                };
                let (old, running) = (self.budget.replace(bytes), std::mem::replace(&mut self.running, "set_budget"));
                let e = self.shortfall(id);
                (self.budget, self.running) = (old, running);
                self.table.storages.remove(id);
                return Err(e);
            };
            for owner in choice.evict {
                self.evict(Key::from_raw(owner));
            }
        }
        self.compact()?;
        let old = self.arena.capacity();
        let capacity = self.arena.shrink(bytes);
        self.backend.release(capacity, old);
        self.budget = Some(bytes);
        Ok(())
    }
}
