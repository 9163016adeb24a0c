//! The CPU device: kernels run on the worker's thread and its pool, and have run when a launch returns.

use std::time::Instant;

use remat_kernels::pool::Pool;
use remat_types::{HostTensor, Result};

use super::{Backend, Buffer, Event, Launch, Region, StreamId};
use crate::execute;

pub(crate) struct Cpu {
    region: Region,
    pool: Pool,
    opened: Instant,
}

impl Cpu {
    /// A device of `address_bytes` of address space and `threads` compute threads, the worker included.
    pub(crate) fn new(address_bytes: usize, threads: usize) -> Result<Self> {
        Ok(Cpu { region: Region::new(address_bytes)?, pool: Pool::new(threads), opened: Instant::now() })
    }
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn threads(&self) -> usize {
        self.pool.threads()
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.region.reserve(bytes)
    }

    fn release(&mut self, from: usize, to: usize) {
        // SAFETY: as in `launch`.
        unsafe { self.region.release(from, to) };
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event> {
        // SAFETY: only this thread reaches the region, nothing it started earlier still runs, and pool threads work for
        // the running call alone.
        unsafe { execute::run_op(&self.region, &self.pool, launch)? };
        Ok(Event::REACHED)
    }

    fn upload(&mut self, _stream: StreamId, at: usize, data: &HostTensor) -> Result<Event> {
        // SAFETY: as in `launch`.
        unsafe { execute::upload(&self.region, at, data)? };
        Ok(Event::REACHED)
    }

    fn download(&mut self, x: &Buffer<'_>, _after: Event) -> Result<HostTensor> {
        // SAFETY: as in `launch`.
        unsafe { execute::download(&self.region, x) }
    }

    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<()> {
        // SAFETY: as in `launch`.
        unsafe { execute::shift(&self.region, from, to, bytes) }
    }

    fn wait(&mut self, _stream: StreamId, _event: Event) {}

    fn synchronize(&mut self, _event: Event) -> Result<()> {
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.opened.elapsed().as_nanos() as u64
    }
}
