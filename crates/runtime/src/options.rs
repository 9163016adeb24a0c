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
    /// `apply` returns when the op has run; its error is the call's error.
    Sync,
    /// `apply` returns when the op has its memory and is queued on the device: budget errors are the call's errors.
    Launched,
    /// `apply` returns at once; errors are reported at the next fetch or sync.
    #[default]
    Full,
}

/// Which rule chooses what to evict.
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

/// Whether steps that repeat under a budget are planned, and then follow their plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Foresight {
    /// No: what to evict is decided when room is needed.
    Off,
    /// On a thread beside the steps, for a share of the time that they take. A dry device, whose figures must not depend
    /// on when a thread is ready, does not plan.
    #[default]
    Beside,
    /// At the step mark, which waits, by rounds of search instead of time: what is followed from when on does not depend
    /// on the clock.
    AtOnce,
}

/// Options of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Bytes the device may ever use; `None` for as much as the machine has. Default: `None`.
    pub budget_bytes: Option<usize>,
    /// Bytes of host memory that staging buffers may use on a device whose memory is not the host's; on the CPU they count
    /// against `budget_bytes`. Default: `None`, for as much as the machine has.
    pub host_budget_bytes: Option<usize>,
    /// Compute threads, the worker included; at least 1. Default: the number of cores.
    pub threads: usize,
    /// Commands that may wait before a caller is held back. Default: 1024.
    pub queue_capacity: usize,
    /// Default: [`AsyncLevel::Full`].
    pub async_level: AsyncLevel,
    /// Compute small integer values that the host knows on the host. Default: true.
    pub host_compute: bool,
    /// Run an op for which the device has no kernel on the host, with copies there and back, which
    /// [`crate::Stats::host_fallback_ops`] counts; else that is an error of kind Device. The copies lie beside the budget, in
    /// host memory. Default: false.
    pub host_fallback: bool,
    /// Keep recipes without a budget too, so that `drop_value` and a later budget can use them. Default: false.
    pub always_record: bool,
    /// Default: [`PolicyKind::Window`].
    pub policy: PolicyKind,
    /// Default: [`Foresight::Beside`].
    pub foresight: Foresight,
    /// Where compiled functions, and eager steps that follow a plan, may copy what does not fit, if the plan says that this
    /// costs less than computing it again. A device that cannot ([`crate::Backend::open_spill`]) computes it again. Default:
    /// `None`.
    pub spill: Option<SpillTo>,
    /// The ranks of a distributed program, of which this device is one's. The updates of an optimiser's step are made on all of
    /// them or on none: before the first one they agree that all can be made. Default: `None`.
    pub ranks: Option<Communicator>,
    /// Where memory is short, the schedule of a step may run operators again so many times as often as the program asks for one;
    /// what would take more is refused as an error of kind Budget. Counted, never timed: the same program is refused in every run.
    /// With what ran before a step went over to its schedule, it runs at most three times as many. Default: 8.
    pub recompute_limit: u32,
    /// Kernels that the program brings along, each for a kind of device: in place of those that are there, or for ops of its own.
    /// What passes compute ahead, and small values on the caller's thread, are computed by the ops' own kernels. Default: none.
    pub kernels: KernelRegistry,
}

/// What a process can address on the machines there are: the most that a budget can be.
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
