//! Gradients that are divided among ranks: the bits of whole ones, in a part of the bytes, and norms over them.

use std::cell::RefCell;
use std::rc::Rc;

use remat_nn::distributed::{Communicator, DataParallel, DataParallelOptions, Gradients, Sharded, threads};
use remat_nn::{AdamWOptions, Module, Optimizer, Parameter, clip_grad_norm_with, clip_grad_value};
use remat_runtime::{Device, Kind};
use remat_tensor::{CompileOptions, Tensor, compile_with};
use remat_types::{ErrorKind, HostTensor, Result};

use crate::distributed::{LIMIT, Net, STEPS, accumulated, batch, device};

/// The training result of a rank, with whole or divided gradients and divided state.
struct Run {
    device: Device,
    net: Net,
    parallel: DataParallel,
    optimizer: Sharded<AdamWOptions>,
}

fn run(ranks: &Communicator, options: DataParallelOptions) -> Result<Run> {
    let device = device(Some(ranks), None)?;
    let net = Net::new(&device, ranks.rank() as u64)?;
    let parallel = DataParallel::new(&net, ranks, options)?;
    let rule = AdamWOptions { lr: 0.01, ..Default::default() };
    let optimizer = Sharded::new(net.named_parameters(), ranks, rule)?;
    Ok(Run { device, net, parallel, optimizer })
}

fn divided(bucket_bytes: usize) -> DataParallelOptions {
    DataParallelOptions { bucket_bytes, gradients: Gradients::Divided, ..Default::default() }
}

impl Run {
    fn backward(&self, step: usize) -> Result<()> {
        let rank = self.parallel.group().rank();
        self.parallel.backward(&self.net.loss(&batch(&self.device, step, rank), true)?)
    }

    fn grad_bytes(&self) -> usize {
        self.net.parameters().iter().map(Parameter::grad_bytes).sum()
    }
}

#[test]
fn divided_gradients_have_the_bits_of_whole_ones() {
    for size in [1, 2, 3] {
        let want = accumulated(size).expect("trains");
        for bucket_bytes in [1, 20_000, 10 << 20] {
            for find_unused in [false, true] {
                let options = DataParallelOptions { find_unused, ..divided(bucket_bytes) };
                let seen = threads::run_within(size, LIMIT, |ranks| {
                    let mut r = run(&ranks, options)?;
                    for step in 0..STEPS {
                        r.backward(step)?;
                        r.optimizer.step()?;
                        assert_eq!(r.grad_bytes(), 0, "a step consumes gradients");
                    }
                    r.net.bits()
                });
                for (rank, bits) in seen.expect("trains").iter().enumerate() {
                    assert!(*bits == want, "rank {rank} of {size}, buckets of {bucket_bytes}, unused: {find_unused}");
                }
            }
        }
    }
}

#[test]
fn compiled_steps_divide_gradients_too() {
    let want = accumulated(2).expect("trains");
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let r = run(&ranks, divided(20_000))?;
        let (d, net) = (r.device.clone(), Rc::new(r.net));
        let optimizer = Rc::new(RefCell::new(r.optimizer));
        let parallel = &r.parallel;
        let (in_step, moved) = (net.clone(), optimizer.clone());
        let mut f = compile_with(&d, CompileOptions::default(), move |x: &[Tensor]| {
            let loss = in_step.loss(&x[0], true)?;
            parallel.backward(&loss)?;
            moved.borrow_mut().step()?;
            Ok(vec![loss.detach()])
        });
        for step in 0..STEPS {
            f.call(&[&batch(&d, step, ranks.rank())])?;
        }
        net.bits()
    });
    assert!(seen.expect("trains").iter().all(|bits| *bits == want));
}

/// Bytes of a kind that the device holds now.
fn held(d: &Device, kind: Kind) -> Result<usize> {
    d.channel().sync()?;
    d.channel().reset_peak()?;
    let report = d.channel().report()?;
    Ok(report.peak_by_kind.iter().filter(|h| h.name == kind.name()).map(|h| h.bytes).sum())
}

#[test]
fn each_rank_keeps_its_share_of_the_gradients_bytes() {
    for size in [2, 4] {
        let seen = threads::run_within(size, LIMIT, |ranks| {
            let bytes = |gradients| -> Result<(usize, usize)> {
                let options = DataParallelOptions { bucket_bytes: 20_000, gradients, ..Default::default() };
                let r = run(&ranks, options)?;
                r.backward(0)?;
                Ok((held(&r.device, Kind::Gradient)?, r.grad_bytes()))
            };
            Ok((bytes(Gradients::Whole)?, bytes(Gradients::Divided)?))
        });
        for (whole, part) in seen.expect("passes") {
            // what is divisible is divided exactly; each tensor of the rest is padded
            assert!(part.0 > 0 && part.0 * size <= whole.0 * 105 / 100, "{part:?} of {whole:?} bytes on {size} ranks");
            assert!(part.1 > 0 && part.1 * size <= whole.1 * 102 / 100, "{part:?} of {whole:?} bytes on {size} ranks");
        }
    }
}

#[test]
fn passes_of_one_rank_alone_count_and_passes_of_all_add_up() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let mut all = Vec::new();
        for gradients in [Gradients::Whole, Gradients::Divided] {
            let mut r = run(&ranks, DataParallelOptions { gradients, ..divided(20_000) })?;
            r.net.loss(&batch(&r.device, 0, ranks.rank()), true)?.div(4.0)?.backward()?;
            r.backward(1)?;
            r.optimizer.step()?;
            all.push(r.net.bits()?);
        }
        assert!(all[0] == all[1], "rank {}", ranks.rank());
        // and a pass of all after a pass of all: a rank's part of both
        let r = run(&ranks, divided(20_000))?;
        r.backward(0)?;
        let bytes = r.grad_bytes();
        r.backward(1)?;
        assert_eq!(r.grad_bytes(), bytes);
        let both = clip_grad_norm_with(&r.net.parameters(), 1e9, 2.0)?.item::<f32>()?;
        r.optimizer.zero_grad();
        assert_eq!(r.grad_bytes(), 0);
        r.backward(1)?;
        let one = clip_grad_norm_with(&r.net.parameters(), 1e9, 2.0)?.item::<f32>()?;
        assert!(both > one, "{both} of two passes, {one} of one");
        Ok(())
    });
    seen.unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn divided_gradients_without_parts_are_an_error() {
    threads::run_within(2, LIMIT, |ranks| {
        let mut r = run(&ranks, divided(20_000))?;
        let without = Net::new(&r.device, 0)?;
        let parallel = DataParallel::new(&without, &ranks, divided(20_000))?;
        let x = batch(&r.device, 0, ranks.rank());
        let e = parallel.backward(&without.loss(&x, true)?).expect_err("no optimiser");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("Sharded"), "{e}");
        // what is frozen needs none
        without.set_frozen(true);
        without.last.set_frozen(false);
        let last = without.last.named_parameters();
        let mut some = Sharded::new(last, &ranks, AdamWOptions::default())?;
        parallel.backward(&without.loss(&x, true)?)?;
        some.step()?;
        // and the others go on
        r.backward(0)?;
        r.optimizer.step()
    })
    .unwrap_or_else(|e| panic!("{e}"));
}

/// The norm, and parameters after a step with gradients that were limited to it.
fn limited(ranks: &Communicator, gradients: Gradients, p: f64) -> Result<(f32, Vec<HostTensor>)> {
    let mut r = run(ranks, DataParallelOptions { gradients, ..divided(20_000) })?;
    r.backward(0)?;
    let parameters = r.net.parameters();
    // named twice counts once
    let twice = [&parameters[..], &parameters[..1]].concat();
    let norm = clip_grad_norm_with(&twice, 0.01, p)?.item::<f32>()?;
    let again = clip_grad_norm_with(&parameters, 1e9, p)?.item::<f32>()?;
    assert!((again / 0.01 - 1.0).abs() < 1e-4, "limited to 0.01, it is {again}");
    clip_grad_value(&parameters, 1e-3)?;
    assert!(clip_grad_norm_with(&parameters, 1e9, f64::INFINITY)?.item::<f32>()? <= 1e-3);
    r.optimizer.step()?;
    Ok((norm, r.net.bits()?))
}

#[test]
fn the_norm_of_divided_gradients_is_that_of_the_whole() {
    for size in [1, 2, 3] {
        for p in [1.0, 2.0, 3.0, f64::INFINITY] {
            let all = |gradients| {
                threads::run_within(size, LIMIT, |ranks| limited(&ranks, gradients, p))
                    .unwrap_or_else(|e| panic!("{e}"))
            };
            let (whole, parts, again) = (all(Gradients::Whole), all(Gradients::Divided), all(Gradients::Divided));
            assert!(
                parts.iter().all(|one| *one == parts[0]) && parts == again,
                "the same bits on all ranks, each time"
            );
            let (want, got) = (f64::from(whole[0].0), f64::from(parts[0].0));
            assert!(
                want > 0.01 && ((got - want) / want).abs() < 1e-5,
                "{got}, of the whole {want}, on {size} ranks, p {p}"
            );
            if p == f64::INFINITY {
                assert!(parts == whole, "a maximum has no order");
            }
        }
    }
}
