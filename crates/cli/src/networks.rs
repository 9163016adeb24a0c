//! The networks of `nn::models` under the names that commands take, with an input of the size that they are measured on.

use std::fmt;
use std::str::FromStr;

use remat::nn::models::{
    Gpt, GptConfig, MobileNetV2, MobileNetV2Config, ResNet, ResNetConfig, Transformer, TransformerConfig,
};
use remat::nn::{InitCx, Layer, Linear, Relu, Sequential};
use remat::tensor::Tensor;
use remat::types::{DType, Result};

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

const MODELS: [(&str, Model); 7] = [
    ("resnet18", Model::ResNet18),
    ("resnet50", Model::ResNet50),
    ("mobilenetv2", Model::MobileNetV2),
    ("gpt", Model::Gpt),
    ("bert", Model::Bert),
    // the name by which benchmarks elsewhere call the encoder of six layers
    ("bert6", Model::Bert),
    ("mlp", Model::Mlp),
];

/// The entry called `name`, or an error that lists all.
pub(crate) fn named<T: Copy>(what: &str, name: &str, all: &[(&str, T)]) -> std::result::Result<T, String> {
    let names: Vec<&str> = all.iter().map(|n| n.0).collect();
    let found = all.iter().find(|n| n.0 == name).map(|n| n.1);
    found.ok_or_else(|| format!("there is no {what} `{name}`; there are {}", names.join(", ")))
}

impl FromStr for Model {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        named("model", name, &MODELS)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MODELS.iter().find(|n| n.1 == *self).map_or("?", |n| n.0))
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
