//! A device without memory: the runtime runs a program over facts alone and finds its peak, its evictions and its
//! smallest feasible budget. Time is a virtual clock that the ops' costs advance.

use std::sync::Arc;

use remat_types::{Error, ErrorKind, Fact, HostTensor, Result, SmallVec};

use crate::backend::Backend;
use crate::kernels::{HostKernels, KernelSet};
use crate::launch::{Buffer, Event, Launch, StreamId};

/// The speed at which blocks move, about that of a copy by one core.
const MOVED_BYTES_PER_NS: u64 = 8;

/// See the module's note.
pub struct Dry {
    threads: usize,
    kernels: Arc<dyn KernelSet>,
    clock_ns: u64,
}

impl Dry {
    /// A dry run of a device with the host's kernels on `threads` threads.
    pub fn new(threads: usize) -> Self {
        Dry::with_kernels(threads, Arc::new(HostKernels::new("dry", threads)))
    }

    /// A dry run of a device with other kernels.
    pub fn with_kernels(threads: usize, kernels: Arc<dyn KernelSet>) -> Self {
        Dry { threads, kernels, clock_ns: 0 }
    }
}

impl Backend for Dry {
    fn name(&self) -> &str {
        "dry"
    }

    fn is_dry(&self) -> bool {
        true
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn kernels(&self) -> Arc<dyn KernelSet> {
        self.kernels.clone()
    }

    fn reserve(&mut self, _bytes: usize) -> Result<()> {
        Ok(())
    }

    fn release(&mut self, _from: usize, _to: usize) {}

    fn launch(&mut self, l: &Launch<'_>) -> Result<Event> {
        let x: SmallVec<[Fact; 4]> = l.x.iter().map(|b| Fact::new(b.dtype, b.layout.shape().clone())).collect();
        let y: SmallVec<[Fact; 2]> = l.y.iter().map(|b| Fact::new(b.dtype, b.shape.clone())).collect();
        let refs: SmallVec<[&Fact; 4]> = x.iter().collect();
        self.clock_ns += self.kernels.cost_ns(&**l.op, &refs, &y);
        Ok(Event::REACHED)
    }

    fn upload(&mut self, _stream: StreamId, _at: usize, _data: &HostTensor) -> Result<Event> {
        Ok(Event::REACHED)
    }

    fn download(&mut self, _x: &Buffer<'_>, _after: &[Event]) -> Result<HostTensor> {
        Err(Error::new(ErrorKind::NoValue, "a dry run computes no values: only facts and memory figures exist"))
    }

    fn shift(&mut self, _from: usize, _to: usize, bytes: usize) -> Result<Event> {
        self.clock_ns += bytes as u64 / MOVED_BYTES_PER_NS;
        Ok(Event::REACHED)
    }

    fn wait(&mut self, _stream: StreamId, _event: Event) {}

    fn synchronize(&mut self, _event: Event) -> Result<()> {
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns
    }
}
