//! Parts for devices whose memory the host addresses: ranges by offset, launches and programs on them, collectives
//! beside kernels.
//!
//! The CPU device and the emulated device are made of these parts. All code that turns an offset into memory is here
//! ([`Region`]), and its safety notes say what a caller must promise. A check that ranges are disjoint runs once
//! before: for a launch when it comes, for a step when its program is made.

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
