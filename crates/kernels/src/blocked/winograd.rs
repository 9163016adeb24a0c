//! Convolutions of 3x3 taps by Winograd's algorithm F(4x4, 3x3): 36 products make 16 outputs, where sums alone take 144.
//!
//! A tile of 4x4 outputs reads 6x6 places. Both it and the weights are transformed (module `transform`) into 36 numbers a
//! channel; each of the 36 is then a matrix product over the channels, tiles by outputs; and the 36 products become the 4x4
//! outputs (Lavin and Gray, *Fast Algorithms for Convolutional Neural Networks*, 2016, sections 4.1 and 4.3).
//!
//! A task takes some tiles (a strip) by some panels of outputs. It transforms its tiles once, then goes through the panels: some
//! channels' weights are transformed at a row of six points, in the L1 cache, and added to the products there; when all have
//! been, the products become outputs. A panel's products stay in the L2 cache. The order of a sum is that of the channels, whatever the
//! strips.
//!
//! Weights are packed as they are and transformed at each run: 36 numbers instead of nine would have to come from memory in
//! every run of a network, which costs more than making them where there are few tiles (layers of many channels), and less
//! than a tenth of the products where there are many.
//!
//! What an infinity or NaN touches becomes NaN in its whole tile.

use std::ops::Range;

use remat_types::{Error, ErrorKind, Result};

use super::dense::{columns, panel, panels};
use super::kernel::Tile;
use super::{Blocked, Operands};
use crate::gemm::aligned;
use crate::pool::{Pool, part_range};
use transform::{Gather, IN, OUT, Scatter, Transforms, Weights};

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
/// Alignment of a lane's workspace: a cache line.
const ALIGN_BYTES: usize = 64;
/// Channels whose weights are transformed at a time.
const CHANNELS: usize = 64;
/// What sums begin with: a row of the widest panel.
static ZEROS: [f32; 48] = [0.0; 48];

/// What transforming a vector of a tile, or of weights, costs in multiply-adds of one vector.
const TILE_COST: usize = 500;
const WEIGHT_COST: usize = 300;
/// What a task costs to begin.
const TASK_COST: usize = 4000;

/// Errors (Value) unless this is a plain convolution of 3x3 taps from a blocked image.
pub(super) fn check(b: &Blocked) -> Result<()> {
    let g = &b.conv;
    let fits = [g.r, g.s] == [3, 3] && g.stride == [1, 1] && g.dilation == [1, 1] && g.groups == 1 && !b.planar;
    if fits {
        return Ok(());
    }
    let text = "Winograd's algorithm is for 3x3 taps of stride, dilation and groups 1 over a blocked image";
    Err(Error::new(ErrorKind::Value, text))
}

/// Elements of the packed weight.
pub(super) fn packed_len(b: &Blocked) -> usize {
    TAPS * b.conv.c * b.bias_len()
}

pub(super) fn flops(b: &Blocked) -> u64 {
    let g = &b.conv;
    let tiles = g.n * g.oh.div_ceil(OUT) * g.ow.div_ceil(OUT);
    2 * (POINTS * tiles * g.c) as u64 * g.k as u64
}

/// `packed` is zeroed; the order is panel, input channel, tap, output of the panel.
pub(super) fn pack(b: &Blocked, weight: &[f32], packed: &mut [f32]) {
    let (c, k, outputs) = (b.conv.c, b.conv.k, b.conv.k.div_ceil(b.block));
    let factors: [f64; TAPS] = std::array::from_fn(|t| transform::tap_factor(t / 3) * transform::tap_factor(t % 3));
    for i in 0..panels(outputs) {
        let (first, vectors) = panel(outputs, i);
        let (first, width) = (first * b.block, vectors * b.block);
        let packed = &mut packed[first * TAPS * c..][..width * TAPS * c];
        for to in first..k.min(first + width) {
            let weight = &weight[to * c * TAPS..][..c * TAPS];
            packed.iter_mut().skip(to - first).step_by(width).zip(weight).enumerate().for_each(|(i, (p, w))| {
                *p = (f64::from(*w) * factors[i % TAPS]) as f32;
            });
        }
    }
}

/// Work in multiply-adds of one vector.
fn cost(b: &Blocked, tiles: usize, panels: usize) -> usize {
    let blocks = b.conv.c.div_ceil(b.block);
    tiles * (blocks + 2 * panels) * TILE_COST + 2 * panels * b.conv.c * (POINTS * tiles + WEIGHT_COST)
}

/// Whether this is less work than plain sums are. A pure function of the geometry.
pub(super) fn pays(b: &Blocked) -> bool {
    let g = &b.conv;
    let panels = panels(g.k.div_ceil(b.block));
    let plain = 2 * panels * TAPS * g.c * g.n * g.oh * g.ow;
    g.c >= b.block && 4 * strips_cost(b) < 3 * plain
}

/// The cost of all strips on one thread.
fn strips_cost(b: &Blocked) -> usize {
    let plan = Plan::new(b, 1);
    plan.strips * (cost(b, plan.tiles, panels(b.conv.k.div_ceil(b.block))) + TASK_COST)
}

/// How the work is cut: a pure function of the geometry and the number of threads.
struct Plan {
    strips: usize,
    panel_parts: usize,
    /// Of the longest strip.
    tiles: usize,
    /// Tiles of an image: rows and columns.
    grid: [usize; 2],
}

impl Plan {
    fn new(b: &Blocked, threads: usize) -> Plan {
        let g = &b.conv;
        let grid = [g.oh.div_ceil(OUT), g.ow.div_ceil(OUT)];
        let all = (g.n * grid[0] * grid[1]).max(1);
        let tile_bytes = POINTS * g.c.next_multiple_of(b.block) * size_of::<f32>();
        let most = (STRIP_BYTES / tile_bytes).clamp(TILES[0], TILES[1]);
        let fewest = all.div_ceil(most);
        let all_panels = panels(g.k.div_ceil(b.block));
        let slowest = |(strips, parts): (usize, usize)| {
            let work = cost(b, all.div_ceil(strips), all_panels.div_ceil(parts)) + TASK_COST;
            (strips * parts).div_ceil(threads) * work
        };
        let more = if threads == 1 { 0 } else { 4 * threads };
        let most_parts = if threads == 1 { 1 } else { all_panels.min(2 * threads) };
        let cuts = (fewest..=all.min(fewest + more)).flat_map(|s| (1..=most_parts).map(move |p| (s, p)));
        let (strips, panel_parts) = cuts.min_by_key(|c| slowest(*c)).unwrap_or((fewest, 1));
        Plan { strips, panel_parts, tiles: all.div_ceil(strips), grid }
    }

    fn tasks(&self) -> usize {
        self.strips * self.panel_parts
    }

    /// Items of a lane: two offsets for each tile, the planes, and a tile with its margins; whole cache lines.
    fn lane_len(&self, b: &Blocked) -> usize {
        let p = Planes::of(b, self.tiles);
        (2 * self.tiles + POINTS * (p.tiles + p.products + b.block) + IN * p.weights)
            .next_multiple_of(ALIGN_BYTES / size_of::<f32>())
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
    fn of(b: &Blocked, tiles: usize) -> Planes {
        let outputs = b.conv.k.div_ceil(b.block);
        // the last panel is the widest
        let (tile, product) = (b.conv.c.next_multiple_of(b.block), panel(outputs, panels(outputs) - 1).1 * b.block);
        let weights = CHANNELS.min(b.conv.c) * product;
        Planes { tiles: tiles * tile + GAP, tile, products: tiles * product + GAP, product, weights }
    }
}

pub(super) fn workspace_bytes(b: &Blocked, threads: usize) -> usize {
    let plan = Plan::new(b, threads);
    plan.lane_len(b) * plan.tasks().min(threads) * size_of::<f32>() + ALIGN_BYTES
}

/// # Safety
/// The operands have the lengths that `b` says, for which [`check`] holds.
pub(super) unsafe fn run(b: &Blocked, pool: &Pool, operands: &Operands, workspace: &mut [u8]) {
    if b.conv.n == 0 {
        return;
    }
    let plan = Plan::new(b, pool.threads());
    let run = Run { b, operands, plan: &plan, planes: Planes::of(b, plan.tiles), transforms: Transforms::of(b.block) };
    pool.lanes(plan.tasks(), aligned::<f32>(workspace), plan.lane_len(b), |task, lane| {
        // SAFETY: the caller's contract; each task comes once, and tasks write disjoint places of `y`.
        unsafe { run.task(task, lane) }
    });
}

struct Run<'a> {
    b: &'a Blocked,
    operands: &'a Operands,
    plan: &'a Plan,
    planes: Planes,
    transforms: Transforms,
}

/// Image and first output of a tile.
#[derive(Clone, Copy)]
struct Place {
    image: usize,
    row: usize,
    column: usize,
}

impl Run<'_> {
    /// # Safety
    /// No other thread runs the same task.
    unsafe fn task(&self, task: usize, lane: &mut [f32]) {
        let (b, plan) = (self.b, self.plan);
        let all = b.conv.n * plan.grid[0] * plan.grid[1];
        // neighbouring tasks share weights
        let (strip, part) = (task % plan.strips, task / plan.strips);
        let tiles = part_range(all, plan.strips, strip);
        let (offsets, lane) = lane.split_at_mut(2 * plan.tiles);
        let (v, lane) = lane.split_at_mut(POINTS * self.planes.tiles);
        let (m, lane) = lane.split_at_mut(POINTS * self.planes.products);
        let (u, margins) = lane.split_at_mut(IN * self.planes.weights);
        let Planes { tile: v_row, product: m_row, .. } = self.planes;
        for (i, tile) in tiles.clone().enumerate() {
            // SAFETY: the strip's tiles fit their planes.
            unsafe { self.scatter(self.place(tile), &mut v[i * v_row..], &mut margins[..POINTS * b.block]) }
        }
        let offsets: &mut [u32] = bytemuck::cast_slice_mut(offsets);
        let (v_at, m_at) = offsets.split_at_mut(plan.tiles);
        for (i, (v_at, m_at)) in v_at.iter_mut().zip(m_at.iter_mut()).enumerate() {
            // a strip has few tiles
            (*v_at, *m_at) = ((i * v_row) as u32, (i * m_row) as u32);
        }
        let at = [&v_at[..tiles.len()], &m_at[..tiles.len()]];
        for i in part_range(panels(b.conv.k.div_ceil(b.block)), plan.panel_parts, part) {
            for from in (0..b.conv.c).step_by(CHANNELS) {
                let channels = from..b.conv.c.min(from + CHANNELS);
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
                unsafe { self.gather(i, self.place(tile), &m[at * m_row..]) }
            }
        }
    }

    fn place(&self, tile: usize) -> Place {
        let [rows, columns] = self.plan.grid;
        let (image, at) = (tile / (rows * columns), tile % (rows * columns));
        Place { image, row: at / columns * OUT, column: at % columns * OUT }
    }

    /// Transforms the input of a tile; `margins` takes it where it reaches beyond the image.
    ///
    /// # Safety
    /// The tile is one of `x`.
    unsafe fn scatter(&self, p: Place, v: &mut [f32], margins: &mut [f32]) {
        let (g, lanes) = (&self.b.conv, self.b.block);
        assert!(v.len() >= (POINTS - 1) * self.planes.tiles + self.planes.tile, "transformed tiles");
        // SAFETY: `x` has this length.
        let x = unsafe { std::slice::from_raw_parts(self.operands.x, self.b.x_len()) };
        let x = &x[p.image * self.b.x_image()..][..self.b.x_image()];
        let inside = |from: usize, pad: usize, size: usize| from >= pad && from - pad + IN <= size;
        let whole = inside(p.row, g.pad[0], g.h) && inside(p.column, g.pad[1], g.w);
        for (block, x) in x.chunks_exact(g.h * g.w * lanes).enumerate() {
            let (x, row) = if whole {
                (x[((p.row - g.pad[0]) * g.w + p.column - g.pad[1]) * lanes..].as_ptr(), g.w * lanes)
            } else {
                self.with_margins(p, x, margins);
                (margins.as_ptr(), IN * lanes)
            };
            let s = Scatter { x, row, v: v[block * lanes..].as_mut_ptr(), plane: self.planes.tiles };
            // SAFETY: 6x6 places are in the image, or in `margins`; `v` was measured above.
            unsafe { (self.transforms.scatter)(&s) }
        }
    }

    /// Copies 6x6 places, zeros where the image ends.
    fn with_margins(&self, p: Place, x: &[f32], to: &mut [f32]) {
        let (g, lanes) = (&self.b.conv, self.b.block);
        to.fill(0.0);
        for (r, to) in to.chunks_exact_mut(IN * lanes).enumerate() {
            let row = (p.row + r).wrapping_sub(g.pad[0]);
            if row >= g.h {
                continue;
            }
            let first = g.pad[1].saturating_sub(p.column).min(IN);
            let from = (p.column + first).saturating_sub(g.pad[1]);
            let places = (IN - first).min(g.w.saturating_sub(from));
            let x = &x[(row * g.w + from.min(g.w)) * lanes..][..places * lanes];
            to[first * lanes..][..x.len()].copy_from_slice(x);
        }
    }

    /// Transforms some channels' weights of a panel at the six points of a row.
    ///
    /// # Safety
    /// They are channels of the panel's weights.
    unsafe fn weights(&self, i: usize, row: usize, channels: Range<usize>, u: &mut [f32]) {
        let b = self.b;
        let (first, vectors) = panel(b.conv.k.div_ceil(b.block), i);
        let width = vectors * b.block;
        assert!(u.len() >= (IN - 1) * self.planes.weights + channels.len() * width, "transformed weights");
        // SAFETY: the panel's weights of a channel are nine rows; `u` was measured just above.
        unsafe {
            let w = self.operands.w.add(TAPS * (first * b.block * b.conv.c + channels.start * width));
            let (channels, u, plane) = (channels.len(), u.as_mut_ptr(), self.planes.weights);
            (self.transforms.weights[row])(&Weights { w, channels, vectors, u, plane })
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
        let b = self.b;
        let vectors = panel(b.conv.k.div_ceil(b.block), i).1;
        let tiles = b.kernels().tiles[vectors - 1];
        for column in 0..IN {
            let point = row * IN + column;
            let mut tile = Tile {
                x: v[point * self.planes.tiles + channels.start..].as_ptr(),
                x_at: at[0].as_ptr(),
                counts: [1, 1, 1],
                strides: [0; 3],
                run: channels.len(),
                w: u[column * self.planes.weights..].as_ptr(),
                y: m[point * self.planes.products..].as_mut_ptr(),
                y_at: at[1].as_ptr(),
                y_vector: b.block,
                bias: if channels.start == 0 { ZEROS.as_ptr() } else { std::ptr::null() },
                add: std::ptr::null(),
                clamp: None,
            };
            // SAFETY: as the caller says; every tile's offsets are in the slices.
            unsafe { columns(tiles, &mut tile, at[0].len()) }
        }
    }

    /// The outputs of a tile for a panel.
    ///
    /// # Safety
    /// The tile is one of `y`.
    unsafe fn gather(&self, i: usize, p: Place, m: &[f32]) {
        let (b, g, o) = (self.b, &self.b.conv, self.operands);
        let (first, vectors) = panel(g.k.div_ceil(b.block), i);
        assert!(m.len() >= (POINTS - 1) * self.planes.products + vectors * b.block, "products of a tile");
        for j in 0..vectors {
            let at = p.image * b.y_image() + (((first + j) * g.oh + p.row) * g.ow + p.column) * b.block;
            // SAFETY: the tile's first place is in `y`, and in what is added; the bias has a number for each lane.
            let tile = unsafe {
                Gather {
                    m: m.as_ptr().add(j * b.block),
                    plane: self.planes.products,
                    bias: o.bias.add((first + j) * b.block),
                    add: if o.add.is_null() { o.add } else { o.add.add(at) },
                    y: o.y.add(at),
                    row: g.ow * b.block,
                    rows: OUT.min(g.oh - p.row),
                    columns: OUT.min(g.ow - p.column),
                    clamp: o.clamp,
                }
            };
            // SAFETY: only the part of the tile that is in the image is read and written.
            unsafe { (self.transforms.gather)(&tile) }
        }
    }
}
