//! The anytime search: ruin a part of the best sequence and repair it, again and again.

use std::time::Duration;

use super::emit::Laid;
use super::model::Model;
use super::repair::{Deadline, Style, is_repeat, relax, repair};
use super::state::State;
use crate::plan::clock::Tick;
use crate::plan::rng::Rng;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// No work begins after it.
    pub(crate) until: Tick,
    /// From the beginning until then.
    pub(crate) length: Duration,
    /// Rounds of ruin and repair.
    pub(crate) rounds: usize,
}

/// Lays a sequence out; `None` if its arena does not fit.
pub(crate) type Layer<'a> = &'a dyn Fn(&State) -> Option<Laid>;

/// The search's position.
pub(crate) struct Climb<'m> {
    m: &'m Model,
    budget: u64,
    rng: Rng,
    layer: Layer<'m>,
    attempts: usize,
    rounds: usize,
    now: State,
    pub(crate) best: State,
}

/// The fastest sequence whose arena fits.
#[derive(Default)]
pub(crate) struct Incumbent {
    pub(crate) laid: Option<(State, Laid)>,
}

impl Incumbent {
    /// Lays the state out if it is faster than what there is.
    pub(crate) fn offer(&mut self, state: &State, layer: &mut dyn FnMut(&State) -> Option<Laid>) {
        if state.time_ns < self.time_ns() {
            self.laid = layer(state).map(|l| (state.clone(), l)).or(self.laid.take());
        }
    }

    /// Beyond all times before the first.
    pub(crate) fn time_ns(&self) -> u64 {
        self.laid.as_ref().map_or(u64::MAX, |l| l.0.time_ns)
    }
}

/// How much longer than the best a sequence may be and still be walked on from, at first.
pub(super) const WARMTH: f64 = 0.01;
/// Layouts that may be tried at once, and rounds for each one more.
const FIRST_ATTEMPTS: usize = 3;
pub(super) const ROUNDS_PER_ATTEMPT: usize = 8;

impl<'m> Climb<'m> {
    /// Begins at a state that fits.
    pub(crate) fn new(m: &'m Model, budget: u64, start: State, seed: u64, layer: Layer<'m>) -> Climb<'m> {
        Climb { m, budget, rng: Rng(seed), layer, attempts: 0, rounds: 0, best: start.clone(), now: start }
    }

    /// Rounds until the limit, or until a placed sequence takes no more than `enough_ns`.
    pub(crate) fn run(&mut self, limit: Limit, enough_ns: u64, incumbent: &mut Incumbent) {
        let begin = self.m.clock.now();
        let total = limit.until.since(begin).as_secs_f64().max(1e-9);
        incumbent.offer(&self.best, &mut |s| (self.layer)(s));
        for round in 0..limit.rounds {
            let by_time = self.m.clock.now().since(begin).as_secs_f64() / total;
            if by_time >= 1.0 || incumbent.time_ns() <= enough_ns {
                return;
            }
            let progress = if limit.rounds == usize::MAX { by_time } else { round as f64 / limit.rounds as f64 };
            self.rounds += 1;
            self.round(WARMTH * (1.0 - progress), limit.until, incumbent);
        }
    }

    fn round(&mut self, warmth: f64, until: Tick, incumbent: &mut Incumbent) {
        self.m.clock.spend(4 * self.now.sequence.len());
        let mut state = self.now.clone();
        if !ruin(self.m, &mut state, &mut self.rng) {
            return;
        }
        let added = self.best.time_ns - self.m.base_time_ns();
        let slack = (added as f64 * warmth * 4.0) as u64;
        let longest = self.now.time_ns.min(self.best.time_ns + slack);
        // A repair that is longer by one average move may still be relaxed to less.
        let allowed = longest + added / 16 + 1;
        let reach = [0.0, 0.5, 1.0][self.rng.below(3)];
        let noise = [0.0, 0.3, 1.0][self.rng.below(3)];
        let deadline = Deadline { until: Some(until), longest_ns: allowed, work: None };
        if repair(self.m, &mut state, self.budget, Style { reach, noise }, deadline, &mut self.rng).is_err() {
            return;
        }
        relax(self.m, &mut state, self.budget, deadline);
        if state.time_ns <= self.best.time_ns + (slack as f64 * self.rng.unit()) as u64 {
            if state.time_ns < self.best.time_ns {
                self.best = state.clone();
            }
            if self.attempts < FIRST_ATTEMPTS + self.rounds / ROUNDS_PER_ATTEMPT && state.sequence != self.now.sequence
            {
                self.attempts += usize::from(state.time_ns < incumbent.time_ns());
                incumbent.offer(&state, &mut |s| (self.layer)(s));
            }
            self.now = state;
        }
    }
}

/// Removes some repeated executions; false if there are none.
pub(super) fn ruin(m: &Model, state: &mut State, rng: &mut Rng) -> bool {
    let repeats: Vec<u32> = (0..state.sequence.len() as u32).filter(|&s| is_repeat(m, state, s)).collect();
    if repeats.is_empty() {
        return false;
    }
    let most = (repeats.len() / 4).clamp(1, 24);
    let count = 1 + rng.below(most);
    let mut gone: Vec<u32> = if rng.below(2) == 0 {
        let from = rng.below(repeats.len());
        repeats[from..(from + count).min(repeats.len())].to_vec()
    } else {
        (0..count).map(|_| repeats[rng.below(repeats.len())]).collect()
    };
    gone.sort_unstable();
    gone.dedup();
    for &step in gone.iter().rev() {
        state.sequence.remove(step as usize);
    }
    state.evaluate(m);
    true
}
