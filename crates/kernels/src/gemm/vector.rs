//! Products with one row or one column: each element of the matrix is used once, so memory speed is all that counts.
//!
//! Both cases are `y[i] = sum over p of x[p] * w(p, i)`. Where the matrix is contiguous along `i`, rows are added up;
//! where it is contiguous along `p`, each `y[i]` is a dot product; otherwise plain loops.

use super::kernel::Kernels;
use super::{Corner, GemmElement, View, plain};
use crate::pool::Pool;

/// Elements of the matrix that are worth a part of a pool run: 256 KiB of f32, about 15 us from the last-level cache.
pub(super) const GRAIN_ELEMS: usize = 1 << 16;
/// Elements of `x` that are gathered at a time where `x` is strided; on the stack.
const GATHER: usize = 512;
/// Longest sum that is added up in one go: bounds the rows a column strip walks and keeps strips of `x` in the L1 cache.
const K_BLOCK: usize = 1024;

/// # Safety
/// As [`super::product`], with `m == 1` or `n == 1`.
pub(super) unsafe fn product<T: GemmElement>(
    pool: &Pool,
    kernels: &Kernels<T>,
    m: usize,
    n: usize,
    k: usize,
    a: View<T>,
    b: View<T>,
    c: *mut T,
    ldc: usize,
    accumulate: bool,
) {
    // `w(p, i)` is element (i, p) of A for a column of C, element (p, i) of B for a row.
    let (outputs, x, x_stride, w, w_stride, y_stride) = if n == 1 {
        (m, b.data, b.row_stride, a.data, [a.col_stride, a.row_stride], ldc)
    } else {
        (n, a.data, a.col_stride, b.data, [b.row_stride, b.col_stride], 1)
    };
    let problem = Problem { k, x: View { data: x, row_stride: 0, col_stride: x_stride }, w, w_stride, accumulate };
    let y = Corner(c);
    let add_rows = w_stride[1] == 1 && y_stride == 1;
    pool.ranges(outputs, GRAIN_ELEMS.div_ceil(k), |range| {
        let (y, problem) = (&y, &problem);
        // SAFETY: the range is within the outputs, ranges are disjoint, and the caller's contract covers every element.
        unsafe {
            if add_rows {
                problem.add_rows(kernels, range, y.0);
            } else if w_stride[0] == 1 {
                range.for_each(|i| problem.dot(kernels, i, y.0.add(i * y_stride)));
            } else if n == 1 {
                plain::rows(range, n, k, a, b, y.0, ldc, accumulate);
            } else {
                let c = y.0.add(range.start);
                plain::rows(0..1, range.len(), k, a, b.shifted(0, range.start), c, ldc, accumulate);
            }
        }
    });
}

struct Problem<T> {
    k: usize,
    x: View<T>,
    w: *const T,
    /// Along `p` and along `i`.
    w_stride: [isize; 2],
    accumulate: bool,
}

// SAFETY: only read through, within the borrow of the operands.
unsafe impl<T: Sync> Sync for Problem<T> {}

impl<T: GemmElement> Problem<T> {
    /// # Safety
    /// `range` is within the outputs, `y` is writable there, and `w_stride[1] == 1`.
    unsafe fn add_rows(&self, kernels: &Kernels<T>, range: std::ops::Range<usize>, y: *mut T) {
        for p in (0..self.k).step_by(K_BLOCK) {
            let k = K_BLOCK.min(self.k - p);
            // SAFETY: rows `p .. p + k`, columns `range`, all checked by the caller.
            unsafe {
                (kernels.add_rows)(
                    [1, range.len(), k],
                    self.x.at(0, p),
                    [0, self.x.col_stride],
                    self.w.offset(p as isize * self.w_stride[0]).add(range.start),
                    self.w_stride[0],
                    y.add(range.start),
                    0,
                    self.accumulate || p > 0,
                );
            }
        }
    }

    /// # Safety
    /// `i` is an output, `y` its place, and `w_stride[0] == 1`.
    unsafe fn dot(&self, kernels: &Kernels<T>, i: usize, y: *mut T) {
        // SAFETY: all places are within the checked operands, as the caller says.
        unsafe {
            let w = self.w.offset(i as isize * self.w_stride[1]);
            let mut sum = T::Sum::default();
            if self.x.col_stride == 1 {
                sum = (kernels.dot)(self.k, self.x.data, w).widen();
            } else {
                let mut buffer = [T::default(); GATHER];
                for p in (0..self.k).step_by(GATHER) {
                    let len = GATHER.min(self.k - p);
                    for (q, slot) in buffer[..len].iter_mut().enumerate() {
                        *slot = *self.x.at(0, p + q);
                    }
                    sum = T::add(sum, (kernels.dot)(len, buffer.as_ptr(), w.add(p)).widen());
                }
            }
            *y = T::from_sum(if self.accumulate { T::add((*y).widen(), sum) } else { sum });
        }
    }
}
