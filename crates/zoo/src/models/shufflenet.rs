use remat_nn::{Conv2dOptions, ConvNorm, Extents, InitCx, Label, Layer, Linear, MaxPool2d, Module};
use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};
use serde::{Deserialize, Serialize};

use super::{pooled, run};

/// Which [`ShuffleNetV2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShuffleNetV2Config {
    /// Channels of the three stages.
    pub stages: [usize; 3],
    /// Channels of the last convolution.
    pub last: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
}

impl ShuffleNetV2Config {
    /// ShuffleNetV2 x0.5: 1,366,792 parameters, 0.04 G multiply-adds at 224 x 224.
    pub fn x0_5() -> Self {
        ShuffleNetV2Config { stages: [48, 96, 192], ..ShuffleNetV2Config::x1_0() }
    }

    /// ShuffleNetV2 x1.0: 2,278,604 parameters, 0.14 G multiply-adds at 224 x 224.
    pub fn x1_0() -> Self {
        ShuffleNetV2Config { stages: [116, 232, 464], last: 1024, channels: 3, classes: 1000 }
    }

    /// ShuffleNetV2 x1.5: 3,503,624 parameters, 0.30 G multiply-adds at 224 x 224.
    pub fn x1_5() -> Self {
        ShuffleNetV2Config { stages: [176, 352, 704], ..ShuffleNetV2Config::x1_0() }
    }

    /// ShuffleNetV2 x2.0: 7,393,996 parameters, 0.58 G multiply-adds at 224 x 224.
    pub fn x2_0() -> Self {
        ShuffleNetV2Config { stages: [244, 488, 976], last: 2048, ..ShuffleNetV2Config::x1_0() }
    }
}

const STEM_CHANNELS: usize = 24;
/// Blocks of each stage.
const BLOCKS: [usize; 3] = [4, 8, 4];

/// A 1x1 convolution, if there is one, a 3x3 one of each channel by itself, and a 1x1 convolution, each with norm, relu after
/// those of 1x1.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Branch {
    #[module(flatten)]
    label: Label,
    first: Option<ConvNorm>,
    filter: ConvNorm,
    mix: ConvNorm,
}

impl Branch {
    fn new(cx: &mut InitCx, inputs: usize, outputs: usize, stride: usize, has_first: bool) -> Result<Self> {
        let first = if has_first { Some(ConvNorm::new(cx, inputs, outputs, 1, 1)?) } else { None };
        let width = if has_first { outputs } else { inputs };
        let each = Conv2dOptions { stride: Extents([stride; 2]), groups: width, ..ConvNorm::options(3) };
        Ok(Branch {
            label: Label::of_layer("branch"),
            first,
            filter: ConvNorm::with(cx, width, width, 3, each)?,
            mix: ConvNorm::new(cx, width, outputs, 1, 1)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.label.around(x, |x| {
            let x = match &self.first {
                Some(first) => first.forward(x)?.relu()?,
                None => x.clone(),
            };
            self.mix.forward(&self.filter.forward(&x)?)?.relu()
        })
    }
}

/// Half of the channels goes through, half through a branch; or, with stride 2, all of them through two. Then the halves are
/// mixed.
#[derive(Module)]
#[module(crate = remat_nn)]
struct ShuffleBlock {
    #[module(flatten)]
    label: Label,
    left: Option<Branch>,
    right: Branch,
}

impl Layer for ShuffleBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.label.around(x, |x| {
            let (left, right) = match &self.left {
                Some(left) => (left.forward(x)?, self.right.forward(x)?),
                None => {
                    let halves = x.chunk(2, 1)?;
                    let [left, right] = &halves[..] else {
                        return Err(Error::new(ErrorKind::Shape, format!("x has shape {}: no two halves", x.shape())));
                    };
                    (left.clone(), self.right.forward(right)?)
                }
            };
            Tensor::concat(&[&left, &right], 1)?.channel_shuffle(2)
        })
    }
}

/// ShuffleNetV2 (Ma et al., ECCV 2018): `[n, channels, h, w]` to logits `[n, classes]`.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct ShuffleNetV2 {
    stem: ConvNorm,
    stages: Vec<Vec<ShuffleBlock>>,
    last: ConvNorm,
    head: Linear,
}

impl ShuffleNetV2 {
    /// A network with scopes named `shufflenet`. Errors: Value for a stage with an odd number of channels; Budget if it does
    /// not fit.
    pub fn new(cx: &mut InitCx, config: &ShuffleNetV2Config) -> Result<Self> {
        if let Some(odd) = config.stages.iter().find(|c| !c.is_multiple_of(2) || **c == 0) {
            let text = format!("a stage of {odd} channels, must be even and not 0");
            return Err(Error::new(ErrorKind::Value, text).with_op("shufflenet"));
        }
        let stem = ConvNorm::new(cx, config.channels, STEM_CHANNELS, 3, 2)?;
        let (mut inputs, mut stages) = (STEM_CHANNELS, Vec::new());
        for (outputs, blocks) in config.stages.into_iter().zip(BLOCKS) {
            let half = outputs / 2;
            let mut all = vec![ShuffleBlock {
                label: Label::of_layer("block"),
                left: Some(Branch::new(cx, inputs, half, 2, false)?),
                right: Branch::new(cx, inputs, half, 2, true)?,
            }];
            for _ in 1..blocks {
                all.push(ShuffleBlock {
                    label: Label::of_layer("block"),
                    left: None,
                    right: Branch::new(cx, half, half, 1, true)?,
                });
            }
            stages.push(all);
            inputs = outputs;
        }
        let last = ConvNorm::new(cx, inputs, config.last, 1, 1)?;
        let net = ShuffleNetV2 { stem, stages, last, head: Linear::new(cx, config.last, config.classes)? };
        net.name_scopes("shufflenet");
        Ok(net)
    }
}

impl Layer for ShuffleNetV2 {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let y = MaxPool2d::with(3, 2, 1).forward(&self.stem.forward(x)?.relu()?)?;
        let y = run(self.stages.iter().flatten(), y)?;
        self.head.forward(&pooled(&self.last.forward(&y)?.relu()?)?)
    }
}
