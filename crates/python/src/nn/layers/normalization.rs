//! Normalisation.

use remat::Shape;
use remat::nn::{self, BatchNormOptions, Layer};

use super::arguments::{Numbers, PlacesAlone};
use super::{classes, options};

options! {
    // no momentum for the mean over all batches
    BatchNorm<D> {
        num_features as "channels": usize, eps: f64 = BatchNormOptions::default().eps,
        momentum: Option<f64> = Some(BatchNormOptions::default().momentum), affine: bool = BatchNormOptions::default().affine,
        track_running_stats: bool = BatchNormOptions::default().track_running_stats, [flatten] places: PlacesAlone
    } where nn::BatchNorm<D>: Layer => one |o, cx| {
        let BatchNorm { eps, affine, track_running_stats, .. } = o;
        let default = BatchNormOptions::default();
        let (momentum, cumulative) = (o.momentum.unwrap_or(default.momentum), o.momentum.is_none());
        let options = BatchNormOptions { eps, momentum, cumulative, affine, track_running_stats, ..default };
        nn::BatchNorm::<D>::with(cx, o.num_features, options)
    };

    LayerNorm { normalized_shape as "shape": Numbers<usize>, eps: f64 = 1e-5, [flatten] places: PlacesAlone }
        => one |o, cx| nn::LayerNorm::with(cx, Shape::from(&o.normalized_shape.0[..]), o.eps);

    RmsNorm { normalized_shape as "shape": Numbers<usize>, eps: f64 = 1e-6, [flatten] places: PlacesAlone }
        => one |o, cx| nn::RmsNorm::with(cx, Shape::from(&o.normalized_shape.0[..]), o.eps);

    GroupNorm {
        num_groups as "groups": usize, num_channels as "channels": usize, eps: f64 = 1e-5, affine: bool = true, [flatten] places: PlacesAlone
    } => one |o, cx| nn::GroupNorm::with(cx, o.num_groups, o.num_channels, o.eps, o.affine);

    InstanceNorm { num_features as "channels": usize, eps: f64 = 1e-5, affine: bool = false, [flatten] places: PlacesAlone }
        => one |o, cx| nn::InstanceNorm::with(cx, o.num_features, o.eps, o.affine);

    GeneralNorm { axes: Vec<isize>, shape: Numbers<usize>, eps: f64 = 1e-5, affine: bool = true, [flatten] places: PlacesAlone }
        => one |o, cx| nn::GeneralNorm::with(cx, &o.axes, Shape::from(&o.shape.0[..]), o.eps, o.affine);
}

classes! {
    /// `(x - mean) / sqrt(var + eps) weight + bias` for each channel of `[n, c]` or `[n, c, l]`; while training, of the batch. The
    /// running statistics move by `momentum`, or are means over all batches if that is None.
    ///
    /// >>> import remat
    /// >>> remat.nn.BatchNorm1d(3)(remat.rand(8, 3)).shape
    /// (8, 3)
    BatchNorm1d: OneInput = BatchNorm<1>;

    /// As `BatchNorm1d` for `[n, c, h, w]`. Running statistics are buffers, `running_mean` and `running_var`.
    ///
    /// >>> import remat
    /// >>> norm = remat.nn.BatchNorm2d(3)
    /// >>> norm(remat.rand(8, 3, 4, 4)).shape, [n for n, _ in norm.named_buffers()]
    /// ((8, 3, 4, 4), ['running_mean', 'running_var'])
    BatchNorm2d: OneInput = BatchNorm<2>;

    /// As `BatchNorm1d` for `[n, c, d, h, w]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.BatchNorm3d(2)(remat.rand(2, 2, 2, 2, 2)).shape
    /// (2, 2, 2, 2, 2)
    BatchNorm3d: OneInput = BatchNorm<3>;

    /// Normalisation over the last axes, which have the extents `normalized_shape`; `weight` and `bias` have them too.
    ///
    /// >>> import remat
    /// >>> remat.nn.LayerNorm(4)(remat.rand(2, 4)).shape
    /// (2, 4)
    LayerNorm: OneInput = LayerNorm;

    /// `x / sqrt(mean(x^2) + eps) weight` over the last axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.RMSNorm(4)(remat.rand(2, 4)).shape
    /// (2, 4)
    RMSNorm: OneInput = RmsNorm;

    /// Normalisation of each group of channels of each example. Errors: ArgumentError unless groups divide the channels.
    ///
    /// >>> import remat
    /// >>> remat.nn.GroupNorm(2, 4)(remat.rand(2, 4, 3)).shape
    /// (2, 4, 3)
    GroupNorm: OneInput = GroupNorm;

    /// Normalisation of each channel of each example, of any number of axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.InstanceNorm(4)(remat.rand(2, 4, 3)).shape
    /// (2, 4, 3)
    InstanceNorm: OneInput = InstanceNorm;

    /// Normalisation over any axes, whose extents are `shape`, in ascending order; `weight` and `bias` have them too.
    ///
    /// >>> import remat
    /// >>> remat.nn.GeneralNorm((1, 3), (4, 6))(remat.rand(2, 4, 5, 6)).shape
    /// (2, 4, 5, 6)
    GeneralNorm: OneInput = GeneralNorm;
}
