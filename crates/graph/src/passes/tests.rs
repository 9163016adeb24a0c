use remat_ops::OpRef;
use remat_ops::index::Take;
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Cast, Fused, Unary, UnaryFn, Where};
use remat_ops::shape::{BroadcastTo, Permute, Reshape, Slice};
use remat_types::{DType, Fact, HostTensor, SmallVec};

use super::*;
use crate::ir::{Builder, ValueId};
use crate::plan::rng::Rng;

mod arith;
mod pack_layouts;
mod target;

/// A graph in the making that takes what a test wants to see changed.
struct Make(Builder);

impl Make {
    /// Without the builder's own merging.
    fn new() -> Make {
        Make(Builder::raw())
    }

    fn input(&self, dtype: DType, dims: &[usize]) -> ValueId {
        self.0.input(Fact::new(dtype, dims), None)
    }

    fn c(&self, v: &[f32]) -> ValueId {
        self.0.constant(&HostTensor::from_slice(v, [v.len()]).expect("fits"))
    }

    fn op(&self, op: impl Into<OpRef>, x: &[ValueId]) -> ValueId {
        self.0.node(op.into(), x, None).expect("fits")[0]
    }

    fn un(&self, f: UnaryFn, x: ValueId) -> ValueId {
        self.op(Unary { f }, &[x])
    }

    fn bin(&self, f: BinaryFn, a: ValueId, b: ValueId) -> ValueId {
        self.op(Binary { f }, &[a, b])
    }

    fn graph(self, results: &[ValueId]) -> Graph {
        results.iter().enumerate().for_each(|(i, v)| self.0.output(*v, &format!("y{i}")));
        self.0.finish().expect("valid")
    }
}

/// Floats in which every special one occurs.
fn special(dims: &[usize]) -> HostTensor {
    let some = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.5, -2.5, f32::MIN_POSITIVE, 6.5, 0.49999997];
    let n: usize = dims.iter().product();
    let all: Vec<f32> = (0..n).map(|i| some[i % some.len()]).collect();
    HostTensor::from_slice(&all, dims).expect("fits")
}

fn data(g: &Graph) -> Vec<HostTensor> {
    let of = |v: &ValueId| {
        let f = g.fact(*v);
        let x = special(&f.shape);
        HostTensor::from_f64_slice(&x.to_f64_vec(), f.dtype, f.shape.clone()).expect("fits")
    };
    g.inputs().iter().map(of).collect()
}

/// Calls left at these options, those within a fused op counted; every result keeps its bits.
#[track_caller]
fn left_with(g: &Graph, options: PassOptions) -> usize {
    let cx = PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) };
    assert_eq!(verify(g, &data(g), &[], &cx).expect("computes"), None);
    let after = optimize(g.clone(), &cx).expect("patches fit").0;
    after.nodes().iter().map(|n| n.op.downcast::<Fused>().map_or(1, |f| f.steps.len())).sum()
}

#[track_caller]
fn left(g: &Graph) -> usize {
    left_with(g, PassOptions::default())
}

#[test]
fn equal_calls_and_constants_become_one() {
    let m = Make::new();
    let x = m.input(DType::F32, &[10]);
    let (a, b) = (m.un(UnaryFn::Relu, x), m.un(UnaryFn::Relu, x));
    let (c, d) = (m.bin(BinaryFn::Add, a, m.c(&[0.5])), m.bin(BinaryFn::Add, b, m.c(&[0.5])));
    let e = m.bin(BinaryFn::Add, b, m.c(&[-0.0]));
    let y = m.bin(BinaryFn::Mul, c, d);
    let g = m.graph(&[y, e]);
    assert_eq!((g.nodes().len(), left(&g)), (6, 3), "relu, add, mul");
    assert_eq!(left_with(&g, PassOptions { level: 0, ..Default::default() }), 6);
}

#[test]
fn permutations_casts_reshapes_slices_and_broadcasts_cancel() {
    let m = Make::new();
    let order = |o: &[usize]| Permute { order: SmallVec::from_slice(o) };
    let x = m.input(DType::F32, &[2, 3, 5]);
    let y = m.op(order(&[2, 0, 1]), &[x]);
    let there_and_back = m.op(order(&[1, 2, 0]), &[y]);
    // two that do not commute
    let twice = m.op(order(&[1, 0, 2]), &[y]);
    let r = m.op(Reshape { shape: [6, 5].into() }, &[x]);
    let r = m.op(Reshape { shape: [30].into() }, &[r]);
    let s = m.op(Slice { axis: 0, start: 29, len: 15, step: -2 }, &[r]);
    let s = m.op(Slice { axis: 0, start: 2, len: 4, step: 3 }, &[s]);
    let b = m.op(BroadcastTo { shape: [3, 4].into() }, &[s]);
    let b = m.op(BroadcastTo { shape: [2, 3, 4].into() }, &[b]);
    let h = m.input(DType::F16, &[10]);
    let wide = m.op(Cast { dtype: DType::F64 }, &[h]);
    let back = m.op(Cast { dtype: DType::F16 }, &[wide]);
    let g = m.graph(&[there_and_back, twice, b, back]);
    let cx = PassCx { options: &PassOptions::default(), target: &cpu::Cpu, pool: &Pool::new(1) };
    let (after, log) = optimize(g.clone(), &cx).expect("patches fit");
    let mut ops: Vec<&str> = after.nodes().iter().map(|n| n.op.label()).collect();
    ops.sort_unstable();
    assert_eq!(ops, ["broadcast_to", "permute", "reshape", "slice"], "{log:?}");
    assert_eq!(left(&g), 4);
}

#[test]
fn a_cast_that_loses_something_stays() {
    let m = Make::new();
    let x = m.input(DType::F32, &[10]);
    let narrow = m.op(Cast { dtype: DType::F16 }, &[x]);
    let back = m.op(Cast { dtype: DType::F32 }, &[narrow]);
    assert_eq!(left(&m.graph(&[back])), 2);
}

#[test]
fn neutral_elements_go_and_signs_of_zero_stay() {
    use BinaryFn::{Add, Div, Max, Mul, Pow, Sub};
    let all: [(BinaryFn, f32, usize); 8] = [
        (Add, -0.0, 0),
        (Add, 0.0, 1),
        (Sub, 0.0, 0),
        (Sub, -0.0, 1),
        (Mul, 1.0, 0),
        (Div, 1.0, 0),
        (Pow, 1.0, 0),
        (Max, 0.0, 1),
    ];
    for (f, c, nodes) in all {
        let m = Make::new();
        let x = m.input(DType::F32, &[10]);
        let y = m.bin(f, x, m.c(&[c]));
        let g = m.graph(&[y]);
        assert_eq!(left(&g), nodes, "{f:?} {c}");
        if matches!(f, Add | Sub) {
            let fast = PassOptions { fast_math: true, ..Default::default() };
            let cx = PassCx { options: &fast, target: &cpu::Cpu, pool: &Pool::new(1) };
            assert_eq!(optimize(g.clone(), &cx).expect("patches fit").0.nodes().len(), 0, "{f:?} {c}");
        }
    }
}

#[test]
fn a_neutral_element_that_widens_the_shape_stays() {
    let m = Make::new();
    let x = m.input(DType::F32, &[1]);
    let y = m.bin(BinaryFn::Mul, x, m.c(&[1.0, 1.0, 1.0]));
    assert_eq!(left(&m.graph(&[y])), 1);
}

#[test]
fn functions_applied_twice_go() {
    use UnaryFn::{Abs, Ceil, Floor, Neg, Relu, Relu6, Round, Sign, Tanh};
    let all: [(UnaryFn, UnaryFn, usize); 8] = [
        (Relu, Relu, 1),
        (Abs, Abs, 1),
        (Neg, Neg, 0),
        (Floor, Round, 1),
        (Ceil, Floor, 1),
        (Sign, Sign, 1),
        (Relu6, Relu, 2),
        (Tanh, Tanh, 2),
    ];
    for (a, b, nodes) in all {
        let m = Make::new();
        let x = m.input(DType::F32, &[10]);
        let y = m.un(b, m.un(a, x));
        assert_eq!(left(&m.graph(&[y])), nodes, "{a:?} {b:?}");
    }
}

#[test]
fn a_choice_without_a_choice_goes() {
    for (cond, nodes) in [([true, true], 0), ([false, false], 0), ([true, false], 1)] {
        let m = Make::new();
        let (a, b) = (m.input(DType::F32, &[2]), m.input(DType::F32, &[2]));
        let c = m.0.constant(&HostTensor::from_slice(&cond, [2]).expect("fits"));
        let y = m.op(Where, &[c, a, b]);
        assert_eq!(left(&m.graph(&[y])), nodes, "{cond:?}");
    }
}

#[test]
fn constants_fold_within_their_bytes() {
    let build = || {
        let m = Make::new();
        let x = m.input(DType::F32, &[4]);
        let c = m.un(UnaryFn::Exp, m.c(&[1.0, 2.0, f32::NAN, -0.0]));
        let d = m.bin(BinaryFn::Add, c, m.c(&[0.25]));
        let y = m.bin(BinaryFn::Mul, x, d);
        m.graph(&[y, d])
    };
    assert_eq!(left(&build()), 1, "the product alone");
    assert_eq!(left_with(&build(), PassOptions { fold_bytes: 15, weight_bytes: 0, ..Default::default() }), 3);
    // the first link stands for a constant that nothing else reads; the second is a result too
    assert_eq!(left_with(&build(), PassOptions { fold_bytes: 15, ..Default::default() }), 1);
    assert_eq!(left_with(&build(), PassOptions { level: 1, ..Default::default() }), 3);
}

/// `(table of i8 as floats) * scales`, and a number for either.
fn dequantised(m: &Make, rows: usize) -> ValueId {
    let words: Vec<i8> = (0..rows * 64).map(|i| (i * 37 % 251) as u8 as i8).collect();
    let words = m.0.constant(&HostTensor::from_slice(&words, [rows, 64]).expect("fits"));
    let scales: Vec<f32> = (0..rows).map(|i| 0.01 + i as f32 * 0.001).collect();
    let scales = m.0.constant(&HostTensor::from_slice(&scales, [rows, 1]).expect("fits"));
    m.bin(BinaryFn::Mul, m.op(Cast { dtype: DType::F32 }, &[words]), scales)
}

#[test]
fn weights_of_fewer_bits_fold_unless_something_else_reads_them() {
    let build = |twice: bool| {
        let m = Make::new();
        let w = dequantised(&m, 40);
        let mut results = vec![m.bin(BinaryFn::Add, m.input(DType::F32, &[40, 64]), w)];
        if twice {
            results.extend([m.un(UnaryFn::Neg, w), w]);
        }
        m.graph(&results)
    };
    let options = |weight_bytes| PassOptions { fold_bytes: 4000, weight_bytes, ..Default::default() };
    assert_eq!(left_with(&build(false), options(40 * 64 * 4)), 1);
    assert_eq!(left_with(&build(false), options(40 * 64 * 4 - 1)), 3);
    // a copy of what stays would be twice the bytes
    assert_eq!(left_with(&build(true), options(40 * 64 * 4)), 2, "the sum, and the negative of what folded");
}

#[test]
fn rows_are_taken_from_a_table_before_it_is_computed() {
    let build = |indices: &[usize], read_twice: bool| {
        let m = Make::new();
        let table = dequantised(&m, 300);
        let index = m.input(DType::I64, indices);
        let rows = m.op(Take { axis: 0 }, &[table, index]);
        let column = m.op(Take { axis: 1 }, &[dequantised(&m, 301), m.input(DType::I64, &[])]);
        let mut results = vec![rows, column];
        if read_twice {
            results.push(m.un(UnaryFn::Exp, table));
        }
        m.graph(&results)
    };
    let options = PassOptions { fold_bytes: 4000, weight_bytes: 0, ..Default::default() };
    let cx = PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) };
    for (indices, read_twice, bytes) in
        [(&[2, 3][..], false, 0), (&[], false, 0), (&[200], false, 300 * 64 * 4), (&[5], true, 300 * 64 * 4)]
    {
        let g = build(indices, read_twice);
        let inputs: Vec<HostTensor> = (g.inputs().iter())
            .map(|v| {
                let shape = g.fact(*v).shape.clone();
                let index: Vec<i64> = (0..shape.elems() as i64).map(|i| i * 31 % 64).collect();
                HostTensor::from_slice(&index, shape).expect("fits")
            })
            .collect();
        assert_eq!(verify(&g, &inputs, &[], &cx).expect("computes"), None);
        let after = optimize(g, &cx).expect("patches fit").0;
        let computed = after.nodes().iter().map(|n| after.fact(n.y[0])).filter(|f| f.dtype == DType::F32);
        let largest = computed.map(remat_types::Fact::bytes).max().unwrap_or(0);
        assert!(if bytes == 0 { largest <= 6 * 64 * 4 } else { largest >= bytes }, "{indices:?}: {largest} bytes");
    }
}

#[test]
fn what_fails_when_folded_fails_when_run() {
    let m = Make::new();
    let zero = m.0.constant(&HostTensor::from_slice(&[0i64], [1]).expect("fits"));
    let x = m.input(DType::I64, &[1]);
    let y = m.bin(BinaryFn::Add, x, m.bin(BinaryFn::Div, zero, zero));
    let g = m.graph(&[y]);
    let cx = PassCx { options: &PassOptions::default(), target: &cpu::Cpu, pool: &Pool::new(1) };
    let after = optimize(g.clone(), &cx).expect("nothing fails here").0;
    assert_eq!(after.nodes().len(), 2);
    let e = after.evaluate(&data(&g), &[], cx.pool).expect_err("division by zero");
    assert_eq!(e.op(), Some("div"));
}

/// Labels of the nodes that are left, in order.
#[track_caller]
fn kept(g: &Graph) -> Vec<&'static str> {
    let cx = PassCx { options: &PassOptions::default(), target: &cpu::Cpu, pool: &Pool::new(1) };
    assert_eq!(verify(g, &data(g), &[], &cx).expect("computes"), None);
    optimize(g.clone(), &cx).expect("patches fit").0.nodes().iter().map(|n| n.op.label()).collect()
}

#[test]
fn pointwise_chains_become_one_op_with_what_others_read() {
    let m = Make::new();
    let (x, b) = (m.input(DType::F32, &[4, 3]), m.input(DType::F32, &[3]));
    let sum = m.bin(BinaryFn::Add, x, b);
    let act = m.un(UnaryFn::Tanh, sum);
    let y = m.bin(BinaryFn::Mul, act, m.c(&[2.0]));
    let other = m.op(Permute { order: SmallVec::from_slice(&[1, 0]) }, &[sum]);
    let mixed = m.op(MatMul {}, &[y, other]);
    let row = m.un(UnaryFn::Neg, b);
    let end = m.un(UnaryFn::Relu, m.bin(BinaryFn::Sub, y, row));
    let g = m.graph(&[mixed, end]);
    // a smaller shape stays out, and a product lies between the two chains
    assert_eq!(kept(&g), ["fused", "permute", "matmul", "neg", "fused"]);
}

#[test]
fn no_path_leads_out_of_a_fused_op_and_back_in() {
    let m = Make::new();
    let x = m.input(DType::F32, &[3, 3]);
    let a = m.un(UnaryFn::Exp, x);
    let across = m.op(MatMul {}, &[a, x]);
    let y = m.bin(BinaryFn::Add, a, across);
    assert_eq!(kept(&m.graph(&[y])), ["exp", "fused_matmul"]);
}

#[test]
fn two_fused_ops_do_not_wait_for_each_other() {
    let m = Make::new();
    let (x, w) = (m.input(DType::F32, &[3, 3]), m.input(DType::F32, &[2, 2]));
    let (a1, b1) = (m.un(UnaryFn::Exp, x), m.un(UnaryFn::Sin, w));
    // each pair is read by the other one's second op, through a sum that both need
    let sum = |v: ValueId| {
        let f = remat_ops::reduce::ReduceFn::Sum;
        m.op(remat_ops::reduce::Reduce { f, axes: SmallVec::from_slice(&[0, 1]), keepdims: false }, &[v])
    };
    let (sa, sb) = (sum(a1), sum(b1));
    let (a2, b2) = (m.bin(BinaryFn::Add, a1, sb), m.bin(BinaryFn::Add, b1, sa));
    let labels = kept(&m.graph(&[a2, b2]));
    assert_eq!(labels.iter().filter(|l| **l == "fused").count(), 1, "{labels:?}");
}

#[test]
fn what_would_live_longer_is_not_fused() {
    let m = Make::new();
    let x = m.input(DType::F32, &[8, 8]);
    let (a, b) = (m.op(MatMul {}, &[x, x]), m.un(UnaryFn::Cos, x));
    let c = m.op(MatMul {}, &[b, x]);
    let d = m.op(MatMul {}, &[c, x]);
    let early = m.bin(BinaryFn::Mul, a, d);
    let work = m.op(MatMul {}, &[c, m.op(MatMul {}, &[b, b])]);
    let late = m.bin(BinaryFn::Add, early, work);
    // two products would wait for the work between, to save one sum
    assert_eq!(kept(&m.graph(&[late])).iter().filter(|l| **l == "fused").count(), 0);
}

#[test]
fn random_programs_keep_their_bits() {
    let (mut gone, mut fused) = (0, 0);
    for seed in 0..300u64 {
        let mut rng = Rng(seed);
        let mut below = |n: usize| rng.below(n);
        let m = Make::new();
        let mut v = vec![m.input(DType::F32, &[4, 4]), m.input(DType::F32, &[4, 4])];
        v.push(m.0.constant(&special(&[4, 4])));
        for c in [0.0, -0.0, 1.0] {
            v.push(m.0.constant(&HostTensor::scalar(c as f32)));
            let last = v.len() - 1;
            v[last] = m.op(BroadcastTo { shape: [4, 4].into() }, &[v[last]]);
        }
        for _ in 0..12 {
            let (a, b) = (v[below(v.len())], v[below(v.len())]);
            let un = UnaryFn::ALL[below(UnaryFn::ALL.len())];
            let y = match below(8) {
                0 => m.op(Permute { order: SmallVec::from_slice(&[1, 0]) }, &[a]),
                1 => m.op(Slice { axis: below(2), start: 3, len: 4, step: -1 }, &[a]),
                2 => m.op(Reshape { shape: [4, 4].into() }, &[a]),
                3 => m.op(MatMul {}, &[a, b]),
                4 => m.bin([BinaryFn::Add, BinaryFn::Sub, BinaryFn::Mul][below(3)], a, b),
                5 => m.bin([BinaryFn::Max, BinaryFn::Min, BinaryFn::Div][below(3)], a, b),
                6 => m.op(Cast { dtype: DType::F32 }, &[m.op(Cast { dtype: DType::F64 }, &[a])]),
                _ => match m.0.node(Unary { f: un }.into(), &[a], None) {
                    Ok(y) if m.0.fact_of(y[0]).is_ok_and(|f| f.dtype == DType::F32) => y[0],
                    _ => m.un(UnaryFn::Neg, a),
                },
            };
            v.push(y);
        }
        let results = [v[v.len() - 1], v[v.len() - 2], v[v.len() - 5]];
        let g = m.graph(&results);
        gone += g.nodes().len() - left(&g);
        let cx = PassCx { options: &PassOptions::default(), target: &cpu::Cpu, pool: &Pool::new(1) };
        let after = optimize(g.clone(), &cx).expect("patches fit").0;
        fused += after.nodes().iter().filter(|n| n.op.label() == "fused").count();
    }
    assert!(gone > 500 && fused > 50, "passes find something: {gone} nodes less, {fused} fused");
}

/// Convolution or product with a constant weight, a constant added, batch norm, a factor.
fn affine(image: bool, bias: bool, dims: &[usize]) -> Graph {
    let m = Make::new();
    let wave = |n: usize, at: f32| (0..n).map(|i| (i as f32 * 1.7 + at).sin() + 0.05).collect::<Vec<f32>>();
    let of = |v: &[f32], dims: &[usize]| m.0.constant(&HostTensor::from_slice(v, dims).expect("fits"));
    let x = m.input(DType::F32, dims);
    let k = 4;
    let y = if image {
        let taps = remat_ops::conv::ConvParams { stride: [1, 1], padding: [1, 1].into(), dilation: [1, 1], groups: 1 };
        m.op(remat_ops::conv::Conv2d { taps }, &[x, of(&wave(k * dims[1] * 9, 0.1), &[k, dims[1], 3, 3])])
    } else {
        m.op(MatMul {}, &[x, of(&wave(dims[1] * k, 0.3), &[dims[1], k])])
    };
    let channel: &[usize] = if image { &[k, 1, 1] } else { &[k] };
    let y = if bias { m.bin(BinaryFn::Add, of(&wave(k, 2.0), channel), y) } else { y };
    let positive: Vec<f32> = wave(k, 5.0).iter().map(|v| v.abs() + 0.5).collect();
    let norm = remat_ops::norm::BatchNormInfer { eps: 1e-5.into() };
    let per = |at: f32| of(&wave(k, at), &[k]);
    let y = m.op(norm, &[y, per(3.0), per(4.0), per(6.0), of(&positive, &[k])]);
    let y = m.bin(BinaryFn::Mul, y, of(&[1.5], &[]));
    m.graph(&[y])
}

#[test]
fn batch_norm_and_factors_go_into_weights() {
    for (image, dims) in [(true, vec![2, 3, 5, 4]), (false, vec![6, 5])] {
        for bias in [false, true] {
            let g = affine(image, bias, &dims);
            let options = PassOptions { level: 3, ..Default::default() };
            let cx = PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) };
            let n: usize = dims.iter().product();
            let x: Vec<f32> = (0..n).map(|i| (i as f32 * 0.9).cos()).collect();
            let x = HostTensor::from_slice(&x, dims.clone()).expect("fits");
            assert_eq!(verify(&g, &[x], &[], &cx).expect("computes"), None, "image {image}, bias {bias}");
            let after = optimize(g.clone(), &cx).expect("patches fit").0;
            let labels: Vec<&str> = after.nodes().iter().map(|n| n.op.label()).collect();
            assert_eq!(labels, if image { &["conv2d", "add"][..] } else { &["fused_matmul"] }, "bias {bias}");
            assert!(kept(&g).contains(&"batch_norm_infer"), "level 2 keeps every bit");
        }
    }
}

#[test]
fn a_factor_of_a_batched_product_scales_no_other_elements() {
    let wave = |dims: &[usize]| {
        let n: usize = dims.iter().product();
        let v: Vec<f32> = (0..n).map(|i| (i as f32 * 0.9).cos()).collect();
        HostTensor::from_slice(&v, dims).expect("fits")
    };
    for factor in [vec![3, 1, 1], vec![6], vec![1]] {
        let m = Make::new();
        let x = m.input(DType::F32, &[2, 3, 4, 5]);
        let y = m.op(MatMul {}, &[x, m.0.constant(&wave(&[2, 3, 5, 6]))]);
        let z = m.bin(BinaryFn::Mul, y, m.0.constant(&wave(&factor)));
        let options = PassOptions { level: 3, ..Default::default() };
        let cx = PassCx { options: &options, target: &cpu::Cpu, pool: &Pool::new(1) };
        let g = m.graph(&[z]);
        assert_eq!(verify(&g, &[wave(&[2, 3, 4, 5])], &[], &cx).expect("computes"), None, "{factor:?}");
    }
}

#[test]
fn what_somebody_else_reads_absorbs_nothing() {
    let m = Make::new();
    let x = m.input(DType::F32, &[3, 3]);
    let y = m.op(MatMul {}, &[x, m.0.constant(&special(&[3, 3]))]);
    let z = m.bin(BinaryFn::Mul, y, m.c(&[2.0]));
    let level = PassOptions { level: 3, ..Default::default() };
    let pool = Pool::new(1);
    let (g, _) = optimize(m.graph(&[z, y]), &PassCx { options: &level, target: &cpu::Cpu, pool: &pool }).expect("runs");
    // with a weight of its own, the factor would be a second product
    let products = g.nodes().iter().filter(|n| n.op.label() != "mul").count();
    assert_eq!((g.nodes().len(), products), (2, 1));
}

#[test]
fn verify_names_the_element_that_differs() {
    let of = |v: &[f32]| vec![("y".to_owned(), HostTensor::from_slice(v, [v.len()]).expect("fits"))];
    let find = |a: &[f32], b: &[f32]| verify::differs("cse", &of(a), &of(b), 0.0);
    assert_eq!(find(&[1.0, f32::NAN], &[1.0, -f32::NAN]), None);
    let d = find(&[1.0, 0.0, 3.0], &[1.0, -0.0, 4.0]).expect("the sign of zero");
    assert_eq!((d.pass, d.value.as_str(), d.element), ("cse", "y", 1));
    assert_eq!(d.to_string(), "after pass `cse` element 1 of `y` is -0 instead of 0");
}
