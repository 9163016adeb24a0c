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
use super::table::{Input, Source, StorageId};
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
        s.recipe.is_some() || s.readers.is_empty() || self.retire_version(src.storage)
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
