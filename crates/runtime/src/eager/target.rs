//! The target of a channel's calls.
//!
//! A thread that runs sends its calls to the queue of the device ([`Queued`](super::queued::Queued)). A thread that
//! traces writes them into a graph ([`Tracer`](super::trace::Tracer)). Both apply ops ([`remat_ops::Apply`]), so a
//! caller need not know which one it has.

use remat_ops::{Apply, OpRef};
use remat_types::context::Mode;
use remat_types::{CallSite, HostTensor, Result, SmallVec};

use super::channel::Channel;
use super::handle::Handle;
use super::queued::Queued;
use super::trace::Tracer;
use super::update::NotUpdated;
use crate::report::Kind;

/// For each output, the input that it replaces.
pub(super) type Fallback = SmallVec<[Option<u16>; 2]>;

/// The outputs, or the error with the old versions.
pub(super) type Applied = std::result::Result<SmallVec<[Handle; 2]>, NotUpdated>;

/// The calls of a [`Channel`] that differ between a run and a trace. Each does what the channel's function of that name
/// documents.
pub(super) trait Target: Apply<Value = Handle> {
    fn update(&self, op: OpRef, x: SmallVec<[Handle; 4]>, fallback: Fallback, site: CallSite) -> Applied;

    fn put(&self, data: &HostTensor, site: CallSite) -> Result<Handle>;

    fn put_as(&self, data: &HostTensor, kind: Kind, site: CallSite) -> Result<Handle>;

    /// `from` is a tensor of another device.
    fn copy_from(&self, from: &Handle, site: CallSite) -> Result<Handle>;

    fn mark_step(&self) -> Result<()>;

    fn give_up_step(&self) -> Result<()>;

    fn check(&self) -> Result<()>;

    fn check_step(&self) -> Result<()>;

    fn meet_again(&self) -> Result<()>;
}

impl Channel {
    /// Calls `f` with the target of this thread's calls.
    #[inline]
    pub(super) fn to<R>(&self, f: impl FnOnce(&dyn Target) -> R) -> R {
        match Mode::Tracing.is_on() {
            true => f(&Tracer(self)),
            false => f(&Queued(self)),
        }
    }
}

/// The inputs that outputs were to replace.
pub(super) fn kept(x: &[Handle], fallback: &[Option<u16>]) -> SmallVec<[Option<Handle>; 2]> {
    fallback.iter().map(|i| x.get(usize::from((*i)?)).cloned()).collect()
}
