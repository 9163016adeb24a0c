//! Host memory for devices that have no other: ranges by offset, launches and programs on them, collectives beside kernels.
//!
//! A device whose memory the host can address is made of these parts: the processor's, and the emulated one. Everything that
//! follows an offset to memory is here ([`Region`]) and says in its safety note what the caller has to promise; what overlaps
//! what is checked once before, for a launch when it comes and for a step when its program was made.

mod comm_thread;
mod execute;
mod machine;
mod operands;
mod region;

pub use comm_thread::{CommSpan, CommThread, Communication};
pub use execute::{LaunchOperands, copy, download, fill_zero, run_launch, run_op, shift, upload};
pub use machine::{Bindings, HostMachine, number};
pub use operands::{Input, Operands, Output, Range, contained, run_kernel, with_operands};
pub use region::{HUGE_PAGE_BYTES, HUGE_PAGE_MIN_BYTES, Region};
