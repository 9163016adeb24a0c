//! In-place updates as versions.
//!
//! An output may take the storage of an input that dies. If the input is a source that recipes still read, the old
//! version is about to disappear: whatever is evicted and reachable only through it is brought back first, and what
//! is resident forgets its recipe. Where a copy is cheaper, or bringing things back does not fit the budget, the old
//! version simply stays until its readers are gone and the output gets storage of its own (copy on write).

use std::rc::Rc;

use remat_types::{Error, Fact, Layout, SmallVec};

use super::command::Apply;
use super::handle::Handle;
use super::table::{Input, Source, Storage, StorageId};
use super::worker::Worker;

/// An update that failed in its call. As an [`Error`] it lets go of the old versions.
#[derive(Debug)]
pub struct NotUpdated {
    /// What failed.
    pub error: Error,
    /// For each output that was to replace an input, that input as it was. Empty if the device was closed.
    pub old: SmallVec<[Option<Handle>; 2]>,
}

impl From<Error> for NotUpdated {
    fn from(error: Error) -> Self {
        NotUpdated { error, old: SmallVec::new() }
    }
}

impl From<NotUpdated> for Error {
    fn from(e: NotUpdated) -> Self {
        e.error
    }
}

impl Worker {
    /// For each output, the dying input whose storage it takes.
    pub(super) fn donations(&mut self, a: &Apply, x: &[Input]) -> SmallVec<[Option<usize>; 2]> {
        let mut holds: SmallVec<[Option<usize>; 2]> = SmallVec::new();
        a.y.iter().for_each(|_| holds.push(None));
        for &(i, j) in a.op.overwrite() {
            let free = i < x.len() && j < holds.len() && holds[j].is_none() && !holds.contains(&Some(i));
            if free && self.may_take(a, x, i, &a.facts[j]) {
                holds[j] = Some(i);
            }
        }
        holds
    }

    fn may_take(&mut self, a: &Apply, x: &[Input], i: usize, fact: &Fact) -> bool {
        let src = &x[i];
        let s = &self.table.storages[src.storage];
        if !(a.x[i].1 && s.handles == 1 && s.pins == 1 && self.is_whole(x, i, fact)) {
            return false;
        }
        s.recipe.is_some()
            || s.readers.is_empty()
            || match self.is_canonical {
                true => self.cut_readers(src.storage),
                false => self.retire_version(src.storage),
            }
    }

    /// Makes what is needed of a source independent of it, where memory is short: of what is made of it directly, the last
    /// made first, what leads to something that is evicted and needed is brought back. So after the update of a layer's
    /// weights its cotangent stays, from which the gradients of the layers before it are made. False if that does not fit.
    fn cut_readers(&mut self, old: StorageId) -> bool {
        loop {
            let readers = self.table.storages[old].readers.iter();
            let direct = readers.flat_map(|r| self.table.recipes[*r].y.iter().flatten().copied());
            let Some(y) = direct.max_by_key(|y| (self.table.depth_of(*y), self.table.storages[*y].number)) else {
                return true;
            };
            if self.table.is_resident(y) {
                self.forget(y);
                continue;
            }
            if !self.leads_to_needed(y) {
                let below = self.resident_below(y);
                if below.is_empty() {
                    return false;
                }
                below.into_iter().for_each(|b| self.forget_if_there(b));
                continue;
            }
            let whole = Rc::new(Source { storage: y, layout: Layout::contiguous([0]), dtype: remat_types::DType::U8 });
            if self.pin_inputs(std::slice::from_ref(&whole)).is_err() {
                return false;
            }
            self.forget(y);
            self.unpin(std::slice::from_ref(&whole));
        }
    }

    /// True if an evicted storage, or something evicted that is made of it, is named or in use.
    fn leads_to_needed(&self, id: StorageId) -> bool {
        let mut found = false;
        self.walk_evicted(id, |s| {
            found |= s.handles > 0 || s.pins > 0 || s.wanted > 0;
            !found
        });
        found
    }

    /// What is resident and made of an evicted storage, or of something evicted that is made of it.
    fn resident_below(&self, id: StorageId) -> Vec<StorageId> {
        self.walk_evicted(id, |_| true)
    }

    /// Visits an evicted storage and everything evicted that is made of it, as long as `go_on`; what is resident and made of
    /// those.
    fn walk_evicted(&self, id: StorageId, mut go_on: impl FnMut(&Storage) -> bool) -> Vec<StorageId> {
        let mut seen: rustc_hash::FxHashSet<StorageId> = rustc_hash::FxHashSet::from_iter([id]);
        let (mut stack, mut resident) = (vec![id], Vec::new());
        while let Some(id) = stack.pop() {
            let s = &self.table.storages[id];
            if !go_on(s) {
                break;
            }
            for y in s.readers.iter().flat_map(|r| self.table.recipes[*r].y.iter().flatten().copied()) {
                if seen.insert(y) {
                    match self.table.is_resident(y) {
                        true => resident.push(y),
                        false => stack.push(y),
                    }
                }
            }
        }
        resident
    }

    /// True if an input is all of its storage, in the form of an output, and no other input lies there.
    pub(super) fn is_whole(&self, x: &[Input], i: usize, fact: &Fact) -> bool {
        let src = &x[i];
        let bytes = self.table.storages[src.storage].bytes;
        let is_alike =
            src.layout == Layout::contiguous(fact.shape.clone()) && src.dtype == fact.dtype && bytes == fact.bytes();
        is_alike && bytes > 0 && x.iter().filter(|o| o.storage == src.storage).count() == 1
    }

    /// Makes every reader of a source independent of it. False if the old version had better stay.
    fn retire_version(&mut self, old: StorageId) -> bool {
        let (mut evicted, mut resident) = (SmallVec::<[StorageId; 8]>::new(), SmallVec::<[StorageId; 8]>::new());
        let mut stack: SmallVec<[StorageId; 8]> = SmallVec::new();
        let mut seen: rustc_hash::FxHashSet<StorageId> = rustc_hash::FxHashSet::default();
        stack.push(old);
        while let Some(id) = stack.pop() {
            let readers = self.table.storages[id].readers.clone();
            for y in readers.iter().flat_map(|r| self.table.recipes[*r].y.iter().flatten().copied()) {
                if !seen.insert(y) {
                    continue;
                }
                let s = &self.table.storages[y];
                match (s.is_resident(), s.handles > 0) {
                    (true, _) => resident.push(y),
                    (false, true) => evicted.push(y),
                    (false, false) => stack.push(y),
                }
            }
        }
        if !evicted.is_empty() && self.arena.figures().largest_free >= self.table.storages[old].bytes {
            // A copy costs one pass over the bytes; anything evicted costs at least its own kernel.
            return false;
        }
        // First what is resident: bringing back the rest might evict it, and its recipe is about to lose an input.
        for id in resident {
            if self.table.storages.get(id).is_some() {
                self.forget(id);
            }
        }
        for &id in &evicted {
            let whole = Rc::new(Source { storage: id, layout: Layout::contiguous([0]), dtype: remat_types::DType::U8 });
            if self.pin_inputs(std::slice::from_ref(&whole)).is_err() {
                return false;
            }
            self.forget(id);
            self.unpin(std::slice::from_ref(&whole));
        }
        self.table.storages[old].readers.is_empty()
    }
}
