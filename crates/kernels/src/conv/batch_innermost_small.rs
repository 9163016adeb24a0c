//! Convolution of small images in batches: the images of a batch are the columns of products, one for each tap and place.
//!
//! With the images in the lanes of vectors, a tap that would read beside the image is left out: of a 3x3 kernel over 2x2 places
//! that are 20 of 36 products, over 4x4 places 44 of 144. A stride and the gradient of the input under one cost nothing
//! either: they are other pairs of places. What it costs is a transposition of the images on the way in and out, and these are
//! small beside the weights of the layers that have such images.
//!
//! * Forward pass and input gradient: each task takes some output channels, packs their weights, a panel of rows at a time, and
//!   multiplies them with the places that each tap reads, which all tasks share. So weights are read from memory once.
//! * Weight gradient: a tile of channels for each tap, summed over the pairs of places and the images.
//!
//! Sums go block of channels by block, then tap by tap, then place by place: an order that follows from the sizes.

use super::choose::Pass;
use super::correlate::Images;
use super::kernel::ConvKernels;
use super::{Conv2d, ConvElement, Workspace};
use crate::gemm::kernel::Kernels;
use crate::pool::{Pool, part_range};
use crate::prefetch::{PrefetchLines, prefetch_run};
use crate::transpose::{Apart, move_short, transpose_apart, transpose_into};

/// Bytes of a packed panel of weights of all taps: it stays in the L2 cache beside the images.
const WEIGHT_BYTES: usize = 288 << 10;
/// Channels ahead whose weights are prefetched.
const CHANNELS_AHEAD: usize = 8;
/// Channels that are transposed in a task.
const CHANNELS_A_TASK: usize = 16;
/// Tasks per thread, so that a thread that is held up does not keep the others waiting for long.
const TASKS_PER_THREAD: usize = 4;

/// Sizes of a pass: of forward pass and input gradient as products of weights `[out_c, src_c]` and images.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a, T: 'static> {
    geom: &'a Conv2d,
    pass: Pass,
    gemm: &'static Kernels<T>,
    src_c: usize,
    out_c: usize,
    src_places: usize,
    dst_places: usize,
    taps: usize,
    /// Source channels whose weights are packed at a time.
    depth: usize,
    /// Panels of rows that the output channels are cut into.
    panels: usize,
    tasks: usize,
}

impl<'a, T: ConvElement> Plan<'a, T> {
    pub(super) fn new(geom: &'a Conv2d, pass: Pass, kernels: &ConvKernels<T>, threads: usize) -> Plan<'a, T> {
        let gemm = kernels.gemm.tall();
        let (places, outputs, taps) = (geom.h * geom.w, geom.oh * geom.ow, geom.r * geom.s);
        let (src_c, out_c, src_places, dst_places) = match pass {
            Pass::InputGrad => (geom.k, geom.c, outputs, places),
            Pass::Forward | Pass::WeightGrad => (geom.c, geom.k, places, outputs),
        };
        let most = (WEIGHT_BYTES / (taps * gemm.mr() * size_of::<T>())).max(1);
        let depth = src_c.div_ceil(src_c.div_ceil(most));
        let panels = out_c.div_ceil(gemm.mr());
        let tasks = if threads == 1 { 1 } else { (threads * TASKS_PER_THREAD).min(panels) };
        Plan { geom, pass, gemm, src_c, out_c, src_places, dst_places, taps, depth, panels, tasks }
    }

    pub(super) fn workspace_bytes(&self, threads: usize) -> usize {
        let mut size = Workspace::sizer();
        size.add::<T>(self.images_len());
        size.add::<T>(threads.min(self.tasks) * self.slot_len());
        size.bytes()
    }

    /// Elements of the source in the order that products read it.
    fn images_len(&self) -> usize {
        let (n, lanes) = (self.geom.n, self.gemm.lanes);
        match self.pass {
            Pass::WeightGrad => n * self.src_places * self.src_c.next_multiple_of(lanes),
            Pass::Forward | Pass::InputGrad => n.next_multiple_of(lanes) * self.src_places * self.src_c,
        }
    }

    fn slot_len(&self) -> usize {
        let [mr, nr] = [self.gemm.mr(), self.gemm.nr()];
        match self.pass {
            Pass::WeightGrad => (self.taps * nr + self.dst_places * self.geom.n) * mr,
            Pass::Forward | Pass::InputGrad => (self.taps * self.depth + self.dst_places * nr) * mr,
        }
    }

    /// The products of a tap: output places, and the source places that they read.
    fn links(&self, tap: usize) -> impl Iterator<Item = [usize; 2]> + use<'_, T> {
        let g = self.geom;
        let [r, s] = [tap / g.s * g.dilation[0], tap % g.s * g.dilation[1]];
        let read = |i: usize, axis: usize, tap: usize, size: usize| {
            (i * g.stride[axis] + tap).checked_sub(g.pad.begin[axis]).filter(|&at| at < size)
        };
        (0..g.oh).filter_map(move |i| Some((i, read(i, 0, r, g.h)?))).flat_map(move |(i, row)| {
            (0..g.ow)
                .filter_map(move |j| read(j, 1, s, g.w).map(|col| [i * g.ow + j, row * g.w + col]))
                .map(move |[out, src]| if self.pass == Pass::InputGrad { [src, out] } else { [out, src] })
        })
    }

    /// Forward pass or input gradient.
    pub(super) fn run(&self, pool: &Pool, src: &[T], weight: &[T], dst: &mut [T], workspace: &mut [u8]) {
        let mut ws = Workspace::new(workspace);
        let images = ws.take::<T>(self.images_len());
        let slots = ws.rest::<T>();
        assert_eq!(dst.len(), self.geom.n * self.out_c * self.dst_places);
        self.images_last(pool, src, images);
        let (images, dst) = (&*images, Images(dst.as_mut_ptr()));
        pool.with_slots(self.tasks, slots, self.slot_len(), |task, slot| {
            let dst = &dst;
            for panel in part_range(self.panels, self.tasks, task) {
                let rows = part_range(self.out_c, self.panels, panel);
                // SAFETY: `dst` is as long as the result, by the assert, and no other task has these channels.
                unsafe { self.channels(rows, images, weight, dst.0, slot) };
            }
        });
    }

    /// The source as `[panel of images][place][channel][image]`.
    fn images_last(&self, pool: &Pool, src: &[T], images: &mut [T]) {
        let (n, nr) = (self.geom.n, self.gemm.nr());
        let (parts, image_len) = (self.src_c.div_ceil(CHANNELS_A_TASK), self.src_c * self.src_places);
        assert!(src.len() == n * image_len && images.len() == self.images_len());
        let out = Images(images.as_mut_ptr());
        pool.run(n.div_ceil(nr) * parts, &|task| {
            let (first, channels) = (task / parts * nr, part_range(self.src_c, parts, task % parts));
            let width = self.width(first);
            let rows = Apart { minor: self.src_places, minor_step: self.src_c * width, major_step: width };
            let (valid, steps) = (nr.min(n - first), channels.len() * self.src_places);
            let out = &out;
            // SAFETY: `valid` images from `first` on have these channels; their places in `images` are this task's alone.
            unsafe {
                let src = src.as_ptr().add(first * image_len + channels.start * self.src_places);
                let out = out.0.add(first * image_len + channels.start * width);
                transpose_apart(src, image_len, valid, steps, width, rows, out);
            }
        });
    }

    /// Columns of the panel of images from `first` on, in whole vectors.
    fn width(&self, first: usize) -> usize {
        self.gemm.nr().min((self.geom.n - first).next_multiple_of(self.gemm.lanes))
    }

    /// All outputs of some channels, at most as many as a tile has rows.
    ///
    /// # Safety
    /// `dst` is writable for the result, and nobody else touches these channels of it.
    unsafe fn channels(&self, rows: std::ops::Range<usize>, images: &[T], weight: &[T], dst: *mut T, slot: &mut [T]) {
        let (n, nr, image_len) = (self.geom.n, self.gemm.nr(), self.out_c * self.dst_places);
        let (packed, sums) = slot.split_at_mut(self.taps * self.depth * self.gemm.mr());
        for first in (0..n).step_by(nr) {
            let width = self.width(first);
            let sums = &mut sums[..rows.len() * self.dst_places * width];
            sums.fill(T::default());
            for start in (0..self.src_c).step_by(self.depth) {
                let channels = start..(start + self.depth).min(self.src_c);
                // packed weights of a single block serve all images
                if first == 0 || self.depth < self.src_c {
                    let shape = [self.src_c, self.out_c, self.taps];
                    pack_weights(self.pass, shape, rows.clone(), channels.clone(), weight, packed);
                }
                self.multiply(
                    rows.len(),
                    channels,
                    &images[first * self.src_c * self.src_places..],
                    width,
                    packed,
                    sums,
                );
            }
            // SAFETY: the rows of these images in `dst` are the caller's.
            unsafe {
                let dst = dst.add(first * image_len + rows.start * self.dst_places);
                let (steps, all) = (nr.min(n - first), rows.len() * self.dst_places);
                transpose_apart(sums.as_ptr(), width, all, steps, all, Apart::by(image_len), dst);
            }
        }
    }

    /// Adds the products of packed weights and the channels of a panel of images to `sums: [row][place][image]`.
    fn multiply(
        &self,
        height: usize,
        channels: std::ops::Range<usize>,
        images: &[T],
        width: usize,
        packed: &[T],
        sums: &mut [T],
    ) {
        let (depth, apart) = (channels.len(), self.dst_places * width);
        let tile = self.gemm.tiles[height - 1][width / self.gemm.lanes - 1];
        for tap in 0..self.taps {
            let w = &packed[tap * depth * height..][..depth * height];
            for [dst, src] in self.links(tap) {
                let x = &images[(src * self.src_c + channels.start) * width..][..depth * width];
                let y = &mut sums[dst * width..][..(height - 1) * apart + width];
                // SAFETY: `depth` steps of a panel of weights and of images, and the rows of a place.
                unsafe { tile(depth, w.as_ptr(), x.as_ptr(), y.as_mut_ptr(), apart, true, PrefetchLines::NONE) };
            }
        }
    }

    /// The gradient of the weight.
    pub(super) fn run_weight_grad(&self, pool: &Pool, x: &[T], dy: &[T], dw: &mut [T], workspace: &mut [u8]) {
        let mut ws = Workspace::new(workspace);
        let images = ws.take::<T>(self.images_len());
        let slots = ws.rest::<T>();
        self.channels_last(pool, x, images);
        let (images, dw_len, dw) = (&*images, dw.len(), Images(dw.as_mut_ptr()));
        assert!(
            dw_len == self.out_c * self.src_c * self.taps && dy.len() == self.geom.n * self.out_c * self.dst_places
        );
        pool.with_slots(self.tasks, slots, self.slot_len(), |task, slot| {
            let (sums, dy_panel) = slot.split_at_mut(self.taps * self.gemm.mr() * self.gemm.nr());
            let dw = &dw;
            for panel in part_range(self.panels, self.tasks, task) {
                let rows = part_range(self.out_c, self.panels, panel);
                self.pack_dy(rows.clone(), dy, dy_panel);
                for first in (0..self.src_c).step_by(self.gemm.nr()) {
                    let valid = self.gemm.nr().min(self.src_c - first);
                    let place = |row: usize| (row * self.src_c + first) * self.taps;
                    for row in rows.clone() {
                        prefetch_run(dw.0.wrapping_add(place(row)), valid * self.taps);
                    }
                    let width = self.channels_width(first);
                    self.sum_taps(rows.len(), width, &images[first * self.src_places * self.geom.n..], dy_panel, sums);
                    for (i, row) in rows.clone().enumerate() {
                        // SAFETY: the taps of these channels of an output channel of this task, within `dw` by the assert.
                        let dw = unsafe { std::slice::from_raw_parts_mut(dw.0.add(place(row)), valid * self.taps) };
                        let (sums, apart) = (&sums[i * width..], (rows.len() * width) as isize);
                        // SAFETY: a row of sums for each tap, `apart`.
                        unsafe { transpose_into(sums.as_ptr(), apart, 1, self.taps, valid, self.taps, dw) };
                    }
                }
            }
        });
    }

    /// `dy` of some output channels as `[place][image][channel]`.
    fn pack_dy(&self, rows: std::ops::Range<usize>, dy: &[T], out: &mut [T]) {
        let (n, places, height) = (self.geom.n, self.dst_places, rows.len());
        let out = &mut out[..places * n * height];
        for image in 0..n {
            let from = &dy[(image * self.out_c + rows.start) * places..][..height * places];
            let to = out[image * height..].as_mut_ptr();
            // SAFETY: a row of places for each channel; `out` has a row of channels for each place and image.
            unsafe { transpose_apart(from.as_ptr(), places, height, places, height, Apart::by(n * height), to) };
        }
    }

    /// Channels of the panel from `first` on, in whole vectors.
    fn channels_width(&self, first: usize) -> usize {
        self.gemm.nr().min((self.src_c - first).next_multiple_of(self.gemm.lanes))
    }

    /// `x` as `[panel of channels][place][image][channel]`.
    fn channels_last(&self, pool: &Pool, x: &[T], out: &mut [T]) {
        let (n, nr, places) = (self.geom.n, self.gemm.nr(), self.src_places);
        assert!(x.len() == n * self.src_c * places && out.len() == self.images_len());
        let out = Images(out.as_mut_ptr());
        pool.run(self.src_c.div_ceil(nr), &|panel| {
            let first = panel * nr;
            let (width, valid) = (self.channels_width(first), nr.min(self.src_c - first));
            let out = &out;
            for image in 0..n {
                // SAFETY: the channels of an image, and their places in this task's panel.
                unsafe {
                    let from = x.as_ptr().add((image * self.src_c + first) * places);
                    let to = out.0.add(first * places * n + image * width);
                    transpose_apart(from, places, valid, places, width, Apart::by(n * width), to);
                }
            }
        });
    }

    /// `sums: [tap][row][channel]` of the packed output channels and a panel of channels.
    fn sum_taps(&self, height: usize, width: usize, images: &[T], dy: &[T], sums: &mut [T]) {
        let n = self.geom.n;
        let tile = self.gemm.tiles[height - 1][width / self.gemm.lanes - 1];
        for (tap, sums) in sums.chunks_exact_mut(height * width).take(self.taps).enumerate() {
            let mut links = self.links(tap).peekable();
            let mut is_first = true;
            while let Some([dst, src]) = links.next() {
                // places that follow one another in both are summed in one go
                let mut count = 1;
                while links.next_if_eq(&[dst + count, src + count]).is_some() {
                    count += 1;
                }
                let (w, x) =
                    (&dy[dst * n * height..][..count * n * height], &images[src * n * width..][..count * n * width]);
                // SAFETY: `count * n` steps of a panel of each.
                unsafe {
                    tile(count * n, w.as_ptr(), x.as_ptr(), sums.as_mut_ptr(), width, !is_first, PrefetchLines::NONE)
                };
                is_first = false;
            }
            if is_first {
                sums.fill(T::default());
            }
        }
    }
}

/// Packs weights of `[src_c, out_c, taps]` as `[tap][source channel][row]`.
pub(super) fn pack_weights<T: ConvElement>(
    pass: Pass,
    [src_c, out_c, taps]: [usize; 3],
    rows: std::ops::Range<usize>,
    channels: std::ops::Range<usize>,
    weight: &[T],
    packed: &mut [T],
) {
    let (height, depth) = (rows.len(), channels.len());
    let packed = &mut packed[..taps * depth * height];
    let order = Apart { minor: taps, minor_step: depth * height, major_step: height };
    if pass == Pass::Forward {
        let from = &weight[(rows.start * src_c + channels.start) * taps..];
        assert!(from.len() >= ((height - 1) * src_c + depth) * taps);
        // SAFETY: the rows' weights of these channels, contiguous in each, by the assert; `packed` has a row for each.
        return unsafe {
            transpose_apart(from.as_ptr(), src_c * taps, height, depth * taps, height, order, packed.as_mut_ptr())
        };
    }
    for (i, channel) in channels.enumerate() {
        let at = (channel * out_c + rows.start) * taps;
        // each channel's lie in pages of their own, where no processor looks ahead
        prefetch_run(weight.as_ptr().wrapping_add(at + CHANNELS_AHEAD * out_c * taps), height * taps);
        let from = &weight[at..][..height * taps];
        let to = packed[i * height..].as_mut_ptr();
        // SAFETY: the weights of a channel and these rows; row `tap` of them goes to `[tap][i]`.
        unsafe {
            if taps == 1 {
                move_short(from.as_ptr(), to, height);
            } else {
                transpose_apart(from.as_ptr(), taps, height, taps, height, order, to);
            }
        }
    }
}
