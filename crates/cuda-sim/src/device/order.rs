//! The order of work: vector clocks over the host and the streams, and accesses that conflict.

use crate::exec::Ranges;

/// For the host (place 0) and for each stream (its number plus 1), how many pieces of its work come before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<u64>);

/// The place of the host in a clock.
pub(super) const HOST: usize = 0;

/// The place of a stream in a clock.
pub(super) fn place(stream: usize) -> usize {
    stream + 1
}

impl Clock {
    pub(super) fn get(&self, place: usize) -> u64 {
        self.0.get(place).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, place: usize, count: u64) {
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] = count;
    }

    pub(super) fn join(&mut self, other: &Clock) {
        for (place, &count) in other.0.iter().enumerate() {
            if count > self.get(place) {
                self.set(place, count);
            }
        }
    }

    /// Places and counts that are not zero.
    pub(super) fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        self.0.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }
}

/// The bytes that a piece of work used.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// The place of whoever did it, and its number there.
    pub(super) place: usize,
    pub(super) number: u64,
    pub(super) reads: Ranges,
    pub(super) writes: Ranges,
    pub(super) label: String,
}

impl Access {
    /// True if whatever has this clock comes after the access.
    pub(super) fn precedes(&self, clock: &Clock) -> bool {
        clock.get(self.place) >= self.number
    }

    /// An address that one writes and the other uses.
    pub(super) fn conflict(&self, other: &Access) -> Option<u64> {
        meeting(&self.writes, &other.writes)
            .or_else(|| meeting(&self.writes, &other.reads))
            .or_else(|| meeting(&self.reads, &other.writes))
    }

    pub(super) fn describe(&self) -> String {
        match self.place {
            HOST => format!("{} by the host", self.label),
            place => format!("{} (stream {}, work number {})", self.label, place - 1, self.number),
        }
    }
}

/// The first address that is in both lists, which are in order.
fn meeting(a: &Ranges, b: &Ranges) -> Option<u64> {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.0 < y.1 && y.0 < x.1 {
            return Some(x.0.max(y.0));
        }
        if x.1 <= y.1 { i += 1 } else { j += 1 }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_where_they_overlap() {
        let a = vec![(0, 4), (10, 20), (30, 40)];
        assert_eq!(meeting(&a, &vec![(4, 10), (20, 30)]), None);
        assert_eq!(meeting(&a, &vec![(4, 10), (39, 50)]), Some(39));
        assert_eq!(meeting(&a, &vec![(0, 100)]), Some(0));
        assert_eq!(meeting(&a, &Vec::new()), None);
    }

    #[test]
    fn clocks_join_by_their_maxima() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.set(2, 5);
        b.set(0, 1);
        b.set(2, 3);
        a.join(&b);
        assert_eq!(a.counts().collect::<Vec<_>>(), [(0, 1), (2, 5)]);
    }
}
