//! Pointwise kernels on named shapes and layouts; throughput in bytes read and written.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use remat_kernels::pointwise::{Map1, Map2, Operand, each1, each2, map1, map2};
use remat_kernels::pool::Pool;
use remat_types::{Layout, Shape};
use std::time::Duration;

const THREADS: [usize; 2] = [1, 2];
const ADD: Map2<f32, f32> = |a, b, y| each2(a, b, y, |a, b| a + b);
const RELU: Map1<f32, f32> = |x, y| each1(x, y, |x| if x <= 0.0 { 0.0 } else { x });
const EXP: Map1<f32, f32> = |x, y| each1(x, y, remat_kernels::float::Real::exp);

/// `(name, shape of a and y, shape of b)`
const SHAPES: [(&str, &[usize], &[usize]); 6] = [
    ("tiny_4", &[4], &[4]),
    ("l1_4k", &[4096], &[4096]),
    ("dram_4m", &[2048, 2048], &[2048, 2048]),
    ("scalar_1m", &[1024, 1024], &[]),
    ("row_bias_1024x768", &[1024, 768], &[768]),
    ("channel_bias_16x64x56x56", &[16, 64, 56, 56], &[64, 1, 1]),
];

fn filled(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect()
}

fn binary(c: &mut Criterion) {
    let mut group = c.benchmark_group("add");
    for (name, a_shape, b_shape) in SHAPES {
        let shape = Shape::from(a_shape);
        let (a, b) = (filled(shape.elems()), filled(b_shape.iter().product()));
        let layout = Layout::contiguous(b_shape).broadcast_to(&shape).expect("b broadcasts to a");
        let mut y = vec![0.0; a.len()];
        group.throughput(Throughput::Bytes(4 * (2 * a.len() + b.len()) as u64));
        for threads in THREADS {
            let pool = Pool::new(threads);
            group.bench_function(BenchmarkId::new(name, threads), |bench| {
                bench.iter(|| map2(&pool, &Operand::Slice(&a), &Operand::new(&b, &layout), &mut y, &ADD));
            });
            group.bench_function(BenchmarkId::new(format!("{name}_in_place"), threads), |bench| {
                bench.iter(|| map2(&pool, &Operand::Held, &Operand::new(&b, &layout), &mut y, &ADD));
            });
        }
    }
}

fn unary(c: &mut Criterion) {
    for (name, f) in [("relu", RELU), ("exp", EXP)] {
        let mut group = c.benchmark_group(name);
        for (name, n) in [("l1_4k", 4096), ("dram_4m", 1 << 22)] {
            let x = filled(n);
            let mut y = vec![0.0; n];
            group.throughput(Throughput::Bytes(8 * n as u64));
            for threads in THREADS {
                let pool = Pool::new(threads);
                group.bench_function(BenchmarkId::new(name, threads), |bench| {
                    bench.iter(|| map1(&pool, &Operand::Slice(&x), &mut y, &f));
                });
            }
        }
    }
}

fn strided(c: &mut Criterion) {
    let mut group = c.benchmark_group("copy");
    let (n, m) = (1024, 1024);
    let x = filled(n * m);
    let mut y = vec![0.0; n * m];
    group.throughput(Throughput::Bytes(8 * (n * m) as u64));
    let whole = Layout::contiguous([n, m]);
    let transposed = whole.permute(&[1, 0]).expect("two axes");
    for (name, layout) in [("contiguous_1024x1024", &whole), ("transpose_1024x1024", &transposed)] {
        for threads in THREADS {
            let pool = Pool::new(threads);
            group.bench_function(BenchmarkId::new(name, threads), |bench| {
                bench.iter(|| remat_kernels::copy::copy(&pool, &x, layout, &mut y));
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(300));
    targets = binary, unary, strided
}
criterion_main!(benches);
