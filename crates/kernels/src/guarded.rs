//! Tests: operands that end right before, or begin right after, a page that nobody may touch. A kernel that reads or writes
//! one element too far ends the process.

use std::ptr::NonNull;

use crate::attention::{self, Attention, Gradients, Inputs, Span, Strided};
use crate::blocked::{self, Blocked, Start};
use crate::conv::{self, Conv2d};
use crate::gemm::{GemmElement, GemmOutput, MatRef, gemm, gemm_workspace_bytes};
use crate::pool::Pool;
use half::{bf16, f16};

/// Memory between two pages that fault.
struct Guarded {
    base: NonNull<libc::c_void>,
    bytes: usize,
    page: usize,
}

impl Guarded {
    fn new(bytes: usize) -> Guarded {
        // SAFETY: asks for a constant of the system.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page has a size");
        let bytes = bytes.next_multiple_of(page).max(page);
        // SAFETY: a new anonymous mapping; the checked result is at least as long as asked for, and the middle is opened.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), bytes + 2 * page, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED, "there is memory");
            let middle = base.byte_add(page);
            assert_eq!(libc::mprotect(middle, bytes, libc::PROT_READ | libc::PROT_WRITE), 0);
            Guarded { base: NonNull::new(base).expect("a mapping has an address"), bytes, page }
        }
    }

    /// `len` elements: the last ones before the end, or the first ones after the beginning.
    fn elems<T: bytemuck::Pod>(&mut self, len: usize, at_end: bool) -> &mut [T] {
        let skip = if at_end { self.bytes - size_of::<T>() * len } else { 0 };
        // SAFETY: the elements lie in the open pages of the mapping, which are aligned, zeroed and ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().byte_add(self.page + skip).cast(), len) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; slices of it borrow from `self`.
        unsafe { libc::munmap(self.base.as_ptr(), self.bytes + 2 * self.page) };
    }
}

/// Calls `f` with three operands of these lengths at both ends of guarded memory; it returns what it computed.
fn at_both_ends(lens: [usize; 3], f: impl Fn([&mut [f32]; 3], &mut [u8]) -> Vec<f32>, workspace_bytes: usize) {
    let mut results = Vec::new();
    for at_end in [true, false] {
        let mut memory = lens.map(|len| Guarded::new(4 * len));
        let mut workspace = Guarded::new(workspace_bytes.next_multiple_of(4));
        let [a, b, c] = &mut memory;
        let operands: [&mut [f32]; 3] = [a.elems(lens[0], at_end), b.elems(lens[1], at_end), c.elems(lens[2], at_end)];
        for (i, x) in operands.into_iter().enumerate() {
            x.iter_mut().enumerate().for_each(|(j, x)| *x = ((i * 31 + j * 7919) % 1009) as f32 / 1009.0 - 0.5);
        }
        let operands = [a.elems(lens[0], at_end), b.elems(lens[1], at_end), c.elems(lens[2], at_end)];
        let workspace = workspace.elems::<f32>(workspace_bytes.div_ceil(4), at_end);
        workspace.fill(f32::NAN);
        results.push(f(operands, &mut bytemuck::cast_slice_mut(workspace)[..workspace_bytes]));
    }
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    assert!(!results[0].iter().any(|x| x.is_nan()), "a result is written whole, and from written memory only");
    assert_eq!(bits(&results[0]), bits(&results[1]), "bits do not follow the addresses");
}

/// The room on both sides of each axis beyond the padding of a case: alike on all sides, more on one side of each axis, and
/// more at both ends, so that a case without padding has some there alone.
const PADS_MORE: [[[usize; 2]; 2]; 3] = [[[0, 0]; 2], [[0, 1], [1, 0]], [[0, 1]; 2]];

#[test]
fn convolutions_stay_within_their_operands() {
    let pool = Pool::new(2);
    // images, channels, height, width, output channels, kernel, stride, padding, groups
    let cases = [
        [2, 5, 7, 7, 9, 1, 1, 0, 1],
        [1, 16, 9, 11, 20, 1, 1, 0, 1],
        [2, 6, 9, 13, 5, 1, 2, 0, 1],
        // columns that are read where they are, in whole cache lines
        [3, 20, 12, 12, 40, 1, 1, 0, 1],
        [2, 9, 24, 24, 16, 1, 1, 0, 1],
        [2, 3, 13, 17, 8, 3, 1, 1, 1],
        [3, 4, 5, 3, 7, 3, 2, 1, 1],
        [2, 70, 4, 4, 33, 3, 2, 1, 1],
        [1, 3, 23, 21, 6, 7, 2, 3, 1],
        [2, 8, 9, 19, 12, 3, 1, 1, 4],
        [2, 9, 7, 7, 9, 3, 1, 1, 9],
        [2, 9, 14, 15, 9, 3, 2, 1, 9],
        [1, 5, 33, 29, 5, 3, 1, 1, 5],
        [1, 5, 70, 71, 5, 5, 2, 2, 5],
        // batches of small images: two panels of images and of channels, the last ones in part
        [40, 33, 4, 5, 40, 3, 2, 1, 1],
        [24, 200, 2, 1, 120, 1, 1, 0, 1],
        [3, 17, 9, 11, 35, 3, 1, 1, 1],
        // few images under a stride
        [8, 100, 7, 17, 300, 3, 2, 1, 1],
        [8, 64, 8, 18, 130, 3, 2, 1, 1],
        // by Winograd's algorithm
        [2, 64, 20, 19, 50, 3, 1, 1, 1],
        [2, 60, 18, 21, 64, 3, 1, 0, 1],
    ];
    for (case, more) in cases.into_iter().flat_map(|case| PADS_MORE.map(|more| (case, more))) {
        let [n, c, h, w, k, r, s, p, g] = case;
        let pad = more.map(|sides| sides.map(|more| p + more));
        let geom = Conv2d::new([n, c, h, w], [k, c / g, r, r], [s; 2], pad, [1; 2], g).expect("the sizes fit");
        let lens = [geom.x_len(), geom.weight_len(), geom.y_len()];
        let forward = |[x, weight, y]: [&mut [f32]; 3], ws: &mut [u8]| {
            y.fill(f32::NAN);
            conv::forward(&pool, &geom, x, weight, y, ws);
            y.to_vec()
        };
        at_both_ends(lens, forward, conv::forward_workspace_bytes::<f32>(&geom, 2));
        let input_grad = |[x, weight, y]: [&mut [f32]; 3], ws: &mut [u8]| {
            x.fill(f32::NAN);
            conv::input_grad(&pool, &geom, y, weight, x, ws);
            x.to_vec()
        };
        at_both_ends(lens, input_grad, conv::input_grad_workspace_bytes::<f32>(&geom, 2));
        let weight_grad = |[x, weight, y]: [&mut [f32]; 3], ws: &mut [u8]| {
            weight.fill(f32::NAN);
            conv::weight_grad(&pool, &geom, x, y, weight, ws);
            weight.to_vec()
        };
        at_both_ends(lens, weight_grad, conv::weight_grad_workspace_bytes::<f32>(&geom, 2));
    }
}

#[test]
fn products_stay_within_their_operands() {
    let pool = Pool::new(2);
    let few = [[1, 37, 70], [41, 1, 300], [3, 131, 70], [2, 50, 400], [12, 71, 150]];
    let tiles = [[13, 17, 19], [7, 65, 33], [61, 31, 257], [6, 16, 40], [5, 8, 513], [17, 24, 33], [33, 70, 300]];
    for [m, n, k] in few.into_iter().chain(tiles) {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let product = |[a, b, c]: [&mut [f32]; 3], ws: &mut [u8]| {
                c.fill(f32::NAN);
                let a = if transposed[0] { MatRef::row_major(a, m).t() } else { MatRef::row_major(a, k) };
                let b = if transposed[1] { MatRef::row_major(b, k).t() } else { MatRef::row_major(b, n) };
                gemm(&pool, m, n, k, a, b, c, n, false, ws);
                c.to_vec()
            };
            at_both_ends([m * k, k * n, m * n], product, gemm_workspace_bytes::<f32>(m, n, k, 2));
        }
    }
}

/// A product of guarded operands, for both of their ends, twice: the results are equal, and differ from what was there.
fn narrow_products<T: GemmElement, O: GemmOutput<T> + PartialEq + std::fmt::Debug>(value: impl Fn(usize) -> T) {
    let pool = Pool::new(2);
    for [m, n, k] in [[1, 37, 70], [41, 1, 301], [13, 17, 19], [7, 65, 33], [61, 31, 520], [6, 16, 40], [5, 8, 1031]] {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let mut results = Vec::new();
            for (at_end, held) in [(true, 1), (false, 2)] {
                let lens = [m * k, k * n];
                let mut memory = lens.map(|len| Guarded::new(size_of::<T>() * len));
                let [a, b] = &mut memory;
                let [a, b] = [a.elems::<T>(lens[0], at_end), b.elems::<T>(lens[1], at_end)];
                a.iter_mut().chain(b.iter_mut()).enumerate().for_each(|(i, x)| *x = value(i * 7919 % 1009));
                let a = if transposed[0] { MatRef::row_major(a, m).t() } else { MatRef::row_major(a, k) };
                let b = if transposed[1] { MatRef::row_major(b, k).t() } else { MatRef::row_major(b, n) };
                let bytes = gemm_workspace_bytes::<T>(m, n, k, 2);
                let (mut c, mut ws) = (Guarded::new(size_of::<O>() * m * n), Guarded::new(bytes));
                let (c, ws) = (c.elems::<O>(m * n, at_end), ws.elems::<u8>(bytes, at_end));
                c.fill(O::from_sum(value(held).widen()));
                ws.fill(0xff);
                gemm(&pool, m, n, k, a, b, c, n, false, ws);
                results.push(c.to_vec());
            }
            assert_eq!(results[0], results[1], "{m} x {n} x {k} {transposed:?}: results do not follow addresses");
        }
    }
}

#[test]
fn products_of_narrow_types_stay_within_their_operands() {
    let part = |i: usize| i as f32 / 1009.0 - 0.5;
    narrow_products::<f16, f16>(|i| f16::from_f32(part(i)));
    narrow_products::<bf16, f32>(|i| bf16::from_f32(part(i)));
    narrow_products::<i8, i8>(|i| i as i8);
    narrow_products::<u8, i32>(|i| i as u8);
    narrow_products::<i16, i16>(|i| (i as i16).wrapping_mul(63));
}

#[test]
fn convolutions_by_blocks_stay_within_their_operands() {
    let pool = Pool::new(2);
    // images, channels, height, width, output channels, kernel, stride, padding, groups, plain input
    let cases = [
        [2, 5, 7, 7, 9, 1, 1, 0, 1, 0],
        [1, 16, 9, 11, 40, 1, 2, 0, 1, 0],
        [2, 3, 13, 17, 8, 3, 1, 1, 1, 1],
        [1, 3, 23, 21, 24, 7, 2, 3, 1, 1],
        [2, 70, 4, 4, 33, 3, 2, 1, 1, 0],
        [3, 32, 7, 7, 16, 3, 1, 1, 1, 0],
        [2, 64, 9, 10, 32, 3, 1, 1, 2, 0],
        [1, 8, 6, 31, 8, 3, 1, 0, 1, 0],
        [2, 9, 7, 7, 9, 3, 1, 1, 9, 0],
        [2, 20, 14, 15, 20, 3, 2, 1, 20, 0],
        [1, 8, 33, 29, 8, 5, 1, 2, 8, 0],
        [1, 8, 9, 30, 8, 4, 3, 2, 8, 0],
    ];
    let all = cases.into_iter().flat_map(|case| PADS_MORE.map(|more| (case, more)));
    for (case, more, block) in all.flat_map(|(case, more)| [(case, more, 8), (case, more, 16)]) {
        let [n, c, h, w, k, r, s, p, g, planar] = case;
        let pad = more.map(|sides| sides.map(|more| p + more));
        let geom = Conv2d::new([n, c, h, w], [k, c / g, r, r], [s; 2], pad, [1; 2], g).expect("the sizes fit");
        let sums = Blocked::new(geom, block, planar == 1).expect("groups suit blocks");
        let ways = [Some(sums), sums.winograd().ok()].into_iter().flatten();
        for (b, adds) in ways.flat_map(|b| [(b, false), (b, true)]) {
            let run = |[x, weights, y]: [&mut [f32]; 3], ws: &mut [u8]| {
                let (packed, bias) = weights.split_at(b.packed_len());
                let start = if adds { Start::AddHeld } else { Start::Zero };
                if !adds {
                    y.fill(f32::NAN);
                }
                b.run(&pool, x, packed, bias, &start, Some([0.0, 6.0]), y, ws);
                y.to_vec()
            };
            at_both_ends([b.x_len(), b.packed_len() + b.bias_len(), b.y_len()], run, b.workspace_bytes(2));
        }
    }
}

#[test]
fn products_with_packed_weights_stay_within_their_operands() {
    let pool = Pool::new(2);
    for ([m, k, n], block) in
        [([1, 5, 8], 8), ([13, 300, 24], 8), ([7, 17, 43], 8), ([50, 459, 48], 16), ([6, 1, 7], 16)]
    {
        let l = blocked::Linear::new(m, k, n, block).expect("blocks with kernels");
        let run = |[x, weights, y]: [&mut [f32]; 3], ws: &mut [u8]| {
            let (packed, bias) = weights.split_at(l.packed_len());
            y.fill(f32::NAN);
            l.run(&pool, x, packed, bias, &Start::Zero, None, y, ws);
            y.to_vec()
        };
        at_both_ends([m * k, l.packed_len() + n, m * n], run, l.workspace_bytes(2));
    }
}

#[test]
fn attention_stays_within_its_operands() {
    let pool = Pool::new(2);
    let strides = |row: usize, t: usize, d: usize| [t * row, row, d, 1].map(|s| s as isize);
    for [n, h, tq, tk, d, dv] in [[1, 1, 1, 1, 1, 1], [2, 3, 5, 7, 3, 5], [1, 2, 37, 70, 9, 17], [1, 1, 64, 300, 16, 8]]
    {
        for causal in [false, true] {
            let span = if causal { Span::CAUSAL } else { Span::ALL };
            let a = Attention { n, heads: h, heads_kv: h, tq, tk, d, dv, span, scale: 0.5, cap: 0.0, drops: None };
            let lens = [n * h * tq * d, n * h * tk * (d + dv), n * h * tq * dv];
            let apart = |[q, kv, y]: [&mut [f32]; 3], ws: &mut [u8]| {
                let (k, v) = kv.split_at(n * h * tk * d);
                let of = |data, t, d| Strided { data, offset: 0, strides: strides(h * d, t, d) };
                let x = Inputs { q: of(q, tq, d), k: of(k, tk, d), v: of(v, tk, dv), mask: None, bias: None };
                let mut lse = vec![f32::NAN; n * h * tq];
                y.fill(f32::NAN);
                attention::forward(&pool, &a, &x, y, &mut lse, ws);
                [&y[..], &lse].concat()
            };
            at_both_ends(lens, apart, attention::forward_workspace_bytes::<f32>(&a, 2));
            let a = Attention { tk: tq, dv: d, ..a };
            let len = n * tq * h * d;
            let joined = |[x, dy, gradients]: [&mut [f32]; 3], ws: &mut [u8]| {
                let of = |i: usize| Strided { data: &x[..], offset: i * h * d, strides: strides(3 * h * d, tq, d) };
                let x = Inputs { q: of(0), k: of(1), v: of(2), mask: None, bias: None };
                let dy = Strided { data: &dy[..], offset: 0, strides: strides(h * d, tq, d) };
                gradients.fill(f32::NAN);
                let lse = vec![1.0; n * h * tq];
                attention::backward(&pool, &a, &x, &lse, &dy, Gradients::Joined(gradients), ws);
                gradients.to_vec()
            };
            at_both_ends([3 * len, len, 3 * len], joined, attention::backward_workspace_bytes::<f32>(&a, 2));
        }
    }
}
