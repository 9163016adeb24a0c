//! The budget of a run, and the part of it that is left for the workspace.

use remat_graph::ir::{Graph, Origin, ValueId};
use remat_types::{BudgetShortfall, Error, PinnedBytes, Result};

use super::CompileOptions;
use crate::eager::Device;
use remat_device::Alignment;

/// The holder that errors name for bytes outside the workspace.
const BESIDE: &str = "states, inputs, outputs and what else is on the device";

/// The budget under which a run is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunBudget {
    /// The most bytes of a run: states, inputs, outputs and all values between them.
    pub bytes: usize,
    /// Bytes that are on the device already. The graph's inputs and states are among them. If those two take more than
    /// this, their own bytes count instead.
    pub fixed_bytes: usize,
}

/// Bytes that count against the budget of a graph that runs with others, though they are not the graph's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// States that other graphs read, and values that wait for other graphs.
    pub bytes: usize,
    /// The number of the graph's last inputs that other graphs gave.
    pub takes: usize,
}

impl RunBudget {
    /// The budget that the options give. Without one, the budget of the device, with the bytes that are on the device
    /// once everything queued so far has run; `None` for no limit. Errors: those of the device.
    pub fn on(device: &Device, options: &CompileOptions) -> Result<Option<RunBudget>> {
        if let Some(bytes) = options.memory_budget {
            return Ok(Some(RunBudget { bytes, fixed_bytes: 0 }));
        }
        let Some(bytes) = device.budget_bytes() else { return Ok(None) };
        // States are on the device already, and so are inputs. Values that can be recomputed count as room.
        let channel = device.channel();
        channel.sync()?;
        Ok(Some(RunBudget { bytes, fixed_bytes: channel.stats()?.fixed_bytes }))
    }

    /// Bytes of a run of `g` outside its workspace. `with_constants` adds the bytes of constants.
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

    /// The error of a workspace that does not fit its limit, with the figures of the whole run's budget.
    pub(super) fn of_the_whole_run(&self, e: Error, beside: usize) -> Error {
        let Some(s) = e.shortfall() else { return e };
        let mut s = s.clone();
        s.pinned.push(PinnedBytes { by: BESIDE.into(), bytes: beside });
        s.pinned.sort_by_key(|p| std::cmp::Reverse(p.bytes));
        s.least_bytes += beside;
        s.smallest_feasible_bytes += beside;
        Error::budget(BudgetShortfall { budget_bytes: self.bytes, ..s })
    }

    /// The error of a run that needs no workspace, but whose inputs, outputs and constants alone exceed the budget.
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
