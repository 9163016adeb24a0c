//! The network: a small residual CNN whose activations are most of its memory.

use remat::nn::models::BasicBlock;
use remat::nn::{AdaptiveAvgPool2d, ConvNorm, InitCx, Layer, Linear, Module};
use remat::tensor::Tensor;
use remat::types::Result;

/// Channels and stride of each residual block.
const BLOCKS: &[(usize, usize)] = &[(16, 1), (16, 1), (16, 1), (16, 1), (16, 1), (32, 2), (32, 1)];
const STEM_CHANNELS: usize = 16;
const CLASSES: usize = 10;

/// `[n, 1, 28, 28]` to logits `[n, 10]`.
#[derive(Module)]
#[module(crate = remat::nn)]
pub(crate) struct DigitsNet {
    stem: ConvNorm,
    blocks: Vec<BasicBlock>,
    pool: AdaptiveAvgPool2d,
    head: Linear,
}

impl DigitsNet {
    pub(crate) fn new(cx: &mut InitCx) -> Result<Self> {
        let stem = ConvNorm::new(cx, 1, STEM_CHANNELS, 3, 2)?;
        let mut channels = STEM_CHANNELS;
        let mut blocks = Vec::new();
        for &(outputs, stride) in BLOCKS {
            blocks.push(BasicBlock::new(cx, channels, outputs, stride)?);
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
