//! Matrix products beside the crate `gemm`: `products [SECONDS [TYPE [MxKxN [THREADS]]]]`, or `products list`.
//!
//! Without more than SECONDS (0.2), times all of f32, f64 and f16, of square and of long and narrow products, on one thread
//! and where there is enough to do on two; `list` only says which. Ours, the crate's and multiply-adds from registers take
//! turns; a line of JSON for each has the medians, and medians of the ratios within rounds. `scripts/bench_products.py`
//! makes a table of them.

use half::f16;
use remat_kernels::gemm::{GemmElement, GemmOutput, MatRef, gemm, gemm_workspace_bytes};
use remat_kernels::machine::multiply_adds;
use remat_kernels::pool::Pool;
use remat_types::Element;

#[path = "support/repeats.rs"]
mod repeats;
#[path = "support/turns.rs"]
mod turns;

use repeats::repeats;
use turns::{median, turns};

/// Rows of `a`, columns of `a`, columns of `b`.
const SHAPES: [[usize; 3]; 13] = [
    [8, 8, 8],
    [16, 16, 16],
    [32, 32, 32],
    [64, 64, 64],
    [128, 128, 128],
    [256, 256, 256],
    [512, 512, 512],
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [1, 1024, 1024],
    [4, 1024, 1024],
    [8, 1024, 1024],
    [1024, 8, 1024],
];
/// Longest extent from which a second thread is tried.
const TWO_THREADS_MIN: usize = 256;
/// Seconds of a round of one side at least: less than a system's time slice, so that other programs disturb few rounds.
const ROUND: f64 = 5e-4;
/// Steps of a round of the peak loop at least: about half as long.
const PEAK_STEPS_MIN: usize = 1 << 17;

/// An element type of both sides.
trait Peer: Element + GemmElement + GemmOutput<Self> {
    const NAME: &'static str;
    /// Multiply-adds per f32 multiply-add that this type is held to; f16 is computed in f32.
    const OF_PEAK: f64;
    /// How far results may be apart for each term of a sum: a quarter of the type's epsilon. Terms are below 1/4 and of both
    /// signs, so the sums' roundings come to a sixteenth as much; the crate adds up some products of f16 in f16.
    const TOLERANCE: f64;
    const ZERO: Self;
    const ONE: Self;
    fn rounded(x: f32) -> Self;
}

macro_rules! peers {
    ($($t:ty, $name:literal, $of_peak:literal, $epsilon:expr, $zero:expr, $one:expr, $rounded:expr;)*) => { $(
        impl Peer for $t {
            const NAME: &'static str = $name;
            const OF_PEAK: f64 = $of_peak;
            const TOLERANCE: f64 = $epsilon / 4.0;
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            fn rounded(x: f32) -> Self { $rounded(x) }
        }
    )* };
}
peers! {
    f32, "f32", 1.0, f32::EPSILON as f64, 0.0, 1.0, f32::from;
    f64, "f64", 0.5, f64::EPSILON, 0.0, 1.0, f64::from;
    f16, "f16", 1.0, f16::EPSILON.to_f64_const(), f16::ZERO, f16::ONE, f16::from_f32;
}

/// `c = a b` by the crate, on row-major matrices.
fn theirs<T: Peer>(threads: usize, [m, k, n]: [usize; 3], a: &[T], b: &[T], c: &mut [T]) {
    use ::gemm::Parallelism::{None, Rayon};
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n);
    let by = if threads == 1 { None } else { Rayon(threads) };
    let (c, a, b, columns, depth) = (c.as_mut_ptr(), a.as_ptr(), b.as_ptr(), n as isize, k as isize);
    // SAFETY: the slices are whole row-major matrices, whose strides are given columns first.
    unsafe {
        ::gemm::gemm(
            m,
            n,
            k,
            c,
            1,
            columns,
            false,
            a,
            1,
            depth,
            b,
            1,
            columns,
            T::ZERO,
            T::ONE,
            false,
            false,
            false,
            by,
        );
    }
}

/// [`run`] of a type.
type Run = fn(f64, [usize; 3], usize);

/// Times one shape and prints its line.
fn run<T: Peer>(seconds: f64, shape: [usize; 3], threads: usize) {
    let [m, k, n] = shape;
    let pool = Pool::new(threads);
    let filled =
        |len| -> Vec<T> { (0..len).map(|i| T::rounded((i % 8009 * 7919 % 1009) as f32 / 1009.0 - 0.5)).collect() };
    let (a, b, [mut c, mut d]) = (filled(m * k), filled(k * n), [(); 2].map(|()| filled(m * n)));
    let mut ws = vec![0; gemm_workspace_bytes::<T>(m, n, k, threads)];
    let (left, right) = (MatRef::row_major(&a, k), MatRef::row_major(&b, n));
    let mut ours = || gemm(&pool, m, n, k, left, right, &mut c, n, false, &mut ws);
    let mut theirs = || theirs(threads, shape, &a, &b, &mut d);
    let (times, their_times) = (repeats(ROUND, &mut ours), repeats(ROUND, &mut theirs));
    // two rounds of the peak loop do as much as one of the products, so that what disturbs one disturbs the other
    let flops = (2 * m * k * n) as f64;
    let steps = (flops * times as f64 / multiply_adds(&pool, 1) as f64 / 2.0) as usize;
    let steps = steps.max(PEAK_STEPS_MIN);
    let peak_flops = multiply_adds(&pool, steps) as f64 * T::OF_PEAK;
    let peak = || {
        multiply_adds(&pool, steps);
    };
    let (mut before, mut after) = (peak, peak);
    let mut ours_often = || (0..times).for_each(|_| ours());
    let mut theirs_often = || (0..their_times).for_each(|_| theirs());
    let rounds = turns(seconds, [&mut before, &mut ours_often, &mut theirs_often, &mut after]);
    let near = |(c, d): (&T, &T)| (c.to_f64() - d.to_f64()).abs() <= T::TOLERANCE * k as f64;
    assert!(c.iter().zip(&d).all(near), "both sides compute the same product");
    let ours = |round: &[f64; 4]| round[1] / times as f64;
    let theirs = |round: &[f64; 4]| round[2] / their_times as f64;
    let share = |round: &[f64; 4]| flops / ours(round) / (peak_flops / round[0].min(round[3]));
    let of = |f: &dyn Fn(&[f64; 4]) -> f64| median(rounds.iter().map(f));
    println!(
        "{{\"type\": \"{}\", \"shape\": \"{m}x{k}x{n}\", \"threads\": {threads}, \"ours_ns\": {:.1}, \"gemm_ns\": {:.1}, \
         \"of_gemm\": {:.4}, \"share_of_peak\": {:.4}}}",
        T::NAME,
        of(&ours) * 1e9,
        of(&theirs) * 1e9,
        of(&|round| ours(round) / theirs(round)),
        of(&share),
    );
}

/// Three extents as `MxKxN`.
fn shape(text: &str) -> [usize; 3] {
    let extents: Vec<usize> = text.split('x').map(|n| n.parse().expect("MxKxN are numbers")).collect();
    extents.try_into().expect("MxKxN are three extents")
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let list = args.first().is_some_and(|arg| arg == "list");
    let seconds = args.first().filter(|_| !list).map_or(0.2, |s| s.parse().expect("SECONDS is a number"));
    let shapes = args.get(2).map_or(SHAPES.to_vec(), |text| vec![shape(text)]);
    let threads: Option<usize> = args.get(3).map(|n| n.parse().expect("THREADS is a number"));
    let types = [(f32::NAME, run::<f32> as Run), (f64::NAME, run::<f64>), (f16::NAME, run::<f16>)];
    for (name, run) in types.into_iter().filter(|(name, _)| args.get(1).is_none_or(|only| only == name)) {
        for &[m, k, n] in &shapes {
            let most = if m.max(k).max(n) >= TWO_THREADS_MIN { 2 } else { 1 };
            for threads in threads.map_or(1..=most, |n| n..=n) {
                if list {
                    println!("{name} {m}x{k}x{n} {threads}");
                } else {
                    run(seconds, [m, k, n], threads);
                }
            }
        }
    }
}
