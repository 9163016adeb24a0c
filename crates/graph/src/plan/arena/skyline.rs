//! A complete search for offsets below a given height, for problems on which one pass in any order leaves gaps.
//!
//! Intervals are placed in order of rising offsets, each on what lies below it (Moffitt, "MiniMalloc", ASPLOS 2023): the
//! state is a skyline, the lowest free byte at each step. What is not placed yet lies at or above the last offset, so a
//! step whose skyline and unplaced bytes together exceed the height ends a branch. An interval that would start where
//! another one could already have ended is not tried: the other goes below it at no loss.

use std::cmp::Reverse;

use super::Layout;
use crate::plan::lifetime::{Interval, Lifetimes};

/// Beyond this many intervals a search that has to turn back is lost.
const MOST_INTERVALS: usize = 1500;

/// Offsets whose arena is at most `height`; `None` if there are none, or none was found by `nodes` placements of one
/// interval. Adds the number of its looks to `looks`.
pub(super) fn search(l: &Lifetimes, height: u64, nodes: usize, looks: &mut usize) -> Option<Layout> {
    let is_too_long = l.intervals.len() > MOST_INTERVALS.min(nodes);
    if is_too_long || l.peak() > height {
        return None;
    }
    let mut s = Skyline::new(l, height);
    let mut spent = 0;
    let first_limit = 2 * l.intervals.len() + 1;
    for turn in 0.. {
        // Short tries before long ones: where an order fits at all, it mostly does so soon.
        let limit = (first_limit << luby(turn)).min(nodes - spent);
        s.restart(l, turn, limit);
        let end = s.place(0, 0);
        *looks += std::mem::take(&mut s.looks);
        match end {
            End::Found => return Some(s.layout(l)),
            End::None => return None,
            End::OutOfNodes => spent += limit,
        }
        if spent >= nodes {
            break;
        }
    }
    None
}

/// Luby, Sinclair, Zuckerman 1993, as powers of two: 0 0 1 0 0 1 2 ..
fn luby(turn: usize) -> u32 {
    let (mut k, mut i) = (1u32, turn + 1);
    loop {
        let whole = (1usize << k) - 1;
        if i == whole {
            return k - 1;
        }
        if i < whole {
            i -= (1 << (k - 1)) - 1;
            k = 1;
        } else {
            k += 1;
        }
    }
}

enum End {
    Found,
    None,
    OutOfNodes,
}

struct Skyline<'a> {
    intervals: &'a [Interval],
    height: u64,
    looks: usize,
    /// Unplaced intervals come in this order where their offsets are equal.
    order: Vec<usize>,
    is_placed: Vec<bool>,
    unplaced: usize,
    offsets: Vec<u64>,
    /// The lowest free byte of each step.
    floor: Vec<u64>,
    /// Bytes of unplaced intervals at each step.
    left: Vec<u64>,
    /// How often each step ended a branch.
    failures: Vec<u64>,
    nodes: usize,
    /// Of [`Skyline::propagate`].
    raised: Vec<u64>,
}

impl<'a> Skyline<'a> {
    fn new(l: &'a Lifetimes, height: u64) -> Skyline<'a> {
        let steps = l.load.len();
        Skyline {
            intervals: &l.intervals,
            height,
            looks: 0,
            order: (0..l.intervals.len()).filter(|&i| l.intervals[i].bytes > 0).collect(),
            is_placed: Vec::new(),
            unplaced: 0,
            offsets: vec![0; l.intervals.len()],
            floor: Vec::new(),
            left: Vec::new(),
            failures: vec![0; steps],
            nodes: 0,
            raised: vec![0; steps],
        }
    }

    /// Begins again; what lives at steps that ended branches comes first, by one of several measures.
    fn restart(&mut self, l: &Lifetimes, turn: usize, nodes: usize) {
        let steps = |i: usize| l.intervals[i].start..=l.intervals[i].end;
        let worst = |i: usize| steps(i).map(|s| (self.failures[s], l.load[s])).max().unwrap_or_default();
        let length = |i: usize| (l.intervals[i].end - l.intervals[i].start + 1) as u128;
        let bytes = |i: usize| u128::from(l.intervals[i].bytes);
        let key = |i: usize| match turn % 3 {
            0 => (worst(i), length(i), bytes(i)),
            1 => (worst(i), bytes(i) * length(i), bytes(i)),
            _ => ((0, 0), length(i), bytes(i)),
        };
        let mut order = std::mem::take(&mut self.order);
        order.sort_by_cached_key(|&i| (Reverse(key(i)), i));
        self.order = order;
        self.is_placed = vec![false; self.order.len()];
        self.unplaced = self.order.len();
        self.floor = vec![0; l.load.len()];
        self.left.clone_from(&l.load);
        self.nodes = nodes;
    }

    /// Places the remaining intervals at or above `lowest`; at `lowest` itself only from place `from` of the order on.
    fn place(&mut self, lowest: u64, from: usize) -> End {
        if self.unplaced == 0 {
            return End::Found;
        }
        if self.nodes == 0 {
            return End::OutOfNodes;
        }
        self.nodes -= 1;
        let Some(candidates) = self.candidates(lowest, from) else { return End::None };
        for (offset, at) in candidates {
            let i = self.order[at];
            let (range, bytes) = (self.intervals[i].start..=self.intervals[i].end, self.intervals[i].bytes);
            let before: Vec<u64> = self.floor[range.clone()].to_vec();
            self.floor[range.clone()].fill(offset + bytes);
            self.left[range.clone()].iter_mut().for_each(|b| *b -= bytes);
            self.is_placed[at] = true;
            self.unplaced -= 1;
            self.offsets[i] = offset;
            match self.place(offset, at + 1) {
                End::None => {}
                end => return end,
            }
            self.floor[range.clone()].copy_from_slice(&before);
            self.left[range].iter_mut().for_each(|b| *b += bytes);
            self.is_placed[at] = false;
            self.unplaced += 1;
        }
        End::None
    }

    /// Where unplaced intervals may come to lie next, the lowest first; `None` if some step cannot hold the remaining intervals.
    ///
    /// An interval lies on the highest floor of its steps; one whose floor is below `lowest` waits for something to be put
    /// under it. So a step's floor is no lower than the lowest interval to come.
    fn candidates(&mut self, lowest: u64, from: usize) -> Option<Vec<(u64, usize)>> {
        self.raised.fill(u64::MAX);
        let mut found: Vec<(u64, usize)> = Vec::with_capacity(self.unplaced);
        let mut first_end = u64::MAX;
        for (at, &i) in self.order.iter().enumerate().filter(|(at, _)| !self.is_placed[*at]) {
            let interval = &self.intervals[i];
            let steps = interval.start..=interval.end;
            self.looks += interval.end - interval.start + 1;
            let floor = self.floor[steps.clone()].iter().copied().max().unwrap_or(0);
            // Lying on nothing, or on what came before in the order, it would have been placed before.
            let is_late = (floor, at) < (lowest, from);
            let offset = if is_late { lowest + 1 } else { floor };
            first_end = first_end.min(floor + interval.bytes);
            if !is_late {
                found.push((offset, at));
            }
            self.raised[steps].iter_mut().for_each(|r| *r = (*r).min(offset));
        }
        self.looks += self.order.len() + self.left.len();
        for step in 0..self.left.len() {
            if self.left[step] > 0 && self.raised[step] + self.left[step] > self.height {
                self.failures[step] += 1;
                return None;
            }
        }
        found.retain(|f| f.0 < first_end);
        found.sort_unstable();
        Some(found)
    }

    fn layout(self, l: &Lifetimes) -> Layout {
        let ends = self.offsets.iter().zip(self.intervals).map(|(o, i)| o + i.bytes);
        let arena_bytes = ends.max().unwrap_or(0);
        Layout { arena_bytes, offsets: self.offsets, lower_bound: l.peak(), looks: 0 }
    }
}
