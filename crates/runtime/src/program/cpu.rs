//! The CPU's way to run a program: operands become slices, one call after the other.

mod flow;

use remat_kernels::pool::Pool;
use remat_ops::{EvalCx, In, Out};
use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::ValueView;
use super::{OutputSlot, Place, Program, Step};
use crate::arena::ALIGN_BYTES;

pub(crate) use flow::{chosen, run_branch};

/// Operands of a call up to this number cost no allocation: the gradient of a loop has more than other ops.
const INLINE: usize = 16;

/// First byte and length of a range that is exclusively the run's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range(*mut u8, usize);

// SAFETY: the pointer is only followed within the run that stored it; between runs it is a number.
unsafe impl Send for Range {}

impl Range {
    /// No bytes, where every type may lie: kernels look at slices of elements, and a slice of none has an address too.
    const EMPTY: Range = Range(std::ptr::without_provenance_mut(ALIGN_BYTES), 0);

    pub(crate) fn exclusive(bytes: &mut [u8]) -> Range {
        Range(bytes.as_mut_ptr(), bytes.len())
    }

    /// A part of it. Errors (Internal) beyond its end.
    pub(crate) fn part(self, at: usize, bytes: usize) -> Result<Range> {
        if at.checked_add(bytes).is_none_or(|end| end > self.1) {
            let text = format!("bytes {at}..+{bytes} of a range of {}", self.1);
            return Err(Error::new(ErrorKind::Internal, text));
        }
        // SAFETY: `at` is at most the range's length.
        Ok(Range(unsafe { self.0.add(at) }, bytes))
    }

    /// The part from the first multiple of `bytes` on. Errors (Internal) if it has none.
    pub(crate) fn aligned(self, bytes: usize) -> Result<Range> {
        let skip = self.0.align_offset(bytes);
        self.part(skip.min(self.1), self.1.saturating_sub(skip))
    }

    /// Its first byte.
    pub(crate) fn first(self) -> *mut u8 {
        self.0
    }

    /// A range that is only read.
    pub(crate) fn shared(bytes: &[u8]) -> Range {
        Range(bytes.as_ptr().cast_mut(), bytes.len())
    }
}

/// Operands of a run up to this number cost no allocation: the gradient of a loop has many.
const BOUND: usize = 64;

/// First bytes and lengths of what a run is given: inputs and states, and outputs with the next versions of states.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) x: SmallVec<[Range; BOUND]>,
    pub(crate) y: SmallVec<[Range; BOUND]>,
}

impl Bindings {
    /// Binds the operands of an op. Errors: those of [`In::element_bytes`].
    pub(crate) fn bind(&mut self, cx: &mut EvalCx<'_>) -> Result<()> {
        self.x.clear();
        for x in cx.x {
            self.x.push(Range::shared(x.element_bytes()?));
        }
        self.y.clear();
        self.y.extend(cx.y.iter_mut().map(|y| Range::exclusive(y.bytes_mut())));
        Ok(())
    }
}

impl Program {
    /// Errors (Value) for another number of threads than it was made for.
    pub(crate) fn check_threads(&self, pool: &Pool) -> Result<()> {
        if pool.threads() == self.threads {
            return Ok(());
        }
        let text = format!("compiled for {} threads, run with {}", self.threads, pool.threads());
        Err(Error::new(ErrorKind::Value, text))
    }

    /// Runs it within a step of another one, on the operands and in the workspace of that. Errors: those of its steps;
    /// Internal for a program with states or copies, which runs alone.
    pub(crate) fn run(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        self.check_threads(cx.pool)?;
        if !self.updates.is_empty() || self.copies.is_some() {
            return Err(Error::new(ErrorKind::Internal, "a program within a program has states or copies"));
        }
        let mut given = Bindings::default();
        given.bind(cx)?;
        let memory = Memory::new(self, &given, Range::exclusive(cx.workspace));
        self.steps.iter().try_for_each(|s| memory.call(s, cx.pool).map_err(|e| s.located(e)))
    }
}

impl Step {
    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        match &self.flow {
            None => self.op.eval(cx),
            Some(flow) => flow.run(cx),
        }
    }
}

/// The memory of a run by address; every place of a step lies within, as `Step::check` has seen.
pub(crate) struct Memory<'m> {
    pub(crate) program: &'m Program,
    pub(crate) x: &'m [Range],
    pub(crate) y: &'m [Range],
    pub(crate) arena: Range,
}

impl<'m> Memory<'m> {
    pub(crate) fn new(program: &'m Program, given: &'m Bindings, arena: Range) -> Self {
        Memory { program, x: &given.x, y: &given.y, arena }
    }

    /// Makes the call of a step.
    pub(crate) fn call(&self, step: &Step, pool: &Pool) -> Result<()> {
        let mut ins: SmallVec<[In<'_>; INLINE]> = SmallVec::new();
        for (i, o) in step.x.iter().enumerate() {
            if step.y.iter().any(|t| t.donated_from == Some(i)) {
                ins.push(In::donated(o.dtype, &o.layout));
                continue;
            }
            let Range(at, bytes) = self.address(o.place, o.bytes)?;
            // SAFETY: `address` gives a range within memory that is alive for this run; nothing writes it during this
            // call, for outputs and workspace of a step overlap no operand (`Step::check`).
            ins.push(In::new(o.dtype, &o.layout, unsafe { std::slice::from_raw_parts(at, bytes) }));
        }
        let Range(at, bytes) = self.address(Place::Arena(step.workspace.0), step.workspace.1)?;
        // SAFETY: as above, and nothing else overlaps it.
        let workspace = unsafe { std::slice::from_raw_parts_mut(at, bytes) };
        match step.y.len() {
            1 => step.eval(&mut EvalCx { x: &ins, y: &mut self.outs::<1>(step)?, workspace, pool }),
            2 => step.eval(&mut EvalCx { x: &ins, y: &mut self.outs::<2>(step)?, workspace, pool }),
            3 => step.eval(&mut EvalCx { x: &ins, y: &mut self.outs::<3>(step)?, workspace, pool }),
            4 => step.eval(&mut EvalCx { x: &ins, y: &mut self.outs::<4>(step)?, workspace, pool }),
            5 => step.eval(&mut EvalCx { x: &ins, y: &mut self.outs::<5>(step)?, workspace, pool }),
            6 => step.eval(&mut EvalCx { x: &ins, y: &mut self.outs::<6>(step)?, workspace, pool }),
            7 => step.eval(&mut EvalCx { x: &ins, y: &mut self.outs::<7>(step)?, workspace, pool }),
            8 => step.eval(&mut EvalCx { x: &ins, y: &mut self.outs::<8>(step)?, workspace, pool }),
            n => {
                let mut y = (0..n).map(|j| self.out(step, j)).collect::<Result<Vec<_>>>()?;
                step.eval(&mut EvalCx { x: &ins, y: &mut y, workspace, pool })
            }
        }
    }

    fn out<'s: 'm>(&self, step: &'s Step, j: usize) -> Result<Out<'m>> {
        let t = &step.y[j];
        let Range(at, bytes) = self.address(t.place, t.bytes)?;
        // SAFETY: the range lies within memory that is alive for this run, and is exclusive during the call since no
        // other operand, output or workspace of the step overlaps it (`Step::check`); `call` takes each once.
        Ok(Out::new(t.dtype, &t.shape, unsafe { std::slice::from_raw_parts_mut(at, bytes) }, t.donated_from))
    }

    /// The outputs of a step that has `N`, without an allocation.
    fn outs<'s: 'm, const N: usize>(&self, step: &'s Step) -> Result<[Out<'m>; N]> {
        let mut failed = None;
        let all = std::array::from_fn(|j| {
            self.out(step, j).map_err(|e| failed = Some(e)).unwrap_or_else(|()| {
                let t = &step.y[j];
                Out::new(t.dtype, &t.shape, &mut [], t.donated_from)
            })
        });
        failed.map_or(Ok(all), Err)
    }

    /// What an output holds after its step.
    pub(crate) fn view<'v>(&'v self, t: &'v OutputSlot) -> Result<ValueView<'v>> {
        let Range(at, bytes) = self.address(t.place, t.bytes)?;
        // SAFETY: the range lies within memory that is alive for this run; nothing writes it while the view is shown,
        // which is between two steps, on the thread that runs them.
        let bytes = unsafe { std::slice::from_raw_parts(at, bytes) };
        Ok(ValueView { dtype: t.dtype, shape: &t.shape, bytes })
    }

    /// The first byte of a place, which holds `bytes`. Errors (Internal) if it does not.
    fn address(&self, place: Place, bytes: usize) -> Result<Range> {
        if bytes == 0 {
            return Ok(Range::EMPTY);
        }
        let no = || Error::new(ErrorKind::Internal, format!("{place:?} has not {bytes} bytes"));
        let (at, len) = match place {
            Place::Input(i) => {
                let Range(at, len) = *self.x.get(i).ok_or_else(no)?;
                (at, len)
            }
            Place::Output(j) => {
                let Range(at, len) = *self.y.get(j).ok_or_else(no)?;
                (at, len)
            }
            Place::Constant(k) => {
                let all = self.program.constants.get(k).ok_or_else(no)?.bytes();
                (all.as_ptr().cast_mut(), all.len())
            }
            Place::Arena(at) => {
                let len = self.arena.1.checked_sub(at).ok_or_else(no)?;
                let Range(at, len) = self.arena.part(at, len)?;
                (at, len)
            }
        };
        if len < bytes { Err(no()) } else { Ok(Range(at, bytes)) }
    }
}
