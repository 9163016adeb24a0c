//! How a program runs, on any device: its steps in order, the programs within them, the copies that loops make.
//!
//! A walk knows places and no memory. It sees a device as a [`Machine`]: the device finds places in its memory, as
//! ranges of a type of its own, and calls kernels and copies there. The host's machine has run a call when it returns
//! (`host/machine.rs`). An accelerator's machine may only have queued it, and waits where the walk reads a number.

mod flow;

use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::{Operand, Place, Program, Step};

/// Operands of a step up to this number cost no allocation.
const INLINE: usize = 16;

/// A range of a device's memory.
pub trait Span: Copy {
    /// An empty range, aligned for every type.
    const EMPTY: Self;

    /// Its length in bytes.
    fn size_bytes(self) -> usize;

    /// A part of it. Errors (Internal) beyond its end.
    fn part(self, at: usize, bytes: usize) -> Result<Self>;
}

/// Runs the steps of programs on a device. All ranges that a walk passes to it lie within those that the walk was
/// given. A range that a call writes overlaps no other range of the call.
pub trait Machine {
    /// A range of its memory.
    type Span: Span;

    /// The range of a constant on the host. A walk asks for it only in a run that is given no block of constants.
    /// Default: an error.
    fn constant(&mut self, _program: &Program, k: usize) -> Result<Self::Span> {
        Err(Error::new(ErrorKind::Internal, format!("constant {k} is not in the device's memory")))
    }

    /// Calls the kernel of a step.
    fn kernel(&mut self, step: &Step, frame: &Frame<'_, Self::Span>) -> Result<()>;

    /// Copies bytes; both ranges are of one size.
    fn copy(&mut self, from: Self::Span, to: Self::Span) -> Result<()>;

    /// Makes bytes zero.
    fn fill_zero(&mut self, to: Self::Span) -> Result<()>;

    /// Writes an integer of 8 bytes.
    fn write_number(&mut self, to: Self::Span, number: i64) -> Result<()>;

    /// Reads an integer of 8 bytes, or a bool of one. Errors (Internal): another size.
    fn read_number(&mut self, from: Self::Span) -> Result<i64>;

    /// Waits for work that runs beside the steps, and leaves failures for later calls to report.
    fn settle(&mut self) {}

    /// Tells that a step begins: one of the program, or of a program that a step runs.
    fn begin(&mut self, _step: &Step, _program: &Program) {}

    /// Tells that the step that began last ends.
    fn end(&mut self) {}
}

/// An observer of a run's steps.
pub trait Watch<M: Machine> {
    /// Called before step `i`. Errors count as the step's.
    fn before(&mut self, m: &mut M, i: usize) -> Result<()>;

    /// Called after step `i`.
    fn after(&mut self, m: &mut M, i: usize, frame: &Frame<'_, M::Span>) -> Result<()>;
}

impl<M: Machine> Watch<M> for () {
    fn before(&mut self, _m: &mut M, _i: usize) -> Result<()> {
        Ok(())
    }

    fn after(&mut self, _m: &mut M, _i: usize, _frame: &Frame<'_, M::Span>) -> Result<()> {
        Ok(())
    }
}

/// A program and the memory of a run. Every place of its steps lies within that memory, as `Step::check` has seen.
#[derive(Clone, Copy)]
pub struct Frame<'m, S> {
    /// The program.
    pub program: &'m Program,
    /// Inputs and states.
    pub x: &'m [S],
    /// Outputs, and the next versions of states.
    pub y: &'m [S],
    /// The workspace.
    pub arena: S,
    /// The block of constants, where kernels do not read the host's memory.
    pub constants: Option<S>,
}

impl<S: Span> Frame<'_, S> {
    /// The first `bytes` of a place. Errors (Internal) if it has fewer.
    pub fn find<M: Machine<Span = S>>(&self, m: &mut M, place: Place, bytes: usize) -> Result<S> {
        if bytes == 0 {
            return Ok(S::EMPTY);
        }
        let no = || Error::new(ErrorKind::Internal, format!("{place:?} has not {bytes} bytes"));
        let (whole, at) = match place {
            Place::Input(i) => (*self.x.get(i).ok_or_else(no)?, 0),
            Place::Output(j) => (*self.y.get(j).ok_or_else(no)?, 0),
            Place::Constant(k) => match self.constants {
                Some(block) => (block, *self.program.constants.own.get(k).ok_or_else(no)?),
                None => (m.constant(self.program, k)?, 0),
            },
            Place::Arena(at) => (self.arena, at),
        };
        whole.part(at, bytes).map_err(|_| no())
    }

    /// The elements of an operand. Errors (Internal): there are gaps between them, or they lie beyond its place.
    fn elements<M: Machine<Span = S>>(&self, m: &mut M, o: &Operand) -> Result<S> {
        let size = o.dtype.size_bytes();
        let (from, bytes) = (o.layout.offset() * size, o.layout.elems() * size);
        if !o.layout.is_contiguous() {
            let text = format!("{:?} is no run of elements of {} bytes", o.layout, o.bytes);
            return Err(Error::new(ErrorKind::Internal, text));
        }
        self.find(m, o.place, o.bytes)?.part(from, bytes)
    }
}

/// Runs steps of a program in order. Errors: with the op and the line of the step.
pub fn run_steps<M: Machine>(
    m: &mut M,
    frame: &Frame<'_, M::Span>,
    range: std::ops::Range<usize>,
    watch: &mut impl Watch<M>,
) -> Result<()> {
    let end = range.end;
    for i in range {
        if let Err(e) = run_step(m, frame, i, watch) {
            // other ranks wait for the collectives that would have followed: they are told in the same order
            m.settle();
            frame.program.steps[i + 1..end].iter().for_each(|s| s.op.abandon(&e));
            return Err(e);
        }
    }
    Ok(())
}

fn run_step<M: Machine>(m: &mut M, frame: &Frame<'_, M::Span>, i: usize, watch: &mut impl Watch<M>) -> Result<()> {
    let step = &frame.program.steps[i];
    if let Err(e) = watch.before(m, i) {
        let e = step.located(e);
        m.settle();
        step.op.abandon(&e);
        return Err(e);
    }
    m.begin(step, frame.program);
    let done = match &step.flow {
        None => m.kernel(step, frame),
        Some(flow) => run_flow(m, flow, i, frame),
    };
    m.end();
    done.map_err(|e| step.located(e))?;
    watch.after(m, i, frame)
}

/// Makes updated states lie in their outputs. A state is copied there unless `is_held(input, output)` says that it is
/// there already.
pub fn hold_states<M: Machine>(
    m: &mut M,
    frame: &Frame<'_, M::Span>,
    is_held: impl Fn(usize, usize) -> bool,
) -> Result<()> {
    for &(i, j) in &frame.program.updates {
        if !is_held(i, j) {
            let y = frame.y[j];
            let small = |_| Error::new(ErrorKind::Internal, format!("input {i} is smaller than its fact says"));
            m.copy(frame.x[i].part(0, y.size_bytes()).map_err(small)?, y)?;
        }
    }
    Ok(())
}

/// Runs a step's programs in place of a kernel, on the step's operands and in its workspace.
fn run_flow<M: Machine>(m: &mut M, flow: &super::flow::Flow, i: usize, frame: &Frame<'_, M::Span>) -> Result<()> {
    let step = &frame.program.steps[i];
    let mut x: SmallVec<[M::Span; INLINE]> = SmallVec::new();
    for o in &step.x {
        x.push(frame.elements(m, o)?);
    }
    let mut y: SmallVec<[M::Span; INLINE]> = SmallVec::new();
    for t in &step.y {
        y.push(frame.find(m, t.place, t.bytes)?);
    }
    let arena = frame.find(m, Place::Arena(step.workspace.0), step.workspace.1)?;
    let own = |block: M::Span| block.part(frame.program.constants.flows[i], flow.constant_bytes());
    let constants = frame.constants.map(own).transpose()?;
    flow.run(m, &Given { x: &x, y: &y, arena, constants })
}

/// The memory of a program that a step of another program runs.
#[derive(Clone, Copy)]
pub struct Given<'g, S> {
    /// Inputs.
    pub x: &'g [S],
    /// Outputs.
    pub y: &'g [S],
    /// The workspace.
    pub arena: S,
    /// The block of the program's constants, where kernels do not read the host's memory.
    pub constants: Option<S>,
}

impl Program {
    /// Runs it within a step of another one. Errors: those of its steps; Internal for a program with states or copies, which
    /// runs alone.
    fn run_within<M: Machine>(&self, m: &mut M, given: &Given<'_, M::Span>) -> Result<()> {
        if !self.updates.is_empty() || self.copies.is_some() {
            return Err(Error::new(ErrorKind::Internal, "a program within a program has states or copies"));
        }
        let frame = Frame { program: self, x: given.x, y: given.y, arena: given.arena, constants: given.constants };
        run_steps(m, &frame, 0..self.steps.len(), &mut ())
    }
}
