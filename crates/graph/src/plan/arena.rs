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
//! The load's maximum is reported as a lower bound, and reaching it ends the search. Rejected: pushing placed blocks up
//! (MegEngine's interval move) costs a quadratic number of moves and won nothing over the improvement on training graphs.

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
        Effort { enough_bytes: 0, placements: 40 }
    }
}

/// Assigns an offset to every interval, so that those which share a step do not overlap.
pub fn assign(lifetimes: &Lifetimes, effort: Effort) -> Layout {
    let lower_bound = lifetimes.peak();
    let enough = effort.enough_bytes.max(lower_bound);
    let mut placer = Placer::new(lifetimes);
    let mut best: Option<(Vec<usize>, Layout)> = None;
    let mut placements = 0;
    for order in orders(lifetimes) {
        for fit in [Fit::Lowest, Fit::Tightest] {
            if placements < effort.placements.max(1) && best.as_ref().is_none_or(|b| b.1.arena_bytes > enough) {
                placements += 1;
                keep(&mut best, order.clone(), placer.place(&order, fit, lower_bound));
            }
        }
    }
    let (mut order, layout) = best.unwrap_or_else(|| (Vec::new(), empty()));
    let mut best = layout;
    let mut now = best.clone();
    while best.arena_bytes > enough && placements < effort.placements {
        placements += 1;
        if !raise_wheels(&mut order, &lifetimes.intervals, &now, placements) {
            break;
        }
        now = placer.place(&order, Fit::Lowest, lower_bound);
        if now.arena_bytes < best.arena_bytes {
            best = now.clone();
        }
    }
    best
}

fn empty() -> Layout {
    Layout { offsets: Vec::new(), arena_bytes: 0, lower_bound: 0 }
}

fn keep(best: &mut Option<(Vec<usize>, Layout)>, order: Vec<usize>, layout: Layout) {
    if best.as_ref().is_none_or(|b| layout.arena_bytes < b.1.arena_bytes) {
        *best = Some((order, layout));
    }
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

/// Moves the intervals that end above the lower bound forward, far or a little by turns; false if there are none.
fn raise_wheels(order: &mut Vec<usize>, intervals: &[Interval], layout: &Layout, turn: usize) -> bool {
    let mut at: Vec<usize> = vec![0; order.len()];
    for (position, &i) in order.iter().enumerate() {
        at[i] = position;
    }
    let sticks_out = |i: usize| layout.offsets[i] + intervals[i].bytes > layout.lower_bound;
    let mut wheels: Vec<usize> = (0..order.len()).filter(|&i| intervals[i].bytes > 0 && sticks_out(i)).collect();
    wheels.sort_by_key(|&i| at[i]);
    let mut raised = false;
    for &i in &wheels {
        let from = order.iter().position(|&o| o == i).expect("every interval is in the order");
        let to = if turn.is_multiple_of(2) { from / 2 } else { from - from.min(1 + turn / 2) };
        raised |= to < from;
        order[to..=from].rotate_right(1);
    }
    raised
}

/// Which of the gaps that are large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Lowest,
    Tightest,
}

/// Intervals on a grid of step ranges, so that neighbours in time are found without looking at all.
struct Placer<'a> {
    intervals: &'a [Interval],
    /// Steps of a cell.
    width: usize,
    /// Placed intervals of each cell.
    cells: Vec<Vec<u32>>,
    /// Placed intervals that span most cells.
    long: Vec<u32>,
    /// The placement that an interval was last gathered for.
    seen: Vec<u32>,
    gathered: Vec<(u64, u64)>,
}

/// Cells of the grid: about as many as intervals that meet at a step.
const CELLS: usize = 128;

impl<'a> Placer<'a> {
    fn new(l: &'a Lifetimes) -> Placer<'a> {
        Placer {
            intervals: &l.intervals,
            width: l.load.len().div_ceil(CELLS).max(1),
            cells: vec![Vec::new(); CELLS],
            long: Vec::new(),
            seen: Vec::new(),
            gathered: Vec::new(),
        }
    }

    fn place(&mut self, order: &[usize], fit: Fit, lower_bound: u64) -> Layout {
        self.cells.iter_mut().for_each(Vec::clear);
        self.long.clear();
        self.seen = vec![u32::MAX; self.intervals.len()];
        let mut layout = Layout { offsets: vec![0; self.intervals.len()], arena_bytes: 0, lower_bound };
        for &i in order.iter().filter(|&&i| self.intervals[i].bytes > 0) {
            self.gather(i, &layout.offsets);
            let bytes = self.intervals[i].bytes;
            let offset = gap(&self.gathered, bytes, fit);
            layout.offsets[i] = offset;
            layout.arena_bytes = layout.arena_bytes.max(offset + bytes);
            self.insert(i);
        }
        layout
    }

    fn cells_of(&self, i: usize) -> std::ops::RangeInclusive<usize> {
        self.intervals[i].start / self.width..=self.intervals[i].end / self.width
    }

    fn insert(&mut self, i: usize) {
        let cells = self.cells_of(i);
        if cells.end() - cells.start() > CELLS / 4 {
            self.long.push(i as u32);
            return;
        }
        cells.for_each(|c| self.cells[c].push(i as u32));
    }

    /// The ranges of placed intervals that live when `i` does, by offset.
    fn gather(&mut self, i: usize, offsets: &[u64]) {
        let me = self.intervals[i];
        self.gathered.clear();
        let cells = self.cells_of(i).map(|c| &self.cells[c]);
        for &other in cells.flatten().chain(&self.long) {
            let o = self.intervals[other as usize];
            if o.start <= me.end && me.start <= o.end && self.seen[other as usize] != i as u32 {
                self.seen[other as usize] = i as u32;
                self.gathered.push((offsets[other as usize], offsets[other as usize] + o.bytes));
            }
        }
        self.gathered.sort_unstable();
    }
}

/// The offset of the chosen gap between `taken` ranges; above them all if none is large enough.
fn gap(taken: &[(u64, u64)], bytes: u64, fit: Fit) -> u64 {
    let (mut top, mut best) = (0, None);
    for &(start, end) in taken {
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
