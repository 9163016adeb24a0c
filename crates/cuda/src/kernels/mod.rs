//! The operators for which there are kernels, by family.

mod batch_norm;
mod cumulate;
pub mod elementwise;
mod fold;
mod functions;
mod matmul;
mod norm;
mod order;
pub mod plan;
mod reduce;
mod rows;
mod softmax;
pub mod walk;

use remat_device::{Alignment, KernelSet};
use remat_ops::{LayoutReq, Op};
use remat_types::{Fact, Layout, Result, SmallVec};

pub use plan::{Addresses, Builder, Call, Input, Operands, Plan, Value};

/// The multiple at which storages lie: that of the driver's own allocations.
const ALIGNMENT: Alignment = match Alignment::new(256) {
    Some(alignment) => alignment,
    None => Alignment::HOST,
};
/// Until launches were measured: what a launch takes, and the bytes that memory moves in a nanosecond.
const LAUNCH_NS: u64 = 4_000;
const BYTES_PER_NS: u64 = 1_000;

/// Makes the plan of an operator of a family. `None` for another operator, and for operands that the family's kernels do not
/// take. Errors: Internal for a fault of the family's.
type Family = fn(&dyn Op, &Operands<'_>) -> Result<Option<Plan>>;

/// All families, in the order in which they are asked.
const FAMILIES: &[Family] = &[
    elementwise::plan,
    matmul::plan,
    reduce::plan,
    softmax::plan,
    norm::plan,
    batch_norm::plan,
    cumulate::plan,
    order::plan,
];

/// The launches of an operator. `None` where there is no kernel for it. Errors: those of the family.
pub fn plan(op: &dyn Op, operands: &Operands<'_>) -> Result<Option<Plan>> {
    for family in FAMILIES {
        if let Some(plan) = family(op, operands)? {
            return Ok(Some(plan));
        }
    }
    Ok(None)
}

/// The kernels of a CUDA device.
#[derive(Clone, Debug)]
pub(crate) struct CudaKernels {
    pub(crate) device: String,
}

impl CudaKernels {
    /// The plan for contiguous inputs of these facts.
    fn plan(&self, op: &dyn Op, x: &[&Fact]) -> Option<Plan> {
        let y = op.infer(x).ok()?;
        let layouts: SmallVec<[Layout; 8]> = x.iter().map(|x| x.layout()).collect();
        plan(op, &Operands::contiguous(x, &layouts, &y)).ok()?
    }
}

impl KernelSet for CudaKernels {
    fn device(&self) -> &str {
        &self.device
    }

    fn alignment(&self) -> Alignment {
        ALIGNMENT
    }

    fn holds_constants(&self) -> bool {
        true
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn supports(&self, op: &dyn Op, x: &[&Fact]) -> bool {
        self.plan(op, x).is_some()
    }

    fn workspace(&self, op: &dyn Op, x: &[&Fact]) -> usize {
        self.plan(op, x).map_or(0, |p| p.workspace)
    }

    fn layout(&self, op: &dyn Op, input: usize) -> LayoutReq {
        op.layout(input)
    }

    fn overwrite<'o>(&self, op: &'o dyn Op) -> &'o [(usize, usize)] {
        op.overwrite()
    }

    fn cost_ns(&self, _op: &dyn Op, x: &[&Fact], y: &[Fact]) -> u64 {
        let bytes: usize = x.iter().map(|x| x.bytes()).chain(y.iter().map(Fact::bytes)).sum();
        LAUNCH_NS + bytes as u64 / BYTES_PER_NS
    }
}
