"""Layers of windows: pools, padding, patches, other sizes of images."""
from typing import Any, Dict, Optional, Sequence, Union

from .._vision import _OWN_MODES
from .. import _tensor_methods as T
from .._remat import Tensor
from .layers import Extents, _each, _Native, _padding, _Several, _shape
from .module import Module


class MaxPool2d(Module):
    """The largest of each window of the last two axes.

    >>> import remat
    >>> remat.nn.MaxPool2d(2)(remat.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    def __init__(self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return T.max_pool2d(x, self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        """What is shown between the brackets."""
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(MaxPool2d):
    """The mean of each window of the last two axes.

    >>> import remat
    >>> remat.nn.AvgPool2d(2)(remat.ones(1, 1, 4, 4)).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return T.avg_pool2d(x, self.kernel_size, self.stride, self.padding)


class _Pool(_Native):
    AXES = 0
    KIND = ""

    def __init__(
        self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, dilation: Extents = 1,
        ceil_mode: bool = False, _more: Optional[Dict[str, Any]] = None,
    ):
        n = self.AXES
        options = {
            "kernel": _each(kernel_size, n), "stride": _each(kernel_size if stride is None else stride, n),
            "padding": _padding(padding, n), "dilation": _each(dilation, n), "ceil_mode": ceil_mode, **(_more or {}),
        }
        super().__init__(f"{self.KIND}{n}d", options)


class MaxPool1d(_Pool):
    """The largest of each window of the last axis: `[n, c, l]`. Windows lie side by side unless `stride` says otherwise; with
    `ceil_mode` one may end beyond the padding.

    >>> import remat
    >>> remat.nn.MaxPool1d(2)(remat.tensor([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
    [[[3.0, 2.0]]]
    """

    AXES, KIND = 1, "max_pool"


class MaxPool3d(_Pool):
    """The largest of each window of the last three axes: `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.nn.MaxPool3d(2)(remat.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    AXES, KIND = 3, "max_pool"


class _AvgPool(_Pool):
    KIND = "avg_pool"

    def __init__(
        self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: Optional[int] = None,
    ):
        super().__init__(
            kernel_size, stride, padding, 1, ceil_mode, {"count_include_pad": count_include_pad, "divisor": divisor_override}
        )


class AvgPool1d(_AvgPool):
    """The mean of each window of the last axis: `[n, c, l]`.

    >>> import remat
    >>> remat.nn.AvgPool1d(2)(remat.tensor([[[1.0, 3.0, 2.0, 0.0]]])).tolist()
    [[[2.0, 1.0]]]
    """

    AXES = 1


class AvgPool3d(_AvgPool):
    """The mean of each window of the last three axes: `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.nn.AvgPool3d(2)(remat.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    AXES = 3


class _LPPool(_Pool):
    KIND = "lp_pool"

    def __init__(
        self, norm_type: float, kernel_size: Extents, stride: Optional[Extents] = None, ceil_mode: bool = False
    ):
        super().__init__(kernel_size, stride, 0, 1, ceil_mode, {"p": norm_type})


class LPPool1d(_LPPool):
    """The `norm_type`-norm of each window of the last axis: `[n, c, l]`.

    >>> import remat
    >>> remat.nn.LPPool1d(2.0, 2)(remat.tensor([[[3.0, 4.0]]])).tolist()
    [[[5.0]]]
    """

    AXES = 1


class LPPool2d(_LPPool):
    """As `LPPool1d`, of the last two axes.

    >>> import remat
    >>> remat.nn.LPPool2d(1.0, 2)(remat.ones(1, 1, 2, 2)).tolist()
    [[[[4.0]]]]
    """

    AXES = 2


class LPPool3d(_LPPool):
    """As `LPPool1d`, of the last three axes.

    >>> import remat
    >>> remat.nn.LPPool3d(1.0, 2)(remat.ones(1, 1, 2, 2, 2)).tolist()
    [[[[[8.0]]]]]
    """

    AXES = 3


class _Adaptive(_Native):
    AXES = 0
    KIND = ""

    def __init__(self, output_size: Extents):
        super().__init__(f"{self.KIND}{self.AXES}d", {"size": _each(output_size, self.AXES)})


class AdaptiveAvgPool1d(_Adaptive):
    """The mean of each of `output_size` windows that cover the last axis.

    >>> import remat
    >>> remat.nn.AdaptiveAvgPool1d(2)(remat.ones(2, 3, 5)).shape
    (2, 3, 2)
    """

    AXES, KIND = 1, "adaptive_avg_pool"


class AdaptiveAvgPool2d(_Adaptive):
    """The mean of each of `output_size` windows that cover the last two axes.

    >>> import remat
    >>> remat.nn.AdaptiveAvgPool2d(1)(remat.ones(2, 3, 5, 7)).shape
    (2, 3, 1, 1)
    """

    AXES, KIND = 2, "adaptive_avg_pool"


class AdaptiveAvgPool3d(_Adaptive):
    """The mean of each of `output_size` windows that cover the last three axes.

    >>> import remat
    >>> remat.nn.AdaptiveAvgPool3d(2)(remat.ones(1, 1, 3, 4, 5)).shape
    (1, 1, 2, 2, 2)
    """

    AXES, KIND = 3, "adaptive_avg_pool"


class AdaptiveMaxPool1d(_Adaptive):
    """The largest of each of `output_size` windows that cover the last axis.

    >>> import remat
    >>> remat.nn.AdaptiveMaxPool1d(2)(remat.ones(2, 3, 5)).shape
    (2, 3, 2)
    """

    AXES, KIND = 1, "adaptive_max_pool"


class AdaptiveMaxPool2d(_Adaptive):
    """The largest of each of `output_size` windows that cover the last two axes.

    >>> import remat
    >>> remat.nn.AdaptiveMaxPool2d((1, 2))(remat.ones(2, 3, 5, 7)).shape
    (2, 3, 1, 2)
    """

    AXES, KIND = 2, "adaptive_max_pool"


class AdaptiveMaxPool3d(_Adaptive):
    """The largest of each of `output_size` windows that cover the last three axes.

    >>> import remat
    >>> remat.nn.AdaptiveMaxPool3d(2)(remat.ones(1, 1, 3, 4, 5)).shape
    (1, 1, 2, 2, 2)
    """

    AXES, KIND = 3, "adaptive_max_pool"


class _Unpool(_Several):
    AXES = 0

    def __init__(self, output_size: Extents):
        super().__init__(f"max_unpool{self.AXES}d", {"size": _each(output_size, self.AXES)})

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        """Zeros with the elements of `x` in these places of each channel."""
        return self._call(x, indices)[0]


class MaxUnpool1d(_Unpool):
    """The elements in the places that a max pool with indices gave, zeros elsewhere, of an output of `output_size`.

    >>> import remat
    >>> remat.nn.MaxUnpool1d(4)(remat.tensor([[[3.0, 2.0]]]), remat.tensor([[[1, 2]]])).tolist()
    [[[0.0, 3.0, 2.0, 0.0]]]
    """

    AXES = 1


class MaxUnpool2d(_Unpool):
    """As `MaxUnpool1d`, of images; places count over both axes.

    >>> import remat
    >>> remat.nn.MaxUnpool2d(2)(remat.tensor([[[[3.0]]]]), remat.tensor([[[[2]]]])).tolist()
    [[[[0.0, 0.0], [3.0, 0.0]]]]
    """

    AXES = 2


class MaxUnpool3d(_Unpool):
    """As `MaxUnpool1d`, of volumes.

    >>> import remat
    >>> remat.nn.MaxUnpool3d(2)(remat.ones(1, 1, 1, 1, 1), remat.zeros(1, 1, 1, 1, 1, dtype="int64")).shape
    (1, 1, 2, 2, 2)
    """

    AXES = 3


class _Pad(_Native):
    AXES = 0

    def __init__(self, padding: Any, mode: str = "zeros", value: float = 0.0):
        super().__init__(f"pad{self.AXES}d", {"padding": _padding(padding, self.AXES), "mode": mode, "value": value})


class Pad1d(_Pad):
    """The last axis with `padding` places around it: a number, or a pair `(begin, end)` in a list. `mode` is `zeros`, `constant` (of
    `value`), `reflect`, `replicate` or `circular`. Errors at the call: AxisError; ArgumentError for more places than a mode has.

    >>> import remat
    >>> remat.nn.Pad1d([(2, 1)], "reflect")(remat.tensor([1, 2, 3])).tolist()
    [3, 2, 1, 2, 3, 2]
    """

    AXES = 1


class Pad2d(_Pad):
    """As `Pad1d`, of the last two axes: a number, one for each axis, or a pair for each, down first.

    >>> import remat
    >>> remat.nn.Pad2d((1, 0), "constant", 9.0)(remat.tensor([[1, 2]])).tolist()
    [[9, 9], [1, 2], [9, 9]]
    """

    AXES = 2


class Pad3d(_Pad):
    """As `Pad1d`, of the last three axes.

    >>> import remat
    >>> remat.nn.Pad3d(1)(remat.ones(1, 1, 1)).shape
    (3, 3, 3)
    """

    AXES = 3


def _patches(kernel_size: Extents, dilation: Extents, padding: Any, stride: Extents) -> Any:
    return {
        "kernel": _each(kernel_size, 2), "stride": _each(stride, 2), "padding": _padding(padding, 2),
        "dilation": _each(dilation, 2),
    }


class Unfold(_Native):
    """Every window of an image as a column: `[n, c, h, w]` to `[n, c kh kw, windows]`.

    >>> import remat
    >>> remat.nn.Unfold(2)(remat.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    def __init__(self, kernel_size: Extents, dilation: Extents = 1, padding: Any = 0, stride: Extents = 1):
        super().__init__("unfold", _patches(kernel_size, dilation, padding, stride))


class Fold(_Native):
    """The sum of all columns in their windows, of an image of `output_size`: `[n, c kh kw, windows]` to `[n, c, h, w]`.

    >>> import remat
    >>> remat.nn.Fold(4, 2, stride=2)(remat.ones(1, 12, 4)).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self, output_size: Extents, kernel_size: Extents, dilation: Extents = 1, padding: Any = 0, stride: Extents = 1
    ):
        super().__init__("fold", {"size": _each(output_size, 2), **_patches(kernel_size, dilation, padding, stride)})


class Upsample(_Native):
    """Images of another size: `[n, c, size..]` of one to three spatial axes. `size` are extents, `scale_factor` factors, one for all
    or one for each. `mode` is `nearest`, `nearest_exact`, `linear` (also `bilinear`, `trilinear`), `cubic` (`bicubic`) or `area`.
    Errors at the call: AxisError, DTypeError, ShapeError, ArgumentError.

    >>> import remat
    >>> remat.nn.Upsample(scale_factor=2)(remat.tensor([[[1.0, 2.0]]])).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """

    def __init__(
        self, size: Optional[Extents] = None, scale_factor: Union[float, Sequence[float], None] = None, mode: str = "nearest",
        align_corners: Optional[bool] = False, antialias: bool = False, recompute_scale_factor: bool = False,
    ):
        if (size is None) == (scale_factor is None):
            raise ValueError("either `size` or `scale_factor` is given")
        mode = _OWN_MODES.get(mode, mode)
        factor = [float(scale_factor)] if hasattr(scale_factor, "__float__") else scale_factor  # type: ignore[arg-type]
        options = {
            "size": None if size is None else _shape(size), "factor": None if factor is None else list(factor),
            "mode": mode, "align_corners": bool(align_corners), "antialias": antialias, "recompute_scale": recompute_scale_factor,
        }
        super().__init__("upsample", options)
