//! The first run of an op: from a command to bound outputs.

use std::cell::RefCell;
use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::{Error, ErrorKind, Layout, Result, SmallVec};

use super::command::{Apply, Until};
use super::failure::{Failure, HeldBack, OpFailure};
use super::feasibility::FromNothing;
use super::handle::TensorId;
use super::launcher::Call;
use super::launcher::op_costs::{Found, facts};
use super::memory::Label;
use super::memory::table::{Input, Recipe, Slot, Storage, StorageId, StorageView};
use super::room::is_compiled;
use super::schedule::Needs;
use super::worker::Worker;
use crate::report::Kind;

/// A chain of recipes this long ends in a leaf, so that an endless loop does not keep endless records.
const MAX_RECIPE_DEPTH: u32 = 10_000;

impl Worker {
    pub(super) fn apply(&mut self, a: &mut Apply) {
        let done = a.done.take();
        self.steps.begin_command(a.caller);
        self.work.ask();
        if self.launcher.is_asynchronous() {
            self.learn_times();
        }
        // with a folder to spill to, leaves may yet make room
        if self.options.spill.is_none() {
            self.plan_for_room(a);
        }
        self.before_op(a);
        self.running.is_launched = false;
        let result = match self.apply_if_canonical(a) {
            // the room is what the leaves that cannot go have left
            Err(stop) if stop.is_shortfall() && self.plan_for_room(a) => self.apply_if_canonical(a),
            done => done,
        };
        if let Err(stop) = &result {
            self.abandon_op(&a.op, stop.error());
        }
        let reply = match result {
            Ok(()) => {
                self.record_apply(a);
                Ok(())
            }
            Err(stop) => {
                let failure = match self.with_figures(stop, a) {
                    OpFailure::Own(e) => {
                        let e = e.with_op(a.op.label()).with_call_site(a.site);
                        self.record_failure(e.with_scope(a.scope.clone()))
                    }
                    OpFailure::Inherited(f) => f,
                };
                self.abandon();
                let failure = match a.fallback.is_empty() {
                    true => failure,
                    false => self.hold_back(failure, HeldBack::Update(self.steps.number())),
                };
                self.bind_failed(a, &failure);
                if done.is_some() { Err(self.steps.failures().report(&failure)) } else { Ok(()) }
            }
        };
        for &(id, dies) in &a.x {
            if dies {
                self.delete(id);
            }
        }
        if let Some((reply_to, until)) = done {
            let finished = if until == Until::Finished { self.finish() } else { Ok(()) };
            reply_to.send(reply.and(finished));
        }
    }

    /// Abandons an op that must run exactly once and cannot: other ranks may wait for it.
    pub(super) fn abandon_op(&mut self, op: &OpRef, why: &Error) {
        if !op.repeatable() && !self.running.is_launched && !self.is_rehearsal && !self.launcher.device().is_dry() {
            // its calls follow those that are under way
            self.launcher.wait_idle();
            op.abandon(why);
        }
    }

    /// True if the outputs are never recomputed. That holds for an op that runs exactly once, and for an update on a device
    /// whose outcome the host does not know yet: a second run could not know whether the first one was held back. It
    /// holds for the updates of a compiled function, too: they become state next, all or none. If one of them were
    /// evicted before that, there might be no room to recompute it, with the others made.
    pub(super) fn makes_leaves(&self, a: &Apply) -> bool {
        !a.op.repeatable() || (!a.fallback.is_empty() && (self.are_updates_leaves || is_compiled(&a.op)))
    }

    fn apply_if_canonical(&mut self, a: &mut Apply) -> std::result::Result<(), OpFailure> {
        let growth = match (self.makes_leaves(a), a.fallback.is_empty()) {
            (false, _) => 0,
            (true, true) => a.facts.iter().map(|f| self.alignment().pad(f.bytes())).sum(),
            // An update in place takes the bytes of a leaf.
            (true, false) => self.bytes_beside(a).0,
        };
        self.after_updates(a);
        self.before_growth(growth)?;
        if self.does_schedule_decide() && self.must_cut(a) {
            // Unnamed leaves whose results are smaller may go.
            self.release_leaves()?;
            self.end_schedule();
            self.check_canonical(|w| w.try_apply(a))?;
            let result = self.run_canonically(|w| w.try_apply(a));
            self.work.count_rehearsed();
            return result;
        }
        if self.does_schedule_decide() {
            self.running.label = a.op.label();
        }
        let a = RefCell::new(a);
        self.if_scheduled(|_| growth, |w| w.needs_of_command(&a.borrow()), |w| w.try_apply(&mut a.borrow_mut()))
    }

    /// The inputs of a command and the bytes of its outputs and workspace. `None` for a view, and for a command with a
    /// failed input.
    pub(super) fn needs_of_command(&self, a: &Apply) -> Option<Needs> {
        let x = self.inputs_of(a).ok()?;
        if let [s] = &x[..]
            && a.op.view(&s.layout).is_some()
        {
            return None;
        }
        let outputs: usize = a.facts.iter().map(|f| self.alignment().pad(f.bytes())).sum();
        let mut taken: SmallVec<[(usize, usize); 2]> = SmallVec::new();
        for &(i, j) in self.overwrite(&a.op) {
            let is_free = i < x.len() && j < a.facts.len() && taken.iter().all(|t| t.0 != i && t.1 != j);
            let is_dying = is_free && a.x[i].1 && self.table[x[i].storage].handles == 1;
            // Whether an update of a leaf with readers goes in place is decided when it runs.
            let is_given = |s: &Storage| s.recipe.is_some() || s.readers.is_empty();
            if is_dying && is_given(&self.table[x[i].storage]) && self.is_whole(&x, i, &a.facts[j]) {
                taken.push((i, j));
            }
        }
        let taken: usize = taken.iter().map(|t| self.alignment().pad(a.facts[t.1].bytes())).sum();
        let beside = outputs - taken + self.scratch_bytes(&a.op, &x, a.workspace_bytes);
        Some(Needs { x, beside })
    }

    /// A budget error with the figures of the whole command.
    fn with_figures(&self, stop: OpFailure, a: &Apply) -> OpFailure {
        let Some(x) = self.inputs_of(a).ok().filter(|_| stop.is_shortfall()) else { return stop };
        let bytes = |j: usize| a.facts.get(j).map_or(0, |f| self.alignment().pad(f.bytes()));
        let outputs: usize = (0..a.facts.len()).map(bytes).sum();
        let in_place = self.overwrite(&a.op).iter().map(|p| p.1).collect::<std::collections::BTreeSet<usize>>();
        let in_place: usize = in_place.into_iter().map(bytes).sum();
        let workspace_bytes = self.least_workspace(a);
        self.with_bounds(stop, &x, outputs + self.scratch_bytes(&a.op, &x, workspace_bytes), in_place)
    }

    /// Binds the outputs of a failed command. They are poisoned. An update's output is the old version, if that still
    /// exists.
    pub(super) fn bind_failed(&mut self, a: &Apply, failure: &Arc<Failure>) {
        for (j, &y) in a.y.iter().enumerate() {
            let old = a.fallback.get(j).copied().flatten().map(|i| a.x[i as usize].0);
            let slot = self.slot_of_failed(old, failure);
            self.bind(y, slot);
        }
    }

    /// The slot of a name that failed: the version before it, if that still exists.
    pub(super) fn slot_of_failed(&self, old: Option<TensorId>, failure: &Arc<Failure>) -> Slot {
        let exists = |s: &Input| {
            let s = &self.table[s.storage];
            s.is_resident() || s.recipe.is_some()
        };
        match old.and_then(|old| self.table.tensor(&old)) {
            // A failure that nobody was told of goes first.
            Some(slot @ (Slot::Stale { .. } | Slot::Failed(_))) if slot.read().is_err() => slot.clone(),
            Some(slot) => match slot.kept().filter(|s| exists(s)) {
                Some(old) => Slot::Stale { old: old.clone(), failure: failure.clone() },
                None => Slot::Failed(failure.clone()),
            },
            None => Slot::Failed(failure.clone()),
        }
    }

    /// Gives a name its old value if the value that was to replace it has failed.
    pub(super) fn fall_back(&mut self, id: TensorId, old: TensorId) {
        let Some(Slot::Failed(cause)) = self.table.tensor(&id).cloned() else {
            if self.launcher.is_asynchronous()
                && let Err(e) = self.fall_back_later(id, old)
            {
                self.record_failure(e);
            }
            return;
        };
        let failure = self.hold_back(cause, HeldBack::Update(self.steps.number()));
        let slot = self.slot_of_failed(Some(old), &failure);
        self.bind(id, slot);
    }

    pub(super) fn inputs_of(&self, a: &Apply) -> std::result::Result<SmallVec<[Input; 4]>, OpFailure> {
        let mut x = SmallVec::new();
        for (id, _) in &a.x {
            match self.table.read(id) {
                Some(Ok(s)) => x.push(s.clone()),
                Some(Err(f)) => return Err(OpFailure::Inherited(f.clone())),
                None => return Err(Error::new(ErrorKind::Internal, "an input was deleted before its use").into()),
            }
        }
        Ok(x)
    }

    fn try_apply(&mut self, a: &mut Apply) -> std::result::Result<(), OpFailure> {
        let x = self.inputs_of(a)?;
        if !a.fallback.is_empty()
            && let Some(f) = self.failure_of_step()
        {
            return Err(OpFailure::Inherited(f));
        }
        if let [s] = &x[..]
            && let Some(layout) = a.op.view(&s.layout)
        {
            return Ok(self.bind_view(a, s, layout)?);
        }
        let label = self.memory.label(a.op.label());
        self.running.label = label.text;
        self.running.still_needed = 0;
        self.pin_inputs(&x)?;
        let result = self.compute(a, label, &x);
        self.unpin(&x);
        result
    }

    fn bind_view(&mut self, a: &Apply, s: &StorageView, layout: Layout) -> Result<()> {
        let elems = self.table[s.storage].bytes / s.dtype.size_bytes();
        if !layout.fits(elems) || *layout.shape() != a.facts[0].shape || a.facts[0].dtype != s.dtype {
            return Err(Error::new(ErrorKind::Internal, format!("view {layout:?} leaves its storage of {elems}")));
        }
        self.bind_new(a.y[0], StorageView { storage: s.storage, layout, dtype: s.dtype });
        self.after_op(a, &[], &[], 0, true);
        Ok(())
    }

    /// Runs an op for the first time. Inputs are resident and pinned.
    fn compute(&mut self, a: &mut Apply, label: Label, x: &SmallVec<[Input; 4]>) -> std::result::Result<(), OpFailure> {
        let recording = self.budget.is_some() || self.options.always_record;
        let found = recording.then(|| {
            let from_nothing = self.command_from_nothing(&a.op, x, &a.facts, a.workspace_bytes);
            (self.op_costs.find(&a.op, x), from_nothing)
        });
        if let Some((_, from_nothing)) = found.as_ref().filter(|_| !self.running.is_in_group) {
            let bytes = self.table.fixed_bytes() + from_nothing.bytes;
            self.figures.stats.sufficient_budget_bytes = self.figures.stats.sufficient_budget_bytes.max(bytes);
        }
        let cost_ns = found.as_ref().map_or(0.0, |f| self.expected_ns(&f.0, a, x));
        let mut donated_from = self.donations(a, x)?;
        self.keep_apart(&mut donated_from, x, &a.facts);
        let (y, from_leaf) = self.new_outputs(a, label, x, &donated_from);
        // An output that takes the bytes of a leaf is a leaf.
        let passes = |hold: &Option<usize>| hold.is_none_or(|i| self.table[x[i].storage].recipe.is_some());
        self.feasibility.pass(y.iter().zip(&donated_from).filter(|(_, hold)| passes(hold)).map(|(y, _)| *y));
        self.place_outputs_as_planned(&y);
        let result = self.compute_into(a, label, x, (&y, &donated_from), cost_ns);
        self.end_places();
        self.feasibility.end_passing();
        for (&id, hold) in y.iter().zip(&donated_from) {
            self.table[id].pins = 0;
            if result.is_err() {
                // An input that can be recomputed is recomputed. A leaf comes back as it is: an op that overwrites
                // checks its arguments before it writes. After a bug in a kernel nobody knows what the kernel wrote, so
                // nothing comes back.
                let intact = result.as_ref().is_err_and(|e| e.kind() != ErrorKind::Internal);
                if let Some(i) = hold.filter(|i| intact && self.table[x[*i].storage].recipe.is_none()) {
                    self.hand_over(id, x[i].storage);
                }
                self.destroy(id);
            }
        }
        let ns = result?;
        self.running.last_ns = ns;
        for ((&id, &tensor), f) in y.iter().zip(&a.y).zip(&a.facts) {
            self.table[id].last_use_ns = self.now_ns;
            self.bind_new(tensor, StorageView { storage: id, layout: f.layout(), dtype: f.dtype });
        }
        if let Some(found) = found {
            self.record(a, x, &y, &found, ns, from_leaf);
            let recipe = y.first().and_then(|y| self.table[*y].recipe);
            let cost_ns = recipe.map_or(ns as f64, |r| self.table[r.0].cost_ns);
            self.after_op(a, x, &donated_from, cost_ns as u64, recipe.is_some());
        }
        Ok(())
    }

    /// A pinned storage for each output, and whether an output takes the bytes of a leaf.
    fn new_outputs(
        &mut self,
        a: &Apply,
        label: Label,
        x: &[Input],
        donated_from: &[Option<usize>],
    ) -> (SmallVec<[StorageId; 2]>, bool) {
        let mut from_leaf = false;
        let mut y: SmallVec<[StorageId; 2]> = SmallVec::new();
        for (f, hold) in a.facts.iter().zip(donated_from) {
            let mut kind = Kind::Activation;
            if let Some(i) = *hold {
                let s = &self.table[x[i].storage];
                from_leaf |= s.recipe.is_none();
                kind = if s.kind == Kind::Data { Kind::Activation } else { s.kind };
            }
            let id = self.new_storage(f.bytes(), kind, label);
            self.table[id].pins = 1;
            y.push(id);
        }
        (y, from_leaf)
    }

    fn compute_into(
        &mut self,
        a: &Apply,
        label: Label,
        x: &[Input],
        (y, donated_from): (&[StorageId], &[Option<usize>]),
        cost_ns: f64,
    ) -> Result<u64> {
        // A donated input will have no block of its own. The launch finds it by `donated_from`.
        let call = Call {
            op: &a.op,
            label,
            x,
            y,
            facts: &a.facts,
            workspace_bytes: a.workspace_bytes,
            donated_from,
            stream: a.stream,
            scope: &a.scope,
            site: a.site,
            again: false,
            gate: None,
        };
        self.place_outputs(&call, cost_ns)?;
        for (&y, hold) in y.iter().zip(donated_from) {
            if let Some(i) = *hold {
                let taken = x[i].storage;
                self.schedule.take(taken, self.table[taken].number);
                self.hand_over(x[i].storage, y);
            }
        }
        if a.fallback.is_empty() {
            return self.run(&call);
        }
        if !self.launcher.is_asynchronous() {
            let ns = self.run(&call)?;
            return self.settle(y[0]).map(|()| ns);
        }
        self.run_update(&call, a)
    }

    /// True if the outputs will have a recipe.
    fn will_record(&self, a: &Apply, x: &SmallVec<[Input; 4]>, from_leaf: bool) -> bool {
        !from_leaf && !self.makes_leaves(a) && self.table.depth(x) < MAX_RECIPE_DEPTH
    }

    fn expected_ns(&self, found: &Found, a: &Apply, x: &[Input]) -> f64 {
        if let Some(id) = found.id {
            return self.op_costs.ns(id);
        }
        let x = facts(x);
        let refs: SmallVec<[&_; 4]> = x.iter().collect();
        self.launcher.kernels().cost_ns(&*a.op, &refs, &a.facts) as f64
    }

    /// Gives the outputs a recipe, so that they can be evicted.
    fn record(
        &mut self,
        a: &mut Apply,
        x: &SmallVec<[Input; 4]>,
        y: &[StorageId],
        (found, from_nothing): &(Found, FromNothing),
        ns: u64,
        from_leaf: bool,
    ) {
        let (cost, cost_ns) = self.op_costs.learn_found(found, &a.op, x, ns);
        if self.launcher.is_asynchronous() {
            self.launcher.is_cost_of(cost, None);
        }
        if !self.will_record(a, x, from_leaf) {
            return;
        }
        let depth = 1 + self.table.depth(x);
        // A recording of the command stream reads the facts after this.
        let is_read_again = self.figures.recording.is_some() || self.is_rehearsal;
        let facts = if is_read_again { a.facts.clone() } else { std::mem::take(&mut a.facts) };
        let mut recipe = Recipe {
            op: a.op.clone(),
            number: 0,
            x: x.clone(),
            y: y.iter().map(|s| Some(*s)).collect(),
            facts,
            workspace_bytes: a.workspace_bytes,
            cost,
            cost_ns,
            depth,
            from_nothing_bytes: from_nothing.bytes,
            first: from_nothing.first,
            most_bytes: 0,
            stream: a.stream,
            scope: a.scope.clone(),
            site: a.site,
            failed: None,
        };
        self.note_most_bytes(&mut recipe);
        // A command without outputs leaves nothing to recompute.
        if !y.is_empty() {
            let recipe = self.table.attach(recipe, y);
            self.add_to_schedule(y);
            if self.launcher.is_asynchronous() {
                self.launcher.is_cost_of(cost, Some(recipe));
            }
        }
    }
}
