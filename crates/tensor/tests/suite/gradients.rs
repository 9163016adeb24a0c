//! The values of gradients, to third order. A budget does not change them.

use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, grad, grad_with};
use remat_types::{DType, ErrorKind, HostTensor, Result, f16};

use crate::support::{assert_close, cpu, grad_of, leaf, plain, tensor, values, wave};

fn one(mut g: Vec<Option<Tensor>>) -> Tensor {
    assert_eq!(g.len(), 1);
    g.remove(0).expect("it depends on x")
}

#[test]
fn derivatives_to_fourth_order_are_those_of_the_textbook() {
    let d = plain();
    let x = leaf(&d, &[0.5, -1.25, 2.0]);
    // y = x^3 + sin x
    let y = x.square().and_then(|s| s.mul(&x)).and_then(|c| c.add(x.sin()?)).expect("fits");
    let at = |f: fn(f64) -> f64| values(&x).into_iter().map(f).collect::<Vec<_>>();
    let derivatives: [fn(f64) -> f64; 4] =
        [|x| 3.0 * x * x + x.cos(), |x| 6.0 * x - x.sin(), |x| 6.0 - x.cos(), |x| x.sin()];
    let mut dy = y;
    for f in derivatives {
        dy = one(grad(&dy, &[&x], true).expect("differentiable"));
        assert_close(&values(&dy), &at(f));
    }
    assert!(x.grad().is_none(), "grad touches no leaf");
}

#[test]
fn a_gradient_penalty_trains_through_the_gradient() {
    let d = plain();
    let (x, w) = (leaf(&d, &[1.0, 2.0]), leaf(&d, &[3.0, -0.5]));
    // y = sum w x^2, dy/dx = 2 w x, penalty = sum (2 w x)^2, its gradient in w is 8 w x^2
    let y = x.square().and_then(|s| s.mul(&w)).and_then(|p| p.sum()).expect("fits");
    let dx = one(grad(&y, &[&x], true).expect("differentiable"));
    dx.square().and_then(|s| s.sum()).and_then(|p| p.backward()).expect("differentiable");
    assert_close(&grad_of(&w), &[24.0, -16.0]);
    assert_close(&grad_of(&x), &[8.0 * 9.0, 8.0 * 0.25 * 2.0]);
}

#[test]
fn a_cotangent_can_be_differentiated_too() {
    let d = plain();
    let (x, v) = (leaf(&d, &[0.3, 0.7]), leaf(&d, &[2.0, -1.0]));
    let y = x.exp().expect("a float");
    let g = one(grad_with(&y, Some(&v), &[&x], true).expect("differentiable"));
    // g = v e^x is linear in v: this is how a forward derivative is had from two backward passes
    let back = one(grad_with(&g, Some(&tensor(&d, &[10.0, 100.0], [2])), &[&v], false).expect("differentiable"));
    assert_close(&values(&back), &[10.0 * 0.3f64.exp(), 100.0 * 0.7f64.exp()]);
    assert!(!one(grad_with(&y, Some(&v), &[&x], false).expect("differentiable")).is_tracked());
}

#[test]
fn a_tensor_used_many_times_collects_every_part() {
    let d = plain();
    let x = leaf(&d, &[2.0, -3.0]);
    let square = x.mul(&x).expect("fits");
    let y = square.mul(&square).and_then(|q| q.add(&square)).and_then(|s| s.sub(&x)).expect("fits");
    y.backward().expect("differentiable");
    assert_close(&grad_of(&x), &[4.0 * 8.0 + 4.0 - 1.0, 4.0 * -27.0 - 6.0 - 1.0]);
}

#[test]
fn gradients_arrive_in_the_dtype_of_their_tensor_through_casts_and_promotion() {
    let d = plain();
    let h = Tensor::new(&d, &[f16::from_f32(1.5), f16::from_f32(-2.0)], [2]).and_then(|t| t.requires_grad());
    let (h, x) = (h.expect("a float"), leaf(&d, &[3.0, 5.0]));
    h.mul(&x).and_then(|p| p.sum()).and_then(|s| s.backward()).expect("differentiable");
    let dh = h.grad().expect("a gradient");
    assert_eq!(dh.dtype(), DType::F16);
    assert_eq!(dh.to_host().expect("a value").to_f64_vec(), [3.0, 5.0]);
    assert_eq!(grad_of(&x), [1.5, -2.0]);
}

#[test]
fn views_share_data_and_add_up_gradients() {
    let d = plain();
    let x = tensor(&d, &wave(6), [2, 3]).requires_grad().expect("a float");
    let y = x.t().and_then(|t| t.reshape(&[2, 3])).and_then(|r| r.mul(&x)).expect("fits");
    y.sum().and_then(|s| s.backward()).expect("differentiable");
    let v = values(&x);
    // y[i] = v[p[i]] v[i], so dy/dv[i] = v[p[i]] + v[q[i]] with q the inverse of p
    let p = [0, 3, 1, 4, 2, 5];
    let q = |i: usize| p.iter().position(|&k| k == i).expect("a permutation");
    assert_close(&grad_of(&x), &(0..6).map(|i| v[p[i]] + v[q(i)]).collect::<Vec<_>>());
}

#[test]
fn every_output_of_an_op_can_be_differentiated_and_asked_about() {
    let d = plain();
    let x = tensor(&d, &wave(8), [4, 2]).requires_grad().expect("a float");
    let (scale, bias) = (tensor(&d, &[1.0, 2.0], [2]), tensor(&d, &[0.0, 1.0], [2]));
    let (_, mean, var) = x.batch_norm(&scale, &bias, 1e-5).expect("fits");
    let loss = mean.mul(&var).and_then(|p| p.sum()).expect("fits");
    let g = grad(&loss, &[&mean, &var, &x], false).expect("differentiable");
    assert_close(&values(g[0].as_ref().expect("used")), &values(&var));
    assert_close(&values(g[1].as_ref().expect("used")), &values(&mean));
    let dx = values(g[2].as_ref().expect("used"));
    let (m, s, v) = (values(&mean), values(&var), values(&x));
    let want: Vec<f64> = (0..8).map(|i| (s[i % 2] + m[i % 2] * 2.0 * (v[i] - m[i % 2])) / 4.0).collect();
    assert_close(&dx, &want);
}

#[test]
fn grad_says_which_inputs_do_not_matter() {
    let d = plain();
    let (x, other) = (leaf(&d, &[1.0]), leaf(&d, &[1.0]));
    let y = x.sin().expect("a float");
    let g = grad(&y, &[&other, &x, &y], false).expect("differentiable");
    assert!(g[0].is_none());
    assert_close(&values(g[1].as_ref().expect("used")), &[1f64.cos()]);
    assert_close(&values(g[2].as_ref().expect("itself")), &[1.0]);
    let untracked = tensor(&d, &[1.0], [1]);
    assert_eq!(grad(&y, &[&untracked], false).expect_err("no leaf").kind(), ErrorKind::NotDifferentiable);
    assert_eq!(grad(&untracked, &[&x], false).expect_err("no history").kind(), ErrorKind::NotDifferentiable);
}

/// Two layers with a residual connection, used twice, and a penalty on the gradient of the input.
fn program(d: &Device) -> Result<Vec<HostTensor>> {
    let w: Vec<Tensor> = (0..2).map(|_| tensor(d, &wave(24 * 24), [24, 24]).requires_grad()).collect::<Result<_>>()?;
    let x = tensor(d, &wave(16 * 24), [16, 24]).requires_grad()?;
    let mut read = Vec::new();
    for _ in 0..2 {
        let h = x.matmul(&w[0])?.tanh()?;
        let h = h.matmul(&w[1])?.gelu()?.add(&h)?;
        let y = h.log_softmax(-1)?.mean()?;
        let dx = grad(&y, &[&x], true)?.remove(0).expect("it depends on x");
        dx.square()?.sum()?.add(&y)?.backward()?;
        read.push(y.to_host()?);
    }
    read.extend(w.iter().map(|w| w.grad().expect("used").to_host()).collect::<Result<Vec<_>>>()?);
    Ok(read)
}

#[test]
fn a_budget_changes_no_bit_of_a_gradient_of_a_gradient() {
    let free = cpu(DeviceOptions { always_record: true, ..DeviceOptions::default() });
    let want = program(&free).expect("no budget");
    let stats = free.channel().stats().expect("open");
    let mut recomputed = 0;
    let (peak, least) = (stats.peak_bytes, stats.least_budget_bytes);
    for percent in [75, 50, 25, 10] {
        let bytes = least + (peak - least) * percent / 100;
        let d = cpu(DeviceOptions::with_budget(bytes));
        let got = program(&d).unwrap_or_else(|e| panic!("{bytes} of {peak} bytes, least {least}: {e}"));
        assert!(got == want, "bits differ at {percent} %");
        let s = d.channel().stats().expect("open");
        assert!(s.peak_bytes <= bytes);
        recomputed += s.recomputed_ops;
    }
    assert!(recomputed > 0);
}
