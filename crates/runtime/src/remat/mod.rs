//! What to evict: pure functions of the address order and of costs, tested without memory or threads.

pub(crate) mod foresight;
mod policy;
mod simulate;
mod stream;

pub use policy::{Beyond, Candidate, Choice, Range, choose};
pub(crate) use simulate::Recorded;
pub use simulate::{Simulation, simulate, simulate_planned};
pub use stream::{CommandStream, StreamCommand};
