//! Products of narrow types with one row or one column. As `super::super::vector`, with sums of their own: some outputs at
//! a time, for all of `k`.

use super::NarrowKernels;
use crate::gemm::{Corner, GemmElement, GemmOutput, View, plain, vector};
use crate::pool::Pool;
use std::ops::Range;

/// Elements of `x` that are converted at a time; on the stack.
const X_BLOCK: usize = 512;
/// Outputs that are summed at a time; on the stack.
const Y_BLOCK: usize = 256;

/// # Safety
/// As [`super::super::product`], with `m == 1` or `n == 1`.
pub(in crate::gemm) unsafe fn product<T: GemmElement, O: GemmOutput<T>>(
    pool: &Pool,
    kernels: &NarrowKernels<T>,
    m: usize,
    n: usize,
    k: usize,
    a: View<T>,
    b: View<T>,
    c: *mut O,
    ldc: usize,
    accumulate: bool,
) {
    // `w(p, i)` is element (i, p) of A for a column of C, element (p, i) of B for a row.
    let (outputs, x, w, y_stride) = if n == 1 {
        let w = View { row_stride: a.col_stride, col_stride: a.row_stride, ..a };
        (m, View { row_stride: 0, col_stride: b.row_stride, ..b }, w, ldc)
    } else {
        (n, View { row_stride: 0, ..a }, b, 1)
    };
    let y = Corner(c);
    let problem = Problem { kernels, k, x, w };
    pool.ranges(outputs, vector::GRAIN_ELEMS.div_ceil(k), |range| {
        let (y, problem) = (&y, &problem);
        // SAFETY: the range is within the outputs, ranges are disjoint, and the caller's contract covers every element.
        unsafe {
            if w.col_stride == 1 || w.row_stride == 1 {
                for start in range.clone().step_by(Y_BLOCK) {
                    let part = start..range.end.min(start + Y_BLOCK);
                    problem.write(part, y.0, y_stride, accumulate);
                }
            } else if n == 1 {
                plain::rows(range, n, k, a, b, y.0, ldc, accumulate);
            } else {
                let c = y.0.add(range.start);
                plain::rows(0..1, range.len(), k, a, b.shifted(0, range.start), c, ldc, accumulate);
            }
        }
    });
}

struct Problem<'a, T: GemmElement> {
    kernels: &'a NarrowKernels<T>,
    k: usize,
    x: View<T>,
    /// Along `p` and along the outputs; contiguous one way.
    w: View<T>,
}

impl<T: GemmElement> Problem<'_, T> {
    /// # Safety
    /// At most `Y_BLOCK` outputs; `y` is writable at them.
    unsafe fn write<O: GemmOutput<T>>(&self, outputs: Range<usize>, y: *mut O, y_stride: usize, accumulate: bool) {
        let (mut sums, mut x) = ([T::Sum::default(); Y_BLOCK], [T::Sum::default(); X_BLOCK]);
        let sums = &mut sums[..outputs.len()];
        for p in (0..self.k).step_by(X_BLOCK) {
            let x = &mut x[..X_BLOCK.min(self.k - p)];
            for (q, x) in x.iter_mut().enumerate() {
                // SAFETY: `p + q < k`.
                *x = unsafe { *self.x.at(0, p + q) }.widen();
            }
            // SAFETY: steps from `p` on, below `k`, of these outputs.
            unsafe { self.add(x, self.w.shifted(p, outputs.start), sums) };
        }
        let step = if y_stride == 1 { sums.len() } else { 1 };
        for (i, sums) in outputs.step_by(step).zip(sums.chunks(step)) {
            // SAFETY: as the caller says.
            let y = unsafe { std::slice::from_raw_parts_mut(y.add(i * y_stride), step) };
            O::store(sums, y, accumulate);
        }
    }

    /// `sums[i] += sum over p of x[p] * w(p, i)`
    ///
    /// # Safety
    /// `w` is readable for `x.len()` by `sums.len()`.
    unsafe fn add(&self, x: &[T::Sum], w: View<T>, sums: &mut [T::Sum]) {
        // SAFETY: same contract; the strided kernel reads rows, the other one columns, which are contiguous.
        unsafe {
            if w.col_stride == 1 {
                let (n, k) = (sums.len(), x.len());
                let y = sums.as_mut_ptr();
                return (self.kernels.add_rows)([1, n, k], x.as_ptr(), [0, 1], w.data, w.row_stride, y, 0, true);
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = T::add(*sum, (self.kernels.dot)(x.len(), x.as_ptr(), w.at(0, i)));
            }
        }
    }
}
