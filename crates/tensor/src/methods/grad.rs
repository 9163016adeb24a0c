//! Gradients by the tape.

use remat_types::{CallSite, Result};

use crate::{Tensor, autodiff};

impl Tensor {
    /// Accumulates the gradient of the sum of this tensor into every leaf it depends on, and frees what the pass
    /// used. Errors: NotDifferentiable if nothing requires a gradient; those of the ops; what failed on the device before
    /// and no call has told yet.
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        autodiff::backward(self, None, false, CallSite::here())
    }

    /// As [`Tensor::backward`] with a cotangent of this tensor's dtype and shape; with `retain_graph` the pass can be
    /// made again.
    #[track_caller]
    pub fn backward_with(&self, dy: Option<&Tensor>, retain_graph: bool) -> Result<()> {
        autodiff::backward(self, dy, retain_graph, CallSite::here())
    }
}
