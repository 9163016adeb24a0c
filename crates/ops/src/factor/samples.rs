//! Samples of the family.

use remat_types::{ErrorKind, HostTensor};

use super::{Cholesky, Eigh, Pinv, Qr, SlogDet, Solve, SolveTriangular, Svd};
use crate::sample::t;
use crate::{OpDef, Sample};

const SMALLER: &str = "the smaller ones check it";

fn wave(shape: &[usize], from: usize) -> HostTensor {
    let n: usize = shape.iter().product();
    let data: Vec<f64> = (from..from + n).map(|i| (i as f64 * 1.7).sin() + 0.1 * (i % 3) as f64).collect();
    t(&data, shape)
}

/// Symmetric with eigenvalues that are positive and differ: `4 + i` on the diagonal, waves of at most 0.4 beside it.
fn positive(batch: usize, n: usize) -> HostTensor {
    let at = |b: usize, i: usize, j: usize| {
        let (low, high) = (i.min(j), i.max(j));
        if i == j { 4.0 + i as f64 + b as f64 } else { 0.4 * ((b + 3 * low + 7 * high) as f64).sin() }
    };
    let data: Vec<f64> = (0..batch * n * n).map(|k| at(k / (n * n), k / n % n, k % n)).collect();
    t(&data, [batch, n, n])
}

/// Waves with a diagonal of 2, 3 and so on: of full rank, with singular values that differ.
fn tame(shape: &[usize]) -> HostTensor {
    let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let at = |k: usize| {
        let (i, j) = (k / n % m, k % n);
        0.3 * (k as f64 * 1.7).sin() + if i == j { 2.0 + i as f64 } else { 0.0 }
    };
    let data: Vec<f64> = (0..shape.iter().product()).map(at).collect();
    t(&data, shape)
}

fn none(shape: &[usize]) -> HostTensor {
    t::<f64>(&[], shape)
}

impl OpDef for Cholesky {
    const NAME: &'static str = "cholesky";

    fn samples() -> Vec<Sample<Self>> {
        let op = Cholesky {};
        vec![
            // above the diagonal nothing is read
            Sample::new(op.clone(), vec![t(&[4.0f64, 99.0, 2.0, 10.0], [2, 2])])
                .gives(vec![t(&[2.0f64, 0.0, 1.0, 3.0], [2, 2])]),
            Sample::new(op.clone(), vec![t(&[9.0f32], [1, 1])]).gives(vec![t(&[3.0f32], [1, 1])]),
            Sample::new(op.clone(), vec![positive(2, 3)]),
            Sample::new(op.clone(), vec![positive(1, 40)]).no_grad(SMALLER),
            Sample::new(op.clone(), vec![none(&[2, 0, 0])]).gives(vec![none(&[2, 0, 0])]),
            Sample::new(op.clone(), vec![t(&[1.0f32; 6], [2, 3])]).fails(ErrorKind::Shape),
            Sample::new(op.clone(), vec![t(&[1.0f32; 2], [2])]).fails(ErrorKind::Axis),
            Sample::new(op, vec![t(&[1i32], [1, 1])]).fails(ErrorKind::DType),
        ]
    }
}

impl OpDef for Solve {
    const NAME: &'static str = "solve";

    fn samples() -> Vec<Sample<Self>> {
        let op = |transpose| Solve { transpose };
        let (a, b) = (|| t(&[0.0f64, 2.0, 1.0, 1.0], [2, 2]), || t(&[4.0f64, 3.0], [2, 1]));
        vec![
            Sample::new(op(false), vec![a(), b()]).gives(vec![t(&[1.0f64, 2.0], [2, 1])]),
            Sample::new(op(true), vec![a(), b()]).gives(vec![t(&[-0.5f64, 4.0], [2, 1])]),
            Sample::new(op(false), vec![positive(2, 3), wave(&[2, 3, 2], 4)]),
            Sample::new(op(true), vec![positive(2, 3), wave(&[2, 3, 2], 4)]),
            Sample::new(op(false), vec![positive(1, 33), wave(&[1, 33, 5], 4)]).no_grad(SMALLER),
            Sample::new(op(false), vec![positive(1, 2), none(&[1, 2, 0])])
                .gives(vec![none(&[1, 2, 0])])
                .no_grad("empty"),
            Sample::new(op(false), vec![a(), t(&[1.0f64; 3], [3, 1])]).fails(ErrorKind::Shape),
            Sample::new(op(false), vec![positive(2, 2), b()]).fails(ErrorKind::Shape),
            Sample::new(op(false), vec![a(), t(&[1.0f32; 2], [2, 1])]).fails(ErrorKind::DType),
            Sample::new(op(false), vec![a()]).fails(ErrorKind::Arity),
        ]
    }
}

impl OpDef for SolveTriangular {
    const NAME: &'static str = "solve_triangular";

    fn samples() -> Vec<Sample<Self>> {
        let op = |upper, unit, transpose| SolveTriangular { upper, unit, transpose };
        let a = || t(&[2.0f64, 3.0, 5.0, 4.0], [2, 2]);
        let b = || t(&[4.0f64, 22.0], [2, 1]);
        let y = |v: [f64; 2]| vec![t(&v, [2, 1])];
        let mut out = vec![
            Sample::new(op(false, false, false), vec![a(), b()]).gives(y([2.0, 3.0])),
            Sample::new(op(true, false, false), vec![a(), b()]).gives(y([-6.25, 5.5])),
            Sample::new(op(false, true, false), vec![a(), b()]).gives(y([4.0, 2.0])),
            Sample::new(op(true, true, true), vec![a(), b()]).gives(y([4.0, 10.0])),
            Sample::new(op(false, false, false), vec![a(), t(&[1.0f64], [1, 1])]).fails(ErrorKind::Shape),
            Sample::new(op(false, false, false), vec![wave(&[2, 3], 0), b()]).fails(ErrorKind::Shape),
            Sample::new(op(true, false, false), vec![positive(1, 33), wave(&[1, 33, 3], 2)]).no_grad(SMALLER),
        ];
        for upper in [false, true] {
            for unit in [false, true] {
                for transpose in [false, true] {
                    let x = vec![positive(2, 3), wave(&[2, 3, 2], 5)];
                    out.push(Sample::new(op(upper, unit, transpose), x));
                }
            }
        }
        out
    }
}

impl OpDef for SlogDet {
    const NAME: &'static str = "slogdet";

    fn samples() -> Vec<Sample<Self>> {
        let op = SlogDet {};
        let y = |sign: f64, log: f64| vec![t(&[sign], []), t(&[log], [])];
        vec![
            Sample::new(op.clone(), vec![t(&[0.0f64, 2.0, 3.0, 0.0], [2, 2])]).gives(y(-1.0, 6f64.ln())),
            Sample::new(op.clone(), vec![t(&[1.0f64, 2.0, 2.0, 4.0], [2, 2])])
                .gives(y(0.0, f64::NEG_INFINITY))
                .no_grad("singular"),
            Sample::new(op.clone(), vec![positive(2, 3)]),
            Sample::new(op.clone(), vec![none(&[0, 0])]).gives(y(1.0, 0.0)).no_grad("empty"),
            Sample::new(op, vec![wave(&[2, 3], 0)]).fails(ErrorKind::Shape),
        ]
    }
}

impl OpDef for Qr {
    const NAME: &'static str = "qr";

    fn samples() -> Vec<Sample<Self>> {
        let op = |complete| Qr { complete };
        vec![
            Sample::new(op(false), vec![tame(&[2, 3, 3])]),
            Sample::new(op(false), vec![tame(&[2, 4, 2])]),
            Sample::new(op(false), vec![tame(&[2, 4])]),
            Sample::new(op(true), vec![tame(&[2, 3])]),
            Sample::new(op(true), vec![tame(&[4, 2])]).no_grad("the rest of q is free"),
            Sample::new(op(false), vec![wave(&[40, 33], 3)]).no_grad(SMALLER),
            Sample::new(op(true), vec![none(&[2, 0])])
                .gives(vec![t(&[1.0f64, 0.0, 0.0, 1.0], [2, 2]), none(&[2, 0])])
                .no_grad("empty"),
            Sample::new(op(false), vec![none(&[0, 2])]).gives(vec![none(&[0, 0]), none(&[0, 2])]).no_grad("empty"),
            Sample::new(op(false), vec![t(&[1.0f32], [1])]).fails(ErrorKind::Axis),
            Sample::new(op(false), vec![t(&[1u8], [1, 1])]).fails(ErrorKind::DType),
        ]
    }
}

impl OpDef for Svd {
    const NAME: &'static str = "svd";

    fn samples() -> Vec<Sample<Self>> {
        let op = |vectors| Svd { vectors };
        vec![
            Sample::new(op(false), vec![t(&[3.0f64, 0.0, 0.0, -4.0], [2, 2])]).gives(vec![t(&[4.0f64, 3.0], [2])]),
            Sample::new(op(false), vec![tame(&[2, 3, 2])]),
            Sample::new(op(true), vec![tame(&[2, 3, 3])]),
            Sample::new(op(true), vec![tame(&[4, 2])]),
            Sample::new(op(true), vec![tame(&[2, 4])]),
            Sample::new(op(true), vec![wave(&[40, 33], 0)]).no_grad(SMALLER),
            Sample::new(op(true), vec![none(&[0, 2])])
                .gives(vec![none(&[0, 0]), none(&[0]), none(&[0, 2])])
                .no_grad("empty"),
            Sample::new(op(true), vec![t(&[1.0f32], [1])]).fails(ErrorKind::Axis),
        ]
    }
}

impl OpDef for Eigh {
    const NAME: &'static str = "eigh";

    fn samples() -> Vec<Sample<Self>> {
        let op = |vectors| Eigh { vectors };
        vec![
            Sample::new(op(false), vec![t(&[2.0f64, 99.0, 1.0, 2.0], [2, 2])]).gives(vec![t(&[1.0f64, 3.0], [2])]),
            Sample::new(op(false), vec![positive(2, 3)]),
            Sample::new(op(true), vec![positive(2, 3)]),
            Sample::new(op(true), vec![positive(1, 40)]).no_grad(SMALLER),
            Sample::new(op(true), vec![none(&[0, 0])]).gives(vec![none(&[0]), none(&[0, 0])]).no_grad("empty"),
            Sample::new(op(true), vec![wave(&[2, 3], 0)]).fails(ErrorKind::Shape),
        ]
    }
}

impl OpDef for Pinv {
    const NAME: &'static str = "pinv";

    fn samples() -> Vec<Sample<Self>> {
        let op = |rcond: f64| Pinv { rcond: rcond.into() };
        vec![
            Sample::new(op(1e-12), vec![t(&[2.0f64, 0.0, 0.0, 0.0], [2, 2])])
                .gives(vec![t(&[0.5f64, 0.0, 0.0, 0.0], [2, 2])])
                .no_grad("a change may raise the rank"),
            Sample::new(op(1e-12), vec![tame(&[2, 3, 3])]),
            Sample::new(op(1e-12), vec![tame(&[4, 2])]),
            Sample::new(op(1e-12), vec![tame(&[2, 4])]),
            Sample::new(op(1e-12), vec![none(&[0, 2])]).gives(vec![none(&[2, 0])]).no_grad("empty"),
            Sample::new(op(-1.0), vec![wave(&[2, 2], 0)]).fails(ErrorKind::Value),
            Sample::new(op(1e-12), vec![t(&[1.0f32], [1])]).fails(ErrorKind::Axis),
        ]
    }
}
