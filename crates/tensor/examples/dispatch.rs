//! Cost of an addition of four elements beside its kernel: `cargo run --release -p remat-tensor --example dispatch`.
//!
//! Prints one `name<TAB>nanoseconds per op` a line, each the median of its rounds; `scripts/bench_dispatch.py` runs this
//! in turns with PyTorch. `burst` is the caller's time for as many ops as the queue takes, `chain` the time of a long
//! dependent chain until its end has run, `one` that of a single addition until it has run.

use std::hint::black_box;
use std::time::{Duration, Instant};

use remat_ops::OpRef;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_runtime::{Channel, Device, DeviceOptions, Handle};
use remat_tensor::Tensor;
use remat_types::{Result, smallvec};

/// Fits the default queue, each op with the delete of its input.
const BURST: u32 = 500;
const CHAIN: u32 = 10_000;
const ONE: u32 = 200;
const ROUNDS: usize = 15;

fn main() -> Result<()> {
    let device = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() })?;
    let c = device.channel();
    let x = Tensor::new(&device, &[1f32; 4], [4])?;
    let y = Tensor::new(&device, &[1f32, 2., 3., 4.], [4])?;
    let p = x.requires_grad()?;
    let add = OpRef::new(Binary { f: BinaryFn::Add });
    let channel = |n| handles(&c, &add, x.handle(), y.handle(), n);
    let plain = |n| tensors(&x, &y, n);
    let recorded = |n| tensors(&p, &y, n);
    report("burst channel", &c, BURST, false, channel)?;
    report("burst tensor", &c, BURST, false, plain)?;
    report("burst recorded", &c, BURST, false, recorded)?;
    report("chain channel", &c, CHAIN, true, channel)?;
    report("chain tensor", &c, CHAIN, true, plain)?;
    report("chain recorded", &c, CHAIN, true, recorded)?;
    report("one tensor", &c, ONE, true, |n| (0..n).try_for_each(|_| c.wait((&x + &y)?.handle())))
}

fn handles(c: &Channel, add: &OpRef, x: &Handle, y: &Handle, n: u32) -> Result<()> {
    let mut x = x.clone();
    for _ in 0..n {
        x = c.apply(add.clone(), smallvec![x.clone(), y.clone()])?.swap_remove(0);
    }
    Ok(())
}

fn tensors(x: &Tensor, y: &Tensor, n: u32) -> Result<()> {
    let mut x = x.clone();
    for _ in 0..n {
        x = (&x + y)?;
    }
    black_box(&x);
    Ok(())
}

/// Times `run(ops)`, with the wait for the device or before it.
fn report(name: &str, c: &Channel, ops: u32, with_sync: bool, run: impl Fn(u32) -> Result<()>) -> Result<()> {
    let mut all: Vec<Duration> = Vec::new();
    for _ in 0..=ROUNDS {
        c.sync()?;
        let start = Instant::now();
        run(ops)?;
        let caller = start.elapsed();
        c.sync()?;
        all.push(if with_sync { start.elapsed() } else { caller });
    }
    // The first round warms up.
    all.remove(0);
    all.sort();
    println!("{name}\t{:.1}", all[ROUNDS / 2].as_nanos() as f64 / f64::from(ops));
    Ok(())
}
