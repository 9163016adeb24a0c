//! Matrix products: Remat against the `gemm` crate in the same run. Throughput is in floating-point operations
//! (criterion's "elem/s" reads as FLOP/s). `fma_peak` is the machine's own limit, to read the others against.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::{bf16, f16};
use remat_kernels::gemm::{GemmElement, GemmOutput, MatRef, gemm, gemm_workspace_bytes};
use remat_kernels::pool::Pool;
use std::time::Duration;

const THREADS: [usize; 2] = [1, 2];

/// `(name, m, n, k, b transposed)`
const SHAPES: [(&str, usize, usize, usize, bool); 14] = [
    ("square_64", 64, 64, 64, false),
    ("square_128", 128, 128, 128, false),
    ("square_256", 256, 256, 256, false),
    ("square_512", 512, 512, 512, false),
    ("square_1024", 1024, 1024, 1024, false),
    ("square_512_bt", 512, 512, 512, true),
    ("conv_64x147x12544", 64, 12544, 147, false),
    ("conv_256x64x3136", 256, 3136, 64, false),
    ("conv_64x576x3136", 64, 3136, 576, false),
    ("conv_512x4608x49", 512, 49, 4608, false),
    ("mlp_128x784x256", 128, 256, 784, false),
    ("mlp_32x768x3072", 32, 3072, 768, false),
    ("row_1x1024x1024", 1, 1024, 1024, false),
    ("row_1x1024x1024_bt", 1, 1024, 1024, true),
];

/// Shapes of the narrow types.
const NARROW: [&str; 7] = [
    "square_128",
    "square_512",
    "square_1024",
    "square_512_bt",
    "mlp_32x768x3072",
    "row_1x1024x1024",
    "row_1x1024x1024_bt",
];

fn filled<T>(len: usize, of: impl Fn(f32) -> T) -> Vec<T> {
    (0..len).map(|i| of(((i * 7919) % 1000) as f32 / 1000.0 - 0.5)).collect()
}

/// A shape in one element type, beside the `gemm` crate where that has `peer` factors 0 and 1.
fn bench_shape<T: GemmElement, O: GemmOutput<T> + Default>(
    c: &mut Criterion,
    suffix: &str,
    (name, m, n, k, b_transposed): (&str, usize, usize, usize, bool),
    of: impl Fn(f32) -> T,
    peer: Option<[T; 2]>,
) {
    let mut group = c.benchmark_group(format!("{name}{suffix}"));
    group.throughput(Throughput::Elements((2 * m * n * k) as u64));
    let (a, b) = (filled(m * k, &of), filled(k * n, &of));
    let mut out = vec![O::default(); m * n];
    let a_ref = MatRef::row_major(&a, k);
    let b_ref = if b_transposed { MatRef::row_major(&b, k).t() } else { MatRef::row_major(&b, n) };
    for threads in THREADS {
        let pool = Pool::new(threads);
        let mut ws = vec![0u8; gemm_workspace_bytes::<T>(m, n, k, threads)];
        group.bench_function(BenchmarkId::new("remat", threads), |bench| {
            bench.iter(|| gemm(&pool, m, n, k, a_ref, b_ref, &mut out, n, false, &mut ws));
        });
        let Some([zero, one]) = peer else { continue };
        let parallelism = if threads == 1 { ::gemm::Parallelism::None } else { ::gemm::Parallelism::Rayon(threads) };
        let mut out = vec![zero; m * n];
        group.bench_function(BenchmarkId::new("gemm_crate", threads), |bench| {
            let (dst, lhs, rhs) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
            let (rs, cs, n_, k_) = (b_ref.row_stride, b_ref.col_stride, n as isize, k as isize);
            bench.iter(|| {
                // SAFETY: pointers and strides describe the matrices above.
                unsafe {
                    let no = [false; 3];
                    ::gemm::gemm(
                        m,
                        n,
                        k,
                        dst,
                        1,
                        n_,
                        false,
                        lhs,
                        1,
                        k_,
                        rhs,
                        cs,
                        rs,
                        zero,
                        one,
                        no[0],
                        no[1],
                        no[2],
                        parallelism,
                    );
                }
            });
        });
    }
    group.finish();
}

fn all(c: &mut Criterion) {
    peak(c);
    for shape in SHAPES {
        bench_shape::<f32, f32>(c, "", shape, |x| x, Some([0.0, 1.0]));
    }
    for shape in SHAPES.into_iter().filter(|shape| NARROW.contains(&shape.0)) {
        bench_shape::<f16, f16>(c, "_f16", shape, f16::from_f32, Some([f16::ZERO, f16::ONE]));
        bench_shape::<bf16, bf16>(c, "_bf16", shape, bf16::from_f32, None);
        bench_shape::<i8, i32>(c, "_i8", shape, |x| (x * 255.0) as i8, None);
    }
}

/// Multiply-adds from registers only.
fn peak(c: &mut Criterion) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        use std::arch::x86_64::{__m256, _mm256_fmadd_ps, _mm256_set1_ps};
        const STEPS: usize = 10_000;
        #[target_feature(enable = "avx2,fma")]
        fn run(x: __m256) -> [__m256; 12] {
            let mut acc = [x; 12];
            for _ in 0..STEPS {
                for a in &mut acc {
                    *a = _mm256_fmadd_ps(x, x, *a);
                }
                std::hint::black_box(&x);
            }
            acc
        }
        let mut group = c.benchmark_group("fma_peak_avx2");
        group.throughput(Throughput::Elements((STEPS * 12 * 16) as u64));
        group.bench_function("1", |bench| {
            // SAFETY: the features were detected just above.
            bench.iter(|| unsafe { std::hint::black_box(run(_mm256_set1_ps(std::hint::black_box(1e-3)))) });
        });
        group.finish();
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = c;
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
