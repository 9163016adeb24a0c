//! Ranks compare the properties that must be equal before they exchange tensors. The error names the difference on all ranks.

use std::cell::RefCell;
use std::rc::Rc;

use remat_nn::distributed::{
    Communicator, DataParallel, DataParallelOptions, FullySharded, Gradients, Pipeline, PipelineSchedule, Sharded,
    threads,
};
use remat_nn::{InitCx, Layer, Linear, Module, Optimizer, Sgd, SgdOptions};
use remat_runtime::Device;
use remat_tensor::{CompileOptions, Tensor, compile_with};
use remat_types::{ErrorKind, Result};

use crate::distributed::{LIMIT, Net, batch, device};

#[derive(Module)]
#[module(crate = remat_nn)]
struct Ab {
    a: Linear,
    b: Linear,
}

/// As the other, with its parts in another order.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Ba {
    b: Linear,
    a: Linear,
}

impl Layer for Ab {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.b.forward(&self.a.forward(x)?)
    }
}

impl Layer for Ba {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.b.forward(&self.a.forward(x)?)
    }
}

fn linear(device: &Device) -> Result<Linear> {
    Linear::new(&mut InitCx::new(device, 1), 4, 4)
}

/// Runs `f` on two ranks; it fails on both, with texts that have all of `parts`.
fn differs(what: &str, parts: &[&str], f: impl Fn(&Communicator, &Device) -> Result<()> + Sync) {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        Ok(f(&ranks, &d).and_then(|()| d.channel().sync()).err())
    });
    for (rank, e) in seen.unwrap_or_else(|e| panic!("{what}: {e}")).into_iter().enumerate() {
        let e = e.unwrap_or_else(|| panic!("{what}: rank {rank} noticed nothing"));
        assert_eq!(e.kind(), ErrorKind::Peer, "{what}, rank {rank}: {e}");
        for part in parts {
            assert!(e.to_string().contains(part), "{what}, rank {rank}: {e} without {part}");
        }
    }
}

#[test]
fn parameters_in_another_order_are_told() {
    let parts = ["rank 1 has `b.weight`", "rank 0 has `a.weight`", "another order"];
    differs("data parallel", &parts, |ranks, d| {
        let (a, b) = (linear(d)?, linear(d)?);
        match ranks.rank() {
            0 => DataParallel::new(&Ab { a, b }, ranks, Default::default()).map(drop),
            _ => DataParallel::new(&Ba { b, a }, ranks, Default::default()).map(drop),
        }
    });
    differs("fully sharded", &parts, |ranks, d| {
        let (a, b) = (linear(d)?, linear(d)?);
        match ranks.rank() {
            0 => FullySharded::new(Ab { a, b }, ranks).map(drop),
            _ => FullySharded::new(Ba { b, a }, ranks).map(drop),
        }
    });
}

#[test]
fn other_options_are_told() {
    let usual = DataParallelOptions::default();
    let others = [
        ("bucket_bytes = 1000", DataParallelOptions { bucket_bytes: 1000, ..usual }),
        ("find_unused = true", DataParallelOptions { find_unused: true, ..usual }),
        ("gradients = Divided", DataParallelOptions { gradients: Gradients::Divided, ..usual }),
    ];
    for (text, other) in others {
        differs(text, &[text, "rank 1"], |ranks, d| {
            let options = if ranks.rank() == 1 { other } else { usual };
            DataParallel::new(&linear(d)?, ranks, options).map(drop)
        });
    }
    differs("frozen", &["`weight`", "frozen"], |ranks, d| {
        let net = linear(d)?;
        net.parameters()[0].set_frozen(ranks.rank() == 1);
        DataParallel::new(&net, ranks, usual).map(drop)
    });
    differs("rate", &["option sgd", "0.25", "0.5"], |ranks, d| {
        let lr = if ranks.rank() == 1 { 0.25 } else { 0.5 };
        Sharded::new(linear(d)?.named_parameters(), ranks, SgdOptions { lr, ..Default::default() }).map(drop)
    });
    differs("schedule", &["schedule = GPipe"], |ranks, d| {
        let schedules = [PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward];
        Pipeline::new(linear(d)?, d, ranks, schedules[ranks.rank()]).map(drop)
    });
}

#[test]
fn a_rank_that_has_no_valid_options_tells_the_others() {
    let seen = threads::run_within(2, LIMIT, |ranks| {
        let d = device(Some(&ranks), None)?;
        let bucket_bytes = ranks.rank();
        let e =
            DataParallel::new(&linear(&d)?, &ranks, DataParallelOptions { bucket_bytes, ..Default::default() }).err();
        Ok(e.expect("one of them has none").kind())
    });
    assert_eq!(seen.unwrap_or_else(|e| panic!("{e}")), [ErrorKind::Value, ErrorKind::Peer]);
}

#[test]
fn find_unused_works_in_compiled_steps_that_use_all_and_names_what_one_does_not_use() {
    for uses_all in [true, false] {
        let seen = threads::run_within(2, LIMIT, |ranks| {
            let train = |is_compiled: bool| {
                let d = device(Some(&ranks), None)?;
                let net = Rc::new(Net::new(&d, 0)?);
                let options = DataParallelOptions { find_unused: true, ..Default::default() };
                let parallel = DataParallel::new(&*net, &ranks, options)?;
                let sgd = RefCell::new(Sgd::new(net.named_parameters(), SgdOptions { lr: 0.1, ..Default::default() })?);
                let of_step = net.clone();
                let step = move |x: &[Tensor]| {
                    let loss = of_step.loss(&x[0], uses_all)?;
                    parallel.backward(&loss)?;
                    sgd.borrow_mut().step()?;
                    Ok(vec![loss.detach()])
                };
                let batches = (0..2).map(|i| batch(&d, i, ranks.rank()));
                if is_compiled {
                    let mut step = compile_with(&d, CompileOptions::default(), step);
                    batches.into_iter().try_for_each(|x| step.call(&[&x]).map(drop))?;
                } else {
                    batches.into_iter().try_for_each(|x| step(&[x]).map(drop))?;
                }
                net.bits()
            };
            Ok((train(false)?, train(true).map_err(|e| (e.kind(), e.to_string()))))
        });
        for (eager, compiled) in seen.unwrap_or_else(|e| panic!("{e}")) {
            match (uses_all, compiled) {
                (true, bits) => assert!(bits.expect("all are used") == eager),
                (false, Err((kind, text))) => assert!(kind == ErrorKind::Value && text.contains("`extra."), "{text}"),
                (false, Ok(_)) => panic!("nobody asked the other ranks"),
            }
        }
    }
}
