//! The lifetimes of values over the calls of an executable.
//!
//! A value lives from the call that makes it to the last call that reads it or a view of it, and one that the run gives
//! back to the end. An output that may overwrite a value that dies in the call counts together with it, and states that
//! the last nodes update have no bytes but their own. Copies that the executable adds are calls, whose bytes are not in
//! the picture.

pub(crate) mod timeline;

use remat::graph::ir::{Graph, Node, NodeId, Origin, ValueId};
use remat::runtime::{Executable, KernelSet};
use remat_graph::plan::lifetime::{self, Interval};

/// The picture of what lives when in a run.
pub(crate) fn picture(title: &str, e: &Executable) -> String {
    timeline::svg(title, e.graph(), &Lifetimes::of(e))
}

/// The lifetimes of a run.
pub(crate) struct Lifetimes {
    /// States, inputs and constants, which are there all the time.
    pub(crate) fixed_bytes: u64,
    /// The value of each interval; `None` for an op's workspace.
    pub(crate) lifetimes: Vec<Lifetime>,
    /// Bytes at each call, the fixed ones included; each storage in whole units of the arena.
    pub(crate) load: Vec<u64>,
}

/// Bytes held from one call to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) node: NodeId,
    /// `None` for the node's workspace.
    pub(crate) value: Option<ValueId>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) bytes: u64,
    /// Made before in the same run.
    pub(crate) again: bool,
    /// It lies in an output of the run, not in the workspace.
    pub(crate) in_output: bool,
}

impl Lifetimes {
    pub(crate) fn of(e: &Executable) -> Lifetimes {
        let calls: Vec<Option<NodeId>> = e.node_times().into_iter().map(|c| c.0).collect();
        Walk::new(e.graph(), &**e.kernels(), e.figures().recomputed_calls == 0).run(&calls)
    }

    /// The call at which most bytes live, and how many.
    pub(crate) fn peak(&self) -> (usize, u64) {
        let most = self.load.iter().copied().enumerate().rev().max_by_key(|c| c.1);
        most.unwrap_or((0, self.fixed_bytes))
    }

    /// The values that live at a call, largest first.
    pub(crate) fn at(&self, call: usize) -> Vec<Lifetime> {
        let mut all: Vec<Lifetime> =
            self.lifetimes.iter().copied().filter(|l| (l.start..=l.end).contains(&call)).collect();
        all.sort_by_key(|l| std::cmp::Reverse(l.bytes));
        all
    }
}

struct Walk<'g> {
    graph: &'g Graph,
    kernels: &'g dyn KernelSet,
    /// Each node runs once, so that what dies may be overwritten.
    takeover: bool,
    /// Nodes from here on do nothing but update states, in place: nothing can fail any more.
    first_update: usize,
    /// For each value, the one in whose storage it lies.
    whole: Vec<ValueId>,
    /// For each value, whether a run gives it, or a view of it, back.
    given_back: Vec<bool>,
    /// For each value, its lifetime that is open.
    open: Vec<Option<usize>>,
    made: Vec<bool>,
    lifetimes: Vec<Lifetime>,
}

impl<'g> Walk<'g> {
    fn new(graph: &'g Graph, kernels: &'g dyn KernelSet, takeover: bool) -> Self {
        let (n, whole) = (graph.values().len(), graph.storages());
        let mut given_back = vec![false; n];
        let results = graph.outputs().iter().map(|o| o.value).chain(graph.states().iter().filter_map(|s| s.next));
        results.for_each(|v| given_back[whole[v.index()].index()] = true);
        let (open, made, lifetimes) = (vec![None; n], vec![false; n], Vec::new());
        let mut walk = Walk { graph, kernels, takeover, first_update: 0, whole, given_back, open, made, lifetimes };
        walk.first_update = walk.first_update();
        walk
    }

    /// `None` for a copy.
    fn run(mut self, calls: &[Option<NodeId>]) -> Lifetimes {
        let mut last_read = vec![None; self.whole.len()];
        let nodes = || calls.iter().enumerate().filter_map(|(at, id)| Some((at, (*id)?)));
        for (at, id) in nodes() {
            self.graph.node(id).x.iter().for_each(|v| last_read[self.whole[v.index()].index()] = Some(at));
        }
        for (at, id) in nodes() {
            self.call(at, id, &last_read);
        }
        let end = calls.len().saturating_sub(1);
        for (v, lifetime) in self.open.iter().enumerate() {
            if let Some(lifetime) = lifetime.filter(|_| self.given_back[v]) {
                self.lifetimes[lifetime].end = end;
            }
        }
        let (g, unit) = (self.graph, self.kernels.alignment());
        let fixed =
            g.value_ids().filter(|v| g.producer(*v).is_none()).map(|v| unit.pad(g.fact(v).bytes()) as u64).sum();
        let interval = |l: &Lifetime| Interval { storage: None, start: l.start, end: l.end, bytes: l.bytes };
        let load = lifetime::Lifetimes::of(self.lifetimes.iter().map(interval).collect(), calls.len()).load;
        Lifetimes { fixed_bytes: fixed, lifetimes: self.lifetimes, load: load.into_iter().map(|b| b + fixed).collect() }
    }

    fn call(&mut self, at: usize, node: NodeId, last_read: &[Option<usize>]) {
        let n = self.graph.node(node);
        let facts: Vec<_> = n.x.iter().map(|v| self.graph.fact(*v)).collect();
        let workspace = self.kernels.alignment().pad(self.kernels.workspace(&*n.op, &facts)) as u64;
        if workspace > 0 {
            self.lifetimes.push(Lifetime {
                node,
                value: None,
                start: at,
                end: at,
                bytes: workspace,
                again: false,
                in_output: false,
            });
        }
        for v in &n.x {
            if let Some(lifetime) = self.open[self.whole[v.index()].index()] {
                self.lifetimes[lifetime].end = at;
            }
        }
        for (j, y) in n.y.iter().enumerate() {
            let bytes = self.kernels.alignment().pad(self.graph.fact(*y).bytes()) as u64;
            if bytes == 0 || node.index() >= self.first_update {
                continue;
            }
            if let Some(lifetime) = self.dying(n, j, at, last_read) {
                // The bytes go over to the output.
                self.lifetimes[lifetime].end = at.saturating_sub(1);
            }
            let again = std::mem::replace(&mut self.made[y.index()], true);
            self.open[y.index()] = Some(self.lifetimes.len());
            let in_output = self.graph.outputs().iter().any(|o| o.value == *y) && self.state_of(*y).is_none();
            self.lifetimes.push(Lifetime { node, value: Some(*y), start: at, end: at, bytes, again, in_output });
        }
    }

    /// The state whose next version a value is.
    fn state_of(&self, v: ValueId) -> Option<ValueId> {
        self.graph.states().iter().find(|s| s.next == Some(v)).map(|s| s.value)
    }

    /// True if output `j` is the next version of a state that the op writes in place.
    fn updates(&self, n: &Node, j: usize) -> bool {
        let over = |state| self.kernels.overwrite(&*n.op).iter().any(|(i, to)| *to == j && n.x.get(*i) == Some(&state));
        self.state_of(n.y[j]).is_some_and(over)
    }

    /// The first of the nodes at the end that do nothing but update states.
    fn first_update(&self) -> usize {
        let g = self.graph;
        let only = |id: &NodeId| (0..g.node(*id).y.len()).all(|j| self.updates(g.node(*id), j));
        g.nodes().len() - g.node_ids().rev().take_while(only).count()
    }

    /// The lifetime of an input that ends here and whose bytes output `j` may take over.
    fn dying(&self, n: &Node, j: usize, at: usize, last_read: &[Option<usize>]) -> Option<usize> {
        if !self.takeover || self.given_back[n.y[j].index()] {
            return None;
        }
        let fits = |i: usize| {
            let x = *n.x.get(i)?;
            let whole = self.whole[x.index()];
            let lifetime = self.open[whole.index()].filter(|l| self.lifetimes[*l].start < at)?;
            let own = whole == x && n.x.iter().filter(|o| self.whole[o.index()] == whole).count() == 1;
            let dies = last_read[whole.index()] == Some(at) && !self.given_back[whole.index()];
            let same = self.graph.fact(x).same_type(self.graph.fact(n.y[j]));
            (own && dies && same && self.lifetimes[lifetime].end == at).then_some(lifetime)
        };
        self.kernels.overwrite(&*n.op).iter().filter(|p| p.1 == j).find_map(|p| fits(p.0))
    }
}

/// How a lifetime is called: the value, its op and where in the program that stands.
pub(crate) fn name(g: &Graph, l: &Lifetime) -> String {
    let n = g.node(l.node);
    let scope = n.scope.as_ref().map_or_else(String::new, |s| format!(" in {s}"));
    match l.value {
        Some(v) => {
            let f = g.fact(v);
            let again = if l.again { " again" } else { "" };
            format!("{} {}{again} {}{}{scope}", g.label(v), n.op.label(), f.dtype, f.shape)
        }
        None => format!("workspace of {}{scope}", n.op.label()),
    }
}

/// States, inputs and constants: bytes and numbers of each.
pub(crate) fn given(g: &Graph) -> [(usize, usize); 3] {
    let mut all = [(0, 0); 3];
    for v in g.value_ids() {
        let of = match g.value(v).origin {
            Origin::State(_) => 0,
            Origin::Input(_) => 1,
            Origin::Constant(_) => 2,
            Origin::Node { .. } => continue,
        };
        all[of].0 += g.fact(v).bytes();
        all[of].1 += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use remat::ops::Registry;

    fn unary(f: &str) -> String {
        format!("unary 1 {{\"f\":\"{f}\"}}")
    }

    #[test]
    fn values_live_to_their_last_reader_and_may_be_written_over() {
        let sum = "reduce 1 {\"f\":\"sum\",\"axes\":[0],\"keepdims\":false}";
        let text = format!(
            "remat.graph 1\ninput x: f32[64]\n%1: f32[64] = {} (x)\n%2: f32[64] = {} (%1)\n%3: f32[64] = {} (%2)\n\
             %4: f32[64] = binary 1 {{\"f\":\"add\"}} (%3, %1)\n%5: f32[] = {sum} (%4)\noutput y = %5\n",
            unary("exp"),
            unary("tanh"),
            unary("sin"),
        );
        let g = Graph::parse(&text, &Registry::builtin()).expect("a graph");
        let l = Lifetimes::of(&Executable::new(Arc::new(g), 1).expect("it has an order"));
        // x; %1; %1 and %2; %3 over %2; %4 over %3; the result beside %4
        let unit = remat::runtime::Alignment::HOST.pad(256) as u64;
        assert_eq!(l.fixed_bytes, unit);
        assert_eq!(
            l.load,
            [2 * unit, 3 * unit, 3 * unit, 3 * unit, 2 * unit + remat::runtime::Alignment::HOST.pad(4) as u64]
        );
        assert_eq!(l.peak(), (1, 3 * unit));
        assert_eq!(l.at(2).iter().map(|l| l.bytes).collect::<Vec<_>>(), [unit, unit]);
    }

    /// Two ways to the most bytes that live at once: the picture's, and the executable's own bound.
    #[test]
    fn the_lifetimes_of_training_steps_are_those_that_the_executable_places() {
        let digits = crate::train::traced::<crate::digits::Options>(Some(8));
        let chars = crate::train::traced::<crate::chars::Options>(Some(2));
        for (executable, _) in [digits.expect("a step"), chars.expect("a step")] {
            let l = Lifetimes::of(&executable);
            let within = |c: usize| l.at(c).iter().filter(|l| !l.in_output).map(|l| l.bytes).sum::<u64>();
            assert_eq!(l.load.len(), executable.calls(), "every call is in the picture");
            let most = (0..l.load.len()).map(within).max();
            assert_eq!(most, Some(executable.figures().lower_bound_bytes as u64));
        }
    }
}
