//! The search in slices of time: after each, the best sequence is laid out, and if its arena sticks out, the next slice
//! plans for less; if it fits, for more again.

use super::emit::Laid;
use super::search::{Climb, Incumbent, Layer, Limit};
use super::state::State;
use super::{Planner, fit::Fit, floor::Witness};
use crate::plan::clock::Tick;

/// Parts that the search's time is cut into; an arena is laid out after each. Few units are searched through soon, and
/// what is left to find is how much room their arena needs.
fn slices(units: usize) -> usize {
    if units <= super::FEW_UNITS { 24 } else { 8 }
}
/// Slices in which another start gets its turn.
const SECOND_STARTS: usize = 3;
/// Layouts during a slice are worth this share of the one after it.
pub(super) const QUICK_SHARE: f64 = 0.125;
/// Attempts at an arena that fits.
const MOST_SHRINKS: u64 = 24;

/// How many live bytes to plan for, so that the arena is within the budget.
struct Room {
    bytes: u64,
    /// The most that was laid out, and the least above it that was not.
    laid_at: Option<u64>,
    failed_at: u64,
    shrinks: u64,
    budget: u64,
}

/// Two amounts of room that differ by less than this part of the budget are as good as the same.
const NEAR: u64 = 256;

impl Room {
    fn new(budget: u64) -> Room {
        Room { bytes: budget, laid_at: None, failed_at: budget, shrinks: 0, budget }
    }

    /// More again, half the way to what failed, and beyond once that is near: it failed only for another sequence.
    fn grow(&mut self) {
        self.laid_at = Some(self.bytes);
        if self.failed_at - self.bytes < self.budget / NEAR {
            self.failed_at += (self.budget - self.failed_at) / 2;
        }
        self.bytes += (self.failed_at - self.bytes) / 2;
    }

    /// Less, so that the next arena does not stick out; more less each time. False after too many times.
    fn shrink(&mut self, sticks_out: u64, align: u64) -> bool {
        self.failed_at = self.bytes;
        if let Some(laid) = self.laid_at.filter(|&l| l < self.bytes) {
            if self.bytes - laid < self.budget / NEAR {
                // Nothing is left between the two; another walk from above may end elsewhere.
                self.failed_at = self.budget;
            }
            self.bytes = laid + (self.failed_at - laid) / 2;
            return true;
        }
        self.shrinks += 1;
        let step = (sticks_out / 2).max(align).saturating_mul(self.shrinks);
        let next = self.bytes.checked_sub(step).filter(|_| self.shrinks <= MOST_SHRINKS);
        self.bytes = next.unwrap_or(self.bytes);
        next.is_some()
    }
}

/// Searches that may end for want of an arena while there is time.
const MOST_ATTEMPTS: u64 = 8;

/// The best schedule found within the planner's time, the witness at worst; `None` if there is none and no arena fits.
///
/// Near the smallest budget one walk ends where nothing can be given up any more, and another does not.
pub(super) fn search(planner: &Planner, bound: u64, witness: Option<&Witness>) -> Option<Laid> {
    let witness = witness.map(|(units, laid)| (State::new(&planner.model, units.clone()), laid.clone()));
    let state = witness.as_ref().map(|w| w.0.clone());
    let mut found = Incumbent { laid: witness };
    let has_time = || planner.now() < planner.until;
    for attempt in 0..MOST_ATTEMPTS {
        if walk(planner, bound, attempt << 32, state.as_ref(), &mut found) || !has_time() {
            break;
        }
    }
    found.laid.map(|l| l.1)
}

/// False if it ended where no arena fits, without a schedule that is better than the witness.
fn walk(planner: &Planner, bound: u64, salt: u64, witness: Option<&State>, found: &mut Incumbent) -> bool {
    let witness_ns = witness.map_or(u64::MAX, |w| w.time_ns);
    // Beyond the limit only to lay out what was found.
    let grace = planner.effort.time_limit.mul_f64(super::GRACE_SHARE);
    let (fit, first) = (planner.fit(planner.until + grace), planner.fit(planner.until - 2 * grace));
    let budget = planner.budget;
    let quick =
        |s: &State| Some(planner.lay(&s.sequence, budget, QUICK_SHARE)).filter(|l| l.layout.arena_bytes <= budget);
    let mut room = Room::new(budget);
    let mut seeds = first.all(budget, witness).into_iter();
    let Some(mut start) = seeds.next() else { return false };
    for slice in 0.. {
        let limit = limit(planner, slice);
        let seed = planner.effort.seed.wrapping_add(slice as u64 + salt);
        let mut best = climb(planner, room.bytes, start, seed, (limit, bound), (&quick, found));
        let is_first_room = slice < SECOND_STARTS && room.failed_at == budget && room.bytes == budget;
        if let Some(other) = seeds.next().filter(|o| is_first_room && is_near(o, &best)) {
            let until = planner.now() + limit.until.since(planner.now()) / 2;
            let second = Limit { until: until.max(planner.now() + limit.length / 2), ..limit };
            let other = climb(planner, room.bytes, other, seed, (second, bound), (&quick, found));
            best = if other.time_ns < best.time_ns { other } else { best };
        }
        let late = |than: Tick| planner.now() >= than;
        // The witness needs little memory and much time: what beats it is worth the grace.
        let is_better = found.time_ns() < witness_ns;
        if late(planner.until + grace) || (late(planner.until) && is_better) {
            return true;
        }
        let mut sticks_out = 0;
        found.offer(&best, &mut |s| {
            let laid = planner.lay(&s.sequence, budget, 1.0);
            sticks_out = laid.layout.arena_bytes.saturating_sub(budget);
            (sticks_out == 0).then_some(laid)
        });
        let is_laid = found.time_ns() <= best.time_ns;
        let is_last = slice + 1 >= slices(planner.model.base);
        if found.time_ns() <= bound || (is_last && (is_laid || room.laid_at.is_some() || found.time_ns() < witness_ns))
        {
            return true;
        }
        if is_laid {
            room.grow();
            start = best;
        } else {
            if !room.shrink(sticks_out, planner.p.align()) {
                break;
            }
            match within(&fit, best, found, room.bytes) {
                Some(state) => start = state,
                None => break,
            }
        }
    }
    found.time_ns() < witness_ns
}

fn limit(planner: &Planner, slice: usize) -> Limit {
    let (now, slices) = (planner.now(), slices(planner.model.base));
    let length = planner.until.since(now) / (slices.saturating_sub(slice).max(1) as u32);
    let rounds = planner.effort.rounds.map_or(usize::MAX, |r| r.div_ceil(slices));
    Limit { until: now + length, length, rounds: if slice < slices { rounds } else { 0 } }
}

fn climb(
    planner: &Planner,
    room: u64,
    start: State,
    seed: u64,
    (limit, bound): (Limit, u64),
    (layer, found): (Layer, &mut Incumbent),
) -> State {
    let mut climb = Climb::new(&planner.model, room, start, seed, layer);
    climb.run(limit, bound, found);
    climb.best
}

/// The faster of the two within less room: the best that did not fit, and the one that did.
fn within(fit: &Fit, best: State, found: &Incumbent, room: u64) -> Option<State> {
    let laid = found.laid.as_ref().map(|l| l.0.clone());
    let states = [Some(best), laid].into_iter().flatten();
    let within = states.filter_map(|s| if s.peak().1 <= room { Some(s) } else { fit.again(s, room) });
    within.min_by_key(|s| s.time_ns)
}

/// True if a search from `other` may overtake `best`.
fn is_near(other: &State, best: &State) -> bool {
    other.time_ns <= best.time_ns + best.time_ns / 16
}
