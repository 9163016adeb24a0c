//! Training below what is feasible: the bits of a run without a budget, or an error that says so; and failures that were
//! handled.

use remat_nn::*;
use remat_runtime::{AsyncLevel, Device, DeviceOptions, Foresight};
use remat_tensor::{Tensor, no_grad};
use remat_types::{ErrorKind, Result};

use crate::support::{Weights, cpu, is_the_same_or_refused, wave32};

fn named(layers: &[Linear]) -> Vec<(String, Parameter)> {
    let of = |(i, l): (usize, &Linear)| {
        l.named_parameters().into_iter().map(move |(n, p)| (format!("{i}.{n}"), p)).collect::<Vec<_>>()
    };
    layers.iter().enumerate().flat_map(of).collect()
}

/// Trains layers of so many features, and gives their weights. Errors: whatever any call says.
fn train_linear(d: &Device, layers: usize, features: usize, batch: usize, steps: usize) -> Result<Weights> {
    train_linear_and(d, [layers, features, batch, steps], |_| Ok(()))
}

/// The same, of `[layers, features, batch, steps]`, with something done to the network's output before each update.
fn train_linear_and(
    d: &Device,
    [layers, features, batch, steps]: [usize; 4],
    before_update: impl Fn(&Tensor) -> Result<()>,
) -> Result<Weights> {
    let mut cx = InitCx::new(d, 7);
    let net: Vec<Linear> = (0..layers)
        .map(|_| Linear::with(&mut cx, features, features, LinearOptions { bias: false, ..LinearOptions::default() }))
        .collect::<Result<_>>()?;
    let mut sgd = Sgd::new(named(&net), SgdOptions { lr: 0.05, ..SgdOptions::default() })?;
    for step in 0..steps {
        let mut x = Tensor::new(d, &wave32(batch * features, step as f64), [batch, features])?;
        for l in &net {
            x = l.forward(&x)?.relu()?;
        }
        x.square()?.mean()?.backward()?;
        before_update(&x)?;
        sgd.step()?;
    }
    d.channel().sync()?;
    named(&net).into_iter().map(|(n, p)| Ok((n, p.to_host()?))).collect()
}

#[test]
fn eight_linear_layers_give_the_bits_or_an_error_at_every_percent_of_their_peak() {
    let run = |d: &Device| train_linear(d, 8, 128, 16, 5);
    let options = DeviceOptions { threads: 1, ..DeviceOptions::default() };
    let free = Device::cpu(options.clone()).expect("a CPU");
    let want = run(&free).expect("no budget");
    let peak = free.channel().stats().expect("open").peak_bytes;
    let mut least = [101; 3];
    for percent in (1..=100).rev() {
        let budget_bytes = Some(peak * percent / 100);
        let level = [AsyncLevel::Full, AsyncLevel::Launched, AsyncLevel::Sync][percent % 3];
        for (i, (async_level, foresight)) in
            [(AsyncLevel::Full, Foresight::Beside), (AsyncLevel::Full, Foresight::Off), (level, Foresight::AtOnce)]
                .into_iter()
                .enumerate()
        {
            let options = DeviceOptions { budget_bytes, async_level, foresight, ..options.clone() };
            if is_the_same_or_refused(options, &want, run) {
                assert_eq!(least[i], percent + 1, "{percent} % suffices and {} % did not", percent + 1);
                least[i] = percent;
            }
        }
    }
    // Parameters are 46 % of the peak, gradients as much.
    assert!(least.iter().all(|l| *l <= 65), "{least:?} % of the peak suffice");
}

#[test]
fn what_happens_to_be_there_when_a_step_updates_has_no_part_in_whether_it_can() {
    let sizes = [8, 128, 16, 3];
    let options = DeviceOptions { threads: 1, async_level: AsyncLevel::Sync, ..DeviceOptions::default() };
    let free = Device::cpu(options.clone()).expect("a CPU");
    let want = train_linear_and(&free, sizes, |_| Ok(())).expect("no budget");
    let peak = free.channel().stats().expect("open").peak_bytes;
    let mut taken = Vec::new();
    for foresight in [Foresight::Off, Foresight::AtOnce] {
        for part in (340..=400).rev() {
            let options = DeviceOptions { budget_bytes: Some(peak * part / 400), foresight, ..options.clone() };
            let as_it_is = is_the_same_or_refused(options.clone(), &want, |d| train_linear_and(d, sizes, |_| Ok(())));
            // All gradients are there, and what the updates would have to make again first is not.
            let dropped = is_the_same_or_refused(options, &want, |d| train_linear_and(d, sizes, Tensor::drop_value));
            assert_eq!(as_it_is, dropped, "{part} of 400 are a matter of what is there, {foresight:?}");
            taken.push(as_it_is);
        }
    }
    assert!(taken.iter().all(|t| *t), "no budget of these was to be refused");
}

#[test]
fn a_failure_that_was_read_and_handled_does_not_cost_the_next_step() {
    let d = cpu();
    let mut cx = InitCx::new(&d, 7);
    let net = Linear::new(&mut cx, 8, 8).expect("fits");
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions::default()).expect("valid");
    let x = || Tensor::new(&d, &wave32(32, 0.5), [4, 8]).expect("fits");
    let out_of_range = || {
        let at = Tensor::new(&d, &[99i64; 9], [9]).expect("fits");
        x().take(0, &at).expect("found on the device")
    };
    let moves = |sgd: &mut Sgd, what: &str| {
        let before = net.weight.to_host().expect("a value");
        net.forward(&x()).expect("fits").square().expect("real").mean().expect("some").backward().expect(what);
        sgd.step().expect(what);
        assert!(net.weight.to_host().expect(what) != before, "{what}: the weights have not moved");
    };
    moves(&mut sgd, "at first");
    assert_eq!(out_of_range().to_host().expect_err("99 of 4").kind(), ErrorKind::Index);
    moves(&mut sgd, "after a failure that was read");
    std::thread::scope(|s| {
        let read = s.spawn(|| assert_eq!(out_of_range().to_host().expect_err("99 of 4").kind(), ErrorKind::Index));
        read.join().expect("no panic");
    });
    moves(&mut sgd, "after a failure that another thread read");
    let unread = out_of_range();
    d.channel().stats().expect("it has run");
    assert_eq!(sgd.step().expect_err("nobody has read it").kind(), ErrorKind::Index);
    moves(&mut sgd, "after a failure that the step told");
    assert_eq!(unread.to_host().expect_err("still failed").kind(), ErrorKind::Poisoned);
    moves(&mut sgd, "at the end");
    d.channel().sync().expect("nothing is left to tell");
}

#[test]
fn running_statistics_move_again_after_a_failure_was_told() {
    let d = cpu();
    let mut cx = InitCx::new(&d, 7);
    let norm = BatchNorm2d::new(&mut cx, 2).expect("fits");
    let x = || Tensor::new(&d, &wave32(2 * 2 * 9, 0.5), [2, 2, 3, 3]).expect("fits");
    let at = Tensor::new(&d, &[99i64; 9], [9]).expect("fits");
    assert!(x().take(0, &at).expect("found on the device").to_host().is_err());
    for _ in 0..3 {
        let before = norm.running_mean.to_host().expect("a value");
        let _quiet = no_grad();
        norm.forward(&x()).expect("fits").to_host().expect("a value");
        assert!(norm.running_mean.to_host().expect("a value") != before, "they stand still");
    }
}

#[test]
fn a_step_whose_gradients_failed_is_told_at_the_latest_by_the_step_after_it() {
    let d = cpu();
    let mut cx = InitCx::new(&d, 7);
    let net = Linear::new(&mut cx, 8, 8).expect("fits");
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions::default()).expect("valid");
    let x = Tensor::new(&d, &wave32(32, 0.5), [4, 8]).expect("fits");
    let mut told = Vec::new();
    for step in 1..=4 {
        let label = if step == 2 { 11i64 } else { 1 };
        let labels = Tensor::new(&d, &[label; 4], [4]).expect("fits");
        let loss = loss::cross_entropy(&net.forward(&x).expect("fits"), &labels).expect("found on the device");
        if let Err(e) = loss.backward().and_then(|()| sgd.step()) {
            sgd.skip_step().expect("open");
            told.push((step, e));
        }
    }
    assert_eq!(told.len(), 1, "{told:?}");
    let (step, e) = &told[0];
    assert!((2..=3).contains(step) && e.kind() == ErrorKind::Index, "{told:?}");
    assert!(*step == 2 || e.message().contains("step 2 was not taken"), "{e}");
}

#[test]
fn a_checkpoint_is_not_written_over_a_step_that_was_silently_skipped() {
    let d = cpu();
    let mut cx = InitCx::new(&d, 7);
    let net = Linear::new(&mut cx, 8, 8).expect("fits");
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions::default()).expect("valid");
    let x = Tensor::new(&d, &wave32(32, 0.5), [4, 8]).expect("fits");
    let labels = Tensor::new(&d, &[11i64; 4], [4]).expect("fits");
    let folder = tempfile::tempdir().expect("a folder");
    let save = || remat_nn::Checkpoint::save(folder.path(), &net, None, &remat_nn::TrainState::default());
    let held = d.channel().pause().expect("open");
    let loss = loss::cross_entropy(&net.forward(&x).expect("fits"), &labels).expect("found on the device");
    loss.backward().expect("tracked");
    sgd.step().expect("nothing has run yet");
    drop(held);
    let e = save().expect_err("a step is missing");
    assert_eq!(e.kind(), ErrorKind::Index, "{e}");
    assert!(e.message().contains("step 1 was not taken"), "{e}");
    save().expect("it was told");
}
