//! Calls that go to a device's queue.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use remat_ops::{Apply as ApplySeam, OpRef, fold};
use remat_types::{CallSite, Error, ErrorKind, Fact, Facts, HostTensor, Result, Scope, SmallVec};
use rustc_hash::FxHashMap;

use super::channel::Channel;
use super::command::{Apply, Command, Put, PutFrom, Until};
use super::failure::Caller;
use super::group;
use super::handle::{Handle, HandleInner, TensorId};
use super::launcher::programs::workspace_bytes;
use super::queue::Reply;
use super::target::{Applied, Fallback, Target, kept};
use super::update::NotUpdated;
use crate::executable::Executable;
use crate::options::AsyncLevel;
use crate::profile::{Lane, Span};
use crate::report::Kind;
use remat_device::check_supported;

/// Host tensors of at most this many bytes are put once, and shared while a handle on them lives.
const CONSTANT_MAX_BYTES: usize = 64;

/// The cache of constants drops dead entries when it reaches this size.
const CONSTANTS_SWEEP: usize = 256;

/// The small constants that were put before.
#[derive(Default)]
pub(super) struct Constants(FxHashMap<HostTensor, Weak<HandleInner>>);

/// A channel whose calls are queued for the worker.
pub(super) struct Queued<'c>(pub(super) &'c Channel);

impl Target for Queued<'_> {
    fn update(&self, op: OpRef, x: SmallVec<[Handle; 4]>, fallback: Fallback, site: CallSite) -> Applied {
        let started = self.0.shared.tracing.load(Ordering::Relaxed).then(std::time::Instant::now);
        let (refs, facts) = match self.infer(&op, &x, site) {
            Ok(checked) => checked,
            Err(error) => return Err(NotUpdated { error, old: kept(&x, &fallback) }),
        };
        // An executable was planned for the device's threads, which folding on the host does not use.
        if self.0.shared.options.host_compute
            && fallback.is_empty()
            && !op.as_any().is::<Executable>()
            && let Some(values) = fold(&*op, &refs, &facts)
        {
            let values = values.map_err(|e| e.with_call_site(site))?;
            return Ok(values.iter().map(|v| self.put_as(v, Kind::Data, site)).collect::<Result<_>>()?);
        }
        let workspace_bytes = workspace_bytes(&op, &refs, &self.0.shared.kernels);
        drop(refs);
        let label = op.label();
        let y = self.enqueue(op, x, facts, workspace_bytes, fallback, site)?;
        if let Some(started) = started {
            self.trace_dispatch(label, started);
        }
        Ok(y)
    }

    fn put(&self, data: &HostTensor, site: CallSite) -> Result<Handle> {
        if data.bytes().len() > CONSTANT_MAX_BYTES {
            return self.put_as(data, Kind::Data, site);
        }
        let constants = || self.0.shared.constants.lock().unwrap_or_else(PoisonError::into_inner);
        let known = constants().0.get(data).and_then(Weak::upgrade);
        if let Some(h) = known {
            self.0.shared.queue.check_open()?;
            return Ok(Handle(h));
        }
        // without the lock, since this may wait for room
        let h = self.put_as(data, Kind::Data, site)?;
        let mut constants = constants();
        if constants.0.len() >= CONSTANTS_SWEEP {
            constants.0.retain(|_, h| h.strong_count() > 0);
        }
        constants.0.insert(data.clone(), Arc::downgrade(&h.0));
        Ok(h)
    }

    fn put_as(&self, data: &HostTensor, kind: Kind, site: CallSite) -> Result<Handle> {
        let id = self.0.new_id();
        let caller = Caller::current();
        let put = Put { id, data: data.clone(), kind, stream: self.0.stream, site, caller };
        self.0.shared.queue.push_put(Command::Put(Box::new(put)), data.bytes().len())?;
        Ok(self.0.handle(id, Fact::of(data)))
    }

    fn copy_from(&self, from: &Handle, site: CallSite) -> Result<Handle> {
        let id = self.0.new_id();
        let (fact, stream) = (from.fact().clone(), self.0.stream);
        let (reply, value) = Reply::new();
        from.channel().send_group(false, false)?;
        from.0.shared.queue.push(Command::CopyOut { id: from.id(), reply })?;
        let put = PutFrom { id, value, fact: fact.clone(), stream, site, caller: Caller::current() };
        self.0.shared.queue.push_put(Command::PutFrom(Box::new(put)), fact.bytes())?;
        Ok(self.0.handle(id, fact))
    }

    fn mark_step(&self) -> Result<()> {
        self.0.send_group(false, false)?;
        self.wait_for_mark()?;
        self.push_mark(false)?;
        self.check()
    }

    fn give_up_step(&self) -> Result<()> {
        self.0.send_group(false, false)?;
        self.push_mark(true)?;
        // Until the worker passes the mark, earlier commands may still fail. The next call would report them.
        self.wait_for_mark()
    }

    fn check(&self) -> Result<()> {
        let caller = Caller::current();
        if !self.0.shared.failures.concern(caller) {
            return Ok(());
        }
        self.wait_for_mark()?;
        self.0.shared.failures.take(Some(caller)).map_or(Ok(()), Err)
    }

    fn check_step(&self) -> Result<()> {
        self.wait_for_mark()?;
        self.check()
    }

    fn meet_again(&self) -> Result<()> {
        match self.0.shared.options.ranks.as_ref().is_some_and(|r| r.size() > 1) {
            true => self.0.ask(|reply| Command::MeetAgain { reply }),
            false => Ok(()),
        }
    }
}

impl ApplySeam for Queued<'_> {
    type Value = Handle;

    #[track_caller]
    fn apply(&self, op: OpRef, x: SmallVec<[Handle; 4]>) -> Result<SmallVec<[Handle; 2]>> {
        Ok(self.update(op, x, Fallback::new(), CallSite::here())?)
    }

    fn fact(&self, v: &Handle) -> Fact {
        v.fact().clone()
    }
}

impl Queued<'_> {
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
            self.0.own(h).map_err(|e| e.with_op(op.label()).with_call_site(site))?;
        }
        if !self.0.shared.options.host_fallback {
            check_supported(&*self.0.shared.kernels, &**op, &refs).map_err(|e| e.with_call_site(site))?;
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
            start_ns: started.duration_since(self.0.shared.opened).as_nanos() as u64,
            duration_ns: started.elapsed().as_nanos() as u64,
            bytes: 0,
        };
        self.0.shared.dispatch_trace.lock().unwrap_or_else(PoisonError::into_inner).span(span);
    }

    fn enqueue(
        &self,
        op: OpRef,
        x: SmallVec<[Handle; 4]>,
        facts: Facts,
        workspace_bytes: usize,
        fallback: Fallback,
        site: CallSite,
    ) -> Applied {
        let mut ids: SmallVec<[TensorId; 2]> = SmallVec::new();
        let mut handles: SmallVec<[Handle; 2]> = SmallVec::new();
        for f in &facts {
            let id = self.0.new_id();
            ids.push(id);
            handles.push(self.0.handle(id, f.clone()));
        }
        let until = match self.0.shared.options.async_level {
            AsyncLevel::Full => None,
            // For a group, only the whole is waited for.
            _ if group::is_open(&self.0.shared.queue) => None,
            AsyncLevel::Sync => Some(Until::Finished),
            AsyncLevel::Launched => Some(Until::Launched),
        };
        let (done, waited) = until.map_or((None, None), |u| {
            let (reply, answer) = Reply::new();
            (Some((reply, u)), Some((answer, fallback.clone())))
        });
        // Handles with other owners are released only after the command is queued: their deletes must follow it.
        let mut living: SmallVec<[Handle; 4]> = SmallVec::new();
        let mut inputs: SmallVec<[(TensorId, bool); 4]> = SmallVec::new();
        for h in x {
            let id = h.id();
            let ended = h.end().map_err(|h| living.push(h));
            inputs.push((id, ended.is_ok()));
        }
        let scope = Scope::current();
        let stream = self.0.stream;
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
        if let Err((a, living)) = group::collect_apply(&self.0.shared.queue, a, living) {
            self.0.shared.queue.push_apply(a)?;
            drop(living);
        }
        if let Some((answer, fallback)) = waited
            && let Err(error) = answer.wait()
        {
            // The worker has bound the outputs of a failed update to the old versions.
            return Err(NotUpdated { error, old: fallback.iter().zip(handles).map(|(i, h)| i.map(|_| h)).collect() });
        }
        Ok(handles)
    }

    /// Waits until the worker has passed this thread's last mark.
    fn wait_for_mark(&self) -> Result<()> {
        let mut marks = self.0.shared.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = marks.get_mut(&Caller::current()).and_then(|own| own.last.take());
        drop(marks);
        passed.map_or(Ok(()), |passed| passed.wait())
    }

    fn push_mark(&self, is_given_up: bool) -> Result<()> {
        let (done, passed) = Reply::new();
        let caller = Caller::current();
        self.0.shared.queue.push(Command::StepMark { caller, is_given_up, done: Some(done) })?;
        let mut marks = self.0.shared.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let own = marks.entry(caller).or_default();
        (own.count, own.last) = (own.count + 1, Some(passed));
        Ok(())
    }
}
