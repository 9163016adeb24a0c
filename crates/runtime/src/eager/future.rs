//! The known future: commands that wait in the queue say when a tensor is used next.
//!
//! A caller runs ahead of the device by up to the queue's capacity, often a whole training step, so the next use of
//! most tensors is known when something must be evicted, and what is used last can go first (Belady's rule). Beyond
//! what is queued the policy falls back to the past: time since the last use. Choices may so depend on how far the
//! caller happened to be; values never do.

use remat_types::SmallVec;
use rustc_hash::FxHashMap;

use super::handle::TensorId;

/// Weight of the newest command in the mean time of one.
const MEAN_DECAY: f64 = 0.02;

/// Uses farther off than this many commands count as equally far: what is needed in a moment must stay, but beyond
/// that the cost of making a thing again decides, since memory is short at one peak, not in proportion to time.
/// Measured with `examples/simulate.rs`: 32 recomputes more in a plain chain, 512 more in a residual one.
const HORIZON_COMMANDS: f64 = 128.0;

#[derive(Default)]
pub(super) struct Future {
    /// Positions of queued uses, ascending.
    uses: FxHashMap<TensorId, SmallVec<[u64; 4]>>,
    /// Position of the command that runs now.
    at: u64,
    /// Position that the next noted command gets.
    end: u64,
    mean_ns: f64,
}

impl Future {
    /// Notes a queued command by the tensors that it uses. Every command is noted once, in order.
    pub(super) fn note(&mut self, ids: &[TensorId]) {
        self.end += 1;
        let at = self.end;
        for &id in ids {
            let uses = self.uses.entry(id).or_default();
            if uses.last() != Some(&at) {
                uses.push(at);
            }
        }
    }

    /// Counts queued commands and forgets all uses: without a budget nobody asks for them.
    pub(super) fn pass_over(&mut self, commands: usize) {
        self.end += commands as u64;
        self.uses.clear();
    }

    /// The next noted command runs now; the last one took `ns`.
    pub(super) fn advance(&mut self, ns: u64) {
        self.at += 1;
        self.mean_ns += MEAN_DECAY * (ns as f64 - self.mean_ns);
    }

    /// Forgets a deleted tensor.
    pub(super) fn forget(&mut self, id: TensorId) {
        self.uses.remove(&id);
    }

    /// Estimated time until a tensor is used, if a queued command uses it.
    pub(super) fn until_use_ns(&mut self, id: TensorId) -> Option<f64> {
        let (at, mean_ns) = (self.at, self.mean_ns);
        let uses = self.uses.get_mut(&id)?;
        let past = uses.iter().take_while(|u| **u <= at).count();
        uses.drain(..past);
        uses.first().map(|u| (u - at) as f64 * mean_ns)
    }

    /// Beyond this time all uses count as equally far.
    pub(super) fn horizon_ns(&self) -> f64 {
        HORIZON_COMMANDS * self.mean_ns
    }

    /// Estimated time until all that is noted has run.
    pub(super) fn queued_ns(&self) -> f64 {
        (self.end - self.at) as f64 * self.mean_ns
    }
}
