"""Shapes: joining, splitting, moving axes."""
from typing import Any, List, Optional, Sequence, Tuple, Union

from .. import _remat
from .._remat import Tensor, int64
from ._dtypes import result_type

__all__ = [
    "broadcast_arrays", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims", "repeat", "reshape", "roll",
    "squeeze", "stack", "take", "take_along_axis", "tile", "unstack",
]

Axes = Union[int, Tuple[int, ...]]
Arrays = Union[Tuple[Tensor, ...], List[Tensor]]

_t = _remat._operators


def axes_of(axis: Any) -> Tuple[int, ...]:
    """One axis or several, as a tuple."""
    return (axis,) if isinstance(axis, int) else tuple(axis)


def one_axis(name: str, x: Tensor, axis: Optional[int]) -> int:
    """The axis, which may be left out for a vector. Errors: ValueError."""
    if axis is None and x.ndim != 1:
        raise ValueError(f"{name} of shape {x.shape} needs its axis")
    return 0 if axis is None else axis


def common_shape(*shapes: Sequence[int]) -> Tuple[int, ...]:
    """The shape to which all broadcast. Errors: ValueError."""
    rank = max((len(s) for s in shapes), default=0)
    out = []
    for extents in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes)):
        wide = {n for n in extents if n != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {', '.join(str(tuple(s)) for s in shapes)} do not broadcast")
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def broadcast_to(x: Tensor, /, shape: Tuple[int, ...]) -> Tensor:
    """The array repeated along axes of extent 1, and new first axes. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.broadcast_to(xp.arange(2), (2, 2)).tolist()
    [[0, 1], [0, 1]]
    """
    return _t["broadcast_to"](x, shape)


def broadcast_arrays(*arrays: Tensor) -> List[Tensor]:
    """Arrays repeated to their common shape. Errors: ValueError if there is none.

    >>> from remat import array_api as xp
    >>> [a.shape for a in xp.broadcast_arrays(xp.ones((2, 1)), xp.ones(3))]
    [(2, 3), (2, 3)]
    """
    shape = common_shape(*(a.shape for a in arrays))
    return [broadcast_to(a, shape) for a in arrays]


def _of_one_dtype(arrays: Arrays) -> List[Tensor]:
    of = result_type(*arrays)
    return [_t["cast"](a, of) for a in arrays]


def concat(arrays: Arrays, /, *, axis: Optional[int] = 0) -> Tensor:
    """Arrays joined along an axis, in their common dtype. With `axis=None` they are joined as vectors. Errors:
    ValueError.

    >>> from remat import array_api as xp
    >>> xp.concat([xp.arange(2), xp.arange(3)]).tolist()
    [0, 1, 0, 1, 2]
    """
    parts = _of_one_dtype(arrays)
    if axis is None:
        parts, axis = [p.reshape(-1) for p in parts], 0
    return _t["concat"](parts, axis)


def stack(arrays: Arrays, /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis, in their common dtype. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.stack([xp.arange(2), xp.arange(2)], axis=1).tolist()
    [[0, 0], [1, 1]]
    """
    return _t["stack"](_of_one_dtype(arrays), axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> Tuple[Tensor, ...]:
    """The parts along an axis, without that axis. Errors: IndexError for an axis out of range.

    >>> from remat import array_api as xp
    >>> [a.tolist() for a in xp.unstack(xp.asarray([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    return tuple(_t["unbind"](x, axis))


def expand_dims(x: Tensor, /, axis: int) -> Tensor:
    """A new axis of extent 1. Errors: IndexError for an axis out of range.

    >>> from remat import array_api as xp
    >>> xp.expand_dims(xp.ones(2), axis=1).shape
    (2, 1)
    """
    return _t["unsqueeze"](x, axis)


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """The array without axes of extent 1. Errors: ValueError for an axis of another extent.

    >>> from remat import array_api as xp
    >>> xp.squeeze(xp.ones((1, 2)), 0).shape
    (2,)
    """
    axes = axes_of(axis)
    if not axes:
        return +x
    wrong = [a for a in axes if -x.ndim <= a < x.ndim and x.shape[a] != 1]
    if wrong:
        raise ValueError(f"squeeze: axis {wrong[0]} of shape {x.shape} has not extent 1")
    return _t["squeeze"](x, axes)


def flip(x: Tensor, /, *, axis: Optional[Axes] = None) -> Tensor:
    """The elements in reverse order along axes; along all axes for None.

    >>> from remat import array_api as xp
    >>> xp.flip(xp.arange(3)).tolist()
    [2, 1, 0]
    """
    axes = tuple(range(x.ndim)) if axis is None else axes_of(axis)
    return _t["flip"](x, axes) if axes else +x


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
    """Axes moved to other places; the others keep their order. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.moveaxis(xp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    n = x.ndim

    def places(axis: Axes) -> List[int]:
        found = [a + n if a < 0 else a for a in axes_of(axis)]
        if len(set(found)) != len(found) or any(not 0 <= a < n for a in found):
            raise IndexError(f"moveaxis: {axis} are not different axes of shape {x.shape}")
        return found

    from_, to = places(source), places(destination)
    if len(from_) != len(to):
        raise ValueError(f"moveaxis of {len(from_)} axes to {len(to)} places")
    order = [a for a in range(n) if a not in from_]
    for place, a in sorted(zip(to, from_)):
        order.insert(place, a)
    return _t["permute"](x, order)


def permute_dims(x: Tensor, /, axes: Tuple[int, ...]) -> Tensor:
    """The axes in another order. Errors: ValueError unless each is named once.

    >>> from remat import array_api as xp
    >>> xp.permute_dims(xp.ones((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return _t["permute"](x, axes)


def repeat(x: Tensor, repeats: Union[int, Tensor], /, *, axis: Optional[int] = None) -> Tensor:
    """Each element repeated along an axis. For None the array is flattened first. `repeats` is a number, or a number
    for each place.

    Errors: ValueError for other numbers of repeats, and for negative ones.

    >>> from remat import array_api as xp
    >>> xp.repeat(xp.arange(2), 2).tolist(), xp.repeat(xp.arange(2), xp.asarray([1, 3])).tolist()
    ([0, 0, 1, 1], [0, 1, 1, 1])
    """
    if axis is None:
        x, axis = x.reshape(-1), 0
    if isinstance(repeats, Tensor) and repeats.size == 1:
        repeats = int(repeats.item())
    if not isinstance(repeats, Tensor):
        if repeats < 0:
            raise ValueError(f"repeat: {repeats} times")
        if repeats == 0:
            extents = list(x.shape)
            extents[axis] = 0
            return _t["full"](x.device, extents, x.dtype, 0)
        return _t["repeat_interleave"](x, repeats, axis)
    counts = repeats.tolist()
    if repeats.ndim != 1 or len(counts) != x.shape[axis]:
        raise ValueError(f"repeat: {repeats.shape} numbers of repeats for {x.shape[axis]} places")
    if any(n < 0 for n in counts):
        raise ValueError("repeat: a negative number of times")
    places = [i for i, n in enumerate(counts) for _ in range(n)]
    return _t["take"](x, axis, _remat.from_nested(places, int64, x.device))


def reshape(x: Tensor, /, shape: Tuple[int, ...], *, copy: Optional[bool] = None) -> Tensor:
    """The elements in another shape, in row-major order; one extent may be -1. It is a view, but an assignment to one
    does not change the other.

    Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.reshape(xp.arange(4), (2, -1)).tolist()
    [[0, 1], [2, 3]]
    """
    return _t["reshape"](x, shape)


def roll(x: Tensor, /, shift: Axes, *, axis: Optional[Axes] = None) -> Tensor:
    """Elements moved on by `shift` places; those moved beyond the end come first. Without an axis, all elements move in
    row-major order.

    Errors: ValueError for other numbers of shifts than axes.

    >>> from remat import array_api as xp
    >>> xp.roll(xp.arange(4), 1).tolist()
    [3, 0, 1, 2]
    """
    if axis is None:
        return roll(x.reshape(-1), shift, axis=0).reshape(x.shape)
    axes = axes_of(axis)
    shifts = axes_of(shift)
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    y = +x
    for s, a in zip(shifts, axes):
        y = _t["roll"](y, s, a)
    return y


def tile(x: Tensor, repetitions: Tuple[int, ...], /) -> Tensor:
    """The array repeated side by side along each axis. Missing axes are added in front.

    >>> from remat import array_api as xp
    >>> xp.tile(xp.arange(2), (2, 2)).tolist()
    [[0, 1, 0, 1], [0, 1, 0, 1]]
    """
    counts = (1,) * (x.ndim - len(repetitions)) + tuple(repetitions)
    x = x.reshape((1,) * (len(counts) - x.ndim) + x.shape)
    if 0 in counts:
        return _t["full"](x.device, [n * d for n, d in zip(counts, x.shape)], x.dtype, 0)
    return _t["tile"](x, counts)


def take(x: Tensor, indices: Tensor, /, *, axis: Optional[int] = None) -> Tensor:
    """The parts at places of an axis; a vector needs no `axis`. Negative places count from the end.

    Errors: TypeError for other indices than integers; IndexError, when the value is read, for a place outside.

    >>> from remat import array_api as xp
    >>> xp.take(xp.arange(5), xp.asarray([3, -1])).tolist()
    [3, 4]
    """
    at = one_axis("take", x, axis)
    if not -x.ndim <= at < x.ndim:
        raise IndexError(f"take: axis {at} of shape {x.shape}")
    return _t["take"](x, at, _from_the_start(indices, x.shape[at]))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The element of each line along an axis that `indices` names; other axes broadcast. Negative places count from the end.

    >>> from remat import array_api as xp
    >>> xp.take_along_axis(xp.asarray([[1, 2], [3, 4]]), xp.asarray([[1], [0]]), axis=1).tolist()
    [[2], [3]]
    """
    if x.ndim != indices.ndim:
        raise ValueError(f"take_along_axis of {x.ndim} axes by {indices.ndim}")
    if not -x.ndim <= axis < x.ndim:
        raise IndexError(f"take_along_axis: axis {axis} of shape {x.shape}")
    at = axis % x.ndim
    rest = common_shape(x.shape[:at] + x.shape[at + 1 :], indices.shape[:at] + indices.shape[at + 1 :])
    extent = x.shape[at]
    x = broadcast_to(x, (*rest[:at], extent, *rest[at:]))
    indices = broadcast_to(indices, (*rest[:at], indices.shape[at], *rest[at:]))
    return _t["gather"](x, at, _from_the_start(indices, extent))


def _from_the_start(indices: Tensor, extent: int) -> Tensor:
    """Places with negative ones, which count from the end of an axis, made positive."""
    if indices.dtype.name.startswith("uint"):
        return indices
    indices = _t["cast"](indices, int64)
    return _t["where_cond"](indices < 0, indices + extent, indices)
