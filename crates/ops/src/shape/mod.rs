//! Ops that rearrange elements: most of them are views.

mod broadcast_to;
mod concat;
mod contiguous;
mod pad;
mod permute;
mod reshape;
mod slice;
mod slice_grad;

pub use broadcast_to::BroadcastTo;
pub use concat::Concat;
pub use contiguous::Contiguous;
pub use pad::Pad;
pub use permute::Permute;
pub use reshape::Reshape;
pub use slice::Slice;
pub use slice_grad::SliceGrad;

use remat_kernels::copy;
use remat_types::{Layout, Result, for_storage};

use crate::EvalCx;
use crate::op::{Entry, entries};

/// The family's operators.
pub(crate) const OPS: &[Entry] = entries![BroadcastTo, Concat, Contiguous, Pad, Permute, Reshape, Slice, SliceGrad];

/// Writes the elements of input 0's storage that `layout` selects to output 0, in row-major order.
pub(crate) fn copy_view(cx: &mut EvalCx<'_>, layout: &Layout) -> Result<()> {
    for_storage!(cx.x[0].dtype(), T => {
        copy::copy(cx.pool, cx.x[0].storage::<T>()?, layout, cx.y[0].slice_mut()?);
    });
    Ok(())
}
