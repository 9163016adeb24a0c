//! The caller's side: inference, handles, commands.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};

use remat_ops::{Apply as ApplySeam, Backward, BackwardKey, OpRef, SaveMask, fold};
use remat_types::{CallSite, DType, Error, ErrorKind, Fact, Facts, HostTensor, Result, Scope, Shape, SmallVec};
use rustc_hash::FxHashMap;

use super::command::{Apply, Command, Put, PutFrom, Until};
use super::device::{Device, Shared};
use super::failure::Caller;
use super::group;
use super::handle::{Handle, HandleInner, TensorId};
use super::launcher::programs::workspace_bytes;
use super::queue::Reply;
use super::trace;
use super::update::NotUpdated;
use crate::executable::Executable;
use crate::options::AsyncLevel;
use crate::profile::{Lane, Span};
use crate::report::Kind;
use remat_device::{StreamId, check_supported};

/// Host tensors of at most this many bytes are put once and shared, while a handle on them lives.
const CONSTANT_MAX_BYTES: usize = 64;

/// Entries after which dead ones are swept from the cache of constants.
const CONSTANTS_SWEEP: usize = 256;

/// Small constants that were put before.
#[derive(Default)]
pub(super) struct Constants(FxHashMap<HostTensor, Weak<HandleInner>>);

/// A caller's way to a stream of a device. Clones are cheap, and any number of threads may use them.
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

    fn new_id(&self) -> TensorId {
        TensorId(self.shared.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// [`TensorId::order`] of what exists is below this, and of what is made from now on at least this.
    pub fn next_order(&self) -> u64 {
        self.shared.next_id.load(Ordering::Relaxed)
    }

    fn handle(&self, id: TensorId, fact: Fact) -> Handle {
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

    fn own(&self, h: &Handle) -> Result<()> {
        if Arc::ptr_eq(&h.0.shared, &self.shared) {
            return if h.is_traced() && !trace::is_tracing() { Err(outlived()) } else { Ok(()) };
        }
        let text = format!("the tensor belongs to another device than {}; copy it there first", self.shared.name);
        Err(Error::new(ErrorKind::Device, text))
    }

    /// Copies a host tensor to the device. Small ones are shared with earlier equal ones. Errors: Closed.
    #[track_caller]
    pub fn put(&self, data: &HostTensor) -> Result<Handle> {
        if data.bytes().len() > CONSTANT_MAX_BYTES || trace::is_tracing() {
            return self.put_as(data, Kind::Data);
        }
        let constants = || self.shared.constants.lock().unwrap_or_else(PoisonError::into_inner);
        let known = constants().0.get(data).and_then(Weak::upgrade);
        if let Some(h) = known {
            self.shared.queue.check_open()?;
            return Ok(Handle(h));
        }
        // without the lock: this may wait for room
        let h = self.put_as(data, Kind::Data)?;
        let mut constants = constants();
        if constants.0.len() >= CONSTANTS_SWEEP {
            constants.0.retain(|_, h| h.strong_count() > 0);
        }
        constants.0.insert(data.clone(), Arc::downgrade(&h.0));
        Ok(h)
    }

    /// As [`Channel::put`], never shared, and counted as `kind`.
    #[track_caller]
    pub fn put_as(&self, data: &HostTensor, kind: Kind) -> Result<Handle> {
        if trace::is_tracing() {
            return trace::put(self, data);
        }
        let id = self.new_id();
        let (site, caller) = (CallSite::here(), Caller::current());
        let put = Put { id, data: data.clone(), kind, stream: self.stream, site, caller };
        self.shared.queue.push_put(Command::Put(Box::new(put)), data.bytes().len())?;
        Ok(self.handle(id, Fact::of(data)))
    }

    /// Copies a tensor of another device (or of this one) to this device. Errors: Closed.
    #[track_caller]
    pub fn copy_from(&self, from: &Handle) -> Result<Handle> {
        if Arc::ptr_eq(&from.0.shared, &self.shared) {
            return Ok(from.clone());
        }
        if trace::is_tracing() {
            let text = "a compiled function works on one device: copy tensors there before it is called";
            return Err(Error::new(ErrorKind::Device, text));
        }
        let id = self.new_id();
        let (fact, stream, site) = (from.fact().clone(), self.stream, CallSite::here());
        let (reply, value) = Reply::new();
        from.channel().send_group(false, false)?;
        from.0.shared.queue.push(Command::CopyOut { id: from.id(), reply })?;
        let put = PutFrom { id, value, fact: fact.clone(), stream, site, caller: Caller::current() };
        self.shared.queue.push_put(Command::PutFrom(Box::new(put)), fact.bytes())?;
        Ok(self.handle(id, fact))
    }

    /// Applies an op. Handles that come in by value and are the last on their tensor end here: their storage may
    /// become an output's.
    ///
    /// Errors: what inference finds; Device for a tensor of another device; Closed; and with less than full
    /// asynchrony the op's own errors.
    #[track_caller]
    pub fn apply(&self, op: impl Into<OpRef>, x: SmallVec<[Handle; 4]>) -> Result<SmallVec<[Handle; 2]>> {
        self.apply_at(op.into(), x, CallSite::here())
    }

    /// Applies an op whose outputs replace inputs: output `j` is the new version of input `replaces[j]`. If it fails on
    /// the device, or anything failed since the last [`Channel::step_mark`], the output is the old version: nothing is
    /// lost. Errors: as [`Channel::apply`], with the old versions.
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
    pub fn update_at(
        &self,
        op: OpRef,
        x: SmallVec<[Handle; 4]>,
        fallback: SmallVec<[Option<u16>; 2]>,
        site: CallSite,
    ) -> std::result::Result<SmallVec<[Handle; 2]>, NotUpdated> {
        if trace::is_tracing() {
            return trace::apply(self, op, &x, site).map_err(|error| NotUpdated { error, old: kept(&x, &fallback) });
        }
        let started = self.shared.tracing.load(Ordering::Relaxed).then(std::time::Instant::now);
        let (refs, facts) = match self.infer(&op, &x, site) {
            Ok(checked) => checked,
            Err(error) => return Err(NotUpdated { error, old: kept(&x, &fallback) }),
        };
        // An executable was planned for the device's threads, which the host's folding does not have.
        if self.shared.options.host_compute
            && fallback.is_empty()
            && !op.as_any().is::<Executable>()
            && let Some(values) = fold(&*op, &refs, &facts)
        {
            let values = values.map_err(|e| e.with_call_site(site))?;
            return Ok(values.iter().map(|v| self.put_as(v, Kind::Data)).collect::<Result<_>>()?);
        }
        let workspace_bytes = workspace_bytes(&op, &refs, &self.shared.kernels);
        drop(refs);
        let label = op.label();
        let y = self.enqueue(op, x, facts, workspace_bytes, fallback, site)?;
        if let Some(started) = started {
            self.trace_dispatch(label, started);
        }
        Ok(y)
    }

    /// Checks a call's arguments; returns the facts of its inputs and outputs.
    #[inline]
    fn infer<'x>(
        &self,
        op: &OpRef,
        x: &'x SmallVec<[Handle; 4]>,
        site: CallSite,
    ) -> Result<(SmallVec<[&'x Fact; 4]>, Facts)> {
        // Vectors are filled by pushes on this path: collecting into a SmallVec costs several times as much.
        let mut refs: SmallVec<[&Fact; 4]> = SmallVec::new();
        x.iter().for_each(|h| refs.push(h.fact()));
        let facts = op.infer(&refs).map_err(|e| e.with_call_site(site))?;
        for h in x {
            self.own(h).map_err(|e| e.with_op(op.label()).with_call_site(site))?;
        }
        if !self.shared.options.host_fallback {
            check_supported(&*self.shared.kernels, &**op, &refs).map_err(|e| e.with_call_site(site))?;
        }
        if let Some(i) = op.host_inputs().iter().find(|i| refs.get(**i).is_none_or(|f| f.value.is_none())) {
            let text = format!("the value of input {i} decides the shape and must be known on the host");
            return Err(Error::new(ErrorKind::NoValue, text).with_op(op.label()).with_call_site(site));
        }
        Ok((refs, facts))
    }

    fn trace_dispatch(&self, name: &'static str, started: std::time::Instant) {
        let span = Span {
            lane: Lane::Dispatch,
            name,
            scope: Scope::current(),
            start_ns: started.duration_since(self.shared.opened).as_nanos() as u64,
            duration_ns: started.elapsed().as_nanos() as u64,
            bytes: 0,
        };
        self.shared.dispatch_trace.lock().unwrap_or_else(PoisonError::into_inner).span(span);
    }

    fn enqueue(
        &self,
        op: OpRef,
        x: SmallVec<[Handle; 4]>,
        facts: Facts,
        workspace_bytes: usize,
        fallback: SmallVec<[Option<u16>; 2]>,
        site: CallSite,
    ) -> std::result::Result<SmallVec<[Handle; 2]>, NotUpdated> {
        let mut ids: SmallVec<[TensorId; 2]> = SmallVec::new();
        let mut handles: SmallVec<[Handle; 2]> = SmallVec::new();
        for f in &facts {
            let id = self.new_id();
            ids.push(id);
            handles.push(self.handle(id, f.clone()));
        }
        let until = match self.shared.options.async_level {
            AsyncLevel::Full => None,
            // Of a group the whole is waited for.
            _ if group::is_open(&self.shared.queue) => None,
            AsyncLevel::Sync => Some(Until::Finished),
            AsyncLevel::Launched => Some(Until::Launched),
        };
        let (done, waited) = until.map_or((None, None), |u| {
            let (reply, answer) = Reply::new();
            (Some((reply, u)), Some((answer, fallback.clone())))
        });
        // Handles that live on are let go only after the command is queued: their delete must come behind it.
        let mut living: SmallVec<[Handle; 4]> = SmallVec::new();
        let mut inputs: SmallVec<[(TensorId, bool); 4]> = SmallVec::new();
        for h in x {
            let id = h.id();
            let ended = h.end().map_err(|h| living.push(h));
            inputs.push((id, ended.is_ok()));
        }
        let scope = Scope::current();
        let stream = self.stream;
        let a = Apply {
            op,
            x: inputs,
            y: ids,
            facts,
            workspace_bytes,
            fallback,
            stream,
            site,
            caller: Caller::current(),
            scope,
            done,
        };
        if let Err((a, living)) = group::collect_apply(&self.shared.queue, a, living) {
            self.shared.queue.push_apply(a)?;
            drop(living);
        }
        if let Some((answer, fallback)) = waited
            && let Err(error) = answer.wait()
        {
            // The worker has made the outputs of a failed update the old versions.
            return Err(NotUpdated { error, old: fallback.iter().zip(handles).map(|(i, h)| i.map(|_| h)).collect() });
        }
        Ok(handles)
    }

    /// The backward graph for `key`, built at its first use on this device. `y` are the facts of the forward outputs.
    pub fn backward(&self, key: BackwardKey, y: &[Fact]) -> Result<Arc<Backward>> {
        self.shared.backward.lock().unwrap_or_else(PoisonError::into_inner).get(key, y)
    }

    /// The forward values that a tape keeps for `key`; see [`remat_ops::BackwardCache::saves`].
    pub fn saves(&self, key: &BackwardKey, y: &[Fact]) -> Result<SaveMask> {
        self.shared.backward.lock().unwrap_or_else(PoisonError::into_inner).saves(key, y)
    }

    /// The tensor's value. Known small integers come at once; otherwise waits for this tensor only. Several threads
    /// may wait. Errors: what made the tensor fail, or held back the update that should have made it, once; Poisoned after
    /// that, or the old version; Budget if it cannot be brought back.
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
            // the read itself failed, in the step in which it was asked for
            let moment = self.moment();
            self.shared.failures.note_told(moment.caller, moment.step);
        }
        value
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

    /// Frees the tensor's bytes now if they can be recomputed; the handle stays good.
    pub fn drop_value(&self, h: &Handle) -> Result<()> {
        self.own(h)?;
        if h.is_traced() {
            return Ok(());
        }
        self.push(Command::DropValue { id: h.id() })
    }

    /// Declares the tensor to be state: from now on it counts as `kind` and is kept, not recomputed, so that nothing
    /// that made it needs to be remembered.
    pub fn commit(&self, h: &Handle, kind: Kind) -> Result<()> {
        self.own(h)?;
        if h.is_traced() {
            return Ok(());
        }
        self.push(Command::Commit { id: h.id(), kind, caller: Caller::current() })
    }

    /// Says that gradients end at the tensor, as at a parameter. A program that makes new parameters of old ones in each step
    /// so says where a step's history ends: what only leads to them may be forgotten.
    pub fn note_leaf(&self, h: &Handle) -> Result<()> {
        self.own(h)?;
        if h.is_traced() {
            return Ok(());
        }
        self.push(Command::NoteLeaf { id: h.id() })
    }

    /// [`Channel::commit`] of a tensor that takes the place of `old`. If it failed, it stands for that, as an update that failed
    /// does: what reads it is told once, and then reads the old one.
    pub fn commit_in_place_of(&self, h: &Handle, old: &Handle, kind: Kind) -> Result<()> {
        self.commit(h, kind)?;
        self.fall_back(h, old)
    }

    /// Lets a tensor that takes the place of `old` stand for that if it failed, as [`Channel::commit_in_place_of`] does.
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

    /// Waits until everything queued so far has run. Errors: the first failure that was not reported yet.
    pub fn sync(&self) -> Result<()> {
        self.ask(|reply| Command::Sync { reply })
    }

    /// After an error on a device of several ranks ([`DeviceOptions::ranks`](crate::DeviceOptions::ranks)): waits until all of them call
    /// this, so that they go on together however much of the step each has queued. Does nothing on other devices.
    ///
    /// Errors (Peer): a rank is gone, or does not come.
    pub fn meet_again(&self) -> Result<()> {
        match self.shared.options.ranks.as_ref().is_some_and(|r| r.size() > 1) && !trace::is_tracing() {
            true => self.ask(|reply| Command::MeetAgain { reply }),
            false => Ok(()),
        }
    }

    /// Ends this thread's step: a failure before this mark no longer holds back updates after it. Waits until the mark
    /// before it has been passed, so that what failed in the step before is known. Errors: as [`Channel::check`]; Closed.
    pub fn step_mark(&self) -> Result<()> {
        if trace::is_tracing() {
            return trace::mark_step();
        }
        self.send_group(false, false)?;
        self.wait_for_mark()?;
        self.push_mark(false)?;
        self.check()
    }

    /// Gives this thread's step up after an error: as [`Channel::step_mark`], and what else failed in the step is not told any
    /// more. Waits for the step. Errors: Closed.
    pub fn give_up_step(&self) -> Result<()> {
        if trace::is_tracing() {
            return trace::mark_step();
        }
        self.send_group(false, false)?;
        self.push_mark(true)?;
        // Until the mark has passed, what is queued before it may still fail, and would be told by the next call.
        self.wait_for_mark()
    }

    /// Waits until this thread's last mark has been passed.
    fn wait_for_mark(&self) -> Result<()> {
        let mut marks = self.shared.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = marks.get_mut(&Caller::current()).and_then(|own| own.last.take());
        drop(marks);
        passed.map_or(Ok(()), |passed| passed.wait())
    }

    fn push_mark(&self, is_given_up: bool) -> Result<()> {
        let (done, passed) = Reply::new();
        let caller = Caller::current();
        self.shared.queue.push(Command::StepMark { caller, is_given_up, done: Some(done) })?;
        let mut marks = self.shared.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let own = marks.entry(caller).or_default();
        (own.count, own.last) = (own.count + 1, Some(passed));
        Ok(())
    }

    /// Tells what failed of what this thread asked for, if no call has told it yet. Waits only if something failed, for the
    /// last [`Channel::step_mark`]: of a failure that was told before, the updates of its step would not have been held back.
    /// Errors: that failure.
    pub fn check(&self) -> Result<()> {
        if trace::is_tracing() {
            return Ok(());
        }
        let caller = Caller::current();
        if !self.shared.failures.concern(caller) {
            return Ok(());
        }
        self.wait_for_mark()?;
        self.shared.failures.take(Some(caller)).map_or(Ok(()), Err)
    }

    /// As [`Channel::check`], of everything up to this thread's last [`Channel::step_mark`], for which it waits.
    pub fn check_step(&self) -> Result<()> {
        if trace::is_tracing() {
            return Ok(());
        }
        self.wait_for_mark()?;
        self.check()
    }
}

/// A tensor of a trace came out of it.
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

/// The inputs that outputs were to replace.
fn kept(x: &[Handle], fallback: &[Option<u16>]) -> SmallVec<[Option<Handle>; 2]> {
    fallback.iter().map(|i| x.get(usize::from((*i)?)).cloned()).collect()
}
