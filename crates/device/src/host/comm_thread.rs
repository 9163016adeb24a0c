//! A thread that runs collectives beside the kernels of a device.
//!
//! It runs them in the order in which they were started; that is the order of the program, the same on every rank.
//! Whoever reads or writes memory first calls [`CommThread::before`], which waits for collectives that write these
//! bytes, or that read bytes about to be written. So the thread changes only times: no value depends on when a
//! collective ends.
//!
//! If a collective fails, the thread remembers where its outputs lie until something else is written there. Whoever
//! reads these bytes gets the collective's error.

use std::cell::RefCell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use remat_kernels::pool::Pool;
use remat_ops::OpRef;
use remat_types::{CallSite, DType, Error, ErrorKind, Layout, Result, Shape, SmallVec};

use crate::in_flight::{Bytes, InFlight, Uses};

use super::operands::{Input, Operands, Output, Range, contained, with_operands};

/// The time of the collectives that a device ran beside its kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Communication {
    /// Nanoseconds in which they ran, waits for other ranks included.
    pub busy_ns: u64,
    /// Nanoseconds of that in which the device waited for them.
    pub exposed_ns: u64,
}

/// A collective's run on its device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommSpan {
    /// The op.
    pub label: &'static str,
    /// Its start.
    pub start_ns: u64,
    /// Its length.
    pub duration_ns: u64,
    /// Bytes of its outputs.
    pub bytes: usize,
}

/// See the module's note. One thread uses it, the device's.
pub struct CommThread {
    /// `None` once the thread is to end.
    calls: Option<Sender<Call>>,
    done: Receiver<Done>,
    opened: Instant,
    state: RefCell<State>,
    thread: Option<JoinHandle<()>>,
}

/// As [`Input`] and [`Output`], but owned: they outlive the step that gave them.
type OwnInput = (DType, Layout, Option<Range>);
type OwnOutput = (DType, Shape, Range, Option<usize>);

/// A collective with its operands.
struct Call {
    op: OpRef,
    site: Option<CallSite>,
    x: SmallVec<[OwnInput; 2]>,
    y: SmallVec<[OwnOutput; 1]>,
    workspace: Range,
}

struct Done {
    result: Result<()>,
    span: CommSpan,
}

/// Addresses of a collective's outputs.
type Outputs = SmallVec<[Bytes; 1]>;

#[derive(Default)]
struct State {
    /// Collectives under way.
    in_flight: InFlight<Outputs>,
    /// Outputs of collectives that failed, each with the error.
    failed: Vec<(Bytes, Error)>,
    /// The first failure that no call has reported.
    untold: Option<Error>,
    figures: Communication,
    /// Recorded for a trace.
    spans: Option<Vec<CommSpan>>,
}

fn overlap(a: Bytes, b: Bytes) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl CommThread {
    /// Starts the thread. Errors (Io): the system gives no thread.
    pub fn new(opened: Instant) -> Result<CommThread> {
        let (calls, jobs) = channel::<Call>();
        let (to, done) = channel();
        let work = move || {
            // collectives add on this thread alone, so a pool of one does
            let pool = Pool::new(1);
            for call in jobs {
                if to.send(call.run(&pool, opened)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("remat-comm".into()).spawn(work);
        let thread = thread.map_err(|e| Error::from(e).context("cannot start the thread of collectives"))?;
        Ok(CommThread { calls: Some(calls), done, opened, state: RefCell::default(), thread: Some(thread) })
    }

    /// Starts a collective that the user's program asked for at `site`. Errors: those of a collective that was to write
    /// its inputs; the other ranks have then been told.
    ///
    /// # Safety
    /// The memory of all operands is alive until the collective was waited for. Outputs and workspace overlap no other
    /// operand. Whoever else reads or writes any of them calls [`CommThread::before`] first.
    pub unsafe fn start<'o>(&self, op: &OpRef, site: Option<CallSite>, o: &impl Operands<'o>) -> Result<()> {
        self.send(op, site, o).inspect_err(|e| {
            self.wait_all();
            op.abandon(e);
        })
    }

    fn send<'o>(&self, op: &OpRef, site: Option<CallSite>, o: &impl Operands<'o>) -> Result<()> {
        let (inputs, outputs) = o.counts();
        let workspace = o.workspace()?;
        let mut call = Call { op: op.clone(), site, x: SmallVec::new(), y: SmallVec::new(), workspace };
        let (mut made, mut uses) = (Outputs::new(), Uses::of_range(workspace.addresses(), true));
        for j in 0..outputs {
            let (dtype, shape, range, holds) = o.output(j)?;
            made.push(range.addresses());
            call.y.push((dtype, shape.clone(), range, holds));
        }
        for i in 0..inputs {
            let (dtype, layout, range) = o.input(i)?;
            // an input whose storage an output took is read in the output
            let taken = || call.y.iter().find(|y| y.3 == Some(i)).map(|y| y.2);
            if let Some(read) = range.or_else(taken) {
                self.before(read, false)?;
            }
            uses.reads.extend(range.map(Range::addresses));
            call.x.push((dtype, layout.clone(), range));
        }
        let ended = || Error::new(ErrorKind::Internal, "the thread of collectives has ended");
        // no wait for its outputs: collectives run in order, so earlier ones are done with these bytes by then
        self.calls.as_ref().and_then(|calls| calls.send(call).ok()).ok_or_else(ended)?;
        uses.writes.extend(made.iter().copied());
        self.state.borrow_mut().in_flight.push(made, uses);
        Ok(())
    }

    /// Waits for collectives that write operands of a kernel, or read its outputs. Errors: those of a collective that
    /// was to write an input.
    pub fn before_kernel<'o>(&self, o: &impl Operands<'o>) -> Result<()> {
        if self.is_idle() {
            return Ok(());
        }
        let (inputs, outputs) = o.counts();
        for i in 0..inputs {
            if let Some(range) = o.input(i)?.2 {
                self.before(range, false)?;
            }
        }
        for j in 0..outputs {
            let (.., range, holds) = o.output(j)?;
            if holds.is_some() {
                self.before(range, false)?;
            }
            self.before(range, true)?;
        }
        self.before(o.workspace()?, true)
    }

    /// Waits for collectives that write these bytes and, if the bytes are to be written, for those that read them.
    /// Errors: those of a collective that was to write bytes that are to be read.
    pub fn before(&self, range: Range, is_written: bool) -> Result<()> {
        if self.is_idle() {
            return Ok(());
        }
        let bytes = range.addresses();
        let last = self.state.borrow().in_flight.before(&Uses::of_range(bytes, is_written)).next_back().map(|f| f.0);
        if let Some(last) = last {
            self.wait(last + 1);
        }
        let state = &mut *self.state.borrow_mut();
        if is_written {
            state.failed.retain(|f| !overlap(f.0, bytes));
            return Ok(());
        }
        match state.failed.iter().find(|f| overlap(f.0, bytes)) {
            None => Ok(()),
            Some((_, e)) => {
                state.untold = None;
                Err(e.clone())
            }
        }
    }

    /// True if no collective is under way, and no output of a failed one could still be read.
    fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.in_flight.is_empty() && state.failed.is_empty()
    }

    /// Waits for all collectives, and leaves failures for later calls to report.
    pub fn wait_all(&self) {
        let n = self.state.borrow().in_flight.len();
        self.wait(n);
    }

    /// Waits for all collectives. Returns the first failure that no call has reported.
    pub fn take_failure(&self) -> Option<Error> {
        self.wait_all();
        self.state.borrow_mut().untold.take()
    }

    /// Makes `failure` the first one that no call has reported: it came before those that calls have reported since.
    pub fn put_back(&self, failure: Option<Error>) {
        let state = &mut *self.state.borrow_mut();
        state.untold = failure.or_else(|| state.untold.take());
    }

    /// Waits for the first `n` collectives under way.
    fn wait(&self, n: usize) {
        if n == 0 {
            return;
        }
        let start_ns = self.opened.elapsed().as_nanos() as u64;
        for _ in 0..n {
            let state = &mut *self.state.borrow_mut();
            let Some((made, uses)) = state.in_flight.pop() else { break };
            let done = self.done.recv();
            state.end(&made, &uses, done.unwrap_or_else(|_| Done::lost()), start_ns);
        }
    }

    /// Notes that bytes were moved, so that the bytes of failed outputs are known at their new place.
    pub fn moved(&self, from: Range, to: Range) {
        let ((from, end), to) = (from.addresses(), to.addresses());
        let state = &mut *self.state.borrow_mut();
        let (here, mut others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.failed).into_iter().partition(|f| overlap(f.0, (from, end)));
        others.retain(|f| !overlap(f.0, to));
        let there = |a: usize| to.0 + a.clamp(from, end) - from;
        others.extend(here.into_iter().map(|(b, e)| ((there(b.0), there(b.1)), e)));
        state.failed = others;
    }

    /// The time that collectives took until now.
    pub fn figures(&self) -> Communication {
        self.state.borrow().figures
    }

    /// Records the collectives that run from now on, unless it already does.
    pub fn record(&self) {
        self.state.borrow_mut().spans.get_or_insert_default();
    }

    /// Waits for all collectives, ends the recording, and returns it.
    pub fn take_record(&self) -> Vec<CommSpan> {
        self.wait_all();
        self.state.borrow_mut().spans.take().unwrap_or_default()
    }
}

impl State {
    /// Notes the end of a collective. The device has waited for it since `waits_since_ns`.
    fn end(&mut self, made: &Outputs, uses: &Uses, done: Done, waits_since_ns: u64) {
        let CommSpan { start_ns, duration_ns, .. } = done.span;
        self.figures.busy_ns += duration_ns;
        self.figures.exposed_ns += (start_ns + duration_ns).saturating_sub(start_ns.max(waits_since_ns));
        self.spans.iter_mut().for_each(|spans| spans.push(done.span));
        self.failed.retain(|f| !uses.writes.iter().any(|b| overlap(*b, f.0)));
        if let Err(e) = done.result {
            self.failed.extend(made.iter().map(|y| (*y, e.clone())));
            self.untold.get_or_insert(e);
        }
    }
}

impl Done {
    fn lost() -> Done {
        let result = Err(Error::new(ErrorKind::Internal, "the thread of collectives has ended"));
        Done { result, span: CommSpan { label: "", start_ns: 0, duration_ns: 0, bytes: 0 } }
    }
}

impl Call {
    fn run(self, pool: &Pool, opened: Instant) -> Done {
        let start_ns = opened.elapsed().as_nanos() as u64;
        let label = self.op.label();
        let result = contained(label, || {
            // SAFETY: by the promise of `CommThread::start`; the collectives started before this one have ended.
            unsafe { with_operands(&CallOperands(&self), pool, |cx| self.op.eval(cx)) }
        });
        let result = match self.site {
            Some(site) => result.map_err(|e| e.with_call_site(site)),
            None => result,
        };
        let duration_ns = (opened.elapsed().as_nanos() as u64).saturating_sub(start_ns);
        let bytes = self.y.iter().map(|y| y.0.size_bytes() * y.1.elems()).sum();
        Done { result, span: CommSpan { label, start_ns, duration_ns, bytes } }
    }
}

/// The operands of a collective.
struct CallOperands<'c>(&'c Call);

impl<'c> Operands<'c> for CallOperands<'c> {
    fn counts(&self) -> (usize, usize) {
        (self.0.x.len(), self.0.y.len())
    }

    fn input(&self, i: usize) -> Result<Input<'c>> {
        let (dtype, layout, range) = &self.0.x[i];
        Ok((*dtype, layout, *range))
    }

    fn output(&self, j: usize) -> Result<Output<'c>> {
        let (dtype, shape, range, holds) = &self.0.y[j];
        Ok((*dtype, shape, *range, *holds))
    }

    fn workspace(&self) -> Result<Range> {
        Ok(self.0.workspace)
    }
}

impl Drop for CommThread {
    fn drop(&mut self) {
        // The thread must have ended when this returns: the memory that it reads and writes may be freed after that.
        self.calls = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
