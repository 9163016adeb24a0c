//! The differences between the tasks of `remat train`.

use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use remat::nn::{Checkpoint, Dataset, InitCx, Module, Optimizer};
use remat::runtime::Device;
use remat::tensor::Tensor;
use remat::types::{Error, ErrorKind, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Ranks;

/// The settings that decide a run's numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings<M> {
    /// The task's name, so that a checkpoint is not taken for another's.
    #[serde(rename = "recipe")]
    pub(crate) task: String,
    pub(crate) seed: u64,
    pub(crate) epochs: u64,
    pub(crate) batch_size: usize,
    pub(crate) learning_rate: f64,
    pub(crate) model: M,
}

/// Passes over the data that a run may make.
pub(crate) const EPOCHS: RangeInclusive<u64> = 1..=100_000;

impl<M: DeserializeOwned + Debug> Settings<M> {
    /// The settings of the run that was saved. Errors (Format) if they are not there, or are another task's.
    pub(crate) fn of_checkpoint<T: Task<Model = M>>(c: &Checkpoint) -> Result<Settings<M>> {
        let bad = |e: String| Error::new(ErrorKind::Format, format!("checkpoint: settings of the run: {e}"));
        let task = c.train.user["recipe"].as_str();
        if let Some(other) = task.filter(|r| *r != T::NAME) {
            return Err(bad(format!("it is of `{other}`, not of `{}`", T::NAME)));
        }
        let s: Settings<M> = serde_json::from_value(c.train.user.clone()).map_err(|e| bad(e.to_string()))?;
        let rate = s.learning_rate.is_finite() && s.learning_rate > 0.0;
        let sane = rate && T::BATCHES.contains(&s.batch_size) && EPOCHS.contains(&s.epochs);
        if sane { Ok(s) } else { Err(bad(format!("{s:?} is outside what the options allow"))) }
    }
}

/// A network that ships with its data.
pub(crate) trait Task: Sized + 'static {
    /// As on the command line.
    const NAME: &'static str;
    /// The unit in which the speed counts examples: `images`.
    const UNIT: &'static str;
    /// The key of the last test's result in JSON.
    const RESULT: &'static str;
    /// Batch sizes that the data allow.
    const BATCHES: RangeInclusive<usize>;
    /// The options of the network.
    type Model: Clone + Debug + PartialEq + Serialize + DeserializeOwned;
    type Net: Module + 'static;

    /// With its data. Errors: Format for data that are not what they claim, Value for an impossible model.
    fn new(model: &Self::Model) -> Result<Self>;

    fn net(&self, cx: &mut InitCx) -> Result<Self::Net>;

    fn optimizer(&self, net: &Self::Net, learning_rate: f64, ranks: &Ranks) -> Result<Box<dyn Optimizer>>;

    /// Training examples, and the value in which the caller stores the epoch that they are read for.
    fn examples(&self) -> (impl Dataset, Arc<AtomicU64>);

    /// Bytes of an example in a batch.
    fn example_bytes(&self) -> usize;

    /// The number of predictions in an example: images have one class, texts a character at each place.
    fn predictions(&self) -> usize {
        1
    }

    /// The mean loss of a batch, and how many predictions are right.
    fn loss(net: &Self::Net, batch: Vec<Tensor>) -> Result<[Tensor; 2]>;

    /// Between the gradients and the optimiser's step.
    fn limit(_net: &Self::Net) -> Result<()> {
        Ok(())
    }

    fn test_len(&self) -> usize;

    /// The sum that testing computes over these test examples; the result is its mean over all predictions.
    fn test(&self, net: &Self::Net, device: &Device, examples: Range<usize>) -> Result<Tensor>;

    /// The result for people: `test accuracy 98.00 %`.
    fn tested(result: f64) -> String;

    /// Whether the network has something to show after this many steps.
    fn shows(&self, _step: u64) -> bool {
        false
    }

    /// The text to show then. It does not change the run.
    fn show(&self, _net: &Self::Net, _device: &Device, _step: u64) -> Result<String> {
        Ok(String::new())
    }
}
