//! The least memory that a problem is known to need and to do with: from below a bound, from above the smallest arena
//! that a schedule was found for.
//!
//! Neither depends on a budget, on the clock or on times: whether a budget suffices is a property of problem and budget.
//! So both come from one walk that is always the same. It lets the peak of a sequence down, by halves and
//! then by chance; each sequence on the way is a *rung*, and each rung has one arena, found by a number of placements that
//! follows from its length. The figure from above is the smallest of these arenas.
//!
//! Who asks for a budget walks no further than to the first rung whose arena fits it. A rung with a higher peak than the
//! budget cannot, so it has no need of an arena until the figure is asked for, and then only if its peak is below the best.
//! That gives the same answer as the whole walk: a budget is met if it is at least the figure, and refused if it is less.

use super::emit::{Laid, lay};
use super::model::Model;
use super::repair::{Deadline, Style, Work, relax, repair};
use super::search::ruin;
use super::spill;
use super::state::State;
use super::{FEW_UNITS, Planner, exact};
use crate::plan::arena;
use crate::plan::baseline::{Patience, Policy};
use crate::plan::floor::{Floor, Rung};
use crate::plan::lifetime::lifetimes;
use crate::plan::rng::Rng;

/// Units in order, and their arena.
pub(super) type Witness = (Vec<u32>, Laid);

/// A schedule within the planner's budget; or the known facts of the problem, if there is none.
pub(super) fn within(planner: &Planner, least: u64) -> Result<Witness, Floor> {
    if let Some(known) = planner.known_floor().and_then(|cell| cell.get()) {
        return known.within(planner);
    }
    let mut found: Option<Laid> = None;
    let mut rungs: Vec<Rung> = Vec::new();
    Walk::new(planner, least).run(&mut |state| {
        let mut rung = Rung { sequence: state.sequence.clone(), peak: load_of(planner, state), arena: None };
        if rung.peak <= planner.budget {
            let laid = arena_of(planner, &rung.sequence);
            rung.arena = Some(laid.layout.arena_bytes);
            found = Some(laid).filter(|l| l.layout.arena_bytes <= planner.budget);
        }
        rungs.push(rung);
        found.is_some()
    });
    if let (Some(laid), Some(last)) = (found, rungs.pop_if(|r| r.arena.is_some_and(|a| a <= planner.budget))) {
        return Ok((last.sequence, laid));
    }
    let floor = Floor::new(planner, rungs);
    if let Some(cell) = planner.known_floor() {
        let _ = cell.set(floor.clone());
    }
    Err(floor)
}

impl Floor {
    fn new(planner: &Planner, mut rungs: Vec<Rung>) -> Floor {
        let mut order: Vec<usize> = (0..rungs.len()).collect();
        order.sort_by_key(|&i| rungs[i].peak);
        let (mut smallest_bytes, mut best) = (u64::MAX, 0);
        for i in order {
            if rungs[i].peak >= smallest_bytes {
                break;
            }
            let sequence = &rungs[i].sequence;
            let bytes = rungs[i].arena.unwrap_or_else(|| arena_of(planner, sequence).layout.arena_bytes);
            rungs[i].arena = Some(bytes);
            if bytes < smallest_bytes {
                (smallest_bytes, best) = (bytes, i);
            }
        }
        let state = State::new(&planner.model, rungs[best].sequence.clone());
        let unit = state.sequence.get(state.peak().0);
        let busiest = unit.and_then(|&u| planner.model.units[u as usize].parts.first().copied());
        Floor { rungs, smallest_bytes, busiest }
    }

    fn within(&self, planner: &Planner) -> Result<Witness, Floor> {
        let fits = |r: &&Rung| r.peak <= planner.budget && r.arena.is_none_or(|a| a <= planner.budget);
        let laid = self.rungs.iter().filter(fits).map(|r| (r.sequence.clone(), arena_of(planner, &r.sequence)));
        let mut laid = laid.filter(|(_, l)| l.layout.arena_bytes <= planner.budget);
        laid.next().ok_or_else(|| self.clone())
    }
}

/// The most bytes that live at once, below which no arena is. Units hold what any of their operators does, which may be
/// more than one of them needs.
fn load_of(planner: &Planner, state: &State) -> u64 {
    if state.sequence.iter().any(|&u| planner.model.is_fetch(u)) {
        return state.peak().1;
    }
    lifetimes(planner.p, &planner.model.expand(&state.sequence)).map_or(u64::MAX, |l| l.peak())
}

/// Pairs of intervals that are looked at for an arena, in placements of all of them.
const PAIRS: usize = 8_000_000;
const FEWEST_PLACEMENTS: usize = 4;
const MOST_PLACEMENTS: usize = 1000;

/// The arena of a rung: a function of problem and sequence.
fn arena_of(planner: &Planner, sequence: &[u32]) -> Laid {
    let intervals = sequence.len() + planner.p.storages().len();
    let placements = (PAIRS / (intervals * intervals).max(1)).clamp(FEWEST_PLACEMENTS, MOST_PLACEMENTS);
    let effort = arena::Effort { enough_bytes: 0, placements };
    if sequence.iter().any(|&u| planner.model.is_fetch(u)) {
        spill::lay_tight(planner, sequence, effort)
    } else {
        lay(planner.p, planner.model.expand(sequence), effort)
    }
}

/// Parts of the peak without recomputation that come first.
const FIRST_PARTS: [f64; 4] = [0.97, 0.9, 0.8, 0.7];
/// Parts of a goal that repairs of orders without recomputation aim at: one for less leaves room that is filled at once,
/// and so ends elsewhere.
const PARTS: [f64; 3] = [1.0, 0.95, 0.88];
/// Heuristics that weigh all that is resident at each step take too long with more units.
const MOST_UNITS_FOR_POLICIES: usize = 2000;
/// The looks that a heuristic spends for each step, about.
const POLICY_LOOKS: usize = 100;
/// Of many units a rung is lower than the one before by this part of it, but for the last: an arena each is the dearest
/// part of the walk.
const NEAR: u64 = 64;
/// Smaller steps than this part of the peak are not worth a repair.
const SMALLEST_STEP: u64 = 256;
/// How far moves look, one after the other where one leads nowhere.
const REACHES: [f64; 3] = [0.5, 0.0, 1.0];
/// Noises of repairs by chance.
const NOISES: [f64; 3] = [0.3, 1.0, 3.0];
/// The looks that the walk may spend for each unit, if there are very many units. With 2.5 times as many looks, none
/// of chain-50, ResNet-50, U-Net, MobileNetV2, gpt-4, random-200 and DenseNet-121 got lower.
const LOOKS_PER_UNIT: usize = 4_000;
/// The least that it may spend where the exact solver does not find what there is: `remat plan --generate random-1000 --budget
/// 1%` takes two seconds. With half of it random-50-2 ends at 41.2 % of its peak instead of 39.6 %.
const FEWEST_LOOKS: usize = 8_000_000;
/// Bisections by the exact solver.
const EXACT_TURNS: usize = 8;
/// Where no repair ended within so many runs, none does.
const LOST_FACTOR: u64 = 6;
/// More for problems of few units.
const LOST_SLACK: u64 = 64;

struct Walk {
    /// Every unit takes as long.
    m: Model,
    bases: Vec<State>,
    least: u64,
    work: Work,
    is_exact: bool,
    /// Who plans beside a run waits for no figure: there is only what needs no recomputation.
    is_in_order: bool,
}

/// Takes a rung; true if no more are wanted.
type Visit<'v> = &'v mut dyn FnMut(&State) -> bool;

impl Walk {
    fn new(planner: &Planner, least: u64) -> Walk {
        let mut m = planner.model.clone();
        m.units.iter_mut().for_each(|u| u.time_ns = 1);
        let bases = planner.bases.iter().map(|b| State::new(&m, b.sequence.clone())).collect();
        let is_exact = m.base <= exact::MOST_UNITS;
        let looks = m.base * LOOKS_PER_UNIT;
        let work = Work::new(if is_exact { looks } else { looks.max(FEWEST_LOOKS) });
        Walk { m, bases, least, work, is_exact, is_in_order: planner.effort.in_order }
    }

    fn run(&self, visit: Visit<'_>) {
        if self.bases.iter().any(&mut *visit) || self.is_in_order {
            return;
        }
        let Some(mut known) = self.bases.iter().min_by_key(|b| b.peak().1).cloned() else { return };
        let mut last = known.peak().1;
        let near = if self.m.base <= FEW_UNITS { SMALLEST_STEP } else { NEAR };
        let mut visit_far = |state: &State| {
            let peak = state.peak().1;
            let is_far = peak <= last - last / near;
            last = if is_far { peak } else { last };
            is_far && visit(state)
        };
        let is_enough = self.by_parts(&mut known, &mut visit_far)
            || self.by_halves(&mut known, &mut visit_far)
            || self.exactly(&mut known, &mut visit_far)
            || self.by_chance(&mut known, &mut visit_far);
        if !is_enough && known.peak().1 < last {
            visit(&known);
        }
    }

    /// Down a little at a time, where a little is given up: for budgets that ask for no more.
    fn by_parts(&self, known: &mut State, visit: Visit<'_>) -> bool {
        let from = known.peak().1 as f64;
        for part in FIRST_PARTS {
            let goal = ((from * part) as u64).max(self.least);
            let style = Style { reach: REACHES[0], noise: 0.0 };
            let Some(state) = self.repaired(known.clone(), (goal, goal), style, &mut Rng(0)) else { return false };
            *known = state;
            if visit(known) {
                return true;
            }
        }
        false
    }

    /// Bisects between the bound and the best known sequence; starts again above a goal at which nothing is found.
    fn by_halves(&self, known: &mut State, visit: Visit<'_>) -> bool {
        let mut low = self.least;
        loop {
            let high = known.peak().1;
            if high <= low + low / SMALLEST_STEP || self.deadline().is_over(&self.m) {
                return false;
            }
            let middle = low + (high - low) / 2;
            match self.found(known, middle) {
                Some(state) => *known = state,
                None => {
                    low = middle + 1;
                    continue;
                }
            }
            if visit(known) {
                return true;
            }
        }
    }

    /// A sequence within `goal`: from the best known one, from the orders without recomputation, by the published heuristics.
    fn found(&self, known: &State, goal: u64) -> Option<State> {
        let repaired = |start: &State, part: f64, reach: f64| {
            let lower = ((goal as f64 * part) as u64).max(self.least);
            self.repaired(start.clone(), (lower, goal), Style { reach, noise: 0.0 }, &mut Rng(0))
        };
        let further = REACHES.iter().find_map(|&reach| repaired(known, 1.0, reach));
        let again = || {
            let mut tries = PARTS.iter().flat_map(|part| REACHES.iter().map(move |reach| (*part, *reach)));
            tries.find_map(|(part, reach)| self.bases.iter().find_map(|base| repaired(base, part, reach)))
        };
        let policies = || Policy::ALL.into_iter().find_map(|policy| self.followed(policy, goal));
        further.or_else(again).or_else(policies)
    }

    fn followed(&self, policy: Policy, goal: u64) -> Option<State> {
        if self.deadline().is_over(&self.m) || self.m.base > MOST_UNITS_FOR_POLICIES || self.m.units.len() > self.m.base
        {
            return None;
        }
        let patience = Patience { longest_ns: Some(self.deadline().longest_ns), until: None };
        let sequence = policy.units(&self.m, goal, patience);
        self.work.spend(POLICY_LOOKS * sequence.as_ref().map_or(self.m.base, Vec::len));
        let mut state = State::new(&self.m, sequence?);
        relax(&self.m, &mut state, goal, self.deadline());
        Some(state)
    }

    /// Where there are few units, down to what the exact solver finds.
    fn exactly(&self, known: &mut State, visit: Visit<'_>) -> bool {
        let mut low = self.least;
        for _ in 0..EXACT_TURNS {
            let high = known.peak().1;
            if !self.is_exact || high <= low {
                return false;
            }
            let middle = low + (high - low) / 2;
            match exact::solve(&self.m, middle) {
                Some(sequence) => *known = State::new(&self.m, sequence),
                None => {
                    low = middle + 1;
                    continue;
                }
            }
            if visit(known) {
                return true;
            }
        }
        false
    }

    /// Further down by repairs that weigh their moves with noise: where little fits, one order of moves leads there and
    /// most do not.
    fn by_chance(&self, known: &mut State, visit: Visit<'_>) -> bool {
        let mut rng = Rng(1);
        while !self.deadline().is_over(&self.m) && known.peak().1 > self.least {
            let peak = known.peak().1;
            let part = PARTS[rng.below(PARTS.len())];
            let goal = (peak - (peak / SMALLEST_STEP).max(1)).max(self.least);
            let from = rng.below(self.bases.len() + 1);
            let mut start = self.bases.get(from).unwrap_or(known).clone();
            let was_ruined = from < self.bases.len() || ruin(&self.m, &mut start, &mut rng);
            let style = Style { reach: REACHES[rng.below(REACHES.len())], noise: NOISES[rng.below(NOISES.len())] };
            self.work.spend(start.sequence.len());
            let lower = ((goal as f64 * part) as u64).max(self.least);
            match self.repaired(start, (lower, goal), style, &mut rng).filter(|_| was_ruined) {
                Some(state) => *known = state,
                None => continue,
            }
            if visit(known) {
                return true;
            }
        }
        false
    }

    /// A repair that aims at `lower`; values that fit below `goal` are kept instead of recomputed.
    fn repaired(&self, mut state: State, (lower, goal): (u64, u64), style: Style, rng: &mut Rng) -> Option<State> {
        repair(&self.m, &mut state, lower, style, self.deadline(), rng).ok()?;
        relax(&self.m, &mut state, goal, self.deadline());
        Some(state)
    }

    fn deadline(&self) -> Deadline<'_> {
        let longest_ns = LOST_FACTOR * self.m.base_time_ns() + LOST_SLACK;
        Deadline { until: None, longest_ns, work: Some(&self.work) }
    }
}
