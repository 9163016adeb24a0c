use remat_nn::{
    AdaptiveAvgPool2d, Conv2dOptions, ConvNorm, Dropout, Extents, Init, InitCx, Label, Layer, Linear, LinearOptions,
    Module, Relu6,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};
use serde::{Deserialize, Serialize};

/// Widens by a 1x1 convolution, filters each channel by itself, and narrows by a 1x1 convolution, each with norm, the
/// first two with relu6 (Sandler et al., CVPR 2018). Adds `x` where extents and channels stay.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct InvertedResidual {
    #[module(flatten)]
    label: Label,
    widen: Option<ConvNorm>,
    filter: ConvNorm,
    narrow: ConvNorm,
    adds: bool,
}

impl InvertedResidual {
    /// From `inputs` to `outputs` channels over `factor inputs` of them; without the first convolution if `factor` is 1.
    /// Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, stride: usize, factor: usize) -> Result<Self> {
        let wide = inputs * factor;
        let each = Conv2dOptions { stride: Extents([stride; 2]), groups: wide, ..ConvNorm::options(3) };
        Ok(InvertedResidual {
            label: Label::of_layer("block"),
            widen: if factor == 1 { None } else { Some(ConvNorm::new(cx, inputs, wide, 1, 1)?) },
            filter: ConvNorm::with(cx, wide, wide, 3, each)?,
            narrow: ConvNorm::new(cx, wide, outputs, 1, 1)?,
            adds: stride == 1 && inputs == outputs,
        })
    }
}

impl Layer for InvertedResidual {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.label.around(x, |x| {
            let wide = match &self.widen {
                Some(widen) => Relu6.forward(&widen.forward(x)?)?,
                None => x.clone(),
            };
            let y = self.narrow.forward(&Relu6.forward(&self.filter.forward(&wide)?)?)?;
            if self.adds { y + x } else { Ok(y) }
        })
    }
}

/// Which [`MobileNetV2`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MobileNetV2Config {
    /// Channels of the input. Default: 3.
    pub channels: usize,
    /// Classes of the output. Default: 1000.
    pub classes: usize,
    /// Probability with which a number before the last layer is dropped in training. Default: 0.2, as in torchvision.
    pub dropout: f64,
}

impl Default for MobileNetV2Config {
    fn default() -> Self {
        MobileNetV2Config { channels: 3, classes: 1000, dropout: 0.2 }
    }
}

/// A row of table 2 of the paper: blocks that follow one another.
struct Stage {
    factor: usize,
    outputs: usize,
    blocks: usize,
    /// Of the first block.
    stride: usize,
}

const fn stage(factor: usize, outputs: usize, blocks: usize, stride: usize) -> Stage {
    Stage { factor, outputs, blocks, stride }
}

const STAGES: [Stage; 7] = [
    stage(1, 16, 1, 1),
    stage(6, 24, 2, 2),
    stage(6, 32, 3, 2),
    stage(6, 64, 4, 2),
    stage(6, 96, 3, 1),
    stage(6, 160, 3, 2),
    stage(6, 320, 1, 1),
];
const STEM_CHANNELS: usize = 32;
const LAST_CHANNELS: usize = 1280;
/// Standard deviation of the last layer's first weights.
const HEAD_STD: f64 = 0.01;

/// MobileNetV2 at width 1 (Sandler et al., CVPR 2018): `[n, channels, h, w]` to logits `[n, classes]`; for ImageNet
/// 3,504,872 parameters and 0.30 G multiply-adds at 224 x 224.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct MobileNetV2 {
    stem: ConvNorm,
    blocks: Vec<InvertedResidual>,
    last: ConvNorm,
    dropout: Dropout,
    head: Linear,
}

impl MobileNetV2 {
    /// A network with scopes named `mobilenet`. Errors: Value for a dropout outside 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &MobileNetV2Config) -> Result<Self> {
        let stem = ConvNorm::new(cx, config.channels, STEM_CHANNELS, 3, 2)?;
        let (mut inputs, mut blocks) = (STEM_CHANNELS, Vec::new());
        for s in STAGES {
            for i in 0..s.blocks {
                let stride = if i == 0 { s.stride } else { 1 };
                blocks.push(InvertedResidual::new(cx, inputs, s.outputs, stride, s.factor)?);
                inputs = s.outputs;
            }
        }
        let last = ConvNorm::new(cx, inputs, LAST_CHANNELS, 1, 1)?;
        let options = LinearOptions {
            weight_init: Init::Normal { mean: 0.0, std: HEAD_STD },
            bias_init: Some(Init::Zeros),
            ..LinearOptions::default()
        };
        let dropout = Dropout::new(config.dropout, &mut cx.rng)?;
        let head = Linear::with(cx, LAST_CHANNELS, config.classes, options)?;
        let net = MobileNetV2 { stem, blocks, last, dropout, head };
        net.name_scopes("mobilenet");
        Ok(net)
    }
}

impl Layer for MobileNetV2 {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let mut y = Relu6.forward(&self.stem.forward(x)?)?;
        for block in &self.blocks {
            y = block.forward(&y)?;
        }
        let y = Relu6.forward(&self.last.forward(&y)?)?;
        let y = AdaptiveAvgPool2d::new(1).forward(&y)?.flatten_from(1)?;
        self.head.forward(&self.dropout.forward(&y)?)
    }
}
