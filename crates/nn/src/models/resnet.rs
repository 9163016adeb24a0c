use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};

use crate::layers::plus;
use crate::{AdaptiveAvgPool2d, ConvNorm, InitCx, Layer, Linear, MaxPool2d, Module};

/// `relu(norm(conv3x3(relu(norm(conv3x3(x))))) + skip(x))` (He et al., CVPR 2016): `x: [n, in, h, w]` to
/// `[n, out, h / stride, w / stride]`, rounded up. The skip is `x` itself, or a 1x1 convolution with norm where extents
/// or channels differ.
#[derive(Module)]
#[module(crate = crate)]
pub struct BasicBlock {
    a: ConvNorm,
    b: ConvNorm,
    skip: Option<ConvNorm>,
}

impl BasicBlock {
    /// From `inputs` to `outputs` channels; the first convolution has the stride. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        Ok(BasicBlock {
            a: ConvNorm::new(cx, inputs, outputs, 3, stride)?,
            b: ConvNorm::new(cx, outputs, outputs, 3, 1)?,
            skip: skip(cx, inputs, outputs, stride)?,
        })
    }
}

impl Layer for BasicBlock {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        add_skip(self.b.forward(&self.a.forward(x)?.relu()?)?, x, self.skip.as_ref())
    }
}

/// 1x1 to `width` channels, 3x3, 1x1 to `4 width`, each with norm, relu between them and after adding the skip as in
/// [`BasicBlock`]. The 3x3 convolution has the stride, as in torchvision ("v1.5"); He et al. gave it to the first.
#[derive(Module)]
#[module(crate = crate)]
pub struct Bottleneck {
    a: ConvNorm,
    b: ConvNorm,
    c: ConvNorm,
    skip: Option<ConvNorm>,
}

impl Bottleneck {
    /// Output channels for each of `width`.
    pub const EXPANSION: usize = 4;

    /// From `inputs` to `4 width` channels. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, width: usize, stride: usize) -> Result<Self> {
        let outputs = Bottleneck::EXPANSION * width;
        Ok(Bottleneck {
            a: ConvNorm::new(cx, inputs, width, 1, 1)?,
            b: ConvNorm::new(cx, width, width, 3, stride)?,
            c: ConvNorm::new(cx, width, outputs, 1, 1)?,
            skip: skip(cx, inputs, outputs, stride)?,
        })
    }
}

impl Layer for Bottleneck {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let y = self.b.forward(&self.a.forward(x)?.relu()?)?.relu()?;
        add_skip(self.c.forward(&y)?, x, self.skip.as_ref())
    }
}

fn skip(cx: &mut InitCx, inputs: usize, outputs: usize, stride: usize) -> Result<Option<ConvNorm>> {
    let reshapes = stride != 1 || inputs != outputs;
    reshapes.then(|| ConvNorm::new(cx, inputs, outputs, 1, stride)).transpose()
}

/// `relu(y + skip(x))`, in place.
fn add_skip(y: Tensor, x: &Tensor, skip: Option<&ConvNorm>) -> Result<Tensor> {
    let x = match skip {
        Some(skip) => skip.forward(x)?,
        None => x.clone(),
    };
    plus(y, x)?.relu()
}

/// Which [`ResNet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResNetConfig {
    /// Blocks of each stage; every stage after the first halves the extents and doubles the channels.
    pub blocks: Vec<usize>,
    /// [`Bottleneck`] blocks, not [`BasicBlock`]s.
    pub bottleneck: bool,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
}

impl ResNetConfig {
    /// Channels of the stem, and the width of the first stage.
    pub const WIDTH: usize = 64;

    /// ResNet-18 for ImageNet: 11,689,512 parameters, 1.8 G multiply-adds at 224 x 224.
    pub fn resnet18() -> Self {
        ResNetConfig { blocks: vec![2, 2, 2, 2], bottleneck: false, channels: 3, classes: 1000 }
    }

    /// ResNet-50 for ImageNet: 25,557,032 parameters, 4.1 G multiply-adds at 224 x 224.
    pub fn resnet50() -> Self {
        ResNetConfig { blocks: vec![3, 4, 6, 3], bottleneck: true, channels: 3, classes: 1000 }
    }
}

/// A residual network for images (He et al., CVPR 2016): `[n, channels, h, w]` to logits `[n, classes]`.
///
/// A 7x7 convolution of stride 2, a 3x3 maximum of stride 2, the stages, the mean over places, a linear layer.
///
/// ```
/// use remat_nn::models::{ResNet, ResNetConfig};
/// use remat_nn::{InitCx, Module};
/// # use remat_runtime::{Device, DeviceOptions};
/// # fn main() -> remat_types::Result<()> {
/// # let device = Device::dry(DeviceOptions::default())?;
/// let net = ResNet::new(&mut InitCx::new(&device, 1), &ResNetConfig::resnet18())?;
/// assert_eq!(net.parameter_count(), 11_689_512);
/// # Ok(())
/// # }
/// ```
#[derive(Module)]
#[module(crate = crate)]
pub struct ResNet {
    stem: ConvNorm,
    blocks: Vec<Box<dyn Layer>>,
    head: Linear,
}

impl ResNet {
    /// A network with scopes named `resnet`. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &ResNetConfig) -> Result<Self> {
        let stem = ConvNorm::new(cx, config.channels, ResNetConfig::WIDTH, 7, 2)?;
        let (mut inputs, mut blocks) = (ResNetConfig::WIDTH, Vec::<Box<dyn Layer>>::new());
        for (stage, &count) in config.blocks.iter().enumerate() {
            let width = ResNetConfig::WIDTH << stage;
            for i in 0..count {
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                if config.bottleneck {
                    blocks.push(Box::new(Bottleneck::new(cx, inputs, width, stride)?));
                    inputs = Bottleneck::EXPANSION * width;
                } else {
                    blocks.push(Box::new(BasicBlock::new(cx, inputs, width, stride)?));
                    inputs = width;
                }
            }
        }
        let net = ResNet { stem, blocks, head: Linear::new(cx, inputs, config.classes)? };
        net.name_scopes("resnet");
        Ok(net)
    }
}

impl Layer for ResNet {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let mut y = MaxPool2d::with(3, 2, 1).forward(&self.stem.forward(x)?.relu()?)?;
        for block in &self.blocks {
            y = block.forward(&y)?;
        }
        self.head.forward(&AdaptiveAvgPool2d::new(1).forward(&y)?.flatten_from(1)?)
    }
}
