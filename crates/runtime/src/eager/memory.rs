//! Placing and freeing storages: the online policy's executive part.
//!
//! Every block of the arena belongs to a storage of the table, scratch and staging included, so that a compaction can
//! move all of them: nothing holds an address across commands, and within one, addresses are read at the launch.

use remat_types::{BudgetShortfall, Error, ErrorKind, PinnedBytes, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::table::{Storage, StorageId};
use super::worker::Worker;
use crate::arena::{End, padded};
use crate::device::{Event, StreamId};
use crate::profile::{Lane, Span};
use crate::remat::{Candidate, Range, choose};
use crate::report::Kind;
use crate::slab::Key;

/// Without a budget the address range grows by at least this much.
const GROW_BYTES: usize = 32 << 20;

/// Below this time per MiB a result counts as cheap to recompute and is placed at the low end.
const CHEAP_NS_PER_MIB: f64 = 1.0e6;

/// A neighbourhood is followed this far; what lies beyond hardly changes a ranking.
const NEIGHBOURHOOD_MAX: usize = 256;

/// Keeps a storage used this instant comparable.
const STALE_FLOOR_NS: f64 = 1e3;

/// Freed ranges with uses in flight that are remembered before the device is waited for.
const HAZARDS_MAX: usize = 512;

/// Live and peak bytes by kind and by op.
#[derive(Default)]
pub(super) struct Ledger {
    now: Holders,
    pub(super) at_peak: Holders,
    snapshot_of: usize,
}

/// An op's label, compared by address: this map is touched twice an op, and reports join equal texts.
#[derive(Clone, Copy)]
pub(super) struct Label(pub(super) &'static str);

impl PartialEq for Label {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}
impl Eq for Label {}
impl std::hash::Hash for Label {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

#[derive(Clone, Default)]
pub(super) struct Holders {
    pub(super) by_kind: [usize; Kind::ALL.len()],
    pub(super) by_op: FxHashMap<Label, usize>,
}

impl Ledger {
    fn add(&mut self, kind: Kind, label: &'static str, bytes: usize) {
        self.now.by_kind[kind as usize] += bytes;
        *self.now.by_op.entry(Label(label)).or_default() += bytes;
    }

    fn sub(&mut self, kind: Kind, label: &'static str, bytes: usize) {
        self.now.by_kind[kind as usize] -= bytes;
        if let Some(b) = self.now.by_op.get_mut(&Label(label)) {
            *b -= bytes;
        }
    }

    /// Call before bytes are freed: copies the holders if this is a new peak.
    pub(super) fn note_peak(&mut self, in_use: usize) {
        if in_use > self.snapshot_of {
            self.snapshot_of = in_use;
            self.at_peak = self.now.clone();
        }
    }

    pub(super) fn reset(&mut self) {
        self.snapshot_of = 0;
    }
}

impl Worker {
    /// Gives a storage bytes, evicting others if the budget asks for it. Errors: Budget.
    pub(super) fn place(&mut self, id: StorageId, end: End) -> Result<()> {
        let bytes = self.table.storages[id].bytes;
        let block = match self.arena.alloc(bytes, id.raw(), end) {
            Some(b) => b,
            None => {
                let window = self.make_room(bytes, id)?;
                match window.and_then(|at| self.arena.alloc_at(at, bytes, id.raw())) {
                    Some(b) => b,
                    None => self.arena.alloc(bytes, id.raw(), end).ok_or_else(|| {
                        Error::new(ErrorKind::Internal, format!("no room for {bytes} bytes was made"))
                    })?,
                }
            }
        };
        let s = &self.table.storages[id];
        self.ledger.add(s.kind, s.label, block.bytes());
        self.table.set_block(id, block);
        if let Some(t) = &mut self.trace {
            t.memory(self.backend.now_ns(), self.arena.in_use());
        }
        Ok(())
    }

    /// Frees a storage's bytes; it stays in the table.
    pub(super) fn unplace(&mut self, id: StorageId) {
        self.ledger.note_peak(self.arena.in_use());
        if let Some(block) = self.table.take_block(id) {
            let s = &self.table.storages[id];
            self.ledger.sub(s.kind, s.label, block.bytes());
            if self.backend.is_asynchronous() {
                self.hazards.extend(s.touched.iter().map(|&e| (block.start(), block.end(), e)));
                if self.hazards.len() > HAZARDS_MAX {
                    self.backend.wait_idle();
                    self.hazards.clear();
                }
            }
            self.arena.free(block, s.bytes);
            let s = &mut self.table.storages[id];
            s.touched.clear();
            s.written = Event::REACHED;
            if let Some(t) = &mut self.trace {
                t.memory(self.backend.now_ns(), self.arena.in_use());
            }
        }
    }

    /// Changes what a storage counts as.
    pub(super) fn set_kind(&mut self, id: StorageId, kind: Kind) {
        let s = &mut self.table.storages[id];
        if let Some(b) = &s.block {
            self.ledger.sub(s.kind, s.label, b.bytes());
            self.ledger.add(kind, s.label, b.bytes());
        }
        s.kind = kind;
    }

    /// Moves a block from one storage to another of the same size.
    pub(super) fn hand_over(&mut self, from: StorageId, to: StorageId) {
        if let Some(block) = self.table.take_block(from) {
            let (f, t) = (&self.table.storages[from], &self.table.storages[to]);
            self.ledger.sub(f.kind, f.label, block.bytes());
            self.ledger.add(t.kind, t.label, block.bytes());
            let (written, touched) = (f.written, f.touched.clone());
            self.arena.set_owner(&block, to.raw());
            self.table.set_block(to, block);
            let t = &mut self.table.storages[to];
            (t.written, t.touched) = (written, touched);
        }
    }

    /// Makes a free range of `bytes`: grows the arena where there is no budget, evicts and compacts where there is.
    /// Returns where it starts, if the policy chose a place.
    fn make_room(&mut self, bytes: usize, for_whom: StorageId) -> Result<Option<usize>> {
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

    /// Extends the arena without a budget so that `need` bytes are free at its end. Errors: the device has no more.
    fn grow(&mut self, need: usize) -> Result<()> {
        let old = self.arena.capacity();
        let generous = old + need.max(GROW_BYTES);
        let capacity = match self.backend.reserve(generous) {
            Ok(()) => generous,
            Err(_) => {
                let exact = old + need - self.arena.free_tail().min(need);
                self.backend.reserve(exact)?;
                exact
            }
        };
        self.arena.grow(capacity);
        Ok(())
    }

    pub(super) fn evict(&mut self, id: StorageId) {
        let s = &self.table.storages[id];
        let (bytes, label) = (s.block.as_ref().map_or(0, |b| b.bytes()), s.label);
        self.stats.evictions += 1;
        self.stats.evicted_bytes += bytes as u64;
        if let Some(t) = &mut self.trace {
            let start_ns = self.backend.now_ns();
            t.span(Span { lane: Lane::Memory, name: label, scope: None, start_ns, duration_ns: 0, bytes });
        }
        self.unplace(id);
    }

    /// Moves all blocks together. Moving costs time, never correctness.
    pub(super) fn compact(&mut self) -> Result<()> {
        self.backend.wait_idle();
        self.hazards.clear();
        let mut moves = Vec::new();
        self.arena.compact(|owner, from, to, bytes| moves.push((owner, from, to, bytes)));
        self.stats.compactions += 1;
        for (owner, from, to, bytes) in moves {
            self.backend.shift(from, to, bytes)?;
            self.table.storages[Key::from_raw(owner)].block = self.arena.block_at(to);
            self.stats.compacted_bytes += bytes as u64;
        }
        Ok(())
    }

    /// The address order as a policy sees it.
    fn ranges(&mut self) -> Vec<Range> {
        let now = self.backend.now_ns();
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
        let until = s.tensors.iter().filter_map(|t| self.future.until_use_ns(*t)).reduce(f64::min);
        // What a recomputation in progress wants is used next of all.
        let until = if s.wanted > 0 { Some(0.0) } else { until };
        let ahead_ns = until.unwrap_or_else(|| self.future.queued_ns() + stale_ns).min(self.future.horizon_ns());
        // Future and past together: among what is used far off alike, the past says what a deep recomputation has just
        // made. By the future alone, budgets near the least cost the simulated training steps ten times more.
        let idle_ns = (ahead_ns * stale_ns.max(STALE_FLOOR_NS)).sqrt();
        let own = s.recipe?.0;
        let own_ns = self.table.recipes[own].cost_ns;
        let ancestors_ns = self.neighbourhood(id, true) - own_ns;
        let descendants_ns = self.neighbourhood(id, false);
        Some(Candidate { own_ns, ancestors_ns, descendants_ns, idle_ns })
    }

    /// Sum of the costs of the recipes that would have to run: upwards, this storage's own and those of its evicted
    /// ancestors; downwards, those of its evicted descendants that something still needs.
    fn neighbourhood(&mut self, id: StorageId, up: bool) -> f64 {
        self.visit_epoch += 1;
        let (mut cost, mut seen) = (0.0, 0);
        let mut stack: SmallVec<[StorageId; 16]> = SmallVec::new();
        stack.push(id);
        while let Some(id) = stack.pop() {
            let s = &self.table.storages[id];
            let recipes: SmallVec<[_; 4]> = if up { s.recipe.iter().map(|r| r.0).collect() } else { s.readers.clone() };
            for r in recipes {
                let at = r.raw() as usize;
                if self.visited.len() <= at {
                    self.visited.resize(at + 1, 0);
                }
                if self.visited[at] == self.visit_epoch || seen >= NEIGHBOURHOOD_MAX {
                    continue;
                }
                let recipe = &self.table.recipes[r];
                let evicted = |s: &StorageId| !self.table.storages[*s].is_resident();
                if up {
                    stack.extend(recipe.x.iter().map(|x| x.storage).filter(evicted));
                } else {
                    let below: SmallVec<[StorageId; 2]> = recipe.y.iter().flatten().copied().filter(evicted).collect();
                    if below.is_empty() {
                        continue;
                    }
                    stack.extend(below);
                }
                self.visited[at] = self.visit_epoch;
                seen += 1;
                cost += recipe.cost_ns;
            }
        }
        cost
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
            smallest_feasible_bytes: (fixed + needed).max(self.stats.least_budget_bytes),
        })
    }

    /// Where a result is placed: what is cheap to make again at the low end, everything else at the high end.
    pub(super) fn end_for(cost_ns: f64, bytes: usize) -> End {
        let mib = bytes as f64 / (1 << 20) as f64;
        if cost_ns <= CHEAP_NS_PER_MIB * mib { End::Low } else { End::High }
    }

    /// Changes the budget. Errors (Budget): what cannot be evicted exceeds it; the old budget stays in force.
    pub(super) fn set_budget(&mut self, budget: Option<usize>) -> Result<()> {
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
                let id = self.table.storages.insert(Storage::new(0, Kind::Workspace, "set_budget"));
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

    /// On asynchronous devices: makes `stream` wait for uses, on other streams, of the range that `id` was given.
    pub(super) fn wait_for_range(&mut self, id: StorageId, stream: StreamId) {
        let Some(block) = &self.table.storages[id].block else { return };
        let (start, end) = (block.start(), block.end());
        for &(from, to, event) in &self.hazards {
            if from < end && start < to && event.stream != stream {
                self.backend.wait(stream, event);
            }
        }
    }

    /// Notes a use of a storage on an asynchronous device.
    pub(super) fn touch(&mut self, id: StorageId, event: Event) {
        let last = |events: &mut SmallVec<[Event; 2]>| match events.iter_mut().find(|e| e.stream == event.stream) {
            Some(e) => *e = event,
            None => events.push(event),
        };
        last(&mut self.table.storages[id].touched);
        last(&mut self.last_events);
    }
}
