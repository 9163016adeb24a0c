use remat_ops::pointwise::{Fused, FusedStep, Pointwise};
use remat_types::{Error, ErrorKind, Result, SmallVec};
use rustc_hash::{FxHashMap, FxHashSet};

use super::PassCx;
use crate::ir::{Graph, NodeId, Patch, PatchValue, ValueId};

/// Pointwise ops that follow one another become one op that goes through them tile by tile: what lies between them is
/// never written to memory.
///
/// A producer joins its readers if all of the group has one shape and no path leads out of the group and back in. It
/// may have readers elsewhere, for which the group then gives its value as well. What would keep more bytes alive across
/// other work than it saves is left alone: fusing moves the producer to where its last reader stands.
pub fn fuse(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut f = Fuse::new(g);
    for id in g.node_ids().rev() {
        if f.can_join(id) && f.group_of[id.index()].is_none() {
            f.grow(id);
        }
    }
    f.patch(cx)
}

struct Fuse<'g> {
    g: &'g Graph,
    op: Vec<Option<Pointwise>>,
    /// Index into `groups`.
    group_of: Vec<Option<usize>>,
    groups: Vec<Vec<NodeId>>,
    is_result: Vec<bool>,
}

/// The inputs and outputs of a group.
struct Edges {
    x: Vec<ValueId>,
    y: Vec<ValueId>,
}

impl<'g> Fuse<'g> {
    fn new(g: &'g Graph) -> Self {
        let mut is_result = vec![false; g.values().len()];
        let nexts = g.states().iter().filter_map(|s| s.next);
        g.outputs().iter().map(|o| o.value).chain(nexts).for_each(|v| is_result[v.index()] = true);
        let ordered: FxHashSet<NodeId> = g.nodes().iter().flat_map(|n| n.after.iter().copied()).collect();
        let op = g.node_ids().map(|id| {
            let n = g.node(id);
            let first = n.x.first().map(|v| g.fact(*v).dtype)?;
            let free = n.after.is_empty() && !ordered.contains(&id) && g.fact(n.y[0]).elems() > 0;
            Pointwise::fusible(&n.op, first).filter(|_| free)
        });
        let op = op.collect();
        Fuse { g, op, group_of: vec![None; g.nodes().len()], groups: Vec::new(), is_result }
    }

    /// True for a pointwise op whose value something needs.
    fn can_join(&self, id: NodeId) -> bool {
        let y = self.g.node(id).y[0];
        self.op[id.index()].is_some() && (self.is_result[y.index()] || !self.g.readers(y).is_empty())
    }

    /// Takes producers into the group that ends with `last`, nearest first.
    fn grow(&mut self, last: NodeId) {
        let mut members = vec![last];
        loop {
            let mut candidates: Vec<NodeId> =
                self.edges(&members).x.iter().filter_map(|v| self.g.producer(*v)).collect();
            candidates.sort();
            let joins = |p: &&NodeId| self.joins(&members, **p);
            let Some(p) = candidates.iter().rev().find(joins).copied() else { break };
            members.push(p);
        }
        if members.len() > 1 {
            members.sort();
            members.iter().for_each(|m| self.group_of[m.index()] = Some(self.groups.len()));
            self.groups.push(members);
        }
    }

    fn joins(&self, members: &[NodeId], p: NodeId) -> bool {
        let g = self.g;
        let y = g.node(p).y[0];
        if !self.can_join(p) || self.group_of[p.index()].is_some() || g.fact(y).shape != self.shape(members) {
            return false;
        }
        let with: Vec<NodeId> = members.iter().copied().chain([p]).collect();
        let edges = self.edges(&with);
        let escapes = edges.y.contains(&y);
        with.len() <= Fused::MAX_STEPS
            && edges.x.len() <= Fused::MAX_INPUTS
            && edges.y.len() <= Fused::MAX_OUTPUTS
            && (self.holds(p) <= if escapes { 0 } else { g.fact(y).bytes() } || self.is_near(members, p))
            && !self.returns(&with)
    }

    /// True if a path leads out of `members` and back in, where it may enter a group at one node and leave it at another.
    fn returns(&self, members: &[NodeId]) -> bool {
        let g = self.g;
        // A path goes on to later nodes, save that it may go back within a group: no further than this, if it returns.
        let mut limit = members.iter().max().copied();
        while let Some(next) = self
            .groups
            .iter()
            .filter(|s| s.first() <= limit.as_ref() && s.last() > limit.as_ref())
            .map(|s| s.last().copied())
            .max()
        {
            limit = next;
        }
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let leave = |n: NodeId, list: &mut Vec<NodeId>| {
            let readers = g.node(n).y.iter().flat_map(|y| g.readers(*y).iter().copied());
            list.extend(readers.filter(|r| Some(*r) <= limit));
        };
        let mut list = Vec::new();
        members.iter().for_each(|m| leave(*m, &mut list));
        list.retain(|n| !members.contains(n));
        while let Some(n) = list.pop() {
            if members.contains(&n) {
                return true;
            }
            if !seen.insert(n) {
                continue;
            }
            match self.group_of[n.index()] {
                Some(k) => self.groups[k].iter().for_each(|m| leave(*m, &mut list)),
                None => leave(n, &mut list),
            }
        }
        false
    }

    fn shape(&self, members: &[NodeId]) -> remat_types::Shape {
        self.g.fact(self.g.node(members[0]).y[0]).shape.clone()
    }

    /// Bytes of what dies with `p`: it would live on until the group runs.
    fn holds(&self, p: NodeId) -> usize {
        let g = self.g;
        let n = g.node(p);
        let dies = |(i, v): (usize, &ValueId)| {
            let computed = g.producer(*v).is_some() && !self.is_result[v.index()];
            let last = computed && g.readers(*v).last() == Some(&p) && !n.x[..i].contains(v);
            if last { g.fact(*v).bytes() } else { 0 }
        };
        n.x.iter().enumerate().map(dies).sum()
    }

    /// True if only pointwise work and views lie between `p` and the last of the group.
    fn is_near(&self, members: &[NodeId], p: NodeId) -> bool {
        let last = members.iter().max().copied().unwrap_or(p);
        let light = |n: NodeId| {
            let node = self.g.node(n);
            self.op[n.index()].is_some()
                || node.x.len() == 1 && node.op.view(&self.g.fact(node.x[0]).layout()).is_some()
        };
        self.g.node_ids().skip(p.index() + 1).take_while(|n| *n < last).all(light)
    }

    /// Members in any order.
    fn edges(&self, members: &[NodeId]) -> Edges {
        let g = self.g;
        let own = |v: ValueId| g.producer(v).is_some_and(|p| members.contains(&p));
        let mut edges = Edges { x: Vec::new(), y: Vec::new() };
        for m in members {
            let n = g.node(*m);
            for v in &n.x {
                if !own(*v) && !edges.x.contains(v) {
                    edges.x.push(*v);
                }
            }
            let read_outside = g.readers(n.y[0]).iter().any(|r| !members.contains(r));
            if self.is_result[n.y[0].index()] || read_outside {
                edges.y.push(n.y[0]);
            }
        }
        edges
    }

    /// The groups as nodes of a patch, each after those that it reads.
    fn patch(&self, cx: &PassCx<'_>) -> Result<Patch> {
        let mut patch = Patch::new();
        let mut new: FxHashMap<ValueId, PatchValue> = FxHashMap::default();
        let (mut begun, mut done) = (vec![false; self.groups.len()], vec![false; self.groups.len()]);
        for k in 0..self.groups.len() {
            let mut stack = vec![k];
            while let Some(&k) = stack.last() {
                let before: Vec<usize> = self.needs(k).into_iter().filter(|p| !done[*p]).collect();
                if done[k] || before.is_empty() {
                    stack.pop();
                    if !std::mem::replace(&mut done[k], true) {
                        self.add(cx, k, &mut patch, &mut new);
                    }
                } else if std::mem::replace(&mut begun[k], true) {
                    return Err(Error::new(ErrorKind::Internal, "two fused ops wait for each other"));
                } else {
                    stack.extend(before);
                }
            }
        }
        Ok(patch)
    }

    /// The groups on which a group depends, directly or through other nodes.
    fn needs(&self, k: usize) -> Vec<usize> {
        let mut seen: FxHashSet<NodeId> = FxHashSet::default();
        let edges = self.edges(&self.groups[k]);
        let mut list: Vec<NodeId> = edges.x.iter().filter_map(|v| self.g.producer(*v)).collect();
        let mut found = Vec::new();
        while let Some(n) = list.pop() {
            if !seen.insert(n) {
                continue;
            }
            if let Some(p) = self.group_of[n.index()] {
                found.push(p);
                continue;
            }
            list.extend(self.g.node(n).x.iter().filter_map(|v| self.g.producer(*v)));
        }
        found
    }

    /// A group as a node of the patch, if the device has a kernel for it.
    fn add(&self, cx: &PassCx<'_>, k: usize, patch: &mut Patch, new: &mut FxHashMap<ValueId, PatchValue>) {
        let members = &self.groups[k];
        let edges = self.edges(members);
        let mut number: FxHashMap<ValueId, u16> = (0u16..).zip(&edges.x).map(|(i, v)| (*v, i)).collect();
        let mut steps = Vec::with_capacity(members.len());
        let inputs = edges.x.len() as u16;
        for (m, at) in members.iter().zip(inputs..) {
            let n = self.g.node(*m);
            let Some(op) = self.op[m.index()].clone() else { continue };
            steps.push(FusedStep { op, x: n.x.iter().map(|v| number[v]).collect() });
            number.insert(n.y[0], at);
        }
        let outputs: SmallVec<[u16; 2]> = edges.y.iter().map(|v| number[v] - inputs).collect();
        let x: Vec<PatchValue> = edges.x.iter().map(|v| *new.get(v).unwrap_or(&PatchValue::Old(*v))).collect();
        let op = Fused { inputs, steps, outputs };
        if !cx.supports(self.g, &op, &edges.x) {
            return;
        }
        let node = patch.node(op, &x, members.last().copied());
        let PatchValue::New { node, .. } = node else { return };
        for (output, v) in edges.y.iter().enumerate() {
            let by = PatchValue::New { node, output };
            patch.replace(*v, by);
            new.insert(*v, by);
        }
    }
}
