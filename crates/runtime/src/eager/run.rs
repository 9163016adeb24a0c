//! One kernel call with its scratch memory: the only path to a device's launch, first time and again alike.

use std::sync::Arc;

use remat_ops::{LayoutReq, OpRef};
use remat_types::{CallSite, Error, Fact, Facts, Layout, Result, SmallVec};

use super::table::{RecipeId, Source, Storage, StorageId};
use super::worker::Worker;
use crate::arena::padded;
use crate::device::{Buffer, Launch, OutBuffer, StreamId};
use crate::profile::{Lane, Span};
use crate::report::Kind;

/// Weight of the newest measurement in an op's average time.
const COST_DECAY: f64 = 0.25;

/// What to run: inputs resident and pinned, outputs placed and pinned.
pub(super) struct Call<'a> {
    pub(super) op: &'a OpRef,
    pub(super) x: &'a [Source],
    pub(super) y: &'a [StorageId],
    pub(super) facts: &'a Facts,
    /// For each output, the input whose storage it took; may be shorter than `y`.
    pub(super) holds: &'a [Option<usize>],
    pub(super) stream: StreamId,
    pub(super) scope: &'a Option<Arc<str>>,
    pub(super) site: CallSite,
    /// True for a recomputation.
    pub(super) again: bool,
}

impl Worker {
    pub(super) fn new_storage(&mut self, bytes: usize, kind: Kind, label: &'static str) -> StorageId {
        let mut s = Storage::new(bytes, kind, label);
        s.last_use_ns = self.now_ns;
        self.table.storages.insert(s)
    }

    /// Places every output that did not take over an input. On an error none of them stays placed.
    pub(super) fn place_outputs(
        &mut self,
        y: &[StorageId],
        holds: &[Option<usize>],
        cost_ns: f64,
        op: &OpRef,
        x: &[Source],
    ) -> Result<()> {
        self.running = op.label();
        let takes = |j: usize| holds.get(j).is_some_and(Option::is_some);
        for (j, &id) in y.iter().enumerate() {
            if takes(j) {
                continue;
            }
            let bytes = self.table.storages[id].bytes;
            if let Err(e) = self.place(id, Self::end_for(cost_ns, bytes)) {
                let rest = y.iter().enumerate().skip(j + 1).filter(|(k, _)| !takes(*k));
                let rest: usize = rest.map(|(_, s)| padded(self.table.storages[*s].bytes)).sum();
                let e = self.needing(e, id, rest + self.scratch_bytes(op, x));
                (0..j).filter(|k| !takes(*k)).for_each(|k| self.unplace(y[k]));
                return Err(e);
            }
        }
        Ok(())
    }

    /// The scratch memory of a call, as [`Worker::run`] will place it.
    pub(super) fn scratch_bytes(&self, op: &OpRef, x: &[Source]) -> usize {
        let facts: SmallVec<[Fact; 4]> = x.iter().map(|s| Fact::new(s.dtype, s.layout.shape().clone())).collect();
        let refs: SmallVec<[&Fact; 4]> = facts.iter().collect();
        let copied = |i: usize| op.layout(i) == LayoutReq::Contiguous && !x[i].layout.is_contiguous();
        let copies: usize = (0..x.len()).filter(|i| copied(*i)).map(|i| padded(facts[i].bytes())).sum();
        copies + padded(op.workspace(&refs, self.backend.threads()))
    }

    /// A budget error of placing `id`, told that so many more bytes were to come.
    fn needing(&mut self, e: Error, id: StorageId, more: usize) -> Error {
        if e.shortfall().is_none() {
            return e;
        }
        self.still_needed = more;
        let e = self.shortfall(id);
        self.still_needed = 0;
        e
    }

    /// Runs a call and returns its time in nanoseconds. Errors: Budget for scratch memory, or the kernel's.
    pub(super) fn run(&mut self, call: &Call<'_>) -> Result<u64> {
        self.running = call.op.label();
        let mut scratch: SmallVec<[StorageId; 2]> = SmallVec::new();
        let result = self.run_with(call, &mut scratch);
        for s in scratch {
            self.table.storages[s].pins = 0;
            self.destroy(s);
        }
        result
    }

    fn run_with(&mut self, call: &Call<'_>, scratch: &mut SmallVec<[StorageId; 2]>) -> Result<u64> {
        let facts: SmallVec<[Fact; 4]> = call.x.iter().map(|s| Fact::new(s.dtype, s.layout.shape().clone())).collect();
        let refs: SmallVec<[&Fact; 4]> = facts.iter().collect();
        let mut copied: Option<SmallVec<[Source; 4]>> = None;
        for (i, s) in call.x.iter().enumerate() {
            if !s.layout.is_contiguous() && call.op.layout(i) == LayoutReq::Contiguous {
                let copy = self.make_contiguous(s, call, scratch)?;
                copied.get_or_insert_with(|| SmallVec::from(call.x))[i] = copy;
            }
        }
        let x = copied.as_deref().unwrap_or(call.x);
        self.running = call.op.label();
        let workspace_bytes = call.op.workspace(&refs, self.backend.threads());
        let workspace = if workspace_bytes == 0 { None } else { Some(self.scratch(workspace_bytes, call, scratch)?) };
        self.note_least_budget(call.x, call.y);
        let start_ns = self.backend.now_ns();
        self.launch(call, x, workspace)?;
        let end_ns = self.backend.now_ns();
        self.now_ns = end_ns;
        // An asynchronous launch has only been queued: what that took says nothing of its cost.
        let queued = self.backend.is_asynchronous();
        let ns = if queued { call.op.cost(&refs, call.facts).prior_ns() } else { end_ns - start_ns };
        self.count(call, start_ns, ns);
        Ok(ns)
    }

    fn scratch(&mut self, bytes: usize, call: &Call<'_>, scratch: &mut SmallVec<[StorageId; 2]>) -> Result<StorageId> {
        let id = self.new_storage(bytes, Kind::Workspace, call.op.label());
        self.table.storages[id].pins = 1;
        scratch.push(id);
        if let Err(e) = self.place(id, crate::arena::End::Low) {
            let placed: usize = scratch.iter().map(|s| padded(self.table.storages[*s].bytes)).sum();
            let more = self.scratch_bytes(call.op, call.x).saturating_sub(placed);
            return Err(self.needing(e, id, more));
        }
        Ok(id)
    }

    /// A contiguous copy of a strided input, in scratch memory.
    fn make_contiguous(
        &mut self,
        s: &Source,
        call: &Call<'_>,
        scratch: &mut SmallVec<[StorageId; 2]>,
    ) -> Result<Source> {
        let fact = Fact::new(s.dtype, s.layout.shape().clone());
        let id = self.scratch(fact.bytes(), call, scratch)?;
        let facts: Facts = std::iter::once(fact).collect();
        let op = self.contiguous.clone();
        let copy = Call { op: &op, x: std::slice::from_ref(s), y: &[id], facts: &facts, holds: &[], ..*call };
        self.launch(&copy, copy.x, None)?;
        Ok(Source { storage: id, layout: Layout::contiguous(s.layout.shape().clone()), dtype: s.dtype })
    }

    fn launch(&mut self, call: &Call<'_>, x: &[Source], workspace: Option<StorageId>) -> Result<()> {
        let mut launch = self.spare_launch.take().unwrap_or_else(|| Box::new(Launch::empty(call.op, call.site)));
        self.describe(&mut launch, call, x, workspace);
        let result = if self.backend.is_asynchronous() {
            self.launch_ordered(&launch, call, x, workspace)
        } else {
            self.backend.launch(&launch).map(|_| ())
        };
        self.spare_launch = Some(launch);
        result
    }

    /// Fills in a launch: one value serves all, for it is larger than what most ops compute.
    fn describe(&self, launch: &mut Launch, call: &Call<'_>, x: &[Source], workspace: Option<StorageId>) {
        let place = |id: StorageId| {
            let s = &self.table.storages[id];
            (s.block.as_ref().map_or(0, |b| b.start()), s.bytes)
        };
        launch.op.clone_from(call.op);
        launch.stream = call.stream;
        launch.site = call.site;
        launch.workspace = workspace.map_or((0, 0), place);
        launch.x.clear();
        for s in x {
            let (at, bytes) = place(s.storage);
            launch.x.push(Buffer { dtype: s.dtype, layout: s.layout.clone(), at, bytes });
        }
        launch.y.clear();
        for (j, (&id, f)) in call.y.iter().zip(call.facts).enumerate() {
            let (at, bytes) = place(id);
            let holds = call.holds.get(j).copied().flatten();
            launch.y.push(OutBuffer { dtype: f.dtype, shape: f.shape.clone(), at, bytes, holds });
        }
        launch.after.clear();
        if self.backend.is_asynchronous() {
            launch.after.extend(x.iter().map(|s| self.table.storages[s.storage].written));
        }
    }

    /// Launches on an asynchronous device, after whatever the launch depends on in other streams.
    fn launch_ordered(
        &mut self,
        launch: &Launch,
        call: &Call<'_>,
        x: &[Source],
        workspace: Option<StorageId>,
    ) -> Result<()> {
        for &id in call.y.iter().chain(workspace.iter()) {
            self.wait_for_range(id, call.stream);
        }
        for j in 0..call.y.len() {
            // An output that took over an input must wait for that input's readers on other streams.
            let touched = self.table.storages[call.y[j]].touched.clone();
            touched.iter().filter(|e| e.stream != call.stream).for_each(|&e| self.backend.wait(call.stream, e));
        }
        for &e in launch.after.iter().filter(|e| e.stream != call.stream) {
            self.backend.wait(call.stream, e);
        }
        let event = self.backend.launch(launch)?;
        for s in x {
            self.touch(s.storage, event);
        }
        for &id in call.y.iter().chain(workspace.iter()) {
            self.touch(id, event);
            self.table.storages[id].written = event;
        }
        Ok(())
    }

    /// Remembers the most that any command pinned and needed at once.
    fn note_least_budget(&mut self, x: &[Source], y: &[StorageId]) {
        if self.budget.is_none() && !self.options.always_record {
            return;
        }
        let mut seen: SmallVec<[StorageId; 8]> = SmallVec::new();
        let mut bytes = self.table.fixed_bytes;
        for id in x.iter().map(|s| s.storage).chain(y.iter().copied()) {
            let s = &self.table.storages[id];
            if s.recipe.is_some() && !seen.contains(&id) {
                bytes += s.block.as_ref().map_or(0, |b| b.bytes());
                seen.push(id);
            }
        }
        self.stats.least_budget_bytes = self.stats.least_budget_bytes.max(bytes);
    }

    fn count(&mut self, call: &Call<'_>, start_ns: u64, ns: u64) {
        let label = call.op.label();
        if call.again {
            self.stats.recomputed_ops += 1;
            self.stats.recomputed_ns += ns;
            let r = self.recomputed.entry(label).or_default();
            r.0 += 1;
            r.1 += ns;
        } else {
            self.stats.executed_ops += 1;
            self.stats.executed_ns += ns;
        }
        if let Some(t) = &mut self.trace {
            let lane = if call.again { Lane::Recomputation } else { Lane::Execution };
            let bytes = call.facts.iter().map(Fact::bytes).sum();
            t.span(Span { lane, name: label, scope: call.scope.clone(), start_ns, duration_ns: ns, bytes });
        }
    }

    /// Folds a measurement into the average of a recipe.
    pub(super) fn learn(&mut self, id: RecipeId, ns: u64) {
        if let Some(op) = self.table.recipes.get(id).map(|r| r.op.clone()) {
            let shapes = self.table.recipes[id].x.iter().map(|s| (s.dtype, s.layout.shape().clone())).collect();
            let cost = self.average(op, shapes, ns);
            self.table.recipes[id].cost_ns = cost;
        }
    }

    /// Folds a measurement into the average of (op, facts) and returns it.
    pub(super) fn average(&mut self, op: OpRef, x: super::worker::CostShapes, ns: u64) -> f64 {
        let cost = self.costs.entry((op, x)).or_insert(ns as f64);
        *cost += COST_DECAY * (ns as f64 - *cost);
        *cost
    }
}
