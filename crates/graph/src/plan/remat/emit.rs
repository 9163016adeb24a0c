//! From a sequence of operators to a schedule with offsets.

use crate::plan::arena::{Effort, Layout, assign};
use crate::plan::lifetime::{Lifetimes, lifetimes};
use crate::plan::problem::{OutputKind, Problem};
use crate::plan::schedule::{Schedule, Step};

/// A sequence laid out in an arena.
#[derive(Clone, Debug)]
pub(crate) struct Laid {
    /// The operator of each step that has a load.
    pub(crate) sequence: Vec<usize>,
    pub(crate) lifetimes: Lifetimes,
    pub(crate) layout: Layout,
    /// Set if it spills; else the steps follow from the lifetimes.
    pub(crate) steps: Option<Steps>,
}

/// The steps of a sequence with copies out and in.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    /// Offset of each given value's storage.
    pub(crate) values: Vec<(usize, u64)>,
    pub(crate) steps: Vec<Step>,
    pub(crate) time_ns: u64,
}

/// Lays a sequence out.
pub(crate) fn lay(p: &Problem, sequence: Vec<usize>, effort: Effort) -> Laid {
    let lifetimes = lifetimes(p, &sequence).expect("searches make valid sequences only");
    let layout = assign(&lifetimes, effort);
    Laid { sequence, lifetimes, layout, steps: None }
}

impl Laid {
    pub(crate) fn time_ns(&self, p: &Problem) -> u64 {
        match &self.steps {
            Some(s) => s.time_ns,
            None => self.sequence.iter().map(|&o| p.ops()[o].time_ns).sum(),
        }
    }

    pub(crate) fn schedule(&self, p: &Problem, budget_bytes: u64, lower_bound_ns: u64, plan_seconds: f64) -> Schedule {
        let (values, steps) = match &self.steps {
            Some(s) => (s.values.clone(), s.steps.clone()),
            None => self.plain_steps(p),
        };
        Schedule {
            budget_bytes,
            arena_bytes: self.layout.arena_bytes,
            time_ns: self.time_ns(p),
            base_time_ns: p.base_time_ns(),
            lower_bound_ns,
            plan_seconds,
            values,
            steps,
        }
    }

    /// Offsets of given values, and the steps: every storage is freed right after the last step of its interval,
    /// unless it was taken over.
    fn plain_steps(&self, p: &Problem) -> (Vec<(usize, u64)>, Vec<Step>) {
        let steps = self.sequence.len();
        let (mut starts, mut ends) = (vec![Vec::new(); steps], vec![Vec::new(); steps]);
        let mut values = Vec::new();
        // for each interval the storage that has its bytes last
        let mut last: Vec<Option<usize>> = self.lifetimes.intervals.iter().map(|i| i.storage).collect();
        let mut taken = vec![Vec::new(); steps];
        for t in &self.lifetimes.taken {
            last[t.interval] = Some(t.to);
            taken[t.step].push((t.to, self.layout.offsets[t.interval]));
        }
        for (i, interval) in self.lifetimes.intervals.iter().enumerate() {
            match interval.storage {
                Some(s) if p.storages()[s].producer.is_none() => values.push((s, self.layout.offsets[i])),
                _ => {
                    starts[interval.start].push(i);
                    ends[interval.end].push(i);
                }
            }
        }
        let mut out = Vec::with_capacity(2 * steps);
        for (step, &op) in self.sequence.iter().enumerate() {
            let intervals = starts[step].iter().map(|&i| (self.lifetimes.intervals[i].storage, self.layout.offsets[i]));
            let (at, scratch): (Vec<_>, Vec<_>) = intervals.partition(|(s, _)| s.is_some());
            out.push(Step::Compute {
                op,
                at: at
                    .into_iter()
                    .filter_map(|(s, offset)| Some((s?, offset)))
                    .chain(taken[step].iter().copied())
                    .collect(),
                workspace_at: scratch.first().map(|w| w.1),
            });
            let gone = ends[step].iter().filter_map(|&i| last[i]);
            out.extend(gone.filter(|&s| step + 1 < steps || !is_output(p, s)).map(|storage| Step::Free { storage }));
        }
        (values, out)
    }
}

fn is_output(p: &Problem, storage: usize) -> bool {
    debug_assert!(
        p.storages()[storage].producer.is_none_or(|o| p.ops()[o].outputs.iter().any(|x| x.1 == OutputKind::Own))
    );
    p.outputs().iter().any(|&v| p.values()[v].storage == storage)
}
