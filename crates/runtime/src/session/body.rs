//! The parts of a session that a run needs, in one value, so that it can move to the session's thread.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use remat_graph::ir::{Origin, ValueId};
use remat_kernels::pool::Pool;
use remat_types::{DType, Error, ErrorKind, Fact, HostTensor, Result};

use super::SessionOptions;
use super::device::OnDevice;
use super::hooks::RunHooks;
use super::memory::{Allocate, Block, Workspace};
use crate::executable::Executable;
use remat_device::Alignment;
use remat_device::host::Range;
use remat_device::host::{Bindings, HostMachine};
use remat_device::program::Span;
use remat_device::program::ValueView;
use remat_device::program::{Place, Step};

/// A function that is called with a value.
pub(super) type Callback = Box<dyn FnMut(ValueView<'_>) + Send>;

/// The value that a callback watches.
#[derive(Clone, Copy)]
enum Watched {
    Output(usize),
    Value(ValueId),
}

/// A callback, with the step after which it is called and the step's output that it is given.
struct Watch {
    watched: Watched,
    step: usize,
    slot: usize,
    f: Callback,
}

pub(super) struct Body {
    pub(super) exe: Arc<Executable>,
    pool: Pool,
    /// Inputs, states and outputs.
    given: Block,
    /// Offset and bytes in `given`. An updated state has no range of its own: it lies in its output.
    x: Vec<(usize, usize)>,
    y: Vec<(usize, usize)>,
    bindings: Bindings,
    workspace: Workspace,
    allocate: Option<Allocate>,
    device: Option<OnDevice>,
    /// The number of parts that have run.
    done: usize,
    watches: Vec<Watch>,
    pub(super) hooks: RunHooks,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (given, workspace) = self.bytes();
        write!(f, "{} steps, {given} bytes, {workspace} of workspace", self.exe.program.steps.len())
    }
}

impl Body {
    pub(super) fn new(exe: Arc<Executable>, options: &SessionOptions) -> Result<Body> {
        if options.workspace.is_some() && exe.program.ends.len() > 1 {
            let text = "parts keep values in their workspace, which other sessions cannot share";
            return Err(Error::new(ErrorKind::Value, text));
        }
        let mut bytes = 0;
        let mut place = |f: &Fact| {
            let at = bytes;
            bytes += Alignment::HOST.pad(f.bytes());
            (at, f.bytes())
        };
        let updated = |i: usize| exe.program.updates.iter().any(|u| u.0 == i);
        let x = exe.program.x.iter().enumerate().map(|(i, f)| if updated(i) { (0, 0) } else { place(f) }).collect();
        let y = exe.program.y.iter().map(&mut place).collect();
        let mut given = Block::default();
        given.reserve(bytes, options.allocate.as_ref())?;
        given.slice()?.fill(0);
        let body = Body {
            // a device has threads of its own
            pool: Pool::new(if options.device.is_some() { 1 } else { exe.program.threads }),
            given,
            x,
            y,
            bindings: Bindings::default(),
            workspace: options.workspace.clone().unwrap_or_default(),
            allocate: options.allocate.clone(),
            device: options.device.as_ref().map(|d| OnDevice::new(d, &exe)).transpose()?,
            done: 0,
            watches: Vec::new(),
            hooks: RunHooks::default(),
            exe,
        };
        if options.prefault && body.device.is_none() {
            let mut block = body.workspace.lock();
            block.reserve(body.exe.figures().arena_bytes, body.allocate.as_ref())?;
            block.prefault()?;
        }
        Ok(body)
    }

    pub(super) fn bytes(&self) -> (usize, usize) {
        (self.given.bytes, self.workspace.bytes())
    }

    pub(super) fn release_workspace(&mut self) {
        self.abandon();
        self.workspace.release();
    }

    pub(super) fn x_bytes(&mut self, i: usize) -> Result<&mut [u8]> {
        let (at, n) = self.x[i];
        self.given.slice().map(|all| &mut all[at..at + n])
    }

    fn y_bytes(&mut self, j: usize) -> Result<&mut [u8]> {
        let (at, n) = self.y[j];
        self.given.slice().map(|all| &mut all[at..at + n])
    }

    pub(super) fn state_fact(&self, i: usize) -> &Fact {
        &self.exe.program.x[self.exe.graph().inputs().len() + i]
    }

    pub(super) fn state_bytes(&mut self, i: usize) -> Result<&mut [u8]> {
        let i = self.exe.graph().inputs().len() + i;
        match self.exe.program.updates.iter().find(|u| u.0 == i) {
            Some(&(_, j)) => self.y_bytes(j),
            None => self.x_bytes(i),
        }
    }

    pub(super) fn output(&mut self, j: usize) -> Result<ValueView<'_>> {
        let ((at, n), fact) = (self.y[j], &self.exe.program.y[j]);
        let bytes = &self.given.slice()?[at..at + n];
        Ok(ValueView { dtype: fact.dtype, shape: &fact.shape, bytes })
    }

    pub(super) fn run_all(&mut self) -> Result<()> {
        self.run_into(&mut [])
    }

    pub(super) fn run_into(&mut self, outputs: &mut [Option<&mut [u8]>]) -> Result<()> {
        self.check_outputs(outputs)?;
        self.abandon();
        let all = 0..self.exe.program.steps.len();
        RunHooks::around(self, |b| &mut b.hooks, |b| b.run_steps(all, outputs))
    }

    pub(super) fn run_part(&mut self, k: usize) -> Result<()> {
        let parts = self.exe.program.ends.len();
        if k != self.done || k >= parts {
            let text = format!("part {k} of {parts} was run when part {} was next; begin with part 0 again", self.done);
            let wrong = Error::new(ErrorKind::Value, text);
            if std::mem::take(&mut self.done) > 0 {
                self.hooks.finish(Err(&wrong));
            }
            return Err(wrong);
        }
        let begin = k.checked_sub(1).map_or(0, |before| self.exe.program.ends[before]);
        let steps = begin..self.exe.program.ends[k];
        self.done = 0;
        if k == 0 {
            self.hooks.start();
        }
        RunHooks::part(self, |b| &mut b.hooks, k + 1 == parts, |b| b.run_steps(steps, &mut []))?;
        self.done = (k + 1) % parts;
        Ok(())
    }

    /// Ends a run in parts that did not reach its last part.
    fn abandon(&mut self) {
        if std::mem::take(&mut self.done) > 0 {
            self.hooks.finish(Err(&Error::new(ErrorKind::Value, "the run ended before its last part")));
        }
    }

    fn check_outputs(&self, outputs: &[Option<&mut [u8]>]) -> Result<()> {
        let n = self.exe.graph().outputs().len();
        if outputs.len() > n {
            return Err(Error::new(ErrorKind::Value, format!("memory for {} outputs of {n}", outputs.len())));
        }
        for (j, (given, fact)) in outputs.iter().zip(&self.exe.program.y).enumerate() {
            let Some(given) = given else { continue };
            let (bytes, align) = (fact.bytes(), fact.dtype.size_bytes());
            if given.len() != bytes || bytes > 0 && given.as_ptr().align_offset(align) != 0 {
                let text = format!(
                    "output {j} is {}{} and needs {bytes} bytes aligned to {align}; the memory given for it has {} at {:p}",
                    fact.dtype,
                    fact.shape,
                    given.len(),
                    given.as_ptr()
                );
                return Err(Error::new(ErrorKind::Value, text));
            }
        }
        Ok(())
    }

    fn run_steps(&mut self, steps: std::ops::Range<usize>, outputs: &mut [Option<&mut [u8]>]) -> Result<()> {
        self.check_bools()?;
        if let Some(device) = self.device.clone() {
            return self.run_on_device(&device, outputs);
        }
        let Body { exe, pool, given, x, y, bindings, workspace, allocate, watches, .. } = self;
        let mut block = workspace.lock();
        block.reserve(exe.figures().arena_bytes, allocate.as_ref())?;
        bind(bindings, x, y, Range::exclusive(given.slice()?), outputs)?;
        let frame = bindings.frame(&exe.program, Range::exclusive(block.slice()?));
        // SAFETY: the bound memory is borrowed for this call: inputs, outputs, the given block and the workspace.
        let machine = unsafe { HostMachine::new(&**exe.kernels(), pool, None) };
        exe.run_steps(steps, &frame, machine, &mut |step, cpu, frame| {
            for w in watches.iter_mut().filter(|w| w.step == step) {
                (w.f)(frame.view(cpu, &exe.program.steps[step].y[w.slot])?);
            }
            Ok(())
        })
    }

    /// Runs on the device. All results arrive before any is written, so a run that fails leaves states and outputs as
    /// they were.
    fn run_on_device(&mut self, device: &OnDevice, outputs: &mut [Option<&mut [u8]>]) -> Result<()> {
        let (exe, inputs) = (self.exe.clone(), self.exe.graph().inputs().len());
        let mut x = Vec::with_capacity(exe.program.x.len());
        for (i, fact) in exe.program.x.iter().enumerate() {
            let bytes = if i < inputs { self.x_bytes(i)? } else { self.state_bytes(i - inputs)? };
            x.push(HostTensor::from_bytes(fact.dtype, fact.shape.clone(), bytes)?);
        }
        let y = device.run(&x)?;
        for (j, y) in y.iter().enumerate() {
            match outputs.get_mut(j) {
                Some(Some(own)) => own.copy_from_slice(y.bytes()),
                _ => self.y_bytes(j)?.copy_from_slice(y.bytes()),
            }
        }
        for w in &mut self.watches {
            let shown = match w.watched {
                Watched::Output(j) => y.get(j),
                Watched::Value(_) => None,
            };
            shown.into_iter().for_each(|y| (w.f)(ValueView { dtype: y.dtype(), shape: y.shape(), bytes: y.bytes() }));
        }
        Ok(())
    }

    /// Errors (Value) for an input or state of bools with another byte than 0 or 1: kernels read the bytes as `bool`.
    fn check_bools(&mut self) -> Result<()> {
        for i in 0..self.exe.program.x.len() {
            if self.exe.program.x[i].dtype != DType::Bool {
                continue;
            }
            let inputs = self.exe.graph().inputs().len();
            let (what, k) = if i < inputs { ("input", i) } else { ("state", i - inputs) };
            let bytes = if i < inputs { self.x_bytes(i)? } else { self.state_bytes(k)? };
            if let Some(at) = bytes.iter().position(|b| *b > 1) {
                let text = format!("{what} {k} is of bools, and its byte {at} is {}: give 0 or 1", bytes[at]);
                return Err(Error::new(ErrorKind::Value, text));
            }
        }
        Ok(())
    }

    pub(super) fn watch_output(&mut self, j: usize, f: Callback) -> Result<()> {
        self.watch(Watched::Output(j), f)
    }

    pub(super) fn watch_value(&mut self, v: ValueId, f: Callback) -> Result<()> {
        self.watch(Watched::Value(v), f)
    }

    fn watch(&mut self, watched: Watched, f: Callback) -> Result<()> {
        if self.device.is_some() && matches!(watched, Watched::Value(_)) {
            let text = "a session on a device shows outputs alone: make the value an output";
            return Err(Error::new(ErrorKind::Value, text));
        }
        let (step, slot) = made(&self.exe, watched)?;
        self.watches.push(Watch { watched, step, slot, f });
        Ok(())
    }

    /// Runs `exe` from now on: another plan for the same graph.
    pub(super) fn replan(&mut self, exe: Arc<Executable>) -> Result<()> {
        let no = |text: &str| Err(Error::new(ErrorKind::Value, format!("a plan for a session {text}")));
        if !Arc::ptr_eq(exe.graph(), self.exe.graph()) {
            return no("is of another graph");
        }
        if exe.program.threads != self.exe.program.threads
            || exe.program.ends.len() > 1
            || self.exe.program.ends.len() > 1
        {
            return no("has other threads, or parts");
        }
        let places = self.watches.iter().map(|w| made(&exe, w.watched)).collect::<Result<Vec<_>>>()?;
        for (w, place) in self.watches.iter_mut().zip(places) {
            (w.step, w.slot) = place;
        }
        self.device.iter_mut().try_for_each(|d| d.replan(&exe))?;
        self.exe = exe;
        Ok(())
    }
}

/// The step that computes the watched value, and the index of its output.
fn made(exe: &Executable, watched: Watched) -> Result<(usize, usize)> {
    match watched {
        // the last step that writes an output makes it whole
        Watched::Output(j) => {
            let writes = |s: &Step| s.y.iter().position(|t| t.place == Place::Output(j));
            let found = exe.program.steps.iter().enumerate().rev().find_map(|(step, s)| Some((step, writes(s)?)));
            found.ok_or_else(|| Error::new(ErrorKind::Internal, format!("no step writes output {j}")))
        }
        // the first step of a node: the others give the same again
        Watched::Value(v) => {
            let made = match exe.graph().values().get(v.index()).map(|v| &v.origin) {
                Some(Origin::Node { node, output }) => {
                    exe.program.steps.iter().position(|s| s.node == Some(*node)).map(|step| (step, *output))
                }
                _ => None,
            };
            let none =
                || Error::new(ErrorKind::Value, "no call gives this value: it is an input, a constant or a view");
            made.ok_or_else(none)
        }
    }
}

/// Fills `bindings` with parts of `given` and the caller's memory. Only the first call allocates.
fn bind(
    bindings: &mut Bindings,
    x: &[(usize, usize)],
    y: &[(usize, usize)],
    given: Range,
    outputs: &mut [Option<&mut [u8]>],
) -> Result<()> {
    bindings.x.clear();
    bindings.y.clear();
    for &(at, bytes) in x {
        bindings.x.push(given.part(at, bytes)?);
    }
    for (j, &(at, bytes)) in y.iter().enumerate() {
        bindings.y.push(match outputs.get_mut(j) {
            Some(Some(own)) => Range::exclusive(own),
            _ => given.part(at, bytes)?,
        });
    }
    Ok(())
}

/// Called when a run has ended and [`Runner::wait`] would no longer block.
pub(super) type Ended = Box<dyn FnOnce() + Send>;

type Job = (Box<Body>, Option<Ended>);

/// The thread of asynchronous runs. Its channels have room for one message each, so that sending allocates nothing.
pub(super) struct Runner {
    to: SyncSender<Job>,
    back: Receiver<(Box<Body>, Result<()>)>,
}

impl Runner {
    pub(super) fn new() -> Result<Self> {
        let (to, jobs) = sync_channel::<Job>(1);
        let (done, back) = sync_channel(1);
        let work = move || {
            while let Ok((mut body, ended)) = jobs.recv() {
                let run = catch_unwind(AssertUnwindSafe(|| body.run_all()));
                let result = run.unwrap_or_else(|payload| {
                    // The payload may panic when it is dropped.
                    std::mem::forget(payload);
                    Err(Error::new(ErrorKind::Internal, "a kernel or callback panicked"))
                });
                if done.send((body, result)).is_err() {
                    return;
                }
                let told = catch_unwind(AssertUnwindSafe(|| ended.into_iter().for_each(|f| f())));
                told.unwrap_or_else(std::mem::forget);
            }
        };
        let thread = std::thread::Builder::new().name("remat-session".into()).spawn(work);
        thread.map_err(|e| Error::new(ErrorKind::Io, format!("no thread for the session: {e}")))?;
        Ok(Runner { to, back })
    }

    pub(super) fn start(&self, body: Box<Body>, ended: Option<Ended>) -> std::result::Result<(), Box<Body>> {
        self.to.send((body, ended)).map_err(|e| e.0.0)
    }

    pub(super) fn wait(&self) -> Option<(Box<Body>, Result<()>)> {
        self.back.recv().ok()
    }
}
