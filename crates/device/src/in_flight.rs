//! Lists of work under way, with the bytes that each piece reads and writes. They tell later work what to wait for.
//!
//! A device that runs work beside its caller keeps such a list. So does code that gives freed memory to others while
//! streams still use it. The vector clocks of the emulated device are a separate mechanism: they check the order that
//! these lists keep.

use std::collections::VecDeque;

use remat_types::SmallVec;

/// Bytes in one address range: the first, and one past the last.
pub type Bytes = (usize, usize);

/// The bytes that a piece of work reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// Bytes that it reads.
    pub reads: SmallVec<[Bytes; 4]>,
    /// Bytes that it writes.
    pub writes: SmallVec<[Bytes; 2]>,
}

fn meet(a: &[Bytes], b: &[Bytes]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.0.max(b.0) < a.1.min(b.1)))
}

impl Uses {
    /// One range, written or only read.
    pub fn of_range(bytes: Bytes, is_written: bool) -> Uses {
        let mut uses = Uses::default();
        if is_written {
            uses.writes.push(bytes)
        } else {
            uses.reads.push(bytes)
        }
        uses
    }

    /// True if one of the two writes bytes that the other uses: then the later one must wait.
    pub fn conflicts(&self, other: &Uses) -> bool {
        meet(&self.writes, &other.writes) || meet(&self.writes, &other.reads) || meet(&self.reads, &other.writes)
    }
}

/// Work under way, in the order in which it was begun. A key `K` says how to wait for a piece.
#[derive(Clone, Debug)]
pub struct InFlight<K>(VecDeque<(K, Uses)>);

impl<K> Default for InFlight<K> {
    fn default() -> Self {
        InFlight(VecDeque::new())
    }
}

impl<K> InFlight<K> {
    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of pieces under way.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds work that begins.
    pub fn push(&mut self, key: K, uses: Uses) {
        self.0.push_back((key, uses));
    }

    /// Removes the work that was begun first, once it has ended.
    pub fn pop(&mut self) -> Option<(K, Uses)> {
        self.0.pop_front()
    }

    /// Forgets the work for whose key `is_under_way` is false.
    pub fn retain(&mut self, mut is_under_way: impl FnMut(&K) -> bool) {
        self.0.retain(|(key, _)| is_under_way(key));
    }

    /// Removes all work, once it has ended.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Everything under way, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The pieces that work with these uses must wait for, each with its place in the order; the piece begun first comes first.
    pub fn before<'f>(&'f self, uses: &'f Uses) -> impl DoubleEndedIterator<Item = (usize, &'f K)> {
        let all = self.0.iter().enumerate();
        all.filter(|(_, (_, other))| other.conflicts(uses)).map(|(at, (key, _))| (at, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_wait_for_writers_and_writers_for_both_and_nobody_for_empty_ranges() {
        let mut flight = InFlight::default();
        flight.push("reads", Uses::of_range((0, 64), false));
        flight.push("writes", Uses::of_range((64, 128), true));
        flight.push("nothing", Uses::of_range((32, 32), true));
        let before = |bytes, is_written| -> Vec<&str> {
            flight.before(&Uses::of_range(bytes, is_written)).map(|(_, key)| *key).collect()
        };
        assert_eq!(before((0, 128), true), ["reads", "writes"]);
        assert_eq!(before((0, 128), false), ["writes"]);
        assert_eq!(before((63, 64), true), ["reads"]);
        assert!(before((128, 256), true).is_empty() && before((64, 64), true).is_empty());
    }

    #[test]
    fn work_ends_in_order_or_by_name() {
        let mut flight = InFlight::default();
        (0..3).for_each(|i| flight.push(i, Uses::of_range((0, 1), true)));
        assert_eq!(flight.pop().map(|(key, _)| key), Some(0));
        flight.retain(|key| *key != 1);
        assert_eq!((flight.keys().copied().collect::<Vec<_>>(), flight.len()), (vec![2], 1));
        flight.clear();
        assert!(flight.is_empty());
    }
}
