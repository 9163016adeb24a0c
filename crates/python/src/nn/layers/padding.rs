//! Padding, and windows as columns.

use remat::nn::{self, PadMode, Patches};

use super::arguments::{Around, Beyond, Named, PerAxis};
use super::{classes, options};

options! {
    Pad<D> { padding: Around<D>, mode: Named<Beyond> = Named(Beyond(PadMode::Zeros)), value: f64 = 0.0 } => one |o, _cx| {
        let Named(Beyond(mode)) = o.mode;
        let mode = if let PadMode::Constant(_) = mode { PadMode::Constant(o.value) } else { mode };
        Ok(nn::Pad::with(o.padding.padding(), mode))
    };

    /// The geometry of windows over an image.
    Windows {
        kernel_size as "kernel": PerAxis<2>, dilation: PerAxis<2> = PerAxis([1; 2]), padding: Around<2> = Around::NONE,
        stride: PerAxis<2> = PerAxis([1; 2])
    } => one |o, _cx| Ok(nn::Unfold { patches: o.patches() });

    Fold { output_size as "size": PerAxis<2>, [flatten] windows: Windows }
        => one |o, _cx| Ok(nn::Fold { size: o.output_size.0, patches: o.windows.patches() });
}

impl Windows {
    fn patches(&self) -> Patches {
        let padding = self.padding.padding();
        Patches { kernel: self.kernel_size.0, stride: self.stride.0, padding, dilation: self.dilation.0 }
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
