//! Convolution, forward and both gradients, at the shapes of small residual networks. Throughput is in floating-point
//! operations (criterion's "elem/s" reads as FLOP/s), padding included, as frameworks count it.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use remat_kernels::conv::{self, Conv2d};
use remat_kernels::pool::Pool;
use std::time::Duration;

const THREADS: [usize; 2] = [1, 2];

/// A case: `(name, n, c, size, k, kernel, stride, groups)`; padding keeps the size at stride 1.
type Shape = (&'static str, usize, usize, usize, usize, usize, usize, usize);

const SHAPES: [Shape; 13] = [
    ("first_1_16_28", 128, 1, 28, 16, 3, 1, 1),
    ("c3_16_16_28", 128, 16, 28, 16, 3, 1, 1),
    ("c3s2_16_32_28", 128, 16, 28, 32, 3, 2, 1),
    ("c3_32_32_14", 128, 32, 14, 32, 3, 1, 1),
    ("c3s2_32_64_14", 128, 32, 14, 64, 3, 2, 1),
    ("c3_64_64_7", 128, 64, 7, 64, 3, 1, 1),
    ("c3_64_64_56_n1", 1, 64, 56, 64, 3, 1, 1),
    ("c1_64_256_56_n1", 1, 64, 56, 256, 1, 1, 1),
    ("c3_64_64_16_n32", 32, 64, 16, 64, 3, 1, 1),
    ("c3_128_128_8_n32", 32, 128, 8, 128, 3, 1, 1),
    ("c3_256_256_4_n32", 32, 256, 4, 256, 3, 1, 1),
    ("c3_128_128_28_n8", 8, 128, 28, 128, 3, 1, 1),
    ("depthwise_96_56", 4, 96, 56, 96, 3, 1, 96),
];

fn filled(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect()
}

fn all(c: &mut Criterion) {
    for (name, n, channels, size, k, kernel, stride, groups) in SHAPES {
        let x_shape = [n, channels, size, size];
        let w_shape = [k, channels / groups, kernel, kernel];
        let geom = Conv2d::new(x_shape, w_shape, [stride; 2], [kernel / 2; 2], [1, 1], groups).expect("valid sizes");
        let (x, weight, dy) = (filled(geom.x_len()), filled(geom.weight_len()), filled(geom.y_len()));
        let (mut dx, mut dw, mut y) = (x.clone(), weight.clone(), dy.clone());
        let mut group = c.benchmark_group(name);
        group.throughput(Throughput::Elements(geom.flops()));
        for threads in THREADS {
            let pool = Pool::new(threads);
            let mut ws = vec![0; conv::forward_workspace_bytes::<f32>(&geom, threads)];
            group.bench_function(BenchmarkId::new("forward", threads), |b| {
                b.iter(|| conv::forward(&pool, &geom, &x, &weight, &mut y, &mut ws));
            });
            let mut ws = vec![0; conv::input_grad_workspace_bytes::<f32>(&geom, threads)];
            group.bench_function(BenchmarkId::new("input_grad", threads), |b| {
                b.iter(|| conv::input_grad(&pool, &geom, &dy, &weight, &mut dx, &mut ws));
            });
            let mut ws = vec![0; conv::weight_grad_workspace_bytes::<f32>(&geom, threads)];
            group.bench_function(BenchmarkId::new("weight_grad", threads), |b| {
                b.iter(|| conv::weight_grad(&pool, &geom, &x, &dy, &mut dw, &mut ws));
            });
        }
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    targets = all
}
criterion_main!(benches);
