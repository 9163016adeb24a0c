//! A compiled form, its states, its runs, and its second plan.

use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

use remat_ops::{Op, OpRef};
use remat_runtime::tracing::{self, Guard, HostInput};
use remat_runtime::{Channel, Executable, ExecutableOptions, Handle, Kind, NotUpdated, PlanTimes};
use remat_types::{CallSite, Error, ErrorKind, Fact, Result, SmallVec};

use super::{StateCell, pieces};
use crate::Tensor;
use crate::tape::{self, Leaf, lock};

/// Where a state of the graph comes from at each run.
#[derive(Clone)]
pub(super) enum State {
    /// A tensor that the function uses and never replaces.
    Fixed(Handle),
    /// A cell that is read.
    Read(Arc<dyn StateCell>),
    /// A cell whose next version the run makes.
    Updated(Arc<dyn StateCell>),
}

/// The function for one set of input types.
pub(super) struct Entry {
    pub(super) facts: Vec<Fact>,
    pub(super) op: OpRef,
    pub(super) executable: Arc<Executable>,
    pub(super) states: Vec<State>,
    /// The updated cells by address, as indices into the states: every run locks in this order.
    pub(super) order: Vec<usize>,
    pub(super) host_inputs: Vec<HostInput>,
    pub(super) guards: Arc<Vec<Guard>>,
    pub(super) marks_step: bool,
    /// For each output, whether a tensor from outside that requires a gradient leads to it.
    pub(super) needs_gradient: Vec<bool>,
    pub(super) outputs: usize,
    pub(super) replan: Replan,
    /// The plan in measured times, if a second one was made and the first is better.
    pub(super) kept: Option<PlanTimes>,
    /// What it is among the pieces of a function that asks for sizes.
    pub(super) part: Option<pieces::Part>,
}

/// A plan under a budget is made twice: at first with estimated times, and once the calls have been timed, with those,
/// on a thread of its own beside the runs.
pub(super) enum Replan {
    /// Nothing is made again, or the second plan is there already.
    Done,
    /// The first plan runs; so many runs remain.
    After { runs: u32, options: ExecutableOptions },
    /// The second plan is being made, for these times.
    Running(JoinHandle<Result<Executable>>, Vec<Option<u64>>),
}

/// Runs under the first plan: one warms caches, the others are timed.
pub(super) const TIMED_RUNS: u32 = 4;

impl Entry {
    /// Goes on with the second plan: begins it when the calls have been timed, takes it over when it is there and better.
    /// Which plan runs decides times and never a bit.
    pub(super) fn replan(&mut self) {
        self.replan = match std::mem::replace(&mut self.replan, Replan::Done) {
            Replan::After { runs: 0, options } if !self.executable.is_timed() => {
                // calls are queued faster than they run, so none may have ended yet
                Replan::After { runs: 1, options }
            }
            Replan::After { runs: 0, options } => {
                let (graph, threads) = (self.executable.graph().clone(), self.executable.threads());
                let (node_ns, spill) = (self.executable.fastest_times(), self.executable.spills_to());
                let spill = spill.or(options.spill.clone());
                let options = ExecutableOptions { node_ns: node_ns.clone(), spill, ..options };
                let plan = move || Executable::with(graph, threads, &options);
                // without another thread the first plan stays, which is as right
                let thread = std::thread::Builder::new().name("remat-replan".into()).spawn(plan);
                thread.map_or(Replan::Done, |t| Replan::Running(t, node_ns))
            }
            Replan::After { runs, options } => Replan::After { runs: runs - 1, options },
            Replan::Running(thread, given) if !thread.is_finished() => Replan::Running(thread, given),
            Replan::Running(thread, given) => {
                if let Ok(Ok(new)) = thread.join() {
                    self.take_better(new, &given);
                }
                Replan::Done
            }
            Replan::Done => Replan::Done,
        };
    }

    /// Takes over a plan that was made for the times `given`, if those of all runs say that it is better.
    fn take_better(&mut self, new: Executable, given: &[Option<u64>]) {
        let times = self.executable.fastest_times();
        if new.predicted_ns(&times) < self.executable.predicted_ns(&times) {
            new.observe(self.executable.observer());
            self.executable = Arc::new(new);
            self.op = OpRef::from_shared(self.executable.clone());
        } else {
            let planned_ns = self.executable.predicted_ns(given);
            self.kept = new.plan_times().map(|p| PlanTimes { planned_ns, ..p });
        }
    }

    pub(super) fn plan_times(&self) -> Option<PlanTimes> {
        let first = self.executable.plan_times()?;
        let f = self.executable.figures();
        if f.recomputed_calls + f.spilled_bytes > 0 || !self.executable.is_timed() {
            return Some(self.kept.unwrap_or(first));
        }
        // every call once, whatever the times: there is nothing that a plan could save
        let ns = self.executable.predicted_ns(&self.executable.fastest_times());
        Some(PlanTimes { planned_ns: ns, base_ns: ns, bound_ns: ns, stall_ns: 0 })
    }

    pub(super) fn run(
        &self,
        channel: &Channel,
        x: &[&Tensor],
        run: &mut pieces::Run,
        site: CallSite,
    ) -> Result<Vec<Tensor>> {
        match self.marks_step {
            true => channel.check_step()?,
            false => channel.check()?,
        }
        let mut handles: SmallVec<[Handle; 4]> = x.iter().map(|t| t.handle.clone()).collect();
        let g = self.executable.graph();
        for (i, (f, v)) in self.host_inputs.iter().zip(&g.inputs()[x.len()..]).enumerate() {
            handles.push(match run.drawn(i) {
                Some(h) => h,
                None => run.keep(channel.put(&tracing::host_value(g.fact(*v), f)?)?, self.part.is_some()),
            });
        }
        if let Some(part) = &self.part {
            part.take(run, &mut handles)?;
        }
        let mut slots: Vec<Option<MutexGuard<'_, Option<Tensor>>>> = self.states.iter().map(|_| None).collect();
        for &i in &self.order {
            if let State::Updated(cell) = &self.states[i] {
                slots[i] = Some(lock(cell.slot()));
            }
        }
        let lost = || Error::new(ErrorKind::Closed, "the device was closed while a parameter was being updated");
        for (s, slot) in self.states.iter().zip(&slots) {
            handles.push(match s {
                State::Fixed(h) => h.clone(),
                State::Read(cell) => lock(cell.slot()).as_ref().ok_or_else(lost)?.handle.clone(),
                State::Updated(_) => slot.as_ref().and_then(|s| s.as_ref()).ok_or_else(lost)?.handle.clone(),
            });
        }
        if self.part.is_some() {
            run.same_versions(&self.states, &handles[handles.len() - self.states.len()..])?;
        }
        // Whatever inference could refuse is found before a state leaves its slot.
        let facts: SmallVec<[&Fact; 4]> = handles.iter().map(Handle::fact).collect();
        self.executable.infer(&facts)?;
        drop(facts);
        // A function without updates is an op like any other: an earlier failure does not hold it back.
        let kept = if self.executable.updates().is_empty() { 0 } else { self.outputs };
        let mut replaces: SmallVec<[Option<u16>; 2]> = SmallVec::from_elem(None, kept);
        for (i, _) in self.executable.updates() {
            let i = u16::try_from(*i);
            replaces.push(Some(i.map_err(|_| Error::new(ErrorKind::Arity, "more than 65,535 inputs and states"))?));
        }
        let mut slots: Vec<MutexGuard<'_, Option<Tensor>>> = slots.into_iter().flatten().collect();
        let leaves: Vec<Option<Arc<Leaf>>> =
            slots.iter_mut().map(|s| s.take().and_then(|t| t.leaf().cloned())).collect();
        let (y, failed) = match channel.update_at(self.op.clone(), handles, replaces, site) {
            Ok(y) => (y, None),
            Err(NotUpdated { error, old }) => {
                // What failed gives no outputs, and the old versions for the next ones.
                let old: SmallVec<[Handle; 2]> = old.into_iter().flatten().collect();
                if old.len() != slots.len() {
                    return Err(error);
                }
                (old, Some(error))
            }
        };
        let outputs = if failed.is_some() { 0 } else { self.outputs };
        let mut y = y.into_iter();
        let results: Vec<Tensor> = y.by_ref().take(outputs).map(Tensor::from_handle).collect();
        for (((slot, leaf), h), kind) in slots.iter_mut().zip(leaves).zip(y).zip(self.kinds()) {
            channel.commit(&h, kind)?;
            **slot = Some(Tensor::of_version(h, leaf)?);
        }
        drop(slots);
        // Also after a failure, which otherwise would hold back the updates of the next run too.
        match failed {
            Some(e) => {
                if self.marks_step {
                    channel.give_up_step()?;
                }
                Err(e)
            }
            None => {
                if self.marks_step {
                    channel.step_mark()?;
                }
                Ok(results)
            }
        }
    }

    /// The results with the mark that no gradient passes here, where one would be wanted.
    pub(super) fn with_edges(&self, x: &[&Tensor], y: Vec<Tensor>, site: CallSite) -> Vec<Tensor> {
        let is_from_inputs = x.iter().any(|t| t.edge.is_some());
        let is_wanted = |j: usize, t: &Tensor| {
            let leads = is_from_inputs || self.needs_gradient.get(j) == Some(&true);
            tape::is_recording() && leads && t.dtype().is_float()
        };
        let mark = |(j, mut t): (usize, Tensor)| {
            if is_wanted(j, &t) {
                t.edge = Some(tape::compiled(&t, x, site));
            }
            t
        };
        y.into_iter().enumerate().map(mark).collect()
    }

    /// The kinds of the updated states, in order.
    fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.states.iter().filter_map(|s| if let State::Updated(c) = s { Some(c.kind()) } else { None })
    }
}
