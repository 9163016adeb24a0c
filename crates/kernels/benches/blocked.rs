//! Convolutions in blocks and products with packed weights, at shapes of compiled networks. Throughput is in floating-point
//! operations (criterion's "elem/s" reads as FLOP/s). Weights are warm; in a network they come from memory.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use remat_kernels::blocked::{Blocked, Linear, Start, lanes};
use remat_kernels::conv::Conv2d;
use remat_kernels::pool::Pool;
use std::time::Duration;

const THREADS: [usize; 2] = [1, 2];

/// Channels, height and width, output channels, kernel, stride, groups; padding is half the kernel.
const SHAPES: [[usize; 6]; 16] = [
    [3, 224, 64, 7, 2, 1],
    [64, 56, 64, 3, 1, 1],
    [128, 28, 128, 3, 1, 1],
    [256, 14, 256, 3, 1, 1],
    [512, 7, 512, 3, 1, 1],
    [256, 14, 512, 3, 2, 1],
    [64, 56, 256, 1, 1, 1],
    [256, 56, 64, 1, 1, 1],
    [1024, 14, 256, 1, 1, 1],
    [2048, 7, 512, 1, 1, 1],
    [512, 28, 1024, 1, 2, 1],
    [16, 112, 96, 1, 1, 1],
    [96, 56, 24, 1, 1, 1],
    [960, 7, 160, 1, 1, 1],
    [96, 112, 96, 3, 2, 96],
    [144, 56, 144, 3, 1, 144],
];

/// Rows, depth, columns.
const PRODUCTS: [[usize; 3]; 4] = [[128, 384, 1152], [128, 384, 384], [128, 384, 1536], [128, 1536, 384]];

fn filled(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.5).collect()
}

fn convolutions(c: &mut Criterion) {
    for [channels, size, k, kernel, stride, groups] in SHAPES {
        let (x, w, pad) = ([1, channels, size, size], [k, channels / groups, kernel, kernel], kernel / 2);
        let geom = Conv2d::new(x, w, [stride; 2], [pad; 2], [1; 2], groups).expect("valid sizes");
        let plain = Blocked::new(geom, lanes(), channels == 3).expect("groups suit blocks");
        let mut group = c.benchmark_group(format!("{channels}x{size}-{k}k{kernel}s{stride}g{groups}"));
        // the same operations for both ways, so that times compare
        group.throughput(Throughput::Elements(geom.flops()));
        for (name, b) in [("sums", Some(plain)), ("winograd", plain.winograd().ok())] {
            let Some(b) = b else { continue };
            let [x, w, bias] = [b.x_len(), b.packed_len(), b.bias_len()].map(filled);
            let mut y = filled(b.y_len());
            for threads in THREADS {
                let pool = Pool::new(threads);
                let mut ws = vec![0; b.workspace_bytes(threads)];
                group.bench_function(BenchmarkId::new(name, threads), |bench| {
                    bench.iter(|| b.run(&pool, &x, &w, &bias, &Start::Zero, Some([0.0, 6.0]), &mut y, &mut ws));
                });
            }
        }
    }
}

fn products(c: &mut Criterion) {
    for [m, k, n] in PRODUCTS {
        let l = Linear::new(m, k, n, lanes()).expect("whole blocks");
        let [x, w, bias] = [m * k, k * n, n].map(filled);
        let (mut y, mut ws) = (filled(m * n), vec![0; l.workspace_bytes(THREADS[1])]);
        let mut group = c.benchmark_group(format!("{m}x{k}x{n}"));
        group.throughput(Throughput::Elements(2 * (m * k * n) as u64));
        for threads in THREADS {
            let pool = Pool::new(threads);
            group.bench_function(BenchmarkId::from_parameter(threads), |bench| {
                bench.iter(|| l.run(&pool, &x, &w, &bias, &Start::Zero, None, &mut y, &mut ws));
            });
        }
    }
}

fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .sample_size(10)
}

criterion_group! {
    name = benches;
    config = config();
    targets = convolutions, products
}
criterion_main!(benches);
