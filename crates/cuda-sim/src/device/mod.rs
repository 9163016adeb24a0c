//! The device: memory, modules, streams, events and graphs behind handles, as the CUDA driver has them.
//!
//! Work is queued and runs only when the host waits or asks. Then the device takes one piece of work after another from the
//! heads of its streams: any whose order allows it, drawn by a seed. So a program that forgets a wait sees another order with
//! another seed. Beside that, vector clocks over streams and the host find every pair of conflicting accesses that nothing
//! orders, in all orders (`order.rs`). A failure surfaces at the next call, as on hardware, and stays.
//!
//! Host memory that is pinned has addresses in the same space. The host uses it through [`Device::host_write`] and
//! [`Device::host_read`], so its races with copies are found, too. Memory of the caller is registered by its own addresses.
//!
//! There may be several devices. They share addresses, the host and the order of work, so that an event of one orders work of
//! another; each has its memory, streams and modules. A call is for the current device, as in CUDA's runtime interface.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::code::{Kernel, Program};
use crate::exec::{Checks, ExecOptions, Memory};

mod capture;
mod copies;
mod devices;
mod error;
mod mapping;
mod memory;
mod modules;
mod order;
mod queue;
mod streams;

pub use capture::{Graph, GraphExec};
pub use error::{CudaError, ErrorCode, Outcome};
pub use mapping::PhysicalMemory;
pub use modules::{Function, FunctionAttributes, Module};
pub use queue::{Sink, Source};
pub use streams::{Event, Stream};

use capture::{Captures, Node};
use mapping::PhysicalState;
use order::{Access, Clock};
use streams::{EventState, StreamState};

/// The options of a device.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// The number of devices.
    pub devices: usize,
    /// Memory of each device. Pinned memory of the host does not count.
    pub memory_bytes: u64,
    /// The seed of the order of streams and of the order of blocks of each launch.
    pub seed: u64,
    /// How kernels are executed. Its seed is drawn from the one above for each launch.
    pub exec: ExecOptions,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        DeviceOptions { devices: 1, memory_bytes: 1 << 30, seed: 0, exec: ExecOptions::default() }
    }
}

/// One or more CUDA devices in software. The legacy default stream of the current one is [`Stream::DEFAULT`].
pub struct Device {
    options: DeviceOptions,
    /// The device of calls.
    current: usize,
    memory: Memory,
    /// Device and bytes of each allocation, by address.
    allocated: BTreeMap<u64, (usize, u64)>,
    physical: Vec<Option<PhysicalState>>,
    /// Bytes of each pinned allocation of the host.
    pinned: BTreeMap<u64, u64>,
    /// Bytes of each registered range of the caller's memory, by its own addresses.
    registered: BTreeMap<u64, u64>,
    modules: Vec<Option<LoadedModule>>,
    functions: Vec<LoadedFunction>,
    streams: Vec<StreamState>,
    events: Vec<Option<EventState>>,
    captures: Captures,
    graphs: Vec<Option<Arc<Vec<Node>>>>,
    execs: Vec<Option<Arc<Vec<Node>>>>,
    /// The work that the host has seen end.
    host: Clock,
    /// Accesses after which some later work may not be ordered.
    open: Vec<Access>,
    failed: Option<CudaError>,
    drawn: u64,
    /// Nanoseconds of the virtual clock.
    now_ns: u64,
    launches: u64,
    instructions: u64,
}

struct LoadedModule {
    device: usize,
    program: Program,
    variables: Arc<Vec<u64>>,
}

#[derive(Clone)]
struct LoadedFunction {
    device: usize,
    module: usize,
    /// Dynamic shared memory that a launch may have.
    allowed_shared_bytes: u32,
    kernel: Arc<Kernel>,
    variables: Arc<Vec<u64>>,
}

impl Device {
    /// One device or more, as the options say; the first one is current.
    pub fn new(options: DeviceOptions) -> Self {
        let memory = match options.exec.checks {
            Checks::All => Memory::new(),
            Checks::Bounds => Memory::unchecked(),
        };
        let streams = (0..options.devices.max(1)).map(|d| StreamState::new(d, true, Clock::default())).collect();
        Device {
            drawn: options.seed,
            options,
            current: 0,
            memory,
            allocated: BTreeMap::new(),
            physical: Vec::new(),
            pinned: BTreeMap::new(),
            registered: BTreeMap::new(),
            modules: Vec::new(),
            functions: Vec::new(),
            streams,
            events: Vec::new(),
            captures: Captures::default(),
            graphs: Vec::new(),
            execs: Vec::new(),
            host: Clock::default(),
            open: Vec::new(),
            failed: None,
            now_ns: 0,
            launches: 0,
            instructions: 0,
        }
    }

    /// Launches that ran, and the instructions of all of them.
    pub fn counts(&self) -> (u64, u64) {
        (self.launches, self.instructions)
    }

    /// The failure that all calls return from now on, if there is one.
    pub fn failure(&self) -> Option<&CudaError> {
        self.failed.as_ref()
    }

    /// Errors if the device has failed.
    fn alive(&self) -> Outcome<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queued: Vec<usize> = self.streams.iter().map(|s| s.queue.len()).collect();
        f.debug_struct("Device").field("queued", &queued).field("failed", &self.failed).finish_non_exhaustive()
    }
}
