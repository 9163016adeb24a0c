//! Running a group. Before its first command the worker rules out everything that could break it in the middle.

use std::sync::Arc;

use remat_ops::collective::Call;
use remat_types::{Error, ErrorKind, SmallVec};
use rustc_hash::FxHashSet;

use super::rehearse::Way;
use super::{CommandGroup, Item};
use crate::eager::command::{Apply, Command, Until};
use crate::eager::failure::{Caller, Failure, HeldBack, OpFailure};
use crate::eager::handle::TensorId;
use crate::eager::memory::table::{Input, StorageId};
use crate::eager::schedule::Needs;
use crate::eager::step_planner::CommandKind;
use crate::eager::update::whole;
use crate::eager::worker::Worker;
use crate::report::Kind;
use remat_device::Event;

impl Worker {
    pub(in crate::eager) fn run_group(&mut self, mut g: CommandGroup) {
        self.steps.begin_command(g.caller);
        let done = g.done.take();
        let prepared = match g.is_cancelled {
            true => Err(self.cancelled()),
            false => self.prepare(&mut g),
        };
        let prepared = self.agree(prepared);
        let result = match prepared {
            Ok(()) => self.run_prepared(g),
            Err(stop) => Err(self.skip(g, stop)),
        };
        self.eviction.end_canonical_rule();
        self.end_schedule();
        self.work.end_rehearsed();
        self.work.count_rehearsed();
        if let Some((reply, until)) = done {
            let finished = if until == Until::Finished { self.finish() } else { Ok(()) };
            reply.send(result.map_err(|f| self.steps.failures().report(&f)).and(finished));
        }
    }

    /// Whether all ranks can make the updates. Errors: the reason on this rank, or (Peer) another rank's.
    fn agree(&mut self, mine: std::result::Result<(), OpFailure>) -> std::result::Result<(), OpFailure> {
        let Some(ranks) = self.options.ranks.clone().filter(|_| self.has_ranks() && !self.is_rehearsal) else {
            return mine;
        };
        if self.launcher.device().is_dry() {
            return mine;
        }
        self.launcher.wait_idle();
        let call = Call::named("the updates of a step");
        match mine {
            Ok(()) => Ok(ranks.agree(&call, Ok(()))?),
            Err(stop) => {
                // a rank that does not receive this learns of it from its own call
                let _ = ranks.fail(&call, stop.error());
                Err(stop)
            }
        }
    }

    /// True if other ranks make the same updates.
    pub(in crate::eager) fn has_ranks(&self) -> bool {
        self.options.ranks.as_ref().is_some_and(|r| r.size() > 1)
    }

    /// Waits until all ranks have given their step up. Errors (Peer): a rank is gone, or does not come.
    pub(in crate::eager) fn meet_again(&mut self) -> remat_types::Result<()> {
        let Some(ranks) = self.options.ranks.clone() else { return Ok(()) };
        if self.is_rehearsal || self.launcher.device().is_dry() {
            return Ok(());
        }
        self.launcher.wait_idle();
        // Collectives that failed by now belong to the step that was given up. The next step must not report them.
        drop(self.launcher.failure_of_step());
        ranks.meet_again()
    }

    fn cancelled(&self) -> OpFailure {
        // The caller that gave up has the error itself.
        let e = Error::new(ErrorKind::Poisoned, "the updates that it belongs to were given up");
        OpFailure::Inherited(Failure::new(e, self.steps.caller(), self.steps.number()))
    }

    /// Makes sure that every command of the group will run. Errors: the reason why not, with nothing updated.
    fn prepare(&mut self, g: &mut CommandGroup) -> std::result::Result<(), OpFailure> {
        let used = g.items.iter().filter_map(|i| if let Item::Apply(a) = i { Some(a) } else { None });
        let used = used.flat_map(|a| a.x.iter().map(|x| x.0)).chain(g.needs.iter().map(|n| n.0));
        let mut storages: SmallVec<[StorageId; 16]> = SmallVec::new();
        for id in used {
            match self.table.read(&id) {
                Some(Err(f)) => return Err(OpFailure::Inherited(f.clone())),
                Some(Ok(x)) => storages.push(x.storage),
                None => {}
            }
        }
        if let Some(f) = self.failure_of_step() {
            return Err(OpFailure::Inherited(f));
        }
        // after its report, no slot shows the failure of a value that was made beside the worker
        for storage in storages {
            let made = match (self.launcher.is_asynchronous(), self.has_ranks()) {
                (true, true) => self.launcher.synchronize(self.table[storage].written),
                // the gate of the updates waits for its event
                (true, false) => Ok(()),
                (false, _) => self.settle(storage),
            };
            if let Err(e) = made {
                return Err(OpFailure::Inherited(self.record_failure(e)));
            }
        }
        if self.budget.is_none() {
            return self.commit_needs(g);
        }
        let does_fit = self.will_fit(g);
        let is_followed = self.step_planner.is_following() && (does_fit || self.would_fit_from_here(g));
        if !is_followed {
            self.abandon_plan();
        }
        if self.does_schedule_decide() {
            if self.prepare_in_schedule(g)? {
                return Ok(());
            }
            // The canonical way starts from nothing, so equal runs end with equal recipes, whatever is resident now.
            self.end_schedule();
            return self.prepare_canonically(g);
        }
        self.end_schedule();
        // Needs that are state cannot be recomputed in turn. So they become state only if the updates then surely run.
        let is_sure = is_followed || does_fit;
        if is_sure {
            match self.commit_needs(g) {
                Ok(()) if self.is_sure_to_fit(g) => return Ok(()),
                Err(stop) if !stop.is_shortfall() => return Err(stop),
                Ok(()) | Err(_) => {}
            }
        }
        if is_sure || self.would_fit_from_here(g) {
            self.begin_exact();
            match self.begin_from_here(g) {
                Err(stop) if stop.is_shortfall() => {}
                done => return done,
            }
        }
        self.prepare_canonically(g)
    }

    /// Makes sure that the updates run in the canonical way.
    fn prepare_canonically(&mut self, g: &mut CommandGroup) -> std::result::Result<(), OpFailure> {
        let way = self.canonical_way(g)?;
        let work = self.work_left();
        self.begin_canonical()?;
        self.work.begin_rehearsed(work);
        self.begin_way(way, g)?;
        self.rehearse(g)
    }

    /// Makes state of the group's needs and of the results that its updates end. The schedule must have all of that at
    /// once, with room for the updates. False if it has not; nothing was done then.
    fn prepare_in_schedule(&mut self, g: &CommandGroup) -> std::result::Result<bool, OpFailure> {
        self.running.label = "step";
        // This goes first: its recomputations may evict storages that the schedule is about to bring back.
        let leaves = self.release_leaves();
        match leaves.and_then(|()| self.before_growth_to(self.growth_of_needs(g), &self.becoming_state(g))) {
            Err(stop) if stop.is_shortfall() => return Ok(false),
            done => done?,
        }
        let x: SmallVec<[Input; 4]> = self.becoming_state(g).into_iter().map(whole).collect();
        let beside = self.bytes_beside_all(g);
        let acted = self.schedule.position();
        let needs = Needs { x, beside };
        match self.extend_schedule(&needs) {
            Ok(()) => {}
            Err(stop) if stop.is_shortfall() => return Ok(false),
            Err(stop) => return Err(stop),
        }
        let is_there = needs.x.iter().all(|s| self.table.is_resident(s.storage));
        match self.schedule.is_followed() {
            true => self.act_since(acted)?,
            false if !is_there => self.catch_up()?,
            false => {}
        }
        // A missing storage would be recomputed beside the schedule, by work that nothing bounds.
        let is_missing = |w: &Worker| needs.x.iter().any(|s| !w.table.is_resident(s.storage));
        if is_missing(self) {
            match self.begin_anew(&needs) {
                Err(stop) if stop.is_shortfall() => return Ok(false),
                done => done?,
            }
        }
        if is_missing(self) {
            return Err(Error::new(ErrorKind::Internal, "the schedule has what the device has not").into());
        }
        for &(id, kind) in &g.needs {
            self.commit_need(id, kind, g.caller, 0)?;
        }
        match self.keep_results(g) {
            true => Ok(true),
            false => Err(Error::new(ErrorKind::Internal, "what the schedule has at once did not fit").into()),
        }
    }

    /// The storages that become state before the updates run: the gradients that the group needs, and the named results
    /// that could not be recomputed after the updates.
    fn becoming_state(&self, g: &CommandGroup) -> Vec<StorageId> {
        let needs = g.needs.iter().filter_map(|(id, _)| Some(self.table.kept(id)?.storage));
        needs.chain(self.ended_results(g)).collect()
    }

    /// Bytes by which leaves grow when the group's needs become state.
    fn growth_of_needs(&self, g: &CommandGroup) -> usize {
        g.needs.iter().map(|n| self.growth_of_commit(n.0)).sum()
    }

    /// The preparations before the updates, in the canonical way.
    pub(super) fn begin_way(&mut self, way: Way, g: &mut CommandGroup) -> std::result::Result<(), OpFailure> {
        match way.is_in_turn {
            false => {
                self.commit_needs(g)?;
                self.keep_results(g);
                Ok(())
            }
            true => {
                self.keep_results(g);
                self.order_for_memory(g);
                Ok(())
            }
        }
    }

    /// Makes state of other results that the caller holds, such as a loss. The updates end the inputs of those results,
    /// and otherwise would have to recompute the results first. A result that does not fit stays as it is. True if all
    /// of them fitted.
    fn keep_results(&mut self, g: &CommandGroup) -> bool {
        let mut do_fit = true;
        for storage in self.ended_results(g) {
            let whole = [whole(storage)];
            match self.pin_inputs(&whole) {
                Ok(()) => {
                    self.drop_recipe(storage);
                    self.unpin(&whole);
                }
                Err(_) => do_fit = false,
            }
        }
        do_fit
    }

    /// Storages that the program names and that the updates make impossible to recompute, without the group's
    /// gradients. The smallest come first.
    fn ended_results(&self, g: &CommandGroup) -> Vec<StorageId> {
        let needs: Vec<StorageId> = g.needs.iter().filter_map(|(id, _)| Some(self.table.kept(id)?.storage)).collect();
        // The results of a graph that the updates leave as it is can be recomputed after them, too.
        let ended = self.made_of_updated(g);
        let named = self
            .table
            .storages()
            .filter(|(id, s)| s.handles > 0 && s.recipe.is_some() && !needs.contains(id) && ended.contains(id));
        let mut named: Vec<_> = named.map(|(id, s)| ((s.bytes, s.number), id)).collect();
        named.sort_unstable_by_key(|n| n.0);
        named.into_iter().map(|n| n.1).collect()
    }

    /// The storages that depend on an input that the group updates, or reads and releases.
    fn made_of_updated(&self, g: &CommandGroup) -> FxHashSet<StorageId> {
        let mut made: FxHashSet<StorageId> = FxHashSet::default();
        let mut stack: Vec<StorageId> = Vec::new();
        for item in &g.items {
            if let Item::Apply(a) = item {
                let dying = a.x.iter().filter(|x| x.1);
                stack.extend(dying.filter_map(|x| self.table.kept(&x.0)).map(|s| s.storage));
            }
        }
        while let Some(id) = stack.pop() {
            for y in self.table.made_of(id) {
                if made.insert(y) {
                    stack.push(y);
                }
            }
        }
        made
    }

    /// Makes state of the group's needs and of other results, from the worker's present state. Errors: the reason why
    /// the updates would then not run.
    fn begin_from_here(&mut self, g: &CommandGroup) -> std::result::Result<(), OpFailure> {
        self.commit_needs(g)?;
        match self.keep_results(g) {
            true => self.rehearse(g),
            false => Err(Error::new(ErrorKind::Budget, "not all results fit at once").into()),
        }
    }

    /// True if a copy of the worker can begin from the present state. The worker then does exactly the same.
    fn would_fit_from_here(&self, g: &CommandGroup) -> bool {
        self.copy_without_data().is_ok_and(|mut copy| {
            copy.unpin_all_planned();
            copy.begin_exact();
            copy.begin_from_here(g).is_ok()
        })
    }

    /// True if all leaves and all named storages are resident and can stay beside everything that the group makes.
    fn will_fit(&self, g: &CommandGroup) -> bool {
        let mut bytes = self.table.fixed_bytes();
        for (_, s) in self.table.storages().filter(|(_, s)| s.handles > 0) {
            if !s.is_resident() {
                return false;
            }
            bytes += if s.recipe.is_some() { self.alignment().pad(s.bytes) } else { 0 };
        }
        bytes + self.bytes_beside_all(g) <= self.memory.arena().capacity()
    }

    /// Drops the plan that is followed, if there is one. A step that is being recorded stays so.
    pub(in crate::eager) fn abandon_plan(&mut self) {
        if self.step_planner.is_following() {
            self.abandon();
        }
    }

    /// From here on the worker does exactly what a rehearsal did.
    fn begin_exact(&mut self) {
        self.abandon_plan();
        self.drop_copies();
        self.eviction.begin_canonical_rule();
        self.work.begin_rehearsed(self.work_left());
    }

    /// Makes the group's needs resident at once, and makes state of them. Errors: the reason why not. Needs that are
    /// not state by then can still be recomputed.
    fn commit_needs(&mut self, g: &CommandGroup) -> std::result::Result<(), OpFailure> {
        if self.budget.is_some() && !self.step_planner.is_following() {
            let x: Vec<Input> = g.needs.iter().filter_map(|(id, _)| self.table.kept(id).cloned()).collect();
            self.running.label = "step";
            self.running.still_needed = 0;
            if self.table.fixed_bytes() + self.evictable_bytes(&x) > self.memory.arena().capacity() {
                return Err(Error::new(ErrorKind::Budget, "not all gradients fit at once").into());
            }
            self.pin_inputs(&x)?;
            self.unpin(&x);
        }
        for &(id, kind) in &g.needs {
            self.commit_need(id, kind, g.caller, self.growth_of_commit(id))?;
        }
        Ok(())
    }

    /// Makes state of a tensor. `growth` is the growth of leaves that no earlier call has prepared for.
    fn commit_need(
        &mut self,
        id: TensorId,
        kind: Kind,
        caller: Caller,
        growth: usize,
    ) -> std::result::Result<(), OpFailure> {
        if self.figures.recording.is_some() {
            self.record_command(&Command::Commit { id, kind, caller });
        }
        self.before_use(CommandKind::Commit, id);
        self.before_growth(growth)?;
        self.try_commit(id, kind)
    }

    /// True if every command fits whatever is evicted in which order: inputs are resident, and outputs that do not go
    /// in place have room.
    fn is_sure_to_fit(&self, g: &CommandGroup) -> bool {
        // An update would have to recompute these first.
        let ended = self.made_of_updated(g);
        if ended.iter().any(|id| self.table[*id].handles > 0 && !self.table.is_resident(*id)) {
            return false;
        }
        self.bytes_beside_all(g) <= self.memory.arena().capacity() - self.memory.arena().in_use()
    }

    /// Bytes that the updates take beside the present ones.
    fn bytes_beside_all(&self, g: &CommandGroup) -> usize {
        let (mut more, mut scratch) = (0, 0);
        for item in &g.items {
            if let Item::Apply(a) = item {
                let (outputs, workspace) = self.bytes_beside(a);
                more += outputs;
                scratch = scratch.max(workspace);
            }
        }
        more + scratch
    }

    /// Bytes that an update takes for good, and bytes that it takes while it runs.
    pub(in crate::eager) fn bytes_beside(&self, a: &Apply) -> (usize, usize) {
        let mut x: SmallVec<[Option<Input>; 4]> = SmallVec::new();
        for (id, _) in &a.x {
            x.push(self.table.kept(id).cloned());
        }
        let known: SmallVec<[Input; 4]> = x.iter().flatten().cloned().collect();
        let is_in_place = |j: usize| {
            self.overwrite(&a.op).iter().filter(|p| p.1 == j).any(|&(i, _)| {
                let Some(s) = x.get(i).and_then(Option::as_ref) else { return false };
                let storage = &self.table[s.storage];
                let at = known.iter().position(|k| std::rc::Rc::ptr_eq(k, s)).unwrap_or(0);
                a.x[i].1 && storage.handles == 1 && storage.pins == 0 && self.is_whole(&known, at, &a.facts[j])
            })
        };
        let outputs =
            (0..a.facts.len()).filter(|j| !is_in_place(*j)).map(|j| self.alignment().pad(a.facts[j].bytes())).sum();
        let scratch = match known.len() == x.len() {
            true => self.scratch_bytes(&a.op, &known, a.workspace_bytes),
            // Tensors that the group makes itself are contiguous.
            false => self.alignment().pad(a.workspace_bytes),
        };
        (outputs, scratch)
    }

    /// Runs a prepared group.
    fn run_prepared(&mut self, g: CommandGroup) -> std::result::Result<(), Arc<Failure>> {
        let outputs = g.items.iter().filter_map(|i| if let Item::Apply(a) = i { Some(a) } else { None });
        let made: Vec<TensorId> = outputs.flat_map(|a| a.y.iter().copied()).collect();
        if self.launcher.is_asynchronous() {
            let after = self.events_of(&g);
            if let Err(e) = self.begin_updates(&after, true) {
                return Err(self.skip(g, e.into()));
            }
        }
        self.running.is_in_group = true;
        self.run_items(g.items);
        self.running.is_in_group = false;
        self.end_updates();
        // A kernel or a device that fails now could not be foreseen.
        let Some(f) = self.failure_of_step() else { return Ok(()) };
        let failure = self.hold_back(f, HeldBack::PartOfStep(self.steps.number()));
        // Updates that succeeded before belong to the failed step.
        made.into_iter().for_each(|id| self.table.set_stale(id, &failure));
        Err(failure)
    }

    /// The events of the tensors that a group reads. If one of them failed, none of its updates is made.
    fn events_of(&self, g: &CommandGroup) -> Vec<Event> {
        let applied = g.items.iter().filter_map(|i| if let Item::Apply(a) = i { Some(a) } else { None });
        let read = applied.flat_map(|a| a.x.iter().map(|x| x.0)).chain(g.needs.iter().map(|n| n.0));
        let mut events: Vec<Event> =
            read.filter_map(|id| Some(self.table[self.table.kept(&id)?.storage].written)).collect();
        events.sort_unstable_by_key(|e| (e.stream.0, e.seq));
        events.dedup();
        events
    }

    pub(super) fn run_items(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Apply(mut a) => self.apply(&mut a),
                Item::Command(c) => self.step(c),
            }
        }
    }

    /// Gives every update's result the old version.
    fn skip(&mut self, g: CommandGroup, stop: OpFailure) -> Arc<Failure> {
        let cause = match stop {
            OpFailure::Own(e) => self.record_failure(e),
            OpFailure::Inherited(f) => f,
        };
        self.abandon();
        let is_told = g.is_cancelled;
        let failure = if is_told { cause } else { self.hold_back(cause, HeldBack::Step(self.steps.number())) };
        for item in g.items {
            match item {
                Item::Apply(a) => {
                    self.running.is_launched = false;
                    self.abandon_op(&a.op, failure.error());
                    self.bind_failed(&a, &failure);
                    a.x.iter().filter(|x| x.1).for_each(|x| self.delete(x.0));
                }
                Item::Command(c) => self.step(c),
            }
        }
        failure
    }
}
