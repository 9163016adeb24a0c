//! The correlation that both the forward pass and the gradient of the input are.
//!
//! It is a matrix product `[out_c, depth] x [depth, columns]`, where `depth` runs over source channels and taps, and the
//! columns are the outputs of all images. The right matrix never exists as a whole: a *chunk* of columns is packed into
//! the panels that the product's tiles read, by module `chunk`, from a padded copy of a few rows of the source, or from
//! the source itself where a 1x1 kernel needs no padding. A block of packed columns and a block of packed weights stay in
//! the L2 cache together. Chunks are of whole panels, counted through the images, so that images of 7x7 leave no lanes
//! empty; only large images that are copied are cut one by one.
//!
//! Where few output channels leave little to do with a packed panel, the tiles of a 1x1 kernel read the source where it is,
//! and prefetch the columns of the next panel while they compute: packing and computing took turns, one waiting for memory and
//! the other not, and such layers take 0.65 to 0.95 of that time.
//!
//! A stride splits the copy into phases, so that neighbouring outputs still read neighbouring elements. The gradient of
//! the input under a stride is one correlation (of stride 1) per phase of the input: a gather, without races.
//!
//! The depth is cut into blocks of whole channels, and passes of blocks, that follow from the sizes alone; an output is the
//! sum of its blocks in order, or of its passes' sums where outputs lie a step apart: there a pass adds up side by side what
//! would else be read and written a step apart, block by block. So chunks, and who computes them, may follow the thread count.

use super::chunk::Chunk;
use std::ops::Range;

use super::kernel::ConvKernels;
use super::plane::Plane;
use super::{ConvElement, Workspace};
use crate::pool::{Pool, part_range};
use crate::simd::LINE_BYTES;
use crate::transpose::{move_short, transpose_into};

/// Most steps of depth in a block: a panel of 16 f32 columns then takes 32 KiB.
const MAX_KC: usize = 512;
/// Bytes of a packed block of columns: with a block of weights beside it, it stays in a 512 KiB L2 cache.
const BLOCK_BYTES: usize = 256 << 10;
/// Bytes of the padded copy that a block is packed from.
const COPY_BYTES: usize = 256 << 10;
/// Bytes of packed weights at a time; larger weights are taken in several passes over the images.
const WEIGHT_BYTES: usize = 2 << 20;
/// Tasks per thread, so that a thread that is held up does not keep the others waiting for long.
const TASKS_PER_THREAD: usize = 3;
/// Source channels whose weights go to a panel at a time.
const CHANNELS_A_PANEL: usize = 8;
/// Places of an image from which on wide tiles are taken.
const WIDE_PLACES: usize = 512;
/// Most output channels of tiles that read the source where it is: with half as many more, packing pays.
const IN_PLACE_OUTS: usize = 64;
/// Most of them for which such tiles are wide: six tiles of six rows. Of more, fewer tall ones read each line less often.
const WIDE_OUTS: usize = 36;
/// Most pages that a panel of columns may lie in for that: with 512 it took a tenth longer than packing.
const IN_PLACE_PAGES: usize = 400;
/// Bytes of a page of memory.
const PAGE_BYTES: usize = 4096;
/// Fewest panels of columns in a chunk that is cut to keep threads busy.
const MIN_PANELS: usize = 4;

/// One axis: which taps there are and where outputs lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Source elements.
    pub src: usize,
    /// Zeros before the first source element; negative skips elements.
    pub pad: isize,
    /// Padded elements from one output to the next.
    pub stride: usize,
    /// Outputs of this correlation; output `i` is element `dst_start + i * dst_step` of `dst` elements.
    pub out: usize,
    pub dst: usize,
    pub dst_start: usize,
    pub dst_step: usize,
    /// Taps of the kernel, used or not.
    pub kernel: usize,
    /// Tap `r` reads at `(tap_start + r * tap_step) / tap_divisor` past the output's place, if that is whole.
    pub tap_start: isize,
    pub tap_step: isize,
    pub tap_divisor: usize,
}

impl Axis {
    /// How far past the output's place tap `r` reads, or `None` if it takes no part.
    pub(super) fn tap(&self, r: usize) -> Option<usize> {
        let at = self.tap_start + r as isize * self.tap_step;
        let divisor = self.tap_divisor as isize;
        (at.rem_euclid(divisor) == 0).then(|| usize::try_from(at / divisor).expect("taps are counted from the least"))
    }

    pub(super) fn taps(&self) -> impl Iterator<Item = (usize, usize)> + Clone + '_ {
        (0..self.kernel).filter_map(|r| self.tap(r).map(|at| (r, at)))
    }

    /// Whether output `i` reads source element `i` alone.
    fn is_whole(&self) -> bool {
        self.pad == 0 && self.stride == 1 && self.src == self.out && self.span() == 1
    }

    /// Whether the outputs lie side by side and fill the destination.
    pub(super) fn is_contiguous(&self) -> bool {
        self.dst_step == 1 && self.out == self.dst
    }

    /// Padded elements that one output reads across, at least 1.
    pub(super) fn span(&self) -> usize {
        self.taps().map(|(_, at)| at + 1).max().unwrap_or(1)
    }
}

/// A correlation of `n` images: `src: [n, groups, src_c, h, w]`, `dst: [n, groups, out_c, ..]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correlation {
    pub n: usize,
    pub groups: usize,
    pub src_c: usize,
    pub out_c: usize,
    pub rows: Axis,
    pub cols: Axis,
    /// Weight elements from one group, output channel and source channel to the next; taps are `[r, s]` inside.
    pub weight_group: usize,
    pub weight_out: usize,
    pub weight_src: usize,
}

impl Correlation {
    /// Whether any tap takes part; otherwise all outputs are zero, and there is nothing to run.
    pub(super) fn has_taps(&self) -> bool {
        self.rows.taps().next().is_some() && self.cols.taps().next().is_some()
    }

    /// Whether each output is made of the source's place of the same index.
    fn is_dense(&self) -> bool {
        self.taps().count() == 1 && self.rows.is_whole() && self.cols.is_whole()
    }

    /// Whether tiles read the source where it is: as few of them as read a channel's line again faster than packing saves, and
    /// of images all of whose channels lie in the same way in cache lines.
    fn is_in_place(&self, elem_bytes: usize) -> bool {
        let is_dense = self.is_dense() && self.rows.is_contiguous() && self.cols.is_contiguous();
        let channel_bytes = self.rows.src * self.cols.src * elem_bytes;
        let is_near = self.src_c.saturating_mul(channel_bytes.min(PAGE_BYTES)) <= IN_PLACE_PAGES * PAGE_BYTES;
        is_dense && self.out_c <= IN_PLACE_OUTS && channel_bytes.is_multiple_of(LINE_BYTES) && is_near
    }

    /// The kernels for these sizes: tiles are wide for large images that are packed from where they are. Elsewhere packing takes
    /// longer than wide tiles save: of weights in panels of fewer rows, or of runs that are shorter than a wide row. Where
    /// nothing is packed, tall tiles of many rows read the source less often.
    fn kernels<T>(&self, kernels: &ConvKernels<T>) -> ConvKernels<T> {
        let is_often_read = self.is_in_place(size_of::<T>()) && self.out_c > WIDE_OUTS;
        kernels.with_tiles(self.is_dense() && self.rows.out * self.cols.out >= WIDE_PLACES && !is_often_read)
    }

    /// The taps that take part: place in the kernel, and how far past the output's place it reads, down and across.
    pub(super) fn taps(&self) -> impl Iterator<Item = (usize, [usize; 2])> + '_ {
        let cols = &self.cols;
        self.rows.taps().flat_map(move |(r, row)| cols.taps().map(move |(s, col)| (r * cols.kernel + s, [row, col])))
    }
}

/// How a correlation is cut and laid out. All but the chunks is a pure function of its sizes and the instruction set.
pub(super) struct Plan {
    pub plane: Plane,
    /// The source itself is read, without a copy.
    pub dense: bool,
    /// Tiles read it where it is, without packing.
    pub in_place: bool,
    pub taps: usize,
    /// Source channels in a block of depth.
    pub channels: usize,
    /// Chunks of an image, each of rows of its own; `None` if panels are counted through all images.
    pub bands: Option<usize>,
    /// Chunks of all images.
    pub chunks: usize,
    /// Most images that a chunk reads from.
    pub images: usize,
    /// Parts that the output channels are cut into, each a task for every chunk.
    out_parts: usize,
    /// Output channels, source channels and groups whose packed weights are held at a time.
    pass_out: usize,
    pass_src: usize,
    pass_groups: usize,
    /// Outputs do not lie side by side.
    pub apart: bool,
    /// They are summed side by side before they go there: several blocks of channels add to them.
    pub sums: bool,
    pub copy_len: usize,
    pub block_len: usize,
    /// Most of these sums.
    sums_len: usize,
}

impl Plan {
    fn new<T>(corr: &Correlation, kernels: &ConvKernels<T>, threads: usize) -> Plan {
        let (rows, cols) = (&corr.rows, &corr.cols);
        let [mr, nr] = [kernels.gemm.mr(), kernels.gemm.nr()];
        let size = size_of::<T>();
        let taps = rows.taps().count() * cols.taps().count();
        let places = rows.out * cols.out;
        let dense = corr.is_dense();
        let apart = !(rows.is_contiguous() && cols.is_contiguous());
        let row_reach = (rows.span() - 1) / rows.stride;
        let mut plane = Plane {
            size: [rows.src, cols.src],
            pad: [rows.pad, cols.pad],
            stride: [rows.stride, cols.stride],
            phases: [rows.stride.min(rows.span()), cols.stride.min(cols.span())],
            rows: 0,
            pitch: cols.out + (cols.span() - 1) / cols.stride,
        };
        let blocks = (corr.src_c * taps).div_ceil(MAX_KC).max(1);
        let mut channels = corr.src_c.div_ceil(blocks);
        let most = (BLOCK_BYTES / (channels * taps.max(1) * size) / nr).max(1);
        let bands = (!dense && places > most * nr).then(|| places.div_ceil(nr).div_ceil(most));
        let images = match bands {
            Some(_) => 1,
            // what a block holds: nothing is copied
            None if dense => (most * nr / places).clamp(1, corr.n.max(1)),
            None => images_of(most * nr, places, nr).clamp(1, corr.n.max(1)),
        };
        plane.rows = row_reach + chunk_rows(rows.out, cols.out, (most * nr).min(places));
        if bands.is_none() && !dense {
            plane.rows = row_reach + rows.out;
        }
        if !dense || apart {
            // As much as a copy may hold, also where a result under a stride needs none: the blocks decide the bits.
            channels = channels.min((COPY_BYTES / (images * plane.channel_len() * size)).max(1));
        }
        // Passes over the depth add to the result; passes over output channels would pack all columns again.
        let block_weights = channels * taps * size;
        let pass_out = (WEIGHT_BYTES / block_weights.max(1) / mr * mr).clamp(mr, corr.out_c.max(mr)).min(corr.out_c);
        let blocks = (WEIGHT_BYTES / (pass_out * block_weights).max(1)).max(1);
        let pass_src = blocks.saturating_mul(channels).min(corr.src_c);
        let pass_groups = if pass_src == corr.src_c && pass_out == corr.out_c {
            (WEIGHT_BYTES / (pass_out * pass_src * taps * size).max(1)).clamp(1, corr.groups)
        } else {
            1
        };
        // From here on the plan may follow the threads.
        let wanted = if threads == 1 { 1 } else { threads * TASKS_PER_THREAD };
        let panels = if bands.is_some() { places.div_ceil(nr) } else { (corr.n * places).div_ceil(nr) };
        let each = pass_groups * if bands.is_some() { corr.n } else { 1 };
        let least = panels.div_ceil(most);
        // as many for each thread, so that none has one more than another
        let even = |parts: usize| if each == 1 { parts.next_multiple_of(threads) } else { parts };
        let finest = panels.div_ceil(MIN_PANELS).max(least);
        let parts = even(wanted.div_ceil(each.max(1)).clamp(least, finest)).min(panels);
        let chunks = parts * if bands.is_some() { corr.n } else { 1 };
        // Each of these parts packs the columns for itself: no more of them than keep every thread busy.
        let out_parts = threads.div_ceil((pass_groups * chunks).max(1)).min(pass_out.div_ceil(mr));
        let columns = panels.div_ceil(parts.max(1)) * nr;
        let (bands, images) = if bands.is_some() {
            plane.rows = row_reach + chunk_rows(rows.out, cols.out, columns.min(places));
            (Some(parts), 1)
        } else {
            (None, images_of(columns, places, nr).clamp(1, corr.n.max(1)))
        };
        // Whole vectors are read and written, also past the last column.
        let copy_len = if dense { 0 } else { images * channels * plane.channel_len() + kernels.gemm.lanes };
        let in_place = corr.is_in_place(size);
        let block_columns = if in_place { nr } else { columns };
        let block_len = block_columns * channels * taps + kernels.gemm.lanes;
        // a part has a panel more than another
        let sums_rows = (pass_out.div_ceil(mr).div_ceil(out_parts) * mr).min(pass_out);
        let sums = apart && channels < corr.src_c;
        let sums_len = if sums { sums_rows * columns } else { 0 };
        Plan {
            plane,
            dense,
            in_place,
            taps,
            channels,
            bands,
            chunks,
            images,
            out_parts,
            pass_out,
            pass_src,
            pass_groups,
            apart,
            sums,
            copy_len,
            block_len,
            sums_len,
        }
    }

    fn slot_len(&self) -> usize {
        self.copy_len + self.block_len + self.sums_len
    }
}

/// Most images that `columns` outputs lie in, from a panel's first one on.
fn images_of(columns: usize, places: usize, nr: usize) -> usize {
    // panels start at multiples of this in an image: of the largest power of two that both have
    let apart = 1 << (nr | places).trailing_zeros();
    (columns + places - apart).div_ceil(places)
}

/// Most rows of an image that `columns` consecutive outputs lie in.
fn chunk_rows(height: usize, width: usize, columns: usize) -> usize {
    height.min((columns + width - 2) / width + 1)
}

/// Bytes of workspace that [`run`] needs.
pub(super) fn workspace_bytes<T: ConvElement>(corr: &Correlation, kernels: &ConvKernels<T>, threads: usize) -> usize {
    let plan = Plan::new(corr, &corr.kernels(kernels), threads);
    let slots = threads.min(plan.pass_groups * plan.chunks * plan.out_parts).max(1);
    let mut size = Workspace::sizer();
    size.add::<usize>(plan.channels * plan.taps);
    size.add::<usize>(plan.taps);
    size.add::<T>(plan.pass_groups * plan.pass_out * plan.pass_src * plan.taps);
    size.add::<T>(slots * plan.slot_len());
    size.bytes()
}

/// Images, shared by tasks that write disjoint parts.
pub(super) struct Images<T>(pub *mut T);

// SAFETY: each task writes elements of its own, and `T: Send` values may be written by any thread.
unsafe impl<T: Send> Sync for Images<T> {}

/// The correlation: writes every output of `corr` in `dst` (and nothing else).
///
/// `src`, `weight` and `dst` have the sizes that `corr` says (the caller checks them).
pub(super) fn run<T: ConvElement>(
    pool: &Pool,
    kernels: &ConvKernels<T>,
    corr: &Correlation,
    src: &[T],
    weight: &[T],
    dst: &mut [T],
    workspace: &mut [u8],
) {
    let kernels = &corr.kernels(kernels);
    let plan = Plan::new(corr, kernels, pool.threads());
    assert_eq!(dst.len(), corr.n * corr.groups * corr.out_c * corr.rows.dst * corr.cols.dst);
    assert_eq!(src.len(), corr.n * corr.groups * corr.src_c * corr.rows.src * corr.cols.src);
    let mut ws = Workspace::new(workspace);
    let [offsets, used] = [ws.take::<usize>(plan.channels * plan.taps), ws.take::<usize>(plan.taps)];
    let packed = ws.take::<T>(plan.pass_groups * plan.pass_out * plan.pass_src * plan.taps);
    let slots = ws.rest::<T>();
    fill_offsets(corr, &plan, offsets, used);
    let (offsets, used, dst) = (&*offsets, &*used, Images(dst.as_mut_ptr()));
    for group in (0..corr.groups).step_by(plan.pass_groups) {
        let groups = group..(group + plan.pass_groups).min(corr.groups);
        for out in (0..corr.out_c).step_by(plan.pass_out) {
            let outs = out..(out + plan.pass_out).min(corr.out_c);
            for first in (0..corr.src_c).step_by(plan.pass_src) {
                let channels = first..(first + plan.pass_src).min(corr.src_c);
                let pass = Pass { groups: groups.clone(), outs: outs.clone(), channels };
                pass.pack_weights(pool, corr, &plan, kernels, used, weight, packed);
                let chunks = plan.chunks;
                let packed = &*packed;
                pool.with_slots(groups.len() * chunks * plan.out_parts, slots, plan.slot_len(), |task, slot| {
                    let (g, chunk) = (task / plan.out_parts / chunks, task / plan.out_parts % chunks);
                    let panels =
                        part_range(outs.len().div_ceil(kernels.gemm.mr()), plan.out_parts, task % plan.out_parts);
                    let packed = &packed[g * pass.group_len(plan.taps)..][..pass.group_len(plan.taps)];
                    let dst = &dst;
                    let chunk = Chunk::new(corr, &plan, kernels, offsets, packed, &pass, g, chunk);
                    // SAFETY: `src` and `dst` have their sizes, by the asserts above; only this task has these channels of
                    // these columns.
                    unsafe { chunk.run(src, panels, dst.0, slot) }
                });
            }
        }
    }
}

/// The range of one round, which packs weights and runs chunks.
pub(super) struct Pass {
    pub groups: Range<usize>,
    pub outs: Range<usize>,
    pub channels: Range<usize>,
}

impl Pass {
    /// Packed weights of a group.
    fn group_len(&self, taps: usize) -> usize {
        self.outs.len() * self.channels.len() * taps
    }

    /// Packs the weights of each group, block by block of depth.
    fn pack_weights<T: ConvElement>(
        &self,
        pool: &Pool,
        corr: &Correlation,
        plan: &Plan,
        kernels: &ConvKernels<T>,
        used: &[usize],
        weight: &[T],
        packed: &mut [T],
    ) {
        let blocks = self.channels.len().div_ceil(plan.channels);
        let packed = &mut packed[..self.groups.len() * self.group_len(plan.taps)];
        let pieces = Images(packed.as_mut_ptr());
        let outs = self.outs.len();
        let panels = Panels { outs, all: outs.div_ceil(kernels.gemm.mr()) };
        // blocks are few where layers are narrow: then some panels are a task
        let parts = (2 * pool.threads()).div_ceil(self.groups.len() * blocks).min(panels.all);
        pool.run(self.groups.len() * blocks * parts, &|task| {
            let (g, block, part) =
                (task / parts / blocks, task / parts % blocks, part_range(panels.all, parts, task % parts));
            let first = self.channels.start + block * plan.channels;
            let channels = first..(first + plan.channels).min(self.channels.end);
            let depth = channels.len() * plan.taps;
            let at = g * self.group_len(plan.taps) + outs * (first - self.channels.start) * plan.taps;
            let rows = panels.rows(part.start).start..panels.rows(part.end - 1).end;
            let pieces = &pieces;
            // SAFETY: the weights of a group's block of channels lie within `packed`, and no other task has those of the rows.
            let piece =
                unsafe { std::slice::from_raw_parts_mut(pieces.0.add(at + rows.start * depth), rows.len() * depth) };
            let weight = &weight[(self.groups.start + g) * corr.weight_group + self.outs.start * corr.weight_out..];
            pack_weights(corr, used, weight, channels, panels, part, piece);
        });
    }
}

/// The distance of each (source channel of a block, tap) in the copy, in the order of the packed weights, and the taps'
/// places in the kernel.
fn fill_offsets(corr: &Correlation, plan: &Plan, offsets: &mut [usize], used: &mut [usize]) {
    for (t, (tap, at)) in corr.taps().enumerate() {
        used[t] = tap;
        for c in 0..plan.channels {
            offsets[c * plan.taps + t] = if plan.dense {
                c * corr.rows.src * corr.cols.src
            } else {
                c * plan.plane.channel_len() + plan.plane.place(at)
            };
        }
    }
}

/// Panels of nearly equal height.
#[derive(Clone, Copy)]
struct Panels {
    outs: usize,
    all: usize,
}

impl Panels {
    fn rows(&self, panel: usize) -> Range<usize> {
        part_range(self.outs, self.all, panel)
    }
}

/// Packs the weights of some panels of output channels, and of some source channels, into these panels `[depth][rows]`.
fn pack_weights<T: ConvElement>(
    corr: &Correlation,
    used: &[usize],
    weight: &[T],
    channels: Range<usize>,
    panels: Panels,
    part: Range<usize>,
    packed: &mut [T],
) {
    let (before, depth) = (panels.rows(part.start).start, channels.len() * used.len());
    if corr.weight_src == used.len() {
        for panel in part {
            let rows = panels.rows(panel);
            let from = &weight[rows.start * corr.weight_out + channels.start * corr.weight_src..];
            assert!(from.len() >= (rows.len() - 1) * corr.weight_out + depth);
            let packed = &mut packed[(rows.start - before) * depth..][..rows.len() * depth];
            // SAFETY: these rows, `weight_out` apart, of `depth` contiguous elements, by the assert.
            unsafe {
                transpose_into(from.as_ptr(), corr.weight_out as isize, 1, rows.len(), depth, rows.len(), packed)
            };
        }
        return;
    }
    let taps = corr.rows.kernel * corr.cols.kernel;
    // The weights of a source channel lie together, so they are read once, for all panels; but each panel has whole lines
    // of its own to write.
    for first in (0..channels.len()).step_by(CHANNELS_A_PANEL) {
        let some = first..(first + CHANNELS_A_PANEL).min(channels.len());
        for panel in part.clone() {
            let rows = panels.rows(panel);
            let packed = &mut packed[(rows.start - before) * depth..][..rows.len() * depth];
            let pieces = packed.chunks_exact_mut(used.len() * rows.len()).skip(first);
            for (c, piece) in some.clone().zip(pieces) {
                let from = &weight[rows.start * corr.weight_out + (channels.start + c) * corr.weight_src..];
                pack_taps(from, corr.weight_out, taps, used, rows.len(), piece);
            }
        }
    }
}

/// `packed[t * rows + i] = from[i * apart + used[t]]`: the used ones of `taps` weights of each row, for one source channel.
fn pack_taps<T: ConvElement>(from: &[T], apart: usize, taps: usize, used: &[usize], rows: usize, packed: &mut [T]) {
    if apart == 1 {
        // SAFETY: as many weights as the panel has rows; the kernel has one tap.
        return unsafe { move_short(from[..rows].as_ptr(), packed[..rows].as_mut_ptr(), rows) };
    }
    if used.len() == taps && apart == taps {
        let from = &from[..rows * taps];
        // SAFETY: as many rows of all taps, by the line before, and a panel's part for this channel.
        return unsafe { transpose_into(from.as_ptr(), taps as isize, 1, rows, taps, rows, packed) };
    }
    for (&tap, slots) in used.iter().zip(packed.chunks_exact_mut(rows)) {
        let from = &from[tap..][..(rows - 1) * apart + 1];
        for (i, slot) in slots.iter_mut().enumerate() {
            // SAFETY: a panel has `rows` slots, and `from` ends with the last one's weight. The check of each place would
            // take as long as the move.
            *slot = unsafe { *from.get_unchecked(i * apart) };
        }
    }
}
