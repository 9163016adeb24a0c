//! The correlation that both the forward pass and the gradient of the input are.
//!
//! Each output is a sum over source channels and taps of a weight times a source element at a fixed distance. A band of
//! output rows is computed on a *wide grid* whose rows are as long as the rows of the padded copy of the source: there,
//! a tap is one offset for all outputs, so the tile reads the copy itself, shifted, and no im2col matrix exists. The few
//! columns between the rows are computed for nothing and dropped. Zeros to the right of a row are the zeros to the left
//! of the next one, which keeps the grid narrow.
//!
//! A stride splits the copy into phases, so that neighbouring outputs still read neighbouring elements. The gradient of
//! the input under a stride is one correlation (of stride 1) per phase of the input: a gather, without races.
//!
//! An output is one sum in one order, so tasks (images, groups, bands) may follow the thread count.

use super::kernel::ConvKernels;
use super::plane::{Plane, copy_short, places_before};
use super::{ConvElement, Workspace};
use crate::pool::{Pool, part_range};

/// Bytes of the padded copy of a band: with weights and outputs beside it, it stays in a 512 KiB L2 cache.
const COPY_BYTES: usize = 192 << 10;
/// Bytes of packed weights at a time; larger weights are taken in several passes over the images.
const WEIGHT_BYTES: usize = 2 << 20;
/// Tasks per thread at which bands are no longer cut further.
const TASKS_PER_THREAD: usize = 2;

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
    /// The taps that take part: place in the kernel, and how far past the output's place it reads, down and across.
    pub(super) fn taps(&self) -> impl Iterator<Item = (usize, [usize; 2])> + '_ {
        let cols = &self.cols;
        self.rows.taps().flat_map(move |(r, row)| cols.taps().map(move |(s, col)| (r * cols.kernel + s, [row, col])))
    }
}

/// How a correlation is cut and laid out: a pure function of its sizes, the threads and the instruction set.
struct Plan {
    plane: Plane,
    taps: usize,
    depth: usize,
    bands: usize,
    /// Output channels and groups whose packed weights are held at a time.
    pass_out: usize,
    pass_groups: usize,
    copy_len: usize,
    wide_len: usize,
}

impl Plan {
    fn new<T>(corr: &Correlation, kernels: &ConvKernels<T>, threads: usize) -> Plan {
        let (rows, cols) = (&corr.rows, &corr.cols);
        let [row_span, col_span] = [rows.span(), cols.span()];
        let row_reach = (row_span - 1) / rows.stride;
        let phases = [rows.stride.min(row_span), cols.stride.min(col_span)];
        let taps = rows.taps().count() * cols.taps().count();
        let depth = taps * corr.src_c;
        let pitch = pitch(cols, (col_span - 1) / cols.stride);
        let row_bytes = corr.src_c * phases[0] * phases[1] * pitch * size_of::<T>();
        let fit = (COPY_BYTES / row_bytes.max(1)).saturating_sub(row_reach).max(1);
        let wanted = (threads * TASKS_PER_THREAD).div_ceil((corr.n * corr.groups).max(1));
        let wanted = if threads == 1 { 1 } else { wanted };
        let bands = rows.out.div_ceil(fit).max(wanted.min(rows.out)).max(1);
        let band = rows.out.div_ceil(bands);
        let plane = Plane {
            size: [rows.src, cols.src],
            pad: [rows.pad, cols.pad],
            stride: [rows.stride, cols.stride],
            phases,
            rows: band + row_reach,
            pitch,
        };
        let mr = kernels.shift.len();
        let row_weights = (depth * size_of::<T>()).max(1);
        let pass_out = (WEIGHT_BYTES / row_weights / mr * mr).clamp(mr, corr.out_c.max(mr)).min(corr.out_c);
        let pass_groups = (WEIGHT_BYTES / (row_weights * corr.out_c.max(1))).clamp(1, corr.groups);
        // Tiles read up to a tile past the last column, and the last row runs on into the zeros after it.
        let slack = kernels.widest_shift() + pitch;
        Plan {
            plane,
            taps,
            depth,
            bands,
            pass_out,
            pass_groups,
            copy_len: corr.src_c * plane.channel_len() + slack,
            wide_len: mr * wide_pitch(band, pitch, kernels),
        }
    }

    fn lane_len(&self) -> usize {
        self.copy_len + self.wide_len
    }
}

/// Elements from one row of the wide grid to the next; `reach` is how many further columns of a phase an output reads.
fn pitch(cols: &Axis, reach: usize) -> usize {
    let needed = cols.out + reach;
    let end = places_before(cols.src as isize + cols.pad, cols.stride).min(needed);
    // Columns that are zero on the left of every phase: what is read past a row's end may fall on them.
    let zeros = usize::try_from(cols.pad).unwrap_or(0) / cols.stride;
    // Half of what is read at least, so that a row never runs on past the next one.
    cols.out.max(end).max(needed.saturating_sub(zeros)).max(needed.div_ceil(2)).max(1)
}

fn wide_pitch<T>(band: usize, pitch: usize, kernels: &ConvKernels<T>) -> usize {
    band * pitch + kernels.widest_shift()
}

/// Bytes of workspace that [`run`] needs.
pub(super) fn workspace_bytes<T: ConvElement>(corr: &Correlation, kernels: &ConvKernels<T>, threads: usize) -> usize {
    let plan = Plan::new(corr, kernels, threads);
    let lanes = threads.min(corr.n * plan.pass_groups * plan.bands).max(1);
    let mut size = Workspace::sizer();
    size.add::<usize>(plan.depth);
    size.add::<T>(plan.pass_groups * plan.pass_out * plan.depth);
    size.add::<T>(lanes * plan.lane_len());
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
    let plan = Plan::new(corr, kernels, pool.threads());
    let dst_channel = corr.rows.dst * corr.cols.dst;
    assert_eq!(dst.len(), corr.n * corr.groups * corr.out_c * dst_channel);
    let mut ws = Workspace::new(workspace);
    let offsets = ws.take::<usize>(plan.depth);
    let packed = ws.take::<T>(plan.pass_groups * plan.pass_out * plan.depth);
    let lanes = ws.rest::<T>();
    fill_offsets(corr, &plan, offsets);
    let (offsets, dst) = (&*offsets, Images(dst.as_mut_ptr()));
    for group in (0..corr.groups).step_by(plan.pass_groups) {
        let groups = plan.pass_groups.min(corr.groups - group);
        for out in (0..corr.out_c).step_by(plan.pass_out) {
            let outs = plan.pass_out.min(corr.out_c - out);
            let part = outs * plan.depth;
            pool.chunks_mut(&mut packed[..groups * part], part.max(1), |g, packed| {
                pack(corr, &weight[(group + g) * corr.weight_group + out * corr.weight_out..], outs, kernels, packed);
            });
            let packed = &*packed;
            pool.lanes(corr.n * groups * plan.bands, lanes, plan.lane_len(), |task, lane| {
                let (image, band) = (task / plan.bands / groups, task % plan.bands);
                let g = task / plan.bands % groups;
                let at = image * corr.groups + group + g;
                let source = &src[at * corr.src_c * corr.rows.src * corr.cols.src..];
                let dst = &dst;
                let job = Band { corr, plan: &plan, kernels, offsets, packed: &packed[g * part..][..part], outs };
                // SAFETY: channels `out .. out + outs` of this image and group lie within `dst`, by the assert above, and
                // no other task has the rows of this band of them.
                unsafe { job.run(source, band, dst.0.add((at * corr.out_c + out) * dst_channel), lane) }
            });
        }
    }
}

/// The distance of each (source channel, tap) in the copy, in the order of the packed weights.
fn fill_offsets(corr: &Correlation, plan: &Plan, offsets: &mut [usize]) {
    let mut slots = offsets.iter_mut();
    for c in 0..corr.src_c {
        for (_, row) in corr.rows.taps() {
            for ((_, col), slot) in corr.cols.taps().zip(&mut slots) {
                *slot = c * plan.plane.channel_len() + plan.plane.place([row, col]);
            }
        }
    }
}

/// Packs the weights of `outs` output channels into panels `[depth][mr]` of nearly equal height.
fn pack<T: ConvElement>(corr: &Correlation, weight: &[T], outs: usize, kernels: &ConvKernels<T>, packed: &mut [T]) {
    let panels = outs.div_ceil(kernels.shift.len());
    let mut packed = packed.iter_mut();
    for panel in 0..panels {
        let channels = part_range(outs, panels, panel);
        for c in 0..corr.src_c {
            for (r, _) in corr.rows.taps() {
                for (s, _) in corr.cols.taps() {
                    let at = c * corr.weight_src + r * corr.cols.kernel + s;
                    for (m, slot) in channels.clone().zip(&mut packed) {
                        *slot = weight[at + m * corr.weight_out];
                    }
                }
            }
        }
    }
}

/// One task: a band of rows of all channels of a pass, of one image and group.
struct Band<'a, T: 'static> {
    corr: &'a Correlation,
    plan: &'a Plan,
    kernels: &'a ConvKernels<T>,
    offsets: &'a [usize],
    packed: &'a [T],
    outs: usize,
}

impl<T: ConvElement> Band<'_, T> {
    /// # Safety
    /// `dst` is writable for `outs` channels, and no other thread touches the rows of this band in them.
    unsafe fn run(&self, src: &[T], band: usize, dst: *mut T, lane: &mut [T]) {
        let (corr, plan) = (self.corr, self.plan);
        let rows = part_range(corr.rows.out, plan.bands, band);
        let (copy, wide) = lane.split_at_mut(plan.copy_len);
        if plan.taps > 0 {
            let (body, slack) = copy.split_at_mut(corr.src_c * plan.plane.channel_len());
            plan.plane.copy(&src[..corr.src_c * corr.rows.src * corr.cols.src], rows.start, body);
            slack.fill(T::default());
        }
        let columns = (rows.len() - 1) * plan.plane.pitch + corr.cols.out;
        let panels = self.outs.div_ceil(self.kernels.shift.len());
        let ld = wide.len() / self.kernels.shift.len();
        for panel in 0..panels {
            let channels = part_range(self.outs, panels, panel);
            let weights = &self.packed[channels.start * plan.depth..channels.end * plan.depth];
            let (vectors, tile) = self.kernels.shift[channels.len() - 1];
            let width = vectors * self.kernels.lanes;
            for j in (0..columns).step_by(width) {
                // SAFETY: the last tile ends less than a tile past the last column: `wide` and the copy have that much
                // slack. The greatest offset plus the last column lies less than a pitch past the copy's last row.
                unsafe {
                    tile(
                        plan.depth,
                        weights.as_ptr(),
                        copy.as_ptr().add(j),
                        self.offsets.as_ptr(),
                        wide.as_mut_ptr().add(j),
                        ld,
                    );
                }
            }
            for (m, wide) in channels.zip(wide.chunks_exact(ld)) {
                for (i, row) in rows.clone().zip(wide.chunks(plan.plane.pitch)) {
                    // SAFETY: row `i` of channel `m` is in this band.
                    unsafe { self.write_row(&row[..corr.cols.out], dst, m, i) };
                }
            }
        }
    }

    /// # Safety
    /// As [`Band::run`], for output row `i` of channel `m`.
    #[inline]
    unsafe fn write_row(&self, row: &[T], dst: *mut T, m: usize, i: usize) {
        let (rows, cols) = (&self.corr.rows, &self.corr.cols);
        let at = (m * rows.dst + rows.dst_start + i * rows.dst_step) * cols.dst + cols.dst_start;
        // SAFETY: `dst_start + (out - 1) * dst_step < dst` on both axes, so each place is in row `i` of channel `m`.
        unsafe {
            let out = dst.add(at);
            if cols.dst_step == 1 {
                copy_short(row, std::slice::from_raw_parts_mut(out, row.len()));
            } else {
                for (j, &y) in row.iter().enumerate() {
                    *out.add(j * cols.dst_step) = y;
                }
            }
        }
    }
}
