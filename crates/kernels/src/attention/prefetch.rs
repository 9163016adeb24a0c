//! What a task prefetches while it computes: the rows of the next head.

use super::Strided;
use super::tile::RowsMut;
use crate::float::FloatElement;
use crate::simd::{LINE_BYTES, prefetch_ahead};

/// Most matrices of a head: what the backward pass reads and writes.
const MATRICES: usize = 7;

/// Steps of a tile for each line that it prefetches. With 8 not all is there when the next head begins, and 2 hold up what a
/// tile loads itself: with either the passes gain half as much or less.
const STEPS_PER_LINE: usize = 4;

/// Most that is prefetched: more would push out what the present head works with.
const MOST_BYTES: usize = 1 << 20;

/// Cache lines of the rows of a head. Such a row is short and far from the next, so that no processor looks ahead: a head
/// that was not prefetched waits for memory at each of its rows, and takes 1.2 of the time.
#[derive(Default)]
pub(super) struct PrefetchRows {
    matrices: [Matrix; MATRICES],
    len: usize,
    /// Bytes of all.
    bytes: usize,
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
    /// Adds rows `0..rows` of image `n` and head `h`, `cols` elements each. Elements that are not side by side are left out.
    pub(super) fn read<T>(&mut self, x: &Strided<'_, T>, [n, h]: [usize; 2], rows: usize, cols: usize) {
        let [sn, st, sh, sd] = x.strides;
        if sd == 1 {
            let first = n as isize * sn + h as isize * sh;
            self.push(x.data.as_ptr().wrapping_add(x.offset).wrapping_offset(first), st, rows, cols);
        }
    }

    /// The same of rows that will be written: a cache reads a line before it writes to it.
    pub(super) fn write<T: FloatElement>(&mut self, y: &RowsMut<'_, T>, at: [usize; 2], rows: usize, cols: usize) {
        let (first, step) = y.place(at);
        self.push(first, step, rows, cols);
    }

    fn push<T>(&mut self, first: *const T, step: isize, rows: usize, cols: usize) {
        let bytes = cols * size_of::<T>();
        if rows * bytes > 0 && rows * bytes <= MOST_BYTES - self.bytes {
            let step = step * size_of::<T>() as isize;
            self.matrices[self.len] = Matrix { first: first.addr(), step, rows, bytes };
            (self.len, self.bytes) = (self.len + 1, self.bytes + rows * bytes);
        }
    }

    /// Prefetches the share of a tile of so many steps.
    #[inline(always)]
    pub(super) fn prefetch_for_tile(&mut self, steps: usize) {
        (0..steps / STEPS_PER_LINE).for_each(|_| self.prefetch());
    }

    /// Prefetches the next line, if any is left.
    #[inline(always)]
    pub(super) fn prefetch(&mut self) {
        if let Some(line) = self.next() {
            prefetch_ahead(std::ptr::without_provenance::<u8>(line));
        }
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
    fn each_line_of_each_row_is_asked_for_once() {
        let data = [0f32; 4096];
        let x = Strided { data: &data, offset: 7, strides: [1000, 300, -40, 1] };
        let mut ahead = PrefetchRows::default();
        ahead.read(&x, [2, 1], 3, 48);
        ahead.read(&x, [0, 0], 0, 48);
        ahead.read(&Strided { strides: [1000, 1, 40, 3], ..x }, [0, 1], 3, 48);
        ahead.read(&x, [0, 0], 2, 1);
        ahead.read(&x, [0, 0], MOST_BYTES / 4, 1);
        let rows = [(1967, 48), (2267, 48), (2567, 48), (7, 1), (307, 1)];
        let line = |at: usize| data[at..].as_ptr().addr() / LINE_BYTES;
        let want = rows.into_iter().flat_map(|(at, cols)| (line(at)..=line(at + cols - 1)).map(|l| l * LINE_BYTES));
        assert_eq!(std::iter::from_fn(|| ahead.next()).collect::<Vec<_>>(), want.collect::<Vec<_>>());
    }
}
