"""Layers. Those with parameters hold a layer of the compiled library: the same seed gives the same bits as there."""
import json
from typing import Any, Dict, List, Optional, Sequence, Union

from .. import _remat
from .._remat import Device, Generator, Tensor
from .._support import DTypeLike, ShapeLike, default_device, default_generator
from .module import Module

Extents = Union[int, Sequence[int]]


def _each(n: Extents, axes: int) -> List[int]:
    return [n] * axes if isinstance(n, int) else list(n)


def _padding(padding: Any, axes: int) -> List[List[int]]:
    if isinstance(padding, int):
        return [[padding, padding]] * axes
    return [[p, p] if isinstance(p, int) else list(p) for p in padding]


def _kept_dtype(p: Tensor, dtype: Optional[DTypeLike]) -> bool:
    """True if a conversion to `dtype` leaves `p` as it is."""
    return dtype is None or not p.dtype.is_floating_point or p.dtype == _remat.dtype(dtype)


class _Held(Module):
    """A layer of the compiled library; its parameters are registered under their names."""

    def __init__(
        self,
        kind: str,
        options: Dict[str, Any],
        device: Optional[Device] = None,
        dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ):
        super().__init__()
        generator = default_generator() if generator is None else generator
        layer = _remat._NativeLayer(kind, json.dumps(options), default_device(device), dtype, generator)
        object.__setattr__(self, "_kind", kind)
        self._hold(layer, options)

    def _hold(self, layer: Any, options: Dict[str, Any]) -> None:
        """Registers what a compiled layer has."""
        object.__setattr__(self, "_layer", layer)
        object.__setattr__(self, "_options", options)
        if options.get("bias") is False:
            self.register_parameter("bias", None)
        for name, p in layer.state():
            *path, last = name.split(".")
            at: Module = self
            for part in path:
                if part not in at._modules:
                    at.add_module(part, Module())
                at = at._modules[part]
            setattr(at, last, p)

    def __setattr__(self, name: str, value: Any) -> None:
        held = self.__dict__.get("_layer") is not None and (name in self._parameters or name in self._buffers)
        if held and value is not getattr(self, name):
            raise TypeError(f"`{name}` of {type(self).__name__} stays the same parameter: change its value by `set_`")
        super().__setattr__(name, value)

    def _mode_changed(self, training: bool) -> None:
        self._layer.set_training(training)

    def _moved(self, device: Device, dtype: Optional[DTypeLike]) -> None:
        own = list(self._named_state(("_parameters", "_buffers")))
        if not own or all(p.device == device and _kept_dtype(p, dtype) for _, p in own):
            return
        if "_kind" not in self.__dict__:
            raise TypeError(f"a {type(self).__name__} stays where its layer was made: make it there")
        of = own[0][1].dtype if dtype is None else dtype
        layer = _remat._NativeLayer(self._kind, json.dumps(self._options), device, of, Generator(0))
        layer.load_rng_states(self._layer.rng_states())
        layer.set_training(self.training)
        old = dict(own)
        new = dict(layer.state())
        for name, p in new.items():
            p.set_(old[name].detach().to(device=device, dtype=p.dtype))
            if p.is_trained:
                p.requires_grad = old[name].requires_grad
            *path, last = name.split(".")
            at: Module = self
            for part in path:
                at = at._modules[part]
            at.__dict__["_parameters" if p.is_trained else "_buffers"][last] = p
        object.__setattr__(self, "_layer", layer)

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} is saved by its `state_dict`, not by pickling")

    def extra_repr(self) -> str:
        """What is shown between the brackets."""
        return ", ".join(f"{k}={v}" for k, v in self._options.items())


class _Native(_Held):
    """A compiled layer of one tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return self._layer.forward(x)


class _Several(_Held):
    """A compiled layer of several tensors, of which some may be left out."""

    def _call(self, *x: Optional[Tensor], **how: Any) -> List[Tensor]:
        return self._layer.call(list(x), json.dumps({k: v for k, v in how.items() if v is not None}))


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
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
    ):
        options = {
            "channels": num_features, "eps": eps, "momentum": momentum, "affine": affine,
            "track_running_stats": track_running_stats,
        }
        super().__init__(f"batch_norm{self.AXES}d", options, device, dtype)


class BatchNorm1d(_BatchNorm):
    """`(x - mean) / sqrt(var + eps) weight + bias` for each channel of `[n, c]` or `[n, c, l]`; while training, of the batch.

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
        shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
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
        shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
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

    >>> import remat
    >>> remat.nn.Embedding(10, 4)(remat.tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: Optional[int] = None, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        options = {"count": num_embeddings, "size": embedding_dim, "padding_idx": padding_idx}
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
