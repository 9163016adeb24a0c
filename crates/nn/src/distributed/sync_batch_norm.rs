use remat_tensor::Tensor;
use remat_tensor::comm::Communicator;
use remat_types::Result;

use crate::module::walk;
use crate::{BatchNorm, BatchNormOptions, InitCx, Layer, Module, StatisticsGroup, Visit, Visitor, Walk};

/// [`BatchNorm`] over the batches of all ranks, as if one process had them as one batch: for batches of few images a rank.
///
/// Options, parameters and buffers are the plain layer's, and so are their names: a state dict fits either. The running statistics
/// have the same bits on every rank. In evaluation, and with frozen statistics, it is the plain layer, and ranks do not wait for each
/// other. Batches may have other sizes on each rank; each counts by its number of elements.
///
/// A call gathers `2 c + 1` numbers of each rank, and its backward pass scatters as many. By the convention of collectives the
/// gradient of `x` is that of the sum of all ranks' losses; those of weight and bias are this rank's share of it, which
/// [`DataParallel`](super::DataParallel) adds up as it does for all parameters.
///
/// Errors: as [`BatchNorm`]: a rank without a batch is refused. On the device (Peer): ranks with other numbers of channels or dtypes, a
/// rank that failed or does not come.
///
/// ```
/// # use remat_nn::distributed::{SyncBatchNorm, threads};
/// # use remat_nn::{InitCx, Layer};
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// let seen = threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let norm = SyncBatchNorm::<1>::new(&mut InitCx::new(&device, 1), 1, &ranks)?;
///     // one row on rank 0, two on rank 1: their mean is 3
///     let x: &[f32] = if ranks.rank() == 0 { &[1.0] } else { &[3.0, 5.0] };
///     norm.forward(&Tensor::new(&device, x, [x.len(), 1])?)?;
///     norm.layer().running_mean.to_host()
/// })?;
/// assert_eq!(seen[0], seen[1]);
/// assert!((seen[0].to_f64_vec()[0] - 0.1 * 3.0).abs() < 1e-6);
/// # Ok::<(), remat_types::Error>(())
/// ```
pub struct SyncBatchNorm<const D: usize>(BatchNorm<D>);

impl<const D: usize> SyncBatchNorm<D> {
    /// For `channels` channels. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, channels: usize, group: &Communicator) -> Result<Self> {
        SyncBatchNorm::with(cx, channels, BatchNormOptions::default(), group)
    }

    /// As [`SyncBatchNorm::new`] with options. Errors: as [`BatchNorm::with`].
    pub fn with(cx: &mut InitCx, channels: usize, options: BatchNormOptions, group: &Communicator) -> Result<Self> {
        Ok(SyncBatchNorm::from_batch_norm(BatchNorm::with(cx, channels, options)?, group))
    }

    /// A layer that takes the statistics of these ranks from now on.
    pub fn from_batch_norm(layer: BatchNorm<D>, group: &Communicator) -> Self {
        layer.statistics_group.set(Some(group));
        SyncBatchNorm(layer)
    }

    /// The layer, with its parameters and running statistics.
    pub fn layer(&self) -> &BatchNorm<D> {
        &self.0
    }
}

impl<const D: usize> Visit for SyncBatchNorm<D> {
    fn visit(&self, at: &mut Walk<'_>) {
        self.0.visit(at);
    }
}
impl<const D: usize> Module for SyncBatchNorm<D> {}

impl<const D: usize> Layer for SyncBatchNorm<D> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.forward(x)
    }
}

/// Lets every [`BatchNorm`] of a module be a [`SyncBatchNorm`] over these ranks, or, without a group, a plain one again; gives their
/// number. All ranks call it, before they train.
///
/// ```
/// # use remat_nn::distributed::{synchronise_batch_norms, threads};
/// # use remat_nn::{ConvNorm, InitCx};
/// # use remat_runtime::{Device, DeviceOptions};
/// let seen = threads::run(2, |ranks| {
///     let device = Device::cpu(DeviceOptions { ranks: Some(ranks.clone()), ..Default::default() })?;
///     let net = ConvNorm::new(&mut InitCx::new(&device, 1), 3, 8, 3, 1)?;
///     Ok(synchronise_batch_norms(&net, Some(&ranks)))
/// })?;
/// assert_eq!(seen, [1, 1]);
/// # Ok::<(), remat_types::Error>(())
/// ```
#[doc(alias = "convert_sync_batchnorm")]
pub fn synchronise_batch_norms<M: Module + ?Sized>(module: &M, group: Option<&Communicator>) -> usize {
    let mut set = SetGroup { group, seen: 0 };
    walk(module, "", &mut set);
    set.seen
}

struct SetGroup<'g> {
    group: Option<&'g Communicator>,
    seen: usize,
}

impl Visitor for SetGroup<'_> {
    fn statistics_group(&mut self, _name: &str, g: &StatisticsGroup) {
        g.set(self.group);
        self.seen += 1;
    }
}
