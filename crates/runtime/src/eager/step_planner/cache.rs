//! The known steps, and their plans.
//!
//! A step that occurs twice is planned beside the steps that run meanwhile. While it repeats, it is planned again
//! whenever its number of runs has doubled. The planner may take the share [`SHARE`] of the time of those runs. So
//! planning costs a fixed share of the steps' time, however many there are, and the better plan wins. The thread and
//! these rules are the [`Planner`]'s.

use std::rc::Rc;
use std::time::Duration;

use remat_graph::plan::problem::SpillRates;
use remat_graph::plan::remat::{Effort, plan};
use remat_graph::plan::schedule::Plan;

use super::plan::StepPlan;
use super::problem::to_problem;
use super::step_trace::StepTrace;
use crate::options::Foresight;
use crate::planner::{Planner, Progress, Rule, SHARE};

/// The number of steps that are remembered. Every shape of a batch needs one for each branch that a step may take.
const MOST_STEPS: usize = 8;

/// The weight of an earlier successor of a step when the step occurs again.
const NEXT_DECAY: f64 = 0.75;

/// The times at which a step is planned, and for how long. Of two equal plans the newer one is based on better times.
static STEPS: Rule = Rule { first: 2, repeats: true, share: Some(SHARE), prefers_newer: true, thread: "remat-plan" };

/// A plan this near to the lower bound is not improved.
const GOOD_ENOUGH: f64 = 0.005;

/// Unplanned storages may be fragmented. They get so much more room: this part of their bytes.
const SLACK: usize = 32;

/// If copies take so many times as long as a plan assumed, a new plan replaces it, even one that promises less.
const SLOWER_COPIES: f64 = 1.25;

/// Rounds of the planner's search where plans must not depend on the clock.
const INLINE_ROUNDS: usize = 48;
/// The limit of such a search, in units of work and not of the clock. The step waits for it.
const INLINE_LIMIT: Duration = Duration::from_millis(300);

/// A plan, or `None` if there is none, and the time of planning.
struct PlanResult {
    plan: Option<StepPlan>,
    took: Duration,
    spill: SpillRates,
}

/// A step that occurred.
pub(crate) struct CachedStep {
    pub(crate) trace: StepTrace,
    hash: u64,
    pub(crate) plan: Option<Rc<StepPlan>>,
    planner: Planner<PlanResult>,
    last_used: u64,
    /// The numbers of steps that came after it, with their counts. Recent occurrences weigh most.
    next: Vec<(u64, f64)>,
    number: u64,
}

/// Figures of planning.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Planned {
    pub(crate) plans: u64,
    pub(crate) took_ns: u64,
}

/// See the module's note.
#[derive(Default)]
pub(crate) struct StepCache {
    pub(crate) known: Vec<CachedStep>,
    clock: u64,
    numbers: u64,
    /// The number of the previous step.
    last: Option<u64>,
}

impl StepCache {
    /// Notes a recorded step that took `ns`. True if it is a known one.
    pub(crate) fn learn(&mut self, trace: StepTrace, ns: u64) -> bool {
        let hash = trace.hash();
        if let Some(at) = self.known.iter().position(|k| k.hash == hash && k.trace.events == trace.events) {
            self.known[at].trace = trace;
            self.repeat(at, ns);
            return true;
        }
        if self.known.len() >= MOST_STEPS
            && let Some(oldest) = (0..self.known.len()).min_by_key(|k| self.known[*k].last_used)
        {
            self.known.swap_remove(oldest);
        }
        self.numbers += 1;
        let (number, planner) = (self.numbers, Planner::new(&STEPS));
        let new = CachedStep { trace, hash, plan: None, planner, last_used: 0, next: Vec::new(), number };
        self.known.push(new);
        self.repeat(self.known.len() - 1, ns);
        false
    }

    /// Notes that a known step occurred again.
    pub(crate) fn repeat(&mut self, at: usize, ns: u64) {
        self.clock += 1;
        let (clock, last) = (self.clock, self.last);
        let k = &mut self.known[at];
        k.planner.ran(ns);
        k.last_used = clock;
        let number = k.number;
        self.last = Some(number);
        if let Some(before) = self.known.iter_mut().find(|k| Some(k.number) == last) {
            before.precedes(number);
        }
    }

    /// The steps with plans, in the order in which they are tried until a command differs. Steps that followed the
    /// previous step before come first, the most frequent first. Then come the others, the one used last first.
    pub(crate) fn candidates(&self) -> Vec<usize> {
        let last = self.known.iter().find(|k| Some(k.number) == self.last);
        let weight = |k: usize| last.map_or(0.0, |l| l.weight_of(self.known[k].number));
        let mut with_plan: Vec<usize> = (0..self.known.len()).filter(|&k| self.known[k].plan.is_some()).collect();
        with_plan.sort_by(|&a, &b| {
            weight(b).total_cmp(&weight(a)).then(self.known[b].last_used.cmp(&self.known[a].last_used))
        });
        with_plan
    }

    /// Forgets everything: the budget has changed.
    pub(crate) fn clear(&mut self) {
        *self = StepCache::default();
    }

    /// Adopts finished plans, and begins plans that are due. They may spill at these rates. Call this between steps
    /// only.
    pub(crate) fn plan(&mut self, planning: Foresight, budget: usize, spill: SpillRates) -> Planned {
        let mut figures = Planned::default();
        for k in &mut self.known {
            if let Progress::Made(made) = k.planner.poll() {
                k.take(made, &mut figures);
            }
            let is_good = k.plan.as_ref().is_some_and(|s| {
                s.time_ns as f64 <= s.bound_ns as f64 * (1.0 + GOOD_ENOUGH) || planning == Foresight::AtOnce
            });
            if k.planner.is_due() && !is_good && planning != Foresight::Off {
                k.begin(planning, budget, spill, &mut figures);
            }
        }
        figures
    }
}

impl CachedStep {
    /// Another step came after this one.
    fn precedes(&mut self, number: u64) {
        self.next.iter_mut().for_each(|n| n.1 *= NEXT_DECAY);
        match self.next.iter_mut().find(|n| n.0 == number) {
            Some(n) => n.1 += 1.0,
            None => self.next.push((number, 1.0)),
        }
        // The weights of forgotten steps fade away.
        self.next.retain(|n| n.1 > NEXT_DECAY.powi(2 * MOST_STEPS as i32));
    }

    fn weight_of(&self, number: u64) -> f64 {
        self.next.iter().find(|n| n.0 == number).map_or(0.0, |n| n.1)
    }

    fn begin(&mut self, planning: Foresight, budget: usize, spill: SpillRates, figures: &mut Planned) {
        let trace = self.trace.clone();
        if planning == Foresight::AtOnce {
            let whole = |e| Effort { rounds: Some(INLINE_ROUNDS), time_limit: INLINE_LIMIT, ..e };
            let made = self.planner.make_now(|| make(&trace, budget, spill, whole));
            return self.take(made, figures);
        }
        self.planner.begin(move |limit| {
            let within = |t: Duration| limit.map_or(t, |l| t.min(l));
            make(&trace, budget, spill, |e| Effort { time_limit: within(e.time_limit), ..e })
        });
    }

    fn take(&mut self, made: PlanResult, figures: &mut Planned) {
        figures.took_ns += made.took.as_nanos() as u64;
        let Some(plan) = made.plan else { return };
        figures.plans += 1;
        let is_outdated = |old: &StepPlan| old.spill.is_some_and(|rates| is_slower(made.spill, rates));
        if self.plan.as_ref().is_none_or(|old| STEPS.replaces(old.overhead(), plan.overhead()) || is_outdated(old)) {
            self.plan = Some(Rc::new(plan));
        }
    }
}

/// True if copies take much longer than at the `old` rates.
fn is_slower(new: SpillRates, old: SpillRates) -> bool {
    let takes_longer = |new: u64, old: u64| old as f64 > SLOWER_COPIES * new as f64;
    takes_longer(new.write_bytes_per_s, old.write_bytes_per_s)
        || takes_longer(new.read_bytes_per_s, old.read_bytes_per_s)
}

/// Plans a trace. `limited` sets the limits of the search.
fn make(trace: &StepTrace, budget: usize, spill: SpillRates, limited: impl Fn(Effort) -> Effort) -> PlanResult {
    let begin = std::time::Instant::now();
    let plan = to_problem(trace, budget, spill).ok().and_then(|step_problem| {
        let beside = step_problem.fixed_bytes + step_problem.fixed_bytes / SLACK;
        let free_bytes = budget.checked_sub(beside.next_multiple_of(step_problem.problem.align() as usize))?;
        let default = Effort::for_ops(step_problem.problem.ops().len());
        let effort = Effort { in_order: true, keeps_leaves: true, ..default };
        match plan(&step_problem.problem, free_bytes as u64, limited(effort)) {
            Plan::Feasible(schedule) => StepPlan::new(trace, &step_problem, &schedule),
            Plan::Infeasible(_) => None,
        }
    });
    PlanResult { plan, took: begin.elapsed(), spill }
}
