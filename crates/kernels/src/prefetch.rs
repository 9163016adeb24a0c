//! Prefetching: cache lines that are brought near before they are read, or written.
//!
//! A processor looks ahead by itself within a page, along a few streams. What lies in short rows far apart, or in the next page,
//! it does not foresee, so kernels name it while they compute. A prefetch never faults, may name any address, and changes no
//! result. There are four shapes:
//!
//! * lines, and runs of elements that lie side by side: [`prefetch`], [`prefetch_run`] and what is made of them, for loops that
//!   walk their arrays once or that know the next row;
//! * [`PrefetchLines`]: some lines in each round of a tile's loop, as a processor takes many requests at once for as long as it
//!   would wait for them. [`PrefetchBlock`] cuts a block of an operand into such parts for the tiles before it;
//! * [`PrefetchColumns`]: the same of a few lines in each of many rows, whose loop is another, as a pointer for each line and step
//!   would take the tile's registers;
//! * [`PrefetchRows`]: the rows of whole matrices, line by line at the pace of their user, between tiles that have no register
//!   left.
//!
//! Which distance and which pace pay is said where they are used.

use crate::pool::part_range;
use crate::simd::{LINE_BYTES, ROUND, opaque};

/// Bytes from where a kernel that walks its arrays once works to what it prefetches. Within 1 and 4 KiB all is much the same.
pub(crate) const AHEAD_BYTES: usize = 2 << 10;

/// The same for kernels that walk a row several times: two rows of 768 f32. Only the first walk is bound by the memory, so they
/// prefetch in a walk that computes: less far, softmax took 1.1 to 1.3 times as long.
const ROW_AHEAD_BYTES: usize = 6 << 10;

/// Elements of a cache line.
const fn line<T>() -> usize {
    LINE_BYTES / size_of::<T>()
}

/// Brings the cache line of `p` into all caches.
#[inline(always)]
pub(crate) fn prefetch<T>(p: *const T) {
    hint::<3, T>(p);
}

/// Brings the cache line of `p` into the caches behind the first one.
#[inline(always)]
pub(crate) fn prefetch_l2<T>(p: *const T) {
    hint::<2, T>(p);
}

/// The hints are those of x86-64: 3 for all caches, 2 for those behind the first.
#[inline(always)]
fn hint<const HINT: i32, T>(p: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, and every processor of this architecture has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<HINT>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// [`prefetch`] of `len` elements at `p`.
#[inline(always)]
pub(crate) fn prefetch_run<T>(p: *const T, len: usize) {
    (0..len).step_by(line::<T>()).for_each(|at| prefetch(p.wrapping_add(at)));
}

/// [`prefetch_l2`] of `len` elements at `p`.
#[inline(always)]
pub(crate) fn prefetch_run_l2<T>(p: *const T, len: usize) {
    (0..len).step_by(line::<T>()).for_each(|at| prefetch_l2(p.wrapping_add(at)));
}

/// [`prefetch`] of the line that lies `BYTES` beyond `p`. A loop that does so for each line that it reads has the memory fetch
/// while it computes, also past the end of a page.
#[inline(always)]
pub(crate) fn prefetch_beyond<const BYTES: usize, T>(p: *const T) {
    prefetch(p.wrapping_byte_add(BYTES));
}

/// [`prefetch_beyond`] by the distance for rows that are walked several times.
#[inline(always)]
pub(crate) fn prefetch_row_beyond<T>(p: *const T) {
    prefetch_beyond::<ROW_AHEAD_BYTES, T>(p);
}

/// [`prefetch_l2`] of the line that lies `bytes` beyond `p`.
#[inline(always)]
pub(crate) fn prefetch_l2_beyond<T>(p: *const T, bytes: isize) {
    prefetch_l2(p.wrapping_byte_offset(bytes));
}

/// The lines that a tile prefetches while it computes.
pub(crate) trait PrefetchRound {
    /// Prefetches the lines of a round of `steps` steps.
    fn round(&mut self, steps: usize);
}

/// Cache lines that a tile prefetches, some in each round of its loop.
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
            prefetch_l2(self.at);
            for i in 1..self.lines {
                prefetch_l2(self.at.wrapping_add(i * line::<T>()));
            }
            self.at = self.at.wrapping_offset(self.step);
        }
    }
}

impl<T> PrefetchRound for PrefetchLines<T> {
    #[inline(always)]
    fn round(&mut self, _steps: usize) {
        self.prefetch();
    }
}

/// Of a B that is not packed, some lines of each row.
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
        let lines = part_range(columns.div_ceil(line::<T>()), tiles, tile);
        PrefetchColumns { at: b.wrapping_add(lines.start * line::<T>()), ldb, lines: lines.len() }
    }
}

impl<T> PrefetchRound for PrefetchColumns<T> {
    #[inline(always)]
    fn round(&mut self, steps: usize) {
        for line in 0..self.lines {
            // a pointer for each line and step would take the tile's registers
            let at = self.at.wrapping_byte_add(opaque(line * LINE_BYTES));
            (0..steps).for_each(|p| prefetch_l2(at.wrapping_add(p * self.ldb)));
        }
        self.at = self.at.wrapping_add(steps * self.ldb);
    }
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
    const NONE: PrefetchBlock<T> =
        PrefetchBlock { at: std::ptr::null(), runs: 0, step: 0, lines: 1, each: 1, rounds: 1 };

    /// `rows x cols` elements of the matrix with these strides at `at`, for so many tiles of `kc` steps. Elements that are in
    /// order along neither side are left out.
    pub(crate) fn new(
        at: *const T,
        [row_stride, col_stride]: [isize; 2],
        [rows, cols]: [usize; 2],
        tiles: usize,
        kc: usize,
    ) -> PrefetchBlock<T> {
        let (runs, len, step) = match (row_stride, col_stride) {
            (_, 1) => (rows, cols, row_stride),
            (1, _) => (cols, rows, col_stride),
            _ => return PrefetchBlock::NONE,
        };
        let (lines, rounds) = (len.div_ceil(line::<T>()), kc / ROUND);
        if rounds == 0 || lines == 0 || tiles == 0 {
            return PrefetchBlock::NONE;
        }
        // tiles that take a column of lines: the fewer there are, the more lines each has
        let columns = (tiles / runs.div_ceil(rounds).max(1)).max(1);
        PrefetchBlock { at, runs, step, lines, each: lines.div_ceil(columns), rounds }
    }

    /// Tiles that prefetch something.
    pub(crate) fn tiles(&self) -> usize {
        self.runs.div_ceil(self.rounds) * self.lines.div_ceil(self.each)
    }

    /// The lines that this tile prefetches; tiles count from 0.
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

/// Most matrices of a [`PrefetchRows`]: what the backward pass of an attention's head reads and writes.
const MATRICES: usize = 7;

/// The cache lines of the rows of some matrices, in order.
pub(crate) struct PrefetchRows {
    matrices: [Matrix; MATRICES],
    len: usize,
    /// Bytes that may still be added.
    bytes_left: usize,
    /// The matrix, its row, and the line of that row that is next.
    at: [usize; 3],
}

#[derive(Clone, Copy, Default)]
struct Matrix {
    /// Where the first row begins: an address that is never read.
    first: usize,
    /// Bytes from row to row.
    step: isize,
    rows: usize,
    /// Bytes of a row.
    bytes: usize,
}

impl PrefetchRows {
    /// No rows yet; those of a matrix with which all would take more than so many bytes are left out.
    pub(crate) fn within(most_bytes: usize) -> Self {
        PrefetchRows { matrices: [Matrix::default(); MATRICES], len: 0, bytes_left: most_bytes, at: [0; 3] }
    }

    /// Adds `rows` rows of `cols` elements, the first one at `first`, each `step` elements after the one before.
    pub(crate) fn push<T>(&mut self, first: *const T, step: isize, rows: usize, cols: usize) {
        let bytes = cols * size_of::<T>();
        if rows * bytes > 0 && rows * bytes <= self.bytes_left {
            let step = step * size_of::<T>() as isize;
            self.matrices[self.len] = Matrix { first: first.addr(), step, rows, bytes };
            (self.len, self.bytes_left) = (self.len + 1, self.bytes_left - rows * bytes);
        }
    }

    /// Lines of all rows, at most.
    pub(crate) fn most_lines(&self) -> usize {
        self.matrices.iter().map(|m| m.rows * (m.bytes.div_ceil(LINE_BYTES) + 1)).sum()
    }

    /// Prefetches the next line, if any is left.
    #[inline(always)]
    pub(crate) fn next_line(&mut self) {
        if let Some(line) = self.next() {
            prefetch_l2(std::ptr::without_provenance::<u8>(line));
        }
    }

    /// Prefetches the next lines.
    #[inline(always)]
    pub(crate) fn next_lines(&mut self, lines: usize) {
        (0..lines).for_each(|_| self.next_line());
    }

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let [matrix, row, line] = &mut self.at;
        if *matrix == self.len {
            return None;
        }
        let Matrix { first, step, rows, bytes } = self.matrices[*matrix];
        let begin = first.wrapping_add_signed(*row as isize * step);
        let next = (begin & !(LINE_BYTES - 1)) + *line * LINE_BYTES;
        *line += 1;
        if next + LINE_BYTES >= begin + bytes {
            (*line, *row) = (0, *row + 1);
            if *row == rows {
                (*row, *matrix) = (0, *matrix + 1);
            }
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_each_row_is_prefetched_once() {
        let data = [0f32; 4096];
        let mut rows = PrefetchRows::within(4096);
        rows.push(data[1967..].as_ptr(), 300, 3, 48);
        rows.push(data[7..].as_ptr(), 300, 0, 48);
        rows.push(data[7..].as_ptr(), 300, 2, 1);
        rows.push(data[7..].as_ptr(), 300, 1024, 1);
        let all = [(1967, 48), (2267, 48), (2567, 48), (7, 1), (307, 1)];
        let line = |at: usize| data[at..].as_ptr().addr() / LINE_BYTES;
        let want = all.into_iter().flat_map(|(at, cols)| (line(at)..=line(at + cols - 1)).map(|l| l * LINE_BYTES));
        assert_eq!(std::iter::from_fn(|| rows.next()).collect::<Vec<_>>(), want.collect::<Vec<_>>());
    }
}
