"""Layers. Those with parameters hold a layer of the compiled library: the same seed gives the same bits as there."""
from typing import Any, List, Optional, Sequence, Union

from .._remat import Device, Generator, Tensor
from .._support import DTypeLike, ShapeLike, options_json
from .held import Held

Extents = Union[int, Sequence[int]]


def _is_number(x: Any) -> bool:
    """True for what is one number, of NumPy's too."""
    return hasattr(x, "__index__")


def _each(n: Any, axes: int) -> List[int]:
    return [int(n)] * axes if _is_number(n) else list(n)


def _shape(shape: Any) -> List[int]:
    return [int(shape)] if _is_number(shape) else list(shape)


def _padding(padding: Any, axes: int) -> List[List[int]]:
    if _is_number(padding):
        return [[int(padding), int(padding)]] * axes
    return [[int(p), int(p)] if _is_number(p) else list(p) for p in padding]


class _Native(Held):
    """A compiled layer of one tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return self._layer.forward(x)


class _Several(Held):
    """A compiled layer of several tensors, of which some may be left out."""

    def _call(self, *x: Optional[Tensor], **how: Any) -> List[Tensor]:
        return self._layer.call(list(x), options_json({k: v for k, v in how.items() if v is not None}))


class Linear(_Native):
    """`y = x W^T + b`: `x: [.., inputs]` to `[.., outputs]`; `weight: [outputs, inputs]`, `bias: [outputs]`, PyTorch's first values.

    >>> import remat
    >>> remat.nn.Linear(4, 2)(remat.ones(3, 4)).shape
    (3, 2)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        super().__init__("linear", {"inputs": in_features, "outputs": out_features, "bias": bias}, device, dtype, generator)


class _Conv(_Native):
    AXES = 0
    KIND = "conv"

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None, output_padding: Extents = 0,
        padding_mode: str = "zeros",
    ):
        n = self.AXES
        if isinstance(padding, str) and padding != "same":
            raise ValueError(f"padding is numbers or `same`, not `{padding}`")
        options = {
            "inputs": in_channels, "outputs": out_channels, "kernel": _each(kernel_size, n), "stride": _each(stride, n),
            "padding": _padding(0 if padding == "same" else padding, n), "dilation": _each(dilation, n), "groups": groups,
            "bias": bias, "output_padding": _each(output_padding, n), "padding_mode": padding_mode, "same": padding == "same",
        }
        super().__init__(f"{self.KIND}{n}d", options, device, dtype, generator)


class Conv1d(_Conv):
    """Cross-correlation over one axis: `[n, in, l]` to `[n, out, l']`; `weight: [out, in / groups, k]`.

    >>> import remat
    >>> remat.nn.Conv1d(2, 3, 3, padding=1)(remat.ones(1, 2, 5)).shape
    (1, 3, 5)
    """

    AXES = 1


class Conv2d(_Conv):
    """Cross-correlation over two axes: `[n, in, h, w]` to `[n, out, h', w']`; `weight: [out, in / groups, r, s]`.

    Padding is a number, one for each axis, a pair of begin and end for each, or `"same"`, which keeps the extents; it is of
    `padding_mode` `zeros`, `reflect`, `replicate` or `circular`. Errors at the call: AxisError, ShapeError.

    >>> import remat
    >>> remat.nn.Conv2d(1, 4, 3, stride=2)(remat.ones(2, 1, 9, 9)).shape
    (2, 4, 4, 4)
    """

    AXES = 2


class Conv3d(_Conv):
    """Cross-correlation over three axes: `[n, in, d, h, w]`.

    >>> import remat
    >>> remat.nn.Conv3d(1, 2, 2)(remat.ones(1, 1, 3, 3, 3)).shape
    (1, 2, 2, 2, 2)
    """

    AXES = 3


class ConvTranspose1d(_Conv):
    """The gradient of a convolution as a layer: `weight: [in, out / groups, k]`.

    >>> import remat
    >>> remat.nn.ConvTranspose1d(1, 1, 2, stride=2)(remat.ones(1, 1, 3)).shape
    (1, 1, 6)
    """

    AXES, KIND = 1, "conv_transpose"


class ConvTranspose2d(_Conv):
    """As `ConvTranspose1d` over two axes.

    >>> import remat
    >>> remat.nn.ConvTranspose2d(1, 1, 2, stride=2)(remat.ones(1, 1, 3, 3)).shape
    (1, 1, 6, 6)
    """

    AXES, KIND = 2, "conv_transpose"


class ConvTranspose3d(_Conv):
    """As `ConvTranspose1d` over three axes.

    >>> import remat
    >>> remat.nn.ConvTranspose3d(1, 1, 2)(remat.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 3, 3, 3)
    """

    AXES, KIND = 3, "conv_transpose"


class ConvNorm(_Native):
    """A convolution without bias and its batch normalisation, with He et al.'s first values by fan-out; padding keeps the extents.

    >>> import remat
    >>> net = remat.nn.ConvNorm(1, 4, 3, stride=2)
    >>> net(remat.ones(2, 1, 8, 8)).shape, [n for n, _ in net.named_parameters()]
    ((2, 4, 4, 4), ['conv.weight', 'norm.weight', 'norm.bias'])
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        options = {"inputs": in_channels, "outputs": out_channels, "kernel": kernel_size, "stride": stride}
        super().__init__("conv_norm", options, device, dtype, generator)


class _BatchNorm(_Native):
    AXES = 0

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
    ):
        options = {
            "channels": num_features, "eps": eps, "momentum": momentum, "affine": affine,
            "track_running_stats": track_running_stats,
        }
        super().__init__(f"batch_norm{self.AXES}d", options, device, dtype)


class BatchNorm1d(_BatchNorm):
    """`(x - mean) / sqrt(var + eps) weight + bias` for each channel of `[n, c]` or `[n, c, l]`; while training, of the batch. The
    running statistics move by `momentum`, or are means over all batches if that is None.

    >>> import remat
    >>> remat.nn.BatchNorm1d(3)(remat.rand(8, 3)).shape
    (8, 3)
    """

    AXES = 1


class BatchNorm2d(_BatchNorm):
    """As `BatchNorm1d` for `[n, c, h, w]`. Running statistics are buffers, `running_mean` and `running_var`.

    >>> import remat
    >>> norm = remat.nn.BatchNorm2d(3)
    >>> norm(remat.rand(8, 3, 4, 4)).shape, [n for n, _ in norm.named_buffers()]
    ((8, 3, 4, 4), ['running_mean', 'running_var'])
    """

    AXES = 2


class BatchNorm3d(_BatchNorm):
    """As `BatchNorm1d` for `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.nn.BatchNorm3d(2)(remat.rand(2, 2, 2, 2, 2)).shape
    (2, 2, 2, 2, 2)
    """

    AXES = 3


class LayerNorm(_Native):
    """Normalisation over the last axes, which have the extents `normalized_shape`; `weight` and `bias` have them too.

    >>> import remat
    >>> remat.nn.LayerNorm(4)(remat.rand(2, 4)).shape
    (2, 4)
    """

    def __init__(
        self, normalized_shape: ShapeLike, eps: float = 1e-5, device: Optional[Device] = None, dtype: DTypeLike = "float32"
    ):
        shape = _shape(normalized_shape)
        super().__init__("layer_norm", {"shape": shape, "eps": eps}, device, dtype)


class RMSNorm(_Native):
    """`x / sqrt(mean(x^2) + eps) weight` over the last axes.

    >>> import remat
    >>> remat.nn.RMSNorm(4)(remat.rand(2, 4)).shape
    (2, 4)
    """

    def __init__(
        self, normalized_shape: ShapeLike, eps: float = 1e-6, device: Optional[Device] = None, dtype: DTypeLike = "float32"
    ):
        shape = _shape(normalized_shape)
        super().__init__("rms_norm", {"shape": shape, "eps": eps}, device, dtype)


class GroupNorm(_Native):
    """Normalisation of each group of channels of each example. Errors: ArgumentError unless groups divide the channels.

    >>> import remat
    >>> remat.nn.GroupNorm(2, 4)(remat.rand(2, 4, 3)).shape
    (2, 4, 3)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32",
    ):
        options = {"groups": num_groups, "channels": num_channels, "eps": eps, "affine": affine}
        super().__init__("group_norm", options, device, dtype)


class InstanceNorm(_Native):
    """Normalisation of each channel of each example, of any number of axes.

    >>> import remat
    >>> remat.nn.InstanceNorm(4)(remat.rand(2, 4, 3)).shape
    (2, 4, 3)
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, affine: bool = False, device: Optional[Device] = None,
        dtype: DTypeLike = "float32",
    ):
        super().__init__("instance_norm", {"channels": num_features, "eps": eps, "affine": affine}, device, dtype)


class Embedding(_Native):
    """Rows of a table: indices of any shape to `[.., embedding_dim]`; the row `padding_idx` gets no gradient.

    With `sparse` a backward pass keeps the gradient of the rows that were looked up, not one as large as the table; `SGD` without momentum
    and weight decay and `SparseAdam` take it so. Where it is read (`weight.grad`, clipping), or the weight has hooks, it is a tensor.

    >>> import remat
    >>> remat.nn.Embedding(10, 4)(remat.tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: Optional[int] = None, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None, sparse: bool = False,
    ):
        options = {"count": num_embeddings, "size": embedding_dim, "padding_idx": padding_idx, "sparse": sparse}
        super().__init__("embedding", options, device, dtype, generator)


class Dropout(_Native):
    """While training, each element is 0 with probability `p`, else divided by `1 - p`. It has a generator of its own.

    `inplace` is taken for PyTorch's sake and changes nothing.

    >>> import remat
    >>> remat.nn.Dropout(0.5).eval()(remat.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False, generator: Optional[Generator] = None):
        super().__init__("dropout", {"p": p}, None, "float32", generator)
