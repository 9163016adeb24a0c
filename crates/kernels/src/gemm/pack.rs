//! Packing: blocks of A and B copied into the order in which the micro-kernel reads them.
//!
//! Packing takes any strides, so transposed and broadcast operands cost no copy of their own.

use super::View;
use crate::pool::part_range;

/// Packs `rows` x `kc` elements of A as row panels: panel `i` holds rows `part_range(rows, panels, i)` as `[kc][mr_i]`.
/// Panels are nearly equal, so that no tile is left with one or two rows and too few sums to hide the latency.
///
/// # Safety
/// `a` is readable at every `(i, p)` with `i < rows`, `p < kc`.
pub(super) unsafe fn pack_a<T: Copy + Default>(a: View<T>, rows: usize, kc: usize, mr: usize, out: &mut [T]) {
    let panels = rows.div_ceil(mr);
    for panel in 0..panels {
        let range = part_range(rows, panels, panel);
        let width = range.len();
        let out = &mut out[range.start * kc..range.end * kc];
        // SAFETY: the panel's rows are below `rows`.
        unsafe { transpose_into(a.at(range.start, 0), a.row_stride, a.col_stride, width, kc, width, out) };
    }
}

/// Packs `kc` x `cols` elements of B as column panels `[kc][width]` of `nr` columns; the last panel's width is rounded up
/// to whole vectors of `lanes`, and filled with zeros.
///
/// # Safety
/// `b` is readable at every `(p, j)` with `p < kc`, `j < cols`.
pub(super) unsafe fn pack_b<T: Copy + Default>(
    b: View<T>,
    kc: usize,
    cols: usize,
    nr: usize,
    lanes: usize,
    out: &mut [T],
) {
    let mut start = 0;
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

/// `out[p * width + j] = src[p * stride + j]` for `j < valid`, zeros up to `width`.
///
/// # Safety
/// `src` is readable at those places.
unsafe fn copy_rows<T: Copy + Default>(
    src: *const T,
    stride: isize,
    kc: usize,
    valid: usize,
    width: usize,
    out: &mut [T],
) {
    for (p, row) in out.chunks_exact_mut(width).take(kc).enumerate() {
        // SAFETY: `valid` elements from row `p` on are readable, as the caller says.
        let from = unsafe { std::slice::from_raw_parts(src.offset(p as isize * stride), valid) };
        // Known lengths become vector moves; these are the widths of full panels.
        match valid {
            16 => row[..16].copy_from_slice(&from[..16]),
            32 => row[..32].copy_from_slice(&from[..32]),
            8 => row[..8].copy_from_slice(&from[..8]),
            _ => row[..valid].copy_from_slice(from),
        }
        row[valid..].fill(T::default());
    }
}

/// Steps of `p` that `transpose_into` takes at a time: the lines of `out` that it touches stay in the L1 cache, and where
/// `src` is contiguous along `p` each of its lines is used up.
const TRANSPOSE_BLOCK: usize = 16;

/// `out[p * width + i] = src[i * outer + p * inner]` for `i < valid`, defaults up to `width`.
///
/// # Safety
/// `src` is readable at those places for `i < valid`, `p < kc`.
pub(crate) unsafe fn transpose_into<T: Copy + Default>(
    src: *const T,
    outer: isize,
    inner: isize,
    valid: usize,
    kc: usize,
    width: usize,
    out: &mut [T],
) {
    assert!(out.len() >= kc * width && valid <= width);
    for p in (0..kc).step_by(TRANSPOSE_BLOCK) {
        let steps = TRANSPOSE_BLOCK.min(kc - p);
        let src = src.wrapping_offset(p as isize * inner);
        let out = &mut out[p * width..][..steps * width];
        let mut i = 0;
        // SAFETY: rows `i .. i + R` are valid ones and steps `p .. p + steps` lie below `kc`.
        unsafe {
            while i + 4 <= valid {
                rows_into::<T, 4>(src.wrapping_offset(i as isize * outer), outer, inner, i, width, out);
                i += 4;
            }
            while i < valid {
                rows_into::<T, 1>(src.wrapping_offset(i as isize * outer), outer, inner, i, width, out);
                i += 1;
            }
        }
        if valid < width {
            out.chunks_exact_mut(width).for_each(|row| row[valid..].fill(T::default()));
        }
    }
}

/// Columns `i .. i + R` of `out` (rows of `width`) from `R` rows of `src`. Where the rows are contiguous, `R x R` squares
/// go through registers: the compiler turns them into shuffles.
///
/// # Safety
/// `R` rows of `src`, `outer` apart, are readable for `out.len() / width` elements, `inner` apart.
#[inline(always)]
unsafe fn rows_into<T: Copy, const R: usize>(
    src: *const T,
    outer: isize,
    inner: isize,
    i: usize,
    width: usize,
    out: &mut [T],
) {
    let steps = out.len() / width;
    let mut p = 0;
    if inner == 1 {
        while p + R <= steps {
            // SAFETY: `R` elements from step `p` on of `R` rows.
            let rows: [[T; R]; R] = std::array::from_fn(|r| unsafe {
                src.offset(r as isize * outer + p as isize).cast::<[T; R]>().read_unaligned()
            });
            for q in 0..R {
                let column: [T; R] = std::array::from_fn(|r| rows[r][q]);
                out[(p + q) * width + i..][..R].copy_from_slice(&column);
            }
            p += R;
        }
    }
    while p < steps {
        // SAFETY: step `p` of `R` rows.
        let column: [T; R] = std::array::from_fn(|r| unsafe { *src.offset(r as isize * outer + p as isize * inner) });
        out[p * width + i..][..R].copy_from_slice(&column);
        p += 1;
    }
}
