use super::winograd::{Taps, Winograd};
use super::*;
use crate::conv;
use crate::gemm::tests::Random;
use crate::pool::Pool;
use crate::window::{Axis, AxisKind};
use proptest::prelude::*;
use remat_types::Padding;

fn values(len: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.float() as f32).collect()
}

/// The result of the plain kernel, in f64.
fn plain(g: &Conv2d, x: &[f32], weight: &[f32]) -> Vec<f64> {
    let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
    let (pool, mut y) = (Pool::new(1), vec![0.0; g.y_len()]);
    let mut ws = vec![0; conv::forward_workspace_bytes::<f64>(g, 1)];
    conv::forward(&pool, g, &wide(x), &wide(weight), &mut y, &mut ws);
    y
}

/// A convolution by blocks, as it is used: packed, run, brought back. `held` adds what `y` holds.
fn by_blocks(b: &Blocked, threads: usize, data: &Data, clamp: Option<[f32; 2]>, held: bool) -> Vec<f32> {
    let (pool, g) = (Pool::new(threads), &b.conv);
    let mut packed = vec![f32::NAN; b.packed_len()];
    b.pack(&data.weight, &mut packed);
    let mut x = data.x.clone();
    if !b.planar {
        x = vec![f32::NAN; b.x_len()];
        to_blocked(&pool, [g.n, g.c, g.h * g.w], b.block, &data.x, &mut x);
        // lanes beyond the last channel are nobody's
        for image in x.chunks_exact_mut(b.x_image()) {
            let last = g.c / b.block * g.h * g.w * b.block;
            image[last..].chunks_exact_mut(b.block).for_each(|place| place[g.c % b.block..].fill(f32::NAN));
        }
    }
    let mut bias = data.bias.clone();
    bias.resize(b.bias_len(), 0.0);
    let mut add = vec![f32::NAN; b.y_len()];
    to_blocked(&pool, [g.n, g.k, g.oh * g.ow], b.block, &data.add, &mut add);
    let mut y = if held { add.clone() } else { vec![f32::NAN; b.y_len()] };
    let start = if held { Start::AddHeld } else { Start::Add(&add) };
    let mut ws = vec![0xff; b.workspace_bytes(threads)];
    b.run(&pool, &x, &packed, &bias, &start, clamp, &mut y, &mut ws);
    let mut out = vec![f32::NAN; g.y_len()];
    from_blocked(&pool, [g.n, g.k, g.oh * g.ow], b.block, &y, &mut out);
    out
}

struct Data {
    x: Vec<f32>,
    weight: Vec<f32>,
    bias: Vec<f32>,
    add: Vec<f32>,
}

impl Data {
    fn of(g: &Conv2d) -> Data {
        let [x, weight, bias, add] =
            [(g.x_len(), 1), (g.weight_len(), 2), (g.k, 3), (g.y_len(), 4)].map(|(n, s)| values(n, s));
        Data { x, weight, bias, add }
    }
}

/// Every way to make this convolution.
fn check(g: &Conv2d, block: usize, planar: bool) {
    check_planar(g, block);
    let Ok(b) = Blocked::new(*g, block, planar) else { return };
    check_one(&b);
    if let Ok(b) = b.winograd() {
        check_one(&b);
    }
}

/// The permitted error of a sum of `terms` products of numbers up to one: three times the largest error seen, and some
/// roundings of the bias and the summand.
fn error_bound(terms: usize) -> f64 {
    3e-7 * terms as f64 + 1e-6
}

/// Against the plain convolution, and equal bits for pools of 1 to 3 threads and both ways to add.
fn check_one(b: &Blocked) {
    let g = &b.conv;
    let data = Data::of(g);
    let want = plain(g, &data.x, &data.weight);
    let clamp = if g.h.is_multiple_of(2) { Some([0.0, 1.5]) } else { None };
    let got = by_blocks(b, 1, &data, clamp, false);
    let bound = error_bound(g.c / g.groups * g.r * g.s);
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        let want = want + f64::from(data.bias[i / (g.oh * g.ow) % g.k]) + f64::from(data.add[i]);
        let want = clamp.map_or(want, |[low, high]| want.clamp(f64::from(low), f64::from(high)));
        assert!((f64::from(*got) - want).abs() <= bound, "y[{i}] of {b:?} is {got}, not {want}");
    }
    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<u32>>();
    for (threads, held) in [(2, false), (3, true)] {
        assert_eq!(bits(&by_blocks(b, threads, &data, clamp, held)), bits(&got), "{threads} threads: {b:?}");
    }
    let other = Blocked { wide: !b.wide, ..*b };
    assert_eq!(bits(&by_blocks(&other, 2, &data, clamp, false)), bits(&got), "panels of another width: {other:?}");
}

/// Plain images by Winograd's algorithm, forward and back, whether it pays or not.
fn check_planar(g: &Conv2d, block: usize) {
    let Some(w) = Winograd::new(*g, block, true) else { return };
    let data = Data::of(g);
    // back: the weight of a convolution from `k` to `c` channels, whose taps are the other way round
    let back: Vec<f32> = (0..data.weight.len())
        .map(|i| {
            let (from, to, tap) = (i / (g.k * 9), i / 9 % g.k, i % 9);
            data.weight[(to * g.c + from) * 9 + 8 - tap]
        })
        .collect();
    let want = plain(g, &data.x, &data.weight);
    let run = |threads: usize, taps: Taps, weight: &[f32]| {
        let pool = Pool::new(threads);
        let mut packed = vec![f32::NAN; w.packed_len()];
        w.pack(&pool, taps, weight, &mut packed);
        let (mut y, mut ws) = (vec![f32::NAN; g.y_len()], vec![0xff; w.workspace_bytes(threads)]);
        w.correlate(&pool, &data.x, &packed, &mut y, &mut ws);
        y
    };
    let y = run(1, Taps::Forward, &data.weight);
    let bound = error_bound(g.c * 9);
    for (i, (y, want)) in y.iter().zip(&want).enumerate() {
        assert!((f64::from(*y) - want).abs() <= bound, "y[{i}] of {w:?} is {y}, not {want}");
    }
    for threads in [2, 3] {
        assert!(y == run(threads, Taps::Forward, &data.weight), "{threads} threads: {w:?}");
        assert!(y == run(threads, Taps::Back, &back), "{threads} threads, back: {w:?}");
    }
}

fn any_conv() -> impl Strategy<Value = Option<Conv2d>> {
    let sizes = (1usize..4, 1usize..40, 1usize..16, 1usize..20, 1usize..40, 1usize..5, 1usize..6);
    let steps = (1usize..4, 1usize..3, 1usize..3, 1usize..3);
    // both sides alike as often as not
    let pad = ([0usize..4, 0usize..3], [0usize..4, 0usize..3], any::<bool>())
        .prop_map(|(begin, end, alike)| Padding { begin, end: if alike { begin } else { end } });
    (sizes, steps, pad, 0usize..4).prop_map(|((n, c, h, w, k, r, s), (sh, sw, dh, dw), pad, form)| {
        // one group mostly, then one a channel, then groups of whole blocks
        let (c, k, groups) = match form {
            0 => (c, c, c),
            1 => (32 * (c % 2 + 1), 16 * (k % 3 + 1) * 2, 2),
            _ => (c, k, 1),
        };
        Conv2d::new([n, c, h, w], [k, c / groups, r, s], [sh, sw], pad, [dh, dw], groups).ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_geometries_agree_with_the_plain_convolution(g in any_conv(), wide in any::<bool>(), planar in any::<bool>()) {
        if let Some(g) = g {
            check(&g, if wide { 16 } else { 8 }, planar && g.groups == 1);
        }
    }
}

#[test]
fn geometries_of_networks_agree_with_the_plain_convolution() {
    // n, c, h, w, k, kernel, stride, padding, groups
    let cases = [
        [1, 3, 40, 40, 64, 7, 2, 3, 1],
        [2, 64, 28, 28, 64, 3, 1, 1, 1],
        [1, 256, 14, 14, 64, 1, 1, 0, 1],
        [3, 256, 7, 7, 96, 3, 1, 1, 1],
        [9, 300, 13, 18, 72, 3, 1, 2, 1],
        [2, 17, 6, 1, 9, 3, 1, 1, 1],
        [1, 8, 30, 30, 24, 3, 1, 0, 1],
        [5, 128, 7, 7, 40, 1, 1, 0, 1],
        [2, 64, 14, 14, 128, 1, 2, 0, 1],
        [2, 128, 14, 14, 128, 3, 2, 1, 1],
        [1, 96, 57, 56, 96, 3, 2, 1, 96],
        [2, 24, 7, 7, 24, 3, 1, 1, 24],
        [1, 20, 15, 30, 20, 5, 1, 2, 20],
        [1, 20, 15, 31, 20, 5, 2, 2, 20],
    ];
    for [n, c, h, w, k, r, s, p, g] in cases {
        let geom = Conv2d::new([n, c, h, w], [k, c / g, r, r], [s; 2], [p; 2], [1; 2], g).expect("the sizes fit");
        let pad = [[p, p + 1], [p + 2, p]];
        let uneven = Conv2d::new([n, c, h, w], [k, c / g, r, r], [s; 2], pad, [1; 2], g).expect("the sizes fit");
        for geom in [geom, uneven] {
            check(&geom, 8, c == 3);
            check(&geom, 16, c == 3);
        }
    }
}

#[test]
fn winograd_agrees_on_images_of_any_edge() {
    // images, channels, height, width, outputs, padding
    let cases =
        [[1, 9, 6, 6, 8, 0], [2, 17, 7, 10, 20, 1], [1, 8, 3, 5, 9, 2], [1, 70, 9, 4, 8, 1], [1, 8, 14, 13, 8, 1]];
    for [n, c, h, w, k, p] in cases {
        let pads = [[p; 2].into(), Padding::from([[p + 1, p], [p, p + 2]])];
        for (pad, block) in pads.into_iter().flat_map(|pad| [(pad, 8), (pad, 16)]) {
            let geom = Conv2d::new([n, c, h, w], [k, c, 3, 3], [1; 2], pad, [1; 2], 1).expect("the sizes fit");
            check_planar(&geom, block);
            check_one(&Blocked::new(geom, block, false).and_then(Blocked::winograd).expect("3x3 taps"));
        }
    }
}

/// Root of the mean square of errors, for weights and images as networks have them.
fn error(b: &Blocked) -> f64 {
    let mut data = Data::of(&b.conv);
    data.x.iter_mut().for_each(|x| *x = x.abs());
    data.bias.fill(0.0);
    data.add.fill(0.0);
    let want = plain(&b.conv, &data.x, &data.weight);
    let got = by_blocks(b, 1, &data, None, false);
    let squares = got.iter().zip(&want).map(|(g, w)| (f64::from(*g) - w).powi(2)).sum::<f64>();
    (squares / want.len() as f64).sqrt()
}

#[test]
fn winograd_errs_no_more_than_plain_sums() {
    for [c, k, size] in [[64, 32, 24], [256, 16, 14]] {
        let geom = Conv2d::new([1, c, size, size], [k, c, 3, 3], [1; 2], [1; 2], [1; 2], 1).expect("the sizes fit");
        let sums = Blocked::new(geom, 8, false).expect("blocks of eight");
        let (ours, theirs) = (error(&sums.winograd().expect("3x3 taps")), error(&sums));
        assert!(ours < theirs, "{c} channels: {ours:e}, and plain sums {theirs:e}");
        println!("{c} channels: {ours:e}, and plain sums {theirs:e}");
    }
}

#[test]
fn winograd_is_chosen_for_wide_layers_of_large_images() {
    let pays = |c: usize, k: usize, size: usize, taps: usize, stride: usize| {
        let geom = Conv2d::new([1, c, size, size], [k, c, taps, taps], [stride; 2], [1; 2], [1; 2], 1);
        let b = Blocked::new(geom.expect("the sizes fit"), 8, false).expect("blocks of eight");
        assert!(!b.winograd_pays() || b.winograd().is_ok());
        b.winograd_pays()
    };
    assert!(pays(64, 64, 56, 3, 1) && pays(256, 256, 14, 3, 1) && pays(32, 24, 30, 3, 1));
    assert!(!pays(512, 512, 3, 3, 1), "the weights cost more than the sums");
    assert!(!pays(4, 64, 56, 3, 1) && !pays(64, 64, 56, 5, 1) && !pays(64, 64, 56, 3, 2));
}

#[test]
fn products_agree_with_the_plain_product() {
    let large = (3000, 70, 20);
    for (m, k, n) in
        [(1, 1, 8), (5, 300, 24), (13, 7, 41), (128, 96, 64), (50, 900, 48), (3, 257, 10), (4, 0, 9), large]
    {
        for block in [8, 16] {
            let l = Linear::new(m, k, n, block).expect("blocks with kernels");
            let [x, w, bias, add] = [(m * k, 1), (k * n, 2), (n, 3), (m * n, 4)].map(|(len, seed)| values(len, seed));
            let mut packed = vec![f32::NAN; l.packed_len()];
            l.pack(&w, &mut packed);
            let run = |threads: usize, held: bool| {
                let mut y = if held { add.clone() } else { vec![f32::NAN; m * n] };
                let start = if held { Start::AddHeld } else { Start::Add(&add) };
                let mut ws = vec![0xff; l.workspace_bytes(threads)];
                l.run(&Pool::new(threads), &x, &packed, &bias, &start, Some([-1.0, 2.0]), &mut y, &mut ws);
                y
            };
            let y = run(1, false);
            for (at, y) in y.iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let sum: f64 = (0..k).map(|p| f64::from(x[i * k + p]) * f64::from(w[p * n + j])).sum();
                let want = (sum + f64::from(bias[j]) + f64::from(add[at])).clamp(-1.0, 2.0);
                assert!(
                    (f64::from(*y) - want).abs() < 1e-6 * k as f64 + 1e-6,
                    "y[{i}, {j}] of {l:?} is {y}, not {want}"
                );
            }
            assert_eq!(y, run(2, true));
            assert_eq!(y, run(3, false));
        }
    }
}

#[test]
fn pooling_by_blocks_gives_the_bits_of_plain_pooling() {
    let pool = Pool::new(2);
    let sliding = |size, kernel, stride, pad| {
        let out = (size + 2 * pad - kernel) / stride + 1;
        Axis { size, out, kind: AxisKind::Sliding { kernel, stride, before: pad, after: pad } }
    };
    for (n, c, h, w) in [
        (2, 19, sliding(14, 3, 2, 1), sliding(15, 3, 2, 1)),
        (1, 8, sliding(6, 2, 2, 0), sliding(4, 2, 2, 0)),
        (1, 3, Axis { size: 7, out: 3, kind: AxisKind::Adaptive }, sliding(9, 1, 1, 0)),
    ] {
        for block in [8, 16] {
            let (size, out) = (h.size * w.size, h.out * w.out);
            let mut x = values(n * c * size, 7);
            (x[3], x[40]) = (f32::NAN, f32::INFINITY);
            let mut want = vec![0.0; n * c * out];
            crate::window::max_pool(&pool, h, w, &x, &mut want);
            let planes = n * c.div_ceil(block);
            let (mut xb, mut yb) = (vec![f32::NAN; planes * size * block], vec![f32::NAN; planes * out * block]);
            to_blocked(&pool, [n, c, size], block, &x, &mut xb);
            max_pool(&pool, h, w, block, &xb, &mut yb);
            let mut got = vec![0.0; n * c * out];
            from_blocked(&pool, [n, c, out], block, &yb, &mut got);
            assert!(got.iter().zip(&want).all(|(a, b)| a == b || a.is_nan() && b.is_nan()));
        }
    }
}

#[test]
fn what_no_kernel_takes_is_refused() {
    let g =
        |c, k, groups| Conv2d::new([1, c, 4, 4], [k, c / groups, 1, 1], [1; 2], [0; 2], [1; 2], groups).expect("fits");
    assert!(Blocked::new(g(8, 8, 1), 4, false).is_err(), "a block without kernels");
    assert!(Blocked::new(g(8, 16, 8), 8, false).is_err(), "two outputs a channel");
    assert!(Blocked::new(g(24, 24, 2), 8, false).is_err(), "groups of parts of blocks");
    assert!(Blocked::new(g(16, 16, 16), 8, true).is_err(), "a plain input of groups");
    assert!(Linear::new(4, 4, 12, 4).is_err(), "a block without kernels");
    assert!(Linear::new(1 << 20, 4, 1 << 20, 8).is_err(), "too many results");
    assert!(
        Linear::new(0, usize::MAX, 4, 8).is_err() && Linear::new(0, 0, usize::MAX, 8).is_err(),
        "too many to count"
    );
}

#[test]
fn planes_larger_than_a_part_are_reordered_whole() {
    // more places than a thread takes at once
    let (pool, [n, c, places, block]) = (Pool::new(2), [1, 3, (1 << 14) + 5, 2usize]);
    let x: Vec<f32> = (0..n * c * places).map(|i| i as f32).collect();
    let (mut blocked, mut back) = (vec![0.0; n * c.div_ceil(block) * places * block], vec![0.0; x.len()]);
    to_blocked(&pool, [n, c, places], block, &x, &mut blocked);
    from_blocked(&pool, [n, c, places], block, &blocked, &mut back);
    assert_eq!(back, x);
}
