//! Updates make versions: what was recorded before an update differentiates at the old values.

use remat_ops::optim::SgdUpdate;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_runtime::{Device, DeviceOptions, Handle, Kind};
use remat_tensor::Tensor;
use remat_types::{ErrorKind, HostTensor, Result, SmallVec, smallvec};

use crate::support::{assert_close, cpu, grad_of, leaf, plain, tensor, values, wave};

/// `w - amount`, in place where the old version has no other owner.
fn subtract(w: Tensor, amount: &Tensor) -> Result<Tensor> {
    let (channel, amount) = (w.channel(), amount.handle().clone());
    let w = w.update_leaf(|old: Handle| {
        let x: SmallVec<[Handle; 4]> = smallvec![old, amount];
        Ok(channel.update(Binary { f: BinaryFn::Sub }, x, &[Some(0)])?.swap_remove(0))
    })?;
    channel.commit(w.handle(), Kind::Parameter)?;
    Ok(w)
}

#[test]
fn an_update_between_forward_and_backward_does_not_change_the_gradient() {
    for options in [DeviceOptions::default(), DeviceOptions::with_budget(8 << 10)] {
        let d = cpu(options);
        let (w, x) = (leaf(&d, &wave(64)), tensor(&d, &wave(64)[..64], [64]));
        let before = values(&w);
        // the square's rule reads w itself, the exponential's its result
        let y = w.square().and_then(|s| s.mul(&x)).and_then(|p| p.add(w.exp()?)).expect("fits");
        let w = subtract(w, &tensor(&d, &[100.0; 64], [64])).expect("fits");
        assert_close(&values(&w), &before.iter().map(|v| v - 100.0).collect::<Vec<_>>());
        y.backward().expect("differentiable");
        let want: Vec<f64> = before.iter().zip(&values(&x)).map(|(w, x)| 2.0 * w * x + w.exp()).collect();
        assert_close(&grad_of(&w), &want);
    }
}

#[test]
fn the_gradient_of_all_versions_meets_in_one_leaf() {
    let d = plain();
    let w = leaf(&d, &[2.0]);
    let old = w.square().expect("a float");
    let w = subtract(w, &tensor(&d, &[1.0], [1])).expect("fits");
    let new = w.square().expect("a float");
    old.add(&new).and_then(|y| y.backward()).expect("differentiable");
    assert_close(&grad_of(&w), &[4.0 + 2.0]);
    assert_eq!(values(&w), [1.0]);
}

#[test]
fn hooks_and_gradients_carry_over_to_the_next_version() {
    let d = plain();
    let w = leaf(&d, &[2.0]);
    let (seen, log) = std::sync::mpsc::channel();
    w.on_grad(move |g| {
        let _ = seen.send(values(g));
        Ok(())
    })
    .expect("a leaf");
    w.square().and_then(|y| y.backward()).expect("differentiable");
    let w = subtract(w, &tensor(&d, &[1.0], [1])).expect("fits");
    assert_close(&grad_of(&w), &[4.0]);
    w.square().and_then(|y| y.backward()).expect("differentiable");
    assert_close(&grad_of(&w), &[6.0]);
    assert_eq!(log.try_iter().collect::<Vec<_>>(), [[4.0], [2.0]]);
}

#[test]
fn a_version_of_another_type_is_refused() {
    let d = plain();
    let other = tensor(&d, &[1.0, 2.0], [2]);
    let e = leaf(&d, &[1.0]).update_leaf(|_| Ok(other.handle().clone())).expect_err("a shape");
    assert_eq!(e.kind(), ErrorKind::Shape);
    let e = other.clone().update_leaf(Ok).expect_err("no leaf");
    assert_eq!(e.kind(), ErrorKind::Value);
}

/// Steps of SGD with the update between forward and backward: gradients are one step late.
fn delayed_training(d: &Device) -> Result<Vec<HostTensor>> {
    let n = 16;
    let mut w = tensor(d, &wave(n * n), [n, n]).requires_grad()?;
    let mut v = Tensor::zeros(d, [n, n], w.dtype())?;
    let x = tensor(d, &wave(64 * n), [64, n]);
    let lr = Tensor::scalar(d, 0.05f32)?;
    let mut read = Vec::new();
    for _ in 0..6 {
        let loss = (0..6).try_fold(x.clone(), |h, _| h.matmul(&w)?.sin())?.mean()?;
        if let Some(g) = w.take_grad() {
            let sgd = SgdUpdate {
                momentum: 0.9.into(),
                dampening: 0.0.into(),
                weight_decay: 0.0.into(),
                nesterov: false,
                maximize: false,
            };
            let mut velocity = Some(v);
            let mut next = None;
            w = w.update_leaf(|old| {
                let v = velocity.take().expect("once").into_handle();
                let x: SmallVec<[Handle; 4]> = smallvec![old, g.into_handle(), v, lr.handle().clone()];
                let mut y = d.channel().update(sgd, x, &[Some(0), Some(2)])?;
                next = y.pop();
                Ok(y.remove(0))
            })?;
            v = Tensor::from_handle(next.expect("two outputs"));
            d.channel().commit(w.handle(), Kind::Parameter)?;
            d.channel().commit(v.handle(), Kind::OptimizerState)?;
        }
        loss.backward()?;
        d.channel().step_mark()?;
        read.push(loss.to_host()?);
    }
    read.push(w.grad().expect("the last step's").to_host()?);
    read.push(w.to_host()?);
    Ok(read)
}

#[test]
fn late_updates_keep_their_bits_under_budgets() {
    let free = cpu(DeviceOptions { always_record: true, ..DeviceOptions::default() });
    let want = delayed_training(&free).expect("no budget");
    let plain = delayed_training(&plain()).expect("no budget and no recipes");
    assert!(plain == want);
    let stats = free.channel().stats().expect("open");
    let (peak, least) = (stats.peak_bytes, stats.least_budget_bytes);
    for percent in [75, 50, 25] {
        let bytes = least + (peak - least) * percent / 100;
        let d = cpu(DeviceOptions::with_budget(bytes));
        let got = delayed_training(&d).unwrap_or_else(|e| panic!("{bytes} of {peak} bytes, least {least}: {e}"));
        assert!(got == want, "bits differ at {percent} %");
        assert!(d.channel().stats().expect("open").recomputed_ops > 0, "{bytes} of {peak} bytes were enough");
    }
}
