//! The version of a parameter with which a step began.

use remat_runtime::{Moment, TensorId};
use remat_tensor::Tensor;

/// The running statistics as they were at the beginning of a step that changed them.
pub(crate) struct Earlier {
    pub(crate) version: Tensor,
    /// When the step first changed them.
    pub(crate) moment: Moment,
    /// The version that the step made last: another one was not made by it.
    pub(crate) newest: TensorId,
}

impl Earlier {
    /// True if the thread was told, since it changed them, that a step failed.
    pub(crate) fn is_of_failed_step(&self) -> bool {
        self.moment.failed_since().is_some()
    }

    /// Puts the earlier version back in the place of the step's own, which it gives; none if there is another one.
    pub(crate) fn restore(self, slot: &mut Option<Tensor>) -> Option<Tensor> {
        let is_own = slot.as_ref().is_some_and(|t| t.handle().id() == self.newest);
        if is_own { slot.replace(self.version) } else { None }
    }
}
