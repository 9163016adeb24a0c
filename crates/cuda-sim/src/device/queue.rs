//! Work that waits, and the way it is run.

use std::fmt;
use std::sync::Arc;

use super::error::{CudaError, ErrorCode, Outcome};
use super::order::{Access, Clock, place};
use super::{Device, LoadedFunction};
use crate::exec::{self, Checks, LaunchShape, MemoryError, Ranges};

/// Takes bytes from the device when a copy runs.
pub type Sink = Arc<dyn Fn(&[u8]) + Send + Sync>;
/// Gives bytes to the device when a copy runs.
pub type Source = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// A piece of work. Graphs run it many times.
#[derive(Clone)]
pub(super) enum Work {
    Launch {
        function: LoadedFunction,
        shape: LaunchShape,
        params: Arc<Vec<u8>>,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
    },
    Give {
        to: u64,
        bytes: u64,
        source: Source,
        /// The place in registered memory from which the bytes come.
        host: Option<u64>,
    },
    Take {
        from: u64,
        bytes: u64,
        sink: Sink,
        /// The place in registered memory to which they go.
        host: Option<u64>,
    },
    Fill {
        to: u64,
        value: [u8; 4],
        width: usize,
        count: u64,
    },
    Forget {
        at: u64,
        bytes: u64,
    },
    Host(Arc<dyn Fn() + Send + Sync>),
    /// Notes the time of an event.
    Record {
        event: usize,
        recording: u64,
    },
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

impl Work {
    fn label(&self) -> String {
        match self {
            Work::Launch { function, .. } => format!("kernel {}", function.kernel.name()),
            Work::Copy { bytes, .. } => format!("copy of {bytes} bytes"),
            Work::Give { bytes, .. } => format!("copy of {bytes} bytes to the device"),
            Work::Take { bytes, .. } => format!("copy of {bytes} bytes to the host"),
            Work::Fill { count, width, .. } => format!("fill of {count} values of {width} bytes"),
            Work::Forget { bytes, .. } => format!("reuse of {bytes} bytes"),
            Work::Host(_) => "host function".to_string(),
            Work::Record { .. } => "record of an event".to_string(),
        }
    }
}

/// Work in a stream, with what comes before it.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) number: u64,
    pub(super) before: Clock,
    pub(super) work: Work,
}

impl Device {
    /// Queues work behind a stream's other work, and behind what the host has seen.
    pub(super) fn queue(&mut self, stream: usize, work: Work) {
        let host = self.host.clone();
        self.order_default_stream(stream);
        let state = &mut self.streams[stream];
        state.clock.join(&host);
        let (before, number) = (state.clock.clone(), state.next);
        state.next += 1;
        state.clock.set(place(stream), number);
        state.queue.push_back(Queued { number, before, work });
    }

    /// The legacy default stream waits for all blocking streams, and they for it (CUDA driver interface, stream
    /// synchronisation behaviour).
    fn order_default_stream(&mut self, stream: usize) {
        let mut clock = Clock::default();
        let device = self.streams[stream].device;
        if stream < self.devices() {
            clock = self.blocking_clock(device);
        } else if self.streams[stream].is_blocking {
            clock = self.streams[device].clock.clone();
        }
        self.streams[stream].clock.join(&clock);
    }

    fn is_ready(&self, stream: usize) -> bool {
        let Some(queued) = self.streams[stream].queue.front() else { return false };
        queued.before.counts().all(|(at, count)| at == 0 || self.streams[at - 1].done >= count)
    }

    /// A pseudo-random number below a bound.
    fn draw(&mut self, below: usize) -> usize {
        self.drawn = exec::mix(self.drawn);
        (self.drawn % below as u64) as usize
    }

    /// Runs one piece of work that may run. Returns false if there is none.
    pub(super) fn run_one(&mut self) -> bool {
        let ready: Vec<usize> = (0..self.streams.len()).filter(|&s| self.is_ready(s)).collect();
        if ready.is_empty() || self.failed.is_some() {
            return false;
        }
        let stream = ready[self.draw(ready.len())];
        let Some(queued) = self.streams[stream].queue.pop_front() else { return false };
        let outcome = self.run(stream, &queued);
        self.streams[stream].done = queued.number;
        if let Err(error) = outcome {
            // what is queued will never run: the context is lost
            self.streams.iter_mut().for_each(|s| s.queue.clear());
            self.failed = Some(error);
        }
        true
    }

    /// Runs work until a condition holds or the device fails.
    pub(super) fn run_until(&mut self, holds: impl Fn(&Device) -> bool) -> Outcome<()> {
        while !holds(self) {
            if !self.run_one() {
                self.alive()?;
                return Err(CudaError::new(ErrorCode::LaunchFailed, "the streams wait for each other"));
            }
        }
        self.alive()
    }

    fn run(&mut self, stream: usize, queued: &Queued) -> Outcome<()> {
        let (reads, writes) = self.execute(&queued.work)?;
        let label = queued.work.label();
        let access = Access { place: place(stream), number: queued.number, reads, writes, label };
        self.note(access, &queued.before)
    }

    /// Runs work and returns the bytes that it read and wrote.
    fn execute(&mut self, work: &Work) -> Outcome<(Ranges, Ranges)> {
        let range = |at: u64, bytes: u64| if bytes == 0 { Vec::new() } else { vec![(at, at + bytes)] };
        self.now_ns += OVERHEAD_NS;
        match work {
            Work::Launch { function, shape, params } => self.execute_launch(function, *shape, params),
            Work::Copy { to, from, bytes } => {
                self.memory.copy(*to, *from, *bytes).map_err(memory_error)?;
                self.now_ns += bytes / BYTES_PER_NS;
                Ok((range(*from, *bytes), range(*to, *bytes)))
            }
            Work::Give { to, bytes, source, host } => {
                let read = self.registered_range(*host, *bytes)?;
                let mut data = vec![0; *bytes as usize];
                source(&mut data);
                self.memory.write(*to, &data).map_err(memory_error)?;
                self.now_ns += bytes / BYTES_PER_NS;
                Ok((read, range(*to, *bytes)))
            }
            Work::Take { from, bytes, sink, host } => {
                let written = self.registered_range(*host, *bytes)?;
                let mut data = vec![0; *bytes as usize];
                self.memory.read(*from, &mut data).map_err(memory_error)?;
                sink(&data);
                self.now_ns += bytes / BYTES_PER_NS;
                Ok((range(*from, *bytes), written))
            }
            Work::Fill { to, value, width, count } => {
                self.memory.fill(*to, &value[..*width], *count).map_err(memory_error)?;
                let bytes = *width as u64 * count;
                self.now_ns += bytes / BYTES_PER_NS;
                Ok((Vec::new(), range(*to, bytes)))
            }
            Work::Forget { at, bytes } => {
                self.memory.forget(*at, *bytes).map_err(memory_error)?;
                Ok((Vec::new(), range(*at, *bytes)))
            }
            Work::Host(function) => {
                function();
                Ok((Vec::new(), Vec::new()))
            }
            Work::Record { event, recording } => {
                let now_ns = self.now_ns;
                if let Some(Some(state)) = self.events.get_mut(*event)
                    && state.recordings == *recording
                {
                    state.time_ns = Some(now_ns);
                }
                Ok((Vec::new(), Vec::new()))
            }
        }
    }

    fn execute_launch(
        &mut self,
        function: &LoadedFunction,
        shape: LaunchShape,
        params: &[u8],
    ) -> Outcome<(Ranges, Ranges)> {
        let mut options = self.options.exec;
        self.drawn = exec::mix(self.drawn);
        options.seed = self.drawn;
        let (kernel, variables) = (&function.kernel, &function.variables);
        let ran = exec::launch(&mut self.memory, kernel, variables, shape, params, &options);
        let stats = ran.map_err(CudaError::from_fault)?;
        self.launches += 1;
        self.instructions += stats.instructions;
        self.now_ns += stats.instructions;
        if options.checks != Checks::All {
            return Ok((Vec::new(), Vec::new()));
        }
        let (reads, writes) = self.memory.last_uses();
        self.check_devices(function, &reads, &writes)?;
        Ok((reads, writes))
    }

    /// The bytes of registered memory that a copy uses, apart from all addresses of devices. Errors: the memory is not
    /// registered any more.
    fn registered_range(&self, at: Option<u64>, bytes: u64) -> Outcome<Ranges> {
        let Some(at) = at.filter(|_| bytes > 0) else { return Ok(Vec::new()) };
        self.check_registered(at, bytes)?;
        Ok(vec![(HOST_SPACE + at, HOST_SPACE + at + bytes)])
    }

    /// Notes an access. Errors: nothing orders it after an earlier one with which it conflicts.
    pub(super) fn note(&mut self, access: Access, before: &Clock) -> Outcome<()> {
        let clash = self.open.iter().filter(|o| !o.precedes(before)).find_map(|o| Some((o, o.conflict(&access)?)));
        if let Some((other, address)) = clash {
            let message = format!(
                "a race: nothing orders {} after {}, and both use address {address:#x}",
                access.describe(),
                other.describe()
            );
            return Err(CudaError::new(ErrorCode::LaunchFailed, message));
        }
        if !access.reads.is_empty() || !access.writes.is_empty() {
            self.open.push(access);
        }
        let Device { open, host, streams, .. } = self;
        let queued = || streams.iter().flat_map(|s| &s.queue);
        open.retain(|o| !o.precedes(host) || queued().any(|q| !o.precedes(&q.before)));
        Ok(())
    }
}

/// Where addresses of the caller's memory begin among those of uses.
const HOST_SPACE: u64 = 1 << 63;
/// Virtual nanoseconds of each piece of work beside its instructions and bytes.
const OVERHEAD_NS: u64 = 1000;
/// The virtual bandwidth of copies.
const BYTES_PER_NS: u64 = 16;

pub(super) fn memory_error(error: MemoryError) -> CudaError {
    let code = if error.is_uninitialised { ErrorCode::LaunchFailed } else { ErrorCode::IllegalAddress };
    CudaError::new(code, error.to_string())
}
