//! In-place updates as versions.
//!
//! An output may take the storage of an input that dies. If that input is a leaf with readers, its old version is about
//! to disappear. Evicted storages that can be reached only through it are then recomputed first, and resident ones lose
//! their recipes. A copy may be cheaper, or the recomputation may not fit the budget. Then the old version stays until
//! its readers are gone, and the output gets storage of its own (copy on write).

use std::rc::Rc;

use remat_types::{DType, Error, Fact, Layout, SmallVec};

use super::command::Apply;
use super::failure::OpFailure;
use super::handle::Handle;
use super::memory::table::{Input, Storage, StorageId, StorageView};
use super::worker::Worker;

/// An update that failed in its call. Its conversion to an [`Error`] drops the old versions.
#[derive(Debug)]
pub struct NotUpdated {
    /// The failure.
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
    /// For each output, the dying input whose storage it takes. Errors: Budget if the storages that an update ends did
    /// not fit, though they do in the canonical way.
    pub(super) fn donations(
        &mut self,
        a: &Apply,
        x: &[Input],
    ) -> std::result::Result<SmallVec<[Option<usize>; 2]>, OpFailure> {
        let mut donated_from: SmallVec<[Option<usize>; 2]> = SmallVec::new();
        a.y.iter().for_each(|_| donated_from.push(None));
        for &(i, j) in self.overwrite(&a.op) {
            let free =
                i < x.len() && j < donated_from.len() && donated_from[j].is_none() && !donated_from.contains(&Some(i));
            if free && self.may_take(a, x, i, &a.facts[j])? {
                donated_from[j] = Some(i);
            }
        }
        Ok(donated_from)
    }

    fn may_take(&mut self, a: &Apply, x: &[Input], i: usize, fact: &Fact) -> std::result::Result<bool, OpFailure> {
        let src = &x[i];
        let s = &self.table[src.storage];
        if !(a.x[i].1 && s.handles == 1 && s.pins == 1 && self.is_whole(x, i, fact)) {
            return Ok(false);
        }
        if s.recipe.is_some() || s.readers.is_empty() {
            return Ok(true);
        }
        // A group was found to fit in the way in which it runs.
        match (self.running.is_in_group, self.eviction.is_canonical() || self.does_schedule_decide()) {
            (true, true) => Ok(self.cut_readers(src.storage)),
            (false, true) => match self.old_version(a, x, src.storage) {
                OldVersion::Ends => self.retire_version(src.storage),
                OldVersion::Cut if self.eviction.is_canonical() => Ok(self.cut_readers(src.storage)),
                OldVersion::Cut | OldVersion::Stays => Ok(false),
            },
            (_, false) => self.retire_version(src.storage),
        }
    }

    /// True if an update in place must run in the canonical way.
    pub(super) fn must_cut(&self, a: &Apply) -> bool {
        let Ok(x) = self.inputs_of(a) else { return false };
        self.overwrite(&a.op).iter().filter(|p| a.x.get(p.0).is_some_and(|x| x.1)).any(|&(i, _)| {
            let s = &self.table[x[i].storage];
            let is_updated = s.recipe.is_none() && s.handles == 1 && !s.readers.is_empty();
            is_updated && matches!(self.old_version(a, &x, x[i].storage), OldVersion::Cut)
        })
    }

    /// The fate of a leaf with readers at its update, if memory is short. It depends on sizes alone.
    fn old_version(&self, a: &Apply, x: &[Input], old: StorageId) -> OldVersion {
        let results: Vec<Input> = self.results(old).into_iter().map(whole).collect();
        let outputs: usize = a.facts.iter().map(|f| self.alignment().pad(f.bytes())).sum();
        let extra = outputs + self.scratch_bytes(&a.op, x, a.workspace_bytes);
        let (inputs, room) = (self.evictable_bytes(x), self.room_after(0));
        let do_results_fit = inputs + self.bytes_from_nothing(&results, extra) <= room;
        let is_copy_sure = self.bytes_from_nothing(x, extra) <= room;
        let kept = self.evictable_bytes(&results);
        // Beside the results every recipe can still run.
        let most = self.table.recipes().map(|(_, r)| r.from_nothing_bytes).max().unwrap_or(0);
        let do_leave_room = kept <= self.alignment().pad(self.table[old].bytes) || kept + most <= room;
        match (do_results_fit, is_copy_sure) {
            (true, _) if do_leave_room => OldVersion::Ends,
            (_, true) => OldVersion::Stays,
            (true, _) => OldVersion::Ends,
            (false, false) => OldVersion::Cut,
        }
    }

    /// The named storages that depend on a storage, without those that depend on it only through a named one.
    fn results(&self, old: StorageId) -> Vec<StorageId> {
        let mut seen: rustc_hash::FxHashSet<StorageId> = rustc_hash::FxHashSet::default();
        let (mut stack, mut named) = (vec![old], Vec::new());
        while let Some(id) = stack.pop() {
            for y in self.table.made_of(id) {
                let s = &self.table[y];
                match s.handles > 0 || s.pins > 0 || s.pinned_by_plan {
                    _ if !seen.insert(y) => {}
                    true => named.push(y),
                    false => stack.push(y),
                }
            }
        }
        named
    }

    /// Makes the needed dependents of a leaf independent of it, if memory is short. It visits the leaf's direct
    /// dependents, the last made first, and recomputes those that lead to a needed evicted storage. So after the update
    /// of a layer's weights its cotangent stays, and the gradients of earlier layers follow from it. False if that does
    /// not fit.
    fn cut_readers(&mut self, old: StorageId) -> bool {
        loop {
            let readers = self.table[old].readers.iter();
            let direct = readers.flat_map(|r| self.table[*r].y.iter().flatten().copied());
            let Some(y) = direct.max_by_key(|y| (self.table.depth_of(*y), self.table[*y].number)) else {
                return true;
            };
            let is_needed = self.leads_to_needed(y);
            if self.table.is_resident(y) && (is_needed || !self.table[y].is_evictable()) {
                self.drop_recipe(y);
                continue;
            }
            if self.table.is_resident(y) {
                // Nothing needs its bytes.
                self.evict(y);
            }
            if !is_needed {
                let below = self.resident_below(y);
                if below.is_empty() {
                    return false;
                }
                below.into_iter().for_each(|b| self.drop_recipe_if_there(b));
                continue;
            }
            let y_whole = [whole(y)];
            if self.pin_inputs(&y_whole).is_err() {
                return false;
            }
            self.drop_recipe(y);
            self.unpin(&y_whole);
        }
    }

    /// True if this evicted storage, or an evicted storage that depends on it, is named or in use.
    fn leads_to_needed(&self, id: StorageId) -> bool {
        let mut found = false;
        self.walk_evicted(id, |s| {
            found |= s.handles > 0 || s.pins > 0 || s.wanted > 0;
            !found
        });
        found
    }

    /// The resident storages that depend on an evicted storage, directly or through evicted ones.
    fn resident_below(&self, id: StorageId) -> Vec<StorageId> {
        self.walk_evicted(id, |_| true)
    }

    /// Visits an evicted storage and all evicted storages that depend on it, as long as `go_on`. Gives the resident
    /// storages that depend on those.
    fn walk_evicted(&self, id: StorageId, mut go_on: impl FnMut(&Storage) -> bool) -> Vec<StorageId> {
        let mut seen: rustc_hash::FxHashSet<StorageId> = rustc_hash::FxHashSet::from_iter([id]);
        let (mut stack, mut resident) = (vec![id], Vec::new());
        while let Some(id) = stack.pop() {
            let s = &self.table[id];
            if !go_on(s) {
                break;
            }
            for y in s.readers.iter().flat_map(|r| self.table[*r].y.iter().flatten().copied()) {
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

    /// True if an input is the whole of its storage, has the type of an output, and shares the storage with no other
    /// input.
    pub(super) fn is_whole(&self, x: &[Input], i: usize, fact: &Fact) -> bool {
        let src = &x[i];
        let bytes = self.table[src.storage].bytes;
        let is_alike =
            src.layout == Layout::contiguous(fact.shape.clone()) && src.dtype == fact.dtype && bytes == fact.bytes();
        is_alike && bytes > 0 && x.iter().filter(|o| o.storage == src.storage).count() == 1
    }

    /// Makes leaves of all results of a leaf. False if a copy of the old version is better. Errors: Budget if the
    /// results did not fit, though they do in the canonical way.
    fn retire_version(&mut self, old: StorageId) -> std::result::Result<bool, OpFailure> {
        let results: Vec<Input> = self.results(old).into_iter().map(whole).collect();
        let is_all_there = results.iter().all(|s| self.table.is_resident(s.storage));
        let is_decided = self.eviction.is_canonical() || self.does_schedule_decide();
        if !is_all_there && !is_decided && self.memory.largest_free() >= self.table[old].bytes {
            // A copy costs one pass over the bytes. An evicted storage costs at least its own kernel.
            return Ok(false);
        }
        match self.pin_inputs(&results) {
            Err(stop) if is_decided => return Err(stop),
            Err(_) => return Ok(false),
            Ok(()) => {}
        }
        results.iter().for_each(|s| self.drop_recipe(s.storage));
        self.unpin(&results);
        Ok(self.table[old].readers.is_empty())
    }
}

/// The fate of a leaf with readers that an update takes.
#[derive(Clone, Copy)]
enum OldVersion {
    /// Its results are kept in its place.
    Ends,
    /// The update writes elsewhere.
    Stays,
    /// Neither surely fits. The direct dependents of the leaf are kept, which only the canonical way can do.
    Cut,
}

/// A view of a whole storage.
pub(super) fn whole(storage: StorageId) -> Input {
    Rc::new(StorageView { storage, layout: Layout::contiguous([0]), dtype: DType::U8 })
}
