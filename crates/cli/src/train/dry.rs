//! Runs over facts alone: the peak without a budget, and the smallest budget that works, without touching the memory.

use std::rc::Rc;

use remat::runtime::{ALIGN_BYTES, Device, DeviceOptions};
use remat::types::{ErrorKind, Result};

use super::ranks::Ranks;
use super::session::Session;
use super::task::{Settings, Task};

/// Steps until a training step's memory repeats: the first makes what the second finds.
const STEPS: usize = 2;

/// The search for the smallest budget ends when it knows it within this part of the peak.
const SEARCH_PART: usize = 1024;

/// Parts of the peak that are tried for less than a plan needs, but enough to make one.
const TOO_LITTLE: [usize; 3] = [8, 4, 2];

/// What decides the memory of a run.
pub(super) struct Dry<'a, T: Task> {
    pub(super) task: &'a Rc<T>,
    pub(super) settings: &'a Settings<T::Model>,
    pub(super) threads: usize,
    pub(super) compiled: bool,
    /// A dry run is one rank's: it computes nothing, and the others hear nothing of it.
    pub(super) ranks: &'a Ranks,
}

impl<T: Task> Dry<'_, T> {
    fn run(&self, budget: Option<usize>) -> Result<usize> {
        let ranks = Some(self.ranks.device.clone());
        let options = DeviceOptions { budget_bytes: budget, threads: self.threads, ranks, ..DeviceOptions::default() };
        let device = Device::dry(options)?;
        let peak = self.rehearse(&device);
        // What failed beside the first error is not worth a word.
        let closed = device.channel().close();
        peak.and_then(|peak| closed.map(|()| peak))
    }

    fn rehearse(&self, device: &Device) -> Result<usize> {
        let mut session = Session::new(device, self.task, self.settings, self.compiled, self.ranks)?;
        session.rehearse(STEPS)?;
        device.channel().sync()?;
        Ok(device.channel().stats()?.peak_bytes)
    }

    /// The arena's peak of a run without a budget.
    pub(super) fn peak(&self) -> Result<usize> {
        self.run(None)
    }

    /// The smallest budget that the plan of a compiled step is refused for a lack of: it is the same for all that do not
    /// suffice. `None` for an eager run, whose errors are those of one operation.
    fn said_to_suffice(&self, peak: usize) -> Result<Option<usize>> {
        for part in TOO_LITTLE.into_iter().filter(|_| self.compiled) {
            match self.run(Some(peak / part)) {
                Ok(_) => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Budget || e.kind() == ErrorKind::Poisoned => {
                    let said = e.shortfall().map(|s| s.smallest_feasible_bytes);
                    if let Some(bytes) = said.filter(|s| (peak / part..=peak).contains(s)) {
                        return Ok(Some(bytes));
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// The smallest budget under which a dry run succeeds: what the plan of a compiled step says, or found by bisection
    /// below `peak`; `None` if none does.
    ///
    /// Whether a run gets through depends on its commands and the budget alone, so the real run does as the dry one.
    pub(super) fn smallest_budget(&self, peak: usize) -> Result<Option<usize>> {
        let works = |bytes: usize| match self.run(Some(bytes)) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::Budget || e.kind() == ErrorKind::Poisoned => Ok(false),
            Err(e) => Err(e),
        };
        if let Some(bytes) = self.said_to_suffice(peak)?
            && works(bytes)?
        {
            return Ok(Some(bytes));
        }
        let (mut low, mut high) = (0, peak);
        if !works(high)? {
            return Ok(None);
        }
        while high - low > peak / SEARCH_PART + ALIGN_BYTES {
            let middle = low + (high - low) / 2;
            if works(middle)? { high = middle } else { low = middle }
        }
        Ok(Some(high))
    }
}
