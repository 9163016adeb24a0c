"""Operators of layers that take many options: pools, attention, embeddings."""
from typing import Any, Optional, Tuple

from . import _remat
from ._remat import Tensor
from ._support import Extents

_t = _remat._operators


def max_pool1d(
    x: Tensor, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, dilation: Extents = 1, ceil_mode: bool = False
) -> Tensor:
    """The largest of each window: `[n, c, l]`. Windows lie side by side unless a stride is given; with `ceil_mode` one more may stand
    over the end. Errors: AxisError, ShapeError, ValueError.

    >>> import remat
    >>> remat.arange(4).reshape(1, 1, 4).max_pool1d(2).tolist()
    [[[1, 3]]]
    """
    return _t["max_pool1d"](x, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode)


def max_pool3d(
    x: Tensor, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, dilation: Extents = 1, ceil_mode: bool = False
) -> Tensor:
    """As `max_pool1d` of volumes `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.arange(8).reshape(1, 1, 2, 2, 2).max_pool3d(2).tolist()
    [[[[[7]]]]]
    """
    return _t["max_pool3d"](x, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode)


def avg_pool1d(
    x: Tensor, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window: `[n, c, l]`, see `max_pool1d`; zeros around the image count unless not `count_include_pad`.

    >>> import remat
    >>> remat.tensor([[[1.0, 3.0, 5.0, 7.0]]]).avg_pool1d(2).tolist()
    [[[2.0, 6.0]]]
    """
    step = kernel_size if stride is None else stride
    return _t["avg_pool1d"](x, kernel_size, step, padding, 1, ceil_mode, count_include_pad)


def avg_pool3d(
    x: Tensor, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """As `avg_pool1d` of volumes `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.ones(1, 1, 2, 2, 2).avg_pool3d(2).tolist()
    [[[[[1.0]]]]]
    """
    step = kernel_size if stride is None else stride
    return _t["avg_pool3d"](x, kernel_size, step, padding, 1, ceil_mode, count_include_pad)


def adaptive_avg_pool1d(x: Tensor, output_size: Extents) -> Tensor:
    """The mean of each of `output_size` windows that cover the last axis of `[n, c, l]`. Errors: AxisError, ShapeError, DTypeError.

    >>> import remat
    >>> remat.tensor([[[1.0, 2.0, 3.0, 4.0]]]).adaptive_avg_pool1d(2).tolist()
    [[[1.5, 3.5]]]
    """
    return _t["adaptive_avg_pool1d"](x, output_size)


def adaptive_avg_pool3d(x: Tensor, output_size: Extents) -> Tensor:
    """As `adaptive_avg_pool1d` of volumes `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.ones(1, 1, 2, 3, 5).adaptive_avg_pool3d(1).tolist()
    [[[[[1.0]]]]]
    """
    return _t["adaptive_avg_pool3d"](x, output_size)


def adaptive_max_pool(x: Tensor, output_size: Extents) -> Tuple[Tensor, Tensor]:
    """The largest of each of `output_size` windows that cover one to three spatial axes, `[n, c, size..]`, and its place in row-major order
    within its channel. Errors: AxisError, ShapeError.

    >>> import remat
    >>> [y.tolist() for y in remat.tensor([[[1.0, 4.0, 3.0, 2.0]]]).adaptive_max_pool(2)]
    [[[[4.0, 3.0]]], [[[1, 2]]]]
    """
    return _t[_of_axes("adaptive_max_pool", x)](x, output_size)


def max_pool_with_indices(
    x: Tensor, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0, dilation: Extents = 1, ceil_mode: bool = False
) -> Tuple[Tensor, Tensor]:
    """The largest of each window of one to three spatial axes, `[n, c, size..]`, and its place in row-major order within its channel.

    >>> import remat
    >>> [y.tolist() for y in remat.arange(4).reshape(1, 1, 4).max_pool_with_indices(2)]
    [[[[1, 3]]], [[[1, 3]]]]
    """
    row = _of_axes("max_pool_with_indices", x)
    return _t[row](x, kernel_size, kernel_size if stride is None else stride, padding, dilation, ceil_mode)


def max_unpool(x: Tensor, indices: Tensor, output_size: Extents) -> Tensor:
    """Zeros with the elements in the places that `max_pool_with_indices` gave: `[n, c, out..]` to `[n, c, output_size..]`.

    The last one stays where several have one place. Errors: AxisError, ShapeError, DTypeError; IndexError, when the value is read, for a
    place beyond.

    >>> import remat
    >>> remat.max_unpool(remat.tensor([[[2.0, 4.0]]]), remat.tensor([[[1, 2]]]), 4).tolist()
    [[[0.0, 2.0, 4.0, 0.0]]]
    """
    return _t[_of_axes("max_unpool", x)](x, indices, output_size)


def lp_pool(x: Tensor, norm_type: float, kernel_size: Extents, stride: Optional[Extents] = None, ceil_mode: bool = False) -> Tensor:
    """`(sum x^p)^(1 / p)` of each window of one to three spatial axes, with `p` the `norm_type`: `[n, c, size..]`.

    The `p`-norm of numbers that are not negative; NaN for a sum below 0. Errors: AxisError, ShapeError, DTypeError; ValueError for a
    `norm_type` that is not above 0.

    >>> import remat
    >>> remat.tensor([[[3.0, 4.0, 0.0, 1.0]]]).lp_pool(2.0, 2).tolist()
    [[[5.0, 1.0]]]
    """
    step = kernel_size if stride is None else stride
    return _t[_of_axes("lp_pool", x)](x, norm_type, kernel_size, step, 0, 1, ceil_mode)


def _of_axes(name: str, x: Tensor) -> str:
    if not 3 <= x.ndim <= 5:
        raise ValueError(f"{name}: shape {x.shape} is not [n, c] and one to three extents")
    return f"{name}{x.ndim - 2}d"


def self_attention(
    qkv: Tensor, attn_mask: Optional[Tensor] = None, is_causal: bool = False, scale: Optional[float] = None
) -> Tensor:
    """Attention of the queries, keys and values that lie in `[n, t, 3, heads, d]`, as one linear layer makes them.

    Gives `[n, t, heads, d]`; `scaled_dot_product_attention` has the heads before the places. Errors: AxisError, ShapeError, DTypeError.

    >>> import remat
    >>> remat.tensor([0.0, 1.0, 4.0, 0.0, 5.0, 8.0]).reshape(1, 2, 3, 1, 1).self_attention(is_causal=True).tolist()
    [[[[4.0]], [[6.0]]]]
    """
    return _t["self_attention"](qkv, attn_mask, is_causal, scale)


def embedding_bag(
    weight: Tensor,
    index: Tensor,
    offsets: Optional[Tensor] = None,
    mode: str = "mean",
    per_sample_weights: Optional[Tensor] = None,
    include_last_offset: bool = False,
    padding_idx: Optional[int] = None,
) -> Tensor:
    """One row for each bag of rows of a table: their "sum", "mean" or "max". `weight: [rows, size]` and `index: [bags, n]` give `[bags, size]`.

    With `offsets: [bags]`, where each bag begins, `index: [n]` holds them one behind the other. A bag without rows gives 0. Factors of
    the rows, of the index's shape, are for sums. Errors: AxisError, ShapeError, DTypeError, ValueError; IndexError, when the value is
    read, for an index that is no row.

    >>> import remat
    >>> table = remat.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> table.embedding_bag(remat.tensor([[0, 2], [1, 1]])).tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """
    return _t["embedding_bag"](weight, index, mode, offsets, include_last_offset, per_sample_weights, padding_idx)


def rope(
    x: Tensor,
    base: float = 10000.0,
    width: Optional[int] = None,
    neighbours: bool = False,
    offset: int = 0,
    positions: Optional[Tensor] = None,
    scale: float = 1.0,
) -> Tensor:
    """Rotary embeddings of queries or keys `[n, t, heads, d]` (Su et al., 2021): pairs of numbers of a row turn with the row's place.

    Of the first `width` numbers, all for None, pair `i` turns by `base^(-2 i / width)` for each step; a pair is numbers `i` and `i + width /
    2`, or neighbours. The first row has place `offset`, or rows have `positions: [t]` or `[n, t]`; places are divided by `scale`.
    Errors: AxisError for another rank; ShapeError for an odd width; DTypeError; ValueError for a base or scale that is not positive.

    >>> import remat
    >>> x = remat.tensor([1.0, 0.0, 1.0, 0.0], dtype="float64").reshape(1, 2, 1, 2)
    >>> x.rope().round_to(4).tolist()
    [[[[1.0, 0.0]], [[0.5403, 0.8415]]]]
    """
    return _t["rope"](x, base, width, neighbours, offset, positions, scale)


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool3d", "adaptive_max_pool", "max_pool1d", "max_pool3d", "avg_pool1d", "avg_pool3d", "max_pool_with_indices", "max_unpool", "lp_pool",
    "self_attention", "embedding_bag", "rope",
]

FUNCTIONS = [
    adaptive_avg_pool1d, adaptive_avg_pool3d, adaptive_max_pool, max_pool1d, max_pool3d, avg_pool1d, avg_pool3d, max_pool_with_indices, max_unpool, lp_pool, self_attention, embedding_bag, rope,
]
