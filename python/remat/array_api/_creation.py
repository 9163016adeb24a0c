"""Making arrays."""
import math
from typing import Any, List, Optional, Tuple, Union

from .. import _creation, _remat
from .._remat import Device, Tensor, dtype, float32, int64
from ._dtypes import device_of, result_type

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones",
    "ones_like", "tril", "triu", "zeros", "zeros_like",
]

Shape = Union[int, Tuple[int, ...]]
Number = Union[bool, int, float]


def asarray(
    obj: Any, /, *, dtype: Optional[dtype] = None, device: Optional[Device] = None, copy: Optional[bool] = None
) -> Tensor:
    """An array from a number, nested sequences of numbers, another array, or an object with `__dlpack__`.

    Python's floats become float32 and integers int64. Errors: ValueError with `copy=False` for an object that is not
    already an array of this library; ValueError for ragged sequences; TypeError for data without numbers, and for
    complex numbers.

    >>> from remat import array_api as xp
    >>> xp.asarray([[1, 2], [3, 4]], dtype=xp.int8).tolist()
    [[1, 2], [3, 4]]
    """
    if not isinstance(obj, Tensor):
        if copy is False:
            raise ValueError("an array's bytes belong to its device: other objects are copied")
        return _creation._asarray(obj, device, dtype)
    changes = dtype is not None and dtype != obj.dtype or device is not None and device != obj.device
    if changes and copy is False:
        raise ValueError("another dtype or device needs a copy")
    if changes:
        return _creation._asarray(obj, obj.device if device is None else device, dtype)
    return +obj if copy else obj


def from_dlpack(x: Any, /, *, device: Optional[Device] = None, copy: Optional[bool] = None) -> Tensor:
    """An array with a copy of the data of an object that has `__dlpack__`.

    Errors: BufferError with `copy=False`, since bytes belong to their device, and for data that are not on the host.

    >>> from remat import array_api as xp
    >>> xp.from_dlpack(xp.ones(2)).tolist()
    [1.0, 1.0]
    """
    if copy is False:
        raise BufferError("an array's bytes belong to its device: only a copy can be given")
    return _creation.from_dlpack(x, device)


def full(shape: Shape, fill_value: Number, *, dtype: Optional[dtype] = None, device: Optional[Device] = None) -> Tensor:
    """An array with one number everywhere. Without a dtype it has that of the number: bool, int64 or float32.

    >>> from remat import array_api as xp
    >>> xp.full((2, 2), 7).tolist()
    [[7, 7], [7, 7]]
    """
    return _creation.full(shape, fill_value, dtype, device)


def zeros(shape: Shape, *, dtype: Optional[dtype] = None, device: Optional[Device] = None) -> Tensor:
    """Zeros, of float32 without a dtype.

    >>> from remat import array_api as xp
    >>> xp.zeros((1, 2)).tolist()
    [[0.0, 0.0]]
    """
    return _creation.full(shape, 0, float32 if dtype is None else dtype, device)


def ones(shape: Shape, *, dtype: Optional[dtype] = None, device: Optional[Device] = None) -> Tensor:
    """Ones, of float32 without a dtype.

    >>> from remat import array_api as xp
    >>> xp.ones(2, dtype=xp.int8).tolist()
    [1, 1]
    """
    return _creation.full(shape, 1, float32 if dtype is None else dtype, device)


def empty(shape: Shape, *, dtype: Optional[dtype] = None, device: Optional[Device] = None) -> Tensor:
    """Zeros. This library never gives memory with arbitrary content.

    >>> from remat import array_api as xp
    >>> xp.empty(2).shape
    (2,)
    """
    return zeros(shape, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Number, *, dtype: Optional[dtype] = None, device: Optional[Device] = None) -> Tensor:
    """One number in the shape of `x`. Dtype and device are those of `x` unless given.

    >>> from remat import array_api as xp
    >>> xp.full_like(xp.ones(2), 3).tolist()
    [3.0, 3.0]
    """
    return _creation.full_like(x, fill_value, dtype, device)


def zeros_like(x: Tensor, /, *, dtype: Optional[dtype] = None, device: Optional[Device] = None) -> Tensor:
    """Zeros, see `full_like`.

    >>> from remat import array_api as xp
    >>> xp.zeros_like(xp.ones(2)).tolist()
    [0.0, 0.0]
    """
    return _creation.full_like(x, 0, dtype, device)


def ones_like(x: Tensor, /, *, dtype: Optional[dtype] = None, device: Optional[Device] = None) -> Tensor:
    """Ones, see `full_like`.

    >>> from remat import array_api as xp
    >>> xp.ones_like(xp.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return _creation.full_like(x, 1, dtype, device)


def empty_like(x: Tensor, /, *, dtype: Optional[dtype] = None, device: Optional[Device] = None) -> Tensor:
    """Zeros, see `full_like`.

    >>> from remat import array_api as xp
    >>> xp.empty_like(xp.ones(2)).shape
    (2,)
    """
    return zeros_like(x, dtype=dtype, device=device)


def arange(
    start: Union[int, float],
    /,
    stop: Union[int, float, None] = None,
    step: Union[int, float] = 1,
    *,
    dtype: Optional[dtype] = None,
    device: Optional[Device] = None,
) -> Tensor:
    """`start, start + step, ..` before `stop`; from 0 if only one number is given. The array is empty if `stop` lies in
    the other direction.

    Integers give int64, floats float32. Errors: ValueError for a step of 0.

    >>> from remat import array_api as xp
    >>> xp.arange(3).tolist(), xp.arange(5, 0, -2).tolist()
    ([0, 1, 2], [5, 3, 1])
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange with a step of 0")
    if dtype is None:
        dtype = float32 if any(isinstance(v, float) for v in (start, stop, step)) else int64
    if math.ceil((stop - start) / step) <= 0:
        return zeros(0, dtype=dtype, device=device)
    return _creation.arange(start, stop, step, dtype, device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Optional[dtype] = None,
    device: Optional[Device] = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, which is the last of them if `endpoint`.

    Errors: ValueError for a negative number.

    >>> from remat import array_api as xp
    >>> xp.linspace(0, 1, 4, endpoint=False).tolist()
    [0.0, 0.25, 0.5, 0.75]
    """
    if num < 0:
        raise ValueError(f"linspace of {num} numbers")
    of = float32 if dtype is None else dtype
    if num == 0:
        return zeros(0, dtype=of, device=device)
    if not endpoint:
        stop = start + (stop - start) * (num - 1) / num
    return _creation.linspace(start, stop, num, of, device)


def eye(
    n_rows: int, n_cols: Optional[int] = None, /, *, k: int = 0, dtype: Optional[dtype] = None, device: Optional[Device] = None
) -> Tensor:
    """Ones on diagonal `k` of a matrix, zeros elsewhere.

    >>> from remat import array_api as xp
    >>> xp.eye(2, 3, k=1).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return _creation.eye(n_rows, n_cols, k, float32 if dtype is None else dtype, device)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> List[Tensor]:
    """The coordinates of a grid over vectors: arrays of one shape. Each varies along one axis.

    The first two axes belong to the second and the first vector. With `indexing="ij"` axes have the order of the
    vectors. Errors: ValueError for another rank than 1, and another name.

    >>> from remat import array_api as xp
    >>> [g.tolist() for g in xp.meshgrid(xp.arange(2), xp.arange(3))]
    [[[0, 1], [0, 1], [0, 1]], [[0, 0], [1, 1], [2, 2]]]
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"`{indexing}` is none of xy, ij")
    n = len(arrays)
    axes = list(range(n))
    if indexing == "xy" and n > 1:
        axes[:2] = [1, 0]
    if any(a.ndim != 1 for a in arrays):
        raise ValueError("meshgrid takes arrays of one axis")
    shape = [0] * n
    for a, axis in zip(arrays, axes):
        shape[axis] = a.shape[0]
    grids = []
    for a, axis in zip(arrays, axes):
        one = [1] * n
        one[axis] = a.shape[0]
        grids.append(a.reshape(one).broadcast_to(shape))
    return grids


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The elements on and below diagonal `k` of matrices, zeros above. Errors: ValueError for less than two axes.

    >>> from remat import array_api as xp
    >>> xp.tril(xp.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    return _remat._operators["tril"](x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The elements on and above diagonal `k` of matrices, zeros below. Errors: ValueError for less than two axes.

    >>> from remat import array_api as xp
    >>> xp.triu(xp.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return _remat._operators["triu"](x, k)


def beside(x: Any, *others: Any) -> Tensor:
    """An array as it is, and a number as an array that broadcasts beside others."""
    if isinstance(x, Tensor):
        return x
    if not isinstance(x, (bool, int, float)):
        raise TypeError(f"expected an array or a number, got {type(x).__name__}")
    return _creation.full((), x, result_type(x, *others), device_of(*others))
