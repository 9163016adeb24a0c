//! The ops that a device runs as programs, and their memory there.

use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::{Fact, HostTensor, Result};

use super::Launcher;
use crate::control_flow;
use crate::executable::Executable;
use remat_device::program::with_constants;
use remat_device::{Event, KernelSet, Launch};
use remat_device::{ProgramBody, ProgramLaunch, ProgramOwner};

impl Launcher {
    /// Queues a launch: as a program if its op is one, else as a kernel. Errors: the device's.
    pub(super) fn queue(&mut self, launch: &Launch<'_>) -> Result<Event> {
        if let Some(executable) = executable(launch.op) {
            let p = executable.program();
            let constants_at = match launch.x.get(p.x.len()) {
                Some(resident) => Some(resident.at),
                None => self.put_constants(launch, p.workspace_bytes, p.constant_bytes(), || p.constant_block())?,
            };
            return self.device.run(&ProgramLaunch { launch, constants_at, body: ProgramBody::Whole(executable) });
        }
        // Other devices run the ops within an op by that op's own kernel.
        let flow = if self.kernels.walks_programs() { control_flow::flow(launch.op, &self.kernels) } else { None };
        match flow {
            Some(flow) => {
                let (workspace_bytes, bytes) = (flow.workspace_bytes(), flow.constant_bytes());
                let constants_at = self.put_constants(launch, workspace_bytes, bytes, || flow.constant_block())?;
                self.device.run(&ProgramLaunch { launch, constants_at, body: ProgramBody::Flow(&flow) })
            }
            None => self.device.launch(launch),
        }
    }

    /// Writes constants that no input holds behind the workspace, for this run alone. Gives their offset. `None` if the
    /// device reads the host's memory.
    fn put_constants(
        &mut self,
        launch: &Launch<'_>,
        workspace_bytes: usize,
        bytes: usize,
        block: impl FnOnce() -> Result<HostTensor>,
    ) -> Result<Option<usize>> {
        if !self.holds_constants || bytes == 0 {
            return Ok(None);
        }
        let at = launch.workspace.0 + self.kernels.alignment().pad(workspace_bytes);
        self.device.upload(launch.stream, at, &block()?)?;
        Ok(Some(at))
    }
}

fn executable(op: &OpRef) -> Option<&Executable> {
    op.as_any().downcast_ref()
}

/// The workspace of a launch. It includes a program's constants, if the device holds constants and no input does.
pub(in crate::eager) fn workspace_bytes(op: &OpRef, x: &[&Fact], kernels: &Arc<dyn KernelSet>) -> usize {
    if !kernels.walks_programs() {
        return kernels.workspace(&**op, x);
    }
    if let Some(p) = executable(op).map(ProgramOwner::program) {
        let is_put = kernels.holds_constants() && x.len() == p.x.len();
        return with_constants(p.workspace_bytes, if is_put { p.constant_bytes() } else { 0 }, kernels.alignment());
    }
    match control_flow::flow(op, kernels) {
        Some(f) => with_constants(
            f.workspace_bytes(),
            if kernels.holds_constants() { f.constant_bytes() } else { 0 },
            kernels.alignment(),
        ),
        None => kernels.workspace(&**op, x),
    }
}
