//! Recipes that could not run again: their producers need more bytes than leaves leave.
//!
//! A producer that ran once may not fit again. Leaves that came meanwhile (data, results that are not repeatable,
//! committed tensors) leave less room for its inputs, outputs and scratch memory. Evicting its result would then lose
//! it. So before leaves grow, a result that would get out of reach becomes a leaf. When memory becomes short, so does
//! each result that is out of reach by then. Both rules depend on the recipes, and not on the storages that happen to
//! be evicted (`canonical.rs`).

mod turns;
mod unnamed;

pub(in crate::eager) use self::turns::FromNothing;

use remat_types::SmallVec;
use rustc_hash::FxHashSet;

use crate::eager::failure::OpFailure;
use crate::eager::memory::table::{Recipe, RecipeId, Storage, StorageId, Table};
use crate::eager::worker::Worker;
use remat_device::Block;

/// The search for ancestors of a storage that may need too much visits at most so many recipes.
const BEFORE_MAX: usize = 16;

/// See the module's note.
#[derive(Default)]
pub(in crate::eager) struct Feasibility {
    /// Scratch memory and outputs of the running command. They have no recipe yet, but are no leaves once it has run.
    passing: SmallVec<[StorageId; 4]>,
    /// An upper bound of the bytes beside leaves that any recipe needs.
    most_bytes: usize,
    /// State that was made since unnamed leaves were last released.
    updated: FxHashSet<StorageId>,
}

impl Feasibility {
    /// Notes storages that have no recipe yet, but are no leaves once the running command has run.
    pub(in crate::eager) fn pass(&mut self, ids: impl Iterator<Item = StorageId>) {
        self.passing.extend(ids);
    }

    /// The running command has run.
    pub(in crate::eager) fn end_passing(&mut self) {
        self.passing.clear();
    }

    /// Bytes of the storages that [`Feasibility::pass`] noted.
    pub(in crate::eager) fn passing_bytes(&self, table: &Table) -> usize {
        self.passing.iter().filter_map(|id| table.storage(*id)?.block.as_ref()).map(Block::bytes).sum()
    }

    /// A copy, between commands.
    pub(in crate::eager) fn duplicate(&self) -> Feasibility {
        Feasibility { most_bytes: self.most_bytes, updated: self.updated.clone(), ..Feasibility::default() }
    }
}

impl Worker {
    /// A command is about to make leaves of so many bytes. If memory is short, results that could not be recomputed
    /// beside those become leaves, and unnamed leaves with smaller results are released.
    pub(in crate::eager) fn before_growth(&mut self, bytes: usize) -> std::result::Result<(), OpFailure> {
        self.before_growth_to(bytes, &[])
    }

    /// As [`Worker::before_growth`], where the command is about to make leaves of the storages in `coming`: this call
    /// makes leaves of other storages only.
    pub(in crate::eager) fn before_growth_to(
        &mut self,
        bytes: usize,
        coming: &[StorageId],
    ) -> std::result::Result<(), OpFailure> {
        if bytes == 0 || self.budget.is_none() || !self.eviction.is_short() || self.is_all_in_reach_beside(bytes) {
            return Ok(());
        }
        self.release_leaves()?;
        for id in self.named_deepest_last() {
            let is_lost = |w: &Worker| w.is_in_reach(id, w.room_after(0)) && !w.is_in_reach(id, w.room_after(bytes));
            let is_open = |s: &&Storage| s.recipe.is_some() && !coming.contains(&id);
            let Some(s) = self.table.storage(id).filter(is_open) else { continue };
            if is_lost(self) && self.alignment().pad(s.bytes) <= self.room_after(bytes) {
                self.make_leaves(&[id])?;
            }
        }
        Ok(())
    }

    /// True if every recipe can run after leaves have grown by so many bytes.
    fn is_all_in_reach_beside(&mut self, growth: usize) -> bool {
        let room = self.room_after(growth);
        if self.feasibility.most_bytes > room {
            self.feasibility.most_bytes = self.table.recipes().map(|(_, r)| r.most_bytes).max().unwrap_or(0);
        }
        self.feasibility.most_bytes <= room
    }

    /// Memory has become short. Until now nothing was evicted.
    pub(in crate::eager) fn begin_short(&mut self) {
        if self.budget.is_none() || self.eviction.note_short() {
            return;
        }
        self.release_leaves_of_residents();
        for id in self.named_deepest_last() {
            let is_there = self.table.storage(id).is_some_and(Storage::is_evictable);
            if is_there && !self.is_in_reach(id, self.room_after(0)) {
                self.drop_recipe(id);
            }
        }
    }

    /// The named storages that can be recomputed, in the order in which they are made.
    fn named_deepest_last(&self) -> Vec<StorageId> {
        let named = self.table.storages().filter(|(_, s)| s.handles > 0 && s.recipe.is_some());
        let mut named: Vec<_> = named.map(|(id, s)| ((self.table.depth_of(id), s.number), id)).collect();
        named.sort_unstable_by_key(|n| n.0);
        named.into_iter().map(|n| n.1).collect()
    }

    /// Bytes beside leaves when the running command has run and leaves have grown by `growth`.
    pub(in crate::eager) fn room_after(&self, growth: usize) -> usize {
        let fixed = self.table.fixed_bytes() - self.feasibility.passing_bytes(&self.table);
        self.memory.arena().capacity().saturating_sub(fixed + growth)
    }

    /// Notes the most bytes that a new recipe, or one of its ancestors, needs. Every op calls this.
    pub(in crate::eager) fn note_most_bytes(&mut self, r: &mut Recipe) {
        let outputs: usize = r.facts.iter().map(|f| self.alignment().pad(f.bytes())).sum();
        let (mut bytes, mut before) = (outputs + self.scratch_bytes(&r.op, &r.x, r.workspace_bytes), 0);
        for s in r.x.iter().map(|s| &self.table[s.storage]) {
            if let Some((r, _)) = s.recipe {
                bytes += self.alignment().pad(s.bytes);
                before = before.max(self.table[r].most_bytes);
            }
        }
        r.most_bytes = bytes.max(before);
        self.feasibility.most_bytes = self.feasibility.most_bytes.max(r.most_bytes);
    }

    /// Bytes beside leaves while a recipe runs again: its inputs, outputs and scratch memory.
    fn bytes_to_run(&self, r: &Recipe) -> usize {
        let mut seen: SmallVec<[StorageId; 4]> = SmallVec::new();
        let mut bytes = self.scratch_bytes(&r.op, &r.x, r.workspace_bytes);
        bytes += r.facts.iter().map(|f| self.alignment().pad(f.bytes())).sum::<usize>();
        for s in r.x.iter().map(|s| s.storage) {
            if self.table[s].recipe.is_some() && !seen.contains(&s) {
                bytes += self.alignment().pad(self.table[s].bytes);
                seen.push(s);
            }
        }
        // The output takes over an input that is recomputed for it alone.
        let is_taken = |p: &&(usize, usize)| {
            let s = r.x.get(p.0).map(|s| &self.table[s.storage]);
            let is_alone = s.is_some_and(|s| s.handles == 0 && s.recipe.is_some());
            is_alone && r.facts.get(p.1).is_some_and(|f| self.is_whole(&r.x, p.0, f))
        };
        bytes - self.overwrite(&r.op).iter().find(is_taken).map_or(0, |p| self.alignment().pad(r.facts[p.1].bytes()))
    }

    /// False if a storage could not be recomputed in `room` bytes beside leaves: its producer needs more, or the
    /// producer of an ancestor that must be recomputed first.
    fn is_in_reach(&self, id: StorageId, room: usize) -> bool {
        let is_doubtful = |t: &Table, id: StorageId| t[id].recipe.filter(|r| t[r.0].most_bytes > room);
        let Some((first, _)) = is_doubtful(&self.table, id) else { return true };
        let mut seen: SmallVec<[RecipeId; 16]> = SmallVec::new();
        seen.push(first);
        let mut at = 0;
        while let Some(&r) = seen.get(at) {
            at += 1;
            let r = &self.table[r];
            if self.bytes_to_run(r) > room {
                return false;
            }
            for s in r.x.iter().map(|s| s.storage) {
                if let Some((r, _)) = is_doubtful(&self.table, s).filter(|r| !seen.contains(&r.0))
                    && seen.len() < BEFORE_MAX
                {
                    seen.push(r);
                }
            }
        }
        true
    }
}
