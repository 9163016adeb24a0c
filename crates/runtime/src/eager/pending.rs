//! Updates on an asynchronous device whose outcome the host does not know yet.
//!
//! The worker queues updates behind a gate ([`Backend::gate`](remat_device::Backend::gate)) and goes on as if they
//! succeeded. If the gate fails, an update in place leaves its bytes alone. An update that writes elsewhere is followed
//! by a copy of the old version, which the device makes only after a failure. So the bytes are those of the old version
//! whenever the host learns of the failure. It learns of it when the program reads a value, or at a step mark. Then the
//! names stand for the old versions, as after an update that failed at once, and results of the new versions can no
//! longer be recomputed.

use std::sync::Arc;

use remat_device::{Event, Progress, StreamId};
use remat_types::{Error, ErrorKind, Result, SmallVec};
use rustc_hash::{FxHashMap, FxHashSet};

use super::command::Apply;
use super::failure::{Caller, Failure, HeldBack, OpFailure};
use super::handle::TensorId;
use super::launcher::Call;
use super::memory::table::{Input, Slot, StorageId};
use super::worker::Worker;

/// See the module's note.
#[derive(Default)]
pub(super) struct PendingUpdates {
    groups: Vec<Group>,
    /// The group whose updates are being queued.
    open: Option<Group>,
}

/// Updates behind one gate.
struct Group {
    caller: Caller,
    step: u64,
    /// They are the updates of an optimiser.
    is_whole_step: bool,
    gate: Event,
    updates: Vec<Update>,
}

struct Update {
    /// The name of the new version.
    name: TensorId,
    storage: StorageId,
    /// The event of the new version.
    written: Event,
    /// The event of the old version.
    before: Event,
}

impl PendingUpdates {
    /// The gate of the updates that are being queued.
    fn gate(&self) -> Option<Event> {
        self.open.as_ref().map(|g| g.gate)
    }

    /// All updates of a group are queued, or a single update by itself.
    fn close(&mut self) {
        self.groups.extend(self.open.take().filter(|g| !g.updates.is_empty()));
    }
}

impl Worker {
    /// Queues the gate of the updates that follow. None of them is made if one of `after` failed, or another command of
    /// this step.
    pub(super) fn begin_updates(&mut self, after: &[Event], is_whole_step: bool) -> Result<()> {
        self.forget_updates_made();
        let gate = self.launcher.gate(after)?;
        let (caller, step) = (self.steps.caller(), self.steps.number());
        self.pending.open = Some(Group { caller, step, is_whole_step, gate, updates: Vec::new() });
        Ok(())
    }

    /// All updates of the group are queued.
    pub(super) fn end_updates(&mut self) {
        self.pending.close();
    }

    /// Runs an update without waiting for its outcome, unless the old version cannot be brought back. Errors: those of
    /// [`Worker::run`]; the update's failure, if the worker waited.
    pub(super) fn run_update(&mut self, call: &Call<'_>, a: &Apply) -> Result<u64> {
        let is_alone = self.pending.open.is_none();
        if is_alone {
            self.begin_updates(&[], false)?;
        }
        let ns = self.run_gated(call, a);
        if is_alone {
            self.end_updates();
        }
        ns
    }

    fn run_gated(&mut self, call: &Call<'_>, a: &Apply) -> Result<u64> {
        let before: SmallVec<[Event; 2]> = call.y.iter().map(|y| self.table[*y].written).collect();
        let ns = self.run(&Call { gate: self.pending.gate(), ..*call })?;
        for (j, (&storage, &before)) in call.y.iter().zip(&before).enumerate() {
            let written = self.table[storage].written;
            let is_in_place = call.donated_from.get(j).is_some_and(Option::is_some);
            let old = a.fallback.get(j).copied().flatten().map(|i| call.x[i as usize].clone());
            let before = match old {
                Some(old) if !is_in_place => self.restore_if_failed(storage, &old, call.stream)?,
                _ => Some(before),
            };
            match before {
                Some(before) => self.note_pending(Update { name: a.y[j], storage, written, before }),
                // no copy of bytes can bring the old version back
                None => self.launcher.synchronize(written)?,
            }
        }
        Ok(ns)
    }

    fn note_pending(&mut self, update: Update) {
        self.pending.open.iter_mut().for_each(|g| g.updates.push(Update { ..update }));
    }

    /// Queues a copy of the old version to the storage of the new one. The device makes it if the new version fails.
    /// Gives the event of the old version. `None` if the old version is not the whole of a resident storage.
    fn restore_if_failed(&mut self, y: StorageId, old: &Input, stream: StreamId) -> Result<Option<Event>> {
        let (from, to) = (&self.table[old.storage], &self.table[y]);
        let is_all = old.layout.is_contiguous() && old.layout.offset() == 0 && from.bytes == to.bytes;
        if !is_all || !from.is_resident() || !to.is_resident() {
            return Ok(None);
        }
        let (before, written, bytes) = (from.written, to.written, to.bytes);
        let after = [before, from.settled, written];
        let event = self.launcher.restore(stream, &after, written, (from.start(), to.start(), bytes))?;
        self.touch(old.storage, event);
        self.touch(y, event);
        self.table[y].settled = event;
        Ok(Some(before))
    }

    /// Lets a value fall back to another one if it fails, as [`Worker::fall_back`], where the host does not know the
    /// outcome yet.
    pub(super) fn fall_back_later(&mut self, id: TensorId, old: TensorId) -> Result<()> {
        let kept = |id: &TensorId| self.table.kept(id).cloned();
        let (Some(new), Some(old_view)) = (kept(&id), kept(&old)) else { return Ok(()) };
        let is_all = new.layout.is_contiguous() && new.layout.offset() == 0;
        let restored = match is_all && self.table.is_resident(new.storage) && self.table[new.storage].recipe.is_none() {
            true => self.restore_if_failed(new.storage, &old_view, StreamId::default())?,
            false => None,
        };
        let written = self.table[new.storage].written;
        let Some(before) = restored else {
            return match self.launcher.synchronize(written) {
                Ok(()) => Ok(()),
                Err(e) => {
                    let cause = self.record_failure(e);
                    let failure = self.hold_back(cause, HeldBack::Update(self.steps.number()));
                    let slot = self.slot_of_failed(Some(old), &failure);
                    self.delete(id);
                    self.bind(id, slot);
                    Ok(())
                }
            };
        };
        let update = Update { name: id, storage: new.storage, written, before };
        if self.pending.open.is_some() {
            self.note_pending(update);
            return Ok(());
        }
        let (caller, step) = (self.steps.caller(), self.steps.number());
        let gate = Event::REACHED;
        self.pending.groups.push(Group { caller, step, is_whole_step: false, gate, updates: vec![update] });
        Ok(())
    }

    /// Forgets updates that are known to have succeeded.
    pub(super) fn forget_updates_made(&mut self) {
        let device = self.launcher.device();
        let mut is_made = |g: &Group| g.updates.iter().all(|u| device.poll(u.written) == Progress::Reached);
        let made = self.pending.groups.iter().take_while(|g| is_made(g)).count();
        self.pending.groups.drain(..made);
    }

    /// Records the first failure of an update that is known by now, after the program waited for a value.
    fn poll_updates(&mut self) {
        let device = self.launcher.device();
        let mut failed = self.pending.groups.iter().flat_map(|g| g.updates.iter().map(move |u| (g, u)));
        let failed = failed.find(|(_, u)| device.poll(u.written) == Progress::Failed);
        let Some((written, caller, step)) = failed.map(|(g, u)| (u.written, g.caller, g.step)) else { return };
        if let Err(e) = self.launcher.device().synchronize(written) {
            self.record_failure_of(e, caller, step);
        }
    }

    /// The host learnt of a failure. Waits for all updates, and lets the names of failed updates stand for the old
    /// versions.
    pub(super) fn resolve_updates(&mut self, cause: &Arc<Failure>) {
        let groups = std::mem::take(&mut self.pending.groups);
        if groups.is_empty() {
            return;
        }
        self.launcher.wait_idle();
        let mut before: FxHashMap<Event, Event> = FxHashMap::default();
        for g in groups {
            let has_failed = |w: &mut Worker, u: &Update| w.launcher.device().poll(u.written) == Progress::Failed;
            let failed: Vec<bool> = g.updates.iter().map(|u| has_failed(self, u)).collect();
            let Some(first) = failed.iter().position(|f| *f) else { continue };
            let what = match (g.is_whole_step, failed.iter().all(|f| *f)) {
                (false, _) => HeldBack::Update(g.step),
                (true, true) => HeldBack::Step(g.step),
                (true, false) => HeldBack::PartOfStep(g.step),
            };
            let own = match self.launcher.device().synchronize(g.updates[first].written) {
                Err(e) if e.kind() != ErrorKind::Poisoned => self.record_failure_of(e, g.caller, g.step),
                _ => cause.clone(),
            };
            let failure = self.hold_back_of(own, what, g.caller, g.step);
            for (u, has_failed) in g.updates.iter().zip(failed) {
                let restored = before.get(&u.before).copied().unwrap_or(u.before);
                if has_failed {
                    before.insert(u.written, restored);
                }
                self.make_stale(u, restored, has_failed, &failure);
            }
        }
    }

    /// Lets the name of an update's result stand for the old version. Other names of its bytes, and names of results of
    /// those bytes, stand for the failure.
    fn make_stale(&mut self, u: &Update, restored: Event, has_failed: bool, failure: &Arc<Failure>) {
        if !self.table.storage(u.storage).is_some_and(|s| s.written == u.written) {
            return;
        }
        if has_failed {
            self.table[u.storage].written = restored;
        }
        let (mut stack, mut lost) = (vec![u.storage], Vec::new());
        let mut seen: FxHashSet<StorageId> = FxHashSet::from_iter([u.storage]);
        while let Some(id) = stack.pop() {
            lost.extend(self.table[id].tensors.iter().copied().filter(|name| *name != u.name));
            stack.extend(self.table.made_of(id).filter(|y| seen.insert(*y)));
        }
        for name in lost {
            self.delete(name);
            self.bind(name, Slot::Failed(failure.clone()));
        }
        self.table.set_stale(u.name, failure);
    }

    /// The outcome of a read for which the host waited. Errors: the value, or a value that it depends on, is known to
    /// have failed.
    pub(super) fn known_late<T>(&mut self, id: TensorId, read: Result<T>) -> std::result::Result<T, OpFailure> {
        let late = match read {
            Err(e) => Err(self.late_failure(e)),
            Ok(value) => {
                self.poll_updates();
                Ok(value)
            }
        };
        // a value that this one depends on may have been held back
        match self.table.read(&id) {
            Some(Err(f)) if self.launcher.is_asynchronous() => Err(OpFailure::Inherited(f.clone())),
            _ => late,
        }
    }

    /// The failure of a read, if an asynchronous device reported it late.
    pub(super) fn late_failure(&mut self, e: Error) -> OpFailure {
        match self.launcher.is_asynchronous() {
            true => OpFailure::Inherited(self.record_failure(e)),
            false => OpFailure::Own(e),
        }
    }

    /// Waits for the device, for a caller that asked for the end of a command. Errors: the first unreported failure.
    pub(super) fn finish(&mut self) -> Result<()> {
        let finished = self.launcher.synchronize_all();
        finished.map_err(|e| self.late_failure(e).report(self.steps.failures()))
    }
}
