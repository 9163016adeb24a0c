//! A sweep: the order in which evicted storages are recomputed.
//!
//! To recompute some storages, a sweep collects their evicted ancestors once, as a set. It runs them in the order in
//! which the program first ran them, so a shared ancestor runs once. Storages that a sweep has yet to read are
//! *wanted*, and are evicted last. If one is evicted all the same, a nested sweep over *its* evicted ancestors
//! recomputes it, while the inputs before it in turn are pinned. So a step of n operators that share inputs takes about
//! n launches. Recomputing each input by itself would take a number of launches that grows exponentially with the depth
//! of the sharing.
//!
//! Launches are counted and limited (`work.rs`): with too little memory a sweep recomputes the same storages over and
//! over.

use remat_types::{Error, ErrorKind, SmallVec};
use rustc_hash::FxHashMap;

use super::failure::OpFailure;
use super::memory::table::{RecipeId, StorageId};
use super::worker::Worker;

/// The most nested sweeps. More would be too much work in any case, and each takes the thread's stack.
pub(super) const NESTED_MAX: u32 = 128;

/// A recipe of a sweep, with the evicted outputs for which it runs.
pub(super) struct Run {
    pub(super) recipe: RecipeId,
    pub(super) needed: SmallVec<[StorageId; 2]>,
}

impl Worker {
    /// Makes evicted storages resident. The caller pins those that must stay. Errors: Budget if memory or the limit of
    /// work does not suffice; the failure of a producer.
    pub(super) fn sweep(&mut self, roots: &[StorageId]) -> std::result::Result<(), OpFailure> {
        if self.work.nested == NESTED_MAX {
            return Err(self.too_much_work());
        }
        for &id in roots {
            self.restore(id)?;
        }
        let is_there = |id: StorageId| self.table.is_resident(id) || self.has_copy(id);
        let order = self.missing_ancestors(roots, is_there)?;
        // Inputs are wanted in reverse order, so that those of the first run lie on top.
        order.iter().rev().for_each(|r| self.want(r.recipe, 1));
        self.work.nested += 1;
        let mut result = Ok(());
        for (at, run) in order.iter().enumerate() {
            result = self.run_in_sweep(run.recipe, &run.needed);
            if result.is_err() {
                order[at + 1..].iter().for_each(|r| self.want(r.recipe, -1));
                break;
            }
        }
        self.work.nested -= 1;
        result
    }

    /// Runs one recipe of a sweep, unless its needed outputs are resident, and removes the marks from its inputs.
    pub(super) fn run_in_sweep(
        &mut self,
        recipe: RecipeId,
        needed: &[StorageId],
    ) -> std::result::Result<(), OpFailure> {
        if needed.iter().all(|y| self.table.is_resident(*y)) {
            self.want(recipe, -1);
            return Ok(());
        }
        if self.has_in_flight() {
            let x = self.table[recipe].x.clone();
            self.wait_arrivals(&x);
        }
        let r = &self.table[recipe];
        let order = self.turns(&r.x, r.first);
        let mut result = self.hold_in_turn(&order);
        if result.is_ok() {
            result = self.begin_replay().and_then(|()| self.rerun(recipe));
            order.iter().for_each(|id| self.table[*id].pins -= 1);
        }
        // This also settles the inputs that were held.
        self.want(recipe, -1);
        result
    }

    /// Makes storages resident and pins them, one after the other. On an error none stays pinned.
    pub(super) fn hold_in_turn(&mut self, order: &[StorageId]) -> std::result::Result<(), OpFailure> {
        let missing: SmallVec<[StorageId; 4]> =
            order.iter().copied().filter(|id| !self.table.is_resident(*id)).collect();
        // Together first: then a shared ancestor runs once.
        let is_too_little =
            |e: &OpFailure| e.is_shortfall() && e.error().shortfall().is_some_and(|s| s.recompute_limit.is_none());
        let mut result = match missing.len() {
            0 | 1 => Ok(()),
            // One after the other may need less memory.
            _ => self.sweep(&missing).or_else(|e| if is_too_little(&e) { Ok(()) } else { Err(e) }),
        };
        let mut held = 0;
        while let (Ok(()), Some(&id)) = (&result, order.get(held)) {
            self.table[id].pins += 1;
            held += 1;
            if !self.table.is_resident(id) {
                result = self.sweep(&[id]);
            }
        }
        if result.is_err() {
            order[..held].iter().for_each(|id| self.table[*id].pins -= 1);
        }
        result
    }

    /// The recipes that make missing storages from existing ones, each once, in the order in which the program first
    /// ran them. Errors: the failure of a recipe that cannot run.
    pub(super) fn missing_ancestors(
        &self,
        roots: &[StorageId],
        is_there: impl Fn(StorageId) -> bool,
    ) -> std::result::Result<Vec<Run>, OpFailure> {
        let mut runs: FxHashMap<RecipeId, SmallVec<[StorageId; 2]>> = FxHashMap::default();
        let mut stack: SmallVec<[StorageId; 16]> = SmallVec::from(roots);
        while let Some(id) = stack.pop() {
            let s = &self.table[id];
            if is_there(id) {
                continue;
            }
            let Some((recipe, _)) = s.recipe else {
                let text = format!("a storage made by {} has neither bytes nor a recipe", s.label.text);
                return Err(Error::new(ErrorKind::Internal, text).into());
            };
            let r = &self.table[recipe];
            if let Some(f) = &r.failed {
                return Err(OpFailure::Inherited(f.clone()));
            }
            let needed = runs.entry(recipe).or_default();
            if needed.is_empty() {
                stack.extend(r.x.iter().map(|x| x.storage));
            }
            if !needed.contains(&id) {
                needed.push(id);
            }
        }
        let mut order: Vec<Run> = runs.into_iter().map(|(recipe, needed)| Run { recipe, needed }).collect();
        // Outputs are numbered as commands make them, after their inputs.
        order.sort_unstable_by_key(|r| self.table[r.recipe].number);
        Ok(order)
    }
}
