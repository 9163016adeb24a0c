use remat_nn::{
    BatchNormOptions, Conv2dOptions, ConvNorm, Dropout, Extents, Init, InitCx, Layer, Linear, LinearOptions, Module,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};
use serde::{Deserialize, Serialize};

use super::mb_conv::{BlockActivation, MbConv, MbConvOptions, rounded};
use super::{pooled, run};

/// Which [`EfficientNet`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EfficientNetConfig {
    /// Factor of the channels.
    pub width: f64,
    /// Factor of the numbers of blocks.
    pub depth: f64,
    /// Probability with which a number before the last layer is dropped in training.
    pub dropout: f64,
    /// Probability with which an image skips the last block in training; earlier ones are skipped less.
    pub drop_path: f64,
    /// Of the normalisations: the term added to the variance, and the weight of a batch in the running statistics.
    pub eps: f64,
    /// See there.
    pub momentum: f64,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
}

/// Factors of width and depth, and the dropout, of B0 to B7.
const SIZES: [(f64, f64, f64); 8] = [
    (1.0, 1.0, 0.2),
    (1.0, 1.1, 0.2),
    (1.1, 1.2, 0.3),
    (1.2, 1.4, 0.3),
    (1.4, 1.8, 0.4),
    (1.6, 2.2, 0.4),
    (1.8, 2.6, 0.5),
    (2.0, 3.1, 0.5),
];
/// The first size that was trained with slower statistics.
const SLOW_STATISTICS: usize = 5;

impl EfficientNetConfig {
    /// EfficientNet-B0: 5,288,548 parameters, 0.39 G multiply-adds at 224 x 224.
    pub fn b0() -> Self {
        EfficientNetConfig {
            width: 1.0,
            depth: 1.0,
            dropout: 0.2,
            drop_path: 0.2,
            eps: 1e-5,
            momentum: 0.1,
            channels: 3,
            classes: 1000,
        }
    }

    /// B0 to B7, as torchvision has them. Errors: Value for another size.
    ///
    /// ```
    /// use remat_zoo::models::EfficientNetConfig;
    /// # fn main() -> remat_types::Result<()> {
    /// assert_eq!(EfficientNetConfig::b(0)?, EfficientNetConfig::b0());
    /// assert_eq!(EfficientNetConfig::b(4)?.width, 1.4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn b(size: usize) -> Result<Self> {
        let Some(&(width, depth, dropout)) = SIZES.get(size) else {
            let text = format!("there is no EfficientNet-B{size}, but B0 to B7");
            return Err(Error::new(ErrorKind::Value, text));
        };
        let (eps, momentum) = if size < SLOW_STATISTICS { (1e-5, 0.1) } else { (1e-3, 0.01) };
        Ok(EfficientNetConfig { width, depth, dropout, eps, momentum, ..EfficientNetConfig::b0() })
    }

    fn channels_of(&self, of_b0: usize) -> usize {
        rounded(of_b0 as f64 * self.width)
    }

    /// The rows of table 1 at this size.
    fn stages(&self) -> Vec<Stage> {
        let scaled = |s: &Stage| Stage {
            outputs: self.channels_of(s.outputs),
            blocks: (s.blocks as f64 * self.depth).ceil() as usize,
            ..*s
        };
        STAGES.iter().map(scaled).collect()
    }
}

/// A row of table 1 of the paper.
#[derive(Clone, Copy)]
struct Stage {
    factor: usize,
    kernel: usize,
    /// Of the first block.
    stride: usize,
    outputs: usize,
    blocks: usize,
}

const fn stage(factor: usize, kernel: usize, stride: usize, outputs: usize, blocks: usize) -> Stage {
    Stage { factor, kernel, stride, outputs, blocks }
}

const STAGES: [Stage; 7] = [
    stage(1, 3, 1, 16, 1),
    stage(6, 3, 2, 24, 2),
    stage(6, 5, 2, 40, 2),
    stage(6, 3, 2, 80, 3),
    stage(6, 5, 1, 112, 3),
    stage(6, 5, 2, 192, 4),
    stage(6, 3, 1, 320, 1),
];
const STEM_CHANNELS: usize = 32;
/// Channels of the last convolution for each of the last stage.
const LAST_FACTOR: usize = 4;
/// A gate has an input's channels over this.
const GATE_DIVISOR: usize = 4;

/// EfficientNet (Tan and Le, ICML 2019): `[n, channels, h, w]` to logits `[n, classes]`.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct EfficientNet {
    stem: ConvNorm,
    stages: Vec<Vec<MbConv>>,
    last: ConvNorm,
    dropout: Dropout,
    head: Linear,
}

impl EfficientNet {
    /// A network with scopes named `efficientnet`. Errors: Value for factors that are not positive and finite or probabilities
    /// outside 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &EfficientNetConfig) -> Result<Self> {
        for factor in [config.width, config.depth] {
            if !(factor > 0.0 && factor <= MOST) {
                let text = format!("a factor of width or depth is {factor}, must be above 0 and at most {MOST}");
                return Err(Error::new(ErrorKind::Value, text).with_op("efficientnet"));
            }
        }
        let norm = BatchNormOptions { eps: config.eps, momentum: config.momentum, ..BatchNormOptions::default() };
        let halved = Conv2dOptions { stride: Extents([2; 2]), ..ConvNorm::options(3) };
        let (rows, mut inputs) = (config.stages(), config.channels_of(STEM_CHANNELS));
        let stem = ConvNorm::normed(cx, config.channels, inputs, 3, halved, norm)?;
        let (count, mut before) = (rows.iter().map(|s| s.blocks).sum::<usize>(), 0);
        let mut stages = Vec::new();
        for s in rows {
            let mut blocks = Vec::new();
            for i in 0..s.blocks {
                let options = MbConvOptions {
                    inputs,
                    wide: rounded((inputs * s.factor) as f64),
                    outputs: s.outputs,
                    kernel: s.kernel,
                    stride: if i == 0 { s.stride } else { 1 },
                    gate: Some((inputs / GATE_DIVISOR).max(1)),
                    activation: BlockActivation::Silu,
                    has_hard_gate: false,
                    norm,
                    drop_path: config.drop_path * before as f64 / count as f64,
                };
                blocks.push(MbConv::new(cx, options)?);
                (inputs, before) = (s.outputs, before + 1);
            }
            stages.push(blocks);
        }
        let wide = LAST_FACTOR * inputs;
        let bound = (config.classes.max(1) as f64).sqrt().recip();
        let options = LinearOptions {
            weight_init: Init::Uniform { lo: -bound, hi: bound },
            bias_init: Some(Init::Zeros),
            ..LinearOptions::default()
        };
        let net = EfficientNet {
            stem,
            stages,
            last: ConvNorm::normed(cx, inputs, wide, 1, ConvNorm::options(1), norm)?,
            dropout: Dropout::new(config.dropout, &mut cx.rng)?,
            head: Linear::with(cx, wide, config.classes, options)?,
        };
        net.name_scopes("efficientnet");
        Ok(net)
    }
}

/// Largest factor: sizes stay addressable.
const MOST: f64 = 64.0;

impl Layer for EfficientNet {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let y = run(self.stages.iter().flatten(), self.stem.forward(x)?.silu()?)?;
        let y = pooled(&self.last.forward(&y)?.silu()?)?;
        self.head.forward(&self.dropout.forward(&y)?)
    }
}
