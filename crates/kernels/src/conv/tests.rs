use super::*;
use crate::gemm::tests::Random;
use proptest::prelude::*;
use remat_types::{ErrorKind, Padding, Result};

/// `[n, groups, c per group, k per group, h, w, r, s]`, strides, pads, dilations.
#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: [usize; 8],
    stride: [usize; 2],
    pad: Padding,
    dilation: [usize; 2],
}

impl Case {
    fn geom(&self) -> Result<Conv2d> {
        let [n, g, c, k, h, w, r, s] = self.sizes;
        Conv2d::new([n, g * c, h, w], [g * k, c, r, s], self.stride, self.pad, self.dilation, g)
    }
}

const PASSES: [Pass; 3] = [Pass::Forward, Pass::InputGrad, Pass::WeightGrad];

fn plain(sizes: [usize; 8], stride: usize, pad: usize) -> Case {
    Case { sizes, stride: [stride; 2], pad: pad.into(), dilation: [1, 1] }
}

/// The same with other padding on each side: more below and to the left.
fn uneven(case: Case) -> Case {
    let [[rows, _], [columns, _]] = [case.pad.axis(0), case.pad.axis(1)];
    Case { pad: [[rows, rows + 1], [columns + 1, columns]].into(), ..case }
}

fn values<T>(len: usize, seed: u64, make: impl Fn(f64) -> T) -> Vec<T> {
    let mut random = Random::new(seed);
    (0..len).map(|_| make(random.float())).collect()
}

/// Each element of `y`, `dx` and `dw`, as [`compare`] takes it.
type Reference = [Vec<(f64, f64)>; 3];

/// `y`, `dx`, `dw` in f64 by the definition, each with the sum of magnitudes.
fn reference(geom: &Conv2d, x: &[f64], weight: &[f64], dy: &[f64]) -> Reference {
    let Conv2d { n, c, h, w, k, r, s, stride, pad, dilation, groups, oh, ow } = *geom;
    let (gc, gk) = (c / groups, k / groups);
    let mut y = vec![(0.0, 0.0); geom.y_len()];
    let mut dx = vec![(0.0, 0.0); geom.x_len()];
    let mut dw = vec![(0.0, 0.0); geom.weight_len()];
    let add = |slot: &mut (f64, f64), v: f64| *slot = (slot.0 + v, slot.1 + v.abs());
    for (y_at, y) in y.iter_mut().enumerate() {
        let (image, m, i, j) = (y_at / (k * oh * ow), y_at / (oh * ow) % k, y_at / ow % oh, y_at % ow);
        let first_of_group = image * c + m / gk * gc;
        // loops, not divisions: this takes most of the time of these tests
        let taps = (0..gc).flat_map(|ch| (0..r).flat_map(move |t| (0..s).map(move |u| (ch, t, u))));
        for (of_m, (ch, t, u)) in taps.enumerate() {
            let row = (i * stride[0] + t * dilation[0]).wrapping_sub(pad.begin[0]);
            let col = (j * stride[1] + u * dilation[1]).wrapping_sub(pad.begin[1]);
            if row >= h || col >= w {
                continue;
            }
            let x_at = ((first_of_group + ch) * h + row) * w + col;
            let w_at = m * gc * r * s + of_m;
            add(y, x[x_at] * weight[w_at]);
            add(&mut dx[x_at], dy[y_at] * weight[w_at]);
            add(&mut dw[w_at], dy[y_at] * x[x_at]);
        }
    }
    assert_eq!(n * c * h * w, x.len());
    [y, dx, dw]
}

fn compare<T: Copy>(name: &str, geom: &Conv2d, got: &[T], want: &[(f64, f64)], value: impl Fn(T) -> f64, tol: f64) {
    for (i, (&got, &(sum, size))) in got.iter().zip(want).enumerate() {
        let got = value(got);
        assert!((got - sum).abs() <= tol * (size + 1e-30), "{name}[{i}] of {geom:?}: {got} for {sum}");
    }
}

/// `x`, `weight` and `dy`, and the results of [`reference`] for them.
fn operands<T: ConvElement>(
    geom: &Conv2d,
    make: impl Fn(f64) -> T + Copy,
    value: impl Fn(T) -> f64 + Copy,
) -> ([Vec<T>; 3], Reference) {
    let x = [(geom.x_len(), 1), (geom.weight_len(), 2), (geom.y_len(), 3)].map(|(len, seed)| values(len, seed, make));
    let [a, b, c] = [0, 1, 2].map(|i| x[i].iter().map(|&v| value(v)).collect::<Vec<f64>>());
    let want = reference(geom, &a, &b, &c);
    (x, want)
}

/// The kernels of every instruction set that this processor has, and of the scalar twin of the widest.
fn f32_tables() -> Vec<ConvKernels<f32>> {
    let twin = kernel::f32_kernels_as_wide_as_avx512();
    Isa::all().into_iter().map(kernel::f32_kernels).chain([twin]).collect()
}

/// All three results on a pool of `threads`, checked against the reference.
fn check<T: ConvElement>(
    geom: &Conv2d,
    threads: usize,
    make: impl Fn(f64) -> T + Copy,
    value: impl Fn(T) -> f64 + Copy,
    tol: f64,
) -> [Vec<T>; 3] {
    let ([x, weight, dy], want) = operands(geom, make, value);
    let got = all_three(geom, threads, &x, &weight, &dy);
    for (name, (got, want)) in ["y", "dx", "dw"].into_iter().zip(got.iter().zip(&want)) {
        compare(name, geom, got, want, value, tol);
    }
    got
}

fn all_three<T: ConvElement>(geom: &Conv2d, threads: usize, x: &[T], weight: &[T], dy: &[T]) -> [Vec<T>; 3] {
    let pool = Pool::new(threads);
    // Bytes of ones are NaN: whatever a kernel reads but did not write shows.
    let junk = bytemuck::pod_read_unaligned::<T>(&[0xff; 8][..size_of::<T>()]);
    let mut out = [geom.y_len(), geom.x_len(), geom.weight_len()].map(|len| vec![junk; len]);
    let mut ws = vec![0xff; forward_workspace_bytes::<T>(geom, threads)];
    forward(&pool, geom, x, weight, &mut out[0], &mut ws);
    let mut ws = vec![0xff; input_grad_workspace_bytes::<T>(geom, threads)];
    input_grad(&pool, geom, dy, weight, &mut out[1], &mut ws);
    let mut ws = vec![0xff; weight_grad_workspace_bytes::<T>(geom, threads)];
    weight_grad(&pool, geom, x, dy, &mut out[2], &mut ws);
    out
}

fn any_case() -> impl Strategy<Value = Case> {
    let sizes = (1usize..3, 1usize..4, 1usize..6, 1usize..10, 1usize..12, 1usize..20, 1usize..5, 1usize..5);
    let small = || [1usize..4, 1usize..4];
    // both sides alike as often as not
    let pad = ([0usize..4, 0usize..6], [0usize..5, 0usize..4], any::<bool>())
        .prop_map(|(begin, end, alike)| Padding { begin, end: if alike { begin } else { end } });
    (sizes, small(), pad, small()).prop_map(|((n, g, c, k, h, w, r, s), stride, pad, dilation)| {
        let sizes = [n, g, c, k, h, w, r, s];
        Case { sizes, stride, pad, dilation }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_geometries_agree_with_the_definition(case in any_case()) {
        if let Ok(geom) = case.geom() {
            check::<f32>(&geom, 1, |x| x as f32, f64::from, 2e-6);
            check::<f64>(&geom, 2, |x| x, |x| x, 1e-14);
        }
    }
}

#[test]
fn named_geometries_agree_with_the_definition() {
    let cases = [
        plain([3, 1, 16, 16, 28, 28, 3, 3], 1, 1),
        plain([3, 1, 16, 33, 15, 13, 3, 3], 2, 1),
        plain([2, 1, 1, 8, 28, 28, 5, 5], 1, 0),
        plain([2, 1, 20, 9, 14, 14, 1, 1], 1, 0),
        plain([2, 1, 20, 9, 14, 14, 1, 1], 2, 0),
        plain([2, 24, 1, 1, 13, 17, 3, 3], 1, 1),
        plain([2, 24, 1, 2, 13, 17, 3, 3], 2, 1),
        // the kernel is larger than the image
        plain([2, 1, 3, 4, 2, 3, 5, 5], 1, 2),
        // the stride is larger than the kernel: some inputs are read by no output
        plain([2, 1, 3, 4, 11, 11, 2, 2], 3, 0),
        // more padding than kernel: the gradient crops
        plain([1, 1, 2, 3, 5, 5, 2, 2], 1, 3),
        plain([1, 1, 1, 1, 1, 1, 1, 1], 1, 7),
        Case { dilation: [2, 3], ..plain([1, 2, 3, 4, 15, 16, 3, 3], 2, 3) },
        // several bands and several blocks of channels
        plain([1, 1, 70, 8, 60, 60, 3, 3], 1, 1),
        // images that share tiles of the weight gradient: a group for each partial sum, and two groups in one sum
        plain([41, 1, 20, 40, 4, 4, 3, 3], 1, 1),
        plain([33, 1, 110, 288, 3, 3, 3, 3], 1, 1),
        plain([41, 1, 20, 40, 5, 5, 1, 1], 2, 0),
        plain([9, 1, 200, 300, 7, 7, 1, 1], 1, 0),
        // weight gradients that transpose x, of several panels of channels and of groups
        plain([3, 1, 50, 150, 20, 20, 1, 1], 1, 0),
        plain([2, 3, 5, 40, 9, 7, 1, 1], 1, 0),
        // and under a stride, of several bands
        plain([2, 1, 50, 150, 41, 37, 1, 1], 2, 0),
        plain([2, 3, 5, 40, 9, 7, 1, 1], 3, 0),
    ];
    for case in cases {
        let geom = case.geom().expect("the sizes fit");
        check::<f32>(&geom, 2, |x| x as f32, f64::from, 2e-6);
        check::<f64>(&geom, 1, |x| x, |x| x, 1e-14);
    }
}

/// Batches of small images, which go with the batch innermost, with vectors of up to sixteen lanes.
fn small_images() -> [Case; 10] {
    [
        // images of two panels, or of one and a half; channels that fill no panel
        plain([40, 1, 33, 40, 4, 5, 3, 3], 2, 1),
        plain([24, 1, 16, 50, 2, 3, 3, 3], 1, 1),
        // a single tap: weights outweigh the images
        plain([16, 1, 200, 120, 2, 1, 1, 1], 1, 0),
        plain([16, 1, 190, 150, 3, 3, 1, 1], 2, 0),
        // inputs that no output reads, and taps that read beside the image alone
        plain([16, 1, 16, 17, 8, 7, 2, 2], 3, 0),
        plain([33, 1, 20, 16, 2, 1, 5, 5], 1, 2),
        Case { dilation: [2, 1], ..plain([16, 1, 18, 21, 6, 5, 3, 2], 1, 1) },
        // several blocks of channels, whose weights are packed for each panel of images
        plain([40, 1, 700, 20, 2, 2, 3, 3], 1, 1),
        // few images, whose places make the steps of the gradient of the weight
        plain([3, 1, 17, 35, 9, 11, 3, 3], 1, 1),
        plain([2, 1, 35, 16, 3, 14, 2, 3], 1, 1),
    ]
}

#[test]
fn batches_of_small_images_agree_with_the_definition() {
    let kernels = f32::conv_kernels().expect("f32 has kernels");
    for case in small_images() {
        let geom = case.geom().expect("the sizes fit");
        assert!(
            PASSES.into_iter().any(|pass| choose::kernel_of_sums(&geom, pass, &kernels) == Kernel::BatchInnermostSmall),
            "{geom:?}"
        );
        let one = check::<f32>(&geom, 1, |x| x as f32, f64::from, 2e-6);
        assert_eq!(one, check::<f32>(&geom, 3, |x| x as f32, f64::from, 2e-6), "{geom:?}");
        check::<f64>(&geom, 2, |x| x, |x| x, 1e-14);
    }
}

/// Few images under a stride, and whether the forward pass and the input gradient of each have these innermost.
fn strided_batches() -> [(Case, [bool; 2]); 7] {
    [
        // one grid; channels that fill no panel, two blocks of them, and places that fill no panel
        (plain([8, 1, 100, 300, 7, 17, 3, 3], 2, 1), [true, false]),
        (plain([16, 1, 300, 1200, 5, 13, 1, 1], 2, 0), [true, false]),
        // phases of one size, which share what they read, and of four sizes
        (plain([8, 1, 64, 130, 8, 18, 3, 3], 2, 1), [false, true]),
        (plain([8, 1, 260, 256, 9, 17, 3, 3], 2, 1), [true, true]),
        // phases without taps, and groups of panels of weights
        (plain([8, 1, 520, 1024, 7, 16, 1, 1], 2, 0), [false, true]),
        // taps that read beside the image alone, and a stride for each axis of the kernel
        (Case { pad: [4, 0].into(), ..plain([8, 1, 120, 150, 8, 18, 3, 2], 2, 0) }, [false, true]),
        (Case { dilation: [3, 1], ..plain([8, 1, 180, 272, 10, 14, 2, 3], 2, 1) }, [true, true]),
    ]
}

#[test]
fn few_images_under_a_stride_agree_with_the_definition() {
    let kernels = kernel::f32_kernels_as_wide_as_avx512();
    for (case, ways) in strided_batches() {
        let geom = case.geom().expect("the sizes fit");
        let one = check::<f32>(&geom, 1, |x| x as f32, f64::from, 2e-6);
        assert_eq!(one, check::<f32>(&geom, 3, |x| x as f32, f64::from, 2e-6), "{geom:?}");
        check::<f64>(&geom, 2, |x| x, |x| x, 1e-14);
        let (x, weight) = (values(geom.x_len(), 1, |x| x as f32), values(geom.weight_len(), 2, |x| x as f32));
        let dy = values(geom.y_len(), 3, |x| x as f32);
        for (pass, way, src, want) in [(Pass::Forward, ways[0], &x, &one[0]), (Pass::InputGrad, ways[1], &dy, &one[1])]
        {
            let kernel = choose::kernel(&geom, pass, &kernels);
            assert_eq!(kernel == Kernel::BatchInnermostStrided, way, "{pass:?} of {geom:?}: {kernel:?}");
            if !way {
                continue;
            }
            let plan = batch_innermost_strided::Plan::new(&geom, pass, &kernels, 2);
            let (mut got, mut ws) = (vec![f32::NAN; want.len()], vec![0xff; plan.workspace_bytes(2)]);
            plan.run(&Pool::new(2), src, &weight, &mut got, &mut ws);
            // both are sums of at most 2700 products below 1
            let sums: Vec<_> = want.iter().map(|&y| (f64::from(y), 1e3)).collect();
            compare("result", &geom, &got, &sums, f64::from, 2e-7);
        }
    }
}

#[test]
fn padding_that_differs_from_side_to_side_agrees_with_the_definition() {
    let cases = [
        // a copy of the whole image and of a part, a stride, a dilation, groups, and a single tap
        plain([2, 1, 5, 7, 15, 13, 3, 3], 1, 1),
        plain([1, 1, 70, 8, 60, 60, 3, 3], 1, 1),
        plain([3, 1, 16, 33, 15, 13, 3, 3], 2, 1),
        Case { dilation: [2, 3], ..plain([1, 2, 3, 4, 15, 16, 3, 3], 2, 3) },
        plain([2, 1, 20, 9, 14, 14, 1, 1], 1, 0),
        plain([2, 1, 50, 150, 21, 17, 1, 1], 2, 0),
        // single channels, along rows and in lanes
        plain([3, 5, 1, 1, 61, 70, 3, 3], 1, 1),
        plain([2, 40, 1, 1, 14, 14, 3, 3], 2, 1),
        // by Winograd's algorithm, both ways
        plain([2, 1, 64, 96, 28, 27, 3, 3], 1, 1),
    ];
    let all = cases.into_iter().chain(small_images()).chain(strided_batches().map(|(case, _)| case)).map(uneven);
    let (kernels, wide) = (f32::conv_kernels().expect("f32 has kernels"), kernel::f32_kernels_as_wide_as_avx512());
    let mut taken = Vec::new();
    for case in all {
        let geom = case.geom().expect("the sizes fit");
        let is_winograd = PASSES.into_iter().any(|pass| choose::kernel(&geom, pass, &kernels) == Kernel::Winograd);
        // the bound of Winograd's algorithm is that of its own test
        let tol = if is_winograd { 5e-6 } else { 2e-6 };
        let one = check::<f32>(&geom, 1, |x| x as f32, f64::from, tol);
        assert_eq!(one, check::<f32>(&geom, 3, |x| x as f32, f64::from, tol), "{geom:?}");
        taken.extend(PASSES.map(|pass| (pass, choose::kernel(&geom, pass, &wide))));
    }
    for pass in PASSES {
        let (any, not_of_weights) = (
            [Kernel::BatchInnermostSmall, Kernel::DepthwiseLanes, Kernel::Depthwise],
            [Kernel::Winograd, Kernel::BatchInnermostStrided, Kernel::Correlate],
        );
        let of_weights = [Kernel::OuterProducts];
        let rest: &[Kernel] = if pass == Pass::WeightGrad { &of_weights } else { &not_of_weights };
        for kernel in any.iter().chain(rest) {
            assert!(taken.contains(&(pass, *kernel)), "no size goes by {kernel:?} in {pass:?}");
        }
    }
    let geom = uneven(plain([2, 2, 3, 4, 9, 8, 3, 3], 2, 1)).geom().expect("the sizes fit");
    check::<half::f16>(&geom, 2, half::f16::from_f64, half::f16::to_f64, 6e-4);
}

#[test]
fn weights_larger_than_a_pass() {
    // 700 * 9 * 170 floats are 4.3 MB: several passes of packed weights and of partial sums
    let geom = plain([2, 1, 700, 170, 3, 3, 3, 3], 1, 1).geom().expect("the sizes fit");
    check::<f32>(&geom, 2, |x| x as f32, f64::from, 2e-6);
}

#[test]
fn deep_sums_of_outputs_a_step_apart() {
    // under a stride 400 channels of four taps are blocks whose sums the input's gradient adds up: of 300 channels within
    // a pass of packed weights, of 700 in a pass each
    for channels in [300, 700] {
        let geom = plain([2, 1, channels, 400, 4, 5, 3, 3], 2, 1).geom().expect("the sizes fit");
        let one = check::<f32>(&geom, 1, |x| x as f32, f64::from, 2e-6);
        assert_eq!(one, check::<f32>(&geom, 3, |x| x as f32, f64::from, 2e-6));
    }
}

#[test]
fn half_floats_sum_in_f32() {
    let geom = plain([2, 2, 3, 4, 9, 8, 3, 3], 2, 1).geom().expect("the sizes fit");
    check::<half::f16>(&geom, 2, half::f16::from_f64, half::f16::to_f64, 6e-4);
    check::<half::bf16>(&geom, 1, half::bf16::from_f64, half::bf16::to_f64, 5e-3);
}

#[test]
fn bits_do_not_depend_on_the_thread_count() {
    let cases = [
        plain([20, 1, 16, 16, 28, 28, 3, 3], 1, 1),
        plain([1, 1, 40, 40, 30, 30, 3, 3], 2, 1),
        plain([5, 1, 300, 100, 7, 7, 3, 3], 1, 1),
        plain([41, 1, 20, 40, 4, 4, 3, 3], 1, 1),
        plain([5, 1, 150, 70, 9, 9, 1, 1], 1, 0),
        plain([5, 1, 70, 150, 9, 9, 1, 1], 2, 0),
        plain([3, 32, 1, 1, 20, 20, 3, 3], 1, 1),
    ];
    for case in cases {
        let geom = case.geom().expect("the sizes fit");
        let make = |x| x as f32;
        let (x, weight) = (values(geom.x_len(), 1, make), values(geom.weight_len(), 2, make));
        let dy = values(geom.y_len(), 3, make);
        let one = all_three(&geom, 1, &x, &weight, &dy);
        for threads in [2, 3] {
            let many = all_three(&geom, threads, &x, &weight, &dy);
            for (one, many) in one.iter().zip(&many) {
                assert_eq!(bytemuck::cast_slice::<f32, u8>(one), bytemuck::cast_slice::<f32, u8>(many), "{geom:?}");
            }
        }
    }
}

#[test]
fn every_instruction_set_agrees_with_the_definition() {
    let tables = f32_tables();
    let cases = [
        plain([2, 2, 5, 13, 9, 21, 3, 3], 1, 1),
        plain([2, 1, 5, 7, 9, 21, 3, 3], 2, 1),
        plain([2, 5, 1, 1, 9, 21, 3, 3], 1, 1),
        plain([2, 5, 1, 1, 9, 11, 4, 4], 2, 1),
        plain([3, 1, 33, 31, 9, 7, 1, 1], 1, 0),
        // large images, for which tiles are wide: panels of any number of vectors
        plain([2, 1, 5, 9, 23, 25, 1, 1], 1, 0),
        plain([2, 1, 9, 5, 24, 24, 1, 1], 1, 0),
    ];
    for case in cases.into_iter().chain(small_images()) {
        let geom = case.geom().expect("the sizes fit");
        let ([x, weight, dy], want) = operands(&geom, |x| x as f32, f64::from);
        for kernels in &tables {
            let pool = Pool::new(2);
            let mut ws = vec![0xff; 8 << 20];
            let mut out = [geom.y_len(), geom.x_len(), geom.weight_len()].map(|len| vec![f32::NAN; len]);
            let results = PASSES.into_iter().zip(&mut out);
            for ((pass, out), operands) in results.zip([[&x, &weight], [&dy, &weight], [&x, &dy]]) {
                let kernel = choose::kernel_of_sums(&geom, pass, kernels);
                run_by(kernel, &pool, kernels, &geom, pass, operands.map(Vec::as_slice), out, &mut ws);
            }
            for (got, want) in out.iter().zip(&want) {
                compare("result", &geom, got, want, f64::from, 2e-6);
            }
        }
    }
}

#[test]
fn columns_read_where_they_are_give_the_bits_of_packed_ones() {
    let cases = [
        // panels that begin in one image and end in the next
        plain([3, 1, 20, 64, 12, 12, 1, 1], 1, 0),
        plain([2, 2, 7, 13, 16, 16, 1, 1], 1, 0),
        // large images, of wide tiles and of tall ones
        plain([2, 1, 33, 20, 24, 24, 1, 1], 1, 0),
        plain([2, 1, 6, 50, 24, 24, 1, 1], 1, 0),
        // a second block of channels adds
        plain([1, 1, 600, 9, 12, 12, 1, 1], 1, 0),
    ];
    let tables = f32_tables();
    for case in cases {
        let geom = case.geom().expect("the sizes fit");
        let ([x, weight, _], [want, ..]) = operands(&geom, |x| x as f32, f64::from);
        for (kernels, threads) in tables.iter().zip((1..4).cycle()) {
            let pool = Pool::new(threads);
            let kernel = choose::kernel_of_sums(&geom, Pass::Forward, kernels);
            // in whole cache lines, and an element behind them
            let [in_place, packed] = [0, 1].map(|behind| {
                let mut memory = vec![f32::NAN; x.len() + 32];
                let at = memory.as_ptr().align_offset(64) + behind;
                memory[at..at + x.len()].copy_from_slice(&x);
                let mut ws = vec![0xff; bytes_of(kernel, kernels, &geom, Pass::Forward, threads)];
                let mut y = vec![f32::NAN; geom.y_len()];
                let x = &memory[at..at + x.len()];
                run_by(kernel, &pool, kernels, &geom, Pass::Forward, [x, &weight], &mut y, &mut ws);
                y
            });
            compare("y", &geom, &in_place, &want, f64::from, 2e-6);
            let bytes = |y| bytemuck::cast_slice::<f32, u8>(y);
            assert_eq!(bytes(&in_place), bytes(&packed), "{geom:?}");
        }
    }
}

#[test]
fn no_image_gives_a_zero_weight_gradient() {
    let geom = plain([0, 1, 3, 4, 5, 5, 3, 3], 1, 1).geom().expect("an empty batch is fine");
    let [y, dx, dw] = all_three::<f32>(&geom, 2, &[], &[1.0; 108], &[]);
    assert!(y.is_empty() && dx.is_empty());
    assert_eq!(dw, [0.0; 108]);
}

#[test]
fn impossible_sizes_are_refused_by_kind() {
    let kind = |x, w, stride, pad: [usize; 2], dilation, groups| {
        Conv2d::new(x, w, stride, pad, dilation, groups).expect_err("the sizes do not fit").kind()
    };
    let (x, w, one) = ([1, 4, 5, 5], [2, 4, 3, 3], [1, 1]);
    assert_eq!(kind(x, w, [0, 1], one, one, 1), ErrorKind::Value);
    assert_eq!(kind(x, w, one, one, [1, 0], 1), ErrorKind::Value);
    assert_eq!(kind(x, w, one, one, one, 0), ErrorKind::Value);
    assert_eq!(kind(x, w, one, one, one, 2), ErrorKind::Shape);
    assert_eq!(kind(x, [2, 4, 6, 3], one, [0, 0], one, 1), ErrorKind::Shape);
    let too_wide = Conv2d::new(x, w, one, [[0, 1 << 25], [0, 0]], one, 1).expect_err("the padding is too wide");
    assert_eq!(too_wide.kind(), ErrorKind::Shape);
    assert_eq!(kind([1, 4, 0, 5], w, one, one, one, 1), ErrorKind::Shape);
    assert_eq!(kind([usize::MAX, 4, 5, 5], w, one, one, one, 1), ErrorKind::Shape);
}

#[test]
fn workspace_is_modest() {
    let cases = [
        plain([128, 1, 16, 16, 28, 28, 3, 3], 1, 1),
        plain([32, 1, 64, 128, 56, 56, 3, 3], 2, 1),
        plain([8, 1, 256, 512, 56, 56, 1, 1], 2, 0),
        plain([8, 1, 512, 512, 7, 7, 3, 3], 1, 1),
        plain([8, 1, 3, 64, 224, 224, 7, 7], 2, 3),
        plain([8, 96, 1, 1, 56, 56, 3, 3], 1, 1),
    ];
    for case in cases {
        let geom = case.geom().expect("the sizes fit");
        for threads in [1, 2, 16] {
            let bytes = [
                forward_workspace_bytes::<f32>(&geom, threads),
                input_grad_workspace_bytes::<f32>(&geom, threads),
                weight_grad_workspace_bytes::<f32>(&geom, threads),
            ];
            assert!(bytes.iter().all(|&b| b <= threads * (4 << 20)), "{bytes:?} for {threads} threads, {geom:?}");
        }
    }
}

#[test]
fn depthwise_agrees_with_the_definition() {
    let cases = [
        plain([2, 40, 1, 1, 7, 7, 3, 3], 1, 1),
        plain([2, 40, 1, 1, 14, 14, 3, 3], 2, 1),
        plain([3, 5, 1, 1, 61, 70, 3, 3], 1, 1),
        plain([2, 5, 1, 1, 61, 70, 3, 3], 2, 1),
        plain([2, 7, 1, 1, 20, 9, 5, 5], 1, 2),
        plain([1, 3, 1, 1, 4, 30, 2, 7], 3, 3),
        // wide rows, several bands of a few rows
        plain([1, 2, 1, 1, 9, 3000, 3, 3], 1, 1),
        Case { dilation: [2, 3], ..plain([2, 6, 1, 1, 25, 26, 3, 3], 2, 4) },
        // many taps: the sums of the weight gradient go in several turns
        plain([2, 3, 1, 1, 13, 17, 7, 7], 1, 3),
    ];
    for case in cases {
        let geom = case.geom().expect("the sizes fit");
        let one = check::<f32>(&geom, 1, |x| x as f32, f64::from, 2e-6);
        let two = check::<f32>(&geom, 3, |x| x as f32, f64::from, 2e-6);
        assert_eq!(one, two, "{geom:?}");
        check::<f64>(&geom, 2, |x| x, |x| x, 1e-14);
    }
}

#[test]
fn wide_layers_of_three_by_three_taps_agree_by_winograd() {
    // wide enough for blocks of 8 and of 16 channels
    for (sizes, pad) in [([2, 1, 64, 96, 28, 27, 3, 3], 1), ([2, 1, 96, 64, 26, 29, 3, 3], 0)] {
        let geom = plain(sizes, 1, pad).geom().expect("the sizes fit");
        for pass in [Pass::Forward, Pass::InputGrad] {
            let (single, double) = (f32::conv_kernels(), f64::conv_kernels());
            assert_eq!(choose::kernel(&geom, pass, &single.expect("f32 has kernels")), Kernel::Winograd, "{pass:?}");
            assert_ne!(choose::kernel(&geom, pass, &double.expect("f64 has kernels")), Kernel::Winograd, "{pass:?}");
        }
        // a tile's error is that of its largest sums, so one of an element is not in proportion to its own: three times what was
        // seen, which is three times that of plain sums
        check::<f32>(&geom, 2, |v| v as f32, f64::from, 5e-6);
    }
    // a margin wider than what two taps reach has no convolution back
    let wide = plain([1, 1, 16, 16, 20, 20, 3, 3], 1, 3).geom().expect("the sizes fit");
    assert!(wide.back().is_none());
    check::<f32>(&wide, 1, |v| v as f32, f64::from, 2e-6);
}

#[test]
fn an_infinite_value_reaches_the_gradients_of_its_own_taps_only() {
    // The last place of a row that is no multiple of a vector: what a kernel reads beside its tail must not spread.
    let geom = plain([1, 2, 1, 1, 5, 11, 3, 3], 1, 1).geom().expect("the sizes fit");
    let mut x = vec![1.0f32; geom.x_len()];
    x[10] = f32::INFINITY;
    let [y, _, dw] = all_three(&geom, 1, &x, &[1.0; 18], &vec![1.0; geom.y_len()]);
    let infinite: Vec<usize> = (0..y.len()).filter(|&i| !y[i].is_finite()).collect();
    assert_eq!(infinite, [9, 10, 20, 21]);
    // The corner is read by the taps (1, 1), (1, 2), (0, 1), (0, 2).
    let infinite: Vec<usize> = (0..dw.len()).filter(|&i| !dw[i].is_finite()).collect();
    assert_eq!(infinite, [1, 2, 4, 5]);
}

/// Sizes, and the kernels of forward pass, input gradient and weight gradient, with the tiles of AVX-512.
fn named_shapes() -> Vec<(&'static str, Case, [Kernel; 3])> {
    use Kernel::{
        BatchInnermostSmall as Small, BatchInnermostStrided as Strided, Correlate, Depthwise, DepthwiseLanes as Lanes,
        OuterProducts as Outer, Winograd,
    };
    vec![
        ("ResNet-50's first layer", plain([16, 1, 3, 64, 224, 224, 7, 7], 2, 3), [Correlate, Correlate, Outer]),
        ("3x3 taps, 56x56", plain([16, 1, 64, 64, 56, 56, 3, 3], 1, 1), [Winograd, Winograd, Outer]),
        ("3x3 taps of few channels", plain([16, 1, 3, 12, 56, 56, 3, 3], 1, 1), [Correlate, Correlate, Outer]),
        ("1x1, 56x56", plain([16, 1, 64, 256, 56, 56, 1, 1], 1, 0), [Correlate, Correlate, Outer]),
        ("3x3 taps, 4x4, a batch of 128", plain([128, 1, 128, 128, 4, 4, 3, 3], 1, 1), [Winograd, Winograd, Small]),
        ("the same, 2x2 and a stride", plain([64, 1, 256, 512, 4, 4, 3, 3], 2, 1), [Small, Small, Small]),
        (
            "eight images under a stride, 1x1",
            plain([8, 1, 512, 1024, 28, 28, 1, 1], 2, 0),
            [Correlate, Correlate, Outer],
        ),
        ("eight images under a stride, 3x3", plain([8, 1, 512, 512, 14, 14, 3, 3], 2, 1), [Strided, Strided, Outer]),
        ("the same of half the channels", plain([8, 1, 256, 256, 14, 14, 3, 3], 2, 1), [Correlate, Strided, Outer]),
        ("two groups", plain([8, 2, 32, 32, 14, 14, 3, 3], 1, 1), [Correlate, Correlate, Outer]),
        ("depthwise, 112x112", plain([8, 32, 1, 1, 112, 112, 3, 3], 1, 1), [Depthwise, Depthwise, Depthwise]),
        ("depthwise, 7x7", plain([8, 960, 1, 1, 7, 7, 3, 3], 1, 1), [Lanes, Lanes, Lanes]),
        ("depthwise, 14x14 under a stride", plain([8, 576, 1, 1, 14, 14, 3, 3], 2, 1), [Lanes, Lanes, Lanes]),
        ("depthwise of two outputs", plain([8, 32, 1, 2, 14, 14, 3, 3], 1, 1), [Correlate, Correlate, Outer]),
    ]
}

#[test]
fn named_shapes_take_their_kernels() {
    let kernels = kernel::f32_kernels_as_wide_as_avx512();
    for (name, case, want) in named_shapes() {
        let geom = case.geom().expect("the sizes fit");
        let got = PASSES.map(|p| choose::kernel(&geom, p, &kernels));
        assert_eq!(got, want, "{name}");
    }
}
