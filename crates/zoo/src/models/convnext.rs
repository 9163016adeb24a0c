use remat_nn::{
    Conv2d, Conv2dOptions, DropPath, Extents, Init, InitCx, Label, Layer, LayerNorm, Linear, LinearOptions, Module,
    Parameter,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Padding, Result, Scope};
use serde::{Deserialize, Serialize};

use super::mb_conv::{drop_path, skipped};
use super::{pooled, run};

/// Which [`ConvNeXt`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvNeXtConfig {
    /// Channels and blocks of each stage; every stage after the first begins by halving the extents.
    pub stages: Vec<(usize, usize)>,
    /// Probability with which an image skips the last block in training; earlier ones are skipped less.
    pub drop_path: f64,
    /// The initial factors of the term that a block adds.
    pub scale: f64,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
}

impl ConvNeXtConfig {
    fn of(width: usize, blocks: [usize; 4], drop_path: f64) -> Self {
        let stages = blocks.iter().enumerate().map(|(i, &n)| (width << i, n)).collect();
        ConvNeXtConfig { stages, drop_path, scale: 1e-6, channels: 3, classes: 1000 }
    }

    /// ConvNeXt-T: 28,589,128 parameters, 4.5 G multiply-adds at 224 x 224.
    pub fn tiny() -> Self {
        ConvNeXtConfig::of(96, [3, 3, 9, 3], 0.1)
    }

    /// ConvNeXt-S: 50,223,688 parameters, 8.7 G multiply-adds at 224 x 224.
    pub fn small() -> Self {
        ConvNeXtConfig::of(96, [3, 3, 27, 3], 0.4)
    }

    /// ConvNeXt-B: 88,591,464 parameters, 15.4 G multiply-adds at 224 x 224.
    pub fn base() -> Self {
        ConvNeXtConfig::of(128, [3, 3, 27, 3], 0.5)
    }

    /// ConvNeXt-L: 197,767,336 parameters, 34.4 G multiply-adds at 224 x 224.
    pub fn large() -> Self {
        ConvNeXtConfig::of(192, [3, 3, 27, 3], 0.5)
    }
}

const EPS: f64 = 1e-6;
const STD: f64 = 0.02;

/// Normal, cut at two deviations of the usual range, as the authors have it.
const WEIGHT: Init = Init::TruncatedNormal { mean: 0.0, std: STD, lo: -2.0, hi: 2.0 };

fn linear(cx: &mut InitCx, inputs: usize, outputs: usize) -> Result<Linear> {
    let options = LinearOptions { weight_init: WEIGHT, bias_init: Some(Init::Zeros), ..LinearOptions::default() };
    Linear::with(cx, inputs, outputs, options)
}

/// A layer norm over the channels of `[n, c, h, w]`.
fn norm_channels(norm: &LayerNorm, x: &Tensor) -> Result<Tensor> {
    norm.forward(&x.permute(&[0, 2, 3, 1])?)?.permute(&[0, 3, 1, 2])
}

/// `x + scale down(gelu(up(norm(filter(x)))))`, where the filter is a 7x7 convolution of each channel by itself, and `up` widens
/// by four; `x: [n, c, h, w]`.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct ConvNeXtBlock {
    #[module(flatten)]
    label: Label,
    filter: Conv2d,
    norm: LayerNorm,
    up: Linear,
    down: Linear,
    scale: Parameter,
    drop_path: Option<DropPath>,
}

impl ConvNeXtBlock {
    /// A block of `width` channels, whose factors begin as `scale`. Errors: Value for a `drop` outside 0 ..= 1; Budget if it does
    /// not fit.
    pub fn new(cx: &mut InitCx, width: usize, scale: f64, drop: f64) -> Result<Self> {
        let taps =
            Conv2dOptions { padding: Padding::from(3), groups: width, weight_init: WEIGHT, ..Conv2dOptions::default() };
        Ok(ConvNeXtBlock {
            label: Label::of_layer("block"),
            filter: Conv2d::with(cx, width, width, 7, taps)?,
            norm: LayerNorm::with(cx, [width], EPS)?,
            up: linear(cx, width, 4 * width)?,
            down: linear(cx, 4 * width, width)?,
            scale: cx.parameter([width], Init::Constant(scale))?,
            drop_path: drop_path(cx, drop)?,
        })
    }
}

impl Layer for ConvNeXtBlock {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.label.around(x, |x| {
            let y = self.norm.forward(&self.filter.forward(x)?.permute(&[0, 2, 3, 1])?)?;
            let y = self.down.forward(&self.up.forward(&y)?.gelu()?)?.mul(self.scale.get()?)?;
            skipped(y.permute(&[0, 3, 1, 2])?, self.drop_path.as_ref())? + x
        })
    }
}

/// A norm and a convolution whose windows lie side by side, in either order.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Patches {
    conv: Conv2d,
    norm: LayerNorm,
}

impl Patches {
    fn new(cx: &mut InitCx, inputs: usize, outputs: usize, size: usize, normed: usize) -> Result<Self> {
        let taps = Conv2dOptions { stride: Extents([size; 2]), weight_init: WEIGHT, ..Conv2dOptions::default() };
        Ok(Patches { conv: Conv2d::with(cx, inputs, outputs, size, taps)?, norm: LayerNorm::with(cx, [normed], EPS)? })
    }
}

/// ConvNeXt (Liu et al., CVPR 2022): `[n, channels, h, w]` to logits `[n, classes]`.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct ConvNeXt {
    stem: Patches,
    stages: Vec<Vec<ConvNeXtBlock>>,
    reduce: Vec<Patches>,
    norm: LayerNorm,
    head: Linear,
}

impl ConvNeXt {
    /// A network with scopes named `convnext`. Errors: Value without stages or for a `drop_path` outside 0 ..= 1; Budget if it
    /// does not fit.
    pub fn new(cx: &mut InitCx, config: &ConvNeXtConfig) -> Result<Self> {
        let [(first, _), .., (last, _)] = config.stages[..] else {
            let text = format!("{} stages, must be two or more", config.stages.len());
            return Err(remat_types::Error::new(remat_types::ErrorKind::Value, text).with_op("convnext"));
        };
        let stem = Patches::new(cx, config.channels, first, 4, first)?;
        let most = config.stages.iter().map(|s| s.1).sum::<usize>().saturating_sub(1).max(1);
        let (mut stages, mut reduce, mut before, mut inputs) = (Vec::new(), Vec::new(), 0, first);
        for (i, &(width, blocks)) in config.stages.iter().enumerate() {
            if i > 0 {
                reduce.push(Patches::new(cx, inputs, width, 2, inputs)?);
            }
            let drop = |i: usize| config.drop_path * (before + i) as f64 / most as f64;
            let of_stage = (0..blocks).map(|i| ConvNeXtBlock::new(cx, width, config.scale, drop(i)));
            stages.push(of_stage.collect::<Result<Vec<_>>>()?);
            (before, inputs) = (before + blocks, width);
        }
        let norm = LayerNorm::with(cx, [last], EPS)?;
        let net = ConvNeXt { stem, stages, reduce, norm, head: linear(cx, last, config.classes)? };
        net.name_scopes("convnext");
        Ok(net)
    }
}

impl Layer for ConvNeXt {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let mut y = norm_channels(&self.stem.norm, &self.stem.conv.forward(x)?)?;
        for (i, stage) in self.stages.iter().enumerate() {
            if let Some(reduce) = i.checked_sub(1).map(|i| &self.reduce[i]) {
                y = reduce.conv.forward(&norm_channels(&reduce.norm, &y)?)?;
            }
            y = run(stage, y)?;
        }
        self.head.forward(&self.norm.forward(&pooled(&y)?)?)
    }
}
