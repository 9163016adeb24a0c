//! Values between host and device: data that is put, values that are read, and handles that end.

use std::rc::Rc;
use std::sync::Arc;

use remat_types::{
    BudgetShortfall, CallSite, Error, ErrorKind, Fact, HostTensor, PinnedBytes, Result, SmallVec, smallvec,
};

use super::device::GiveWay;
use super::failure::{Failure, OpFailure};
use super::handle::TensorId;
use super::memory::table::{Input, Slot, StorageId, StorageView};
use super::schedule::Needs;
use super::worker::Worker;
use crate::report::{Kind, MemoryUse};
use remat_device::End;
use remat_device::{Buffer, Event, StreamId};

impl Worker {
    pub(super) fn put(&mut self, data: &HostTensor, kind: Kind, stream: StreamId) -> Result<StorageId> {
        self.put_bytes(data.bytes().len(), kind, stream, |w, stream, at| w.launcher.device().upload(stream, at, data))
    }

    /// A new leaf of `bytes`, which `upload` fills.
    pub(super) fn put_bytes(
        &mut self,
        bytes: usize,
        kind: Kind,
        stream: StreamId,
        upload: impl FnOnce(&mut Worker, StreamId, usize) -> Result<Event>,
    ) -> Result<StorageId> {
        let needs = |w: &Worker| Some(Needs { x: SmallVec::new(), beside: w.alignment().pad(bytes) });
        self.running.label = "put";
        let id = (self.if_scheduled(|w| w.alignment().pad(bytes), needs, |w| w.place_put(bytes, kind)))
            .map_err(|stop| stop.report(self.steps.failures()))?;
        if self.launcher.is_asynchronous() {
            self.wait_for_range(id, stream);
        }
        let at = self.table[id].start();
        match upload(self, stream, at) {
            Ok(event) => {
                self.table[id].written = event;
                if self.launcher.is_asynchronous() {
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

    /// A storage for data, without the data.
    fn place_put(&mut self, bytes: usize, kind: Kind) -> std::result::Result<StorageId, OpFailure> {
        self.running.label = "put";
        self.running.still_needed = 0;
        let label = self.memory.label("put");
        let id = self.new_storage(bytes, kind, label);
        self.place_outputs_as_planned(&[id]);
        let placed = self.place(id, End::High);
        self.end_places();
        match placed {
            Ok(()) => Ok(id),
            Err(e) => {
                self.table.remove(id);
                Err(e.into())
            }
        }
    }

    pub(super) fn bind_put(&mut self, id: TensorId, storage: Result<StorageId>, fact: &Fact, site: CallSite) {
        match storage {
            Ok(storage) => self.bind_new(id, StorageView { storage, layout: fact.layout(), dtype: fact.dtype }),
            Err(e) => {
                let failure = self.record_failure(e.with_op("put").with_call_site(site));
                self.bind(id, Slot::Failed(failure));
            }
        }
        self.after_put(id);
        self.record_put(id);
    }

    /// Gives a tensor its storage, or its failure.
    pub(super) fn bind(&mut self, id: TensorId, slot: Slot) {
        if let Some(s) = slot.kept() {
            let unit = self.alignment();
            let storage = &mut self.table[s.storage];
            if storage.handles == 0 {
                self.work.name(unit.pad(storage.bytes));
            }
            storage.handles += 1;
            storage.tensors.push(id);
        }
        self.table.bind(id, slot);
    }

    pub(super) fn bind_new(&mut self, id: TensorId, s: StorageView) {
        self.bind(id, Slot::Ready(Rc::new(s)));
    }

    pub(super) fn delete(&mut self, id: TensorId) {
        if let Some(s) = self.table.unbind(&id).as_ref().and_then(Slot::kept) {
            let unit = self.alignment();
            let storage = &mut self.table[s.storage];
            storage.handles -= 1;
            if let Some(at) = storage.tensors.iter().position(|t| *t == id) {
                storage.tensors.swap_remove(at);
            }
            self.eviction.forget_uses(id);
            if storage.handles == 0 {
                self.work.unname(unit.pad(storage.bytes));
                if !storage.is_resident() {
                    // Nobody waits for it any more.
                    self.invalidate_neighbours(s.storage);
                }
                self.free_if_unused(s.storage);
            }
        }
    }

    /// Removes a storage, and storages that only it kept.
    pub(super) fn destroy(&mut self, id: StorageId) {
        let mut dead: SmallVec<[StorageId; 8]> = smallvec![id];
        while let Some(id) = dead.pop() {
            if self.table.storage(id).is_none() {
                continue;
            }
            self.drop_copy(id);
            self.schedule.remove(id);
            // A storage that is evicted already leaves its neighbours, too.
            match self.table.is_resident(id) {
                true => self.unplace(id),
                false => self.invalidate_neighbours(id),
            }
            self.step_planner.forget(self.table[id].local);
            dead.extend(self.table.detach(id));
            self.table.remove(id);
        }
    }

    /// Makes a resident storage a leaf.
    pub(super) fn drop_recipe(&mut self, id: StorageId) {
        self.step_planner.lose_recipe(self.table[id].local);
        self.schedule.remove(id);
        let orphans = self.table.detach(id);
        orphans.into_iter().for_each(|o| self.destroy(o));
    }

    /// As [`Worker::drop_recipe`], for a storage that may be gone.
    pub(super) fn drop_recipe_if_there(&mut self, id: StorageId) {
        if self.table.storage(id).is_some() {
            self.drop_recipe(id);
        }
    }

    pub(super) fn drop_value(&mut self, id: TensorId) {
        if let Some(s) = self.table.kept(&id)
            && self.table[s.storage].is_evictable()
        {
            let storage = s.storage;
            self.begin_short();
            if self.table[storage].is_evictable() {
                self.evict(storage);
            }
        }
    }

    pub(super) fn commit(&mut self, id: TensorId, kind: Kind) {
        self.running.label = "commit";
        // An inherited failure has been recorded by its own command.
        if let Err(OpFailure::Own(e)) =
            self.if_scheduled(|w| w.growth_of_commit(id), |w| w.needs_to_read(id), |w| w.try_commit(id, kind))
        {
            self.record_failure(e);
        }
    }

    /// Makes state of a tensor. A tensor that failed stays as it is. Errors: the tensor cannot be recomputed; its
    /// failure.
    pub(super) fn try_commit(&mut self, id: TensorId, kind: Kind) -> std::result::Result<(), OpFailure> {
        let s = match self.table.read(&id) {
            Some(Ok(s)) => [s.clone()],
            Some(Err(f)) => return Err(OpFailure::Inherited(f.clone())),
            None => return Ok(()),
        };
        self.running.label = "commit";
        let pinned = self.pin_alone(&s);
        if pinned.is_ok() {
            self.set_kind(s[0].storage, kind);
            self.drop_recipe(s[0].storage);
            self.unpin(&s);
            self.note_update(s[0].storage);
        }
        pinned
    }

    /// Bytes by which leaves grow when a tensor becomes state.
    pub(super) fn growth_of_commit(&self, id: TensorId) -> usize {
        let Some(s) = self.table.kept(&id) else { return 0 };
        let s = &self.table[s.storage];
        s.recipe.map_or(0, |_| self.alignment().pad(s.bytes))
    }

    /// The needs of a command that reads a tensor.
    fn needs_to_read(&self, id: TensorId) -> Option<Needs> {
        let s = self.table.read(&id)?.ok()?;
        Some(Needs { x: SmallVec::from_iter([s.clone()]), beside: 0 })
    }

    fn ready(&mut self, id: TensorId) -> std::result::Result<Input, OpFailure> {
        match self.table.read(&id) {
            Some(Ok(s)) => Ok(s.clone()),
            Some(Err(f)) => Err(OpFailure::Inherited(f.clone())),
            None => Err(Error::new(ErrorKind::Internal, "the tensor was deleted before it was read").into()),
        }
    }

    /// Binds the copy of another device's tensor that has no value because of a failure.
    pub(super) fn bind_copy_of_failed(&mut self, id: TensorId, failure: Arc<Failure>) {
        self.abandon();
        self.steps.failures().record(self.steps.caller(), &failure);
        self.bind(id, Slot::Failed(failure));
        self.after_put(id);
        self.record_put(id);
    }

    /// Pins the inputs of a command that computes nothing.
    fn pin_alone(&mut self, s: &[Input]) -> std::result::Result<(), OpFailure> {
        self.running.still_needed = 0;
        self.pin_inputs(s).map_err(|stop| self.with_bounds(stop, s, 0, 0))
    }

    pub(super) fn fetch(&mut self, id: TensorId) -> Result<HostTensor> {
        self.read(id).map_err(|stop| stop.report(self.steps.failures()))
    }

    /// A tensor's value. Errors: the reason why it could not be read, which does not count as reported.
    pub(super) fn read(&mut self, id: TensorId) -> std::result::Result<HostTensor, OpFailure> {
        let s = [self.ready(id)?];
        self.running.label = "fetch";
        self.work.ask();
        self.if_scheduled(
            |_| 0,
            |w| w.needs_to_read(id),
            |w| {
                w.running.label = "fetch";
                w.pin_alone(&s)
            },
        )?;
        let storage = &self.table[s[0].storage];
        let (at, bytes) = (storage.start(), storage.bytes);
        let buffer = Buffer { dtype: s[0].dtype, layout: &s[0].layout, at, bytes };
        let value = self.launcher.device().download(&buffer, &[storage.written, storage.settled]);
        self.unpin(&s);
        self.known_late(id, value)
    }

    pub(super) fn wait_value(&mut self, id: TensorId) -> Result<()> {
        let s = [self.ready(id).map_err(|stop| stop.report(self.steps.failures()))?];
        self.running.label = "wait";
        self.work.ask();
        self.if_scheduled(
            |_| 0,
            |w| w.needs_to_read(id),
            |w| {
                w.running.label = "wait";
                w.pin_alone(&s)
            },
        )
        .map_err(|stop| stop.report(self.steps.failures()))?;
        let event = self.table[s[0].storage].written;
        let result = self.launcher.device().synchronize(event).and_then(|()| self.settle(s[0].storage));
        self.unpin(&s);
        self.known_late(id, result).map_err(|stop| stop.report(self.steps.failures()))
    }

    /// Waits for the device. Errors: the first unreported failure.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.wait_for_device();
        self.steps.failures().take(None).map_or(Ok(()), Err)
    }

    /// As [`Worker::sync`], for the last time: the error reports all failures.
    pub(super) fn sync_all(&mut self) -> Result<()> {
        self.wait_for_device();
        self.steps.failures().take_all().map_or(Ok(()), Err)
    }

    /// Waits for the device and notes what failed there: behind the last step mark in the present step, before it in the
    /// step that the mark ended. A failure of that step would otherwise hold back the updates of this one.
    fn wait_for_device(&mut self) {
        if let Some(e) = self.launcher.failure_of_step() {
            self.record_failure(e);
        }
        if let Err(e) = self.launcher.synchronize_all() {
            let ended = self.steps.number().saturating_sub(1).max(1);
            self.record_failure_of(e, self.steps.caller(), ended);
        }
    }

    pub(super) fn charge(&mut self, bytes: usize, what: &str, give_way: Option<GiveWay>) -> Result<u32> {
        self.running.label = "staging";
        self.running.still_needed = 0;
        let label = self.memory.label("staging");
        let id = self.new_storage(bytes, Kind::Staging, label);
        self.table[id].pins = 1;
        if let Some(used) = &mut self.figures.pinned_host {
            if used.take(bytes as u64) {
                return Ok(id.raw());
            }
            let e = host_shortfall(used, bytes);
            self.table.remove(id);
            return Err(e.context(what));
        }
        // A charge that gives way is worth no recomputation.
        let placed = match give_way.is_some() {
            true => self.place(id, End::High).map_err(OpFailure::from),
            false => {
                let needs = |w: &Worker| Some(Needs { x: SmallVec::new(), beside: w.alignment().pad(bytes) });
                self.if_scheduled(|_| 0, needs, |w| Ok(w.place(id, End::High)?))
            }
        };
        match placed {
            Ok(()) => {
                self.step_planner.stage(self.alignment().pad(bytes) as isize);
                give_way.into_iter().for_each(|g| self.eviction.may_give_way(id, g));
                Ok(id.raw())
            }
            Err(stop) => {
                self.table.remove(id);
                Err(stop.report(self.steps.failures()).context(what))
            }
        }
    }

    /// Gives back the bytes of a charge. Its entry stays until its owner drops it.
    pub(super) fn end_charge(&mut self, id: StorageId) {
        self.table[id].pins = 0;
        if let Some(used) = &mut self.figures.pinned_host {
            used.give_back(self.table[id].bytes as u64);
        }
        if self.table.is_resident(id) {
            self.step_planner.stage(-(self.alignment().pad(self.table[id].bytes) as isize));
            self.unplace(id);
        }
    }
}

/// The error of staging buffers without room on the host.
fn host_shortfall(used: &MemoryUse, bytes: usize) -> Error {
    let in_use = used.in_use_bytes as usize;
    Error::budget(BudgetShortfall {
        op: "staging in pinned host memory".into(),
        needed_bytes: bytes,
        budget_bytes: used.budget_bytes.unwrap_or(0) as usize,
        pinned: vec![PinnedBytes { by: "staging".into(), bytes: in_use }],
        least_bytes: in_use + bytes,
        smallest_feasible_bytes: in_use + bytes,
        is_of_run: false,
        recompute_limit: None,
    })
}
