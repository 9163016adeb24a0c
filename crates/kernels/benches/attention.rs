//! Attention in tiles, as multiply-adds of its products per second: those of pairs that are seen.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use remat_kernels::attention::{
    Attention, Gradients, Inputs, Span, Strided, backward, backward_workspace_bytes, forward, forward_workspace_bytes,
};
use remat_kernels::pool::Pool;

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect()
}

fn attention(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention");
    group.sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));
    // a small GPT, a small BERT, and a long sequence
    for (n, t, causal) in [(8, 256, true), (1, 128, false), (1, 2048, true)] {
        let (heads, d) = (6, 64);
        let span = if causal { Span::CAUSAL } else { Span::ALL };
        let a =
            Attention { n, heads, heads_kv: heads, tq: t, tk: t, d, dv: d, span, scale: 0.125, cap: 0.0, drops: None };
        let row = heads * d;
        let (qkv, dy) = (values(3 * n * t * row), values(n * t * row));
        let strides = |row: usize| [t * row, row, d, 1].map(|s| s as isize);
        let of = |i: usize| Strided { data: &qkv[..], offset: i * row, strides: strides(3 * row) };
        let x = Inputs { q: of(0), k: of(1), v: of(2), mask: None, bias: None };
        let dy = Strided { data: &dy[..], offset: 0, strides: strides(row) };
        let (mut y, mut dx, mut lse) = (vec![0.0; n * t * row], vec![0.0; 3 * n * t * row], vec![0.0; n * heads * t]);
        let name = format!("{n}x{t}x{heads}x{d}{}", if causal { " causal" } else { "" });
        for threads in [1, 2] {
            let pool = Pool::new(threads);
            let mut ws = vec![0; forward_workspace_bytes::<f32>(&a, threads)];
            group.throughput(Throughput::Elements((2 * a.pairs() * d) as u64));
            group.bench_function(format!("forward {name}, threads {threads}"), |b| {
                b.iter(|| forward(&pool, &a, black_box(&x), &mut y, &mut lse, &mut ws));
            });
            let mut ws = vec![0; backward_workspace_bytes::<f32>(&a, threads)];
            group.throughput(Throughput::Elements((5 * a.pairs() * d) as u64));
            group.bench_function(format!("backward {name}, threads {threads}"), |b| {
                b.iter(|| backward(&pool, &a, black_box(&x), &lse, &dy, Gradients::Joined(&mut dx), &mut ws));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, attention);
criterion_main!(benches);
