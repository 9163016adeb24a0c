//! Rows of A, packed or where they are, and one tile of them.

use super::kernel::{Kernels, MAX_TILE};
use super::{GemmElement, View};
use crate::prefetch::PrefetchLines;
use crate::simd::LINE_BYTES;
use std::ops::Range;

/// Rows of A, as tiles read them.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a, T> {
    /// Packed by [`pack_a`], with what their tiles prefetch meanwhile.
    Packed(&'a [T], PrefetchLines<T>),
    /// Where they are. Their places take all registers, and leave none for prefetching.
    InPlace(View<T>),
}

/// Bytes after which addresses fall on the same sets of a first cache again, on all processors of today.
const CACHE_WAY_BYTES: usize = 4096;

impl<T: Copy> Rows<'_, T> {
    /// True if tiles read `a` where it is as fast as when packed: rows in order, which do not drive each other out of the first
    /// cache because they begin at the same place of it.
    pub(crate) fn can_skip_packing(a: View<T>) -> bool {
        a.col_stride == 1 && Self::is_spread(a.row_stride)
    }

    /// True if tiles read `a`, whose columns are in order, where it is: for so few panels of B that packing would take longer than
    /// bringing in again what drives each other out.
    pub(super) fn is_column_major(a: View<T>, panels: usize) -> bool {
        a.row_stride == 1 && (panels <= 1 || panels == 2 && Self::is_spread(a.col_stride))
    }

    /// True if places so far apart do not begin at the same place of the first cache.
    fn is_spread(stride: isize) -> bool {
        let apart = stride.unsigned_abs().saturating_mul(size_of::<T>());
        let spread = LINE_BYTES..=CACHE_WAY_BYTES - LINE_BYTES;
        apart < LINE_BYTES || spread.contains(&(apart % CACHE_WAY_BYTES))
    }

    /// The rows of a tile of `kc` steps.
    #[inline(always)]
    pub(crate) fn panel(&self, rows: &Range<usize>, kc: usize) -> Self {
        match self {
            Rows::Packed(a, ahead) => Rows::Packed(&a[rows.start * kc..rows.end * kc], *ahead),
            Rows::InPlace(a) => Rows::InPlace(a.shifted(rows.start, 0)),
        }
    }

    /// The same rows, whose tile prefetches that meanwhile, if it can.
    #[inline(always)]
    pub(super) fn with_prefetch(self, ahead: PrefetchLines<T>) -> Self {
        match self {
            Rows::Packed(a, _) => Rows::Packed(a, ahead),
            Rows::InPlace(_) => self,
        }
    }
}

/// One tile of `rows x valid` from rows of A and a packed panel of B, whose width is `valid` rounded up to whole vectors.
///
/// # Safety
/// The processor has the instruction set of `kernels`; the panel has `kc` steps, and so have the rows, packed or readable;
/// `c` is writable for this tile.
#[inline(always)]
pub(crate) unsafe fn packed_tile<T: GemmElement>(
    kernels: &Kernels<T>,
    [rows, valid]: [usize; 2],
    kc: usize,
    a: Rows<'_, T>,
    b: &[T],
    c: *mut T,
    ldc: usize,
    accumulate: bool,
) {
    let width = valid.next_multiple_of(kernels.lanes);
    debug_assert!(rows * width <= MAX_TILE && b.len() >= width * kc);
    let of_width = width / kernels.lanes - 1;
    let tile = |c: *mut T, ldc: usize, accumulate: bool| {
        // SAFETY: as the caller says.
        unsafe {
            match a {
                Rows::Packed(a, ahead) => {
                    debug_assert!(a.len() >= rows * kc);
                    kernels.tiles[rows - 1][of_width](kc, a.as_ptr(), b.as_ptr(), c, ldc, accumulate, ahead);
                }
                Rows::InPlace(a) => {
                    let (tile, step) = (kernels.tiles_in_place[rows - 1][of_width], [a.row_stride, a.col_stride]);
                    tile(kc, a.data, step, b.as_ptr(), width, c, ldc, accumulate);
                }
            }
        }
    };
    // SAFETY: a full tile lies within C; any other goes through a buffer, and only its valid part is added.
    unsafe {
        if valid == width {
            return tile(c, ldc, accumulate);
        }
        let mut buffer = [T::default(); MAX_TILE];
        tile(buffer.as_mut_ptr(), width, false);
        for i in 0..rows {
            let row = std::slice::from_raw_parts_mut(c.add(i * ldc), valid);
            for (y, &x) in row.iter_mut().zip(&buffer[i * width..]) {
                *y = if accumulate { T::from_sum(T::add(y.widen(), x.widen())) } else { x };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_unless_they_share_sets_of_the_first_cache() {
        let stays = |row_stride, col_stride| {
            Rows::can_skip_packing(View::<f32> { data: std::ptr::null(), row_stride, col_stride })
        };
        assert!([0, 1, 7, 64, 512, -512, 1000, 1040, 1536, 2032].into_iter().all(|s| stays(s, 1)));
        assert!([1009, 1023, 1024, -1024, 1025, 1039, 2048, 4096, isize::MAX].into_iter().all(|s| !stays(s, 1)));
        assert!(!stays(1, 512) && !stays(512, 2) && !stays(512, -1), "rows out of order are packed");
        let is_column_major = |row_stride, col_stride, panels| {
            Rows::is_column_major(View::<f32> { data: std::ptr::null(), row_stride, col_stride }, panels)
        };
        assert!([(512, 1), (1024, 1), (512, 2)].into_iter().all(|(stride, panels)| is_column_major(1, stride, panels)));
        assert!([(1024, 2), (512, 3)].into_iter().all(|(stride, panels)| !is_column_major(1, stride, panels)));
        assert!(!is_column_major(512, 1, 1) && !is_column_major(2, 512, 1));
    }
}
