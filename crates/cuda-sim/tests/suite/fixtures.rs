//! Kernels of our own as NVRTC compiled them, against sums in the same order on the host.

use crate::common::{f32s, params, put_f32s, run, shape, values};
use remat_cuda_sim::{FaultKind, LaunchShape, Memory, Program};

fn load(text: &str) -> Program {
    Program::load(text).unwrap_or_else(|e| panic!("{e}"))
}

/// The polynomial of `exp_poly` and `exp_row` in the fixtures.
fn exp(x: f32) -> f32 {
    if x < -103.972_08 {
        return 0.0;
    }
    let s = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = s.mul_add(-1.428_606_8e-6, s.mul_add(-0.693_145_75, x));
    let mut p = 1.987_569_2e-4f32;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5] {
        p = p.mul_add(r, c);
    }
    let p = (p * r).mul_add(r, r) + 1.0;
    let (n, half) = (s as i32, s as i32 / 2);
    let power = |k: i32| f32::from_bits(((k + 127) << 23) as u32);
    p * power(half) * power(n - half)
}

/// The sum of a row: 256 partial sums, then a tree.
fn row_sum(row: &[f32]) -> f32 {
    let mut partial: Vec<f32> = (0..256).map(|t| row.iter().skip(t).step_by(256).fold(0.0, |s, x| s + x)).collect();
    while partial.len() > 1 {
        let half = partial.len() / 2;
        partial = (0..half).map(|i| partial[i] + partial[i + half]).collect();
    }
    partial[0]
}

#[test]
fn strided_elementwise_has_the_hosts_bits() {
    let program = load(include_str!("../../fixtures/elementwise.ptx"));
    let mut memory = Memory::new();
    let (a, b, c) = (values(2 * 3 * 4 * 5, 1), values(5, 2), values(120, 3));
    let places =
        [put_f32s(&mut memory, &a), put_f32s(&mut memory, &b), put_f32s(&mut memory, &c), memory.allocate(480)];
    // a is [2, 3, 4, 5] with its axes reversed in memory
    let strides = [1u64, 2, 6, 24];
    let mut bytes = params(&places);
    bytes.extend(params(&[120]));
    [3u32, 4, 5, 0].iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    bytes.extend(params(&strides));
    bytes.extend(5u32.to_le_bytes());
    run(&mut memory, &program, "silu_mul_add", shape(2, 256), &bytes).unwrap();
    for (i, y) in f32s(&memory, places[3], 120).into_iter().enumerate() {
        let (i3, i2, i1, i0) = (i % 5, i / 5 % 4, i / 20 % 3, i / 60);
        let x = a[i0 + 2 * i1 + 6 * i2 + 24 * i3];
        let expected = x * (1.0 / (1.0 + exp(-x))) * b[i % 5] + c[i];
        assert_eq!(y.to_bits(), expected.to_bits(), "element {i}");
    }
}

#[test]
fn bf16_neighbours_in_a_word_are_no_race() {
    let program = load(include_str!("../../fixtures/elementwise.ptx"));
    let mut memory = Memory::new();
    let (x, y) = (memory.allocate(600), memory.allocate(600));
    let bits: Vec<u8> = (0..300u16).flat_map(|i| (0x3f80 + i).to_le_bytes()).collect();
    memory.write(x, &bits).unwrap();
    let mut bytes = params(&[x, y]);
    bytes.extend(1.5f32.to_le_bytes());
    bytes.extend(300u32.to_le_bytes());
    run(&mut memory, &program, "scale_bf16", shape(3, 128), &bytes).unwrap();
    let mut out = vec![0; 600];
    memory.read(y, &mut out).unwrap();
    for (i, pair) in out.chunks_exact(2).enumerate() {
        let x = f32::from_bits((0x3f80 + i as u32) << 16) * 1.5;
        let rounded = (x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16;
        assert_eq!(u32::from(u16::from_le_bytes([pair[0], pair[1]])), rounded);
    }
}

/// The sum of a row in the order of `sum_rows_shuffle`: each thread adds every 256th element, then lanes that differ in one bit
/// add one another's sums, within warps and then of the eight warps.
fn row_sum_of_warps(row: &[f32]) -> f32 {
    let threads: Vec<f32> = (0..256).map(|t| row.iter().skip(t).step_by(256).fold(0.0, |s, v| s + v)).collect();
    let exchanged = |mut lanes: Vec<f32>, offsets: &[usize]| {
        for offset in offsets {
            lanes = (0..lanes.len()).map(|l| lanes[l] + lanes[l ^ offset]).collect();
        }
        lanes[0]
    };
    let warps = threads.chunks_exact(32).map(|lanes| exchanged(lanes.to_vec(), &[16, 8, 4, 2, 1])).collect();
    exchanged(warps, &[4, 2, 1])
}

#[test]
fn row_sums_have_the_hosts_bits_in_any_order_of_blocks() {
    let program = load(include_str!("../../fixtures/rows.ptx"));
    let mut memory = Memory::new();
    let x = values(7 * 700, 4);
    let (at, y) = (put_f32s(&mut memory, &x), memory.allocate(28));
    let mut bytes = params(&[at, y]);
    bytes.extend(700u32.to_le_bytes());
    for kernel in ["sum_rows", "sum_rows_shuffle"] {
        run(&mut memory, &program, kernel, shape(7, 256), &bytes).unwrap_or_else(|e| panic!("{e}"));
        for (row, sum) in x.chunks_exact(700).zip(f32s(&memory, y, 7)) {
            let want = if kernel == "sum_rows" { row_sum(row) } else { row_sum_of_warps(row) };
            assert_eq!(sum.to_bits(), want.to_bits(), "{kernel}");
        }
    }
}

#[test]
fn a_missing_barrier_is_found() {
    let program = load(include_str!("../../fixtures/rows.ptx"));
    let mut memory = Memory::new();
    let (at, y) = (put_f32s(&mut memory, &values(300, 5)), memory.allocate(4));
    let mut bytes = params(&[at, y]);
    bytes.extend(300u32.to_le_bytes());
    let fault = run(&mut memory, &program, "sum_rows_racy", shape(1, 256), &bytes).unwrap_err();
    assert_eq!(fault.kind, FaultKind::SharedRace, "{fault}");
    assert!(fault.text.contains("shared"), "{fault}");
}

#[test]
fn softmax_with_dynamic_shared_memory_has_the_hosts_bits() {
    let program = load(include_str!("../../fixtures/rows.ptx"));
    let mut memory = Memory::new();
    let x = values(3 * 333, 6);
    let (at, y) = (put_f32s(&mut memory, &x), memory.allocate(4 * 999));
    let mut bytes = params(&[at, y]);
    bytes.extend(333u32.to_le_bytes());
    let with = |dynamic_shared_bytes| LaunchShape { dynamic_shared_bytes, ..shape(3, 256) };
    run(&mut memory, &program, "softmax_rows", with(1024), &bytes).unwrap();
    let out = f32s(&memory, y, 999);
    for (row, out) in x.chunks_exact(333).zip(out.chunks_exact(333)) {
        let most = row.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v));
        let e: Vec<f32> = row.iter().map(|v| exp(v - most)).collect();
        let sum = row_sum(&e);
        assert!(e.iter().zip(out).all(|(e, y)| (e / sum).to_bits() == y.to_bits()));
    }
    let fault = run(&mut memory, &program, "softmax_rows", with(1020), &bytes).unwrap_err();
    assert_eq!(fault.kind, FaultKind::OutOfBounds, "{fault}");
}

#[test]
fn tiled_product_has_the_hosts_bits() {
    let program = load(include_str!("../../fixtures/matmul.ptx"));
    let mut memory = Memory::new();
    let (m, n, k) = (45, 70, 37);
    let (a, b) = (values(m * k, 7), values(k * n, 8));
    let places = [put_f32s(&mut memory, &a), put_f32s(&mut memory, &b), memory.allocate(4 * (m * n) as u64)];
    let mut bytes = params(&places);
    [m, n, k].iter().for_each(|v| bytes.extend((*v as u32).to_le_bytes()));
    let shape = LaunchShape { grid: [3, 2, 1], ..shape(1, 64) };
    run(&mut memory, &program, "matmul_32", shape, &bytes).unwrap_or_else(|e| panic!("{e}"));
    let c = f32s(&memory, places[2], m * n);
    for (i, c) in c.into_iter().enumerate() {
        let sum = (0..k).fold(0f32, |sum, q| a[i / n * k + q].mul_add(b[q * n + i % n], sum));
        // the zeros that pad the tile change nothing but the sign of a zero
        assert_eq!(c, sum, "element {i}");
    }
}

#[test]
fn a_tile_through_the_tensor_instructions_is_the_product() {
    let program = load(include_str!("../../fixtures/mma.ptx"));
    let mut memory = Memory::new();
    // small integers as f16
    let half = |v: i32| -> u16 {
        let magnitude = v.unsigned_abs() as f32;
        let bits = if v == 0 { 0 } else { ((magnitude.to_bits() >> 13) - (112 << 10)) as u16 };
        bits | if v < 0 { 0x8000 } else { 0 }
    };
    let a: Vec<i32> = (0..256).map(|i| (i * 7 % 23) - 11).collect();
    let b: Vec<i32> = (0..128).map(|i| (i * 5 % 19) - 9).collect();
    let mut put = |v: &[i32]| {
        let at = memory.allocate(2 * v.len() as u64);
        memory.write(at, &v.iter().flat_map(|v| half(*v).to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        at
    };
    let (at_a, at_b) = (put(&a), put(&b));
    let c = put_f32s(&mut memory, &[0.5; 128]);
    run(&mut memory, &program, "mma_f16", shape(1, 32), &params(&[at_a, at_b, c])).unwrap_or_else(|e| panic!("{e}"));
    for (i, y) in f32s(&memory, c, 128).into_iter().enumerate() {
        let sum: i32 = (0..16).map(|k| a[i / 8 * 16 + k] * b[k * 8 + i % 8]).sum();
        assert_eq!(y, sum as f32 + 0.5, "element {i}");
    }
}

#[test]
fn calls_locals_constants_and_atomics_work_together() {
    let program = load(include_str!("../../fixtures/features.ptx"));
    let mut memory = Memory::new();
    let n = 100usize;
    let x: Vec<i32> = (0..n as i32).map(|i| i % 13).collect();
    let at = memory.allocate(400);
    memory.write(at, &x.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
    let (y, bins, d) = (memory.allocate(400), memory.allocate(16), memory.allocate(800));
    memory.fill(bins, &[0], 16).unwrap();
    let mut bytes = params(&[at, y, bins, d]);
    bytes.extend((n as u32).to_le_bytes());
    run(&mut memory, &program, "features", shape(2, 64), &bytes).unwrap_or_else(|e| panic!("{e}"));
    let mut out = vec![0; 400];
    memory.read(y, &mut out).unwrap();
    let y: Vec<i32> = out.chunks_exact(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect();
    let weights = [0.5f32, -1.0, 2.0, 8.0];
    for i in 0..n {
        let v = x[i] as u32;
        let mut local = [0i32; 8];
        (0..8).for_each(|j| local[(j * 3 + i) % 8] = j as i32 * i as i32);
        let (mut z, mut steps) = (v + 1, 0);
        while z != 1 {
            z = if z % 2 == 1 { 3 * z + 1 } else { z / 2 };
            steps += 1;
        }
        let mut s = steps + local[v as usize % 8];
        s += (2.0 * weights[v as usize % 4]) as i32 - v as i32;
        s += (v.count_ones() + v.leading_zeros() + v.reverse_bits() % 7 + v.rotate_left(v % 32) % 11) as i32;
        let warp = i / 32 * 32;
        s += if (warp..(warp + 32).min(n)).any(|j| x[j] == 5) { 1000 } else { 0 };
        assert_eq!(y[i], s, "element {i}");
    }
    let mut counts = vec![0; 16];
    memory.read(bins, &mut counts).unwrap();
    let total: u32 = counts.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).sum();
    assert_eq!(total as usize, n);
}
