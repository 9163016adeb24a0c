//! Bringing evicted storages back: producers run again, on an explicit stack, through the same `run` as the first
//! time.
//!
//! What the running command needs is pinned. What a recomputation further up will need is only *wanted*: a policy
//! spares it, but takes it before it gives up, and the frame that wanted it then makes it again. So depth costs stack
//! entries, not budget; a bound on the number of runs ends the rare case in which two inputs keep evicting each other.

use remat_types::{BudgetShortfall, Error, ErrorKind, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::run::Call;
use super::table::{RecipeId, Source, StorageId};
use super::worker::Worker;
use crate::arena::padded;
use crate::report::Kind;

/// Runs allowed to bring one storage back, per recipe in the table, before the budget counts as infeasible.
const RUNS_PER_RECIPE: u64 = 8;

impl Worker {
    /// Makes every input resident and pins it; [`Worker::unpin`] releases them. Errors leave nothing pinned.
    pub(super) fn pin_inputs(&mut self, x: &[Source]) -> Result<()> {
        for s in x {
            self.table.storages[s.storage].pins += 1;
        }
        let missing = |w: &Worker| x.iter().map(|s| s.storage).find(|s| !w.table.is_resident(*s));
        while let Some(id) = missing(self) {
            if let Err(e) = self.recompute(id) {
                self.unpin(x);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Releases what [`Worker::pin_inputs`] pinned.
    pub(super) fn unpin(&mut self, x: &[Source]) {
        let now = self.now_ns;
        for s in x {
            let s = &mut self.table.storages[s.storage];
            s.pins -= 1;
            s.last_use_ns = now;
        }
        for s in x {
            self.settle(s.storage);
        }
    }

    /// Frees a storage's bytes, or the storage, if nothing needs them.
    pub(super) fn settle(&mut self, id: StorageId) {
        let Some(s) = self.table.storages.get(id) else { return };
        if s.handles > 0 || s.pins > 0 || s.wanted > 0 {
            return;
        }
        if s.readers.is_empty() {
            self.destroy(id);
        } else if s.recipe.is_some() && s.is_resident() {
            self.unplace(id);
        }
    }

    /// Makes one evicted storage resident. It is pinned by the caller.
    fn recompute(&mut self, root: StorageId) -> Result<()> {
        let mut stack: Vec<RecipeId> = vec![self.producer(root)?];
        self.want(stack[0], 1);
        let mut runs_left = RUNS_PER_RECIPE * self.table.recipes.len() as u64 + 64;
        // At first a policy weighs what is wanted like everything else: sparing it may cost something dearer.
        let spare_below = runs_left - runs_left / RUNS_PER_RECIPE;
        let result = loop {
            let Some(&recipe) = stack.last() else { break Ok(()) };
            let x = &self.table.recipes[recipe].x;
            match x.iter().map(|s| s.storage).find(|s| !self.table.is_resident(*s)) {
                Some(missing) => match self.producer(missing) {
                    Ok(p) => {
                        stack.push(p);
                        self.want(p, 1);
                    }
                    Err(e) => break Err(e),
                },
                None if runs_left == 0 => {
                    break Err(self.shortfall(root).context("inputs keep evicting each other"));
                }
                None => {
                    runs_left -= 1;
                    self.spare_wanted = runs_left < spare_below;
                    if let Err(e) = self.rerun(recipe) {
                        break Err(e);
                    }
                    stack.pop();
                    self.want(recipe, -1);
                }
            }
        };
        self.spare_wanted = false;
        while let Some(recipe) = stack.pop() {
            self.want(recipe, -1);
        }
        result
    }

    /// A budget error of bringing back `x`, told what that and `extra` bytes beside it take altogether.
    pub(super) fn with_recomputation(&self, e: Error, x: &[Source], extra: usize) -> Error {
        let Some(s) = e.shortfall() else { return e };
        let enough = self.table.fixed_bytes + self.bytes_to_make(x, extra);
        if enough <= s.smallest_feasible_bytes {
            return e;
        }
        let told = Error::budget(BudgetShortfall { smallest_feasible_bytes: enough, ..s.clone() });
        match e.call_site() {
            Some(site) => told.with_call_site(site),
            None => told,
        }
    }

    /// Bytes beside sources that suffice to bring back the evicted ones of `x` one after the other, depth first, and
    /// then to use them all beside `extra` bytes.
    ///
    /// With `X` the bytes of all inputs: `D = max(X + extra, max over missing inputs i of X - x_i + D(producer of i))`.
    fn bytes_to_make(&self, x: &[Source], extra: usize) -> usize {
        let mut known: FxHashMap<RecipeId, usize> = FxHashMap::default();
        let mut stack: Vec<RecipeId> = self.missing_producers(x).map(|(_, r)| r).collect();
        while let Some(&id) = stack.last() {
            let r = &self.table.recipes[id];
            let unknown: SmallVec<[RecipeId; 4]> =
                self.missing_producers(&r.x).map(|(_, p)| p).filter(|p| !known.contains_key(p)).collect();
            if unknown.is_empty() {
                let outputs: usize = r.facts.iter().map(|f| padded(f.bytes())).sum();
                known.insert(id, self.depth_first_bytes(&r.x, outputs + self.scratch_bytes(&r.op, &r.x), &known));
                stack.pop();
            } else {
                stack.extend(unknown);
            }
        }
        self.depth_first_bytes(x, extra, &known)
    }

    fn depth_first_bytes(&self, x: &[Source], extra: usize, known: &FxHashMap<RecipeId, usize>) -> usize {
        let mut seen: SmallVec<[StorageId; 4]> = SmallVec::new();
        let mut all = 0;
        for s in x {
            let storage = &self.table.storages[s.storage];
            if storage.recipe.is_some() && !seen.contains(&s.storage) {
                seen.push(s.storage);
                all += padded(storage.bytes);
            }
        }
        let bytes = |s: StorageId| padded(self.table.storages[s].bytes);
        let below = self.missing_producers(x).filter_map(|(s, r)| Some(all - bytes(s) + known.get(&r)?)).max();
        (all + extra).max(below.unwrap_or(0))
    }

    fn missing_producers<'a>(&'a self, x: &'a [Source]) -> impl Iterator<Item = (StorageId, RecipeId)> + 'a {
        x.iter().filter_map(|s| {
            let storage = &self.table.storages[s.storage];
            let recipe = storage.recipe.filter(|_| !storage.is_resident())?;
            Some((s.storage, recipe.0))
        })
    }

    fn producer(&self, id: StorageId) -> Result<RecipeId> {
        let s = &self.table.storages[id];
        s.recipe.map(|r| r.0).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("a storage made by {} has neither bytes nor a recipe", s.label))
        })
    }

    /// Marks the inputs of a recipe as wanted, or takes the mark back.
    fn want(&mut self, recipe: RecipeId, by: i32) {
        let x: SmallVec<[StorageId; 4]> = self.table.recipes[recipe].x.iter().map(|s| s.storage).collect();
        for &id in &x {
            let w = &mut self.table.storages[id].wanted;
            *w = w.saturating_add_signed(by);
        }
        if by < 0 {
            x.iter().for_each(|&id| self.settle(id));
        }
    }

    /// Runs a recipe whose inputs are resident. Outputs that exist already, or that nothing needs, go to scratch.
    fn rerun(&mut self, id: RecipeId) -> Result<()> {
        let r = &self.table.recipes[id];
        let (op, x, facts, slots) = (r.op.clone(), r.x.clone(), r.facts.clone(), r.y.clone());
        let (stream, scope, site) = (r.stream, r.scope.clone(), r.site);
        let cost_ns = r.cost_ns;
        for s in &x {
            self.table.storages[s.storage].pins += 1;
        }
        let mut y: SmallVec<[StorageId; 2]> = SmallVec::new();
        let mut scratch: SmallVec<[StorageId; 2]> = SmallVec::new();
        for (slot, fact) in slots.iter().zip(&facts) {
            let target = slot.filter(|s| !self.table.is_resident(*s)).unwrap_or_else(|| {
                let s = self.new_storage(fact.bytes(), Kind::Workspace, op.label());
                scratch.push(s);
                s
            });
            self.table.storages[target].pins += 1;
            y.push(target);
        }
        let call = Call { op: &op, x: &x, y: &y, facts: &facts, holds: &[], stream, scope: &scope, site, again: true };
        let result = self.place_outputs(&y, &[], cost_ns, &op, &x).and_then(|()| self.run(&call));
        for &s in &y {
            self.table.storages[s].pins -= 1;
        }
        if result.is_err() {
            // What was placed but not computed must not be read.
            y.iter().filter(|s| !scratch.contains(s)).for_each(|s| self.unplace(*s));
        }
        // A sibling that came back as well stays only if something may read it.
        y.iter().filter(|s| !scratch.contains(s)).for_each(|s| self.settle(*s));
        scratch.into_iter().for_each(|s| self.destroy(s));
        self.unpin(&x);
        if let Ok(ns) = result {
            self.learn(id, ns);
        }
        result.map(|_| ())
    }
}
