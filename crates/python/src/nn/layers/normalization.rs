//! Normalisation.

use remat::nn::{self, BatchNormOptions, InitCx, Layer};
use remat::ops::schema::Params;
use remat::{Result, Shape};

use super::arguments::{Numbers, PlacesAlone};
use super::{LayerOptions, classes};
use crate::nn::compiled::Built;

#[derive(Params)]
#[op(crate = remat::ops)]
struct BatchNorm<const D: usize> {
    #[param(rename = "channels")]
    num_features: usize,
    #[param(default = BatchNormOptions::default().eps)]
    eps: f64,
    /// None for the mean over all batches.
    #[param(default = Some(BatchNormOptions::default().momentum))]
    momentum: Option<f64>,
    #[param(default = BatchNormOptions::default().affine)]
    affine: bool,
    #[param(default = BatchNormOptions::default().track_running_stats)]
    track_running_stats: bool,
    #[param(flatten)]
    places: PlacesAlone,
}

impl<const D: usize> LayerOptions for BatchNorm<D>
where
    nn::BatchNorm<D>: Layer + 'static,
{
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let default = BatchNormOptions::default();
        let options = BatchNormOptions {
            eps: self.eps,
            momentum: self.momentum.unwrap_or(default.momentum),
            cumulative: self.momentum.is_none(),
            affine: self.affine,
            track_running_stats: self.track_running_stats,
            ..default
        };
        nn::BatchNorm::<D>::with(cx, self.num_features, options).map(Built::one)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct LayerNorm {
    #[param(rename = "shape")]
    normalized_shape: Numbers<usize>,
    #[param(default = 1e-5)]
    eps: f64,
    #[param(flatten)]
    places: PlacesAlone,
}

impl LayerOptions for LayerNorm {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::LayerNorm::with(cx, Shape::from(&self.normalized_shape.0[..]), self.eps).map(Built::one)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct RmsNorm {
    #[param(rename = "shape")]
    normalized_shape: Numbers<usize>,
    #[param(default = 1e-6)]
    eps: f64,
    #[param(flatten)]
    places: PlacesAlone,
}

impl LayerOptions for RmsNorm {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::RmsNorm::with(cx, Shape::from(&self.normalized_shape.0[..]), self.eps).map(Built::one)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct GroupNorm {
    #[param(rename = "groups")]
    num_groups: usize,
    #[param(rename = "channels")]
    num_channels: usize,
    #[param(default = 1e-5)]
    eps: f64,
    #[param(default = true)]
    affine: bool,
    #[param(flatten)]
    places: PlacesAlone,
}

impl LayerOptions for GroupNorm {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::GroupNorm::with(cx, self.num_groups, self.num_channels, self.eps, self.affine).map(Built::one)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct InstanceNorm {
    #[param(rename = "channels")]
    num_features: usize,
    #[param(default = 1e-5)]
    eps: f64,
    #[param(default = false)]
    affine: bool,
    #[param(flatten)]
    places: PlacesAlone,
}

impl LayerOptions for InstanceNorm {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::InstanceNorm::with(cx, self.num_features, self.eps, self.affine).map(Built::one)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct GeneralNorm {
    axes: Vec<isize>,
    shape: Numbers<usize>,
    #[param(default = 1e-5)]
    eps: f64,
    #[param(default = true)]
    affine: bool,
    #[param(flatten)]
    places: PlacesAlone,
}

impl LayerOptions for GeneralNorm {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let shape = Shape::from(&self.shape.0[..]);
        nn::GeneralNorm::with(cx, &self.axes, shape, self.eps, self.affine).map(Built::one)
    }
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
