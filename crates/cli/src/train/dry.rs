//! Runs over facts alone: the peak without a budget, and the smallest budget that works, without touching the memory.

use std::rc::Rc;

use remat::runtime::{Device, DeviceOptions, SmallestBudget, dry_peak_bytes, smallest_budget, smallest_budget_within};
use remat::types::{ErrorKind, Result};

use super::ranks::Ranks;
use super::session::Session;
use super::task::{Settings, Task};

/// Steps of a dry run: the first makes what the second finds, and near the smallest budget later ones begin with other things in memory.
const STEPS: usize = 4;

/// The parameters that decide the memory of a run.
pub(super) struct Dry<'a, T: Task> {
    pub(super) task: &'a Rc<T>,
    pub(super) settings: &'a Settings<T::Model>,
    pub(super) threads: usize,
    /// The name of the device that will train.
    pub(super) device: &'a str,
    pub(super) compiled: bool,
    pub(super) recompute_limit: u32,
    /// A dry run is one rank's: it computes nothing, and the others hear nothing of it.
    pub(super) ranks: &'a Ranks,
}

impl<T: Task> Dry<'_, T> {
    fn options(&self) -> DeviceOptions {
        let ranks = Some(self.ranks.device.clone());
        let recompute_limit = self.recompute_limit;
        let dry_of = Some(self.device.to_owned());
        DeviceOptions { threads: self.threads, ranks, recompute_limit, dry_of, ..DeviceOptions::default() }
    }

    fn rehearse(&self, device: &Device) -> Result<()> {
        Session::new(device, self.task, self.settings, self.compiled, self.ranks)?.rehearse(STEPS)
    }

    /// The arena's peak of a run without a budget.
    pub(super) fn peak(&self) -> Result<usize> {
        dry_peak_bytes(&self.options(), |device| self.rehearse(device))
    }

    /// The smallest budget under which a dry run succeeds; `None` if not even the peak does.
    pub(super) fn smallest_budget(&self) -> Result<Option<SmallestBudget>> {
        if_any(smallest_budget(&self.options(), |device| self.rehearse(device)))
    }

    /// The smallest budget under which a dry run takes at most `times` as long; `None` if it takes longer under the peak.
    pub(super) fn smallest_budget_within(&self, times: f64) -> Result<Option<SmallestBudget>> {
        if_any(smallest_budget_within(&self.options(), times, |device| self.rehearse(device)))
    }
}

fn if_any(found: Result<SmallestBudget>) -> Result<Option<SmallestBudget>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::Budget || e.kind() == ErrorKind::Poisoned => Ok(None),
        Err(e) => Err(e),
    }
}
