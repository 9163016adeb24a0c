//! Offsets of temporaries: from unplaced calls to steps.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use remat_graph::ir::Graph;
use remat_graph::plan::arena::{self, assign};
use remat_graph::plan::lifetime::{Interval, Lifetimes};
use remat_types::{Error, ErrorKind, Fact, Result, SmallVec};

use super::build::{Lowered, Parts, Root, Temp, UnplacedCall, lower};
use super::planned::{self, PlacedCall};
use super::spill::{Moves, Spill, beyond};
use super::{Executable, ExecutableOptions, MemoryFigures, Operand, OutputSlot, Place, PlanTimes, Step};
use crate::arena::padded;
use crate::spill::SpillTo;

/// Calls with offsets.
pub(super) struct PlacedCalls {
    pub(super) calls: Vec<PlacedCall>,
    pub(super) arena_bytes: usize,
    pub(super) lower_bound_bytes: usize,
    pub(super) plan: Option<PlanTimes>,
    /// Where what is spilled goes, and when.
    pub(super) spilled: Option<(SpillTo, Moves)>,
}

pub(super) fn build(graph: Arc<Graph>, threads: usize, options: &ExecutableOptions) -> Result<Executable> {
    let graph = super::constants::settled(graph)?;
    let (graph, ends) = match &options.parts[..] {
        [] => (graph, Vec::new()),
        parts => {
            let (graph, ends) = graph.in_parts(parts)?;
            (Arc::new(graph), ends)
        }
    };
    let parts = Parts { outputs: &options.parts, ends: &ends };
    let lowered = lower(&graph, threads, true, &parts)?;
    let placed = in_order(&lowered);
    match options.workspace_limit {
        Some(limit) if placed.arena_bytes > limit && ends.len() > 1 => {
            let text = format!("parts need a workspace of {} bytes, and the limit is {limit}", placed.arena_bytes);
            Err(Error::new(ErrorKind::Value, text))
        }
        Some(limit) if placed.arena_bytes > limit => {
            let lowered = lower(&graph, threads, false, &parts)?;
            let placed = planned::within(&lowered, (limit, placed.arena_bytes), threads, options)?;
            finish(graph, threads, lowered, placed)
        }
        _ => finish(graph, threads, lowered, placed),
    }
}

/// Every call once, each temporary at one offset.
fn in_order(l: &Lowered) -> PlacedCalls {
    let interval = |t: &Temp| Interval { storage: None, start: t.first, end: t.last, bytes: padded(t.bytes) as u64 };
    let lifetimes = Lifetimes::of(l.temps.iter().map(interval).collect(), l.calls.len());
    let placed = assign(&lifetimes, arena::Effort::default());
    let offset = |t: usize| (t, placed.offsets[t] as usize);
    let made = |d: &UnplacedCall| {
        let new = d.y.iter().filter_map(|y| match y {
            (Root::Temp(t), _, None) => Some(offset(*t)),
            _ => None,
        });
        new.chain(d.workspace.map(offset)).collect()
    };
    PlacedCalls {
        calls: l
            .calls
            .iter()
            .enumerate()
            .map(|(call, d)| PlacedCall { call, at: made(d), takes: SmallVec::new() })
            .collect(),
        arena_bytes: placed.arena_bytes as usize,
        lower_bound_bytes: placed.lower_bound as usize,
        plan: None,
        spilled: None,
    }
}

fn finish(graph: Arc<Graph>, threads: usize, l: Lowered, placed: PlacedCalls) -> Result<Executable> {
    let mut offsets = vec![0usize; l.temps.len()];
    let mut steps = Vec::with_capacity(placed.calls.len());
    for call in &placed.calls {
        call.at.iter().for_each(|(t, at)| offsets[*t] = *at);
        let s = step(&l, call, &offsets);
        check(&s, placed.arena_bytes)?;
        steps.push(s);
    }
    let states: Vec<usize> = l.updates.iter().map(|u| u.1).collect();
    let moved = placed.spilled.as_ref().map_or((0, 0), |(_, m)| (m.out_bytes(), m.in_bytes()));
    let spill = match placed.spilled {
        Some((to, moves)) => {
            moves.check(&steps, placed.arena_bytes, &states)?;
            Some(Spill::new(moves, to)?)
        }
        None => None,
    };
    let mut parts = l.parts;
    parts.pop();
    parts.push(steps.len());
    let outputs = graph.outputs().len();
    let figures = MemoryFigures {
        arena_bytes: placed.arena_bytes + spill.as_ref().map_or(0, |s| beyond(s.moves.align)),
        lower_bound_bytes: placed.lower_bound_bytes,
        state_bytes: graph.state_bytes(),
        input_bytes: l.x[..graph.inputs().len()].iter().map(Fact::bytes).sum(),
        output_bytes: l.y[..outputs].iter().map(Fact::bytes).sum(),
        constant_bytes: l.constants.iter().map(|c| c.bytes().len()).sum(),
        recomputed_calls: steps.len() - l.calls.len(),
        spilled_bytes: moved.0,
        fetched_bytes: moved.1,
    };
    Ok(Executable {
        graph,
        threads,
        times: steps.iter().map(|_| AtomicU64::new(0)).collect(),
        fastest: steps.iter().map(|_| AtomicU64::new(u64::MAX)).collect(),
        steps,
        constants: l.constants,
        x: l.x,
        y: l.y,
        updates: l.updates,
        figures,
        plan: placed.plan,
        spill,
        ranges: Default::default(),
        observer: Default::default(),
        parts,
    })
}

fn step(l: &Lowered, call: &PlacedCall, offsets: &[usize]) -> Step {
    let d = &l.calls[call.call];
    let place = |root: Root| match root {
        Root::Given(p) => p,
        Root::Temp(t) => Place::Arena(offsets[t]),
    };
    let operand = |(root, bytes, f, layout): &(Root, usize, Fact, _)| {
        let layout: &remat_types::Layout = layout;
        Operand { place: place(*root), bytes: *bytes, dtype: f.dtype, layout: layout.clone() }
    };
    let taken = |j: usize| call.takes.iter().find(|t| t.0 == j).map(|t| t.1);
    let slot = |(j, (root, f, donated_from)): (usize, &(Root, Fact, Option<usize>))| OutputSlot {
        place: place(*root),
        bytes: f.bytes(),
        dtype: f.dtype,
        shape: f.shape.clone(),
        donated_from: donated_from.or_else(|| taken(j)),
    };
    Step {
        op: d.op.clone(),
        x: d.x.iter().map(operand).collect(),
        y: d.y.iter().enumerate().map(slot).collect(),
        workspace: d.workspace.map_or((0, 0), |t| (offsets[t], l.temps[t].bytes)),
        node: d.node,
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
            let taken = s.y.get(k).is_some_and(|t| t.donated_from == Some(i));
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
