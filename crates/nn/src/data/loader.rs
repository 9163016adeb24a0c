use std::sync::Arc;

use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, HostTensor, Result};
use serde::{Deserialize, Serialize};

use super::Dataset;
use super::order::{Order, Shard};
use super::prefetch::{Job, Prefetch, read};

/// Threads that a loader may have.
const WORKERS_MAX: usize = 1024;
/// Examples of a batch: their indices are a list.
const BATCH_MAX: usize = 1 << 30;

/// How a [`DataLoader`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Examples of a batch. Default: 32.
    pub batch_size: usize,
    /// Seed of each epoch's order; `None` for the dataset's own. Default: `None`.
    pub shuffle: Option<u64>,
    /// Leave out a last batch that is smaller. Default: false.
    pub drop_last: bool,
    /// Threads that prepare batches; 0 prepares on the caller's. Default: 1.
    pub workers: usize,
    /// Batches prepared ahead, at most, when there are workers. Their bytes count against the device's budget, take no more
    /// than a quarter of it, and give way where the device needs the room. Default: 2.
    pub prefetch: usize,
    /// The part of each epoch that this rank reads. Default: [`Shard::WHOLE`].
    pub shard: Shard,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        LoaderOptions { batch_size: 32, shuffle: None, drop_last: false, workers: 1, prefetch: 2, shard: Shard::WHOLE }
    }
}

/// Where a loader is: the batch that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderPosition {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch within it, from 0.
    pub batch: usize,
}

/// Batches of a dataset on a device, epoch after epoch.
///
/// The order of an epoch is a function of seed and epoch alone, and batches come in that order whatever the number of
/// workers. An error or a panic of the dataset comes out of [`DataLoader::next_batch`] in its batch's turn. Dropping the
/// loader, or moving it, ends its threads after what they are preparing.
///
/// ```no_run
/// # use remat_nn::{DataLoader, LoaderOptions, TensorDataset};
/// # fn f(device: &remat_runtime::Device, images: remat_types::HostTensor, labels: remat_types::HostTensor)
/// # -> remat_types::Result<()> {
/// let data = TensorDataset::new(vec![images, labels])?;
/// let mut loader = DataLoader::new(device, data, LoaderOptions { shuffle: Some(1), ..Default::default() })?;
/// for _epoch in 0..10 {
///     while let Some(batch) = loader.next_batch()? {
///         let [_x, _y] = &batch[..] else { break };
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct DataLoader {
    device: Device,
    dataset: Arc<dyn Dataset>,
    options: LoaderOptions,
    position: LoaderPosition,
    epoch: Option<Epoch>,
}

/// An epoch under way.
struct Epoch {
    source: Source,
    batches: usize,
}

enum Source {
    Ahead(Prefetch),
    Direct(Order),
}

impl DataLoader {
    /// A loader at its first batch. Errors: Value for a batch size of 0 or above 2^30, more than 1024 workers, workers without
    /// prefetch, or the shard of a rank that is not below their number.
    pub fn new(device: &Device, dataset: impl Dataset, options: LoaderOptions) -> Result<Self> {
        if options.batch_size == 0 {
            return Err(Error::new(ErrorKind::Value, "batch_size is 0, must be at least 1"));
        }
        if options.batch_size > BATCH_MAX {
            let text = format!("batch_size is {}, must be at most {BATCH_MAX}", options.batch_size);
            return Err(Error::new(ErrorKind::Value, text));
        }
        if options.shard.rank >= options.shard.ranks {
            let text = format!("shard of rank {}, must be below the {} ranks", options.shard.rank, options.shard.ranks);
            return Err(Error::new(ErrorKind::Value, text));
        }
        if options.workers > WORKERS_MAX {
            let text = format!("workers is {}, must be at most {WORKERS_MAX}", options.workers);
            return Err(Error::new(ErrorKind::Value, text));
        }
        if options.workers > 0 && options.prefetch == 0 {
            return Err(Error::new(ErrorKind::Value, "prefetch is 0 with workers; without prefetch set workers to 0"));
        }
        Ok(DataLoader {
            device: device.clone(),
            dataset: Arc::new(dataset),
            options,
            position: LoaderPosition::default(),
            epoch: None,
        })
    }

    /// Batches of an epoch, of this loader's shard: as many on every rank.
    pub fn batches(&self) -> usize {
        let (n, size, ranks) = (self.dataset.len(), self.options.batch_size, self.options.shard.ranks);
        if self.options.drop_last { n / size / ranks } else { n.div_ceil(size).div_ceil(ranks) }
    }

    /// The batch that comes next.
    pub fn position(&self) -> LoaderPosition {
        self.position
    }

    /// Goes on from `position`, as saved. Errors: Value for a batch past the end of an epoch.
    pub fn set_position(&mut self, position: LoaderPosition) -> Result<()> {
        if position.batch > self.batches() {
            let text = format!("batch {} of an epoch of {}", position.batch, self.batches());
            return Err(Error::new(ErrorKind::Value, text));
        }
        (self.position, self.epoch) = (position, None);
        Ok(())
    }

    /// The next batch on the device, or `None` once at the end of each epoch.
    ///
    /// Errors: those of the dataset, with the batch's number, Value if it panics, and Arity for a batch without parts; Budget
    /// if a batch for which there was no room ahead has none on the device either. The loader then stays at that batch, and
    /// the next call tries it again.
    pub fn next_batch(&mut self) -> Result<Option<Vec<Tensor>>> {
        let Some((parts, is_refused)) = self.next_parts()? else { return Ok(None) };
        let tensors = parts.iter().map(|t| Tensor::from_host(&self.device, t)).collect::<Result<Vec<_>>>()?;
        if is_refused {
            // memory is short, so that it is known here, and not at a read far away, whether the batch fits
            let arrived = tensors.iter().try_for_each(|t| self.device.channel().wait(t.handle()));
            if let Err(e) = arrived {
                self.position.batch -= 1;
                self.epoch = None;
                return Err(e.context(format_args!("batch {}", self.position.batch)));
            }
        }
        Ok(Some(tensors))
    }

    /// Waits until all batches that may be prepared ahead are ready. Then their share of the budget does not depend on the timing
    /// of threads. A rehearsal calls this, so that its peak is the peak of every run. Begins no epoch.
    ///
    /// Errors: those with which this thread's waits are to end.
    pub fn wait_for_prefetch(&self) -> Result<()> {
        match self.epoch.as_ref().map(|e| &e.source) {
            Some(Source::Ahead(p)) => p.fill(),
            Some(Source::Direct(_)) | None => Ok(()),
        }
    }

    /// As [`DataLoader::next_batch`], on the host.
    pub fn next_host_batch(&mut self) -> Result<Option<Vec<HostTensor>>> {
        Ok(self.next_parts()?.map(|(parts, _)| parts))
    }

    /// The next batch on the host, and whether the budget had no room for it ahead.
    fn next_parts(&mut self) -> Result<Option<(Vec<HostTensor>, bool)>> {
        let epoch = match self.epoch.take() {
            Some(e) => e,
            None => self.start()?,
        };
        if self.position.batch >= epoch.batches {
            self.position = LoaderPosition { epoch: self.position.epoch.wrapping_add(1), batch: 0 };
            return Ok(None);
        }
        let i = self.position.batch;
        let (parts, is_refused) = match &epoch.source {
            Source::Ahead(p) => match p.take() {
                Ok(taken) => taken,
                Err(e) => {
                    self.epoch = Some(epoch);
                    return Err(e);
                }
            },
            Source::Direct(order) => {
                (read(&*self.dataset, &order.batch(i)).map_err(|e| e.context(format_args!("batch {i}"))), false)
            }
        };
        let parts = parts?;
        self.position.batch += 1;
        self.epoch = Some(epoch);
        Ok(Some((parts, is_refused)))
    }

    fn start(&self) -> Result<Epoch> {
        let seed = self.options.shuffle.map(|seed| [seed, self.position.epoch]);
        let batches = self.batches();
        let order = Order::new(self.dataset.len(), self.options.batch_size, batches, seed, self.options.shard)?;
        let source = match self.options.workers {
            0 => Source::Direct(order),
            workers => {
                let (dataset, channel) = (self.dataset.clone(), self.device.channel());
                let job = Job { dataset, order, first: self.position.batch, channel };
                Source::Ahead(Prefetch::start(job, workers, self.options.prefetch)?)
            }
        };
        Ok(Epoch { source, batches })
    }
}
