"""Operators on images that take many options: sizes, regions, warps, windows."""
from typing import Any, Optional, Sequence, Tuple, Union

from . import _remat
from ._remat import Tensor
from ._support import Extents

_t = _remat._operators


_OWN_MODES = {"nearest-exact": "nearest_exact", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}
"""The library's names for PyTorch's modes."""


def interpolate(
    x: Tensor,
    size: Optional[Extents] = None,
    scale_factor: Union[float, Sequence[float], None] = None,
    mode: str = "nearest",
    align_corners: bool = False,
    recompute_scale_factor: bool = False,
    antialias: bool = False,
) -> Tensor:
    """An image of another size: `[n, c, size..]` of one to three spatial axes, to extents `size` or `scale_factor` times as large.

    Modes are "nearest", "nearest_exact" (PyTorch writes "nearest-exact"), "linear" (also "bilinear", "trilinear"),
    "cubic" ("bicubic") and "area". The nearest modes take any dtype, the others floats. `align_corners` puts the
    middles of the corner pixels on one another. `antialias` smooths an image that is made smaller. Both are for linear
    and cubic modes.

    Errors: AxisError for another rank; DTypeError; ShapeError for another number of extents; ValueError for both or
    none of size and factor, and for options that a mode does not have.

    >>> import remat
    >>> x = remat.tensor([[[0.0, 4.0]]])
    >>> remat.interpolate(x, 4).tolist(), x.interpolate(scale_factor=2.0, mode="linear").tolist()
    ([[[0.0, 0.0, 4.0, 4.0]]], [[[0.0, 1.0, 3.0, 4.0]]])
    """
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate takes either a size or a scale factor")
    return _t["interpolate"](x, size, scale_factor, _OWN_MODES.get(mode, mode), align_corners, antialias, recompute_scale_factor)


def roi_align(
    x: Tensor, boxes: Tensor, output_size: Extents, spatial_scale: float = 1.0, sampling_ratio: int = 2, aligned: bool = False
) -> Tensor:
    """The mean of points in each part of each region (He et al., ICCV 2017): `x: [n, c, h, w]`, `boxes: [k, 5]`, to `[k, c, output_size..]`.

    A box is the number of an image and the corners left, top, right, bottom, times `spatial_scale`. There are `sampling_ratio` points
    along each side of a part; pixels are half a place before their corners if `aligned`. Boxes have no gradient.
    Errors: AxisError, ShapeError, DTypeError; ValueError for no points.

    >>> import remat
    >>> x = remat.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> remat.roi_align(x, remat.tensor([[0.0, 0.0, 0.0, 1.0, 1.0]]), 1).tolist()
    [[[[2.5]]]]
    """
    return _t["roi_align"](x, boxes, output_size, spatial_scale, sampling_ratio, aligned)


def ps_roi_align(x: Tensor, boxes: Tensor, output_size: Extents, spatial_scale: float = 1.0, sampling_ratio: int = 2) -> Tensor:
    """As `roi_align`, where each part has channels of its own (Dai et al., NeurIPS 2016): `x: [n, c ph pw, h, w]`, to `[k, c, ph, pw]`.

    Errors: as `roi_align`, and ShapeError if the parts do not divide the channels.

    >>> import remat
    >>> remat.ps_roi_align(remat.ones(1, 4, 3, 3), remat.tensor([[0.0, 0.0, 0.0, 2.0, 2.0]]), 2).shape
    (1, 1, 2, 2)
    """
    return _t["ps_roi_align"](x, boxes, output_size, spatial_scale, sampling_ratio, False)


def deform_ps_roi_pool(
    x: Tensor,
    boxes: Tensor,
    offsets: Optional[Tensor],
    output_size: Extents,
    group: int = 1,
    samples: int = 2,
    spatial_scale: float = 1.0,
    offset_scale: float = 0.1,
) -> Tensor:
    """`ps_roi_pool` at points, with parts that are moved (Dai et al., ICCV 2017): `x: [n, c g g, h, w]` with `g` the `group`, to `[k, c, ph, pw]`.

    `offsets: [k, 2 classes, a, b]` are across and down of each class of channels for each field of a grid over the region, times
    `offset_scale` and the region's extent; None for no offsets. Errors: AxisError, ShapeError, DTypeError, ValueError; IndexError, when
    the value is read, for an image that is not there.

    >>> import remat
    >>> remat.deform_ps_roi_pool(remat.ones(1, 2, 4, 4), remat.tensor([[0.0, 0.0, 0.0, 3.0, 3.0]]), None, 2).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]]]
    """
    return _t["deform_ps_roi_pool"](x, boxes, offsets, output_size, group, samples, spatial_scale, offset_scale)


def warp_affine(
    x: Tensor, maps: Tensor, size: Extents, between: str = "linear", beyond: str = "edge", fill: float = 0.0
) -> Tensor:
    """Each image under an affine map from pixels of the result to its own: `x: [n, c, h, w]`, `maps: [n, 2, 3]`, to `[n, c, size..]`.

    The result's (x, y) reads `(m00 x + m01 y + m02, m10 x + m11 y + m12)`. `between` pixels is "nearest", "linear" or "cubic"; `beyond`
    the image "zeros", "edge", "reflect", "reflect_edge" or "wrap", where `fill` stands for the zeros. Errors: AxisError, ShapeError,
    DTypeError; ValueError for another name.

    >>> import remat
    >>> x = remat.tensor([[[[1.0, 2.0, 3.0]]]])
    >>> remat.warp_affine(x, remat.tensor([[[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]]), (1, 3)).tolist()
    [[[[2.0, 3.0, 3.0]]]]
    """
    return _t["warp_affine"](x, maps, size, between, beyond, fill)


def warp_perspective(
    x: Tensor,
    maps: Tensor,
    size: Extents,
    images: Optional[Tensor] = None,
    between: str = "linear",
    beyond: str = "edge",
    fill: float = 0.0,
) -> Tensor:
    """As `warp_affine` under projective maps `[k, 3, 3]`: (x, y) reads `(u / w, v / w)` with `(u, v, w) = m (x, y, 1)`.

    Map `k` is of image `images[k]`, or of image `k` without it. Errors: as `warp_affine`; IndexError, when the value is read, for an
    image that is not there.

    >>> import remat
    >>> x = remat.tensor([[[[1.0, 2.0, 3.0]]]])
    >>> remat.warp_perspective(x, remat.eye(3).reshape(1, 3, 3), (1, 2)).tolist()
    [[[[1.0, 2.0]]]]
    """
    return _t["warp_perspective"](x, maps, images, size, between, beyond, fill)


def remap(x: Tensor, map_xy: Tensor, between: str = "linear", beyond: str = "edge", fill: float = 0.0) -> Tensor:
    """Each image at the pixels that a map names: `x: [n, c, h, w]`, `map_xy: [n, oh, ow, 2]` of (x, y), to `[n, c, oh, ow]`.

    `between`, `beyond` and `fill` as in `warp_affine`. Errors: AxisError, ShapeError, DTypeError.

    >>> import remat
    >>> x = remat.tensor([[[[1.0, 2.0, 3.0]]]])
    >>> remat.remap(x, remat.tensor([[[[0.5, 0.0]]]])).tolist()
    [[[[1.5]]]]
    """
    return _t["remap"](x, map_xy, between, beyond, fill)


def rotate(x: Tensor, degrees: float, between: str = "linear", beyond: str = "edge", fill: float = 0.0) -> Tensor:
    """Each image turned counterclockwise about its middle, in the frame of the old one: `[n, c, h, w]`.

    `between`, `beyond` and `fill` as in `warp_affine`. Errors: AxisError; DTypeError; ValueError for an angle that is not finite.

    >>> import remat
    >>> remat.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).rotate(90.0, between="nearest").tolist()
    [[[[2.0, 4.0], [1.0, 3.0]]]]
    """
    return _t["rotate"](x, degrees, between, beyond, fill)


def unfold(x: Tensor, kernel_size: Extents, dilation: Extents = 1, padding: Any = 0, stride: Extents = 1) -> Tensor:
    """Every window of an image as a column: `[n, c, h, w]` to `[n, c kh kw, oh ow]`, as PyTorch's `unfold`.

    Errors: AxisError for another rank; ValueError for a kernel, stride or dilation of 0; ShapeError if no window fits.

    >>> import remat
    >>> remat.arange(4).reshape(1, 1, 2, 2).unfold((1, 2)).tolist()
    [[[0, 2], [1, 3]]]
    """
    return _t["unfold"](x, kernel_size, stride, padding, dilation)


def fold(
    x: Tensor, output_size: Extents, kernel_size: Extents, dilation: Extents = 1, padding: Any = 0, stride: Extents = 1
) -> Tensor:
    """The sum of all columns in their windows: `[n, c kh kw, oh ow]` to `[n, c, h, w]`, the transpose of `unfold`.

    Errors: AxisError, ValueError, ShapeError.

    >>> import remat
    >>> remat.ones(1, 2, 2).fold((1, 3), (1, 2)).tolist()
    [[[[1.0, 2.0, 1.0]]]]
    """
    return _t["fold"](x, output_size, kernel_size, stride, padding, dilation)


def sliding_window(x: Tensor, kernel_size: Extents, stride: Extents = 1, padding: Any = 0, dilation: Extents = 1) -> Tensor:
    """Every window of an image: `[n, c, h, w]` to `[n, c, oh, ow, kh, kw]`. Errors: as `unfold`.

    >>> import remat
    >>> remat.arange(3).reshape(1, 1, 1, 3).sliding_window((1, 2)).tolist()
    [[[[[[0, 1]], [[1, 2]]]]]]
    """
    return _t["sliding_window"](x, kernel_size, stride, padding, dilation)


def sliding_window_transpose(
    x: Tensor, output_size: Extents, kernel_size: Extents, stride: Extents = 1, padding: Any = 0, dilation: Extents = 1
) -> Tensor:
    """The sum of all windows in their places: `[n, c, oh, ow, kh, kw]` to `[n, c, h, w]`. Errors: AxisError, ValueError, ShapeError.

    >>> import remat
    >>> remat.ones(1, 1, 1, 2, 1, 2).sliding_window_transpose((1, 3), (1, 2)).tolist()
    [[[[1.0, 2.0, 1.0]]]]
    """
    return _t["sliding_window_transpose"](x, output_size, kernel_size, stride, padding, dilation)


def deform_conv2d(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    stride: Extents = 1,
    padding: Any = 0,
    dilation: Extents = 1,
    mask: Optional[Tensor] = None,
) -> Tensor:
    """A convolution whose taps are moved by `offset`, and weighted by `mask` (Dai et al., ICCV 2017; Zhu et al., CVPR 2019).

    `x: [n, c, h, w]`, `weight: [k, c / groups, r, s]`, `offset: [n, 2 g r s, oh, ow]`, down and across for each tap of each of `g` groups
    of channels, `mask: [n, g r s, oh, ow]`, `bias: [k]`, to `[n, k, oh, ow]`, as torchvision's. Errors: AxisError, ShapeError, DTypeError,
    ValueError.

    >>> import remat
    >>> x = remat.tensor([[[[1.0, 2.0, 4.0]]]])
    >>> offset = remat.tensor([[[[0.0, 0.0, 0.0]], [[0.5, 0.5, 0.0]]]])
    >>> remat.deform_conv2d(x, offset, remat.full((1, 1, 1, 1), 10.0)).tolist()
    [[[[15.0, 30.0, 40.0]]]]
    """
    y = _t["deform_conv2d"](x, offset, weight, mask, _kernel("deform_conv2d", weight, -2), stride, padding, dilation)
    return y if bias is None else y + bias.reshape(-1, 1, 1)


def local_conv2d(x: Tensor, weight: Tensor, stride: Extents = 1, padding: Any = 0, dilation: Extents = 1) -> Tensor:
    """A convolution with a kernel of its own at each place (a locally connected layer): `x: [n, c, h, w]` to `[n, k, oh, ow]`.

    `weight: [groups, oh, ow, c / groups, r, s, k / groups]`. Errors: AxisError, ShapeError, DTypeError, ValueError.

    >>> import remat
    >>> x, weight = remat.ones(1, 1, 1, 2), remat.tensor([3.0, 5.0]).reshape(1, 1, 2, 1, 1, 1, 1)
    >>> remat.local_conv2d(x, weight).tolist()
    [[[[3.0, 5.0]]]]
    """
    return _t["local_conv2d"](x, weight, _kernel("local_conv2d", weight, -3), stride, padding, dilation)


def region_restricted_conv(
    x: Tensor, weight: Tensor, rin: Tensor, rout: Tensor, stride: Extents = 1, padding: Any = 0, dilation: Extents = 1
) -> Tensor:
    """A convolution that sees only pixels of the output's own region: those where `rin: [n, 1, h, w]` is what `rout: [n, 1, oh, ow]` is.

    Both are of integers; `x: [n, c, h, w]`, `weight: [k, c / groups, r, s]`, to `[n, k, oh, ow]`. Errors: AxisError, ShapeError,
    DTypeError, ValueError.

    >>> import remat
    >>> x, regions = remat.ones(1, 1, 1, 3), remat.tensor([[[[0, 0, 1]]]], dtype="int32")
    >>> remat.region_restricted_conv(x, remat.ones(1, 1, 1, 3), regions, regions, padding=(0, 1)).tolist()
    [[[[2.0, 2.0, 1.0]]]]
    """
    kernel = _kernel("region_restricted_conv", weight, -2)
    return _t["region_restricted_conv"](x, weight, rin, rout, kernel, stride, padding, dilation)


def correlation(
    x: Tensor,
    other: Tensor,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    padding: int = 0,
    is_multiply: bool = True,
) -> Tensor:
    """How alike patches of two images are, for displacements of the second (Dosovitskiy et al., ICCV 2015): `[n, c, h, w]` both, to `[n, d d, oh, ow]`.

    `d = 2 floor(max_displacement / stride2) + 1`; the mean over the patch and channels of products, or of absolute differences if not
    `is_multiply`. Errors: AxisError; ShapeError for images that differ or are too small; ValueError.

    >>> import remat
    >>> remat.correlation(remat.ones(1, 2, 3, 3), remat.ones(1, 2, 3, 3), padding=1).shape
    (1, 9, 3, 3)
    """
    return _t["correlation"](x, other, kernel_size, max_displacement, stride1, stride2, padding, is_multiply)


def _kernel(name: str, weight: Tensor, at: int) -> Tuple[int, int]:
    """The extents of the kernel among those of the weight, from axis `at` on."""
    if weight.ndim < -at:
        raise ValueError(f"{name}: a weight of shape {weight.shape} has no kernel")
    return weight.shape[at], weight.shape[at + 1]


__all__ = [
    "interpolate", "roi_align", "ps_roi_align", "deform_ps_roi_pool", "warp_affine", "warp_perspective", "remap",
    "rotate", "unfold", "fold", "sliding_window", "sliding_window_transpose", "deform_conv2d", "local_conv2d",
    "region_restricted_conv", "correlation",
]

FUNCTIONS = [
    interpolate, roi_align, ps_roi_align, deform_ps_roi_pool, warp_affine, warp_perspective, remap, rotate, unfold, fold,
    sliding_window, sliding_window_transpose, deform_conv2d, local_conv2d, region_restricted_conv, correlation,
]
