"""Operators as functions. Made by scripts/make_python_operators.py from the catalogue; do not edit.

The first argument of a function is the tensor that has it as a method: `remat.exp(x)` is `x.exp()`. A number beside a tensor
takes the tensor's dtype. `dim` and `keepdim` are other names of `axis` and `keepdims`.
"""
from typing import Any, List, Optional, Sequence, Tuple

from ._remat import Tensor
from ._remat import _operators as _t
from ._support import AxisLike, Device, DTypeLike, Number, Operand, ShapeLike
from ._support import default_device as _device, kept as _kept, required as _required, REQUIRED as _REQUIRED


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`x` where it is positive, else `alpha (e^x - 1)`. The derivative at 0 is `alpha`. Errors: DTypeError for other
    than floats.

    >>> import remat
    >>> remat.tensor([-1.0, 0.0, 2.0]).elu().round_to(3)
    tensor([-0.632,    0.0,    2.0], shape=(3,), dtype=float32)
    """
    return _t["elu"](x, alpha)


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`x` where it is positive, else `alpha (e^(x / alpha) - 1)`. Errors: DTypeError for other than floats; ValueError
    for an `alpha` that is not above 0.

    >>> import remat
    >>> remat.tensor([-1.0, 0.0, 2.0]).celu(0.5).round_to(3)
    tensor([-0.432,    0.0,    2.0], shape=(3,), dtype=float32)
    """
    return _t["celu"](x, alpha)


def selu(x: Tensor) -> Tensor:
    """`1.0507 x` where it is positive, else `1.7581 (e^x - 1)`, with the constants of x-normalising networks to f64's
    precision. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([-1.0, 0.0, 2.0]).selu().round_to(3)
    tensor([-1.111,    0.0,  2.101], shape=(3,), dtype=float32)
    """
    return _t["selu"](x)


def softplus_with(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """`ln(1 + e^(beta x)) / beta`, and `x` where `beta x` is above the threshold: `softplus` with PyTorch's
    parameters, whose defaults are 1 and 20. Errors: DTypeError for other than floats; ValueError for a `beta` that
    is not above 0.

    >>> import remat
    >>> remat.tensor([-1.0, 0.0, 2.0]).softplus_with(beta=2.0).round_to(3)
    tensor([0.063, 0.347, 2.009], shape=(3,), dtype=float32)
    """
    return _t["softplus_with"](x, beta, threshold)


def hardtanh(x: Tensor, lo: float = -1.0, hi: float = 1.0) -> Tensor:
    """`min(max(x, lo), hi)`: `clamp` under PyTorch's name. Errors: ValueError if `lo > hi`.

    >>> import remat
    >>> remat.tensor([-3.0, 0.5, 3.0]).hardtanh()
    tensor([-1.0,  0.5,  1.0], shape=(3,), dtype=float32)
    """
    return _t["hardtanh"](x, lo, hi)


def hardshrink(x: Tensor, lambda_: float = 0.5) -> Tensor:
    """0 within `-lambda ..= lambda`, else `x`. Errors: DTypeError for bools; ValueError for a negative `lambda`.

    >>> import remat
    >>> remat.tensor([-3.0, 0.25, 3.0]).hardshrink()
    tensor([-3.0,  0.0,  3.0], shape=(3,), dtype=float32)
    """
    return _t["hardshrink"](x, lambda_)


def softshrink(x: Tensor, lambda_: float = 0.5) -> Tensor:
    """0 within `-lambda ..= lambda`, else `x` nearer to 0 by `lambda`. Errors: DTypeError for bools; ValueError for a
    negative `lambda`.

    >>> import remat
    >>> remat.tensor([-3.0, 0.25, 3.0]).softshrink()
    tensor([-2.5,  0.0,  2.5], shape=(3,), dtype=float32)
    """
    return _t["softshrink"](x, lambda_)


def tanhshrink(x: Tensor) -> Tensor:
    """`x - tanh x`. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([-1.0, 0.0, 2.0]).tanhshrink().round_to(3)
    tensor([-0.238,    0.0,  1.036], shape=(3,), dtype=float32)
    """
    return _t["tanhshrink"](x)


def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """`x` where it is above the threshold, else `value`; NaN stays. Errors: DTypeError for bools.

    >>> import remat
    >>> remat.tensor([-1.0, 0.5, 2.0]).threshold(1.0, 9.0)
    tensor([9.0, 9.0, 2.0], shape=(3,), dtype=float32)
    """
    return _t["threshold"](x, threshold, value)


def rrelu(x: Tensor, lower: float = 0.125, upper: float = 0.3333333333333333, key: Tensor = _REQUIRED) -> Tensor:
    """`x` where it is positive, else `x` times a number that `key: u64 [2]` draws from `lower .. upper` for each
    element. PyTorch's bounds are 1/8 and 1/3 by default. Errors: DTypeError for other than floats; ValueError for
    bounds that descend.

    >>> import remat
    >>> remat.tensor([2.0, 3.0]).rrelu(key=remat.Generator(0).key())
    tensor([2.0, 3.0], shape=(2,), dtype=float32)
    """
    _required(key, "rrelu", "key")
    return _t["rrelu"](x, lower, upper, key)


def softmin(x: Tensor, axis: int = -1, *, dim: Any = None) -> Tensor:
    """`e^-x / sum e^-x` along `axis`. Errors: AxisError; DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([1.0, 1.0]).softmin()
    tensor([0.5, 0.5], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["softmin"](x, axis)


def gumbel_softmax(x: Tensor, tau: float = 1.0, hard: bool = False, axis: int = -1, key: Tensor = _REQUIRED, *, dim: Any = None) -> Tensor:
    """A sample of the classes along `axis`, whose logits `x` are, made soft: the softmax of `x` plus Gumbel's noise
    over `tau` (Jang et al., ICLR 2017). If `hard`, the likeliest class is 1 and the others 0, with the gradient of
    the soft sample. A pure function of `key: u64 [2]`.

    >>> import remat
    >>> key = remat.Generator(0).key()
    >>> float(remat.tensor([1.0, 2.0, 3.0]).gumbel_softmax(hard=True, key=key).sum())
    1.0
    """
    axis = axis if dim is None else dim
    _required(key, "gumbel_softmax", "key")
    return _t["gumbel_softmax"](x, tau, hard, axis, key)


def dropout_channels(x: Tensor, p: float, key: Tensor) -> Tensor:
    """As `dropout` of whole channels: of all that has one place in the first two axes. Errors: ValueError; AxisError
    for a rank below 2.

    >>> import remat
    >>> remat.ones(2, 3, 4).dropout_channels(0.0, remat.Generator(0).key()).sum()
    tensor(24.0, shape=(), dtype=float32)
    """
    return _t["dropout_channels"](x, p, key)


def drop_path(x: Tensor, p: float, key: Tensor) -> Tensor:
    """As `dropout` of whole examples: of all that has one place in the first axis (stochastic depth; Huang et al.,
    ECCV 2016). Errors: ValueError; AxisError for rank 0.

    >>> import remat
    >>> remat.ones(2, 3).drop_path(0.0, remat.Generator(0).key()).sum()
    tensor(6.0, shape=(), dtype=float32)
    """
    return _t["drop_path"](x, p, key)


def alpha_dropout(x: Tensor, p: float, key: Tensor) -> Tensor:
    """Each element at the limit of `selu` with probability `p`, then scaled and moved so that means of 0 and variances
    of 1 stay (Klambauer et al., NeurIPS 2017). A pure function of `key: u64 [2]`. Errors: DTypeError for other than
    floats; ValueError.

    >>> import remat
    >>> remat.ones(2, 3).alpha_dropout(0.5, remat.Generator(0).key()).shape
    (2, 3)
    """
    return _t["alpha_dropout"](x, p, key)


def cosine_similarity(x: Tensor, y: Tensor, axis: int = 1, eps: float = 1e-08, *, dim: Any = None) -> Tensor:
    """The cosine of the angle between vectors along `axis`: `x y / (max(|x|, eps) max(|y|, eps))`, of shapes that
    broadcast. PyTorch's `eps` is 1e-8 by default. Errors: AxisError, ShapeError, DTypeError.

    >>> import remat
    >>> remat.tensor([[1.0, 0.0]]).cosine_similarity(remat.tensor([[0.0, 2.0]]))
    tensor([0.0], shape=(1,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["cosine_similarity"](x, y, axis, eps)


def pairwise_distance(x: Tensor, y: Tensor, p: float = 2.0, eps: float = 1e-06, keepdims: bool = False, *, keepdim: Any = None) -> Tensor:
    """The `p`-norm of `x - y + eps` over the last axis, which stays with extent 1 if `keepdims`; shapes broadcast.
    PyTorch's `p` is 2 by default, its `eps` 1e-6. Errors: AxisError, ShapeError, DTypeError; ValueError for a `p`
    that is not above 0.

    >>> import remat
    >>> remat.tensor([[0.0, 0.0]]).pairwise_distance(remat.tensor([[3.0, 4.0]])).round_to(3)
    tensor([5.0], shape=(1,), dtype=float32)
    """
    keepdims = keepdims if keepdim is None else keepdim
    return _t["pairwise_distance"](x, y, p, eps, keepdims)


def dot(x: Tensor, b: Tensor) -> Tensor:
    """The sum of the products of the elements of two vectors. Errors: AxisError for another rank; ShapeError,
    DTypeError.

    >>> import remat
    >>> remat.tensor([1.0, 2.0]).dot(remat.tensor([3.0, 4.0]))
    tensor(11.0, shape=(), dtype=float32)
    """
    return _t["dot"](x, b)


def cross(x: Tensor, b: Tensor, axis: int = -1, *, dim: Any = None) -> Tensor:
    """The vector product along `axis`, of vectors of three elements, at right angles to both; other axes broadcast.
    Errors: AxisError; ShapeError for another extent than 3.

    >>> import remat
    >>> remat.tensor([1.0, 0.0, 0.0]).cross(remat.tensor([0.0, 1.0, 0.0]))
    tensor([0.0, 0.0, 1.0], shape=(3,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["cross"](x, b, axis)


def kron(x: Tensor, b: Tensor) -> Tensor:
    """Kronecker's product: each element of `x` times all of `b`, side by side along every axis; a shorter shape is
    filled up with axes of extent 1 at its front. Errors: DTypeError; ShapeError for a result that is too large to
    address.

    >>> import remat
    >>> remat.tensor([[1, 2]]).kron(remat.tensor([[1, 10]]))
    tensor([[ 1, 10,  2, 20]], shape=(1, 4), dtype=int64)
    """
    return _t["kron"](x, b)


def diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements whose places along two axes differ by `offset`: `[.., k]`, a new last axis in the place of the two.
    Errors: AxisError for axes out of range or equal; IndexError for an offset beyond the matrix.

    >>> import remat
    >>> remat.tensor([[1, 2], [3, 4]]).diagonal()
    tensor([1, 4], shape=(2,), dtype=int64)
    """
    return _t["diagonal"](x, offset, axis1, axis2)


def diag_embed(x: Tensor, offset: int = 0) -> Tensor:
    """Vectors in the last axis as the diagonals of square matrices that are 0 elsewhere: `[.., n]` to `[.., n +
    |offset|, n + |offset|]`. Errors: AxisError for rank 0.

    >>> import remat
    >>> remat.tensor([1, 2]).diag_embed()
    tensor([[1, 0],
            [0, 2]], shape=(2, 2), dtype=int64)
    """
    return _t["diag_embed"](x, offset)


def diag(x: Tensor, offset: int = 0) -> Tensor:
    """Of a vector the matrix with it as a diagonal, of a matrix that diagonal. Errors: AxisError for another rank;
    IndexError.

    >>> import remat
    >>> remat.tensor([[1, 2], [3, 4]]).diag(1)
    tensor([2], shape=(1,), dtype=int64)
    """
    return _t["diag"](x, offset)


def trace(x: Tensor) -> Tensor:
    """The sum of the diagonal of the matrices in the last two axes. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([[1, 2], [3, 4]]).trace()
    tensor(5, shape=(), dtype=int64)
    """
    return _t["trace"](x)


def meshgrid(x: Sequence[Tensor]) -> List[Tensor]:
    """Vectors as the coordinates of a grid: one tensor of shape `[x[0].len, x[1].len, ..]` for each vector. The `i`-th
    tensor varies along axis `i` alone (`indexing="ij"` elsewhere). Errors: AxisError for other than vectors.

    >>> import remat
    >>> [g.tolist() for g in remat.meshgrid([remat.arange(2), remat.arange(3)])]
    [[[0, 0, 0], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]]]
    """
    return _t["meshgrid"](x)


def cartesian_prod(x: Sequence[Tensor]) -> Tensor:
    """All pairs of elements of two vectors, as rows `[n m, 2]`: the first one varies slowest. Errors: AxisError for
    other than vectors, DTypeError.

    >>> import remat
    >>> remat.cartesian_prod([remat.tensor([1, 2]), remat.tensor([3, 4])])
    tensor([[1, 3],
            [1, 4],
            [2, 3],
            [2, 4]], shape=(4, 2), dtype=int64)
    """
    return _t["cartesian_prod"](x)


def cdist(x: Tensor, b: Tensor, p: float = 2.0) -> Tensor:
    """The `p`-norm of the differences of all rows of `x: [.., n, d]` from all of `b: [.., m, d]`, as `[.., n, m]`;
    batches broadcast. With `p = 2` by a product of matrices, whose rounding may move distances far below the norms
    of the rows. Errors: AxisError, ShapeError, DTypeError; ValueError for a `p` that is not positive.

    >>> import remat
    >>> remat.tensor([[0.0, 0.0]]).cdist(remat.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[5.0, 1.0]], shape=(1, 2), dtype=float32)
    """
    return _t["cdist"](x, b, p)


def vector_norm(x: Tensor, p: float = 2.0, axes: AxisLike = _REQUIRED, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The `p`-norm over axes, `(sum |x|^p)^(1/p)`: `p` may be infinite (the largest), minus infinite (the smallest), 0
    (how many are not 0) or negative. The derivative at 0 is 0. Errors: DTypeError, AxisError; ValueError for NaN.

    >>> import remat
    >>> remat.tensor([[3.0, -4.0]]).vector_norm(1.0, axes=1)
    tensor([7.0], shape=(1,), dtype=float32)
    """
    axes = axes if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    _required(axes, "vector_norm", "axes")
    return _t["norm_of"](x, p, axes, keepdims)


def matrix_norm(x: Tensor, of: "str") -> Tensor:
    """A norm of the matrices in the last two axes. Errors: those of `svdvals` for what needs singular values;
    AxisError.

    >>> import remat
    >>> remat.tensor([[3.0, 0.0], [4.0, 0.0]]).matrix_norm("fro")
    tensor(5.0, shape=(), dtype=float32)
    """
    return _t["matrix_norm"](x, of)


def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12, *, dim: Any = None) -> Tensor:
    """Divided by the `p`-norm along `axis`, or by `eps` if that is larger. Errors: DTypeError, AxisError; ValueError.

    >>> import remat
    >>> remat.tensor([[3.0, 4.0]]).normalize().round_to(3)
    tensor([[0.6, 0.8]], shape=(1, 2), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["normalize"](x, p, axis, eps)


def fold_in(x: Tensor, n: Tensor) -> Tensor:
    """The `n`-th of the keys that follow from a key, `x: u64 [2]`, `n: i64 []`: a key of its own for each step of a
    loop.

    >>> import remat
    >>> remat.Generator(0).key().fold_in(remat.tensor(1)).shape
    (2,)
    """
    return _t["fold_in"](x, n)


def uniform(key: Tensor, shape: ShapeLike, dtype: DTypeLike, lo: float, hi: float) -> Tensor:
    """Uniform in `lo .. hi`, a pure function of `key: u64 [2]`.

    >>> import remat
    >>> remat.ops.uniform(remat.Generator(0).key(), (2, 3), "float32", 0.0, 1.0).shape
    (2, 3)
    """
    return _t["uniform"](key, shape, dtype, lo, hi)


def normal(key: Tensor, shape: ShapeLike, dtype: DTypeLike, mean: float, std: float) -> Tensor:
    """Normal with `mean` and standard deviation `std`, a pure function of `key: u64 [2]`.

    >>> import remat
    >>> remat.ops.normal(remat.Generator(0).key(), (2, 3), "float32", 0.0, 1.0).shape
    (2, 3)
    """
    return _t["normal"](key, shape, dtype, mean, std)


def bernoulli(key: Tensor, shape: ShapeLike, dtype: DTypeLike, p: float) -> Tensor:
    """1 with probability `p`, else 0; a pure function of `key: u64 [2]`.

    >>> import remat
    >>> remat.ops.bernoulli(remat.Generator(0).key(), 3, "bool", 1.0)
    tensor([True, True, True], shape=(3,), dtype=bool)
    """
    return _t["bernoulli"](key, shape, dtype, p)


def permutation(key: Tensor, n: int) -> Tensor:
    """The numbers `0 .. n` in an order that is a pure function of `key: u64 [2]`.

    >>> import remat
    >>> sorted(remat.ops.permutation(remat.Generator(0).key(), 3).tolist())
    [0, 1, 2]
    """
    return _t["permutation"](key, n)


def randint(key: Tensor, shape: ShapeLike, dtype: DTypeLike, lo: int, hi: int) -> Tensor:
    """Whole numbers `lo <= x < hi`, each as likely up to 2^-53 of the span; a pure function of `key: u64 [2]`. Errors:
    DTypeError for bools; ValueError for an empty range, a span of more than 2^53, or numbers that `dtype` does not
    hold.

    >>> import remat
    >>> remat.ops.randint(remat.Generator(0).key(), 3, "int64", 7, 8)
    tensor([7, 7, 7], shape=(3,), dtype=int64)
    """
    return _t["randint"](key, shape, dtype, lo, hi)


def normal_like(x: Tensor, key: Tensor, mean: float, std: float) -> Tensor:
    """Normal numbers in this tensor's shape and dtype. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.zeros(2, 3).normal_like(remat.Generator(0).key(), 0.0, 1.0).shape
    (2, 3)
    """
    return _t["normal_like"](x, key, mean, std)


def uniform_like(x: Tensor, key: Tensor, lo: float, hi: float) -> Tensor:
    """Uniform numbers in this tensor's shape and dtype. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.zeros(2, 3).uniform_like(remat.Generator(0).key(), 0.0, 1.0).shape
    (2, 3)
    """
    return _t["uniform_like"](x, key, lo, hi)


def truncated_normal(key: Tensor, shape: ShapeLike, dtype: DTypeLike, mean: float, std: float, lo: float, hi: float) -> Tensor:
    """Normal numbers of `mean` and `std` within `lo ..= hi`, by the inverse of the distribution function. Errors:
    DTypeError for other than floats; ValueError for an empty range or a deviation that is not positive.

    >>> import remat
    >>> x = remat.ops.truncated_normal(remat.Generator(0).key(), 99, "float32", 0.0, 1.0, -2.0, 2.0)
    >>> bool((abs(x) <= 2).all())
    True
    """
    return _t["truncated_normal"](key, shape, dtype, mean, std, lo, hi)


def exponential_sample(x: Tensor, key: Tensor) -> Tensor:
    """Exponential numbers of this tensor's rates. The gradient for the rates is that at an unchanged uniform number.
    Errors: DTypeError for other than floats.

    >>> import remat
    >>> bool((remat.ones(9).exponential_sample(remat.Generator(0).key()) >= 0).all())
    True
    """
    return _t["exponential_sample"](x, key)


def gamma_sample(x: Tensor, key: Tensor) -> Tensor:
    """Gamma numbers of this tensor's shapes and scale 1 (Marsaglia and Tsang, 2000), with a gradient for the shapes
    (Figurnov, Mohamed and Mnih, 2018); NaN for a shape that is not positive. Errors: DTypeError for other than
    floats.

    >>> import remat
    >>> bool((remat.ones(9).gamma_sample(remat.Generator(0).key()) >= 0).all())
    True
    """
    return _t["gamma_sample"](x, key)


def beta_sample(x: Tensor, b: Tensor, key: Tensor) -> Tensor:
    """Beta numbers of this tensor's first shapes and the second ones `b`; shapes broadcast. Errors: ShapeError,
    DTypeError for other than floats.

    >>> import remat
    >>> x = remat.ones(9).beta_sample(remat.ones(9), remat.Generator(0).key())
    >>> bool(((x >= 0) & (x <= 1)).all())
    True
    """
    return _t["beta_sample"](x, b, key)


def dirichlet_sample(x: Tensor, key: Tensor) -> Tensor:
    """Shares that add up to 1 along the last axis, of Dirichlet's distribution with this tensor's concentrations.
    Errors: AxisError for rank 0; DTypeError for other than floats.

    >>> import remat
    >>> remat.ones(3).dirichlet_sample(remat.Generator(0).key()).sum().round_to(3)
    tensor(1.0, shape=(), dtype=float32)
    """
    return _t["dirichlet_sample"](x, key)


def poisson_sample(x: Tensor, key: Tensor) -> Tensor:
    """Poisson numbers of this tensor's means, whole numbers in its dtype; NaN for a negative mean. No gradient.
    Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.zeros(3).poisson_sample(remat.Generator(0).key())
    tensor([0.0, 0.0, 0.0], shape=(3,), dtype=float32)
    """
    return _t["poisson_sample"](x, key)


def bernoulli_sample(x: Tensor, key: Tensor) -> Tensor:
    """1 with this tensor's probabilities, else 0, in its dtype. No gradient. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).bernoulli_sample(remat.Generator(0).key())
    tensor([0.0, 1.0], shape=(2,), dtype=float32)
    """
    return _t["bernoulli_sample"](x, key)


def laplace_like(x: Tensor, key: Tensor) -> Tensor:
    """Laplace's numbers around 0 of scale 1, in this tensor's shape and dtype. Errors: DTypeError for other than
    floats.

    >>> import remat
    >>> remat.zeros(2).laplace_like(remat.Generator(0).key()).shape
    (2,)
    """
    return _t["laplace_like"](x, key)


def gumbel_like(x: Tensor, key: Tensor) -> Tensor:
    """Gumbel's numbers, `-ln(-ln u)`, in this tensor's shape and dtype. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.zeros(2).gumbel_like(remat.Generator(0).key()).shape
    (2,)
    """
    return _t["gumbel_like"](x, key)


def cauchy_like(x: Tensor, key: Tensor) -> Tensor:
    """Cauchy's numbers around 0 of scale 1, in this tensor's shape and dtype. Errors: DTypeError for other than
    floats.

    >>> import remat
    >>> remat.zeros(2).cauchy_like(remat.Generator(0).key()).shape
    (2,)
    """
    return _t["cauchy_like"](x, key)


def einsum(equation: str, x: Sequence[Tensor]) -> Tensor:
    """Einstein's sum: the axes of each factor are named by letters, products are summed over the letters that the
    result does not name. `...` stands for any number of axes, which broadcast; a letter twice in one factor is its
    diagonal. Without `->` the result has the letters that occur once, in the order of the alphabet. As NumPy's and
    PyTorch's `einsum`.

    >>> import remat
    >>> remat.einsum("ij,j->i", [remat.tensor([[1.0, 2.0], [3.0, 4.0]]), remat.ones(2)])
    tensor([3.0, 7.0], shape=(2,), dtype=float32)
    """
    return _t["einsum"](equation, x)


def embedding(x: Tensor, index: Tensor, padding_idx: Any = None) -> Tensor:
    """The rows of the table `x: [count, size]` that `index: [..]` names: `[.., size]`. As `take` of axis 0, but the
    row `padding_idx`, which may count from the end, gets no gradient.

    >>> import remat
    >>> remat.tensor([[1.0], [2.0], [3.0]]).embedding(remat.tensor([2, 0]))
    tensor([[3.0],
            [1.0]], shape=(2, 1), dtype=float32)
    """
    return _t["embedding"](x, index, padding_idx)


def embedding_rows(x: Tensor, index: Tensor, padding_idx: Any = None) -> Tensor:
    """As `embedding`, but that a backward pass leaves the gradient as rows if this is a leaf without hooks: it takes
    the memory of the rows that were looked up, not of the table. Where it is read it becomes a tensor; optimisers
    that move rows alone take it as it is (`take_grad_rows`).

    >>> import remat
    >>> table = remat.zeros(1000, 1).requires_grad_()
    >>> table.embedding_rows(remat.tensor([2, 0])).sum().backward()
    >>> table.grad.sum().item()
    2.0
    """
    return _t["embedding_rows"](x, index, padding_idx)


def cholesky(x: Tensor) -> Tensor:
    """The lower triangle `l` with `x = l l^T`, of symmetric positive definite matrices `[.., n, n]`. Only the lower
    triangle is read, and the gradient is that of its elements. Errors: DTypeError for other than f32 and f64;
    AxisError, ShapeError; ValueError for a matrix that is not positive definite.

    >>> import remat
    >>> remat.tensor([[4.0, 2.0], [2.0, 2.0]]).cholesky()
    tensor([[2.0, 0.0],
            [1.0, 1.0]], shape=(2, 2), dtype=float32)
    """
    return _t["cholesky"](x)


def solve(x: Tensor, b: Tensor) -> Tensor:
    """`x` of `x x = b`, `x: [.., n, n]`, `b, x: [.., n, k]` or `[n]`; batches broadcast. Errors: DTypeError for other
    than f32 and f64; AxisError, ShapeError; ValueError for a matrix that is singular.

    >>> import remat
    >>> remat.tensor([[2.0, 0.0], [0.0, 4.0]]).solve(remat.ones(2, 1))
    tensor([[ 0.5],
            [0.25]], shape=(2, 1), dtype=float32)
    """
    return _t["solve"](x, b)


def cholesky_solve(x: Tensor, b: Tensor) -> Tensor:
    """`x` of `x x^T x = b` where `x` is the result of `cholesky`. Errors: those of `solve_triangular`.

    >>> import remat
    >>> remat.tensor([[2.0, 0.0], [0.0, 1.0]]).cholesky_solve(remat.ones(2, 1))
    tensor([[0.25],
            [ 1.0]], shape=(2, 1), dtype=float32)
    """
    return _t["cholesky_solve"](x, b)


def inv(x: Tensor) -> Tensor:
    """The inverse of matrices `[.., n, n]`. To solve a system, `solve` is quicker and more exact. Errors: DTypeError
    for other than f32 and f64; AxisError, ShapeError; ValueError for a matrix that is singular. Also called
    `inverse`.

    >>> import remat
    >>> remat.tensor([[2.0, 0.0], [0.0, 4.0]]).inv()
    tensor([[ 0.5,  0.0],
            [ 0.0, 0.25]], shape=(2, 2), dtype=float32)
    """
    return _t["inverse"](x)


def slogdet(x: Tensor) -> Tuple[Tensor, Tensor]:
    """Sign and logarithm of the absolute value of the determinants of matrices `[.., n, n]`: 0 and minus infinity for
    one that is singular. Errors: DTypeError for other than f32 and f64; AxisError, ShapeError; ValueError for the
    gradient of a singular matrix.

    >>> import remat
    >>> remat.tensor([[1.0, 0.0], [0.0, -1.0]]).slogdet()
    (tensor(-1.0, shape=(), dtype=float32), tensor(0.0, shape=(), dtype=float32))
    """
    return _t["slogdet"](x)


def det(x: Tensor) -> Tensor:
    """The determinants of matrices `[.., n, n]`. Errors: those of `slogdet`.

    >>> import remat
    >>> remat.tensor([[2.0, 0.0], [0.0, 3.0]]).det()
    tensor(6.0, shape=(), dtype=float32)
    """
    return _t["det"](x)


def qr(x: Tensor) -> Tuple[Tensor, Tensor]:
    """Orthonormal columns `q: [.., m, k]` and an upper triangle `r: [.., k, n]` of `x = q r: [.., m, n]`, `k = min(m,
    n)`. The signs of the diagonal of `r` are not normalised. Errors: DTypeError for other than f32 and f64;
    AxisError.

    >>> import remat
    >>> [y.shape for y in remat.ones(3, 2).qr()]
    [(3, 2), (2, 2)]
    """
    return _t["qr"](x)


def qr_complete(x: Tensor) -> Tuple[Tensor, Tensor]:
    """As `qr` with all `m` columns of `q`. More rows than columns have no gradient. Errors: as there.

    >>> import remat
    >>> [y.shape for y in remat.ones(3, 2).qr_complete()]
    [(3, 3), (3, 2)]
    """
    return _t["qr_complete"](x)


def svd(x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """`u: [.., m, k]`, `s: [.., k]` descending and `vt: [.., k, n]` with `x = u diag(s) vt: [.., m, n]`, `k = min(m,
    n)`. The gradient of the vectors is infinite where singular values are equal. Errors: DTypeError for other than
    f32 and f64; AxisError; ValueError for a matrix with NaN or an infinity.

    >>> import remat
    >>> [y.shape for y in remat.ones(3, 2).svd()]
    [(3, 2), (2,), (2, 2)]
    """
    return _t["svd"](x)


def svdvals(x: Tensor) -> Tensor:
    """The singular values of matrices `[.., m, n]`, descending. Errors: those of `svd`.

    >>> import remat
    >>> remat.tensor([[3.0, 0.0], [0.0, 4.0]]).svdvals().round_to(3)
    tensor([4.0, 3.0], shape=(2,), dtype=float32)
    """
    return _t["svdvals"](x)


def eigh(x: Tensor) -> Tuple[Tensor, Tensor]:
    """Eigenvalues `w: [.., n]`, ascending, and eigenvectors as the columns of `v: [.., n, n]`, of symmetric matrices.
    Only the lower triangle is read. The gradient of the vectors is infinite where eigenvalues are equal. Errors:
    DTypeError for other than f32 and f64; AxisError, ShapeError; ValueError for a matrix with NaN or an infinity.

    >>> import remat
    >>> remat.tensor([[2.0, 0.0], [0.0, 1.0]]).eigh()[0].round_to(3)
    tensor([1.0, 2.0], shape=(2,), dtype=float32)
    """
    return _t["eigh"](x)


def eigvalsh(x: Tensor) -> Tensor:
    """The eigenvalues of symmetric matrices, ascending. Errors: those of `eigh`.

    >>> import remat
    >>> remat.tensor([[2.0, 0.0], [0.0, 1.0]]).eigvalsh().round_to(3)
    tensor([1.0, 2.0], shape=(2,), dtype=float32)
    """
    return _t["eigvalsh"](x)


def pinv(x: Tensor) -> Tensor:
    """The pseudoinverse `[.., n, m]` of matrices `[.., m, n]`; singular values below `max(m, n)` times the precision,
    of the largest, count as 0. Its gradient is that for changes which keep the rank. Errors: DTypeError for other
    than f32 and f64; AxisError; ValueError for a matrix with NaN or an infinity.

    >>> import remat
    >>> remat.tensor([[2.0, 0.0]]).pinv().round_to(3)
    tensor([[0.5],
            [0.0]], shape=(2, 1), dtype=float32)
    """
    return _t["pinv"](x)


def pinv_with(x: Tensor, rcond: float) -> Tensor:
    """As `pinv`, where singular values below `rcond` times the largest count as 0. Errors: also ValueError for an
    `rcond` outside 0 ..= 1.

    >>> import remat
    >>> remat.tensor([[2.0, 0.0]]).pinv_with(1e-3).round_to(3)
    tensor([[0.5],
            [0.0]], shape=(2, 1), dtype=float32)
    """
    return _t["pinv_with"](x, rcond)


def lstsq(x: Tensor, b: Tensor) -> Tensor:
    """The shortest `x` for which `x x` is nearest to `b`: `x: [.., m, n]`, `b: [.., m, k]` or `[m]`. By the
    pseudoinverse. Errors: those of `pinv`; ShapeError.

    >>> import remat
    >>> remat.tensor([[1.0], [1.0]]).lstsq(remat.tensor([[1.0], [3.0]])).round_to(3)
    tensor([[2.0]], shape=(1, 1), dtype=float32)
    """
    return _t["lstsq"](x, b)


def matrix_rank(x: Tensor) -> Tensor:
    """How many singular values of matrices `[.., m, n]` are above `max(m, n)` times the precision, of the largest, as
    I64. Errors: those of `svdvals`.

    >>> import remat
    >>> remat.ones(2, 2).matrix_rank()
    tensor(1, shape=(), dtype=int64)
    """
    return _t["matrix_rank"](x)


def matrix_power(x: Tensor, n: int) -> Tensor:
    """The product of `n` factors `x: [.., m, m]`, of the inverse if `n` is negative, and the identity if it is 0.
    Errors: AxisError, ShapeError; those of `inverse`.

    >>> import remat
    >>> remat.tensor([[1.0, 1.0], [0.0, 1.0]]).matrix_power(3)
    tensor([[1.0, 3.0],
            [0.0, 1.0]], shape=(2, 2), dtype=float32)
    """
    return _t["matrix_power"](x, n)


def flip(x: Tensor, axes: AxisLike = _REQUIRED, *, dim: Any = None) -> Tensor:
    """Reversed along `axes`. A view. Errors: AxisError.

    >>> import remat
    >>> remat.arange(3).flip(0)
    tensor([2, 1, 0], shape=(3,), dtype=int64)
    """
    axes = axes if dim is None else dim
    _required(axes, "flip", "axes")
    return _t["flip"](x, axes)


def take(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, *, dim: Any = None) -> Tensor:
    """The elements of `axis` that an index tensor of any shape names, as NumPy's `take`: the axes of `index` stand in
    the place of `axis`. With `axis` 0 this is an embedding.

    >>> import remat
    >>> remat.tensor([[1, 2, 3]]).take(1, remat.tensor([2, 0]))
    tensor([[3, 1]], shape=(1, 2), dtype=int64)
    """
    axis = axis if dim is None else dim
    _required(axis, "take", "axis")
    _required(index, "take", "index")
    return _t["take"](x, axis, index)


def index_select(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, *, dim: Any = None) -> Tensor:
    """`take` with a vector of indices: the rank stays. Errors: as there, and AxisError for an index of another rank.

    >>> import remat
    >>> remat.tensor([[1, 2, 3]]).index_select(1, remat.tensor([2, 0]))
    tensor([[3, 1]], shape=(1, 2), dtype=int64)
    """
    axis = axis if dim is None else dim
    _required(axis, "index_select", "axis")
    _required(index, "index_select", "index")
    return _t["index_select"](x, axis, index)


def gather(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, *, dim: Any = None) -> Tensor:
    """One element along `axis` for each index: `y[.., i, ..] = x[.., index[.., i, ..], ..]`, of the shape of `index`,
    whose other extents are those of `x` or smaller (NumPy's `take_along_axis`).

    >>> import remat
    >>> remat.tensor([[1, 2], [3, 4]]).gather(1, remat.tensor([[1], [0]]))
    tensor([[2],
            [3]], shape=(2, 1), dtype=int64)
    """
    axis = axis if dim is None else dim
    _required(axis, "gather", "axis")
    _required(index, "gather", "index")
    return _t["gather"](x, axis, index)


def one_hot(x: Tensor, depth: int, dtype: DTypeLike) -> Tensor:
    """`y[.., k] = 1` where `k` is the index, else 0: a new last axis of extent `depth`, of the given dtype.

    >>> import remat
    >>> remat.tensor([2, 0]).one_hot(3, "int64")
    tensor([[0, 0, 1],
            [1, 0, 0]], shape=(2, 3), dtype=int64)
    """
    return _t["one_hot"](x, depth, dtype)


def where(x: Tensor, a: Tensor, b: Operand) -> Tensor:
    """`x ? a : b`, element by element, with broadcasting; `x` is of bools, `a` and `b` are promoted (NumPy's `where`,
    which is a word of Rust). The value that is not taken does not matter, nor does its gradient.

    >>> import remat
    >>> remat.where(remat.tensor([True, False]), remat.tensor([1, 2]), 9)
    tensor([1, 9], shape=(2,), dtype=int64)
    """
    return _t["where_cond"](x, a, b)


def masked_fill(x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    """`value` where `mask` is true, else `x`; `mask` broadcasts to the shape of `x`, and the dtype stays.

    >>> import remat
    >>> remat.tensor([1, 2]).masked_fill(remat.tensor([True, False]), 9)
    tensor([9, 2], shape=(2,), dtype=int64)
    """
    return _t["masked_fill"](x, mask, value)


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of the last two axes: elements `[i, j]` with `j <= i + diagonal`, and 0 elsewhere. Errors:
    AxisError below rank 2.

    >>> import remat
    >>> remat.ones(2, 2).tril()
    tensor([[1.0, 0.0],
            [1.0, 1.0]], shape=(2, 2), dtype=float32)
    """
    return _t["tril"](x, diagonal)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of the last two axes: elements `[i, j]` with `j >= i + diagonal`, and 0 elsewhere. Errors:
    AxisError below rank 2.

    >>> import remat
    >>> remat.ones(2, 2).triu()
    tensor([[1.0, 1.0],
            [0.0, 1.0]], shape=(2, 2), dtype=float32)
    """
    return _t["triu"](x, diagonal)


def concat(x: Sequence[Tensor], axis: int = 0, *, dim: Any = None) -> Tensor:
    """The tensors one after the other along `axis`; of one dtype, and of equal extents on other axes (torch's `cat`).
    Errors: ArityError for none; AxisError; ShapeError, DTypeError. Also called `concatenate`, `cat`.

    >>> import remat
    >>> remat.concat([remat.arange(2), remat.arange(3)])
    tensor([0, 1, 0, 1, 2], shape=(5,), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["concat"](x, axis)


def stack(x: Sequence[Tensor], axis: int = 0, *, dim: Any = None) -> Tensor:
    """Tensors of one dtype and shape along a new axis at `axis` of the result. Errors: ArityError for none; AxisError;
    ShapeError, DTypeError.

    >>> import remat
    >>> remat.stack([remat.arange(2), remat.arange(2)])
    tensor([[0, 1],
            [0, 1]], shape=(2, 2), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["stack"](x, axis)


def split_with_sizes(x: Tensor, extents: ShapeLike, axis: int = 0, *, dim: Any = None) -> List[Tensor]:
    """Parts of these extents, one after the other along `axis`. Views. Errors: AxisError; ShapeError unless the
    extents add up to that of the axis.

    >>> import remat
    >>> [y.tolist() for y in remat.arange(3).split_with_sizes([2, 1])]
    [[0, 1], [2]]
    """
    axis = axis if dim is None else dim
    return _t["split"](x, extents, axis)


def chunk(x: Tensor, n: int, axis: int = 0, *, dim: Any = None) -> List[Tensor]:
    """At most `n` parts of equal extent along `axis`, as torch's `chunk`. The last part may be smaller. The parts are
    views. Errors: AxisError; ValueError for 0 parts.

    >>> import remat
    >>> [y.tolist() for y in remat.arange(4).chunk(2)]
    [[0, 1], [2, 3]]
    """
    axis = axis if dim is None else dim
    return _t["chunk"](x, n, axis)


def pad(x: Tensor, amounts: Any, value: Number = 0) -> Tensor:
    """With `(before, after)` elements of `value` around each axis, one pair an axis, as NumPy's `pad`. Errors:
    ShapeError for another number of pairs.

    >>> import remat
    >>> remat.arange(2).pad([(1, 2)], 9)
    tensor([9, 0, 1, 9, 9], shape=(5,), dtype=int64)
    """
    return _t["pad"](x, amounts, value)


def repeat(x: Tensor, n: int, axis: int = 0, *, dim: Any = None) -> Tensor:
    """Each element `n` times in a row along `axis`, as NumPy's `repeat`. Errors: AxisError; ShapeError for a result
    too large to address. Also called `repeat_interleave`.

    >>> import remat
    >>> remat.arange(3).repeat(2)
    tensor([0, 0, 1, 1, 2, 2], shape=(6,), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["repeat_interleave"](x, n, axis)


def roll(x: Tensor, shift: int, axis: int = 0, *, dim: Any = None) -> Tensor:
    """The elements of `axis` moved by `shift` places. Elements that leave at one end enter at the other. Errors:
    AxisError.

    >>> import remat
    >>> remat.arange(4).roll(1)
    tensor([3, 0, 1, 2], shape=(4,), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["roll"](x, shift, axis)


def glu(x: Tensor, axis: int = -1, *, dim: Any = None) -> Tensor:
    """The gated linear unit (Dauphin et al., 2017): the first half of `axis` times the sigmoid of the second. Errors:
    AxisError, DTypeError; ShapeError for an odd extent.

    >>> import remat
    >>> remat.tensor([1.0, 2.0, 0.0, 0.0]).glu()
    tensor([0.5, 1.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["glu"](x, axis)


def swiglu(x: Tensor, axis: int = -1, *, dim: Any = None) -> Tensor:
    """The first half of `axis` through `silu`, times the second (Shazeer, 2020, arXiv:2002.05202). Errors: as `glu`.

    >>> import remat
    >>> remat.tensor([1.0, 2.0, 0.0, 0.0]).swiglu().round_to(3)
    tensor([0.0, 0.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["swiglu"](x, axis)


def geglu(x: Tensor, axis: int = -1, *, dim: Any = None) -> Tensor:
    """The first half of `axis` through `gelu`, times the second (Shazeer, 2020). Errors: as `glu`.

    >>> import remat
    >>> remat.tensor([1.0, 2.0, 0.0, 0.0]).geglu().round_to(3)
    tensor([0.0, 0.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["geglu"](x, axis)


def reglu(x: Tensor, axis: int = -1, *, dim: Any = None) -> Tensor:
    """The first half of `axis` through `relu`, times the second (Shazeer, 2020). Errors: as `glu`.

    >>> import remat
    >>> remat.tensor([1.0, 2.0, 3.0, -1.0]).reglu()
    tensor([ 3.0, -2.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["reglu"](x, axis)


def matmul(x: Tensor, b: Tensor) -> Tensor:
    """The matrix product, batched over leading axes with broadcasting: `[.., m, k] x [.., k, n] -> [.., m, n]`. A
    vector on the left is a row, on the right a column, and its axis is not in the result. Transposed operands are
    not copied. Errors: ShapeError; DTypeError; AxisError for rank 0.

    >>> import remat
    >>> remat.tensor([[1.0, 2.0]]).matmul(remat.tensor([[3.0], [4.0]]))
    tensor([[11.0]], shape=(1, 1), dtype=float32)
    """
    return _t["matmul"](x, b)


def matmul_wide(x: Tensor, b: Tensor) -> Tensor:
    """As `matmul`, with a result of the type that the product is summed in: f32 for f16 and bf16, i32 for i8, u8 and
    i16; f32, f64, i32 and i64 stay. Errors: those of `matmul`; DTypeError for other types.

    >>> import remat
    >>> remat.tensor([[100]], dtype="int8").matmul_wide(remat.tensor([[100]], dtype="int8"))
    tensor([[10000]], shape=(1, 1), dtype=int32)
    """
    return _t["matmul_wide"](x, b)


def outer(x: Tensor, b: Tensor) -> Tensor:
    """`y[i, j] = a[i] b[j]` of two vectors. Errors: AxisError for another rank; DTypeError.

    >>> import remat
    >>> remat.tensor([1, 2]).outer(remat.tensor([3, 4]))
    tensor([[3, 4],
            [6, 8]], shape=(2, 2), dtype=int64)
    """
    return _t["outer"](x, b)


def round_to(x: Tensor, decimals: int) -> Tensor:
    """Rounded to `decimals` places after the point, before it if negative; halves go to the even digit. Errors:
    DTypeError for bools; ValueError for more places than a float has.

    >>> import remat
    >>> remat.tensor([1.234, 1.235]).round_to(1)
    tensor([1.2, 1.2], shape=(2,), dtype=float32)
    """
    return _t["round_to"](x, decimals)


def nan_to_num(x: Tensor, nan: float = 0.0, infinite: Any = None, negative: Any = None) -> Tensor:
    """NaN, infinity and minus infinity replaced by numbers: 0 and the largest and the least number of the dtype where
    nothing is given. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([float("nan"), 1.0]).nan_to_num()
    tensor([0.0, 1.0], shape=(2,), dtype=float32)
    """
    return _t["nan_to_num"](x, nan, infinite, negative)


def isclose(x: Tensor, b: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether `|a - b| <= atol + rtol |b|`, element by element, as NumPy's `isclose`: a NaN is close to nothing, or to
    a NaN if `equal_nan`. Shapes broadcast. Errors: ShapeError, DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([1.0, 2.0]).isclose(remat.tensor([1.0, 2.1]))
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    return _t["isclose"](x, b, rtol, atol, equal_nan)


def clamp_min(x: Tensor, lo: Operand) -> Tensor:
    """`max(x, lo)`: `clamp` with one side, a number or a tensor that broadcasts. NaN stays. Errors: ShapeError,
    DTypeError.

    >>> import remat
    >>> remat.tensor([-1.0, 2.0]).clamp_min(0.0)
    tensor([0.0, 2.0], shape=(2,), dtype=float32)
    """
    return _t["clamp_min"](x, lo)


def clamp_max(x: Tensor, hi: Operand) -> Tensor:
    """`min(x, hi)`: `clamp` with one side, a number or a tensor that broadcasts. NaN stays. Errors: ShapeError,
    DTypeError.

    >>> import remat
    >>> remat.tensor([-1.0, 2.0]).clamp_max(0.0)
    tensor([-1.0,  0.0], shape=(2,), dtype=float32)
    """
    return _t["clamp_max"](x, hi)


def logit(x: Tensor, eps: float = 0.0) -> Tensor:
    """`ln(x / (1 - x))`, the inverse of the sigmoid, of `x` clamped to `eps ..= 1 - eps`; `eps = 0` clamps nothing.
    Errors: DTypeError for other than floats; ValueError for an `eps` outside 0 ..= 0.5.

    >>> import remat
    >>> remat.tensor([0.5]).logit()
    tensor([0.0], shape=(1,), dtype=float32)
    """
    return _t["logit"](x, eps)


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """`x ln y`, 0 where `x` is 0 unless `y` is NaN. Shapes broadcast. Errors: ShapeError, DTypeError for other than
    floats.

    >>> import remat
    >>> remat.tensor([0.0, 2.0]).xlogy(remat.tensor([0.0, 1.0]))
    tensor([0.0, 0.0], shape=(2,), dtype=float32)
    """
    return _t["xlogy"](x, y)


def sinc(x: Tensor) -> Tensor:
    """`sin(pi x) / (pi x)`, 1 at 0. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([0.0, 0.5]).sinc().round_to(3)
    tensor([  1.0, 0.637], shape=(2,), dtype=float32)
    """
    return _t["sinc"](x)


def entr(x: Tensor) -> Tensor:
    """`-x ln x`, 0 at 0 and minus infinity below. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([0.0, 0.5]).entr().round_to(3)
    tensor([  0.0, 0.347], shape=(2,), dtype=float32)
    """
    return _t["entr"](x)


def multigammaln(x: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of `p` variables, `p (p - 1) / 4 ln pi + sum ln gamma(x - i / 2) : i < p`.
    Errors: DTypeError for other than floats; ValueError for a `p` above 65,536, because the sum takes one operation
    for each variable.

    >>> import remat
    >>> remat.tensor([3.0]).multigammaln(2).round_to(3)
    tensor([1.55], shape=(1,), dtype=float32)
    """
    return _t["multigammaln"](x, p)


def polygamma(x: Tensor, n: int) -> Tensor:
    """The `n`-th derivative of `digamma`, itself for `n = 0`. Errors: DTypeError for other than floats; ValueError for
    an `n` above 150, whose factorial leaves the floats.

    >>> import remat
    >>> remat.tensor([1.0]).polygamma(1).round_to(3)
    tensor([1.645], shape=(1,), dtype=float32)
    """
    return _t["polygamma"](x, n)


def heaviside(x: Tensor, at_zero: Operand) -> Tensor:
    """0 below 0, 1 above, `at_zero` at 0; NaN stays. No gradient. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([-1.0, 0.0, 1.0]).heaviside(0.5)
    tensor([0.0, 0.5, 1.0], shape=(3,), dtype=float32)
    """
    return _t["heaviside"](x, at_zero)


def deg2rad(x: Tensor) -> Tensor:
    """From degrees to radians. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([180.0]).deg2rad().round_to(3)
    tensor([3.142], shape=(1,), dtype=float32)
    """
    return _t["deg2rad"](x)


def rad2deg(x: Tensor) -> Tensor:
    """From radians to degrees. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([0.0]).rad2deg()
    tensor([0.0], shape=(1,), dtype=float32)
    """
    return _t["rad2deg"](x)


def unbind(x: Tensor, axis: int = 0, *, dim: Any = None) -> List[Tensor]:
    """The parts along `axis`, without it. Errors: AxisError.

    >>> import remat
    >>> [y.tolist() for y in remat.tensor([[1, 2], [3, 4]]).unbind()]
    [[1, 2], [3, 4]]
    """
    axis = axis if dim is None else dim
    return _t["unbind"](x, axis)


def tile(x: Tensor, counts: ShapeLike) -> Tensor:
    """`x` side by side as often as `counts` says along each axis, the last ones if there are fewer; more of them than
    axes make new ones at the front. As NumPy's `tile`. Errors: ShapeError for a result that is too large to
    address.

    >>> import remat
    >>> remat.arange(2).tile([2])
    tensor([0, 1, 0, 1], shape=(4,), dtype=int64)
    """
    return _t["tile"](x, counts)


def swapaxes(x: Tensor, a: int, b: int) -> Tensor:
    """Axes exchanged, of the name that NumPy has. Errors: AxisError.

    >>> import remat
    >>> remat.zeros(2, 3, 4).swapaxes(0, 2).shape
    (4, 3, 2)
    """
    return _t["swapaxes"](x, a, b)


def diff(x: Tensor, n: int = 1, axis: int = -1, *, dim: Any = None) -> Tensor:
    """The differences of neighbours along `axis`, `n` times: `[.., k - n, ..]`. Errors: AxisError, DTypeError for
    bools.

    >>> import remat
    >>> remat.tensor([1, 4, 9]).diff()
    tensor([3, 5], shape=(2,), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["diff"](x, n, axis)


def trapezoid(x: Tensor, dx: float = 1.0, axis: int = -1, *, dim: Any = None) -> Tensor:
    """The integral by trapezoids along `axis`, whose points are `dx` apart. Errors: AxisError, DTypeError for other
    than floats.

    >>> import remat
    >>> remat.tensor([1.0, 2.0, 3.0]).trapezoid()
    tensor(4.0, shape=(), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["trapezoid"](x, dx, axis)


def logspace(start: float, end: float, n: int, base: float = 10.0, dtype: DTypeLike = _REQUIRED, *, device: Optional[Device] = None) -> Tensor:
    """Numbers at equal ratios: `base^start` to `base^end`, `n` of them. Errors: DTypeError for bools; ValueError for a
    number that is not finite.

    >>> import remat
    >>> remat.logspace(0.0, 2.0, 3, dtype="float32").round_to(3)
    tensor([  1.0,  10.0, 100.0], shape=(3,), dtype=float32)
    """
    _required(dtype, "logspace", "dtype")
    device = _device(device)
    return _t["logspace"](device, start, end, n, base, dtype)


def all_finite(x: Sequence[Tensor]) -> Tensor:
    """Whether every element of every tensor is finite, as one operator: a bool of rank 0. For the gradients of a model
    whose loss was scaled up. Errors: ArityError for no tensor; DTypeError for other than floats.

    >>> import remat
    >>> remat.all_finite([remat.ones(2), remat.ones(3)])
    tensor(True, shape=(), dtype=bool)
    """
    return _t["all_finite"](x)


def batch_norm(x: Tensor, scale: Tensor, bias: Tensor, eps: float = 1e-05) -> Tuple[Tensor, Tensor, Tensor]:
    """Normalised by the batch's own statistics, which come back too: `(y, mean, biased variance)`; `x: [n, c, ..]`,
    `scale, bias: [c]`. Errors: DTypeError, AxisError, ShapeError, ValueError.

    >>> import remat
    >>> y, mean, var = remat.tensor([[1.0], [3.0]]).batch_norm(remat.ones(1), remat.zeros(1))
    >>> mean, var
    (tensor([2.0], shape=(1,), dtype=float32), tensor([1.0], shape=(1,), dtype=float32))
    """
    return _t["batch_norm"](x, scale, bias, eps)


def batch_norm_with(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float = 1e-05) -> Tensor:
    """`batch_norm` by given statistics: `(x - mean) / sqrt(var + eps) scale + bias`. Errors: as there.

    >>> import remat
    >>> one, zero = remat.ones(1), remat.zeros(1)
    >>> remat.tensor([[2.0]]).batch_norm_with(one, zero, mean=zero, var=one).round_to(3)
    tensor([[2.0]], shape=(1, 1), dtype=float32)
    """
    return _t["batch_norm_with"](x, scale, bias, mean, var, eps)


def layer_norm(x: Tensor, scale: Tensor, bias: Tensor, axes: int = 1, eps: float = 1e-05, *, dim: Any = None) -> Tensor:
    """Normalised over the last `axes` axes, whose extents `scale` and `bias` have. Errors: DTypeError, AxisError,
    ShapeError, ValueError.

    >>> import remat
    >>> remat.tensor([1.0, 3.0]).layer_norm(remat.ones(2), remat.zeros(2)).round_to(3)
    tensor([-1.0,  1.0], shape=(2,), dtype=float32)
    """
    axes = axes if dim is None else dim
    return _t["layer_norm"](x, scale, bias, axes, eps)


def rms_norm(x: Tensor, scale: Tensor, axes: int = 1, eps: float = 1e-06, *, dim: Any = None) -> Tensor:
    """Over the root of the mean square of the last `axes` axes, whose extents `scale` has (Zhang and Sennrich, 2019).
    Errors: DTypeError, AxisError, ShapeError, ValueError.

    >>> import remat
    >>> remat.tensor([1.0, -1.0]).rms_norm(remat.ones(2)).round_to(3)
    tensor([ 1.0, -1.0], shape=(2,), dtype=float32)
    """
    axes = axes if dim is None else dim
    return _t["rms_norm"](x, scale, axes, eps)


def softmax(x: Tensor, axis: int = -1, *, dim: Any = None) -> Tensor:
    """`e^x / sum e^x` along `axis`. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([1.0, 1.0]).softmax()
    tensor([0.5, 0.5], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["softmax"](x, axis)


def log_softmax(x: Tensor, axis: int = -1, *, dim: Any = None) -> Tensor:
    """`ln softmax(x)` along `axis`. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([1.0, 1.0]).log_softmax().round_to(3)
    tensor([-0.693, -0.693], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["log_softmax"](x, axis)


def cross_entropy(x: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of `softmax` of these logits `[n, c, ..]` with class labels `[n, ..]`. A label that is no
    class is an error of kind Index at run time.

    >>> import remat
    >>> remat.tensor([[0.0, 0.0]]).cross_entropy(remat.tensor([1])).round_to(3)
    tensor(0.693, shape=(), dtype=float32)
    """
    return _t["cross_entropy"](x, labels)


def cross_entropy_with(x: Tensor, labels: Tensor, reduction: "str" = "mean", smoothing: float = 0.0, ignore_index: Any = None) -> Tensor:
    """As `cross_entropy` with all options.

    >>> import remat
    >>> remat.tensor([[0.0, 0.0]]).cross_entropy_with(remat.tensor([1]), "sum").round_to(3)
    tensor(0.693, shape=(), dtype=float32)
    """
    return _t["cross_entropy_with"](x, labels, reduction, smoothing, ignore_index)


def dropout(x: Tensor, p: float, key: Tensor) -> Tensor:
    """Zero with probability `p`, else divided by `1 - p`; a pure function of `key: u64 [2]`. Errors: ValueError.

    >>> import remat
    >>> remat.ones(2, 3).dropout(0.0, remat.Generator(0).key()).sum()
    tensor(6.0, shape=(), dtype=float32)
    """
    return _t["dropout"](x, p, key)


def cumulate(x: Tensor, f: "str", axis: int = _REQUIRED, exclusive: bool = False, reverse: bool = False, *, dim: Any = None) -> Tensor:
    """A running function along `axis`, of `Cumulate`: without the element itself if `exclusive`, from the end if
    `reverse`. Sums and products of integers are I64, of unsigned ones U64. Errors: AxisError, DTypeError;
    ValueError for an exclusive extreme.

    >>> import remat
    >>> remat.tensor([1, 2, 3]).cumulate("sum", 0, reverse=True)
    tensor([6, 5, 3], shape=(3,), dtype=int64)
    """
    axis = axis if dim is None else dim
    _required(axis, "cumulate", "axis")
    return _t["cumulate"](x, f, axis, exclusive, reverse)


def cumsum(x: Tensor, axis: int = _REQUIRED, *, dim: Any = None) -> Tensor:
    """Running sums along `axis`: of integers as I64, of unsigned ones as U64; bools are counted, as I64. Errors:
    AxisError.

    >>> import remat
    >>> remat.tensor([1, 2, 3]).cumsum(0)
    tensor([1, 3, 6], shape=(3,), dtype=int64)
    """
    axis = axis if dim is None else dim
    _required(axis, "cumsum", "axis")
    return _t["cumsum"](x, axis)


def cumprod(x: Tensor, axis: int = _REQUIRED, *, dim: Any = None) -> Tensor:
    """Running products along `axis`: of integers as I64, of unsigned ones as U64. Gradients of all orders are right
    where elements are zero. Errors: AxisError; DTypeError for bool.

    >>> import remat
    >>> remat.tensor([1, 2, 3]).cumprod(0)
    tensor([1, 2, 6], shape=(3,), dtype=int64)
    """
    axis = axis if dim is None else dim
    _required(axis, "cumprod", "axis")
    return _t["cumprod"](x, axis)


def logcumsumexp(x: Tensor, axis: int = 0, *, dim: Any = None) -> Tensor:
    """Running `ln sum e^x` along `axis`, without overflow. Errors: AxisError; DTypeError for other dtypes than floats.

    >>> import remat
    >>> remat.tensor([0.0, 0.0]).logcumsumexp().round_to(3)
    tensor([  0.0, 0.693], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    return _t["logcumsumexp"](x, axis)


def cummax_with_indices(x: Tensor, axis: int = 0, *, dim: Any = None) -> Tuple[Tensor, Tensor]:
    """The largest so far along `axis`, and its place as I64: the last of equal ones. NaN stays. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([1, 3, 2]).cummax_with_indices()[1]
    tensor([0, 1, 1], shape=(3,), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["cummax"](x, axis)


def cummin_with_indices(x: Tensor, axis: int = 0, *, dim: Any = None) -> Tuple[Tensor, Tensor]:
    """The smallest so far, as `cummax`. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([3, 1, 2]).cummin_with_indices()[1]
    tensor([0, 1, 1], shape=(3,), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["cummin"](x, axis)


def sort_with_indices(x: Tensor, axis: int = -1, descending: bool = False, *, dim: Any = None) -> Tuple[Tensor, Tensor]:
    """The elements along `axis` in order, and their places as I64; equal ones stay in their order. NaN is the largest.
    The gradient goes where the elements came from. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([3, 1, 2]).sort_with_indices()[1]
    tensor([1, 2, 0], shape=(3,), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["sort"](x, axis, descending)


def argsort(x: Tensor, axis: int = -1, descending: bool = False, *, dim: Any = None) -> Tensor:
    """The places of the elements along `axis` in order: `sort`. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([3, 1, 2]).argsort()
    tensor([1, 2, 0], shape=(3,), dtype=int64)
    """
    axis = axis if dim is None else dim
    return _t["argsort"](x, axis, descending)


def topk(x: Tensor, k: int, axis: int = -1, largest: bool = True, sorted: bool = True, *, dim: Any = None) -> Tuple[Tensor, Tensor]:
    """The `k` largest (smallest, if not) elements along `axis` and their places as I64: in order if `sorted`, else in
    that of their places. Of equal ones the first are taken. Errors: AxisError; ValueError for a `k` above the
    extent.

    >>> import remat
    >>> [y.tolist() for y in remat.tensor([3, 1, 2]).topk(2)]
    [[3, 2], [0, 2]]
    """
    axis = axis if dim is None else dim
    return _t["topk"](x, k, axis, largest, sorted)


def kthvalue(x: Tensor, k: int, axis: int = -1, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tuple[Tensor, Tensor]:
    """The `k`-th smallest element along `axis`, counted from 1, and its place as I64. Errors: AxisError; ValueError
    for a `k` of 0 or above the extent; ShapeError.

    >>> import remat
    >>> [y.tolist() for y in remat.tensor([3, 1, 2]).kthvalue(2)]
    [2, 2]
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    return _t["kthvalue"](x, k, axis, keepdims)


def median(x: Tensor, axis: Optional[int] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The element in the middle of `axis`, the lower one of two, and its place as I64. NaN where there is one. Errors:
    AxisError; ShapeError along an empty axis. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([3.0, 1.0, 2.0]).median()
    tensor(2.0, shape=(), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["median"](x)
        return _kept(y, x) if keepdims else y
    return _t["median_over"](x, axis, keepdims)[0]


def nanmedian(x: Tensor, axis: Optional[int] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """`median_over` of the elements that are not NaN. Errors: as there. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([3.0, float("nan"), 1.0, 2.0]).nanmedian()
    tensor(2.0, shape=(), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["nanmedian"](x)
        return _kept(y, x) if keepdims else y
    return _t["nanmedian_over"](x, axis, keepdims)[0]


def mode(x: Tensor, axis: Optional[int] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The element that `axis` has most often, the smallest of several, and its last place as I64. Errors: AxisError;
    ShapeError along an empty axis. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([3, 1, 3]).mode()
    tensor(3, shape=(), dtype=int64)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["mode"](x)
        return _kept(y, x) if keepdims else y
    return _t["mode_over"](x, axis, keepdims)[0]


def quantile(x: Tensor, q: float, axis: Optional[int] = None, keepdims: bool = False, between: "str" = "linear", *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The value below which a share `q` of `axis` lies. NaN where there is one. Errors: AxisError; DTypeError for
    other dtypes than floats; ValueError for a `q` outside 0 ..= 1; ShapeError along an empty axis. Over all
    elements without an axis.

    >>> import remat
    >>> remat.tensor([1.0, 2.0, 4.0]).quantile(0.75)
    tensor(3.0, shape=(), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["quantile"](x, q, between)
        return _kept(y, x) if keepdims else y
    return _t["quantile_over"](x, q, axis, keepdims, between)


def quantiles_over(x: Tensor, q: Sequence[float], axis: int = _REQUIRED, keepdims: bool = False, between: "str" = "linear", *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """Several quantiles, along a new first axis: `quantile_over`. Errors: as there.

    >>> import remat
    >>> remat.tensor([1.0, 2.0, 4.0]).quantiles_over([0.0, 0.5], 0)
    tensor([1.0, 2.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    _required(axis, "quantiles_over", "axis")
    return _t["quantiles_over"](x, q, axis, keepdims, between)


def searchsorted(x: Tensor, values: Tensor, right: bool = False) -> Tensor:
    """Where each of `values` belongs in `x`, whose last axis ascends: before equal elements, behind them if `right`;
    as I64. `x: [n]`, or `[b.., n]` for `values: [b.., m]`. NaN is the largest. Errors: AxisError, ShapeError.

    >>> import remat
    >>> remat.tensor([1, 3, 5]).searchsorted(remat.tensor([0, 3, 9]))
    tensor([0, 1, 3], shape=(3,), dtype=int64)
    """
    return _t["searchsorted"](x, values, right)


def bucketize(x: Tensor, boundaries: Tensor, right: bool = False) -> Tensor:
    """The bucket of each element between ascending `boundaries: [n]`: bucket `i` ends with boundary `i`, or before it
    if `right`; as I64. Errors: AxisError for boundaries of another rank.

    >>> import remat
    >>> remat.tensor([0, 3, 9]).bucketize(remat.tensor([1, 3, 5]))
    tensor([0, 1, 3], shape=(3,), dtype=int64)
    """
    return _t["bucketize"](x, boundaries, right)


def count_nonzero(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """How many elements over `axes` are not 0, as I64. Errors: AxisError. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([0, 2, 3]).count_nonzero()
    tensor(2, shape=(), dtype=int64)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["count_nonzero"](x)
        return _kept(y, x) if keepdims else y
    return _t["count_nonzero_over"](x, axis, keepdims)


def topk_accuracy(x: Tensor, target: Tensor, k: int = 1) -> Tensor:
    """The share of rows whose `target`, a class, is among the `k` largest of the last axis, as F32: top-k accuracy.
    `x: [n.., classes]`, `target: [n..]`. Errors: AxisError, ShapeError; DTypeError for a target that is no integer;
    ValueError for a `k` above the number of classes.

    >>> import remat
    >>> remat.tensor([[0.1, 0.9], [0.8, 0.2]]).topk_accuracy(remat.tensor([1, 1]))
    tensor(0.5, shape=(), dtype=float32)
    """
    return _t["topk_accuracy"](x, target, k)


def lerp(x: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """`x + weight (end - x)`. Shapes broadcast. Errors: ShapeError, DTypeError.

    >>> import remat
    >>> remat.tensor([0.0]).lerp(remat.tensor([10.0]), 0.25)
    tensor([2.5], shape=(1,), dtype=float32)
    """
    return _t["lerp"](x, end, weight)


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """`x` where it is positive, else `slope x`. Errors: DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([-100.0, 1.0]).leaky_relu()
    tensor([-1.0,  1.0], shape=(2,), dtype=float32)
    """
    return _t["leaky_relu"](x, slope)


def allclose(x: Tensor, b: Tensor, rtol: float = 1e-05, atol: float = 1e-08) -> Tensor:
    """Whether `|a - b| <= atol + rtol |b|` everywhere, as NumPy's `allclose`: a NaN is close to nothing. Rank 0, of
    bools. Errors: ShapeError, DTypeError for other than floats.

    >>> import remat
    >>> remat.tensor([1.0, 2.0]).allclose(remat.tensor([1.0, 2.0]))
    tensor(True, shape=(), dtype=bool)
    """
    return _t["allclose"](x, b, rtol, atol)


def sum(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The sum. Integers are added up as i64, unsigned ones as u64; bools are counted, as i64. Over all elements
    without an axis.

    >>> import remat
    >>> remat.tensor([[1.0, 2.0], [3.0, 4.0]]).sum(axis=0)
    tensor([4.0, 6.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["sum"](x)
        return _kept(y, x) if keepdims else y
    return _t["sum_over"](x, axis, keepdims)


def mean(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The mean; that of integers and bools is f32. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([[1.0, 2.0], [3.0, 4.0]]).mean(axis=0)
    tensor([2.0, 3.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["mean"](x)
        return _kept(y, x) if keepdims else y
    return _t["mean_over"](x, axis, keepdims)


def prod(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The product. Integers are multiplied as i64, unsigned ones as u64. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([[1.0, 2.0], [3.0, 4.0]]).prod(axis=0)
    tensor([3.0, 8.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["prod"](x)
        return _kept(y, x) if keepdims else y
    return _t["prod_over"](x, axis, keepdims)


def max(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The largest; ties share the gradient. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([[1.0, 2.0], [3.0, 4.0]]).max(axis=0)
    tensor([3.0, 4.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["max"](x)
        return _kept(y, x) if keepdims else y
    return _t["max_over"](x, axis, keepdims)


def min(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The smallest; ties share the gradient. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([[1.0, 2.0], [3.0, 4.0]]).min(axis=0)
    tensor([1.0, 2.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["min"](x)
        return _kept(y, x) if keepdims else y
    return _t["min_over"](x, axis, keepdims)


def any(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """Whether any is true. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([[True, False], [False, False]]).any(axis=1)
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["any"](x)
        return _kept(y, x) if keepdims else y
    return _t["any_over"](x, axis, keepdims)


def all(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """Whether all are true. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([[True, True], [True, False]]).all(axis=1)
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["all"](x)
        return _kept(y, x) if keepdims else y
    return _t["all_over"](x, axis, keepdims)


def sum_of_squares(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The sum of squares. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([[3.0, 4.0]]).sum_of_squares(axis=1)
    tensor([25.0], shape=(1,), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["sum_sqr"](x)
        return _kept(y, x) if keepdims else y
    return _t["sum_sqr_over"](x, axis, keepdims)


def logsumexp(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """`ln sum e^x` over `axes` without overflow. Errors: AxisError, DTypeError. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([[0.0, 0.0]]).logsumexp(axis=1).round_to(3)
    tensor([0.693], shape=(1,), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["log_sum_exp"](x)
        return _kept(y, x) if keepdims else y
    return _t["log_sum_exp_over"](x, axis, keepdims)


def var(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, correction: int = 0, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The variance over `axes`, with the sum of squares divided by the count less `correction`: 1 is PyTorch's
    default, 0 NumPy's. Errors: AxisError, DTypeError. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([1.0, 3.0]).var(), remat.tensor([1.0, 3.0]).var(correction=1)
    (tensor(1.0, shape=(), dtype=float32), tensor(2.0, shape=(), dtype=float32))
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["var"](x, correction)
        return _kept(y, x) if keepdims else y
    return _t["var_over"](x, axis, keepdims, correction)


def std(x: Tensor, axis: Optional[AxisLike] = None, keepdims: bool = False, correction: int = 0, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """The standard deviation over `axes`: the root of `var_over`, of squares that overflow in no dtype. Equal elements
    give 0, and a gradient of 0. Errors: AxisError, DTypeError. Over all elements without an axis.

    >>> import remat
    >>> remat.tensor([1.0, 3.0]).std()
    tensor(1.0, shape=(), dtype=float32)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["std"](x, correction)
        return _kept(y, x) if keepdims else y
    return _t["std_over"](x, axis, keepdims, correction)


def argmax(x: Tensor, axis: Optional[int] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """Index of the first largest along `axis`, as i64. Errors: AxisError; ShapeError along an empty axis. Over all
    elements without an axis.

    >>> import remat
    >>> remat.tensor([[1, 5], [3, 2]]).argmax(axis=1)
    tensor([1, 0], shape=(2,), dtype=int64)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["argmax"](x)
        return _kept(y, x) if keepdims else y
    return _t["argmax_over"](x, axis, keepdims)


def argmin(x: Tensor, axis: Optional[int] = None, keepdims: bool = False, *, dim: Any = None, keepdim: Any = None) -> Tensor:
    """Index of the first smallest along `axis`, as i64. Errors: AxisError; ShapeError along an empty axis. Over all
    elements without an axis.

    >>> import remat
    >>> remat.tensor([[1, 5], [3, 2]]).argmin(axis=1)
    tensor([0, 1], shape=(2,), dtype=int64)
    """
    axis = axis if dim is None else dim
    keepdims = keepdims if keepdim is None else keepdim
    if axis is None:
        y = _t["argmin"](x)
        return _kept(y, x) if keepdims else y
    return _t["argmin_over"](x, axis, keepdims)


def scatter(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, src: Operand = _REQUIRED, *, dim: Any = None) -> Tensor:
    """`x` with each element of `src` put where its index says along `axis`: `y[.., index[.., m, ..], ..] = src[.., m,
    ..]`. Of several at one place the last one stays. `src` may be a number.

    >>> import remat
    >>> remat.zeros(3).scatter(0, remat.tensor([2, 0]), remat.tensor([1.0, 2.0]))
    tensor([2.0, 0.0, 1.0], shape=(3,), dtype=float32)
    """
    axis = axis if dim is None else dim
    _required(axis, "scatter", "axis")
    _required(index, "scatter", "index")
    _required(src, "scatter", "src")
    return _t["scatter"](x, axis, index, src)


def scatter_add(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, src: Tensor = _REQUIRED, *, dim: Any = None) -> Tensor:
    """`x` with each element of `src` added where its index says along `axis`: the reverse of `gather`. A place that is
    named twice gets both; the order of additions is fixed.

    >>> import remat
    >>> remat.zeros(3).scatter_add(0, remat.tensor([2, 2]), remat.tensor([1.0, 2.0]))
    tensor([0.0, 0.0, 3.0], shape=(3,), dtype=float32)
    """
    axis = axis if dim is None else dim
    _required(axis, "scatter_add", "axis")
    _required(index, "scatter_add", "index")
    _required(src, "scatter_add", "src")
    return _t["scatter_add"](x, axis, index, src)


def scatter_reduce(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, src: Tensor = _REQUIRED, f: "str" = _REQUIRED, include_self: bool = True, *, dim: Any = None) -> Tensor:
    """`x`, with each element combined with the elements of `src` that go there: their sum, product, mean, largest or
    smallest. Without `include_self`, an element of `x` does not count if any element of `src` goes there. The
    gradient of an extreme is shared equally among equal ones; that of a product is right where factors are zero.

    >>> import remat
    >>> remat.zeros(2).scatter_reduce(0, remat.tensor([1, 1]), remat.tensor([1.0, 2.0]), "amax")
    tensor([0.0, 2.0], shape=(2,), dtype=float32)
    """
    axis = axis if dim is None else dim
    _required(axis, "scatter_reduce", "axis")
    _required(index, "scatter_reduce", "index")
    _required(src, "scatter_reduce", "src")
    _required(f, "scatter_reduce", "f")
    return _t["scatter_reduce"](x, axis, index, src, f, include_self)


def index_add(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, src: Tensor = _REQUIRED, *, dim: Any = None) -> Tensor:
    """`x` with the slices of `src` added where a vector of indices names places along `axis`: the reverse of `take`. A
    place that is named twice gets both; the order of additions is fixed.

    >>> import remat
    >>> remat.zeros(3).index_add(0, remat.tensor([2, 2]), remat.tensor([1.0, 2.0]))
    tensor([0.0, 0.0, 3.0], shape=(3,), dtype=float32)
    """
    axis = axis if dim is None else dim
    _required(axis, "index_add", "axis")
    _required(index, "index_add", "index")
    _required(src, "index_add", "src")
    return _t["index_add"](x, axis, index, src)


def index_copy(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, src: Tensor = _REQUIRED, *, dim: Any = None) -> Tensor:
    """`x` with the slices of `src` in the places along `axis` that a vector of indices names; the last one stays where
    several go. Errors: as `index_add`.

    >>> import remat
    >>> remat.zeros(3).index_copy(0, remat.tensor([2]), remat.tensor([1.0]))
    tensor([0.0, 0.0, 1.0], shape=(3,), dtype=float32)
    """
    axis = axis if dim is None else dim
    _required(axis, "index_copy", "axis")
    _required(index, "index_copy", "index")
    _required(src, "index_copy", "src")
    return _t["index_copy"](x, axis, index, src)


def index_fill(x: Tensor, axis: int = _REQUIRED, index: Tensor = _REQUIRED, value: Operand = _REQUIRED, *, dim: Any = None) -> Tensor:
    """`x` with `value`, a number or a tensor of one, in the places along `axis` that a vector of indices names.
    Errors: as `index_add`.

    >>> import remat
    >>> remat.zeros(3).index_fill(0, remat.tensor([2]), 1.0)
    tensor([0.0, 0.0, 1.0], shape=(3,), dtype=float32)
    """
    axis = axis if dim is None else dim
    _required(axis, "index_fill", "axis")
    _required(index, "index_fill", "index")
    _required(value, "index_fill", "value")
    return _t["index_fill"](x, axis, index, value)


def gather_nd(x: Tensor, indices: Tensor, batch: int = 0) -> Tensor:
    """The elements that the last axis of `indices: [batch.., n.., k]` names along `k` axes, after `batch` axes that
    both have: `[batch.., n.., rest..]` (ONNX's GatherND). Negative indices count from the end.

    >>> import remat
    >>> remat.tensor([[1, 2], [3, 4]]).gather_nd(remat.tensor([[0, 1], [1, 1]]))
    tensor([2, 4], shape=(2,), dtype=int64)
    """
    return _t["gather_nd"](x, indices, batch)


def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, f: "str") -> Tensor:
    """`x` with `updates` put where `gather_nd` without a batch reads (ONNX's ScatterND). Errors: as there.

    >>> import remat
    >>> remat.zeros(3).scatter_nd(remat.tensor([[1], [1]]), remat.ones(2), "add")
    tensor([0.0, 2.0, 0.0], shape=(3,), dtype=float32)
    """
    return _t["scatter_nd"](x, indices, updates, f)


def take_flat(x: Tensor, index: Tensor) -> Tensor:
    """The elements that `index`, of any shape, names in row-major order (PyTorch's `take`). Errors: DTypeError; at run
    time, IndexError for one that is not there.

    >>> import remat
    >>> remat.tensor([[1, 2], [3, 4]]).take_flat(remat.tensor([3, 0]))
    tensor([4, 1], shape=(2,), dtype=int64)
    """
    return _t["take_flat"](x, index)


def put(x: Tensor, index: Tensor, src: Tensor, accumulate: bool = False) -> Tensor:
    """`x` with the elements of `src` put, or added if `accumulate`, where `index` of the same shape names them in row-
    major order (PyTorch's `put`). Errors: ShapeError, DTypeError; at run time, IndexError for one that is not
    there.

    >>> import remat
    >>> remat.zeros(3).put(remat.tensor([2]), remat.tensor([1.0]))
    tensor([0.0, 0.0, 1.0], shape=(3,), dtype=float32)
    """
    return _t["put"](x, index, src, accumulate)


def masked_scatter(x: Tensor, mask: Tensor, src: Tensor) -> Tensor:
    """`x` with the elements of `src`, in row-major order, in the places where `mask` is true, in the same order;
    `mask` broadcasts. Errors: DTypeError, ShapeError; at run time, IndexError where `src` has fewer elements than
    there are places.

    >>> import remat
    >>> remat.zeros(3).masked_scatter(remat.tensor([True, False, True]), remat.tensor([1.0, 2.0]))
    tensor([1.0, 0.0, 2.0], shape=(3,), dtype=float32)
    """
    return _t["masked_scatter"](x, mask, src)


def select_scatter(x: Tensor, src: Tensor, axis: int = _REQUIRED, index: int = _REQUIRED, *, dim: Any = None) -> Tensor:
    """`x` with `src` in place of element `index` of `axis`. Errors: AxisError; IndexError; ShapeError or DTypeError
    for another `src`.

    >>> import remat
    >>> remat.zeros(2, 2).select_scatter(remat.ones(2), 0, 1)
    tensor([[0.0, 0.0],
            [1.0, 1.0]], shape=(2, 2), dtype=float32)
    """
    axis = axis if dim is None else dim
    _required(axis, "select_scatter", "axis")
    _required(index, "select_scatter", "index")
    return _t["select_scatter"](x, src, axis, index)


def as_size(x: Tensor) -> int:
    """The number that an integer of one element is, to decide shapes by. Waits for it.

    >>> import remat
    >>> remat.tensor(3).as_size()
    3
    """
    return _t["as_size"](x)


def nonzero(x: Tensor) -> Tensor:
    """The indices of the elements that are not 0, one row of I64 for each, in row-major order: `[count, rank]`. NaN is
    not 0. Reads the count: see `as_size`.

    >>> import remat
    >>> remat.tensor([[0, 1], [2, 0]]).nonzero()
    tensor([[0, 1],
            [1, 0]], shape=(2, 2), dtype=int64)
    """
    return _t["nonzero"](x)


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask` is true, in row-major order, as a vector; both broadcast. Reads the count: see
    `as_size`. The gradient goes to the chosen elements.

    >>> import remat
    >>> remat.tensor([1, 2, 3]).masked_select(remat.tensor([True, False, True]))
    tensor([1, 3], shape=(2,), dtype=int64)
    """
    return _t["masked_select"](x, mask)


def cond_take(x: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
    """`masked_select` with the indices of the chosen elements in the flat tensor, of I64. Errors: as there; both have
    one shape.

    >>> import remat
    >>> [y.tolist() for y in remat.tensor([1, 2, 3]).cond_take(remat.tensor([True, False, True]))]
    [[1, 3], [0, 2]]
    """
    return _t["cond_take"](x, mask)


def unique_values(x: Tensor) -> Tensor:
    """The values that there are, ascending, as a vector. Each NaN is one of its own. Reads their number: see
    `as_size`. Errors: those of it.

    >>> import remat
    >>> remat.tensor([2, 1, 2]).unique_values()
    tensor([1, 2], shape=(2,), dtype=int64)
    """
    return _t["unique"](x)


def unique_all(x: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The values that there are, ascending; the first place of each in row-major order; for each element the place of
    its value among them, in the shape of `x`; and how often each is there. Places and counts are I64. Errors: as
    `unique`.

    >>> import remat
    >>> [y.tolist() for y in remat.tensor([2, 1, 2]).unique_all()]
    [[1, 2], [1, 0], [1, 0, 1], [1, 2]]
    """
    return _t["unique_all"](x)


def bincount(x: Tensor, weights: Optional[Tensor] = None, minlength: int = 0) -> Tensor:
    """How often each number from 0 on is there: `y[i]` = the number of elements that are `i`, as I64, or the sum of
    their `weights`. At least `minlength` of them. Reads the largest number: see `as_size`.

    >>> import remat
    >>> remat.tensor([0, 2, 2]).bincount()
    tensor([1, 0, 2], shape=(3,), dtype=int64)
    """
    return _t["bincount"](x, weights, minlength)


def histogram(x: Tensor, bins: int = 10, range: Any = None, weights: Optional[Tensor] = None, density: bool = False) -> Tuple[Tensor, Tensor]:
    """How many elements lie in each of `bins` equal intervals, in the dtype of `x`, or the sum of their `weights`; and
    the ends of the intervals, `[bins + 1]`. From `range`, or from the least to the largest element. With `density`
    the integral is 1. An interval has its lower end, the last one its upper end too; what lies outside does not
    count.

    >>> import remat
    >>> [y.tolist() for y in remat.tensor([0.0, 1.0, 4.0]).histogram(2)]
    [[2.0, 1.0], [0.0, 2.0, 4.0]]
    """
    return _t["histogram"](x, bins, range, weights, density)


def histc(x: Tensor, bins: int, low: float, high: float) -> Tensor:
    """How many elements lie in each of `bins` equal intervals from `low` to `high`, or from the least to the largest
    element if these are equal. Errors: as `histogram`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0, 4.0]).histc(2, 0.0, 4.0)
    tensor([2.0, 1.0], shape=(2,), dtype=float32)
    """
    return _t["histc"](x, bins, low, high)


def isin(x: Tensor, test: Tensor, invert: bool = False) -> Tensor:
    """Whether each element is among those of `test`, or is not if `invert`. NaN is not.

    >>> import remat
    >>> remat.tensor([1, 2, 3]).isin(remat.tensor([3, 1]))
    tensor([ True, False,  True], shape=(3,), dtype=bool)
    """
    return _t["isin"](x, test, invert)


def multinomial(x: Tensor, key: Tensor, n: int, replacement: bool = False) -> Tensor:
    """`n` draws by the weights of the last axis, which need not add up to 1, as I64: `[.., n]`. Without `replacement`
    none is drawn twice. What has weight 0 is never drawn.

    >>> import remat
    >>> remat.ops.multinomial(remat.tensor([0.0, 1.0]), remat.Generator(0).key(), 1)
    tensor([1], shape=(1,), dtype=int64)
    """
    return _t["multinomial"](x, key, n, replacement)


def shuffle(x: Tensor, key: Tensor, axis: int = 0, *, dim: Any = None) -> Tensor:
    """The elements of `axis` in a random order. Errors: AxisError; DTypeError or ShapeError for a wrong key.

    >>> import remat
    >>> sorted(remat.arange(3).shuffle(remat.Generator(0).key()).tolist())
    [0, 1, 2]
    """
    axis = axis if dim is None else dim
    return _t["shuffle"](x, key, axis)


def flatten(x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Merges the axes from `start` to `end`, both included, as torch's `flatten`; of rank 0 it makes a vector. Errors:
    AxisError if they are out of range, or `end` comes before `start`.

    >>> import remat
    >>> remat.zeros(2, 3, 4).flatten(1).shape
    (2, 12)
    """
    return _t["flatten"](x, start, end)


def unflatten(x: Tensor, axis: int = _REQUIRED, extents: AxisLike = _REQUIRED, *, dim: Any = None) -> Tensor:
    """Axis `axis` as several; one extent may be -1 and is worked out. Errors: AxisError; ShapeError.

    >>> import remat
    >>> remat.zeros(6, 2).unflatten(0, (2, 3)).shape
    (2, 3, 2)
    """
    axis = axis if dim is None else dim
    _required(axis, "unflatten", "axis")
    _required(extents, "unflatten", "extents")
    return _t["unflatten"](x, axis, extents)


def moveaxis(x: Tensor, from_: int, to: int) -> Tensor:
    """Axis `from` moved to place `to`, the others in their order. Errors: AxisError. Also called `movedim`.

    >>> import remat
    >>> remat.zeros(2, 3, 4).moveaxis(0, 2).shape
    (3, 4, 2)
    """
    return _t["movedim"](x, from_, to)


def permute_dims(x: Tensor, order: AxisLike) -> Tensor:
    """Axis `k` of the result is axis `order[k]`, which may count from the end. Errors: AxisError if that is no
    permutation.

    >>> import remat
    >>> remat.ops.permute_dims(remat.zeros(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return _t["permute"](x, order)


def t(x: Tensor) -> Tensor:
    """The last two axes exchanged. Errors: AxisError below rank 2.

    >>> import remat
    >>> remat.zeros(2, 3).t().shape
    (3, 2)
    """
    return _t["t"](x)


def broadcast_to(x: Tensor, shape: ShapeLike) -> Tensor:
    """Repeated along axes of extent 1 and new leading axes. Errors: ShapeError.

    >>> import remat
    >>> remat.arange(2).broadcast_to((2, 2))
    tensor([[0, 1],
            [0, 1]], shape=(2, 2), dtype=int64)
    """
    return _t["broadcast_to"](x, shape)


def squeeze(x: Tensor, axes: AxisLike = (), *, dim: Any = None) -> Tensor:
    """Without the axes that are named, which have extent 1; without all such axes if none is named. Errors: AxisError;
    ShapeError if one of them has another extent.

    >>> import remat
    >>> remat.zeros(1, 2, 1).squeeze().shape
    (2,)
    """
    axes = axes if dim is None else dim
    return _t["squeeze"](x, axes)


def expand_dims(x: Tensor, axis: int = _REQUIRED, *, dim: Any = None) -> Tensor:
    """With a new axis of extent 1 at `axis` of the result. Errors: AxisError. Also called `unsqueeze`.

    >>> import remat
    >>> remat.zeros(2).expand_dims(0).shape
    (1, 2)
    """
    axis = axis if dim is None else dim
    _required(axis, "expand_dims", "axis")
    return _t["unsqueeze"](x, axis)


def contiguous(x: Tensor) -> Tensor:
    """In row-major order without gaps: a copy if it is a view.

    >>> import remat
    >>> remat.zeros(2, 3).T.contiguous().shape
    (3, 2)
    """
    return _t["contiguous"](x)


def frames(x: Tensor, n: int, hop: int) -> Tensor:
    """Overlapping frames of the last axis: `[.., t]` to `[.., frames, n]`, `hop` points apart, as many as fit. Errors:
    AxisError for rank 0; ValueError for a frame or a hop of 0 points; ShapeError for less than a frame.

    >>> import remat
    >>> remat.tensor([1, 2, 3, 4, 5]).frames(3, 2)
    tensor([[1, 2, 3],
            [3, 4, 5]], shape=(2, 3), dtype=int64)
    """
    return _t["frames"](x, n, hop)


def overlap_add(x: Tensor, hop: int) -> Tensor:
    """The adjoint of `frames`: frames `[.., frames, n]` added up where they overlap, `[.., (frames - 1) hop + n]`.
    Errors: AxisError for a rank below 2; ValueError for a hop of 0; ShapeError for no frames.

    >>> import remat
    >>> remat.ones(2, 3).overlap_add(2)
    tensor([1.0, 1.0, 2.0, 1.0, 1.0], shape=(5,), dtype=float32)
    """
    return _t["overlap_add"](x, hop)


def fftfreq(n: int, d: float = 1.0, dtype: DTypeLike = _REQUIRED, *, device: Optional[Device] = None) -> Tensor:
    """The frequencies of the `n` numbers of a transform whose points are `d` apart: `0, 1, .., -2, -1` over `n d`.
    Errors: DTypeError for other than floats; ValueError for a distance that is not positive.

    >>> import remat
    >>> remat.fftfreq(4, 0.25, "float32")
    tensor([ 0.0,  1.0, -2.0, -1.0], shape=(4,), dtype=float32)
    """
    _required(dtype, "fftfreq", "dtype")
    device = _device(device)
    return _t["fftfreq"](device, n, d, dtype)


def rfftfreq(n: int, d: float = 1.0, dtype: DTypeLike = _REQUIRED, *, device: Optional[Device] = None) -> Tensor:
    """The frequencies of the `n / 2 + 1` numbers of `rfft`, whose points are `d` apart. Errors: as `fftfreq`.

    >>> import remat
    >>> remat.rfftfreq(4, 0.25, "float32")
    tensor([0.0, 1.0, 2.0], shape=(3,), dtype=float32)
    """
    _required(dtype, "rfftfreq", "dtype")
    device = _device(device)
    return _t["rfftfreq"](device, n, d, dtype)


def fftshift(x: Tensor, axes: AxisLike = (), *, dim: Any = None) -> Tensor:
    """The zero frequency in the middle of each of `axes`, where a transform has it first. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([0, 1, 2, -2, -1]).fftshift(0)
    tensor([-2, -1,  0,  1,  2], shape=(5,), dtype=int64)
    """
    axes = axes if dim is None else dim
    return _t["fftshift"](x, axes)


def ifftshift(x: Tensor, axes: AxisLike = (), *, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`. Errors: AxisError.

    >>> import remat
    >>> remat.tensor([-2, -1, 0, 1, 2]).ifftshift(0)
    tensor([ 0,  1,  2, -2, -1], shape=(5,), dtype=int64)
    """
    axes = axes if dim is None else dim
    return _t["ifftshift"](x, axes)


def relu(x: Tensor) -> Tensor:
    """`max(x, 0)`; the derivative at 0 is 0.

    >>> import remat
    >>> remat.tensor([-1.0, 2.0]).relu()
    tensor([0.0, 2.0], shape=(2,), dtype=float32)
    """
    return _t["relu"](x)


def relu6(x: Tensor) -> Tensor:
    """`min(max(x, 0), 6)`.

    >>> import remat
    >>> remat.tensor([-1.0, 2.0, 9.0]).relu6()
    tensor([0.0, 2.0, 6.0], shape=(3,), dtype=float32)
    """
    return _t["relu6"](x)


def abs(x: Tensor) -> Tensor:
    """`|x|`. Also called `absolute`.

    >>> import remat
    >>> remat.tensor([-1, 2]).abs()
    tensor([1, 2], shape=(2,), dtype=int64)
    """
    return _t["abs"](x)


def negative(x: Tensor) -> Tensor:
    """`-x`. Also called `neg`.

    >>> import remat
    >>> remat.tensor([-1, 2]).negative()
    tensor([ 1, -2], shape=(2,), dtype=int64)
    """
    return _t["neg"](x)


def exp(x: Tensor) -> Tensor:
    """`e^x`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).exp().round_to(3)
    tensor([  1.0, 2.718], shape=(2,), dtype=float32)
    """
    return _t["exp"](x)


def expm1(x: Tensor) -> Tensor:
    """`e^x - 1`, accurate near 0.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).expm1().round_to(3)
    tensor([  0.0, 1.718], shape=(2,), dtype=float32)
    """
    return _t["expm1"](x)


def log(x: Tensor) -> Tensor:
    """`ln x`.

    >>> import remat
    >>> remat.tensor([1.0, 2.0]).log().round_to(3)
    tensor([  0.0, 0.693], shape=(2,), dtype=float32)
    """
    return _t["log"](x)


def log1p(x: Tensor) -> Tensor:
    """`ln(1 + x)`, accurate near 0.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).log1p().round_to(3)
    tensor([  0.0, 0.693], shape=(2,), dtype=float32)
    """
    return _t["log1p"](x)


def sqrt(x: Tensor) -> Tensor:
    """`sqrt x`.

    >>> import remat
    >>> remat.tensor([4.0, 9.0]).sqrt()
    tensor([2.0, 3.0], shape=(2,), dtype=float32)
    """
    return _t["sqrt"](x)


def rsqrt(x: Tensor) -> Tensor:
    """`1 / sqrt x`.

    >>> import remat
    >>> remat.tensor([4.0]).rsqrt().round_to(3)
    tensor([0.5], shape=(1,), dtype=float32)
    """
    return _t["rsqrt"](x)


def square(x: Tensor) -> Tensor:
    """`x^2`.

    >>> import remat
    >>> remat.tensor([-3, 2]).square()
    tensor([9, 4], shape=(2,), dtype=int64)
    """
    return _t["square"](x)


def reciprocal(x: Tensor) -> Tensor:
    """`1 / x`. Also called `recip`.

    >>> import remat
    >>> remat.tensor([4.0]).reciprocal()
    tensor([0.25], shape=(1,), dtype=float32)
    """
    return _t["recip"](x)


def sin(x: Tensor) -> Tensor:
    """`sin x`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).sin().round_to(3)
    tensor([  0.0, 0.841], shape=(2,), dtype=float32)
    """
    return _t["sin"](x)


def cos(x: Tensor) -> Tensor:
    """`cos x`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).cos().round_to(3)
    tensor([ 1.0, 0.54], shape=(2,), dtype=float32)
    """
    return _t["cos"](x)


def tan(x: Tensor) -> Tensor:
    """`tan x`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).tan().round_to(3)
    tensor([  0.0, 1.557], shape=(2,), dtype=float32)
    """
    return _t["tan"](x)


def asin(x: Tensor) -> Tensor:
    """`arcsin x`. Also called `arcsin`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).asin().round_to(3)
    tensor([  0.0, 1.571], shape=(2,), dtype=float32)
    """
    return _t["asin"](x)


def acos(x: Tensor) -> Tensor:
    """`arccos x`. Also called `arccos`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).acos().round_to(3)
    tensor([1.571,   0.0], shape=(2,), dtype=float32)
    """
    return _t["acos"](x)


def atan(x: Tensor) -> Tensor:
    """`arctan x`. Also called `arctan`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).atan().round_to(3)
    tensor([  0.0, 0.785], shape=(2,), dtype=float32)
    """
    return _t["atan"](x)


def sinh(x: Tensor) -> Tensor:
    """`sinh x`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).sinh().round_to(3)
    tensor([  0.0, 1.175], shape=(2,), dtype=float32)
    """
    return _t["sinh"](x)


def cosh(x: Tensor) -> Tensor:
    """`cosh x`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).cosh().round_to(3)
    tensor([  1.0, 1.543], shape=(2,), dtype=float32)
    """
    return _t["cosh"](x)


def tanh(x: Tensor) -> Tensor:
    """`tanh x`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).tanh().round_to(3)
    tensor([  0.0, 0.762], shape=(2,), dtype=float32)
    """
    return _t["tanh"](x)


def asinh(x: Tensor) -> Tensor:
    """`arsinh x`. Also called `arcsinh`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).asinh().round_to(3)
    tensor([  0.0, 0.881], shape=(2,), dtype=float32)
    """
    return _t["asinh"](x)


def acosh(x: Tensor) -> Tensor:
    """`arcosh x`. Also called `arccosh`.

    >>> import remat
    >>> remat.tensor([1.0, 2.0]).acosh().round_to(3)
    tensor([  0.0, 1.317], shape=(2,), dtype=float32)
    """
    return _t["acosh"](x)


def atanh(x: Tensor) -> Tensor:
    """`artanh x`. Also called `arctanh`.

    >>> import remat
    >>> remat.tensor([0.0, 0.5]).atanh().round_to(3)
    tensor([  0.0, 0.549], shape=(2,), dtype=float32)
    """
    return _t["atanh"](x)


def sigmoid(x: Tensor) -> Tensor:
    """`1 / (1 + e^-x)`.

    >>> import remat
    >>> remat.tensor([0.0, 2.0]).sigmoid().round_to(3)
    tensor([  0.5, 0.881], shape=(2,), dtype=float32)
    """
    return _t["sigmoid"](x)


def logsigmoid(x: Tensor) -> Tensor:
    """`ln sigmoid(x)`.

    >>> import remat
    >>> remat.tensor([0.0, 2.0]).logsigmoid().round_to(3)
    tensor([-0.693, -0.127], shape=(2,), dtype=float32)
    """
    return _t["logsigmoid"](x)


def softplus(x: Tensor) -> Tensor:
    """`ln(1 + e^x)`.

    >>> import remat
    >>> remat.tensor([0.0, 2.0]).softplus().round_to(3)
    tensor([0.693, 2.127], shape=(2,), dtype=float32)
    """
    return _t["softplus"](x)


def silu(x: Tensor) -> Tensor:
    """`x sigmoid(x)`.

    >>> import remat
    >>> remat.tensor([0.0, 2.0]).silu().round_to(3)
    tensor([  0.0, 1.762], shape=(2,), dtype=float32)
    """
    return _t["silu"](x)


def gelu(x: Tensor) -> Tensor:
    """`x Phi(x)`, with the normal distribution function by erf.

    >>> import remat
    >>> remat.tensor([0.0, 2.0]).gelu().round_to(3)
    tensor([  0.0, 1.954], shape=(2,), dtype=float32)
    """
    return _t["gelu"](x)


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of GELU.

    >>> import remat
    >>> remat.tensor([0.0, 2.0]).gelu_tanh().round_to(3)
    tensor([  0.0, 1.955], shape=(2,), dtype=float32)
    """
    return _t["gelu_tanh"](x)


def erf(x: Tensor) -> Tensor:
    """The error function.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).erf().round_to(3)
    tensor([  0.0, 0.843], shape=(2,), dtype=float32)
    """
    return _t["erf"](x)


def erfc(x: Tensor) -> Tensor:
    """`1 - erf x`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).erfc().round_to(3)
    tensor([  1.0, 0.157], shape=(2,), dtype=float32)
    """
    return _t["erfc"](x)


def erfinv(x: Tensor) -> Tensor:
    """The inverse of erf.

    >>> import remat
    >>> remat.tensor([0.0, 0.5]).erfinv().round_to(3)
    tensor([  0.0, 0.477], shape=(2,), dtype=float32)
    """
    return _t["erfinv"](x)


def erfcinv(x: Tensor) -> Tensor:
    """The inverse of erfc.

    >>> import remat
    >>> remat.tensor([1.0, 0.5]).erfcinv().round_to(3)
    tensor([  0.0, 0.477], shape=(2,), dtype=float32)
    """
    return _t["erfcinv"](x)


def floor(x: Tensor) -> Tensor:
    """The largest whole number not above x.

    >>> import remat
    >>> remat.tensor([-1.5, 1.5]).floor()
    tensor([-2.0,  1.0], shape=(2,), dtype=float32)
    """
    return _t["floor"](x)


def ceil(x: Tensor) -> Tensor:
    """The smallest whole number not below x.

    >>> import remat
    >>> remat.tensor([-1.5, 1.5]).ceil()
    tensor([-1.0,  2.0], shape=(2,), dtype=float32)
    """
    return _t["ceil"](x)


def round(x: Tensor) -> Tensor:
    """The nearest whole number, halves to the even one, as in NumPy.

    >>> import remat
    >>> remat.tensor([0.5, 1.5]).round()
    tensor([0.0, 2.0], shape=(2,), dtype=float32)
    """
    return _t["round"](x)


def round_away(x: Tensor) -> Tensor:
    """The nearest whole number, halves away from zero.

    >>> import remat
    >>> remat.tensor([0.5, 1.5]).round_away()
    tensor([1.0, 2.0], shape=(2,), dtype=float32)
    """
    return _t["round_away"](x)


def trunc(x: Tensor) -> Tensor:
    """x without its fraction.

    >>> import remat
    >>> remat.tensor([-1.5, 1.5]).trunc()
    tensor([-1.0,  1.0], shape=(2,), dtype=float32)
    """
    return _t["trunc"](x)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1.

    >>> import remat
    >>> remat.tensor([-2, 0, 3]).sign()
    tensor([-1,  0,  1], shape=(3,), dtype=int64)
    """
    return _t["sign"](x)


def hardsigmoid(x: Tensor) -> Tensor:
    """`min(max(x + 3, 0), 6) / 6`.

    >>> import remat
    >>> remat.tensor([-4.0, 0.0, 4.0]).hardsigmoid()
    tensor([0.0, 0.5, 1.0], shape=(3,), dtype=float32)
    """
    return _t["hsigmoid"](x)


def hardswish(x: Tensor) -> Tensor:
    """`x hsigmoid(x)`.

    >>> import remat
    >>> remat.tensor([-4.0, 0.0, 4.0]).hardswish()
    tensor([0.0, 0.0, 4.0], shape=(3,), dtype=float32)
    """
    return _t["hswish"](x)


def mish(x: Tensor) -> Tensor:
    """`x tanh(ln(1 + e^x))`.

    >>> import remat
    >>> remat.tensor([0.0, 2.0]).mish().round_to(3)
    tensor([  0.0, 1.944], shape=(2,), dtype=float32)
    """
    return _t["mish"](x)


def softsign(x: Tensor) -> Tensor:
    """`x / (1 + |x|)`.

    >>> import remat
    >>> remat.tensor([-1.0, 3.0]).softsign()
    tensor([-0.5, 0.75], shape=(2,), dtype=float32)
    """
    return _t["softsign"](x)


def log2(x: Tensor) -> Tensor:
    """`log_2 x`: -inf at 0, NaN below.

    >>> import remat
    >>> remat.tensor([1.0, 8.0]).log2()
    tensor([0.0, 3.0], shape=(2,), dtype=float32)
    """
    return _t["log2"](x)


def log10(x: Tensor) -> Tensor:
    """`log_10 x`: -inf at 0, NaN below.

    >>> import remat
    >>> remat.tensor([1.0, 100.0]).log10()
    tensor([0.0, 2.0], shape=(2,), dtype=float32)
    """
    return _t["log10"](x)


def exp2(x: Tensor) -> Tensor:
    """`2^x`.

    >>> import remat
    >>> remat.tensor([0.0, 3.0]).exp2()
    tensor([1.0, 8.0], shape=(2,), dtype=float32)
    """
    return _t["exp2"](x)


def lgamma(x: Tensor) -> Tensor:
    """`ln |gamma(x)|` of the gamma function.

    >>> import remat
    >>> remat.tensor([1.0, 5.0]).lgamma().round_to(3)
    tensor([  0.0, 3.178], shape=(2,), dtype=float32)
    """
    return _t["lgamma"](x)


def digamma(x: Tensor) -> Tensor:
    """The derivative of `lgamma`.

    >>> import remat
    >>> remat.tensor([1.0]).digamma().round_to(3)
    tensor([-0.577], shape=(1,), dtype=float32)
    """
    return _t["digamma"](x)


def i0(x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 0.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).i0().round_to(3)
    tensor([  1.0, 1.266], shape=(2,), dtype=float32)
    """
    return _t["i0"](x)


def i0e(x: Tensor) -> Tensor:
    """`e^-|x|` times `i0`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).i0e().round_to(3)
    tensor([  1.0, 0.466], shape=(2,), dtype=float32)
    """
    return _t["i0e"](x)


def i1(x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 1.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).i1().round_to(3)
    tensor([  0.0, 0.565], shape=(2,), dtype=float32)
    """
    return _t["i1"](x)


def i1e(x: Tensor) -> Tensor:
    """`e^-|x|` times `i1`.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).i1e().round_to(3)
    tensor([  0.0, 0.208], shape=(2,), dtype=float32)
    """
    return _t["i1e"](x)


def bessel_j0(x: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 0.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).bessel_j0().round_to(3)
    tensor([  1.0, 0.765], shape=(2,), dtype=float32)
    """
    return _t["bessel_j0"](x)


def bessel_j1(x: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 1.

    >>> import remat
    >>> remat.tensor([0.0, 1.0]).bessel_j1().round_to(3)
    tensor([ 0.0, 0.44], shape=(2,), dtype=float32)
    """
    return _t["bessel_j1"](x)


def isnan(x: Tensor) -> Tensor:
    """Whether x is no number.

    >>> import remat
    >>> remat.tensor([1.0, float("nan")]).isnan()
    tensor([False,  True], shape=(2,), dtype=bool)
    """
    return _t["is_nan"](x)


def isinf(x: Tensor) -> Tensor:
    """Whether x is infinite.

    >>> import remat
    >>> remat.tensor([1.0, float("inf")]).isinf()
    tensor([False,  True], shape=(2,), dtype=bool)
    """
    return _t["is_inf"](x)


def isfinite(x: Tensor) -> Tensor:
    """Whether x is neither.

    >>> import remat
    >>> remat.tensor([1.0, float("inf")]).isfinite()
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    return _t["is_finite"](x)


def logical_not(x: Tensor) -> Tensor:
    """`!x` of bools.

    >>> import remat
    >>> remat.tensor([True, False]).logical_not()
    tensor([False,  True], shape=(2,), dtype=bool)
    """
    return _t["logical_not"](x)


def bitwise_invert(x: Tensor) -> Tensor:
    """Every bit flipped. Also called `bitwise_not`.

    >>> import remat
    >>> remat.tensor([0, 5]).bitwise_invert()
    tensor([-1, -6], shape=(2,), dtype=int64)
    """
    return _t["bit_not"](x)


def add(x: Tensor, b: Operand) -> Tensor:
    """`a + b`.

    >>> import remat
    >>> remat.tensor([1, 2]).add(3)
    tensor([4, 5], shape=(2,), dtype=int64)
    """
    return _t["add"](x, b)


def subtract(x: Tensor, b: Operand) -> Tensor:
    """`a - b`. Also called `sub`.

    >>> import remat
    >>> remat.tensor([1, 2]).subtract(3)
    tensor([-2, -1], shape=(2,), dtype=int64)
    """
    return _t["sub"](x, b)


def multiply(x: Tensor, b: Operand) -> Tensor:
    """`a b`. Also called `mul`.

    >>> import remat
    >>> remat.tensor([1, 2]).multiply(3)
    tensor([3, 6], shape=(2,), dtype=int64)
    """
    return _t["mul"](x, b)


def divide(x: Tensor, b: Operand) -> Tensor:
    """`a / b`; integers truncate, and division by zero is an error of kind Value at run time. Also called `div`.

    >>> import remat
    >>> remat.tensor([1.0, 2.0]).divide(4.0)
    tensor([0.25,  0.5], shape=(2,), dtype=float32)
    """
    return _t["div"](x, b)


def floor_divide(x: Tensor, b: Operand) -> Tensor:
    """`floor(a / b)`, the whole number that `rem` fits; -1 or 0 for an infinite `b`.

    >>> import remat
    >>> remat.tensor([-7, 7]).floor_divide(2)
    tensor([-4,  3], shape=(2,), dtype=int64)
    """
    return _t["floor_div"](x, b)


def remainder(x: Tensor, b: Operand) -> Tensor:
    """`a - b floor(a / b)`: the sign of b. Also called `mod`.

    >>> import remat
    >>> remat.tensor([-7, 7]).remainder(2)
    tensor([1, 1], shape=(2,), dtype=int64)
    """
    return _t["rem"](x, b)


def pow(x: Tensor, b: Operand) -> Tensor:
    """`a^b`. Also called `power`.

    >>> import remat
    >>> remat.tensor([2.0, 3.0]).pow(2.0)
    tensor([4.0, 9.0], shape=(2,), dtype=float32)
    """
    return _t["pow"](x, b)


def maximum(x: Tensor, b: Operand) -> Tensor:
    """The larger; NaN if either is. A tie shares the gradient.

    >>> import remat
    >>> remat.tensor([1, 5]).maximum(3)
    tensor([3, 5], shape=(2,), dtype=int64)
    """
    return _t["maximum"](x, b)


def minimum(x: Tensor, b: Operand) -> Tensor:
    """The smaller; NaN if either is. A tie shares the gradient.

    >>> import remat
    >>> remat.tensor([1, 5]).minimum(3)
    tensor([1, 3], shape=(2,), dtype=int64)
    """
    return _t["minimum"](x, b)


def atan2(x: Tensor, b: Operand) -> Tensor:
    """The angle of the point (b, a). Also called `arctan2`.

    >>> import remat
    >>> remat.tensor([1.0]).atan2(1.0).round_to(3)
    tensor([0.785], shape=(1,), dtype=float32)
    """
    return _t["atan2"](x, b)


def logaddexp(x: Tensor, b: Operand) -> Tensor:
    """`ln(e^a + e^b)`.

    >>> import remat
    >>> remat.tensor([0.0]).logaddexp(0.0).round_to(3)
    tensor([0.693], shape=(1,), dtype=float32)
    """
    return _t["log_add_exp"](x, b)


def bce_with_logits(x: Tensor, b: Operand) -> Tensor:
    """`-b ln p - (1 - b) ln(1 - p)` with `p = sigmoid(a)`: the binary cross-entropy of logits with targets within 0
    ..= 1, without cancellation at either end.

    >>> import remat
    >>> remat.tensor([0.0]).bce_with_logits(remat.tensor([1.0])).round_to(3)
    tensor([0.693], shape=(1,), dtype=float32)
    """
    return _t["bce_with_logits"](x, b)


def hypot(x: Tensor, b: Operand) -> Tensor:
    """`sqrt(a^2 + b^2)` without overflow; the derivative at the origin is 0.

    >>> import remat
    >>> remat.tensor([3.0]).hypot(4.0)
    tensor([5.0], shape=(1,), dtype=float32)
    """
    return _t["hypot"](x, b)


def fmod(x: Tensor, b: Operand) -> Tensor:
    """The remainder of the division towards zero, of the sign of `a`; `rem` and `%` have the sign of `b`.

    >>> import remat
    >>> remat.tensor([-7.0, 7.0]).fmod(2.0)
    tensor([-1.0,  1.0], shape=(2,), dtype=float32)
    """
    return _t["fmod"](x, b)


def copysign(x: Tensor, b: Operand) -> Tensor:
    """`|a|` with the sign of `b`. No gradient for `b`.

    >>> import remat
    >>> remat.tensor([3.0]).copysign(-1.0)
    tensor([-3.0], shape=(1,), dtype=float32)
    """
    return _t["copysign"](x, b)


def zeta(x: Tensor, b: Operand) -> Tensor:
    """Hurwitz' zeta function `sum of 1 / (b + n)^a : n = 0, 1, ..`, for `a > 1`. No gradient for `a`.

    >>> import remat
    >>> remat.tensor([2.0]).zeta(1.0).round_to(3)
    tensor([1.645], shape=(1,), dtype=float32)
    """
    return _t["zeta"](x, b)


def gammainc(x: Tensor, b: Operand) -> Tensor:
    """The regularised lower incomplete gamma function `P(a, b)`. No gradient for `a`.

    >>> import remat
    >>> remat.tensor([1.0]).gammainc(1.0).round_to(3)
    tensor([0.632], shape=(1,), dtype=float32)
    """
    return _t["gammainc"](x, b)


def gammaincc(x: Tensor, b: Operand) -> Tensor:
    """`1 - P(a, b)` without cancellation. No gradient for `a`.

    >>> import remat
    >>> remat.tensor([1.0]).gammaincc(1.0).round_to(3)
    tensor([0.368], shape=(1,), dtype=float32)
    """
    return _t["gammaincc"](x, b)


def bitwise_and(x: Tensor, b: Operand) -> Tensor:
    """`a & b`.

    >>> import remat
    >>> remat.tensor([6]).bitwise_and(3)
    tensor([2], shape=(1,), dtype=int64)
    """
    return _t["bit_and"](x, b)


def bitwise_or(x: Tensor, b: Operand) -> Tensor:
    """`a | b`.

    >>> import remat
    >>> remat.tensor([6]).bitwise_or(3)
    tensor([7], shape=(1,), dtype=int64)
    """
    return _t["bit_or"](x, b)


def bitwise_xor(x: Tensor, b: Operand) -> Tensor:
    """`a ^ b`.

    >>> import remat
    >>> remat.tensor([6]).bitwise_xor(3)
    tensor([5], shape=(1,), dtype=int64)
    """
    return _t["bit_xor"](x, b)


def bitwise_left_shift(x: Tensor, b: Operand) -> Tensor:
    """`a << b`; 0 beyond the width.

    >>> import remat
    >>> remat.tensor([3]).bitwise_left_shift(2)
    tensor([12], shape=(1,), dtype=int64)
    """
    return _t["shl"](x, b)


def bitwise_right_shift(x: Tensor, b: Operand) -> Tensor:
    """`a >> b`; the sign's fill beyond the width.

    >>> import remat
    >>> remat.tensor([12]).bitwise_right_shift(2)
    tensor([3], shape=(1,), dtype=int64)
    """
    return _t["shr"](x, b)


def logical_and(x: Tensor, b: Operand) -> Tensor:
    """Both, of bools.

    >>> import remat
    >>> remat.tensor([True, False]).logical_and(True)
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    return _t["logical_and"](x, b)


def logical_or(x: Tensor, b: Operand) -> Tensor:
    """Either, of bools.

    >>> import remat
    >>> remat.tensor([True, False]).logical_or(True)
    tensor([True, True], shape=(2,), dtype=bool)
    """
    return _t["logical_or"](x, b)


def logical_xor(x: Tensor, b: Operand) -> Tensor:
    """One of both, of bools.

    >>> import remat
    >>> remat.tensor([True, False]).logical_xor(True)
    tensor([False,  True], shape=(2,), dtype=bool)
    """
    return _t["logical_xor"](x, b)


def prelu(x: Tensor, b: Operand) -> Tensor:
    """`a > 0 ? a : a b`.

    >>> import remat
    >>> remat.tensor([-2.0, 3.0]).prelu(0.5)
    tensor([-1.0,  3.0], shape=(2,), dtype=float32)
    """
    return _t["prelu"](x, b)


def equal(x: Tensor, b: Operand) -> Tensor:
    """`a == b`. Also called `eq`.

    >>> import remat
    >>> remat.tensor([1, 2]).equal(2)
    tensor([False,  True], shape=(2,), dtype=bool)
    """
    return _t["eq"](x, b)


def not_equal(x: Tensor, b: Operand) -> Tensor:
    """`a != b`. Also called `ne`.

    >>> import remat
    >>> remat.tensor([1, 2]).not_equal(2)
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    return _t["ne"](x, b)


def less(x: Tensor, b: Operand) -> Tensor:
    """`a < b`. Also called `lt`.

    >>> import remat
    >>> remat.tensor([1, 2]).less(2)
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    return _t["lt"](x, b)


def less_equal(x: Tensor, b: Operand) -> Tensor:
    """`a <= b`. Also called `le`.

    >>> import remat
    >>> remat.tensor([1, 2]).less_equal(1)
    tensor([ True, False], shape=(2,), dtype=bool)
    """
    return _t["le"](x, b)


def greater(x: Tensor, b: Operand) -> Tensor:
    """`a > b`. Also called `gt`.

    >>> import remat
    >>> remat.tensor([1, 2]).greater(1)
    tensor([False,  True], shape=(2,), dtype=bool)
    """
    return _t["gt"](x, b)


def greater_equal(x: Tensor, b: Operand) -> Tensor:
    """`a >= b`. Also called `ge`.

    >>> import remat
    >>> remat.tensor([1, 2]).greater_equal(2)
    tensor([False,  True], shape=(2,), dtype=bool)
    """
    return _t["ge"](x, b)


def group_norm(x: Tensor, groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-05) -> Tensor:
    """Normalised over each of `groups` groups of channels (axis 1) of each image: `(x - mean) / sqrt(var + eps) weight
    + bias`, with biased variance (Wu and He, ECCV 2018). `x: [n, c, ..]`, `weight, bias: [c]`, or none of them.

    >>> import remat
    >>> remat.tensor([[1.0, 3.0, 0.0, 0.0]]).group_norm(2).round_to(3)
    tensor([[-1.0,  1.0,  0.0,  0.0]], shape=(1, 4), dtype=float32)
    """
    return _t["group_norm"](x, groups, weight, bias, eps)


def instance_norm(x: Tensor, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-05) -> Tensor:
    """Normalised over each channel of each image: `group_norm` with as many groups as channels (Ulyanov et al.,
    arXiv:1607.08022). Errors: as there.

    >>> import remat
    >>> remat.tensor([[[1.0, 3.0]]]).instance_norm().round_to(3)
    tensor([[[-1.0,  1.0]]], shape=(1, 1, 2), dtype=float32)
    """
    return _t["instance_norm"](x, weight, bias, eps)


def general_norm(x: Tensor, axes: AxisLike = _REQUIRED, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-05, *, dim: Any = None) -> Tensor:
    """`(x - mean) / sqrt(var + eps) weight + bias` with mean and biased variance over `axes`, which may be any;
    `weight` and `bias`, or none of them, have the extents of those axes, in ascending order. All axes if none is
    named. Errors: AxisError; DTypeError; ShapeError; ValueError for a negative `eps`.

    >>> import remat
    >>> remat.tensor([[1.0, 3.0]]).general_norm(1).round_to(3)
    tensor([[-1.0,  1.0]], shape=(1, 2), dtype=float32)
    """
    axes = axes if dim is None else dim
    _required(axes, "general_norm", "axes")
    return _t["general_norm"](x, axes, weight, bias, eps)


def local_response_norm(x: Tensor, size: int, alpha: float = 1e-04, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Each element divided by `(k + alpha mean)^beta`, with the mean of the squares of `size` neighbouring channels
    (axis 1), zeros beyond the ends (Krizhevsky et al., NeurIPS 2012, whose alpha is that of the sum: `alpha /
    size`). PyTorch's `alpha` is 1e-4 by default, its `beta` 0.75, its `k` 1.

    >>> import remat
    >>> remat.ones(1, 2, 2).local_response_norm(2).shape
    (1, 2, 2)
    """
    return _t["local_response_norm"](x, size, alpha, beta, k)


def pad_with(x: Tensor, amounts: Any, mode: "str") -> Tensor:
    """With `(before, after)` elements around each axis, one pair an axis, of what `mode` says; names as in PyTorch.
    NumPy calls them constant, reflect, edge and wrap.

    >>> import remat
    >>> remat.tensor([1, 2, 3]).pad_with([(2, 1)], "reflect")
    tensor([3, 2, 1, 2, 3, 2], shape=(6,), dtype=int64)
    """
    return _t["pad_with"](x, amounts, mode)


def global_avg_pool(x: Tensor) -> Tensor:
    """The mean over all spatial axes, which stay with extent 1. Errors: AxisError below rank 3; ShapeError for images
    without pixels.

    >>> import remat
    >>> remat.ones(1, 2, 3, 3).global_avg_pool().shape
    (1, 2, 1, 1)
    """
    return _t["global_avg_pool"](x)


def global_max_pool(x: Tensor) -> Tensor:
    """The largest element over all spatial axes, which stay with extent 1; ties share the gradient. Errors: as
    `global_avg_pool`.

    >>> import remat
    >>> remat.ones(1, 2, 3, 3).global_max_pool().shape
    (1, 2, 1, 1)
    """
    return _t["global_max_pool"](x)


def roi_pool(x: Tensor, boxes: Tensor, size: Any, scale: float = 1.0) -> Tensor:
    """The largest element of each part of each region (Girshick, ICCV 2015): `x: [n, c, h, w]`, `boxes: [k, 5]`, the
    number of an image and the corners left, top, right, bottom, times `scale`, to `[k, c, size..]`. A part that is
    empty is 0; boxes have no gradient. Errors: AxisError, ShapeError, DTypeError, ValueError.

    >>> import remat
    >>> x = remat.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> x.roi_pool(remat.tensor([[0.0, 0.0, 0.0, 1.0, 1.0]]), (1, 2)).tolist()
    [[[[3.0, 4.0]]]]
    """
    return _t["roi_pool"](x, boxes, size, scale)


def nms(x: Tensor, scores: Tensor, iou: float, max_output: Any = None) -> Tensor:
    """Non-maximum suppression: the indices of the boxes that stay, the best first, as I64. `x: [n, 4]` of corners
    left, top, right, bottom, `scores: [n]`. A box is dropped if its intersection over union with a better box that
    stays is more than `iou`. At most `max_output` boxes stay. The call reads their number: see `as_size`.

    >>> import remat
    >>> boxes = remat.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.1], [5.0, 5.0, 6.0, 6.0]])
    >>> boxes.nms(remat.tensor([0.5, 0.9, 0.1]), 0.5)
    tensor([1, 2], shape=(2,), dtype=int64)
    """
    return _t["nms"](x, scores, iou, max_output)


def batched_nms(x: Tensor, scores: Tensor, groups: Tensor, iou: float) -> Tensor:
    """`nms` within each group of boxes: `groups: [n]` of integers. Errors: as there.

    >>> import remat
    >>> boxes = remat.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.1]])
    >>> boxes.batched_nms(remat.tensor([0.5, 0.9]), remat.tensor([0, 1]), 0.5)
    tensor([1, 0], shape=(2,), dtype=int64)
    """
    return _t["batched_nms"](x, scores, groups, iou)


def box_iou(x: Tensor, others: Tensor) -> Tensor:
    """Intersection over union of each pair of boxes: `x: [n, 4]`, `others: [m, 4]`, corners left, top, right, bottom,
    to `[n, m]`. Errors: ShapeError, DTypeError.

    >>> import remat
    >>> remat.tensor([[0.0, 0.0, 2.0, 2.0]]).box_iou(remat.tensor([[0.0, 0.0, 2.0, 1.0]]))
    tensor([[0.5]], shape=(1, 1), dtype=float32)
    """
    return _t["box_iou"](x, others)


def box_area(x: Tensor) -> Tensor:
    """Width times height of boxes `[n, 4]`, corners left, top, right, bottom: `[n]`. Errors: ShapeError.

    >>> import remat
    >>> remat.tensor([[0.0, 0.0, 2.0, 3.0]]).box_area()
    tensor([6.0], shape=(1,), dtype=float32)
    """
    return _t["box_area"](x)


def box_convert(x: Tensor, from_: "str", to: "str") -> Tensor:
    """Boxes `[n, 4]` in another form. Errors: ShapeError.

    >>> import remat
    >>> remat.tensor([[1.0, 1.0, 3.0, 5.0]]).box_convert("xyxy", "xywh")
    tensor([[1.0, 1.0, 2.0, 4.0]], shape=(1, 4), dtype=float32)
    """
    return _t["box_convert"](x, from_, to)


def clip_boxes(x: Tensor, size: Any) -> Tensor:
    """Boxes `[n, 4]`, corners left, top, right, bottom, cut to an image of `size`, height and width. Errors:
    ShapeError.

    >>> import remat
    >>> remat.tensor([[-1.0, 1.0, 9.0, 5.0]]).clip_boxes((4, 6))
    tensor([[0.0, 1.0, 6.0, 4.0]], shape=(1, 4), dtype=float32)
    """
    return _t["clip_boxes"](x, size)


def grid_sample(x: Tensor, grid: Tensor, between: "str" = "linear", beyond: "str" = "zeros", align_corners: bool = False) -> Tensor:
    """Each image at the points of its grid: `x: [n, c, size..]` with two or three spatial axes, `grid: [n, out..,
    axes]`, to `[n, c, out..]`. Coordinates stand last axis first (x, y, z) and run from -1 to 1 over the image:
    from edge to edge, or if `align_corners` from the middle of the first pixel to that of the last.
    `Beyond::Reflect` reflects where -1 and 1 are, as PyTorch's `reflection`.

    >>> import remat
    >>> remat.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).grid_sample(remat.zeros(1, 1, 1, 2)).tolist()
    [[[[2.5]]]]
    """
    return _t["grid_sample"](x, grid, between, beyond, align_corners)


def affine_grid(x: Tensor, size: ShapeLike, align_corners: bool = False) -> Tensor:
    """The grid for `grid_sample` that an affine map makes: `x: [n, axes, axes + 1]` maps the coordinates of an output
    of extents `size`, one for each axis, to `[n, size.., axes]` (Jaderberg et al., NeurIPS 2015). Errors:
    AxisError; ShapeError; DTypeError.

    >>> import remat
    >>> remat.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]).affine_grid((2, 2)).tolist()
    [[[[-0.5, -0.5], [0.5, -0.5]], [[-0.5, 0.5], [0.5, 0.5]]]]
    """
    return _t["affine_grid"](x, size, align_corners)


def ps_roi_pool(x: Tensor, boxes: Tensor, size: Any, scale: float = 1.0) -> Tensor:
    """The mean of each part of each region, where each part has channels of its own (Dai et al., NeurIPS 2016): `x:
    [n, c ph pw, h, w]`, `boxes: [k, 5]`, the number of an image and the corners left, top, right, bottom, times
    `scale` and rounded, to `[k, c, ph, pw]`. As in torchvision the last row and the last column of the image belong
    to no part; a part without pixels is 0. Boxes have no gradient.

    >>> import remat
    >>> remat.ones(1, 2, 2, 3).ps_roi_pool(remat.tensor([[0.0, 0.0, 0.0, 2.0, 1.0]]), (1, 2)).tolist()
    [[[[1.0, 1.0]]]]
    """
    return _t["ps_roi_pool"](x, boxes, size, scale)


def pixel_shuffle(x: Tensor, r: int) -> Tensor:
    """`r^2` channels as the pixels of an `r` times larger image: `[.., c r r, h, w]` to `[.., c, h r, w r]` (Shi et
    al., CVPR 2016). Errors: AxisError below rank 3; ValueError for an `r` of 0, or if its square does not divide
    the channels.

    >>> import remat
    >>> remat.arange(4).reshape(1, 4, 1, 1).pixel_shuffle(2).tolist()
    [[[[0, 1], [2, 3]]]]
    """
    return _t["pixel_shuffle"](x, r)


def pixel_unshuffle(x: Tensor, r: int) -> Tensor:
    """The reverse of `pixel_shuffle`: `[.., c, h r, w r]` to `[.., c r r, h, w]`. Errors: AxisError below rank 3;
    ValueError for an `r` of 0, or one that does not divide height and width.

    >>> import remat
    >>> remat.arange(4).reshape(1, 1, 2, 2).pixel_unshuffle(2).shape
    (1, 4, 1, 1)
    """
    return _t["pixel_unshuffle"](x, r)


def space_to_depth(x: Tensor, r: int) -> Tensor:
    """Blocks of `r` by `r` pixels as channels, the block first and the old channels within: `[n, c, h r, w r]` to `[n,
    r r c, h, w]` (ONNX's SpaceToDepth). Errors: AxisError below rank 3; ValueError as `pixel_unshuffle`.

    >>> import remat
    >>> remat.arange(4).reshape(1, 1, 2, 2).space_to_depth(2).shape
    (1, 4, 1, 1)
    """
    return _t["space_to_depth"](x, r)


def depth_to_space(x: Tensor, r: int) -> Tensor:
    """The reverse of `space_to_depth`: `[n, r r c, h, w]` to `[n, c, h r, w r]`; ONNX's DepthToSpace in its mode DCR.
    `pixel_shuffle` is its mode CRD. Errors: as there.

    >>> import remat
    >>> remat.arange(4).reshape(1, 4, 1, 1).depth_to_space(2).shape
    (1, 1, 2, 2)
    """
    return _t["depth_to_space"](x, r)


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """The channels (axis 1) of `groups` groups dealt out in turn: channel `i` of group `g` becomes channel `i groups +
    g` (Zhang et al., CVPR 2018). Errors: AxisError below rank 2; ValueError unless `groups` divides the channels.

    >>> import remat
    >>> remat.arange(4).reshape(1, 4, 1).channel_shuffle(2).tolist()
    [[[0], [2], [1], [3]]]
    """
    return _t["channel_shuffle"](x, groups)


def rot90(x: Tensor, quarters: int = 1, axes: Any = (0, 1), *, dim: Any = None) -> Tensor:
    """Turned by `quarters` right angles in the plane of two axes, from the first towards the second, as NumPy's
    `rot90`. Errors: AxisError if out of range, or twice the same.

    >>> import remat
    >>> remat.tensor([[1, 2], [3, 4]]).rot90()
    tensor([[2, 4],
            [1, 3]], shape=(2, 2), dtype=int64)
    """
    axes = axes if dim is None else dim
    return _t["rot90"](x, quarters, axes)


def cvt_color(x: Tensor, mode: "str") -> Tensor:
    """The colours of images `[n, c, h, w]` in another form. Luma is that of ITU-R BT.601; `U = 0.492 (B - Y) + 0.5`
    and `V = 0.877 (R - Y) + 0.5`, as OpenCV has them of floats. Errors: AxisError; ShapeError for other channels;
    DTypeError for other than floats.

    >>> import remat
    >>> remat.ones(1, 3, 2, 2).cvt_color("rgb_to_gray").shape
    (1, 1, 2, 2)
    """
    return _t["cvt_color"](x, mode)


inverse = inv
concatenate = concat
cat = concat
repeat_interleave = repeat
movedim = moveaxis
unsqueeze = expand_dims
absolute = abs
neg = negative
recip = reciprocal
arcsin = asin
arccos = acos
arctan = atan
arcsinh = asinh
arccosh = acosh
arctanh = atanh
bitwise_not = bitwise_invert
sub = subtract
mul = multiply
div = divide
mod = remainder
power = pow
arctan2 = atan2
eq = equal
ne = not_equal
lt = less
le = less_equal
gt = greater
ge = greater_equal

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "affine_grid",
    "all",
    "all_finite",
    "allclose",
    "alpha_dropout",
    "any",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "as_size",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "batch_norm",
    "batch_norm_with",
    "batched_nms",
    "bce_with_logits",
    "bernoulli",
    "bernoulli_sample",
    "bessel_j0",
    "bessel_j1",
    "beta_sample",
    "bincount",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "box_area",
    "box_convert",
    "box_iou",
    "broadcast_to",
    "bucketize",
    "cartesian_prod",
    "cat",
    "cauchy_like",
    "cdist",
    "ceil",
    "celu",
    "channel_shuffle",
    "cholesky",
    "cholesky_solve",
    "chunk",
    "clamp_max",
    "clamp_min",
    "clip_boxes",
    "concat",
    "concatenate",
    "cond_take",
    "contiguous",
    "copysign",
    "cos",
    "cosh",
    "cosine_similarity",
    "count_nonzero",
    "cross",
    "cross_entropy",
    "cross_entropy_with",
    "cummax_with_indices",
    "cummin_with_indices",
    "cumprod",
    "cumsum",
    "cumulate",
    "cvt_color",
    "deg2rad",
    "depth_to_space",
    "det",
    "diag",
    "diag_embed",
    "diagonal",
    "diff",
    "digamma",
    "dirichlet_sample",
    "div",
    "divide",
    "dot",
    "drop_path",
    "dropout",
    "dropout_channels",
    "eigh",
    "eigvalsh",
    "einsum",
    "elu",
    "embedding",
    "embedding_rows",
    "entr",
    "eq",
    "equal",
    "erf",
    "erfc",
    "erfcinv",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "exponential_sample",
    "fftfreq",
    "fftshift",
    "flatten",
    "flip",
    "floor",
    "floor_divide",
    "fmod",
    "fold_in",
    "frames",
    "gamma_sample",
    "gammainc",
    "gammaincc",
    "gather",
    "gather_nd",
    "ge",
    "geglu",
    "gelu",
    "gelu_tanh",
    "general_norm",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "greater",
    "greater_equal",
    "grid_sample",
    "group_norm",
    "gt",
    "gumbel_like",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "heaviside",
    "histc",
    "histogram",
    "hypot",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "ifftshift",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "instance_norm",
    "inv",
    "inverse",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "kron",
    "kthvalue",
    "laplace_like",
    "layer_norm",
    "le",
    "leaky_relu",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "local_response_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logcumsumexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsigmoid",
    "logspace",
    "logsumexp",
    "lstsq",
    "lt",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matmul_wide",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "max",
    "maximum",
    "mean",
    "median",
    "meshgrid",
    "min",
    "minimum",
    "mish",
    "mod",
    "mode",
    "moveaxis",
    "movedim",
    "mul",
    "multigammaln",
    "multinomial",
    "multiply",
    "nan_to_num",
    "nanmedian",
    "ne",
    "neg",
    "negative",
    "nms",
    "nonzero",
    "normal",
    "normal_like",
    "normalize",
    "not_equal",
    "one_hot",
    "outer",
    "overlap_add",
    "pad",
    "pad_with",
    "pairwise_distance",
    "permutation",
    "pinv",
    "pinv_with",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_sample",
    "polygamma",
    "pow",
    "power",
    "prelu",
    "prod",
    "ps_roi_pool",
    "put",
    "qr",
    "qr_complete",
    "quantile",
    "quantiles_over",
    "rad2deg",
    "recip",
    "reciprocal",
    "reglu",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "repeat_interleave",
    "rfftfreq",
    "rms_norm",
    "roi_pool",
    "roll",
    "rot90",
    "round",
    "round_away",
    "round_to",
    "rrelu",
    "rsqrt",
    "scatter",
    "scatter_add",
    "scatter_nd",
    "scatter_reduce",
    "searchsorted",
    "select_scatter",
    "selu",
    "shuffle",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "slogdet",
    "softmax",
    "softmin",
    "softplus",
    "softplus_with",
    "softshrink",
    "softsign",
    "solve",
    "sort_with_indices",
    "space_to_depth",
    "split_with_sizes",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "sub",
    "subtract",
    "sum",
    "sum_of_squares",
    "svd",
    "svdvals",
    "swapaxes",
    "swiglu",
    "t",
    "take",
    "take_flat",
    "tan",
    "tanh",
    "tanhshrink",
    "threshold",
    "tile",
    "topk",
    "topk_accuracy",
    "trace",
    "trapezoid",
    "tril",
    "triu",
    "trunc",
    "truncated_normal",
    "unbind",
    "unflatten",
    "uniform",
    "uniform_like",
    "unique_all",
    "unique_values",
    "unsqueeze",
    "var",
    "vector_norm",
    "where",
    "xlogy",
    "zeta",
]

# those whose first argument is the tensor
METHODS = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "affine_grid",
    "all",
    "allclose",
    "alpha_dropout",
    "any",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "as_size",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "batch_norm",
    "batch_norm_with",
    "batched_nms",
    "bce_with_logits",
    "bernoulli_sample",
    "bessel_j0",
    "bessel_j1",
    "beta_sample",
    "bincount",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "box_area",
    "box_convert",
    "box_iou",
    "broadcast_to",
    "bucketize",
    "cauchy_like",
    "cdist",
    "ceil",
    "celu",
    "channel_shuffle",
    "cholesky",
    "cholesky_solve",
    "chunk",
    "clamp_max",
    "clamp_min",
    "clip_boxes",
    "cond_take",
    "contiguous",
    "copysign",
    "cos",
    "cosh",
    "cosine_similarity",
    "count_nonzero",
    "cross",
    "cross_entropy",
    "cross_entropy_with",
    "cummax_with_indices",
    "cummin_with_indices",
    "cumprod",
    "cumsum",
    "cumulate",
    "cvt_color",
    "deg2rad",
    "depth_to_space",
    "det",
    "diag",
    "diag_embed",
    "diagonal",
    "diff",
    "digamma",
    "dirichlet_sample",
    "div",
    "divide",
    "dot",
    "drop_path",
    "dropout",
    "dropout_channels",
    "eigh",
    "eigvalsh",
    "elu",
    "embedding",
    "embedding_rows",
    "entr",
    "eq",
    "equal",
    "erf",
    "erfc",
    "erfcinv",
    "erfinv",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "exponential_sample",
    "fftshift",
    "flatten",
    "flip",
    "floor",
    "floor_divide",
    "fmod",
    "fold_in",
    "frames",
    "gamma_sample",
    "gammainc",
    "gammaincc",
    "gather",
    "gather_nd",
    "ge",
    "geglu",
    "gelu",
    "gelu_tanh",
    "general_norm",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "greater",
    "greater_equal",
    "grid_sample",
    "group_norm",
    "gt",
    "gumbel_like",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "heaviside",
    "histc",
    "histogram",
    "hypot",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "ifftshift",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "instance_norm",
    "inv",
    "inverse",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "kron",
    "kthvalue",
    "laplace_like",
    "layer_norm",
    "le",
    "leaky_relu",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "local_response_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logaddexp",
    "logcumsumexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logsigmoid",
    "logsumexp",
    "lstsq",
    "lt",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matmul_wide",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "max",
    "maximum",
    "mean",
    "median",
    "min",
    "minimum",
    "mish",
    "mod",
    "mode",
    "moveaxis",
    "movedim",
    "mul",
    "multigammaln",
    "multinomial",
    "multiply",
    "nan_to_num",
    "nanmedian",
    "ne",
    "neg",
    "negative",
    "nms",
    "nonzero",
    "normal_like",
    "normalize",
    "not_equal",
    "one_hot",
    "outer",
    "overlap_add",
    "pad",
    "pad_with",
    "pairwise_distance",
    "permute_dims",
    "pinv",
    "pinv_with",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_sample",
    "polygamma",
    "pow",
    "power",
    "prelu",
    "prod",
    "ps_roi_pool",
    "put",
    "qr",
    "qr_complete",
    "quantile",
    "quantiles_over",
    "rad2deg",
    "recip",
    "reciprocal",
    "reglu",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "repeat",
    "repeat_interleave",
    "rms_norm",
    "roi_pool",
    "roll",
    "rot90",
    "round",
    "round_away",
    "round_to",
    "rrelu",
    "rsqrt",
    "scatter",
    "scatter_add",
    "scatter_nd",
    "scatter_reduce",
    "searchsorted",
    "select_scatter",
    "selu",
    "shuffle",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "slogdet",
    "softmax",
    "softmin",
    "softplus",
    "softplus_with",
    "softshrink",
    "softsign",
    "solve",
    "sort_with_indices",
    "space_to_depth",
    "split_with_sizes",
    "sqrt",
    "square",
    "squeeze",
    "std",
    "sub",
    "subtract",
    "sum",
    "sum_of_squares",
    "svd",
    "svdvals",
    "swapaxes",
    "swiglu",
    "t",
    "take",
    "take_flat",
    "tan",
    "tanh",
    "tanhshrink",
    "threshold",
    "tile",
    "topk",
    "topk_accuracy",
    "trace",
    "trapezoid",
    "tril",
    "triu",
    "trunc",
    "unbind",
    "unflatten",
    "uniform_like",
    "unique_all",
    "unique_values",
    "unsqueeze",
    "var",
    "vector_norm",
    "where",
    "xlogy",
    "zeta",
]
