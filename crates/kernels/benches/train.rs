//! The memory-bound kernels of a training step, as bytes of their tensors per second: each tensor counted once.
//!
//! Shapes: the first batch norm and pooling of a small convolutional network on 28 x 28 images, a batch of 128.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use remat_kernels::norm::layer_norm_grad_workspace_elems;
use remat_kernels::norm::{BatchDims, batch_norm, batch_norm_grad, layer_norm, layer_norm_grad};
use remat_kernels::optim::{Sgd, sgd};
use remat_kernels::pool::Pool;
use remat_kernels::softmax::{AxisDims, softmax};
use remat_kernels::window::{Axis, AxisKind, max_pool, max_pool_grad};

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect()
}

fn train(c: &mut Criterion) {
    let pool = Pool::new(2);
    let mut group = c.benchmark_group("train");
    group.sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));

    let d = BatchDims { n: 128, c: 32, s: 28 * 28 };
    let n = d.n * d.c * d.s;
    let (x, dy) = (values(n), values(n));
    let (mut y, mut dx) = (vec![0.0f32; n], vec![0.0f32; n]);
    let (scale, bias) = (vec![1.0f32; d.c], vec![0.0f32; d.c]);
    let (mut mean, mut var) = (vec![0.0f32; d.c], vec![0.0f32; d.c]);
    let (mut dscale, mut dbias) = (vec![0.0f32; d.c], vec![0.0f32; d.c]);
    group.throughput(Throughput::Bytes(8 * n as u64));
    group.bench_function("batch_norm 128x32x28x28", |b| {
        b.iter(|| batch_norm(&pool, d, 1e-5, black_box(&x), &scale, &bias, &mut y, &mut mean, &mut var));
    });
    group.throughput(Throughput::Bytes(12 * n as u64));
    group.bench_function("batch_norm_grad 128x32x28x28", |b| {
        b.iter(|| {
            batch_norm_grad(&pool, d, 1e-5, black_box(&x), &scale, &mean, &var, &dy, &mut dx, &mut dscale, &mut dbias);
        });
    });

    let axis = Axis { size: 28, out: 14, kind: AxisKind::Sliding { kernel: 2, stride: 2, before: 0, after: 0 } };
    group.throughput(Throughput::Bytes(5 * n as u64));
    group.bench_function("max_pool 2x2 128x32x28x28", |b| {
        b.iter(|| max_pool(&pool, axis, axis, black_box(&x), &mut y[..n / 4]));
    });
    group.throughput(Throughput::Bytes(9 * n as u64));
    group.bench_function("max_pool_grad 2x2 128x32x28x28", |b| {
        b.iter(|| max_pool_grad(&pool, axis, axis, black_box(&x), &dy[..n / 4], &mut dx));
    });

    let (rows, s) = (2048, 768);
    let (scale, bias) = (vec![1.0f32; s], vec![0.0f32; s]);
    let (mut dscale, mut dbias) = (vec![0.0f32; s], vec![0.0f32; s]);
    let mut workspace = vec![0.0f32; layer_norm_grad_workspace_elems(rows, s)];
    let (x, dy) = (&x[..rows * s], &dy[..rows * s]);
    group.throughput(Throughput::Bytes(8 * (rows * s) as u64));
    group.bench_function("layer_norm 2048x768", |b| {
        b.iter(|| layer_norm(&pool, s, 1e-5, black_box(x), &scale, &bias, &mut y[..rows * s]));
    });
    group.throughput(Throughput::Bytes(12 * (rows * s) as u64));
    group.bench_function("layer_norm_grad 2048x768", |b| {
        b.iter(|| {
            let dx = &mut dx[..rows * s];
            layer_norm_grad(&pool, s, 1e-5, black_box(x), &scale, dy, dx, &mut dscale, &mut dbias, &mut workspace);
        });
    });
    let axis = AxisDims { outer: rows, c: s, inner: 1 };
    group.throughput(Throughput::Bytes(8 * (rows * s) as u64));
    group.bench_function("softmax 2048x768", |b| {
        b.iter(|| softmax(&pool, axis, false, black_box(x), &mut y[..rows * s]));
    });

    let step = Sgd { lr: 1e-6, momentum: 0.9, dampening: 0.0, nesterov: false, weight_decay: 1e-4, maximize: false };
    let gradient = values(n);
    group.throughput(Throughput::Bytes(20 * n as u64));
    group.bench_function("sgd 3.2M parameters", |b| {
        b.iter(|| sgd(&pool, step, &mut y, &mut dx, black_box(&gradient)));
    });
    group.finish();
}

criterion_group!(benches, train);
criterion_main!(benches);
