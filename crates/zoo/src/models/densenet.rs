use remat_nn::{
    AvgPool2d, BatchNorm2d, Conv2d, Conv2dOptions, ConvNorm, Fan, Gain, Init, InitCx, Label, Layer, Linear, MaxPool2d,
    Module,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};
use serde::{Deserialize, Serialize};

use super::pooled;

/// Which [`DenseNet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenseNetConfig {
    /// Layers of each block.
    pub blocks: Vec<usize>,
    /// Channels that a layer adds.
    pub growth: usize,
    /// Channels of the stem.
    pub width: usize,
    /// Channels between a layer's convolutions, for each that it adds.
    pub factor: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
}

impl DenseNetConfig {
    fn of(blocks: [usize; 4]) -> Self {
        DenseNetConfig { blocks: blocks.to_vec(), growth: 32, width: 64, factor: 4, channels: 3, classes: 1000 }
    }

    /// DenseNet-121: 7,978,856 parameters, 2.8 G multiply-adds at 224 x 224.
    pub fn densenet121() -> Self {
        DenseNetConfig::of([6, 12, 24, 16])
    }

    /// DenseNet-161: 28,681,000 parameters, 7.7 G multiply-adds at 224 x 224.
    pub fn densenet161() -> Self {
        DenseNetConfig { growth: 48, width: 96, ..DenseNetConfig::of([6, 12, 36, 24]) }
    }

    /// DenseNet-169: 14,149,480 parameters, 3.4 G multiply-adds at 224 x 224.
    pub fn densenet169() -> Self {
        DenseNetConfig::of([6, 12, 32, 32])
    }

    /// DenseNet-201: 20,013,928 parameters, 4.3 G multiply-adds at 224 x 224.
    pub fn densenet201() -> Self {
        DenseNetConfig::of([6, 12, 48, 32])
    }
}

fn conv(cx: &mut InitCx, inputs: usize, outputs: usize, kernel: usize) -> Result<Conv2d> {
    let weight_init = Init::KaimingNormal(Gain::Relu, Fan::In);
    Conv2d::with(cx, inputs, outputs, kernel, Conv2dOptions { bias: false, weight_init, ..ConvNorm::options(kernel) })
}

/// Makes new channels of all before: a 1x1 and a 3x3 convolution, norm and relu before each.
#[derive(Module)]
#[module(crate = remat_nn)]
struct DenseLayer {
    #[module(flatten)]
    label: Label,
    norm1: BatchNorm2d,
    conv1: Conv2d,
    norm2: BatchNorm2d,
    conv2: Conv2d,
}

impl DenseLayer {
    fn new(cx: &mut InitCx, inputs: usize, config: &DenseNetConfig) -> Result<Self> {
        let inner = config.factor * config.growth;
        Ok(DenseLayer {
            label: Label::of_layer("layer"),
            norm1: BatchNorm2d::new(cx, inputs)?,
            conv1: conv(cx, inputs, inner, 1)?,
            norm2: BatchNorm2d::new(cx, inner)?,
            conv2: conv(cx, inner, config.growth, 3)?,
        })
    }

    /// `x` and the new channels behind it.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.label.around(x, |x| {
            let y = self.conv1.forward(&self.norm1.forward(x)?.relu()?)?;
            let y = self.conv2.forward(&self.norm2.forward(&y)?.relu()?)?;
            Tensor::concat(&[x, &y], 1)
        })
    }
}

/// Halves channels and extents.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Transition {
    norm: BatchNorm2d,
    conv: Conv2d,
}

/// DenseNet (Huang et al., CVPR 2017): `[n, channels, h, w]` to logits `[n, classes]`; each layer of a block sees the channels
/// of all before it.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct DenseNet {
    stem: ConvNorm,
    blocks: Vec<Vec<DenseLayer>>,
    transitions: Vec<Transition>,
    norm: BatchNorm2d,
    head: Linear,
}

impl DenseNet {
    /// A network with scopes named `densenet`. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &DenseNetConfig) -> Result<Self> {
        let stem = ConvNorm::new(cx, config.channels, config.width, 7, 2)?;
        let (mut width, mut blocks, mut transitions) = (config.width, Vec::new(), Vec::new());
        for (i, &count) in config.blocks.iter().enumerate() {
            if i > 0 {
                let (norm, half) = (BatchNorm2d::new(cx, width)?, width / 2);
                transitions.push(Transition { norm, conv: conv(cx, width, half, 1)? });
                width = half;
            }
            let layers = (0..count).map(|j| DenseLayer::new(cx, width + j * config.growth, config));
            blocks.push(layers.collect::<Result<Vec<_>>>()?);
            width += count * config.growth;
        }
        let (norm, head) = (BatchNorm2d::new(cx, width)?, Linear::new(cx, width, config.classes)?);
        let net = DenseNet { stem, blocks, transitions, norm, head };
        net.name_scopes("densenet");
        Ok(net)
    }
}

impl Layer for DenseNet {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let mut y = MaxPool2d::with(3, 2, 1).forward(&self.stem.forward(x)?.relu()?)?;
        for (i, block) in self.blocks.iter().enumerate() {
            if let Some(t) = i.checked_sub(1).map(|i| &self.transitions[i]) {
                y = AvgPool2d::new(2).forward(&t.conv.forward(&t.norm.forward(&y)?.relu()?)?)?;
            }
            for layer in block {
                y = layer.forward(&y)?;
            }
        }
        self.head.forward(&pooled(&self.norm.forward(&y)?.relu()?)?)
    }
}
