"""Functions that make tensors: from data, from numbers, from random keys."""
from typing import Any, Optional, Sequence, Union

from . import _functions, _remat
from ._remat import Device, Generator, Tensor
from ._support import DTypeLike, Number, ShapeLike, default_device, default_generator, shape_of, whole


def _asarray(data: Any, device: Optional[Device] = None, dtype: Optional[DTypeLike] = None) -> Tensor:
    device = default_device(device)
    if isinstance(data, Tensor):
        made = data._copy_to(device)
    elif hasattr(data, "__array_interface__"):
        import numpy

        array = numpy.ascontiguousarray(data)
        if array.dtype.byteorder not in "=|<":
            array = array.astype(array.dtype.newbyteorder("="))
        made = _remat.from_bytes(array.tobytes(), numpy.shape(data), array.dtype.name, device)
    elif hasattr(data, "__dlpack__"):
        made = _remat.from_dlpack(data, device)
    elif isinstance(data, (list, tuple)) and data and hasattr(data[0], "shape") and not isinstance(data[0], (int, float)):
        made = _functions.stack([_asarray(part, device) for part in data])
    else:
        return _remat.from_nested(data, dtype, device)
    return made if dtype is None else made.astype(dtype)


def asarray(data: Any, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None) -> Tensor:
    """A tensor from numbers, nested lists of numbers, a NumPy array, or an object with `__dlpack__`. A tensor is
    returned as it is.

    Without a dtype, Python's floats become float32, integers int64 and truth values bool; arrays keep theirs. Errors:
    ValueError for ragged lists; TypeError for data without numbers.

    >>> import remat
    >>> remat.asarray([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]], shape=(2, 2), dtype=int64)
    """
    return _asarray(data, device, dtype)


def tensor(
    data: Any, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None, requires_grad: bool = False
) -> Tensor:
    """As `asarray`, but always without history. With `requires_grad` it is a leaf, whose gradient `backward`
    accumulates.

    >>> import remat
    >>> x = remat.tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad.tolist()
    [2.0, 4.0, 6.0]
    """
    made = _asarray(data, device, dtype).detach()
    if requires_grad:
        made.requires_grad = True
    return made


def from_dlpack(x: Any, device: Optional[Device] = None) -> Tensor:
    """A tensor with a copy of the data of an object that has `__dlpack__`. Errors: BufferError for data that are not on
    the host.

    A copy, since a tensor's bytes belong to its device's budget.

    >>> import remat
    >>> remat.from_dlpack(remat.arange(3)).tolist()
    [0, 1, 2]
    """
    return _remat.from_dlpack(x, default_device(device))


def full(shape: ShapeLike, fill_value: Number, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None) -> Tensor:
    """A tensor with one number everywhere. Without `dtype` it has the dtype of the number.

    >>> import remat
    >>> remat.full((2, 2), 7).tolist()
    [[7, 7], [7, 7]]
    """
    if dtype is None:
        dtype = type(fill_value) if isinstance(fill_value, (bool, int, float)) else asarray(fill_value).dtype
    return _remat._operators["full"](default_device(device), shape_of((shape,)), dtype, fill_value)


def zeros(*shape: Any, dtype: DTypeLike = "float32", device: Optional[Device] = None) -> Tensor:
    """Zeros.

    >>> import remat
    >>> remat.zeros(2, 3).shape, remat.zeros((2, 3)).shape
    ((2, 3), (2, 3))
    """
    return full(shape_of(shape), 0, dtype, device)


def ones(*shape: Any, dtype: DTypeLike = "float32", device: Optional[Device] = None) -> Tensor:
    """Ones.

    >>> import remat
    >>> remat.ones(2, dtype="int64").tolist()
    [1, 1]
    """
    return full(shape_of(shape), 1, dtype, device)


def empty(*shape: Any, dtype: DTypeLike = "float32", device: Optional[Device] = None) -> Tensor:
    """Zeros. This library never gives memory with arbitrary content.

    >>> import remat
    >>> remat.empty(2).tolist()
    [0.0, 0.0]
    """
    return zeros(*shape, dtype=dtype, device=device)


def full_like(x: Tensor, fill_value: Number, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None) -> Tensor:
    """One number in the shape of `x`. Dtype and device are those of `x` unless given.

    >>> import remat
    >>> remat.full_like(remat.zeros(2), 3).tolist()
    [3.0, 3.0]
    """
    return full(x.shape, fill_value, x.dtype if dtype is None else dtype, x.device if device is None else device)


def zeros_like(x: Tensor, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None) -> Tensor:
    """Zeros like `x`, see `full_like`.

    >>> import remat
    >>> remat.zeros_like(remat.ones(2)).tolist()
    [0.0, 0.0]
    """
    return full_like(x, 0, dtype, device)


def ones_like(x: Tensor, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None) -> Tensor:
    """Ones like `x`, see `full_like`.

    >>> import remat
    >>> remat.ones_like(remat.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return full_like(x, 1, dtype, device)


empty_like = zeros_like


def arange(
    start: Number,
    stop: Optional[Number] = None,
    step: Number = 1,
    dtype: Optional[DTypeLike] = None,
    device: Optional[Device] = None,
) -> Tensor:
    """`start, start + step, ..` below `stop`; from 0 if only one number is given. Integers give int64, floats float32.

    Errors: ArgumentError for a step of 0.

    >>> import remat
    >>> remat.arange(2, 8, 3).tolist(), remat.arange(3).dtype
    ([2, 5], remat.int64)
    """
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        dtype = "float32" if any(isinstance(v, float) for v in (start, stop, step)) else "int64"
    return _remat._operators["arange"](default_device(device), start, stop, step, dtype)


def linspace(
    start: float, stop: float, num: int = 50, dtype: DTypeLike = "float32", device: Optional[Device] = None
) -> Tensor:
    """`num` numbers at equal distances from `start` to `stop`, both included.

    >>> import remat
    >>> remat.linspace(0, 1, 3).tolist()
    [0.0, 0.5, 1.0]
    """
    return _remat._operators["linspace"](default_device(device), start, stop, num, dtype)


def eye(n: int, m: Optional[int] = None, k: int = 0, dtype: DTypeLike = "float32", device: Optional[Device] = None) -> Tensor:
    """Ones on the diagonal `k` of an `n` by `m` matrix, zeros elsewhere.

    >>> import remat
    >>> remat.eye(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    whole(n, "n", 0)
    whole(n if m is None else m, "m", 0)
    rows = arange(n, device=device).reshape(n, 1)
    columns = arange(n if m is None else m, device=device)
    return (columns - rows == k).astype(dtype)


def _key(generator: Optional[Generator], device: Device) -> Tensor:
    return (default_generator() if generator is None else generator)._key(device)


def rand(
    *shape: Any, dtype: DTypeLike = "float32", device: Optional[Device] = None, generator: Optional[Generator] = None
) -> Tensor:
    """Uniform numbers in `0 .. 1`, from the next key of `generator` or of the default one.

    >>> import remat
    >>> x = remat.rand(3, 4)
    >>> bool((x >= 0).all() & (x < 1).all())
    True
    """
    return _functions.uniform(_key(generator, default_device(device)), shape_of(shape), dtype, 0.0, 1.0)


def randn(
    *shape: Any, dtype: DTypeLike = "float32", device: Optional[Device] = None, generator: Optional[Generator] = None
) -> Tensor:
    """Normal numbers of mean 0 and deviation 1, as `rand`.

    >>> import remat
    >>> remat.randn(3, 4).shape
    (3, 4)
    """
    return _functions.normal(_key(generator, default_device(device)), shape_of(shape), dtype, 0.0, 1.0)


def randint(
    low: int,
    high: Optional[Union[int, Sequence[int]]] = None,
    size: ShapeLike = (),
    dtype: DTypeLike = "int64",
    device: Optional[Device] = None,
    generator: Optional[Generator] = None,
) -> Tensor:
    """Integers in `low .. high`, the end excluded; from 0 if only one number is given. In that case the second argument
    may be the shape.

    >>> import remat
    >>> x = remat.randint(6, size=100)
    >>> bool((x >= 0).all() & (x < 6).all())
    True
    """
    if isinstance(high, (list, tuple)):
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    return _functions.randint(_key(generator, default_device(device)), size, dtype, low, high)


def randperm(n: int, device: Optional[Device] = None, generator: Optional[Generator] = None) -> Tensor:
    """The numbers `0 .. n` in a random order.

    >>> import remat
    >>> sorted(remat.randperm(5).tolist())
    [0, 1, 2, 3, 4]
    """
    return _functions.permutation(_key(generator, default_device(device)), n)


def rand_like(
    x: Tensor, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None, generator: Optional[Generator] = None
) -> Tensor:
    """Uniform numbers in `0 .. 1` in the shape of `x`. Dtype and device are those of `x` unless given.

    >>> import remat
    >>> remat.rand_like(remat.zeros(2, 3)).shape
    (2, 3)
    """
    device = x.device if device is None else device
    return rand(x.shape, dtype=x.dtype if dtype is None else dtype, device=device, generator=generator)


def randn_like(
    x: Tensor, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None, generator: Optional[Generator] = None
) -> Tensor:
    """Normal numbers of mean 0 and deviation 1, as `rand_like`.

    >>> import remat
    >>> remat.randn_like(remat.zeros(2, 3, dtype="float64")).dtype
    remat.float64
    """
    device = x.device if device is None else device
    return randn(x.shape, dtype=x.dtype if dtype is None else dtype, device=device, generator=generator)


def from_numpy(a: Any) -> Tensor:
    """A tensor with a copy of an array. Writes to one do not change the other.

    >>> import numpy, remat
    >>> remat.from_numpy(numpy.ones(2)).dtype
    remat.float64
    """
    return _asarray(a)


def key(generator: Generator, device: Optional[Device] = None) -> Tensor:
    """The next key, `uint64 [2]`, for a random operator.

    >>> import remat
    >>> remat.ops.uniform(remat.Generator(1).key(), (2,), "float32", 0, 1).shape
    (2,)
    """
    return generator._key(default_device(device))


def install() -> None:
    """Gives `Generator` its methods."""
    Generator.key = key  # type: ignore[method-assign, assignment]
