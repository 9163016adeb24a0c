//! Whole training runs: they converge, and a budget changes nothing but the time.

use std::collections::BTreeMap;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions, Stats};
use remat_tensor::{Tensor, no_grad};
use remat_types::{ErrorKind, HostTensor, Result};

use crate::support::{cpu, host, wave32};

/// Points of the square -1 .. 1 with the label of their quadrants, by a generator of the test's own.
fn xor_batch(d: &Device, n: usize, seed: &mut u64) -> (Tensor, Tensor) {
    let mut unit = || {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let x: Vec<f32> = (0..2 * n).map(|_| unit()).collect();
    let y: Vec<i32> = x.chunks(2).map(|p| i32::from(p[0] * p[1] < 0.0)).collect();
    (Tensor::new(d, &x, [n, 2]).expect("fits"), Tensor::new(d, &y, [n]).expect("fits"))
}

/// Upstream's convergence test (test_converge.py): three layers, lr 0.01, momentum 0.9, weight decay 5e-4, 1500 steps;
/// the last 100 losses are below 0.1 on average, and a grid is classified without a mistake.
fn xor_converges(clip: bool) {
    let d = cpu();
    let cx = &mut InitCx::new(&d, 20);
    let net = Sequential::new()
        .then(Linear::new(cx, 2, 14).expect("fits"))
        .then(Tanh)
        .then(Linear::new(cx, 14, 14).expect("fits"))
        .then(Tanh)
        .then(Linear::new(cx, 14, 2).expect("fits"));
    let o = SgdOptions { lr: 0.01, momentum: 0.9, weight_decay: 5e-4, ..SgdOptions::default() };
    let mut sgd = Sgd::new(net.named_parameters(), o).expect("valid");
    let (mut seed, mut late) = (1, 0.0);
    for step in 0..1500 {
        let (x, y) = xor_batch(&d, 64, &mut seed);
        let loss = loss::cross_entropy(&net.forward(&x).expect("fits"), &y).expect("fits");
        loss.backward().expect("tracked");
        if clip {
            clip_grad_norm(&net.parameters(), 10.0).expect("gradients");
        }
        sgd.step().expect("valid");
        if step >= 1400 {
            late += loss.item::<f32>().expect("a number") / 100.0;
        }
    }
    assert!(late < 0.1, "mean of the last losses: {late}");
    let at: Vec<f32> = (0..10).map(|i| -0.9 + 0.2 * i as f32).collect();
    let grid: Vec<f32> = at.iter().flat_map(|a| at.iter().flat_map(move |b| [*a, *b])).collect();
    let _quiet = no_grad();
    let y = net.forward(&Tensor::new(&d, &grid, [100, 2]).expect("fits")).expect("fits");
    let got = y.argmax_over(1, false).expect("axis 1").to_vec::<i64>().expect("i64");
    let want: Vec<i64> = grid.chunks(2).map(|p| i64::from(p[0] * p[1] < 0.0)).collect();
    assert_eq!(got, want);
}

#[test]
fn a_net_learns_xor() {
    xor_converges(false);
}

#[test]
fn a_net_learns_xor_with_clipped_gradients() {
    xor_converges(true);
}

/// A small network of every kind of state: statistics, random keys, moments.
pub(crate) fn network(d: &Device) -> Sequential {
    let cx = &mut InitCx::new(d, 5);
    let same = Conv2dOptions { padding: 1.into(), ..Conv2dOptions::default() };
    let mut net = Sequential::new();
    for (i, o) in [(1, 8), (8, 8), (8, 8), (8, 8), (8, 8), (8, 8)] {
        net.push(Conv2d::with(cx, i, o, 3, same).expect("fits"));
        net.push(BatchNorm2d::new(cx, o).expect("fits"));
        net.push(Relu);
    }
    net.push(MaxPool2d::new(2));
    net.push(Flatten::default());
    net.push(Dropout::new(0.3, &mut cx.rng).expect("a probability"));
    net.push(Linear::new(cx, 8 * 8 * 8, 10).expect("fits"));
    net
}

/// Batch `step` of images and labels.
pub(crate) fn batch(d: &Device, step: usize) -> (Tensor, Tensor) {
    let (n, size) = (16, 16 * 16);
    let x = host(&wave32(n * size, step as f64), [n, 1, 16, 16]);
    let y: Vec<i64> = (0..n as i64).map(|i| (i * 7 + step as i64) % 10).collect();
    (Tensor::from_host(d, &x).expect("fits"), Tensor::new(d, &y, [n]).expect("fits"))
}

/// One step; gives the loss without waiting for it.
pub(crate) fn step(d: &Device, net: &dyn Layer, optimizer: &mut dyn Optimizer, i: usize) -> Result<Tensor> {
    let (x, y) = batch(d, i);
    let loss = loss::cross_entropy(&net.forward(&x)?, &y)?;
    loss.backward()?;
    clip_grad_norm(&net.parameters(), 1.0)?;
    optimizer.step()?;
    Ok(loss.detach())
}

const STEPS: usize = 5;

struct Run {
    losses: Vec<HostTensor>,
    model: BTreeMap<String, HostTensor>,
    optimizer: BTreeMap<String, HostTensor>,
    stats: Stats,
}

fn run(budget: Option<usize>) -> Result<Run> {
    let d = Device::cpu(DeviceOptions { budget_bytes: budget, threads: 2, ..DeviceOptions::default() })?;
    let net = network(&d);
    let mut adam = AdamW::new(net.named_parameters(), AdamWOptions { lr: 0.01, ..AdamWOptions::default() })?;
    let losses = (0..STEPS).map(|i| step(&d, &net, &mut adam, i)?.to_host()).collect::<Result<_>>()?;
    d.channel().sync()?;
    let (model, optimizer) = (net.state_dict()?, adam.state_dict()?);
    Ok(Run { losses, model, optimizer, stats: d.channel().stats()? })
}

#[test]
fn any_feasible_budget_gives_the_same_bits() {
    let free = run(None).expect("no budget");
    let peak = free.stats.peak_bytes;
    let mut recomputed = 0;
    for percent in [90, 75, 60, 50] {
        let budget = peak * percent / 100;
        let tight = run(Some(budget)).unwrap_or_else(|e| panic!("{percent} % of {peak}: {e}"));
        assert!(tight.stats.peak_bytes <= budget, "{percent} %: peak {}", tight.stats.peak_bytes);
        assert_eq!(tight.losses, free.losses, "{percent} %");
        assert!(tight.model == free.model, "{percent} %: the model differs");
        assert!(tight.optimizer == free.optimizer, "{percent} %: the optimiser's state differs");
        recomputed = tight.stats.recomputed_ops;
    }
    assert!(recomputed > 0, "the tightest budget was not tight");
}

/// Losses and parameters of a few steps on volumes: down with a stride, and up again.
fn run_volumes(budget: Option<usize>) -> Result<(Vec<HostTensor>, BTreeMap<String, HostTensor>, Stats)> {
    let options = DeviceOptions { budget_bytes: budget, always_record: true, threads: 1, ..DeviceOptions::default() };
    let d = Device::cpu(options)?;
    let cx = &mut InitCx::new(&d, 5);
    let same = Conv3dOptions { padding: 1.into(), ..Conv3dOptions::default() };
    let halved = Conv3dOptions { stride: 2.into(), groups: 2, ..same };
    let net = Sequential::new()
        .then(Conv3d::with(cx, 1, 4, 3, same)?)
        .then(Tanh)
        .then(Conv3d::with(cx, 4, 8, 3, halved)?)
        .then(BatchNorm3d::new(cx, 8)?)
        .then(Tanh)
        .then(ConvTranspose3d::with(cx, 8, 4, 3, Conv3dOptions { stride: 2.into(), ..same })?.with_output_padding(1))
        .then(Tanh)
        .then(Conv3d::with(cx, 4, 1, 3, same)?);
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions { lr: 0.05, momentum: 0.9, ..SgdOptions::default() })?;
    let mut losses = Vec::new();
    for i in 0..3 {
        let x = Tensor::from_host(&d, &host(&wave32(2 * 10 * 12 * 12, i as f64), [2, 1, 10, 12, 12]))?;
        let loss = net.forward(&x)?.sub(&x)?.square()?.mean()?;
        loss.backward()?;
        sgd.step()?;
        losses.push(loss.detach().to_host()?);
    }
    d.channel().sync()?;
    Ok((losses, net.state_dict()?, d.channel().stats()?))
}

#[test]
fn a_budget_changes_no_bit_of_convolutions_of_volumes() {
    let (losses, state, free) = run_volumes(None).expect("no budget");
    let (peak, least) = (free.peak_bytes, free.least_budget_bytes);
    let mut recomputed = 0;
    for percent in [75, 50, 25] {
        let budget = least + (peak - least) * percent / 100;
        let tight = run_volumes(Some(budget)).unwrap_or_else(|e| panic!("{budget} of {peak}, least {least}: {e}"));
        assert!(tight.2.peak_bytes <= budget, "{percent} %: peak {}", tight.2.peak_bytes);
        assert!(tight.0 == losses && tight.1 == state, "{percent} %: bits differ");
        recomputed = tight.2.recomputed_ops;
    }
    assert!(recomputed > 0, "the tightest budget was not tight");
}

/// A network whose forward pass changes no state, so that a failed step can be repeated.
fn plain(d: &Device) -> Sequential {
    let cx = &mut InitCx::new(d, 5);
    let same = Conv2dOptions { padding: 1.into(), ..Conv2dOptions::default() };
    Sequential::new()
        .then(Conv2d::with(cx, 1, 16, 3, same).expect("fits"))
        .then(Tanh)
        .then(Flatten::default())
        .then(Linear::new(cx, 16 * 16 * 16, 10).expect("fits"))
}

#[test]
fn an_infeasible_budget_leaves_everything_intact_and_training_goes_on() {
    let options = AdamWOptions { lr: 0.01, ..AdamWOptions::default() };
    let steps = |d: &Device, shrink_at: Option<usize>| {
        let net = plain(d);
        let mut adam = AdamW::new(net.named_parameters(), options).expect("valid");
        let channel = d.channel();
        let mut losses = Vec::new();
        for i in 0..STEPS {
            if shrink_at == Some(i) {
                let before = (net.state_dict().expect("values"), adam.state_dict().expect("values"));
                channel.sync().expect("no failure so far");
                let held = channel.stats().expect("open").in_use_bytes;
                // state stays, and a third of an activation of 1 MiB
                channel.set_budget(Some(held + (340 << 10))).expect("what is held fits");
                // so that nothing has failed before the step is queued
                let paused = channel.pause().expect("open");
                let loss = step(d, &net, &mut adam, i).expect("errors come later");
                drop(paused);
                let e = loss.to_host().expect_err("the budget is too small");
                assert_eq!(e.kind(), ErrorKind::Budget, "{e}");
                let shortfall = e.shortfall().expect("figures");
                assert!(shortfall.smallest_feasible_bytes > held + (340 << 10), "{e}");
                let after = (net.state_dict().expect("intact"), adam.state_dict().expect("intact"));
                assert!(before == after, "a step that failed moved something");
                channel.set_budget(None).expect("no budget always fits");
            }
            losses.push(step(d, &net, &mut adam, i).expect("fits").to_host().expect("a number"));
        }
        (losses, net.state_dict().expect("values"), adam.state_dict().expect("values"))
    };
    let free = steps(&cpu(), None);
    // the budget is what makes the device keep recipes from the start
    let d = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::with_budget(64 << 20) }).expect("a CPU");
    assert!(steps(&d, Some(2)) == free, "the interrupted run went elsewhere");
}

#[test]
fn a_failure_outside_the_budget_skips_the_step_too() {
    let d = cpu();
    let net = plain(&d);
    let mut adam = AdamW::new(net.named_parameters(), AdamWOptions::default()).expect("valid");
    step(&d, &net, &mut adam, 0).expect("fits").to_host().expect("a number");
    let before = (net.state_dict().expect("values"), adam.state_dict().expect("values"));
    let (x, _) = batch(&d, 1);
    let labels = Tensor::new(&d, &[11i64; 16], [16]).expect("fits");
    // So that nothing has failed before the step is queued.
    let held = d.channel().pause().expect("open");
    let loss = loss::cross_entropy(&net.forward(&x).expect("fits"), &labels).expect("found on the device");
    loss.backward().expect("tracked");
    adam.step().expect("errors come later");
    drop(held);
    assert_eq!(loss.to_host().expect_err("no class 11").kind(), ErrorKind::Index);
    assert!(before == (net.state_dict().expect("intact"), adam.state_dict().expect("intact")));
    step(&d, &net, &mut adam, 1).expect("fits").to_host().expect("goes on");
    assert!(before.0 != net.state_dict().expect("values"), "the next step moves again");
}

#[test]
fn a_step_given_up_does_not_hold_back_the_next() {
    let d = cpu();
    let net = plain(&d);
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions::default()).expect("valid");
    let (x, _) = batch(&d, 1);
    let labels = Tensor::new(&d, &[11i64; 16], [16]).expect("fits");
    let held = d.channel().pause().expect("open");
    let loss = loss::cross_entropy(&net.forward(&x).expect("fits"), &labels).expect("found on the device");
    loss.backward().expect("tracked");
    drop(held);
    assert!(loss.to_host().is_err());
    sgd.skip_step().expect("open");
    assert!(net.parameters().iter().all(|p| p.grad().is_none()));
    let before = net.state_dict().expect("values");
    step(&d, &net, &mut sgd, 0).expect("fits").to_host().expect("a number");
    assert!(before != net.state_dict().expect("values"));
}
