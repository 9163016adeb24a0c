//! Questions about a device's kernels, answered from facts alone: which ops they compute, what they need, how long they
//! take.
//!
//! An op says what is computed. The device decides how, with how much scratch memory, and in what time. The questions
//! have no side effects, so callers' threads, the worker, planners and dry runs ask the same value and get the same
//! answer. The launch itself is [`crate::Backend::launch`], since it needs the device's memory and streams. The CPU's
//! kernels are those of the ops ([`Op::eval`]). They are also the reference for every other device. An op for which a
//! device has no kernel can fall back to them (`DeviceOptions::host_fallback`).

use std::borrow::Cow;
use std::fmt::Debug;

use remat_graph::passes::{Pass, cpu};
use remat_ops::{LayoutReq, Op};
use remat_types::{Error, ErrorKind, Fact, Result};

use crate::arena::Alignment;
use crate::registry::{HostKernel, KernelRegistry};

/// The kernels of a device. `x` and `y` are the facts of an op's inputs and outputs, as its `infer` accepted them.
pub trait KernelSet: Debug + Send + Sync {
    /// Name of the device, for errors.
    fn device(&self) -> &str;

    /// The multiple at which storages lie in the device's arena, and at which values lie in the workspaces of its
    /// programs. Default: the host's.
    fn alignment(&self) -> Alignment {
        Alignment::HOST
    }

    /// The number of host threads that a kernel uses. Programs are made for this number. Default: 1.
    fn threads(&self) -> usize {
        1
    }

    /// True if the constants of a program must lie in the device's memory, since its kernels do not read the host's.
    /// The runtime then keeps them there from run to run, in a tensor beside the inputs, or writes them behind the
    /// workspace for one run. Default: false.
    fn holds_constants(&self) -> bool {
        false
    }

    /// True if there is a kernel for every op on all inputs that the op accepts. Then nobody calls
    /// [`KernelSet::supports`].
    fn is_complete(&self) -> bool;

    /// True if there is a kernel for this op on these inputs.
    fn supports(&self, op: &dyn Op, x: &[&Fact]) -> bool;

    /// Scratch memory of a launch in bytes: a pure function of its arguments, so that a budget can count on it.
    fn workspace(&self, op: &dyn Op, x: &[&Fact]) -> usize;

    /// The layout in which an input must come.
    fn layout(&self, op: &dyn Op, input: usize) -> LayoutReq;

    /// Pairs (input, output) that may share storage when the input dies with the launch, as in [`Op::overwrite`]. An
    /// output takes an input's bytes only where the kernel lists the pair. Default: none.
    fn overwrite<'o>(&self, _op: &'o dyn Op) -> &'o [(usize, usize)] {
        &[]
    }

    /// Expected time of a launch in nanoseconds, for use until a launch was measured.
    fn cost_ns(&self, op: &dyn Op, x: &[&Fact], y: &[Fact]) -> u64;

    /// A kernel on host memory that runs in place of [`Op::eval`]. Default: none.
    fn host_kernel(&self, _op: &dyn Op) -> Option<&dyn HostKernel> {
        None
    }

    /// True if the device runs an op that contains programs step by step, as it runs a compiled program, and not by the
    /// op's own kernel. Default: where the device holds constants.
    fn walks_programs(&self) -> bool {
        self.holds_constants()
    }

    /// Passes for graphs that will run on these kernels alone. Default: none.
    fn passes(&self) -> &'static [Pass] {
        &[]
    }
}

/// Errors (Device) if `kernels` has no kernel for `op`. A view of a contiguous input needs no kernel.
pub fn check_supported(kernels: &dyn KernelSet, op: &dyn Op, x: &[&Fact]) -> Result<()> {
    let is_view = || matches!(x, [x] if op.view(&x.layout()).is_some());
    if kernels.is_complete() || kernels.supports(op, x) || is_view() {
        return Ok(());
    }
    let text =
        format!("device {} has no kernel for it; DeviceOptions::host_fallback runs it on the host", kernels.device());
    Err(Error::new(ErrorKind::Device, text).with_op(op.label()))
}

/// The host's kernels on a number of threads: those of the ops, and those that a program added.
#[derive(Clone, Debug)]
pub struct HostKernels {
    device: Cow<'static, str>,
    threads: usize,
    own: KernelRegistry,
}

impl HostKernels {
    /// The kernels of a device that runs them on `threads` threads of the host.
    pub fn new(device: impl Into<Cow<'static, str>>, threads: usize) -> Self {
        HostKernels { device: device.into(), threads, own: KernelRegistry::default() }
    }

    /// With kernels that a program added.
    #[must_use]
    pub fn with(self, own: KernelRegistry) -> Self {
        HostKernels { own, ..self }
    }
}

impl KernelSet for HostKernels {
    fn device(&self) -> &str {
        &self.device
    }

    fn threads(&self) -> usize {
        self.threads
    }

    fn is_complete(&self) -> bool {
        true
    }

    fn supports(&self, _op: &dyn Op, _x: &[&Fact]) -> bool {
        true
    }

    fn workspace(&self, op: &dyn Op, x: &[&Fact]) -> usize {
        self.host_kernel(op).map_or_else(|| op.workspace(x, self.threads), |k| k.workspace(op, x, self.threads))
    }

    fn layout(&self, op: &dyn Op, input: usize) -> LayoutReq {
        self.host_kernel(op).map_or_else(|| op.layout(input), |k| k.layout(op, input))
    }

    fn overwrite<'o>(&self, op: &'o dyn Op) -> &'o [(usize, usize)] {
        self.host_kernel(op).map_or_else(|| op.overwrite(), |k| k.overwrite(op))
    }

    fn host_kernel(&self, op: &dyn Op) -> Option<&dyn HostKernel> {
        self.own.get::<dyn HostKernel>(op).map(|k| &**k)
    }

    fn walks_programs(&self) -> bool {
        !self.own.is_empty()
    }

    fn cost_ns(&self, op: &dyn Op, x: &[&Fact], y: &[Fact]) -> u64 {
        op.cost(x, y).prior_ns()
    }

    fn passes(&self) -> &'static [Pass] {
        cpu::PASSES
    }
}
