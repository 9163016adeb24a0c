use remat_graph::ir::{Builder, Graph, ValueId};
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Compare, CompareFn, Unary, UnaryFn};
use remat_ops::{OpRef, Sample};
use remat_types::{DType, Element, ErrorKind, Fact, HostTensor, Shape};

use super::{Body, Call, Loop, Switch};

/// A body under construction. An op that does not fit is a mistake in the sample.
pub(super) struct Make(pub(super) Builder);

impl Make {
    pub(super) fn new() -> Make {
        Make(Builder::new())
    }

    pub(super) fn input(&self, dtype: DType, dims: &[usize]) -> ValueId {
        self.0.input(Fact::new(dtype, dims), None)
    }

    pub(super) fn op(&self, op: impl Into<OpRef>, x: &[ValueId]) -> ValueId {
        self.0.node(op.into(), x, None).expect("a sample's op fits")[0]
    }

    pub(super) fn un(&self, f: UnaryFn, x: ValueId) -> ValueId {
        self.op(Unary { f }, &[x])
    }

    pub(super) fn bin(&self, f: BinaryFn, a: ValueId, b: ValueId) -> ValueId {
        self.op(Binary { f }, &[a, b])
    }

    pub(super) fn constant<T: Element>(&self, v: T) -> ValueId {
        self.0.constant(&HostTensor::scalar(v))
    }

    pub(super) fn graph(self, y: &[ValueId]) -> Graph {
        y.iter().enumerate().for_each(|(i, v)| self.0.output(*v, &format!("y{i}")));
        self.0.finish().expect("a sample's graph is valid")
    }

    pub(super) fn body(self, y: &[ValueId]) -> Body {
        Body::new(self.graph(y)).expect("a sample's graph has no states")
    }
}

fn t<T: Element>(data: &[T], shape: impl Into<Shape>) -> HostTensor {
    HostTensor::from_slice(data, shape).expect("a sample's data fills its shape")
}

/// `(tanh(x w), x w)`
fn layer() -> Body {
    let m = Make::new();
    let (x, w) = (m.input(DType::F64, &[2, 3]), m.input(DType::F64, &[3, 3]));
    let product = m.op(MatMul {}, &[x, w]);
    let y = m.un(UnaryFn::Tanh, product);
    m.body(&[y, product])
}

fn given() -> [HostTensor; 2] {
    let x = t(&[0.5f64, -1.0, 0.25, 2.0, -0.5, 1.0], [2, 3]);
    let w = t(&[0.5f64, 0.0, -1.0, 0.25, 1.0, 0.0, -0.5, 0.75, 0.5], [3, 3]);
    [x, w]
}

pub(super) fn calls() -> Vec<Sample<Call>> {
    let [x, w] = given();
    let product = [-0.125f64, -0.8125, -0.375, 0.375, 0.25, -1.5];
    let call = || Call { body: layer() };
    let outer = {
        let m = Make::new();
        let (x, w) = (m.input(DType::F64, &[2, 3]), m.input(DType::F64, &[3, 3]));
        let y = m.op(Call { body: layer() }, &[m.un(UnaryFn::Neg, x), w]);
        m.body(&[y])
    };
    vec![
        Sample::new(call(), vec![x.clone(), w.clone()])
            .gives(vec![t(&product.map(f64::tanh), [2, 3]), t(&product, [2, 3])]),
        Sample::new(Call { body: outer }, vec![x.clone(), w.clone()])
            .gives(vec![t(&product.map(|v| (-v).tanh()), [2, 3])]),
        Sample::new(call(), vec![x.clone()]).fails(ErrorKind::Arity),
        Sample::new(call(), vec![w, x]).fails(ErrorKind::Shape),
    ]
}

/// `f(a)`, and `a b`
fn branch(f: UnaryFn) -> Body {
    let m = Make::new();
    let (a, b) = (m.input(DType::F64, &[3]), m.input(DType::F64, &[3]));
    let y = [m.un(f, a), m.bin(BinaryFn::Mul, a, b)];
    m.body(&y)
}

pub(super) fn choices() -> Vec<Sample<Switch>> {
    let op = || Switch { branches: vec![branch(UnaryFn::Exp), branch(UnaryFn::Neg)] };
    let three = || Switch { branches: vec![branch(UnaryFn::Exp), branch(UnaryFn::Neg), branch(UnaryFn::Square)] };
    let (a, b) = (t(&[0.5f64, -1.0, 2.0], [3]), t(&[2.0f64, 3.0, -0.5], [3]));
    let product = t(&[1.0f64, -3.0, -1.0], [3]);
    let other = {
        let m = Make::new();
        let (a, _) = (m.input(DType::F64, &[3]), m.input(DType::F64, &[3]));
        m.body(&[a])
    };
    let with = |choice: HostTensor| vec![choice, a.clone(), b.clone()];
    vec![
        Sample::new(op(), with(t(&[true], []))).gives(vec![t(&[-0.5f64, 1.0, -2.0], [3]), product.clone()]),
        Sample::new(op(), with(t(&[false], [])))
            .gives(vec![t(&[0.5f64, -1.0, 2.0].map(f64::exp), [3]), product.clone()]),
        Sample::new(three(), with(t(&[2i64], []))).gives(vec![t(&[0.25f64, 1.0, 4.0], [3]), product]),
        Sample::new(op(), with(t(&[2i64], []))).fails(ErrorKind::Index),
        Sample::new(op(), with(t(&[-1i64], []))).fails(ErrorKind::Index),
        Sample::new(three(), with(t(&[true], []))).fails(ErrorKind::DType),
        Sample::new(op(), with(t(&[true], [1]))).fails(ErrorKind::Shape),
        Sample::new(op(), vec![]).fails(ErrorKind::Arity),
        Sample::new(Switch { branches: vec![] }, with(t(&[0i64], []))).fails(ErrorKind::Value),
        Sample::new(Switch { branches: vec![branch(UnaryFn::Exp), other] }, with(t(&[0i64], [])))
            .fails(ErrorKind::Shape),
    ]
}

/// `s' = s w + row`, and `row s'` for each step.
fn recurrence(reverse: bool, counted: bool, trips: usize) -> Loop {
    let m = Make::new();
    m.input(DType::I64, &[]);
    let (s, row, w) = (m.input(DType::F64, &[2]), m.input(DType::F64, &[2]), m.input(DType::F64, &[2]));
    let next = m.bin(BinaryFn::Add, m.bin(BinaryFn::Mul, s, w), row);
    let out = m.bin(BinaryFn::Mul, row, next);
    Loop { body: m.body(&[next, out]), trips, carried: 1, sliced: 1, reverse, counted, conditional: false }
}

/// Doubles until the first element passes a limit; the second carried value counts the steps.
fn doubling(trips: usize) -> Loop {
    let m = Make::new();
    m.input(DType::I64, &[]);
    let (s, n) = (m.input(DType::F64, &[1]), m.input(DType::I64, &[]));
    let limit = m.input(DType::F64, &[1]);
    let next = m.bin(BinaryFn::Add, s, s);
    let n = m.bin(BinaryFn::Add, n, m.constant(1i64));
    let below = m.op(Compare { f: CompareFn::Lt }, &[next, limit]);
    let go_on = m.op(remat_ops::shape::Reshape { shape: Shape::scalar() }, &[below]);
    let square = m.un(UnaryFn::Square, next);
    let body = m.body(&[next, n, square, go_on]);
    Loop { body, trips, carried: 2, sliced: 0, reverse: false, counted: false, conditional: true }
}

/// The step's number, cubed.
fn cubes() -> Loop {
    let m = Make::new();
    let k = m.input(DType::I64, &[]);
    let cube = m.bin(BinaryFn::Mul, k, m.bin(BinaryFn::Mul, k, k));
    Loop { body: m.body(&[cube]), trips: 4, carried: 0, sliced: 0, reverse: false, counted: false, conditional: false }
}

pub(super) fn loops() -> Vec<Sample<Loop>> {
    let (s, w) = (t(&[1.0f64, -0.5], [2]), t(&[0.5f64, 2.0], [2]));
    let rows = || t(&[1.0f64, 2.0, -3.0, 0.5, 0.25, -1.0], [3, 2]);
    let x = || vec![s.clone(), rows(), w.clone()];
    let counted = |n: i64| vec![s.clone(), rows(), w.clone(), t(&[n], [])];
    // s: 1.5 1 | -2.25 2.5 | -0.875 4
    let forward = vec![t(&[-0.875f64, 4.0], [2]), t(&[1.5f64, 2.0, 6.75, 1.25, -0.21875, -4.0], [3, 2])];
    // s: 0.75 -2 | -2.625 -3.5 | -0.3125 -5
    let backward = vec![t(&[-0.3125f64, -5.0], [2]), t(&[-0.3125f64, -10.0, 7.875, -1.75, 0.1875, 2.0], [3, 2])];
    let two = vec![t(&[-2.25f64, 2.5], [2]), t(&[1.5f64, 2.0, 6.75, 1.25, 0.0, 0.0], [3, 2])];
    let two_back = vec![t(&[-0.25f64, 1.0], [2]), t(&[-0.25f64, 2.0, 7.5, -0.25, 0.0, 0.0], [3, 2])];
    let start = |limit: f64| vec![t(&[0.75f64], [1]), t(&[0i64], []), t(&[limit], [1])];
    let squares = t(&[2.25f64, 9.0, 36.0, 0.0, 0.0], [5, 1]);
    let doubled = vec![t(&[6.0f64], [1]), t(&[3i64], []), squares, t(&[3i64], [])];
    let mut broken = recurrence(false, false, 3);
    broken.carried = 2;
    vec![
        Sample::new(recurrence(false, false, 3), x()).gives(forward.clone()),
        Sample::new(recurrence(true, false, 3), x()).gives(backward),
        Sample::new(recurrence(false, true, 3), counted(2)).gives(two),
        Sample::new(recurrence(true, true, 3), counted(2)).gives(two_back),
        Sample::new(recurrence(false, true, 3), counted(9)).gives(forward),
        Sample::new(recurrence(false, true, 3), counted(-1))
            .gives(vec![s.clone(), t(&[0.0f64; 6], [3, 2])])
            .grad_of(&[0]),
        Sample::new(recurrence(false, false, 0), vec![s.clone(), t::<f64>(&[], [0, 2]), w.clone()])
            .gives(vec![s.clone(), t::<f64>(&[], [0, 2])])
            .grad_of(&[0]),
        Sample::new(doubling(5), start(5.0)).gives(doubled).grad_of(&[0]),
        Sample::new(doubling(2), start(99.0))
            .gives(vec![t(&[3.0f64], [1]), t(&[2i64], []), t(&[2.25f64, 9.0], [2, 1]), t(&[2i64], [])])
            .grad_of(&[0]),
        Sample::new(cubes(), vec![]).gives(vec![t(&[0i64, 1, 8, 27], [4])]),
        Sample::new(recurrence(false, false, 4), x()).fails(ErrorKind::Shape),
        Sample::new(recurrence(false, false, 3), vec![s.clone()]).fails(ErrorKind::Arity),
        Sample::new(Loop { reverse: true, ..doubling(5) }, start(5.0)).fails(ErrorKind::Value),
        Sample::new(Loop { conditional: true, ..recurrence(false, false, 3) }, x()).fails(ErrorKind::DType),
        Sample::new(Loop { sliced: 9, ..recurrence(false, false, 3) }, x()).fails(ErrorKind::Arity),
        Sample::new(broken, x()).fails(ErrorKind::Shape),
    ]
}
