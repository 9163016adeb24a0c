//! An independent verifier of schedules.
//!
//! It replays the steps on a map of the arena and shares no code with the planner: not its sequences, not its
//! lifetimes. What a schedule claims is compared with what the replay finds.
//!
//! **Spilling.** Copies out go through one channel in order, copies in through another, both beside the compute clock.
//! `spill` starts a copy and the storage stays resident; `free` waits until a copy of that storage is out; an operator
//! waits for the copies in of its inputs, and for the copy out of a storage that it overwrites. These waits are the
//! part of spilling that is not hidden.
//!
//! **Recomputation in place.** If an output of a repeated operator is still resident and not overwritten since, it must
//! be given its present offset, and readers do not notice. If it was overwritten, repeating the operator is an error.

mod map;
mod replay;
#[cfg(test)]
mod tests;

use remat_types::Result;

use super::json::format_error;
use super::problem::Problem;
use super::schedule::Schedule;

/// The result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// End of the highest block.
    pub arena_bytes: u64,
    /// The compute clock at the end.
    pub time_ns: u64,
    /// Compute steps.
    pub computes: usize,
    /// Bytes that moved out and in.
    pub spilled_bytes: u64,
}

/// Replays `s` on `p`.
///
/// # Errors
/// [`remat_types::ErrorKind::Format`] with the step: an offset that is not aligned, blocks that overlap, an input that
/// is not resident or was overwritten, an illegal free, an operator repeated that may not be, an output missing at the
/// end, or a claim (arena, time, base time, bound, budget) that is not so.
pub fn check(p: &Problem, s: &Schedule) -> Result<Checked> {
    let mut replay = replay::Replay::new(p, &s.values)?;
    for (i, step) in s.steps.iter().enumerate() {
        replay.step(step).map_err(|e| e.context(format!("steps[{i}]")))?;
    }
    let found = replay.finish()?;
    let base = p.base_time_ns();
    let claims = [
        ("arena_bytes", s.arena_bytes, found.arena_bytes),
        ("time_ns", s.time_ns, found.time_ns),
        ("base_time_ns", s.base_time_ns, base),
    ];
    for (name, claimed, is) in claims {
        if claimed != is {
            return Err(format_error(format!("`{name}` is {is}, not {claimed} as claimed")));
        }
    }
    if s.arena_bytes > s.budget_bytes {
        return Err(format_error(format!(
            "the arena of {} bytes exceeds the budget of {}",
            s.arena_bytes, s.budget_bytes
        )));
    }
    if s.lower_bound_ns > s.time_ns {
        return Err(format_error(format!("the schedule's time {} is below its bound {}", s.time_ns, s.lower_bound_ns)));
    }
    Ok(found)
}
