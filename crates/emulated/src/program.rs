//! Programs on the emulated device. Each call and each copy of a program is a piece of work with ranges of its own.
//!
//! Pieces go to the streams in turn. A piece waits for earlier pieces that it conflicts with, and for no others. So the
//! checks find a missing order, or a workspace that two steps share, as they do between launches. The host walks loops,
//! and waits where it reads a condition. Constants lie on the device before the run begins. A failure stops all pieces
//! after it. A piece that writes a state waits for all pieces before it, so a run that fails has changed no state.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use remat_device::host::{self, number};
use remat_device::program::{Frame, Given, Machine, Origin, Place, Program, Span, Step, StepTimes, ValueView, Watch};
use remat_device::{Backend, Buffer, Event, Launch, OutBuffer, ProgramLaunch, StreamId};
use remat_device::{InFlight, ProgramOwner, Uses};
use remat_kernels::pool::Pool;
use remat_types::{CallSite, DType, Error, ErrorKind, HostTensor, Layout, Result, Shape, SmallVec};

use super::clocks;
use super::queued::Queued;
use super::{Access, Common, Delays, Emulated, Mutex, Work, lock};

/// The most pieces that a new piece is compared with. When there are as many, all later work waits for all of them, and
/// the list begins anew.
const QUEUED_MAX: usize = 256;

/// A range of the device's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    at: usize,
    bytes: usize,
}

impl Extent {
    fn ends(self) -> (usize, usize) {
        (self.at, self.at + self.bytes)
    }
}

impl Span for Extent {
    const EMPTY: Extent = Extent { at: 0, bytes: 0 };

    fn size_bytes(self) -> usize {
        self.bytes
    }

    fn part(self, at: usize, bytes: usize) -> Result<Extent> {
        if at.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let text = format!("bytes {at}..+{bytes} of a range of {}", self.bytes);
            return Err(Error::new(ErrorKind::Internal, text));
        }
        Ok(Extent { at: self.at + at, bytes })
    }
}

/// State that the pieces of a run share.
struct RunState {
    label: &'static str,
    site: CallSite,
    /// Events of the writes that made the inputs.
    after: SmallVec<[Event; 4]>,
    /// The fault by which the run failed.
    fault: Mutex<Option<usize>>,
    /// Nanoseconds of each step; the last entry is for pieces that belong to no step.
    ns: Vec<AtomicU64>,
    times: Option<Arc<StepTimes>>,
}

impl RunState {
    fn fault(&self) -> Option<usize> {
        *lock(&self.fault)
    }

    /// Notes a fault, if it is the run's first. Returns the first one.
    fn fail(&self, fault: impl FnOnce() -> usize) -> usize {
        *lock(&self.fault).get_or_insert_with(fault)
    }

    fn located(&self, e: Error) -> Error {
        e.with_op(self.label).with_call_site(self.site)
    }
}

/// A piece of a run.
pub(super) struct Piece {
    run: Arc<RunState>,
    task: Task,
    /// The step of the program that it belongs to, or the number of steps if it belongs to none.
    step: usize,
    /// The step that it comes from, and the steps within that one.
    origins: SmallVec<[Origin; 2]>,
}

enum Task {
    /// Comes before all other pieces.
    Begin,
    Kernel(Queued),
    Copy {
        from: Extent,
        to: Extent,
    },
    FillZero(Extent),
    Write {
        to: Extent,
        data: HostTensor,
    },
    /// Comes after all other pieces.
    End,
}

impl Task {
    fn uses(&self) -> Uses {
        match self {
            Task::Kernel(q) => clocks::uses(&q.launch()),
            Task::Begin | Task::End => Uses::default(),
            Task::Copy { from, to } => {
                Uses { reads: SmallVec::from_iter([from.ends()]), writes: SmallVec::from_iter([to.ends()]) }
            }
            Task::FillZero(to) | Task::Write { to, .. } => Uses::of_range(to.ends(), true),
        }
    }

    fn access(&self, event: Event) -> Access {
        let what = match self {
            Task::Kernel(q) => return Access::launch(&q.launch(), event),
            Task::Begin | Task::End => "program",
            Task::Copy { .. } => "copy",
            Task::FillZero(_) => "fill",
            Task::Write { .. } => "write",
        };
        let Uses { reads, writes } = self.uses();
        Access::of_event(reads, writes, event, what)
    }
}

impl Piece {
    pub(super) fn access(&self, event: Event) -> Access {
        self.task.access(event)
    }

    fn located(&self, e: Error) -> Error {
        self.run.located(self.origins.iter().rev().fold(e, |e, o| o.located(e)))
    }
}

impl Common {
    /// Runs a piece. Returns the fault by which its run has failed, if it has.
    pub(super) fn run_piece(&self, p: &Piece, event: Event, pool: &Pool, delays: &mut Delays) -> Option<usize> {
        delays.pass();
        let inherited = {
            let s = lock(&self.state);
            p.run.after.iter().find_map(|e| s.failed.get(e).copied())
        };
        if let Some(fault) = inherited.map(|fault| p.run.fail(|| fault)).or_else(|| p.run.fault()) {
            return Some(fault);
        }
        let done = self.guarded(p.access(event), || {
            delays.pass();
            let started = Instant::now();
            self.perform(&p.task, pool)?;
            p.run.ns[p.step].fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
            Ok(())
        });
        if matches!(p.task, Task::End) {
            self.note_times(&p.run, event);
        }
        done.err().map(|e| p.run.fail(|| self.fault(p.located(e))))
    }

    fn perform(&self, task: &Task, pool: &Pool) -> Result<()> {
        let region = &self.region;
        match task {
            Task::Begin | Task::End => Ok(()),
            // SAFETY: for each of these: `guarded` refuses to run this beside work that writes bytes it reads, or uses
            // bytes it writes.
            Task::Kernel(q) => unsafe { host::run_op(region, pool, &self.kernels, &q.launch()) },
            // SAFETY: as above.
            Task::Copy { from, to } => unsafe { host::copy(region, from.at, to.at, to.bytes) },
            // SAFETY: as above.
            Task::FillZero(to) => unsafe { host::fill_zero(region, to.at, to.bytes) },
            // SAFETY: as above.
            Task::Write { to, data } => unsafe { host::upload(region, to.at, data) },
        }
    }

    fn note_times(&self, run: &RunState, event: Event) {
        let ns: Vec<u64> = run.ns.iter().map(|ns| ns.load(Ordering::Relaxed)).collect();
        if let Some(times) = &run.times {
            ns[..ns.len() - 1].iter().enumerate().for_each(|(i, ns)| times.record(i, *ns));
        }
        lock(&self.state).times.insert(event, ns.iter().sum());
    }
}

/// Queues the pieces of a run. Returns the event of its end, which fails if a piece or the walk fails.
pub(super) fn run(device: &mut Emulated, p: &ProgramLaunch<'_, '_>) -> Event {
    let (l, owner) = (p.launch, p.owner());
    let steps = owner.map_or(0, |o| o.program().steps.len());
    let run = Arc::new(RunState {
        label: l.op.label(),
        site: l.site,
        after: l.after.clone(),
        fault: Mutex::default(),
        ns: (0..=steps).map(|_| AtomicU64::new(0)).collect(),
        times: owner.map(|o| o.times().clone()),
    });
    let mut running = Running::new(device, run, l, p.workspace_bytes());
    let walked = catch_unwind(AssertUnwindSafe(|| running.walk(p)));
    let walked = walked.unwrap_or_else(|payload| {
        // Dropping the payload of a panic may panic too.
        std::mem::forget(payload);
        Err(Error::new(ErrorKind::Internal, "the kernel panicked"))
    });
    running.finish(walked)
}

/// A run whose pieces are being queued.
struct Running<'d> {
    device: &'d mut Emulated,
    run: Arc<RunState>,
    stream: StreamId,
    begun: Event,
    /// True for streams that already wait for the run's first piece.
    joined: SmallVec<[bool; 4]>,
    /// Pieces that later pieces may have to wait for.
    queued: InFlight<Event>,
    /// The last events of the streams before those pieces.
    passed: SmallVec<[Event; 4]>,
    count: usize,
    arena: Extent,
    step: usize,
    origins: SmallVec<[Origin; 2]>,
    /// True if the step writes a state.
    is_update: bool,
}

impl<'d> Running<'d> {
    fn new(device: &'d mut Emulated, run: Arc<RunState>, l: &Launch<'_>, workspace_bytes: usize) -> Self {
        let (at, bytes) = l.workspace;
        let mut running = Running {
            stream: l.stream,
            begun: Event::REACHED,
            joined: SmallVec::from_elem(false, device.queued.len()),
            queued: InFlight::default(),
            passed: SmallVec::new(),
            count: 0,
            arena: Extent { at, bytes: workspace_bytes.min(bytes) },
            step: run.ns.len() - 1,
            origins: SmallVec::new(),
            is_update: false,
            device,
            run,
        };
        running.begun = running.submit(running.stream, Task::Begin);
        running
    }

    fn walk(&mut self, p: &ProgramLaunch<'_, '_>) -> Result<()> {
        let l = p.launch;
        let mut x: SmallVec<[Extent; 8]> = SmallVec::new();
        for (i, b) in l.x.iter().enumerate() {
            let whole = Extent { at: b.at, bytes: b.bytes };
            if !b.layout.is_contiguous() {
                return Err(Error::new(ErrorKind::Internal, format!("input {i} of a program has gaps")));
            }
            let size = b.dtype.size_bytes();
            x.push(whole.part(b.layout.offset() * size, b.layout.elems() * size)?);
        }
        let y: SmallVec<[Extent; 8]> = l.y.iter().map(|b| Extent { at: b.at, bytes: b.bytes }).collect();
        let threads = self.device.threads();
        let arena = self.arena;
        let constants = p.constants_at.map(|at| Extent { at, bytes: p.constant_bytes() });
        p.walk(self, threads, &Given { x: &x, y: &y, arena, constants }, &mut Shown(p.owner()))
    }

    fn finish(mut self, walked: Result<()>) -> Event {
        if let Err(e) = walked {
            self.run.fail(|| self.device.common.fault(self.run.located(e)));
        }
        for stream in 0..self.joined.len() {
            let last = self.queued.keys().rev().find(|e| usize::from(e.stream.0) == stream).copied();
            last.into_iter().for_each(|e| self.device.wait(self.stream, e));
        }
        self.step = self.run.ns.len() - 1;
        self.submit(self.stream, Task::End)
    }

    fn submit(&mut self, stream: StreamId, task: Task) -> Event {
        let piece = Piece { run: self.run.clone(), task, step: self.step, origins: self.origins.clone() };
        self.device.submit(stream, Work::Piece(Box::new(piece)))
    }

    /// Queues a piece on the next stream, after those that it conflicts with.
    fn queue(&mut self, task: Task) {
        let streams = self.joined.len();
        let at = (usize::from(self.stream.0) + self.count) % streams;
        let stream = StreamId(at as u16);
        self.count += 1;
        if !std::mem::replace(&mut self.joined[at], true) {
            self.device.wait(stream, self.begun);
        }
        let uses = task.uses();
        for other in (0..streams).filter(|s| *s != at) {
            let is_there = |e: &&Event| usize::from(e.stream.0) == other;
            let before = match self.is_update {
                true => self.queued.keys().rev().find(is_there),
                false => self.queued.before(&uses).rev().map(|(_, e)| e).find(is_there),
            };
            before.copied().into_iter().for_each(|e| self.device.wait(stream, e));
        }
        let event = self.submit(stream, task);
        self.queued.push(event, uses);
        if self.queued.len() >= QUEUED_MAX {
            self.passed = self.device.barrier();
            self.queued.clear();
        }
    }

    /// Waits for pieces that write a range, and copies its elements to the host. Errors: Internal if the run has
    /// failed; the run's own fault, noted before, is the one that is reported.
    fn read(&mut self, from: Extent, dtype: DType, shape: &Shape) -> Result<HostTensor> {
        let access = Access::by_host(from.at, from.bytes, false);
        self.device.reach(self.begun);
        let uses = Uses::of_range(from.ends(), false);
        let writers = self.queued.before(&uses).map(|(_, e)| *e);
        for e in writers.chain(self.passed.iter().copied()).collect::<SmallVec<[Event; 8]>>() {
            self.device.reach(e);
        }
        if self.run.fault().is_some() {
            return Err(Error::new(ErrorKind::Internal, "a step before it failed"));
        }
        let layout = Layout::contiguous(shape.clone());
        self.device.read(&Buffer { dtype, layout: &layout, at: from.at, bytes: from.bytes }, access)
    }
}

impl Machine for Running<'_> {
    type Span = Extent;

    fn kernel(&mut self, step: &Step, frame: &Frame<'_, Extent>) -> Result<()> {
        let workspace = frame.find(self, Place::Arena(step.workspace.0), step.workspace.1)?;
        let mut launch = Launch {
            op: &step.op,
            stream: self.stream,
            x: SmallVec::new(),
            y: SmallVec::new(),
            workspace: (workspace.at, workspace.bytes),
            after: SmallVec::new(),
            site: self.run.site,
        };
        for o in &step.x {
            let Extent { at, bytes } = frame.find(self, o.place, o.bytes)?;
            launch.x.push(Buffer { dtype: o.dtype, layout: &o.layout, at, bytes });
        }
        for t in &step.y {
            let Extent { at, bytes } = frame.find(self, t.place, t.bytes)?;
            launch.y.push(OutBuffer { dtype: t.dtype, shape: &t.shape, at, bytes, donated_from: t.donated_from });
        }
        self.queue(Task::Kernel(Queued::of(&launch)));
        Ok(())
    }

    fn copy(&mut self, from: Extent, to: Extent) -> Result<()> {
        self.queue(Task::Copy { from, to });
        Ok(())
    }

    fn fill_zero(&mut self, to: Extent) -> Result<()> {
        self.queue(Task::FillZero(to));
        Ok(())
    }

    fn write_number(&mut self, to: Extent, number: i64) -> Result<()> {
        let data = HostTensor::scalar(number);
        let to = to.part(0, data.bytes().len())?;
        self.queue(Task::Write { to, data });
        Ok(())
    }

    fn read_number(&mut self, from: Extent) -> Result<i64> {
        number(self.read(from, DType::U8, &[from.bytes].into())?.bytes())
    }

    fn begin(&mut self, step: &Step, program: &Program) {
        let is_state = |place: Place| program.updates.iter().any(|u| place == Place::Output(u.1));
        if self.origins.is_empty() {
            self.is_update = step.y.iter().any(|t| is_state(t.place));
        }
        self.origins.push(step.origin());
    }

    fn end(&mut self) {
        self.origins.pop();
    }
}

/// Shows values to the owner's observer, if there is one. The run waits for each value.
struct Shown<'o>(Option<&'o dyn ProgramOwner>);

impl<'d> Watch<Running<'d>> for Shown<'_> {
    fn before(&mut self, m: &mut Running<'d>, i: usize) -> Result<()> {
        m.step = i;
        Ok(())
    }

    fn after(&mut self, m: &mut Running<'d>, i: usize, frame: &Frame<'_, Extent>) -> Result<()> {
        let Some(owner) = self.0.filter(|o| o.is_observed()) else { return Ok(()) };
        let step = &frame.program.steps[i];
        for (j, t) in step.y.iter().enumerate() {
            let at = frame.find(m, t.place, t.bytes)?;
            let value = m.read(at, t.dtype, &t.shape)?;
            let view = ValueView { dtype: t.dtype, shape: &t.shape, bytes: value.bytes() };
            let ns = m.run.ns[i].load(Ordering::Relaxed);
            owner.show(step, j, view, ns).map_err(|e| step.located(e))?;
        }
        Ok(())
    }
}
