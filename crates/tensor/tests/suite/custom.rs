//! Functions with a gradient of the caller's own.

use remat_tensor::{Kept, Tensor, custom, custom_with_kept, grad, no_grad};
use remat_types::{DType, ErrorKind, Result};

use crate::support::{assert_close, grad_of, leaf, plain, tensor, values};

/// `x^2` with a gradient of its own, which is differentiable: `2 x dy`.
fn square(x: &Tensor) -> Result<Tensor> {
    let saved = x.clone();
    let y = vec![x.detach().square()?];
    let back = move |dy: &[Option<Tensor>]| match &dy[0] {
        Some(dy) => Ok(vec![Some(dy.mul(&saved)?.mul(2.0)?)]),
        None => Ok(vec![None]),
    };
    Ok(custom("my_square", &[x], y, back)?.remove(0))
}

#[test]
fn the_callers_gradient_replaces_the_one_that_follows() {
    let d = plain();
    let x = leaf(&d, &[0.4, 1.7]);
    let rounded = vec![x.detach().round().expect("a float")];
    let y = custom("straight_through", &[&x], rounded, |dy| Ok(vec![dy[0].clone()])).expect("fits").remove(0);
    assert_eq!(values(&y), [0.0, 2.0]);
    y.mul(&y).and_then(|s| s.backward()).expect("differentiable");
    assert_close(&grad_of(&x), &[0.0, 4.0]);
}

#[test]
fn custom_functions_take_part_in_higher_orders() {
    let d = plain();
    let x = leaf(&d, &[3.0]);
    let y = square(&x).and_then(|s| square(&s)).expect("fits"); // x^4
    let mut g = y;
    for want in [4.0 * 27.0, 12.0 * 9.0, 24.0 * 3.0, 24.0] {
        g = grad(&g, &[&x], true).expect("differentiable").remove(0).expect("used");
        assert_close(&values(&g), &[want]);
    }
}

#[test]
fn several_outputs_and_inputs_keep_their_places() {
    let d = plain();
    let (a, b) = (leaf(&d, &[2.0]), leaf(&d, &[5.0]));
    // (a + b, a - b), and an output that is no float
    let (x, y) = (a.detach(), b.detach());
    let outputs = vec![x.add(&y), x.sub(&y), x.cast(DType::I32)].into_iter().collect::<Result<Vec<_>>>();
    let back = |dy: &[Option<Tensor>]| {
        assert!(dy[0].is_none() && dy[2].is_none(), "only the second output is used");
        let dy = dy[1].as_ref().expect("used");
        Ok(vec![Some(dy.clone()), Some(dy.neg()?)])
    };
    let y = custom("sum_and_difference", &[&a, &b], outputs.expect("fits"), back).expect("fits");
    assert!(y[0].is_tracked() && y[1].is_tracked() && !y[2].is_tracked());
    y[1].mul(3.0).and_then(|l| l.backward()).expect("differentiable");
    assert_eq!((grad_of(&a), grad_of(&b)), (vec![3.0], vec![-3.0]));
}

#[test]
fn nothing_is_recorded_where_no_gradient_is_wanted() {
    let d = plain();
    let never = |_: &[Option<Tensor>]| -> Result<Vec<Option<Tensor>>> { panic!("not called") };
    let x = tensor(&d, &[1.0], [1]);
    assert!(!custom("f", &[&x], vec![x.clone()], never).expect("fits")[0].is_tracked());
    let x = leaf(&d, &[1.0]);
    let _quiet = no_grad();
    assert!(!custom("f", &[&x], vec![x.detach()], never).expect("fits")[0].is_tracked());
    assert_eq!(custom("f", &[], vec![x.detach()], never).expect_err("no input").kind(), ErrorKind::Arity);
    assert_eq!(custom("f", &[&x], vec![], never).expect_err("no output").kind(), ErrorKind::Arity);
}

/// The error of a pass through a custom function of a leaf of two elements, with the line that made the function.
fn failing(back: impl Fn(&[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static) -> ErrorKind {
    let d = plain();
    let x = leaf(&d, &[1.0, 2.0]);
    let line = line!() + 1;
    let y = custom("wrong", &[&x], vec![x.detach()], back).expect("fits").remove(0);
    let e = y.backward().expect_err("a wrong gradient");
    assert_eq!(e.op(), Some("wrong"), "{e}");
    assert_eq!(e.call_site().map(|c| (c.file(), c.line())), Some((file!(), line)), "{e}");
    assert!(x.grad().is_none(), "nothing wrong is accumulated");
    e.kind()
}

#[test]
fn a_gradient_that_does_not_fit_its_input_is_an_error() {
    assert_eq!(failing(|_| Ok(vec![])), ErrorKind::Arity);
    assert_eq!(failing(|dy| Ok(vec![dy[0].clone(), dy[0].clone()])), ErrorKind::Arity);
    let of = |dy: &[Option<Tensor>], f: fn(&Tensor) -> Result<Tensor>| Ok(vec![dy[0].as_ref().map(f).transpose()?]);
    assert_eq!(failing(move |dy| of(dy, |dy| dy.sum())), ErrorKind::Shape);
    assert_eq!(failing(move |dy| of(dy, |dy| dy.cast(DType::F32))), ErrorKind::Shape);
    assert_eq!(failing(move |dy| of(dy, |dy| dy.to_device(&plain()))), ErrorKind::Device);
}

#[test]
fn the_order_of_a_pass_is_that_of_the_graph_whatever_tensors_a_function_returns() {
    let d = plain();
    let old = tensor(&d, &[1.0], [1]);
    // results that are older than their inputs
    let x = leaf(&d, &[7.0]);
    let through = |x: &Tensor| {
        let y = custom("older", &[x], vec![old.clone()], |dy| Ok(vec![dy[0].clone()]));
        y.expect("fits").remove(0)
    };
    let y = (0..5).fold(x.clone(), |y, _| through(&y));
    let a = y.mul(2.0).expect("fits");
    let b = y.mul(3.0).and_then(|b| b.mul(5.0)).expect("fits");
    let c = through(&y).mul(7.0).expect("fits");
    a.add(&b).and_then(|s| s.add(&c)).and_then(|s| s.backward()).expect("differentiable");
    assert_close(&grad_of(&x), &[2.0 + 15.0 + 7.0]);
    // what is behind such a result must wait for it, though it is younger
    let x = leaf(&d, &[7.0]);
    let h = x.mul(2.0).expect("fits");
    let y = h.mul(5.0).and_then(|a| a.add(through(&h).mul(3.0)?)).expect("fits");
    y.backward().expect("differentiable");
    assert_close(&grad_of(&x), &[2.0 * (5.0 + 3.0)]);
}

#[test]
fn what_a_function_captured_is_freed_with_its_part_of_the_graph() {
    let d = plain();
    let x = leaf(&d, &[1.0; 1024]);
    let live = || d.channel().stats().expect("open").tensors;
    let before = live();
    let captured = x.detach().exp().expect("a float");
    let y = custom("keeps", &[&x], vec![x.detach().sin().expect("a float")], move |dy| {
        let dy = dy[0].as_ref().expect("used");
        Ok(vec![Some(dy.mul(&captured)?)])
    });
    let y = y.expect("fits").remove(0);
    assert_eq!(live(), before + 2);
    y.backward().expect("differentiable");
    assert_eq!(live(), before + 2, "the result and the gradient are left");
}

/// `1 / x`, whose gradient is made of its result.
fn reciprocal(x: &Tensor) -> Result<Tensor> {
    let y = vec![x.detach().recip()?];
    let back = |dy: &[Option<Tensor>], kept: &[Tensor]| {
        let dy = dy[0].as_ref().expect("used");
        Ok(vec![Some(dy.mul(&kept[0])?.mul(&kept[0])?.neg()?)])
    };
    Ok(custom_with_kept("my_recip", &[x], y, &[Kept::Output(0)], back)?.remove(0))
}

#[test]
fn a_kept_output_has_its_history_and_is_freed() {
    let d = plain();
    let x = leaf(&d, &[2.0]);
    let mut g = x.mul(2.0).and_then(|x| reciprocal(&x)).expect("fits"); // 1 / (2 x)
    for want in [-0.125, 0.125, -0.1875, 0.375] {
        g = grad(&g, &[&x], true).expect("differentiable").remove(0).expect("used");
        assert_close(&values(&g), &[want]);
    }
    drop(g);
    let live = || d.channel().stats().expect("open").tensors;
    let before = live();
    drop(reciprocal(&x).expect("fits"));
    assert_eq!(live(), before, "a result that is kept does not keep itself");
    reciprocal(&x).and_then(|y| y.backward()).expect("differentiable");
    assert_close(&grad_of(&x), &[-0.25]);
    let none = custom_with_kept("f", &[&x], vec![x.detach()], &[Kept::Output(1)], |dy, _| Ok(dy.to_vec()));
    assert_eq!(none.expect_err("one output").kind(), ErrorKind::Arity);
}

#[test]
fn a_gradient_of_a_gradient_does_not_pass_what_was_made_on_the_way() {
    let d = plain();
    let x = leaf(&d, &[3.0]);
    let squared = |kept: fn(Tensor) -> Kept| -> Result<Tensor> {
        let slope = x.detach().mul(2.0)?;
        let back = |dy: &[Option<Tensor>], kept: &[Tensor]| {
            let dy = dy[0].as_ref().expect("used");
            Ok(vec![Some(dy.mul(&kept[0])?)])
        };
        Ok(custom_with_kept("my_square", &[&x], vec![x.detach().square()?], &[kept(slope)], back)?.remove(0))
    };
    let of = |y: Result<Tensor>| grad(&y?, &[&x], true).map(|mut g| g.remove(0).expect("used"));
    let g = of(squared(Kept::Intermediate)).expect("of the first order all parts are there");
    assert_close(&values(&g), &[6.0]);
    let e = grad(&g, &[&x], false).expect_err("a part is not known");
    assert_eq!((e.kind(), e.op()), (ErrorKind::NotDifferentiable, Some("my_square")), "{e}");
    // a constant has no derivative, and whoever keeps it says so
    let g = of(squared(Kept::Value).and_then(|y| y.mul(&x))).expect("differentiable");
    assert_close(&values(&grad(&g, &[&x], false).expect("known").remove(0).expect("used")), &[12.0]);
}

#[test]
fn gradients_that_nobody_asked_for_are_not_computed() {
    let d = plain();
    let (x, w) = (leaf(&d, &[1.0, 2.0]), leaf(&d, &[3.0, 4.0]));
    let y = x.mul(&w).and_then(|p| p.mul(&x)).and_then(|p| p.sum()).expect("fits"); // sum x^2 w
    let made = |of: &[&Tensor]| {
        let before = d.channel().stats().expect("open").executed_ops;
        let g = grad(&y, of, false).expect("differentiable");
        g.iter().flatten().for_each(|g| drop(values(g)));
        d.channel().stats().expect("open").executed_ops - before
    };
    assert!(made(&[&w]) < made(&[&x]) && made(&[&x]) < made(&[&x, &w]));
    assert_close(&values(grad(&y, &[&w], false).expect("known")[0].as_ref().expect("used")), &[1.0, 4.0]);
}
