//! The search where storages may be copied out and back, which is fetching them instead of making them again.
//!
//! The cost of a fetch depends on all other copies: nothing if all copies hide behind computation, all of its time if none
//! does. So sequences are made for several guesses (`PRICES`) and for less than the budget ([`ROOMS`]): where a sequence
//! fills the budget, a copy has no room to come early or to leave late. Each is then timed with its copies by the format's
//! clock (`spill`), and the fastest is ruined and repaired, as in `search`.

use super::Planner;
use super::emit::Laid;
use super::floor::Witness;
use super::model::Model;
use super::repair::{Deadline, Style, relax, repair};
use super::search::{ROUNDS_PER_ATTEMPT, WARMTH, ruin};
use super::slices::QUICK_SHARE;
use super::spill;
use super::state::State;
use crate::plan::rng::Rng;

/// The price of a fetch in a repair, as a share of the time to copy out and in.
const PRICES: [f64; 3] = [0.0, 0.2, 1.0];

/// Parts of the budget that sequences are made for.
const ROOMS: [f64; 5] = [0.92, 1.0, 0.85, 0.97, 0.75];

/// How far moves look, as in `fit`.
const REACHES: [f64; 3] = [1.0, 0.5, 0.0];

/// Layouts that may be tried at once.
const FIRST_ATTEMPTS: usize = 6;

/// One in so many rounds that ended too long is followed by one from the best.
const FROM_BEST: usize = 4;

/// Less than [`ROOMS`] says after each sequence whose arena did not fit, down to the last.
const SHRINK: f64 = 0.995;
const SMALLEST_SHARE: f64 = 0.8;

struct Copies<'a, 'p> {
    planner: &'a Planner<'p>,
    /// One for each price.
    models: Vec<Model>,
    rng: Rng,
    attempts: usize,
    /// Part of the rooms that arenas leave.
    share: f64,
    /// The fastest whose arena fits.
    best: Option<(u64, State, Laid)>,
}

/// The best schedule found within the planner's time, the witness at worst; `None` if there is none and no arena fits.
pub(super) fn search(planner: &Planner, witness: Option<&Witness>) -> Option<Laid> {
    let models = PRICES.iter().map(|price| planner.model.priced(planner.p.spill(), *price)).collect();
    let rng = Rng(planner.effort.seed);
    let best =
        witness.map(|(units, laid)| (laid.time_ns(planner.p), State::new(&planner.model, units.clone()), laid.clone()));
    let mut c = Copies { planner, models, rng, attempts: FIRST_ATTEMPTS, share: 1.0, best };
    c.seeds();
    c.climb();
    let (ns, state, laid) = c.best?;
    let again = planner.lay(&state.sequence, planner.budget, 1.0);
    let is_better = again.layout.arena_bytes <= planner.budget && again.time_ns(planner.p) < ns;
    Some(if is_better { again } else { laid })
}

impl Copies<'_, '_> {
    fn best_ns(&self) -> u64 {
        self.best.as_ref().map_or(u64::MAX, |b| b.0)
    }

    /// No schedule is faster than a run without a budget.
    fn is_done(&self) -> bool {
        self.best_ns() <= self.planner.p.base_time_ns()
    }

    fn seeds(&mut self) {
        let until = self.planner.fit(self.planner.until).seeds_until;
        for (room, reach) in ROOMS.iter().flat_map(|room| REACHES.map(|reach| (*room, reach))) {
            for m in 0..self.models.len() {
                let is_late = self.planner.now() >= until;
                if self.is_done() || (self.best.is_some() && is_late) {
                    return;
                }
                let deadline = Deadline { until: Some(self.planner.until), longest_ns: u64::MAX, work: None };
                for base in &self.planner.bases {
                    let style = Style { reach, noise: 0.0 };
                    if let Some(state) = self.repaired(base.clone(), m, room, style, deadline) {
                        self.attempts += 1;
                        self.offer(&state);
                    }
                }
            }
        }
    }

    fn climb(&mut self) {
        let Some((_, mut now, _)) = self.best.clone() else { return };
        let (begin, limit) = (self.planner.now(), self.planner.effort.rounds.unwrap_or(usize::MAX));
        let total = self.planner.until.since(begin).as_secs_f64().max(1e-9);
        for round in 0..limit {
            let by_time = self.planner.now().since(begin).as_secs_f64() / total;
            if by_time >= 1.0 || self.is_done() {
                return;
            }
            let progress = if limit == usize::MAX { by_time } else { round as f64 / limit as f64 };
            self.attempts += usize::from(round % ROUNDS_PER_ATTEMPT == 0);
            let m = self.rng.below(self.models.len());
            self.planner.model.clock.spend(4 * now.sequence.len());
            let mut state = now.clone();
            state.evaluate(&self.models[m]);
            if !ruin(&self.models[m], &mut state, &mut self.rng) {
                return;
            }
            let room = ROOMS[self.rng.below(ROOMS.len())] * self.share;
            let reach = REACHES[self.rng.below(REACHES.len())];
            let style = Style { reach, noise: [0.0, 0.3, 1.0][self.rng.below(3)] };
            // A sequence whose computation alone is much longer is not worth finishing.
            let longest_ns = self.best_ns().saturating_add(self.best_ns() / 2);
            let deadline = Deadline { until: Some(self.planner.until), longest_ns, work: None };
            let Some(state) = self.repaired(state, m, room, style, deadline) else { continue };
            let added = self.best_ns().saturating_sub(self.planner.p.base_time_ns()) as f64;
            let slack = (added * WARMTH * 4.0 * (1.0 - progress) * self.rng.unit()) as u64;
            let ns = self.offer(&state);
            if ns <= self.best_ns().saturating_add(slack) {
                now = state;
            } else if self.rng.below(FROM_BEST) == 0
                && let Some(best) = &self.best
            {
                now = best.1.clone();
            }
        }
    }

    /// The sequence within a part of the budget.
    fn repaired(
        &mut self,
        mut state: State,
        m: usize,
        room: f64,
        style: Style,
        deadline: Deadline<'_>,
    ) -> Option<State> {
        let room = (self.planner.budget as f64 * room) as u64;
        let model = &self.models[m];
        state.evaluate(model);
        repair(model, &mut state, room, style, deadline, &mut self.rng).ok()?;
        relax(model, &mut state, room, deadline);
        Some(state)
    }

    /// Lays a sequence out if it is faster than what there is. How long it takes; for ever if its arena does not fit.
    fn offer(&mut self, state: &State) -> u64 {
        let ns = spill::time_ns(self.planner, state);
        if ns >= self.best_ns() {
            return ns;
        }
        if self.attempts == 0 {
            return u64::MAX;
        }
        self.attempts -= 1;
        let laid = self.planner.lay(&state.sequence, self.planner.budget, QUICK_SHARE);
        let ns = laid.time_ns(self.planner.p);
        if laid.layout.arena_bytes > self.planner.budget {
            self.share = (self.share * SHRINK).max(SMALLEST_SHARE);
            return u64::MAX;
        }
        if ns < self.best_ns() {
            self.best = Some((ns, state.clone(), laid));
        }
        ns
    }
}
