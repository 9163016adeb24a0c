//! What of a budget is left for the workspace of a run.

use remat_graph::ir::{Graph, Origin, ValueId};
use remat_types::{BudgetShortfall, Error, PinnedBytes, Result};

use super::CompileOptions;
use crate::eager::Device;
use remat_device::Alignment;

/// Who holds what is not workspace.
const BESIDE: &str = "states, inputs, outputs and what else is on the device";

/// The budget under which a run is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunBudget {
    /// Most bytes of a run: states, inputs, outputs and everything between them.
    pub bytes: usize,
    /// What is there already. The graph's inputs and states are among it, and count by themselves where they are more.
    pub fixed_bytes: usize,
}

/// What counts against the budget of a graph that runs with others, and is not its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// States that others read, and values that wait for others.
    pub bytes: usize,
    /// How many of its last inputs others gave.
    pub takes: usize,
}

impl RunBudget {
    /// What the options give, or else what a device with a budget leaves beside all that is on it when everything queued so
    /// far has run; `None` for no limit. Errors: those of the device.
    pub fn on(device: &Device, options: &CompileOptions) -> Result<Option<RunBudget>> {
        if let Some(bytes) = options.memory_budget {
            return Ok(Some(RunBudget { bytes, fixed_bytes: 0 }));
        }
        let Some(bytes) = device.budget_bytes() else { return Ok(None) };
        // States are on the device already; inputs too, but those that can be made again count as room.
        let channel = device.channel();
        channel.sync()?;
        Ok(Some(RunBudget { bytes, fixed_bytes: channel.stats()?.fixed_bytes }))
    }

    /// Bytes of a run of `g` that are not its workspace; `with_constants` those of constants, too.
    pub(super) fn beside_workspace(&self, g: &Graph, beside: Beside, with_constants: bool, unit: Alignment) -> usize {
        let of = |v: ValueId| unit.pad(g.fact(v).bytes());
        let (own, taken) = g.inputs().split_at(g.inputs().len().saturating_sub(beside.takes));
        let given: usize = own.iter().copied().chain(g.states().iter().map(|s| s.value)).map(of).sum();
        let outputs: usize = g.outputs().iter().map(|o| of(o.value)).sum();
        let outputs = outputs + beside.bytes + taken.iter().copied().map(of).sum::<usize>();
        let constants = g.value_ids().filter(|v| matches!(g.value(*v).origin, Origin::Constant(_))).map(of);
        let outputs = outputs + if with_constants { constants.sum() } else { 0 };
        self.fixed_bytes.max(given) + outputs
    }

    /// The error of a workspace that its limit cannot hold, with the figures of the run's budget.
    pub(super) fn of_the_whole_run(&self, e: Error, beside: usize) -> Error {
        let Some(s) = e.shortfall() else { return e };
        let mut s = s.clone();
        s.pinned.push(PinnedBytes { by: BESIDE.into(), bytes: beside });
        s.pinned.sort_by_key(|p| std::cmp::Reverse(p.bytes));
        s.least_bytes += beside;
        s.smallest_feasible_bytes += beside;
        Error::budget(BudgetShortfall { budget_bytes: self.bytes, ..s })
    }

    /// The error of a run whose inputs, outputs and constants alone are too much, though it needs nothing beside them.
    pub(super) fn without_workspace(&self, beside: usize) -> Error {
        Error::budget(BudgetShortfall {
            op: "compiled".into(),
            needed_bytes: 0,
            budget_bytes: self.bytes,
            pinned: vec![PinnedBytes { by: BESIDE.into(), bytes: beside }],
            least_bytes: beside,
            smallest_feasible_bytes: beside,
            is_of_run: true,
            recompute_limit: None,
        })
    }
}
