//! Rematerialisation: a schedule whose arena fits a budget, in as little time as can be found.
//!
//! 1. Lower bounds on time and memory ([`bound`]), proven for schedules in any order.
//! 2. Small problems are solved exactly ([`exact`]).
//! 3. Else a first sequence: the repair of the plain order at its highest load ([`repair`]) under several weighings, and
//!    the published heuristics ([`super::baseline`]); the best is the start, so that none of them is better.
//! 4. Ruin and repair ([`search`]) until the time or the rounds are over, or the bound is met.
//! 5. Offsets. If an arena does not fit, the search goes on under a budget that is lower by what sticks out.
//!
//! Without a time limit that binds, the result is a function of problem, budget, rounds and seed.
//!
//! Rejected: stages with a free choice of what is computed in each (Checkmate's rows) as the search's state. A plain
//! sequence has no decisions that have no effect, and an insertion changes one gap.

mod bound;
mod emit;
mod exact;
mod fit;
mod flow;
pub(crate) mod model;
mod repair;
mod search;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::problem::Problem;
use super::schedule::{Plan, Shortfall};
use emit::{Laid, lay};
use fit::Fit;
use model::Model;
use search::{Climb, Limit};
use state::State;

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Planning ends about then.
    pub time_limit: Duration,
    /// Rounds of ruin and repair; `None` for as many as there is time for.
    pub rounds: Option<usize>,
    /// Of the search's random numbers.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { time_limit: Duration::from_secs(2), rounds: None, seed: 1 }
    }
}

/// Live bytes of the run without a budget: what shares of the peak refer to.
pub fn peak_bytes(p: &Problem) -> u64 {
    let all: Vec<usize> = (0..p.ops().len()).collect();
    super::lifetime::lifetimes(p, &all).map_or(0, |l| l.peak())
}

/// Plans `p` within `budget_bytes`.
pub fn plan(p: &Problem, budget_bytes: u64, effort: Effort) -> Plan {
    Planner::new(p, budget_bytes, effort).plan()
}

/// Parts that the search's time is cut into; an arena is laid out after each.
const SLICES: usize = 6;
/// Share of the time limit for one layout of the arena, and what a placement of two intervals costs about.
const LAYOUT_SHARE: f64 = 0.03;
const PAIR_SECONDS: f64 = 2e-9;
/// Share of the time limit for lower bounds, and how many moments are looked at.
const BOUND_SHARE: f64 = 0.15;
const BOUND_MOMENTS: usize = 24;

struct Planner<'p> {
    p: &'p Problem,
    model: Model,
    base: State,
    budget: u64,
    effort: Effort,
    begin: Instant,
    until: Instant,
}

impl<'p> Planner<'p> {
    fn new(p: &'p Problem, budget: u64, effort: Effort) -> Planner<'p> {
        let begin = Instant::now();
        let model = Model::new(p);
        let base = State::new(&model, model.early_order());
        Planner { p, model, base, budget, effort, begin, until: begin + effort.time_limit }
    }

    fn plan(&self) -> Plan {
        for order in [(0..self.model.units.len() as u32).collect(), self.base.sequence.clone()] {
            let plain = State::new(&self.model, order);
            let laid = (plain.peak().1 <= self.budget).then(|| self.lay(&plain.sequence, self.budget));
            if let Some(laid) = laid.filter(|l| l.layout.arena_bytes <= self.budget) {
                return self.feasible(laid, self.p.base_time_ns());
            }
        }
        let (least, limiting_op) = bound::least_bytes(self.p);
        if least > self.budget {
            return self.smallest(least, limiting_op);
        }
        let moments = self.moments();
        let bound_until = Instant::now() + self.effort.time_limit.mul_f64(BOUND_SHARE);
        let mut bound = bound::time_bound(self.p, self.budget, &moments, bound_until);
        if let Some(best) = exact::solve(&self.model, self.budget) {
            let laid = self.lay(&best, self.budget);
            if laid.layout.arena_bytes <= self.budget {
                bound = bound.max(self.exact_bound(&laid));
                return self.feasible(laid, bound);
            }
        }
        match self.search(bound) {
            Some(laid) => self.feasible(laid, bound),
            None => self.smallest(least, limiting_op),
        }
    }

    fn feasible(&self, laid: Laid, bound: u64) -> Plan {
        Plan::Feasible(laid.schedule(self.p, self.budget, bound, self.begin.elapsed().as_secs_f64()))
    }

    /// The exact solver's optimum is one of units; it bounds the problem if no operators were fused.
    fn exact_bound(&self, laid: &Laid) -> u64 {
        if self.model.units.len() == self.p.ops().len() { laid.time_ns(self.p) } else { 0 }
    }

    /// Operators at whose first execution the bound is likely to be high: those under the highest loads.
    fn moments(&self) -> Vec<usize> {
        let mut steps: Vec<usize> = (0..self.base.load.len()).collect();
        steps.sort_by_key(|&s| (std::cmp::Reverse(self.base.load[s]), s));
        // Neighbours bound alike; the highest is followed by some that lie apart.
        let apart = (steps.len() / BOUND_MOMENTS / 2).max(1);
        let mut chosen: Vec<usize> = Vec::new();
        for s in steps {
            if chosen.len() < BOUND_MOMENTS && chosen.iter().all(|c| c.abs_diff(s) >= apart) {
                chosen.push(s);
            }
        }
        chosen.into_iter().map(|s| self.model.units[self.base.sequence[s] as usize].parts[0]).collect()
    }

    fn search(&self, bound: u64) -> Option<Laid> {
        let fit = Fit { model: &self.model, base: &self.base, until: self.until };
        let mut internal = self.budget;
        let mut start = fit.first(internal)?;
        let mut best: Option<Laid> = None;
        let mut shrinks = 0;
        let rounds = self.effort.rounds.map(|r| r.div_ceil(SLICES));
        for slice in 0.. {
            let now = Instant::now();
            let left = self.until.saturating_duration_since(now);
            let slice_time = left / (SLICES.saturating_sub(slice).max(1) as u32);
            let limit = Limit { until: now + slice_time, rounds: if slice < SLICES { rounds.unwrap_or(usize::MAX) } else { 0 } };
            let mut climb = Climb::new(&self.model, internal, start, self.effort.seed.wrapping_add(slice as u64));
            climb.run(limit, bound);
            let laid = self.lay(&climb.best.sequence, self.budget);
            let sticks_out = laid.layout.arena_bytes.saturating_sub(self.budget);
            let is_better = best.as_ref().is_none_or(|b| laid.time_ns(self.p) < b.time_ns(self.p));
            let time_ns = climb.best.time_ns;
            start = climb.best;
            if sticks_out == 0 && is_better {
                best = Some(laid);
            }
            let is_over = slice + 1 >= SLICES || time_ns <= bound;
            if (sticks_out == 0 && is_over) || (is_over && best.is_some()) {
                return best;
            }
            if sticks_out > 0 {
                shrinks += 1;
                internal = shrunk(internal, sticks_out, self.p.align(), shrinks)?;
                start = fit.again(start, internal)?;
            }
        }
        best
    }

    fn lay(&self, sequence: &[u32], enough_bytes: u64) -> Laid {
        let intervals = sequence.len().max(1) as f64 + self.p.storages().len() as f64;
        let seconds = self.effort.time_limit.as_secs_f64() * LAYOUT_SHARE;
        let placements = seconds / (PAIR_SECONDS * intervals * intervals);
        lay(self.p, self.model.expand(sequence), enough_bytes, (placements as usize).clamp(12, 400))
    }

    /// No schedule fits, or none was found: the smallest budget for which one is found.
    fn smallest(&self, least: u64, limiting_op: usize) -> Plan {
        // The way to the answer is worth the time that the search would have had.
        let fit = Fit { model: &self.model, base: &self.base, until: Instant::now() + self.effort.time_limit };
        let mut best = self.lay(&self.base.sequence, 0);
        let (mut low, mut high) = (least.max(self.budget), self.base.peak().1);
        while high > low + low / 256 && Instant::now() < fit.until {
            let middle = low + (high - low) / 2;
            match fit.first(middle) {
                Some(state) => {
                    high = middle;
                    let laid = self.lay(&state.sequence, middle);
                    if laid.layout.arena_bytes < best.layout.arena_bytes {
                        best = laid;
                    }
                }
                None => low = middle + 1,
            }
        }
        if best.layout.arena_bytes <= self.budget {
            return self.feasible(best, self.p.base_time_ns());
        }
        Plan::Infeasible(Shortfall {
            budget_bytes: self.budget,
            smallest_feasible_bytes: best.layout.arena_bytes,
            least_bytes: least,
            limiting_op,
        })
    }
}

/// Attempts at an arena that fits.
const MOST_SHRINKS: u64 = 24;

/// A lower budget for live bytes, so that the next arena sticks out less; more from the fifth time on.
fn shrunk(internal: u64, sticks_out: u64, align: u64, times: u64) -> Option<u64> {
    let step = (sticks_out / 2).max(align) * times.div_ceil(4);
    (times <= MOST_SHRINKS).then(|| internal.checked_sub(step)).flatten()
}
