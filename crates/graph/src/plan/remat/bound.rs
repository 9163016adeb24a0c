//! Proven lower bounds on time and memory, for schedules in any order.
//!
//! **Claim.** Fix an operator `t`. Let `A` be the operators that `t` depends on and `D` those that depend on `t`. Look at
//! the moment of `t`'s first execution in any valid schedule. All of `A` ran before, all of `D` will run after. A value
//! that an operator of `D` reads, and that one of `A` makes, is readable at that moment or is made again after it. To
//! make it again its producer runs once more, on top of its first run, and the producer's own inputs are subject to the
//! same choice. What is readable at that moment lies in the arena beside the given values and all that `t` itself holds.
//!
//! So every schedule gives a feasible point of
//!
//! ```text
//! min  sum time(o) x(o)   with  sum bytes(v) y(v) <= budget - given - held by t
//! need(v) <= x(producer of v) + y(v);   need(v) = 1 if D reads v;   need(v) >= x(o) if o reads v
//! ```
//!
//! whose optimum, plus the base time, is below the schedule's time. A view counts as a read of its source. Two
//! versions of a storage are never readable at once, so counting both is no error.
//!
//! **Relaxation.** The one budget row is priced with `l` ns per byte. What is left is a minimum cut: value nodes lead to
//! their producer with capacity `l * bytes(v)`, operator nodes to the sink with `time(o)` and to what they read without
//! limit, the source to what `D` needs. For each `l`, cut - l * room is a lower bound; the best `l` is found by bisection,
//! as the bound is concave in it. Capacities are rounded down and the subtracted price up.

use super::flow::{Flow, UNLIMITED};
use crate::plan::clock::{Clock, Tick};
use crate::plan::problem::{OutputKind, Problem};

/// Bytes that no schedule does without, and the operator at which it needs them, if it is one.
///
/// An operator needs the bytes that it holds. Its inputs are in memory together, and so are the results at the end of
/// the run: see [`together_bytes`].
pub(crate) fn least_bytes(p: &Problem) -> (u64, Option<usize>) {
    let depth = if p.spill().is_possible() { 0 } else { DEPTH };
    let needs = |o: usize| {
        let inputs = storages_of(p, p.ops()[o].inputs.iter().copied());
        held_bytes(p, o).max(together_bytes(p, &inputs, depth)) + p.given_bytes()
    };
    let needs: Vec<u64> = (0..p.ops().len()).map(needs).collect();
    let limiting = (0..p.ops().len()).max_by_key(|&o| (needs[o], std::cmp::Reverse(o)));
    let at_end = together_bytes(p, &storages_of(p, p.outputs().iter().copied()), depth) + p.given_bytes();
    let (bytes, op) = limiting.map_or((p.given_bytes(), None), |o| (needs[o], Some(o)));
    // At the end the last operator has run and holds the remaining values.
    if at_end > bytes {
        return (at_end, p.ops().len().checked_sub(1));
    }
    (bytes, op)
}

/// Operators back from a moment that the bound on memory looks.
const DEPTH: usize = 3;
/// With more storages than this, one operator back has to do.
const MOST_TOGETHER: usize = 6;

/// Bytes that every schedule needs in which these storages are there at once, given ones apart.
///
/// One of them came last, with a run of its producer: that held its own operands beside all the others, and just before
/// it the others and its inputs were there at once. Which came last is the schedule's choice. Where storages are fetched,
/// none of that holds beyond the sum itself.
fn together_bytes(p: &Problem, set: &[usize], depth: usize) -> u64 {
    let sum = set.iter().map(|&s| p.storages()[s].padded).sum::<u64>();
    if depth == 0 || set.is_empty() {
        return sum;
    }
    let depth = if set.len() > MOST_TOGETHER { 1 } else { depth };
    let with_last = |&last: &usize| {
        let o = p.storages()[last].producer.expect("given storages are left out");
        let op = &p.ops()[o];
        let made: Vec<usize> = storages_of(p, op.outputs.iter().map(|x| x.0));
        let mut before: Vec<usize> = set.iter().copied().filter(|s| !made.contains(s)).collect();
        before.extend(storages_of(p, op.inputs.iter().copied()));
        before.sort_unstable();
        before.dedup();
        let beside = set.iter().filter(|s| !made.contains(s) && !reads(p, o, **s));
        let beside: u64 = beside.map(|&s| p.storages()[s].padded).sum();
        (held_bytes(p, o) + beside).max(together_bytes(p, &before, depth - 1))
    };
    set.iter().map(with_last).min().unwrap_or(0).max(sum)
}

fn reads(p: &Problem, o: usize, storage: usize) -> bool {
    p.ops()[o].inputs.iter().any(|&v| p.values()[v].storage == storage)
}

/// Storages of values, without given ones and without repetition.
fn storages_of(p: &Problem, values: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut list: Vec<usize> =
        values.map(|v| p.values()[v].storage).filter(|&s| p.storages()[s].producer.is_some()).collect();
    list.sort_unstable();
    list.dedup();
    list
}

/// The least bytes that an operator itself holds, without given values: each output that may take over an input does so.
fn held_bytes(p: &Problem, o: usize) -> u64 {
    let op = &p.ops()[o];
    let held = storages_of(p, op.inputs.iter().copied().chain(op.outputs.iter().map(|x| x.0)));
    let mut takers: Vec<usize> = op.takes.iter().map(|t| t.0).collect();
    takers.dedup();
    let mut taken: Vec<usize> = op.takes.iter().map(|t| t.1).collect();
    taken.sort_unstable();
    taken.dedup();
    // as many pairs as there could be, the larger ones; all of a pair are of one size
    takers.sort_by_key(|&s| std::cmp::Reverse(p.storages()[s].padded));
    let spared: u64 = takers.iter().take(taken.len()).map(|&s| p.storages()[s].padded).sum();
    held.iter().map(|&s| p.storages()[s].padded).sum::<u64>() - spared + op.workspace
}

/// A lower bound on the time of any schedule within `budget`, from the moments of the operators `at`.
pub(crate) fn time_bound(p: &Problem, budget: u64, at: &[usize], clock: &Clock, until: Tick) -> u64 {
    let mut best = 0;
    for &t in at {
        if clock.now() >= until {
            break;
        }
        let Some(room) = budget.checked_sub(p.given_bytes() + held_bytes(p, t)) else { continue };
        best = best.max(Moment::new(p, t).bound(p, room, clock, until));
    }
    p.base_time_ns() + best
}

/// Looks that building the network of a minimum cut takes for each operator.
const CUT_LOOKS: usize = 16;

/// Bisections of the price; each halves its logarithm's range.
const BISECTIONS: usize = 20;
/// In ns per byte: from a second for an exabyte to a second for a byte.
const PRICE_RANGE: (f64, f64) = (1e-9, 1e9);

/// The values needed after the first execution of an operator.
struct Moment {
    is_before: Vec<bool>,
    /// Values to be had, without views.
    needed: Vec<usize>,
    /// Storages that the operator itself holds.
    held: Vec<usize>,
}

impl Moment {
    fn new(p: &Problem, t: usize) -> Moment {
        let mut is_before = vec![false; p.ops().len()];
        mark_before(p, t, &mut is_before);
        let is_after = after(p, t);
        let needed_values = (0..p.ops().len()).filter(|&o| is_after[o]).flat_map(|o| p.ops()[o].inputs.iter().copied());
        let mut needed: Vec<usize> = needed_values.chain(p.outputs().iter().copied()).map(|v| viewed(p, v)).collect();
        needed.retain(|&v| p.values()[v].producer.is_some_and(|o| is_before[o]));
        needed.sort_unstable();
        needed.dedup();
        let op = &p.ops()[t];
        let held = storages_of(p, op.inputs.iter().copied().chain(op.outputs.iter().map(|x| x.0)));
        Moment { is_before, needed, held }
    }

    fn bound(&self, p: &Problem, room: u64, clock: &Clock, until: Tick) -> u64 {
        let (mut low, mut high) = (PRICE_RANGE.0.ln(), PRICE_RANGE.1.ln());
        let mut best = 0;
        for _ in 0..BISECTIONS {
            if clock.now() >= until {
                break;
            }
            let middle = (low + high) / 2.0;
            let price = middle.exp();
            let (cut, kept_bytes) = self.cut(p, price, clock);
            let paid = (price * room as f64 * (1.0 + 1e-9)).ceil() as u64;
            best = best.max(cut.saturating_sub(paid));
            if kept_bytes > room {
                low = middle;
            } else {
                high = middle;
            }
        }
        best
    }

    /// The minimum cut at a price per byte, and the bytes that it keeps.
    fn cut(&self, p: &Problem, price: f64, clock: &Clock) -> (u64, u64) {
        let (ops, values) = (p.ops().len(), p.values().len());
        let (source, sink) = (ops + values, ops + values + 1);
        let mut flow = Flow::new(ops + values + 2);
        let mut has_node = vec![false; values];
        let mut kept = Vec::new();
        let mut todo = self.needed.clone();
        todo.iter().for_each(|&v| flow.edge(source, ops + v, UNLIMITED));
        let mut has_op = vec![false; ops];
        while let Some(v) = todo.pop() {
            if std::mem::replace(&mut has_node[v], true) {
                continue;
            }
            let (storage, producer) = (p.values()[v].storage, p.values()[v].producer);
            let Some(producer) = producer.filter(|&o| self.is_before[o]) else { continue };
            if self.held.contains(&storage) || p.storages()[storage].producer.is_none() {
                continue;
            }
            let bytes = p.storages()[storage].padded;
            flow.edge(ops + v, producer, (price * bytes as f64 * (1.0 - 1e-9)) as u64);
            kept.push((v, producer, bytes));
            if std::mem::replace(&mut has_op[producer], true) {
                continue;
            }
            let op = &p.ops()[producer];
            flow.edge(producer, sink, if op.repeatable { op.time_ns } else { UNLIMITED });
            for input in op.inputs.iter().map(|&v| viewed(p, v)) {
                flow.edge(producer, ops + input, UNLIMITED);
                todo.push(input);
            }
        }
        let cut = flow.run(source, sink);
        clock.spend(flow.looks + CUT_LOOKS * p.ops().len());
        let side = flow.source_side(source);
        let kept_bytes = kept.iter().filter(|(v, o, _)| side[ops + v] && !side[*o]).map(|k| k.2).sum();
        (cut, kept_bytes)
    }
}

/// The value itself, or the source of the view: the value of that version that is no view.
fn viewed(p: &Problem, mut v: usize) -> usize {
    while let Some(o) = p.values()[v].producer {
        let op = &p.ops()[o];
        if !op.outputs.contains(&(v, OutputKind::Alias)) {
            break;
        }
        let storage = p.values()[v].storage;
        // An operator reads one version of a storage, so any input of that storage leads to it.
        v = *op.inputs.iter().find(|&&x| p.values()[x].storage == storage).expect("a view names an input");
    }
    v
}

fn mark_before(p: &Problem, t: usize, is_before: &mut [bool]) {
    let mut todo = vec![t];
    while let Some(o) = todo.pop() {
        for producer in p.ops()[o].inputs.iter().filter_map(|&v| p.values()[v].producer) {
            if !std::mem::replace(&mut is_before[producer], true) {
                todo.push(producer);
            }
        }
    }
}

fn after(p: &Problem, t: usize) -> Vec<bool> {
    let mut is_after = vec![false; p.ops().len()];
    is_after[t] = true;
    for o in t + 1..p.ops().len() {
        is_after[o] = p.ops()[o].inputs.iter().filter_map(|&v| p.values()[v].producer).any(|q| is_after[q]);
    }
    is_after[t] = false;
    is_after
}
