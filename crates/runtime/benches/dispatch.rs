//! Cost of one op beside its kernel: an addition of four elements, on the caller's thread and end to end.
//!
//! A batch of 10,000 additions is queued, then the caller waits. `caller` is the time until the last call returned, `end
//! to end` until the wait is over; both are divided by the batch. Printed, not sampled by criterion: a batch is a mean
//! of 10,000 already, and both figures come from one run.

use std::time::{Duration, Instant};

use remat_ops::OpRef;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_runtime::{Channel, Device, DeviceOptions, Kind};
use remat_types::{HostTensor, Result, smallvec};

const BATCH: u32 = 10_000;
const ROUNDS: usize = 15;

fn main() -> Result<()> {
    let options = DeviceOptions { threads: 1, queue_capacity: 2 * BATCH as usize, ..DeviceOptions::default() };
    let budget = DeviceOptions { budget_bytes: Some(64 << 20), ..options.clone() };
    let recording = DeviceOptions { always_record: true, ..options.clone() };
    for (name, options) in [("no budget", options), ("always record", recording), ("budget of 64 MiB", budget)] {
        let c = Device::cpu(options)?.channel();
        let mut rounds = (0..ROUNDS).map(|_| round(&c)).collect::<Result<Vec<_>>>()?;
        rounds.sort_by_key(|r| r.1);
        let (caller, total) = rounds[ROUNDS / 2];
        let (best_caller, best) = rounds[0];
        println!(
            "{name:>18}: caller {:.0} ns, end to end {:.0} ns an op (median of {ROUNDS}); best {:.0} and {:.0} ns",
            per_op(caller),
            per_op(total),
            per_op(best_caller),
            per_op(best)
        );
    }
    Ok(())
}

fn per_op(d: Duration) -> f64 {
    d.as_nanos() as f64 / f64::from(BATCH)
}

fn round(c: &Channel) -> Result<(Duration, Duration)> {
    let x = c.put_as(&HostTensor::from_slice(&[1f32, 2., 3., 4.], [4])?, Kind::Data)?;
    let op = OpRef::new(Binary { f: BinaryFn::Add });
    c.sync()?;
    let start = Instant::now();
    for _ in 0..BATCH {
        drop(c.apply(op.clone(), smallvec![x.clone(), x.clone()])?);
    }
    let caller = start.elapsed();
    c.sync()?;
    Ok((caller, start.elapsed()))
}
