//! How much a step may recompute: a multiple of what it asks for, counted and never timed.
//!
//! Without a limit, whether a program fits a budget is a question of black pebbling, whose schedules can be exponentially
//! long (Gilbert, Lengauer and Tarjan 1980). So a command is refused where its step would run operators again more than
//! `recompute_limit` times as often as the program asked for something. The program asks by an operator or a read; the step
//! before counts, too, since a step may begin with reads of its results. A program that keeps results of many steps asked for
//! what they are made of in those: where that is more, it counts.
//!
//! Two counts decide whether a command is refused: the operators that the schedule (`schedule/mod.rs`) runs again in a step, and
//! those that updates in the canonical way (`eviction/canonical.rs`) run again. Both depend on the commands and the budget alone.
//! The policy weighs measured times, so its count differs between equal runs. The worker gives the policy up for the rest of a
//! step once the policy has run clearly more operators again than the schedule, or a few times as many as the step asked for.
//! The next steps follow the schedule from the beginning, if that runs clearly fewer operators again.
//! The limit counts neither the policy's operators nor those that catching up with the schedule takes. A step that runs more
//! operators again than [`ALL_TIMES`] limits in all is refused.

use remat_types::{BudgetShortfall, Error};

use super::failure::OpFailure;
use super::worker::Worker;

/// The policy may run as many operators again as the schedule, and this part of what the step asked for: about as many as it
/// takes to catch up with the schedule. With much less, the programs of nn's tests `bounded` give up a policy that is better.
const POLICY_PART: u64 = 2;

/// A schedule that runs more operators again than so many times what the step asked for allows the policy no more than that.
const POLICY_TIMES: u64 = 4;

/// A step may run so many limits of operators again in all: those of the schedule, those of the policy before the worker gives
/// it up, and those that catching up takes.
const ALL_TIMES: u64 = 3;

/// A step follows the schedule from its beginning where that ran again, or would, so much less than the policy did.
const LESS_BY: f64 = 1.5;

/// Where nothing else is known, a budget larger by this part may do.
const MORE_PART: usize = 16;

/// See the module's note.
#[derive(Clone, Default)]
pub(super) struct Work {
    /// What was asked for in this step, and in the one before.
    asked: u64,
    asked_before: u64,
    /// Operators that the policy had run again in this step.
    replayed: u64,
    /// Operators that ran again in this step, whoever ran them.
    all: u64,
    /// Operators that may still run again in a rehearsal and in what was rehearsed, and those that might when it began.
    left: Option<u64>,
    granted: u64,
    /// Operators that ran again in what was rehearsed last, and in all that counts in this step.
    rehearsed_last: u64,
    rehearsed: u64,
    /// Operators that ran again in this step beside what the schedule performs, where the worker does as it does.
    beside_schedule: u64,
    /// Of each operator that was asked for, those that ran again in the last step that the policy decided, and in the last one
    /// that followed the schedule from its beginning, or would have.
    policy_rate: Option<f64>,
    schedule_rate: Option<f64>,
    /// The step follows the schedule from its beginning.
    does_follow: bool,
    /// Bytes that a run without a budget would hold now, and the most that it held.
    named_bytes: usize,
    named_most: usize,
    /// Sweeps that are under way, each within the one before.
    pub(super) nested: u32,
}

impl Work {
    /// The program asks for something.
    pub(super) fn ask(&mut self) {
        self.asked += 1;
    }

    /// A storage has a name from now on.
    pub(super) fn name(&mut self, bytes: usize) {
        self.named_bytes += bytes;
        self.named_most = self.named_most.max(self.named_bytes);
    }

    /// It has none any more.
    pub(super) fn unname(&mut self, bytes: usize) {
        self.named_bytes -= bytes;
    }

    /// A step ends.
    pub(super) fn end_step(&mut self) {
        self.asked_before = std::mem::take(&mut self.asked);
        (self.replayed, self.beside_schedule, self.all, self.rehearsed) = (0, 0, 0, 0);
    }

    /// Another budget: what ran again under the one before does not count.
    pub(super) fn forget_replays(&mut self) {
        (self.policy_rate, self.schedule_rate, self.does_follow) = (None, None, false);
        (self.replayed, self.beside_schedule, self.all, self.rehearsed) = (0, 0, 0, 0);
    }

    /// The step follows the schedule from its beginning.
    pub(super) fn does_follow(&self) -> bool {
        self.does_follow
    }

    /// A rehearsal begins, or what was rehearsed, which may run so many operators again.
    pub(super) fn begin_rehearsed(&mut self, work: u64) {
        (self.left, self.granted) = (Some(work), work);
    }

    /// It ends.
    pub(super) fn end_rehearsed(&mut self) {
        self.rehearsed_last = self.left.take().map_or(0, |left| self.granted - left);
    }

    /// Adds the operators of the last canonical run to the step's: they depend on the commands and the budget alone.
    pub(super) fn count_rehearsed(&mut self) {
        self.rehearsed += std::mem::take(&mut self.rehearsed_last);
    }
}

impl Worker {
    /// Operators that the step may run again by now, with `times` in place of the device's option.
    pub(super) fn work_limit(&self, times: u32) -> u64 {
        let asked = self.work.asked + self.work.asked_before;
        u64::from(times).saturating_mul(asked.max(self.table.recipe_count() as u64))
    }

    /// Of the step's limit, what neither the schedule nor what was rehearsed has taken.
    pub(super) fn work_left(&self) -> u64 {
        self.work_limit(self.options.recompute_limit).saturating_sub(self.schedule.launches() + self.work.rehearsed)
    }

    /// A step ends: whether the next one follows the schedule from its beginning. That changes what runs again, and no verdict.
    pub(super) fn choose_for_next_step(&mut self) {
        let launches = self.schedule.launches();
        if launches == 0 && self.work.all == 0 {
            return;
        }
        let w = &mut self.work;
        let rate = |ran: u64| ran as f64 / w.asked.max(1) as f64;
        match w.does_follow {
            true => w.schedule_rate = Some(rate(w.all)),
            false => {
                w.policy_rate = Some(rate(w.all));
                w.schedule_rate = w.schedule_rate.or(Some(rate(launches)));
            }
        }
        let does_less =
            w.policy_rate.zip(w.schedule_rate).is_some_and(|(policy, schedule)| schedule * LESS_BY < policy);
        w.does_follow = does_less;
    }

    /// An operator is about to run again. Errors: Budget if that were one too many.
    pub(super) fn begin_replay(&mut self) -> std::result::Result<(), OpFailure> {
        self.work.all += 1;
        if self.budget.is_some()
            && self.work.all > ALL_TIMES.saturating_mul(self.work_limit(self.options.recompute_limit))
        {
            return Err(self.too_much_work());
        }
        if let Some(left) = &mut self.work.left {
            if *left == 0 {
                return Err(self.too_much_work());
            }
            *left -= 1;
            return Ok(());
        }
        // The schedule has counted the operators of its log. It has not counted those that a nested sweep runs for a missing input.
        if self.budget.is_none() || (self.schedule.is_acting() && self.work.nested == 0) {
            return Ok(());
        }
        let limit = self.replay_limit();
        let count = match self.eviction.is_canonical() {
            true => &mut self.work.beside_schedule,
            false => &mut self.work.replayed,
        };
        *count += 1;
        match *count > limit {
            true => Err(self.too_much_work()),
            false => Ok(()),
        }
    }

    /// Operators that the policy, or a sweep beside the schedule's log, may have run again by now.
    fn replay_limit(&self) -> u64 {
        let limit = self.work_limit(self.options.recompute_limit);
        let is_compared = !self.eviction.is_canonical() && self.schedule.is_active() && self.does_schedule_decide();
        match is_compared {
            true => {
                let asked = self.work.asked + self.work.asked_before;
                let launches = self.schedule.launches().min(POLICY_TIMES * asked);
                limit.min(launches + self.work.asked / POLICY_PART)
            }
            false => limit,
        }
    }

    /// Why a command is refused that would take too much work.
    pub(super) fn too_much_work(&self) -> OpFailure {
        let e = self.shortfall_of(0);
        let Some(s) = e.shortfall() else { return e.into() };
        // All that the program names would stay in so many; how much less would do is not known.
        let more = s.budget_bytes.saturating_add(s.budget_bytes / MORE_PART).next_multiple_of(self.alignment().bytes());
        let enough = self.work.named_most.max(more);
        let recompute_limit = Some(self.options.recompute_limit);
        Error::budget(BudgetShortfall { smallest_feasible_bytes: enough, recompute_limit, ..s.clone() }).into()
    }
}
