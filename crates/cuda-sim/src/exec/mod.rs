//! Executes kernels over memory of the device, and checks every access.
//!
//! The lanes of a block run in lockstep: one instruction for all lanes that are at it. Lanes that branch apart are groups with
//! a program counter each. The group with the least counter runs, until it reaches the next group and joins it; this is where
//! compilers lay out the join of branches. Blocks run on several threads, in an order that a seed draws.
//!
//! With checks, each word of memory has a cell that says who read and wrote it since the last barrier (shared memory) or in
//! this launch (memory of the device). A cell keeps enough of the past that a race is found whichever access comes first.

mod access;
mod atomics;
mod block;
mod cells;
mod fault;
mod global;
mod launch;
mod mapping;
mod matrix;
mod memory;
mod ranges;
mod row;
mod shared;
mod warp;

pub use fault::{Fault, FaultKind};
pub use launch::{Checks, ExecOptions, LaunchShape, MAX_SHARED_BYTES, Stats, launch};
pub(crate) use launch::{check_shape, mix};
pub(crate) use mapping::Physical;
pub use memory::{Memory, MemoryError, Ranges};
