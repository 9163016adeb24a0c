//! A handle on a tensor of a device.

use std::fmt;
use std::sync::{Arc, Weak};

use remat_types::Fact;

use super::channel::Channel;
use super::command::Command;
use super::device::Shared;
use remat_device::StreamId;

/// Names a tensor within its device. No two tensors of a device have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(crate) u64);

impl TensorId {
    /// A number that grows with each tensor that the device makes.
    pub fn order(self) -> u64 {
        self.0
    }
}

pub(crate) struct HandleInner {
    pub(crate) id: TensorId,
    pub(crate) fact: Fact,
    pub(super) shared: Arc<Shared>,
    /// True if a command took over the duty to delete the tensor, or if the device never had it.
    ended: bool,
    /// True for a tensor of a trace: it has a fact and no data.
    traced: bool,
}

impl Drop for HandleInner {
    fn drop(&mut self) {
        if !self.ended {
            let delete = Command::Delete { id: self.id };
            if let Err(delete) = super::group::collect(&self.shared.queue, delete) {
                self.shared.queue.push_delete(delete);
            }
        }
    }
}

/// A reference to a tensor. Clones refer to the same tensor. When the last one is dropped, its bytes are freed.
#[derive(Clone)]
pub struct Handle(pub(crate) Arc<HandleInner>);

impl Handle {
    pub(super) fn new(id: TensorId, fact: Fact, shared: Arc<Shared>) -> Self {
        Handle(Arc::new(HandleInner { id, fact, shared, ended: false, traced: false }))
    }

    pub(super) fn traced(id: TensorId, fact: Fact, shared: Arc<Shared>) -> Self {
        Handle(Arc::new(HandleInner { id, fact, shared, ended: true, traced: true }))
    }

    /// True for a tensor of a trace, which has no data.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.0.traced
    }

    /// Ends the tensor's last handle without a delete. Gives the handle back if there are others. After success no
    /// other thread can get a handle on the tensor, not even through the cache of constants.
    pub(super) fn end(self) -> Result<(), Handle> {
        match Arc::try_unwrap(self.0) {
            Ok(mut inner) => {
                inner.ended = true;
                Ok(())
            }
            Err(shared) => Err(Handle(shared)),
        }
    }

    /// A channel to stream 0 of the tensor's device.
    pub fn channel(&self) -> Channel {
        Channel { shared: self.0.shared.clone(), stream: StreamId(0) }
    }

    /// Dtype, shape and known value; never waits.
    pub fn fact(&self) -> &Fact {
        &self.0.fact
    }

    /// The tensor's name.
    pub fn id(&self) -> TensorId {
        self.0.id
    }

    /// A reference that does not keep the tensor alive.
    pub(super) fn downgrade(&self) -> WeakHandle {
        WeakHandle(Arc::downgrade(&self.0))
    }

    /// True if no other handle refers to the tensor.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// A reference that keeps neither its tensor nor its device alive.
pub(super) struct WeakHandle(Weak<HandleInner>);

impl WeakHandle {
    /// The handle, if another reference keeps the tensor alive.
    pub(super) fn upgrade(&self) -> Option<Handle> {
        self.0.upgrade().map(Handle)
    }
}

impl fmt::Debug for WeakHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeakHandle({:?})", self.upgrade())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({}, {}{})", self.0.id.0, self.0.fact.dtype, self.0.fact.shape)
    }
}
