//! The meaning of `train:NAME` and `model:NAME`: the steps of `remat train`, and networks of other benchmarks.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use remat::runtime::{CommandStream, DeviceOptions, Executable};
use remat::types::{Error, ErrorKind, Result};

use crate::device::On;
use crate::networks::{Network, TrainTask, Trained};
use crate::step_parts::StepParts;
use crate::{chars, digits, train};

/// The workload that the user named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Task(TrainTask),
    Network(Network),
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            Some(("train", name)) => Ok(match name.parse()? {
                Trained::Task(t) => Workload::Task(t),
                Trained::Network(s) => Workload::Network(Network::Train(s)),
            }),
            Some(("model", name)) => Network::model(name).map(Workload::Network),
            _ => Err(format!("`{text}` is neither `train:NAME` nor `model:NAME`")),
        }
    }
}

/// A workload, or a file where a command takes either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    Workload(Workload),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            Some(("model" | "train", _)) => text.parse().map(Source::Workload),
            _ => Ok(Source::File(text.into())),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Workload(w) => w.fmt(f),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Task(t) => write!(f, "train:{}", Trained::Task(*t)),
            Workload::Network(n) => n.fmt(f),
        }
    }
}

impl Workload {
    /// The compiled form, run so many times without a budget; of 0 runs nothing is computed. Errors: those of the network.
    pub(crate) fn timed(self, batch: Option<usize>, on: On<'_>, runs: usize) -> Result<Arc<Executable>> {
        match self {
            Workload::Task(TrainTask::Digits) => train::timed::<digits::Options>(batch, on, runs),
            Workload::Task(TrainTask::Chars) => train::timed::<chars::Options>(batch, on, runs),
            Workload::Network(network) => network.timed(batch, on, runs),
        }
    }

    /// Its training step, on a device with these options. Errors: Value for `model:NAME`, which does not train, and for a batch that
    /// the data do not allow; those of the network.
    pub(crate) fn parts(self, batch: Option<usize>, options: DeviceOptions) -> Result<Box<dyn StepParts>> {
        match self {
            Workload::Task(TrainTask::Digits) => train::parts::<digits::Options>(batch, options),
            Workload::Task(TrainTask::Chars) => train::parts::<chars::Options>(batch, options),
            Workload::Network(network @ Network::Train(_)) => network.parts(batch, options),
            Workload::Network(Network::Infer(_)) => {
                let text = format!("`{self}` does not train: give a step such as `train:resnet18`");
                Err(Error::new(ErrorKind::Value, text))
            }
        }
    }

    /// Examples of a batch unless said otherwise. Errors: Internal.
    pub(crate) fn usual_batch(self) -> Result<usize> {
        match self {
            Workload::Task(TrainTask::Digits) => train::usual_batch::<digits::Options>(),
            Workload::Task(TrainTask::Chars) => train::usual_batch::<chars::Options>(),
            Workload::Network(network) => Ok(network.batch()),
        }
    }

    /// Records so many eager steps. Errors: those of the network.
    pub(crate) fn recorded(
        self,
        batch: Option<usize>,
        on: On<'_>,
        steps: usize,
        is_estimated: bool,
    ) -> Result<CommandStream> {
        match self {
            Workload::Network(network) => network.recorded(batch, on, steps, is_estimated),
            Workload::Task(TrainTask::Digits) => train::recorded::<digits::Options>(batch, on, steps, is_estimated),
            Workload::Task(TrainTask::Chars) => train::recorded::<chars::Options>(batch, on, steps, is_estimated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_read_as_they_print() {
        for text in ["train:digits", "train:chars", "train:resnet50", "train:gpt", "model:mlp"] {
            assert_eq!(text.parse::<Workload>().expect("valid").to_string(), text);
        }
        let names = "train:imagenet".parse::<Workload>().expect_err("none");
        assert!(names.contains("digits") && names.contains("resnet50"), "{names}");
        assert!("graph.json".parse::<Workload>().expect_err("a file").contains("neither"));
    }

    #[test]
    fn sources_read_as_they_print() {
        for text in ["model:resnet18", "model:mlp", "train:chars", "train:gpt", "some/file.safetensors"] {
            assert_eq!(text.parse::<Source>().expect("valid").to_string(), text);
        }
        assert!("model:vgg".parse::<Source>().expect_err("none").contains("mobilenetv2"));
        assert!("train:imagenet".parse::<Source>().expect_err("none").contains("digits, chars"));
    }
}
