//! Copies between the workspace and a file, beside the calls of a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remat_graph::plan::problem::SpillRates;
use remat_types::{Error, ErrorKind, Result};

use super::run::Range;
use super::{Place, Step};
use crate::arena::ALIGN_BYTES;
use crate::spill::{BLOCK_BYTES, Flight, Slot, SpillFile, SpillTo};

/// What happens to a slot of the file before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// Begins to copy the bytes of the workspace from this offset on to the slot.
    Out { slot: usize, at: usize },
    /// Begins to copy the slot there.
    In { slot: usize, at: usize },
    /// Waits for the slot's copies.
    Wait { slot: usize },
}

/// What a plan spills: moves with the number of the step that they come before, in order.
#[derive(Debug, Default)]
pub(super) struct Moves {
    pub(super) list: Vec<(usize, Move)>,
    pub(super) slots: Vec<Slot>,
    /// The workspace begins at a multiple of this.
    pub(super) align: usize,
}

/// What a workspace takes more so that it begins at such a multiple, wherever it lies.
pub(super) fn beyond(align: usize) -> usize {
    if align > ALIGN_BYTES { align } else { 0 }
}

impl Moves {
    /// A slot for so many bytes more.
    pub(super) fn slot(&mut self, bytes: usize) -> usize {
        let at = self.slots.last().map_or(0, |s| s.at + s.bytes.next_multiple_of(BLOCK_BYTES) as u64);
        self.slots.push(Slot { at, bytes });
        self.slots.len() - 1
    }

    fn bytes(&self, is_counted: impl Fn(&Move) -> bool) -> usize {
        let of = |m: &Move| match m {
            Move::Out { slot, .. } | Move::In { slot, .. } | Move::Wait { slot } => self.slots[*slot].bytes,
        };
        self.list.iter().map(|(_, m)| m).filter(|m| is_counted(m)).map(of).sum()
    }

    pub(super) fn out_bytes(&self) -> usize {
        self.bytes(|m| matches!(m, Move::Out { .. }))
    }

    pub(super) fn in_bytes(&self) -> usize {
        self.bytes(|m| matches!(m, Move::In { .. }))
    }

    /// Errors (Internal) unless every copy stays within the workspace, what is copied out is not written meanwhile, what
    /// is copied in is not touched, and no step writes to one of `states` before the last wait: after that nothing fails
    /// for the disk's sake, so a run that fails has changed no state.
    pub(super) fn check(&self, steps: &[Step], arena_bytes: usize, states: &[usize]) -> Result<()> {
        let mut check = Check { moves: self, arena_bytes, flying: Vec::new(), is_out: vec![false; self.slots.len()] };
        let mut next = 0;
        for (i, s) in steps.iter().enumerate() {
            while let Some((_, m)) = self.list.get(next).filter(|(before, _)| *before <= i) {
                check.begin(*m)?;
                next += 1;
            }
            check.step(s)?;
            let is_state = |p: Place| matches!(p, Place::Output(j) if states.contains(&j));
            if next < self.list.len() && s.y.iter().any(|t| is_state(t.place)) {
                return bad(format!("step {i} updates a state while copies are to come"));
            }
        }
        if next < self.list.len() { bad("a copy after the last step".into()) } else { Ok(()) }
    }
}

fn bad(what: String) -> Result<()> {
    Err(Error::new(ErrorKind::Internal, format!("spilled plan: {what}")))
}

struct Check<'m> {
    moves: &'m Moves,
    arena_bytes: usize,
    /// Copies under way: slot, whether to the file, and where.
    flying: Vec<(usize, bool, usize)>,
    is_out: Vec<bool>,
}

impl Check<'_> {
    fn begin(&mut self, m: Move) -> Result<()> {
        let (slot, is_out, at) = match m {
            Move::Wait { slot } => {
                self.flying.retain(|f| f.0 != slot);
                return Ok(());
            }
            Move::Out { slot, at } => (slot, true, at),
            Move::In { slot, at } => (slot, false, at),
        };
        let bytes = self.moves.slots[slot].bytes;
        if at.checked_add(bytes).is_none_or(|end| end > self.arena_bytes) {
            return bad(format!("slot {slot} leaves the workspace"));
        }
        if self.flying.iter().any(|f| f.0 == slot) || self.is_out[slot] == is_out {
            return bad(format!("slot {slot} is copied twice, or read before it was written"));
        }
        if self.flying.iter().any(|f| !(is_out && f.1) && self.overlaps(f, at, bytes)) {
            return bad(format!("slot {slot} overlaps another copy"));
        }
        self.is_out[slot] |= is_out;
        self.flying.push((slot, is_out, at));
        Ok(())
    }

    fn overlaps(&self, &(slot, _, from): &(usize, bool, usize), at: usize, bytes: usize) -> bool {
        at < from + self.moves.slots[slot].bytes && from < at + bytes
    }

    fn step(&self, s: &Step) -> Result<()> {
        let touches = |f: &(usize, bool, usize), place: Place, bytes: usize| matches!(place, Place::Arena(at) if bytes > 0 && self.overlaps(f, at, bytes));
        for f in &self.flying {
            let writes = s.y.iter().any(|t| touches(f, t.place, t.bytes))
                || touches(f, Place::Arena(s.workspace.0), s.workspace.1);
            let reads = s.x.iter().any(|x| touches(f, x.place, x.bytes));
            if writes || reads && !f.1 {
                return bad(format!("{} runs into the copy of slot {}", s.op.label(), f.0));
            }
        }
        Ok(())
    }
}

/// Checked moves, and the files of the runs: one for each that is under way at the same time.
#[derive(Debug)]
pub(super) struct Spill {
    pub(super) moves: Moves,
    to: SpillTo,
    files: Mutex<Vec<SpillFile>>,
    /// Least nanoseconds that a run has waited for copies.
    least_wait: AtomicU64,
}

impl Spill {
    /// Errors (Io): no file.
    pub(super) fn new(moves: Moves, to: SpillTo) -> Result<Spill> {
        let files = Mutex::new(vec![to.open()?]);
        Ok(Spill { moves, to, files, least_wait: AtomicU64::new(u64::MAX) })
    }

    pub(super) fn files(&self) -> MutexGuard<'_, Vec<SpillFile>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least wait of all runs, in nanoseconds.
    pub(super) fn least_wait(&self) -> Option<u64> {
        Some(self.least_wait.load(Ordering::Relaxed)).filter(|ns| *ns < u64::MAX)
    }

    /// The folder with the rates that runs have seen.
    pub(super) fn measured(&self) -> SpillTo {
        let rates: Option<SpillRates> = self.files().iter().find_map(SpillFile::rates);
        rates.and_then(|r| SpillTo::with_rates(self.to.folder(), r).ok()).unwrap_or_else(|| self.to.clone())
    }

    /// Runs `f` with the copies of a run in `arena`. The file is kept for the next run.
    pub(super) fn fly(&self, arena: Range, f: impl FnOnce(&mut Flying<'_>) -> Result<()>) -> Result<()> {
        let kept = self.files().pop();
        let mut file = kept.map_or_else(|| self.to.open(), Ok)?;
        // SAFETY: `Moves::check` has seen that no step of the plan touches memory that is on its way; `arena` is the
        // run's alone, and outlives the flight, which ends within this call.
        let flight = unsafe { file.begin(self.moves.slots.len(), self.moves.list.len()) };
        let mut flying = Flying { moves: &self.moves, next: 0, flight, arena };
        let result = f(&mut flying);
        let waited = flying.flight.waited().as_nanos() as u64;
        drop(flying);
        if result.is_ok() {
            self.least_wait.fetch_min(waited, Ordering::Relaxed);
        }
        self.files().push(file);
        result
    }
}

/// The copies of a run that is under way.
pub(super) struct Flying<'f> {
    moves: &'f Moves,
    next: usize,
    flight: Flight<'f>,
    arena: Range,
}

impl Flying<'_> {
    /// What comes before step `i`; true if there was something. Errors (Io): a copy failed.
    pub(super) fn before(&mut self, i: usize) -> Result<bool> {
        let mut any = false;
        while let Some(&(_, m)) = self.moves.list.get(self.next).filter(|(before, _)| *before <= i) {
            self.next += 1;
            any = true;
            match m {
                Move::Wait { slot } => self.flight.wait(slot)?,
                Move::Out { slot, at } => {
                    let s = self.moves.slots[slot];
                    self.flight.copy_out(slot, s, self.arena.part(at, s.bytes)?.first());
                }
                Move::In { slot, at } => {
                    let s = self.moves.slots[slot];
                    self.flight.copy_in(slot, s, self.arena.part(at, s.bytes)?.first());
                }
            }
        }
        Ok(any)
    }
}
