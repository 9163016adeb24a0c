//! The request to a device to run a program.

use std::sync::Arc;

use remat_ops::EvalCx;
use remat_types::Result;

use crate::host::CommThread;
use crate::launch::Launch;
use crate::program::{Flow, Frame, Given, Machine, Program, Step, StepTimes, ValueView, Watch, hold_states, run_steps};

/// A program to run on operands that lie on the device.
pub struct ProgramLaunch<'a, 'l> {
    /// Operands, workspace, stream, events and site. Its op computes the same as one kernel.
    pub launch: &'a Launch<'l>,
    /// Where the block of its constants begins in the arena, if the device's kernels ask for one
    /// ([`KernelSet::holds_constants`](crate::KernelSet::holds_constants)). The block is in place when the run begins.
    pub constants_at: Option<usize>,
    /// The program itself.
    pub body: ProgramBody<'a>,
}

/// The program or programs to run.
pub enum ProgramBody<'a> {
    /// A whole program, with states and times.
    Whole(&'a dyn ProgramOwner),
    /// The programs of an op that contains graphs.
    Flow(&'a Flow),
}

/// The owner of a program, which is told of its runs.
pub trait ProgramOwner {
    /// The program.
    fn program(&self) -> &Program;

    /// The record of its steps' times.
    fn times(&self) -> &Arc<StepTimes>;

    /// Runs it on the host, its collectives on their own thread; all have ended when this returns. Errors: those of its steps.
    fn run_on_host(&self, cx: &mut EvalCx<'_>, comm: &CommThread) -> Result<()>;

    /// True if [`ProgramOwner::show`] is to be called for the outputs of steps.
    fn is_observed(&self) -> bool;

    /// Shows the value of output `j` of a step that took `ns` nanoseconds. Errors: those of the observer.
    fn show(&self, step: &Step, j: usize, view: ValueView<'_>, ns: u64) -> Result<()>;
}

impl<'a> ProgramLaunch<'a, '_> {
    /// The owner of a whole program.
    pub fn owner(&self) -> Option<&'a dyn ProgramOwner> {
        match self.body {
            ProgramBody::Whole(owner) => Some(owner),
            ProgramBody::Flow(_) => None,
        }
    }

    /// Bytes of the block of constants.
    pub fn constant_bytes(&self) -> usize {
        match self.body {
            ProgramBody::Whole(owner) => owner.program().constant_bytes(),
            ProgramBody::Flow(flow) => flow.constant_bytes(),
        }
    }

    /// Bytes of the workspace, without constants that may lie behind it.
    pub fn workspace_bytes(&self) -> usize {
        match self.body {
            ProgramBody::Whole(owner) => owner.program().workspace_bytes,
            ProgramBody::Flow(flow) => flow.workspace_bytes(),
        }
    }

    /// Runs it on a machine, where `given` says in which ranges the elements of its operands lie. Errors: those of the
    /// machine and the watch; Value if the program was made for another number of threads.
    pub fn walk<M: Machine>(
        &self,
        m: &mut M,
        threads: usize,
        given: &Given<'_, M::Span>,
        watch: &mut impl Watch<M>,
    ) -> Result<()> {
        let program = match self.body {
            ProgramBody::Flow(flow) => return flow.run(m, given),
            ProgramBody::Whole(owner) => owner.program(),
        };
        program.check_threads(threads)?;
        let Given { x, y, arena, constants } = *given;
        let frame = Frame { program, x, y, arena, constants };
        hold_states(m, &frame, |i, j| self.launch.y[j].donated_from == Some(i))?;
        run_steps(m, &frame, 0..program.steps.len(), watch)
    }
}
