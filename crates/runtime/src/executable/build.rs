//! From a graph to a list of calls: places, lifetimes, offsets.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use remat_graph::ir::{Graph, NodeId, Origin, ValueId};
use remat_graph::plan::arena::{Effort, assign};
use remat_graph::plan::lifetime::{Interval, Lifetimes};
use remat_ops::shape::Contiguous;
use remat_ops::{LayoutReq, OpRef};
use remat_types::{Error, ErrorKind, Fact, Facts, HostTensor, Layout, Result, SmallVec};

use super::{Executable, MemoryFigures, Operand, Place, Step, Target};
use crate::arena::padded;

pub(super) fn build(graph: Arc<Graph>, threads: usize) -> Result<Executable> {
    let mut b = Build::new(&graph, threads);
    b.place_given();
    b.find_last_updates();
    b.find_last_reads();
    b.place_outputs();
    for n in graph.node_ids() {
        b.node(n)?;
    }
    b.copy_results();
    b.finish(&graph)
}

/// Where a storage is while the offsets are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    Given(Place),
    /// Index into the temporaries.
    Temp(usize),
}

/// A storage that lives within a run.
struct Temp {
    bytes: usize,
    first: usize,
    last: usize,
}

struct Build<'g> {
    graph: &'g Graph,
    threads: usize,
    /// Where each value lies, once it does.
    at: Vec<Option<(Root, Layout)>>,
    temps: Vec<Temp>,
    constants: Vec<Arc<HostTensor>>,
    x: Vec<Fact>,
    y: Facts,
    updates: Vec<(usize, usize)>,
    /// For each node the (input, output) pairs that write a state in place.
    in_place: Vec<SmallVec<[(usize, usize); 2]>>,
    /// For each value, the last node that reads its storage or a view of it; `None` if the run gives it back.
    last_read: Vec<Option<NodeId>>,
    /// The output of the run into which a value is computed.
    into: Vec<Option<usize>>,
    steps: Vec<Draft>,
    contiguous: OpRef,
}

/// A step whose temporaries have no offsets yet.
struct Draft {
    op: OpRef,
    x: SmallVec<[(Root, usize, Fact, Layout); 4]>,
    y: SmallVec<[(Root, Fact, Option<usize>); 2]>,
    workspace: Option<usize>,
    node: Option<NodeId>,
}

impl<'g> Build<'g> {
    fn new(graph: &'g Graph, threads: usize) -> Self {
        Build {
            graph,
            threads,
            at: vec![None; graph.values().len()],
            temps: Vec::new(),
            constants: Vec::new(),
            x: Vec::new(),
            y: Facts::new(),
            updates: Vec::new(),
            in_place: vec![SmallVec::new(); graph.nodes().len()],
            last_read: vec![None; graph.values().len()],
            into: vec![None; graph.values().len()],
            steps: Vec::new(),
            contiguous: OpRef::new(Contiguous),
        }
    }

    fn plain(f: &Fact) -> Fact {
        Fact::new(f.dtype, f.shape.clone())
    }

    fn give(&mut self, v: ValueId, place: Place) {
        self.at[v.index()] = Some((Root::Given(place), self.graph.fact(v).layout()));
    }

    /// Inputs, states and constants; a state that is updated lies in its output from the start.
    fn place_given(&mut self) {
        let g = self.graph;
        for v in g.inputs() {
            self.give(*v, Place::Input(self.x.len()));
            self.x.push(Self::plain(g.fact(*v)));
        }
        self.y.extend(g.outputs().iter().map(|o| Self::plain(g.fact(o.value))));
        for s in g.states() {
            let fact = Self::plain(g.fact(s.value));
            if s.next.is_some() {
                self.updates.push((self.x.len(), self.y.len()));
                self.give(s.value, Place::Output(self.y.len()));
                self.y.push(fact.clone());
            } else {
                self.give(s.value, Place::Input(self.x.len()));
            }
            self.x.push(fact);
        }
        for v in g.value_ids() {
            if let Origin::Constant(data) = &g.value(v).origin {
                self.give(v, Place::Constant(self.constants.len()));
                self.constants.push(data.clone());
            }
        }
    }

    /// The updates after which nothing but updates runs: they write in place, for nothing can fail any more.
    fn find_last_updates(&mut self) {
        let g = self.graph;
        let mut state_of = rustc_hash::FxHashMap::default();
        for s in g.states() {
            if let Some(next) = s.next {
                state_of.insert(next, s.value);
            }
        }
        let whole = self.viewed();
        let mut read_later = vec![false; g.values().len()];
        g.outputs().iter().for_each(|o| read_later[whole[o.value.index()].index()] = true);
        for id in g.node_ids().rev() {
            let n = g.node(id);
            let mut pairs: SmallVec<[(usize, usize); 2]> = SmallVec::new();
            for (j, y) in n.y.iter().enumerate() {
                let Some(state) = state_of.get(y) else { return };
                let own = |&&(i, to): &&(usize, usize)| to == j && n.x.get(i) == Some(state);
                let pair = n.op.overwrite().iter().find(own);
                let once = n.x.iter().filter(|x| *x == state).count() == 1;
                match pair.filter(|_| once && !read_later[state.index()]) {
                    Some(pair) => pairs.push(*pair),
                    None => return,
                }
            }
            n.x.iter().for_each(|v| read_later[whole[v.index()].index()] = true);
            self.in_place[id.index()] = pairs;
        }
    }

    fn find_last_reads(&mut self) {
        let g = self.graph;
        let whole = self.viewed();
        let mut last: Vec<Option<NodeId>> = vec![None; whole.len()];
        for id in g.node_ids() {
            g.node(id).x.iter().for_each(|v| last[whole[v.index()].index()] = Some(id));
        }
        let results = g.outputs().iter().map(|o| o.value).chain(g.states().iter().filter_map(|s| s.next));
        results.for_each(|v| last[whole[v.index()].index()] = None);
        self.last_read = whole.iter().map(|w| last[w.index()]).collect();
    }

    /// The input whose temporary dies with this node, so that output `j` may take it over.
    fn dying(&self, id: NodeId, j: usize, x: &[(Root, usize, Fact, Layout)], taken: &[Option<usize>]) -> Option<usize> {
        let n = self.graph.node(id);
        let bytes = self.graph.fact(n.y[j]).bytes();
        let fits = |i: usize| {
            let (root, size, _, layout) = &x[i];
            matches!(root, Root::Temp(_))
                && self.graph.fact(n.x[i]).same_type(self.graph.fact(n.y[j]))
                && self.last_read[n.x[i].index()] == Some(id)
                && *size == bytes
                && layout.is_contiguous()
                && !taken.contains(&Some(i))
                && x.iter().filter(|o| o.0 == *root).count() == 1
        };
        n.op.overwrite().iter().find(|(i, to)| *to == j && fits(*i)).map(|p| p.0)
    }

    /// For each value, the one in whose storage it lies.
    fn viewed(&self) -> Vec<ValueId> {
        let g = self.graph;
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

    /// Values that are computed right into an output of the run.
    fn place_outputs(&mut self) {
        for (j, o) in self.graph.outputs().iter().enumerate() {
            let is_next = self.graph.states().iter().any(|s| s.next == Some(o.value));
            let slot = &mut self.into[o.value.index()];
            if self.graph.producer(o.value).is_some() && slot.is_none() && !is_next {
                *slot = Some(j);
            }
        }
    }

    fn located(&self, v: ValueId) -> Result<(Root, Layout)> {
        let at = self.at[v.index()].clone();
        at.ok_or_else(|| Error::new(ErrorKind::Internal, format!("{} has no place", self.graph.label(v))))
    }

    fn temp(&mut self, bytes: usize) -> usize {
        let now = self.steps.len();
        self.temps.push(Temp { bytes, first: now, last: now });
        self.temps.len() - 1
    }

    fn touch(&mut self, root: Root) {
        if let Root::Temp(t) = root {
            self.temps[t].last = self.steps.len();
        }
    }

    /// Bytes of the storage in which a value lies.
    fn storage_bytes(&self, root: Root) -> usize {
        match root {
            Root::Temp(t) => self.temps[t].bytes,
            Root::Given(Place::Input(i)) => self.x[i].bytes(),
            Root::Given(Place::Output(j)) => self.y[j].bytes(),
            Root::Given(Place::Constant(k)) => self.constants[k].bytes().len(),
            Root::Given(Place::Arena(_)) => 0,
        }
    }

    fn node(&mut self, id: NodeId) -> Result<()> {
        let g = self.graph;
        let n = g.node(id);
        let known = |i: &&usize| n.x.get(**i).is_none_or(|v| g.fact(*v).value.is_none());
        if let Some(i) = n.op.host_inputs().iter().find(known) {
            let text = format!("the value of input {i} decides the shape and must be known when the graph is compiled");
            return Err(Error::new(ErrorKind::NoValue, text).with_op(n.op.label()));
        }
        if let [x] = &n.x[..] {
            let (root, layout) = self.located(*x)?;
            if let Some(view) = n.op.view(&layout) {
                self.at[n.y[0].index()] = Some((root, view));
                return Ok(());
            }
        }
        let mut x: SmallVec<[(Root, usize, Fact, Layout); 4]> = SmallVec::new();
        for (i, v) in n.x.iter().enumerate() {
            let (root, layout) = self.located(*v)?;
            let fact = Self::plain(g.fact(*v));
            x.push(if n.op.layout(i) == LayoutReq::Contiguous && !layout.is_contiguous() {
                let copy = self.copied(root, &fact, layout);
                (copy, fact.bytes(), fact.clone(), fact.layout())
            } else {
                (root, self.storage_bytes(root), fact, layout)
            });
        }
        let facts: SmallVec<[&Fact; 4]> = x.iter().map(|x| &x.2).collect();
        let bytes = n.op.workspace(&facts, self.threads);
        drop(facts);
        let workspace = if bytes == 0 { None } else { Some(self.temp(bytes)) };
        x.iter().for_each(|x| self.touch(x.0));
        let mut y: SmallVec<[(Root, Fact, Option<usize>); 2]> = SmallVec::new();
        let mut taken: SmallVec<[Option<usize>; 2]> = SmallVec::new();
        for (j, v) in n.y.iter().enumerate() {
            let fact = Self::plain(g.fact(*v));
            let update = self.in_place[id.index()].iter().find(|p| p.1 == j).map(|p| p.0);
            let reuse = || self.into[v.index()].is_none().then(|| self.dying(id, j, &x, &taken)).flatten();
            let in_place = update.or_else(reuse);
            taken.push(in_place);
            let root = match (in_place, self.into[v.index()]) {
                (Some(i), _) => x[i].0,
                (None, Some(out)) => Root::Given(Place::Output(out)),
                (None, None) => Root::Temp(self.temp(fact.bytes())),
            };
            self.at[v.index()] = Some((root, fact.layout()));
            y.push((root, fact, in_place));
        }
        self.steps.push(Draft { op: n.op.clone(), x, y, workspace, node: Some(id) });
        Ok(())
    }

    /// A copy without gaps, in a temporary.
    fn copied(&mut self, root: Root, fact: &Fact, layout: Layout) -> Root {
        self.touch(root);
        let to = Root::Temp(self.temp(fact.bytes()));
        self.copy(root, fact, layout, to);
        to
    }

    fn copy(&mut self, root: Root, fact: &Fact, layout: Layout, to: Root) {
        let bytes = self.storage_bytes(root);
        self.touch(root);
        self.touch(to);
        let op = self.contiguous.clone();
        let (x, y) = ((root, bytes, fact.clone(), layout), (to, fact.clone(), None));
        self.steps.push(Draft {
            op,
            x: std::iter::once(x).collect(),
            y: std::iter::once(y).collect(),
            workspace: None,
            node: None,
        });
    }

    /// What was not computed into its place is copied there: outputs first, for they may be old versions of states.
    fn copy_results(&mut self) {
        let g = self.graph;
        let mut copies: Vec<(ValueId, usize)> = g.outputs().iter().enumerate().map(|(j, o)| (o.value, j)).collect();
        let nexts = g.states().iter().filter_map(|s| s.next);
        copies.extend(nexts.zip(self.updates.clone()).map(|(v, (_, j))| (v, j)));
        // Two states that swap read each other's old version, which the first copy would overwrite.
        let from_state = |b: &Self, v: ValueId| match &b.at[v.index()] {
            Some((Root::Given(Place::Output(k)), _)) => *k >= g.outputs().len(),
            _ => false,
        };
        for (v, j) in &mut copies {
            let Some((root, layout)) = self.at[v.index()].clone() else { continue };
            let to = Root::Given(Place::Output(*j));
            if root == to && layout.is_contiguous() {
                continue;
            }
            if *j >= g.outputs().len() && from_state(self, *v) {
                let fact = Self::plain(g.fact(*v));
                let saved = self.copied(root, &fact, layout);
                self.at[v.index()] = Some((saved, fact.layout()));
            }
        }
        for (v, j) in copies {
            let Some((root, layout)) = self.at[v.index()].clone() else { continue };
            let to = Root::Given(Place::Output(j));
            if root != to || !layout.is_contiguous() {
                self.copy(root, &Self::plain(g.fact(v)), layout, to);
            }
        }
    }

    fn finish(self, graph: &Arc<Graph>) -> Result<Executable> {
        let interval =
            |t: &Temp| Interval { storage: None, start: t.first, end: t.last, bytes: padded(t.bytes) as u64 };
        let lifetimes = Lifetimes::of(self.temps.iter().map(interval).collect(), self.steps.len());
        let laid = assign(&lifetimes, Effort::default());
        let place = |root: Root| match root {
            Root::Given(p) => p,
            Root::Temp(t) => Place::Arena(laid.offsets[t] as usize),
        };
        let steps: Vec<Step> = (self.steps.iter())
            .map(|d| Step {
                op: d.op.clone(),
                x: (d.x.iter())
                    .map(|(root, bytes, f, layout)| Operand {
                        place: place(*root),
                        bytes: *bytes,
                        dtype: f.dtype,
                        layout: layout.clone(),
                    })
                    .collect(),
                y: (d.y.iter())
                    .map(|(root, f, holds)| Target {
                        place: place(*root),
                        bytes: f.bytes(),
                        dtype: f.dtype,
                        shape: f.shape.clone(),
                        holds: *holds,
                    })
                    .collect(),
                workspace: d.workspace.map_or((0, 0), |t| (laid.offsets[t] as usize, self.temps[t].bytes)),
                node: d.node,
            })
            .collect();
        let arena_bytes = laid.arena_bytes as usize;
        steps.iter().try_for_each(|s| check(s, arena_bytes))?;
        let outputs = graph.outputs().len();
        let figures = MemoryFigures {
            arena_bytes,
            lower_bound_bytes: laid.lower_bound as usize,
            state_bytes: graph.state_bytes(),
            input_bytes: self.x[..graph.inputs().len()].iter().map(Fact::bytes).sum(),
            output_bytes: self.y[..outputs].iter().map(Fact::bytes).sum(),
            constant_bytes: self.constants.iter().map(|c| c.bytes().len()).sum(),
        };
        Ok(Executable {
            graph: graph.clone(),
            threads: self.threads,
            times: steps.iter().map(|_| AtomicU64::new(0)).collect(),
            steps,
            constants: self.constants,
            x: self.x,
            y: self.y,
            updates: self.updates,
            figures,
            ranges: std::sync::Mutex::default(),
        })
    }
}

/// Errors (Internal) unless a step's outputs and workspace overlap nothing else of it, inputs are only read, and all lies
/// within the workspace.
pub(super) fn check(s: &Step, arena_bytes: usize) -> Result<()> {
    let bad =
        |what: String| Err(Error::new(ErrorKind::Internal, format!("compiled step: {what}")).with_op(s.op.label()));
    let overlap = |a: (Place, usize), b: (Place, usize)| match (a.0, b.0) {
        (Place::Arena(p), Place::Arena(q)) => a.1 > 0 && b.1 > 0 && p < q + b.1 && q < p + a.1,
        (p, q) => p == q && a.1 > 0 && b.1 > 0,
    };
    let workspace = (Place::Arena(s.workspace.0), s.workspace.1);
    let writes: Vec<(Place, usize)> =
        s.y.iter().map(|t| (t.place, t.bytes)).chain(std::iter::once(workspace)).collect();
    for (k, w) in writes.iter().enumerate() {
        if writes[..k].iter().any(|o| overlap(*w, *o)) {
            return bad(format!("output {k} overlaps another"));
        }
        if matches!(w.0, Place::Input(_) | Place::Constant(_)) && w.1 > 0 {
            return bad(format!("output {k} is written to {:?}", w.0));
        }
        for (i, x) in s.x.iter().enumerate() {
            let taken = s.y.get(k).is_some_and(|t| t.holds == Some(i));
            if taken && x.place != w.0 || !taken && overlap((x.place, x.bytes), *w) {
                return bad(format!("input {i} and output {k} do not share memory as they should"));
            }
        }
    }
    let ends = writes.iter().copied().chain(s.x.iter().map(|x| (x.place, x.bytes)));
    for (place, bytes) in ends {
        if matches!(place, Place::Arena(at) if bytes > 0 && at + bytes > arena_bytes) {
            return bad("an operand leaves the workspace".to_owned());
        }
    }
    match s.x.iter().position(|x| !x.layout.fits(x.bytes / x.dtype.size_bytes())) {
        Some(i) => bad(format!("input {i} leaves its storage")),
        None => Ok(()),
    }
}
