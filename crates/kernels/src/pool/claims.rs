//! Which thread runs which part.

use super::part_range;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// Two cache lines, since processors fetch them in pairs.
#[repr(align(128))]
struct Range(AtomicU64);

/// The parts of a job. Each thread (or a few neighbours) has its own run of parts and takes them from the front. A thread
/// whose run is empty takes the last part of another run. So the same part of one kernel after the other lies with the
/// same thread, whose cache has what the kernel before wrote there.
pub(super) struct Claims {
    ranges: SmallVec<[Range; MAX_RANGES]>,
    threads: usize,
}

/// Most runs: the caller writes them all, and who has nothing left to do looks at each.
const MAX_RANGES: usize = 8;

/// Most parts of a job: a range is two halves of a word.
pub(super) const MAX_PARTS: usize = u32::MAX as usize;

fn word(begin: u64, end: u64) -> u64 {
    begin | end << 32
}

impl Claims {
    /// Claims of so many threads, on no part.
    pub(super) fn new(threads: usize) -> Claims {
        Claims { ranges: (0..threads.min(MAX_RANGES)).map(|_| Range(AtomicU64::new(0))).collect(), threads }
    }

    /// Deals out parts `0..parts`. Nobody claims meanwhile.
    pub(super) fn deal(&self, parts: usize) {
        assert!(parts <= MAX_PARTS, "{parts} parts of a job");
        for (i, range) in self.ranges.iter().enumerate() {
            let part = part_range(parts, self.ranges.len(), i);
            range.0.store(word(part.start as u64, part.end as u64), Ordering::Relaxed);
        }
    }

    /// Takes back what nobody has claimed.
    pub(super) fn drop_rest(&self) {
        self.ranges.iter().for_each(|range| range.0.store(0, Ordering::Relaxed));
    }

    /// A part for thread `i`, or `None` if all are claimed.
    pub(super) fn claim(&self, i: usize) -> Option<usize> {
        let count = self.ranges.len();
        let own = i * count / self.threads;
        let of = |other: usize| &self.ranges[(own + other) % count].0;
        take(of(0), true).or_else(|| (1..count).find_map(|other| take(of(other), false)))
    }
}

/// The first or the last part of a range.
fn take(range: &AtomicU64, first: bool) -> Option<usize> {
    let halves = |word: u64| (word & u64::from(u32::MAX), word >> 32);
    let less = |old| {
        let (begin, end) = halves(old);
        (begin < end).then(|| if first { word(begin + 1, end) } else { word(begin, end - 1) })
    };
    // The gate of the job orders the reads and writes of a part; its claim does not.
    let (begin, end) = halves(range.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?);
    Some(if first { begin } else { end - 1 } as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_claims_its_own_run_and_then_the_ends_of_others() {
        let claims = Claims::new(3);
        claims.deal(8);
        let by = |i| claims.claim(i);
        assert_eq!([by(1), by(0), by(1)], [Some(3), Some(0), Some(4)]);
        assert_eq!([by(1), by(1), by(1)], [Some(5), Some(7), Some(6)], "those of the next thread, the last one first");
        assert_eq!([by(1), by(0), by(2), by(1)], [Some(2), Some(1), None, None]);
    }

    #[test]
    fn neighbours_share_a_run_where_there_are_many_threads() {
        for (threads, parts) in [(20, 7), (20, 100), (9, 9), (8, 3)] {
            let claims = Claims::new(threads);
            claims.deal(parts);
            let mut seen: Vec<usize> = (0..).map_while(|i| claims.claim(i % threads)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..parts).collect::<Vec<_>>(), "{threads} threads");
        }
    }

    #[test]
    fn parts_that_were_taken_back_are_claimed_by_nobody() {
        let claims = Claims::new(2);
        claims.deal(10);
        assert_eq!(claims.claim(0), Some(0));
        claims.drop_rest();
        assert_eq!([claims.claim(0), claims.claim(1)], [None, None]);
        claims.deal(1);
        assert_eq!([claims.claim(1), claims.claim(0)], [Some(0), None]);
    }
}
