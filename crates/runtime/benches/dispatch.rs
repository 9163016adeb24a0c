//! The cost of one op beside its kernel: an addition of four elements, on the caller's thread and end to end.
//!
//! A batch is 10,000 additions. `caller` is the time to queue one batch while the worker is held. `worker` is the time
//! in which the worker then runs it. `end to end` is both at once, until the caller's wait is over. All times are
//! divided by the size of the batch. The bench prints the least and the median of the rounds. A batch is a mean of
//! 10,000 already, and on a shared machine the least is the figure to compare. An argument selects one set of options.

use std::time::{Duration, Instant};

use remat_ops::OpRef;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_runtime::{Channel, Device, DeviceOptions, Handle, Kind};
use remat_types::{HostTensor, Result, smallvec};

const BATCH: u32 = 10_000;
const ROUNDS: usize = 15;

fn main() -> Result<()> {
    let options = DeviceOptions { threads: 1, queue_capacity: 4 * BATCH as usize, ..DeviceOptions::default() };
    let budget = DeviceOptions { budget_bytes: Some(64 << 20), ..options.clone() };
    let recording = DeviceOptions { always_record: true, ..options.clone() };
    // `cargo bench` passes flags of its own.
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    for (name, options) in [("no budget", options), ("always record", recording), ("budget of 64 MiB", budget)] {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let c = Device::cpu(options)?.channel();
        let mut figures: [Vec<Duration>; 3] = Default::default();
        for _ in 0..ROUNDS {
            let (caller, worker) = apart(&c)?;
            for (all, one) in figures.iter_mut().zip([caller, worker, together(&c)?]) {
                all.push(one);
            }
        }
        print!("{name:>18}:");
        for (what, mut all) in ["caller", "worker", "end to end"].into_iter().zip(figures) {
            all.sort();
            let per_op = |d: Duration| d.as_nanos() as f64 / f64::from(BATCH);
            print!("  {what} {:.0} ns (median {:.0})", per_op(all[0]), per_op(all[ROUNDS / 2]));
        }
        println!();
    }
    Ok(())
}

fn queue(c: &Channel, x: &Handle) -> Result<()> {
    let op = OpRef::new(Binary { f: BinaryFn::Add });
    for _ in 0..BATCH {
        drop(c.apply(op.clone(), smallvec![x.clone(), x.clone()])?);
    }
    Ok(())
}

fn input(c: &Channel) -> Result<Handle> {
    let x = c.put_as(&HostTensor::from_slice(&[1f32, 2., 3., 4.], [4])?, Kind::Data)?;
    c.sync()?;
    Ok(x)
}

/// The caller's time with the worker held, and the worker's time with the caller waiting.
fn apart(c: &Channel) -> Result<(Duration, Duration)> {
    let x = input(c)?;
    let hold = c.pause()?;
    let start = Instant::now();
    queue(c, &x)?;
    let caller = start.elapsed();
    let start = Instant::now();
    drop(hold);
    c.sync()?;
    Ok((caller, start.elapsed()))
}

fn together(c: &Channel) -> Result<Duration> {
    let x = input(c)?;
    let start = Instant::now();
    queue(c, &x)?;
    c.sync()?;
    Ok(start.elapsed())
}
