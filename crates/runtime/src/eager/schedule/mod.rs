//! The canonical schedule: whether a command runs, decided by the commands and the budget alone.
//!
//! What a policy evicts follows measured times and how far the caller was ahead, so near the least budget a command may find
//! what it needs in one run and not in another. Once memory has been short, each command therefore *extends* a schedule that
//! knows sizes only: which storages would be there, what would be evicted, and what would run again, by the same sweeps as in
//! `sweep.rs`. What a sweep under way is yet to read goes last. Of the rest goes what has the least `L + c / bytes` (GreedyDual:
//! Cao and Irani 1997): `c` counts the operators that would run to make it again, and `L`, the figure of what went last when a
//! storage was used, makes what was not used for long go in the end. A command is run if the schedule performs it within
//! the budget and within the limit of the step's work (`work.rs`), and refused otherwise, though this time the policy might
//! have been lucky.
//!
//! The schedule begins with each step from nothing but leaves (the first time, with all that the program made until then, for
//! nothing was evicted by then), and keeps a log of what it did. So it can be caught up with
//! from wherever the worker stands: everything is evicted, and what of the log is still of use is acted out (`shorten.rs`). The
//! worker does that where its policy falls short or has run clearly more again than the schedule, and follows the schedule until
//! the step ends. What recomputation costs is bounded so by a small multiple of the limit. After a step in which the policy ran
//! clearly more again, the worker follows the schedule from its beginning, and has nothing to catch up with (`work.rs`).
//!
//! The schedule keeps a small part of the room free for leaves that are to come. Where leaves have grown so that the log could
//! not be acted out any more, what is of no use leaves it. Where that is not enough, the schedule begins anew from nothing.
//! Either way it then keeps a larger part free.
//!
//! Rejected: to check each command from nothing. A step of n commands then costs n sweeps, and nothing bounds their sum.

mod follow;
mod shorten;
mod simulate;

pub(super) use self::simulate::Needs;

use std::collections::BTreeSet;

use remat_types::SmallVec;
use rustc_hash::FxHashMap;

use super::memory::table::{RecipeId, StorageId};
use crate::slab::Key;

/// Of the room beside leaves, this part stays free where it can, for most steps make a few small leaves.
const SPARE_PART: usize = 128;

/// The part that stays free where leaves outgrew the schedule.
const OUTGROWN_SPARE_PART: usize = 16;

/// What the schedule did. Places in the table are used again, so numbers say which storage is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Evict {
        storage: StorageId,
        number: u64,
    },
    /// Runs the recipe of this number again. The inputs whose bytes it takes are evicted right after.
    Run {
        recipe: RecipeId,
        number: u64,
    },
}

/// Wanted, worth, number, and place in the table.
type Order = (bool, u64, u64, u32);

/// Costs are those of so many bytes.
const WORTH_BYTES: f64 = (1 << 20) as f64;

/// More operators than this cost as much: sums of costs count what is shared more than once.
const COST_MAX: f64 = 1e6;

/// A storage that would be there.
#[derive(Clone, Copy, Debug)]
struct Resident {
    bytes: usize,
    /// `L` when it was last used.
    used_at: f64,
    /// Operators that would run to make it again.
    cost: f64,
    pins: u32,
    /// Reads of it that are to come in sweeps under way.
    wanted: u32,
    number: u64,
}

impl Resident {
    /// What goes first, among those that are not pinned.
    fn order(&self, id: StorageId) -> Order {
        // Of floats above zero the bits have the order of the values.
        let worth = self.used_at + self.cost * WORTH_BYTES / self.bytes.max(1) as f64;
        (self.wanted > 0, worth.to_bits(), self.number, id.raw())
    }
}

/// See the module's note.
#[derive(Default)]
pub(super) struct Schedule {
    /// A command has been decided by it since the step began.
    is_active: bool,
    /// The worker does as the schedule does until the step ends.
    is_followed: bool,
    residents: FxHashMap<StorageId, Resident>,
    /// Those that are not pinned.
    order: BTreeSet<Order>,
    /// Operators that would run to make what was there again.
    costs: FxHashMap<StorageId, f64>,
    /// `L` of the module's note.
    level: f64,
    /// Reads to come of storages that would not be there.
    wanted: FxHashMap<StorageId, u32>,
    bytes: usize,
    /// The most bytes beside leaves since it began from nothing.
    highest_bytes: usize,
    log: Vec<Action>,
    /// Actions that the log has lost; fewer than none if it has got longer by as many.
    log_begin: i64,
    /// How often it began from nothing.
    begun: u64,
    /// Operators that it has run again in this step.
    launches: u64,
    nested: u32,
    /// Leaves outgrew it in this step.
    is_outgrown: bool,
    /// Inputs whose bytes the command under way takes, with their numbers: an output may have the place of one that is gone.
    taken: SmallVec<[(StorageId, u64); 2]>,
    /// The log is being acted out, and nothing comes or goes but by it.
    is_acting: bool,
    /// What goes once the action under way has run.
    goes_next: SmallVec<[StorageId; 2]>,
}

impl Schedule {
    /// The worker does as the schedule does.
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// A command of this step has been decided by it.
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Operators that it has run again in this step.
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

    /// What runs takes the bytes of this input by the log, which is being acted out.
    pub(super) fn gives(&self, input: StorageId) -> bool {
        self.goes_next.contains(&input)
    }

    /// Where the log ends, for [`Schedule::since`].
    pub(super) fn position(&self) -> (u64, i64) {
        (self.begun, self.log_begin + self.log.len() as i64)
    }

    /// The place in the log of what was done since a position; `None` if the schedule has begun anew.
    pub(super) fn since(&self, (begun, at): (u64, i64)) -> Option<usize> {
        (begun == self.begun).then(|| (at - self.log_begin).max(0) as usize)
    }

    /// The log is about to be another of so many actions, which leads to the same: positions at its end stay there.
    fn log_end_moves(&mut self, actions: usize) {
        self.log_begin += self.log.len() as i64 - actions as i64;
    }

    /// A step ends, or something else decides from here on. What has run again in the step still counts.
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

    /// The command under way takes the bytes of an input.
    pub(super) fn take(&mut self, input: StorageId, number: u64) {
        if self.is_active {
            self.remove(input);
            self.taken.push((input, number));
        }
    }

    /// A storage is a leaf from now on, or its bytes are another's, or it is gone.
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

    /// What goes next. False if all that is there is pinned.
    fn next_to_go(&self) -> Option<StorageId> {
        self.order.first().map(|&(.., id)| Key::from_raw(id))
    }

    pub(super) fn is_resident(&self, id: StorageId) -> bool {
        self.residents.contains_key(&id)
    }

    /// It is there, and nothing under way uses or is to read it.
    fn is_idle(&self, id: StorageId) -> bool {
        self.residents.get(&id).is_some_and(|r| r.pins == 0 && r.wanted == 0)
    }

    /// Changes what is known of a storage that is there, and where it stands in the order.
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
