//! Published heuristics as policies on the same problem, for comparison and as starting points.
//!
//! Each gives a sequence of operators that fits a budget, counted in bytes of live storages, or none. They are given
//! every advantage that does not change what they are: offsets cost nothing (but for Coop, whose point they are), what
//! has no use left is free at once, and in-place chains are one step.
//!
//! | policy | source | what it does |
//! |---|---|---|
//! | `SqrtN` | Chen et al. 2016 | keeps what crosses about sqrt(n) equal segments, recomputes inside them |
//! | `Sublinear` | MegEngine | the same with blocks closed at a size threshold; searches the threshold |
//! | `DtrPaper` | Kirisame et al. 2021, h_DTR | evicts the least (own + evicted neighbourhood) / (bytes x staleness) |
//! | `DtrStatic` | MegEngine's DTR for graphs | time x evicted bytes / bytes / distance of the next use, known from the graph |
//! | `Coop` | Zhang et al. 2023 | evicts the cheapest window of neighbouring addresses |
//! | `Farsighted` | ours, a seed of the search | (own + evicted ancestors) / (bytes x time to the next use) |

mod blocks;
mod coop;
mod simulate;

use super::clock::Tick;
use super::problem::Problem;
use super::remat::model::Model;
use super::remat::state::State;

/// When a simulated run is given up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// By the run's own time.
    pub(crate) longest_ns: Option<u64>,
    /// By the clock of the model.
    pub(crate) until: Option<Tick>,
}

/// A heuristic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Segments of equal operator counts.
    SqrtN,
    /// Blocks of a size threshold.
    Sublinear,
    /// DTR as published, without knowledge of the future.
    DtrPaper,
    /// DTR with the distance of the next use.
    DtrStatic,
    /// Contiguous windows.
    Coop,
    /// Recomputation cost over bytes and time to the next use.
    Farsighted,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 6] =
        [Policy::SqrtN, Policy::Sublinear, Policy::DtrPaper, Policy::DtrStatic, Policy::Coop, Policy::Farsighted];

    /// As tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::SqrtN => "sqrt-n",
            Policy::Sublinear => "sublinear",
            Policy::DtrPaper => "dtr",
            Policy::DtrStatic => "dtr-static",
            Policy::Coop => "coop",
            Policy::Farsighted => "farsighted",
        }
    }

    /// A sequence of operators whose live bytes fit the budget, if the policy finds one.
    pub fn sequence(self, p: &Problem, budget: u64) -> Option<Vec<usize>> {
        let m = Model::new(p, false);
        self.units(&m, budget, Patience::default()).map(|units| m.expand(&units))
    }

    /// The same as units of the model.
    pub(crate) fn units(self, m: &Model, budget: u64, patience: Patience) -> Option<Vec<u32>> {
        let sequence = match self {
            Policy::SqrtN => blocks::sqrt_n(m),
            Policy::Sublinear => blocks::sublinear(m, budget)?,
            Policy::Coop => coop::run(m, budget, patience)?,
            Policy::DtrPaper | Policy::DtrStatic | Policy::Farsighted => simulate::run(m, budget, patience, self)?,
        };
        (State::new(m, sequence.clone()).peak().1 <= budget).then_some(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::generate::generate;
    use crate::plan::lifetime::lifetimes;

    #[test]
    fn every_policy_gives_valid_sequences_within_the_budget() {
        for name in ["chain-20", "random-60", "unet", "mobilenetv2"] {
            let p = Problem::new(generate(name).expect(name)).expect(name);
            let all: Vec<usize> = (0..p.ops().len()).collect();
            let peak = lifetimes(&p, &all).expect("own order").peak();
            let mut found = 0;
            for policy in Policy::ALL {
                assert_eq!(policy.sequence(&p, 0), None);
                let budget = (peak as f64 * 0.75) as u64;
                let Some(sequence) = policy.sequence(&p, budget) else { continue };
                let Ok(l) = lifetimes(&p, &sequence) else { panic!("{name} {}: reads what is gone", policy.name()) };
                assert!(l.peak() <= budget, "{name} {}", policy.name());
                assert!(sequence.len() > all.len(), "{name} {}: something was made again", policy.name());
                found += 1;
            }
            assert!(found >= 4, "{name}: {found}");
        }
    }
}
