//! Against the plain loops, without a tolerance: sums of integers wrap, and the floats are small integers, whose sums are
//! exact in f32 in any order, so that one rounding is the only one.

use super::kernel::integer_kernels_as_wide_as_avx512;
use super::*;
use crate::gemm::tests::{Random, STORES, Store, bits, data};
use crate::gemm::{BatchRef, Engine, MatRef, batched, batched_workspace_bytes, gemm, gemm_workspace_bytes, plain};
use crate::simd::Isa;
use half::{bf16, f16};
use proptest::prelude::*;

/// A test's value of a type: any bits of an integer, a small whole number as a float.
trait Sampled: GemmElement {
    fn sampled(random: &mut Random) -> Self;
}
macro_rules! sampled {
    ($($t:ident |$x:ident| $value:expr;)*) => {$(
        impl Sampled for $t {
            fn sampled(random: &mut Random) -> $t {
                let $x = random.next() >> 17;
                $value
            }
        }
    )*};
}
sampled! {
    f16 |x| f16::from_f32((x % 15) as f32 - 7.0);
    bf16 |x| bf16::from_f32((x % 15) as f32 - 7.0);
    i8 |x| x as i8;
    u8 |x| x as u8;
    i16 |x| if x.is_multiple_of(5) { i16::MIN } else { x as i16 };
    u16 |x| if x.is_multiple_of(5) { u16::MAX } else { x as u16 };
}

#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: [usize; 3],
    stores: [Store; 2],
    gap: usize,
    threads: usize,
    accumulate: bool,
}

/// Runs the product by `engine`, or as `gemm` does, and compares with the plain loops.
fn check_by<T: Sampled, O: GemmOutput<T> + PartialEq + std::fmt::Debug>(case: Case, engine: Option<&Engine<T>>) {
    let Case { sizes: [m, n, k], stores, gap, threads, accumulate } = case;
    let mut random = Random::new((m * 7919 + n * 104_729 + k) as u64);
    let mut operand = |rows, cols| data(rows, cols, || T::sampled(&mut random));
    let (a, b, old) = (operand(m, k), operand(k, n), operand(m, n + gap));
    let (a, b, ldc) = (stores[0].view(&a, m, k), stores[1].view(&b, k, n), n + gap);
    let old: Vec<O> = old[..m * ldc].iter().map(|x| O::from_sum(x.widen())).collect();
    let (mut c, mut want) = (old.clone(), old);
    let pool = Pool::new(threads);
    match engine {
        None => {
            let mut ws = vec![0xff; gemm_workspace_bytes::<T>(m, n, k, threads)];
            gemm(&pool, m, n, k, a, b, &mut c, ldc, accumulate, &mut ws);
        }
        Some(engine) => {
            let (a, b, mut ws) = (a.checked(m, k, "A"), b.checked(k, n, "B"), vec![0xff; 6 << 20]);
            // SAFETY: checked views and a C of `m` rows; the callers' tables are for this processor.
            unsafe {
                crate::gemm::product(&pool, threads, engine, m, n, k, a, b, c.as_mut_ptr(), ldc, accumulate, &mut ws);
            }
        }
    }
    let (a, b) = (a.checked(m, k, "A"), b.checked(k, n, "B"));
    // SAFETY: checked views and a C of `m` rows.
    unsafe { plain::rows(0..m, n, k, a, b, want.as_mut_ptr(), ldc, accumulate) };
    let differs = c.iter().zip(&want).position(|(c, want)| c != want);
    let shown = differs.map(|at| (at / ldc, at % ldc, c[at], want[at]));
    assert!(differs.is_none(), "{case:?}: row, column, got, wanted {shown:?}");
}

fn check<T: Sampled + PartialEq + std::fmt::Debug>(case: Case) {
    check_by::<T, T>(case, None);
}

fn check_sums<T: Sampled, O: GemmOutput<T> + PartialEq + std::fmt::Debug>(case: Case) {
    check_by::<T, O>(case, None);
}

fn check_all(case: Case) {
    check::<f16>(case);
    check::<bf16>(case);
    check::<i8>(case);
    check::<u8>(case);
    check::<i16>(case);
    check::<u16>(case);
    check_sums::<f16, f32>(case);
    check_sums::<bf16, f32>(case);
    check_sums::<i8, i32>(case);
    check_sums::<u8, i32>(case);
    check_sums::<i16, i32>(case);
}

const PLAIN: Case = Case { sizes: [0; 3], stores: [Store::Rows; 2], gap: 0, threads: 1, accumulate: false };

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_small_product_is_that_of_the_plain_loops(
        sizes in [1usize..70, 1..70, 1..70],
        stores in [0..STORES.len(), 0..STORES.len()],
        gap in 0usize..3,
        threads in 1usize..3,
        accumulate in any::<bool>(),
    ) {
        check_all(Case { sizes, stores: stores.map(|i| STORES[i]), gap, threads, accumulate });
    }
}

#[test]
fn larger_sizes_cross_every_block_boundary() {
    for sizes in [[330, 1050, 270], [7, 1100, 600], [700, 33, 513], [160, 40, 1100]] {
        for stores in [[Store::Rows, Store::Rows], [Store::Cols, Store::Cols], [Store::Gaps, Store::Reversed]] {
            check_all(Case { sizes, stores, gap: 1, threads: 2, accumulate: sizes[0] == 7 });
        }
    }
}

#[test]
fn rows_and_columns_of_any_stride() {
    for (m, n) in [(1, 1), (1, 77), (77, 1), (1, 300), (300, 1)] {
        for k in [3, 600] {
            for a in STORES {
                for b in STORES {
                    check_all(Case { sizes: [m, n, k], stores: [a, b], gap: 1, threads: 2, accumulate: k == 600 });
                }
            }
        }
    }
}

#[test]
fn every_instruction_set_and_tile_agrees_with_the_plain_loops() {
    for sizes in [[29, 95, 300], [14, 32, 16], [13, 17, 9], [150, 1030, 40], [5, 50, 1030], [1, 50, 40], [50, 1, 41]] {
        let case = Case { sizes, threads: 2, ..PLAIN };
        for stores in [[Store::Rows, Store::Cols], [Store::Cols, Store::Rows]] {
            let case = Case { stores, ..case };
            for isa in Isa::all() {
                check_by::<f16, f16>(case, Some(&Engine::Narrow(half_kernels(isa))));
                check_by::<bf16, f32>(case, Some(&Engine::Narrow(half_kernels(isa))));
                check_by::<i8, i32>(case, Some(&Engine::Narrow(integer_kernels(isa))));
                check_by::<u16, u16>(case, Some(&Engine::Narrow(integer_kernels(isa))));
            }
            check_by::<i8, i32>(case, Some(&Engine::Narrow(integer_kernels_as_wide_as_avx512())));
        }
    }
}

/// Floats with all their digits: any other order of additions would show.
fn waves(len: usize) -> Vec<f16> {
    (0..len).map(|i| f16::from_f32((i as f32 * 0.37).sin())).collect()
}

#[test]
fn bits_do_not_depend_on_the_thread_count_or_the_batch() {
    for (m, n, k) in [(200, 300, 600), (16, 2000, 144), (2000, 16, 530), (1, 4000, 900), (3000, 1, 900), (61, 59, 257)]
    {
        let (batch, a, b) = (3, waves(m * k), waves(3 * k * n));
        let mut want = vec![f16::ZERO; batch * m * n];
        let mut ws = vec![0; gemm_workspace_bytes::<f16>(m, n, k, 1)];
        for t in 0..batch {
            let b = MatRef { offset: t * k * n, ..MatRef::row_major(&b, n) };
            gemm(&Pool::new(1), m, n, k, MatRef::row_major(&a, k), b, &mut want[t * m * n..], n, false, &mut ws);
        }
        for threads in [1, 2, 3] {
            let mut c = vec![f16::ONE; batch * m * n];
            let mut ws = vec![0; batched_workspace_bytes::<f16>(batch, m, n, k, threads)];
            let a = BatchRef { matrix: MatRef::row_major(&a, k), batch_stride: 0 };
            let b = BatchRef { matrix: MatRef::row_major(&b, n), batch_stride: (k * n) as isize };
            batched(&Pool::new(threads), batch, m, n, k, a, b, &mut c, m * n, n, false, &mut ws);
            assert_eq!(bits(&c), bits(&want), "{m} x {n} x {k} on {threads} threads");
        }
    }
}

#[test]
fn operands_on_the_stack_give_the_bits_of_packed_ones() {
    for (m, n, k) in
        [(8, 8, 8), (1, 3, 9), (3, 1, 17), (17, 24, 33), (15, 33, 60), (64, 64, 64), (3, 16, 256), (256, 1, 2)]
    {
        assert!(small::fits(m, n, k));
        let (a, b) = (waves(m * (2 * k + 5) + 8), waves(k * (2 * n + 5) + 8));
        for (stores, isa) in STORES
            .into_iter()
            .flat_map(|a| STORES.map(|b| [a, b]))
            .flat_map(|s| Isa::all().into_iter().map(move |isa| (s, isa)))
        {
            let kernels = half_kernels::<f16>(isa);
            let (a, b) = (stores[0].view(&a, m, k).checked(m, k, "A"), stores[1].view(&b, k, n).checked(k, n, "B"));
            for (gap, accumulate) in [(0, false), (2, true)] {
                let ldc = n + gap;
                let [mut got, mut want] = [(); 2].map(|()| waves(m * ldc));
                let plan = Plan::new(&kernels, m, n, k, 1);
                let mut ws = vec![f32::NAN; plan.slot_len()];
                let tiles = kernels.in_place.expect("half floats are not packed as pairs");
                // SAFETY: checked views and a C of `m` rows; this processor has `isa`.
                unsafe {
                    small::product(tiles, kernels.along, [m, n, k], a, b, got.as_mut_ptr(), ldc, accumulate);
                    product(&Pool::new(1), &kernels, &plan, a, b, want.as_mut_ptr(), ldc, accumulate, &mut ws);
                }
                assert_eq!(bits(&got), bits(&want), "{m} x {n} x {k}, {stores:?}, {isa:?}");
            }
        }
    }
}

#[test]
fn a_long_sum_is_rounded_once() {
    // f16 has 11 bits: 2048 + 1 is 2048, so a sum that is rounded on the way stays there
    let (m, n, k) = (9, 20, 3000);
    let ones = vec![f16::ONE; k * n];
    let mut ws = vec![0; gemm_workspace_bytes::<f16>(m, n, k, 1)];
    let (a, b) = (MatRef { row_stride: 0, ..MatRef::row_major(&ones, k) }, MatRef::row_major(&ones, n));
    for (accumulate, want) in [(false, 3000.0), (true, 3002.0)] {
        let mut c = vec![f16::from_f32(2.0); m * n];
        gemm(&Pool::new(1), m, n, k, a, b, &mut c, n, accumulate, &mut ws);
        assert!(c.iter().all(|c| c.to_f32() == want), "{c:?}");
    }
}

#[test]
fn workspace_is_modest() {
    for (m, n, k) in [(4096, 4096, 4096), (16, 1 << 20, 64), (1 << 20, 16, 1024), (64, 64, 1 << 20), (4096, 4096, 64)] {
        for threads in [1, 2, 16] {
            assert!(gemm_workspace_bytes::<f16>(m, n, k, threads) <= threads * (5 << 19) + 64);
            assert!(gemm_workspace_bytes::<i8>(m, n, k, threads) <= threads * (5 << 19) + 64);
        }
    }
}
