//! The caller's side: inference, handles, commands.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use remat_ops::{Apply as ApplySeam, Backward, BackwardKey, OpRef, SaveMask};
use remat_types::context::Mode;
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, HostTensor, Result, Shape, SmallVec};

use super::command::Command;
use super::device::{Device, Shared};
use super::failure::Caller;
use super::group;
use super::handle::{Handle, TensorId};
use super::queue::Reply;
use super::target::{Applied, Fallback};
use super::trace;
use super::update::NotUpdated;
use crate::report::Kind;
use remat_device::StreamId;

/// A caller's way to a stream of a device. Clones are cheap, and any number of threads may use one channel.
#[derive(Clone)]
pub struct Channel {
    pub(super) shared: Arc<Shared>,
    pub(super) stream: StreamId,
}

impl Channel {
    /// The device.
    pub fn device(&self) -> Device {
        Device(self.shared.clone())
    }

    pub(super) fn new_id(&self) -> TensorId {
        TensorId(self.shared.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// [`TensorId::order`] of existing tensors is below this value, and of later tensors at least this value.
    pub fn next_order(&self) -> u64 {
        self.shared.next_id.load(Ordering::Relaxed)
    }

    pub(super) fn handle(&self, id: TensorId, fact: Fact) -> Handle {
        Handle::new(id, fact, self.shared.clone())
    }

    /// A handle of a trace on this device.
    pub(super) fn traced_handle(&self, fact: Fact) -> Handle {
        Handle::traced(self.new_id(), fact, self.shared.clone())
    }

    pub(super) fn ask<T: Send>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T> {
        self.send_group(false, false)?;
        let (reply, answer) = Reply::new();
        self.shared.queue.push(command(reply))?;
        answer.wait()
    }

    /// Queues a command, or collects it if this thread has a group open.
    pub(super) fn push(&self, command: Command) -> Result<()> {
        match group::collect(&self.shared.queue, command) {
            Ok(()) => Ok(()),
            Err(command) => self.shared.queue.push(command),
        }
    }

    pub(super) fn own(&self, h: &Handle) -> Result<()> {
        if Arc::ptr_eq(&h.0.shared, &self.shared) {
            return if h.is_traced() && !Mode::Tracing.is_on() { Err(outlived()) } else { Ok(()) };
        }
        let text = format!("the tensor belongs to another device than {}; copy it there first", self.shared.name);
        Err(Error::new(ErrorKind::Device, text))
    }

    /// Copies a host tensor to the device. Small equal tensors share one device tensor. Errors: Closed.
    #[track_caller]
    pub fn put(&self, data: &HostTensor) -> Result<Handle> {
        let site = CallSite::here();
        self.to(|target| target.put(data, site))
    }

    /// As [`Channel::put`], but never shared, and counted as `kind`.
    #[track_caller]
    pub fn put_as(&self, data: &HostTensor, kind: Kind) -> Result<Handle> {
        let site = CallSite::here();
        self.to(|target| target.put_as(data, kind, site))
    }

    /// Copies a tensor of another device (or of this one) to this device. Errors: Closed.
    #[track_caller]
    pub fn copy_from(&self, from: &Handle) -> Result<Handle> {
        if Arc::ptr_eq(&from.0.shared, &self.shared) {
            return Ok(from.clone());
        }
        let site = CallSite::here();
        self.to(|target| target.copy_from(from, site))
    }

    /// Applies an op. A handle that comes in by value and is the last on its tensor ends here: an output may take over
    /// its storage.
    ///
    /// Errors: those of inference; Device for a tensor of another device; Closed; with less than full asynchrony also
    /// the op's own errors.
    #[track_caller]
    pub fn apply(&self, op: impl Into<OpRef>, x: SmallVec<[Handle; 4]>) -> Result<SmallVec<[Handle; 2]>> {
        self.apply_at(op.into(), x, CallSite::here())
    }

    /// Applies an op whose outputs replace inputs: output `j` is the new version of input `replaces[j]`. The output is
    /// the old version if the op fails on the device, or if another command has failed since the last
    /// [`Channel::step_mark`]. So no version is lost. Errors: as [`Channel::apply`], with the old versions.
    #[track_caller]
    pub fn update(
        &self,
        op: impl Into<OpRef>,
        x: SmallVec<[Handle; 4]>,
        replaces: &[Option<u16>],
    ) -> std::result::Result<SmallVec<[Handle; 2]>, NotUpdated> {
        self.update_at(op.into(), x, SmallVec::from_slice(replaces), CallSite::here())
    }

    /// As [`Channel::apply`], for a given place in the user's program.
    pub fn apply_at(&self, op: OpRef, x: SmallVec<[Handle; 4]>, site: CallSite) -> Result<SmallVec<[Handle; 2]>> {
        Ok(self.update_at(op, x, SmallVec::new(), site)?)
    }

    /// As [`Channel::update`], for a given place in the user's program.
    pub fn update_at(&self, op: OpRef, x: SmallVec<[Handle; 4]>, fallback: Fallback, site: CallSite) -> Applied {
        self.to(|target| target.update(op, x, fallback, site))
    }

    /// The backward graph for `key`, built at its first use on this device. `y` has the facts of the forward outputs.
    pub fn backward(&self, key: BackwardKey, y: &[Fact]) -> Result<Arc<Backward>> {
        self.shared.backward.lock().unwrap_or_else(PoisonError::into_inner).get(key, y)
    }

    /// The forward values that a tape keeps for `key`; see [`remat_ops::BackwardCache::saves`].
    pub fn saves(&self, key: &BackwardKey, y: &[Fact]) -> Result<SaveMask> {
        self.shared.backward.lock().unwrap_or_else(PoisonError::into_inner).saves(key, y)
    }

    /// The tensor's value. Known small integers come at once. Otherwise the call waits for this tensor only. Several
    /// threads may wait. Errors: the failure of the tensor, or the failure that held back the update of the tensor,
    /// once. Later calls give an error of kind Poisoned, or the old version. Budget if the tensor cannot be recomputed.
    #[track_caller]
    pub fn value(&self, h: &Handle) -> Result<HostTensor> {
        if let Some(v) = &h.fact().value {
            return Ok((**v).clone());
        }
        let site = CallSite::here();
        trace::no_value(h).map_err(|e| e.with_call_site(site))?;
        self.own(h)?;
        let told = self.shared.failures.told();
        let value = self.ask(|reply| Command::Fetch { id: h.id(), reply });
        if value.is_err() && self.shared.failures.told() == told {
            // the read itself failed, in the step of its request
            self.note_failed_call();
        }
        value
    }

    /// How many failures were reported.
    pub(crate) fn failures_told(&self) -> u64 {
        self.shared.failures.told()
    }

    /// A call of this thread reports an error of its own, which fails the present step.
    pub(crate) fn note_failed_call(&self) {
        let moment = self.moment();
        self.shared.failures.note_told(moment.caller, moment.step);
    }

    /// Waits until the tensor's bytes exist. Errors as [`Channel::value`].
    #[track_caller]
    pub fn wait(&self, h: &Handle) -> Result<()> {
        let site = CallSite::here();
        trace::no_value(h).map_err(|e| e.with_call_site(site))?;
        self.own(h)?;
        self.ask(|reply| Command::Await { id: h.id(), reply })
    }

    /// Extents; never waits.
    pub fn shape<'h>(&self, h: &'h Handle) -> &'h Shape {
        &h.fact().shape
    }

    /// Element type; never waits.
    pub fn dtype(&self, h: &Handle) -> DType {
        h.fact().dtype
    }

    /// Frees the tensor's bytes now if they can be recomputed. The handle stays valid.
    pub fn drop_value(&self, h: &Handle) -> Result<()> {
        self.own(h)?;
        if h.is_traced() {
            return Ok(());
        }
        self.push(Command::DropValue { id: h.id() })
    }

    /// Declares the tensor to be state. From now on it counts as `kind` and is kept, not recomputed, so the commands
    /// that made it need not be remembered.
    pub fn commit(&self, h: &Handle, kind: Kind) -> Result<()> {
        self.own(h)?;
        if h.is_traced() {
            return Ok(());
        }
        self.push(Command::Commit { id: h.id(), kind, caller: Caller::current() })
    }

    /// Says that gradients end at the tensor, as at a parameter. A program that makes new parameters from old ones in
    /// each step marks the end of a step's history so. The runtime may forget values that only lead to such tensors.
    pub fn note_leaf(&self, h: &Handle) -> Result<()> {
        self.own(h)?;
        if h.is_traced() {
            return Ok(());
        }
        self.push(Command::NoteLeaf { id: h.id() })
    }

    /// [`Channel::commit`] of a tensor that takes the place of `old`. If the tensor failed, its name stands for `old`,
    /// as after a failed update: the next read reports the failure once, and later reads give the old value.
    pub fn commit_in_place_of(&self, h: &Handle, old: &Handle, kind: Kind) -> Result<()> {
        self.commit(h, kind)?;
        self.fall_back(h, old)
    }

    /// Lets a tensor's name stand for `old` if the tensor failed, as [`Channel::commit_in_place_of`] does.
    pub fn fall_back(&self, h: &Handle, old: &Handle) -> Result<()> {
        if h.is_traced() || old.is_traced() {
            return Ok(());
        }
        self.own(old)?;
        self.push(Command::FallBack { id: h.id(), old: old.id(), caller: Caller::current() })
    }

    /// Counts the tensor as `kind` in reports.
    pub fn tag(&self, h: &Handle, kind: Kind) -> Result<()> {
        self.own(h)?;
        if h.is_traced() {
            return Ok(());
        }
        self.push(Command::Tag { id: h.id(), kind })
    }

    /// Waits until everything queued so far has run. Errors: the first failure that no call has reported.
    pub fn sync(&self) -> Result<()> {
        self.ask(|reply| Command::Sync { reply })
    }

    /// Brings the ranks together after an error on a device of several ranks
    /// ([`DeviceOptions::ranks`](crate::DeviceOptions::ranks)). It waits until all of them call this function. Then
    /// they continue together, however much of the step each has queued. Does nothing on other devices.
    ///
    /// Errors (Peer): a rank is gone, or does not come.
    pub fn meet_again(&self) -> Result<()> {
        self.to(|target| target.meet_again())
    }

    /// Ends this thread's step. A failure before this mark no longer holds back updates after it. The call waits until
    /// the worker has passed the previous mark, so that the failures of that step are known. Errors: as
    /// [`Channel::check`]; Closed.
    pub fn step_mark(&self) -> Result<()> {
        self.to(|target| target.mark_step())
    }

    /// Gives this thread's step up after an error: as [`Channel::step_mark`], and no call reports further failures of
    /// the step. Waits for the step. Errors: Closed.
    pub fn give_up_step(&self) -> Result<()> {
        self.to(|target| target.give_up_step())
    }

    /// Reports a failure of this thread's commands that no call has reported yet. It waits only after a failure, and
    /// then for the last [`Channel::step_mark`]: otherwise the updates of the failed step might not be held back.
    /// Errors: that failure.
    pub fn check(&self) -> Result<()> {
        self.to(|target| target.check())
    }

    /// As [`Channel::check`], for all commands up to this thread's last [`Channel::step_mark`]. Waits for that mark.
    pub fn check_step(&self) -> Result<()> {
        self.to(|target| target.check_step())
    }
}

/// The error of a trace's tensor that is used outside the trace.
fn outlived() -> Error {
    let text = "a tensor of a compiled function was used outside of it; return it from the function instead";
    Error::new(ErrorKind::Value, text)
}

impl ApplySeam for Channel {
    type Value = Handle;

    #[track_caller]
    fn apply(&self, op: OpRef, x: SmallVec<[Handle; 4]>) -> Result<SmallVec<[Handle; 2]>> {
        self.apply_at(op, x, CallSite::here())
    }

    fn fact(&self, v: &Handle) -> Fact {
        v.fact().clone()
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({}, stream {})", self.shared.name, self.stream.0)
    }
}
