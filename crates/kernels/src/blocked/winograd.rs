//! Convolutions of 3x3 taps by Winograd's algorithm F(4x4, 3x3): 36 products make 16 outputs, where sums alone take 144.
//!
//! A tile of 4x4 outputs reads 6x6 places. Both it and the weights are transformed (module `transform`) into 36 numbers a
//! channel; each of the 36 is then a matrix product over the channels, tiles by outputs; and the 36 products become the 4x4
//! outputs (Lavin and Gray, *Fast Algorithms for Convolutional Neural Networks*, 2016, sections 4.1 and 4.3).
//!
//! A task takes some tiles (a strip) by some panels of outputs. It transforms its tiles once, then goes through the panels: some
//! channels' weights are transformed at a row of six points, in the L1 cache, and added to the products there; when all have
//! been, the products become outputs. A panel's products stay in the L2 cache. The order of a sum is that of the channels,
//! whatever the strips.
//!
//! Weights are packed as they are and transformed at each run: 36 numbers instead of nine would have to come from memory in
//! every run of a network, which costs more than making them where there are few tiles (layers of many channels), and less
//! than a tenth of the products where there are many.
//!
//! Images lie in blocks of channels, or plain (NCHW): then a tile's places are brought side by side as they are read, and its
//! outputs apart as they are written.
//!
//! What an infinity or NaN touches becomes NaN in its whole tile.

use std::ops::Range;

use super::Operands;
use super::dense::{Panels, columns};
use super::kernel::{Kernels, Tile};
use crate::float::Disjoint;
use crate::gemm::aligned;
use crate::geometry::Conv2d;
use crate::pool::{Pool, part_range};
use crate::prefetch::PrefetchLines;
use images::{ALONE, Images};
use transform::{Gather, IN, OUT, Scatter, Transforms, Weights};

mod images;
mod transform;

/// Products a tile.
const POINTS: usize = IN * IN;
const TAPS: usize = 9;
/// Bytes of transformed tiles of a task: what streams by once a panel comes from the L2 cache or the next one.
const STRIP_BYTES: usize = 512 << 10;
/// Tiles of a task below which the weights cost more than the products, and above which nothing is won.
const TILES: [usize; 2] = [12, 96];
/// Elements between the planes of two points, so that they do not share the sets of a cache.
const GAP: usize = 16;
/// Alignment of a slot's workspace: a cache line.
const ALIGN_BYTES: usize = 64;
/// Channels whose weights are transformed at a time.
const CHANNELS: usize = 64;
/// The start of sums: a row of the widest panel.
static ZEROS: [f32; 48] = [0.0; 48];
/// A tile's one run of steps, and behind it its beginning.
static ONE_RUN: [u32; 2] = [0; 2];

/// The cost of transforming a vector of a tile, or of weights, in multiply-adds of one vector.
const TILE_COST: usize = 500;
const WEIGHT_COST: usize = 300;
/// The additional cost of gathering a vector of a tile from a plain image, or scattering it to one.
const PLANAR_COST: usize = 150;
/// The cost of packing a vector of weights.
const PACK_COST: usize = 100;
/// The cost of beginning a task.
const TASK_COST: f64 = 4000.0;
/// Channels beyond which the fewest tiles of a strip take more than some megabytes.
const MOST_CHANNELS: usize = 4096;

/// A convolution of 3x3 taps without strides, dilation and groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Winograd {
    conv: Conv2d,
    /// Outputs of a vector, and channels of a block.
    block: usize,
    /// Images are plain, not in blocks.
    planar: bool,
}

/// How taps lie in a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taps {
    /// `[k, c, 3, 3]`.
    Forward,
    /// `[c, k, 3, 3]`, and the other way round: for the gradient of an input.
    Back,
}

impl Winograd {
    /// The convolution on images in blocks, or plain ones; `None` if it has other taps.
    pub(crate) fn new(conv: Conv2d, block: usize, planar: bool) -> Option<Winograd> {
        let fits = [conv.r, conv.s] == [3, 3] && conv.stride == [1, 1] && conv.dilation == [1, 1] && conv.groups == 1;
        fits.then_some(Winograd { conv, block, planar })
    }

    /// Blocks of outputs.
    fn outputs(&self) -> usize {
        self.conv.k.div_ceil(self.block)
    }

    fn panels(&self) -> Panels {
        // wide ones took 0.97 to 1.03 of the time where they help plain sums
        Panels::new(self.outputs(), false)
    }

    fn tiles(&self) -> usize {
        let g = &self.conv;
        g.n * g.oh.div_ceil(OUT) * g.ow.div_ceil(OUT)
    }

    /// Elements of the packed weight.
    pub(crate) fn packed_len(&self) -> usize {
        TAPS * self.conv.c * self.outputs() * self.block
    }

    /// Operations of the products.
    pub(crate) fn flops(&self) -> u64 {
        2 * (POINTS * self.tiles() * self.conv.c) as u64 * self.conv.k as u64
    }

    /// Packs a weight, overwriting `packed`; the order is panel, input channel, tap, output of the panel.
    pub(crate) fn pack(&self, pool: &Pool, taps: Taps, weight: &[f32], packed: &mut [f32]) {
        let (c, k) = (self.conv.c, self.conv.k);
        assert_eq!((weight.len(), packed.len()), (k * c * TAPS, self.packed_len()), "elements of weights for {self:?}");
        let factors: [f64; TAPS] = std::array::from_fn(|t| transform::tap_factor(t / 3) * transform::tap_factor(t % 3));
        let packed = Disjoint::new(packed);
        pool.run(self.panels().count(), &|i| {
            let (first, vectors) = self.panels().get(i);
            let (first, width) = (first * self.block, vectors * self.block);
            // SAFETY: panels do not overlap, and each comes once.
            let packed = unsafe { packed.part(first * TAPS * c, width * TAPS * c) };
            for (from, packed) in packed.chunks_exact_mut(TAPS * width).enumerate() {
                if first + width > k {
                    packed.fill(0.0);
                }
                for to in 0..width.min(k - first) {
                    let at = match taps {
                        Taps::Forward => (first + to) * c + from,
                        Taps::Back => from * k + first + to,
                    };
                    let kernel = &weight[at * TAPS..][..TAPS];
                    for t in 0..TAPS {
                        let tap = if taps == Taps::Back { TAPS - 1 - t } else { t };
                        packed[t * width + to] = (f64::from(kernel[tap]) * factors[t]) as f32;
                    }
                }
            }
        });
    }

    /// Work in multiply-adds of one vector; a float, for sizes that no machine holds must not overflow.
    fn cost(&self, tiles: usize, panels: usize) -> f64 {
        let blocks = self.conv.c.div_ceil(self.block);
        let vector = if self.planar { TILE_COST + PLANAR_COST } else { TILE_COST };
        let transforms = (tiles * vector) as f64 * (blocks + 2 * panels) as f64;
        transforms + (2 * panels * self.conv.c) as f64 * (POINTS * tiles + WEIGHT_COST) as f64 + TASK_COST
    }

    /// Whether this is clearly less work than plain sums are. A pure function of the geometry.
    pub(crate) fn pays(&self) -> bool {
        let g = &self.conv;
        if g.n == 0 || g.k < self.block || !(self.block..=MOST_CHANNELS).contains(&g.c) {
            return false;
        }
        let (panels, plan) = (self.panels().count(), Plan::new(self, 1));
        let packing = if self.planar { (TAPS * g.c * PACK_COST) as f64 * self.outputs() as f64 } else { 0.0 };
        let plain = (2 * panels * TAPS * g.c) as f64 * (g.n * g.oh * g.ow) as f64;
        plan.strips as f64 * self.cost(plan.tiles, panels) + packing < 0.75 * plain
    }

    pub(crate) fn workspace_bytes(&self, threads: usize) -> usize {
        let plan = Plan::new(self, threads);
        plan.slot_len(self) * plan.tasks().min(threads) * size_of::<f32>() + ALIGN_BYTES
    }

    /// `y = clamp(start + bias + x * weight)`, where a null bias is none.
    ///
    /// # Safety
    /// The operands have the lengths that the geometry says.
    pub(super) unsafe fn run(&self, pool: &Pool, operands: &Operands, workspace: &mut [u8]) {
        if self.conv.n == 0 {
            return;
        }
        let plan = Plan::new(self, pool.threads());
        let images = Images { g: self, operands, transforms: Transforms::of(self.block) };
        let kernels = Kernels::of(self.block).expect("blocks of 8 or 16 have kernels");
        let run = Run { g: self, operands, plan: &plan, planes: Planes::of(self, plan.tiles), images, kernels };
        pool.with_slots(plan.tasks(), aligned::<f32>(workspace), plan.slot_len(self), |task, slot| {
            // SAFETY: the caller's contract; each task comes once, and tasks write disjoint places of `y`.
            unsafe { run.task(task, slot) }
        });
    }

    /// As `run`, of plain images alone. Panics if a slice has another length than it should.
    pub(crate) fn correlate(&self, pool: &Pool, x: &[f32], packed: &[f32], y: &mut [f32], workspace: &mut [u8]) {
        let g = &self.conv;
        assert!(self.planar, "{self:?} is on blocks");
        assert_eq!((x.len(), y.len()), (g.x_len(), g.y_len()), "elements of the images for {self:?}");
        assert_eq!(packed.len(), self.packed_len(), "elements of the packed weight for {self:?}");
        let (x, w, y) = (x.as_ptr(), packed.as_ptr(), y.as_mut_ptr());
        let operands = Operands { x, w, bias: std::ptr::null(), add: std::ptr::null(), y, clamp: None };
        // SAFETY: the lengths were checked just above.
        unsafe { self.run(pool, &operands, workspace) }
    }
}

/// How the work is cut: a pure function of the geometry and the number of threads.
struct Plan {
    strips: usize,
    panel_parts: usize,
    /// Of the longest strip.
    tiles: usize,
}

impl Plan {
    fn new(g: &Winograd, threads: usize) -> Plan {
        let all = g.tiles().max(1);
        let tile_bytes = POINTS * g.conv.c.next_multiple_of(g.block) * size_of::<f32>();
        let most = (STRIP_BYTES / tile_bytes).clamp(TILES[0], TILES[1]);
        let fewest = all.div_ceil(most);
        let all_panels = g.panels().count();
        let slowest = |(strips, parts): &(usize, usize)| {
            (strips * parts).div_ceil(threads) as f64 * g.cost(all.div_ceil(*strips), all_panels.div_ceil(*parts))
        };
        let more = if threads == 1 { 0 } else { 4 * threads };
        let most_parts = if threads == 1 { 1 } else { all_panels.min(2 * threads) };
        let cuts = (fewest..=all.min(fewest + more)).flat_map(|s| (1..=most_parts).map(move |p| (s, p)));
        let (strips, panel_parts) = cuts.min_by(|a, b| slowest(a).total_cmp(&slowest(b))).unwrap_or((fewest, 1));
        Plan { strips, panel_parts, tiles: all.div_ceil(strips) }
    }

    fn tasks(&self) -> usize {
        self.strips * self.panel_parts
    }

    /// Items of the offsets of a strip's tiles in two planes.
    fn offsets(&self) -> usize {
        (2 * self.tiles).next_multiple_of(ALIGN_BYTES / size_of::<f32>())
    }

    /// Items of a slot: offsets, planes, and a tile by itself.
    fn slot_len(&self, g: &Winograd) -> usize {
        let p = Planes::of(g, self.tiles);
        self.offsets() + POINTS * (p.tiles + p.products) + ALONE * g.block + IN * p.weights
    }
}

/// Elements at one point, and of a row of them.
#[derive(Clone, Copy)]
struct Planes {
    tiles: usize,
    tile: usize,
    products: usize,
    product: usize,
    weights: usize,
}

impl Planes {
    fn of(g: &Winograd, tiles: usize) -> Planes {
        let product = g.panels().most() * g.block;
        let tile = g.conv.c.next_multiple_of(g.block);
        let weights = CHANNELS.min(g.conv.c) * product + GAP;
        Planes { tiles: tiles * tile + GAP, tile, products: tiles * product + GAP, product, weights }
    }
}

struct Run<'a> {
    g: &'a Winograd,
    operands: &'a Operands,
    plan: &'a Plan,
    planes: Planes,
    images: Images<'a>,
    kernels: &'static Kernels,
}

impl Run<'_> {
    /// # Safety
    /// No other thread runs the same task.
    unsafe fn task(&self, task: usize, slot: &mut [f32]) {
        let (g, plan, p) = (self.g, self.plan, self.planes);
        // neighbouring tasks share weights
        let (strip, part) = (task % plan.strips, task / plan.strips);
        let tiles = part_range(g.tiles(), plan.strips, strip);
        let (offsets, slot) = slot.split_at_mut(plan.offsets());
        let (v, slot) = slot.split_at_mut(POINTS * p.tiles);
        let (m, slot) = slot.split_at_mut(POINTS * p.products);
        let (u, alone) = slot.split_at_mut(IN * p.weights);
        let alone = &mut alone[..ALONE * g.block];
        for (i, tile) in tiles.clone().enumerate() {
            // SAFETY: the strip's tiles fit their planes.
            unsafe { self.images.scatter(tile, &mut v[i * p.tile..], p.tiles, alone) }
        }
        let offsets: &mut [u32] = bytemuck::cast_slice_mut(offsets);
        let (v_at, m_at) = offsets.split_at_mut(plan.tiles);
        for (i, (v_at, m_at)) in v_at.iter_mut().zip(m_at.iter_mut()).enumerate() {
            // a strip has few tiles
            (*v_at, *m_at) = ((i * p.tile) as u32, (i * p.product) as u32);
        }
        let at = [&v_at[..tiles.len()], &m_at[..tiles.len()]];
        for i in part_range(g.panels().count(), plan.panel_parts, part) {
            for from in (0..g.conv.c).step_by(CHANNELS) {
                let channels = from..g.conv.c.min(from + CHANNELS);
                for row in 0..IN {
                    // SAFETY: these are channels of the panel; the offsets are those of the strip's tiles in both planes.
                    unsafe {
                        self.weights(i, row, channels.clone(), u);
                        self.products(i, row, channels.clone(), at, [v, u], m);
                    }
                }
            }
            for (at, tile) in tiles.clone().enumerate() {
                // SAFETY: the products of this tile have just been made.
                unsafe { self.images.gather(i, tile, &m[at * p.product..], p.products, alone) }
            }
        }
    }

    /// Transforms some channels' weights of a panel at the six points of a row.
    ///
    /// # Safety
    /// They are channels of the panel's weights.
    unsafe fn weights(&self, i: usize, row: usize, channels: Range<usize>, u: &mut [f32]) {
        let g = self.g;
        let (first, vectors) = g.panels().get(i);
        let width = vectors * g.block;
        assert!(u.len() >= (IN - 1) * self.planes.weights + channels.len() * width, "transformed weights");
        // SAFETY: the panel's weights of a channel are nine rows; `u` was measured just above.
        unsafe {
            let w = self.operands.w.add(TAPS * (first * g.block * g.conv.c + channels.start * width));
            let (channels, u, plane) = (channels.len(), u.as_mut_ptr(), self.planes.weights);
            (self.images.transforms.weights[row])(&Weights { w, channels, vectors, u, plane })
        }
    }

    /// Adds what some channels give to a panel's products at the six points of a row, for all tiles of the strip.
    ///
    /// # Safety
    /// The offsets name tiles of `v` and `m`; `u` has the channels' weights for panel and row.
    unsafe fn products(
        &self,
        i: usize,
        row: usize,
        channels: Range<usize>,
        at: [&[u32]; 2],
        [v, u]: [&[f32]; 2],
        m: &mut [f32],
    ) {
        let vectors = self.g.panels().get(i).1;
        let tiles = self.kernels.tiles[vectors - 1];
        for column in 0..IN {
            let point = row * IN + column;
            let mut tile = Tile {
                x: v[point * self.planes.tiles + channels.start..].as_ptr(),
                x_at: at[0].as_ptr(),
                run_at: ONE_RUN.as_ptr(),
                runs: 1,
                run: channels.len(),
                w: u[column * self.planes.weights..].as_ptr(),
                y: m[point * self.planes.products..].as_mut_ptr(),
                y_at: at[1].as_ptr(),
                y_vector: self.g.block,
                bias: if channels.start == 0 { ZEROS.as_ptr() } else { std::ptr::null() },
                add: std::ptr::null(),
                clamp: None,
                // weights are prefetched as they are transformed
                ahead: PrefetchLines::NONE,
                x_ahead: 0,
            };
            // SAFETY: as the caller says; every tile's offsets are in the slices.
            unsafe { columns(tiles, &mut tile, at[0].len(), 0) }
        }
    }
}
