//! Packing: blocks of A and B copied into the order in which the micro-kernel reads them.
//!
//! Packing takes any strides, so transposed and broadcast operands cost no copy of their own.

use super::View;
use crate::pool::part_range;
use crate::prefetch::{prefetch, prefetch_run};
use crate::simd::wide;
use crate::transpose::{copy_rows, move_short, transpose_into};
use std::ops::Range;

/// Packs `rows` x `kc` elements of A as row panels: panel `i` holds rows `part_range(rows, panels, i)` as `[kc][mr_i]`.
/// Panels are nearly equal, so that no tile is left with one or two rows and too few sums to hide the latency.
///
/// # Safety
/// `a` is readable at every `(i, p)` with `i < rows`, `p < kc`.
pub(crate) unsafe fn pack_a<T: Copy + Default>(a: View<T>, rows: usize, kc: usize, mr: usize, out: &mut [T]) {
    let panels = rows.div_ceil(mr);
    if a.row_stride == 1 && a.col_stride != 1 {
        for first in (0..panels).step_by(PANELS_OF_A) {
            let some: [_; PANELS_OF_A] = std::array::from_fn(|i| part_range(rows, panels, (first + i).min(panels - 1)));
            // SAFETY: rows of these panels are below `rows`.
            wide(|| unsafe { copy_panels(a.t(), kc, &some[..PANELS_OF_A.min(panels - first)], out) });
        }
        return;
    }
    for panel in 0..panels {
        let range = part_range(rows, panels, panel);
        let width = range.len();
        let out = &mut out[range.start * kc..range.end * kc];
        // SAFETY: the panel's rows are below `rows`.
        unsafe { transpose_into(a.at(range.start, 0), a.row_stride, a.col_stride, width, kc, width, out) };
    }
}

/// Panels of an A with contiguous columns that are copied at a time: a column is then read for some cache lines.
const PANELS_OF_A: usize = 8;

/// Packs `kc` x `cols` elements of B as column panels `[kc][width]` of `nr` columns; the last panel's width is rounded up
/// to whole vectors of `lanes`, and filled with zeros.
///
/// # Safety
/// `b` is readable at every `(p, j)` with `p < kc`, `j < cols`.
pub(crate) unsafe fn pack_b<T: Copy + Default>(
    b: View<T>,
    kc: usize,
    cols: usize,
    nr: usize,
    lanes: usize,
    out: &mut [T],
) {
    let mut start = 0;
    if b.col_stride == 1 {
        start = cols / nr * nr;
        for first in (0..start).step_by(PANELS * nr) {
            let some: [_; PANELS] = std::array::from_fn(|i| first + i * nr..first + (i + 1) * nr);
            // SAFETY: columns of whole panels.
            wide(|| unsafe {
                match (start - first) / nr {
                    1 => copy_panel(b, kc, first..start, out),
                    left => copy_panels(b, kc, &some[..PANELS.min(left)], out),
                }
            });
        }
    }
    while start < cols {
        let valid = nr.min(cols - start);
        let width = valid.next_multiple_of(lanes);
        let out = &mut out[start * kc..][..width * kc];
        // SAFETY: columns `start .. start + valid` are below `cols`.
        unsafe {
            let src = b.at(0, start);
            if b.col_stride == 1 {
                copy_rows(src, b.row_stride, kc, valid, width, out);
            } else {
                transpose_into(src, b.col_stride, b.row_stride, valid, kc, width, out);
            }
        }
        start += nr;
    }
}

/// Panels of B that are copied at a time: a row is then read for some cache lines, and what is written to, one line of each
/// panel, stays in a first cache of 8 ways although panels lie a power of two apart.
const PANELS: usize = 4;
/// Rows from the one that is read to the one that is prefetched: a row of a large matrix lies in a page of its own, where no
/// processor looks ahead.
const ROWS_AHEAD: usize = 8;

/// Copies `kc` rows of some panels of columns, each to its place in `out`: behind the columns before it.
///
/// # Safety
/// `b` has contiguous rows and is readable for `kc` of them and all of these columns.
#[inline(always)]
unsafe fn copy_panels<T: Copy>(b: View<T>, kc: usize, panels: &[Range<usize>], out: &mut [T]) {
    assert!(panels.iter().all(|columns| columns.end * kc <= out.len()));
    for p in 0..kc {
        for columns in panels {
            prefetch(b.at(p + ROWS_AHEAD, columns.start));
            let to = columns.start * kc + p * columns.len();
            // SAFETY: columns of row `p`; row `p` of a panel that lies in `out`.
            unsafe { move_short(b.at(p, columns.start), out.as_mut_ptr().add(to), columns.len()) };
        }
    }
}

/// Copies `kc` rows of one panel, as [`copy_panels`]. They are too short for a processor to look ahead in: each line is prefetched.
///
/// # Safety
/// As [`copy_panels`].
#[inline(always)]
unsafe fn copy_panel<T: Copy>(b: View<T>, kc: usize, columns: Range<usize>, out: &mut [T]) {
    for (p, row) in out[columns.start * kc..columns.end * kc].chunks_exact_mut(columns.len()).enumerate() {
        prefetch_run(b.at(p + ROWS_AHEAD, columns.start), columns.len());
        // SAFETY: columns of row `p`.
        unsafe { move_short(b.at(p, columns.start), row.as_mut_ptr(), row.len()) };
    }
}
