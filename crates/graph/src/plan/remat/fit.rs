//! First sequences that fit.

use super::exact;
use super::model::Model;
use super::repair::{Deadline, Style, relax, repair};
use super::state::State;
use crate::plan::baseline::{Patience, Policy};
use crate::plan::clock::Tick;
use crate::plan::rng::Rng;

/// The base of first sequences.
pub(super) struct Fit<'a> {
    pub(super) model: &'a Model,
    /// Orders without recomputation.
    pub(super) bases: &'a [State],
    /// First executions keep their order, which the exact solver does not.
    pub(super) in_order: bool,
    /// No repair of a base begins after it, if there is a sequence already.
    pub(super) seeds_until: Tick,
    pub(super) until: Tick,
}

/// Repairs to begin with: for which part of the budget, and how far moves look. A repair for less than there is leaves
/// room that is filled at once, and so gives another sequence.
const REPAIRS: [(f64, f64); 5] = [(1.0, 0.5), (1.0, 0.0), (1.0, 1.0), (0.95, 0.5), (0.88, 0.5)];

/// Those that come before the published heuristics.
const FIRST_REPAIRS: usize = 2;

/// A repair that is longer than so many runs without a budget has lost its way; the simulated policies have not.
const LOST_FACTOR: u64 = 6;
/// Walking the address order costs too much on larger problems.
const MOST_UNITS_FOR_ALL: usize = 2000;

impl Fit<'_> {
    /// Sequences within `budget` of the published heuristics, of repairs and of the witness, the fastest first.
    pub(super) fn all(&self, budget: u64, witness: Option<&State>) -> Vec<State> {
        let mut found = self.of_bases(budget);
        if let Some(mut state) = witness.cloned() {
            relax(self.model, &mut state, budget, self.deadline(u64::MAX));
            found.push(state);
        }
        found.sort_by_key(|s| s.time_ns);
        found.dedup_by(|a, b| a.sequence == b.sequence);
        found
    }

    fn of_bases(&self, budget: u64) -> Vec<State> {
        let mut found = Vec::new();
        let (first, more) = REPAIRS.split_at(FIRST_REPAIRS);
        self.repairs(budget, first, &mut found);
        self.policies(budget, &mut found);
        self.repairs(budget, more, &mut found);
        found.sort_by_key(|s| s.time_ns);
        found.dedup_by(|a, b| a.sequence == b.sequence);
        found
    }

    fn repairs(&self, budget: u64, kinds: &[(f64, f64)], found: &mut Vec<State>) {
        for &(part, reach) in kinds {
            for base in self.bases {
                let least = found.iter().map(|s| s.time_ns).min();
                if least.is_some() && self.model.clock.now() >= self.seeds_until {
                    return;
                }
                // A sequence that is much longer than a known one is not worth finishing.
                let longest = least.map_or(LOST_FACTOR * self.model.base_time_ns(), |ns| ns + ns / 2);
                let goal = (budget as f64 * part) as u64;
                if let Some(mut state) = self.repaired(base.clone(), goal, reach, longest) {
                    relax(self.model, &mut state, budget, self.deadline(u64::MAX));
                    found.push(state);
                }
            }
        }
    }

    fn policies(&self, budget: u64, found: &mut Vec<State>) {
        for policy in Policy::ALL {
            let is_cheap = self.model.base <= MOST_UNITS_FOR_ALL;
            if !is_cheap && policy == Policy::Coop {
                continue;
            }
            // A policy that is no better need not be followed to its end.
            let longest_ns = found.iter().map(|s| s.time_ns).min();
            // Nor may one that thrashes take the time of the others.
            let now = self.model.clock.now();
            let until = Some(now + self.until.since(now) / 4);
            let Some(sequence) = policy.units(self.model, budget, Patience { longest_ns, until }) else { continue };
            let mut state = State::new(self.model, sequence);
            relax(self.model, &mut state, budget, self.deadline(u64::MAX));
            found.push(state);
        }
    }

    /// The fastest of them, or what only the exact solver finds.
    fn first(&self, budget: u64) -> Option<State> {
        let exact = || exact::solve(self.model, budget).map(|s| State::new(self.model, s));
        self.of_bases(budget).into_iter().next().or_else(|| if self.in_order { None } else { exact() })
    }

    /// From a sequence that fits a higher budget, or else anew.
    pub(super) fn again(&self, state: State, budget: u64) -> Option<State> {
        self.repaired(state, budget, 0.5, u64::MAX).or_else(|| self.first(budget))
    }

    fn deadline(&self, longest_ns: u64) -> Deadline<'static> {
        Deadline { until: Some(self.until), longest_ns, work: None }
    }

    fn repaired(&self, mut state: State, budget: u64, reach: f64, longest_ns: u64) -> Option<State> {
        // Without noise the numbers do not matter.
        let style = Style { reach, noise: 0.0 };
        repair(self.model, &mut state, budget, style, self.deadline(longest_ns), &mut Rng(0)).ok()?;
        relax(self.model, &mut state, budget, self.deadline(longest_ns));
        Some(state)
    }
}
