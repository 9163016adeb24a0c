//! Making a sequence fit: at its highest load, give up the storage that is cheapest to make again.
//!
//! One move lets go of a storage in a gap between two of its uses and runs its producer again just before the second.
//! What the producer reads and is gone by then is held longer where there is room, and else made again too. The move's
//! price is the added time; its worth is the excess bytes it takes away, at the peak (`reach` 0) or over all steps that
//! have too much (`reach` 1). An execution that is needed later anyway may move forward at no price.

use std::cell::Cell;

use super::model::Model;
use super::state::State;
use crate::plan::clock::Tick;
use crate::plan::rng::Rng;

/// How moves are weighed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// From 0, only the highest step counts, to 1, all steps do.
    pub(crate) reach: f64,
    /// Prices are multiplied by up to this to either side.
    pub(crate) noise: f64,
}

/// When a repair is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline<'w> {
    /// By the clock of the model.
    pub(crate) until: Option<Tick>,
    /// By the sequence's own time.
    pub(crate) longest_ns: u64,
    /// A limit of looks.
    pub(crate) work: Option<&'w Work>,
}

impl Deadline<'_> {
    pub(crate) fn is_over(self, m: &Model) -> bool {
        self.until.is_some_and(|until| m.clock.now() >= until) || self.work.is_some_and(Work::is_over)
    }

    fn spend(self, looks: usize) {
        if let Some(work) = self.work {
            work.spend(looks);
        }
    }
}

/// The budget of repairs, in looks at a step or an instance. The limit is the same on every machine.
#[derive(Debug)]
pub(crate) struct Work(Cell<usize>);

impl Work {
    pub(crate) fn new(looks: usize) -> Work {
        Work(Cell::new(looks))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.get() == 0
    }

    pub(crate) fn spend(&self, looks: usize) {
        self.0.set(self.0.get().saturating_sub(looks));
    }
}

/// Why no sequence came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// Nothing can be let go at the highest load.
    AtPeak,
    /// It takes longer than is of interest.
    TooLong,
}

/// A storage given up between two uses.
#[derive(Debug, Default)]
struct Move {
    score: f64,
    /// Bytes at the highest step.
    freed: u64,
    /// Step before which `units` run.
    at: u32,
    /// Fetches, then the others in their own order, so in a valid one.
    units: Vec<u32>,
    /// Steps that need not run any more.
    removed: Vec<u32>,
}

/// Makes the state's load fit `budget`.
pub(crate) fn repair(
    m: &Model,
    state: &mut State,
    budget: u64,
    style: Style,
    deadline: Deadline<'_>,
    rng: &mut Rng,
) -> Result<(), Stuck> {
    let mut search = Search {
        m,
        budget,
        style,
        excess: Vec::new(),
        over: Vec::new(),
        units: Vec::new(),
        todo: Vec::new(),
        goes_deep: false,
    };
    // Moves can undo each other; a repair that helps adds a few executions for each unit.
    let most_steps = 8 * m.base + 64;
    loop {
        let (step, load) = state.peak();
        if load <= budget {
            return Ok(());
        }
        if state.time_ns > deadline.longest_ns || state.sequence.len() > most_steps || deadline.is_over(m) {
            return Err(Stuck::TooLong);
        }
        deadline.spend(state.sequence.len() + state.instances.len());
        let moves = search.best(state, step as u32, rng);
        if moves.is_empty() {
            return Err(Stuck::AtPeak);
        }
        apply(m, state, &moves);
    }
}

fn apply(m: &Model, state: &mut State, moves: &[Move]) {
    let mut sequence = Vec::with_capacity(state.sequence.len() + 4 * moves.len());
    let mut moves: Vec<&Move> = moves.iter().collect();
    moves.sort_by_key(|mv| mv.at);
    let mut next = moves.iter().peekable();
    for step in 0..=state.sequence.len() as u32 {
        while let Some(mv) = next.next_if(|mv| mv.at == step) {
            sequence.extend(&mv.units);
        }
        let is_removed = moves.iter().any(|mv| mv.removed.contains(&step));
        if !is_removed && (step as usize) < state.sequence.len() {
            sequence.push(state.sequence[step as usize]);
        }
    }
    state.sequence = sequence;
    state.evaluate(m);
}

/// So many candidates for each move that is made at once: on large problems, weighing all of them again after each
/// move would be most of the work.
const CANDIDATES_PER_MOVE: usize = 256;

/// Looks that a repair takes for each unit that a move runs again, and for each of its inputs.
const CLOSURE_LOOKS: usize = 16;
/// Looks that a repair takes to weigh one move, beside those for its units.
const MOVE_LOOKS: usize = 40;

struct Search<'m> {
    m: &'m Model,
    budget: u64,
    style: Style,
    /// Sums of what exceeds the budget, up to a step.
    excess: Vec<u64>,
    /// Number of steps that exceed it, up to a step.
    over: Vec<u32>,
    units: Vec<u32>,
    todo: Vec<u32>,
    /// The last closure has more than one unit, or failed.
    goes_deep: bool,
}

/// How a storage that was given up comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Recompute it, and its missing inputs.
    Make,
    /// It is made again from inputs that are held.
    Hold,
    Fetch,
}

/// The price of a closure.
struct Price {
    time_ns: u64,
    /// Bytes that have to be held longer over the peak.
    held_bytes: u64,
}

impl Search<'_> {
    /// The best moves, best first; one unless there are many candidates and much to do.
    fn best(&mut self, state: &State, step: u32, rng: &mut Rng) -> Vec<Move> {
        self.sum_excess(state);
        let mut moves: Vec<Move> = Vec::new();
        self.m.clock.spend(4 * state.load.len() + 8 * state.instances.len());
        for instance in &state.instances {
            if self.m.storages[instance.storage as usize].bytes == 0 {
                continue;
            }
            let Some((before, at)) = state.gap_around(instance, step) else { continue };
            let gap = (before, at);
            let made = self.weigh(state, instance.storage, step, gap, Way::Make, rng);
            // Where nothing had to be made again, holding it longer is no other way.
            let is_deep = self.goes_deep;
            let held = is_deep.then(|| self.weigh(state, instance.storage, step, gap, Way::Hold, rng)).flatten();
            let may_fetch = self.m.fetch_of(instance.storage).is_some();
            let fetched = may_fetch.then(|| self.weigh(state, instance.storage, step, gap, Way::Fetch, rng)).flatten();
            moves.extend([made, held, fetched].into_iter().flatten().min_by(|a, b| a.score.total_cmp(&b.score)));
        }
        let most = (moves.len() / CANDIDATES_PER_MOVE).max(1);
        if moves.len() > most {
            moves.select_nth_unstable_by(most - 1, |a, b| a.score.total_cmp(&b.score));
            moves.truncate(most);
        }
        moves.sort_by(|a, b| a.score.total_cmp(&b.score));
        // Half of the excess. The choice for the rest sees the result.
        let mut to_do = (state.load[step as usize] - self.budget) / 2;
        let is_first_or_needed = |mv: &Move| {
            let is_needed = to_do > 0;
            to_do = to_do.saturating_sub(mv.freed);
            is_needed
        };
        let count = moves.iter().map(is_first_or_needed).take_while(|needed| *needed).count().max(1);
        moves.truncate(count);
        moves
    }

    fn sum_excess(&mut self, state: &State) {
        self.excess.clear();
        self.over.clear();
        let (mut sum, mut count) = (0u64, 0);
        for &load in &state.load {
            self.excess.push(sum);
            self.over.push(count);
            sum = sum.saturating_add(load.saturating_sub(self.budget));
            count += u32::from(load > self.budget);
        }
        self.excess.push(sum);
        self.over.push(count);
    }

    /// The move that gives up `storage` between the steps of `gap`.
    fn weigh(
        &mut self,
        state: &State,
        storage: u32,
        step: u32,
        gap: (u32, u32),
        way: Way,
        rng: &mut Rng,
    ) -> Option<Move> {
        let (before, at) = gap;
        self.m.clock.spend(MOVE_LOOKS);
        let price = self.closure(state, storage, step, at, way)?;
        let mut freed: u64 = 0;
        for &u in &self.units {
            for &s in &self.m.units[u as usize].outputs {
                let instance = state.instance_at(s, at)?;
                if instance.end >= at && state.gap_around(instance, step).is_some() {
                    freed += self.m.storages[s as usize].bytes;
                }
            }
        }
        let freed = freed.checked_sub(price.held_bytes).filter(|f| *f > 0)?;
        let mut removed = Vec::new();
        let mut time_ns = price.time_ns;
        for &u in &self.units {
            if let Some(later) = self.can_replace(state, u, at) {
                time_ns -= self.m.units[u as usize].time_ns;
                removed.push(later);
            }
        }
        let noise = 1.0 + self.style.noise * rng.unit();
        let score = (time_ns as f64 + 1.0) * noise / self.worth(state, step, before, at, freed);
        let mut units = self.units.clone();
        units.sort_unstable_by_key(|&u| (!self.m.is_fetch(u), u));
        Some(Move { score, freed, at, units, removed })
    }

    /// Excess bytes that the move takes away.
    fn worth(&self, state: &State, step: u32, before: u32, at: u32, freed: u64) -> f64 {
        let peak = freed.min(state.load[step as usize] - self.budget) as f64;
        if self.style.reach == 0.0 {
            return peak;
        }
        let (from, to) = (before as usize + 1, at as usize);
        let steps = f64::from(self.over[to] - self.over[from]).max(1.0);
        let area = (freed as f64 * steps).min((self.excess[to] - self.excess[from]) as f64).max(1.0);
        peak.powf(1.0 - self.style.reach) * area.powf(self.style.reach)
    }

    /// Collects in `units` what has to run before `at` so that `storage` is there again.
    fn closure(&mut self, state: &State, storage: u32, step: u32, at: u32, way: Way) -> Option<Price> {
        self.units.clear();
        self.todo.clear();
        self.todo.push(match way {
            Way::Fetch => self.m.fetch_of(storage)?,
            Way::Make | Way::Hold => self.m.storages[storage as usize].producer,
        });
        self.goes_deep = true;
        let mut price = Price { time_ns: 0, held_bytes: 0 };
        let mut held = Vec::new();
        while let Some(u) = self.todo.pop() {
            if self.units.contains(&u) {
                continue;
            }
            let unit = &self.m.units[u as usize];
            if !can_repeat(self.m, state, u, at) {
                return None;
            }
            let is_first = self.units.is_empty();
            self.m.clock.spend(CLOSURE_LOOKS * (1 + unit.inputs.len()) + self.units.len());
            self.units.push(u);
            price.time_ns += unit.time_ns;
            for &input in &unit.inputs {
                let instance = state.instance_at(input, at)?;
                if instance.end >= at || held.contains(&input) {
                    continue;
                }
                let bytes = self.m.storages[input as usize].bytes;
                let producer = self.m.storages[input as usize].producer;
                let has_room = state.largest_load(instance.gone_from(), at) + bytes <= self.budget;
                let is_to_hold = has_room || (way == Way::Hold && is_first);
                let way_back = self.way_back(state, input, producer, at);
                match way_back.filter(|_| !is_to_hold) {
                    Some(unit) => self.todo.push(unit),
                    None => {
                        held.push(input);
                        price.held_bytes += if instance.end < step { bytes } else { 0 };
                    }
                }
            }
        }
        self.goes_deep = self.units.len() > 1;
        Some(price)
    }

    /// The way to bring an input back: a fetch or a recomputation, whichever takes less by itself.
    fn way_back(&self, state: &State, input: u32, producer: u32, at: u32) -> Option<u32> {
        let producer = Some(producer).filter(|&u| can_repeat(self.m, state, u, at));
        let ways = [self.m.fetch_of(input), producer].into_iter().flatten();
        ways.min_by_key(|&u| self.m.units[u as usize].time_ns)
    }

    /// The next execution of `u`, if there is room to hold its outputs from `at` on instead.
    fn can_replace(&self, state: &State, u: u32, at: u32) -> Option<u32> {
        let outputs = &self.m.units[u as usize].outputs;
        let later = state.instance_after(*outputs.first()?, at)?.start;
        if state.sequence[later as usize] != u {
            return None;
        }
        let bytes: u64 = outputs.iter().map(|&s| self.m.storages[s as usize].bytes).sum();
        (state.largest_load(at, later) + bytes <= self.budget).then_some(later)
    }
}

/// True if the unit may run again before step `at`.
fn can_repeat(m: &Model, state: &State, u: u32, at: u32) -> bool {
    let unit = &m.units[u as usize];
    unit.is_repeatable && unit.deadlines.iter().all(|&w| state.first_step[w as usize] >= at)
}

/// Removes executions that there is room to do without, the longest first.
pub(crate) fn relax(m: &Model, state: &mut State, budget: u64, deadline: Deadline<'_>) {
    loop {
        m.clock.spend(2 * state.sequence.len());
        let mut steps: Vec<u32> = (0..state.sequence.len() as u32).filter(|&s| is_repeat(m, state, s)).collect();
        steps.sort_by_key(|&s| std::cmp::Reverse((m.units[state.sequence[s as usize] as usize].time_ns, s)));
        deadline.spend(state.sequence.len());
        let mut has_changed = false;
        let mut i = 0;
        while i < steps.len() && !deadline.is_over(m) {
            let step = steps[i];
            i += 1;
            if !can_remove(m, state, step, budget) {
                continue;
            }
            state.sequence.remove(step as usize);
            state.evaluate(m);
            deadline.spend(state.sequence.len());
            has_changed = true;
            steps[i..].iter_mut().filter(|s| **s > step).for_each(|s| *s -= 1);
        }
        if !has_changed {
            return;
        }
    }
}

/// True if the step fetches, or is not the first execution of its unit.
pub(crate) fn is_repeat(m: &Model, state: &State, step: u32) -> bool {
    let unit = state.sequence[step as usize];
    m.is_fetch(unit) || state.first_step[unit as usize] != step
}

fn can_remove(m: &Model, state: &State, step: u32, budget: u64) -> bool {
    let unit = &m.units[state.sequence[step as usize] as usize];
    let needed = |s: u32| state.instance_after(s, step).filter(|i| i.start == step && i.end > step);
    let bytes: u64 = unit.outputs.iter().filter(|&&s| needed(s).is_some()).map(|&s| m.storages[s as usize].bytes).sum();
    unit.outputs
        .iter()
        .filter(|&&s| needed(s).is_some())
        .all(|&s| state.instance_at(s, step).is_some_and(|i| state.largest_load(i.gone_from(), step) + bytes <= budget))
}
