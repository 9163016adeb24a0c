use remat_kernels::pool::Pool;
use remat_types::{HostTensor, SmallVec};

use super::binary_table::row as binary_row;
use super::unary_table::row as unary_row;
use super::*;
use crate::testing::{HostTape, TapeVar};
use crate::{Apply, OpRef, Sample, eval_on_host};

fn rows_sampled<O>(samples: &[Sample<O>], has: impl Fn(&O) -> bool) -> bool {
    samples.iter().any(|s| has(&s.op) && matches!(s.expect, crate::Expect::Values(_)))
}

#[test]
fn every_row_has_a_sample_with_values() {
    let (unary, binary) = (samples::unary(), samples::binary());
    for &f in UnaryFn::ALL {
        assert!(rows_sampled(&unary, |o| o.f == f), "{}", unary_row(f).name);
    }
    for &f in BinaryFn::ALL {
        assert!(rows_sampled(&binary, |o| o.f == f), "{}", binary_row(f).name);
    }
}

#[test]
fn a_row_is_named_in_serial_forms_as_in_reports() {
    for &f in UnaryFn::ALL {
        assert_eq!(serde_json::json!(f), unary_row(f).name);
    }
    for &f in BinaryFn::ALL {
        assert_eq!(serde_json::json!(f), binary_row(f).name);
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
