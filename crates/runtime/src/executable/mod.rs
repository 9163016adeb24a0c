//! A graph made ready to run: a list of kernel calls whose operands have their places.
//!
//! To the device an executable is one op. Its inputs are the graph's inputs and states. Its outputs are the graph's
//! outputs and the next versions of states. All other values lie in its workspace. So it runs under the same budget, in
//! the same order and with the same errors as any op: a state whose last handle is an input is updated in place, a
//! failed run leaves every state as it was, and an output may be evicted and recomputed.
//!
//! A graph within a graph is an op of `control_flow`, whose program is made like an executable's and is part of it.
//!
//! Within a run nothing is inferred, hashed or allocated. An updated state keeps its old bytes until nothing can fail
//! any more: updates at the end of the graph write in place, and all others go to the workspace and are copied last.

mod build;
mod constants;
pub mod control_flow;
mod layout;
mod observe;
mod planned;
mod run;
mod smaller;
mod spill;
mod trace;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream;

use std::any::Any;
use std::hash::Hasher;
use std::sync::{Arc, Mutex};

use remat_device::host::Bindings;
use remat_device::program::{Program, Step, StepTimes};
use remat_device::spill::SpillTo;
use remat_device::{HostKernels, KernelSet};
use remat_graph::ir::{Graph, NodeId};
use remat_graph::plan::problem::Spec;
use remat_ops::{Cost, DynIdentity, EvalCx, GradCx, Grads, Op};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, HostTensor, Result};

pub use observe::{NanCheck, Observed, Observer, RangeCheck, ValueDump};

/// The memory that a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryFigures {
    /// The workspace: everything that lives only within a run.
    pub arena_bytes: usize,
    /// A lower bound of the workspace for this order of calls: the most bytes that live at once.
    pub lower_bound_bytes: usize,
    /// States.
    pub state_bytes: usize,
    /// Inputs.
    pub input_bytes: usize,
    /// Outputs, the next versions of states not counted.
    pub output_bytes: usize,
    /// Constants, which the executable holds on the host. They lie in one mapping if they are large and only this
    /// executable held the graph.
    pub constant_bytes: usize,
    /// Calls that a run repeats because their results were evicted.
    pub recomputed_calls: usize,
    /// Bytes that a run copies out to the spill file.
    pub spilled_bytes: usize,
    /// Bytes that it copies back in.
    pub fetched_bytes: usize,
}

/// The planner's estimate for calls that run under a limit, in nanoseconds by the times that it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PlanTimes {
    /// A run.
    pub planned_ns: u64,
    /// A run without a limit: every call once.
    pub base_ns: u64,
    /// No plan within the limit takes less. Where spilling is allowed, the time of every call once.
    pub bound_ns: u64,
    /// The part of a run that waits for copies to and from the spill file.
    pub stall_ns: u64,
}

/// The options for making a graph ready.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecutableOptions {
    /// The most bytes of the workspace. Values that do not fit are recomputed. `None` for no limit.
    pub workspace_limit: Option<usize>,
    /// The most seconds for planning under the limit. `None` for a time that follows from the number of calls: 1.6 s up
    /// to 1,000 calls. It does not change whether a limit is refused.
    pub plan_seconds: Option<f64>,
    /// The folder to which values that do not fit may be spilled, if that is cheaper than recomputing them.
    pub spill: Option<SpillTo>,
    /// Nanoseconds that each node takes, in order, for planning under the limit; nodes without one count by their op's
    /// estimate. See [`Executable::fastest_times`].
    pub node_ns: Vec<Option<u64>>,
    /// Cuts a run into consecutive parts: for each part, the indices of the outputs that it gives. The last part also
    /// gives the outputs that no part names, and updates the states. Empty for a run in one piece.
    pub parts: Vec<Vec<usize>>,
}

/// See the module's note. Clones of the [`Arc`] that holds it may run at the same time on different devices.
#[derive(Debug)]
pub struct Executable {
    graph: Arc<Graph>,
    /// The kernels for which it was made.
    kernels: Arc<dyn KernelSet>,
    pub(crate) program: Program,
    figures: MemoryFigures,
    plan: Option<PlanTimes>,
    spill: Option<spill::Spill>,
    times: Arc<StepTimes>,
    /// The operands of the run in progress.
    bindings: Mutex<Bindings>,
    observer: observe::Slot,
    smaller: smaller::Smaller,
}

impl Executable {
    /// Makes `graph` ready for the host's kernels with `threads`.
    ///
    /// Errors: NoValue for an op whose shape depends on a value that is not known; Internal if operands overlap.
    pub fn new(graph: Arc<Graph>, threads: usize) -> Result<Executable> {
        Executable::with(graph, threads, &ExecutableOptions::default())
    }

    /// [`Executable::new`] with options. Errors: also Budget, with figures of the workspace, if no order of calls keeps
    /// to its limit.
    pub fn with(graph: Arc<Graph>, threads: usize, options: &ExecutableOptions) -> Result<Executable> {
        Executable::for_kernels(graph, &host(threads), options)
    }

    /// [`Executable::with`] for the kernels of any device, with their workspaces, layouts and estimates. Errors: the
    /// same.
    pub fn for_kernels(
        graph: Arc<Graph>,
        kernels: &Arc<dyn KernelSet>,
        options: &ExecutableOptions,
    ) -> Result<Executable> {
        layout::build(graph, kernels, options)
    }

    /// The kernels for which it was made.
    pub fn kernels(&self) -> &Arc<dyn KernelSet> {
        &self.kernels
    }

    /// Its program, for a run within another.
    pub(crate) fn into_program(self) -> Program {
        self.program
    }

    /// The graph it runs.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Shows every value that a call of later runs gives to `observer`; `None` ends it. The observer's time adds to the
    /// runs'.
    pub fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.observer.set(observer);
    }

    /// The observer that sees the values of runs.
    pub fn observer(&self) -> Option<Arc<dyn Observer>> {
        self.observer.get()
    }

    /// The threads its kernels use.
    pub fn threads(&self) -> usize {
        self.program.threads
    }

    /// The memory that a run takes.
    pub fn figures(&self) -> MemoryFigures {
        self.figures
    }

    /// The times that the planner promised. `None` if the calls fit their limit in their own order.
    pub fn plan_times(&self) -> Option<PlanTimes> {
        self.plan
    }

    /// Number of kernel calls in a run, copies included.
    pub fn calls(&self) -> usize {
        self.program.steps.len()
    }

    /// For each state with a next version: the input of the op, and the output that replaces it.
    pub fn updates(&self) -> &[(usize, usize)] {
        &self.program.updates
    }

    /// Nanoseconds of each node in the last run, in order; copies that the executable added have no node.
    pub fn node_times(&self) -> Vec<(Option<NodeId>, u64)> {
        self.program.steps.iter().zip(self.times.last()).map(|(s, ns)| (s.node, ns)).collect()
    }

    /// The least nanoseconds that each node of the graph took in any run. `None` for views, which take no call, and
    /// before the first run. Other processes can only add time, so the least time is the node's own.
    pub fn fastest_times(&self) -> Vec<Option<u64>> {
        let mut all = self.own_times();
        if let Some(other) = self.run_in_its_place() {
            for (ns, also) in all.iter_mut().zip(other.own_times()) {
                *ns = (*ns).into_iter().chain(also).min();
            }
        }
        all
    }

    fn own_times(&self) -> Vec<Option<u64>> {
        let mut all = vec![None; self.graph.nodes().len()];
        for (s, ns) in self.program.steps.iter().zip(self.times.fastest()) {
            if let (Some(node), Some(ns)) = (s.node, ns) {
                let least: &mut Option<u64> = &mut all[node.index()];
                *least = Some(least.map_or(ns, |l| l.min(ns)));
            }
        }
        all
    }

    /// True once a run has ended.
    pub fn is_timed(&self) -> bool {
        self.times.is_complete() || self.run_in_its_place().is_some_and(|other| other.times.is_complete())
    }

    /// The graph as the planner's problem, with what lies outside the workspace counted; nodes without a time count by
    /// their op's estimate. Errors: those of [`Executable::new`].
    pub fn problem(&self, node_ns: &[Option<u64>]) -> Result<Spec> {
        let lowered = build::lower(&self.graph, &self.kernels, false, &build::Parts::default())?;
        Ok(planned::spec(&lowered, &*self.kernels, node_ns, planned::Extent::Run))
    }

    /// Nanoseconds of a run whose nodes take these times, with the waits for copies: the least wait of any run, or
    /// before the first run the wait that the plan expects.
    pub fn predicted_ns(&self, node_ns: &[Option<u64>]) -> u64 {
        let of = |s: &Step| s.node.and_then(|n| node_ns.get(n.index()).copied().flatten()).unwrap_or(0);
        let planned = || self.plan.map_or(0, |p| p.stall_ns);
        let stall = self.spill.as_ref().map_or(0, |s| s.least_wait().unwrap_or_else(planned));
        self.program.steps.iter().map(of).fold(stall, u64::saturating_add)
    }

    /// The block of its constants, for a device that holds them. It is one more input of runs there, after the states.
    /// `None` without constants. Errors: those of [`HostTensor::zeros`].
    pub(crate) fn constant_block(&self) -> Result<Option<HostTensor>> {
        let has_constants = self.program.constant_bytes() > 0;
        has_constants.then(|| self.program.constant_block()).transpose()
    }

    /// True if `given` is the fact of that block.
    fn is_block(&self, given: &Fact) -> bool {
        let bytes = self.program.constant_bytes();
        self.kernels.holds_constants() && bytes > 0 && given.dtype == DType::U8 && given.bytes() == bytes
    }

    /// The folder to which it spills, with the rates that its runs measured. `None` if nothing is spilled.
    pub fn spills_to(&self) -> Option<SpillTo> {
        Some(self.spill.as_ref()?.measured())
    }
}

/// The name of the host's kernels without a device.
pub(crate) const HOST: &str = "host";

/// The host's kernels.
fn host(threads: usize) -> Arc<dyn KernelSet> {
    Arc::new(HostKernels::new(HOST, threads))
}

impl Op for Executable {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let holds_constants = matches!(x.get(self.program.x.len()), Some(block) if self.is_block(block));
        if x.len() != self.program.x.len() + usize::from(holds_constants) {
            let text = format!("{} inputs and states for a graph that has {}", x.len(), self.program.x.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        for (i, (own, given)) in self.program.x.iter().zip(x).enumerate() {
            if !own.same_type(given) {
                let text = format!(
                    "input {i} is {}{}, and the graph was compiled for {}{}",
                    given.dtype, given.shape, own.dtype, own.shape
                );
                return Err(Error::new(ErrorKind::Shape, text));
            }
        }
        Ok(self.program.y.clone())
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        self.run(cx, None)
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        let text = "a compiled graph has no gradient of its own: take the gradient within the compiled function";
        Err(Error::new(ErrorKind::NotDifferentiable, text))
    }

    fn overwrite(&self) -> &[(usize, usize)] {
        &self.program.updates
    }

    fn for_each_part(&self, see: &mut dyn FnMut(&dyn Op)) {
        self.graph.nodes().iter().for_each(|n| see(&*n.op));
    }

    fn workspace(&self, _x: &[&Fact], _threads: usize) -> usize {
        self.program.workspace_bytes
    }

    fn cost(&self, _x: &[&Fact], _y: &[Fact]) -> Cost {
        self.graph.cost()
    }

    fn repeatable(&self) -> bool {
        self.program.steps.iter().all(|s| s.op.repeatable())
    }

    fn abandon(&self, why: &Error) {
        self.program.steps.iter().for_each(|s| s.op.abandon(why));
    }
}

impl DynIdentity for Executable {
    fn name(&self) -> &'static str {
        "compiled"
    }

    fn label(&self) -> &'static str {
        "compiled"
    }

    fn dyn_eq(&self, other: &dyn Op) -> bool {
        other.as_any().downcast_ref::<Executable>().is_some_and(|o| std::ptr::eq(self, o))
    }

    fn dyn_hash(&self, state: &mut dyn Hasher) {
        state.write_usize(std::ptr::from_ref(self) as usize);
    }

    fn to_json(&self) -> Result<serde_json::Value> {
        Err(Error::new(ErrorKind::Format, "save the graph of a compiled function, not the executable"))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
