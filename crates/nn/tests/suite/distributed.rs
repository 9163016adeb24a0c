//! Data parallel training on ranks that are threads: the bits of one process, budgets, what fails, what is unused.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use remat_nn::distributed::{Communicator, DataParallel, DataParallelOptions, threads};
use remat_nn::{Accumulate, AdamW, AdamWOptions, InitCx, Layer, Linear, Module, Optimizer, Parameter};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{CompileOptions, Tensor, compile_with};
use remat_types::{ErrorKind, HostTensor, Result};

use crate::support::{tensor, wave32};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
const BATCH: usize = 8;
pub(crate) const WIDTH: usize = 64;

#[derive(Module)]
#[module(crate = remat_nn)]
pub(crate) struct Net {
    first: Linear,
    middle: Vec<Linear>,
    pub(crate) last: Linear,
    /// Only some passes use it.
    extra: Linear,
}

impl Net {
    pub(crate) fn new(device: &Device, seed: u64) -> Result<Net> {
        let cx = &mut InitCx::new(device, seed);
        let middle = (0..4).map(|_| Linear::new(cx, WIDTH, WIDTH)).collect::<Result<_>>()?;
        Ok(Net {
            first: Linear::new(cx, 3, WIDTH)?,
            middle,
            last: Linear::new(cx, WIDTH, 2)?,
            extra: Linear::new(cx, WIDTH, 2)?,
        })
    }

    pub(crate) fn loss(&self, x: &Tensor, with_extra: bool) -> Result<Tensor> {
        let mut h = self.first.forward(x)?.tanh()?;
        for layer in &self.middle {
            h = layer.forward(&h)?.tanh()?;
        }
        let y = self.last.forward(&h)?;
        let y = if with_extra { y.add(&self.extra.forward(&h)?)? } else { y };
        y.square()?.mean()
    }

    pub(crate) fn bits(&self) -> Result<Vec<HostTensor>> {
        self.named_parameters().iter().map(|(_, p)| p.to_host()).collect()
    }
}

/// The batch of rank `rank` in a step.
pub(crate) fn batch(device: &Device, step: usize, rank: usize) -> Tensor {
    tensor(device, &wave32(BATCH * 3, (step * 10 + rank) as f64), [BATCH, 3])
}

pub(crate) fn adam(net: &Net) -> Result<AdamW> {
    AdamW::new(net.named_parameters(), AdamWOptions { lr: 0.01, ..Default::default() })
}

pub(crate) fn device(ranks: Option<&Communicator>, budget_bytes: Option<usize>) -> Result<Device> {
    Device::cpu(DeviceOptions { threads: 1, budget_bytes, ranks: ranks.cloned(), ..Default::default() })
}

pub(crate) const STEPS: usize = 4;

/// One process that takes the ranks' batches one after the other.
pub(crate) fn accumulated(size: usize) -> Result<Vec<HostTensor>> {
    let d = device(None, None)?;
    let net = Net::new(&d, 0)?;
    let mut optimizer = adam(&net)?;
    let mut accumulate = Accumulate::new(size as u64)?;
    for step in 0..STEPS {
        for rank in 0..size {
            if accumulate.backward(&net.loss(&batch(&d, step, rank), true)?)? {
                optimizer.step()?;
            }
        }
    }
    net.bits()
}

/// A rank's parameters afterwards, and the ops that it made again.
fn parallel(
    ranks: &Communicator,
    budget: Option<usize>,
    options: DataParallelOptions,
) -> Result<(Vec<HostTensor>, u64)> {
    let d = device(Some(ranks), budget)?;
    // every rank begins with other weights
    let net = Net::new(&d, ranks.rank() as u64)?;
    let parallel = DataParallel::new(&net, ranks, options)?;
    let mut optimizer = adam(&net)?;
    for step in 0..STEPS {
        parallel.backward(&net.loss(&batch(&d, step, ranks.rank()), true)?)?;
        optimizer.step()?;
    }
    let bits = net.bits()?;
    let stats = d.channel().stats()?;
    assert!(budget.is_none_or(|b| stats.peak_bytes <= b), "{stats:?}");
    Ok((bits, stats.recomputed_ops))
}

#[test]
fn bits_are_those_of_one_process_that_accumulates() {
    for size in [1, 2, 3] {
        let want = accumulated(size).expect("trains");
        for bucket_bytes in [1, 20_000, 10 << 20] {
            let options = DataParallelOptions { bucket_bytes, ..Default::default() };
            let seen = threads::run_within(size, LIMIT, |ranks| parallel(&ranks, None, options)).expect("trains");
            for (rank, (bits, _)) in seen.iter().enumerate() {
                assert!(*bits == want, "rank {rank} of {size}, buckets of {bucket_bytes}");
            }
        }
    }
}

#[test]
fn every_rank_may_have_a_budget_of_its_own() {
    let want = accumulated(3).expect("trains");
    let options = DataParallelOptions { bucket_bytes: 20_000, ..Default::default() };
    let peak = threads::run_within(3, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = Net::new(&d, 0)?;
        let parallel = DataParallel::new(&net, &ranks, options)?;
        let mut optimizer = adam(&net)?;
        for step in 0..2 {
            parallel.backward(&net.loss(&batch(&d, step, ranks.rank()), true)?)?;
            optimizer.step()?;
        }
        d.channel().sync()?;
        Ok(d.channel().stats()?.peak_bytes)
    });
    let peak = peak.expect("trains")[0];
    let seen = threads::run_within(3, LIMIT, |ranks| {
        let budget = [None, Some(peak * 99 / 100), Some(peak * 97 / 100)][ranks.rank()];
        parallel(&ranks, budget, options)
    });
    for (rank, (bits, _)) in seen.expect("trains").iter().enumerate() {
        assert!(*bits == want, "rank {rank}");
    }
}

#[test]
fn passes_of_one_rank_alone_count_in_the_next_of_all() {
    // two passes on each rank; the second is reduced. The result is that of one process with four passes
    let run = |ranks: Communicator| {
        let d = device(Some(&ranks), None)?;
        let net = Net::new(&d, 0)?;
        let parallel = DataParallel::new(&net, &ranks, Default::default())?;
        let scale = 1.0 / 2.0;
        net.loss(&batch(&d, 0, ranks.rank()), true)?.mul(scale / ranks.size() as f64)?.backward()?;
        parallel.backward(&net.loss(&batch(&d, 1, ranks.rank()), true)?.mul(scale)?)?;
        grads(&net)
    };
    let seen = threads::run_within(2, LIMIT, run).expect("passes");
    assert!(seen[0] == seen[1]);
    // each rank's two passes first, and then the ranks': sums in that order have the same bits
    let d = device(None, None).expect("a device");
    let ranks: Vec<Vec<Tensor>> = (0..2)
        .map(|rank| {
            let net = Net::new(&d, 0).expect("fits");
            for step in 0..2 {
                net.loss(&batch(&d, step, rank), true).and_then(|l| l.mul(0.25)?.backward()).expect("passes");
            }
            net.named_parameters().iter().map(|(_, p)| p.grad().expect("used")).collect()
        })
        .collect();
    let sum = |(a, b): (&Tensor, &Tensor)| a.add(b).and_then(|s| s.to_host()).expect("fits");
    let want: Vec<HostTensor> = ranks[0].iter().zip(&ranks[1]).map(sum).collect();
    assert!(seen[0] == want);
}

#[test]
fn passes_of_all_ranks_add_up_and_one_of_a_rank_alone_does_not_mix_with_them() {
    let size = 2;
    // what each pass gives in one process
    let d = device(None, None).expect("opens");
    let net = Net::new(&d, 0).expect("fits");
    let passes: Vec<Vec<Tensor>> = (0..2)
        .map(|step| {
            let mut accumulate = Accumulate::new(size as u64)?;
            for rank in 0..size {
                accumulate.backward(&net.loss(&batch(&d, step, rank), true)?)?;
            }
            Ok(net.named_parameters().iter().map(|(_, p)| p.take_grad().expect("has one")).collect())
        })
        .collect::<Result<_>>()
        .expect("differentiable");
    let both: Vec<HostTensor> =
        passes[0].iter().zip(&passes[1]).map(|(a, b)| a.add(b)?.to_host()).collect::<Result<_>>().expect("fits");
    let seen = threads::run_within(size, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = Net::new(&d, 0)?;
        let parallel = DataParallel::new(&net, &ranks, DataParallelOptions::default())?;
        for step in 0..2 {
            parallel.backward(&net.loss(&batch(&d, step, ranks.rank()), true)?)?;
        }
        let g = grads(&net)?;
        let e = net.loss(&batch(&d, 2, ranks.rank()), true)?.backward().expect_err("it would be lost in the sum");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("this pass of one rank alone"), "{e}");
        Ok(g)
    });
    for (rank, seen) in seen.unwrap_or_else(|e| panic!("{e}")).iter().enumerate() {
        assert!(seen == &both, "rank {rank}");
    }
}

fn grads(net: &Net) -> Result<Vec<HostTensor>> {
    net.named_parameters().iter().filter_map(|(_, p)| p.grad()).map(|g| g.to_host()).collect()
}

#[test]
fn a_parameter_that_only_some_ranks_use_has_zeros_from_the_others() {
    let run = |uses: fn(usize) -> bool, find_unused: bool| {
        let options = DataParallelOptions { find_unused, ..Default::default() };
        threads::run_within(3, LIMIT, |ranks| {
            let d = device(Some(&ranks), None)?;
            let net = Net::new(&d, 0)?;
            let parallel = DataParallel::new(&net, &ranks, options)?;
            parallel.backward(&net.loss(&batch(&d, 0, ranks.rank()), uses(ranks.rank()))?)?;
            net.extra.named_parameters()[0].1.grad().map(|g| g.to_host()).transpose()
        })
        .expect("passes")
    };
    let d = device(None, None).expect("a device");
    let net = Net::new(&d, 0).expect("fits");
    net.loss(&batch(&d, 0, 1), true).and_then(|l| l.div(3.0)?.backward()).expect("passes");
    let want = net.extra.named_parameters()[0].1.grad().expect("used").to_host().expect("a value");
    for find_unused in [false, true] {
        for got in run(|r| r == 1, find_unused) {
            assert!(got.as_ref() == Some(&want), "{got:?}");
        }
    }
    assert!(run(|_| false, true).iter().all(Option::is_none), "no rank used it");
    let zeros = run(|_| false, false);
    assert!(zeros.iter().flatten().all(|g| g.to_f64_vec().iter().all(|v| *v == 0.0)) && zeros[0].is_some());
}

#[test]
fn compiled_steps_have_the_same_bits() {
    let want = accumulated(2).expect("trains");
    let options = DataParallelOptions { bucket_bytes: 20_000, ..Default::default() };
    for is_short in [false, true] {
        let seen = threads::run_within(2, LIMIT, |ranks| {
            let d = device(Some(&ranks), None)?;
            let net = Rc::new(Net::new(&d, ranks.rank() as u64)?);
            let parallel = DataParallel::new(&*net, &ranks, options)?;
            let optimizer = Rc::new(RefCell::new(adam(&net)?));
            let compile = |memory_budget: Option<usize>| {
                let (net, optimizer) = (net.clone(), optimizer.clone());
                let step = |x: &[Tensor], net: &Net, parallel: &DataParallel, optimizer: &mut AdamW| {
                    let loss = net.loss(&x[0], true)?;
                    parallel.backward(&loss)?;
                    optimizer.step()?;
                    Ok(vec![loss.detach()])
                };
                let parallel = &parallel;
                compile_with(&d, CompileOptions { memory_budget, ..Default::default() }, move |x: &[Tensor]| {
                    step(x, &net, parallel, &mut optimizer.borrow_mut())
                })
            };
            let x = batch(&d, 0, ranks.rank());
            // the least that is told to suffice
            let least = compile(Some(1 << 16)).executable(&[&x]).expect_err("less than the parameters");
            let least = least.shortfall().map(|s| s.smallest_feasible_bytes);
            assert!(least.is_some());
            let mut f = compile(least.filter(|_| is_short));
            for step in 0..STEPS {
                f.call(&[&batch(&d, step, ranks.rank())])?[0].item::<f32>()?;
            }
            assert_eq!(f.figures().iter().any(|f| f.recomputed_calls > 0), is_short, "{:?}", f.figures());
            net.bits()
        });
        for (rank, bits) in seen.expect("trains").iter().enumerate() {
            assert!(*bits == want, "rank {rank}, short of memory: {is_short}");
        }
    }
}

#[test]
fn a_step_that_one_rank_cannot_take_is_taken_by_none() {
    let seen = threads::run_within(3, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let net = Net::new(&d, 0)?;
        let parallel = DataParallel::new(&net, &ranks, Default::default())?;
        let mut optimizer = adam(&net)?;
        parallel.backward(&net.loss(&batch(&d, 0, ranks.rank()), true)?)?;
        optimizer.step()?;
        d.channel().sync()?;
        let before = net.bits()?;
        // rank 1 runs out of memory: in the backward pass, or only where the step is due
        if ranks.rank() == 1 {
            let held = d.channel().stats()?.in_use_bytes;
            d.channel().set_budget(Some(held + 4096))?;
        }
        let told = (|| {
            let loss = net.loss(&batch(&d, 1, ranks.rank()), true)?;
            parallel.backward(&loss)?;
            optimizer.step()?;
            loss.item::<f32>()?;
            optimizer.step()
        })();
        let e = told.expect_err("one of them has no memory for it");
        optimizer.skip_step()?;
        if ranks.rank() == 1 {
            d.channel().set_budget(None)?;
        }
        let after = net.bits()?;
        assert!(before == after, "rank {} moved", ranks.rank());
        // and all go on together
        parallel.backward(&net.loss(&batch(&d, 2, ranks.rank()), true)?)?;
        optimizer.step()?;
        Ok((e, net.bits()?))
    });
    let seen = seen.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(seen[1].0.kind(), ErrorKind::Budget, "{}", seen[1].0);
    for rank in [0, 2] {
        let e = &seen[rank].0;
        assert!(e.kind() == ErrorKind::Peer && e.to_string().contains("rank 1"), "rank {rank}: {e}");
        assert!(seen[rank].1 == seen[1].1);
    }
}

#[test]
fn what_cannot_be_parallel_is_an_error() {
    threads::run_within(2, LIMIT, |ranks| {
        let plain = device(None, None)?;
        let net = Net::new(&plain, 0)?;
        let e = DataParallel::new(&net, &ranks, Default::default()).err().expect("no ranks");
        assert!(e.kind() == ErrorKind::Value && e.message().contains("DeviceOptions::ranks"), "{e}");
        let d = device(Some(&ranks), None)?;
        let net = Net::new(&d, 0)?;
        let options = DataParallelOptions { bucket_bytes: 0, ..Default::default() };
        assert_eq!(DataParallel::new(&net, &ranks, options).err().expect("no bytes").kind(), ErrorKind::Value);
        // modules that differ
        let odd = Parameter::new(tensor(&d, &vec![0.0; 1 + ranks.rank()], [1 + ranks.rank()]))?;
        let e = DataParallel::new(&Odd { odd }, &ranks, Default::default());
        let e = e.map(drop).and_then(|()| d.channel().sync()).expect_err("they differ");
        assert!(e.kind() == ErrorKind::Peer && e.to_string().contains("f32 [2]"), "{e}");
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e}"));
}

#[derive(Module)]
#[module(crate = remat_nn)]
struct Odd {
    odd: Parameter,
}
