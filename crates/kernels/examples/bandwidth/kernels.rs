//! The kernels, and what each has to read and write.

use half::f16;
use remat_kernels::copy::copy;
use remat_kernels::float::Real;
use remat_kernels::index::{Indices, take, take_grad};
use remat_kernels::maths;
use remat_kernels::norm::{BatchDims, batch_norm, batch_norm_grad};
use remat_kernels::norm::{layer_norm, layer_norm_grad, layer_norm_grad_workspace_elems};
use remat_kernels::optim::{Adam, Sgd, adam, sgd};
use remat_kernels::philox::{Stream, normal, uniform};
use remat_kernels::pointwise::{Half, Map1, Map2, Operand, each1, each1_ahead, each2, each2_ahead, map1, map2};
use remat_kernels::pool::Pool;
use remat_kernels::reduce::{Extreme, Max, Plan, Sum, arg_extreme, reduce};
use remat_kernels::softmax::{AxisDims, cross_entropy, cross_entropy_grad, softmax, softmax_grad};
use remat_kernels::window::{Axis, AxisKind, avg_pool, avg_pool_grad, max_pool, max_pool_grad};
use remat_types::Layout;

/// Elements of a row where a kernel works along rows. As the other extents no power of two, since such strides fall on few
/// sets of a cache.
const ROW: usize = 768;
/// Elements of a row of an embedding.
const EMBEDDING: usize = 256;
/// Extent of the square planes of pools and batch norms.
const SIDE: usize = 28;
/// Images of a batch norm, where the array has so many: a channel stays in the second cache, as it does in networks.
const IMAGES: usize = 64;
/// Numbers of elements are multiples of this one: whole rows and whole planes.
pub(crate) const UNIT: usize = SIDE * SIDE * ROW / 16;

/// A kernel with arrays of its own.
type Work = Box<dyn FnMut(&Pool)>;

/// A kernel on arrays of any number of elements.
///
/// The counts are in arrays of as many f32 as the kernel has elements. Arrays of less than a hundredth of that, as a
/// norm's scales and an embedding's indices, are left out.
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// Arrays that are read.
    inputs: f64,
    /// Arrays that are read and written.
    updates: f64,
    /// Arrays that are only written.
    outputs: f64,
    /// Takes the number of elements, a multiple of [`UNIT`].
    pub(crate) make: fn(usize) -> Work,
}

impl Kernel {
    fn new(name: &'static str, [inputs, updates, outputs]: [f64; 3], make: fn(usize) -> Work) -> Kernel {
        Kernel { name, inputs, updates, outputs, make }
    }

    pub(crate) fn writes(&self) -> bool {
        self.updates + self.outputs > 0.0
    }

    /// Bytes that are to be read and written for `n` elements.
    pub(crate) fn bytes(&self, n: usize) -> f64 {
        (self.inputs + 2.0 * self.updates + self.outputs) * (4 * n) as f64
    }

    /// As `bytes`, with the lines of outputs that a cache reads before they are written.
    pub(crate) fn moved_bytes(&self, n: usize) -> f64 {
        self.bytes(n) + self.outputs * (4 * n) as f64
    }
}

/// Values in [-1, 1), written to memory: pages that nobody wrote are all one page, which is in the cache.
pub(crate) fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1009) as f32 / 504.5 - 1.0).collect()
}

/// An array for a kernel to write.
fn zeros(n: usize) -> Vec<f32> {
    vec![0.0; n]
}

pub(crate) fn all() -> Vec<Kernel> {
    let parts = [pointwise(), reductions(), softmaxes(), norms(), pools(), moves(), updates()];
    parts.into_iter().flatten().collect()
}

/// A pointwise function of one argument.
fn unary(n: usize, f: Map1<f32, f32>) -> Work {
    let (x, mut y) = (values(n), zeros(n));
    Box::new(move |pool| map1(pool, &Operand::Slice(&x), &mut y, &f))
}

fn pointwise() -> Vec<Kernel> {
    const ADD: Map2<f32, f32> = |a, b, y| each2(a, b, y, |a, b| a + b);
    const GELU_GRAD: Map2<f32, f32> = |dy, x, dx| each2_ahead(dy, x, dx, |dy, x| dy * maths::gelu_slope(x));
    const ONE_TO_ONE: [f64; 3] = [1.0, 0.0, 1.0];
    vec![
        Kernel::new("addition", [2.0, 0.0, 1.0], |n| {
            let (a, b, mut y) = (values(n), values(n), zeros(n));
            Box::new(move |pool| map2(pool, &Operand::Slice(&a), &Operand::Slice(&b), &mut y, &ADD))
        }),
        Kernel::new("addition in place", [1.0, 1.0, 0.0], |n| {
            let (b, mut y) = (values(n), zeros(n));
            Box::new(move |pool| map2(pool, &Operand::Held, &Operand::Slice(&b), &mut y, &ADD))
        }),
        Kernel::new("relu", ONE_TO_ONE, |n| unary(n, |x, y| each1(x, y, |x| if x <= 0.0 { 0.0 } else { x }))),
        Kernel::new("exp", ONE_TO_ONE, |n| unary(n, |x, y| each1_ahead(x, y, Real::exp))),
        Kernel::new("tanh", ONE_TO_ONE, |n| unary(n, |x, y| each1_ahead(x, y, maths::tanh))),
        Kernel::new("gelu", ONE_TO_ONE, |n| unary(n, |x, y| each1_ahead(x, y, maths::gelu))),
        Kernel::new("gelu backward", [2.0, 0.0, 1.0], |n| {
            let (dy, x, mut dx) = (values(n), values(n), zeros(n));
            Box::new(move |pool| map2(pool, &Operand::Slice(&dy), &Operand::Slice(&x), &mut dx, &GELU_GRAD))
        }),
        Kernel::new("cast f32 to f16", [1.0, 0.0, 0.5], |n| {
            let (x, mut y) = (values(n), vec![f16::ZERO; n]);
            Box::new(move |pool| map1(pool, &Operand::Slice(&x), &mut y, &f16::narrow))
        }),
        Kernel::new("cast f16 to f32", [0.5, 0.0, 1.0], |n| {
            let x: Vec<f16> = values(n).into_iter().map(f16::from_f32).collect();
            let mut y = zeros(n);
            Box::new(move |pool| map1(pool, &Operand::Slice(&x), &mut y, &f16::widen))
        }),
    ]
}

/// The sum of a matrix with rows of [`ROW`] over `axes`.
fn sum(n: usize, axes: &[usize]) -> Work {
    let (shape, x) = ([n / ROW, ROW], values(n));
    let kept = (0..2).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]).product();
    let (plan, mut y) = (Plan::new(&shape, axes), zeros(kept));
    Box::new(move |pool| reduce(pool, Sum, &x, &plan, &mut y))
}

fn reductions() -> Vec<Kernel> {
    const READ: [f64; 3] = [1.0, 0.0, 0.0];
    vec![
        Kernel::new("sum of each row", READ, |n| sum(n, &[1])),
        Kernel::new("sum of each column", READ, |n| sum(n, &[0])),
        Kernel::new("sum of all", READ, |n| sum(n, &[0, 1])),
        Kernel::new("maximum of each row", READ, |n| {
            let (x, plan, mut y) = (values(n), Plan::new(&[n / ROW, ROW], &[1]), zeros(n / ROW));
            Box::new(move |pool| reduce(pool, Max, &x, &plan, &mut y))
        }),
        Kernel::new("argmax of each row", READ, |n| {
            let (x, mut y) = (values(n), vec![0; n / ROW]);
            Box::new(move |pool| arg_extreme(pool, Extreme::Max, &x, ROW, 1, &mut y))
        }),
    ]
}

/// Rows of [`ROW`] along which is normalised.
fn rows(n: usize) -> AxisDims {
    AxisDims::new(&[n / ROW, ROW], 1)
}

fn softmaxes() -> Vec<Kernel> {
    vec![
        Kernel::new("softmax", [1.0, 0.0, 1.0], |n| {
            let (x, mut y) = (values(n), zeros(n));
            Box::new(move |pool| softmax(pool, rows(n), false, &x, &mut y))
        }),
        Kernel::new("softmax backward", [2.0, 0.0, 1.0], |n| {
            let (y, dy, mut dx) = (values(n), values(n), zeros(n));
            Box::new(move |pool| softmax_grad(pool, rows(n), false, &y, &dy, &mut dx))
        }),
        Kernel::new("cross entropy", [1.0, 0.0, 0.0], |n| {
            let (x, mut loss) = (values(n), zeros(n / ROW));
            Box::new(move |pool| cross_entropy(pool, rows(n), 0.0, &x, |i| Some(i % ROW), &mut loss))
        }),
        Kernel::new("cross entropy backward", [1.0, 0.0, 1.0], |n| {
            let (x, mut dx) = (values(n), zeros(n));
            Box::new(move |pool| cross_entropy_grad(pool, rows(n), 0.0, &x, |i| Some(i % ROW), |_| 0.5, &mut dx))
        }),
    ]
}

fn batch(n: usize) -> BatchDims {
    let s = SIDE * SIDE;
    let images = IMAGES.min(n / s);
    BatchDims { n: images, c: n / (images * s), s }
}

fn norms() -> Vec<Kernel> {
    const EPS: f64 = 1e-5;
    vec![
        Kernel::new("layer norm", [1.0, 0.0, 1.0], |n| {
            let (x, mut y, [scale, bias]) = (values(n), zeros(n), [(); 2].map(|()| values(ROW)));
            Box::new(move |pool| layer_norm(pool, ROW, EPS, &x, &scale, &bias, &mut y))
        }),
        Kernel::new("layer norm backward", [2.0, 0.0, 1.0], |n| {
            let (x, dy, mut dx, scale) = (values(n), values(n), zeros(n), values(ROW));
            let [mut dscale, mut dbias] = [(); 2].map(|()| zeros(ROW));
            let mut ws = zeros(layer_norm_grad_workspace_elems(n / ROW, ROW));
            Box::new(move |pool| {
                layer_norm_grad(pool, ROW, EPS, &x, &scale, &dy, &mut dx, &mut dscale, &mut dbias, &mut ws);
            })
        }),
        Kernel::new("batch norm", [1.0, 0.0, 1.0], |n| {
            let (d, x, mut y) = (batch(n), values(n), zeros(n));
            let ([scale, bias], [mut mean, mut var]) = ([(); 2].map(|()| values(d.c)), [(); 2].map(|()| zeros(d.c)));
            Box::new(move |pool| batch_norm(pool, d, EPS, &x, &scale, &bias, &mut y, &mut mean, &mut var))
        }),
        Kernel::new("batch norm backward", [2.0, 0.0, 1.0], |n| {
            let (d, x, dy, mut dx) = (batch(n), values(n), values(n), zeros(n));
            let (scale, mean, var) = (values(d.c), zeros(d.c), vec![1.0; d.c]);
            let [mut dscale, mut dbias] = [(); 2].map(|()| zeros(d.c));
            Box::new(move |pool| {
                batch_norm_grad(pool, d, EPS, &x, &scale, &mean, &var, &dy, &mut dx, &mut dscale, &mut dbias);
            })
        }),
    ]
}

fn pools() -> Vec<Kernel> {
    /// Windows of 2 under a stride of 2.
    const HALVES: Axis =
        Axis { size: SIDE, out: SIDE / 2, kind: AxisKind::Sliding { kernel: 2, stride: 2, before: 0, after: 0 } };
    vec![
        Kernel::new("max pool 2x2", [1.0, 0.0, 0.25], |n| {
            let (x, mut y) = (values(n), zeros(n / 4));
            Box::new(move |pool| max_pool(pool, HALVES, HALVES, &x, &mut y))
        }),
        Kernel::new("max pool 2x2 backward", [1.25, 0.0, 1.0], |n| {
            let (x, dy, mut dx) = (values(n), values(n / 4), zeros(n));
            Box::new(move |pool| max_pool_grad(pool, HALVES, HALVES, &x, &dy, &mut dx))
        }),
        Kernel::new("average pool 2x2", [1.0, 0.0, 0.25], |n| {
            let (x, mut y) = (values(n), zeros(n / 4));
            Box::new(move |pool| avg_pool(pool, HALVES, HALVES, false, &x, &mut y))
        }),
        Kernel::new("average pool 2x2 backward", [0.25, 0.0, 1.0], |n| {
            let (dy, mut dx) = (values(n / 4), zeros(n));
            Box::new(move |pool| avg_pool_grad(pool, HALVES, HALVES, false, &dy, &mut dx))
        }),
    ]
}

/// Every row of an embedding once, far from the last.
fn scattered(rows: usize) -> Vec<i64> {
    // a prime that does not divide `rows` permutes the numbers below
    (0..rows).map(|i| (i * 7919 % rows) as i64).collect()
}

fn moves() -> Vec<Kernel> {
    vec![
        Kernel::new("transpose", [1.0, 0.0, 1.0], |n| {
            let layout = Layout::contiguous([n / ROW, ROW]).permute(&[1, 0]).expect("two axes");
            let (x, mut y) = (values(n), zeros(n));
            Box::new(move |pool| copy(pool, &x, &layout, &mut y))
        }),
        Kernel::new("rows of an embedding", [1.0, 0.0, 1.0], |n| {
            let (x, mut y, index) = (values(n), zeros(n), scattered(n / EMBEDDING));
            Box::new(move |pool| {
                take(pool, &x, n / EMBEDDING, EMBEDDING, Indices::I64(&index), &mut y).expect("rows of the embedding");
            })
        }),
        Kernel::new("embedding backward", [1.0, 0.0, 1.0], |n| {
            let (dy, mut y, index) = (values(n), zeros(n), scattered(n / EMBEDDING));
            Box::new(move |pool| {
                let index = Indices::I64(&index);
                take_grad(pool, &dy, n / EMBEDDING, EMBEDDING, index, &mut y).expect("rows of the embedding");
            })
        }),
    ]
}

fn updates() -> Vec<Kernel> {
    const STREAM: Stream = Stream { key: 1, stream: 2 };
    vec![
        Kernel::new("SGD with momentum", [1.0, 2.0, 0.0], |n| {
            let step =
                Sgd { lr: 1e-6, momentum: 0.9, dampening: 0.0, nesterov: false, weight_decay: 1e-4, maximize: false };
            let (grad, mut param, mut buffer) = (values(n), values(n), zeros(n));
            Box::new(move |pool| sgd(pool, step, &mut param, &mut buffer, &grad))
        }),
        Kernel::new("AdamW", [1.0, 3.0, 0.0], |n| {
            let (beta1, beta2, step) = (0.9, 0.999, 10.0);
            let step = Adam { lr: 1e-6, beta1, beta2, eps: 1e-8, weight_decay: 1e-2, decoupled: true, step };
            let (grad, mut param, mut m, mut v) = (values(n), values(n), zeros(n), zeros(n));
            Box::new(move |pool| adam(pool, step, &mut param, &mut m, &mut v, &grad))
        }),
        Kernel::new("uniform random numbers", [0.0, 0.0, 1.0], |n| {
            let mut y = zeros(n);
            Box::new(move |pool| uniform(pool, STREAM, 0.0, 1.0, &mut y))
        }),
        Kernel::new("normal random numbers", [0.0, 0.0, 1.0], |n| {
            let mut y = zeros(n);
            Box::new(move |pool| normal(pool, STREAM, 0.0, 1.0, &mut y))
        }),
    ]
}
