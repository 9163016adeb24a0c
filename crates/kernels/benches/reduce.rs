//! Reductions of f32 on named shapes and axes; throughput in bytes read.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use remat_kernels::pool::Pool;
use remat_kernels::reduce::{Extreme, Max, Plan, Sum, arg_extreme, reduce};
use std::time::Duration;

const THREADS: [usize; 2] = [1, 2];

/// `(name, shape, axes)`
const SHAPES: [(&str, &[usize], &[usize]); 7] = [
    ("all_4k", &[4096], &[0]),
    ("all_4m", &[2048, 2048], &[0, 1]),
    ("rows_2048x2048", &[2048, 2048], &[1]),
    ("columns_2048x2048", &[2048, 2048], &[0]),
    ("columns_100000x10", &[100_000, 10], &[0]),
    ("short_rows_100000x10", &[100_000, 10], &[1]),
    ("nchw_16x64x56x56_over_023", &[16, 64, 56, 56], &[0, 2, 3]),
];

fn filled(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect()
}

fn reductions(c: &mut Criterion) {
    for (name, shape, axes) in SHAPES {
        let mut group = c.benchmark_group(name);
        let n: usize = shape.iter().product();
        let x = filled(n);
        let plan = Plan::new(shape, axes);
        let mut y = vec![0.0f32; (0..shape.len()).filter(|i| !axes.contains(i)).map(|i| shape[i]).product()];
        group.throughput(Throughput::Bytes(4 * n as u64));
        for threads in THREADS {
            let pool = Pool::new(threads);
            group.bench_function(BenchmarkId::new("sum", threads), |bench| {
                bench.iter(|| reduce(&pool, Sum, &x, &plan, &mut y));
            });
            group.bench_function(BenchmarkId::new("max", threads), |bench| {
                bench.iter(|| reduce(&pool, Max, &x, &plan, &mut y));
            });
        }
    }
}

fn arg(c: &mut Criterion) {
    let mut group = c.benchmark_group("argmax");
    let x = filled(4096 * 1000);
    let mut y = vec![0i64; 4096];
    group.throughput(Throughput::Bytes(4 * x.len() as u64));
    for threads in THREADS {
        let pool = Pool::new(threads);
        group.bench_function(BenchmarkId::new("rows_4096x1000", threads), |bench| {
            bench.iter(|| arg_extreme(&pool, Extreme::Max, &x, 1000, 1, &mut y));
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(300));
    targets = reductions, arg
}
criterion_main!(benches);
