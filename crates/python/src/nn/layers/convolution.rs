//! Convolutions.

use remat::nn::{self, ConvOptions, Extents, InitCx, Layer};
use remat::ops::schema::Params;
use remat::{PadMode, Padding, Result};

use super::arguments::{Around, ConvPadding, Named, PerAxis, Places};
use super::{LayerOptions, classes};
use crate::nn::compiled::Built;

/// A convolution, or its transpose, over `D` axes.
#[derive(Params)]
#[op(crate = remat::ops)]
struct Conv<const D: usize, const TRANSPOSED: bool> {
    #[param(rename = "inputs")]
    in_channels: usize,
    #[param(rename = "outputs")]
    out_channels: usize,
    #[param(rename = "kernel")]
    kernel_size: PerAxis<D>,
    #[param(default = PerAxis(ConvOptions::<D>::default().stride.0))]
    stride: PerAxis<D>,
    #[param(default = ConvPadding::Places(Around([[0; 2]; D])))]
    padding: ConvPadding<D>,
    #[param(default = PerAxis(ConvOptions::<D>::default().dilation.0))]
    dilation: PerAxis<D>,
    #[param(default = ConvOptions::<D>::default().groups)]
    groups: usize,
    #[param(default = ConvOptions::<D>::default().bias)]
    bias: bool,
    #[param(flatten)]
    places: Places,
    #[param(default = PerAxis([0; D]))]
    output_padding: PerAxis<D>,
    #[param(default = Named(ConvOptions::<D>::default().padding_mode))]
    padding_mode: Named<PadMode>,
}

impl<const D: usize, const TRANSPOSED: bool> Conv<D, TRANSPOSED> {
    /// The library's options, without `same` padding.
    fn options(&self) -> ConvOptions<D> {
        let padding = match self.padding {
            ConvPadding::Same => Padding::NONE,
            ConvPadding::Places(Around(places)) => Padding::from(places),
        };
        ConvOptions {
            stride: Extents(self.stride.0),
            padding,
            padding_mode: self.padding_mode.0,
            dilation: Extents(self.dilation.0),
            groups: self.groups,
            bias: self.bias,
            ..ConvOptions::default()
        }
    }
}

impl<const D: usize> LayerOptions for Conv<D, false>
where
    nn::Conv<D>: Layer + 'static,
{
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let (mut options, kernel) = (self.options(), self.kernel_size.0);
        if matches!(self.padding, ConvPadding::Same) {
            options = options.with_same_padding(kernel)?;
        }
        nn::Conv::<D>::with(cx, self.in_channels, self.out_channels, kernel, options).map(Built::one)
    }
}

impl<const D: usize> LayerOptions for Conv<D, true>
where
    nn::ConvTranspose<D>: Layer + 'static,
{
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let (options, kernel) = (self.options(), self.kernel_size.0);
        let layer = nn::ConvTranspose::<D>::with(cx, self.in_channels, self.out_channels, kernel, options)?;
        Ok(Built::one(layer.with_output_padding(self.output_padding.0)))
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct ConvNorm {
    #[param(rename = "inputs")]
    in_channels: usize,
    #[param(rename = "outputs")]
    out_channels: usize,
    #[param(rename = "kernel")]
    kernel_size: usize,
    #[param(default = 1)]
    stride: usize,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for ConvNorm {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let layer = nn::ConvNorm::new(cx, self.in_channels, self.out_channels, self.kernel_size, self.stride);
        layer.map(Built::one)
    }
}

/// How the windows of a convolution lie whose taps are chosen place by place.
#[derive(Params)]
#[op(crate = remat::ops)]
struct Placed {
    #[param(rename = "kernel")]
    kernel_size: PerAxis<2>,
    #[param(default = PerAxis([1; 2]))]
    stride: PerAxis<2>,
    #[param(default = Around([[0; 2]; 2]))]
    padding: Around<2>,
    #[param(default = PerAxis([1; 2]))]
    dilation: PerAxis<2>,
    #[param(default = 1)]
    groups: usize,
}

impl Placed {
    fn options(&self, bias: bool) -> ConvOptions<2> {
        ConvOptions {
            stride: Extents(self.stride.0),
            padding: Padding::from(self.padding.0),
            dilation: Extents(self.dilation.0),
            groups: self.groups,
            bias,
            ..ConvOptions::default()
        }
    }
}

/// A convolution whose taps are chosen place by place, of other tensors.
#[derive(Params)]
#[op(crate = remat::ops)]
struct PlacedConv<const BY_REGION: bool> {
    #[param(rename = "inputs")]
    in_channels: usize,
    #[param(rename = "outputs")]
    out_channels: usize,
    #[param(flatten)]
    windows: Placed,
    #[param(default = true)]
    bias: bool,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for PlacedConv<false> {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let (options, kernel) = (self.windows.options(self.bias), self.windows.kernel_size.0);
        nn::DeformConv2d::with(cx, self.in_channels, self.out_channels, kernel, options).map(Built::multi_input)
    }
}

impl LayerOptions for PlacedConv<true> {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let (options, kernel) = (self.windows.options(self.bias), self.windows.kernel_size.0);
        let layer = nn::RegionRestrictedConv2d::with(cx, self.in_channels, self.out_channels, kernel, options);
        layer.map(Built::multi_input)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct LocalConv {
    #[param(rename = "inputs")]
    in_channels: usize,
    #[param(rename = "outputs")]
    out_channels: usize,
    size: PerAxis<2>,
    #[param(flatten)]
    windows: Placed,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for LocalConv {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let (options, kernel) = (self.windows.options(false), self.windows.kernel_size.0);
        nn::LocalConv2d::with(cx, self.in_channels, self.out_channels, self.size.0, kernel, options).map(Built::one)
    }
}

classes! {
    /// Cross-correlation over one axis: `[n, in, l]` to `[n, out, l']`; `weight: [out, in / groups, k]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.Conv1d(2, 3, 3, padding=1)(remat.ones(1, 2, 5)).shape
    /// (1, 3, 5)
    Conv1d: OneInput = Conv<1, false>;

    /// Cross-correlation over two axes: `[n, in, h, w]` to `[n, out, h', w']`; `weight: [out, in / groups, r, s]`.
    ///
    /// Padding is a number, one for each axis, a pair of begin and end for each, or `"same"`, which keeps the extents; it is of
    /// `padding_mode` `zeros`, `reflect`, `replicate` or `circular`. Errors at the call: AxisError, ShapeError.
    ///
    /// >>> import remat
    /// >>> remat.nn.Conv2d(1, 4, 3, stride=2)(remat.ones(2, 1, 9, 9)).shape
    /// (2, 4, 4, 4)
    Conv2d: OneInput = Conv<2, false>;

    /// Cross-correlation over three axes: `[n, in, d, h, w]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.Conv3d(1, 2, 2)(remat.ones(1, 1, 3, 3, 3)).shape
    /// (1, 2, 2, 2, 2)
    Conv3d: OneInput = Conv<3, false>;

    /// The gradient of a convolution as a layer: `weight: [in, out / groups, k]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.ConvTranspose1d(1, 1, 2, stride=2)(remat.ones(1, 1, 3)).shape
    /// (1, 1, 6)
    ConvTranspose1d: OneInput = Conv<1, true>;

    /// As `ConvTranspose1d` over two axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.ConvTranspose2d(1, 1, 2, stride=2)(remat.ones(1, 1, 3, 3)).shape
    /// (1, 1, 6, 6)
    ConvTranspose2d: OneInput = Conv<2, true>;

    /// As `ConvTranspose1d` over three axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.ConvTranspose3d(1, 1, 2)(remat.ones(1, 1, 2, 2, 2)).shape
    /// (1, 1, 3, 3, 3)
    ConvTranspose3d: OneInput = Conv<3, true>;

    /// A convolution without bias and its batch normalisation, with He et al.'s first values by fan-out; padding keeps the extents.
    ///
    /// >>> import remat
    /// >>> net = remat.nn.ConvNorm(1, 4, 3, stride=2)
    /// >>> net(remat.ones(2, 1, 8, 8)).shape, [n for n, _ in net.named_parameters()]
    /// ((2, 4, 4, 4), ['conv.weight', 'norm.weight', 'norm.bias'])
    ConvNorm: OneInput = ConvNorm;

    /// A convolution whose taps are moved (Dai et al., ICCV 2017), and weighted by a mask if there is one (Zhu et al., CVPR 2019), as
    /// `torchvision.ops.DeformConv2d`.
    ///
    /// >>> import remat
    /// >>> layer = remat.nn.DeformConv2d(1, 2, 3)
    /// >>> layer(remat.ones(1, 1, 5, 5), remat.zeros(1, 18, 3, 3)).shape
    /// (1, 2, 3, 3)
    DeformConv2d: DeformCall = PlacedConv<false>;

    /// A convolution with a kernel of its own at each place, without a bias, for images of `size`, height and width.
    ///
    /// >>> import remat
    /// >>> remat.nn.LocalConv2d(1, 2, size=5, kernel_size=3)(remat.ones(1, 1, 5, 5)).shape
    /// (1, 2, 3, 3)
    LocalConv2d: OneInput = LocalConv;

    /// A convolution that sees only pixels of each place's own region.
    ///
    /// >>> import remat
    /// >>> regions = remat.zeros(1, 1, 5, 5, dtype="int32")
    /// >>> layer = remat.nn.RegionRestrictedConv2d(1, 2, 3, padding=1)
    /// >>> layer(remat.ones(1, 1, 5, 5), regions, regions).shape
    /// (1, 2, 5, 5)
    RegionRestrictedConv2d: RegionCall = PlacedConv<true>;
}
