//! Pools, and images of another size.

use remat::nn::{self, Pooling, Sizes};
use remat::ops::schema::{Deserialize, Deserializer, ParamType, ParamValue, ReadError, Serialize, Serializer};
use remat::tensor::Interpolate;
use remat::{Divisor, Error, ErrorKind, InterpolateOptions};

use super::arguments::{Around, Named, Numbers, PerAxis};
use super::{classes, options};

/// The geometry of windows. They lie side by side unless a stride is given.
fn pooling<const D: usize>(
    kernel: PerAxis<D>,
    stride: Option<PerAxis<D>>,
    padding: Around<D>,
    dilation: PerAxis<D>,
    ceil_mode: bool,
) -> Pooling<D> {
    let (stride, padding) = (stride.unwrap_or(kernel).0, padding.padding());
    Pooling { kernel: kernel.0, stride, padding, dilation: dilation.0, ceil_mode }
}

options! {
    MaxPool<D> {
        kernel_size as "kernel": PerAxis<D>, stride: Option<PerAxis<D>>, padding: Around<D> = Around::NONE,
        dilation: PerAxis<D> = PerAxis([1; D]), ceil_mode: bool = false
    } kept |o| MaxPool { stride: o.stride.or(Some(o.kernel_size)), ..o } => one |o, _cx| {
        Ok(nn::MaxPool { pooling: pooling(o.kernel_size, o.stride, o.padding, o.dilation, o.ceil_mode) })
    };

    AvgPool<D> {
        kernel_size as "kernel": PerAxis<D>, stride: Option<PerAxis<D>>, padding: Around<D> = Around::NONE,
        ceil_mode: bool = false, count_include_pad: bool = true, divisor_override as "divisor": Option<usize>
    } kept |o| AvgPool { stride: o.stride.or(Some(o.kernel_size)), ..o } => one |o, _cx| {
        let counted = if o.count_include_pad { Divisor::WithPadding } else { Divisor::WithoutPadding };
        let pooling = pooling(o.kernel_size, o.stride, o.padding, PerAxis([1; D]), o.ceil_mode);
        Ok(nn::AvgPool { pooling, divisor: o.divisor_override.map_or(counted, Divisor::Of) })
    };

    LpPool<D> {
        norm_type as "p": f64, kernel_size as "kernel": PerAxis<D>, stride: Option<PerAxis<D>>, ceil_mode: bool = false
    } kept |o| LpPool { stride: o.stride.or(Some(o.kernel_size)), ..o } => one |o, _cx| {
        let pooling = pooling(o.kernel_size, o.stride, Around::NONE, PerAxis([1; D]), o.ceil_mode);
        Ok(nn::LpPool { p: o.norm_type, pooling })
    };

    AdaptiveAvgPool<D> { output_size as "size": PerAxis<D> } => one |o, _cx| Ok(nn::AdaptiveAvgPool::<D>::new(o.output_size.0));
    AdaptiveMaxPool<D> { output_size as "size": PerAxis<D> } => one |o, _cx| Ok(nn::AdaptiveMaxPool::<D>::new(o.output_size.0));
    MaxUnpool<D> { output_size as "size": PerAxis<D> } => multi_input |o, _cx| Ok(nn::MaxUnpool::<D> { size: o.output_size.0 });

    Upsample {
        size: Option<Numbers<usize>>, scale_factor as "factor": Option<Numbers<f64>>,
        mode: ResizeMode = ResizeMode(Named(Interpolate::Nearest)), align_corners: Option<bool> = Some(false), antialias: bool = false,
        recompute_scale_factor as "recompute_scale": bool = false
    } kept |o| Upsample { align_corners: o.align_corners.or(Some(false)), ..o } => one |o, _cx| {
        let sizes = match (o.size, o.scale_factor) {
            (Some(Numbers(size)), None) => Sizes::To(size),
            (None, Some(Numbers(factor))) => Sizes::By(factor),
            _ => return Err(Error::new(ErrorKind::Value, "either `size` or `scale_factor` is given")),
        };
        let (align_corners, recompute_scale) = (o.align_corners.unwrap_or_default(), o.recompute_scale_factor);
        let options = InterpolateOptions { mode: o.mode.0.0, align_corners, antialias: o.antialias, recompute_scale };
        Ok(nn::Upsample::with(sizes, options))
    };
}

/// The rule of interpolation. PyTorch's names, one for each number of axes, are accepted too.
#[derive(Clone, Copy)]
struct ResizeMode(Named<Interpolate>);

impl Serialize for ResizeMode {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ResizeMode {
    fn deserialize<F: Deserializer<'de>>(from: F) -> std::result::Result<Self, F::Error> {
        let name = String::deserialize(from)?;
        let own = match name.as_str() {
            "nearest-exact" => "nearest_exact",
            "bilinear" | "trilinear" => "linear",
            "bicubic" => "cubic",
            other => other,
        };
        let read = serde_json::from_value(own.into()).map_err(ReadError::custom);
        read.map(ResizeMode)
    }
}

impl ParamValue for ResizeMode {
    fn param_type() -> ParamType {
        Named::<Interpolate>::param_type()
    }
}

classes! {
    /// The largest of each window of the last axis: `[n, c, l]`. Windows lie side by side unless `stride` says otherwise; with
    /// `ceil_mode` one may end beyond the padding.
    ///
    /// >>> import remat
    /// >>> remat.nn.MaxPool1d(2)(remat.tensor([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
    /// [[[3.0, 2.0]]]
    MaxPool1d: OneInput = MaxPool<1>;

    /// The largest of each window of the last three axes: `[n, c, d, h, w]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.MaxPool3d(2)(remat.ones(1, 1, 4, 4, 4)).shape
    /// (1, 1, 2, 2, 2)
    MaxPool3d: OneInput = MaxPool<3>;

    /// The mean of each window of the last axis: `[n, c, l]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.AvgPool1d(2)(remat.tensor([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
    /// [[[2.0, 1.0]]]
    AvgPool1d: OneInput = AvgPool<1>;

    /// The mean of each window of the last three axes: `[n, c, d, h, w]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.AvgPool3d(2)(remat.ones(1, 1, 4, 4, 4)).shape
    /// (1, 1, 2, 2, 2)
    AvgPool3d: OneInput = AvgPool<3>;

    /// The `norm_type`-norm of each window of the last axis: `[n, c, l]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.LPPool1d(2.0, 2)(remat.tensor([[[3.0, 4.0]]])).tolist()
    /// [[[5.0]]]
    LPPool1d: OneInput = LpPool<1>;

    /// As `LPPool1d`, of the last two axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.LPPool2d(1.0, 2)(remat.ones(1, 1, 2, 2)).tolist()
    /// [[[[4.0]]]]
    LPPool2d: OneInput = LpPool<2>;

    /// As `LPPool1d`, of the last three axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.LPPool3d(1.0, 2)(remat.ones(1, 1, 2, 2, 2)).tolist()
    /// [[[[[8.0]]]]]
    LPPool3d: OneInput = LpPool<3>;

    /// The mean of each of `output_size` windows that cover the last axis.
    ///
    /// >>> import remat
    /// >>> remat.nn.AdaptiveAvgPool1d(2)(remat.ones(2, 3, 5)).shape
    /// (2, 3, 2)
    AdaptiveAvgPool1d: OneInput = AdaptiveAvgPool<1>;

    /// The mean of each of `output_size` windows that cover the last two axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.AdaptiveAvgPool2d(1)(remat.ones(2, 3, 5, 7)).shape
    /// (2, 3, 1, 1)
    AdaptiveAvgPool2d: OneInput = AdaptiveAvgPool<2>;

    /// The mean of each of `output_size` windows that cover the last three axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.AdaptiveAvgPool3d(2)(remat.ones(1, 1, 3, 4, 5)).shape
    /// (1, 1, 2, 2, 2)
    AdaptiveAvgPool3d: OneInput = AdaptiveAvgPool<3>;

    /// The largest of each of `output_size` windows that cover the last axis.
    ///
    /// >>> import remat
    /// >>> remat.nn.AdaptiveMaxPool1d(2)(remat.ones(2, 3, 5)).shape
    /// (2, 3, 2)
    AdaptiveMaxPool1d: OneInput = AdaptiveMaxPool<1>;

    /// The largest of each of `output_size` windows that cover the last two axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.AdaptiveMaxPool2d((1, 2))(remat.ones(2, 3, 5, 7)).shape
    /// (2, 3, 1, 2)
    AdaptiveMaxPool2d: OneInput = AdaptiveMaxPool<2>;

    /// The largest of each of `output_size` windows that cover the last three axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.AdaptiveMaxPool3d(2)(remat.ones(1, 1, 3, 4, 5)).shape
    /// (1, 1, 2, 2, 2)
    AdaptiveMaxPool3d: OneInput = AdaptiveMaxPool<3>;

    /// The elements in the places that a max pool with indices gave, zeros elsewhere, of an output of `output_size`.
    ///
    /// >>> import remat
    /// >>> remat.nn.MaxUnpool1d(4)(remat.tensor([[[3.0, 2.0]]]), remat.tensor([[[1, 2]]])).tolist()
    /// [[[0.0, 3.0, 2.0, 0.0]]]
    MaxUnpool1d: UnpoolCall = MaxUnpool<1>;

    /// As `MaxUnpool1d`, of images; places count over both axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.MaxUnpool2d(2)(remat.tensor([[[[3.0]]]]), remat.tensor([[[[2]]]])).tolist()
    /// [[[[0.0, 0.0], [3.0, 0.0]]]]
    MaxUnpool2d: UnpoolCall = MaxUnpool<2>;

    /// As `MaxUnpool1d`, of volumes.
    ///
    /// >>> import remat
    /// >>> remat.nn.MaxUnpool3d(2)(remat.ones(1, 1, 1, 1, 1), remat.zeros(1, 1, 1, 1, 1, dtype="int64")).shape
    /// (1, 1, 2, 2, 2)
    MaxUnpool3d: UnpoolCall = MaxUnpool<3>;

    /// Images of another size: `[n, c, size..]` of one to three spatial axes. `size` are extents, `scale_factor` factors, one for all
    /// or one for each. `mode` is `nearest`, `nearest_exact`, `linear` (also `bilinear`, `trilinear`), `cubic` (`bicubic`) or `area`.
    /// Errors at the call: AxisError, DTypeError, ShapeError, ArgumentError.
    ///
    /// >>> import remat
    /// >>> remat.nn.Upsample(scale_factor=2)(remat.tensor([[[1.0, 2.0]]])).tolist()
    /// [[[1.0, 1.0, 2.0, 2.0]]]
    Upsample: OneInput = Upsample;
}
