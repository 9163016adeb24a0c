//! A device for tests that behaves like an accelerator: host memory behind opaque offsets, streams that run at their own
//! pace, failures that surface late.
//!
//! Each stream is a thread that takes its work in order and waits for events of other streams. Seeded random delays
//! vary the interleaving. The device checks its caller. When work is queued, a happens-before check over vector clocks
//! finds every pair of conflicting accesses that no event orders, whether or not they overlap in time in this run. When
//! work runs, it registers its ranges under a lock. If a conflicting range is in use, the device refuses the work
//! without touching memory. So the device stays sound whatever order its caller asks for. Both findings go to the
//! [`RaceLog`].
//!
//! A program runs call by call, as `program.rs` says.
//!
//! If an input of a launch failed, the launch does not run and fails with the same error. The device reports an error
//! once with its own kind, and as Poisoned after that.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use remat_device::host::{self, Region};
use remat_device::{
    Alignment, Backend, Buffer, Event, KernelSet, Launch, LaunchTime, ProgramLaunch, Progress, StreamId,
};
use remat_kernels::pool::Pool;
use remat_types::{Error, ErrorKind, HostTensor, Result, SmallVec};
use rustc_hash::FxHashMap;

mod clocks;
mod kernels;
mod program;
mod queued;

use clocks::{Access, Clocks};
use kernels::EmulatedKernels;
use program::Piece;
use queued::Queued;

/// The faults that the device found in the order of its work. Clones share the log.
#[derive(Clone, Debug, Default)]
pub struct RaceLog(Arc<Mutex<Vec<String>>>);

impl RaceLog {
    /// Every finding so far.
    pub fn races(&self) -> Vec<String> {
        lock(&self.0).clone()
    }

    fn note(&self, what: String) {
        lock(&self.0).push(what);
    }
}

/// Options of the emulated device.
#[derive(Clone, Debug)]
pub struct EmulatedOptions {
    /// Number of streams, from 1. Default: 2.
    pub streams: u16,
    /// Seed of the delays. Default: 0.
    pub seed: u64,
    /// Longest delay before and during each piece of work; 0 for none. Default: 50.
    pub max_delay_us: u64,
    /// Memory of the device; reserving more is an error of kind Budget. Default: 1 GiB.
    pub memory_bytes: usize,
    /// The multiple at which storages must lie. A launch on other offsets is a finding. Default: the host's.
    pub alignment: Alignment,
    /// The calls of `reserve` that fail, counted from 0. Default: none.
    pub failing_reserves: Vec<usize>,
    /// Names of ops for which it has no kernel. It does not support a compiled program that uses one of them either.
    /// Default: none.
    pub without_kernels: Vec<&'static str>,
    /// Plants a fault: streams do not wait for each other. Default: false.
    pub ignore_waits: bool,
    /// The log of findings.
    pub log: RaceLog,
}

impl Default for EmulatedOptions {
    fn default() -> Self {
        EmulatedOptions {
            streams: 2,
            seed: 0,
            max_delay_us: 50,
            memory_bytes: 1 << 30,
            alignment: Alignment::HOST,
            failing_reserves: Vec::new(),
            without_kernels: Vec::new(),
            ignore_waits: false,
            log: RaceLog::default(),
        }
    }
}

impl EmulatedOptions {
    /// The device. Errors: Value without a stream, Io if memory or a thread cannot be had.
    pub fn open(self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Emulated::new(self)?))
    }
}

enum Work {
    Launch(Box<Queued>),
    Piece(Box<Piece>),
    Upload {
        at: usize,
        data: HostTensor,
    },
    Wait(Event),
    Gate(Gate),
    /// A copy that is made if an event failed.
    Restore {
        event: Event,
        from: usize,
        to: usize,
        bytes: usize,
    },
    Shift {
        from: usize,
        to: usize,
        bytes: usize,
    },
}

/// A point that fails if other work failed.
struct Gate {
    after: Vec<Event>,
    /// For each stream, the first and the last number of the work that must not have failed, both included.
    spans: Vec<(u64, u64)>,
    /// The number of reports when it was queued. Faults reported before that do not count.
    reports: u64,
}

/// A failure. All events that failed because of it share it.
struct Fault {
    error: Error,
    /// Its place among the reports, from 1.
    reported: Option<u64>,
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<(u64, Work)>,
    reached: u64,
}

#[derive(Default)]
struct State {
    streams: Vec<Stream>,
    faults: Vec<Fault>,
    failed: FxHashMap<Event, usize>,
    /// The number of faults that were reported.
    reports: u64,
    /// Times of launches that nobody has asked for yet.
    times: FxHashMap<Event, u64>,
    running: Vec<Access>,
    closed: bool,
}

impl State {
    fn is_reached(&self, e: Event) -> bool {
        e.seq == 0 || self.streams[usize::from(e.stream.0)].reached >= e.seq
    }

    fn report(&mut self, fault: usize) -> Error {
        let f = &mut self.faults[fault];
        if f.reported.is_none() {
            self.reports += 1;
            f.reported = Some(self.reports);
            return f.error.clone();
        }
        Error::new(ErrorKind::Poisoned, format!("depends on an operation that failed: {}", f.error))
    }
}

impl State {
    /// The first fault by which a gate fails.
    fn fault_of(&self, gate: &Gate) -> Option<usize> {
        let inherited = gate.after.iter().find_map(|e| self.failed.get(e).copied());
        inherited.or_else(|| {
            let counts = |e: &Event, fault: usize| {
                let (first, last) = gate.spans[usize::from(e.stream.0)];
                let is_new = self.faults[fault].reported.is_none_or(|report| report > gate.reports);
                (first..=last).contains(&e.seq) && is_new
            };
            self.failed.iter().filter(|(e, fault)| counts(e, **fault)).map(|(_, fault)| *fault).min()
        })
    }
}

/// State that the streams' threads share.
struct Common {
    region: Region,
    state: Mutex<State>,
    changed: Condvar,
    log: RaceLog,
    max_delay_us: u64,
    kernels: EmulatedKernels,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section here leaves its data half changed.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Common {
    fn wait_until(&self, mut done: impl FnMut(&State) -> bool) -> MutexGuard<'_, State> {
        let mut s = lock(&self.state);
        while !done(&s) {
            s = self.changed.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
        s
    }

    /// Registers ranges, runs `f` if no range in use conflicts with them, and releases them.
    fn guarded<T>(&self, access: Access, f: impl FnOnce() -> Result<T>) -> Result<T> {
        {
            let mut s = lock(&self.state);
            if let Some(other) = s.running.iter().find(|o| o.conflicts(&access)) {
                let text = format!("{access} runs beside {other}");
                drop(s);
                self.log.note(text.clone());
                return Err(Error::new(ErrorKind::Internal, text));
            }
            s.running.push(access.clone());
        }
        let result = f();
        let mut s = lock(&self.state);
        if let Some(i) = s.running.iter().position(|o| *o == access) {
            s.running.swap_remove(i);
        }
        result
    }

    /// The loop of one stream's thread.
    fn serve(&self, stream: usize, mut delays: Delays) {
        let pool = Pool::new(1);
        let here = |seq: u64| Event { stream: StreamId(stream as u16), seq };
        loop {
            let mut s = self.wait_until(|s| s.closed || !s.streams[stream].queue.is_empty());
            let Some((seq, work)) = s.streams[stream].queue.pop_front() else { return };
            drop(s);
            let fault = match work {
                Work::Wait(e) => {
                    drop(self.wait_until(|s| s.closed || s.is_reached(e)));
                    continue;
                }
                Work::Launch(l) => self.launch(&l.launch(), seq, &pool, &mut delays),
                Work::Piece(p) => self.run_piece(&p, here(seq), &pool, &mut delays),
                Work::Upload { at, data } => {
                    delays.pass();
                    let access = Access::upload(at, data.bytes().len(), here(seq));
                    // SAFETY: `guarded` refuses to run this beside anything that uses the range.
                    let done = self.guarded(access, || unsafe { host::upload(&self.region, at, &data) });
                    done.err().map(|e| self.fault(e))
                }
                Work::Gate(gate) => {
                    delays.pass();
                    lock(&self.state).fault_of(&gate)
                }
                Work::Restore { event, from, to, bytes } => {
                    delays.pass();
                    let is_needed = lock(&self.state).failed.contains_key(&event);
                    let done = self.guarded(Access::restore(from, to, bytes, here(seq)), || match is_needed {
                        // SAFETY: `guarded` refuses to run this beside work that writes bytes it reads, or uses bytes
                        // it writes.
                        true => unsafe { host::copy(&self.region, from, to, bytes) },
                        false => Ok(()),
                    });
                    done.err().map(|e| self.fault(e))
                }
                Work::Shift { from, to, bytes } => {
                    // SAFETY: `guarded` refuses to run this beside anything that uses the ranges.
                    let shift = || unsafe { host::shift(&self.region, from, to, bytes) };
                    self.guarded(Access::shift(from, to, bytes, here(seq)), shift).err().map(|e| self.fault(e))
                }
            };
            let mut s = lock(&self.state);
            if let Some(fault) = fault {
                s.failed.insert(here(seq), fault);
            }
            s.streams[stream].reached = seq;
            drop(s);
            self.changed.notify_all();
        }
    }

    fn fault(&self, error: Error) -> usize {
        let mut s = lock(&self.state);
        s.faults.push(Fault { error, reported: None });
        s.faults.len() - 1
    }

    /// Runs a launch. Returns the fault by which it failed, if it did.
    fn launch(&self, l: &Launch<'_>, seq: u64, pool: &Pool, delays: &mut Delays) -> Option<usize> {
        delays.pass();
        let inherited = {
            let s = lock(&self.state);
            l.after.iter().find_map(|e| s.failed.get(e).copied())
        };
        if inherited.is_some() {
            return inherited;
        }
        let done = self.guarded(Access::launch(l, Event { stream: l.stream, seq }), || {
            delays.pass();
            let started = Instant::now();
            // SAFETY: `guarded` refuses to run this beside anything that writes its inputs or uses its outputs.
            unsafe { host::run_op(&self.region, pool, &self.kernels, l)? };
            let ns = started.elapsed().as_nanos() as u64;
            lock(&self.state).times.insert(Event { stream: l.stream, seq }, ns);
            Ok(())
        });
        done.err().map(|e| self.fault(e.with_op(l.op.label()).with_call_site(l.site)))
    }
}

/// Seeded pauses (xorshift64*).
struct Delays {
    state: u64,
    max_us: u64,
}

impl Delays {
    fn pass(&mut self) {
        if self.max_us == 0 {
            return;
        }
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let random = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        // Every other piece of work goes at full speed, so that streams overtake each other.
        if random & 1 == 0 {
            std::thread::sleep(Duration::from_micros((random >> 1) % (self.max_us + 1)));
        }
    }
}

/// See the module's note.
pub struct Emulated {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
    /// The number of the last event on each stream.
    queued: SmallVec<[u64; 4]>,
    clocks: Clocks,
    options: EmulatedOptions,
    reserves: usize,
    start: Instant,
}

impl Emulated {
    /// Starts the streams. Errors: Value without a stream, Io if memory or a thread cannot be had.
    pub fn new(options: EmulatedOptions) -> Result<Self> {
        if options.streams == 0 {
            return Err(Error::new(ErrorKind::Value, "streams is 0, must be at least 1"));
        }
        let count = usize::from(options.streams);
        let mut state = State::default();
        state.streams.resize_with(count, Stream::default);
        let common = Arc::new(Common {
            region: Region::new(options.memory_bytes)?,
            state: Mutex::new(state),
            changed: Condvar::new(),
            log: options.log.clone(),
            max_delay_us: options.max_delay_us,
            kernels: EmulatedKernels::new(options.without_kernels.clone(), options.alignment),
        });
        let mut device = Emulated {
            common,
            threads: Vec::new(),
            queued: SmallVec::from_elem(0, count),
            clocks: Clocks::new(count),
            options,
            reserves: 0,
            start: Instant::now(),
        };
        for stream in 0..count {
            let common = device.common.clone();
            // Seeds must differ between streams and not be zero, where xorshift stays.
            let state = (device.options.seed ^ (stream as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)).max(1);
            let delays = Delays { state, max_us: common.max_delay_us };
            let thread = std::thread::Builder::new()
                .name(format!("remat-stream-{stream}"))
                .spawn(move || common.serve(stream, delays))
                .map_err(|e| Error::from(e).context("cannot start a stream's thread"))?;
            device.threads.push(thread);
        }
        Ok(device)
    }

    fn submit(&mut self, stream: StreamId, work: Work) -> Event {
        let at = usize::from(stream.0);
        if !matches!(work, Work::Wait(_)) {
            self.queued[at] += 1;
        }
        let event = Event { stream, seq: self.queued[at] };
        if let Some(race) = match &work {
            Work::Launch(l) => self.clocks.access(Access::launch(&l.launch(), event)),
            Work::Piece(p) => self.clocks.access(p.access(event)),
            Work::Upload { at, data } => self.clocks.access(Access::upload(*at, data.bytes().len(), event)),
            Work::Wait(_) => None,
            Work::Gate(_) => self.clocks.access(Access::none(event, "gate")),
            Work::Restore { from, to, bytes, .. } => self.clocks.access(Access::restore(*from, *to, *bytes, event)),
            Work::Shift { from, to, bytes } => self.clocks.access(Access::shift(*from, *to, *bytes, event)),
        } {
            self.options.log.note(race);
        }
        lock(&self.common.state).streams[at].queue.push_back((event.seq, work));
        self.common.changed.notify_all();
        event
    }

    /// The last event of each stream.
    fn last_events(&self) -> SmallVec<[Event; 4]> {
        self.queued.iter().enumerate().map(|(at, &seq)| Event { stream: StreamId(at as u16), seq }).collect()
    }

    /// Orders all later work, on any stream, behind all work that is queued now; returns the last event of each stream.
    fn barrier(&mut self) -> SmallVec<[Event; 4]> {
        let last = self.last_events();
        for at in 0..last.len() {
            last.iter().for_each(|&e| self.wait(StreamId(at as u16), e));
        }
        last
    }

    /// Waits for an event, and leaves a failure for later calls to report.
    fn reach(&mut self, event: Event) {
        drop(self.common.wait_until(|s| s.is_reached(event)));
        self.clocks.host_saw(event);
    }

    /// Copies a tensor's elements out. The host has waited for them.
    fn read(&mut self, x: &Buffer<'_>, access: Access) -> Result<HostTensor> {
        if let Some(race) = self.clocks.access(access.clone()) {
            self.options.log.note(race);
        }
        // SAFETY: `guarded` refuses to run this beside anything that writes the range.
        self.common.guarded(access, || unsafe { host::download(&self.common.region, x) })
    }

    fn check(&mut self, event: Event) -> Result<()> {
        let mut s = self.common.wait_until(|s| s.is_reached(event));
        self.clocks.host_saw(event);
        match s.failed.get(&event).copied() {
            Some(fault) => Err(s.report(fault)),
            None => Ok(()),
        }
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        self.wait_idle();
        lock(&self.common.state).closed = true;
        self.common.changed.notify_all();
        for t in self.threads.drain(..) {
            // The result of a thread that panicked is of no use.
            let _ = t.join();
        }
    }
}

impl Backend for Emulated {
    fn name(&self) -> &str {
        "emulated"
    }

    fn streams(&self) -> usize {
        self.queued.len()
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
        Arc::new(self.common.kernels.clone())
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        let call = self.reserves;
        self.reserves += 1;
        if bytes > self.options.memory_bytes || self.options.failing_reserves.contains(&call) {
            let text = format!("{bytes} bytes asked of a device that has {}", self.options.memory_bytes);
            return Err(Error::new(ErrorKind::Budget, text));
        }
        self.common.region.reserve(bytes)
    }

    fn release(&mut self, from: usize, to: usize) {
        self.wait_idle();
        // SAFETY: nothing is queued or running.
        unsafe { self.common.region.release(from, to) };
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<Event> {
        let places = launch.x.iter().map(|x| (x.at, x.bytes)).chain(launch.y.iter().map(|y| (y.at, y.bytes)));
        for (at, bytes) in places.chain([launch.workspace]) {
            if bytes > 0 && !at.is_multiple_of(self.options.alignment.bytes()) {
                let unit = self.options.alignment.bytes();
                self.options.log.note(format!("{} on offset {at}, no multiple of {unit}", launch.op.label()));
            }
        }
        Ok(self.submit(launch.stream, Work::Launch(Box::new(Queued::of(launch)))))
    }

    fn run(&mut self, program: &ProgramLaunch<'_, '_>) -> Result<Event> {
        // Only the host copies to a file. So a program with such copies runs in one piece, by its op.
        if program.owner().is_some_and(|o| o.program().copies.is_some()) {
            return self.launch(program.launch);
        }
        Ok(program::run(self, program))
    }

    fn launch_time(&mut self, event: Event) -> LaunchTime {
        let mut s = lock(&self.common.state);
        match s.times.remove(&event) {
            Some(ns) => LaunchTime::Measured(ns),
            None if s.is_reached(event) => LaunchTime::Unknown,
            None => LaunchTime::Pending,
        }
    }

    fn upload(&mut self, stream: StreamId, at: usize, data: &HostTensor) -> Result<Event> {
        Ok(self.submit(stream, Work::Upload { at, data: data.clone() }))
    }

    fn download(&mut self, x: &Buffer<'_>, after: &[Event]) -> Result<HostTensor> {
        after.iter().try_for_each(|&e| self.check(e))?;
        self.read(x, Access::by_host(x.at, x.bytes, false))
    }

    fn shift(&mut self, from: usize, to: usize, bytes: usize) -> Result<Event> {
        self.barrier();
        let done = self.submit(StreamId(0), Work::Shift { from, to, bytes });
        (1..self.queued.len()).for_each(|stream| self.wait(StreamId(stream as u16), done));
        Ok(done)
    }

    fn wait(&mut self, stream: StreamId, event: Event) {
        if event.seq > 0 && event.stream != stream && !self.options.ignore_waits {
            self.clocks.wait(stream, event);
            self.submit(stream, Work::Wait(event));
        }
    }

    fn gate(&mut self, stream: StreamId, after: &[Event], marks: &[Event]) -> Result<Event> {
        let first = |at: usize| marks.iter().find(|m| usize::from(m.stream.0) == at).map_or(1, |m| m.seq + 1);
        let spans = self.queued.iter().enumerate().map(|(at, &last)| (first(at), last)).collect();
        let reports = lock(&self.common.state).reports;
        Ok(self.submit(stream, Work::Gate(Gate { after: after.to_vec(), spans, reports })))
    }

    fn restore(&mut self, stream: StreamId, event: Event, from: usize, to: usize, bytes: usize) -> Result<Event> {
        Ok(self.submit(stream, Work::Restore { event, from, to, bytes }))
    }

    fn poll(&mut self, event: Event) -> Progress {
        let s = lock(&self.common.state);
        match s.is_reached(event) {
            false => Progress::Pending,
            true if s.failed.contains_key(&event) => Progress::Failed,
            true => Progress::Reached,
        }
    }

    fn synchronize(&mut self, event: Event) -> Result<()> {
        self.check(event)
    }

    fn synchronize_all(&mut self) -> Result<()> {
        self.wait_idle();
        let mut s = lock(&self.common.state);
        match s.faults.iter().position(|f| f.reported.is_none()) {
            Some(fault) => Err(s.report(fault)),
            None => Ok(()),
        }
    }

    fn failed_after(&mut self, marks: &[Event]) -> Option<Error> {
        self.wait_idle();
        let mut s = lock(&self.common.state);
        let since = |e: &Event| marks.iter().all(|m| m.stream != e.stream || m.seq < e.seq);
        let new = |fault: usize| s.faults[fault].reported.is_none();
        let first = s.failed.iter().filter(|(e, fault)| since(e) && new(**fault)).map(|(_, fault)| *fault).min()?;
        Some(s.report(first))
    }

    fn wait_idle(&mut self) {
        let queued = &self.queued;
        drop(self.common.wait_until(|s| s.streams.iter().zip(queued).all(|(s, q)| s.reached >= *q)));
        self.last_events().into_iter().for_each(|e| self.clocks.host_saw(e));
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}
