//! Into and out of blocks, and pooling in them.

use crate::pool::Pool;
use crate::simd::widest;
use crate::window::Axis;

/// Elements that are worth a part of a pool run.
const GRAIN_ELEMS: usize = 1 << 14;
/// Places that are brought into blocks at a time: their rows stay in the L1 cache.
const PLACES: usize = 64;

/// `y: [n, blocks, places, block]` from `x: [n, c, places]`; lanes beyond the last channel become zero.
///
/// # Panics
/// If a slice has another length than it should, or `c` or `block` is 0.
pub fn to_blocked(pool: &Pool, [n, c, places]: [usize; 3], block: usize, x: &[f32], y: &mut [f32]) {
    let blocks = c.div_ceil(block);
    assert_eq!((x.len(), y.len()), (n * c * places, n * blocks * places * block), "elements for {c} channels");
    if y.is_empty() {
        return;
    }
    pool.chunks_mut(y, places * block, |i, y| {
        let (image, first) = (i / blocks, i % blocks * block);
        let channels = block.min(c - first);
        let x = &x[(image * c + first) * places..][..channels * places];
        widest(
            #[inline(always)]
            || {
                for (at, y) in y.chunks_mut(PLACES * block).enumerate() {
                    for lane in 0..block {
                        let to = y.iter_mut().skip(lane).step_by(block);
                        match x.get(lane * places + at * PLACES..(lane + 1) * places) {
                            Some(x) if lane < channels => to.zip(x).for_each(|(y, x)| *y = *x),
                            _ => to.for_each(|y| *y = 0.0),
                        }
                    }
                }
            },
        );
    });
}

/// `y: [n, c, places]` from `x: [n, blocks, places, block]`.
///
/// # Panics
/// As [`to_blocked`].
pub fn from_blocked(pool: &Pool, [n, c, places]: [usize; 3], block: usize, x: &[f32], y: &mut [f32]) {
    let blocks = c.div_ceil(block);
    assert_eq!((x.len(), y.len()), (n * blocks * places * block, n * c * places), "elements for {c} channels");
    if y.is_empty() {
        return;
    }
    let planes = (GRAIN_ELEMS / places).max(1);
    pool.chunks_mut(y, planes * places, |part, y| {
        for (i, y) in y.chunks_exact_mut(places).enumerate() {
            let (image, channel) = ((part * planes + i) / c, (part * planes + i) % c);
            let x = &x[(image * blocks + channel / block) * places * block..][..places * block];
            let from = x.iter().skip(channel % block).step_by(block);
            y.iter_mut().zip(from).for_each(|(y, x)| *y = *x);
        }
    });
}

/// The maximum of every window of every lane, as [`crate::window::max_pool`] takes it: `y: [planes, h.out, w.out, block]` from
/// `x: [planes, h.size, w.size, block]`, where each window has an element.
///
/// # Panics
/// If a slice has another length than it should, or the block is neither 8 nor 16.
pub fn max_pool(pool: &Pool, h: Axis, w: Axis, block: usize, x: &[f32], y: &mut [f32]) {
    match block {
        8 => max_pool_of::<8>(pool, h, w, x, y),
        16 => max_pool_of::<16>(pool, h, w, x, y),
        _ => panic!("blocks have 8 or 16 channels, not {block}"),
    }
}

fn max_pool_of<const B: usize>(pool: &Pool, h: Axis, w: Axis, x: &[f32], y: &mut [f32]) {
    let row = w.out * B;
    if row * h.out == 0 || y.is_empty() {
        return;
    }
    let size = h.size * w.size * B;
    let rows = (GRAIN_ELEMS / row).max(1);
    pool.chunks_mut(y, rows * row, |part, y| {
        for (i, y) in y.chunks_exact_mut(row).enumerate() {
            let (plane, o) = ((part * rows + i) / h.out, (part * rows + i) % h.out);
            let (top, bottom) = h.window(o);
            let x = &x[plane * size..][..size];
            widest(
                #[inline(always)]
                || {
                    for (o, y) in y.as_chunks_mut::<B>().0.iter_mut().enumerate() {
                        let (left, right) = w.window(o);
                        let mut best = [f32::NEG_INFINITY; B];
                        for row in top..bottom {
                            let x = &x[(row * w.size + left) * B..(row * w.size + right) * B];
                            for x in x.as_chunks::<B>().0 {
                                for (best, x) in best.iter_mut().zip(x) {
                                    // a NaN wins, and stays
                                    *best = if *x > *best || x.is_nan() { *x } else { *best };
                                }
                            }
                        }
                        *y = best;
                    }
                },
            );
        }
    });
}
