//! A task's training step in its parts, for who times them.

use remat::nn::distributed::{Communicator, DataParallel};
use remat::nn::{DataLoader, InitCx, LoaderOptions, Module, Optimizer, Parameter};
use remat::runtime::{Device, DeviceOptions};
use remat::tensor::Tensor;
use remat::types::{Error, ErrorKind, Result};

use super::ranks::Ranks;
use super::task::Task;
use super::{TaskOptions, defaults};
use crate::step_parts::StepParts;

/// Batches that are read ahead, as `remat train` does.
const PREFETCH: usize = 2;

/// A task on a device, without a budget.
struct TaskParts<T: Task> {
    device: Device,
    net: T::Net,
    optimizer: Box<dyn Optimizer>,
    loader: DataLoader,
}

/// The step of a task with a batch, or the usual one.
///
/// Errors: Value for a batch that the data do not allow; those of the network.
pub(crate) fn parts<O: TaskOptions>(batch: Option<usize>, options: DeviceOptions) -> Result<Box<dyn StepParts>> {
    let settings = defaults::<O>()?.settings();
    let batch_size = batch.unwrap_or(settings.batch_size);
    let allowed = <O::Task as Task>::BATCHES;
    if !allowed.contains(&batch_size) {
        let text = format!("a batch of {batch_size}: it must be from {} to {}", allowed.start(), allowed.end());
        return Err(Error::new(ErrorKind::Value, text));
    }
    let device = Device::cpu(options)?;
    let task = <O::Task as Task>::new(&settings.model)?;
    let net = task.net(&mut InitCx::new(&device, settings.seed))?;
    let optimizer = task.optimizer(&net, settings.learning_rate, &Ranks::alone())?;
    let loader_options = LoaderOptions {
        batch_size,
        shuffle: Some(settings.seed),
        drop_last: true,
        prefetch: PREFETCH,
        ..LoaderOptions::default()
    };
    let loader = DataLoader::new(&device, task.examples().0, loader_options)?;
    Ok(Box::new(TaskParts::<O::Task> { device, net, optimizer, loader }))
}

/// The batch of a task unless said otherwise. Errors: Internal.
pub(crate) fn usual_batch<O: TaskOptions>() -> Result<usize> {
    Ok(defaults::<O>()?.settings().batch_size)
}

impl<T: Task> StepParts for TaskParts<T> {
    fn device(&self) -> &Device {
        &self.device
    }

    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        self.net.named_parameters()
    }

    fn parallel(&self, ranks: &Communicator) -> Result<DataParallel> {
        DataParallel::new(&self.net, ranks, Default::default())
    }

    fn loss(&mut self) -> Result<Tensor> {
        // an epoch may end, and the next begins with the call after that
        let batch = match self.loader.next_batch()? {
            Some(batch) => Some(batch),
            None => self.loader.next_batch()?,
        };
        let batch = batch.ok_or_else(|| Error::new(ErrorKind::Value, "the data have no batch of that size"))?;
        let [loss, _right] = T::loss(&self.net, batch)?;
        Ok(loss)
    }

    fn update(&mut self) -> Result<()> {
        T::limit(&self.net)?;
        self.optimizer.step()
    }
}
