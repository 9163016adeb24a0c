//! The figures of a graph, for people and for programs.

use std::collections::BTreeMap;

use remat::graph::ir::Graph;
use serde_json::{Value, json};

use super::source::Traced;
use crate::lifetimes::{self, Lifetimes};
use crate::sizes::show;
use crate::workload::Source;

/// Kinds of ops, and lifetimes at the peak, that are listed.
const SHOWN: usize = 8;

#[derive(Clone, Copy, Default)]
struct OfOp {
    count: usize,
    flops: u64,
    bytes: u64,
}

/// Work by kind of op, most operations first.
fn by_op(g: &Graph) -> Vec<(&'static str, OfOp)> {
    let mut all: BTreeMap<&'static str, OfOp> = BTreeMap::new();
    for n in g.nodes() {
        let (cost, of) = (g.node_cost(n), all.entry(n.op.label()).or_default());
        of.count += 1;
        of.flops = of.flops.saturating_add(cost.flops);
        of.bytes = of.bytes.saturating_add(cost.bytes);
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|(_, o)| std::cmp::Reverse((o.flops, o.bytes)));
    all
}

pub(super) fn json(source: &Source, t: &Traced, l: &Lifetimes) -> Value {
    let (g, cost) = (t.executable.graph(), t.executable.graph().cost());
    let [states, inputs, constants] = lifetimes::given(g);
    let (peak_call, peak_bytes) = l.peak();
    let largest: Vec<Value> = l
        .at(peak_call)
        .iter()
        .take(SHOWN)
        .map(|x| json!({ "name": lifetimes::name(g, x), "bytes": x.bytes, "first_call": x.start, "last_call": x.end }))
        .collect();
    let ops: Vec<Value> = by_op(g)
        .iter()
        .map(|(name, o)| json!({ "op": name, "nodes": o.count, "flops": o.flops, "bytes": o.bytes }))
        .collect();
    json!({
        "graph": source.to_string(),
        "nodes": g.nodes().len(),
        "calls": t.executable.calls(),
        "parameters": t.parameters,
        "states": states.1,
        "inputs": inputs.1,
        "constants": constants.1,
        "outputs": g.outputs().len(),
        "flops": cost.flops,
        "bytes": cost.bytes,
        "memory": t.executable.figures(),
        "fixed_bytes": l.fixed_bytes,
        "peak_bytes": peak_bytes,
        "peak_call": peak_call,
        "at_the_peak": largest,
        "ops": ops,
    })
}

pub(super) fn text(source: &Source, t: &Traced, l: &Lifetimes) -> String {
    let (g, f, cost) = (t.executable.graph(), t.executable.figures(), t.executable.graph().cost());
    let [states, inputs, constants] = lifetimes::given(g);
    let mut s = format!("{source}: {} nodes, {} calls\n", g.nodes().len(), t.executable.calls());
    if let Some(n) = t.parameters {
        s.push_str(&format!("  parameters {n}\n"));
    }
    s.push_str(&format!(
        "  states {} ({}), inputs {} ({}), constants {} ({}), outputs {} ({})\n",
        states.1,
        show(states.0),
        inputs.1,
        show(inputs.0),
        constants.1,
        show(constants.0),
        g.outputs().len(),
        show(f.output_bytes),
    ));
    s.push_str(&format!(
        "  a run: {:.3} GFLOP, {} read and written\n",
        cost.flops as f64 / 1e9,
        show(cost.bytes as usize)
    ));
    s.push_str(&format!(
        "  memory: workspace {} (lower bound {}), {} calls run again\n",
        show(f.arena_bytes),
        show(f.lower_bound_bytes),
        f.recomputed_calls
    ));
    s.push_str("  work by op:\n");
    for (name, o) in by_op(g).iter().take(SHOWN) {
        let share = 100.0 * o.flops as f64 / cost.flops.max(1) as f64;
        s.push_str(&format!("    {name:20} {:>6} nodes {share:>6.1} % of the operations\n", o.count));
    }
    let (call, bytes) = l.peak();
    s.push_str(&format!("  most lives at call {call}: {}, of it\n", show(bytes as usize)));
    s.push_str(&format!("    {:>10}  states, inputs and constants\n", show(l.fixed_bytes as usize)));
    for x in l.at(call).iter().take(SHOWN) {
        s.push_str(&format!("    {:>10}  {}\n", show(x.bytes as usize), lifetimes::name(g, x)));
    }
    s
}
