//! The asynchronous eager runtime.
//!
//! A caller's thread infers, makes handles and queues commands ([`channel`](Channel)); the worker thread owns the
//! table of tensors and storages, the arena and the device, and runs the commands in order. Handles answer for dtype
//! and shape alone. Only a fetch waits, and only for its tensor.

mod apply;
mod canonical;
mod channel;
mod command;
mod costs;
mod device;
mod failure;
mod figures;
mod follow;
mod foresight;
mod future;
mod group;
mod handle;
mod host_runs;
mod ledger;
mod losses;
mod memory;
mod queue;
mod reach;
mod record;
mod replay;
mod room;
mod run;
mod simulated;
mod spill;
mod table;
mod timings;
pub(crate) mod trace;
mod turns;
mod update;
mod values;
mod worker;

pub use channel::Channel;
pub use device::{Charge, Device, GiveWay};
pub use handle::{Handle, TensorId};
pub(crate) use simulated::Simulated;
pub use update::NotUpdated;

#[cfg(test)]
mod tests;
