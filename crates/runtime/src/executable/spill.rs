//! The copies of a run to a file and back, while the run is under way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remat_graph::plan::problem::SpillRates;
use remat_types::Result;

use remat_device::host::Range;
use remat_device::program::Span;
use remat_device::program::{Copies, CopyStep};
use remat_device::spill::{Flight, SpillFile, SpillTo};

/// The spill files of a program: one for each run that is under way at the same time.
#[derive(Debug)]
pub(super) struct Spill {
    to: SpillTo,
    files: Mutex<Vec<SpillFile>>,
    /// Least nanoseconds that a run has waited for copies.
    least_wait: AtomicU64,
}

impl Spill {
    /// Errors (Io): no file.
    pub(super) fn new(to: SpillTo) -> Result<Spill> {
        let files = Mutex::new(vec![to.open()?]);
        Ok(Spill { to, files, least_wait: AtomicU64::new(u64::MAX) })
    }

    pub(super) fn files(&self) -> MutexGuard<'_, Vec<SpillFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least wait of all runs, in nanoseconds.
    pub(super) fn least_wait(&self) -> Option<u64> {
        Some(self.least_wait.load(Ordering::Relaxed)).filter(|ns| *ns < u64::MAX)
    }

    /// The folder with the rates that runs have measured.
    pub(super) fn measured(&self) -> SpillTo {
        let rates: Option<SpillRates> = self.files().iter().find_map(SpillFile::rates);
        rates.and_then(|r| self.to.at_rates(r).ok()).unwrap_or_else(|| self.to.clone())
    }

    /// Calls `f` with the checked copies of a run in `arena`. The file is kept for the next run.
    pub(super) fn fly(
        &self,
        copies: &Copies,
        arena: Range,
        f: impl FnOnce(&mut InFlight<'_>) -> Result<()>,
    ) -> Result<()> {
        let kept = self.files().pop();
        let mut file = kept.map_or_else(|| self.to.open(), Ok)?;
        let flight = file.begin(copies.slots.len(), copies.list.len());
        let mut in_flight = InFlight { copies, next: 0, flight, arena };
        let result = f(&mut in_flight);
        let waited = in_flight.flight.waited().as_nanos() as u64;
        drop(in_flight);
        if result.is_ok() {
            self.least_wait.fetch_min(waited, Ordering::Relaxed);
        }
        self.files().push(file);
        result
    }
}

/// The copies of a run that is under way.
pub(super) struct InFlight<'f> {
    copies: &'f Copies,
    next: usize,
    flight: Flight<'f>,
    arena: Range,
}

impl InFlight<'_> {
    /// True if a copy is due before step `i`.
    pub(super) fn are_due(&self, i: usize) -> bool {
        self.copies.list.get(self.next).is_some_and(|(before, _)| *before <= i)
    }

    /// Begins or awaits the copies that are due before step `i`. Errors (Io): a copy failed.
    pub(super) fn before(&mut self, i: usize) -> Result<()> {
        while let Some(&(_, m)) = self.copies.list.get(self.next).filter(|(before, _)| *before <= i) {
            self.next += 1;
            match m {
                CopyStep::Wait { slot } => self.flight.wait(slot)?,
                CopyStep::Out { slot, at } => {
                    let s = self.copies.slots[slot];
                    let memory = self.arena.part(at, s.bytes)?.first();
                    // SAFETY: `Copies::check` has checked that no step of the plan touches memory of a copy in flight.
                    // The arena belongs to this run, and outlives the flight, which ends within the run.
                    unsafe { self.flight.copy_out(slot, s, memory) };
                }
                CopyStep::In { slot, at } => {
                    let s = self.copies.slots[slot];
                    let memory = self.arena.part(at, s.bytes)?.first();
                    // SAFETY: as above.
                    unsafe { self.flight.copy_in(slot, s, memory) };
                }
            }
        }
        Ok(())
    }
}
