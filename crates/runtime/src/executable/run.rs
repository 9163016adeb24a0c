//! A run on the host: the program's calls in order, timed, observed, and with the copies of a plan that spills.

use std::sync::Arc;
use std::time::Instant;

use remat_ops::EvalCx;
use remat_types::Result;

use super::Executable;
use super::observe::{Observed, Observer};
use super::spill::InFlight;
use remat_device::ProgramOwner;
use remat_device::host::CommThread;
use remat_device::host::Range;
use remat_device::host::{Bindings, HostMachine};
use remat_device::program::StepTimes;
use remat_device::program::beyond;
use remat_device::program::{Frame, Machine, Watch, hold_states, run_steps};
use remat_device::program::{Program, Step, ValueView};

/// A function that is called after each step.
pub(crate) type AfterStep<'a> = dyn FnMut(usize, HostMachine<'_>, &Frame<'_, Range>) -> Result<()> + 'a;

impl Executable {
    pub(super) fn run(&self, cx: &mut EvalCx<'_>, comm: Option<&CommThread>) -> Result<()> {
        self.program.check_threads(cx.pool.threads())?;
        // One list serves all runs. A second run at the same time, on another device, makes its own.
        let mut own = Bindings::default();
        let mut kept = self.bindings.try_lock();
        let given = kept.as_deref_mut().unwrap_or(&mut own);
        given.bind(cx)?;
        let frame = given.frame(&self.program, Range::exclusive(cx.workspace));
        // SAFETY: the ranges are those of the operands and the workspace, which are borrowed for this call. Collectives
        // have ended when it returns, since `run_on_host` waits for them.
        let mut cpu = unsafe { HostMachine::new(&*self.kernels, cx.pool, comm) };
        hold_states(&mut cpu, &frame, |i, j| cx.y[j].holds() == Some(i))?;
        self.run_steps(0..self.program.steps.len(), &frame, cpu, &mut |_, _, _| Ok(()))
    }

    /// Runs the steps of `range` in order. After each step the observer sees its outputs, and then `after` is called.
    pub(crate) fn run_steps(
        &self,
        range: std::ops::Range<usize>,
        frame: &Frame<'_, Range>,
        mut cpu: HostMachine<'_>,
        after: &mut AfterStep<'_>,
    ) -> Result<()> {
        match (&self.spill, &self.program.copies) {
            (Some(spill), Some(copies)) => {
                let arena = match beyond(copies.align, self.program.alignment) {
                    0 => frame.arena,
                    _ => frame.arena.aligned(copies.align)?,
                };
                let frame = Frame { arena, ..*frame };
                spill.fly(copies, arena, |f| run_steps(&mut cpu, &frame, range, &mut self.watched(Some(f), after)))
            }
            _ => run_steps(&mut cpu, frame, range, &mut self.watched(None, after)),
        }
    }

    fn watched<'a, 'f>(&'a self, copies: Option<&'a mut InFlight<'f>>, after: &'a mut AfterStep<'a>) -> Calls<'a, 'f> {
        Calls { exe: self, copies, observer: self.observer(), start: Instant::now(), after }
    }

    /// Shows output `j` of a step that has run.
    fn show_to(&self, step: &Step, j: usize, view: ValueView<'_>, ns: u64, to: &dyn Observer) -> Result<()> {
        let Some(node) = step.node else { return Ok(()) };
        let value = self.graph.node(node).y[j];
        to.value(&Observed { graph: &self.graph, node, value, output: j, view, ns })
    }
}

impl ProgramOwner for Executable {
    fn program(&self) -> &Program {
        &self.program
    }

    fn times(&self) -> &Arc<StepTimes> {
        &self.times
    }

    fn run_on_host(&self, cx: &mut EvalCx<'_>, comm: &CommThread) -> Result<()> {
        let before = comm.take_failure();
        let result = self.run(cx, Some(comm));
        let own = comm.take_failure();
        comm.put_back(before);
        result.and(own.map_or(Ok(()), Err))
    }

    fn is_observed(&self) -> bool {
        self.observer().is_some()
    }

    fn show(&self, step: &Step, j: usize, view: ValueView<'_>, ns: u64) -> Result<()> {
        self.observer().map_or(Ok(()), |o| self.show_to(step, j, view, ns, o.as_ref()))
    }
}

/// The work before and after the calls of a run on the host.
struct Calls<'a, 'f> {
    exe: &'a Executable,
    copies: Option<&'a mut InFlight<'f>>,
    observer: Option<Arc<dyn Observer>>,
    /// The time at which the call began.
    start: Instant,
    after: &'a mut AfterStep<'a>,
}

impl<'p> Watch<HostMachine<'p>> for Calls<'_, '_> {
    fn before(&mut self, cpu: &mut HostMachine<'p>, i: usize) -> Result<()> {
        if let Some(copies) = &mut self.copies
            && copies.are_due(i)
        {
            cpu.settle();
            copies.before(i)?;
            self.start = Instant::now();
        }
        Ok(())
    }

    fn after(&mut self, cpu: &mut HostMachine<'p>, i: usize, frame: &Frame<'_, Range>) -> Result<()> {
        let end = Instant::now();
        let ns = (end - self.start).as_nanos() as u64;
        self.exe.times.record(i, ns);
        let step = &frame.program.steps[i];
        if let Some(o) = &self.observer {
            let mut outputs = step.y.iter().enumerate();
            let shown = outputs.try_for_each(|(j, t)| self.exe.show_to(step, j, frame.view(*cpu, t)?, ns, o.as_ref()));
            shown.map_err(|e| step.located(e))?;
        }
        (self.after)(i, *cpu, frame)?;
        self.start = if self.observer.is_some() { Instant::now() } else { end };
        Ok(())
    }
}
