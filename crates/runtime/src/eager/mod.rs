//! The asynchronous eager runtime.
//!
//! A caller's thread infers facts, makes handles and queues commands ([`channel`](Channel)). The worker thread owns the
//! table of tensors and storages, the arena and the device, and runs the commands in order. A handle knows dtype and
//! shape by itself. Only a fetch waits, and only for its tensor.

mod apply;
mod channel;
mod command;
mod control;
mod device;
mod eviction;
mod failure;
mod feasibility;
mod figures;
mod group;
mod handle;
mod intake;
mod launcher;
mod memory;
mod moment;
mod pending;
mod queue;
mod queued;
mod record;
mod replay;
mod resident;
mod room;
mod schedule;
mod simulation;
mod spill;
mod step_planner;
mod steps;
mod sweep;
mod target;
pub(crate) mod trace;
mod update;
mod values;
mod work;
mod worker;

pub use channel::Channel;
pub use device::{Device, GiveWay, HostReservation, WeakDevice, dropped_with_failures};
pub use eviction::policy::{Candidate, Choice, ScoredSegment, UnscannedBytes, choose};
pub use handle::{Handle, TensorId};
pub use moment::Moment;
pub use simulation::{CommandStream, Simulation, StreamCommand, simulate, simulate_planned};
pub use update::NotUpdated;

#[cfg(test)]
mod tests;
