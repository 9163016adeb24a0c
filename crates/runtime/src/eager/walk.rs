//! The other order in which evicted storages are made again: a walk down from each, deepest first.
//!
//! A sweep (`sweep.rs`) runs what several storages share once, and in a memory that is just too small for that it makes them
//! over and over. A walk makes one input after the other, with nothing held but those before it. It runs shared operators as
//! often as they are read, so it needs the least memory and may take the most work; the limit of the work (`work.rs`) says
//! which groups it helps. Only a rehearsed group that sweeps cannot perform is tried this way.

use remat_types::{Error, ErrorKind, SmallVec};

use super::failure::OpFailure;
use super::memory::table::{RecipeId, StorageId};
use super::worker::Worker;

/// A recipe that waits for its inputs.
struct Frame {
    recipe: RecipeId,
    /// Its inputs, in the order in which their turn came.
    held: SmallVec<[StorageId; 4]>,
}

impl Worker {
    /// Makes storages resident and pins them, one after the other. Errors leave none pinned.
    pub(super) fn walk_in_turn(&mut self, order: &[StorageId]) -> std::result::Result<(), OpFailure> {
        for (i, &id) in order.iter().enumerate() {
            self.table[id].pins += 1;
            let made = if self.table.is_resident(id) { Ok(()) } else { self.walk(id) };
            if made.is_err() {
                order[..=i].iter().for_each(|id| self.table[*id].pins -= 1);
                return made;
            }
        }
        Ok(())
    }

    /// Makes one evicted storage resident. It is pinned by the caller.
    fn walk(&mut self, root: StorageId) -> std::result::Result<(), OpFailure> {
        let mut stack: Vec<Frame> = Vec::new();
        let mut result = self.descend(&mut stack, root);
        while let (Ok(()), Some(frame)) = (&result, stack.last_mut()) {
            // Every input is held once its turn has come, so this ends.
            result = match self.hold_residents(frame) {
                Some(missing) => {
                    frame.held.push(missing);
                    self.table[missing].pins += 1;
                    self.descend(&mut stack, missing)
                }
                None => {
                    let recipe = frame.recipe;
                    let done = self.begin_replay().and_then(|()| self.rerun(recipe));
                    self.ascend(&mut stack);
                    done
                }
            };
        }
        while !stack.is_empty() {
            self.ascend(&mut stack);
        }
        result
    }

    /// Holds the inputs of a frame that are there, up to the first in turn that is not, which it gives: one may go until its
    /// turn has come.
    fn hold_residents(&mut self, frame: &mut Frame) -> Option<StorageId> {
        let r = &self.table[frame.recipe];
        let order = self.turns(&r.x, r.first);
        for id in order {
            if !self.table.is_resident(id) {
                return Some(id);
            }
            if !frame.held.contains(&id) {
                frame.held.push(id);
                self.table[id].pins += 1;
            }
        }
        None
    }

    /// Pushes the producer of a missing storage.
    fn descend(&mut self, stack: &mut Vec<Frame>, missing: StorageId) -> std::result::Result<(), OpFailure> {
        let s = &self.table[missing];
        let Some((recipe, _)) = s.recipe else {
            let text = format!("a storage made by {} has neither bytes nor a recipe", s.label.text);
            return Err(Error::new(ErrorKind::Internal, text).into());
        };
        if let Some(f) = &self.table[recipe].failed {
            return Err(OpFailure::Inherited(f.clone()));
        }
        stack.push(Frame { recipe, held: SmallVec::new() });
        self.want(recipe, 1);
        Ok(())
    }

    /// Pops a frame that has run or failed.
    fn ascend(&mut self, stack: &mut Vec<Frame>) {
        if let Some(frame) = stack.pop() {
            for &s in &frame.held {
                self.table[s].pins -= 1;
            }
            // Settles what was held, too: it is among the inputs.
            self.want(frame.recipe, -1);
        }
    }
}
