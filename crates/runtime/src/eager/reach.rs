//! What could not be made again: results whose producers need more bytes than sources leave.
//!
//! A producer that ran may not run again: sources that came meanwhile (data, results that are not repeatable, what is
//! committed) leave less room for its inputs, outputs and scratch memory. A result that is evicted then is lost, though the
//! program would run if something else went. So it is not evicted while anything else will do, and before sources grow, what would
//! get out of reach is made again. Neither says that all of them fit at once.

use std::rc::Rc;

use remat_types::{DType, Layout, SmallVec};

use super::table::{Recipe, RecipeId, Source, StorageId, Table};
use super::worker::Worker;
use crate::arena::{Block, padded};

/// What must be made before a storage, and may need too much, is looked for among so many recipes.
const BEFORE_MAX: usize = 16;

/// See the module's note.
#[derive(Default)]
pub(super) struct Reach {
    /// What is no source when the running command has run, though it has no recipe yet: its scratch memory, and outputs.
    pub(super) passing: SmallVec<[StorageId; 4]>,
    /// Bytes by which the running command adds to sources.
    growth: usize,
    /// No recipe needs more bytes beside sources.
    most_bytes: usize,
}

impl Reach {
    /// Between commands.
    pub(super) fn duplicate(&self) -> Reach {
        Reach { most_bytes: self.most_bytes, ..Reach::default() }
    }
}

impl Worker {
    /// A command is about to make sources of so many bytes: what could not be made again beside them is made now.
    pub(super) fn before_growth(&mut self, bytes: usize) {
        if self.is_canonical {
            return;
        }
        let room = self.room_beside_sources();
        self.reach.growth = bytes;
        let after = room.saturating_sub(bytes);
        if self.budget.is_none() || !self.has_evicted || self.reach.most_bytes <= after {
            return;
        }
        self.reach.most_bytes = self.table.recipes.iter().map(|(_, r)| r.most_bytes).max().unwrap_or(0);
        let evicted = self.table.storages.iter().filter(|(_, s)| s.handles > 0 && !s.is_resident());
        let mut lost: Vec<StorageId> = evicted.map(|(id, _)| id).collect();
        lost.retain(|&id| self.is_in_reach(id, room) && !self.is_in_reach(id, after));
        // What is made of others after those.
        lost.sort_by_key(|&id| self.table.depth_of(id));
        for storage in lost {
            let whole = [Rc::new(Source { storage, layout: Layout::contiguous([0]), dtype: DType::U8 })];
            // Where it does not fit it stays lost; who reads it is told.
            if self.or_when_short(|w| w.pin_inputs(&whole)).is_ok() {
                self.unpin(&whole);
            }
        }
    }

    /// The running command has made its sources, or failed.
    pub(super) fn after_growth(&mut self) {
        self.reach.growth = 0;
    }

    /// Bytes beside sources when the running command has run.
    pub(super) fn room_beside_sources(&self) -> usize {
        let passing = self.reach.passing.iter().filter_map(|id| self.table.storages.get(*id)?.block.as_ref());
        let fixed = self.table.fixed_bytes - passing.map(Block::bytes).sum::<usize>();
        self.arena.capacity().saturating_sub(fixed + self.reach.growth)
    }

    /// The same, unless every recipe there was needs no more.
    pub(super) fn room_in_doubt(&self) -> Option<usize> {
        Some(self.room_beside_sources()).filter(|room| self.reach.most_bytes > *room)
    }

    /// Notes what a new recipe, or one of those before it, needs at the most: every op comes by here.
    pub(super) fn note_most_bytes(&mut self, r: &mut Recipe) {
        let outputs: usize = r.facts.iter().map(|f| padded(f.bytes())).sum();
        let (mut bytes, mut before) = (outputs + Self::scratch_bytes(&r.op, &r.x, r.workspace_bytes), 0);
        for s in r.x.iter().map(|s| &self.table.storages[s.storage]) {
            if let Some((r, _)) = s.recipe {
                bytes += padded(s.bytes);
                before = before.max(self.table.recipes[r].most_bytes);
            }
        }
        r.most_bytes = bytes.max(before);
        self.reach.most_bytes = self.reach.most_bytes.max(r.most_bytes);
    }

    /// Bytes beside sources while a recipe runs again: its inputs, outputs and scratch memory.
    fn bytes_to_run(&self, r: &Recipe) -> usize {
        let mut seen: SmallVec<[StorageId; 4]> = SmallVec::new();
        let mut bytes = Self::scratch_bytes(&r.op, &r.x, r.workspace_bytes);
        bytes += r.facts.iter().map(|f| padded(f.bytes())).sum::<usize>();
        for s in r.x.iter().map(|s| s.storage) {
            if self.table.storages[s].recipe.is_some() && !seen.contains(&s) {
                bytes += padded(self.table.storages[s].bytes);
                seen.push(s);
            }
        }
        // It writes over what is made for it alone.
        let is_taken = |p: &&(usize, usize)| {
            let s = r.x.get(p.0).map(|s| &self.table.storages[s.storage]);
            let is_alone = s.is_some_and(|s| s.handles == 0 && s.recipe.is_some());
            is_alone && r.facts.get(p.1).is_some_and(|f| self.is_whole(&r.x, p.0, f))
        };
        bytes - r.op.overwrite().iter().find(is_taken).map_or(0, |p| padded(r.facts[p.1].bytes()))
    }

    /// False if a storage could not be made again in `room` bytes beside sources: its producer needs more, or that of
    /// something which must be made before it.
    pub(super) fn is_in_reach(&self, id: StorageId, room: usize) -> bool {
        let is_doubtful = |t: &Table, id: StorageId| t.storages[id].recipe.filter(|r| t.recipes[r.0].most_bytes > room);
        let Some((first, _)) = is_doubtful(&self.table, id) else { return true };
        let mut seen: SmallVec<[RecipeId; 16]> = SmallVec::new();
        seen.push(first);
        let mut at = 0;
        while let Some(&r) = seen.get(at) {
            at += 1;
            let r = &self.table.recipes[r];
            if self.bytes_to_run(r) > room {
                return false;
            }
            for s in r.x.iter().map(|s| s.storage).filter(|s| !self.table.is_resident(*s)) {
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
