"""Searching, sorting and sets. Shapes of sets, and of the result of `nonzero`, depend on the data, so these functions
wait for the data."""
from typing import Any, NamedTuple, Optional, Tuple

from .. import _remat
from .._remat import Tensor, bool as boolean
from ._creation import beside
from ._dtypes import kind_of, result_type

__all__ = [
    "argsort", "nonzero", "searchsorted", "sort", "unique_all", "unique_counts", "unique_inverse", "unique_values", "where",
]

_t = _remat._operators


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """`x1` where the condition is true, else `x2`, in their common dtype; shapes broadcast, and one of them may be a number.

    Errors: TypeError for a condition that is not of truth values.

    >>> from remat import array_api as xp
    >>> xp.where(xp.asarray([True, False]), xp.asarray([1, 2]), 0).tolist()
    [1, 0]
    """
    if condition.dtype != boolean:
        raise TypeError(f"where: a condition of {condition.dtype.name}")
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        raise TypeError("where: one of two values is an array")
    a, b = beside(x1, x2), beside(x2, x1)
    of = result_type(a, b)
    return _t["where_cond"](condition, _t["cast"](a, of), _t["cast"](b, of))


def nonzero(x: Tensor, /) -> Tuple[Tensor, ...]:
    """The places of elements that are not 0, in row-major order: a vector for each axis. Errors: ValueError for no axes.

    >>> from remat import array_api as xp
    >>> [a.tolist() for a in xp.nonzero(xp.asarray([[0, 1], [2, 0]]))]
    [[0, 1], [1, 0]]
    """
    if x.ndim == 0:
        raise ValueError("nonzero of an array without axes")
    places = _t["nonzero"](x)
    return tuple(places[:, a] for a in range(x.ndim))


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Optional[Tensor] = None) -> Tensor:
    """The places at which the elements of `x2` go into the sorted vector `x1`. If `x1` is not sorted, `sorter` has the
    places that sort it.

    An element goes before equal ones, or behind them for `side="right"`. Errors: ValueError for another name or rank.

    >>> from remat import array_api as xp
    >>> xp.searchsorted(xp.asarray([1, 3, 5]), xp.asarray([0, 3, 9])).tolist()
    [0, 1, 3]
    """
    if side not in ("left", "right"):
        raise ValueError(f"`{side}` is none of left, right")
    if x1.ndim != 1:
        raise ValueError(f"searchsorted in an array of shape {x1.shape}")
    of = result_type(x1, x2)
    x1, x2 = _t["cast"](x1, of), _t["cast"](x2, of)
    if sorter is not None:
        x1 = _t["take"](x1, 0, sorter)
    return _t["searchsorted"](x1, x2.reshape(-1), side == "right").reshape(x2.shape)


def _in_order(x: Tensor, axis: int, descending: bool) -> Tuple[Tensor, Tensor]:
    if kind_of(x.dtype) == "bool":
        raise TypeError("truth values have no order")
    return _t["sort"](x, axis, descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis. Errors: TypeError for truth values.

    >>> from remat import array_api as xp
    >>> xp.sort(xp.asarray([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    return _in_order(x, axis, descending)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places of the elements in order along an axis. Equal elements keep their order.

    >>> from remat import array_api as xp
    >>> xp.argsort(xp.asarray([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    return _in_order(x, axis, descending)[1]


class UniqueAll(NamedTuple):
    """The result of `unique_all`.

    >>> from remat import array_api as xp
    >>> xp.unique_all(xp.asarray([2, 1, 2])).values.tolist()
    [1, 2]
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`.

    >>> from remat import array_api as xp
    >>> xp.unique_counts(xp.asarray([2, 1, 2])).counts.tolist()
    [1, 2]
    """

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`.

    >>> from remat import array_api as xp
    >>> xp.unique_inverse(xp.asarray([2, 1, 2])).inverse_indices.tolist()
    [1, 0, 1]
    """

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements in order, the first place of each, the index of each element of `x` among them, in the
    shape of `x`, and the count of each. NaN differs from NaN.

    >>> from remat import array_api as xp
    >>> [a.tolist() for a in xp.unique_all(xp.asarray([2, 1, 2]))]
    [[1, 2], [1, 0], [1, 0, 1], [1, 2]]
    """
    values, indices, inverse, counts = _t["unique_all"](x.reshape(-1))
    return UniqueAll(values, indices, inverse.reshape(x.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements in order, and the count of each. NaN differs from NaN.

    >>> from remat import array_api as xp
    >>> [a.tolist() for a in xp.unique_counts(xp.asarray([2, 1, 2]))]
    [[1, 2], [1, 2]]
    """
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements in order, and the index of each element of `x` among them, in the shape of `x`. NaN differs
    from NaN.

    >>> from remat import array_api as xp
    >>> [a.tolist() for a in xp.unique_inverse(xp.asarray([2, 1, 2]))]
    [[1, 2], [1, 0, 1]]
    """
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements in order. NaN differs from NaN.

    >>> from remat import array_api as xp
    >>> xp.unique_values(xp.asarray([2, 1, 2])).tolist()
    [1, 2]
    """
    return unique_all(x).values
