"""Methods of `Tensor` that follow Python's conventions: several forms of arguments, other libraries' arrays, copies."""
from typing import Any, Iterator, List, Optional, Sequence, Tuple, Union

from . import _functions, _layers, _remat, _vision
from ._creation import _asarray, _key
from ._remat import Device, Generator, Tensor
from ._support import AxisLike, DTypeLike, Number, default_device, shape_of

_t = _remat._operators


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The elements in another shape, in row-major order; one extent may be -1. A view. Errors: ShapeError.

    >>> import remat
    >>> remat.arange(6).reshape(2, -1).shape
    (2, 3)
    """
    return _t["reshape"](x, shape_of(shape))


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """The elements in the shape of another tensor. A view. Errors: ShapeError.

    >>> import remat
    >>> remat.arange(6).view_as(remat.zeros(2, 3)).shape
    (2, 3)
    """
    return _t["reshape"](x, other.shape)


def contiguous(x: Tensor) -> Tensor:
    """The tensor itself. The device decides how elements lie in memory, and `view` accepts every layout.

    >>> import remat
    >>> remat.zeros(2, 3).T.contiguous().view(6).shape
    (6,)
    """
    return x


def expand(x: Tensor, *shape: Any) -> Tensor:
    """The tensor repeated along axes of extent 1 and along new leading axes; -1 keeps an extent. Errors: ShapeError.

    >>> import remat
    >>> remat.zeros(2, 1).expand(3, -1, 4).shape
    (3, 2, 4)
    """
    to = shape_of(shape)
    lead = len(to) - x.ndim
    to = tuple(x.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(to))
    if any(n < 0 for n in to):
        raise ValueError(f"shape {x.shape} is not expanded to {to}: only an axis that is there keeps its extent by -1")
    return _t["broadcast_to"](x, to)


def transpose(x: Tensor, *axes: Any) -> Tensor:
    """The axes in reverse order; two axes exchanged, if two are named; or all in the order given. A view.

    >>> import remat
    >>> x = remat.zeros(2, 3, 4)
    >>> x.transpose().shape, x.transpose(0, 1).shape, x.transpose((2, 0, 1)).shape
    ((4, 3, 2), (3, 2, 4), (4, 2, 3))
    """
    if not axes or axes == (None,):
        return x.T
    if len(axes) == 2:
        return _t["transpose"](x, int(axes[0]), int(axes[1]))
    return _t["permute"](x, shape_of(axes))


def permute(x: Tensor, *axes: Any) -> Tensor:
    """The axes in the order given. A view. Errors: AxisError unless each is named once.

    >>> import remat
    >>> remat.zeros(2, 3, 4).permute(2, 0, 1).shape
    (4, 2, 3)
    """
    return _t["permute"](x, shape_of(axes))


def astype(x: Tensor, dtype: DTypeLike, copy: bool = True) -> Tensor:
    """The elements converted: floats round to nearest even, integers truncate and saturate from floats and wrap from integers.

    >>> import remat
    >>> remat.tensor([-1.5, 300.0]).astype("int8").tolist()
    [-1, 127]
    """
    return _t["cast"](x, dtype)


def clip(x: Tensor, min: Optional[Number] = None, max: Optional[Number] = None) -> Tensor:
    """Elements below `min` become `min`, and elements above `max` become `max`. Either bound may be missing. Errors:
    ArgumentError if `min > max`.

    If a bound is a float, integers become floats, as in NumPy and PyTorch.

    >>> import remat
    >>> remat.tensor([-3.0, 0.5, 9.0]).clip(-1, 2).tolist()
    [-1.0, 0.5, 2.0]
    >>> remat.arange(3).clip(0.5, 1.5).tolist()
    [0.5, 1.0, 1.5]
    """
    if min is None and max is None:
        return +x
    if not x.dtype.is_floating_point and any(_is_float(v) for v in (min, max)):
        x = _t["cast"](x, "float32")
    if isinstance(min, Tensor) or isinstance(max, Tensor) or min is None or max is None:
        x = x if min is None else _t["clamp_min"](x, min)
        return x if max is None else _t["clamp_max"](x, max)
    return _t["clamp"](x, min, max)


def _is_float(v: Any) -> bool:
    return isinstance(v, float) or isinstance(v, Tensor) and v.dtype.is_floating_point


def norm(
    x: Tensor, p: Any = 2.0, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None
) -> Tensor:
    """The `p`-norm over axes, or of all elements: by default the Euclidean one, whose squares overflow in no dtype.

    As in NumPy and PyTorch the order stands before the axes. `p` is a number (0 counts the elements that are not 0),
    infinity, "fro", or for matrices "nuc". Where the norm is 0 its gradient is 0. Errors: AxisError, DTypeError.

    >>> import remat
    >>> x = remat.tensor([[3.0, 4.0], [0.0, 1.0]])
    >>> x.norm(axis=1).tolist(), x.norm(1).item(), x.norm(float("inf"), 0).tolist()
    ([5.0, 1.0], 8.0, [3.0, 4.0])
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if p == "nuc":
        if x.ndim == 2 and (axis is None or not isinstance(axis, int) and sorted(a % 2 for a in axis) == [0, 1]):
            y = _functions.matrix_norm(x, "nuc")
            return y.reshape(1, 1) if keepdims else y
        raise ValueError(f"norm: 'nuc' is of a matrix, not of axes {axis} of shape {x.shape}; matrix_norm takes batches")
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        raise ValueError(f"norm: the order is {p!r}, and must be a number, 'fro' or 'nuc'")
    if axis is None:
        axis = tuple(range(x.ndim))
    return _t["norm_over"](x, axis, keepdims) if p == 2 else _t["norm_of"](x, float(p), axis, keepdims)


def tensordot(
    x: Tensor, b: Tensor, axes: Union[int, Tuple[AxisLike, AxisLike]] = 2, *, dims: Any = None, dim: Any = None
) -> Tensor:
    """The sum of the products of elements over axes: the last `axes` of `x` with the first of `b`, or those that a pair names.

    As in NumPy and PyTorch a pair holds the axes of `x` and the axes of `b`, each a number or a sequence. In the result
    the remaining axes of `x` come first. Errors: ValueError for axes that are no such pair; AxisError, ShapeError,
    DTypeError.

    >>> import remat
    >>> a, b = remat.ones(2, 3, 4), remat.ones(3, 4, 5)
    >>> a.tensordot(b).shape, a.tensordot(b, ((1, 2), (0, 1))).shape, a.tensordot(b, (1, 0)).shape
    ((2, 5), (2, 5), (2, 4, 4, 5))
    """
    axes = next((given for given in (dims, dim) if given is not None), axes)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.ndim, b.ndim):
            raise ValueError(f"tensordot: {axes} axes of shapes {x.shape} and {b.shape}")
        pairs = [(x.ndim - axes + i, i) for i in range(axes)]
    else:
        if len(axes) != 2:
            raise ValueError(f"tensordot: axes {axes} are no pair: the axes of the first tensor, and those of the second")
        of_x, of_b = ([a] if isinstance(a, int) else list(a) for a in axes)
        if len(of_x) != len(of_b):
            raise ValueError(f"tensordot: {len(of_x)} axes of the first tensor and {len(of_b)} of the second")
        pairs = list(zip(of_x, of_b))
    return _t["tensordot"](x, b, pairs)


def to(x: Tensor, *args: Any, dtype: Optional[DTypeLike] = None, device: Optional[Device] = None) -> Tensor:
    """The tensor in another dtype, on another device, or both. The tensor itself if nothing changes.

    >>> import remat
    >>> remat.ones(1).to("float64").dtype, remat.ones(1).to(remat.get_default_device()).shape
    (remat.float64, (1,))
    """
    for a in args:
        if isinstance(a, Device):
            device = a
        else:
            dtype = a
    if device is not None:
        x = x._copy_to(device)
    return x if dtype is None else _t["cast"](x, dtype)


def to_device(x: Tensor, device: Device, stream: None = None) -> Tensor:
    """The tensor on another device.

    >>> import remat
    >>> remat.ones(2).to_device(remat.Device()).tolist()
    [1.0, 1.0]
    """
    return x._copy_to(device)


def numpy(x: Tensor) -> Any:
    """A NumPy array with a copy of the value, which may be written to. Waits. Errors: TypeError for bfloat16 without
    ml_dtypes.

    >>> import remat
    >>> remat.arange(3).numpy()
    array([0, 1, 2])
    """
    import numpy as np

    name = x.dtype.name
    if name == "bfloat16":
        try:
            import ml_dtypes  # type: ignore[import-not-found]
        except ImportError:
            raise TypeError("NumPy has no bfloat16: cast first, or install ml_dtypes") from None
        of = np.dtype(ml_dtypes.bfloat16)
    else:
        of = np.dtype(name)
    if x.size == 0:
        return np.empty(x.shape, of)
    return np.frombuffer(x._bytes(), of).reshape(x.shape)


def _array(x: Tensor, dtype: Any = None, copy: Optional[bool] = None) -> Any:
    """For `numpy.asarray`. Errors: ValueError with `copy=False`, as a value on a device can only be copied."""
    if copy is False:
        raise ValueError("the value lies on a device: only a copy can be given")
    array = numpy(x)
    return array if dtype is None else array.astype(dtype, copy=False)


def tobytes(x: Tensor) -> bytes:
    """The elements in row-major order, little-endian. Waits.

    >>> import remat
    >>> remat.tensor([1, 2], dtype="uint8").tobytes()
    b'\\x01\\x02'
    """
    return bytes(x._bytes())


def clone(x: Tensor) -> Tensor:
    """Another object with the same value and history. An assignment to a part of one does not change the other.

    >>> import remat
    >>> x = remat.zeros(2); y = x.clone(); y[0] = 1
    >>> x.tolist(), y.tolist()
    ([0.0, 0.0], [1.0, 0.0])
    """
    # another object of a leaf would be a leaf, to which nothing can be assigned
    return x.reshape(x.shape) if x.is_leaf and x.requires_grad else +x


def requires_grad_(x: Tensor, requires_grad: bool = True) -> Tensor:
    """Makes this tensor a leaf, whose gradient `backward` accumulates. Returns the tensor.

    >>> import remat
    >>> remat.ones(2).requires_grad_().requires_grad
    True
    """
    x.requires_grad = requires_grad
    return x


def _device_of(x: Tensor) -> Device:
    """The device that holds the tensor."""
    return x._device()


def _iterate(x: Tensor) -> Iterator[Tensor]:
    if x.ndim == 0:
        raise TypeError("a tensor without axes cannot be iterated over")
    return iter(_functions.unbind(x, 0))


def _repr(x: Tensor) -> str:
    kind = type(x).__name__ if type(x) is not Tensor else "tensor"
    end = f"shape={x.shape}, dtype={x.dtype.name}" + (", requires_grad=True" if x.requires_grad else "")
    if x.device.is_dry:
        return f"{kind}(..., {end})"
    text = x._shown().rsplit("  ", 1)[0] if x.size else "[]"
    if x.dtype.name == "bool":
        text = text.replace("true", "True").replace("false", "False")
    return f"{kind}({text}, {end})".replace("\n", "\n" + " " * (len(kind) + 1))


def _format(x: Tensor, spec: str) -> str:
    return format(x.item(), spec) if spec else str(x)


def _rebuild(data: bytes, shape: Tuple[int, ...], dtype: str, requires_grad: bool) -> Tensor:
    made = _remat.from_bytes(data, shape, dtype, default_device())
    if requires_grad:
        made.requires_grad = True
    return made


def _reduce(x: Tensor) -> Any:
    """Pickles the value. The copy lies on the default device of the program that reads it."""
    return _rebuild, (tobytes(x), x.shape, x.dtype.name, x.is_leaf and x.requires_grad)


def _copy(x: Tensor) -> Tensor:
    return +x


def _deepcopy(x: Tensor, memo: Any) -> Tensor:
    if x.requires_grad and not x.is_leaf:
        raise RuntimeError("only leaves, and tensors without history, have deep copies; `detach` it")
    made = x.detach()
    if x.requires_grad:
        made.requires_grad = True
        if x.grad is not None:
            made.grad = x.grad
    memo[id(x)] = made
    return made


def split(x: Tensor, indices_or_sections: Any, axis: int = 0) -> List[Tensor]:
    """Parts along an axis, as NumPy's `split`: a number of equal parts, or parts cut before each of the indices.

    PyTorch's `split`, which takes sizes, is `split_with_sizes`. Errors: ValueError if the parts are not equal.

    >>> import remat
    >>> [p.tolist() for p in remat.arange(5).split([2, 3])]
    [[0, 1], [2], [3, 4]]
    """
    extent = x.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1 or extent % indices_or_sections:
            raise ValueError(f"an axis of extent {extent} has not {indices_or_sections} equal parts")
        sizes = [extent // indices_or_sections] * indices_or_sections
    else:
        cuts = [0, *(min(max(int(i) + (extent if i < 0 else 0), 0), extent) for i in indices_or_sections), extent]
        sizes = [max(b - a, 0) for a, b in zip(cuts, cuts[1:])]
    return _functions.split_with_sizes(x, sizes, axis)


def sort(x: Tensor, axis: int = -1, descending: bool = False, *, dim: Optional[int] = None) -> Tensor:
    """The elements in order along an axis. Equal elements keep their order. `argsort` gives the places.

    >>> import remat
    >>> remat.tensor([3, 1, 2]).sort().tolist()
    [1, 2, 3]
    """
    return _functions.sort_with_indices(x, axis if dim is None else dim, descending)[0]


def cummax(x: Tensor, axis: int = 0, *, dim: Optional[int] = None) -> Tensor:
    """The largest element so far along an axis.

    >>> import remat
    >>> remat.tensor([1, 3, 2]).cummax().tolist()
    [1, 3, 3]
    """
    return _functions.cummax_with_indices(x, axis if dim is None else dim)[0]


def cummin(x: Tensor, axis: int = 0, *, dim: Optional[int] = None) -> Tensor:
    """The smallest element so far along an axis.

    >>> import remat
    >>> remat.tensor([3, 1, 2]).cummin().tolist()
    [3, 1, 1]
    """
    return _functions.cummin_with_indices(x, axis if dim is None else dim)[0]


def conv2d(
    x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """Cross-correlation: `x: [n, in, h, w]`, `weight: [out, in / groups, r, s]`, `bias: [out]`. Errors: ShapeError, AxisError.

    >>> import remat
    >>> remat.ones(1, 1, 4, 4).conv2d(remat.ones(1, 1, 3, 3)).tolist()
    [[[[9.0, 9.0], [9.0, 9.0]]]]
    """
    y = _t["conv2d"](x, weight, stride, padding, dilation, groups)
    return y if bias is None else y + bias.reshape(-1, 1, 1)


def conv1d(
    x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """As `conv2d`, over one axis: `x: [n, in, l]`.

    >>> import remat
    >>> remat.ones(1, 1, 4).conv1d(remat.ones(1, 1, 3)).tolist()
    [[[3.0, 3.0]]]
    """
    y = _t["conv1d"](x, weight, stride, padding, dilation, groups)
    return y if bias is None else y + bias.reshape(-1, 1)


def conv3d(
    x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """As `conv2d`, over three axes: `x: [n, in, d, h, w]`.

    >>> import remat
    >>> remat.ones(1, 1, 2, 2, 2).conv3d(remat.ones(1, 1, 2, 2, 2)).tolist()
    [[[[[8.0]]]]]
    """
    y = _t["conv3d"](x, weight, stride, padding, dilation, groups)
    return y if bias is None else y + bias.reshape(-1, 1, 1, 1)


def conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The gradient of `conv1d` as a function: `weight: [in, out / groups, kernel..]`, `bias: [out]`. Errors: ShapeError, AxisError.

    >>> import remat
    >>> remat.ones(1, 1, 2).conv_transpose1d(remat.ones(1, 1, 2)).tolist()
    [[[1.0, 2.0, 1.0]]]
    """
    y = _t["conv_transpose1d"](x, weight, stride, padding, dilation, groups, output_padding)
    return y if bias is None else y + bias.reshape(-1, 1)


def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The gradient of `conv2d` as a function: `weight: [in, out / groups, kernel..]`, `bias: [out]`. Errors: ShapeError, AxisError.

    >>> import remat
    >>> remat.ones(1, 1, 1, 2).conv_transpose2d(remat.ones(1, 1, 1, 2)).tolist()
    [[[[1.0, 2.0, 1.0]]]]
    """
    y = _t["conv_transpose2d"](x, weight, stride, padding, dilation, groups, output_padding)
    return y if bias is None else y + bias.reshape(-1, 1, 1)


def conv_transpose3d(
    x: Tensor, weight: Tensor, bias: Optional[Tensor] = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The gradient of `conv3d` as a function: `weight: [in, out / groups, kernel..]`, `bias: [out]`. Errors: ShapeError, AxisError.

    >>> import remat
    >>> remat.ones(1, 1, 1, 1, 2).conv_transpose3d(remat.ones(1, 1, 1, 1, 2)).tolist()
    [[[[[1.0, 2.0, 1.0]]]]]
    """
    y = _t["conv_transpose3d"](x, weight, stride, padding, dilation, groups, output_padding)
    return y if bias is None else y + bias.reshape(-1, 1, 1, 1)


def max_pool2d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Tensor:
    """The largest of each window of the last two axes; windows lie side by side unless a stride is given.

    With `ceil_mode` one more may stand over the end. Errors: AxisError, ShapeError, ArgumentError.

    >>> import remat
    >>> remat.arange(4).reshape(1, 1, 2, 2).max_pool2d(2).tolist()
    [[[[3]]]]
    """
    step = kernel_size if stride is None else stride
    if dilation == 1 and not ceil_mode:
        return _t["max_pool2d"](x, kernel_size, step, padding)
    return _t["max_pool_with2d"](x, kernel_size, step, padding, dilation, ceil_mode)


def avg_pool2d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, count_include_pad: bool = True, ceil_mode: bool = False
) -> Tensor:
    """The mean of each window of the last two axes; zeros around the image count unless not `count_include_pad`.

    With `ceil_mode` one more window may stand over the end. Errors: AxisError, ShapeError, DTypeError, ArgumentError.

    >>> import remat
    >>> remat.ones(1, 1, 2, 2).avg_pool2d(2).tolist()
    [[[[1.0]]]]
    """
    step = kernel_size if stride is None else stride
    if not ceil_mode:
        return _t["avg_pool2d"](x, kernel_size, step, padding, count_include_pad)
    return _t["avg_pool_with2d"](x, kernel_size, step, padding, 1, ceil_mode, count_include_pad)


def adaptive_avg_pool2d(x: Tensor, output_size: Any) -> Tensor:
    """The mean of each of `output_size` windows that cover the last two axes.

    >>> import remat
    >>> remat.ones(1, 1, 3, 5).adaptive_avg_pool2d(1).shape
    (1, 1, 1, 1)
    """
    return _t["adaptive_avg_pool2d"](x, output_size)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Optional[float] = None, generator: Optional[Generator] = None,
) -> Tensor:
    """`softmax(scale q k^T) v` for `q: [n, heads, t, d]`, or without axes in front, with `scale = 1 / sqrt(d)` unless it is given.

    A mask of truth values is true where a query sees a key; a mask of floats is added to the scores. It broadcasts to
    `[n, heads, tq, tk]`. Keys and values may have fewer heads than queries; their number must divide that of the
    queries. With `dropout_p`, a key of `generator` or of the default one decides which weights are dropped. Only tiles
    of the weights are in memory, unless the mask needs a gradient. Errors: DTypeError, AxisError, ShapeError;
    ArgumentError for a probability outside of `0 .. 1`.

    >>> import remat
    >>> q = remat.rand(1, 2, 3, 4)
    >>> remat.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    (1, 2, 3, 4)
    """
    lead = max(4 - query.ndim, 0)
    if lead:
        query, key, value = (_functions.unflatten(x, 0, (1,) * lead + x.shape[:1]) for x in (query, key, value))
    # the library has the axis of heads behind that of time, as projections give them
    q, k, v = (_t["transpose"](x, 1, 2) for x in (query, key, value))
    is_bool = attn_mask is not None and attn_mask.dtype.name == "bool"
    mask, bias = (attn_mask, None) if is_bool else (None, attn_mask)
    drawn = _key(generator, query.device) if dropout_p else None
    y = _t["transpose"](_t["attention"](q, k, v, mask, bias, is_causal, scale, False, dropout_p, drawn), 1, 2)
    return _t["reshape"](y, y.shape[lead:]) if lead else y


def multinomial(x: Tensor, num_samples: int, replacement: bool = False, generator: Optional[Generator] = None) -> Tensor:
    """`num_samples` draws by the weights of the last axis, which need not add up to 1: int64 `[.., num_samples]`.

    Without `replacement` none is drawn twice. `remat.ops.multinomial` takes a key instead of a generator. Errors: ArgumentError,
    ShapeError.

    >>> import remat
    >>> remat.multinomial(remat.tensor([[0.0, 1.0], [1.0, 0.0]]), 1).tolist()
    [[1], [0]]
    """
    return _functions.multinomial(x, _key(generator, x.device), num_samples, replacement)


def solve_triangular(a: Tensor, b: Tensor, upper: bool = False, transpose: bool = False, unit: bool = False) -> Tensor:
    """`x` with `a x = b` for a triangular `a`.

    >>> import remat
    >>> remat.eye(2).solve_triangular(remat.ones(2, 1)).tolist()
    [[1.0], [1.0]]
    """
    return _t["solve_triangular"](a, b, upper, transpose, unit)


def resize(x: Tensor, size: Any, mode: str = "linear") -> Tensor:
    """An image of another size: `[n, c, h, w]` to `[n, c, size..]`; modes are nearest, nearest_exact, linear, cubic and area.

    >>> import remat
    >>> remat.ones(1, 1, 2, 2).resize((4, 4)).shape
    (1, 1, 4, 4)
    """
    return _t["resize"](x, size, mode)


def _dim(x: Tensor) -> int:
    """The number of axes, as PyTorch names it."""
    return x.ndim


def _cpu(x: Tensor) -> Tensor:
    """The tensor itself: it lies on the processor."""
    return x


def _as(name: str) -> Any:
    def cast(x: Tensor) -> Tensor:
        return _t["cast"](x, name)

    cast.__doc__ = f"The elements as {name}."
    return cast


__all__ = [
    "reshape", "permute", "astype", "clip", "split", "sort", "cummax", "cummin", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "scaled_dot_product_attention",
    "solve_triangular", "resize", "transpose", "view_as", "contiguous", "expand", "multinomial",
    "norm", "tensordot",
]

FUNCTIONS = [
    reshape, view_as, contiguous, expand, permute, astype, clip, split, sort, cummax, cummin, conv1d, conv2d, conv3d,
    conv_transpose1d, conv_transpose2d, conv_transpose3d, max_pool2d, avg_pool2d, adaptive_avg_pool2d, scaled_dot_product_attention,
    multinomial, solve_triangular, resize, transpose, norm, tensordot,
]


def install() -> None:
    """Gives `Tensor` its methods."""
    for name in _functions.METHODS:
        setattr(Tensor, name, getattr(_functions, name))
    for f in (*FUNCTIONS, *_layers.FUNCTIONS, *_vision.FUNCTIONS):
        setattr(Tensor, f.__name__, f)
    own: Sequence[Tuple[str, Any]] = (
        ("view", reshape), ("permute_dims", permute), ("clamp", clip), ("to", to), ("to_device", to_device), ("cast", astype),
        ("type", astype), ("numpy", numpy), ("tobytes", tobytes), ("clone", clone), ("copy", clone),
        ("requires_grad_", requires_grad_), ("device", property(_device_of)), ("__array__", _array), ("__iter__", _iterate),
        ("__repr__", _repr), ("__str__", _repr), ("__format__", _format), ("__reduce__", _reduce), ("__copy__", _copy),
        ("__deepcopy__", _deepcopy), ("__array_ufunc__", None), ("dim", _dim),
        ("float", _as("float32")), ("double", _as("float64")), ("half", _as("float16")), ("bfloat16", _as("bfloat16")),
        ("long", _as("int64")), ("int", _as("int32")), ("bool", _as("bool")), ("cpu", _cpu),
    )
    for name, f in own:
        setattr(Tensor, name, f)
