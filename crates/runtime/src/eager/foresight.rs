//! Steps that repeat: what the worker records between step marks, and how it sees that a step is one that it knows.
//!
//! The stream of a step is a tape of events with names of its own (`remat/foresight/tape.rs`). While a plan is followed
//! (`follow.rs`) each command is compared with the tape before it runs; at the first difference the plan is let go and
//! what was the same so far becomes the beginning of a new tape. Deletes are no events: a handle may live a little longer
//! or shorter in a thread of its own, and nothing but the bytes beside the plan depends on it.

use std::rc::Rc;

use remat_types::{Fact, SmallVec};
use rustc_hash::FxHashMap;

use super::command::Apply;
use super::handle::TensorId;
use super::table::{Input, Slot, StorageId};
use super::worker::Worker;
use crate::arena::padded;
use crate::options::Foresight as Planning;
use crate::remat::foresight::{Book, Done, Event, Local, LocalBytes, NO_LOCAL, Name, Script, Tape, What};

/// After so many steps in a row that were unlike all known ones, recording pauses for as many, then for twice as many.
const PATIENCE: u32 = 8;

/// The longest pause, in steps.
const LONGEST_PAUSE: u32 = 256;

/// What the worker does about the present step.
#[derive(Default)]
pub(super) enum Mode {
    /// Nothing: there is no budget, it does not bind, or something failed.
    #[default]
    Idle,
    Recording(Vec<Event>),
    Following(Followed),
}

/// A step that runs as planned.
pub(super) struct Followed {
    /// Index of the known step.
    pub(super) known: usize,
    pub(super) script: Rc<Script>,
    /// Other known steps with plans that began alike.
    pub(super) others: Vec<usize>,
    /// Where the planned part of the arena begins.
    pub(super) limit: usize,
}

/// See the module's note.
#[derive(Default)]
pub(super) struct Foresight {
    pub(super) planning: Planning,
    pub(super) book: Book,
    pub(super) mode: Mode,
    /// Events of this step so far.
    pub(super) at: usize,
    /// One of them needed memory.
    has_begun: bool,
    names: FxHashMap<TensorId, Name>,
    next_name: Name,
    /// Storages of this step; `None` for one that is gone.
    pub(super) locals: Vec<Option<StorageId>>,
    about: Vec<LocalBytes>,
    begin: Begin,
    staging: usize,
    staging_most: usize,
    /// Where the outputs of the running command go, and its scratch memory.
    pub(super) placing: SmallVec<[(StorageId, usize); 2]>,
    pub(super) scratch_at: Option<usize>,
    unknown: u32,
    pause: u32,
}

/// Figures at the beginning of a step.
#[derive(Clone, Copy, Default)]
struct Begin {
    now_ns: u64,
    evictions: u64,
    op_ns: u64,
    fixed_bytes: usize,
}

impl Foresight {
    pub(super) fn new(planning: Planning) -> Self {
        Foresight { planning, ..Foresight::default() }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.mode, Mode::Idle)
    }

    /// A storage leaves the table; its key will name another.
    pub(super) fn forget(&mut self, local: Local) {
        if let (Some(l), Some(about)) = (self.locals.get_mut(local as usize), self.about.get_mut(local as usize)) {
            (*l, about.gone_at) = (None, Some(self.at as u32));
        }
    }

    /// A storage becomes a source.
    pub(super) fn lose_recipe(&mut self, local: Local) {
        if let Some(about) = self.about.get_mut(local as usize) {
            about.lost_recipe = true;
        }
    }

    /// Staging buffers of so many bytes more, or less.
    pub(super) fn stage(&mut self, bytes: isize) {
        self.staging = self.staging.saturating_add_signed(bytes);
        self.staging_most = self.staging_most.max(self.staging);
    }
}

impl Worker {
    /// An application is about to run.
    pub(super) fn foresee_apply(&mut self, a: &Apply) {
        if self.foresight.is_idle() {
            return;
        }
        let ids: SmallVec<[TensorId; 4]> = a.x.iter().map(|x| x.0).collect();
        let Some(mut event) = self.event(What::Apply(a.op.clone()), &ids) else { return self.abandon() };
        event.types.extend(a.facts.iter().map(|f| (f.dtype, f.shape.clone())));
        self.foresee(event);
    }

    /// A tensor is about to be read, or committed.
    pub(super) fn foresee_use(&mut self, what: What, id: TensorId) {
        if self.foresight.is_idle() {
            return;
        }
        match self.event(what, &[id]) {
            Some(event) => {
                self.foresee(event);
                self.foresight.at += 1;
            }
            None => self.abandon(),
        }
    }

    /// Data is about to be put.
    pub(super) fn foresee_put(&mut self, fact: &Fact) {
        if self.foresight.is_idle() {
            return;
        }
        if let Some(mut event) = self.event(What::Put, &[]) {
            event.types.push((fact.dtype, fact.shape.clone()));
            self.foresee(event);
        }
    }

    /// The event of a command on these tensors; `None` if one of them failed.
    fn event(&mut self, what: What, x: &[TensorId]) -> Option<Event> {
        let mut event = Event { what, x: SmallVec::new(), types: SmallVec::new(), done: Done::default() };
        for id in x {
            let Some(Slot::Ready(s)) = self.table.tensors.get(id) else { return None };
            let (storage, next) = (s.storage, self.foresight.next_name);
            let name = *self.foresight.names.entry(*id).or_insert(next);
            if name == next {
                self.foresight.next_name += 1;
                event.types.push((s.dtype, s.layout.shape().clone()));
            }
            event.x.push(name);
            event.done.x.push(self.local(storage, true));
        }
        Some(event)
    }

    /// The number of a storage in this step.
    fn local(&mut self, id: StorageId, is_carried: bool) -> Local {
        let s = &mut self.table.storages[id];
        if s.local == NO_LOCAL {
            s.local = self.foresight.locals.len() as Local;
            let about = LocalBytes { bytes: padded(s.bytes), is_carried, ..LocalBytes::default() };
            self.foresight.locals.push(Some(id));
            self.foresight.about.push(about);
        }
        s.local
    }

    /// Compares an event with what was foreseen, and does what the plan says comes before it.
    fn foresee(&mut self, event: Event) {
        let is_first = !self.foresight.has_begun && matches!(event.what, What::Put | What::Apply(_));
        if is_first {
            // What was let go right after the step before is gone by now.
            self.foresight.has_begun = true;
            self.foresight.begin.fixed_bytes = self.named_bytes();
            self.choose_plan(&event);
            self.clear_above();
        }
        match &mut self.foresight.mode {
            Mode::Idle => {}
            Mode::Recording(events) => events.push(event),
            Mode::Following(f) => {
                let (known, at) = (f.known, self.foresight.at);
                let expected = self.foresight.book.known[known].tape.events.get(at);
                if expected.is_some_and(|e| *e == event && e.done.x == event.done.x) {
                    return self.do_before(at);
                }
                self.diverge(event);
            }
        }
    }

    /// Nothing of the step has run yet: of the plans that there are, the first whose step begins like it.
    fn choose_plan(&mut self, event: &Event) {
        let Mode::Following(f) = &self.foresight.mode else { return };
        let at = self.foresight.at;
        let events = |k: usize| &self.foresight.book.known[k].tape.events;
        let before = &events(f.known)[..at];
        let alike = |k: &usize| events(*k).get(..at) == Some(before) && events(*k).get(at) == Some(event);
        if alike(&f.known) {
            return;
        }
        let next: Vec<usize> = f.others.iter().copied().filter(alike).collect();
        self.foresight.mode = Mode::Recording(before.to_vec());
        if let Some((&known, others)) = next.split_first() {
            self.follow(known, others.to_vec());
        }
    }

    /// The step is not the one that is followed: another known one, or a new one that begins alike.
    fn diverge(&mut self, event: Event) {
        let Mode::Following(f) = std::mem::take(&mut self.foresight.mode) else { return };
        let at = self.foresight.at;
        let mut events: Vec<Event> = self.foresight.book.known[f.known].tape.events[..at].to_vec();
        events.push(event);
        let book = &self.foresight.book;
        let alike = |k: &usize| book.known[*k].tape.events.get(..=at).is_some_and(|e| *e == events[..]);
        let next = f.others.iter().copied().filter(alike).collect::<Vec<usize>>();
        self.foresight.mode = Mode::Recording(events);
        let is_adopted = next.split_first().is_some_and(|(&known, others)| self.adopt(known, others.to_vec()));
        if !is_adopted {
            self.release_kept();
        }
        // Before anything ran there was nothing to abandon.
        match is_adopted {
            _ if !self.foresight.has_begun => {}
            true => self.stats.steps_switched += 1,
            false => self.stats.steps_abandoned += 1,
        }
    }

    /// An application has run: what its outputs became.
    pub(super) fn foresaw_apply(
        &mut self,
        a: &Apply,
        x: &[Input],
        holds: &[Option<usize>],
        cost_ns: u64,
        has_recipe: bool,
    ) {
        if self.foresight.is_idle() {
            return;
        }
        let y: SmallVec<[Local; 2]> = a.y.iter().map(|id| self.made(*id)).collect();
        let at = self.foresight.at;
        self.foresight.at += 1;
        let may_take = self.overwritable(a, x);
        let scratch_bytes = if x.is_empty() { 0 } else { self.scratch_bytes(&a.op, x, a.workspace_bytes) };
        let Foresight { mode, book, .. } = &mut self.foresight;
        match mode {
            Mode::Idle => {}
            Mode::Following(f) => {
                // What it takes now; the rest is as it was.
                if let Some(event) = book.known[f.known].tape.events.get_mut(at) {
                    event.done.cost_ns = cost_ns;
                }
            }
            Mode::Recording(events) => {
                let Some(Event { done, .. }) = events.last_mut() else { return };
                let holds = holds.iter().map(|h| h.and_then(|h| u8::try_from(h).ok())).collect();
                *done = Done { x: std::mem::take(&mut done.x), y, holds, may_take, cost_ns, scratch_bytes, has_recipe };
            }
        }
    }

    /// While a step is recorded, the inputs whose bytes the one output of an op could take.
    fn overwritable(&self, a: &Apply, x: &[Input]) -> SmallVec<[u8; 2]> {
        let (Mode::Recording(events), [_]) = (&self.foresight.mode, &a.y[..]) else { return SmallVec::new() };
        // The facts may have gone into the recipe by now.
        let Some((dtype, shape)) = events.last().and_then(|e| e.types.last().cloned()) else { return SmallVec::new() };
        let fact = Fact::new(dtype, shape);
        let of_it = a.op.overwrite().iter().filter(|p| p.1 == 0 && p.0 < x.len()).map(|p| p.0);
        of_it.filter(|i| self.is_whole(x, *i, &fact)).filter_map(|i| u8::try_from(i).ok()).collect()
    }

    /// Data was put.
    pub(super) fn foresaw_put(&mut self, id: TensorId) {
        if self.foresight.is_idle() {
            return;
        }
        let y = self.made(id);
        self.foresight.at += 1;
        if let Mode::Recording(events) = &mut self.foresight.mode
            && let Some(event) = events.last_mut()
        {
            event.done.y.push(y);
        }
    }

    /// Names a tensor that the step made, and its storage.
    fn made(&mut self, id: TensorId) -> Local {
        let name = self.foresight.next_name;
        self.foresight.next_name += 1;
        self.foresight.names.insert(id, name);
        let Some(Slot::Ready(s)) = self.table.tensors.get(&id) else { return NO_LOCAL };
        let storage = s.storage;
        let local = self.local(storage, false);
        if matches!(self.foresight.mode, Mode::Following(_)) && !self.foresight.about[local as usize].is_carried {
            self.table.storages[storage].kept = true;
        }
        local
    }

    /// A step ends and another begins.
    pub(super) fn end_of_step(&mut self) {
        let Some(budget) = self.budget.filter(|_| self.foresight.planning != Planning::Off) else { return };
        if self.foresight.at == 0 && !self.foresight.is_idle() {
            // Nothing lies between two marks.
            return;
        }
        let ns = self.backend.now_ns().saturating_sub(self.foresight.begin.now_ns);
        match std::mem::take(&mut self.foresight.mode) {
            Mode::Idle => {}
            Mode::Recording(events) => {
                self.learn(events, ns);
            }
            Mode::Following(f) if self.foresight.at == self.foresight.book.known[f.known].tape.events.len() => {
                self.stats.steps_followed += 1;
                self.stats.planned_step_ns = f.script.time_ns;
                self.stats.planned_base_ns = f.script.base_ns;
                self.stats.planned_bound_ns = f.script.bound_ns;
                self.stats.followed_step_ns = self.op_ns().saturating_sub(self.foresight.begin.op_ns);
                self.foresight.book.repeat(f.known, ns);
                self.foresight.unknown = 0;
            }
            Mode::Following(f) => {
                // It ends earlier than the one that it began like.
                let events = self.foresight.book.known[f.known].tape.events[..self.foresight.at].to_vec();
                match self.learn(events, ns) {
                    true => self.stats.steps_switched += 1,
                    false => self.stats.steps_abandoned += 1,
                }
            }
        }
        let evicted = self.stats.evictions != self.foresight.begin.evictions;
        self.release_kept();
        self.forget_step();
        let (gives_up, spill) = (self.gives_up_spilling(), self.spill_rates());
        let book = &mut self.foresight.book;
        if gives_up {
            book.clear();
        }
        let figures = book.plan(self.foresight.planning, budget, spill);
        self.stats.steps_planned += figures.plans;
        self.stats.planning_ns += figures.took_ns;
        self.begin_step(evicted);
    }

    /// Notes a step as it was recorded. True if it is a known one.
    fn learn(&mut self, events: Vec<Event>, ns: u64) -> bool {
        let mut locals = std::mem::take(&mut self.foresight.about);
        for (about, id) in locals.iter_mut().zip(&self.foresight.locals) {
            about.outlives = id.is_some_and(|id| self.table.storages[id].handles > 0);
        }
        let f = &mut self.foresight;
        let tape = Tape { events, locals, fixed_bytes: f.begin.fixed_bytes, staging_bytes: f.staging_most };
        let is_known = f.book.learn(tape, ns);
        f.unknown = if is_known { 0 } else { f.unknown + 1 };
        if f.unknown >= PATIENCE {
            f.pause = f.unknown.min(LONGEST_PAUSE);
        }
        is_known
    }

    /// Forgets the names of the step.
    fn forget_step(&mut self) {
        for id in std::mem::take(&mut self.foresight.locals).into_iter().flatten() {
            self.table.storages[id].local = NO_LOCAL;
        }
        let f = &mut self.foresight;
        (f.at, f.has_begun, f.next_name, f.staging_most) = (0, false, 0, f.staging);
        f.names.clear();
        f.about.clear();
    }

    fn op_ns(&self) -> u64 {
        self.stats.executed_ns + self.stats.recomputed_ns + self.stats.spill_wait_ns
    }

    fn begin_step(&mut self, is_bound: bool) {
        self.foresight.begin = Begin {
            now_ns: self.backend.now_ns(),
            evictions: self.stats.evictions,
            op_ns: self.op_ns(),
            fixed_bytes: 0,
        };
        let candidates = self.foresight.book.candidates();
        if let Some((&known, others)) = candidates.split_first() {
            self.follow(known, others.to_vec());
        } else if self.foresight.pause > 0 {
            self.foresight.pause -= 1;
        } else if is_bound || !self.foresight.book.known.is_empty() {
            self.foresight.mode = Mode::Recording(Vec::new());
        }
    }

    /// Resident bytes of storages that a tensor names.
    fn named_bytes(&self) -> usize {
        let named = self.table.storages.iter().filter(|(_, s)| s.handles > 0);
        named.filter_map(|(_, s)| s.block.as_ref()).map(|b| b.bytes()).sum()
    }

    /// Something failed: what comes now is as if there was no foresight.
    pub(super) fn abandon(&mut self) {
        if matches!(std::mem::take(&mut self.foresight.mode), Mode::Following(_)) {
            self.stats.steps_abandoned += 1;
            self.release_kept();
        }
    }

    /// The budget has changed: nothing that was planned for the old one holds.
    pub(super) fn forget_plans(&mut self) {
        self.abandon();
        self.foresight.book.clear();
    }
}
