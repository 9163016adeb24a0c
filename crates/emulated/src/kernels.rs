//! The kernels of the emulated device: the host's, without those that a test takes away.

use remat_device::{Alignment, HostKernels, KernelSet};
use remat_graph::passes::Pass;
use remat_ops::{LayoutReq, Op};
use remat_types::Fact;

#[derive(Clone, Debug)]
pub(super) struct EmulatedKernels {
    host: HostKernels,
    /// Names of the ops taken away.
    without: Vec<&'static str>,
    alignment: Alignment,
}

impl EmulatedKernels {
    pub(super) fn new(without: Vec<&'static str>, alignment: Alignment) -> Self {
        EmulatedKernels { host: HostKernels::new("emulated", 1), without, alignment }
    }
}

impl KernelSet for EmulatedKernels {
    fn device(&self) -> &str {
        self.host.device()
    }

    fn alignment(&self) -> Alignment {
        self.alignment
    }

    fn threads(&self) -> usize {
        self.host.threads()
    }

    /// The device stands for one whose memory the host does not share.
    fn holds_constants(&self) -> bool {
        true
    }

    fn is_complete(&self) -> bool {
        self.without.is_empty()
    }

    fn supports(&self, op: &dyn Op, _x: &[&Fact]) -> bool {
        let mut is_whole = !self.without.contains(&op.name());
        op.for_each_part(&mut |part| is_whole &= self.supports(part, &[]));
        is_whole
    }

    fn workspace(&self, op: &dyn Op, x: &[&Fact]) -> usize {
        self.host.workspace(op, x)
    }

    fn layout(&self, op: &dyn Op, input: usize) -> LayoutReq {
        self.host.layout(op, input)
    }

    fn overwrite<'o>(&self, op: &'o dyn Op) -> &'o [(usize, usize)] {
        self.host.overwrite(op)
    }

    fn cost_ns(&self, op: &dyn Op, x: &[&Fact], y: &[Fact]) -> u64 {
        self.host.cost_ns(op, x, y)
    }

    fn passes(&self) -> &'static [Pass] {
        self.host.passes()
    }
}
