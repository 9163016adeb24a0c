//! The search for a sufficient budget, and for what fits one, by dry runs. A program runs over facts alone, on a device
//! without memory.
//!
//! Whether a program runs under a budget depends on its commands and the budget alone. So a dry device gives the same
//! verdict as a real one. The error of an operation that does not fit names a budget for *that* operation. Only a run
//! of the whole program shows what the whole program needs.

use remat_types::{Error, ErrorKind, Result};

use crate::eager::Device;
use crate::options::DeviceOptions;
use crate::report::Stats;
use remat_device::Alignment;

/// The search ends when it knows the smallest budget within this part of the peak.
const PART: usize = 1024;

/// The smallest budget under which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallestBudget {
    /// The smallest budget, in bytes, under which a dry run succeeded, within the time limit if there was one.
    pub bytes: usize,
    /// The largest budget, in bytes, that is known not to suffice, because of memory, work or time; 0 if there is none.
    pub refused_bytes: usize,
    /// The peak in bytes of a run without a budget.
    pub peak_bytes: usize,
    /// The number of dry runs that the search took.
    pub runs: u32,
}

/// True for the failures of a budget: the reported one, and those that follow from it.
fn is_budget(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::Budget | ErrorKind::Poisoned)
}

/// The peak in bytes of a program on a dry device with these options. Errors: those of `program`; Budget if the budget
/// of the options does not suffice.
pub fn dry_peak_bytes(options: &DeviceOptions, program: impl FnOnce(&Device) -> Result<()>) -> Result<usize> {
    dry_stats(options, program).map(|stats| stats.peak_bytes)
}

fn dry_stats(options: &DeviceOptions, program: impl FnOnce(&Device) -> Result<()>) -> Result<Stats> {
    let device = Device::dry(options.clone())?;
    let channel = device.channel();
    let done = program(&device).and_then(|()| {
        channel.sync()?;
        channel.stats()
    });
    // Failures beside the first error need no report.
    let closed = channel.close();
    done.and_then(|stats| closed.map(|()| stats))
}

fn under(options: &DeviceOptions, budget_bytes: Option<usize>) -> DeviceOptions {
    DeviceOptions { budget_bytes, spill: None, ..options.clone() }
}

/// The smallest budget under which a program runs, within a 1,024th of its peak without a budget.
///
/// Each call of `program` gets a new dry device, and does on it everything that must fit. For example, it makes the
/// network and takes two training steps, since the first step makes tensors that the second finds. `options` are those
/// of the device on which it will run. Their budget and their spill folder are not used.
///
/// Errors: those of `program` without a budget; Budget if the program exceeds the limit of work even with room for all
/// of its tensors and for all inputs of their recomputation.
///
/// ```
/// # use remat_runtime::{DeviceOptions, smallest_budget};
/// # use remat_types::Result;
/// # fn main() -> Result<()> {
/// let found = smallest_budget(&DeviceOptions::default(), |device| {
///     // what a step of the program does
///     device.channel().sync()
/// })?;
/// assert!(found.bytes <= found.peak_bytes);
/// # Ok(())
/// # }
/// ```
pub fn smallest_budget(options: &DeviceOptions, program: impl FnMut(&Device) -> Result<()>) -> Result<SmallestBudget> {
    search(options, f64::INFINITY, program)
}

/// As [`smallest_budget`], for a run that takes at most `times` as long as one without a budget.
///
/// The times are estimates, and no plan is followed. So a device that plans repeated steps takes less time. A run near
/// the smallest budget takes several times as long as one without a budget.
///
/// Errors: those of [`smallest_budget`]; Value if `times` is below 1 or no number; Budget if the run takes longer under
/// its own peak.
pub fn smallest_budget_within(
    options: &DeviceOptions,
    times: f64,
    program: impl FnMut(&Device) -> Result<()>,
) -> Result<SmallestBudget> {
    if times.is_nan() || times < 1.0 {
        let what =
            format!("a run under a budget takes at least as long as one without: `times` is {times}, give 1 or more");
        return Err(Error::new(ErrorKind::Value, what));
    }
    search(options, times, program)
}

fn search(
    options: &DeviceOptions,
    times: f64,
    mut program: impl FnMut(&Device) -> Result<()>,
) -> Result<SmallestBudget> {
    let taken_ns = |stats: &Stats| (stats.executed_ns + stats.recomputed_ns) as f64;
    let mut run = |options: &DeviceOptions| dry_stats(options, &mut program);
    let free = run(&under(options, None))?;
    let (peak_bytes, most_ns) = (free.peak_bytes, taken_ns(&free) * times);
    if peak_bytes == 0 {
        return Ok(SmallestBudget { bytes: 0, refused_bytes: 0, peak_bytes, runs: 1 });
    }
    let at_peak = run(&under(options, Some(peak_bytes)));
    let (mut low, mut high, most, mut runs) = match at_peak {
        Ok(stats) => (0, peak_bytes, stats, 2),
        // Under a budget a program also keeps the inputs of its recipes, which may take more than the peak without one.
        Err(e) if is_budget(&e) => {
            let recorded = DeviceOptions { always_record: true, ..under(options, None) };
            let bytes = run(&recorded)?.peak_bytes;
            (peak_bytes, bytes, run(&under(options, Some(bytes)))?, 4)
        }
        Err(e) => return Err(e),
    };
    if taken_ns(&most) > most_ns {
        let what =
            format!("under {high} bytes, with which it surely runs, the run takes more than {times} times as long");
        return Err(Error::new(ErrorKind::Budget, what));
    }
    let resolution = peak_bytes / PART + Alignment::HOST.bytes();
    // The budget that an error names suffices for a compiled step, and may suffice for an operation. So every second
    // try bisects. If the named budget suffices, one more try shows whether slightly less does not.
    let (mut hint, mut is_last_hint) = (Some(most.least_budget_bytes + resolution), false);
    while high - low > resolution {
        let hinted = hint.take().filter(|b| (low + 1..high).contains(b));
        let at = hinted.unwrap_or(low.midpoint(high));
        runs += 1;
        match run(&under(options, Some(at))) {
            Ok(stats) if taken_ns(&stats) > most_ns => (low, is_last_hint) = (at, false),
            Ok(_) => {
                high = at;
                hint = hinted.filter(|_| !is_last_hint).map(|b| b.saturating_sub(resolution));
                is_last_hint = hint.is_some();
            }
            Err(e) if is_budget(&e) => {
                (low, is_last_hint) = (at, false);
                let told = e.shortfall().map(|s| s.smallest_feasible_bytes);
                hint = told.filter(|_| hinted.is_none());
            }
            Err(e) => return Err(e),
        }
    }
    Ok(SmallestBudget { bytes: high, refused_bytes: low, peak_bytes, runs })
}

/// The largest batch, up to `most`, with which a program runs under a budget of `budget_bytes`. `None` if not even 1
/// fits.
///
/// Each call of `program` gets a dry device and the number of examples of a batch; otherwise as for
/// [`smallest_budget`]. The search assumes that a batch larger than one that does not fit does not fit either. Errors:
/// those of `program`, except budget errors.
pub fn largest_batch(
    options: &DeviceOptions,
    budget_bytes: usize,
    most: usize,
    mut program: impl FnMut(&Device, usize) -> Result<()>,
) -> Result<Option<usize>> {
    let options = under(options, Some(budget_bytes));
    let mut fits = |batch: usize| match dry_peak_bytes(&options, |device| program(device, batch)) {
        Ok(_) => Ok(true),
        Err(e) if is_budget(&e) => Ok(false),
        Err(e) => Err(e),
    };
    // Doubles the batch until it does not fit or is the most, and then bisects.
    let (mut low, mut high) = (0, 1);
    while high <= most && fits(high)? {
        if high == most {
            return Ok(Some(most));
        }
        low = high;
        high = high.saturating_mul(2).min(most);
    }
    high = high.min(most.saturating_add(1));
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok((low > 0).then_some(low))
}
