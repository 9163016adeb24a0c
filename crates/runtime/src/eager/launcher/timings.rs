//! Times of launches on an asynchronous device. They are known once the launch has run.

use std::collections::VecDeque;

use super::op_costs::CostId;
use crate::eager::memory::table::RecipeId;
use crate::eager::worker::Worker;
use remat_device::{Event, LaunchTime};

/// A launch whose time is not known yet.
struct Launched {
    event: Event,
    label: &'static str,
    /// The time that is used if the device reports none.
    prior_ns: u64,
    /// True for a recomputation.
    again: bool,
    /// The owner of the time.
    cost: Option<(CostId, Option<RecipeId>)>,
}

/// See the module's note.
#[derive(Default)]
pub(super) struct Timings {
    waiting: VecDeque<Launched>,
    /// The last launch waits for its time.
    is_last_waiting: bool,
}

impl Timings {
    /// Notes the launch that `event` ends.
    pub(super) fn expect(&mut self, event: Event, label: &'static str, prior_ns: u64, again: bool) {
        self.waiting.push_back(Launched { event, label, prior_ns, again, cost: None });
        self.is_last_waiting = true;
    }

    /// The last launch has run, and its time is known.
    pub(super) fn is_known(&mut self) {
        self.is_last_waiting = false;
    }

    /// Sets the owner of the last launch's time, if it is waited for.
    pub(super) fn is_cost_of(&mut self, cost: CostId, recipe: Option<RecipeId>) {
        if self.is_last_waiting
            && let Some(last) = self.waiting.back_mut()
        {
            last.cost = Some((cost, recipe));
        }
    }
}

impl Worker {
    /// Learns the times of launches that have run, oldest first.
    pub(in crate::eager) fn learn_times(&mut self) {
        while let Some(first) = self.launcher.timings.waiting.front() {
            let measured = match self.launcher.device.launch_time(first.event) {
                LaunchTime::Pending => return,
                LaunchTime::Unknown => None,
                LaunchTime::Measured(ns) => Some(ns),
            };
            let Some(launched) = self.launcher.timings.waiting.pop_front() else { return };
            self.count_time(launched.label, launched.again, measured.unwrap_or(launched.prior_ns));
            let (Some(ns), Some((cost, recipe))) = (measured, launched.cost) else { continue };
            let cost_ns = self.op_costs.learn_measured(cost, ns);
            // A recipe that reused the place of a removed one may take the cost if it has the same entry.
            let recipe = recipe.and_then(|id| self.table.recipe_mut(id)).filter(|r| r.cost == cost);
            recipe.into_iter().for_each(|r| r.cost_ns = cost_ns);
        }
    }
}
