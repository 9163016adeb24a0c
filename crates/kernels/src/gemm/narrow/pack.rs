//! Packing with conversion, into the panels of `super::super::pack`.
//!
//! An operand that is contiguous across its panel is converted row by row. One that is contiguous along `k` is converted
//! into a few rows on the stack, which are transposed from there; of any other stride it is first gathered.

use super::NarrowKernels;
use crate::gemm::{GemmElement, View};
use crate::pool::part_range;
use crate::prefetch::prefetch;
use crate::simd::LINE_BYTES;
use crate::transpose::transpose_into;

/// Packs `rows` x `kc` elements of A as row panels `[depth][mr_i]`, as [`crate::gemm::pack::pack_a`].
///
/// # Safety
/// `a` is readable at every `(i, p)` with `i < rows`, `p < kc`; the processor has the instruction set of `kernels`.
pub(super) unsafe fn pack_a<T: GemmElement>(
    a: View<T>,
    rows: usize,
    kc: usize,
    kernels: &NarrowKernels<T>,
    out: &mut [T::Sum],
) {
    let panels = rows.div_ceil(kernels.mr());
    let depth = kc.div_ceil(kernels.depth);
    for panel in 0..panels {
        let range = part_range(rows, panels, panel);
        let from =
            Across { src: a.at(range.start, 0), outer: a.row_stride, inner: a.col_stride, room: rows - range.start };
        // SAFETY: the panel's rows are below `rows`.
        unsafe { from.pack(range.len(), kc, range.len(), kernels, &mut out[range.start * depth..]) };
    }
}

/// Packs `kc` x `cols` elements of B as column panels `[depth][width]`, as [`crate::gemm::pack::pack_b`].
///
/// # Safety
/// `b` is readable at every `(p, j)` with `p < kc`, `j < cols`; the processor has the instruction set of `kernels`.
pub(super) unsafe fn pack_b<T: GemmElement>(
    b: View<T>,
    kc: usize,
    cols: usize,
    kernels: &NarrowKernels<T>,
    out: &mut [T::Sum],
) {
    let depth = kc.div_ceil(kernels.depth);
    if b.col_stride == 1 {
        for start in (0..cols).step_by(PANELS * kernels.nr()) {
            // SAFETY: columns from `start` on.
            unsafe { convert_panels(b.shifted(0, start), kc, cols - start, kernels, &mut out[start * depth..]) };
        }
        return;
    }
    for start in (0..cols).step_by(kernels.nr()) {
        let valid = kernels.nr().min(cols - start);
        let from = Across { src: b.at(0, start), outer: b.col_stride, inner: b.row_stride, room: cols - start };
        let width = valid.next_multiple_of(kernels.lanes);
        // SAFETY: columns `start .. start + valid` are below `cols`.
        unsafe { from.pack(valid, kc, width, kernels, &mut out[start * depth..]) };
    }
}

/// Panels of B that are converted at a time, and rows from the one that is read to the one that is prefetched, as in
/// [`crate::gemm::pack`].
const PANELS: usize = 4;
const ROWS_AHEAD: usize = 8;

/// Converts up to [`PANELS`] panels of B, a step of `k` at a time. The last panel may be narrower.
///
/// # Safety
/// As [`pack_b`], and rows of `b` are contiguous.
unsafe fn convert_panels<T: GemmElement>(
    b: View<T>,
    kc: usize,
    cols: usize,
    kernels: &NarrowKernels<T>,
    out: &mut [T::Sum],
) {
    let (nr, depth) = (kernels.nr(), kc.div_ceil(kernels.depth));
    let some = cols.min(PANELS * nr);
    for (q, p) in (0..kc).step_by(kernels.depth).enumerate() {
        let steps = kernels.depth.min(kc - p);
        for start in (0..some).step_by(nr) {
            let valid = nr.min(some - start);
            let width = valid.next_multiple_of(kernels.lanes);
            let out = &mut out[start * depth + q * width..][..width];
            for step in 0..steps {
                prefetch(b.at(p + ROWS_AHEAD + step, start));
            }
            // SAFETY: steps `p ..` of columns `start .. start + valid`, and more if there are; `width` is writable.
            unsafe {
                (kernels.across)(valid, b.at(p, start), b.row_stride, steps, width.min(cols - start), out.as_mut_ptr());
            }
            out[valid..].fill(T::Sum::default());
        }
    }
}

/// Where a panel comes from: element `i` of step `p` is `src[i * outer + p * inner]`.
struct Across<T> {
    src: *const T,
    outer: isize,
    inner: isize,
    /// Elements of each step that may be read: those of the panel and of the ones after it.
    room: usize,
}

/// Rows of the widest panel: four vectors of sixteen.
const MAX_WIDTH: usize = 64;
/// Elements along `k` that are converted at a time; with [`MAX_WIDTH`] rows 16 KiB, in the first cache.
const ALONG: usize = 64;

impl<T: GemmElement> Across<T> {
    /// Packs `kc` steps of `valid` elements at the beginning of `out`, with zeros up to `width`. What comes after may be
    /// overwritten: the panels that are packed later.
    ///
    /// # Safety
    /// Readable at those places, and up to `room` where `outer` is 1; the processor has the instruction set of `kernels`.
    unsafe fn pack(&self, valid: usize, kc: usize, width: usize, kernels: &NarrowKernels<T>, out: &mut [T::Sum]) {
        // SAFETY: same contract.
        unsafe {
            if self.outer == 1 {
                self.convert_steps(valid, kc, width, kernels, out);
            } else {
                self.convert_rows(valid, kc, width, kernels, out);
            }
        }
    }

    /// # Safety
    /// As [`Self::pack`].
    unsafe fn convert_steps(
        &self,
        valid: usize,
        kc: usize,
        width: usize,
        kernels: &NarrowKernels<T>,
        out: &mut [T::Sum],
    ) {
        for (q, p) in (0..kc).step_by(kernels.depth).enumerate() {
            let out = &mut out[q * width..];
            assert!(out.len() >= width);
            let src = self.src.wrapping_offset(p as isize * self.inner);
            let steps = kernels.depth.min(kc - p);
            // SAFETY: the steps are below `kc`; `room` is readable and, as far as `out` goes, writable.
            unsafe { (kernels.across)(valid, src, self.inner, steps, self.room.min(out.len()), out.as_mut_ptr()) };
            out[valid..width].fill(T::Sum::default());
        }
    }

    /// # Safety
    /// As [`Self::pack`].
    unsafe fn convert_rows(
        &self,
        valid: usize,
        kc: usize,
        width: usize,
        kernels: &NarrowKernels<T>,
        out: &mut [T::Sum],
    ) {
        let mut rows = [T::Sum::default(); MAX_WIDTH * ALONG];
        assert!(valid <= MAX_WIDTH);
        for p in (0..kc).step_by(ALONG) {
            let steps = ALONG.min(kc - p);
            for (i, row) in rows.chunks_exact_mut(ALONG).take(valid).enumerate() {
                let src = self.src.wrapping_offset(i as isize * self.outer + p as isize * self.inner);
                // the row of the next panel, most often: it lies in another page, where no processor looks ahead
                for line in (0..ALONG * size_of::<T>()).step_by(LINE_BYTES) {
                    prefetch(src.wrapping_offset(valid as isize * self.outer).wrapping_byte_add(line));
                }
                // SAFETY: `steps` elements of row `i`, from step `p` on.
                unsafe { self.convert_row(src, steps, kernels, row) };
            }
            let packed = steps.div_ceil(kernels.depth);
            let out = &mut out[p / kernels.depth * width..][..packed * width];
            // SAFETY: `packed` elements of `valid` rows, `ALONG` apart.
            unsafe { transpose_into(rows.as_ptr(), ALONG as isize, 1, valid, packed, width, out) };
        }
    }

    /// # Safety
    /// `steps <= ALONG` elements are readable at `src`, `inner` apart.
    unsafe fn convert_row(&self, src: *const T, steps: usize, kernels: &NarrowKernels<T>, row: &mut [T::Sum]) {
        // SAFETY: as the caller says; `row` holds `ALONG` elements, which no packed row exceeds.
        unsafe {
            if self.inner == 1 {
                return (kernels.along)(steps, src, row.as_mut_ptr());
            }
            let mut gathered = [T::default(); ALONG];
            for (p, x) in gathered[..steps].iter_mut().enumerate() {
                *x = *src.wrapping_offset(p as isize * self.inner);
            }
            (kernels.along)(steps, gathered.as_ptr(), row.as_mut_ptr());
        }
    }
}
