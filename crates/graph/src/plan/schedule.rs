//! A schedule as data: steps with offsets, and the claims about them.
//!
//! Claims are the planner's; [`super::check::check`] believes none of them.

mod read;
#[cfg(test)]
mod tests;
mod write;

use super::problem::Problem;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Runs an operator.
    Compute {
        /// Index into the problem's operators.
        op: usize,
        /// Offset of each output that owns storage, as (storage, offset).
        at: Vec<(usize, u64)>,
        /// Offset of its workspace, if it has one.
        workspace_at: Option<u64>,
    },
    /// Ends the residence of a storage; waits for its copy if one is being written.
    Free {
        /// Index into the problem's storages.
        storage: usize,
    },
    /// Starts to copy a storage out. It stays resident until it is freed.
    Spill {
        /// Index into the problem's storages.
        storage: usize,
    },
    /// Starts to copy a spilled storage back in. Readers wait for it.
    Fetch {
        /// Index into the problem's storages.
        storage: usize,
        /// Where it goes.
        at: u64,
    },
}

/// Steps with offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The budget.
    pub budget_bytes: u64,
    /// End of the highest block, at most the budget.
    pub arena_bytes: u64,
    /// The time of compute steps, and of copies that are not hidden behind them.
    pub time_ns: u64,
    /// Each operator once.
    pub base_time_ns: u64,
    /// No schedule within the budget takes less: proven.
    pub lower_bound_ns: u64,
    /// Time it took to plan.
    pub plan_seconds: f64,
    /// Offset of each given value's storage, as (storage, offset).
    pub values: Vec<(usize, u64)>,
    /// In order.
    pub steps: Vec<Step>,
}

impl Schedule {
    /// Share of the run's time that exceeds the proven bound: 0.02 for 2 %.
    pub fn gap(&self) -> f64 {
        if self.time_ns == 0 {
            0.0
        } else {
            (self.time_ns - self.lower_bound_ns.min(self.time_ns)) as f64 / self.time_ns as f64
        }
    }

    /// Executions beyond the first of each operator.
    pub fn repeats(&self, p: &Problem) -> usize {
        let computes = self.steps.iter().filter(|s| matches!(s, Step::Compute { .. })).count();
        computes.saturating_sub(p.ops().len())
    }

    /// Share of the base time that is added; 0 where operators take no time.
    pub fn overhead(&self) -> f64 {
        match self.base_time_ns {
            0 => 0.0,
            base => self.time_ns as f64 / base as f64 - 1.0,
        }
    }
}

/// The result of planning.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// A schedule within the budget.
    Feasible(Schedule),
    /// None was found.
    Infeasible(Shortfall),
}

/// Why there is no schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The budget.
    pub budget_bytes: u64,
    /// The smallest budget that a schedule is known for.
    pub smallest_feasible_bytes: u64,
    /// No schedule needs less: proven. The budget may lie between the two.
    pub least_bytes: u64,
    /// Where the memory goes: the operator that needs `least_bytes` if those exceed the budget, else the one that runs at
    /// the highest load of the smallest schedule known. `None` if given values alone do not fit.
    pub limiting_op: Option<usize>,
}
