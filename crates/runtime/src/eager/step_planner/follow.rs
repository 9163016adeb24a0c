//! Following a plan: the worker's actions before and around the commands of a known step.
//!
//! The part of the arena from [`Followed::limit`] on is the plan's: results go to the plan's offsets. Everything else
//! (parameters, tensors that outlive the step, small storages, staging) lies below. A storage that a plan *keeps* stays
//! although no handle names it, until the plan frees it or the step ends.
//!
//! Where the worker's state differs from the plan's assumption, the online way takes over: an allocation whose place is
//! taken goes elsewhere, and a missing input is recomputed when it is needed. So a plan is never wrong, only more or
//! less useful.

use remat_types::{Fact, SmallVec};

use super::plan::{Action, Recompute, StepPlan};
use super::step_trace::{Local, StepTrace};
use super::{Followed, Mode};
use crate::eager::memory::table::{HeldBy, Input, RecipeId, StorageId};
use crate::eager::replay::ReplayOptions;
use crate::eager::worker::Worker;
use remat_device::Block;
use remat_device::spill::BLOCK_BYTES;

/// A storage that the caller kept from earlier steps is small if it takes at most this part of the room beside the
/// plan.
const SMALL_SHARE: usize = 64;

impl Worker {
    /// Begins to follow the plan of a known step.
    pub(in crate::eager) fn follow(&mut self, known: usize, others: Vec<usize>) {
        let Some(plan) = self.step_planner.cache.known[known].plan.clone() else { return };
        let Some(limit) = self.limit_of(&plan) else { return };
        self.step_planner.mode = Mode::Following(Followed { known, plan, others, limit });
    }

    /// The start of the planned part of the arena, if there is room for it.
    fn limit_of(&self, plan: &StepPlan) -> Option<usize> {
        let limit = self.memory.arena().capacity().checked_sub(plan.arena_bytes)?;
        Some(if plan.spill.is_some() { limit / BLOCK_BYTES * BLOCK_BYTES } else { limit })
    }

    /// Switches to another plan in the middle of a step. Storages that the new plan no longer holds are freed, and the
    /// others stay. False if there is no room for it.
    pub(in crate::eager) fn adopt(&mut self, known: usize, others: Vec<usize>) -> bool {
        let Some(plan) = self.step_planner.cache.known[known].plan.clone() else { return false };
        let Some(limit) = self.limit_of(&plan) else { return false };
        let at = self.step_planner.at;
        let gone = gone_before(at, &plan, &self.step_planner.cache.known[known].trace);
        self.step_planner.mode = Mode::Following(Followed { known, plan: plan.clone(), others, limit });
        for action in plan.before[..=at].iter().flatten() {
            // This plan would have copied these out by now. The former plan may not have, and they are still resident.
            if let Action::Spill(chain) = action
                && chain.iter().any(|l| gone.contains(l))
            {
                self.spill(chain);
            }
        }
        self.free(&gone);
        self.set_places(at);
        true
    }

    /// Moves storages that the plan does not place out of its part of the arena.
    ///
    /// Storages that the caller kept from earlier steps stay, and lose their recipes: otherwise a loss would keep its
    /// batch. If that is not enough, the large ones are evicted. If there is still more than the plan leaves room for,
    /// the step runs without it.
    pub(in crate::eager) fn clear_planned_part(&mut self) {
        let Mode::Following(Followed { limit, .. }) = self.step_planner.mode else { return };
        let is_clear = |w: &mut Worker| w.memory.segments().all(|s| s.owner.is_none() || s.start + s.bytes <= limit);
        let unnamed = self.table.storages().filter(|(_, s)| s.handles == 0 && s.is_evictable());
        let unnamed: Vec<StorageId> = unnamed.map(|(id, _)| id).collect();
        unnamed.into_iter().for_each(|id| self.unplace(id));
        if self.memory.arena().in_use() > limit {
            self.release_leaves_of_residents();
        }
        let named = self.table.storages().filter(|(_, s)| s.handles > 0 && s.is_evictable());
        let named: Vec<StorageId> = named.map(|(id, _)| id).collect();
        let (small, large): (Vec<StorageId>, Vec<StorageId>) =
            named.into_iter().partition(|&id| self.table[id].bytes <= limit / SMALL_SHARE);
        small.iter().for_each(|&id| self.drop_recipe(id));
        // By now they may be removed with their recipes, or be leaves.
        let is_left = |w: &Worker, id: &StorageId| w.table.storage(*id).is_some_and(|s| s.is_evictable());
        // If what it cannot evict takes more than the plan leaves room for, the worker gives the plan up before it
        // evicts anything.
        let staying = self.table.storages().filter(|(_, s)| !s.is_evictable()).filter_map(|(_, s)| s.block.as_ref());
        if staying.map(Block::bytes).sum::<usize>() > limit {
            return self.abandon();
        }
        let is_too_much = self.memory.arena().in_use() > limit;
        for id in large {
            match (is_left(self, &id), is_too_much) {
                (true, true) => self.evict(id),
                (true, false) => self.drop_recipe(id),
                (false, _) => {}
            }
        }
        // The next command that uses the device reports its failure.
        if self.memory.arena().in_use() > limit || (!is_clear(self) && self.compact().is_err()) {
            self.abandon();
        }
    }

    /// Performs the plan's actions before the command at this place of the step, and sets the places of its results.
    pub(in crate::eager) fn do_before(&mut self, at: usize) {
        let Mode::Following(f) = &self.step_planner.mode else { return };
        let (plan, limit) = (f.plan.clone(), f.limit);
        if plan.spill.is_some() && self.spills.failure().is_some() {
            return self.abandon();
        }
        for action in plan.before.get(at).into_iter().flatten() {
            match action {
                Action::Free(chain) => self.free(chain),
                Action::Recompute(r) => self.recompute_planned(r),
                Action::Spill(chain) => self.spill(chain),
                Action::Fetch(chain, to) => self.fetch_back(chain, limit + to),
            }
        }
        self.set_places(at);
    }

    fn set_places(&mut self, at: usize) {
        let Mode::Following(f) = &self.step_planner.mode else { return };
        self.step_planner.places.scratch_at = f.plan.places.get(at).and_then(|p| p.scratch_at).map(|s| f.limit + s);
    }

    /// Frees storages that the plan no longer keeps. Storages that may still be read are evicted.
    fn free(&mut self, chain: &[Local]) {
        for &local in chain {
            let Some(id) = self.step_planner.locals.get(local as usize).copied().flatten() else { continue };
            self.table[id].pinned_by_plan = false;
            self.free_if_unused(id);
            if self.table.storage(id).is_some_and(|s| s.is_evictable()) {
                self.evict(id);
            }
        }
    }

    /// Recomputes commands of this step if all of their inputs are resident. Otherwise a command that needs their
    /// results does so.
    fn recompute_planned(&mut self, r: &Recompute) {
        let Mode::Following(f) = &self.step_planner.mode else { return };
        let (known, limit) = (f.known, f.limit);
        let of = |local: Local| self.step_planner.locals.get(local as usize).copied().flatten();
        let last = r.events.last().and_then(|&e| self.step_planner.cache.known[known].trace.events[e].done.y.first());
        if r.events.len() > 1 && last.and_then(|&l| of(l)).is_none_or(|id| self.table.is_resident(id)) {
            return;
        }
        for (k, &event) in r.events.iter().enumerate() {
            let done = &self.step_planner.cache.known[known].trace.events[event].done;
            let in_place = done.donated_from.first().copied().flatten().map(usize::from);
            let y = done.y.clone();
            let Some(recipe) = y.iter().find_map(|y| self.recipe_of(*y)) else { return };
            let x = self.table[recipe].x.clone();
            self.wait_arrivals(&x);
            if x.iter().any(|s| !self.table.is_resident(s.storage)) {
                return;
            }
            let offsets = y.iter().map(|y| r.at.iter().find(|at| at.0 == *y).map(|at| limit + at.1)).collect();
            let in_place = match k {
                0 => r.takes.filter(|i| self.may_give(&x, *i, &self.table[recipe].facts[0], 0)),
                _ => in_place.filter(|i| self.is_only_kept(&x, *i)),
            };
            let scratch_at = r.scratch_at.map(|at| limit + at);
            let again = ReplayOptions { offsets, in_place, scratch_at, is_planned: true };
            // A command that needs the result reports the failure.
            if self.rerun_as(recipe, &again).is_err() {
                return;
            }
        }
    }

    fn recipe_of(&self, local: Local) -> Option<RecipeId> {
        let id = self.step_planner.locals.get(local as usize).copied().flatten()?;
        self.table[id].recipe.map(|r| r.0)
    }

    /// True if nothing but the plan keeps an input, so that an output may take its bytes.
    fn is_only_kept(&self, x: &[Input], i: usize) -> bool {
        let Some(s) = x.get(i).map(|s| &self.table[s.storage]) else { return false };
        s.held_by() == HeldBy::Nobody && s.recipe.is_some()
    }

    /// True if an input has a recipe and nothing but so many pins holds its bytes. An output may then take them even if
    /// a later command reads the input.
    fn may_give(&self, x: &[Input], i: usize, y: &Fact, pins: u32) -> bool {
        let Some(s) = x.get(i).map(|s| &self.table[s.storage]) else { return false };
        s.pins == pins && s.wanted == 0 && s.recipe.is_some() && self.is_whole(x, i, y)
    }

    /// The planned offset of output `j` of the running command.
    pub(in crate::eager) fn planned_at(&self, j: usize) -> Option<usize> {
        let Mode::Following(f) = &self.step_planner.mode else { return None };
        let at = self.step_planner.at;
        let local = *self.step_planner.cache.known[f.known].trace.events.get(at)?.done.y.get(j)?;
        let places = f.plan.places.get(at)?;
        places.at.iter().find(|p| p.0 == local).map(|p| f.limit + p.1)
    }

    /// Lets the output take the input that the plan says. Otherwise it cancels a donation if the plan counts on both
    /// storages, or if the input lies at a place of the plan and the output does not belong there. Cancelling requires
    /// room.
    pub(in crate::eager) fn keep_apart(&mut self, donated_from: &mut [Option<usize>], x: &[Input], y: &[Fact]) {
        let Mode::Following(f) = &self.step_planner.mode else { return };
        let limit = f.limit;
        let Some(places) = f.plan.places.get(self.step_planner.at).filter(|p| !p.in_place) else { return };
        if let Some(i) = places.takes.filter(|i| self.may_give(x, *i, &y[0], 1)) {
            donated_from[0] = Some(i);
            self.eviction.note_evicted();
            return;
        }
        let y_local = &self.step_planner.cache.known[f.known].trace.events[self.step_planner.at].done.y;
        let is_planned: SmallVec<[bool; 2]> =
            y_local.iter().map(|l| f.plan.planned.get(*l as usize) == Some(&true)).collect();
        for (j, hold) in donated_from.iter_mut().enumerate() {
            let Some(s) = hold.map(|i| &self.table[x[i].storage]) else { continue };
            // A tensor that is updated in place lies below the plan. A leaf is overwritten where it lies.
            if s.start() < limit || (s.recipe.is_none() && is_planned.get(j) == Some(&true)) {
                continue;
            }
            let has_room = match self.planned_at(j) {
                Some(at) => self.memory.is_free(at, y[j].bytes()),
                None => self.memory.has_room_below(limit, y[j].bytes()),
            };
            if has_room {
                *hold = None;
            }
        }
    }

    /// Sets the places of the running command's outputs.
    pub(in crate::eager) fn place_outputs_as_planned(&mut self, y: &[StorageId]) {
        if matches!(self.step_planner.mode, Mode::Following(_)) {
            let at = (0..y.len()).filter_map(|j| Some((y[j], self.planned_at(j)?)));
            self.step_planner.places.outputs = at.collect();
        }
    }

    /// The command has run, or failed.
    pub(in crate::eager) fn end_places(&mut self) {
        self.step_planner.places.outputs.clear();
        self.step_planner.places.scratch_at = None;
    }

    /// A block at the planned place, or outside of the plan's part for a storage that it does not place. `None` without
    /// room there.
    pub(in crate::eager) fn place_planned(&mut self, id: StorageId, bytes: usize) -> Option<Block> {
        let Mode::Following(f) = &self.step_planner.mode else { return None };
        let limit = f.limit;
        let block = match self.step_planner.places.outputs.iter().find(|p| p.0 == id) {
            Some(&(_, at)) => self.memory.alloc_at(at, bytes, id),
            None => self.memory.alloc_below(limit, bytes, id),
        };
        self.figures.stats.misplaced += u64::from(block.is_none());
        block
    }

    /// Places the next scratch memory of the running call as planned.
    pub(in crate::eager) fn place_scratch(&mut self, id: StorageId, bytes: usize) {
        if let Some(at) = self.step_planner.places.scratch_at {
            self.step_planner.places.outputs.push((id, at));
            self.step_planner.places.scratch_at = Some(at + self.alignment().pad(bytes));
        }
    }

    /// Releases storages that only a plan keeps, in a copy of the worker that follows none.
    pub(in crate::eager) fn unpin_all_planned(&mut self) {
        let kept = self.table.storages().filter(|(_, s)| s.pinned_by_plan).map(|(id, _)| id);
        for id in kept.collect::<Vec<_>>() {
            self.table[id].pinned_by_plan = false;
            self.free_if_unused(id);
        }
    }

    /// Releases storages that only a plan keeps.
    pub(in crate::eager) fn unpin_plan(&mut self) {
        for at in 0..self.step_planner.locals.len() {
            let Some(id) = self.step_planner.locals[at] else { continue };
            if std::mem::take(&mut self.table[id].pinned_by_plan) {
                self.free_if_unused(id);
            }
            // A copy of a storage that is not resident may yet be read.
            if self.table.storage(id).is_some_and(|s| s.copied.is_some() && s.is_resident()) {
                self.drop_copy(id);
            }
        }
        self.end_places();
    }
}

/// Storages that a plan no longer holds when the command at a place runs.
fn gone_before(at: usize, plan: &StepPlan, trace: &StepTrace) -> SmallVec<[Local; 8]> {
    let mut gone: SmallVec<[Local; 8]> = SmallVec::new();
    let taken = |event: usize, takes: Option<usize>| takes.map(|i| trace.events[event].done.x[i]);
    for e in 0..=at {
        for action in &plan.before[e] {
            match action {
                Action::Free(chain) => gone.extend_from_slice(chain),
                Action::Recompute(r) => {
                    gone.retain(|l| !r.events.iter().any(|e| trace.events[*e].done.y.contains(l)));
                    gone.extend(taken(r.events[0], r.takes));
                }
                Action::Spill(_) => {}
                Action::Fetch(chain, _) => gone.retain(|l| !chain.contains(l)),
            }
        }
        if e < at {
            gone.extend(taken(e, plan.places[e].takes));
        }
    }
    gone
}
