//! Bringing evicted storages back: producers run again, on an explicit stack, through the same `run` as the first
//! time.
//!
//! What the running command needs is pinned. What a recomputation further up will need is only *wanted*: a policy
//! spares it, but takes it before it gives up, and the frame that wanted it then makes it again. So depth costs stack
//! entries, not budget; a bound on the number of runs ends the rare case in which two inputs keep evicting each other.

use remat_types::{Error, ErrorKind, Result, SmallVec};

use super::run::Call;
use super::table::{RecipeId, Source, StorageId};
use super::worker::Worker;
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
                    if let Err(e) = self.rerun(recipe) {
                        break Err(e);
                    }
                    stack.pop();
                    self.want(recipe, -1);
                }
            }
        };
        while let Some(recipe) = stack.pop() {
            self.want(recipe, -1);
        }
        result
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
        let (stream, scope) = (r.stream, r.scope.clone());
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
        let call = Call { op: &op, x: &x, y: &y, facts: &facts, holds: &[], stream, scope: &scope, again: true };
        let result = self.place_outputs(&y, &[], cost_ns, &op).and_then(|()| self.run(&call));
        for &s in &y {
            self.table.storages[s].pins -= 1;
        }
        if result.is_err() {
            // What was placed but not computed must not be read.
            y.iter().filter(|s| !scratch.contains(s)).for_each(|s| self.unplace(*s));
        }
        scratch.into_iter().for_each(|s| self.destroy(s));
        self.unpin(&x);
        if let Ok(ns) = result {
            self.learn(id, ns);
        }
        result.map(|_| ())
    }
}
