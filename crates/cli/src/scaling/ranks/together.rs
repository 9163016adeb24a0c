//! Ranks that begin together and tell each other their figures.

use remat::nn::distributed::{Call, Communicator};
use remat::types::{DType, Result};

use super::super::measure::{Pace, turns_within};

/// Ranks that measure together.
pub(super) struct Together<'a> {
    pub(super) ranks: &'a Communicator,
    pub(super) seconds: f64,
}

impl Pace for Together<'_> {
    fn ranks(&self) -> usize {
        self.ranks.size()
    }

    fn turns(&self, one: f64) -> Result<usize> {
        let mut turns = (turns_within(self.seconds, one) as u64).to_le_bytes();
        self.ranks.broadcast(&Call::named("turns"), 0, &mut turns)?;
        Ok(u64::from_le_bytes(turns) as usize)
    }

    fn meet(&self) -> Result<()> {
        self.ranks.barrier()
    }

    fn mean(&self, mine: f64) -> Result<f64> {
        let all = gather(self.ranks, mine)?;
        Ok(all.iter().sum::<f64>() / all.len() as f64)
    }
}

/// The value of the slowest rank.
pub(super) fn slowest(ranks: &Communicator, mine: f64) -> Result<f64> {
    Ok(gather(ranks, mine)?.into_iter().fold(0.0, f64::max))
}

/// The value of each rank.
pub(super) fn gather(ranks: &Communicator, mine: f64) -> Result<Vec<f64>> {
    let mut all = vec![0; size_of::<f64>() * ranks.size()];
    let call = Call::new("figures", "", DType::F64, &[1].into());
    ranks.all_gather(&call, &mine.to_le_bytes(), &mut all)?;
    Ok(all.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default())).collect())
}
