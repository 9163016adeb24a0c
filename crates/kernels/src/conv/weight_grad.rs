//! The gradient of the weight: for each output place, the outer product of what the taps read there and of `dy`.
//!
//! A tile holds a few (channel, tap) rows by a few vectors of output channels and runs over the output places of a
//! band; it reads the padded copy of the image at one offset per row, and `dy` transposed to `[place][channel]`. Tiles
//! need no tail in the places, so 7 x 7 images waste nothing. Images of few places go through a tile together: its sums are
//! read and written once for all of them.
//!
//! Of a single tap `x` can take the part of `dy`: where it has fewer channels, it is what is transposed (under a stride, the places
//! that are read), and `dy` is read where it lies.
//!
//! The images are cut into partial sums ([`partials`]), added in order at the end. Their number and the bands follow from
//! the sizes alone, since they decide the order of additions. Threads share out (partial sum, unit, block of channels),
//! where a *unit* is one group's panel of output channels; how these are grouped changes no element's order.

use super::kernel::ConvKernels;
use super::plane::Plane;
use super::{Conv2d, ConvElement, Workspace};
use crate::pool::{Pool, part_range};
use crate::transpose::transpose_into;

/// Most partial sums over the images: also the number of threads that small weights keep busy without repeated copies.
const MAX_PARTIALS: usize = 16;
/// Bytes of all partial sums together; larger weights are taken in several passes, with one sum.
const PARTIAL_BYTES: usize = 2 << 20;
/// Output places of a band, or of a group of whole images, that make a sum worth its reads and writes.
const BAND_PLACES: usize = 256;
/// Bytes of their transposed `dy`, which stays in the L1 cache.
const BAND_BYTES: usize = 32 << 10;
/// Bytes of the padded copy of a block of channels.
const COPY_BYTES: usize = 192 << 10;
/// Tasks per thread at which channels are no longer cut further.
const TASKS_PER_THREAD: usize = 2;

struct Plan {
    /// The convolution whose weights' gradient is computed: the one asked for, or that one turned.
    geom: Conv2d,
    /// `x` is in the place of `dy`: the rows of units are output channels, their columns channels.
    turned: bool,
    /// The places of that `x` under a stride.
    gather: Option<Plane>,
    /// Channels and output channels of a group.
    group_c: usize,
    group_k: usize,
    /// Taps of a channel, rows of a unit.
    taps: usize,
    rows: usize,
    /// Columns of a full panel, panels of a group.
    panel: usize,
    panels: usize,
    partials: usize,
    /// Units in one pass.
    pass: usize,
    /// Rows of output in a band; bands of an image.
    band: usize,
    bands: usize,
    /// Most images in a group: one where an image has several bands.
    images: usize,
    /// Channels in a task.
    block: usize,
    /// Places of the copy from one output to the next, down and across.
    step: [usize; 2],
    plane: Plane,
    /// The image itself is read, without a copy.
    dense: bool,
    copy_len: usize,
    dy_len: usize,
}

impl Plan {
    fn new<T>(asked: &Conv2d, kernels: &ConvKernels<T>, threads: usize) -> Plan {
        let size = size_of::<T>();
        let turned = turned(asked, kernels.lanes);
        let geom = &turned.unwrap_or(*asked);
        let [group_c, group_k] = [geom.c / geom.groups, geom.k / geom.groups];
        let taps = geom.r * geom.s;
        let rows = group_c * taps;
        // Of several taps the elements come from the L1 cache, as they do for some taps in turn: tall tiles are as good, and
        // leave more places to a band.
        let vectors = if taps == 1 { kernels.outer.len() } else { kernels.outer.len().min(2) };
        let panel = group_k.next_multiple_of(kernels.lanes).min(vectors * kernels.lanes);
        let panels = group_k.div_ceil(panel);
        let units = geom.groups * panels;
        let unit_bytes = rows * panel * size;
        // A sum of few places costs more to read and write than to add up.
        let most = (geom.n * geom.oh * geom.ow).div_ceil(BAND_PLACES).min(geom.n).clamp(1, MAX_PARTIALS);
        let partials = (PARTIAL_BYTES / (units * unit_bytes)).clamp(1, most);
        let pass = (PARTIAL_BYTES / (partials * unit_bytes)).clamp(1, units);
        let band_places = BAND_PLACES.min(BAND_BYTES / (panel * size));
        // Bands are nearly equal: a last one of a row would read and write all sums for little.
        let band = geom.oh.div_ceil(geom.oh.div_ceil((band_places / geom.ow).clamp(1, geom.oh)));
        let bands = geom.oh.div_ceil(band);
        // Of a single tap only the places that it reads are copied; several would need a phase for each step of the stride.
        let [stride, step] = if taps == 1 { [geom.stride, [1, 1]] } else { [[1, 1], geom.stride] };
        let plane = Plane {
            size: [geom.h, geom.w],
            pad: geom.pad.begin.map(|pad| pad as isize),
            stride,
            phases: [1, 1],
            rows: (band - 1) * step[0] + (geom.r - 1) * geom.dilation[0] + 1,
            pitch: (geom.ow - 1) * step[1] + (geom.s - 1) * geom.dilation[1] + 1,
        };
        let dense = taps == 1 && geom.stride == [1, 1] && geom.pad.is_none();
        let copied =
            |images: usize| if dense { usize::MAX } else { COPY_BYTES / (images * plane.channel_len() * size) };
        // Groups are nearly equal: the last one would read and write all sums for little.
        let most = geom.n.div_ceil(partials);
        let fit = if bands == 1 { (band_places / (geom.oh * geom.ow)).min(copied(1)).max(1) } else { 1 };
        let images = most.div_ceil(most.div_ceil(fit).max(1)).max(1);
        let gather = (turned.is_some() && asked.stride != [1, 1]).then_some(Plane {
            size: [asked.h, asked.w],
            stride: asked.stride,
            rows: band,
            pitch: geom.ow,
            ..plane
        });
        let wanted = (threads * TASKS_PER_THREAD).div_ceil(partials * pass.div_ceil(panels));
        let block = if threads == 1 { group_c } else { group_c.div_ceil(wanted) };
        let block = block.min(copied(images)).max(1);
        Plan {
            geom: *geom,
            turned: turned.is_some(),
            gather,
            group_c,
            group_k,
            taps,
            rows,
            panel,
            panels,
            partials,
            pass,
            band,
            bands,
            images,
            block,
            step,
            plane,
            dense,
            copy_len: if dense { 0 } else { images * block * plane.channel_len() },
            dy_len: images * band * geom.ow * panel,
        }
    }

    fn unit_len(&self) -> usize {
        self.rows * self.panel
    }

    fn slot_len(&self) -> usize {
        self.copy_len + self.dy_len + self.gather_len()
    }

    fn gather_len(&self) -> usize {
        self.gather.map_or(0, |plane| self.panel * plane.channel_len())
    }

    /// Runs of units of one group, at most, that a pass touches.
    fn runs(&self) -> usize {
        self.pass.div_ceil(self.panels) + 1
    }

    fn blocks(&self) -> usize {
        self.group_c.div_ceil(self.block)
    }
}

/// Multiply-adds in whose time an element of `dy` is transposed, of those from registers.
const MULS_PER_MOVE: usize = 32;

/// The convolution that has `x` for `dy` and `dy` for `x`, where it is as good: of a single tap, which reads places of the image
/// only. It is taken where it transposes so much less that lanes beyond the last channel do not outweigh that; its weight is
/// not transposed.
fn turned(geom: &Conv2d, lanes: usize) -> Option<Conv2d> {
    let [c, k] = [geom.c / geom.groups, geom.k / geom.groups];
    let cost = |rows: usize, columns: usize| rows * columns.next_multiple_of(lanes) + MULS_PER_MOVE * columns;
    let whole = [geom.r, geom.s] == [1; 2] && geom.pad.is_none();
    let weight = MULS_PER_MOVE * c * k / (geom.n * geom.oh * geom.ow).max(1);
    let turned = Conv2d { c: geom.k, k: geom.c, h: geom.oh, w: geom.ow, stride: [1, 1], ..*geom };
    (whole && cost(k, c) < cost(c, k) + weight).then_some(turned)
}

pub(super) fn workspace_bytes<T: ConvElement>(geom: &Conv2d, kernels: &ConvKernels<T>, threads: usize) -> usize {
    let plan = Plan::new(geom, kernels, threads);
    let slots = threads.min(plan.partials * plan.runs() * plan.blocks()).max(1);
    let mut size = Workspace::sizer();
    size.add::<usize>(plan.rows);
    size.add::<T>(plan.partials * plan.pass * plan.unit_len());
    size.add::<T>(slots * plan.slot_len());
    size.bytes()
}

/// The partial sums, shared by tasks that write disjoint rows of units.
struct Sums<T>(*mut T);

// SAFETY: each task writes rows of its own, and `T: Send` values may be written by any thread.
unsafe impl<T: Send> Sync for Sums<T> {}

/// Slices have the lengths that `geom` says (the caller checks them).
pub(super) fn run<T: ConvElement>(
    pool: &Pool,
    kernels: &ConvKernels<T>,
    geom: &Conv2d,
    x: &[T],
    dy: &[T],
    dw: &mut [T],
    workspace: &mut [u8],
) {
    if geom.n == 0 {
        return dw.fill(T::default());
    }
    let plan = Plan::new(geom, kernels, pool.threads());
    let (geom, [x, dy]) = (&plan.geom, if plan.turned { [dy, x] } else { [x, dy] });
    let mut ws = Workspace::new(workspace);
    let offsets = ws.take::<usize>(plan.rows);
    let sums = ws.take::<T>(plan.partials * plan.pass * plan.unit_len());
    let slots = ws.rest::<T>();
    for (row, offset) in offsets.iter_mut().enumerate() {
        let (c, tap) = (row / plan.taps, row % plan.taps);
        let at = [tap / geom.s * geom.dilation[0], tap % geom.s * geom.dilation[1]];
        *offset = if plan.dense { c * geom.h * geom.w } else { c * plan.plane.channel_len() + plan.plane.place(at) };
    }
    let job = Job { geom, plan: &plan, kernels, offsets, x, dy };
    let units = geom.groups * plan.panels;
    for first in (0..units).step_by(plan.pass) {
        let pass = first..(first + plan.pass).min(units);
        job.add_up(pool, pass.clone(), sums, slots);
        job.write(pool, pass, sums, dw);
    }
}

struct Job<'a, T: 'static> {
    geom: &'a Conv2d,
    plan: &'a Plan,
    kernels: &'a ConvKernels<T>,
    /// The distance of each (channel, tap) of a group in the copy.
    offsets: &'a [usize],
    x: &'a [T],
    dy: &'a [T],
}

impl<T: ConvElement> Job<'_, T> {
    /// All partial sums of the units of a pass: `[partial][unit][row][panel]`.
    fn add_up(&self, pool: &Pool, pass: std::ops::Range<usize>, sums: &mut [T], slots: &mut [T]) {
        let plan = self.plan;
        let sums = &mut sums[..plan.partials * pass.len() * plan.unit_len()];
        let first_group = pass.start / plan.panels;
        let groups = (pass.end - 1) / plan.panels + 1 - first_group;
        let blocks = plan.blocks();
        let sums = Sums(sums.as_mut_ptr());
        pool.with_slots(plan.partials * groups * blocks, slots, plan.slot_len(), |task, slot| {
            let (partial, group) = (task / blocks / groups, first_group + task / blocks % groups);
            let start = task % blocks * plan.block;
            let channels = start..(start + plan.block).min(plan.group_c);
            let units = pass.start.max(group * plan.panels)..pass.end.min((group + 1) * plan.panels);
            let sums = &sums;
            let place = (partial * pass.len() + units.start - pass.start) * plan.unit_len();
            // SAFETY: the units' sums start at `place`; no other task has these channels of these units of this partial.
            unsafe { self.task(partial, group, units, channels, sums.0.add(place), slot) }
        });
    }

    /// The sums of the images of one partial sum, for the rows of `channels` of `units` of a group, into `sums`.
    ///
    /// # Safety
    /// `sums` is writable for the units, and no other thread touches the rows of `channels` in them.
    unsafe fn task(
        &self,
        partial: usize,
        group: usize,
        units: std::ops::Range<usize>,
        channels: std::ops::Range<usize>,
        sums: *mut T,
        slot: &mut [T],
    ) {
        let (plan, geom) = (self.plan, self.geom);
        let (copy, rest) = slot.split_at_mut(plan.copy_len);
        let (dy_band, gathered) = rest.split_at_mut(plan.dy_len);
        let image_len = geom.h * geom.w;
        let images = part_range(geom.n, plan.partials, partial);
        for first in images.clone().step_by(plan.images) {
            let group_images = first..(first + plan.images).min(images.end);
            let channel = first * geom.c + group * plan.group_c + channels.start;
            for band in 0..plan.bands {
                let rows = band * plan.band..((band + 1) * plan.band).min(geom.oh);
                let x = if plan.dense {
                    &self.x[channel * image_len + rows.start * geom.w..]
                } else {
                    let copy_len = channels.len() * plan.plane.channel_len();
                    for (i, copy) in copy.chunks_exact_mut(copy_len).take(group_images.len()).enumerate() {
                        let src = &self.x[(channel + i * geom.c) * image_len..][..channels.len() * image_len];
                        plan.plane.copy(src, rows.start * plan.step[0], copy);
                    }
                    &*copy
                };
                let sizes = [group_images.len(), rows.len()];
                let accumulate = first > images.start || band > 0;
                let ahead = self.ahead(group_images.len(), rows.clone());
                for (i, unit) in units.clone().enumerate() {
                    let panel = unit % plan.panels;
                    let width = self.transpose_dy(group_images.clone(), group, panel, rows.clone(), dy_band, gathered);
                    // SAFETY: unit `i` of those that start at `sums`; `x` and `dy_band` hold this band of these images.
                    unsafe {
                        let sums = sums.add(i * plan.unit_len());
                        self.tiles(channels.clone(), sizes, width, x, dy_band, sums, accumulate, ahead);
                    }
                }
            }
        }
    }

    /// The distance from a place of these rows of some images to the next band's, or the next images', where tiles read the
    /// image itself.
    fn ahead(&self, images: usize, rows: std::ops::Range<usize>) -> usize {
        let geom = self.geom;
        if !self.plan.dense {
            0
        } else if rows.end < geom.oh {
            rows.len() * geom.w
        } else {
            images * geom.c * geom.h * geom.w - rows.start * geom.w
        }
    }

    /// All tiles of a band of one unit.
    ///
    /// # Safety
    /// `sums` is writable for a unit's rows of `channels`; `x` and `dy` hold what `height` rows of output of these images
    /// read, `dy` for `columns` output channels.
    unsafe fn tiles(
        &self,
        channels: std::ops::Range<usize>,
        [images, height]: [usize; 2],
        columns: usize,
        x: &[T],
        dy: &[T],
        sums: *mut T,
        accumulate: bool,
        ahead: usize,
    ) {
        let (plan, geom) = (self.plan, self.geom);
        let rows = channels.len() * plan.taps;
        let tiles = self.kernels.outer[columns / self.kernels.lanes - 1];
        let panels = rows.div_ceil(tiles.len());
        let [image, row] = if plan.dense {
            [geom.c * geom.h * geom.w, geom.w]
        } else {
            [channels.len() * plan.plane.channel_len(), plan.plane.pitch]
        };
        let step = [image, plan.step[0] * row, plan.step[1]];
        // Rows of the image itself follow one another.
        let [height, width] = if plan.dense { [1, height * geom.ow] } else { [height, geom.ow] };
        for panel in 0..panels {
            let tile_rows = part_range(rows, panels, panel);
            let tile = tiles[tile_rows.len() - 1];
            // SAFETY: offsets count from the first channel of a group, `x` from the first of the block, and both advance
            // alike; the plane is as large as the last place of the last tap. Rows of `sums` are a panel apart.
            unsafe {
                tile(
                    [images, height, width],
                    x.as_ptr(),
                    self.offsets[tile_rows.clone()].as_ptr(),
                    step,
                    dy.as_ptr(),
                    sums.add((channels.start * plan.taps + tile_rows.start) * plan.panel),
                    plan.panel,
                    accumulate,
                    ahead,
                );
            }
        }
    }

    /// Writes a band of `dy` of some images as `[image][place][width]`, zeros past the last output channel; returns the width.
    fn transpose_dy(
        &self,
        images: std::ops::Range<usize>,
        group: usize,
        panel: usize,
        rows: std::ops::Range<usize>,
        out: &mut [T],
        gathered: &mut [T],
    ) -> usize {
        let (plan, geom) = (self.plan, self.geom);
        let start = panel * plan.panel;
        let valid = plan.panel.min(plan.group_k - start);
        let width = valid.next_multiple_of(self.kernels.lanes);
        let places = rows.len() * geom.ow;
        for (image, out) in images.zip(out.chunks_exact_mut(places * width)) {
            let channel = image * geom.k + group * plan.group_k + start;
            let (src, plane) = if let Some(gather) = &plan.gather {
                let [image_len, plane] = [gather.size[0] * gather.size[1], gather.channel_len()];
                let gathered = &mut gathered[..valid * plane];
                gather.copy(&self.dy[channel * image_len..][..valid * image_len], rows.start, gathered);
                (&*gathered, plane)
            } else {
                let plane = geom.oh * geom.ow;
                (&self.dy[channel * plane + rows.start * geom.ow..], plane)
            };
            let src = &src[..(valid - 1) * plane + places];
            // SAFETY: `valid` rows of `places` contiguous elements, a plane apart, lie within `src`.
            unsafe { transpose_into(src.as_ptr(), plane as isize, 1, valid, places, width, out) };
        }
        width
    }

    /// Adds the partial sums in order and writes the units of a pass to `dw`, transposed back unless the problem is turned.
    fn write(&self, pool: &Pool, pass: std::ops::Range<usize>, sums: &mut [T], dw: &mut [T]) {
        let plan = self.plan;
        let (len, partial_len) = (plan.unit_len(), pass.len() * plan.unit_len());
        let (sums, dw_len, dw) = (Sums(sums.as_mut_ptr()), dw.len(), Sums(dw.as_mut_ptr()));
        pool.run(pass.len(), &|i| {
            let (group, panel) = ((pass.start + i) / plan.panels, (pass.start + i) % plan.panels);
            let valid = plan.panel.min(plan.group_k - panel * plan.panel);
            let (rows, columns) = if plan.turned { (plan.rows, valid) } else { (valid, plan.rows) };
            let [at, apart] = if plan.turned {
                [group * plan.rows * plan.group_k + panel * plan.panel, plan.group_k]
            } else {
                [(group * plan.group_k + panel * plan.panel) * plan.rows, plan.rows]
            };
            assert!(at + (rows - 1) * apart + columns <= dw_len);
            let (sums, dw) = (&sums, &dw);
            // SAFETY: unit `i` of each partial sum, and the rows of `dw` of its output channels, or its columns of them, which
            // lie within `dw` by the assert; no other task has them. The unit's rows are a panel apart.
            unsafe {
                let unit = std::slice::from_raw_parts_mut(sums.0.add(i * len), len);
                for partial in 1..plan.partials {
                    let more = std::slice::from_raw_parts(sums.0.add(partial * partial_len + i * len), len);
                    for (sum, x) in unit.iter_mut().zip(more) {
                        *sum = T::from_sum(T::add(sum.widen(), x.widen()));
                    }
                }
                if plan.turned {
                    for (row, sums) in unit.chunks_exact(plan.panel).enumerate() {
                        std::slice::from_raw_parts_mut(dw.0.add(at + row * apart), valid)
                            .copy_from_slice(&sums[..valid]);
                    }
                    return;
                }
                let dw = std::slice::from_raw_parts_mut(dw.0.add(at), valid * plan.rows);
                transpose_into(unit.as_ptr(), plan.panel as isize, 1, plan.rows, valid, plan.rows, dw);
            }
        });
    }
}
