//! Matrix products of strided operands.
//!
//! [`gemm`] computes `C = A B` or `C = C + A B` for any strides of A and B (transposed and broadcast operands need no
//! copy) and a C with contiguous rows. All memory it needs comes from the caller: see [`gemm_workspace_bytes`].
//!
//! Which way a product goes depends on the sizes only:
//! * one row or one column of C: a matrix-vector kernel that reads the matrix once;
//! * tiny: plain loops without packing and without threads;
//! * f16 and bf16, small: operands widened on the stack, tiles that read them there (`narrow::small`);
//! * f32 and f64 of two to four rows, if B is not small: rows of B are added up;
//! * f32 and f64: packed blocks and register tiles (`blocked`), AVX-512, AVX2 or portable; small operands and most
//!   rows of A are not packed;
//! * f16 and bf16 (summed in f32), integers of 8 and 16 bits (summed in 32): the same, converted while packed (`narrow`);
//! * integers of 32 and 64 bits: plain loops, rows over the threads.
//!
//! [`gemm_with`] does more work on elements as soon as they are whole, while they are in the cache ([`Epilogue`]).
//!
//! C is of the type of A and B, or of that of their sums ([`GemmOutput`]); sums of integers wrap around.
//!
//! The order in which the `k` products of an element are added follows from the sizes and the instruction set, so pools
//! of any size give the same bits. `k = 0` gives zeros (or leaves C, when accumulating).

use crate::pool::Pool;
use crate::prefetch::PrefetchBlock;

mod batched;
pub(crate) mod blocked;
pub(crate) mod element;
mod epilogue;
pub(crate) mod kernel;
mod narrow;
pub(crate) mod pack;
mod plain;
pub(crate) mod rows;
mod vector;
mod widen;

pub use batched::{BatchRef, batched, batched_workspace_bytes};
use element::Engine;
pub use element::{GemmElement, GemmOutput};
pub use epilogue::{Epilogue, Finish, Runs, finish_all, gemm_with, gemm_with_workspace_bytes};
use narrow::NarrowKernels;

/// A strided matrix: element `(i, j)` is `data[offset + i * row_stride + j * col_stride]`.
///
/// Strides are in elements and may be zero (broadcast) or negative (reversed, with a fitting `offset`).
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a, T> {
    /// The elements that may be read.
    pub data: &'a [T],
    /// Index of element `(0, 0)`.
    pub offset: usize,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub col_stride: isize,
}

impl<'a, T> MatRef<'a, T> {
    /// A matrix stored row by row without gaps, `cols` elements per row.
    #[must_use]
    pub fn row_major(data: &'a [T], cols: usize) -> Self {
        MatRef { data, offset: 0, row_stride: cols as isize, col_stride: 1 }
    }

    /// The transposed matrix; no element moves.
    #[must_use]
    pub fn t(self) -> Self {
        MatRef { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// A view whose `rows x cols` elements all lie within `data`.
    ///
    /// # Panics
    /// If one does not.
    fn checked(&self, rows: usize, cols: usize, name: &str) -> View<T> {
        check_bounds(self.data.len(), self.offset, &[(rows, self.row_stride), (cols, self.col_stride)], name);
        View {
            data: self.data.as_ptr().wrapping_add(self.offset),
            row_stride: self.row_stride,
            col_stride: self.col_stride,
        }
    }
}

/// Asserts that every index `offset + sum of i_d * stride_d`, `0 <= i_d < size_d`, is below `len`.
pub(crate) fn check_bounds(len: usize, offset: usize, axes: &[(usize, isize)], name: &str) {
    if axes.iter().any(|&(size, _)| size == 0) {
        return;
    }
    let (mut low, mut high) = (offset as i128, offset as i128);
    for &(size, stride) in axes {
        let reach = (size as i128 - 1) * stride as i128;
        low += reach.min(0);
        high += reach.max(0);
    }
    assert!(low >= 0 && high < len as i128, "{name} reaches from {low} to {high}, its data has {len} elements");
}

/// An unchecked strided matrix, made by [`MatRef::checked`].
pub(crate) struct View<T> {
    pub(crate) data: *const T,
    pub(crate) row_stride: isize,
    pub(crate) col_stride: isize,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for View<T> {}

// SAFETY: a view only reads, and is used within the borrow of the `MatRef` that it came from.
unsafe impl<T: Sync> Sync for View<T> {}

impl<T> View<T> {
    /// The place of element `(i, j)`; only valid to read if it is one of the checked ones.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize, j: usize) -> *const T {
        self.data.wrapping_offset(i as isize * self.row_stride + j as isize * self.col_stride)
    }

    /// The transposed matrix.
    pub(crate) fn t(self) -> View<T> {
        View { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// The view that starts at `(i, j)`.
    pub(crate) fn shifted(&self, i: usize, j: usize) -> View<T> {
        View { data: self.at(i, j), ..*self }
    }

    /// Its first `rows x cols` elements, to be prefetched by so many tiles of `kc` steps.
    fn prefetched(&self, [rows, cols]: [usize; 2], tiles: usize, kc: usize) -> PrefetchBlock<T> {
        PrefetchBlock::new(self.data, [self.row_stride, self.col_stride], [rows, cols], tiles, kc)
    }
}

/// Multiply-adds up to which the plain loops win over packing. Measured on Zen 3 between 6^3 and 8^3.
const TINY_MULS: usize = 512;

/// Multiply-adds that are worth a part of a pool run in the plain path.
const PLAIN_GRAIN_MULS: usize = 1 << 16;

/// How a product is computed: a pure function of sizes and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// Nothing to multiply: zeros or nothing.
    Empty,
    Plain,
    /// Both operands widened on the stack.
    Small,
    Vector,
    Blocked,
}

impl Path {
    fn of<T: GemmElement>(m: usize, n: usize, k: usize) -> Path {
        let muls = m.saturating_mul(n).saturating_mul(k);
        if muls == 0 {
            Path::Empty
        } else if T::IS_HALF && narrow::small::fits(m, n, k) && (muls <= TINY_MULS || (m > 1 && n > 1)) {
            Path::Small
        } else if muls <= TINY_MULS || matches!(T::engine(), Engine::Plain) {
            Path::Plain
        } else if m == 1 || n == 1 {
            Path::Vector
        } else {
            Path::Blocked
        }
    }
}

/// Bytes of workspace that [`gemm`] needs for these sizes on a pool of `threads` threads (at least 1).
///
/// A pure function of its arguments on one machine; at most about 1.75 MiB per thread, twice that for types
/// narrower than their sums, plus one cache line.
#[must_use]
pub fn gemm_workspace_bytes<T: GemmElement>(m: usize, n: usize, k: usize, threads: usize) -> usize {
    if Path::of::<T>(m, n, k) != Path::Blocked {
        return 0;
    }
    let threads = threads.max(1);
    match T::engine() {
        Engine::Same(kernels) => {
            let plan = blocked::Plan::new(kernels.for_columns(n), m, n, k, threads);
            plan.tasks().min(threads) * plan.slot_len() * size_of::<T>() + blocked::ALIGN_BYTES
        }
        Engine::Narrow(kernels) => {
            let plan = narrow::Plan::new(&kernels, m, n, k, threads);
            plan.tasks().min(threads) * plan.slot_len() * size_of::<T::Sum>() + blocked::ALIGN_BYTES
        }
        Engine::Plain => 0,
    }
}

/// `C = (accumulate ? C : 0) + A B` with `a: [m, k]`, `b: [k, n]`, `c: [m, n]`.
///
/// Row `i` of C is `c[i * c_row_stride ..][.. n]`, of the type of A and B or of their sums; elements of `c` between rows are left alone. `workspace` has at least
/// [`gemm_workspace_bytes`] for `pool.threads()`, of any alignment and content (with less, but enough for one thread,
/// fewer threads take part).
///
/// # Panics
/// If an element of A, B or C would lie outside its slice, rows of C overlap (`c_row_stride < n`), or the workspace is
/// too small for a product that takes some, which one of operands small enough and in order does not.
pub fn gemm<T: GemmElement, O: GemmOutput<T>>(
    pool: &Pool,
    m: usize,
    n: usize,
    k: usize,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: &mut [O],
    c_row_stride: usize,
    accumulate: bool,
    workspace: &mut [u8],
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(m == 1 || c_row_stride >= n, "rows of C overlap: stride {c_row_stride}, {n} columns");
    check_bounds(c.len(), 0, &[(m, c_row_stride as isize), (n, 1)], "C");
    let (a, b) = (a.checked(m, k, "A"), b.checked(k, n, "B"));
    // SAFETY: the views were checked for these sizes just above, and the rows of C lie apart within `c`.
    unsafe {
        let c = c.as_mut_ptr();
        product(pool, pool.threads(), &T::engine(), m, n, k, a, b, c, c_row_stride, accumulate, workspace);
    }
}

/// The product, planned for `threads` threads of `pool`.
///
/// # Safety
/// `a` is readable for `m x k`, `b` for `k x n`; `c` is writable for `m` rows of `n`, `ldc` apart, that do not overlap;
/// the engine's kernels are for an instruction set that the processor has.
unsafe fn product<T: GemmElement, O: GemmOutput<T>>(
    pool: &Pool,
    threads: usize,
    engine: &Engine<T>,
    m: usize,
    n: usize,
    k: usize,
    a: View<T>,
    b: View<T>,
    c: *mut O,
    ldc: usize,
    accumulate: bool,
    workspace: &mut [u8],
) {
    let path = Path::of::<T>(m, n, k);
    if path == Path::Empty {
        if !accumulate {
            for i in 0..m {
                // SAFETY: row `i` of C is writable, as the caller says.
                unsafe { std::slice::from_raw_parts_mut(c.add(i * ldc), n) }.fill(O::from_sum(T::Sum::default()));
            }
        }
        return;
    }
    // SAFETY: same contract.
    unsafe {
        match (path, engine, O::same(c)) {
            (Path::Vector, Engine::Same(kernels), Some(c)) => {
                vector::product(pool, kernels, m, n, k, a, b, c, ldc, accumulate);
            }
            (Path::Blocked, Engine::Same(kernels), Some(c)) => {
                let kernels = kernels.for_columns(n);
                if blocked::is_small_task(kernels, [m, n, k], a, b) {
                    return blocked::in_place(kernels, [m, n, k], a, b, c, ldc, accumulate);
                }
                let plan = blocked::Plan::new(kernels, m, n, k, threads);
                blocked::product(pool, kernels, &plan, a, b, c, ldc, accumulate, None, aligned::<T>(workspace));
            }
            (Path::Vector, Engine::Narrow(kernels), _) => {
                narrow::vector::product(pool, kernels, m, n, k, a, b, c, ldc, accumulate);
            }
            (Path::Small, Engine::Narrow(NarrowKernels { in_place: Some(tiles), along, .. }), _) => {
                narrow::small::product(tiles, *along, [m, n, k], a, b, c, ldc, accumulate);
            }
            (Path::Blocked, Engine::Narrow(kernels), _) => {
                let plan = narrow::Plan::new(kernels, m, n, k, threads);
                narrow::product(pool, kernels, &plan, a, b, c, ldc, accumulate, aligned::<T::Sum>(workspace));
            }
            _ => {
                let c = Corner(c);
                let grain = PLAIN_GRAIN_MULS.div_ceil(n.saturating_mul(k).max(1));
                pool.ranges(m, grain, |range| {
                    let c = &c;
                    // ranges of rows are disjoint
                    plain::rows(range, n, k, a, b, c.0, ldc, accumulate);
                });
            }
        }
    }
}

/// The first element of C, shared by tasks that write disjoint parts.
struct Corner<T>(*mut T);

// SAFETY: each task writes elements of its own, and `T: Send` values may be written by any thread.
unsafe impl<T: Send> Sync for Corner<T> {}

/// The elements of `workspace` from its first cache line boundary on.
pub(crate) fn aligned<T: bytemuck::Pod>(workspace: &mut [u8]) -> &mut [T] {
    let skip = workspace.as_ptr().align_offset(blocked::ALIGN_BYTES);
    let Some(rest) = workspace.get_mut(skip..) else {
        return &mut [];
    };
    if rest.is_empty() {
        // An empty slice may sit at any address; a cast would refuse it.
        return &mut [];
    }
    let whole = rest.len() / size_of::<T>() * size_of::<T>();
    bytemuck::cast_slice_mut(&mut rest[..whole])
}

#[cfg(test)]
pub(crate) mod tests;
