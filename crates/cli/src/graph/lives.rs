//! What lives when, over the calls of an executable.
//!
//! A value lives from the call that makes it to the last call that reads it or a view of it, and one that the run gives
//! back to the end. An output that may overwrite a value that dies in the call counts together with it, and the next
//! version of a state that its op writes in place has no bytes of its own. Copies that the executable adds are not in
//! the picture.

use remat::graph::ir::{Graph, Node, NodeId, Origin, ValueId};
use remat::runtime::Executable;
use remat::types::Layout;
use remat_graph::plan::lifetime::{Interval, Lifetimes};

/// The lives of a run.
pub(super) struct Lives {
    /// States, inputs and constants, which are there all the time.
    pub(super) fixed_bytes: u64,
    /// What lies in which value, for each interval; `None` for an op's workspace.
    pub(super) lives: Vec<Life>,
    /// Bytes at each call, the fixed ones included.
    pub(super) load: Vec<u64>,
}

/// Bytes held from one call to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) node: NodeId,
    /// `None` for the node's workspace.
    pub(super) value: Option<ValueId>,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) bytes: u64,
    /// Made before in the same run.
    pub(super) again: bool,
}

impl Lives {
    pub(super) fn of(e: &Executable) -> Lives {
        let calls: Vec<NodeId> = e.node_times().into_iter().filter_map(|c| c.0).collect();
        Walk::new(e.graph(), e.figures().recomputed_calls == 0).run(&calls)
    }

    /// The call at which most bytes live, and how many.
    pub(super) fn peak(&self) -> (usize, u64) {
        let most = self.load.iter().copied().enumerate().rev().max_by_key(|c| c.1);
        most.unwrap_or((0, self.fixed_bytes))
    }

    /// What lives at a call, largest first.
    pub(super) fn at(&self, call: usize) -> Vec<Life> {
        let mut all: Vec<Life> = self.lives.iter().copied().filter(|l| (l.start..=l.end).contains(&call)).collect();
        all.sort_by_key(|l| std::cmp::Reverse(l.bytes));
        all
    }
}

struct Walk<'g> {
    graph: &'g Graph,
    /// Each node runs once, so that what dies may be overwritten.
    takeover: bool,
    /// For each value, the one in whose storage it lies.
    whole: Vec<ValueId>,
    /// For each value, whether a run gives it, or a view of it, back.
    given_back: Vec<bool>,
    /// For each value, its life that is open.
    open: Vec<Option<usize>>,
    made: Vec<bool>,
    lives: Vec<Life>,
}

impl<'g> Walk<'g> {
    fn new(graph: &'g Graph, takeover: bool) -> Self {
        let n = graph.values().len();
        let whole = viewed(graph);
        let mut given_back = vec![false; n];
        let results = graph.outputs().iter().map(|o| o.value).chain(graph.states().iter().filter_map(|s| s.next));
        results.for_each(|v| given_back[whole[v.index()].index()] = true);
        Walk { graph, takeover, whole, given_back, open: vec![None; n], made: vec![false; n], lives: Vec::new() }
    }

    fn run(mut self, calls: &[NodeId]) -> Lives {
        let mut last_read = vec![None; self.whole.len()];
        for (at, id) in calls.iter().enumerate() {
            self.graph.node(*id).x.iter().for_each(|v| last_read[self.whole[v.index()].index()] = Some(at));
        }
        for (at, id) in calls.iter().enumerate() {
            self.call(at, *id, &last_read);
        }
        let end = calls.len().saturating_sub(1);
        for (v, life) in self.open.iter().enumerate() {
            if let Some(life) = life.filter(|_| self.given_back[v]) {
                self.lives[life].end = end;
            }
        }
        let g = self.graph;
        let fixed = g.value_ids().filter(|v| g.producer(*v).is_none()).map(|v| g.fact(v).bytes() as u64).sum();
        let interval = |l: &Life| Interval { storage: None, start: l.start, end: l.end, bytes: l.bytes };
        let load = Lifetimes::of(self.lives.iter().map(interval).collect(), calls.len()).load;
        Lives { fixed_bytes: fixed, lives: self.lives, load: load.into_iter().map(|b| b + fixed).collect() }
    }

    fn call(&mut self, at: usize, node: NodeId, last_read: &[Option<usize>]) {
        let n = self.graph.node(node);
        let facts: Vec<_> = n.x.iter().map(|v| self.graph.fact(*v)).collect();
        let workspace = n.op.workspace(&facts, remat::runtime::DeviceOptions::default().threads) as u64;
        if workspace > 0 {
            self.lives.push(Life { node, value: None, start: at, end: at, bytes: workspace, again: false });
        }
        for v in &n.x {
            if let Some(life) = self.open[self.whole[v.index()].index()] {
                self.lives[life].end = at;
            }
        }
        for (j, y) in n.y.iter().enumerate() {
            let bytes = self.graph.fact(*y).bytes() as u64;
            if bytes == 0 || self.updates(n, j) {
                continue;
            }
            if let Some(life) = self.dying(n, j, at, last_read) {
                // The bytes go over to the output.
                self.lives[life].end = at.saturating_sub(1);
            }
            let again = std::mem::replace(&mut self.made[y.index()], true);
            self.open[y.index()] = Some(self.lives.len());
            self.lives.push(Life { node, value: Some(*y), start: at, end: at, bytes, again });
        }
    }

    /// True if output `j` is the next version of a state that the op writes in place.
    fn updates(&self, n: &Node, j: usize) -> bool {
        let state_of = self.graph.states().iter().find(|s| s.next == Some(n.y[j]));
        state_of.is_some_and(|s| n.op.overwrite().iter().any(|(i, to)| *to == j && n.x.get(*i) == Some(&s.value)))
    }

    /// The life of an input that ends here and whose bytes output `j` may take over.
    fn dying(&self, n: &Node, j: usize, at: usize, last_read: &[Option<usize>]) -> Option<usize> {
        if !self.takeover || self.given_back[n.y[j].index()] {
            return None;
        }
        let fits = |i: usize| {
            let x = *n.x.get(i)?;
            let whole = self.whole[x.index()];
            let life = self.open[whole.index()].filter(|l| self.lives[*l].start < at)?;
            let own = whole == x && n.x.iter().filter(|o| self.whole[o.index()] == whole).count() == 1;
            let dies = last_read[whole.index()] == Some(at) && !self.given_back[whole.index()];
            let same = self.graph.fact(x).same_type(self.graph.fact(n.y[j]));
            (own && dies && same && self.lives[life].end == at).then_some(life)
        };
        n.op.overwrite().iter().filter(|p| p.1 == j).find_map(|p| fits(p.0))
    }
}

/// For each value, the one in whose storage it lies: views share that of what they view.
fn viewed(g: &Graph) -> Vec<ValueId> {
    let mut whole: Vec<ValueId> = g.value_ids().collect();
    let mut layouts: Vec<Layout> = g.values().iter().map(|v| v.fact.layout()).collect();
    for n in g.nodes() {
        if let [x] = n.x[..]
            && let Some(view) = n.op.view(&layouts[x.index()])
        {
            whole[n.y[0].index()] = whole[x.index()];
            layouts[n.y[0].index()] = view;
        }
    }
    whole
}

/// How a life is called: the value, its op and where in the program that stands.
pub(super) fn name(g: &Graph, l: &Life) -> String {
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
pub(super) fn given(g: &Graph) -> [(usize, usize); 3] {
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
    use remat::runtime::ExecutableOptions;

    fn lives(text: &str, limit: Option<usize>) -> Lives {
        let g = Graph::parse(text, &Registry::builtin()).expect("a graph");
        let options = ExecutableOptions { workspace_limit: limit, ..ExecutableOptions::default() };
        Lives::of(&Executable::with(Arc::new(g), 1, &options).expect("it fits"))
    }

    #[test]
    fn values_live_to_their_last_reader_and_may_be_written_over() {
        let unary = |f: &str| format!("unary 1 {{\"f\":\"{f}\"}}");
        let text = format!(
            "remat.graph 1\ninput x: f32[100]\n%1: f32[100] = {} (x)\n%2: f32[100] = {} (%1)\n%3: f32[100] = {} (%2)\n\
             %4: f32[100] = binary 1 {{\"f\":\"add\"}} (%3, %1)\n%5: f32[] = reduce 1 \
             {{\"f\":\"sum\",\"axes\":[0],\"keepdims\":false}} (%4)\noutput y = %5\n",
            unary("exp"),
            unary("tanh"),
            unary("sin"),
        );
        let l = lives(&text, None);
        // x; %1; %1 and %2; %3 over %2; %4 over %3; the result beside %4
        assert_eq!(l.fixed_bytes, 400);
        assert_eq!(l.load, [800, 1200, 1200, 1200, 804]);
        assert_eq!(l.peak(), (1, 1200));
        assert_eq!(l.at(2).iter().map(|l| l.bytes).collect::<Vec<_>>(), [400, 400]);
    }
}
