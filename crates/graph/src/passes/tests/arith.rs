//! Passes that move work to fewer elements, other orders, other places and other dtypes.

use remat_ops::pointwise::{Compare, CompareFn};
use remat_ops::reduce::{Reduce, ReduceFn};

use super::*;

/// The graph after all passes of a level; every result within what the passes may move.
#[track_caller]
fn after(g: &Graph, x: &[HostTensor], options: PassOptions) -> Graph {
    let cx = PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) };
    assert_eq!(verify(g, x, &[], &cx).expect("computes"), None);
    optimize(g.clone(), &cx).expect("patches fit").0
}

fn level(level: u8) -> PassOptions {
    PassOptions { level, ..Default::default() }
}

/// Elements that all nodes but views give.
fn work(g: &Graph) -> usize {
    let is_view = |n: &crate::ir::Node| n.x.len() == 1 && n.op.view(&g.fact(n.x[0]).layout()).is_some();
    g.nodes().iter().filter(|n| !is_view(n)).map(|n| g.fact(n.y[0]).elems()).sum()
}

fn waves(dtype: DType, dims: &[usize]) -> HostTensor {
    let n: usize = dims.iter().product();
    let v: Vec<f64> = (0..n).map(|i| (i as f64 * 1.3).sin() * 9.0).collect();
    HostTensor::from_f64_slice(&v, dtype, dims).expect("fits")
}

fn given(g: &Graph) -> Vec<HostTensor> {
    g.inputs().iter().map(|v| waves(g.fact(*v).dtype, &g.fact(*v).shape)).collect()
}

impl Make {
    fn spread(&self, x: ValueId, dims: &[usize]) -> ValueId {
        self.op(BroadcastTo { shape: dims.into() }, &[x])
    }

    fn reduce(&self, f: ReduceFn, axes: &[usize], keepdims: bool, x: ValueId) -> ValueId {
        self.op(Reduce { f, axes: SmallVec::from_slice(axes), keepdims }, &[x])
    }
}

#[test]
fn broadcasts_wait_for_pointwise_work() {
    let m = Make::new();
    let (a, b) = (m.input(DType::F32, &[1, 5]), m.input(DType::F32, &[5]));
    let wide = m.un(UnaryFn::Tanh, m.spread(a, &[64, 5]));
    let sum = m.bin(BinaryFn::Mul, wide, m.spread(b, &[64, 5]));
    let y = m.op(Cast { dtype: DType::F64 }, &[m.un(UnaryFn::Neg, sum)]);
    let g = m.graph(&[y]);
    assert_eq!(work(&g), 4 * 320);
    let small = after(&g, &data(&g), level(1));
    assert_eq!(work(&small), 4 * 5);
    assert_eq!(small.nodes().last().expect("some").op.label(), "broadcast_to");
    assert_eq!(work(&after(&g, &data(&g), level(0))), 4 * 320);
}

#[test]
fn a_broadcast_along_one_operand_goes_and_one_that_saves_nothing_stays() {
    let m = Make::new();
    let (a, row) = (m.input(DType::F32, &[4, 5]), m.input(DType::F32, &[5]));
    let y = m.bin(BinaryFn::Sub, a, m.spread(row, &[4, 5]));
    let thin = m.un(UnaryFn::Exp, m.spread(row, &[1, 5]));
    let labels: Vec<&str> =
        after(&m.graph(&[y, thin]), &[waves(DType::F32, &[4, 5]), waves(DType::F32, &[5])], level(1))
            .nodes()
            .iter()
            .map(|n| n.op.label())
            .collect();
    assert_eq!(labels, ["sub", "broadcast_to", "exp"]);
}

#[test]
fn integer_sums_of_broadcasts_are_taken_before_them() {
    for (axes, keepdims) in [(&[0usize][..], false), (&[1], true), (&[2, 0], false), (&[0, 1, 2], true), (&[], false)] {
        for f in [ReduceFn::Sum, ReduceFn::SumSqr, ReduceFn::Max, ReduceFn::Min] {
            let m = Make::new();
            let x = m.input(DType::I8, &[3, 1]);
            let y = m.reduce(f, axes, keepdims, m.spread(x, &[300, 3, 4]));
            let g = m.graph(&[y]);
            let small = after(&g, &given(&g), level(1));
            assert!(small.nodes().iter().all(|n| n.op.label() != f_label(f) || small.fact(n.x[0]).elems() == 3));
        }
    }
}

fn f_label(f: ReduceFn) -> &'static str {
    remat_ops::OpDef::label(&Reduce { f, axes: SmallVec::new(), keepdims: false })
}

#[test]
fn float_sums_of_broadcasts_move_at_level_3_only() {
    use ReduceFn::{Max, Mean, Min, Prod, Sum, SumSqr};
    for f in [Sum, Mean, SumSqr, Max, Min, Prod] {
        for (axes, keepdims) in [(&[0usize][..], false), (&[1, 2], true), (&[1], false)] {
            let m = Make::new();
            let x = m.input(DType::F32, &[7, 1]);
            let y = m.reduce(f, axes, keepdims, m.spread(x, &[3, 7, 4]));
            let g = m.graph(&[y]);
            let reads =
                |g: &Graph| g.nodes().iter().find(|n| n.op.label() == f_label(f)).map(|n| g.fact(n.x[0]).elems());
            assert_eq!(reads(&after(&g, &given(&g), level(2))), Some(84));
            let repeats = axes.iter().any(|a| *a != 1);
            let expected = if f == Prod && repeats { 84 } else { 7 };
            assert_eq!(reads(&after(&g, &given(&g), level(3))), Some(expected), "{f:?} over {axes:?}");
        }
    }
}

#[test]
fn chains_of_integers_take_constants_and_small_shapes_first() {
    for f in [BinaryFn::Add, BinaryFn::Mul] {
        let m = Make::new();
        let c = |v: &[i32]| m.0.constant(&HostTensor::from_slice(v, [v.len()]).expect("fits"));
        let (x, row) = (m.input(DType::I32, &[6, 4]), m.input(DType::I32, &[4]));
        let y = m.bin(f, m.bin(f, m.bin(f, x, c(&[i32::MAX])), row), c(&[1, 2, 3, 7]));
        let g = m.graph(&[y]);
        assert_eq!(work(&after(&g, &given(&g), level(2))), 24 + 4, "{f:?}: the row and the constants, then all");
        assert_eq!(work(&after(&g, &given(&g), level(1))), 72);
    }
}

#[test]
fn chains_of_floats_are_reordered_at_level_3_only() {
    let build = || {
        let m = Make::new();
        let (x, row) = (m.input(DType::F32, &[6, 4]), m.input(DType::F32, &[4]));
        let y = m.bin(BinaryFn::Mul, m.bin(BinaryFn::Mul, m.c(&[0.3]), x), m.bin(BinaryFn::Mul, row, m.c(&[0.7])));
        m.graph(&[y])
    };
    let g = build();
    let calls =
        |g: &Graph| g.nodes().iter().map(|n| n.op.downcast::<Fused>().map_or(1, |f| f.steps.len())).sum::<usize>();
    assert_eq!(calls(&after(&g, &given(&g), level(2))), 3);
    assert_eq!(calls(&after(&g, &given(&g), level(3))), 2, "one product of constants, row first");
}

#[test]
fn a_sum_that_others_read_is_not_taken_apart() {
    let m = Make::new();
    let (x, row) = (m.input(DType::I32, &[6, 4]), m.input(DType::I32, &[4]));
    let sum = m.bin(BinaryFn::Add, x, row);
    let y = m.bin(BinaryFn::Add, sum, row);
    let twice = m.bin(BinaryFn::Add, y, y);
    let g = m.graph(&[twice, sum]);
    assert_eq!(work(&after(&g, &given(&g), PassOptions { level: 1, ..level(1) })), 72);
    let cx = PassCx { options: &level(2), target: &cpu::Cpu, pool: &Pool::new(1) };
    assert!(reorder(&g, &cx).expect("a patch").is_empty());
}

/// A cast read at once and, after `between` products, again.
fn waiting_cast(from: DType, to: DType, between: usize, source_lives: bool) -> Graph {
    let m = Make::new();
    let (x, w) = (m.input(from, &[64, 64]), m.input(to, &[64, 64]));
    let x = m.op(Permute { order: SmallVec::from_slice(&[1, 0]) }, &[m.op(MatMul {}, &[x, x])]);
    let cast = m.op(Cast { dtype: to }, &[x]);
    let mut y = m.op(MatMul {}, &[cast, w]);
    for _ in 0..between {
        y = m.op(MatMul {}, &[y, w]);
    }
    y = m.op(MatMul {}, &[y, cast]);
    let mut results = vec![y];
    if source_lives {
        results.push(m.op(MatMul {}, &[x, x]));
    }
    m.graph(&results)
}

#[test]
fn casts_are_made_again_for_far_readers() {
    let casts = |from, to, between, lives| {
        let g = waiting_cast(from, to, between, lives);
        let g = after(&g, &given(&g), level(2));
        g.nodes().iter().filter(|n| n.op.downcast::<Cast>().is_some()).count()
    };
    assert_eq!(casts(DType::F32, DType::F16, 12, true), 2, "the source lives anyway");
    assert_eq!(casts(DType::F16, DType::F32, 12, false), 2, "the source is smaller");
    assert_eq!(casts(DType::F32, DType::F16, 12, false), 1, "the source is larger and would have to wait");
    assert_eq!(casts(DType::F16, DType::F32, 3, false), 1, "near");
}

#[test]
fn halves_take_the_place_of_f32_between_input_and_output() {
    for half in [DType::F16, DType::BF16] {
        let g = affine(true, true, &[2, 3, 5, 4]);
        let options = PassOptions { half: Some(half), ..Default::default() };
        let y = after(&g, &[waves(DType::F32, &[2, 3, 5, 4])], options);
        let heavy = y.nodes().iter().find(|n| n.op.label() == "conv2d").expect("kept");
        assert!(heavy.x.iter().chain(&heavy.y).all(|v| y.fact(*v).dtype == half));
        let bytes = |g: &Graph| {
            let constants = g.values().iter().filter(|v| matches!(v.origin, crate::ir::Origin::Constant(_)));
            constants.map(|v| v.fact.bytes()).sum::<usize>()
        };
        // the statistics of the norm, four means and four variances, stay
        assert_eq!(bytes(&y) * 2, bytes(&g) + 2 * 4 * 4, "{half}");
        assert_eq!(y.fact(y.outputs()[0].value).dtype, DType::F32);
        assert_eq!(y.fact(y.inputs()[0]).dtype, DType::F32);
    }
}

#[test]
fn what_halves_cannot_hold_stays_f32() {
    let m = Make::new();
    let x = m.input(DType::F32, &[3]);
    let y = m.bin(BinaryFn::Mul, m.un(UnaryFn::Tanh, x), m.c(&[1e6, 1.0, 2.0]));
    let g = m.graph(&[y]);
    let x = [HostTensor::from_slice(&[0.5f32, 0.25, -1.0], [3]).expect("fits")];
    let options = PassOptions { half: Some(DType::F16), ..level(1) };
    let small = after(&g, &x, options);
    let product = small.nodes().iter().find(|n| n.op.label() == "mul").expect("kept");
    assert!(product.x.iter().all(|v| small.fact(*v).dtype == DType::F32));
    let wrong = PassOptions { half: Some(DType::F64), ..Default::default() };
    let e =
        optimize(g.clone(), &PassCx { options: &wrong, target: &cpu::Cpu, pool: &Pool::new(1) }).expect_err("no half");
    assert!(e.to_string().contains("f64"), "{e}");
}

#[test]
fn a_graph_that_trains_is_not_halved() {
    let m = Make::new();
    let x = m.input(DType::F32, &[3]);
    let w = m.0.state(Fact::new(DType::F32, [3]), Some("w"));
    let next = m.bin(BinaryFn::Add, w, x);
    m.0.set_state(w, next).expect("fits");
    let g = m.graph(&[next]);
    let options = PassOptions { half: Some(DType::BF16), ..Default::default() };
    let cx = PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) };
    assert!(half_storage(&g, &cx).expect("a patch").is_empty());
}

#[test]
fn reductions_over_the_last_axes_join_what_they_reduce() {
    use ReduceFn::{Max, Mean, Sum};
    for dtype in [DType::F32, DType::F16, DType::I32] {
        for (f, axes, keepdims) in [(Sum, &[2usize][..], false), (Max, &[1, 2], true), (Mean, &[2, 1], false)] {
            if f == Mean && !dtype.is_float() {
                continue;
            }
            let m = Make::new();
            let (x, b) = (m.input(dtype, &[5, 300, 7]), m.input(dtype, &[7]));
            let y = m.bin(BinaryFn::Mul, m.bin(BinaryFn::Add, x, b), x);
            let y = m.reduce(f, axes, keepdims, y);
            let alone = m.reduce(f, axes, keepdims, m.un(UnaryFn::Neg, x));
            let g = m.graph(&[y, alone]);
            let after = after(&g, &given(&g), level(2));
            let labels: Vec<&str> = after.nodes().iter().map(|n| n.op.label()).collect();
            assert_eq!(labels, ["fused_reduce", "fused_reduce"], "{f:?} of {dtype}");
        }
    }
}

#[test]
fn sums_over_leading_axes_and_channels_join_what_they_reduce() {
    use ReduceFn::{Mean, Sum, SumSqr};
    // bias gradients of a matrix and of a sequence, sums of a channel of images
    let all: [(&[usize], &[usize], &[usize]); 4] = [
        (&[37, 20], &[0], &[20]),
        (&[5, 30, 600], &[0, 1], &[600]),
        (&[3, 9, 8, 10], &[0, 2, 3], &[9, 1, 1]),
        (&[2000, 16], &[0], &[16]),
    ];
    for (shape, axes, other) in all {
        for (f, keepdims) in [(Sum, false), (Mean, true), (SumSqr, false)] {
            let m = Make::new();
            let (x, b) = (m.input(DType::F32, shape), m.input(DType::F32, other));
            let dy = m.bin(BinaryFn::Mul, m.un(UnaryFn::Sin, x), b);
            let y = m.reduce(f, axes, keepdims, dy);
            let g = m.graph(&[y]);
            // runs raw and optimised, and compares bits
            let after = after(&g, &given(&g), level(2));
            let labels: Vec<&str> = after.nodes().iter().map(|n| n.op.label()).collect();
            assert_eq!(labels, ["fused_reduce"], "{f:?} of {shape:?} over {axes:?}");
        }
    }
}

#[test]
fn reductions_stay_apart_where_nothing_is_saved() {
    let m = Make::new();
    let (x, big) = (m.input(DType::F32, &[6, 4]), m.input(DType::F32, &[20_000]));
    let read = m.un(UnaryFn::Exp, x);
    let first = m.un(UnaryFn::Neg, x);
    let long = m.un(UnaryFn::Tanh, big);
    // another reader, rows between kept axes, one sum of so much that threads share it
    let first = m.op(Reshape { shape: [2, 3, 4].into() }, &[first]);
    let first = m.un(UnaryFn::Exp, first);
    let all = [(read, 1), (first, 1), (long, 0)].map(|(v, axis)| m.reduce(ReduceFn::Sum, &[axis], false, v));
    let other = m.op(Permute { order: SmallVec::from_slice(&[1, 0]) }, &[read]);
    let g = m.graph(&[all[0], all[1], all[2], other]);
    let after = after(&g, &given(&g), level(2));
    assert!(after.nodes().iter().all(|n| n.op.label() != "fused_reduce"));
}

#[test]
fn products_take_on_the_pointwise_work_that_alone_reads_them() {
    let m = Make::new();
    let (x, w, bias) = (m.input(DType::F32, &[3, 20, 30]), m.input(DType::F32, &[30, 40]), m.input(DType::F32, &[40]));
    let (v, residual) = (m.input(DType::F32, &[40, 30]), m.input(DType::F32, &[3, 20, 30]));
    let product = |a, b| m.op(MatMul {}, &[a, b]);
    // a sum that is kept beside its successor; a residual behind the product; one op alone, on the right
    let sum = m.bin(BinaryFn::Add, product(x, w), bias);
    let up = m.un(UnaryFn::Tanh, sum);
    let down = m.bin(BinaryFn::Add, residual, product(up, v));
    // what two read, of whom one is such work again
    let most = m.reduce(ReduceFn::Max, &[2], true, down);
    let again = m.bin(BinaryFn::Add, product(most, m.input(DType::F32, &[1, 30])), down);
    let y = m.bin(BinaryFn::Sub, bias, product(again, w));
    // a product of two readers stays, as does one that is spread out, and one that gives no float
    let weight = || m.input(DType::F32, &[30, 40]);
    let shared = product(x, weight());
    let twice = [m.un(UnaryFn::Exp, shared), m.reduce(ReduceFn::Sum, &[0], false, shared)];
    let row = product(m.input(DType::F32, &[1, 30]), weight());
    let spread = m.bin(BinaryFn::Add, row, sum);
    let test = m.op(Compare { f: CompareFn::Gt }, &[product(x, weight()), bias]);
    let integer = m.input(DType::I32, &[2, 2]);
    let integers = m.un(UnaryFn::Neg, product(integer, integer));
    let g = m.graph(&[sum, y, twice[0], twice[1], spread, test, integers]);
    let after = after(&g, &given(&g), level(2));
    let count = |name: &str| after.nodes().iter().filter(|n| n.op.label() == name).count();
    assert_eq!([count("fused_matmul"), count("matmul")], [4, 4], "each once: {after:?}");
}

#[test]
fn a_product_stays_where_its_operands_would_live_longer() {
    let m = Make::new();
    let (x, w) = (m.input(DType::F32, &[30, 400]), m.input(DType::F32, &[400, 10]));
    let early = m.op(MatMul {}, &[m.un(UnaryFn::Exp, x), w]);
    // much work lies between the product and its reader
    let other = m.op(MatMul {}, &[m.input(DType::F32, &[30, 50]), m.input(DType::F32, &[50, 10])]);
    let other = m.reduce(ReduceFn::Sum, &[1], true, m.op(MatMul {}, &[other, m.input(DType::F32, &[10, 9])]));
    let y = m.bin(BinaryFn::Mul, early, other);
    let g = m.graph(&[y]);
    let after = after(&g, &given(&g), level(2));
    assert!(after.nodes().iter().all(|n| n.op.label() != "fused_matmul"), "{after:?}");
}
