//! How much a step may recompute: a multiple of what the program asks for. It is counted and never timed.
//!
//! Without a limit, whether a program fits a budget is a question of black pebbling, whose schedules can be
//! exponentially long (Gilbert, Lengauer and Tarjan 1980). So the worker refuses a command if its step would recompute
//! more than `recompute_limit` operators for each request of the program. A request is an operator or a read. The
//! requests of the previous step count too, since a step may begin with reads of that step's results. A program that
//! keeps the results of many steps requested their inputs in those steps. So if the number of recipes is larger, it
//! counts instead.
//!
//! Two counts decide whether a command is refused: the operators that the schedule (`schedule/mod.rs`) recomputes in a
//! step, and those that updates in the canonical way (`eviction/canonical.rs`) recompute. Both depend on the commands
//! and the budget alone. The policy weighs measured times, so its count differs between equal runs. The worker gives
//! the policy up for the rest of a step once the policy has recomputed clearly more operators than the schedule, or a
//! few times as many as the step asked for. The next steps follow the schedule from the beginning, if that recomputes
//! clearly fewer operators. The limit counts neither the policy's operators nor those that catching up with the
//! schedule takes. A step that recomputes more operators than [`ALL_TIMES`] limits in all is refused.

use remat_types::{BudgetShortfall, Error};

use super::failure::OpFailure;
use super::worker::Worker;

/// The policy may recompute as many operators as the schedule, plus this part of what the step asked for. That is about
/// as many as catching up with the schedule takes. With much less, the programs of nn's tests `bounded` give up a
/// policy that is better.
const POLICY_PART: u64 = 2;

/// If the schedule recomputes more operators than so many times the step's requests, the policy may recompute only that
/// many.
const POLICY_TIMES: u64 = 4;

/// A step may recompute so many limits of operators in all: those of the schedule, those of the policy before the
/// worker gives it up, and those that catching up takes.
const ALL_TIMES: u64 = 3;

/// The next step follows the schedule from its beginning if the policy recomputed more than so many times as much.
const LESS_BY: f64 = 1.5;

/// If no better figure is known, a budget that is larger by this part may suffice.
const MORE_PART: usize = 16;

/// See the module's note.
#[derive(Clone, Default)]
pub(super) struct Work {
    /// The requests of this step, and of the previous one.
    asked: u64,
    asked_before: u64,
    /// Operators that the policy has recomputed in this step.
    replayed: u64,
    /// Operators that were recomputed in this step, by any part of the worker.
    all: u64,
    /// Operators that a rehearsal, or the rehearsed commands, may still recompute, and the number at its beginning.
    left: Option<u64>,
    granted: u64,
    /// Operators that the last rehearsed commands recomputed, and all of them that count in this step.
    rehearsed_last: u64,
    rehearsed: u64,
    /// Operators that a follower of the schedule recomputed in this step beside the schedule's own.
    beside_schedule: u64,
    /// Recomputed operators for each request, in the last step that the policy decided, and in the last step that
    /// followed the schedule from its beginning, or would have.
    policy_rate: Option<f64>,
    schedule_rate: Option<f64>,
    /// The step follows the schedule from its beginning.
    does_follow: bool,
    /// Bytes that a run without a budget would hold now, and the most that it held.
    named_bytes: usize,
    named_most: usize,
    /// Sweeps in progress, each nested in the one before.
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

    /// A storage has no name any more.
    pub(super) fn unname(&mut self, bytes: usize) {
        self.named_bytes -= bytes;
    }

    /// A step ends.
    pub(super) fn end_step(&mut self) {
        self.asked_before = std::mem::take(&mut self.asked);
        (self.replayed, self.beside_schedule, self.all, self.rehearsed) = (0, 0, 0, 0);
    }

    /// The budget changed: recomputation under the old one does not count.
    pub(super) fn forget_replays(&mut self) {
        (self.policy_rate, self.schedule_rate, self.does_follow) = (None, None, false);
        (self.replayed, self.beside_schedule, self.all, self.rehearsed) = (0, 0, 0, 0);
    }

    /// The step follows the schedule from its beginning.
    pub(super) fn does_follow(&self) -> bool {
        self.does_follow
    }

    /// A rehearsal, or a run of rehearsed commands, begins. It may recompute so many operators.
    pub(super) fn begin_rehearsed(&mut self, work: u64) {
        (self.left, self.granted) = (Some(work), work);
    }

    /// The rehearsal or the rehearsed run ends.
    pub(super) fn end_rehearsed(&mut self) {
        self.rehearsed_last = self.left.take().map_or(0, |left| self.granted - left);
    }

    /// Adds the operators of the last rehearsed run to the step's. They depend on the commands and the budget alone.
    pub(super) fn count_rehearsed(&mut self) {
        self.rehearsed += std::mem::take(&mut self.rehearsed_last);
    }
}

impl Worker {
    /// Operators that the step may recompute by now, with `times` in place of the device's option.
    pub(super) fn work_limit(&self, times: u32) -> u64 {
        let asked = self.work.asked + self.work.asked_before;
        u64::from(times).saturating_mul(asked.max(self.table.recipe_count() as u64))
    }

    /// The part of the step's limit that neither the schedule nor rehearsed runs have used.
    pub(super) fn work_left(&self) -> u64 {
        self.work_limit(self.options.recompute_limit).saturating_sub(self.schedule.launches() + self.work.rehearsed)
    }

    /// A step ends: decides whether the next one follows the schedule from its beginning. That changes recomputation,
    /// and no verdict.
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

    /// An operator is about to be recomputed. Errors: Budget if that is one too many.
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
        // The schedule has counted the operators of its log. It has not counted those that a nested sweep runs for a
        // missing input.
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

    /// Operators that the policy, or a sweep beside the schedule's log, may have recomputed by now.
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

    /// The error of a command that would take too much work.
    pub(super) fn too_much_work(&self) -> OpFailure {
        let e = self.shortfall_of(0);
        let Some(s) = e.shortfall() else { return e.into() };
        // All storages that the program names would fit in so many bytes. How much less would suffice is not known.
        let more = s.budget_bytes.saturating_add(s.budget_bytes / MORE_PART).next_multiple_of(self.alignment().bytes());
        let enough = self.work.named_most.max(more);
        let recompute_limit = Some(self.options.recompute_limit);
        Error::budget(BudgetShortfall { smallest_feasible_bytes: enough, recompute_limit, ..s.clone() }).into()
    }
}
