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
//! Each lane (a running thread) has its own packed blocks. Packing A once per column of tasks and B once per row of tasks
//! is repeated work, at most a few per cent; in return there is no barrier inside a product.

use super::epilogue::{Epilogue, Then};
use super::kernel::{Ahead, FEW_ROWS, Kernels, MAX_MR, MAX_TILE};
use super::pack::{pack_a, pack_b};
use super::{Corner, GemmElement, View};
use crate::cache::l2_bytes;
use crate::pool::{Parts, Pool, part_range};
use crate::simd::{LINE_BYTES, ROUND};
use std::ops::Range;

/// Bytes of a packed block of A: together with the streams of B and C it stays in a 512 KiB L2 cache.
const A_BLOCK_BYTES: usize = 160 << 10;
/// Bytes of a packed block of B: streamed from the last-level cache, and the bulk of a lane's workspace. An A that is packed
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
/// packed, for that asks for what comes next.
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
    /// Elements of the packed blocks of one lane, and of its scratch memory for an epilogue.
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

    /// Elements of workspace of one lane; a multiple of a cache line.
    pub(super) fn lane_len(&self) -> usize {
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

/// The product by blocks, and what is then done with its elements. `workspace` holds one or more lanes of
/// `plan.lane_len()` elements.
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
    pool.lanes(plan.tasks(), workspace, plan.lane_len(), |task, lane| {
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
                lane,
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
    unsafe fn run(&self, a: View<T>, b: View<T>, c: *mut T, m: usize, n: usize, lane: &mut [T]) {
        let plan = self.plan;
        let (a_block, lane) = lane.split_at_mut(plan.a_len);
        let (b_block, scratch) = lane.split_at_mut(plan.b_len);
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
        let turned = Rows::is_turned(a, n.div_ceil(self.kernels.nr()));
        let is_apart = turned || Rows::may_stay(a);
        let stays = is_apart || a.col_stride == 1 && (few == mr || n <= self.kernels.nr());
        let mr = if stays && !is_apart { few } else { mr };
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
                        let a = if stays { Rows::InPlace(part) } else { Rows::Packed(a_block, Ahead::NONE) };
                        let then = self.then.filter(|_| p + kc == plan.k);
                        let done = |rows: Range<usize>| {
                            if let Some(then) = then {
                                then.finish(i + rows.start..i + rows.end, j..j + nc, c, scratch);
                            }
                        };
                        let corner = c.add(i * self.ldc + j);
                        self.block(a, b_block, corner, [mr, mc, nc, kc], self.accumulate || p > 0, done);
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
                        let a = Rows::Packed(a, Ahead::NONE);
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

    /// All tiles, of at most `mr` rows, of an `mc x kc` block of A times a packed `kc x nc` block of B. `done` gets the rows
    /// that are through, some at a time.
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
                let a_panel = a.panel(&rows, kc);
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

/// Rows of A, as tiles read them.
#[derive(Clone, Copy)]
pub(crate) enum Rows<'a, T> {
    /// Packed by [`pack_a`], with what their tiles ask for meanwhile.
    Packed(&'a [T], Ahead<T>),
    /// Where they are. Their places take all registers, and leave none for asking.
    InPlace(View<T>),
}

/// Bytes after which addresses fall on the same sets of a first cache again, on all processors of today.
const CACHE_WAY_BYTES: usize = 4096;

impl<T: Copy> Rows<'_, T> {
    /// True if tiles read `a` where it is as fast as when packed: rows in order, which do not drive each other out of the first
    /// cache because they begin at the same place of it.
    fn may_stay(a: View<T>) -> bool {
        a.col_stride == 1 && Self::is_spread(a.row_stride)
    }

    /// True if tiles read `a`, whose columns are in order, where it is: for so few panels of B that packing would take longer than
    /// bringing in again what drives each other out.
    fn is_turned(a: View<T>, panels: usize) -> bool {
        a.row_stride == 1 && (panels <= 1 || panels == 2 && Self::is_spread(a.col_stride))
    }

    /// True if places so far apart do not begin at the same place of the first cache.
    fn is_spread(stride: isize) -> bool {
        let apart = stride.unsigned_abs().saturating_mul(size_of::<T>());
        let spread = LINE_BYTES..=CACHE_WAY_BYTES - LINE_BYTES;
        apart < LINE_BYTES || spread.contains(&(apart % CACHE_WAY_BYTES))
    }

    /// The rows of a tile of `kc` steps.
    #[inline(always)]
    pub(crate) fn panel(&self, rows: &Range<usize>, kc: usize) -> Self {
        match self {
            Rows::Packed(a, ahead) => Rows::Packed(&a[rows.start * kc..rows.end * kc], *ahead),
            Rows::InPlace(a) => Rows::InPlace(a.shifted(rows.start, 0)),
        }
    }
}

/// One tile of `rows x valid` from rows of A and a packed panel of B, whose width is `valid` rounded up to whole vectors.
///
/// # Safety
/// The processor has the instruction set of `kernels`; the panel has `kc` steps, and so have the rows, packed or readable;
/// `c` is writable for this tile.
#[inline(always)]
pub(crate) unsafe fn packed_tile<T: GemmElement>(
    kernels: &Kernels<T>,
    [rows, valid]: [usize; 2],
    kc: usize,
    a: Rows<'_, T>,
    b: &[T],
    c: *mut T,
    ldc: usize,
    accumulate: bool,
) {
    let width = valid.next_multiple_of(kernels.lanes);
    debug_assert!(rows * width <= MAX_TILE && b.len() >= width * kc);
    let of_width = width / kernels.lanes - 1;
    let tile = |c: *mut T, ldc: usize, accumulate: bool| {
        // SAFETY: as the caller says.
        unsafe {
            match a {
                Rows::Packed(a, ahead) => {
                    debug_assert!(a.len() >= rows * kc);
                    kernels.tiles[rows - 1][of_width](kc, a.as_ptr(), b.as_ptr(), c, ldc, accumulate, ahead);
                }
                Rows::InPlace(a) => {
                    let (tile, step) = (kernels.tiles_in_place[rows - 1][of_width], [a.row_stride, a.col_stride]);
                    tile(kc, a.data, step, b.as_ptr(), width, c, ldc, accumulate);
                }
            }
        }
    };
    // SAFETY: a full tile lies within C; any other goes through a buffer, and only its valid part is added.
    unsafe {
        if valid == width {
            return tile(c, ldc, accumulate);
        }
        let mut buffer = [T::default(); MAX_TILE];
        tile(buffer.as_mut_ptr(), width, false);
        for i in 0..rows {
            let row = std::slice::from_raw_parts_mut(c.add(i * ldc), valid);
            for (y, &x) in row.iter_mut().zip(&buffer[i * width..]) {
                *y = if accumulate { T::of(T::add(y.widen(), x.widen())) } else { x };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_unless_they_share_sets_of_the_first_cache() {
        let stays =
            |row_stride, col_stride| Rows::may_stay(View::<f32> { data: std::ptr::null(), row_stride, col_stride });
        assert!([0, 1, 7, 64, 512, -512, 1000, 1040, 1536, 2032].into_iter().all(|s| stays(s, 1)));
        assert!([1009, 1023, 1024, -1024, 1025, 1039, 2048, 4096, isize::MAX].into_iter().all(|s| !stays(s, 1)));
        assert!(!stays(1, 512) && !stays(512, 2) && !stays(512, -1), "rows out of order are packed");
        let turned = |row_stride, col_stride, panels| {
            Rows::is_turned(View::<f32> { data: std::ptr::null(), row_stride, col_stride }, panels)
        };
        assert!([(512, 1), (1024, 1), (512, 2)].into_iter().all(|(stride, panels)| turned(1, stride, panels)));
        assert!([(1024, 2), (512, 3)].into_iter().all(|(stride, panels)| !turned(1, stride, panels)));
        assert!(!turned(512, 1, 1) && !turned(2, 512, 1));
    }

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
