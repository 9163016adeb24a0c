//! Pools, and images of another size.

use remat::nn::{self, InitCx, Layer, Pooling, Sizes};
use remat::ops::schema::{Deserialize, Deserializer, ParamType, ParamValue, Params, Serialize, Serializer};
use remat::tensor::Interpolate;
use remat::{Divisor, Error, ErrorKind, InterpolateOptions, Padding, Result};

use super::arguments::{Around, Named, Numbers, PerAxis};
use super::{LayerOptions, classes};
use crate::nn::compiled::Built;
use crate::nn::multi_input::MultiInput;

/// Windows that lie side by side unless a stride is given.
fn pooling<const D: usize>(
    kernel: PerAxis<D>,
    stride: Option<PerAxis<D>>,
    padding: Around<D>,
    dilation: PerAxis<D>,
    ceil_mode: bool,
) -> Pooling<D> {
    Pooling {
        kernel: kernel.0,
        stride: stride.unwrap_or(kernel).0,
        padding: Padding::from(padding.0),
        dilation: dilation.0,
        ceil_mode,
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct MaxPool<const D: usize> {
    #[param(rename = "kernel")]
    kernel_size: PerAxis<D>,
    stride: Option<PerAxis<D>>,
    #[param(default = Around([[0; 2]; D]))]
    padding: Around<D>,
    #[param(default = PerAxis([1; D]))]
    dilation: PerAxis<D>,
    #[param(default = false)]
    ceil_mode: bool,
}

impl<const D: usize> LayerOptions for MaxPool<D>
where
    nn::MaxPool<D>: Layer + 'static,
{
    fn resolved(self) -> Self {
        MaxPool { stride: self.stride.or(Some(self.kernel_size)), ..self }
    }

    fn build(self, _: &mut InitCx) -> Result<Built> {
        let pooling = pooling(self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode);
        Ok(Built::one(nn::MaxPool { pooling }))
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct AvgPool<const D: usize> {
    #[param(rename = "kernel")]
    kernel_size: PerAxis<D>,
    stride: Option<PerAxis<D>>,
    #[param(default = Around([[0; 2]; D]))]
    padding: Around<D>,
    #[param(default = false)]
    ceil_mode: bool,
    #[param(default = true)]
    count_include_pad: bool,
    #[param(rename = "divisor")]
    divisor_override: Option<usize>,
}

impl<const D: usize> LayerOptions for AvgPool<D>
where
    nn::AvgPool<D>: Layer + 'static,
{
    fn resolved(self) -> Self {
        AvgPool { stride: self.stride.or(Some(self.kernel_size)), ..self }
    }

    fn build(self, _: &mut InitCx) -> Result<Built> {
        let counted = if self.count_include_pad { Divisor::WithPadding } else { Divisor::WithoutPadding };
        let divisor = self.divisor_override.map_or(counted, Divisor::Of);
        let pooling = pooling(self.kernel_size, self.stride, self.padding, PerAxis([1; D]), self.ceil_mode);
        Ok(Built::one(nn::AvgPool { pooling, divisor }))
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct LpPool<const D: usize> {
    #[param(rename = "p")]
    norm_type: f64,
    #[param(rename = "kernel")]
    kernel_size: PerAxis<D>,
    stride: Option<PerAxis<D>>,
    #[param(default = false)]
    ceil_mode: bool,
}

impl<const D: usize> LayerOptions for LpPool<D>
where
    nn::LpPool<D>: Layer + 'static,
{
    fn resolved(self) -> Self {
        LpPool { stride: self.stride.or(Some(self.kernel_size)), ..self }
    }

    fn build(self, _: &mut InitCx) -> Result<Built> {
        let around = Around([[0; 2]; D]);
        let pooling = pooling(self.kernel_size, self.stride, around, PerAxis([1; D]), self.ceil_mode);
        Ok(Built::one(nn::LpPool { p: self.norm_type, pooling }))
    }
}

/// Layers that take the extents of what they give.
macro_rules! sized {
    ($($name:ident: $kind:ident => |$size:ident| $layer:expr;)*) => { $(
        #[derive(Params)]
        #[op(crate = remat::ops)]
        struct $name<const D: usize> {
            #[param(rename = "size")]
            output_size: PerAxis<D>,
        }

        impl<const D: usize> LayerOptions for $name<D>
        where
            nn::$name<D>: $kind + 'static,
        {
            fn build(self, _: &mut InitCx) -> Result<Built> {
                let $size = self.output_size.0;
                Ok($layer)
            }
        }
    )* };
}
sized! {
    AdaptiveAvgPool: Layer => |size| Built::one(nn::AdaptiveAvgPool::<D>::new(size));
    AdaptiveMaxPool: Layer => |size| Built::one(nn::AdaptiveMaxPool::<D>::new(size));
    MaxUnpool: MultiInput => |size| Built::multi_input(nn::MaxUnpool::<D> { size });
}

/// What is put between pixels, under the names of PyTorch too, which has one for each number of axes.
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
        let read = serde_json::from_value(own.into()).map_err(remat::ops::schema::ReadError::custom);
        read.map(ResizeMode)
    }
}

impl ParamValue for ResizeMode {
    fn param_type() -> ParamType {
        Named::<Interpolate>::param_type()
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct Upsample {
    size: Option<Numbers<usize>>,
    #[param(rename = "factor")]
    scale_factor: Option<Numbers<f64>>,
    #[param(default = ResizeMode(Named(Interpolate::Nearest)))]
    mode: ResizeMode,
    #[param(default = Some(false))]
    align_corners: Option<bool>,
    #[param(default = false)]
    antialias: bool,
    #[param(rename = "recompute_scale", default = false)]
    recompute_scale_factor: bool,
}

impl LayerOptions for Upsample {
    fn resolved(self) -> Self {
        Upsample { align_corners: self.align_corners.or(Some(false)), ..self }
    }

    fn build(self, _: &mut InitCx) -> Result<Built> {
        let sizes = match (self.size, self.scale_factor) {
            (Some(Numbers(size)), None) => Sizes::To(size),
            (None, Some(Numbers(factor))) => Sizes::By(factor),
            _ => return Err(Error::new(ErrorKind::Value, "either `size` or `scale_factor` is given")),
        };
        let options = InterpolateOptions {
            mode: self.mode.0.0,
            align_corners: self.align_corners.unwrap_or_default(),
            antialias: self.antialias,
            recompute_scale: self.recompute_scale_factor,
        };
        Ok(Built::one(nn::Upsample::with(sizes, options)))
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
