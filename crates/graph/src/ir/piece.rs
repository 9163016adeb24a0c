//! Pieces of a graph that run one after another.

use remat_types::{Error, ErrorKind, Layout, Result, SmallVec};

use super::{Builder, Graph, NodeId, Origin, ValueId};

/// How far a graph had grown at some moment: what it had then is its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Values.
    pub values: usize,
    /// Nodes.
    pub nodes: usize,
    /// States.
    pub states: usize,
    /// Inputs.
    pub inputs: usize,
}

impl Graph {
    /// How far it has grown.
    pub fn extent(&self) -> Extent {
        let (values, nodes) = (self.values().len(), self.nodes().len());
        Extent { values, nodes, states: self.states().len(), inputs: self.inputs().len() }
    }

    /// Errors (Value), with the first difference, unless this graph begins with all of `first`: the same inputs, states,
    /// constants and nodes under the same ids. What `first` gives back does not count.
    pub fn begins_with(&self, first: &Graph) -> Result<()> {
        let (own, other) = (self.extent(), first.extent());
        if own.values < other.values || own.nodes < other.nodes {
            return Err(differs(format!("{} nodes, and there were {}", own.nodes, other.nodes)));
        }
        for (i, (a, b)) in self.nodes().iter().zip(first.nodes()).enumerate() {
            if a.op != b.op || a.x != b.x || a.y != b.y || a.after != b.after {
                return Err(differs(format!("node {i} is `{}`, and was `{}`", a.op.label(), b.op.label())));
            }
        }
        for v in first.value_ids() {
            let (a, b) = (self.value(v), first.value(v));
            let same = match (&a.origin, &b.origin) {
                (Origin::Input(a), Origin::Input(b)) | (Origin::State(a), Origin::State(b)) => a == b,
                (Origin::Constant(a), Origin::Constant(b)) => a == b,
                // the nodes were compared
                (Origin::Node { .. }, Origin::Node { .. }) => true,
                _ => false,
            };
            if !same || !a.fact.same_type(&b.fact) {
                return Err(differs(format!("{} has another value or type", first.label(v))));
            }
        }
        Ok(())
    }

    /// Of the beginning of this graph, the values that the rest of it needs for `results` and for updates of states: what has
    /// to be handed over where the two run apart. Instead of a view stands what it is a view of, unless that is larger; small integers that inference
    /// knows are made anew. In order of definition.
    pub fn handed_over(&self, beginning: &Extent, results: &[ValueId]) -> Vec<ValueId> {
        let mut asked = vec![false; self.values().len()];
        let mut found = Vec::new();
        let next = self.states().iter().filter_map(|s| s.next);
        let mut list: Vec<ValueId> = results.iter().copied().chain(next).collect();
        while let Some(v) = list.pop() {
            let Some(id) = self.producer(v).filter(|_| !std::mem::replace(&mut asked[v.index()], true)) else {
                continue;
            };
            let source = self.viewed(v);
            if id.index() >= beginning.nodes || self.fact(v).value.is_some() {
                list.extend(&self.node(id).x);
            } else if self.producer(source).is_some() {
                let larger = self.fact(source).bytes() > self.fact(v).bytes();
                found.push(if larger { v } else { source });
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// What a value is a view of: itself where it is none.
    fn viewed(&self, mut v: ValueId) -> ValueId {
        let of = |v: ValueId| -> Option<ValueId> {
            let n = self.node(self.producer(v)?);
            let x = *n.x.first()?;
            n.op.view(&Layout::contiguous(self.fact(x).shape.clone())).map(|_| x)
        };
        while let Some(x) = of(v) {
            v = x;
        }
        v
    }

    /// The graph that gives back `results` under their names and updates the states, with the values `given` as further
    /// inputs instead of being computed. All inputs and states stay.
    ///
    /// Errors: Format for two results of one name.
    pub fn piece(&self, given: &[ValueId], results: &[(&str, ValueId)]) -> Result<Graph> {
        let b = Builder::raw();
        let mut at: Vec<Option<ValueId>> = vec![None; self.values().len()];
        let name = |v: ValueId| self.value(v).name.as_deref();
        for v in self.inputs() {
            at[v.index()] = Some(b.input(self.fact(*v).clone(), name(*v)));
        }
        for v in given {
            at[v.index()] = Some(b.input(self.fact(*v).clone(), name(*v)));
        }
        for s in self.states() {
            at[s.value.index()] = Some(b.state(self.fact(s.value).clone(), name(s.value)));
        }
        let next: Vec<(ValueId, ValueId)> = self.states().iter().filter_map(|s| Some((s.value, s.next?))).collect();
        let roots = results.iter().map(|r| r.1).chain(next.iter().map(|n| n.1));
        let needed = self.needed(roots, &at);
        for (n, _) in self.nodes().iter().zip(&needed).filter(|n| *n.1) {
            let x = n.x.iter().map(|v| self.placed(&b, *v, &mut at)).collect::<Result<SmallVec<[ValueId; 4]>>>()?;
            b.set_scope(n.scope.clone());
            let y = b.node(n.op.clone(), &x, n.site)?;
            // an output that is given stays the given one
            n.y.iter().zip(&y).for_each(|(v, y)| at[v.index()] = at[v.index()].or(Some(*y)));
            for on in n.after.iter().filter(|on| needed[on.index()]) {
                let on = self.node(*on).y.first().and_then(|v| at[v.index()]);
                if let (Some(y), Some(on)) = (y.first(), on) {
                    b.run_after(*y, on)?;
                }
            }
        }
        for (name, v) in results {
            b.output(self.placed(&b, *v, &mut at)?, name);
        }
        for (state, next) in next {
            b.set_state(self.placed(&b, state, &mut at)?, self.placed(&b, next, &mut at)?)?;
        }
        b.finish()
    }

    /// The nodes that have to run for these values, those before what has its place not counted.
    fn needed(&self, roots: impl Iterator<Item = ValueId>, at: &[Option<ValueId>]) -> Vec<bool> {
        let mut needed = vec![false; self.nodes().len()];
        let producer = |v: ValueId| self.producer(v).filter(|_| at[v.index()].is_none());
        let mut list: Vec<NodeId> = roots.filter_map(producer).collect();
        while let Some(id) = list.pop() {
            if !std::mem::replace(&mut needed[id.index()], true) {
                let n = self.node(id);
                list.extend(n.x.iter().filter_map(|v| producer(*v)));
                // what was ordered before it, unless that has run in an earlier piece
                let given = |n: &&NodeId| self.node(**n).y.iter().any(|v| at[v.index()].is_some());
                list.extend(n.after.iter().filter(|n| !given(n)));
            }
        }
        needed
    }

    /// Where a value is in the new graph; a constant comes there with its first reader.
    fn placed(&self, b: &Builder, v: ValueId, at: &mut [Option<ValueId>]) -> Result<ValueId> {
        if let (None, Origin::Constant(data)) = (at[v.index()], &self.value(v).origin) {
            at[v.index()] = Some(b.constant(data));
        }
        at[v.index()].ok_or_else(|| Error::new(ErrorKind::Internal, "a piece reads what it has not computed"))
    }
}

fn differs(text: String) -> Error {
    Error::new(ErrorKind::Value, text)
}
