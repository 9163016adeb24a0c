//! The blocked product: C cut into tasks, each task packing its blocks of A and B and running micro-kernels over them.
//!
//! Rows of A that lie in order are read where they are, unless their distance makes them drive each other out of the first
//! cache: packing them costs more than it saves, 2 to 12 % of a product of a few hundred rows. So are columns that lie in order,
//! where C has one or two panels of columns: packing took up to three tenths of such a product.
//!
//! A task owns a rectangle of C and all of `k`, so tasks share nothing and no sum crosses threads. `k` is walked in equal
//! steps; the rectangle's place and size do not change the order of an element's additions. So the bits of C
//! depend on the sizes and the instruction set only, while the rectangles may follow the thread count.
//!
//! Each worker slot (a running thread) has its own packed blocks. Packing A once per column of tasks and B once per row of tasks
//! is repeated work, at most a few per cent; in return there is no barrier inside a product.

use super::epilogue::{Epilogue, Then};
use super::kernel::{FEW_ROWS, Kernels, MAX_MR};
use super::pack::{pack_a, pack_b};
use super::rows::{Rows, packed_tile};
use super::{Corner, GemmElement, View};
use crate::cache::l2_bytes;
use crate::pool::{Parts, Pool, part_range};
use crate::prefetch::PrefetchLines;
use crate::simd::ROUND;
use std::ops::Range;

/// Bytes of a packed block of A: together with the streams of B and C it stays in a 512 KiB L2 cache.
const A_BLOCK_BYTES: usize = 160 << 10;
/// Bytes of a packed block of B: streamed from the last-level cache, and the bulk of a slot's workspace. An A that is packed
/// is so for each of them.
const B_BLOCK_BYTES: usize = 3200 << 10;
/// Multiply-adds below which a second thread costs more than it brings.
const TASK_MIN_MULS: usize = 1 << 19;
/// Tasks per thread, so that a thread that is held up does not keep the others waiting for long.
const TASKS_PER_THREAD: usize = 3;
/// Fewest rows or columns of a task when there is one for each thread: each packs its A and B for itself.
const TASK_MIN_SIDE: usize = 384;
/// Elements from the first to the last of an operand that is read where it is: both then stay in the first caches, and
/// packing them would cost as much as it saves.
const IN_PLACE_ELEMS: usize = 1 << 13;
/// Bytes of a B that comes from a cache fast enough to be read where it is, where few rows of tiles need it. From memory it is
/// packed, for that prefetches what comes next.
const B_IN_CACHE_BYTES: usize = 8 << 20;
/// Rows of a tile that a first cache holds side by side although they begin at the same place of it.
const FEW_ROWS_OF_A: usize = 6;
/// Alignment of packed blocks: a cache line.
pub(crate) const ALIGN_BYTES: usize = 64;

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
    /// Most rows and columns of a packed block.
    mc: usize,
    nc: usize,
    /// Elements of the packed blocks of one slot, and of its scratch memory for an epilogue.
    a_len: usize,
    b_len: usize,
    scratch_len: usize,
}

impl Plan {
    pub(super) fn new<T>(kernels: &Kernels<T>, m: usize, n: usize, k: usize, threads: usize) -> Plan {
        let (mr, nr) = (kernels.mr(), kernels.nr());
        let size = size_of::<T>();
        let grid = if is_few(m, n, k) {
            // long rows, for memory is read in order
            let muls = m.saturating_mul(n).saturating_mul(k);
            [1, (muls / TASK_MIN_MULS).clamp(1, threads).min(n.div_ceil(nr))]
        } else {
            grid(m, n, k, mr, nr, threads)
        };
        // equal blocks of whole rounds: a short one would read and write C for little
        let kc = k.div_ceil(k.div_ceil(kernels.depth).max(1)).next_multiple_of(ROUND);
        // The largest task: ranges of rows differ by one, ranges of columns by one panel.
        let task_m = m.div_ceil(grid[0]);
        let task_n = n.div_ceil(nr).div_ceil(grid[1]) * nr;
        // a panel of A meets a block of B after the other panel, or a panel of B one of A
        let b_bytes = if kernels.is_wide() { l2_bytes() / 2 } else { B_BLOCK_BYTES };
        let mc = (A_BLOCK_BYTES / (kernels.depth * size) / mr * mr).min(task_m);
        let nc = (b_bytes / (kernels.depth * size) / nr * nr).min(task_n);
        let line = ALIGN_BYTES / size;
        let [a_len, b_len] = [mc * kc, nc * kc].map(|len| len.next_multiple_of(line));
        Plan { m, n, k, kc, grid, mc, nc, a_len, b_len, scratch_len: 0 }
    }

    /// With scratch memory for an epilogue: so many elements, in whole cache lines.
    pub(super) fn with_scratch(self, scratch_len: usize) -> Plan {
        Plan { scratch_len, ..self }
    }

    /// Elements of workspace of one slot; a multiple of a cache line.
    pub(super) fn slot_len(&self) -> usize {
        self.a_len + self.b_len + self.scratch_len
    }

    pub(super) fn tasks(&self) -> usize {
        self.grid[0] * self.grid[1]
    }
}

/// True if rows are too few for packing B, or reading a panel of it after the other.
fn is_few(m: usize, n: usize, k: usize) -> bool {
    m <= FEW_ROWS && n.saturating_mul(k) > IN_PLACE_ELEMS
}

/// Cuts C into `rows x columns` of tasks: enough for the threads if there is work enough, cutting the longer side first
/// (a squarer task packs less per product), and as many for each thread, for no thread to wait while others have one more.
pub(crate) fn grid(m: usize, n: usize, k: usize, mr: usize, nr: usize, threads: usize) -> [usize; 2] {
    let muls = m.saturating_mul(n).saturating_mul(k);
    let wanted = if threads == 1 { 1 } else { (muls / TASK_MIN_MULS).clamp(1, threads * TASKS_PER_THREAD) };
    let most = [m.div_ceil(mr), n.div_ceil(nr)];
    let (mut grid, mut even) = ([1, 1], [1, 1]);
    while grid[0] * grid[1] < wanted {
        let side = [m / grid[0], n / grid[1]];
        let axis = usize::from(side[1] >= side[0]);
        let axis = if grid[axis] < most[axis] { axis } else { 1 - axis };
        let is_short = [m, n][axis] / (grid[axis] + 1) < TASK_MIN_SIDE;
        if grid[axis] >= most[axis] || (is_short && grid[0] * grid[1] >= threads) {
            break;
        }
        grid[axis] += 1;
        let tasks = grid[0] * grid[1];
        if tasks < threads || tasks.is_multiple_of(threads) {
            even = grid;
        }
    }
    even
}

/// The rows and columns of a task; neighbouring tasks share columns of B.
pub(super) fn rectangle(task: usize, grid: [usize; 2], m: usize, n: usize, nr: usize) -> [Range<usize>; 2] {
    let panels = part_range(n.div_ceil(nr), grid[1], task / grid[0]);
    [part_range(m, grid[0], task % grid[0]), panels.start * nr..(panels.end * nr).min(n)]
}

/// True if a product is a single task whatever the threads, of operands that need no packing: there is nothing to plan.
pub(super) fn is_small_task<T>(kernels: &Kernels<T>, [m, n, k]: [usize; 3], a: View<T>, b: View<T>) -> bool {
    let muls = m.saturating_mul(n).saturating_mul(k);
    muls < 2 * TASK_MIN_MULS && !is_few(m, n, k) && is_small(kernels, [m, n, k], a, b)
}

/// True if the operands of a rectangle need no packing: small, in order one way, rows of B in whole vectors, and all of `k` in
/// one block.
fn is_small<T>(kernels: &Kernels<T>, [m, n, k]: [usize; 3], a: View<T>, b: View<T>) -> bool {
    let reach = |rows: usize, stride: isize| rows.saturating_mul(stride.unsigned_abs());
    let in_order = a.col_stride == 1 && reach(m, a.row_stride) <= IN_PLACE_ELEMS
        || a.row_stride == 1 && reach(k, a.col_stride) <= IN_PLACE_ELEMS;
    k <= kernels.depth
        && n.is_multiple_of(kernels.lanes)
        && (b.col_stride, b.row_stride > 0) == (1, true)
        && reach(k, b.row_stride) <= IN_PLACE_ELEMS
        && in_order
}

/// The tiles of a small rectangle, from the operands where they are. The sums are those of the packed ones, in the same
/// order.
///
/// # Safety
/// As [`product`], for the `m x n` rectangle at `c`; `n` is of whole vectors, and rows of B are contiguous.
pub(super) unsafe fn in_place<T>(
    kernels: &Kernels<T>,
    [m, n, k]: [usize; 3],
    a: View<T>,
    b: View<T>,
    c: *mut T,
    ldc: usize,
    accumulate: bool,
) {
    let (nr, lanes) = (kernels.nr(), kernels.lanes);
    let (a_step, ldb) = ([a.row_stride, a.col_stride], b.row_stride as usize);
    let panels = m.div_ceil(kernels.mr());
    let all_rows = Parts::new(m, panels);
    // both operands stay in the first caches, so the tiles follow the rows of C
    for rows in (0..panels).map(|panel| all_rows.get(panel)) {
        for j in (0..n).step_by(nr) {
            let tile = kernels.tiles_in_place[rows.len() - 1][nr.min(n - j) / lanes - 1];
            // SAFETY: the tile's rows and columns lie in the rectangle.
            unsafe {
                tile(k, a.at(rows.start, 0), a_step, b.at(0, j), ldb, c.add(rows.start * ldc + j), ldc, accumulate);
            }
        }
    }
}

/// The product by blocks, and what is then done with its elements. `workspace` holds one or more slots of
/// `plan.slot_len()` elements.
///
/// # Safety
/// `a` is readable for `m x k`, `b` for `k x n`; `c` is writable for `m` rows of `n` elements, `ldc` apart, which do not
/// overlap; the processor has the instruction set of `kernels`. With an epilogue `ldc` is `n`, and no other product has it.
pub(super) unsafe fn product<T: GemmElement>(
    pool: &Pool,
    kernels: &Kernels<T>,
    plan: &Plan,
    a: View<T>,
    b: View<T>,
    c: *mut T,
    ldc: usize,
    accumulate: bool,
    epilogue: Option<&Epilogue<'_, T>>,
    workspace: &mut [T],
) {
    let corner = Corner(c);
    pool.with_slots(plan.tasks(), workspace, plan.slot_len(), |task, slot| {
        let corner = &corner;
        let [rows, cols] = rectangle(task, plan.grid, plan.m, plan.n, kernels.nr());
        let then = epilogue.map(|e| Then::new(e, [rows.start, cols.start], plan.n));
        let task = Task { kernels, plan, ldc, accumulate, then };
        // SAFETY: `rows` and `cols` lie within m and n, and no other task has an element of this rectangle.
        unsafe {
            task.run(
                a.shifted(rows.start, 0),
                b.shifted(0, cols.start),
                corner.0.add(rows.start * ldc + cols.start),
                rows.len(),
                cols.len(),
                slot,
            );
        }
    });
}

struct Task<'a, 'e, T: 'static> {
    kernels: &'a Kernels<T>,
    plan: &'a Plan,
    ldc: usize,
    accumulate: bool,
    then: Option<Then<'a, 'e, T>>,
}

impl<T: GemmElement> Task<'_, '_, T> {
    /// # Safety
    /// As [`product`], for the `m x n` rectangle at `c`.
    unsafe fn run(&self, a: View<T>, b: View<T>, c: *mut T, m: usize, n: usize, slot: &mut [T]) {
        let plan = self.plan;
        let (a_block, slot) = slot.split_at_mut(plan.a_len);
        let (b_block, scratch) = slot.split_at_mut(plan.b_len);
        let b_bytes = n.saturating_mul(plan.k).saturating_mul(size_of::<T>());
        let is_row = m <= MAX_MR && b_bytes <= B_IN_CACHE_BYTES && (b.col_stride, b.row_stride > 0) == (1, true);
        // SAFETY: same contract; the rectangle is finished once.
        unsafe {
            if is_few(plan.m, plan.n, plan.k) {
                self.few_rows(a, b, c, m, n, b_block);
            } else if is_small(self.kernels, [m, n, plan.k], a, b) {
                in_place(self.kernels, [m, n, plan.k], a, b, c, self.ldc, self.accumulate);
            } else if is_row {
                self.row_of_tiles(a, b, c, m, n, a_block, b_block);
            } else {
                return self.blocks(a, b, c, m, n, [a_block, b_block, scratch]);
            }
            if let Some(then) = self.then {
                then.finish(0..m, 0..n, c, scratch);
            }
        }
    }

    /// The rectangle by blocks, whose rows are finished as they come.
    ///
    /// # Safety
    /// As [`Task::run`].
    unsafe fn blocks(
        &self,
        a: View<T>,
        b: View<T>,
        c: *mut T,
        m: usize,
        n: usize,
        [a_block, b_block, scratch]: [&mut [T]; 3],
    ) {
        let plan = self.plan;
        let mr = self.kernels.mr();
        // Rows that drive each other out stay where they are if few at a time are enough: in tiles so wide that these keep a
        // processor busy, or where a single panel of B would not bring in again what packing costs.
        let few = mr.min(FEW_ROWS_OF_A);
        let is_column_major = Rows::is_column_major(a, n.div_ceil(self.kernels.nr()));
        let is_apart = is_column_major || Rows::can_skip_packing(a);
        let stays = is_apart || a.col_stride == 1 && (few == mr || n <= self.kernels.nr());
        let mr = if stays && !is_apart { few } else { mr };
        if !stays && self.kernels.is_wide() && self.is_by_columns(m, n) {
            // SAFETY: same contract.
            return unsafe { self.by_columns(a, b, c, m, n, [b_block, a_block, scratch]) };
        }
        for j in (0..n).step_by(plan.nc) {
            let nc = plan.nc.min(n - j);
            for p in (0..plan.k).step_by(plan.kc) {
                let kc = plan.kc.min(plan.k - p);
                // SAFETY: the block is within the rectangle and `k`.
                unsafe { pack_b(b.shifted(p, j), kc, nc, self.kernels.nr(), self.kernels.lanes, b_block) };
                for i in (0..m).step_by(plan.mc) {
                    let mc = plan.mc.min(m - i);
                    let part = a.shifted(i, p);
                    // SAFETY: as above; the packed blocks hold `mc x kc` and `kc x nc`.
                    unsafe {
                        if !stays {
                            pack_a(part, mc, kc, mr, a_block);
                        }
                        let a = if stays { Rows::InPlace(part) } else { Rows::Packed(a_block, PrefetchLines::NONE) };
                        let then = self.then.filter(|_| p + kc == plan.k);
                        let done = |rows: Range<usize>| {
                            if let Some(then) = then {
                                then.finish(i + rows.start..i + rows.end, j..j + nc, c, scratch);
                            }
                        };
                        // only wide tiles finish a panel of rows before the next: what is prefetched is read soon
                        let prefetches = then.filter(|_| self.kernels.is_wide());
                        let begin = |_, rows: &Range<usize>, columns: Range<usize>| {
                            if let Some(then) = prefetches {
                                then.prefetch(i + rows.start..i + rows.end, j + columns.start..j + columns.end);
                            }
                            PrefetchLines::NONE
                        };
                        let corner = c.add(i * self.ldc + j);
                        self.block(a, b_block, corner, [mr, mc, nc, kc], self.accumulate || p > 0, begin, done);
                    }
                }
            }
        }
    }

    /// True if A, which is packed, is so by blocks and B by panels: the one that comes by panels is prefetched before, and the
    /// other is packed again for each block of it.
    fn is_by_columns(&self, m: usize, n: usize) -> bool {
        let (plan, mr) = (self.plan, self.kernels.mr());
        let rows = plan.b_len / plan.kc / mr * mr;
        // each takes the other's memory, that of few rows of A is too small for a panel
        let fits = rows > 0 && plan.a_len >= self.kernels.nr() * plan.kc;
        fits && 2 * m + m.div_ceil(rows) * n <= 2 * n + n.div_ceil(plan.nc) * m
    }

    /// The rectangle by blocks of A, each with the panels of B one after the other. While the tiles of a panel run they prefetch
    /// what the next one will be packed from: to read that from memory first took a tenth of a weight gradient.
    ///
    /// # Safety
    /// As [`Task::run`].
    unsafe fn by_columns(
        &self,
        a: View<T>,
        b: View<T>,
        c: *mut T,
        m: usize,
        n: usize,
        [a_block, b_panel, scratch]: [&mut [T]; 3],
    ) {
        let (plan, mr, nr) = (self.plan, self.kernels.mr(), self.kernels.nr());
        let most_rows = a_block.len() / plan.kc / mr * mr;
        let columns = n.div_ceil(nr);
        for i in (0..m).step_by(most_rows) {
            let mc = most_rows.min(m - i);
            let tiles = mc.div_ceil(mr);
            for p in (0..plan.k).step_by(plan.kc) {
                let kc = plan.kc.min(plan.k - p);
                // SAFETY: the block is within the rectangle and `k`.
                unsafe { pack_a(a.shifted(i, p), mc, kc, mr, a_block) };
                // the next block is prefetched in the last panels, by tiles that have nothing else to prefetch
                let next_kc = plan.kc.min(plan.k - p - kc);
                let next_block = a.shifted(i, p + kc).prefetched([mc, next_kc], usize::MAX, kc);
                for (column, j) in (0..n).step_by(nr).enumerate() {
                    let nc = nr.min(n - j);
                    let (next_j, next_p) = if j + nc < n { (j + nc, p) } else { (0, p + kc) };
                    let next = [plan.kc.min(plan.k - next_p), nr.min(n - next_j)];
                    let next = b.shifted(next_p, next_j).prefetched(next, tiles, kc);
                    let prefetching = next.tiles();
                    let idle = tiles.saturating_sub(prefetching);
                    let idle_left = (columns - column) * idle;
                    let ahead = |tile: usize, _: &Range<usize>, _: Range<usize>| match tile.checked_sub(prefetching) {
                        None => next.part(tile),
                        Some(of_idle) => {
                            let part = (next_block.tiles() + of_idle).checked_sub(idle_left);
                            part.map_or(PrefetchLines::NONE, |part| next_block.part(part))
                        }
                    };
                    // SAFETY: as above; the panel holds `kc x nr`.
                    unsafe {
                        pack_b(b.shifted(p, j), kc, nc, nr, self.kernels.lanes, b_panel);
                        let a = Rows::Packed(a_block, PrefetchLines::NONE);
                        let corner = c.add(i * self.ldc + j);
                        self.block(a, b_panel, corner, [mr, mc, nc, kc], self.accumulate || p > 0, ahead, |_| {});
                        if let Some(then) = self.then.filter(|_| p + kc == plan.k) {
                            then.finish(i..i + mc, j..j + nc, c, scratch);
                        }
                    }
                }
            }
        }
    }

    /// Few rows: those of B are added up, some whole ones after the other, since that is how memory is read fastest. A B of
    /// another order is packed.
    ///
    /// # Safety
    /// As [`Task::run`], for at most [`FEW_ROWS`] rows.
    unsafe fn few_rows(&self, a: View<T>, b: View<T>, c: *mut T, m: usize, n: usize, b_block: &mut [T]) {
        let (plan, nr, lanes) = (self.plan, self.kernels.nr(), self.kernels.lanes);
        let (add_rows, step) = (self.kernels.add_rows, [a.row_stride, a.col_stride]);
        if b.col_stride == 1 {
            // SAFETY: all steps of the rectangle's columns.
            return unsafe {
                add_rows([m, n, plan.k], a.data, step, b.data, b.row_stride, c, self.ldc, self.accumulate)
            };
        }
        for j in (0..n).step_by(plan.nc) {
            let nc = plan.nc.min(n - j);
            for p in (0..plan.k).step_by(plan.kc) {
                let kc = plan.kc.min(plan.k - p);
                // SAFETY: the block is within the rectangle and `k`.
                unsafe { pack_b(b.shifted(p, j), kc, nc, nr, lanes, b_block) };
                for first in (0..nc).step_by(nr) {
                    let valid = nr.min(nc - first);
                    let width = valid.next_multiple_of(lanes);
                    let panel = &b_block[first * kc..][..width * kc];
                    let (a, c, accumulate) = (a.at(0, p), c.wrapping_add(j + first), self.accumulate || p > 0);
                    // SAFETY: the panel has `kc` rows of `width >= valid`.
                    unsafe {
                        add_rows([m, valid, kc], a, step, panel.as_ptr(), width as isize, c, self.ldc, accumulate)
                    };
                }
            }
        }
    }

    /// A row of tiles or a few, which need each element of B from afar once: B is read where it is, but for a last panel that is
    /// not of whole vectors. The sums are those of packed operands, in the same order.
    ///
    /// # Safety
    /// As [`Task::run`]; rows of B are contiguous.
    unsafe fn row_of_tiles(
        &self,
        a: View<T>,
        b: View<T>,
        c: *mut T,
        m: usize,
        n: usize,
        a_block: &mut [T],
        b_block: &mut [T],
    ) {
        let (plan, nr, lanes) = (self.plan, self.kernels.nr(), self.kernels.lanes);
        let (whole, ldb) = (n / lanes * lanes, b.row_stride as usize);
        let panels = m.div_ceil(self.kernels.mr());
        for p in (0..plan.k).step_by(plan.kc) {
            let (kc, accumulate) = (plan.kc.min(plan.k - p), self.accumulate || p > 0);
            // SAFETY: the steps are below `k`; columns up to `whole` are of whole vectors, the others are packed.
            unsafe {
                pack_a(a.shifted(0, p), m, kc, self.kernels.mr(), a_block);
                let panel = |panel: usize| {
                    let rows = part_range(m, panels, panel);
                    (&a_block[rows.start * kc..rows.end * kc], rows.len(), c.add(rows.start * self.ldc))
                };
                for j in (0..whole).step_by(nr) {
                    for (a, rows, c) in (0..panels).map(panel) {
                        let tile = self.kernels.tiles_in_place[rows - 1][nr.min(whole - j) / lanes - 1];
                        tile(kc, a.as_ptr(), [1, rows as isize], b.at(p, j), ldb, c.add(j), self.ldc, accumulate);
                    }
                }
                if whole < n {
                    pack_b(b.shifted(p, whole), kc, n - whole, nr, lanes, b_block);
                    for (a, rows, c) in (0..panels).map(panel) {
                        let a = Rows::Packed(a, PrefetchLines::NONE);
                        packed_tile(
                            self.kernels,
                            [rows, n - whole],
                            kc,
                            a,
                            b_block,
                            c.add(whole),
                            self.ldc,
                            accumulate,
                        );
                    }
                }
            }
        }
    }

    /// All tiles, of at most `mr` rows, of an `mc x kc` block of A times a packed `kc x nc` block of B. `begin` gets each tile
    /// before it is computed, its number, rows and columns, and says what it prefetches; `done` the rows that are through, some at a
    /// time.
    ///
    /// # Safety
    /// `c` is writable for `mc` rows of `nc`; the block of A can be read, or is packed in panels of `mr`, and that of B is.
    unsafe fn block(
        &self,
        a: Rows<'_, T>,
        b: &[T],
        c: *mut T,
        [mr, mc, nc, kc]: [usize; 4],
        accumulate: bool,
        begin: impl Fn(usize, &Range<usize>, Range<usize>) -> PrefetchLines<T>,
        mut done: impl FnMut(Range<usize>),
    ) {
        let (nr, lanes) = (self.kernels.nr(), self.kernels.lanes);
        let (panels, columns) = (mc.div_ceil(mr), nc.div_ceil(nr));
        let all_rows = Parts::new(mc, panels);
        let tile = |panel: usize, column: usize| {
            let (rows, j) = (all_rows.get(panel), column * nr);
            let valid = nr.min(nc - j);
            let b_panel = &b[j * kc..][..valid.next_multiple_of(lanes) * kc];
            // SAFETY: the panels have `kc` steps of the tile's rows and columns, and the tile lies within C.
            unsafe {
                let c = c.add(rows.start * self.ldc + j);
                let a_panel = a.panel(&rows, kc).with_prefetch(begin(panel * columns + column, &rows, j..j + valid));
                packed_tile(self.kernels, [rows.len(), valid], kc, a_panel, b_panel, c, self.ldc, accumulate);
            }
        };
        if self.kernels.is_wide() {
            for panel in 0..panels {
                (0..columns).for_each(|column| tile(panel, column));
                done(all_rows.get(panel));
            }
        } else {
            for column in 0..columns {
                (0..panels).for_each(|panel| tile(panel, column));
            }
            done(0..mc);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_as_many_for_each_thread() {
        let sides = [64, 384, 500, 1000, 1536, 2048, 5000];
        for (m, n) in sides.into_iter().flat_map(|m| sides.map(|n| (m, n))) {
            for threads in 1..6 {
                let tasks: usize = grid(m, n, 384, 14, 32, threads).into_iter().product();
                assert!(
                    tasks < threads || tasks.is_multiple_of(threads),
                    "{tasks} tasks of {m}x{n} on {threads} threads"
                );
                // cut at all where there is work for as many threads
                let least = (m * n * 384 / TASK_MIN_MULS).min(m.div_ceil(14)).min(threads);
                assert!(2 * tasks > least, "{tasks} tasks of {m}x{n} on {threads} threads");
            }
        }
    }
}
