//! First sequences that fit.

use std::time::Instant;

use super::model::Model;
use super::repair::{Deadline, Style, relax, repair};
use super::state::{Rng, State};
use crate::plan::baseline::Policy;

/// What first sequences are made from.
pub(super) struct Fit<'a> {
    pub(super) model: &'a Model,
    pub(super) base: &'a State,
    pub(super) until: Instant,
}

/// A repair that is longer than so many runs without a budget has lost its way; the simulated policies have not.
const LOST_FACTOR: u64 = 6;
/// Walking the address order costs too much on larger problems.
const MOST_UNITS_FOR_ALL: usize = 2000;

impl Fit<'_> {
    /// The fastest sequence of the repairs and the published heuristics within `budget`.
    pub(super) fn first(&self, budget: u64) -> Option<State> {
        let mut best = None;
        for policy in Policy::ALL {
            let is_cheap = self.model.units.len() <= MOST_UNITS_FOR_ALL;
            if !is_cheap && policy == Policy::Coop {
                continue;
            }
            let Some(sequence) = policy.units(self.model, budget) else { continue };
            let mut state = State::new(self.model, sequence);
            relax(self.model, &mut state, budget, self.deadline(u64::MAX));
            keep(&mut best, Some(state));
        }
        for reach in [0.5, 1.0, 0.0] {
            // What is much longer than a known way is not worth finishing.
            let longest = best.as_ref().map_or(LOST_FACTOR * self.model.base_time_ns(), |b: &State| b.time_ns + b.time_ns / 8);
            keep(&mut best, self.repaired(self.base.clone(), budget, reach, longest));
        }
        best
    }

    /// From a sequence that fits a higher budget.
    pub(super) fn again(&self, state: State, budget: u64) -> Option<State> {
        self.repaired(state, budget, 0.5, u64::MAX).or_else(|| self.first(budget))
    }

    fn deadline(&self, longest_ns: u64) -> Deadline {
        Deadline { until: self.until, longest_ns }
    }

    fn repaired(&self, mut state: State, budget: u64, reach: f64, longest_ns: u64) -> Option<State> {
        // Without noise the numbers do not matter.
        let style = Style { reach, noise: 0.0 };
        repair(self.model, &mut state, budget, style, self.deadline(longest_ns), &mut Rng(0)).ok()?;
        relax(self.model, &mut state, budget, self.deadline(longest_ns));
        Some(state)
    }
}

fn keep(best: &mut Option<State>, state: Option<State>) {
    if let Some(state) = state {
        if best.as_ref().is_none_or(|b| state.time_ns < b.time_ns) {
            *best = Some(state);
        }
    }
}
