//! The budget of a run, and the part of it that is left for the workspace.

use remat_graph::ir::{Graph, Origin, ValueId};
use remat_types::{BudgetShortfall, Error, PinnedBytes, Result};

use super::CompileOptions;
use crate::eager::{Device, Handle};
use remat_device::Alignment;

/// The holder that errors name for bytes outside the workspace.
const BESIDE: &str = "states, inputs, outputs and what else is on the device";

/// The budget under which a run is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunBudget {
    /// The most bytes of a run: states, inputs, outputs and all values between them.
    pub bytes: usize,
    /// The bytes that are on the device already; `None` for a run without a device.
    pub held: Option<Held>,
}

/// The bytes that are on a device when a run is planned, and stay there while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The bytes, with those of the graph's states and of its first inputs.
    pub bytes: usize,
    /// The number of those inputs. The others are put there for each run.
    pub inputs: usize,
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
    /// once everything queued so far has run, and with the graph's first inputs and its states, `x` and `states`. `None`
    /// for no limit. Errors: those of the device.
    pub fn on(
        device: &Device,
        options: &CompileOptions,
        x: &[&Handle],
        states: &[Handle],
    ) -> Result<Option<RunBudget>> {
        if let Some(bytes) = options.memory_budget {
            return Ok(Some(RunBudget { bytes, held: None }));
        }
        let Some(bytes) = device.budget_bytes() else { return Ok(None) };
        let channel = device.channel();
        channel.sync()?;
        // inputs and states are on the device already; other values that can be recomputed count as room
        let own = x.iter().copied().chain(states).map(Handle::id).collect();
        let held = Held { bytes: channel.held_bytes(own)?, inputs: x.len() };
        Ok(Some(RunBudget { bytes, held: Some(held) }))
    }

    /// Bytes of a run of `g` outside its workspace. `with_constants` adds the bytes of constants.
    pub(super) fn beside_workspace(&self, g: &Graph, beside: Beside, with_constants: bool, unit: Alignment) -> usize {
        let of = |v: ValueId| unit.pad(g.fact(v).bytes());
        let (own, taken) = g.inputs().split_at(g.inputs().len().saturating_sub(beside.takes));
        let given: usize = match self.held {
            Some(held) => held.bytes + own.iter().skip(held.inputs).copied().map(of).sum::<usize>(),
            None => own.iter().copied().chain(g.states().iter().map(|s| s.value)).map(of).sum(),
        };
        let outputs: usize = g.outputs().iter().map(|o| of(o.value)).sum();
        let outputs = outputs + beside.bytes + taken.iter().copied().map(of).sum::<usize>();
        let constants = g.value_ids().filter(|v| matches!(g.value(*v).origin, Origin::Constant(_))).map(of);
        let outputs = outputs + if with_constants { constants.sum() } else { 0 };
        given + outputs
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
