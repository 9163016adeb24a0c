use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Compare, CompareFn, Unary, UnaryFn, Where};
use remat_ops::reduce::{Reduce, ReduceFn};
use remat_ops::shape::{BroadcastTo, Reshape, Slice};
use remat_ops::{EvalCx, GradCx, Grads, Op, OpDef, OpRef, Sample};
use remat_types::{DType, ErrorKind, Fact, Facts, HostTensor, Shape};

use super::*;
use crate::ir::{Builder, ShapeDepends};

struct Make(Builder);

impl Make {
    fn op(&self, op: impl Into<OpRef>, x: &[ValueId]) -> ValueId {
        self.0.node(op.into(), x, None).expect("fits")[0]
    }

    fn input(&self, dims: &[usize], name: &str) -> ValueId {
        self.0.input(Fact::new(DType::F32, dims), Some(name))
    }
}

/// A net over `[b, t, 3]`: rows flattened, a product, a shift of the last row but one, means and their gradient.
fn net(b: usize, t: usize) -> Result<Graph> {
    let m = Make(Builder::new());
    let x = m.input(&[b, t, 3], "x");
    let w = m.0.state(Fact::new(DType::F32, [3, 5]), Some("w"));
    let flat = m.op(Reshape { shape: [b * t, 3].into() }, &[x]);
    let y = m.op(MatMul {}, &[flat, w]);
    let y = m.op(Reshape { shape: [b, t, 5].into() }, &[y]);
    let row = m.op(Slice { axis: 1, start: t - 2, len: 1, step: 1 }, &[y]);
    let row = m.op(BroadcastTo { shape: [b, t, 5].into() }, &[row]);
    let y = m.op(Binary { f: BinaryFn::Sub }, &[y, row]);
    let mean = Reduce { f: ReduceFn::Mean, axes: [0usize, 1].into_iter().collect(), keepdims: false };
    let mean = m.op(mean, &[y]);
    m.0.output(mean, "mean");
    m.0.output(y, "y");
    let g = m.0.finish()?;
    // with the gradient of the mean, which divides by the number of rows
    let b = Builder::new();
    let given: Vec<ValueId> = [x, w].iter().map(|v| b.input(g.fact(*v).clone(), None)).collect();
    let loss = || -> Result<Graph> {
        let m = Builder::new();
        let y = m.input(g.fact(g.outputs()[1].value).clone(), None);
        let mean = g.node(g.producer(mean).expect("a node")).op.clone();
        m.output(m.node(mean, &[y], None)?[0], "mean");
        m.finish()?.gradient(&[true], &[true])
    };
    let dy = b.input(Fact::new(DType::F32, [5]), None);
    let rows = b.input(g.fact(g.outputs()[1].value).clone(), None);
    let dx = loss()?.inline(&b, &[rows, dy])?;
    b.output(dx[0], "dy");
    b.output(given[0], "x");
    b.finish()
}

/// [`net`]'s forward part alone.
fn forward(b: usize, t: usize) -> Result<Graph> {
    let m = Make(Builder::new());
    let x = m.input(&[b, t, 3], "x");
    let flat = m.op(Reshape { shape: [b * t, 3].into() }, &[x]);
    let y = m.op(Unary { f: UnaryFn::Tanh }, &[flat]);
    let y = m.op(Slice { axis: 0, start: 0, len: b * t - t + 1, step: 1 }, &[y]);
    m.0.output(y, "y");
    m.0.finish()
}

fn dims() -> [Dim; 2] {
    [Dim::new("b", 1, 64), Dim::new("t", 2, 40)]
}

#[test]
fn a_graph_for_any_sizes_is_the_one_that_tracing_would_make() {
    for make in [net, forward] {
        let mut traces = 0;
        let s = Symbolic::new(&dims(), &Registry::builtin(), |n| {
            traces += 1;
            make(n[0], n[1])
        });
        let s = s.expect("follows from its sizes");
        for (b, t) in [(1, 2), (7, 5), (64, 40), (33, 2)] {
            let traced = make(b, t).expect("valid");
            let own = s.instantiate(&[b, t]).expect("within bounds");
            assert_eq!(own.to_text().expect("text"), traced.to_text().expect("text"), "b = {b}, t = {t}");
        }
        assert_eq!(traces, 7, "four corners and three checks");
    }
}

#[test]
fn extents_are_polynomials_of_the_symbols() {
    let s = Symbolic::new(&dims(), &Registry::builtin(), |n| forward(n[0], n[1])).expect("follows");
    let g = s.example();
    let texts: Vec<String> = g.nodes().iter().map(|n| s.shape_text(n.y[0])).collect();
    assert_eq!(s.shape_text(g.inputs()[0]), "[b, t, 3]");
    assert_eq!(texts, ["[b t, 3]", "[b t, 3]", "[b t - t + 1, 3]"]);
    let y = g.outputs()[0].value;
    assert_eq!(s.extents(y)[0].at(&[5, 7]), Some(29));
    assert_eq!((s.extents(y)[0].constant(), s.extents(y)[1].constant()), (None, Some(3)));
}

#[test]
fn what_does_not_follow_from_sizes_is_an_error() {
    let one = [Dim::new("n", 2, 50)];
    let of = |make: &dyn Fn(usize) -> Result<Graph>| {
        let s = Symbolic::new(&one, &Registry::builtin(), |n| make(n[0]));
        s.map(|_| ()).expect_err("an error")
    };
    let unary = |f: UnaryFn, n: usize| {
        let m = Make(Builder::new());
        let y = m.op(Unary { f }, &[m.input(&[n], "x")]);
        m.0.output(y, "y");
        m.0.finish()
    };
    // another op beyond a threshold, another number of nodes, a quadratic extent, a constant
    let e = of(&|n| unary(if n > 40 { UnaryFn::Exp } else { UnaryFn::Tanh }, n));
    assert!(e.to_string().contains("something else"), "{e}");
    let twice = |n: usize| {
        let m = Make(Builder::raw());
        let x = m.input(&[n], "x");
        let y = (0..n).fold(x, |y, _| m.op(Unary { f: UnaryFn::Neg }, &[y]));
        m.0.output(y, "y");
        m.0.finish()
    };
    assert_eq!(of(&twice).kind(), ErrorKind::Value);
    let square = |n: usize| {
        let m = Make(Builder::new());
        let y = m.op(Reshape { shape: [n * n].into() }, &[m.input(&[n, n], "x")]);
        m.0.output(y, "y");
        m.0.finish()
    };
    assert_eq!(of(&square).kind(), ErrorKind::Value);
    let constant = |n: usize| {
        let m = Make(Builder::new());
        let c = m.0.constant(&HostTensor::scalar((n as f32).sqrt()));
        let y = m.op(Binary { f: BinaryFn::Mul }, &[m.input(&[n], "x"), c]);
        m.0.output(y, "y");
        m.0.finish()
    };
    assert!(of(&constant).to_string().contains("constant"));
}

#[test]
fn constants_of_one_element_follow_sizes_as_counts_and_their_reciprocals() {
    let make = |n: usize| {
        let m = Make(Builder::new());
        let x = m.input(&[n, 4], "x");
        let of = |v: f64, dtype| m.0.constant(&HostTensor::from_f64_slice(&[v], dtype, []).expect("fits"));
        let (count, share) = (of(4.0 * n as f64, DType::F32), of(1.0 / (4.0 * n as f64 - 1.0), DType::F32));
        let y = m.op(Binary { f: BinaryFn::Mul }, &[m.op(Binary { f: BinaryFn::Mul }, &[x, count]), share]);
        m.0.output(y, "y");
        m.0.output(of(n as f64 * 7.0, DType::I64), "n");
        m.0.finish()
    };
    let s = Symbolic::new(&[Dim::new("n", 1, 3000)], &Registry::builtin(), |n| make(n[0])).expect("follows");
    for n in [1, 7, 1024, 2999] {
        let own = s.instantiate(&[n]).expect("within bounds");
        assert_eq!(own.to_text().expect("text"), make(n).expect("valid").to_text().expect("text"), "{n}");
    }
}

#[test]
fn bounds_are_kept() {
    let registry = Registry::builtin();
    let make = |n: &[usize]| forward(n[0], 3);
    let s = Symbolic::new(&[Dim::new("b", 2, 9)], &registry, make).expect("follows");
    for bad in [&[1usize][..], &[10], &[2, 2], &[]] {
        assert!(s.instantiate(bad).is_err(), "{bad:?}");
    }
    for dims in [vec![Dim::new("b", 5, 7)], vec![Dim::new("b", 0, 9), Dim::new("b", 0, 9)], vec![dims()[0].clone(); 4]]
    {
        let e = Symbolic::new(&dims, &registry, make).map(|_| ()).expect_err("an error");
        assert_eq!(e.kind(), ErrorKind::Value, "{e}");
    }
}

#[test]
fn shapes_depend_on_shapes_and_where_ops_say_so_on_elements() {
    let m = Make(Builder::new());
    let (a, b, c) = (m.input(&[4], "a"), m.input(&[4], "b"), m.input(&[2], "c"));
    let sum = m.op(Binary { f: BinaryFn::Add }, &[a, b]);
    let mask = m.op(Compare { f: CompareFn::Gt }, &[sum, a]);
    let chosen = m.op(Where, &[mask, a, b]);
    let other = m.op(Unary { f: UnaryFn::Neg }, &[c]);
    m.0.output(chosen, "y");
    m.0.output(other, "z");
    let g = m.0.finish().expect("valid");
    let of = |v: ValueId| g.shape_depends(v);
    assert_eq!((of(chosen).shapes, of(chosen).values), (vec![0, 1], vec![]));
    assert_eq!((of(other).shapes, of(a).shapes), (vec![2], vec![0]));
}

/// As many zeros as its input says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
struct Zeros;

impl Op for Zeros {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let n = x[0].value.as_ref().and_then(|v| v.item::<i64>().ok()).unwrap_or(3);
        Ok(std::iter::once(Fact::new(DType::F32, [n as usize])).collect())
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        cx.y[0].bytes_mut().fill(0);
        Ok(())
    }

    fn grad(&self, _: &mut GradCx<'_>) -> Result<Grads> {
        Ok(std::iter::once(None).collect())
    }

    fn host_inputs(&self) -> &'static [usize] {
        &[0]
    }
}

impl remat_ops::schema::Params for Zeros {}

impl OpDef for Zeros {
    const NAME: &'static str = "test_zeros";

    fn samples() -> Vec<Sample<Self>> {
        Vec::new()
    }
}

#[test]
fn elements_decide_the_shape_of_what_an_op_of_host_inputs_gives() {
    let m = Make(Builder::new());
    let n = m.0.input(Fact::new(DType::I64, Shape::scalar()), Some("n"));
    let (k, x) = (m.0.input(Fact::new(DType::I64, Shape::scalar()), Some("k")), m.input(&[1], "x"));
    let sum = m.op(Binary { f: BinaryFn::Add }, &[n, k]);
    let y = m.op(Binary { f: BinaryFn::Add }, &[m.op(Zeros, &[sum]), x]);
    m.0.output(y, "y");
    let g = m.0.finish().expect("valid");
    assert_eq!(g.shape_depends(y), ShapeDepends { shapes: vec![0, 1, 2], values: vec![0, 1] });
    assert_eq!(g.shape_depends(sum).values, Vec::<usize>::new());
}
