//! Leaves that no handle names any more. They are kept only so that their results can be recomputed.
//!
//! A program that keeps each loss would keep each batch. A program that computes a momentum itself would keep every
//! version of the parameters, with a history that grows in each step. If the results take no more bytes than such
//! leaves, they become leaves instead. At the end of a step they may take a few times as many. Versions of parameters
//! are released together or not at all, since each gradient depends on most of them. So this search runs where a step
//! ends. For programs that mark no steps it runs where a command first reads an updated parameter: one that was
//! replaced in place, or a computed tensor at which gradients end. Such a tensor itself becomes a leaf there, whatever
//! its bytes. Weights that a generator draws depend on the generator's state, which takes a few bytes, so the rule
//! above would never make them leaves.

use std::collections::BTreeMap;

use remat_types::SmallVec;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::eager::command::Apply;
use crate::eager::failure::OpFailure;
use crate::eager::handle::TensorId;
use crate::eager::memory::table::{HeldBy, Input, Storage, StorageId};
use crate::eager::schedule::Needs;
use crate::eager::update::whole;
use crate::eager::worker::Worker;

/// The search for the results of one leaf visits at most so many storages.
const RESULTS_MAX: usize = 256;

/// At the end of a history, the results of a version of a parameter may take so many times its bytes: its next version,
/// or an average, and two moments.
const KEPT_OF_A_LEAF: usize = 3;

impl Worker {
    /// Releases unnamed leaves whose results take no more bytes. Errors: those of [`Worker::make_leaves`].
    pub(in crate::eager) fn release_leaves(&mut self) -> std::result::Result<(), OpFailure> {
        self.for_results(1, |w, results| w.make_leaves(&results))
    }

    /// Calls `keep` for each set of results that lets leaves go. The sets for leaves in common may take `times` their
    /// bytes.
    fn for_results(
        &mut self,
        times: usize,
        mut keep: impl FnMut(&mut Worker, Vec<StorageId>) -> std::result::Result<(), OpFailure>,
    ) -> std::result::Result<(), OpFailure> {
        self.results_for_leaves(times)
            .into_iter()
            .try_for_each(|(results, bytes)| self.for_set(results, bytes, &mut keep))
    }

    /// Keeps results that still have recipes, if they fit as leaves once leaves of `leaf_bytes` are gone.
    fn for_set(
        &mut self,
        mut results: Vec<StorageId>,
        leaf_bytes: usize,
        keep: &mut impl FnMut(&mut Worker, Vec<StorageId>) -> std::result::Result<(), OpFailure>,
    ) -> std::result::Result<(), OpFailure> {
        // An earlier set may have had some of them.
        results.retain(|id| self.table[*id].recipe.is_some());
        let growth = self.bytes_of(&results).saturating_sub(leaf_bytes);
        // Every recipe must still fit beside the grown leaves.
        match !results.is_empty() && (growth == 0 || self.is_all_in_reach_beside(growth)) {
            true => keep(self, results),
            false => Ok(()),
        }
    }

    /// As [`Worker::release_leaves`], but the worker runs no operator for it: a set of results becomes leaves only if
    /// all of them are resident.
    pub(in crate::eager) fn release_leaves_of_residents(&mut self) {
        let done = self.for_results(1, Worker::make_leaves_of_residents);
        debug_assert!(done.is_ok(), "nothing runs for it");
    }

    /// Makes results leaves if all of them are resident. Errors: none.
    fn make_leaves_of_residents(&mut self, results: Vec<StorageId>) -> std::result::Result<(), OpFailure> {
        if self.are_there(&results) {
            results.into_iter().for_each(|id| self.drop_recipe(id));
        }
        Ok(())
    }

    fn are_there(&self, results: &[StorageId]) -> bool {
        results.iter().all(|id| self.table[*id].is_evictable())
    }

    /// A step ends: updated tensors, and tensors that would make its history longer, become leaves. A tensor that does
    /// not fit stays as it is, since no request of the program depends on it.
    pub(in crate::eager) fn end_history(&mut self) {
        let updated = std::mem::take(&mut self.feasibility.updated);
        if !self.has_history() {
            return;
        }
        let mut keep = |w: &mut Worker, results: Vec<StorageId>| match (w.eviction.is_short(), w.does_schedule_decide())
        {
            (false, _) => w.make_leaves_of_residents(results),
            (true, true) => w.try_make_leaves(&results),
            // At the end of a step that followed its plan, all of them are resident.
            (true, false) if w.are_there(&results) => w.make_leaves_of_residents(results),
            (true, false) => w.make_leaves(&results),
        };
        let updated = self.updated_results(updated);
        // A failure means that results do not fit.
        let done = self.for_set(updated, 0, &mut keep).and_then(|()| self.for_results(KEPT_OF_A_LEAF, keep));
        drop(done);
    }

    /// The updated storages that still have recipes: computed tensors at which gradients end.
    fn updated_results(&self, updated: FxHashSet<StorageId>) -> Vec<StorageId> {
        let is_open = |s: &Storage| s.handles > 0 && s.recipe.is_some();
        let mut open: Vec<_> = updated.into_iter().filter(|id| self.table.storage(*id).is_some_and(is_open)).collect();
        open.sort_unstable_by_key(|id| self.table[*id].number);
        open
    }

    /// True if results have recipes.
    fn has_history(&self) -> bool {
        self.budget.is_some() || self.options.always_record
    }

    /// A storage is state from now on.
    pub(in crate::eager) fn note_update(&mut self, id: StorageId) {
        if self.has_history() {
            self.feasibility.updated.insert(id);
        }
    }

    /// Gradients end at a tensor. If it was computed, a history may end there.
    pub(in crate::eager) fn note_leaf(&mut self, id: TensorId) {
        let storage = self.table.kept(&id).map(|s| s.storage).filter(|id| self.table[*id].recipe.is_some());
        storage.into_iter().for_each(|id| self.note_update(id));
    }

    /// A command is about to run. If it is the first that reads an updated tensor, all updates have been made.
    pub(in crate::eager) fn after_updates(&mut self, a: &Apply) {
        if self.feasibility.updated.is_empty() || self.running.is_in_group {
            return;
        }
        let is_updated = |(id, _): &(TensorId, bool)| {
            self.table.kept(id).is_some_and(|s| self.feasibility.updated.contains(&s.storage))
        };
        if a.x.iter().any(is_updated) {
            self.end_history();
        }
    }

    /// Sets of named results, each to be kept in place of unnamed leaves, with the bytes of those leaves. Leaves with
    /// common results form one set, which may take at most `times` their bytes. A set for a single leaf takes at most
    /// its bytes.
    fn results_for_leaves(&self, times: usize) -> Vec<(Vec<StorageId>, usize)> {
        let is_unnamed = |s: &Storage| s.recipe.is_none() && s.held_by() == HeldBy::Nobody && !s.readers.is_empty();
        let mut unnamed: Vec<_> = self.table.storages().filter(|(_, s)| is_unnamed(s)).collect();
        unnamed.sort_unstable_by_key(|u| u.1.number);
        let leaves: Vec<(StorageId, usize)> =
            unnamed.into_iter().map(|(id, s)| (id, self.alignment().pad(s.bytes))).collect();
        let mut sets = self.results_in_common(&leaves, times);
        sets.extend(leaves.iter().filter_map(|(id, bytes)| Some((self.smaller_results(*id, *bytes)?, *bytes))));
        for (results, _) in &mut sets {
            results.sort_unstable_by_key(|id| self.table[*id].number);
        }
        sets
    }

    /// The results of leaves that have results in common, directly or through other leaves, if they take at most
    /// `times` the bytes of the leaves. Also gives those bytes.
    fn results_in_common(&self, leaves: &[(StorageId, usize)], times: usize) -> Vec<(Vec<StorageId>, usize)> {
        // For each visited storage, the leaf from which the search reached it. For each leaf, another leaf of its
        // group.
        let mut found_by: FxHashMap<StorageId, usize> = FxHashMap::default();
        let mut group: Vec<usize> = (0..leaves.len()).collect();
        let first = |group: &[usize], mut leaf: usize| {
            while group[leaf] != leaf {
                leaf = group[leaf];
            }
            leaf
        };
        let mut results: Vec<(StorageId, usize)> = Vec::new();
        for (leaf, (id, _)) in leaves.iter().enumerate() {
            let mut stack = vec![*id];
            while let Some(id) = stack.pop() {
                for y in self.table.made_of(id) {
                    if let Some(other) = found_by.get(&y) {
                        let (a, b) = (first(&group, *other), first(&group, leaf));
                        group[a.max(b)] = a.min(b);
                        continue;
                    }
                    found_by.insert(y, leaf);
                    match self.table[y].handles > 0 {
                        true => results.push((y, leaf)),
                        false => stack.push(y),
                    }
                }
            }
        }
        let mut of: BTreeMap<usize, (usize, Vec<StorageId>)> = BTreeMap::new();
        for (leaf, (_, bytes)) in leaves.iter().enumerate() {
            of.entry(first(&group, leaf)).or_default().0 += bytes;
        }
        for (id, leaf) in results {
            of.entry(first(&group, leaf)).or_default().1.push(id);
        }
        let sets = of.into_values().map(|(bytes, results)| (results, bytes));
        sets.filter(|(results, bytes)| self.bytes_of(results) <= bytes.saturating_mul(times)).collect()
    }

    fn bytes_of(&self, storages: &[StorageId]) -> usize {
        storages.iter().map(|id| self.alignment().pad(self.table[*id].bytes)).sum()
    }

    /// The results of one leaf, if they take no more bytes.
    fn smaller_results(&self, leaf: StorageId, bytes: usize) -> Option<Vec<StorageId>> {
        let mut seen: FxHashSet<StorageId> = FxHashSet::default();
        let (mut stack, mut kept, mut kept_bytes) = (vec![leaf], Vec::new(), 0);
        while let Some(id) = stack.pop() {
            for y in self.table.made_of(id) {
                if !seen.insert(y) {
                    continue;
                }
                match self.table[y].handles > 0 {
                    true => {
                        kept_bytes += self.alignment().pad(self.table[y].bytes);
                        kept.push(y);
                    }
                    false => stack.push(y),
                }
                if kept_bytes > bytes || seen.len() > RESULTS_MAX {
                    return None;
                }
            }
        }
        Some(kept)
    }

    /// Makes leaves of results, if that surely fits in the canonical way. Errors: Budget if the step's work did not
    /// suffice.
    pub(in crate::eager) fn make_leaves(&mut self, results: &[StorageId]) -> std::result::Result<(), OpFailure> {
        let x: SmallVec<[Input; 4]> = results.iter().copied().map(whole).collect();
        match self.bytes_from_nothing(&x, 0) <= self.room_after(0) {
            true => self.try_make_leaves(results),
            false => Ok(()),
        }
    }

    /// Makes leaves of results. Recomputation for it counts as the step's work, whatever the worker's state. Errors:
    /// Budget if memory or that work does not suffice.
    fn try_make_leaves(&mut self, results: &[StorageId]) -> std::result::Result<(), OpFailure> {
        let x: SmallVec<[Input; 4]> = results.iter().copied().map(whole).collect();
        let keep = |w: &mut Worker| {
            w.pin_inputs(&x)?;
            results.iter().for_each(|id| w.drop_recipe(*id));
            w.unpin(&x);
            Ok(())
        };
        if !self.does_schedule_decide() {
            return self.surely(keep);
        }
        let acted = self.schedule.position();
        self.extend_schedule(&Needs { x: x.clone(), beside: 0 })?;
        self.as_scheduled(acted, keep)
    }
}
