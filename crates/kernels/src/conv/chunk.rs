//! A task of a correlation: some output channels of a chunk of columns.
//!
//! A chunk is a range of the outputs of one image, or of several images; its columns are counted through them. A panel of columns is a few *runs*, each within a row of an image, so that packing moves whole vectors also where
//! rows are shorter than a panel.

use super::ConvElement;
use super::correlate::{Correlation, Pass, Plan};
use super::kernel::{ConvKernels, MAX_COLUMNS, Run};
use crate::gemm::kernel::MAX_TILE;
use crate::pool::part_range;
use crate::prefetch::{PrefetchColumns, PrefetchLines, prefetch_run};
use crate::simd::LINE_BYTES;

/// Bytes of a block of packed weights that all panels of a chunk are multiplied with: a quarter of a 512 KiB L2 cache.
const WEIGHT_BLOCK_BYTES: usize = 128 << 10;
/// Channels ahead whose places are prefetched.
const ROWS_AHEAD: usize = 4;
/// Outputs of a run from which on they are written in vectors.
const VECTOR_RUN: usize = 12;

pub(super) struct Chunk<'a, T: 'static> {
    corr: &'a Correlation,
    plan: &'a Plan,
    kernels: &'a ConvKernels<T>,
    offsets: &'a [usize],
    /// Packed weights of the pass for this group, block by block of depth.
    packed: &'a [T],
    pass: &'a Pass,
    group: usize,
    /// The first image, and the columns, counted from its first output.
    image: usize,
    columns: std::ops::Range<usize>,
}

impl<'a, T: ConvElement> Chunk<'a, T> {
    pub(super) fn new(
        corr: &'a Correlation,
        plan: &'a Plan,
        kernels: &'a ConvKernels<T>,
        offsets: &'a [usize],
        packed: &'a [T],
        pass: &'a Pass,
        group: usize,
        chunk: usize,
    ) -> Self {
        let (places, nr) = (corr.rows.out * corr.cols.out, kernels.gemm.nr());
        let (image, columns) = if let Some(bands) = plan.bands {
            let panels = part_range(places.div_ceil(nr), bands, chunk % bands);
            (chunk / bands, panels.start * nr..(panels.end * nr).min(places))
        } else {
            let panels = part_range((corr.n * places).div_ceil(nr), plan.chunks, chunk);
            let image = panels.start * nr / places;
            (image, panels.start * nr - image * places..(panels.end * nr).min(corr.n * places) - image * places)
        };
        Chunk { corr, plan, kernels, offsets, packed, pass, group: pass.groups.start + group, image, columns }
    }

    /// Adds the source channels of the pass to the outputs of panels `panels` of its output channels; the first writes.
    ///
    /// # Safety
    /// `src` and `dst` are as large as the correlation says, and no other thread touches these outputs.
    pub(super) unsafe fn run(&self, src: &[T], panels: std::ops::Range<usize>, dst: *mut T, slot: &mut [T]) {
        let (corr, plan) = (self.corr, self.plan);
        let (copy, rest) = slot.split_at_mut(plan.copy_len);
        let (block, sums) = rest.split_at_mut(plan.block_len);
        let src_channel = corr.rows.src * corr.cols.src;
        for first in self.pass.channels.clone().step_by(plan.channels) {
            let channels = plan.channels.min(self.pass.channels.end - first);
            let at = ((self.image * corr.groups + self.group) * corr.src_c + first) * src_channel;
            if plan.in_place {
                // SAFETY: same contract.
                unsafe { self.in_place(&src[at..], first, channels, panels.clone(), dst, block) };
                continue;
            }
            if plan.dense {
                self.pack(&src[at..], channels * plan.taps, block);
            } else {
                self.copy(&src[at..], channels, copy);
                self.pack(copy, channels * plan.taps, block);
            }
            // SAFETY: same contract; the block holds all panels of this chunk for these channels.
            unsafe { self.multiply(block, first, channels, panels.clone(), dst, sums) };
        }
        if plan.sums {
            // SAFETY: same contract; the sums are those of all channels of the pass.
            unsafe { self.spread(sums, panels, dst) };
        }
    }

    /// Fills the padded copy of the rows that the chunk reads, `[image][channel][plane]`.
    fn copy(&self, src: &[T], channels: usize, copy: &mut [T]) {
        let (corr, plan) = (self.corr, self.plan);
        let image_len = plan.channels * plan.plane.channel_len();
        let src_channel = corr.rows.src * corr.cols.src;
        let images = self.columns.end.div_ceil(corr.rows.out * corr.cols.out);
        let (body, slack) = copy.split_at_mut(plan.images * image_len);
        for (image, copy) in body.chunks_exact_mut(image_len).take(images).enumerate() {
            let src = &src[image * corr.groups * corr.src_c * src_channel..][..channels * src_channel];
            plan.plane.copy(src, self.first_row(), &mut copy[..channels * plan.plane.channel_len()]);
        }
        slack.fill(T::default());
    }

    /// The row from which on an image is copied: that of the first output, if there is one image.
    fn first_row(&self) -> usize {
        self.plan.bands.map_or(0, |_| self.columns.start / self.corr.cols.out)
    }

    /// The runs of `valid` columns from `start` on, each within a row of an image, or within an image if `whole_images`.
    fn runs(&self, start: usize, valid: usize, whole_images: bool, runs: &mut [Run; MAX_COLUMNS]) -> usize {
        let [rows, cols] = [self.corr.rows.out, self.corr.cols.out];
        let row_len = if whole_images { rows * cols } else { cols };
        let (mut row, mut col) = (start / row_len, start % row_len);
        let (mut at, mut count) = (0, 0);
        while at < valid {
            let len = (row_len - col).min(valid - at);
            runs[count] = Run { at, len, from: 0, row, col };
            (row, col, at, count) = (row + 1, 0, at + len, count + 1);
        }
        count
    }

    /// Packs all panels of the chunk as `[panel][depth][columns]` from the copy, or from the source where it is dense.
    fn pack(&self, from: &[T], depth: usize, block: &mut [T]) {
        let (corr, plan, gemm) = (self.corr, self.plan, self.kernels.gemm);
        let mut runs = [Run::default(); MAX_COLUMNS];
        for start in self.columns.clone().step_by(gemm.nr()) {
            let valid = gemm.nr().min(self.columns.end - start);
            let width = valid.next_multiple_of(gemm.lanes);
            let count = self.runs(start, valid, plan.dense, &mut runs);
            let mut end = 0;
            for run in &mut runs[..count] {
                run.from = if plan.dense {
                    run.row * corr.groups * corr.src_c * corr.rows.src * corr.cols.src + run.col
                } else {
                    let (image, row) = (run.row / corr.rows.out, run.row % corr.rows.out);
                    let plane = image * plan.channels * plan.plane.channel_len();
                    plane + (row - self.first_row()) * plan.plane.pitch + run.col
                };
                end = end.max(run.from + run.len.next_multiple_of(gemm.lanes));
            }
            let out = &mut block[(start - self.columns.start) * depth..];
            let reach = self.offsets[..depth].iter().max().map_or(0, |&reach| reach);
            if end + reach <= from.len() && out.len() >= depth * width + gemm.lanes {
                // SAFETY: whole vectors from each run, at each offset, end within `from`; a vector may run on past its
                // row of the panel by less than a vector, for which there is room.
                unsafe {
                    (self.kernels.pack)(
                        depth,
                        from.as_ptr(),
                        self.offsets.as_ptr(),
                        runs[..count].as_ptr(),
                        count,
                        out.as_mut_ptr(),
                        width,
                    );
                }
            } else {
                pack_exactly(from, &self.offsets[..depth], &runs[..count], width, out);
            }
        }
    }

    /// Multiplies the packed block with the weights of its channels; the first block writes, the others add. Results go
    /// to their places, or side by side to `sums` if the plan says so.
    ///
    /// # Safety
    /// As [`Chunk::run`]; the block is packed.
    unsafe fn multiply(
        &self,
        block: &[T],
        first: usize,
        channels: usize,
        panels: std::ops::Range<usize>,
        dst: *mut T,
        sums: &mut [T],
    ) {
        let (plan, gemm) = (self.plan, self.kernels.gemm);
        let (depth, outs, out) = (channels * plan.taps, self.pass.outs.len(), self.pass.outs.start);
        let weights = &self.packed[outs * (first - self.pass.channels.start) * plan.taps..][..outs * depth];
        let all = outs.div_ceil(gemm.mr());
        let step = (WEIGHT_BLOCK_BYTES / (depth * gemm.mr() * size_of::<T>())).max(1);
        let mut runs = [Run::default(); MAX_COLUMNS];
        let mut buffer = [T::default(); MAX_TILE];
        let (sums_row, first_row) = (self.sums_row(), part_range(outs, all, panels.start).start);
        for panel in panels.clone().step_by(step) {
            let some = panel..(panel + step).min(panels.end);
            for start in self.columns.clone().step_by(gemm.nr()) {
                let valid = gemm.nr().min(self.columns.end - start);
                let width = valid.next_multiple_of(gemm.lanes);
                // Places in the first output channel: it takes divisions, as long as some steps of a tile.
                let count = if plan.sums { 0 } else { self.runs(start, valid, !plan.apart, &mut runs) };
                for run in &mut runs[..count] {
                    run.from = self.place(run);
                }
                let x = &block[(start - self.columns.start) * depth..][..width * depth];
                for panel in some.clone() {
                    let rows = part_range(outs, all, panel);
                    let w = &weights[rows.start * depth..rows.end * depth];
                    let tile = gemm.tiles[rows.len() - 1][width / gemm.lanes - 1];
                    // SAFETY: the panels hold `depth` steps; a full tile within an image goes to its rows, any other
                    // through a buffer that holds the largest tile; rows of sums have room for whole vectors.
                    unsafe {
                        if plan.sums {
                            let at = (rows.start - first_row) * sums_row + start - self.columns.start;
                            let y = sums[at..][..(rows.len() - 1) * sums_row + width].as_mut_ptr();
                            let add = first > self.pass.channels.start;
                            tile(depth, w.as_ptr(), x.as_ptr(), y, sums_row, add, PrefetchLines::NONE);
                        } else if !plan.apart && count == 1 && valid == width {
                            let y = dst.add(runs[0].from + (out + rows.start) * self.dst_channel());
                            tile(depth, w.as_ptr(), x.as_ptr(), y, self.dst_channel(), first > 0, PrefetchLines::NONE);
                        } else {
                            tile(depth, w.as_ptr(), x.as_ptr(), buffer.as_mut_ptr(), width, false, PrefetchLines::NONE);
                            for (i, row) in buffer.chunks_exact(width).take(rows.len()).enumerate() {
                                let y = dst.add((out + rows.start + i) * self.dst_channel());
                                for run in &runs[..count] {
                                    let values = &row[run.at..run.at + run.len];
                                    write(values, y.add(run.from), self.corr.cols.dst_step, first > 0);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// As packing `channels` channels from `first` on and [`Chunk::multiply`], but tiles read the columns where they are, and
    /// prefetch the next panel's meanwhile. Panels that do not lie within an image, or in whole cache lines, are packed one at a
    /// time: each tile would read two lines for a vector.
    ///
    /// # Safety
    /// As [`Chunk::run`]; the source is dense, and `src` begins with channel `first` of the first image.
    unsafe fn in_place(
        &self,
        src: &[T],
        first: usize,
        channels: usize,
        panels: std::ops::Range<usize>,
        dst: *mut T,
        block: &mut [T],
    ) {
        let (corr, gemm, outs) = (self.corr, self.kernels.gemm, &self.pass.outs);
        let (places, nr) = (corr.rows.out * corr.cols.out, gemm.nr());
        let weights = &self.packed[outs.len() * (first - self.pass.channels.start)..][..outs.len() * channels];
        let all = outs.len().div_ceil(gemm.mr());
        let at = |column: usize| column / places * corr.groups * corr.src_c * places + column % places;
        for start in self.columns.clone().step_by(nr) {
            let columns = start..(start + nr).min(self.columns.end);
            let is_whole = columns.len() == nr && start % places + nr <= places;
            if !(is_whole && src[at(start)..].as_ptr().addr().is_multiple_of(LINE_BYTES)) {
                let part = Chunk { columns, ..*self };
                part.pack(src, channels, block);
                // SAFETY: same contract, for these columns.
                unsafe { part.multiply(block, first, channels, panels.clone(), dst, &mut []) };
                continue;
            }
            let x = &src[at(start)..];
            assert!(x.len() >= (channels - 1) * places + nr);
            let y = self.place(&Run { row: start / places, col: start % places, ..Run::default() });
            // also beyond this chunk: most often this thread takes the next one
            let next = src.as_ptr().wrapping_add(at(start + nr));
            for panel in panels.clone() {
                let rows = part_range(outs.len(), all, panel);
                let w = &weights[rows.start * channels..rows.end * channels];
                let tile = gemm.tiles_of_columns[rows.len() - 1];
                let ahead = PrefetchColumns::part(next, places, nr, panel - panels.start, panels.len());
                // SAFETY: the columns of each channel lie `places` apart, the last ones within `x` by the assert; the outputs
                // lie within an image.
                unsafe {
                    let y = dst.add(y + (outs.start + rows.start) * places);
                    tile(channels, w.as_ptr(), x.as_ptr(), places, y, places, first > 0, ahead);
                }
            }
        }
    }

    /// Elements of a row of sums.
    fn sums_row(&self) -> usize {
        self.columns.len().next_multiple_of(self.kernels.gemm.lanes)
    }

    /// Takes the sums of the pass to their places, a step apart; the first pass writes, the others add.
    ///
    /// # Safety
    /// As [`Chunk::run`]; the sums are complete.
    unsafe fn spread(&self, sums: &[T], panels: std::ops::Range<usize>, dst: *mut T) {
        let (gemm, outs) = (self.kernels.gemm, self.pass.outs.clone());
        let all = outs.len().div_ceil(gemm.mr());
        let rows = part_range(outs.len(), all, panels.start).start..part_range(outs.len(), all, panels.end - 1).end;
        let (step, accumulate) = (self.corr.cols.dst_step, self.pass.channels.start > 0);
        let mut runs = [Run::default(); MAX_COLUMNS];
        for start in self.columns.clone().step_by(gemm.nr()) {
            let valid = gemm.nr().min(self.columns.end - start);
            let count = self.runs(start, valid, false, &mut runs);
            for run in &mut runs[..count] {
                run.from = self.place(run);
            }
            for (row, sums) in rows.clone().zip(sums.chunks_exact(self.sums_row())) {
                let sums = &sums[start - self.columns.start..][..valid];
                for run in &runs[..count] {
                    let at = run.from + (outs.start + row) * self.dst_channel();
                    prefetch_run(dst.wrapping_add(at + ROWS_AHEAD * self.dst_channel()), run.len * step);
                    // SAFETY: the place of the run's first output in this channel, the others a step apart in its row.
                    unsafe { write(&sums[run.at..run.at + run.len], dst.add(at), step, accumulate) };
                }
            }
        }
    }

    fn dst_channel(&self) -> usize {
        self.corr.rows.dst * self.corr.cols.dst
    }

    /// Where the first output of a run lies, in the group's first output channel.
    fn place(&self, run: &Run) -> usize {
        let (rows, cols) = (&self.corr.rows, &self.corr.cols);
        let (image, at) = if self.plan.apart {
            let row = rows.dst_start + run.row % rows.out * rows.dst_step;
            (run.row / rows.out, row * cols.dst + cols.dst_start + run.col * cols.dst_step)
        } else {
            (run.row, run.col)
        };
        ((self.image + image) * self.corr.groups + self.group) * self.corr.out_c * self.dst_channel() + at
    }
}

/// `y[i * step]` becomes `values[i]`, or that more.
///
/// # Safety
/// These elements of `y` are initialised, and nobody else's meanwhile.
#[inline]
unsafe fn write<T: ConvElement>(values: &[T], y: *mut T, step: usize, accumulate: bool) {
    let sum = |y: T, value: T| T::from_sum(T::add(y.widen(), value.widen()));
    // SAFETY: as the caller says.
    unsafe {
        // short runs are over before a loop over vectors has begun
        if step == 1 && values.len() >= VECTOR_RUN {
            let y = std::slice::from_raw_parts_mut(y, values.len());
            if accumulate {
                y.iter_mut().zip(values).for_each(|(y, &value)| *y = sum(*y, value));
            } else {
                y.copy_from_slice(values);
            }
            return;
        }
        for (j, &value) in values.iter().enumerate() {
            let y = y.add(j * step);
            *y = if accumulate { sum(*y, value) } else { value };
        }
    }
}

/// The pack kernel without whole vectors: for the end of the source, and its scalar twin.
pub(super) fn pack_exactly<T: Copy>(from: &[T], offsets: &[usize], runs: &[Run], width: usize, out: &mut [T]) {
    for (offset, out) in offsets.iter().zip(out.chunks_exact_mut(width)) {
        for run in runs {
            out[run.at..run.at + run.len].copy_from_slice(&from[offset + run.from..][..run.len]);
        }
    }
}
