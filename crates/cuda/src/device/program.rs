//! Programs: the steps of a compiled run, queued one behind the other.
//!
//! The kernels of all steps are compiled together before the first run. A step without a kernel runs on the host, between two waits,
//! where the device may do so. A step that writes a state stands behind a gate over all that can fail before it, so a run that fails
//! has changed no state. In the first run the host waits for each step, and the times are recorded.

use std::time::Instant;

use remat_device::program::{Flow, Frame, Given, Machine, Place, Program, Span, Step, ValueView, Watch};
use remat_device::{Backend, Buffer, Event, Launch, OutBuffer, ProgramBody, ProgramLaunch, ProgramOwner, StreamId};
use remat_ops::eval_inline;
use remat_types::{DType, Error, ErrorKind, HostTensor, Layout, Result, Shape, SmallVec};

use super::compiled::plan_of;
use super::failures::{Before, Roots};
use super::{Cuda, gates};
use crate::kernels::plan::{Call, Input, Operands};

/// Number of bytes of an integer that a walk reads or writes.
const NUMBER_BYTES: usize = 8;

/// A range of the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    at: usize,
    bytes: usize,
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

/// Queues a run. The event of its end fails if a step does. Errors: those of kernels that do not compile, and of the driver.
pub(super) fn run(device: &mut Cuda, p: &ProgramLaunch<'_, '_>) -> Result<Event> {
    let l = p.launch;
    if p.owner().is_some_and(|o| o.program().copies.is_some()) {
        return Err(Error::new(ErrorKind::Internal, "a program with copies to a file"));
    }
    let roots = device.roots_of(&l.after)?;
    if let Some(fault) = device.failures.fault_of_events(&l.after) {
        return device.queued_failed(fault);
    }
    let located = |e: Error| e.with_op(l.op.label()).with_call_site(l.site);
    let is_first = p.owner().is_some_and(|o| !o.times().is_complete());
    if is_first || p.owner().is_none() {
        prepare(device, &p.body).map_err(located)?;
    }
    let begin = device.queue.mark(device.lane.stream())?;
    device.queue.hold_one()?;
    let mut running = Running {
        given: roots.clone(),
        first: device.failures.next(),
        roots,
        launch: l,
        is_timed: is_first,
        started: None,
        is_update: false,
        depth: 0,
        device,
    };
    match running.walk(p) {
        Ok(()) => {
            let roots = running.roots;
            device.queued(Some(begin), roots)
        }
        // what a step refused comes first: the walk may have failed because of it
        Err(e) => {
            let roots = running.roots;
            device.queue.recycle(begin);
            device.reach_all()?;
            let seq = device.queue.next();
            let fault = device.failures.fault_of(&roots);
            let fault = fault.unwrap_or_else(|| device.failures.fault(seq, located(e)));
            device.queued_failed(fault)
        }
    }
}

/// Compiles the kernels of all steps that have no plan yet, in one go.
fn prepare(device: &mut Cuda, body: &ProgramBody<'_>) -> Result<()> {
    let mut calls = Vec::new();
    match body {
        ProgramBody::Whole(owner) => missing(device, owner.program(), &mut calls),
        ProgramBody::Flow(flow) => missing_in(device, flow, &mut calls),
    }
    device.prepare(&calls)
}

fn missing_in(device: &Cuda, flow: &Flow, calls: &mut Vec<Call>) {
    match flow {
        Flow::Call(body) => missing(device, body, calls),
        Flow::Switch(branches) => branches.iter().for_each(|b| missing(device, b, calls)),
        Flow::Loop(l) => missing(device, &l.body, calls),
    }
}

fn missing(device: &Cuda, program: &Program, calls: &mut Vec<Call>) {
    for step in &program.steps {
        if let Some(flow) = &step.flow {
            missing_in(device, flow, calls);
            continue;
        }
        let operands = operands_of(step);
        if !device.compiled.is_planned(&step.op, &operands)
            && let Ok(plan) = plan_of(&*step.op, &operands)
        {
            calls.extend(plan.calls);
        }
    }
}

fn operands_of(step: &Step) -> Operands<'_> {
    Operands {
        x: step.x.iter().map(|o| Input { dtype: o.dtype, layout: &o.layout }).collect(),
        y: step.y.iter().map(|t| (t.dtype, &t.shape)).collect(),
    }
}

/// A run whose steps are being queued.
struct Running<'d, 'l, 'a> {
    device: &'d mut Cuda,
    launch: &'l Launch<'a>,
    /// The tickets that the run depends on.
    given: Roots,
    /// The first ticket of the run.
    first: u64,
    /// Those, and the tickets of its steps.
    roots: Roots,
    is_timed: bool,
    /// The beginning of the step, where steps are timed.
    started: Option<crate::driver::Event>,
    /// True if the step writes a state.
    is_update: bool,
    /// Steps within steps.
    depth: usize,
}

impl Running<'_, '_, '_> {
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
        let (at, bytes) = l.workspace;
        let arena = Extent { at, bytes: p.workspace_bytes().min(bytes) };
        let constants = p.constants_at.map(|at| Extent { at, bytes: p.constant_bytes() });
        let threads = self.device.threads();
        p.walk(self, threads, &Given { x: &x, y: &y, arena, constants }, &mut Shown(p.owner()))
    }

    /// Waits for all steps. Errors (Internal): one failed, whose own error is told in place of this one.
    fn settle_failures(&mut self) -> Result<()> {
        self.device.reach_all()?;
        self.check()
    }

    /// Forgets roots that are known to have passed. Errors (Internal): one failed.
    fn check(&mut self) -> Result<()> {
        let known = self.device.failures.still_unknown(&mut self.roots);
        known.ok_or_else(|| Error::new(ErrorKind::Internal, "a step before it failed"))
    }

    /// Makes room for the words of a step. Errors (Internal): as [`Running::check`].
    fn make_room(&mut self) -> Result<()> {
        self.device.make_room(self.roots.len())?;
        self.check()
    }

    /// Makes a call that writes to the arena. It stands behind a gate where the step writes a state.
    fn call(&mut self, call: Option<Call>) -> Result<()> {
        let Some(call) = call else { return Ok(()) };
        self.make_room()?;
        let gate = self.device.gate_word(&mut self.roots, self.is_update)?;
        self.device.call(&call, gate)
    }

    /// The address of a range of the arena.
    fn address(&self, of: Extent) -> u64 {
        self.device.arena.base() + of.at as u64
    }

    /// The elements of a tensor on the host.
    fn read(&mut self, from: Extent, dtype: DType, shape: &Shape) -> Result<HostTensor> {
        self.settle_failures()?;
        let bytes = self.device.lane.download(&self.device.arena, from.at, from.bytes)?;
        HostTensor::gather(dtype, &Layout::contiguous(shape.clone()), &bytes)
    }

    /// Runs a step on the host.
    fn on_host(&mut self, l: &Launch<'_>) -> Result<()> {
        self.settle_failures()?;
        let started = Instant::now();
        let mut x = Vec::with_capacity(l.x.len());
        for input in &l.x {
            let bytes = self.device.lane.download(&self.device.arena, input.at, input.bytes)?;
            x.push(HostTensor::gather(input.dtype, input.layout, &bytes)?);
        }
        let y = eval_inline(&**l.op, &x)?;
        for (value, output) in y.iter().zip(&l.y) {
            self.device.lane.upload(&self.device.arena, output.at, value.bytes())?;
        }
        let moved: usize = x.iter().chain(&y).map(|t| t.bytes().len()).sum();
        self.device.host_calls.add(l.op.label(), started.elapsed(), moved);
        Ok(())
    }
}

impl Machine for Running<'_, '_, '_> {
    type Span = Extent;

    fn kernel(&mut self, step: &Step, frame: &Frame<'_, Extent>) -> Result<()> {
        let workspace = frame.find(self, Place::Arena(step.workspace.0), step.workspace.1)?;
        let mut launch = Launch {
            op: &step.op,
            stream: StreamId(0),
            x: SmallVec::new(),
            y: SmallVec::new(),
            workspace: (workspace.at, workspace.bytes),
            after: SmallVec::new(),
            site: step.site.unwrap_or(self.launch.site),
        };
        for o in &step.x {
            let Extent { at, bytes } = frame.find(self, o.place, o.bytes)?;
            launch.x.push(Buffer { dtype: o.dtype, layout: &o.layout, at, bytes });
        }
        for t in &step.y {
            let Extent { at, bytes } = frame.find(self, t.place, t.bytes)?;
            launch.y.push(OutBuffer { dtype: t.dtype, shape: &t.shape, at, bytes, donated_from: t.donated_from });
        }
        self.make_room()?;
        let before = Before { roots: self.given.clone(), since: self.first };
        match self.device.queue_launch(&launch, &mut self.roots, self.is_update, before) {
            Err(e) if e.kind() == ErrorKind::Device && self.device.kernels.falls_back() => self.on_host(&launch),
            done => done,
        }
    }

    fn copy(&mut self, from: Extent, to: Extent) -> Result<()> {
        if !self.is_update {
            return self.device.lane.copy(&self.device.arena, from.at, to.at, from.bytes);
        }
        let (from_at, to_at) = (self.address(from), self.address(to));
        self.call(gates::copy(from_at, to_at, from.bytes))
    }

    fn fill_zero(&mut self, to: Extent) -> Result<()> {
        if !self.is_update {
            return self.device.lane.fill(&self.device.arena, to.at, 0, to.bytes);
        }
        let at = self.address(to);
        self.call(gates::zero(at, to.bytes))
    }

    /// A kernel has the number as its argument. A copy would take pinned memory of the host until it is done, for each of a loop's
    /// steps.
    fn write_number(&mut self, to: Extent, number: i64) -> Result<()> {
        let at = self.address(to.part(0, NUMBER_BYTES)?);
        self.call(Some(gates::number(at, number)))
    }

    fn read_number(&mut self, from: Extent) -> Result<i64> {
        remat_device::host::number(self.read(from, DType::U8, &[from.bytes].into())?.bytes())
    }

    fn begin(&mut self, step: &Step, program: &Program) {
        if self.depth == 0 {
            self.is_update = step.updates_state(program);
        }
        self.depth += 1;
    }

    fn end(&mut self) {
        self.depth -= 1;
    }
}

/// Times the steps of a first run, and shows values to the owner's observer, if there is one. The run waits for each value.
struct Shown<'o>(Option<&'o dyn ProgramOwner>);

impl<'d, 'l, 'a> Watch<Running<'d, 'l, 'a>> for Shown<'_> {
    fn before(&mut self, m: &mut Running<'d, 'l, 'a>, _i: usize) -> Result<()> {
        if m.is_timed {
            m.started = Some(m.device.queue.mark(m.device.lane.stream())?);
        }
        Ok(())
    }

    fn after(&mut self, m: &mut Running<'d, 'l, 'a>, i: usize, frame: &Frame<'_, Extent>) -> Result<()> {
        let Some(owner) = self.0 else { return Ok(()) };
        let mut ns = 0;
        if let Some(begin) = m.started.take() {
            let end = m.device.queue.mark(m.device.lane.stream())?;
            end.synchronize()?;
            ns = begin.nanoseconds_to(&end)?;
            owner.times().record(i, ns);
            m.device.queue.recycle(begin);
            m.device.queue.recycle(end);
        }
        if !owner.is_observed() {
            return Ok(());
        }
        let step = &frame.program.steps[i];
        for (j, t) in step.y.iter().enumerate() {
            let at = frame.find(m, t.place, t.bytes)?;
            let value = m.read(at, t.dtype, &t.shape)?;
            let view = ValueView { dtype: t.dtype, shape: &t.shape, bytes: value.bytes() };
            owner.show(step, j, view, ns).map_err(|e| step.located(e))?;
        }
        Ok(())
    }
}
