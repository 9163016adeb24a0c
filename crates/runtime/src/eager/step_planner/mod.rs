//! Steps that repeat: the worker's record between step marks, and the recognition of known steps.
//!
//! ```text
//! StepTrace    a step as data: its commands, tensors numbered in the order in which they appear
//!   |
//! to_problem   the trace as the offline planner's problem
//!   |
//! StepPlan     the planner's schedule by command: what to free and to make again before each, and where results go
//!   |
//! StepCache    the steps that were seen, the plans for some of them, and the planner's thread
//! ```
//!
//! While a plan is followed (`follow.rs`), each command is compared with the trace before it runs. At the first
//! difference the plan is dropped, and the common part becomes the beginning of a new trace. Deletes are no events:
//! another thread may hold a handle a little longer or shorter, and only the bytes beside the plan depend on it. A plan
//! says what to evict and to recompute, and never what a value is. So a wrong plan costs time and changes no bit.

mod cache;
mod follow;
mod plan;
mod problem;
mod step_trace;
#[cfg(test)]
mod tests;

use cache::StepCache;
use plan::StepPlan;
pub(in crate::eager) use step_trace::{CommandKind, Local, NO_LOCAL};
use step_trace::{Event, LocalBytes, Name, Outcome, StepTrace};

use std::rc::Rc;

use remat_types::{Fact, SmallVec};
use rustc_hash::FxHashMap;

use crate::eager::command::Apply;
use crate::eager::handle::TensorId;
use crate::eager::memory::table::{Input, StorageId};
use crate::eager::worker::Worker;
use crate::options::Foresight as Planning;

/// After so many unknown steps in a row, recording pauses for as many steps, then for twice as many.
const PATIENCE: u32 = 8;

/// The longest pause, in steps.
const LONGEST_PAUSE: u32 = 256;

/// The planner's mode in the present step.
#[derive(Default)]
enum Mode {
    /// Nothing: there is no budget, it does not bind, or something failed.
    #[default]
    Idle,
    Recording(Vec<Event>),
    Following(Followed),
}

/// A step that runs as planned.
struct Followed {
    /// Index of the known step.
    known: usize,
    plan: Rc<StepPlan>,
    /// Other known steps with plans that began alike.
    others: Vec<usize>,
    /// The start of the planned part of the arena.
    limit: usize,
}

/// See the module's note.
#[derive(Default)]
pub(in crate::eager) struct StepPlanner {
    planning: Planning,
    cache: StepCache,
    mode: Mode,
    /// Events of this step so far.
    at: usize,
    /// One of the events needed memory.
    has_begun: bool,
    names: FxHashMap<TensorId, Name>,
    next_name: Name,
    /// Storages of this step; `None` for one that was removed.
    locals: Vec<Option<StorageId>>,
    about: Vec<LocalBytes>,
    begin: Begin,
    staging: usize,
    staging_most: usize,
    places: RunningPlaces,
    unknown: u32,
    pause: u32,
}

/// The planned places of the running command's outputs, and of its scratch memory.
#[derive(Default)]
pub(in crate::eager) struct RunningPlaces {
    /// (storage, offset)
    pub(in crate::eager) outputs: SmallVec<[(StorageId, usize); 2]>,
    pub(in crate::eager) scratch_at: Option<usize>,
}

/// Figures at the beginning of a step.
#[derive(Clone, Copy, Default)]
struct Begin {
    now_ns: u64,
    evictions: u64,
    op_ns: u64,
    fixed_bytes: usize,
}

impl StepPlanner {
    pub(in crate::eager) fn new(planning: Planning) -> Self {
        StepPlanner { planning, ..StepPlanner::default() }
    }

    /// True while a step runs as planned.
    pub(in crate::eager) fn is_following(&self) -> bool {
        matches!(self.mode, Mode::Following(_))
    }

    pub(in crate::eager) fn planning(&self) -> Planning {
        self.planning
    }

    /// The storage of this number in the present step, if it still exists.
    pub(in crate::eager) fn storage_of(&self, local: Local) -> Option<StorageId> {
        self.locals.get(local as usize).copied().flatten()
    }

    /// Sets the places of the next results, and returns the former ones.
    pub(in crate::eager) fn replace_places(&mut self, places: RunningPlaces) -> RunningPlaces {
        std::mem::replace(&mut self.places, places)
    }

    pub(in crate::eager) fn is_idle(&self) -> bool {
        matches!(self.mode, Mode::Idle)
    }

    /// A storage leaves the table. Its key will name another one.
    pub(in crate::eager) fn forget(&mut self, local: Local) {
        if let (Some(l), Some(about)) = (self.locals.get_mut(local as usize), self.about.get_mut(local as usize)) {
            (*l, about.gone_at) = (None, Some(self.at as u32));
        }
    }

    /// A storage becomes a leaf.
    pub(in crate::eager) fn lose_recipe(&mut self, local: Local) {
        if let Some(about) = self.about.get_mut(local as usize) {
            about.lost_recipe = true;
        }
    }

    /// Bytes of staging buffers.
    pub(in crate::eager) fn staging_bytes(&self) -> usize {
        self.staging
    }

    /// Adds so many bytes of staging buffers, or subtracts them.
    pub(in crate::eager) fn stage(&mut self, bytes: isize) {
        self.staging = self.staging.saturating_add_signed(bytes);
        self.staging_most = self.staging_most.max(self.staging);
    }
}

impl Worker {
    /// An op is about to run.
    pub(in crate::eager) fn before_op(&mut self, a: &Apply) {
        if self.step_planner.is_idle() {
            return;
        }
        let ids: SmallVec<[TensorId; 4]> = a.x.iter().map(|x| x.0).collect();
        let Some(mut event) = self.event(CommandKind::Apply(a.op.clone()), &ids) else { return self.abandon() };
        event.types.extend(a.facts.iter().map(|f| (f.dtype, f.shape.clone())));
        self.before_event(event);
    }

    /// A tensor is about to be read, or committed.
    pub(in crate::eager) fn before_use(&mut self, what: CommandKind, id: TensorId) {
        if self.step_planner.is_idle() {
            return;
        }
        match self.event(what, &[id]) {
            Some(event) => {
                self.before_event(event);
                self.step_planner.at += 1;
            }
            None => self.abandon(),
        }
    }

    /// Data is about to be put.
    pub(in crate::eager) fn before_put(&mut self, fact: &Fact) {
        if self.step_planner.is_idle() {
            return;
        }
        if let Some(mut event) = self.event(CommandKind::Put, &[]) {
            event.types.push((fact.dtype, fact.shape.clone()));
            self.before_event(event);
        }
    }

    /// The event of a command on these tensors. `None` if one of them failed.
    fn event(&mut self, what: CommandKind, x: &[TensorId]) -> Option<Event> {
        let mut event = Event { what, x: SmallVec::new(), types: SmallVec::new(), done: Outcome::default() };
        for id in x {
            let Some(Ok(s)) = self.table.read(id) else { return None };
            let (storage, next) = (s.storage, self.step_planner.next_name);
            let name = *self.step_planner.names.entry(*id).or_insert(next);
            if name == next {
                self.step_planner.next_name += 1;
                event.types.push((s.dtype, s.layout.shape().clone()));
            }
            event.x.push(name);
            event.done.x.push(self.local(storage, true));
        }
        Some(event)
    }

    /// The number of a storage in this step.
    fn local(&mut self, id: StorageId, is_carried: bool) -> Local {
        let unit = self.alignment();
        let s = &mut self.table[id];
        if s.local == NO_LOCAL {
            s.local = self.step_planner.locals.len() as Local;
            let about = LocalBytes { bytes: unit.pad(s.bytes), is_carried, ..LocalBytes::default() };
            self.step_planner.locals.push(Some(id));
            self.step_planner.about.push(about);
        }
        s.local
    }

    /// Compares an event with the known step, and performs the plan's actions before it.
    fn before_event(&mut self, event: Event) {
        let is_first = !self.step_planner.has_begun && matches!(event.what, CommandKind::Put | CommandKind::Apply(_));
        if is_first {
            // Handles that end right after the previous step are gone by now.
            self.step_planner.has_begun = true;
            self.step_planner.begin.fixed_bytes = self.named_bytes();
            self.choose_plan(&event);
            self.clear_planned_part();
        }
        match &mut self.step_planner.mode {
            Mode::Idle => {}
            Mode::Recording(events) => events.push(event),
            Mode::Following(f) => {
                let (known, at) = (f.known, self.step_planner.at);
                let expected = self.step_planner.cache.known[known].trace.events.get(at);
                if expected.is_some_and(|e| *e == event && e.done.x == event.done.x) {
                    return self.do_before(at);
                }
                self.diverge(event);
            }
        }
    }

    /// Nothing of the step has run yet: follows the first plan whose step begins with these events.
    fn choose_plan(&mut self, event: &Event) {
        let Mode::Following(f) = &self.step_planner.mode else { return };
        let at = self.step_planner.at;
        let events = |k: usize| &self.step_planner.cache.known[k].trace.events;
        let before = &events(f.known)[..at];
        let alike = |k: &usize| events(*k).get(..at) == Some(before) && events(*k).get(at) == Some(event);
        if alike(&f.known) {
            return;
        }
        let next: Vec<usize> = f.others.iter().copied().filter(alike).collect();
        self.step_planner.mode = Mode::Recording(before.to_vec());
        if let Some((&known, others)) = next.split_first() {
            self.follow(known, others.to_vec());
        }
    }

    /// The step differs from the one that is followed. It is another known step, or a new one with the same beginning.
    fn diverge(&mut self, event: Event) {
        let Mode::Following(f) = std::mem::take(&mut self.step_planner.mode) else { return };
        let at = self.step_planner.at;
        let mut events: Vec<Event> = self.step_planner.cache.known[f.known].trace.events[..at].to_vec();
        events.push(event);
        let cache = &self.step_planner.cache;
        let alike = |k: &usize| cache.known[*k].trace.events.get(..=at).is_some_and(|e| *e == events[..]);
        let next = f.others.iter().copied().filter(alike).collect::<Vec<usize>>();
        self.step_planner.mode = Mode::Recording(events);
        let is_adopted = next.split_first().is_some_and(|(&known, others)| self.adopt(known, others.to_vec()));
        if !is_adopted {
            self.unpin_plan();
        }
        // Before anything ran there was nothing to abandon.
        match is_adopted {
            _ if !self.step_planner.has_begun => {}
            true => self.figures.stats.steps_switched += 1,
            false => self.figures.stats.steps_abandoned += 1,
        }
    }

    /// An op has run: records its outcome.
    pub(in crate::eager) fn after_op(
        &mut self,
        a: &Apply,
        x: &[Input],
        donated_from: &[Option<usize>],
        cost_ns: u64,
        has_recipe: bool,
    ) {
        if self.step_planner.is_idle() {
            return;
        }
        let y: SmallVec<[Local; 2]> = a.y.iter().map(|id| self.made(*id)).collect();
        let at = self.step_planner.at;
        self.step_planner.at += 1;
        let may_take = self.overwritable(a, x);
        let scratch_bytes = if x.is_empty() { 0 } else { self.scratch_bytes(&a.op, x, a.workspace_bytes) };
        let StepPlanner { mode, cache, .. } = &mut self.step_planner;
        match mode {
            Mode::Idle => {}
            Mode::Following(f) => {
                // The time is updated. The rest is as it was.
                if let Some(event) = cache.known[f.known].trace.events.get_mut(at) {
                    event.done.cost_ns = cost_ns;
                }
            }
            Mode::Recording(events) => {
                let Some(Event { done, .. }) = events.last_mut() else { return };
                let donated_from = donated_from.iter().map(|h| h.and_then(|h| u8::try_from(h).ok())).collect();
                *done = Outcome {
                    x: std::mem::take(&mut done.x),
                    y,
                    donated_from,
                    may_take,
                    cost_ns,
                    scratch_bytes,
                    has_recipe,
                };
            }
        }
    }

    /// While a step is recorded, the inputs whose bytes the only output of an op could take.
    fn overwritable(&self, a: &Apply, x: &[Input]) -> SmallVec<[u8; 2]> {
        let (Mode::Recording(events), [_]) = (&self.step_planner.mode, &a.y[..]) else { return SmallVec::new() };
        // The facts may have moved into the recipe by now.
        let Some((dtype, shape)) = events.last().and_then(|e| e.types.last().cloned()) else { return SmallVec::new() };
        let fact = Fact::new(dtype, shape);
        let of_it = self.overwrite(&a.op).iter().filter(|p| p.1 == 0 && p.0 < x.len()).map(|p| p.0);
        of_it.filter(|i| self.is_whole(x, *i, &fact)).filter_map(|i| u8::try_from(i).ok()).collect()
    }

    /// Data was put: records its storage.
    pub(in crate::eager) fn after_put(&mut self, id: TensorId) {
        if self.step_planner.is_idle() {
            return;
        }
        let y = self.made(id);
        self.step_planner.at += 1;
        if let Mode::Recording(events) = &mut self.step_planner.mode
            && let Some(event) = events.last_mut()
        {
            event.done.y.push(y);
        }
    }

    /// Names a tensor that the step made, and its storage.
    fn made(&mut self, id: TensorId) -> Local {
        let name = self.step_planner.next_name;
        self.step_planner.next_name += 1;
        self.step_planner.names.insert(id, name);
        let Some(s) = self.table.kept(&id) else { return NO_LOCAL };
        let storage = s.storage;
        let local = self.local(storage, false);
        if matches!(self.step_planner.mode, Mode::Following(_)) && !self.step_planner.about[local as usize].is_carried {
            self.table[storage].pinned_by_plan = true;
        }
        local
    }

    /// A step ends and another begins.
    pub(in crate::eager) fn end_of_step(&mut self) {
        let Some(budget) = self.budget.filter(|_| self.step_planner.planning != Planning::Off) else { return };
        if self.step_planner.at == 0 && !self.step_planner.is_idle() {
            // Two marks with nothing between them are one.
            return;
        }
        let ns = self.launcher.now_ns().saturating_sub(self.step_planner.begin.now_ns);
        match std::mem::take(&mut self.step_planner.mode) {
            Mode::Idle => {}
            Mode::Recording(events) => {
                self.learn(events, ns);
            }
            Mode::Following(f) if self.step_planner.at == self.step_planner.cache.known[f.known].trace.events.len() => {
                self.figures.stats.steps_followed += 1;
                self.figures.stats.planned_step_ns = f.plan.time_ns;
                self.figures.stats.planned_base_ns = f.plan.base_ns;
                self.figures.stats.planned_bound_ns = f.plan.bound_ns;
                self.figures.stats.followed_step_ns = self.op_ns().saturating_sub(self.step_planner.begin.op_ns);
                self.step_planner.cache.repeat(f.known, ns);
                self.step_planner.unknown = 0;
            }
            Mode::Following(f) => {
                // The step ends earlier than the known one that begins like it.
                let events = self.step_planner.cache.known[f.known].trace.events[..self.step_planner.at].to_vec();
                match self.learn(events, ns) {
                    true => self.figures.stats.steps_switched += 1,
                    false => self.figures.stats.steps_abandoned += 1,
                }
            }
        }
        let evicted = self.figures.stats.evictions != self.step_planner.begin.evictions;
        self.unpin_plan();
        self.forget_step();
        let (gives_up, spill) = (self.gives_up_spilling(), self.spill_rates());
        let cache = &mut self.step_planner.cache;
        if gives_up {
            cache.clear();
        }
        let figures = cache.plan(self.step_planner.planning, budget, spill);
        self.figures.stats.steps_planned += figures.plans;
        self.figures.stats.planning_ns += figures.took_ns;
        self.begin_step(evicted);
    }

    /// Notes a recorded step. True if it is a known one.
    fn learn(&mut self, events: Vec<Event>, ns: u64) -> bool {
        let mut locals = std::mem::take(&mut self.step_planner.about);
        for (about, id) in locals.iter_mut().zip(&self.step_planner.locals) {
            about.outlives = id.is_some_and(|id| self.table[id].handles > 0);
        }
        let alignment = self.alignment();
        let f = &mut self.step_planner;
        let (fixed_bytes, staging_bytes) = (f.begin.fixed_bytes, f.staging_most);
        let trace = StepTrace { events, locals, fixed_bytes, staging_bytes, alignment };
        let is_known = f.cache.learn(trace, ns);
        f.unknown = if is_known { 0 } else { f.unknown + 1 };
        if f.unknown >= PATIENCE {
            f.pause = f.unknown.min(LONGEST_PAUSE);
        }
        is_known
    }

    /// Forgets the names of the step.
    fn forget_step(&mut self) {
        for id in std::mem::take(&mut self.step_planner.locals).into_iter().flatten() {
            self.table[id].local = NO_LOCAL;
        }
        let f = &mut self.step_planner;
        (f.at, f.has_begun, f.next_name, f.staging_most) = (0, false, 0, f.staging);
        f.names.clear();
        f.about.clear();
    }

    fn op_ns(&self) -> u64 {
        self.figures.stats.executed_ns + self.figures.stats.recomputed_ns + self.figures.stats.spill_wait_ns
    }

    fn begin_step(&mut self, is_bound: bool) {
        self.step_planner.begin = Begin {
            now_ns: self.launcher.now_ns(),
            evictions: self.figures.stats.evictions,
            op_ns: self.op_ns(),
            fixed_bytes: 0,
        };
        let candidates = self.step_planner.cache.candidates();
        if let Some((&known, others)) = candidates.split_first() {
            self.follow(known, others.to_vec());
        } else if self.step_planner.pause > 0 {
            self.step_planner.pause -= 1;
        } else if is_bound || !self.step_planner.cache.known.is_empty() {
            self.step_planner.mode = Mode::Recording(Vec::new());
        }
    }

    /// Resident bytes of storages that a tensor names.
    fn named_bytes(&self) -> usize {
        let named = self.table.storages().filter(|(_, s)| s.handles > 0);
        named.filter_map(|(_, s)| s.block.as_ref()).map(|b| b.bytes()).sum()
    }

    /// Something failed: the rest of the step runs without a plan.
    pub(in crate::eager) fn abandon(&mut self) {
        if matches!(std::mem::take(&mut self.step_planner.mode), Mode::Following(_)) {
            self.figures.stats.steps_abandoned += 1;
            self.unpin_plan();
        }
    }

    /// The budget has changed: the plans for the old one no longer hold.
    pub(in crate::eager) fn forget_plans(&mut self) {
        self.abandon();
        self.step_planner.cache.clear();
    }
}
