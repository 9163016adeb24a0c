//! Which ops are programs to a device, and what they need there.

use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::{Fact, Result};

use super::Launcher;
use crate::control_flow;
use crate::device::program::{ProgramBody, ProgramLaunch, ProgramOwner};
use crate::device::{Event, KernelSet, Launch};
use crate::executable::Executable;
use crate::program::with_constants;

impl Launcher {
    /// Queues a launch: as a program if its op is one, else as a kernel. Errors: the device's.
    pub(super) fn queue(&mut self, launch: &Launch<'_>) -> Result<Event> {
        if let Some(executable) = executable(launch.op) {
            return self.device.run(&ProgramLaunch { launch, body: ProgramBody::Whole(executable) });
        }
        // A device that reads the host's memory runs what ops run within themselves as the host does.
        let flow = if self.holds_constants { control_flow::flow(launch.op, &self.kernels) } else { None };
        match flow {
            Some(flow) => self.device.run(&ProgramLaunch { launch, body: ProgramBody::Flow(&flow) }),
            None => self.device.launch(launch),
        }
    }
}

fn executable(op: &OpRef) -> Option<&Executable> {
    op.as_any().downcast_ref()
}

/// The workspace of a launch, with room for the constants of a program where the device holds them.
pub(in crate::eager) fn workspace_bytes(op: &OpRef, x: &[&Fact], kernels: &Arc<dyn KernelSet>) -> usize {
    if !kernels.holds_constants() {
        return kernels.workspace(&**op, x);
    }
    if let Some(p) = executable(op).map(ProgramOwner::program) {
        return with_constants(p.workspace_bytes, p.constant_bytes);
    }
    match control_flow::flow(op, kernels) {
        Some(f) => with_constants(f.workspace_bytes(), f.constant_bytes()),
        None => kernels.workspace(&**op, x),
    }
}
