//! A GPU as a device of Remat's: one arena, one stream, kernels that are compiled at their first use.
//!
//! A kernel that refuses an element says so in words on the device (`failures.rs`), and gates look at these words, so that a step
//! waits for nothing on the host. A failure of the driver's is one of the whole context, and every later call gives it.

mod compiled;
mod failures;
mod gates;
mod open;
mod program;
mod queue;

use std::sync::Arc;
use std::time::Instant;

pub use open::{FOLDERS, search};
use remat_device::{
    Backend, Buffer, Event, HostCalls, KernelSet, Launch, LaunchTime, ProgramLaunch, Progress, StreamId,
};
use remat_types::{Error, HostTensor, Result, SmallVec};

use crate::driver::{self, Arena, Compiler, Context, Driver, Lane};
use crate::kernels::CudaKernels;
use crate::kernels::plan::{Addresses, Call};
use compiled::{Compiled, operands_of};
use failures::{Failures, Kind, Roots, SLOTS};
use queue::Queue;

/// A device on a driver. Without a budget its arena grows by mapping memory.
pub struct Cuda {
    name: String,
    context: Context,
    lane: Lane,
    arena: Arena,
    compiled: Compiled,
    kernels: Arc<CudaKernels>,
    queue: Queue,
    failures: Failures,
    /// Steps of programs that ran on the host.
    host_calls: HostCalls,
    start: Instant,
}

impl Cuda {
    /// The device of an ordinal. Errors (Device): those of [`Driver::context`]; the driver cannot map memory.
    pub fn open(driver: &Driver, compiler: Compiler, ordinal: usize) -> Result<Cuda> {
        let context = driver.context(ordinal)?;
        let name = format!("cuda:{ordinal}");
        let mut lane = Lane::new(&context)?;
        Ok(Cuda {
            kernels: Arc::new(CudaKernels::new(name.clone(), false)),
            failures: Failures::new(&context, &mut lane)?,
            queue: Queue::new(&context),
            compiled: Compiled::new(compiler, &context),
            arena: Arena::growing(&context)?,
            host_calls: HostCalls::default(),
            lane,
            name,
            context,
            start: Instant::now(),
        })
    }

    /// With another name for reports and errors, and steps of programs on the host where there is no kernel for them.
    fn named(mut self, name: String) -> Cuda {
        self.kernels = Arc::new(CudaKernels::new(name.clone(), true));
        self.name = name;
        self
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Bytes of the device's memory that this takes beside the arena: words for failures.
    pub fn bytes_beside(&self) -> usize {
        self.failures.bytes()
    }

    /// Compiles the kernels of calls that are not known yet, in one go. Errors: those of the compiler and of the driver.
    pub fn prepare<'c>(&mut self, calls: impl IntoIterator<Item = &'c Call>) -> Result<()> {
        self.compiled.prepare(calls)
    }

    /// Ends a piece of work that depends on tickets.
    fn queued(&mut self, begin: Option<driver::Event>, roots: Roots) -> Result<Event> {
        let (event, waited) = self.queue.push(begin, self.lane.stream())?;
        self.failures.note_roots(event.seq, roots);
        if let Some(seq) = waited {
            self.failures.read_to(seq)?;
        }
        Ok(event)
    }

    /// A piece of work that is not made, because of a fault.
    fn queued_failed(&mut self, fault: usize) -> Result<Event> {
        let event = self.queued(None, Roots::new())?;
        self.failures.note_failed(event.seq, fault);
        Ok(event)
    }

    fn ticket(&mut self, of: Kind) -> Result<u64> {
        if self.failures.is_full() {
            self.lane.stream().synchronize()?;
            self.failures.read_to(self.queue.last())?;
        }
        self.failures.ticket(self.queue.next(), of, &mut self.lane)
    }

    fn call(&mut self, call: &Call, at: &Addresses<'_>) -> Result<()> {
        let kernel = self.compiled.kernel(call)?;
        self.lane.launch(&kernel, call.grid, &call.arguments(at))
    }

    /// A gate's ticket: it fails if one of the roots does, or a ticket from `since` on.
    fn decide(&mut self, roots: &[u64], since: u64) -> Result<u64> {
        let Some((few, more)) = roots.split_at_checked(gates::MOST_ROOTS).filter(|r| !r.1.is_empty()) else {
            let ticket = self.ticket(Kind::Gate { roots: roots.into(), since })?;
            let f = &self.failures;
            let since = since.max(f.first_unknown());
            let addresses: SmallVec<[u64; 8]> = roots.iter().map(|t| f.address(*t)).collect();
            let span = ticket.saturating_sub(since);
            let call = gates::decide(f.address(ticket), &addresses, f.base(), SLOTS, since, span);
            self.call(&call, &Addresses::default())?;
            return Ok(ticket);
        };
        // a gate for the first ones, which stands for them in the last
        let first = self.decide(few, u64::MAX)?;
        let rest: Roots = std::iter::once(first).chain(more.iter().copied()).collect();
        self.decide(&rest, since)
    }

    /// The word that a launch must look at before it writes, and 0 for none. The roots become the one that has the word. Where
    /// `is_replaced` a state would be lost if the launch ran in spite of a failure.
    fn gate_word(&mut self, roots: &mut Roots, is_replaced: bool) -> Result<u64> {
        if let [one] = roots[..]
            && self.failures.is_gate(one)
        {
            return Ok(self.failures.gate_address(one));
        }
        if roots.is_empty() || !is_replaced {
            return Ok(0);
        }
        let ticket = self.decide(roots, u64::MAX)?;
        *roots = Roots::from_iter([ticket]);
        Ok(self.failures.gate_address(ticket))
    }

    /// Queues the calls of a launch behind its roots, which grow by its own ticket.
    fn queue_launch(&mut self, l: &Launch<'_>, roots: &mut Roots, is_replaced: bool) -> Result<()> {
        let found = self.compiled.planned(l.op, &operands_of(l))?;
        let base = self.arena.base();
        let y: SmallVec<[u64; 4]> = l.y.iter().map(|y| base + y.at as u64).collect();
        let first = |x: &Buffer<'_>| base + (x.at + x.layout.offset() * x.dtype.size_bytes()) as u64;
        let x: SmallVec<[u64; 8]> = l.x.iter().map(first).collect();
        let gate = self.gate_word(roots, is_replaced)?;
        let mut own = 0;
        if let Some(failure) = found.plan.failure.clone() {
            let ticket = self.ticket(Kind::Launch { op: l.op.clone(), failure, site: l.site })?;
            own = self.failures.address(ticket);
            roots.push(ticket);
        }
        let at = Addresses { x: &x, y: &y, workspace: base + l.workspace.0 as u64, gate, failure: own };
        let calls = found.plan.calls.iter().zip(&found.kernels);
        calls.into_iter().try_for_each(|(call, kernel)| self.lane.launch(kernel, call.grid, &call.arguments(&at)))
    }

    /// Waits for an event, and reads what failed until then.
    fn reach(&mut self, event: Event) -> Result<()> {
        self.queue.wait(event)?;
        self.failures.read_to(event.seq)
    }

    fn reach_all(&mut self) -> Result<()> {
        self.lane.stream().synchronize()?;
        self.failures.read_to(self.queue.last())
    }
}

impl Backend for Cuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn shares_host_memory(&self) -> bool {
        false
    }

    fn threads(&self) -> usize {
        1
    }

    fn kernels(&self) -> Arc<dyn KernelSet> {
        self.kernels.clone()
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.arena.grow_to(bytes)
    }

    fn release(&mut self, _from: usize, _to: usize) {}

    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event> {
        let mut roots = self.failures.roots_of(&launch.after);
        if let Some(fault) = self.failures.fault_of(&roots) {
            return self.queued_failed(fault);
        }
        let located = |e: Error| e.with_op(launch.op.label()).with_call_site(launch.site);
        let begin = self.queue.mark(self.lane.stream())?;
        let is_replaced = launch.y.iter().any(|y| y.donated_from.is_some());
        self.queue_launch(launch, &mut roots, is_replaced).map_err(located)?;
        self.queued(Some(begin), roots)
    }

    fn run(&mut self, program: &ProgramLaunch<'_, '_>) -> Result<Event> {
        program::run(self, program)
    }

    fn launch_time(&mut self, event: Event) -> LaunchTime {
        self.queue.time(event)
    }

    fn host_calls(&self) -> &HostCalls {
        &self.host_calls
    }

    fn upload(&mut self, _stream: StreamId, at: usize, data: &HostTensor) -> Result<Event> {
        self.lane.upload(&self.arena, at, data.bytes())?;
        self.queued(None, Roots::new())
    }

    fn download(&mut self, x: &Buffer<'_>, after: &[Event]) -> Result<HostTensor> {
        after.iter().try_for_each(|e| self.synchronize(*e))?;
        let bytes = self.lane.download(&self.arena, x.at, x.bytes)?;
        HostTensor::gather(x.dtype, x.layout, &bytes)
    }

    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<Event> {
        self.lane.shift(&self.arena, from, to, bytes)?;
        self.queued(None, Roots::new())
    }

    /// There is one stream.
    fn wait(&mut self, _stream: StreamId, _event: Event) {}

    fn gate(&mut self, _stream: StreamId, after: &[Event], marks: &[Event]) -> Result<Event> {
        let mark = marks.first().map_or(0, |m| m.seq);
        let roots = self.failures.roots_of(after);
        let known = self.failures.fault_of(&roots).or_else(|| self.failures.unreported_since(mark));
        if let Some(fault) = known {
            return self.queued_failed(fault);
        }
        let since = self.failures.since(mark);
        // nothing that could fail is on its way
        if roots.is_empty() && since == self.failures.first_unknown() + self.failures.unknown() {
            return self.queued(None, Roots::new());
        }
        let ticket = self.decide(&roots, since)?;
        self.queued(None, Roots::from_iter([ticket]))
    }

    fn restore(&mut self, _stream: StreamId, event: Event, from: usize, to: usize, bytes: usize) -> Result<Event> {
        let roots = self.failures.roots_of(&[event]);
        if self.failures.fault_of(&roots).is_some() {
            self.lane.shift(&self.arena, from, to, bytes)?;
        } else if !roots.is_empty() {
            let base = self.arena.base();
            for few in roots.chunks(gates::MOST_ROOTS) {
                let addresses: SmallVec<[u64; 8]> = few.iter().map(|t| self.failures.address(*t)).collect();
                if let Some(call) = gates::restore(&addresses, base + from as u64, base + to as u64, bytes) {
                    self.call(&call, &Addresses::default())?;
                }
            }
        }
        self.queued(None, Roots::new())
    }

    fn poll(&mut self, event: Event) -> Progress {
        let found = self.queue.progress(event);
        if found == Progress::Reached
            && (self.failures.read_to(event.seq).is_err() || self.failures.fault_at(event).is_some())
        {
            return Progress::Failed;
        }
        found
    }

    fn synchronize(&mut self, event: Event) -> Result<()> {
        self.reach(event)?;
        match self.failures.fault_at(event) {
            Some(fault) => Err(self.failures.report(fault)),
            None => Ok(()),
        }
    }

    fn synchronize_all(&mut self) -> Result<()> {
        self.reach_all()?;
        match self.failures.unreported_since(0) {
            Some(fault) => Err(self.failures.report(fault)),
            None => Ok(()),
        }
    }

    fn failed_after(&mut self, marks: &[Event]) -> Option<Error> {
        if let Err(e) = self.reach_all() {
            return Some(e);
        }
        let fault = self.failures.unreported_since(marks.first().map_or(0, |m| m.seq))?;
        Some(self.failures.report(fault))
    }

    fn wait_idle(&mut self) {
        // the failure stays, and the next call tells it
        let _ = self.lane.stream().synchronize();
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}
