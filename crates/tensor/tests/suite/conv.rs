//! Convolutions and transposed convolutions over one, two and three axes, against plain loops and central differences.

use remat_runtime::DeviceOptions;
use remat_tensor::ConvParams;
use remat_tensor::{Tensor, compile, grad, gradcheck};
use remat_types::{DType, ErrorKind, HostTensor, Padding, Result};

use crate::support::{assert_close, cpu, plain, tensor, values, wave};

/// A convolution of volumes; lines and images have extents of 1 in front.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// `[n, c, d, h, w]`.
    x: [usize; 5],
    /// Channels of the output, kernel.
    k: [usize; 4],
    taps: ConvParams<3>,
    /// Of the transposed convolution.
    more: [usize; 3],
}

const fn case(x: [usize; 5], k: [usize; 4], taps: [[usize; 3]; 3], groups: usize, more: [usize; 3]) -> Case {
    let [stride, both, dilation] = taps;
    let padding = Padding { begin: both, end: both };
    Case { x, k, taps: ConvParams { stride, padding, dilation, groups }, more }
}

const ONE: [usize; 3] = [1; 3];
const NONE: [usize; 3] = [0; 3];

const VOLUMES: [Case; 11] = [
    case([2, 3, 4, 3, 5], [2, 2, 3, 2], [ONE, NONE, ONE], 1, NONE),
    case([1, 4, 5, 4, 3], [6, 3, 2, 2], [[1, 2, 1], [1, 0, 1], ONE], 2, [0, 1, 0]),
    case([2, 2, 6, 3, 4], [4, 2, 2, 3], [[3, 1, 2], [2, 1, 1], [2, 1, 1]], 2, [2, 0, 1]),
    case([1, 3, 7, 3, 3], [3, 2, 1, 2], [[2, 1, 1], [1, 0, 1], [3, 1, 2]], 3, [1, 0, 0]),
    // no taps along the depth, with and without a stride
    case([2, 2, 3, 4, 4], [3, 1, 3, 2], [ONE, [0, 1, 1], ONE], 1, NONE),
    case([2, 2, 5, 3, 3], [2, 1, 2, 2], [[2, 1, 1], [1, 0, 0], ONE], 2, [1, 0, 0]),
    // windows side by side
    case([2, 2, 5, 4, 4], [3, 2, 2, 2], [[2, 2, 2], NONE, ONE], 1, [1, 0, 1]),
    case([1, 2, 4, 3, 2], [2, 3, 1, 1], [[3, 1, 1], [1, 0, 0], ONE], 2, [2, 0, 0]),
    // taps along the depth only
    case([2, 4, 5, 2, 3], [6, 3, 1, 1], [[2, 1, 1], [1, 0, 0], ONE], 2, [1, 0, 0]),
    case([2, 3, 2, 2, 2], [4, 1, 1, 1], [ONE, NONE, ONE], 1, NONE),
    // nothing at all
    case([0, 2, 3, 3, 3], [2, 2, 2, 2], [ONE, NONE, ONE], 1, NONE),
];

const LINES: [Case; 6] = [
    case([2, 3, 1, 1, 7], [2, 1, 1, 3], [ONE, NONE, ONE], 1, NONE),
    case([1, 4, 1, 1, 8], [6, 1, 1, 3], [[1, 1, 2], [0, 0, 2], ONE], 2, [0, 0, 1]),
    case([2, 3, 1, 1, 9], [3, 1, 1, 2], [[1, 1, 3], [0, 0, 1], [1, 1, 4]], 3, [0, 0, 2]),
    case([1, 2, 1, 1, 3], [2, 1, 1, 5], [ONE, [0, 0, 3], ONE], 1, NONE),
    case([3, 2, 1, 1, 4], [4, 1, 1, 1], [[1, 1, 2], NONE, ONE], 2, [0, 0, 1]),
    case([0, 2, 1, 1, 4], [4, 1, 1, 1], [ONE, NONE, ONE], 2, NONE),
];

const IMAGES: [Case; 4] = [
    case([2, 3, 1, 4, 5], [2, 1, 3, 2], [ONE, NONE, ONE], 1, NONE),
    case([1, 4, 1, 5, 4], [6, 1, 2, 3], [[1, 2, 3], [0, 1, 2], ONE], 2, [0, 1, 2]),
    case([2, 2, 1, 6, 5], [4, 1, 3, 2], [[1, 2, 1], [0, 1, 1], [1, 2, 3]], 2, [0, 1, 0]),
    case([1, 3, 1, 3, 3], [3, 1, 2, 2], [[1, 2, 2], NONE, ONE], 3, [0, 1, 1]),
];

impl Case {
    /// `[k, c / groups, t, r, s]`.
    fn weight(&self) -> [usize; 5] {
        let [k, t, r, s] = self.k;
        [k, self.x[1] / self.taps.groups, t, r, s]
    }

    /// `[c, k / groups, t, r, s]`.
    fn transposed_weight(&self) -> [usize; 5] {
        let [k, t, r, s] = self.k;
        [self.x[1], k / self.taps.groups, t, r, s]
    }

    fn reach(&self, axis: usize) -> usize {
        self.taps.dilation[axis] * (self.k[axis + 1] - 1) + 1
    }

    /// `[n, k, od, oh, ow]`.
    fn y(&self) -> [usize; 5] {
        let padded = |a: usize| self.x[a + 2] + self.taps.padding.axis(a).iter().sum::<usize>();
        let out = |a: usize| (padded(a) - self.reach(a)) / self.taps.stride[a] + 1;
        [self.x[0], self.k[0], out(0), out(1), out(2)]
    }

    fn transposed_y(&self) -> [usize; 5] {
        let ConvParams { stride, padding, .. } = self.taps;
        let cut = |a: usize| padding.axis(a).iter().sum::<usize>();
        let out = |a: usize| (self.x[a + 2] - 1) * stride[a] + self.reach(a) + self.more[a] - cut(a);
        [self.x[0], self.k[0], out(0), out(1), out(2)]
    }

    /// Calls `f` with the places in `image`, `weight: [rows, columns, ..]` and `steps` of every product of a convolution
    /// from images to steps.
    fn products(
        &self,
        image: [usize; 5],
        weight: [usize; 5],
        steps: [usize; 5],
        mut f: impl FnMut(usize, usize, usize),
    ) {
        let ConvParams { stride, padding, dilation, groups } = self.taps;
        let [k, group_c, taps @ ..] = weight;
        for n in 0..steps[0] {
            for (k, o, c, tap) in each([k, steps[2] * steps[3] * steps[4], group_c, taps.iter().product()]) {
                let (o, tap) = (split(o, [steps[2], steps[3], steps[4]]), split(tap, taps));
                let at = [0, 1, 2].map(|a| (o[a] * stride[a] + tap[a] * dilation[a]).checked_sub(padding.begin[a]));
                let [Some(z), Some(y), Some(x)] = at else { continue };
                if z >= image[2] || y >= image[3] || x >= image[4] {
                    continue;
                }
                let channel = k / (weight[0] / groups) * group_c + c;
                f(
                    index([n, channel, z, y, x], image),
                    index([k, c, tap[0], tap[1], tap[2]], weight),
                    index([n, k, o[0], o[1], o[2]], steps),
                );
            }
        }
    }

    fn reference(&self, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; self.y().iter().product()];
        self.products(self.x, self.weight(), self.y(), |i, w, o| y[o] += x[i] * weight[w]);
        y
    }

    fn transposed_reference(&self, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let mut y = vec![0.0; self.transposed_y().iter().product()];
        self.products(self.transposed_y(), self.transposed_weight(), self.x, |i, w, o| y[i] += x[o] * weight[w]);
        y
    }

    /// The extents without the `3 - axes` in front that lines and images do not have.
    fn shape(of: [usize; 5], axes: usize) -> Vec<usize> {
        of[..2].iter().chain(&of[5 - axes..]).copied().collect()
    }

    fn conv(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        match x.rank() {
            3 => x.conv1d(weight, last(self.taps)),
            4 => x.conv2d(weight, last(self.taps)),
            _ => x.conv3d(weight, self.taps),
        }
    }

    fn transposed(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let [_, h, w] = self.more;
        match x.rank() {
            3 => x.conv_transpose1d(weight, last(self.taps), [w]),
            4 => x.conv_transpose2d(weight, last(self.taps), [h, w]),
            _ => x.conv_transpose3d(weight, self.taps, self.more),
        }
    }
}

/// The taps of the last axes.
fn last<const D: usize>(taps: ConvParams<3>) -> ConvParams<D> {
    let cut = |v: [usize; 3]| std::array::from_fn(|a| v[3 - D + a]);
    ConvParams {
        stride: cut(taps.stride),
        padding: Padding { begin: cut(taps.padding.begin), end: cut(taps.padding.end) },
        dilation: cut(taps.dilation),
        groups: taps.groups,
    }
}

fn index(at: [usize; 5], shape: [usize; 5]) -> usize {
    at.iter().zip(shape).fold(0, |i, (&at, extent)| i * extent + at)
}

fn split(i: usize, [_, h, w]: [usize; 3]) -> [usize; 3] {
    [i / (h * w), i / w % h, i % w]
}

fn each([a, b, c, d]: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
}

fn cases() -> impl Iterator<Item = (usize, Case)> {
    let all: [(usize, &'static [Case]); 3] = [(1, &LINES), (2, &IMAGES), (3, &VOLUMES)];
    all.into_iter().flat_map(|(axes, list)| list.iter().map(move |c| (axes, *c)))
}

/// Values of another phase than [`wave`]'s.
fn weights(n: usize) -> Vec<f64> {
    wave(n + 5)[5..].to_vec()
}

#[test]
fn convolutions_are_those_of_plain_loops() {
    let d = plain();
    for (axes, case) in cases() {
        let (x, w) = (wave(case.x.iter().product()), weights(case.weight().iter().product()));
        let given = tensor(&d, &x, Case::shape(case.x, axes));
        let y = case.conv(&given, &tensor(&d, &w, Case::shape(case.weight(), axes))).expect("fits");
        assert_eq!(y.dims(), Case::shape(case.y(), axes), "{case:?}");
        assert_close(&values(&y), &case.reference(&x, &w));

        let w = weights(case.transposed_weight().iter().product());
        let y = case.transposed(&given, &tensor(&d, &w, Case::shape(case.transposed_weight(), axes))).expect("fits");
        assert_eq!(y.dims(), Case::shape(case.transposed_y(), axes), "{case:?}");
        assert_close(&values(&y), &case.transposed_reference(&x, &w));
    }
}

#[test]
fn every_float_is_convolved() {
    let d = plain();
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let case = VOLUMES[1];
        // small whole numbers are exact in every dtype
        let whole = |n: usize| (0..n).map(|i| (i * 7 % 5) as f64 - 2.0).collect::<Vec<_>>();
        let (x, w) = (whole(case.x.iter().product()), whole(case.weight().iter().product()));
        let put = |v: &[f64], shape: [usize; 5]| tensor(&d, v, shape).cast(dtype).expect("a float");
        let y = case.conv(&put(&x, case.x), &put(&w, case.weight())).expect("fits");
        assert_eq!((y.dtype(), y.to_host().expect("a value").to_f64_vec()), (dtype, case.reference(&x, &w)));
        let w = whole(case.transposed_weight().iter().product());
        let y = case.transposed(&put(&x, case.x), &put(&w, case.transposed_weight())).expect("fits");
        assert_eq!(y.to_host().expect("a value").to_f64_vec(), case.transposed_reference(&x, &w), "{dtype}");
    }
}

fn host(shape: Vec<usize>) -> HostTensor {
    let n = shape.iter().product();
    HostTensor::from_slice(&wave(n), shape).expect("fits")
}

/// The gradients of `sum f^2`, one after the other; constants become leaves.
fn gradients(x: &[Tensor], f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let leaf = |t: &Tensor| if t.is_tracked() { Ok(t.clone()) } else { t.requires_grad() };
    let (x, w) = (leaf(&x[0])?, leaf(&x[1])?);
    let grads = grad(&f(&x, &w)?.square()?.sum()?, &[&x, &w], true)?;
    let flat = grads.into_iter().map(|g| g.expect("used").flatten_from(0)).collect::<Result<Vec<_>>>()?;
    Tensor::concat(&flat.iter().collect::<Vec<_>>(), 0)
}

/// The same with one more place after the last one of each axis, or before the first where `at_begin`.
fn uneven(case: Case, axes: usize, at_begin: bool) -> Case {
    // lines and images have no such axes in front
    let more: [usize; 3] = std::array::from_fn(|a| usize::from(a >= 3 - axes) * (a + 1));
    let Padding { mut begin, mut end } = case.taps.padding;
    let side = if at_begin { &mut begin } else { &mut end };
    side.iter_mut().zip(more).for_each(|(side, more)| *side += more);
    Case { taps: ConvParams { padding: Padding { begin, end }, ..case.taps }, ..case }
}

/// [`uneven`] ones with padding at the end, and those with padding at the beginning.
fn uneven_cases() -> impl Iterator<Item = (usize, Case)> {
    cases().flat_map(|(axes, case)| [false, true].map(|at_begin| (axes, uneven(case, axes, at_begin))))
}

#[test]
fn padding_on_each_side_is_that_of_a_padded_input() {
    let d = plain();
    for (axes, case) in uneven_cases() {
        let bare = Case { taps: ConvParams { padding: Padding::NONE, ..case.taps }, ..case };
        let sides: Vec<_> = [[0, 0]; 2].into_iter().chain((3 - axes..3).map(|a| case.taps.padding.axis(a))).collect();
        let around: Vec<(usize, usize)> = sides.iter().map(|&[begin, end]| (begin, end)).collect();
        let leaf = |v: &[f64], shape: Vec<usize>| tensor(&d, v, shape).requires_grad().expect("a float");
        let (x, w) = (wave(case.x.iter().product()), weights(case.weight().iter().product()));
        // what a convolution makes, and its gradients
        let run = |f: &dyn Fn(&Tensor, &Tensor) -> Result<Tensor>| {
            let (x, w) = (leaf(&x, Case::shape(case.x, axes)), leaf(&w, Case::shape(case.weight(), axes)));
            let y = f(&x, &w).expect("fits");
            let grads = gradients(&[x, w], f).expect("differentiable");
            (y.dims().to_vec(), values(&y), values(&grads))
        };
        let got = run(&|x, w| case.conv(x, w));
        let want = run(&|x, w| bare.conv(&x.pad(&around, 0)?, w));
        assert_eq!(got.0, want.0, "{case:?}");
        assert_close(&got.1, &want.1);
        assert_close(&got.2, &want.2);
        assert_close(&got.1, &case.reference(&x, &w));
    }
}

#[test]
fn a_transposed_convolution_leaves_out_what_lies_in_the_padding_of_each_side() {
    let d = plain();
    let mut tried = 0;
    for (axes, case) in uneven_cases() {
        let bare = Case { taps: ConvParams { padding: Padding::NONE, ..case.taps }, ..case };
        let whole = Case::shape(bare.transposed_y(), axes);
        let sides: Vec<[usize; 2]> = (3 - axes..3).map(|a| case.taps.padding.axis(a)).collect();
        if whole[2..].iter().zip(&sides).any(|(&whole, sides)| whole <= sides.iter().sum()) {
            continue;
        }
        let x = tensor(&d, &wave(case.x.iter().product()), Case::shape(case.x, axes));
        let w = weights(case.transposed_weight().iter().product());
        let w = tensor(&d, &w, Case::shape(case.transposed_weight(), axes));
        let mut want = bare.transposed(&x, &w).expect("fits");
        for (a, &[begin, end]) in sides.iter().enumerate() {
            let len = whole[a + 2] - begin - end;
            want = want.narrow(a as isize + 2, begin as isize, len).expect("within");
        }
        let got = case.transposed(&x, &w).expect("fits");
        assert_eq!(got.dims(), want.dims(), "{case:?}");
        assert_close(&values(&got), &values(&want));
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn same_padding_keeps_the_extents() {
    let d = plain();
    let x = tensor(&d, &wave(2 * 3 * 5 * 6), [2, 3, 5, 6]);
    for (kernel, dilation) in [([1, 2], [1, 1]), ([3, 4], [1, 2]), ([2, 6], [3, 1])] {
        let taps = ConvParams { dilation, ..ConvParams::PLAIN }.with_same_padding(kernel).expect("no stride");
        let w = weights(4 * 3 * kernel[0] * kernel[1]);
        let y = x.conv2d(&tensor(&d, &w, [4, 3, kernel[0], kernel[1]]), taps).expect("fits");
        assert_eq!(y.dims(), [2, 4, 5, 6]);
    }
    let strided = ConvParams { stride: [1, 2], ..ConvParams::PLAIN };
    assert_eq!(strided.with_same_padding([3, 3]).expect_err("a stride").kind(), ErrorKind::Value);
}

#[test]
fn gradients_and_their_gradients_agree_with_differences() {
    let d = plain();
    for (axes, case) in cases().filter(|(_, c)| c.x[0] > 0) {
        let (x, w) = (Case::shape(case.x, axes), Case::shape(case.weight(), axes));
        let r = gradcheck(&d, &[host(x.clone()), host(w)], |x| case.conv(&x[0], &x[1])).expect("differentiable");
        assert!(r.max_error < 1e-8 && r.max_gradient > 0.05, "{case:?}: {r:?}");
        let w = Case::shape(case.transposed_weight(), axes);
        let r = gradcheck(&d, &[host(x), host(w)], |x| case.transposed(&x[0], &x[1])).expect("differentiable");
        assert!(r.max_error < 1e-8 && r.max_gradient > 0.05, "transposed {case:?}: {r:?}");
    }
    let small = [
        (1, case([2, 2, 1, 1, 4], [2, 1, 1, 2], [[1, 1, 2], [0, 0, 1], ONE], 2, [0, 0, 1])),
        (2, case([1, 2, 1, 3, 3], [2, 1, 2, 2], [[1, 2, 1], [0, 1, 0], ONE], 1, [0, 1, 0])),
        (3, case([1, 2, 3, 2, 3], [2, 2, 1, 2], [[1, 1, 2], [1, 0, 1], ONE], 2, [0, 0, 1])),
    ];
    for (axes, case) in small {
        let x = host(Case::shape(case.x, axes));
        let w = [case.weight(), case.transposed_weight()].map(|w| host(Case::shape(w, axes)));
        let conv = |x: &[Tensor]| gradients(x, |x, w| case.conv(x, w));
        let transposed = |x: &[Tensor]| gradients(x, |x, w| case.transposed(x, w));
        let [w, transposed_w] = w;
        let r = gradcheck(&d, &[x.clone(), w], conv).expect("differentiable");
        // the gradient of a gradient is a sum over squares: differences of it lose some digits
        assert!(r.max_error < 1e-7 && r.max_gradient > 0.05, "{case:?}: {r:?}");
        let r = gradcheck(&d, &[x, transposed_w], transposed).expect("differentiable");
        assert!(r.max_error < 1e-7 && r.max_gradient > 0.05, "transposed {case:?}: {r:?}");
    }
}

#[test]
fn a_transposed_convolution_is_the_gradient_of_a_convolution() {
    let d = plain();
    for case in VOLUMES.into_iter().filter(|c| c.x[0] > 0) {
        // from the output of the transposed one back to its input
        let back = Case { x: case.transposed_y(), k: [case.x[1], case.k[1], case.k[2], case.k[3]], ..case };
        let x = tensor(&d, &wave(back.x.iter().product()), back.x).requires_grad().expect("a float");
        let w = tensor(&d, &weights(back.weight().iter().product()), back.weight());
        let y = back.conv(&x, &w).expect("fits");
        assert_eq!(y.dims(), case.x, "{case:?}");
        let dy = tensor(&d, &weights(y.elems()), y.shape());
        y.backward_with(Some(&dy), false).expect("differentiable");
        let got = values(&case.transposed(&dy, &w).expect("fits"));
        assert_close(&got, &values(&x.grad().expect("a gradient")));
    }
}

#[test]
fn kernels_that_read_no_frame_twice_copy_little() {
    let bytes = |case: Case| {
        let d = cpu(DeviceOptions::default());
        let x = Tensor::ones(&d, case.x, DType::F64).expect("fits");
        let w = Tensor::ones(&d, case.weight(), DType::F64).expect("fits");
        d.channel().sync().expect("open");
        let before = d.channel().stats().expect("open").in_use_bytes;
        let y = case.conv(&x, &w).expect("fits");
        d.channel().sync().expect("computes");
        let stats = d.channel().stats().expect("open");
        (stats.peak_bytes - before, x.elems() * 8, y.elems() * 8)
    };
    // the gathered frames would have three times the input's bytes
    let x = [1, 4, 128, 32, 32];
    let (peak, _, y) = bytes(case(x, [4, 3, 1, 1], [ONE, [1, 0, 0], ONE], 1, NONE));
    assert!(peak < y * 3 / 2, "{peak} of {y}: frames are rows, little but the result is made");
    let (peak, x, y) = bytes(case(x, [4, 1, 3, 3], [ONE, [0, 1, 1], ONE], 1, NONE));
    assert!(peak < (x + y) * 3 / 2, "{peak} of {x} and {y}: frames go into the batch once");
}

#[test]
fn compiled_convolutions_have_the_bits_of_eager_ones() {
    let d = plain();
    for (axes, case) in cases().filter(|(_, c)| c.x[0] > 0) {
        let f = |x: &[Tensor]| {
            let dx = gradients(&x[..2], |x, w| case.conv(x, w))?;
            Ok(vec![dx, case.transposed(&x[0], &x[2])?])
        };
        let shapes = [case.x, case.weight(), case.transposed_weight()].map(|s| Case::shape(s, axes));
        let x = shapes.map(|s| Tensor::from_host(&d, &host(s)).expect("fits"));
        let eager: Vec<Vec<f64>> = f(&x).expect("fits").iter().map(values).collect();
        let y = compile(&d, f).call(&x.iter().collect::<Vec<_>>()).expect("runs");
        assert_eq!(y.iter().map(values).collect::<Vec<_>>(), eager, "{case:?}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_errors_before_anything_is_made() {
    let d = plain();
    let (one, wide) = (Tensor::scalar(&d, 1.0f32).expect("fits"), Tensor::from_slice(&d, &[1.0], []).expect("fits"));
    let of = |shape: &[usize]| one.broadcast_to(shape).expect("a view");
    let (x, w) = (of(&[1, 4, 4, 4, 4]), of(&[2, 4, 2, 2, 2]));
    let taps = |stride, padding: [usize; 3], dilation, groups| ConvParams::<3> {
        stride,
        padding: padding.into(),
        dilation,
        groups,
    };
    let plain = ConvParams::<3>::PLAIN;
    d.channel().sync().expect("open");
    let before = d.channel().stats().expect("open");
    let fails = |y: Result<Tensor>, kind: ErrorKind, says: &str| {
        let e = y.map(|_| ()).expect_err(says);
        assert!(e.kind() == kind && e.to_string().contains(says), "{e}, not {kind:?} with {says:?}");
    };
    fails(of(&[4, 4, 4]).conv3d(&w, plain), ErrorKind::Axis, "[4, 4, 4]");
    fails(x.conv3d(&of(&[2, 4, 2, 2]), plain), ErrorKind::Axis, "the weight has shape [2, 4, 2, 2]");
    fails(x.conv3d(&w, taps([0, 1, 1], NONE, ONE, 1)), ErrorKind::Value, "stride [0, 1]");
    fails(x.conv3d(&w, taps([1, 1, 0], NONE, ONE, 1)), ErrorKind::Value, "stride [1, 0]");
    fails(x.conv3d(&w, taps(ONE, NONE, [1, 0, 1], 1)), ErrorKind::Value, "dilation [0, 1]");
    fails(x.conv3d(&w, taps(ONE, NONE, ONE, 0)), ErrorKind::Value, "groups 0");
    fails(x.conv3d(&w, taps(ONE, NONE, ONE, 2)), ErrorKind::Shape, "2 groups");
    fails(x.conv3d(&of(&[3, 2, 2, 2, 2]), taps(ONE, NONE, ONE, 2)), ErrorKind::Shape, "2 groups");
    fails(x.conv3d(&w, taps(ONE, NONE, [4, 1, 1], 1)), ErrorKind::Shape, "over 5 places, the padded image has 4");
    fails(x.conv3d(&w, taps(ONE, [0, 0, 1], [1, 1, 6], 1)), ErrorKind::Shape, "over 7 places, the padded image has 6");
    fails(x.conv3d(&w, taps(ONE, [usize::MAX, 0, 0], ONE, 1)), ErrorKind::Shape, "exceeds");
    fails(x.conv3d(&w, taps(ONE, [0, 0, usize::MAX], ONE, 1)), ErrorKind::Shape, "exceeds");
    // the gathered frames are more than can be addressed
    let (deep, long) = (of(&[1 << 10, 1 << 6, 1 << 12, 1 << 6, 1 << 6]), of(&[1, 1 << 6, 1 << 11, 1, 3]));
    fails(deep.conv3d(&long, plain), ErrorKind::Shape, "too large");
    fails(x.conv3d(&wide.broadcast_to([2, 4, 2, 2, 2]).expect("a view"), plain), ErrorKind::DType, "f64");

    let line = of(&[1, 4, 4]);
    fails(x.conv1d(&w, ConvParams::PLAIN), ErrorKind::Axis, "rank 5, not 3");
    fails(line.conv1d(&of(&[2, 3, 2]), ConvParams::PLAIN), ErrorKind::Shape, "has 4 channels");
    fails(line.conv1d(&of(&[2, 4, 5]), ConvParams::PLAIN), ErrorKind::Shape, "over 5 places, the padded image has 4");
    fails(
        line.conv1d(&of(&[2, 4, 2]), ConvParams { stride: [0], ..ConvParams::PLAIN }),
        ErrorKind::Value,
        "stride [1, 0]",
    );

    let w = of(&[4, 1, 2, 2, 2]);
    fails(line.conv_transpose3d(&w, plain, NONE), ErrorKind::Axis, "rank 3, not 5");
    fails(x.conv_transpose3d(&of(&[3, 1, 2, 2, 2]), plain, NONE), ErrorKind::Shape, "4 channels, the weight is for 3");
    fails(x.conv_transpose3d(&w, taps(ONE, NONE, ONE, 3), NONE), ErrorKind::Shape, "3 groups");
    fails(x.conv_transpose3d(&w, taps(ONE, NONE, ONE, 0), NONE), ErrorKind::Value, "groups 0");
    fails(x.conv_transpose3d(&w, taps([0, 1, 1], NONE, ONE, 1), NONE), ErrorKind::Value, "stride [0, 1]");
    fails(x.conv_transpose3d(&w, taps(ONE, NONE, [1, 1, 0], 1), NONE), ErrorKind::Value, "dilation [1, 0]");
    fails(x.conv_transpose3d(&w, plain, [1, 0, 0]), ErrorKind::Value, "output padding of 1");
    fails(x.conv_transpose3d(&w, taps([1, 1, 2], NONE, ONE, 1), [0, 0, 2]), ErrorKind::Value, "stride of 2");
    fails(
        x.conv_transpose3d(&w, taps(ONE, [0, 3, 0], ONE, 1), NONE),
        ErrorKind::Shape,
        "a padding of 3 and 3 leaves nothing",
    );
    fails(x.conv_transpose3d(&w, taps([usize::MAX, 1, 1], NONE, ONE, 1), NONE), ErrorKind::Shape, "exceeds");
    fails(x.conv_transpose3d(&w, taps(ONE, [usize::MAX; 3], ONE, 1), NONE), ErrorKind::Shape, "leaves nothing");
    fails(line.conv_transpose1d(&of(&[4, 2, 3]), ConvParams::PLAIN, [1]), ErrorKind::Value, "output padding of 1");
    fails(x.conv_transpose2d(&w, ConvParams::PLAIN, [0, 0]), ErrorKind::Axis, "rank 5, not 4");
    let empty = of(&[1, 4, 0, 4]);
    fails(empty.conv_transpose2d(&of(&[4, 1, 1, 1]), ConvParams::PLAIN, [0, 0]), ErrorKind::Shape, "dy");
    d.channel().sync().expect("open");
    assert_eq!(d.channel().stats().expect("open").peak_bytes, before.peak_bytes);
}
