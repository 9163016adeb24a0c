//! Rematerialisation: a schedule whose arena fits a budget, in as little time as can be found.
//!
//! 1. Lower bounds on time and memory (`bound`), proven for schedules in any order.
//! 2. A schedule that fits, whatever time it takes (`floor`): the same walk for every budget, so that refusals and their
//!    figures depend on the problem alone. If it takes no more than a run without a budget, it is the plan.
//! 3. Small problems are solved exactly (`exact`).
//! 4. Else a first sequence: the repair of the plain order at its highest load (`repair`) under several weighings, and
//!    the published heuristics ([`super::baseline`]); the best is the start, so that none of them is better.
//! 5. Ruin and repair (`search`) until the time or the rounds are over, or the bound is met.
//! 6. Offsets. If an arena does not fit, the search goes on under a budget that is lower by what sticks out.
//!
//! If the problem allows spilling, a part of the time goes to sequences that fetch some of what they gave up (`copies`).
//!
//! The result is a function of problem, budget, effort and seed: the time of a search is counted in looks.
//!
//! Rejected: stages with a free choice of the operators computed in each (Checkmate's rows), as the search's state. A
//! plain sequence has no decisions that have no effect, and an insertion changes one gap. Dynamic programming over the
//! stages of a chain (Beaumont et al. 2019, section 4) as a first sequence: its schedules keep a stage's output until the
//! stages behind it are done, and the repair's need not. Of the first sequences of chains of 10 to 100 stages, ResNet-50,
//! MobileNetV2, DenseNet-121, U-Net and a GPT at 80 to 40 %, the repair's took up to 5 % of the run less and at most 0.3 %
//! more (DenseNet-121 at 40 %), and the table took longer to fill than the repair to run.

mod bound;
mod copies;
mod emit;
mod exact;
mod fit;
mod floor;
mod flow;
pub(crate) mod model;
mod repair;
mod search;
mod slices;
mod spill;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::arena;
use super::clock::Tick;
use super::floor::Floor;
use super::problem::Problem;
use super::schedule::{Plan, Shortfall};
use emit::{Laid, lay};
use fit::Fit;
use floor::Witness;
use model::Model;
use state::State;

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The search ends about so long after it is known that a schedule fits; planning ends about then where `in_order`. Counted in
    /// what the search looks at, as one core of a common processor takes for it: a plan does not depend on the machine, nor on
    /// what else that does.
    pub time_limit: Duration,
    /// Rounds of ruin and repair; `None` for as many as there is time for.
    pub rounds: Option<usize>,
    /// Of the search's random numbers.
    pub seed: u64,
    /// First executions keep the order of the problem: who follows the schedule cannot choose it.
    pub in_order: bool,
    /// Operators that may run only once are not spilled. The runtime recomputes a value if its copy is lost.
    pub keeps_leaves: bool,
}

/// Time for problems of up to [`FEW_OPS`] operators, and for [`MANY_OPS`] and more; between them it grows in proportion.
/// Both leave room for reading, checking and writing within 2 and 15 seconds.
const FEW_SECONDS: f64 = 1.6;
const MANY_SECONDS: f64 = 12.0;
const FEW_OPS: f64 = 1000.0;
const MANY_OPS: f64 = 5000.0;

impl Effort {
    /// As long as a problem of so many operators deserves.
    pub fn for_ops(ops: usize) -> Effort {
        let share = ((ops as f64 - FEW_OPS) / (MANY_OPS - FEW_OPS)).clamp(0.0, 1.0);
        let seconds = FEW_SECONDS + share * (MANY_SECONDS - FEW_SECONDS);
        Effort {
            time_limit: Duration::from_secs_f64(seconds),
            rounds: None,
            seed: 1,
            in_order: false,
            keeps_leaves: false,
        }
    }
}

/// Live bytes of the run without a budget: what shares of the peak refer to.
pub fn peak_bytes(p: &Problem) -> u64 {
    let all: Vec<usize> = (0..p.ops().len()).collect();
    super::lifetime::lifetimes(p, &all).map_or(0, |l| l.peak())
}

/// Plans `p` within `budget_bytes`.
pub fn plan(p: &Problem, budget_bytes: u64, effort: Effort) -> Plan {
    let begin = Instant::now();
    let model = Model::new(p, effort.in_order);
    if !p.spill().is_possible() {
        return Planner::new(p, model, budget_bytes, effort).plan();
    }
    let whole = Duration::mul_f64;
    let first = Effort { time_limit: whole(effort.time_limit, PLAIN_SHARE), ..effort };
    let mut best = Planner::new(p, model.clone(), budget_bytes, first).plan();
    if !matches!(&best, Plan::Feasible(s) if s.time_ns == p.base_time_ns()) {
        let rest = Effort { time_limit: whole(effort.time_limit, 1.0 - PLAIN_SHARE), ..effort };
        let model = model.with_fetches(effort.keeps_leaves);
        best = better(best, Planner::new(p, model, budget_bytes, rest).plan());
    }
    if let Plan::Feasible(s) = &mut best {
        // The bounds on recomputation do not bound schedules that spill.
        (s.lower_bound_ns, s.plan_seconds) = (p.base_time_ns(), begin.elapsed().as_secs_f64());
    }
    best
}

/// Share of the time for a plan that spills nothing, where spilling is allowed.
const PLAIN_SHARE: f64 = 0.3;

/// The faster, or the one that needs less.
fn better(a: Plan, b: Plan) -> Plan {
    let is_b = match (&a, &b) {
        (Plan::Feasible(a), Plan::Feasible(b)) => b.time_ns < a.time_ns,
        (Plan::Feasible(_), Plan::Infeasible(_)) => false,
        (Plan::Infeasible(_), Plan::Feasible(_)) => true,
        (Plan::Infeasible(a), Plan::Infeasible(b)) => b.smallest_feasible_bytes < a.smallest_feasible_bytes,
    };
    if is_b { b } else { a }
}

/// Share of the time limit for one layout of the arena.
const LAYOUT_SHARE: f64 = 0.03;
/// The same for problems of few units: their sequences are found soon, and their arenas have few ways to fit.
const LAYOUT_SHARE_OF_FEW: f64 = 0.06;
const FEW_UNITS: usize = 300;
/// The approximate cost of a placement for each pair of intervals.
const PAIR_SECONDS: f64 = 2e-9;
const FEWEST_PLACEMENTS: usize = 4;
const MOST_PLACEMENTS: usize = 4000;
/// Share of the time limit that may be added if no arena fits by then.
const GRACE_SHARE: f64 = 0.2;
/// Share of the time limit for first sequences.
const SEED_SHARE: f64 = 0.3;
/// Share of the time limit for lower bounds, and how many moments are looked at.
const BOUND_SHARE: f64 = 0.15;
const BOUND_MOMENTS: usize = 24;

struct Planner<'p> {
    p: &'p Problem,
    model: Model,
    /// The given order, and if it may be left the one in which updates run early.
    bases: Vec<State>,
    budget: u64,
    effort: Effort,
    begin: Instant,
    until: Tick,
}

impl<'p> Planner<'p> {
    fn new(p: &'p Problem, model: Model, budget: u64, effort: Effort) -> Planner<'p> {
        let begin = Instant::now();
        let given = std::iter::once((0..model.base as u32).collect());
        let early = (!effort.in_order).then(|| model.early_order());
        let bases = given.chain(early).map(|order| State::new(&model, order)).collect();
        let until = model.clock.now() + effort.time_limit;
        Planner { p, model, bases, budget, effort, begin, until }
    }

    fn plan(mut self) -> Plan {
        let (least, limiting_op) = bound::least_bytes(self.p);
        let known = floor::within(&self, least);
        // A planner that keeps to an order has not tried other orders yet.
        let is_refused = known.is_err() && (least > self.budget || !self.effort.in_order);
        let is_free = matches!(&known, Ok(w) if w.1.time_ns(self.p) == self.p.base_time_ns());
        let (found, bound) = if is_refused || is_free {
            (None, self.p.base_time_ns())
        } else {
            if !self.effort.in_order {
                // However long that took: a search without time would end with a schedule that merely fits.
                self.until = self.now() + self.effort.time_limit;
            }
            self.search(known.as_ref().ok())
        };
        match (found, known) {
            (Some(laid), _) | (None, Ok((_, laid))) => self.feasible(laid, bound),
            (None, Err(floor)) => self.refused(least, limiting_op, &floor),
        }
    }

    /// The fastest schedule found, and a lower bound on the time of every one.
    fn search(&self, witness: Option<&Witness>) -> (Option<Laid>, u64) {
        if self.may_fetch() {
            return (copies::search(self, witness), self.p.base_time_ns());
        }
        let moments = self.moments();
        let bound_until = self.now() + self.effort.time_limit.mul_f64(BOUND_SHARE);
        let bound = bound::time_bound(self.p, self.budget, &moments, &self.model.clock, bound_until);
        if let Some(best) = self.exact() {
            let laid = self.lay(&best, self.budget, 1.0);
            if laid.layout.arena_bytes <= self.budget {
                let bound = bound.max(self.exact_bound(&laid));
                return (Some(laid), bound);
            }
        }
        (slices::search(self, bound, witness), bound)
    }

    fn refused(&self, least: u64, limiting_op: Option<usize>, floor: &Floor) -> Plan {
        Plan::Infeasible(Shortfall {
            budget_bytes: self.budget,
            smallest_feasible_bytes: floor.smallest_bytes,
            least_bytes: least,
            limiting_op: if least > self.budget { limiting_op } else { floor.busiest },
        })
    }

    /// The problem's cache of its memory floor. It covers only first executions in any order.
    fn known_floor(&self) -> Option<&OnceLock<Floor>> {
        (!self.effort.in_order && !self.effort.keeps_leaves).then(|| self.p.floor(self.may_fetch()))
    }

    /// A fastest sequence of a small problem, in any order.
    fn exact(&self) -> Option<Vec<u32>> {
        if self.effort.in_order { None } else { exact::solve(&self.model, self.budget) }
    }

    fn may_fetch(&self) -> bool {
        self.model.units.len() > self.model.base
    }

    fn feasible(&self, laid: Laid, bound: u64) -> Plan {
        Plan::Feasible(laid.schedule(self.p, self.budget, bound, self.begin.elapsed().as_secs_f64()))
    }

    /// The exact solver's optimum is one of units; it bounds the problem if they lose nothing.
    fn exact_bound(&self, laid: &Laid) -> u64 {
        if self.model.is_faithful { laid.time_ns(self.p) } else { 0 }
    }

    /// Operators at whose first execution the bound is likely to be high: those under the highest loads.
    fn moments(&self) -> Vec<usize> {
        let base = &self.bases[0];
        let mut steps: Vec<usize> = (0..base.load.len()).collect();
        steps.sort_by_key(|&s| (std::cmp::Reverse(base.load[s]), s));
        // Neighbours bound alike; the highest is followed by some that lie apart.
        let apart = (steps.len() / BOUND_MOMENTS / 2).max(1);
        let mut chosen: Vec<usize> = Vec::new();
        for s in steps {
            if chosen.len() < BOUND_MOMENTS && chosen.iter().all(|c| c.abs_diff(s) >= apart) {
                chosen.push(s);
            }
        }
        chosen.into_iter().map(|s| self.model.units[base.sequence[s] as usize].parts[0]).collect()
    }

    /// Where the search is.
    fn now(&self) -> Tick {
        self.model.clock.now()
    }

    fn fit(&self, until: Tick) -> Fit<'_> {
        let seeds_until = self.now() + until.since(self.now()).mul_f64(SEED_SHARE);
        Fit { model: &self.model, bases: &self.bases, in_order: self.effort.in_order, seeds_until, until }
    }

    /// Lays a sequence out, for a share of the usual time.
    fn lay(&self, sequence: &[u32], enough_bytes: u64, share: f64) -> Laid {
        let intervals = sequence.len().max(1) as f64 + self.p.storages().len() as f64;
        let layout_share = if self.model.base <= FEW_UNITS { LAYOUT_SHARE_OF_FEW } else { LAYOUT_SHARE };
        let seconds = self.effort.time_limit.as_secs_f64() * layout_share * share;
        let placements = (seconds / (PAIR_SECONDS * intervals * intervals)) as usize;
        let placements = placements.clamp(FEWEST_PLACEMENTS, MOST_PLACEMENTS);
        let effort = arena::Effort { enough_bytes, placements };
        let laid = match sequence.iter().any(|&u| self.model.is_fetch(u)) {
            true => spill::lay(self, sequence, effort),
            false => lay(self.p, self.model.expand(sequence), effort),
        };
        self.model.clock.spend(laid.layout.looks);
        laid
    }
}
