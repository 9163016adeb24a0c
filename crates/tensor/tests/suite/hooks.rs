//! Hooks on the gradients of leaves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use remat_tensor::{Tensor, custom, grad, is_recording};
use remat_types::{Error, ErrorKind, Result};

use crate::support::{assert_close, grad_of, leaf, plain, tensor, values};

#[test]
fn a_hook_sees_the_complete_gradient_of_its_own_leaf_once_a_pass() {
    let d = plain();
    let (a, b) = (leaf(&d, &[2.0]), leaf(&d, &[5.0]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    for (name, t) in [("a", &a), ("b", &b)] {
        let seen = seen.clone();
        t.on_grad(move |g| {
            assert!(!is_recording() && !g.is_tracked());
            seen.lock().expect("no panic").push((name, values(g)));
            Ok(())
        })
        .expect("a leaf");
    }
    // a is used three times, b once
    let run = || a.mul(&a).and_then(|s| s.mul(&b)).and_then(|p| p.add(&a)).and_then(|y| y.backward());
    run().expect("differentiable");
    let mut first = std::mem::take(&mut *seen.lock().expect("no panic"));
    first.sort_by_key(|s| s.0);
    assert_eq!(first, [("a", vec![21.0]), ("b", vec![4.0])]);
    run().expect("differentiable");
    let mut second = std::mem::take(&mut *seen.lock().expect("no panic"));
    second.sort_by_key(|s| s.0);
    assert_eq!(second, first, "hooks see a pass's gradient, not the sum of passes");
    assert_close(&grad_of(&a), &[42.0]);
}

#[test]
fn a_hook_that_was_taken_out_is_called_no_more_and_frees_what_it_owns() {
    let d = plain();
    let x = leaf(&d, &[1.0]);
    let count = Arc::new(Mutex::new(0));
    let give = || {
        let count = count.clone();
        x.on_grad(move |_| {
            *count.lock().expect("no panic") += 1;
            Ok(())
        })
    };
    let [first, second] = [give().expect("a leaf"), give().expect("a leaf")];
    let pass = || x.square().and_then(|y| y.backward()).expect("differentiable");
    pass();
    assert_eq!(*count.lock().expect("no panic"), 2);
    first.remove();
    first.remove();
    pass();
    assert_eq!(*count.lock().expect("no panic"), 3);
    second.remove();
    assert_eq!(Arc::strong_count(&count), 1);
    let third = give().expect("a leaf");
    drop(x);
    third.remove();
}

#[test]
fn hooks_run_before_accumulation_in_the_order_of_their_making() {
    let d = plain();
    let x = leaf(&d, &[1.0]);
    let count = Arc::new(AtomicUsize::new(0));
    for want in 0..3 {
        let (count, leaf) = (count.clone(), x.clone());
        x.on_grad(move |_| {
            assert_eq!(count.fetch_add(1, Ordering::Relaxed), want);
            assert!(leaf.grad().is_none());
            Ok(())
        })
        .expect("a leaf");
    }
    x.exp().and_then(|y| y.backward()).expect("differentiable");
    assert_eq!(count.load(Ordering::Relaxed), 3);
    assert!(x.grad().is_some());
}

#[test]
fn an_error_of_a_hook_ends_the_pass() {
    let d = plain();
    let x = leaf(&d, &[1.0]);
    x.on_grad(|_| Err(Error::new(ErrorKind::Value, "too large"))).expect("a leaf");
    let e = x.exp().and_then(|y| y.backward()).expect_err("the hook refuses");
    assert_eq!(e.message(), "too large");
    assert!(x.grad().is_none());
}

#[test]
fn a_hook_may_use_the_leaf_it_is_on() {
    let d = plain();
    let x = leaf(&d, &[1.0]);
    let calls = Arc::new(AtomicUsize::new(0));
    let (inner, other) = (x.clone(), x.square().expect("a float"));
    x.on_grad(move |_| {
        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
            // another hook, and a pass of its own, which calls this one again
            inner.on_grad(|_| Ok(()))?;
            other.backward()?;
        }
        Ok(())
    })
    .expect("a leaf");
    x.exp().and_then(|e| e.backward()).expect("differentiable");
    assert_close(&grad_of(&x), &[1f64.exp() + 2.0]);
}

#[test]
fn gradients_are_set_only_where_they_fit() {
    let d = plain();
    let x = leaf(&d, &[1.0, 2.0]);
    assert_eq!(x.set_grad(Some(tensor(&d, &[1.0], [1]))).expect_err("a shape").kind(), ErrorKind::Shape);
    let single = tensor(&d, &[1.0, 2.0], [2]).cast(remat_types::DType::F32).expect("casts");
    assert_eq!(x.set_grad(Some(single)).expect_err("a dtype").kind(), ErrorKind::Shape);
    assert_eq!(x.set_grad(Some(tensor(&plain(), &[1.0, 2.0], [2]))).expect_err("a device").kind(), ErrorKind::Device);
    let y = x.exp().expect("a float");
    assert_eq!(y.set_grad(None).expect_err("no leaf").kind(), ErrorKind::Value);
    assert_eq!(y.on_grad(|_| Ok(())).expect_err("no leaf").kind(), ErrorKind::Value);
    assert!(x.grad().is_none());
}

/// `x`, whose backward pass writes this down.
fn noted(x: &Tensor, name: &'static str, log: &Log) -> Result<Tensor> {
    let log = log.clone();
    let y = vec![x.detach().mul(1.0)?];
    let back = move |dy: &[Option<Tensor>]| {
        log.lock().expect("no panic").push(name);
        Ok(vec![dy[0].clone()])
    };
    Ok(custom("noted", &[x], y, back)?.remove(0))
}

type Log = Arc<Mutex<Vec<&'static str>>>;

#[test]
fn a_hook_is_called_when_the_pass_has_come_to_the_leafs_last_use() {
    let d = plain();
    let log = Log::default();
    let leaf_noted = |name: &'static str, value: f64| {
        let x = leaf(&d, &[value]);
        let log = log.clone();
        x.on_grad(move |_| {
            log.lock().expect("no panic").push(name);
            Ok(())
        })
        .expect("a leaf");
        x
    };
    // made in the order of their uses, so that age alone would call the hooks last
    let (first, both, last) = (leaf_noted("first", 2.0), leaf_noted("both", 3.0), leaf_noted("last", 5.0));
    let unused_by_the_loss = leaf_noted("unused", 7.0);
    let run = || -> Result<()> {
        let h = noted(&first, "layer 0", &log)?.mul(&both)?;
        let h = noted(&h, "layer 1", &log)?.mul(&both)?;
        let side = h.mul(&unused_by_the_loss)?;
        let h = noted(&h, "layer 2", &log)?.mul(&last)?;
        drop(side);
        h.backward()
    };
    for _ in 0..2 {
        log.lock().expect("no panic").clear();
        run().expect("differentiable");
        assert_eq!(*log.lock().expect("no panic"), ["last", "layer 2", "layer 1", "both", "layer 0", "first"]);
    }
    // 2 passes of the gradients of first both both last
    assert_eq!(grad_of(&first), [2.0 * 45.0]);
    assert_eq!(grad_of(&both), [2.0 * 60.0]);
    assert_eq!(grad_of(&last), [2.0 * 18.0]);
    assert!(unused_by_the_loss.grad().is_none());
}

#[test]
fn grad_calls_the_hooks_that_make_the_gradient_and_no_others() {
    let d = plain();
    let (x, unwanted) = (leaf(&d, &[2.0]), leaf(&d, &[3.0]));
    x.on_grad(|_| panic!("nothing is accumulated")).expect("a leaf");
    x.map_accumulated_grad(|_| panic!("nothing is accumulated")).expect("a leaf");
    unwanted.map_grad(|_| panic!("its gradient is not wanted")).expect("a leaf");
    x.map_grad(|g| g.mul(10.0).map(Some)).expect("a leaf");
    x.map_grad(|g| g.square().map(Some)).expect("a leaf");
    let y = || x.square().and_then(|s| s.mul(&unwanted)).expect("it fits");
    // (10 * 2 x * 3)^2
    let plain = grad(&y(), &[&x], false).expect("differentiable").remove(0).expect("it depends on x");
    assert!(values(&plain) == [14400.0] && !plain.is_tracked());
    // its derivative is 2 * 3600 x, before x's own hooks: (10 * 14400)^2
    let first = grad(&y(), &[&x], true).expect("differentiable").remove(0).expect("it depends on x");
    let second = grad(&first, &[&x], false).expect("differentiable").remove(0).expect("it depends on x");
    assert_close(&values(&second), &[144_000.0 * 144_000.0]);
    assert!(x.grad().is_none());
}
