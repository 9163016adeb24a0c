use remat_nn::{
    Conv2d, Conv2dOptions, ConvNorm, ConvTranspose2d, Extents, InitCx, Label, Layer, MaxPool2d, Module, extents,
};
use remat_tensor::Tensor;
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};
use serde::{Deserialize, Serialize};

/// Which [`UNet`]. The default has the paper's widths, for images of three channels and two classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UNetConfig {
    /// Channels of each level, that of full extents first; each further level halves the extents.
    pub widths: Vec<usize>,
    /// Channels of the input.
    pub channels: usize,
    /// Channels of the output.
    pub classes: usize,
}

impl Default for UNetConfig {
    fn default() -> Self {
        UNetConfig { widths: vec![64, 128, 256, 512, 1024], channels: 3, classes: 2 }
    }
}

/// Two convolutions of 3x3 that keep the extents, each with norm and relu.
#[derive(Module)]
#[module(crate = remat_nn)]
struct TwoConvs {
    #[module(flatten)]
    label: Label,
    a: ConvNorm,
    b: ConvNorm,
}

impl TwoConvs {
    fn new(cx: &mut InitCx, inputs: usize, outputs: usize) -> Result<Self> {
        Ok(TwoConvs {
            label: Label::of_layer("convs"),
            a: ConvNorm::new(cx, inputs, outputs, 3, 1)?,
            b: ConvNorm::new(cx, outputs, outputs, 3, 1)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.label.around(x, |x| self.b.forward(&self.a.forward(x)?.relu()?)?.relu())
    }
}

/// A level on the way up: twice the extents by a transposed convolution, beside the features of the way down.
#[derive(Module)]
#[module(crate = remat_nn)]
struct Up {
    widen: ConvTranspose2d,
    convs: TwoConvs,
}

/// A U-Net (Ronneberger et al., MICCAI 2015): `[n, channels, h, w]` to a map of logits `[n, classes, h, w]`. Convolutions are
/// padded, unlike the paper's, so that extents stay, and have batch norms; the default has 31,037,698 parameters.
///
/// Errors: Axis for another rank, Shape for extents that the halvings do not divide.
#[derive(Module)]
#[module(crate = remat_nn)]
pub struct UNet {
    down: Vec<TwoConvs>,
    up: Vec<Up>,
    head: Conv2d,
}

impl UNet {
    /// A network with scopes named `unet`. Errors: Value without levels; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, config: &UNetConfig) -> Result<Self> {
        let Some(&first) = config.widths.first() else {
            return Err(Error::new(ErrorKind::Value, "no widths: there must be a level").with_op("unet"));
        };
        let (mut inputs, mut down, mut up) = (config.channels, Vec::new(), Vec::new());
        for &width in &config.widths {
            down.push(TwoConvs::new(cx, inputs, width)?);
            inputs = width;
        }
        for pair in config.widths.windows(2).rev() {
            let (to, from) = (pair[0], pair[1]);
            let double = Conv2dOptions { stride: Extents([2; 2]), ..Conv2dOptions::default() };
            let widen = ConvTranspose2d::with(cx, from, to, 2, double)?;
            up.push(Up { widen, convs: TwoConvs::new(cx, 2 * to, to)? });
        }
        let net = UNet { down, up, head: Conv2d::new(cx, first, config.classes, 1)? };
        net.name_scopes("unet");
        Ok(net)
    }
}

impl Layer for UNet {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let [_, _, h, w] = extents(x, "unet")?;
        let factor = 1usize.checked_shl(self.up.len() as u32).unwrap_or(0);
        if factor == 0 || !h.is_multiple_of(factor) || !w.is_multiple_of(factor) {
            let text = format!("x has shape {}: its extents are halved {} times", x.shape(), self.up.len());
            return Err(Error::new(ErrorKind::Shape, text).with_op("unet"));
        }
        let (mut y, mut kept) = (x.clone(), Vec::new());
        for (i, level) in self.down.iter().enumerate() {
            if i > 0 {
                kept.push(y.clone());
                y = MaxPool2d::new(2).forward(&y)?;
            }
            y = level.forward(&y)?;
        }
        for (level, beside) in self.up.iter().zip(kept.iter().rev()) {
            y = level.convs.forward(&Tensor::concat(&[beside, &level.widen.forward(&y)?], 1)?)?;
        }
        self.head.forward(&y)
    }
}
