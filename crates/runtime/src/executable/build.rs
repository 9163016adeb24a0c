//! From a graph to a list of calls on storages that have no offsets yet.

use std::sync::Arc;

use remat_graph::ir::{Graph, NodeId, Origin, ValueId};
use remat_ops::shape::Contiguous;
use remat_ops::{LayoutReq, OpRef};
use remat_types::{Error, ErrorKind, Fact, Facts, HostTensor, Layout, Result, SmallVec};

use crate::control_flow;
use remat_device::KernelSet;
use remat_device::program::Flow;
use remat_device::program::Place;

/// The calls of a graph, in its own order. With `takeover`, outputs take the storage of temporaries that die with the
/// call. That needs less memory, but an input that was taken over cannot be read again.
pub(super) fn lower(graph: &Graph, kernels: &Arc<dyn KernelSet>, takeover: bool, parts: &Parts<'_>) -> Result<Lowered> {
    let mut b = Build::new(graph, kernels, takeover);
    b.place_given();
    b.find_last_updates();
    b.find_last_reads();
    b.place_outputs();
    for n in graph.node_ids() {
        b.end_parts(parts, n.index());
        b.node(n)?;
    }
    b.end_parts(parts, graph.nodes().len());
    b.copy_results();
    b.out.parts.push(b.out.calls.len());
    Ok(b.out)
}

/// The cuts of a run: for each part, its outputs and the number of nodes up to its end. Both are empty for a run in one
/// piece.
#[derive(Default)]
pub(super) struct Parts<'p> {
    pub(super) outputs: &'p [Vec<usize>],
    pub(super) ends: &'p [usize],
}

/// The place of a storage before the offsets are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Root {
    Given(Place),
    /// Index into the temporaries.
    Temp(usize),
}

/// A storage that lives within a run, from its first call to its last.
#[derive(Clone)]
pub(super) struct Temp {
    pub(super) bytes: usize,
    pub(super) first: usize,
    pub(super) last: usize,
}

/// Calls whose temporaries have no offsets yet.
#[derive(Default)]
pub(super) struct Lowered {
    pub(super) calls: Vec<UnplacedCall>,
    pub(super) temps: Vec<Temp>,
    pub(super) constants: Vec<Arc<HostTensor>>,
    pub(super) x: Vec<Fact>,
    pub(super) y: Facts,
    /// (input, output) of each state with a next version.
    pub(super) updates: Vec<(usize, usize)>,
    /// For each part, the number of calls up to its end.
    pub(super) parts: Vec<usize>,
}

struct Build<'g> {
    graph: &'g Graph,
    kernels: &'g Arc<dyn KernelSet>,
    takeover: bool,
    /// The place of each value that has one.
    at: Vec<Option<(Root, Layout)>>,
    out: Lowered,
    /// For each node the (input, output) pairs that write a state in place.
    in_place: Vec<SmallVec<[(usize, usize); 2]>>,
    /// For each value, the last node that reads its storage or a view of it. `None` if the run returns the value.
    last_read: Vec<Option<NodeId>>,
    /// For each value, the output of the run into which it is computed.
    into: Vec<Option<usize>>,
    /// Outputs that were copied to their places at the end of a part.
    copied: Vec<usize>,
    contiguous: OpRef,
}

/// A call whose temporaries have no offsets yet.
pub(super) struct UnplacedCall {
    pub(super) op: OpRef,
    /// The programs that run instead of a kernel, if the op owns graphs.
    pub(super) flow: Option<Flow>,
    /// Storage, its bytes, fact and layout.
    pub(super) x: SmallVec<[(Root, usize, Fact, Layout); 4]>,
    /// Storage, fact, and the input whose storage it takes.
    pub(super) y: SmallVec<[(Root, Fact, Option<usize>); 2]>,
    /// (output, input): temporaries that the output may take over where nothing reads the input again.
    pub(super) may_take: SmallVec<[(usize, usize); 2]>,
    /// The temporary that is its workspace.
    pub(super) workspace: Option<usize>,
    pub(super) node: Option<NodeId>,
}

impl<'g> Build<'g> {
    fn new(graph: &'g Graph, kernels: &'g Arc<dyn KernelSet>, takeover: bool) -> Self {
        Build {
            graph,
            kernels,
            takeover,
            at: vec![None; graph.values().len()],
            out: Lowered::default(),
            in_place: vec![SmallVec::new(); graph.nodes().len()],
            last_read: vec![None; graph.values().len()],
            into: vec![None; graph.values().len()],
            copied: Vec::new(),
            contiguous: OpRef::new(Contiguous),
        }
    }

    fn plain(f: &Fact) -> Fact {
        Fact::new(f.dtype, f.shape.clone())
    }

    fn give(&mut self, v: ValueId, place: Place) {
        self.at[v.index()] = Some((Root::Given(place), self.graph.fact(v).layout()));
    }

    /// Places inputs, states and constants. An updated state lies in its output from the start.
    fn place_given(&mut self) {
        let g = self.graph;
        for v in g.inputs() {
            self.give(*v, Place::Input(self.out.x.len()));
            self.out.x.push(Self::plain(g.fact(*v)));
        }
        self.out.y.extend(g.outputs().iter().map(|o| Self::plain(g.fact(o.value))));
        for s in g.states() {
            let fact = Self::plain(g.fact(s.value));
            if s.next.is_some() {
                self.out.updates.push((self.out.x.len(), self.out.y.len()));
                self.give(s.value, Place::Output(self.out.y.len()));
                self.out.y.push(fact.clone());
            } else {
                self.give(s.value, Place::Input(self.out.x.len()));
            }
            self.out.x.push(fact);
        }
        for v in g.value_ids() {
            if let Origin::Constant(data) = &g.value(v).origin {
                self.give(v, Place::Constant(self.out.constants.len()));
                self.out.constants.push(data.clone());
            }
        }
    }

    /// Finds the updates after which only updates run. They write in place: nothing can fail any more.
    fn find_last_updates(&mut self) {
        let g = self.graph;
        let mut state_of = rustc_hash::FxHashMap::default();
        for s in g.states() {
            if let Some(next) = s.next {
                state_of.insert(next, s.value);
            }
        }
        let whole = self.graph.storages();
        let mut read_later = vec![false; g.values().len()];
        g.outputs().iter().for_each(|o| read_later[whole[o.value.index()].index()] = true);
        for id in g.node_ids().rev() {
            let n = g.node(id);
            let mut pairs: SmallVec<[(usize, usize); 2]> = SmallVec::new();
            for (j, y) in n.y.iter().enumerate() {
                let Some(state) = state_of.get(y) else { return };
                let own = |&&(i, to): &&(usize, usize)| to == j && n.x.get(i) == Some(state);
                let pair = self.kernels.overwrite(&*n.op).iter().find(own);
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
        let whole = self.graph.storages();
        let mut last: Vec<Option<NodeId>> = vec![None; whole.len()];
        for id in g.node_ids() {
            g.node(id).x.iter().for_each(|v| last[whole[v.index()].index()] = Some(id));
        }
        let results = g.outputs().iter().map(|o| o.value).chain(g.states().iter().filter_map(|s| s.next));
        results.for_each(|v| last[whole[v.index()].index()] = None);
        self.last_read = whole.iter().map(|w| last[w.index()]).collect();
    }

    /// The input whose temporary dies with this node and that output `j` may take over.
    fn dying(&self, id: NodeId, j: usize, x: &[(Root, usize, Fact, Layout)], taken: &[Option<usize>]) -> Option<usize> {
        if !self.takeover {
            return None;
        }
        let n = self.graph.node(id);
        let dies = |i: usize| self.last_read[n.x[i].index()] == Some(id) && !taken.contains(&Some(i));
        self.kernels
            .overwrite(&*n.op)
            .iter()
            .find(|(i, to)| *to == j && dies(*i) && self.fits(id, j, *i, x))
            .map(|p| p.0)
    }

    /// True if output `j` could use the temporary of input `i`.
    fn fits(&self, id: NodeId, j: usize, i: usize, x: &[(Root, usize, Fact, Layout)]) -> bool {
        let (n, (root, size, _, layout)) = (self.graph.node(id), &x[i]);
        let y = self.graph.fact(n.y[j]);
        matches!(root, Root::Temp(_))
            && self.graph.fact(n.x[i]).same_type(y)
            && *size == y.bytes()
            && layout.is_contiguous()
            && x.iter().filter(|o| o.0 == *root).count() == 1
    }

    /// The takeovers from which the planner may choose.
    fn may_take(&self, id: NodeId, x: &[(Root, usize, Fact, Layout)]) -> SmallVec<[(usize, usize); 2]> {
        if self.takeover {
            return SmallVec::new();
        }
        let pairs = self.kernels.overwrite(&*self.graph.node(id).op).iter().map(|&(i, j)| (j, i));
        pairs.filter(|&(j, i)| self.fits(id, j, i, x)).collect()
    }

    /// Finds the values that are computed directly into an output of the run.
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
        let now = self.out.calls.len();
        self.out.temps.push(Temp { bytes, first: now, last: now });
        self.out.temps.len() - 1
    }

    fn touch(&mut self, root: Root) {
        if let Root::Temp(t) = root {
            self.out.temps[t].last = self.out.calls.len();
        }
    }

    /// Bytes of the storage in which a value lies.
    fn storage_bytes(&self, root: Root) -> usize {
        match root {
            Root::Temp(t) => self.out.temps[t].bytes,
            Root::Given(Place::Input(i)) => self.out.x[i].bytes(),
            Root::Given(Place::Output(j)) => self.out.y[j].bytes(),
            Root::Given(Place::Constant(k)) => self.out.constants[k].bytes().len(),
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
            x.push(if self.kernels.layout(&*n.op, i) == LayoutReq::Contiguous && !layout.is_contiguous() {
                let copy = self.copied(root, &fact, layout);
                (copy, fact.bytes(), fact.clone(), fact.layout())
            } else {
                (root, self.storage_bytes(root), fact, layout)
            });
        }
        let facts: SmallVec<[&Fact; 4]> = x.iter().map(|x| &x.2).collect();
        let flow = control_flow::flow(&n.op, self.kernels);
        let bytes = flow.as_ref().map_or_else(|| self.kernels.workspace(&*n.op, &facts), Flow::workspace_bytes);
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
        let is_temp = |j: usize| matches!(y[j], (Root::Temp(_), _, None));
        let may_take = self.may_take(id, &x).into_iter().filter(|p| is_temp(p.0)).collect();
        self.out.calls.push(UnplacedCall { op: n.op.clone(), flow, x, y, may_take, workspace, node: Some(id) });
        Ok(())
    }

    /// Copies a value to a contiguous temporary.
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
        self.out.calls.push(UnplacedCall {
            op,
            flow: None,
            x: std::iter::once(x).collect(),
            y: std::iter::once(y).collect(),
            may_take: SmallVec::new(),
            workspace: None,
            node: None,
        });
    }

    /// Ends the parts that have `nodes` nodes, except for the last part. Outputs that were not computed at their places
    /// are copied there.
    fn end_parts(&mut self, parts: &Parts<'_>, nodes: usize) {
        while self.out.parts.len() + 1 < parts.ends.len() && parts.ends[self.out.parts.len()] == nodes {
            for &j in &parts.outputs[self.out.parts.len()] {
                self.copy_to_output(self.graph.outputs()[j].value, j);
                self.copied.push(j);
            }
            self.out.parts.push(self.out.calls.len());
        }
    }

    fn copy_to_output(&mut self, v: ValueId, j: usize) {
        let Some((root, layout)) = self.at[v.index()].clone() else { return };
        let to = Root::Given(Place::Output(j));
        if root != to || !layout.is_contiguous() {
            self.copy(root, &Self::plain(self.graph.fact(v)), layout, to);
        }
    }

    /// Copies results that were not computed at their places. Outputs go first: they may be old versions of states.
    fn copy_results(&mut self) {
        let g = self.graph;
        let outputs = g.outputs().iter().enumerate().map(|(j, o)| (o.value, j));
        let mut copies: Vec<(ValueId, usize)> = outputs.filter(|(_, j)| !self.copied.contains(j)).collect();
        let nexts = g.states().iter().filter_map(|s| s.next);
        copies.extend(nexts.zip(self.out.updates.clone()).map(|(v, (_, j))| (v, j)));
        // Two states that swap read each other's old version. The first copy would overwrite one.
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
        copies.into_iter().for_each(|(v, j)| self.copy_to_output(v, j));
    }
}
