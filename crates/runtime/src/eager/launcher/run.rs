//! One kernel call with its scratch memory: the only path to a device's launch, at first and in recomputation.

use std::rc::Rc;
use std::sync::Arc;

use remat_ops::{LayoutReq, OpRef};
use remat_types::{CallSite, Error, Fact, Layout, Result, SmallVec};

use super::op_costs::facts;
use crate::eager::memory::Label;
use crate::eager::memory::table::{Input, StorageId, StorageView};
use crate::eager::worker::Worker;
use crate::executable::Executable;
use crate::profile::{Lane, Span};
use crate::report::Kind;
use remat_device::Block;
use remat_device::{Buffer, Event, Launch, OutBuffer, StreamId};

/// A call with inputs resident and pinned, and outputs placed and pinned.
pub(in crate::eager) struct Call<'a> {
    pub(in crate::eager) op: &'a OpRef,
    /// The op's label, which costs a lookup.
    pub(in crate::eager) label: Label,
    pub(in crate::eager) x: &'a [Input],
    pub(in crate::eager) y: &'a [StorageId],
    pub(in crate::eager) facts: &'a [Fact],
    pub(in crate::eager) workspace_bytes: usize,
    /// For each output, the input whose storage it took. May be shorter than `y`.
    pub(in crate::eager) donated_from: &'a [Option<usize>],
    pub(in crate::eager) stream: StreamId,
    pub(in crate::eager) scope: &'a Option<Arc<str>>,
    pub(in crate::eager) site: CallSite,
    /// True for a recomputation.
    pub(in crate::eager) again: bool,
    /// For an update on an asynchronous device: it is not made if this event failed.
    pub(in crate::eager) gate: Option<Event>,
}

/// True for a compiled function, and for control flow.
fn has_parts(op: &OpRef) -> bool {
    let mut has = false;
    op.for_each_part(&mut |_| has = true);
    has
}

impl Worker {
    /// Places every output that did not take over an input. On an error none of them stays placed.
    pub(in crate::eager) fn place_outputs(&mut self, call: &Call<'_>, cost_ns: f64) -> Result<()> {
        self.running.label = call.label.text;
        call.y.iter().for_each(|y| self.wait_copies_of(*y));
        // A planned recomputation may write over a resident output.
        let is_there: SmallVec<[bool; 2]> = call.y.iter().map(|y| self.table.is_resident(*y)).collect();
        let takes = |j: usize| is_there[j] || call.donated_from.get(j).is_some_and(Option::is_some);
        for (j, &id) in call.y.iter().enumerate() {
            if takes(j) {
                continue;
            }
            let bytes = self.table[id].bytes;
            if let Err(e) = self.place(id, self.end_for(cost_ns, bytes)) {
                let rest = call.y.iter().enumerate().skip(j + 1).filter(|(k, _)| !takes(*k));
                let rest: usize = rest.map(|(_, s)| self.alignment().pad(self.table[*s].bytes)).sum();
                let e = self.needing(e, id, rest + self.scratch_bytes(call.op, call.x, call.workspace_bytes));
                (0..j).filter(|k| !takes(*k)).for_each(|k| self.unplace(call.y[k]));
                return Err(e);
            }
        }
        Ok(())
    }

    /// Pairs (input, output) that may share storage when the input dies with a call, as the device's kernel declares.
    pub(in crate::eager) fn overwrite<'o>(&self, op: &'o OpRef) -> &'o [(usize, usize)] {
        self.launcher.kernels.overwrite(&**op)
    }

    /// The scratch memory of a call, as [`Worker::run`] will place it.
    pub(in crate::eager) fn scratch_bytes(&self, op: &OpRef, x: &[Input], workspace_bytes: usize) -> usize {
        let copied =
            |i: usize| !x[i].layout.is_contiguous() && self.launcher.kernels.layout(&**op, i) == LayoutReq::Contiguous;
        let bytes = |i: usize| self.alignment().pad(x[i].layout.elems() * x[i].dtype.size_bytes());
        (0..x.len()).filter(|i| copied(*i)).map(bytes).sum::<usize>() + self.alignment().pad(workspace_bytes)
    }

    /// The budget error of placing `id`, with so many more bytes still to be placed.
    fn needing(&mut self, e: Error, id: StorageId, more: usize) -> Error {
        if e.shortfall().is_none() {
            return e;
        }
        self.running.still_needed = more;
        let e = self.shortfall(id);
        self.running.still_needed = 0;
        e
    }

    /// Runs a call and returns its time in nanoseconds. Errors: Budget for scratch memory, or the kernel's.
    pub(in crate::eager) fn run(&mut self, call: &Call<'_>) -> Result<u64> {
        let mut scratch: SmallVec<[StorageId; 2]> = SmallVec::new();
        let result = self.run_with(call, &mut scratch);
        for s in scratch {
            self.table[s].pins = 0;
            self.destroy(s);
        }
        result
    }

    fn run_with(&mut self, call: &Call<'_>, scratch: &mut SmallVec<[StorageId; 2]>) -> Result<u64> {
        let mut copied: Option<SmallVec<[Input; 4]>> = None;
        for (i, s) in call.x.iter().enumerate() {
            if !s.layout.is_contiguous() && self.launcher.kernels.layout(&**call.op, i) == LayoutReq::Contiguous {
                let copy = self.make_contiguous(s, call, scratch)?;
                copied.get_or_insert_with(|| SmallVec::from(call.x))[i] = Rc::new(copy);
            }
        }
        let x = copied.as_deref().unwrap_or(call.x);
        self.running.label = call.label.text;
        let workspace = match call.workspace_bytes {
            0 => None,
            bytes if self.holds_comm_scratch(call.op) => Some(self.comm_scratch(bytes, call)?),
            bytes => Some(self.scratch(bytes, call, scratch)?),
        };
        self.note_least_budget(call, workspace);
        let start_ns = self.launcher.device.now_ns();
        let on_host = self.launch(call, x, workspace)?;
        let end_ns = self.launcher.device.now_ns();
        // In the canonical way the order of evictions must not depend on the clock.
        self.now_ns = if self.eviction.is_canonical() { self.now_ns + 1 } else { end_ns };
        // An asynchronous launch has only been queued. The time of queuing says nothing about its cost.
        let ns = if self.launcher.is_asynchronous && !on_host {
            let (event, ns) = (call.y.first().map(|y| self.table[*y].written), self.prior_ns(call));
            self.launcher.timings.expect(event.unwrap_or(Event::REACHED), call.label.text, ns, call.again);
            ns
        } else {
            let ns = end_ns.saturating_sub(start_ns);
            self.launcher.timings.is_known();
            self.count_time(call.label.text, call.again, ns);
            ns
        };
        self.count(call, start_ns, ns);
        Ok(ns)
    }

    fn scratch(&mut self, bytes: usize, call: &Call<'_>, scratch: &mut SmallVec<[StorageId; 2]>) -> Result<StorageId> {
        let id = self.new_storage(bytes, Kind::Workspace, call.label);
        self.table[id].pins = 1;
        scratch.push(id);
        self.feasibility.pass([id].into_iter());
        self.place_scratch(id, bytes);
        if let Err(e) = self.place(id, remat_device::End::Low) {
            let placed: usize = scratch.iter().map(|s| self.alignment().pad(self.table[*s].bytes)).sum();
            let more = self.scratch_bytes(call.op, call.x, call.workspace_bytes).saturating_sub(placed);
            return Err(self.needing(e, id, more));
        }
        Ok(id)
    }

    /// True for a collective whose scratch memory stays until the step ends. Under a budget none stays: reusing its
    /// bytes would wait.
    fn holds_comm_scratch(&self, op: &OpRef) -> bool {
        self.budget.is_none() && !self.launcher.is_asynchronous && op.ranks().is_some_and(|ranks| ranks.size() > 1)
    }

    /// The scratch memory that all collectives share. They run one after the other, beside ops that use other bytes.
    fn comm_scratch(&mut self, bytes: usize, call: &Call<'_>) -> Result<StorageId> {
        if let Some(id) = self.comm_scratch.filter(|id| self.table[*id].bytes >= bytes) {
            return Ok(id);
        }
        self.end_comm_scratch();
        let mut own: SmallVec<[StorageId; 2]> = SmallVec::new();
        let placed = self.scratch(bytes, call, &mut own);
        own.iter().for_each(|id| self.table[*id].pins = 0);
        match &placed {
            Ok(id) => self.comm_scratch = Some(*id),
            Err(_) => own.into_iter().for_each(|id| self.destroy(id)),
        }
        placed
    }

    /// Frees the scratch memory of collectives.
    pub(in crate::eager) fn end_comm_scratch(&mut self) {
        if let Some(id) = self.comm_scratch.take() {
            self.destroy(id);
        }
    }

    /// A contiguous copy of a strided input, in scratch memory.
    fn make_contiguous(
        &mut self,
        s: &Input,
        call: &Call<'_>,
        scratch: &mut SmallVec<[StorageId; 2]>,
    ) -> Result<StorageView> {
        let facts = [Fact::new(s.dtype, s.layout.shape().clone())];
        let id = self.scratch(facts[0].bytes(), call, scratch)?;
        let op = self.launcher.contiguous.clone();
        let x = std::slice::from_ref(s);
        let label = self.memory.label(op.label());
        let copy = Call { op: &op, label, x, y: &[id], facts: &facts, workspace_bytes: 0, donated_from: &[], ..*call };
        self.launch(&copy, copy.x, None)?;
        Ok(StorageView { storage: id, layout: Layout::contiguous(s.layout.shape().clone()), dtype: s.dtype })
    }

    /// Launches; true if it ran on the host.
    fn launch(&mut self, call: &Call<'_>, x: &[Input], workspace: Option<StorageId>) -> Result<bool> {
        let place = |id: StorageId| {
            let s = &self.table[id];
            (s.start(), s.bytes)
        };
        let mut launch = Launch {
            op: call.op,
            stream: call.stream,
            x: SmallVec::new(),
            y: SmallVec::new(),
            workspace: workspace.map_or((0, 0), place),
            after: SmallVec::new(),
            site: call.site,
        };
        for s in x {
            let (at, bytes) = place(s.storage);
            launch.x.push(Buffer { dtype: s.dtype, layout: &s.layout, at, bytes });
        }
        for (j, (&id, f)) in call.y.iter().zip(call.facts).enumerate() {
            let (at, bytes) = place(id);
            let donated_from = call.donated_from.get(j).copied().flatten();
            launch.y.push(OutBuffer { dtype: f.dtype, shape: &f.shape, at, bytes, donated_from });
            // The output has taken this input's storage by now.
            if let Some(x) = donated_from.and_then(|i| launch.x.get_mut(i)) {
                x.at = at;
            }
        }
        self.running.is_launched = true;
        if !self.launcher.is_asynchronous {
            return match self.has_kernel(call) {
                true => self.launcher.queue(&launch).map(|_| false),
                false => self.launch_on_host(&launch, call).map(|_| true),
            };
        }
        launch.after.extend(x.iter().map(|s| self.table[s.storage].written).chain(call.gate));
        self.launch_ordered(&launch, call, x, workspace)
    }

    /// Launches on an asynchronous device, after the launch's dependencies in other streams.
    fn launch_ordered(
        &mut self,
        launch: &Launch<'_>,
        call: &Call<'_>,
        x: &[Input],
        workspace: Option<StorageId>,
    ) -> Result<bool> {
        for &id in call.y.iter().chain(workspace.iter()) {
            self.wait_for_range(id, call.stream);
        }
        for j in 0..call.y.len() {
            // An output that took over an input must wait for that input's readers on other streams.
            let touched = self.table[call.y[j]].touched.clone();
            touched.iter().filter(|e| e.stream != call.stream).for_each(|&e| self.launcher.device.wait(call.stream, e));
        }
        let settled = x.iter().map(|s| self.table[s.storage].settled);
        let before: SmallVec<[Event; 8]> = launch.after.iter().copied().chain(settled.clone()).collect();
        for &e in before.iter().filter(|e| e.stream != call.stream) {
            self.launcher.device.wait(call.stream, e);
        }
        let on_host = !self.has_kernel(call);
        if on_host {
            settled.into_iter().try_for_each(|e| self.launcher.device.synchronize(e))?;
        }
        let event = if on_host { self.launch_on_host(launch, call)? } else { self.launcher.queue(launch)? };
        for s in x {
            self.touch(s.storage, event);
        }
        for &id in call.y.iter().chain(workspace.iter()) {
            self.touch(id, event);
            self.table[id].written = event;
        }
        Ok(on_host)
    }

    /// Notes the most bytes that any command pinned and needed at once.
    fn note_least_budget(&mut self, call: &Call<'_>, workspace: Option<StorageId>) {
        if self.budget.is_none() && !self.options.always_record {
            return;
        }
        let mut seen: SmallVec<[StorageId; 8]> = SmallVec::new();
        let mut bytes = self.table.fixed_bytes();
        for id in call.x.iter().map(|s| s.storage).chain(call.y.iter().copied()) {
            let s = &self.table[id];
            if s.recipe.is_some() && !seen.contains(&id) {
                bytes += s.block.as_ref().map_or(0, |b| b.bytes());
                seen.push(id);
            }
        }
        // For another budget a compiled function gets another plan, with another workspace.
        let workspace = workspace.filter(|_| has_parts(call.op)).and_then(|id| self.table[id].block.as_ref());
        let least = bytes - workspace.map_or(0, Block::bytes);
        self.figures.stats.least_budget_bytes = self.figures.stats.least_budget_bytes.max(least);
        let beside = bytes - self.table.fixed_bytes() + self.feasibility.passing_bytes(&self.table);
        self.figures.stats.largest_op_bytes = self.figures.stats.largest_op_bytes.max(beside);
    }

    /// The expected time of a call that was not measured.
    fn prior_ns(&self, call: &Call<'_>) -> u64 {
        let x = facts(call.x);
        let refs: SmallVec<[&Fact; 4]> = x.iter().collect();
        self.launcher.kernels.cost_ns(&**call.op, &refs, call.facts)
    }

    /// Adds the time of a call to the figures.
    pub(in crate::eager) fn count_time(&mut self, label: &'static str, again: bool, ns: u64) {
        if again {
            self.figures.stats.recomputed_ns += ns;
            self.figures.recomputed.entry(label).or_default().1 += ns;
        } else {
            self.figures.stats.executed_ns += ns;
        }
    }

    fn count(&mut self, call: &Call<'_>, start_ns: u64, ns: u64) {
        let label = call.label.text;
        if call.again {
            self.figures.stats.recomputed_ops += 1;
            self.figures.recomputed.entry(label).or_default().0 += 1;
        } else {
            self.figures.stats.executed_ops += 1;
        }
        if let Some(t) = &mut self.figures.trace {
            let lane = if call.again { Lane::Recomputation } else { Lane::Execution };
            let bytes = call.facts.iter().map(Fact::bytes).sum();
            t.span(Span { lane, name: label, scope: call.scope.clone(), start_ns, duration_ns: ns, bytes });
            // on an asynchronous device the calls have not run yet
            if let Some(compiled) =
                call.op.as_any().downcast_ref::<Executable>().filter(|_| !self.launcher.is_asynchronous)
            {
                compiled.spans(t, start_ns, ns);
            }
        }
    }
}
