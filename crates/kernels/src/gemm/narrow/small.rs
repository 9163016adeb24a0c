//! Small products of 16-bit floats: both operands are widened on the stack, in the order in which they lie, and the tiles of
//! f32 read them there. Packing them for tiles, and converting the elements of a tiny product one by one, took up to eight
//! times as long as the multiply-adds.
//!
//! An element's products are added in the order of `k`, as in the packed product of a single block.

use super::kernel::Along;
use super::{KC, store};
use crate::gemm::blocked;
use crate::gemm::kernel::Kernels;
use crate::gemm::{GemmElement, GemmOutput, View};
use crate::transpose::transpose_into;
use std::mem::MaybeUninit;

/// Elements of an operand, or of the sums, that are kept on the stack: 16 KiB of f32. All three arrays stay in a first or
/// second cache.
const MOST_ELEMS: usize = 4096;
/// The widest vector of f32.
const MAX_LANES: usize = 16;

/// True if the operands and the sums of a product fit on the stack, and one block holds all of `k`.
pub(in crate::gemm) fn fits(m: usize, n: usize, k: usize) -> bool {
    let width = n.saturating_add(MAX_LANES - 1) / MAX_LANES * MAX_LANES;
    k <= KC && [(m, k), (k, n), (m, width)].into_iter().all(|(rows, cols)| rows.saturating_mul(cols) <= MOST_ELEMS)
}

/// Room for an operand or the sums. B is read in whole vectors, so up to a vector behind its last element.
type Room<T> = MaybeUninit<[T; MOST_ELEMS + MAX_LANES]>;

/// The product, `along` being the conversion of `tiles`' instruction set.
///
/// # Safety
/// As [`super::super::product`], for sizes that [`fits`] is true of; the processor has the instruction set of `tiles`.
pub(in crate::gemm) unsafe fn product<T: GemmElement, O: GemmOutput<T>>(
    tiles: &Kernels<T::Sum>,
    along: Along<T, T::Sum>,
    [m, n, k]: [usize; 3],
    a: View<T>,
    b: View<T>,
    c: *mut O,
    ldc: usize,
    accumulate: bool,
) {
    debug_assert!(fits(m, n, k));
    let [mut a_wide, mut b_wide, mut sums] = [const { Room::<T::Sum>::uninit() }; 3];
    let [a_wide, b_wide, sums] = [&mut a_wide, &mut b_wide, &mut sums].map(|room| room.as_mut_ptr().cast::<T::Sum>());
    let width = n.next_multiple_of(tiles.lanes);
    // SAFETY: `fits` says that each of the three has room; the sums serve as room for B's columns before they are made.
    unsafe {
        let a = if a.row_stride == 1 && a.col_stride != 1 {
            widen(along, a.t(), k, m, a_wide);
            View { data: a_wide.cast_const(), row_stride: 1, col_stride: m as isize }
        } else {
            widen(along, a, m, k, a_wide);
            View { data: a_wide.cast_const(), row_stride: k as isize, col_stride: 1 }
        };
        // what the last rows read past the end: sums of such columns are not written to C
        b_wide.add(k * n).write_bytes(0, MAX_LANES);
        if b.row_stride == 1 && b.col_stride != 1 {
            widen(along, b.t(), n, k, sums);
            b_wide.write_bytes(0, k * n);
            let rows = std::slice::from_raw_parts_mut(b_wide, k * n);
            transpose_into(sums.cast_const(), k as isize, 1, n, k, n, rows);
        } else {
            widen(along, b, k, n, b_wide);
        }
        let b = View { data: b_wide.cast_const(), row_stride: n as isize, col_stride: 1 };
        blocked::in_place(tiles, [m, width, k], a, b, sums, width, false);
        // SAFETY: the tiles wrote `m` rows of `width`.
        let sums = std::slice::from_raw_parts(sums, m * width);
        if n == width && (ldc == n || m == 1) {
            store(sums, m * n, m * n, c, m * n, accumulate);
        } else {
            store(sums, width, n, c, ldc, accumulate);
        }
    }
}

/// `out[i * len + p] = x[i, p]` for `lines` lines of `len` elements.
///
/// # Safety
/// `x` is readable for them, `out` writable for `lines * len` elements, at most [`MOST_ELEMS`]; the processor has the
/// instruction set of `along`.
unsafe fn widen<T: GemmElement>(along: Along<T, T::Sum>, x: View<T>, lines: usize, len: usize, out: *mut T::Sum) {
    // SAFETY: as the caller says; elements of `line` are written before they are read.
    unsafe {
        if x.col_stride == 1 && (x.row_stride == len as isize || lines == 1) {
            return along(lines * len, x.data, out);
        }
        let mut line = [MaybeUninit::<T>::uninit(); MOST_ELEMS];
        for i in 0..lines {
            let out = out.add(i * len);
            if x.col_stride == 1 {
                along(len, x.at(i, 0), out);
            } else {
                for (p, to) in line[..len].iter_mut().enumerate() {
                    to.write(*x.at(i, p));
                }
                along(len, line.as_ptr().cast(), out);
            }
        }
    }
}
