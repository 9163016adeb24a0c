//! Ranks: communicators, and collectives over the bytes of tensors.
//!
//! A [`Communicator`] is a group of ranks as one of them sees it. Ranks are processes over MPI (the crate `remat-mpi`), or
//! threads of this process ([`threads`]); both are [`Transport`]s, which move bytes and know nothing of tensors. What is reduced
//! is reduced here, in the order of ranks, so its bits depend on the ranks' values and their number alone: they are those of one
//! process that adds up the same values one after the other.
//!
//! Before any byte of a tensor moves, the ranks agree on the call: its kind, dtype, shape and other properties that must be
//! equal, and that none of them has failed. A rank that cannot take part says so with [`Communicator::fail`], and the others
//! get an error that names it and its reason; none of them waits. A rank that does not come within a limit ends the wait with
//! an error, too.
#![forbid(unsafe_code)]

mod communicator;
pub mod cost;
mod launch;
mod reduce;
mod statistics;
pub mod threads;
mod transport;

pub use communicator::{Call, Communicator, DEFAULT_LIMIT};
pub use launch::launched;
pub use reduce::Reduction;
pub use statistics::Statistics;
pub use transport::Transport;
