//! Products with a packed right side: `y = clamp(start + x w + bias)`.
//!
//! The plain product's tiles and blocks (`gemm::blocked`), but its right side lies packed in the order in which they read it:
//! it streams by once for each block of rows, a panel ahead of the tiles.

use remat_types::{Error, ErrorKind, Result};
use std::ops::Range;

use super::{Operands, Start, check_block};
use crate::cache::l2_bytes;
use crate::gemm::blocked::{ALIGN_BYTES, grid};
use crate::gemm::kernel::{Kernels, f32_kernels_of};
use crate::gemm::pack::{pack_a, pack_b};
use crate::gemm::rows::{Rows, packed_tile};
use crate::gemm::{View, aligned};
use crate::pool::{Parts, Pool, part_range};
use crate::prefetch::PrefetchLines;
use crate::simd::widest;

/// A product `x: [m, k]` by a packed `w: [k, n]` to `y: [m, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    m: usize,
    k: usize,
    n: usize,
    block: usize,
}

impl Linear {
    /// A product of these sizes.
    ///
    /// # Errors
    /// [`ErrorKind::Value`] for a block without kernels, [`ErrorKind::Shape`] for sizes that are too large.
    pub fn new(m: usize, k: usize, n: usize, block: usize) -> Result<Linear> {
        check_block(block)?;
        let padded = |b: usize| b.checked_next_multiple_of(block);
        let fits = |a: usize, b| padded(b).and_then(|b| a.checked_mul(b)).is_some_and(|e| e <= u32::MAX as usize);
        if n > u32::MAX as usize || !(fits(m, k) && fits(m, n) && fits(k, n)) {
            return Err(Error::new(ErrorKind::Shape, format!("a product of {m} x {k} x {n} is too large")));
        }
        Ok(Linear { m, k, n, block })
    }

    /// Elements of the packed weight.
    #[must_use]
    pub fn packed_len(&self) -> usize {
        self.k * self.columns()
    }

    /// Columns in whole vectors, those beyond the last being zeros of packed weights.
    fn columns(&self) -> usize {
        self.n.next_multiple_of(self.block)
    }

    /// Packs `w: [k, n]`, row by row: blocks of steps of the sum, in each the panels of columns, in each its rows.
    ///
    /// # Panics
    /// If a slice has another length than it should.
    pub fn pack(&self, w: &[f32], packed: &mut [f32]) {
        assert_eq!((w.len(), packed.len()), (self.k * self.n, self.packed_len()), "elements of a weight for {self:?}");
        let (kernels, columns) = (self.kernels(), self.columns());
        for steps in (0..self.blocks()).map(|i| self.steps(i)) {
            let block = &mut packed[steps.start * columns..steps.end * columns];
            let w = View { data: w.as_ptr(), row_stride: self.n as isize, col_stride: 1 }.shifted(steps.start, 0);
            // SAFETY: `w` has these rows of `n` columns.
            unsafe { pack_b(w, steps.len(), self.n, kernels.nr(), kernels.lanes, block) };
        }
    }

    fn kernels(&self) -> &'static Kernels<f32> {
        f32_kernels_of(self.block).expect("`new` has checked the block")
    }

    /// Blocks of the sum's steps; one without steps for an empty sum.
    fn blocks(&self) -> usize {
        self.k.div_ceil(self.kernels().depth).max(1)
    }

    /// The steps of a block; blocks are nearly equal.
    fn steps(&self, block: usize) -> Range<usize> {
        part_range(self.k, self.blocks(), block)
    }

    fn grid(&self, threads: usize) -> [usize; 2] {
        let kernels = self.kernels();
        grid(self.m, self.n, self.k, kernels.mr(), kernels.nr(), threads)
    }

    /// Most rows of `x` that are packed at a time: they stay in the second cache, beside the panels that stream by.
    fn block_rows(&self, threads: usize) -> usize {
        let kernels = self.kernels();
        let most = l2_bytes() / 8 * 3 / (kernels.depth * size_of::<f32>());
        (most / kernels.mr() * kernels.mr()).min(self.m.div_ceil(self.grid(threads)[0]))
    }

    /// Elements of a slot of workspace; a multiple of a cache line.
    fn slot_len(&self, threads: usize) -> usize {
        (self.block_rows(threads) * self.kernels().depth.min(self.k)).next_multiple_of(ALIGN_BYTES / size_of::<f32>())
    }

    /// Bytes of workspace that [`Linear::run`] needs: a pure function of its arguments on one machine.
    #[must_use]
    pub fn workspace_bytes(&self, threads: usize) -> usize {
        let threads = threads.max(1);
        let tasks: usize = self.grid(threads).into_iter().product();
        tasks.min(threads) * self.slot_len(threads) * size_of::<f32>() + ALIGN_BYTES
    }

    /// `y = clamp(start + x w + bias)`, overwriting `y`. Sums go in the order of `k`.
    ///
    /// # Panics
    /// If a slice has another length than it should, or the workspace is too small.
    pub fn run(
        &self,
        pool: &Pool,
        x: &[f32],
        packed: &[f32],
        bias: &[f32],
        start: &Start<'_>,
        clamp: Option<[f32; 2]>,
        y: &mut [f32],
        workspace: &mut [u8],
    ) {
        let Linear { m, k, n, .. } = *self;
        assert_eq!((x.len(), packed.len()), (m * k, self.packed_len()), "elements of the factors for {self:?}");
        assert_eq!((bias.len(), y.len()), (n, m * n), "elements of bias and y for {self:?}");
        let operands = Operands::new(x, packed, bias, start, clamp, y);
        let threads = pool.threads();
        let (grid, block_rows, nr) = (self.grid(threads), self.block_rows(threads), self.kernels().nr());
        pool.with_slots(grid[0] * grid[1], aligned::<f32>(workspace), self.slot_len(threads), |task, slot| {
            let rows = part_range(m, grid[0], task % grid[0]);
            let panels = part_range(n.div_ceil(nr), grid[1], task / grid[0]);
            let parts = rows.len().div_ceil(block_rows.max(1));
            for i in 0..self.blocks() * parts {
                let at = |i: usize| (self.steps(i / parts), part_range(rows.len(), parts, i % parts));
                let ((steps, part), (next, _)) = (at(i), at((i + 1).min(self.blocks() * parts - 1)));
                let part = rows.start + part.start..rows.start + part.end;
                // SAFETY: the lengths were checked above, and tasks have rectangles of `y` of their own.
                unsafe { self.rectangle(&operands, part, panels.clone(), [steps, next], slot) }
            }
        });
    }

    /// The share of the first `steps` in the sums of `rows` of some panels. The steps `next` follow.
    ///
    /// # Safety
    /// The operands have the lengths that `self` says; no other thread writes these rows of these panels.
    unsafe fn rectangle(
        &self,
        o: &Operands,
        rows: Range<usize>,
        panels: Range<usize>,
        [steps, next]: [Range<usize>; 2],
        slot: &mut [f32],
    ) {
        let (n, kernels) = (self.n, self.kernels());
        let (nr, len) = (kernels.nr(), steps.len());
        let x = View { data: o.x, row_stride: self.k as isize, col_stride: 1 };
        // SAFETY: `x` has these rows and steps.
        unsafe { pack_a(x.shifted(rows.start, steps.start), rows.len(), len, kernels.mr(), slot) };
        let tiles = rows.len().div_ceil(kernels.mr());
        let tile_rows = Parts::new(rows.len(), tiles);
        let panel_of = |steps: &Range<usize>, panel: usize| {
            let (first, end) = (panel * nr, self.columns().min((panel + 1) * nr));
            let from = steps.start * self.columns() + first * steps.len();
            // SAFETY: the packed weight has this panel of these steps.
            unsafe { std::slice::from_raw_parts(o.w.add(from), (end - first) * steps.len()) }
        };
        for panel in panels.clone() {
            let first = panel * nr;
            let w = panel_of(&steps, panel);
            let ahead =
                if panel + 1 < panels.end { panel_of(&steps, panel + 1) } else { panel_of(&next, panels.start) };
            let valid = nr.min(n - first);
            for tile in 0..tiles {
                let part = tile_rows.get(tile);
                let at = (rows.start + part.start) * n + first;
                let rows = || (0..part.len()).map(|i| at + i * n);
                // SAFETY: packed `w` has this panel of these steps, `y` and what is added these rows and columns.
                unsafe {
                    let adds = steps.start == 0 && !o.add.is_null();
                    if adds && !std::ptr::eq(o.add, o.y) {
                        rows().for_each(|at| o.y.add(at).copy_from_nonoverlapping(o.add.add(at), valid));
                    }
                    let ahead = PrefetchLines::part(ahead.as_ptr(), ahead.len(), tile, tiles, len);
                    let accumulates = adds || steps.start > 0;
                    let a = Rows::Packed(slot, ahead).panel(&part, len);
                    packed_tile(kernels, [part.len(), valid], len, a, w, o.y.add(at), n, accumulates);
                    if steps.end == self.k {
                        let bias = std::slice::from_raw_parts(o.bias.add(first), valid);
                        let row = |at: usize| std::slice::from_raw_parts_mut(o.y.add(at), valid);
                        widest(|| rows().for_each(|at| finish(row(at), bias, o.clamp)));
                    }
                }
            }
        }
    }
}

/// `y = clamp(y + bias)`; NaN stays.
#[inline(always)]
fn finish(y: &mut [f32], bias: &[f32], clamp: Option<[f32; 2]>) {
    for (y, bias) in y.iter_mut().zip(bias) {
        *y += bias;
    }
    if let Some([low, high]) = clamp {
        y.iter_mut().for_each(|y| *y = y.clamp(low, high));
    }
}
