//! A plan by command: the worker's actions before each one, and the places of its results.

use remat_graph::plan::problem::{Op, SpillRates};
use remat_graph::plan::schedule::{Schedule, Step};
use remat_types::SmallVec;
use rustc_hash::FxHashMap;

use super::problem::{StepProblem, name};
use super::step_trace::{Local, Outcome, StepTrace};

/// An action before a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Frees the bytes of these storages. One after the other, they have the same bytes.
    Free(SmallVec<[Local; 2]>),
    Recompute(Recompute),
    /// Begins to copy out the one of these storages that has the bytes.
    Spill(SmallVec<[Local; 2]>),
    /// Begins to copy back the one of these storages that was copied, to this offset.
    Fetch(SmallVec<[Local; 2]>, usize),
}

/// Commands that are recomputed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recompute {
    /// The commands in order. Each after the first works in place on the result of the one before.
    pub(crate) events: SmallVec<[usize; 2]>,
    /// (storage, offset)
    pub(crate) at: SmallVec<[(Local, usize); 2]>,
    pub(crate) scratch_at: Option<usize>,
    /// The input of the first command whose bytes its result takes.
    pub(crate) takes: Option<usize>,
}

/// The places of a command's results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// (storage, offset)
    pub(crate) at: SmallVec<[(Local, usize); 2]>,
    pub(crate) scratch_at: Option<usize>,
    /// The input whose bytes its result takes.
    pub(crate) takes: Option<usize>,
    /// The command works in place on the result of the command before it in its operator.
    pub(crate) in_place: bool,
}

/// See the module's note. Offsets are relative to the start of the planned part of the arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepPlan {
    /// Size of the planned part of the arena.
    pub(crate) arena_bytes: usize,
    /// Time of all commands, recomputations included.
    pub(crate) time_ns: u64,
    /// Time of all commands, each once.
    pub(crate) base_ns: u64,
    /// A lower bound: no plan takes less.
    pub(crate) bound_ns: u64,
    /// The actions before each command, and after the last.
    pub(crate) before: Vec<Vec<Action>>,
    pub(crate) places: Vec<Places>,
    /// For each storage, whether the plan places it.
    pub(crate) planned: Vec<bool>,
    /// The rates that the times assume, if the plan makes copies.
    pub(crate) spill: Option<SpillRates>,
}

impl StepPlan {
    /// The time that recomputation adds, as a share.
    pub(super) fn overhead(&self) -> f64 {
        self.time_ns as f64 / self.base_ns.max(1) as f64 - 1.0
    }

    /// The plan of a schedule. `None` if the schedule runs commands in another order than the trace. A planner that
    /// keeps the order does not do that.
    pub(super) fn new(trace: &StepTrace, step_problem: &StepProblem, schedule: &Schedule) -> Option<StepPlan> {
        let n = trace.events.len();
        let mut s = StepPlan {
            arena_bytes: schedule.arena_bytes as usize,
            time_ns: schedule.time_ns + step_problem.other_ns,
            base_ns: trace.cost_ns(),
            bound_ns: schedule.lower_bound_ns + step_problem.other_ns,
            before: vec![Vec::new(); n + 1],
            places: vec![Places::default(); n],
            planned: step_problem.root.iter().map(Option::is_some).collect(),
            spill: None,
        };
        let locals = Locals::new(step_problem);
        let mut resident = Resident::default();
        let (mut has_run, mut next, mut pending) = (vec![false; step_problem.parts.len()], 0, Vec::new());
        for step in &schedule.steps {
            match step {
                Step::Compute { op, at, workspace_at } => {
                    let events = &step_problem.parts[*op].events;
                    let taken = resident.compute(&step_problem.problem.ops()[*op], at);
                    let (Some(&first), Some(&last)) = (events.first(), events.last()) else { continue };
                    let takes = taken.and_then(|x| locals.input(x, &trace.events[first].done));
                    let at = at.iter().filter_map(|&(s, at)| Some((*locals.root.get(&s)?, at as usize))).collect();
                    let scratch_at = workspace_at.map(|at| at as usize);
                    if std::mem::replace(&mut has_run[*op], true) {
                        pending.push(Action::Recompute(Recompute { events: events.clone(), at, scratch_at, takes }));
                        continue;
                    }
                    if first < next {
                        return None;
                    }
                    next = last + 1;
                    s.before[first].append(&mut pending);
                    s.places[first] = Places { at, scratch_at, takes, in_place: false };
                    events[1..].iter().for_each(|&e| s.places[e].in_place = true);
                }
                Step::Free { storage } => {
                    resident.0.remove(storage);
                    pending.extend(locals.chain.get(storage).map(|chain| Action::Free(chain.clone())));
                }
                Step::Spill { storage } => {
                    s.spill = Some(step_problem.problem.spill());
                    pending.extend(locals.chain.get(storage).map(|chain| Action::Spill(chain.clone())));
                }
                Step::Fetch { storage, at } => {
                    resident.0.insert(*storage, *at);
                    let chain = locals.chain.get(storage);
                    pending.extend(chain.map(|chain| Action::Fetch(chain.clone(), *at as usize)));
                }
            }
        }
        s.before[n].append(&mut pending);
        Some(s)
    }
}

/// Offsets of the problem's resident storages.
#[derive(Default)]
struct Resident(FxHashMap<usize, u64>);

impl Resident {
    /// Places the outputs of an operator. Returns the storage that an output takes over: a resident one at the output's
    /// offset.
    fn compute(&mut self, op: &Op, at: &[(usize, u64)]) -> Option<usize> {
        let taken = op.takes.iter().find(|(y, x)| self.0.get(x).is_some_and(|start| at.contains(&(*y, *start))));
        let taken = taken.map(|t| t.1);
        taken.map(|x| self.0.remove(&x));
        self.0.extend(at.iter().copied());
        taken
    }
}

/// The step's storages for each storage of the problem.
struct Locals {
    root: FxHashMap<usize, Local>,
    /// The storages that have its bytes, one after the other.
    chain: FxHashMap<usize, SmallVec<[Local; 2]>>,
}

impl Locals {
    fn new(step_problem: &StepProblem) -> Self {
        let (mut root, mut chain) = (FxHashMap::default(), FxHashMap::<usize, SmallVec<[Local; 2]>>::default());
        for (l, r) in step_problem.root.iter().enumerate() {
            let Some(v) = r.and_then(|r| step_problem.problem.value_named(&name(r))) else { continue };
            let storage = step_problem.problem.values()[v].storage;
            chain.entry(storage).or_default().push(l as Local);
            root.extend(r.map(|r| (storage, r)));
        }
        Locals { root, chain }
    }

    /// The input of a command that lies in a storage of the problem.
    fn input(&self, storage: usize, done: &Outcome) -> Option<usize> {
        let chain = self.chain.get(&storage)?;
        done.may_take.iter().map(|i| usize::from(*i)).find(|i| chain.contains(&done.x[*i]))
    }
}
