//! Convolutions under a stride of a few images: columns of products are places, with the images of the batch innermost.
//!
//! Rows of small images are shorter than vectors, and a stride takes them apart: copies, runs and results of module `correlate`
//! are then short moves. With the images innermost each place is `n` elements side by side. A *panel* of columns is some
//! places that follow one another, and holds for each tap and channel what they read, zeros beside the image: gathered once,
//! a block of channels at a time, which then stays in the L2 cache beside the sums while all weights pass by.
//!
//! * The outputs of a forward pass are one *grid* of places; those of an input gradient one for each phase of the stride. Phases
//!   of one size that read the same places share what is gathered (*segments*), so a 3x3 kernel's nine taps gather four times.
//! * Weights are packed a panel of rows at a time, for all phases together, where they are used. So they are read once.
//! * Sums lie tile by tile. With the last block they go to their places, of all phases together: whole rows, in vectors.
//!
//! Sums go block of channels by block, tap by tap, channel by channel: an order that follows from the sizes.

use super::batch_innermost_small::pack_weights;
use super::choose::Pass;
use super::correlate::{Axis, Correlation, Images};
use super::kernel::{ConvKernels, MAX_COLUMNS};
use super::{Conv2d, ConvElement, Workspace};
use crate::gemm::kernel::Kernels;
use crate::pool::{Pool, part_range};
use crate::prefetch::{PrefetchLines, PrefetchRows};
use crate::transpose::{Apart, move_short, transpose_apart, transpose_gathered};
use smallvec::SmallVec;
use std::ops::Range;

/// Most taps, and the longest stride: of so many there is room.
pub(super) const MAX_TAPS: usize = 9;
pub(super) const MAX_STRIDE: usize = 2;
/// Bytes of a block of gathered channels. From 640 KiB to 1 MiB all is much the same; of more, sums and weights take its place.
const BLOCK_BYTES: usize = 896 << 10;
/// Where a channel has but a few weights for each panel of rows: panels that are packed together, so many channels at a time.
const PANELS_A_GROUP: usize = 8;
const CHANNELS_A_PANEL: usize = 8;
/// Tasks per thread, so that a thread that is held up does not keep the others waiting for long.
const TASKS_PER_THREAD: usize = 4;

/// Outputs of one phase, or of several that are as many.
struct Grid {
    /// Rows and columns of places.
    out: [usize; 2],
    /// Source places from one to the next, down and across.
    stride: [usize; 2],
    /// The source place of the first output, of each segment.
    segments: SmallVec<[[isize; 2]; MAX_TAPS]>,
    /// Columns in whole vectors.
    columns: usize,
    /// Elements of a channel's earlier grids.
    first: usize,
}

impl Grid {
    fn places(&self) -> usize {
        self.out[0] * self.out[1]
    }
}

/// A phase: what its outputs are summed from, and where they go.
struct Phase {
    grid: usize,
    /// Taps of the kernel, with the segment that each reads.
    taps: SmallVec<[[usize; 2]; MAX_TAPS]>,
    /// Columns of earlier phases.
    first: usize,
    rows: Axis,
    cols: Axis,
}

/// Sizes of a forward pass or an input gradient.
pub(super) struct Plan<T: 'static> {
    pass: Pass,
    gemm: &'static Kernels<T>,
    n: usize,
    taps: usize,
    src_c: usize,
    out_c: usize,
    src: [usize; 2],
    dst: [usize; 2],
    grids: SmallVec<[Grid; MAX_STRIDE * MAX_STRIDE]>,
    phases: SmallVec<[Phase; MAX_STRIDE * MAX_STRIDE]>,
    /// Places of a panel, and its columns in whole vectors.
    panel: usize,
    width: usize,
    /// Gathered elements of a channel; columns of all phases.
    channel_len: usize,
    columns: usize,
    /// Channels of a block.
    depth: usize,
    /// Panels of rows that the output channels are cut into.
    panels: usize,
    /// Those of them whose weights are packed at a time.
    group: usize,
    /// Tiles of a panel and a block of channels.
    tiles: usize,
    tasks: usize,
}

/// The work of a plan.
pub(super) struct Work {
    /// Columns of all phases, in whole vectors.
    pub columns: usize,
    /// Multiply-adds.
    pub muls: usize,
    /// Elements that are gathered, and those of sums that are read and written.
    pub gathered: usize,
    pub summed: usize,
}

/// Weights that tiles prefetch, and the lines of them that each does.
struct PrefetchShare {
    rows: PrefetchRows,
    lines: usize,
}

impl<T: ConvElement> Plan<T> {
    /// For at most [`MAX_TAPS`] taps and strides of [`MAX_STRIDE`], and images that are no more than columns of a panel.
    pub(super) fn new(geom: &Conv2d, pass: Pass, kernels: &ConvKernels<T>, threads: usize) -> Plan<T> {
        let gemm = kernels.gemm.tall();
        let (n, nr, taps) = (geom.n, gemm.nr(), geom.r * geom.s);
        let back = pass == Pass::InputGrad;
        let [src_c, out_c] = if back { [geom.k, geom.c] } else { [geom.c, geom.k] };
        let [src, dst] =
            if back { [[geom.oh, geom.ow], [geom.h, geom.w]] } else { [[geom.h, geom.w], [geom.oh, geom.ow]] };
        let panels = out_c.div_ceil(gemm.mr());
        let mut plan = Plan {
            pass,
            gemm,
            n,
            taps,
            src_c,
            out_c,
            src,
            dst,
            grids: SmallVec::new(),
            phases: SmallVec::new(),
            panel: nr / n,
            width: (nr / n * n).next_multiple_of(gemm.lanes),
            channel_len: 0,
            columns: 0,
            depth: 0,
            panels,
            group: if back && taps == 1 { PANELS_A_GROUP } else { 1 },
            tiles: 0,
            tasks: if threads == 1 { 1 } else { (threads * TASKS_PER_THREAD).min(panels) },
        };
        geom.phases(pass).filter(Correlation::has_taps).for_each(|corr| plan.add(&corr));
        for grid in &mut plan.grids {
            grid.first = plan.channel_len;
            plan.channel_len += grid.segments.len() * grid.columns;
        }
        let most = (BLOCK_BYTES / (plan.channel_len * size_of::<T>()).max(1)).max(1);
        plan.depth = src_c.div_ceil(src_c.div_ceil(most));
        plan
    }

    /// Columns of each phase.
    pub(super) fn columns_of_phases(&self) -> impl Iterator<Item = usize> {
        self.phases.iter().map(|phase| self.grids[phase.grid].places() * self.n)
    }

    pub(super) fn work(&self) -> Work {
        let muls = |(phase, columns): (&Phase, usize)| columns * phase.taps.len() * self.src_c * self.out_c;
        Work {
            columns: self.columns,
            muls: self.phases.iter().zip(self.columns_of_phases()).map(muls).sum(),
            gathered: self.src_c * self.channel_len,
            summed: 2 * self.src_c.div_ceil(self.depth) * self.out_c * self.columns,
        }
    }

    /// Adds a phase, and what it reads.
    fn add(&mut self, corr: &Correlation) {
        let (rows, cols) = (corr.rows, corr.cols);
        let (out, stride) = ([rows.out, cols.out], [rows.stride, cols.stride]);
        let grid = self.grids.iter().position(|grid| grid.out == out).unwrap_or_else(|| {
            let full = (out[0] * out[1] - 1) / self.panel;
            let last = (out[0] * out[1] - full * self.panel) * self.n;
            let columns = full * self.width + last.next_multiple_of(self.gemm.lanes);
            self.grids.push(Grid { out, stride, segments: SmallVec::new(), columns, first: 0 });
            self.grids.len() - 1
        });
        let segments = &mut self.grids[grid].segments;
        let taps = corr.taps().map(|(tap, [row, col])| {
            let at = [row as isize - rows.pad, col as isize - cols.pad];
            let segment = segments.iter().position(|&other| other == at).unwrap_or_else(|| {
                segments.push(at);
                segments.len() - 1
            });
            [tap, segment]
        });
        let taps: SmallVec<_> = taps.collect();
        self.tiles += calls(&taps).count() * (out[0] * out[1]).div_ceil(self.panel);
        self.phases.push(Phase { grid, taps, first: self.columns, rows, cols });
        self.columns += self.grids[grid].columns;
    }

    pub(super) fn workspace_bytes(&self, threads: usize) -> usize {
        let mut size = Workspace::sizer();
        size.add::<usize>(self.sources_len());
        size.add::<[usize; 3]>(self.dst_places());
        size.add::<T>(self.depth * self.channel_len);
        size.add::<T>(self.sums_len());
        size.add::<T>(threads.min(self.tasks) * self.slot_len());
        size.bytes()
    }

    fn sources_len(&self) -> usize {
        self.grids.iter().map(|grid| grid.segments.len() * grid.places()).sum()
    }

    fn src_places(&self) -> usize {
        self.src[0] * self.src[1]
    }

    fn dst_places(&self) -> usize {
        self.dst[0] * self.dst[1]
    }

    fn sums_len(&self) -> usize {
        self.out_c * self.columns
    }

    fn packed_len(&self) -> usize {
        self.taps * self.depth * self.gemm.mr()
    }

    /// Panels of weights, or the images of a channel and a place of zeros.
    fn slot_len(&self) -> usize {
        (self.group * self.packed_len()).max((self.src_places() + 1) * self.n)
    }

    /// The panels of a grid: places, and columns in whole vectors.
    fn panels_of(&self, grid: &Grid) -> impl Iterator<Item = (Range<usize>, usize)> + use<T> {
        let (places, panel, n, lanes) = (grid.places(), self.panel, self.n, self.gemm.lanes);
        (0..places).step_by(panel).map(move |first| {
            let end = (first + panel).min(places);
            (first..end, ((end - first) * n).next_multiple_of(lanes))
        })
    }

    /// Forward pass or input gradient.
    pub(super) fn run(&self, pool: &Pool, src: &[T], weight: &[T], dst: &mut [T], workspace: &mut [u8]) {
        let mut ws = Workspace::new(workspace);
        let sources = ws.take::<usize>(self.sources_len());
        let targets = ws.take::<[usize; 3]>(self.dst_places());
        let block = ws.take::<T>(self.depth * self.channel_len);
        let sums = ws.take::<T>(self.sums_len());
        let slots = ws.rest::<T>();
        assert_eq!(src.len(), self.n * self.src_c * self.src_places());
        assert_eq!(dst.len(), self.n * self.out_c * self.dst_places());
        self.fill_sources(sources);
        self.fill_targets(targets);
        let (sums, dst) = (Images(sums.as_mut_ptr()), Images(dst.as_mut_ptr()));
        for first in (0..self.src_c).step_by(self.depth) {
            let channels = first..(first + self.depth).min(self.src_c);
            self.gather(pool, channels.clone(), sources, src, block, slots);
            let block = &*block;
            pool.with_slots(self.tasks, slots, self.slot_len(), |task, packed| {
                let (sums, dst) = (&sums, &dst);
                let panels = part_range(self.panels, self.tasks, task);
                for first in panels.clone().step_by(self.group) {
                    let some = first..(first + self.group).min(panels.end);
                    let next = some.end..(some.end + self.group).min(panels.end);
                    self.pack(some.clone(), channels.clone(), weight, packed);
                    let mut ahead = self.next_weights(next, channels.clone(), weight, some.len());
                    for (panel, packed) in some.zip(packed.chunks_exact(self.packed_len())) {
                        let rows = part_range(self.out_c, self.panels, panel);
                        // SAFETY: the sums of these rows, and theirs in `dst`; no other task has these rows.
                        unsafe {
                            let sums = sums.0.add(rows.start * self.columns);
                            self.multiply(rows.len(), channels.clone(), packed, block, sums, &mut ahead);
                            if channels.end == self.src_c {
                                self.write(rows, sums, targets, dst.0);
                            }
                        }
                    }
                }
            });
        }
    }

    /// Packs the weights of some panels of rows and a block of channels.
    fn pack(&self, panels: Range<usize>, channels: Range<usize>, weight: &[T], packed: &mut [T]) {
        // what lies together is read together: a channel's weights of all these panels
        let step = if self.group == 1 { channels.len() } else { CHANNELS_A_PANEL };
        for first in channels.clone().step_by(step) {
            let some = first..(first + step).min(channels.end);
            for (panel, packed) in panels.clone().zip(packed.chunks_exact_mut(self.packed_len())) {
                let rows = part_range(self.out_c, self.panels, panel);
                let packed = &mut packed[(first - channels.start) * rows.len()..];
                pack_weights(self.pass, [self.src_c, self.out_c, self.taps], rows, some.clone(), weight, packed);
            }
        }
    }

    /// The weights of the panels that are packed next, to be prefetched in the tiles of `panels` panels.
    fn next_weights(&self, next: Range<usize>, channels: Range<usize>, weight: &[T], panels: usize) -> PrefetchShare {
        let rows = |panel| part_range(self.out_c, self.panels, panel);
        let mut share = PrefetchShare { rows: PrefetchRows::within(usize::MAX), lines: 0 };
        if next.is_empty() {
            return share;
        }
        let rows = rows(next.start).start..rows(next.end - 1).end;
        let [row, channel] = if self.pass == Pass::Forward { [self.src_c, 1] } else { [1, self.out_c] };
        let at = weight[(rows.start * row + channels.start * channel) * self.taps..].as_ptr();
        let [runs, len] =
            if self.pass == Pass::Forward { [rows.len(), channels.len()] } else { [channels.len(), rows.len()] };
        share.rows.push(at, (row.max(channel) * self.taps) as isize, runs, len * self.taps);
        share.lines = share.rows.most_lines().div_ceil(panels * self.tiles);
        share
    }

    /// The source place of each place of a segment of a grid; one more than there are is a place of zeros.
    fn fill_sources(&self, sources: &mut [usize]) {
        let mut slots = sources.iter_mut();
        for grid in &self.grids {
            for segment in &grid.segments {
                let read = |axis: usize, i: usize| {
                    let at = segment[axis] + (i * grid.stride[axis]) as isize;
                    usize::try_from(at).ok().filter(|&at| at < self.src[axis])
                };
                for (i, slot) in slots.by_ref().take(grid.places()).enumerate() {
                    let at = read(0, i / grid.out[1]).zip(read(1, i % grid.out[1]));
                    *slot = at.map_or(self.src_places(), |(row, col)| row * self.src[1] + col);
                }
            }
        }
    }

    /// Where the sum of each place of the result lies: the columns before its tile, its tile's, its own first one in that. Of
    /// a place that no tap reaches the tile has no columns.
    fn fill_targets(&self, targets: &mut [[usize; 3]]) {
        targets.fill([0; 3]);
        for phase in &self.phases {
            let (grid, mut first) = (&self.grids[phase.grid], phase.first);
            for (places, width) in self.panels_of(grid) {
                for (i, place) in places.enumerate() {
                    let at = |axis: &Axis, i: usize| axis.dst_start + i * axis.dst_step;
                    let [row, col] = [at(&phase.rows, place / grid.out[1]), at(&phase.cols, place % grid.out[1])];
                    targets[row * self.dst[1] + col] = [first, width, i * self.n];
                }
                first += width;
            }
        }
    }

    /// Gathers some channels: `[grid][panel][segment][channel][place][image]`.
    fn gather(
        &self,
        pool: &Pool,
        channels: Range<usize>,
        sources: &[usize],
        src: &[T],
        block: &mut [T],
        slots: &mut [T],
    ) {
        let (n, places, depth) = (self.n, self.src_places(), channels.len());
        let parts = if self.tasks == 1 { 1 } else { self.tasks.min(depth) };
        let block = Images(block.as_mut_ptr());
        pool.with_slots(parts, slots, self.slot_len(), |task, images| {
            let images = &mut images[..(places + 1) * n];
            images[places * n..].fill(T::default());
            let block = &block;
            for c in part_range(depth, parts, task) {
                let from = &src[(channels.start + c) * places..];
                assert!(from.len() >= (n - 1) * self.src_c * places + places);
                // SAFETY: a channel of each image, by the assert; `images` has a row of images for each place.
                unsafe {
                    let to = images.as_mut_ptr();
                    transpose_apart(from.as_ptr(), self.src_c * places, n, places, n, Apart::by(n), to);
                }
                // SAFETY: the block is as large as `depth` channels. Row `c` belongs to this task alone.
                unsafe { self.place(images, c, depth, sources, block.0) };
            }
        });
    }

    /// A channel's row in all panels of a block of `depth` channels.
    ///
    /// # Safety
    /// `block` is writable for `depth` channels, and nobody else touches row `c`.
    unsafe fn place(&self, images: &[T], c: usize, depth: usize, mut sources: &[usize], block: *mut T) {
        let n = self.n;
        for grid in &self.grids {
            let mut at = grid.first;
            for (places, width) in self.panels_of(grid) {
                for segment in 0..grid.segments.len() {
                    let sources = &sources[segment * grid.places()..][places.clone()];
                    // SAFETY: row `c` of the segment in this panel, `width` elements.
                    let row = unsafe { std::slice::from_raw_parts_mut(block.add(at * depth + c * width), width) };
                    let (used, rest) = row.split_at_mut(places.len() * n);
                    for (&source, out) in sources.iter().zip(used.chunks_exact_mut(n)) {
                        // SAFETY: `n` images of a place, in both.
                        unsafe { move_short(images[source * n..][..n].as_ptr(), out.as_mut_ptr(), n) };
                    }
                    rest.fill(T::default());
                    at += width;
                }
            }
            sources = &sources[grid.segments.len() * grid.places()..];
        }
    }

    /// Adds the products of packed weights and a block of channels to the sums of `height` rows; the first block's are they.
    ///
    /// # Safety
    /// `sums` are writable for so many rows of all columns, and nobody else touches them.
    unsafe fn multiply(
        &self,
        height: usize,
        channels: Range<usize>,
        packed: &[T],
        block: &[T],
        sums: *mut T,
        ahead: &mut PrefetchShare,
    ) {
        let depth = channels.len();
        for phase in &self.phases {
            let grid = &self.grids[phase.grid];
            let (mut first, mut at) = (phase.first, grid.first);
            for (_, width) in self.panels_of(grid) {
                let tile = self.gemm.tiles[height - 1][width / self.gemm.lanes - 1];
                let mut accumulate = channels.start > 0;
                for [tap, segment, count] in calls(&phase.taps) {
                    let w = &packed[tap * depth * height..][..count * depth * height];
                    let x = &block[(at + segment * width) * depth..][..count * depth * width];
                    ahead.rows.next_lines(ahead.lines);
                    // SAFETY: `count * depth` steps of weights and of gathered columns, and a tile of sums.
                    unsafe {
                        let sums = sums.add(first * height);
                        tile(count * depth, w.as_ptr(), x.as_ptr(), sums, width, accumulate, PrefetchLines::NONE);
                    }
                    accumulate = true;
                }
                first += width;
                at += grid.segments.len() * width;
            }
        }
    }

    /// Takes the sums of some rows to their places in the result, and zeros where there are none.
    ///
    /// # Safety
    /// `sums` are those of these rows, all complete; nobody else touches these channels of `dst`.
    unsafe fn write(&self, rows: Range<usize>, sums: *const T, targets: &[[usize; 3]], dst: *mut T) {
        let (places, height) = (self.dst_places(), rows.len());
        let zeros = [T::default(); MAX_COLUMNS];
        for (i, row) in rows.enumerate() {
            let from = |place: usize| {
                let [first, width, at] = targets[place];
                if width == 0 { zeros.as_ptr() } else { sums.wrapping_add(first * height + i * width + at) }
            };
            // SAFETY: `n` images of each place of this row of each image.
            unsafe {
                transpose_gathered(from, places, self.n, self.out_c * places, dst.add(row * places));
            }
        }
    }
}

/// Taps that follow one another, as their segments do, are summed in one go: the first one, its segment, how many.
fn calls(taps: &[[usize; 2]]) -> impl Iterator<Item = [usize; 3]> + '_ {
    let follows = |a: &[usize; 2], b: &[usize; 2]| *b == a.map(|at| at + 1);
    taps.chunk_by(follows).map(|run| [run[0][0], run[0][1], run.len()])
}
