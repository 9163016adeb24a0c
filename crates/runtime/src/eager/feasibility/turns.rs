//! The order in which a command's inputs are recomputed, and the bytes that this takes from nothing.
//!
//! Inputs are recomputed one after the other. Each is held from then on until the command has run. Deepest first suits
//! a backward pass: an activation is recomputed after the cotangent that it meets, and is not held while that is made.
//! It does not suit the sum of a branch and the branch's own input. After the branch its input would be recomputed
//! again, and so on down the network, with one branch held at each block. There the shared input goes first, and the
//! branch finds it.

use remat_ops::OpRef;
use remat_types::{Fact, SmallVec};

use crate::eager::memory::table::{Input, StorageId};
use crate::eager::worker::Worker;

/// The search for ancestors that are held visits at most so many recipes.
const NEAR_MAX: usize = 48;

/// How a command runs if only leaves are resident.
pub(in crate::eager) struct FromNothing {
    /// Bytes beside leaves that suffice.
    pub(in crate::eager) bytes: usize,
    /// The input that is recomputed first, if that is not the deepest.
    pub(in crate::eager) first: Option<StorageId>,
}

/// Storages that are resident while another one is recomputed.
type Held = SmallVec<[StorageId; 4]>;

impl Worker {
    /// The inputs that have recipes, in the order of their recomputation: `first`, and then the deepest first.
    pub(in crate::eager) fn turns(&self, x: &[Input], first: Option<StorageId>) -> SmallVec<[StorageId; 4]> {
        let mut order: SmallVec<[StorageId; 4]> = SmallVec::new();
        for s in x.iter().map(|s| s.storage) {
            if self.table[s].recipe.is_some() && !order.contains(&s) {
                order.push(s);
            }
        }
        order.sort_by_key(|s| std::cmp::Reverse((Some(*s) == first, self.table.depth_of(*s), self.table[*s].number)));
        order
    }

    /// The input that is recomputed first because others depend on it. `None` if that is the deepest.
    pub(in crate::eager) fn first_of(&self, x: &[Input]) -> Option<StorageId> {
        let order = self.turns(x, None);
        if order.len() < 2 {
            return None;
        }
        let deepest_first = self.making_bytes(x, None);
        // A single input takes the same bytes in any order.
        let alone = order.iter().map(|s| self.one_from_nothing(*s)).max().unwrap_or(0);
        if deepest_first <= alone {
            return None;
        }
        let best = order
            .iter()
            .skip(1)
            .map(|s| (self.making_bytes(x, Some(*s)), *s))
            .min_by_key(|(bytes, s)| (*bytes, self.table[*s].number));
        best.filter(|(bytes, _)| *bytes <= deepest_first).map(|(_, s)| s)
    }

    /// Bytes beside leaves that suffice to recompute `x` from leaves alone and then use all of it beside `extra` bytes.
    /// The canonical way needs no more. With `x_1, x_2, ..` in their order, and `D` the bytes for making one while
    /// those before are held: `max(x_1 + x_2 + .. + extra, max over i of x_1 + .. + x_(i-1) + D(x_i))`.
    pub(in crate::eager) fn bytes_from_nothing(&self, x: &[Input], extra: usize) -> usize {
        (self.evictable_bytes(x) + extra).max(self.making_bytes(x, self.first_of(x)))
    }

    /// The same for a command with outputs of these facts, and the input that is recomputed first.
    pub(in crate::eager) fn command_from_nothing(
        &self,
        op: &OpRef,
        x: &[Input],
        y: &[Fact],
        workspace_bytes: usize,
    ) -> FromNothing {
        let outputs: usize = y.iter().map(|f| self.alignment().pad(f.bytes())).sum();
        let extra = outputs + self.scratch_bytes(op, x, workspace_bytes);
        let first = self.first_of(x);
        FromNothing { bytes: (self.evictable_bytes(x) + extra).max(self.making_bytes(x, first)), first }
    }

    fn making_bytes(&self, x: &[Input], first: Option<StorageId>) -> usize {
        self.making_beside(x, first, &mut Held::new(), &mut { NEAR_MAX })
    }

    /// The most bytes at once while the inputs are recomputed in order, with `held` resident already.
    fn making_beside(&self, x: &[Input], first: Option<StorageId>, held: &mut Held, left: &mut usize) -> usize {
        let (before, mut most, mut bytes) = (held.len(), 0, 0);
        for s in self.turns(x, first) {
            if held.contains(&s) {
                continue;
            }
            most = most.max(bytes + self.made_beside(s, held, left));
            bytes += self.alignment().pad(self.table[s].bytes);
            if Some(s) == first {
                held.push(s);
            }
        }
        held.truncate(before);
        most
    }

    /// Bytes that suffice to recompute a storage while `held` is resident, on which it may depend.
    fn made_beside(&self, id: StorageId, held: &mut Held, left: &mut usize) -> usize {
        let Some((r, _)) = self.table[id].recipe else { return 0 };
        let r = &self.table[r];
        let reaches = held.iter().any(|h| self.table.depth_of(*h) < r.depth);
        if !reaches || *left == 0 {
            return r.from_nothing_bytes;
        }
        *left -= 1;
        let outputs: usize = r.facts.iter().map(|f| self.alignment().pad(f.bytes())).sum();
        let inputs: usize = (self.turns(&r.x, None).iter())
            .filter(|s| !held.contains(s))
            .map(|s| self.alignment().pad(self.table[*s].bytes))
            .sum();
        let running = inputs + outputs + self.scratch_bytes(&r.op, &r.x, r.workspace_bytes);
        running.max(self.making_beside(&r.x, r.first, held, left)).min(r.from_nothing_bytes)
    }

    fn one_from_nothing(&self, id: StorageId) -> usize {
        self.table[id].recipe.map_or(0, |(r, _)| self.table[r].from_nothing_bytes)
    }
}
