//! Eviction when memory is short: the input of a policy, its choice, and canonical eviction, which depends on nothing
//! but the commands.
//!
//! This module owns the costs of losing each storage, the known queued uses, the charges that end early, and the rule
//! by which storages are evicted. Policies are pure functions of the address order and of costs (`policy.rs`). A
//! storage's costs follow from its neighbourhood (`costs.rs`) and from the time until its next use (`future.rs`).

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

/// The rule by which storages are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rule {
    /// The device's policy chooses. It follows measured times and the queue.
    #[default]
    Policy,
    /// The storages used longest ago go first: nothing but the commands decides.
    Canonical,
}

/// See the module's note.
#[derive(Default)]
pub(super) struct Eviction {
    costs: EvictionCosts,
    future: Future,
    /// Charges that end early if the device has no other room, with the function to call then.
    giving_way: Vec<(StorageId, GiveWay)>,
    rule: Rule,
    /// A storage was evicted since the device was opened. The count of evictions restarts with the peak.
    has_evicted: bool,
    /// Since the device was opened, something did not fit beside all that a run without a budget would hold.
    is_short: bool,
}

impl Eviction {
    /// The part that a rehearsal needs.
    pub(super) fn duplicate(&self) -> Eviction {
        Eviction { has_evicted: self.has_evicted, is_short: self.is_short, ..Eviction::default() }
    }

    /// True while nothing but the commands decides evictions.
    pub(super) fn is_canonical(&self) -> bool {
        self.rule == Rule::Canonical
    }

    /// From now on nothing but the commands decides evictions.
    pub(super) fn begin_canonical_rule(&mut self) {
        self.rule = Rule::Canonical;
        self.costs.abandon();
    }

    pub(super) fn end_canonical_rule(&mut self) {
        self.rule = Rule::Policy;
    }

    /// True if a storage was ever evicted.
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

    /// Memory is short from now on. True if it was before.
    pub(super) fn note_short(&mut self) -> bool {
        std::mem::replace(&mut self.is_short, true)
    }

    /// A recomputation, or the running command, is about to read these storages.
    pub(super) fn begin_reading(&mut self, x: impl Iterator<Item = StorageId>) {
        self.costs.under_way.extend(x);
    }

    /// The last `count` storages of [`Eviction::begin_reading`] were read.
    pub(super) fn end_reading(&mut self, count: usize) {
        self.costs.under_way.truncate(self.costs.under_way.len().saturating_sub(count));
    }

    /// A key names a new storage: forgets the costs of the former one.
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

    /// So many queued commands need no notes.
    pub(super) fn pass_over(&mut self, commands: usize) {
        self.future.pass_over(commands);
    }

    /// A charge ends early if the device has no other room. The worker then calls this function.
    pub(super) fn may_give_way(&mut self, charge: StorageId, give_way: GiveWay) {
        self.giving_way.push((charge, give_way));
    }

    /// A charge has ended.
    pub(super) fn end_charge(&mut self, charge: StorageId) {
        self.giving_way.retain(|(c, _)| *c != charge);
    }
}
