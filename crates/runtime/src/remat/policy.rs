//! Policies: given the address order, which storages make room for an allocation at the least cost.
//!
//! A policy sees ranges and costs, never tensors. All three are deterministic: among equals the lowest address wins.

use rustc_hash::FxHashSet;

use crate::arena::{Owner, Segment};
use crate::options::PolicyKind;

/// What a policy knows of an evictable storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Time to run its producer again.
    pub own_ns: f64,
    /// Time to run the producers of its evicted ancestors, which must come back first.
    pub ancestors_ns: f64,
    /// Time to run the producers of its evicted descendants, which would have to wait for it.
    pub descendants_ns: f64,
    /// Time until it is used next where that is known, and else the time since it was last used.
    pub idle_ns: f64,
}

/// A segment of the address order with what a policy knows of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Where it lies, how long it is, and whether it is free.
    pub segment: Segment,
    /// `None` for a free range, and for a block that must stay.
    pub candidate: Option<Candidate>,
}

/// What to evict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Storages to evict.
    pub evict: Vec<Owner>,
    /// Where the allocation will fit then; `None` if only a compaction makes one range of what is free then.
    pub at: Option<usize>,
}

/// Keeps ratios finite for storages used this instant or the next.
const IDLE_FLOOR_NS: f64 = 1e3;

/// Cost of losing a storage of `bytes`, by `kind`'s formula; less is evicted first.
fn score(kind: PolicyKind, c: &Candidate, bytes: usize, free_around: usize) -> f64 {
    let idle = c.idle_ns.max(IDLE_FLOOR_NS);
    match kind {
        // The window weighs bytes by what it covers, so its members' costs carry no size of their own.
        PolicyKind::Window => (c.own_ns + c.ancestors_ns + c.descendants_ns) / idle,
        // DTR equation h = (c0 + e*) / (m * s).
        PolicyKind::Dtr => (c.own_ns + c.ancestors_ns + c.descendants_ns) / (bytes as f64 * idle),
        // MegEngine: (neighbour cost + 1e-3) / (MiB with free neighbours x (seconds + 1e-3)); own cost is not in it.
        PolicyKind::Upstream => {
            let mib = (bytes + free_around) as f64 / (1 << 20) as f64;
            (c.ancestors_ns * 1e-9 + 1e-3) / (mib * (c.idle_ns * 1e-9 + 1e-3))
        }
    }
}

/// Chooses what to evict so that `need` bytes fit, or `None` if even evicting everything would not free that many.
pub fn choose(kind: PolicyKind, ranges: &[Range], need: usize) -> Option<Choice> {
    let reachable: usize =
        ranges.iter().filter(|r| r.segment.owner.is_none() || r.candidate.is_some()).map(|r| r.segment.bytes).sum();
    if reachable < need {
        return None;
    }
    match kind {
        PolicyKind::Window => Some(window_or_compaction(ranges, need)),
        PolicyKind::Dtr | PolicyKind::Upstream => Some(cheapest(kind, ranges, need)),
    }
}

/// How many times the cost of evicting from anywhere and compacting a window must cost before it is passed over.
///
/// What a compaction joins is soon scattered again, so its price is paid many times over. On the simulator's recorded
/// training steps 4 made every budget but the smallest slower; without the way out, one window policy took ten times
/// DTR's time at 30 % of the peak.
const COMPACTION_RELUCTANCE: f64 = 16.0;

/// Speed at which a compaction moves bytes: that of one core's copy.
const MOVED_BYTES_PER_NS: f64 = 8.0;

/// The best window, unless evicting the cheapest from anywhere and moving the rest together costs less.
///
/// Both are times: that of making again, once, what goes, and that of the move.
fn window_or_compaction(ranges: &[Range], need: usize) -> Choice {
    let scattered = cheapest(PolicyKind::Dtr, ranges, need);
    let Some(choice) = window(ranges, need) else { return scattered };
    let loss_ns = |c: &Choice| -> f64 {
        let evicted: FxHashSet<Owner> = c.evict.iter().copied().collect();
        let gone = |r: &&Range| r.segment.owner.is_some_and(|o| evicted.contains(&o));
        let costs = ranges.iter().filter(gone).filter_map(|r| r.candidate.as_ref());
        costs.map(|c| c.own_ns + c.ancestors_ns + c.descendants_ns).sum()
    };
    let moved: usize = ranges.iter().filter(|r| r.segment.owner.is_some()).map(|r| r.segment.bytes).sum();
    let moving_ns = if scattered.at.is_some() { 0.0 } else { moved as f64 / MOVED_BYTES_PER_NS };
    if loss_ns(&choice) <= COMPACTION_RELUCTANCE * (loss_ns(&scattered) + moving_ns) { choice } else { scattered }
}

/// The contiguous window of free and evictable ranges with the least sum of costs that holds `need` bytes: two
/// indices sweep the address order (Coop, section 4.2). `None` if pinned blocks leave no such window.
fn window(ranges: &[Range], need: usize) -> Option<Choice> {
    let costs: Vec<Option<f64>> = ranges
        .iter()
        .map(|r| match (&r.segment.owner, &r.candidate) {
            (None, _) => Some(0.0),
            (Some(_), Some(c)) => Some(score(PolicyKind::Window, c, r.segment.bytes, 0)),
            (Some(_), None) => None,
        })
        .collect();
    let mut best: Option<(f64, usize, usize)> = None;
    let (mut lo, mut bytes, mut cost) = (0, 0, 0.0);
    for hi in 0..ranges.len() {
        let Some(c) = costs[hi] else {
            (lo, bytes, cost) = (hi + 1, 0, 0.0);
            continue;
        };
        bytes += ranges[hi].segment.bytes;
        cost += c;
        while bytes - ranges[lo].segment.bytes >= need {
            bytes -= ranges[lo].segment.bytes;
            cost -= costs[lo].unwrap_or(0.0);
            lo += 1;
        }
        if bytes >= need && best.is_none_or(|b| cost < b.0) {
            best = Some((cost, lo, hi));
        }
    }
    let (_, lo, hi) = best?;
    let evict = ranges[lo..=hi].iter().filter_map(|r| r.segment.owner).collect();
    Some(Choice { evict, at: Some(ranges[lo].segment.start) })
}

/// One storage after the other by score until a range of `need` bytes is free, or until all free bytes together are
/// that many and everything evictable that could widen a range is gone.
fn cheapest(kind: PolicyKind, ranges: &[Range], need: usize) -> Choice {
    let around = |i: usize| {
        let free = |j: Option<&Range>| j.filter(|r| r.segment.owner.is_none()).map_or(0, |r| r.segment.bytes);
        free(i.checked_sub(1).and_then(|j| ranges.get(j))) + free(ranges.get(i + 1))
    };
    let mut order: Vec<(f64, usize)> = ranges
        .iter()
        .enumerate()
        .filter_map(|(i, r)| Some((score(kind, r.candidate.as_ref()?, r.segment.bytes, around(i)), i)))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut gone = vec![false; ranges.len()];
    let mut choice = Choice::default();
    let mut free: usize = ranges.iter().filter(|r| r.segment.owner.is_none()).map(|r| r.segment.bytes).sum();
    for (_, i) in order {
        if free >= need {
            break;
        }
        gone[i] = true;
        free += ranges[i].segment.bytes;
        choice.evict.extend(ranges[i].segment.owner);
    }
    choice.at = first_fit(ranges, &gone, need);
    choice
}

fn first_fit(ranges: &[Range], gone: &[bool], need: usize) -> Option<usize> {
    let (mut start, mut run) = (None, 0);
    for (r, gone) in ranges.iter().zip(gone) {
        if r.segment.owner.is_none() || *gone {
            start.get_or_insert(r.segment.start);
            run += r.segment.bytes;
            if run >= need {
                return start;
            }
        } else {
            (start, run) = (None, 0);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: usize, bytes: usize, owner: Option<Owner>, cost: Option<f64>) -> Range {
        let candidate = cost.map(|own_ns| Candidate { own_ns, ancestors_ns: 0.0, descendants_ns: 0.0, idle_ns: 1e6 });
        Range { segment: Segment { start, bytes, owner }, candidate }
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
        let c = choose(PolicyKind::Window, &r, 128).expect("possible");
        assert_eq!(c, Choice { evict: vec![4, 5], at: Some(256) }, "18 beats the free range with its neighbour of 50");
        let c = choose(PolicyKind::Window, &r, 64).expect("possible");
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
        let c = choose(PolicyKind::Window, &r, 128).expect("possible");
        assert_eq!(c, Choice { evict: vec![1, 3], at: None });
        assert_eq!(choose(PolicyKind::Window, &r, 256), None, "three units can be had, four cannot");
    }

    #[test]
    fn dtr_prefers_the_large_and_the_stale() {
        let mut r = [range(0, 64, Some(1), Some(10.0)), range(64, 640, Some(2), Some(10.0))];
        assert_eq!(choose(PolicyKind::Dtr, &r, 64).expect("possible").evict, [2]);
        if let Some(c) = r[0].candidate.as_mut() {
            c.idle_ns = 1e9;
        }
        assert_eq!(choose(PolicyKind::Dtr, &r, 64).expect("possible").evict, [1]);
    }

    #[test]
    fn upstream_ignores_a_storages_own_cost() {
        let r = [range(0, 64, Some(1), Some(1e9)), range(64, 64, Some(2), Some(1.0))];
        assert_eq!(choose(PolicyKind::Upstream, &r, 64).expect("possible").evict, [1], "lowest address among equals");
        assert_eq!(choose(PolicyKind::Dtr, &r, 64).expect("possible").evict, [2]);
    }
}
