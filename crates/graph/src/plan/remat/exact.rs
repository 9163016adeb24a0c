//! The optimum of small problems, in any order of execution, by A* over the sets of executed units and resident storages.
//!
//! From a state, a unit runs whose inputs are resident. Its outputs need room, so one of the minimal sets that make
//! enough room must go. Freeing more, or sooner, is never better, as it can be done later at no cost. The estimate of the
//! remaining time is the time of the units that have not run: it never overestimates and never drops by more than a step
//! costs.
//!
//! Bytes are counted, not offsets: the optimum bounds every schedule, and is one if its arena fits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::model::Model;

/// Beyond this many units the states cannot be few.
pub(super) const MOST_UNITS: usize = 32;
/// States that are expanded before the exact way is given up.
const MOST_STATES: usize = 60_000;
/// Steps from one state to another that are looked at before it is given up: a few tenths of a second. A state may have
/// thousands, where many storages could go.
const MOST_STEPS: usize = 3_000_000;
/// Sets to let go of that are tried for one step.
const MOST_SETS: usize = 2000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    ran: u64,
    resident: u64,
}

/// How a state was reached.
struct Reached {
    time_ns: u64,
    from: Option<(Place, u32)>,
    is_done: bool,
}

/// A fastest sequence of units whose live bytes fit; `None` if the problem is too large or there is none.
pub(super) fn solve(m: &Model, budget: u64) -> Option<Vec<u32>> {
    let has_fetches = m.units.len() > m.base;
    if has_fetches || m.units.len() > MOST_UNITS || m.storages.len() > 64 {
        return None;
    }
    let room = budget.checked_sub(m.given_bytes)?;
    Search { m, room, reached: FxHashMap::default(), open: BinaryHeap::new(), steps: 0 }.run()
}

struct Search<'m> {
    m: &'m Model,
    room: u64,
    reached: FxHashMap<Place, Reached>,
    /// By estimated total time.
    open: BinaryHeap<Reverse<(u64, Place)>>,
    steps: usize,
}

impl Search<'_> {
    fn run(mut self) -> Option<Vec<u32>> {
        let begin = Place { ran: 0, resident: 0 };
        self.reach(begin, 0, None);
        let mut expanded = 0;
        while let Some(Reverse((_, place))) = self.open.pop() {
            let state = self.reached.get_mut(&place).expect("what is open was reached");
            if std::mem::replace(&mut state.is_done, true) {
                continue;
            }
            let time_ns = state.time_ns;
            if self.is_goal(place) {
                return Some(self.path(place));
            }
            expanded += 1;
            if expanded > MOST_STATES || self.steps > MOST_STEPS {
                return None;
            }
            for unit in 0..self.m.units.len() as u32 {
                self.expand(place, unit, time_ns)?;
            }
        }
        None
    }

    fn reach(&mut self, place: Place, time_ns: u64, from: Option<(Place, u32)>) {
        self.steps += 1;
        if self.reached.get(&place).is_some_and(|r| r.time_ns <= time_ns) {
            return;
        }
        self.reached.insert(place, Reached { time_ns, from, is_done: false });
        let units = self.m.units.iter().enumerate();
        let left: u64 = units.filter(|(u, _)| place.ran & (1 << u) == 0).map(|(_, unit)| unit.time_ns).sum();
        self.open.push(Reverse((time_ns + left, place)));
    }

    fn is_goal(&self, place: Place) -> bool {
        let all = (1u64 << self.m.units.len()) - 1;
        let mut storages = self.m.storages.iter().enumerate();
        place.ran == all && storages.all(|(s, storage)| !storage.is_output || place.resident & (1 << s) != 0)
    }

    fn path(&self, mut place: Place) -> Vec<u32> {
        let mut units = Vec::new();
        while let Some((before, unit)) = self.reached[&place].from {
            units.push(unit);
            place = before;
        }
        units.reverse();
        units
    }

    /// Reaches what running `unit` leads to. `None` if there are too many ways.
    fn expand(&mut self, place: Place, unit: u32, time_ns: u64) -> Option<()> {
        let u = &self.m.units[unit as usize];
        let mask = |list: &[u32]| list.iter().fold(0u64, |bits, &i| bits | 1 << i);
        let (inputs, outputs) = (mask(&u.inputs), mask(&u.outputs));
        let again = place.ran & (1 << unit) != 0;
        let is_allowed = place.resident & inputs == inputs
            && place.ran & mask(&u.requires) == mask(&u.requires)
            && place.ran & mask(&u.deadlines) == 0
            && !(again && (!u.is_repeatable || outputs & !place.resident == 0));
        // Nothing may read a storage after it is overwritten.
        let is_held_off = self.m.overwritten_readers(unit).iter().any(|&r| place.ran & (1 << r) == 0);
        if !is_allowed || is_held_off {
            return Some(());
        }
        self.taken(place, unit).into_iter().try_for_each(|taken| self.expand_with(place, unit, taken, time_ns))
    }

    /// Sets of inputs that the unit's outputs may take over from here.
    fn taken(&self, place: Place, unit: u32) -> Vec<u64> {
        let mut sets = vec![(0u64, 0u64)];
        for &(y, x) in &self.m.units[unit as usize].takes {
            let is_free =
                |&&(made, gone): &&(u64, u64)| (made | place.resident) & (1 << y) == 0 && gone & (1 << x) == 0;
            let more: Vec<_> = sets.iter().filter(is_free).map(|(made, gone)| (made | 1 << y, gone | 1 << x)).collect();
            sets.extend(more);
        }
        let mut sets: Vec<u64> = sets.into_iter().map(|s| s.1).collect();
        sets.sort_unstable();
        sets.dedup();
        sets
    }

    /// The same with the inputs `taken` taken over.
    fn expand_with(&mut self, place: Place, unit: u32, taken: u64, time_ns: u64) -> Option<()> {
        let u = &self.m.units[unit as usize];
        let mask = |list: &[u32]| list.iter().fold(0u64, |bits, &i| bits | 1 << i);
        let (inputs, outputs) = (mask(&u.inputs), mask(&u.outputs));
        let with = (place.resident | outputs) & !taken;
        let over = (self.bytes(with) + u.workspace).saturating_sub(self.room);
        let mut candidates: Vec<(u64, u32)> = (0..self.m.storages.len() as u32)
            .filter(|&s| (place.resident & !inputs & !outputs) & (1 << s) != 0 && self.m.storages[s as usize].bytes > 0)
            .map(|s| (self.m.storages[s as usize].bytes, s))
            .collect();
        candidates.sort_unstable_by_key(|&(bytes, s)| (Reverse(bytes), s));
        let left = candidates.iter().map(|c| c.0).sum();
        let mut sets = Vec::new();
        minimal_sets(&candidates, left, over, 0, &mut sets)?;
        for gone in sets {
            let next = Place { ran: place.ran | 1 << unit, resident: with & !gone };
            self.reach(next, time_ns + u.time_ns, Some((place, unit)));
        }
        Some(())
    }

    fn bytes(&self, set: u64) -> u64 {
        let storages = self.m.storages.iter().enumerate();
        storages.filter(|(s, _)| set & (1 << s) != 0).map(|(_, storage)| storage.bytes).sum()
    }
}

/// Minimal sets of candidates that, with `set`, have at least `over` bytes more. Candidates come largest first, so the last one
/// of a set is its smallest. The set was too small without it, and so it would be without any other. `left` is the sum of all
/// bytes. If the sum is too small, the function tries nothing, so every call finds a set.
fn minimal_sets(candidates: &[(u64, u32)], mut left: u64, over: u64, set: u64, sets: &mut Vec<u64>) -> Option<()> {
    if over == 0 {
        sets.push(set);
        return (sets.len() <= MOST_SETS).then_some(());
    }
    for (i, &(bytes, s)) in candidates.iter().enumerate() {
        if left < over {
            break;
        }
        left -= bytes;
        minimal_sets(&candidates[i + 1..], left, over.saturating_sub(bytes), set | 1 << s, sets)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::minimal_sets;

    fn sets(bytes: &[u64], over: u64) -> Option<Vec<u64>> {
        let candidates: Vec<(u64, u32)> = bytes.iter().copied().zip(0..).collect();
        let mut sets = Vec::new();
        minimal_sets(&candidates, bytes.iter().sum(), over, 0, &mut sets)?;
        sets.sort_unstable();
        Some(sets)
    }

    #[test]
    fn sets_to_let_go_of_are_those_of_which_none_can_be_spared() {
        assert_eq!(sets(&[5, 3, 2, 2], 0), Some(vec![0]));
        assert_eq!(sets(&[5, 3, 2, 2], 5), Some(vec![0b1, 0b110, 0b1010]));
        assert_eq!(sets(&[5, 3, 2, 2], 12), Some(vec![0b1111]));
        assert_eq!(sets(&[5, 3, 2, 2], 13), Some(vec![]));
        // each subset would be looked at, and none is large enough, or is one that spares the others
        let mut many = vec![1u64; 60];
        assert_eq!(sets(&many, 61), Some(vec![]));
        many[0] = 100;
        assert_eq!(sets(&many, 100), Some(vec![1]));
        assert_eq!(sets(&many, 30), None, "too many");
    }
}
