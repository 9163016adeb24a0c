//! The share of the machine's multiply-adds that square matrix products reach: `share [SECONDS [N..]]`.
//!
//! Rounds of register-only multiply-adds and of products take turns in one process, so that what else runs meanwhile
//! slows both; the figures are medians over rounds, and the ratio is taken within each. Shares of narrow types are of
//! f32 multiply-adds, those of f64 of half as many.

use half::{bf16, f16};
use remat_kernels::gemm::{GemmElement, GemmOutput, MatRef, gemm, gemm_workspace_bytes};
use remat_kernels::machine::multiply_adds;
use remat_kernels::pool::Pool;

#[path = "support/turns.rs"]
mod turns;

use turns::{median, turns};

/// Multiply-adds of a round of the product: some milliseconds.
const ROUND_MULS: usize = 1 << 27;
/// Steps of a round of the peak loop: about 4 ms.
const PEAK_STEPS: usize = 1 << 21;

fn main() {
    let numbers: Vec<f64> = std::env::args().skip(1).map(|x| x.parse().expect("a number")).collect();
    let seconds = numbers.first().copied().unwrap_or(1.0);
    let sizes: Vec<usize> = match numbers.get(1..) {
        Some(sizes) if !sizes.is_empty() => sizes.iter().map(|&n| n as usize).collect(),
        _ => vec![256, 384, 512, 768, 1024, 1536, 2048],
    };
    println!("{:>5} {:>5} {:>7} {:>8} {:>9} {:>6} {:>6}", "type", "n", "threads", "GFLOP/s", "peak", "share", "best");
    for n in sizes {
        for threads in [1, 2] {
            let pool = Pool::new(threads);
            run::<f32, f32>("f32", &pool, n, seconds, 1.0, |x| x);
            run::<f64, f64>("f64", &pool, n, seconds, 0.5, f64::from);
            run::<f16, f16>("f16", &pool, n, seconds, 1.0, f16::from_f32);
            run::<bf16, bf16>("bf16", &pool, n, seconds, 1.0, bf16::from_f32);
            run::<i8, i32>("i8", &pool, n, seconds, 1.0, |x| (x * 255.0) as i8);
        }
    }
}

/// Times products of `n x n` matrices for about `seconds` and prints a line.
fn run<T: GemmElement, O: GemmOutput<T> + Default>(
    name: &str,
    pool: &Pool,
    n: usize,
    seconds: f64,
    of_peak: f64,
    of: impl Fn(f32) -> T,
) {
    let data: Vec<T> = (0..2 * n * n).map(|i| of((i % 8009 * 7919 % 1009) as f32 / 1009.0 - 0.5)).collect();
    let (a, b) = data.split_at(n * n);
    let mut c = vec![O::default(); n * n];
    let mut ws = vec![0; gemm_workspace_bytes::<T>(n, n, n, pool.threads())];
    let repeat = (ROUND_MULS * pool.threads() / (n * n * n)).max(1);
    let mut product = || {
        for _ in 0..repeat {
            gemm(pool, n, n, n, MatRef::row_major(a, n), MatRef::row_major(b, n), &mut c, n, false, &mut ws);
        }
    };
    let flops = (2 * n * n * n * repeat) as f64 / 1e9;
    let peak_flops = multiply_adds(pool, PEAK_STEPS) as f64 * of_peak / 1e9;
    let peak = || {
        multiply_adds(pool, PEAK_STEPS);
    };
    let (mut before, mut after) = (peak, peak);
    let rounds = turns(seconds, [&mut before, &mut product, &mut after]);
    let speeds = || rounds.iter().map(|[before, product, after]| (flops / product, peak_flops / before.min(*after)));
    let [speed, most] = [median(speeds().map(|s| s.0)), median(speeds().map(|s| s.1))];
    let share = median(speeds().map(|s| s.0 / s.1));
    let best = speeds().map(|s| s.0).fold(0.0, f64::max) / speeds().map(|s| s.1).fold(0.0, f64::max);
    let threads = pool.threads();
    println!("{name:>5} {n:>5} {threads:>7} {speed:>8.1} {most:>9.1} {share:>6.3} {best:>6.3}");
}
