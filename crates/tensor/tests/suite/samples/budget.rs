//! A program around each sample gives the same bits under any budget, or the contract's error.

use remat_emulated::EmulatedOptions;
use remat_ops::{OpRef, Sample};
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::Tensor;
use remat_types::{ErrorKind, HostTensor, Result};

use super::{apply, put, walk_computing};
use crate::support::cpu;

/// Applications of the sample's op in a program.
const ROUNDS: usize = 6;

/// Percentages of the peak without a budget; the last one makes the errors say what the least budget is.
pub(super) const BUDGETS: [usize; 5] = [100, 75, 50, 25, 0];

/// The counts of a walk.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Runs that ended with values.
    pub(super) feasible: usize,
    /// Runs that ended with the contract's error.
    pub(super) infeasible: usize,
    /// Programs in which something was made again.
    pub(super) recomputing: usize,
    /// Programs with bytes.
    pub(super) programs: usize,
    /// Programs of empty tensors.
    pub(super) empty: usize,
}

/// A program: what it keeps, in the order in which it was made.
pub(super) type Program<'a> = &'a dyn Fn(&Device) -> Result<Vec<Tensor>>;

/// Applies the op several times to copies of copies of the data, which a budget may evict and make again, copies what
/// comes out, and keeps all. In every other round the op gets the last handles on its inputs and may write over them.
fn around(d: &Device, s: &Sample<OpRef>) -> Result<Vec<Tensor>> {
    let copies = |x: &[Tensor]| -> Result<Vec<Tensor>> { x.iter().map(Tensor::contiguous).collect() };
    let mut kept = Vec::new();
    let mut inputs = put(d, &s.x)?;
    for round in 0..ROUNDS {
        inputs = copies(&inputs)?;
        kept.extend(inputs.iter().cloned());
        let x = if round % 2 == 0 { inputs.clone() } else { copies(&inputs)? };
        let y = apply(d, &s.op, x)?;
        kept.extend(copies(&y)?);
        kept.extend(y);
    }
    Ok(kept)
}

/// The values in an order other than that in which they were made: every third, from the last to the first.
fn read(kept: &[Tensor]) -> Vec<Result<HostTensor>> {
    let order = (0..3).flat_map(|phase| (0..kept.len()).rev().filter(move |i| i % 3 == phase));
    order.map(|i| kept[i].to_host()).collect()
}

/// Values of a run, or how it failed as a budget's user may see it; anything else is a message.
fn outcome(
    values: Vec<Result<HostTensor>>,
    want: &[HostTensor],
    bytes: usize,
) -> std::result::Result<Option<usize>, String> {
    let mut least = None;
    for (i, (got, want)) in values.into_iter().zip(want).enumerate() {
        match got {
            Ok(got) if got == *want => {}
            Ok(got) => return Err(format!("value {i} is {got:?}, not {want:?}")),
            Err(e) => match (e.kind(), e.shortfall()) {
                (ErrorKind::Budget, Some(s)) if s.smallest_feasible_bytes > bytes => {
                    least = least.max(Some(s.smallest_feasible_bytes));
                }
                (ErrorKind::Poisoned, _) if least.is_some() => {}
                _ => return Err(format!("value {i}: {e:?}")),
            },
        }
    }
    Ok(least)
}

/// Runs `program` without a budget, then under each of `budgets` percent of its peak, and where that is infeasible under
/// what the error says would do, until it does.
pub(super) fn same_bits_under(
    budgets: &[usize],
    device: &dyn Fn(DeviceOptions) -> Device,
    program: Program<'_>,
    tally: &mut Tally,
) -> std::result::Result<(), String> {
    // facts carry no values, so that every value comes from the device
    let free = DeviceOptions { host_compute: false, always_record: true, ..DeviceOptions::default() };
    let d = cpu(free.clone());
    let kept = program(&d).map_err(|e| format!("{e:?}"))?;
    let want: Vec<HostTensor> = read(&kept).into_iter().collect::<Result<_>>().map_err(|e| format!("{e:?}"))?;
    let peak = d.channel().stats().map_err(|e| format!("{e:?}"))?.peak_bytes;
    let mut recomputed = 0;
    for percent in budgets {
        let mut bytes = peak * percent / 100;
        loop {
            let d = device(DeviceOptions { budget_bytes: Some(bytes), always_record: false, ..free.clone() });
            // A call may tell what failed before anything is read.
            let values = program(&d).map_or_else(|e| vec![Err(e)], |kept| read(&kept));
            let least = outcome(values, &want, bytes).map_err(|e| format!("{bytes} of {peak} bytes: {e}"))?;
            d.channel().verify().map_err(|e| format!("{e:?}"))?;
            let stats = d.channel().stats().map_err(|e| format!("{e:?}"))?;
            if stats.peak_bytes > bytes {
                return Err(format!("peak {} under a budget of {bytes}", stats.peak_bytes));
            }
            let Some(least) = least else {
                tally.feasible += 1;
                recomputed += stats.recomputed_ops;
                break;
            };
            tally.infeasible += 1;
            if bytes >= peak {
                return Err(format!("{bytes} bytes are the peak without a budget: {least} are asked for"));
            }
            // The budget that surely suffices may be more than the peak, which suffices, too.
            bytes = least.min(peak);
        }
    }
    *(if peak > 0 { &mut tally.programs } else { &mut tally.empty }) += 1;
    tally.recomputing += usize::from(recomputed > 0);
    Ok(())
}

#[test]
fn budgets_keep_the_bits_of_every_sample_on_the_cpu() {
    let mut tally = Tally::default();
    let mut idle = Vec::new();
    walk_computing(|s| {
        let before = (tally.recomputing, tally.programs);
        same_bits_under(&BUDGETS, &cpu, &|d| around(d, s), &mut tally)?;
        if tally.programs > before.1 && tally.recomputing == before.0 {
            idle.push(format!("{} of {:?}", s.op.label(), s.x.iter().map(|x| x.shape().clone()).collect::<Vec<_>>()));
        }
        Ok(())
    });
    assert!(tally.recomputing == tally.programs && tally.programs > 300, "{tally:?}: {idle:?}");
    assert!(tally.feasible == BUDGETS.len() * (tally.programs + tally.empty), "{tally:?}");
    assert!(tally.infeasible > tally.programs, "nothing fits into no bytes: {tally:?}");
}

#[test]
fn budgets_keep_the_bits_of_every_sample_on_the_emulated_device() {
    let mut tally = Tally::default();
    walk_computing(|s| {
        let e = EmulatedOptions { streams: 2, seed: 5, max_delay_us: 0, ..EmulatedOptions::default() };
        let log = e.log.clone();
        let device = move |o| {
            let o = DeviceOptions { threads: 1, ..o };
            e.clone().open().and_then(|b| Device::with_backend(b, o)).expect("opens")
        };
        same_bits_under(&[50], &device, &|d| around(d, s), &mut tally)?;
        if log.races().is_empty() { Ok(()) } else { Err(format!("{:?}", log.races())) }
    });
    assert!(tally.recomputing == tally.programs && tally.programs > 300, "{tally:?}");
}
