//! Following the schedule.

use remat_types::SmallVec;

use super::Action;
use super::simulate::Needs;
use crate::eager::failure::OpFailure;
use crate::eager::memory::table::{RecipeId, StorageId};
use crate::eager::worker::Worker;

impl Action {
    fn evicted(&self) -> Option<StorageId> {
        match self {
            Action::Evict { storage, .. } => Some(*storage),
            Action::Run { .. } => None,
        }
    }
}

impl Worker {
    /// Runs a command if the schedule performs it, where the schedule decides. `growth` is the bytes of its outputs
    /// that are leaves. `needs` is `None` for a command that takes no memory or cannot run. Errors: Budget if the
    /// schedule does not perform it; the command's.
    pub(in crate::eager) fn if_scheduled<T>(
        &mut self,
        growth: impl Fn(&Worker) -> usize,
        needs: impl Fn(&Worker) -> Option<Needs>,
        mut command: impl FnMut(&mut Worker) -> std::result::Result<T, OpFailure>,
    ) -> std::result::Result<T, OpFailure> {
        self.before_growth(growth(self))?;
        if !self.does_schedule_decide() {
            match command(self) {
                Err(stop) if stop.is_shortfall() => {
                    // Memory is short for the first time, or the plan that was followed does not suffice.
                    if self.step_planner.is_following() {
                        self.abandon();
                    }
                    if !self.does_schedule_decide() {
                        return Err(stop);
                    }
                    self.before_growth(growth(self))?;
                }
                done => return done,
            }
        }
        let Some(needs) = needs(self) else { return command(self) };
        let acted = self.schedule.position();
        if let Err(stop) = self.extend_schedule(&needs) {
            if !stop.is_shortfall() {
                return Err(stop);
            }
            // Unnamed leaves whose results are smaller may go.
            self.release_leaves()?;
            self.extend_schedule(&needs)?;
        }
        self.as_scheduled(acted, command)
    }

    /// Runs a command for which the schedule was extended from the position `acted` on.
    pub(in crate::eager) fn as_scheduled<T>(
        &mut self,
        acted: (u64, i64),
        mut command: impl FnMut(&mut Worker) -> std::result::Result<T, OpFailure>,
    ) -> std::result::Result<T, OpFailure> {
        match self.schedule.is_followed() {
            true => self.act_since(acted)?,
            false => match command(self) {
                Err(stop) if stop.is_shortfall() => self.catch_up()?,
                done => return done,
            },
        }
        match command(self) {
            // The schedule does not know where blocks lie. After a compaction the command fits.
            Err(stop) if stop.is_shortfall() => {
                self.end_schedule();
                self.run_canonically(command)
            }
            done => done,
        }
    }

    /// True if a budget binds and nothing else has settled what fits: no plan, and no rehearsal of a whole group.
    pub(in crate::eager) fn does_schedule_decide(&self) -> bool {
        let is_rehearsed = self.eviction.is_canonical() && !self.schedule.is_followed();
        let is_settled = is_rehearsed || self.running.is_in_group || self.step_planner.is_following();
        self.budget.is_some() && self.eviction.is_short() && !is_settled
    }

    /// From here on the worker does as the schedule does, and begins with leaves alone.
    pub(super) fn follow_schedule(&mut self) -> std::result::Result<(), OpFailure> {
        self.begin_canonical()?;
        self.schedule.is_followed = true;
        Ok(())
    }

    /// Performs what the schedule has done, from any state of the worker, and follows the schedule from then on.
    pub(in crate::eager) fn catch_up(&mut self) -> std::result::Result<(), OpFailure> {
        self.follow_schedule()?;
        // The schedule's own log stays as it is: later verdicts must not depend on who has caught up.
        self.act_out(&self.actions_to_catch_up())
    }

    /// Recomputes the needs from nothing, if the log does not lead to what the schedule has.
    pub(in crate::eager) fn begin_anew(&mut self, needs: &Needs) -> std::result::Result<(), OpFailure> {
        self.schedule.restart();
        self.extend_schedule(needs)?;
        self.catch_up()
    }

    /// Acts out the schedule's actions since a position. If the schedule has begun anew, the worker evicts everything
    /// first. The log makes each storage itself, and a storage that is resident by then would be evicted as the oldest
    /// before the log reads it.
    pub(in crate::eager) fn act_since(&mut self, acted: (u64, i64)) -> std::result::Result<(), OpFailure> {
        let Some(from) = self.schedule.since(acted) else { return self.catch_up() };
        let actions: Vec<Action> = self.schedule.log[from.min(self.schedule.log.len())..].to_vec();
        self.act_out(&actions)
    }

    fn act_out(&mut self, actions: &[Action]) -> std::result::Result<(), OpFailure> {
        let runs: Vec<Option<RecipeId>> = actions.iter().map(|a| self.recipe_to_run(a)).collect();
        // Inputs are wanted in reverse order, so that those of the first run lie on top.
        runs.iter().rev().flatten().for_each(|r| self.want(*r, 1));
        let mut result = Ok(());
        self.schedule.is_acting = true;
        for (at, (action, run)) in actions.iter().zip(&runs).enumerate() {
            match (action, run) {
                (_, Some(recipe)) if result.is_ok() => {
                    self.schedule.goes_next.clear();
                    self.schedule.goes_next.extend(actions[at + 1..].iter().map_while(Action::evicted));
                    let needed: SmallVec<[StorageId; 2]> = self.table[*recipe].y.iter().flatten().copied().collect();
                    result = self.run_in_sweep(*recipe, &needed);
                }
                (_, Some(recipe)) => self.want(*recipe, -1),
                (Action::Evict { storage, number }, None) if result.is_ok() => self.evict_as(*storage, *number),
                _ => {}
            }
        }
        self.schedule.is_acting = false;
        result
    }

    /// The recipe that an action runs, if it still exists.
    pub(super) fn recipe_to_run(&self, action: &Action) -> Option<RecipeId> {
        let Action::Run { recipe, number } = *action else { return None };
        (self.table.recipe(recipe)?.number == number).then_some(recipe)
    }

    fn evict_as(&mut self, id: StorageId, number: u64) {
        if self.table.storage(id).is_some_and(|s| s.number == number && s.is_evictable()) {
            self.evict(id);
        }
    }

    /// A step ends, or something else decides from here on.
    pub(in crate::eager) fn end_schedule(&mut self) {
        if self.schedule.is_followed() {
            self.eviction.end_canonical_rule();
        }
        self.schedule.end();
    }
}
