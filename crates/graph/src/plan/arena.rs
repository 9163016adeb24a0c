//! Offsets for intervals: dynamic storage allocation, offline.
//!
//! Finding the smallest arena is NP-hard, but nearly always the largest load can be reached or almost reached. Every
//! method here is the same placement (intervals in some order, each at the lowest or the tightest gap among those
//! placed before that live at the same time) under another order:
//!
//! * by size, by bytes x steps, by length, by the load they live under: large or long things first;
//! * by time: as an online allocator would, with best fit;
//! * improvement: intervals that stick out at the top move to the front of the best order (squeaky wheel).
//!
//! Where these leave too much, and there are not too many intervals, `skyline` looks for an arena that is enough.
//!
//! The load's maximum is reported as a lower bound, and reaching it ends the search. Rejected: pushing placed blocks up
//! (MegEngine's interval move) costs a quadratic number of moves and won nothing over the improvement on training graphs.

mod skyline;
#[cfg(test)]
mod tests;

use super::lifetime::{Interval, Lifetimes};

/// Offsets, in the order of the intervals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Multiples of the alignment, as the bytes of intervals are.
    pub offsets: Vec<u64>,
    /// End of the highest interval.
    pub arena_bytes: u64,
    /// The largest load.
    pub lower_bound: u64,
    /// How many pairs of intervals, and steps of one, were looked at to find it.
    pub looks: usize,
}

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// An arena of that size is good enough; 0 for the lower bound.
    pub enough_bytes: u64,
    /// Placements of all intervals.
    pub placements: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { enough_bytes: 0, placements: 100 }
    }
}

/// Assigns an offset to every interval, so that those which share a step do not overlap.
pub fn assign(lifetimes: &Lifetimes, effort: Effort) -> Layout {
    let lower_bound = lifetimes.peak();
    let enough = effort.enough_bytes.max(lower_bound);
    let mut placer = Placer::new(lifetimes);
    let effort = Effort { enough_bytes: enough, ..effort };
    let (order, mut best) = first_layout(lifetimes, &mut placer, effort);
    if best.arena_bytes > enough && effort.placements > 1 {
        best = below(lifetimes, effort, best);
    }
    if best.arena_bytes > enough && effort.placements > 1 {
        best = raised(lifetimes, &mut placer, order, best, effort);
    }
    best.looks += placer.looks;
    best
}

/// The best of the plain orders, and that order.
fn first_layout(l: &Lifetimes, placer: &mut Placer, effort: Effort) -> (Vec<usize>, Layout) {
    let mut best: Option<(Vec<usize>, Layout)> = None;
    let tries = orders(l).into_iter().flat_map(|order| [(order.clone(), Fit::Lowest), (order, Fit::Tightest)]);
    for (order, fit) in tries.take(effort.placements.max(1)) {
        let layout = placer.place(&order, fit, l.peak());
        if best.as_ref().is_none_or(|b| layout.arena_bytes < b.1.arena_bytes) {
            best = Some((order, layout));
        }
        if best.as_ref().is_some_and(|b| b.1.arena_bytes <= effort.enough_bytes) {
            break;
        }
    }
    best.expect("there is at least one order")
}

/// Heights tried: the one that is wanted, for half of the time, then some between it and the best one known.
const HEIGHTS: usize = 5;

/// A complete search for the height that is enough, then for some between it and the best.
fn below(l: &Lifetimes, effort: Effort, mut best: Layout) -> Layout {
    let count = l.intervals.len();
    let steps: usize = l.intervals.iter().map(|i| i.end - i.start + 2).sum();
    // As long as the placements take: one looks at all pairs, a node of the search at all steps of the intervals.
    let nodes = effort.placements * count * count * 2 / steps.max(1);
    let (mut height, mut looks) = (effort.enough_bytes, best.looks);
    for turn in 0..HEIGHTS {
        let nodes = if turn == 0 { nodes / 2 } else { nodes / 2 / HEIGHTS };
        match skyline::search(l, height, nodes, &mut looks) {
            Some(found) => return Layout { looks, ..found },
            None => height += (best.arena_bytes - height) / 2,
        }
        if height >= best.arena_bytes {
            break;
        }
    }
    if let Some(found) = skyline::search(l, height.min(best.arena_bytes - 1), nodes / 2 / HEIGHTS, &mut looks) {
        best = found;
    }
    Layout { looks, ..best }
}

/// Placements after which a walk that found nothing better returns to the best order.
const STRAY: usize = 20;

/// More raises find nothing better.
const MOST_RAISES: usize = 400;

/// Improvement of an order by what sticks out.
fn raised(l: &Lifetimes, placer: &mut Placer, mut order: Vec<usize>, mut best: Layout, effort: Effort) -> Layout {
    let mut walk = order.clone();
    let mut now = placer.place(&walk, Fit::Lowest, l.peak());
    for turn in 0..effort.placements.min(MOST_RAISES) {
        if best.arena_bytes <= effort.enough_bytes || !raise_wheels(&mut walk, &l.intervals, &now, turn) {
            break;
        }
        now = placer.place(&walk, Fit::Lowest, l.peak());
        if now.arena_bytes <= best.arena_bytes {
            best = Layout { looks: best.looks, ..now.clone() };
            order.clone_from(&walk);
        } else if turn.is_multiple_of(STRAY) {
            now = placer.place(&order, Fit::Lowest, l.peak());
            walk.clone_from(&order);
        }
    }
    best
}

/// The orders to begin with.
fn orders(l: &Lifetimes) -> Vec<Vec<usize>> {
    let heaviest = heaviest_steps(l);
    let length = |i: usize| l.intervals[i].end - l.intervals[i].start;
    let bytes = |i: usize| l.intervals[i].bytes;
    let area = |i: usize| u128::from(bytes(i)) * (length(i) as u128 + 1);
    let by = |key: &dyn Fn(usize) -> (u128, u128)| {
        let mut order: Vec<usize> = (0..l.intervals.len()).collect();
        order.sort_by_cached_key(|&i| (std::cmp::Reverse(key(i)), i));
        order
    };
    let start = |i: usize| (l.load.len() - l.intervals[i].start) as u128;
    vec![
        by(&|i| (length(i) as u128, u128::from(bytes(i)))),
        by(&|i| (u128::from(bytes(i)), length(i) as u128)),
        by(&|i| (u128::from(heaviest[i]), area(i))),
        by(&|i| (area(i), 0)),
        by(&|i| (start(i), length(i) as u128)),
    ]
}

/// For each interval, the largest load that it lives under.
fn heaviest_steps(l: &Lifetimes) -> Vec<u64> {
    // Maxima of ranges of 2^k steps.
    let mut levels = vec![l.load.clone()];
    while let Some(last) = levels.last().filter(|x| x.len() > 1 << (levels.len() - 1)) {
        let half = 1 << (levels.len() - 1);
        let next: Vec<u64> = (0..last.len() - half).map(|i| last[i].max(last[i + half])).collect();
        levels.push(next);
    }
    l.intervals
        .iter()
        .map(|i| {
            let k = (i.end - i.start + 1).ilog2() as usize;
            levels[k][i.start].max(levels[k][i.end + 1 - (1 << k)])
        })
        .collect()
}

/// Moves intervals that end above the lower bound forward: all of them, or one; far, or a little. False if there are none.
fn raise_wheels(order: &mut [usize], intervals: &[Interval], layout: &Layout, turn: usize) -> bool {
    let sticks_out = |i: usize| intervals[i].bytes > 0 && layout.offsets[i] + intervals[i].bytes > layout.lower_bound;
    let mut positions: Vec<usize> = (0..order.len()).filter(|&at| sticks_out(order[at])).collect();
    if turn % 4 >= 2 && !positions.is_empty() {
        let one = positions[(turn * TURN_STRIDE) % positions.len()];
        positions = vec![one];
    }
    for &from in &positions {
        let to = if turn.is_multiple_of(2) { from / 2 } else { from - from.min(1 + turn / 2) };
        order[to..=from].rotate_right(1);
    }
    positions.last().is_some_and(|&at| at > 0)
}

/// A prime, so that the one that moves is another each turn.
const TURN_STRIDE: usize = 7919;

/// Which of the gaps that are large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Lowest,
    Tightest,
}

/// A placed interval: its range of bytes and its range of steps.
#[derive(Clone, Copy)]
struct Placed {
    offset: u64,
    end: u64,
    from: u32,
    to: u32,
}

/// Placed intervals by offset: one walk upwards finds every gap, and may stop at the first.
struct Placer<'a> {
    intervals: &'a [Interval],
    placed: Vec<Placed>,
    /// Pairs that were looked at.
    looks: usize,
}

impl<'a> Placer<'a> {
    fn new(l: &'a Lifetimes) -> Placer<'a> {
        Placer { intervals: &l.intervals, placed: Vec::with_capacity(l.intervals.len()), looks: 0 }
    }

    fn place(&mut self, order: &[usize], fit: Fit, lower_bound: u64) -> Layout {
        self.placed.clear();
        let mut layout = Layout { offsets: vec![0; self.intervals.len()], arena_bytes: 0, lower_bound, looks: 0 };
        for &i in order.iter().filter(|&&i| self.intervals[i].bytes > 0) {
            let (interval, bytes) = (self.intervals[i], self.intervals[i].bytes);
            let (from, to) = (interval.start as u32, interval.end as u32);
            self.looks += self.placed.len();
            let meets = self.placed.iter().filter(|p| p.from <= to && from <= p.to).map(|p| (p.offset, p.end));
            let offset = gap(meets, bytes, fit);
            layout.offsets[i] = offset;
            layout.arena_bytes = layout.arena_bytes.max(offset + bytes);
            let at = self.placed.partition_point(|p| p.offset < offset);
            self.placed.insert(at, Placed { offset, end: offset + bytes, from, to });
        }
        layout
    }
}

/// The offset of the chosen gap between `taken` ranges, which come in order; above them all if none is large enough.
fn gap(taken: impl Iterator<Item = (u64, u64)>, bytes: u64, fit: Fit) -> u64 {
    let (mut top, mut best) = (0, None);
    for (start, end) in taken {
        if start >= top + bytes {
            let room = start - top;
            if fit == Fit::Lowest {
                return top;
            }
            if best.is_none_or(|(r, _)| room < r) {
                best = Some((room, top));
            }
        }
        top = top.max(end);
    }
    best.map_or(top, |(_, at)| at)
}
