//! The cost of the communicator: its calls as collectives of MPI, with the constants of its code.

use remat_types::Result;

use super::{Cost, Network};
use crate::communicator::{CHUNK_BYTES, GATHERED_BYTES};

/// The bytes of an agreement: three words.
const AGREED_BYTES: usize = 3 * size_of::<u64>();

impl Network {
    /// The cost of an agreement on a call; a barrier costs the same. One rank takes nothing.
    ///
    /// Errors: as [`Network::all_reduce`].
    pub fn agreement(&self, ranks: usize) -> Result<Cost> {
        self.check_call(ranks, AGREED_BYTES)?;
        Ok(self.agreed(ranks))
    }

    /// The cost of [`Communicator::all_gather`](crate::Communicator::all_gather), of `bytes` together. One rank takes nothing.
    ///
    /// Errors: as [`Network::all_reduce`].
    pub fn own_all_gather(&self, ranks: usize, bytes: usize) -> Result<Cost> {
        self.check_call(ranks, bytes)?;
        Ok(self.agreed(ranks) + self.gathered(ranks, bytes))
    }

    fn agreed(&self, ranks: usize) -> Cost {
        self.along_a_tree(ranks, AGREED_BYTES)
    }

    /// [`Communicator::all_reduce`](crate::Communicator::all_reduce) of at least two ranks. A small tensor is gathered whole and
    /// added up by each rank: `(p-1) n gamma`. Of others each chunk of `c` bytes takes an all-to-all, the sum of a share of all
    /// ranks' values, `(p-1)/p c gamma`, and an all-gather.
    pub(super) fn own_all_reduce(&self, ranks: usize, bytes: usize) -> Cost {
        let reducing = |bytes: f64| Cost { reduce_s: bytes / self.reduced_bytes_per_s, ..Cost::default() };
        let others = (ranks - 1) as f64;
        if bytes.saturating_mul(ranks) <= GATHERED_BYTES {
            return self.agreed(ranks) + self.gathered(ranks, bytes * ranks) + reducing(others * bytes as f64);
        }
        let chunk = |c: usize| {
            let sums = reducing(others / ranks as f64 * c as f64);
            self.exchanged(ranks, c) + sums + self.gathered(ranks, c)
        };
        let (whole, rest) = (bytes / CHUNK_BYTES, bytes % CHUNK_BYTES);
        let last = if rest > 0 { chunk(rest) } else { Cost::default() };
        self.agreed(ranks) + chunk(CHUNK_BYTES) * whole as f64 + last
    }
}
