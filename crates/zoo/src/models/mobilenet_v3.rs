use remat_nn::{
    BatchNormOptions, Conv2dOptions, ConvNorm, Dropout, Extents, Init, InitCx, Layer, Linear, LinearOptions, Module,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};
use serde::{Deserialize, Serialize};

use super::mb_conv::{BlockActivation, MbConv, MbConvOptions, rounded};
use super::pooled;

/// A block of a [`MobileNetV3`]: a row of table 1 or 2 of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MobileNetV3Block {
    /// Taps of the filter.
    pub kernel: usize,
    /// Channels between the 1x1 convolutions.
    pub wide: usize,
    /// Channels of the output.
    pub outputs: usize,
    /// There is a gate of channels.
    pub has_gate: bool,
    /// The hard swish, not the relu.
    pub has_hardswish: bool,
    /// Of the filter.
    pub stride: usize,
}

/// Which [`MobileNetV3`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MobileNetV3Config {
    /// The blocks.
    pub blocks: Vec<MobileNetV3Block>,
    /// Numbers of the layer before the last.
    pub hidden: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
    /// Probability with which a number before the last layer is dropped in training.
    pub dropout: f64,
}

const RELU: bool = false;
const HSWISH: bool = true;
const GATE: bool = true;
const NONE: bool = false;

const fn block(
    kernel: usize,
    wide: usize,
    outputs: usize,
    has_gate: bool,
    has_hardswish: bool,
    stride: usize,
) -> MobileNetV3Block {
    MobileNetV3Block { kernel, wide, outputs, has_gate, has_hardswish, stride }
}

const LARGE: [MobileNetV3Block; 15] = [
    block(3, 16, 16, NONE, RELU, 1),
    block(3, 64, 24, NONE, RELU, 2),
    block(3, 72, 24, NONE, RELU, 1),
    block(5, 72, 40, GATE, RELU, 2),
    block(5, 120, 40, GATE, RELU, 1),
    block(5, 120, 40, GATE, RELU, 1),
    block(3, 240, 80, NONE, HSWISH, 2),
    block(3, 200, 80, NONE, HSWISH, 1),
    block(3, 184, 80, NONE, HSWISH, 1),
    block(3, 184, 80, NONE, HSWISH, 1),
    block(3, 480, 112, GATE, HSWISH, 1),
    block(3, 672, 112, GATE, HSWISH, 1),
    block(5, 672, 160, GATE, HSWISH, 2),
    block(5, 960, 160, GATE, HSWISH, 1),
    block(5, 960, 160, GATE, HSWISH, 1),
];
const SMALL: [MobileNetV3Block; 11] = [
    block(3, 16, 16, GATE, RELU, 2),
    block(3, 72, 24, NONE, RELU, 2),
    block(3, 88, 24, NONE, RELU, 1),
    block(5, 96, 40, GATE, HSWISH, 2),
    block(5, 240, 40, GATE, HSWISH, 1),
    block(5, 240, 40, GATE, HSWISH, 1),
    block(5, 120, 48, GATE, HSWISH, 1),
    block(5, 144, 48, GATE, HSWISH, 1),
    block(5, 288, 96, GATE, HSWISH, 2),
    block(5, 576, 96, GATE, HSWISH, 1),
    block(5, 576, 96, GATE, HSWISH, 1),
];

impl MobileNetV3Config {
    /// MobileNetV3-Large: 5,483,032 parameters, 0.22 G multiply-adds at 224 x 224.
    pub fn large() -> Self {
        MobileNetV3Config { blocks: LARGE.to_vec(), hidden: 1280, channels: 3, classes: 1000, dropout: 0.2 }
    }

    /// MobileNetV3-Small: 2,542,856 parameters, 0.06 G multiply-adds at 224 x 224.
    pub fn small() -> Self {
        MobileNetV3Config { blocks: SMALL.to_vec(), hidden: 1024, ..MobileNetV3Config::large() }
    }
}

const STEM_CHANNELS: usize = 16;
/// Channels of the last convolution for each of the last block.
const LAST_FACTOR: usize = 6;
const HEAD_STD: f64 = 0.01;

/// MobileNetV3 (Howard et al., ICCV 2019): `[n, channels, h, w]` to logits `[n, classes]`.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct MobileNetV3 {
    stem: ConvNorm,
    blocks: Vec<MbConv>,
    last: ConvNorm,
    hidden: Linear,
    dropout: Dropout,
    head: Linear,
}

impl MobileNetV3 {
    /// A network with scopes named `mobilenet`. Errors: Value for a dropout outside 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &MobileNetV3Config) -> Result<Self> {
        let norm = BatchNormOptions { eps: 1e-3, momentum: 0.01, ..BatchNormOptions::default() };
        let halved = Conv2dOptions { stride: Extents([2; 2]), ..ConvNorm::options(3) };
        let stem = ConvNorm::normed(cx, config.channels, STEM_CHANNELS, 3, halved, norm)?;
        let (mut inputs, mut blocks) = (STEM_CHANNELS, Vec::new());
        for b in &config.blocks {
            let activation = if b.has_hardswish { BlockActivation::Hardswish } else { BlockActivation::Relu };
            blocks.push(MbConv::new(
                cx,
                MbConvOptions {
                    inputs,
                    wide: b.wide,
                    outputs: b.outputs,
                    kernel: b.kernel,
                    stride: b.stride,
                    gate: b.has_gate.then(|| rounded((b.wide / 4) as f64)),
                    activation,
                    has_hard_gate: true,
                    norm,
                    drop_path: 0.0,
                },
            )?);
            inputs = b.outputs;
        }
        let wide = LAST_FACTOR * inputs;
        let options = LinearOptions {
            weight_init: Init::Normal { mean: 0.0, std: HEAD_STD },
            bias_init: Some(Init::Zeros),
            ..LinearOptions::default()
        };
        let net = MobileNetV3 {
            stem,
            blocks,
            last: ConvNorm::normed(cx, inputs, wide, 1, ConvNorm::options(1), norm)?,
            hidden: Linear::with(cx, wide, config.hidden, options)?,
            dropout: Dropout::new(config.dropout, &mut cx.rng)?,
            head: Linear::with(cx, config.hidden, config.classes, options)?,
        };
        net.name_scopes("mobilenet");
        Ok(net)
    }
}

impl Layer for MobileNetV3 {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let mut y = self.stem.forward(x)?.hswish()?;
        for block in &self.blocks {
            y = block.forward(&y)?;
        }
        let y = pooled(&self.last.forward(&y)?.hswish()?)?;
        self.head.forward(&self.dropout.forward(&self.hidden.forward(&y)?.hswish()?)?)
    }
}
