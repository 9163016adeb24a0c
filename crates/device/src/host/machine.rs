//! The host's way to run a program: places become ranges of host memory, and each step has run before the walk goes on.

use remat_kernels::pool::Pool;
use remat_ops::EvalCx;
use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::comm_thread::CommThread;
use super::operands::{Input, Operands, Output, Range, call_kernel};
use crate::kernels::KernelSet;
use crate::program::{Flow, Frame, Given, Machine, OutputSlot, Place, Program, Span, Step, ValueView};

/// Operands of a run up to this number cost no allocation: the gradient of a loop has many.
const BOUND: usize = 64;

/// The ranges that a run is given: inputs and states, outputs and next versions of states.
#[derive(Debug, Default)]
pub struct Bindings {
    /// Inputs and states.
    pub x: SmallVec<[Range; BOUND]>,
    /// Outputs and next versions of states.
    pub y: SmallVec<[Range; BOUND]>,
}

impl Bindings {
    /// Binds the operands of an op. Errors: those of [`remat_ops::In::element_bytes`].
    pub fn bind(&mut self, cx: &mut EvalCx<'_>) -> Result<()> {
        self.x.clear();
        for x in cx.x {
            self.x.push(Range::shared(x.element_bytes()?));
        }
        self.y.clear();
        self.y.extend(cx.y.iter_mut().map(|y| Range::exclusive(y.bytes_mut())));
        Ok(())
    }

    /// The memory of a run of `program`.
    pub fn frame<'m>(&'m self, program: &'m Program, arena: Range) -> Frame<'m, Range> {
        Frame { program, x: &self.x, y: &self.y, arena, constants: None }
    }
}

impl Program {
    /// Errors (Value) unless `threads` is the number that the program was made for.
    pub fn check_threads(&self, threads: usize) -> Result<()> {
        if threads == self.threads {
            return Ok(());
        }
        let text = format!("compiled for {} threads, run with {threads}", self.threads);
        Err(Error::new(ErrorKind::Value, text))
    }
}

impl Flow {
    /// Runs it as an op of its own, with the host's kernels that `kernels` has. Errors: those of the kernels.
    pub fn eval(&self, cx: &mut EvalCx<'_>, kernels: &dyn KernelSet) -> Result<()> {
        let mut given = Bindings::default();
        given.bind(cx)?;
        let arena = Range::exclusive(cx.workspace);
        // SAFETY: the ranges are those of the operands and the workspace, which are borrowed for this call.
        let mut machine = unsafe { HostMachine::new(kernels, cx.pool, None) };
        self.run(&mut machine, &Given { x: &given.x, y: &given.y, arena, constants: None })
    }
}

/// See the module's note.
#[derive(Clone, Copy)]
pub struct HostMachine<'p> {
    kernels: &'p dyn KernelSet,
    pool: &'p Pool,
    comm: Option<&'p CommThread>,
}

impl<'p> HostMachine<'p> {
    /// A machine that runs the host's kernels of `kernels` on `pool`. Collectives run on `comm` beside the other steps;
    /// without it they are steps like the others.
    ///
    /// # Safety
    /// All ranges that the machine is given, by a walk or directly, lie within memory that is alive and that nobody
    /// else uses until the run has ended. With a thread of collectives that holds until [`Machine::settle`] has
    /// returned too.
    pub unsafe fn new(kernels: &'p dyn KernelSet, pool: &'p Pool, comm: Option<&'p CommThread>) -> Self {
        HostMachine { kernels, pool, comm }
    }

    /// Waits for collectives that these bytes must wait for. Errors: they failed.
    fn before(&self, range: Range, is_written: bool) -> Result<()> {
        self.comm.map_or(Ok(()), |comm| comm.before(range, is_written))
    }
}

impl Machine for HostMachine<'_> {
    type Span = Range;

    fn constant(&mut self, program: &Program, k: usize) -> Result<Range> {
        let none = || Error::new(ErrorKind::Internal, format!("constant {k} of {}", program.constants.len()));
        program.constants.get(k).map(|c| Range::shared(c.bytes())).ok_or_else(none)
    }

    fn kernel(&mut self, step: &Step, frame: &Frame<'_, Range>) -> Result<()> {
        let operands = StepOperands { step, frame, machine: *self };
        if let Some(comm) = self.comm {
            if step.op.ranks().is_some_and(|ranks| ranks.size() > 1) {
                // SAFETY: as below. The run's memory outlives the collective, since a run ends with `settle`. Every
                // access of later steps calls `before` first.
                return unsafe { comm.start(&step.op, step.site, &operands) };
            }
            if step.updates_state(frame.program) {
                // a state is about to be written, so every failure must be known before
                comm.take_failure().map_or(Ok(()), Err)?;
            }
            comm.before_kernel(&operands)?;
        }
        // SAFETY: places that a frame finds lie within memory that is alive for the whole run and that only the run
        // uses. Outputs and workspace of a step overlap no other operand of it (`Step::check`). Steps run one after the
        // other; collectives on their own thread were waited for by `before`.
        unsafe { call_kernel(self.kernels, &*step.op, &operands, self.pool) }
    }

    fn copy(&mut self, from: Range, to: Range) -> Result<()> {
        if from.size_bytes() != to.size_bytes() {
            return Err(Error::new(ErrorKind::Internal, "a copy between ranges of two sizes"));
        }
        self.before(from, false)?;
        self.before(to, true)?;
        // SAFETY: both are alive, as in `kernel`; nothing else runs on them, and they may overlap.
        unsafe { std::ptr::copy(from.first(), to.first(), to.size_bytes()) };
        Ok(())
    }

    fn fill_zero(&mut self, to: Range) -> Result<()> {
        self.before(to, true)?;
        // SAFETY: alive, as in `kernel`; nothing else runs on it.
        unsafe { to.bytes_mut() }.fill(0);
        Ok(())
    }

    fn write_number(&mut self, to: Range, number: i64) -> Result<()> {
        self.before(to, true)?;
        // SAFETY: as in `fill_zero`.
        let to = unsafe { to.bytes_mut() };
        to.try_into().map(|to: &mut [u8; 8]| *to = number.to_ne_bytes()).map_err(|_| no_number(to.len()))
    }

    fn read_number(&mut self, from: Range) -> Result<i64> {
        self.before(from, false)?;
        // SAFETY: alive, as in `kernel`; nothing else writes it.
        number(unsafe { from.bytes() })
    }

    fn settle(&mut self) {
        self.comm.iter().for_each(|comm| comm.wait_all());
    }
}

/// A number that a program reads: an integer of eight bytes, or a bool of one. Errors (Internal): another size.
pub fn number(bytes: &[u8]) -> Result<i64> {
    match *bytes {
        [flag] => Ok(i64::from(flag)),
        _ => bytes.try_into().map(i64::from_ne_bytes).map_err(|_| no_number(bytes.len())),
    }
}

fn no_number(bytes: usize) -> Error {
    Error::new(ErrorKind::Internal, format!("a number of {bytes} bytes"))
}

/// The operands of a step's kernel.
struct StepOperands<'s> {
    step: &'s Step,
    frame: &'s Frame<'s, Range>,
    machine: HostMachine<'s>,
}

impl StepOperands<'_> {
    #[inline]
    fn find(&self, place: Place, bytes: usize) -> Result<Range> {
        self.frame.find(&mut { self.machine }, place, bytes)
    }
}

impl<'s> Operands<'s> for StepOperands<'s> {
    fn counts(&self) -> (usize, usize) {
        (self.step.x.len(), self.step.y.len())
    }

    fn input(&self, i: usize) -> Result<Input<'s>> {
        let o = &self.step.x[i];
        let is_donated = self.step.y.iter().any(|t| t.donated_from == Some(i));
        let range = if is_donated { None } else { Some(self.find(o.place, o.bytes)?) };
        Ok((o.dtype, &o.layout, range))
    }

    fn output(&self, j: usize) -> Result<Output<'s>> {
        let t = &self.step.y[j];
        Ok((t.dtype, &t.shape, self.find(t.place, t.bytes)?, t.donated_from))
    }

    fn workspace(&self) -> Result<Range> {
        self.find(Place::Arena(self.step.workspace.0), self.step.workspace.1)
    }
}

impl Frame<'_, Range> {
    /// The value of an output after its step.
    pub fn view<'v>(&'v self, machine: HostMachine<'_>, t: &'v OutputSlot) -> Result<ValueView<'v>> {
        let range = self.find(&mut { machine }, t.place, t.bytes)?;
        machine.before(range, false)?;
        // SAFETY: the range lies within memory that is alive for this run; nothing writes it while the view is shown,
        // since the thread that runs the steps shows it between two of them.
        Ok(ValueView { dtype: t.dtype, shape: &t.shape, bytes: unsafe { range.bytes() } })
    }
}
