//! The worker thread: owns all state and runs commands in order.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use remat_ops::{OpRef, shape::Contiguous};
use remat_types::{
    CallSite, DType, Error, ErrorKind, Fact, Facts, HostTensor, Layout, Result, Shape, SmallVec, smallvec,
};
use rustc_hash::FxHashMap;

use super::command::{Apply, Command, Until};
use super::failure::Failure;
use super::future::Future;
use super::handle::TensorId;
use super::memory::Ledger;
use super::queue::Queue;
use super::run::Call;
use super::table::{Recipe, Slot, Source, StorageId, Table};
use crate::arena::{Arena, End, padded};
use crate::device::{Backend, Buffer, Event, Launch, StreamId};
use crate::options::DeviceOptions;
use crate::profile::Trace;
use crate::remat::CommandStream;
use crate::report::{HolderBytes, Kind, MemoryReport, OpRecompute, Stats};
use crate::slab::Key;

/// Dtypes and shapes of an op's inputs, as a key of measured times.
pub(super) type CostShapes = SmallVec<[(DType, Shape); 4]>;

/// A chain of recipes this long ends in a source, so that a loop without end does not keep records without end.
const MAX_RECIPE_DEPTH: u32 = 10_000;

pub(super) struct Worker {
    pub(super) backend: Box<dyn Backend>,
    pub(super) options: DeviceOptions,
    pub(super) budget: Option<usize>,
    pub(super) table: Table,
    pub(super) arena: Arena,
    pub(super) ledger: Ledger,
    pub(super) costs: FxHashMap<(OpRef, CostShapes), f64>,
    pub(super) stats: Stats,
    pub(super) recomputed: FxHashMap<&'static str, (u64, u64)>,
    pub(super) trace: Option<Trace>,
    pub(super) recording: Option<CommandStream>,
    /// Time of the last op that ran for the first time.
    pub(super) last_run_ns: u64,
    /// Freed ranges that work in flight may still use: (start, end, last use).
    pub(super) hazards: Vec<(usize, usize, Event)>,
    /// The op being run, for errors.
    pub(super) running: &'static str,
    /// Bytes the running op needs besides those placed already, for errors.
    pub(super) still_needed: usize,
    pub(super) visited: Vec<u64>,
    pub(super) visit_epoch: u64,
    pub(super) now_ns: u64,
    pub(super) contiguous: OpRef,
    pub(super) spare_launch: Option<Box<Launch>>,
    pub(super) future: Future,
    /// Commands taken from the queue and not yet run.
    pending: VecDeque<Command>,
    /// None when commands are stepped by hand.
    queue: Option<Arc<Queue>>,
    unreported: VecDeque<Rc<Failure>>,
    /// The first failure since the last step mark: updates are skipped while it stands.
    step_failure: Option<Rc<Failure>>,
    /// On asynchronous devices, the last event of each stream, now and at the last step mark.
    pub(super) last_events: SmallVec<[Event; 2]>,
    step_marks: SmallVec<[Event; 2]>,
}

/// Why a command did not run.
pub(super) enum Stop {
    /// It failed itself.
    Own(Error),
    /// It depends on a failure.
    Inherited(Rc<Failure>),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Own(e)
    }
}

impl Worker {
    pub(super) fn new(mut backend: Box<dyn Backend>, options: DeviceOptions) -> Result<Self> {
        let capacity = options.budget_bytes.unwrap_or(0);
        backend.reserve(capacity)?;
        Ok(Worker {
            backend,
            budget: options.budget_bytes,
            options,
            table: Table::new(),
            arena: Arena::new(capacity),
            ledger: Ledger::default(),
            costs: FxHashMap::default(),
            stats: Stats::default(),
            recomputed: FxHashMap::default(),
            trace: None,
            recording: None,
            last_run_ns: 0,
            hazards: Vec::new(),
            running: "",
            still_needed: 0,
            visited: Vec::new(),
            visit_epoch: 0,
            now_ns: 0,
            contiguous: OpRef::new(Contiguous),
            spare_launch: None,
            future: Future::default(),
            pending: VecDeque::new(),
            queue: None,
            unreported: VecDeque::new(),
            step_failure: None,
            last_events: SmallVec::new(),
            step_marks: SmallVec::new(),
        })
    }

    /// Runs commands until the queue is closed.
    pub(super) fn serve(mut self, queue: &Arc<Queue>) {
        self.queue = Some(queue.clone());
        loop {
            self.take_batch(queue);
            while let Some(command) = self.pending.pop_front() {
                if let Command::Close { reply } = command {
                    let rest = queue.close("the device was closed");
                    let closed = || Error::new(ErrorKind::Closed, "the device was closed");
                    self.pending.drain(..).chain(rest).for_each(|c| c.refuse(closed));
                    let result = self.sync();
                    drop(self);
                    reply.send(result);
                    return;
                }
                let before = self.now_ns;
                self.step(command);
                self.future.advance(self.now_ns.saturating_sub(before));
            }
        }
    }

    /// Waits for commands and notes what they will use.
    fn take_batch(&mut self, queue: &Queue) {
        queue.take(&mut self.pending);
        self.note(0);
    }

    /// Takes more of the queue in, so that a policy sees further; never more than the queue may hold.
    pub(super) fn look_ahead(&mut self) {
        let Some(queue) = self.queue.clone() else { return };
        let known = self.pending.len();
        if known < self.options.queue_capacity {
            queue.try_take(&mut self.pending);
            self.note(known);
        }
    }

    fn note(&mut self, from: usize) {
        if self.budget.is_none() {
            self.future.clear();
        }
        for c in self.pending.range(from..) {
            self.future.note(c, self.budget.is_some());
        }
    }

    /// Runs one command.
    pub(super) fn step(&mut self, command: Command) {
        if self.recording.is_some() {
            self.record_command(&command);
        }
        match command {
            Command::Put { id, data, kind, stream, site } => {
                let result = self.put(&data, kind, stream);
                self.bind_put(id, result, data.dtype(), data.shape(), site);
            }
            Command::PutFrom { id, value, fact, stream, site } => {
                let value = value.wait().map_err(|e| e.context("copy from another device"));
                let result = value.and_then(|v| self.put(&v, Kind::Data, stream));
                self.bind_put(id, result, fact.dtype, &fact.shape, site);
            }
            Command::Apply(a) => self.apply(a),
            Command::Delete { id } => self.delete(id),
            Command::DropValue { id } => self.drop_value(id),
            Command::Commit { id, kind } => self.commit(id, kind),
            Command::Tag { id, kind } => {
                if let Some(Slot::Ready(s)) = self.table.tensors.get(&id) {
                    self.set_kind(s.storage, kind);
                }
            }
            Command::Fetch { id, reply } => reply.send(self.fetch(id)),
            Command::Await { id, reply } => reply.send(self.wait_value(id)),
            Command::Sync { reply } => reply.send(self.sync()),
            Command::StepMark => self.step_mark(),
            Command::SetBudget { bytes, reply } => reply.send(self.set_budget(bytes)),
            Command::Charge { bytes, what, reply } => reply.send(self.charge(bytes, &what)),
            Command::Uncharge { charge } => {
                let id = Key::from_raw(charge);
                self.table.storages[id].pins = 0;
                self.destroy(id);
            }
            Command::Stats { reply } => reply.send(Ok(self.figures())),
            Command::Report { reply } => reply.send(Ok(self.report())),
            Command::Verify { reply } => reply.send(self.verify()),
            Command::ResetPeak => self.reset_peak(),
            Command::EvictAll { reply } => reply.send(Ok(self.evict_all())),
            Command::Pause { until } => {
                // An error means that the other side hung up, which is the signal to go on.
                let _ = until.recv();
            }
            Command::StartTrace => self.trace = Some(Trace { budget: self.budget, ..Trace::default() }),
            Command::StopTrace { reply } => reply.send(Ok(self.trace.take().unwrap_or_default())),
            Command::StartRecording => self.start_recording(),
            Command::StopRecording { reply } => reply.send(Ok(self.recording.take().unwrap_or_default())),
            Command::Close { reply } => reply.send(Ok(())),
        }
    }

    fn put(&mut self, data: &HostTensor, kind: Kind, stream: StreamId) -> Result<StorageId> {
        self.put_bytes(data.bytes().len(), kind, stream, |w, stream, at| w.backend.upload(stream, at, data))
    }

    /// A new source of `bytes`, which `upload` fills.
    pub(super) fn put_bytes(
        &mut self,
        bytes: usize,
        kind: Kind,
        stream: StreamId,
        upload: impl FnOnce(&mut Worker, StreamId, usize) -> Result<Event>,
    ) -> Result<StorageId> {
        self.running = "put";
        self.still_needed = 0;
        let id = self.new_storage(bytes, kind, "put");
        if let Err(e) = self.place(id, End::High) {
            self.table.storages.remove(id);
            return Err(e);
        }
        if self.backend.is_asynchronous() {
            self.wait_for_range(id, stream);
        }
        let at = self.table.storages[id].block.as_ref().map_or(0, |b| b.start());
        match upload(self, stream, at) {
            Ok(event) => {
                self.table.storages[id].written = event;
                if self.backend.is_asynchronous() {
                    self.touch(id, event);
                }
                Ok(id)
            }
            Err(e) => {
                self.destroy(id);
                Err(e)
            }
        }
    }

    fn bind_put(&mut self, id: TensorId, storage: Result<StorageId>, dtype: DType, shape: &Shape, site: CallSite) {
        let slot = match storage {
            Ok(storage) => Slot::Ready(Source { storage, layout: Layout::contiguous(shape.clone()), dtype }),
            Err(e) => Slot::Failed(self.record_failure(e.with_op("put").with_call_site(site))),
        };
        self.bind(id, slot);
        self.record_put(id);
    }

    /// Gives a tensor its storage, or its failure.
    pub(super) fn bind(&mut self, id: TensorId, slot: Slot) {
        if let Slot::Ready(s) = &slot {
            let storage = &mut self.table.storages[s.storage];
            storage.handles += 1;
            storage.tensors.push(id);
        }
        self.table.tensors.insert(id, slot);
    }

    fn record_failure(&mut self, e: Error) -> Rc<Failure> {
        let f = Failure::new(e);
        self.unreported.retain(|f| !f.is_reported());
        self.unreported.push_back(f.clone());
        self.step_failure.get_or_insert_with(|| f.clone());
        f
    }

    fn apply(&mut self, mut a: Box<Apply>) {
        let done = a.done.take();
        let outcome = self.try_apply(&a);
        let reply = match outcome {
            Ok(()) => {
                self.record_apply(&a);
                Ok(())
            }
            Err(stop) => {
                let failure = match stop {
                    Stop::Own(e) => self.record_failure(e.with_op(a.op.label()).with_call_site(a.site)),
                    Stop::Inherited(f) => f,
                };
                self.bind_failed(&a, &failure);
                if done.is_some() { Err(failure.report()) } else { Ok(()) }
            }
        };
        for &(id, dies) in &a.x {
            if dies {
                self.delete(id);
            }
        }
        if let Some((reply_to, until)) = done {
            let finished = if until == Until::Finished { self.backend.synchronize_all() } else { Ok(()) };
            reply_to.send(reply.and(finished));
        }
    }

    /// Outputs of a failed command: poisoned, or for an update the old version.
    fn bind_failed(&mut self, a: &Apply, failure: &Rc<Failure>) {
        for (j, &y) in a.y.iter().enumerate() {
            let old = a.fallback.get(j).copied().flatten().and_then(|i| self.table.tensors.get(&a.x[i as usize].0));
            let slot = match old {
                Some(Slot::Ready(s)) => Slot::Ready(s.clone()),
                Some(Slot::Failed(f)) => Slot::Failed(f.clone()),
                None => Slot::Failed(failure.clone()),
            };
            self.bind(y, slot);
        }
    }

    pub(super) fn sources(&self, a: &Apply) -> std::result::Result<SmallVec<[Source; 4]>, Stop> {
        let mut x = SmallVec::with_capacity(a.x.len());
        for (id, _) in &a.x {
            match self.table.tensors.get(id) {
                Some(Slot::Ready(s)) => x.push(s.clone()),
                Some(Slot::Failed(f)) => return Err(Stop::Inherited(f.clone())),
                None => return Err(Error::new(ErrorKind::Internal, "an input was deleted before its use").into()),
            }
        }
        Ok(x)
    }

    fn try_apply(&mut self, a: &Apply) -> std::result::Result<(), Stop> {
        let x = self.sources(a)?;
        if !a.fallback.is_empty()
            && let Some(f) = self.failure_of_step()
        {
            return Err(Stop::Inherited(f));
        }
        if let [s] = &x[..]
            && let Some(layout) = a.op.view(&s.layout)
        {
            return Ok(self.bind_view(a, s, layout)?);
        }
        self.running = a.op.label();
        self.still_needed = 0;
        if let Err(e) = self.pin_inputs(&x) {
            let outputs = a.facts.iter().map(|f| padded(f.bytes())).sum::<usize>();
            let extra = outputs + self.scratch_bytes(&a.op, &x);
            return Err(self.with_recomputation(e, &x, extra).into());
        }
        let result = self.compute(a, &x);
        self.unpin(&x);
        Ok(result?)
    }

    /// What failed since the last step mark.
    fn failure_of_step(&mut self) -> Option<Rc<Failure>> {
        if self.step_failure.is_none()
            && let Some(e) = self.backend.failed_after(&self.step_marks)
        {
            let text = format!("an operation of this step failed: {e}");
            self.step_failure = Some(Failure::new(Error::new(ErrorKind::Poisoned, text)));
        }
        self.step_failure.clone()
    }

    fn step_mark(&mut self) {
        self.step_failure = None;
        self.step_marks = self.last_events.clone();
    }

    fn bind_view(&mut self, a: &Apply, s: &Source, layout: Layout) -> Result<()> {
        let elems = self.table.storages[s.storage].bytes / s.dtype.size_bytes();
        if !layout.fits(elems) || *layout.shape() != a.facts[0].shape || a.facts[0].dtype != s.dtype {
            return Err(Error::new(ErrorKind::Internal, format!("view {layout:?} leaves its storage of {elems}")));
        }
        self.bind(a.y[0], Slot::Ready(Source { layout, ..s.clone() }));
        Ok(())
    }

    /// Runs an op for the first time. Inputs are resident and pinned.
    fn compute(&mut self, a: &Apply, x: &SmallVec<[Source; 4]>) -> Result<()> {
        let recording = self.budget.is_some() || self.options.always_record;
        let cost_ns = if recording { self.expected_ns(&a.op, x, &a.facts) } else { 0.0 };
        let holds = self.donations(a, x);
        let mut from_source = false;
        let y: SmallVec<[StorageId; 2]> = (a.facts.iter().zip(&holds))
            .map(|(f, hold)| {
                let mut kind = Kind::Activation;
                if let Some(i) = *hold {
                    let s = &self.table.storages[x[i].storage];
                    from_source |= s.recipe.is_none();
                    kind = if s.kind == Kind::Data { Kind::Activation } else { s.kind };
                }
                let id = self.new_storage(f.bytes(), kind, a.op.label());
                self.table.storages[id].pins = 1;
                id
            })
            .collect();
        let result = self.compute_into(a, x, &y, &holds, cost_ns);
        for (&id, hold) in y.iter().zip(&holds) {
            self.table.storages[id].pins = 0;
            if result.is_err() {
                // An input that can be made again is: a kernel may have failed half-way. A source comes back as it is,
                // for an op that overwrites refuses its arguments before it writes.
                if let Some(i) = hold.filter(|i| self.table.storages[x[*i].storage].recipe.is_none()) {
                    self.hand_over(id, x[i].storage);
                }
                self.destroy(id);
            }
        }
        let ns = result?;
        self.last_run_ns = ns;
        for ((&id, &tensor), f) in y.iter().zip(&a.y).zip(&a.facts) {
            let s = &mut self.table.storages[id];
            s.last_use_ns = self.now_ns;
            let layout = Layout::contiguous(f.shape.clone());
            self.bind(tensor, Slot::Ready(Source { storage: id, layout, dtype: f.dtype }));
        }
        if recording {
            self.record(a, x, &y, ns, from_source);
        }
        Ok(())
    }

    fn compute_into(
        &mut self,
        a: &Apply,
        x: &[Source],
        y: &[StorageId],
        holds: &[Option<usize>],
        cost_ns: f64,
    ) -> Result<u64> {
        self.place_outputs(y, holds, cost_ns, &a.op, x)?;
        for (&y, hold) in y.iter().zip(holds) {
            if let Some(i) = *hold {
                self.hand_over(x[i].storage, y);
            }
        }
        // A donated input has no block of its own any more; the launch knows it by `holds`.
        let call = Call {
            op: &a.op,
            x,
            y,
            facts: &a.facts,
            holds,
            stream: a.stream,
            scope: &a.scope,
            site: a.site,
            again: false,
        };
        if a.fallback.is_empty() || !self.backend.is_asynchronous() {
            return self.run(&call);
        }
        // The old version can only come back if the failure is known before anything else uses the new one.
        let before: SmallVec<[Event; 2]> = y.iter().map(|y| self.table.storages[*y].written).collect();
        let ns = self.run(&call)?;
        self.backend.synchronize(self.table.storages[y[0]].written).map(|()| ns).inspect_err(|_| {
            y.iter().zip(before).for_each(|(y, e)| self.table.storages[*y].written = e);
        })
    }

    fn expected_ns(&self, op: &OpRef, x: &[Source], facts: &Facts) -> f64 {
        let shapes: CostShapes = x.iter().map(|s| (s.dtype, s.layout.shape().clone())).collect();
        if let Some(&ns) = self.costs.get(&(op.clone(), shapes)) {
            return ns;
        }
        let x: SmallVec<[Fact; 4]> = x.iter().map(|s| Fact::new(s.dtype, s.layout.shape().clone())).collect();
        let refs: SmallVec<[&Fact; 4]> = x.iter().collect();
        op.cost(&refs, facts).prior_ns() as f64
    }

    /// Keeps how the outputs were made, so that they can be evicted.
    fn record(&mut self, a: &Apply, x: &SmallVec<[Source; 4]>, y: &[StorageId], ns: u64, from_source: bool) {
        let shapes = x.iter().map(|s| (s.dtype, s.layout.shape().clone())).collect();
        let cost_ns = self.average(a.op.clone(), shapes, ns);
        let depth = 1 + self.table.depth(x);
        if from_source || !a.op.repeatable() || depth > MAX_RECIPE_DEPTH {
            return;
        }
        let recipe = Recipe {
            op: a.op.clone(),
            x: x.clone(),
            y: y.iter().map(|s| Some(*s)).collect(),
            facts: a.facts.clone(),
            cost_ns,
            depth,
            stream: a.stream,
            scope: a.scope.clone(),
            site: a.site,
        };
        self.table.attach(recipe, y);
    }

    fn delete(&mut self, id: TensorId) {
        if let Some(Slot::Ready(s)) = self.table.tensors.remove(&id) {
            let storage = &mut self.table.storages[s.storage];
            storage.handles -= 1;
            storage.tensors.retain(|t| *t != id);
            self.future.forget(id);
            if storage.handles == 0 {
                self.settle(s.storage);
            }
        }
    }

    /// Removes a storage and whatever it alone kept.
    pub(super) fn destroy(&mut self, id: StorageId) {
        let mut dead: SmallVec<[StorageId; 8]> = smallvec![id];
        while let Some(id) = dead.pop() {
            if self.table.storages.get(id).is_none() {
                continue;
            }
            self.unplace(id);
            dead.extend(self.table.detach(id));
            self.table.storages.remove(id);
        }
    }

    /// Makes a resident storage a source.
    pub(super) fn forget(&mut self, id: StorageId) {
        let orphans = self.table.detach(id);
        orphans.into_iter().for_each(|o| self.destroy(o));
    }

    fn drop_value(&mut self, id: TensorId) {
        if let Some(Slot::Ready(s)) = self.table.tensors.get(&id)
            && self.table.storages[s.storage].is_evictable()
        {
            self.evict(s.storage);
        }
    }

    fn commit(&mut self, id: TensorId, kind: Kind) {
        let Some(Slot::Ready(s)) = self.table.tensors.get(&id) else { return };
        let s = [s.clone()];
        self.running = "commit";
        match self.pin_alone(&s) {
            Ok(()) => {
                self.set_kind(s[0].storage, kind);
                self.forget(s[0].storage);
                self.unpin(&s);
            }
            Err(e) => {
                self.record_failure(e);
            }
        }
    }

    fn ready(&self, id: TensorId) -> Result<Source> {
        match self.table.tensors.get(&id) {
            Some(Slot::Ready(s)) => Ok(s.clone()),
            Some(Slot::Failed(f)) => Err(f.report()),
            None => Err(Error::new(ErrorKind::Internal, "the tensor was deleted before it was read")),
        }
    }

    /// Pins what a command reads that computes nothing.
    fn pin_alone(&mut self, s: &[Source]) -> Result<()> {
        self.still_needed = 0;
        self.pin_inputs(s).map_err(|e| self.with_recomputation(e, s, 0))
    }

    fn fetch(&mut self, id: TensorId) -> Result<HostTensor> {
        let s = [self.ready(id)?];
        self.running = "fetch";
        self.pin_alone(&s)?;
        let storage = &self.table.storages[s[0].storage];
        let buffer = Buffer {
            dtype: s[0].dtype,
            layout: s[0].layout.clone(),
            at: storage.block.as_ref().map_or(0, |b| b.start()),
            bytes: storage.bytes,
        };
        let value = self.backend.download(&buffer, storage.written);
        self.unpin(&s);
        value
    }

    fn wait_value(&mut self, id: TensorId) -> Result<()> {
        let s = [self.ready(id)?];
        self.running = "wait";
        self.pin_alone(&s)?;
        let event = self.table.storages[s[0].storage].written;
        let result = self.backend.synchronize(event);
        self.unpin(&s);
        result
    }

    fn sync(&mut self) -> Result<()> {
        let device = self.backend.synchronize_all();
        self.hazards.clear();
        while let Some(f) = self.unreported.pop_front() {
            if !f.is_reported() {
                return Err(f.report());
            }
        }
        device
    }

    fn charge(&mut self, bytes: usize, what: &str) -> Result<u32> {
        self.running = "staging";
        self.still_needed = 0;
        let id = self.new_storage(bytes, Kind::Staging, "staging");
        self.table.storages[id].pins = 1;
        match self.place(id, End::High) {
            Ok(()) => Ok(id.raw()),
            Err(e) => {
                self.table.storages.remove(id);
                Err(e.context(what))
            }
        }
    }

    fn evict_all(&mut self) -> usize {
        let all: Vec<StorageId> =
            self.table.storages.iter().filter(|(_, s)| s.is_evictable()).map(|(id, _)| id).collect();
        all.iter().for_each(|&id| self.evict(id));
        all.len()
    }

    pub(super) fn figures(&mut self) -> Stats {
        self.ledger.note_peak(self.arena.in_use());
        self.stats.set_arena(self.arena.figures());
        self.stats.budget_bytes = self.budget;
        self.stats.tensors = self.table.tensors.len();
        self.stats.storages = self.table.storages.len();
        self.stats.recipes = self.table.recipes.len();
        self.stats.clone()
    }

    fn report(&mut self) -> MemoryReport {
        let stats = self.figures();
        let sorted = |mut v: Vec<HolderBytes>| {
            v.retain(|h| h.bytes > 0);
            v.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
            v
        };
        let peak = &self.ledger.at_peak;
        let by_kind = Kind::ALL.iter().zip(peak.by_kind);
        let mut recomputed: Vec<OpRecompute> = (self.recomputed.iter())
            .map(|(op, &(count, time_ns))| OpRecompute { op: (*op).to_owned(), count, time_ns })
            .collect();
        recomputed.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.op.cmp(&b.op)));
        let mut by_op: FxHashMap<&'static str, usize> = FxHashMap::default();
        for (op, bytes) in &peak.by_op {
            *by_op.entry(op.0).or_default() += bytes;
        }
        MemoryReport {
            stats,
            peak_by_kind: sorted(by_kind.map(|(k, bytes)| HolderBytes { name: k.name().to_owned(), bytes }).collect()),
            peak_by_op: sorted(
                by_op.into_iter().map(|(op, bytes)| HolderBytes { name: op.to_owned(), bytes }).collect(),
            ),
            recomputed,
        }
    }

    fn verify(&self) -> Result<()> {
        let blocks = self.table.storages.iter().filter_map(|(_, s)| s.block.as_ref());
        let held: usize = blocks.map(|b| b.bytes()).sum();
        let checked = self.table.verify().and_then(|()| self.arena.verify()).and_then(|()| {
            if held == self.arena.in_use() {
                return Ok(());
            }
            Err(format!("storages hold {held} bytes, the arena counts {}", self.arena.in_use()))
        });
        checked.map_err(|text| Error::new(ErrorKind::Internal, text))
    }

    fn reset_peak(&mut self) {
        self.arena.reset_peak();
        self.ledger.reset();
        self.stats = Stats::default();
        self.recomputed.clear();
    }
}

/// Opens a worker on a thread of its own.
pub(super) fn spawn(
    backend: Box<dyn Backend>,
    options: DeviceOptions,
    queue: Arc<Queue>,
) -> Result<std::thread::JoinHandle<()>> {
    let name = format!("remat-{}", backend.name());
    let (ready, opened) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(move || match Worker::new(backend, options) {
            Ok(w) => {
                // The opener waits for this message, so it is there to receive it.
                let _ = ready.send(Ok(()));
                // A panic here is a bug; waiters must not hang on it.
                let served = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| w.serve(&queue)));
                if served.is_err() {
                    let why = "the device's worker panicked: this is a bug in Remat";
                    queue.close(why).into_iter().for_each(|c| c.refuse(|| Error::new(ErrorKind::Internal, why)));
                }
            }
            Err(e) => {
                let _ = ready.send(Err(e));
            }
        })
        .map_err(|e| Error::from(e).context("cannot start the device's worker thread"))?;
    match opened.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(e)) => Err(e),
        Err(_) => Err(Error::new(ErrorKind::Internal, "the device's worker ended before it was ready")),
    }
}
