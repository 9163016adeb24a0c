//! Layers that drop while they train.

use remat::nn;

use super::arguments::Source;
use super::{classes, options};

options! {
    // `inplace` is PyTorch's, and changes nothing
    Dropout { p: f64 = 0.5, inplace: bool = false, [flatten] source: Source } => one |o, cx| nn::Dropout::new(o.p, &mut cx.rng);
    Dropout1d { p: f64 = 0.5, [flatten] source: Source } => one |o, cx| nn::Dropout1d::new(o.p, &mut cx.rng);
    Dropout2d { p: f64 = 0.5, [flatten] source: Source } => one |o, cx| nn::Dropout2d::new(o.p, &mut cx.rng);
    Dropout3d { p: f64 = 0.5, [flatten] source: Source } => one |o, cx| nn::Dropout3d::new(o.p, &mut cx.rng);
    AlphaDropout { p: f64 = 0.5, [flatten] source: Source } => one |o, cx| nn::AlphaDropout::new(o.p, &mut cx.rng);
    DropPath { p: f64 = 0.5, [flatten] source: Source } => one |o, cx| nn::DropPath::new(o.p, &mut cx.rng);
}

classes! {
    /// While training, each element is 0 with probability `p`, else divided by `1 - p`. It has a generator of its own.
    ///
    /// `inplace` is taken for PyTorch's sake and changes nothing.
    ///
    /// >>> import remat
    /// >>> remat.nn.Dropout(0.5).eval()(remat.ones(3)).tolist()
    /// [1.0, 1.0, 1.0]
    Dropout: OneInput = Dropout;

    /// While training, each channel of `[n, c, l]` is 0 with probability `p`, else divided by `1 - p` (Tompson et al., CVPR 2015).
    ///
    /// >>> import remat
    /// >>> remat.nn.Dropout1d(0.5).eval()(remat.ones(1, 1, 2)).tolist()
    /// [[[1.0, 1.0]]]
    Dropout1d: OneInput = Dropout1d;

    /// As `Dropout1d`, of `[n, c, h, w]`.
    ///
    /// >>> import remat
    /// >>> y = remat.nn.Dropout2d(0.5)(remat.ones(1, 8, 2, 2))
    /// >>> bool(((y == 0).all(axis=(2, 3)) | (y == 2).all(axis=(2, 3))).all())
    /// True
    Dropout2d: OneInput = Dropout2d;

    /// As `Dropout1d`, of `[n, c, d, h, w]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.Dropout3d(1.0)(remat.ones(1, 1, 1, 1, 2)).tolist()
    /// [[[[[0.0, 0.0]]]]]
    Dropout3d: OneInput = Dropout3d;

    /// While training, each element is at the limit of SELU with probability `p`, and all are scaled and moved so that means of 0 and
    /// variances of 1 stay (Klambauer et al., NeurIPS 2017).
    ///
    /// >>> import remat
    /// >>> remat.nn.AlphaDropout(0.5).eval()(remat.ones(2)).tolist()
    /// [1.0, 1.0]
    AlphaDropout: OneInput = AlphaDropout;

    /// While training, each example, of axis 0, is 0 with probability `p`, else divided by `1 - p`: stochastic depth (Huang et al.,
    /// ECCV 2016).
    ///
    /// >>> import remat
    /// >>> remat.nn.DropPath(1.0)(remat.ones(2, 1)).tolist()
    /// [[0.0], [0.0]]
    DropPath: OneInput = DropPath;
}
