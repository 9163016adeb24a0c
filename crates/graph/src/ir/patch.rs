//! Changes of a graph as data.

use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::{Graph, Node, NodeId, Origin, Output, Parts, State, Value, ValueId};

/// A value in a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PatchValue {
    /// A value of the graph to be patched.
    Old(ValueId),
    /// Output `output` of the patch's node `node`.
    New {
        /// Index into the patch's nodes.
        node: usize,
        /// Which output.
        output: usize,
    },
    /// A constant of the patch.
    Constant(usize),
}

/// A node that a patch adds.
#[derive(Clone, Debug)]
pub struct PatchNode {
    /// The op to apply.
    pub op: OpRef,
    /// To what; nodes of the patch stand before their readers.
    pub x: SmallVec<[PatchValue; 4]>,
    /// A node of the graph from which it takes scope and line.
    pub like: Option<NodeId>,
}

/// A change of a graph: new nodes, and the values that they replace. Nodes that nothing needs any more go.
#[derive(Clone, Debug, Default)]
pub struct Patch {
    nodes: Vec<PatchNode>,
    constants: Vec<Arc<HostTensor>>,
    replaced: Vec<(ValueId, PatchValue)>,
    /// The same by value.
    stands_for: FxHashMap<ValueId, PatchValue>,
    added: Vec<(Arc<str>, ValueId)>,
    removed: Vec<Arc<str>>,
    renamed: Vec<(ValueId, Option<Arc<str>>)>,
    /// Indices of states that go.
    frozen: Vec<usize>,
}

impl Patch {
    /// A patch that changes nothing.
    pub fn new() -> Patch {
        Patch::default()
    }

    /// True if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.replaced.is_empty()
            && self.added.is_empty()
            && self.removed.is_empty()
            && self.renamed.is_empty()
            && self.frozen.is_empty()
    }

    /// Adds a node with one output that is used; more are reached by [`PatchValue::New`].
    pub fn node(&mut self, op: impl Into<OpRef>, x: &[PatchValue], like: Option<NodeId>) -> PatchValue {
        self.nodes.push(PatchNode { op: op.into(), x: SmallVec::from_slice(x), like });
        PatchValue::New { node: self.nodes.len() - 1, output: 0 }
    }

    /// Adds a constant.
    pub fn constant(&mut self, data: HostTensor) -> PatchValue {
        self.constants.push(Arc::new(data));
        PatchValue::Constant(self.constants.len() - 1)
    }

    /// Whatever reads `old` reads `new`, the patch's own nodes excepted.
    pub fn replace(&mut self, old: ValueId, new: PatchValue) {
        self.replaced.push((old, new));
        self.stands_for.insert(old, new);
    }

    /// The value that replaces `v` so far, or `v` itself. A node of the patch that names a replaced value keeps it alive,
    /// and then both the value and its replacement are computed.
    pub fn latest(&self, v: ValueId) -> PatchValue {
        self.stands_for.get(&v).copied().unwrap_or(PatchValue::Old(v))
    }

    /// Makes a state that no run updates a constant: the graph has one state less, and those after it move up.
    pub fn freeze(&mut self, g: &Graph, state: usize, data: HostTensor) {
        let by = self.constant(data);
        if let Some(s) = g.states().get(state) {
            self.replace(s.value, by);
        }
        self.frozen.push(state);
    }

    /// Adds an output.
    pub fn add_output(&mut self, name: &str, value: ValueId) {
        self.added.push((name.into(), value));
    }

    /// Removes an output.
    pub fn remove_output(&mut self, name: &str) {
        self.removed.push(name.into());
    }

    /// Renames a value, or takes its name.
    pub fn rename(&mut self, value: ValueId, name: Option<&str>) {
        self.renamed.push((value, name.map(Into::into)));
    }
}

impl Graph {
    /// The graph with a patch applied, without the nodes and constants that no result needs.
    ///
    /// Errors: Value for a replacement of another dtype or shape, for an output or state that does not exist or a name
    /// that is taken, for a frozen state that is updated, for a circle; what inference finds in the new nodes.
    pub fn patched(&self, patch: &Patch) -> Result<Graph> {
        Rebuild::new(self, patch)?.run()
    }

    /// The graph with other facts for its inputs, everything inferred anew: another batch size, say. Graphs that ops own
    /// follow ([`Op::with_input_shapes`](remat_ops::Op::with_input_shapes)).
    ///
    /// Errors: Arity for another number of facts; what inference finds, where an op's own parameters fix a shape.
    pub fn with_inputs(&self, facts: &[Fact]) -> Result<Graph> {
        if facts.len() != self.inputs().len() {
            let text = format!("the graph has {} inputs, not {}", self.inputs().len(), facts.len());
            return Err(Error::new(ErrorKind::Arity, text));
        }
        let patch = Patch::new();
        let mut r = Rebuild::new(self, &patch)?;
        r.input_facts = Some(facts);
        r.run()
    }
}

/// A walk from the results back, which copies the needed nodes in order.
struct Rebuild<'a> {
    old: &'a Graph,
    patch: &'a Patch,
    input_facts: Option<&'a [Fact]>,
    replaced: FxHashMap<ValueId, PatchValue>,
    parts: Parts,
    /// Where values of the graph and of the patch are now.
    at: FxHashMap<PatchValue, ValueId>,
    node_at: FxHashMap<NodeId, NodeId>,
    names: FxHashMap<ValueId, Option<Arc<str>>>,
}

/// A node of the graph or of the patch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Old(NodeId),
    New(usize),
}

impl<'a> Rebuild<'a> {
    fn new(old: &'a Graph, patch: &'a Patch) -> Result<Self> {
        let mut replaced = FxHashMap::default();
        for (v, by) in &patch.replaced {
            if replaced.insert(*v, *by).is_some() {
                return Err(wrong(format!("{} is replaced twice", old.label(*v))));
            }
            let fact = match by {
                PatchValue::Old(by) => old.values().get(by.index()).map(|v| v.fact.clone()),
                PatchValue::Constant(i) => patch.constants.get(*i).map(|c| Fact::of(c)),
                PatchValue::New { .. } => continue,
            };
            same_type(old, *v, &fact.ok_or_else(|| wrong("a replacement that is not there"))?)?;
        }
        let names = patch.renamed.iter().cloned().collect();
        let (parts, at, node_at) = (Parts::default(), FxHashMap::default(), FxHashMap::default());
        Ok(Rebuild { old, patch, input_facts: None, replaced, parts, at, node_at, names })
    }

    fn run(mut self) -> Result<Graph> {
        for (i, v) in self.old.inputs().iter().enumerate() {
            let fact = self.input_facts.map_or_else(|| self.old.fact(*v).clone(), |f| f[i].clone());
            let new = self.value(Origin::Input(i), fact, Some(*v));
            self.parts.inputs.push(new);
        }
        let kept = self.kept_states()?;
        for (i, old) in kept.iter().enumerate() {
            let s = &self.old.states()[*old];
            let value = self.value(Origin::State(i), self.old.fact(s.value).clone(), Some(s.value));
            self.parts.states.push(State { value, next: None });
        }
        let outputs = self.outputs()?;
        let nexts: Vec<(usize, ValueId)> =
            kept.iter().enumerate().filter_map(|(i, old)| Some((i, self.old.states()[*old].next?))).collect();
        // The old order first, so that unchanged nodes stay in place. A node that must run exactly once stays
        // although nothing reads it: other ranks may wait for it.
        let once = self.old.nodes().iter().filter(|n| !n.op.repeatable()).filter_map(|n| n.y.first().copied());
        let results = outputs.iter().map(|(_, v)| *v).chain(nexts.iter().map(|(_, v)| *v)).chain(once);
        let mut needed = self.needed(results);
        needed.sort_by_key(|(rank, _)| *rank);
        for (_, which) in needed {
            self.copy(which)?;
        }
        for (name, v) in outputs {
            let value = self.resolve(PatchValue::Old(v), None)?;
            self.parts.outputs.push(Output { name, value });
        }
        for (i, v) in nexts {
            self.parts.states[i].next = Some(self.resolve(PatchValue::Old(v), None)?);
        }
        Graph::assemble(self.parts)
    }

    fn kept_states(&self) -> Result<Vec<usize>> {
        for i in &self.patch.frozen {
            match self.old.states().get(*i) {
                None => return Err(wrong(format!("no state {i}"))),
                Some(s) if s.next.is_some() => {
                    return Err(wrong(format!("state {} is updated", self.old.label(s.value))));
                }
                Some(_) => {}
            }
        }
        Ok((0..self.old.states().len()).filter(|i| !self.patch.frozen.contains(i)).collect())
    }

    fn outputs(&self) -> Result<Vec<(Arc<str>, ValueId)>> {
        let mut out: Vec<_> = self.old.outputs().iter().map(|o| (o.name.clone(), o.value)).collect();
        for name in &self.patch.removed {
            let at = out.iter().position(|o| o.0 == *name).ok_or_else(|| wrong(format!("no output `{name}`")))?;
            out.remove(at);
        }
        out.extend(self.patch.added.iter().cloned());
        Ok(out)
    }

    fn value(&mut self, origin: Origin, fact: Fact, old: Option<ValueId>) -> ValueId {
        let id = ValueId(self.parts.values.len() as u32);
        let own = old.and_then(|v| self.old.value(v).name.clone());
        let name = old.and_then(|v| self.names.get(&v).cloned()).unwrap_or(own);
        self.parts.values.push(Value { origin, fact, name });
        if let Some(v) = old {
            self.at.insert(PatchValue::Old(v), id);
        }
        id
    }

    /// The value that stands for `v` for a reader; a patch's own nodes read what they name.
    fn target(&self, mut v: PatchValue, reader: Option<usize>) -> PatchValue {
        if reader.is_some() {
            return v;
        }
        // A circle of replacements ends here and is found by `resolve`.
        for _ in 0..=self.replaced.len() {
            let PatchValue::Old(old) = v else { break };
            let Some(by) = self.replaced.get(&old) else { break };
            v = *by;
        }
        v
    }

    fn producer(&self, v: PatchValue) -> Option<Which> {
        match v {
            PatchValue::Old(v) => self.old.producer(v).map(Which::Old),
            PatchValue::New { node, .. } => Some(Which::New(node)),
            PatchValue::Constant(_) => None,
        }
    }

    fn reads(&self, which: Which) -> Vec<PatchValue> {
        match which {
            Which::Old(n) => self.old.node(n).x.iter().map(|v| self.target(PatchValue::Old(*v), None)).collect(),
            Which::New(i) => self.patch.nodes.get(i).map_or_else(Vec::new, |n| n.x.to_vec()),
        }
    }

    /// The nodes that the results need, each with its depth-first rank: inputs before readers.
    fn needed(&self, results: impl Iterator<Item = ValueId>) -> Vec<(usize, Which)> {
        let mut roots: Vec<Which> =
            results.filter_map(|v| self.producer(self.target(PatchValue::Old(v), None))).collect();
        // Old nodes in their old order as roots keep that order wherever the patch allows it.
        let mut live: rustc_hash::FxHashSet<Which> = roots.iter().copied().collect();
        let mut list = roots.clone();
        while let Some(w) = list.pop() {
            let after = match w {
                Which::Old(n) => self.old.node(n).after.to_vec(),
                Which::New(_) => Vec::new(),
            };
            let before = self.reads(w).into_iter().filter_map(|v| self.producer(v));
            for p in before.chain(after.into_iter().map(Which::Old)) {
                if live.insert(p) {
                    list.push(p);
                }
            }
        }
        roots = live.into_iter().collect();
        // A new node stands where the node like it stood.
        roots.sort_by_key(|w| match w {
            Which::Old(n) => (n.index(), 0),
            Which::New(i) => (self.patch.nodes[*i].like.map_or(usize::MAX, NodeId::index), i + 1),
        });
        self.ranked(&roots)
    }

    fn ranked(&self, roots: &[Which]) -> Vec<(usize, Which)> {
        let mut out: Vec<(usize, Which)> = Vec::with_capacity(roots.len());
        let mut seen: rustc_hash::FxHashSet<Which> = rustc_hash::FxHashSet::default();
        for root in roots {
            let mut stack = vec![(*root, false)];
            while let Some((w, ready)) = stack.pop() {
                if ready {
                    out.push((out.len(), w));
                    continue;
                }
                if !seen.insert(w) {
                    continue;
                }
                stack.push((w, true));
                let after = match w {
                    Which::Old(n) => self.old.node(n).after.to_vec(),
                    Which::New(_) => Vec::new(),
                };
                let mut before: Vec<Which> = self.reads(w).into_iter().filter_map(|v| self.producer(v)).collect();
                before.extend(after.into_iter().map(Which::Old));
                stack.extend(before.into_iter().rev().filter(|p| !seen.contains(p)).map(|p| (p, false)));
            }
        }
        out
    }

    fn resolve(&mut self, v: PatchValue, reader: Option<usize>) -> Result<ValueId> {
        let t = self.target(v, reader);
        if let Some(at) = self.at.get(&t) {
            return Ok(*at);
        }
        let data = match t {
            PatchValue::Old(v) => match self.old.values().get(v.index()).map(|v| &v.origin) {
                Some(Origin::Constant(c)) => c.clone(),
                _ => return Err(wrong("a replacement that leads in a circle, or a value of another graph")),
            },
            PatchValue::Constant(i) => {
                self.patch.constants.get(i).cloned().ok_or_else(|| wrong(format!("no constant {i}")))?
            }
            PatchValue::New { .. } => {
                return Err(wrong("a node that reads a later one, or an output that is not there"));
            }
        };
        let old = if let PatchValue::Old(v) = t { Some(v) } else { None };
        let id = self.value(Origin::Constant(data.clone()), Fact::of(&data), old);
        self.at.insert(t, id);
        Ok(id)
    }

    fn copy(&mut self, which: Which) -> Result<()> {
        let id = NodeId(self.parts.nodes.len() as u32);
        let (mut op, reads, like) = match which {
            Which::Old(n) => {
                let old = self.old.node(n);
                (old.op.clone(), old.x.iter().map(|v| PatchValue::Old(*v)).collect::<Vec<_>>(), Some(n))
            }
            Which::New(i) => {
                let n = &self.patch.nodes[i];
                (n.op.clone(), n.x.to_vec(), n.like)
            }
        };
        let reader = if let Which::New(i) = which { Some(i) } else { None };
        let x = reads.iter().map(|v| self.resolve(*v, reader)).collect::<Result<SmallVec<[ValueId; 4]>>>()?;
        let refs: SmallVec<[&Fact; 4]> = x.iter().map(|v| &self.parts.values[v.index()].fact).collect();
        if self.input_facts.is_some()
            && let Some(own) = op.with_input_shapes(&refs).map_err(|e| e.with_op(op.label()))?
        {
            op = own;
        }
        let facts = op.infer(&refs)?;
        drop(refs);
        let mut y = SmallVec::new();
        for (output, fact) in facts.into_iter().enumerate() {
            let old = match which {
                Which::Old(n) => self.old.node(n).y.get(output).copied(),
                Which::New(_) => None,
            };
            let value = self.value(Origin::Node { node: id, output }, fact, old);
            if let Which::New(node) = which {
                self.at.insert(PatchValue::New { node, output }, value);
            }
            y.push(value);
        }
        let (site, scope) = like.map_or((None, None), |n| (self.old.node(n).site, self.old.node(n).scope.clone()));
        let mut after = SmallVec::new();
        if let Which::Old(n) = which {
            after.extend(self.old.node(n).after.iter().filter_map(|a| self.node_at.get(a).copied()));
            self.node_at.insert(n, id);
        }
        self.parts.nodes.push(Node { op, x, y, after, site, scope });
        self.check_replaced(which)
    }

    /// Errors (Value) if a node of the patch stands for a value of another type.
    fn check_replaced(&self, which: Which) -> Result<()> {
        let Which::New(i) = which else { return Ok(()) };
        if self.input_facts.is_some() {
            return Ok(());
        }
        for (old, by) in &self.patch.replaced {
            let PatchValue::New { node, .. } = by else { continue };
            let Some(new) = self.at.get(by).filter(|_| *node == i) else { continue };
            same_type(self.old, *old, &self.parts.values[new.index()].fact)?;
        }
        Ok(())
    }
}

/// Errors (Value) unless `by` is the type of `v`.
fn same_type(g: &Graph, v: ValueId, by: &Fact) -> Result<()> {
    let f = g.fact(v);
    if f.same_type(by) {
        return Ok(());
    }
    Err(wrong(format!("{} is {}{}, its replacement {}{}", g.label(v), f.dtype, f.shape, by.dtype, by.shape)))
}

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Value, format!("patch: {}", text.into()))
}
