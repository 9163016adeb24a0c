//! The network: a small residual CNN whose activations are most of its memory.

use remat::nn::{
    AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Conv2dOptions, Fan, Gain, Init, InitCx, Layer, Linear, Module, Pair,
};
use remat::tensor::Tensor;
use remat::types::Result;

/// Channels and stride of each residual block.
const BLOCKS: &[(usize, usize)] = &[(16, 1), (16, 1), (16, 1), (16, 1), (16, 1), (32, 2), (32, 1)];
const STEM_CHANNELS: usize = 16;
const CLASSES: usize = 10;

/// Convolution without bias and batch norm.
#[derive(Module)]
#[module(crate = remat::nn)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm2d,
}

impl ConvNorm {
    fn new(cx: &mut InitCx, inputs: usize, outputs: usize, kernel: usize, stride: usize) -> Result<Self> {
        let options = Conv2dOptions {
            stride: Pair([stride; 2]),
            padding: Pair([kernel / 2; 2]),
            bias: false,
            weight_init: Init::KaimingNormal(Gain::Relu, Fan::Out),
            ..Conv2dOptions::default()
        };
        Ok(ConvNorm { conv: Conv2d::with(cx, inputs, outputs, kernel, options)?, norm: BatchNorm2d::new(cx, outputs)? })
    }
}

impl Layer for ConvNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.norm.forward(&self.conv.forward(x)?)
    }
}

/// `relu(norm(conv(relu(norm(conv(x))))) + skip(x))` (He et al., CVPR 2016).
#[derive(Module)]
#[module(crate = remat::nn)]
struct Block {
    a: ConvNorm,
    b: ConvNorm,
    skip: Option<ConvNorm>,
}

impl Block {
    fn new(cx: &mut InitCx, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        let reshapes = stride != 1 || inputs != outputs;
        Ok(Block {
            a: ConvNorm::new(cx, inputs, outputs, 3, stride)?,
            b: ConvNorm::new(cx, outputs, outputs, 3, 1)?,
            skip: if reshapes { Some(ConvNorm::new(cx, inputs, outputs, 1, stride)?) } else { None },
        })
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.b.forward(&self.a.forward(x)?.relu()?)?;
        match &self.skip {
            Some(skip) => (&y + &skip.forward(x)?)?.relu(),
            None => (&y + x)?.relu(),
        }
    }
}

/// `[n, 1, 28, 28]` to logits `[n, 10]`.
#[derive(Module)]
#[module(crate = remat::nn)]
pub(crate) struct DigitsNet {
    stem: ConvNorm,
    blocks: Vec<Block>,
    pool: AdaptiveAvgPool2d,
    head: Linear,
}

impl DigitsNet {
    pub(crate) fn new(cx: &mut InitCx) -> Result<Self> {
        let stem = ConvNorm::new(cx, 1, STEM_CHANNELS, 3, 2)?;
        let mut channels = STEM_CHANNELS;
        let mut blocks = Vec::new();
        for &(outputs, stride) in BLOCKS {
            blocks.push(Block::new(cx, channels, outputs, stride)?);
            channels = outputs;
        }
        let net =
            DigitsNet { stem, blocks, pool: AdaptiveAvgPool2d::new(1), head: Linear::new(cx, channels, CLASSES)? };
        net.name_scopes("net");
        Ok(net)
    }
}

impl Layer for DigitsNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = self.stem.forward(x)?.relu()?;
        for block in &self.blocks {
            y = block.forward(&y)?;
        }
        self.head.forward(&self.pool.forward(&y)?.flatten_from(1)?)
    }
}
