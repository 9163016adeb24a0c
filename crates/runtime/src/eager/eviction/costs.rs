//! The costs of losing a storage, remembered between decisions.
//!
//! A storage's costs are those of its neighbourhood: its evicted ancestors, and the descendants that wait for it. They
//! change when a storage nearby comes or goes, and with the queue. So a decision computes them when it first needs
//! them, and keeps them until something next to the storage changes ([`Worker::invalidate_neighbours`]) or until they
//! are old. They stay valid longer the more storages there are ([`SEGMENTS_PER_COMMAND`]), so the time of a decision
//! hardly grows with their number. Idle times are never kept.
//!
//! Rejected: to go on with remembered costs once a decision has walked far. The changes around a storage say the most
//! about it. Simulated training steps took up to ten times as long.

use remat_types::SmallVec;

use super::future::Use;
use super::policy::Candidate;
use crate::eager::handle::TensorId;
use crate::eager::memory::table::{RecipeId, StorageId, Table};
use crate::eager::worker::Worker;

/// The walk over a neighbourhood visits this many recipes. Those beyond hardly change a ranking.
const NEIGHBOURHOOD_MAX: usize = 256;

/// The walk after a storage comes or goes visits this many storages. Costs beyond are out of date until they are old.
const UNSETTLED_MAX: usize = 64;

/// Keeps the costs of a storage that was used this instant comparable.
const STALE_FLOOR_NS: f64 = 1e3;

/// Costs are kept for one command for each so many segments. From 64 down to 1 the simulated steps of ResNet-50,
/// ResNet-18 and the GPT (`examples/simulate.rs`) make the same choices, since changes nearby are noted. From 64 to 4
/// the time of a decision among 10,000 falls to a third, and below 4 it hardly falls.
const SEGMENTS_PER_COMMAND: usize = 4;

/// After so many commands without a decision, changes are no longer noted and all costs are forgotten.
const LIVE_COMMANDS: u64 = 1024;

/// The search for storages that a recomputation in progress will soon need visits at most so many.
const UNDER_WAY_MAX: usize = 256;

/// No queued command uses the storage.
const NEVER: u64 = u64::MAX;

/// The remembered costs of a storage.
#[derive(Clone, Copy)]
struct CachedCost {
    /// The costs hold before the command at this position.
    until: u64,
    /// Position of its next queued use.
    next: u64,
    own_ns: f64,
    ancestors_ns: f64,
    descendants_ns: f64,
}

const UNSEEN: CachedCost = CachedCost { until: 0, next: NEVER, own_ns: 0.0, ancestors_ns: 0.0, descendants_ns: 0.0 };

/// Whether an evicted storage will be recomputed, with the decision that found it out.
#[derive(Clone, Copy, Default)]
enum Needed {
    #[default]
    Unknown,
    Yes(u64),
    No(u64),
}

/// See the module's note. Lists are indexed by the place in the table.
#[derive(Default)]
pub(in crate::eager) struct EvictionCosts {
    /// The position up to which changes are noted.
    live_until: u64,
    seen: Vec<CachedCost>,
    /// How long costs are kept, in commands.
    keep: u64,
    decision: u64,
    /// Whether an evicted storage is needed, if that is known.
    needed: Vec<Needed>,
    /// The decision in which the recomputation in progress was going to read it.
    next_inputs: Vec<u64>,
    walk: u64,
    /// The last walk that visited a storage, and a recipe.
    walked: Vec<u64>,
    walked_recipes: Vec<u64>,
    /// Storages that the commands and recomputations in progress have pinned or want, innermost last.
    pub(in crate::eager) under_way: Vec<StorageId>,
}

impl EvictionCosts {
    /// Forgets the costs of a storage: an unknown command uses it, or its key names a new storage.
    pub(in crate::eager) fn forget(&mut self, id: StorageId) {
        if let Some(seen) = self.seen.get_mut(id.raw() as usize) {
            seen.until = 0;
        }
    }

    /// True at the first visit of a recipe in this walk.
    fn visits(&mut self, r: RecipeId) -> bool {
        std::mem::replace(&mut self.walked_recipes[r.raw() as usize], self.walk) != self.walk
    }

    /// Whether this decision knows an evicted storage to be needed; `None` if it has not found out.
    fn known(&self, id: StorageId) -> Option<bool> {
        match self.needed[id.raw() as usize] {
            Needed::Yes(decision) if decision == self.decision => Some(true),
            Needed::No(decision) if decision == self.decision => Some(false),
            _ => None,
        }
    }

    fn know(&mut self, id: StorageId, is_needed: bool) {
        let known = if is_needed { Needed::Yes } else { Needed::No };
        self.needed[id.raw() as usize] = known(self.decision);
    }

    /// True if an evicted storage will be recomputed: it is named or in use, or a storage that depends on it is.
    fn is_needed(&mut self, table: &Table, id: StorageId) -> bool {
        if let Some(known) = self.known(id) {
            return known;
        }
        self.walk += 1;
        // Each with the index of the storage from which it was reached.
        let mut all: SmallVec<[(StorageId, usize); 16]> = SmallVec::new();
        all.push((id, 0));
        let mut at = 0;
        let found = loop {
            let Some(&(id, _)) = all.get(at) else { break false };
            let s = &table[id];
            if s.handles > 0 || s.wanted > 0 || s.pins > 0 || self.known(id) == Some(true) {
                break true;
            }
            for y in s.readers.iter().flat_map(|r| table[*r].y.iter().flatten().copied()) {
                let is_new = !table.is_resident(y) && self.known(y) != Some(false);
                if is_new && std::mem::replace(&mut self.walked[y.raw() as usize], self.walk) != self.walk {
                    all.push((y, at));
                }
            }
            at += 1;
        };
        if !found {
            all.iter().for_each(|(id, _)| self.know(*id, false));
            return false;
        }
        while at > 0 {
            self.know(all[at].0, true);
            at = all[at].1;
        }
        self.know(id, true);
        true
    }
}

impl EvictionCosts {
    /// From now on changes are not noted, until costs are needed again.
    pub(in crate::eager) fn abandon(&mut self) {
        self.live_until = 0;
    }
}

impl Worker {
    fn notes_changes(&self) -> bool {
        self.eviction.future.at() < self.eviction.costs.live_until
    }

    /// Notes a queued command by the tensors that it uses.
    pub(in crate::eager) fn note_uses(&mut self, x: &[(TensorId, Use)]) {
        self.eviction.future.note(x);
        if !self.notes_changes() {
            return;
        }
        for (id, _) in x.iter().filter(|x| x.1 != Use::End) {
            if let Some(s) = self.table.kept(id) {
                self.eviction.costs.forget(s.storage);
            }
        }
    }

    /// A storage comes or goes: the remembered costs of those around it no longer hold.
    pub(in crate::eager) fn invalidate_neighbours(&mut self, id: StorageId) {
        if !self.notes_changes() {
            return;
        }
        let Worker { table, eviction, .. } = self;
        let costs = &mut eviction.costs;
        costs.forget(id);
        costs.walked.resize(table.storage_slots().max(costs.walked.len()), 0);
        let mut stack: SmallVec<[StorageId; 16]> = SmallVec::new();
        for is_up in [true, false] {
            costs.walk += 1;
            let mut left = UNSETTLED_MAX;
            stack.push(id);
            while let Some(id) = stack.pop() {
                let s = &table[id];
                let mut see = |n: StorageId| {
                    costs.forget(n);
                    let is_new = std::mem::replace(&mut costs.walked[n.raw() as usize], costs.walk) != costs.walk;
                    if is_new && left > 0 && !table.is_resident(n) {
                        left -= 1;
                        stack.push(n);
                    }
                };
                if is_up {
                    s.recipe.iter().flat_map(|r| &table[r.0].x).for_each(|x| see(x.storage));
                } else {
                    s.readers.iter().flat_map(|r| table[*r].y.iter().flatten()).for_each(|y| see(*y));
                }
            }
        }
    }

    /// A decision begins.
    pub(in crate::eager) fn begin_decision(&mut self) {
        self.eviction.future.prepare();
        let was_live = self.notes_changes();
        let (storages, recipes) = (self.table.storage_slots(), self.table.recipe_slots());
        let l = &mut self.eviction.costs;
        if !was_live {
            l.seen.clear();
        }
        l.live_until = self.eviction.future.at() + LIVE_COMMANDS;
        l.keep = (self.memory.segment_count() / SEGMENTS_PER_COMMAND) as u64;
        l.decision += 1;
        l.seen.resize(storages.max(l.seen.len()), UNSEEN);
        l.needed.resize(storages.max(l.needed.len()), Needed::Unknown);
        for list in [&mut l.next_inputs, &mut l.walked] {
            list.resize(storages.max(list.len()), 0);
        }
        l.walked_recipes.resize(recipes.max(l.walked_recipes.len()), 0);
        self.mark_next_inputs();
    }

    /// Marks the resident storages that the recomputation in progress is about to read.
    fn mark_next_inputs(&mut self) {
        let Worker { table, eviction, .. } = self;
        let costs = &mut eviction.costs;
        costs.walk += 1;
        let needed = costs.under_way.iter().rev().take(UNDER_WAY_MAX).filter(|id| !table.is_resident(**id));
        let mut stack: SmallVec<[StorageId; 16]> = needed.copied().collect();
        let mut left = UNDER_WAY_MAX;
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut costs.walked[id.raw() as usize], costs.walk) == costs.walk || left == 0 {
                continue;
            }
            left -= 1;
            let x = table[id].recipe.map(|r| &table[r.0].x);
            for x in x.into_iter().flatten() {
                match table.is_resident(x.storage) {
                    false => stack.push(x.storage),
                    true => costs.next_inputs[x.storage.raw() as usize] = costs.decision,
                }
            }
        }
    }

    /// The cost of losing a storage, given the storages that are evicted already.
    pub(in crate::eager) fn candidate(&mut self, id: StorageId, now: u64) -> Option<Candidate> {
        let at = self.eviction.future.at();
        let mut seen = self.eviction.costs.seen[id.raw() as usize];
        if seen.until <= at || seen.next <= at {
            seen = self.see(id)?;
            self.eviction.costs.seen[id.raw() as usize] = seen;
        }
        let s = &self.table[id];
        let stale_ns = now.saturating_sub(s.last_use_ns) as f64;
        // Inputs of a recomputation in progress are the next to be used.
        let is_next =
            s.wanted > 0 || self.eviction.costs.next_inputs[id.raw() as usize] == self.eviction.costs.decision;
        let ahead_ns = match seen.next {
            _ if is_next => 0.0,
            NEVER => self.eviction.future.queued_ns() + stale_ns,
            next => self.eviction.future.until_ns(next),
        };
        // Combines future and past. Among storages whose next uses are equally far, the past shows those that a deep
        // recomputation has just made. With the future alone, the simulated training steps took ten times longer near
        // the least budget.
        let idle_ns = (ahead_ns.min(self.eviction.future.horizon_ns()) * stale_ns.max(STALE_FLOOR_NS)).sqrt();
        let CachedCost { own_ns, ancestors_ns, descendants_ns, .. } = seen;
        Some(Candidate { own_ns, ancestors_ns, descendants_ns, idle_ns })
    }

    /// Computes the costs of a storage.
    fn see(&mut self, id: StorageId) -> Option<CachedCost> {
        let s = &self.table[id];
        let own_ns = self.table[s.recipe?.0].cost_ns;
        let next = s.tensors.iter().filter_map(|t| self.eviction.future.next_use(*t)).min();
        let ancestors_ns = self.ancestors(id, next) - own_ns;
        let descendants_ns = self.descendants(id);
        // The spread keeps costs that were computed together from growing old together.
        let spread = u64::from(id.raw().wrapping_mul(0x9e37_79b9) >> 16) % (self.eviction.costs.keep + 1);
        let until = self.eviction.future.at() + 1 + self.eviction.costs.keep / 2 + spread;
        Some(CachedCost { until, next: next.unwrap_or(NEVER), own_ns, ancestors_ns, descendants_ns })
    }

    /// Sum of the costs of a storage's recipe and of the recipes of its ancestors that will be gone at its next use.
    ///
    /// An ancestor that a queued command ends before then counts as gone. Otherwise the cotangent that the running
    /// command reads for the last time would look like a cheap way back to its results.
    fn ancestors(&mut self, id: StorageId, next: Option<u64>) -> f64 {
        self.eviction.costs.walk += 1;
        let (mut cost, mut seen) = (0.0, 0);
        let mut stack: SmallVec<[StorageId; 16]> = SmallVec::new();
        stack.push(id);
        while let Some(id) = stack.pop() {
            let recipe = self.table[id].recipe;
            let Some((r, _)) = recipe.filter(|r| seen < NEIGHBOURHOOD_MAX && self.eviction.costs.visits(r.0)) else {
                continue;
            };
            seen += 1;
            let recipe = &self.table[r];
            cost += recipe.cost_ns;
            stack.extend(recipe.x.iter().map(|x| x.storage).filter(|s| self.is_gone_by(*s, next)));
        }
        cost
    }

    /// True if a storage is evicted, or will be gone when the command at a position runs unless something recomputes
    /// it.
    fn is_gone_by(&self, id: StorageId, at: Option<u64>) -> bool {
        let s = &self.table[id];
        let ends = || s.tensors.iter().all(|t| self.eviction.future.ends_before(*t, at));
        !s.is_resident() || (s.recipe.is_some() && !s.pinned_by_plan && ends())
    }

    /// Sum of the costs of the recipes of evicted descendants that something still needs.
    fn descendants(&mut self, id: StorageId) -> f64 {
        let Worker { table, eviction, .. } = self;
        let costs = &mut eviction.costs;
        // The search for needed storages walks, too. So this walk marks the recipes.
        costs.walk += 1;
        let walk = costs.walk;
        let (mut cost, mut seen) = (0.0, 0);
        let mut stack: SmallVec<[StorageId; 16]> = SmallVec::new();
        stack.push(id);
        while let Some(id) = stack.pop() {
            for r in &table[id].readers {
                let recipe = &table[*r];
                let evicted = recipe.y.iter().flatten().copied().filter(|s| !table.is_resident(*s));
                let below: SmallVec<[StorageId; 2]> = evicted.filter(|s| costs.is_needed(table, *s)).collect();
                let last = &mut costs.walked_recipes[r.raw() as usize];
                if below.is_empty() || seen >= NEIGHBOURHOOD_MAX || std::mem::replace(last, walk) == walk {
                    continue;
                }
                seen += 1;
                cost += recipe.cost_ns;
                stack.extend(below);
            }
        }
        cost
    }
}

#[cfg(test)]
mod tests {
    use remat_ops::pointwise::{Unary, UnaryFn};
    use remat_types::{DType, Fact, Facts, smallvec};

    use super::*;
    use crate::eager::simulation::Simulated;
    use crate::eager::simulation::StreamCommand;
    use crate::options::DeviceOptions;
    use crate::report::Kind;
    use remat_device::Dry;

    /// Two chains of four from one leaf: tensors 1 to 4 and 11 to 14.
    fn chains() -> Simulated {
        let options =
            DeviceOptions { budget_bytes: Some(1 << 20), always_record: true, threads: 1, ..DeviceOptions::default() };
        let mut w = Simulated::new(Box::new(Dry::new(1)), options).expect("opens");
        w.put(0, 4096, Kind::Data).expect("fits");
        for first in [1, 11] {
            for i in first..first + 4 {
                let x = if i == first { 0 } else { i - 1 };
                let facts = Facts::from_iter([Fact::new(DType::U8, [4096])]);
                w.apply(Unary { f: UnaryFn::Tanh }.into(), &[(x, false)], smallvec![i], facts).expect("runs");
            }
        }
        w
    }

    /// The costs of ancestors and descendants of all resident storages, in units of a storage's own cost.
    fn costs(w: &mut Simulated) -> Vec<(u64, f64, f64)> {
        w.0.begin_decision();
        w.0.eviction.costs.keep = 1000;
        let mut all = Vec::new();
        for t in (1..5).chain(11..15) {
            let Some(s) = w.0.table.kept(&TensorId(t)) else { continue };
            let id = s.storage;
            if w.0.table.is_resident(id) {
                let c = w.0.candidate(id, 0).expect("it has a recipe");
                all.push((t, c.ancestors_ns / c.own_ns, c.descendants_ns / c.own_ns));
            }
        }
        all
    }

    #[test]
    fn remembered_costs_follow_what_comes_and_goes_around_them() {
        let mut w = chains();
        let other = [(11, 0.0, 0.0), (12, 0.0, 0.0), (13, 0.0, 0.0), (14, 0.0, 0.0)];
        let check = |w: &mut Simulated, first: &[(u64, f64, f64)], why: &str| {
            let want: Vec<_> = first.iter().chain(&other).copied().collect();
            assert_eq!(costs(w), want, "{why}");
            w.0.eviction.costs.seen.clear();
            assert_eq!(costs(w), want, "{why}, worked out anew");
        };
        check(&mut w, &[(1, 0.0, 0.0), (2, 0.0, 0.0), (3, 0.0, 0.0), (4, 0.0, 0.0)], "all are there");
        w.drop_value(2).expect("there");
        check(&mut w, &[(1, 0.0, 1.0), (3, 1.0, 0.0), (4, 0.0, 0.0)], "2 went");
        w.drop_value(3).expect("there");
        check(&mut w, &[(1, 0.0, 2.0), (4, 2.0, 0.0)], "3 went");
        w.wait(2).expect("is made again");
        check(&mut w, &[(1, 0.0, 0.0), (2, 0.0, 1.0), (4, 1.0, 0.0)], "2 is back");
        w.delete(3).expect("there");
        check(&mut w, &[(1, 0.0, 0.0), (2, 0.0, 0.0), (4, 1.0, 0.0)], "nobody waits for 3");
    }

    #[test]
    fn a_queued_use_is_known_at_once() {
        let mut w = chains();
        costs(&mut w);
        for id in [1, 3] {
            w.foresee(&StreamCommand::Fetch { id });
        }
        w.advance(|w| w.wait(1)).expect("there");
        let s = w.0.table.kept(&TensorId(3)).expect("it was made").storage;
        w.0.begin_decision();
        w.0.eviction.costs.keep = 1000;
        w.0.candidate(s, 0).expect("it has a recipe");
        assert_eq!(w.0.eviction.costs.seen[s.raw() as usize].next, w.0.eviction.future.at() + 1, "the next command");
    }
}
