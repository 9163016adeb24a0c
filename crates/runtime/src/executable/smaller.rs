//! Executables of the same graph with a smaller workspace, for runs beside values for which the plan left no room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use remat_device::spill::SpillTo;
use remat_types::Result;

use super::{Executable, ExecutableOptions};

/// Seconds for a plan that a run waits for. The usual time would stop the program for as long as many runs take.
const PLAN_SECONDS: f64 = 0.5;

/// The executables made so far, by the limit of their workspace.
#[derive(Debug, Default)]
pub(super) struct Smaller(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    by_limit: BTreeMap<usize, Result<Arc<Executable>>>,
    /// The limit of the one that ran last; `None` if that was the executable itself.
    last: Option<usize>,
}

impl Executable {
    /// The executable for a run whose workspace may take `room` bytes: `None` for this one. Another one gives the same
    /// bits. It is planned at its first use, for the largest of a few limits within the room, so that a room that
    /// shrinks a little from run to run does not need a plan each time. `spill` is the folder to which values may be
    /// spilled.
    ///
    /// Errors: Budget, with figures of the workspace, if no order of calls keeps to `room`.
    pub(crate) fn within(&self, room: usize, spill: Option<&SpillTo>) -> Result<Option<Arc<Executable>>> {
        let mut made = self.smaller.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.last = None;
        let (mut limit, unit) = (self.figures.arena_bytes, self.kernels.alignment().bytes());
        while limit > room {
            limit = (limit - (limit / 16).max(unit).min(limit)) / unit * unit;
        }
        if limit == self.figures.arena_bytes {
            return Ok(None);
        }
        let mut plan = |limit: usize| {
            let found = made.by_limit.entry(limit).or_insert_with(|| self.planned_within(limit, spill));
            found.clone().map(|e| (limit, e))
        };
        let (limit, found) = plan(limit).or_else(|e| match e.shortfall().map(|s| s.smallest_feasible_bytes) {
            Some(least) if least <= room => plan(least),
            _ => Err(e),
        })?;
        made.last = Some(limit);
        found.observe(self.observer());
        Ok(Some(found))
    }

    fn planned_within(&self, limit: usize, spill: Option<&SpillTo>) -> Result<Arc<Executable>> {
        let options = ExecutableOptions {
            workspace_limit: Some(limit),
            plan_seconds: Some(PLAN_SECONDS),
            spill: self.spills_to().or(spill.cloned()),
            node_ns: self.own_times(),
            parts: Vec::new(),
        };
        Executable::for_kernels(self.graph.clone(), &self.kernels, &options).map(Arc::new)
    }

    /// The executable that ran last in place of this one, if its workspace had too little room.
    pub fn run_in_its_place(&self) -> Option<Arc<Executable>> {
        let made = self.smaller.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.last.and_then(|limit| made.by_limit.get(&limit)?.as_ref().ok().cloned())
    }
}
