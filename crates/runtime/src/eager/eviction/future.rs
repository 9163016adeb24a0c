//! The known future: queued commands show when a tensor is used next.
//!
//! A caller runs ahead of the device by up to the queue's capacity, often a whole training step. So when something must
//! be evicted, the next use of most tensors is known, and the tensor used last can go first (Belady's rule). For uses
//! beyond the queue the policy falls back to the past: the time since the last use. So choices may depend on how far
//! the caller was ahead; values never do.

use std::collections::VecDeque;

use remat_types::SmallVec;
use rustc_hash::FxHashMap;

use crate::eager::handle::TensorId;

/// Weight of the newest command in the mean time of a command.
const MEAN_DECAY: f64 = 0.02;

/// Uses farther off than this many commands count as equally far. A tensor that is needed in a moment must stay. Beyond
/// that the cost of recomputation decides, since memory is short at one peak and not in proportion to time. Measured
/// with `examples/simulate.rs`: 32 recomputes more in a plain chain, 512 more in a residual one.
const HORIZON_COMMANDS: f64 = 128.0;

/// How a queued command uses a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    /// The command reads the tensor, and the last handle on it ends.
    Last,
    /// The last handle on the tensor ends.
    End,
}

/// The queued uses of a tensor.
#[derive(Default)]
struct Known {
    /// Positions of queued uses, ascending.
    uses: SmallVec<[u64; 4]>,
    /// Position of the command that ends the tensor.
    ends_at: Option<u64>,
}

#[derive(Default)]
pub(in crate::eager) struct Future {
    known: FxHashMap<TensorId, Known>,
    /// Until a decision first asks for uses, they lie here with their positions as they were noted. So a budget that
    /// does not bind costs no table.
    unsorted: VecDeque<(u64, TensorId, Use)>,
    is_sorted: bool,
    /// Position of the command that ran last.
    at: u64,
    /// Position of the last noted command.
    end: u64,
    mean_ns: f64,
}

impl Future {
    /// Notes a queued command by the tensors that it uses. Every command is noted once, in order.
    pub(in crate::eager) fn note(&mut self, x: &[(TensorId, Use)]) {
        self.end += 1;
        let at = self.end;
        for &(id, how) in x {
            match self.is_sorted {
                true => self.sort((at, id, how)),
                false => self.unsorted.push_back((at, id, how)),
            }
        }
    }

    fn sort(&mut self, (at, id, how): (u64, TensorId, Use)) {
        let known = self.known.entry(id).or_default();
        if how != Use::End && known.uses.last() != Some(&at) {
            known.uses.push(at);
        }
        if how != Use::Read {
            known.ends_at = Some(at);
        }
    }

    /// A decision is about to ask for uses.
    pub(in crate::eager) fn prepare(&mut self) {
        self.is_sorted = true;
        for noted in std::mem::take(&mut self.unsorted) {
            self.sort(noted);
        }
    }

    /// Counts queued commands and forgets all uses, since without a budget no decision asks for them.
    pub(in crate::eager) fn pass_over(&mut self, commands: usize) {
        self.end += commands as u64;
        self.known.clear();
        self.unsorted.clear();
    }

    /// The next noted command runs now; the last one took `ns`.
    pub(in crate::eager) fn advance(&mut self, ns: u64) {
        self.at += 1;
        while self.unsorted.front().is_some_and(|noted| noted.0 <= self.at) {
            self.unsorted.pop_front();
        }
        self.mean_ns += MEAN_DECAY * (ns as f64 - self.mean_ns);
    }

    /// Position of the command that ran last.
    pub(in crate::eager) fn at(&self) -> u64 {
        self.at
    }

    /// Forgets a deleted tensor.
    pub(in crate::eager) fn forget(&mut self, id: TensorId) {
        if self.is_sorted {
            self.known.remove(&id);
        }
    }

    /// Position of the next queued command that uses a tensor.
    pub(in crate::eager) fn next_use(&mut self, id: TensorId) -> Option<u64> {
        let at = self.at;
        let uses = &mut self.known.get_mut(&id)?.uses;
        let past = uses.iter().take_while(|u| **u <= at).count();
        uses.drain(..past);
        uses.first().copied()
    }

    /// True if a queued command ends a tensor before the command at this position. Without a position, true if any
    /// queued command ends it.
    pub(in crate::eager) fn ends_before(&self, id: TensorId, at: Option<u64>) -> bool {
        let ends_at = self.known.get(&id).and_then(|k| k.ends_at);
        ends_at.is_some_and(|end| at.is_none_or(|at| end < at))
    }

    /// Estimated time until the command at a position runs.
    pub(in crate::eager) fn until_ns(&self, at: u64) -> f64 {
        at.saturating_sub(self.at) as f64 * self.mean_ns
    }

    /// Beyond this time all uses count as equally far.
    pub(in crate::eager) fn horizon_ns(&self) -> f64 {
        HORIZON_COMMANDS * self.mean_ns
    }

    /// Estimated time until all noted commands have run.
    pub(in crate::eager) fn queued_ns(&self) -> f64 {
        (self.end - self.at) as f64 * self.mean_ns
    }
}
