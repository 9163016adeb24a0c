//! Where the milliseconds of a compiled network go: its calls, those of the same operator on the same shapes together.

use std::collections::HashMap;

use remat::runtime::Executable;
use serde::Serialize;

/// Calls of one operator on operands of one kind, in one run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Operator {
    pub(crate) name: &'static str,
    /// Types and shapes of its inputs.
    pub(crate) operands: String,
    pub(crate) calls: usize,
    /// Of all calls, each the least of all runs: what other programs use only ever adds time.
    pub(crate) ms: f64,
    /// Of the sum over all operators.
    pub(crate) share: f64,
    pub(crate) gflops: f64,
    pub(crate) gb_s: f64,
    /// Which of compute and memory takes longer at full speed.
    pub(crate) bound: &'static str,
    /// Of the machine's speed in what binds it. It may be above 1: what a cache holds need not come from memory, and
    /// Winograd's algorithm makes fewer operations than are counted.
    pub(crate) share_of_bound: f64,
    /// Operations and bytes.
    #[serde(skip)]
    cost: [u64; 2],
}

/// The operators of `exe`, which has run, the one that takes longest first. Calls that are repeated within a plan count once.
pub(crate) fn of(exe: &Executable) -> Vec<Operator> {
    let graph = exe.graph();
    let mut all: HashMap<(&'static str, String), Operator> = HashMap::new();
    for (node, ns) in graph.nodes().iter().zip(exe.fastest_times()) {
        let Some(ns) = ns else { continue };
        let operand = |v| {
            let fact = graph.fact(v);
            format!("{}{}", fact.dtype, fact.shape)
        };
        let operands = node.x.iter().map(|v| operand(*v)).collect::<Vec<_>>().join(" ");
        let name = node.op.label();
        let (cost, key) = (graph.node_cost(node), (name, operands.clone()));
        let o = all.entry(key).or_insert(Operator { name, operands, ..Operator::default() });
        // the clock counts whole nanoseconds: a call that it missed took less than one
        (o.calls, o.ms) = (o.calls + 1, o.ms + ns.max(1) as f64 * 1e-6);
        o.cost = [o.cost[0].saturating_add(cost.flops), o.cost[1].saturating_add(cost.bytes)];
    }
    let mut all: Vec<Operator> = all.into_values().collect();
    // ties in an order that does not depend on the hash
    all.sort_by(|a, b| b.ms.total_cmp(&a.ms).then_with(|| (a.name, &a.operands).cmp(&(b.name, &b.operands))));
    all
}

/// Reads the operators' figures against the machine's; each has taken some time.
pub(crate) fn settle(all: &mut [Operator], peak_gflops: f64, peak_gb_s: f64) {
    let sum: f64 = all.iter().map(|o| o.ms).sum();
    for o in all {
        let [flops, bytes] = o.cost.map(|c| c as f64);
        let seconds = o.ms * 1e-3;
        (o.share, o.gflops, o.gb_s) = (o.ms / sum, flops / seconds / 1e9, bytes / seconds / 1e9);
        let (compute, memory) = (flops / peak_gflops, bytes / peak_gb_s);
        o.bound = if compute >= memory { "compute" } else { "memory" };
        o.share_of_bound = compute.max(memory) / seconds / 1e9;
    }
}

/// A table of the first `rows`, and one line for the others.
pub(crate) fn table(all: &[Operator], rows: usize) -> String {
    let mut text = format!(
        "\n{:>9} {:>6} {:>5} {:>8} {:>6} {:>8} {:>6}  operator\n",
        "ms", "%", "calls", "GFLOP/s", "GB/s", "bound", "of it"
    );
    for o in all.iter().take(rows) {
        text += &format!(
            "{:>9.3} {:>6.1} {:>5} {:>8.1} {:>6.1} {:>8} {:>4.0} %  {} {}\n",
            o.ms,
            100.0 * o.share,
            o.calls,
            o.gflops,
            o.gb_s,
            o.bound,
            100.0 * o.share_of_bound,
            o.name,
            o.operands
        );
    }
    let others = all.get(rows..).unwrap_or_default();
    if !others.is_empty() {
        let (ms, share) = others.iter().fold((0.0, 0.0), |(ms, share), o| (ms + o.ms, share + o.share));
        let calls: usize = others.iter().map(|o| o.calls).sum();
        text += &format!("{ms:>9.3} {:>6.1} {calls:>5} {:>33} {} more\n", 100.0 * share, "", others.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_binds() {
        let new = |ms, cost| Operator { name: "op", calls: 1, ms, cost, ..Operator::default() };
        let mut all = vec![new(3.0, [150_000_000, 3_000_000]), new(1.0, [1_000_000, 5_000_000])];
        settle(&mut all, 100.0, 10.0);
        // five roundings at most, of half a unit each
        let near = |a: f64, b: f64| (a / b - 1.0).abs() <= 2.5 * f64::EPSILON;
        assert_eq!([all[0].bound, all[1].bound], ["compute", "memory"]);
        assert!(near(all[0].share, 0.75) && near(all[0].gflops, 50.0) && near(all[0].share_of_bound, 0.5), "{all:?}");
        assert!(near(all[1].share, 0.25) && near(all[1].gb_s, 5.0) && near(all[1].share_of_bound, 0.5), "{all:?}");
        let text = table(&all, 1);
        assert!(text.lines().count() == 4 && text.ends_with("1 more\n"), "{text}");
        assert_eq!(table(&all, 2).lines().count(), 4);
    }
}
