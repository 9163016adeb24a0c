use remat_nn::{AdaptiveAvgPool2d, Conv2dOptions, ConvNorm, Extents, InitCx, Label, Layer, Linear, MaxPool2d, Module};
use remat_tensor::Tensor;
use remat_types::{CallSite, Result, Scope};
use serde::{Deserialize, Serialize};

/// `relu(norm(conv3x3(relu(norm(conv3x3(x))))) + skip(x))` (He et al., CVPR 2016): `x: [n, in, h, w]` to
/// `[n, out, h / stride, w / stride]`, rounded up. The skip is `x` itself, or a 1x1 convolution with norm where extents
/// or channels differ.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct BasicBlock {
    #[module(flatten)]
    label: Label,
    a: ConvNorm,
    b: ConvNorm,
    skip: Option<ConvNorm>,
}

impl BasicBlock {
    /// From `inputs` to `outputs` channels; the first convolution has the stride. Errors: Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, outputs: usize, stride: usize) -> Result<Self> {
        Ok(BasicBlock {
            label: Label::of_layer("block"),
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
        self.label.around(x, |x| add_skip(self.b.forward(&self.a.forward(x)?.relu()?)?, x, self.skip.as_ref()))
    }
}

/// 1x1 to `width` channels, 3x3, 1x1 to `4 width`, each with norm, relu between them and after adding the skip as in
/// [`BasicBlock`]. The 3x3 convolution has the stride, as in torchvision ("v1.5"); He et al. gave it to the first.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct Bottleneck {
    #[module(flatten)]
    label: Label,
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
        Bottleneck::grouped(cx, inputs, width, stride, width, 1)
    }

    /// The same with `inner` channels between the convolutions. The second convolution has `groups` groups (ResNeXt; Xie et
    /// al., CVPR 2017). Errors: also Value if the groups do not divide them.
    pub fn grouped(
        cx: &mut InitCx,
        inputs: usize,
        width: usize,
        stride: usize,
        inner: usize,
        groups: usize,
    ) -> Result<Self> {
        let outputs = Bottleneck::EXPANSION * width;
        let middle = Conv2dOptions { stride: Extents([stride; 2]), groups, ..ConvNorm::options(3) };
        Ok(Bottleneck {
            label: Label::of_layer("block"),
            a: ConvNorm::new(cx, inputs, inner, 1, 1)?,
            b: ConvNorm::with(cx, inner, inner, 3, middle)?,
            c: ConvNorm::new(cx, inner, outputs, 1, 1)?,
            skip: skip(cx, inputs, outputs, stride)?,
        })
    }
}

impl Layer for Bottleneck {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        self.label.around(x, |x| {
            let y = self.b.forward(&self.a.forward(x)?.relu()?)?.relu()?;
            add_skip(self.c.forward(&y)?, x, self.skip.as_ref())
        })
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
    (y + x)?.relu()
}

/// Which [`ResNet`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResNetConfig {
    /// Blocks of each stage; every stage after the first halves the extents and doubles the channels.
    pub blocks: Vec<usize>,
    /// [`Bottleneck`] blocks, not [`BasicBlock`]s.
    pub bottleneck: bool,
    /// Groups of the 3x3 convolutions of bottlenecks: more than one make a ResNeXt (Xie et al., CVPR 2017).
    pub groups: usize,
    /// Channels of a group between the convolutions of a bottleneck of the first stage; 64, and 128 in a wide network
    /// (Zagoruyko and Komodakis, BMVC 2016).
    pub width_per_group: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
}

impl ResNetConfig {
    /// Channels of the stem, and the width of the first stage.
    pub const WIDTH: usize = 64;

    fn of(blocks: [usize; 4], bottleneck: bool) -> Self {
        let (groups, width_per_group) = (1, ResNetConfig::WIDTH);
        ResNetConfig { blocks: blocks.to_vec(), bottleneck, groups, width_per_group, channels: 3, classes: 1000 }
    }

    /// ResNet-18 for ImageNet: 11,689,512 parameters, 1.8 G multiply-adds at 224 x 224.
    pub fn resnet18() -> Self {
        ResNetConfig::of([2, 2, 2, 2], false)
    }

    /// ResNet-34 for ImageNet: 21,797,672 parameters, 3.7 G multiply-adds at 224 x 224.
    pub fn resnet34() -> Self {
        ResNetConfig::of([3, 4, 6, 3], false)
    }

    /// ResNet-50 for ImageNet: 25,557,032 parameters, 4.1 G multiply-adds at 224 x 224.
    pub fn resnet50() -> Self {
        ResNetConfig::of([3, 4, 6, 3], true)
    }

    /// ResNet-101 for ImageNet: 44,549,160 parameters, 7.8 G multiply-adds at 224 x 224.
    pub fn resnet101() -> Self {
        ResNetConfig::of([3, 4, 23, 3], true)
    }

    /// ResNet-152 for ImageNet: 60,192,808 parameters, 11.5 G multiply-adds at 224 x 224.
    pub fn resnet152() -> Self {
        ResNetConfig::of([3, 8, 36, 3], true)
    }

    /// ResNeXt-50 (32 x 4d) for ImageNet: 25,028,904 parameters, 4.2 G multiply-adds at 224 x 224.
    pub fn resnext50_32x4d() -> Self {
        ResNetConfig { groups: 32, width_per_group: 4, ..ResNetConfig::resnet50() }
    }

    /// ResNeXt-101 (32 x 8d) for ImageNet: 88,791,336 parameters, 16.4 G multiply-adds at 224 x 224.
    pub fn resnext101_32x8d() -> Self {
        ResNetConfig { groups: 32, width_per_group: 8, ..ResNetConfig::resnet101() }
    }

    /// Wide ResNet-50-2 for ImageNet: 68,883,240 parameters, 11.4 G multiply-adds at 224 x 224.
    pub fn wide_resnet50_2() -> Self {
        ResNetConfig { width_per_group: 128, ..ResNetConfig::resnet50() }
    }

    /// Wide ResNet-101-2 for ImageNet: 126,886,696 parameters, 22.8 G multiply-adds at 224 x 224.
    pub fn wide_resnet101_2() -> Self {
        ResNetConfig { width_per_group: 128, ..ResNetConfig::resnet101() }
    }

    /// Channels between the convolutions of a bottleneck of `width`.
    fn inner(&self, width: usize) -> usize {
        width * self.width_per_group / ResNetConfig::WIDTH * self.groups
    }
}

/// A residual network for images (He et al., CVPR 2016): `[n, channels, h, w]` to logits `[n, classes]`.
///
/// A 7x7 convolution of stride 2, a 3x3 maximum of stride 2, the stages, the mean over places, a linear layer.
///
/// ```
/// use remat_zoo::models::{ResNet, ResNetConfig};
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
#[module(crate = remat_nn)]
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
                    let inner = config.inner(width);
                    blocks.push(Box::new(Bottleneck::grouped(cx, inputs, width, stride, inner, config.groups)?));
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
