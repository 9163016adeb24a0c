//! Convolutions whose outputs sum over many channels: tiles over panels of packed weights.
//!
//! The output is cut into tasks: some rows of an image (or some whole images, if they are small) by some panels of output
//! channels. A padded or planar input is first copied into the task's workspace with its margins, a few rows at a time, so
//! that no tile asks where the image ends; one without padding is read in place. Within a task, a panel's weights are used
//! in chunks that stay in the L1 cache while all places of the task go by; between chunks sums wait in `y`. So the order of
//! a sum is: bias and what is added, then channel blocks, taps, lanes.

use super::kernel::{MAX_COLUMNS, Tile};
use super::{Blocked, Operands};
use crate::cache::l2_bytes;
use crate::gemm::aligned;
use crate::pool::{Parts, Pool, part_range};
use crate::prefetch::PrefetchLines;

/// Bytes of weights that stay in an L1 cache of 32 KiB beside what streams by.
const CHUNK_BYTES: usize = 16 << 10;
/// Those of wide panels, from which a tile takes more at a time for fewer columns: of a cache of 48 KiB.
const WIDE_CHUNK_BYTES: usize = 32 << 10;
/// Alignment of a slot's workspace: a cache line.
const ALIGN_BYTES: usize = 64;
/// Places of an image from one that is read to the one that is prefetched: some tiles, so that it is there in time.
const COLUMNS_AHEAD: usize = 48;
/// The cost of copying an element, in multiply-adds of one vector.
const COPY_COST: usize = 1;
/// The cost of beginning a task, in multiply-adds of one vector.
const TASK_COST: usize = 4000;

/// The sizes of a group's sums.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    /// Input channels, the lanes of a block of them, and the blocks. The last block may not be full.
    pub channels: usize,
    pub width: usize,
    pub blocks: usize,
    pub taps: usize,
    /// Blocks of output channels, and lanes of each.
    pub outputs: usize,
    pub lanes: usize,
    pub groups: usize,
    pub panels: Panels,
}

impl Sums {
    pub(super) fn of(b: &Blocked) -> Sums {
        let (c, k) = (b.conv.c / b.conv.groups, b.conv.k / b.conv.groups);
        let (blocks, width) = if b.planar { (1, c) } else { (c.div_ceil(b.block), b.block) };
        let taps = b.conv.r * b.conv.s;
        let outputs = k.div_ceil(b.block);
        let panels = Panels::new(outputs, b.wide);
        Sums { channels: c, width, blocks, taps, outputs, lanes: b.block, groups: b.conv.groups, panels }
    }

    /// Steps of a sum in a block of input channels.
    fn block_steps(&self) -> usize {
        self.taps * self.width
    }

    pub(super) fn packed_len(&self) -> usize {
        self.groups * self.group_len()
    }

    fn steps(&self) -> usize {
        self.channels * self.taps
    }

    fn group_len(&self) -> usize {
        self.outputs * self.lanes * self.steps()
    }

    /// Block, tap and lane of a step: lanes beyond the last channel have none.
    fn place(&self, step: usize) -> [usize; 3] {
        let block = step / self.block_steps();
        let lanes = self.width.min(self.channels - block * self.width);
        let within = step % self.block_steps();
        [block, within / lanes, within % lanes]
    }
}

/// The panels of some blocks of output channels: a tile has as many vectors as its panel has blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panels {
    outputs: usize,
    wide: bool,
}

impl Panels {
    /// Panels of two blocks, one of three if the number is odd, or of one if that is all; wide ones of three, and some of one
    /// less so that they are even.
    pub(super) fn new(outputs: usize, wide: bool) -> Panels {
        Panels { outputs, wide }
    }

    pub(super) fn count(self) -> usize {
        if self.wide { self.outputs.div_ceil(3) } else { (self.outputs / 2).max(1) }
    }

    /// First block and number of blocks of a panel.
    pub(super) fn get(self, i: usize) -> (usize, usize) {
        let blocks = part_range(self.outputs, self.count(), i);
        (blocks.start, blocks.len())
    }

    /// Blocks of the widest one.
    pub(super) fn most(self) -> usize {
        self.outputs.div_ceil(self.count().max(1))
    }

    /// Blocks of most panels.
    fn usual(self) -> usize {
        if self.wide { self.most() } else { 2 }
    }
}

/// `packed` is zeroed; the order is group, panel, block of inputs, tap, input lane, output of the panel.
pub(super) fn pack(b: &Blocked, weight: &[f32], packed: &mut [f32]) {
    let s = Sums::of(b);
    let (c, k) = (b.conv.c / b.conv.groups, b.conv.k / b.conv.groups);
    for (group, packed) in packed.chunks_exact_mut(s.group_len()).enumerate() {
        for i in 0..s.panels.count() {
            let (first, vectors) = s.panels.get(i);
            let row = vectors * s.lanes;
            let packed = &mut packed[first * s.lanes * s.steps()..][..row * s.steps()];
            for (step, packed) in packed.chunks_exact_mut(row).enumerate() {
                let [block, tap, lane] = s.place(step);
                let from = block * s.width + lane;
                for (o, packed) in packed.iter_mut().enumerate() {
                    let to = first * s.lanes + o;
                    if to < k {
                        *packed = weight[((group * k + to) * c + from) * s.taps + tap];
                    }
                }
            }
        }
    }
}

/// How the output is cut: a pure function of the geometry, the number of threads and the machine.
struct Plan {
    /// Images of a task, or parts of an image: one of them is 1.
    images: usize,
    parts: usize,
    panel_parts: usize,
    /// Rows of the input that the largest part of an image reads, and places of each.
    rows: usize,
    row: usize,
    copies: bool,
    /// Places of the output of the largest task.
    places: usize,
    /// Blocks of input channels of a chunk.
    chunk: usize,
}

impl Plan {
    fn new(b: &Blocked, threads: usize) -> Plan {
        let (g, s) = (&b.conv, Sums::of(b));
        let reach = |kernel: usize, dilation: usize| (kernel - 1) * dilation + 1;
        let rows = |out: usize| (out - 1) * g.stride[0] + reach(g.r, g.dilation[0]);
        let copies = b.planar || !g.pad.is_none();
        let row = if copies { (g.ow - 1) * g.stride[1] + reach(g.s, g.dilation[1]) } else { g.w };
        let row_bytes = row * s.blocks * s.width * size_of::<f32>();
        // the rows that a task reads stay in the L2 cache, beside weights and sums that stream by
        let strip_bytes = l2_bytes() / 16 * 5;
        let fits = |parts: &usize| rows(g.oh.div_ceil(*parts)) * row_bytes <= strip_bytes;
        let fewest = (1..g.oh).find(fits).unwrap_or(g.oh);
        let images = if fewest > 1 { 1 } else { (strip_bytes / (rows(g.oh) * row_bytes)).clamp(1, g.n.max(1)) };
        let all_panels = s.panels.count();
        // the cut whose slowest thread is done first; of equals the coarsest
        let cost = |(images, parts, panel_parts): (usize, usize, usize)| {
            let out = g.oh.div_ceil(parts);
            let tasks = g.n.div_ceil(images) * parts * panel_parts * s.groups;
            let blocks = s.panels.usual() * all_panels.div_ceil(panel_parts);
            let sums = out * g.ow * blocks * s.blocks * s.block_steps();
            let copied = if copies { COPY_COST * rows(out) * row * s.blocks } else { 0 };
            tasks.div_ceil(threads) * (images * (sums + copied) + TASK_COST)
        };
        let few = |most: usize| 1..=most.min(if threads == 1 { 1 } else { 4 * threads });
        let part_counts = fewest..=(if threads == 1 { fewest } else { g.oh.min(fewest + 4 * threads) });
        let by_parts = part_counts.flat_map(|p| few(all_panels).map(move |k| (1, p, k)));
        let by_images = few(images).flat_map(|i| few(all_panels).map(move |k| (images.div_ceil(i), 1, k)));
        let cuts = by_images.filter(|_| fewest == 1).chain(by_parts);
        let (images, parts, panel_parts) = cuts.min_by_key(|c| cost(*c)).unwrap_or((1, fewest, 1));
        let out = g.oh.div_ceil(parts);
        let block_bytes = s.block_steps() * s.panels.usual() * s.lanes * size_of::<f32>();
        let chunk_bytes = if b.wide { WIDE_CHUNK_BYTES } else { CHUNK_BYTES };
        let chunks = s.blocks.div_ceil((chunk_bytes / block_bytes).max(1));
        let places = images * out * g.ow;
        Plan { images, parts, panel_parts, rows: rows(out), row, copies, places, chunk: s.blocks.div_ceil(chunks) }
    }

    fn tasks(&self, b: &Blocked) -> usize {
        b.conv.n.div_ceil(self.images) * self.parts * self.panel_parts * b.conv.groups
    }

    /// Items for where a chunk's runs of steps begin, a tap each at most, and what follows them.
    fn run_len(&self, b: &Blocked) -> usize {
        self.chunk * b.conv.r * b.conv.s + 1
    }

    /// Elements of the copy of an image's part, a group's channels only.
    fn copy_len(&self, s: &Sums) -> usize {
        if self.copies { s.blocks * s.width * self.rows * self.row } else { 0 }
    }

    /// Items of a slot: two offsets for each place and those of runs, then the copies; whole cache lines.
    fn slot_len(&self, b: &Blocked, s: &Sums) -> usize {
        let offsets = 2 * self.places + self.run_len(b);
        (offsets + self.images * self.copy_len(s)).next_multiple_of(ALIGN_BYTES / size_of::<f32>())
    }
}

pub(super) fn workspace_bytes(b: &Blocked, threads: usize) -> usize {
    let plan = Plan::new(b, threads);
    plan.slot_len(b, &Sums::of(b)) * plan.tasks(b).min(threads) * size_of::<f32>() + ALIGN_BYTES
}

/// # Safety
/// The operands have the lengths that `b` says.
pub(super) unsafe fn run(b: &Blocked, pool: &Pool, operands: &Operands, workspace: &mut [u8]) {
    let (plan, sums) = (Plan::new(b, pool.threads()), Sums::of(b));
    if b.conv.n == 0 {
        return;
    }
    let run = Run { b, operands, plan: &plan, sums };
    pool.with_slots(plan.tasks(b), aligned::<f32>(workspace), plan.slot_len(b, &sums), |task, slot| {
        // SAFETY: the caller's contract; each task comes once, and tasks write disjoint places of `y`.
        unsafe { run.task(task, slot) }
    });
}

struct Run<'a> {
    b: &'a Blocked,
    operands: &'a Operands,
    plan: &'a Plan,
    sums: Sums,
}

/// Images and rows of the output that a task makes.
struct Part {
    image: usize,
    images: usize,
    row: usize,
    rows: usize,
}

/// Where a task's tiles find their input.
struct Source {
    x: *const f32,
    /// From one block of channels, and from one row, to the next.
    plane: usize,
    row: usize,
}

impl Run<'_> {
    /// # Safety
    /// No other thread runs the same task.
    unsafe fn task(&self, task: usize, slot: &mut [f32]) {
        let (g, plan, s) = (&self.b.conv, self.plan, &self.sums);
        // neighbouring tasks share weights
        let strips = g.n.div_ceil(plan.images) * plan.parts;
        let (strip, rest) = (task % strips, task / strips);
        let (group, panel_part) = (rest % g.groups, rest / g.groups);
        let image = strip / plan.parts * plan.images;
        let rows = part_range(g.oh, plan.parts, strip % plan.parts);
        let part = Part { image, images: plan.images.min(g.n - image), row: rows.start, rows: rows.len() };
        let (offsets, copy) = slot.split_at_mut(2 * plan.places + plan.run_len(self.b));
        let source = if plan.copies {
            // SAFETY: the copy holds the images of the largest part, and `x` is what `b` says.
            unsafe { self.copy(&part, group, copy) };
            Source { x: copy.as_ptr(), plane: plan.rows * plan.row * s.width, row: plan.row * s.width }
        } else {
            let first = ((image * g.groups + group) * s.blocks * g.h + part.row * g.stride[0]) * g.w * s.width;
            // SAFETY: the part's first row lies in `x`.
            Source { x: unsafe { self.operands.x.add(first) }, plane: g.h * g.w * s.width, row: g.w * s.width }
        };
        let offsets: &mut [u32] = bytemuck::cast_slice_mut(offsets);
        let (x_at, offsets) = offsets.split_at_mut(plan.places);
        let (y_at, run_at) = offsets.split_at_mut(plan.places);
        let count = self.place(&part, &source, x_at, y_at);
        let all = part_range(s.panels.count(), plan.panel_parts, panel_part);
        // places that are neighbours in the image are so in memory, and the first panel brings them all
        let is_far = self.b.x_len() * size_of::<f32>() > l2_bytes();
        let prefetches =
            |i: usize| i == all.start && is_far && !plan.copies && [g.r, g.s] == [1, 1] && g.stride == [1, 1];
        for i in all.clone() {
            let x_ahead = if prefetches(i) { COLUMNS_AHEAD * s.width } else { 0 };
            // SAFETY: the offsets are those of the part's places in source and output.
            unsafe { self.panel(i, group, &part, &source, [&x_at[..count], &y_at[..count]], run_at, x_ahead) }
        }
    }

    /// Fills the offsets of the part's places, and gives their number.
    fn place(&self, part: &Part, source: &Source, x_at: &mut [u32], y_at: &mut [u32]) -> usize {
        let (g, s) = (&self.b.conv, &self.sums);
        let x_image = if self.plan.copies { s.blocks * source.plane } else { self.b.x_image() };
        let mut count = 0;
        for image in 0..part.images {
            for row in 0..part.rows {
                let x = image * x_image + row * g.stride[0] * source.row;
                let y = image * self.b.y_image() + (part.row + row) * g.ow * s.lanes;
                let to = count..count + g.ow;
                for (o, (x_at, y_at)) in x_at[to.clone()].iter_mut().zip(&mut y_at[to]).enumerate() {
                    // images have at most 2^28 elements, and several only if they are small
                    *x_at = (x + o * g.stride[1] * s.width) as u32;
                    *y_at = (y + o * s.lanes) as u32;
                }
                count += g.ow;
            }
        }
        count
    }

    /// Fills where the runs of some blocks begin, `of_row` in each row of taps, and behind them where the next block's would:
    /// as many items as there are runs, and one.
    fn place_runs<'r>(&self, [blocks, of_row]: [usize; 2], source: &Source, run_at: &'r mut [u32]) -> &'r [u32] {
        let g = &self.b.conv;
        let runs = blocks * g.r * of_row;
        for (i, at) in run_at[..=runs].iter_mut().enumerate() {
            let (block, row, tap) = (i / of_row / g.r, i / of_row % g.r, i % of_row);
            let place = row * g.dilation[0] * source.row + tap * g.dilation[1] * self.sums.width;
            *at = (block * source.plane + place) as u32;
        }
        &run_at[..=runs]
    }

    /// One panel of output channels at all places of the part.
    ///
    /// # Safety
    /// The offsets name places of the part.
    unsafe fn panel(
        &self,
        i: usize,
        group: usize,
        part: &Part,
        source: &Source,
        [x_at, y_at]: [&[u32]; 2],
        run_at: &mut [u32],
        x_ahead: usize,
    ) {
        let (g, s, o) = (&self.b.conv, &self.sums, self.operands);
        let (first, vectors) = s.panels.get(i);
        let tiles = self.b.kernels().tiles[vectors - 1];
        let y_vector = g.oh * g.ow * s.lanes;
        let y = part.image * self.b.y_image() + (group * s.outputs + first) * y_vector;
        let w = group * s.group_len() + first * s.lanes * s.steps();
        let full = s.channels / s.width;
        let mut from = 0;
        while from < s.blocks {
            // a block that is not full goes alone: beyond its last channel it is not read
            let (blocks, lanes) = if from < full {
                (self.plan.chunk.min(full - from), s.width)
            } else {
                (1, s.channels - full * s.width)
            };
            let adjacent = g.dilation[1] == 1 && lanes == s.width;
            let (begins, ends) = (from == 0, from + blocks == s.blocks);
            // SAFETY: all within operands of the asserted lengths: the panel's weights from block `from` on, its bias, and
            // the panel's first place of the part.
            let (x, w, bias, y, add) = unsafe {
                let bias = o.bias.add((group * s.outputs + first) * s.lanes);
                let add = if o.add.is_null() { o.add } else { o.add.add(y) };
                let w = o.w.add(w + from * s.block_steps() * vectors * s.lanes);
                (source.x.add(from * source.plane), w, bias, o.y.add(y), add)
            };
            let (runs, run) = if adjacent { (1, g.s * s.width) } else { (g.s, lanes) };
            let runs = self.place_runs([blocks, runs], source, run_at);
            let mut tile = Tile {
                x,
                x_at: x_at.as_ptr(),
                run_at: runs.as_ptr(),
                runs: runs.len() - 1,
                run,
                w,
                y,
                y_at: y_at.as_ptr(),
                y_vector,
                bias: if begins { bias } else { std::ptr::null() },
                add,
                clamp: if ends { o.clamp } else { None },
                ahead: PrefetchLines::NONE,
                x_ahead,
            };
            let steps = blocks * g.r * g.s * lanes * vectors * s.lanes;
            // the next chunk follows this one, as the next panel follows the last chunk
            // SAFETY: as above; every column's offsets are in the slices.
            unsafe { columns(tiles, &mut tile, x_at.len(), steps) }
            from += blocks;
        }
    }

    /// Copies the rows that the part reads, with zeros for their margins.
    ///
    /// # Safety
    /// `copy` holds the images of the largest part.
    unsafe fn copy(&self, part: &Part, group: usize, copy: &mut [f32]) {
        let (b, g, plan, s) = (self.b, &self.b.conv, self.plan, &self.sums);
        // SAFETY: `x` has this length.
        let x = unsafe { std::slice::from_raw_parts(self.operands.x, b.x_len()) };
        let images = copy.chunks_exact_mut(plan.copy_len(s)).take(part.images).enumerate();
        for (image, copy) in images {
            let x = &x[(part.image + image) * b.x_image()..][..b.x_image()];
            for (at, copy) in copy.chunks_exact_mut(plan.row * s.width).enumerate() {
                let (block, row) = (at / plan.rows, at % plan.rows);
                let row = (part.row * g.stride[0] + row).wrapping_sub(g.pad.begin[0]);
                if row >= g.h {
                    copy.fill(0.0);
                    continue;
                }
                let left = g.pad.begin[1].min(plan.row);
                let places = g.w.min(plan.row - left);
                let (before, rest) = copy.split_at_mut(left * s.width);
                let (inside, after) = rest.split_at_mut(places * s.width);
                before.fill(0.0);
                after.fill(0.0);
                if b.planar {
                    for lane in 0..s.width {
                        let x = &x[(lane * g.h + row) * g.w..][..places];
                        inside.iter_mut().skip(lane).step_by(s.width).zip(x).for_each(|(to, x)| *to = *x);
                    }
                } else {
                    let from = (((group * s.blocks + block) * g.h) + row) * g.w * s.width;
                    inside.copy_from_slice(&x[from..][..inside.len()]);
                }
            }
        }
    }
}

/// The tile at each of `count` columns, as tall as the table's tallest and as even as can be; between them, tiles prefetch the
/// `next` elements behind their weights.
///
/// # Safety
/// The contract of `TileFn` for all columns.
pub(super) unsafe fn columns(tiles: &[super::kernel::TileFn], tile: &mut Tile, count: usize, next: usize) {
    let parts = count.div_ceil(tiles.len().min(MAX_COLUMNS));
    let ranges = Parts::new(count, parts);
    let (x_at, y_at) = (tile.x_at, tile.y_at);
    let steps = tile.runs * tile.run;
    for i in 0..parts {
        let range = ranges.get(i);
        tile.ahead = PrefetchLines::part(tile.w.wrapping_add(next), next, i, parts, steps);
        // SAFETY: the range lies within the columns; no range is longer than the tallest tile.
        unsafe {
            (tile.x_at, tile.y_at) = (x_at.add(range.start), y_at.add(range.start));
            tiles[range.len() - 1](tile);
        }
    }
}
