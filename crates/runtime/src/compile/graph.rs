//! A compiled graph: its executable under the present plan, and the search for a better plan.

use std::sync::{Arc, Mutex, PoisonError};

use remat_graph::ir::Graph;
use remat_graph::passes::{Pass, PassCx, Target, optimize};
use remat_kernels::pool::Pool;
use remat_ops::{Op, OpRef};
use remat_types::{Fact, Result};

use super::shared::SharedConstants;
use super::stored::{LEAST_BYTES, with_stored_constants};
use super::{Beside, CompileOptions, RunBudget};
use crate::eager::{Channel, Device, Handle};
use crate::executable::{Executable, ExecutableOptions, HOST, MemoryFigures, Observer, PlanTimes};
use crate::planner::{Planner, Progress, Rule};
use remat_device::spill::SpillTo;
use remat_device::{HostKernels, KernelRegistry, KernelSet};

/// The second plan is made once: after one run that warms caches, and further runs that are timed. The planner takes
/// its own time and no share of the runs': a caller that waits for the last plan ([`CompiledGraph::is_settled`]) must
/// not wait until long runs add up.
static SECOND_PLAN: Rule = Rule { first: 4, repeats: false, share: None, prefers_newer: false, thread: "remat-replan" };

/// The device on which a compiled graph will run, and its limits.
#[derive(Clone, Debug)]
pub struct CompileCx {
    /// The kernels of that device.
    pub kernels: Arc<dyn KernelSet>,
    /// The threads for values that passes compute beforehand, on the host.
    pub threads: usize,
    /// The folder to which values that do not fit the budget may be spilled.
    pub spill: Option<SpillTo>,
    /// The budget of a run; `None` for no limit.
    pub budget: Option<RunBudget>,
    /// Bytes that count against the budget and are not the graph's.
    pub beside: Beside,
    /// The most seconds for a plan under the budget; see [`ExecutableOptions::plan_seconds`].
    pub plan_seconds: Option<f64>,
    /// The constants of other graphs of the same model. This graph shares their memory.
    pub shared: Option<Arc<SharedConstants>>,
}

impl CompileCx {
    /// For runs on `device`, of a graph whose first inputs and states are, by now, these. Errors: those of
    /// [`RunBudget::on`].
    pub fn on(device: &Device, options: &CompileOptions, x: &[&Handle], states: &[Handle]) -> Result<CompileCx> {
        let (threads, spill) = (device.options().threads, device.options().spill.clone());
        let budget = RunBudget::on(device, options, x, states)?;
        let kernels = device.kernels().clone();
        Ok(CompileCx { kernels, threads, spill, budget, beside: Beside::default(), plan_seconds: None, shared: None })
    }

    /// For sessions, which need no device: with `threads` threads, and the budget of the options.
    pub fn alone(threads: usize, options: &CompileOptions) -> CompileCx {
        let budget = options.memory_budget.map(|bytes| RunBudget { bytes, held: None });
        let kernels = Arc::new(HostKernels::new(HOST, threads));
        CompileCx { kernels, threads, spill: None, budget, beside: Beside::default(), plan_seconds: None, shared: None }
    }

    /// Adds the program's own kernels for the host.
    #[must_use]
    pub fn with_kernels(self, own: KernelRegistry) -> CompileCx {
        CompileCx { kernels: Arc::new(HostKernels::new(HOST, self.threads).with(own)), ..self }
    }
}

/// The kernels of a device, as the passes query them.
struct KernelTarget<'k>(&'k dyn KernelSet);

impl Target for KernelTarget<'_> {
    fn supports(&self, op: &dyn Op, x: &[&Fact]) -> bool {
        self.0.is_complete() || self.0.supports(op, x)
    }

    fn passes(&self) -> &'static [Pass] {
        self.0.passes()
    }
}

/// A second plan, and the node times for which it was made.
type Second = Result<(Executable, Vec<Option<u64>>)>;

/// A graph after passes, with a plan. A plan under a budget is made twice. The first uses estimated times. The second
/// uses measured times: a thread makes it beside the runs once the calls have been timed.
///
/// ```
/// use std::sync::{Arc, Mutex, PoisonError};
///
/// use remat_graph::ir::Builder;
/// use remat_ops::pointwise::{Unary, UnaryFn};
/// use remat_runtime::Session;
/// use remat_runtime::compile::{CompileCx, CompileOptions, CompiledGraph};
/// use remat_types::{DType, Fact};
/// # fn main() -> remat_types::Result<()> {
/// let b = Builder::new();
/// let x = b.input(Fact::new(DType::F32, [2]), Some("x"));
/// let y = b.node(Unary { f: UnaryFn::Relu }.into(), &[x], None)?;
/// b.output(y[0], "y");
/// let options = CompileOptions::default();
/// let mut compiled = CompiledGraph::new(b.finish()?, &CompileCx::alone(1, &options), &options)?;
/// let mut session = Session::new(compiled.executable().clone())?;
/// session.input_as_mut::<f32>(0)?.copy_from_slice(&[1.0, -2.0]);
/// for _ in 0..3 {
///     if compiled.before_run() {
///         session.replan(compiled.executable().clone())?;
///     }
///     session.run()?;
/// }
/// assert_eq!(session.output(0)?.as_slice::<f32>()?, [1.0, 0.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CompiledGraph {
    executable: Arc<Executable>,
    /// The executable as an op of a device.
    op: OpRef,
    /// Keeps the graph's constants on the device on which it last ran.
    constants: Mutex<Option<Handle>>,
    options: ExecutableOptions,
    planner: Planner<Second>,
    /// The times of the first plan, if a second plan was made and the first is better.
    kept: Option<PlanTimes>,
}

impl CompiledGraph {
    /// Compiles a graph. Of the options it uses the passes, and whether constants count against the budget. States must
    /// have been frozen before ([`freeze`](super::freeze)).
    ///
    /// A budget may be too small for the constants beside a run. If there is a folder to spill to, the largest
    /// constants go to a file there, as few as possible. Each run reads them when it needs them.
    ///
    /// Errors: those of passes and of [`Executable::for_kernels`]; Budget, with the figures of the whole run, if no
    /// order of calls keeps to it; Io for constants that cannot be written.
    pub fn new(graph: Graph, cx: &CompileCx, options: &CompileOptions) -> Result<CompiledGraph> {
        // the graph before the passes is dropped here: the executable moves only constants that nobody else holds
        let (target, pool) = (KernelTarget(&*cx.kernels), Pool::new(cx.threads));
        let mut graph = optimize(graph, &PassCx { options: &options.passes, target: &target, pool: &pool })?.0;
        if let Some(shared) = &cx.shared {
            shared.share(&mut graph)?;
        }
        let with_constants = options.freeze || cx.kernels.holds_constants();
        let (executable, options) = match (&cx.spill, cx.budget) {
            (Some(to), Some(_)) if with_constants => fitted(graph, cx, to)?,
            _ => build(Arc::new(graph), cx, with_constants)?,
        };
        let executable = Arc::new(executable);
        if let Some(shared) = &cx.shared {
            shared.note(executable.graph());
        }
        let mut planner = Planner::new(&SECOND_PLAN);
        if !is_changed_by_times(&executable) {
            planner.stop();
        }
        let op = OpRef::from_shared(executable.clone());
        Ok(CompiledGraph { executable, op, constants: Mutex::default(), options, planner, kept: None })
    }

    /// The executable under the present plan.
    pub fn executable(&self) -> &Arc<Executable> {
        &self.executable
    }

    /// The memory that the last run took. It is less than that of the present plan if the device held so much else that
    /// the plan had no room: the run then followed a plan for the room that there was.
    pub fn figures(&self) -> MemoryFigures {
        self.executable.run_in_its_place().map_or(self.executable.figures(), |e| e.figures())
    }

    /// The same executable, as an op of a device.
    pub fn op(&self) -> &OpRef {
        &self.op
    }

    /// The graph's constants on the device of `channel`: the last input of each run. They stay there until another plan
    /// or device takes their place. `None` if kernels read the host's memory. Errors: those of [`Channel::put`].
    pub(crate) fn resident_constants(&self, channel: &Channel) -> Result<Option<Handle>> {
        let now = channel.resident_constants(&self.executable)?;
        if now.is_some() {
            self.constants.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&now);
        }
        Ok(now)
    }

    /// True once it has its last plan.
    pub fn is_settled(&self) -> bool {
        self.planner.is_done()
    }

    /// Call this before each run. It begins the second plan once the calls have been timed, and adopts that plan if it
    /// is better. True if another executable runs from now on. The plan changes times and never a bit of a result.
    pub fn before_run(&mut self) -> bool {
        if self.planner.is_done() {
            return false;
        }
        let is_new = match self.planner.poll() {
            Progress::Made(Ok((new, given))) => self.take_better(new, &given),
            _ => false,
        };
        // a caller may queue runs faster than they end: none may have been timed yet
        if self.planner.is_due() && self.executable.is_timed() {
            self.plan_again();
        }
        self.planner.ran(0);
        is_new
    }

    fn plan_again(&mut self) {
        let (graph, kernels) = (self.executable.graph().clone(), self.executable.kernels().clone());
        let (node_ns, spill) = (self.executable.fastest_times(), self.executable.spills_to());
        let options = ExecutableOptions {
            spill: spill.or(self.options.spill.clone()),
            node_ns: node_ns.clone(),
            ..self.options.clone()
        };
        self.planner.begin(move |limit| {
            let plan_seconds = limit.map(|d| d.as_secs_f64()).or(options.plan_seconds);
            let options = ExecutableOptions { plan_seconds, ..options };
            Executable::for_kernels(graph, &kernels, &options).map(|e| (e, node_ns))
        });
    }

    /// Adopts a plan that was made for the times `given`, if it is better by the fastest times of all runs.
    fn take_better(&mut self, new: Executable, given: &[Option<u64>]) -> bool {
        let times = self.executable.fastest_times();
        let is_better = SECOND_PLAN.replaces(self.executable.predicted_ns(&times), new.predicted_ns(&times));
        if is_better {
            new.observe(self.executable.observer());
            self.executable = Arc::new(new);
            self.op = OpRef::from_shared(self.executable.clone());
        } else {
            let planned_ns = self.executable.predicted_ns(given);
            self.kept = new.plan_times().map(|p| PlanTimes { planned_ns, ..p });
        }
        is_better
    }

    /// The times that the planner promised: estimated times until the calls have been timed, and measured times after
    /// that. They are those of the plan of the last run, as [`CompiledGraph::figures`]. `None` if no limit binds it.
    pub fn plan_times(&self) -> Option<PlanTimes> {
        if let Some(other) = self.executable.run_in_its_place() {
            return other.plan_times();
        }
        let first = self.executable.plan_times()?;
        if is_changed_by_times(&self.executable) || !self.executable.is_timed() {
            return Some(self.kept.unwrap_or(first));
        }
        // the plan runs every call once whatever the times, so another plan could save nothing
        let ns = self.executable.predicted_ns(&self.executable.fastest_times());
        Some(PlanTimes { planned_ns: ns, base_ns: ns, bound_ns: ns, stall_ns: 0 })
    }

    /// Shows every value that runs compute to `observer`; `None` ends it.
    pub fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.executable.observe(observer);
    }
}

/// Builds the executable within the part of the budget that the rest of the run leaves. Errors: those of
/// [`CompiledGraph::new`].
fn build(graph: Arc<Graph>, cx: &CompileCx, with_constants: bool) -> Result<(Executable, ExecutableOptions)> {
    let budget = cx.budget.map(|b| (b, b.beside_workspace(&graph, cx.beside, with_constants, cx.kernels.alignment())));
    let workspace_limit = budget.map(|(b, beside)| b.bytes.saturating_sub(beside));
    let (spill, plan_seconds) = (cx.spill.clone(), cx.plan_seconds);
    let options = ExecutableOptions { workspace_limit, plan_seconds, spill, ..Default::default() };
    let executable = Executable::for_kernels(graph, &cx.kernels, &options).map_err(|e| match budget {
        Some((b, beside)) => b.of_the_whole_run(e, beside),
        None => e,
    })?;
    match budget {
        // a run may need no workspace at all
        Some((b, beside)) if beside > b.bytes => Err(b.without_workspace(beside)),
        _ => Ok((executable, options)),
    }
}

/// As [`build`], for a graph whose constants count. Moves as few of them to a file as the budget requires.
fn fitted(graph: Graph, cx: &CompileCx, to: &SpillTo) -> Result<(Executable, ExecutableOptions)> {
    let graph = Arc::new(graph);
    let mut refused = match build(graph.clone(), cx, true) {
        Ok(fits) => return settled(fits, graph, cx),
        Err(e) => e,
    };
    let all =
        graph.value_ids().map(|v| cx.kernels.alignment().pad(graph.fact(v).bytes())).fold(0, usize::saturating_add);
    let mut bytes = 0;
    while bytes < all {
        // begins with the missing bytes and then asks for more: constants in use at the same time lie in the workspace
        // together
        let Some(s) = refused.shortfall() else { break };
        let missing = s.smallest_feasible_bytes.saturating_sub(s.budget_bytes);
        bytes = bytes.saturating_add(missing.max(bytes / 8).max(LEAST_BYTES));
        let Some(stored) = with_stored_constants(&graph, to, bytes)?.map(Arc::new) else { break };
        match build(stored.clone(), cx, true) {
            Ok(fits) => {
                drop(graph);
                return settled(fits, stored, cx);
            }
            Err(e) => refused = e,
        }
    }
    Err(refused)
}

/// Builds the same executable again when nothing else holds the graph. Constants that others hold would not be moved.
fn settled(
    fits: (Executable, ExecutableOptions),
    graph: Arc<Graph>,
    cx: &CompileCx,
) -> Result<(Executable, ExecutableOptions)> {
    drop(fits);
    build(graph, cx, true)
}

/// True if the plan recomputes or spills something: with other times the planner may choose another plan.
fn is_changed_by_times(e: &Executable) -> bool {
    let f = e.figures();
    f.recomputed_calls + f.spilled_bytes > 0
}
