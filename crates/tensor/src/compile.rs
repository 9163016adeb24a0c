//! Compiled functions: traced once for each set of input types, then run as one op.

mod entry;
mod pieces;
mod session;
mod symbols;

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use remat_graph::ir::{Graph, Origin, Patch, ValueId};
use remat_graph::passes::{PassCx, PassOptions, optimize};
use remat_kernels::pool::Pool;
use remat_ops::OpRef;
use remat_runtime::tracing::{self, GraphBreak, Guard, HostInput, TraceResults, Traced};
use remat_runtime::{Device, Executable, ExecutableOptions, Handle, Kind, MemoryFigures, Observer, PlanTimes, padded};
use remat_types::{BudgetShortfall, CallSite, Error, ErrorKind, Fact, PinnedBytes, Result};

use crate::Tensor;
use crate::tape::lock;
use entry::{Entry, Replan, State, TIMED_RUNS};
pub use session::Session;
pub use symbols::Symbols;

/// A tensor that outlives a run and is replaced by updates: what a parameter is to a compiled function.
pub trait StateCell: Send + Sync {
    /// The present version.
    fn slot(&self) -> &Mutex<Option<Tensor>>;
    /// How its bytes count in reports.
    fn kind(&self) -> Kind;
}

/// A cell that the running trace has seen, and the version it had.
pub(crate) struct Seen {
    cell: Arc<dyn StateCell>,
    before: Tensor,
}

thread_local! {
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
}

/// Called by whoever reads or writes a cell, with the cell locked. While this thread traces, the version that the cell
/// has now becomes a state of the graph, and comes back into the cell when the trace ends.
///
/// The trace fails if the cell has an accumulated gradient then, which no run would see.
pub fn see_cell(cell: &Arc<dyn StateCell>, slot: &Option<Tensor>) {
    let Some(before) = slot.as_ref().filter(|t| !t.handle.is_traced()) else { return };
    SEEN.with_borrow_mut(|seen| {
        if seen.iter().any(|s| s.before.handle.id() == before.handle.id()) {
            return;
        }
        if before.grad().is_some_and(|g| !g.handle.is_traced()) {
            let text =
                "a parameter has an accumulated gradient when the compiled function begins; step or drop it first";
            tracing::fail(Error::new(ErrorKind::Value, text));
        }
        seen.push(Seen { cell: cell.clone(), before: before.clone() });
    });
}

/// Puts the cells back as they were, also when the traced function fails or panics.
pub(crate) struct Restores;

impl Restores {
    /// Puts back every cell: those of which a run makes a new version come with it.
    pub(crate) fn restore(&self) -> (Vec<Seen>, Vec<(Handle, Handle)>, bool) {
        let seen = SEEN.take();
        let mut updates = Vec::new();
        let mut left = false;
        for s in &seen {
            let mut slot = lock(s.cell.slot());
            if let Some(now) = slot.as_ref().filter(|t| t.handle.id() != s.before.handle.id()) {
                updates.push((s.before.handle.clone(), now.handle.clone()));
            }
            *slot = Some(s.before.clone());
            if s.before.grad().is_some_and(|g| g.handle.is_traced()) {
                left = true;
                drop(s.before.take_grad());
            }
        }
        (seen, updates, left)
    }
}

impl Drop for Restores {
    fn drop(&mut self) {
        self.restore();
    }
}

/// How a function is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// What passes may do to the graph.
    pub passes: PassOptions,
    /// Most bytes of a run: states, inputs, outputs and everything between them. What does not fit is computed again,
    /// in an order that the planner chooses when the function is compiled. Unless set, a device with a budget gives what
    /// it leaves beside all else that is on it then; another device gives no limit.
    pub memory_budget: Option<usize>,
    /// Takes parameters and buffers that the function only reads as constants, so that passes can compute with them: for
    /// inference. Their bytes count against the budget once more. When one of them is set, the function is compiled anew.
    pub freeze: bool,
    /// What a new shape costs. Unless set, a trace of the function at that shape. With symbols the function is traced at a
    /// few sizes when it is first called, and never for a size after that: the graph of a new size is filled in, inferred,
    /// put through the passes and planned. A function whose graph does not follow from the sizes, and a size out of
    /// bounds, are errors: nothing is traced in silence. Sizes that only a run knows have symbols of their own, or a trace
    /// each: see [`Symbols::and_sizes`].
    pub symbols: Option<Symbols>,
    /// Compiled forms that are kept, at least 1; the one used longest ago goes first. A function whose shapes follow from
    /// values ([`Tensor::as_size`]) takes one for each piece, and one for each size that comes.
    pub forms: usize,
}

impl Default for CompileOptions {
    fn default() -> Self {
        let passes = PassOptions::default();
        CompileOptions { passes, memory_budget: None, freeze: false, symbols: None, forms: 16 }
    }
}

impl CompileOptions {
    /// For inference: parameters are constants, and passes may change the last digits of results (level 3).
    pub fn inference() -> Self {
        CompileOptions { passes: PassOptions { level: 3, ..Default::default() }, freeze: true, ..Default::default() }
    }
}

/// What a trace found, and where its states come from.
#[derive(Clone)]
struct Trace {
    graph: Graph,
    states: Vec<State>,
    host_inputs: Vec<HostInput>,
    guards: Arc<Vec<Guard>>,
    marks_step: bool,
    /// For each output, whether a tensor from outside that requires a gradient leads to it.
    needs_gradient: Vec<bool>,
    /// Where it asked for sizes that only a run knows; at the last, the trace may have ended.
    cuts: Vec<GraphBreak>,
}

/// A function of tensors, compiled; see [`compile`].
pub struct Compiled<F> {
    device: Device,
    f: F,
    options: CompileOptions,
    /// The one used last stands last.
    entries: Vec<Entry>,
    /// Over symbols, if the options have some; the one used last stands last.
    forms: Vec<symbols::Form>,
    traces: usize,
    plans: usize,
    observer: Option<Arc<dyn Observer>>,
    /// A piece has failed: before its next update the function ends the step that failed with it.
    owes_mark: bool,
}

/// Compiles a function on tensors of `device`.
///
/// The first [`Compiled::call`] with inputs of some dtypes and shapes runs `f` to see what it computes, and makes a graph
/// of that; this and later calls run the graph: nothing is inferred, recorded or allocated op by op. Results are bit for
/// bit those of `f` itself. Parameters and optimiser state are read and updated by every run, random keys and learning
/// rates are drawn anew; when a module changes between training and evaluation, or a parameter is frozen, the function
/// is compiled once more. Anything else that `f` does besides computing on tensors happens only while it is compiled.
///
/// ```
/// use remat_runtime::{Device, DeviceOptions};
/// use remat_tensor::{Tensor, compile};
/// # fn main() -> remat_types::Result<()> {
/// let device = Device::cpu(DeviceOptions::default())?;
/// let mut f = compile(&device, |x: &[Tensor]| Ok(vec![(&x[0] + &x[1])?.relu()?]));
/// let x = Tensor::new(&device, &[1f32, -2.0], [2])?;
/// let y = f.call(&[&x, &x])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [2.0, 0.0]);
/// # Ok(())
/// # }
/// ```
pub fn compile<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>>(device: &Device, f: F) -> Compiled<F> {
    compile_with(device, CompileOptions::default(), f)
}

/// [`compile`] with options.
pub fn compile_with<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>>(
    device: &Device,
    options: CompileOptions,
    f: F,
) -> Compiled<F> {
    let (device, entries, forms) = (device.clone(), Vec::new(), Vec::new());
    Compiled { device, f, options, entries, forms, traces: 0, plans: 0, observer: None, owes_mark: false }
}

impl<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>>> Compiled<F> {
    /// Runs the function. No gradient passes it: a backward pass that comes by a result which would have one is an error
    /// (NotDifferentiable). Errors: those of `f` when it is compiled; NoValue if `f` reads a value; Value for what happens
    /// only while it is compiled; Device for tensors of another device. An op that fails while the graph runs is
    /// reported as in eager programs, and every state keeps its old version then.
    #[track_caller]
    pub fn call(&mut self, x: &[&Tensor]) -> Result<Vec<Tensor>> {
        let site = CallSite::here();
        if let Some(t) = x.iter().find(|t| t.device() != self.device) {
            let text = format!("{t:?} is on another device than the compiled function");
            return Err(Error::new(ErrorKind::Device, text).with_call_site(site));
        }
        if tracing::is_tracing() {
            // Within another compiled function it is part of that one.
            let x: Vec<Tensor> = x.iter().map(|t| (*t).clone()).collect();
            return (self.f)(&x);
        }
        let mut run = pieces::Run::default();
        let reached = self.reach(x, &mut run, site).map_err(|e| e.with_call_site(site));
        let results = reached.and_then(|()| {
            let entry = self.entries.last_mut().ok_or_else(nothing)?;
            entry.replan();
            let y = entry.run(&self.device.channel(), x, &mut run, site)?;
            Ok(entry.with_edges(x, y, site))
        });
        self.trim();
        results
    }

    /// The executable for inputs of these types; compiles it if need be. Of a function whose shapes follow from values it is
    /// the last piece for these values: those before it run. Errors: as [`Compiled::call`].
    #[track_caller]
    pub fn executable(&mut self, x: &[&Tensor]) -> Result<Arc<Executable>> {
        let site = CallSite::here();
        let reached = self.reach(x, &mut pieces::Run::default(), site);
        let executable = reached.and_then(|()| self.entries.last().map(|e| e.executable.clone()).ok_or_else(nothing));
        self.trim();
        executable.map_err(|e| e.with_call_site(site))
    }

    /// The graph for inputs of these types; compiles it if need be. Errors: as [`Compiled::executable`].
    #[track_caller]
    pub fn graph(&mut self, x: &[&Tensor]) -> Result<Arc<Graph>> {
        Ok(self.executable(x)?.graph().clone())
    }

    /// What the forms compiled so far take, the one used last at the end.
    pub fn figures(&self) -> Vec<MemoryFigures> {
        self.entries.iter().map(|e| e.executable.figures()).collect()
    }

    /// True once every compiled form has its last plan. Under a budget that makes calls run again, a form begins with a
    /// plan for estimated times and goes over, within some runs, to one for the times it measured; results are the same.
    pub fn is_settled(&self) -> bool {
        self.entries.iter().all(|e| matches!(e.replan, Replan::Done))
    }

    /// Shows every value that runs compute to `observer`, until the next call of this; `None` ends it. What it refuses
    /// fails the run. Views take no call and are not shown.
    pub fn observe(&mut self, observer: Option<Arc<dyn Observer>>) {
        self.entries.iter().for_each(|e| e.executable.observe(observer.clone()));
        self.observer = observer;
    }

    /// What the planner promised for the form used last, in estimated times until the calls have been timed and in measured
    /// ones after that; `None` if it runs without a limit that binds.
    pub fn plan_times(&self) -> Option<PlanTimes> {
        self.entries.last().and_then(Entry::plan_times)
    }

    /// Nanoseconds that the calls of the last run took.
    pub fn ops_ns(&self) -> u64 {
        self.entries.last().map_or(0, |e| e.executable.node_times().iter().map(|t| t.1).sum())
    }

    /// How often the function was traced: once a shape and a size that a run found, or a few times in all where
    /// [`symbols`](CompileOptions::symbols) are given.
    pub fn traces(&self) -> usize {
        self.traces
    }

    /// How many graphs were planned for a run, those that are not kept any more included.
    pub fn plans(&self) -> usize {
        self.plans
    }

    /// The entry for these inputs and sizes.
    fn find(&self, x: &[&Tensor], sizes: &[usize]) -> Option<usize> {
        let same = |e: &Entry| e.facts.iter().zip(x).all(|(f, t)| f.same_type(t.handle.fact()));
        let fits = |e: &Entry| e.facts.len() == x.len() && e.sizes() == sizes && same(e);
        self.entries.iter().rposition(|e| fits(e) && e.guards.iter().all(|g| g()))
    }

    /// Puts the entry for these inputs and sizes last.
    fn ready(&mut self, x: &[&Tensor], sizes: &[usize]) -> Result<()> {
        match self.find(x, sizes) {
            Some(at) if at + 1 == self.entries.len() => {}
            Some(at) => {
                let e = self.entries.remove(at);
                self.entries.push(e);
            }
            None => {
                let facts: Vec<Fact> = x.iter().map(|t| Fact::new(t.dtype(), t.shape().clone())).collect();
                let traced = match self.options.symbols.clone() {
                    Some(symbols) => self.instance(&symbols, &facts, sizes)?,
                    None => self.trace(&facts, sizes)?,
                };
                let e = match traced.cuts.is_empty() && sizes.is_empty() {
                    true => self.entry(facts, traced, pieces::Beside::default())?,
                    false => self.piece(x, facts, sizes, traced)?,
                };
                self.entries.push(e);
            }
        }
        Ok(())
    }

    /// Lets go what is not kept.
    fn trim(&mut self) {
        let beyond = self.entries.len().saturating_sub(self.options.forms.max(1));
        self.entries.drain(..beyond);
    }

    /// The function at these sizes, as far as they are known.
    fn trace(&mut self, facts: &[Fact], sizes: &[usize]) -> Result<Trace> {
        self.traces += 1;
        let restores = Restores;
        let mut seen = Vec::new();
        let mut updated: Vec<Handle> = Vec::new();
        let mut needs_gradient = Vec::new();
        let f = &mut self.f;
        let traced = tracing::trace(&self.device, facts, sizes, |x| {
            let x: Vec<Tensor> = x.iter().map(|h| Tensor::from_handle(h.clone())).collect();
            let outputs = f(&x);
            let (cells, updates, gradient_left) = restores.restore();
            seen = cells;
            // of a trace that ends at a size the cells are wanted too
            let outputs = outputs?;
            needs_gradient = outputs.iter().map(|t| t.edge.as_ref().is_some_and(|e| !e.node.is_freed())).collect();
            let outputs: Vec<Handle> = outputs.into_iter().map(|t| t.handle).collect();
            if gradient_left {
                let text = "a parameter has a gradient at the end of the compiled function, which no run would add to; \
                            end it with the optimiser's step, or return the gradient (`take_grad`)";
                return Err(Error::new(ErrorKind::Value, text));
            }
            updated = updates.iter().map(|(old, _)| old.clone()).collect();
            Ok(TraceResults { outputs, updates })
        })?;
        drop(restores);
        let Traced { graph, captured, host_inputs, guards, marks_step, cuts } = traced;
        let state = |h: Handle| {
            let cell = seen.iter().find(|s| s.before.handle.id() == h.id());
            match cell {
                Some(s) if updated.iter().any(|u| u.id() == h.id()) => State::Updated(s.cell.clone()),
                Some(s) => State::Read(s.cell.clone()),
                None => State::Fixed(h),
            }
        };
        let states = captured.into_iter().map(state).collect();
        Ok(Trace { graph, states, host_inputs, guards: Arc::new(guards), marks_step, needs_gradient, cuts })
    }

    /// The budget of a run of `g`, and what of it is not its workspace.
    fn budget(&self, g: &Graph, beside: pieces::Beside) -> Result<Option<(usize, usize)>> {
        let of = |v: ValueId| padded(g.fact(v).bytes());
        let (own, taken) = g.inputs().split_at(g.inputs().len() - beside.takes);
        let given: usize = own.iter().copied().chain(g.states().iter().map(|s| s.value)).map(of).sum();
        let outputs: usize = g.outputs().iter().map(|o| of(o.value)).sum();
        let outputs = outputs + beside.bytes + taken.iter().copied().map(of).sum::<usize>();
        let constants = g.value_ids().filter(|v| matches!(g.value(*v).origin, Origin::Constant(_))).map(of);
        let outputs = outputs + if self.options.freeze { constants.sum() } else { 0 };
        if let Some(budget) = self.options.memory_budget {
            return Ok(Some((budget, given + outputs)));
        }
        let Some(budget) = self.device.options().budget_bytes else { return Ok(None) };
        // States are on the device already; inputs too, but those that can be made again count as room.
        let channel = self.device.channel();
        channel.sync()?;
        Ok(Some((budget, channel.stats()?.fixed_bytes.max(given) + outputs)))
    }

    fn entry(&mut self, facts: Vec<Fact>, traced: Trace, beside: pieces::Beside) -> Result<Entry> {
        self.plans += 1;
        let Trace { mut graph, mut states, host_inputs, guards: shared, marks_step, needs_gradient, .. } = traced;
        let mut guards: Vec<Guard> = vec![Box::new(move || shared.iter().all(|g| g()))];
        let outputs = graph.outputs().len();
        let threads = self.device.options().threads;
        if self.options.freeze {
            (graph, states) = frozen(&graph, states, &mut guards)?;
        }
        // what it was made of ends here: the executable moves constants that nobody else holds
        graph = optimize(graph, &PassCx { options: &self.options.passes, pool: &Pool::new(threads) })?.0;
        let budget = self.budget(&graph, beside)?;
        let workspace_limit = budget.map(|(bytes, beside)| bytes.saturating_sub(beside));
        let spill = self.device.options().spill.clone();
        let options = ExecutableOptions { workspace_limit, spill, ..Default::default() };
        let executable = Executable::with(Arc::new(graph), threads, &options);
        let executable = Arc::new(executable.map_err(|e| of_the_whole_run(e, budget))?);
        executable.observe(self.observer.clone());
        let f = executable.figures();
        let replan = match f.recomputed_calls + f.spilled_bytes {
            0 => Replan::Done,
            _ => Replan::After { runs: TIMED_RUNS, options },
        };
        let op = OpRef::from_shared(executable.clone());
        let address = |i: &usize| match &states[*i] {
            State::Updated(cell) => Some(Arc::as_ptr(cell).cast::<u8>() as usize),
            _ => None,
        };
        let mut order: Vec<usize> = (0..states.len()).filter(|i| address(i).is_some()).collect();
        order.sort_by_key(address);
        let guards = Arc::new(guards);
        let (kept, part) = (None, None);
        let e = Entry {
            facts,
            op,
            executable,
            states,
            order,
            host_inputs,
            guards,
            marks_step,
            needs_gradient,
            outputs,
            replan,
            kept,
            part,
        };
        Ok(e)
    }
}

fn nothing() -> Error {
    Error::new(ErrorKind::Internal, "nothing was compiled")
}

/// The graph with the states that it only reads as constants, and the states that are left. The guards are those of the
/// versions that were taken.
fn frozen(g: &Graph, states: Vec<State>, guards: &mut Vec<Guard>) -> Result<(Graph, Vec<State>)> {
    let mut patch = Patch::new();
    let mut left = Vec::new();
    for (i, s) in states.into_iter().enumerate() {
        let handle = match &s {
            State::Updated(_) => None,
            State::Fixed(h) => Some(h.clone()),
            State::Read(cell) => lock(cell.slot()).as_ref().map(|t| t.handle.clone()),
        };
        let Some(handle) = handle else {
            left.push(s);
            continue;
        };
        patch.freeze(g, i, handle.channel().value(&handle)?);
        if let State::Read(cell) = s {
            let taken = handle.id();
            guards.push(Box::new(move || lock(cell.slot()).as_ref().is_some_and(|t| t.handle.id() == taken)));
        }
    }
    Ok((g.patched(&patch)?, left))
}

/// The error of a workspace that its limit cannot hold, with the figures of the run's budget.
fn of_the_whole_run(e: Error, budget: Option<(usize, usize)>) -> Error {
    let (Some((budget_bytes, beside)), Some(s)) = (budget, e.shortfall()) else { return e };
    let mut s = s.clone();
    s.pinned.push(PinnedBytes { by: "states, inputs, outputs and what else is on the device".into(), bytes: beside });
    s.pinned.sort_by_key(|p| std::cmp::Reverse(p.bytes));
    s.least_bytes += beside;
    s.smallest_feasible_bytes += beside;
    Error::budget(BudgetShortfall { budget_bytes, ..s })
}
