//! Depthwise convolution of small images: as many channels side by side as a vector has lanes.
//!
//! Rows of small images are shorter than a vector or just longer, and a stride leaves even less of them. With the channels
//! in the lanes there is no tail and a stride costs nothing; what it costs is a transposition on the way in and out, which
//! goes by squares of vectors. A block of channels stays in the L1 cache.

use super::choose::Pass;
use super::correlate::{Axis, Correlation, Images};
use super::kernel::ConvKernels;
use super::{Conv2d, ConvElement, Workspace};
use crate::pool::{Pool, part_range};
use crate::transpose::{move_short, transpose_into};

/// Most taps: their offsets are held on the stack.
pub(super) const MAX_TAPS: usize = 64;
/// Tasks per thread at which the images of a block of channels are no longer cut.
const TASKS_PER_THREAD: usize = 4;

/// The correlations that make up one result (one, or one per phase of the gradient of the input), and their block.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    lanes: usize,
    channels: usize,
    images: usize,
    /// Height and width of the source and of the result.
    src: [usize; 2],
    pub dst: [usize; 2],
    /// Zeros before the source in its block, and height and width of the block.
    before: [usize; 2],
    block: [usize; 2],
    /// Most taps of one correlation.
    pub taps: usize,
    /// Some places of the result are reached by no tap.
    sparse: bool,
    /// Longest step of an axis from one output, or one place of the result, to the next.
    step: [usize; 2],
}

impl Plan {
    pub(super) fn new(geom: &Conv2d, pass: Pass, lanes: usize) -> Plan {
        match pass {
            Pass::Forward | Pass::WeightGrad => Plan::of(std::iter::once(geom.forward()), lanes),
            Pass::InputGrad => Plan::of(geom.input_grad(), lanes),
        }
    }

    fn of(phases: impl Iterator<Item = Correlation>, lanes: usize) -> Plan {
        let mut plan: Option<Plan> = None;
        let mut step = [1; 2];
        for corr in phases {
            let axes = [&corr.rows, &corr.cols];
            step = [0, 1].map(|i| step[i].max(axes[i].stride).max(axes[i].dst_step));
            let plan = plan.get_or_insert(Plan {
                lanes,
                channels: corr.groups,
                images: corr.n,
                src: axes.map(|axis| axis.src),
                dst: axes.map(|axis| axis.dst),
                before: [0; 2],
                block: axes.map(|axis| axis.src),
                taps: 0,
                sparse: false,
                step,
            });
            if !corr.has_taps() {
                plan.sparse = true;
                continue;
            }
            plan.taps = plan.taps.max(corr.taps().count());
            for (i, axis) in axes.into_iter().enumerate() {
                plan.before[i] = plan.before[i].max(usize::try_from(axis.pad).unwrap_or(0));
                let end = ((axis.out - 1) * axis.stride + axis.span()) as isize - axis.pad;
                plan.block[i] = plan.block[i].max(usize::try_from(end).unwrap_or(0));
            }
        }
        let mut plan = plan.expect("a result has a correlation");
        plan.step = step;
        for i in 0..2 {
            plan.block[i] += plan.before[i];
        }
        plan
    }

    /// Places of the source or of the result are passed over.
    pub(super) fn is_strided(&self) -> bool {
        self.sparse || self.step != [1; 2]
    }

    pub(super) fn block_len(&self) -> usize {
        self.block[0].saturating_mul(self.block[1]).saturating_mul(self.lanes)
    }
    fn src_len(&self) -> usize {
        self.src[0] * self.src[1] * self.lanes
    }
    pub(super) fn dst_len(&self) -> usize {
        self.dst[0] * self.dst[1] * self.lanes
    }

    /// The source as it is transposed, its padded block, the result, weights or sums.
    fn slot_len(&self) -> usize {
        self.src_len() + self.block_len() + self.dst_len() + self.taps * self.lanes
    }

    fn blocks(&self) -> usize {
        self.channels.div_ceil(self.lanes)
    }

    /// Where in the block an output's tap at padded place 0 lies.
    fn start(&self, axes: [&Axis; 2]) -> usize {
        let at = |i: usize| (self.before[i] as isize - axes[i].pad) as usize;
        (at(0) * self.block[1] + at(1)) * self.lanes
    }

    /// Transposes the images of `valid` channels into the middle of the block; its border stays as it is.
    fn load<T: Copy + Default>(&self, x: &[T], valid: usize, transposed: &mut [T], block: &mut [T]) {
        let (places, row) = (self.src[0] * self.src[1], self.src[1] * self.lanes);
        to_lanes(x, valid, places, self.lanes, transposed);
        let start = (self.before[0] * self.block[1] + self.before[1]) * self.lanes;
        let rows = block[start..].chunks_mut(self.block[1] * self.lanes);
        for (from, to) in transposed.chunks_exact(row).zip(rows) {
            let to = &mut to[..row];
            // SAFETY: both slices have `row` elements.
            unsafe { move_short(from.as_ptr(), to.as_mut_ptr(), row) };
        }
    }
}

/// `out[place * lanes + i] = x[i * places + place]` for `i < valid`, zeros in the other lanes.
fn to_lanes<T: Copy + Default>(x: &[T], valid: usize, places: usize, lanes: usize, out: &mut [T]) {
    assert!(x.len() >= valid * places);
    // SAFETY: `valid` rows of `places` contiguous elements, by the assert.
    unsafe { transpose_into(x.as_ptr(), places as isize, 1, valid, places, lanes, out) };
}

/// Bytes of workspace for any of the three results.
pub(super) fn workspace_bytes<T: ConvElement>(
    geom: &Conv2d,
    pass: Pass,
    kernels: &ConvKernels<T>,
    threads: usize,
) -> usize {
    let plan = Plan::new(geom, pass, kernels.lanes);
    let mut size = Workspace::sizer();
    size.add::<usize>(plan.taps);
    size.add::<T>(threads * plan.slot_len());
    size.bytes()
}

/// Forward pass or input gradient of single channels.
pub(super) fn run<T: ConvElement>(
    pool: &Pool,
    kernels: &ConvKernels<T>,
    geom: &Conv2d,
    pass: Pass,
    src: &[T],
    weight: &[T],
    dst: &mut [T],
    workspace: &mut [u8],
) {
    let (plan, phases) = (Plan::new(geom, pass, kernels.lanes), geom.phases(pass));
    let ws = Workspace::new(workspace);
    let [src_image, dst_image] = [plan.src, plan.dst].map(|[h, w]| h * w);
    assert_eq!(dst.len(), plan.images * plan.channels * dst_image);
    let parts = (TASKS_PER_THREAD * pool.threads()).div_ceil(plan.blocks()).min(plan.images).max(1);
    let dst = Images(dst.as_mut_ptr());
    pool.with_slots(plan.blocks() * parts, ws.rest::<T>(), plan.slot_len(), |task, slot| {
        let (first, images) = (task / parts * plan.lanes, part_range(plan.images, parts, task % parts));
        let valid = plan.lanes.min(plan.channels - first);
        let (transposed, rest) = slot[..plan.slot_len()].split_at_mut(plan.src_len());
        let (block, rest) = rest.split_at_mut(plan.block_len());
        let (result, weights) = rest.split_at_mut(plan.dst_len());
        block.fill(T::default());
        if plan.sparse {
            result.fill(T::default());
        }
        let dst = &dst;
        for image in images {
            let at = image * plan.channels + first;
            plan.load(&src[at * src_image..], valid, transposed, block);
            for corr in phases.clone().filter(Correlation::has_taps) {
                correlate(&plan, kernels, &corr, first..first + valid, weight, block, weights, result);
            }
            // SAFETY: these channels of this image lie within `dst`, by the assert, and no other task has them. The result
            // has `dst_image` places of a vector each.
            unsafe {
                let y = std::slice::from_raw_parts_mut(dst.0.add(at * dst_image), valid * dst_image);
                transpose_into(result.as_ptr(), plan.lanes as isize, 1, dst_image, valid, dst_image, y);
            }
        }
    });
}

/// One correlation of a block of channels, into its places of the result.
fn correlate<T: ConvElement>(
    plan: &Plan,
    kernels: &ConvKernels<T>,
    corr: &Correlation,
    channels: std::ops::Range<usize>,
    weight: &[T],
    block: &[T],
    weights: &mut [T],
    result: &mut [T],
) {
    let (rows, cols, lanes) = (&corr.rows, &corr.cols, plan.lanes);
    let mut offsets = [0; MAX_TAPS];
    let mut count = 0;
    for (tap, at) in corr.taps() {
        let weights = &mut weights[count * lanes..][..lanes];
        for (slot, channel) in weights.iter_mut().zip(channels.clone()) {
            *slot = weight[channel * corr.weight_group + tap];
        }
        weights[channels.len()..].fill(T::default());
        offsets[count] = (at[0] * plan.block[1] + at[1]) * lanes;
        count += 1;
    }
    let (start, row) = (plan.start([rows, cols]), plan.block[1] * lanes);
    for i in 0..rows.out {
        let to = ((rows.dst_start + i * rows.dst_step) * cols.dst + cols.dst_start) * lanes;
        // SAFETY: the block holds what every tap of every output reads, as `Plan::new` made it; output `j` of the row is
        // place `dst_start + j * dst_step` of a row of the result.
        unsafe {
            (kernels.lane_rows)(
                count,
                weights.as_ptr(),
                block.as_ptr().add(start + i * rows.stride * row),
                offsets.as_ptr(),
                cols.stride * lanes,
                result.as_mut_ptr().add(to),
                cols.dst_step * lanes,
                cols.out,
            );
        }
    }
}

/// The weight gradient of single channels.
pub(super) fn weight_grad<T: ConvElement>(
    pool: &Pool,
    kernels: &ConvKernels<T>,
    geom: &Conv2d,
    x: &[T],
    dy: &[T],
    dw: &mut [T],
    workspace: &mut [u8],
) {
    let (corr, plan) = (geom.forward(), Plan::new(geom, Pass::WeightGrad, kernels.lanes));
    let mut ws = Workspace::new(workspace);
    let offsets = ws.take::<usize>(plan.taps);
    for (slot, (_, at)) in offsets.iter_mut().zip(corr.taps()) {
        *slot = (at[0] * plan.block[1] + at[1]) * plan.lanes;
    }
    let (offsets, dw) = (&*offsets, Images(dw.as_mut_ptr()));
    let [src_image, dst_image] = [plan.src, plan.dst].map(|[h, w]| h * w);
    pool.with_slots(plan.blocks(), ws.rest::<T>(), plan.slot_len(), |task, slot| {
        let first = task * plan.lanes;
        let valid = plan.lanes.min(plan.channels - first);
        let (transposed, rest) = slot[..plan.slot_len()].split_at_mut(plan.src_len());
        let (block, rest) = rest.split_at_mut(plan.block_len());
        let (dy_lanes, sums) = rest.split_at_mut(plan.dst_len());
        block.fill(T::default());
        sums.fill(T::default());
        let start = plan.start([&corr.rows, &corr.cols]);
        for image in 0..plan.images {
            let at = image * plan.channels + first;
            plan.load(&x[at * src_image..], valid, transposed, block);
            to_lanes(&dy[at * dst_image..], valid, dst_image, plan.lanes, dy_lanes);
            for tap in (0..plan.taps).step_by(kernels.lane_taps.len()) {
                let taps = kernels.lane_taps.len().min(plan.taps - tap);
                // SAFETY: the block holds what every tap of every output reads, as `Plan::new` made it; `dy_lanes` has a
                // vector for each output, `sums` one for each tap.
                unsafe {
                    (kernels.lane_taps[taps - 1])(
                        plan.dst,
                        block.as_ptr().add(start),
                        offsets[tap..].as_ptr(),
                        [geom.stride[0] * plan.block[1] * plan.lanes, geom.stride[1] * plan.lanes],
                        dy_lanes.as_ptr(),
                        sums[tap * plan.lanes..].as_mut_ptr(),
                    );
                }
            }
        }
        let dw = &dw;
        for (tap, sums) in sums.chunks_exact(plan.lanes).enumerate() {
            for (channel, &sum) in sums[..valid].iter().enumerate() {
                // SAFETY: `dw` has the taps of each channel; only this task has these.
                unsafe { *dw.0.add((first + channel) * plan.taps + tap) = sum };
            }
        }
    });
}
