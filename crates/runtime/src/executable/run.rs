//! A run: the program's calls in order, timed, shown to an observer, and with the copies of a plan that spills.

use std::sync::atomic::Ordering;
use std::time::Instant;

use remat_kernels::pool::Pool;
use remat_ops::EvalCx;
use remat_types::{Error, ErrorKind, Result};

use super::Executable;
use super::observe::{Observed, Observer};
use super::spill::InFlight;
use crate::program::Step;
use crate::program::copies::beyond;
use crate::program::cpu::{Bindings, Memory, Range};

impl Executable {
    pub(super) fn run(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        self.program.check_threads(cx.pool)?;
        self.hold_states(cx)?;
        // One list serves all runs; a second run at the same time, on another device, makes its own.
        let mut own = Bindings::default();
        let mut kept = self.bindings.try_lock();
        let given = kept.as_deref_mut().unwrap_or(&mut own);
        given.bind(cx)?;
        let memory = Memory::new(&self.program, given, Range::exclusive(cx.workspace));
        self.run_steps(0..self.program.steps.len(), &memory, cx.pool, &mut |_, _| Ok(()))
    }

    /// Runs the steps of `range` in order; after each the observer is shown what it gave, then `after` is called.
    pub(super) fn run_steps(
        &self,
        range: std::ops::Range<usize>,
        memory: &Memory<'_>,
        pool: &Pool,
        after: &mut dyn FnMut(usize, &Memory<'_>) -> Result<()>,
    ) -> Result<()> {
        match (&self.spill, &self.program.copies) {
            (Some(spill), Some(copies)) => {
                let arena = match beyond(copies.align) {
                    0 => memory.arena,
                    _ => memory.arena.aligned(copies.align)?,
                };
                let memory = Memory { arena, ..*memory };
                spill.fly(copies, memory.arena, |f| self.run_all(range, &memory, pool, after, Some(f)))
            }
            _ => self.run_all(range, memory, pool, after, None),
        }
    }

    fn run_all(
        &self,
        range: std::ops::Range<usize>,
        memory: &Memory<'_>,
        pool: &Pool,
        after: &mut dyn FnMut(usize, &Memory<'_>) -> Result<()>,
        mut copies: Option<&mut InFlight<'_>>,
    ) -> Result<()> {
        let observer = self.observer();
        let mut start = Instant::now();
        for i in range {
            let step = &self.program.steps[i];
            if let Some(f) = &mut copies
                && f.before(i).map_err(|e| step.located(e))?
            {
                start = Instant::now();
            }
            memory.call(step, pool).map_err(|e| step.located(e))?;
            let end = Instant::now();
            let ns = (end - start).as_nanos() as u64;
            self.times[i].store(ns, Ordering::Relaxed);
            self.fastest[i].fetch_min(ns, Ordering::Relaxed);
            if let Some(o) = &observer {
                self.show(memory, step, ns, o.as_ref()).map_err(|e| step.located(e))?;
            }
            after(i, memory)?;
            start = if observer.is_some() { Instant::now() } else { end };
        }
        Ok(())
    }

    /// States that are updated lie in their outputs: there already if they were donated, copied there if not.
    fn hold_states(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        for &(i, j) in &self.program.updates {
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

    /// Shows what a step that has run gave.
    fn show(&self, memory: &Memory<'_>, step: &Step, ns: u64, to: &dyn Observer) -> Result<()> {
        let Some(node) = step.node else { return Ok(()) };
        let values = &self.graph.node(node).y;
        for (j, (t, v)) in step.y.iter().zip(values).enumerate() {
            let view = memory.view(t)?;
            to.value(&Observed { graph: &self.graph, node, value: *v, output: j, view, ns })?;
        }
        Ok(())
    }
}
