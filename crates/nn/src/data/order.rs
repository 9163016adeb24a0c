//! Which examples make up which batch of an epoch.

use remat_ops::eval_inline;
use remat_ops::random::RandomPermutation;
use remat_types::{Error, ErrorKind, HostTensor, Result};

/// Examples that can be shuffled: their order takes some 24 bytes each while it is made.
const SHUFFLED_MAX: usize = 1 << 30;

/// The order of one epoch.
pub(super) struct Order {
    len: usize,
    batch_size: usize,
    batches: usize,
    /// `None` for the dataset's own order.
    shuffled: Option<Vec<usize>>,
    shard: Shard,
}

/// The part of an epoch that one of several ranks reads: of each round of as many batches as there are ranks, the one at the rank's
/// place. Where the last round has fewer batches, the ranks behind take batches from the epoch's begin, so that all make as many
/// steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The rank, from 0.
    pub rank: usize,
    /// The number of ranks.
    pub ranks: usize,
}

impl Shard {
    /// All of an epoch.
    pub const WHOLE: Shard = Shard { rank: 0, ranks: 1 };
}

impl Order {
    /// Batches of `len` examples, in `batches` rounds of as many as the shard has ranks. `seed` is that of the run, with the epoch; `None`
    /// keeps the dataset's order.
    ///
    /// Errors: Value for more examples than can be shuffled.
    pub(super) fn new(
        len: usize,
        batch_size: usize,
        batches: usize,
        seed: Option<[u64; 2]>,
        shard: Shard,
    ) -> Result<Order> {
        let shuffled = seed.map(|key| shuffle(len, key)).transpose()?;
        Ok(Order { len, batch_size, batches, shuffled, shard })
    }

    /// How many batches there are.
    pub(super) fn batches(&self) -> usize {
        self.batches
    }

    /// The examples of batch `i`, which is below [`Order::batches`].
    pub(super) fn batch(&self, i: usize) -> Vec<usize> {
        let all = self.len.div_ceil(self.batch_size).max(1);
        let from = (i * self.shard.ranks + self.shard.rank) % all * self.batch_size;
        let to = from.saturating_add(self.batch_size).min(self.len);
        match &self.shuffled {
            Some(order) => order[from..to].to_vec(),
            None => (from..to).collect(),
        }
    }
}

fn shuffle(n: usize, key: [u64; 2]) -> Result<Vec<usize>> {
    if n > SHUFFLED_MAX {
        let text = format!("a dataset of {n} examples cannot be shuffled, only one of up to {SHUFFLED_MAX}");
        return Err(Error::new(ErrorKind::Value, text));
    }
    let key = HostTensor::from_slice(&key, [2])?;
    let order = eval_inline(&RandomPermutation { n }, &[key])?;
    let order = order.first().map(|t| t.to_i64_vec()).unwrap_or_default();
    Ok(order.into_iter().map(|i| i as usize).collect())
}
