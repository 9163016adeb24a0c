//! Typed options of a device, with their defaults.

use remat_device::KernelRegistry;
use remat_device::spill::SpillTo;
use remat_ops::collective::Communicator;
use remat_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// How far a caller runs ahead of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AsyncLevel {
    /// `apply` returns when the op has run, and gives the op's error.
    Sync,
    /// `apply` returns when the op has its memory and is queued on the device, and gives budget errors.
    Launched,
    /// `apply` returns at once. Errors come with the next fetch or sync.
    #[default]
    Full,
}

/// The rule that chooses storages to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyKind {
    /// The cheapest contiguous window (Coop, NeurIPS 2023) with DTR's neighbourhood cost.
    #[default]
    Window,
    /// One storage at a time, least cost / (bytes x staleness) (DTR, ICLR 2021, section 4.1).
    Dtr,
    /// One storage at a time by MegEngine's formula, kept for comparison.
    Upstream,
}

/// Whether steps that repeat under a budget are planned and then follow their plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Foresight {
    /// Steps are not planned. Evictions are decided when room is needed.
    Off,
    /// A thread plans beside the steps, for a share of their time. A dry device does not plan: its figures must not
    /// depend on when a thread is ready.
    #[default]
    Beside,
    /// The step mark plans, and waits for the plan. The search is limited by rounds, not by time, so the step from
    /// which a plan is followed does not depend on the clock.
    AtOnce,
}

/// Options of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The most bytes that the device may use; `None` for as much as the machine has. Default: `None`.
    pub budget_bytes: Option<usize>,
    /// The most bytes of host memory for staging buffers, on a device whose memory is not the host's. On the CPU they
    /// count against `budget_bytes`. Default: `None`, for as much as the machine has.
    pub host_budget_bytes: Option<usize>,
    /// Compute threads, the worker included; at least 1. Default: the number of cores.
    pub threads: usize,
    /// The most commands that wait in the queue. A caller that queues more waits. Default: 1024.
    pub queue_capacity: usize,
    /// Default: [`AsyncLevel::Full`].
    pub async_level: AsyncLevel,
    /// Computes small integer values that the host knows on the host. Default: true.
    pub host_compute: bool,
    /// Runs an op without a kernel on the device on the host, with copies there and back.
    /// [`crate::Stats::host_fallback_ops`] counts such ops. Otherwise the op is an error of kind Device. The copies lie
    /// in host memory, beside the budget. Default: false.
    pub host_fallback: bool,
    /// Keeps recipes without a budget too, so that `drop_value` and a later budget can use them. Default: false.
    pub always_record: bool,
    /// Default: [`PolicyKind::Window`].
    pub policy: PolicyKind,
    /// Default: [`Foresight::Beside`].
    pub foresight: Foresight,
    /// The folder to which compiled functions, and eager steps that follow a plan, may spill values. They do so if the
    /// plan says that this costs less than recomputation. A device that cannot spill ([`crate::Backend::open_spill`])
    /// recomputes. Default: `None`.
    pub spill: Option<SpillTo>,
    /// The ranks of a distributed program; this device belongs to one of them. All ranks make the updates of an
    /// optimiser's step, or none does: before the first update they agree that all can be made. Default: `None`.
    pub ranks: Option<Communicator>,
    /// The limit of recomputation where memory is short: the schedule of a step may recompute so many operators for
    /// each operator that the program asks for. A command that would take more is refused with an error of kind Budget.
    /// Operators are counted and not timed, so the same program is refused in every run. Including the recomputation
    /// before a step turned to its schedule, a step runs at most three times as many. Default: 8.
    pub recompute_limit: u32,
    /// Kernels that the program supplies, each for a kind of device. They replace the device's kernels, or serve ops of
    /// the program's own. Values that passes compute ahead, and small values on the caller's thread, still use the ops'
    /// own kernels. Default: none.
    pub kernels: KernelRegistry,
    /// Of a device that computes nothing ([`Device::dry`](crate::Device::dry)): the name of the device for whose kernels
    /// it works out sizes and estimates times. Default: `None`, for the CPU.
    pub dry_of: Option<String>,
}

/// The most that a process can address on today's machines. A budget cannot be larger.
const BUDGET_MAX_BYTES: u64 = 1 << 47;

/// Errors: Value for a budget that no machine can have.
pub(crate) fn check_budget(bytes: Option<usize>) -> Result<()> {
    match bytes {
        Some(b) if b as u64 > BUDGET_MAX_BYTES => {
            let text = format!("budget_bytes is {b}, above the {BUDGET_MAX_BYTES} that a process can address");
            Err(Error::new(ErrorKind::Value, text))
        }
        _ => Ok(()),
    }
}

impl Default for DeviceOptions {
    fn default() -> Self {
        DeviceOptions {
            budget_bytes: None,
            host_budget_bytes: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            queue_capacity: 1024,
            async_level: AsyncLevel::Full,
            host_compute: true,
            host_fallback: false,
            always_record: false,
            policy: PolicyKind::Window,
            foresight: Foresight::Beside,
            spill: None,
            ranks: None,
            recompute_limit: 8,
            kernels: KernelRegistry::default(),
            dry_of: None,
        }
    }
}

impl DeviceOptions {
    /// The defaults with a budget.
    pub fn with_budget(bytes: usize) -> Self {
        DeviceOptions { budget_bytes: Some(bytes), ..Self::default() }
    }

    /// Errors (Value) if an option is outside its domain.
    pub fn check(&self) -> Result<()> {
        const MAX_THREADS: usize = 1024;
        if self.threads == 0 || self.threads > MAX_THREADS {
            let text = format!("threads is {}, must be 1 to {MAX_THREADS}", self.threads);
            return Err(Error::new(ErrorKind::Value, text));
        }
        check_budget(self.host_budget_bytes)?;
        check_budget(self.budget_bytes)?;
        if self.queue_capacity == 0 {
            return Err(Error::new(ErrorKind::Value, "queue_capacity is 0, must be at least 1"));
        }
        Ok(())
    }
}
