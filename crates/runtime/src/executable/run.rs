//! The run: operands become slices, one call after the other.

use std::sync::atomic::Ordering;
use std::time::Instant;

use remat_kernels::pool::Pool;
use remat_ops::{EvalCx, In, Out};
use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::observe::{Observed, Observer, ValueView};
use super::spill::{Flying, beyond};
use super::{Executable, OutputSlot, Place, Step};
use crate::arena::ALIGN_BYTES;

/// Operands of a call up to this number cost no allocation: the gradient of a loop has more than other ops.
const INLINE: usize = 16;

/// First byte and length of a range that is exclusively the run's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range(*mut u8, usize);

// SAFETY: the pointer is only followed within the run that stored it; between runs it is a number.
unsafe impl Send for Range {}

impl Range {
    /// No bytes, where every type may lie: kernels look at slices of elements, and a slice of none has an address too.
    const EMPTY: Range = Range(std::ptr::without_provenance_mut(ALIGN_BYTES), 0);

    pub(super) fn exclusive(bytes: &mut [u8]) -> Range {
        Range(bytes.as_mut_ptr(), bytes.len())
    }

    /// A part of it. Errors (Internal) beyond its end.
    pub(super) fn part(self, at: usize, bytes: usize) -> Result<Range> {
        if at.checked_add(bytes).is_none_or(|end| end > self.1) {
            let text = format!("bytes {at}..+{bytes} of a range of {}", self.1);
            return Err(Error::new(ErrorKind::Internal, text));
        }
        // SAFETY: `at` is at most the range's length.
        Ok(Range(unsafe { self.0.add(at) }, bytes))
    }

    /// The part from the first multiple of `bytes` on. Errors (Internal) if it has none.
    pub(super) fn aligned(self, bytes: usize) -> Result<Range> {
        let skip = self.0.align_offset(bytes);
        self.part(skip.min(self.1), self.1.saturating_sub(skip))
    }

    /// Its first byte.
    pub(super) fn first(self) -> *mut u8 {
        self.0
    }

    /// A range that is only read.
    pub(super) fn shared(bytes: &[u8]) -> Range {
        Range(bytes.as_ptr().cast_mut(), bytes.len())
    }
}

/// First bytes and lengths of what a run is given: inputs and states, and outputs with the next versions of states.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pub(super) x: Vec<Range>,
    pub(super) y: Vec<Range>,
}

/// The memory of a run by address; every place of a step lies within, as `build` has checked.
pub(super) struct Memory<'m> {
    pub(super) exe: &'m Executable,
    pub(super) given: &'m Ranges,
    pub(super) arena: Range,
}

impl Executable {
    pub(super) fn run(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        self.check_threads(cx.pool)?;
        self.hold_states(cx)?;
        // One list serves all runs; a second run at the same time, on another device, makes its own.
        let mut own = Ranges::default();
        let mut kept = self.ranges.try_lock();
        let given = kept.as_deref_mut().unwrap_or(&mut own);
        given.x.clear();
        for x in cx.x {
            given.x.push(Range::shared(x.element_bytes()?));
        }
        given.y.clear();
        given.y.extend(cx.y.iter_mut().map(|y| Range::exclusive(y.bytes_mut())));
        let memory = Memory { exe: self, given, arena: Range::exclusive(cx.workspace) };
        self.run_steps(0..self.steps.len(), &memory, cx.pool, &mut |_, _| Ok(()))
    }

    pub(super) fn check_threads(&self, pool: &Pool) -> Result<()> {
        if pool.threads() == self.threads {
            return Ok(());
        }
        let text = format!("compiled for {} threads, run with {}", self.threads, pool.threads());
        Err(Error::new(ErrorKind::Value, text))
    }

    /// Runs the steps of `range` in order; after each the observer is shown what it gave, then `after` is called.
    pub(super) fn run_steps(
        &self,
        range: std::ops::Range<usize>,
        memory: &Memory<'_>,
        pool: &Pool,
        after: &mut dyn FnMut(usize, &Memory<'_>) -> Result<()>,
    ) -> Result<()> {
        match &self.spill {
            None => self.run_all(range, memory, pool, after, None),
            Some(spill) => {
                let arena = match beyond(spill.moves.align) {
                    0 => memory.arena,
                    _ => memory.arena.aligned(spill.moves.align)?,
                };
                let memory = Memory { arena, ..*memory };
                spill.fly(memory.arena, |f| self.run_all(range, &memory, pool, after, Some(f)))
            }
        }
    }

    fn run_all(
        &self,
        range: std::ops::Range<usize>,
        memory: &Memory<'_>,
        pool: &Pool,
        after: &mut dyn FnMut(usize, &Memory<'_>) -> Result<()>,
        mut flying: Option<&mut Flying<'_>>,
    ) -> Result<()> {
        let observer = self.observer();
        let mut start = Instant::now();
        for i in range {
            let step = &self.steps[i];
            if let Some(f) = &mut flying
                && f.before(i).map_err(|e| self.located(e, step))?
            {
                start = Instant::now();
            }
            self.call(step, memory, pool).map_err(|e| self.located(e, step))?;
            let end = Instant::now();
            let ns = (end - start).as_nanos() as u64;
            self.times[i].store(ns, Ordering::Relaxed);
            self.fastest[i].fetch_min(ns, Ordering::Relaxed);
            if let Some(o) = &observer {
                memory.show(step, ns, o.as_ref()).map_err(|e| self.located(e, step))?;
            }
            after(i, memory)?;
            start = if observer.is_some() { Instant::now() } else { end };
        }
        Ok(())
    }

    /// States that are updated lie in their outputs: there already if they were donated, copied there if not.
    fn hold_states(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        for &(i, j) in &self.updates {
            if cx.y[j].holds() != Some(i) {
                let y = cx.y[j].bytes_mut();
                let n = y.len();
                y.copy_from_slice(cx.x[i].element_bytes()?.get(..n).ok_or_else(|| self.outside(i))?);
            }
        }
        Ok(())
    }

    fn outside(&self, i: usize) -> Error {
        Error::new(ErrorKind::Internal, format!("input {i} is smaller than its fact says"))
    }

    fn call(&self, step: &Step, m: &Memory<'_>, pool: &Pool) -> Result<()> {
        let mut ins: SmallVec<[In<'_>; INLINE]> = SmallVec::new();
        for (i, o) in step.x.iter().enumerate() {
            if step.y.iter().any(|t| t.donated_from == Some(i)) {
                ins.push(In::donated(o.dtype, &o.layout));
                continue;
            }
            let Range(at, bytes) = m.address(o.place, o.bytes)?;
            // SAFETY: `address` gives a range within memory that is alive for this run; nothing writes it during this
            // call, for outputs and workspace of a step overlap no operand (checked by `build`).
            ins.push(In::new(o.dtype, &o.layout, unsafe { std::slice::from_raw_parts(at, bytes) }));
        }
        let Range(at, bytes) = m.address(Place::Arena(step.workspace.0), step.workspace.1)?;
        // SAFETY: as above, and nothing else overlaps it.
        let workspace = unsafe { std::slice::from_raw_parts_mut(at, bytes) };
        match step.y.len() {
            1 => step.op.eval(&mut EvalCx { x: &ins, y: &mut m.outs::<1>(step)?, workspace, pool }),
            2 => step.op.eval(&mut EvalCx { x: &ins, y: &mut m.outs::<2>(step)?, workspace, pool }),
            3 => step.op.eval(&mut EvalCx { x: &ins, y: &mut m.outs::<3>(step)?, workspace, pool }),
            4 => step.op.eval(&mut EvalCx { x: &ins, y: &mut m.outs::<4>(step)?, workspace, pool }),
            5 => step.op.eval(&mut EvalCx { x: &ins, y: &mut m.outs::<5>(step)?, workspace, pool }),
            6 => step.op.eval(&mut EvalCx { x: &ins, y: &mut m.outs::<6>(step)?, workspace, pool }),
            7 => step.op.eval(&mut EvalCx { x: &ins, y: &mut m.outs::<7>(step)?, workspace, pool }),
            8 => step.op.eval(&mut EvalCx { x: &ins, y: &mut m.outs::<8>(step)?, workspace, pool }),
            n => {
                let mut y = (0..n).map(|j| m.out(step, j)).collect::<Result<Vec<_>>>()?;
                step.op.eval(&mut EvalCx { x: &ins, y: &mut y, workspace, pool })
            }
        }
    }

    /// An error with the op and the line of the program that it came from.
    fn located(&self, e: Error, step: &Step) -> Error {
        let e = e.with_op(step.op.label());
        let Some(node) = step.node.map(|n| self.graph.node(n)) else { return e };
        let e = match node.site {
            Some(site) => e.with_call_site(site),
            None => e,
        };
        e.with_scope(node.scope.clone())
    }
}

impl<'m> Memory<'m> {
    fn out<'s: 'm>(&self, step: &'s Step, j: usize) -> Result<Out<'m>> {
        let t = &step.y[j];
        let Range(at, bytes) = self.address(t.place, t.bytes)?;
        // SAFETY: the range lies within memory that is alive for this run, and is exclusive during the call since no
        // other operand, output or workspace of the step overlaps it (checked by `build`); `call` takes each once.
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

    /// Shows what a step that has run gave.
    fn show(&self, step: &Step, ns: u64, to: &dyn Observer) -> Result<()> {
        let Some(node) = step.node else { return Ok(()) };
        let values = &self.exe.graph.node(node).y;
        for (j, (t, v)) in step.y.iter().zip(values).enumerate() {
            let view = self.view(t)?;
            to.value(&Observed { graph: &self.exe.graph, node, value: *v, output: j, view, ns })?;
        }
        Ok(())
    }

    /// What an output holds after its step.
    pub(super) fn view<'v>(&'v self, t: &'v OutputSlot) -> Result<ValueView<'v>> {
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
                let Range(at, len) = *self.given.x.get(i).ok_or_else(no)?;
                (at, len)
            }
            Place::Output(j) => {
                let Range(at, len) = *self.given.y.get(j).ok_or_else(no)?;
                (at, len)
            }
            Place::Constant(k) => {
                let all = self.exe.constants.get(k).ok_or_else(no)?.bytes();
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
