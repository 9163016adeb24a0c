//! One layer and direction through all steps, as multiply-adds of its products a second. The backward pass here is that through
//! the steps, without the products of the gradients of weights and inputs.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use remat_kernels::pool::Pool;
use remat_kernels::recurrent::{
    Backward, Cell, Forward, Lengths, Sequence, backward, backward_workspace_bytes, forward, forward_workspace_bytes,
};

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1009) as f32 / 5000.0 - 0.1).collect()
}

fn recurrent(c: &mut Criterion) {
    let mut group = c.benchmark_group("recurrent");
    group.sample_size(10).measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(200));
    let sizes = [[64, 32, 256], [16, 4, 64], [64, 1, 256], [32, 64, 512]];
    for (cell, [steps, batch, n]) in [Cell::Lstm, Cell::Gru, Cell::Tanh].into_iter().flat_map(|c| sizes.map(|s| (c, s)))
    {
        let s = Sequence { cell, steps, batch, inputs: n, hidden: n, width: n, reverse: false };
        let rows = steps * batch;
        let (x, w, bias) = (values(rows * n), values(cell.gates() * n * n), values(cell.gates() * n));
        let zeros = vec![0.0; batch * n];
        let (mut h, mut cell_state) = (zeros.clone(), zeros.clone());
        let (mut y, mut gates, mut cells) = (vec![0.0; rows * n], vec![0.0; rows * s.columns()], vec![0.0; rows * n]);
        let (mut dh, mut dc) = (zeros.clone(), zeros.clone());
        for threads in [1, 2] {
            let pool = Pool::new(threads);
            let name = format!("{cell:?} {steps}x{batch}x{n}, threads {threads}");
            let given =
                Forward { x: &x, w_ih: &w, w_hh: &w, bias: Some([&bias, &bias]), w_hr: None, lengths: Lengths(None) };
            group.throughput(Throughput::Elements((2 * rows * n * n * cell.gates()) as u64));
            for keeps in [false, true] {
                let mut ws = vec![0; forward_workspace_bytes::<f32>(&s, keeps, false, threads)];
                let what = if keeps { "forward and kept" } else { "forward" };
                group.bench_function(format!("{what} {name}"), |b| {
                    b.iter(|| {
                        let kept = keeps.then_some([&mut gates[..], &mut cells[..]]);
                        forward(&pool, &s, black_box(&given), [&mut h, &mut cell_state], &mut y, kept, &mut ws);
                    });
                });
            }
            let kept = gates.clone();
            let given = Backward {
                cells: &cells,
                y: &y,
                h0: None,
                c0: None,
                w_hh: &w,
                w_hr: None,
                lengths: Lengths(None),
                dy: &y,
                dy_offset: 0,
                dy_strides: [(batch * n) as isize, n as isize, 1],
            };
            let mut ws = vec![0; backward_workspace_bytes::<f32>(&s, false, threads)];
            group.throughput(Throughput::Elements((rows * n * n * cell.gates()) as u64));
            group.bench_function(format!("backward {name}"), |b| {
                b.iter(|| {
                    // they become gradients
                    gates.copy_from_slice(&kept);
                    backward(&pool, &s, black_box(&given), &mut gates, [&mut dh, &mut dc], &mut [], &mut ws);
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, recurrent);
criterion_main!(benches);
