//! Blocked products of narrow types: f16 and bf16 in f32, integers of 8 and 16 bits in 32.
//!
//! As `blocked`, with two differences. Packing converts (`kernel`, `pack`), so the tiles are those of wide elements. And C
//! is narrower than its sums, so these have a place of their own in the workspace, a strip of one tile's columns after
//! another, until the last step of `k`: each element is rounded once. A strip is written to C as soon as it is whole,
//! while it is still in the first cache; where `k` is a single block, one strip is all that is kept.
//!
//! A task's rows are cut so that the sums of a block of columns stay within [`SUMS_BYTES`]. The order of an element's
//! additions depends on `k` and the instruction set alone.

use super::blocked::{ALIGN_BYTES, grid, rectangle};
use super::kernel::KC;
use super::{Corner, GemmElement, GemmOutput, View};
use crate::pool::{Pool, part_range};
use crate::prefetch::PrefetchLines;
use crate::simd::widest;
use pack::{pack_a, pack_b};

mod kernel;
mod pack;
pub(super) mod small;
pub(super) mod vector;

pub(super) use kernel::NarrowKernels;
#[cfg(target_arch = "x86_64")]
pub(super) use kernel::store_f16;
pub(super) use kernel::{half_kernels, integer_kernels};

/// Bytes of a packed block of A, as in `blocked`.
const A_BLOCK_BYTES: usize = 160 << 10;
/// Bytes of a packed block of B, as in `blocked`.
const B_BLOCK_BYTES: usize = 1 << 20;
/// Bytes of the sums of a block of columns: B is packed once for as many rows, and A once for as many columns.
const SUMS_BYTES: usize = 5 << 18;

/// Sizes of a product and how it is cut. A pure function of the sizes, the thread count and the instruction set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    m: usize,
    n: usize,
    k: usize,
    /// Steps of `k` in a block.
    kc: usize,
    /// Number of tasks along m and n.
    grid: [usize; 2],
    /// Most rows whose sums are kept, rows of a packed block of A among them, columns of a packed block of B.
    rows: usize,
    mc: usize,
    nc: usize,
    /// Elements of a strip of sums, and from one strip to the next.
    strip_len: usize,
    strip_step: usize,
    /// Elements of the packed blocks and the sums of one slot.
    lens: [usize; 3],
}

impl Plan {
    pub(super) fn new<T: GemmElement>(
        kernels: &NarrowKernels<T>,
        m: usize,
        n: usize,
        k: usize,
        threads: usize,
    ) -> Plan {
        let (mr, nr, size) = (kernels.mr(), kernels.nr(), size_of::<T::Sum>());
        let grid = grid(m, n, k, mr, nr, threads);
        let kc = KC * kernels.depth;
        let depth = k.min(kc).div_ceil(kernels.depth);
        let (task_m, task_n) = (m.div_ceil(grid[0]), n.div_ceil(nr).div_ceil(grid[1]) * nr);
        let mc = (A_BLOCK_BYTES / (KC * size) / mr * mr).min(task_m);
        let nc = (B_BLOCK_BYTES / (KC * size) / nr * nr).min(task_n);
        let whole = k <= kc;
        let rows = if whole { task_m } else { (SUMS_BYTES / (nc * size) / mc).max(1) * mc }.min(task_m);
        let strip_len = if whole { mc } else { rows } * nr;
        let strips = if whole { 1 } else { nc / nr };
        let line = ALIGN_BYTES / size;
        let lens = [mc * depth, nc * depth, strips * strip_len].map(|len| len.next_multiple_of(line));
        Plan { m, n, k, kc, grid, rows, mc, nc, strip_len, strip_step: if whole { 0 } else { strip_len }, lens }
    }

    /// Elements of workspace of one slot; a multiple of a cache line.
    pub(super) fn slot_len(&self) -> usize {
        self.lens.iter().sum()
    }

    pub(super) fn tasks(&self) -> usize {
        self.grid[0] * self.grid[1]
    }
}

/// The product by blocks. `workspace` holds one or more slots of `plan.slot_len()` elements.
///
/// # Safety
/// As [`super::blocked::product`].
pub(super) unsafe fn product<T: GemmElement, O: GemmOutput<T>>(
    pool: &Pool,
    kernels: &NarrowKernels<T>,
    plan: &Plan,
    a: View<T>,
    b: View<T>,
    c: *mut O,
    ldc: usize,
    accumulate: bool,
    workspace: &mut [T::Sum],
) {
    let corner = Corner(c);
    pool.with_slots(plan.tasks(), workspace, plan.slot_len(), |task, slot| {
        let corner = &corner;
        let [rows, cols] = rectangle(task, plan.grid, plan.m, plan.n, kernels.nr());
        let (a_block, rest) = slot.split_at_mut(plan.lens[0]);
        let (b_block, sums) = rest.split_at_mut(plan.lens[1]);
        let mut task = Task { kernels, plan, ldc, accumulate, a_block, b_block, sums };
        for i in rows.clone().step_by(plan.rows) {
            let m = plan.rows.min(rows.end - i);
            for j in cols.clone().step_by(plan.nc) {
                let n = plan.nc.min(cols.end - j);
                // SAFETY: rows and columns lie within m and n, and no other task has an element of this rectangle.
                unsafe { task.run(a.shifted(i, 0), b.shifted(0, j), corner.0.add(i * ldc + j), m, n) };
            }
        }
    });
}

struct Task<'a, T: GemmElement> {
    kernels: &'a NarrowKernels<T>,
    plan: &'a Plan,
    ldc: usize,
    accumulate: bool,
    a_block: &'a mut [T::Sum],
    b_block: &'a mut [T::Sum],
    sums: &'a mut [T::Sum],
}

/// One step of `k` of a rectangle: its packed depth, and whether it is the first and the last.
#[derive(Clone, Copy)]
struct Step {
    depth: usize,
    first: bool,
    last: bool,
}

impl<T: GemmElement> Task<'_, T> {
    /// # Safety
    /// As [`product`], for the `m x n` rectangle at `c`, at most `plan.rows` by `plan.nc`.
    unsafe fn run<O: GemmOutput<T>>(&mut self, a: View<T>, b: View<T>, c: *mut O, m: usize, n: usize) {
        let plan = self.plan;
        for p in (0..plan.k).step_by(plan.kc) {
            let kc = plan.kc.min(plan.k - p);
            let step = Step { depth: kc.div_ceil(self.kernels.depth), first: p == 0, last: p + kc == plan.k };
            // SAFETY: the block is within the rectangle and `k`.
            unsafe { pack_b(b.shifted(p, 0), kc, n, self.kernels, self.b_block) };
            for i in (0..m).step_by(plan.mc) {
                let mc = plan.mc.min(m - i);
                // SAFETY: as above; the packed blocks hold `mc x kc` and `kc x n`.
                unsafe {
                    pack_a(a.shifted(i, p), mc, kc, self.kernels, self.a_block);
                    self.block(i, mc, n, step, c);
                }
            }
        }
    }

    /// Adds the tiles of the packed blocks to rows `from .. from + mc` of the sums; the last step writes them to C.
    ///
    /// # Safety
    /// `c` is writable for the rectangle's rows of `n`; the blocks are packed so.
    unsafe fn block<O: GemmOutput<T>>(&mut self, from: usize, mc: usize, n: usize, step: Step, c: *mut O) {
        let (nr, lanes, depth) = (self.kernels.nr(), self.kernels.lanes, step.depth);
        let from_sum = if self.plan.strip_step == 0 { 0 } else { from * nr };
        let panels = mc.div_ceil(self.kernels.mr());
        for (strip, j) in (0..n).step_by(nr).enumerate() {
            let valid = nr.min(n - j);
            let width = valid.next_multiple_of(lanes);
            let b_panel = &self.b_block[j * depth..][..width * depth];
            let sums = &mut self.sums[strip * self.plan.strip_step..][..self.plan.strip_len][from_sum..][..mc * nr];
            for panel in 0..panels {
                let rows = part_range(mc, panels, panel);
                let a_panel = &self.a_block[rows.start * depth..rows.end * depth];
                let tile = self.kernels.tiles[rows.len() - 1][width / lanes - 1];
                let sums = &mut sums[rows.start * nr..rows.end * nr];
                // SAFETY: the panels have `depth * rows` and `depth * width` elements, and the sums rows of `nr >= width`.
                unsafe {
                    tile(
                        depth,
                        a_panel.as_ptr(),
                        b_panel.as_ptr(),
                        sums.as_mut_ptr(),
                        nr,
                        !step.first,
                        PrefetchLines::NONE,
                    )
                };
            }
            if step.last {
                // SAFETY: rows `from .. from + mc`, columns `j .. j + valid` of the rectangle.
                unsafe { store(sums, nr, valid, c.add(from * self.ldc + j), self.ldc, self.accumulate) };
            }
        }
    }
}

/// Writes the first `cols` of each row of `width` sums to the rows of C.
///
/// # Safety
/// `c` is writable for as many rows of `cols`, `ldc` apart, and nobody else touches them.
unsafe fn store<T: GemmElement, O: GemmOutput<T>>(
    sums: &[T::Sum],
    width: usize,
    cols: usize,
    c: *mut O,
    ldc: usize,
    accumulate: bool,
) {
    widest(
        #[inline(always)]
        || {
            for (i, sums) in sums.chunks_exact(width).enumerate() {
                // SAFETY: as the caller says.
                let row = unsafe { std::slice::from_raw_parts_mut(c.add(i * ldc), cols) };
                O::store(&sums[..cols], row, accumulate);
            }
        },
    );
}

#[cfg(test)]
mod tests;
