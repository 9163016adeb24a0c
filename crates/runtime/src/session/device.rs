//! Runs of a session on a device: inputs and states are copied there, and results are copied back.

use std::sync::Arc;

use remat_ops::OpRef;
use remat_types::{Error, ErrorKind, HostTensor, Result, SmallVec};

use crate::eager::{Channel, Device, Handle};
use crate::executable::Executable;

/// The device that executes the runs of a session.
#[derive(Clone)]
pub(super) struct OnDevice {
    channel: Channel,
    op: OpRef,
    /// The constants stay on the device from run to run.
    constants: Option<Handle>,
}

impl OnDevice {
    /// Errors: Value for an executable of another device's kernels, or in parts; Closed.
    pub(super) fn new(device: &Device, exe: &Arc<Executable>) -> Result<OnDevice> {
        let wrong = |text: String| Err(Error::new(ErrorKind::Value, text));
        let (own, given) = (exe.kernels().device(), device.kernels().device());
        if own != given {
            return wrong(format!("a session on device {given} of a graph that was compiled for {own}"));
        }
        if exe.program.ends.len() > 1 {
            return wrong("a session on a device does not run in parts".into());
        }
        let channel = device.channel();
        let constants = channel.resident_constants(exe)?;
        Ok(OnDevice { channel, op: OpRef::from_shared(exe.clone()), constants })
    }

    /// Runs another plan from now on. Errors: Closed.
    pub(super) fn replan(&mut self, exe: &Arc<Executable>) -> Result<()> {
        self.constants = self.channel.resident_constants(exe)?;
        self.op = OpRef::from_shared(exe.clone());
        Ok(())
    }

    /// The outputs and next versions of states for these inputs and states. Errors: the failure of a copy or of the
    /// computation.
    pub(super) fn run(&self, x: &[HostTensor]) -> Result<Vec<HostTensor>> {
        let mut inputs: SmallVec<[Handle; 4]> = SmallVec::new();
        for x in x {
            inputs.push(self.channel.put(x)?);
        }
        inputs.extend(self.constants.clone());
        let y = self.channel.apply(self.op.clone(), inputs)?;
        y.iter().map(|y| self.channel.value(y)).collect()
    }
}
