"""Linear algebra: the standard's `linalg`, for stacks of matrices in the last two axes."""
import math
from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

from .. import _remat
from .._remat import Tensor, dtype, int64
from ._dtypes import finfo, kind_of, result_type
from ._manipulation import axes_of, common_shape, concat
from ._statistics import sum as _sum

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_rank",
    "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "trace", "vecdot",
    "vector_norm",
]

_t = _remat._operators


class Eigh(NamedTuple):
    """The result of `eigh`.

    >>> from remat import array_api as xp
    >>> xp.linalg.eigh(xp.eye(2)).eigenvalues.tolist()
    [1.0, 1.0]
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


class QR(NamedTuple):
    """The result of `qr`.

    >>> from remat import array_api as xp
    >>> xp.linalg.qr(xp.eye(2)).R.shape
    (2, 2)
    """

    Q: Tensor
    R: Tensor


class Slogdet(NamedTuple):
    """The result of `slogdet`.

    >>> from remat import array_api as xp
    >>> xp.linalg.slogdet(xp.eye(2)).sign.item()
    1.0
    """

    sign: Tensor
    logabsdet: Tensor


class SVD(NamedTuple):
    """The result of `svd`.

    >>> from remat import array_api as xp
    >>> xp.linalg.svd(xp.eye(2)).S.tolist()
    [1.0, 1.0]
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


def _matrices(name: str, x: Tensor) -> Tensor:
    if x.ndim < 2:
        raise ValueError(f"{name}: shape {x.shape} holds no matrix")
    return x


def _of_one_dtype(a: Tensor, b: Tensor) -> Tuple[Tensor, Tensor]:
    of = result_type(a, b)
    return _t["cast"](a, of), _t["cast"](b, of)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of matrices, or of a vector as a row or column, in the common dtype; stacks broadcast. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.matmul(xp.asarray([[1, 2], [3, 4]]), xp.asarray([1, 1])).tolist()
    [3, 7]
    """
    if x1.ndim == 0 or x2.ndim == 0:
        raise ValueError("matmul of an array without axes")
    a, b = _of_one_dtype(x1, x2)
    return a @ b


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged. Errors: ValueError for less than two.

    >>> from remat import array_api as xp
    >>> xp.matrix_transpose(xp.ones((1, 2, 3))).shape
    (1, 3, 2)
    """
    return _matrices("matrix_transpose", x).mT


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The product of vectors along an axis of negative number; other axes broadcast. Errors: ValueError for unequal extents.

    >>> from remat import array_api as xp
    >>> xp.vecdot(xp.asarray([[1, 2], [3, 4]]), xp.asarray([1, 1])).tolist()
    [3, 7]
    """
    if axis >= 0 and x1.ndim != x2.ndim:
        raise ValueError(f"vecdot: axis {axis} counts from the start, and shapes are {x1.shape} and {x2.shape}")
    for x in (x1, x2):
        if not -x.ndim <= axis < x.ndim:
            raise IndexError(f"vecdot: axis {axis} is outside shape {x.shape}")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot of {x1.shape[axis]} and {x2.shape[axis]} elements")
    of = result_type(x1, x2)
    return _sum(x1 * x2, axis=axis, dtype=of)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Union[int, Tuple[Sequence[int], Sequence[int]]] = 2) -> Tensor:
    """The sum of products over pairs of axes: the last `axes` of `x1` with the first of `x2`, or those named. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.tensordot(xp.ones((2, 3)), xp.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ValueError(f"tensordot over {axes} axes of shapes {x1.shape} and {x2.shape}")
        pairs = [(x1.ndim - axes + i, i) for i in range(axes)]
    else:
        if len(axes[0]) != len(axes[1]):
            raise ValueError(f"tensordot over {len(axes[0])} and {len(axes[1])} axes")
        pairs = list(zip(axes[0], axes[1]))
    return _t["tensordot"](*_of_one_dtype(x1, x2), pairs)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of each element of a vector with each of another. Errors: ValueError for another rank.

    >>> from remat import array_api as xp
    >>> xp.linalg.outer(xp.asarray([1, 2]), xp.asarray([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer of shapes {x1.shape} and {x2.shape}; vectors are needed")
    return x1.reshape(-1, 1) * x2


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product along an axis of extent 3; other axes broadcast. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.cross(xp.asarray([1, 0, 0]), xp.asarray([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    if any(not -x.ndim <= axis < x.ndim or x.shape[axis] != 3 for x in (x1, x2)):
        raise ValueError(f"cross: axis {axis} of shapes {x1.shape} and {x2.shape} has not extent 3")
    a, b = _of_one_dtype(x1, x2)
    shape = common_shape(a.shape, b.shape)
    return _t["cross"](a.broadcast_to(shape), b.broadcast_to(shape), axis)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The elements of matrices on a diagonal, above the main one for a positive offset. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.diagonal(xp.asarray([[1, 2], [3, 4]]), offset=1).tolist()
    [2]
    """
    rows, columns = _matrices("diagonal", x).shape[-2:]
    if -rows < offset < columns:
        return _t["diagonal"](x, offset, -2, -1)
    return _t["full"](x.device, (*x.shape[:-2], 0), x.dtype, 0)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Optional[dtype] = None) -> Tensor:
    """The sum of a diagonal. Integers are added up as int64 or uint64. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.trace(xp.asarray([[1, 2], [3, 4]])).item()
    5
    """
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """`L` with `L L^T = x` for symmetric positive definite matrices, below the diagonal; above it if `upper`.

    Errors: TypeError for other than floats; ValueError for matrices that are not square or, when the value is read, not positive
    definite.

    >>> from remat import array_api as xp
    >>> xp.linalg.cholesky(xp.asarray([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    y = _t["cholesky"](x)
    return y.mT if upper else y


def det(x: Tensor, /) -> Tensor:
    """The determinant of square matrices. Errors: TypeError for other than floats; ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.det(xp.asarray([[2.0, 0.0], [0.0, 3.0]])).item()
    6.0
    """
    return _t["det"](x)


def slogdet(x: Tensor, /) -> Slogdet:
    """The sign of the determinant, and the logarithm of its absolute value. Errors: TypeError for other than floats;
    ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.slogdet(-xp.eye(3)).sign.item()
    -1.0
    """
    return Slogdet(*_t["slogdet"](x))


def inv(x: Tensor, /) -> Tensor:
    """The inverse of square matrices. Errors: TypeError for other than floats; ValueError for matrices that are not
    square or, when the value is read, singular.

    >>> from remat import array_api as xp
    >>> xp.linalg.inv(xp.asarray([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _t["inverse"](x)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """`x` with `x1 x = x2` for square matrices; `x2` of one axis is a vector, else it is matrices. Stacks broadcast.

    Errors: TypeError for other than floats; ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.solve(xp.asarray([[2.0, 0.0], [0.0, 4.0]]), xp.ones(2)).tolist()
    [0.5, 0.25]
    """
    a, b = _of_one_dtype(_matrices("solve", x1), x2)
    is_vector = b.ndim == 1
    b = b.reshape(-1, 1) if is_vector else _matrices("solve", b)
    stack = common_shape(a.shape[:-2], b.shape[:-2])
    y = _t["solve"](a.broadcast_to(stack + a.shape[-2:]), b.broadcast_to(stack + b.shape[-2:]))
    return _t["squeeze"](y, (-1,)) if is_vector else y


def eigh(x: Tensor, /) -> Eigh:
    """Eigenvalues of symmetric matrices, in ascending order, and eigenvectors as columns. Errors: TypeError; ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.eigh(xp.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return Eigh(*_t["eigh"](x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """Eigenvalues of symmetric matrices, in ascending order. Errors: TypeError; ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.eigvalsh(xp.asarray([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    return _t["eigvalsh"](x)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """`Q R = x` with orthonormal columns of `Q` and `R` above the diagonal; `Q` is square with `mode="complete"`.

    Errors: TypeError for other than floats; ValueError for another name.

    >>> from remat import array_api as xp
    >>> xp.linalg.qr(xp.ones((3, 2)), mode="complete").Q.shape
    (3, 3)
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(f"`{mode}` is none of reduced, complete")
    return QR(*_t["qr" if mode == "reduced" else "qr_complete"](x))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """`U diag(S) Vh = x`, singular values in descending order; `U` and `Vh` are square if `full_matrices`.

    Errors: TypeError for other than floats; ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.svd(xp.ones((3, 2))).U.shape, xp.linalg.svd(xp.ones((3, 2)), full_matrices=False).U.shape
    ((3, 3), (3, 2))
    """
    u, s, vh = _t["svd"](_matrices("svd", x))
    if full_matrices:
        u, vh = _completed(u), _completed(vh.mT).mT
    return SVD(u, s, vh)


def _completed(u: Tensor) -> Tensor:
    """The orthonormal columns, with more columns that complete them to a basis."""
    rows, columns = u.shape[-2:]
    if rows == columns:
        return u
    basis = _t["qr_complete"](u)[0]
    return concat([u, basis[..., columns:]], axis=-1)


def svdvals(x: Tensor, /) -> Tensor:
    """Singular values in descending order. Errors: TypeError for other than floats; ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.svdvals(xp.asarray([[3.0, 0.0], [0.0, 4.0]])).tolist()
    [4.0, 3.0]
    """
    return _t["svdvals"](_matrices("svdvals", x))


def _cutoff(x: Tensor, s: Tensor, rtol: Any) -> Tensor:
    """The bound below which a singular value counts as zero."""
    largest = _t["max_over"](s, (-1,), True)
    if rtol is None:
        return largest * (max(x.shape[-2:]) * finfo(x.dtype).eps)
    return largest * (rtol.reshape((*rtol.shape, 1)) if isinstance(rtol, Tensor) else rtol)


def matrix_rank(x: Tensor, /, *, rtol: Union[float, Tensor, None] = None) -> Tensor:
    """The number of singular values above `rtol` times the largest. By default `rtol` is the larger extent times the
    dtype's epsilon.

    Errors: TypeError for other than floats; ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.matrix_rank(xp.ones((2, 2))).item()
    1
    """
    s = svdvals(x)
    return _sum(_t["cast"](s > _cutoff(x, s, rtol), int64), axis=-1)


def pinv(x: Tensor, /, *, rtol: Union[float, Tensor, None] = None) -> Tensor:
    """The Moore-Penrose inverse; singular values up to `rtol` times the largest are 0, see `matrix_rank`.

    Errors: TypeError for other than floats; ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.pinv(xp.asarray([[2.0, 0.0]])).tolist()
    [[0.5], [0.0]]
    """
    u, s, vh = svd(x, full_matrices=False)
    counts = s > _cutoff(x, s, rtol)
    one = _t["full"](s.device, s.shape, s.dtype, 1)
    inverse = _t["where_cond"](counts, one / _t["where_cond"](counts, s, one), one * 0)
    return (vh.mT * inverse.reshape((*s.shape[:-1], 1, s.shape[-1]))) @ u.mT


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The power of square matrices; a negative power is one of the inverse. Errors: ValueError.

    >>> from remat import array_api as xp
    >>> xp.linalg.matrix_power(xp.asarray([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    return _t["matrix_power"](x, n)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Union[int, float, str, None] = "fro") -> Tensor:
    """The norm of matrices: "fro", "nuc", 1, -1, 2, -2, infinity or its negative, as the standard defines them.

    Errors: TypeError for other than floats; ValueError for another `ord`.

    >>> from remat import array_api as xp
    >>> xp.linalg.matrix_norm(xp.asarray([[3.0, 0.0], [4.0, 0.0]]), ord=1).item()
    7.0
    """
    _matrices("matrix_norm", x)
    if kind_of(x.dtype) != "real floating":
        raise TypeError(f"matrix_norm of {x.dtype.name}")
    if ord == "fro":
        y = _t["norm_over"](x, (-2, -1), False)
    elif ord == "nuc":
        y = _sum(svdvals(x), axis=-1)
    elif ord in (2, -2):
        s = svdvals(x)
        y = s[..., 0] if ord == 2 else s[..., -1]
    elif ord in (1, -1, math.inf, -math.inf):
        sums = _sum(abs(x), axis=-2 if ord in (1, -1) else -1)
        y = _t["max_over" if ord in (1, math.inf) else "min_over"](sums, (-1,), False)
    else:
        raise ValueError(f"matrix_norm: `{ord}` is no norm")
    return y.reshape((*y.shape, 1, 1)) if keepdims else y


def vector_norm(
    x: Tensor, /, *, axis: Union[int, Tuple[int, ...], None] = None, keepdims: bool = False, ord: Union[int, float] = 2
) -> Tensor:
    """`(sum |x|^ord)^(1 / ord)` over axes, all for None. Infinity gives the largest absolute value, its negative the
    smallest, and 0 the number of elements that are not 0. Errors: TypeError for other than floats.

    >>> from remat import array_api as xp
    >>> xp.linalg.vector_norm(xp.asarray([3.0, 4.0])).item()
    5.0
    """
    if kind_of(x.dtype) != "real floating":
        raise TypeError(f"vector_norm of {x.dtype.name}")
    axes = tuple(range(x.ndim)) if axis is None else axes_of(axis)
    if not axes:
        return abs(x)
    if ord == 2:
        return _t["norm_over"](x, axes, keepdims)
    if ord in (math.inf, -math.inf):
        return _t["max_over" if ord > 0 else "min_over"](abs(x), axes, keepdims)
    if ord == 0:
        return _t["sum_over"](_t["cast"](x != 0, x.dtype), axes, keepdims)
    return _t["sum_over"](abs(x) ** float(ord), axes, keepdims) ** (1.0 / ord)
