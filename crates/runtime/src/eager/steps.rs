//! The caller of the running command, its steps, and the failures in them that no call has reported.

use std::sync::Arc;

use remat_types::Error;
use rustc_hash::FxHashMap;

use super::failure::{Caller, Failure, Failures, HeldBack};
use super::worker::Worker;

/// See the module's note.
pub(super) struct Steps {
    /// Shared with the callers.
    failures: Arc<Failures>,
    caller: Caller,
    /// Steps that each caller has ended.
    ended: FxHashMap<Caller, u64>,
}

impl Steps {
    pub(super) fn new(failures: Arc<Failures>) -> Self {
        Steps { failures, caller: Caller::current(), ended: FxHashMap::default() }
    }

    pub(super) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// The caller of the running command.
    pub(super) fn caller(&self) -> Caller {
        self.caller
    }

    /// A command of `caller` is about to run.
    pub(super) fn begin_command(&mut self, caller: Caller) {
        self.caller = caller;
    }

    /// The number of the caller's present step, from 1.
    pub(super) fn number(&self) -> u64 {
        1 + self.ended.get(&self.caller).copied().unwrap_or(0)
    }
}

impl Worker {
    /// Notes a failure of the running command.
    pub(super) fn record_failure(&mut self, e: Error) -> Arc<Failure> {
        self.record_failure_of(e, self.steps.caller, self.steps.number())
    }

    /// Notes a failure of a caller's command, in the caller's step of this number.
    pub(super) fn record_failure_of(&mut self, e: Error, caller: Caller, step: u64) -> Arc<Failure> {
        self.abandon();
        let f = Failure::new(e, caller, step);
        self.steps.failures.record(caller, &f);
        self.resolve_updates(&f);
        f
    }

    /// The unreported failure in the present step of the running command's caller. An asynchronous device may know of
    /// further ones; its gate keeps updates from being made then. Several ranks must know before they agree, so they
    /// wait for the device.
    pub(super) fn failure_of_step(&mut self) -> Option<Arc<Failure>> {
        let (caller, step) = (self.steps.caller, self.steps.number());
        if let Some(f) = self.steps.failures.of_step(caller, step) {
            return Some(f);
        }
        if self.launcher.is_asynchronous() && !self.has_ranks() {
            return None;
        }
        let e = self.launcher.failure_of_step()?;
        Some(self.record_failure(e.context("an operation of this step failed")))
    }

    /// The failure that reports an update held back for `cause`: `cause` itself, or a new one if `cause` was reported
    /// before.
    pub(super) fn hold_back(&mut self, cause: Arc<Failure>, what: HeldBack) -> Arc<Failure> {
        self.hold_back_of(cause, what, self.steps.caller, self.steps.number())
    }

    /// As [`Worker::hold_back`], for a caller's step of this number.
    pub(super) fn hold_back_of(
        &mut self,
        cause: Arc<Failure>,
        what: HeldBack,
        caller: Caller,
        step: u64,
    ) -> Arc<Failure> {
        if cause.hold_back(what) {
            if cause.caller() != caller {
                self.steps.failures.record(caller, &cause);
            }
            return cause;
        }
        if let Some(f) = self.steps.failures.of_step(caller, step).filter(|f| f.hold_back(what)) {
            return f;
        }
        self.abandon();
        let f = Failure::of_held_back(&cause, what, caller, step);
        self.steps.failures.record(caller, &f);
        f
    }

    pub(super) fn step_mark(&mut self, caller: Caller, is_given_up: bool) {
        self.steps.caller = caller;
        if is_given_up {
            self.steps.failures.give_up(caller, self.steps.number());
        }
        *self.steps.ended.entry(caller).or_default() += 1;
        self.launcher.mark_step();
        self.forget_updates_made();
        self.end_comm_scratch();
        self.end_history();
        self.choose_for_next_step();
        self.end_schedule();
        self.schedule.end_step();
        self.work.end_step();
        self.end_of_step();
    }
}
