//! Products with a packed right side: `y = clamp(start + bias + x w)`.

use remat_types::{Error, ErrorKind, Result};

use super::dense::{Ahead, CHUNK_BYTES, columns, panel, panels};
use super::kernel::{Kernels, Tile};
use super::{Operands, Start, check_block};
use crate::gemm::aligned;
use crate::pool::{Pool, part_range};

/// Bytes of the rows of `x` that a task goes through, a chunk of the sum at a time: they stay in an L2 cache.
const STRIP_BYTES: usize = 192 << 10;
/// Multiply-adds below which a further task costs more than it brings.
const TASK_MIN_MULS: usize = 1 << 17;
/// Tasks a thread, so that one that is held up does not keep the others waiting for long.
const TASKS_PER_THREAD: usize = 3;

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
    /// [`ErrorKind::Value`] for a block without kernels, [`ErrorKind::Shape`] for `n` that is not of whole blocks, or sizes
    /// that are too large.
    pub fn new(m: usize, k: usize, n: usize, block: usize) -> Result<Linear> {
        check_block(block)?;
        if n == 0 || !n.is_multiple_of(block) {
            return Err(Error::new(ErrorKind::Shape, format!("{n} columns are not whole blocks of {block}")));
        }
        let large = |a: usize, b: usize| a.checked_mul(b).is_none_or(|e| e > u32::MAX as usize);
        if large(m, k) || large(m, n) || large(k, n) {
            return Err(Error::new(ErrorKind::Shape, format!("a product of {m} x {k} x {n} is too large")));
        }
        Ok(Linear { m, k, n, block })
    }

    /// Elements of the packed weight.
    #[must_use]
    pub fn packed_len(&self) -> usize {
        self.k * self.n
    }

    /// Packs `w: [k, n]`, row by row: panels of columns, in each the rows.
    ///
    /// # Panics
    /// If a slice has another length than it should.
    pub fn pack(&self, w: &[f32], packed: &mut [f32]) {
        assert_eq!(
            (w.len(), packed.len()),
            (self.packed_len(), self.packed_len()),
            "elements of a weight for {self:?}"
        );
        let outputs = self.n / self.block;
        for i in 0..panels(outputs) {
            let (first, vectors) = panel(outputs, i);
            let (first, width) = (first * self.block, vectors * self.block);
            let packed = &mut packed[first * self.k..][..width * self.k];
            for (row, packed) in packed.chunks_exact_mut(width).enumerate() {
                packed.copy_from_slice(&w[row * self.n + first..][..width]);
            }
        }
    }

    /// Bytes of workspace that [`Linear::run`] needs.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        2 * self.m * size_of::<u32>() + 64
    }

    /// Steps of the sum in a chunk.
    fn chunk(&self) -> usize {
        let most = CHUNK_BYTES / (2 * self.block * size_of::<f32>());
        self.k.div_ceil(self.k.div_ceil(most).max(1)).max(1)
    }

    /// Parts of the rows and of the panels, for as many threads.
    fn grid(&self, threads: usize) -> [usize; 2] {
        let all = panels(self.n / self.block);
        let rows = (STRIP_BYTES / (self.chunk() * size_of::<f32>())).max(1);
        let mut grid = [self.m.div_ceil(rows).max(1), 1];
        let muls = self.m.saturating_mul(self.n).saturating_mul(self.k);
        let wanted = if threads == 1 { 1 } else { (muls / TASK_MIN_MULS).clamp(1, threads * TASKS_PER_THREAD) };
        // a part of the panels reads its weights alone, so these are cut first
        while grid[0] * grid[1] < wanted && grid[1] < all {
            grid[1] += 1;
        }
        while grid[0] * grid[1] < wanted && grid[0] < self.m.div_ceil(12) {
            grid[0] += 1;
        }
        grid
    }

    /// `y = clamp(start + bias + x w)`, overwriting `y`. Sums go in the order of `k`.
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
        assert_eq!((x.len(), packed.len()), (m * k, k * n), "elements of the factors for {self:?}");
        assert_eq!((bias.len(), y.len()), (n, m * n), "elements of bias and y for {self:?}");
        let offsets: &mut [u32] = &mut aligned::<u32>(workspace)[..2 * m];
        let (x_at, y_at) = offsets.split_at_mut(m);
        for (i, (x_at, y_at)) in x_at.iter_mut().zip(y_at.iter_mut()).enumerate() {
            // `new` has checked that these fit
            (*x_at, *y_at) = ((i * k) as u32, (i * n) as u32);
        }
        let operands = Operands::new(x, packed, bias, start, clamp, y);
        let grid = self.grid(pool.threads());
        let (x_at, y_at, operands) = (&*x_at, &*y_at, &operands);
        pool.run(grid[0] * grid[1], &|task| {
            let rows = part_range(m, grid[0], task % grid[0]);
            let all = part_range(panels(n / self.block), grid[1], task / grid[0]);
            // SAFETY: the lengths were checked above, and tasks have rectangles of `y` of their own.
            unsafe { self.task(operands, &x_at[rows.clone()], &y_at[rows], all) }
        });
    }

    /// # Safety
    /// The operands have the lengths that `self` says; no other thread writes these rows of these panels.
    unsafe fn task(&self, o: &Operands, x_at: &[u32], y_at: &[u32], all: std::ops::Range<usize>) {
        let kernels = Kernels::of(self.block).expect("`new` has checked the block");
        let outputs = self.n / self.block;
        let chunk = self.chunk();
        for from in (0..self.k.max(1)).step_by(chunk) {
            let steps = chunk.min(self.k - from);
            for i in all.clone() {
                let (first, vectors) = panel(outputs, i);
                let first = first * self.block;
                // SAFETY: the panel's weights, bias and columns lie in the operands; offsets name whole rows.
                unsafe {
                    let bias = if from == 0 { o.bias.add(first) } else { std::ptr::null() };
                    let mut tile = Tile {
                        x: o.x.add(from),
                        x_at: x_at.as_ptr(),
                        counts: [1, 1, 1],
                        strides: [0; 3],
                        run: steps,
                        w: o.w.add(first * self.k + from * vectors * self.block),
                        y: o.y.add(first),
                        y_at: y_at.as_ptr(),
                        y_vector: self.block,
                        bias,
                        add: if o.add.is_null() { o.add } else { o.add.add(first) },
                        clamp: if from + steps == self.k { o.clamp } else { None },
                    };
                    // the same steps of the next panel, which is as wide or wider; behind the last one there is nothing, or less
                    let (width, w) = (vectors * self.block, tile.w);
                    let next = Ahead { w: w.wrapping_add(width * self.k), len: steps * width };
                    columns(kernels.tiles[vectors - 1], &mut tile, x_at.len(), next);
                }
            }
        }
    }
}
