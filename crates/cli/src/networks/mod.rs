//! The networks of `nn::models` under the names that commands take, with an input of the size that they are measured on.

mod run;
mod setup;

use std::fmt;
use std::str::FromStr;

use remat::nn::models::{
    Gpt, GptConfig, MobileNetV2, MobileNetV2Config, ResNet, ResNetConfig, Transformer, TransformerConfig,
};
use remat::nn::{InitCx, Layer, Linear, Relu, Sequential};
use remat::tensor::Tensor;
use remat::types::{DType, Result};

pub(crate) use run::{Running, plain_cost};
pub(crate) use setup::Network;

/// A network of `nn::models`, or the small one that benchmarks use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    ResNet18,
    ResNet50,
    MobileNetV2,
    Gpt,
    Bert,
    Mlp,
}

/// A training step, as it is measured elsewhere: its network, batch, and optimiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Mlp,
    ResNet18,
    ResNet50,
    Gpt,
}

/// The tasks of `remat train`, with the data that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrainTask {
    Digits,
    Chars,
}

/// A network or task with a name on the command line. Every command takes these and no others.
struct Entry {
    /// The one that is printed, then others that are taken.
    names: &'static [&'static str],
    model: Option<Model>,
    step: Option<Step>,
    task: Option<TrainTask>,
}

const fn network(names: &'static [&'static str], model: Model, step: Option<Step>) -> Entry {
    Entry { names, model: Some(model), step, task: None }
}

const fn task(names: &'static [&'static str], task: TrainTask) -> Entry {
    Entry { names, model: None, step: None, task: Some(task) }
}

const ENTRIES: [Entry; 8] = [
    task(&["digits"], TrainTask::Digits),
    task(&["chars"], TrainTask::Chars),
    network(&["mlp"], Model::Mlp, Some(Step::Mlp)),
    network(&["resnet18"], Model::ResNet18, Some(Step::ResNet18)),
    network(&["resnet50"], Model::ResNet50, Some(Step::ResNet50)),
    network(&["mobilenetv2"], Model::MobileNetV2, None),
    network(&["gpt"], Model::Gpt, Some(Step::Gpt)),
    // benchmarks elsewhere call the encoder of six layers by its number
    network(&["bert", "bert6"], Model::Bert, None),
];

/// The thing of one kind that is called `name`, or an error that lists all names of that kind.
fn named<T>(what: &str, name: &str, kind: impl Fn(&Entry) -> Option<T>) -> std::result::Result<T, String> {
    let found = ENTRIES.iter().find(|e| e.names.contains(&name)).and_then(&kind);
    found.ok_or_else(|| {
        let written = |e: &Entry| match e.names {
            [name, others @ ..] if !others.is_empty() => format!("{name} (or {})", others.join(", ")),
            names => names.concat(),
        };
        let all: Vec<String> = ENTRIES.iter().filter(|e| kind(e).is_some()).map(written).collect();
        format!("there is no {what} `{name}`; there are {}", all.join(", "))
    })
}

/// The name under which an entry is printed.
fn name_of(is: impl Fn(&Entry) -> bool) -> &'static str {
    ENTRIES.iter().find(|e| is(e)).map_or("?", |e| e.names[0])
}

impl FromStr for Model {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        named("model", name, |e| e.model)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(|e| e.model == Some(*self)))
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        named("training step", name, |e| e.step)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(|e| e.step == Some(*self)))
    }
}

/// The source of a training step: a task, on the data that ships, or a network of other benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trained {
    Task(TrainTask),
    Network(Step),
}

impl FromStr for Trained {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        named("training step", name, |e| e.task.map(Trained::Task).or(e.step.map(Trained::Network)))
    }
}

impl fmt::Display for Trained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trained::Task(t) => f.write_str(name_of(|e| e.task == Some(*t))),
            Trained::Network(s) => s.fmt(f),
        }
    }
}

/// Channels and extents of an image.
pub(crate) const IMAGE: [usize; 3] = [3, 224, 224];
/// Places of the sequence on which the encoder is measured elsewhere.
const BERT_PLACES: usize = 128;
/// Widths of the multi-layer perceptron.
pub(crate) const MLP: [usize; 4] = [784, 512, 512, 10];

impl Model {
    /// The network, and zeros of the shape that a batch has.
    pub(crate) fn build(self, cx: &mut InitCx, batch: usize) -> Result<(Box<dyn Layer>, Tensor)> {
        let device = cx.device.clone();
        let image =
            |net: Box<dyn Layer>| Ok((net, Tensor::zeros(&device, [batch, IMAGE[0], IMAGE[1], IMAGE[2]], DType::F32)?));
        match self {
            Model::ResNet18 => image(Box::new(ResNet::new(cx, &ResNetConfig::resnet18())?)),
            Model::ResNet50 => image(Box::new(ResNet::new(cx, &ResNetConfig::resnet50())?)),
            Model::MobileNetV2 => image(Box::new(MobileNetV2::new(cx, &MobileNetV2Config::default())?)),
            Model::Gpt => {
                let config = GptConfig::default();
                let x = Tensor::zeros(&device, [batch, config.sequence], DType::U8)?;
                Ok((Box::new(Gpt::new(cx, &config)?), x))
            }
            Model::Bert => {
                let config = TransformerConfig::default();
                let x = Tensor::zeros(&device, [batch, BERT_PLACES, config.width], DType::F32)?;
                Ok((Box::new(Transformer::new(cx, &config)?), x))
            }
            Model::Mlp => Ok((Box::new(mlp(cx)?), Tensor::zeros(&device, [batch, MLP[0]], DType::F32)?)),
        }
    }
}

/// Linear layers with relu between them.
pub(crate) fn mlp(cx: &mut InitCx) -> Result<Sequential> {
    let mut net = Sequential::new();
    for (i, w) in MLP.windows(2).enumerate() {
        if i > 0 {
            net.push(Relu);
        }
        net.push(Linear::new(cx, w[0], w[1])?);
    }
    Ok(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_taken_and_other_names_lead_to_it() {
        for e in &ENTRIES {
            for name in e.names {
                if let Some(m) = e.model {
                    assert_eq!((name.parse(), m.to_string().as_str()), (Ok(m), e.names[0]));
                }
                if let Some(s) = e.step {
                    assert_eq!((name.parse(), s.to_string().as_str()), (Ok(s), e.names[0]));
                }
            }
        }
        assert_eq!("bert6".parse::<Model>().expect("known").to_string(), "bert");
        assert_eq!("digits".parse::<Trained>().expect("known").to_string(), "digits");
    }

    #[test]
    fn a_name_that_is_not_known_lists_those_that_are() {
        let e = "vgg".parse::<Model>().expect_err("none");
        assert!(e.contains("mobilenetv2") && e.contains("bert (or bert6)") && !e.contains("digits"), "{e}");
        let e = "bert".parse::<Trained>().expect_err("it has no step");
        assert!(e.contains("digits, chars, mlp, resnet18, resnet50, gpt"), "{e}");
    }
}
