//! A run of a compiled training step takes nothing from the heap.

use std::alloc::System;
use std::cell::RefCell;
use std::rc::Rc;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Collect, ScanOptions, Session, Tensor, compile, cond, grad, scan};
use remat_types::{DType, Result};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn device(threads: usize) -> Device {
    Device::cpu(DeviceOptions { threads, ..DeviceOptions::default() }).expect("a CPU")
}

/// Runs before the count. At their end the pool's threads have started.
const WARM_UP: usize = 20;

/// Heap calls of all threads during `runs` runs after the warm-up, on this thread and on the session's own.
fn heap_calls(session: &mut Session, runs: usize) -> usize {
    let mut calls = 0;
    for run in 0..WARM_UP + runs {
        let region = Region::new(HEAP);
        session.run().expect("runs");
        session.start().expect("starts");
        session.wait().expect("runs");
        let s = region.change();
        if run >= WARM_UP {
            calls += s.allocations + s.reallocations;
        }
    }
    calls
}

fn step(device: &Device, net: Sequential, adam: bool, x: &[usize], classes: usize) -> Session {
    let net = Rc::new(net);
    let optimizer: Box<dyn Optimizer> = if adam {
        Box::new(AdamW::new(net.named_parameters(), AdamWOptions::default()).expect("valid"))
    } else {
        let o = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
        Box::new(Sgd::new(net.named_parameters(), o).expect("valid"))
    };
    let optimizer = RefCell::new(optimizer);
    let mut f = compile(device, |x: &[Tensor]| {
        let loss = net.forward(&x[0])?.cross_entropy(&x[1])?;
        loss.backward()?;
        optimizer.borrow_mut().step()?;
        Ok(vec![loss.detach()])
    });
    let labels = Tensor::new(device, &vec![(classes - 1) as i64; x[0]], [x[0]]).expect("fits");
    let x = Tensor::zeros(device, x, DType::F32).expect("fits");
    f.session(&[&x, &labels]).expect("compiles")
}

#[test]
fn a_compiled_training_step_takes_nothing_from_the_heap() {
    for threads in [1, 2] {
        let d = device(threads);
        let mut cx = InitCx::new(&d, 3);
        let cx = &mut cx;
        let conv = Sequential::new()
            .then(Conv2d::new(cx, 3, 8, 3).expect("valid"))
            .then(BatchNorm2d::new(cx, 8).expect("valid"))
            .then(Relu)
            .then(MaxPool2d::new(2))
            .then(Dropout::new(0.2, &mut Rng::new(5)).expect("valid"))
            .then(Flatten::default())
            .then(Linear::new(cx, 8 * 15 * 15, 10).expect("valid"));
        let mlp = Sequential::new()
            .then(Linear::new(cx, 784, 128).expect("valid"))
            .then(LayerNorm::new(cx, [128]).expect("valid"))
            .then(Gelu)
            .then(Linear::new(cx, 128, 10).expect("valid"));
        for (name, mut session) in
            [("convolution", step(&d, conv, false, &[4, 3, 32, 32], 10)), ("mlp", step(&d, mlp, true, &[64, 784], 10))]
        {
            // the device drops what the trace has left on a thread of its own
            d.channel().sync().expect("open");
            assert_eq!(heap_calls(&mut session, 10), 0, "{name}, {threads} threads");
        }
    }
    a_loop_takes_nothing_from_the_heap();
}

/// A loop with dropout, everything that can be collected and a branch in it, and its gradient.
fn looped(drop: &Dropout, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let w = x[1].detach().requires_grad()?;
    let (end, all) = scan(
        &ScanOptions::default(),
        &[&x[0].zeros_like()?.narrow(0, 0, 1)?.squeeze(&[0])?],
        &[&x[0]],
        |k, c, row| {
            let h = (c[0].matmul(&w)? + &row[0])?.tanh()?;
            let h = cond(&k.lt(2)?, &[&h], |h| Ok(vec![drop.forward(&h[0])?]), |h| Ok(h.to_vec()))?.swap_remove(0);
            Ok((vec![h.clone()], vec![Collect::All(h.clone()), Collect::Sum(h.square()?), Collect::Last(h.neg()?)]))
        },
    )?;
    let loss = ((end[0].sum()? + all[0].sum()?)? + (all[1].sum()? + all[2].sum()?)?)?;
    let dw = grad(&loss, &[&w], false)?;
    Ok(dw.into_iter().flatten().chain([loss]).collect())
}

/// Part of the test above: the count is of the whole process, so one test at a time.
fn a_loop_takes_nothing_from_the_heap() {
    let d = device(1);
    let drop = Dropout::new(0.2, &mut Rng::new(5)).expect("valid");
    let mut f = compile(&d, |x: &[Tensor]| looped(&drop, x));
    let x = Tensor::ones(&d, [6, 4, 8], DType::F32).expect("fits");
    let w = Tensor::ones(&d, [8, 8], DType::F32).expect("fits");
    let mut session = f.session(&[&x, &w]).expect("compiles");
    d.channel().sync().expect("open");
    assert_eq!(heap_calls(&mut session, 10), 0, "loop");
}
