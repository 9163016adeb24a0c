//! Pointwise ops: their tables, gradients at kinks, fused forms.

use remat_kernels::pool::Pool;
use remat_ops::pointwise::{
    Binary, BinaryFn, Cast, Clamp, Fused, FusedMatMul, FusedReduce, FusedStep, Pointwise, Unary, UnaryFn,
};
use remat_ops::testing::{HostTape, TapeVar};
use remat_ops::{Apply, Expect, OpDef, OpRef, Sample, eval_on_host};
use remat_types::{DType, ErrorKind, HostTensor, SmallVec};

fn rows_sampled<O>(samples: &[Sample<O>], has: impl Fn(&O) -> bool) -> bool {
    samples.iter().any(|s| has(&s.op) && matches!(s.expect, Expect::Values(_)))
}

#[test]
fn every_row_has_a_sample_with_values() {
    let (unary, binary) = (Unary::samples(), Binary::samples());
    for &f in UnaryFn::ALL {
        assert!(rows_sampled(&unary, |o| o.f == f), "{}", OpDef::label(&Unary { f }));
    }
    for &f in BinaryFn::ALL {
        assert!(rows_sampled(&binary, |o| o.f == f), "{}", OpDef::label(&Binary { f }));
    }
}

#[test]
fn a_row_is_named_in_serial_forms_as_in_reports() {
    for &f in UnaryFn::ALL {
        assert_eq!(serde_json::json!(f), OpDef::label(&Unary { f }));
    }
    for &f in BinaryFn::ALL {
        assert_eq!(serde_json::json!(f), OpDef::label(&Binary { f }));
    }
}

/// The gradients of `op` at `x` for a cotangent of ones.
fn gradients(op: impl Into<OpRef>, x: &[HostTensor]) -> Vec<Vec<f64>> {
    let pool = Pool::new(1);
    let tape = HostTape::new(&pool);
    let vars: SmallVec<[TapeVar; 4]> = x.iter().map(|t| tape.leaf(t.clone())).collect();
    let y = tape.apply(op.into(), vars.clone()).expect("applies")[0];
    let ones = HostTensor::from_f64_slice(&vec![1.0; tape.value(y).elems()], DType::F32, tape.value(y).shape().clone());
    let dy = tape.leaf(ones.expect("fits"));
    let grads = tape.gradients(&[(y, dy)], &vars).expect("has a rule");
    grads.into_iter().map(|g| tape.value(g.expect("differentiable")).to_f64_vec()).collect()
}

fn f32s(v: &[f32]) -> HostTensor {
    HostTensor::from_slice(v, [v.len()]).expect("fits")
}

#[test]
fn gradients_at_kinks_are_the_stated_ones() {
    let unary = |f, x: &[f32]| gradients(Unary { f }, &[f32s(x)]).remove(0);
    assert_eq!(unary(UnaryFn::Relu, &[-1.0, 0.0, 1.0]), [0.0, 0.0, 1.0]);
    assert_eq!(unary(UnaryFn::Abs, &[-1.0, 0.0, 1.0]), [-1.0, 0.0, 1.0]);
    assert_eq!(unary(UnaryFn::Relu6, &[0.0, 3.0, 6.0]), [0.0, 1.0, 0.0]);
    assert_eq!(unary(UnaryFn::Sqrt, &[0.0, 4.0]), [f64::INFINITY, 0.25]);
    let clamp = Clamp { lo: 0.0f64.into(), hi: 1.0f64.into() };
    assert_eq!(gradients(clamp, &[f32s(&[0.0, 1.0, 1.5])])[0], [1.0, 1.0, 0.0]);
}

#[test]
fn equal_operands_share_the_gradient_of_max_and_min() {
    for f in [BinaryFn::Max, BinaryFn::Min] {
        let g = gradients(Binary { f }, &[f32s(&[2.0]), f32s(&[2.0])]);
        assert_eq!(g, [[0.5], [0.5]]);
    }
    let g = gradients(Binary { f: BinaryFn::Max }, &[f32s(&[1.0, 5.0]), f32s(&[2.0, 3.0])]);
    assert_eq!(g, [[0.0, 1.0], [1.0, 0.0]]);
}

#[test]
fn the_gradient_of_pow_is_defined_at_a_zero_base() {
    let g = gradients(Binary { f: BinaryFn::Pow }, &[f32s(&[0.0, 0.0, 0.0]), f32s(&[2.0, 1.0, 0.0])]);
    assert_eq!(g, [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]);
}

#[test]
fn a_rejected_integer_is_named_by_its_position() {
    let x = [HostTensor::from_slice(&[1i32, 2, 3], [3]), HostTensor::from_slice(&[1i32, 2, 0], [3])];
    let x = x.map(|t| t.expect("fits"));
    let e = eval_on_host(&Binary { f: BinaryFn::Div }, &x, &Pool::new(1)).expect_err("division by zero");
    assert_eq!(e.kind(), ErrorKind::Value);
    assert!(e.to_string().contains("element 2"), "{e}");
}

#[test]
fn every_pair_of_dtypes_casts() {
    for from in DType::ALL {
        for to in DType::ALL {
            let x = HostTensor::from_f64_slice(&[0.0, 1.0], from, [2]).expect("fits");
            let y = eval_on_host(&Cast { dtype: to }, &[x], &Pool::new(1)).expect("casts");
            assert_eq!((y[0].dtype(), y[0].to_f64_vec()), (to, vec![0.0, 1.0]), "{from} to {to}");
        }
    }
}

#[test]
fn a_fused_reduction_has_the_bits_of_the_two_ops() {
    use remat_ops::reduce::{Reduce, ReduceFn};
    let step = |op, x: &[u16]| FusedStep { op, x: SmallVec::from_slice(x) };
    let steps = Fused {
        inputs: 2,
        steps: vec![
            step(Pointwise::Binary(Binary { f: BinaryFn::Mul }), &[0, 1]),
            step(Pointwise::Unary(Unary { f: UnaryFn::Sin }), &[2]),
        ],
        outputs: SmallVec::from_elem(1, 1),
    };
    // columns in one part and several, narrow and wide, with a last chunk and a last block that are not full; rows of
    // images; long rows; and short rows, which go another way
    let columns: [(&[usize], &[usize]); 7] = [
        (&[3, 2], &[0]),
        (&[70, 1100], &[0]),
        (&[3000, 24], &[0]),
        (&[40, 7, 96], &[0, 1]),
        (&[1500, 130], &[0]),
        (&[33, 5000], &[0]),
        (&[1, 65, 512], &[1]),
    ];
    let runs: [(&[usize], &[usize]); 4] =
        [(&[5, 9, 12, 11], &[0, 2, 3]), (&[300, 8, 20, 20], &[0, 2, 3]), (&[8, 40000], &[1]), (&[6, 70], &[1])];
    for (shape, axes) in columns.into_iter().chain(runs) {
        let n: usize = shape.iter().product();
        for dtype in [DType::F32, DType::F64, DType::F16] {
            let x: Vec<f64> = (0..n).map(|i| (i as f64 * 0.37).sin() * 3.0).collect();
            let x = HostTensor::from_f64_slice(&x, dtype, shape).expect("fits");
            let other = HostTensor::from_f64_slice(&[1.25], dtype, []).expect("fits");
            for f in [ReduceFn::Sum, ReduceFn::Mean, ReduceFn::Max, ReduceFn::SumSqr] {
                let reduce = Reduce { f, axes: SmallVec::from_slice(axes), keepdims: false };
                assert!(FusedReduce::fits(&shape.into(), axes), "{shape:?} over {axes:?}");
                let fused = FusedReduce { steps: steps.clone(), reduce: reduce.clone() };
                for threads in [1, 3] {
                    let pool = Pool::new(threads);
                    let given = [x.clone(), other.clone()];
                    let between = eval_on_host(&steps, &given, &pool).expect("runs");
                    let want = eval_on_host(&reduce, &between, &pool).expect("runs");
                    let got = eval_on_host(&fused, &given, &pool).expect("runs");
                    assert_eq!(got, want, "{f:?} of {dtype} {shape:?} over {axes:?}, {threads} threads");
                }
            }
        }
    }
}

#[test]
fn a_fused_product_has_the_bits_of_the_two_ops() {
    use remat_ops::linalg::MatMul;
    let step = |op, x: &[u16]| FusedStep { op, x: SmallVec::from_slice(x) };
    // (a b + bias) and sin of that times a residual
    let steps = Fused {
        inputs: 3,
        steps: vec![
            step(Pointwise::Binary(Binary { f: BinaryFn::Add }), &[0, 1]),
            step(Pointwise::Unary(Unary { f: UnaryFn::Sin }), &[3]),
            step(Pointwise::Binary(Binary { f: BinaryFn::Mul }), &[4, 2]),
        ],
        outputs: SmallVec::from_slice(&[2, 0]),
    };
    let fused = FusedMatMul { steps: steps.clone() };
    // tiny, one row, few, joined, a batch of its own, several blocks of columns and of steps, large enough for threads
    let sizes: [(&[usize], &[usize]); 8] = [
        (&[2, 3], &[3, 4]),
        (&[1, 60], &[60, 70]),
        (&[3, 300], &[300, 90]),
        (&[4, 9, 30], &[30, 33]),
        (&[3, 20, 24], &[3, 24, 17]),
        (&[70, 40], &[40, 1500]),
        (&[50, 1700], &[1700, 40]),
        (&[300, 64], &[64, 300]),
    ];
    for (a, b) in sizes {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let wave = |shape: &[usize], at: f64| {
                let n: usize = shape.iter().product();
                let x: Vec<f64> = (0..n).map(|i| (i as f64 * 0.37 + at).sin()).collect();
                HostTensor::from_f64_slice(&x, dtype, shape).expect("fits")
            };
            let n = b[b.len() - 1];
            let y: Vec<usize> = a[..a.len() - 1].iter().copied().chain([n]).collect();
            let given = [wave(a, 0.0), wave(b, 1.0), wave(&[n], 2.0), wave(&y, 3.0)];
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let product = eval_on_host(&MatMul {}, &given[..2], &pool).expect("runs").remove(0);
                let want = eval_on_host(&steps, &[product, given[2].clone(), given[3].clone()], &pool).expect("runs");
                let got = eval_on_host(&fused, &given, &pool).expect("runs");
                assert_eq!(got, want, "{a:?} times {b:?} of {dtype}, {threads} threads");
            }
        }
    }
}
