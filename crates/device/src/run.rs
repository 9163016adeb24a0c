//! A program as a device is asked to run it.

use std::sync::Arc;

use remat_ops::EvalCx;
use remat_types::Result;

use crate::host::CommThread;
use crate::launch::Launch;
use crate::program::{Flow, Frame, Given, Machine, Program, Step, StepTimes, ValueView, Watch, hold_states, run_steps};

/// A program to run on operands that lie on the device.
pub struct ProgramLaunch<'a, 'l> {
    /// Operands, workspace, stream, events and site; its op computes the same, as one kernel.
    pub launch: &'a Launch<'l>,
    /// Where the block of its constants begins in the arena, if the device's kernels ask for one
    /// ([`KernelSet::holds_constants`](crate::KernelSet::holds_constants)). It is there when the run begins.
    pub constants_at: Option<usize>,
    /// The program itself.
    pub body: ProgramBody<'a>,
}

/// What runs.
pub enum ProgramBody<'a> {
    /// A program that stands alone, with states and times.
    Whole(&'a dyn ProgramOwner),
    /// What an op that owns graphs runs.
    Flow(&'a Flow),
}

/// Who made a program, and is told of its runs.
pub trait ProgramOwner {
    /// The program.
    fn program(&self) -> &Program;

    /// Where the times of its steps are noted.
    fn times(&self) -> &Arc<StepTimes>;

    /// Runs it on the host, its collectives on their own thread; all have ended when this returns. Errors: those of its steps.
    fn run_on_host(&self, cx: &mut EvalCx<'_>, comm: &CommThread) -> Result<()>;

    /// True if it is to be shown what steps give.
    fn is_observed(&self) -> bool;

    /// Shows what output `j` of a step holds, which took so long. Errors: those of who looks at it.
    fn show(&self, step: &Step, j: usize, view: ValueView<'_>, ns: u64) -> Result<()>;
}

impl<'a> ProgramLaunch<'a, '_> {
    /// The program's owner, of one that stands alone.
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

    /// Runs it on a machine where the elements of its operands lie in these places. Errors: those of the machine and the
    /// watch; Value for a machine of other threads than the program was made for.
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
