//! What tiles prefetch while they compute: what will be read soon, and would come from memory slower than it is used.

use super::View;
use crate::pool::part_range;
use crate::simd::{LINE_BYTES, ROUND, opaque, prefetch_ahead};

/// Cache lines that a tile prefetches, some in each round of its loop, since a processor takes many requests at once for as long
/// as it would wait for them.
#[derive(Clone, Copy)]
pub(crate) struct PrefetchLines<T> {
    /// The first line; it may be any address.
    at: *const T,
    /// Lines of a round of a tile, side by side.
    lines: usize,
    /// Elements from those of one round to those of the next.
    step: isize,
}

impl<T> PrefetchLines<T> {
    /// Nothing.
    pub(crate) const NONE: PrefetchLines<T> = PrefetchLines { at: std::ptr::null(), lines: 0, step: 0 };

    /// Part `tile` of `tiles` of `len` elements, for tiles of `kc` steps of floats.
    pub(crate) fn part(at: *const T, len: usize, tile: usize, tiles: usize, kc: usize) -> PrefetchLines<T> {
        PrefetchLines::share(at, len, tile, tiles, kc / ROUND)
    }

    /// Part `tile` of `tiles` of `len` elements, in so many rounds.
    pub(crate) fn share(at: *const T, len: usize, tile: usize, tiles: usize, rounds: usize) -> PrefetchLines<T> {
        let lines = len.div_ceil(line::<T>()).div_ceil(tiles * rounds.max(1));
        let step = lines * line::<T>();
        let from = tile * rounds * step;
        if from < len {
            PrefetchLines { at: at.wrapping_add(from), lines, step: step as isize }
        } else {
            PrefetchLines::NONE
        }
    }

    /// Prefetches the lines of a round.
    #[inline(always)]
    pub(crate) fn prefetch(&mut self) {
        if self.lines > 0 {
            prefetch_ahead(self.at);
            for i in 1..self.lines {
                prefetch_ahead(self.at.wrapping_add(i * line::<T>()));
            }
            self.at = self.at.wrapping_offset(self.step);
        }
    }
}

/// As [`PrefetchLines`], of a B that is not packed: some lines of each row. A row lies where no processor looks ahead.
#[derive(Clone, Copy)]
pub(crate) struct PrefetchColumns<T> {
    /// The first line of the first row; it may be any address.
    at: *const T,
    /// Elements from a row to the next.
    ldb: usize,
    /// Lines of a row.
    lines: usize,
}

impl<T> PrefetchColumns<T> {
    /// Part `tile` of `tiles` of `columns` columns at `b`.
    pub(crate) fn part(b: *const T, ldb: usize, columns: usize, tile: usize, tiles: usize) -> PrefetchColumns<T> {
        let line = LINE_BYTES / size_of::<T>();
        let lines = part_range(columns.div_ceil(line), tiles, tile);
        PrefetchColumns { at: b.wrapping_add(lines.start * line), ldb, lines: lines.len() }
    }
}

/// What a tile prefetches while it computes.
pub(super) trait Prefetch {
    /// Prefetches the lines of a round of `steps` steps.
    fn prefetch(&mut self, steps: usize);
}

impl<T> Prefetch for PrefetchLines<T> {
    #[inline(always)]
    fn prefetch(&mut self, _steps: usize) {
        PrefetchLines::prefetch(self);
    }
}

impl<T> Prefetch for PrefetchColumns<T> {
    #[inline(always)]
    fn prefetch(&mut self, steps: usize) {
        for line in 0..self.lines {
            // a pointer for each line and step would take the tile's registers
            let at = self.at.wrapping_byte_add(opaque(line * LINE_BYTES));
            (0..steps).for_each(|p| prefetch_ahead(at.wrapping_add(p * self.ldb)));
        }
        self.at = self.at.wrapping_add(steps * self.ldb);
    }
}

/// Elements of a cache line.
const fn line<T>() -> usize {
    LINE_BYTES / size_of::<T>()
}

/// A block of an operand that will be packed, and that tiles prefetch before: runs of elements in order.
#[derive(Clone, Copy)]
pub(crate) struct PrefetchBlock<T> {
    at: *const T,
    runs: usize,
    /// Elements from one run to the next.
    step: isize,
    /// Cache lines of a run, and those that a round prefetches.
    lines: usize,
    each: usize,
    /// Rounds of a tile.
    rounds: usize,
}

impl<T> PrefetchBlock<T> {
    /// Nothing.
    pub(crate) const NONE: PrefetchBlock<T> =
        PrefetchBlock { at: std::ptr::null(), runs: 0, step: 0, lines: 1, each: 1, rounds: 1 };

    /// `rows x cols` elements of `view`, for so many tiles of `kc` steps. Elements that are in order along neither side are not
    /// prefetched.
    pub(crate) fn new(view: View<T>, [rows, cols]: [usize; 2], tiles: usize, kc: usize) -> PrefetchBlock<T> {
        let (runs, len, step) = match view {
            View { col_stride: 1, row_stride, .. } => (rows, cols, row_stride),
            View { row_stride: 1, col_stride, .. } => (cols, rows, col_stride),
            _ => return PrefetchBlock::NONE,
        };
        let (lines, rounds) = (len.div_ceil(line::<T>()), kc / ROUND);
        if rounds == 0 || lines == 0 || tiles == 0 {
            return PrefetchBlock::NONE;
        }
        // tiles that take a column of lines: the fewer there are, the more lines each has
        let columns = (tiles / runs.div_ceil(rounds).max(1)).max(1);
        PrefetchBlock { at: view.data, runs, step, lines, each: lines.div_ceil(columns), rounds }
    }

    /// Tiles that prefetch something.
    pub(crate) fn tiles(&self) -> usize {
        self.runs.div_ceil(self.rounds) * self.lines.div_ceil(self.each)
    }

    /// What the next tile prefetches, counted from 0.
    #[inline(always)]
    pub(crate) fn part(&self, tile: usize) -> PrefetchLines<T> {
        let columns = self.lines.div_ceil(self.each);
        let (run, column) = (tile / columns * self.rounds, tile % columns);
        if run >= self.runs {
            return PrefetchLines::NONE;
        }
        let at = self.at.wrapping_offset(run as isize * self.step).wrapping_add(column * self.each * line::<T>());
        PrefetchLines { at, lines: self.each, step: self.step }
    }
}
