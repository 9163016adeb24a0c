//! Calls under a memory limit. Evicted values are recomputed or copied to a file, as the planner decides.

mod spilling;
mod walk;

use std::time::Duration;

use remat_graph::plan::problem::{Bytes, OpSpec, OutputSpec, Problem, Spec, SpillRates};
use remat_graph::plan::remat::{Effort, plan};
use remat_graph::plan::schedule::{Plan, Schedule, Shortfall};
use remat_types::{BudgetShortfall, Error, ErrorKind, PinnedBytes, Result, SmallVec};
use rustc_hash::{FxHashMap, FxHashSet};

use super::ExecutableOptions;
use super::build::{Lowered, Root, UnplacedCall};
use super::layout::PlacedCalls;
use remat_device::KernelSet;
use remat_device::program::Place;
use remat_device::program::beyond;
use remat_device::spill::alignment;

/// A call at its place in the order, with the offsets of the temporaries that it makes.
pub(super) struct PlacedCall {
    /// Index into the unplaced calls.
    pub(super) call: usize,
    /// (temporary, offset)
    pub(super) at: SmallVec<[(usize, usize); 2]>,
    /// (output, input): the output takes over the input's temporary, beyond the takeovers of the call itself.
    pub(super) takes: SmallVec<[(usize, usize); 2]>,
}

/// The calls in an order in which the arena has at most `limit` bytes; some calls run several times. In their own order
/// they need `in_order` bytes, which is more.
///
/// Errors (Budget): no such order is known. The error has the least bytes that any order needs, and the smallest limit
/// for which an order is known. Whether there is an error, and these figures, depend on the calls alone.
pub(super) fn within(
    l: &Lowered,
    (limit, in_order): (usize, usize),
    kernels: &dyn KernelSet,
    options: &ExecutableOptions,
) -> Result<PlacedCalls> {
    let spec = spec(l, kernels, &options.node_ns, Extent::Workspace);
    let mut effort = Effort::for_ops(l.calls.len());
    if let Some(s) = options.plan_seconds {
        effort.time_limit = Duration::try_from_secs_f64(s)
            .map_err(|_| Error::new(ErrorKind::Value, format!("{s} is no number of seconds for planning")))?;
    }
    let spilled = match &options.spill {
        Some(to) => {
            let (spec, calls) = spilling::updates_last(&spec, to.rates());
            let align = alignment(&spec.ops, kernels.alignment());
            Some((Problem::new(Spec { align, ..spec })?, calls, to))
        }
        None => None,
    };
    let problem = Problem::new(spec)?;
    let stays = plan(&problem, limit as u64, effort);
    if let Some((p, calls, to)) = &spilled {
        let free_bytes = limit.saturating_sub(beyond(p.align() as usize, kernels.alignment())) as u64;
        let goes = plan(p, free_bytes, effort);
        let is_faster = |s: &Schedule| !matches!(&stays, Plan::Feasible(o) if o.time_ns <= s.time_ns);
        if let Plan::Feasible(s) = &goes
            && spilling::updates_after_copies(p, s)
            && is_faster(s)
        {
            let placed = walk::placed(l, p, s, calls, Some(to));
            if placed.spilled.as_ref().is_none_or(|(_, copies)| copies.file_bytes() <= to.most_bytes()) {
                return Ok(placed);
            }
        }
    }
    let own: Vec<Option<usize>> = (0..l.calls.len()).map(Some).collect();
    match stays {
        Plan::Feasible(mut s) => {
            if spilled.is_some() {
                // a bound on schedules that copy nothing is no bound on schedules that may copy
                s.lower_bound_ns = s.base_time_ns;
            }
            Ok(walk::placed(l, &problem, &s, &own, None))
        }
        Plan::Infeasible(s) => {
            let smallest_feasible_bytes = s.smallest_feasible_bytes.min(in_order as u64);
            Err(refused(l, &Shortfall { smallest_feasible_bytes, ..s }))
        }
    }
}

fn refused(l: &Lowered, s: &Shortfall) -> Error {
    let call = s.limiting_op.and_then(|i| l.calls.get(i));
    let of = |d: &UnplacedCall| {
        let bytes = |root: Root| match root {
            Root::Temp(t) => l.temps[t].bytes,
            Root::Given(_) => 0,
        };
        let x: usize = d.x.iter().map(|x| bytes(x.0)).sum();
        let y: usize = d.y.iter().map(|y| bytes(y.0)).sum();
        (x, y + d.workspace.map_or(0, |t| l.temps[t].bytes))
    };
    let op = call.map_or("compiled", |d| d.op.label()).to_owned();
    let (inputs, needed_bytes) = call.map_or((0, 0), of);
    Error::budget(BudgetShortfall {
        pinned: vec![PinnedBytes { by: format!("inputs of {op}"), bytes: inputs }],
        op,
        needed_bytes,
        budget_bytes: s.budget_bytes as usize,
        least_bytes: s.least_bytes as usize,
        smallest_feasible_bytes: s.smallest_feasible_bytes as usize,
        is_of_run: true,
        recompute_limit: None,
    })
}

/// The name of a temporary in the problem.
fn temp_name(t: usize) -> String {
    format!("t{t}")
}

/// The storages that have bytes in a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The workspace alone.
    Workspace,
    /// Inputs, states, constants and outputs of the run, too.
    Run,
}

/// The calls as the planner's problem. Storages outside the workspace may have no bytes in it, but their versions
/// count: a state that was overwritten can be neither read nor recomputed.
pub(super) fn spec(l: &Lowered, kernels: &dyn KernelSet, node_ns: &[Option<u64>], extent: Extent) -> Spec {
    let whole = |bytes: usize| if extent == Extent::Run { bytes as u64 } else { 0 };
    // the present version of every output of the run that has a value
    let mut held: FxHashMap<usize, String> = FxHashMap::default();
    let mut values = Vec::new();
    for (_, j) in &l.updates {
        let name = format!("y{j}");
        values.push((name.clone(), whole(l.y[*j].bytes())));
        held.insert(*j, name);
    }
    if extent == Extent::Run {
        let is_read = |i: &usize| l.updates.iter().all(|u| u.0 != *i);
        values.extend((0..l.x.len()).filter(is_read).map(|i| (format!("x{i}"), l.x[i].bytes() as u64)));
        values.extend(l.constants.iter().enumerate().map(|(k, c)| (format!("c{k}"), c.bytes().len() as u64)));
    }
    let mut checks = Checks::default();
    let measured = |d: &UnplacedCall| node_ns.get(d.node?.index()).copied().flatten();
    let mut ops = Vec::with_capacity(l.calls.len());
    for (i, d) in l.calls.iter().enumerate() {
        let mut inputs: Vec<String> = Vec::new();
        for x in &d.x {
            match x.0 {
                Root::Temp(t) => inputs.push(temp_name(t)),
                Root::Given(Place::Output(j)) => inputs.extend(held.get(&j).cloned()),
                Root::Given(Place::Input(i)) if extent == Extent::Run => inputs.push(format!("x{i}")),
                Root::Given(Place::Constant(k)) if extent == Extent::Run => inputs.push(format!("c{k}")),
                Root::Given(_) => {}
            }
        }
        let mut outputs = Vec::new();
        let mut repeatable = d.op.repeatable();
        for (k, y) in d.y.iter().enumerate() {
            match y.0 {
                Root::Temp(t) => {
                    outputs.push(OutputSpec { name: temp_name(t), bytes: own(l, d, k, t) });
                }
                Root::Given(Place::Output(j)) => {
                    let name = format!("y{j} after {i}");
                    let bytes = match held.insert(j, name.clone()) {
                        Some(old) => {
                            repeatable = false;
                            inputs.extend(checks.passed.iter().cloned());
                            inputs.push(old.clone());
                            Bytes::Writes(old)
                        }
                        None => Bytes::Own(whole(y.1.bytes())),
                    };
                    outputs.push(OutputSpec { name, bytes });
                }
                Root::Given(_) => {}
            }
        }
        outputs.extend(checks.note(i, d).map(|name| OutputSpec { name, bytes: Bytes::Own(0) }));
        let workspace = d.workspace.map_or(0, |t| l.temps[t].bytes as u64);
        ops.push(OpSpec {
            name: format!("{i} {}", d.op.label()),
            time_ns: measured(d).unwrap_or_else(|| time_ns(d, kernels)),
            inputs,
            outputs,
            workspace,
            repeatable,
        });
    }
    let outputs = held.into_values().collect();
    Spec { align: kernels.alignment().bytes() as u64, values, ops, outputs, spill: SpillRates::default() }
}

/// The calls that may fail because of the user's values: they read indices or labels, or predict a shape. Each makes a
/// value of no bytes that every update of a state reads. So in every order the last of them runs before a state is
/// overwritten.
#[derive(Default)]
struct Checks {
    /// Integers that the user gave, or that were computed from such integers.
    given: FxHashSet<Root>,
    passed: Vec<String>,
}

impl Checks {
    /// The name of the value that shows that call `i` has run. `None` if the call cannot fail.
    fn note(&mut self, i: usize, d: &UnplacedCall) -> Option<String> {
        let is_given = |root: &Root| matches!(root, Root::Given(_)) || self.given.contains(root);
        if !d.op.may_fail() && !d.x.iter().any(|x| x.2.dtype.is_int() && is_given(&x.0)) {
            return None;
        }
        self.given.extend(d.y.iter().filter(|y| y.1.dtype.is_int()).map(|y| y.0));
        self.passed.push(format!("{i} has run"));
        self.passed.last().cloned()
    }
}

/// The bytes of output `k`, which lies in temporary `t`.
fn own(l: &Lowered, d: &UnplacedCall, k: usize, t: usize) -> Bytes {
    let temp = |i: usize| if let Root::Temp(x) = d.x[i].0 { Some(temp_name(x)) } else { None };
    let of: Vec<String> = d.may_take.iter().filter(|p| p.0 == k).filter_map(|p| temp(p.1)).collect();
    let bytes = l.temps[t].bytes as u64;
    if of.is_empty() { Bytes::Own(bytes) } else { Bytes::OwnOr(bytes, of) }
}

/// The estimated time of a call that was not measured.
fn time_ns(d: &UnplacedCall, kernels: &dyn KernelSet) -> u64 {
    let x: SmallVec<[&remat_types::Fact; 4]> = d.x.iter().map(|x| &x.2).collect();
    let y: Vec<remat_types::Fact> = d.y.iter().map(|y| y.1.clone()).collect();
    kernels.cost_ns(&*d.op, &x, &y) / kernels.threads().max(1) as u64
}
