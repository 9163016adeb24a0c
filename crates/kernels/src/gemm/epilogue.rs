//! Products whose elements go through more work as soon as their sums are whole, while they are in the cache: a bias, an
//! activation, a residual, what else a caller's function does. What it does to an element it does after the last addition
//! to it, so the bits are those of the product and the work one after the other.

use std::ops::Range;

use remat_types::SmallVec;

use super::{Engine, GemmElement, MatRef, Path, aligned, blocked, check_bounds, gemm, gemm_workspace_bytes};
use crate::copy::{PARALLEL_MIN_ELEMS, PART_ELEMS};
use crate::float::Disjoint;
use crate::pool::Pool;
use crate::prefetch::prefetch_run_l2;

/// A function of some runs of elements of C, with uncleared scratch memory.
pub type Finish<'e, T> = dyn Fn(Runs<'_, T>, &mut [u8]) + Sync + 'e;

/// Runs of elements of C that lie side by side, of one length.
pub struct Runs<'r, T> {
    /// The first element, and its index in C.
    c: *mut T,
    at: usize,
    /// Elements of a run, and from one run to the next.
    len: usize,
    step: usize,
    count: usize,
    beside: &'r [(Disjoint<'r, u8>, usize)],
}

impl<T> Runs<'_, T> {
    /// Calls `work` with each run: the index of its first element, the elements, which may be changed, and the same run of each
    /// output beside C.
    pub fn each(self, mut work: impl FnMut(usize, &mut [T], &mut [&mut [u8]])) {
        for first in (0..self.count).map(|run| run * self.step) {
            let mut beside: SmallVec<[&mut [u8]; 4]> = SmallVec::new();
            for (output, size) in self.beside {
                // SAFETY: whoever made these runs says that nobody else has them, and there is one call for each.
                beside.push(unsafe { output.part((self.at + first) * size, self.len * size) });
            }
            // SAFETY: as above.
            let c = unsafe { std::slice::from_raw_parts_mut(self.c.add(first), self.len) };
            work(self.at + first, c, &mut beside);
        }
    }
}

/// Work on elements of a product as soon as they are whole. Every element is in one run, which depends on
/// how the product is cut: what becomes of an element must not depend on the others of its run.
pub struct Epilogue<'e, T> {
    scratch_bytes: usize,
    beside: SmallVec<[(Disjoint<'e, u8>, usize); 4]>,
    /// The operands that `finish` reads at the index of the element, and the bytes of their elements.
    reads: SmallVec<[(&'e [u8], usize); 4]>,
    finish: &'e Finish<'e, T>,
}

impl<'e, T> Epilogue<'e, T> {
    /// Calls `finish` with `scratch_bytes` of memory.
    pub fn new(scratch_bytes: usize, finish: &'e Finish<'e, T>) -> Self {
        Epilogue { scratch_bytes, beside: SmallVec::new(), reads: SmallVec::new(), finish }
    }

    /// With an output of as many elements as C, of so many bytes each, for `finish` to write.
    #[must_use]
    pub fn beside(mut self, output: &'e mut [u8], elem_bytes: usize) -> Self {
        self.beside.push((Disjoint::new(output), elem_bytes));
        self
    }

    /// Says that `finish` reads an operand of as many elements as C, at the same index: tiles prefetch what will be read.
    #[must_use]
    pub fn reading(mut self, operand: &'e [u8], elem_bytes: usize) -> Self {
        self.reads.push((operand, elem_bytes));
        self
    }

    /// `count` runs of `len` elements, `step` apart. `c` is the first element, and `at` its index.
    ///
    /// # Safety
    /// The elements are writable at `c`, and none of them is in another call of the same product.
    unsafe fn run(&self, at: usize, c: *mut T, [count, len, step]: [usize; 3], scratch: &mut [u8]) {
        (self.finish)(Runs { c, at, len, step, count, beside: &self.beside }, scratch);
    }
}

/// The epilogue of one task of a product: a rectangle of C.
pub(super) struct Then<'a, 'e, T> {
    epilogue: &'a Epilogue<'e, T>,
    /// The task's first row and column.
    first: [usize; 2],
    /// Columns of C.
    n: usize,
}

impl<T> Clone for Then<'_, '_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Then<'_, '_, T> {}

impl<'a, 'e, T> Then<'a, 'e, T> {
    pub(super) fn new(epilogue: &'a Epilogue<'e, T>, first: [usize; 2], n: usize) -> Self {
        Then { epilogue, first, n }
    }

    /// Elements of a thread's scratch memory, in whole cache lines.
    pub(super) fn scratch_len(epilogue: &Epilogue<'_, T>) -> usize {
        epilogue.scratch_bytes.next_multiple_of(blocked::ALIGN_BYTES) / size_of::<T>()
    }

    /// Prefetches what these rows and columns of the task are finished with. To prefetch the outputs beside C, too, gained nothing.
    pub(super) fn prefetch(&self, rows: Range<usize>, columns: Range<usize>) {
        for (operand, size) in &self.epilogue.reads {
            for row in rows.clone() {
                let at = (self.first[0] + row) * self.n + self.first[1] + columns.start;
                prefetch_run_l2(operand.as_ptr().wrapping_add(at * size), columns.len() * size);
            }
        }
    }

    /// Finishes these rows and columns of the task; `c` is their first element.
    ///
    /// # Safety
    /// `c` is writable for them in rows of `n`, their sums are whole, and each is finished once.
    pub(super) unsafe fn finish(&self, rows: Range<usize>, columns: Range<usize>, c: *mut T, scratch: &mut [T])
    where
        T: bytemuck::Pod,
    {
        let scratch = &mut bytemuck::cast_slice_mut(scratch)[..self.epilogue.scratch_bytes];
        // whole rows are one run
        let (runs, len) = if columns.len() == self.n { (1, rows.len() * self.n) } else { (rows.len(), columns.len()) };
        let at = (self.first[0] + rows.start) * self.n + self.first[1] + columns.start;
        // SAFETY: the runs are these rows and columns.
        unsafe { self.epilogue.run(at, c.add(rows.start * self.n + columns.start), [runs, len, self.n], scratch) };
    }
}

/// Bytes of workspace that [`gemm_with`] needs for these sizes and an epilogue's scratch memory. A pure function of its
/// arguments on one machine.
#[must_use]
pub fn gemm_with_workspace_bytes<T: GemmElement>(
    m: usize,
    n: usize,
    k: usize,
    threads: usize,
    scratch_bytes: usize,
) -> usize {
    // one more cache line for each thread, since scratch memory begins at one
    let each = scratch_bytes.next_multiple_of(blocked::ALIGN_BYTES);
    gemm_workspace_bytes::<T>(m, n, k, threads) + each.saturating_mul(threads.max(1)) + blocked::ALIGN_BYTES
}

/// [`gemm`] for a C of `m` rows of `n` without gaps, whose elements then go through `epilogue`.
///
/// `workspace` has at least [`gemm_with_workspace_bytes`] for `pool.threads()`.
///
/// # Panics
/// As [`gemm`]; if an output beside C has fewer than `m x n` elements.
pub fn gemm_with<T: GemmElement>(
    pool: &Pool,
    m: usize,
    n: usize,
    k: usize,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    c: &mut [T],
    epilogue: &mut Epilogue<'_, T>,
    workspace: &mut [u8],
) {
    if let (Path::Blocked, Engine::Same(kernels)) = (Path::of::<T>(m, n, k), T::engine()) {
        check_bounds(c.len(), 0, &[(m, n as isize), (n, 1)], "C");
        let (a, b) = (a.checked(m, k, "A"), b.checked(k, n, "B"));
        let kernels = kernels.for_columns(n);
        let plan = blocked::Plan::new(kernels, m, n, k, pool.threads()).with_scratch(Then::scratch_len(epilogue));
        let workspace = aligned::<T>(workspace);
        // SAFETY: the views were checked for these sizes just above, and C has rows of `n` without gaps.
        unsafe {
            blocked::product(pool, kernels, &plan, a, b, c.as_mut_ptr(), n, false, Some(epilogue), workspace);
        }
        return;
    }
    let sums_bytes = gemm_workspace_bytes::<T>(m, n, k, pool.threads()).min(workspace.len());
    let (sums, scratch) = workspace.split_at_mut(sums_bytes);
    gemm(pool, m, n, k, a, b, c, n, false, sums);
    finish_all(pool, &mut c[..m * n], epilogue, scratch);
}

/// The epilogue of a C whose sums are all there. `workspace` has the epilogue's scratch memory for each thread (or for
/// one), and a cache line.
///
/// # Panics
/// If the workspace is too small, or an output beside C has fewer elements than it.
pub fn finish_all<T: GemmElement>(pool: &Pool, c: &mut [T], epilogue: &mut Epilogue<'_, T>, workspace: &mut [u8]) {
    let part = if c.len() < PARALLEL_MIN_ELEMS { c.len().max(1) } else { PART_ELEMS };
    let (len, parts) = (c.len(), c.len().div_ceil(part));
    let c = Disjoint::new(c);
    let scratch_bytes = epilogue.scratch_bytes;
    let epilogue = &*epilogue;
    let slot_len = scratch_bytes.next_multiple_of(blocked::ALIGN_BYTES);
    pool.with_slots(parts, aligned::<u8>(workspace), slot_len, |i, scratch| {
        let (at, n) = (i * part, part.min(len - i * part));
        let scratch = scratch.get_mut(..scratch_bytes).unwrap_or_default();
        // SAFETY: parts do not overlap, and each comes once.
        unsafe { epilogue.run(at, c.part(at, n).as_mut_ptr(), [1, n, n], scratch) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::tests::Random;

    /// Both ways of one product of these sizes, `b` transposed or not: its elements, and the ones beside them.
    fn both<T: GemmElement>(
        pool: &Pool,
        [m, n, k]: [usize; 3],
        transposed: bool,
        of: fn(f64) -> T,
        double: fn(T, usize) -> T,
    ) {
        let mut random = Random::new(7);
        let mut values = |len: usize| -> Vec<T> { (0..len).map(|_| of(random.float())).collect() };
        let (a, b) = (values(m * k), values(k * n));
        let (a, b) = (MatRef::row_major(&a, k), MatRef::row_major(&b, if transposed { k } else { n }));
        let b = if transposed { b.t() } else { b };

        let mut want = vec![T::default(); m * n];
        let mut workspace = vec![0xaa; gemm_workspace_bytes::<T>(m, n, k, pool.threads())];
        gemm(pool, m, n, k, a, b, &mut want, n, false, &mut workspace);
        let beside: Vec<u16> = (0..m * n).map(|i| i as u16 ^ u16::from(bytemuck::bytes_of(&want[i])[0])).collect();
        want.iter_mut().enumerate().for_each(|(i, x)| *x = double(*x, i));

        let (mut c, mut other) = (vec![T::default(); m * n], vec![0u16; m * n]);
        let finish = |runs: Runs<'_, T>, scratch: &mut [u8]| {
            assert_eq!(scratch.len(), 100);
            assert_eq!(scratch.as_ptr().align_offset(64), 0);
            scratch.fill(0x55);
            runs.each(|at, c, beside| {
                for (i, (c, y)) in c.iter_mut().zip(beside[0].chunks_exact_mut(2)).enumerate() {
                    y.copy_from_slice(&((at + i) as u16 ^ u16::from(bytemuck::bytes_of(c)[0])).to_ne_bytes());
                    *c = double(*c, at + i);
                }
            });
        };
        let mut epilogue = Epilogue::new(100, &finish).beside(bytemuck::cast_slice_mut(&mut other), 2);
        epilogue = epilogue.reading(bytemuck::cast_slice(&beside), 2);
        let bytes = gemm_with_workspace_bytes::<T>(m, n, k, pool.threads(), 100);
        let mut workspace = vec![0xaa; bytes + 1];
        gemm_with(pool, m, n, k, a, b, &mut c, &mut epilogue, &mut workspace[1..]);
        drop(epilogue);
        let same = c.iter().zip(&want).all(|(c, want)| bytemuck::bytes_of(c) == bytemuck::bytes_of(want));
        assert!(same && other == beside, "{m}x{k}x{n}, transposed: {transposed}, {} threads", pool.threads());
    }

    #[test]
    fn an_epilogue_has_the_bits_of_the_work_after_the_product() {
        // plain, one row, few rows, small, rows of tiles, blocks of rows, columns and steps, nothing to add
        let sizes = [
            [2, 3, 4],
            [1, 70, 50],
            [3, 200, 90],
            [16, 32, 16],
            [13, 130, 200],
            [40, 33, 70],
            [130, 700, 40],
            [70, 90, 1100],
            [230, 1400, 64],
            [3, 5, 0],
        ];
        for pool in [Pool::new(1), Pool::new(2)] {
            for size in sizes {
                for transposed in [false, true] {
                    both::<f32>(&pool, size, transposed, |x| x as f32, |x, i| x * 2.0 + i as f32);
                    both::<f64>(&pool, size, transposed, |x| x, |x, i| x * 2.0 + i as f64);
                }
                both::<i32>(&pool, size, false, |x| (x * 100.0) as i32, |x, i| x.wrapping_mul(2) + i as i32);
            }
        }
        both::<half::f16>(&Pool::new(2), [70, 90, 40], true, half::f16::from_f64, |x, _| -x);
        both::<f32>(&Pool::new(2), [300, 400, 3], false, |x| x as f32, |x, i| x - i as f32);
    }

    #[test]
    fn every_shape_of_tiles_finishes_each_element_once() {
        let pool = Pool::new(2);
        let [m, n, k] = [100, 700, 500];
        // small whole numbers: sums are exact
        let (a, b) = (|i: usize, p: usize| ((3 * i + p) % 5) as f32, |p: usize, j: usize| ((p + 7 * j) % 5) as f32);
        let rows: Vec<f32> = (0..m * k).map(|at| a(at / k, at % k)).collect();
        let turned: Vec<f32> = (0..k * m).map(|at| a(at % m, at / m)).collect();
        let of_b: Vec<f32> = (0..k * n).map(|at| b(at / n, at % n)).collect();
        let mut want = vec![1.0f32; m * n];
        for (i, p) in (0..m).flat_map(|i| (0..k).map(move |p| (i, p))) {
            want[i * n..][..n].iter_mut().zip(&of_b[p * n..]).for_each(|(y, b)| *y += a(i, p) * b);
        }
        for (kernels, is_column_major) in
            crate::gemm::kernel::f32_tables().into_iter().flat_map(|k| [(k, false), (k, true)])
        {
            let finish = |runs: Runs<'_, f32>, _: &mut [u8]| runs.each(|_, c, _| c.iter_mut().for_each(|c| *c += 1.0));
            let epilogue = Epilogue::new(0, &finish);
            let plan = blocked::Plan::new(kernels, m, n, k, 2).with_scratch(Then::scratch_len(&epilogue));
            let mut workspace = vec![0.0f32; 2 * plan.slot_len()];
            let mut c = vec![0.0f32; m * n];
            let a = if is_column_major { MatRef::row_major(&turned, m).t() } else { MatRef::row_major(&rows, k) };
            let (a, b) = (a.checked(m, k, "A"), MatRef::row_major(&of_b, n).checked(k, n, "B"));
            // SAFETY: the views were checked, C has `m` rows of `n`, and tables are those that this processor can run.
            unsafe {
                blocked::product(&pool, kernels, &plan, a, b, c.as_mut_ptr(), n, false, Some(&epilogue), &mut workspace)
            };
            assert!(c == want, "{} columns, column-major: {is_column_major}", kernels.nr());
        }
    }
}
