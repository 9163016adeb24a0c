use std::sync::Arc;

use remat_ops::eval_inline;
use remat_ops::random::RandomPermutation;
use remat_runtime::Device;
use remat_tensor::Tensor;
use remat_types::{Error, ErrorKind, HostTensor, Result};
use serde::{Deserialize, Serialize};

use super::Dataset;
use super::prefetch::{Job, Prefetch, read};

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
    /// Batches prepared ahead, at most, when there are workers; their bytes count against the device's budget.
    /// Default: 2.
    pub prefetch: usize,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        LoaderOptions { batch_size: 32, shuffle: None, drop_last: false, workers: 1, prefetch: 2 }
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
    Direct(Vec<Vec<usize>>),
}

impl DataLoader {
    /// A loader at its first batch. Errors: Value for a batch size of 0, or workers without prefetch.
    pub fn new(device: &Device, dataset: impl Dataset, options: LoaderOptions) -> Result<Self> {
        if options.batch_size == 0 {
            return Err(Error::new(ErrorKind::Value, "batch_size is 0, must be at least 1"));
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

    /// Batches of an epoch.
    pub fn batches(&self) -> usize {
        let (n, size) = (self.dataset.len(), self.options.batch_size);
        if self.options.drop_last { n / size } else { n.div_ceil(size) }
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
    /// Errors: those of the dataset, with the batch's number, and Value if it panics; Budget if a prefetched batch does
    /// not fit. The loader then stays at that batch, and the next call tries it again.
    pub fn next_batch(&mut self) -> Result<Option<Vec<Tensor>>> {
        match self.next_host_batch()? {
            Some(parts) => Ok(Some(parts.iter().map(|t| Tensor::from_host(&self.device, t)).collect::<Result<_>>()?)),
            None => Ok(None),
        }
    }

    /// As [`DataLoader::next_batch`], on the host.
    pub fn next_host_batch(&mut self) -> Result<Option<Vec<HostTensor>>> {
        let epoch = match self.epoch.take() {
            Some(e) => e,
            None => self.start()?,
        };
        if self.position.batch >= epoch.batches {
            self.position = LoaderPosition { epoch: self.position.epoch.wrapping_add(1), batch: 0 };
            return Ok(None);
        }
        let i = self.position.batch;
        let parts = match &epoch.source {
            Source::Ahead(p) => p.take(),
            Source::Direct(b) => read(&*self.dataset, &b[i]).map_err(|e| e.context(format_args!("batch {i}"))),
        }?;
        self.position.batch += 1;
        self.epoch = Some(epoch);
        Ok(Some(parts))
    }

    fn start(&self) -> Result<Epoch> {
        let order = self.order()?;
        let list: Vec<Vec<usize>> =
            order.chunks(self.options.batch_size).take(self.batches()).map(<[usize]>::to_vec).collect();
        let batches = list.len();
        let source = match self.options.workers {
            0 => Source::Direct(list),
            workers => {
                let (dataset, channel) = (self.dataset.clone(), self.device.channel());
                let job = Job { dataset, batches: list, first: self.position.batch, channel };
                Source::Ahead(Prefetch::start(job, workers, self.options.prefetch)?)
            }
        };
        Ok(Epoch { source, batches })
    }

    /// The examples in the order of the present epoch.
    fn order(&self) -> Result<Vec<usize>> {
        let n = self.dataset.len();
        let Some(seed) = self.options.shuffle else { return Ok((0..n).collect()) };
        let key = HostTensor::from_slice(&[seed, self.position.epoch], [2])?;
        let order = eval_inline(&RandomPermutation { n }, &[key])?;
        let order = order.first().map(|t| t.to_i64_vec()).unwrap_or_default();
        Ok(order.into_iter().map(|i| i as usize).collect())
    }
}
