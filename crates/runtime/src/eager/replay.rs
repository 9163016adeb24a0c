//! Recomputation of evicted storages. Producers run again through the same `run` as the first time. `sweep.rs` chooses
//! the order.

use remat_ops::OpRef;
use remat_types::{BudgetShortfall, Error, ErrorKind, Fact, SmallVec};

use super::failure::OpFailure;
use super::launcher::Call;
use super::memory::Label;
use super::memory::table::{HeldBy, Input, RecipeId, StorageId};
use super::step_planner::RunningPlaces;
use super::worker::Worker;
use crate::report::Kind;
use remat_device::Block;

/// The search for a named, evicted storage that depends on some bytes visits at most so many storages.
const LED_TO_MAX: usize = 64;

/// The sweep pins the inputs of a recipe that runs again, and so does the run.
const REPLAY_PINS: u32 = 2;

/// How a recipe runs again.
#[derive(Default)]
pub(super) struct ReplayOptions {
    /// Offsets of its outputs, where the plan has them.
    pub(super) offsets: SmallVec<[Option<usize>; 2]>,
    /// The input whose bytes its output takes.
    pub(super) in_place: Option<usize>,
    pub(super) scratch_at: Option<usize>,
    /// The plan frees its outputs. Outputs that exist already are written again in place.
    pub(super) is_planned: bool,
}

/// The storages for the outputs of a recipe that runs again.
#[derive(Default)]
struct Targets {
    y: SmallVec<[StorageId; 2]>,
    /// The storages that nothing needs.
    scratch: SmallVec<[StorageId; 2]>,
    /// Offsets, where they are planned.
    placing: SmallVec<[(StorageId, usize); 2]>,
}

impl Worker {
    /// Makes every input resident and pins it. [`Worker::unpin`] releases them. On an error nothing stays pinned.
    pub(super) fn pin_inputs(&mut self, x: &[Input]) -> std::result::Result<(), OpFailure> {
        if self.eviction.is_canonical() {
            return self.pin_in_turn(x);
        }
        self.pin(x);
        self.wait_arrivals(x);
        let missing = |w: &Worker| -> SmallVec<[StorageId; 4]> {
            x.iter().map(|s| s.storage).filter(|s| !w.table.is_resident(*s)).collect()
        };
        // Pins keep recomputed inputs. A second round is needed only if an error elsewhere freed one.
        loop {
            let missing = missing(self);
            if missing.is_empty() {
                return Ok(());
            }
            if let Err(e) = self.sweep(&missing) {
                self.unpin(x);
                return Err(e);
            }
        }
    }

    /// As [`Worker::pin_inputs`], one input after the other. While one is recomputed, later ones may be evicted, even
    /// if it depends on them. So no more bytes are held than [`Worker::bytes_from_nothing`] counts.
    fn pin_in_turn(&mut self, x: &[Input]) -> std::result::Result<(), OpFailure> {
        let mut order = self.turns(x, self.first_of(x));
        order.iter().for_each(|id| self.table[*id].wanted += 1);
        let held = self.hold_in_turn(&order);
        order.iter().for_each(|id| self.table[*id].wanted -= 1);
        if held.is_err() {
            order.into_iter().for_each(|id| self.free_if_unused(id));
            return held;
        }
        // Pins each input as often as it occurs, and leaves too.
        x.iter().for_each(|s| {
            let named = order.iter().filter(|id| **id == s.storage).count();
            let wanted = x.iter().filter(|o| o.storage == s.storage).count();
            (named..wanted).for_each(|_| {
                order.push(s.storage);
                self.table[s.storage].pins += 1;
            });
        });
        self.eviction.begin_reading(x.iter().map(|s| s.storage));
        Ok(())
    }

    fn pin(&mut self, x: &[Input]) {
        x.iter().for_each(|s| self.table[s.storage].pins += 1);
        self.eviction.begin_reading(x.iter().map(|s| s.storage));
    }

    /// Waits for inputs that are on their way back from the spill file. An input whose copy failed has no bytes then.
    pub(super) fn wait_arrivals(&mut self, x: &[Input]) {
        if self.has_in_flight() {
            x.iter().for_each(|s| self.wait_arrival(s.storage));
        }
    }

    /// Releases what [`Worker::pin_inputs`] pinned.
    pub(super) fn unpin(&mut self, x: &[Input]) {
        let now = self.now_ns;
        self.eviction.end_reading(x.len());
        for s in x {
            let s = &mut self.table[s.storage];
            s.pins -= 1;
            s.last_use_ns = now;
        }
        for s in x {
            self.free_if_unused(s.storage);
        }
    }

    /// Frees a storage's bytes, or the whole storage, if nothing needs them.
    pub(super) fn free_if_unused(&mut self, id: StorageId) {
        let Some(s) = self.table.storage(id) else { return };
        if s.held_by() != HeldBy::Nobody {
            return;
        }
        if s.readers.is_empty() {
            self.destroy(id);
        } else if s.recipe.is_some() && !self.schedule.is_acting() {
            // A sweep of the worker changes nothing in the schedule. The schedule's own sweeps release storages.
            if self.work.nested == 0 {
                self.release_in_schedule(id);
            }
            let s = &self.table[id];
            let stays = match self.schedule.is_followed() {
                true => self.schedule.is_resident(id),
                false => self.leads_to_evicted(id),
            };
            if s.is_resident() && !s.pinned_by_plan && !stays {
                self.unplace(id);
            }
        }
    }

    /// True if a named and evicted storage depends on this one. Its bytes are then worth their room until the policy
    /// decides otherwise.
    fn leads_to_evicted(&self, id: StorageId) -> bool {
        // A plan decides by itself what it keeps.
        if !self.eviction.has_evicted() || self.step_planner.is_following() {
            return false;
        }
        self.leads_to(id, |y| !self.table.is_resident(y))
    }

    /// True if a named storage that `is_missing` depends on this one, directly or through missing storages.
    pub(super) fn leads_to(&self, id: StorageId, is_missing: impl Fn(StorageId) -> bool) -> bool {
        let mut seen: SmallVec<[StorageId; 16]> = SmallVec::new();
        seen.push(id);
        let mut at = 0;
        while let Some(&id) = seen.get(at) {
            at += 1;
            for y in self.table.made_of(id) {
                let s = &self.table[y];
                if !is_missing(y) || seen.contains(&y) {
                    continue;
                }
                if s.handles > 0 {
                    return true;
                }
                if seen.len() == LED_TO_MAX {
                    // Too many to visit. Bytes that may be worthless are evicted first anyway.
                    return true;
                }
                seen.push(y);
            }
        }
        false
    }

    /// Adds figures to a budget error of a command on `x`. The command takes `extra` bytes beside its inputs, and an
    /// output may take `in_place` of them from an input. The figures depend on the program alone: the bytes that the
    /// command needs at once, and the bytes that suffice if only leaves are resident.
    pub(super) fn with_bounds(&self, stop: OpFailure, x: &[Input], extra: usize, in_place: usize) -> OpFailure {
        let OpFailure::Own(e) = stop else { return stop };
        // If the work was too much, the bytes are not the reason.
        let Some(s) = e.shortfall().filter(|s| s.recompute_limit.is_none()) else { return e.into() };
        let fixed = self.table.fixed_bytes();
        let at_once = self.evictable_bytes(x) + extra - in_place;
        let told = Error::budget(BudgetShortfall {
            least_bytes: (fixed + at_once).saturating_sub(self.staging_bytes()),
            // A refused budget does not suffice, whatever the bound says.
            smallest_feasible_bytes: (fixed + self.bytes_from_nothing(x, extra))
                .max(s.budget_bytes.saturating_add(self.alignment().bytes())),
            ..s.clone()
        });
        OpFailure::Own(told.located_as(&e))
    }

    /// Bytes of data loaders' batches, which give way.
    pub(super) fn staging_bytes(&self) -> usize {
        let staging = self.table.storages().filter(|(_, s)| s.kind == Kind::Staging);
        staging.filter_map(|(_, s)| s.block.as_ref()).map(|b| b.bytes()).sum()
    }

    /// Bytes of the distinct storages among `x` that can be recomputed.
    pub(super) fn evictable_bytes(&self, x: &[Input]) -> usize {
        let mut all: SmallVec<[StorageId; 8]> = x.iter().map(|s| s.storage).collect();
        all.sort_unstable_by_key(|id| id.raw());
        all.dedup();
        let recipes = all.iter().map(|id| &self.table[*id]).filter(|s| s.recipe.is_some());
        recipes.map(|s| self.alignment().pad(s.bytes)).sum()
    }

    /// Marks the inputs of a recipe as wanted, or removes the mark.
    pub(super) fn want(&mut self, recipe: RecipeId, by: i32) {
        let x: SmallVec<[StorageId; 4]> = self.table[recipe].x.iter().map(|s| s.storage).collect();
        match by > 0 {
            true => self.eviction.begin_reading(x.iter().copied()),
            false => self.eviction.end_reading(x.len()),
        }
        for &id in &x {
            let w = &mut self.table[id].wanted;
            *w = w.saturating_add_signed(by);
        }
        if by < 0 {
            x.iter().for_each(|&id| self.free_if_unused(id));
        }
    }

    pub(super) fn rerun(&mut self, id: RecipeId) -> std::result::Result<(), OpFailure> {
        self.rerun_as(id, &ReplayOptions::default())
    }

    /// A pinned storage for each output of a recipe that runs again.
    fn targets(&mut self, slots: &[Option<StorageId>], facts: &[Fact], label: Label, again: &ReplayOptions) -> Targets {
        let mut t = Targets::default();
        for (j, (slot, fact)) in slots.iter().zip(facts).enumerate() {
            let target = slot.filter(|s| again.is_planned || !self.table.is_resident(*s)).unwrap_or_else(|| {
                let s = self.new_storage(fact.bytes(), Kind::Workspace, label);
                t.scratch.push(s);
                self.feasibility.pass([s].into_iter());
                s
            });
            let s = &mut self.table[target];
            s.pins += 1;
            s.pinned_by_plan |= again.is_planned;
            t.placing.extend(again.offsets.get(j).copied().flatten().map(|at| (target, at)));
            t.y.push(target);
        }
        t
    }

    /// For each output of a recipe that runs again, the input whose bytes it takes: the plan's choice, or an input that
    /// was recomputed for this recipe alone.
    fn takes(
        &self,
        op: &OpRef,
        x: &[Input],
        y: &[StorageId],
        facts: &[Fact],
        scratch: &[StorageId],
        again: &ReplayOptions,
    ) -> SmallVec<[Option<usize>; 2]> {
        let mut donated_from: SmallVec<[Option<usize>; 2]> = y.iter().map(|_| None).collect();
        if again.is_planned {
            donated_from[0] = again.in_place.filter(|_| y.len() == 1 && !self.table.is_resident(y[0]));
            return donated_from;
        }
        for &(i, j) in self.overwrite(op) {
            let is_free = i < x.len() && j < y.len() && donated_from[j].is_none() && !donated_from.contains(&Some(i));
            // The log's sizes assume that the output takes the input's bytes, even if nothing reads the output any
            // more.
            let is_for_nothing = scratch.contains(&y[j]) && !self.schedule.is_acting();
            if !is_free || is_for_nothing || !self.is_whole(x, i, &facts[j]) {
                continue;
            }
            let s = &self.table[x[i].storage];
            let may_go = s.recipe.is_some() && !s.pinned_by_plan && s.handles == 0 && s.pins == REPLAY_PINS;
            // Without other room the output takes an input that will be read again. That input is recomputed later.
            let goes = match self.schedule.is_acting() {
                true => self.schedule.gives(x[i].storage),
                false => s.wanted == 1 || !self.has_room_beside_pinned(&facts[j]),
            };
            if may_go && goes {
                donated_from[j] = Some(i);
            }
        }
        donated_from
    }

    /// True if an output fits beside everything that must stay while a recipe runs again.
    fn has_room_beside_pinned(&self, y: &Fact) -> bool {
        let (capacity, need) = (self.memory.arena().capacity(), self.alignment().pad(y.bytes()));
        if self.memory.arena().in_use() + need <= capacity {
            return true;
        }
        let evictable = self.table.storages().filter(|(_, s)| s.is_evictable());
        let evictable: usize = evictable.filter_map(|(_, s)| s.block.as_ref()).map(Block::bytes).sum();
        self.memory.arena().in_use() - evictable + need <= capacity
    }

    /// Runs a recipe whose inputs are resident. Outputs that exist already, or that nothing needs, go to scratch
    /// memory.
    ///
    /// A budget error is not kept: the recipe may fit under another budget, or beside fewer bytes. Any other failure is
    /// permanent.
    pub(super) fn rerun_as(&mut self, id: RecipeId, again: &ReplayOptions) -> std::result::Result<(), OpFailure> {
        let r = &self.table[id];
        let (op, x, facts, slots) = (r.op.clone(), r.x.clone(), r.facts.clone(), r.y.clone());
        let (stream, scope, site) = (r.stream, r.scope.clone(), r.site);
        let (cost, cost_ns, workspace_bytes) = (r.cost, r.cost_ns, r.workspace_bytes);
        self.pin(&x);
        let label = self.memory.label(op.label());
        let Targets { y, scratch, placing } = self.targets(&slots, &facts, label, again);
        let outer = self.step_planner.replace_places(RunningPlaces { outputs: placing, scratch_at: again.scratch_at });
        let donated_from = self.takes(&op, &x, &y, &facts, &scratch, again);
        let call = Call {
            op: &op,
            label,
            x: &x,
            y: &y,
            facts: &facts,
            workspace_bytes,
            donated_from: &donated_from,
            stream,
            scope: &scope,
            site,
            again: true,
            gate: None,
        };
        let result = self.place_outputs(&call, cost_ns).and_then(|()| {
            for (&y, hold) in y.iter().zip(&donated_from) {
                if let Some(i) = *hold {
                    self.hand_over(x[i].storage, y);
                }
            }
            self.run(&call)
        });
        self.step_planner.replace_places(outer);
        self.feasibility.end_passing();
        for &s in &y {
            let s = &mut self.table[s];
            s.pins -= 1;
            s.last_use_ns = self.now_ns;
        }
        if result.is_err() {
            // Outputs that were placed but not computed must not be read.
            y.iter().filter(|s| !scratch.contains(s)).for_each(|s| self.unplace(*s));
        }
        // A sibling that was recomputed as well stays only if something may read it.
        y.iter().filter(|s| !scratch.contains(s)).for_each(|s| self.free_if_unused(*s));
        scratch.into_iter().for_each(|s| self.destroy(s));
        self.unpin(&x);
        match result {
            Ok(_) if self.launcher.is_asynchronous() => {
                self.launcher.is_cost_of(cost, Some(id));
                Ok(())
            }
            Ok(ns) => {
                let cost_ns = self.op_costs.learn(cost, ns);
                if let Some(r) = self.table.recipe_mut(id) {
                    r.cost_ns = cost_ns;
                }
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Budget => Err(e.into()),
            Err(e) => {
                let e = e.with_op(label.text).with_call_site(site).with_scope(scope);
                let f = self.record_failure(e);
                if let Some(r) = self.table.recipe_mut(id) {
                    r.failed = Some(f.clone());
                }
                Err(OpFailure::Inherited(f))
            }
        }
    }
}
