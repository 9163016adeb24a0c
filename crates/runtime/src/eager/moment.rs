//! A thread's position among its steps, and whether one of them failed since.

use std::sync::{Arc, PoisonError};

use super::channel::Channel;
use super::failure::{Caller, Failures};

/// A position in a thread's steps on a device. If a step turns out to have failed, the program can undo notes that it
/// made then.
pub struct Moment {
    failures: Arc<Failures>,
    pub(super) caller: Caller,
    pub(super) step: u64,
    told: u64,
}

impl std::fmt::Debug for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moment").field("step", &self.step).finish_non_exhaustive()
    }
}

impl Moment {
    /// The number of the thread's step, from 1.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// True if both are in one step of one thread and device.
    pub fn is_in_step_of(&self, other: &Moment) -> bool {
        self.is_of_same_steps(other) && self.step == other.step
    }

    /// True if both are of one thread and device.
    pub fn is_of_same_steps(&self, other: &Moment) -> bool {
        Arc::ptr_eq(&self.failures, &other.failures) && self.caller == other.caller
    }

    /// The first step of the thread with a failure that was reported to the thread since this moment.
    pub fn failed_since(&self) -> Option<u64> {
        self.failures.first_step_told(self.caller, self.told)
    }
}

impl Channel {
    /// The present position of this thread among its steps ([`Channel::step_mark`]).
    pub fn moment(&self) -> Moment {
        let caller = Caller::current();
        let marks = self.shared.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let step = 1 + marks.get(&caller).map_or(0, |own| own.count);
        Moment { failures: self.shared.failures.clone(), caller, step, told: self.shared.failures.told() }
    }
}
