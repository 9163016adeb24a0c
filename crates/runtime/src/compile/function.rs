//! A traced function as this module sees it: a graph, and the sources of its states.

use std::sync::Arc;

use remat_graph::ir::{Graph, Node, Origin, ValueId};
use remat_types::{CallSite, Error, ErrorKind, Fact, Result};

use super::{Form, SegmentRun, freeze};
use crate::eager::trace::{GraphBreak, Guard, HostInput};
use crate::eager::{Handle, TensorId};

/// A tensor that outlives runs and has versions, such as a parameter. Clones are the same cell.
pub trait VersionedCell: Clone + Send + Sync + 'static {
    /// The cell's address: equal for clones of one cell, and different for other cells.
    fn address(&self) -> usize;
    /// The present version. `None` if the device was closed while the cell was being updated.
    fn version(&self) -> Option<Handle>;
    /// The name of the present version.
    fn version_id(&self) -> Option<TensorId>;
}

/// The source of a graph's state at each run.
#[derive(Clone, Debug)]
pub enum State<C> {
    /// A tensor that the function reads and never replaces.
    Fixed(Handle),
    /// A cell that is read.
    Read(C),
    /// A cell whose next version the run makes.
    Updated(C),
}

impl<C: VersionedCell> State<C> {
    /// The present version. Errors (Closed): there is none.
    pub fn version(&self) -> Result<Handle> {
        let lost = || Error::new(ErrorKind::Closed, "the device was closed while a parameter was being updated");
        match self {
            State::Fixed(h) => Ok(h.clone()),
            State::Read(cell) | State::Updated(cell) => cell.version().ok_or_else(lost),
        }
    }

    /// True for two states of one cell, whether the function reads or updates it.
    pub(super) fn is_the_state_of(&self, other: &State<C>) -> bool {
        match (self, other) {
            (State::Fixed(a), State::Fixed(b)) => a.id() == b.id(),
            (State::Read(a) | State::Updated(a), State::Read(b) | State::Updated(b)) => a.address() == b.address(),
            _ => false,
        }
    }

    /// True for two states of one cell that both read it or both update it.
    pub(super) fn is_used_like(&self, other: &State<C>) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.is_the_state_of(other)
    }
}

/// An action of the function's owner once a run of a form has been queued.
pub type AfterRun = Box<dyn Fn() + Send + Sync>;

/// The trace of a function for one set of input types.
#[derive(Clone)]
pub struct FunctionTrace<C> {
    /// The function's computation. Its inputs are the function's inputs, then the host inputs.
    pub graph: Graph,
    /// The sources of the graph's states.
    pub states: Vec<State<C>>,
    /// The host functions that write the inputs after the function's own.
    pub host_inputs: Vec<HostInput>,
    /// The graph stands for the function as long as all of these hold.
    pub guards: Arc<Vec<Guard>>,
    /// True if the function ends a step.
    pub marks_step: bool,
    /// For each output, whether a gradient would pass it to a tensor from outside. The function's owner sets and uses
    /// this.
    pub needs_gradient: Vec<bool>,
    /// The places where the function asked for sizes that only a run knows. The trace may have ended at the last one.
    pub cuts: Vec<GraphBreak>,
    /// The actions that follow every run of the whole function, in order. The function's owner performs them.
    pub after: Arc<Vec<AfterRun>>,
    /// The number of the function's call that traced it, counted from 1.
    pub number: usize,
}

impl<C: VersionedCell> FunctionTrace<C> {
    /// Compares this trace with a second one, `again`. Errors (Value): they differ, with the first difference; see
    /// [`CompileOptions::check_trace`](super::CompileOptions).
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
                "the function differs when it is traced a second time ({}): it reads something that changes from call to \
                 call, such as a clock, numbers drawn on the host, an iterator, or state that it writes. Every later run \
                 would repeat the first call's value; pass it to the function as an argument",
                e.message()
            );
            let e = Error::new(ErrorKind::Value, text);
            // a host number is a constant, and only the node that reads it has a line in the program
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

    /// True if both traces take the same tensors from outside and use them alike. Their sizes may differ.
    pub(super) fn takes_the_same(&self, other: &Self) -> bool {
        let same = |(a, b): (&State<C>, &State<C>)| a.is_used_like(b);
        let counts = |t: &Self| (t.states.len(), t.host_inputs.len(), t.marks_step);
        counts(self) == counts(other) && self.cuts == other.cuts && self.states.iter().zip(&other.states).all(same)
    }
}

/// A function that can be compiled. This module decides when it is traced and run; its owner decides how.
pub trait Function {
    /// The cells that hold the function's states.
    type Cell: VersionedCell;

    /// Traces the function for inputs of these facts and with these known sizes. Errors: those of the function.
    fn trace(&mut self, facts: &[Fact], sizes: &[usize]) -> Result<FunctionTrace<Self::Cell>>;

    /// Runs a form. Errors: those of its ops.
    fn run(&self, form: &Form<Self::Cell>, x: &[&Handle], run: &mut SegmentRun, site: CallSite) -> Result<Vec<Handle>>;
}

/// Makes constants of the states that the graph only reads. Gives the graph and the states that are left. New guards
/// hold as long as the cells have the versions that were taken.
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
