//! The run: operands become slices, one call after the other.

use std::sync::atomic::Ordering;
use std::time::Instant;

use remat_kernels::pool::Pool;
use remat_ops::{EvalCx, In, Out};
use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::{Executable, Place, Step};

/// Operands of a call up to this number cost no allocation.
const INLINE: usize = 8;

/// First byte and length of a range that is exclusively the run's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range(*mut u8, usize);

// SAFETY: the pointer is only followed within the run that stored it; between runs it is a number.
unsafe impl Send for Range {}

/// The memory of a run by address; every place of a step lies within, as `build` has checked.
struct Memory<'m> {
    exe: &'m Executable,
    x: &'m [In<'m>],
    y: &'m [Range],
    arena: Range,
}

impl Executable {
    pub(super) fn run(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        if cx.pool.threads() != self.threads {
            let text = format!("compiled for {} threads, run with {}", self.threads, cx.pool.threads());
            return Err(Error::new(ErrorKind::Value, text));
        }
        self.hold_states(cx)?;
        // One list serves all runs; a second run at the same time, on another device, makes its own.
        let mut own = Vec::new();
        let mut kept = self.ranges.try_lock();
        let y = kept.as_deref_mut().unwrap_or(&mut own);
        y.clear();
        y.extend(cx.y.iter_mut().map(|y| Range(y.bytes_mut().as_mut_ptr(), y.bytes_mut().len())));
        let arena = Range(cx.workspace.as_mut_ptr(), cx.workspace.len());
        let memory = Memory { exe: self, x: cx.x, y, arena };
        let mut start = Instant::now();
        for ((step, time), fastest) in self.steps.iter().zip(&self.times).zip(&self.fastest) {
            self.call(step, &memory, cx.pool).map_err(|e| self.located(e, step))?;
            let end = Instant::now();
            let ns = (end - start).as_nanos() as u64;
            time.store(ns, Ordering::Relaxed);
            fastest.fetch_min(ns, Ordering::Relaxed);
            start = end;
        }
        Ok(())
    }

    /// States that are updated lie in their outputs: there already if they were donated, copied there if not.
    fn hold_states(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        for &(i, j) in &self.updates {
            if cx.y[j].holds() != Some(i) {
                let x = &cx.x[i];
                if !x.layout().is_contiguous() || x.layout().offset() != 0 {
                    return Err(Error::new(ErrorKind::Internal, format!("state {i} comes as a view")));
                }
                let y = cx.y[j].bytes_mut();
                let n = y.len();
                y.copy_from_slice(x.bytes().get(..n).ok_or_else(|| self.outside(i))?);
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
            if step.y.iter().any(|t| t.holds == Some(i)) {
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
            n => {
                let mut y = (0..n).map(|j| m.out(step, j)).collect::<Result<Vec<_>>>()?;
                step.op.eval(&mut EvalCx { x: &ins, y: &mut y, workspace, pool })
            }
        }
    }

    /// An error with the op and the line of the program that it came from.
    fn located(&self, e: Error, step: &Step) -> Error {
        let e = e.with_op(step.op.label());
        match step.node.and_then(|n| self.graph.node(n).site) {
            Some(site) => e.with_call_site(site),
            None => e,
        }
    }
}

impl<'m> Memory<'m> {
    fn out<'s: 'm>(&self, step: &'s Step, j: usize) -> Result<Out<'m>> {
        let t = &step.y[j];
        let Range(at, bytes) = self.address(t.place, t.bytes)?;
        // SAFETY: the range lies within memory that is alive for this run, and is exclusive during the call since no
        // other operand, output or workspace of the step overlaps it (checked by `build`); `call` takes each once.
        Ok(Out::new(t.dtype, &t.shape, unsafe { std::slice::from_raw_parts_mut(at, bytes) }, t.holds))
    }

    /// The outputs of a step that has `N`, without an allocation.
    fn outs<'s: 'm, const N: usize>(&self, step: &'s Step) -> Result<[Out<'m>; N]> {
        let mut failed = None;
        let all = std::array::from_fn(|j| {
            self.out(step, j).map_err(|e| failed = Some(e)).unwrap_or_else(|()| {
                let t = &step.y[j];
                Out::new(t.dtype, &t.shape, &mut [], t.holds)
            })
        });
        failed.map_or(Ok(all), Err)
    }

    /// The first byte of a place, which holds `bytes`. Errors (Internal) if it does not.
    fn address(&self, place: Place, bytes: usize) -> Result<Range> {
        let no = || Error::new(ErrorKind::Internal, format!("{place:?} has not {bytes} bytes"));
        let (at, len) = match place {
            Place::Input(i) => {
                let all = self.x.get(i).ok_or_else(no)?;
                (all.bytes().as_ptr().cast_mut(), all.bytes().len())
            }
            Place::Output(j) => {
                let Range(at, len) = *self.y.get(j).ok_or_else(no)?;
                (at, len)
            }
            Place::Constant(k) => {
                let all = self.exe.constants.get(k).ok_or_else(no)?.bytes();
                (all.as_ptr().cast_mut(), all.len())
            }
            Place::Arena(at) => {
                let len = self.arena.1.checked_sub(at).ok_or_else(no)?;
                // SAFETY: `at` is at most the workspace's length.
                (unsafe { self.arena.0.add(at) }, len)
            }
        };
        if len < bytes { Err(no()) } else { Ok(Range(at, bytes)) }
    }
}
