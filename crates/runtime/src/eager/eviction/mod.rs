//! What goes when memory is short: what a policy is told, what it chose, and the way of evicting that depends on nothing but
//! the commands.
//!
//! Owned here: the costs of losing each storage, the queued uses that are known, the charges that end early, and by which rule
//! storages go. Policies are pure functions of the address order and of costs (`policy.rs`); the costs are those of a
//! storage's neighbourhood (`costs.rs`) and of the time until its next use (`future.rs`).

mod canonical;
mod costs;
mod free_space;
mod future;
pub(super) mod policy;

use self::costs::EvictionCosts;
use self::future::Future;
pub(super) use self::future::Use;
use super::device::GiveWay;
use super::handle::TensorId;
use super::memory::table::StorageId;

/// Which storages go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rule {
    /// Those that the device's policy chooses, which follows measured times and the queue.
    #[default]
    Policy,
    /// Those that were used longest ago: nothing but the commands decides.
    Canonical,
}

/// See the module's note.
#[derive(Default)]
pub(super) struct Eviction {
    costs: EvictionCosts,
    future: Future,
    /// Charges that end early where the device has no other room, and what to call then.
    giving_way: Vec<(StorageId, GiveWay)>,
    rule: Rule,
    /// Something was evicted since the device was opened; the count of evictions begins anew with the peak.
    has_evicted: bool,
    /// Since the device was opened, something did not fit beside all that a run without a budget would hold.
    is_short: bool,
}

impl Eviction {
    /// What a rehearsal needs of it.
    pub(super) fn duplicate(&self) -> Eviction {
        Eviction { has_evicted: self.has_evicted, is_short: self.is_short, ..Eviction::default() }
    }

    /// True while nothing but the commands decides what goes.
    pub(super) fn is_canonical(&self) -> bool {
        self.rule == Rule::Canonical
    }

    /// From now on nothing but the commands decides what goes.
    pub(super) fn begin_canonical_rule(&mut self) {
        self.rule = Rule::Canonical;
        self.costs.abandon();
    }

    pub(super) fn end_canonical_rule(&mut self) {
        self.rule = Rule::Policy;
    }

    /// True if anything was ever evicted.
    pub(super) fn has_evicted(&self) -> bool {
        self.has_evicted
    }

    pub(super) fn note_evicted(&mut self) {
        self.has_evicted = true;
    }

    /// True once something did not fit beside all that a run without a budget would hold.
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Memory is short from now on; true if it was.
    pub(super) fn note_short(&mut self) -> bool {
        std::mem::replace(&mut self.is_short, true)
    }

    /// A recomputation, or the running command, is about to read these.
    pub(super) fn begin_reading(&mut self, x: impl Iterator<Item = StorageId>) {
        self.costs.under_way.extend(x);
    }

    /// Of what [`Eviction::begin_reading`] was told, the last `count` were read.
    pub(super) fn end_reading(&mut self, count: usize) {
        self.costs.under_way.truncate(self.costs.under_way.len().saturating_sub(count));
    }

    /// A storage is new: what was known of one in its place is not of it.
    pub(super) fn forget_costs(&mut self, id: StorageId) {
        self.costs.forget(id);
    }

    /// A tensor has no name any more.
    pub(super) fn forget_uses(&mut self, id: TensorId) {
        self.future.forget(id);
    }

    /// A queued command has run, in so many nanoseconds.
    pub(super) fn advance(&mut self, ns: u64) {
        self.future.advance(ns);
    }

    /// So many queued commands are of no interest.
    pub(super) fn pass_over(&mut self, commands: usize) {
        self.future.pass_over(commands);
    }

    /// A charge ends early when the device has no other room, and this is called then.
    pub(super) fn may_give_way(&mut self, charge: StorageId, give_way: GiveWay) {
        self.giving_way.push((charge, give_way));
    }

    /// A charge has ended.
    pub(super) fn end_charge(&mut self, charge: StorageId) {
        self.giving_way.retain(|(c, _)| *c != charge);
    }
}
