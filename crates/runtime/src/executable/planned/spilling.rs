//! The demands of spilling on a problem: a disk can fail at any copy, and a failed run must have updated nothing.

use remat_graph::plan::problem::{Bytes, OpSpec, OutputKind, Problem, Spec, SpillRates};
use remat_graph::plan::schedule::{Schedule, Step};
use rustc_hash::FxHashSet;

/// The problem with spilling, in which all updates of states come last. An operator before the updates reads every
/// value that no earlier operator reads. Also gives the operator of `spec` for each operator; `None` for the one that
/// was added.
pub(super) fn updates_last(spec: &Spec, rates: SpillRates) -> (Spec, Vec<Option<usize>>) {
    // updates, and the operators that depend on them
    let mut is_late = vec![false; spec.ops.len()];
    let mut late: FxHashSet<&str> = FxHashSet::default();
    for (i, o) in spec.ops.iter().enumerate() {
        let updates = o.outputs.iter().any(|y| matches!(y.bytes, Bytes::Writes(_)));
        if updates || o.inputs.iter().any(|x| late.contains(x.as_str())) {
            is_late[i] = true;
            late.extend(o.outputs.iter().map(|y| y.name.as_str()));
        }
    }
    if !is_late.contains(&true) {
        return (Spec { spill: rates, ..spec.clone() }, (0..spec.ops.len()).map(Some).collect());
    }
    let (mut calls, after): (Vec<usize>, Vec<usize>) = (0..spec.ops.len()).partition(|i| !is_late[*i]);
    let early = || calls.iter().map(|i| &spec.ops[*i]);
    let read: FxHashSet<&str> = early().flat_map(|o| o.inputs.iter().map(String::as_str)).collect();
    let left = early().flat_map(|o| &o.outputs).filter(|y| !read.contains(y.name.as_str()));
    let done = "all but updates".to_owned();
    let between = OpSpec {
        name: done.clone(),
        time_ns: 0,
        inputs: left.map(|y| y.name.clone()).collect(),
        outputs: vec![remat_graph::plan::problem::OutputSpec { name: done.clone(), bytes: Bytes::Own(0) }],
        workspace: 0,
        repeatable: true,
    };
    let mut ops: Vec<OpSpec> = early().cloned().collect();
    ops.push(between);
    ops.extend(after.iter().map(|i| {
        let mut o = spec.ops[*i].clone();
        o.inputs.push(done.clone());
        o
    }));
    let mut map: Vec<Option<usize>> = calls.drain(..).map(Some).collect();
    map.push(None);
    map.extend(after.into_iter().map(Some));
    (Spec { ops, spill: rates, ..spec.clone() }, map)
}

/// True if no copy follows the first update of a state.
pub(super) fn updates_after_copies(p: &Problem, s: &Schedule) -> bool {
    let updates = |s: &Step| match s {
        Step::Compute { op, .. } => p.ops()[*op].outputs.iter().any(|y| y.1 == OutputKind::Writes),
        _ => false,
    };
    let first = s.steps.iter().position(updates).unwrap_or(s.steps.len());
    !s.steps[first..].iter().any(|s| matches!(s, Step::Spill { .. } | Step::Fetch { .. }))
}
