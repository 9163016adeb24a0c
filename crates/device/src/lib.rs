//! The interface that a device implements, and tools for implementing one.
//!
//! * [`Backend`]: memory by offset, launches on ordered streams, events between them.
//! * [`KernelSet`]: questions about its kernels, answered from facts alone.
//! * [`program`]: compiled runs as data, and the one walk through them. A device implements the operations of a step
//!   ([`program::Machine`]).
//! * [`Arena`]: an allocator of offsets in the device's memory.
//! * [`host`]: parts for devices whose memory the host addresses.
//! * [`spill`]: files for tensors that leave memory and come back.
//!
//! Nothing here knows of eager commands, graphs that are being compiled, budgets or policies: these belong to the
//! runtime.

mod arena;
mod backend;
mod dry;
pub mod host;
mod in_flight;
mod kernels;
mod launch;
pub mod program;
mod registry;
mod run;
pub mod spill;

pub use arena::{Alignment, Arena, ArenaFigures, Block, End, Owner, Segment};
pub use backend::{Backend, HostCalls};
pub use dry::Dry;
pub use host::{CommSpan, Communication};
pub use in_flight::{Bytes, InFlight, Uses};
pub use kernels::{HostKernels, KernelSet, check_supported};
pub use launch::{Buffer, Event, FileCopy, Launch, LaunchTime, OutBuffer, Progress, StreamId};
pub use program::ValueView;
pub use registry::{HostKernel, KernelKind, KernelRegistry, check_written_bools};
pub use run::{ProgramBody, ProgramLaunch, ProgramOwner};
