use remat_nn::{Conv2d, Conv2dOptions, Dropout, Extents, GroupNorm, InitCx, Layer, Linear, Module, extents};
use remat_tensor::{Attend, Tensor};
use remat_types::{CallSite, DType, Error, ErrorKind, Padding, Result, Scope};
use serde::{Deserialize, Serialize};

use super::transformer::{drop_some, dropout};

/// Which [`DiffusionUNet`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffusionConfig {
    /// Channels of the first level, and numbers of a time's embedding; even.
    pub width: usize,
    /// Channels of each level, for each of `width`; every further level halves the extents.
    pub factors: Vec<usize>,
    /// Residual blocks of a level on the way down; on the way up there is one more.
    pub blocks: usize,
    /// Levels, by their index, whose blocks are followed by attention over places.
    pub attention: Vec<usize>,
    /// Groups of the normalisations; they divide the channels of every level.
    pub groups: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Probability with which a number within a block is dropped in training.
    pub dropout: f64,
}

impl DiffusionConfig {
    /// The network for CIFAR-10 of the paper, 32 x 32: 35,746,307 parameters.
    pub fn cifar10() -> Self {
        let factors = vec![1, 2, 2, 2];
        DiffusionConfig { width: 128, factors, blocks: 2, attention: vec![1], groups: 32, channels: 3, dropout: 0.1 }
    }

    /// A small one for digits: two levels of 16 and 32 channels.
    pub fn small() -> Self {
        let factors = vec![1, 2];
        DiffusionConfig { width: 16, factors, blocks: 1, attention: vec![1], groups: 8, channels: 1, dropout: 0.0 }
    }
}

const EPS: f64 = 1e-6;
/// Longest wavelength of a time's embedding, over 2 pi.
const LONGEST: f64 = 1e4;

fn conv(cx: &mut InitCx, inputs: usize, outputs: usize, kernel: usize, stride: usize) -> Result<Conv2d> {
    let padding = Padding::from(kernel / 2);
    let options = Conv2dOptions { stride: Extents([stride; 2]), padding, ..Conv2dOptions::default() };
    Conv2d::with(cx, inputs, outputs, kernel, options)
}

/// `skip(x) + conv(silu(norm(conv(silu(norm(x))) + linear(silu(time)))))`.
#[derive(Module)]
#[module(crate = remat_nn)]
struct TimedBlock {
    norm1: GroupNorm,
    conv1: Conv2d,
    time: Linear,
    norm2: GroupNorm,
    dropout: Option<Dropout>,
    conv2: Conv2d,
    skip: Option<Conv2d>,
    attention: Option<PlaceAttention>,
}

impl TimedBlock {
    fn new(cx: &mut InitCx, c: &DiffusionConfig, inputs: usize, outputs: usize, attends: bool) -> Result<Self> {
        Ok(TimedBlock {
            norm1: GroupNorm::with(cx, c.groups, inputs, EPS, true)?,
            conv1: conv(cx, inputs, outputs, 3, 1)?,
            time: Linear::new(cx, 4 * c.width, outputs)?,
            norm2: GroupNorm::with(cx, c.groups, outputs, EPS, true)?,
            dropout: dropout(cx, c.dropout)?,
            conv2: conv(cx, outputs, outputs, 3, 1)?,
            skip: if inputs == outputs { None } else { Some(conv(cx, inputs, outputs, 1, 1)?) },
            attention: if attends { Some(PlaceAttention::new(cx, c, outputs)?) } else { None },
        })
    }

    /// `time: [n, 4 width]`, behind the silu.
    fn forward(&self, x: &Tensor, time: &Tensor) -> Result<Tensor> {
        let y = self.conv1.forward(&self.norm1.forward(x)?.silu()?)?;
        let y = (y + self.time.forward(time)?.unsqueeze(-1)?.unsqueeze(-1)?)?;
        let y = drop_some(self.norm2.forward(&y)?.silu()?, self.dropout.as_ref())?;
        let x = match &self.skip {
            Some(skip) => skip.forward(x)?,
            None => x.clone(),
        };
        let y = (self.conv2.forward(&y)? + x)?;
        match &self.attention {
            Some(attention) => attention.forward(&y),
            None => Ok(y),
        }
    }
}

/// Every place sees every other: one head over `[n, c, h, w]`.
#[derive(Module)]
#[module(crate = remat_nn)]
struct PlaceAttention {
    norm: GroupNorm,
    q: Conv2d,
    k: Conv2d,
    v: Conv2d,
    out: Conv2d,
}

impl PlaceAttention {
    fn new(cx: &mut InitCx, c: &DiffusionConfig, width: usize) -> Result<Self> {
        Ok(PlaceAttention {
            norm: GroupNorm::with(cx, c.groups, width, EPS, true)?,
            q: conv(cx, width, width, 1, 1)?,
            k: conv(cx, width, width, 1, 1)?,
            v: conv(cx, width, width, 1, 1)?,
            out: conv(cx, width, width, 1, 1)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.norm.forward(x)?;
        let places = |c: &Conv2d| c.forward(&y)?.flatten_from(2)?.transpose(1, 2)?.unsqueeze(2);
        let y = places(&self.q)?.attention(&places(&self.k)?, &places(&self.v)?, Attend::default())?;
        let shape: Vec<isize> = x.dims().iter().map(|&e| e as isize).collect();
        self.out.forward(&y.squeeze(&[2])?.transpose(1, 2)?.reshape(&shape)?)? + x
    }
}

/// A level on the way down or up: its blocks, and what changes the extents behind them.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Level {
    blocks: Vec<TimedBlock>,
    resize: Option<Conv2d>,
}

/// The network of a denoising diffusion model (Ho et al., NeurIPS 2020): images `[n, channels, h, w]` with noise and the step
/// `[n]` of each to the noise, of the images' shape.
///
/// Errors: Axis for another rank, Shape for extents that the halvings do not divide or another number of steps.
///
/// ```
/// use remat_zoo::models::{DiffusionConfig, DiffusionUNet};
/// use remat_nn::InitCx;
/// # use remat_runtime::{Device, DeviceOptions};
/// # use remat_tensor::Tensor;
/// # use remat_types::DType;
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::cpu(DeviceOptions::default())?;
/// let net = DiffusionUNet::new(&mut InitCx::new(&device, 1), &DiffusionConfig::small())?;
/// let x = Tensor::zeros(&device, [2, 1, 8, 8], DType::F32)?;
/// let steps = Tensor::new(&device, &[0i64, 999], [2])?;
/// assert_eq!(net.forward(&x, &steps)?.dims(), [2, 1, 8, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct DiffusionUNet {
    time1: Linear,
    time2: Linear,
    stem: Conv2d,
    down: Vec<Level>,
    middle: Vec<TimedBlock>,
    up: Vec<Level>,
    norm: GroupNorm,
    head: Conv2d,
    width: usize,
}

impl DiffusionUNet {
    /// A network with scopes named `diffusion`. Errors: Value without levels, for an odd width, for groups that do not divide a
    /// level's channels, or a dropout outside 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &DiffusionConfig) -> Result<Self> {
        let c = config;
        if c.factors.is_empty() || c.width == 0 || !c.width.is_multiple_of(2) {
            let text = format!("{} levels of a width of {}, must be some, and even", c.factors.len(), c.width);
            return Err(Error::new(ErrorKind::Value, text).with_op("diffusion"));
        }
        let (time1, time2) = (Linear::new(cx, c.width, 4 * c.width)?, Linear::new(cx, 4 * c.width, 4 * c.width)?);
        let stem = conv(cx, c.channels, c.width, 3, 1)?;
        // channels of all that the way up sees again
        let (mut width, mut kept, mut down) = (c.width, vec![c.width], Vec::new());
        for (i, factor) in c.factors.iter().enumerate() {
            let (outputs, mut blocks) = (c.width * factor, Vec::new());
            for _ in 0..c.blocks {
                blocks.push(TimedBlock::new(cx, c, width, outputs, c.attention.contains(&i))?);
                width = outputs;
                kept.push(width);
            }
            let is_last = i + 1 == c.factors.len();
            let resize = if is_last { None } else { Some(conv(cx, width, width, 3, 2)?) };
            kept.extend((!is_last).then_some(width));
            down.push(Level { blocks, resize });
        }
        let middle = vec![TimedBlock::new(cx, c, width, width, true)?, TimedBlock::new(cx, c, width, width, false)?];
        let mut up = Vec::new();
        for (i, factor) in c.factors.iter().enumerate().rev() {
            let (outputs, mut blocks) = (c.width * factor, Vec::new());
            for _ in 0..=c.blocks {
                let inputs = width + kept.pop().unwrap_or(0);
                blocks.push(TimedBlock::new(cx, c, inputs, outputs, c.attention.contains(&i))?);
                width = outputs;
            }
            up.push(Level { blocks, resize: if i == 0 { None } else { Some(conv(cx, width, width, 3, 1)?) } });
        }
        let (norm, head) = (GroupNorm::with(cx, c.groups, width, EPS, true)?, conv(cx, width, c.channels, 3, 1)?);
        let net = DiffusionUNet { time1, time2, stem, down, middle, up, norm, head, width: c.width };
        net.name_scopes("diffusion");
        Ok(net)
    }

    /// Sines and cosines of the steps at `width / 2` wavelengths, `[n, width]` (Vaswani et al., 2017).
    fn embedded(&self, steps: &Tensor, dtype: DType) -> Result<Tensor> {
        let half = self.width / 2;
        let pair = Tensor::arange(&steps.device(), 0, half as i64, 1, DType::I64)?.cast(DType::F64)?;
        let rate = pair.mul(-LONGEST.ln() / (half.max(2) - 1) as f64)?.exp()?;
        let angle = steps.cast(DType::F64)?.unsqueeze(1)?.mul(rate)?;
        Tensor::concat(&[&angle.sin()?, &angle.cos()?], 1)?.cast(dtype)
    }

    /// The noise in `x` at `steps: [n]`, of any dtype of numbers.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, steps: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [n, _, h, w] = extents(x, "diffusion")?;
        let factor = 1usize.checked_shl((self.down.len() - 1) as u32).unwrap_or(0);
        let fits = factor > 0 && h.is_multiple_of(factor) && w.is_multiple_of(factor);
        if !fits || steps.dims() != [n] {
            let text = format!(
                "x has shape {}, steps {}: extents are halved {} times, and an image has one step",
                x.shape(),
                steps.shape(),
                self.down.len() - 1
            );
            return Err(Error::new(ErrorKind::Shape, text).with_op("diffusion"));
        }
        let time = self.time1.forward(&self.embedded(steps, x.dtype())?)?.silu()?;
        let time = self.time2.forward(&time)?.silu()?;
        let mut y = self.stem.forward(x)?;
        let mut kept = vec![y.clone()];
        for level in &self.down {
            for block in &level.blocks {
                y = block.forward(&y, &time)?;
                kept.push(y.clone());
            }
            if let Some(resize) = &level.resize {
                y = resize.forward(&y)?;
                kept.push(y.clone());
            }
        }
        for block in &self.middle {
            y = block.forward(&y, &time)?;
        }
        for level in &self.up {
            for block in &level.blocks {
                let beside = kept.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "a block has one below it"))?;
                y = block.forward(&Tensor::concat(&[&y, &beside], 1)?, &time)?;
            }
            if let Some(resize) = &level.resize {
                y = resize.forward(&y.repeat_interleave(2, 2)?.repeat_interleave(2, 3)?)?;
            }
        }
        self.head.forward(&self.norm.forward(&y)?.silu()?)
    }
}
