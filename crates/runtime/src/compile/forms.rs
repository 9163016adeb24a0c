//! The compiled forms of a function, one for each set of input types. Facts, sizes and guards select a form.

use std::sync::Arc;

use remat_graph::ir::{GraphPrefix, ShapeDepends, ValueId};
use remat_ops::Op;
use remat_types::{CallSite, Error, ErrorKind, Fact, Result, SmallVec};

use super::function::{AfterRun, frozen};
use super::segments::Segment;
use super::symbols::SymbolicForms;
use super::{
    Beside, CompileCx, CompileOptions, CompiledGraph, Function, FunctionTrace, SegmentRun, State, VersionedCell,
};
use crate::eager::trace::{self, Guard, HostInput};
use crate::eager::{Channel, Device, Handle, NotUpdated};
use crate::executable::{Executable, Observer};

/// The function for one set of input types.
pub struct Form<C> {
    facts: Vec<Fact>,
    /// The device's budget that was in force then.
    planned_for: Option<usize>,
    compiled: CompiledGraph,
    states: Vec<State<C>>,
    order: Vec<usize>,
    host_inputs: Vec<HostInput>,
    guards: Arc<Vec<Guard>>,
    marks_step: bool,
    needs_gradient: Vec<bool>,
    after: Arc<Vec<AfterRun>>,
    number: usize,
    outputs: usize,
    /// For each output of the op, the input that it is the next version of.
    replaces: SmallVec<[Option<u16>; 2]>,
    /// The segment that this form is, if the function asks for sizes.
    pub(super) segment: Option<Segment<C>>,
}

/// The results of a queued run.
pub struct Launched {
    /// The results; none of a run that failed.
    pub outputs: Vec<Handle>,
    /// The next versions of the states that the run updates, in order. After a failure, the old versions.
    pub versions: SmallVec<[Handle; 2]>,
    /// Why it failed.
    pub failed: Option<Error>,
}

impl<C: VersionedCell> Form<C> {
    /// The graph with its plans.
    pub fn compiled(&self) -> &CompiledGraph {
        &self.compiled
    }

    /// The executable under the present plan.
    pub fn executable(&self) -> &Arc<Executable> {
        self.compiled.executable()
    }

    /// Call this before each run; see [`CompiledGraph::before_run`].
    pub fn before_run(&mut self) {
        self.compiled.before_run();
    }

    /// Where its states come from.
    pub fn states(&self) -> &[State<C>] {
        &self.states
    }

    /// The updated cells in the order of their addresses, as indices into the states. Every run locks in this order.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The host functions that write the inputs after the function's own.
    pub fn host_inputs(&self) -> &[HostInput] {
        &self.host_inputs
    }

    /// The graph stands for the function as long as all of these hold.
    pub fn guards(&self) -> &Arc<Vec<Guard>> {
        &self.guards
    }

    /// True if a run of the form ends a step.
    pub fn marks_step(&self) -> bool {
        self.marks_step
    }

    /// For each output, whether a gradient would pass it to a tensor from outside; see
    /// [`FunctionTrace::needs_gradient`].
    pub fn needs_gradient(&self) -> &[bool] {
        &self.needs_gradient
    }

    /// The actions that follow every run; see [`FunctionTrace::after`].
    pub fn after(&self) -> &[AfterRun] {
        &self.after
    }

    /// The number of the call that traced the form; see [`FunctionTrace::number`].
    pub fn number(&self) -> usize {
        self.number
    }

    /// Errors with an earlier failure that holds this run back.
    pub fn check(&self, channel: &Channel) -> Result<()> {
        match self.marks_step {
            true => channel.check_step(),
            false => channel.check(),
        }
    }

    /// Ends the step, if the form marks one. It does so after a failure too: otherwise the failure would hold back the
    /// updates of the next run. Errors: that failure; those of [`Channel::step_mark`].
    pub fn end(&self, channel: &Channel, failed: Option<Error>) -> Result<()> {
        match (failed, self.marks_step) {
            (Some(e), true) => channel.give_up_step().and(Err(e)),
            (Some(e), false) => Err(e),
            (None, true) => channel.step_mark(),
            (None, false) => Ok(()),
        }
    }

    /// The inputs of a run: the caller's, the values drawn on the host, and the values from earlier segments. Errors:
    /// those of the host inputs; Closed.
    pub fn inputs(&self, channel: &Channel, x: &[&Handle], run: &mut SegmentRun) -> Result<SmallVec<[Handle; 4]>> {
        let mut handles: SmallVec<[Handle; 4]> = x.iter().map(|h| (*h).clone()).collect();
        let g = self.executable().graph();
        for (i, (f, v)) in self.host_inputs.iter().zip(&g.inputs()[x.len()..]).enumerate() {
            handles.push(match run.drawn(i) {
                Some(h) => h,
                None => run.keep(channel.put(&trace::host_value(g.fact(*v), f)?)?, self.segment.is_some()),
            });
        }
        if let Some(segment) = &self.segment {
            segment.take(run, &mut handles)?;
        }
        Ok(handles)
    }

    /// Checks these inputs and states before a state leaves its cell. Errors: everything that can be refused by then.
    pub fn admit(&self, handles: &[Handle], run: &mut SegmentRun) -> Result<()> {
        if self.segment.is_some() {
            run.same_versions(&self.states, &handles[handles.len() - self.states.len()..])?;
        }
        let facts: SmallVec<[&Fact; 4]> = handles.iter().map(Handle::fact).collect();
        self.executable().infer(&facts)?;
        Ok(())
    }

    /// Queues a run on inputs and states. A failed update gives the old versions. Errors: those of
    /// [`Channel::update_at`] that leave no old versions.
    pub fn launch(&self, channel: &Channel, mut handles: SmallVec<[Handle; 4]>, site: CallSite) -> Result<Launched> {
        handles.extend(self.compiled.resident_constants(channel)?);
        match channel.update_at(self.compiled.op().clone(), handles, self.replaces.clone(), site) {
            Ok(y) => {
                let mut y = y.into_iter();
                let outputs = y.by_ref().take(self.outputs).collect();
                Ok(Launched { outputs, versions: y.collect(), failed: None })
            }
            Err(NotUpdated { error, old }) => {
                // A failed run gives no outputs. The old versions take the place of the next ones.
                let versions: SmallVec<[Handle; 2]> = old.into_iter().flatten().collect();
                if versions.len() != self.order.len() {
                    return Err(error);
                }
                Ok(Launched { outputs: Vec::new(), versions, failed: Some(error) })
            }
        }
    }

    /// Errors if a session cannot run the form: a session runs no earlier segments, and runs the form any number of
    /// times.
    pub fn check_session(&self) -> Result<()> {
        if !self.after.is_empty() {
            let text = "a session would add the gradient that is there already to every run's; step or drop it first";
            return Err(Error::new(ErrorKind::Value, text));
        }
        self.segment.as_ref().map_or(Ok(()), |s| Err(s.in_session()))
    }

    /// The sizes that the segments before it found.
    fn sizes(&self) -> &[usize] {
        self.segment.as_ref().map_or(&[], |s| s.sizes())
    }

    /// The dependencies of the shape of output `j`, including sizes that only a run knows; see
    /// [`Graph::shape_depends`](remat_graph::ir::Graph::shape_depends). Errors (Value): no such output.
    pub fn shape_depends(&self, j: usize) -> Result<ShapeDepends> {
        let trace = self.segment.as_ref().map(Segment::trace);
        let g = trace.map_or(&**self.executable().graph(), |t| &t.graph);
        let output = g.outputs().get(j).filter(|_| j < self.outputs);
        let none = || Error::new(ErrorKind::Value, format!("output {j} of a function that has {}", self.outputs));
        let cuts = trace.iter().flat_map(|t| &t.cuts);
        let sizes: Vec<(ValueId, GraphPrefix)> = cuts.map(|c| (c.value, c.extent)).collect();
        Ok(g.shape_depends_with(output.ok_or_else(none)?.value, &sizes))
    }
}

/// The forms of a function on a device.
pub struct Forms<C> {
    pub(super) device: Device,
    pub(super) options: CompileOptions,
    /// The form used last stands last.
    pub(super) entries: Vec<Form<C>>,
    symbolic: SymbolicForms<C>,
    traces: usize,
    plans: usize,
    observer: Option<Arc<dyn Observer>>,
    /// The device's budget when the present call began. Another thread may change it meanwhile.
    budget: Option<usize>,
    /// A segment has failed. The function ends the failed step before its next update.
    pub(super) owes_mark: bool,
}

impl<C: VersionedCell> Forms<C> {
    /// No form yet.
    pub fn new(device: &Device, options: CompileOptions) -> Self {
        Forms {
            device: device.clone(),
            options,
            entries: Vec::new(),
            symbolic: SymbolicForms::default(),
            traces: 0,
            plans: 0,
            observer: None,
            budget: None,
            owes_mark: false,
        }
    }

    /// The forms that are kept. The one used last stands last.
    pub fn all(&self) -> &[Form<C>] {
        &self.entries
    }

    /// The form used last. Errors (Internal): there is none.
    pub fn last(&self) -> Result<&Form<C>> {
        self.entries.last().ok_or_else(nothing)
    }

    /// The form used last. Errors (Internal): there is none.
    pub fn last_mut(&mut self) -> Result<&mut Form<C>> {
        self.entries.last_mut().ok_or_else(nothing)
    }

    /// How often the function was traced.
    pub fn traces(&self) -> usize {
        self.traces
    }

    /// How many graphs were planned for a run, including those that are no longer kept.
    pub fn plans(&self) -> usize {
        self.plans
    }

    /// Shows every value that runs compute to `observer`, until the next call of this function. `None` ends it.
    pub fn observe(&mut self, observer: Option<Arc<dyn Observer>>) {
        self.entries.iter().for_each(|e| e.compiled.observe(observer.clone()));
        self.observer = observer;
    }

    /// The form for these inputs and sizes.
    pub(super) fn find(&self, x: &[&Handle], sizes: &[usize]) -> Option<usize> {
        let same = |e: &Form<C>| e.facts.iter().zip(x).all(|(f, t)| f.same_type(t.fact()));
        let is_of_budget = |e: &Form<C>| self.options.memory_budget.is_some() || e.planned_for == self.budget;
        let fits = |e: &Form<C>| e.facts.len() == x.len() && e.sizes() == sizes && same(e) && is_of_budget(e);
        self.entries.iter().rposition(|e| fits(e) && e.guards.iter().all(|g| g()))
    }

    /// A call begins: it finds and makes forms for the budget that the device has now.
    pub(super) fn begin_call(&mut self) {
        self.budget = self.device.budget_bytes();
    }

    /// Moves the form for these inputs to the end, for a session, and makes it if there is none. Errors: those of the
    /// trace, the passes and the plan.
    pub fn ready(&mut self, f: &mut impl Function<Cell = C>, x: &[&Handle]) -> Result<()> {
        self.begin_call();
        self.ready_for(f, x, &[])
    }

    /// As [`Forms::ready`], for sizes that earlier segments found.
    pub(super) fn ready_for(&mut self, f: &mut impl Function<Cell = C>, x: &[&Handle], sizes: &[usize]) -> Result<()> {
        match self.find(x, sizes) {
            Some(at) if at + 1 == self.entries.len() => {}
            Some(at) => {
                let e = self.entries.remove(at);
                self.entries.push(e);
            }
            None => {
                let facts = facts(x);
                let (traces, options) = (&mut self.traces, &self.options);
                let mut trace = |facts: &[Fact], sizes: &[usize]| {
                    *traces += 1;
                    f.trace(facts, sizes)
                };
                let traced = match &options.symbols {
                    Some(symbols) => self.symbolic.instance(symbols, options.forms, &facts, sizes, &mut trace)?,
                    None => trace(&facts, sizes)?,
                };
                let e = match traced.cuts.is_empty() && sizes.is_empty() {
                    true => self.form(x, traced, Beside::default())?,
                    false => self.segment(x, sizes, traced)?,
                };
                self.entries.push(e);
            }
        }
        Ok(())
    }

    /// Drops the oldest forms beyond the number that is kept.
    pub fn trim(&mut self) {
        let beyond = self.entries.len().saturating_sub(self.options.forms.max(1));
        self.entries.drain(..beyond);
    }

    /// Makes a form of a trace.
    pub(super) fn form(&mut self, x: &[&Handle], traced: FunctionTrace<C>, beside: Beside) -> Result<Form<C>> {
        self.plans += 1;
        let FunctionTrace {
            mut graph,
            mut states,
            host_inputs,
            guards: shared,
            marks_step,
            needs_gradient,
            after,
            number,
            ..
        } = traced;
        let mut guards: Vec<Guard> = vec![Box::new(move || shared.iter().all(|g| g()))];
        let outputs = graph.outputs().len();
        if self.options.freeze {
            (graph, states) = frozen(&graph, states, &mut guards)?;
        }
        let own: Vec<Handle> = states.iter().filter_map(|s| s.version().ok()).collect();
        let cx = CompileCx { beside, ..CompileCx::on(&self.device, &self.options, x, &own)? };
        let compiled = CompiledGraph::new(graph, &cx, &self.options)?;
        compiled.observe(self.observer.clone());
        let address = |i: &usize| match &states[*i] {
            State::Updated(cell) => Some(cell.address()),
            _ => None,
        };
        let mut order: Vec<usize> = (0..states.len()).filter(|i| address(i).is_some()).collect();
        order.sort_by_key(address);
        Ok(Form {
            replaces: replaces(compiled.executable().updates(), outputs)?,
            facts: facts(x),
            planned_for: self.budget,
            compiled,
            states,
            order,
            host_inputs,
            guards: Arc::new(guards),
            marks_step,
            needs_gradient,
            after,
            number,
            outputs,
            segment: None,
        })
    }
}

/// The input that each output of a form replaces. A form without updates is an op like any other: an earlier failure
/// does not hold it back.
fn replaces(updates: &[(usize, usize)], outputs: usize) -> Result<SmallVec<[Option<u16>; 2]>> {
    let kept = if updates.is_empty() { 0 } else { outputs };
    let mut replaces: SmallVec<[Option<u16>; 2]> = SmallVec::from_elem(None, kept);
    for (i, _) in updates {
        let i = u16::try_from(*i);
        replaces.push(Some(i.map_err(|_| Error::new(ErrorKind::Arity, "more than 65,535 inputs and states"))?));
    }
    Ok(replaces)
}

/// The types of inputs.
pub(super) fn facts(x: &[&Handle]) -> Vec<Fact> {
    x.iter().map(|h| Fact::new(h.fact().dtype, h.fact().shape.clone())).collect()
}

pub(super) fn nothing() -> Error {
    Error::new(ErrorKind::Internal, "nothing was compiled")
}
