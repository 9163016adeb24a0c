//! The parts of Remat that own memory or threads: the arena, devices, the asynchronous eager channel,
//! rematerialisation, the profiler.
//!
//! A [`Device`] is a value: two devices in one process are independent. A device's worker thread owns all of its state,
//! and channels send commands to it.

pub mod compile;
mod eager;
mod executable;
mod find_budget;
pub mod interrupt;
mod options;
mod planner;
mod profile;
mod report;
mod session;
mod slab;
#[cfg(test)]
mod testing;

pub use remat_device as device;
pub use remat_device::spill::SpillTo;
pub use remat_device::{
    Alignment, Arena, ArenaFigures, Backend, Block, Buffer, CommSpan, Communication, End, Event, FileCopy, HostKernel,
    HostKernels, KernelKind, KernelRegistry, KernelSet, Launch, LaunchTime, OutBuffer, Owner, ProgramLaunch, Segment,
    StreamId, ValueView,
};
/// Tracing of eager programs into graphs.
pub mod tracing {
    pub use crate::eager::trace::{
        GraphBreak, Guard, HostInput, TraceResults, Traced, fail, guard, has_ended, host_input, host_value, is_tracing,
        random_key, refuse, size, size_of, state, trace, trace_body,
    };
}

pub use eager::{
    Candidate, Channel, Choice, CommandStream, Device, GiveWay, Handle, HostReservation, Moment, NotUpdated,
    ScoredSegment, Simulation, StreamCommand, TensorId, UnscannedBytes, WeakDevice, choose, dropped_with_failures,
    simulate, simulate_planned,
};
pub use executable::control_flow;
pub use executable::{
    Executable, ExecutableOptions, MemoryFigures, NanCheck, Observed, Observer, PlanTimes, RangeCheck, ValueDump,
};
pub use find_budget::{SmallestBudget, dry_peak_bytes, largest_batch, smallest_budget, smallest_budget_within};
pub use options::{AsyncLevel, DeviceOptions, Foresight, PolicyKind};
pub use profile::Trace;
pub use remat_graph::plan::problem::SpillRates;
pub use report::{HolderBytes, Kind, MemoryReport, MemoryUse, OpTime, Stats};
pub use session::{Allocate, RunHooks, RunResult, Session, SessionMemory, SessionOptions, Workspace};
