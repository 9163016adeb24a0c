//! Compiled functions at the edges of what they can do: what they cannot is an error and never another value.

use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile, grad};
use remat_types::{ErrorKind, context};

fn cpu(threads: usize) -> Device {
    Device::cpu(DeviceOptions { threads, ..DeviceOptions::default() }).expect("a CPU")
}

#[test]
fn known_integers_go_through_a_compiled_function_as_any_other_input() {
    for threads in [1, 2, 3] {
        let d = cpu(threads);
        let mut f = compile(&d, |x: &[Tensor]| Ok(vec![(&x[0] + 1i64)?]));
        for n in 1..=8usize {
            let x: Vec<i64> = (0..n as i64).collect();
            let y = f.call(&[&Tensor::new(&d, &x, [n]).expect("fits")]).expect("runs");
            let want: Vec<i64> = x.iter().map(|v| v + 1).collect();
            assert_eq!(y[0].to_vec::<i64>().expect("values"), want, "{threads} threads, {n} elements");
        }
        let mut flips = compile(&d, |x: &[Tensor]| Ok(vec![x[0].logical_not()?]));
        let y = flips.call(&[&Tensor::new(&d, &[true, false], [2]).expect("fits")]).expect("runs");
        assert_eq!(y[0].to_vec::<bool>().expect("values"), [false, true]);
    }
}

#[test]
fn a_gradient_that_would_have_to_pass_a_compiled_function_is_an_error_and_not_a_missing_term() {
    let d = cpu(1);
    let x = Tensor::new(&d, &[3f32], [1]).expect("fits").requires_grad().expect("real");
    let mut f = compile(&d, |x: &[Tensor]| Ok(vec![x[0].square()?]));
    let y = f.call(&[&x]).expect("runs");
    let loss = y[0].add(x.square().expect("real")).expect("fits").sum().expect("real");
    assert_eq!(loss.item::<f32>().expect("a number"), 18.0);
    let e = loss.backward().expect_err("half of it would be missing");
    assert_eq!((e.kind(), e.op()), (ErrorKind::NotDifferentiable, Some("compiled")), "{e}");
    // A tensor that is detached on purpose is a constant.
    let y = f.call(&[&x.detach()]).expect("runs");
    let loss = y[0].add(x.square().expect("real")).expect("fits").sum().expect("real");
    loss.backward().expect("nothing passes the function");
    assert_eq!(x.grad().expect("some").to_vec::<f32>().expect("values"), [6.0]);
    // A tensor that the function captures counts as well.
    let w = Tensor::new(&d, &[2f32], [1]).expect("fits").requires_grad().expect("real");
    let inner = w.clone();
    let mut f = compile(&d, move |x: &[Tensor]| Ok(vec![x[0].mul(&inner)?]));
    let y = f.call(&[&x.detach()]).expect("runs");
    let loss = y[0].add(&w).expect("fits").sum().expect("real");
    let e = grad(&loss, &[&w], false).expect_err("half of it would be missing");
    assert_eq!(e.kind(), ErrorKind::NotDifferentiable, "{e}");
}

#[test]
fn a_tensor_that_is_carried_from_call_to_call_beside_the_results_is_refused() {
    let d = cpu(1);
    let mut sum = Tensor::new(&d, &[0f32], [1]).expect("fits");
    let line = line!() + 2;
    let mut f = compile(&d, |x: &[Tensor]| {
        sum = sum.add(&x[0])?;
        Ok(vec![sum.detach()])
    });
    let one = Tensor::new(&d, &[1f32], [1]).expect("fits");
    let e = f.call(&[&one]).expect_err("every later call would start from the first sum");
    assert_eq!((e.kind(), e.call_site().map(|s| s.line())), (ErrorKind::Value, Some(line)), "{e}");
}

#[test]
fn a_chain_of_custom_functions_of_any_length_is_dropped_within_a_small_stack() {
    let chain = || {
        let d = cpu(1);
        let first = Tensor::new(&d, &[1f32], [1]).expect("fits").requires_grad().expect("real");
        let mut x = first.clone();
        for _ in 0..80_000 {
            let held = x.clone();
            let y = remat_tensor::custom("same", &[&x], vec![x.detach()], move |dy| {
                let _captured = &held;
                Ok(vec![dy[0].clone()])
            });
            x = y.expect("recorded").remove(0);
        }
        drop(x);
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(chain).expect("a thread").join().expect("no overflow");
}

#[test]
fn code_that_runs_outside_of_a_trace_has_values_and_leaves_no_node() {
    use remat_runtime::tracing;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let d = cpu(1);
    let beside = d.clone();
    let mut f = compile(&d, move |x: &[Tensor]| {
        let sum = context::outside(|| {
            assert!(!tracing::is_tracing());
            Tensor::new(&beside, &[1f32, 2.0], [2])?.sum()?.item::<f32>()
        })?;
        let panicked = catch_unwind(AssertUnwindSafe(|| context::outside(|| panic!("as asked"))));
        assert!(panicked.is_err());
        assert!(tracing::is_tracing(), "it goes on after a panic, too");
        Ok(vec![(&x[0] + sum)?])
    });
    let x = Tensor::new(&d, &[10f32], [1]).expect("fits");
    assert_eq!(f.call(&[&x]).expect("runs")[0].to_vec::<f32>().expect("values"), [13.0]);
    assert_eq!(f.graph(&[&x]).expect("traced").nodes().len(), 1, "the sum is no node");
}
