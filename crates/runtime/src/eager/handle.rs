//! A handle on a tensor of a device.

use std::fmt;
use std::sync::Arc;

use remat_types::Fact;

use super::command::Command;
use super::queue::Queue;

/// Names a tensor within its device; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(crate) u64);

pub(crate) struct HandleInner {
    pub(crate) id: TensorId,
    pub(crate) fact: Fact,
    pub(crate) queue: Arc<Queue>,
}

impl Drop for HandleInner {
    fn drop(&mut self) {
        self.queue.push_delete(Command::Delete { id: self.id });
    }
}

/// A reference to a tensor. Clones refer to the same tensor; when the last one is dropped, its bytes are freed.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<HandleInner>);

impl Handle {
    pub(crate) fn new(id: TensorId, fact: Fact, queue: Arc<Queue>) -> Self {
        Handle(Arc::new(HandleInner { id, fact, queue }))
    }

    /// Dtype, shape and known value; never waits.
    pub fn fact(&self) -> &Fact {
        &self.0.fact
    }

    /// The tensor's name.
    pub fn id(&self) -> TensorId {
        self.0.id
    }

    /// True if no other handle refers to the tensor.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}, {}{})", self.0.id.0, self.0.fact.dtype, self.0.fact.shape)
    }
}
