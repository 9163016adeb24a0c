"""Compiled layers. Made by scripts/make_python_layers.py from crates/python/src/nn/layers; do not edit."""
from typing import Any, Optional, Sequence, Union

from .._remat import Device, Generator
from .._support import DTypeLike, Extents
from .attention import CrossAttentionCall, DecoderBlockCall, EncoderBlockCall, EncoderDecoderCall, SelfAttentionCall
from .calls import BagCall, DeformCall, OneInput, PairCall, RegionCall, UnpoolCall
from .recurrent import CellCall, LstmCall, LstmCellCall, RecurrentCall


class Linear(OneInput):
    """`y = x W^T + b`: `x: [.., inputs]` to `[.., outputs]`; `weight: [outputs, inputs]`, `bias: [outputs]`, PyTorch's first values.

    >>> import remat
    >>> remat.nn.Linear(4, 2)(remat.ones(3, 4)).shape
    (3, 2)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class Bilinear(PairCall):
    """`y[k] = x1 W[k] x2 + b[k]`: `x1: [.., in1_features]`, `x2: [.., in2_features]` to `[.., out_features]`;
    `weight: [out, in1, in2]`. Errors at the call: ShapeError.

    >>> import remat
    >>> remat.nn.Bilinear(4, 3, 2)(remat.ones(5, 4), remat.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class Conv1d(OneInput):
    """Cross-correlation over one axis: `[n, in, l]` to `[n, out, l']`; `weight: [out, in / groups, k]`.

    >>> import remat
    >>> remat.nn.Conv1d(2, 3, 3, padding=1)(remat.ones(1, 2, 5)).shape
    (1, 3, 5)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, padding_mode: str = "zeros",
    ) -> None:
        self._make(device, dtype, generator)


class Conv2d(OneInput):
    """Cross-correlation over two axes: `[n, in, h, w]` to `[n, out, h', w']`; `weight: [out, in / groups, r, s]`.

    Padding is a number, one for each axis, a pair of begin and end for each, or `"same"`, which keeps the extents; it is of
    `padding_mode` `zeros`, `reflect`, `replicate` or `circular`. Errors at the call: AxisError, ShapeError.

    >>> import remat
    >>> remat.nn.Conv2d(1, 4, 3, stride=2)(remat.ones(2, 1, 9, 9)).shape
    (2, 4, 4, 4)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, padding_mode: str = "zeros",
    ) -> None:
        self._make(device, dtype, generator)


class Conv3d(OneInput):
    """Cross-correlation over three axes: `[n, in, d, h, w]`.

    >>> import remat
    >>> remat.nn.Conv3d(1, 2, 2)(remat.ones(1, 1, 3, 3, 3)).shape
    (1, 2, 2, 2, 2)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, padding_mode: str = "zeros",
    ) -> None:
        self._make(device, dtype, generator)


class ConvTranspose1d(OneInput):
    """The gradient of a convolution as a layer: `weight: [in, out / groups, k]`.

    >>> import remat
    >>> remat.nn.ConvTranspose1d(1, 1, 2, stride=2)(remat.ones(1, 1, 3)).shape
    (1, 1, 6)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, padding_mode: str = "zeros", output_padding: Extents = 0,
    ) -> None:
        self._make(device, dtype, generator)


class ConvTranspose2d(OneInput):
    """As `ConvTranspose1d` over two axes.

    >>> import remat
    >>> remat.nn.ConvTranspose2d(1, 1, 2, stride=2)(remat.ones(1, 1, 3, 3)).shape
    (1, 1, 6, 6)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, padding_mode: str = "zeros", output_padding: Extents = 0,
    ) -> None:
        self._make(device, dtype, generator)


class ConvTranspose3d(OneInput):
    """As `ConvTranspose1d` over three axes.

    >>> import remat
    >>> remat.nn.ConvTranspose3d(1, 1, 2)(remat.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 3, 3, 3)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, padding_mode: str = "zeros", output_padding: Extents = 0,
    ) -> None:
        self._make(device, dtype, generator)


class ConvNorm(OneInput):
    """A convolution without bias and its batch normalisation, with He et al.'s first values by fan-out; padding keeps the extents.

    >>> import remat
    >>> net = remat.nn.ConvNorm(1, 4, 3, stride=2)
    >>> net(remat.ones(2, 1, 8, 8)).shape, [n for n, _ in net.named_parameters()]
    ((2, 4, 4, 4), ['conv.weight', 'norm.weight', 'norm.bias'])
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class DeformConv2d(DeformCall):
    """A convolution whose taps are moved (Dai et al., ICCV 2017), and weighted by a mask if there is one (Zhu et al., CVPR 2019), as
    `torchvision.ops.DeformConv2d`.

    >>> import remat
    >>> layer = remat.nn.DeformConv2d(1, 2, 3)
    >>> layer(remat.ones(1, 1, 5, 5), remat.zeros(1, 18, 3, 3)).shape
    (1, 2, 3, 3)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class LocalConv2d(OneInput):
    """A convolution with a kernel of its own at each place, without a bias, for images of `size`, height and width.

    >>> import remat
    >>> remat.nn.LocalConv2d(1, 2, size=5, kernel_size=3)(remat.ones(1, 1, 5, 5)).shape
    (1, 2, 3, 3)
    """

    def __init__(
        self, in_channels: int, out_channels: int, size: Extents, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class RegionRestrictedConv2d(RegionCall):
    """A convolution that sees only pixels of each place's own region.

    >>> import remat
    >>> regions = remat.zeros(1, 1, 5, 5, dtype="int32")
    >>> layer = remat.nn.RegionRestrictedConv2d(1, 2, 3, padding=1)
    >>> layer(remat.ones(1, 1, 5, 5), regions, regions).shape
    (1, 2, 5, 5)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class BatchNorm1d(OneInput):
    """`(x - mean) / sqrt(var + eps) weight + bias` for each channel of `[n, c]` or `[n, c, l]`; while training, of the batch. The
    running statistics move by `momentum`, or are means over all batches if that is None.

    >>> import remat
    >>> remat.nn.BatchNorm1d(3)(remat.rand(8, 3)).shape
    (8, 3)
    """

    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: Optional[float] = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class BatchNorm2d(OneInput):
    """As `BatchNorm1d` for `[n, c, h, w]`. Running statistics are buffers, `running_mean` and `running_var`.

    >>> import remat
    >>> norm = remat.nn.BatchNorm2d(3)
    >>> norm(remat.rand(8, 3, 4, 4)).shape, [n for n, _ in norm.named_buffers()]
    ((8, 3, 4, 4), ['running_mean', 'running_var'])
    """

    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: Optional[float] = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class BatchNorm3d(OneInput):
    """As `BatchNorm1d` for `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.nn.BatchNorm3d(2)(remat.rand(2, 2, 2, 2, 2)).shape
    (2, 2, 2, 2, 2)
    """

    def __init__(
        self, num_features: int, eps: float = 1e-05, momentum: Optional[float] = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class LayerNorm(OneInput):
    """Normalisation over the last axes, which have the extents `normalized_shape`; `weight` and `bias` have them too.

    >>> import remat
    >>> remat.nn.LayerNorm(4)(remat.rand(2, 4)).shape
    (2, 4)
    """

    def __init__(
        self, normalized_shape: Extents, eps: float = 1e-05, device: Optional[Device] = None, dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class RMSNorm(OneInput):
    """`x / sqrt(mean(x^2) + eps) weight` over the last axes.

    >>> import remat
    >>> remat.nn.RMSNorm(4)(remat.rand(2, 4)).shape
    (2, 4)
    """

    def __init__(
        self, normalized_shape: Extents, eps: float = 1e-06, device: Optional[Device] = None, dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class GroupNorm(OneInput):
    """Normalisation of each group of channels of each example. Errors: ArgumentError unless groups divide the channels.

    >>> import remat
    >>> remat.nn.GroupNorm(2, 4)(remat.rand(2, 4, 3)).shape
    (2, 4, 3)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-05, affine: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class InstanceNorm(OneInput):
    """Normalisation of each channel of each example, of any number of axes.

    >>> import remat
    >>> remat.nn.InstanceNorm(4)(remat.rand(2, 4, 3)).shape
    (2, 4, 3)
    """

    def __init__(
        self, num_features: int, eps: float = 1e-05, affine: bool = False, device: Optional[Device] = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class GeneralNorm(OneInput):
    """Normalisation over any axes, whose extents are `shape`, in ascending order; `weight` and `bias` have them too.

    >>> import remat
    >>> remat.nn.GeneralNorm((1, 3), (4, 6))(remat.rand(2, 4, 5, 6)).shape
    (2, 4, 5, 6)
    """

    def __init__(
        self, axes: Sequence[int], shape: Extents, eps: float = 1e-05, affine: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class Embedding(OneInput):
    """Rows of a table: indices of any shape to `[.., embedding_dim]`; the row `padding_idx` gets no gradient.

    With `sparse` a backward pass keeps the gradient of the rows that were looked up, not one as large as the table; `SGD` without
    momentum and weight decay and `SparseAdam` take it so. Where it is read (`weight.grad`, clipping), or the weight has hooks, it is a
    tensor.

    >>> import remat
    >>> remat.nn.Embedding(10, 4)(remat.tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: Optional[int] = None, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None, sparse: bool = False,
    ) -> None:
        self._make(device, dtype, generator)


class EmbeddingBag(BagCall):
    """Sums, means or largest (`mode`) of bags of rows of a table: `index: [bags, n]` to `[bags, embedding_dim]`, or `index: [n]` with
    `offsets`, where bags begin. The row `padding_idx` does not count.

    >>> import remat
    >>> bag = remat.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bag(remat.tensor([1, 2, 4, 5]), remat.tensor([0, 3])).shape
    (2, 3)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, mode: str = "mean", padding_idx: Optional[int] = None,
        include_last_offset: bool = False, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class Dropout(OneInput):
    """While training, each element is 0 with probability `p`, else divided by `1 - p`. It has a generator of its own.

    `inplace` is taken for PyTorch's sake and changes nothing.

    >>> import remat
    >>> remat.nn.Dropout(0.5).eval()(remat.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: Optional[Generator] = None) -> None:
        self._make(generator=generator)


class Dropout1d(OneInput):
    """While training, each channel of `[n, c, l]` is 0 with probability `p`, else divided by `1 - p` (Tompson et al., CVPR 2015).

    >>> import remat
    >>> remat.nn.Dropout1d(0.5).eval()(remat.ones(1, 1, 2)).tolist()
    [[[1.0, 1.0]]]
    """

    def __init__(self, p: float = 0.5, generator: Optional[Generator] = None) -> None:
        self._make(generator=generator)


class Dropout2d(OneInput):
    """As `Dropout1d`, of `[n, c, h, w]`.

    >>> import remat
    >>> y = remat.nn.Dropout2d(0.5)(remat.ones(1, 8, 2, 2))
    >>> bool(((y == 0).all(axis=(2, 3)) | (y == 2).all(axis=(2, 3))).all())
    True
    """

    def __init__(self, p: float = 0.5, generator: Optional[Generator] = None) -> None:
        self._make(generator=generator)


class Dropout3d(OneInput):
    """As `Dropout1d`, of `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.nn.Dropout3d(1.0)(remat.ones(1, 1, 1, 1, 2)).tolist()
    [[[[[0.0, 0.0]]]]]
    """

    def __init__(self, p: float = 0.5, generator: Optional[Generator] = None) -> None:
        self._make(generator=generator)


class AlphaDropout(OneInput):
    """While training, each element is at the limit of SELU with probability `p`, and all are scaled and moved so that means of 0 and
    variances of 1 stay (Klambauer et al., NeurIPS 2017).

    >>> import remat
    >>> remat.nn.AlphaDropout(0.5).eval()(remat.ones(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, generator: Optional[Generator] = None) -> None:
        self._make(generator=generator)


class DropPath(OneInput):
    """While training, each example, of axis 0, is 0 with probability `p`, else divided by `1 - p`: stochastic depth (Huang et al.,
    ECCV 2016).

    >>> import remat
    >>> remat.nn.DropPath(1.0)(remat.ones(2, 1)).tolist()
    [[0.0], [0.0]]
    """

    def __init__(self, p: float = 0.5, generator: Optional[Generator] = None) -> None:
        self._make(generator=generator)


class PReLU(OneInput):
    """`x` where it is positive, else `weight x` (He et al., ICCV 2015); `weight: [num_parameters]` of each channel (axis 1), or of
    all if that is 1. Errors at the call: ShapeError for another number of channels.

    >>> import remat
    >>> remat.nn.PReLU()(remat.tensor([[-4.0, 2.0]])).tolist()
    [[-1.0, 2.0]]
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Optional[Device] = None, dtype: DTypeLike = "float32",
    ) -> None:
        self._make(device, dtype)


class RReLU(OneInput):
    """While training, `x` where it is positive, else `x` times a number drawn from `lower .. upper` for each element; else that
    times the mean of both (Xu et al., 2015). It has a generator of its own.

    >>> import remat
    >>> remat.nn.RReLU(0.25, 0.75).eval()(remat.tensor([-2.0])).tolist()
    [-1.0]
    """

    def __init__(self, lower: float = 0.125, upper: float = 0.3333333333333333, generator: Optional[Generator] = None) -> None:
        self._make(generator=generator)


class MaxPool1d(OneInput):
    """The largest of each window of the last axis: `[n, c, l]`. Windows lie side by side unless `stride` says otherwise; with
    `ceil_mode` one may end beyond the padding.

    >>> import remat
    >>> remat.nn.MaxPool1d(2)(remat.tensor([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
    [[[3.0, 2.0]]]
    """

    def __init__(
        self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, dilation: Extents = 1,
        ceil_mode: bool = False,
    ) -> None:
        self._make()


class MaxPool3d(OneInput):
    """The largest of each window of the last three axes: `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.nn.MaxPool3d(2)(remat.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    def __init__(
        self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, dilation: Extents = 1,
        ceil_mode: bool = False,
    ) -> None:
        self._make()


class AvgPool1d(OneInput):
    """The mean of each window of the last axis: `[n, c, l]`.

    >>> import remat
    >>> remat.nn.AvgPool1d(2)(remat.tensor([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
    [[[2.0, 1.0]]]
    """

    def __init__(
        self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Optional[int] = None,
    ) -> None:
        self._make()


class AvgPool3d(OneInput):
    """The mean of each window of the last three axes: `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.nn.AvgPool3d(2)(remat.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    def __init__(
        self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Optional[int] = None,
    ) -> None:
        self._make()


class LPPool1d(OneInput):
    """The `norm_type`-norm of each window of the last axis: `[n, c, l]`.

    >>> import remat
    >>> remat.nn.LPPool1d(2.0, 2)(remat.tensor([[[3.0, 4.0]]])).tolist()
    [[[5.0]]]
    """

    def __init__(self, norm_type: float, kernel_size: Extents, stride: Optional[Extents] = None, ceil_mode: bool = False) -> None:
        self._make()


class LPPool2d(OneInput):
    """As `LPPool1d`, of the last two axes.

    >>> import remat
    >>> remat.nn.LPPool2d(1.0, 2)(remat.ones(1, 1, 2, 2)).tolist()
    [[[[4.0]]]]
    """

    def __init__(self, norm_type: float, kernel_size: Extents, stride: Optional[Extents] = None, ceil_mode: bool = False) -> None:
        self._make()


class LPPool3d(OneInput):
    """As `LPPool1d`, of the last three axes.

    >>> import remat
    >>> remat.nn.LPPool3d(1.0, 2)(remat.ones(1, 1, 2, 2, 2)).tolist()
    [[[[[8.0]]]]]
    """

    def __init__(self, norm_type: float, kernel_size: Extents, stride: Optional[Extents] = None, ceil_mode: bool = False) -> None:
        self._make()


class AdaptiveAvgPool1d(OneInput):
    """The mean of each of `output_size` windows that cover the last axis.

    >>> import remat
    >>> remat.nn.AdaptiveAvgPool1d(2)(remat.ones(2, 3, 5)).shape
    (2, 3, 2)
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class AdaptiveAvgPool2d(OneInput):
    """The mean of each of `output_size` windows that cover the last two axes.

    >>> import remat
    >>> remat.nn.AdaptiveAvgPool2d(1)(remat.ones(2, 3, 5, 7)).shape
    (2, 3, 1, 1)
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class AdaptiveAvgPool3d(OneInput):
    """The mean of each of `output_size` windows that cover the last three axes.

    >>> import remat
    >>> remat.nn.AdaptiveAvgPool3d(2)(remat.ones(1, 1, 3, 4, 5)).shape
    (1, 1, 2, 2, 2)
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class AdaptiveMaxPool1d(OneInput):
    """The largest of each of `output_size` windows that cover the last axis.

    >>> import remat
    >>> remat.nn.AdaptiveMaxPool1d(2)(remat.ones(2, 3, 5)).shape
    (2, 3, 2)
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class AdaptiveMaxPool2d(OneInput):
    """The largest of each of `output_size` windows that cover the last two axes.

    >>> import remat
    >>> remat.nn.AdaptiveMaxPool2d((1, 2))(remat.ones(2, 3, 5, 7)).shape
    (2, 3, 1, 2)
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class AdaptiveMaxPool3d(OneInput):
    """The largest of each of `output_size` windows that cover the last three axes.

    >>> import remat
    >>> remat.nn.AdaptiveMaxPool3d(2)(remat.ones(1, 1, 3, 4, 5)).shape
    (1, 1, 2, 2, 2)
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class MaxUnpool1d(UnpoolCall):
    """The elements in the places that a max pool with indices gave, zeros elsewhere, of an output of `output_size`.

    >>> import remat
    >>> remat.nn.MaxUnpool1d(4)(remat.tensor([[[3.0, 2.0]]]), remat.tensor([[[1, 2]]])).tolist()
    [[[0.0, 3.0, 2.0, 0.0]]]
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class MaxUnpool2d(UnpoolCall):
    """As `MaxUnpool1d`, of images; places count over both axes.

    >>> import remat
    >>> remat.nn.MaxUnpool2d(2)(remat.tensor([[[[3.0]]]]), remat.tensor([[[[2]]]])).tolist()
    [[[[0.0, 0.0], [3.0, 0.0]]]]
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class MaxUnpool3d(UnpoolCall):
    """As `MaxUnpool1d`, of volumes.

    >>> import remat
    >>> remat.nn.MaxUnpool3d(2)(remat.ones(1, 1, 1, 1, 1), remat.zeros(1, 1, 1, 1, 1, dtype="int64")).shape
    (1, 1, 2, 2, 2)
    """

    def __init__(self, output_size: Extents) -> None:
        self._make()


class Upsample(OneInput):
    """Images of another size: `[n, c, size..]` of one to three spatial axes. `size` are extents, `scale_factor` factors, one for all
    or one for each. `mode` is `nearest`, `nearest_exact`, `linear` (also `bilinear`, `trilinear`), `cubic` (`bicubic`) or `area`.
    Errors at the call: AxisError, DTypeError, ShapeError, ArgumentError.

    >>> import remat
    >>> remat.nn.Upsample(scale_factor=2)(remat.tensor([[[1.0, 2.0]]])).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """

    def __init__(
        self, size: Optional[Extents] = None, scale_factor: Optional[Union[float, Sequence[float]]] = None, mode: str = "nearest",
        align_corners: Optional[bool] = False, antialias: bool = False, recompute_scale_factor: bool = False,
    ) -> None:
        self._make()


class Pad1d(OneInput):
    """The last axis with `padding` places around it: a number, or a pair `(begin, end)` in a list. `mode` is `zeros`, `constant` (of
    `value`), `reflect`, `replicate` or `circular`. Errors at the call: AxisError; ArgumentError for more places than a mode has.

    >>> import remat
    >>> remat.nn.Pad1d([(2, 1)], "reflect")(remat.tensor([1, 2, 3])).tolist()
    [3, 2, 1, 2, 3, 2]
    """

    def __init__(self, padding: Any, mode: str = "zeros", value: float = 0.0) -> None:
        self._make()


class Pad2d(OneInput):
    """As `Pad1d`, of the last two axes: a number, one for each axis, or a pair for each, down first.

    >>> import remat
    >>> remat.nn.Pad2d((1, 0), "constant", 9.0)(remat.tensor([[1, 2]])).tolist()
    [[9, 9], [1, 2], [9, 9]]
    """

    def __init__(self, padding: Any, mode: str = "zeros", value: float = 0.0) -> None:
        self._make()


class Pad3d(OneInput):
    """As `Pad1d`, of the last three axes.

    >>> import remat
    >>> remat.nn.Pad3d(1)(remat.ones(1, 1, 1)).shape
    (3, 3, 3)
    """

    def __init__(self, padding: Any, mode: str = "zeros", value: float = 0.0) -> None:
        self._make()


class Unfold(OneInput):
    """Every window of an image as a column: `[n, c, h, w]` to `[n, c kh kw, windows]`.

    >>> import remat
    >>> remat.nn.Unfold(2)(remat.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    def __init__(self, kernel_size: Extents, dilation: Extents = 1, padding: Any = 0, stride: Extents = 1) -> None:
        self._make()


class Fold(OneInput):
    """The sum of all columns in their windows, of an image of `output_size`: `[n, c kh kw, windows]` to `[n, c, h, w]`.

    >>> import remat
    >>> remat.nn.Fold(4, 2, stride=2)(remat.ones(1, 12, 4)).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self, output_size: Extents, kernel_size: Extents, dilation: Extents = 1, padding: Any = 0, stride: Extents = 1,
    ) -> None:
        self._make()


class RNN(RecurrentCall):
    """Plain recurrent layers (Elman, 1990): `h' = f(W_ih x + b_ih + W_hh h + b_hh)`, with `nonlinearity` `tanh` or `relu`.

    `x: [steps, batch, input_size]` to `y: [steps, batch, hidden_size]`, or `2 hidden_size` if `bidirectional`; `[batch, steps, ..]`
    each if `batch_first`, and `[steps, ..]` without a batch. States are `[layers, batch, hidden_size]`, or `2 layers` in two
    directions: forward and reverse of the first layer, then of the next. `dropout` is of the outputs of every layer but the last,
    while training. Parameters begin uniform in `-b .. b`, `b = 1 / sqrt(hidden_size)`: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`,
    `bias_hh_l0`, and so on.

    Errors: ArgumentError for sizes and probabilities outside their domain. At the call: AxisError, ShapeError; IndexError, when a
    value is read, for a length that is not in `0 ..= steps`.

    >>> import remat
    >>> rnn = remat.nn.RNN(4, 8, num_layers=2, nonlinearity="relu")
    >>> y, h = rnn(remat.ones(5, 3, 4))
    >>> y.shape, h.shape, [name for name, _ in rnn.named_parameters()][:2]
    ((5, 3, 8), (2, 3, 8), ['weight_ih_l0', 'weight_hh_l0'])
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class GRU(RecurrentCall):
    """Gated recurrent units (Cho et al., 2014): gates `r, z` through the sigmoid, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))` and
    `h' = (1 - z) n + z h`. Shapes, parameters and errors: as `RNN`.

    >>> import remat
    >>> y, h = remat.nn.GRU(4, 8, batch_first=True, bidirectional=True)(remat.ones(3, 5, 4))
    >>> y.shape, h.shape
    ((3, 5, 16), (2, 3, 8))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class LSTM(LstmCall):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997): gates `i, f, g, o` of `W_ih x + b_ih + W_hh h + b_hh`, with
    `c' = sigmoid(f) c + sigmoid(i) tanh(g)` and `h' = sigmoid(o) tanh(c')`, which is projected to `proj_size` numbers if that is
    not 0. Shapes, parameters and errors: as `RNN`; there are two states, `h` and `c`.

    >>> import remat
    >>> y, (h, c) = remat.nn.LSTM(4, 8, proj_size=2)(remat.ones(5, 3, 4))
    >>> y.shape, h.shape, c.shape
    ((5, 3, 2), (1, 3, 2), (1, 3, 8))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class RNNCell(CellCall):
    """One step of an `RNN`: `x: [batch, input_size]` and a state `[batch, hidden_size]`, which is 0 unless given, to the next.

    >>> import remat
    >>> cell = remat.nn.RNNCell(4, 8)
    >>> cell(remat.ones(3, 4), remat.zeros(3, 8)).shape
    (3, 8)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class GRUCell(CellCall):
    """One step of a `GRU`: `x: [batch, input_size]` and a state `[batch, hidden_size]`, which is 0 unless given, to the next.

    >>> import remat
    >>> remat.nn.GRUCell(4, 8)(remat.ones(3, 4)).shape
    (3, 8)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class LSTMCell(LstmCellCall):
    """One step of an `LSTM`: `x: [batch, input_size]` and states `h, c: [batch, hidden_size]`, which are 0 unless given, to the next.

    >>> import remat
    >>> h, c = remat.nn.LSTMCell(4, 8)(remat.ones(3, 4))
    >>> h.shape, c.shape
    ((3, 8), (3, 8))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class MultiHeadAttention(SelfAttentionCall):
    """`softmax(q k^T / sqrt(d / heads)) v` for each of several heads, and a linear layer over all of them (Vaswani et al., 2017), of
    a text to itself: `x, y: [n, t, d]`. `q, k, v` are three thirds of one linear layer `qkv`, as PyTorch's `in_proj`; its
    weights load with `names="in_proj_{p} -> qkv.{p}\\nout_proj.{p} -> out.{p}"`.

    Errors: ArgumentError if `heads` does not divide `d`. At the call: AxisError, ShapeError, DTypeError.

    >>> import remat
    >>> attention = remat.nn.MultiHeadAttention(8, 2)
    >>> attention(remat.ones(1, 5, 8), causal=True).shape, [n for n, _ in attention.named_parameters()]
    ((1, 5, 8), ['qkv.weight', 'qkv.bias', 'out.weight', 'out.bias'])
    """

    def __init__(
        self, d: int, heads: int, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class CrossAttention(CrossAttentionCall):
    """As `MultiHeadAttention`, of three tensors: `q: [n, tq, d]`, `k: [n, tk, kdim]`, `v: [n, tk, vdim]` to `[n, tq, d]`; `k` and `v` are
    `q` unless given. `heads_kv` heads of keys and values are each shared by as many heads of queries (Ainslie et al., 2023).
    `dropout` drops probabilities while training. `time_first` tensors are `[t, n, ..]`.

    >>> import remat
    >>> attention = remat.nn.CrossAttention(8, 4, kdim=6, vdim=6, heads_kv=1)
    >>> text, image = remat.ones(1, 3, 8), remat.ones(1, 10, 6)
    >>> attention(text, image, image).shape
    (1, 3, 8)
    """

    def __init__(
        self, d: int, heads: int, *, kdim: Optional[int] = None, vdim: Optional[int] = None, heads_kv: Optional[int] = None,
        dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False, time_first: bool = False,
        device: Optional[Device] = None, dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class EncoderBlock(EncoderBlockCall):
    """A block of an encoder: attention of a text to itself and two linear layers, each added to what it gets and normalised:
    `x, y: [n, t, d]`. As PyTorch's `TransformerEncoderLayer` with `batch_first`; `norm_first` puts the norms before what they
    normalise for.

    >>> import remat
    >>> remat.nn.EncoderBlock(8, 2, feedforward=32)(remat.ones(1, 5, 8), causal=True).shape
    (1, 5, 8)
    """

    def __init__(
        self, d: int, heads: int, feedforward: int = 2048, dropout: float = 0.1, activation: str = "relu",
        norm_first: bool = False, eps: float = 1e-05, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class DecoderBlock(DecoderBlockCall):
    """A block of a decoder: attention of a text to itself, to what an encoder gives, and two linear layers: `x, y: [n, t, d]`,
    `memory: [n, tk, d]`. As PyTorch's `TransformerDecoderLayer` with `batch_first`.

    >>> import remat
    >>> remat.nn.DecoderBlock(8, 2, feedforward=32)(remat.ones(1, 3, 8), remat.ones(1, 5, 8)).shape
    (1, 3, 8)
    """

    def __init__(
        self, d: int, heads: int, feedforward: int = 2048, dropout: float = 0.1, activation: str = "relu",
        norm_first: bool = False, eps: float = 1e-05, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


class EncoderDecoder(EncoderDecoderCall):
    """Blocks of an encoder, blocks of a decoder, and a norm behind each: `source: [n, tk, d]` and `target: [n, t, d]` to `[n, t, d]`
    (Vaswani et al., 2017). A place of the target sees itself and what comes before.

    >>> import remat
    >>> net = remat.nn.EncoderDecoder(8, 2, encoders=2, decoders=1, feedforward=32)
    >>> net(remat.ones(1, 5, 8), remat.ones(1, 3, 8)).shape
    (1, 3, 8)
    """

    def __init__(
        self, d: int, heads: int, encoders: int = 6, decoders: int = 6, feedforward: int = 2048, dropout: float = 0.1,
        activation: str = "relu", norm_first: bool = False, eps: float = 1e-05, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ) -> None:
        self._make(device, dtype, generator)


__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool3d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear",
    "Conv1d", "Conv2d", "Conv3d", "ConvNorm", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "CrossAttention",
    "DecoderBlock", "DeformConv2d", "DropPath", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Embedding",
    "EmbeddingBag", "EncoderBlock", "EncoderDecoder", "Fold", "GRU", "GRUCell", "GeneralNorm", "GroupNorm", "InstanceNorm",
    "LPPool1d", "LPPool2d", "LPPool3d", "LSTM", "LSTMCell", "LayerNorm", "Linear", "LocalConv2d", "MaxPool1d", "MaxPool3d",
    "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "MultiHeadAttention", "PReLU", "Pad1d", "Pad2d", "Pad3d", "RMSNorm", "RNN",
    "RNNCell", "RReLU", "RegionRestrictedConv2d", "Unfold", "Upsample",
]
