use super::*;
use proptest::prelude::*;

/// A small generator, so that a failing case is named by its sizes alone.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// In -1..1.
    pub(crate) fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// How a test stores an operand.
#[derive(Clone, Copy, Debug)]
pub(super) enum Store {
    Rows,
    Cols,
    Reversed,
    Gaps,
    BroadcastRow,
}

pub(super) const STORES: [Store; 5] = [Store::Rows, Store::Cols, Store::Reversed, Store::Gaps, Store::BroadcastRow];

impl Store {
    pub(super) fn view<T>(self, data: &[T], rows: usize, cols: usize) -> MatRef<'_, T> {
        let (r, c) = (rows as isize, cols as isize);
        let (offset, row_stride, col_stride) = match self {
            Store::Rows => (0, c, 1),
            Store::Cols => (0, 1, r),
            Store::Reversed => ((rows * cols).saturating_sub(1), -c, -1),
            Store::Gaps => (3, 2 * c + 5, 2),
            Store::BroadcastRow => (1, 0, 1),
        };
        MatRef { data, offset, row_stride, col_stride }
    }
}

/// Elements enough for any of the ways to store such an operand.
pub(super) fn data<T>(rows: usize, cols: usize, mut make: impl FnMut() -> T) -> Vec<T> {
    (0..rows * (2 * cols + 5) + 8).map(|_| make()).collect()
}

fn element<T: Copy>(mat: &MatRef<'_, T>, i: usize, j: usize) -> T {
    mat.data[(mat.offset as isize + i as isize * mat.row_stride + j as isize * mat.col_stride) as usize]
}

#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    a: Store,
    b: Store,
    gap: usize,
    accumulate: bool,
}

/// Runs `gemm` and compares with f64 sums within `tolerance` times the sum of magnitudes; returns C.
fn check<T: GemmElement>(
    case: Case,
    threads: usize,
    make: impl Fn(f64) -> T + Copy,
    value: impl Fn(T) -> f64,
    tolerance: f64,
) -> Vec<T> {
    check_from(case, threads, make, value, tolerance, 1e-30)
}

/// As [`check`], for a type whose values below `normal` are as far apart as those at `normal`: of f16 the sums are that
/// small, of f32 and bf16 none is.
fn check_from<T: GemmElement>(
    case: Case,
    threads: usize,
    make: impl Fn(f64) -> T + Copy,
    value: impl Fn(T) -> f64,
    tolerance: f64,
    normal: f64,
) -> Vec<T> {
    let Case { m, n, k, accumulate, .. } = case;
    let mut random = Random::new((m * 7919 + n * 104_729 + k) as u64);
    let mut operand = |rows, cols| data(rows, cols, || make(random.float()));
    let (a_data, b_data) = (operand(m, k), operand(k, n));
    let (a, b) = (case.a.view(&a_data, m, k), case.b.view(&b_data, k, n));
    let ldc = n + case.gap;
    let old: Vec<T> = (0..m * ldc).map(|_| make(random.float())).collect();
    let mut c = old.clone();
    let mut ws = vec![0xff; gemm_workspace_bytes::<T>(m, n, k, threads)];
    gemm(&Pool::new(threads), m, n, k, a, b, &mut c, ldc, accumulate, &mut ws);
    for i in 0..m {
        for j in 0..ldc {
            let at = i * ldc + j;
            if j >= n {
                assert_eq!(value(c[at]), value(old[at]), "the gap between rows changed");
                continue;
            }
            let start = if accumulate { value(old[at]) } else { 0.0 };
            let terms = (0..k).map(|p| value(element(&a, i, p)) * value(element(&b, p, j)));
            let (sum, size) = terms.fold((start, start.abs()), |(s, z), x| (s + x, z + x.abs()));
            let got = value(c[at]);
            assert!((got - sum).abs() <= tolerance * size.max(normal), "{case:?} at ({i}, {j}): {got} for {sum}");
        }
    }
    c
}

pub(super) fn bits<T: bytemuck::Pod>(c: &[T]) -> &[u8] {
    bytemuck::cast_slice(c)
}

fn any_case(max: usize) -> impl Strategy<Value = Case> {
    let store = || (0..STORES.len()).prop_map(|i| STORES[i]);
    let sizes = (0..max, 0..max, 0..max);
    (sizes, store(), store(), 0usize..3, any::<bool>()).prop_map(|((m, n, k), a, b, gap, accumulate)| Case {
        m,
        n,
        k,
        a,
        b,
        gap,
        accumulate,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn f32_agrees_with_f64_sums(case in any_case(70)) {
        check::<f32>(case, 1, |x| x as f32, f64::from, 1e-6);
    }
    #[test]
    fn f64_agrees_with_f64_sums(case in any_case(70)) {
        check::<f64>(case, 2, |x| x, |x| x, 1e-14);
    }
    #[test]
    fn half_floats_round_once(case in any_case(30)) {
        // half a unit in the last place, once; the sum in f32 of fewer than 30 terms adds as many of its own units
        let once = |epsilon: f64| 0.5 * epsilon + 30.0 * f64::from(f32::EPSILON) / 2.0;
        // below the smallest normal number, units do not get smaller
        let (f16, normal) = (once(half::f16::EPSILON.into()), f64::from(half::f16::MIN_POSITIVE));
        check_from::<half::f16>(case, 2, half::f16::from_f64, half::f16::to_f64, f16, normal);
        check::<half::bf16>(case, 1, half::bf16::from_f64, half::bf16::to_f64, once(half::bf16::EPSILON.into()));
    }
    #[test]
    fn small_integers_are_exact(case in any_case(20)) {
        check::<i32>(case, 2, |x| (x * 100.0) as i32, f64::from, 0.0);
        check::<u64>(case, 1, |x| (x * 100.0).abs() as u64, |x| x as f64, 0.0);
    }
}

const ROWS: Case = Case { m: 0, n: 0, k: 0, a: Store::Rows, b: Store::Rows, gap: 0, accumulate: false };

#[test]
fn larger_sizes_cross_every_block_boundary() {
    for (m, n, k) in [(300, 1100, 270), (7, 2100, 520), (513, 33, 257), (200, 200, 1)] {
        for (a, b) in [(Store::Rows, Store::Rows), (Store::Cols, Store::Cols), (Store::Rows, Store::Cols)] {
            check::<f32>(Case { m, n, k, a, b, ..ROWS }, 2, |x| x as f32, f64::from, 1e-6);
        }
        let case = Case { m, n, k, accumulate: true, gap: 1, ..ROWS };
        check::<f64>(case, 2, |x| x, |x| x, 1e-14);
    }
}

#[test]
fn rows_and_columns_of_any_stride() {
    for (m, n) in [(1, 1), (1, 77), (77, 1), (1, 1000), (1000, 1)] {
        for k in [3, 700, 2500] {
            for a in STORES {
                for b in STORES {
                    let case = Case { m, n, k, a, b, gap: 1, accumulate: k == 700 };
                    check::<f32>(case, 2, |x| x as f32, f64::from, 1e-6);
                }
            }
        }
    }
}

#[test]
fn few_rows_of_any_stride() {
    for (m, n, k) in [(2, 1000, 30), (3, 100, 700), (4, 77, 300), (6, 100, 700), (14, 1000, 30)] {
        for (a, b) in STORES.into_iter().flat_map(|a| STORES.map(|b| (a, b))) {
            check::<f32>(Case { m, n, k, a, b, gap: 1, accumulate: k == 700 }, 2, |x| x as f32, f64::from, 1e-6);
            check::<f64>(Case { m, n, k, a, b, gap: 0, accumulate: k == 30 }, 1, |x| x, |x| x, 1e-14);
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_thread_count() {
    for (m, n, k) in [
        (200, 300, 600),
        (16, 5000, 144),
        (5000, 16, 30),
        (1, 4000, 900),
        (3000, 1, 900),
        (61, 59, 257),
        (3, 4001, 90),
        (9, 4001, 90),
    ] {
        let case = Case { m, n, k, b: Store::Cols, ..ROWS };
        let one = check::<f32>(case, 1, |x| x as f32, f64::from, 1e-6);
        for threads in [2, 3] {
            let many = check::<f32>(case, threads, |x| x as f32, f64::from, 1e-6);
            assert_eq!(bits(&one), bits(&many), "{m} x {n} x {k} on {threads} threads");
        }
    }
}

#[test]
fn operands_read_where_they_are_give_the_bits_of_packed_ones() {
    let mut random = Random::new(3);
    let small =
        [(8, 8, 9), (16, 16, 16), (5, 16, 400), (17, 24, 33), (64, 64, 64), (29, 80, 100), (3, 16, 256), (70, 8, 257)];
    // few rows, a row of tiles, and blocks of rows, columns and steps, whose rows of A alone may stay where they are
    let few = [(2, 300, 100), (3, 77, 400), (4, 1103, 30), (4, 130, 800), (6, 100, 900), (9, 1100, 30), (14, 77, 500)];
    let large = [(130, 150, 400), (205, 70, 900), (30, 1200, 130)];
    for (m, n, k) in small.into_iter().chain(few).chain(large) {
        let a = data(m, k, || random.float() as f32);
        let b = data(k, n, || random.float() as f32);
        let turned = |x: &[f32], rows: usize, cols: usize| -> Vec<f32> {
            (0..rows * cols).map(|i| x[i % rows * cols + i / rows]).collect()
        };
        let (at, bt) = (turned(&a, m, k), turned(&b, k, n));
        let run = |a: MatRef<'_, f32>, b: MatRef<'_, f32>, accumulate: bool| {
            let mut c = vec![0.25f32; m * n];
            let pool = Pool::new(2);
            let mut ws = vec![0u8; gemm_workspace_bytes::<f32>(m, n, k, 2)];
            gemm(&pool, m, n, k, a, b, &mut c, n, accumulate, &mut ws);
            c
        };
        for accumulate in [false, true] {
            // a transposed B is packed whatever its size
            let want = run(MatRef::row_major(&a, k), MatRef::row_major(&bt, k).t(), accumulate);
            for a in [MatRef::row_major(&a, k), MatRef::row_major(&at, m).t()] {
                let got = run(a, MatRef::row_major(&b, n), accumulate);
                assert_eq!(bits(&got), bits(&want), "{m} x {n} x {k}, A {}", a.col_stride);
            }
        }
    }
}

#[test]
fn every_instruction_set_and_tile_agrees_with_the_plain_loops() {
    let pool = Pool::new(2);
    let mut random = Random::new(1);
    for kernels in kernel::f32_tables() {
        let few = [(1, 50, 40), (50, 1, 40), (2, 95, 300), (3, 190, 77), (4, 71, 200), (5, 95, 300)];
        for (m, n, k) in [(29, 95, 300), (14, 32, 16), (13, 17, 9), (150, 1030, 40)].into_iter().chain(few) {
            let a: Vec<f32> = (0..m * k).map(|_| random.float() as f32).collect();
            let b: Vec<f32> = (0..k * n).map(|_| random.float() as f32).collect();
            let (a, b) = (MatRef::row_major(&a, k).checked(m, k, "A"), MatRef::row_major(&b, n).checked(k, n, "B"));
            let (mut c, mut want) = (vec![0f32; m * n], vec![0f32; m * n]);
            let mut ws = vec![0u8; 6 << 20];
            // SAFETY: checked views and a C of `m * n`; the table is for this processor.
            unsafe {
                product(&pool, 2, &Engine::Same(kernels), m, n, k, a, b, c.as_mut_ptr(), n, false, &mut ws);
                plain::rows(0..m, n, k, a, b, want.as_mut_ptr(), n, false);
            }
            for (x, y) in c.iter().zip(&want) {
                assert!((x - y).abs() < 1e-4, "{m} x {n} x {k}: {x} for {y}");
            }
        }
    }
}

#[test]
fn wide_tiles_give_the_bits_of_tall_ones() {
    let mut random = Random::new(5);
    for wide in kernel::f32_tables().into_iter().filter(|kernels| kernels.is_wide()) {
        // columns for one shape alone, rows that collide, blocks of columns, rows and steps
        for (m, n, k) in [(40, 20, 100), (29, 200, 1024), (15, 1500, 500), (7, 64, 30), (110, 77, 800)] {
            let a: Vec<f32> = (0..m * k).map(|_| random.float() as f32).collect();
            let b: Vec<f32> = (0..k * n).map(|_| random.float() as f32).collect();
            for (a_stride, b_stride) in [([k, 1], [n, 1]), ([1, m], [1, k])] {
                let mat = |data, [row, col]: [usize; 2]| MatRef {
                    data,
                    offset: 0,
                    row_stride: row as isize,
                    col_stride: col as isize,
                };
                let (a, b) = (mat(&a, a_stride).checked(m, k, "A"), mat(&b, b_stride).checked(k, n, "B"));
                let [got, want] = [wide, wide.tall()].map(|kernels| {
                    let (mut c, mut ws) = (vec![0.5f32; m * n], vec![0u8; 6 << 20]);
                    // SAFETY: checked views and a C of `m * n`; the table is for this processor.
                    unsafe {
                        let engine = Engine::Same(kernels);
                        product(&Pool::new(2), 2, &engine, m, n, k, a, b, c.as_mut_ptr(), n, true, &mut ws);
                    }
                    c
                });
                assert_eq!(bits(&got), bits(&want), "{m} x {n} x {k}");
            }
        }
    }
}

#[test]
fn no_depth_gives_zeros_or_leaves_c() {
    let mut c = [7f32; 6];
    let none = MatRef::<f32> { data: &[], offset: 0, row_stride: 0, col_stride: 0 };
    gemm(&Pool::new(1), 2, 3, 0, none, none, &mut c, 3, true, &mut []);
    assert_eq!(c, [7.0; 6]);
    gemm(&Pool::new(1), 2, 3, 0, none, none, &mut c, 3, false, &mut []);
    assert_eq!(c, [0.0; 6]);
}

#[test]
fn integers_wrap_around() {
    let (a, b) = ([200u8, 100], [3u8, 2]);
    let mut c = [1u8];
    gemm(&Pool::new(1), 1, 1, 2, MatRef::row_major(&a, 2), MatRef::row_major(&b, 1), &mut c, 1, true, &mut []);
    assert_eq!(c[0], (200 * 3 + 100 * 2 + 1) as u8);
}

#[test]
#[should_panic(expected = "A reaches")]
fn operand_out_of_bounds_is_refused() {
    let a = [0f32; 5];
    let mut c = [0f32; 4];
    gemm(&Pool::new(1), 2, 2, 3, MatRef::row_major(&a, 3), MatRef::row_major(&a, 1), &mut c, 2, false, &mut []);
}

#[test]
#[should_panic(expected = "workspace")]
fn missing_workspace_is_refused() {
    // a B that is not in order is packed, however small
    let a = [0f32; 1024];
    let mut c = [0f32; 1024];
    gemm(
        &Pool::new(1),
        32,
        32,
        32,
        MatRef::row_major(&a, 32),
        MatRef::row_major(&a, 32).t(),
        &mut c,
        32,
        false,
        &mut [],
    );
}

#[test]
fn workspace_is_modest() {
    for (m, n, k) in [(4096, 4096, 4096), (16, 1 << 20, 64), (1 << 20, 16, 64), (64, 64, 1 << 20)] {
        for threads in [1, 2, 16] {
            assert!(gemm_workspace_bytes::<f32>(m, n, k, threads) <= threads * (7 << 19) + 64);
            assert!(gemm_workspace_bytes::<f64>(m, n, k, threads) <= threads * (7 << 19) + 64);
        }
    }
}

#[test]
fn batch_gives_the_bits_of_single_products() {
    for (batch, m, n, k) in [(7, 33, 20, 40), (2, 200, 300, 100), (40, 3, 3, 3), (9, 1, 30, 50), (3, 4, 4, 0)] {
        let mut random = Random::new(5);
        let a: Vec<f32> = (0..batch * m * k).map(|_| random.float() as f32).collect();
        let b: Vec<f32> = (0..k * n).map(|_| random.float() as f32).collect();
        let mut want = vec![0f32; batch * m * n];
        let pool = Pool::new(1);
        let mut ws = vec![0; gemm_workspace_bytes::<f32>(m, n, k, 1)];
        for t in 0..batch {
            let a = MatRef { offset: t * m * k, ..MatRef::row_major(&a, k) };
            let c = &mut want[t * m * n..];
            gemm(&pool, m, n, k, a, MatRef::row_major(&b, n), c, n, false, &mut ws);
        }
        for threads in [1, 2, 3] {
            let mut c = vec![1f32; batch * m * n];
            let mut ws = vec![0; batched_workspace_bytes::<f32>(batch, m, n, k, threads)];
            let a = BatchRef { matrix: MatRef::row_major(&a, k), batch_stride: (m * k) as isize };
            let b = BatchRef { matrix: MatRef::row_major(&b, n), batch_stride: 0 };
            batched(&Pool::new(threads), batch, m, n, k, a, b, &mut c, m * n, n, false, &mut ws);
            assert_eq!(bits(&c), bits(&want), "{batch} x {m} x {n} x {k} on {threads} threads");
        }
    }
}

#[test]
fn agrees_with_the_gemm_crate() {
    let (m, n, k) = (123, 234, 345);
    let mut random = Random::new(9);
    let a: Vec<f32> = (0..m * k).map(|_| random.float() as f32).collect();
    let b: Vec<f32> = (0..k * n).map(|_| random.float() as f32).collect();
    let (mut c, mut want) = (vec![0f32; m * n], vec![0f32; m * n]);
    let pool = Pool::new(2);
    let mut ws = vec![0; gemm_workspace_bytes::<f32>(m, n, k, 2)];
    gemm(&pool, m, n, k, MatRef::row_major(&a, k), MatRef::row_major(&b, n), &mut c, n, false, &mut ws);
    let (n_, k_) = (n as isize, k as isize);
    let (c_, a_, b_) = (want.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    let flags = (false, false, false);
    let none = ::gemm::Parallelism::None;
    // SAFETY: the pointers and strides describe the three row-major matrices above.
    unsafe {
        let (conj_dst, conj_a, conj_b) = flags;
        ::gemm::gemm(m, n, k, c_, 1, n_, false, a_, 1, k_, b_, 1, n_, 0.0, 1.0, conj_dst, conj_a, conj_b, none);
    }
    for (x, y) in c.iter().zip(&want) {
        assert!((x - y).abs() < 1e-4);
    }
}
