//! Batches of matrix products.

use super::{
    Corner, GemmElement, GemmOutput, MatRef, Path, View, blocked, check_bounds, gemm_workspace_bytes, product,
};
use crate::pool::Pool;

/// A batch of strided matrices: matrix `t` is `matrix` with `t * batch_stride` added to its offset.
#[derive(Clone, Copy, Debug)]
pub struct BatchRef<'a, T> {
    /// The first matrix.
    pub matrix: MatRef<'a, T>,
    /// Elements from one matrix to the next; zero repeats the same matrix.
    pub batch_stride: isize,
}

/// Whether the threads share out whole products: there are enough of them, or each is too small to be cut.
fn over_batch(batch: usize, muls: usize, threads: usize) -> bool {
    batch >= 2 * threads || muls < LARGE_MULS
}

/// Multiply-adds from which one product keeps several threads busy by itself.
const LARGE_MULS: usize = 1 << 20;

/// Bytes of workspace that [`batched`] needs. A pure function of its arguments on one machine.
#[must_use]
pub fn batched_workspace_bytes<T: GemmElement>(batch: usize, m: usize, n: usize, k: usize, threads: usize) -> usize {
    let threads = threads.max(1);
    if over_batch(batch, m.saturating_mul(n).saturating_mul(k), threads) {
        match slot_bytes::<T>(m, n, k) {
            0 => 0,
            bytes => bytes * batch.min(threads) + blocked::ALIGN_BYTES,
        }
    } else {
        gemm_workspace_bytes::<T>(m, n, k, threads)
    }
}

/// Bytes for one product on one thread, in whole cache lines.
fn slot_bytes<T: GemmElement>(m: usize, n: usize, k: usize) -> usize {
    gemm_workspace_bytes::<T>(m, n, k, 1).next_multiple_of(blocked::ALIGN_BYTES)
}

/// `C_t = (accumulate ? C_t : 0) + A_t B_t` for each `t < batch`, with `a: [batch, m, k]`, `b: [batch, k, n]`.
///
/// Row `i` of `C_t` is `c[t * c_batch_stride + i * c_row_stride ..][.. n]`. Gives the same bits as [`super::gemm`] called
/// for each `t`. `workspace` has at least [`batched_workspace_bytes`] for `pool.threads()`.
///
/// # Panics
/// If an element would lie outside its slice, rows or matrices of C overlap, or the workspace is too small.
pub fn batched<T: GemmElement, O: GemmOutput<T>>(
    pool: &Pool,
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    a: BatchRef<'_, T>,
    b: BatchRef<'_, T>,
    c: &mut [O],
    c_batch_stride: usize,
    c_row_stride: usize,
    accumulate: bool,
    workspace: &mut [u8],
) {
    if batch == 0 || m == 0 || n == 0 {
        return;
    }
    let c_matrix = (m - 1).saturating_mul(c_row_stride).saturating_add(n);
    assert!(m == 1 || c_row_stride >= n, "rows of C overlap: stride {c_row_stride}, {n} columns");
    assert!(batch == 1 || c_batch_stride >= c_matrix, "matrices of C overlap: {c_batch_stride} < {c_matrix}");
    let strides = [(batch, c_batch_stride as isize), (m, c_row_stride as isize), (n, 1)];
    check_bounds(c.len(), 0, &strides, "C");
    let (a, b) = (a.checked(batch, m, k, "A"), b.checked(batch, k, n, "B"));
    let (c, engine) = (Corner(c.as_mut_ptr()), T::engine());
    let one = |threads: usize, t: usize, workspace: &mut [u8]| {
        let c = &c;
        let (a, b) = (a.shifted(t), b.shifted(t));
        // SAFETY: all matrices were checked above; `t < batch`; matrices of C do not overlap and each `t` comes once.
        unsafe {
            let c = c.0.add(t * c_batch_stride);
            product(pool, threads, &engine, m, n, k, a, b, c, c_row_stride, accumulate, workspace);
        }
    };
    let muls = m.saturating_mul(n).saturating_mul(k);
    if !over_batch(batch, muls, pool.threads()) {
        (0..batch).for_each(|t| one(pool.threads(), t, workspace));
        return;
    }
    if Path::of::<T>(m, n, k) == Path::Blocked {
        pool.with_slots(batch, workspace, slot_bytes::<T>(m, n, k), |t, slot| one(1, t, slot));
    } else {
        let grain = LARGE_MULS.div_ceil(8 * muls.max(1));
        pool.ranges(batch, grain, |range| range.for_each(|t| one(1, t, &mut [])));
    }
}

impl<T> BatchRef<'_, T> {
    fn checked(&self, batch: usize, rows: usize, cols: usize, name: &str) -> BatchView<T> {
        let matrix = &self.matrix;
        let axes = [(batch, self.batch_stride), (rows, matrix.row_stride), (cols, matrix.col_stride)];
        check_bounds(matrix.data.len(), matrix.offset, &axes, name);
        BatchView { matrix: matrix.checked(rows, cols, name), batch_stride: self.batch_stride }
    }
}

struct BatchView<T> {
    matrix: View<T>,
    batch_stride: isize,
}

impl<T> BatchView<T> {
    fn shifted(&self, t: usize) -> View<T> {
        View { data: self.matrix.data.wrapping_offset(t as isize * self.batch_stride), ..self.matrix }
    }
}
