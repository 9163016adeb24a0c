"""Reductions, and functions along an axis: sums, extremes, truth, differences."""
from typing import Any, Optional, Tuple, Union

from .. import _remat
from .._remat import Tensor, bool as boolean, dtype, int64, uint64
from ._dtypes import UNSIGNED, kind_of
from ._manipulation import axes_of, concat, one_axis

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod",
    "std", "sum", "var",
]

Axis = Union[int, Tuple[int, ...], None]

_t = _remat._operators


def _over(row: str, x: Tensor, axis: Axis, keepdims: bool, *more: Any) -> Tensor:
    """A reduction over some axes, all for None, none for an empty tuple."""
    axes = tuple(range(x.ndim)) if axis is None else axes_of(axis)
    if not axes:
        # over no axis each element is reduced by itself
        return _t[row + "_over"](x.reshape((*x.shape, 1)), (x.ndim,), False, *more)
    return _t[row + "_over"](x, axes, keepdims, *more)


def _of(name: str, x: Tensor, *kinds: str) -> Tensor:
    if kind_of(x.dtype) not in kinds:
        raise TypeError(f"{name} of {x.dtype.name}; it is for {' and '.join(kinds)} dtypes")
    return x


def _as(y: Tensor, dtype: Optional[dtype]) -> Tensor:
    """A result in the dtype that was asked for: sums of integers have 64 bits."""
    return y if dtype is None else _t["cast"](y, dtype)


def _summed(x: Tensor, dtype: Optional[dtype]) -> Tensor:
    """`x` in the dtype of its sum: integers in 64 bits, so that they have room."""
    if dtype is None and x.dtype.is_floating_point:
        return x
    return _t["cast"](x, dtype or (uint64 if x.dtype in UNSIGNED else int64))


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Optional[dtype] = None, keepdims: bool = False) -> Tensor:
    """The sum over axes, all for None; 0 of no elements. Integers are added up as int64 or uint64.

    Errors: IndexError for an axis out of range.

    >>> from remat import array_api as xp
    >>> xp.sum(xp.asarray([[1, 2], [3, 4]]), axis=0).tolist()
    [4, 6]
    """
    return _as(_over("sum", _summed(x, dtype), axis, keepdims), dtype)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Optional[dtype] = None, keepdims: bool = False) -> Tensor:
    """The product over axes, all for None; 1 of no elements. Integers are multiplied as int64 or uint64.

    >>> from remat import array_api as xp
    >>> xp.prod(xp.asarray([2, 3])).item()
    6
    """
    return _as(_over("prod", _summed(x, dtype), axis, keepdims), dtype)


def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element over axes, or NaN if one element is NaN. Errors: ValueError for no elements.

    >>> from remat import array_api as xp
    >>> xp.max(xp.asarray([[1, 5], [3, 4]]), axis=1).tolist()
    [5, 4]
    """
    return _over("max", _of("max", x, "integral", "real floating"), axis, keepdims)


def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element over axes, or NaN if one element is NaN. Errors: ValueError for no elements.

    >>> from remat import array_api as xp
    >>> xp.min(xp.asarray([[1, 5], [3, 4]]), axis=1).tolist()
    [1, 3]
    """
    return _over("min", _of("min", x, "integral", "real floating"), axis, keepdims)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean over axes, NaN of no elements. Errors: TypeError for other than floats.

    >>> from remat import array_api as xp
    >>> xp.mean(xp.asarray([1.0, 3.0])).item()
    2.0
    """
    return _over("mean", _of("mean", x, "real floating"), axis, keepdims)


def var(x: Tensor, /, *, axis: Axis = None, correction: Union[int, float] = 0.0, keepdims: bool = False) -> Tensor:
    """The mean square of the distances from the mean over axes: the sum over `n - correction`. Errors: TypeError for other than floats.

    >>> from remat import array_api as xp
    >>> xp.var(xp.asarray([1.0, 3.0])).item(), xp.var(xp.asarray([1.0, 3.0]), correction=1).item()
    (1.0, 2.0)
    """
    far = _of("var", x, "real floating") - mean(x, axis=axis, keepdims=True) if axis != () else x - x
    total = _over("sum_sqr", far, axis, keepdims)
    n = 1
    for a in range(x.ndim) if axis is None else axes_of(axis):
        n *= x.shape[a]
    # a negative number of degrees of freedom counts as none
    left = n - correction
    return total / (left if left > 0 else 0.0)


def std(x: Tensor, /, *, axis: Axis = None, correction: Union[int, float] = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`. Errors: TypeError for other than floats.

    >>> from remat import array_api as xp
    >>> xp.std(xp.asarray([1.0, 3.0])).item()
    1.0
    """
    return _t["sqrt"](var(x, axis=axis, correction=correction, keepdims=keepdims))


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where all elements over axes are not 0; true for no elements.

    >>> from remat import array_api as xp
    >>> xp.all(xp.asarray([[True, False], [True, True]]), axis=1).tolist()
    [False, True]
    """
    return _over("all", x if x.dtype == boolean else x != 0, axis, keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """True where an element over axes is not 0; false for no elements.

    >>> from remat import array_api as xp
    >>> xp.any(xp.asarray([[True, False], [False, False]]), axis=1).tolist()
    [True, False]
    """
    return _over("any", x if x.dtype == boolean else x != 0, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The number of elements over axes that are not 0, as int64.

    >>> from remat import array_api as xp
    >>> xp.count_nonzero(xp.asarray([0, 2, 3])).item()
    2
    """
    return sum(_t["cast"](x if x.dtype == boolean else x != 0, int64), axis=axis, keepdims=keepdims)


def _place_of(row: str, x: Tensor, axis: Optional[int], keepdims: bool) -> Tensor:
    _of(row, x, "integral", "real floating")
    if axis is not None:
        return _t[row + "_over"](x, axis, keepdims)
    y = _t[row](x)
    return y.reshape((1,) * x.ndim) if keepdims else y


def argmax(x: Tensor, /, *, axis: Optional[int] = None, keepdims: bool = False) -> Tensor:
    """The first place of the largest element along an axis; in row-major order for None. Errors: ValueError for no elements.

    >>> from remat import array_api as xp
    >>> xp.argmax(xp.asarray([[1, 5], [3, 2]]), axis=1).tolist()
    [1, 0]
    """
    return _place_of("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: Optional[int] = None, keepdims: bool = False) -> Tensor:
    """The first place of the smallest element along an axis; in row-major order for None. Errors: ValueError for no elements.

    >>> from remat import array_api as xp
    >>> xp.argmin(xp.asarray([[1, 5], [3, 2]]), axis=1).tolist()
    [0, 1]
    """
    return _place_of("argmin", x, axis, keepdims)


def _cumulative(name: str, row: str, x: Tensor, axis: Optional[int], dtype: Optional[dtype], first: Optional[int]) -> Tensor:
    at = one_axis(name, _of(name, x, "integral", "real floating"), axis)
    y = _as(_t[row](_summed(x, dtype), at), dtype)
    if first is None:
        return y
    extents = list(x.shape)
    extents[at] = 1
    return concat([_t["full"](x.device, extents, y.dtype, first), y], axis=at)


def cumulative_sum(
    x: Tensor, /, *, axis: Optional[int] = None, dtype: Optional[dtype] = None, include_initial: bool = False
) -> Tensor:
    """The sums of all elements so far along an axis; a vector needs no `axis`. With `include_initial` they begin with
    0.

    Integers are added up as int64 or uint64. Errors: ValueError without an axis for another rank than 1.

    >>> from remat import array_api as xp
    >>> xp.cumulative_sum(xp.asarray([1, 2, 3]), include_initial=True).tolist()
    [0, 1, 3, 6]
    """
    return _cumulative("cumulative_sum", "cumsum", x, axis, dtype, 0 if include_initial else None)


def cumulative_prod(
    x: Tensor, /, *, axis: Optional[int] = None, dtype: Optional[dtype] = None, include_initial: bool = False
) -> Tensor:
    """The products of all elements so far along an axis, as `cumulative_sum`. With `include_initial` they begin with 1.

    >>> from remat import array_api as xp
    >>> xp.cumulative_prod(xp.asarray([1, 2, 3])).tolist()
    [1, 2, 6]
    """
    return _cumulative("cumulative_prod", "cumprod", x, axis, dtype, 1 if include_initial else None)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Optional[Tensor] = None, append: Optional[Tensor] = None
) -> Tensor:
    """The differences of neighbours along an axis, taken `n` times. `prepend` and `append` extend the array first.
    Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.diff(xp.asarray([1, 4, 9])).tolist(), xp.diff(xp.asarray([1, 4, 9]), n=2).tolist()
    ([3, 5], [2])
    """
    if n < 0:
        raise ValueError(f"diff: {n} times")
    parts = [p for p in (prepend, x, append) if p is not None]
    x = concat(parts, axis=axis) if len(parts) > 1 else x
    return _t["diff"](x, n, axis) if n else +x
