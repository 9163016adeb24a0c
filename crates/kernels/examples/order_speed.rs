use remat_kernels::copy::Walk;
use remat_kernels::cumulate::{self, Along};
use remat_kernels::index::*;
use remat_kernels::order::*;
use remat_kernels::pool::Pool;
use remat_types::Layout;
use std::time::Instant;

fn best(name: &str, mut f: impl FnMut()) {
    let mut t = f64::MAX;
    let mut total = 0.0;
    let mut n = 0;
    while n < 5 || (total < 0.5 && n < 1000) {
        let s = Instant::now();
        f();
        let e = s.elapsed().as_secs_f64();
        t = t.min(e);
        total += e;
        n += 1;
    }
    println!("{name:40} {:10.1} us", t * 1e6);
}

fn main() {
    let pool = Pool::new(1);
    let mut seed = 12345u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        seed >> 33
    };
    for (o, n) in [(8usize, 128usize), (1, 1 << 20), (1024, 1024)] {
        let x: Vec<f32> = (0..o * n).map(|_| next() as f32 / 2147483648.0 * 2.0 - 1.0).collect();
        let (mut y, mut at) = (vec![0.0f32; o * n], vec![0i64; o * n]);
        let mut w = vec![0u128; sort_workspace::<f32>(n, 1) / 16 + 1];
        let l = Lanes { n, inner: 1 };
        best(&format!("sort {o}x{n}"), || sort(&pool, l, false, &x, &mut y, &mut at, bytemuck::cast_slice_mut(&mut w)));
        let k = 10;
        best(&format!("topk10 {o}x{n}"), || {
            top_k(&pool, l, k, (true, true), &x, &mut y[..o * k], &mut at[..o * k], bytemuck::cast_slice_mut(&mut w))
        });
        best(&format!("median {o}x{n}"), || {
            order_statistic(
                &pool,
                l,
                Statistic::Median,
                &x,
                &mut y[..o],
                &mut at[..o],
                bytemuck::cast_slice_mut(&mut w),
            )
        });
        let a = Along { n, inner: 1, reverse: false, exclusive: false };
        best(&format!("cumsum {o}x{n}"), || cumulate::sum(&pool, a, &x, &mut y));
        best(&format!("cumprod {o}x{n}"), || cumulate::product(&pool, a, &x, &mut y));
        best(&format!("logcumsumexp {o}x{n}"), || cumulate::log_sum_exp(&pool, a, &x, &mut y));
        best(&format!("cummax {o}x{n}"), || cumulate::extreme(&pool, true, a, &x, &mut y, &mut at));
        let c = Along { n: o, inner: n, reverse: false, exclusive: false };
        best(&format!("cumsum dim0 {o}x{n}"), || cumulate::sum(&pool, c, &x, &mut y));
        let idx: Vec<i64> = (0..o * n).map(|_| next() as i64 % n as i64).collect();
        let shape = Layout::contiguous([o, n]);
        let base = Layout::new([o, n], &[n as isize, 0], 0).unwrap();
        best(&format!("gather dim1 {o}x{n}"), || {
            let named = [Named::new(Indices::I64(&idx), &shape, &shape, n, 1, false).unwrap()];
            let places = Places { base: Walk::new(&base), named: &named };
            gather(&pool, &x, &places, &Row { walk: Walk::new(&Layout::contiguous([])), len: 1 }, &mut y);
        });
        best(&format!("scatter_add dim1 {o}x{n}"), || {
            let named = [Named::new(Indices::I64(&idx), &shape, &shape, n, 1, false).unwrap()];
            let places = Places { base: Walk::new(&base), named: &named };
            let src = Source { data: &x, walk: Walk::new(&shape), positions: o * n };
            y.fill(0.0);
            put(
                &pool,
                Put::Add,
                &src,
                &places,
                &Row { walk: Walk::new(&Layout::contiguous([])), len: 1 },
                (o, o),
                &mut y,
            );
        });
        let sorted: Vec<f32> = (0..1024).map(|i| i as f32 / 512.0 - 1.0).collect();
        best(&format!("searchsorted1024 {o}x{n}"), || search_sorted(&pool, false, &sorted, 1024, &x, n, &mut at));
        if o > 1 {
            let rows: Vec<i64> = (0..o).map(|_| next() as i64 % o as i64).collect();
            let own = Layout::contiguous([o]);
            best(&format!("index rows {o}x{n}"), || {
                let named = [Named::new(Indices::I64(&rows), &own, &own, o, n as isize, true).unwrap()];
                let places = Places { base: Walk::new(&Layout::new([o], &[0], 0).unwrap()), named: &named };
                gather(&pool, &x, &places, &Row { walk: Walk::new(&Layout::contiguous([n])), len: n }, &mut y);
            });
            best(&format!("index_put add rows {o}x{n}"), || {
                let named = [Named::new(Indices::I64(&rows), &own, &own, o, n as isize, true).unwrap()];
                let places = Places { base: Walk::new(&Layout::new([o], &[0], 0).unwrap()), named: &named };
                let src = Source { data: &x, walk: Walk::new(&shape), positions: o };
                put(
                    &pool,
                    Put::Add,
                    &src,
                    &places,
                    &Row { walk: Walk::new(&Layout::contiguous([n])), len: n },
                    (1, 1),
                    &mut y,
                );
            });
        }
    }
}
