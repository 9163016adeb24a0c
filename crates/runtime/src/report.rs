//! Figures for people and programs: the holders of the bytes at the peak, evictions, and recomputation.

mod display;

use serde::{Deserialize, Serialize};

use remat_device::ArenaFigures;

/// The purpose of a tensor's bytes.
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
    /// Data that the user put on the device.
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

/// The use of a kind of memory other than the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The most bytes that may be used.
    pub budget_bytes: Option<u64>,
    /// Used now.
    pub in_use_bytes: u64,
    /// The most bytes that were used at once.
    pub peak_bytes: u64,
}

impl MemoryUse {
    pub(crate) fn new(budget_bytes: Option<u64>) -> Self {
        MemoryUse { budget_bytes, ..MemoryUse::default() }
    }

    /// Uses so many bytes more. False if the budget has no room for them; nothing is used then.
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
    /// The time of those runs.
    pub time_ns: u64,
}

/// Counters of a device since it was opened, or since the last [`reset`](crate::Channel::reset_peak).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The budget in force.
    pub budget_bytes: Option<usize>,
    /// Allocated now.
    pub in_use_bytes: usize,
    /// Bytes allocated now for leaves, which cannot be recomputed.
    pub fixed_bytes: usize,
    /// The most bytes that were allocated at once.
    pub peak_bytes: usize,
    /// Address range that the arena may use now.
    pub reserved_bytes: usize,
    /// Largest free range.
    pub largest_free_bytes: usize,
    /// Bytes allocated beyond the requested ones.
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
    /// How often the host waited for an asynchronous device, not counting requests for a value or for the end of the
    /// work. `None` for a device that runs each command at once.
    #[serde(default)]
    pub host_waits: Option<u64>,
    /// Time in which collectives of several ranks ran beside the ops, including waits for other ranks.
    #[serde(default)]
    pub communication_ns: u64,
    /// The part of that time in which the device waited for them.
    #[serde(default)]
    pub exposed_communication_ns: u64,
    /// Host memory of staging buffers, on a device whose memory is not the host's. On other devices they count as the
    /// device's memory.
    #[serde(default)]
    pub pinned_host: Option<MemoryUse>,
    /// The spill file of eager steps, if there is one.
    #[serde(default)]
    pub spill_file: Option<MemoryUse>,
    /// Storages that were evicted to make room.
    pub evictions: u64,
    /// Bytes that were evicted to make room.
    pub evicted_bytes: u64,
    /// Bytes that were copied to the spill file, as plans asked.
    pub spilled_bytes: u64,
    /// Bytes that were copied back.
    pub fetched_bytes: u64,
    /// Time that commands waited for those copies.
    pub spill_wait_ns: u64,
    /// The reason that nothing more is copied to the spill file.
    pub spill_failure: Option<String>,
    /// How often a policy chose storages to evict.
    pub decisions: u64,
    /// Time of those choices, including the reading of the queue.
    pub policy_ns: u64,
    /// Commands for which everything evictable was evicted, since memory did not suffice otherwise.
    pub canonical_runs: u64,
    /// How often the arena was compacted.
    pub compactions: u64,
    /// Bytes that compactions moved.
    pub compacted_bytes: u64,
    /// A budget under which every command so far surely runs, whatever is evicted when: the inputs of each command can
    /// be recomputed from leaves alone within it.
    pub sufficient_budget_bytes: usize,
    /// The most bytes of inputs, outputs and scratch memory that any one command had beside leaves.
    pub largest_op_bytes: usize,
    /// The most bytes that any one command pinned and needed at once. A smaller budget may still run a program that
    /// keeps results: under it, unnamed leaves are released.
    pub least_budget_bytes: usize,
    /// Plans that were made for steps that repeat.
    pub steps_planned: u64,
    /// Steps that ran to their end as planned.
    pub steps_followed: u64,
    /// Steps that began under one plan and went on under another.
    pub steps_switched: u64,
    /// Steps that began under a plan and went on without one.
    pub steps_abandoned: u64,
    /// Time of planning, beside the steps.
    pub planning_ns: u64,
    /// Time of the ops of the last followed step, as its plan says.
    pub planned_step_ns: u64,
    /// The same without recomputation.
    pub planned_base_ns: u64,
    /// A lower bound of that time: the planner proved that no plan within the budget takes less.
    pub planned_bound_ns: u64,
    /// The same time as it was measured.
    pub followed_step_ns: u64,
    /// Allocations of followed steps that did not get their planned places.
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

/// The figures of a device's memory and time. Its display is a table for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The counters.
    pub stats: Stats,
    /// Bytes at the peak by kind, largest first.
    pub peak_by_kind: Vec<HolderBytes>,
    /// Bytes at the peak by the op that made them, largest first.
    pub peak_by_op: Vec<HolderBytes>,
    /// The ops that were recomputed, the most time first.
    pub recomputed: Vec<OpTime>,
    /// The ops that ran on the host for want of a kernel, the most time first.
    #[serde(default)]
    pub on_host: Vec<OpTime>,
}
