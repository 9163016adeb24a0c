//! `remat train chars`.

mod data;
pub(crate) mod generate;
mod sample;

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use clap::Args;
use remat::nn::models::{Gpt, GptConfig};
use remat::nn::{AdamWOptions, Dataset, InitCx, Layer, Module, Optimizer, clip_grad_norm};
use remat::runtime::Device;
use remat::tensor::Tensor;
use remat::types::{DType, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::train::{self, Ranks, RunOptions, Settings, Task, TaskOptions};
use data::{Text, Windows};

/// The contexts that the options allow, and that a checkpoint may hold.
const CONTEXTS: RangeInclusive<i64> = 2..=1024;
const LAYERS: RangeInclusive<i64> = 1..=64;
const WIDTHS: RangeInclusive<i64> = 1..=4096;
const HEADS: RangeInclusive<i64> = 1..=64;

/// Options of the run. A resumed run takes all that decides its numbers from its checkpoint.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    run: RunOptions,
    /// Seed of the initial weights and of the order of the examples
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Passes over the training text
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(train::EPOCHS))]
    epochs: u64,
    /// Windows of text in a step
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch_size: u16,
    /// Highest learning rate; it warms up and then falls along a cosine
    #[arg(long, default_value_t = 2e-3, value_parser = train::learning_rate)]
    learning_rate: f64,
    /// Characters that the network sees at once
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(CONTEXTS))]
    context: u16,
    /// Blocks of the network
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(LAYERS))]
    layers: u16,
    /// Numbers for each character
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(WIDTHS))]
    width: u16,
    /// Heads of each attention; they divide the width
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(HEADS))]
    heads: u16,
    /// Probability with which a number is dropped in training
    #[arg(long, default_value_t = 0.0, value_parser = probability)]
    dropout: f64,
    /// Steps from one sample of what the network writes to the next
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    sample_every: u64,
}

fn probability(text: &str) -> std::result::Result<f64, String> {
    let v: Option<f64> = text.parse().ok().filter(|v| (0.0..1.0).contains(v));
    v.ok_or_else(|| "give a number from 0 to below 1, such as 0.1".to_owned())
}

/// The options of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    context: usize,
    layers: usize,
    width: usize,
    heads: usize,
    dropout: f64,
    sample_every: u64,
}

impl Model {
    /// Errors (Value) for what the options do not allow.
    fn check(&self) -> Result<()> {
        let within = |range: RangeInclusive<i64>, v: usize| i64::try_from(v).is_ok_and(|v| range.contains(&v));
        let sizes = within(CONTEXTS, self.context) && within(LAYERS, self.layers);
        let widths = within(WIDTHS, self.width) && within(HEADS, self.heads);
        if sizes && widths && (0.0..1.0).contains(&self.dropout) && self.sample_every > 0 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Value, format!("{self:?} is outside what the options allow")))
    }
}

impl TaskOptions for Options {
    type Task = CharsTask;

    fn run(&self) -> &RunOptions {
        &self.run
    }

    fn settings(&self) -> Settings<Model> {
        Settings {
            task: CharsTask::NAME.to_owned(),
            seed: self.seed,
            epochs: self.epochs,
            batch_size: usize::from(self.batch_size),
            learning_rate: self.learning_rate,
            model: Model {
                context: usize::from(self.context),
                layers: usize::from(self.layers),
                width: usize::from(self.width),
                heads: usize::from(self.heads),
                dropout: self.dropout,
                sample_every: self.sample_every,
            },
        }
    }
}

/// Decay of the second moment: a little less memory than Adam's default, since the run is short.
const BETA2: f64 = 0.99;
const WEIGHT_DECAY: f64 = 0.1;
/// Gradients are cut to this norm.
const GRADIENT_NORM: f64 = 1.0;

/// A GPT on the characters of a novel.
pub(crate) struct CharsTask {
    text: Arc<Text>,
    train: Windows,
    test: Windows,
    model: Model,
}

impl Task for CharsTask {
    const NAME: &'static str = "chars";
    const UNIT: &'static str = "characters";
    const RESULT: &'static str = "validation_loss";
    const BATCHES: RangeInclusive<usize> = 1..=1024;
    type Model = Model;
    type Net = Gpt;

    fn new(model: &Model) -> Result<Self> {
        model.check()?;
        let text = Arc::new(data::load()?);
        let (train, test) = Windows::split(&text, model.context)?;
        Ok(CharsTask { text, train, test, model: model.clone() })
    }

    fn net(&self, cx: &mut InitCx) -> Result<Gpt> {
        let config = GptConfig {
            layers: self.model.layers,
            width: self.model.width,
            heads: self.model.heads,
            sequence: self.model.context,
            vocabulary: self.text.vocabulary().len(),
            tied: true,
            dropout: self.model.dropout,
        };
        Gpt::new(cx, &config)
    }

    fn optimizer(&self, net: &Gpt, lr: f64, ranks: &Ranks) -> Result<Box<dyn Optimizer>> {
        let options = AdamWOptions { lr, beta2: BETA2, weight_decay: WEIGHT_DECAY, ..AdamWOptions::default() };
        ranks.optimizer(net.named_parameters(), options)
    }

    fn examples(&self) -> (impl Dataset, Arc<AtomicU64>) {
        self.train.shifted()
    }

    fn example_bytes(&self) -> usize {
        2 * self.model.context
    }

    fn predictions(&self) -> usize {
        self.model.context
    }

    fn loss(net: &Gpt, batch: Vec<Tensor>) -> Result<[Tensor; 2]> {
        let [x, next] = <[Tensor; 2]>::try_from(batch)
            .map_err(|_| Error::new(ErrorKind::Internal, "a batch is characters and those that follow them"))?;
        let (logits, next) = predictions(net, &x, &next)?;
        let right = logits.detach().argmax_over(1, false)?.eq(next.cast(DType::I64)?)?.cast(DType::F32)?.sum()?;
        Ok([logits.cross_entropy(&next)?, right])
    }

    fn limit(net: &Gpt) -> Result<()> {
        clip_grad_norm(&net.parameters(), GRADIENT_NORM).map(drop)
    }

    fn test_len(&self) -> usize {
        self.test.len()
    }

    /// The sum of the losses.
    fn test(&self, net: &Gpt, device: &Device, examples: Range<usize>) -> Result<Tensor> {
        let host = self.test.batch(&examples.collect::<Vec<_>>())?;
        let (x, next) = (Tensor::from_host(device, &host[0])?, Tensor::from_host(device, &host[1])?);
        let (logits, next) = predictions(net, &x, &next)?;
        logits.cross_entropy(&next)?.mul(next.elems() as f64)
    }

    fn tested(result: f64) -> String {
        format!("validation loss {result:.4}")
    }

    fn shows(&self, step: u64) -> bool {
        step.is_multiple_of(self.model.sample_every)
    }

    fn show(&self, net: &Gpt, device: &Device, step: u64) -> Result<String> {
        let text = sample::write(net, device, &self.text, self.model.context, step)?;
        Ok(format!("--- after {step} steps it writes:\n{text}\n---"))
    }
}

/// A row of logits for each place, and the character that follows it.
fn predictions(net: &Gpt, x: &Tensor, next: &Tensor) -> Result<(Tensor, Tensor)> {
    let logits = net.forward(x)?;
    let classes = logits.dims().last().map_or(0, |c| *c as isize);
    Ok((logits.reshape(&[-1, classes])?, next.reshape(&[-1])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_no_option_gives_is_refused() {
        let good = train::defaults::<Options>().expect("every option has a default").settings().model;
        assert!(CharsTask::new(&good).is_ok());
        for bad in [
            Model { context: usize::MAX, ..good.clone() },
            Model { layers: 1 << 40, ..good.clone() },
            Model { width: 0, ..good.clone() },
            Model { heads: 65, ..good.clone() },
            Model { dropout: f64::NAN, ..good.clone() },
            Model { sample_every: 0, ..good.clone() },
        ] {
            assert_eq!(CharsTask::new(&bad).err().map(|e| e.kind()), Some(ErrorKind::Value), "{bad:?}");
        }
    }
}
