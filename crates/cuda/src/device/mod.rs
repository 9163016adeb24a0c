//! A GPU as a device of Remat's: one arena, one stream, kernels that are compiled at their first use.
//!
//! A kernel that refuses an element says so in words on the device (`failures.rs`), and gates look at these words, so that a step
//! waits for nothing on the host. A failure of the driver's is one of the whole context, and every later call gives it.

mod cache;
mod compiled;
mod failures;
mod gates;
mod open;
mod program;
mod queue;

use std::sync::Arc;
use std::time::Instant;

pub use cache::{Cache, FOLDER as CACHE_FOLDER};
pub use open::{FOLDERS, search};
use remat_device::{
    Backend, Buffer, Event, HostCalls, KernelSet, Launch, LaunchTime, ProgramLaunch, Progress, StreamId,
};
use remat_types::{Error, HostTensor, Result, SmallVec};

use crate::driver::{self, Arena, Compiler, Context, Driver, Lane};
use crate::kernels::CudaKernels;
use crate::kernels::plan::{Addresses, Call};
use compiled::{Compiled, operands_of};
use failures::{Before, Failures, Kind, Roots, SLOTS};
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

    /// Keeps compiled kernels in a folder, or nowhere, as unless this is called.
    pub fn with_cache(mut self, cache: Option<Cache>) -> Cuda {
        self.compiled.set_cache(cache);
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

    /// Makes room for the words of a launch behind so many roots, and of the gates before it. Nothing that was known to be
    /// undecided before is so afterwards, so roots are looked up again.
    fn make_room(&mut self, roots: usize) -> Result<()> {
        if self.failures.has_room(roots) { Ok(()) } else { self.reach_all() }
    }

    /// The tickets that a launch depends on, with room for its own. Errors: those of the driver.
    fn roots_of(&mut self, after: &[Event]) -> Result<Roots> {
        let roots = self.failures.roots_of(after);
        self.make_room(roots.len())?;
        Ok(self.failures.roots_of(after))
    }

    fn ticket(&mut self, of: Kind) -> Result<u64> {
        self.failures.ticket(self.queue.next(), of, &mut self.lane)
    }

    fn call(&mut self, call: &Call, gate: u64) -> Result<()> {
        let at = Addresses { gate, ..Addresses::default() };
        let kernel = self.compiled.kernel(call)?;
        self.lane.launch(&kernel, call.grid, &call.arguments(&at))
    }

    /// A gate's ticket: it fails if one of the roots does, or a ticket from `since` on. There is room for it.
    fn decide(&mut self, roots: &[u64], since: u64) -> Result<u64> {
        let mut roots = Roots::from_slice(roots);
        while roots.len() > gates::MOST_ROOTS {
            // a gate for the first ones, which stands for them in the last
            let few: Roots = roots.drain(..gates::MOST_ROOTS).collect();
            let first = self.decide_few(Before::roots(&few))?;
            roots.push(first);
        }
        self.decide_few(Before { roots, since })
    }

    fn decide_few(&mut self, before: Before) -> Result<u64> {
        let ticket = self.ticket(Kind::Gate(before.clone()))?;
        let f = &self.failures;
        let addresses: SmallVec<[u64; 8]> = before.roots.iter().map(|t| f.address(*t)).collect();
        let span = ticket.saturating_sub(before.since);
        let call = gates::decide(f.address(ticket), &addresses, f.base(), SLOTS, before.since, span);
        self.call(&call, 0)?;
        Ok(ticket)
    }

    /// The word that a launch must look at before it writes, and 0 for none. Where `is_replaced` a state would be lost if the launch
    /// ran in spite of a failure, so one gate stands for all roots then, and becomes the only root.
    fn gate_word(&mut self, roots: &mut Roots, is_replaced: bool) -> Result<u64> {
        let last = self.failures.last_gate(roots);
        let ticket = match last {
            Some(gate) if !is_replaced || roots.len() == 1 => gate,
            _ if roots.is_empty() || !is_replaced => return Ok(0),
            _ => {
                let ticket = self.decide(roots, u64::MAX)?;
                *roots = Roots::from_iter([ticket]);
                ticket
            }
        };
        Ok(self.failures.gate_address(ticket))
    }

    /// Queues the calls of a launch behind its roots, which grow by its own ticket. There is room for it. What the launch refuses is
    /// the failure of one of `before` if one failed.
    fn queue_launch(&mut self, l: &Launch<'_>, roots: &mut Roots, is_replaced: bool, before: Before) -> Result<()> {
        let found = self.compiled.planned(l.op, &operands_of(l))?;
        let base = self.arena.base();
        let y: SmallVec<[u64; 4]> = l.y.iter().map(|y| base + y.at as u64).collect();
        let first = |x: &Buffer<'_>| base + (x.at + x.layout.offset() * x.dtype.size_bytes()) as u64;
        let x: SmallVec<[u64; 8]> = l.x.iter().map(first).collect();
        let gate = self.gate_word(roots, is_replaced)?;
        let mut own = 0;
        if let Some(failure) = found.plan.failure.clone() {
            let ticket = self.ticket(Kind::Launch { op: l.op.clone(), failure, site: l.site, before })?;
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

    /// Waits for all work, and reads the failures. The steps of a run count before the end of the run is queued.
    fn reach_all(&mut self) -> Result<()> {
        self.lane.stream().synchronize()?;
        self.failures.read_to(u64::MAX)
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

    fn release(&mut self, from: usize, to: usize) {
        // memory is given back from the end alone; a failure leaves it mapped, which is no fault
        if to >= self.arena.bytes() && self.lane.stream().synchronize().is_ok() {
            let _ = self.arena.shrink_to(from);
        }
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event> {
        let mut roots = self.roots_of(&launch.after)?;
        if let Some(fault) = self.failures.fault_of_events(&launch.after) {
            return self.queued_failed(fault);
        }
        let located = |e: Error| e.with_op(launch.op.label()).with_call_site(launch.site);
        let begin = self.queue.mark(self.lane.stream())?;
        self.queue.hold_one()?;
        let is_replaced = launch.y.iter().any(|y| y.donated_from.is_some());
        let before = Before::roots(&roots);
        self.queue_launch(launch, &mut roots, is_replaced, before).map_err(located)?;
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
        self.queue.hold_one()?;
        self.lane.shift(&self.arena, from, to, bytes)?;
        self.queued(None, Roots::new())
    }

    /// There is one stream.
    fn wait(&mut self, _stream: StreamId, _event: Event) {}

    fn gate(&mut self, _stream: StreamId, after: &[Event], marks: &[Event]) -> Result<Event> {
        let mark = marks.first().map_or(0, |m| m.seq);
        let f = &self.failures;
        let roots = f.roots_of_all(after, mark, f.since(mark)).len();
        // a failure that was reported counts no more, and the device does not know which of them were: the host decides
        if f.is_in_doubt() { self.reach_all() } else { self.make_room(roots) }?;
        let f = &self.failures;
        if let Some(fault) = f.fault_of_events(after).or_else(|| f.unreported_since(mark)) {
            return self.queued_failed(fault);
        }
        let since = f.since(mark);
        let roots = f.roots_of_all(after, mark, since);
        // nothing that could fail is on its way
        if roots.is_empty() && since == f.next() {
            return self.queued(None, Roots::new());
        }
        let ticket = self.decide(&roots, since)?;
        self.queued(None, Roots::from_iter([ticket]))
    }

    fn restore(&mut self, _stream: StreamId, event: Event, from: usize, to: usize, bytes: usize) -> Result<Event> {
        let roots = self.failures.roots_of(&[event]);
        if self.failures.fault_at(event).is_some() {
            self.lane.shift(&self.arena, from, to, bytes)?;
        } else if !roots.is_empty() {
            let base = self.arena.base();
            for few in roots.chunks(gates::MOST_ROOTS) {
                let addresses: SmallVec<[u64; 8]> = few.iter().map(|t| self.failures.address(*t)).collect();
                if let Some(call) = gates::restore(&addresses, base + from as u64, base + to as u64, bytes) {
                    self.call(&call, 0)?;
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
