//! Depthwise convolution: every channel by itself, so there is nothing to share between channels but memory bandwidth.
//!
//! Forward and input gradient run over rows of the padded copy of one channel, a few rows at a time, and write straight to
//! the result. The weight gradient holds one vector of sums for each tap, over all images of a channel; a channel belongs
//! to one task, so its order of additions does not follow the thread count.

use super::correlate::{Correlation, Images};
use super::kernel::{ConvKernels, ROWS};
use super::plane::Plane;
use super::{Conv2d, ConvElement, Workspace};
use crate::pool::{Pool, part_range};
use crate::transpose::move_short;

/// Bytes of the padded copy of a band: with the rows of the result beside it, it stays in a 32 KiB L1 cache.
const COPY_BYTES: usize = 16 << 10;
/// Multiply-adds that are worth a task.
const TASK_MIN_MULS: usize = 1 << 16;

/// How a correlation of single channels is cut: a pure function of its sizes and the instruction set.
struct Plan {
    plane: Plane,
    taps: usize,
    bands: usize,
    copy_len: usize,
    /// Elements of the rows that do not go straight to the result.
    rows_len: usize,
}

impl Plan {
    fn new<T>(corr: &Correlation, kernels: &ConvKernels<T>) -> Plan {
        let (rows, cols) = (&corr.rows, &corr.cols);
        let row_reach = (rows.span() - 1) / rows.stride;
        let phases = [rows.stride.min(rows.span()), cols.stride.min(cols.span())];
        let pitch = cols.out + (cols.span() - 1) / cols.stride;
        let row_bytes = phases[0] * phases[1] * pitch * size_of::<T>();
        let fit = (COPY_BYTES / row_bytes.max(1)).saturating_sub(row_reach).max(ROWS);
        let bands = rows.out.div_ceil(fit).max(1);
        let plane = Plane {
            size: [rows.src, cols.src],
            pad: [rows.pad, cols.pad],
            stride: [rows.stride, cols.stride],
            phases,
            rows: rows.out.div_ceil(bands) + row_reach,
            pitch,
        };
        // A row shorter than a vector is read as a whole one.
        let copy_len = plane.channel_len() + kernels.lanes;
        let rows_len = ROWS * cols.out.max(kernels.lanes);
        Plan { plane, taps: rows.taps().count() * cols.taps().count(), bands, copy_len, rows_len }
    }

    fn slot_len(&self) -> usize {
        self.copy_len + self.taps + self.rows_len
    }

    /// Channels of images in a task.
    fn grain(&self, corr: &Correlation) -> usize {
        TASK_MIN_MULS.div_ceil((corr.rows.out * corr.cols.out * self.taps).max(1))
    }
}

pub(super) fn workspace_bytes<T: ConvElement>(corr: &Correlation, kernels: &ConvKernels<T>, threads: usize) -> usize {
    let plan = Plan::new(corr, kernels);
    let mut size = Workspace::sizer();
    size.add::<usize>(plan.taps);
    size.add::<usize>(plan.taps);
    size.add::<T>(threads.min(corr.n * corr.groups).max(1) * plan.slot_len());
    size.bytes()
}

/// The correlation of single channels; arguments as of `correlate::run`.
pub(super) fn run<T: ConvElement>(
    pool: &Pool,
    kernels: &ConvKernels<T>,
    corr: &Correlation,
    src: &[T],
    weight: &[T],
    dst: &mut [T],
    workspace: &mut [u8],
) {
    let plan = Plan::new(corr, kernels);
    let dst_channel = corr.rows.dst * corr.cols.dst;
    let src_channel = corr.rows.src * corr.cols.src;
    let channels = corr.n * corr.groups;
    assert_eq!(dst.len(), channels * dst_channel);
    let mut ws = Workspace::new(workspace);
    let [offsets, used] = [ws.take::<usize>(plan.taps), ws.take::<usize>(plan.taps)];
    for ((offset, used), (tap, at)) in offsets.iter_mut().zip(used.iter_mut()).zip(corr.taps()) {
        (*offset, *used) = (plan.plane.place(at), tap);
    }
    let (offsets, used, dst) = (&*offsets, &*used, Images(dst.as_mut_ptr()));
    let tasks = channels.div_ceil(plan.grain(corr));
    pool.with_slots(tasks, ws.rest::<T>(), plan.slot_len(), |task, slot| {
        let (copy, rest) = slot.split_at_mut(plan.copy_len);
        let (weights, buffer) = rest.split_at_mut(plan.taps);
        let dst = &dst;
        for channel in part_range(channels, tasks, task) {
            let group = &weight[channel % corr.groups * corr.weight_group..];
            for (slot, &tap) in weights.iter_mut().zip(used) {
                *slot = group[tap];
            }
            let job = Channel { corr, plan: &plan, kernels, offsets, weights };
            let src = &src[channel * src_channel..][..src_channel];
            for band in 0..plan.bands {
                // SAFETY: the channel lies within `dst`, by the assert above, and only this task has it.
                unsafe { job.band(src, band, dst.0.add(channel * dst_channel), copy, buffer) };
            }
        }
    });
}

struct Channel<'a, T: 'static> {
    corr: &'a Correlation,
    plan: &'a Plan,
    kernels: &'a ConvKernels<T>,
    offsets: &'a [usize],
    weights: &'a [T],
}

impl<T: ConvElement> Channel<'_, T> {
    /// # Safety
    /// `dst` is writable for a channel, which no other thread touches.
    unsafe fn band(&self, src: &[T], band: usize, dst: *mut T, copy: &mut [T], buffer: &mut [T]) {
        let (corr, plan) = (self.corr, self.plan);
        let band = part_range(corr.rows.out, plan.bands, band);
        let (body, slack) = copy.split_at_mut(plan.plane.channel_len());
        plan.plane.copy(src, band.start, body);
        slack.fill(T::default());
        let width = corr.cols.out;
        let direct = corr.cols.dst_step == 1 && width >= self.kernels.lanes;
        let (y_row, computed) =
            if direct { (corr.rows.dst_step * corr.cols.dst, width) } else { (width.max(self.kernels.lanes), width) };
        for i in (0..band.len()).step_by(ROWS) {
            let rows = ROWS.min(band.len() - i);
            // SAFETY: output row `i` of this channel is row `dst_start + i * dst_step` of `dst`, likewise its columns; the
            // copy holds what the taps of these rows read; a row shorter than a vector goes to the buffer, which has room
            // for a vector, and reads into the slack.
            unsafe {
                let y = if direct { self.place(dst, band.start + i) } else { buffer.as_mut_ptr() };
                self.kernels.depth[rows - 1](
                    self.weights.len(),
                    self.weights.as_ptr(),
                    copy.as_ptr().add(i * plan.plane.pitch),
                    self.offsets.as_ptr(),
                    plan.plane.pitch,
                    y,
                    y_row,
                    computed.max(self.kernels.lanes),
                );
                if !direct {
                    for (row, values) in buffer.chunks(y_row).take(rows).enumerate() {
                        let out = self.place(dst, band.start + i + row);
                        if corr.cols.dst_step == 1 {
                            move_short(values.as_ptr(), out, width);
                            continue;
                        }
                        for (j, &value) in values[..width].iter().enumerate() {
                            *out.add(j * corr.cols.dst_step) = value;
                        }
                    }
                }
            }
        }
    }

    /// The first element of output row `i`.
    ///
    /// # Safety
    /// `dst` is a channel, `i` one of its output rows.
    unsafe fn place(&self, dst: *mut T, i: usize) -> *mut T {
        let (rows, cols) = (&self.corr.rows, &self.corr.cols);
        // SAFETY: `dst_start + i * dst_step < dst` on both axes.
        unsafe { dst.add((rows.dst_start + i * rows.dst_step) * cols.dst + cols.dst_start) }
    }
}

/// Elements of a slot: the copy, and a vector of sums for each tap.
fn weight_grad_slot<T>(geom: &Conv2d, kernels: &ConvKernels<T>, plan: &Plan) -> usize {
    plan.copy_len + geom.r * geom.s * kernels.lanes
}

pub(super) fn weight_grad_workspace_bytes<T: ConvElement>(
    geom: &Conv2d,
    kernels: &ConvKernels<T>,
    threads: usize,
) -> usize {
    let plan = Plan::new(&geom.forward(), kernels);
    let mut size = Workspace::sizer();
    size.add::<usize>(plan.taps);
    size.add::<T>(threads.min(geom.groups) * weight_grad_slot(geom, kernels, &plan));
    size.bytes()
}

/// The weight gradient of single channels; slices have the lengths that `geom` says.
pub(super) fn weight_grad<T: ConvElement>(
    pool: &Pool,
    kernels: &ConvKernels<T>,
    geom: &Conv2d,
    x: &[T],
    dy: &[T],
    dw: &mut [T],
    workspace: &mut [u8],
) {
    let corr = geom.forward();
    let plan = Plan::new(&corr, kernels);
    let mut ws = Workspace::new(workspace);
    let offsets = ws.take::<usize>(plan.taps);
    for (slot, (_, at)) in offsets.iter_mut().zip(corr.taps()) {
        *slot = plan.plane.place(at);
    }
    let (offsets, dw) = (&*offsets, Images(dw.as_mut_ptr()));
    let (x_len, y_len) = (geom.h * geom.w, geom.oh * geom.ow);
    pool.with_slots(geom.groups, ws.rest::<T>(), weight_grad_slot(geom, kernels, &plan), |channel, slot| {
        let (copy, sums) = slot.split_at_mut(plan.copy_len);
        sums.fill(T::default());
        let (body, slack) = copy.split_at_mut(plan.plane.channel_len());
        slack.fill(T::default());
        for image in 0..geom.n {
            let at = image * geom.c + channel;
            let (x, dy) = (&x[at * x_len..][..x_len], &dy[at * y_len..][..y_len]);
            for band in 0..plan.bands {
                let rows = part_range(geom.oh, plan.bands, band);
                plan.plane.copy(x, rows.start, body);
                for tap in (0..plan.taps).step_by(kernels.taps.len()) {
                    let taps = kernels.taps.len().min(plan.taps - tap);
                    // SAFETY: the copy holds what these taps of the band's rows read, `dy` has the rows, and `sums` a
                    // vector for each tap.
                    unsafe {
                        kernels.taps[taps - 1](
                            [rows.len(), geom.ow],
                            body.as_ptr(),
                            offsets[tap..].as_ptr(),
                            plan.plane.pitch,
                            dy[rows.start * geom.ow..].as_ptr(),
                            sums[tap * kernels.lanes..].as_mut_ptr(),
                        );
                    }
                }
            }
        }
        let dw = &dw;
        for (tap, sums) in sums.chunks_exact(kernels.lanes).enumerate() {
            let sum = sums.iter().fold(T::Sum::default(), |sum, x| T::add(sum, x.widen()));
            // SAFETY: tap `tap` of this channel, which only this task has.
            unsafe { *dw.0.add(channel * plan.taps + tap) = T::from_sum(sum) };
        }
    });
}
