//! Padding, and windows as columns.

use remat::nn::{self, InitCx, Layer, PadMode, Patches};
use remat::ops::schema::Params;
use remat::{Padding, Result};

use super::arguments::{Around, Beyond, Named, PerAxis};
use super::{LayerOptions, classes};
use crate::nn::compiled::Built;

#[derive(Params)]
#[op(crate = remat::ops)]
struct Pad<const D: usize> {
    padding: Around<D>,
    #[param(default = Named(Beyond(PadMode::Zeros)))]
    mode: Named<Beyond>,
    #[param(default = 0.0)]
    value: f64,
}

impl<const D: usize> LayerOptions for Pad<D>
where
    nn::Pad<D>: Layer + 'static,
{
    fn build(self, _: &mut InitCx) -> Result<Built> {
        let mode = match self.mode.0.0 {
            PadMode::Constant(_) => PadMode::Constant(self.value),
            other => other,
        };
        Ok(Built::one(nn::Pad::with(Padding::from(self.padding.0), mode)))
    }
}

/// How windows of an image lie.
#[derive(Params)]
#[op(crate = remat::ops)]
struct Windows {
    #[param(rename = "kernel")]
    kernel_size: PerAxis<2>,
    #[param(default = PerAxis([1; 2]))]
    dilation: PerAxis<2>,
    #[param(default = Around([[0; 2]; 2]))]
    padding: Around<2>,
    #[param(default = PerAxis([1; 2]))]
    stride: PerAxis<2>,
}

impl Windows {
    fn patches(&self) -> Patches {
        Patches {
            kernel: self.kernel_size.0,
            stride: self.stride.0,
            padding: Padding::from(self.padding.0),
            dilation: self.dilation.0,
        }
    }
}

impl LayerOptions for Windows {
    fn build(self, _: &mut InitCx) -> Result<Built> {
        Ok(Built::one(nn::Unfold { patches: self.patches() }))
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct Fold {
    #[param(rename = "size")]
    output_size: PerAxis<2>,
    #[param(flatten)]
    windows: Windows,
}

impl LayerOptions for Fold {
    fn build(self, _: &mut InitCx) -> Result<Built> {
        Ok(Built::one(nn::Fold { size: self.output_size.0, patches: self.windows.patches() }))
    }
}

classes! {
    /// The last axis with `padding` places around it: a number, or a pair `(begin, end)` in a list. `mode` is `zeros`, `constant` (of
    /// `value`), `reflect`, `replicate` or `circular`. Errors at the call: AxisError; ArgumentError for more places than a mode has.
    ///
    /// >>> import remat
    /// >>> remat.nn.Pad1d([(2, 1)], "reflect")(remat.tensor([1, 2, 3])).tolist()
    /// [3, 2, 1, 2, 3, 2]
    Pad1d: OneInput = Pad<1>;

    /// As `Pad1d`, of the last two axes: a number, one for each axis, or a pair for each, down first.
    ///
    /// >>> import remat
    /// >>> remat.nn.Pad2d((1, 0), "constant", 9.0)(remat.tensor([[1, 2]])).tolist()
    /// [[9, 9], [1, 2], [9, 9]]
    Pad2d: OneInput = Pad<2>;

    /// As `Pad1d`, of the last three axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.Pad3d(1)(remat.ones(1, 1, 1)).shape
    /// (3, 3, 3)
    Pad3d: OneInput = Pad<3>;

    /// Every window of an image as a column: `[n, c, h, w]` to `[n, c kh kw, windows]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.Unfold(2)(remat.ones(1, 3, 4, 4)).shape
    /// (1, 12, 9)
    Unfold: OneInput = Windows;

    /// The sum of all columns in their windows, of an image of `output_size`: `[n, c kh kw, windows]` to `[n, c, h, w]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.Fold(4, 2, stride=2)(remat.ones(1, 12, 4)).shape
    /// (1, 3, 4, 4)
    Fold: OneInput = Fold;
}
