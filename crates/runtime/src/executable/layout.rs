//! Offsets of temporaries: from unplaced calls to a program.

use std::sync::Arc;

use remat_graph::ir::Graph;
use remat_graph::plan::arena::{self, assign};
use remat_graph::plan::lifetime::{Interval, Lifetimes};
use remat_types::{Error, ErrorKind, Fact, Result, SmallVec};

use super::build::{Lowered, Parts, Root, Temp, UnplacedCall, lower};
use super::planned::{self, PlacedCall};
use super::spill::Spill;
use super::{Executable, ExecutableOptions, MemoryFigures, PlanTimes};
use remat_device::Alignment;
use remat_device::KernelSet;
use remat_device::program::StepTimes;
use remat_device::program::{Copies, beyond};
use remat_device::program::{Operand, OutputSlot, Place, Program, ProgramParts, Step};
use remat_device::spill::SpillTo;

/// Calls with offsets.
pub(super) struct PlacedCalls {
    pub(super) calls: Vec<PlacedCall>,
    pub(super) arena_bytes: usize,
    pub(super) lower_bound_bytes: usize,
    pub(super) plan: Option<PlanTimes>,
    /// The spill folder and the copies, if the plan spills.
    pub(super) spilled: Option<(SpillTo, Copies)>,
}

pub(super) fn build(
    graph: Arc<Graph>,
    kernels: &Arc<dyn KernelSet>,
    options: &ExecutableOptions,
) -> Result<Executable> {
    let graph = super::constants::settled(graph)?;
    let (graph, ends) = match &options.parts[..] {
        [] => (graph, Vec::new()),
        parts => {
            let (graph, ends) = graph.in_parts(parts)?;
            (Arc::new(graph), ends)
        }
    };
    let parts = Parts { outputs: &options.parts, ends: &ends };
    let lowered = lower(&graph, kernels, true, &parts)?;
    let beside = in_order(&lowered, &beside(&lowered), kernels.alignment());
    // collectives that run beside other calls need more memory, which is not worth a recomputation
    let placed = match options.workspace_limit {
        Some(limit) if beside.arena_bytes > limit => {
            in_order(&lowered, &one_after_the_other(&lowered), kernels.alignment())
        }
        _ => beside,
    };
    match options.workspace_limit {
        Some(limit) if placed.arena_bytes > limit && ends.len() > 1 => {
            let text = format!("parts need a workspace of {} bytes, and the limit is {limit}", placed.arena_bytes);
            Err(Error::new(ErrorKind::Value, text))
        }
        Some(limit) if placed.arena_bytes > limit => {
            let lowered = lower(&graph, kernels, false, &parts)?;
            let placed = planned::within(&lowered, (limit, placed.arena_bytes), &**kernels, options)?;
            finish(graph, kernels.clone(), lowered, placed)
        }
        _ => finish(graph, kernels.clone(), lowered, placed),
    }
}

/// For each temporary, the one whose bytes it uses, and that one's first and last call.
struct Lives {
    place: Vec<usize>,
    temps: Vec<Temp>,
}

/// The lives of temporaries if no call runs beside another.
fn one_after_the_other(l: &Lowered) -> Lives {
    Lives { place: (0..l.temps.len()).collect(), temps: l.temps.clone() }
}

/// The lives of temporaries if collectives of several ranks run beside later calls. The input of a collective lives
/// until the first read of its result. All collectives share one workspace, since they run one after the other. No
/// other call uses it.
fn beside(l: &Lowered) -> Lives {
    let mut lives = one_after_the_other(l);
    let end = l.calls.len().saturating_sub(1);
    let mut shared: Option<usize> = None;
    for (i, call) in l.calls.iter().enumerate().filter(|(_, d)| d.op.ranks().is_some_and(|ranks| ranks.size() > 1)) {
        let reads = |d: &UnplacedCall| d.x.iter().any(|x| call.y.iter().any(|y| y.0 == x.0));
        let until = l.calls[i + 1..].iter().position(reads).map_or(end, |after| i + 1 + after);
        for (root, ..) in &call.x {
            if let Root::Temp(t) = root {
                lives.temps[*t].last = lives.temps[*t].last.max(until);
            }
        }
        if let Some(t) = call.workspace {
            let s = *shared.get_or_insert(t);
            lives.place[t] = s;
            lives.temps[s].bytes = lives.temps[s].bytes.max(l.temps[t].bytes);
            lives.temps[s].last = end;
            if s != t {
                lives.temps[t].bytes = 0;
            }
        }
    }
    lives
}

/// Every call once, with each temporary at one offset.
fn in_order(l: &Lowered, lives: &Lives, unit: Alignment) -> PlacedCalls {
    let interval = |t: &Temp| Interval { storage: None, start: t.first, end: t.last, bytes: unit.pad(t.bytes) as u64 };
    let lifetimes = Lifetimes::of(lives.temps.iter().map(interval).collect(), l.calls.len());
    let placed = assign(&lifetimes, arena::Effort::default());
    let offset = |t: usize| (t, placed.offsets[lives.place[t]] as usize);
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

fn finish(graph: Arc<Graph>, kernels: Arc<dyn KernelSet>, l: Lowered, placed: PlacedCalls) -> Result<Executable> {
    let mut offsets = vec![0usize; l.temps.len()];
    let mut steps = Vec::with_capacity(placed.calls.len());
    for call in &placed.calls {
        call.at.iter().for_each(|(t, at)| offsets[*t] = *at);
        steps.push(step(&l, call, &offsets, &graph));
    }
    let (copies, spill) = match placed.spilled {
        Some((to, copies)) => (Some(Box::new(copies)), Some(Spill::new(to)?)),
        None => (None, None),
    };
    let copied = copies.as_ref().map_or((0, 0), |c| (c.out_bytes(), c.in_bytes()));
    let mut ends = l.parts;
    ends.pop();
    ends.push(steps.len());
    let (outputs, threads, alignment) = (graph.outputs().len(), kernels.threads(), kernels.alignment());
    let figures = MemoryFigures {
        arena_bytes: placed.arena_bytes + copies.as_ref().map_or(0, |c| beyond(c.align, kernels.alignment())),
        lower_bound_bytes: placed.lower_bound_bytes,
        state_bytes: graph.state_bytes(),
        input_bytes: l.x[..graph.inputs().len()].iter().map(Fact::bytes).sum(),
        output_bytes: l.y[..outputs].iter().map(Fact::bytes).sum(),
        constant_bytes: l.constants.iter().map(|c| c.bytes().len()).sum(),
        recomputed_calls: steps.len() - l.calls.len(),
        spilled_bytes: copied.0,
        fetched_bytes: copied.1,
    };
    Ok(Executable {
        graph,
        kernels,
        times: Arc::new(StepTimes::new(steps.len())),
        program: Program::new(ProgramParts {
            alignment,
            threads,
            steps,
            constants: l.constants,
            x: l.x,
            y: l.y,
            updates: l.updates,
            workspace_bytes: figures.arena_bytes,
            ends,
            copies,
        })?,
        figures,
        plan: placed.plan,
        spill,
        bindings: Default::default(),
        observer: Default::default(),
        smaller: Default::default(),
    })
}

fn step(l: &Lowered, call: &PlacedCall, offsets: &[usize], graph: &Graph) -> Step {
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
    let node = d.node.map(|n| graph.node(n));
    Step {
        op: d.op.clone(),
        flow: d.flow.clone(),
        x: d.x.iter().map(operand).collect(),
        y: d.y.iter().enumerate().map(slot).collect(),
        workspace: d.workspace.map_or((0, 0), |t| (offsets[t], l.temps[t].bytes)),
        node: d.node,
        site: node.and_then(|n| n.site),
        scope: node.and_then(|n| n.scope.clone()),
    }
}
