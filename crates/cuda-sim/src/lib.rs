//! A CUDA device in software, for tests where there is no GPU.
//!
//! [`Program::load`] takes PTX as NVRTC 12.9 makes it for `sm_80` and `sm_90`, and refuses what it does not know or what PTX
//! does not fix to the bit. [`launch`] executes a kernel over [`Memory`] and checks it: bounds of allocations, alignment, reads
//! of bytes that nobody wrote, races in shared memory and between blocks, barriers, and hangs. [`Device`] adds the driver's
//! side: streams that run in seeded orders, events, graphs, and the search for accesses that no event orders.
//!
//! PTX says what results are; where it leaves them open, the modules say what was chosen. Nothing here is fast enough for
//! more than tests: `examples/tiled_product.rs` prints the speed.
#![forbid(unsafe_code)]

mod code;
mod device;
mod exec;
mod lanes;
mod number;
pub mod ptx;

pub use code::{GlobalVariable, Kernel, Param, Program};
pub use device::{
    CudaError, Device, DeviceOptions, ErrorCode, Event, Function, FunctionAttributes, Graph, GraphExec, Module,
    Outcome, PhysicalMemory, Sink, Source, Stream,
};
pub use exec::{
    Checks, ExecOptions, Fault, FaultKind, LaunchShape, MAX_SHARED_BYTES, Memory, MemoryError, Ranges, Stats, launch,
};
