//! Tiles on their way from and to images.

#[cfg(target_arch = "x86_64")]
use crate::simd::Isa;
#[cfg(target_arch = "x86_64")]
use crate::transpose::squares;

use super::{Gather, IN, OUT, Operands, POINTS, Scatter, Transforms, Winograd, ZEROS};

/// Places of a tile by itself, and those that are written beyond its last row.
pub(super) const ALONE: usize = POINTS + 8;

/// The images of a run, in blocks or plain.
pub(super) struct Images<'a> {
    pub g: &'a Winograd,
    pub operands: &'a Operands,
    pub transforms: Transforms,
}

/// Image and first output of a tile.
#[derive(Clone, Copy)]
struct Place {
    image: usize,
    row: usize,
    column: usize,
}

impl Images<'_> {
    fn place(&self, tile: usize) -> Place {
        let g = &self.g.conv;
        let [rows, columns] = [g.oh.div_ceil(OUT), g.ow.div_ceil(OUT)];
        let (image, at) = (tile / (rows * columns), tile % (rows * columns));
        Place { image, row: at / columns * OUT, column: at % columns * OUT }
    }

    /// Transforms the input of a tile: number `i` of the 36 goes to `v[i plane ..]`, all its channels. `alone` takes the places
    /// of a block where they do not lie side by side, or reach beyond the image.
    ///
    /// # Safety
    /// `x` has the length that the geometry says, and the tile is one of it.
    pub(super) unsafe fn scatter(&self, tile: usize, v: &mut [f32], plane: usize, alone: &mut [f32]) {
        let (g, lanes, p) = (&self.g.conv, self.g.block, self.place(tile));
        let channels = g.c.next_multiple_of(lanes);
        assert!(v.len() >= (POINTS - 1) * plane + channels && alone.len() == ALONE * lanes, "transformed tiles");
        let image = g.h * g.w * if self.g.planar { g.c } else { channels };
        // SAFETY: `x` has this length.
        let x = unsafe { std::slice::from_raw_parts(self.operands.x, g.n * image) };
        let x = &x[p.image * image..][..image];
        let inside = |from: usize, pad: usize, size: usize| from >= pad && from - pad + IN <= size;
        let whole = !self.g.planar && inside(p.row, g.pad.begin[0], g.h) && inside(p.column, g.pad.begin[1], g.w);
        for (block, x) in x.chunks(g.h * g.w * lanes).enumerate() {
            let (x, row) = if whole {
                (x[((p.row - g.pad.begin[0]) * g.w + p.column - g.pad.begin[1]) * lanes..].as_ptr(), g.w * lanes)
            } else {
                self.with_margins(p, x, alone);
                (alone.as_ptr(), IN * lanes)
            };
            let s = Scatter { x, row, v: v[block * lanes..].as_mut_ptr(), plane };
            // SAFETY: 6x6 places are in the image, or in `alone`; `v` was measured above.
            unsafe { (self.transforms.scatter)(&s) }
        }
    }

    /// Copies 6x6 places of a block's channels, zeros where the image ends. What is written beyond a row, the next one
    /// overwrites.
    fn with_margins(&self, p: Place, x: &[f32], to: &mut [f32]) {
        let (g, lanes) = (&self.g.conv, self.g.block);
        let first = g.pad.begin[1].saturating_sub(p.column).min(IN);
        let from = (p.column + first).saturating_sub(g.pad.begin[1]).min(g.w);
        let places = (IN - first).min(g.w - from);
        for r in 0..IN {
            let to = &mut to[r * IN * lanes..];
            let row = (p.row + r).wrapping_sub(g.pad.begin[0]);
            if row >= g.h {
                to[..IN * lanes].fill(0.0);
                continue;
            }
            let (before, to) = to.split_at_mut(first * lanes);
            before.fill(0.0);
            if self.g.planar {
                bring(&x[row * g.w + from..], g.h * g.w, places, lanes, to);
            } else {
                to[..places * lanes].copy_from_slice(&x[(row * g.w + from) * lanes..][..places * lanes]);
            }
            to[places * lanes..(IN - first) * lanes].fill(0.0);
        }
    }

    /// The outputs of a tile for a panel, from products. Product `i` is at `m[i plane ..]`.
    ///
    /// # Safety
    /// The operands have the lengths that the geometry says; no other thread writes this tile for this panel.
    pub(super) unsafe fn gather(&self, i: usize, tile: usize, m: &[f32], plane: usize, alone: &mut [f32]) {
        let (g, lanes, o, p) = (&self.g.conv, self.g.block, self.operands, self.place(tile));
        let (first, vectors) = self.g.panels().get(i);
        assert!(
            m.len() >= (POINTS - 1) * plane + vectors * lanes && alone.len() >= OUT * OUT * lanes,
            "a tile's products"
        );
        let (rows, columns) = (OUT.min(g.oh - p.row), OUT.min(g.ow - p.column));
        let tile = Gather {
            m: m.as_ptr(),
            plane,
            bias: ZEROS.as_ptr(),
            add: std::ptr::null(),
            y: alone.as_mut_ptr(),
            row: OUT * lanes,
            rows,
            columns,
            clamp: o.clamp,
        };
        for block in first..first + vectors {
            let m = m[(block - first) * lanes..].as_ptr();
            if self.g.planar {
                // SAFETY: a tile fits `alone`; the block's channels that there are, and the tile's places in the image, are in `y`.
                unsafe {
                    (self.transforms.gather)(&Gather { m, ..tile });
                    let apart = apart(&alone[..OUT * OUT * lanes], lanes);
                    for (lane, apart) in apart.iter().enumerate().take(lanes.min(g.k - block * lanes)) {
                        let channel = (p.image * g.k + block * lanes + lane) * g.oh * g.ow;
                        let y = o.y.add(channel + p.row * g.ow + p.column);
                        for r in 0..rows {
                            let from = apart[r * OUT..].as_ptr();
                            if columns == OUT {
                                from.copy_to_nonoverlapping(y.add(r * g.ow), OUT);
                            } else {
                                from.copy_to_nonoverlapping(y.add(r * g.ow), columns);
                            }
                        }
                    }
                }
                continue;
            }
            let image = self.g.outputs() * lanes * g.oh * g.ow;
            let at = p.image * image + ((block * g.oh + p.row) * g.ow + p.column) * lanes;
            // SAFETY: the tile's first place is in `y`, and in what is added; the bias has a number for each lane. Only the part
            // of the tile that is in the image is read and written.
            unsafe {
                let add = if o.add.is_null() { o.add } else { o.add.add(at) };
                let (bias, y) = (o.bias.add(block * lanes), o.y.add(at));
                (self.transforms.gather)(&Gather { m, bias, add, y, row: g.ow * lanes, ..tile });
            }
        }
    }
}

/// Brings `places` of a row of several channels, `plane` elements apart, side by side.
fn bring(x: &[f32], plane: usize, places: usize, lanes: usize, to: &mut [f32]) {
    // a block's last channel may be the last one of the image
    let channels = lanes.min(x.len().div_ceil(plane));
    #[cfg(target_arch = "x86_64")]
    if channels == lanes && x.len() >= (lanes - 1) * plane + squares::SIDE && Isa::best() != Isa::Portable {
        assert!(to.len() >= squares::SIDE * lanes && places <= squares::SIDE);
        for half in (0..lanes).step_by(squares::SIDE) {
            // SAFETY: the processor has AVX2; eight elements of eight channels are in `x`, eight rows are in `to`.
            unsafe {
                let (x, to) = (x.as_ptr().add(half * plane), to.as_mut_ptr().add(half));
                squares::square(x, plane as isize, squares::SIDE, to, lanes);
            }
        }
        return;
    }
    for lane in 0..channels {
        let x = &x[lane * plane..][..places];
        to.iter_mut().skip(lane).step_by(lanes).zip(x).for_each(|(to, x)| *to = *x);
    }
}

/// A tile of 4x4 outputs, a vector each, as a row for each channel.
fn apart(tile: &[f32], lanes: usize) -> [[f32; OUT * OUT]; 16] {
    let mut rows = [[0.0; OUT * OUT]; 16];
    #[cfg(target_arch = "x86_64")]
    if Isa::best() != Isa::Portable {
        assert!(tile.len() == OUT * OUT * lanes && lanes <= rows.len());
        for from in (0..lanes).step_by(squares::SIDE) {
            for place in (0..OUT * OUT).step_by(squares::SIDE) {
                // SAFETY: the processor has AVX2; eight elements of eight places are in the tile, and in eight rows.
                unsafe {
                    let to = rows.as_mut_ptr().cast::<f32>().add(from * OUT * OUT + place);
                    let x = tile.as_ptr().add(place * lanes + from);
                    squares::square(x, lanes as isize, squares::SIDE, to, OUT * OUT);
                }
            }
        }
        return rows;
    }
    for (lane, row) in rows.iter_mut().enumerate().take(lanes) {
        row.iter_mut().zip(tile.iter().skip(lane).step_by(lanes)).for_each(|(to, x)| *to = *x);
    }
    rows
}
