//! Sequences that fetch what was spilled, laid out in steps and arena.
//!
//! Each copy out starts right after its storage was first made, in that order; the storage stays until the copy is out if
//! there is room, and else is waited for. A copy in starts as early as it has to in order to be there in time, if there
//! is room, and else as early as there is. What the search paid for a fetch was a guess; the clock here is that of the
//! format, copies beside computation.

use super::Planner;
use super::emit::{Laid, Steps};
use super::model::Model;
use super::state::{Instance, State};
use crate::plan::arena::{self, assign};
use crate::plan::lifetime::{Interval, Lifetimes};
use crate::plan::problem::{OutputKind, Problem, SpillRates};
use crate::plan::schedule::Step;

/// Lays out a sequence of units with fetches among them.
pub(super) fn lay(planner: &Planner, sequence: &[u32], effort: arena::Effort) -> Laid {
    let tight = Transfers::new(planner.p, &planner.model, sequence);
    let mut best = tight.laid(effort);
    if best.layout.arena_bytes > planner.budget {
        return best;
    }
    for part in ROOM_FOR_COPIES {
        let mut t = tight.clone();
        t.extend((planner.budget as f64 * part) as u64);
        let laid = t.laid(effort);
        if laid.layout.arena_bytes <= planner.budget && laid.time_ns(planner.p) <= best.time_ns(planner.p) {
            best = laid;
        }
    }
    best
}

/// The same with storages as short in the arena as they may be: the smallest arena, whatever the budget.
pub(super) fn lay_tight(planner: &Planner, sequence: &[u32], effort: arena::Effort) -> Laid {
    Transfers::new(planner.p, &planner.model, sequence).laid(effort)
}

/// Up to which part of the budget storages may stay longer for their copies: the fuller the arena, the likelier it sticks
/// out.
const ROOM_FOR_COPIES: [f64; 3] = [1.0, 0.97, 0.94];

/// How long a sequence takes with its copies, where they have the room that the budget leaves.
pub(super) fn time_ns(planner: &Planner, state: &State) -> u64 {
    let mut t = Transfers::of(planner.p, &planner.model, state);
    t.extend(planner.budget);
    clock(planner.p, &t.steps(&vec![0; t.stays.len()], &vec![None; t.sequence.len()]))
}

/// An instance with its steps on the way from use to residence.
#[derive(Clone, Copy)]
struct Stay {
    storage: u32,
    start: usize,
    end: usize,
    is_fetched: bool,
}

#[derive(Clone)]
struct Transfers<'a> {
    p: &'a Problem,
    m: &'a Model,
    rates: SpillRates,
    sequence: Vec<u32>,
    stays: Vec<Stay>,
    /// For each storage, whether it is spilled.
    is_spilled: Vec<bool>,
    load: Vec<u64>,
    /// When each step begins if nothing waits.
    begins_ns: Vec<u64>,
}

impl<'a> Transfers<'a> {
    fn new(p: &'a Problem, m: &'a Model, sequence: &[u32]) -> Transfers<'a> {
        Transfers::of(p, m, &State::new(m, sequence.to_vec()))
    }

    fn of(p: &'a Problem, m: &'a Model, state: &State) -> Transfers<'a> {
        let sequence = &state.sequence;
        let last = sequence.len().max(1) - 1;
        let stay = |i: &Instance| Stay {
            storage: i.storage,
            start: i.start as usize,
            end: (i.end as usize).min(last),
            is_fetched: m.is_fetch(sequence[i.start as usize]),
        };
        let stays: Vec<Stay> = state.instances.iter().map(stay).collect();
        let mut is_spilled = vec![false; m.storages.len()];
        stays.iter().filter(|s| s.is_fetched).for_each(|s| is_spilled[s.storage as usize] = true);
        let mut clock = 0;
        let begins = sequence.iter().map(|&u| {
            clock += if m.is_fetch(u) { 0 } else { m.units[u as usize].time_ns };
            clock - if m.is_fetch(u) { 0 } else { m.units[u as usize].time_ns }
        });
        let begins_ns = begins.collect();
        let (rates, load) = (p.spill(), state.load.clone());
        Transfers { p, m, rates, sequence: sequence.clone(), stays, is_spilled, load, begins_ns }
    }

    fn bytes(&self, stay: &Stay) -> u64 {
        self.m.storages[stay.storage as usize].bytes
    }

    /// Uses free room to let copies run beside computation.
    fn extend(&mut self, budget: u64) {
        let mut by_storage: Vec<Vec<usize>> = vec![Vec::new(); self.m.storages.len()];
        for (i, stay) in self.stays.iter().enumerate() {
            by_storage[stay.storage as usize].push(i);
        }
        self.extend_ends(budget, &by_storage);
        self.extend_starts(budget, &by_storage);
    }

    fn extend_ends(&mut self, budget: u64, by_storage: &[Vec<usize>]) {
        let mut write_free_ns = 0;
        for i in 0..self.stays.len() {
            let stay = self.stays[i];
            let of = &by_storage[stay.storage as usize];
            if !self.is_spilled[stay.storage as usize] || of[0] != i {
                continue;
            }
            let made_ns = self.begins_ns.get(stay.start + 1).copied().unwrap_or(u64::MAX);
            write_free_ns = made_ns.max(write_free_ns).saturating_add(self.rates.write_ns(self.bytes(&stay)));
            let until = of.get(1).map_or(self.sequence.len(), |&next| self.stays[next].start);
            let (mut end, bytes) = (stay.end, self.bytes(&stay));
            while end + 1 < until && self.begins_ns[end + 1] < write_free_ns && self.load[end + 1] + bytes <= budget {
                end += 1;
                self.load[end] += bytes;
            }
            self.stays[i].end = end;
        }
    }

    fn extend_starts(&mut self, budget: u64, by_storage: &[Vec<usize>]) {
        let mut fetched: Vec<usize> = (0..self.stays.len()).filter(|&i| self.stays[i].is_fetched).collect();
        fetched.sort_by_key(|&i| std::cmp::Reverse(self.stays[i].start));
        let mut next_ns = u64::MAX;
        for i in fetched {
            let (stay, bytes) = (self.stays[i], self.bytes(&self.stays[i]));
            let of = &by_storage[stay.storage as usize];
            let before = of.iter().position(|&k| k == i).and_then(|k| k.checked_sub(1)).map(|k| self.stays[of[k]].end);
            let due_ns = self.begins_ns[stay.start].min(next_ns);
            let wanted_ns = due_ns.saturating_sub(self.rates.read_ns(bytes));
            let mut start = stay.start;
            while start > before.map_or(0, |b| b + 1)
                && self.begins_ns[start] > wanted_ns
                && self.load[start - 1] + bytes <= budget
            {
                start -= 1;
                self.load[start] += bytes;
            }
            self.stays[i].start = start;
            next_ns = wanted_ns;
        }
    }

    fn laid(&self, effort: arena::Effort) -> Laid {
        let last = self.sequence.len().max(1) - 1;
        let given = self.p.storages().iter().enumerate().filter(|(_, s)| s.producer.is_none());
        let mut intervals: Vec<Interval> =
            given.map(|(s, storage)| interval(Some(s), 0, last, storage.padded)).collect();
        let first_stay = intervals.len();
        intervals.extend(
            self.stays
                .iter()
                .map(|s| interval(Some(self.m.storages[s.storage as usize].storage), s.start, s.end, self.bytes(s))),
        );
        let first_scratch = intervals.len();
        let units = self.sequence.iter().enumerate().map(|(step, &u)| (step, self.m.units[u as usize].workspace));
        intervals.extend(units.filter(|u| u.1 > 0).map(|(step, bytes)| interval(None, step, step, bytes)));
        let lifetimes = Lifetimes { load: self.load.clone(), intervals, taken: Vec::new() };
        let layout = assign(&lifetimes, effort);
        let mut scratch = vec![None; self.sequence.len()];
        for i in first_scratch..lifetimes.intervals.len() {
            scratch[lifetimes.intervals[i].start] = Some(layout.offsets[i]);
        }
        let values =
            (0..first_stay).map(|i| (lifetimes.intervals[i].storage.unwrap_or(i), layout.offsets[i])).collect();
        let steps = self.steps(&layout.offsets[first_stay..first_scratch], &scratch);
        let time_ns = clock(self.p, &steps);
        Laid { sequence: self.ops(), lifetimes, layout, steps: Some(Steps { values, steps, time_ns }) }
    }

    /// For each step its first operator, or the one that it fetches for.
    fn ops(&self) -> Vec<usize> {
        let mut next = 0;
        let ops = self.sequence.iter().rev().map(|&u| {
            next = self.m.units[u as usize].parts.first().copied().unwrap_or(next);
            next
        });
        let mut ops: Vec<usize> = ops.collect();
        ops.reverse();
        ops
    }

    fn steps(&self, offsets: &[u64], scratch: &[Option<u64>]) -> Vec<Step> {
        let count = self.sequence.len();
        let (mut starts, mut ends) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (i, stay) in self.stays.iter().enumerate() {
            starts[stay.start].push(i);
            ends[stay.end].push(i);
        }
        let of = |i: usize| self.m.storages[self.stays[i].storage as usize].storage;
        let mut is_out = vec![false; self.m.storages.len()];
        let mut steps = Vec::with_capacity(3 * count);
        for (step, &u) in self.sequence.iter().enumerate() {
            let (fetched, made): (Vec<usize>, Vec<usize>) =
                starts[step].iter().copied().partition(|&i| self.stays[i].is_fetched);
            steps.extend(fetched.iter().map(|&i| Step::Fetch { storage: of(i), at: offsets[i] }));
            for &op in &self.m.units[u as usize].parts {
                let o = &self.p.ops()[op];
                let owned = o.outputs.iter().filter(|out| out.1 == OutputKind::Own);
                let owned: Vec<usize> = owned.map(|out| self.p.values()[out.0].storage).collect();
                let at = made.iter().map(|&i| (of(i), offsets[i])).filter(|(s, _)| owned.contains(s)).collect();
                let workspace_at = scratch[step].filter(|_| o.workspace > 0);
                steps.push(Step::Compute { op, at, workspace_at });
            }
            for &i in &made {
                let s = self.stays[i].storage as usize;
                if self.is_spilled[s] && !std::mem::replace(&mut is_out[s], true) {
                    steps.push(Step::Spill { storage: of(i) });
                }
            }
            let is_kept = |i: usize| step + 1 == count && self.m.storages[self.stays[i].storage as usize].is_output;
            steps.extend(ends[step].iter().filter(|&&i| !is_kept(i)).map(|&i| Step::Free { storage: of(i) }));
        }
        steps
    }
}

fn interval(storage: Option<usize>, start: usize, end: usize, bytes: u64) -> Interval {
    Interval { storage, start, end, bytes }
}

/// The time of steps by the format's rules: one channel out, one in, both beside computation.
fn clock(p: &Problem, steps: &[Step]) -> u64 {
    let count = p.storages().len();
    let (mut now, mut out_free, mut in_free) = (0u64, 0u64, 0u64);
    let (mut arrives, mut leaves, mut copied) = (vec![0u64; count], vec![0u64; count], vec![0u64; count]);
    let ns = |bytes, is_out: bool| if is_out { p.spill().write_ns(bytes) } else { p.spill().read_ns(bytes) };
    for step in steps {
        match step {
            Step::Compute { op, at, .. } => {
                let o = &p.ops()[*op];
                at.iter().for_each(|&(s, _)| (arrives[s], leaves[s]) = (0, 0));
                let reads = o.inputs.iter().map(|&v| arrives[p.values()[v].storage]);
                let writes = o.outputs.iter().filter(|out| out.1 == OutputKind::Writes);
                let waits = reads.chain(writes.map(|out| leaves[p.values()[out.0].storage]));
                now = waits.max().unwrap_or(0).max(now) + o.time_ns;
            }
            Step::Free { storage } => now = now.max(leaves[*storage]).max(arrives[*storage]),
            Step::Spill { storage } => {
                let start = now.max(out_free).max(arrives[*storage]);
                out_free = start.saturating_add(ns(p.storages()[*storage].padded, true));
                (leaves[*storage], copied[*storage]) = (out_free, out_free);
            }
            Step::Fetch { storage, .. } => {
                let start = now.max(in_free).max(copied[*storage]);
                in_free = start.saturating_add(ns(p.storages()[*storage].padded, false));
                (arrives[*storage], leaves[*storage]) = (in_free, 0);
            }
        }
    }
    p.outputs().iter().map(|&v| arrives[p.values()[v].storage]).max().unwrap_or(0).max(now)
}
