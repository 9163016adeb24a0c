//! Policies: given the address order, the storages whose eviction makes room for an allocation at the least cost.
//!
//! A policy sees ranges and costs, never tensors. All three are deterministic: among equals the lowest address wins.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::options::PolicyKind;
use remat_device::{Owner, Segment};

/// The costs of an evictable storage, as a policy sees them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Time to run its producer again.
    pub own_ns: f64,
    /// Time to run the producers of its evicted ancestors, which must come back first.
    pub ancestors_ns: f64,
    /// Time to run the producers of its evicted descendants, which would have to wait for it.
    pub descendants_ns: f64,
    /// Time until its next use if that is known, and else the time since its last use.
    pub idle_ns: f64,
}

/// A segment of the address order with what a policy knows of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredSegment {
    /// Where it lies, how long it is, and whether it is free.
    pub segment: Segment,
    /// `None` for a free range, and for a block that must stay.
    pub candidate: Option<Candidate>,
}

/// The bytes of the address order that a policy does not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnscannedBytes {
    /// Bytes of free ranges.
    pub free_bytes: usize,
    /// Bytes of blocks.
    pub used_bytes: usize,
}

/// The result of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Storages to evict.
    pub evict: Vec<Owner>,
    /// The offset at which the allocation will then fit. `None` if only a compaction joins the free bytes.
    pub at: Option<usize>,
}

/// Keeps ratios finite for storages used this instant or the next.
const IDLE_FLOOR_NS: f64 = 1e3;

/// The cost of losing a storage of `bytes`, by `kind`'s formula. Storages of lower cost are evicted first.
fn score(kind: PolicyKind, c: &Candidate, bytes: usize, free_around: usize) -> f64 {
    let idle = c.idle_ns.max(IDLE_FLOOR_NS);
    match kind {
        // A window is compared by the bytes that it covers, so the costs of its members carry no size of their own.
        PolicyKind::Window => (c.own_ns + c.ancestors_ns + c.descendants_ns) / idle,
        // DTR equation h = (c0 + e*) / (m * s).
        PolicyKind::Dtr => (c.own_ns + c.ancestors_ns + c.descendants_ns) / (bytes as f64 * idle),
        // MegEngine: (neighbour cost + 1e-3) / (MiB with free neighbours x (seconds + 1e-3)), without the storage's own
        // cost.
        PolicyKind::Upstream => {
            let mib = (bytes + free_around) as f64 / (1 << 20) as f64;
            (c.ancestors_ns * 1e-9 + 1e-3) / (mib * (c.idle_ns * 1e-9 + 1e-3))
        }
    }
}

/// Chooses the storages to evict so that `need` bytes fit. `None` if even evicting all of `ranges` would not free that
/// many.
///
/// It passes over the ranges once, since there may be many and the caller waits.
pub fn choose(kind: PolicyKind, ranges: &[ScoredSegment], beyond: UnscannedBytes, need: usize) -> Option<Choice> {
    let mut windows = (kind == PolicyKind::Window).then(|| Windows::new(need, ranges.len()));
    let mut cheapest = Cheapest::new(if windows.is_some() { PolicyKind::Dtr } else { kind }, need, beyond.free_bytes);
    for i in 0..ranges.len() {
        cheapest.see(ranges, i);
        if let Some(w) = &mut windows {
            w.see(ranges, i);
        }
    }
    let scattered = cheapest.chosen(ranges)?;
    match windows.and_then(|w| w.best) {
        Some(window) => Some(window_or_compaction(ranges, beyond, window, scattered)),
        None => Some(choice(ranges, &scattered)),
    }
}

/// The ranges to evict, in order, and the offset at which the allocation then fits.
struct Chosen {
    evict: Vec<usize>,
    at: Option<usize>,
}

fn choice(ranges: &[ScoredSegment], chosen: &Chosen) -> Choice {
    Choice { evict: chosen.evict.iter().filter_map(|i| ranges[*i].segment.owner).collect(), at: chosen.at }
}

/// A window is rejected if it costs more than this many times the cheapest storages from anywhere, plus so many times
/// the move. A compaction's gain is soon scattered again.
///
/// From the simulated steps of ResNet-50 and the GPT: with 16 for both, windows took gradients along, which cost a
/// second backward pass. With less, blocks are moved back and forth.
const SCATTERED_RELUCTANCE: f64 = 2.0;
const MOVING_RELUCTANCE: f64 = 8.0;

/// Speed at which a compaction moves bytes: that of one core's copy.
const MOVED_BYTES_PER_NS: f64 = 8.0;

/// The best window, unless it is cheaper to evict the cheapest storages from anywhere and to compact.
///
/// Both costs are times: the time of recomputing the evicted storages once, and the time of the move.
fn window_or_compaction(
    ranges: &[ScoredSegment],
    beyond: UnscannedBytes,
    (_, lo, hi): (f64, usize, usize),
    scattered: Chosen,
) -> Choice {
    let loss_ns = |all: &mut dyn Iterator<Item = usize>| -> f64 {
        let costs = all.filter_map(|i| ranges[i].candidate.as_ref());
        costs.map(|c| c.own_ns + c.ancestors_ns + c.descendants_ns).sum()
    };
    let used = |r: &&ScoredSegment| r.segment.owner.is_some();
    let moved = || beyond.used_bytes + ranges.iter().filter(used).map(|r| r.segment.bytes).sum::<usize>();
    let window_ns = loss_ns(&mut (lo..=hi));
    let scattered_ns = loss_ns(&mut scattered.evict.iter().copied());
    let is_dearer = |moving_ns: f64| window_ns > SCATTERED_RELUCTANCE * scattered_ns + MOVING_RELUCTANCE * moving_ns;
    // Counting the bytes to move takes another pass. It is needed only if the move decides.
    if is_dearer(0.0) && (scattered.at.is_some() || is_dearer(moved() as f64 / MOVED_BYTES_PER_NS)) {
        return choice(ranges, &scattered);
    }
    choice(ranges, &Chosen { evict: (lo..=hi).collect(), at: Some(ranges[lo].segment.start) })
}

/// The contiguous window of free and evictable ranges with the least sum of costs that holds `need` bytes. Two indices
/// sweep the address order (Coop, section 4.2).
struct Windows {
    need: usize,
    lo: usize,
    bytes: usize,
    /// Sum of the costs of all ranges before each one. The cost of a window is a difference of two.
    costs: Vec<f64>,
    /// Cost, first and last range. `None` if pinned blocks leave no such window.
    best: Option<(f64, usize, usize)>,
}

impl Windows {
    fn new(need: usize, ranges: usize) -> Self {
        let mut costs = Vec::with_capacity(ranges + 1);
        costs.push(0.0);
        Windows { need, lo: 0, bytes: 0, costs, best: None }
    }

    fn see(&mut self, ranges: &[ScoredSegment], hi: usize) {
        let ScoredSegment { segment, candidate } = &ranges[hi];
        let cost = candidate.as_ref().map_or(0.0, |c| score(PolicyKind::Window, c, segment.bytes, 0));
        let upto = self.costs[hi] + cost;
        self.costs.push(upto);
        if segment.owner.is_some() && candidate.is_none() {
            (self.lo, self.bytes) = (hi + 1, 0);
            return;
        }
        self.bytes += segment.bytes;
        while self.bytes - ranges[self.lo].segment.bytes >= self.need {
            self.bytes -= ranges[self.lo].segment.bytes;
            self.lo += 1;
        }
        let cost = upto - self.costs[self.lo];
        if self.bytes >= self.need && self.best.is_none_or(|b| cost < b.0) {
            self.best = Some((cost, self.lo, hi));
        }
    }
}

/// Takes one storage after the other, by score, until all free bytes together suffice.
///
/// Holds the shortest prefix of the order by score that suffices with the free bytes seen so far. Later ranges can only
/// shorten it. So a dropped range never comes back, and most ranges cost one comparison.
struct Cheapest {
    kind: PolicyKind,
    need: usize,
    /// Free bytes outside the ranges, and in the ranges seen so far.
    free: usize,
    taken: usize,
    heap: BinaryHeap<Scored>,
    /// The start of the run of free ranges that ends here, and its bytes.
    run: (usize, usize),
    /// The first free place that is large enough.
    fits: Option<usize>,
}

/// A range with its score. Equal scores go by address.
#[derive(PartialEq)]
struct Scored(f64, usize);

impl Eq for Scored {}
impl PartialOrd for Scored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scored {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl Cheapest {
    fn new(kind: PolicyKind, need: usize, free: usize) -> Self {
        Cheapest { kind, need, free, taken: 0, heap: BinaryHeap::new(), run: (0, 0), fits: None }
    }

    fn see(&mut self, ranges: &[ScoredSegment], i: usize) {
        let ScoredSegment { segment, candidate } = &ranges[i];
        if segment.owner.is_none() {
            self.free += segment.bytes;
            self.run =
                if self.run.1 == 0 { (segment.start, segment.bytes) } else { (self.run.0, self.run.1 + segment.bytes) };
            if self.run.1 >= self.need {
                self.fits.get_or_insert(self.run.0);
            }
            return;
        }
        self.run.1 = 0;
        let Some(c) = candidate else { return };
        let around = if self.kind == PolicyKind::Upstream { free_around(ranges, i) } else { 0 };
        let scored = Scored(score(self.kind, c, segment.bytes, around), i);
        let is_enough = self.free + self.taken >= self.need;
        if is_enough && self.heap.peek().is_none_or(|dearest| scored.0 >= dearest.0) {
            return;
        }
        self.taken += segment.bytes;
        self.heap.push(scored);
        self.shorten(ranges);
    }

    /// Drops ranges that are not needed.
    fn shorten(&mut self, ranges: &[ScoredSegment]) {
        while let Some(dearest) = self.heap.peek() {
            let bytes = ranges[dearest.1].segment.bytes;
            if self.free + self.taken - bytes < self.need {
                return;
            }
            self.taken -= bytes;
            self.heap.pop();
        }
    }

    /// The choice after all ranges were seen. `None` if they do not suffice.
    fn chosen(mut self, ranges: &[ScoredSegment]) -> Option<Chosen> {
        if self.free + self.taken < self.need {
            return None;
        }
        self.shorten(ranges);
        let evict: Vec<usize> = self.heap.into_sorted_vec().into_iter().map(|s| s.1).collect();
        let at = self.fits.into_iter().chain(first_fit(ranges, &evict, self.need)).min();
        Some(Chosen { evict, at })
    }
}

fn free_around(ranges: &[ScoredSegment], i: usize) -> usize {
    let free = |j: Option<&ScoredSegment>| j.filter(|r| r.segment.owner.is_none()).map_or(0, |r| r.segment.bytes);
    free(i.checked_sub(1).and_then(|j| ranges.get(j))) + free(ranges.get(i + 1))
}

/// The first place of `need` bytes that contains one of the evicted ranges.
fn first_fit(ranges: &[ScoredSegment], evict: &[usize], need: usize) -> Option<usize> {
    let mut gone = evict.to_vec();
    gone.sort_unstable();
    let is_free =
        |i: &usize| ranges.get(*i).is_some_and(|r| r.segment.owner.is_none()) || gone.binary_search(i).is_ok();
    let mut end = 0;
    for &i in gone.iter() {
        if i < end {
            continue;
        }
        let lo = (0..i).rev().take_while(is_free).last().unwrap_or(i);
        end = (i..).find(|j| !is_free(j)).unwrap_or(ranges.len());
        if ranges[lo..end].iter().map(|r| r.segment.bytes).sum::<usize>() >= need {
            return Some(ranges[lo].segment.start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: usize, bytes: usize, owner: Option<Owner>, cost: Option<f64>) -> ScoredSegment {
        let candidate = cost.map(|own_ns| Candidate { own_ns, ancestors_ns: 0.0, descendants_ns: 0.0, idle_ns: 1e6 });
        ScoredSegment { segment: Segment { start, bytes, owner }, candidate }
    }

    /// The order by score as its definition says: all ranges sorted, and the shortest prefix that suffices.
    fn sorted(kind: PolicyKind, ranges: &[ScoredSegment], need: usize) -> Option<Choice> {
        let mut order: Vec<Scored> = (ranges.iter().enumerate())
            .filter_map(|(i, r)| {
                Some(Scored(score(kind, r.candidate.as_ref()?, r.segment.bytes, free_around(ranges, i)), i))
            })
            .collect();
        order.sort();
        let bytes = |is: &dyn Fn(&ScoredSegment) -> bool| {
            ranges.iter().filter(|r| is(r)).map(|r| r.segment.bytes).sum::<usize>()
        };
        let mut free = bytes(&|r| r.segment.owner.is_none());
        let mut gone = vec![false; ranges.len()];
        let mut evict = Vec::new();
        for Scored(_, i) in order {
            if free >= need {
                break;
            }
            (free, gone[i]) = (free + ranges[i].segment.bytes, true);
            evict.extend(ranges[i].segment.owner);
        }
        let (mut start, mut run, mut at) = (0, 0, None);
        for (r, gone) in ranges.iter().zip(gone) {
            let is_free = gone || r.segment.owner.is_none();
            (start, run) = match (is_free, run) {
                (false, _) => (0, 0),
                (true, 0) => (r.segment.start, r.segment.bytes),
                (true, _) => (start, run + r.segment.bytes),
            };
            at = at.or((run >= need).then_some(start));
        }
        (free >= need).then_some(Choice { evict, at })
    }

    proptest::proptest! {
        #[test]
        fn one_pass_chooses_what_sorting_everything_would(
            blocks in proptest::collection::vec((1..4usize, 0..4u32, 0..5u32), 0..40),
            need in 1..30usize,
        ) {
            let mut at = 0;
            let ranges: Vec<ScoredSegment> = (blocks.iter().enumerate())
                .map(|(i, &(units, state, cost))| {
                    let owner = (state > 0).then_some(i as Owner);
                    let r = range(at, units * 64, owner, (state > 1).then_some(f64::from(cost)));
                    at += units * 64;
                    r
                })
                .collect();
            for kind in [PolicyKind::Dtr, PolicyKind::Upstream] {
                proptest::prop_assert_eq!(choose(kind, &ranges, UnscannedBytes::default(), need * 64), sorted(kind, &ranges, need * 64));
            }
        }
    }

    #[test]
    fn the_window_uses_free_neighbours_and_avoids_pinned_blocks() {
        let r = [
            range(0, 64, Some(1), Some(1.0)),
            range(64, 64, Some(2), None),
            range(128, 64, None, None),
            range(192, 64, Some(3), Some(50.0)),
            range(256, 64, Some(4), Some(9.0)),
            range(320, 64, Some(5), Some(9.0)),
        ];
        let c = choose(PolicyKind::Window, &r, UnscannedBytes::default(), 128).expect("possible");
        assert_eq!(c, Choice { evict: vec![4, 5], at: Some(256) }, "18 beats the free range with its neighbour of 50");
        let c = choose(PolicyKind::Window, &r, UnscannedBytes::default(), 64).expect("possible");
        assert_eq!(c, Choice { evict: vec![], at: Some(128) });
    }

    #[test]
    fn without_a_window_the_cheapest_go_and_a_compaction_is_asked_for() {
        let r = [
            range(0, 64, Some(1), Some(1.0)),
            range(64, 64, Some(2), None),
            range(128, 64, Some(3), Some(2.0)),
            range(192, 64, Some(4), None),
            range(256, 64, Some(5), Some(3.0)),
        ];
        let c = choose(PolicyKind::Window, &r, UnscannedBytes::default(), 128).expect("possible");
        assert_eq!(c, Choice { evict: vec![1, 3], at: None });
        assert_eq!(
            choose(PolicyKind::Window, &r, UnscannedBytes::default(), 256),
            None,
            "three units can be had, four cannot"
        );
    }

    #[test]
    fn what_is_free_beyond_the_ranges_counts_for_a_compaction_but_is_no_place() {
        let r = [range(0, 64, Some(1), Some(1.0)), range(64, 64, Some(2), None), range(128, 64, Some(3), Some(2.0))];
        let beyond = |free_bytes| UnscannedBytes { free_bytes, used_bytes: 1 << 20 };
        assert_eq!(choose(PolicyKind::Dtr, &r, beyond(64), 128), Some(Choice { evict: vec![1], at: None }));
        assert_eq!(choose(PolicyKind::Window, &r, beyond(64), 128), Some(Choice { evict: vec![1], at: None }));
        assert_eq!(choose(PolicyKind::Dtr, &r, beyond(0), 192), None);
    }

    #[test]
    fn dtr_prefers_the_large_and_the_stale() {
        let mut r = [range(0, 64, Some(1), Some(10.0)), range(64, 640, Some(2), Some(10.0))];
        assert_eq!(choose(PolicyKind::Dtr, &r, UnscannedBytes::default(), 64).expect("possible").evict, [2]);
        if let Some(c) = r[0].candidate.as_mut() {
            c.idle_ns = 1e9;
        }
        assert_eq!(choose(PolicyKind::Dtr, &r, UnscannedBytes::default(), 64).expect("possible").evict, [1]);
    }

    #[test]
    fn upstream_ignores_a_storages_own_cost() {
        let r = [range(0, 64, Some(1), Some(1e9)), range(64, 64, Some(2), Some(1.0))];
        assert_eq!(
            choose(PolicyKind::Upstream, &r, UnscannedBytes::default(), 64).expect("possible").evict,
            [1],
            "lowest address among equals"
        );
        assert_eq!(choose(PolicyKind::Dtr, &r, UnscannedBytes::default(), 64).expect("possible").evict, [2]);
    }
}
