//! `remat train digits`.

mod model;

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use clap::Args;
use remat::nn::{Dataset, InitCx, Layer, Module, Optimizer, SgdOptions};
use remat::runtime::Device;
use remat::tensor::Tensor;
use remat::types::{DType, Error, ErrorKind, Result};
use remat_digits::Digits;

use crate::train::{self, Ranks, RunOptions, Settings, Task, TaskOptions};
use model::DigitsNet;

/// Options of the run. A resumed run takes epochs, batch size, seed and learning rate from its checkpoint.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    run: RunOptions,
    /// Seed of the initial weights and of the order of the examples
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Passes over the training digits
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u64).range(train::EPOCHS))]
    epochs: u64,
    /// Examples of a step
    #[arg(long, default_value_t = 320, value_parser = clap::value_parser!(u16).range(2..=9000))]
    batch_size: u16,
    /// Highest learning rate; it warms up and then falls along a cosine
    #[arg(long, default_value_t = 0.2, value_parser = train::learning_rate)]
    learning_rate: f64,
}

const MOMENTUM: f64 = 0.9;
const WEIGHT_DECAY: f64 = 5e-4;

impl TaskOptions for Options {
    type Task = DigitsTask;

    fn run(&self) -> &RunOptions {
        &self.run
    }

    fn settings(&self) -> Settings<()> {
        Settings {
            task: DigitsTask::NAME.to_owned(),
            seed: self.seed,
            epochs: self.epochs,
            batch_size: usize::from(self.batch_size),
            learning_rate: self.learning_rate,
            model: (),
        }
    }
}

/// A residual network on handwritten digits.
pub(crate) struct DigitsTask {
    train: Digits,
    test: Digits,
}

impl Task for DigitsTask {
    const NAME: &'static str = "digits";
    const UNIT: &'static str = "images";
    const RESULT: &'static str = "test_accuracy";
    const BATCHES: RangeInclusive<usize> = 2..=9000;
    type Model = ();
    type Net = DigitsNet;

    fn new(_model: &()) -> Result<Self> {
        let (train, test) = remat_digits::load()?;
        Ok(DigitsTask { train, test })
    }

    fn net(&self, cx: &mut InitCx) -> Result<DigitsNet> {
        DigitsNet::new(cx)
    }

    fn optimizer(&self, net: &DigitsNet, lr: f64, ranks: &Ranks) -> Result<Box<dyn Optimizer>> {
        let options =
            SgdOptions { lr, momentum: MOMENTUM, weight_decay: WEIGHT_DECAY, nesterov: true, ..SgdOptions::default() };
        ranks.optimizer(net.named_parameters(), options)
    }

    fn examples(&self) -> (impl Dataset, Arc<AtomicU64>) {
        self.train.shifted()
    }

    fn example_bytes(&self) -> usize {
        self.train.example_bytes()
    }

    fn loss(net: &DigitsNet, batch: Vec<Tensor>) -> Result<[Tensor; 2]> {
        let [x, labels] = <[Tensor; 2]>::try_from(batch)
            .map_err(|_| Error::new(ErrorKind::Internal, "a batch is images and labels"))?;
        let logits = net.forward(&x)?;
        drop(x);
        Ok([logits.cross_entropy(&labels)?, count_right(&logits.detach(), &labels)?])
    }

    fn test_len(&self) -> usize {
        self.test.len()
    }

    fn test(&self, net: &DigitsNet, device: &Device, examples: Range<usize>) -> Result<Tensor> {
        let host = self.test.batch(&examples.collect::<Vec<_>>())?;
        let x = Tensor::from_host(device, &host[0])?;
        let labels = Tensor::from_host(device, &host[1])?;
        count_right(&net.forward(&x)?, &labels)
    }

    fn tested(result: f64) -> String {
        format!("test accuracy {:.2} %", 100.0 * result)
    }
}

/// Rows whose largest logit is that of the label.
fn count_right(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    logits.argmax_over(1, false)?.eq(labels)?.cast(DType::F32)?.sum()
}
