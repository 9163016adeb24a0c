//! Strided copies: elements that a layout selects, brought into row-major order.
//!
//! A [`Walk`] is a layout with axes merged where they step uniformly, so that a permuted, broadcast or sliced tensor is
//! read in the longest runs it has. Reads start at any row-major position: a copy can be cut by position alone.

use std::ops::Range;

use remat_types::{Layout, SmallVec};

use crate::pool::Pool;
#[cfg(target_arch = "x86_64")]
use crate::prefetch::prefetch;
#[cfg(target_arch = "x86_64")]
use crate::transpose::squares::{SIDE as SQUARE, square};

/// Elements from which a copy or a pointwise kernel uses more than one thread. Below it, the hand-over to a second
/// thread (about half a microsecond, more if it sleeps) costs more than the second core gives.
pub const PARALLEL_MIN_ELEMS: usize = 64 * 1024;

/// Elements of one part of a parallel copy: small enough to even out two cores, large enough to hide the claim.
pub const PART_ELEMS: usize = 16 * 1024;

/// A layout made ready for reading in row-major order.
#[derive(Clone, Debug)]
pub struct Walk {
    /// (extent, stride) of the merged axes, outermost first; never empty.
    axes: SmallVec<[(usize, isize); 6]>,
    offset: usize,
}

impl Walk {
    /// Merges the axes of `layout`.
    pub fn new(layout: &Layout) -> Walk {
        let mut axes: SmallVec<[(usize, isize); 6]> = SmallVec::new();
        for (&d, &s) in layout.shape().iter().zip(layout.strides()) {
            match axes.last_mut() {
                _ if d == 1 => {}
                Some((od, os)) if *os == s * d as isize => (*od, *os) = (*od * d, s),
                _ => axes.push((d, s)),
            }
        }
        if axes.is_empty() {
            axes.push((1, 1));
        }
        Walk { axes, offset: layout.offset() }
    }

    /// True if every position reads the same element.
    pub fn is_uniform(&self) -> bool {
        self.axes.iter().all(|&(d, s)| s == 0 || d == 1)
    }

    /// Writes the elements at row-major positions `start .. start + out.len()` to `out`.
    ///
    /// # Panics
    /// If the layout leaves `data`; its owner checks `Layout::fits`.
    pub fn read<T: Copy>(&self, data: &[T], start: usize, out: &mut [T]) {
        self.runs(start, out.len(), |at, step, range| read_run(data, at, step, &mut out[range]));
    }

    /// Where the elements at row-major positions `start .. start + len` begin, if they lie side by side.
    pub fn run_at(&self, start: usize, len: usize) -> Option<usize> {
        let (&(inner, step), outer) = self.axes.split_last().expect("a walk has an axis");
        let (mut rest, k) = (start / inner.max(1), start % inner.max(1));
        if step != 1 || k + len > inner {
            return None;
        }
        let mut at = (self.offset + k) as isize;
        for &(d, s) in outer.iter().rev() {
            at += (rest % d) as isize * s;
            rest /= d;
        }
        Some(at as usize)
    }

    /// Writes `x` to the elements at row-major positions `start .. start + x.len()`, which are all different.
    ///
    /// # Panics
    /// If the layout leaves `data`.
    pub fn write<T: Copy>(&self, data: &mut [T], start: usize, x: &[T]) {
        self.runs(start, x.len(), |at, step, range| write_run(data, at, step, &x[range]));
    }

    /// Calls `f(first element, step, positions from start)` for the runs of `len` positions from `start` on.
    pub(crate) fn runs(&self, start: usize, len: usize, mut f: impl FnMut(isize, isize, Range<usize>)) {
        if len == 0 {
            return;
        }
        let (&(inner, step), outer) = self.axes.split_last().expect("a walk has an axis");
        let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer.len());
        let mut at = self.offset as isize;
        let (mut rest, mut k) = (start / inner, start % inner);
        for (i, &(d, s)) in outer.iter().enumerate().rev() {
            index[i] = rest % d;
            rest /= d;
            at += index[i] as isize * s;
        }
        let mut done = 0;
        loop {
            let run = (inner - k).min(len - done);
            f(at + k as isize * step, step, done..done + run);
            done += run;
            if done == len {
                return;
            }
            k = 0;
            for (i, &(d, s)) in outer.iter().enumerate().rev() {
                index[i] += 1;
                at += s;
                if index[i] < d {
                    break;
                }
                at -= s * d as isize;
                index[i] = 0;
            }
        }
    }
}

pub(crate) fn read_run<T: Copy>(data: &[T], at: isize, step: isize, out: &mut [T]) {
    match step {
        1 => out.copy_from_slice(&data[at as usize..at as usize + out.len()]),
        0 => out.fill(data[at as usize]),
        _ => {
            let mut at = at;
            for v in out {
                *v = data[at as usize];
                at += step;
            }
        }
    }
}

fn write_run<T: Copy>(data: &mut [T], at: isize, step: isize, x: &[T]) {
    if step == 1 {
        data[at as usize..at as usize + x.len()].copy_from_slice(x);
        return;
    }
    let mut at = at;
    for v in x {
        data[at as usize] = *v;
        at += step;
    }
}

/// The element of `y` that `layout` selects at row-major position `i` becomes `x[i]`; the others stay.
///
/// On one thread: the targets of two parts may interleave, and a plain copy keeps the memory busy by itself.
///
/// # Panics
/// If the layout leaves `y`, or has another number of elements than `x`.
pub fn scatter<T: Copy>(x: &[T], layout: &Layout, y: &mut [T]) {
    assert_eq!(x.len(), layout.elems(), "one element for each target");
    Walk::new(layout).write(y, 0, x);
}

/// `y[i]` = the element at row-major position `i` of `layout` in `data`.
///
/// # Panics
/// If the layout leaves `data`.
pub fn copy<T: Copy + Send + Sync>(pool: &Pool, data: &[T], layout: &Layout, y: &mut [T]) {
    let walk = Walk::new(layout);
    if let Some(transpose) = Transpose::of(&walk) {
        return transpose.copy(pool, data, &walk, y);
    }
    let parallel = y.len() >= PARALLEL_MIN_ELEMS;
    chunks(pool, parallel, y, PART_ELEMS, |i, part| walk.read(data, i * PART_ELEMS, part));
}

/// Calls `f(i, chunk)` for the chunks of `y`, in parallel if asked for.
pub(crate) fn chunks<U: Send>(
    pool: &Pool,
    parallel: bool,
    y: &mut [U],
    len: usize,
    f: impl Fn(usize, &mut [U]) + Sync,
) {
    if parallel {
        pool.chunks_mut(y, len, f);
    } else {
        y.chunks_mut(len).enumerate().for_each(|(i, y)| f(i, y));
    }
}

/// Rows and columns of a block. A block uses the whole of each cache line of four-byte elements that it reads or writes.
const BLOCK: usize = 16;

/// Rows of a tile one block wide: they are read in runs of 4 KiB, a page. For four-byte elements: 64 KiB on either side.
const TALL: usize = 1024;

/// Columns of a tile one block high, written in runs of 1 KiB.
const LONG: usize = 256;

/// A step of the copy's rows, in bytes, whose multiples fall on few sets of a cache. Tiles are then long, not tall.
const FEW_SETS_BYTES: usize = 1024;

/// Parts of a parallel copy of one matrix for each thread: few, since they are read in shorter runs.
const BANDS: usize = 2;

/// The two innermost merged axes of a walk that reads down columns: neighbours in memory are a row apart in the copy.
struct Transpose {
    rows: usize,
    columns: usize,
    column_step: isize,
}

impl Transpose {
    fn of(walk: &Walk) -> Option<Transpose> {
        match walk.axes[..] {
            [.., (rows, 1), (columns, column_step)] if column_step.unsigned_abs() > 1 && rows > 1 => {
                Some(Transpose { rows, columns, column_step })
            }
            _ => None,
        }
    }

    /// Copies matrix by matrix; a large one in bands of rows, if there is more than one thread.
    fn copy<T: Copy + Send + Sync>(&self, pool: &Pool, data: &[T], walk: &Walk, y: &mut [T]) {
        let matrix = self.rows * self.columns;
        if matrix == 0 {
            return;
        }
        let parallel = y.len() >= PARALLEL_MIN_ELEMS && pool.threads() > 1;
        let many = y.len() / matrix >= 4;
        let bands = if parallel && !many { BANDS * pool.threads() } else { 1 };
        let band = self.rows.div_ceil(bands).next_multiple_of(BLOCK);
        chunks(pool, parallel && many, y, matrix, |i, y| {
            let mut base = 0;
            walk.runs(i * matrix, 1, |at, _, _| base = at);
            chunks(pool, parallel && !many, y, band * self.columns, |i, y| {
                self.copy_band(data, base + (i * band) as isize, y);
            });
        });
    }

    /// Copies rows in tiles. The first row begins at element `base`.
    ///
    /// A tile is tall and narrow, so that it is read in long runs, each cache line of the copy written at once. Where the
    /// rows of the copy would fall on few sets of a cache, that is what cannot be, and the runs are those of the copy.
    fn copy_band<T: Copy>(&self, data: &[T], base: isize, y: &mut [T]) {
        let rows = y.len() / self.columns;
        let few_sets = (self.columns * size_of::<T>()).is_multiple_of(FEW_SETS_BYTES);
        let (height, width) = if few_sets { (BLOCK, LONG) } else { (TALL, BLOCK) };
        let pieces = |n: usize, len: usize| (0..n).step_by(len).map(move |i| i..(i + len).min(n));
        if few_sets {
            for columns in pieces(self.columns, width) {
                pieces(rows, height).for_each(|rows| self.copy_tile(data, base, rows, columns.clone(), y));
            }
        } else {
            for rows in pieces(rows, height) {
                pieces(self.columns, width).for_each(|columns| self.copy_tile(data, base, rows.clone(), columns, y));
            }
        }
    }

    /// Copies a tile: squares through vectors, what is left column by column.
    fn copy_tile<T: Copy>(&self, data: &[T], base: isize, rows: Range<usize>, columns: Range<usize>, y: &mut [T]) {
        let done = self.copy_squares(data, base, rows.clone(), columns.clone(), y);
        for column in columns {
            let from = if column < done.end { done.start } else { rows.start };
            let at = base + column as isize * self.column_step;
            let x = &data[(at + from as isize) as usize..(at + rows.end as isize) as usize];
            for (row, &v) in (from..rows.end).zip(x) {
                y[row * self.columns + column] = v;
            }
        }
    }

    /// Copies squares of four-byte elements of a tile through vectors, block by block: the rows below `start` of the columns
    /// below `end` are done.
    fn copy_squares<T: Copy>(
        &self,
        data: &[T],
        base: isize,
        rows: Range<usize>,
        columns: Range<usize>,
        y: &mut [T],
    ) -> Range<usize> {
        #[cfg(target_arch = "x86_64")]
        if size_of::<T>() == 4 && is_x86_feature_detected!("avx2") {
            let whole = |range: &Range<usize>| range.start..range.start + range.len() / SQUARE * SQUARE;
            let (whole_rows, whole_columns) = (whole(&rows), whole(&columns));
            let tall = rows.len() > BLOCK;
            for column in whole_columns.clone().step_by(BLOCK) {
                for row in whole_rows.clone().step_by(BLOCK) {
                    if tall {
                        self.prefetch_block(data, base, row, column, y);
                    }
                    for row in (row..(row + BLOCK).min(whole_rows.end)).step_by(SQUARE) {
                        for column in (column..(column + BLOCK).min(whole_columns.end)).step_by(SQUARE) {
                            self.copy_square(data, base, row, column, y);
                        }
                    }
                }
            }
            return whole_rows.end..whole_columns.end;
        }
        let _ = (data, base, y);
        rows.start..columns.start
    }

    /// Prefetches the lines of the block to the right of the one at `(row, column)`, in the next tile: each lies in a page of
    /// its own, where no processor looks ahead.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn prefetch_block<T>(&self, data: &[T], base: isize, row: usize, column: usize, y: &[T]) {
        let column = column + BLOCK;
        let from = data.as_ptr().wrapping_offset(base + column as isize * self.column_step + row as isize);
        let to = y.as_ptr().wrapping_add(row * self.columns + column);
        for i in 0..BLOCK {
            prefetch(from.wrapping_offset(i as isize * self.column_step));
            prefetch(to.wrapping_add(i * self.columns));
        }
    }

    /// Copies the square whose first element is `(row, column)`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn copy_square<T: Copy>(&self, data: &[T], base: isize, row: usize, column: usize, y: &mut [T]) {
        let at = |i: usize| (base + (column + i) as isize * self.column_step) as usize + row;
        // the column that lies lowest and the one that lies highest, whichever they are
        let ends = [at(0), at(SQUARE - 1)].map(|at| data[at..at + SQUARE].as_ptr());
        let to = y[row * self.columns + column..(row + SQUARE - 1) * self.columns + column + SQUARE].as_mut_ptr();
        // SAFETY: the first and the last of eight columns at equal steps lie in `data`, so all do; the rows of the square lie
        // in `y` from its first to its last element; the caller has found AVX2 and elements of four bytes.
        unsafe { square(ends[0].cast(), self.column_step, SQUARE, to.cast(), self.columns) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(layout: &Layout, data: &[u32], pool: &Pool) {
        let want: Vec<u32> = layout.indices().map(|i| data[i]).collect();
        let mut y = vec![0; want.len()];
        copy(pool, data, layout, &mut y);
        assert_eq!(y, want, "{layout:?}");
        let walk = Walk::new(layout);
        for start in 0..want.len().min(40) {
            let mut part = vec![0; (want.len() - start).min(7)];
            walk.read(data, start, &mut part);
            assert_eq!(part, want[start..start + part.len()], "{layout:?} from {start}");
            for part in [1, 3, 7].map(|len| &part[..part.len().min(len)]) {
                match walk.run_at(start, part.len()) {
                    Some(at) => assert_eq!(part, &data[at..at + part.len()], "{layout:?} from {start}"),
                    // one element lies beside itself, unless the axis that moves fastest has a step
                    None => {
                        assert!(part.len() > 1 || walk.axes.last().is_some_and(|&(_, step)| step != 1), "{layout:?}")
                    }
                }
            }
        }
        if layout.is_contiguous() && !want.is_empty() {
            assert_eq!(walk.run_at(0, want.len()), Some(layout.offset()), "{layout:?}");
        }
    }

    #[test]
    fn a_walk_reads_what_the_layout_selects_from_any_position() {
        let data: Vec<u32> = (0..2 * 3 * 4 * 5).collect();
        let whole = Layout::contiguous([2, 3, 4, 5]);
        let pool = Pool::new(2);
        check(&whole, &data, &pool);
        check(&whole.permute(&[3, 1, 0, 2]).expect("permutation"), &data, &pool);
        check(&whole.slice(2, 3, 2, -2).expect("inside"), &data, &pool);
        check(&whole.slice(0, 1, 0, 1).expect("empty"), &data, &pool);
        let one = Layout::new([1, 3, 1], &[9, 5, 0], 2).expect("rank 3");
        check(&one.broadcast_to(&[2, 3, 4].into()).expect("broadcasts"), &data, &pool);
        check(&Layout::contiguous([]), &data, &pool);
    }

    #[test]
    fn scatter_undoes_what_copy_selects() {
        let layout = Layout::contiguous([4, 5]).slice(0, 3, 2, -2).expect("inside").slice(1, 1, 3, 1).expect("inside");
        let x: Vec<u32> = (1..=6).collect();
        let mut y = vec![0; 20];
        scatter(&x, &layout, &mut y);
        let mut back = vec![0; 6];
        copy(&Pool::new(1), &y, &layout, &mut back);
        assert_eq!(back, x);
        assert_eq!(y.iter().filter(|v| **v != 0).count(), 6);
    }

    #[test]
    fn transposes_in_a_batch_are_copied_right() {
        for (n, r, c) in [(5, 70, 65), (2, 33, 31), (1, 3, 200)] {
            let data: Vec<u32> = (0..(n * r * c) as u32).collect();
            let layout = Layout::contiguous([n, c, r]).permute(&[0, 2, 1]).expect("permutation");
            check(&layout, &data, &Pool::new(2));
            check(&layout.slice(2, c - 1, c, -1).expect("inside"), &data, &Pool::new(2));
        }
    }

    #[test]
    fn tiles_of_a_transpose_cover_any_rows_and_columns() {
        // tall tiles and long ones, each with rests of rows and of columns
        for (r, c) in
            [(1, 40), (7, 9), (8, 8), (15, 33), (1041, 17), (1063, 24), (2100, 9), (45, 256), (39, 768), (3, 512)]
        {
            let data: Vec<u32> = (0..((r + 3) * c) as u32).collect();
            let layout = Layout::contiguous([c, r + 3]).permute(&[1, 0]).expect("permutation");
            let layout = layout.slice(0, 2, r, 1).expect("inside");
            for threads in [1, 2] {
                check(&layout, &data, &Pool::new(threads));
                check(&layout.slice(1, c - 1, c, -1).expect("inside"), &data, &Pool::new(threads));
            }
            let wide: Vec<u64> = data.iter().map(|&v| v.into()).collect();
            let mut y = vec![0; r * c];
            copy(&Pool::new(1), &wide, &layout, &mut y);
            assert!(layout.indices().map(|i| wide[i]).eq(y), "{r} x {c} of eight bytes");
        }
    }

    #[test]
    fn a_large_transpose_is_the_same_on_any_number_of_threads() {
        let data: Vec<u32> = (0..300 * 301).collect();
        let layout = Layout::contiguous([300, 301]).permute(&[1, 0]).expect("permutation");
        check(&layout, &data, &Pool::new(1));
        check(&layout, &data, &Pool::new(3));
    }
}
