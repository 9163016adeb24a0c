//! A shorter log with the same result.
//!
//! Much of a log is useless by the time it is acted out: it served commands that have run since, or its results are
//! evicted. The shorter log keeps the runs that make the schedule's present residents, and the runs that a kept run
//! reads. Every other storage goes as soon as no kept run will read it. At each moment no more is resident than by the
//! full log, so the shorter one needs no more memory.

use remat_types::SmallVec;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Action;
use crate::eager::memory::table::{RecipeId, StorageId};
use crate::eager::worker::Worker;

/// A shorter log, and the most bytes beside leaves while it is acted out.
struct Shorter {
    log: Vec<Action>,
    highest_bytes: usize,
}

/// A run that is kept, and the storages that are evicted right after it.
struct Kept {
    recipe: RecipeId,
    goes: SmallVec<[StorageId; 2]>,
}

impl Worker {
    /// Removes actions from the log that the schedule's residents do not need.
    pub(in crate::eager) fn shorten_log(&mut self) {
        let Some(shorter) = self.shorter_log() else { return };
        self.schedule.log_end_moves(shorter.log.len());
        self.schedule.log = shorter.log;
        self.schedule.highest_bytes = shorter.highest_bytes;
    }

    /// The actions that lead to the schedule's residents.
    pub(in crate::eager) fn actions_to_catch_up(&self) -> Vec<Action> {
        self.shorter_log().map_or_else(|| self.schedule.log.clone(), |s| s.log)
    }

    /// `None` if the log does not lead to the schedule's residents, or if the shorter one needs more memory.
    fn shorter_log(&self) -> Option<Shorter> {
        let runs = self.runs_to_keep()?;
        let (mut log, mut there) = (Vec::new(), FxHashMap::default());
        let (mut bytes, mut highest_bytes) = (0, 0);
        for Kept { recipe, goes } in runs {
            let r = &self.table[recipe];
            let outputs: usize = r.facts.iter().map(|f| self.alignment().pad(f.bytes())).sum();
            let scratch = self.scratch_bytes(&r.op, &r.x, r.workspace_bytes);
            highest_bytes = highest_bytes.max(bytes + outputs + scratch - self.taken_bytes(recipe, &goes));
            log.push(Action::Run { recipe, number: r.number });
            for y in r.y.iter().flatten() {
                let size = self.alignment().pad(self.table[*y].bytes);
                if there.insert(*y, size).is_none() {
                    bytes += size;
                }
            }
            for storage in goes {
                bytes -= there.remove(&storage)?;
                log.push(Action::Evict { storage, number: self.table[storage].number });
            }
        }
        let shorter = Shorter { log, highest_bytes: highest_bytes.max(bytes) };
        Some(shorter).filter(|s| s.highest_bytes <= self.schedule.highest_bytes)
    }

    /// The runs of the log that lead to the schedule's residents, from the first to the last.
    fn runs_to_keep(&self) -> Option<Vec<Kept>> {
        // The loop walks the log backwards. These storages must be resident right after the action that it looks at.
        let mut live: FxHashSet<StorageId> = self.schedule.residents.keys().copied().collect();
        let mut runs = Vec::new();
        for action in self.schedule.log.iter().rev() {
            let Some(recipe) = self.recipe_to_run(action) else { continue };
            let r = &self.table[recipe];
            let outputs = || r.y.iter().flatten().copied();
            if !outputs().any(|y| live.contains(&y)) {
                continue;
            }
            let mut goes: SmallVec<[StorageId; 2]> = outputs().filter(|y| !live.contains(y)).collect();
            for y in outputs() {
                live.remove(&y);
            }
            let read = r.x.iter().map(|x| x.storage).filter(|x| self.table[*x].recipe.is_some());
            goes.extend(read.filter(|x| live.insert(*x)));
            runs.push(Kept { recipe, goes });
        }
        runs.reverse();
        live.is_empty().then_some(runs)
    }

    /// Bytes that the outputs of a run take over from inputs that are evicted right after it.
    fn taken_bytes(&self, recipe: RecipeId, goes: &[StorageId]) -> usize {
        let r = &self.table[recipe];
        let (mut givers, mut takers): (SmallVec<[usize; 2]>, SmallVec<[usize; 2]>) = Default::default();
        for &(i, j) in self.overwrite(&r.op) {
            let does_fit = i < r.x.len() && j < r.y.len() && !givers.contains(&i) && !takers.contains(&j);
            if !does_fit || !self.is_whole(&r.x, i, &r.facts[j]) {
                continue;
            }
            let input = r.x[i].storage;
            if goes.contains(&input) && self.table[input].handles == 0 {
                givers.push(i);
                takers.push(j);
            }
        }
        takers.iter().map(|j| self.alignment().pad(r.facts[*j].bytes())).sum()
    }
}
