//! The canonical schedule: whether a command runs, decided by the commands and the budget alone.
//!
//! A policy's evictions follow measured times and how far the caller was ahead. So near the least budget a command may
//! find its inputs in one run and not in another. Once memory has been short, each command therefore *extends* a
//! schedule that knows sizes only: which storages would be resident, which would be evicted, and which recipes would
//! run again, by the same sweeps as in `sweep.rs`. Storages that a sweep in progress is yet to read go last. Of the
//! others, the one with the least `L + c / bytes` goes first (GreedyDual: Cao and Irani 1997). `c` counts the operators
//! that would run to recompute it. `L` is the figure of the storage that went last when this one was used; because of
//! it, a storage that is not used for long goes in the end. A command runs if the schedule performs it within the
//! budget and within the limit of the step's work (`work.rs`). Otherwise it is refused, even if the policy might have
//! been lucky this time.
//!
//! The schedule begins with each step from leaves alone. The first time it begins with all that the program made until
//! then, since nothing was evicted by then. It keeps a log of its actions. So the worker can catch up with it from any
//! state: it evicts everything, and acts out the part of the log that is still of use (`shorten.rs`). The worker does
//! that if its policy falls short or has recomputed clearly more than the schedule. It then follows the schedule until
//! the step ends. This bounds the cost of recomputation by a small multiple of the limit. After a step in which the
//! policy recomputed clearly more, the worker follows the schedule from its beginning, and has nothing to catch up with
//! (`work.rs`).
//!
//! The schedule keeps a small part of the room free for leaves to come. Leaves may have grown so that the log could no
//! longer be acted out. Then useless actions leave the log. If that is not enough, the schedule begins anew from
//! nothing. Either way it then keeps a larger part free.
//!
//! Rejected: to check each command from nothing. A step of n commands then costs n sweeps, and nothing bounds their
//! sum.

mod follow;
mod shorten;
mod simulate;

pub(super) use self::simulate::Needs;

use std::collections::BTreeSet;

use remat_types::SmallVec;
use rustc_hash::FxHashMap;

use super::memory::table::{RecipeId, StorageId};
use crate::slab::Key;

/// This part of the room beside leaves stays free if possible, since most steps make a few small leaves.
const SPARE_PART: usize = 128;

/// The part that stays free after leaves have outgrown the schedule.
const OUTGROWN_SPARE_PART: usize = 16;

/// An action of the schedule. The numbers identify storages and recipes, since places in the table are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Evict {
        storage: StorageId,
        number: u64,
    },
    /// Runs the recipe of this number again. Inputs whose bytes it takes are evicted right after.
    Run {
        recipe: RecipeId,
        number: u64,
    },
}

/// Wanted, worth, number, and place in the table.
type Order = (bool, u64, u64, u32);

/// The cost of recomputation counts for so many bytes.
const WORTH_BYTES: f64 = (1 << 20) as f64;

/// The cost is capped at so many operators: sums of costs count shared ancestors more than once.
const COST_MAX: f64 = 1e6;

/// A storage that would be resident.
#[derive(Clone, Copy, Debug)]
struct Resident {
    bytes: usize,
    /// `L` when it was last used.
    used_at: f64,
    /// Operators that would run to recompute it.
    cost: f64,
    pins: u32,
    /// Reads of it by sweeps in progress.
    wanted: u32,
    number: u64,
}

impl Resident {
    /// The order of eviction among storages that are not pinned.
    fn order(&self, id: StorageId) -> Order {
        // The bits of positive floats have the order of their values.
        let worth = self.used_at + self.cost * WORTH_BYTES / self.bytes.max(1) as f64;
        (self.wanted > 0, worth.to_bits(), self.number, id.raw())
    }
}

/// See the module's note.
#[derive(Default)]
pub(super) struct Schedule {
    /// It has decided a command since the step began.
    is_active: bool,
    /// The worker does as the schedule does until the step ends.
    is_followed: bool,
    residents: FxHashMap<StorageId, Resident>,
    /// The residents that are not pinned.
    order: BTreeSet<Order>,
    /// Operators that would run to recompute a storage that was resident before.
    costs: FxHashMap<StorageId, f64>,
    /// `L` of the module's note.
    level: f64,
    /// Reads of storages that would not be resident, by sweeps in progress.
    wanted: FxHashMap<StorageId, u32>,
    bytes: usize,
    /// The most bytes beside leaves since it began from nothing.
    highest_bytes: usize,
    log: Vec<Action>,
    /// The number of actions that the log has lost. Negative if the log has grown by as many.
    log_begin: i64,
    /// How often it began from nothing.
    begun: u64,
    /// Operators that it has recomputed in this step.
    launches: u64,
    nested: u32,
    /// Leaves outgrew it in this step.
    is_outgrown: bool,
    /// Inputs whose bytes the running command takes, with their numbers: an output may reuse the place of a removed
    /// one.
    taken: SmallVec<[(StorageId, u64); 2]>,
    /// The log is being acted out, and nothing else evicts or recomputes.
    is_acting: bool,
    /// Storages to evict once the running action has run.
    goes_next: SmallVec<[StorageId; 2]>,
}

impl Schedule {
    /// The worker does as the schedule does.
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// It has decided a command of this step.
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Operators that it has recomputed in this step.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }

    /// The log is being acted out.
    pub(super) fn is_acting(&self) -> bool {
        self.is_acting
    }

    #[cfg(test)]
    pub(super) fn begin_acting(&mut self) {
        self.is_acting = true;
    }

    /// By the log that is being acted out, the running recipe takes the bytes of this input.
    pub(super) fn gives(&self, input: StorageId) -> bool {
        self.goes_next.contains(&input)
    }

    /// The end of the log, for [`Schedule::since`].
    pub(super) fn position(&self) -> (u64, i64) {
        (self.begun, self.log_begin + self.log.len() as i64)
    }

    /// The index in the log of the first action since a position. `None` if the schedule has begun anew.
    pub(super) fn since(&self, (begun, at): (u64, i64)) -> Option<usize> {
        (begun == self.begun).then(|| (at - self.log_begin).max(0) as usize)
    }

    /// The log is about to be replaced by an equivalent one of so many actions. Positions at its end stay there.
    fn log_end_moves(&mut self, actions: usize) {
        self.log_begin += self.log.len() as i64 - actions as i64;
    }

    /// A step ends, or something else decides from here on. Recomputation in the step still counts.
    fn end(&mut self) {
        if self.is_active || self.is_followed {
            self.restart();
            (self.is_active, self.is_followed, self.is_outgrown) = (false, false, false);
        }
    }

    /// A step ends.
    pub(super) fn end_step(&mut self) {
        self.launches = 0;
    }

    /// Begins again from nothing.
    fn restart(&mut self) {
        self.residents.clear();
        self.order.clear();
        self.costs.clear();
        self.level = 0.0;
        self.wanted.clear();
        self.log.clear();
        self.log_begin = 0;
        self.taken.clear();
        self.begun += 1;
        (self.bytes, self.highest_bytes, self.nested) = (0, 0, 0);
    }

    fn insert(&mut self, id: StorageId, bytes: usize, number: u64, cost: f64) {
        self.remove(id);
        let wanted = self.wanted.get(&id).copied().unwrap_or(0);
        let r = Resident { bytes, used_at: self.level, cost, pins: 0, wanted, number };
        self.order.insert(r.order(id));
        self.residents.insert(id, r);
        self.bytes += bytes;
    }

    /// The running command takes the bytes of an input.
    pub(super) fn take(&mut self, input: StorageId, number: u64) {
        if self.is_active {
            self.remove(input);
            self.taken.push((input, number));
        }
    }

    /// A storage is a leaf from now on, or another storage has its bytes, or it is removed.
    pub(super) fn remove(&mut self, id: StorageId) {
        if !self.is_active {
            return;
        }
        if let Some(r) = self.residents.remove(&id) {
            self.order.remove(&r.order(id));
            self.costs.insert(id, r.cost);
            self.bytes -= r.bytes;
        }
    }

    /// The storage to evict next. `None` if all residents are pinned.
    fn next_to_go(&self) -> Option<StorageId> {
        self.order.first().map(|&(.., id)| Key::from_raw(id))
    }

    pub(super) fn is_resident(&self, id: StorageId) -> bool {
        self.residents.contains_key(&id)
    }

    /// True if it is resident, and nothing in progress uses it or will read it.
    fn is_idle(&self, id: StorageId) -> bool {
        self.residents.get(&id).is_some_and(|r| r.pins == 0 && r.wanted == 0)
    }

    /// Changes the entry of a resident, and its place in the order.
    fn change(&mut self, id: StorageId, f: impl FnOnce(&mut Resident)) {
        let Some(r) = self.residents.get_mut(&id) else { return };
        if r.pins == 0 {
            self.order.remove(&r.order(id));
        }
        f(r);
        if r.pins == 0 {
            self.order.insert(r.order(id));
        }
    }

    fn worth(&self, id: StorageId) -> f64 {
        self.residents.get(&id).map_or(0.0, |r| f64::from_bits(r.order(id).1))
    }

    fn want(&mut self, id: StorageId, by: i32) {
        let n = self.wanted.entry(id).or_default();
        *n = n.saturating_add_signed(by);
        let wanted = *n;
        if wanted == 0 {
            self.wanted.remove(&id);
        }
        self.change(id, |r| r.wanted = wanted);
    }

    fn touch(&mut self, id: StorageId) {
        let level = self.level;
        self.change(id, |r| r.used_at = level);
    }
}
