//! The operators for which there are kernels, by family.

mod attention;
mod batch_norm;
mod conv;
mod create;
mod ctc;
mod cumulate;
pub mod elementwise;
mod fold;
mod functions;
mod index;
mod matmul;
mod movement;
mod nms;
mod nonzero;
mod norm;
mod optim;
mod optim_norms;
mod optim_rows;
mod order;
mod peaks;
pub mod plan;
mod pool;
mod random;
mod recurrent;
mod reduce;
mod resample;
mod rows;
mod sample;
mod scalars;
mod scatter;
mod shaped;
mod softmax;
mod sorting;
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
    optim::plan,
    optim_norms::plan,
    optim_rows::plan,
    create::plan,
    random::plan,
    shaped::plan,
    movement::plan,
    index::plan,
    conv::plan,
    pool::plan,
    scatter::plan,
    order::plan,
    attention::plan,
    cumulate::plan,
    peaks::plan,
    resample::plan,
    sample::plan,
    ctc::plan,
    nms::plan,
    recurrent::plan,
    reduce::plan,
    softmax::plan,
    norm::plan,
    batch_norm::plan,
    nonzero::plan,
];

/// The most arguments of a kernel: their 4096 bytes of 8 each (CUDA C++ Programming Guide, "Function Parameters").
const MOST_ARGUMENTS: usize = 4096 / 8;

/// The launches of an operator. `None` where there is no kernel for it. Errors: those of the family.
pub fn plan(op: &dyn Op, operands: &Operands<'_>) -> Result<Option<Plan>> {
    for family in FAMILIES {
        if let Some(plan) = family(op, operands)? {
            let fits = plan.calls.iter().all(|call| call.values.len() <= MOST_ARGUMENTS);
            return Ok(fits.then_some(plan));
        }
    }
    Ok(None)
}

/// The kernels of a CUDA device.
#[derive(Clone, Debug)]
pub(crate) struct CudaKernels {
    device: String,
    /// True if steps of programs run on the host where there is no kernel for them.
    falls_back: bool,
    /// True for a dry run, which launches nothing.
    is_dry: bool,
}

impl CudaKernels {
    pub(crate) fn new(device: String, falls_back: bool) -> CudaKernels {
        CudaKernels { device, falls_back, is_dry: false }
    }

    /// For dry runs of a device that runs on the host what it has no kernel for.
    pub(crate) fn dry(device: String) -> CudaKernels {
        CudaKernels { device, falls_back: true, is_dry: true }
    }

    /// True if steps of programs run on the host where there is no kernel for them.
    pub(crate) fn falls_back(&self) -> bool {
        self.falls_back
    }

    /// The plan for contiguous inputs of these facts.
    fn plan(&self, op: &dyn Op, x: &[&Fact]) -> Option<Plan> {
        let y = op.infer(x).ok()?;
        let layouts: SmallVec<[Layout; 8]> = x.iter().map(|x| x.layout()).collect();
        plan(op, &Operands::contiguous(x, &layouts, &y)).ok()?
    }
}

/// True for an operator that contains programs.
fn has_parts(op: &dyn Op) -> bool {
    let mut has = false;
    op.for_each_part(&mut |_| has = true);
    has
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
        self.is_dry
    }

    fn supports(&self, op: &dyn Op, x: &[&Fact]) -> bool {
        // a step of a program that has no kernel runs on the host, or is the error of the run
        has_parts(op) || self.plan(op, x).is_some()
    }

    fn workspace(&self, op: &dyn Op, x: &[&Fact]) -> usize {
        if has_parts(op) {
            return op.workspace(x, 1);
        }
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
