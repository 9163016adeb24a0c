//! The right operand of the products of all steps: packed once, unless there are so few rows and steps that this would take
//! longer than the products.

use super::{Sequence, line};
use crate::float::Disjoint;
use crate::gemm::element::Engine;
use crate::gemm::kernel::Kernels;
use crate::gemm::pack::{pack_a, pack_b};
use crate::gemm::rows::{Rows, packed_tile};
use crate::gemm::{GemmElement, View};
use crate::pool::{Parts, Pool};
use crate::prefetch::PrefetchLines;

/// Panels that one part of a pool run packs.
const PANELS: usize = 8;

/// Rows of all steps together up to which the matrix is read where it is.
const FEW_ROWS_IN_ALL: usize = 4;

/// A matrix of `k` rows and `n` columns.
#[derive(Clone, Copy)]
pub(super) struct Packed<'a, R: 'static> {
    data: Data<'a, R>,
    k: usize,
    n: usize,
    kernels: &'static Kernels<R>,
}

#[derive(Clone, Copy)]
enum Data<'a, R> {
    /// In blocks of rows, each in panels as `pack_b` leaves them.
    Panels(&'a [R]),
    /// Where it is, for as long as the slice that it came from is borrowed.
    InPlace(View<R>),
}

/// Whether the weights of a layer are packed, which sizes alone decide.
pub(super) fn is_packed(s: &Sequence) -> bool {
    s.steps.saturating_mul(s.batch) > FEW_ROWS_IN_ALL
}

/// Tall tiles: a step has a few rows of them, and their panels of two vectors stay in the first cache from one to the next, as
/// wider ones do not. The backward pass through 64 steps of 32 rows and 256 states took 4 to 7 % longer with those.
fn kernels<R: GemmElement>() -> &'static Kernels<R> {
    match R::engine() {
        Engine::Same(kernels) => kernels.tall(),
        Engine::Plain | Engine::Narrow(_) => unreachable!("floats of 32 and 64 bits have tiles of their own"),
    }
}

/// Elements of a packed matrix.
pub(super) fn packed_len<R: GemmElement>(k: usize, n: usize) -> usize {
    line::<R>(k * n.next_multiple_of(kernels::<R>().lanes))
}

/// Elements of `m` rows of a left operand that is packed for a block.
pub(super) fn rows_len<R: GemmElement>(m: usize, k: usize) -> usize {
    line::<R>(m * k.min(kernels::<R>().depth))
}

impl<'a, R: GemmElement> Packed<'a, R> {
    /// Packs `b`, on all threads. `out` has [`packed_len`] elements.
    ///
    /// # Safety
    /// `b` is readable for `k` rows of `n`.
    pub(super) unsafe fn pack(pool: &Pool, b: View<R>, k: usize, n: usize, out: &'a mut [R]) -> Packed<'a, R> {
        let kernels = kernels::<R>();
        let (nr, lanes) = (kernels.nr(), kernels.lanes);
        let width = n.next_multiple_of(lanes);
        let (columns, blocks) = (n.div_ceil(PANELS * nr), k.div_ceil(kernels.depth));
        let to = Disjoint::new(out);
        pool.run(columns * blocks, &|part| {
            let (first, p) = (part % columns * PANELS * nr, part / columns * kernels.depth);
            let (cols, kc) = ((PANELS * nr).min(n - first), kernels.depth.min(k - p));
            // SAFETY: columns and rows of `b`; blocks lie apart, and so do the panels of a block.
            unsafe {
                let to = to.part(p * width + first * kc, cols.next_multiple_of(lanes) * kc);
                pack_b(b.shifted(p, first), kc, cols, nr, lanes, to);
            }
        });
        Packed { data: Data::Panels(out), k, n, kernels }
    }

    /// `b` where it is: in order along its rows or along its columns.
    pub(super) fn in_place(b: View<R>, k: usize, n: usize) -> Packed<'a, R> {
        Packed { data: Data::InPlace(b), k, n, kernels: kernels::<R>() }
    }

    /// `c[i, j] = (accumulate ? c[i, j] : 0) + sum over p of a[i, p] b[p, j]` for `i < m`. `a_block` has [`rows_len`] elements.
    ///
    /// # Safety
    /// `a` is readable for `m x k`; `c` is writable for `m` rows of `n`, `ldc` apart, which nobody else has.
    pub(super) unsafe fn multiply(
        &self,
        m: usize,
        a: View<R>,
        a_block: &mut [R],
        c: *mut R,
        ldc: usize,
        accumulate: bool,
    ) {
        let Packed { data, k, n, kernels } = *self;
        if m == 0 || n == 0 {
            return;
        }
        if k == 0 {
            // SAFETY: rows of C.
            return (0..if accumulate { 0 } else { m })
                .for_each(|i| unsafe { std::slice::from_raw_parts_mut(c.add(i * ldc), n) }.fill(R::default()));
        }
        let data = match data {
            Data::Panels(data) => data,
            // SAFETY: as the caller says; `b` was said to be readable.
            Data::InPlace(b) => return unsafe { self.multiply_in_place(b, m, a, c, ldc, accumulate) },
        };
        let (nr, width) = (kernels.nr(), n.next_multiple_of(kernels.lanes));
        let panels = m.div_ceil(kernels.mr());
        let all_rows = Parts::new(m, panels);
        let stays = Rows::can_skip_packing(a);
        for p in (0..k).step_by(kernels.depth) {
            let kc = kernels.depth.min(k - p);
            let part = a.shifted(0, p);
            // SAFETY: steps below `k` of these rows; panels of the block; columns below `n` of C.
            unsafe {
                if !stays {
                    pack_a(part, m, kc, kernels.mr(), a_block);
                }
                let a = if stays { Rows::InPlace(part) } else { Rows::Packed(a_block, PrefetchLines::NONE) };
                for j in (0..n).step_by(nr) {
                    let valid = nr.min(n - j);
                    let b = &data[p * width + j * kc..][..valid.next_multiple_of(kernels.lanes) * kc];
                    for rows in (0..panels).map(|panel| all_rows.get(panel)) {
                        let (c, size) = (c.add(rows.start * ldc + j), [rows.len(), valid]);
                        packed_tile(kernels, size, kc, a.panel(&rows, kc), b, c, ldc, accumulate || p > 0);
                    }
                }
            }
        }
    }

    /// [`Packed::multiply`] by a `b` that is not packed, a row after the other.
    ///
    /// # Safety
    /// As there; `b` is readable.
    unsafe fn multiply_in_place(&self, b: View<R>, m: usize, a: View<R>, c: *mut R, ldc: usize, accumulate: bool) {
        let Packed { k, n, kernels, .. } = *self;
        // SAFETY: rows below `m`, columns below `n`; rows of `a` are contiguous.
        unsafe {
            if b.row_stride != 1 {
                for i in 0..m {
                    let step = [a.row_stride, a.col_stride];
                    (kernels.add_rows)(
                        [1, n, k],
                        a.at(i, 0),
                        step,
                        b.data,
                        b.row_stride,
                        c.add(i * ldc),
                        ldc,
                        accumulate,
                    );
                }
                return;
            }
            for (i, j) in (0..n).flat_map(|j| (0..m).map(move |i| (i, j))) {
                let (sum, y) = ((kernels.dot)(k, a.at(i, 0), b.at(0, j)), c.add(i * ldc + j));
                *y = if accumulate { R::from_sum(R::add((*y).widen(), sum.widen())) } else { sum };
            }
        }
    }
}
