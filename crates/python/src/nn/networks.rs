//! Ready-made networks by kind. Each is made from a config of the library, whose fields Python may have changed.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use remat::nn::models::{
    Bert, BertConfig, BertInput, ConvNeXt, ConvNeXtConfig, DenseNet, DenseNetConfig, DiffusionConfig, DiffusionUNet,
    EfficientNet, EfficientNetConfig, Gpt, GptConfig, Llama, LlamaConfig, LstmLm, LstmLmConfig, MobileNetV2,
    MobileNetV2Config, MobileNetV3, MobileNetV3Config, ResNet, ResNetConfig, ShuffleNetV2, ShuffleNetV2Config,
    Transformer, TransformerConfig, UNet, UNetConfig, Vae, VaeConfig, Vgg, VggConfig, Vit, VitConfig,
};
use remat::nn::{InitCx, KvCache, Layer};
use remat::{Result, Tensor};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::compiled::Built;
use super::layers::{Make, Prepared};
use super::multi_input::{Cached, CallOptions, Inputs, MultiInput, both, calls};
use super::wrong_option;
use crate::value;

/// A kind of networks.
struct Kind {
    name: &'static str,
    configs: fn() -> PyResult<Map<String, Value>>,
    prepare: fn(Value) -> serde_json::Result<(Value, Make)>,
}

/// A kind: its name, its config, the function that makes the network, and the published configs by name.
macro_rules! kind {
    ($name:literal, $config:ty, $make:expr, $($of:literal: $value:expr),+) => {
        Kind {
            name: $name,
            configs: || Ok(Map::from_iter([$(named::<$config>($of, $value)?),+])),
            prepare: |given| prepare::<$config>(given, $make),
        }
    };
}

static KINDS: [Kind; 17] = [
    kind!("resnet", ResNetConfig, |cx, c| one(ResNet::new(cx, c)),
        "resnet18": ResNetConfig::resnet18(), "resnet34": ResNetConfig::resnet34(), "resnet50": ResNetConfig::resnet50(),
        "resnet101": ResNetConfig::resnet101(), "resnet152": ResNetConfig::resnet152(),
        "resnext50_32x4d": ResNetConfig::resnext50_32x4d(), "resnext101_32x8d": ResNetConfig::resnext101_32x8d(),
        "wide_resnet50_2": ResNetConfig::wide_resnet50_2(), "wide_resnet101_2": ResNetConfig::wide_resnet101_2()),
    kind!("vgg", VggConfig, |cx, c| one(Vgg::new(cx, c)),
        "vgg11": VggConfig::vgg11(), "vgg13": VggConfig::vgg13(), "vgg16": VggConfig::vgg16(), "vgg19": VggConfig::vgg19()),
    kind!("mobilenet_v2", MobileNetV2Config, |cx, c| one(MobileNetV2::new(cx, c)),
        "mobilenet_v2": MobileNetV2Config::default()),
    kind!("mobilenet_v3", MobileNetV3Config, |cx, c| one(MobileNetV3::new(cx, c)),
        "mobilenet_v3_small": MobileNetV3Config::small(), "mobilenet_v3_large": MobileNetV3Config::large()),
    kind!("efficientnet", EfficientNetConfig, |cx, c| one(EfficientNet::new(cx, c)),
        "efficientnet_b0": EfficientNetConfig::b0(), "efficientnet_b1": efficientnet(1)?, "efficientnet_b2": efficientnet(2)?,
        "efficientnet_b3": efficientnet(3)?, "efficientnet_b4": efficientnet(4)?, "efficientnet_b5": efficientnet(5)?,
        "efficientnet_b6": efficientnet(6)?, "efficientnet_b7": efficientnet(7)?),
    kind!("convnext", ConvNeXtConfig, |cx, c| one(ConvNeXt::new(cx, c)),
        "convnext_tiny": ConvNeXtConfig::tiny(), "convnext_small": ConvNeXtConfig::small(),
        "convnext_base": ConvNeXtConfig::base(), "convnext_large": ConvNeXtConfig::large()),
    kind!("densenet", DenseNetConfig, |cx, c| one(DenseNet::new(cx, c)),
        "densenet121": DenseNetConfig::densenet121(), "densenet161": DenseNetConfig::densenet161(),
        "densenet169": DenseNetConfig::densenet169(), "densenet201": DenseNetConfig::densenet201()),
    kind!("shufflenet_v2", ShuffleNetV2Config, |cx, c| one(ShuffleNetV2::new(cx, c)),
        "shufflenet_v2_x0_5": ShuffleNetV2Config::x0_5(), "shufflenet_v2_x1_0": ShuffleNetV2Config::x1_0(),
        "shufflenet_v2_x1_5": ShuffleNetV2Config::x1_5(), "shufflenet_v2_x2_0": ShuffleNetV2Config::x2_0()),
    kind!("vit", VitConfig, |cx, c| one(Vit::new(cx, c)),
        "vit_tiny_16": VitConfig::tiny16(), "vit_small_16": VitConfig::small16(), "vit_b_16": VitConfig::base16(),
        "vit_b_32": VitConfig::base32(), "vit_l_16": VitConfig::large16()),
    kind!("unet", UNetConfig, |cx, c| one(UNet::new(cx, c)), "unet": UNetConfig::default()),
    kind!("transformer", TransformerConfig, |cx, c| one(Transformer::new(cx, c)),
        "transformer": TransformerConfig::default()),
    kind!("vae", VaeConfig, |cx, c| multi_input(Vae::new(cx, c)), "vae": VaeConfig::default()),
    kind!("diffusion", DiffusionConfig, |cx, c| multi_input(DiffusionUNet::new(cx, c)),
        "ddpm_small": DiffusionConfig::small(), "ddpm_cifar10": DiffusionConfig::cifar10()),
    kind!("lstm_lm", LstmLmConfig, |cx, c| multi_input(LstmLm::new(cx, c)),
        "lstm_small": LstmLmConfig::small(), "lstm_medium": LstmLmConfig::medium(), "lstm_large": LstmLmConfig::large()),
    kind!("bert", BertConfig, |cx, c| multi_input(Bert::new(cx, c)),
        "bert_base": BertConfig::base(), "bert_large": BertConfig::large()),
    kind!("gpt", GptConfig, |cx, c| multi_input(Gpt::new(cx, c)), "gpt": GptConfig::default()),
    kind!("llama", LlamaConfig, |cx, c| multi_input(Llama::new(cx, c)),
        "llama_tiny_1b": LlamaConfig::tiny_1b(), "llama2_7b": LlamaConfig::llama2_7b(), "llama3_8b": LlamaConfig::llama3_8b()),
];

/// The config of a size. Errors: ValueError for an unknown size.
fn efficientnet(size: usize) -> PyResult<EfficientNetConfig> {
    EfficientNetConfig::b(size).map_err(|e| PyValueError::new_err(e.to_string()))
}

fn named<C: Serialize>(name: &str, config: C) -> PyResult<(String, Value)> {
    Ok((name.to_owned(), serde_json::to_value(config).map_err(value::wrong_form)?))
}

fn prepare<C: Serialize + DeserializeOwned + Send + 'static>(
    given: Value,
    make: impl FnOnce(&mut InitCx, &C) -> Result<Built> + Send + 'static,
) -> serde_json::Result<(Value, Make)> {
    let config: C = serde_json::from_value(given)?;
    Ok((serde_json::to_value(&config)?, Box::new(move |cx| make(cx, &config))))
}

fn one(net: Result<impl Layer + 'static>) -> Result<Built> {
    net.map(Built::one)
}

fn multi_input(net: Result<impl MultiInput + 'static>) -> Result<Built> {
    net.map(Built::multi_input)
}

/// Reads a config; `None` for a kind that is no network. Errors: TypeError, ValueError for an invalid config.
pub(super) fn make(kind: &str, given: Map<String, Value>) -> PyResult<Option<Prepared>> {
    let Some(kind) = KINDS.iter().find(|k| k.name == kind) else { return Ok(None) };
    let (config, make) = (kind.prepare)(Value::Object(given.clone())).map_err(|e| wrong_field(kind, &given, &e))?;
    let config: Map<String, Value> = serde_json::from_value(config).map_err(value::wrong_form)?;
    Ok(Some((config.into_iter().collect(), make)))
}

/// The error that names the wrong field of a config. It is the field that makes a published config unreadable.
fn wrong_field(kind: &Kind, given: &Map<String, Value>, e: &serde_json::Error) -> PyErr {
    let published = (kind.configs)().ok().and_then(|all| all.into_iter().next());
    let is_wrong = |name: &str, v: &Value| match published.clone() {
        Some((_, Value::Object(mut config))) => {
            config.insert(name.to_owned(), v.clone());
            (kind.prepare)(Value::Object(config)).is_err()
        }
        _ => false,
    };
    let wrong = given.iter().find(|(name, v)| is_wrong(name, v));
    wrong_option(wrong.map(|(name, _)| name.as_str()), &e.to_string())
}

/// The published configs of a kind of networks, by name. Errors: TypeError for an unknown kind.
#[pyfunction]
pub(crate) fn network_configs(py: Python<'_>, kind: &str) -> PyResult<Py<PyAny>> {
    let kind = KINDS.iter().find(|k| k.name == kind).ok_or_else(|| super::no_such("network", kind))?;
    value::to_python(py, &Value::Object((kind.configs)()?))
}

calls! {
    // one of three: the loss of examples; mean and log-variance of their codes; the logits for codes
    Vae: |net, x, _| match (x.opt(0), x.opt(1)) {
        (Some(x), _) => vec![net.loss(x)?],
        (None, Some(x)) => net.encode(x)?.into(),
        (None, None) => vec![net.decode(x.get(2)?)?],
    };
    DiffusionUNet: |net, x, _| vec![net.forward(x.get(0)?, x.get(1)?)?];
    LstmLm: |net, x, _| {
        let state = both(x)?.map(|state| state.map(Tensor::clone));
        net.forward_with(x.get(0)?, state.as_ref()).map(|(y, [h, c])| vec![y, h, c])?
    };
    // the output for tokens, with segment kinds and padding; or the vector for a whole text from an output
    Bert: |net, x, _| vec![match x.opt(3) {
        Some(y) => net.pooled(y)?,
        None => net.forward_with(x.get(0)?, BertInput { kinds: x.opt(1), mask: x.opt(2) })?,
    }];
    Gpt: |net, x, _| vec![net.forward(x.get(0)?)?], as_cached;
    Llama: |net, x, _| vec![net.forward(x.get(0)?)?], as_cached;
}

impl Cached for Gpt {
    /// Each position has a parameter, so the number of positions is fixed, and `places` is ignored.
    fn caches(&self, n: usize, _: usize) -> Result<Vec<KvCache>> {
        self.caches(n)
    }

    fn forward_cached(&self, tokens: &Tensor, caches: &[KvCache]) -> Result<Tensor> {
        self.forward_cached(tokens, caches)
    }
}

impl Cached for Llama {
    fn caches(&self, n: usize, places: usize) -> Result<Vec<KvCache>> {
        self.caches(n, places)
    }

    fn forward_cached(&self, tokens: &Tensor, caches: &[KvCache]) -> Result<Tensor> {
        self.forward_cached(tokens, caches)
    }
}
