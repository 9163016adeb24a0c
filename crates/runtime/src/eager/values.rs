//! What comes from the host and goes back: data put on the device, values read, handles that end.

use std::rc::Rc;

use remat_types::{CallSite, Error, ErrorKind, Fact, HostTensor, Result, SmallVec, smallvec};

use super::device::GiveWay;
use super::failure::{Failure, Stop};
use super::handle::TensorId;
use super::table::{Input, Slot, Source, StorageId};
use super::worker::Worker;
use crate::arena::{End, padded};
use crate::device::{Buffer, Event, StreamId};
use crate::report::Kind;

impl Worker {
    pub(super) fn put(&mut self, data: &HostTensor, kind: Kind, stream: StreamId) -> Result<StorageId> {
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
        self.before_growth(padded(bytes));
        self.running = "put";
        self.still_needed = 0;
        let label = self.ledger.label("put");
        let id = self.new_storage(bytes, kind, label);
        self.place_outputs_as_planned(&[id]);
        let placed = self.place(id, End::High);
        self.end_places();
        self.after_growth();
        if let Err(e) = placed {
            self.table.storages.remove(id);
            return Err(e);
        }
        if self.is_asynchronous {
            self.wait_for_range(id, stream);
        }
        let at = self.table.storages[id].start();
        match upload(self, stream, at) {
            Ok(event) => {
                self.table.storages[id].written = event;
                if self.is_asynchronous {
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

    pub(super) fn bind_put(&mut self, id: TensorId, storage: Result<StorageId>, fact: &Fact, site: CallSite) {
        match storage {
            Ok(storage) => self.bind_new(id, Source { storage, layout: fact.layout(), dtype: fact.dtype }),
            Err(e) => {
                let failure = self.record_failure(e.with_op("put").with_call_site(site));
                self.bind(id, Slot::Failed(failure));
            }
        }
        self.foresaw_put(id);
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

    pub(super) fn bind_new(&mut self, id: TensorId, s: Source) {
        self.bind(id, Slot::Ready(Rc::new(s)));
    }

    pub(super) fn record_failure(&mut self, e: Error) -> Rc<Failure> {
        self.abandon();
        let f = Failure::new(e);
        self.unreported.retain(|f| !f.is_reported());
        self.unreported.push_back(f.clone());
        self.step_failure.get_or_insert_with(|| f.clone());
        f
    }

    /// What failed since the last step mark.
    pub(super) fn failure_of_step(&mut self) -> Option<Rc<Failure>> {
        if self.step_failure.is_none()
            && let Some(e) = self.backend.failed_after(&self.step_marks)
        {
            let text = format!("an operation of this step failed: {e}");
            self.step_failure = Some(Failure::new(Error::new(ErrorKind::Poisoned, text)));
        }
        self.step_failure.clone()
    }

    pub(super) fn step_mark(&mut self) {
        self.step_failure = None;
        self.step_marks = self.last_events.clone();
        self.end_of_step();
    }

    pub(super) fn delete(&mut self, id: TensorId) {
        if let Some(Slot::Ready(s)) = self.table.tensors.remove(&id) {
            let storage = &mut self.table.storages[s.storage];
            storage.handles -= 1;
            if let Some(at) = storage.tensors.iter().position(|t| *t == id) {
                storage.tensors.swap_remove(at);
            }
            self.future.forget(id);
            if storage.handles == 0 {
                if !storage.is_resident() {
                    // Nobody waits for it any more.
                    self.unsettle(s.storage);
                }
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
            self.drop_copy(id);
            // What is gone already leaves its neighbours, too.
            match self.table.is_resident(id) {
                true => self.unplace(id),
                false => self.unsettle(id),
            }
            self.foresight.forget(self.table.storages[id].local);
            dead.extend(self.table.detach(id));
            self.table.storages.discard(id);
        }
    }

    /// Makes a resident storage a source.
    pub(super) fn forget(&mut self, id: StorageId) {
        self.foresight.lose_recipe(self.table.storages[id].local);
        let orphans = self.table.detach(id);
        orphans.into_iter().for_each(|o| self.destroy(o));
    }

    pub(super) fn drop_value(&mut self, id: TensorId) {
        if let Some(Slot::Ready(s)) = self.table.tensors.get(&id)
            && self.table.storages[s.storage].is_evictable()
        {
            self.evict(s.storage);
        }
    }

    pub(super) fn commit(&mut self, id: TensorId, kind: Kind) {
        let Some(Slot::Ready(s)) = self.table.tensors.get(&id) else { return };
        let s = [s.clone()];
        let storage = &self.table.storages[s[0].storage];
        if storage.recipe.is_some() {
            self.before_growth(padded(storage.bytes));
        }
        self.running = "commit";
        match self.pin_alone(&s) {
            Ok(()) => {
                self.set_kind(s[0].storage, kind);
                self.forget(s[0].storage);
                self.unpin(&s);
            }
            Err(Stop::Own(e)) => {
                self.record_failure(e);
            }
            // Whoever recorded it, it is told once.
            Err(Stop::Inherited(_)) => {}
        }
        self.after_growth();
    }

    fn ready(&self, id: TensorId) -> Result<Input> {
        match self.table.tensors.get(&id) {
            Some(Slot::Ready(s)) => Ok(s.clone()),
            Some(Slot::Failed(f)) => Err(f.report()),
            None => Err(Error::new(ErrorKind::Internal, "the tensor was deleted before it was read")),
        }
    }

    /// Pins what a command reads that computes nothing.
    fn pin_alone(&mut self, s: &[Input]) -> std::result::Result<(), Stop> {
        self.still_needed = 0;
        self.pin_inputs(s).map_err(|stop| self.with_recomputation(stop, s, 0))
    }

    pub(super) fn fetch(&mut self, id: TensorId) -> Result<HostTensor> {
        let s = [self.ready(id)?];
        self.running = "fetch";
        self.pin_alone(&s).map_err(Stop::report)?;
        let storage = &self.table.storages[s[0].storage];
        let (at, bytes) = (storage.start(), storage.bytes);
        let buffer = Buffer { dtype: s[0].dtype, layout: &s[0].layout, at, bytes };
        let value = self.backend.download(&buffer, storage.written);
        self.unpin(&s);
        value
    }

    pub(super) fn wait_value(&mut self, id: TensorId) -> Result<()> {
        let s = [self.ready(id)?];
        self.running = "wait";
        self.pin_alone(&s).map_err(Stop::report)?;
        let event = self.table.storages[s[0].storage].written;
        let result = self.backend.synchronize(event);
        self.unpin(&s);
        result
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        let device = self.backend.synchronize_all();
        self.hazards.clear();
        while let Some(f) = self.unreported.pop_front() {
            if !f.is_reported() {
                return Err(f.report());
            }
        }
        device
    }

    pub(super) fn charge(&mut self, bytes: usize, what: &str, give_way: Option<GiveWay>) -> Result<u32> {
        self.running = "staging";
        self.still_needed = 0;
        let label = self.ledger.label("staging");
        let id = self.new_storage(bytes, Kind::Staging, label);
        self.table.storages[id].pins = 1;
        match self.place(id, End::High) {
            Ok(()) => {
                self.foresight.stage(padded(bytes) as isize);
                self.giving_way.extend(give_way.map(|g| (id, g)));
                Ok(id.raw())
            }
            Err(e) => {
                self.table.storages.remove(id);
                Err(e.context(what))
            }
        }
    }

    /// Gives back the bytes of a charge; its entry stays until who holds it lets go.
    pub(super) fn end_charge(&mut self, id: StorageId) {
        self.table.storages[id].pins = 0;
        if self.table.is_resident(id) {
            self.foresight.stage(-(padded(self.table.storages[id].bytes) as isize));
            self.unplace(id);
        }
    }
}
