//! From a schedule to calls with offsets, and the copies between them.

use remat_graph::plan::lifetime::lifetimes;
use remat_graph::plan::problem::Problem;
use remat_graph::plan::schedule::{Schedule, Step};
use remat_types::SmallVec;
use rustc_hash::FxHashMap;

use super::super::PlanTimes;
use super::super::build::{Lowered, Root};
use super::super::layout::PlacedCalls;
use super::{PlacedCall, temp_name};
use remat_device::program::Place;
use remat_device::program::{Copies, CopyStep};
use remat_device::spill::SpillTo;

/// `calls` has the call of each operator of the problem; `None` for an operator that runs nothing.
pub(super) fn placed(
    l: &Lowered,
    p: &Problem,
    s: &Schedule,
    calls: &[Option<usize>],
    to: Option<&SpillTo>,
) -> PlacedCalls {
    let mut walk = Walk::new(l, p);
    for step in &s.steps {
        match step {
            Step::Compute { op, at, workspace_at } => {
                if let Some(call) = calls[*op] {
                    walk.compute(call, at, *workspace_at);
                }
            }
            Step::Free { storage } => walk.settle(*storage),
            Step::Spill { storage } => walk.spill(*storage),
            Step::Fetch { storage, at } => walk.fetch(*storage, *at),
        }
    }
    let order = s.steps.iter().filter_map(|s| if let Step::Compute { op, .. } = s { Some(*op) } else { None });
    let order: Vec<usize> = order.collect();
    let computed_ns: u64 = order.iter().map(|o| p.ops()[*o].time_ns).sum();
    walk.copies.align = p.align() as usize;
    let spilled = to.filter(|_| !walk.copies.list.is_empty()).map(|to| (to.clone(), walk.copies));
    // A fetched value is read though no operator made it again. An order of operators cannot express that.
    let alive = if spilled.is_some() { live_peak(p, s) } else { lifetimes(p, &order).map_or(0, |l| l.peak()) };
    let plan = PlanTimes {
        planned_ns: s.time_ns,
        base_ns: s.base_time_ns,
        bound_ns: s.lower_bound_ns,
        stall_ns: s.time_ns.saturating_sub(computed_ns),
    };
    PlacedCalls {
        calls: walk.calls,
        arena_bytes: s.arena_bytes as usize,
        lower_bound_bytes: alive as usize,
        plan: Some(plan),
        spilled,
    }
}

/// The most bytes that live at once in a schedule if no output takes over an input.
fn live_peak(p: &Problem, s: &Schedule) -> u64 {
    let bytes = |storage: &usize| p.storages()[*storage].padded;
    let (mut now, mut peak) = (0u64, 0u64);
    for step in &s.steps {
        match step {
            Step::Compute { op, at, .. } => {
                now += at.iter().map(|(storage, _)| bytes(storage)).sum::<u64>();
                peak = peak.max(now + p.ops()[*op].workspace);
            }
            Step::Fetch { storage, .. } => now += bytes(storage),
            Step::Free { storage } => now = now.saturating_sub(bytes(storage)),
            Step::Spill { .. } => {}
        }
        peak = peak.max(now);
    }
    peak
}

/// The copy of a temporary that may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InFlight {
    No,
    Out,
    In,
}

struct Walk<'l> {
    l: &'l Lowered,
    /// For each storage of the problem that is a temporary, its index.
    temp_of: FxHashMap<usize, usize>,
    offsets: Vec<Option<u64>>,
    in_flight: Vec<InFlight>,
    slots: Vec<Option<usize>>,
    /// The temporaries that were fetched since the last call, with their offsets.
    fetched: SmallVec<[(usize, usize); 2]>,
    calls: Vec<PlacedCall>,
    copies: Copies,
}

impl<'l> Walk<'l> {
    fn new(l: &'l Lowered, p: &Problem) -> Self {
        let n = l.temps.len();
        let storage = |t: usize| Some((p.values()[p.value_named(&temp_name(t))?].storage, t));
        Walk {
            l,
            temp_of: (0..n).filter_map(storage).collect(),
            offsets: vec![None; n],
            in_flight: vec![InFlight::No; n],
            slots: vec![None; n],
            fetched: SmallVec::new(),
            calls: Vec::new(),
            copies: Copies::default(),
        }
    }

    fn compute(&mut self, call: usize, at: &[(usize, u64)], workspace_at: Option<u64>) {
        let d = &self.l.calls[call];
        for x in &d.x {
            if let Root::Temp(t) = x.0
                && self.in_flight[t] == InFlight::In
            {
                self.wait(t);
            }
        }
        let is_state =
            |root: Root| matches!(root, Root::Given(Place::Output(j)) if self.l.updates.iter().any(|u| u.1 == j));
        if d.y.iter().any(|y| is_state(y.0)) {
            // no copy may fail any more
            let in_flight: Vec<usize> =
                (0..self.in_flight.len()).filter(|t| self.in_flight[*t] != InFlight::No).collect();
            in_flight.into_iter().for_each(|t| self.wait(t));
        }
        let made: SmallVec<[(usize, u64); 2]> =
            at.iter().filter_map(|(storage, at)| Some((*self.temp_of.get(storage)?, *at))).collect();
        // An output at the offset of a resident input has taken it over.
        let is_taken = |&&(j, i): &&(usize, usize)| {
            let (Root::Temp(y), Root::Temp(x)) = (d.y[j].0, d.x[i].0) else { return false };
            made.iter().any(|&(t, at)| t == y && self.offsets[x] == Some(at) && self.l.temps[y].bytes > 0)
        };
        let takes = d.may_take.iter().filter(is_taken).copied().collect();
        made.iter().for_each(|&(t, at)| self.offsets[t] = Some(at));
        let made = made.iter().map(|&(t, at)| (t, at as usize));
        let workspace = d.workspace.zip(workspace_at).map(|(t, at)| (t, at as usize));
        let at = std::mem::take(&mut self.fetched).into_iter().chain(made).chain(workspace).collect();
        self.calls.push(PlacedCall { call, at, takes });
    }

    fn push(&mut self, m: CopyStep) {
        self.copies.list.push((self.calls.len(), m));
    }

    fn wait(&mut self, t: usize) {
        self.in_flight[t] = InFlight::No;
        if let Some(slot) = self.slots[t] {
            self.push(CopyStep::Wait { slot });
        }
    }

    /// Waits for the copies of a storage before it is freed.
    fn settle(&mut self, storage: usize) {
        if let Some(&t) = self.temp_of.get(&storage)
            && self.in_flight[t] != InFlight::No
        {
            self.wait(t);
        }
    }

    fn spill(&mut self, storage: usize) {
        let Some(&t) = self.temp_of.get(&storage) else { return };
        let Some(at) = self.offsets[t] else { return };
        let slot = self.copies.slot(self.l.temps[t].bytes);
        self.slots[t] = Some(slot);
        self.in_flight[t] = InFlight::Out;
        self.push(CopyStep::Out { slot, at: at as usize });
    }

    fn fetch(&mut self, storage: usize, at: u64) {
        let Some((t, slot)) = self.temp_of.get(&storage).and_then(|&t| Some((t, self.slots[t]?))) else { return };
        self.offsets[t] = Some(at);
        self.fetched.push((t, at as usize));
        self.in_flight[t] = InFlight::In;
        self.push(CopyStep::In { slot, at: at as usize });
    }
}
