use remat_nn::{
    AttentionOptions, Conv2d, Conv2dOptions, Dropout, Extents, Init, InitCx, Label, Layer, LayerNorm, Linear,
    LinearOptions, Module, MultiHeadAttention, Parameter, extents,
};
use remat_tensor::{Attend, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};
use serde::{Deserialize, Serialize};

use super::transformer::{STD, drop_some, dropout};

/// Which [`Vit`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VitConfig {
    /// Extent of the images, down and across.
    pub image: usize,
    /// Extent of a patch; divides that of the images.
    pub patch: usize,
    /// Blocks.
    pub layers: usize,
    /// Numbers at each place.
    pub width: usize,
    /// Heads of an attention; they divide the width.
    pub heads: usize,
    /// Numbers of a block's hidden layer.
    pub hidden: usize,
    /// Probability with which a number that a block adds is dropped in training.
    pub dropout: f64,
    /// Channels of the input.
    pub channels: usize,
    /// Classes of the output.
    pub classes: usize,
}

impl VitConfig {
    fn of(layers: usize, width: usize, heads: usize, patch: usize) -> Self {
        let (hidden, channels, classes) = (4 * width, 3, 1000);
        VitConfig { image: 224, patch, layers, width, heads, hidden, dropout: 0.0, channels, classes }
    }

    /// ViT-Ti/16 (DeiT-Ti; Touvron et al., ICML 2021): 5,717,416 parameters, 1.3 G multiply-adds at 224 x 224.
    pub fn tiny16() -> Self {
        VitConfig::of(12, 192, 3, 16)
    }

    /// ViT-S/16 (DeiT-S): 22,050,664 parameters, 4.6 G multiply-adds at 224 x 224.
    pub fn small16() -> Self {
        VitConfig::of(12, 384, 6, 16)
    }

    /// ViT-B/16: 86,567,656 parameters, 17.6 G multiply-adds at 224 x 224.
    pub fn base16() -> Self {
        VitConfig::of(12, 768, 12, 16)
    }

    /// ViT-B/32: 88,224,232 parameters, 4.4 G multiply-adds at 224 x 224.
    pub fn base32() -> Self {
        VitConfig::of(12, 768, 12, 32)
    }

    /// ViT-L/16: 304,326,632 parameters, 61.6 G multiply-adds at 224 x 224.
    pub fn large16() -> Self {
        VitConfig::of(24, 1024, 16, 16)
    }
}

const EPS: f64 = 1e-6;

fn linear(cx: &mut InitCx, inputs: usize, outputs: usize) -> Result<Linear> {
    Linear::with(cx, inputs, outputs, options())
}

fn options() -> LinearOptions {
    let weight_init = Init::TruncatedNormal { mean: 0.0, std: STD, lo: -2.0, hi: 2.0 };
    LinearOptions { weight_init, bias_init: Some(Init::Zeros), ..LinearOptions::default() }
}

/// `x + attention(norm(x))`, then `x + down(gelu(up(norm(x))))`; `x: [n, t, width]`.
#[derive(Module)]
#[module(crate = remat_nn)]
struct VitBlock {
    #[module(flatten)]
    label: Label,
    norm1: LayerNorm,
    attention: MultiHeadAttention,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
    dropout: Option<Dropout>,
}

impl VitBlock {
    fn new(cx: &mut InitCx, c: &VitConfig) -> Result<Self> {
        Ok(VitBlock {
            label: Label::of_layer("block"),
            norm1: LayerNorm::with(cx, [c.width], EPS)?,
            attention: MultiHeadAttention::with(
                cx,
                c.width,
                c.heads,
                AttentionOptions { qkv: options(), out: options() },
            )?,
            norm2: LayerNorm::with(cx, [c.width], EPS)?,
            up: linear(cx, c.width, c.hidden)?,
            down: linear(cx, c.hidden, c.width)?,
            dropout: dropout(cx, c.dropout)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.label.around(x, |x| {
            let y = self.attention.forward_with(&self.norm1.forward(x)?, Attend::default())?;
            let x = (drop_some(y, self.dropout.as_ref())? + x)?;
            let y = drop_some(self.up.forward(&self.norm2.forward(&x)?)?.gelu()?, self.dropout.as_ref())?;
            drop_some(self.down.forward(&y)?, self.dropout.as_ref())? + x
        })
    }
}

/// A vision transformer (Dosovitskiy et al., ICLR 2021): `[n, channels, image, image]` to logits `[n, classes]`. Patches and a
/// class token, with learned positions, go through blocks whose norms stand first; the class token gives the logits.
///
/// Errors: Axis for another rank, Shape for other extents.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct Vit {
    patches: Conv2d,
    class_token: Parameter,
    positions: Parameter,
    dropout: Option<Dropout>,
    blocks: Vec<VitBlock>,
    norm: LayerNorm,
    head: Linear,
}

impl Vit {
    /// A network with scopes named `vit`. Errors: Value for patches that do not divide the image, heads that do not divide the
    /// width, or a dropout outside 0 ..= 1; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &VitConfig) -> Result<Self> {
        let c = config;
        if c.patch == 0 || !c.image.is_multiple_of(c.patch) {
            let text = format!("patches of {0} x {0} do not divide an image of {1} x {1}", c.patch, c.image);
            return Err(Error::new(ErrorKind::Value, text).with_op("vit"));
        }
        let side = c.image / c.patch;
        let places = side.checked_mul(side).and_then(|n| n.checked_add(1)).ok_or_else(|| {
            Error::new(ErrorKind::Shape, format!("an image of {0} x {0} is too large to address", c.image))
                .with_op("vit")
        })?;
        let taps = Conv2dOptions {
            stride: Extents([c.patch; 2]),
            weight_init: options().weight_init,
            ..Conv2dOptions::default()
        };
        let net = Vit {
            patches: Conv2d::with(cx, c.channels, c.width, c.patch, taps)?,
            class_token: cx.parameter([c.width], Init::Zeros)?,
            positions: cx.parameter([places, c.width], Init::Normal { mean: 0.0, std: STD })?,
            dropout: dropout(cx, c.dropout)?,
            blocks: (0..c.layers).map(|_| VitBlock::new(cx, c)).collect::<Result<_>>()?,
            norm: LayerNorm::with(cx, [c.width], EPS)?,
            head: linear(cx, c.width, c.classes)?,
        };
        net.name_scopes("vit");
        Ok(net)
    }
}

impl Layer for Vit {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [n, ..] = extents::<4>(x, "vit")?;
        let y = self.patches.forward(x)?.flatten_from(2)?.transpose(1, 2)?;
        let [places, width] = [self.positions.shape()[0], self.positions.shape()[1]];
        if y.dims()[1] + 1 != places {
            let text = format!("x has shape {}: {} patches, must be {}", x.shape(), y.dims()[1], places - 1);
            return Err(Error::new(ErrorKind::Shape, text).with_op("vit"));
        }
        let class = self.class_token.get()?.broadcast_to([n, 1, width])?;
        let y = (Tensor::concat(&[&class, &y], 1)? + self.positions.get()?)?;
        let mut y = drop_some(y, self.dropout.as_ref())?;
        for block in &self.blocks {
            y = block.forward(&y)?;
        }
        self.head.forward(&self.norm.forward(&y.select(1, 0)?)?)
    }
}
