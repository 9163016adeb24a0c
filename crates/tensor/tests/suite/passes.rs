//! The effects of a pass on the graph: accumulation, freeing, and the ways to keep tensors out of it.

use remat_tensor::{Tensor, custom, grad, is_recording, no_grad};
use remat_types::{ErrorKind, Result};

use crate::support::{assert_close, grad_of, leaf, plain, tensor, values};

#[test]
fn passes_accumulate_until_the_gradient_is_taken() {
    let d = plain();
    let x = leaf(&d, &[1.0, 2.0]);
    for pass in 1..=3 {
        x.square().and_then(|y| y.backward()).expect("differentiable");
        assert_close(&grad_of(&x), &[2.0 * f64::from(pass), 4.0 * f64::from(pass)]);
    }
    assert_close(&values(&x.take_grad().expect("accumulated")), &[6.0, 12.0]);
    assert!(x.grad().is_none());
    x.set_grad(Some(tensor(&d, &[10.0, 20.0], [2]))).expect("fits");
    x.exp().and_then(|y| y.backward()).expect("differentiable");
    assert_close(&grad_of(&x), &[10.0 + 1f64.exp(), 20.0 + 2f64.exp()]);
}

#[test]
fn clones_of_a_leaf_share_its_gradient_and_a_new_leaf_does_not() {
    let d = plain();
    let x = leaf(&d, &[3.0]);
    let (same, other) = (x.clone(), x.requires_grad().expect("a float"));
    same.square().and_then(|y| y.backward()).expect("differentiable");
    assert_close(&grad_of(&x), &[6.0]);
    assert!(other.grad().is_none());
}

#[test]
fn a_second_pass_needs_a_retained_graph() {
    let d = plain();
    let x = leaf(&d, &[2.0]);
    let y = x.square().and_then(|s| s.exp()).expect("a float");
    y.backward_with(None, true).expect("first");
    y.backward().expect("second: the graph was kept");
    assert_close(&grad_of(&x), &[2.0 * 4.0 * 4f64.exp()]);
    let line = line!() + 1;
    let e = y.backward().expect_err("third: the second freed it");
    assert_eq!(e.kind(), ErrorKind::NoValue);
    assert!(e.message().contains("retain_graph"), "{e}");
    assert_eq!(e.call_site().map(|c| (c.file(), c.line())), Some((file!(), line)), "{e}");
    assert_close(&grad_of(&x), &[8.0 * 4f64.exp()]);
}

#[test]
fn a_part_that_another_pass_freed_is_an_error_and_not_a_missing_term() {
    let d = plain();
    let x = leaf(&d, &[2.0]);
    let shared = x.exp().expect("a float");
    let (a, b) = (shared.sin().expect("a float"), shared.cos().expect("a float"));
    a.backward().expect("first");
    assert_eq!(b.backward().expect_err("shared is gone").kind(), ErrorKind::NoValue);
    // the same through an op that keeps nothing, and through a custom function
    let shared = x.add(1.0).expect("fits");
    let (a, b) = (shared.sin().expect("a float"), shared.cos().expect("a float"));
    a.backward().expect("first");
    assert_eq!(b.backward().expect_err("shared is gone").kind(), ErrorKind::NoValue);
    let shared = custom("twice", &[&x], vec![x.detach()], |dy| Ok(vec![dy[0].clone()])).expect("fits").remove(0);
    let (a, b) = (shared.sin().expect("a float"), shared.cos().expect("a float"));
    a.backward().expect("first");
    let e = b.backward().expect_err("shared is gone");
    assert_eq!((e.kind(), e.op()), (ErrorKind::NoValue, Some("twice")), "{e}");
    // nor is it "no dependence" to those who ask
    assert_eq!(grad(&a, &[&x], false).expect_err("a is gone").kind(), ErrorKind::NoValue);
}

#[test]
fn detached_parts_are_constants() {
    let d = plain();
    let x = leaf(&d, &[3.0]);
    let y = x.square().and_then(|s| s.detach().mul(&x)).expect("fits");
    y.backward().expect("differentiable");
    assert_close(&grad_of(&x), &[9.0]);
    assert!(!x.detach().is_tracked() && x.is_leaf());
    assert!(!y.is_leaf() && y.is_tracked());
    let e = x.detach().exp().and_then(|y| y.backward()).expect_err("no history");
    assert_eq!(e.kind(), ErrorKind::NotDifferentiable);
}

#[test]
fn within_no_grad_nothing_is_recorded_on_this_thread() {
    let d = plain();
    let x = leaf(&d, &[3.0]);
    let quiet = no_grad();
    {
        let _inner = no_grad();
        assert!(!is_recording());
    }
    assert!(!is_recording(), "the outer one still holds");
    assert!(!x.exp().expect("a float").is_tracked());
    std::thread::scope(|s| {
        s.spawn(|| assert!(x.exp().expect("a float").is_tracked()));
    });
    drop(quiet);
    assert!(is_recording() && x.exp().expect("a float").is_tracked());
    let failed: Result<Tensor> = std::panic::catch_unwind(|| {
        let _quiet = no_grad();
        panic!("planted")
    })
    .unwrap_or_else(|_| x.exp());
    assert!(failed.expect("a float").is_tracked(), "a panic ends no_grad too");
}

#[test]
fn a_pass_within_no_grad_still_differentiates_what_was_recorded() {
    let d = plain();
    let x = leaf(&d, &[3.0]);
    let y = x.square().expect("a float");
    let _quiet = no_grad();
    y.backward().expect("recorded before");
    assert_close(&grad_of(&x), &[6.0]);
    assert!(!x.grad().expect("accumulated").is_tracked());
}

#[test]
fn a_deep_graph_is_walked_and_freed_without_recursion() {
    let d = plain();
    let x = leaf(&d, &[1.0]);
    let deep = |n: usize| (0..n).try_fold(x.clone(), |y, _| y.add(&x)).expect("fits");
    const DEPTH: usize = 50_000;
    deep(DEPTH).backward().expect("differentiable");
    assert_close(&grad_of(&x), &[DEPTH as f64 + 1.0]);
    drop(deep(DEPTH));
}

#[test]
fn a_pass_frees_what_the_tape_kept() {
    let d = plain();
    let x = leaf(&d, &[1.0; 1024]);
    let tensors = || d.channel().stats().expect("open").tensors;
    let before = tensors();
    let y = (0..8).try_fold(x.clone(), |y, _| y.sin()).expect("a float");
    assert_eq!(tensors(), before + 8, "the sine's gradient reads its input");
    y.backward().expect("differentiable");
    assert_eq!(tensors(), before + 2, "the result and the gradient are left");
}

#[test]
fn only_what_leads_to_the_wanted_inputs_is_walked() {
    let d = plain();
    let x = leaf(&d, &[2.0]);
    let refuse = |t: &Tensor| -> Result<Tensor> {
        let fail = |_: &[Option<Tensor>]| Err(remat_types::Error::new(ErrorKind::Value, "walked"));
        Ok(custom("refuse", &[t], vec![t.detach()], fail)?.remove(0))
    };
    // below: not on the way to `mid`; beside: does not lead there at all
    let mid = refuse(&x).and_then(|t| t.square()).expect("fits");
    let y = mid.exp().and_then(|e| e.add(refuse(&x)?)).expect("fits");
    let g = grad(&y, &[&mid], false).expect("nothing refuses on this way").remove(0).expect("used");
    assert_close(&values(&g), &[4f64.exp()]);
    assert_eq!(y.backward().expect_err("all of it").message(), "walked");
}
