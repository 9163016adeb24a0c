//! Depthwise convolutions: each output channel sees one input channel, and lanes of vectors are channels.
//!
//! A row of a block is one call; taps beside the image are left out, so nothing is copied. The order of a sum is: bias and
//! what is added, then taps in row-major order.

use super::kernel::{DepthRow, WIDE_COLUMNS};
use super::{Blocked, Operands};
use crate::cache::l2_bytes;
use crate::pool::Pool;
use crate::prefetch::PrefetchLines;

/// Multiply-adds of vectors that are worth a part of a pool run.
const GRAIN_MULS: usize = 1 << 12;

/// Bytes from the last row that is read to what is prefetched meanwhile: longer on its way than a row takes.
const AHEAD_BYTES: usize = 8 << 10;

/// Sizes of the second cache beyond which an input comes from memory: from the cache between, rows come in time unasked.
const FAR: usize = 8;

/// `packed` is zeroed; the order is block, tap, lane.
pub(super) fn pack(b: &Blocked, weight: &[f32], packed: &mut [f32]) {
    let taps = b.conv.r * b.conv.s;
    for (c, weight) in weight.chunks_exact(taps).enumerate() {
        for (tap, w) in weight.iter().enumerate() {
            packed[(c / b.block * taps + tap) * b.block + c % b.block] = *w;
        }
    }
}

/// # Safety
/// The operands have the lengths that `b` says.
pub(super) unsafe fn run(b: &Blocked, pool: &Pool, o: &Operands) {
    let g = &b.conv;
    let blocks = g.k.div_ceil(b.block);
    let grain = GRAIN_MULS.div_ceil(g.ow * g.r * g.s);
    pool.ranges(g.n * blocks * g.oh, grain, |range| {
        for row in range {
            // SAFETY: the caller's contract; rows are disjoint.
            unsafe { one(b, o, row / g.oh / blocks, row / g.oh % blocks, row % g.oh) }
        }
    });
}

/// Row `row` of block `block` of `image`.
///
/// # Safety
/// As [`run`]; no other thread makes the same row.
unsafe fn one(b: &Blocked, o: &Operands, image: usize, block: usize, row: usize) {
    let (g, lanes) = (&b.conv, b.block);
    let plane = image * g.k.div_ceil(lanes) + block;
    // taps whose row lies in the image: from `first` to before `end`
    let top = row * g.stride[0];
    let first = g.pad.begin[0].saturating_sub(top).div_ceil(g.dilation[0]).min(g.r);
    let end = (g.h + g.pad.begin[0]).saturating_sub(top).div_ceil(g.dilation[0]).clamp(first, g.r);
    let x_row = if end > first { top + first * g.dilation[0] - g.pad.begin[0] } else { 0 };
    // columns whose taps all lie in the row
    let reach = (g.s - 1) * g.dilation[1];
    let low = g.pad.begin[1].div_ceil(g.stride[1]).min(g.ow);
    let high = match (g.w + g.pad.begin[1]).checked_sub(reach + 1) {
        Some(last) => (last / g.stride[1] + 1).clamp(low, g.ow),
        None => low,
    };
    let y = (plane * g.oh + row) * g.ow * lanes;
    // rows come one after the other, those of the next block or image too
    let next = o.x.wrapping_add((plane * g.h + top + g.r) * g.w * lanes + AHEAD_BYTES / size_of::<f32>());
    let is_far = b.x_len() * size_of::<f32>() > FAR * l2_bytes();
    let ahead = match (high - low) / WIDE_COLUMNS {
        rounds if is_far && rounds > 0 => PrefetchLines::share(next, g.stride[0] * g.w * lanes, 0, 1, rounds),
        _ => PrefetchLines::NONE,
    };
    // SAFETY: all offsets lie in operands of the asserted lengths; rows from `x_row` on are those of taps in the image.
    unsafe {
        let row = DepthRow {
            x: o.x.add((plane * g.h + x_row) * g.w * lanes),
            rows: end - first,
            row_step: g.dilation[0] * g.w * lanes,
            width: g.w,
            w: o.w.add((block * g.r + first) * g.s * lanes),
            taps: g.s,
            stride: g.stride[1],
            dilation: g.dilation[1],
            pad: g.pad.begin[1],
            columns: g.ow,
            inner: [low, high],
            bias: o.bias.add(block * lanes),
            add: if o.add.is_null() { o.add } else { o.add.add(y) },
            y: o.y.add(y),
            clamp: o.clamp,
            ahead,
        };
        (b.kernels().depth(g.s, g.stride[1], g.dilation[1]))(&row);
    }
}
