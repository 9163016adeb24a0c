//! What a traced function is to this module: a graph, and where its states come from.

use std::sync::Arc;

use remat_graph::ir::{Graph, Node, Origin, ValueId};
use remat_types::{CallSite, Error, ErrorKind, Fact, Result};

use super::{Form, SegmentRun, freeze};
use crate::eager::trace::{GraphBreak, Guard, HostInput};
use crate::eager::{Handle, TensorId};

/// A tensor that outlives runs and has versions: what a parameter is to a compiled function. Clones are the same cell.
pub trait VersionedCell: Clone + Send + Sync + 'static {
    /// Where it is: the same for clones of one cell, and for no other.
    fn address(&self) -> usize;
    /// The present version; `None` if the device was closed while it was being updated.
    fn version(&self) -> Option<Handle>;
    /// The name of the present version.
    fn version_id(&self) -> Option<TensorId>;
}

/// Where a state of the graph comes from at each run.
#[derive(Clone, Debug)]
pub enum State<C> {
    /// A tensor that the function uses and never replaces.
    Fixed(Handle),
    /// A cell that is read.
    Read(C),
    /// A cell whose next version the run makes.
    Updated(C),
}

impl<C: VersionedCell> State<C> {
    /// Its present version. Errors (Closed): there is none.
    pub fn version(&self) -> Result<Handle> {
        let lost = || Error::new(ErrorKind::Closed, "the device was closed while a parameter was being updated");
        match self {
            State::Fixed(h) => Ok(h.clone()),
            State::Read(cell) | State::Updated(cell) => cell.version().ok_or_else(lost),
        }
    }

    /// True for states of one cell, whatever becomes of it.
    pub(super) fn is_the_state_of(&self, other: &State<C>) -> bool {
        match (self, other) {
            (State::Fixed(a), State::Fixed(b)) => a.id() == b.id(),
            (State::Read(a) | State::Updated(a), State::Read(b) | State::Updated(b)) => a.address() == b.address(),
            _ => false,
        }
    }

    /// True for states of one cell that are used alike.
    pub(super) fn is_used_like(&self, other: &State<C>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.is_the_state_of(other)
    }
}

/// What the owner of a function does once a run of a form has been queued.
pub type AfterRun = Box<dyn Fn() + Send + Sync>;

/// A function at some input types, as a trace found it.
#[derive(Clone)]
pub struct FunctionTrace<C> {
    /// What it computes: the inputs are the function's and then the host inputs.
    pub graph: Graph,
    /// Where the graph's states come from.
    pub states: Vec<State<C>>,
    /// What gives the inputs after the function's.
    pub host_inputs: Vec<HostInput>,
    /// All true as long as the graph stands for the function.
    pub guards: Arc<Vec<Guard>>,
    /// True if the function ends a step.
    pub marks_step: bool,
    /// For each output, whether a gradient would pass it to a tensor from outside. The caller's to say and to heed.
    pub needs_gradient: Vec<bool>,
    /// Where it asked for sizes that only a run knows; at the last, the trace may have ended.
    pub cuts: Vec<GraphBreak>,
    /// What follows every run of the whole function, in order. The caller's to do.
    pub after: Arc<Vec<AfterRun>>,
    /// Which of the function's calls traced it, counted from 1.
    pub number: usize,
}

impl<C: VersionedCell> FunctionTrace<C> {
    /// Errors (Value), with what differs, unless `again` found the same: [`CompileOptions::check_trace`](super::CompileOptions).
    pub fn check_same(&self, again: &Self) -> Result<()> {
        let (a, b) = (&self.graph, &again.graph);
        let results = |g: &Graph| {
            let outputs = g.outputs().iter().map(|o| Some(o.value));
            outputs.chain(g.states().iter().map(|s| s.next)).collect::<Vec<_>>()
        };
        let alike =
            self.takes_the_same(again) && self.needs_gradient == again.needs_gradient && results(a) == results(b);
        let found = b.begins_with(a).and_then(|()| a.begins_with(b)).and_then(|()| match alike {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Value, "it takes other tensors from outside, or gives others")),
        });
        found.map_err(|e| {
            let text = format!(
                "the function does not do the same when it is traced a second time ({}): it reads something that changes from \
                 call to call, such as a clock, numbers drawn on the host, an iterator, or state that it writes. Every later \
                 run would have what the first call had; give it to the function as an argument",
                e.message()
            );
            let e = Error::new(ErrorKind::Value, text);
            // a number of the host is a constant, which the first of its readers knows the line of
            let is_other = |v: &ValueId| match (&a.value(*v).origin, &b.value(*v).origin) {
                (Origin::Constant(x), Origin::Constant(y)) => x != y,
                _ => false,
            };
            let differs =
                |(m, n): &(&Node, &Node)| m.op != n.op || m.x != n.x || m.x.iter().any(is_other);
            let site = a.nodes().iter().zip(b.nodes()).find(differs).and_then(|(_, n)| n.site);
            site.map_or(e.clone(), |s| e.with_call_site(s))
        })
    }

    /// True for a trace at another size that uses the same tensors from outside, alike.
    pub(super) fn takes_the_same(&self, other: &Self) -> bool {
        let same = |(a, b): (&State<C>, &State<C>)| a.is_used_like(b);
        let counts = |t: &Self| (t.states.len(), t.host_inputs.len(), t.marks_step);
        counts(self) == counts(other) && self.cuts == other.cuts && self.states.iter().zip(&other.states).all(same)
    }
}

/// A function that can be compiled: this module says when it is traced and run, its owner how.
pub trait Function {
    /// What its states are cells of.
    type Cell: VersionedCell;

    /// Traces it for inputs of these facts and sizes that are known. Errors: those of the function.
    fn trace(&mut self, facts: &[Fact], sizes: &[usize]) -> Result<FunctionTrace<Self::Cell>>;

    /// Runs a form of it. Errors: those of its ops.
    fn run(&self, form: &Form<Self::Cell>, x: &[&Handle], run: &mut SegmentRun, site: CallSite) -> Result<Vec<Handle>>;
}

/// The graph with the states that it only reads as constants, and the states that are left. The guards are those of the
/// versions that were taken.
pub(super) fn frozen<C: VersionedCell>(
    g: &Graph,
    states: Vec<State<C>>,
    guards: &mut Vec<Guard>,
) -> Result<(Graph, Vec<State<C>>)> {
    let handle = |s: &State<C>| match s {
        State::Updated(_) => None,
        State::Fixed(h) => Some(h.clone()),
        State::Read(cell) => cell.version(),
    };
    let (graph, left) = freeze(g, |i| {
        let Some(handle) = handle(&states[i]) else { return Ok(None) };
        let value = handle.channel().value(&handle)?;
        if let State::Read(cell) = &states[i] {
            let (cell, taken) = (cell.clone(), handle.id());
            guards.push(Box::new(move || cell.version_id() == Some(taken)));
        }
        Ok(Some(value))
    })?;
    let mut states: Vec<Option<State<C>>> = states.into_iter().map(Some).collect();
    Ok((graph, left.iter().filter_map(|i| states[*i].take()).collect()))
}
