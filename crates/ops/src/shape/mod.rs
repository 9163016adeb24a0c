//! Ops that rearrange elements: most of them are views.

mod contiguous;
mod permute;

pub use contiguous::Contiguous;
pub use permute::Permute;

use bytemuck::Pod;
use remat_types::{Layout, Result, Storage, for_storage};

use crate::EvalCx;

/// Writes the elements of input 0's storage that `layout` selects to output 0, in row-major order.
pub(crate) fn copy_view(cx: &mut EvalCx<'_>, layout: &Layout) -> Result<()> {
    fn go<T: Storage + Pod>(cx: &mut EvalCx<'_>, layout: &Layout) -> Result<()> {
        let x = cx.x[0].storage::<T>()?;
        for (y, at) in cx.y[0].slice_mut::<T>()?.iter_mut().zip(layout.indices()) {
            *y = x[at];
        }
        Ok(())
    }
    for_storage!(cx.x[0].dtype(), T => go::<T>(cx, layout))
}
