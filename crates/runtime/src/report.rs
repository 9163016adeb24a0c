//! Figures for people and programs: where the bytes were at the peak, what was evicted and recomputed.

mod display;

use serde::{Deserialize, Serialize};

use remat_device::ArenaFigures;

/// What a tensor's bytes are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Trained state of a model, and its buffers.
    Parameter,
    /// Gradient of a parameter.
    Gradient,
    /// State of an optimiser.
    OptimizerState,
    /// Any other result of an op.
    Activation,
    /// Scratch memory of a running op.
    Workspace,
    /// What the user put on the device.
    Data,
    /// Host buffers that are charged against the budget.
    Staging,
}

impl Kind {
    /// Every kind, in declaration order.
    pub const ALL: [Kind; 7] = [
        Kind::Parameter,
        Kind::Gradient,
        Kind::OptimizerState,
        Kind::Activation,
        Kind::Workspace,
        Kind::Data,
        Kind::Staging,
    ];

    /// A plural for reports: `parameters`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Parameter => "parameters",
            Kind::Gradient => "gradients",
            Kind::OptimizerState => "optimiser state",
            Kind::Activation => "activations",
            Kind::Workspace => "workspace",
            Kind::Data => "data",
            Kind::Staging => "staging",
        }
    }
}

/// How much is used of a kind of memory beside the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The most that may be used.
    pub budget_bytes: Option<u64>,
    /// Used now.
    pub in_use_bytes: u64,
    /// The most that was ever used at once.
    pub peak_bytes: u64,
}

impl MemoryUse {
    pub(crate) fn new(budget_bytes: Option<u64>) -> Self {
        MemoryUse { budget_bytes, ..MemoryUse::default() }
    }

    /// Uses so many bytes more. False, and nothing is used, where the budget has no room for them.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let in_use = self.in_use_bytes.saturating_add(bytes);
        if self.budget_bytes.is_some_and(|budget| in_use > budget) {
            return false;
        }
        self.in_use_bytes = in_use;
        self.peak_bytes = self.peak_bytes.max(in_use);
        true
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.in_use_bytes = self.in_use_bytes.saturating_sub(bytes);
    }
}

/// Bytes by holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderBytes {
    /// An op or a kind.
    pub name: String,
    /// Bytes, padding included.
    pub bytes: usize,
}

/// Runs of one op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpTime {
    /// The op.
    pub op: String,
    /// How often it ran.
    pub count: u64,
    /// Time that took.
    pub time_ns: u64,
}

/// Counters of a device since it was opened or [`reset`](crate::Channel::reset_peak).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The budget in force.
    pub budget_bytes: Option<usize>,
    /// Allocated now.
    pub in_use_bytes: usize,
    /// Allocated now for what nothing can make again.
    pub fixed_bytes: usize,
    /// Most that was ever allocated at once.
    pub peak_bytes: usize,
    /// Address range that the arena may use now.
    pub reserved_bytes: usize,
    /// Largest free range.
    pub largest_free_bytes: usize,
    /// Allocated but not asked for.
    pub padding_bytes: usize,
    /// Tensors with a live handle.
    pub tensors: usize,
    /// Storages in the table, evicted ones included.
    pub storages: usize,
    /// Recipes in the table.
    pub recipes: usize,
    /// Ops that ran for the first time.
    pub executed_ops: u64,
    /// Time they took.
    pub executed_ns: u64,
    /// Ops that ran again.
    pub recomputed_ops: u64,
    /// Time they took.
    pub recomputed_ns: u64,
    /// Launches of ops without a kernel on the device, which ran on the host.
    pub host_fallback_ops: u64,
    /// Time they took, the copies included.
    pub host_fallback_ns: u64,
    /// Bytes they copied, there and back.
    pub host_fallback_bytes: u64,
    /// Times that the host waited for a device that goes on by itself, without the program's asking for a value or for the end of
    /// its work; `None` of a device that runs each command at once.
    #[serde(default)]
    pub host_waits: Option<u64>,
    /// Time in which collectives of several ranks ran beside the ops, other ranks waited for.
    #[serde(default)]
    pub communication_ns: u64,
    /// Time of that in which the device waited for them.
    #[serde(default)]
    pub exposed_communication_ns: u64,
    /// Host memory of staging buffers, on a device whose memory is not the host's; on others they count as the device's.
    #[serde(default)]
    pub pinned_host: Option<MemoryUse>,
    /// The spill file of eager steps, if there is one.
    #[serde(default)]
    pub spill_file: Option<MemoryUse>,
    /// Storages evicted for room.
    pub evictions: u64,
    /// Bytes evicted for room.
    pub evicted_bytes: u64,
    /// Bytes that plans had copied to the spill file.
    pub spilled_bytes: u64,
    /// Bytes that were copied back.
    pub fetched_bytes: u64,
    /// Time that commands waited for those copies.
    pub spill_wait_ns: u64,
    /// Why nothing is copied to the spill file any more.
    pub spill_failure: Option<String>,
    /// Times it was chosen what to evict.
    pub decisions: u64,
    /// Time they took, the reading of the queue included.
    pub policy_ns: u64,
    /// Commands for which everything was evicted that could be, since memory did not suffice otherwise.
    pub canonical_runs: u64,
    /// Times all blocks were moved together.
    pub compactions: u64,
    /// Bytes they moved.
    pub compacted_bytes: u64,
    /// A budget under which every command so far surely runs, whatever is evicted when: each can be made from nothing but what
    /// cannot be made again.
    pub sufficient_budget_bytes: usize,
    /// The most bytes of inputs, outputs and scratch memory that any one command had beside what cannot be made again.
    pub largest_op_bytes: usize,
    /// The most that any one command pinned and needed at once. Of a program that keeps results, a smaller budget may run it: it lets
    /// leaves go that nobody names.
    pub least_budget_bytes: usize,
    /// Plans that were made for steps that repeat.
    pub steps_planned: u64,
    /// Steps that ran to their end as planned.
    pub steps_followed: u64,
    /// Steps that began as one plan has it and went on as another has it.
    pub steps_switched: u64,
    /// Steps that began as planned and went on without a plan.
    pub steps_abandoned: u64,
    /// Time that planning took, beside the steps.
    pub planning_ns: u64,
    /// Time of the ops of the last followed step as its plan says.
    pub planned_step_ns: u64,
    /// The same without what runs again.
    pub planned_base_ns: u64,
    /// No plan within the budget takes less, as the planner proved.
    pub planned_bound_ns: u64,
    /// The same as it was measured.
    pub followed_step_ns: u64,
    /// Allocations of followed steps that did not get the place that was planned.
    pub misplaced: u64,
}

impl Stats {
    pub(crate) fn set_arena(&mut self, f: ArenaFigures) {
        self.in_use_bytes = f.in_use;
        self.peak_bytes = f.peak;
        self.reserved_bytes = f.capacity;
        self.largest_free_bytes = f.largest_free;
        self.padding_bytes = f.padding;
    }
}

/// Where the bytes and the milliseconds went; shown, a table for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The counters.
    pub stats: Stats,
    /// Bytes at the peak by kind, largest first.
    pub peak_by_kind: Vec<HolderBytes>,
    /// Bytes at the peak by the op that made them, largest first.
    pub peak_by_op: Vec<HolderBytes>,
    /// What was recomputed, most time first.
    pub recomputed: Vec<OpTime>,
    /// What ran on the host for want of a kernel, most time first.
    #[serde(default)]
    pub on_host: Vec<OpTime>,
}
