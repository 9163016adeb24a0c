//! The product without packing: tiny sizes, and the element types that have no vector kernels.

use super::{GemmElement, GemmOutput, View};

/// Columns that are summed up side by side, on the stack.
const COLS: usize = 64;
/// Columns of a tiny product that are summed up in registers.
const FEW: usize = 8;

/// Rows `rows` of `C = (accumulate ? C : 0) + A B`; each element is one running sum over `k` in order, then rounded.
///
/// # Safety
/// `a` is readable for the rows and `k` columns, `b` for `k x n`; row `i` of C, at `c + i * ldc`, is writable for `n`
/// elements and nobody else touches it.
pub(super) unsafe fn rows<T: GemmElement, O: GemmOutput<T>>(
    rows: std::ops::Range<usize>,
    n: usize,
    k: usize,
    a: View<T>,
    b: View<T>,
    c: *mut O,
    ldc: usize,
    accumulate: bool,
) {
    for i in rows {
        let few = if b.col_stride == 1 && n < COLS { n / FEW * FEW } else { 0 };
        for j in (0..few).step_by(FEW) {
            // SAFETY: the block lies in row `i`, columns below `n`, and rows of B are contiguous.
            unsafe {
                let y = std::slice::from_raw_parts_mut(c.add(i * ldc + j), FEW);
                few_columns(a.shifted(i, 0), b.shifted(0, j), k, y, accumulate);
            }
        }
        for j in (few..n).step_by(COLS) {
            let width = COLS.min(n - j);
            // SAFETY: the block lies in row `i`, columns below `n`.
            unsafe {
                let y = std::slice::from_raw_parts_mut(c.add(i * ldc + j), width);
                block(a.shifted(i, 0), b.shifted(0, j), k, y, accumulate);
            }
        }
    }
}

/// [`block`] of `FEW` columns.
///
/// # Safety
/// `a` is readable for one row of `k`, `b` for `k` contiguous rows of `FEW`.
unsafe fn few_columns<T: GemmElement, O: GemmOutput<T>>(
    a: View<T>,
    b: View<T>,
    k: usize,
    y: &mut [O],
    accumulate: bool,
) {
    let mut sums = [T::Sum::default(); FEW];
    for p in 0..k {
        // SAFETY: `p < k`; an array has its element's alignment.
        let (x, row) = unsafe { ((*a.at(0, p)).widen(), b.at(p, 0).cast::<[T; FEW]>().read_unaligned()) };
        for j in 0..FEW {
            sums[j] = T::mul_add(x, row[j].widen(), sums[j]);
        }
    }
    O::store(&sums, y, accumulate);
}

/// # Safety
/// `a` is readable for one row of `k`, `b` for `k` rows of `y.len()`.
unsafe fn block<T: GemmElement, O: GemmOutput<T>>(a: View<T>, b: View<T>, k: usize, y: &mut [O], accumulate: bool) {
    let mut sums = [T::Sum::default(); COLS];
    let sums = &mut sums[..y.len()];
    for p in 0..k {
        // SAFETY: `p < k`.
        let x = unsafe { *a.at(0, p) }.widen();
        if b.col_stride == 1 {
            // SAFETY: `y.len()` elements of row `p` are readable, and contiguous.
            let row = unsafe { std::slice::from_raw_parts(b.at(p, 0), y.len()) };
            for (sum, &w) in sums.iter_mut().zip(row) {
                *sum = T::mul_add(x, w.widen(), *sum);
            }
        } else {
            for (j, sum) in sums.iter_mut().enumerate() {
                // SAFETY: `j < y.len()`.
                *sum = T::mul_add(x, unsafe { *b.at(p, j) }.widen(), *sum);
            }
        }
    }
    O::store(sums, y, accumulate);
}
