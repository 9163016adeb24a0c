//! The operators for which there are kernels, and what these need.

use remat_device::{Alignment, KernelSet};
use remat_kernels::scalar::Expression;
use remat_ops::pointwise::{Cast, Fused, Pointwise};
use remat_ops::shape::Contiguous;
use remat_ops::{Class, LayoutReq, Op};
use remat_types::{DType, Fact, SmallVec};

use crate::source::elementwise::{Form, Input, kernel};

/// The multiple at which storages lie: that of the driver's own allocations.
const ALIGNMENT: Alignment = match Alignment::new(256) {
    Some(alignment) => alignment,
    None => Alignment::HOST,
};
/// Until launches were measured: what a launch takes, and the bytes that memory moves in a nanosecond.
const LAUNCH_NS: u64 = 4_000;
const BYTES_PER_NS: u64 = 1_000;

/// The kernels of a CUDA device.
#[derive(Clone, Debug)]
pub(crate) struct CudaKernels {
    pub(crate) device: String,
}

/// The function of one element that an op computes for inputs of these dtypes. `None` for an op that is no such function, and for
/// one that may refuse an element.
pub(crate) fn expression(op: &dyn Op, dtypes: &[DType]) -> Option<Expression> {
    let first = *dtypes.first()?;
    if op.as_any().is::<Contiguous>() {
        return Pointwise::Cast(Cast { dtype: first }).expression(&[first]).ok();
    }
    if let Some(fused) = op.as_any().downcast_ref::<Fused>() {
        return fused.expression(dtypes).ok();
    }
    match op.class() {
        // integers may have no quotient, power or shift
        Class::Pointwise(Pointwise::Binary(b)) => Pointwise::fusible(&b.into(), first)?.expression(dtypes).ok(),
        Class::Pointwise(found) => found.expression(dtypes).ok(),
        _ => None,
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
        let dtypes: SmallVec<[DType; 8]> = x.iter().map(|x| x.dtype).collect();
        let Some(e) = expression(op, &dtypes) else { return false };
        // a function of a library has no form in C
        let form = Form { rank: 0, inputs: x.iter().map(|_| Input::Dense).collect() };
        kernel("f", &e, &form).is_ok()
    }

    fn workspace(&self, _op: &dyn Op, _x: &[&Fact]) -> usize {
        0
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
