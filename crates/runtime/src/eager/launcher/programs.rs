//! Which ops are programs to a device, and what they need there.

use remat_ops::OpRef;
use remat_types::Result;

use super::Launcher;
use crate::control_flow;
use crate::device::program::{ProgramBody, ProgramLaunch, ProgramOwner};
use crate::device::{Event, KernelSet, Launch};
use crate::executable::Executable;
use crate::program::constant_room;

impl Launcher {
    /// Queues a launch: as a program if its op is one, else as a kernel. Errors: the device's.
    pub(super) fn queue(&mut self, launch: &Launch<'_>) -> Result<Event> {
        if let Some(executable) = executable(launch.op) {
            return self.device.run(&ProgramLaunch { launch, body: ProgramBody::Whole(executable) });
        }
        // A device that reads the host's memory runs what ops run within themselves as the host does.
        let flow = if self.kernels.holds_constants() { self.flow(launch.op) } else { None };
        match flow {
            Some(flow) => self.device.run(&ProgramLaunch { launch, body: ProgramBody::Flow(&flow) }),
            None => self.device.launch(launch),
        }
    }

    fn flow(&self, op: &OpRef) -> Option<crate::program::flow::Flow> {
        control_flow::flow(op, self.kernels.threads())
    }
}

fn executable(op: &OpRef) -> Option<&Executable> {
    op.as_any().downcast_ref()
}

/// Bytes that a launch takes beside its kernel's workspace: those of a program's constants, where the device holds them.
pub(in crate::eager) fn constant_bytes(op: &OpRef, kernels: &dyn KernelSet) -> usize {
    if !kernels.holds_constants() {
        return 0;
    }
    match executable(op).map(ProgramOwner::program) {
        Some(p) => constant_room(p.workspace_bytes, p.constant_bytes),
        None => control_flow::flow(op, kernels.threads())
            .map_or(0, |f| constant_room(f.workspace_bytes(), f.constant_bytes())),
    }
}
