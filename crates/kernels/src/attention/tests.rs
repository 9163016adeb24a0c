use half::{bf16, f16};
use proptest::prelude::*;

use super::*;
use crate::gemm::tests::Random;
use remat_types::Element;

/// How operands lie in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Store {
    Rows,
    /// Heads outermost, rows and numbers backwards, gaps between them.
    Odd,
    /// Thirds of one tensor.
    Joined,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    a: Attention,
    store: Store,
    /// Strides of a mask of `[n, heads, tq, tk]`, in which an axis is spread out or repeated; `None` for no mask.
    mask: Option<[bool; 4]>,
    /// As of the mask, of a bias.
    bias: Option<[bool; 4]>,
}

/// The permitted error of a result.
#[derive(Clone, Copy)]
struct Tolerance {
    /// Of the sums and exponentials: a share of [`Sum::size`].
    sums: f64,
    /// Of the last rounding: a share of the result.
    rounding: f64,
}

/// Roundings that a result may err by, each by the size of its sum: four times what 10,000 random cases showed, 6.2 in f64 and
/// 3.0 in f32. The bound for all orders of summation is a rounding a term, some hundred here, and would let a lost term pass.
const F64: Tolerance = Tolerance { sums: 25.0 * f64::EPSILON, rounding: 0.0 };
const F32: Tolerance = Tolerance { sums: 12.0 * f32::EPSILON as f64, rounding: 0.0 };
/// Half a unit in the last place above one: 2^-11 and 2^-8.
const F16: Tolerance = Tolerance { rounding: 4.883e-4, ..F32 };
const BF16: Tolerance = Tolerance { rounding: 3.907e-3, ..F32 };

const PLAIN: Attention = Attention {
    n: 1,
    heads: 1,
    heads_kv: 1,
    tq: 1,
    tk: 1,
    d: 1,
    dv: 1,
    span: Span::ALL,
    scale: 1.0,
    cap: 0.0,
    drops: None,
};

/// Elements and layout of `[n, t, heads, d]`.
fn stored(store: Store, [n, t, h, d]: [usize; 4], part: usize) -> (usize, [isize; 4], usize) {
    let [sn, st, sh, sd] = match store {
        Store::Rows => [t * h * d, h * d, d, 1].map(|s| s as isize),
        Store::Joined => [t * 3 * h * d, 3 * h * d, d, 1].map(|s| s as isize),
        Store::Odd => [t * 2 * d, 2 * d, n * t * 2 * d, 2].map(|s| s as isize),
    };
    let (st, sd) = if store == Store::Odd { (-st, -sd) } else { (st, sd) };
    let reach = |n: usize, s: isize| n.saturating_sub(1) as isize * s;
    let offset = match store {
        Store::Joined => part * h * d,
        _ => (-reach(t, st).min(0) - reach(d, sd).min(0)) as usize,
    };
    let last = offset as isize + reach(n, sn) + reach(t, st).max(0) + reach(h, sh) + reach(d, sd).max(0);
    (offset, [sn, st, sh, sd], last as usize + 1)
}

struct Operands<T> {
    data: [Vec<T>; 3],
    layouts: [(usize, [isize; 4]); 3],
    mask: Option<(Vec<u8>, [isize; 4])>,
    bias: Option<(Vec<T>, [isize; 4])>,
    dy: Vec<T>,
}

impl<T: FloatElement> Operands<T> {
    fn new(case: &Case) -> Operands<T> {
        let Attention { n, heads, heads_kv, tq, tk, d, dv, .. } = case.a;
        let mut random = Random::new((tq * 7919 + tk * 31 + d) as u64);
        let shapes = [[n, tq, heads, d], [n, tk, heads_kv, d], [n, tk, heads_kv, dv]];
        let mut layouts = [(0, [0; 4]); 3];
        let data = std::array::from_fn(|i| {
            let (offset, strides, len) = stored(case.store, shapes[i], i);
            layouts[i] = (offset, strides);
            (0..len).map(|_| T::from_f64(random.float())).collect()
        });
        let spread_out = |spread: [bool; 4]| {
            let mut step = 1;
            let mut strides = [0; 4];
            for (axis, extent) in [n, heads, tq, tk].into_iter().enumerate().rev() {
                strides[axis] = if spread[axis] { step as isize } else { 0 };
                step *= if spread[axis] { extent } else { 1 };
            }
            (step, strides)
        };
        let bias = case.bias.map(|spread| {
            let (step, strides) = spread_out(spread);
            ((0..step).map(|_| T::from_f64(random.float())).collect(), strides)
        });
        let mask = case.mask.map(|spread| {
            let (step, strides) = spread_out(spread);
            // one key in two is seen, and the first by all
            let row = if spread[3] { tk.max(1) } else { 1 };
            ((0..step).map(|i| u8::from(i % row == 0 || random.next().is_multiple_of(2))).collect(), strides)
        });
        let dy = (0..n * tq * heads * dv).map(|_| T::from_f64(random.float())).collect();
        Operands { data, layouts, mask, bias, dy }
    }

    fn inputs(&self) -> Inputs<'_, T> {
        let of = |i: usize| Strided { data: &self.data[i][..], offset: self.layouts[i].0, strides: self.layouts[i].1 };
        let mask = self.mask.as_ref().map(|(data, strides)| Strided { data: &data[..], offset: 0, strides: *strides });
        let bias = self.bias.as_ref().map(|(data, strides)| Strided { data: &data[..], offset: 0, strides: *strides });
        Inputs { q: of(0), k: of(1), v: of(2), mask, bias }
    }
}

fn at<T: FloatElement>(x: &Strided<'_, T>, i: [usize; 4]) -> f64 {
    let step: isize = i.iter().zip(x.strides).map(|(i, s)| *i as isize * s).sum();
    x.data[(x.offset as isize + step) as usize].to_f64()
}

struct Found<T: FloatElement> {
    y: Vec<T>,
    lse: Vec<T::Real>,
    /// `dq, dk, dv`.
    gradients: [Vec<T>; 3],
}

impl<T: FloatElement> Found<T> {
    fn bits(&self) -> Vec<u8> {
        let mut all = bytemuck::cast_slice::<_, u8>(&self.y).to_vec();
        all.extend_from_slice(bytemuck::cast_slice(&self.lse));
        self.gradients.iter().for_each(|g| all.extend_from_slice(bytemuck::cast_slice(g)));
        all
    }
}

/// Both passes, over memory full of NaN.
fn run<T: FloatElement<Real: GemmElement>>(case: &Case, x: &Operands<T>, threads: usize) -> Found<T> {
    let (a, pool) = (&case.a, Pool::new(threads));
    let Attention { n, heads, heads_kv, tq, tk, d, dv, .. } = *a;
    let nan = |len| vec![T::from_f64(f64::NAN); len];
    let mut found = Found {
        y: nan(n * tq * heads * dv),
        lse: vec![T::Real::from_f64(f64::NAN); n * heads * tq],
        gradients: [nan(n * tq * heads * d), nan(n * tk * heads_kv * d), nan(n * tk * heads_kv * dv)],
    };
    let mut workspace = vec![0xff; forward_workspace_bytes::<T>(a, threads)];
    forward(&pool, a, &x.inputs(), &mut found.y, &mut found.lse, &mut workspace);
    let dy = Strided { data: &x.dy[..], offset: 0, strides: [tq * heads * dv, heads * dv, dv, 1].map(|s| s as isize) };
    let mut workspace = vec![0xff; backward_workspace_bytes::<T>(a, threads)];
    if case.store == Store::Joined {
        let mut all = nan(3 * n * tq * heads * d);
        backward(&pool, a, &x.inputs(), &found.lse, &dy, Gradients::Joined(&mut all), &mut workspace);
        for (part, g) in found.gradients.iter_mut().enumerate() {
            let rows = all.chunks_exact((heads * d).max(1)).skip(part).step_by(3);
            g.iter_mut().zip(rows.flatten()).for_each(|(to, from)| *to = *from);
        }
    } else {
        let apart = Gradients::Apart(found.gradients.each_mut().map(|g| &mut g[..]));
        backward(&pool, a, &x.inputs(), &found.lse, &dy, apart, &mut workspace);
    }
    found
}

/// A sum, and what its roundings are a share of: the sum of the magnitudes of all that enters it, terms that cancel too. An
/// exponential passes on the error of its argument, so the magnitude of a score multiplies it.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    size: f64,
}

impl Sum {
    fn add(&mut self, value: f64, size: f64) {
        self.value += value;
        self.size += size;
    }

    fn of(terms: impl Iterator<Item = f64>) -> Sum {
        terms.fold(Sum::default(), |s, t| Sum { value: s.value + t, size: s.size + t.abs() })
    }
}

/// `y`, `lse` and gradients by the formulas, in f64.
fn reference<T: FloatElement>(a: &Attention, x: &Operands<T>) -> [Vec<Sum>; 5] {
    let Attention { n, heads, heads_kv, tq, tk, d, dv, .. } = *a;
    let (inputs, group) = (x.inputs(), heads / heads_kv);
    let index = |i: usize, t: usize, h: usize, len: usize, heads: usize| ((i * len) + t) * heads + h;
    let sizes =
        [n * tq * heads * dv, n * heads * tq, n * tq * heads * d, n * tk * heads_kv * d, n * tk * heads_kv * dv];
    let mut out = sizes.map(|len| vec![Sum::default(); len]);
    let [y, lse, dq, dk, dv_] = &mut out;
    for (i, h, q) in (0..n).flat_map(|i| (0..heads).flat_map(move |h| (0..tq).map(move |q| (i, h, q)))) {
        let hk = h / group;
        let sees = |key: usize| {
            let masked = inputs.mask.map(|m| {
                let step: isize = [i, h, q, key].iter().zip(m.strides).map(|(i, s)| *i as isize * s).sum();
                m.data[step as usize] == 0
            });
            let (own, key) = (q as isize + a.span.offset, key as isize);
            let within = a.span.left.is_none_or(|l| key >= own - l as isize)
                && a.span.right.is_none_or(|r| key <= own + r as isize);
            within && masked != Some(true)
        };
        let row = index(i, q, h, tq, heads);
        let dot = |key: usize| Sum::of((0..d).map(|c| at(&inputs.q, [i, q, h, c]) * at(&inputs.k, [i, key, hk, c])));
        let dots: Vec<Sum> = (0..tk).map(dot).collect();
        let capped = |s: f64| if a.cap == 0.0 { s } else { a.cap * (s / a.cap).tanh() };
        let bias = |key: usize| inputs.bias.map_or(0.0, |b| at(&b, [i, h, q, key]));
        let score = |key: usize| {
            if sees(key) { capped(a.scale * dots[key].value) + bias(key) } else { f64::NEG_INFINITY }
        };
        let scores: Vec<f64> = (0..tk).map(score).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let at_lse = &mut lse[(i * heads + h) * tq + q];
        if max == f64::NEG_INFINITY {
            at_lse.value = max;
            continue;
        }
        // of the scores; what an exponential of one errs by
        let reach = 1.0 + (0..tk).map(|k| (a.scale * dots[k].size).abs() + bias(k).abs()).fold(0.0, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
        *at_lse = Sum { value: max + sum.ln(), size: reach + sum.ln() };
        let p: Vec<f64> = scores.iter().map(|s| (s - max).exp() / sum).collect();
        let keep = |key: usize| match &a.drops {
            None => 1.0,
            Some(drops) => {
                let word = (((i * heads + h) * tk + key) * tq.div_ceil(64) * 64 + q) as u64;
                f64::from(u8::from(f64::from(drops.stream.word(word)) >= (drops.p * 4_294_967_296.0).floor()))
                    / (1.0 - drops.p)
            }
        };
        let dy = |c: usize| x.dy[row * dv + c].to_f64();
        let dp = |k: usize| Sum::of((0..dv).map(|c| keep(k) * dy(c) * at(&inputs.v, [i, k, hk, c])));
        let dp: Vec<Sum> = (0..tk).map(dp).collect();
        let mut mean = Sum::default();
        p.iter().zip(&dp).for_each(|(p, dp)| mean.add(p * dp.value, p * dp.size));
        for key in 0..tk {
            let slope = if a.cap == 0.0 { 1.0 } else { 1.0 - (a.scale * dots[key].value / a.cap).tanh().powi(2) };
            let (by, to) = (p[key] * a.scale, index(i, key, hk, tk, heads_kv));
            // the slope errs as `1 - t^2` does, not as a share of itself
            let (ds, size) = (by * (dp[key].value - mean.value) * slope, by.abs() * (dp[key].size + mean.size) * reach);
            for c in 0..dv {
                let (kept, v) = (keep(key) * p[key], at(&inputs.v, [i, key, hk, c]));
                y[row * dv + c].add(kept * v, kept * v.abs() * reach);
                dv_[to * dv + c].add(kept * dy(c), kept * dy(c).abs() * reach);
            }
            for c in 0..d {
                let (q, k) = (at(&inputs.q, [i, q, h, c]), at(&inputs.k, [i, key, hk, c]));
                dq[row * d + c].add(ds * k, size * k.abs());
                dk[to * d + c].add(ds * q, size * q.abs());
            }
        }
    }
    out
}

fn check<T: FloatElement<Real: GemmElement>>(case: Case, tolerance: Tolerance) {
    let x = Operands::<T>::new(&case);
    let found = run(&case, &x, 2);
    let want = reference(&case.a, &x);
    let real = |v: &[T]| v.iter().map(|v| v.to_f64()).collect::<Vec<f64>>();
    let [dq, dk, dv] = found.gradients.each_ref().map(|g| real(g));
    let lse = found.lse.iter().map(|v| v.to_f64()).collect();
    for (name, got, want) in [
        ("y", real(&found.y), &want[0]),
        ("lse", lse, &want[1]),
        ("dq", dq, &want[2]),
        ("dk", dk, &want[3]),
        ("dv", dv, &want[4]),
    ] {
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            let (got, Sum { value, size }) = (*got, *want);
            let rounding = tolerance.rounding * value.abs().max(1.0);
            let near = (got - value).abs() <= tolerance.sums * size + rounding || got == value;
            assert!(near, "{case:?}: {name}[{i}] is {got}, not {value}, a sum of size {size}");
        }
    }
}

fn any_span() -> impl Strategy<Value = Span> {
    let reach = || proptest::option::of(0..40usize);
    prop_oneof![
        Just(Span::ALL),
        Just(Span::CAUSAL),
        (-30..50isize, reach(), reach()).prop_map(|(offset, left, right)| Span { offset, left, right }),
    ]
}

fn any_case(max: usize, numbers: usize) -> impl Strategy<Value = Case> {
    let sizes = (1..3usize, 1..3usize, 1..4usize, 0..max, 0..max, 0..numbers, 0..numbers);
    let spread = || proptest::option::of(proptest::array::uniform4(any::<bool>()));
    let cap = prop_oneof![Just(0.0), 0.5..3.0];
    let drops = prop_oneof![
        2 => Just(None),
        1 => (0.0..0.9, any::<u64>()).prop_map(|(p, key)| Some(Drops { p, stream: Stream { key, stream: 3 } })),
    ];
    (sizes, any_span(), 0..3usize, spread(), spread(), -2.0..2.0, cap, drops).prop_map(
        |((n, heads_kv, group, tq, tk, d, dv), span, i, mask, bias, scale, cap, drops)| {
            let store = [Store::Rows, Store::Odd, Store::Joined][i];
            let joined = store == Store::Joined;
            let (tk, dv, group) = if joined { (tq, d, 1) } else { (tk, dv, group) };
            let heads = heads_kv * group;
            Case { a: Attention { n, heads, heads_kv, tq, tk, d, dv, span, scale, cap, drops }, store, mask, bias }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn f64_agrees_with_the_formulas(case in any_case(80, 20)) {
        check::<f64>(case, F64);
    }
    #[test]
    fn f32_agrees_with_the_formulas(case in any_case(80, 40)) {
        check::<f32>(case, F32);
    }
    #[test]
    fn half_floats_round_once(case in any_case(50, 10)) {
        check::<f16>(case, F16);
        check::<bf16>(case, BF16);
    }
}

#[test]
fn rows_of_several_blocks_of_keys() {
    for (tq, tk, causal) in [(3, 600, false), (600, 600, true), (40, 513, true)] {
        let span = if causal { Span::CAUSAL } else { Span::ALL };
        let a = Attention { heads: 2, heads_kv: 2, tq, tk, d: 8, dv: 24, span, scale: 0.5, ..PLAIN };
        check::<f32>(Case { a, store: Store::Odd, mask: None, bias: None }, F32);
        check::<f16>(Case { a, store: Store::Rows, mask: None, bias: None }, F16);
    }
}

#[test]
fn windows_start_in_any_block_of_keys() {
    for (offset, left, right) in [(0, 5, 0), (0, 300, 7), (-100, 40, 40), (250, 10, 300)] {
        let span = Span { offset, left: Some(left), right: Some(right) };
        let a = Attention { heads: 4, heads_kv: 2, tq: 700, tk: 620, d: 8, dv: 8, span, scale: 0.5, cap: 2.0, ..PLAIN };
        check::<f32>(Case { a, store: Store::Rows, mask: None, bias: None }, F32);
    }
}

#[test]
fn a_window_keeps_its_workspace() {
    let of = |t: usize| {
        let span = Span { offset: 0, left: Some(100), right: Some(0) };
        let a = Attention { heads: 8, heads_kv: 8, tq: t, tk: t, d: 1, dv: 1, span, scale: 1.0, ..PLAIN };
        forward_workspace_bytes::<f32>(&a, 1)
    };
    // what grows is the packed values, 16 numbers a key, and no tile
    assert!(of(8192) - of(4096) <= 4096 * 16 * 4, "{} {}", of(4096), of(8192));
}

#[test]
fn bits_depend_neither_on_threads_nor_on_what_was_in_memory() {
    let sizes = [(1, 1, 200, 300, false), (1, 2, 333, 333, true), (3, 3, 70, 70, true), (5, 4, 2, 300, false)];
    for (n, heads, tq, tk, causal) in sizes {
        let span = if causal { Span::CAUSAL } else { Span::ALL };
        let a = Attention { n, heads, heads_kv: 1, tq, tk, d: 20, dv: 20, span, scale: 0.3, ..PLAIN };
        let case = Case { a, store: Store::Rows, mask: None, bias: None };
        let x = Operands::<f32>::new(&case);
        let one = run(&case, &x, 1);
        for threads in [2, 3, 7] {
            assert_eq!(run(&case, &x, threads).bits(), one.bits(), "{case:?} on {threads} threads");
        }
    }
}

#[test]
fn what_causal_hides_from_a_tile_is_not_read() {
    let a = Attention { tq: 70, tk: 90, d: 4, dv: 4, span: Span::CAUSAL, scale: 0.5, ..PLAIN };
    let case = Case { a, store: Store::Rows, mask: None, bias: None };
    let mut x = Operands::<f32>::new(&case);
    let want = run(&case, &x, 1);
    for data in &mut x.data[1..] {
        data[70 * 4..].fill(f32::NAN);
    }
    let found = run(&case, &x, 1);
    assert_eq!(found.bits(), want.bits());
    assert!(found.gradients[1][70 * 4..].iter().all(|g| *g == 0.0), "nothing depends on those keys");
    // a number that goes wrong meets the queries that see it, and no tile before
    x.data[1][65 * 4] = f32::NAN;
    let found = run(&case, &x, 1);
    assert_eq!(found.y[..64 * 4], want.y[..64 * 4]);
    assert!(found.y[65 * 4..].iter().all(|y| y.is_nan()));
}

#[test]
fn a_query_that_sees_nothing_gives_zero_and_moves_nothing() {
    let a = Attention { tq: 3, tk: 5, d: 2, dv: 3, scale: 0.5, ..PLAIN };
    let case = Case { a, store: Store::Rows, mask: Some([false, false, true, true]), bias: None };
    let mut x = Operands::<f64>::new(&case);
    let (mask, _) = x.mask.as_mut().expect("there is one");
    mask.fill(1);
    mask[5..10].fill(0);
    let found = run(&case, &x, 1);
    assert!(found.y[3..6] == [0.0; 3] && found.lse[1] == f64::NEG_INFINITY);
    assert!(found.y.iter().all(|y| y.is_finite()));
    let [dq, dk, dv] = &found.gradients;
    assert!(dq[2..4] == [0.0; 2] && dq.iter().chain(dk).chain(dv).all(|g| g.is_finite()));
    // whatever is said about its output
    x.dy[3..6].fill(0.5);
    assert_eq!(run(&case, &x, 1).gradients, found.gradients);
    x.dy[3..6].fill(f64::INFINITY);
    let [dq, dk, _] = run(&case, &x, 1).gradients;
    assert_eq!([&dq, &dk], [&found.gradients[0], &found.gradients[1]]);
}

#[test]
fn infinite_and_missing_scores_are_those_of_a_softmax() {
    let a = Attention { tk: 2, ..PLAIN };
    let case = Case { a, store: Store::Rows, mask: None, bias: None };
    for (scores, want) in [
        ([1e4f32, -1e4], 3.0f32),
        ([f32::NEG_INFINITY, 0.0], 5.0),
        ([f32::INFINITY, 0.0], f32::NAN),
        ([f32::NAN, 0.0], f32::NAN),
        ([f32::NEG_INFINITY; 2], 0.0),
    ] {
        let mut x = Operands::<f32>::new(&case);
        x.data = [vec![1.0], scores.to_vec(), vec![3.0, 5.0]];
        let y = run(&case, &x, 1).y[0];
        assert!(y == want || (y.is_nan() && want.is_nan()), "{scores:?} give {y}");
    }
}

#[test]
fn a_workspace_is_a_small_part_of_the_scores() {
    for (t, threads) in [(256, 1), (1024, 2), (4096, 2)] {
        let sizes = Attention { n: 8, heads: 6, heads_kv: 6, tq: t, tk: t, d: 64, dv: 64, ..PLAIN };
        let a = Attention { span: Span::CAUSAL, scale: 0.125, ..sizes };
        let scores = 8 * 6 * t * t * 4;
        assert!(forward_workspace_bytes::<f32>(&a, threads) <= threads * (t * 512 + (33 << 10)), "{t}");
        assert!(backward_workspace_bytes::<f32>(&a, threads) <= threads * (t * 1280 + (81 << 10)), "{t}");
        assert!(20 * backward_workspace_bytes::<f32>(&a, threads) < scores, "{t}");
    }
}

#[test]
fn pairs_are_those_that_are_seen() {
    let window = |offset, left, right| Span { offset, left: Some(left), right: Some(right) };
    for (tq, tk, span, want) in [
        (3, 5, Span::ALL, 15),
        (4, 4, Span::CAUSAL, 10),
        (4, 2, Span::CAUSAL, 1 + 2 + 2 + 2),
        (2, 5, Span::CAUSAL, 3),
        (0, 3, Span::CAUSAL, 0),
        (4, 4, window(0, 1, 0), 1 + 2 + 2 + 2),
        (4, 4, window(2, 1, 1), 3 + 2 + 1),
        (1, 9, Span { offset: 8, ..Span::CAUSAL }, 9),
        (3, 3, window(-5, 0, 0), 0),
    ] {
        let a = Attention { n: 2, heads: 3, heads_kv: 3, tq, tk, span, ..PLAIN };
        let slow: usize = (0..tq).map(|i| a.end(i).saturating_sub(a.begin(i))).sum();
        assert_eq!((a.pairs(), slow), (6 * want, want), "{tq} {tk} {span:?}");
    }
}

#[test]
#[should_panic(expected = "k reaches")]
fn an_operand_out_of_bounds_is_refused() {
    let case = Case { a: Attention { tk: 3, ..PLAIN }, store: Store::Rows, mask: None, bias: None };
    let mut x = Operands::<f32>::new(&case);
    x.data[1].pop();
    run(&case, &x, 1);
}

#[test]
fn elements_of_a_head_that_lie_apart_are_not_prefetched() {
    let data = [0f32; 4096];
    let x = Strided { data: &data, offset: 7, strides: [1000, 300, -40, 1] };
    for (strides, lines) in [(x.strides, true), ([1000, 1, 40, 3], false)] {
        let mut rows = PrefetchRows::within(PREFETCH_BYTES);
        Strided { strides, ..x }.prefetch(&mut rows, [2, 1], 3, 48);
        assert_eq!(rows.most_lines() > 0, lines, "{strides:?}");
    }
}
