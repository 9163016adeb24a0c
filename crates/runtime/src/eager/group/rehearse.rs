//! Whether a group fits the budget. The worker runs the group on a copy of its tables, over a device that computes
//! nothing. In the canonical way nothing depends on the clock, so the worker then does exactly the same.

use remat_types::{BudgetShortfall, Error, Result};

use super::{CommandGroup, Item};
use crate::eager::command::{Apply, Command};
use crate::eager::failure::OpFailure;
use crate::eager::worker::Worker;
use crate::options::{DeviceOptions, Foresight};
use remat_device::Dry;

/// The search for a sufficient budget doubles the insufficient one up to this many times,
const DOUBLINGS: usize = 6;

/// and ends within this part of it.
const SHARE: usize = 64;

/// Its limit of work is this small, so that an insufficient budget is found out soon.
const TIMES: u32 = 1;

/// How a group runs in the canonical way.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// Each update runs as soon as its gradient is recomputed. Otherwise all that the group needs is resident at once.
    pub(super) is_in_turn: bool,
}

impl Worker {
    /// Runs a copy of the group in the canonical way from the worker's present state. Errors: the failure that the
    /// group would have.
    pub(super) fn rehearse(&self, g: &CommandGroup) -> std::result::Result<(), OpFailure> {
        let mut w = self.copy_without_data()?;
        w.eviction.begin_canonical_rule();
        w.running.is_in_group = true;
        w.run_items(g.items.iter().filter_map(duplicate_item).collect());
        match w.steps.failures().first() {
            Some(e) => Err(e.into()),
            None => Ok(()),
        }
    }

    /// The way in which a group will run. It depends on the commands and the budget alone. Errors: Budget if the group
    /// would not run, with the smallest budget that rehearsals find to suffice.
    pub(super) fn canonical_way(&self, g: &CommandGroup) -> std::result::Result<Way, OpFailure> {
        self.way_under(g, None, self.work_left()).map_err(|stop| self.with_least_budget(stop, g))
    }

    /// The way under another budget, if one is given, and under a limit of work. The error lacks that budget.
    fn way_under(&self, g: &CommandGroup, budget: Option<usize>, work: u64) -> std::result::Result<Way, OpFailure> {
        let run = |way: Way| {
            let mut w = self.copy_canonical(budget, work)?;
            let mut copy = duplicate(g);
            w.begin_way(way, &mut copy)?;
            w.rehearse(&copy).map(|()| way)
        };
        // The first try has all needs resident at once: if that suffices, it takes less work.
        run(Way { is_in_turn: false }).or_else(|_| run(Way { is_in_turn: true }))
    }

    /// A budget error with the smallest budget that rehearsals find to suffice.
    fn with_least_budget(&self, stop: OpFailure, g: &CommandGroup) -> OpFailure {
        let OpFailure::Own(e) = stop else { return stop };
        let (Some(s), Some(budget)) = (e.shortfall(), self.budget) else { return e.into() };
        let suffices = |bytes: usize| self.way_under(g, Some(bytes), self.work_limit(TIMES)).is_ok();
        let (mut low, mut high) = (budget, budget.saturating_mul(2));
        let unit = self.alignment().bytes();
        for _ in 0..DOUBLINGS {
            if suffices(high) {
                break;
            }
            (low, high) = (high, high.saturating_mul(2));
        }
        while high - low > budget / SHARE + unit {
            let middle = low.midpoint(high).next_multiple_of(unit);
            match suffices(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        let known = BudgetShortfall { smallest_feasible_bytes: high, ..s.clone() };
        let told = Error::budget(BudgetShortfall { least_bytes: known.least_bytes.min(high), ..known });
        OpFailure::Own(told.located_as(&e))
    }

    /// A worker with the same tables and the same arena, over a device without memory.
    pub(in crate::eager) fn copy_without_data(&self) -> Result<Worker> {
        let options = DeviceOptions { foresight: Foresight::Off, spill: None, ..self.options.clone() };
        let options = DeviceOptions { budget_bytes: self.budget, ..options };
        let mut w = Worker::new(
            Box::new(Dry::with_kernels(self.launcher.threads(), self.launcher.kernels().clone())),
            options,
            Default::default(),
        )?;
        w.table = self.table.duplicate();
        w.memory = self.memory.duplicate();
        w.op_costs = self.op_costs.clone();
        w.now_ns = self.now_ns;
        w.eviction = self.eviction.duplicate();
        w.feasibility = self.feasibility.duplicate();
        w.is_rehearsal = true;
        w.work = self.work.clone();
        w.steps.begin_command(self.steps.caller());
        Ok(w)
    }
}

/// A copy of a group that answers nobody.
fn duplicate(g: &CommandGroup) -> CommandGroup {
    CommandGroup {
        items: g.items.iter().filter_map(duplicate_item).collect(),
        needs: g.needs.clone(),
        caller: g.caller,
        is_cancelled: g.is_cancelled,
        done: None,
    }
}

/// A copy of a command that answers nobody. `None` for a command that moves no memory.
fn duplicate_item(item: &Item) -> Option<Item> {
    Some(match item {
        Item::Apply(a) => Item::Apply(Apply {
            op: a.op.clone(),
            x: a.x.clone(),
            y: a.y.clone(),
            facts: a.facts.clone(),
            workspace_bytes: a.workspace_bytes,
            fallback: a.fallback.clone(),
            stream: a.stream,
            site: a.site,
            caller: a.caller,
            scope: None,
            done: None,
        }),
        Item::Command(Command::Commit { id, kind, caller }) => {
            Item::Command(Command::Commit { id: *id, kind: *kind, caller: *caller })
        }
        Item::Command(Command::FallBack { id, old, caller }) => {
            Item::Command(Command::FallBack { id: *id, old: *old, caller: *caller })
        }
        Item::Command(Command::Delete { id }) => Item::Command(Command::Delete { id: *id }),
        Item::Command(Command::DropValue { id }) => Item::Command(Command::DropValue { id: *id }),
        Item::Command(_) => return None,
    })
}
