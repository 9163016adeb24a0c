//! Steps that fail are steps that did not happen: repeated, they give the bits of a run in which nothing failed. Running statistics
//! and generators move in the forward pass, long before.

use remat_nn::*;
use remat_runtime::{AsyncLevel, Device, DeviceOptions, Foresight};
use remat_tensor::Tensor;
use remat_types::{ErrorKind, HostTensor, Result};

use crate::support::wave32;

#[derive(Module)]
#[module(crate = remat_nn)]
struct Net {
    first: Linear,
    norm: BatchNorm1d,
    drop: Dropout,
    last: Linear,
}

impl Net {
    fn new(d: &Device) -> Result<Net> {
        let mut cx = InitCx::new(d, 5);
        let options = BatchNormOptions { cumulative: true, ..BatchNormOptions::default() };
        Ok(Net {
            first: Linear::new(&mut cx, 8, 8)?,
            norm: BatchNorm1d::with(&mut cx, 8, options)?,
            drop: Dropout::new(0.5, &mut Rng::new(9))?,
            last: Linear::new(&mut cx, 8, 4)?,
        })
    }

    /// Two passes of a batch, whose gradients add up.
    fn passes(&self, d: &Device, batch: usize) -> Result<()> {
        for half in 0..2 {
            let x = Tensor::new(d, &wave32(16 * 8, (2 * batch + half) as f64), [16, 8])?;
            let hidden = self.drop.forward(&self.norm.forward(&self.first.forward(&x)?)?)?;
            self.last.forward(&hidden)?.square()?.mean()?.backward()?;
        }
        Ok(())
    }
}

/// Where a step fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    /// Never.
    Nowhere,
    /// A read tells it, after both passes and before the update.
    AtRead,
    /// A read tells it between the two passes, and the caller begins again.
    Between,
    /// The optimiser tells it, in the step or in the next one.
    AtStep,
}

/// A tensor that does not fit the budget.
fn too_much(d: &Device) -> Result<Tensor> {
    Tensor::zeros(d, [1], remat_types::DType::F32)?.broadcast_to([1 << 22])?.mul(2.0)
}

/// Trains on three batches; the second fails at first. Returns the final state. Errors: the error of any call.
fn run(options: DeviceOptions, fails: Fails) -> Result<Vec<(String, HostTensor)>> {
    let d = Device::cpu(options)?;
    let net = Net::new(&d)?;
    let sgd = SgdOptions { lr: 0.1, momentum: 0.9, ..SgdOptions::default() };
    let mut sgd = Sgd::new(net.named_parameters(), sgd)?;
    for batch in 0..3 {
        if batch == 1 {
            fail(&d, &net, &mut sgd, fails)?;
        }
        net.passes(&d, batch)?;
        sgd.step()?;
    }
    d.channel().sync()?;
    let state = net.named_state().into_iter().chain(sgd.named_state());
    let mut all: Vec<_> = state.map(|(n, p)| Ok((n, p.to_host()?))).collect::<Result<_>>()?;
    net.rng_states().into_iter().for_each(|(n, rng)| {
        let counter = HostTensor::from_slice(&[rng.counter()], []).expect("one");
        all.push((n, counter));
    });
    Ok(all)
}

/// The second step, as it fails.
fn fail(d: &Device, net: &Net, sgd: &mut Sgd, fails: Fails) -> Result<()> {
    let told = |e: Option<remat_types::Error>| {
        let e = e.expect("it was told");
        assert_eq!(e.kind(), ErrorKind::Budget, "{fails:?}: {e}");
    };
    match fails {
        Fails::Nowhere => {}
        Fails::AtRead => {
            net.passes(d, 1)?;
            told(too_much(d).and_then(|t| t.to_host()).err());
            sgd.zero_grad();
        }
        Fails::Between => {
            let x = Tensor::new(d, &wave32(16 * 8, 3.0), [16, 8])?;
            net.drop.forward(&net.norm.forward(&x)?)?;
            told(too_much(d).and_then(|t| t.to_host()).err());
        }
        Fails::AtStep => {
            let first = net.passes(d, 1).and_then(|()| too_much(d)).and_then(|_| sgd.step());
            // an update of statistics reads nothing that failed, and the next batch begins meanwhile
            let next = match first {
                Ok(()) => net.passes(d, 2).and_then(|()| sgd.step()).err(),
                Err(e) => Some(e),
            };
            told(next);
            sgd.zero_grad();
        }
    }
    Ok(())
}

#[test]
fn a_step_that_failed_and_is_repeated_gives_the_bits_of_a_run_that_did_not_fail() {
    for async_level in [AsyncLevel::Full, AsyncLevel::Launched, AsyncLevel::Sync] {
        for foresight in [Foresight::Off, DeviceOptions::default().foresight] {
            let options =
                DeviceOptions { threads: 1, budget_bytes: Some(1 << 20), async_level, foresight, ..Default::default() };
            let want = run(options.clone(), Fails::Nowhere).expect("fits");
            assert!(want.iter().any(|(n, v)| n == "norm.num_batches_tracked" && v.to_f64_vec() == [6.0]));
            for fails in [Fails::AtRead, Fails::Between, Fails::AtStep] {
                let got = run(options.clone(), fails).unwrap_or_else(|e| panic!("{fails:?}, {async_level:?}: {e:?}"));
                for ((name, want), (_, got)) in want.iter().zip(&got) {
                    assert_eq!(got, want, "{name}: {fails:?}, {async_level:?}, {foresight:?}");
                }
            }
        }
    }
}

/// A caller that handles a failure within a step, and takes the step with what it has, keeps what that moved.
#[test]
fn a_step_that_is_taken_after_a_failure_that_was_handled_has_moved_the_statistics() {
    let d =
        Device::cpu(DeviceOptions { threads: 1, budget_bytes: Some(1 << 20), ..Default::default() }).expect("opens");
    let net = Net::new(&d).expect("fits");
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions::default()).expect("fits");
    net.passes(&d, 0).expect("fits");
    too_much(&d).expect("queued").to_host().expect_err("does not fit");
    sgd.step().expect("the failure was told");
    let count = net.norm.num_batches_tracked.as_ref().expect("counts").to_host().expect("a value");
    assert_eq!(count.to_f64_vec(), [2.0]);
}

/// Batches without gradients belong to no step: a failure later does not undo them.
#[test]
fn statistics_that_are_taken_anew_without_gradients_stay() {
    let d =
        Device::cpu(DeviceOptions { threads: 1, budget_bytes: Some(1 << 20), ..Default::default() }).expect("opens");
    let net = Net::new(&d).expect("fits");
    let _quiet = remat_tensor::no_grad();
    for batch in 0..3 {
        let x = Tensor::new(&d, &wave32(16 * 8, batch as f64), [16, 8]).expect("fits");
        net.norm.forward(&x).expect("fits");
    }
    too_much(&d).expect("queued").to_host().expect_err("does not fit");
    let count = net.norm.num_batches_tracked.as_ref().expect("counts").to_host().expect("a value");
    assert_eq!(count.to_f64_vec(), [3.0]);
}

/// A value that a program sets itself is an update, too. If it failed, the old value stays, and the failure is reported once.
#[test]
fn a_value_that_fails_leaves_the_parameter_as_it_was() {
    let d =
        Device::cpu(DeviceOptions { threads: 1, budget_bytes: Some(1 << 20), ..Default::default() }).expect("opens");
    let net = Net::new(&d).expect("fits");
    for (name, p) in net.named_state() {
        let before = p.to_host().expect("a value");
        for _ in 0..2 {
            // of the right shape, and made of what does not fit
            let wide = too_much(&d).expect("queued").sum().expect("queued").mul(0.0).expect("queued");
            let new = p.get().expect("there").detach().add(wide.cast(p.dtype()).expect("queued")).expect("queued");
            p.set(&new).expect("queued");
        }
        let told = p.to_host().expect_err("it failed");
        assert_eq!(told.kind(), ErrorKind::Budget, "{name}: {told}");
        d.channel().give_up_step().expect("open");
        assert_eq!(p.to_host().expect("the old value"), before, "{name}");
    }
}

/// An average of a step that failed is no average.
#[test]
fn an_average_counts_no_step_that_failed() {
    let d =
        Device::cpu(DeviceOptions { threads: 1, budget_bytes: Some(1 << 20), ..Default::default() }).expect("opens");
    let net = Net::new(&d).expect("fits");
    let mut sgd = Sgd::new(net.named_parameters(), SgdOptions::default()).expect("fits");
    let mut average = Average::new(&net, AverageOptions::swa()).expect("fits");
    let count = |a: &Average| a.state_dict().map(|s| s["n_averaged"].to_f64_vec());
    net.passes(&d, 0).and_then(|()| sgd.step()).and_then(|()| average.update()).expect("fits");
    let before = average.state_dict().expect("fits");
    d.channel().sync().expect("runs");
    // so that nobody is told before all is queued
    let hold = d.channel().pause().expect("open");
    let lost = too_much(&d).expect("queued");
    net.passes(&d, 1).and_then(|()| sgd.step()).and_then(|()| average.update()).expect("queued");
    drop((hold, lost));
    count(&average).expect_err("the step failed");
    d.channel().give_up_step().expect("open");
    assert_eq!(average.state_dict().expect("as before"), before);
    net.passes(&d, 1).and_then(|()| sgd.step()).and_then(|()| average.update()).expect("fits");
    assert_eq!(count(&average).expect("fits"), [2.0]);
}

/// L-BFGS looks at many losses in a step; one that fails takes all of it back.
#[test]
fn a_step_of_lbfgs_that_fails_is_none() {
    let d =
        Device::cpu(DeviceOptions { threads: 1, budget_bytes: Some(1 << 20), ..Default::default() }).expect("opens");
    let run = |fails_at: Option<u32>| {
        let mut cx = InitCx::new(&d, 3);
        let net = Linear::new(&mut cx, 8, 4).expect("fits");
        let mut lbfgs = Lbfgs::new(net.parameters(), LbfgsOptions::default()).expect("fits");
        let x = Tensor::new(&d, &wave32(16 * 8, 0.5), [16, 8]).expect("fits");
        let mut calls = 0;
        let mut loss = |fails: bool| {
            calls += 1;
            if fails && Some(calls) == fails_at {
                too_much(&d)?.to_host()?;
            }
            net.forward(&x)?.square()?.mean()
        };
        if fails_at.is_some() {
            assert_eq!(lbfgs.step(|| loss(true)).expect_err("fails").kind(), ErrorKind::Budget);
        }
        let losses: Vec<f64> = (0..2).map(|_| lbfgs.step(|| loss(false)).expect("fits")).collect();
        let state: Vec<HostTensor> = net.parameters().iter().map(|p| p.to_host().expect("a value")).collect();
        (losses, state, lbfgs.evaluations())
    };
    let want = run(None);
    for at in [1, 2, 5] {
        assert_eq!(run(Some(at)), want, "the evaluation {at} fails");
    }
}
