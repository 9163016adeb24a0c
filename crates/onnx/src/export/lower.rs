//! Nodes of a graph, one after the other.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use remat_graph::ir::{Graph, Node, NodeId, Origin, ValueId};
use remat_types::{DType, Error, ErrorKind, Fact, Result};

use super::Unexported;
use super::emit::{Emit, Name};
use super::rules;

/// The context of a rule: the model that it writes, and the inputs of its op.
pub(super) struct Cx<'e> {
    e: &'e mut Emit,
    names: Vec<Name>,
    /// The facts of the inputs.
    pub(super) x: Vec<Fact>,
    /// The facts of the outputs.
    pub(super) y: Vec<Fact>,
    used: Vec<bool>,
}

impl Deref for Cx<'_> {
    type Target = Emit;
    fn deref(&self) -> &Emit {
        self.e
    }
}

impl DerefMut for Cx<'_> {
    fn deref_mut(&mut self) -> &mut Emit {
        self.e
    }
}

impl Cx<'_> {
    /// Number of inputs.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The name of an input.
    pub(super) fn x(&self, i: usize) -> Result<Name> {
        self.names.get(i).cloned().ok_or_else(|| Error::new(ErrorKind::Arity, format!("no input {i}")))
    }

    /// The names of all inputs.
    pub(super) fn all(&self) -> Vec<Name> {
        self.names.clone()
    }

    /// The dtype of an input.
    pub(super) fn dtype(&self, i: usize) -> Result<DType> {
        Ok(self.fact(i)?.dtype)
    }

    /// The extents of an input.
    pub(super) fn dims(&self, i: usize) -> Result<Vec<usize>> {
        Ok(self.fact(i)?.shape.dims().to_vec())
    }

    pub(super) fn fact(&self, i: usize) -> Result<&Fact> {
        self.x.get(i).ok_or_else(|| Error::new(ErrorKind::Arity, format!("no input {i}")))
    }

    /// The fact of an output.
    pub(super) fn result(&self, j: usize) -> Result<&Fact> {
        self.y.get(j).ok_or_else(|| Error::new(ErrorKind::Internal, format!("no output {j}")))
    }

    /// Whether an output is read.
    pub(super) fn wants(&self, j: usize) -> bool {
        self.used.get(j).copied().unwrap_or(false)
    }

    /// The same model with other inputs: for an op that is written as another.
    pub(super) fn of<'c>(&'c mut self, names: Vec<Name>, x: Vec<Fact>, y: Vec<Fact>) -> Cx<'c> {
        let used = vec![true; y.len()];
        Cx { e: self.e, names, x, y, used }
    }
}

/// The error of what cannot be written.
pub(super) fn left_out(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::Value, reason)
}

/// Writes what gives the wanted values of a graph whose inputs have these names; the names of those. `wishes` are names for them.
///
/// What cannot be written is noted in [`Emit::failures`].
pub(super) fn lower(
    e: &mut Emit,
    g: &Graph,
    given: &[Name],
    wanted: &[ValueId],
    wishes: &HashMap<ValueId, String>,
) -> Result<Vec<Name>> {
    if given.len() != g.inputs().len() {
        return Err(Error::new(ErrorKind::Internal, "a graph was given another number of inputs"));
    }
    let needed = needed(g, wanted);
    let mut names: Vec<Option<Name>> = vec![None; g.values().len()];
    for (v, name) in g.inputs().iter().zip(given) {
        names[v.index()] = Some(name.clone());
    }
    let outer = e.scope.clone();
    for id in g.node_ids() {
        let n = g.node(id);
        if !n.y.iter().any(|v| needed[v.index()]) {
            continue;
        }
        let x = n.x.iter().map(|v| value(e, g, &mut names, *v)).collect::<Result<Vec<_>>>()?;
        e.scope = n.scope.clone().or_else(|| outer.clone());
        let used = n.y.iter().map(|v| needed[v.index()]).collect();
        let mark = e.mark();
        let made = node(e, g, id, x, used);
        for (j, v) in n.y.iter().enumerate().filter(|(_, v)| needed[v.index()]) {
            let own = made.get(j).cloned().unwrap_or_else(|| "".into());
            let wished = wishes.get(v).map(String::as_str).or(g.value(*v).name.as_deref());
            let held = names.iter().flatten().any(|name| *name == own);
            names[v.index()] = Some(match wished {
                Some(wished) if !held => e.rename(mark, &own, wished),
                _ => own,
            });
        }
    }
    e.scope = outer;
    wanted.iter().map(|v| value(e, g, &mut names, *v)).collect()
}

/// For each value whether it is read on the way to the wanted ones.
fn needed(g: &Graph, wanted: &[ValueId]) -> Vec<bool> {
    let mut needed = vec![false; g.values().len()];
    wanted.iter().for_each(|v| needed[v.index()] = true);
    for n in g.nodes().iter().rev() {
        if n.y.iter().any(|v| needed[v.index()]) {
            n.x.iter().for_each(|v| needed[v.index()] = true);
        }
    }
    needed
}

/// The name of a value; constants are written when they are first read.
fn value(e: &mut Emit, g: &Graph, names: &mut [Option<Name>], v: ValueId) -> Result<Name> {
    if let Some(name) = &names[v.index()] {
        return Ok(name.clone());
    }
    let Origin::Constant(data) = &g.value(v).origin else {
        return Err(Error::new(ErrorKind::Internal, format!("{} is read before it is there", g.label(v))));
    };
    let name = match e
        .parameters
        .get_mut(&**data)
        .and_then(Vec::pop)
        .or_else(|| g.value(v).name.as_deref().map(str::to_owned))
    {
        Some(own) => e.constant(data, &own),
        None => e.tensor_of(data),
    };
    names[v.index()] = Some(name.clone());
    Ok(name)
}

fn node(e: &mut Emit, g: &Graph, id: NodeId, x: Vec<Name>, used: Vec<bool>) -> Vec<Name> {
    let n = g.node(id);
    let facts = |of: &[ValueId]| of.iter().map(|v| g.fact(*v).clone()).collect::<Vec<_>>();
    let mut cx = Cx { e, names: x, x: facts(&n.x), y: facts(&n.y), used };
    match rules::emit(&n.op, &mut cx) {
        Ok(y) => y,
        Err(error) => {
            e.failures.push(Unexported {
                op: error.op().unwrap_or(n.op.label()).into(),
                place: place(n),
                reason: error.message().to_owned(),
            });
            Vec::new()
        }
    }
}

fn place(n: &Node) -> String {
    match (&n.scope, n.site) {
        (Some(scope), _) => scope.to_string(),
        (None, Some(site)) => site.to_string(),
        (None, None) => String::new(),
    }
}
