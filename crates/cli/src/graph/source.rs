//! Where a graph comes from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use remat::graph::ir::Graph;
use remat::nn::models::{
    Gpt, GptConfig, MobileNetV2, MobileNetV2Config, ResNet, ResNetConfig, Transformer, TransformerConfig,
};
use remat::nn::{InitCx, Layer, Linear, Relu, Sequential};
use remat::ops::Registry;
use remat::runtime::{Device, DeviceOptions, Executable, ExecutableOptions};
use remat::tensor::{Tensor, compile, no_grad};
use remat::types::{DType, Error, ErrorKind, Result, Shape};

use crate::budget::MemoryBudget;
use crate::{chars, digits};

/// What the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    File(PathBuf),
    Model(Model),
    Train(Recipe),
}

/// A network of `nn::models`, or the small one that benchmarks use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Model {
    ResNet18,
    ResNet50,
    MobileNetV2,
    Gpt,
    Bert,
    Mlp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    Digits,
    Chars,
}

const MODELS: [(&str, Model); 6] = [
    ("resnet18", Model::ResNet18),
    ("resnet50", Model::ResNet50),
    ("mobilenetv2", Model::MobileNetV2),
    ("gpt", Model::Gpt),
    ("bert", Model::Bert),
    ("mlp", Model::Mlp),
];
const RECIPES: [(&str, Recipe); 2] = [("digits", Recipe::Digits), ("chars", Recipe::Chars)];

/// The entry called `name`, or an error that lists all.
fn named<T: Copy>(what: &str, name: &str, all: &[(&str, T)]) -> std::result::Result<T, String> {
    let names: Vec<&str> = all.iter().map(|n| n.0).collect();
    let found = all.iter().find(|n| n.0 == name).map(|n| n.1);
    found.ok_or_else(|| format!("there is no {what} `{name}`; there are {}", names.join(", ")))
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            Some(("model", name)) => Ok(Source::Model(named("model", name, &MODELS)?)),
            Some(("train", name)) => Ok(Source::Train(named("recipe", name, &RECIPES)?)),
            _ => Ok(Source::File(text.into())),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |is: bool, name: &'static str| is.then_some(name);
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Model(m) => write!(f, "model:{}", MODELS.iter().find_map(|n| name(n.1 == *m, n.0)).unwrap_or("?")),
            Source::Train(r) => write!(f, "train:{}", RECIPES.iter().find_map(|n| name(n.1 == *r, n.0)).unwrap_or("?")),
        }
    }
}

/// A graph made ready to run.
pub(crate) struct Traced {
    pub(crate) executable: Arc<Executable>,
    /// Trained numbers; `None` for a file, which does not tell them from other states.
    pub(crate) parameters: Option<usize>,
}

impl Source {
    /// The graph, made ready within the budget. Errors: Io and Format for files; Budget.
    pub(super) fn graph(&self, batch: Option<usize>, budget: MemoryBudget) -> Result<Traced> {
        let whole = match self {
            Source::File(path) => ready(read(path)?, None, None)?,
            Source::Model(model) => model.traced(batch.unwrap_or(1))?,
            Source::Train(Recipe::Digits) => digits::traced(batch)?,
            Source::Train(Recipe::Chars) => chars::traced(batch)?,
        };
        let f = whole.executable.figures();
        let beside = f.state_bytes + f.input_bytes + f.output_bytes;
        match budget.bytes(|| Ok::<_, Error>(beside + f.arena_bytes))? {
            None => Ok(whole),
            Some(bytes) => {
                let limit = bytes.saturating_sub(beside);
                ready(whole.executable.graph().clone(), whole.parameters, Some(limit))
            }
        }
    }
}

fn ready(graph: impl Into<Arc<Graph>>, parameters: Option<usize>, workspace_limit: Option<usize>) -> Result<Traced> {
    let options = ExecutableOptions { workspace_limit, ..ExecutableOptions::default() };
    let executable = Arc::new(Executable::with(graph.into(), threads(), &options)?);
    Ok(Traced { executable, parameters })
}

/// Compute threads, which decide an op's workspace.
pub(super) fn threads() -> usize {
    DeviceOptions::default().threads
}

/// Reads either form.
fn read(path: &Path) -> Result<Graph> {
    let in_file = |e: Error| e.context(path.display());
    let bytes = std::fs::read(path).map_err(|e| in_file(e.into()))?;
    let registry = Registry::builtin();
    if !bytes.starts_with(b"remat.graph") {
        return Graph::from_bytes(&bytes, &registry).map_err(in_file);
    }
    let text = String::from_utf8(bytes).map_err(|e| in_file(Error::new(ErrorKind::Format, e.to_string())))?;
    Graph::parse(&text, &registry).map_err(in_file)
}

const IMAGE: [usize; 3] = [3, 224, 224];
/// Places of the sequence on which the encoder is measured elsewhere.
const BERT_PLACES: usize = 128;
const MLP: [usize; 4] = [784, 512, 512, 10];

impl Model {
    /// The forward pass on a batch, as evaluation runs it.
    fn traced(self, batch: usize) -> Result<Traced> {
        let device = Device::dry(DeviceOptions::default())?;
        let cx = &mut InitCx::new(&device, 1);
        let image = Shape::from([batch, IMAGE[0], IMAGE[1], IMAGE[2]]);
        let (net, shape, dtype): (Box<dyn Layer>, Shape, DType) = match self {
            Model::ResNet18 => (Box::new(ResNet::new(cx, &ResNetConfig::resnet18())?), image, DType::F32),
            Model::ResNet50 => (Box::new(ResNet::new(cx, &ResNetConfig::resnet50())?), image, DType::F32),
            Model::MobileNetV2 => (Box::new(MobileNetV2::new(cx, &MobileNetV2Config::default())?), image, DType::F32),
            Model::Gpt => {
                let config = GptConfig::default();
                (Box::new(Gpt::new(cx, &config)?), [batch, config.sequence].into(), DType::U8)
            }
            Model::Bert => {
                let config = TransformerConfig::default();
                (Box::new(Transformer::new(cx, &config)?), [batch, BERT_PLACES, config.width].into(), DType::F32)
            }
            Model::Mlp => (Box::new(mlp(cx)?), [batch, MLP[0]].into(), DType::F32),
        };
        net.eval();
        let (parameters, x) = (net.parameter_count(), Tensor::zeros(&device, shape, dtype)?);
        let mut f = compile(&device, move |x: &[Tensor]| {
            let _quiet = no_grad();
            Ok(vec![net.forward(&x[0])?])
        });
        Ok(Traced { executable: f.executable(&[&x])?, parameters: Some(parameters) })
    }
}

fn mlp(cx: &mut InitCx) -> Result<Sequential> {
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
    fn sources_read_as_they_print() {
        for text in ["model:resnet18", "model:mlp", "train:chars", "some/file.safetensors"] {
            assert_eq!(text.parse::<Source>().expect("valid").to_string(), text);
        }
        assert!("model:vgg".parse::<Source>().expect_err("none").contains("mobilenetv2"));
        assert!("train:imagenet".parse::<Source>().expect_err("none").contains("digits, chars"));
    }
}
