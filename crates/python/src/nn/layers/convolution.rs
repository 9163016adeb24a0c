//! Convolutions.

use remat::nn::{self, ConvOptions, Extents, Layer};
use remat::{Error, ErrorKind, PadMode, Padding};

use super::arguments::{Around, ConvPadding, Named, PerAxis, Places};
use super::{classes, options};

options! {
    Conv<D> {
        in_channels as "inputs": usize, out_channels as "outputs": usize, kernel_size as "kernel": PerAxis<D>,
        stride: PerAxis<D> = PerAxis([1; D]), padding: ConvPadding<D> = ConvPadding::Places(Around::NONE),
        dilation: PerAxis<D> = PerAxis([1; D]), groups: usize = 1, bias: bool = true, [flatten] places: Places,
        padding_mode: Named<PadMode> = Named(PadMode::Zeros),
    } where nn::Conv<D>: Layer => one |o, cx| {
        let kernel = o.kernel_size.0;
        let options = if matches!(o.padding, ConvPadding::Same) { o.options().with_same_padding(kernel)? } else { o.options() };
        nn::Conv::<D>::with(cx, o.in_channels, o.out_channels, kernel, options)
    };

    ConvTranspose<D> {
        [flatten] conv: Conv<D>, output_padding: PerAxis<D> = PerAxis([0; D])
    } where nn::ConvTranspose<D>: Layer => one |o, cx| {
        if matches!(o.conv.padding, ConvPadding::Same) {
            return Err(Error::new(ErrorKind::Value, "a transposed convolution takes padding in numbers, and no `same`"));
        }
        let (options, Conv { in_channels, out_channels, kernel_size, .. }) = (o.conv.options(), o.conv);
        let layer = nn::ConvTranspose::<D>::with(cx, in_channels, out_channels, kernel_size.0, options);
        layer.map(|layer| layer.with_output_padding(o.output_padding.0))
    };

    ConvNorm {
        in_channels as "inputs": usize, out_channels as "outputs": usize, kernel_size as "kernel": usize, stride: usize = 1,
        [flatten] places: Places
    } => one |o, cx| nn::ConvNorm::new(cx, o.in_channels, o.out_channels, o.kernel_size, o.stride);

    DeformConv {
        in_channels as "inputs": usize, out_channels as "outputs": usize, [flatten] windows: Windows, bias: bool = true, [flatten] places: Places
    } => multi_input |o, cx| {
        nn::DeformConv2d::with(cx, o.in_channels, o.out_channels, o.windows.kernel_size.0, o.windows.options(o.bias))
    };

    RegionConv {
        in_channels as "inputs": usize, out_channels as "outputs": usize, [flatten] windows: Windows, bias: bool = true, [flatten] places: Places
    } => multi_input |o, cx| {
        nn::RegionRestrictedConv2d::with(cx, o.in_channels, o.out_channels, o.windows.kernel_size.0, o.windows.options(o.bias))
    };

    LocalConv {
        in_channels as "inputs": usize, out_channels as "outputs": usize, size: PerAxis<2>, [flatten] windows: Windows, [flatten] places: Places
    } => one |o, cx| {
        let options = o.windows.options(false);
        nn::LocalConv2d::with(cx, o.in_channels, o.out_channels, o.size.0, o.windows.kernel_size.0, options)
    };

    /// The geometry of a convolution's windows, where the layer chooses taps for each place.
    Windows {
        kernel_size as "kernel": PerAxis<2>, stride: PerAxis<2> = PerAxis([1; 2]), padding: Around<2> = Around::NONE,
        dilation: PerAxis<2> = PerAxis([1; 2]), groups: usize = 1
    };
}

impl<const D: usize> Conv<D> {
    /// The library's options, without `same` padding.
    fn options(&self) -> ConvOptions<D> {
        let padding = match self.padding {
            ConvPadding::Same => Padding::NONE,
            ConvPadding::Places(around) => around.padding(),
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

impl Windows {
    fn options(&self, bias: bool) -> ConvOptions<2> {
        let (stride, dilation) = (Extents(self.stride.0), Extents(self.dilation.0));
        let padding = self.padding.padding();
        ConvOptions { stride, padding, dilation, groups: self.groups, bias, ..ConvOptions::default() }
    }
}

classes! {
    /// Cross-correlation over one axis: `[n, in, l]` to `[n, out, l']`; `weight: [out, in / groups, k]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.Conv1d(2, 3, 3, padding=1)(remat.ones(1, 2, 5)).shape
    /// (1, 3, 5)
    Conv1d: OneInput = Conv<1>;

    /// Cross-correlation over two axes: `[n, in, h, w]` to `[n, out, h', w']`; `weight: [out, in / groups, r, s]`.
    ///
    /// Padding is a number, one for each axis, a pair of begin and end for each, or `"same"`, which keeps the extents; it is of
    /// `padding_mode` `zeros`, `reflect`, `replicate` or `circular`. Errors at the call: AxisError, ShapeError.
    ///
    /// >>> import remat
    /// >>> remat.nn.Conv2d(1, 4, 3, stride=2)(remat.ones(2, 1, 9, 9)).shape
    /// (2, 4, 4, 4)
    Conv2d: OneInput = Conv<2>;

    /// Cross-correlation over three axes: `[n, in, d, h, w]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.Conv3d(1, 2, 2)(remat.ones(1, 1, 3, 3, 3)).shape
    /// (1, 2, 2, 2, 2)
    Conv3d: OneInput = Conv<3>;

    /// The gradient of a convolution as a layer: `weight: [in, out / groups, k]`.
    ///
    /// >>> import remat
    /// >>> remat.nn.ConvTranspose1d(1, 1, 2, stride=2)(remat.ones(1, 1, 3)).shape
    /// (1, 1, 6)
    ConvTranspose1d: OneInput = ConvTranspose<1>;

    /// As `ConvTranspose1d` over two axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.ConvTranspose2d(1, 1, 2, stride=2)(remat.ones(1, 1, 3, 3)).shape
    /// (1, 1, 6, 6)
    ConvTranspose2d: OneInput = ConvTranspose<2>;

    /// As `ConvTranspose1d` over three axes.
    ///
    /// >>> import remat
    /// >>> remat.nn.ConvTranspose3d(1, 1, 2)(remat.ones(1, 1, 2, 2, 2)).shape
    /// (1, 1, 3, 3, 3)
    ConvTranspose3d: OneInput = ConvTranspose<3>;

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
    DeformConv2d: DeformCall = DeformConv;

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
    RegionRestrictedConv2d: RegionCall = RegionConv;
}
