//! What tiles ask for while they compute: what will be read soon, and would come from memory slower than it is used.

use super::View;
use crate::pool::part_range;
use crate::simd::{LINE_BYTES, ROUND, opaque, prefetch_ahead};

/// Cache lines that a tile asks for, some in each round of its loop, since a processor takes many requests at once for as long
/// as it would wait for them.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<T> {
    /// The first line; it may be any address.
    at: *const T,
    /// Lines of a round of a tile, side by side.
    lines: usize,
    /// Elements from those of one round to those of the next.
    step: isize,
}

impl<T> Ahead<T> {
    /// Nothing.
    pub(crate) const NONE: Ahead<T> = Ahead { at: std::ptr::null(), lines: 0, step: 0 };

    /// Part `tile` of `tiles` of `len` elements, for tiles of `kc` steps of floats.
    pub(crate) fn part(at: *const T, len: usize, tile: usize, tiles: usize, kc: usize) -> Ahead<T> {
        Ahead::share(at, len, tile, tiles, kc / ROUND)
    }

    /// Part `tile` of `tiles` of `len` elements, in so many rounds.
    pub(crate) fn share(at: *const T, len: usize, tile: usize, tiles: usize, rounds: usize) -> Ahead<T> {
        let lines = len.div_ceil(line::<T>()).div_ceil(tiles * rounds.max(1));
        let step = lines * line::<T>();
        let from = tile * rounds * step;
        if from < len { Ahead { at: at.wrapping_add(from), lines, step: step as isize } } else { Ahead::NONE }
    }

    /// Asks for the lines of a round.
    #[inline(always)]
    pub(crate) fn ask(&mut self) {
        if self.lines > 0 {
            prefetch_ahead(self.at);
            for i in 1..self.lines {
                prefetch_ahead(self.at.wrapping_add(i * line::<T>()));
            }
            self.at = self.at.wrapping_offset(self.step);
        }
    }
}

/// As [`Ahead`], of a B that is not packed: some lines of each row. A row lies where no processor looks ahead.
#[derive(Clone, Copy)]
pub(crate) struct ColumnsAhead<T> {
    /// The first line of the first row; it may be any address.
    at: *const T,
    /// Elements from a row to the next.
    ldb: usize,
    /// Lines of a row.
    lines: usize,
}

impl<T> ColumnsAhead<T> {
    /// Part `tile` of `tiles` of `columns` columns at `b`.
    pub(crate) fn part(b: *const T, ldb: usize, columns: usize, tile: usize, tiles: usize) -> ColumnsAhead<T> {
        let line = LINE_BYTES / size_of::<T>();
        let lines = part_range(columns.div_ceil(line), tiles, tile);
        ColumnsAhead { at: b.wrapping_add(lines.start * line), ldb, lines: lines.len() }
    }
}

/// What a tile asks for while it computes.
pub(super) trait Asks {
    /// Asks for the lines of a round of `steps` steps.
    fn ask(&mut self, steps: usize);
}

impl<T> Asks for Ahead<T> {
    #[inline(always)]
    fn ask(&mut self, _steps: usize) {
        Ahead::ask(self);
    }
}

impl<T> Asks for ColumnsAhead<T> {
    #[inline(always)]
    fn ask(&mut self, steps: usize) {
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

/// A block of an operand that will be packed, and that tiles ask for before: runs of elements in order.
#[derive(Clone, Copy)]
pub(crate) struct Next<T> {
    at: *const T,
    runs: usize,
    /// Elements from one run to the next.
    step: isize,
    /// Cache lines of a run, and those that a round asks for.
    lines: usize,
    each: usize,
    /// Rounds of a tile.
    rounds: usize,
}

impl<T> Next<T> {
    /// Nothing.
    pub(crate) const NONE: Next<T> = Next { at: std::ptr::null(), runs: 0, step: 0, lines: 1, each: 1, rounds: 1 };

    /// `rows x cols` elements of `view`, for so many tiles of `kc` steps. Elements that are in order along neither side are not
    /// asked for.
    pub(crate) fn new(view: View<T>, [rows, cols]: [usize; 2], tiles: usize, kc: usize) -> Next<T> {
        let (runs, len, step) = match view {
            View { col_stride: 1, row_stride, .. } => (rows, cols, row_stride),
            View { row_stride: 1, col_stride, .. } => (cols, rows, col_stride),
            _ => return Next::NONE,
        };
        let (lines, rounds) = (len.div_ceil(line::<T>()), kc / ROUND);
        if rounds == 0 || lines == 0 || tiles == 0 {
            return Next::NONE;
        }
        // tiles that take a column of lines: the fewer there are, the more lines each has
        let columns = (tiles / runs.div_ceil(rounds).max(1)).max(1);
        Next { at: view.data, runs, step, lines, each: lines.div_ceil(columns), rounds }
    }

    /// Tiles that ask for something.
    pub(crate) fn tiles(&self) -> usize {
        self.runs.div_ceil(self.rounds) * self.lines.div_ceil(self.each)
    }

    /// What the next tile asks for, counted from 0.
    #[inline(always)]
    pub(crate) fn part(&self, tile: usize) -> Ahead<T> {
        let columns = self.lines.div_ceil(self.each);
        let (run, column) = (tile / columns * self.rounds, tile % columns);
        if run >= self.runs {
            return Ahead::NONE;
        }
        let at = self.at.wrapping_offset(run as isize * self.step).wrapping_add(column * self.each * line::<T>());
        Ahead { at, lines: self.each, step: self.step }
    }
}
